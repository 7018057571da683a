// A function that makes a box of an elementwise value: what a kernel's input
// window would otherwise copy from an array.
#include "codegen/codegen.h"
#include "codegen/plan.h"

#include <llvm-c/Core.h>

enum { kParams = 5 };  // of at_core_fill_fn
enum { kBufs, kStart, kSize, kDst, kStride };

typedef struct fill {
  const at_comp *body;
  const at_type *type;
  at_ix ix[AT_CG_MAX_RANK];
  LLVMValueRef start[AT_CG_MAX_RANK], size[AT_CG_MAX_RANK],
      stride[AT_CG_MAX_RANK];
} fill;

// Entry i of the list that a parameter points to.
static LLVMValueRef load_at(at_em *e, LLVMTypeRef t, uint32_t param,
                            uint32_t i) {
  LLVMValueRef k = at_em_i64(e, i);
  LLVMValueRef p =
      LLVMBuildGEP2(e->b, t, LLVMGetParam(e->fn, param), &k, 1, "");
  return LLVMBuildLoad2(e->b, t, p, "");
}

// Operands become homes of the region's parameters; start, size and stride of
// each dimension are loaded once.
static void bind(at_em *e, fill *f) {
  LLVMTypeRef i64 = at_em_int(e, 64);
  LLVMTypeRef ptr = LLVMPointerTypeInContext(e->ctx, 0);
  for (uint32_t i = 0; i < f->body->num_params; i++)
    at_em_bind(e, (at_value){f->body->params[i], 0},
               (at_home){.ptr = load_at(e, ptr, kBufs, i), .invariant = true});
  for (uint32_t d = 0; d < f->type->rank; d++) {
    f->start[d] = load_at(e, i64, kStart, d);
    f->size[d] = load_at(e, i64, kSize, d);
    f->stride[d] = load_at(e, i64, kStride, d);
  }
}

// The place of the loop's index along dimension d of the whole value.
static at_ix place_of(at_em *e, const fill *f, uint32_t d, const at_loop *l) {
  LLVMValueRef i = LLVMBuildAdd(e->b, f->start[d], at_ix_value(e, l->i), "");
  int64_t last = AT_MAX(f->type->dims[d] - 1, 0);
  return e->lanes > 1
             ? at_ix_lanes(e, at_ix_of(i, 0, AT_MAX(last + 1 - e->lanes, 0), 1))
             : at_ix_of(i, 0, last, 1);
}

// The element, or vector, at the loop's place, stored behind `row` at the
// loop's index, which counts from the box's begin.
static void one_step(at_em *e, fill *f, LLVMValueRef row, const at_loop *l) {
  uint32_t last = f->type->rank - 1;
  f->ix[last] = place_of(e, f, last, l);
  const at_pos *p = at_pos_make(e, false, f->type->rank, f->type->dims, f->ix);
  at_val v = at_em_elem(e, f->body->results[0], p);
  at_ix to = l->i;
  to.mult = 1;
  if (e->lanes > 1) to = at_ix_lanes(e, to);
  if (at_em_ok(e)) at_em_store(e, row, f->type->dtype, to, v);
}

// Along the last dimension: whole vectors, then single elements.
static void make_row(at_em *e, fill *f, LLVMValueRef row, uint32_t lanes) {
  int64_t size = f->type->dims[f->type->rank - 1];
  LLVMValueRef n = f->size[f->type->rank - 1], main = at_em_i64(e, 0);
  at_loop l;
  if (lanes > 1) {
    main = LLVMBuildAnd(e->b, n, at_em_i64(e, -(int64_t)lanes), "");
    e->lanes = lanes;
    at_loop_begin(e, &l, at_em_i64(e, 0), main, lanes, 0,
                  AT_MAX(0, size - lanes));
    one_step(e, f, row, &l);
    at_loop_end(e, &l);
    e->lanes = 1;
  }
  at_loop_begin(e, &l, main, n, 1, 0, AT_MAX(0, size - 1));
  one_step(e, f, row, &l);
  at_loop_end(e, &l);
}

// Loops over all but the last dimension; strides of the box are in bytes.
static at_status emit(at_em *e, void *arg) {
  const at_node *n = arg;
  fill f = {.body = n->regions[0], .type = &n->types[0]};
  at_cg_cost cost;
  AT_TRY(at_cg_cost_of(e->arena, n, &cost));
  e->wide_index = cost.elements >= 1 << 28;
  uint32_t rank = f.type->rank, lanes = at_lanes_for(e->cpu, &cost);
  at_loop loops[AT_CG_MAX_RANK];
  LLVMValueRef row = LLVMGetParam(e->fn, kDst);
  bind(e, &f);
  for (uint32_t d = 0; d + 1 < rank; d++) {
    at_loop_begin(e, &loops[d], at_em_i64(e, 0), f.size[d], 1, 0,
                  AT_MAX(f.type->dims[d] - 1, 0));
    f.ix[d] = place_of(e, &f, d, &loops[d]);
    LLVMValueRef by =
        LLVMBuildMul(e->b, at_ix_value(e, loops[d].i), f.stride[d], "");
    row = LLVMBuildGEP2(e->b, at_em_int(e, 8), row, &by, 1, "");
  }
  make_row(e, &f, row, lanes);
  for (uint32_t d = rank - 1; d-- > 0;) at_loop_end(e, &loops[d]);
  LLVMBuildRetVoid(e->b);
  return AT_OK;
}

// INTERNAL: a node that is no elementwise fusion of one array; UNIMPLEMENTED:
// its body uses values from outside.
at_status at_cg_fill(at_cg *cg, const at_node *n, uint32_t *out_kernel) {
  if (n->op != AT_OP_FUSION || n->num_results != 1 || !n->types[0].rank ||
      n->types[0].rank > AT_CG_MAX_RANK)
    return AT_FAIL(AT_INTERNAL, "boxes of %s", at_op_text(n->op));
  at_value captured = at_body_capture(n->regions[0]);
  if (captured.node) return at_body_refuse("a kernel's input", captured);
  at_cg_function f = {.emit = emit,
                      .arg = (void *)(uintptr_t)n,
                      .kind = AT_XK_CORE_FILL,
                      .num_params = kParams};
  return at_cg_external(cg, &f, out_kernel);
}

// A program as functions: arguments, values, the walk over operations.
#include <stdio.h>

#include "mosaic/emit.h"
#include "mosaic/mosaic_internal.h"

// ---- small things
LLVMValueRef at_me_i32(at_me *m, int64_t v) {
  return at_em_ci(m->e, at_em_int(m->e, 32), v);
}
// Scalar arithmetic is remembered: equal addresses are then equal registers.
static LLVMValueRef known_bin(at_me *m, at_b_op op, LLVMValueRef a,
                              LLVMValueRef b) {
  uint64_t key = 1u << 20 | op;
  at_val *known = at_em_memo_find(m->e, a, key, b);
  if (known) return known->re;
  LLVMValueRef r = at_b_bin(m->e, op, a, b);
  at_em_memo_put(m->e, a, key, b, (at_val){r, NULL});
  return r;
}
LLVMValueRef at_me_i64(at_me *m, LLVMValueRef v) {
  uint64_t key = 1u << 20 | AT_B_OP_COUNT;
  at_val *known = at_em_memo_find(m->e, v, key, NULL);
  if (known) return known->re;
  LLVMValueRef r = at_b_cast(m->e, AT_B_SEXT, v, at_em_int(m->e, 64));
  at_em_memo_put(m->e, v, key, NULL, (at_val){r, NULL});
  return r;
}
LLVMValueRef at_me_offset(at_me *m, LLVMValueRef base, uint32_t bytes,
                          at_me_num n) {
  if (!n.v && n.c == 0) return base;
  uint64_t key = 1u << 21 | bytes;
  LLVMValueRef at = at_me_num_value(m, n);
  at_val *known = at_em_memo_find(m->e, base, key, at);
  if (known) return known->re;
  LLVMValueRef r = at_b_gep(m->e, at_em_int(m->e, 8 * bytes), base, at);
  at_em_memo_put(m->e, base, key, at, (at_val){r, NULL});
  return r;
}

void at_me_put(at_me *m, LLVMValueRef p, size_t at, LLVMValueRef v) {
  LLVMValueRef to =
      at_b_gep(m->e, at_em_int(m->e, 8), p, at_em_i64(m->e, (int64_t)at));
  at_b_store(m->e, v, to, 4);
}

at_me_num at_me_num_of(LLVMValueRef v) {
  at_me_num n = {0, v};
  if (at_b_const_int(v, &n.c)) n.v = NULL;
  return n;
}
LLVMValueRef at_me_num_value(at_me *m, at_me_num n) {
  return n.v ? n.v : at_em_i64(m->e, n.c);
}
at_me_num at_me_add(at_me *m, at_me_num a, at_me_num b) {
  if (!a.v && !b.v) return (at_me_num){a.c + b.c, NULL};
  if (!a.v && a.c == 0) return b;
  if (!b.v && b.c == 0) return a;
  return at_me_num_of(
      known_bin(m, AT_B_ADD, at_me_num_value(m, a), at_me_num_value(m, b)));
}
at_me_num at_me_mul(at_me *m, at_me_num a, at_me_num b) {
  if (!a.v && !b.v) return (at_me_num){a.c * b.c, NULL};
  if (!a.v && a.c == 1) return b;
  if (!b.v && b.c == 1) return a;
  if ((!a.v && a.c == 0) || (!b.v && b.c == 0)) return (at_me_num){0, NULL};
  return at_me_num_of(
      known_bin(m, AT_B_MUL, at_me_num_value(m, a), at_me_num_value(m, b)));
}

at_status at_me_refuse(at_me *m, const at_mop *op, const char *fmt, ...) {
  char text[256];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  return at_mosaic_fail(m->k, op, AT_UNIMPLEMENTED,
                        "no machine code for this form of %s: %s", op->name,
                        text);
}

int32_t at_me_loc(at_me *m, const at_mop *op) {
  if (m->window) return -1;
  // Steps inside a scope that JAX made itself stand where the scope does.
  const at_mloc *loc = *at_mosaic_place_of(op->loc).file ? op->loc : m->around;
  void **at = at_map_put_ptr(&m->placed, op);
  if (at && *at) return (int32_t)((uintptr_t)*at - 1);
  if (m->num_locs == m->max_locs) return (int32_t)m->num_locs - 1;
  m->locs[m->num_locs] = loc;
  m->loc_ops[m->num_locs] = op->name;
  if (at) *at = (void *)(uintptr_t)(m->num_locs + 1);
  return (int32_t)m->num_locs++;
}

// ---- values
at_me_slot *at_me_slot_of(at_me *m, const at_mvalue *v) {
  static _Thread_local at_me_slot spare;
  void **p = at_map_put_ptr(&m->slots, v);
  if (p && !*p) {
    at_me_slot *s = *p = at_new(m->a, at_me_slot, 1);
    if (s) s->plan = at_mplan_value_of(m->plan, v);
  }
  if (p && *p) return *p;
  at_em_fail(m->e, AT_NO_MEMORY("values of a kernel"));
  spare = (at_me_slot){.plan = at_mplan_value_of(m->plan, v)};
  return &spare;
}

LLVMValueRef at_me_scalar(at_me *m, const at_mvalue *v) {
  at_me_slot *s = at_me_slot_of(m, v);
  if (s->kind == AT_ME_SCALAR) return s->scalar;
  at_em_fail(m->e, AT_FAIL(AT_INTERNAL, "a number is used before it is there"));
  at_dtype t = at_mosaic_dtype_of(v->type);
  return at_b_poison(at_em_reg_type(m->e, t == AT_INVALID ? AT_S32 : t));
}
at_me_node *at_me_vector(at_me *m, const at_mvalue *v) {
  at_me_slot *s = at_me_slot_of(m, v);
  if (s->kind == AT_ME_VECTOR) return s->node;
  at_em_fail(m->e, AT_FAIL(AT_INTERNAL, "a vector is used before it is there"));
  return NULL;
}
at_me_ref *at_me_memory(at_me *m, const at_mvalue *v) {
  at_me_slot *s = at_me_slot_of(m, v);
  if (s->kind == AT_ME_MEMORY) return s->ref;
  at_em_fail(m->e, AT_FAIL(AT_INTERNAL, "a ref is used before it is there"));
  return NULL;
}
void at_me_set_scalar(at_me *m, const at_mvalue *v, LLVMValueRef x) {
  at_me_slot *s = at_me_slot_of(m, v);
  s->kind = AT_ME_SCALAR;
  s->scalar = x;
}
void at_me_set_ref(at_me *m, const at_mvalue *v, const at_me_ref *r) {
  at_me_slot *s = at_me_slot_of(m, v);
  s->kind = AT_ME_MEMORY;
  s->ref = at_arena_copy(m->a, r, sizeof *r, _Alignof(at_me_ref));
  if (!s->ref) at_em_fail(m->e, AT_NO_MEMORY("refs of a kernel"));
}

at_status at_me_set_node(at_me *m, at_mvalue *v, at_me_node *n) {
  if (!n) return AT_NO_MEMORY("values of a kernel");
  at_me_slot *s = at_me_slot_of(m, v);
  s->kind = AT_ME_VECTOR;
  s->node = n;
  n->refs += s->plan->uses;
  if (s->plan->uses == 0) {
    n->refs++;
    at_me_node_drop(m, n);
    return AT_OK;
  }
  bool trivial =
      n->kind == AT_ME_BUFFER || n->kind == AT_ME_SPLAT || n->kind == AT_ME_DOT;
  if (trivial) return AT_OK;
  bool deep = s->plan->deep || n->height > AT_ME_MAX_HEIGHT;
  if (s->plan->kept || (s->plan->spread && n->kind == AT_ME_APPLY))
    at_me_node_drop(m, at_me_materialise(m, n));
  else if (deep)
    at_me_cut(m, n);
  return AT_OK;
}

// ---- functions
enum { REF_BYTES = sizeof(at_core_ref) };

static LLVMValueRef field(at_me *m, LLVMValueRef p, int64_t byte,
                          LLVMTypeRef t) {
  LLVMTypeRef i8 = at_em_int(m->e, 8);
  LLVMValueRef at = at_b_gep(m->e, i8, p, at_em_i64(m->e, byte));
  return at_b_load(m->e, t, at, 4);
}

static uint32_t log2_of(uint32_t n) { return (uint32_t)__builtin_ctz(n); }

// Argument `index` among the refs. dense: strides are known.
static at_status bind_ref(at_me *m, at_mvalue *v, uint32_t index, bool dense) {
  at_mosaic_ref t;
  AT_TRY(at_mosaic_ref_of(v->type, &t));
  if (t.shape.rank > AT_ME_RANK)
    return AT_FAIL(AT_UNIMPLEMENTED,
                   "kernel %s: an argument with %u dimensions", m->k->name,
                   t.shape.rank);
  LLVMValueRef p = at_b_gep(m->e, at_em_int(m->e, 8), m->refs,
                            at_em_i64(m->e, (int64_t)index * REF_BYTES));
  at_me_ref r = {.base = field(m, p, 0, at_b_ptr(m->e)),
                 .dtype = t.dtype,
                 .storage = t.dtype,
                 .space = t.space,
                 .root = at_mplan_value_of(m->plan, v)->root,
                 .pages = at_mplan_value_of(m->plan, v)->pages,
                 .arg = index + 1,
                 .rank = t.shape.rank,
                 .parts = 1,
                 .split = 1};
  r.bytes =
      t.semaphore != AT_MSEM_NONE ? AT_CORE_SEM_BYTES : at_dtype_bytes(t.dtype);
  int64_t step = 1;
  for (uint32_t d = r.rank; d-- > 0;) {
    int64_t size = t.shape.ptr[d];
    if (size == AT_MDYN)
      return AT_FAIL(AT_UNIMPLEMENTED,
                     "kernel %s: an argument of dynamic shape", m->k->name);
    r.size[d] = (at_me_num){size, NULL};
    r.stride[d] = (at_me_num){step, NULL};
    if (!dense && d + 1 < r.rank && size > 1) {
      LLVMValueRef s = field(m, p, 8 + 8 * (int64_t)d, at_em_int(m->e, 64));
      uint32_t shift = log2_of(r.bytes);
      if (shift) s = at_b_bin(m->e, AT_B_ASHR, s, at_em_i64(m->e, shift));
      r.stride[d] = (at_me_num){0, s};
    }
    step *= size;
  }
  at_me_set_ref(m, v, &r);
  return AT_OK;
}

static at_status bind_arguments(at_me *m, at_mblock *b, bool body) {
  const at_mosaic_program *p = m->p;
  uint32_t windows = at_mosaic_arg_window(p);
  uint32_t scratch = at_mosaic_arg_scratch(p);
  for (uint32_t i = 0; i < b->num_args; i++) {
    at_mvalue *v = &b->args[i];
    if (i < p->grid_rank) {
      at_me_set_scalar(m, v,
                       field(m, m->grid, 4 * (int64_t)i, at_em_int(m->e, 32)));
      continue;
    }
    bool dense = i < windows || (body && i >= scratch) ||
                 (i < scratch && p->windows[i - windows].kind == AT_MWIN_WHOLE);
    AT_TRY(bind_ref(m, v, i - p->grid_rank, dense));
  }
  return AT_OK;
}

static at_status start(at_me *m, at_em *e, const at_me *from,
                       const at_mblock *body) {
  *m = *from;
  m->e = e;
  m->a = e->arena;
  m->slots = at_map_in(m->a);
  m->walk = at_walk_in(m->a);
  m->templates = at_map_in(m->a);
  m->placed = at_map_in(m->a);
  m->core = at_b_param(e, 0);
  m->grid = at_b_param(e, 1);
  m->refs = at_b_param(e, 2);
  at_mplan_input in = {m->k, m->p, m->o, body, e->cpu};
  return at_mplan_make(&in, m->a, &m->plan);
}

// Memory that no region of its own gives back.
static bool allocates(const at_mblock *b) {
  for (uint32_t i = 0; i < b->num_ops; i++) {
    const at_mop *op = b->ops[i];
    at_mosaic_opcode c = at_mosaic_opcode_of(op);
    if (c == AT_MOSAIC_MEMREF_ALLOCA || c == AT_MOSAIC_TPU_SEM_ALLOC)
      return true;
    if (c == AT_MOSAIC_TPU_REGION) continue;
    for (uint32_t r = 0; r < op->num_regions; r++)
      for (uint32_t k = 0; k < op->regions[r]->num_blocks; k++)
        if (allocates(op->regions[r]->blocks[k])) return true;
  }
  return false;
}

static at_status emit_body(at_em *e, void *arg) {
  at_me m;
  at_mblock *b = ((const at_me *)arg)->p->body;
  AT_TRY(start(&m, e, arg, b));
  m.temp = field(&m, m.core, offsetof(at_core, temp), at_b_ptr(e));
  AT_TRY(bind_arguments(&m, b, true));
  LLVMValueRef mark = allocates(b) ? at_me_mark(&m) : NULL;
  AT_TRY(at_me_mxu_begin(&m, b));
  AT_TRY(at_me_emit_block(&m, b));
  at_me_mxu_end(&m);
  if (mark) at_me_release_to(&m, NULL, mark);
  at_b_ret(e);
  AT_TRY(at_walk_status(&m.walk));
  m.out->temp_bytes = (uint64_t)m.temp_bytes;
  m.out->num_locations = m.num_locs;
  return AT_OK;
}

// The transform's results go to parameter 3.
static at_status emit_index(at_em *e, void *arg) {
  at_me m;
  const at_mop *f = ((const at_me *)arg)->window->transform;
  if (f->num_regions != 1 || f->regions[0]->num_blocks != 1)
    return AT_FAIL(AT_INVALID_ARGUMENT, "a window transform without a body");
  at_mblock *b = f->regions[0]->blocks[0];
  AT_TRY(start(&m, e, arg, b));
  m.temp = field(&m, m.core, offsetof(at_core, temp), at_b_ptr(e));
  AT_TRY(bind_arguments(&m, b, false));
  AT_TRY(at_me_emit_block(&m, b));
  const at_mop *last = b->num_ops ? b->ops[b->num_ops - 1] : NULL;
  for (uint32_t i = 0; last && i < last->num_operands; i++) {
    LLVMValueRef at =
        at_b_gep(e, at_em_int(e, 32), at_b_param(e, 3), at_em_i64(e, i));
    at_b_store(e, at_me_scalar(&m, last->operands[i]), at, 4);
  }
  at_b_ret(e);
  return at_walk_status(&m.walk);
}

static uint32_t count_ops(const at_mblock *b) {
  uint32_t n = b->num_ops;
  for (uint32_t i = 0; i < b->num_ops; i++)
    for (uint32_t r = 0; r < b->ops[i]->num_regions; r++)
      for (uint32_t k = 0; k < b->ops[i]->regions[r]->num_blocks; k++)
        n += count_ops(b->ops[i]->regions[r]->blocks[k]);
  return n;
}

at_status at_mosaic_code_add(at_cg *cg, const at_mosaic_kernel *k,
                             uint32_t program, const at_mosaic_code_options *o,
                             at_arena *a, at_mosaic_code **out) {
  const at_mosaic_program *p = &k->programs[program];
  at_mosaic_code *c;
  uint32_t *index;
  at_me *m, *w;
  // Here, since the functions may be written more than once.
  if (!o->check) AT_TRY(at_mosaic_narrow_lanes(p, a));
  AT_TRY_ALLOC(c, at_new(a, at_mosaic_code, 1));
  AT_TRY_ALLOC(index, at_new(a, uint32_t, p->num_windows + 1));
  AT_TRY_ALLOC(m, at_new(a, at_me, 1));
  *m = (at_me){.k = k, .p = p, .out = c, .max_locs = count_ops(p->body) + 1};
  AT_TRY_ALLOC(
      m->o, at_arena_copy(a, o, sizeof *o, _Alignof(at_mosaic_code_options)));
  AT_TRY_ALLOC(m->locs, at_new(a, const at_mloc *, m->max_locs));
  AT_TRY_ALLOC(m->loc_ops, at_new(a, const char *, m->max_locs));
  *c = (at_mosaic_code){
      .index = index, .locations = m->locs, .location_ops = m->loc_ops};
  AT_TRY(at_mosaic_stack_of(k, p, a, &c->stack));
  at_cg_function f = {.emit = emit_body,
                      .arg = m,
                      .kind = AT_XK_CORE_BODY,
                      .num_params = 3,
                      .ops = at_mosaic_effort_of(p->body),
                      .work = at_mosaic_work_of(p)};
  AT_TRY(at_cg_external(cg, &f, &c->body));
  for (uint32_t i = 0; i < p->num_windows; i++) {
    if (!p->windows[i].transform) continue;
    AT_TRY_ALLOC(w, at_new(a, at_me, 1));
    *w = *m;
    w->window = &p->windows[i];
    f = (at_cg_function){.emit = emit_index,
                         .arg = w,
                         .kind = AT_XK_CORE_INDEX,
                         .num_params = 4};
    AT_TRY(at_cg_external(cg, &f, &index[i]));
    index[i]++;
  }
  *out = c;
  return AT_OK;
}

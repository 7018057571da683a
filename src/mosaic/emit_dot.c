// Products. tpu.matmul becomes a node that computes nothing until somebody
// needs it: a store of it, or of it added to what is in memory, then runs the
// product straight into that memory.
#include <stddef.h>

#include "base/cpu.h"
#include "mosaic/emit_dot.h"

// ---- one call per product
// Is a step of the outer dimension the same as `size` steps of the inner one?
// Then both are one dimension.
static bool runs_on(at_me_num outer, at_me_num inner, int64_t size) {
  return !outer.v && !inner.v && outer.c == inner.c * size;
}

// Dimensions of 1 are left out. Two dimensions become one if a step of the
// outer is `size` steps of the inner in a, b and c.
void at_me_add_axis(at_me_axes *s, at_me_axis x) {
  if (x.size == 1) return;
  at_me_axis *o = s->n ? &s->x[s->n - 1] : NULL;
  if (o && runs_on(o->a, x.a, x.size) && runs_on(o->b, x.b, x.size) &&
      runs_on(o->c, x.c, x.size)) {
    x.size *= o->size;
    *o = x;
    return;
  }
  s->x[s->n++] = x;
}

static at_me_axis last_axis(const at_me_axes *s) {
  return s->n ? s->x[s->n - 1] : (at_me_axis){.size = 1};
}

// p, moved by i strides of elements of so many bytes.
LLVMValueRef at_me_moved(at_me *m, LLVMValueRef p, uint32_t bytes, at_ix i,
                         at_me_num stride) {
  at_me_num x = at_me_num_of(at_ix_value(m->e, i));
  return at_me_offset(m, p, bytes, at_me_mul(m, x, stride));
}

#define FIELD(f) offsetof(at_core_dot, f)
// Strides of one operand or the result; those along a dimension that it has
// not are 0.
static void put_strides(at_me *m, at_me_record *r, uint32_t bytes,
                        const size_t *at, const at_me_num *stride) {
  for (int i = 0; i < 3; i++)
    at_me_record_num(m, r, at[i],
                     at_me_mul(m, stride[i], (at_me_num){bytes, NULL}));
}

// c = a b, or c += a b; p->first chooses between them at run time. Sizes and
// byte strides of the innermost axis of each kind.
LLVMValueRef at_me_dot_record(at_me *m, const at_me_product *p,
                              bool accumulate) {
  at_em *e = m->e;
  at_me_record d;
  at_me_axis batch = last_axis(&p->batch), M = last_axis(&p->m);
  at_me_axis N = last_axis(&p->n), K = last_axis(&p->k);
  at_me_record_begin(&d, sizeof(at_core_dot));
  if (p->a.base) at_me_record_value(m, &d, FIELD(a), p->a.base);
  if (p->b.base) at_me_record_value(m, &d, FIELD(b), p->b.base);
  if (p->c.base) at_me_record_value(m, &d, FIELD(c), p->c.base);
  at_me_record_i32(&d, FIELD(a_type), (int32_t)p->a.dtype);
  at_me_record_i32(&d, FIELD(b_type), (int32_t)p->b.dtype);
  at_me_record_i32(&d, FIELD(c_type), (int32_t)p->c.dtype);
  if (accumulate && p->first)
    at_me_record_value(
        m, &d, FIELD(accumulate),
        at_b_select(e, p->first, at_me_i32(m, 0), at_me_i32(m, 1)));
  else
    at_me_record_i32(&d, FIELD(accumulate), accumulate);
  at_me_record_i32(&d, FIELD(round_bf16), p->round);
  at_me_record_i32(&d, FIELD(later), p->later);
  // No b yet where a is packed before the loop.
  at_me_record_i32(&d, FIELD(pages), p->b.home && p->b.home->pages);
  at_me_record_i32(&d, FIELD(loc), at_me_loc(m, p->op));
  const struct {
    size_t at;
    int64_t size;
  } sizes[] = {{FIELD(batch), batch.size},
               {FIELD(m), M.size},
               {FIELD(n), N.size},
               {FIELD(k), K.size}};
  for (size_t i = 0; i < AT_LEN(sizes); i++)
    at_me_record_num(m, &d, sizes[i].at, (at_me_num){sizes[i].size, NULL});
  put_strides(m, &d, p->a.bytes,
              (const size_t[]){FIELD(a_batch), FIELD(a_m), FIELD(a_k)},
              (const at_me_num[]){batch.a, M.a, K.a});
  put_strides(m, &d, p->b.bytes,
              (const size_t[]){FIELD(b_batch), FIELD(b_k), FIELD(b_n)},
              (const at_me_num[]){batch.b, K.b, N.b});
  put_strides(m, &d, p->c.bytes,
              (const size_t[]){FIELD(c_batch), FIELD(c_m), FIELD(c_n)},
              (const at_me_num[]){batch.c, M.c, N.c});
  return at_me_record_end(m, &d);
}
#undef FIELD

// One call of the core's product, which reads its record.
static void call_dot(at_me *m, const at_me_product *p, bool accumulate) {
  LLVMValueRef args[2] = {m->core, at_me_dot_record(m, p, accumulate)};
  at_b_call(m->e, "at_core_dot_run", NULL, args, 2);
}

// Dimensions that do not fit one call are loops around it. The sum over several
// contracted dimensions begins with what c holds.
static void run_axes(at_me *m, at_me_product *p, at_me_axes *s,
                     bool contracted) {
  at_me_axes *next = s == &p->batch ? &p->m : s == &p->m ? &p->n : &p->k;
  if (s->n <= 1) {
    if (contracted)
      call_dot(m, p, p->accumulate);
    else
      run_axes(m, p, next, next == &p->k);
    return;
  }
  at_me_axis x = s->x[0];
  at_me_axes saved = *s;
  at_me_product before = *p;
  memmove(s->x, s->x + 1, (s->n - 1) * sizeof s->x[0]);
  s->n--;
  at_loop l;
  if (contracted) p->accumulate = true;
  at_loop_range(m->e, &l, 0, x.size, 1);
  p->a.base = at_me_moved(m, p->a.base, p->a.bytes, l.i, x.a);
  p->b.base = at_me_moved(m, p->b.base, p->b.bytes, l.i, x.b);
  p->c.base = at_me_moved(m, p->c.base, p->c.bytes, l.i, x.c);
  run_axes(m, p, s, contracted);
  at_loop_end(m->e, &l);
  p->a.base = before.a.base;
  p->b.base = before.b.base;
  p->c.base = before.c.base;
  *s = saved;
}

// Sorts the result's dimensions into batch, rows of a and columns of b by
// output_order, then the contracted ones; each axis has its stride in all
// three.
static void fill_axes(at_me_product *p, const at_mproduct_numbers *x,
                      const at_me_node *dot) {
  const at_mproduct_dims *order = &x->list[AT_MPRODUCT_ORDER];
  const at_me_num none = {0, NULL};
  for (uint32_t i = 0; i < order->n / 2 && i < dot->rank; i++) {
    int64_t d = order->d[2 * i + 1];
    at_me_num c = p->c.stride[i];
    if (order->d[2 * i]) {
      at_me_add_axis(&p->n, (at_me_axis){dot->dim[i], none, p->b.stride[d], c});
      continue;
    }
    uint32_t k = 0;
    while (k < x->list[AT_MPRODUCT_BATCH_A].n &&
           x->list[AT_MPRODUCT_BATCH_A].d[k] != d)
      k++;
    if (k == x->list[AT_MPRODUCT_BATCH_A].n)
      at_me_add_axis(&p->m, (at_me_axis){dot->dim[i], p->a.stride[d], none, c});
    else
      at_me_add_axis(
          &p->batch,
          (at_me_axis){dot->dim[i], p->a.stride[d],
                       p->b.stride[x->list[AT_MPRODUCT_BATCH_B].d[k]], c});
  }
  for (uint32_t k = 0; k < x->list[AT_MPRODUCT_SUM_A].n; k++) {
    int64_t d = x->list[AT_MPRODUCT_SUM_A].d[k];
    at_me_add_axis(
        &p->k,
        (at_me_axis){p->a.size[d].c, p->a.stride[d],
                     p->b.stride[x->list[AT_MPRODUCT_SUM_B].d[k]], none});
  }
}

// A view of the operand; yields the node to drop.
static at_me_node *operand(at_me *m, at_me_node *n, bool pages, at_me_ref *v) {
  at_me_node *b = pages ? at_me_view_pages(m, n, v) : at_me_view(m, n, v);
  if (v->dtype == AT_S4 || v->dtype == AT_S2) v->dtype = AT_S8;
  return b;
}

static at_mproduct_shape shape_of(const at_me_node *n) {
  return (at_mproduct_shape){n->dtype, n->rank, n->dim};
}

// False: the dimensions do not fit.
bool at_me_numbers_of(const at_mop *op, const at_me_node *a,
                      const at_me_node *b, at_mproduct_numbers *x) {
  at_mproduct_shape s = shape_of(a), t = shape_of(b);
  return at_mproduct_numbers_of(op, &s, &t, x);
}

// Does this product round f32 operands to bf16? (matmul.c)
static bool rounds(at_me *m, const at_mop *op, const at_me_node *a,
                   const at_me_node *b) {
  at_mproduct_shape s = shape_of(a), t = shape_of(b);
  return at_mproduct_rounds(op, &s, &t, m->o->exact_dots);
}

// A product of f32 that was just widened from bf16 may take the narrow values,
// which are the same numbers.
at_me_node *at_me_narrow_source(at_me_node *n) {
  bool widened = n->kind == AT_ME_APPLY && n->num_in == 1 &&
                 n->code == AT_MOSAIC_ARITH_EXTF && n->in[0]->dtype == AT_BF16;
  return widened ? n->in[0] : n;
}

// The product rounds what it reads.
static at_me_node *wide_source(at_me_node *n) {
  bool rounded = n->kind == AT_ME_APPLY && n->num_in == 1 &&
                 n->dtype == AT_BF16 && n->code == AT_MOSAIC_ARITH_TRUNCF &&
                 n->in[0]->dtype == AT_F32;
  return rounded ? n->in[0] : n;
}

// Accumulates only where start.first does not hold; NULL: always.
static void dot_run(at_me *m, at_me_node *dot, const at_me_ref *dst,
                    bool accumulate, at_me_start start) {
  at_me_node *a = dot->in[0], *b = dot->in[1];
  at_me_node *acc = dot->num_in > 2 ? dot->in[2] : NULL;
  at_mproduct_numbers x;
  if (!at_me_numbers_of(dot->op, a, b, &x)) {
    at_em_fail(m->e, at_me_refuse(m, dot->op, "its dimension numbers"));
    return;
  }
  at_me_product *p = at_new(m->a, at_me_product, 1);
  if (!p) {
    at_em_fail(m->e, AT_NO_MEMORY("a product"));
    return;
  }
  p->op = dot->op;
  p->round = dot->ints[0];
  // In a loop over rows b is packed already.
  at_me_node *da = operand(m, a, false, &p->a);
  at_me_node *db = m->rows->count ? NULL : operand(m, b, true, &p->b);
  if (!da || (!db && !m->rows->count)) return;
  p->c = *dst;
  if (acc && !accumulate) {
    at_me_copy_to(m, acc, dst, NULL, AT_ME_PLAIN);
    accumulate = true;
  }
  fill_axes(p, &x, dot);
  p->first = start.first;
  p->later = start.first && start.may_wait;
  if (p->k.n > 1) {
    at_me_start_now(m, start.first, dst);
    p->first = NULL;
    p->later = false;
  }
  if (p->k.n > 1 && !accumulate) {
    at_me_node *zero =
        at_me_splat(m, dot->dtype, at_b_null(at_em_reg_type(m->e, dot->dtype)));
    if (zero) at_me_copy_to(m, zero, dst, NULL, AT_ME_PLAIN);
  }
  p->accumulate = accumulate;
  if (m->rows->count)
    at_me_dot_call_rows(m, p, accumulate);
  else if (at_me_elements(dot) > 0)
    run_axes(m, p, &p->batch, false);
  at_me_node_drop(m, da);
  at_me_node_drop(m, db);
}

void at_me_dot_run(at_me *m, at_me_node *dot, const at_me_ref *dst,
                   bool accumulate) {
  dot_run(m, dot, dst, accumulate, (at_me_start){NULL, false});
}

// ---- stores of products
// Without reshapes, which do not move elements.
static at_me_node *peel(at_me_node *n) {
  while (n && n->kind == AT_ME_RESHAPE) n = n->in[0];
  return n;
}

// Is n a load of exactly the elements of dst, in their order? Dimensions of 1
// do not matter.
static bool is_same_memory(const at_me_node *n, const at_me_ref *dst) {
  if (n->kind != AT_ME_LOAD || n->ref->base != dst->base ||
      n->ref->packing->parts > 1 || n->ref->packing->split > 1 ||
      n->ref->dtype != dst->dtype)
    return false;
  uint32_t i = 0, j = 0;
  for (;;) {
    while (i < n->ref->rank && n->ref->size[i].c == 1) i++;
    while (j < dst->rank && dst->size[j].c == 1) j++;
    if (i == n->ref->rank || j == dst->rank)
      return i == n->ref->rank && j == dst->rank;
    if (n->ref->size[i].c != dst->size[j].c ||
        n->ref->stride[i].c != dst->stride[j].c ||
        n->ref->stride[i].v != dst->stride[j].v)
      return false;
    i++;
    j++;
  }
}

// Takes `product` and `load of dst + product`. Both must have no other user,
// and the product must not read dst's root, since it is written while operands
// are read.
bool at_me_dot_into(at_me *m, at_me_node *value, const at_me_ref *dst,
                    at_me_start start) {
  at_me_node *n = peel(value), *dot = n;
  bool accumulate = false;
  if (!n || dst->packing->parts > 1 || dst->packing->split > 1) return false;
  if (n->kind == AT_ME_APPLY && n->num_in == 2 &&
      (n->code == AT_MOSAIC_ARITH_ADDF || n->code == AT_MOSAIC_ARITH_ADDI)) {
    at_me_node *x = peel(n->in[0]), *y = peel(n->in[1]);
    if (at_me_uses_of(n) > 1) return false;
    if (y->kind == AT_ME_DOT && is_same_memory(x, dst))
      dot = y;
    else if (x->kind == AT_ME_DOT && is_same_memory(y, dst))
      dot = x;
    else
      return false;
    if (dot->num_in > 2) return false;
    accumulate = true;
  }
  if (dot->kind != AT_ME_DOT || dot->dtype != dst->dtype) return false;
  if (at_me_uses_of(dot) > 1) return false;
  uint64_t bit = at_mplan_root_bit(dst->home->root);
  if ((dot->in[0]->reads | dot->in[1]->reads) & bit) return false;
  if (dot->num_in > 2) {
    if (is_same_memory(peel(dot->in[2]), dst))
      accumulate = true;
    else if (dot->in[2]->reads & bit)
      return false;
  }
  at_me_ref c = *dst;
  c.rank = dot->rank;
  for (uint32_t d = 0; d < dot->rank; d++)
    c.size[d] = (at_me_num){dot->dim[d], NULL};
  if (!at_me_reshape_view(m, dst, &c)) return false;
  dot_run(m, dot, &c, accumulate, start);
  return true;
}

// ---- operations
static bool is_zero(const at_me_node *n) {
  if (n->kind != AT_ME_SPLAT) return false;
  return n->scalar == at_b_null(at_b_type_of(n->scalar));
}

// An elementwise conversion of n to type t, as a new node of n's shape.
static at_me_node *cast_to(at_me *m, const at_mop *op, at_me_node *n,
                           at_dtype t, at_mosaic_opcode code) {
  at_me_node *c = at_me_node_new(m, AT_ME_APPLY, op, op->operands[0]->type);
  if (!c) return n;
  c->rank = n->rank;
  memcpy(c->dim, n->dim, sizeof c->dim);
  c->dtype = t;
  c->code = code;
  at_me_node_hold(m, c, n);
  return c;
}

// bf16 that is f32 in memory, rounded, for a product that rounds what it reads:
// that memory.
static at_me_node *wide_memory(at_me *m, const at_mop *op, at_me_node *n) {
  at_me_node *rounded = peel(n), *wide = wide_source(rounded);
  bool elsewhere =
      at_me_uses_of(n) > 1 || (rounded != n && at_me_uses_of(rounded) > 1);
  if (wide == rounded || elsewhere || peel(wide)->kind != AT_ME_LOAD) return n;
  at_me_node *r = at_me_node_new(m, AT_ME_RESHAPE, op, op->operands[0]->type);
  if (!r) return n;
  r->rank = n->rank;
  memcpy(r->dim, n->dim, sizeof r->dim);
  r->dtype = AT_F32;
  at_me_node_hold(m, r, wide);
  return r;
}

static bool is_either(at_dtype t) { return t == AT_F32 || t == AT_BF16; }

// Operand types that the product knows: f32 and bf16, s8 pairs.
static void suit(at_me *m, const at_mop *op, at_me_node **a, at_me_node **b,
                 bool round) {
  for (int i = 0; i < 2; i++) {
    at_me_node **x = i ? b : a;
    at_dtype t = (*x)->dtype;
    if (at_is_int(t)) continue;
    if (round && t == AT_F32) *x = at_me_narrow_source(*x);
    if (round && t == AT_BF16) *x = wide_memory(m, op, *x);
    if (at_dtype_bytes(t) == 1)
      *x = cast_to(m, op, *x, AT_BF16, AT_MOSAIC_ARITH_EXTF);
    if (t == AT_F16) *x = cast_to(m, op, *x, AT_F32, AT_MOSAIC_ARITH_EXTF);
  }
  if ((*a)->dtype == (*b)->dtype) return;
  if (round && is_either((*a)->dtype) && is_either((*b)->dtype)) return;
  for (int i = 0; i < 2; i++) {
    at_me_node **x = i ? b : a;
    if ((*x)->dtype == AT_BF16 && !round)
      *x = cast_to(m, op, *x, AT_F32, AT_MOSAIC_ARITH_EXTF);
  }
}

// A DOT node over a, b and, unless it is zero, acc. It accumulates in f32 or
// s32; ints[0]: operands are rounded.
static at_me_node *dot_node(at_me *m, const at_mop *op, const at_mtype *t,
                            at_me_node *a, at_me_node *b, at_me_node *acc) {
  bool round = rounds(m, op, a, b);
  if (m->rows->count)
    a = wide_source(at_me_narrow_source(a));
  else
    suit(m, op, &a, &b, round);
  at_me_node *n = at_me_node_new(m, AT_ME_DOT, op, t);
  if (!n) return NULL;
  n->dtype = at_is_float(n->dtype) ? AT_F32 : AT_S32;
  n->ints[0] = round && (a->dtype == AT_F32 || b->dtype == AT_F32);
  at_me_node_hold(m, n, a);
  at_me_node_hold(m, n, b);
  if (acc && !is_zero(acc)) at_me_node_hold(m, n, acc);
  at_me_node_reads(m, n, n->reads);
  return n;
}

// A result of another type than the accumulator's is a conversion of the
// product.
at_status at_me_op_matmul(at_me *m, at_mop *op) {
  at_me_node *a = at_me_vector(m, op->operands[0]);
  at_me_node *b = at_me_vector(m, op->operands[1]);
  at_me_node *acc = at_me_vector(m, op->operands[2]);
  const at_mtype *t = op->results[0].type;
  at_dtype rt = at_mosaic_dtype_of(t);
  at_mproduct_numbers x;
  if (!a || !b || !acc) return AT_OK;
  if (!at_me_numbers_of(op, a, b, &x))
    return at_me_refuse(m, op, "its dimension numbers");
  bool narrow = rt != AT_F32 && rt != AT_S32;
  if (narrow && !is_zero(acc)) {
    acc = cast_to(m, op, acc, AT_F32, AT_MOSAIC_ARITH_EXTF);
  }
  at_me_node *n = dot_node(m, op, t, a, b, acc);
  if (!n) return AT_OK;
  if (narrow) n = cast_to(m, op, n, rt, AT_MOSAIC_ARITH_TRUNCF);
  return at_me_set_node(m, &op->results[0], n);
}

// One call at once, without a node: the MXU's registers are memory
// (emit_mxu.c).
at_status at_me_dot_add(at_me *m, const at_mop *op, at_me_node *a,
                        at_me_node *b, bool transposed, const at_me_ref *sum,
                        LLVMValueRef first) {
  bool round = rounds(m, op, a, b);
  at_me_product *p = at_new(m->a, at_me_product, 1);
  if (!p) return AT_NO_MEMORY("a product");
  suit(m, op, &a, &b, round);
  *p = (at_me_product){
      .op = op,
      .c = *sum,
      .first = first,
      .round = round && (a->dtype == AT_F32 || b->dtype == AT_F32)};
  at_me_node *da = operand(m, a, false, &p->a);
  at_me_node *db = operand(m, b, false, &p->b);
  if (!da || !db) return AT_OK;
  uint32_t k = transposed ? 1 : 0;
  const at_me_num none = {0, NULL}, *c = sum->stride;
  at_me_add_axis(&p->m, (at_me_axis){a->dim[0], p->a.stride[0], none, c[0]});
  at_me_add_axis(&p->n,
                 (at_me_axis){b->dim[1 - k], none, p->b.stride[1 - k], c[1]});
  at_me_add_axis(&p->k,
                 (at_me_axis){a->dim[1], p->a.stride[1], p->b.stride[k], none});
  call_dot(m, p, true);
  at_me_node_drop(m, da);
  at_me_node_drop(m, db);
  return AT_OK;
}

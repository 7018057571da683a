// What moves whole vectors about or depends on order: concatenation, insertion,
// packing into registers, running reductions, counts, sorts.
#include "mosaic/emit.h"

// ---- pieces of a buffer
// The part of buffer b of shape `dim` that begins at `from`; leading dimensions
// of b are 1 in it.
static at_me_ref part_of(at_me *m, const at_me_node *b, const int64_t *from,
                         uint32_t rank, const int64_t *dim) {
  at_me_ref r = *b->ref;
  int64_t at = 0;
  for (uint32_t d = 0; d < b->rank; d++) at += from[d] * r.stride[d].c;
  r.base = at_me_offset(m, r.base, r.bytes, (at_me_num){at, NULL});
  uint32_t lead = b->rank - rank;
  for (uint32_t d = 0; d < b->rank; d++)
    r.size[d] = (at_me_num){d < lead ? 1 : dim[d - lead], NULL};
  return r;
}

// A buffer of the type of result i.
static at_me_node *result_buffer(at_me *m, const at_mop *op, uint32_t i) {
  const at_mtype *t = op->results[i].type;
  return at_me_buffer(m, op, at_mosaic_dtype_of(t), t->shape.rank,
                      t->shape.ptr);
}

// Each operand is copied behind the one before, along the dimension.
at_status at_me_op_concatenate(at_me *m, at_mop *op) {
  at_me_node *b = result_buffer(m, op, 0);
  int64_t d = at_mosaic_op_int(op, "dimension", 0), from[AT_ME_RANK] = {0};
  if (!b) return AT_OK;
  if (d < 0 || d >= b->rank) return at_me_refuse(m, op, "its dimension");
  for (uint32_t i = 0; i < op->num_operands; i++) {
    at_me_node *a = at_me_vector(m, op->operands[i]);
    if (!a || a->rank != b->rank) return at_me_refuse(m, op, "its operands");
    at_me_ref to = part_of(m, b, from, a->rank, a->dim);
    at_me_copy_to(m, a, &to, NULL, AT_ME_PLAIN);
    from[d] += a->dim[d];
  }
  return at_me_set_node(m, &op->results[0], b);
}

// Copies the whole, then the part over it. Only static places.
at_status at_me_op_insert(at_me *m, at_mop *op) {
  at_me_node *b = result_buffer(m, op, 0);
  at_me_node *into = at_me_vector(m, op->operands[1]);
  int64_t at[AT_ME_RANK] = {0};
  uint32_t n;
  if (!b || !into) return AT_OK;
  at_mosaic_op_ints(op, "static_position", at, AT_ME_RANK, &n);
  if (op->num_operands > 2) return at_me_refuse(m, op, "dynamic places");
  at_me_copy_to(m, into, b->ref, NULL, AT_ME_PLAIN);
  at_mvalue *v = op->operands[0];
  at_me_node *a = at_mosaic_is_vector(v)
                      ? at_me_vector(m, v)
                      : at_me_splat(m, b->dtype, at_me_scalar(m, v));
  if (!a) return AT_OK;
  at_me_ref to = part_of(m, b, at, a->rank, a->dim);
  at_me_copy_to(m, a, &to, NULL, AT_ME_PLAIN);
  return at_me_set_node(m, &op->results[0], b);
}

// ---- packed registers: [lanes][parts]
// "compressed": the parts of a register follow each other; else ("interleaved")
// they take turns.
static bool compressed(const at_mop *op) {
  const at_mattr *f = at_mop_attr(op, "pack_format");
  return f && f->str.len > 0 && f->str.ptr[0] == 'c';
}

// a in elements of type `to`; sign: how integers are widened.
static at_me_node *converted(at_me *m, const at_mop *op, at_me_node *a,
                             at_dtype to, bool sign) {
  if (a->dtype == to) return a;
  at_me_node *n = at_me_node_new(m, AT_ME_APPLY, op, op->results[0].type);
  if (!n) return a;
  n->rank = a->rank;
  memcpy(n->dim, a->dim, sizeof n->dim);
  n->dtype = to;
  bool narrower = at_dtype_of(to)->bits < at_dtype_of(a->dtype)->bits;
  bool real = at_is_float(to);
  n->code = narrower ? (real ? AT_MOSAIC_ARITH_TRUNCF : AT_MOSAIC_ARITH_TRUNCI)
            : real   ? AT_MOSAIC_ARITH_EXTF
            : sign   ? AT_MOSAIC_ARITH_EXTSI
                     : AT_MOSAIC_ARITH_EXTUI;
  at_me_node_hold(m, n, a);
  return n;
}

// Part i goes to place positions[i] of each group of parts, converted to the
// narrow type.
at_status at_me_op_pack(at_me *m, at_mop *op) {
  at_me_node *b = result_buffer(m, op, 0);
  int64_t place[AT_ME_MAX_IN];
  uint32_t n;
  if (!b) return AT_OK;
  if (!at_mosaic_op_ints(op, "positions", place, AT_ME_MAX_IN, &n) ||
      n != op->num_operands)
    return at_me_refuse(m, op, "its positions");
  int64_t total = at_me_elements(b);
  for (uint32_t i = 0; i < n; i++) {
    at_me_node *a = at_me_vector(m, op->operands[i]);
    if (!a) return AT_OK;
    int64_t lanes = at_me_elements(a), parts = lanes ? total / lanes : 0;
    if (parts * lanes != total || place[i] < 0 || place[i] >= parts)
      return at_me_refuse(m, op, "its shapes");
    bool c = compressed(op);
    at_me_ref to = *b->ref;
    to.rank = 1;
    to.size[0] = (at_me_num){lanes, NULL};
    to.stride[0] = (at_me_num){c ? 1 : parts, NULL};
    at_me_num at = {c ? place[i] * lanes : place[i], NULL};
    to.base = at_me_offset(m, to.base, to.bytes, at);
    at_me_node *v = converted(m, op, a, b->dtype, true);
    at_me_expect_uses(v, 1);
    at_me_copy_to(m, v, &to, NULL, AT_ME_PLAIN);
    at_me_node_drop(m, v);
  }
  return at_me_set_node(m, &op->results[0], b);
}

// The inverse: a strided slice of the flat register, widened. Lazy: three nodes
// and a conversion.
at_status at_me_op_unpack(at_me *m, at_mop *op) {
  at_me_node *a = at_me_vector(m, op->operands[0]);
  const at_mtype *t = op->results[0].type;
  if (!a) return AT_OK;
  at_me_node *flat = at_me_node_new(m, AT_ME_RESHAPE, op, t);
  at_me_node *cut = at_me_node_new(m, AT_ME_SLICE, op, t);
  at_me_node *shaped = at_me_node_new(m, AT_ME_RESHAPE, op, t);
  if (!flat || !cut || !shaped) return AT_OK;
  int64_t total = at_me_elements(a), lanes = at_me_elements(shaped);
  int64_t parts = lanes ? total / lanes : 0,
          k = at_mosaic_op_int(op, "index", 0);
  if (parts * lanes != total || k < 0 || k >= parts)
    return at_me_refuse(m, op, "its shapes");
  bool c = compressed(op);
  flat->rank = cut->rank = 1;
  flat->dim[0] = total;
  cut->dim[0] = lanes;
  cut->ints[0] = c ? k * lanes : k;
  cut->step[0] = c ? 1 : parts;
  flat->dtype = cut->dtype = shaped->dtype = a->dtype;
  at_me_node_hold(m, flat, a);
  at_me_node_hold(m, cut, flat);
  at_me_node_hold(m, shaped, cut);
  bool sign = at_mosaic_op_int(op, "unsigned_integers", 0) == 0;
  return at_me_set_node(m, &op->results[0],
                        converted(m, op, shaped, at_mosaic_dtype_of(t), sign));
}

// ---- rows, one element after another
typedef struct rows {
  at_me_node *in[3];  // buffers, or NULL
  at_me_node *out[3];
  int64_t size;
  at_op op;
  bool descending;
  bool with_sign;  // integers of a scan compare as signed ones
} rows;

// Element i of the row that begins at `row`, in elements.
static at_val at_index(at_me *m, at_me_node *b, LLVMValueRef row, at_ix i) {
  at_ix lin = at_ix_add(m->e, at_ix_of(row, 0, INT32_MAX, 1), i);
  return at_em_load(m->e, b->ref->base, b->dtype, lin, false);
}
// Element i of row `row`.
static void set_index(at_me *m, at_me_node *b, LLVMValueRef row, at_ix i,
                      LLVMValueRef v) {
  at_ix lin = at_ix_add(m->e, at_ix_of(row, 0, INT32_MAX, 1), i);
  at_em_store(m->e, b->ref->base, b->dtype, lin, (at_val){v, NULL});
}

typedef void (*row_fn)(at_me *m, const rows *r, LLVMValueRef row);
// fn writes the code for one row; rows are the last dimension.
static void each_row(at_me *m, const rows *r, int64_t total, row_fn fn) {
  if (total == 0) return;
  at_loop l;
  at_loop_range(m->e, &l, 0, total, r->size);
  fn(m, r, at_ix_value(m->e, l.i));
  at_loop_end(m->e, &l);
}

// The first n operands in memory and a buffer per result. An entry that is NULL
// means that an error was noted.
static at_status inputs(at_me *m, at_mop *op, rows *r, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    at_me_node *a = at_me_vector(m, op->operands[i]);
    r->in[i] = a ? at_me_materialise(m, a) : NULL;
    if (!r->in[i]) return AT_OK;
  }
  const at_me_node *a = r->in[0];
  r->size = a->rank ? a->dim[a->rank - 1] : 1;
  for (uint32_t i = 0; i < op->num_results; i++)
    if (!(r->out[i] = result_buffer(m, op, i))) return AT_OK;
  return AT_OK;
}
// Drops the inputs and hands the buffers over as results.
static at_status outputs(at_me *m, at_mop *op, rows *r, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) at_me_node_drop(m, r->in[i]);
  for (uint32_t i = 0; i < op->num_results && r->out[i]; i++)
    AT_TRY(at_me_set_node(m, &op->results[i], r->out[i]));
  return AT_OK;
}

// The neutral element: 0, or the least or largest value of the type.
static LLVMValueRef scan_start(at_me *m, at_dtype t, const rows *r) {
  LLVMTypeRef type = at_em_reg_type(m->e, t);
  if (r->op == AT_OP_ADD) return at_b_null(type);
  bool max = r->op == AT_OP_MAXIMUM;
  double inf = __builtin_inf();
  if (at_is_float(t)) return at_em_cf(m->e, type, max ? -inf : inf);
  int64_t least = INT64_MIN >> (64 - at_dtype_of(t)->bits);
  if (r->with_sign) return at_em_ci(m->e, type, max ? least : ~least);
  return at_em_ci(m->e, type, max ? 0 : -1);
}

// out[i] combines elements 0..i whose mask is set. Where no element was
// combined yet, an extremum is the element itself.
static void scan_row(at_me *m, const rows *r, LLVMValueRef row) {
  at_em *e = m->e;
  at_dtype t = r->out[0]->dtype;
  LLVMTypeRef type = at_em_reg_type(e, t);
  LLVMValueRef acc = at_em_alloca(e, type, 1), start = scan_start(m, t, r);
  at_b_store(e, start, acc, 1);
  LLVMValueRef any = NULL;
  if (r->in[1] && r->op != AT_OP_ADD) {
    any = at_em_alloca(e, at_em_int(e, 1), 1);
    at_b_store(e, at_b_null(at_em_int(e, 1)), any, 1);
  }
  at_loop l;
  at_loop_range(e, &l, 0, r->size, 1);
  at_val v = at_index(m, r->in[0], row, l.i);
  LLVMValueRef own = v.re;
  if (r->in[0]->dtype == AT_PRED && t != AT_PRED)
    v.re = at_b_cast(e, AT_B_ZEXT, v.re, type);
  if (r->in[1]) {
    LLVMValueRef on = at_index(m, r->in[1], row, l.i).re;
    v.re = at_b_select(e, on, v.re, start);
  }
  at_val old = {at_b_load(e, type, acc, 1), NULL};
  at_dtype as = r->with_sign ? t : at_me_unsigned_of(t);
  at_val sum = at_em_apply_real(e, r->op, as, old, v);
  at_b_store(e, sum.re, acc, 1);
  // An extremum of nothing yet is the element itself.
  if (any) {
    LLVMValueRef on = at_index(m, r->in[1], row, l.i).re;
    on = at_b_bin(e, AT_B_OR, on, at_b_load(e, at_em_int(e, 1), any, 1));
    at_b_store(e, on, any, 1);
    sum.re = at_b_select(e, on, sum.re, own);
  }
  set_index(m, r->out[0], row, l.i, sum.re);
  at_loop_end(e, &l);
}

// tpu.scan: sum, max or min along the last dimension, with an optional mask.
// "maxsi" and "minsi" compare signed.
at_status at_me_op_scan(at_me *m, at_mop *op) {
  const at_mattr *k = at_mop_attr(op, "kind");
  at_str s = k ? k->str : (at_str){0};
  rows r = {0};
  if (s.len >= 3 && !memcmp(s.ptr, "sum", 3))
    r.op = AT_OP_ADD;
  else if (s.len >= 3 && !memcmp(s.ptr, "max", 3))
    r.op = AT_OP_MAXIMUM;
  else if (s.len >= 3 && !memcmp(s.ptr, "min", 3))
    r.op = AT_OP_MINIMUM;
  else
    return at_me_refuse(m, op, "its kind");
  r.with_sign = s.len == 5 && !memcmp(s.ptr + 3, "si", 2);
  const at_dims shape = op->operands[0]->type->shape;
  if (at_mosaic_op_int(op, "dimension", shape.rank - 1) + 1 != shape.rank)
    return at_me_refuse(m, op, "another dimension than the last");
  uint32_t n = AT_MIN(op->num_operands, 2);
  AT_TRY(inputs(m, op, &r, n));
  if (!r.out[0]) return AT_OK;
  each_row(m, &r, at_me_elements(r.in[0]), scan_row);
  return outputs(m, op, &r, n);
}

// Equality; NaN equals nothing.
static LLVMValueRef same(at_me *m, at_dtype t, LLVMValueRef a, LLVMValueRef b) {
  return at_is_float(t) ? at_b_fcmp(m->e, AT_B_OEQ, a, b)
                        : at_b_icmp(m->e, AT_B_EQ, a, b);
}
// And of two truths.
static LLVMValueRef both(at_me *m, LLVMValueRef a, LLVMValueRef b) {
  return at_b_bin(m->e, AT_B_AND, a, b);
}

// For each element that takes part: how many equal ones stand up to it, and
// whether it is the last of them. Quadratic in the row, which is one register
// long.
static void count_row(at_me *m, const rows *r, LLVMValueRef row) {
  at_em *e = m->e;
  LLVMTypeRef i32 = at_em_int(e, 32), i1 = at_em_int(e, 1);
  LLVMValueRef count = at_em_alloca(e, i32, 1), last = at_em_alloca(e, i1, 1);
  at_loop l, k;
  at_loop_range(e, &l, 0, r->size, 1);
  LLVMValueRef v = at_index(m, r->in[1], row, l.i).re;
  LLVMValueRef on = at_index(m, r->in[0], row, l.i).re;
  at_b_store(e, at_b_null(i32), count, 1);
  at_b_store(e, on, last, 1);
  at_loop_range(e, &k, 0, r->size, 1);
  LLVMValueRef eq =
      same(m, r->in[1]->dtype, v, at_index(m, r->in[1], row, k.i).re);
  eq = both(m, eq, at_index(m, r->in[0], row, k.i).re);
  LLVMValueRef behind =
      at_b_icmp(e, AT_B_SLE, at_ix_value(e, k.i), at_ix_value(e, l.i));
  LLVMValueRef c = at_b_load(e, i32, count, 1);
  LLVMValueRef add = at_b_cast(e, AT_B_ZEXT, both(m, eq, behind), i32);
  at_b_store(e, at_b_bin(e, AT_B_ADD, c, add), count, 1);
  LLVMValueRef later = both(m, eq, at_b_not(e, behind));
  LLVMValueRef x = at_b_load(e, i1, last, 1);
  at_b_store(e, both(m, x, at_b_not(e, later)), last, 1);
  at_loop_end(e, &k);
  set_index(m, r->out[0], row, l.i, at_b_load(e, i1, last, 1));
  set_index(m, r->out[1], row, l.i, at_b_load(e, i32, count, 1));
  at_loop_end(e, &l);
}

// tpu.scan_count: results are "last occurrence" and the running count.
at_status at_me_op_count(at_me *m, at_mop *op) {
  rows r = {0};
  AT_TRY(inputs(m, op, &r, 2));
  if (!r.out[0] || !r.out[1]) return AT_OK;
  each_row(m, &r, at_me_elements(r.in[0]), count_row);
  return outputs(m, op, &r, 2);
}

// The place of each pair is how many come before it; rows are a register long.
// Integer keys compare as unsigned ones: JAX flips the sign of others.
static void sort_row(at_me *m, const rows *r, LLVMValueRef row) {
  at_em *e = m->e;
  LLVMTypeRef i64 = at_em_int(e, 64);
  LLVMValueRef place = at_em_alloca(e, i64, 1);
  LLVMValueRef yes = at_em_ci(e, at_em_int(e, 1), 1);
  bool real = at_is_float(r->in[0]->dtype);
  at_loop l, k;
  at_loop_range(e, &l, 0, r->size, 1);
  LLVMValueRef key = at_index(m, r->in[0], row, l.i).re;
  LLVMValueRef on = r->in[2] ? at_index(m, r->in[2], row, l.i).re : yes;
  at_b_store(e, at_b_null(i64), place, 8);
  at_loop_range(e, &k, 0, r->size, 1);
  LLVMValueRef other = at_index(m, r->in[0], row, k.i).re;
  LLVMValueRef on2 = r->in[2] ? at_index(m, r->in[2], row, k.i).re : yes;
  LLVMValueRef a = r->descending ? key : other;
  LLVMValueRef b = r->descending ? other : key;
  LLVMValueRef less =
      real ? at_b_fcmp(e, AT_B_OLT, a, b) : at_b_icmp(e, AT_B_ULT, a, b);
  LLVMValueRef more =
      real ? at_b_fcmp(e, AT_B_OLT, b, a) : at_b_icmp(e, AT_B_ULT, b, a);
  LLVMValueRef earlier =
      at_b_icmp(e, AT_B_SLT, at_ix_value(e, k.i), at_ix_value(e, l.i));
  LLVMValueRef tie = both(m, at_b_not(e, more), earlier);
  LLVMValueRef by_key = at_b_bin(e, AT_B_OR, less, tie);
  // Those that take part come first, the others keep their order behind them.
  LLVMValueRef before = at_b_select(e, on, both(m, on2, by_key),
                                    at_b_bin(e, AT_B_OR, on2, earlier));
  LLVMValueRef n = at_b_load(e, i64, place, 8);
  n = at_b_bin(e, AT_B_ADD, n, at_b_cast(e, AT_B_ZEXT, before, i64));
  at_b_store(e, n, place, 8);
  at_loop_end(e, &k);
  at_ix to = at_ix_of(at_b_load(e, i64, place, 8), 0, r->size - 1, 1);
  set_index(m, r->out[0], row, to, on);
  set_index(m, r->out[1], row, to, key);
  set_index(m, r->out[2], row, to, at_index(m, r->in[1], row, l.i).re);
  at_loop_end(e, &l);
}

// tpu.sort: keys, values and an optional mask; results are the mask, keys and
// values in order. Stable.
at_status at_me_op_sort(at_me *m, at_mop *op) {
  uint32_t n = AT_MIN(op->num_operands, 3);
  rows r = {.descending = at_mosaic_op_int(op, "descending", 0) != 0};
  if (n < 2 || op->num_results != 3) return at_me_refuse(m, op, "its operands");
  AT_TRY(inputs(m, op, &r, n));
  if (!r.out[0] || !r.out[1] || !r.out[2]) return AT_OK;
  each_row(m, &r, at_me_elements(r.in[0]), sort_row);
  return outputs(m, op, &r, n);
}

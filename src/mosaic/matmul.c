// What a product's text says of it.
#include "mosaic/matmul.h"

#include <string.h>

#include "base/cpu.h"

enum { MIN_SIDE = 16, MAX_PANEL = 1 << 17 };  // of products in rows

typedef at_mproduct_dims dims;
typedef at_mproduct_numbers numbers;
typedef at_mproduct_shape shape;

// Borrows the type's dimensions.
shape at_mproduct_shape_of(const at_mvalue *v) {
  return (shape){at_mosaic_dtype_of(v->type), v->type->shape.rank,
                 v->type->shape.ptr};
}

// ---- dimension numbers
// Seven lists in brackets, as tpu.matmul prints them; the last two (batches)
// may be missing. Numbers beyond 1000 are cut, which no rank allows.
static bool parse_numbers(at_str s, numbers *x) {
  *x = (numbers){0};
  int list = -1;
  bool inside = false;
  for (size_t i = 0; i < s.len; i++) {
    char c = s.ptr[i];
    if (c == '[') {
      if (++list >= AT_MPRODUCT_LISTS) return false;
      inside = true;
    } else if (c == ']') {
      inside = false;
    } else if (inside && c >= '0' && c <= '9') {
      dims *d = &x->list[list];
      int64_t v = 0;
      for (; i < s.len && s.ptr[i] >= '0' && s.ptr[i] <= '9'; i++)
        v = AT_MIN(v * 10 + (s.ptr[i] - '0'), 1000);
      i--;
      if (d->n == AT_LEN(d->d)) return false;
      d->d[d->n++] = v;
    }
  }
  return list >= AT_MPRODUCT_ORDER;
}

// What old kernels say: matrices, each perhaps transposed.
static bool plain_numbers(const at_mop *op, numbers *x) {
  int64_t ta = at_mosaic_op_int(op, "transpose_lhs", 0);
  int64_t tb = at_mosaic_op_int(op, "transpose_rhs", 0);
  *x = (numbers){.list = {{1, {ta ? 0 : 1}},
                          {1, {tb ? 1 : 0}},
                          {1, {ta ? 1 : 0}},
                          {1, {tb ? 0 : 1}},
                          {4, {0, ta ? 1 : 0, 1, tb ? 0 : 1}}}};
  return true;
}

// Do dimensions x of a and y of b have the same sizes, in order?
static bool same_sizes(const dims *x, const shape *a, const dims *y,
                       const shape *b) {
  if (x->n != y->n) return false;
  for (uint32_t k = 0; k < x->n; k++)
    if (a->dim[x->d[k]] != b->dim[y->d[k]]) return false;
  return true;
}

// Checks the operands' dimensions; output_order is only checked for pairs, the
// verifier has held it to the result.
bool at_mproduct_numbers_of(const at_mop *op, const shape *a, const shape *b,
                            numbers *x) {
  const at_mattr *t = at_mop_attr(op, "dimension_numbers");
  if (t && t->str.len ? !parse_numbers(t->str, x) : !plain_numbers(op, x))
    return false;
  for (int i = 0; i < AT_MPRODUCT_LISTS; i++) {
    bool of_a = i == AT_MPRODUCT_SUM_A || i == AT_MPRODUCT_FREE_A ||
                i == AT_MPRODUCT_BATCH_A;
    uint32_t rank = of_a ? a->rank : b->rank;
    for (uint32_t k = 0; i != AT_MPRODUCT_ORDER && k < x->list[i].n; k++)
      if (x->list[i].d[k] >= rank) return false;
  }
  return x->list[AT_MPRODUCT_ORDER].n % 2 == 0 &&
         same_sizes(&x->list[AT_MPRODUCT_SUM_A], a, &x->list[AT_MPRODUCT_SUM_B],
                    b) &&
         same_sizes(&x->list[AT_MPRODUCT_BATCH_A], a,
                    &x->list[AT_MPRODUCT_BATCH_B], b);
}

// Dimensions of 1 do not count.
int64_t at_mproduct_only_dim(const dims *list, const int64_t *dim) {
  int64_t found = -1;
  for (uint32_t i = 0; i < list->n; i++) {
    if (dim[list->d[i]] == 1) continue;
    if (found >= 0) return -1;
    found = list->d[i];
  }
  return found;
}

// ---- rounding
// A matrix by one vector, both along their last dimension, f32: the vector unit
// does it, and rounds nothing.
static bool is_matrix_vector(const at_mop *op, const shape *a, const shape *b) {
  numbers x;
  if (at_mosaic_opcode_of(op) != AT_MOSAIC_TPU_MATMUL || a->dtype != AT_F32 ||
      b->dtype != AT_F32 || !at_mproduct_numbers_of(op, a, b, &x))
    return false;
  const dims *sum = x.list, *free = &x.list[AT_MPRODUCT_FREE_B];
  return sum[AT_MPRODUCT_SUM_A].n == 1 &&
         sum[AT_MPRODUCT_SUM_A].d[0] == a->rank - 1 &&
         sum[AT_MPRODUCT_SUM_B].d[0] == b->rank - 1 &&
         (free->n == 0 || (free->n == 1 && b->dim[free->d[0]] == 1));
}

// XLA's default precision: f32 operands of the MXU are rounded to bf16.
bool at_mproduct_rounds(const at_mop *op, const shape *a, const shape *b,
                        bool exact) {
  const at_mattr *p = at_mop_attr(op, "precision");
  // "fp32", or "bf16x3": what that loses is less than what rounding would.
  bool full = p && (at_str_is(p->str, "fp32") || at_str_is(p->str, "bf16x3"));
  return !full && !exact && (a->dtype == AT_F32 || b->dtype == AT_F32) &&
         !is_matrix_vector(op, a, b);
}

// ---- products in loops over rows
// Is row `at` of the result made of the rows of a, and are there no batches?
static bool goes_by_rows(const numbers *x, const shape *a, int64_t free_a,
                         uint32_t at) {
  const dims *order = &x->list[AT_MPRODUCT_ORDER];
  const dims *batch = &x->list[AT_MPRODUCT_BATCH_A];
  for (uint32_t i = 0; i < batch->n; i++)
    if (a->dim[batch->d[i]] != 1) return false;
  return 2 * at + 1 < order->n && order->d[2 * at] == 0 &&
         order->d[2 * at + 1] == free_a;
}

static bool is_either(at_dtype t) { return t == AT_F32 || t == AT_BF16; }

// Pairs of bf16 are multiplied, whatever the operands are in memory.
static bool multiplies_bf16(const at_mop *op, const shape *a, const shape *b,
                            bool exact) {
  if (a->dtype == AT_BF16 && b->dtype == AT_BF16) return true;
  return is_either(a->dtype) && is_either(b->dtype) &&
         at_mproduct_rounds(op, a, b, exact);
}

// Needs AVX-512 BF16, an f32 result without batches whose rows are a's rows,
// and a second operand that fits the cache when packed.
bool at_mproduct_has_rows(const at_mop *op, int64_t rows, bool exact,
                          uint64_t cpu) {
  numbers x;
  if (at_mosaic_opcode_of(op) != AT_MOSAIC_TPU_MATMUL ||
      !(cpu & AT_CPU_AVX512_BF16))
    return false;
  shape a = at_mproduct_shape_of(op->operands[0]);
  shape b = at_mproduct_shape_of(op->operands[1]);
  shape c = at_mproduct_shape_of(&op->results[0]);
  if (a.rank > AT_CORE_MAX_RANK || b.rank > AT_CORE_MAX_RANK ||
      c.rank > AT_CORE_MAX_RANK || c.dtype != AT_F32 ||
      !at_mproduct_numbers_of(op, &a, &b, &x) ||
      !multiplies_bf16(op, &a, &b, exact))
    return false;
  int64_t free_a = at_mproduct_only_dim(&x.list[AT_MPRODUCT_FREE_A], a.dim);
  int64_t free_b = at_mproduct_only_dim(&x.list[AT_MPRODUCT_FREE_B], b.dim);
  int64_t sum = at_mproduct_only_dim(&x.list[AT_MPRODUCT_SUM_A], a.dim);
  int at = at_mosaic_row_dim(c.rank, c.dim, rows);
  if (free_a < 0 || free_b < 0 || sum < 0 || at < 0 ||
      at_mosaic_row_dim(a.rank, a.dim, rows) != free_a ||
      !goes_by_rows(&x, &a, free_a, (uint32_t)at))
    return false;
  int64_t n = b.dim[free_b], k = a.dim[sum];
  return n >= MIN_SIDE && k >= MIN_SIDE && n <= MAX_PANEL / k;
}

// Half an operation per element of b: pairs are multiplied at once.
double at_mproduct_row_work(const at_mop *op) {
  const at_mtype *b = op->operands[1]->type;  // n k values, each used once
  double work = 0.5;
  for (uint32_t d = 0; d < b->shape.rank; d++) work *= (double)b->shape.ptr[d];
  return work;
}

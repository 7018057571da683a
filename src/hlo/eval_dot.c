// Contractions: dot_general, ragged_dot, convolution. Products are summed
// without rounding to the result type in between: integers modulo 2^64, floats
// up to f32 in double, f64 in long double.
#include "hlo/eval_internal.h"

// Ordered: of two kinds the later one can hold both.
typedef enum number_kind { NUM_INT, NUM_REAL, NUM_COMPLEX } number_kind;

// An operand as plain numbers.
typedef struct numbers {
  number_kind kind;
  bool wide;
  union {
    int64_t *i;
    double *r;
    double complex *c;
  };
} numbers;

static number_kind kind_of(at_dtype t) {
  return at_is_complex(t) ? NUM_COMPLEX : at_is_float(t) ? NUM_REAL : NUM_INT;
}

// Widens an operand to `kind`, the wider of both sides' kinds. `wide` is set by
// the caller.
static at_status read_numbers(at_arena *a, const at_literal *l,
                              number_kind kind, numbers *out) {
  int64_t n = at_type_elements(&l->type);
  at_dtype t = l->type.dtype;
  bool ints = kind_of(t) == NUM_INT;
  out->kind = kind;
  if (kind == NUM_INT) {
    AT_TRY_ALLOC(out->i, at_new(a, int64_t, (size_t)n));
    for (int64_t k = 0; k < n; k++) out->i[k] = at_literal_int(l, k);
  } else if (kind == NUM_REAL) {
    AT_TRY_ALLOC(out->r, at_new(a, double, (size_t)n));
    for (int64_t k = 0; k < n; k++)
      out->r[k] = ints ? (double)at_literal_int(l, k) : at_literal_float(l, k);
  } else {
    AT_TRY_ALLOC(out->c, at_new(a, double complex, (size_t)n));
    for (int64_t k = 0; k < n; k++)
      out->c[k] = ints ? (double)at_literal_int(l, k)
                       : at_load_complex(t, at_literal_at(l, k));
  }
  return AT_OK;
}

// A sum of products; the operands' kind says which member is used.
typedef struct accumulator {
  uint64_t i;
  double r, c_re, c_im;
  long double wide_re, wide_im;
} accumulator;

// Integer products wrap modulo 2^64, which agrees with wrapping in any narrower
// type. Complex products are always summed in long double.
static inline void add_product(accumulator *s, const numbers *a, int64_t ia,
                               const numbers *b, int64_t ib) {
  if (a->kind == NUM_INT) {
    s->i += (uint64_t)a->i[ia] * (uint64_t)b->i[ib];
  } else if (a->kind == NUM_REAL) {
    if (a->wide)
      s->wide_re += (long double)a->r[ia] * b->r[ib];
    else
      s->r += a->r[ia] * b->r[ib];
  } else {
    long double x = creal(a->c[ia]), y = cimag(a->c[ia]);
    long double u = creal(b->c[ib]), v = cimag(b->c[ib]);
    s->wide_re += x * u - y * v;
    s->wide_im += x * v + y * u;
  }
}

// Rounds the sum once, to the result's element type.
static void store_sum(const accumulator *s, const numbers *a, at_dtype t,
                      void *out) {
  if (a->kind == NUM_COMPLEX) {
    double complex z = CMPLX((double)s->wide_re, (double)s->wide_im);
    at_eval_convert(AT_C128, &z, t, out);
  } else if (a->kind == NUM_REAL) {
    double v = a->wide ? (double)s->wide_re : s->r;
    at_eval_convert(AT_F64, &v, t, out);
  } else if (at_is_int(t) || t == AT_PRED) {
    at_store_int(t, out, (int64_t)s->i);
  } else {
    at_eval_convert(AT_S64, &s->i, t, out);
  }
}

// Both sides as numbers of one kind; sums go in long double when either side or
// the result is f64.
static at_status open_pair(const at_eval_args *e, at_arena *a, numbers *l,
                           numbers *r) {
  at_dtype tl = e->in[0]->type.dtype, tr = e->in[1]->type.dtype;
  number_kind kind = AT_MAX(kind_of(tl), kind_of(tr));
  AT_TRY(read_numbers(a, e->in[0], kind, l));
  AT_TRY(read_numbers(a, e->in[1], kind, r));
  l->wide = r->wide =
      tl == AT_F64 || tr == AT_F64 || e->n->types[0].dtype == AT_F64;
  return AT_OK;
}

// ---- Dot

// Offsets of every index over `dims` of a value of type t, in row-major order
// of the list.
static at_status offsets_of(at_arena *a, const at_type *t, const int64_t *dims,
                            uint32_t rank, int64_t **out, int64_t *count) {
  int64_t strides[kMaxRank], sizes[kMaxRank], index[kMaxRank] = {0};
  for (uint32_t i = 0; i < rank; i++) {
    uint32_t d = (uint32_t)dims[i];
    strides[i] = at_product(t->dims + d + 1, t->rank - d - 1);
    sizes[i] = t->dims[d];
  }
  int64_t n = at_product(sizes, rank);
  AT_TRY_ALLOC(*out, at_new(a, int64_t, (size_t)n));
  for (int64_t k = 0; k < n; k++) {
    int64_t at = 0;
    for (uint32_t i = 0; i < rank; i++) at += index[i] * strides[i];
    (*out)[k] = at;
    at_next(sizes, rank, index);
  }
  *count = n;
  return AT_OK;
}

// Dimensions of t that none of the lists names, in order; returns how many.
static uint32_t free_dims(const at_type *t, at_dims x, at_dims y, at_dims z,
                          int64_t *out) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < t->rank; i++)
    if (!at_dims_has(x, i) && !at_dims_has(y, i) && !at_dims_has(z, i))
      out[n++] = i;
  return n;
}

// Where the elements of both sides are, as lists of offsets that add up.
typedef struct dot_plan {
  int64_t *lb, *rb, *lf, *rf, *lc, *rc;  // offsets
  int64_t batch, lfree, rfree, depth;    // their counts
} dot_plan;

// Offsets of the batch, free and contracted indices of both sides: an element
// of the left side is at lb + lf + lc, one of the right at rb + rf + rc.
// `rhs_skip` are dimensions of the right side that are in none of these (the
// groups of ragged_dot).
static at_status plan_dot(const at_eval_args *e, at_arena *a, at_dims rhs_skip,
                          dot_plan *p) {
  const at_node *n = e->n;
  const at_type *l = &e->in[0]->type, *r = &e->in[1]->type;
  at_dims lb = at_node_ints(n, AT_ATTR_LHS_BATCHING_DIMENSIONS);
  at_dims rb = at_node_ints(n, AT_ATTR_RHS_BATCHING_DIMENSIONS);
  at_dims lc = at_node_ints(n, AT_ATTR_LHS_CONTRACTING_DIMENSIONS);
  at_dims rc = at_node_ints(n, AT_ATTR_RHS_CONTRACTING_DIMENSIONS);
  int64_t free_list[kMaxRank];
  AT_TRY(offsets_of(a, l, lb.ptr, lb.rank, &p->lb, &p->batch));
  AT_TRY(offsets_of(a, r, rb.ptr, rb.rank, &p->rb, &p->batch));
  AT_TRY(offsets_of(a, l, lc.ptr, lc.rank, &p->lc, &p->depth));
  AT_TRY(offsets_of(a, r, rc.ptr, rc.rank, &p->rc, &p->depth));
  uint32_t k = free_dims(l, lb, lc, (at_dims){NULL, 0}, free_list);
  AT_TRY(offsets_of(a, l, free_list, k, &p->lf, &p->lfree));
  k = free_dims(r, rb, rc, rhs_skip, free_list);
  return offsets_of(a, r, free_list, k, &p->rf, &p->rfree);
}

// Spends all multiplications before the first one, so that a product over the
// budget fails at once.
static at_status spend_dot(const at_eval_args *e, const dot_plan *p) {
  int64_t ops = 0;
  if (__builtin_mul_overflow(p->batch, p->lfree, &ops) ||
      __builtin_mul_overflow(ops, p->rfree, &ops) ||
      __builtin_mul_overflow(ops, p->depth, &ops))
    ops = INT64_MAX;
  return at_eval_spend(e->cx, ops);
}

// Result elements in row-major order: batch, then free dimensions of the left
// side, then of the right.
static at_status dot_all(const at_eval_args *e, at_arena *a) {
  numbers l, r;
  dot_plan p;
  uint8_t *data;
  const at_type *t = &e->n->types[0];
  AT_TRY(plan_dot(e, a, (at_dims){NULL, 0}, &p));
  AT_TRY(spend_dot(e, &p));
  AT_TRY(open_pair(e, a, &l, &r));
  AT_TRY(at_eval_new(e->cx, t, e->out, &data));
  for (int64_t b = 0; b < p.batch; b++)
    for (int64_t i = 0; i < p.lfree; i++)
      for (int64_t j = 0; j < p.rfree; j++) {
        accumulator sum = {0};
        int64_t at_l = p.lb[b] + p.lf[i], at_r = p.rb[b] + p.rf[j];
        for (int64_t k = 0; k < p.depth; k++)
          add_product(&sum, &l, at_l + p.lc[k], &r, at_r + p.rc[k]);
        store_sum(&sum, &l, t->dtype, data);
        data += at_dtype_bytes(t->dtype);
      }
  return AT_OK;
}

// Runs with an arena for what only the computation needs: operands as numbers,
// offsets.
static at_status with_scratch(const at_eval_args *e,
                              at_status (*run)(const at_eval_args *,
                                               at_arena *)) {
  at_arena *a = at_arena_create();
  if (!a) return AT_NO_MEMORY("scratch");
  at_status st = run(e, a);
  at_arena_destroy(a);
  return st;
}

AT_EVAL(dot) { return with_scratch(e, dot_all); }

// ---- Ragged dot

// The group that each position of the ragged dimension belongs to, -1 past the
// end. The sizes may themselves be batched; `row` selects.
static int64_t group_of(const at_literal *sizes, int64_t row, int64_t groups,
                        int64_t position) {
  int64_t end = 0;
  for (int64_t g = 0; g < groups; g++) {
    // Sizes are data: saturate.
    if (__builtin_add_overflow(end, at_literal_int(sizes, row * groups + g),
                               &end))
      end = INT64_MAX;
    if (position < end) return g;
  }
  return -1;
}

// A ragged dimension and what is needed to find the group of an element along
// it.
typedef struct ragged {
  const at_literal *sizes;
  int64_t groups, rows;    // rows of sizes; 1 unless batched
  int64_t stride, extent;  // of the ragged dimension in lhs
  int64_t group_stride;    // of the group dimension in rhs
  bool contracting;        // the ragged dimension is
} ragged;

// The group at an lhs offset. Zero strides and extents have no elements to add.
static int64_t group_at(const ragged *g, int64_t row, int64_t offset) {
  int64_t position = offset / AT_MAX(g->stride, 1) % AT_MAX(g->extent, 1);
  return group_of(g->sizes, row, g->groups, position);
}

// One result element: group `o` when the ragged dimension is contracted, else
// the group of the lhs row picks the slice of rhs.
static void ragged_element(const ragged *g, const dot_plan *p, int64_t o,
                           int64_t b, int64_t at_l, int64_t at_r,
                           const numbers *ln, const numbers *rn,
                           accumulator *sum) {
  int64_t row = g->rows == 1 ? 0 : b;
  if (!g->contracting) {
    int64_t mine = group_at(g, row, at_l);
    if (mine < 0) return;
    at_r += mine * g->group_stride;
  }
  for (int64_t k = 0; k < p->depth; k++) {
    int64_t x = at_l + p->lc[k];
    if (!g->contracting || group_at(g, row, x) == o)
      add_product(sum, ln, x, rn, at_r + p->rc[k]);
  }
}

// In the contracting form the result has the groups in front, and each group
// sums the part of the contracted dimension that is its own. Otherwise the row
// decides which of the right side's matrices it meets.
static at_status ragged_all(const at_eval_args *e, at_arena *a) {
  const at_node *n = e->n;
  const at_type *l = &e->in[0]->type, *r = &e->in[1]->type;
  const at_type *t = &n->types[0], *s = &e->in[2]->type;
  at_dims group = at_node_ints(n, AT_ATTR_RHS_GROUP_DIMENSIONS);
  int64_t dim = at_node_ints(n, AT_ATTR_LHS_RAGGED_DIMENSIONS).ptr[0];
  numbers ln, rn;
  dot_plan p;
  uint8_t *data;
  ragged g = {.sizes = e->in[2], .groups = s->dims[s->rank - 1]};
  g.rows = at_product(s->dims, s->rank - 1);
  g.stride = at_product(l->dims + dim + 1, l->rank - (uint32_t)dim - 1);
  g.extent = l->dims[dim];
  g.contracting =
      at_dims_has(at_node_ints(n, AT_ATTR_LHS_CONTRACTING_DIMENSIONS), dim);
  if (group.rank)
    g.group_stride = at_product(r->dims + group.ptr[0] + 1,
                                r->rank - (uint32_t)group.ptr[0] - 1);
  AT_TRY(plan_dot(e, a, group, &p));
  AT_TRY(spend_dot(e, &p));
  if (g.rows != 1 && g.rows != p.batch)
    return AT_FAIL(AT_UNIMPLEMENTED,
                   "evaluator: ragged_dot with %lld rows of group sizes",
                   (long long)g.rows);
  AT_TRY(open_pair(e, a, &ln, &rn));
  AT_TRY(at_eval_new(e->cx, t, e->out, &data));
  int64_t outer = g.contracting ? g.groups : 1;
  for (int64_t o = 0; o < outer; o++)
    for (int64_t b = 0; b < p.batch; b++)
      for (int64_t i = 0; i < p.lfree; i++)
        for (int64_t j = 0; j < p.rfree; j++) {
          accumulator sum = {0};
          ragged_element(&g, &p, o, b, p.lb[b] + p.lf[i], p.rb[b] + p.rf[j],
                         &ln, &rn, &sum);
          store_sum(&sum, &ln, t->dtype, data);
          data += at_dtype_bytes(t->dtype);
        }
  return AT_OK;
}

AT_EVAL(ragged_dot) { return with_scratch(e, ragged_all); }

// ---- Convolution

// A convolution and what its elements share.
typedef struct conv {
  const at_conv_dims *c;
  const at_type *l, *k;
  numbers ln, kn;
  int64_t features, out_features, batch;  // per group and in the result
} conv;

// One result element: `to` is its index.
static void conv_element(const conv *v, const int64_t *to, accumulator *sum) {
  const at_conv_dims *c = v->c;
  int64_t in[kMaxRank], kernel[kMaxRank], window[kMaxRank] = {0};
  int64_t sizes[kMaxRank];
  int64_t out_feature = to[c->output_feature];
  int64_t per_group = v->out_features / c->feature_groups;
  int64_t group = out_feature / AT_MAX(per_group, 1);
  // Batch groups: output features split over blocks of the input's batch.
  int64_t per_batch_group = v->out_features / c->batch_groups;
  in[c->input_batch] =
      to[c->output_batch] + out_feature / AT_MAX(per_batch_group, 1) * v->batch;
  if (c->batch_groups == 1) in[c->input_batch] = to[c->output_batch];
  kernel[c->kernel_output] = out_feature;
  for (uint32_t d = 0; d < c->spatial; d++) {
    sizes[d] = v->k->dims[c->kernel_spatial.ptr[d]];
    if (!sizes[d]) return;
  }
  do {
    bool inside = true;
    for (uint32_t d = 0; d < c->spatial && inside; d++) {
      int64_t at =
          at_window_at(to[c->output_spatial.ptr[d]], c->strides[d], window[d],
                       c->rhs_dilation[d], c->padding[2 * d],
                       c->lhs_dilation[d], v->l->dims[c->input_spatial.ptr[d]]);
      inside = at >= 0;
      in[c->input_spatial.ptr[d]] = at;
      kernel[c->kernel_spatial.ptr[d]] =
          c->reversal[d] ? sizes[d] - 1 - window[d] : window[d];
    }
    if (!inside) continue;
    for (int64_t f = 0; f < v->features; f++) {
      in[c->input_feature] = group * v->features + f;
      kernel[c->kernel_input] = f;
      add_product(sum, &v->ln, at_ravel(v->l, in), &v->kn,
                  at_ravel(v->k, kernel));
    }
  } while (at_next(sizes, c->spatial, window));
}

// Visits result elements in row-major order; each sums its window over all
// input features of its group.
at_status at_eval_conv_with(const at_eval_args *e, const at_conv_dims *c,
                            const at_type *t) {
  conv v = {.c = c, .l = &e->in[0]->type, .k = &e->in[1]->type};
  v.features = v.k->dims[c->kernel_input];
  v.out_features = v.k->dims[c->kernel_output];
  v.batch = t->dims[c->output_batch];
  int64_t to[kMaxRank] = {0}, count = at_type_elements(t), ops;
  uint8_t *data;
  int64_t taps = at_type_elements(v.k) / AT_MAX(v.out_features, 1);
  if (__builtin_mul_overflow(count, taps, &ops)) ops = INT64_MAX;
  AT_TRY(at_eval_spend(e->cx, ops));
  AT_TRY(at_eval_new(e->cx, t, e->out, &data));
  at_arena *a = at_arena_create();
  if (!a) return AT_NO_MEMORY("scratch");
  at_status st = open_pair(e, a, &v.ln, &v.kn);
  for (int64_t i = 0; at_ok(st) && i < count; i++) {
    accumulator sum = {0};
    conv_element(&v, to, &sum);
    store_sum(&sum, &v.ln, t->dtype, data);
    data += at_dtype_bytes(t->dtype);
    at_next(t->dims, t->rank, to);
  }
  at_arena_destroy(a);
  return st;
}

AT_EVAL(convolution) {
  at_conv_dims c;
  AT_TRY(at_conv_dims_read(e->cx->arena, e->n, &c));
  return at_eval_conv_with(e, &c, &e->n->types[0]);
}

// Reductions, windows, scans, sorts, top-k, map.
#include <math.h>

#include "hlo/eval_internal.h"

// (inputs..., inits...) with a body; element pointers for one call.
typedef struct reducer {
  const at_eval_args *e;
  at_body body;
  uint32_t inputs;
  const void **args;  // accumulators, then elements
  void **outs;
  uint8_t **data;      // of the results
  uint8_t *acc;        // 16 bytes per input
  bool is_sum;         // one float or complex add
  long double re, im;  // its accumulator
} reducer;

// The order of a reduction is free, so the judge gives a sum of floats its true
// value, rounded once.
static bool is_float_sum(const at_comp *c) {
  const at_node *n = c->last;
  return c->num_params == 2 && c->num_results == 1 && n && n->op == AT_OP_ADD &&
         c->results[0].node == n &&
         n->operands[0].node->op == AT_OP_PARAMETER &&
         n->operands[1].node->op == AT_OP_PARAMETER &&
         n->operands[0].node != n->operands[1].node &&
         n->operands[0].node->parent == c && n->operands[1].node->parent == c &&
         (at_is_float(n->types[0].dtype) || at_is_complex(n->types[0].dtype));
}

// Checks the body, makes the results, and opens the body, which at_body_close
// must close. `is_sum` only for one input: the true value of several sums at
// once is not asked for.
static at_status open_reducer(const at_eval_args *e, reducer *r) {
  at_arena *a = e->cx->arena;
  uint32_t k = e->n->num_operands / 2;
  *r = (reducer){.e = e, .inputs = k};
  for (uint32_t i = 0; i < k; i++) {
    at_dtype want = e->n->types[i].dtype;
    const at_comp *c = e->n->regions[0];
    if (c->num_params != 2 * k || c->params[i]->types[0].dtype != want)
      return AT_FAIL(AT_UNIMPLEMENTED,
                     "evaluator: %s with a body of other "
                     "element types than its results",
                     at_op_text(e->n->op));
  }
  AT_TRY_ALLOC(r->args, at_new(a, const void *, 2 * (size_t)k));
  AT_TRY_ALLOC(r->outs, at_new(a, void *, k));
  AT_TRY_ALLOC(r->data, at_new(a, uint8_t *, k));
  AT_TRY_ALLOC(r->acc, at_arena_alloc(a, at_mul(k, 16), 16));
  for (uint32_t i = 0; i < k; i++)
    AT_TRY(at_eval_new(e->cx, &e->n->types[i], &e->out[i], &r->data[i]));
  at_dtype in = e->in[0]->type.dtype;
  r->is_sum =
      (at_is_float(in) || at_is_complex(in)) && is_float_sum(e->n->regions[0]);
  return at_body_open(e->cx, e->env, e->n->regions[0], &r->body);
}

// The accumulators start at the initial values, in the body's types.
static void start(reducer *r) {
  const at_comp *c = r->e->n->regions[0];
  if (r->is_sum) {
    const at_literal *init = r->e->in[1];
    double complex z = at_load_complex(init->type.dtype, init->data);
    r->re = creal(z);
    r->im = cimag(z);
    return;
  }
  for (uint32_t i = 0; i < r->inputs; i++) {
    const at_literal *init = r->e->in[r->inputs + i];
    at_eval_convert(init->type.dtype, init->data, c->params[i]->types[0].dtype,
                    r->acc + 16 * (size_t)i);
  }
}

// Adds the element in long double, both parts.
static at_status add_step(reducer *r, int64_t from) {
  const at_literal *l = r->e->in[0];
  double complex z = at_load_complex(l->type.dtype, at_literal_at(l, from));
  r->re += creal(z);
  r->im += cimag(z);
  return at_eval_spend(r->e->cx, 1);
}

// acc = body(acc, element at `from`).
static at_status step(reducer *r, int64_t from) {
  const at_comp *c = r->e->n->regions[0];
  uint8_t converted[16];
  if (r->is_sum) return add_step(r, from);
  for (uint32_t i = 0; i < r->inputs; i++) {
    const at_literal *l = r->e->in[i];
    at_dtype want = c->params[r->inputs + i]->types[0].dtype;
    r->args[i] = r->outs[i] = r->acc + 16 * (size_t)i;
    r->args[r->inputs + i] = at_literal_at(l, from);
    if (want != l->type.dtype) {  // a body in a wider type
      if (r->inputs > 1)
        return AT_FAIL(AT_UNIMPLEMENTED,
                       "evaluator: %s of several inputs that widens",
                       at_op_text(r->e->n->op));
      at_eval_convert(l->type.dtype, at_literal_at(l, from), want, converted);
      r->args[r->inputs + i] = converted;
    }
  }
  return at_body_call(&r->body, r->args, r->outs);
}

// Writes the accumulators as element `to` of each result.
static void finish(reducer *r, int64_t to) {
  if (r->is_sum) {
    double complex z = CMPLX((double)r->re, (double)r->im);
    at_eval_convert(AT_C128, &z, r->e->n->types[0].dtype, r->acc);
  }
  for (uint32_t i = 0; i < r->inputs; i++)
    at_put(r->e->n->types[i].dtype, r->data[i], to, r->acc + 16 * (size_t)i);
}

// ---- Reduce

// Positions of the reduced elements relative to the first, in row-major order.
typedef struct strided {
  int64_t dims[kMaxRank], strides[kMaxRank];
  uint32_t rank;
} strided;

// Offset of the i-th index over these dimensions.
static int64_t position(const strided *s, int64_t i) {
  int64_t index[kMaxRank], at = 0;
  at_unravel(s->dims, s->rank, i, index);
  for (uint32_t k = 0; k < s->rank; k++) at += index[k] * s->strides[k];
  return at;
}

// Kept and reduced dimensions with their strides in the operand. Kept ones in
// order give the result's row-major order.
static void split_dims(const at_eval_args *e, strided *kept, strided *gone) {
  const at_type *t = &e->in[0]->type;
  at_dims reduced = at_node_ints(e->n, AT_ATTR_DIMENSIONS);
  kept->rank = gone->rank = 0;
  int64_t stride = 1, strides[kMaxRank];
  for (uint32_t i = t->rank; i-- > 0; stride *= t->dims[i]) strides[i] = stride;
  for (uint32_t i = 0; i < t->rank; i++) {
    strided *s = at_dims_has(reduced, i) ? gone : kept;
    s->dims[s->rank] = t->dims[i];
    s->strides[s->rank++] = strides[i];
  }
}

// Reduced elements are visited in row-major order, the order that the laws in
// README.md name.
static at_status reduce_all(reducer *r) {
  strided kept, gone;
  split_dims(r->e, &kept, &gone);
  int64_t count = at_product(kept.dims, kept.rank);
  int64_t depth = at_product(gone.dims, gone.rank);
  for (int64_t i = 0; i < count; i++) {
    int64_t base = position(&kept, i);
    start(r);
    for (int64_t k = 0; k < depth; k++)
      AT_TRY(step(r, base + position(&gone, k)));
    finish(r, i);
  }
  return AT_OK;
}

// Opens, runs, and closes on every path.
static at_status with_reducer(const at_eval_args *e,
                              at_status (*run)(reducer *)) {
  reducer r;
  AT_TRY(open_reducer(e, &r));
  at_status st = run(&r);
  at_body_close(&r.body);
  return st;
}

AT_EVAL(reduce) { return with_reducer(e, reduce_all); }

// ---- Reduce window

// Places of the window that lie in the padding are skipped.
static at_status window_all(reducer *r) {
  const at_eval_args *e = r->e;
  const at_type *a = &e->in[0]->type, *t = &e->n->types[0];
  const int64_t *size, *stride, *base, *dilation, *pad;
  at_arena *mem = e->cx->arena;
  uint32_t rank = a->rank;
  AT_TRY(at_ints_or(mem, e->n, AT_ATTR_WINDOW_DIMENSIONS, rank, 1, &size));
  AT_TRY(at_ints_or(mem, e->n, AT_ATTR_WINDOW_STRIDES, rank, 1, &stride));
  AT_TRY(at_ints_or(mem, e->n, AT_ATTR_BASE_DILATIONS, rank, 1, &base));
  AT_TRY(at_ints_or(mem, e->n, AT_ATTR_WINDOW_DILATIONS, rank, 1, &dilation));
  AT_TRY(at_ints_or(mem, e->n, AT_ATTR_PADDING, 2 * rank, 0, &pad));
  int64_t to[kMaxRank] = {0}, count = at_type_elements(t);
  for (int64_t i = 0; i < count; i++) {
    int64_t in[kMaxRank] = {0}, from[kMaxRank];
    start(r);
    do {
      bool inside = true;
      for (uint32_t k = 0; k < rank && inside; k++) {
        from[k] = at_window_at(to[k], stride[k], in[k], dilation[k], pad[2 * k],
                               base[k], a->dims[k]);
        inside = from[k] >= 0;
      }
      if (inside)
        AT_TRY(step(r, at_ravel(a, from)));
      else
        AT_TRY(at_eval_spend(e->cx, 1));
    } while (at_next(size, rank, in));
    finish(r, i);
    at_next(t->dims, rank, to);
  }
  return AT_OK;
}

AT_EVAL(reduce_window) { return with_reducer(e, window_all); }

// ---- Scan

// The running value is written at every element, the accumulators start anew on
// each line.
static at_status scan_all(reducer *r) {
  const at_type *a = &r->e->in[0]->type;
  int64_t d = at_node_int(r->e->n, AT_ATTR_DIMENSION, 0);
  bool reverse = at_node_bool(r->e->n, AT_ATTR_REVERSE);
  int64_t length = a->dims[d];
  int64_t inner = at_product(a->dims + d + 1, a->rank - (uint32_t)d - 1);
  int64_t outer = at_product(a->dims, (uint32_t)d);
  for (int64_t o = 0; o < outer; o++)
    for (int64_t i = 0; i < inner; i++) {
      start(r);
      for (int64_t k = 0; k < length; k++) {
        int64_t at = reverse ? length - 1 - k : k;
        int64_t place = (o * length + at) * inner + i;
        AT_TRY(step(r, place));
        finish(r, place);
      }
    }
  return AT_OK;
}

AT_EVAL(scan) { return with_reducer(e, scan_all); }

// ---- Map

// The body gets element i of every operand.
static at_status map_all(const at_eval_args *e, at_body *body, uint8_t *data) {
  const at_type *t = &e->n->types[0];
  int64_t count = at_type_elements(t);
  const void **args;
  AT_TRY_ALLOC(args, at_new(e->cx->arena, const void *, e->n->num_operands));
  for (int64_t i = 0; i < count; i++) {
    for (uint32_t k = 0; k < e->n->num_operands; k++)
      args[k] = at_literal_at(e->in[k], i);
    AT_TRY(at_body_call(
        body, args, (void *[]){data + (size_t)i * at_dtype_bytes(t->dtype)}));
  }
  return AT_OK;
}

// The body is opened once for all elements.
AT_EVAL(map) {
  uint8_t *data;
  at_body body;
  AT_TRY(at_eval_new(e->cx, &e->n->types[0], e->out, &data));
  AT_TRY(at_body_open(e->cx, e->env, e->n->regions[0], &body));
  at_status st = map_all(e, &body, data);
  at_body_close(&body);
  return st;
}

// ---- Sort

// A sort of one line at a time: element k of the line is at base + k * stride.
typedef struct sorter {
  const at_eval_args *e;
  at_body body;
  const void **args;
  int64_t base, stride;
  int64_t *order, *spare;
} sorter;

// Whether element a comes before element b of the current line.
static at_status before(sorter *s, int64_t a, int64_t b, bool *out) {
  uint8_t yes = 0;
  for (uint32_t i = 0; i < s->e->n->num_operands; i++) {
    s->args[2 * i] = at_literal_at(s->e->in[i], s->base + a * s->stride);
    s->args[2 * i + 1] = at_literal_at(s->e->in[i], s->base + b * s->stride);
  }
  AT_TRY(at_body_call(&s->body, s->args, (void *[]){&yes}));
  *out = yes != 0;
  return AT_OK;
}

// Merge sort: stable, and safe with comparators that are not an order.
static at_status merge_sort(sorter *s, int64_t begin, int64_t end) {
  if (end - begin < 2) return AT_OK;
  int64_t middle = begin + (end - begin) / 2;
  AT_TRY(merge_sort(s, begin, middle));
  AT_TRY(merge_sort(s, middle, end));
  int64_t i = begin, j = middle;
  for (int64_t k = begin; k < end; k++) {
    bool take_right = i == middle;
    if (i < middle && j < end)
      AT_TRY(before(s, s->order[j], s->order[i], &take_right));
    s->spare[k] = s->order[take_right ? j++ : i++];
  }
  memcpy(s->order + begin, s->spare + begin,
         (size_t)(end - begin) * sizeof *s->order);
  return AT_OK;
}

// Sorts positions of one line at a time, then moves the elements of every
// operand to their places.
static at_status sort_all(sorter *s, uint8_t **data) {
  const at_type *a = &s->e->in[0]->type;
  int64_t d = at_node_int(s->e->n, AT_ATTR_DIMENSION, 0);
  int64_t length = a->dims[d];
  s->stride = at_product(a->dims + d + 1, a->rank - (uint32_t)d - 1);
  int64_t outer = at_product(a->dims, (uint32_t)d);
  AT_TRY_ALLOC(s->order, at_new(s->e->cx->arena, int64_t, (size_t)length));
  AT_TRY_ALLOC(s->spare, at_new(s->e->cx->arena, int64_t, (size_t)length));
  for (int64_t o = 0; o < outer; o++)
    for (int64_t i = 0; i < s->stride; i++) {
      s->base = o * length * s->stride + i;
      for (int64_t k = 0; k < length; k++) s->order[k] = k;
      AT_TRY(merge_sort(s, 0, length));
      for (int64_t k = 0; k < length; k++)
        for (uint32_t v = 0; v < s->e->n->num_operands; v++)
          at_put(s->e->in[v]->type.dtype, data[v], s->base + k * s->stride,
                 at_literal_at(s->e->in[v], s->base + s->order[k] * s->stride));
    }
  return AT_OK;
}

// Results are copies: operands stay as they are.
AT_EVAL(sort) {
  sorter s = {.e = e};
  uint8_t **data;
  uint32_t k = e->n->num_operands;
  AT_TRY_ALLOC(s.args, at_new(e->cx->arena, const void *, 2 * (size_t)k));
  AT_TRY_ALLOC(data, at_new(e->cx->arena, uint8_t *, k));
  for (uint32_t i = 0; i < k; i++)
    AT_TRY(at_eval_new(e->cx, &e->in[i]->type, &e->out[i], &data[i]));
  AT_TRY(at_body_open(e->cx, e->env, e->n->regions[0], &s.body));
  at_status st = sort_all(&s, data);
  at_body_close(&s.body);
  return st;
}

// ---- Top-k

// Whether element b beats element a. Floats go by total order, as XLA's do: NaN
// with a sign is the least, without one the largest.
static bool beats(const at_literal *l, int64_t b, int64_t a, bool largest) {
  at_dtype t = l->type.dtype;
  int64_t x = at_eval_order(t, at_literal_at(l, b));
  int64_t y = at_eval_order(t, at_literal_at(l, a));
  return largest ? x > y : x < y;
}

// Stable merge sort of positions: equal elements keep the lower index first.
static void merge_top(const at_literal *l, int64_t base, bool largest,
                      int64_t *order, int64_t *spare, int64_t begin,
                      int64_t end) {
  if (end - begin < 2) return;
  int64_t middle = begin + (end - begin) / 2, i = begin, j = middle;
  merge_top(l, base, largest, order, spare, begin, middle);
  merge_top(l, base, largest, order, spare, middle, end);
  for (int64_t k = begin; k < end; k++) {
    bool right = i == middle || (j < end && beats(l, base + order[j],
                                                  base + order[i], largest));
    spare[k] = order[right ? j++ : i++];
  }
  memcpy(order + begin, spare + begin, (size_t)(end - begin) * sizeof *order);
}

// Sorts each line whole and takes its first k.
AT_EVAL(top_k) {
  const at_literal *l = e->in[0];
  int64_t length = l->type.dims[l->type.rank - 1];
  int64_t k = e->n->types[0].dims[l->type.rank - 1];
  int64_t rows = at_product(l->type.dims, l->type.rank - 1);
  bool largest = at_node_int(e->n, AT_ATTR_LARGEST, 1) != 0;
  int64_t *order, *spare;
  uint8_t *values, *indices;
  AT_TRY(at_eval_new(e->cx, &e->n->types[0], &e->out[0], &values));
  AT_TRY(at_eval_new(e->cx, &e->n->types[1], &e->out[1], &indices));
  AT_TRY(at_eval_spend(e->cx, at_type_elements(&l->type)));
  AT_TRY_ALLOC(order, at_new(e->cx->arena, int64_t, (size_t)length));
  AT_TRY_ALLOC(spare, at_new(e->cx->arena, int64_t, (size_t)length));
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t i = 0; i < length; i++) order[i] = i;
    merge_top(l, r * length, largest, order, spare, 0, length);
    for (int64_t i = 0; i < k; i++) {
      at_put(l->type.dtype, values, r * k + i,
             at_literal_at(l, r * length + order[i]));
      at_store_int(AT_S32, indices + 4 * (r * k + i), order[i]);
    }
  }
  return AT_OK;
}

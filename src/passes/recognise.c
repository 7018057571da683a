// Whole-length windows are running reductions: linear, or n log n for bodies
// that no kernel knows, instead of quadratic.
#include <math.h>

#include "passes/passes_internal.h"

enum { MAX_RANK = 32 };

static bool all_are(at_dims d, int64_t x) {
  for (uint32_t i = 0; i < d.rank; i++)
    if (d.ptr[i] != x) return false;
  return true;
}

// The dimension along which every output sees all inputs before it (reverse:
// after it); -1: another window.
static int64_t running_dim(const at_node *n, bool *reverse) {
  const at_type *t = at_value_type(n->operands[0]);
  at_dims window = at_node_ints(n, AT_ATTR_WINDOW_DIMENSIONS);
  at_dims pad = at_node_ints(n, AT_ATTR_PADDING);
  if (!all_are(at_node_ints(n, AT_ATTR_WINDOW_STRIDES), 1) ||
      !all_are(at_node_ints(n, AT_ATTR_BASE_DILATIONS), 1) ||
      !all_are(at_node_ints(n, AT_ATTR_WINDOW_DILATIONS), 1))
    return -1;
  int64_t dim = -1;
  for (uint32_t i = 0; i < t->rank; i++) {
    int64_t low = pad.rank ? pad.ptr[2 * i] : 0,
            high = pad.rank ? pad.ptr[2 * i + 1] : 0;
    if (window.ptr[i] == 1 && low == 0 && high == 0) continue;
    bool forward = low == t->dims[i] - 1 && high == 0;
    bool backward = high == t->dims[i] - 1 && low == 0;
    if (dim >= 0 || window.ptr[i] != t->dims[i] || (!forward && !backward))
      return -1;
    dim = i;
    *reverse = backward;
  }
  return dim;
}

// log(e^a + e^b) as JAX writes it: max + log1p(exp(-|a - b|)), guarded against
// NaN.
static bool is_log_add_exp(const at_comp *c) {
  uint32_t exps = 0, logs = 0, maxima = 0;
  if (c->num_params != 2 || c->num_results != 1) return false;
  AT_FOR_NODES(n, c) {
    switch (n->op) {
      case AT_OP_EXPONENTIAL:
        exps++;
        break;
      case AT_OP_LOG_PLUS_ONE:
        logs++;
        break;
      case AT_OP_MAXIMUM:
        maxima++;
        break;
      case AT_OP_PARAMETER:
      case AT_OP_SUBTRACT:
      case AT_OP_ADD:
      case AT_OP_ABS:
      case AT_OP_NEGATE:
      case AT_OP_COMPARE:
      case AT_OP_SELECT:
        break;
      default:
        return false;
    }
  }
  return exps == 1 && logs == 1 && maxima == 1;
}

// From -infinity, the logarithm of 0.
static bool is_log_add_exp_from_zero(const at_node *n) {
  double init;
  return is_log_add_exp(n->regions[0]) &&
         at_splat_float(n->operands[1], &init) && init == -INFINITY;
}

// The running body in log2(size) steps over the whole array: each joins an
// element with the one 1, 2, 4, ... before it (reverse: after it).
static at_status by_doubling(at_rw *r, at_node *n, int64_t dim, bool reverse) {
  const at_type *t = &n->types[0];
  int64_t low[MAX_RANK] = {0}, high[MAX_RANK] = {0}, interior[MAX_RANK] = {0};
  at_value x = n->operands[0];
  for (int64_t k = 1; k < t->dims[dim]; k *= 2) {
    low[dim] = reverse ? -k : k;
    high[dim] = -low[dim];
    at_attr attrs[3] = {
        at_attr_ints(AT_ATTR_EDGE_PADDING_LOW, low, t->rank),
        at_attr_ints(AT_ATTR_EDGE_PADDING_HIGH, high, t->rank),
        at_attr_ints(AT_ATTR_INTERIOR_PADDING, interior, t->rank)};
    at_value v[2] = {x, n->operands[1]}, shifted;
    AT_TRY(at_mk(n, AT_OP_PAD, v, 2, attrs, 3, NULL, &shifted));
    at_value pair[2] = {shifted, x};
    AT_TRY(at_mk_mapped(n, n->regions[0], pair, at_type_dims(t), &x));
    AT_ENSURE(x.node);
  }
  return at_fwd_set(r, n, 0, x);
}

// A sum over windows that see one element each, as between elements that were
// pulled apart (the gradient of a mean over windows side by side): element i of
// the result is element i / size of what was padded.
static bool sees_one(const at_node *n, const at_node *pad) {
  const at_type *t = at_value_type(pad->operands[0]), *to = &n->types[0];
  at_dims window = at_node_ints(n, AT_ATTR_WINDOW_DIMENSIONS),
          around = at_node_ints(n, AT_ATTR_PADDING),
          low = at_node_ints(pad, AT_ATTR_EDGE_PADDING_LOW),
          interior = at_node_ints(pad, AT_ATTR_INTERIOR_PADDING);
  if (at_region_binary(n->regions[0]) != AT_OP_ADD ||
      !at_is_splat(n->operands[1], 0) || !at_is_splat(pad->operands[1], 0) ||
      !all_are(at_node_ints(n, AT_ATTR_WINDOW_STRIDES), 1) ||
      !all_are(at_node_ints(n, AT_ATTR_BASE_DILATIONS), 1) ||
      !all_are(at_node_ints(n, AT_ATTR_WINDOW_DILATIONS), 1) ||
      !all_are(around, 0))
    return false;
  for (uint32_t d = 0; d < t->rank; d++) {
    int64_t size = window.ptr[d];
    if (interior.ptr[d] != size - 1 || low.ptr[d] != size - 1 ||
        to->dims[d] != t->dims[d] * size)
      return false;
  }
  return true;
}

// Broadcast of [n] to [n, size], then a reshape to [n * size], for every
// dimension at once.
static at_status repeat(at_rw *r, at_node *n, at_value x) {
  const at_type *t = at_value_type(x);
  int64_t split[2 * MAX_RANK], where[MAX_RANK];
  for (uint32_t d = 0; d < t->rank; d++) {
    where[d] = 2 * d;
    split[2 * d] = t->dims[d];
    split[2 * d + 1] = t->dims[d] ? n->types[0].dims[d] / t->dims[d] : 1;
  }
  at_value v;
  AT_TRY(at_mk_broadcast(n, x, (at_dims){split, 2 * t->rank}, where, &v));
  AT_TRY(at_mk_reshape(n, v, at_type_dims(&n->types[0]), &v));
  return at_fwd_set(r, n, 0, v);
}

// Rewrites the window reduction n where it is one of the known kinds.
static at_status window(at_rw *r, at_node *n) {
  bool reverse = false;
  const at_type *t = at_value_type(n->operands[0]);
  if (n->num_operands != 2 || !at_type_is_static(t) || t->rank > MAX_RANK ||
      t->dtype != n->types[0].dtype)  // a body of a wider type
    return AT_OK;
  const at_node *pad = n->operands[0].node;
  if (pad->op == AT_OP_PAD && t->rank && 2 * t->rank <= MAX_RANK &&
      sees_one(n, pad))
    return repeat(r, n, pad->operands[0]);
  int64_t dim = running_dim(n, &reverse);
  if (dim < 0 || at_type_elements(t) == 0) return AT_OK;
  if (is_log_add_exp_from_zero(n)) return by_doubling(r, n, dim, reverse);
  at_op op = at_region_binary(n->regions[0]);
  if (op == AT_OP_COUNT || !at_is_identity(op, n->operands[1])) return AT_OK;
  at_attr attrs[2] = {at_attr_int(AT_ATTR_DIMENSION, dim),
                      at_attr_int(AT_ATTR_REVERSE, reverse)};
  // The scan takes the body over.
  n->regions[0]->owner = NULL;
  at_node_desc d = {.op = AT_OP_SCAN,
                    .operands = n->operands,
                    .num_operands = n->num_operands,
                    .attrs = attrs,
                    .num_attrs = 2,
                    .regions = n->regions,
                    .num_regions = 1,
                    .loc = n->loc};
  at_node *scan;
  AT_TRY(at_build(n->parent, n, &d, &scan));
  AT_TRY(at_fwd_set(r, n, 0, (at_value){scan, 0}));
  n->num_regions = 0;
  at_node_remove(n);
  return AT_OK;
}

// Regions first.
static at_status recognise_comp(at_rw *r, at_comp *c) {
  for (at_node *n = c->first, *next; n; n = next) {
    next = n->next;
    at_fwd_operands(n);
    for (uint32_t i = 0; i < n->num_regions; i++)
      AT_TRY(recognise_comp(r, n->regions[i]));
    if (n->op == AT_OP_REDUCE_WINDOW) AT_TRY(window(r, n));
  }
  at_fwd_results(c);
  return AT_OK;
}

// For what the scans and repeats stand for, see the top of the file.
at_status at_pass_recognise(at_module *m, const at_pass_options *o) {
  if (o->before_recognise) AT_TRY(o->before_recognise(m, o->user));
  at_rw r = {.m = m, .o = o};
  for (uint32_t i = 0; i < m->num_funcs; i++)
    AT_TRY(recognise_comp(&r, m->funcs[i]));
  at_dce(m);
  return AT_OK;
}

// Reductions over large windows go one dimension after the other: a box of 7 x
// 7 takes 7 + 7 steps for an element where it took 49. Exact for integers and
// extremes; sums of floats are added in another order. Dimensions that windows
// do not touch are joined, so that rows are long: three channels behind a
// window of stride 1 are that window, dilated by three, on rows of all.
#include "passes/passes_internal.h"

enum { MAX_RANK = 32 };
// What storing an intermediate result and loading it again takes, in steps of a
// reduction.
enum { STORE = 3 };

// A reduction of one array by an op, with neighbours under its windows.
static bool is_plain(const at_node *n) {
  if (n->op != AT_OP_REDUCE_WINDOW || n->num_operands != 2) return false;
  const at_type *t = at_value_type(n->operands[0]);
  at_dims base = at_node_ints(n, AT_ATTR_BASE_DILATIONS);
  for (uint32_t d = 0; d < base.rank; d++)
    if (base.ptr[d] != 1) return false;
  return at_type_is_static(t) && t->rank <= MAX_RANK &&
         t->dtype == n->types[0].dtype && at_type_elements(t) > 0 &&
         at_type_elements(&n->types[0]) > 0 &&
         at_region_binary(n->regions[0]) != AT_OP_COUNT;
}

// Can its windows be taken apart without rounding in between?
static bool separable(const at_node *n) {
  at_dtype t = n->types[0].dtype;
  at_op op = at_region_binary(n->regions[0]);
  bool narrow = at_is_float(t) && at_dtype_bytes(t) < 4;
  return at_is_identity(op, n->operands[1]) &&
         (op == AT_OP_MAXIMUM || op == AT_OP_MINIMUM || op == AT_OP_OR ||
          op == AT_OP_AND || (op == AT_OP_ADD && !narrow));
}

// The dimensions with windows, those that shrink most first. 0: there are fewer
// than two, some dimension changes without a window, or it would not pay.
static uint32_t order(const at_node *n, int64_t *dims) {
  const at_type *from = at_value_type(n->operands[0]), *to = &n->types[0];
  at_dims window = at_node_ints(n, AT_ATTR_WINDOW_DIMENSIONS);
  uint32_t num = 0;
  double all = 1, shape = (double)at_type_elements(from), steps = 0;
  for (uint32_t d = 0; d < from->rank; d++) {
    if (window.ptr[d] == 1) {
      if (from->dims[d] != to->dims[d]) return 0;
      continue;
    }
    all *= (double)window.ptr[d];
    uint32_t at = num++;
    for (; at && to->dims[d] * from->dims[dims[at - 1]] <
                     to->dims[dims[at - 1]] * from->dims[d];
         at--)
      dims[at] = dims[at - 1];
    dims[at] = d;
  }
  for (uint32_t i = 0; i < num; i++) {
    int64_t d = dims[i];
    shape *= (double)to->dims[d] / (double)from->dims[d];
    steps += shape * ((double)window.ptr[d] + STORE);
  }
  bool pays = steps < .75 * all * (double)at_type_elements(to);
  return num >= 2 && pays ? num : 0;
}

// A window reduction under construction: its lists, dimension by dimension.
typedef struct form {
  int64_t from[MAX_RANK], window[MAX_RANK], stride[MAX_RANK],
      dilation[MAX_RANK], base[MAX_RANK], padding[2 * MAX_RANK];
  uint32_t rank;
} form;

static int64_t attr_at(const at_node *n, at_attr_id id, uint32_t i,
                       int64_t absent) {
  at_dims list = at_node_ints(n, id);
  return i < list.rank ? list.ptr[i] : absent;
}

// Adds a dimension of `size` with n's window along d, whose neighbours are
// `step` elements apart; d < 0: without one.
static void add(form *f, const at_node *n, int64_t size, int64_t d,
                int64_t step) {
  uint32_t i = f->rank++, k = (uint32_t)d;
  bool has = d >= 0;
  f->from[i] = size;
  f->base[i] = 1;
  f->window[i] = has ? attr_at(n, AT_ATTR_WINDOW_DIMENSIONS, k, 1) : 1;
  f->stride[i] = has ? attr_at(n, AT_ATTR_WINDOW_STRIDES, k, 1) : 1;
  f->dilation[i] = has ? attr_at(n, AT_ATTR_WINDOW_DILATIONS, k, 1) * step : 1;
  for (uint32_t side = 0; side < 2; side++)
    f->padding[2 * i + side] =
        has ? attr_at(n, AT_ATTR_PADDING, 2 * k + side, 0) * step : 0;
}

// The windows of n along the `num` ascending dimensions, of x, with what lies
// before, between and behind them joined.
static void shape(const at_node *n, const at_type *x, const int64_t *dims,
                  uint32_t num, form *f) {
  f->rank = 0;
  uint32_t next = 0;
  for (uint32_t i = 0; i < num; i++) {
    uint32_t d = (uint32_t)dims[i];
    int64_t before = 1, behind = 1;
    for (; next < d; next++) before *= x->dims[next];
    if (before > 1) add(f, n, before, -1, 1);
    next = d + 1;
    if (i + 1 == num)
      for (; next < x->rank; next++) behind *= x->dims[next];
    bool joins = attr_at(n, AT_ATTR_WINDOW_STRIDES, d, 1) == 1;
    add(f, n, x->dims[d] * (joins ? behind : 1), d, joins ? behind : 1);
    if (behind > 1 && !joins) add(f, n, behind, -1, 1);
  }
}

// Those windows as an op, with the dimensions of x that have none as they were.
static at_status along(at_node *n, const int64_t *dims, uint32_t num,
                       at_value x, at_value *out) {
  const at_type *t = at_value_type(x);
  int64_t to[MAX_RANK];
  for (uint32_t d = 0; d < t->rank; d++) to[d] = t->dims[d];
  for (uint32_t i = 0; i < num; i++) to[dims[i]] = n->types[0].dims[dims[i]];
  form f;
  shape(n, t, dims, num, &f);
  at_attr attrs[] = {at_attr_ints(AT_ATTR_WINDOW_DIMENSIONS, f.window, f.rank),
                     at_attr_ints(AT_ATTR_WINDOW_STRIDES, f.stride, f.rank),
                     at_attr_ints(AT_ATTR_BASE_DILATIONS, f.base, f.rank),
                     at_attr_ints(AT_ATTR_WINDOW_DILATIONS, f.dilation, f.rank),
                     at_attr_ints(AT_ATTR_PADDING, f.padding, 2 * f.rank)};
  at_comp *body;
  AT_TRY(at_mk_binary_region(n->parent->module, at_region_binary(n->regions[0]),
                             t->dtype, n->loc, &body));
  at_value in[] = {x, n->operands[1]};
  AT_TRY(at_mk_reshape(n, x, (at_dims){f.from, f.rank}, &in[0]));
  at_node_desc desc = {.op = AT_OP_REDUCE_WINDOW,
                       .operands = in,
                       .num_operands = 2,
                       .attrs = attrs,
                       .num_attrs = AT_LEN(attrs),
                       .regions = &body,
                       .num_regions = 1,
                       .loc = n->loc};
  at_node *made;
  AT_TRY(at_build(n->parent, n, &desc, &made));
  return at_mk_reshape(n, (at_value){made, 0}, (at_dims){to, t->rank}, out);
}

// Do windows of stride 1 stand before a few elements that they do not touch?
// *dims: all dimensions with windows. 0: no.
static uint32_t before_few(const at_node *n, int64_t *dims) {
  enum { VECTOR = 16 };
  const at_type *from = at_value_type(n->operands[0]);
  uint32_t num = 0;
  int64_t behind = 1;
  for (uint32_t d = 0; d < from->rank; d++) {
    behind *= from->dims[d];
    if (attr_at(n, AT_ATTR_WINDOW_DIMENSIONS, d, 1) != 1)
      dims[num++] = d, behind = 1;
    else if (from->dims[d] != n->types[0].dims[d])
      return 0;
  }
  return num && behind > 1 && behind % VECTOR &&
                 attr_at(n, AT_ATTR_WINDOW_STRIDES, (uint32_t)dims[num - 1],
                         1) == 1
             ? num
             : 0;
}

static at_status rewrite(at_rw *r, at_node *n) {
  if (!is_plain(n)) return AT_OK;
  int64_t dims[MAX_RANK];
  uint32_t num = separable(n) ? order(n, dims) : 0;
  at_value v = n->operands[0];
  for (uint32_t i = 0; i < num; i++) AT_TRY(along(n, &dims[i], 1, v, &v));
  if (!num && (num = before_few(n, dims))) AT_TRY(along(n, dims, num, v, &v));
  return num ? at_fwd_set(r, n, 0, v) : AT_OK;
}

at_status at_pass_windows(at_module *m, const at_pass_options *o) {
  return o->small_products ? at_rw_each(m, o, rewrite) : AT_OK;
}

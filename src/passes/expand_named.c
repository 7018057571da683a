// Custom calls that XLA's clients know by name and that are ops, or small
// graphs of them: StableHLO's stand-ins for MHLO's ops, and image resizing.
#include <math.h>

#include "abi/attrdict.h"
#include "passes/passes_internal.h"

// The op of a target such as "mhlo.erf" or "chlo.lgamma"; COUNT: it is none.
static at_op op_of(const at_node *n, at_str target) {
  at_op op;
  if (!at_str_starts(target, "mhlo.") && !at_str_starts(target, "chlo."))
    return AT_OP_COUNT;
  at_str text = {target.ptr + 5, target.len - 5};
  if (!at_op_parse(text, &op) || !at_op_is(op, AT_ELEMENTWISE))
    return AT_OP_COUNT;
  // Elements of one type, and nothing else to say.
  const at_op_info *info = at_op_of(op);
  bool plain =
      info->attr_count == 0 ||
      (info->attr_count == 1 && info->attrs[0] == AT_ATTR_RESULT_ACCURACY);
  return plain && (int32_t)n->num_operands == info->min_operands ? op
                                                                 : AT_OP_COUNT;
}

static at_status one_op(at_rw *r, at_node *n, at_op op) {
  at_value v;
  AT_TRY(at_mk(n, op, n->operands, n->num_operands, NULL, 0, &n->types[0], &v));
  return at_fwd_set(r, n, 0, v);
}

// (x) -> (values, indices) along the minor dimension, as many as the result
// has.
static at_status top_k(at_rw *r, at_node *n) {
  const at_type *x = at_value_type(n->operands[0]), *y = &n->types[0];
  at_str config = at_node_str(n, AT_ATTR_BACKEND_CONFIG_DICT);
  at_dict_value largest;
  if (n->num_results != 2 || x->rank == 0 || y->rank != x->rank) return AT_OK;
  bool smallest =
      at_dict_find(config.ptr, config.len, "largest", &largest) && !largest.i;
  at_attr attrs[2] = {at_attr_int(AT_ATTR_K, y->dims[y->rank - 1]),
                      at_attr_int(AT_ATTR_LARGEST, !smallest)};
  at_node_desc d = {.op = AT_OP_TOP_K,
                    .operands = n->operands,
                    .num_operands = 1,
                    .attrs = attrs,
                    .num_attrs = 2,
                    .loc = n->loc};
  at_node *fresh;
  AT_TRY(at_build(n->parent, n, &d, &fresh));
  for (uint32_t i = 0; i < 2; i++) {
    if (!at_type_eq(&fresh->types[i], &n->types[i]))
      return at_fail_at(AT_INVALID_ARGUMENT, n,
                        "the results are not what its operand gives");
    AT_TRY(at_fwd_set(r, n, i, (at_value){fresh, i}));
  }
  return AT_OK;
}

// ---- Resizing of images [batch, height, width, features]
typedef struct resize {
  bool nearest, grad, align, half;  // corners aligned; centers of pixels at .5
} resize;

// Where element i of `out` lies among `in` elements.
static double source(const resize *z, int64_t i, int64_t in, int64_t out) {
  double scale = z->align && out > 1 ? (double)(in - 1) / (double)(out - 1)
                                     : (double)in / (double)out;
  if (z->half) return ((double)i + 0.5) * scale - (z->nearest ? 0 : 0.5);
  return (double)i * scale;
}

static int64_t within(double x, int64_t n) {
  return x < 0 ? 0 : x > (double)(n - 1) ? n - 1 : (int64_t)x;
}

// f32[out, in]: what each element of the result takes of each of the operand.
static at_status weights(at_node *n, const resize *z, int64_t in, int64_t out,
                         at_value *v) {
  at_arena *a = n->parent->module->arena;
  int64_t dims[2] = {out, in};
  at_type t = {.dtype = AT_F32, .rank = 2, .dims = dims};
  float *w;
  AT_TRY_ALLOC(w, at_new(a, float, at_mul((size_t)out, (size_t)in) + 1));
  for (int64_t i = 0; i < out; i++) {
    double x = source(z, i, in, out);
    if (z->nearest) {
      w[i * in + within(z->align ? round(x) : floor(x), in)] = 1;
      continue;
    }
    double part = x - floor(x);
    w[i * in + within(floor(x), in)] += (float)(1 - part);
    w[i * in + within(ceil(x), in)] += (float)part;
  }
  const at_literal *l;
  AT_TRY(at_literal_make(a, t, w, false, true, &l));
  return at_build_constant(n->parent, n, l, v);
}

// Along dimension `dim`, which becomes the first.
static at_status along(at_node *n, const resize *z, int64_t in, int64_t out,
                       int64_t dim, at_value *io) {
  at_value v[2];
  v[1] = *io;
  AT_TRY(z->grad ? weights(n, z, out, in, &v[0])
                 : weights(n, z, in, out, &v[0]));
  static const int64_t highest[2] = {2, 2};
  int64_t left = z->grad ? 0 : 1;
  at_attr attrs[] = {at_attr_ints(AT_ATTR_LHS_BATCHING_DIMENSIONS, NULL, 0),
                     at_attr_ints(AT_ATTR_RHS_BATCHING_DIMENSIONS, NULL, 0),
                     at_attr_ints(AT_ATTR_LHS_CONTRACTING_DIMENSIONS, &left, 1),
                     at_attr_ints(AT_ATTR_RHS_CONTRACTING_DIMENSIONS, &dim, 1),
                     at_attr_ints(AT_ATTR_PRECISION, highest, 2)};
  return at_mk(n, AT_OP_DOT_GENERAL, v, 2, attrs, AT_LEN(attrs), NULL, io);
}

static at_status resized(at_rw *r, at_node *n, resize z) {
  const at_type *x = at_value_type(n->operands[0]), *y = &n->types[0];
  at_str config = at_node_str(n, AT_ATTR_BACKEND_CONFIG);
  bool image = x->rank == 4 && y->rank == 4 && x->dtype == y->dtype &&
               at_is_float(x->dtype) && x->dtype != AT_F64 &&
               x->dims[0] == y->dims[0] && x->dims[3] == y->dims[3];
  // "10", quotes included: aligned corners, centers at half a pixel.
  if (!image || config.len != 4 || config.ptr[0] != '"')
    return at_fail_at(AT_UNIMPLEMENTED, n,
                      "resizes floats [batch, height, width, features] by a "
                      "configuration such as \"10\"");
  if (at_type_elements(x) == 0 || at_type_elements(y) == 0) return AT_OK;
  z.align = config.ptr[1] == '1';
  z.half = config.ptr[2] == '1';
  at_value v = n->operands[0];
  AT_TRY(at_mk_convert(n, v, AT_F32, &v));
  AT_TRY(along(n, &z, x->dims[1], y->dims[1], 1, &v));  // h b w f
  AT_TRY(along(n, &z, x->dims[2], y->dims[2], 2, &v));  // w h b f
  static const int64_t back[4] = {2, 1, 0, 3};
  AT_TRY(at_mk_transpose(n, v, back, &v));
  AT_TRY(at_mk_convert(n, v, y->dtype, &v));
  return at_fwd_set(r, n, 0, v);
}

at_status at_expand_named(at_rw *r, at_node *n) {
  static const struct {
    const char *target;
    resize how;
  } resizes[] = {{"ResizeBilinear", {0}},
                 {"ResizeBilinearGrad", {.grad = true}},
                 {"ResizeNearest", {.nearest = true}},
                 {"ResizeNearestGrad", {.nearest = true, .grad = true}}};
  at_str target = at_node_str(n, AT_ATTR_CALL_TARGET_NAME);
  if (n->num_results == 0 || n->num_operands == 0) return AT_OK;
  at_op op = op_of(n, target);
  if (op != AT_OP_COUNT && n->num_results == 1) return one_op(r, n, op);
  if (n->num_operands != 1) return AT_OK;
  if (at_str_is(target, "mhlo.topk")) return top_k(r, n);
  if (n->num_results != 1) return AT_OK;
  for (size_t i = 0; i < AT_LEN(resizes); i++)
    if (at_str_is(target, resizes[i].target))
      return resized(r, n, resizes[i].how);
  return AT_OK;
}

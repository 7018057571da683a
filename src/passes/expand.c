// Ops that have a simpler form: batch norms, maps, clamps, collectives of one
// device, top-k custom calls.
#include "passes/passes_internal.h"

enum { MAX_RANK = 32 };

// v takes the place of result i of n; its type must be the same.
static at_status to(at_rw *r, at_node *n, uint32_t i, at_value v) {
  AT_ENSURE(at_type_eq(at_value_type(v), &n->types[i]));
  return at_fwd_set(r, n, i, v);
}

// ---- Batch norm
typedef struct norm {
  at_node *n;
  at_dims dims;  // of x
  int64_t feature;
  int64_t others[MAX_RANK];  // every dim but the feature
  uint32_t num_others;
  double count;  // elements per feature
} norm;

// Reads n's operand and attributes. False: rank too high to expand.
static bool norm_of(at_node *n, norm *out) {
  *out = (norm){.n = n,
                .dims = at_type_dims(at_value_type(n->operands[0])),
                .feature = at_node_int(n, AT_ATTR_FEATURE_INDEX, 0),
                .count = 1};
  if (out->dims.rank > MAX_RANK) return false;
  for (uint32_t i = 0; i < out->dims.rank; i++) {
    if (i == out->feature) continue;
    out->others[out->num_others++] = i;
    out->count *= (double)out->dims.ptr[i];
  }
  return true;
}

// Narrow floats are normalised in f32 and rounded once: sums and variances of
// many elements do not fit into their few digits.
static at_status widen(at_node *n, uint32_t i, at_value *out) {
  *out = n->operands[i];
  if (at_dtype_of(at_value_type(*out)->dtype)->bits >= 32) return AT_OK;
  return at_mk_convert(n, *out, AT_F32, out);
}
// v as result `result` of n, rounded to that result's type.
static at_status give(at_rw *r, at_node *n, uint32_t result, at_value v) {
  if (at_value_type(v)->dtype != n->types[result].dtype)
    AT_TRY(at_mk_convert(n, v, n->types[result].dtype, &v));
  return to(r, n, result, v);
}

// v, one element per feature, broadcast to x's shape.
static at_status along_feature(const norm *b, at_value v, at_value *out) {
  return at_mk_broadcast(b->n, v, b->dims, &b->feature, out);
}

// x summed over all dimensions but the feature.
static at_status sum_others(const norm *b, at_value x, at_value *out) {
  at_value zero;
  AT_TRY(at_mk_splat_float(b->n, at_type_scalar(at_value_type(x)->dtype), 0,
                           &zero));
  return at_mk_reduce(b->n, AT_OP_ADD, x, zero,
                      (at_dims){b->others, b->num_others}, out);
}

// The same divided by the number of elements per feature.
static at_status mean_others(const norm *b, at_value x, at_value *out) {
  at_value sum, count;
  AT_TRY(sum_others(b, x, &sum));
  AT_TRY(at_mk_splat_float(b->n, *at_value_type(sum), b->count, &count));
  return at_mk2(b->n, AT_OP_DIVIDE, sum, count, out);
}

// x - mean, and 1 / sqrt(var + epsilon), both of x's shape.
static at_status centre(const norm *b, at_value x, at_value mean, at_value var,
                        at_value *centred, at_value *scale) {
  at_node *n = b->n;
  at_value m, e;
  AT_TRY(along_feature(b, mean, &m));
  AT_TRY(at_mk2(n, AT_OP_SUBTRACT, x, m, centred));
  const at_attr *eps = at_node_attr(n, AT_ATTR_EPSILON);
  AT_TRY(at_mk_splat_float(n, *at_value_type(var), eps ? eps->f : 0, &e));
  AT_TRY(at_mk2(n, AT_OP_ADD, var, e, &e));
  AT_TRY(at_mk1(n, AT_OP_SQRT, e, &e));
  return along_feature(b, e, scale);  // sqrt: the caller divides
}

// *out = (x - mean) / sqrt(var + epsilon) * scale + offset, all of x's element
// type.
static at_status normalise(const norm *b, at_value x, at_value scale,
                           at_value offset, at_value mean, at_value var,
                           at_value *out) {
  at_node *n = b->n;
  at_value c, s, g, o, y;
  AT_TRY(centre(b, x, mean, var, &c, &s));
  AT_TRY(along_feature(b, scale, &g));
  AT_TRY(along_feature(b, offset, &o));
  AT_TRY(at_mk2(n, AT_OP_DIVIDE, c, s, &y));
  AT_TRY(at_mk2(n, AT_OP_MULTIPLY, y, g, &y));
  return at_mk2(n, AT_OP_ADD, y, o, out);
}

// Operands: x, scale, offset, mean, variance.
static at_status norm_inference(at_rw *r, at_node *n) {
  norm b;
  at_value y, v[5];
  if (!norm_of(n, &b)) return AT_OK;
  for (uint32_t i = 0; i < 5; i++) AT_TRY(widen(n, i, &v[i]));
  AT_TRY(normalise(&b, v[0], v[1], v[2], v[3], v[4], &y));
  return give(r, n, 0, y);
}

// Operands: x, scale, offset. Results: the normalised x, mean and variance
// (biased, of two passes: the second subtracts the mean first, which keeps the
// digits that a difference of squares would lose).
static at_status norm_training(at_rw *r, at_node *n) {
  norm b;
  at_value x, scale, offset, mean, var, m, c, y;
  if (!norm_of(n, &b)) return AT_OK;
  AT_TRY(widen(n, 0, &x));
  AT_TRY(widen(n, 1, &scale));
  AT_TRY(widen(n, 2, &offset));
  AT_TRY(mean_others(&b, x, &mean));
  AT_TRY(along_feature(&b, mean, &m));
  AT_TRY(at_mk2(n, AT_OP_SUBTRACT, x, m, &c));
  AT_TRY(at_mk2(n, AT_OP_MULTIPLY, c, c, &c));
  AT_TRY(mean_others(&b, c, &var));
  AT_TRY(normalise(&b, x, scale, offset, mean, var, &y));
  AT_TRY(give(r, n, 0, y));
  AT_TRY(give(r, n, 1, mean));
  return give(r, n, 2, var);
}

// dx = scale / sqrt(var + e) * (dy - mean(dy) - (x - mean) * mean(dy (x -
// mean)) / (var + e)); dscale = sum(dy (x - mean)) / sqrt(var + e); doffset =
// sum(dy).
static at_status norm_grad(at_rw *r, at_node *n) {
  norm b;
  at_value x, scale, mean, var, dy,
      *operands[] = {&x, &scale, &mean, &var, &dy};
  at_value c, s, xhat, p, dscale, doffset, k, t, u;
  if (!norm_of(n, &b)) return AT_OK;
  for (uint32_t i = 0; i < 5; i++) AT_TRY(widen(n, i, operands[i]));
  AT_TRY(centre(&b, x, mean, var, &c, &s));
  AT_TRY(at_mk2(n, AT_OP_DIVIDE, c, s, &xhat));
  AT_TRY(at_mk2(n, AT_OP_MULTIPLY, dy, xhat, &p));
  AT_TRY(sum_others(&b, p, &dscale));
  AT_TRY(sum_others(&b, dy, &doffset));
  AT_TRY(at_mk_splat_float(n, *at_value_type(dscale), b.count, &k));
  AT_TRY(at_mk2(n, AT_OP_DIVIDE, dscale, k, &t));
  AT_TRY(along_feature(&b, t, &t));
  AT_TRY(at_mk2(n, AT_OP_MULTIPLY, xhat, t, &t));
  AT_TRY(at_mk2(n, AT_OP_DIVIDE, doffset, k, &u));
  AT_TRY(along_feature(&b, u, &u));
  AT_TRY(at_mk2(n, AT_OP_SUBTRACT, dy, u, &u));
  AT_TRY(at_mk2(n, AT_OP_SUBTRACT, u, t, &u));
  AT_TRY(along_feature(&b, scale, &k));
  AT_TRY(at_mk2(n, AT_OP_DIVIDE, k, s, &k));
  AT_TRY(at_mk2(n, AT_OP_MULTIPLY, k, u, &u));
  AT_TRY(give(r, n, 0, u));
  AT_TRY(give(r, n, 1, dscale));
  return give(r, n, 2, doffset);
}

// ---- Map
static at_status map(at_rw *r, at_node *n) {
  at_value v = {0};
  AT_TRY(at_mk_mapped(n, n->regions[0], n->operands, at_type_dims(&n->types[0]),
                      &v));
  return v.node ? to(r, n, 0, v) : AT_OK;
}

// ---- One device
static bool groups_of_one(const at_module *m, const at_node *n) {
  if (m->num_replicas * m->num_partitions == 1) return true;
  const at_attr *a = at_node_attr(n, AT_ATTR_REPLICA_GROUPS);
  if (!a || a->groups.n == 0) return false;
  for (uint32_t i = 0; i < a->groups.n; i++)
    if (a->groups.list[i].rank != 1) return false;
  // A group lists replicas; each stands for all partitions unless a channel
  // says otherwise, so one replica per group is one device only without
  // partitions.
  return m->num_partitions == 1 ||
         at_node_bool(n, AT_ATTR_USE_GLOBAL_DEVICE_IDS);
}

// A collective among one device is the identity.
static at_status collective(at_rw *r, at_node *n) {
  switch (n->op) {
    case AT_OP_ALL_GATHER:
    case AT_OP_ALL_REDUCE:
    case AT_OP_ALL_TO_ALL:
    case AT_OP_REDUCE_SCATTER:
    case AT_OP_COLLECTIVE_BROADCAST:
      if (!groups_of_one(r->m, n)) return AT_OK;
      break;
    default:
      return AT_OK;
  }
  for (uint32_t i = 0; i < n->num_results; i++)
    if (!at_type_eq(at_value_type(n->operands[i]), &n->types[i])) return AT_OK;
  for (uint32_t i = 0; i < n->num_results; i++)
    AT_TRY(to(r, n, i, n->operands[i]));
  return AT_OK;
}

// Device 0 sends to itself, or receives nothing and has zeros.
static at_status permute(at_rw *r, at_node *n) {
  if (r->m->num_replicas * r->m->num_partitions != 1) return AT_OK;
  const at_attr *a = at_node_attr(n, AT_ATTR_SOURCE_TARGET_PAIRS);
  for (uint32_t i = 0; a && i < a->groups.n; i++)
    if (a->groups.list[i].rank == 2 && a->groups.list[i].ptr[1] == 0)
      return to(r, n, 0, n->operands[0]);
  at_value v;
  uint64_t zero[2] = {0};
  AT_TRY(at_mk_splat(n, n->types[0], zero, &v));
  return to(r, n, 0, v);
}

// The number of a device among one is 0.
static at_status device_id(at_rw *r, at_node *n) {
  int64_t count =
      n->op == AT_OP_PARTITION_ID ? r->m->num_partitions : r->m->num_replicas;
  if (count != 1) return AT_OK;
  at_value v;
  AT_TRY(at_mk_splat_int(n, n->types[0], 0, &v));
  return to(r, n, 0, v);
}

// ---- Clamp
// Scalar bounds become full ones, so that an elementwise op reads equal shapes.
static at_status clamp(at_rw *r, at_node *n) {
  at_value v[3];
  bool changed = false;
  for (int i = 0; i < 3; i++) {
    v[i] = n->operands[i];
    if (at_value_type(v[i])->rank || !n->types[0].rank) continue;
    AT_TRY(at_mk_broadcast(n, v[i], at_type_dims(&n->types[0]), NULL, &v[i]));
    changed = true;
  }
  if (!changed) return AT_OK;
  at_value out;
  AT_TRY(at_mk(n, AT_OP_CLAMP, v, 3, NULL, 0, NULL, &out));
  return to(r, n, 0, out);
}

// ---- Scatter
// A body may compute in a wider type than what it is given: what is given is
// converted, so that nobody else has to know.
static at_status scatter(at_node *n) {
  uint32_t inputs = n->num_results;
  for (uint32_t i = 0; i < inputs; i++) {
    at_dtype t = n->types[i].dtype;
    at_value *update = &n->operands[inputs + 1 + i];
    AT_TRY(at_mk_convert(n, n->operands[i], t, &n->operands[i]));
    AT_TRY(at_mk_convert(n, *update, t, update));
  }
  return AT_OK;
}

// Source and initial value in the type of the result.
static at_status select_and_scatter(at_node *n) {
  for (uint32_t i = 1; i < 3; i++)
    AT_TRY(
        at_mk_convert(n, n->operands[i], n->types[0].dtype, &n->operands[i]));
  return AT_OK;
}

// Replaces n where it has a simpler form. Dynamic results wait for the refined
// shapes.
static at_status expand_node(at_rw *r, at_node *n) {
  for (uint32_t i = 0; i < n->num_results; i++)
    if (!at_type_is_static(&n->types[i])) return AT_OK;
  switch (n->op) {
    case AT_OP_BATCH_NORM_TRAINING:
      return norm_training(r, n);
    case AT_OP_BATCH_NORM_INFERENCE:
      return norm_inference(r, n);
    case AT_OP_BATCH_NORM_GRAD:
      return norm_grad(r, n);
    case AT_OP_MAP:
      return map(r, n);
    case AT_OP_CLAMP:
      return clamp(r, n);
    case AT_OP_SCATTER:
      return scatter(n);
    case AT_OP_SELECT_AND_SCATTER:
      return select_and_scatter(n);
    case AT_OP_PARTITION_ID:
    case AT_OP_REPLICA_ID:
      return device_id(r, n);
    case AT_OP_COLLECTIVE_PERMUTE:
      return permute(r, n);
    case AT_OP_CUSTOM_CALL:
      AT_TRY(at_expand_sparse(r, n));
      return at_expand_top_k(r, n);
    default:
      return at_op_is(n->op, AT_COLLECTIVE) ? collective(r, n) : AT_OK;
  }
}

// Visits inner regions first: bodies are expanded before at_mk_mapped reads
// them.
static at_status expand_comp(at_rw *r, at_comp *c) {
  for (at_node *n = c->first, *next; n; n = next) {
    next = n->next;
    at_fwd_operands(n);
    for (uint32_t i = 0; i < n->num_regions; i++)
      AT_TRY(expand_comp(r, n->regions[i]));
    AT_TRY(expand_node(r, n));
  }
  at_fwd_results(c);
  return AT_OK;
}

at_status at_pass_expand(at_module *m, const at_pass_options *o) {
  at_rw r = {.m = m, .o = o};
  for (uint32_t i = 0; i < m->num_funcs; i++)
    AT_TRY(expand_comp(&r, m->funcs[i]));
  at_dce(m);
  return AT_OK;
}

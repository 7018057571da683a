// Batch normalisation, random bits, collectives in groups of one.
#include <math.h>

#include "hlo/eval_internal.h"

// ---- Batch normalisation

// One batch_norm op: its operands and how elements map to features.
typedef struct norm {
  const at_eval_args *e;
  const at_type *t;
  int64_t count, features, inner;  // inner: elements after the feature dim
  double epsilon;
} norm;

static int64_t feature_of(const norm *n, int64_t i) {
  return i / n->inner % n->features;
}

// A zeroed number for each feature.
static at_status column(const norm *n, double **out) {
  AT_TRY_ALLOC(*out, at_new(n->e->cx->arena, double, (size_t)n->features));
  return AT_OK;
}

static double in_at(const norm *n, uint32_t operand, int64_t i) {
  return at_literal_float(n->e->in[operand], i);
}

// Writes one number per feature as a vector of x's element type.
static void store_column(const norm *n, uint8_t *data, const double *v) {
  for (int64_t f = 0; f < n->features; f++)
    at_store_float(n->t->dtype, data + (size_t)f * at_dtype_bytes(n->t->dtype),
                   v[f]);
}

// Mean and variance over all dimensions but the feature's, the variance around
// the mean (divided by the count). Results: normalised values, means,
// variances.
static at_status norm_training(const norm *n, uint8_t **data) {
  double *mean, *var, per = (double)(n->count / AT_MAX(n->features, 1));
  size_t w = at_dtype_bytes(n->t->dtype);
  AT_TRY(column(n, &mean));
  AT_TRY(column(n, &var));
  for (int64_t i = 0; i < n->count; i++)
    mean[feature_of(n, i)] += in_at(n, 0, i);
  for (int64_t f = 0; f < n->features; f++) mean[f] /= per;
  for (int64_t i = 0; i < n->count; i++) {
    double d = in_at(n, 0, i) - mean[feature_of(n, i)];
    var[feature_of(n, i)] += d * d;
  }
  for (int64_t f = 0; f < n->features; f++) var[f] /= per;
  for (int64_t i = 0; i < n->count; i++) {
    int64_t f = feature_of(n, i);
    double y = (in_at(n, 0, i) - mean[f]) / sqrt(var[f] + n->epsilon);
    at_store_float(n->t->dtype, data[0] + (size_t)i * w,
                   y * in_at(n, 1, f) + in_at(n, 2, f));
  }
  store_column(n, data[1], mean);
  store_column(n, data[2], var);
  return AT_OK;
}

// As in training, with mean and variance given as operands 3 and 4.
static at_status norm_inference(const norm *n, uint8_t **data) {
  size_t w = at_dtype_bytes(n->t->dtype);
  for (int64_t i = 0; i < n->count; i++) {
    int64_t f = feature_of(n, i);
    double y =
        (in_at(n, 0, i) - in_at(n, 3, f)) / sqrt(in_at(n, 4, f) + n->epsilon);
    at_store_float(n->t->dtype, data[0] + (size_t)i * w,
                   y * in_at(n, 1, f) + in_at(n, 2, f));
  }
  return AT_OK;
}

// Element i of x less its mean, in standard deviations: what follows from it
// overflows later than what follows from the difference.
static double normalised(const norm *n, int64_t i) {
  int64_t f = feature_of(n, i);
  return (in_at(n, 0, i) - in_at(n, 2, f)) / sqrt(in_at(n, 3, f) + n->epsilon);
}

// Operands: x, scale, mean, variance, gradient of the result. Results:
// gradients of x, scale and offset. dot[f] sums gradient times normalised x.
static at_status norm_grad(const norm *n, uint8_t **data) {
  double *sum, *dot, per = (double)(n->count / AT_MAX(n->features, 1));
  size_t w = at_dtype_bytes(n->t->dtype);
  AT_TRY(column(n, &sum));
  AT_TRY(column(n, &dot));
  for (int64_t i = 0; i < n->count; i++) {
    int64_t f = feature_of(n, i);
    sum[f] += in_at(n, 4, i);
    dot[f] += in_at(n, 4, i) * normalised(n, i);
  }
  for (int64_t i = 0; i < n->count; i++) {
    int64_t f = feature_of(n, i);
    double g =
        in_at(n, 4, i) - sum[f] / per - normalised(n, i) * (dot[f] / per);
    double scale = in_at(n, 1, f) / sqrt(in_at(n, 3, f) + n->epsilon);
    at_store_float(n->t->dtype, data[0] + (size_t)i * w, scale * g);
  }
  store_column(n, data[1], dot);
  store_column(n, data[2], sum);
  return AT_OK;
}

// The three ops share layout and operands 0 to 2; features are along one
// dimension.
AT_EVAL(batch_norm) {
  norm n = {.e = e, .t = &e->in[0]->type};
  int64_t f = at_node_int(e->n, AT_ATTR_FEATURE_INDEX, 0);
  const at_attr *epsilon = at_node_attr(e->n, AT_ATTR_EPSILON);
  uint8_t *data[3];
  n.epsilon = epsilon ? epsilon->f : 0;
  n.count = at_type_elements(n.t);
  n.features = n.t->dims[f];
  n.inner = at_product(n.t->dims + f + 1, n.t->rank - (uint32_t)f - 1);
  AT_TRY(at_eval_spend(e->cx, n.count));
  for (uint32_t i = 0; i < e->n->num_results; i++)
    AT_TRY(at_eval_new(e->cx, &e->n->types[i], &e->out[i], &data[i]));
  if (e->n->op == AT_OP_BATCH_NORM_INFERENCE) return norm_inference(&n, data);
  if (e->n->op == AT_OP_BATCH_NORM_GRAD) return norm_grad(&n, data);
  return norm_training(&n, data);
}

// ---- Random bits

// by is in (0, 32).
static uint32_t rotate(uint32_t v, int by) { return v << by | v >> (32 - by); }

// Threefry-2x32, 20 rounds (Salmon et al., 2011).
static void threefry(const uint32_t key[2], uint32_t x[2]) {
  static const int rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const uint32_t ks[3] = {key[0], key[1], 0x1BD11BDAu ^ key[0] ^ key[1]};
  x[0] += ks[0];
  x[1] += ks[1];
  for (uint32_t group = 0; group < 5; group++) {
    for (int i = 0; i < 4; i++) {
      x[0] += x[1];
      x[1] = rotate(x[1], rotations[group & 1][i]) ^ x[0];
    }
    x[0] += ks[(group + 1) % 3];
    x[1] += ks[(group + 2) % 3] + group + 1;
  }
}

// Philox-4x32, 10 rounds (the same paper).
static void philox(const uint32_t key_in[2], uint32_t x[4]) {
  uint32_t key[2] = {key_in[0], key_in[1]};
  for (int round = 0; round < 10; round++) {
    uint64_t a = (uint64_t)x[0] * 0xD2511F53u;
    uint64_t b = (uint64_t)x[2] * 0xCD9E8D57u;
    const uint32_t y[4] = {(uint32_t)(b >> 32) ^ x[1] ^ key[0], (uint32_t)b,
                           (uint32_t)(a >> 32) ^ x[3] ^ key[1], (uint32_t)a};
    memcpy(x, y, sizeof y);
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
}

// Where random bits go: an array of type t.
typedef struct bits_out {
  const at_type *t;
  uint8_t *data;
} bits_out;

// The low bits of v, for types of up to 64 bits.
static void put_bits(const bits_out *o, int64_t at, uint64_t v) {
  size_t w = at_dtype_bytes(o->t->dtype);
  uint32_t bits = at_dtype_of(o->t->dtype)->bits;
  if (bits < 8) v &= (1u << bits) - 1;
  if (at_is_float(o->t->dtype))
    memcpy(o->data + (size_t)at * w, &v, w);
  else
    at_store_int(o->t->dtype, o->data + (size_t)at * w, (int64_t)v);
}

// One block of two words from a 64-bit key and counter, low halves first.
static void threefry_at(uint64_t key, uint64_t counter, uint32_t x[2]) {
  const uint32_t k[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
  x[0] = (uint32_t)counter;
  x[1] = (uint32_t)(counter >> 32);
  threefry(k, x);
}

// Up to 32 bits: the two words of a block go to neighbours along the first even
// dimension, or the longest one when all are odd. Yields the blocks used.
static uint64_t threefry_32(const bits_out *o, uint64_t key, uint64_t counter) {
  const at_type *t = o->t;
  uint32_t x[2], split = 0;
  if (t->rank == 0) {
    threefry_at(key, counter, x);
    put_bits(o, 0, x[0]);
    return 1;
  }
  bool even = false;
  for (uint32_t i = 0; i < t->rank && !even; i++)
    if (t->dims[i] % 2 == 0) split = i, even = true;
  for (uint32_t i = 0; i < t->rank && !even; i++)
    if (t->dims[i] > t->dims[split]) split = i;
  int64_t half[kMaxRank], at[kMaxRank] = {0};
  for (uint32_t i = 0; i < t->rank; i++)
    half[i] = i == split ? (t->dims[i] + 1) / 2 : t->dims[i];
  int64_t blocks = at_product(half, t->rank);
  for (int64_t b = 0; b < blocks; b++) {
    int64_t to[kMaxRank];
    memcpy(to, at, sizeof to);
    threefry_at(key, counter + (uint64_t)b, x);
    for (int64_t k = 0; k < 2; k++) {
      to[split] = at[split] * 2 + k;
      if (to[split] < t->dims[split]) put_bits(o, at_ravel(t, to), x[k]);
    }
    at_next(half, t->rank, at);
  }
  return (uint64_t)blocks;
}

// One block for each element; returns the number of blocks used.
static uint64_t threefry_64(const bits_out *o, uint64_t key, uint64_t counter) {
  int64_t count = at_type_elements(o->t);
  uint32_t x[2];
  for (int64_t i = 0; i < count; i++) {
    threefry_at(key, counter + (uint64_t)i, x);
    put_bits(o, i, x[0] | (uint64_t)x[1] << 32);
  }
  return (uint64_t)count;
}

// Words of successive 128-bit counters, in order.
static uint64_t philox_fill(const bits_out *o, uint64_t key, uint64_t low,
                            uint64_t high) {
  const uint32_t k[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
  int64_t count = at_type_elements(o->t);
  int per = at_dtype_of(o->t->dtype)->bits == 64 ? 2 : 4;
  uint64_t blocks = (uint64_t)((count + per - 1) / per);
  for (uint64_t b = 0; b < blocks; b++) {
    uint64_t l = low + b, h = high + (l < low);
    uint32_t x[4] = {(uint32_t)l, (uint32_t)(l >> 32), (uint32_t)h,
                     (uint32_t)(h >> 32)};
    philox(k, x);
    for (int i = 0; i < per; i++) {
      int64_t at = (int64_t)b * per + i;
      if (at >= count) break;
      put_bits(o, at,
               per == 4 ? x[i] : x[2 * i] | (uint64_t)x[2 * i + 1] << 32);
    }
  }
  return blocks;
}

// The state is (key, counter) in 64-bit words, two or three of them. It moves
// on by as many blocks as were used.
AT_EVAL(rng_bit_generator) {
  const at_literal *state = e->in[0];
  const at_type *t = &e->n->types[1];
  int64_t algorithm = at_node_int(e->n, AT_ATTR_RNG_ALGORITHM, AT_RNG_DEFAULT);
  size_t bytes = at_type_bytes(&state->type),
         bits = at_dtype_of(t->dtype)->bits;
  uint64_t s[3] = {0};
  uint8_t *data, *out;
  size_t words = bytes / 8;
  if (bytes % 8 || words < 2 || words > 3 || at_is_complex(t->dtype) ||
      t->dtype == AT_PRED || !bits || state->splat ||
      !at_type_eq(&state->type, &e->n->types[0]))
    return AT_FAIL(AT_UNIMPLEMENTED,
                   "evaluator: rng_bit_generator from a state of %s to %s",
                   at_type_z(&state->type).z, at_type_z(t).z);
  memcpy(s, state->data, bytes);
  AT_TRY(at_eval_new(e->cx, &state->type, &e->out[0], &data));
  AT_TRY(at_eval_new(e->cx, t, &e->out[1], &out));
  AT_TRY(at_eval_spend(e->cx, at_type_elements(t)));
  bits_out o = {t, out};
  if (algorithm != AT_RNG_THREE_FRY) {  // XLA's default on CPUs, too
    if (words == 2) s[2] = s[0];  // the key doubles as the counter's high half
    uint64_t used = philox_fill(&o, s[0], s[1], s[2]), low = s[1] + used;
    s[2] += low < s[1];
    s[1] = low;
  } else {
    s[1] +=
        bits == 64 ? threefry_64(&o, s[0], s[1]) : threefry_32(&o, s[0], s[1]);
  }
  memcpy(data, s, bytes);
  return AT_OK;
}

// rng has no defined stream: the bits of threefry from a fixed key, so that two
// evaluations agree.
AT_EVAL(rng) {
  const at_type *t = &e->n->types[0];
  bool normal = at_node_int(e->n, AT_ATTR_RNG_DISTRIBUTION, AT_RNG_UNIFORM) ==
                AT_RNG_NORMAL;
  uint8_t *data;
  if (at_is_complex(t->dtype))
    return AT_FAIL(AT_UNIMPLEMENTED, "evaluator: rng of complex numbers");
  AT_TRY(at_eval_new(e->cx, t, e->out, &data));
  AT_TRY(at_eval_spend(e->cx, at_type_elements(t)));
  size_t w = at_dtype_bytes(t->dtype);
  for (int64_t i = 0; i < at_type_elements(t); i++) {
    uint32_t x[2];
    threefry_at(e->n->id, (uint64_t)i, x);
    if (!at_is_float(t->dtype)) {
      uint64_t a = at_literal_uint(e->in[0], 0);
      uint64_t span = at_literal_uint(e->in[1], 0) - a;
      uint64_t r = x[0] | (uint64_t)x[1] << 32;
      at_store_int(t->dtype, data + (size_t)i * w,
                   (int64_t)(a + (span ? r % span : 0)));
      continue;
    }
    double a = at_literal_float(e->in[0], 0), b = at_literal_float(e->in[1], 0);
    double u = x[0] * 0x1p-32, v = x[1] * 0x1p-32;
    double r = normal
                   ? a + b * sqrt(-2 * log1p(-u)) * cos(6.283185307179586 * v)
                   : a + (b - a) * u;
    // Rounding must not reach the open end.
    at_store_float(t->dtype, data + (size_t)i * w, r);
    if (!normal && at_load_float(t->dtype, data + (size_t)i * w) >= b)
      at_store_float(t->dtype, data + (size_t)i * w, a);
  }
  return AT_OK;
}

// ---- Collectives

// The number of devices that take part with this one.
static int64_t group_size(const at_eval_args *e) {
  const at_attr *a = at_node_attr(e->n, AT_ATTR_REPLICA_GROUPS);
  const at_module *m = e->n->parent->module;
  int64_t most = 0;
  if (!a || a->groups.n == 0) return m->num_replicas * m->num_partitions;
  for (uint32_t i = 0; i < a->groups.n; i++)
    most = AT_MAX(most, a->groups.list[i].rank);
  return most;
}

// Of a group of one device every collective is a copy.
static at_status copy_all(const at_eval_args *e) {
  for (uint32_t i = 0; i < e->n->num_results; i++) {
    if (!at_type_compatible(&e->in[i]->type, &e->n->types[i]))
      return AT_FAIL(AT_UNIMPLEMENTED, "evaluator: %s that changes the type",
                     at_op_text(e->n->op));
    e->out[i] = e->in[i];
  }
  return AT_OK;
}

// On one device a pair (0, 0) sends to itself; without one nobody sends, and
// the result is zeros.
static at_status permute(const at_eval_args *e) {
  const at_attr *a = at_node_attr(e->n, AT_ATTR_SOURCE_TARGET_PAIRS);
  const at_module *m = e->n->parent->module;
  uint8_t *data;
  if (m->num_replicas * m->num_partitions != 1)
    return AT_FAIL(AT_UNIMPLEMENTED,
                   "evaluator: collective_permute over several devices");
  for (uint32_t i = 0; a && i < a->groups.n; i++)
    if (a->groups.list[i].rank == 2 && a->groups.list[i].ptr[1] == 0)
      return copy_all(e);
  return at_eval_new(e->cx, &e->n->types[0], e->out, &data);  // zeros
}

// With other devices at hand the gang exchanges; alone, only groups of one have
// a meaning.
AT_EVAL(collective) {
  if (e->cx->gang) return at_eval_gang_collective(e);
  if (e->n->op == AT_OP_COLLECTIVE_PERMUTE) return permute(e);
  if (group_size(e) > 1)
    return AT_FAIL(AT_UNIMPLEMENTED, "evaluator: %s over %lld devices",
                   at_op_text(e->n->op), (long long)group_size(e));
  if (e->n->op == AT_OP_RAGGED_ALL_TO_ALL) return at_eval_ragged_alone(e);
  return copy_all(e);
}

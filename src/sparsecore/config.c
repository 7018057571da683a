#include <math.h>

#include "base/json.h"
#include "sparsecore/sparsecore.h"

#define BAD(...) AT_FAIL(AT_INVALID_ARGUMENT, "backend_config: " __VA_ARGS__)

// Leaves *out where the key is missing; more than INT32_MAX is refused.
static at_status read_int(const at_json *o, const char *key, int64_t least,
                          int64_t *out) {
  const at_json *v = at_json_get(o, key);
  if (!v) return AT_OK;
  if (v->kind != AT_JSON_NUMBER || !v->is_int || v->integer < least ||
      v->integer > INT32_MAX)
    return BAD("%s must be an integer from %lld to %d", key, (long long)least,
               INT32_MAX);
  *out = v->integer;
  return AT_OK;
}

// Must be there, and finite.
static at_status read_number(const at_json *o, const char *key, double *out) {
  const at_json *v = at_json_get(o, key);
  if (!v || v->kind != AT_JSON_NUMBER || !isfinite(v->number))
    return BAD("%s must be a number", key);
  *out = v->number;
  return AT_OK;
}

// The three keys differ between the two spellings that calls use.
static at_status read_quantisation(const at_json *o, const char *low,
                                   const char *high, const char *buckets,
                                   at_sc_config *c) {
  if (o->kind != AT_JSON_OBJECT) return BAD("quantization_config: an object");
  AT_TRY(read_number(o, low, &c->low));
  AT_TRY(read_number(o, high, &c->high));
  if (!at_json_get(o, buckets)) return BAD("%s is missing", buckets);
  AT_TRY(read_int(o, buckets, INT32_MIN, &c->num_buckets));
  if (c->num_buckets < 2)
    return BAD("%s must be at least 2, got %lld", buckets,
               (long long)c->num_buckets);
  // The engine works in f32.
  if (!((float)c->low < (float)c->high) || !isfinite((float)c->low) ||
      !isfinite((float)c->high))
    return BAD("%s must be less than %s, got %g and %g", low, high, c->low,
               c->high);
  c->quantised = true;
  return AT_OK;
}

// sparse_dense_matmul_config. Only rows spread over the SparseCores, MOD, are
// known.
static at_status read_matmul(const at_json *o, at_sc_config *c) {
  if (o->kind != AT_JSON_OBJECT)
    return BAD("sparse_dense_matmul_config must be an object");
  int64_t strategy = 1, pad = INT32_MAX;
  AT_TRY(read_int(o, "max_ids_per_partition", 1, &c->max_ids));
  AT_TRY(read_int(o, "max_unique_ids_per_partition", 1, &c->max_unique));
  AT_TRY(read_int(o, "num_slot_variables", 0, &c->num_slots));
  AT_TRY(read_int(o, "num_hyperparameters", 0, &c->num_hypers));
  AT_TRY(read_int(o, "sharding_strategy", 0, &strategy));
  AT_TRY(read_int(o, "pad_value", 0, &pad));
  if (strategy != 1)
    return BAD(
        "sharding_strategy %lld is not supported\nhint: 1 (MOD) spreads rows "
        "over the SparseCores",
        (long long)strategy);
  if (pad != INT32_MAX)
    return BAD("pad_value must be %d, got %lld", INT32_MAX, (long long)pad);
  const at_json *q = at_json_get(o, "quantization_config");
  if (q)
    return read_quantisation(q, "min_value", "max_value", "num_buckets", c);
  if (at_json_get(o, "quantization_config_num_buckets"))
    return read_quantisation(o, "quantization_config_low",
                             "quantization_config_high",
                             "quantization_config_num_buckets", c);
  return AT_OK;
}

// csr_config of SparseGather and SparseIota.
static at_status read_csr(const at_json *o, at_sc_config *c) {
  if (o->kind != AT_JSON_OBJECT) return BAD("csr_config must be an object");
  AT_TRY(read_int(o, "max_non_zeroes_per_row", 1, &c->max_per_row));
  AT_TRY(read_int(o, "max_pad_per_row", 1, &c->max_pad));
  return read_int(o, "pad_value", 0, &c->pad_value);
}

// Unknown keys are left alone.
static at_status read_config(const at_json *o, at_sc_config *c) {
  if (o->kind != AT_JSON_OBJECT) return BAD("an object is expected");
  const at_json *device = at_json_get(o, "device_type");
  if (device && (device->kind != AT_JSON_STRING ||
                 !at_str_is(device->string, "DEVICE_TYPE_SPARSECORE")))
    return BAD("device_type must be DEVICE_TYPE_SPARSECORE");
  const at_json *csr = at_json_get(o, "csr_config");
  if (csr) AT_TRY(read_csr(csr, c));
  const at_json *m = at_json_get(o, "sparse_dense_matmul_config");
  return m ? read_matmul(m, c) : AT_OK;
}

// The arena is limited: a config is small, whatever its text.
at_status at_sc_config_read(at_str text, at_sc_config *out) {
  at_sc_config c = {
      .num_slots = -1, .num_hypers = -1, .max_pad = 8, .pad_value = INT32_MAX};
  if (!text.len) {
    *out = c;
    return AT_OK;
  }
  at_arena *a = at_arena_create_limited(1 << 20);
  if (!a) return AT_NO_MEMORY("backend_config");
  const at_json *o;
  at_status st = at_json_parse_loose(
      (at_bytes){(const uint8_t *)text.ptr, text.len}, a, &o);
  if (st.err)
    st = at_status_prefix(st, "backend_config");
  else
    st = read_config(o, &c);
  at_arena_destroy(a);
  if (!st.err) *out = c;
  return st;
}

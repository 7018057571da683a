// backend_config: JSON that JAX writes by hand, or the TPU's compiler by
// protobuf, and the body in it. A key that is absent has its default (the
// initialiser of at_mosaic_config_read), one of another kind is an error, and
// keys that nobody knows are ignored: newer versions of JAX add some. Numbers
// have the bounds that the rest relies on, as anybody may write such JSON.
#include <stdlib.h>

#include "mosaic/mosaic_internal.h"

// Value of a base64 character; -1: none.
static int digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

// Four characters of six bits make three bytes. Padding is optional, and what
// is left over of the last bits is not looked at.
static at_status base64(const char *field, at_str s, at_arena *a,
                        at_bytes *out) {
  while (s.len && s.ptr[s.len - 1] == '=') s.len--;
  uint8_t *p;
  AT_TRY_ALLOC(p, at_new(a, uint8_t, s.len / 4 * 3 + 3));
  size_t n = 0;
  uint32_t bits = 0;
  for (size_t i = 0; i < s.len; i++) {
    int d = digit(s.ptr[i]);
    if (d < 0)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "custom_call_config.%s: character %zu is not base64",
                     field, i);
    bits = bits << 6 | (uint32_t)d;
    if (i % 4 == 1) p[n++] = (uint8_t)(bits >> 4);
    if (i % 4 == 2) p[n++] = (uint8_t)(bits >> 2);
    if (i % 4 == 3) p[n++] = (uint8_t)bits;
  }
  if (s.len % 4 == 1)
    return AT_FAIL(AT_INVALID_ARGUMENT, "custom_call_config.%s: base64 is cut",
                   field);
  *out = (at_bytes){p, n};
  return AT_OK;
}

// want: with its article.
static at_status wrong(const char *field, const char *want) {
  return AT_FAIL(AT_INVALID_ARGUMENT, "backend_config: %s is not %s", field,
                 want);
}

// Leaves *out where the key is missing.
static at_status get_bool(const at_json *o, const char *key, bool *out) {
  const at_json *v = at_json_get(o, key);
  if (!v) return AT_OK;
  if (v->kind != AT_JSON_BOOL) return wrong(key, "a boolean");
  *out = v->boolean;
  return AT_OK;
}

// Compiled programs have protobuf's JSON: integers of 64 bits are strings
// there.
static bool integer(const at_json *v, int64_t *out) {
  if (v->kind == AT_JSON_NUMBER && v->is_int) *out = v->integer;
  if (v->kind != AT_JSON_STRING) return v->kind == AT_JSON_NUMBER && v->is_int;
  at_str s = v->string;
  bool minus = s.len && s.ptr[0] == '-';
  int64_t n = 0;
  // Downwards, since INT64_MIN has no positive counterpart.
  for (size_t i = minus; i < s.len; i++)
    if (s.ptr[i] < '0' || s.ptr[i] > '9' || __builtin_mul_overflow(n, 10, &n) ||
        __builtin_sub_overflow(n, s.ptr[i] - '0', &n))
      return false;
  if (s.len == minus || (!minus && n == INT64_MIN)) return false;
  *out = minus ? n : -n;
  return true;
}

// An integer of at least `low`, which is 0 or INT64_MIN; absent: *out stays.
static at_status get_int(const at_json *o, const char *key, int64_t low,
                         int64_t *out) {
  const at_json *v = at_json_get(o, key);
  int64_t n;
  if (!v) return AT_OK;
  if (!integer(v, &n) || n < low)
    return wrong(key, low == 0 ? "an integer of 0 or more" : "an integer");
  *out = n;
  return AT_OK;
}

// What the kernel's author says it costs; estimates use it where they cannot
// look into the body.
static at_status cost_estimate(const at_json *o, struct at_mosaic_config *c) {
  const at_json *v = at_json_get(o, "cost_estimate");
  if (!v) return AT_OK;
  if (v->kind != AT_JSON_OBJECT) return wrong("cost_estimate", "an object");
  c->has_cost_estimate = true;
  AT_TRY(get_int(v, "flops", INT64_MIN, &c->flops));
  AT_TRY(get_int(v, "transcendentals", INT64_MIN, &c->transcendentals));
  AT_TRY(get_int(v, "bytes_accessed", INT64_MIN, &c->bytes_accessed));
  return get_int(v, "remote_bytes_transferred", INT64_MIN, &c->remote_bytes);
}

enum { MAX_COLORED = 4096 };

// [{"color": c, index_key: i}]: the colours by index; -1 where none is given.
// A lone result has no index.
static at_status colors(const at_json *o, const char *key,
                        const char *index_key, at_arena *a, const int **out,
                        uint32_t *out_n) {
  const at_json *v = at_json_get(o, key);
  if (!v) return AT_OK;
  if (v->kind != AT_JSON_ARRAY) return wrong(key, "an array");
  int64_t n = 0;
  int *p = NULL;
  // First the largest index, then the colours.
  for (int pass = 0; pass < 2; pass++) {
    for (size_t i = 0; i < v->len; i++) {
      const at_json *e = &v->items[i], *at = at_json_get(e, index_key);
      int64_t color = -1, index = at ? -1 : 0;
      AT_TRY(get_int(e, "color", 0, &color));
      if (at && at->kind == AT_JSON_ARRAY) {
        if (at->len == 0) index = 0;
        at = at->len == 1 ? at->items : NULL;
      }
      if (at && !integer(at, &index)) index = -1;
      if (color < 0 || color > 64 || index < 0 || index >= MAX_COLORED)
        return wrong(key, "a list of colours and indices");
      if (pass) p[index] = (int)color;
      n = AT_MAX(n, index + 1);
    }
    if (pass) break;
    AT_TRY_ALLOC(p, at_new(a, int, (size_t)n + 1));
    for (int64_t i = 0; i < n; i++) p[i] = -1;
  }
  *out = p;
  *out_n = (uint32_t)n;
  return AT_OK;
}

// JAX before 0.9: the colour of each result, -1 where it has none.
static at_status result_colors(const at_json *o, at_arena *a, const int **out,
                               uint32_t *out_n) {
  static const char key[] = "output_memory_colors";
  const at_json *v = at_json_get(o, key);
  if (!v) return AT_OK;
  if (v->kind != AT_JSON_ARRAY || v->len > MAX_COLORED)
    return wrong(key, "an array");
  int *p;
  AT_TRY_ALLOC(p, at_new(a, int, v->len + 1));
  for (size_t i = 0; i < v->len; i++) {
    int64_t color;
    if (!integer(&v->items[i], &color) || color < -1 || color > 64)
      return wrong(key, "a list of colours");
    p[i] = (int)color;
  }
  *out = p;
  *out_n = (uint32_t)v->len;
  return AT_OK;
}

// allow_input_fusion: one boolean per operand.
static at_status input_fusion(const at_json *o, at_arena *a,
                              struct at_mosaic_config *c) {
  const at_json *v = at_json_get(o, "allow_input_fusion");
  if (!v) return AT_OK;
  if (v->kind != AT_JSON_ARRAY) return wrong("allow_input_fusion", "an array");
  bool *p;
  AT_TRY_ALLOC(p, at_new(a, bool, v->len + 1));
  for (size_t i = 0; i < v->len; i++) {
    if (v->items[i].kind != AT_JSON_BOOL)
      return wrong("allow_input_fusion", "a list of booleans");
    p[i] = v->items[i].boolean;
  }
  c->allow_input_fusion = p;
  c->num_allow_input_fusion = (uint32_t)v->len;
  return AT_OK;
}

// custom_call_config, where JAX puts all but flags and limits. body NULL: the
// payload came otherwise, and is not decoded again.
static at_status custom_call(const at_json *o, at_arena *a,
                             struct at_mosaic_config *c, at_bytes *body) {
  const at_json *v = at_json_get(o, "custom_call_config");
  if (!v) return AT_OK;
  if (v->kind != AT_JSON_OBJECT)
    return wrong("custom_call_config", "an object");
  at_str text = at_json_get_str(v, "body", AT_STR(""));
  if (body && text.len) AT_TRY(base64("body", text, a, body));
  text = at_json_get_str(v, "debug_locations", AT_STR(""));
  if (text.len) AT_TRY(base64("debug_locations", text, a, &c->locations));
  AT_TRY(get_bool(v, "has_communication", &c->has_communication));
  AT_TRY(get_int(v, "collective_id", 0, &c->collective_id));
  AT_TRY(cost_estimate(v, c));
  AT_TRY(get_bool(v, "needs_hlo_passes", &c->needs_hlo_passes));
  AT_TRY(get_bool(v, "needs_layout_passes", &c->needs_layout_passes));
  AT_TRY(get_int(v, "serialization_format", 0, &c->serialization_format));
  AT_TRY(get_bool(v, "shape_invariant_numerics", &c->shape_invariant_numerics));
  AT_TRY(input_fusion(v, a, c));
  AT_TRY(
      get_int(v, "internal_scratch_in_bytes", 0, &c->internal_scratch_bytes));
  AT_TRY(result_colors(v, a, &c->output_colors, &c->num_output_colors));
  AT_TRY(colors(v, "output_memory_space_colors", "shape_index", a,
                &c->output_colors, &c->num_output_colors));
  AT_TRY(colors(v, "input_memory_space_colors", "operand_index", a,
                &c->input_colors, &c->num_input_colors));
  AT_TRY(get_bool(v, "disable_bounds_checks", &c->disable_bounds_checks));
  AT_TRY(get_bool(v, "disable_semaphore_checks", &c->disable_semaphore_checks));
  return get_bool(v, "skip_device_barrier", &c->skip_device_barrier);
}

// Flags of the TPU's compiler that the caller set for this kernel; what they
// mean is looked up where they are used (at_mosaic_flag).
static at_status flags(const at_json *o, at_arena *a,
                       struct at_mosaic_config *c) {
  const at_json *v = at_json_get(o, "flag_configs");
  if (!v) return AT_OK;
  if (v->kind != AT_JSON_ARRAY) return wrong("flag_configs", "an array");
  at_mosaic_flag *p;
  AT_TRY_ALLOC(p, at_new(a, at_mosaic_flag, v->len + 1));
  for (size_t i = 0; i < v->len; i++) {
    at_str name = at_json_get_str(&v->items[i], "flag_type", AT_STR(""));
    const at_json *value = at_json_get(&v->items[i], "value");
    if (!name.len || !value || value->kind != AT_JSON_OBJECT || value->len != 1)
      return wrong("flag_configs", "a list of names and values");
    AT_TRY_ALLOC(p[i].name, at_arena_str(a, name));
    p[i].value = &value->items[0];
  }
  c->flags = p;
  c->num_flags = (uint32_t)v->len;
  return AT_OK;
}

// Of the limits only VMEM's matters here: what the kernel may allocate.
static at_status scoped_memory(const at_json *o, struct at_mosaic_config *c) {
  const at_json *v = at_json_get(o, "scoped_memory_configs");
  if (!v) return AT_OK;
  if (v->kind != AT_JSON_ARRAY)
    return wrong("scoped_memory_configs", "an array");
  for (size_t i = 0; i < v->len; i++) {
    int64_t space = -1;
    AT_TRY(get_int(&v->items[i], "memory_space", 0, &space));
    if (space == AT_MCOLOR_VMEM)
      AT_TRY(get_int(&v->items[i], "size", 0, &c->vmem_limit_bytes));
  }
  return AT_OK;
}

// Empty text is every default. *out is written only on success; everything it
// points to lives in `a` or in `json`.
at_status at_mosaic_config_read(at_str json, at_arena *a,
                                struct at_mosaic_config *out, at_bytes *body) {
  struct at_mosaic_config c = {
      .collective_id = -1,
      .shape_invariant_numerics = true,
      .vmem_limit_bytes = -1,
  };
  if (json.len) {
    const at_json *o;
    AT_TRY(at_json_parse_loose((at_bytes){(const uint8_t *)json.ptr, json.len},
                               a, &o));
    if (o->kind != AT_JSON_OBJECT) return wrong("it", "an object");
    AT_TRY(custom_call(o, a, &c, body));
    AT_TRY(flags(o, a, &c));
    AT_TRY(scoped_memory(o, &c));
    at_str tiling = at_json_get_str(at_json_get(o, "sparse_core_config"),
                                    "tiling", AT_STR(""));
    c.sparse_core_tiling = at_str_is(tiling, "TILING_SPARSE_CORE");
    at_str device = at_json_get_str(o, "device_type", AT_STR(""));
    c.sparse_core = at_str_is(device, "DEVICE_TYPE_SPARSECORE");
    if (device.len && !c.sparse_core &&
        !at_str_is(device, "DEVICE_TYPE_TENSORCORE"))
      return AT_FAIL(AT_UNIMPLEMENTED, "backend_config: device_type %.*s",
                     (int)device.len, device.ptr);
    const at_json *cores =
        at_json_get(at_json_get(o, "megachip_parallelism_config"), "cores");
    if (cores && cores->kind == AT_JSON_ARRAY)
      c.active_cores = (int64_t)cores->len;
  }
  *out = c;
  return AT_OK;
}

// The text found is the one in `config` itself, by searching for its
// characters: base64 has no escapes, so both are equal.
at_status at_mosaic_body_find(at_str config, at_arena *a, at_str *text,
                              at_bytes *body) {
  const at_json *o;
  *text = (at_str){0};
  AT_TRY(at_json_parse_loose(
      (at_bytes){(const uint8_t *)config.ptr, config.len}, a, &o));
  at_str found =
      at_json_get_str(at_json_get(o, "custom_call_config"), "body", AT_STR(""));
  const char *at =
      found.len ? memmem(config.ptr, config.len, found.ptr, found.len) : NULL;
  if (!at) return AT_OK;
  AT_TRY(base64("body", found, a, body));
  *text = (at_str){at, found.len};
  return AT_OK;
}

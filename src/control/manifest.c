#include "control/manifest.h"

#include <string.h>

#include "abi/dtype.h"
#include "base/digest.h"
#include "base/json.h"

enum { kVersion = 1, kSumDigits = 16 };

static const char kKey[] = "atoll checkpoint";

// An empty tile has none.
uint32_t at_manifest_sums(size_t tile_bytes) {
  return (uint32_t)((tile_bytes + AT_MESSAGE_BLOCK - 1) / AT_MESSAGE_BLOCK);
}

// Half of a digest: it finds damage, not malice.
uint64_t at_manifest_sum(at_bytes block) {
  at_digest d = at_digest_start(1);
  at_digest_add(&d, block);
  return d.h[0];
}

// The file's name below the array's folder, as zarr has it.
void at_manifest_tile(uint32_t rank, const int64_t *tile, at_strbuf *out) {
  for (uint32_t d = 0; d < rank; d++)
    at_strbuf_addf(out, "%s%lld", d ? "." : "", (long long)tile[d]);
  if (!rank) at_strbuf_addc(out, '0');
}

// NULL: zarr has no such type.
const char *at_manifest_zarr_type(at_dtype t) {
  static const char *const names[AT_DTYPE_COUNT] = {
      [AT_PRED] = "|b1",
      [AT_S4] = "int4",
      [AT_S8] = "|i1",
      [AT_S16] = "<i2",
      [AT_S32] = "<i4",
      [AT_S64] = "<i8",
      [AT_U8] = "|u1",
      [AT_U16] = "<u2",
      [AT_U32] = "<u4",
      [AT_U64] = "<u8",
      [AT_F8E4M3FN] = "float8_e4m3fn",
      [AT_F8E4M3B11FNUZ] = "float8_e4m3b11fnuz",
      [AT_F8E4M3FNUZ] = "float8_e4m3fnuz",
      [AT_F8E5M2] = "float8_e5m2",
      [AT_F8E5M2FNUZ] = "float8_e5m2fnuz",
      [AT_BF16] = "bfloat16",
      [AT_F16] = "<f2",
      [AT_F32] = "<f4",
      [AT_F64] = "<f8",
      [AT_C64] = "<c8",
      [AT_C128] = "<c16"};
  return names[t];
}

// NULL: the checkpoint has no such array.
const at_manifest_array *at_manifest_find(const at_manifest *m, at_str name) {
  for (uint32_t i = 0; i < m->num_arrays; i++)
    if (at_str_eq(m->arrays[i].name, name)) return &m->arrays[i];
  return NULL;
}

// ---- Printing
// 16 hexadecimal digits for each block, those of one tile in one string.
static void put_sums(at_json_writer *w, const at_manifest_array *a) {
  static const char digits[] = "0123456789abcdef";
  at_strbuf text = {0};
  at_json_key(w, AT_STR("sums"));
  at_json_begin_array(w);
  for (uint64_t t = 0; t < a->num_tiles; t++) {
    text.len = 0;
    for (uint32_t k = 0; k < a->num_sums; k++)
      for (int shift = 60; shift >= 0; shift -= 4)
        at_strbuf_addc(&text, digits[a->sums[t][k] >> shift & 15]);
    at_json_str(w, at_strbuf_str(&text));
  }
  at_json_end_array(w);
  w->out->failed |= text.failed;
  at_strbuf_free(&text);
}

// One JSON object; the version stands under kKey.
static void print(const at_manifest *m, bool sums, at_strbuf *out) {
  at_json_writer w = {.out = out};
  at_json_begin_object(&w);
  at_json_key(&w, at_str_of(kKey));
  at_json_int(&w, kVersion);
  at_json_put_str(&w, "folder", m->folder);
  at_json_put_str(&w, "about", m->about);
  at_json_key(&w, AT_STR("arrays"));
  at_json_begin_array(&w);
  for (uint32_t i = 0; i < m->num_arrays; i++) {
    const at_manifest_array *a = &m->arrays[i];
    at_json_begin_object(&w);
    at_json_put_str(&w, "name", a->name);
    at_json_put_str(&w, "dtype", at_str_of(at_dtype_of(a->dtype)->text));
    at_json_put_ints(&w, "dims", a->dims.ptr, a->dims.rank);
    at_json_put_ints(&w, "tiles", a->tiles, a->dims.rank);
    if (sums) put_sums(&w, a);
    at_json_end_object(&w);
  }
  at_json_end_array(&w);
  at_json_end_object(&w);
}

void at_manifest_print(const at_manifest *m, at_strbuf *out) {
  print(m, true, out);
}
void at_manifest_summary(const at_manifest *m, at_strbuf *out) {
  print(m, false, out);
}

// ---- Parsing
static at_status damaged(const char *what) {
  return AT_FAIL(AT_DATA_LOSS, "the manifest is damaged: %s", what);
}

// AT_INVALID: no type has that name.
static at_dtype dtype_of(at_str text) {
  for (uint32_t t = AT_INVALID + 1; t < AT_TOKEN; t++)
    if (at_str_eq(text, at_str_of(at_dtype_of((at_dtype)t)->text)))
      return (at_dtype)t;
  return AT_INVALID;
}

// Numbers from `least` on; NULL: it is no such list.
static int64_t *numbers_of(const at_json *j, int64_t least, at_arena *a) {
  if (!j || j->kind != AT_JSON_ARRAY || j->len > AT_MESSAGE_RANK) return NULL;
  int64_t *v = at_new(a, int64_t, j->len + 1);
  for (size_t i = 0; v && i < j->len; i++) {
    if (!j->items[i].is_int || j->items[i].integer < least) return NULL;
    v[i] = j->items[i].integer;
  }
  return v;
}

// dims and tiles, and what follows of them. Sizes are bounded here, so that
// readers need not.
static at_status parse_shape(const at_json *j, at_arena *a,
                             at_manifest_array *out) {
  const at_json *dims = at_json_get(j, "dims"), *cut = at_json_get(j, "tiles");
  int64_t *d = numbers_of(dims, 0, a), *t = numbers_of(cut, 1, a);
  if (!d || !t || dims->len != cut->len) return damaged("dims or tiles");
  out->dims = (at_dims){d, (uint32_t)dims->len};
  out->tiles = t;
  size_t tiles = 1, bytes = at_dtype_bytes(out->dtype), all = bytes;
  for (uint32_t i = 0; i < out->dims.rank; i++) {
    if (d[i] % t[i]) return damaged("tiles of several sizes");
    tiles = at_mul(tiles, (size_t)t[i]);
    bytes = at_mul(bytes, (size_t)(d[i] / t[i]));
    all = at_mul(all, (size_t)d[i]);
  }
  if (tiles > AT_MESSAGE_CHIPS || all >= SIZE_MAX / 2)
    return damaged("an array of that size");
  out->num_tiles = tiles;
  out->tile_bytes = bytes;
  if (bytes / AT_MESSAGE_BLOCK >= UINT32_MAX) return damaged("a tile's size");
  out->num_sums = at_manifest_sums(bytes);
  return AT_OK;
}

// 16 lower-case digits.
static bool parse_sum(const char *text, uint64_t *out) {
  uint64_t v = 0;
  for (int i = 0; i < kSumDigits; i++) {
    char c = text[i];
    if (c >= '0' && c <= '9')
      v = v << 4 | (uint64_t)(c - '0');
    else if (c >= 'a' && c <= 'f')
      v = v << 4 | (uint64_t)(c - 'a' + 10);
    else
      return false;
  }
  *out = v;
  return true;
}

// As many strings as tiles, each as long as its tile has blocks.
static at_status parse_sums(const at_json *j, at_arena *a,
                            at_manifest_array *out) {
  if (!j || j->kind != AT_JSON_ARRAY || j->len != out->num_tiles)
    return damaged("not as many sums as tiles");
  const uint64_t **all = at_new(a, const uint64_t *, j->len);
  if (!all) return at_arena_status(a);
  for (size_t t = 0; t < j->len; t++) {
    at_str text = j->items[t].string;
    if (j->items[t].kind != AT_JSON_STRING ||
        text.len != (size_t)out->num_sums * kSumDigits)
      return damaged("not as many sums as blocks");
    uint64_t *sums = at_new(a, uint64_t, out->num_sums + 1);
    if (!sums) return at_arena_status(a);
    for (uint32_t k = 0; k < out->num_sums; k++)
      if (!parse_sum(text.ptr + (size_t)k * kSumDigits, &sums[k]))
        return damaged("a sum");
    all[t] = sums;
  }
  out->sums = all;
  return AT_OK;
}

static bool is_file(at_str s) {
  return at_message_file_is_good((at_bytes){(const uint8_t *)s.ptr, s.len});
}

// DATA_LOSS says which member is wrong.
static at_status parse_array(const at_json *j, at_arena *a,
                             at_manifest_array *out) {
  out->name = at_json_get_str(j, "name", AT_STR(""));
  out->dtype = dtype_of(at_json_get_str(j, "dtype", AT_STR("")));
  if (!is_file(out->name)) return damaged("an array's name");
  if (!out->dtype) return damaged("an array's dtype");
  AT_TRY(parse_shape(j, a, out));
  return parse_sums(at_json_get(j, "sums"), a, out);
}

// Bad JSON is a damaged file here, not an argument of the caller.
at_status at_manifest_parse(at_bytes text, at_arena *a, at_manifest *out) {
  const at_json *j;
  at_status st = at_json_parse(text, a, &j);
  if (at_status_code(st) == AT_INVALID_ARGUMENT) {
    at_status why = damaged(at_status_message(st));
    return at_status_free(st), why;
  }
  if (st.err) return st;
  int64_t version = at_json_get_int(j, kKey, 0);
  if (version != kVersion)
    return AT_FAIL(AT_FAILED_PRECONDITION,
                   "the manifest is of version %lld, not %d",
                   (long long)version, kVersion);
  const at_json *arrays = at_json_get(j, "arrays");
  *out = (at_manifest){.folder = at_json_get_str(j, "folder", AT_STR("")),
                       .about = at_json_get_str(j, "about", AT_STR(""))};
  if (!arrays || arrays->kind != AT_JSON_ARRAY || !arrays->len ||
      arrays->len > AT_MESSAGE_OBJECT)
    return damaged("arrays");
  if (out->folder.len && !is_file(out->folder)) return damaged("folder");
  at_manifest_array *all = at_new(a, at_manifest_array, arrays->len);
  if (!all) return at_arena_status(a);
  for (size_t i = 0; i < arrays->len; i++)
    AT_TRY(parse_array(&arrays->items[i], a, &all[i]));
  out->num_arrays = (uint32_t)arrays->len;
  out->arrays = all;
  return at_arena_status(a);
}

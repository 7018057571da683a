// The corpus of kernels beside the checkout, for tests: every payload with the
// call that it stood in. Absent: the test is skipped.
#ifndef ATOLL_MOSAIC_MOSAIC_CORPUS_TEST_H_
#define ATOLL_MOSAIC_MOSAIC_CORPUS_TEST_H_

#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/map.h"
#include "mosaic/mosaic.h"

// A kernel of the corpus: where JAX's tests made it, for which chip, and the
// call.
// The name of the file without .bc, the test's name, and the chip's device
// kind.
typedef struct corpus_kernel {
  const char *id, *test, *target;  // "0000e9186806573c", "ops_test.py::…"
  at_mosaic_call call;
} corpus_kernel;

// The unpacked archive. Texts and types live in the arena; payloads borrow from
// `tar`.
typedef struct corpus {
  at_arena *arena;
  // Uncompressed; `files` points into it. malloc'ed.
  char *tar;
  size_t len;
  at_map files;  // path -> at_bytes *
  AT_VEC(corpus_kernel) kernels;
} corpus;

// The files of an archive of shared/facts/pallas, unpacked by xz.
// False: the archive is not there, or nothing came out of it. c must be zero.
// In a tar header the name is at offset 0 and the size, in octal, at 124;
// headers and bodies fill blocks of 512.
static inline bool corpus_open(corpus *c, const char *name) {
  const char *root = getenv("AT_SOURCE_DIR");
  char path[512], command[600];
  snprintf(path, sizeof path, "%s/../shared/facts/pallas/%s", root ? root : ".",
           name);
  FILE *f = fopen(path, "rb");
  if (!f) return false;
  fclose(f);
  snprintf(command, sizeof command, "xz -dc '%s'", path);
  f = popen(command, "r");
  if (!f) return false;
  // Doubled while the pipe brings more.
  size_t cap = 1 << 24, n;
  c->tar = malloc(cap);
  while (c->tar && (n = fread(c->tar + c->len, 1, cap - c->len, f)) > 0) {
    c->len += n;
    if (c->len == cap) c->tar = realloc(c->tar, cap *= 2);
  }
  pclose(f);
  if (!c->tar) return false;
  c->arena = at_arena_create();
  c->files = at_map_in(c->arena);
  for (size_t at = 0; at + 512 <= c->len && c->tar[at];) {
    size_t size = strtoul(c->tar + at + 124, NULL, 8);
    // A header whose size exceeds the archive ends the list: what was read so
    // far counts.
    if (size > c->len - at - 512) break;
    at_bytes *b = at_new(c->arena, at_bytes, 1);
    *b = (at_bytes){(uint8_t *)c->tar + at + 512, size};
    *at_map_put(&c->files, at_str_of(c->tar + at)) = b;
    at += 512 + (size + 511) / 512 * 512;
  }
  return c->files.len > 0;
}

// Frees everything that the kernels borrow from.
// Zero is allowed: nothing was opened.
static inline void corpus_close(corpus *c) {
  at_arena_destroy(c->arena);
  free(c->tar);
}

// "float32[8,128]", "int32<smem>[8]", "~int32[]".
// A type as JAX prints it; symbolic sizes are AT_DYN, an unknown element is
// INVALID.
static inline at_type corpus_type(at_arena *a, at_str s) {
  // The types that JAX's tests make kernels of.
  static const struct {
    const char *name;
    at_dtype t;
  } names[] = {{"bool", AT_PRED},
               {"int2", AT_S2},
               {"int4", AT_S4},
               {"int8", AT_S8},
               {"int16", AT_S16},
               {"int32", AT_S32},
               {"int64", AT_S64},
               {"uint2", AT_U2},
               {"uint4", AT_U4},
               {"uint8", AT_U8},
               {"uint16", AT_U16},
               {"uint32", AT_U32},
               {"uint64", AT_U64},
               {"float8_e4m3b11fnuz", AT_F8E4M3B11FNUZ},
               {"float8_e4m3fn", AT_F8E4M3FN},
               {"float8_e5m2", AT_F8E5M2},
               {"bfloat16", AT_BF16},
               {"float16", AT_F16},
               {"float32", AT_F32},
               {"float64", AT_F64}};
  at_type t = {0};
  // A tilde marks a weak type, which makes no difference to a kernel.
  if (s.len && *s.ptr == '~') s.ptr++, s.len--;
  size_t n = 0;
  // A memory space stands between the element and the dimensions.
  while (n < s.len && s.ptr[n] != '[' && s.ptr[n] != '<') n++;
  for (size_t i = 0; i < AT_LEN(names); i++)
    if (at_str_is((at_str){s.ptr, n}, names[i].name)) t.dtype = names[i].t;
  while (n < s.len && s.ptr[n] != '[') n++;
  // Rank 16 is more than any kernel of the corpus has.
  int64_t *dims = at_new(a, int64_t, 16);
  for (n++; n < s.len && s.ptr[n] != ']' && t.rank < 16;) {
    char *end;
    dims[t.rank++] = strtoll(s.ptr + n, &end, 10);
    if (end == s.ptr + n || (*end != ',' && *end != ']'))  // symbolic
      dims[t.rank - 1] = AT_DYN;
    while (*end && *end != ',' && *end != ']') end++;
    n = (size_t)(end - s.ptr) + (*end == ',');
  }
  t.dims = dims;
  return t;
}

// The types of a list, in the arena.
// v: a list of texts; n: its length.
static inline const at_type *corpus_types(at_arena *a, const at_json *v,
                                          uint32_t *n) {
  *n = (uint32_t)v->len;
  at_type *t = at_new(a, at_type, v->len + 1);
  for (size_t i = 0; i < v->len; i++) t[i] = corpus_type(a, v->items[i].string);
  return t;
}

// The kernels that an index describes: dev/index.jsonl.
// Fills c->kernels in the order of the index. False: it is not in the archive,
// or a kernel that it names is not.
static inline bool corpus_index(corpus *c) {
  void **slot = at_map_find(&c->files, AT_STR("dev/index.jsonl"));
  if (!slot) return false;
  at_bytes all = *(at_bytes *)*slot;
  for (size_t i = 0; i < all.len;) {
    const uint8_t *end = memchr(all.ptr + i, '\n', all.len - i);
    size_t n = end ? (size_t)(end - all.ptr) - i : all.len - i;
    const at_json *j;
    at_status s = at_json_parse((at_bytes){all.ptr + i, n}, c->arena, &j);
    i += n + 1;
    if (!at_ok(s)) return at_status_free(s), false;
    corpus_kernel k = {0};
    at_str id = at_json_get_str(j, "sha", AT_STR(""));
    // One line a kernel; a last line may lack its end.
    char *path = at_arena_printf(c->arena, "dev/%.*s.bc", (int)id.len, id.ptr);
    void **file = at_map_find(&c->files, at_str_of(path));
    if (!file) return false;
    k.id = id.ptr;
    k.test = at_json_get_str(j, "test", AT_STR("")).ptr;
    k.target = at_json_get_str(j, "kind", AT_STR("")).ptr;
    k.call.payload = *(at_bytes *)*file;
    k.call.name = at_json_get_str(j, "kernel", AT_STR(""));
    k.call.operands =
        corpus_types(c->arena, at_json_get(j, "ins"), &k.call.num_operands);
    k.call.results =
        corpus_types(c->arena, at_json_get(j, "outs"), &k.call.num_results);
    // The configuration as a text again, as it stands in the call.
    at_strbuf text = {0};
    at_json_writer w = {&text, false};
    at_json_value(&w, at_json_get(j, "cfg"));
    k.call.config = at_str_of(at_arena_str(c->arena, at_strbuf_str(&text)));
    at_strbuf_free(&text);
    // Pairs of the operand's and the result's index.
    const at_json *al = at_json_get(j, "aliases");
    at_mosaic_alias *aliases = at_new(c->arena, at_mosaic_alias, al->len + 1);
    for (size_t x = 0; x < al->len; x++)
      aliases[x] = (at_mosaic_alias){(uint32_t)al->items[x].items[0].integer,
                                     (uint32_t)al->items[x].items[1].integer};
    k.call.aliases = aliases;
    k.call.num_aliases = (uint32_t)al->len;
    if (!at_vec_push(c->arena, &c->kernels, k)) return false;
  }
  return true;
}

#endif

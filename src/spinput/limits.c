#include "spinput/limits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

static const char kFormat[] = "atoll sparsecore limits 1";
// Far more than any list of tables takes.
enum { kMostBytes = 64 << 20 };

// A limit of 0, of a table that no id asked for, counts as 1.
static at_status read_limit(at_str table, const at_json *o, const char *key,
                            int64_t *out) {
  const at_json *v = at_json_get(o, key);
  if (!v || v->kind != AT_JSON_NUMBER || !v->is_int || v->integer < 0 ||
      v->integer > INT32_MAX)
    return AT_FAIL(AT_INVALID_ARGUMENT, "table '%.*s' has no %s",
                   (int)AT_MIN(table.len, (size_t)256), table.ptr, key);
  *out = AT_MAX(v->integer, (int64_t)1);
  return AT_OK;
}

// Table names borrow from the arena, like everything else of the JSON.
at_status at_spinput_limits_parse(at_bytes text, at_arena *a,
                                  at_spinput_limits *out) {
  const at_json *o;
  *out = (at_spinput_limits){0};
  AT_TRY(at_json_parse(text, a, &o));
  if (!at_str_is(at_json_get_str(o, "format", AT_STR("")), kFormat))
    return AT_FAIL(AT_INVALID_ARGUMENT, "its format is not '%s'", kFormat);
  const at_json *tables = at_json_get(o, "tables");
  if (!tables || tables->kind != AT_JSON_OBJECT)
    return AT_FAIL(AT_INVALID_ARGUMENT, "it has no tables");
  at_spinput_limit *list;
  AT_TRY_ALLOC(list, at_new(a, at_spinput_limit, tables->len + 1));
  for (size_t i = 0; i < tables->len; i++) {
    at_spinput_limit *l = &list[i];
    l->table = tables->keys[i];
    AT_TRY(read_limit(l->table, &tables->items[i], "max_ids_per_partition",
                      &l->max_ids));
    AT_TRY(read_limit(l->table, &tables->items[i],
                      "max_unique_ids_per_partition", &l->max_unique));
  }
  *out = (at_spinput_limits){list, (uint32_t)tables->len};
  return AT_OK;
}

// The file may be a pipe: its length is not asked for. 64 MiB at most.
static at_status read_all(FILE *f, at_arena *a, at_bytes *out) {
  size_t have = 0, room = 1 << 16;
  uint8_t *text = NULL;
  for (;;) {
    uint8_t *more;
    AT_TRY_ALLOC(more, at_arena_alloc(a, room, 1));
    if (have) memcpy(more, text, have);
    text = more;
    // A short read ends the file, or is an error, which is looked at below.
    have += fread(text + have, 1, room - have, f);
    if (have < room) break;
    if (room >= kMostBytes)
      return AT_FAIL(AT_INVALID_ARGUMENT, "it is larger than %d MiB",
                     kMostBytes >> 20);
    room *= 4;
  }
  if (ferror(f)) return AT_FAIL(AT_UNAVAILABLE, "it does not read");
  *out = (at_bytes){text, have};
  return AT_OK;
}

// Closes the file before it is parsed.
at_status at_spinput_limits_load(const char *path, bool made_later, at_arena *a,
                                 at_spinput_limits *out) {
  *out = (at_spinput_limits){0};
  FILE *f = fopen(path, "re");
  if (!f && errno == ENOENT && made_later) return AT_OK;
  if (!f)
    return AT_FAIL(AT_INVALID_ARGUMENT, "xla_sparse_core_max_ids_file %s: %s",
                   path, strerror(errno));
  at_bytes text;
  at_status st = read_all(f, a, &text);
  fclose(f);
  if (at_ok(st)) st = at_spinput_limits_parse(text, a, out);
  return st.err ? at_status_prefix(st, "xla_sparse_core_max_ids_file %s", path)
                : st;
}

// Is the key of one of the argument's subscripts the table?
static bool has_key(at_str name, at_str table) {
  for (size_t i = 1; i + table.len < name.len; i++) {
    char quote = name.ptr[i - 1];
    if ((quote == '\'' || quote == '"') && name.ptr[i + table.len] == quote &&
        !memcmp(name.ptr + i, table.ptr, table.len))
      return true;
  }
  return false;
}

// The name itself first, so that a stack called like another's key is found.
const at_spinput_limit *at_spinput_limits_of(const at_spinput_limits *l,
                                             at_str table) {
  for (uint32_t i = 0; i < l->count; i++)
    if (at_str_eq(l->ptr[i].table, table)) return &l->ptr[i];
  for (uint32_t i = 0; i < l->count; i++)
    if (has_key(table, l->ptr[i].table)) return &l->ptr[i];
  return NULL;
}

// Requests of a debugger: lines of JSON from outside, read into structs whose
// numbers are in range.
#include "base/json.h"
#include "device/core_debug.h"

// The index of the word that a member is.
static at_status find_word(const at_json *o, const char *key,
                           const char *const *words, int n, int *out) {
  at_str s = at_json_get_str(o, key, AT_STR(""));
  for (*out = 0; *out < n; ++*out)
    if (at_str_is(s, words[*out])) return AT_OK;
  return AT_FAIL(AT_INVALID_ARGUMENT, "no such %s: '%.*s'", key,
                 (int)AT_MIN(s.len, (size_t)40), s.ptr);
}

// Absent: the fallback, which must be in range, too.
static at_status find_number(const at_json *o, const char *key, int64_t least,
                             int64_t most, int64_t fallback, int64_t *out) {
  *out = at_json_get_int(o, key, fallback);
  if (*out < least || *out > most)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "%s is %lld, which is not in %lld..%lld", key,
                   (long long)*out, (long long)least, (long long)most);
  return AT_OK;
}

// Integers of a list; there may be none.
static at_status find_list(const at_json *o, const char *key, int64_t least,
                           int64_t *out, uint32_t *n) {
  const at_json *list = at_json_get(o, key);
  *n = 0;
  if (!list) return AT_OK;
  if (list->kind != AT_JSON_ARRAY || list->len > AT_CORE_MAX_RANK)
    return AT_FAIL(AT_INVALID_ARGUMENT, "%s is no list of up to %d numbers",
                   key, AT_CORE_MAX_RANK);
  for (size_t i = 0; i < list->len; i++) {
    const at_json *v = &list->items[i];
    if (v->kind != AT_JSON_NUMBER || !v->is_int || v->integer < least ||
        v->integer > INT32_MAX)
      return AT_FAIL(AT_INVALID_ARGUMENT, "%s has an element out of range",
                     key);
    out[(*n)++] = v->integer;
  }
  return AT_OK;
}

// Lists of equal length; none means the whole ref.
static at_status read_box(const at_json *o, debug_box *b) {
  int64_t core, ref;
  uint32_t counts, steps;
  AT_TRY(find_number(o, "core", 0, UINT32_MAX, 0, &core));
  AT_TRY(find_number(o, "ref", 0, INT32_MAX, 0, &ref));
  AT_TRY(find_list(o, "start", 0, b->start, &b->rank));
  AT_TRY(find_list(o, "count", 0, b->count, &counts));
  AT_TRY(find_list(o, "step", INT32_MIN, b->step, &steps));
  if (counts != b->rank || steps != b->rank)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "start, count and step differ in their lengths");
  b->core = (uint32_t)core;
  b->ref = (uint32_t)ref;
  const at_json *array = at_json_get(o, "array");
  b->array = array && array->kind == AT_JSON_BOOL && array->boolean;
  return AT_OK;
}

static at_status take_text(const at_json *o, const char *key, at_arena *a,
                           const char **out) {
  AT_TRY_ALLOC(*out, at_arena_str(a, at_json_get_str(o, key, AT_STR(""))));
  return AT_OK;
}

// A line without `last` is that line alone.
static at_status read_break(const at_json *o, at_arena *a, debug_break *b) {
  static const char *const kinds[DEBUG_BREAK_COUNT] = {"line", "grid", "kernel",
                                                       "change"};
  int kind;
  int64_t line, last;
  AT_TRY(find_word(o, "kind", kinds, DEBUG_BREAK_COUNT, &kind));
  b->kind = (debug_break_kind)kind;
  AT_TRY(find_number(o, "id", 0, INT32_MAX, 0, &b->id));
  AT_TRY(find_number(o, "line", 0, INT32_MAX, 0, &line));
  AT_TRY(find_number(o, "last", line, INT32_MAX, line, &last));
  b->line = (uint32_t)line;
  b->last = (uint32_t)last;
  AT_TRY(take_text(o, "file", a, &b->file));
  AT_TRY(take_text(o, "kernel", a, &b->kernel));
  AT_TRY(find_list(o, "grid", -1, b->grid, &b->rank));
  return read_box(o, &b->box);
}

static at_status read_breaks(const at_json *o, at_arena *a,
                             debug_request *out) {
  const at_json *list = at_json_get(o, "breaks");
  if (!list || list->kind != AT_JSON_ARRAY || list->len > DEBUG_MOST_BREAKS)
    return AT_FAIL(AT_INVALID_ARGUMENT, "no list of up to %d breakpoints",
                   DEBUG_MOST_BREAKS);
  AT_TRY_ALLOC(out->breaks, at_new(a, debug_break, list->len + 1));
  for (size_t i = 0; i < list->len; i++)
    AT_TRY(read_break(&list->items[i], a, &out->breaks[out->num_breaks++]));
  return AT_OK;
}

// Members that the request does not need are not looked at.
at_status debug_read_request(at_bytes line, at_arena *a, debug_request *out) {
  static const char *const asks[DEBUG_ASK_COUNT] = {"breaks", "state", "read",
                                                    "go", "interrupt"};
  static const char *const modes[DEBUG_MODE_COUNT] = {"run", "step", "next",
                                                      "finish", "grid"};
  const at_json *o;
  int ask, mode;
  *out = (debug_request){0};
  AT_TRY(at_json_parse(line, a, &o));
  AT_TRY(find_word(o, "do", asks, DEBUG_ASK_COUNT, &ask));
  out->ask = (debug_ask)ask;
  if (out->ask == DEBUG_ASK_BREAKS) return read_breaks(o, a, out);
  if (out->ask == DEBUG_ASK_READ || out->ask == DEBUG_ASK_GO)
    AT_TRY(read_box(o, &out->box));
  if (out->ask != DEBUG_ASK_GO) return AT_OK;
  AT_TRY(find_word(o, "mode", modes, DEBUG_MODE_COUNT, &mode));
  out->mode = (debug_mode)mode;
  int64_t first, last;
  AT_TRY(take_text(o, "file", a, &out->file));
  AT_TRY(find_number(o, "first", 0, INT32_MAX, 0, &first));
  AT_TRY(find_number(o, "last", first, INT32_MAX, first, &last));
  out->first_line = (uint32_t)first;
  out->last_line = (uint32_t)last;
  return AT_OK;
}

#include "machine/machine.h"

#include <math.h>
#include <strings.h>

#include "base/log.h"
#include "base/once.h"

enum { kMaxMachines = 64 };

extern const at_bytes at_machine_files[];
extern const char *const at_machine_files_names[];
extern const size_t at_machine_files_count;

static at_once g_once = AT_ONCE_INIT;
static at_machine g_machines[kMaxMachines];
static size_t g_count;

// The platforms that descriptions may name.
static bool is_platform(at_str p) {
  return at_str_is(p, "tpu") || at_str_is(p, "gpu") || at_str_is(p, "ipu") ||
         at_str_is(p, "host");
}

// ---- What figures there are
// One line of figures.def.
typedef struct row {
  const char *name,
      *needed;  // platforms by first letter; USE, OPTIONAL: of none
  at_json_kind kind;
} row;

#define USE ""
#define OPTIONAL ""
#define NUMBER AT_JSON_NUMBER
#define TEXT AT_JSON_STRING
static const row g_rows[] = {
#define AT_FIGURE(name, kind, needed, doc) {#name, needed, kind},
#include "machine/figures.def"
#undef AT_FIGURE
};
#undef USE
#undef OPTIONAL
#undef NUMBER
#undef TEXT

// NULL: the table does not know the figure.
static const row *row_of(at_str name) {
  for (size_t i = 0; i < AT_LEN(g_rows); i++)
    if (at_str_is(name, g_rows[i].name)) return &g_rows[i];
  return NULL;
}

// Looks at the table for what is missing, and at the description for what
// nothing reads, such as a misspelt name. Both lists go into one message.
at_status at_machine_complete(const at_machine *m) {
  at_strbuf missing = {0}, unknown = {0};
  for (size_t i = 0; i < AT_LEN(g_rows); i++)
    if (strchr(g_rows[i].needed, *m->platform) &&
        !at_json_get(m->tree, g_rows[i].name))
      at_strbuf_addf(&missing, "%s%s", missing.len ? ", " : "", g_rows[i].name);
  for (size_t i = 0; i < m->tree->len; i++) {
    at_str key = m->tree->keys[i];
    if (m->tree->items[i].kind == AT_JSON_OBJECT && !row_of(key))
      at_strbuf_addf(&unknown, "%s%.*s", unknown.len ? ", " : "",
                     (int)AT_MIN(key.len, (size_t)64), key.ptr);
  }
  at_status st = at_strbuf_status(&missing);
  if (at_ok(st)) st = at_strbuf_status(&unknown);
  if (at_ok(st) && missing.len)
    st = AT_FAIL(AT_FAILED_PRECONDITION,
                 "the description of %s does not say %.*s%s%.*s", m->name,
                 (int)missing.len, missing.ptr,
                 unknown.len ? ", and nothing reads its " : "",
                 (int)unknown.len, unknown.ptr ? unknown.ptr : "");
  else if (at_ok(st) && unknown.len)
    st = AT_FAIL(AT_FAILED_PRECONDITION,
                 "the description of %s says what nothing reads: %.*s", m->name,
                 (int)unknown.len, unknown.ptr);
  at_strbuf_free(&missing), at_strbuf_free(&unknown);
  return st;
}

// ---- Reading
static at_status check_figure(at_str name, const at_json *v) {
  const row *known = row_of(name);
  const at_json *value = at_json_get(v, "value");
  bool number = value && value->kind == AT_JSON_NUMBER &&
                isfinite(value->number) && value->number >= 0;
  if (!number && !(value && value->kind == AT_JSON_STRING))
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "machine description: \"%.*s\" has no value\nhint: "
                   "{\"value\": a number "
                   "that is not negative, or a text, \"source\": who says so}",
                   (int)AT_MIN(name.len, (size_t)64), name.ptr);
  if (known && value->kind != known->kind)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "machine description: \"%s\" is not a %s", known->name,
                   known->kind == AT_JSON_NUMBER ? "number" : "text");
  if (!at_json_get_str(v, "source", AT_STR("")).len)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "machine description: \"%.*s\" has no source",
                   (int)AT_MIN(name.len, (size_t)64), name.ptr);
  return AT_OK;
}

// A list of texts that are not empty.
static at_status check_aliases(const at_json *v) {
  bool good = v->kind == AT_JSON_ARRAY;
  for (size_t i = 0; good && i < v->len; i++)
    good = v->items[i].kind == AT_JSON_STRING && v->items[i].string.len > 0;
  return good ? AT_OK
              : AT_FAIL(
                    AT_INVALID_ARGUMENT,
                    "machine description: \"aliases\" is not a list of names");
}

// Every member that is not name, platform or aliases has to be a figure.
static at_status check_tree(const at_json *j) {
  if (j->kind != AT_JSON_OBJECT)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "machine description: not a JSON object");
  at_str name = at_json_get_str(j, "name", AT_STR(""));
  if (!name.len || name.len > 63 || memchr(name.ptr, 0, name.len))
    return AT_FAIL(
        AT_INVALID_ARGUMENT,
        "machine description: \"name\" is not a text of 1 to 63 bytes");
  if (!is_platform(at_json_get_str(j, "platform", AT_STR(""))))
    return AT_FAIL(
        AT_INVALID_ARGUMENT,
        "machine description %.*s: \"platform\" is not tpu, gpu, ipu or host",
        (int)name.len, name.ptr);
  for (size_t i = 0; i < j->len; i++) {
    at_str key = j->keys[i];
    if (at_str_is(key, "name") || at_str_is(key, "platform")) continue;
    AT_TRY(at_str_is(key, "aliases") ? check_aliases(&j->items[i])
                                     : check_figure(key, &j->items[i]));
  }
  return AT_OK;
}

// The name and the platform are copied so that they end in a zero byte; figures
// stay in the tree, where they are looked up by name.
at_status at_machine_read(at_bytes text, at_arena *a, at_machine *out) {
  const at_json *j;
  AT_TRY(at_status_prefix(at_json_parse(text, a, &j), "machine description"));
  AT_TRY(check_tree(j));
  const char *name, *platform;
  AT_TRY_ALLOC(name, at_arena_str(a, at_json_get_str(j, "name", AT_STR(""))));
  AT_TRY_ALLOC(platform,
               at_arena_str(a, at_json_get_str(j, "platform", AT_STR(""))));
  *out = (at_machine){name, platform, j};
  return AT_OK;
}

// Reads the built-in files once. A file that is refused is logged and left out;
// want of memory is reported, and at_once lets the next call try again.
static at_status load(void) {
  // Lives as long as the process: callers borrow from it.
  static at_arena *arena;
  AT_TRY_ALLOC(arena, at_arena_create());
  size_t n = 0;
  for (size_t i = 0; i < at_machine_files_count && n < kMaxMachines; i++) {
    at_status st = at_machine_read(at_machine_files[i], arena, &g_machines[n]);
    if (at_ok(st)) st = at_machine_complete(&g_machines[n]);
    if (at_status_code(st) == AT_RESOURCE_EXHAUSTED) {
      at_arena_destroy(arena);
      return st;
    }
    if (at_ok(st))
      n++;
    else
      at_log(AT_LOG_ERROR, "data/hw/%s: %s", at_machine_files_names[i],
             at_status_message(st));
    at_status_free(st);
  }
  g_count = n;
  return AT_OK;
}

// Threads that call at once wait for the one that reads.
at_status at_machines_load(void) { return at_once_do(&g_once, load); }

// Loads the descriptions on the first call; a failure is not reported here, and
// the next call tries again.
size_t at_machine_count(void) {
  at_status_free(at_machines_load());
  return g_count;
}

// The order is that of the files, which the build sorts by name.
const at_machine *at_machine_at(size_t i) {
  return i < at_machine_count() ? &g_machines[i] : NULL;
}

// Equal but for the case of ASCII letters.
static bool same_name(at_str a, at_str b) {
  return a.len == b.len && (!a.len || strncasecmp(a.ptr, b.ptr, a.len) == 0);
}

// The order does not matter: names, kinds and aliases of all machines differ.
bool at_machine_answers_to(const at_machine *m, at_str name) {
  at_figure kind;
  if (same_name(name, at_str_of(m->name))) return true;
  if (name.len && at_machine_figure(m, "device_kind", &kind) &&
      same_name(name, kind.text))
    return true;
  const at_json *aliases = at_json_get(m->tree, "aliases");
  for (size_t k = 0; aliases && k < aliases->len; k++)
    if (same_name(aliases->items[k].string, name)) return true;
  return false;
}

// A handful of machines, asked for once or twice per program: no index.
at_status at_machine_find(at_str name, const at_machine **out) {
  AT_TRY(at_machines_load());
  size_t n = g_count;
  at_strbuf known = {0};
  for (size_t i = 0; i < n; i++) {
    if (at_machine_answers_to(&g_machines[i], name)) {
      at_strbuf_free(&known);
      *out = &g_machines[i];
      return AT_OK;
    }
    at_strbuf_addf(&known, "%s%s", i ? ", " : "", g_machines[i].name);
  }
  at_status s = AT_FAIL(
      AT_INVALID_ARGUMENT, "no such machine: \"%.*s\"\nhint: one of %s",
      (int)AT_MIN(name.len, (size_t)64), name.ptr, at_strbuf_str(&known).ptr);
  at_strbuf_free(&known);
  return s;
}

// *out borrows its texts from the description.
bool at_machine_figure(const at_machine *m, const char *name, at_figure *out) {
  *out = (at_figure){.text = AT_STR(""), .source = AT_STR("")};
  const at_json *f = at_json_get(m->tree, name), *v = at_json_get(f, "value");
  if (!v) return false;
  if (v->kind == AT_JSON_NUMBER) out->value = v->number;
  if (v->kind == AT_JSON_STRING) out->text = v->string;
  out->source = at_json_get_str(f, "source", AT_STR(""));
  return true;
}

// For figures whose absence has a meaning of its own, which figures.def states.
double at_machine_number(const at_machine *m, const char *name, double absent) {
  return at_json_get_num(at_json_get(m->tree, name), "value", absent);
}

// An absent figure and one of 0 are the same to who divides by it.
at_status at_machine_need(const at_machine *m, const char *name, double *out) {
  double v = at_machine_number(m, name, 0);
  if (!(v > 0))
    return AT_FAIL(AT_FAILED_PRECONDITION,
                   "the description of %s does not say %s\nhint: nobody "
                   "published it; give a "
                   "description of your own with that figure",
                   m->name, name);
  *out = v;
  return AT_OK;
}

// NaN spreads to every estimate that uses it, so a missing coefficient cannot
// pass for a small one.
double at_coefficient(const at_json *rows, const char *name, const char *file) {
  double v = at_json_get_num(at_json_get(rows, name), "value", NAN);
  if (isnan(v))
    at_log_once(AT_LOG_ERROR,
                "%s has no \"%s\": estimates that need it are NaN", file, name);
  return v;
}

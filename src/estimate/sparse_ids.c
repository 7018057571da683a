// How many ids a sample has, and how many of them are different rows: what the
// user says, measured or assumed.
#include <math.h>
#include <stdlib.h>

#include "base/json.h"
#include "estimate/sparse.h"

static const double g_unsaid = -1;

// Fields of a JSON entry, which text names as well, and their ranges.
static const struct {
  const char *key;
  size_t offset;
  double least, most;
} g_fields[] = {
    {"ids_per_sample", offsetof(at_est_ids, per_sample), 0, 1e6},
    {"unique", offsetof(at_est_ids, unique), 0, 1},
    {"shared", offsetof(at_est_ids, shared), 0, 1},
    {"zipf", offsetof(at_est_ids, zipf), 0, 16},
};

static double *field(at_est_ids *x, size_t i) {
  return (double *)((char *)x + g_fields[i].offset);
}

// INVALID_ARGUMENT: unknown, or out of its range; NaN is out of every range.
static at_status set(at_est_ids *x, at_str key, double v) {
  for (size_t i = 0; i < AT_LEN(g_fields); i++) {
    if (!at_str_is(key, g_fields[i].key)) continue;
    if (!(v >= g_fields[i].least && v <= g_fields[i].most))
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "lookups: %s must be from %g to %g, got %g",
                     g_fields[i].key, g_fields[i].least, g_fields[i].most, v);
    *field(x, i) = v;
    return AT_OK;
  }
  return AT_FAIL(AT_INVALID_ARGUMENT,
                 "lookups: unknown '%.*s'\nhint: ids_per_sample, unique, "
                 "shared and zipf are known",
                 (int)AT_MIN(key.len, (size_t)40), key.ptr);
}

// The number of ids is needed; unique and zipf exclude each other.
static at_status check(const at_est_ids *x) {
  if (x->per_sample < 0)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "lookups: ids_per_sample is missing for '%.*s'",
                   (int)x->stack.len, x->stack.ptr);
  if (x->zipf >= 0 && x->unique >= 0)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "lookups: '%.*s' has both unique and zipf",
                   (int)x->stack.len, x->stack.ptr);
  return AT_OK;
}

// An entry in which nothing is said yet.
static at_est_ids unsaid(at_str stack) {
  at_est_ids x = {.stack = stack};
  for (size_t i = 0; i < AT_LEN(g_fields); i++) *field(&x, i) = g_unsaid;
  return x;
}

// An entry for each member of the object.
static at_status read_json(at_bytes text, at_arena *a, at_est_ids_spec *out) {
  const at_json *o;
  AT_TRY(at_json_parse(text, a, &o));
  if (o->kind != AT_JSON_OBJECT || !o->len)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "lookups: an object with an entry for each stack is wanted");
  at_est_ids *list;
  AT_TRY_ALLOC(list, at_new(a, at_est_ids, o->len));
  for (size_t i = 0; i < o->len; i++) {
    list[i] = unsaid(o->keys[i]);
    const at_json *of = &o->items[i];
    for (size_t k = 0; k < of->len && of->kind == AT_JSON_OBJECT; k++)
      AT_TRY(set(&list[i], of->keys[k],
                 of->items[k].kind == AT_JSON_NUMBER ? of->items[k].number
                                                     : (double)NAN));
    AT_TRY(check(&list[i]));
  }
  *out = (at_est_ids_spec){list, (uint32_t)o->len};
  return AT_OK;
}

// "16", "16,zipf=1.05", "ids_per_sample=16,unique=0.4".
static at_status read_text(at_str text, at_arena *a, at_est_ids_spec *out) {
  at_est_ids *x;
  AT_TRY_ALLOC(x, at_new(a, at_est_ids, 1));
  *x = unsaid(AT_STR("*"));
  const char *at = at_arena_str(a, text);
  if (!at) return AT_NO_MEMORY("lookups");
  while (*at) {
    size_t n = strcspn(at, ",="), whole = strcspn(at, ",");
    at_str key = {at, n};
    const char *number = at;
    char *end;
    if (at[n] == '=')
      number = at + n + 1;
    else
      key = AT_STR("ids_per_sample");
    double v = strtod(number, &end);
    if (end == number || end != at + whole)
      return AT_FAIL(AT_INVALID_ARGUMENT, "lookups: '%.*s' has no number",
                     (int)AT_MIN(whole, (size_t)40), at);
    AT_TRY(set(x, key, v));
    at += whole + (at[whole] == ',');
  }
  AT_TRY(check(x));
  *out = (at_est_ids_spec){x, 1};
  return AT_OK;
}

// An object begins with a brace; all else is text.
at_status at_estimate_lookups(at_bytes text, at_arena *a,
                              const at_est_ids_spec **out) {
  at_est_ids_spec *s;
  AT_TRY_ALLOC(s, at_new(a, at_est_ids_spec, 1));
  at_str t = {(const char *)text.ptr, text.len};
  while (t.len && (*t.ptr == ' ' || *t.ptr == '\n')) t.ptr++, t.len--;
  AT_TRY(t.len && *t.ptr == '{' ? read_json(text, a, s) : read_text(t, a, s));
  *out = s;
  return AT_OK;
}

// The stack's own entry goes before "*".
const at_est_ids *at_est_ids_of(const at_est_ids_spec *s, at_str stack) {
  const at_est_ids *any = NULL;
  for (uint32_t i = 0; s && i < s->num; i++) {
    if (at_str_eq(s->list[i].stack, stack)) return &s->list[i];
    if (at_str_is(s->list[i].stack, "*")) any = &s->list[i];
  }
  return any;
}

// ---- Different rows among many draws
// Ranks are summed one by one up to here, and in strides of this share beyond.
static const double g_single = 1024, g_stride = .01;

// `count` ranks from `first` on, which count as the middle one.
typedef struct ranks {
  double first, count, middle;
} ranks;

// The next ranks after `r`, of `rows` in all.
static ranks next_ranks(double r, double rows) {
  double count = r <= g_single ? 1 : ceil(r * g_stride);
  if (r + count - 1 > rows) count = rows - r + 1;
  return (ranks){r, count, r + (count - 1) / 2};
}

// Two passes: the sum of the weights, then of 1 - exp(-draws * weight / sum),
// the chance that a row is drawn.
double at_est_distinct(double rows, double draws, double zipf) {
  rows = floor(rows);
  if (rows < 1 || draws <= 0) return 0;
  double sum = 0, distinct = 0;
  if (zipf <= 0) return rows * -expm1(-draws / rows);
  for (double r = 1; r <= rows;) {
    ranks k = next_ranks(r, rows);
    sum += k.count * pow(k.middle, -zipf);
    r += k.count;
  }
  for (double r = 1; r <= rows;) {
    ranks k = next_ranks(r, rows);
    distinct += k.count * -expm1(-draws * pow(k.middle, -zipf) / sum);
    r += k.count;
  }
  AT_ASSERT(!(distinct > rows * (1 + 1e-6)));
  return fmin(distinct, draws);
}

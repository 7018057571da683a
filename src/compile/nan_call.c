// What the custom calls of ATOLL_CHECK=nan do when the program runs.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "compile/compile.h"
#include "hlo/hlo.h"

// Of a site, in the record.
enum { RUNS, HELD, ORIGIN_RUN, ORIGIN_ORDER };

typedef struct array {
  const uint8_t *data;
  at_dtype dtype;
  uint64_t count;
} array;

// Is element i, or either part of a complex one?
static bool is_nan(const array *a, uint64_t i) {
  at_dtype real = at_real_of(a->dtype);
  const uint8_t *p = a->data + i * at_dtype_bytes(a->dtype);
  return isnan(at_load_float(real, p)) ||
         (real != a->dtype &&
          isnan(at_load_float(real, p + at_dtype_bytes(real))));
}

static bool has_nan(const array *a) {
  for (uint64_t i = 0; i < a->count; i++)
    if (is_nan(a, i)) return true;
  return false;
}

// A decimal number and the ':' or ' ' behind it.
static uint64_t number(const char **p) {
  char *end;
  uint64_t v = strtoull(*p, &end, 10);
  *p = end + (*end == ':' || *end == ' ');
  return v;
}

// n arrays "dtype:count" over data[n]. *out: free() it, also on failure.
static at_status read_arrays(const char **p, const void *const *data,
                             uint32_t n, array **out) {
  *out = calloc(n + 1, sizeof **out);
  if (!*out) return AT_NO_MEMORY("arrays to watch");
  for (uint32_t i = 0; i < n; i++) {
    at_dtype t = (at_dtype)number(p);
    (*out)[i] = (array){data[i], t, number(p)};
  }
  return AT_OK;
}

// Is there an element of r that is NaN where no operand's is?
static bool is_origin(const array *r, const array *operands, uint32_t n,
                      bool elementwise) {
  if (!elementwise) {
    for (uint32_t o = 0; o < n; o++)
      if (has_nan(&operands[o])) return false;
    return true;
  }
  for (uint64_t i = 0; i < r->count; i++) {
    bool given = false;
    if (!is_nan(r, i)) continue;
    for (uint32_t o = 0; o < n; o++)
      given |= is_nan(&operands[o], operands[o].count == r->count ? i : 0);
    if (!given) return true;
  }
  return false;
}

// "SITE ELEMENTWISE RESULTS dtype:count...": the record, results, operands.
static at_status watch(const char *p, const void *const *args, uint32_t n) {
  uint32_t *record = (uint32_t *)(uintptr_t)args[0];
  uint64_t site = number(&p);
  bool elementwise = number(&p);
  uint32_t results = (uint32_t)number(&p);
  uint32_t *at = record + AT_NAN_HEAD + AT_NAN_WORDS * site;
  array *a;
  AT_TRY(read_arrays(&p, args + 1, n - 1, &a));
  at[RUNS]++;
  for (uint32_t r = 0; r < results; r++) {
    if (!has_nan(&a[r])) continue;
    at[HELD] = 1;
    if (at[ORIGIN_RUN] ||
        !is_origin(&a[r], a + results, n - 1 - results, elementwise))
      continue;
    at[ORIGIN_RUN] = at[RUNS];
    at[ORIGIN_ORDER] = ++record[0];
  }
  free(a);
  return AT_OK;
}

// ---- The end
typedef struct ending {
  const char **sites;    // "op\tplace"
  const char **sources;  // of values: site + 1, then values
  uint32_t *list;        // values to follow
  bool *seen;
} ending;

// Where each site's and each value's line begins in the text, which stays the
// caller's. INTERNAL: lines are missing.
static at_status read_lines(const char *p, uint64_t sites, uint64_t values,
                            ending *e) {
  *e = (ending){
      calloc(sites + 1, sizeof(char *)), calloc(values + 1, sizeof(char *)),
      calloc(values + 1, sizeof(uint32_t)), calloc(values + 1, sizeof(bool))};
  if (!e->sites || !e->sources || !e->list || !e->seen)
    return AT_NO_MEMORY("the way of a NaN");
  p = strchr(p, '\n');
  for (uint64_t i = 0; p && i < sites; i++)
    e->sites[i] = p + 1, p = strchr(p + 1, '\n');
  for (uint64_t i = 0; p && i < values; i++)
    e->sources[i] = p + 1, p = strchr(p + 1, '\n');
  AT_ENSURE(p);
  return AT_OK;
}

// The site that first made one, of those from which it came to the value; -1:
// none.
static int64_t follow(ending *e, const uint32_t *record, uint32_t value) {
  int64_t best = -1;
  uint32_t len = 0, order = UINT32_MAX;
  e->list[len++] = value;
  e->seen[value] = true;
  for (uint32_t i = 0; i < len; i++) {
    const char *p = e->sources[e->list[i]];
    uint64_t site = number(&p);
    const uint32_t *at =
        record + AT_NAN_HEAD + AT_NAN_WORDS * (site ? site - 1 : 0);
    if (site && !at[HELD]) continue;
    if (site && at[ORIGIN_RUN] && at[ORIGIN_ORDER] < order)
      best = (int64_t)site - 1, order = at[ORIGIN_ORDER];
    while (*p >= '0' && *p <= '9') {
      uint32_t from = (uint32_t)number(&p);
      if (!e->seen[from]) e->seen[from] = true, e->list[len++] = from;
    }
  }
  return best;
}

// INVALID_ARGUMENT with the op, its place and, for one that ran several times,
// the run.
static at_status report(const ending *e, const uint32_t *at, int64_t site,
                        uint64_t result) {
  const char *text = e->sites[site];
  int op = (int)strcspn(text, "\t"), place = (int)strcspn(text + op + 1, "\n");
  char run[64] = "";
  if (at[RUNS] > 1)
    snprintf(run, sizeof run, ", first in run %u of %u", at[ORIGIN_RUN],
             at[RUNS]);
  return AT_FAIL(AT_INVALID_ARGUMENT,
                 "result %llu has NaN, which %.*s made of operands without "
                 "NaN%s\nat: %.*s",
                 (unsigned long long)result, op, text, run, place,
                 text + op + 1);
}

// "RESULTS SITES VALUES dtype:count... result:value..." and the lines.
static at_status finish(const char *p, const void *const *args) {
  const uint32_t *record = args[0];
  uint32_t n = (uint32_t)number(&p);
  uint64_t sites = number(&p), values = number(&p);
  const char *lines = p;
  array *a;
  ending e = {0};
  if (!record[0]) return AT_OK;  // nobody made one
  at_status st = read_arrays(&p, args + 1, n, &a);
  if (at_ok(st)) st = read_lines(lines, sites, values, &e);
  for (uint32_t i = 0; at_ok(st) && i < n; i++) {
    uint64_t result = number(&p);
    uint32_t value = (uint32_t)number(&p);
    if (!has_nan(&a[i])) continue;
    memset(e.seen, 0, values);
    int64_t site = follow(&e, record, value);
    if (site >= 0)
      st = report(&e, record + AT_NAN_HEAD + AT_NAN_WORDS * site, site, result);
  }
  free(a), free(e.sites), free(e.sources), free(e.list), free(e.seen);
  return st;
}

// The text is copied to have a NUL behind it.
at_status at_nan_call(at_bytes config, const void *const *args,
                      uint32_t num_args, void *const *results,
                      uint32_t num_results) {
  char *text = strndup((const char *)config.ptr, config.len);
  at_status st = AT_OK;
  const char *p = text;
  if (!text) return AT_NO_MEMORY("a check");
  if (!strncmp(p, "begin ", 6) && num_results == 1) {
    p += 6;
    memset(results[0], 0,
           (AT_NAN_HEAD + AT_NAN_WORDS * number(&p)) * sizeof(uint32_t));
  } else if (!strncmp(p, "watch ", 6) && num_args) {
    p += 6;
    st = watch(p, args, num_args);
  } else if (!strncmp(p, "end ", 4) && num_args) {
    p += 4;
    st = finish(p, args);
  } else {
    st = AT_FAIL(AT_INTERNAL, "a check of NaNs says %.20s", text);
  }
  free(text);
  return st;
}

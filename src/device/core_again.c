// Undefined values that reach a result without being NaN: integers are never
// NaN, and comparisons, maxima of some kinds and conversions lose one. A kernel
// that reads the padding of blocks at the edge of an array, or unwritten memory
// that a choice may drop, or makes integers of NaN that it may drop, runs a
// second time with other undefined values, and must give the same.
#include <stdlib.h>

#include "base/strbuf.h"
#include "device/core_internal.h"

// The first load wins; loc + 2 so that 0 stands for none.
void core_note_undefined(core_state *c, undefined_kind kind, int32_t loc) {
  core_rerun *r = c->launch->rerun;
  int32_t none = 0;
  if (r) atomic_compare_exchange_strong(&r->undefined_at[kind], &none, loc + 2);
}

void core_note_brought(core_state *c, uint32_t ref, int32_t loc) {
  core_rerun *r = c->launch->rerun;
  if (r) atomic_store(&r->brought[ref], loc + 2);
}

void core_note_integer(core_state *c, int32_t loc) {
  core_rerun *r = c->launch->rerun;
  int32_t none = 0;
  if (r) atomic_compare_exchange_strong(&r->integer_at, &none, loc + 2);
}

bool core_runs_again(const core_state *c) {
  return c->launch->rerun && c->launch->rerun->second;
}

// The upper half of a number, or all of it: small, large and negative ones in
// turn, later ones larger, so that the first is not the greatest as the first
// run's NaN was for argmax.
static uint16_t half_of(size_t i, bool is_float) {
  uint16_t large = (uint16_t)(0x7a00 + i % 128);
  if (i % 3 == 0) return is_float ? 0x3c00 : 3;
  if (i % 3 == 1) return large;
  return is_float ? large | 0x8000 : (uint16_t)~large;
}

// Every element gets another value than in the first run; odd widths a pattern
// of bytes.
static void fill_again(void *dst, at_dtype t, size_t bytes) {
  size_t width = at_dtype_bytes(t);
  uint8_t *p = dst;
  memset(p, at_dtype_of(t)->bits < 8 ? 1 : 0x5e, bytes);
  if (width != 2 && width != 4) return;
  for (size_t i = 0; i < bytes / width; i++) {
    uint16_t half = half_of(i, at_is_float(t));
    memcpy(p + (i + 1) * width - sizeof half, &half, sizeof half);
  }
}

void core_fill(const core_state *c, void *dst, at_dtype t, int64_t n) {
  if (core_runs_again(c))
    fill_again(dst, t, (size_t)n * at_dtype_bytes(t));
  else
    core_fill_undefined(dst, t, n);
}

// ---- The results of the two runs
typedef struct results {
  void **bufs;  // as the launch's, outputs are copies
  uint32_t first, num;
} results;

// NULL: there are not so many.
static const at_xcore_ref *output(const at_core_program *p, uint32_t out) {
  for (uint32_t i = 0; i < p->record->num_refs; i++)
    if (p->refs[i].role == AT_CORE_OUT && !out--) return &p->refs[i];
  return NULL;
}

// Also of a copy that failed half way.
static void free_results(results *r) {
  for (uint32_t i = 0; r->bufs && i < r->num; i++) free(r->bufs[r->first + i]);
  free(r->bufs);
}

// False: no memory.
static bool copy_results(const at_core_launch *l, results *r) {
  r->first = core_first_out(l->programs);
  r->bufs =
      calloc(r->first + l->programs->record->num_refs + 1, sizeof *r->bufs);
  if (!r->bufs) return false;
  memcpy(r->bufs, l->bufs, r->first * sizeof *r->bufs);
  const at_xcore_ref *x;
  while ((x = output(l->programs, r->num))) {
    uint32_t i = r->first + r->num++;
    size_t bytes = core_array_bytes(x);
    r->bufs[i] = malloc(bytes + 1);
    if (!r->bufs[i]) return false;
    memcpy(r->bufs[i], l->bufs[i], bytes);
  }
  return true;
}

int32_t core_undefined_at(const core_state *c, bool *padding) {
  core_rerun *r = c->launch->rerun;
  *padding = false;
  for (uint32_t k = kNumUndefined; r && k-- > 0;) {
    int32_t at = atomic_load(&r->undefined_at[k]);
    *padding = k == UNDEFINED_PADDING;
    if (at) return at - 2;
  }
  return kNowhere;
}

// True if undefined values were read: the second run decides, and the place is
// kept for it.
bool core_leaves_nan(core_state *c, int32_t loc) {
  bool padding;
  int32_t none = 0;
  if (core_undefined_at(c, &padding) == kNowhere) return false;
  atomic_compare_exchange_strong(&c->launch->rerun->nan_at, &none, loc + 2);
  return true;
}

// Uninitialised memory and NaN are the bug itself. Padding occurs in correct
// kernels, too: only storing it is a bug.
static at_status differs(const at_core_launch *l, const at_xcore_ref *x,
                         size_t element) {
  core_state c = {.launch = l, .program = l->programs};
  uint32_t ref = (uint32_t)(x - l->programs->refs);
  char at[512], from[512], name[64];
  int64_t index[AT_CORE_MAX_RANK], rest = (int64_t)element;
  at_strbuf b = {0};
  for (uint32_t d = x->rank; d-- > 0; rest /= x->dims[d])
    index[d] = rest % x->dims[d];
  for (uint32_t d = 0; d < x->rank; d++)
    at_strbuf_addf(&b, "%s%lld", d ? ", " : "", (long long)index[d]);
  bool padding;
  int32_t read = core_undefined_at(&c, &padding);
  int32_t integer = atomic_load(&l->rerun->integer_at);
  if (integer) {
    read = integer - 2;
    padding = false;
  }
  // Results that come by copy have no store of their own.
  int32_t brought = atomic_load(&l->rerun->brought[ref]);
  int32_t store = brought ? brought - 2 : read;
  if (x->stored_at) store = core_store_loc(&c, ref);
  core_place(&c, store, at, sizeof at);
  core_place(&c, read, from, sizeof from);
  at_status st =
      AT_FAIL(AT_FAILED_PRECONDITION,
              "kernel %s: element (%s) of %s follows from undefined values: it "
              "changes with what %s\ndetail: %s at %s\nat: %s",
              core_name(&c), b.ptr ? b.ptr : "",
              core_ref_text(&c, ref, name, sizeof name),
              integer   ? "NaN becomes as an integer"
              : padding ? "the padding of blocks at the edge holds"
                        : "uninitialised memory holds",
              padding ? "such values are read" : "it is stored",
              padding ? from : at, padding ? at : from);
  at_strbuf_free(&b);
  return st;
}

// l: the second run.
static at_status compare(const at_core_launch *l, void *const *first) {
  const at_xcore_ref *x;
  uint32_t i = core_first_out(l->programs);
  for (uint32_t out = 0; (x = output(l->programs, out)); out++, i++) {
    size_t n = core_array_bytes(x), at = 0;
    const uint8_t *a = first[i], *b = l->bufs[i];
    if (x->space == AT_CORE_SEM || !memcmp(a, b, n)) continue;
    while (a[at] == b[at]) at++;
    return differs(l, x, at / AT_MAX(at_dtype_bytes((at_dtype)x->dtype), 1u));
  }
  return AT_OK;
}

// The results do not follow from undefined values: is there NaN all the same?
static at_status no_nan(const at_core_launch *l, int32_t stored) {
  core_state c = {.launch = l, .program = l->programs};
  const at_xcore_ref *x;
  uint32_t i = core_first_out(l->programs);
  char at[512], name[64];
  for (uint32_t out = 0; (x = output(l->programs, out)); out++, i++) {
    at_dtype t = (at_dtype)x->dtype;
    size_t width = AT_MAX(at_dtype_bytes(t), 1u),
           n = core_array_bytes(x) / width;
    const uint8_t *p = l->bufs[i];
    for (size_t k = 0; k < n && x->space != AT_CORE_SEM; k++)
      if (core_is_nan(p + k * width, t))
        return AT_FAIL(AT_INVALID_ARGUMENT,
                       "kernel %s: element %zu of %s is NaN\nat: %s",
                       core_name(&c), k,
                       core_ref_text(&c, (uint32_t)(x - l->programs->refs),
                                     name, sizeof name),
                       core_place(&c, stored, at, sizeof at));
  }
  return AT_OK;
}

// other: where the second run's results go.
static at_status run_twice(const at_core_launch *l, const results *other,
                           core_rerun *note,
                           at_status (*run)(const at_core_launch *)) {
  at_core_launch first = *l;
  first.rerun = note;
  at_status st = run(&first);
  bool padding;
  core_state c = {.launch = &first};
  bool undefined = core_undefined_at(&c, &padding) != kNowhere ||
                   atomic_load(&note->integer_at);
  if (st.err || !undefined) return st;
  at_core_launch second = first;
  note->second = true;
  second.bufs = other->bufs;
  second.checks = kMute;
  if (l->checks & AT_CHECK_RACES) second.checks |= kApart;
  st = run(&second);
  if (!st.err) st = compare(&second, l->bufs);
  int32_t nan = atomic_load(&note->nan_at);
  return !st.err && nan ? no_nan(l, nan - 2) : st;
}

at_status core_run_again(const at_core_launch *l,
                         at_status (*run)(const at_core_launch *)) {
  results other = {0};
  core_rerun note = {.second = false};
  note.brought =
      calloc(l->programs->record->num_refs + 1, sizeof *note.brought);
  bool copied = copy_results(l, &other);  // what is updated in place, too
  at_status st =
      note.brought && copied
          ? run_twice(l, &other, &note, run)
          : AT_FAIL(AT_RESOURCE_EXHAUSTED,
                    "kernel %s: no memory for the checks", l->programs->name);
  free_results(&other);
  free(note.brought);
  return st;
}

// Refusals, budgets, random bits, prints: what generated code calls beside
// memory and semaphores.
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/strbuf.h"
#include "device/core_internal.h"
#include "profile/profile.h"

// ---- Refusals
// Leaves the core's code for the setjmp in core.c's `guard`: frames between
// have no cleanup, which is why generated code and this room keep all memory in
// the launch. The lock is dropped, the status handed to the core.
void core_exit(core_state *c, at_status st) {
  if (c->locked) core_unlock(c);
  core_debug_failed(c, st);
  core_debug_ended(c);
  c->status = at_status_join(c->status, st);
  longjmp(c->exit, 1);
}

const char *core_name(const core_state *c) {
  return c->program->name && *c->program->name ? c->program->name : "?";
}

// Places of arguments stand below -1.
static int32_t loc_of_place(uint32_t first, uint32_t second) {
  uint32_t place = first ? first : second;
  return place ? -1 - (int32_t)place : -1;
}

// Where the block is chosen, else where it is loaded or stored first.
int32_t core_window_loc(const core_state *c, uint32_t ref) {
  const at_xcore_ref *x = &c->program->refs[ref];
  return loc_of_place(x->place, x->loaded_at ? x->loaded_at : x->stored_at);
}

// Where an output is stored, else where its block is chosen.
int32_t core_store_loc(const core_state *c, uint32_t ref) {
  const at_xcore_ref *x = &c->program->refs[ref];
  return loc_of_place(x->stored_at, x->place);
}

// "file:line:column (operation)" in buf, or an empty string. loc >= 0 counts
// the kernel's places, loc <= -2 those of arguments; -1 is the window whose
// index map runs, if one does.
const char *core_place(const core_state *c, int32_t loc, char *buf, size_t n) {
  *buf = 0;
  const at_core_program *p = c->program;
  const at_xlocation *l = NULL;
  if (loc == -1 && c->mapping) loc = core_window_loc(c, c->mapping - 1);
  if (loc <= -2)
    l = &p->places[-2 - loc];
  else if (loc >= 0 && (uint32_t)loc < p->record->num_locations)
    l = &p->locations[loc];
  if (!l) return buf;
  const char *file = p->strings + l->file, *op = p->strings + l->op;
  if (*file)
    snprintf(buf, n, "%s:%u:%u%s%s%s", file, l->line, l->column,
             *op ? " (" : "", op, *op ? ")" : "");
  else
    snprintf(buf, n, "%s", op);
  return buf;
}

// Text beyond 2 KiB is cut. "kernel NAME: TEXT" and the place below.
void core_stop(core_state *c, at_code code, int32_t loc, const char *fmt, ...) {
  char place[512], text[2048];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  core_place(c, loc, place, sizeof place);
  at_status st = AT_FAIL(code, "kernel %s: %s%s%s", core_name(c), text,
                         *place ? "\nat: " : "", place);
  core_exit(c, st);
}

const at_core_launch *at_core_launch_of(at_core *core) {
  return state_of(core)->launch;
}

// For callbacks that return a status: takes st and adds the kernel's name and
// place.
void at_core_give_up(at_core *core, int32_t loc, at_status st) {
  core_state *c = state_of(core);
  char place[512];
  core_place(c, loc, place, sizeof place);
  at_status named =
      AT_FAIL(at_status_code(st), "kernel %s: %s%s%s", core_name(c),
              at_status_message(st), *place ? "\nat: " : "", place);
  at_status_free(st);
  core_exit(c, named);
}

// ref: 1 + the argument that is accessed, 0 for the kernel's allocations,
// AT_CORE_OWN_SEMAPHORES for allocated semaphores. Does not return.
void at_core_out_of_bounds(at_core *core, int32_t loc, int32_t dim,
                           int64_t index, int64_t size, int64_t limit,
                           int32_t ref) {
  core_state *c = state_of(core);
  char name[64] = "memory that the kernel allocated";
  bool sems = ref == AT_CORE_OWN_SEMAPHORES;
  if (ref > 0) {
    core_ref_text(c, (uint32_t)ref - 1, name, sizeof name);
    sems = c->program->refs[ref - 1].space == AT_CORE_SEM;
  }
  core_stop(
      c, AT_OUT_OF_RANGE, loc,
      "access out of bounds: dimension %d, elements %lld to %lld of %lld\n"
      "detail: of %s%s, or of a part of it",
      dim, (long long)index, (long long)(index + size), (long long)limit,
      sems ? "the semaphores " : "",
      ref == AT_CORE_OWN_SEMAPHORES ? "that the kernel allocated" : name);
}

// Written without index + size, which may overflow. Empty accesses may stand
// anywhere.
void at_core_within(at_core *core, int32_t loc, int32_t dim, int64_t index,
                    int64_t size, int64_t limit, int32_t ref) {
  if (size && (index < 0 || size > limit || index > limit - size))
    at_core_out_of_bounds(core, loc, dim, index, size, limit, ref);
}

void at_core_fail(at_core *core, int32_t loc, const char *text) {
  core_stop(state_of(core), AT_INVALID_ARGUMENT, loc, "%s", text);
}

// Of a gather or scatter: lanes that the mask leaves out are not accessed and
// may hold anything.
void at_core_check_indices(at_core *core, const int32_t *index,
                           const uint8_t *mask, int64_t n, int64_t limit,
                           int32_t dim, int32_t loc, int32_t ref) {
  if (!(state_of(core)->launch->checks & AT_CHECK_BOUNDS)) return;
  for (int64_t i = 0; i < n; i++)
    if (!mask || mask[i])
      at_core_within(core, loc, dim, index[i], 1, limit, ref);
}

// tpu.assume_multiple lets the compiler drop address bits: a false assumption
// is silent on the chip.
void at_core_check_multiple(at_core *core, int32_t loc, int32_t value,
                            int32_t multiple) {
  core_state *c = state_of(core);
  if (c->launch->checks & AT_CHECK_BOUNDS && value % multiple)
    core_stop(c, AT_INVALID_ARGUMENT, loc,
              "%d is no multiple of %d, as the kernel says it is\n"
              "detail: the chip then reads or writes another place",
              value, multiple);
}

// ---- Loops that never end
enum { kTurnsAtOnce = 1 << 20 };

// Called when the turns that were granted are used up: grants up to a million
// more, so that a loop need not count against the launch's limit each turn.
// Also where a loop sees that another core failed.
void at_core_budget(at_core *core, int32_t loc) {
  core_state *c = state_of(core);
  uint64_t limit = c->launch->max_turns, more = kTurnsAtOnce;
  if (limit) more = AT_MIN(more, limit - c->turns);
  if (!more)
    core_stop(c, AT_RESOURCE_EXHAUSTED, loc,
              "stopped after %llu turns of its loops\n"
              "hint: does this loop end? ATOLL_KERNEL_TURNS raises the limit",
              (unsigned long long)limit);
  c->turns += more;
  core_lock(c);
  if (c->group && c->group->failed)
    core_stop(c, AT_CANCELLED, loc, "another core failed");
  core_unlock(c);
  core->budget = (int64_t)more - 1;  // this one counts
}

// ---- Random bits: xoshiro256**
static uint64_t mix(uint64_t *state) {  // splitmix64
  uint64_t z = (*state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// Seeds are hashed, so that neighbouring ones give unrelated streams. The bits
// differ from the chip's.
void at_core_prng_seed(at_core *core, const int32_t *seeds, int64_t n) {
  core_state *c = state_of(core);
  uint64_t h = at_hash(AT_HASH_SEED, seeds, (size_t)n * sizeof *seeds);
  for (int i = 0; i < 4; i++) c->random[i] = mix(&h);
}

static uint64_t rotate(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

// Two words of each 64-bit draw.
void at_core_prng_bits(at_core *core, uint32_t *out, int64_t n) {
  uint64_t *s = state_of(core)->random;
  for (int64_t i = 0; i < n; i += 2) {
    uint64_t r = rotate(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    out[i] = (uint32_t)r;
    if (i + 1 < n) out[i + 1] = (uint32_t)(r >> 32);
  }
}

// ---- Prints
// p need not be aligned. Only F32, F16 and BF16.
static float narrow_float(const void *p, at_dtype t) {
  uint16_t bits;
  float f;
  if (t == AT_F32) return memcpy(&f, p, 4), f;
  memcpy(&bits, p, 2);
  if (t == AT_F16) {
    _Float16 h;
    return memcpy(&h, p, 2), (float)h;
  }
  uint32_t wide = (uint32_t)bits << 16;
  return memcpy(&f, &wide, 4), f;
}

// Floats with the fewest digits, of 6 to 9, that read back the same; integers
// sign-extended as their type says.
static void print_element(at_strbuf *b, const void *p, at_dtype t) {
  int64_t v = 0;
  uint32_t bytes = at_dtype_bytes(t);
  if (t == AT_F32 || t == AT_BF16 || t == AT_F16) {
    float x = narrow_float(p, t);
    char z[40];  // the shortest that reads back
    for (int digits = 6; digits <= 9; digits++) {
      snprintf(z, sizeof z, "%.*g", digits, (double)x);
      if (strtof(z, NULL) == x) break;
    }
    at_strbuf_addz(b, z);
    return;
  }
  if (bytes > 8) return;
  memcpy(&v, p, bytes);
  if (at_is_signed_int(t) && bytes < 8)
    v = (int64_t)((uint64_t)v << (64 - 8 * bytes)) >> (64 - 8 * bytes);
  at_strbuf_addf(b, "%lld", (long long)v);
}

// As literals of XLA are written: {1, 2}, from two dimensions on a row a line.
// Returns the end of what was printed: data is dense, row-major.
static const uint8_t *print_dims(at_strbuf *b, const at_core_log_arg *a,
                                 int32_t d, const uint8_t *p) {
  if (d == a->rank) {
    print_element(b, p, (at_dtype)a->dtype);
    return p + at_dtype_bytes((at_dtype)a->dtype);
  }
  bool row = d + 1 == a->rank, alone = a->rank == 1;
  at_strbuf_addz(b, alone ? "{" : row ? "  { " : "{\n");
  for (int64_t i = 0; i < a->size[d]; i++) {
    if (i) at_strbuf_addz(b, row ? ", " : ",\n");
    p = print_dims(b, a, d + 1, p);
  }
  at_strbuf_addz(b, alone ? "}" : row ? " }" : "\n}");
  return p;
}

// "s32[2,3] {...}", "f32[] 0.5".
static void print_literal(at_strbuf *b, const at_core_log_arg *a) {
  at_dtype t = (at_dtype)a->dtype;
  if (t == AT_PRED)
    at_strbuf_addz(b, "pred[");
  else if (at_is_int(t))
    at_strbuf_addf(b, "%c%u[", at_is_signed_int(t) ? 's' : 'u',
                   at_dtype_of(t)->bits);
  else
    at_strbuf_addf(b, "%s[", at_dtype_of(t)->text);
  for (int32_t d = 0; d < a->rank; d++)
    at_strbuf_addf(b, "%s%lld", d ? "," : "", (long long)a->size[d]);
  at_strbuf_addz(b, "] ");
  print_dims(b, a, 0, a->data);
}

// "$" and a number: which argument stands there; -1: none. *end: behind it.
static int64_t place_of(const char *p, int64_t n, const char **end) {
  if (p[0] != '$' || !isdigit((unsigned char)p[1])) return -1;
  char *after;
  unsigned long i = strtoul(p + 1, &after, 10);
  *end = after;
  return i < (unsigned long)n ? (int64_t)i : -1;
}

// "$0" in the text is replaced by an argument, scalars without their type; if
// no argument is placed, all stand behind the text as literals. Goes to stderr,
// as the TPU runtime's log does.
void at_core_log(at_core *core, const char *text, const at_core_log_arg *args,
                 int64_t n, int32_t loc) {
  if (core_runs_again(state_of(core))) return;  // it said so before
  at_strbuf b = {0};
  bool placed = false;
  for (const char *p = text, *end; *p;) {
    int64_t i = place_of(p, n, &end);
    if (i < 0) {
      at_strbuf_addc(&b, *p++);
      continue;
    }
    if (args[i].rank)
      print_literal(&b, &args[i]);
    else
      print_element(&b, args[i].data, (at_dtype)args[i].dtype);
    placed = true;
    p = end;
  }
  for (int64_t i = 0; i < n && !placed; i++) {
    if (b.len && b.ptr[b.len - 1] != ' ') at_strbuf_addc(&b, ' ');
    print_literal(&b, &args[i]);
  }
  fprintf(stderr, "%s\n", b.ptr ? b.ptr : "");
  at_strbuf_free(&b);
}

// ---- Spans
// core_name is copied by the profile.
static void record_span(const core_state *c, const char *name,
                        uint64_t start_ns, uint64_t end_ns) {
  at_profile_record(&(at_profile_event){.start_ns = start_ns,
                                        .end_ns = end_ns,
                                        .kind = AT_PROFILE_KERNEL,
                                        .chip = (uint32_t)c->head.device_id,
                                        .core = c->lane,
                                        .name = name,
                                        .detail = core_name(c),
                                        .source = ""});
}

// Spans nest; those deeper than kMaxSpans are counted but not recorded. A stray
// end is ignored. The checks count spans, too: some must not stay open.
void at_core_trace(at_core *core, const char *text, int32_t begin) {
  core_state *c = state_of(core);
  if (!c->shadow && !c->profiled) return;
  uint64_t now = c->profiled ? at_clock_ns() : 0;
  if (!begin && !c->num_spans) return;
  uint32_t i = begin ? c->num_spans++ : --c->num_spans;
  if (i >= kMaxSpans) return;
  if (begin) {
    c->spans[i].name = text;
    c->spans[i].start_ns = now;
  } else if (c->profiled) {
    record_span(c, c->spans[i].name, c->spans[i].start_ns, now);
  }
}

void at_core_trace_value(at_core *core, const char *text, int64_t value) {
  const core_state *c = state_of(core);
  if (!c->profiled) return;
  char name[256];
  snprintf(name, sizeof name, "%s = %lld", text, (long long)value);
  uint64_t now = at_clock_ns();
  record_span(c, name, now, now);
}

// Time on the chip; here the work itself takes its time.
void at_core_delay(at_core *core, int64_t cycles) {}

// ---- NaN
// An all-ones exponent and quiet bits 0x7fff as 0xff bytes give them: what
// core_fill leaves in memory that nobody wrote.
bool core_is_poison(const void *element, at_dtype t) {
  if (t != AT_F32 && t != AT_BF16 && t != AT_F16) return false;
  float f = narrow_float(element, t);
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return (bits >> 16 & 0x7fff) == 0x7fff;
}

bool core_is_nan(const void *element, at_dtype t) {
  return (t == AT_F32 || t == AT_BF16 || t == AT_F16) &&
         isnan(narrow_float(element, t));
}

// Where the NaN arose, -1: nobody noted. Generated code puts 1 + the place into
// the low bits of a NaN that it makes; other NaNs have none.
static int32_t origin_of_nan(const core_state *c, const uint8_t *at,
                             at_dtype t) {
  uint32_t bits = 0;
  if (t == AT_F32) memcpy(&bits, at, sizeof bits);
  uint32_t place = (bits & 0x7fffffff) - AT_CORE_NAN;
  return place && place <= c->program->record->num_locations
             ? (int32_t)place - 1
             : -1;
}

// Shows the place where the NaN arose if that is known, and the place of its
// use as a detail.
static _Noreturn void report_nan(core_state *c, int64_t i, int32_t origin,
                                 bool converted, int32_t used) {
  char place[512] = "", from[700] = "";
  if (origin >= 0) core_place(c, used, place, sizeof place);
  if (*place)
    snprintf(from, sizeof from,
             "\ndetail: it arises at the place below and is %s at %s",
             converted ? "converted" : "stored", place);
  core_stop(c, AT_INVALID_ARGUMENT, origin >= 0 ? origin : used,
            converted
                ? "element %lld of what becomes an integer is NaN: nobody "
                  "knows which%s"
                : "element %lld of the result is NaN%s",
            (long long)i, from);
}

// Blocks at the edge of an array are padded with poison: it may be stored where
// it is not copied out (core_visit.c looks at that).
void at_core_check_nan(at_core *core, const void *data, const uint8_t *mask,
                       int32_t dtype, int64_t n, int32_t use, int32_t loc) {
  core_state *c = state_of(core);
  at_dtype t = (at_dtype)dtype;
  if (!(c->launch->checks & AT_CHECK_NAN)) return;
  if (t != AT_F32 && t != AT_BF16 && t != AT_F16) return;
  for (int64_t i = 0; i < n; i++) {
    const uint8_t *at = (const uint8_t *)data + i * at_dtype_bytes(t);
    if ((mask && !mask[i]) || !core_is_nan(at, t) || core_is_poison(at, t))
      continue;
    int32_t origin = origin_of_nan(c, at, t);
    if (origin < 0 && core_leaves_nan(c, loc)) return;
    if (use == AT_CORE_NAN_CHOSEN) {
      core_note_integer(c, origin >= 0 ? origin : loc);
      return;
    }
    report_nan(c, i, origin, use == AT_CORE_NAN_CONVERTED, loc);
  }
}

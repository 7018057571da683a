// Work grows with a kernel, not with the paths through it. Families of Pallas
// kernels (kernels.def) are written at n and 4 n, read, judged, timed and made
// into machine code. Then so are crowds of n and 4 n kernels, each of which is
// another. The rooms on that way are compiled so that every basic
// block they run counts; that count, and the instructions that come out, may
// not be more than 5 times as large.
//
//   growth_kernels              all families
//   growth_kernels NAME [N]     one, with its figures by stage
//   growth_kernels crowd        crowds alone
//   GROWTH_PRINT=1              shows the kernels
//   GROWTH_PLACES=1             lists addresses and how often they were passed:
//                               where a family grows, addr2line -f says in
//                               which functions (setarch -R keeps addresses)
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "machine/machine.h"
#include "mosaic/code.h"
#include "tpu/tpu.h"

static uint64_t visits;
void __sanitizer_cov_trace_pc(void);

// ---- What the functions were that counted, for one family by hand
enum { kPlaces = 1 << 16 };
static struct {
  const void *at;
  uint64_t count;
} places[kPlaces];
static bool note_places;

__attribute__((no_sanitize("coverage"))) void __sanitizer_cov_trace_pc(void) {
  visits++;
  if (!note_places) return;
  const void *at = __builtin_return_address(0);
  size_t i = ((uintptr_t)at >> 1) * 0x9e3779b97f4a7c15ull >> 48;
  while (places[i].at && places[i].at != at) i = (i + 1) % kPlaces;
  places[i].at = at;
  places[i].count++;
}

// ---- The short form
typedef struct form {
  const char *name, *op, *attrs, *types;
} form;
static const form forms[] = {
#define AT_FORM(name, op, attrs, types) {name, op, attrs, types},
#include "kernels.def"
#undef AT_FORM
};
static const struct {
  char name;
  const char *text;
} types[] = {
#define AT_TYPE(name, text) {name, text},
#include "kernels.def"
#undef AT_TYPE
};

typedef enum kind {
#define AT_KIND(name, text) name,
#include "kernels.def"
#undef AT_KIND
} kind;
static const char *const kinds[] = {
#define AT_KIND(name, text) text,
#include "kernels.def"
#undef AT_KIND
};

typedef struct family {
  const char *name;
  uint32_t n;
  kind kind;
  const char *before, *step, *after, *close;
} family;
static const family families[] = {
#define AT_GROWTH(name, n, kind, before, step, after, close) \
  {#name, n, kind, before, step, after, close},
#include "kernels.def"
#undef AT_GROWTH
};

static void put(at_strbuf *b, const char *s, size_t len, uint32_t i);

static size_t word(const char *s) {
  size_t n = 0;
  while ((s[n] >= 'a' && s[n] <= 'z') || (s[n] >= '0' && s[n] <= '9')) n++;
  return n;
}

// "@name(operands)" at s; how many characters that is.
static size_t put_form(at_strbuf *b, const char *s, uint32_t i) {
  size_t n = word(s + 1);
  const form *f = NULL;
  for (size_t k = 0; k < AT_LEN(forms); k++)
    if (at_str_is((at_str){s + 1, n}, forms[k].name)) f = &forms[k];
  if (!f) {
    fprintf(stderr, "no form %.*s\n", (int)n, s + 1);
    exit(2);
  }
  const char *end = strchr(s, ')');
  at_strbuf_addf(b, "\"%s\"", f->op);
  put(b, s + 1 + n, (size_t)(end + 1 - s) - 1 - n, i);
  if (*f->attrs) at_strbuf_addf(b, " {%s}", f->attrs);
  at_strbuf_addz(b, " : ");
  put(b, f->types, strlen(f->types), i);
  return (size_t)(end + 1 - s);
}

static void put(at_strbuf *b, const char *s, size_t len, uint32_t i) {
  for (size_t k = 0; k < len;) {
    if (s[k] == '@' && s[k + 1 + word(s + k + 1)] == '(') {
      k += put_form(b, s + k, i);
      continue;
    }
    if (s[k] == '$' && strchr("ipqn", s[k + 1])) {
      at_strbuf_addf(
          b, "%u",
          i + (s[k + 1] == 'n') - (s[k + 1] == 'p') - 2 * (s[k + 1] == 'q'));
      k += 2;
      continue;
    }
    const char *type = NULL;
    for (size_t t = 0; s[k] == '!' && t < AT_LEN(types); t++)
      if (types[t].name == s[k + 1]) type = types[t].text;
    if (type)
      at_strbuf_addz(b, type);
    else
      at_strbuf_addc(b, s[k]);
    k += type ? 2 : 1;
  }
}

static void put_body(at_strbuf *b, const family *f, uint32_t n) {
  put(b, f->before, strlen(f->before), 1);
  for (uint32_t i = 2; i < n + 2; i++) put(b, f->step, strlen(f->step), i);
  put(b, f->after, strlen(f->after), n + 1);
  for (uint32_t i = n + 1; i >= 2; i--) put(b, f->close, strlen(f->close), i);
}

static void put_kernel(at_strbuf *b, const family *f, uint32_t n) {
  const char *text = kinds[f->kind], *hole = strchr(text, '?');
  put(b, text, (size_t)(hole - text), 1);
  put_body(b, f, n);
  put(b, hole + 1, strlen(hole + 1), n + 1);
}

// ---- The way of a kernel
enum { READ, JUDGE, TIME, CODE, CHECKED, STAGES };
static const char *const stage_names[] = {"read", "judge", "time", "code",
                                          "checked code"};
typedef struct work {
  uint64_t visits[STAGES], code[STAGES];
} work;

static uint64_t lines(at_str s) {
  uint64_t n = 0;
  for (size_t i = 0; i < s.len; i++) n += s.ptr[i] == '\n';
  return n;
}

static at_status write_code(const at_mosaic_kernel *k, bool check, at_arena *a,
                            uint64_t *size) {
  // As it is written: LLVM takes fewer steps where functions are large.
  at_cg_target t = {
      .cpu_features = at_cpu_features(), .threads = 1, .opt_level = 0};
  at_mosaic_code_options o = {.check = check};
  at_cg *cg;
  at_strbuf text = {0};
  AT_TRY(at_cg_create(&t, &cg));
  at_mosaic_code *code;
  at_status s = at_mosaic_code_add(cg, k, 0, &o, a, &code);
  if (at_ok(s)) s = at_cg_print(cg, false, &text);
  *size = lines(at_strbuf_str(&text));
  at_strbuf_free(&text);
  at_cg_destroy(cg);
  return s;
}

// What a chip refuses of it does not matter here.
static at_status judge(const at_mosaic_kernel *k) {
  static const char *const chips[] = {"v5e", "v5p", "v6e", "v7x"};
  for (size_t i = 0; i < AT_LEN(chips); i++) {
    const at_mosaic_chip *c = at_mosaic_chip_find(at_str_of(chips[i]));
    if (c) at_status_free(at_mosaic_check(k, c, 1));
  }
  return AT_OK;
}

static at_status timing(const at_mosaic_kernel *k, at_arena *a) {
  at_mosaic_timing *t;
  const at_machine *m;
  AT_TRY(at_machine_find(AT_STR("v5e"), &m));
  at_status_free(at_mosaic_timing_of(k, 0, m, NULL, a, &t));
  return AT_OK;
}

static at_status run_stage(int stage, const at_mosaic_call *call, at_arena *a,
                           work *w) {
  at_mosaic_kernel *k = NULL;
  uint64_t before = visits;
  AT_TRY(at_mosaic_read(call, a, &k));
  if (stage != READ) before = visits;
  at_status s = AT_OK;
  if (stage == JUDGE) s = judge(k);
  if (stage == TIME) s = timing(k, a);
  if (stage >= CODE) s = write_code(k, stage == CHECKED, a, &w->code[stage]);
  w->visits[stage] = visits - before;
  return s;
}

static at_status run(const family *f, uint32_t n, work *w) {
  at_strbuf text = {0};
  at_status s = AT_OK;
  *w = (work){0};
  put_kernel(&text, f, n);
  if (getenv("GROWTH_PRINT")) puts(text.ptr);
  for (int stage = 0; at_ok(s) && stage < STAGES; stage++) {
    at_arena *a = at_arena_create();
    at_mosaic_call call = {.payload = {(const uint8_t *)text.ptr, text.len}};
    s = run_stage(stage, &call, a, w);
    at_arena_destroy(a);
    if (!at_ok(s)) s = at_status_prefix(s, "%s", stage_names[stage]);
  }
  at_strbuf_free(&text);
  return s;
}

// ---- The law
static bool grows(uint64_t small, uint64_t large) { return large > 5 * small; }

static bool judge_family(const family *f, uint32_t n, bool all) {
  work small, large;
  at_status s = run(f, n, &small);
  if (at_ok(s)) s = run(f, 4 * n, &large);
  if (!at_ok(s)) {
    printf("%s: %s\n", f->name, at_status_message(s));
    at_status_free(s);
    return false;
  }
  bool good = true;
  for (int i = 0; i < STAGES; i++) {
    bool bad = grows(small.visits[i], large.visits[i]) ||
               grows(small.code[i], large.code[i]);
    good &= !bad;
    if (bad || all)
      printf(
          "%s, %s: %u steps %lu visits, %lu lines of code; %u steps %lu, "
          "%lu%s\n",
          f->name, stage_names[i], n, small.visits[i], small.code[i], 4 * n,
          large.visits[i], large.code[i], bad ? "  GROWS" : "");
  }
  fflush(stdout);
  return good;
}

// ---- Crowds
enum { kCrowd = 60, kSteps = 20 };  // kernels; steps of the smallest

typedef struct crowd {
  uint64_t visits, instructions, full;  // full: with all of LLVM's steps
  uint64_t steps;
} crowd;

static at_status add_one(at_cg *cg, const family *f, uint32_t i, at_arena *a) {
  at_strbuf text = {0};
  at_mosaic_code_options o = {0};
  at_mosaic_kernel *k;
  at_mosaic_code *code;
  put_kernel(&text, f, kSteps + i % 8);
  at_mosaic_call call = {.payload = {(const uint8_t *)text.ptr, text.len}};
  at_status s = at_mosaic_read(&call, a, &k);
  if (at_ok(s)) s = at_mosaic_code_add(cg, k, 0, &o, a, &code);
  at_strbuf_free(&text);
  return s;
}

static at_status run_crowd(const char *name, uint32_t n, at_arena *a,
                           crowd *w) {
  at_cg_target t = {
      .cpu_features = at_cpu_features(), .threads = 1, .opt_level = 2};
  const family *f = families;
  uint64_t steps = 0;
  while (strcmp(f->name, name)) f++;
  at_cg *cg;
  at_cg_output out;
  AT_TRY(at_cg_create(&t, &cg));
  uint64_t before = visits, made = at_cg_instructions_made(),
           quick = at_cg_instructions_quick();
  at_status s = AT_OK;
  for (uint32_t i = 0; at_ok(s) && i < n; i++) {
    s = add_one(cg, f, i, a);
    steps += kSteps + i % 8;
  }
  if (at_ok(s)) s = at_cg_finish(cg, a, &out);
  made = at_cg_instructions_made() - made;
  quick = at_cg_instructions_quick() - quick;
  *w = (crowd){visits - before, made, made - quick, steps};
  at_cg_destroy(cg);
  return s;
}

static bool crowd_fails(at_status s) {
  printf("crowds: %s\n", at_status_message(s));
  at_status_free(s);
  return false;
}

// The larger ones have more kernels than AT_CG_FULL_OPS allows for: most of
// what comes on top is compiled quickly, and is shorter.
static bool judge_crowds(bool all) {
  crowd w[3];
  bool good = true;
  for (uint32_t i = 0, n = kCrowd; i < 3; i++, n *= 4) {
    at_arena *a = at_arena_create();
    at_status s = run_crowd("functions", n, a, &w[i]);
    at_arena_destroy(a);
    if (!at_ok(s)) return crowd_fails(s);
    bool bad = i && (grows(w[i - 1].visits, w[i].visits) ||
                     grows(w[i - 1].instructions, w[i].instructions));
    bad |= i == 2 && (w[2].full > w[1].full * 2 ||
                      w[2].instructions > w[1].instructions * 3);
    if (bad || all)
      printf("%u kernels: %lu visits, %lu instructions, %lu with all steps%s\n",
             n, w[i].visits, w[i].instructions, w[i].full,
             bad ? "  GROWS" : "");
    good &= !bad;
  }
  return good;
}

// Reductions are functions that the kernels of a module share: what each of
// them takes is its operand's loop and a call.
enum { kMostOfSum = 40, kMostFull = 1 << 17 };

static bool judge_sums(const char *name, bool all) {
  crowd w;
  at_arena *a = at_arena_create();
  at_status s = run_crowd(name, 2 * kCrowd, a, &w);
  at_arena_destroy(a);
  if (!at_ok(s)) return crowd_fails(s);
  uint64_t quick = w.instructions - w.full;
  bool bad = quick > kMostOfSum * w.steps || w.full > kMostFull;
  if (bad || all)
    printf("%s: %lu steps, %lu instructions, %lu with all steps%s\n", name,
           w.steps, w.instructions, w.full, bad ? "  TOO MANY" : "");
  return !bad;
}

static void print_places(void) {
  for (size_t i = 0; i < kPlaces; i++)
    if (places[i].count > 1000)
      printf("@ %p %lu\n", (const void *)((const char *)places[i].at - 1),
             places[i].count);
}

int main(int argc, char **argv) {
  bool good = true;
  note_places = getenv("GROWTH_PLACES") != NULL;
  for (size_t i = 0; i < AT_LEN(families); i++) {
    const family *f = &families[i];
    if (argc > 1 && strcmp(argv[1], f->name)) continue;
    uint32_t n = argc > 2 ? (uint32_t)atoi(argv[2]) : f->n;
    good &= judge_family(f, n, argc > 1);
  }
  if (argc < 2 || !strcmp(argv[1], "crowd")) {
    good &= judge_crowds(argc > 1);
    good &= judge_sums("sums", argc > 1);
    good &= judge_sums("maxima", argc > 1);
  }
  if (note_places) print_places();
  return good ? 0 : 1;
}

// Every operation of ops.def that does not work element by element: a kernel
// for each, over the types it is used with and on sizes that fill no register,
// against what is worked out here; or, where there is no code, its refusal.
// (Element by element: mosaic_values_test.c.)
#include "mosaic/run_test_util.h"

#include "mosaic/mosaic_internal.h"
#include "mosaic/ops_samples_test_util.h"

enum { R = SAMPLE_ROWS, C = SAMPLE_LANES, ROOM = 8 * R * C };

static int32_t g_scalars[8] = {3, 1, -2, 40, 7, 0, 1, 9};

// ---- One sample in one type
typedef struct type {
  const char *text;
  at_dtype dtype;
} type;
static const type types[] = {{"i32", AT_S32},
                             {"f32", AT_F32},
                             {"bf16", AT_BF16},
                             {"i16", AT_S16},
                             {"i8", AT_S8}};

static uint32_t g_in[R * C], g_out[ROOM];
static int32_t g_index[4] = {3, 1, 0, 1};
static const sample *g_sample;
static at_dtype g_result;

static void set(at_dtype t, void *p, int64_t v) {
  if (at_is_float(t))
    at_store_float(t, p, (double)v);
  else
    at_store_int(t, p, v);
}

static int64_t get(at_dtype t, const void *p) {
  uint8_t none[4];
  memset(none, SAMPLE_UNTOUCHED, sizeof none);
  if (!memcmp(p, none, at_dtype_bytes(t))) return SAMPLE_UNTOUCHED_ELEMENT;
  return at_is_float(t) ? (int64_t)at_load_float(t, p) : at_load_int(t, p);
}

static void judge(const rt_kernel *k) {
  const sample *s = g_sample;
  size_t bytes = at_dtype_bytes(g_result);
  for (int r = 0; r < AT_MAX(s->rows, 1); r++)
    for (int c = 0; c < s->lanes; c++) {
      int64_t got = get(
          g_result, (const char *)g_out + (size_t)(r * s->lanes + c) * bytes);
      if (got != s->want(r, c))
        fail_msg("%s of %s: (%d, %d) is %lld, want %lld\n%s", s->op,
                 k->args[0].type, r, c, (long long)got,
                 (long long)s->want(r, c), k->body);
    }
}

static void expand(at_strbuf *b, const char *text, const char *type) {
  for (; *text; text++) {
    bool function = text[0] == '@' && text[1] == 'g';
    if (*text == '@' && !function)
      at_strbuf_addz(b, type);
    else
      at_strbuf_addc(b, *text);
  }
}

// The element type of %v where it is not that of %x.
static const type *result_type(const sample *s, const type *t) {
  return !strcmp(s->op, "tpu.reduce_index") ? &types[0] : t;
}

static const char kFunctions[] =
    "'func.func'() ({\n^bb0(%a: i32):\n"
    "%one = 'arith.constant'() {value = 1 : i32} : () -> i32\n"
    "%b = 'arith.addi'(%a, %one) : (i32, i32) -> i32\n"
    "'func.return'(%b) : (i32) -> ()\n}) {function_type = (i32) -> i32, "
    "sym_name = 'g'} : () -> ()\n";

static void add_store(at_strbuf *b, const sample *s, const type *t) {
  if (strstr(s->lines, "%o,") || strstr(s->lines, "%o)")) return;
  if (s->rows)
    at_strbuf_addf(b,
                   "'vector.store'(%%v, %%o, %%c0, %%c0) : (!%dx%dx%s, "
                   "&%dx%dx%s, index, index) -> ()\n",
                   s->rows, s->lanes, t->text, s->rows, s->lanes, t->text);
  else
    at_strbuf_addf(b,
                   "'vector.store'(%%v, %%o, %%c0) : (!%dx%s, &%dx%s, index) "
                   "-> ()\n",
                   s->lanes, t->text, s->lanes, t->text);
}

static void fails(const rt_kernel *k) {
  at_arena *a = at_arena_create();
  at_cg_output out;
  at_mosaic_code *code;
  at_status st = rt_compile(k, RT_FULL, a, &out, &code);
  if (!strstr(at_status_message(st), g_sample->text))
    fail_msg("%s: \"%s\" lacks \"%s\"", g_sample->op, at_status_message(st),
             g_sample->text);
  assert_int_equal(at_code_take(st), g_sample->outcome == REFUSED
                                         ? AT_UNIMPLEMENTED
                                         : AT_INVALID_ARGUMENT);
  at_arena_destroy(a);
}

static void ends(const rt_kernel *k) {
  for (rt_mode mode = RT_FULL; mode < RT_MODES; mode++) {
    rt_core *c = rt_run(k, mode);
    if (strcmp(c->why, g_sample->text) != 0)
      fail_msg("%s: \"%s\", want \"%s\"", g_sample->op, c->why, g_sample->text);
    free(c);
  }
}

static void tells(const rt_kernel *k) {
  rt_core *c = rt_run(k, RT_FULL);
  assert_string_equal(c->log, g_sample->told);
  free(c);
}

static void check(const sample *s, const type *t) {
  char in[32], out[32];
  at_strbuf raw = {0}, body = {0};
  const type *result = result_type(s, t);
  snprintf(in, sizeof in, "5x37x%s", t->text);
  snprintf(out, sizeof out, s->rows ? "%dx%dx%s" : "%.0d%dx%s", s->rows,
           s->lanes, result->text);
  at_strbuf_addz(&raw,
                 "%x = 'vector.load'(%in, %c0, %c0) : (&5x37x@, index, index) "
                 "-> !5x37x@\n");
  at_strbuf_addz(&raw, s->lines);
  expand(&body, raw.ptr, t->text);
  add_store(&body, s, result);
  int32_t scalars[8];
  memcpy(scalars, g_scalars, sizeof scalars);
  rt_kernel k = {{{"in", in, g_in, false},
                  {"o", out, g_out, false},
                  {"s", "8xi32", scalars, true},
                  {"idx", "4xi32", g_index, false}},
                 body.ptr,
                 kFunctions,
                 strstr(s->lines, "iteration_bound") ? 6 : 0};
  for (int i = 0; i < R * C; i++)
    set(t->dtype, (char *)g_in + (size_t)i * at_dtype_bytes(t->dtype),
        sample_input(i / C, i % C));
  memset(g_out, SAMPLE_UNTOUCHED, sizeof g_out);
  g_sample = s;
  g_result = result->dtype;
  if (s->outcome == RUNS)
    rt_each(&k, judge);
  else if (s->outcome == ENDS)
    ends(&k);
  else
    fails(&k);
  if (s->told) tells(&k);
  at_strbuf_free(&raw);
  at_strbuf_free(&body);
}

static bool names(const char *list, const char *text) {
  size_t n = strlen(text);
  for (const char *p = list; (p = strstr(p, text)); p += n)
    if ((p == list || p[-1] == ' ') && (!p[n] || p[n] == ' ')) return true;
  return false;
}

static void every_sample(void **state) {
  for (uint32_t i = 0; i < num_samples; i++)
    for (size_t t = 0; t < AT_LEN(types); t++)
      if (names(samples[i].types, types[t].text)) check(&samples[i], &types[t]);
}

// ---- Every row of ops.def
static const struct {
  const char *name, *operands, *results, *attrs, *handler;
} all[] = {
#define AT_MOSAIC_OP(Id, name, operands, results, attrs, rule, cost, form, \
                     weight, handler, doc)                                 \
  {name, operands, results, attrs, #handler},
#include "mosaic/ops.def"
#undef AT_MOSAIC_OP
};

// In every kernel, or in one of another operation.
static bool is_everywhere(const char *op) {
  static const char *const ops[] = {"builtin.module", "func.func",
                                    "func.return",    "scf.yield",
                                    "scf.condition",  "tpu.yield"};
  for (size_t i = 0; i < AT_LEN(ops); i++)
    if (!strcmp(ops[i], op)) return true;
  return false;
}

// One that is refused has no code; one that has code is run.
static void every_operation(void **state) {
  for (size_t i = 0; i < AT_LEN(all); i++) {
    bool runs = false, refused = false;
    if (!strcmp(all[i].handler, "each") || is_everywhere(all[i].name)) continue;
    for (uint32_t k = 0; k < num_samples; k++) {
      if (strcmp(samples[k].op, all[i].name) != 0) continue;
      runs |= samples[k].outcome == RUNS || samples[k].outcome == ENDS;
      refused |= samples[k].outcome == REFUSED;
    }
    if (!strcmp(all[i].handler, "none") ? !refused : !runs && !refused)
      fail_msg("no sample for %s", all[i].name);
  }
}

// Operands, results or attributes that a row asks for.
static bool asks(const char *list) {
  while (*list) {
    const char *end = strchr(list, ' ');
    size_t n = end ? (size_t)(end - list) : strlen(list);
    const char *colon = memchr(list, ':', n);
    if (colon && colon[-1] != '?' && colon[-1] != '*') return true;
    list += n + (end != NULL);
  }
  return false;
}

// Each without anything that it needs: by name, before code is written.
static void nothing_may_lack(void **state) {
  for (size_t i = 0; i < AT_LEN(all); i++) {
    if (!asks(all[i].operands) && !asks(all[i].results) && !asks(all[i].attrs))
      continue;
    char line[128];
    snprintf(line, sizeof line, "'%s'() : () -> ()\n", all[i].name);
    const sample s = {.op = all[i].name,
                      .rows = R,
                      .lanes = C,
                      .lines = line,
                      .outcome = INVALID,
                      .text = all[i].name};
    rt_kernel k = {{{"in", "5x37xi32", g_in, false}}, line, NULL, 0};
    g_sample = &s;
    fails(&k);
  }
}

int main(void) {
  at_cpu_limit(AT_CPU_AVX2 | AT_CPU_AVX512);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_operation),
      cmocka_unit_test(nothing_may_lack),
      cmocka_unit_test(every_sample),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// What one operation takes of each unit, against the figures of
// data/tpu/vector_unit.json and shapes counted by hand.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "tpu/rules_test_util.h"
#include "tpu/timing_internal.h"

extern const at_bytes at_tpu_unit_files[];

static const at_json *g_figures, *g_chip;
static at_tpu_chip g_v5e;

static int begin(void **state) {
  static at_arena *a;
  const at_json *all;
  const at_machine *m;
  a = at_arena_create();
  *state = a;
  if (!a || at_code_take(at_json_parse(at_tpu_unit_files[0], a, &all)) ||
      at_code_take(at_machine_find(AT_STR("v5e"), &m)) ||
      at_code_take(at_tpu_chip_of(m, &g_v5e)) ||
      at_code_take(at_ms_units_load()))
    return -1;
  g_figures = at_json_get(all, "figures");
  g_chip = at_json_get(at_json_get(all, "chips"), "v5e");
  return 0;
}
static int end(void **state) {
  at_arena_destroy(*state);
  return 0;
}

// A figure of the units, or of the chip.
static double fig(const char *name) {
  const at_json *of = at_json_get(g_figures, name) ? g_figures : g_chip;
  return at_coefficient(of, name, "data/tpu/vector_unit.json");
}

// The operations of that name in a body, all of them one after the other.
typedef struct took {
  at_mosaic_units u;
  at_ms_latency latency;
  double flops;
} took;
static took take(at_arena *a, const refused *r, const char *name) {
  took t = {{0}, {0}, 0};
  const at_mblock *b = kernel_of(a, r)->programs[0].body;
  bool found = false;
  for (uint32_t i = 0; i < b->num_ops; i++) {
    // By number: names may be upgraded when they are read.
    if (at_mosaic_opcode_of(b->ops[i]) != at_mosaic_opcode_find(name)) continue;
    found = true;
    assert_int_equal(at_code_take(at_ms_units_add(b->ops[i], &g_v5e, a, &t.u,
                                                  &t.latency, &t.flops)),
                     0);
  }
  if (!found) fail_msg("no %s in %s", name, r->body);
  return t;
}

static void expect(const char *what, double got, double want) {
  if (fabs(got - want) > 1e-9 * fmax(1, fabs(want)))
    fail_msg("%s: %.12g, not %.12g", what, got, want);
}

#define IN(size) "memref<" size ", in:vmem>"
#define LOAD(size)                                 \
  "%x = 'vector.load'(%a, %i, %i) : (memref<" size \
  ", in:vmem>, index, index)"                      \
  " -> vector<" size ">\n"

// 64 x 512 words are 8 x 4 registers; bf16 packs two rows into one.
static void elementwise(void **state) {
  const double slots = fig("vector_slots"), convert = fig("convert");
  static const refused add = {
      NULL, NULL, {IN("64x512xf32")},
      LOAD("64x512xf32") "%y = 'arith.addf'(%x, %x) : (vector<64x512xf32>, "
                         "vector<64x512xf32>) -> vector<64x512xf32>\n"};
  static const refused narrow = {
      NULL, NULL, {IN("64x512xbf16")},
      LOAD("64x512xbf16") "%y = 'arith.addf'(%x, %x) : (vector<64x512xbf16>, "
                          "vector<64x512xbf16>) -> vector<64x512xbf16>\n"};
  static const refused number = {
      NULL, NULL, {"S:i32"}, "%y = 'arith.addi'(%n, %n) : (i32, i32) -> i32\n"};
  took t = take(*state, &add, "arith.addf");
  expect("words", t.u.vector, 32 / slots);
  expect("no other unit", t.u.xlu + t.u.eup + t.u.load + t.u.scalar, 0);
  expect("loads", take(*state, &add, "vector.load").u.load,
         32 / fig("load_slots"));
  // Both operands are widened, the result is narrowed.
  expect("bf16", take(*state, &narrow, "arith.addf").u.vector,
         (32 + 96 * convert) / slots);
  expect("bf16 loads", take(*state, &narrow, "vector.load").u.load,
         16 / fig("load_slots"));
  t = take(*state, &number, "arith.addi");
  expect("a number", t.u.scalar, 1 / fig("scalar_slots"));
  expect("a number, no vector", t.u.vector, 0);
}

static void transcendental(void **state) {
  static const struct {
    const char *op, *work;
    double times;
    bool two;
  } rows[] = {
      {"math.exp", "eup_work", 1, false}, {"math.tanh", "eup_work", 1, false},
      {"math.rsqrt", "root", 1, false},   {"math.sqrt", "root", 1, false},
      {"math.erf", "erf", 1, false},      {"arith.divf", "divide", 1, true},
      {"math.powf", "power", 2, true}};
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    const char *v = "vector<64x512xf32>";
    const char *body = at_arena_printf(
        *state, "%s%%y = '%s'(%s) : (%s%s%s) -> %s\n", LOAD("64x512xf32"),
        rows[i].op, rows[i].two ? "%x, %x" : "%x", v, rows[i].two ? ", " : "",
        rows[i].two ? v : "", v);
    const refused r = {NULL, NULL, {IN("64x512xf32")}, body};
    const took t = take(*state, &r, rows[i].op);
    expect(rows[i].op, t.u.eup, 32 * rows[i].times / fig("eup_slots"));
    expect(rows[i].op, t.u.vector,
           32 * fig(rows[i].work) / fig("vector_slots"));
  }
}

// A sum of `from` along the dimensions, into `to`.
static took sum(void *a, const char *from, const char *dims, const char *to,
                int times) {
  at_strbuf b = {0};
  int rank = 1;
  for (const char *c = from; *c; c++) rank += *c == 'x';
  rank--;  // the element's
  at_strbuf_addf(&b,
                 "%%x = 'vector.load'(%%a%s) : (memref<%s, in:vmem>%s) -> "
                 "vector<%s>\n",
                 rank == 3 ? ", %i, %i, %i" : ", %i, %i", from,
                 rank == 3 ? ", index, index, index" : ", index, index", from);
  at_strbuf_addf(&b,
                 "%%z = 'arith.constant'() {value = dense<0.0> : "
                 "vector<%s>} : () -> vector<%s>\n",
                 to, to);
  for (int i = 0; i < times; i++)
    at_strbuf_addf(&b,
                   "%%y%d = 'vector.multi_reduction'(%%x, %%z) {kind = "
                   "#vector.kind<add>, reduction_dims = [%s]} : (vector<%s>, "
                   "vector<%s>) -> vector<%s>\n",
                   i, dims, from, to, to);
  const refused r = {NULL,
                     NULL,
                     {at_arena_printf(a, "memref<%s, in:vmem>", from)},
                     at_arena_printf(a, "%s", b.ptr)};
  at_strbuf_free(&b);
  return take(a, &r, "vector.multi_reduction");
}

static void reductions(void **state) {
  const double slots = fig("vector_slots"), xlu = fig("xlu_slots"),
               lane = fig("lane_steps"), sub = fig("sublane_steps"),
               latency = fig("reduce_latency");
  // Lanes: 4 columns of registers become one, which crosses.
  took t = sum(*state, "64x512xf32", "1", "64xf32", 1);
  expect("lanes", t.u.xlu, 8 * lane / xlu);
  expect("lanes", t.u.vector, (32 + 8 * lane) / slots);
  expect("lanes wait", t.latency.cycles, latency);
  // Sublanes: 8 rows of registers become one; nobody waits.
  t = sum(*state, "64x512xf32", "0", "512xf32", 1);
  expect("sublanes", t.u.xlu, 4 * sub / xlu);
  expect("sublanes", t.u.vector, (32 + 4 * sub) / slots);
  expect("sublanes do not wait", t.latency.cycles, 0);
  t = sum(*state, "2x64x512xf32", "1, 2", "2xf32", 1);
  expect("both", t.u.xlu, 2 * (sub + lane) / xlu);
  // Leading dimensions: whole registers.
  t = sum(*state, "2x64x512xf32", "0", "64x512xf32", 1);
  expect("leading", t.u.xlu, 0);
  expect("leading", t.u.vector, 64 / slots);
  // Of two that do not wait for each other the second hides most of it.
  t = sum(*state, "64x512xf32", "1", "64xf32", 2);
  expect("two", t.latency.cycles, latency * (1 + fig("again")));
}

// Moves of 64 x 512 words; `to` is the result.
typedef struct move {
  const char *op, *attrs, *from, *to;
  double crossings;
} move;

static void moves(void **state) {
  static const move rows[] = {
      {"vector.shape_cast", "", "64x512xf32", "8x8x512xf32", 0},
      {"vector.shape_cast", "", "64x512xf32", "128x256xf32", 32},
      {"vector.shape_cast", "", "64x512xf32", "16x4x512xf32", 64},
      {"tpu.transpose", "{permutation = array<i64: 1, 0>}", "64x512xf32",
       "512x64xf32", 64},
      {"tpu.transpose", "{permutation = array<i64: 1, 0, 2>}", "2x64x512xf32",
       "64x2x512xf32", 256},
      {"tpu.transpose", "{permutation = array<i64: 1, 0, 2, 3>}",
       "2x3x64x128xf32", "3x2x64x128xf32", 0},
      {"vector.extract_strided_slice",
       "{offsets = [8, 128], sizes = [8, 128], strides = [1, 1]}", "64x512xf32",
       "8x128xf32", 0},
      {"vector.extract_strided_slice",
       "{offsets = [4, 0], sizes = [16, 128], strides = [1, 1]}", "64x512xf32",
       "16x128xf32", 2},
      {"vector.extract_strided_slice",
       "{offsets = [0, 64], sizes = [16, 128], strides = [1, 1]}", "64x512xf32",
       "16x128xf32", 2},
  };
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    const move *m = &rows[i];
    int from = 0, to = 0;
    for (const char *c = m->from; *c; c++) from += *c == 'x';
    for (const char *c = m->to; *c; c++) to += *c == 'x';
    const char *is = ", %i, %i, %i, %i", *ts = ", index, index, index, index";
    // It is stored, as what nobody reads is dropped when the kernel is read.
    const char *body = at_arena_printf(
        *state,
        "%%x = 'vector.load'(%%a%.*s) : (memref<%s, in:vmem>%.*s) -> "
        "vector<%s>\n%%y = '%s'(%%x) %s : (vector<%s>) -> vector<%s>\n"
        "'vector.store'(%%y, %%b%.*s) : (vector<%s>, memref<%s, in:vmem>%.*s) "
        "-> ()\n",
        4 * from, is, m->from, 7 * from, ts, m->from, m->op, m->attrs, m->from,
        m->to, 4 * to, is, m->to, m->to, 7 * to, ts);
    const refused r = {NULL,
                       NULL,
                       {at_arena_printf(*state, "memref<%s, in:vmem>", m->from),
                        at_arena_printf(*state, "memref<%s, in:vmem>", m->to)},
                       body};
    const took t = take(*state, &r, m->op);
    expect(at_arena_printf(*state, "%s to %s", m->op, m->to), t.u.xlu,
           m->crossings / fig("xlu_slots"));
    bool waits = !strcmp(m->op, "tpu.transpose") && m->crossings > 0;
    expect("waits", t.latency.cycles, waits ? fig("transpose_latency") : 0);
  }
}

// Along lanes a source crosses, unless a reduction has left its number in every
// lane; along rows it is copied; a number goes to all lanes as it is used.
static void broadcasts(void **state) {
  static const struct {
    const char *from;
    double crossed, copied;
  } rows[] = {{"64x1", 8, 0}, {"1x512", 0, 4}, {"1x1", 1, 1}, {"64x512", 0, 0}};
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    const char *from = rows[i].from;
    const refused r = {
        NULL,
        NULL,
        {at_arena_printf(*state, "memref<%sxf32, in:vmem>", from)},
        at_arena_printf(
            *state,
            "%%x = 'vector.load'(%%a, %%i, %%i) : (memref<%sxf32, in:vmem>, "
            "index, index) -> vector<%sxf32>\n"
            "%%y = 'vector.broadcast'(%%x) : (vector<%sxf32>) -> "
            "vector<64x512xf32>\n",
            from, from, from)};
    const took t = take(*state, &r, "vector.broadcast");
    expect(from, t.u.xlu,
           rows[i].crossed * fig("lane_spread") / fig("xlu_slots"));
    expect(from, t.u.vector,
           rows[i].copied * fig("sublane_spread") / fig("vector_slots"));
  }
  static const refused spread = {
      NULL, NULL, {IN("64x512xf32")},
      LOAD("64x512xf32")
      "%z = 'arith.constant'() {value = dense<0.0> : vector<64xf32>} : () -> "
      "vector<64xf32>\n"
      "%s = 'vector.multi_reduction'(%x, %z) {kind = #vector.kind<add>, "
      "reduction_dims = [1]} : (vector<64x512xf32>, vector<64xf32>) -> "
      "vector<64xf32>\n"
      "%c = 'vector.shape_cast'(%s) : (vector<64xf32>) -> vector<64x1xf32>\n"
      "%y = 'vector.broadcast'(%c) : (vector<64x1xf32>) -> "
      "vector<64x512xf32>\n"};
  expect("after a reduction", take(*state, &spread, "vector.broadcast").u.xlu,
         0);
}

// Passes of the matrix unit, by precision; the operations are the same.
static void products(void **state) {
  static const struct {
    const char *precision;
    double passes;
  } rows[] = {{"", 1},
              {"{precision = #tpu.contract_precision<bf16>} ", 1},
              {"{precision = #tpu.contract_precision<fp32>} ", 6}};
  double once = 0;
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    const refused r = {
        NULL,
        NULL,
        {IN("128x128xf32")},
        at_arena_printf(*state,
                        "%s%%y = 'tpu.matmul'(%%x, %%x, %%x) %s: "
                        "(vector<128x128xf32>, vector<128x128xf32>, "
                        "vector<128x128xf32>) -> vector<128x128xf32>\n",
                        LOAD("128x128xf32"), rows[i].precision)};
    const took t = take(*state, &r, "tpu.matmul");
    if (!i) once = t.u.matrix;
    assert_true(once > 0);
    expect(rows[i].precision, t.u.matrix, once * rows[i].passes);
    expect("flops", t.flops, 2.0 * 128 * 128 * 128);
    expect("latency", t.latency.cycles, fig("product_latency"));
  }
}

// Units side by side: at least the longest, at most all of them.
static void units_overlap(void **state) {
  expect("nothing", at_ms_beside(0, 0), 0);
  expect("alone", at_ms_beside(7, 0), 7);
  expect("alone", at_ms_beside(0, 7), 7);
  double both = at_ms_beside(3, 4);
  assert_true(both > 4 && both < 7);
  expect("either way", at_ms_beside(4, 3), both);
  expect("of equals", at_ms_beside(5, 5), 5 * pow(2, 1 / fig("overlap")));
  at_mosaic_units a = {.scalar = 1,
                       .vector = 2,
                       .xlu = 3,
                       .eup = 4,
                       .load = 5,
                       .store = 6,
                       .matrix = 7},
                  b = a;
  at_ms_units_sum(&a, &b);
  assert_true(a.scalar == 2 && a.vector == 4 && a.xlu == 6 && a.eup == 8 &&
              a.load == 10 && a.store == 12 && a.matrix == 14);
  double time = at_ms_units_time(&b);
  assert_true(time > 7 && time < 28);
  const at_ms_copy c = {.rate = 10, .rate_of_all = 40};
  expect("one copy", at_ms_copy_time(&c, 100, 100), 10);
  expect("many copies", at_ms_copy_time(&c, 100, 800), 20);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(elementwise),   cmocka_unit_test(transcendental),
      cmocka_unit_test(reductions),    cmocka_unit_test(moves),
      cmocka_unit_test(broadcasts),    cmocka_unit_test(products),
      cmocka_unit_test(units_overlap),
  };
  return cmocka_run_group_tests(tests, begin, end);
}

// Programs: values, cycles of loops and branches, memory over time, wrong use.
#include <math.h>

#include "base/arena.h"
#include "tiles/tiles_test_util.h"

// Two variables of one size and a compute set.
typedef struct fixture {
  at_tiles_graph *g;
  const at_tiles_view *x, *y;
  at_tiles_set *set;
} fixture;

// Fails the test where there is none.
static const at_tiles_codelet *codelet(const char *name) {
  const at_tiles_codelet *c;
  ok(at_tiles_codelet_find(name, &c));
  return c;
}

// Nothing is mapped yet.
static fixture pair(int64_t n) {
  fixture f = {.g = graph()};
  f.x = variable(f.g, "x", DIMS(n));
  f.y = variable(f.g, "y", DIMS(n));
  ok(at_tiles_set_add(f.g, "step", &f.set));
  return f;
}

// The set alone as a program.
static at_status compile(fixture *f, const at_tiles_plan **plan) {
  at_tiles_program *p;
  AT_TRY(at_tiles_program_execute(f->set, &p));
  return at_tiles_compile(f->g, p, NULL, plan);
}

// ---- Values
static void values_go_through_views(void **state) {
  fixture f = pair(1000);
  const at_tiles_view *back;
  float in[1000], out[1000];
  ok(at_tiles_mapping_linear(f.x, 0, 0));
  ok(at_tiles_mapping_linear(f.y, 0, 0));
  ok(at_tiles_view_reverse(f.x, 0, &back));
  ok(at_tiles_map_elementwise(f.set, codelet("subtract"),
                              (const at_tiles_view *[]){f.x, back}, f.y, NULL));
  for (int i = 0; i < 1000; i++) in[i] = (float)(i * i);
  ok(at_tiles_write(f.x, in, sizeof in));
  at_tiles_program *p;
  int64_t cycles, again;
  at_pool *pool;
  ok(at_tiles_program_execute(f.set, &p));
  ok(at_pool_create(3, &pool));
  ok(at_tiles_run_program(f.g, p, pool, &cycles));
  ok(at_tiles_read(f.y, out, sizeof out));
  for (int i = 0; i < 1000; i++) assert_true(out[i] == in[i] - in[999 - i]);
  ok(at_tiles_run_program(f.g, p, NULL, &again));
  assert_int_equal(cycles, again);
  at_pool_destroy(pool);
  at_tiles_graph_destroy(f.g);
}

// By hand, in integers that floats hold.
static void products_and_sums(void **state) {
  at_tiles_graph *g = graph();
  const at_tiles_view *a = variable(g, "a", DIMS(5, 7)),
                      *b = variable(g, "b", DIMS(7, 3)),
                      *c = variable(g, "c", DIMS(5, 3)),
                      *s = variable(g, "s", DIMS(3));
  const at_tiles_view *all[] = {a, b, c, s};
  for (int i = 0; i < 4; i++) ok(at_tiles_mapping_set(all[i], (uint32_t)i));
  at_tiles_set *s1, *s2;
  at_tiles_program *seq, *p;
  ok(at_tiles_set_add(g, "product", &s1));
  ok(at_tiles_set_add(g, "sum", &s2));
  ok(at_tiles_vertex_add(s1, codelet("product"), 9, all, (double[]){0}));
  ok(at_tiles_vertex_add(s2, codelet("sum"), 3, all + 2, NULL));
  ok(at_tiles_program_sequence(g, &seq));
  ok(at_tiles_program_execute(s1, &p));
  ok(at_tiles_program_add(seq, p));
  ok(at_tiles_program_execute(s2, &p));
  ok(at_tiles_program_add(seq, p));
  float x[35], y[21], out[3];
  for (int i = 0; i < 35; i++) x[i] = (float)(i % 11) - 4;
  for (int i = 0; i < 21; i++) y[i] = (float)(i % 5) - 2;
  ok(at_tiles_write(a, x, sizeof x));
  ok(at_tiles_write(b, y, sizeof y));
  int64_t cycles;
  ok(at_tiles_run_program(g, seq, NULL, &cycles));
  ok(at_tiles_read(s, out, sizeof out));
  for (int n = 0; n < 3; n++) {
    float want = 0;
    for (int m = 0; m < 5; m++)
      for (int k = 0; k < 7; k++) want += x[m * 7 + k] * y[k * 3 + n];
    assert_true(out[n] == want);
  }
  const at_tiles_plan *plan;
  ok(at_tiles_compile(g, seq, NULL, &plan));
  assert_int_equal(plan->num_steps, 2);
  assert_int_equal(plan->cycles, cycles);
  assert_true(plan->steps[0].exchange_bytes ==
              4 * (35 + 21 + 15 + 15));  // in/out field both ways
  at_tiles_graph_destroy(g);
}

// NaN, infinities and -0 through a relu.
static void special_values_survive(void **state) {
  fixture f = pair(6);
  float in[6] = {NAN, INFINITY, -INFINITY, -0.0f, 1, -1}, out[6];
  ok(at_tiles_mapping_set(f.x, 0));
  ok(at_tiles_mapping_set(f.y, 0));
  ok(at_tiles_map_elementwise(f.set, codelet("relu"), &f.x, f.y, NULL));
  ok(at_tiles_write(f.x, in, sizeof in));
  at_tiles_program *p;
  int64_t cycles;
  ok(at_tiles_program_execute(f.set, &p));
  ok(at_tiles_run_program(f.g, p, NULL, &cycles));
  ok(at_tiles_read(f.y, out, sizeof out));
  assert_true(out[0] != out[0] && out[1] == INFINITY && out[2] == 0 &&
              out[3] == 0 && out[4] == 1 && out[5] == 0);
  at_tiles_graph_destroy(f.g);
}

// x = x + 1 five times, then a branch on x[0]: taken, x = -x; not taken,
// nothing.
static void loops_and_branches(void **state) {
  for (int taken = 0; taken < 2; taken++) {
    fixture f = pair(64);
    const at_tiles_view *pred = variable(f.g, "pred", DIMS(1));
    at_tiles_set *flip;
    at_tiles_program *body, *copy, *loop, *seq, *turn, *branch;
    float in[64] = {0}, out[64], yes = (float)taken;
    ok(at_tiles_mapping_linear(f.x, 0, 0));
    ok(at_tiles_mapping_linear(f.y, 0, 0));
    ok(at_tiles_mapping_set(pred, 0));
    ok(at_tiles_map_elementwise(f.set, codelet("offset"), &f.x, f.y,
                                (double[]){1}));
    ok(at_tiles_program_execute(f.set, &body));
    ok(at_tiles_program_copy(f.y, f.x, &copy));
    ok(at_tiles_program_sequence(f.g, &seq));
    ok(at_tiles_program_add(seq, body));
    ok(at_tiles_program_add(seq, copy));
    ok(at_tiles_program_repeat(5, seq, &loop));
    ok(at_tiles_set_add(f.g, "flip", &flip));
    ok(at_tiles_map_elementwise(flip, codelet("negate"), &f.x, f.y, NULL));
    ok(at_tiles_program_execute(flip, &turn));
    ok(at_tiles_program_branch(pred, turn, NULL, &branch));
    ok(at_tiles_program_sequence(f.g, &seq));
    ok(at_tiles_program_add(seq, loop));
    ok(at_tiles_program_add(seq, branch));
    expect(at_tiles_program_add(seq, seq), AT_INVALID_ARGUMENT,
           "not inside it");
    ok(at_tiles_write(f.x, in, sizeof in));
    ok(at_tiles_write(pred, &yes, sizeof yes));
    int64_t cycles;
    const at_tiles_plan *plan;
    ok(at_tiles_run_program(f.g, seq, NULL, &cycles));
    ok(at_tiles_read(f.y, out, sizeof out));
    for (int i = 0; i < 64; i++) assert_true(out[i] == (taken ? -5 : 5));
    ok(at_tiles_compile(f.g, seq, NULL, &plan));
    assert_int_equal(plan->num_steps, 3);
    assert_int_equal(plan->steps[0].times, 5);
    if (taken)
      assert_int_equal(plan->cycles, cycles);
    else
      assert_true(cycles < plan->cycles);  // the plan takes the dearer way
    at_tiles_graph_destroy(f.g);
  }
}

// A copy that turns order round inside a tile costs a copy; one in order only
// moves.
static void copies_cost_what_they_move(void **state) {
  fixture f = pair(1000);
  const at_tiles_view *back;
  at_tiles_program *p;
  const at_tiles_plan *plan;
  ok(at_tiles_mapping_set(f.x, 1));
  ok(at_tiles_mapping_set(f.y, 2));
  ok(at_tiles_program_copy(f.x, f.y, &p));
  ok(at_tiles_compile(f.g, p, NULL, &plan));
  assert_int_equal(plan->cycles, 600 + 1000);
  ok(at_tiles_view_reverse(f.x, 0, &back));
  ok(at_tiles_program_copy(back, f.y, &p));
  ok(at_tiles_compile(f.g, p, NULL, &plan));
  assert_int_equal(plan->cycles, 600 + 1000 + 288 + 500);
  at_tiles_graph_destroy(f.g);
}

// Temporaries of different times share space; nothing that lives together
// overlaps.
static void memory_is_shared_over_time(void **state) {
  enum { kLinks = 8, kElements = 20000 };
  at_tiles_graph *g = graph();
  const at_tiles_view *v[kLinks + 1];
  at_tiles_program *seq, *p;
  ok(at_tiles_program_sequence(g, &seq));
  for (int i = 0; i <= kLinks; i++) {
    char name[8];
    snprintf(name, sizeof name, "v%d", i);
    v[i] = variable(g, name, DIMS(kElements));
    ok(at_tiles_mapping_set(v[i], 7));
    if (!i) continue;
    at_tiles_set *s;
    ok(at_tiles_set_add(g, name, &s));
    ok(at_tiles_map_elementwise(s, codelet("scale"), &v[i - 1], v[i],
                                (double[]){2}));
    ok(at_tiles_program_execute(s, &p));
    ok(at_tiles_program_add(seq, p));
  }
  ok(at_tiles_variable_flag(v[kLinks], AT_TILES_OUTPUT));
  const at_tiles_plan *plan;
  ok(at_tiles_compile(g, seq, NULL, &plan));
  assert_int_equal(plan->unshared_bytes, (kLinks + 1) * kElements * 4);
  assert_int_equal(plan->data_bytes, 2 * kElements * 4);
  for (uint32_t i = 0; i < plan->num_blocks; i++)
    for (uint32_t k = 0; k < i; k++) {
      const at_tiles_block *a = &plan->blocks[i], *b = &plan->blocks[k];
      bool together = a->first <= b->last && b->first <= a->last;
      bool overlap = a->at < b->at + b->bytes && b->at < a->at + a->bytes;
      assert_false(together && overlap);
      assert_int_equal(a->at % 8, 0);
    }
  at_tiles_graph_destroy(g);
}

// Code and tables of a compute set are there once, however many steps run it.
static void repeated_steps_share_code(void **state) {
  fixture f = pair(1000);
  at_tiles_program *once, *often;
  const at_tiles_plan *a, *b;
  ok(at_tiles_mapping_linear(f.x, 0, 0));
  ok(at_tiles_mapping_linear(f.y, 0, 0));
  ok(at_tiles_map_elementwise(f.set, codelet("copy"),
                              (const at_tiles_view *[]){f.x}, f.y, NULL));
  ok(at_tiles_program_execute(f.set, &once));
  ok(at_tiles_program_sequence(f.g, &often));
  for (int i = 0; i < 600; i++) ok(at_tiles_program_add(often, once));
  ok(at_tiles_compile(f.g, once, NULL, &a));
  ok(at_tiles_compile(f.g, often, NULL, &b));
  assert_int_equal(b->num_steps, 600);
  assert_int_equal(b->peak_bytes, a->peak_bytes);
  assert_memory_equal(b->categories[b->fullest], a->categories[a->fullest],
                      sizeof *a->categories);
  at_tiles_graph_destroy(f.g);
}

// Each sequence has the one before it twice: 2^64 ways lead to the first.
static void shared_programs_are_looked_at_once(void **state) {
  at_tiles_graph *g = graph();
  at_tiles_program *p[65];
  for (int i = 0; i < 65; i++) {
    ok(at_tiles_program_sequence(g, &p[i]));
    for (int k = 0; i && k < 2; k++) ok(at_tiles_program_add(p[i], p[i - 1]));
  }
  expect(at_tiles_program_add(p[0], p[64]), AT_INVALID_ARGUMENT, "inside it");
  at_tiles_graph_destroy(g);
}

// Fragments are used where they lie when that is cheaper, else rearranged.
static void fragments_are_weighed(void **state) {
  for (int many = 0; many < 2; many++) {
    fixture f = pair(8192);
    const at_tiles_view *t;
    const at_tiles_plan *plan;
    ok(at_tiles_mapping_set(f.x, 0));
    ok(at_tiles_mapping_set(f.y, 0));
    int64_t rows = many ? 4096 : 2;
    ok(at_tiles_view_reshape(f.x, DIMS(rows, 8192 / rows), &t));
    ok(at_tiles_view_reverse(t, 0, &t));
    ok(at_tiles_map_elementwise(f.set, codelet("negate"), &t, f.y, NULL));
    ok(compile(&f, &plan));
    if (many)
      assert_true(plan->steps[0].pre == 288 + 8192 / 2);
    else
      assert_true(plan->steps[0].pre == 0 &&
                  plan->steps[0].saved_cycles > 1000);
    at_tiles_graph_destroy(f.g);
  }
}

// A vector that begins in the middle of a word is copied; one on a word is not.
static void vectors_begin_on_words(void **state) {
  for (int64_t first = 0; first < 4; first++) {
    at_tiles_graph *g = graph();
    const at_tiles_view *x = variable(g, "x", DIMS(1000)),
                        *y = variable(g, "y", DIMS(900)), *part;
    at_tiles_set *set;
    at_tiles_program *p;
    const at_tiles_plan *plan;
    ok(at_tiles_mapping_set(x, 5));
    ok(at_tiles_mapping_set(y, 5));
    ok(at_tiles_view_slice(x, 0, first, first + 900, &part));
    ok(at_tiles_set_add(g, "negate", &set));
    ok(at_tiles_vertex_add(set, codelet("negate.vector"), 5,
                           (const at_tiles_view *[]){part, y}, NULL));
    ok(at_tiles_program_execute(set, &p));
    ok(at_tiles_compile(g, p, NULL, &plan));
    assert_int_equal(plan->steps[0].exchange, 0);
    assert_int_equal(plan->steps[0].pre, first % 2 ? 288 + 900 / 2 : 0);
    at_tiles_graph_destroy(g);
  }
}

// A caller's own codelet: y += p * x by one worker, two turns an element.
static int64_t axpy_cycles(const at_tiles_work *w) {
  return 20 + 2 * w->fields[1].elements;
}
static void axpy_run(const at_tiles_work *w) {
  const float *x = w->fields[0].data;
  float *y = w->fields[1].data;
  for (int64_t i = 0; i < w->fields[1].elements; i++)
    y[i] += (float)w->params[0] * x[i];
}

// A codelet of the user's runs and costs what it says.
static void codelets_of_ones_own(void **state) {
  static const at_tiles_field fields[] = {
      {"x", AT_TILES_IN, AT_TILES_REGIONS, 4},
      {"y", AT_TILES_INOUT, AT_TILES_VECTOR, 8}};
  static const at_tiles_codelet axpy = {
      "axpy", fields, 2, 1, false, true, 128, axpy_cycles, axpy_run};
  at_tiles_graph *g = graph();
  const at_tiles_view *x = variable(g, "x", DIMS(70)),
                      *y = variable(g, "y", DIMS(70)), *f[2];
  at_tiles_set *set;
  at_tiles_program *p;
  const at_tiles_plan *plan;
  float in[70], out[70];
  int64_t cycles;
  for (int i = 0; i < 70; i++) in[i] = (float)i;
  ok(at_tiles_mapping_set(x, 5));
  ok(at_tiles_mapping_set(y, 5));
  ok(at_tiles_set_add(g, "axpy", &set));
  for (int i = 0; i < 7; i++) {  // seven vertices for six workers
    ok(at_tiles_view_slice(x, 0, 10 * i, 10 * i + 10, &f[0]));
    ok(at_tiles_view_slice(y, 0, 10 * i, 10 * i + 10, &f[1]));
    ok(at_tiles_vertex_add(set, &axpy, 5, f, (double[]){3}));
  }
  ok(at_tiles_write(x, in, sizeof in));
  ok(at_tiles_write(y, in, sizeof in));
  ok(at_tiles_program_execute(set, &p));
  ok(at_tiles_compile(g, p, NULL, &plan));
  ok(at_tiles_run_program(g, p, NULL, &cycles));
  ok(at_tiles_read(y, out, sizeof out));
  for (int i = 0; i < 70; i++) assert_true(out[i] == 4 * in[i]);
  assert_int_equal(plan->cycles, 6 * 2 * (20 + 2 * 10));
  assert_int_equal(plan->cycles, cycles);
  assert_int_equal(plan->categories[5][AT_TILES_MEM_CODE], 128);
  at_tiles_graph_destroy(g);
}

// ---- Wrong use
static void unmapped_tensors_are_named(void **state) {
  fixture f = pair(100);
  const at_tiles_plan *plan;
  const at_tiles_view *half;
  ok(at_tiles_mapping_set(f.y, 3));
  ok(at_tiles_view_slice(f.x, 0, 0, 40, &half));
  ok(at_tiles_mapping_set(half, 3));
  ok(at_tiles_vertex_add(f.set, codelet("negate"), 3,
                         (const at_tiles_view *[]){f.x, f.y}, NULL));
  expect(compile(&f, &plan), AT_FAILED_PRECONDITION, "tensor x", "[40, 100)",
         "step", "tile 3");
  at_tiles_program *p;
  ok(at_tiles_program_copy(f.x, f.y, &p));
  expect(at_tiles_compile(f.g, p, NULL, &plan), AT_FAILED_PRECONDITION,
         "tensor x", "[40, 100)");
  at_tiles_graph_destroy(f.g);
}

// In one compute set no two vertices write an element.
static void two_writers_are_named(void **state) {
  fixture f = pair(100);
  const at_tiles_plan *plan;
  const at_tiles_view *in[2], *out[2];
  ok(at_tiles_mapping_set(f.x, 3));
  ok(at_tiles_mapping_set(f.y, 3));
  for (int i = 0; i < 2; i++) {
    ok(at_tiles_view_slice(f.x, 0, 40 * i, 40 * i + 60, &in[i]));
    ok(at_tiles_view_slice(f.y, 0, 40 * i, 40 * i + 60, &out[i]));
    ok(at_tiles_vertex_add(f.set, codelet("negate"), 3 + (uint32_t)i,
                           (const at_tiles_view *[]){in[i], out[i]}, NULL));
  }
  expect(compile(&f, &plan), AT_FAILED_PRECONDITION, "tensor y", "[40, 60)",
         "tile 3", "tile 4", "written");
  at_tiles_graph_destroy(f.g);
  f = pair(100);
  ok(at_tiles_mapping_set(f.x, 3));
  ok(at_tiles_mapping_set(f.y, 3));
  ok(at_tiles_vertex_add(f.set, codelet("negate"), 3,
                         (const at_tiles_view *[]){f.x, f.y}, NULL));
  ok(at_tiles_vertex_add(f.set, codelet("negate"), 5,
                         (const at_tiles_view *[]){f.y, f.x}, NULL));
  expect(compile(&f, &plan), AT_FAILED_PRECONDITION, "tile 3", "tile 5",
         "read");
  at_tiles_graph_destroy(f.g);
}

// In mappings and vertices.
static void tiles_out_of_range_are_named(void **state) {
  fixture f = pair(10);
  expect(at_tiles_mapping_set(f.x, 1472), AT_OUT_OF_RANGE, "tensor x",
         "tile 1472", "1472 tiles");
  expect(at_tiles_vertex_add(f.set, codelet("negate"), 4000,
                             (const at_tiles_view *[]){f.x, f.y}, NULL),
         AT_OUT_OF_RANGE, "tile 4000", "step");
  at_tiles_graph_destroy(f.g);
}

// RESOURCE_EXHAUSTED that says where.
static void over_memory_names_tile_step_and_tensors(void **state) {
  fixture f = pair(100000);
  const at_tiles_plan *plan;
  ok(at_tiles_mapping_set(f.x, 11));
  ok(at_tiles_mapping_set(f.y, 11));
  ok(at_tiles_map_elementwise(f.set, codelet("negate"), &f.x, f.y, NULL));
  expect(compile(&f, &plan), AT_RESOURCE_EXHAUSTED, "tile 11", "638976", "step",
         "x (variables) 400000", "y (variables) 400000");
  at_tiles_program *p;
  ok(at_tiles_program_execute(f.set, &p));
  ok(at_tiles_compile(f.g, p, &(at_tiles_options){.lenient = true}, &plan));
  assert_true(plan->peak_bytes > 638976);
  at_tiles_graph_destroy(f.g);
}

// Each with a part of what is said.
static void wrong_programs_are_refused(void **state) {
  fixture f = pair(10);
  const at_tiles_view *z = variable(f.g, "z", DIMS(9)), *i;
  const at_tiles_codelet *c;
  at_tiles_program *p;
  ok(at_tiles_variable_add(f.g, "i", AT_S32, DIMS(10), &i));
  expect(at_tiles_codelet_find("sinh", &c), AT_NOT_FOUND, "sinh",
         "subtract_from");
  expect(at_tiles_vertex_add(f.set, codelet("add"), 0,
                             (const at_tiles_view *[]){f.x, z, f.y}, NULL),
         AT_INVALID_ARGUMENT, "field b", "9 elements");
  expect(at_tiles_vertex_add(f.set, codelet("exponential"), 0,
                             (const at_tiles_view *[]){i, i}, NULL),
         AT_UNIMPLEMENTED, "exponential", "i32");
  expect(at_tiles_vertex_add(f.set, codelet("product"), 0,
                             (const at_tiles_view *[]){f.x, f.x, f.y},
                             (double[]){0}),
         AT_INVALID_ARGUMENT, "a[m,k]");
  expect(at_tiles_map_elementwise(f.set, codelet("negate"), &z, f.y, NULL),
         AT_INVALID_ARGUMENT, "9 elements");
  expect(at_tiles_map_elementwise(f.set, codelet("negate"), &f.x, f.y, NULL),
         AT_FAILED_PRECONDITION, "tensor y");
  expect(at_tiles_program_copy(f.x, z, &p), AT_INVALID_ARGUMENT, "10 elements");
  expect(at_tiles_program_branch(f.x, NULL, NULL, &p), AT_INVALID_ARGUMENT,
         "10 elements");
  at_tiles_graph_destroy(f.g);
}

// Machines without tiles, or without a figure, which is named.
static void other_machines(void **state) {
  const at_machine *m;
  at_tiles_machine t;
  ok(at_machine_find(AT_STR("v5e"), &m));
  expect(at_tiles_machine_read(m, &t), AT_FAILED_PRECONDITION, "v5e", "mk2");
  at_arena *a = at_arena_create();
  at_machine own;
  const char *text =
      "{\"name\":\"toy\",\"platform\":\"ipu\",\"tiles\":{\"value\":4,"
      "\"source\":\"here\"}}";
  ok(at_machine_read((at_bytes){(const uint8_t *)text, strlen(text)}, a, &own));
  expect(at_tiles_machine_read(&own, &t), AT_FAILED_PRECONDITION, "toy",
         "sram_bytes_per_tile");
  at_arena_destroy(a);
}

// Nothing to do takes no cycles.
static void empty_things(void **state) {
  fixture f = pair(0);
  const at_tiles_plan *plan;
  ok(at_tiles_mapping_linear(f.x, 0, 0));
  ok(at_tiles_map_elementwise(f.set, codelet("negate"), &f.x, f.y, NULL));
  ok(compile(&f, &plan));
  assert_int_equal(plan->cycles, 0);
  at_tiles_graph_destroy(f.g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(values_go_through_views),
      cmocka_unit_test(products_and_sums),
      cmocka_unit_test(special_values_survive),
      cmocka_unit_test(loops_and_branches),
      cmocka_unit_test(copies_cost_what_they_move),
      cmocka_unit_test(memory_is_shared_over_time),
      cmocka_unit_test(repeated_steps_share_code),
      cmocka_unit_test(shared_programs_are_looked_at_once),
      cmocka_unit_test(fragments_are_weighed),
      cmocka_unit_test(vectors_begin_on_words),
      cmocka_unit_test(codelets_of_ones_own),
      cmocka_unit_test(unmapped_tensors_are_named),
      cmocka_unit_test(two_writers_are_named),
      cmocka_unit_test(tiles_out_of_range_are_named),
      cmocka_unit_test(over_memory_names_tile_step_and_tensors),
      cmocka_unit_test(wrong_programs_are_refused),
      cmocka_unit_test(other_machines),
      cmocka_unit_test(empty_things),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

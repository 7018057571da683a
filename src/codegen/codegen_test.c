// The generator itself: sharing of kernels, plans, aliasing, comparators,
// refusals.
#include "codegen/check.h"
#include "codegen/stream.h"

// For the checker's CPU, with LLVM's verifier on.
static at_cg *generator(ck *c, uint32_t threads) {
  at_cg_target t = {.cpu_features = c->features,
                    .threads = threads,
                    .opt_level = 2,
                    .verify = true};
  at_cg *cg;
  ck_ok(at_cg_create(&t, &cg));
  return cg;
}

// A node of two fresh parameters of n floats.
static at_node *add_of(ck *c, int64_t n, at_op op) {
  at_type t = ck_type(c, AT_F32, 1, &n);
  at_value v[2] = {ck_param(c, t), ck_param(c, t)}, r;
  ck_ok(at_build_op(c->comp, NULL, op, v, 2, NULL, &r));
  return r.node;
}

// Ends a checker whose cases are not run.
static void leave(ck *c, at_cg *cg) {
  at_cg_destroy(cg);
  free(c->cases);
  at_arena_destroy(c->arena);
}

// Nodes of one op and shape are one kernel; another size, another op, or a
// result in an operand's place is another.
static void test_equal_nodes_share(void **state) {
  ck c;
  ck_begin(&c, ~0ull);
  at_cg *cg = generator(&c, 2);
  at_cg_plan a, b, d, e, f;
  int32_t in_place = 0;
  at_node *first = add_of(&c, 100, AT_OP_ADD);
  ck_ok(at_cg_node(cg, first, NULL, c.arena, &a));
  ck_ok(at_cg_node(cg, add_of(&c, 100, AT_OP_ADD), NULL, c.arena, &b));
  ck_ok(at_cg_node(cg, add_of(&c, 101, AT_OP_ADD), NULL, c.arena, &d));
  ck_ok(at_cg_node(cg, add_of(&c, 100, AT_OP_MULTIPLY), NULL, c.arena, &e));
  ck_ok(at_cg_node(cg, first, &in_place, c.arena, &f));
  assert_int_equal(a.launches[0].kernel, b.launches[0].kernel);
  assert_int_not_equal(a.launches[0].kernel, d.launches[0].kernel);
  assert_int_not_equal(a.launches[0].kernel, e.launches[0].kernel);
  assert_int_not_equal(a.launches[0].kernel, f.launches[0].kernel);
  at_cg_output out;
  ck_ok(at_cg_finish(cg, c.arena, &out));
  assert_int_equal(out.num_kernels, 4);
  leave(&c, cg);
}

// Threads get the tasks of a kernel in chunks of which none is much shorter
// than the others.
static void test_chunks_are_even(void **state) {
  ck c;
  ck_begin(&c, ~0ull);
  at_cg *cg = generator(&c, 2);
  uint32_t shared = 0;
  for (int64_t n = 50000; n < 2000000; n = n * 5 / 4 + 1) {
    at_cg_plan p;
    ck_ok(at_cg_node(cg, add_of(&c, n, AT_OP_ADD), NULL, c.arena, &p));
    for (uint32_t i = 0; i < p.num_launches; i++) {
      int64_t tasks = p.launches[i].tasks, grain = p.launches[i].grain;
      int64_t chunks = at_ceil_div(tasks, grain);
      assert_int_equal(grain, at_ceil_div(tasks, chunks));
      shared += chunks > 1;
    }
  }
  assert_true(shared > 5);
  leave(&c, cg);
}

// How a launch of one node over n elements is shared: chunks of its tasks.
static int64_t chunks_of(ck *c, const at_cg_target *t, const at_node *n) {
  at_cg *cg;
  at_cg_plan p;
  ck_ok(at_cg_create(t, &cg));
  ck_ok(at_cg_node(cg, n, NULL, c->arena, &p));
  assert_int_equal(p.num_launches, 1);
  int64_t chunks = at_ceil_div(p.launches[0].tasks, p.launches[0].grain);
  at_cg_destroy(cg);
  return chunks;
}

// What a kernel touches is charged at the rate of the cache that holds it: an
// addition within one core's cache is not shared, one of the same shape is
// where no cache is known, and the larger the cache the fewer are.
static void test_what_a_cache_holds_is_not_shared(void **state) {
  ck c;
  ck_begin(&c, ~0ull);
  at_cg_target none = {.cpu_features = c.features, .threads = 2};
  at_cg_target caches = none, large = none;
  caches.near_bytes = 1 << 20, caches.last_bytes = 32 << 20;
  large.near_bytes = 16 << 20, large.last_bytes = 32 << 20;
  at_node *sizes[] = {add_of(&c, 40000, AT_OP_ADD),
                      add_of(&c, 1000000, AT_OP_ADD),
                      add_of(&c, 40000000, AT_OP_ADD)};
  assert_true(chunks_of(&c, &none, sizes[0]) > 1);
  assert_int_equal(chunks_of(&c, &caches, sizes[0]), 1);
  for (size_t i = 1; i < AT_LEN(sizes); i++) {
    int64_t shared = chunks_of(&c, &caches, sizes[i]);
    assert_true(shared > 1 && shared < chunks_of(&c, &none, sizes[i]));
    assert_true(chunks_of(&c, &large, sizes[i]) < shared);
  }
  // A sum of rows, too.
  const char *sum =
      "%3 = reduce %0, %2 {dimensions=[1]} ((%4: f32[], %5: "
      "f32[]) {\n%6 = add %4, %5 : f32[]\nreturn %6\n}) : "
      "f32[128]\nreturn %3";
  const at_node *rows =
      ck_text(&c, "%0: f32[128,1024], %2: f32[]", "f32[128]", sum)->node;
  assert_int_equal(chunks_of(&c, &caches, rows), 1);
  assert_true(chunks_of(&c, &none, rows) > 1);
  free(c.cases);
  at_arena_destroy(c.arena);
}

// A step of an unrolled loop: reads row t and the one after it, and with
// `whole` also all of the operand.
static ck_case *step_of_loop(ck *c, int t, bool whole) {
  char line[1024];
  snprintf(line, sizeof line,
           "%%9 = fusion %%0, %%1 {kind=LOOP} ((%%2: f32[7,40], %%3: "
           "complex<f32>[40,7]) {\n"
           "%%4 = slice %%2 {start_indices=[%d,3], limit_indices=[%d,40], "
           "strides=[1,1]} : f32[1,37]\n"
           "%%5 = slice %%2 {start_indices=[%d,2], limit_indices=[%d,39], "
           "strides=[1,1]} : f32[1,37]\n"
           "%%6 = slice %%3 {start_indices=[3,%d], limit_indices=[40,%d], "
           "strides=[1,1]} : complex<f32>[37,1]\n"
           "%%7 = real %%6 : f32[37,1]\n%%8 = reshape %%7 : f32[1,37]\n"
           "%%10 = subtract %%4, %%5 : f32[1,37]\n"
           "%%11 = add %%10, %%8 : f32[1,37]\n"
           "%%12 = reverse %%2 {dimensions=[0]} : f32[7,40]\n"
           "%%13 = slice %%12 {start_indices=[0,0], limit_indices=[1,37], "
           "strides=[1,1]} : f32[1,37]\n"
           "%%14 = add %%11, %%%d : f32[1,37]\nreturn %%14\n}) : f32[1,37]\n"
           "return %%9",
           t, t + 1, t + 1, t + 2, t, t + 1, whole ? 13 : 11);
  if (!whole) {  // no reverse at all
    char *from = strstr(line, "%12 = "), *to = strstr(line, "%14 = ");
    memmove(from, to, strlen(to) + 1);
  }
  return ck_text(c, "%0: f32[7,40], %1: complex<f32>[40,7]", "f32[1,37]", line);
}

// Steps that differ in where slices begin are one kernel at other addresses;
// where something else reads an operand too, its slices stay where they are.
static void test_slices_share(void **state) {
  ck c;
  ck_begin(&c, ~0ull);
  at_cg *cg = generator(&c, 2);
  at_cg_plan p[5], plain, whole[2];
  static const int order[5] = {3, 0, 5, 1, 4};
  for (int i = 0; i < 5; i++) {
    const ck_case *k = step_of_loop(&c, order[i], false);
    ck_ok(at_cg_node_skipping(cg, k->node, NULL, c.arena, &p[i]));
    assert_int_equal(p[i].launches[0].kernel, p[0].launches[0].kernel);
    assert_int_equal(p[i].launches[0].args[0].skip, 4 * (40 * order[i] + 2));
    assert_int_equal(p[i].launches[0].args[1].skip, 8 * (7 * 3 + order[i]));
    ck_ok(at_cg_node(cg, k->node, NULL, c.arena, &plain));
    assert_int_not_equal(plain.launches[0].kernel, p[0].launches[0].kernel);
    assert_int_equal(plain.launches[0].args[0].skip, 0);
  }
  for (int t = 0; t < 2; t++) {
    const ck_case *k = step_of_loop(&c, t, true);
    ck_ok(at_cg_node_skipping(cg, k->node, NULL, c.arena, &whole[t]));
    assert_int_equal(whole[t].launches[0].args[0].skip, 0);
  }
  assert_int_not_equal(whole[0].launches[0].kernel,
                       whole[1].launches[0].kernel);
  at_cg_destroy(cg);
  ck_end(&c);
}

// A step that adds a row at a constant place, or writes it there.
static ck_case *row_at(ck *c, int at, bool add) {
  static const char scatter[] =
      "hlo module \"t\" {\nfunc \"main\" (%%0: f32[7,40], %%1: f32[40]) -> "
      "(f32[7,40]) {\n%%2 = constant {value=i32[1] [%d]} : i32[1]\n"
      "%%9 = scatter %%0, %%2, %%1 {index_vector_dim=0, "
      "update_window_dims=[0], inserted_window_dims=[0], "
      "scatter_dims_to_operand_dims=[0]} ((%%3: f32[], %%4: f32[]) {\n"
      "%%5 = add %%3, %%4 : f32[]\nreturn %%5\n}) : f32[7,40]\n"
      "return %%9\n}\n}\n";
  static const char update[] =
      "hlo module \"t\" {\nfunc \"main\" (%%0: f32[7,40], %%1: f32[1,37]) -> "
      "(f32[7,40]) {\n%%2 = constant {value=i32[] %d} : i32[]\n"
      "%%3 = constant {value=i32[] 3} : i32[]\n"
      "%%9 = dynamic_update_slice %%0, %%1, %%2, %%3 : f32[7,40]\n"
      "return %%9\n}\n}\n";
  char *text = at_arena_printf(c->arena, add ? scatter : update, at);
  at_module *m;
  ck_ok(at_hlo_parse(at_str_of(text), c->arena, &m));
  at_node *n = m->funcs[0]->last;
  const at_literal *args[4];
  for (uint32_t i = 0; i < n->num_operands; i++) {
    const at_literal *known = at_node_literal(n->operands[i].node);
    const at_type *t = at_value_type(n->operands[i]);
    args[i] = known ? known : ck_random_literal(c, *t, false);
  }
  return ck_add(c, n, args);
}

// Where a node writes is no part of its kernel.
static void test_updates_share(void **state) {
  ck c;
  ck_begin(&c, ~0ull);
  at_cg *cg = generator(&c, 2);
  static const int at[3] = {2, 0, 9};  // the last is outside
  for (int add = 0; add < 2; add++) {
    at_cg_plan p[3];
    for (int i = 0; i < 3; i++) {
      const ck_case *k = row_at(&c, at[i], add);
      ck_ok(at_cg_node_skipping(cg, k->node, NULL, c.arena, &p[i]));
      for (uint32_t l = 0; l < p[i].num_launches; l++)
        assert_int_equal(p[i].launches[l].kernel, p[0].launches[l].kernel);
    }
  }
  at_cg_destroy(cg);
  ck_end(&c);
}

// Tasks depend on shapes, not on who will run them.
static void test_plan_ignores_threads(void **state) {
  ck c;
  ck_begin(&c, ~0ull);
  at_cg *one = generator(&c, 1), *many = generator(&c, 64);
  at_cg_plan a, b;
  at_node *n = add_of(&c, 1 << 20, AT_OP_ADD);
  ck_ok(at_cg_node(one, n, NULL, c.arena, &a));
  ck_ok(at_cg_node(many, n, NULL, c.arena, &b));
  assert_int_equal(a.launches[0].tasks, b.launches[0].tasks);
  assert_true(a.launches[0].tasks > 4 && a.launches[0].grain >= 1);
  at_node *none = add_of(&c, 0, AT_OP_ADD);
  ck_ok(at_cg_node(one, none, NULL, c.arena, &a));
  assert_int_equal(a.num_launches, 0);
  at_cg_destroy(many);
  leave(&c, one);
}

// Only an operand that is read at the element being written may hold the
// result; running it in place gives the same.
static void test_can_alias(void **state) {
  ck c;
  ck_begin(&c, ~0ull);
  ck_case *k =
      ck_text(&c, "%0: f32[4,8], %1: f32[4,8], %2: f32[8]", "f32[4,8]",
              "%9 = fusion %0, %1, %2 {kind=LOOP} ((%3: f32[4,8], %4: "
              "f32[4,8], %5: f32[8]) {\n"
              "%6 = reverse %4 {dimensions=[0]} : f32[4,8]\n"
              "%7 = add %3, %6 : f32[4,8]\n"
              "%8 = broadcast_in_dim %5 {broadcast_dimensions=[1]} : f32[4,8]\n"
              "%10 = add %7, %8 : f32[4,8]\nreturn %10\n}) : f32[4,8]\n"
              "return %9");
  assert_true(at_cg_can_alias(k->node, 0, 0));
  assert_false(at_cg_can_alias(k->node, 0, 1));  // read at another place
  assert_false(at_cg_can_alias(k->node, 0, 2));  // another size
  assert_false(at_cg_can_alias(k->node, 0, 3));
  assert_false(at_cg_can_alias(k->node, 1, 0));
  k->alias[0] = 0;
  ck_end(&c);
}

// Equal regions are one kernel, and it is a total order: -NaN, -1, 0, 2, NaN.
static void test_comparator(void **state) {
  ck c;
  ck_begin(&c, ~0ull);
  ck_text(
      &c, "%0: f32[9], %1: i32[9]", "f32[9], i32[9]",
      "%9:2 = sort %0, %1 {dimension=0, is_stable=true} ((%100: f32[], %101: "
      "f32[], %102: i32[], %103: i32[]) {\n%104 = compare %100, %101 "
      "{comparison_direction=LT, compare_type=TOTALORDER} : i1[]\nreturn "
      "%104\n}) : "
      "f32[9], i32[9]\nreturn %9.0, %9.1");
  const at_node *sort = c.cases[0].node;
  assert_false(at_cg_supports(sort));
  at_cg *cg = generator(&c, 1);
  uint32_t kernel, again;
  ck_ok(at_cg_comparator(cg, sort->regions[0], &kernel));
  ck_ok(at_cg_comparator(cg, sort->regions[0], &again));
  assert_int_equal(kernel, again);
  at_cg_output out;
  ck_ok(at_cg_finish(cg, c.arena, &out));
  assert_int_equal(out.kernels[kernel].kind, AT_XK_COMPARATOR);
  void *h = ck_link(&out);
  at_comparator_fn less =
      (at_comparator_fn)dlsym(h, out.strings.ptr + out.kernels[kernel].symbol);
  assert_non_null(less);
  float v[] = {-NAN, -1, 0, 2, NAN};
  int32_t x = 0;
  for (int i = 0; i < 5; i++)
    for (int j = 0; j < 5; j++) {
      const void *p[4] = {&v[i], &v[j], &x, &x};
      assert_int_equal(less(p), i < j);
    }
  dlclose(h);
  leave(&c, cg);
}

// Text of nothing is empty, IR and assembly name the kernel. An op without a
// form is UNIMPLEMENTED, by name.
static void test_print_and_refuse(void **state) {
  ck c;
  ck_begin(&c, ~0ull);
  at_cg *cg = generator(&c, 1);
  at_cg_plan p;
  at_strbuf s = {0};
  ck_ok(at_cg_print(cg, true, &s));  // nothing added yet
  assert_int_equal(s.len, 0);
  ck_ok(at_cg_node(cg, add_of(&c, 1000, AT_OP_ADD), NULL, c.arena, &p));
  ck_ok(at_cg_print(cg, false, &s));
  assert_non_null(strstr(s.ptr, "define void @at_k0"));
  at_strbuf_free(&s);
  ck_ok(at_cg_print(cg, true, &s));
  assert_non_null(strstr(s.ptr, "at_k0:"));
  at_strbuf_free(&s);
  at_type u = at_type_scalar(AT_U32);
  at_node_desc d = {.op = AT_OP_PARTITION_ID, .types = &u, .num_types = 1};
  at_node *n;
  ck_ok(at_build(c.comp, NULL, &d, &n));
  assert_false(at_cg_supports(n));
  at_status st = at_cg_node(cg, n, NULL, c.arena, &p);
  assert_non_null(strstr(at_status_message(st), "partition_id"));
  assert_int_equal(at_code_take(st), AT_UNIMPLEMENTED);
  leave(&c, cg);
}

// A mask has 64 bits: large results behind them are stored as others are.
static void test_streams_of_many_results(void **state) {
  enum { SMALL = 64, ALL = 70 };
  ck c;
  ck_begin(&c, ~0ull);
  at_strbuf inside = {0}, types = {0}, outside = {0}, text = {0};
  for (int i = 0; i < ALL; i++) {
    const char *comma = i ? ", " : "";
    at_strbuf_addf(&inside, "%s%%%d", comma, i < SMALL ? 2 : 3);
    at_strbuf_addf(&types, "%sf32[%d]", comma, i < SMALL ? 1 : 512);
    at_strbuf_addf(&outside, "%s%%9.%d", comma, i);
  }
  at_strbuf_addf(&text,
                 "%%9:%d = fusion %%0 {kind=LOOP} ((%%1: f32[512]) {\n"
                 "%%2 = slice %%1 {start_indices=[5], limit_indices=[6], "
                 "strides=[1]} : f32[1]\n%%3 = negate %%1 : f32[512]\n"
                 "return %s\n}) : %s\nreturn %s",
                 ALL, inside.ptr, types.ptr, outside.ptr);
  ck_case *k = ck_text(&c, "%0: f32[512]", types.ptr, text.ptr);
  assert_int_equal(at_streams_of(k->node, 1024), 0);
  at_strbuf_free(&inside), at_strbuf_free(&types);
  at_strbuf_free(&outside), at_strbuf_free(&text);
  ck_end(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_equal_nodes_share),
      cmocka_unit_test(test_chunks_are_even),
      cmocka_unit_test(test_what_a_cache_holds_is_not_shared),
      cmocka_unit_test(test_slices_share),
      cmocka_unit_test(test_updates_share),
      cmocka_unit_test(test_plan_ignores_threads),
      cmocka_unit_test(test_can_alias),
      cmocka_unit_test(test_streams_of_many_results),
      cmocka_unit_test(test_comparator),
      cmocka_unit_test(test_print_and_refuse)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

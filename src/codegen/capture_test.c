// Bodies that use values from outside: constants are known, others are refused.
#include <math.h>

#include "codegen/build.h"
#include "codegen/check.h"

#define HEAD                                                                  \
  "hlo module \"t\" {\nfunc \"main\" (%0: f32[12], %1: f32[], %2: i32[4,1], " \
  "%3: f32[4]) -> (f32[]) {\n"                                                \
  "%9 = constant {value=f32[] 3.0} : f32[]\n"                                 \
  "%8 = constant {value=f32[] 5.0} : f32[]\n"
#define TAIL "\nreturn %1\n}\n}\n"

// The body of each uses CAP, filled in below.
static const char *const k_nodes[] = {
    "%20 = reduce %0, %1 {dimensions=[0]} ((%100: f32[], %101: f32[]) {\n"
    "%102 = minimum %101, CAP : f32[]\n%103 = add %100, %102 : f32[]\n"
    "return %103\n}) : f32[]",
    "%20 = reduce %0, %1 {dimensions=[0]} ((%100: f32[], %101: f32[]) {\n"
    "return CAP\n}) : f32[]",
    "%20 = reduce_window %0, %1 {window_dimensions=[3], window_strides=[1], "
    "padding=[1,1]} ((%100: f32[], %101: f32[]) {\n"
    "%102 = maximum %101, CAP : f32[]\n%103 = add %100, %102 : f32[]\n"
    "return %103\n}) : f32[12]",
    "%20 = map %0 {dimensions=[0]} ((%100: f32[]) {\n"
    "%102 = multiply %100, CAP : f32[]\nreturn %102\n}) : f32[12]",
    "%20 = scatter %0, %2, %3 {index_vector_dim=1, update_window_dims=[], "
    "inserted_window_dims=[0], scatter_dims_to_operand_dims=[0]} ((%100: "
    "f32[], %101: f32[]) {\n%102 = multiply %101, CAP : f32[]\n"
    "%103 = add %100, %102 : f32[]\nreturn %103\n}) : f32[12]",
    "%20 = select_and_scatter %0, %3, %1 {window_dimensions=[3], "
    "window_strides=[3], padding=[0,0]} ((%100: f32[], %101: f32[]) {\n"
    "%102 = maximum %100, CAP : f32[]\n"
    "%104 = compare %102, %101 {comparison_direction=GE} : i1[]\n"
    "return %104\n}, (%110: f32[], %111: f32[]) {\n"
    "%112 = multiply %111, CAP : f32[]\n%113 = add %110, %112 : f32[]\n"
    "return %113\n}) : f32[12]",
};

// A module whose last node is `node`, with CAP replaced.
static at_module *parse(ck *c, const char *node, const char *captured) {
  at_strbuf s = {0};
  at_strbuf_addz(&s, HEAD);
  for (const char *p = node; *p;) {
    bool here = strncmp(p, "CAP", 3) == 0;
    at_strbuf_add(&s, here ? at_str_of(captured) : (at_str){p, 1});
    p += here ? 3 : 1;
  }
  at_strbuf_addz(&s, TAIL);
  char *text = at_arena_str(c->arena, at_strbuf_str(&s));
  at_strbuf_free(&s);
  at_module *m;
  ck_ok(at_hlo_parse(at_str_of(text), c->arena, &m));
  return m;
}

// The first node of an op.
static at_node *node_of(const at_module *m, at_op op) {
  AT_FOR_NODES(n, m->funcs[0]) if (n->op == op) return n;
  return NULL;
}

static at_node *last_of(const at_module *m) { return m->funcs[0]->last; }

// What the function computes for n: evaluating the node alone would not see the
// constants around it.
static void add_with_function(ck *c, at_node *n) {
  at_comp *f = n->parent;
  const at_literal *args[4];
  at_value v = {n, 0};
  for (uint32_t i = 0; i < f->num_params; i++)
    args[i] = ck_random_literal(c, f->params[i]->types[0], false);
  ck_case *k = &c->cases[c->num_cases++];
  *k = (ck_case){.node = n, .ulps = c->ulps, .alias = {-1}};
  for (uint32_t i = 0; i < n->num_operands; i++)
    for (uint32_t p = 0; p < f->num_params; p++)
      if (n->operands[i].node == f->params[p]) k->args[i] = args[p];
  f->results = &v;
  at_eval_options o = {0};
  ck_ok(at_eval(f, args, &o, c->arena, k->want));
  f->results = NULL;
  f->num_results = 0;
}

// Both constants in one generator: bodies that differ in a constant alone must
// not share a kernel.
static void test_constants(void **state) {
  ck c;
  ck_begin(&c, ~0ull);
  c.ulps = 16;
  for (size_t i = 0; i < AT_LEN(k_nodes); i++)
    for (int k = 0; k < 2; k++) {
      at_node *n = last_of(parse(&c, k_nodes[i], k ? "%8" : "%9"));
      assert_true(at_cg_supports(n));
      add_with_function(&c, n);
    }
  ck_end(&c);
}

// at_cg_supports says no, and at_cg_node agrees: UNIMPLEMENTED, naming the op
// and what is captured.
static void test_others_are_refused(void **state) {
  ck c;
  ck_begin(&c, ~0ull);
  at_cg_target t = {.cpu_features = c.features, .threads = 1, .opt_level = 1};
  at_cg *cg;
  ck_ok(at_cg_create(&t, &cg));
  for (size_t i = 0; i < AT_LEN(k_nodes); i++) {
    at_node *n = last_of(parse(&c, k_nodes[i], "%1"));
    at_cg_plan p;
    assert_false(at_cg_supports(n));
    at_status st = at_cg_node(cg, n, NULL, c.arena, &p);
    assert_non_null(strstr(at_status_message(st), at_op_text(n->op)));
    assert_non_null(strstr(at_status_message(st), "parameter"));
    assert_int_equal(at_code_take(st), AT_UNIMPLEMENTED);
  }
  at_cg_destroy(cg);
  free(c.cases);
  at_arena_destroy(c.arena);
}

#define SORT                                                          \
  "%20 = sort %0 {dimension=0, is_stable=true} ((%100: f32[], %101: " \
  "f32[]) {\n%102 = minimum %100, CAP : f32[]\n"                      \
  "%103 = compare %102, %101 {comparison_direction=LT} : i1[]\n"      \
  "return %103\n}) : f32[12]"

// As test_constants: bodies that differ in a constant are two kernels, and each
// compares with its own.
static void test_comparator(void **state) {
  ck c;
  ck_begin(&c, ~0ull);
  at_cg_target t = {.cpu_features = c.features, .threads = 1, .opt_level = 2};
  at_cg *cg;
  ck_ok(at_cg_create(&t, &cg));
  uint32_t kernel[2], none;
  for (int k = 0; k < 2; k++) {
    at_module *m = parse(&c, SORT, k ? "%8" : "%9");
    ck_ok(at_cg_comparator(cg, node_of(m, AT_OP_SORT)->regions[0], &kernel[k]));
  }
  assert_int_not_equal(kernel[0], kernel[1]);
  at_module *m = parse(&c, SORT, "%1");
  at_status st =
      at_cg_comparator(cg, node_of(m, AT_OP_SORT)->regions[0], &none);
  assert_non_null(strstr(at_status_message(st), "comparator"));
  assert_int_equal(at_code_take(st), AT_UNIMPLEMENTED);
  at_cg_output out;
  ck_ok(at_cg_finish(cg, c.arena, &out));
  void *h = ck_link(&out);
  const float bound[2] = {3, 5}, v[] = {1, 3, 4, 5, 9};
  for (int k = 0; k < 2; k++) {
    at_comparator_fn less = (at_comparator_fn)dlsym(
        h, out.strings.ptr + out.kernels[kernel[k]].symbol);
    assert_non_null(less);
    for (int i = 0; i < 5; i++)
      for (int j = 0; j < 5; j++) {
        const void *p[2] = {&v[i], &v[j]};
        assert_int_equal(less(p), fminf(v[i], bound[k]) < v[j]);
      }
  }
  dlclose(h);
  at_cg_destroy(cg);
  free(c.cases);
  at_arena_destroy(c.arena);
}

// A function without code.
static at_status write_nothing(at_em *e, void *arg) {
  at_b_ret(e);
  return AT_OK;
}

// Large functions share a module with each other only.
static void test_large_functions(void **state) {
  ck c;
  ck_begin(&c, ~0ull);
  at_cg_target t = {.cpu_features = c.features, .threads = 2, .opt_level = 2};
  at_cg *cg;
  ck_ok(at_cg_create(&t, &cg));
  const uint32_t ops[5] = {0, 9000, 1, 5000, 5000};
  uint32_t kernel[5];
  for (int i = 0; i < 5; i++) {
    at_cg_function f = {.emit = write_nothing,
                        .kind = AT_XK_CORE_BODY,
                        .num_params = 3,
                        .ops = ops[i]};
    ck_ok(at_cg_external(cg, &f, &kernel[i]));
  }
  at_cg_output out;
  ck_ok(at_cg_finish(cg, c.arena, &out));
  const uint32_t want[5] = {2, 0, 2, 1, 1};
  for (int i = 0; i < 5; i++)
    assert_int_equal(out.kernels[kernel[i]].object, want[i]);
  assert_int_equal(out.num_objects, 3);
  at_cg_destroy(cg);
  free(c.cases);
  at_arena_destroy(c.arena);
}

// Those with the most work have all of LLVM's steps, the last are compiled
// quickly, in modules of their own.
static void test_quick_functions(void **state) {
  ck c;
  ck_begin(&c, ~0ull);
  const double work[7] = {6, 5, 4, 3, 2, 1, INFINITY};
  for (uint32_t threads = 1; threads < 3; threads++) {
    at_cg_target t = {
        .cpu_features = c.features, .threads = threads, .opt_level = 2};
    at_cg *cg;
    ck_ok(at_cg_create(&t, &cg));
    uint32_t kernel[7];
    for (int i = 0; i < 7; i++) {
      at_cg_function f = {.emit = write_nothing,
                          .kind = AT_XK_CORE_BODY,
                          .num_params = 3,
                          .ops = i == 6 ? 100 : AT_CG_FULL_OPS / 4 - 96,
                          .work = work[i]};
      ck_ok(at_cg_external(cg, &f, &kernel[i]));
    }
    at_cg_output out;
    uint64_t quick = at_cg_instructions_quick();
    ck_ok(at_cg_finish(cg, c.arena, &out));
    assert_true(at_cg_instructions_quick() > quick);
    for (int i = 0; i < 7; i++)
      assert_int_equal(out.kernels[kernel[i]].object == 0, i == 5);
    at_cg_destroy(cg);
  }
  free(c.cases);
  at_arena_destroy(c.arena);
}

// Those behind AT_CG_QUICK_OPS whose hundredth call has not cost what it saves
// are compiled plainly, in modules of their own; the others stay quick.
static void test_plain_functions(void **state) {
  enum { N = 8, OPS = AT_CG_FULL_OPS / 8 };
  ck c;
  ck_begin(&c, ~0ull);
  at_cg_target t = {.cpu_features = c.features, .threads = 1, .opt_level = 2};
  at_cg *cg;
  ck_ok(at_cg_create(&t, &cg));
  uint32_t heavy[32], kernel[N];
  at_cg_function f = {.emit = write_nothing,
                      .kind = AT_XK_CORE_BODY,
                      .num_params = 3,
                      .ops = OPS,
                      .work = INFINITY};
  uint32_t before = AT_CG_QUICK_OPS / OPS;
  for (uint32_t i = 0; i < before; i++)
    ck_ok(at_cg_external(cg, &f, &heavy[i]));
  for (uint32_t i = 0; i < N; i++) {
    f.work = (double)OPS * AT_CG_PLAIN_WORK * (i < N / 2 ? 1.5 : 0.5);
    ck_ok(at_cg_external(cg, &f, &kernel[i]));
  }
  at_cg_output out;
  ck_ok(at_cg_finish(cg, c.arena, &out));
  uint32_t full = out.kernels[heavy[0]].object;
  uint32_t quick = out.kernels[heavy[before - 1]].object;
  uint32_t plain = out.kernels[kernel[N - 1]].object;
  assert_int_not_equal(full, quick);
  assert_int_not_equal(quick, plain);
  assert_int_not_equal(full, plain);
  for (uint32_t i = 0; i < N; i++)
    assert_int_equal(out.kernels[kernel[i]].object, i < N / 2 ? quick : plain);
  at_cg_destroy(cg);
  free(c.cases);
  at_arena_destroy(c.arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_large_functions),
                                     cmocka_unit_test(test_quick_functions),
                                     cmocka_unit_test(test_plain_functions),
                                     cmocka_unit_test(test_constants),
                                     cmocka_unit_test(test_others_are_refused),
                                     cmocka_unit_test(test_comparator)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

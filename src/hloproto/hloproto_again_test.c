// The writer against the reader: random programs, written and read again, give
// what they gave before, bit for bit. What evaluates to the same in every op
// and element type has its operands, attributes, regions and constants.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <stdio.h>

#include "hlo/random.h"
#include "hloproto/hloproto.h"

enum { MAX_RESULTS = 16 };

// What became of the programs.
typedef struct tally {
  int same, skipped, bad;
} tally;

// Writes m and reads what was written.
static at_status again(const at_module *m, bool tiles, at_arena *a,
                       at_module **out) {
  at_hloproto_write_options o = {.tiles = tiles};
  at_strbuf b = {0};
  at_status st = at_hloproto_write(m, &o, &b);
  if (at_ok(st))
    st = at_hloproto_read((at_bytes){(const uint8_t *)b.ptr, b.len},
                          AT_HLOPROTO_UNKNOWN, a, out);
  at_strbuf_free(&b);
  return st;
}

// Bit for bit.
static bool same_literal(const at_literal *x, const at_literal *y) {
  if (!at_type_eq(&x->type, &y->type)) return false;
  int64_t n = at_type_elements(&x->type);
  size_t w = at_dtype_bytes(x->type.dtype);
  for (int64_t i = 0; i < n; i++)
    if (memcmp(at_literal_at(x, i), at_literal_at(y, i), w) != 0) return false;
  return true;
}

static void differ(tally *t, const at_module *m, const at_module *n,
                   uint64_t seed, const char *why) {
  if (t->bad++ >= 5) return;
  at_strbuf x = {0}, y = {0};
  at_status_free(at_hlo_print(m, &x));
  if (n) at_status_free(at_hlo_print(n, &y));
  print_message("seed %llu: %s\n%s\n%s\n", (unsigned long long)seed, why, x.ptr,
                y.ptr ? y.ptr : "");
  at_strbuf_free(&x);
  at_strbuf_free(&y);
}

// Random numbers depend on the number of their node.
static bool has_rng(const at_comp *c) {
  bool any = false;
  AT_FOR_NODES(n, c) {
    any |= n->op == AT_OP_RNG;
    for (uint32_t r = 0; r < n->num_regions; r++) any |= has_rng(n->regions[r]);
  }
  return any;
}

// Calls must be inlined before they are written, and what XLA has no opcode for
// comes back as a custom call of that name: neither is compared.
static void check(const at_random_options *o, tally *t) {
  at_arena *a = at_arena_create();
  at_module *m, *n = NULL;
  const at_literal **args, *x[MAX_RESULTS], *y[MAX_RESULTS];
  at_status st = at_random_module(a, o, &m);
  if (at_ok(st)) st = at_random_args(a, m->entry, o->seed, false, &args);
  if (!at_ok(st)) fail_msg("%s", at_status_message(st));
  assert_true(m->entry->num_results <= MAX_RESULTS);
  st = again(m, o->seed % 2, a, &n);
  if (at_ok(st)) {
    at_code first = at_code_take(at_eval(m->entry, args, NULL, a, x));
    st = at_eval(n->entry, args, NULL, a, y);
    if (first && !at_ok(st)) {
      at_status_free(st);
      st = AT_FAIL(AT_UNIMPLEMENTED, "not evaluated");
    } else if (at_ok(st) && first) {
      differ(t, m, n, o->seed, "evaluates after it was written alone");
    }
  }
  at_code code = at_status_code(st);
  if (code && code != AT_UNIMPLEMENTED)
    differ(t, m, n, o->seed, at_status_message(st));
  at_status_free(st);
  t->skipped += code != 0;
  if (!code) {
    t->same++;
    uint32_t results = has_rng(m->entry) ? 0 : m->entry->num_results;
    bool same = m->entry->num_results == n->entry->num_results;
    for (uint32_t i = 0; same && i < results; i++)
      same = same_literal(x[i], y[i]);
    if (!same) differ(t, m, n, o->seed, "results differ");
  }
  at_arena_destroy(a);
}

// Every form of every op in every element type, one at a time.
static void every_pair(void **state) {
  at_random_options o = {.seed = 1, .nodes = 1, .max_elements = 40};
  tally t = {0};
  uint32_t pairs = at_random_num_pairs(&o);
  for (uint32_t k = 0; k < pairs; k++) {
    o.first = k + 1;
    o.seed = k + 1;
    check(&o, &t);
  }
  printf("%d programs of one op are the same, %d are not compared\n", t.same,
         t.skipped);
  assert_int_equal(t.bad, 0);
  assert_true(t.same > (int)pairs / 2);
}

// Ops in a row: values of loops and branches, several users, tuples.
static void longer_programs(void **state) {
  tally t = {0};
  for (uint64_t seed = 1; seed <= 150; seed++)
    check(&(at_random_options){.seed = seed, .nodes = 12, .max_elements = 60},
          &t);
  printf("%d programs are the same, %d are not compared\n", t.same, t.skipped);
  assert_int_equal(t.bad, 0);
  assert_true(t.same >= 10);
}

// Ops whose attributes the evaluator does not ask for on one device: the line
// of the op comes back as it was.
static const struct {
  const char *params, *line;
} lines[] = {
    {"%0: f32[4,6]",
     "all_gather %0 {all_gather_dim=1, replica_groups=[[0,1],[2,3]], "
     "channel_id=3, use_global_device_ids=true} : f32[4,12]"},
    {"%0: f32[4,6]",
     "all_to_all %0 {channel_id=0, split_dimension=1, concat_dimension=1, "
     "split_count=2, "
     "replica_groups=[[0,1],[2,3]]} : f32[4,6]"},
    {"%0: f32[4,6]",
     "collective_permute %0 {source_target_pairs=[[0,1],[1,2]], channel_id=1} "
     ": f32[4,6]"},
    {"%0: f32[4,6]",
     "collective_broadcast %0 {channel_id=0, replica_groups=[[1,0],[2,3]]} : "
     "f32[4,6]"},
    {"%0: f32[4,6]",
     "custom_call %0 {call_target_name=\"f\", has_side_effect=true, "
     "backend_config=\"x\", api_version=2} : f32[4,6]"},
    {"%0: f32[4,6]",
     "custom_call %0 {call_target_name=\"f\", has_side_effect=false, "
     "backend_config=\"\", api_version=1, output_operand_aliases=[[0,0]], "
     "operand_layouts=[[0,1]], result_layouts=[[0,1]]} : f32[4,6]"},
    {"%0: f32[4,6]",
     "custom_call %0, %0 {call_target_name=\"f\", has_side_effect=false, "
     "backend_config=\"\", api_version=1, operand_layouts=[[0,1],[1,0]], "
     "result_layouts=[[1,0]]} : f32[4,6]"},
};

static void lines_come_back(void **state) {
  for (size_t i = 0; i < AT_LEN(lines); i++) {
    at_arena *a = at_arena_create();
    at_module *m, *n = NULL;
    at_strbuf text = {0}, back = {0};
    at_strbuf_addf(&text,
                   "hlo module \"t\" replicas=4 entry=\"main\" {\nfunc "
                   "\"main\" (%s) -> (%s) {\n%%1 = %s\nreturn %%1\n}\n}\n",
                   lines[i].params, strrchr(lines[i].line, ':') + 2,
                   lines[i].line);
    at_status st = at_hlo_parse(at_strbuf_str(&text), a, &m);
    if (at_ok(st)) st = again(m, true, a, &n);
    if (!at_ok(st)) fail_msg("%s%s", text.ptr, at_status_message(st));
    // From the op's name to the end of its line, as it prints.
    at_strbuf first = {0};
    assert_int_equal(at_code_take(at_hlo_print(m, &first)), 0);
    assert_int_equal(at_code_take(at_hlo_print(n, &back)), 0);
    char *line = strstr(first.ptr, "%1 = ") + 5;
    *strchr(line, '\n') = 0;
    if (!strstr(back.ptr, line)) fail_msg("no `%s` in\n%s", line, back.ptr);
    at_strbuf_free(&first);
    at_strbuf_free(&back);
    assert_int_equal(n->num_replicas, 4);
    at_strbuf_free(&text);
    at_arena_destroy(a);
  }
}

// ---- Over several devices

// "all_to_all %0 {...} : type" for two devices, parts of `split` joined along
// `join`.
static at_module *exchange(at_arena *a, const int64_t *dims, int split,
                           int join) {
  int64_t out[3] = {dims[0], dims[1], dims[2]};
  out[split] /= 2;
  out[join] *= 2;
  at_strbuf t = {0}, from = {0}, to = {0};
  at_strbuf_addf(&from, "i32[%d,%d,%d]", (int)dims[0], (int)dims[1],
                 (int)dims[2]);
  at_strbuf_addf(&to, "i32[%d,%d,%d]", (int)out[0], (int)out[1], (int)out[2]);
  at_strbuf_addf(&t,
                 "hlo module \"t\" replicas=2 entry=\"main\" {\nfunc \"main\" "
                 "(%%0: %s) -> (%s) {\n%%1 = all_to_all %%0 {channel_id=0, "
                 "split_dimension=%d, concat_dimension=%d, split_count=2, "
                 "replica_groups=[[1,0]]} : %s\nreturn %%1\n}\n}\n",
                 from.ptr, to.ptr, split, join, to.ptr);
  at_module *m;
  at_status st = at_hlo_parse(at_strbuf_str(&t), a, &m);
  if (!at_ok(st)) fail_msg("%s%s", t.ptr, at_status_message(st));
  at_strbuf_free(&t);
  at_strbuf_free(&from);
  at_strbuf_free(&to);
  return m;
}

// Each device's argument counts on where the other's ends.
static void run_on_two(const at_module *m, at_arena *a,
                       const at_literal *out[2]) {
  const at_type *t = &m->entry->params[0]->types[0];
  int64_t n = at_type_elements(t);
  const at_literal *arg[2], *const *args[2] = {&arg[0], &arg[1]};
  const at_literal **outs[2] = {&out[0], &out[1]};
  for (int d = 0; d < 2; d++) {
    int32_t *data = at_new(a, int32_t, (size_t)n);
    assert_non_null(data);
    for (int64_t i = 0; i < n; i++) data[i] = (int32_t)(d * n + i);
    at_code code =
        at_code_take(at_literal_make(a, *t, data, false, true, &arg[d]));
    assert_int_equal(code, 0);
  }
  at_status st = at_eval_devices(m->entry, args, NULL, a, outs);
  if (!at_ok(st)) fail_msg("%s", at_status_message(st));
}

// What XLA has one dimension for is written as a split, an exchange and a join:
// every pair of dimensions, and every element arrives where it did.
static void exchanges_move_the_same(void **state) {
  static const int64_t dims[3] = {2, 4, 6};
  for (int split = 0; split < 3; split++)
    for (int join = 0; join < 3; join++) {
      at_arena *a = at_arena_create();
      const at_literal *x[2], *y[2];
      at_module *m = exchange(a, dims, split, join), *n;
      at_status st = again(m, false, a, &n);
      if (!at_ok(st)) fail_msg("%s", at_status_message(st));
      run_on_two(m, a, x);
      run_on_two(n, a, y);
      for (int d = 0; d < 2; d++)
        if (!same_literal(x[d], y[d]))
          fail_msg("split %d, join %d, device %d", split, join, d);
      at_arena_destroy(a);
    }
}

// An operation under way is two instructions of one kind.
static void halves_match(void **state) {
  static const struct {
    const char *line, *done;
  } ops[] = {
      {"all_gather %0 {all_gather_dim=0, replica_groups=[[0]], async=true}",
       "all-gather-done"},
      {"all_reduce %0 {replica_groups=[[0]], async=true} ((%5: f32[], %6: "
       "f32[]) {\n%7 = add %5, %6 : f32[]\nreturn %7\n})",
       "all-reduce-done"},
      {"collective_permute %0 {source_target_pairs=[[0,0]], async=true}",
       "collective-permute-done"},
  };
  for (size_t i = 0; i < AT_LEN(ops); i++) {
    at_arena *a = at_arena_create();
    at_strbuf t = {0}, b = {0};
    at_strbuf_addf(&t,
                   "hlo module \"t\" entry=\"main\" {\nfunc \"main\" (%%0: "
                   "f32[2]) -> (f32[2]) {\n%%1 = %s : f32[2]\n%%2 = "
                   "async_done %%1 : f32[2]\nreturn %%2\n}\n}\n",
                   ops[i].line);
    at_module *m;
    at_hloproto_write_options o = {0};
    at_status st = at_hlo_parse(at_strbuf_str(&t), a, &m);
    if (at_ok(st)) st = at_hloproto_write(m, &o, &b);
    if (!at_ok(st)) fail_msg("%s%s", t.ptr, at_status_message(st));
    for (size_t k = 0; k < AT_LEN(ops); k++)
      assert_int_equal(
          memmem(b.ptr, b.len, ops[k].done, strlen(ops[k].done)) != NULL,
          k == i);
    assert_null(memmem(b.ptr, b.len, "copy-done", 9));
    at_strbuf_free(&t);
    at_strbuf_free(&b);
    at_arena_destroy(a);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_pair),
      cmocka_unit_test(longer_programs),
      cmocka_unit_test(lines_come_back),
      cmocka_unit_test(exchanges_move_the_same),
      cmocka_unit_test(halves_match),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

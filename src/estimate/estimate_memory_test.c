// Peaks of memory: never below arguments, results and what one kernel reads and
// writes, over random programs of ops with several results; and programs whose
// figures are known.
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "estimate/estimate_test_util.h"
#include "estimate/memory_internal.h"
#include "import/import.h"
#include "mlir/mlir.h"
#include "passes/passes.h"

// ---- What must live while one kernel runs, in whatever order they do
typedef struct need {
  const at_target *target;
  at_arena *arena;
  bool tpu;
} need;

// Does anything in c read v, at any depth?
static bool reads_in(const at_comp *c, at_value v) {
  AT_FOR_NODES(n, c) {
    for (uint32_t o = 0; o < n->num_operands; o++)
      if (at_value_eq(at_est_behind(n->operands[o]), v)) return true;
    for (uint32_t r = 0; r < n->num_regions; r++)
      if (reads_in(n->regions[r], v)) return true;
  }
  for (uint32_t r = 0; r < c->num_results; r++)
    if (at_value_eq(at_est_behind(c->results[r]), v)) return true;
  return false;
}

// Does the kernel read v, regions included?
static bool reads(const at_est_group *g, at_value v) {
  for (size_t i = 0; i < g->reads.len; i++)
    if (at_value_eq(g->reads.ptr[i].value, v)) return true;
  for (uint32_t r = 0; r < g->root->num_regions; r++)
    if (reads_in(g->root->regions[r], v)) return true;
  return false;
}

// Does the computation return v?
static bool is_result(const at_comp *c, at_value v) {
  for (uint32_t r = 0; r < c->num_results; r++)
    if (at_value_eq(at_est_behind(c->results[r]), v)) return true;
  return false;
}

// Ops whose results may lie in an operand's memory.
static bool in_place(const at_node *n) {
  return n->op == AT_OP_WHILE || n->op == AT_OP_SORT || at_est_updates(n);
}

// Of a temporary that is in no other value's memory; else 0. What a step in
// place reads may become its result.
static uint64_t own_bytes(const need *f, const at_comp *c,
                          const at_est_groups *g, at_value v) {
  if (is_result(c, v) || in_place(v.node)) return 0;
  for (uint32_t i = 0; i < g->count; i++)
    if (in_place(g->list[i]->root) && reads(g->list[i], v)) return 0;
  return at_est_padded(f->target, at_value_type(v));
}

// The most that one kernel's operands and results take, with what runs inside
// of it.
static uint64_t most_temporaries(const need *f, const at_comp *c) {
  at_est_groups g;
  uint64_t most = 0;
  at_status st = f->tpu ? at_est_group_stored(c, f->arena, &g)
                        : at_est_group_nodes(c, false, f->arena, &g);
  assert_int_equal(at_code_take(st), 0);
  for (uint32_t k = 0; k < g.count; k++) {
    uint64_t now = 0, inner = 0;
    for (uint32_t i = 0; i < g.count; i++)
      for (size_t w = 0; w < g.list[i]->writes.len; w++) {
        at_value v = g.list[i]->writes.ptr[w];
        if (i == k || reads(g.list[k], v)) now += own_bytes(f, c, &g, v);
      }
    const at_node *n = g.list[k]->root;
    for (uint32_t r = 0; r < n->num_regions; r++)
      if (at_op_is(n->op, AT_CONTROL))
        inner = AT_MAX(inner, most_temporaries(f, n->regions[r]));
    most = AT_MAX(most, now + inner);
  }
  return most;
}

// Arguments, results and temporaries: no plan may need less.
static uint64_t least_of(const need *f, const at_comp *c) {
  const at_io_info *info = c->module->params;
  uint64_t sum = most_temporaries(f, c);
  for (uint32_t i = 0; i < c->num_params; i++)
    if (!info || info[i].alias < 0)
      sum += at_est_padded(f->target, &c->params[i]->types[0]);
  for (uint32_t r = 0; r < c->num_results; r++)
    sum += at_est_padded(f->target, at_value_type(c->results[r]));
  return sum;
}

// ---- Random programs
enum { kTypes = 3, kMostValues = 64 };
static const char *const g_types[kTypes] = {
    "tensor<8192x8192xf32>", "tensor<16384x8192xf32>", "tensor<8192xf32>"};
static const char *const g_rows[kTypes] = {
    "tensor<512x8192xf32>", "tensor<512x8192xf32>", "tensor<512xf32>"};

typedef struct maker {
  at_strbuf b;
  uint64_t seed;
  uint32_t names;
  struct {
    char name[16];
    uint32_t type;
  } values[kMostValues];
  uint32_t count;
} maker;

// A number below n.
static uint32_t any(maker *m, uint32_t n) {
  m->seed = m->seed * 6364136223846793005ull + 1442695040888963407ull;
  return (uint32_t)(m->seed >> 33) % n;
}

// Names a value of a type, which later ops may read; the table forgets old
// ones.
static const char *make(maker *m, uint32_t type, const char *fmt, uint32_t id,
                        uint32_t index) {
  uint32_t at = m->count < kMostValues ? m->count++ : any(m, kMostValues);
  snprintf(m->values[at].name, sizeof m->values[at].name, fmt, id, index);
  m->values[at].type = type;
  return m->values[at].name;
}

// Any value of the type: there is always an argument.
static const char *pick(maker *m, uint32_t type) {
  uint32_t from = any(m, m->count);
  for (uint32_t i = 0; i < m->count; i++) {
    uint32_t at = (from + i) % m->count;
    if (m->values[at].type == type) return m->values[at].name;
  }
  return "%a0";
}

// Two arrays sorted by the first.
static void add_sort(maker *m) {
  uint32_t id = m->names++, t = any(m, kTypes);
  const char *T = g_types[t], *x = pick(m, t), *y = pick(m, t);
  at_strbuf_addf(
      &m->b,
      "%%v%u:2 = \"stablehlo.sort\"(%s, %s) ({\n^bb0(%%p: tensor<f32>, %%q: "
      "tensor<f32>, %%r: tensor<f32>, %%s: tensor<f32>):\n%%c = "
      "stablehlo.compare LT, %%p, %%q : (tensor<f32>, tensor<f32>) -> "
      "tensor<i1>\nstablehlo.return %%c : tensor<i1>\n}) {dimension = 0 : i64, "
      "is_stable = true} : (%s, %s) -> (%s, %s)\n",
      id, x, y, T, T, T, T);
  for (uint32_t i = 0; i < 2; i++) make(m, t, "%%v%u#%u", id, i);
}

// Two to four states, each computed anew, added to or updated in place.
static void add_while(maker *m) {
  uint32_t id = m->names++, n = 2 + any(m, 3), t[4];
  at_strbuf_addf(&m->b,
                 "%%n%u = stablehlo.constant dense<5> : tensor<i32>\n%%z%u = "
                 "stablehlo.constant dense<0> : tensor<i32>\n%%o%u = "
                 "stablehlo.constant dense<1> : tensor<i32>\n%%v%u:%u = "
                 "stablehlo.while(%%i = %%z%u",
                 id, id, id, id, n + 1, id);
  for (uint32_t i = 0; i < n; i++) {
    t[i] = any(m, kTypes);
    at_strbuf_addf(&m->b, ", %%s%u = %s", i, pick(m, t[i]));
  }
  at_strbuf_addz(&m->b, ") : tensor<i32>");
  for (uint32_t i = 0; i < n; i++) at_strbuf_addf(&m->b, ", %s", g_types[t[i]]);
  at_strbuf_addf(&m->b,
                 "\ncond {\n%%c = stablehlo.compare LT, %%i, %%n%u : "
                 "(tensor<i32>, tensor<i32>) -> tensor<i1>\nstablehlo.return "
                 "%%c : tensor<i1>\n} do {\n%%j = stablehlo.add %%i, %%o%u : "
                 "tensor<i32>\n",
                 id, id);
  for (uint32_t i = 0; i < n; i++) {
    const char *T = g_types[t[i]];
    switch (any(m, 3)) {
      case 0:
        at_strbuf_addf(&m->b, "%%w%u = stablehlo.sine %%s%u : %s\n", i, i, T);
        break;
      case 1:
        at_strbuf_addf(&m->b, "%%w%u = stablehlo.add %%s%u, %s : %s\n", i, i,
                       pick(m, t[i]), T);
        break;
      default:
        at_strbuf_addf(
            &m->b,
            "%%x%u = stablehlo.constant dense<2.0> : %s\n%%w%u = "
            "stablehlo.dynamic_update_slice %%s%u, %%x%u, %%i%s : (%s, %s, "
            "tensor<i32>%s) -> %s\n",
            i, g_rows[t[i]], i, i, i, t[i] == 2 ? "" : ", %i", T, g_rows[t[i]],
            t[i] == 2 ? "" : ", tensor<i32>", T);
    }
  }
  at_strbuf_addz(&m->b, "stablehlo.return %j");
  for (uint32_t i = 0; i < n; i++) at_strbuf_addf(&m->b, ", %%w%u", i);
  at_strbuf_addz(&m->b, " : tensor<i32>");
  for (uint32_t i = 0; i < n; i++) at_strbuf_addf(&m->b, ", %s", g_types[t[i]]);
  at_strbuf_addz(&m->b, "\n}\n");
  for (uint32_t i = 0; i < n; i++) make(m, t[i], "%%v%u#%u", id, i + 1);
}

// Two branches with two results.
static void add_case(maker *m) {
  uint32_t id = m->names++, t = any(m, kTypes), u = any(m, kTypes);
  at_strbuf_addf(&m->b, "%%v%u:2 = \"stablehlo.case\"(%%which) (", id);
  for (uint32_t i = 0; i < 2; i++)
    at_strbuf_addf(&m->b,
                   "%s{\n%%p = stablehlo.cosine %s : %s\n%%q = stablehlo.add "
                   "%%p, %s : %s\nstablehlo.return %%q, %s : %s, %s\n}",
                   i ? ", " : "", pick(m, t), g_types[t], pick(m, t),
                   g_types[t], pick(m, u), g_types[t], g_types[u]);
  at_strbuf_addf(&m->b, ") : (tensor<i32>) -> (%s, %s)\n", g_types[t],
                 g_types[u]);
  make(m, t, "%%v%u#%u", id, 0);
  make(m, u, "%%v%u#%u", id, 1);
}

// A sum and a maximum at once.
static void add_reduce(maker *m) {
  uint32_t id = m->names++, t = any(m, 2);
  const char *T = g_types[t], *x = pick(m, t), *y = pick(m, t);
  at_strbuf_addf(
      &m->b,
      "%%z%u = stablehlo.constant dense<0.0> : tensor<f32>\n%%v%u:2 = "
      "\"stablehlo.reduce\"(%s, %s, %%z%u, %%z%u) ({\n^bb0(%%p: tensor<f32>, "
      "%%q: tensor<f32>, %%r: tensor<f32>, %%s: tensor<f32>):\n%%e = "
      "stablehlo.add %%p, %%r : tensor<f32>\n%%f = stablehlo.maximum %%q, %%s "
      ": tensor<f32>\nstablehlo.return %%e, %%f : tensor<f32>, "
      "tensor<f32>\n}) {dimensions = array<i64: 0>} : (%s, %s, tensor<f32>, "
      "tensor<f32>) -> (tensor<8192xf32>, tensor<8192xf32>)\n",
      id, id, x, y, id, id, T, T);
  for (uint32_t i = 0; i < 2; i++) make(m, 2, "%%v%u#%u", id, i);
}

// An op with two results that is no kernel, or one that nobody knows.
static void add_pair(maker *m, bool barrier) {
  uint32_t id = m->names++, t = any(m, kTypes), u = any(m, kTypes);
  const char *x = pick(m, t), *y = pick(m, u);
  at_strbuf_addf(&m->b, "%%v%u:2 = ", id);
  if (barrier)
    at_strbuf_addf(&m->b, "stablehlo.optimization_barrier %s, %s : %s, %s\n", x,
                   y, g_types[t], g_types[u]);
  else
    at_strbuf_addf(&m->b,
                   "stablehlo.custom_call @two(%s, %s) : (%s, %s) -> (%s, "
                   "%s)\n",
                   x, y, g_types[t], g_types[u], g_types[t], g_types[u]);
  make(m, t, "%%v%u#%u", id, 0);
  make(m, u, "%%v%u#%u", id, 1);
}

// Bits of a generator, converted.
static void add_random(maker *m) {
  uint32_t id = m->names++;
  at_strbuf_addf(&m->b,
                 "%%v%u:2 = stablehlo.rng_bit_generator %%key, algorithm = "
                 "THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, "
                 "tensor<8192x8192xui32>)\n%%f%u = stablehlo.convert %%v%u#1 : "
                 "(tensor<8192x8192xui32>) -> tensor<8192x8192xf32>\n",
                 id, id, id);
  make(m, 0, "%%f%u", id, 0);
}

// One elementwise op.
static void add_simple(maker *m) {
  uint32_t id = m->names++, t = any(m, kTypes);
  const char *x = pick(m, t), *y = pick(m, t);
  at_strbuf_addf(&m->b, "%%v%u = stablehlo.%s %s, %s : %s\n", id,
                 any(m, 2) ? "add" : "power", x, y, g_types[t]);
  make(m, t, "%%v%u", id, 0);
}

// MLIR with some arguments donated. The caller frees it.
static char *random_program(uint64_t seed) {
  maker m = {.seed = seed}, body = {.seed = seed * 77 + 5};
  uint32_t args = 3 + any(&m, 3), steps = 4 + any(&m, 10), results, out[4];
  for (uint32_t i = 0; i < args; i++) make(&body, i % kTypes, "%%a%u", i, 0);
  for (uint32_t i = 0; i < steps; i++) {
    switch (any(&m, 8)) {
      case 0:
        add_sort(&body);
        break;
      case 1:
      case 2:
        add_while(&body);
        break;
      case 3:
        add_case(&body);
        break;
      case 4:
        add_reduce(&body);
        break;
      case 5:
        add_pair(&body, any(&m, 2));
        break;
      case 6:
        add_random(&body);
        break;
      default:
        add_simple(&body);
    }
  }
  results = 1 + any(&m, 4);
  for (uint32_t r = 0; r < results; r++) out[r] = any(&body, body.count);
  at_strbuf_addz(&m.b,
                 "func.func public @main(%which: tensor<i32>, %key: "
                 "tensor<2xui64>");
  bool taken[4] = {0};
  for (uint32_t i = 0; i < args; i++) {
    at_strbuf_addf(&m.b, ", %%a%u: %s", i, g_types[i % kTypes]);
    uint32_t r = any(&m, results);
    if (any(&m, 2) && !taken[r] && body.values[out[r]].type == i % kTypes) {
      at_strbuf_addf(&m.b, " {tf.aliasing_output = %u : i32}", r);
      taken[r] = true;
    } else if (!any(&m, 3)) {
      at_strbuf_addz(&m.b, " {jax.buffer_donor = true}");
    }
  }
  at_strbuf_addz(&m.b, ") -> (");
  for (uint32_t r = 0; r < results; r++)
    at_strbuf_addf(&m.b, "%s%s", r ? ", " : "",
                   g_types[body.values[out[r]].type]);
  at_strbuf_addf(&m.b, ") {\n%sreturn ", body.b.ptr);
  for (uint32_t r = 0; r < results; r++)
    at_strbuf_addf(&m.b, "%s%s", r ? ", " : "", body.values[out[r]].name);
  at_strbuf_addz(&m.b, " : ");
  for (uint32_t r = 0; r < results; r++)
    at_strbuf_addf(&m.b, "%s%s", r ? ", " : "",
                   g_types[body.values[out[r]].type]);
  at_strbuf_addz(&m.b, "\n}\n");
  at_strbuf_free(&body.b);
  return m.b.ptr;
}

// ---- The property
// Fails the test with the program.
static void must(at_status st, const char *program) {
  if (st.err) fail_msg("%s\n%s", at_status_message(st), program);
}

// The peak, and VMEM beside it, holds what must live at once.
static void check_program(const char *target, const char *program) {
  at_arena *a = at_arena_create();
  bool tpu = strcmp(target, "H100") != 0;
  at_mmodule *read;
  at_module *m;
  at_estimate *e;
  at_target *t;
  at_str text = at_str_of(program);
  at_pass_options passes = {
      .fuse = !tpu, .placements = true, .fold_budget = 1 << 22};
  must(at_mlir_read((at_bytes){(const uint8_t *)text.ptr, text.len}, true, a,
                    &read),
       program);
  must(at_import(read, a, &m), program);
  must(at_passes_run(m, &passes, false, NULL, NULL), program);
  at_estimate_options o = {
      .target = target, .mode = AT_INTERP_ATOLL, .planned = m};
  must(at_estimate_run((at_bytes){0}, &o, a, &e), program);
  must(at_target_parse(at_str_of(target), AT_INTERP_ATOLL, a, &t), program);
  need f = {t, a, tpu};
  uint64_t least = least_of(&f, m->entry);
  uint64_t vmem =
      tpu ? (uint64_t)at_machine_number(t->machine, "vmem_bytes_per_core", 0) *
                (uint64_t)at_machine_number(t->machine, "cores_per_device", 1)
          : 0;
  if (e->peak_bytes + vmem < least)
    fail_msg("%s: %llu bytes at the peak, %llu live\n%s", target,
             (unsigned long long)e->peak_bytes, (unsigned long long)least,
             program);
  at_arena_destroy(a);
}

// On a machine without VMEM and on TPUs.
static void peaks_hold_what_lives(void **state) {
  static const char *const targets[] = {"H100", "v5e", "v5p", "v6e"};
  for (uint64_t seed = 1; seed <= 150; seed++) {
    char *program = random_program(seed);
    for (size_t i = 0; i < AT_LEN(targets); i++)
      check_program(targets[i], program);
    at_strbuf_free(&(at_strbuf){.ptr = program});
  }
}

// A scan that saves an array of 2 GiB; its other result is small.
static void saved_values_count(void **state) {
  static const char text[] =
      "func.func public @main(%x: tensor<64xf32>) -> (tensor<64xf32>, "
      "tensor<128x2048x2048xf32>) {\n"
      "%z = stablehlo.constant dense<0> : tensor<i32>\n"
      "%o = stablehlo.constant dense<1> : tensor<i32>\n"
      "%n = stablehlo.constant dense<128> : tensor<i32>\n"
      "%f = stablehlo.constant dense<0.0> : tensor<128x2048x2048xf32>\n"
      "%r:3 = stablehlo.while(%i = %z, %y = %x, %s = %f) : tensor<i32>, "
      "tensor<64xf32>, tensor<128x2048x2048xf32>\n"
      "cond {\n%c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) "
      "-> tensor<i1>\nstablehlo.return %c : tensor<i1>\n} do {\n"
      "%j = stablehlo.add %i, %o : tensor<i32>\n"
      "%w = stablehlo.sine %y : tensor<64xf32>\n"
      "%u = stablehlo.constant dense<1.0> : tensor<1x2048x2048xf32>\n"
      "%t = stablehlo.dynamic_update_slice %s, %u, %i, %z, %z : "
      "(tensor<128x2048x2048xf32>, tensor<1x2048x2048xf32>, tensor<i32>, "
      "tensor<i32>, tensor<i32>) -> tensor<128x2048x2048xf32>\n"
      "stablehlo.return %j, %w, %t : tensor<i32>, tensor<64xf32>, "
      "tensor<128x2048x2048xf32>\n}\n"
      "%g = stablehlo.multiply %r#2, %r#2 : tensor<128x2048x2048xf32>\n"
      "%q = stablehlo.cosine %r#1 : tensor<64xf32>\n"
      "return %q, %g : tensor<64xf32>, tensor<128x2048x2048xf32>\n}\n";
  static const char *const targets[] = {"H100", "v5p", "v6e"};
  for (size_t i = 0; i < AT_LEN(targets); i++) {
    at_arena *a = at_arena_create();
    at_estimate_options o = {.target = targets[i], .mode = AT_INTERP_ATOLL};
    at_estimate *e;
    at_bytes program = {(const uint8_t *)text, sizeof text - 1};
    must(at_estimate_run(program, &o, a, &e), text);
    double gib = (double)e->peak_bytes / (1 << 30);
    if (gib < 3.9 || gib > 4.3)
      fail_msg("%s: %g GiB at the peak, not 4", targets[i], gib);
    at_arena_destroy(a);
  }
}

// ---- How the cut into kernels grows

// n layers of a network with residuals, n elementwise steps after one another,
// n of them side by side and added up, or n of them that are one kernel.
static char *deep_program(int kind, uint32_t n) {
#define T "tensor<256x256xf32>"
  at_strbuf b = {0};
  at_strbuf_addz(&b, "func.func public @main(%x: " T ", %w: " T ") -> " T
                     " {\n%v0 = stablehlo.sine %x : " T "\n");
  for (uint32_t i = 0; i < n; i++) {
    const char *of = kind == 2 ? "%x" : NULL;
    if (kind == 3) {
      at_strbuf_addf(&b, "%%v%u = stablehlo.add %%v%u, %%x : " T "\n", i + 1,
                     i);
      continue;
    }
    if (kind == 0)
      at_strbuf_addf(&b,
                     "%%p%u = stablehlo.dot_general %%v%u, %%w, "
                     "contracting_dims = [1] x [0] : (" T ", " T ") -> " T "\n",
                     i, i);
    else if (of)
      at_strbuf_addf(&b, "%%p%u = stablehlo.tanh %s : " T "\n", i, of);
    else
      at_strbuf_addf(&b, "%%p%u = stablehlo.tanh %%v%u : " T "\n", i, i);
    at_strbuf_addf(&b, "%%v%u = stablehlo.add %%p%u, %%v%u : " T "\n", i + 1, i,
                   i);
  }
  at_strbuf_addf(&b, "return %%v%u : " T "\n}\n", n);
  return b.ptr;
#undef T
}

// The program before any pass.
static at_module *imported(at_arena *a, const char *text) {
  at_mmodule *read;
  at_module *m;
  must(at_mlir_read((at_bytes){(const uint8_t *)text, strlen(text)}, true, a,
                    &read),
       text);
  must(at_import(read, a, &m), text);
  return m;
}

// How many nodes the cut looks at.
static uint64_t visits_of(int kind, uint32_t n, bool stored) {
  at_arena *a = at_arena_create();
  at_est_groups groups;
  char *text = deep_program(kind, n);
  at_module *m = imported(a, text);
  must(stored ? at_est_group_stored(m->entry, a, &groups)
              : at_est_group_nodes(m->entry, true, a, &groups),
       "deep");
  uint64_t visits = groups.visits;
  at_arena_destroy(a);
  free(text);
  return visits;
}

// Four times the program is at most five times the work.
static void cuts_grow_with_the_program(void **state) {
  for (int kind = 0; kind < 3; kind++)
    for (int stored = 0; stored < 2; stored++) {
      uint64_t few = visits_of(kind, 500, stored);
      uint64_t many = visits_of(kind, 2000, stored);
      assert_true(few >= 500);
      if (many > 5 * few)
        fail_msg("kind %d, stored %d: %llu visits, %llu for 4 times the nodes",
                 kind, stored, (unsigned long long)few,
                 (unsigned long long)many);
    }
}

typedef struct cutting {
  at_arena *arena;
  const at_comp *comp;
  at_est_groups groups;
  at_status status;
} cutting;

// Cuts on another thread; its status is looked at afterwards.
static void *cut_there(void *user) {
  cutting *c = user;
  c->status = at_est_group_nodes(c->comp, true, c->arena, &c->groups);
  return NULL;
}

// A fusion may be as long as the program, a stack may not.
static void long_chains_need_no_stack(void **state) {
  enum { kNodes = 20000, kStack = 1 << 18 };
  at_arena *a = at_arena_create();
  char *text = deep_program(3, kNodes);
  cutting c = {.arena = a, .comp = imported(a, text)->entry};
  pthread_attr_t attr;
  pthread_t thread;
  assert_int_equal(pthread_attr_init(&attr), 0);
  assert_int_equal(pthread_attr_setstacksize(&attr, kStack), 0);
  assert_int_equal(pthread_create(&thread, &attr, cut_there, &c), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  pthread_attr_destroy(&attr);
  must(c.status, "a chain");
  assert_int_equal(c.groups.count, 1);
  assert_int_equal(c.groups.list[0]->nodes.len, kNodes + 1);
  at_arena_destroy(a);
  free(text);
}

// ---- Which values are stored as bf16

// The first node of that op.
static const at_node *first_of(const at_comp *c, at_op op) {
  AT_FOR_NODES(n, c) if (n->op == op) return n;
  fail_msg("no %s", at_op_text(op));
  return NULL;
}

// A turn's tanh needs the state as it is: so does what the next turn makes of
// it, although products alone read that behind the loop.
static void state_is_as_wide_as_any_turn_needs(void **state) {
#define T "tensor<256x256xf32>"
  at_arena *a = at_arena_create();
  const at_comp *c =
      imported(
          a,
          "func.func public @main(%x: " T ") -> " T
          " {\n"
          "%z = stablehlo.constant dense<0> : tensor<i32>\n"
          "%n = stablehlo.constant dense<3> : tensor<i32>\n"
          "%o = stablehlo.constant dense<1> : tensor<i32>\n"
          "%s = stablehlo.sine %x : " T
          "\n"
          "%r:2 = stablehlo.while(%k = %z, %p = %s) : tensor<i32>, " T
          "\ncond {\n"
          "%c = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> "
          "tensor<i1>\n"
          "stablehlo.return %c : tensor<i1>\n} do {\n"
          "%q = stablehlo.transpose %p, dims = [1, 0] : (" T ") -> " T
          "\n%t = stablehlo.tanh %p : " T
          "\n%j = stablehlo.add %k, %o : tensor<i32>\n"
          "stablehlo.return %j, %q : tensor<i32>, " T
          "\n}\n"
          "%d = stablehlo.dot_general %r#1, %x, contracting_dims = [1] x [0] : "
          "(" T ", " T ") -> " T "\nreturn %d : " T "\n}\n")
          ->entry;
#undef T
  uses u = {.arena = a, .read = at_map_in(a), .wide = at_map_in(a)};
  must(at_est_note_uses(&u, c), "uses");
  const at_node *sine = first_of(c, AT_OP_SINE);
  const at_node *loop = first_of(c, AT_OP_WHILE);
  const at_node *turned = first_of(loop->regions[1], AT_OP_TRANSPOSE);
  assert_false(at_est_only_products(&u, (at_value){(at_node *)sine, 0}));
  assert_false(at_est_only_products(&u, (at_value){(at_node *)turned, 0}));
  assert_true(at_est_only_products(&u, (at_value){(at_node *)loop, 1}));
  at_arena_destroy(a);
}

// ---- Rules of the TPU's plan, by programs of which each shows one

// Two updates whose results swap the places of their arguments: the first is
// there while the second still reads the place.
static void results_wait_for_their_places(void **state) {
#define T "tensor<8192x8192xf32>"
  static const char text[] =
      "func.func public @main(%p: " T " {tf.aliasing_output = 1 : i32}, %q: " T
      " {tf.aliasing_output = 0 : i32}) -> (" T ", " T
      ") {\n"
      "%a = stablehlo.sine %p : " T
      "\n"
      "%b = stablehlo.reverse %q, dims = [0] : " T
      "\n"
      "return %a, %b : " T ", " T "\n}\n";
  at_arena *a = at_arena_create();
  is_mib(estimate(a, "v5e", text), 256);
  at_arena_destroy(a);
#undef T
}

// What a product computes goes into the loop's array without a place of its
// own; the state, which each turn reads and writes, has two.
static void products_write_into_arrays(void **state) {
#define S "tensor<32768x4096xbf16>"
#define W "tensor<4096x4096xbf16>"
#define B "tensor<4x32768x4096xbf16>"
#define ONE "tensor<1x32768x4096xbf16>"
  static const char text[] =
      "func.func public @main(%x: " S ", %w: " W ") -> " B
      " {\n"
      "%z = stablehlo.constant dense<0> : tensor<i32>\n"
      "%o = stablehlo.constant dense<1> : tensor<i32>\n"
      "%n = stablehlo.constant dense<4> : tensor<i32>\n"
      "%f = stablehlo.constant dense<0.0> : " B
      "\n"
      "%r:3 = stablehlo.while(%i = %z, %y = %x, %s = %f) : tensor<i32>, " S
      ", " B
      "\n"
      "cond {\n%c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) "
      "-> tensor<i1>\nstablehlo.return %c : tensor<i1>\n} do {\n"
      "%j = stablehlo.add %i, %o : tensor<i32>\n"
      "%d = stablehlo.dot_general %y, %w, contracting_dims = [1] x [0] : (" S
      ", " W ") -> " S
      "\n"
      "%u = stablehlo.broadcast_in_dim %d, dims = [1, 2] : (" S ") -> " ONE
      "\n"
      "%k = stablehlo.tanh %u : " ONE
      "\n"
      "%t = stablehlo.dynamic_update_slice %s, %k, %i, %z, %z : (" B ", " ONE
      ", tensor<i32>, tensor<i32>, tensor<i32>) -> " B
      "\n"
      "stablehlo.return %j, %d, %t : tensor<i32>, " S ", " B
      "\n}\n"
      "return %r#2 : " B "\n}\n";
  at_arena *a = at_arena_create();
  is_mib(estimate(a, "v5e", text), 512);
  at_arena_destroy(a);
#undef S
#undef W
#undef B
#undef ONE
}

// The cosine of a sorted array: where the program does not fit otherwise, it is
// sorted in the result's memory.
static void sort_and_cosine(uint32_t rows, double mib) {
  at_arena *a = at_arena_create();
  char *text = at_arena_printf(
      a,
      "func.func public @main(%%x: tensor<%ux8192xf32>) -> tensor<%ux8192xf32> "
      "{\n%%s = \"stablehlo.sort\"(%%x) ({\n^bb0(%%p: tensor<f32>, %%q: "
      "tensor<f32>):\n%%c = stablehlo.compare LT, %%p, %%q : (tensor<f32>, "
      "tensor<f32>) -> tensor<i1>\nstablehlo.return %%c : tensor<i1>\n}) "
      "{dimension = 0 : i64, is_stable = false} : (tensor<%ux8192xf32>) -> "
      "tensor<%ux8192xf32>\n"
      "%%r = stablehlo.cosine %%s : tensor<%ux8192xf32>\n"
      "return %%r : tensor<%ux8192xf32>\n}\n",
      rows, rows, rows, rows, rows, rows);
  is_mib(estimate(a, "v5e", text), mib);
  at_arena_destroy(a);
}

// What fits has a copy of its own; what does not, works where its result will
// be.
static void tight_programs_work_in_results(void **state) {
  sort_and_cosine(32768, 1024);
  sort_and_cosine(196608, 0);
}

// A product whose result is multiplied by a function of `of` before two others
// read it. Of itself: they compute that as they read, and the product is stored
// as it is. Of another array: its kernel computes that, and stores bf16. As
// libtpu 0.0.52 has both.
static void put_together(const char *of, double mib) {
#define T "tensor<65536x2048xf32>"
#define W "tensor<2048x2048xf32>"
#define DOT(of, by)                      \
  " = stablehlo.dot_general " of ", " by \
  ", contracting_dims = [1] x [0] : (" T ", " W ") -> " T "\n"
  at_arena *a = at_arena_create();
  char *text = at_arena_printf(
      a,
      "func.func public @main(%%x: " T ", %%v: " W ", %%w: " W ", %%o: " T
      ") -> (" T ", " T ") {\n%%y" DOT(
          "%%x", "%%v") "%%z = stablehlo.tanh %s : " T
                        "\n%%s = stablehlo.multiply %%y, %%z : " T
                        "\n"
                        "%%a" DOT("%%s", "%%w") "%%b" DOT(
                            "%%s", "%%v") "return %%a, %%b : " T ", " T "\n}\n",
      of);
  is_mib(estimate(a, "v5e", text), mib);
  at_arena_destroy(a);
#undef T
#undef W
#undef DOT
}

// Half the memory where the product's kernel goes on.
static void products_go_on_to_where_all_meets(void **state) {
  put_together("%y", 512);
  put_together("%o", 256);
}

// Rows of 16,384 become rows of two, which the compiler writes with the
// exponentials that they are made of: 4,000 and 62.5 MiB in libtpu 0.0.52.
static void reshapes_that_move_everything_are_written(void **state) {
  static const char text[] =
      "func.func public @main(%x: tensor<1000x16384xf32>) -> tensor<2xf32> {\n"
      "%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
      "%e = stablehlo.exponential %x : tensor<1000x16384xf32>\n"
      "%r = stablehlo.reshape %e : (tensor<1000x16384xf32>) -> "
      "tensor<8192000x2xf32>\n"
      "%s = stablehlo.reduce(%r init: %z) applies stablehlo.add across "
      "dimensions = [0] : (tensor<8192000x2xf32>, tensor<f32>) -> "
      "tensor<2xf32>\nreturn %s : tensor<2xf32>\n}\n";
  at_arena *a = at_arena_create();
  is_mib(estimate(a, "v5p", text), 4062.5);
  at_arena_destroy(a);
}

// Two products in a row, bf16[4096, 4096]. Between them one core keeps the
// first result in VMEM, two cores that share a device leave it in HBM: 0 and 32
// MiB in libtpu 0.0.52.
static void two_cores_leave_products_in_hbm(void **state) {
#define T "tensor<4096x4096xbf16>"
#define DOT(of)                                                             \
  " = stablehlo.dot_general " of ", %w, contracting_dims = [1] x [0] : (" T \
  ", " T ") -> " T "\n"
  static const char text[] =
      "func.func public @main(%x: " T ", %w: " T ") -> " T
      " {\n%y" DOT("%x") "%z" DOT("%y") "return %z : " T "\n}\n";
  at_arena *a = at_arena_create();
  is_mib(estimate(a, "v5e", text), 0);
  is_mib(estimate(a, "v5p", text), 32);
  at_arena_destroy(a);
#undef T
#undef DOT
}

// A call without results, as JAX's dce_sink is: nothing of it is stored.
static void calls_may_have_no_results(void **state) {
  static const char text[] =
      "func.func public @main(%x: tensor<8xf32>) -> tensor<8xf32> {\n"
      "%y = stablehlo.sine %x : tensor<8xf32>\n"
      "stablehlo.custom_call @dce_sink(%y) {has_side_effect = true} : "
      "(tensor<8xf32>) -> ()\n"
      "return %x : tensor<8xf32>\n}\n";
  static const char *const targets[] = {"v5e", "v6e", "cpu"};
  for (uint32_t i = 0; i < AT_LEN(targets); i++) {
    at_arena *a = at_arena_create();
    is_mib(estimate(a, targets[i], text), 0);
    at_arena_destroy(a);
  }
}

// A barrier's operands are stored, all of them; without it the kernel behind it
// makes them as it reads.
static void plan_barrier(const char *target, bool barrier, double mib) {
#define T "tensor<8192x8192xf32>"
  at_arena *a = at_arena_create();
  char *text = at_arena_printf(
      a,
      "func.func public @main(%%x: " T ", %%y: " T ") -> " T
      " {\n%%a = stablehlo.add %%x, %%y : " T
      "\n%%b = stablehlo.multiply %%x, %%y : " T
      "\n%s%%r = stablehlo.subtract %%%s, %%%s : " T "\nreturn %%r : " T
      "\n}\n",
      barrier ? "%c:2 = stablehlo.optimization_barrier %a, %b : " T ", " T "\n"
              : "",
      barrier ? "c#0" : "a", barrier ? "c#1" : "b");
  is_mib(estimate(a, target, text), mib);
  at_arena_destroy(a);
#undef T
}

// 256 MiB each.
static void kernels_end_at_barriers(void **state) {
  plan_barrier("v5e", true, 512);
  plan_barrier("v5e", false, 0);
}

// A loop adds a product to its state in place; a state that the product reads
// has a second place for what comes of it.
static void add_up(const char *left, double mib) {
#define T "tensor<8192x8192xf32>"
  at_arena *a = at_arena_create();
  char *text = at_arena_printf(
      a,
      "func.func public @main(%%x: " T
      ") -> tensor<f32> {\n"
      "%%z = stablehlo.constant dense<0> : tensor<i32>\n"
      "%%o = stablehlo.constant dense<1> : tensor<i32>\n"
      "%%n = stablehlo.constant dense<4> : tensor<i32>\n"
      "%%f = stablehlo.constant dense<0.0> : tensor<f32>\n"
      "%%g = stablehlo.constant dense<0.0> : " T
      "\n%%r:2 = stablehlo.while(%%i = %%z, %%s = %%g) : tensor<i32>, " T
      "\ncond {\n%%c = stablehlo.compare LT, %%i, %%n : (tensor<i32>, "
      "tensor<i32>) -> tensor<i1>\nstablehlo.return %%c : tensor<i1>\n} do {\n"
      "%%j = stablehlo.add %%i, %%o : tensor<i32>\n"
      "%%q = stablehlo.convert %%i : (tensor<i32>) -> tensor<f32>\n"
      "%%b = stablehlo.broadcast_in_dim %%q, dims = [] : (tensor<f32>) -> " T
      "\n%%k = stablehlo.multiply %%x, %%b : " T
      "\n%%d = stablehlo.dot_general %s, %%x, contracting_dims = [1] x [0] : "
      "(" T ", " T ") -> " T "\n%%t = stablehlo.add %%s, %%d : " T
      "\nstablehlo.return %%j, %%t : tensor<i32>, " T
      "\n}\n%%m = stablehlo.reduce(%%r#1 init: %%f) applies stablehlo.add "
      "across dimensions = [0, 1] : (" T
      ", tensor<f32>) -> tensor<f32>\nreturn %%m : tensor<f32>\n}\n",
      left);
  is_mib(estimate(a, "v5e", text), mib);
  at_arena_destroy(a);
#undef T
}

// 256 MiB each; an argument that only products of the loop read is rounded
// before it: 128 MiB.
static void products_add_up_in_place(void **state) {
  add_up("%k", 256);
  add_up("%s", 640);
}

// A stable sort's indices, which nobody reads: 8 MiB in libtpu 0.0.52.
static void indices_of_sorts_are_in_hbm(void **state) {
  static const char text[] =
      "func.func public @main(%x: tensor<16384x128xf32>) -> "
      "tensor<1x128xf32> {\n%s = \"stablehlo.sort\"(%x) ({\n^bb0(%p: "
      "tensor<f32>, %q: tensor<f32>):\n%c = stablehlo.compare LT, %p, %q : "
      "(tensor<f32>, tensor<f32>) -> tensor<i1>\nstablehlo.return %c : "
      "tensor<i1>\n}) {dimension = 0 : i64, is_stable = true} : "
      "(tensor<16384x128xf32>) -> tensor<16384x128xf32>\n"
      "%r = stablehlo.slice %s [8192:8193, 0:128] : (tensor<16384x128xf32>) -> "
      "tensor<1x128xf32>\nreturn %r : tensor<1x128xf32>\n}\n";
  at_arena *a = at_arena_create();
  is_mib(estimate(a, "v6e", text), 8);
  at_arena_destroy(a);
}

// What is interleaved is spread first: two arrays of 256 MiB, no fusion.
static void pads_between_elements_are_kernels(void **state) {
#define H "tensor<8192x4096xf32>"
#define T "tensor<8192x8192xf32>"
#define PAD(low, high)                                            \
  " = stablehlo.pad %x, %z, low = [0, " low "], high = [0, " high \
  "], interior = [0, 1] : (" H ", tensor<f32>) -> " T "\n"
  static const char text[] =
      "func.func public @main(%x: " H ") -> " T
      " {\n%z = stablehlo.constant dense<0.0> : tensor<f32>\n%a" PAD(
          "0", "1") "%b" PAD("1", "0") "%y = stablehlo.add %a, %b : " T
                                       "\nreturn %y : " T "\n}\n";
  at_arena *a = at_arena_create();
  is_mib(estimate(a, "v5e", text), 512);
  at_arena_destroy(a);
#undef H
#undef T
#undef PAD
}

// 1,024 products of 32 x 32: columns lie along 128 lanes, so that what one
// product hands to the next, bf16, takes 8 MiB and not 2, and so does the copy
// of the argument.
static void batches_lie_by_rows(void **state) {
#define T "tensor<1024x32x32xf32>"
#define DOT(of)                                                            \
  " = stablehlo.dot_general " of ", " of                                   \
  ", batching_dims = [0] x [0], contracting_dims = [2] x [1] : (" T ", " T \
  ") -> " T "\n"
  static const char text[] =
      "func.func public @main(%x: " T ") -> " T
      " {\n%y" DOT("%x") "%z" DOT("%y") "return %z : " T "\n}\n";
  at_arena *a = at_arena_create();
  is_mib(estimate(a, "v5p", text), 16);
  at_arena_destroy(a);
#undef T
#undef DOT
}

// A softmax after a product: its scores are stored, in f32, and exponentials
// computed by the product that reads them. 128 MiB in libtpu 0.0.52.
static void scores_are_stored(void **state) {
#define Q "tensor<4x8x1024x128xbf16>"
#define S "tensor<4x8x1024x1024xf32>"
#define N "tensor<4x8x1024x1024xbf16>"
#define R "tensor<4x8x1024xf32>"
  static const char text[] =
      "func.func public @main(%q: " Q ", %k: " Q ", %v: " Q ") -> " Q
      " {\n%d = stablehlo.dot_general %q, %k, batching_dims = [0, 1] x [0, 1], "
      "contracting_dims = [3] x [3] : (" Q ", " Q ") -> " N
      "\n%s = stablehlo.convert %d : (" N ") -> " S
      "\n%i = stablehlo.constant dense<0xFF800000> : tensor<f32>\n"
      "%m = stablehlo.reduce(%s init: %i) applies stablehlo.maximum across "
      "dimensions = [3] : (" S ", tensor<f32>) -> " R
      "\n%b = stablehlo.broadcast_in_dim %m, dims = [0, 1, 2] : (" R ") -> " S
      "\n%c = stablehlo.subtract %s, %b : " S
      "\n%e = stablehlo.exponential %c : " S
      "\n%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
      "%t = stablehlo.reduce(%e init: %z) applies stablehlo.add across "
      "dimensions = [3] : (" S ", tensor<f32>) -> " R
      "\n%u = stablehlo.broadcast_in_dim %t, dims = [0, 1, 2] : (" R ") -> " S
      "\n%p = stablehlo.divide %e, %u : " S "\n%n = stablehlo.convert %p : (" S
      ") -> " N
      "\n%o = stablehlo.dot_general %n, %v, batching_dims = [0, 1] x [0, 1], "
      "contracting_dims = [3] x [2] : (" N ", " Q ") -> " Q "\nreturn %o : " Q
      "\n}\n";
  at_arena *a = at_arena_create();
  is_mib(estimate(a, "v5e", text), 128);
  at_arena_destroy(a);
#undef Q
#undef S
#undef N
#undef R
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(calls_may_have_no_results),
      cmocka_unit_test(two_cores_leave_products_in_hbm),
      cmocka_unit_test(kernels_end_at_barriers),
      cmocka_unit_test(pads_between_elements_are_kernels),
      cmocka_unit_test(batches_lie_by_rows),
      cmocka_unit_test(scores_are_stored),
      cmocka_unit_test(products_add_up_in_place),
      cmocka_unit_test(indices_of_sorts_are_in_hbm),
      cmocka_unit_test(cuts_grow_with_the_program),
      cmocka_unit_test(long_chains_need_no_stack),
      cmocka_unit_test(state_is_as_wide_as_any_turn_needs),
      cmocka_unit_test(results_wait_for_their_places),
      cmocka_unit_test(products_write_into_arrays),
      cmocka_unit_test(tight_programs_work_in_results),
      cmocka_unit_test(products_go_on_to_where_all_meets),
      cmocka_unit_test(reshapes_that_move_everything_are_written),
      cmocka_unit_test(saved_values_count),
      cmocka_unit_test(peaks_hold_what_lives),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

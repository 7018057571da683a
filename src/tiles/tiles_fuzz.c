// Whatever order of calls the bytes ask for: statuses, never crashes, and what
// holds of every view, mapping and plan holds.
#include <stdio.h>
#include <stdlib.h>

#include "tiles/tiles.h"

enum { kViews = 16 };

// What is left of the input.
typedef struct tape {
  const uint8_t *ptr;
  size_t len;
} tape;
// 0 past the end.
static uint32_t next(tape *t) {
  if (!t->len) return 0;
  t->len--;
  return *t->ptr++;
}
static int64_t small(tape *t) { return (int64_t)next(t) - 3; }

// Aborts, which the fuzzer reports.
static void must(bool x, const char *what) {
  if (x) return;
  fprintf(stderr, "broken: %s\n", what);
  abort();
}

// Runs, regions and mappings agree with each other.
static void check_view(const at_tiles_view *v) {
  at_tiles_runs r = {0};
  int64_t n = at_tiles_view_elements(v), sum = 0;
  if (n > 1 << 16) return;
  if (at_code_take(at_tiles_view_runs(v, 0, n, &r)) == AT_OK_CODE) {
    for (size_t i = 0; i < r.len; i++) sum += r.ptr[i].count;
    must(sum == n, "runs name every element once");
  }
  free(r.ptr);
  at_tiles_mapping m = {0};
  if (at_code_take(at_tiles_mapping_get(v, &m)) == AT_OK_CODE) {
    for (size_t i = 0; i < m.len; i++)
      must(m.ptr[i].begin == (i ? m.ptr[i - 1].end : 0) &&
               m.ptr[i].end > m.ptr[i].begin,
           "a mapping covers its view");
    must(!m.len || m.ptr[m.len - 1].end == n, "to the end");
  }
  free(m.ptr);
}

// Any op with any arguments; most are refused.
static at_status view_op(tape *t, const at_tiles_view *v,
                         const at_tiles_view *w, const at_tiles_view **out) {
  int64_t dims[4] = {small(t), small(t), small(t), small(t)};
  uint32_t rank = next(t) % 5, dim = next(t) % 5;
  switch (next(t) % 9) {
    case 0:
      return at_tiles_view_slice(v, dim, dims[0], dims[1], out);
    case 1:
      return at_tiles_view_concat((const at_tiles_view *[]){v, w}, 2, dim, out);
    case 2:
      return at_tiles_view_reshape(v, (at_dims){dims, rank}, out);
    case 3:
      return at_tiles_view_flatten(v, out);
    case 4:
      return at_tiles_view_dimshuffle(v, (at_dims){dims, rank}, out);
    case 5:
      return at_tiles_view_reverse(v, dim, out);
    case 6:
      return at_tiles_view_subsample(v, dim, dims[0], out);
    case 7:
      return at_tiles_view_broadcast(v, dim, dims[0] % 5, out);
    default:
      return at_tiles_view_at(v, dims[0], out);
  }
}

// A set of a few vertices; what compiles runs, and its exchange is verified.
static void compile(tape *t, at_tiles_graph *g, const at_tiles_view *const *v) {
  static const char *const names[] = {"add", "copy.vector", "negate.regions",
                                      "sum", "product",     "fill"};
  const at_tiles_codelet *c;
  at_tiles_set *s;
  at_tiles_program *p;
  const at_tiles_plan *plan;
  const at_tiles_view *f[3] = {v[next(t) % kViews], v[next(t) % kViews],
                               v[next(t) % kViews]};
  double param = 1;
  int64_t cycles;
  if (at_code_take(at_tiles_codelet_find(names[next(t) % 6], &c)) ||
      at_code_take(at_tiles_set_add(g, "s", &s)))
    return;
  uint32_t vertices = next(t) % 4;
  for (uint32_t i = 0; i < vertices; i++)
    (void)at_code_take(at_tiles_vertex_add(s, c, next(t) * 7, f, &param));
  if (at_code_take(at_tiles_program_execute(s, &p))) return;
  if (at_code_take(at_tiles_compile(g, p, NULL, &plan)) == AT_OK_CODE) {
    must(plan->cycles >= 0 && plan->peak_bytes <= 638976, "a plan fits");
    must(at_code_take(at_tiles_run_program(g, p, NULL, &cycles)) != AT_INTERNAL,
         "a plan runs");
    const at_tiles_exchange *x;
    at_tiles_machine m = *at_tiles_graph_machine(g);
    for (int after = 0; after < 2; after++)
      if (at_code_take(at_tiles_program_exchange(p, after, &x)) == AT_OK_CODE)
        must(at_code_take(at_tiles_exchange_verify(&m, x)) == AT_OK_CODE,
             "an exchange is in order");
    at_strbuf b = {0};
    (void)at_code_take(at_tiles_exchange_text(p, &b));
    at_strbuf_free(&b);
  }
}

// Variables, then calls until the input ends.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tape t = {data, size};
  const at_machine *m;
  at_tiles_machine machine;
  at_tiles_graph *g;
  if (at_code_take(at_machine_find(AT_STR("mk2"), &m)) ||
      at_code_take(at_tiles_machine_read(m, &machine)) ||
      at_code_take(at_tiles_graph_create(&machine, &g)))
    return 0;
  at_tiles_mapping_policy(g, (at_tiles_policy)(next(&t) % 3));
  const at_tiles_view *v[kViews] = {0};
  int64_t dims[3] = {1 + next(&t) % 9, 1 + next(&t) % 9, next(&t) % 5};
  for (int i = 0; i < kViews; i++) {
    char name[8];
    snprintf(name, sizeof name, "v%d", i);
    if (at_code_take(at_tiles_variable_add(
            g, name, AT_F32, (at_dims){dims, 1 + (uint32_t)i % 3}, &v[i])))
      goto out;
  }
  for (int steps = 0; t.len && steps < 200; steps++) {
    uint32_t i = next(&t) % kViews, k = next(&t) % kViews, what = next(&t) % 8;
    const at_tiles_view *made;
    if (what < 5) {
      if (at_code_take(view_op(&t, v[i], v[k], &made)) == AT_OK_CODE &&
          at_tiles_view_elements(made) < 1 << 16)
        v[k] = made;
    } else if (what == 5) {
      (void)at_code_take(at_tiles_mapping_set(v[i], next(&t) * 6));
    } else if (what == 6) {
      (void)at_code_take(at_tiles_mapping_linear(v[i], small(&t), small(&t)));
    } else {
      compile(&t, g, v);
    }
    check_view(v[k]);
  }
out:
  at_tiles_graph_destroy(g);
  return 0;
}

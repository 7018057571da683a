// libatoll_tiles.so: what atoll_tiles.h declares.
#include <stdio.h>
#include <stdlib.h>

#include "base/cpu.h"
#include "base/locale.h"
#include "tiles/atoll_tiles.h"
#include "tiles/tiles.h"

static _Thread_local char g_error[2048];

// Keeps the message of a failure for this thread and gives its code; consumes
// st.
static int done(at_status st) {
  if (at_ok(st)) return 0;
  snprintf(g_error, sizeof g_error, "%s: %s", at_code_name(at_status_code(st)),
           at_status_message(st));
  return (int)at_code_take(st);
}

const char *atoll_tiles_error(void) { return g_error; }

// ---- Graph
int atoll_tiles_open(const char *machine, at_tiles_graph **out) {
  const at_machine *m;
  at_tiles_machine t;
  locale_t before = at_locale_enter();  // its figures are read from JSON
  at_status st = at_machine_find(at_str_of(machine), &m);
  at_locale_leave(before);
  if (at_ok(st)) st = at_tiles_machine_read(m, &t);
  if (at_ok(st)) st = at_tiles_graph_create(&t, out);
  return done(st);
}
void atoll_tiles_close(at_tiles_graph *g) { at_tiles_graph_destroy(g); }
int64_t atoll_tiles_num_tiles(const at_tiles_graph *g) {
  return at_tiles_graph_machine(g)->tiles;
}
void atoll_tiles_policy(at_tiles_graph *g, int policy) {
  at_tiles_mapping_policy(g, (at_tiles_policy)policy);
}

// The element type of that name. INVALID_ARGUMENT: there is none.
static at_status dtype_of(const char *text, at_dtype *out) {
  for (int t = 1; t < AT_DTYPE_COUNT; t++)
    if (at_str_is(at_str_of(text), at_dtype_of((at_dtype)t)->text))
      return *out = (at_dtype)t, AT_OK;
  return AT_FAIL(AT_INVALID_ARGUMENT, "no element type %s", text);
}
// An unknown element type is INVALID_ARGUMENT.
int atoll_tiles_variable(at_tiles_graph *g, const char *name, const char *dtype,
                         const int64_t *dims, uint32_t rank,
                         const at_tiles_view **out) {
  at_dtype t;
  at_status st = dtype_of(dtype, &t);
  if (at_ok(st))
    st = at_tiles_variable_add(g, name, t, (at_dims){dims, rank}, out);
  return done(st);
}

// ---- Views
uint32_t atoll_tiles_rank(const at_tiles_view *v) {
  return at_tiles_view_dims(v).rank;
}
const int64_t *atoll_tiles_dims(const at_tiles_view *v) {
  return at_tiles_view_dims(v).ptr;
}
int atoll_tiles_slice(const at_tiles_view *v, uint32_t dim, int64_t begin,
                      int64_t end, const at_tiles_view **out) {
  return done(at_tiles_view_slice(v, dim, begin, end, out));
}
int atoll_tiles_concat(const at_tiles_view *const *v, uint32_t n, uint32_t dim,
                       const at_tiles_view **out) {
  return done(at_tiles_view_concat(v, n, dim, out));
}
int atoll_tiles_reshape(const at_tiles_view *v, const int64_t *dims,
                        uint32_t rank, const at_tiles_view **out) {
  return done(at_tiles_view_reshape(v, (at_dims){dims, rank}, out));
}
int atoll_tiles_dimshuffle(const at_tiles_view *v, const int64_t *perm,
                           uint32_t rank, const at_tiles_view **out) {
  return done(at_tiles_view_dimshuffle(v, (at_dims){perm, rank}, out));
}
int atoll_tiles_reverse(const at_tiles_view *v, uint32_t dim,
                        const at_tiles_view **out) {
  return done(at_tiles_view_reverse(v, dim, out));
}
int atoll_tiles_subsample(const at_tiles_view *v, uint32_t dim, int64_t step,
                          const at_tiles_view **out) {
  return done(at_tiles_view_subsample(v, dim, step, out));
}
int atoll_tiles_broadcast(const at_tiles_view *v, uint32_t dim, int64_t n,
                          const at_tiles_view **out) {
  return done(at_tiles_view_broadcast(v, dim, n, out));
}
int atoll_tiles_clone(const at_tiles_view *v, const char *name,
                      const at_tiles_view **out) {
  return done(at_tiles_view_clone(v, name, out));
}
int atoll_tiles_write(const at_tiles_view *v, const void *data, size_t bytes) {
  return done(at_tiles_write(v, data, bytes));
}
int atoll_tiles_read(const at_tiles_view *v, void *data, size_t bytes) {
  return done(at_tiles_read(v, data, bytes));
}

// out: n flat views.
int atoll_tiles_reorder(const at_tiles_view *const *v, uint32_t n,
                        const at_tiles_view **out) {
  return done(at_tiles_view_reorder(v, n, out));
}
// form 0: [N, ceil(C/4), H, W, 4]; 1: [N, H, ceil(C/4), W, 4]. dims: N, H, W,
// C.
int atoll_tiles_layout(at_tiles_graph *g, const char *name, const char *dtype,
                       int form, const int64_t *dims, const at_tiles_view **out,
                       const at_tiles_view **out_padded) {
  at_dtype t;
  at_status st = dtype_of(dtype, &t);
  if (at_ok(st))
    st = at_tiles_layout_add(g, name, t, (at_tiles_layout)form, dims[0],
                             dims[1], dims[2], dims[3], out, out_padded);
  return done(st);
}
int atoll_tiles_flag(const at_tiles_view *v, uint32_t flags) {
  return done(at_tiles_variable_flag(v, flags));
}

// ---- Mapping
int atoll_tiles_map(const at_tiles_view *v, uint32_t tile) {
  return done(at_tiles_mapping_set(v, tile));
}
int atoll_tiles_map_linear(const at_tiles_view *v, int64_t grain,
                           int64_t min_bytes) {
  return done(at_tiles_mapping_linear(v, grain, min_bytes));
}
int atoll_tiles_map_like(const at_tiles_view *src, const at_tiles_view *dst) {
  return done(at_tiles_mapping_copy(src, dst));
}
int atoll_tiles_check(const at_tiles_view *v) {
  return done(at_tiles_mapping_check(v));
}
// Of n views, positions counted through all of them. *out_ptr: (begin, end,
// tile) as in at_tiles_interval; atoll_tiles_free it.
int atoll_tiles_mapping(const at_tiles_view *const *v, uint32_t n,
                        at_tiles_interval **out_ptr, size_t *out_len) {
  at_tiles_mapping m = {0};
  at_status st = at_tiles_mapping_get_list(v, n, &m);
  if (at_ok(st)) *out_ptr = m.ptr, *out_len = m.len;
  return done(st);
}
// What of v lies on a tile, in memory's order; parts > 0: shared among so many
// workers. *out_ptr: at_tiles_region; atoll_tiles_free it.
int atoll_tiles_regions(const at_tiles_view *v, uint32_t tile, uint32_t parts,
                        int64_t grain, int64_t most, at_tiles_region **out_ptr,
                        size_t *out_len) {
  at_tiles_regions r = {0}, s = {0};
  at_status st = at_tiles_regions_of(v, tile, &r);
  if (at_ok(st) && parts)
    st = at_tiles_regions_split(&r, parts, grain, most, &s);
  if (at_ok(st)) *out_ptr = parts ? s.ptr : r.ptr;
  if (at_ok(st)) *out_len = parts ? s.len : r.len;
  if (!at_ok(st) || parts) free(r.ptr);
  return done(st);
}
void atoll_tiles_tile_bytes(const at_tiles_graph *g, int64_t *out) {
  at_tiles_mapping_bytes(g, out);
}
void atoll_tiles_free(void *p) { free(p); }

// ---- Compute sets and programs
int atoll_tiles_set(at_tiles_graph *g, const char *name, at_tiles_set **out) {
  return done(at_tiles_set_add(g, name, out));
}
// One number for all parameters of the codelet: those that callers of C use
// have one at most.
int atoll_tiles_vertex(at_tiles_set *s, const char *codelet, uint32_t tile,
                       const at_tiles_view *const *fields, uint32_t n,
                       double param) {
  const at_tiles_codelet *c;
  at_status st = at_tiles_codelet_find(codelet, &c);
  if (at_ok(st) && n != c->num_fields)
    st = AT_FAIL(AT_INVALID_ARGUMENT, "codelet %s has %u fields, not %u",
                 codelet, c->num_fields, n);
  if (at_ok(st)) st = at_tiles_vertex_add(s, c, tile, fields, &param);
  return done(st);
}
// Vertices on the tiles of `out`; *out NULL: the planner makes it, by name.
int atoll_tiles_elementwise(at_tiles_set *s, const char *codelet,
                            const at_tiles_view *const *in, uint32_t n,
                            double param, const char *name,
                            const at_tiles_view **out) {
  const at_tiles_codelet *c;
  at_status st = at_tiles_codelet_find(codelet, &c);
  if (at_ok(st) && n + 1 != c->num_fields)
    st = AT_FAIL(AT_INVALID_ARGUMENT, "codelet %s takes %u operands, not %u",
                 codelet, c->num_fields - 1, n);
  if (at_ok(st))
    st = *out ? at_tiles_map_elementwise(s, c, in, *out, &param)
              : at_tiles_plan_elementwise(s, c, in, name, &param, out, NULL,
                                          NULL);
  return done(st);
}
int atoll_tiles_sequence(at_tiles_graph *g, at_tiles_program **out) {
  return done(at_tiles_program_sequence(g, out));
}
int atoll_tiles_add(at_tiles_program *s, at_tiles_program *p) {
  return done(at_tiles_program_add(s, p));
}
int atoll_tiles_execute(at_tiles_set *s, at_tiles_program **out) {
  return done(at_tiles_program_execute(s, out));
}
int atoll_tiles_copy(const at_tiles_view *src, const at_tiles_view *dst,
                     at_tiles_program **out) {
  return done(at_tiles_program_copy(src, dst, out));
}
int atoll_tiles_repeat(int64_t times, at_tiles_program *body,
                       at_tiles_program **out) {
  return done(at_tiles_program_repeat(times, body, out));
}
// pred: a view of one element; no: NULL, or what else to do.
int atoll_tiles_branch(const at_tiles_view *pred, at_tiles_program *yes,
                       at_tiles_program *no, at_tiles_program **out) {
  return done(at_tiles_program_branch(pred, yes, no, out));
}
// Vertices run on every core that this process may use.
int atoll_tiles_run(at_tiles_graph *g, at_tiles_program *p, int64_t *cycles) {
  at_pool *pool;
  at_status st = at_pool_create(at_cpu_count(), &pool);
  if (!at_ok(st)) return done(st);
  st = at_tiles_run_program(g, p, pool, cycles);
  at_pool_destroy(pool);
  return done(st);
}
// atoll_tiles_free(*out).
int atoll_tiles_exchange(at_tiles_program *p, char **out) {
  at_strbuf b = {0};
  locale_t before = at_locale_enter();
  at_status st = at_tiles_exchange_text(p, &b);
  at_locale_leave(before);
  if (at_ok(st)) at_strbuf_addz(&b, "");
  if (at_ok(st)) st = at_strbuf_status(&b);
  if (at_ok(st))
    *out = b.ptr;
  else
    at_strbuf_free(&b);
  return done(st);
}

// The report of a compiled program: form 0 text, 1 JSON, 2 a page titled
// `title`. atoll_tiles_free(*out).
int atoll_tiles_report(at_tiles_graph *g, at_tiles_program *p, bool lenient,
                       int form, const char *title, char **out) {
  const at_tiles_plan *plan;
  at_tiles_options o = {.lenient = lenient};
  at_status st = at_tiles_compile(g, p, &o, &plan);
  at_strbuf b = {0};
  if (!at_ok(st)) return done(st);
  locale_t before = at_locale_enter();
  if (form == 0) at_tiles_report_text(plan, &b);
  if (form == 1) at_tiles_report_json(plan, &b);
  if (form == 2) at_tiles_report_html(plan, title, &b);
  at_locale_leave(before);
  st = at_strbuf_status(&b);
  if (at_ok(st))
    *out = b.ptr;
  else
    at_strbuf_free(&b);
  return done(st);
}

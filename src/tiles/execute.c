// Programs run for real: operands are gathered as the exchange and the copies
// would bring them, codelets compute, results go to their homes.
#include <string.h>

#include "hlo/hlo.h"
#include "tiles/tiles_internal.h"

// Memory for the values of v: zeros until something is written.
static at_status data_of(at_tiles_var *v) {
  if (v->data) return AT_OK;
  size_t bytes = at_mul((size_t)v->elements, at_dtype_bytes(v->dtype));
  v->data = calloc(1, bytes + 1);
  if (!v->data)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED,
                   "tensor %s: no host memory for %zu bytes", v->name, bytes);
  return AT_OK;
}

// Moves between a dense array and where a view's elements are.
static at_status move(const at_tiles_view *v, uint8_t *dense, bool gather) {
  at_tiles_runs runs = {0};
  at_status st = at_tiles_view_runs(v, 0, v->elements, &runs);
  size_t size = at_dtype_bytes(v->dtype);
  for (size_t i = 0; at_ok(st) && i < runs.len; i++) {
    const at_tiles_run *r = &runs.ptr[i];
    uint8_t *home = v->graph->vars.ptr[r->var].data + r->begin * (int64_t)size;
    if (r->step == 1) {
      memcpy(gather ? dense : home, gather ? home : dense,
             (size_t)r->count * size);
    } else {
      for (int64_t k = 0; k < r->count; k++, home += r->step * (int64_t)size)
        memcpy(gather ? dense + k * (int64_t)size : home,
               gather ? home : dense + k * (int64_t)size, size);
    }
    dense += r->count * (int64_t)size;
  }
  free(runs.ptr);
  return st;
}

// Memory for all variables that v names, through the views below it. Before
// threads run, as they only read it.
static at_status prepare(const at_tiles_view *v) {
  for (uint32_t i = 0; i < v->num_pieces; i++)
    AT_TRY(v->pieces[i].of ? prepare(v->pieces[i].of)
                           : data_of(&v->graph->vars.ptr[v->pieces[i].var]));
  return AT_OK;
}

// Between `data`, dense in v's order, and the variables. INVALID_ARGUMENT:
// bytes is not v's size.
static at_status transfer(const at_tiles_view *v, void *data, size_t bytes,
                          bool gather) {
  size_t want = (size_t)v->elements * at_dtype_bytes(v->dtype);
  if (bytes != want)
    return AT_FAIL(AT_INVALID_ARGUMENT, "%zu bytes for a view of %zu", bytes,
                   want);
  AT_TRY(prepare(v));
  return move(v, data, gather);
}

// The bytes are only read: transfer writes to `data` in the other direction
// alone.
at_status at_tiles_write(const at_tiles_view *v, const void *data,
                         size_t bytes) {
  return transfer(v, (void *)(uintptr_t)data, bytes, false);
}
at_status at_tiles_read(const at_tiles_view *v, void *data, size_t bytes) {
  return transfer(v, data, bytes, true);
}

// ---- Vertices
// Gathers the operands into dense arrays, computes, and writes results to their
// homes.
static at_status run_vertex(const at_tiles_machine *m,
                            const at_tiles_vertex *v) {
  const at_tiles_codelet *c = v->codelet;
  at_tiles_operand o[16] = {0};
  at_status st = AT_OK;
  for (uint32_t f = 0; at_ok(st) && f < c->num_fields; f++) {
    const at_tiles_view *x = v->fields[f];
    size_t bytes = (size_t)x->elements * at_dtype_bytes(x->dtype);
    o[f] = (at_tiles_operand){x->dtype, at_tiles_view_dims(x), x->elements, 1,
                              calloc(1, bytes + 1)};
    if (!o[f].data)
      st = AT_NO_MEMORY("vertex");
    else if (c->fields[f].access != AT_TILES_OUT)
      st = move(x, o[f].data, true);
  }
  at_tiles_work w = {m, o, c->num_fields, v->params};
  if (at_ok(st)) c->run(&w);
  for (uint32_t f = 0; f < c->num_fields; f++) {
    if (at_ok(st) && c->fields[f].access != AT_TILES_IN)
      st = move(v->fields[f], o[f].data, false);
    free(o[f].data);
  }
  return st;
}

// Vertices of a set on the pool's threads, with a status for each.
typedef struct crew {
  const at_tiles_set *set;
  at_status *st;  // per vertex
} crew;
// Vertices [begin, end).
static void run_some(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  crew *c = arg;
  for (int64_t i = begin; i < end; i++)
    c->st[i] = run_vertex(&c->set->graph->machine, &c->set->vertices.ptr[i]);
}

// All vertices of a set, in any order: they write nothing that another touches.
// The first error by number is the one that is reported.
static at_status run_set(at_tiles_set *s, at_pool *pool) {
  for (size_t i = 0; i < s->vertices.len; i++) {
    const at_tiles_vertex *v = &s->vertices.ptr[i];
    if (!v->codelet->run)
      return AT_FAIL(
          AT_UNIMPLEMENTED,
          "compute set %s: codelet %s has cycles but computes nothing", s->name,
          v->codelet->name);
    for (uint32_t f = 0; f < v->codelet->num_fields; f++)
      AT_TRY(prepare(v->fields[f]));
  }
  crew c = {s, calloc(s->vertices.len + 1, sizeof *c.st)};
  if (!c.st) return AT_NO_MEMORY("compute set");
  if (pool)
    at_pool_for(pool, (int64_t)s->vertices.len, 4, run_some, &c);
  else
    run_some(&c, 0, (int64_t)s->vertices.len, 0);
  at_status st = AT_OK;
  for (size_t i = 0; i < s->vertices.len; i++) st = at_status_join(st, c.st[i]);
  free(c.st);
  return st;
}

// Through a dense array, as both sides may share elements.
static at_status run_copy(const at_tiles_view *src, const at_tiles_view *dst) {
  AT_TRY(prepare(src));
  AT_TRY(prepare(dst));
  uint8_t *t = malloc((size_t)src->elements * at_dtype_bytes(src->dtype) + 1);
  if (!t) return AT_NO_MEMORY("copy");
  at_status st = move(src, t, true);
  if (at_ok(st)) st = move(dst, t, false);
  free(t);
  return st;
}

// The program that a branch goes on with; NULL if that side is empty.
static at_status taken(const at_tiles_program *p, at_tiles_program **out) {
  uint8_t x[16] = {0};
  AT_TRY(at_tiles_read(p->pred, x, at_dtype_bytes(p->pred->dtype)));
  bool yes = at_is_float(p->pred->dtype) ? at_load_float(p->pred->dtype, x) != 0
                                         : at_load_int(p->pred->dtype, x) != 0;
  *out = p->parts.ptr[yes ? 0 : 1];
  return AT_OK;
}

// Cycles are those of the plan's steps, so they do not depend on the values but
// for branches.
at_status at_tiles_run_program(at_tiles_graph *g, at_tiles_program *p,
                               at_pool *pool, int64_t *out_cycles) {
  int64_t cycles = 0, part = 0;
  at_tiles_program *chosen;
  at_tiles_derived *d;
  switch (p->kind) {
    case AT_TILES_EXECUTE:
    case AT_TILES_COPY:
      AT_TRY(at_tiles_derive(p, &d));
      AT_TRY(p->kind == AT_TILES_COPY ? run_copy(p->src, p->dst)
                                      : run_set(p->set, pool));
      cycles = at_tiles_step_of(&g->machine, d).cycles;
      break;
    case AT_TILES_BRANCH:
      AT_TRY(taken(p, &chosen));
      cycles = g->machine.sync;  // everybody has to learn which way
      if (chosen) AT_TRY(at_tiles_run_program(g, chosen, pool, &part));
      cycles += part;
      break;
    case AT_TILES_SEQUENCE:
    case AT_TILES_REPEAT:
      for (int64_t t = 0; t < p->times; t++)
        for (size_t i = 0; i < p->parts.len; i++) {
          AT_TRY(at_tiles_run_program(g, p->parts.ptr[i], pool, &part));
          cycles += part;
        }
  }
  *out_cycles = cycles;
  return AT_OK;
}

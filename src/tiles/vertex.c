// Codelets that come with Atoll: elementwise rows of codelets.def, products,
// sums.
#include <math.h>
#include <string.h>

#include "hlo/hlo.h"
#include "tiles/tiles_internal.h"

enum {
  kWorkerStart = 30,  // cycles of a worker's entry and exit
  kRegion = 28,       // cycles of a worker per vector that it walks through
};

// Elements of type t in a vector, at least one.
static int64_t vector_elements(const at_tiles_machine *m, at_dtype t) {
  return AT_MAX(m->vector_bytes / (int64_t)AT_MAX(at_dtype_bytes(t), 1u), 1);
}

// A supervisor vertex: vectors shared evenly, regions too, but for one that two
// workers share.
int64_t at_tiles_shared_cycles(const at_tiles_machine *m, int64_t vectors,
                               int64_t regions, int64_t loop) {
  int64_t n = m->workers, each = at_ceil_div(vectors, n);
  int64_t walks = regions <= 1 ? 1 : at_ceil_div(regions, n) + 1;
  return n * (kWorkerStart + kRegion * walks + loop * each) + m->supervisor;
}

// The most vectors that a field of the vertex comes in.
static int64_t most_regions(const at_tiles_work *w) {
  int64_t r = 1;
  for (uint32_t i = 0; i < w->num_fields; i++)
    r = AT_MAX(r, w->fields[i].regions);
  return r;
}

// loop: cycles of one vector; each: more for every element of it.
static int64_t elementwise_cycles(const at_tiles_work *w, int64_t loop,
                                  int64_t each) {
  const at_tiles_operand *o = &w->fields[w->num_fields - 1];
  int64_t v = vector_elements(w->machine, o->dtype);
  return at_tiles_shared_cycles(w->machine, at_ceil_div(o->elements, v),
                                most_regions(w), loop + each * v);
}

// ---- Elementwise
typedef double (*real_fn)(double a, double b, double p);
typedef int64_t (*whole_fn)(int64_t a, int64_t b, double p);

// The result from one or two operands, element by element: f32 directly, other
// floats through double, integers by `whole`.
static void elementwise_run(const at_tiles_work *w, real_fn real,
                            whole_fn whole) {
  const at_tiles_operand *o = &w->fields[w->num_fields - 1];
  at_dtype t = o->dtype;
  uint32_t size = at_dtype_bytes(t);
  const uint8_t *a = w->num_fields > 1 ? w->fields[0].data : o->data;
  const uint8_t *b = w->num_fields > 2 ? w->fields[1].data : a;
  uint8_t *to = o->data;
  double p = w->params ? w->params[0] : 0;
  if (t == AT_F32) {
    for (int64_t i = 0; i < o->elements; i++)
      ((float *)to)[i] =
          (float)real(((const float *)a)[i], ((const float *)b)[i], p);
  } else if (at_is_float(t)) {
    for (int64_t i = 0; i < o->elements; i++)
      at_store_float(t, to + i * size,
                     real(at_load_float(t, a + i * size),
                          at_load_float(t, b + i * size), p));
  } else {
    for (int64_t i = 0; i < o->elements; i++)
      at_store_int(
          t, to + i * size,
          whole(at_load_int(t, a + i * size), at_load_int(t, b + i * size), p));
  }
}

#define AT_TILES_CODELET(id, inputs, params, loop, each, f32, whole)      \
  static double real_##id(double a, double b, double p) { return (f32); } \
  static int64_t whole_##id(int64_t a, int64_t b, double p) {             \
    return (whole);                                                       \
  }                                                                       \
  static int64_t cycles_##id(const at_tiles_work *w) {                    \
    return elementwise_cycles(w, loop, each);                             \
  }                                                                       \
  static void run_##id(const at_tiles_work *w) {                          \
    elementwise_run(w, real_##id, whole_##id);                            \
  }
#define AT_TILES_FUNCTION(id, inputs, params, loop, each, f32) \
  AT_TILES_CODELET(id, inputs, params, loop, each, f32, a)
#include "tiles/codelets.def"
#undef AT_TILES_FUNCTION
#undef AT_TILES_CODELET

#define FIELDS(want)                                            \
  {                                                             \
    {"a", AT_TILES_IN, want, 8}, {"b", AT_TILES_IN, want, 8}, { \
      "out", AT_TILES_OUT, want, 8                              \
    }                                                           \
  }
static const at_tiles_field either_fields[] = FIELDS(AT_TILES_EITHER);
static const at_tiles_field vector_fields[] = FIELDS(AT_TILES_VECTOR);
static const at_tiles_field region_fields[] = FIELDS(AT_TILES_REGIONS);

// ---- Products and sums
// out[m,n] = a[m,k] * b[k,n], accumulated in f32 (or wider); param 1: added to
// out.
static const at_tiles_field product_fields[] = {
    {"a", AT_TILES_IN, AT_TILES_VECTOR, 8},
    {"b", AT_TILES_IN, AT_TILES_VECTOR, 8},
    {"out", AT_TILES_INOUT, AT_TILES_VECTOR, 8}};

// Multiply-adds at the multiplier's rate, and a store of every result.
static int64_t product_cycles(const at_tiles_work *w) {
  const at_tiles_operand *o = &w->fields[2];
  int64_t k = w->fields[0].dims.rank == 2 ? w->fields[0].dims.ptr[1] : 0;
  bool half = at_dtype_bytes(w->fields[0].dtype) == 2;
  double rate = half ? w->machine->f16_macs : w->machine->f32_macs;
  double macs = (double)o->elements * (double)k;
  return (int64_t)ceil(macs / rate) +
         at_tiles_shared_cycles(
             w->machine,
             at_ceil_div(o->elements, vector_elements(w->machine, o->dtype)), 1,
             2);
}

// Sums in double, rounded once to the result's type.
static void product_run(const at_tiles_work *w) {
  const at_tiles_operand *a = &w->fields[0], *b = &w->fields[1],
                         *o = &w->fields[2];
  if (a->dims.rank != 2 || b->dims.rank != 2) return;
  int64_t m = a->dims.ptr[0], k = a->dims.ptr[1], n = b->dims.ptr[1];
  uint32_t as = at_dtype_bytes(a->dtype), bs = at_dtype_bytes(b->dtype),
           os = at_dtype_bytes(o->dtype);
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      uint8_t *to = (uint8_t *)o->data + (i * n + j) * os;
      double s = w->params && w->params[0] ? at_load_float(o->dtype, to) : 0;
      for (int64_t x = 0; x < k; x++)
        s += at_load_float(a->dtype, (uint8_t *)a->data + (i * k + x) * as) *
             at_load_float(b->dtype, (uint8_t *)b->data + (x * n + j) * bs);
      at_store_float(o->dtype, to, s);
    }
}

// out[n] = sum over i of a[i,n].
static const at_tiles_field sum_fields[] = {
    {"a", AT_TILES_IN, AT_TILES_EITHER, 8},
    {"out", AT_TILES_OUT, AT_TILES_VECTOR, 8}};

// One load and add for each vector.
static int64_t sum_cycles(const at_tiles_work *w) {
  const at_tiles_operand *a = &w->fields[0];
  return at_tiles_shared_cycles(
      w->machine,
      at_ceil_div(a->elements, vector_elements(w->machine, a->dtype)),
      a->regions, 1);
}

// Column sums: row i of a follows row i - 1.
static void sum_run(const at_tiles_work *w) {
  const at_tiles_operand *a = &w->fields[0], *o = &w->fields[1];
  int64_t rows = o->elements ? a->elements / o->elements : 0;
  uint32_t as = at_dtype_bytes(a->dtype), os = at_dtype_bytes(o->dtype);
  for (int64_t j = 0; j < o->elements; j++) {
    double s = 0;
    for (int64_t i = 0; i < rows; i++)
      s += at_load_float(a->dtype,
                         (uint8_t *)a->data + (i * o->elements + j) * as);
    at_store_float(o->dtype, (uint8_t *)o->data + j * os, s);
  }
}

static const at_tiles_codelet table[] = {
#define ROW(id, name, in, params, fields, floats)                   \
  {                                                                 \
    name, (fields) + 2 - (in), (in) + 1, params, true, floats, 256, \
        cycles_##id, run_##id                                       \
  }
#define ROWS(id, in, params, floats)                             \
  ROW(id, #id, in, params, either_fields, floats),               \
      ROW(id, #id ".vector", in, params, vector_fields, floats), \
      ROW(id, #id ".regions", in, params, region_fields, floats),
#define AT_TILES_CODELET(id, in, params, loop, each, f32, whole) \
  ROWS(id, in, params, false)
#define AT_TILES_FUNCTION(id, in, params, loop, each, f32) \
  ROWS(id, in, params, true)
#include "tiles/codelets.def"
#undef AT_TILES_FUNCTION
#undef AT_TILES_CODELET
    {"product", product_fields, 3, 1, true, true, 1024, product_cycles,
     product_run},
    {"sum", sum_fields, 2, 0, true, true, 512, sum_cycles, sum_run},
};

// NOT_FOUND lists the names.
at_status at_tiles_codelet_find(const char *name,
                                const at_tiles_codelet **out) {
  for (size_t i = 0; i < AT_LEN(table); i++)
    if (!strcmp(table[i].name, name)) return *out = &table[i], AT_OK;
  at_strbuf b = {0};
  for (size_t i = 0; i < AT_LEN(table); i++)
    if (!strchr(table[i].name, '.')) at_strbuf_addf(&b, " %s", table[i].name);
  at_status st = AT_FAIL(AT_NOT_FOUND,
                         "no codelet %s\nhint: there are%s, each elementwise "
                         "one also as .vector and .regions",
                         name, b.ptr ? b.ptr : "");
  at_strbuf_free(&b);
  return st;
}

// ---- Compute sets
at_status at_tiles_set_add(at_tiles_graph *g, const char *name,
                           at_tiles_set **out) {
  AT_TRY_ALLOC(*out, at_new(g->arena, at_tiles_set, 1));
  (*out)->graph = g;
  AT_TRY_ALLOC((*out)->name, at_arena_str(g->arena, at_str_of(name)));
  return AT_OK;
}

// A codelet that reads and writes whole matrices checks that they fit each
// other.
static at_status check_product(const at_tiles_set *s,
                               const at_tiles_view *const *f) {
  bool fine = f[0]->rank == 2 && f[1]->rank == 2 &&
              f[0]->dims[1] == f[1]->dims[0] &&
              f[2]->elements == f[0]->dims[0] * f[1]->dims[1];
  for (int i = 0; fine && i < 3; i++) fine = at_is_float(f[i]->dtype);
  return fine ? AT_OK
              : AT_FAIL(AT_INVALID_ARGUMENT,
                        "compute set %s: product wants a[m,k], b[k,n] and "
                        "out[m,n] of floats",
                        s->name);
}

// INVALID_ARGUMENT or UNIMPLEMENTED for operands that the codelet cannot take.
// Codelets of a caller are its own affair.
static at_status check_fields(const at_tiles_set *s, const at_tiles_codelet *c,
                              const at_tiles_view *const *f) {
  if (c < table || c >= table + AT_LEN(table)) return AT_OK;  // a caller's own
  if (c->run == product_run) return check_product(s, f);
  const at_tiles_view *o = f[c->num_fields - 1];
  bool sum = c->run == sum_run;
  for (uint32_t i = 0; i + 1 < c->num_fields; i++) {
    bool fits = sum ? o->elements ? f[i]->elements % o->elements == 0
                                  : f[i]->elements == 0
                    : f[i]->elements == o->elements && f[i]->dtype == o->dtype;
    if (!fits)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "compute set %s: field %s of %s has %lld elements of %s, "
                     "its result %lld of %s",
                     s->name, c->fields[i].name, c->name,
                     (long long)f[i]->elements, at_dtype_of(f[i]->dtype)->text,
                     (long long)o->elements, at_dtype_of(o->dtype)->text);
  }
  bool typed = at_is_float(o->dtype) && at_is_float(f[0]->dtype);
  if (!typed && (c->floats_only || at_is_complex(o->dtype)))
    return AT_FAIL(AT_UNIMPLEMENTED, "compute set %s: codelet %s of %s",
                   s->name, c->name, at_dtype_of(o->dtype)->text);
  return AT_OK;
}

// Fields and parameters are copied.
at_status at_tiles_vertex_add(at_tiles_set *s, const at_tiles_codelet *c,
                              uint32_t tile, const at_tiles_view *const *fields,
                              const double *params) {
  at_tiles_graph *g = s->graph;
  if (tile >= (uint64_t)g->machine.tiles)
    return AT_FAIL(
        AT_OUT_OF_RANGE,
        "compute set %s: a vertex %s on tile %u of a machine of %lld tiles",
        s->name, c->name, tile, (long long)g->machine.tiles);
  AT_TRY(check_fields(s, c, fields));
  at_tiles_vertex v = {c, tile, NULL, NULL};
  AT_TRY_ALLOC(v.fields, at_arena_copy(g->arena, fields,
                                       c->num_fields * sizeof *fields, 8));
  if (c->num_params)
    AT_TRY_ALLOC(v.params, at_arena_copy(g->arena, params,
                                         c->num_params * sizeof *params, 8));
  return at_vec_push(g->arena, &s->vertices, v) ? AT_OK
                                                : AT_NO_MEMORY("vertex");
}

// Positions of one tile, in the order of out's memory there.
static at_status map_tile(at_tiles_set *s, const at_tiles_codelet *c,
                          const at_tiles_view *const *in,
                          const at_tiles_view *out, const double *params,
                          uint32_t tile, const at_tiles_region *r, size_t n) {
  const at_tiles_view *f[3];
  uint32_t inputs = c->num_fields - 1;
  for (uint32_t i = 0; i < inputs; i++)
    AT_TRY(at_tiles_regions_view(in[i], r, n, &f[i]));
  AT_TRY(at_tiles_regions_view(out, r, n, &f[inputs]));
  return at_tiles_vertex_add(s, c, tile, f, params);
}

// By tile, then in the order of memory there.
static int by_tile(const void *a, const void *b) {
  const at_tiles_part *x = a, *y = b;
  if (x->tile != y->tile) return x->tile < y->tile ? -1 : 1;
  if (x->var != y->var) return x->var < y->var ? -1 : 1;
  int64_t l = at_tiles_low(x->begin, x->count, x->step),
          r = at_tiles_low(y->begin, y->count, y->step);
  return (l > r) - (l < r);
}

// Parts of `out` are sorted by tile; each tile's become one vertex.
at_status at_tiles_map_elementwise(at_tiles_set *s, const at_tiles_codelet *c,
                                   const at_tiles_view *const *in,
                                   const at_tiles_view *out,
                                   const double *params) {
  if (c->num_fields < 1 || c->num_fields > 3)
    return AT_FAIL(AT_INVALID_ARGUMENT, "%s is not elementwise", c->name);
  const at_tiles_view *flat[3];
  for (uint32_t i = 0; i + 1 < c->num_fields; i++) {
    if (in[i]->elements != out->elements)
      return AT_FAIL(
          AT_INVALID_ARGUMENT,
          "compute set %s: operand %u of %s has %lld elements, its result %lld",
          s->name, i, c->name, (long long)in[i]->elements,
          (long long)out->elements);
    AT_TRY(at_tiles_view_flatten(in[i], &flat[i]));
  }
  AT_TRY(at_tiles_view_flatten(out, &flat[2]));
  at_tiles_parts p = {0};
  at_tiles_regions r = {0};
  at_status st = at_tiles_locate(flat[2], 0, out->elements, &p);
  if (at_ok(st) && p.len) qsort(p.ptr, p.len, sizeof *p.ptr, by_tile);
  for (size_t i = 0; at_ok(st) && i < p.len;) {
    size_t k = i;
    if (p.ptr[i].tile == AT_TILES_NOWHERE) {
      st = at_tiles_unmapped(s->graph, &p.ptr[i], s->name);
      break;
    }
    for (r.len = 0; at_ok(st) && k < p.len && p.ptr[k].tile == p.ptr[i].tile;
         k++) {
      at_tiles_region x = {p.ptr[k].at, p.ptr[k].at + p.ptr[k].count, 0, 0, 0};
      if (!at_tiles_push(&r, x)) st = AT_NO_MEMORY("regions");
    }
    if (at_ok(st))
      st = map_tile(s, c, flat, flat[2], params, p.ptr[i].tile, r.ptr, r.len);
    i = k;
  }
  free(p.ptr);
  free(r.ptr);
  return st;
}

// exchange -> pre-arrange -> execute -> post-arrange, derived for a compute set
// or a copy from where its operands live and how its vertices want them.
//
// What a tile receives arrives as one stream in the order of (variable,
// position). An operand in that order is received where it will be used; any
// other is copied into order by the tile, all of it, before it executes.
// Results likewise, backwards.
#include <stdio.h>
#include <string.h>

#include "tiles/tiles_internal.h"

enum {
  kVertexBytes = 16,     // of a vertex's state
  kPointerBytes = 8,     // of a pointer and its length
  kDescriptorBytes = 8,  // of one piece of a copy inside a tile
};

// What one field of one vertex is like on the vertex's tile.
typedef struct place {
  int64_t elements, local, remote, regions;
  bool contiguous;  // one vector where it lies, all of it local
  bool ascending;   // in the order in which a stream arrives
  bool interleaved;
} place;

// Elements [begin, end) that a vertex reads or writes: one entry for each
// stretch without a gap.
typedef struct access {
  uint32_t var, vertex;
  int64_t begin, end;
} access;
typedef struct accesses {
  access *ptr;
  size_t len, cap;
} accesses;

// State of one derivation. Heap arrays are freed at its end, also on an error;
// the result is the graph's.
typedef struct deriver {
  at_tiles_graph *g;
  at_tiles_set *set;
  at_tiles_derived *d;
  at_tiles_needs in, out;
  accesses reads, writes;
  at_tiles_parts parts;
  int64_t *copied_in, *copied_out;  // per tile, bytes
  bool *wide;          // per tile: only interleaved memory is copied
  int64_t *loads;      // per tile and worker
  uint64_t *codelets;  // per tile, a bit per entry of `known`
  const at_tiles_codelet *known[64];
  uint32_t num_known;
  int64_t *ignored;  // received bytes of results, which land where they stay
  at_arena *arena;
  int64_t **before;  // per variable, when asked: elements that the tile of each
                     // interval of its home has before it
} deriver;

// A call, then whole words of the width that the memory allows.
int64_t at_tiles_copy_cycles(const at_tiles_machine *m, int64_t bytes,
                             bool interleaved) {
  if (!bytes) return 0;
  return m->copy_call + at_ceil_div(bytes, interleaved
                                               ? m->copy_interleaved_bytes
                                               : m->copy_bytes);
}

static void set_bit(uint8_t *bits, uint32_t i) {
  bits[i >> 3] |= (uint8_t)(1u << (i & 7));
}

// Notes what vertex `vertex` touches. Elements that lie apart become one entry
// each, so that conflicts are exact.
static at_status add_access(accesses *a, const at_tiles_part *p,
                            uint32_t vertex) {
  bool dense = p->step >= -1 && p->step <= 1;
  int64_t n = dense ? 1 : p->count;
  for (int64_t k = 0; k < n; k++) {
    access x = {p->var, vertex, p->begin + k * p->step, 0};
    if (dense) x.begin = at_tiles_low(p->begin, p->count, p->step);
    x.end = dense ? at_tiles_high(p->begin, p->count, p->step) : x.begin + 1;
    if (!at_tiles_push(a, x)) return AT_NO_MEMORY("compute set");
  }
  return AT_OK;
}

// Notes that tile `to` wants part p, which is on `from`.
static at_status add_need(at_tiles_needs *n, const at_tiles_part *p,
                          uint32_t from, uint32_t to) {
  bool dense = p->step >= -1 && p->step <= 1;
  int64_t k = dense ? 1 : p->count;
  for (int64_t i = 0; i < k; i++) {
    int64_t b = dense ? at_tiles_low(p->begin, p->count, p->step)
                      : p->begin + i * p->step;
    int64_t e = dense ? at_tiles_high(p->begin, p->count, p->step) : b + 1;
    at_tiles_need x = {p->var, from, to, b, e};
    if (!at_tiles_push(n, x)) return AT_NO_MEMORY("exchange");
  }
  return AT_OK;
}

// Where in its tile's memory of the variable an element lies, in bytes.
static at_status offset_of(deriver *x, const at_tiles_part *p, int64_t *out) {
  const at_tiles_var *v = &x->g->vars.ptr[p->var];
  const at_tiles_mapping *h = &v->home;
  int64_t **before = &x->before[p->var];
  if (!*before) {
    int64_t *now;
    AT_TRY_ALLOC(now, at_new(x->arena, int64_t, (size_t)x->g->machine.tiles));
    AT_TRY_ALLOC(*before, at_new(x->arena, int64_t, h->len + 1));
    for (size_t i = 0; i < h->len; i++) {
      (*before)[i] = now[h->ptr[i].tile];
      now[h->ptr[i].tile] += h->ptr[i].end - h->ptr[i].begin;
    }
  }
  size_t lo = 0, hi = h->len;
  while (lo + 1 < hi) {
    size_t mid = lo + (hi - lo) / 2;
    *(h->ptr[mid].begin <= p->begin ? &lo : &hi) = mid;
  }
  *out = ((*before)[lo] + p->begin - h->ptr[lo].begin) *
         (int64_t)at_dtype_bytes(v->dtype);
  return AT_OK;
}

// Looks at one field: who has it, in which order, and notes what must move.
static at_status look(deriver *x, uint32_t index, uint32_t f, place *out) {
  const at_tiles_vertex *v = &x->set->vertices.ptr[index];
  const at_tiles_field *info = &v->codelet->fields[f];
  x->parts.len = 0;
  AT_TRY(at_tiles_locate(v->fields[f], 0, v->fields[f]->elements, &x->parts));
  *out = (place){.elements = v->fields[f]->elements,
                 .ascending = true,
                 .interleaved = true};
  const at_tiles_part *last = NULL;
  for (size_t i = 0; i < x->parts.len; i++) {
    const at_tiles_part *p = &x->parts.ptr[i];
    if (p->tile == AT_TILES_NOWHERE) {
      char what[200];
      snprintf(what, sizeof what, "compute set %.120s, a vertex on tile %u",
               x->set->name, v->tile);
      return at_tiles_unmapped(x->g, p, what);
    }
    bool local = p->tile == v->tile, reads = info->access != AT_TILES_OUT;
    *(local ? &out->local : &out->remote) += p->count;
    out->regions += p->step == 1 ? 1 : p->count;
    out->ascending =
        out->ascending && p->step == 1 &&
        (!last || last->var < p->var ||
         (last->var == p->var && last->begin + last->count <= p->begin));
    out->interleaved = out->interleaved &&
                       (x->g->vars.ptr[p->var].flags & AT_TILES_INTERLEAVED);
    last = p;
    set_bit(reads ? x->d->reads : x->d->writes, p->var);
    if (!local)
      x->d->moved[p->var] += p->count * at_dtype_bytes(v->fields[f]->dtype);
    if (reads) AT_TRY(add_access(&x->reads, p, index));
    if (reads && !local) AT_TRY(add_need(&x->in, p, p->tile, v->tile));
    if (info->access == AT_TILES_IN) continue;
    set_bit(x->d->writes, p->var);
    AT_TRY(add_access(&x->writes, p, index));
    if (!local) AT_TRY(add_need(&x->out, p, v->tile, p->tile));
  }
  out->contiguous = out->regions <= 1 && out->remote == 0;
  if (!out->contiguous || !last || info->align_bytes < 2) return AT_OK;
  // A vector that begins between two of its codelet's words is copied.
  int64_t offset;
  AT_TRY(offset_of(x, last, &offset));
  out->contiguous = offset % info->align_bytes == 0;
  return AT_OK;
}

// Elements that the tile copies so that the field is one vector.
static int64_t copied_elements(const place *p) {
  if (p->contiguous || !p->elements) return 0;
  return p->ascending ? p->local : p->elements;
}

// Cycles of v where vector[f] says in which form field f comes. o is filled for
// the estimator and may be read afterwards.
static int64_t cycles_with(const at_tiles_vertex *v, const at_tiles_machine *m,
                           const place *p, const bool *vector,
                           at_tiles_operand *o) {
  for (uint32_t f = 0; f < v->codelet->num_fields; f++)
    o[f] = (at_tiles_operand){v->fields[f]->dtype,
                              at_tiles_view_dims(v->fields[f]), p[f].elements,
                              vector[f] ? 1 : p[f].regions, NULL};
  at_tiles_work w = {m, o, v->codelet->num_fields, v->params};
  return v->codelet->cycles ? v->codelet->cycles(&w) : 0;
}

// Fields that take either form: all where they lie, or all rearranged.
static int64_t choose(deriver *x, const at_tiles_vertex *v, const place *p,
                      bool *vector, at_tiles_operand *o) {
  const at_tiles_codelet *c = v->codelet;
  bool any = false;
  int64_t bytes = 0;
  for (uint32_t f = 0; f < c->num_fields; f++) {
    vector[f] = c->fields[f].want == AT_TILES_VECTOR;
    if (c->fields[f].want != AT_TILES_EITHER || !copied_elements(&p[f]))
      continue;
    any = true;
    bytes += copied_elements(&p[f]) * at_dtype_bytes(v->fields[f]->dtype);
  }
  int64_t lying = cycles_with(v, &x->g->machine, p, vector, o);
  if (!any) return lying;
  // The alternative: every field that may be, as one vector.
  bool other[16];
  for (uint32_t f = 0; f < c->num_fields; f++)
    other[f] = c->fields[f].want != AT_TILES_REGIONS;
  int64_t moved = cycles_with(v, &x->g->machine, p, other, o);
  int64_t cost = at_tiles_copy_cycles(&x->g->machine, bytes, false);
  if (moved + cost < lying) {
    memcpy(vector, other, c->num_fields * sizeof *vector);
    return moved;
  }
  x->d->saved_cycles = AT_MAX(x->d->saved_cycles, moved + cost - lying);
  return lying;
}

// A codelet's code is on a tile once, however many vertices there use it.
static void add_code(deriver *x, const at_tiles_vertex *v) {
  uint32_t k = 0;
  while (k < x->num_known && x->known[k] != v->codelet) k++;
  if (k == 64) {  // more kinds than bits: counted per vertex
    x->d->code_bytes[v->tile] += v->codelet->code_bytes;
    return;
  }
  if (k == x->num_known) x->known[x->num_known++] = v->codelet;
  if (x->codelets[v->tile] >> k & 1) return;
  x->codelets[v->tile] |= 1ull << k;
  x->d->code_bytes[v->tile] += v->codelet->code_bytes;
}

// Supervisor vertices take the tile for themselves; others go to the worker
// that has least to do.
static void add_work(deriver *x, const at_tiles_vertex *v, int64_t cycles) {
  int64_t n = x->g->machine.workers;
  if (v->codelet->supervisor) {
    x->d->execute[v->tile] += (uint32_t)AT_MIN(cycles, (int64_t)1 << 30);
    return;
  }
  int64_t *loads = x->loads + v->tile * n, least = 0;
  for (int64_t i = 1; i < n; i++)
    if (loads[i] < loads[least]) least = i;
  loads[least] += cycles;
}

// One vertex: places of its fields, the form that it takes them in, its cycles,
// its state, and the bytes that are copied for it. UNIMPLEMENTED: more than 16
// fields.
static at_status derive_vertex(deriver *x, uint32_t index) {
  const at_tiles_vertex *v = &x->set->vertices.ptr[index];
  const at_tiles_codelet *c = v->codelet;
  place p[16];
  bool vector[16];
  at_tiles_operand o[16];
  if (c->num_fields > 16)
    return AT_FAIL(AT_UNIMPLEMENTED, "codelet %s of %u fields", c->name,
                   c->num_fields);
  for (uint32_t f = 0; f < c->num_fields; f++) AT_TRY(look(x, index, f, &p[f]));
  add_work(x, v, choose(x, v, p, vector, o));
  add_code(x, v);
  x->d->vertex_bytes[v->tile] += kVertexBytes + 8 * c->num_params;
  for (uint32_t f = 0; f < c->num_fields; f++) {
    int64_t size = at_dtype_bytes(v->fields[f]->dtype);
    if (p[f].remote && (!vector[f] || p[f].ascending))
      x->d->direct[v->tile] = 1;
    x->d->vertex_bytes[v->tile] +=
        kPointerBytes * (vector[f] ? 1 : p[f].regions);
    if (!vector[f] || p[f].contiguous || !p[f].elements) continue;
    int64_t bytes = copied_elements(&p[f]) * size;
    x->d->arranged[v->tile] +=
        (p[f].ascending ? p[f].local : p[f].elements) * size;
    x->d->descriptor_bytes[v->tile] +=
        bytes ? kDescriptorBytes * p[f].regions : 0;
    if (!p[f].interleaved) x->wide[v->tile] = false;
    if (c->fields[f].access != AT_TILES_OUT) x->copied_in[v->tile] += bytes;
    if (c->fields[f].access != AT_TILES_IN) x->copied_out[v->tile] += bytes;
  }
  return AT_OK;
}

// ---- Two writers
static int by_access(const void *a, const void *b) {
  const access *x = a, *y = b;
  if (x->var != y->var) return x->var < y->var ? -1 : 1;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  return (x->vertex > y->vertex) - (x->vertex < y->vertex);
}

// FAILED_PRECONDITION for two vertices of a set that touch the same elements,
// one of them writing. how: "written" or "read".
static at_status conflict(const deriver *x, const access *a, const access *b,
                          const char *how) {
  return AT_FAIL(AT_FAILED_PRECONDITION,
                 "compute set %s: elements [%lld, %lld) of tensor %s are "
                 "written by a vertex on tile %u and %s by "
                 "one on tile %u\ndetail: vertices of a compute set run in no "
                 "order\nhint: put them into two sets",
                 x->set->name, (long long)AT_MAX(a->begin, b->begin),
                 (long long)AT_MIN(a->end, b->end), x->g->vars.ptr[a->var].name,
                 x->set->vertices.ptr[a->vertex].tile, how,
                 x->set->vertices.ptr[b->vertex].tile);
}

// Sorts writes and looks for overlaps, first among themselves, then with the
// reads of other vertices: n log n in all.
static at_status check_conflicts(deriver *x) {
  accesses *w = &x->writes;
  if (!w->len) return AT_OK;
  qsort(w->ptr, w->len, sizeof *w->ptr, by_access);
  for (size_t i = 1; i < w->len; i++) {
    access *a = &w->ptr[i - 1], *b = &w->ptr[i];
    if (a->var == b->var && b->begin < a->end)
      return conflict(x, a, b, "written");
  }
  for (size_t i = 0; i < x->reads.len; i++) {
    const access *r = &x->reads.ptr[i];
    size_t lo = 0, hi = w->len;
    while (lo < hi) {
      size_t mid = lo + (hi - lo) / 2;
      const access *m = &w->ptr[mid];
      if (m->var < r->var || (m->var == r->var && m->end <= r->begin))
        lo = mid + 1;
      else
        hi = mid;
    }
    for (; lo < w->len && w->ptr[lo].var == r->var && w->ptr[lo].begin < r->end;
         lo++)
      if (w->ptr[lo].vertex != r->vertex)
        return conflict(x, &w->ptr[lo], r, "read");
  }
  return AT_OK;
}

// ---- Derivation
// An empty result for a step: counters for every tile, a bit and a counter for
// every variable that there is by now.
static at_status make(at_tiles_graph *g, const char *name,
                      at_tiles_derived **out) {
  size_t n = (size_t)g->machine.tiles, bits = g->vars.len / 8 + 1;
  at_tiles_derived *d;
  AT_TRY_ALLOC(d, at_new(g->arena, at_tiles_derived, 1));
  d->name = name;
  uint32_t *c;
  int64_t *b;
  AT_TRY_ALLOC(c, at_new(g->arena, uint32_t, 3 * n));
  AT_TRY_ALLOC(b, at_new(g->arena, int64_t, 6 * n));
  AT_TRY_ALLOC(d->reads, at_new(g->arena, uint8_t, 2 * bits));
  AT_TRY_ALLOC(d->direct, at_new(g->arena, uint8_t, n));
  AT_TRY_ALLOC(d->moved, at_new(g->arena, int64_t, g->vars.len + 1));
  d->num_vars = (uint32_t)g->vars.len;
  d->writes = d->reads + bits;
  d->pre = c, d->execute = c + n, d->post = c + 2 * n;
  d->received = b, d->arranged = b + n, d->vertex_bytes = b + 2 * n;
  d->code_bytes = b + 3 * n, d->descriptor_bytes = b + 4 * n;
  d->exchange_code = b + 5 * n;
  *out = d;
  return AT_OK;
}

// Turns what was counted into cycles per tile. Workers take turns, so the tile
// is busy as long as its slowest worker has turns, times their number. Copies
// of one step are one call.
static void finish(deriver *x) {
  const at_tiles_machine *m = &x->g->machine;
  at_tiles_derived *d = x->d;
  for (int64_t t = 0; t < m->tiles; t++) {
    int64_t most = 0;
    for (int64_t i = 0; i < m->workers; i++)
      most = AT_MAX(most, x->loads[t * m->workers + i]);
    d->execute[t] += (uint32_t)AT_MIN(m->workers * most, (int64_t)1 << 30);
    d->pre[t] += (uint32_t)at_tiles_copy_cycles(m, x->copied_in[t], x->wide[t]);
    d->post[t] +=
        (uint32_t)at_tiles_copy_cycles(m, x->copied_out[t], x->wide[t]);
    d->rearranged_bytes += x->copied_in[t] + x->copied_out[t];
  }
}

// A compute set: vertices, conflicts, the exchange before it and the one with
// its results.
static at_status derive_set(deriver *x) {
  for (size_t i = 0; i < x->set->vertices.len; i++)
    AT_TRY(derive_vertex(x, (uint32_t)i));
  AT_TRY(check_conflicts(x));
  AT_TRY(at_tiles_exchange_of(x->g, &x->in, x->d->received, x->d->exchange_code,
                              &x->d->in));
  AT_TRY(at_tiles_exchange_of(x->g, &x->out, x->ignored, x->d->exchange_code,
                              &x->d->out));
  finish(x);
  return AT_OK;
}

// ---- Copies
typedef struct piece {  // of a copy: so many elements from here to there
  uint32_t to, from, var, into;
  int64_t begin, at, count;
} piece;
static int by_destination(const void *a, const void *b) {
  const piece *x = a, *y = b;
  if (x->to != y->to) return x->to < y->to ? -1 : 1;
  if (x->into != y->into) return x->into < y->into ? -1 : 1;
  return (x->at > y->at) - (x->at < y->at);
}

// Cuts both sides where either changes tile or variable.
static at_status copy_pieces(const at_tiles_parts *s, const at_tiles_parts *d,
                             piece **out, size_t *out_len) {
  struct {
    piece *ptr;
    size_t len, cap;
  } v = {0};
  size_t i = 0, k = 0;
  int64_t si = 0, dk = 0;
  while (i < s->len && k < d->len) {
    const at_tiles_part *p = &s->ptr[i], *q = &d->ptr[k];
    int64_t n = AT_MIN(p->count - si, q->count - dk);
    if (n > 1 && (p->step != 1 || q->step != 1)) n = 1;
    piece x = {q->tile,
               p->tile,
               p->var,
               q->var,
               p->begin + si * p->step,
               q->begin + dk * q->step,
               n};
    if (!at_tiles_push(&v, x)) return free(v.ptr), AT_NO_MEMORY("copy");
    si += n, dk += n;
    if (si == p->count) i++, si = 0;
    if (dk == q->count) k++, dk = 0;
  }
  *out = v.ptr;
  *out_len = v.len;
  return AT_OK;
}

// The pieces p that arrive on one tile: those from elsewhere are needs; those
// that lie there already, and what arrives out of order, is copied.
static at_status copy_tile(deriver *x, const piece *p, size_t n) {
  uint32_t tile = p[0].to;
  int64_t local = 0, remote = 0,
          size = at_dtype_bytes(x->g->vars.ptr[p[0].into].dtype);
  bool ascending = true, wide = true;
  const piece *last = NULL;
  for (size_t i = 0; i < n; i++) {
    bool here = p[i].from == tile;
    bool same = here && p[i].var == p[i].into && p[i].begin == p[i].at;
    *(here ? &local : &remote) += same ? 0 : p[i].count;
    wide = wide && (x->g->vars.ptr[p[i].var].flags &
                    x->g->vars.ptr[p[i].into].flags & AT_TILES_INTERLEAVED);
    if (here) continue;
    if (last && (last->var > p[i].var ||
                 (last->var == p[i].var && last->begin > p[i].begin)))
      ascending = false;
    last = &p[i];
    at_tiles_need need = {p[i].var, p[i].from, tile, p[i].begin,
                          p[i].begin + p[i].count};
    if (!at_tiles_push(&x->in, need)) return AT_NO_MEMORY("copy");
  }
  int64_t bytes = (local + (ascending ? 0 : remote)) * size;
  x->copied_in[tile] += bytes;
  x->wide[tile] = wide;
  if (bytes) x->d->descriptor_bytes[tile] += (int64_t)n * kDescriptorBytes;
  return AT_OK;
}

// A copy from src to dst of equal size: both sides are cut into pieces, sorted
// by where they go.
static at_status derive_copy(deriver *x, const at_tiles_view *src,
                             const at_tiles_view *dst) {
  at_tiles_parts s = {0}, d = {0};
  piece *p = NULL;
  size_t n = 0;
  at_status st = at_tiles_locate(src, 0, src->elements, &s);
  if (at_ok(st)) st = at_tiles_locate(dst, 0, dst->elements, &d);
  for (size_t i = 0; at_ok(st) && i < s.len; i++) {
    if (s.ptr[i].tile == AT_TILES_NOWHERE)
      st = at_tiles_unmapped(x->g, &s.ptr[i], "copy");
    set_bit(x->d->reads, s.ptr[i].var);
  }
  for (size_t i = 0; at_ok(st) && i < d.len; i++) {
    if (d.ptr[i].tile == AT_TILES_NOWHERE)
      st = at_tiles_unmapped(x->g, &d.ptr[i], "copy");
    set_bit(x->d->writes, d.ptr[i].var);
  }
  if (at_ok(st)) st = copy_pieces(&s, &d, &p, &n);
  if (n) qsort(p, n, sizeof *p, by_destination);
  for (size_t i = 0; at_ok(st) && i < n;) {
    size_t k = i;
    while (k < n && p[k].to == p[i].to) k++;
    st = copy_tile(x, p + i, k - i);
    i = k;
  }
  if (at_ok(st))
    st = at_tiles_exchange_of(x->g, &x->in, x->d->received, x->d->exchange_code,
                              &x->d->in);
  if (at_ok(st)) {
    // What arrives in order arrives where it stays.
    for (int64_t t = 0; t < x->g->machine.tiles; t++)
      if (!x->copied_in[t]) x->d->received[t] = 0;
    finish(x);
  }
  free(s.ptr);
  free(d.ptr);
  free(p);
  return st;
}

// See tiles_internal.h. Scratch memory for all tiles and workers is taken once.
at_status at_tiles_derive(at_tiles_program *p, at_tiles_derived **out) {
  if (p->derived) return *out = p->derived, AT_OK;
  at_tiles_graph *g = p->graph;
  size_t n = (size_t)g->machine.tiles;
  deriver x = {.g = g, .set = p->set};
  AT_TRY(make(g, p->kind == AT_TILES_EXECUTE ? p->set->name : "copy", &x.d));
  x.d->is_copy = p->kind == AT_TILES_COPY;
  at_arena *a = at_arena_create();
  if (!a) return AT_NO_MEMORY("compute set");
  at_status st = AT_OK;
  x.copied_in = at_new(a, int64_t, n * (size_t)(3 + g->machine.workers));
  x.arena = a;
  x.before = at_new(a, int64_t *, g->vars.len + 1);
  x.wide = at_new(a, bool, n);
  x.codelets = at_new(a, uint64_t, n);
  if (!x.copied_in || !x.before || !x.wide || !x.codelets) {
    st = AT_NO_MEMORY("compute set");
  } else {
    memset(x.wide, 1, n);
    x.copied_out = x.copied_in + n;
    x.ignored = x.copied_in + 2 * n;
    x.loads = x.copied_in + 3 * n;
    st = p->kind == AT_TILES_EXECUTE ? derive_set(&x)
                                     : derive_copy(&x, p->src, p->dst);
  }
  free(x.in.ptr);
  free(x.out.ptr);
  free(x.reads.ptr);
  free(x.writes.ptr);
  free(x.parts.ptr);
  at_arena_destroy(a);
  AT_TRY(st);
  *out = p->derived = x.d;
  return AT_OK;
}

// The busiest tile's is what the step takes.
int64_t at_tiles_derived_work(const at_tiles_derived *d, uint32_t tile) {
  return (int64_t)d->pre[tile] + d->execute[tile] + d->post[tile];
}

// Derives the step if nobody has; the exchange is the graph's.
at_status at_tiles_program_exchange(at_tiles_program *p, bool after,
                                    const at_tiles_exchange **out) {
  at_tiles_derived *d;
  if (p->kind != AT_TILES_EXECUTE && p->kind != AT_TILES_COPY)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "the exchange of a program that is neither a compute set "
                   "nor a copy");
  AT_TRY(at_tiles_derive(p, &d));
  *out = after ? &d->out : &d->in;
  return AT_OK;
}

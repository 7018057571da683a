// One step of a lowered program: operands come from their homes, are put into
// order where they have to be, and a codelet runs.
#include <stdio.h>
#include <string.h>

#include "tiles/lower_internal.h"

enum {
  kCodeletBytes = 256,
  kProductBytes = 1024,
  kVertexBytes = 16,
  kPointerBytes = 8,
  kDescriptorBytes = 8,
};

// Falls back on the op's name where there is no memory.
const char *at_tiles_step_name(at_tiles_lowerer *w, const at_node *n,
                               const char *suffix) {
  const char *s = n->loc && n->loc->name ? n->loc->name : NULL;
  const char *slash = s ? strrchr(s, '/') : NULL;
  const char *name = at_arena_printf(w->arena, "%s.%u%s%s%s", at_op_text(n->op),
                                     n->id, suffix, s ? " " : "",
                                     slash ? slash + 1
                                     : s   ? s
                                           : "");
  return name ? name : at_op_text(n->op);
}

// Text is cut after about 180 characters.
const char *at_tiles_lay_text(at_arena *a, const at_tiles_lay *l) {
  char cuts[200] = "", dims[200] = "";
  size_t c = 0, k = 0;
  for (uint32_t d = 0; d < l->rank && c < 180 && k < 180; d++) {
    int64_t most = 0;
    for (int64_t b = 0; b < l->dim[d].cuts; b++)
      most = AT_MAX(most, l->dim[d].end[b] - l->dim[d].bound[b]);
    c += (size_t)snprintf(cuts + c, sizeof cuts - c, "%s%lld", d ? " x " : "",
                          (long long)l->dim[d].cuts);
    k += (size_t)snprintf(dims + k, sizeof dims - k, "%s%lld", d ? ", " : "",
                          (long long)most);
  }
  return at_tiles_lay_blocks(l) == 1
             ? at_arena_printf(a, "one block")
             : at_arena_printf(a, "%s blocks of [%s]", cuts, dims);
}

// ---- Memory over time
// Number of a phase of the step that comes next.
static int32_t phase_now(const at_tiles_lowerer *w, int32_t phase) {
  return 4 * (int32_t)w->steps.len + phase;
}

// Nothing is noted in a quick lowering, which plans no memory.
static at_status add_life(at_tiles_lowerer *w, const at_tiles_life *l) {
  return w->quick || at_vec_push(w->arena, &w->lives, *l)
             ? AT_OK
             : AT_NO_MEMORY("memory plan");
}

// Its memory begins with the step that was just added and ends when end_value
// says so.
at_status at_tiles_own(at_tiles_lowerer *w, at_tiles_value *v) {
  v->placed = v->ours = true;
  // A step's result appears while it executes: the step is there already.
  at_tiles_life l = {v->name,   AT_MAX(phase_now(w, -2), 0),
                     INT32_MAX, AT_TILES_MEM_VARIABLES,
                     false,     v,
                     NULL};
  AT_TRY(add_life(w, &l));
  v->life = (uint32_t)w->lives.len;
  return AT_OK;
}

void at_tiles_interleave(at_tiles_lowerer *w, const at_tiles_value *v) {
  if (v->life && !w->narrow) w->lives.ptr[v->life - 1].interleaved = true;
}

// Bytes per tile of something that only this step has.
static at_status temporary(at_tiles_lowerer *w, const char *name,
                           const int64_t *bytes, int32_t first,
                           at_tiles_category category, bool interleaved) {
  bool any = false;
  for (int64_t t = 0; t < w->m.tiles && !any; t++) any = bytes[t] > 0;
  if (!any || w->quick) return AT_OK;
  uint32_t *kept;
  AT_TRY_ALLOC(kept, at_new(w->arena, uint32_t, (size_t)w->m.tiles));
  for (int64_t t = 0; t < w->m.tiles; t++)
    kept[t] = (uint32_t)AT_MIN(bytes[t], (int64_t)UINT32_MAX);
  at_tiles_life l = {name,
                     phase_now(w, first),
                     phase_now(w, 2),
                     (uint8_t)category,
                     interleaved,
                     NULL,
                     kept};
  return add_life(w, &l);
}

// Windows overlap, homes may not: block k begins where the one before it ends.
// What is read mirrored is cut the other way round.
static at_status without_overlap(at_tiles_lowerer *w, const at_tiles_dim *y,
                                 int64_t n, at_tiles_dim *out) {
  int64_t *b, last = y->cuts - 1;
  uint32_t *off;
  bool mirrored = y->bound[0] > y->bound[last];
  AT_TRY_ALLOC(b, at_new(w->arena, int64_t, (size_t)y->cuts + 1));
  AT_TRY_ALLOC(off, at_new(w->arena, uint32_t, (size_t)y->cuts));
  for (int64_t k = 0; k < y->cuts; k++) {
    int64_t from = mirrored ? last - k : k;
    b[k] = k ? AT_MAX(y->bound[from], b[k - 1]) : 0;
    off[k] = y->off[from];
  }
  b[y->cuts] = n;
  *out = (at_tiles_dim){y->cuts, b, b + 1, off};
  return AT_OK;
}

// Parameters and constants get the home that their first user wants: a
// copy-free start.
at_status at_tiles_place_value(at_tiles_lowerer *w, at_value v,
                               const at_tiles_lay *need, const uint32_t *group,
                               uint32_t n) {
  v = at_tiles_root(w, v);
  at_tiles_value *x = at_tiles_value_of(w, v);
  const at_type *t = at_value_type(v);
  if (w->o->linear) {
    AT_TRY(at_tiles_lay_linear(w->arena, &w->m, t, &x->lay));
  } else {
    x->lay = *need;
    uint32_t widest = 0;
    for (uint32_t d = 0; d < need->rank; d++) {
      const at_tiles_dim *y = &need->dim[d];
      bool covers = y->end == y->bound + 1 && !y->bound[0] &&
                    y->end[y->cuts - 1] == t->dims[d];
      if (!covers) AT_TRY(without_overlap(w, y, t->dims[d], &x->lay.dim[d]));
      const at_tiles_dim *a = &x->lay.dim[d], *b = &x->lay.dim[widest];
      if (t->dims[d] * b->cuts > t->dims[widest] * a->cuts) widest = d;
    }
    if (need->rank && n > 1) {
      at_tiles_dim *d = &x->lay.dim[widest];
      AT_TRY(at_tiles_dim_again(w->arena, d, group, n, d));
    }
  }
  AT_TRY(at_tiles_lay_keep(w->arena, &x->lay));  // `need` may be short-lived
  AT_TRY(at_tiles_own(w, x));
  if (x->life)
    w->lives.ptr[x->life - 1].first = -1;  // it came with the program
  return AT_OK;
}

// ---- Operands
at_status at_tiles_moves_in(const at_tiles_lowerer *w, at_arena *a,
                            at_tiles_moves *out) {
  size_t n = (size_t)w->m.tiles;
  *out = (at_tiles_moves){.arena = a};
  AT_TRY_ALLOC(out->received, at_new(a, int64_t, 4 * n));
  out->arranged = out->received + n;
  out->before = out->received + 2 * n;
  out->needed = out->received + 3 * n;
  return AT_OK;
}

// A broadcast's operand: the dimensions that it adds only name more tiles.
static at_status bring_broadcast(at_tiles_lowerer *w, at_tiles_moves *m,
                                 at_value v, const at_tiles_lay *need,
                                 const uint32_t *group, uint32_t n, bool dry) {
  at_dims where = at_node_ints(v.node, AT_ATTR_BROADCAST_DIMENSIONS);
  at_value u = v.node->operands[0];
  const at_type *small = at_value_type(u), *large = at_value_type(v);
  at_tiles_lay l = {.rank = small->rank};
  uint32_t kept = 0;
  for (uint32_t k = 0; k < small->rank; k++) {
    bool same = small->dims[k] == large->dims[where.ptr[k]];
    if (same) kept |= 1u << where.ptr[k];
    if (same)
      l.dim[k] = need->dim[where.ptr[k]];
    else
      AT_TRY(at_tiles_dim_whole(m->arena, small->dims[k], &l.dim[k]));
  }
  size_t all = n;
  for (uint32_t d = 0; d < need->rank; d++)
    if (!(kept >> d & 1)) all *= (size_t)need->dim[d].cuts;
  uint32_t *list, len = n;
  AT_TRY_ALLOC(list, at_new(m->arena, uint32_t, all));
  memcpy(list, group, n * sizeof *list);
  for (uint32_t d = 0; d < need->rank; d++) {
    if (kept >> d & 1) continue;
    uint32_t before = len;
    for (int64_t c = need->dim[d].cuts; c-- > 0;)
      for (uint32_t i = 0; i < before; i++)
        list[(size_t)c * before + i] = list[i] + need->dim[d].off[c];
    len = before * (uint32_t)need->dim[d].cuts;
  }
  // Insertion keeps them ascending; they are nearly so.
  for (uint32_t i = 1; i < len; i++)
    for (uint32_t k = i; k > 0 && list[k] < list[k - 1]; k--) {
      uint32_t t = list[k];
      list[k] = list[k - 1], list[k - 1] = t;
    }
  return at_tiles_bring(w, m, u, &l, list, len, dry);
}

// What has no home yet would get one that is spread over those who want it:
// each has its share and receives the rest.
static void guess(at_tiles_lowerer *w, at_tiles_moves *m,
                  const at_tiles_lay *need, uint32_t n, int64_t size) {
  int64_t all = size;
  for (uint32_t d = 0; d < need->rank; d++) {
    int64_t most = 0;
    for (int64_t k = 0; k < need->dim[d].cuts; k++)
      most = AT_MAX(most, need->dim[d].end[k] - need->dim[d].bound[k]);
    all *= most;
  }
  int64_t rest = all - all / n;
  for (int64_t t = 0; t < w->m.tiles; t++) m->received[t] += rest;
}

// An operand that is partly here and partly received is put together: the part
// that is here is copied beside what arrives.
static bool put_together(at_tiles_lowerer *w, at_tiles_moves *m,
                         const at_tiles_lay *need, const uint32_t *group,
                         uint32_t n, int64_t size) {
  bool any = false;
  memset(m->needed, 0, (size_t)w->m.tiles * sizeof *m->needed);
  at_tiles_lay_bytes(need, size, m->needed);
  for (int64_t t = w->m.tiles; t-- > 0;) {
    int64_t bytes = m->needed[t];
    if (!bytes) continue;
    for (uint32_t i = n; i-- > 0;) {
      int64_t to = t + group[i];
      if (to >= w->m.tiles) continue;
      int64_t got = m->received[to] - m->before[to];
      if (got <= 0 || got >= bytes) continue;
      m->arranged[to] += bytes - got;
      any = true;
    }
  }
  return any;
}

// Notes what one operand cost: the difference of what was received before and
// after.
static at_status note_way(at_tiles_lowerer *w, const at_tiles_moves *m,
                          const at_tiles_value *v, const at_tiles_lay *need) {
  at_tiles_way x = {v, (uint32_t)w->steps.len, 0, 0, 0, NULL};
  for (int64_t t = 0; t < w->m.tiles; t++) {
    int64_t got = m->received[t] - m->before[t];
    x.bytes += got;
    x.cycles = AT_MAX(x.cycles, at_ceil_div(got, w->m.exchange_bytes));
  }
  if (!x.bytes || w->quick) return AT_OK;
  x.want = at_tiles_lay_text(w->arena, need);
  return at_vec_push(w->arena, &w->ways, x) ? AT_OK : AT_NO_MEMORY("report");
}

// Operands made everywhere need no messages; recipes bring their operand.
at_status at_tiles_bring(at_tiles_lowerer *w, at_tiles_moves *m, at_value v,
                         const at_tiles_lay *need, const uint32_t *group,
                         uint32_t n, bool dry) {
  at_tiles_value *x = at_tiles_value_of(w, v);
  if (!x || x->everywhere) return AT_OK;
  v = at_tiles_root(w, v);
  if (x->of.node) return bring_broadcast(w, m, v, need, group, n, dry);
  int64_t size = at_dtype_bytes(at_value_type(v)->dtype);
  if (!x->placed && dry) return guess(w, m, need, n, size), AT_OK;
  if (!x->placed) AT_TRY(at_tiles_place_value(w, v, need, group, n));
  size_t messages = m->messages.len;
  memcpy(m->before, m->received, (size_t)w->m.tiles * sizeof *m->before);
  AT_TRY(at_tiles_move(m, &x->lay, need, group, n, size));
  if (m->messages.len == messages) return AT_OK;
  bool copied = put_together(w, m, need, group, n, size);
  if (dry) return AT_OK;
  if (copied) at_tiles_interleave(w, x);
  return note_way(w, m, x, need);
}

// A product whose operands come in the wrong order copies one of them.
static at_status turn_operand(at_tiles_lowerer *w, const at_node *n,
                              const at_tiles_rule *r, const at_tiles_grid *g,
                              at_tiles_moves *m, bool dry) {
  int32_t which = at_tiles_turned_operand(n, r);
  if (which < 0) return AT_OK;
  at_tiles_lay need;
  uint32_t *group, num;
  at_value v = n->operands[which];
  AT_TRY(
      at_tiles_grid_lay(m->arena, r, g, (uint32_t)which, &need, &group, &num));
  memset(m->needed, 0, (size_t)w->m.tiles * sizeof *m->needed);
  at_tiles_lay_bytes(&need, at_dtype_bytes(at_value_type(v)->dtype), m->needed);
  for (int64_t t = w->m.tiles; t-- > 0;)
    for (uint32_t i = 0; m->needed[t] && i < num; i++)
      if (t + group[i] < w->m.tiles) m->arranged[t + group[i]] += m->needed[t];
  if (!dry) at_tiles_interleave(w, at_tiles_value_of(w, v));
  return AT_OK;
}

// Tokens and tensors without a place are left out.
at_status at_tiles_bring_all(at_tiles_lowerer *w, const at_node *n,
                             const at_tiles_rule *r, const at_tiles_grid *g,
                             at_tiles_moves *m, bool dry) {
  for (uint32_t t = 0; t < n->num_operands; t++) {
    at_tiles_lay need;
    uint32_t *group, num;
    if (!r->r.places[t] || at_value_type(n->operands[t])->dtype == AT_TOKEN)
      continue;
    AT_TRY(at_tiles_grid_lay(m->arena, r, g, t, &need, &group, &num));
    AT_TRY(at_tiles_bring(w, m, n->operands[t], &need, group, num, dry));
  }
  return turn_operand(w, n, r, g, m, dry);
}

// ---- Steps
// Code that a tile needs once per kind of codelet, and the vertex's own state.
static void note_code(at_tiles_lowerer *w, const at_node *n,
                      const at_tiles_moves *m, const int64_t *work) {
  uint32_t kind = 0;
  if (n) {
    uint16_t *k = &w->kind_of[n->op][at_dtype_bytes(n->types[0].dtype) == 2];
    if (!*k) *k = (uint16_t)(++w->num_kinds);
    kind = AT_MIN(*k, 255u);
  }
  int64_t bytes = n && at_tiles_depth(n) > 0 ? kProductBytes : kCodeletBytes;
  for (int64_t t = 0; t < w->m.tiles; t++) {
    if (m->arranged[t]) w->descriptors[t] += kDescriptorBytes;
    if (!n || !work[t]) continue;
    w->vertices[t] +=
        kVertexBytes + kPointerBytes * (n->num_operands + n->num_results);
    uint64_t *bits = &w->kinds[t][kind / 64];
    if (!(*bits >> kind % 64 & 1)) w->code[t] += bytes;
    *bits |= 1ull << kind % 64;
  }
}

// Plans the exchange, finds the busiest tile, and adds up cycles, memory and
// code of the step.
at_status at_tiles_add_step(at_tiles_lowerer *w, const at_node *n,
                            const char *suffix, at_tiles_moves *m,
                            const int64_t *work) {
  at_tiles_exchange x = {.messages = m->messages.ptr,
                         .num_messages = m->messages.len,
                         .receivers = m->receivers.ptr,
                         .tile_code = w->exchange_code};
  AT_TRY(w->quick ? at_tiles_exchange_bound(&w->m, &x)
                  : at_tiles_exchange_plan(&w->m, &x));
  const char *name = at_tiles_step_name(w, n, suffix);
  at_tiles_step s = {.name = name, .times = w->times};
  int64_t total = 0, most = -1, received = 0;
  for (int64_t t = 0; t < w->m.tiles; t++) {
    received += m->received[t];
    int64_t pre = at_tiles_copy_cycles(&w->m, m->arranged[t], !w->narrow);
    int64_t all = pre + work[t];
    total += all;
    s.idle_tiles += all == 0;
    s.rearranged_bytes += m->arranged[t];
    at_tiles_add(&w->tile_cycles[t], all, w->times);
    at_tiles_add(&w->tile_received[t], m->received[t], w->times);
    if (all <= most) continue;
    most = all, s.busiest = (uint32_t)t, s.pre = pre;
  }
  // Two views of what comes in: by tile, and by message. (A scalar's sum has
  // messages alone.)
  AT_ASSERT(received == x.received_bytes || !received);
  AT_ASSERT(x.cycles >= x.lower_bound && total <= most * w->m.tiles);
  s.execute = AT_MAX(most - s.pre, 0);
  uint32_t histogram[kTilesSpread] = {0};
  for (int64_t t = 0; t < w->m.tiles; t++)
    at_tiles_spread_add(
        histogram,
        work[t] + at_tiles_copy_cycles(&w->m, m->arranged[t], !w->narrow),
        most);
  at_tiles_spread_end(histogram, w->m.tiles, s.spread);
  s.balance =
      most > 0 ? (double)total / ((double)most * (double)w->m.tiles) : 1;
  s.exchange = x.cycles;
  s.exchange_bound = x.lower_bound;
  s.exchange_bytes = x.received_bytes;
  s.sync = x.num_messages ? w->m.sync : 0;
  s.cycles = s.sync + s.exchange + AT_MAX(most, 0);
  at_tiles_add(&w->cycles, s.cycles, w->times);
  bool wide = s.rearranged_bytes > 0 && !w->narrow;
  AT_TRY(temporary(w, name, m->received, 0, AT_TILES_MEM_RECEIVED, wide));
  if (!m->lands)
    AT_TRY(temporary(w, name, m->arranged, 1, AT_TILES_MEM_ARRANGED, wide));
  note_code(w, *suffix ? NULL : n, m, work);
  return at_vec_push(w->arena, &w->steps, s) ? AT_OK : AT_NO_MEMORY("steps");
}

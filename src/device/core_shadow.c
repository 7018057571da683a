// The checks: what each byte of a core's memories holds and who touched it
// last. Generated code announces its loads and stores; copies, windows and
// allocations come from this room.
#include "device/core_shadow.h"

#include <stdlib.h>

static bool checks(const core_state *c, uint32_t what) {
  return c->launch->checks & what;
}

static void *take(core_state *c, size_t n, size_t bytes) {
  void *p = calloc(n + 1, bytes);
  if (!p) core_stop(c, AT_RESOURCE_EXHAUSTED, -1, "no memory for the checks");
  return p;
}

// ---- Set-up
// -------------------------------------------------------------------------
static size_t granule_of(const core_state *c, const region *r) {
  if (r->ref < 0) return 1;
  const at_xcore_ref *x = &c->program->refs[r->ref];
  return AT_MAX(at_dtype_bytes((at_dtype)x->dtype), 1u);
}

// Another core's shade of the same memory.
static const shade *shared(const core_state *c, const region *r) {
  const core_state *o = c->elder;
  if (!o || !o->shadow) return NULL;
  for (uint32_t i = 0; i < o->num_regions; i++)
    if (o->regions[i].base == r->base && o->regions[i].bytes == r->bytes &&
        o->shadow->shades[i].filled)
      return &o->shadow->shades[i];
  return NULL;
}

static bool starts_filled(const core_state *c, const region *r) {
  if (r->ref < 0) return false;
  const at_xcore_ref *x = &c->program->refs[r->ref];
  if (x->role == AT_CORE_IN || x->role == AT_CORE_PREFETCH) return true;
  if (x->role != AT_CORE_OUT) return false;
  for (uint32_t i = 0, out = 0; i < c->program->record->num_refs; i++) {
    if (c->program->refs[i].role != AT_CORE_OUT) continue;
    if (i == (uint32_t)r->ref) {
      for (uint32_t k = 0; k < c->program->record->num_refs; k++)
        if (c->program->refs[k].role == AT_CORE_IN &&
            c->program->refs[k].alias == (int32_t)out)
          return true;
      return false;
    }
    out++;
  }
  return false;
}

shade *core_shade_of(core_state *c, const region *r) {
  shade *s = &c->shadow->shades[r - c->regions];
  if (s->filled || r->space == AT_CORE_SEM) return s->filled ? s : NULL;
  const shade *other = shared(c, r);
  if (other) {
    *s = *other;
    s->borrowed = true;
    return s;
  }
  s->granule = granule_of(c, r);
  s->count = r->bytes / s->granule;
  s->filled = take(c, s->count, 1);
  s->left_at = take(c, kNumNotes, sizeof *s->left_at);
  if (c->together) s->cells = take(c, s->count, sizeof *s->cells);
  if (starts_filled(c, r)) memset(s->filled, 1, s->count);
  return s;
}

void core_shadow_init(core_state *c) {
  c->shadow = take(c, 1, sizeof *c->shadow);
  shadow *s = c->shadow;
  if (c->together) {
    s->actor = c->actor;
    s->sem_clock = take(c, kNumSems, sizeof *s->sem_clock);
    if (s->actor < kMaxActors) s->clock[s->actor] = 1;
  }
  const at_xcore *r = c->program->record;
  for (uint32_t i = 0; i < r->num_refs; i++) {
    const at_xcore_ref *x = &c->program->refs[i];
    if (x->role != AT_CORE_SCRATCH || x->space == AT_CORE_SEM) continue;
    int64_t n = 1;
    for (uint32_t d = 0; d < x->rank; d++) n *= x->dims[d];
    if (!c->elder || x->space != AT_CORE_VMEM_SHARED)
      core_fill(c, c->refs[i].base, (at_dtype)x->dtype, n);
  }
  for (uint32_t i = 0; i < c->num_regions; i++)
    core_shade_of(c, &c->regions[i]);
}

void core_shadow_free(core_state *c) {
  shadow *s = c->shadow;
  if (!s) return;
  for (uint32_t i = 0; i < kMaxRegions; i++) {
    if (!s->shades[i].borrowed) {
      free(s->shades[i].filled);
      free(s->shades[i].left_at);
      free(s->shades[i].cells);
      free(s->shades[i].strays);
    }
    free(s->visited[i]);
  }
  free(s->sem_clock);
  free(s->flights);
  free(s);
  c->shadow = NULL;
}

// ---- Walking boxes
// ---------------------------------------------------------------------
typedef struct touch {
  core_state *c;      // who touches
  core_state *owner;  // whose memory it is
  const region *region;
  shade *shade;
  const area *box;
  bool writes, must_be_filled;
  bool adds;               // writes what it adds to what is there
  bool may_be_dropped;     // what is read, by a choice
  bool stores;             // writes by a store
  bool strays;             // and to what does not go back to an array
  bool *fetched;           // only asks whether a pipeline fetched any of it
  bool *written;           // only asks whether any of it was written
  const core_state *over;  // whose copy it was, which ends now
  int32_t loc;
} touch;

static void name_place(const touch *t, size_t granule, char *out, size_t n) {
  const region *r = t->region;
  if (r->ref < 0) {
    snprintf(out, n, "an allocation");
    return;
  }
  const at_xcore_ref *x = &t->owner->program->refs[r->ref];
  char name[64];
  int len =
      snprintf(out, n, "%s, element (",
               core_ref_text(t->owner, (uint32_t)r->ref, name, sizeof name));
  bool block = t->owner->windows[r->ref].buffer == r->base;
  const int64_t *dims = block ? x->block : x->dims;
  int64_t at[AT_CORE_MAX_RANK], rest = (int64_t)granule;
  for (uint32_t d = x->rank; d-- > 0;) {
    at[d] = dims[d] ? rest % dims[d] : 0;
    rest = dims[d] ? rest / dims[d] : 0;
  }
  for (uint32_t d = 0; d < x->rank && len > 0 && (size_t)len < n; d++)
    len += snprintf(out + len, n - (size_t)len, "%s%lld", d ? ", " : "",
                    (long long)at[d]);
  if (len > 0 && (size_t)len < n) snprintf(out + len, n - (size_t)len, ")");
}

static void report_unfilled(const touch *t, size_t granule) {
  char place[256], hint[1400];
  core_state *c = t->c;
  name_place(t, granule, place, sizeof place);
  flights_hint(c, t->region->base + granule * t->shade->granule, hint,
               sizeof hint);
  if (c->group) pthread_mutex_unlock(&c->group->lock);
  int32_t ref = t->region->ref;
  const char *why = "nothing was written there since it was allocated";
  if (ref >= 0 && c->program->refs[ref].role == AT_CORE_OUT)
    why = c->shadow->revisited[ref]
              ? "an output may be revisited on consecutive steps only: this "
                "block "
                "was written back and other steps used its buffer"
              : "the first visit of an output block finds undefined values";
  core_stop(c, AT_FAILED_PRECONDITION, t->loc,
            "read of uninitialised memory: %s\ndetail: %s%s", place, why, hint);
}

// Of that number in the checks; NULL: it left.
static const core_state *core_of_actor(const core_state *c, uint32_t actor) {
  for (const core_state *p = c->group ? c->group->first : NULL; p; p = p->next)
    if (p->shadow && p->shadow->actor == actor) return p;
  return NULL;
}

static void report_race(const touch *t, const cell *at, size_t granule,
                        bool wrote) {
  char place[256], me[64], other[64] = "another core", there[512] = "";
  char device[32] = "", hint[1400];
  core_state *c = t->c;
  uint32_t epoch = wrote ? at->written : at->read;
  const core_state *p = core_of_actor(c, epoch_actor(epoch));
  name_place(t, granule, place, sizeof place);
  if (p) core_who(p, other, sizeof other);
  if (p) core_place(p, wrote ? at->wrote_at : at->read_at, there, sizeof there);
  if (t->owner->head.device_id != c->head.device_id)
    snprintf(device, sizeof device, " on device %d", t->owner->head.device_id);
  uint8_t *byte = t->region->base + granule * t->shade->granule;
  flights_hint(c, t->writes ? NULL : byte, hint, sizeof hint);
  if (c->group) pthread_mutex_unlock(&c->group->lock);
  core_stop(c, AT_FAILED_PRECONDITION, t->loc,
            "race: %s %s %s%s, which %s %s without a signal between them%s%s%s",
            core_who(c, me, sizeof me), t->writes ? "writes" : "reads", place,
            device, other, wrote ? "wrote" : "read",
            *there ? "\ndetail: that was at " : "", there, hint);
}

// Does the epoch come before everything that c does now?
static bool before(const core_state *c, uint32_t epoch) {
  if (!epoch) return true;
  uint32_t actor = epoch_actor(epoch);
  return actor == c->shadow->actor || actor >= kMaxActors ||
         c->shadow->clock[actor] >= (epoch & 0xffffff);
}

static area area_of_bytes(uint8_t *p, size_t bytes);
static uint32_t epoch_now(const core_state *c) {
  uint32_t actor = c->shadow->actor;
  return (actor + 1) << 24 | (c->shadow->clock[actor] & 0xffffff);
}

// Was it read by a copy to another core of which t->c knows that it arrived?
static bool has_arrived(const touch *t, const cell *at, size_t i) {
  size_t g = t->shade->granule;
  area box = area_of_bytes(t->region->base + i * g, g);
  const core_state *by = core_of_actor(t->c, epoch_actor(at->read));
  return by && sent_arrived(t->c, sent_from(by, at->read_at, &box));
}

static void touch_cells(const touch *t, size_t first, size_t n) {
  const core_state *c = t->c;
  if (c->shadow->actor >= kMaxActors || !checks(c, AT_CHECK_RACES)) return;
  uint32_t now = epoch_now(c);
  for (size_t i = first; i < first + n; i++) {
    cell *at = &t->shade->cells[i];
    bool both_add = t->adds && at->written & kAdded;
    if (!both_add && !before(c, at->written)) report_race(t, at, i, true);
    if (t->writes && !before(c, at->read) && !has_arrived(t, at, i))
      report_race(t, at, i, false);
    if (t->writes)
      *at =
          (cell){.written = now | (t->adds ? kAdded : 0u), .wrote_at = t->loc};
    else
      at->read = now, at->read_at = t->loc;
  }
}

// What a copy touched when it was started, it may have touched until now.
static void date_cells(const touch *t, size_t first, size_t n) {
  uint32_t now = epoch_now(t->c), by = t->over->shadow->actor;
  for (size_t i = first; i < first + n; i++) {
    cell *at = &t->shade->cells[i];
    uint32_t *epoch = t->writes ? &at->written : &at->read;
    int32_t loc = t->writes ? at->wrote_at : at->read_at;
    if (*epoch && epoch_actor(*epoch) == by && loc == t->loc)
      *epoch = now | (*epoch & kAdded);
  }
}

static bool is_padded(const touch *t);
static bool is_partly_written(const touch *t);
// ---- Stores that are lost
// An input's block does not go back to its array: what is stored there and not
// read before the window moves on was meant for somewhere else.
static bool is_input_block(const core_state *c, const region *r) {
  if (r->ref < 0 || r->space == AT_CORE_HBM) return false;
  const at_xcore_ref *x = &c->program->refs[r->ref];
  return x->role == AT_CORE_IN && x->alias < 0 && !x->cores &&
         (x->space == AT_CORE_VMEM || x->space == AT_CORE_SMEM);
}

static void note_strays(const touch *t, size_t first, size_t n) {
  int32_t *at = t->shade->strays;
  for (size_t i = first; at && i < first + n; i++)
    at[i] = t->strays ? t->loc + 2 : 0;
}

static void no_strays(core_state *c, const region *r, const char *when) {
  shade *s = &c->shadow->shades[r - c->regions];
  for (size_t i = 0; s->strays && i < s->count; i++) {
    if (!s->strays[i]) continue;
    char place[256];
    touch t = {.c = c, .owner = c, .region = r};
    name_place(&t, i, place, sizeof place);
    core_stop(c, AT_FAILED_PRECONDITION, s->strays[i] - 2,
              "a store is lost: %s was written, and nobody read it before %s\n"
              "detail: blocks of inputs do not go back to their arrays; store "
              "to an output, or alias one (input_output_aliases)",
              place, when);
  }
}

static _Noreturn void report_lost_in_pipeline(core_state *c, const shade *s,
                                              const char *when) {
  core_stop(c, AT_FAILED_PRECONDITION, s->stored_at - 2,
            "a store is lost: a block that a pipeline fetched was written, and "
            "nobody read it before %s\n"
            "detail: blocks of inputs do not go back to their arrays",
            when);
}

// What is filled after an access; stores to fetched blocks are noted.
static void touch_filled(const touch *t, uint8_t *filled, size_t n) {
  shade *s = t->shade;
  if (t->stores && memchr(filled, kFetched, n)) s->stored_at = t->loc + 2;
  if (!s->stored_at) {
    if (t->writes) memset(filled, 1, n);
    return;
  }
  if (t->writes && !t->stores && checks(t->c, AT_CHECK_UNINIT) &&
      memchr(filled, kFetchedStored, n)) {
    if (t->c->group) pthread_mutex_unlock(&t->c->group->lock);
    report_lost_in_pipeline(t->c, s, "the next block came");
  }
  for (size_t i = 0; i < n; i++) {
    bool fetched = filled[i] == kFetched || filled[i] == kFetchedStored;
    if (t->writes)
      filled[i] = t->stores && fetched ? kFetchedStored : 1;
    else if (fetched)
      filled[i] = kFetched;
  }
}

static void touch_run(const touch *t, const uint8_t *at, size_t bytes) {
  size_t g = t->shade->granule, first = (size_t)(at - t->region->base) / g;
  size_t n = (bytes + g - 1) / g;
  if (first >= t->shade->count) return;
  n = AT_MIN(n, t->shade->count - first);
  uint8_t *filled = t->shade->filled + first;
  if (t->over) {
    date_cells(t, first, n);
    return;
  }
  if (t->fetched) {
    *t->fetched |= memchr(filled, kFetched, n) != NULL ||
                   memchr(filled, kFetchedStored, n) != NULL;
    return;
  }
  if (t->written) {
    for (size_t i = 0; i < n && !*t->written; i++) *t->written = filled[i];
    return;
  }
  if ((!t->writes || t->adds) && t->must_be_filled &&
      checks(t->c, AT_CHECK_UNINIT)) {
    const uint8_t *hole = memchr(filled, 0, n);
    bool padded = hole && is_padded(t);
    if (hole && !padded && !is_partly_written(t))
      report_unfilled(t, first + (size_t)(hole - filled));
    if (hole)
      core_note_undefined(t->c, padded ? UNDEFINED_PADDING : UNDEFINED_PART,
                          t->loc);
  }
  if (!t->writes && memchr(filled, kPadding, n))
    core_note_undefined(t->c, UNDEFINED_PADDING, t->loc);
  if (!t->writes && t->may_be_dropped && memchr(filled, 0, n))
    core_note_undefined(t->c, UNDEFINED_CHOSEN, t->loc);
  touch_filled(t, filled, n);
  note_strays(t, first, n);
  if (t->shade->cells) touch_cells(t, first, n);
}

static void touch_dims(const touch *t, uint32_t d, const uint8_t *at) {
  const area *b = t->box;
  if (d == b->rank) {
    touch_run(t, at, b->elem_bytes);
    return;
  }
  if (d + 1 == b->rank && b->stride[d] == (int64_t)b->elem_bytes) {
    touch_run(t, at, (size_t)b->size[d] * b->elem_bytes);
    return;
  }
  for (int64_t i = 0; i < b->size[d]; i++)
    touch_dims(t, d + 1, at + i * b->stride[d]);
}

// A block at the edge that emit_pipeline fetched: what is not there is padding,
// which only must not reach a result.
static bool is_padded(const touch *t) {
  bool fetched = false;
  touch ask = *t;
  ask.fetched = &fetched;
  touch_dims(&ask, 0, t->box->base);
  return fetched;
}

// Kernels work on whole buffers of which they filled, and need, only a part: a
// second run tells whether the rest reaches a result.
static bool is_partly_written(const touch *t) {
  bool written = false;
  touch ask = *t;
  ask.written = &written;
  if (t->writes || !t->c->launch->rerun) return false;
  touch_dims(&ask, 0, t->box->base);
  return written;
}

static bool is_empty(const area *a) {
  for (uint32_t d = 0; d < a->rank; d++)
    if (a->size[d] <= 0) return true;
  return false;
}

static void touch_box(touch *t) {
  t->region = core_region_of(t->owner, t->box->base);
  if (!t->region || is_empty(t->box)) return;
  t->shade = core_shade_of(t->owner, t->region);
  if (!t->shade) return;
  core_state *c = t->c;
  t->strays &= checks(c, AT_CHECK_UNINIT) && is_input_block(c, t->region);
  if (t->strays && !t->shade->strays)
    t->shade->strays = take(c, t->shade->count, sizeof *t->shade->strays);
  if (c->group) pthread_mutex_lock(&c->group->lock);
  touch_dims(t, 0, t->box->base);
  if (c->group) pthread_mutex_unlock(&c->group->lock);
}

void core_shadow_over(core_state *c, const flight *f) {
  if (!c->shadow->sem_clock || c->shadow->actor >= kMaxActors || !f->by->shadow)
    return;
  if (f->writes && f->by != c) {
    sent *x = &f->by->shadow->sent[f->id % kSentKept];
    if (x->id == f->id) {
      x->actor = c->shadow->actor;
      x->clock = c->shadow->clock[x->actor];
    }
  }
  touch t = {.c = c,
             .owner = c,
             .region = core_region_of(c, f->box.base),
             .box = &f->box,
             .writes = f->writes,
             .over = f->by,
             .loc = f->loc};
  // A place of another program would be shown as one of this core's.
  if (!t.region || f->by->program != c->program) return;
  t.shade = core_shade_of(c, t.region);
  if (t.shade && t.shade->cells) touch_dims(&t, 0, f->box.base);
}

static area area_of_bytes(uint8_t *p, size_t bytes) {
  return (area){.base = p,
                .rank = 1,
                .elem_bytes = 1,
                .size = {(int64_t)bytes},
                .stride = {1}};
}

// ---- The last stores
static void note_store(core_state *c, const area *box, int32_t loc) {
  shadow *s = c->shadow;
  stored now = {box->base, box->base + area_extent(box), loc};
  s->stores[s->num_stores++ % kStoresKept] = now;
}

// The last that met these bytes; -1: nobody knows.
static int32_t last_store(const core_state *c, const uint8_t *at,
                          int64_t bytes) {
  const shadow *s = c->shadow;
  for (uint32_t k = 0; k < AT_MIN(s->num_stores, (uint32_t)kStoresKept); k++) {
    const stored *x = &s->stores[(s->num_stores - 1 - k) % kStoresKept];
    if (x->begin < at + bytes && at < x->end) return x->loc;
  }
  return -1;
}

// ---- Loads, stores, copies
// -----------------------------------------------------------------
static void stores_again(const touch *t);

void at_core_access(at_core *core, const at_core_view *v, int32_t kind,
                    int32_t loc) {
  core_state *c = state_of(core);
  if (!c->shadow || v->rank < 0 || v->rank > AT_CORE_MAX_RANK) return;
  area box = area_of_view(v);
  bool writes = kind & AT_CORE_STORE;
  if (checks(c, AT_CHECK_RACES))
    flights_check(c, &box, writes ? ACCESS_WRITES : ACCESS_READS, loc,
                  writes ? "a store to" : "a load from");
  touch t = {.c = c,
             .owner = c,
             .box = &box,
             .writes = writes,
             .stores = writes,
             .strays = writes,
             .must_be_filled = !(kind & (AT_CORE_MASKED | AT_CORE_CHOSEN)),
             .may_be_dropped = kind & AT_CORE_CHOSEN,
             .loc = loc};
  touch_box(&t);
  if (writes) note_store(c, &box, loc);
  if (writes && t.region) stores_again(&t);
}

void at_core_expect(at_core *core, const at_core_view *v, int32_t loc) {
  core_state *c = state_of(core);
  if (!c->shadow || v->rank < 0 || v->rank > AT_CORE_MAX_RANK) return;
  area box = area_of_view(v);
  flights_expect(c, &box, loc);
}

// Runs of a row, whose box is `row`.
static void store_runs(at_core *core, at_core_view row, const uint8_t *mask,
                       int64_t n, int32_t loc) {
  int32_t last = row.rank - 1;
  uint8_t *base = row.base;
  for (int64_t i = 0, end; i < n; i = end) {
    for (end = i; end < n && !mask[end] == !mask[i];) end++;
    row.base = base + i * row.stride[last];
    row.size[last] = end - i;
    if (mask[i]) at_core_access(core, &row, AT_CORE_STORE, loc);
  }
}

void at_core_access_masked(at_core *core, const at_core_view *v,
                           const uint8_t *mask, int32_t loc) {
  core_state *c = state_of(core);
  if (!c->shadow || v->rank < 1 || v->rank > AT_CORE_MAX_RANK) return;
  at_core_view row = *v;
  int64_t at[AT_CORE_MAX_RANK] = {0}, rows = 1, n = v->size[v->rank - 1];
  for (int32_t k = 0; k + 1 < v->rank; k++) {
    rows *= v->size[k];
    row.size[k] = 1;
  }
  for (; rows > 0; rows--, mask += n) {
    store_runs(core, row, mask, n, loc);
    for (int32_t k = v->rank - 1; k-- > 0;) {
      row.base = (uint8_t *)row.base + v->stride[k];
      if (++at[k] < v->size[k]) break;
      row.base = (uint8_t *)row.base - v->size[k] * v->stride[k];
      at[k] = 0;
    }
  }
}

void at_core_access_packed(at_core *core, const at_core_view *v,
                           const uint8_t *mask, int64_t n, int32_t kind,
                           int32_t loc) {
  at_core_view there = *v;
  int64_t count = 0;
  for (int64_t i = 0; i < n; i++) count += mask[i] != 0;
  if (!count || v->rank < 1 || v->rank > AT_CORE_MAX_RANK) return;
  there.size[v->rank - 1] = count;
  at_core_access(core, &there, kind, loc);
}

void at_core_access_places(at_core *core, const at_core_places *x) {
  at_core_view one = x->ref;
  if (!state_of(core)->shadow || one.rank < 0 || one.rank > AT_CORE_MAX_RANK)
    return;
  for (int32_t d = 0; d < one.rank; d++) one.size[d] = 1;
  for (int64_t i = 0; i < x->n; i++) {
    if (x->mask && !x->mask[i]) continue;
    uint8_t *at = x->ref.base;
    for (int32_t d = 0; d < one.rank; d++)
      at += x->index[d][i] * x->ref.stride[d];
    one.base = at;
    at_core_access(core, &one, x->kind, x->loc);
  }
}

// A copy may move bytes that nobody has written: they stay so. True: some are.
static bool copy_filled(core_state *c, core_state *to, const at_core_dma *d,
                        void *dst) {
  const region *a = core_region_of(c, d->src), *b = core_region_of(to, dst);
  shade *from = a ? core_shade_of(c, a) : NULL,
        *into = b ? core_shade_of(to, b) : NULL;
  if (!from || !into) return false;
  size_t bytes = (size_t)core_dma_bytes(d) / (size_t)d->elem_bytes;
  uint8_t *flags = malloc(bytes + 1);
  if (!flags) return false;
  uint8_t full = core_shadow_fetches(c) ? kFetched : 1;
  bool holes = false;
  // Elements in row-major order, first of the source, then of the destination.
  for (int side = 0; side < 2; side++) {
    const shade *s = side ? into : from;
    const uint8_t *base = side ? b->base : a->base;
    const uint8_t *at = side ? (const uint8_t *)dst : d->src;
    const int64_t *stride = side ? d->dst_stride : d->src_stride;
    int64_t i[AT_CORE_MAX_RANK] = {0}, each = core_dma_elements(d, side);
    for (size_t n = 0; n < bytes; n++) {
      const uint8_t *p = at;
      for (int32_t k = 0; k < d->rank; k++) p += i[k] * stride[k];
      size_t width = AT_MAX((size_t)d->elem_bytes / s->granule, (size_t)1);
      if (!side) flags[n] = full;
      for (int64_t k = 0; k < each; k++, p += d->packed_step) {
        size_t g = (size_t)(p - base) / s->granule;
        if (g + width > s->count) continue;
        if (side)
          memset(s->filled + g, flags[n], width);
        else if (memchr(s->filled + g, 0, width))
          flags[n] = 0;
        holes |= !flags[n];
      }
      for (int32_t k = d->rank - 1; k >= 0 && ++i[k] == d->size[k]; k--)
        i[k] = 0;
    }
  }
  free(flags);
  return holes;
}

static void note_copy(core_state *c, core_state *to, const at_core_dma *d,
                      const area *src, const area *dst, bool holes) {
  const region *r = core_region_of(to, dst->base);
  const shade *s = r ? core_shade_of(to, r) : NULL;
  if (!s || c->program != to->program) return;
  s->left_at[kCopied] = d->loc + 2;
  int32_t store = last_store(c, src->base, area_extent(src));
  if (store < 0) return;
  if (holes) s->left_at[kIncomplete] = store + 2;
  if (r->ref >= 0) core_note_brought(c, (uint32_t)r->ref, store);
}

// What a side of a copy holds, which is at `base`.
static area side_of(const at_core_dma *d, bool dst, void *base) {
  area a = {.base = base,
            .rank = (uint32_t)d->rank,
            .elem_bytes = (uint32_t)d->elem_bytes};
  memcpy(a.size, d->size, sizeof a.size);
  memcpy(a.stride, dst ? d->dst_stride : d->src_stride, sizeof a.stride);
  int64_t each = core_dma_elements(d, dst);
  if (each == 1) return a;
  a.size[a.rank] = each;
  a.stride[a.rank++] = d->packed_step;
  return a;
}

void core_shadow_copy(core_state *c, core_state *to, const at_core_dma *d,
                      void *dst) {
  area src = side_of(d, false, d->src), out = side_of(d, true, dst);
  bool adds = d->add != 0;
  if (checks(c, AT_CHECK_RACES)) {
    flights_check(c, &src, ACCESS_READS, d->loc, "a copy from");
    access_kind kind = adds ? ACCESS_ADDS : ACCESS_WRITES;
    if (to == c) flights_check(c, &out, kind, d->loc, "a copy to");
    departures_check(c, &src, d->loc, "a copy from");
    departures_check(c, &out, d->loc, "a copy to");
    flights_check_others(c, &src, ACCESS_READS, d->loc, "a copy from");
    flights_check_others(c, &out, kind, d->loc, "a copy to");
    if (area_overlap(&src, &out) && to == c)
      core_stop(c, AT_FAILED_PRECONDITION, d->loc,
                "race: a copy reads memory that it writes");
  }
  // A plain copy may move what nobody has written, a sum may not take it.
  touch t = {
      .c = c, .owner = c, .box = &src, .must_be_filled = adds, .loc = d->loc};
  touch_box(&t);
  touch w = {.c = c,
             .owner = to,
             .box = &out,
             .writes = true,
             .adds = adds,
             .must_be_filled = adds,
             .loc = d->loc};
  touch_box(&w);
  if (to == c && core_shadow_fetches(c)) blocks_note_fetch(c, &out);
  if (!adds) blocks_pad(to, d, &out);
  bool holes = !adds && copy_filled(c, to, d, dst);
  note_copy(c, to, d, &src, &out, holes);
  if (!checks(c, AT_CHECK_RACES)) return;
  flight reads = {.box = src,
                  .bytes = core_dma_signals(d, to == c && d->dst_sem),
                  .loc = d->loc,
                  .by = c};
  flight writes = reads;
  writes.box = out;
  writes.bytes = core_dma_signals(d, true);
  writes.writes = true;
  writes.adds = adds;
  if (to == c) {
    const void *s = d->dst_sem ? d->dst_sem : d->src_sem;
    flights_add(c, &reads, s);
    flights_add(c, &writes, s);
  } else {
    shadow *me = c->shadow;
    reads.id = writes.id = ++me->num_sent;
    me->sent[reads.id % kSentKept] =
        (sent){.box = src, .loc = d->loc, .id = reads.id};
    flights_add(c, &reads, d->src_sem);
    flights_add(to, &writes, d->dst_sem);
  }
}

void core_shadow_indices(core_state *c, const at_core_indirect *x) {
  const at_core_dma *d = &x->rows;
  if (!checks(c, AT_CHECK_RACES) || d->size[0] <= 0) return;
  // The semaphore counts the rows alone.
  flight f = {.box = {.base = (uint8_t *)x->offsets,
                      .rank = 1,
                      .elem_bytes = sizeof *x->offsets,
                      .size = {d->size[0]},
                      .stride = {x->offset_step}},
              .loc = d->loc,
              .by = c};
  flights_add(c, &f, d->src_sem ? d->src_sem : d->dst_sem);
}

// ---- Semaphores
// -------------------------------------------------------------------------------
static void join(uint32_t *into, const uint32_t *from) {
  for (int i = 0; i < kMaxActors; i++) into[i] = AT_MAX(into[i], from[i]);
}

void core_shadow_signal(core_state *from, core_state *to, const sem *s) {
  shadow *me = from->shadow;
  if (!to->shadow || !to->shadow->sem_clock || me->actor >= kMaxActors) return;
  join(to->shadow->sem_clock[s - to->sems], me->clock);
  me->clock[me->actor]++;
}

void core_shadow_wait(core_state *c, const sem *s, int64_t amount) {
  flights_waited(c, s, amount);
  if (c->shadow->sem_clock)
    join(c->shadow->clock, c->shadow->sem_clock[s - c->sems]);
}

// ---- Allocations
// ----------------------------------------------------------------------------
void core_shadow_alloc(core_state *c, void *p, size_t bytes) {
  const region *r = core_region_of(c, p);
  shade *s = r ? core_shade_of(c, r) : NULL;
  if (!s) return;
  memset(p, 0xff, bytes);
  memset(s->filled + ((uint8_t *)p - r->base), 0, bytes);
  flights_forget(c, p, bytes);
}

// Semaphores that are results may keep signals: another kernel waits for them.
static bool outlives(const core_state *c, size_t sem_index) {
  for (uint32_t i = 0; i < c->program->record->num_refs; i++) {
    const at_xcore_ref *x = &c->program->refs[i];
    if (x->role != AT_CORE_OUT || x->space != AT_CORE_SEM) continue;
    size_t first = (size_t)((sem *)c->refs[i].base - c->sems), n = 1;
    for (uint32_t d = 0; d < x->rank; d++) n *= (size_t)x->dims[d];
    if (sem_index >= first && sem_index < first + n) return true;
  }
  return false;
}

static void sem_must_be_zero(core_state *c, uint32_t i, int32_t loc,
                             const char *when) {
  const sem *s = &c->sems[i];
  const uint32_t flags = c->program->record->flags;
  if (!s->value || !checks(c, AT_CHECK_DEADLOCK) || outlives(c, i) ||
      (flags & AT_CORE_NO_SEMAPHORE_CHECKS))
    return;
  const flight *f = flights_left(c, i);
  if (f)
    core_stop(c, AT_FAILED_PRECONDITION, f->loc,
              "this copy is never waited for: its semaphore is %lld %s",
              (long long)s->value, when);
  char wait[512] = "", name[128];
  if (s->waited) core_place(c, s->waited - 1, wait, sizeof wait);
  at_strbuf b = {0};
  core_name_sem(c, s, &b);
  snprintf(name, sizeof name, "%s", b.ptr ? b.ptr : "?");
  at_strbuf_free(&b);
  core_stop(c, AT_FAILED_PRECONDITION, s->loc,
            "%s is %lld %s, not 0\n"
            "detail: its last signal is shown here%s%s; signals and waits must "
            "balance",
            name, (long long)s->value, when,
            *wait ? ", its last wait is at " : "", wait);
}

void core_shadow_freed(core_state *c, uint8_t *p, size_t bytes, int32_t loc) {
  area box = area_of_bytes(p, bytes);
  flight f;
  if (bytes && checks(c, AT_CHECK_RACES) &&
      flights_find(c, &box, ACCESS_WRITES, &f))
    core_stop(c, AT_FAILED_PRECONDITION, f.by == c ? f.loc : loc,
              "race: a scope ends while this copy still %s its memory\n"
              "detail: it has not been waited for when run_scoped returns",
              f.writes ? "writes" : "reads");
  blocks_forget(c, p, bytes);
  const region *r = core_region_of(c, p);
  const shade *s = r && bytes ? core_shade_of(c, r) : NULL;
  if (s && s->stored_at && checks(c, AT_CHECK_UNINIT) &&
      memchr(s->filled + (p - r->base), kFetchedStored, bytes))
    report_lost_in_pipeline(c, s, "the pipeline ended");
}

void core_shadow_release(core_state *c, uint32_t first_sem, int32_t loc) {
  if (c->together) return;  // others may be ahead: the end tells
  for (uint32_t i = first_sem; i < c->num_sems; i++)
    sem_must_be_zero(c, i, loc, "where its scope ends");
}

// ---- Windows
// -----------------------------------------------------------------------------------
static int64_t block_number(const at_xcore_ref *x, const int32_t *at,
                            int64_t *out_n) {
  int64_t n = 0;
  *out_n = 1;
  for (uint32_t d = 0; d < x->rank; d++) {
    int64_t blocks = x->block[d] ? at_ceil_div(x->dims[d], x->block[d]) : 1;
    n = n * blocks + at[d];
    *out_n *= AT_MAX(blocks, (int64_t)1);
  }
  return n;
}

// A step's windows are its own: copies to and from them must have ended.
static void no_copies(core_state *c, uint32_t i, bool reads) {
  window *w = &c->windows[i];
  area box = area_of_bytes(w->buffer, w->buffer_bytes);
  flight f;
  char name[64];
  if (!checks(c, AT_CHECK_RACES) ||
      !flights_find(c, &box, reads ? ACCESS_WRITES : ACCESS_READS, &f))
    return;
  core_stop(
      c, AT_FAILED_PRECONDITION, f.by == c ? f.loc : core_window_loc(c, i),
      "race: the window of %s moves on while this copy still %s it\n"
      "detail: it has not been waited for when its grid step ends",
      core_ref_text(c, i, name, sizeof name), f.writes ? "writes" : "reads");
}

// What of the block lies outside of its array.
static void mark_padding(core_state *c, uint32_t i, const shade *s) {
  const window *w = &c->windows[i];
  const int64_t *stride = c->refs[i].stride;
  area in = {.base = w->buffer,
             .rank = w->ref->rank,
             .elem_bytes = (uint32_t)s->granule};
  for (uint32_t k = 0; k < in.rank; k++) {
    in.base += w->skip[k] * stride[k];
    in.size[k] = w->valid[k];
    in.stride[k] = stride[k];
  }
  memset(s->filled, kPadding, s->count);
  shade_mark(s, core_region_of(c, w->buffer), &in, 0, in.base, 1);
}

// The buffer now holds another block; `now` says which.
void core_shadow_window(core_state *c, uint32_t i) {
  window *w = &c->windows[i];
  const region *r = core_region_of(c, w->buffer);
  shade *s = r ? core_shade_of(c, r) : NULL;
  w->moved = true;
  if (!s) return;
  bool output = w->ref->role == AT_CORE_OUT;
  no_strays(c, r, "the window moved on");
  if (!output) no_copies(c, i, true);
  memset(s->filled, !output, s->count);
  if (!output && !w->whole) mark_padding(c, i, s);
  if (!output) return;
  core_fill(c, w->buffer, (at_dtype)w->ref->dtype,
            (int64_t)(w->buffer_bytes / s->granule));
  if (w->ref->window != AT_CORE_BLOCKED) return;
  int64_t n, block = block_number(w->ref, w->now, &n);
  if (n > 1 << 24 || block < 0 || block >= n) return;
  if (!c->shadow->visited[i]) c->shadow->visited[i] = take(c, (size_t)n, 1);
  c->shadow->revisited[i] = c->shadow->visited[i][block];
  c->shadow->visited[i][block] |= kVisited;
}

// What the block's earlier visit wrote went back; this store is the first of
// another.
static void stores_again(const touch *t) {
  core_state *c = t->c;
  const region *r = t->region;
  if (r->ref < 0 || c->windows[r->ref].buffer != r->base) return;
  uint8_t *visits = c->shadow->visited[r->ref];
  const window *w = &c->windows[r->ref];
  int64_t n, block;
  if (!visits || starts_filled(c, r)) return;
  block = block_number(w->ref, w->now, &n);
  if (c->shadow->revisited[r->ref] & kWritten && checks(c, AT_CHECK_UNINIT)) {
    char map[512] = "", name[64];
    if (c->program->refs[r->ref].place)
      core_place(c, core_window_loc(c, (uint32_t)r->ref), map, sizeof map);
    core_stop(c, AT_FAILED_PRECONDITION, t->loc,
              "an output is revisited too late: a store to a block of %s "
              "that an earlier step wrote and that has gone back since\n"
              "detail: what was there is lost; an output may be revisited on "
              "consecutive steps only%s%s",
              core_ref_text(c, (uint32_t)r->ref, name, sizeof name),
              *map ? ", and its blocks are chosen at " : "", map);
  }
  visits[block] |= kWritten;
}

// copied: the last copy to it, where that is known.
static _Noreturn void report_poison(core_state *c, uint32_t i, int32_t copied) {
  bool padding;
  int32_t read = core_undefined_at(c, &padding), store = core_store_loc(c, i);
  if (store == -1) store = copied;
  char other[512] = "", name[64];
  if (read != kNowhere)
    core_place(c, padding ? read : store, other, sizeof other);
  core_stop(
      c, AT_FAILED_PRECONDITION, read == kNowhere || padding ? store : read,
      "an element of %s is NaN: it was computed from undefined values, as "
      "%s%s%s",
      core_ref_text(c, i, name, sizeof name),
      padding ? "the padding of blocks at the edge has"
              : "uninitialised memory has",
      !*other   ? ""
      : padding ? "\ndetail: undefined values are read at "
                : "\ndetail: it is stored at ",
      other);
}

// What goes back must not come from the padding of another window. What nobody
// has written stays a hole of the operand: the end tells.
static void no_poison(core_state *c, uint32_t i, const at_core_dma *d) {
  const at_xcore_ref *x = c->windows[i].ref;
  const region *r = core_region_of(c, d->src);
  const shade *s = r ? core_shade_of(c, r) : NULL;
  int64_t at[AT_CORE_MAX_RANK] = {0};
  for (int64_t left = core_dma_bytes(d) / d->elem_bytes; left > 0; left--) {
    const uint8_t *p = d->src;
    for (int32_t k = 0; k < d->rank; k++) p += at[k] * d->src_stride[k];
    bool hole = s && !s->filled[(size_t)(p - r->base) / s->granule];
    if (!hole && core_is_poison(p, (at_dtype)x->dtype)) report_poison(c, i, -1);
    for (int32_t k = d->rank - 1; k >= 0 && ++at[k] == d->size[k]; k--)
      at[k] = 0;
  }
}

// The block goes back to the operand, holes included.
void core_shadow_write_back(core_state *c, uint32_t i) {
  window *w = &c->windows[i];
  const at_xcore_ref *x = w->ref;
  at_core_dma d = {.src = w->buffer,
                   .dst = w->operand,
                   .rank = (int32_t)x->rank,
                   .elem_bytes = (int32_t)at_dtype_bytes((at_dtype)x->dtype)};
  uint8_t *src = w->buffer, *dst = w->operand;
  int64_t n = 1;
  no_copies(c, i, false);
  w->left[1] = w->left[0];
  w->left[0].steps = c->step;
  memcpy(w->left[0].start, w->start, sizeof w->start);
  memcpy(w->left[0].valid, w->valid, sizeof w->valid);
  for (uint32_t k = 0; k < x->rank; k++) {
    d.size[k] = w->valid[k];
    d.src_stride[k] = c->refs[i].stride[k];
    d.dst_stride[k] = w->operand_stride[k];
    src += w->skip[k] * d.src_stride[k];
    dst += w->start[k] * d.dst_stride[k];
    n *= w->valid[k];
  }
  d.src = src;
  d.dst = dst;
  if (n <= 0) return;
  if (checks(c, AT_CHECK_NAN)) no_poison(c, i, &d);
  copy_filled(c, c, &d, dst);
}

// ---- The end
// --------------------------------------------------------------------------------------
static _Noreturn void report_unwritten(core_state *c, const region *r,
                                       const shade *s, size_t hole) {
  char place[256], copy[512] = "";
  touch t = {.c = c, .owner = c, .region = r};
  name_place(&t, hole, place, sizeof place);
  int32_t copied = AT_MAX(s->left_at[kCopied] - 2, -1);
  int32_t loc = s->left_at[kIncomplete] - 2;
  if (loc >= 0) core_place(c, copied, copy, sizeof copy);
  if (loc < 0) loc = core_store_loc(c, (uint32_t)r->ref);
  if (loc == -1) loc = copied;
  core_stop(c, AT_FAILED_PRECONDITION, loc,
            "%s was never written: it stays undefined on the chip%s%s", place,
            *copy ? "\ndetail: the last copy to it is at " : "", copy);
}

// Kernels of several chips do not run again: what a choice kept of undefined
// values shows as NaN or not at all.
static void must_hold_no_poison(core_state *c, const region *r,
                                const shade *s) {
  const at_xcore_ref *x = &c->program->refs[r->ref];
  size_t width = AT_MAX(at_dtype_bytes((at_dtype)x->dtype), 1u);
  size_t bytes = AT_MIN(core_array_bytes(x), r->bytes);
  for (size_t at = 0; at < bytes; at += width)
    if (core_is_poison(r->base + at, (at_dtype)x->dtype))
      report_poison(c, (uint32_t)r->ref, AT_MAX(s->left_at[kCopied] - 2, -1));
}

static void outputs_must_be_filled(core_state *c) {
  for (uint32_t i = 0; i < c->num_regions; i++) {
    const region *r = &c->regions[i];
    if (r->ref < 0 || c->program->refs[r->ref].role != AT_CORE_OUT) continue;
    if (c->windows[r->ref].buffer == r->base && c->windows[r->ref].buffer)
      continue;
    const shade *s = core_shade_of(c, r);
    const uint8_t *hole = s ? memchr(s->filled, 0, s->count) : NULL;
    if (hole) report_unwritten(c, r, s, (size_t)(hole - s->filled));
    if (s && !c->launch->rerun && checks(c, AT_CHECK_NAN))
      must_hold_no_poison(c, r, s);
  }
}

void core_shadow_finish(core_state *c) {
  for (uint32_t i = 0; i < c->num_regions; i++)
    no_strays(c, &c->regions[i], "the kernel ended");
  for (uint32_t i = 0; i < c->most_sems; i++)
    sem_must_be_zero(c, i, -1, "when the kernel ends");
  for (uint32_t k = 0; k < c->shadow->num_flights; k++)
    if (checks(c, AT_CHECK_RACES) && !outlives(c, c->shadow->flights[k].sem))
      core_stop(c, AT_FAILED_PRECONDITION, c->shadow->flights[k].loc,
                "this copy is never waited for");
  // Programs of several kinds of cores fill an output together.
  if (checks(c, AT_CHECK_UNINIT) && !c->elder && c->launch->num_programs == 1)
    outputs_must_be_filled(c);
}

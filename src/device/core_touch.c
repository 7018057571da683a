// Loads, stores and copies as the checks see them: what their bytes hold, who
// else touched them, and what is wrong with that.
#include "device/core_shadow.h"

// "input 0 (argument 2), element (3, 5)": in the window's block or in the whole
// array, whichever the memory is.
void touch_name_place(const touch *t, size_t granule, char *out, size_t n) {
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

// Of a step of another parallel index.
static _Noreturn void report_step(const touch *t, int32_t loc, size_t granule,
                                  const char *did) {
  char place[256], there[512], dims[96];
  core_state *c = t->c;
  touch_name_place(t, granule, place, sizeof place);
  parallel_text(c, dims, sizeof dims);
  core_place(c, loc, there, sizeof there);
  core_stop(c, AT_FAILED_PRECONDITION, t->loc,
            "race: a step %s %s, which a step of another index %s\n"
            "detail: along %s%s%s\n"
            "hint: each index begins anew, or the dimension is arbitrary",
            t->writes ? "writes" : "reads", place, did, dims,
            *there ? "; that was at " : "", there);
}

// Explains why the granule is undefined as well as is known: left by another
// index, revisited too late, never written, or still on its way in a copy.
static void report_unfilled(const touch *t, size_t granule) {
  const shade *s = t->shade;
  if (s->carried && s->carried[granule]) {
    int32_t stored = s->stores ? s->stores[granule] : 0;
    report_step(t, stored ? stored - 2 : -1, granule, "left there");
  }
  char place[256], hint[1400];
  core_state *c = t->c;
  touch_name_place(t, granule, place, sizeof place);
  flights_hint(c, t->region->base + granule * t->shade->granule, hint,
               sizeof hint);
  int32_t ref = t->region->ref;
  const char *why = "nothing was written there since it was allocated";
  if (ref >= 0 && t->owner->program->refs[ref].role == AT_CORE_OUT)
    why = t->owner->shadow->visits[ref].before
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
    if (p->shadow && p->actor == actor) return p;
  return NULL;
}

// Names both sides and where they are. k: the mark that c has not heard of.
static void report_race(const touch *t, const mark *k, size_t granule,
                        bool wrote) {
  if (!t->c->group) report_step(t, k->loc, granule, wrote ? "wrote" : "read");
  char place[256], me[64], other[64] = "another core", there[512] = "";
  char device[32] = "", hint[1400];
  core_state *c = t->c;
  const core_state *p = core_of_actor(c, k->actor);
  const core_state *by = core_of_actor(c, k->by);
  touch_name_place(t, granule, place, sizeof place);
  if (p) core_who(p, other, sizeof other);
  if (by) core_place(by, k->loc, there, sizeof there);
  if (t->owner->head.device_id != c->head.device_id)
    snprintf(device, sizeof device, " on device %d", t->owner->head.device_id);
  uint8_t *byte = t->region->base + granule * t->shade->granule;
  flights_hint(c, t->writes ? NULL : byte, hint, sizeof hint);
  core_who(c, me, sizeof me);
  const char *does = t->writes ? "writes" : "reads";
  if (k->underway)
    core_stop(c, AT_FAILED_PRECONDITION, t->loc,
              "race: %s %s %s%s, which a copy of %s still %s\n"
              "detail: the copy was started at %s and has not been waited "
              "for%s",
              me, does, place, device, other, wrote ? "writes" : "reads",
              *there ? there : "?", hint);
  core_stop(c, AT_FAILED_PRECONDITION, t->loc,
            "race: %s %s %s%s, which %s %s without a signal between them%s%s%s",
            me, does, place, device, other, wrote ? "wrote" : "read",
            *there ? "\ndetail: that was at " : "", there, hint);
}

// Fails if one who touched granule i did so without c's knowing of it.
static void no_race(const touch *t, cell old, size_t i) {
  const marks *m = core_marks(t->c);
  for (uint32_t w = old.written; w; w = m->at[w].next)
    if (!(t->adds && m->at[w].adds) && !mark_is_before(t->c, &m->at[w]))
      report_race(t, &m->at[w], i, true);
  for (uint32_t r = t->writes ? old.read : 0; r; r = m->at[r].next)
    if (!mark_is_before(t->c, &m->at[r]) && !sent_arrived(t->c, m->at[r].sent))
      report_race(t, &m->at[r], i, false);
}

// One mark per access, made when the first granule needs it.
static uint32_t own_mark(touch *t) {
  if (t->own) return t->own;
  mark new = {.time = t->c->shadow->now,
              .actor = t->c->actor,
              .by = t->c->actor,
              .loc = t->loc,
              .sent = t->sent,
              .adds = t->adds,
              .underway = t->underway && t->c->group};
  return t->own = marks_put(t->c, new, 0);
}

static bool is_same(cell a, cell b) {
  return a.written == b.written && a.read == b.read;
}

// Each granule that shows a pair of lists uses them once.
static void hold_cell(marks *m, cell x, uint32_t uses) {
  marks_hold(m, x.written, uses);
  marks_hold(m, x.read, uses);
}

static void drop_cell(marks *m, cell x, uint32_t uses) {
  marks_drop(m, x.written, uses);
  marks_drop(m, x.read, uses);
}

// What a granule becomes that was `old`, with a use of its lists. A write
// replaces all lists; an atomic add joins the writers; a read joins the
// readers; a copy that ended dates its marks.
static cell touched(touch *t, cell old) {
  core_state *c = t->c;
  marks *m = core_marks(c);
  cell new = old;
  if (t->over) {
    hold_cell(m, old, 1);
    uint32_t *list = t->writes ? &new.written : &new.read;
    uint32_t dated = marks_dated(c, t->over, *list);
    marks_drop(m, *list, 1);
    *list = dated;
    return new;
  }
  uint32_t own = own_mark(t);
  if (!t->writes) {
    new.read = marks_with(c, own, old.read);
    marks_hold(m, new.written, 1);
  } else if (t->adds) {
    new.written = marks_with(c, own, old.written);
    marks_hold(m, new.read, 1);
  } else {
    new = (cell){.written = own};
    marks_hold(m, own, 1);
  }
  return new;
}

// Granules that were touched alike go together. The last answer is kept in
// `from` and `to`: whole arrays are mostly touched alike.
static void touch_cells(touch *t, size_t first, size_t n) {
  marks *m = core_marks(t->c);
  cell *at = t->shade->cells + first;
  for (size_t i = 0, end; i < n; i = end) {
    cell old = at[i];
    for (end = i + 1; end < n && is_same(at[end], old);) end++;
    bool again = (t->to.written || t->to.read) && is_same(old, t->from);
    if (!again) {
      if (!t->over) no_race(t, old, first + i);
      cell new = touched(t, old);
      drop_cell(m, t->to, 1);
      drop_cell(m, t->from, 1);
      hold_cell(m, old, 1);
      t->from = old;
      t->to = new;
    }
    uint32_t uses = (uint32_t)(end - i);
    hold_cell(m, t->to, uses);
    for (size_t k = i; k < end; k++) at[k] = t->to;
    drop_cell(m, old, uses);
  }
}

// Gives back what the access itself held.
static void forget_marks(touch *t) {
  marks *m = core_marks(t->c);
  drop_cell(m, t->from, 1);
  drop_cell(m, t->to, 1);
  marks_drop(m, t->own, 1);
  t->from = t->to = (cell){0, 0};
  t->own = 0;
}

static void touch_dims(touch *t, uint32_t d, const uint8_t *at);
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

// A read clears what a store noted.
static void note_strays(const touch *t, size_t first, size_t n) {
  int32_t *at = t->shade->strays;
  for (size_t i = first; at && i < first + n; i++)
    at[i] = t->strays ? t->loc + 2 : 0;
}

_Noreturn void report_lost_in_pipeline(core_state *c, const shade *s,
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
  if (t->writes && !t->stores && core_checks(t->c, AT_CHECK_UNINIT) &&
      memchr(filled, kFetchedStored, n))
    report_lost_in_pipeline(t->c, s, "the next block came");
  for (size_t i = 0; i < n; i++) {
    bool fetched = filled[i] == kFetched || filled[i] == kFetchedStored;
    if (t->writes)
      filled[i] = t->stores && fetched ? kFetchedStored : 1;
    else if (fetched)
      filled[i] = kFetched;
  }
}

// ---- The last stores
// + 2, so that 0 means none and place -1 can be kept.
static void note_stores(const touch *t, size_t first, size_t n) {
  shade *s = t->shade;
  if (!s->stores) s->stores = core_shadow_take(t->c, s->count, sizeof(int32_t));
  for (size_t i = first; i < first + n; i++) s->stores[i] = t->loc + 2;
}

// The last of the stores to these granules, by this core.
static void ask_stores(const touch *t, size_t first, size_t n) {
  const uint64_t *when = t->c->shadow->last_store;
  const int32_t *at = t->shade->stores;
  int32_t most = (int32_t)t->c->program->record->num_locations + 1;
  for (size_t i = first; at && i < first + n; i++)
    if (at[i] && at[i] <= most && when[at[i]] > when[*t->stored])
      *t->stored = at[i];
}

// The place of the latest store to the box by this core; -2: none.
int32_t touch_last_store(core_state *c, const area *box) {
  int32_t at = 0;
  touch t = {.c = c, .owner = c, .box = box, .stored = &at};
  touch_box(&t);
  return at - 2;
}

// Looks at the whole box, not only at the run that is touched.
static bool is_any_written(const touch *t) {
  bool written = false;
  touch ask = *t;
  ask.written = &written;
  touch_dims(&ask, 0, t->box->base);
  return written;
}

// Without the check for undefined values: does a step read what one of another
// parallel index left, and nothing else?
static void no_carried(const touch *t, size_t first, size_t n) {
  const shade *s = t->shade;
  if (t->writes || !t->must_be_filled || !core_checks(t->c, AT_CHECK_RACES))
    return;
  for (size_t i = first; i < first + n; i++)
    if (!s->filled[i] && s->carried[i] && !is_any_written(t))
      report_unfilled(t, i);
}

// One dense run of bytes inside the region: the questions (over, fetched,
// written, stored) look and return; a real access is checked, then noted.
static void touch_run(touch *t, const uint8_t *at, size_t bytes) {
  size_t g = t->shade->granule, first = (size_t)(at - t->region->base) / g;
  size_t n = (bytes + g - 1) / g;
  if (first >= t->shade->count) return;
  n = AT_MIN(n, t->shade->count - first);
  uint8_t *filled = t->shade->filled + first;
  if (t->over) {
    touch_cells(t, first, n);
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
  if (t->stored) {
    ask_stores(t, first, n);
    return;
  }
  if (t->shade->carried && !core_checks(t->c, AT_CHECK_UNINIT))
    no_carried(t, first, n);
  if ((!t->writes || t->adds) && t->must_be_filled &&
      core_checks(t->c, AT_CHECK_UNINIT)) {
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
  if (t->writes) t->shade->changed = true;
  if (t->writes && t->owner != t->c) t->shade->foreign = true;
  touch_filled(t, filled, n);
  note_strays(t, first, n);
  if (t->stores) note_stores(t, first, n);
  if (t->shade->cells && core_checks(t->c, AT_CHECK_RACES))
    touch_cells(t, first, n);
}

// Rows whose elements lie side by side go as one run.
static void touch_dims(touch *t, uint32_t d, const uint8_t *at) {
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
  return !t->writes && t->c->launch->rerun && is_any_written(t);
}

static bool is_empty(const area *a) {
  for (uint32_t d = 0; d < a->rank; d++)
    if (a->size[d] <= 0) return true;
  return false;
}

// The whole access, under the group's lock. Memory that no region holds, and
// empty boxes, are not looked at.
void touch_box(touch *t) {
  t->region = core_region_of(t->owner, t->box->base);
  if (!t->region || is_empty(t->box)) return;
  t->shade = core_shade_of(t->owner, t->region);
  if (!t->shade) return;
  core_state *c = t->c;
  t->strays &= core_checks(c, AT_CHECK_UNINIT) && is_input_block(c, t->region);
  if (t->strays && !t->shade->strays)
    t->shade->strays =
        core_shadow_take(c, t->shade->count, sizeof *t->shade->strays);
  core_lock(c);
  bool asks = t->stored || t->written || t->fetched;
  if (t->owner == c && t->shade->foreign && !asks &&
      core_checks(c, AT_CHECK_RACES))
    arrivals_access(c, t->box, t->loc);
  touch_dims(t, 0, t->box->base);
  forget_marks(t);
  core_unlock(c);
}

// Copy f has ended, as c waited for it: under the lock.
void core_shadow_over(core_state *c, const flight *f) {
  if (!c->shadow->sem_clock || !f->by->shadow) return;
  if (f->writes && f->id) {
    sent *x = &core_marks(c)->sent[f->id];
    x->actor = c->actor;
    x->time = c->shadow->now;
  }
  touch t = {.c = c,
             .owner = c,
             .region = core_region_of(c, f->box.base),
             .box = &f->box,
             .writes = f->writes,
             .over = f,
             .loc = f->loc};
  t.shade = t.region ? core_shade_of(c, t.region) : NULL;
  if (!t.shade || !t.shade->cells) return;
  touch_dims(&t, 0, f->box.base);
  forget_marks(&t);
}

area area_of_bytes(uint8_t *p, size_t bytes) {
  return (area){.base = p,
                .rank = 1,
                .elem_bytes = 1,
                .size = {(int64_t)bytes},
                .stride = {1}};
}

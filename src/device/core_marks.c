// Marks: who touched granules since all who knew of each other last did. A
// granule names the first of a list for its writers (several only if they add)
// and of one for its readers; granules that were touched alike share lists.
#include <stdlib.h>

#include "device/core_shadow.h"

// Cores of a group share one table, so that a mark can name any of them; a core
// alone has its own.
marks *core_marks(core_state *c) {
  return c->group ? &c->group->marks : &c->shadow->own_marks;
}

// m is empty afterwards and can be used again.
void marks_free(marks *m) {
  free(m->at);
  free(m->sent);
  *m = (marks){0};
}

// ---- Copies to other cores
// A number for a copy to another core, with one use: the copy's. Numbers of
// dropped copies are used again. Stops c without memory.
uint32_t sent_new(core_state *c) {
  marks *m = core_marks(c);
  uint32_t i = m->free_sent;
  if (i) {
    m->free_sent = m->sent[i].next_free;
  } else {
    m->num_sent = AT_MAX(m->num_sent, 1u);  // 0: none
    m->sent = core_shadow_grow(c, m->sent, m->num_sent, &m->cap_sent,
                               sizeof *m->sent);
    i = m->num_sent++;
  }
  m->sent[i] = (sent){.uses = 1};
  return i;
}

void sent_hold(marks *m, uint32_t i) {
  AT_ASSERT(i < AT_MAX(m->num_sent, 1u) && (!i || m->sent[i].uses));
  if (i) m->sent[i].uses++;
}

// The last use frees the number. 0 is no copy.
void sent_drop(marks *m, uint32_t i) {
  AT_ASSERT(i < AT_MAX(m->num_sent, 1u) && (!i || m->sent[i].uses));
  if (!i || --m->sent[i].uses) return;
  m->sent[i].next_free = m->free_sent;
  m->free_sent = i;
}

// Does c know that the copy has arrived? It does once it has heard of the actor
// and the time at which the arrival was noted.
bool sent_arrived(core_state *c, uint32_t i) {
  if (!i) return false;
  const sent *x = &core_marks(c)->sent[i];
  return x->time && (x->actor == c->actor ||
                     clock_of(&c->shadow->known, x->actor) >= x->time);
}

// ---- Lists
// Is it nobody's, or a mark that is held by at least so many?
static bool is_held(const marks *m, uint32_t i, uint32_t uses) {
  return !i || (i < m->num && m->at[i].uses >= uses);
}

// uses: how many cells, or other marks, will refer to the list.
void marks_hold(marks *m, uint32_t i, uint32_t uses) {
  AT_ASSERT(is_held(m, i, 1));
  if (i) m->at[i].uses += uses;
}

// The last use frees the mark and drops its use of the rest: a loop, as lists
// can be long.
void marks_drop(marks *m, uint32_t i, uint32_t uses) {
  AT_ASSERT(is_held(m, i, uses));
  while (i && (m->at[i].uses -= uses) == 0) {
    uint32_t next = m->at[i].next;
    sent_drop(m, m->at[i].sent);
    m->at[i].next = m->free;
    m->free = i;
    i = next;
    uses = 1;
    AT_ASSERT(is_held(m, i, uses));
  }
}

// Puts a mark before the list `rest`, whose use the caller hands over. Returns
// the new list with one use. The table may move, so no pointer into it survives
// a call.
uint32_t marks_put(core_state *c, mark new, uint32_t rest) {
  marks *m = core_marks(c);
  uint32_t i = m->free;
  if (i) {
    m->free = m->at[i].next;
    AT_ASSERT(i < m->num && !m->at[i].uses);
  } else {
    m->num = AT_MAX(m->num, 1u);  // 0: nobody
    m->at = core_shadow_grow(c, m->at, m->num, &m->cap, sizeof *m->at);
    i = m->num++;
  }
  AT_ASSERT(is_held(m, rest, 1));  // that use is the new mark's now
  new.uses = 1;
  new.next = rest;
  sent_hold(m, new.sent);
  m->at[i] = new;
  return i;
}

// Happens-before by vector clocks: c did it itself, or has heard of the actor
// as late as then. Of a copy under way only the start is dated: whoever hears
// of that does not know that the copy has ended.
bool mark_is_before(const core_state *c, const mark *k) {
  if (k->actor == c->actor) return true;
  return !k->underway && clock_of(&c->shadow->known, k->actor) >= k->time;
}

// Nobody has to know of k any more, since whoever knows of `now` knows of it. A
// copy that is on its way ends later, but one from the same place stands for
// it.
static bool is_covered(const core_state *c, const mark *now, const mark *k) {
  if (!k->underway) return mark_is_before(c, k);
  return now->underway && k->actor == now->actor && k->loc == now->loc &&
         k->sent == now->sent;
}

// The list without those that `now` covers. The tail behind the last covered
// mark is shared; what stays before it is copied.
static uint32_t uncovered(core_state *c, const mark *now, uint32_t list) {
  marks *m = core_marks(c);
  uint32_t kept = list;  // from here on all stay
  for (uint32_t i = list; i; i = m->at[i].next)
    if (is_covered(c, now, &m->at[i])) kept = m->at[i].next;
  uint32_t end = kept;
  marks_hold(m, kept, 1);
  for (uint32_t i = list; i != end; i = m->at[i].next)
    if (!is_covered(c, now, &m->at[i])) kept = marks_put(c, m->at[i], kept);
  return kept;
}

// Marks that a message would tell alike.
static bool is_like(const mark *a, const mark *b) {
  return a->actor == b->actor && a->time == b->time && a->by == b->by &&
         a->loc == b->loc && a->sent == b->sent && a->adds == b->adds &&
         a->underway == b->underway;
}

// Steps that are held apart never know of each other: one of the two, or both,
// tell of any third.
static bool is_enough(core_state *c, uint32_t list) {
  const marks *m = core_marks(c);
  for (uint32_t i = c->group ? 0 : list; i; i = m->at[i].next)
    if (m->at[i].actor != m->at[list].actor) return true;
  return false;
}

// The list after an access `own`: marks that it covers go, and it stands first.
// Shares `list` where that already says so. Returns with one use for the
// caller.
uint32_t marks_with(core_state *c, uint32_t own, uint32_t list) {
  marks *m = core_marks(c);
  mark now = m->at[own];  // the table may move
  uint32_t rest = 0;
  if (list && (is_like(&m->at[list], &now) || is_enough(c, list))) {
    marks_hold(m, list, 1);
    return list;
  }
  if (list) rest = uncovered(c, &now, list);
  if (rest) return marks_put(c, now, rest);
  marks_hold(m, own, 1);
  return own;
}

// Was it left by this copy? Those to other cores have numbers.
static bool is_of(const mark *k, const flight *f) {
  return k->by == f->by->actor && k->loc == f->loc && k->sent == f->id;
}

// Copy f has ended, as c now knows: its marks get the time and the actor of
// whoever waited for it. The list up to the last of them is copied, the tail
// shared. Returns with one use.
uint32_t marks_dated(core_state *c, const flight *f, uint32_t list) {
  marks *m = core_marks(c);
  uint32_t end = list, dated = 0;  // from `end` on none is of this copy
  for (uint32_t i = list; i; i = m->at[i].next)
    if (is_of(&m->at[i], f)) end = m->at[i].next;
  marks_hold(m, end, 1);
  dated = end;
  for (uint32_t i = list; i != end; i = m->at[i].next) {
    mark k = m->at[i];
    if (is_of(&k, f)) {
      k.actor = c->actor;
      k.time = c->shadow->now;
      k.underway = false;
    }
    dated = marks_put(c, k, dated);
  }
  return dated;
}

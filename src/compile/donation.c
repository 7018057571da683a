// Donated arguments. JAX says for each donated argument which result should
// take its memory, or only that it may be taken (a donor). Here every donor
// gets at most one result and every result at most one donor, in three passes
// from the most to the least certain: what was asked for and fits (keep_asked),
// donors that are results themselves (keep_what_passes), and the rest by type,
// then by size.
//
// Kinds of results, of one type and layout, are chained in order of their
// number, so that finding a free one takes constant time in programs with
// thousands of arguments.
#include "compile/donation.h"

#include <string.h>

#include "base/map.h"
#include "compile/layouts.h"

// Results of one type and layout, in order.
typedef struct kind {
  int32_t first, last;
  int32_t free;       // no result before it can be taken; -1: none can
  struct kind *next;  // of another type or layout, with as many bytes
} kind;

// Arrays are by result, or by argument where the name says param.
typedef struct donation {
  at_module *m;
  int32_t *taker;   // of each result: the parameter whose alias it is, or -1
  int32_t *passes;  // of each result: the parameter that it is, or -1
  int32_t *next;    // of each result: the next one of its kind, or -1
  at_map sizes;     // from bytes to the kinds
  at_arena *arena;
} donation;

static const at_type *param_type(const at_module *m, uint32_t p) {
  return &m->entry->params[p]->types[0];
}

static const at_type *result_type(const at_module *m, uint32_t r) {
  return at_value_type(m->entry->results[r]);
}

// The inverse of at_io_info.alias; negative or out of range: not taken.
at_status at_donation_takers(const at_module *m, at_arena *a, int32_t **out) {
  const at_comp *c = m->entry;
  AT_TRY_ALLOC(*out, at_new(a, int32_t, c->num_results + 1));
  memset(*out, -1, (c->num_results + 1) * sizeof **out);
  for (uint32_t p = 0; m->params && p < c->num_params; p++) {
    int32_t r = m->params[p].alias;
    if (r >= 0 && (uint32_t)r < c->num_results) (*out)[r] = (int32_t)p;
  }
  return AT_OK;
}

// Under it the kinds of results that have as many bytes.
static const void *size_key(const at_type *t) {
  return (const void *)(uintptr_t)at_type_bytes(t);
}

static bool same_text(const char *a, const char *b) {
  return a == b || (a && b && !strcmp(a, b));
}

static bool same_kind(const at_module *m, uint32_t r, uint32_t other) {
  return at_type_eq(result_type(m, r), result_type(m, other)) &&
         (!m->results ||
          same_text(m->results[r].layout, m->results[other].layout));
}

// Appends result r to those of its kind.
static at_status add_result(donation *d, uint32_t r) {
  kind **at;
  d->next[r] = -1;
  AT_TRY_ALLOC(
      at, (kind **)at_map_put_ptr(&d->sizes, size_key(result_type(d->m, r))));
  while (*at && !same_kind(d->m, r, (uint32_t)(*at)->first)) at = &(*at)->next;
  if (*at) {
    d->next[(*at)->last] = (int32_t)r;
  } else {
    AT_TRY_ALLOC(*at, at_new(d->arena, kind, 1));
    (*at)->first = (*at)->free = (int32_t)r;
  }
  AT_ASSERT((*at)->last < (int32_t)r || (*at)->first == (int32_t)r);
  (*at)->last = (int32_t)r;
  return AT_OK;
}

// Chains results by kind and notes which of them are arguments.
static at_status list_results(donation *d) {
  const at_comp *c = d->m->entry;
  AT_TRY_ALLOC(d->passes, at_new(d->arena, int32_t, c->num_results + 1));
  AT_TRY_ALLOC(d->next, at_new(d->arena, int32_t, c->num_results + 1));
  for (uint32_t p = 0; p < c->num_params; p++) c->params[p]->mark = p;
  for (uint32_t r = 0; r < c->num_results; r++) {
    const at_node *n = c->results[r].node;
    d->passes[r] = n->op == AT_OP_PARAMETER ? (int32_t)n->mark : -1;
    AT_TRY(add_result(d, r));
  }
  return AT_OK;
}

// Is result r an argument that the caller keeps?
static bool is_kept(const donation *d, int32_t r) {
  return d->passes[r] >= 0 && !d->m->params[d->passes[r]].donor;
}

// Both views of the fact change together. r -1: p takes none.
static void take(donation *d, uint32_t p, int32_t r) {
  d->m->params[p].alias = r;
  if (r >= 0) d->taker[r] = (int32_t)p;
}

// The first result of parameter p's type (`exact`), or of as many bytes, that
// no parameter takes yet; -1: none. `kept`: also a result that aliases an
// argument the caller keeps, which would need no memory otherwise.
static int32_t free_result(donation *d, uint32_t p, bool exact, bool kept) {
  const at_type *t = param_type(d->m, p);
  void **at = at_map_find_ptr(&d->sizes, size_key(t));
  int32_t best = -1;
  for (kind *k = at ? *at : NULL; k; k = k->next) {
    if (exact && !at_type_eq(t, result_type(d->m, (uint32_t)k->first)))
      continue;
    if (!at_layouts_agree(d->m, p, (uint32_t)k->first)) continue;
    while (k->free >= 0 &&
           (d->taker[k->free] >= 0 || (!kept && is_kept(d, k->free))))
      k->free = d->next[k->free];
    if (k->free >= 0 && (best < 0 || k->free < best)) best = k->free;
  }
  return best;
}

// Keeps the aliases that were asked for where sizes and layouts agree.
static void keep_asked(donation *d) {
  at_module *m = d->m;
  const at_comp *c = m->entry;
  for (uint32_t p = 0; p < c->num_params; p++) {
    int32_t r = m->params[p].alias;
    if (r < 0) continue;
    m->params[p].donor = true;
    bool fits = (uint32_t)r < c->num_results && d->taker[r] < 0 &&
                at_type_bytes(param_type(m, p)) ==
                    at_type_bytes(result_type(m, (uint32_t)r)) &&
                at_layouts_agree(m, p, (uint32_t)r);
    take(d, p, fits ? r : -1);
  }
}

// A donor that is a result itself takes that result, so that nothing is copied;
// who had it takes the one that the donor had, of the same type. Nobody takes a
// result that is a kept argument.
static void keep_what_passes(donation *d) {
  at_module *m = d->m;
  const at_comp *c = m->entry;
  for (uint32_t r = 0; r < c->num_results; r++)
    if (d->taker[r] >= 0 && is_kept(d, (int32_t)r)) {
      m->params[d->taker[r]].alias = -1;
      d->taker[r] = -1;
    }
  for (uint32_t r = 0; r < c->num_results; r++) {
    if (d->passes[r] < 0) continue;
    uint32_t p = (uint32_t)d->passes[r];
    int32_t had = m->params[p].alias, q = d->taker[r];
    if (!m->params[p].donor || !at_layouts_agree(m, p, r) ||
        (had >= 0 && d->passes[had] == d->passes[r]))
      continue;
    if (had >= 0) d->taker[had] = -1;
    if (q >= 0) {
      bool fits = had >= 0 && at_layouts_agree(m, (uint32_t)q, (uint32_t)had) &&
                  at_type_bytes(param_type(m, (uint32_t)q)) ==
                      at_type_bytes(result_type(m, (uint32_t)had));
      take(d, (uint32_t)q, fits ? had : -1);
    }
    take(d, p, (int32_t)r);
  }
}

// Two views of the same fact agree: who takes a result, and which result an
// argument becomes. What becomes one has its size and layout.
static bool views_agree(const donation *d) {
  const at_comp *c = d->m->entry;
  uint32_t given = 0, taken = 0;
  for (uint32_t p = 0; p < c->num_params; p++) {
    int32_t r = d->m->params[p].alias;
    if (r < 0) continue;
    given++;
    if ((uint32_t)r >= c->num_results || d->taker[r] != (int32_t)p ||
        at_type_bytes(param_type(d->m, p)) !=
            at_type_bytes(result_type(d->m, (uint32_t)r)) ||
        !at_layouts_agree(d->m, p, (uint32_t)r))
      return false;
  }
  for (uint32_t r = 0; r < c->num_results; r++) taken += d->taker[r] >= 0;
  return given == taken;
}

// Rounds: same type, then same bytes, then also results that are kept
// arguments.
at_status at_donation_settle(at_module *m, at_arena *a) {
  const at_comp *c = m->entry;
  donation d = {.m = m, .sizes = at_map_in(a), .arena = a};
  if (!m->params) return AT_OK;
  AT_TRY_ALLOC(d.taker, at_new(a, int32_t, c->num_results + 1));
  memset(d.taker, -1, (c->num_results + 1) * sizeof *d.taker);
  AT_TRY(list_results(&d));
  keep_asked(&d);
  keep_what_passes(&d);
  for (int round = 0; round < 3; round++) {
    for (size_t i = 0; round == 2 && i < d.sizes.len; i++)  // kept ones, too
      for (kind *k = d.sizes.entries[i].value; k; k = k->next)
        k->free = k->first;
    for (uint32_t p = 0; p < c->num_params; p++)
      if (m->params[p].donor && m->params[p].alias < 0)
        take(&d, p, free_result(&d, p, round == 0, round == 2));
  }
  AT_ASSERT(views_agree(&d));
  // Donated arguments that no result reuses stay with the caller.
  for (uint32_t p = 0; p < c->num_params; p++)
    m->params[p].donor = m->params[p].alias >= 0;
  return AT_OK;
}

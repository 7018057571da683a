// Vector clocks: what each core knows of the times of the others. A clock has
// pages for those actors that it knows of, since cores that never hear of each
// other are most of a pod's.
#include <stdlib.h>

#include "device/core_shadow.h"

uint64_t clock_of(const actor_clock *k, uint32_t actor) {
  uint32_t page = actor / kActorsOfPage;
  if (page >= k->num_pages || !k->pages[page]) return 0;
  return k->pages[page]->time[actor % kActorsOfPage];
}

// Room for so many pages.
static void widen(core_state *c, actor_clock *k, uint32_t pages) {
  if (pages <= k->num_pages) return;
  clock_page **grown = realloc(k->pages, pages * sizeof *grown);
  if (!grown)
    core_stop(c, AT_RESOURCE_EXHAUSTED, -1, "no memory for the checks");
  memset(grown + k->num_pages, 0, (pages - k->num_pages) * sizeof *grown);
  k->pages = grown;
  k->num_pages = pages;
}

// Made when it is first needed.
static clock_page *page_of(core_state *c, actor_clock *k, uint32_t page) {
  widen(c, k, page + 1);
  if (!k->pages[page])
    k->pages[page] = core_shadow_take(c, 1, sizeof *k->pages[page]);
  return k->pages[page];
}

void clock_raise(core_state *c, actor_clock *k, uint32_t actor, uint64_t time) {
  clock_page *p = page_of(c, k, actor / kActorsOfPage);
  uint64_t *at = &p->time[actor % kActorsOfPage];
  *at = AT_MAX(*at, time);
}

// The later time of both, per actor.
void clock_join(core_state *c, actor_clock *into, const actor_clock *from) {
  for (uint32_t i = 0; i < from->num_pages; i++) {
    const clock_page *theirs = from->pages[i];
    if (!theirs) continue;
    clock_page *mine = page_of(c, into, i);
    for (int k = 0; k < kActorsOfPage; k++)
      mine->time[k] = AT_MAX(mine->time[k], theirs->time[k]);
  }
}

void clock_free(actor_clock *k) {
  for (uint32_t i = 0; i < k->num_pages; i++) free(k->pages[i]);
  free(k->pages);
  *k = (actor_clock){0};
}

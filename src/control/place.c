#include "control/place.h"

#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"

// The best place so far, and how full it makes its chips.
typedef struct found {
  bool any;
  double most, sum;
  uint32_t *chips;
} found;

typedef struct placing {
  const at_place_chip *chips;
  uint32_t num_chips;
  const at_msg_slice *wish;
  const at_hw *hw;  // NULL: any
  double weight;
  uint32_t *island, num_island;  // chips of one island that may be taken
  uint32_t *tried;
  double *load;      // by chip of the island, while several share one
  uint64_t *taken;   // bytes, likewise
  found here, best;  // on the island, and on all
} placing;

// Has the chip what the slice wants, its load aside?
static bool is_such(const placing *p, const at_place_chip *c) {
  return (!p->hw || c->hw == p->hw) &&
         (p->wish->island < 0 || c->island == (uint32_t)p->wish->island) &&
         (p->wish->host < 0 || c->host == (uint32_t)p->wish->host);
}

// Keeps the place if it is better than the one so far: a lower load of its
// fullest chip, then a lower sum. Of equal ones the first stays.
static void offer(const placing *p, found *f, const uint32_t *chips,
                  double most, double sum) {
  if (f->any && (most > f->most || (most == f->most && sum >= f->sum))) return;
  f->any = true;
  f->most = most;
  f->sum = sum;
  memcpy(f->chips, chips, p->wish->count * sizeof *chips);
}

// p->tried, each chip once.
static void offer_apart(placing *p) {
  double most = 0, sum = 0;
  for (uint32_t i = 0; i < p->wish->count; i++) {
    const at_place_chip *c = &p->chips[p->tried[i]];
    if (c->free < p->wish->memory) return;
    double load = c->load + p->weight;
    most = AT_MAX(most, load);
    sum += load;
  }
  offer(p, &p->here, p->tried, most, sum);
}

// Chips are numbered x fastest, cores of a chip behind each other.
static bool is_before(const at_place_chip *c, const int64_t *coords) {
  for (int d = 2; d >= 0; d--)
    if (c->coords[d] != coords[d]) return c->coords[d] < coords[d];
  return false;
}

// The first core of the chip at these coordinates, by binary search in the
// island; UINT32_MAX: none that may be taken.
static uint32_t chip_at(const placing *p, const int64_t *coords) {
  uint32_t low = 0, high = p->num_island;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (is_before(&p->chips[p->island[middle]], coords))
      low = middle + 1;
    else
      high = middle;
  }
  if (low == p->num_island) return UINT32_MAX;
  const at_place_chip *c = &p->chips[p->island[low]];
  bool is_it = !c->core && !memcmp(c->coords, coords, sizeof c->coords);
  return is_it ? p->island[low] : UINT32_MAX;
}

// The box whose lowest corner is that chip, if all of it is there.
static bool take_box(placing *p, uint32_t corner) {
  const uint32_t *shape = p->wish->shape;
  const int64_t *low = p->chips[corner].coords;
  uint32_t n = 0;
  for (uint32_t z = 0; z < shape[2]; z++)
    for (uint32_t y = 0; y < shape[1]; y++)
      for (uint32_t x = 0; x < shape[0]; x++) {
        const int64_t at[3] = {low[0] + x, low[1] + y, low[2] + z};
        uint32_t chip = chip_at(p, at);
        if (chip == UINT32_MAX) return false;
        p->tried[n++] = chip;
      }
  AT_ASSERT(n == p->wish->count);
  return true;
}

// Neighbours, one device on each.
static void try_apart(placing *p) {
  uint32_t n = p->wish->count;
  for (uint32_t i = 0; i < p->num_island; i++) {
    if (p->wish->shape[0]) {
      if (!p->chips[p->island[i]].core && take_box(p, p->island[i]))
        offer_apart(p);
    } else if (i + n <= p->num_island) {
      memcpy(p->tried, p->island + i, n * sizeof *p->tried);
      offer_apart(p);
    }
  }
}

// Each device on the chip that is least loaded then.
static void try_shared(placing *p) {
  double most = 0, sum = 0;
  for (uint32_t i = 0; i < p->num_island; i++) {
    p->load[i] = p->chips[p->island[i]].load;
    p->taken[i] = 0;
  }
  for (uint32_t d = 0; d < p->wish->count; d++) {
    uint32_t to = UINT32_MAX;
    for (uint32_t i = 0; i < p->num_island; i++)
      if (p->chips[p->island[i]].free - p->taken[i] >= p->wish->memory &&
          (to == UINT32_MAX || p->load[i] < p->load[to]))
        to = i;
    if (to == UINT32_MAX) return;
    p->load[to] += p->weight;
    p->taken[to] += p->wish->memory;
    p->tried[d] = p->island[to];
    most = AT_MAX(most, p->load[to]);
    sum += p->load[to];
  }
  offer(p, &p->here, p->tried, most, sum);
}

// The best place on one island is offered to all.
static void try_island(placing *p, uint32_t island) {
  p->num_island = 0;
  for (uint32_t i = 0; i < p->num_chips; i++)
    if (p->chips[i].live && p->chips[i].island == island &&
        is_such(p, &p->chips[i]))
      p->island[p->num_island++] = i;
  if (!p->num_island) return;
  p->here.any = false;
  try_apart(p);
  if (!p->here.any) try_shared(p);
  if (p->here.any) offer(p, &p->best, p->here.chips, p->here.most, p->here.sum);
}

// Are all chips that were chosen such as were wished for, of one island?
static bool is_placed(const placing *p) {
  for (uint32_t i = 0; i < p->wish->count; i++) {
    const at_place_chip *c = &p->chips[p->best.chips[i]];
    if (p->best.chips[i] >= p->num_chips || !c->live || !is_such(p, c) ||
        c->free < p->wish->memory ||
        c->island != p->chips[p->best.chips[0]].island)
      return false;
  }
  return true;
}

// ---- What there is
// Each kind once; quadratic, but only an error comes here.
static void print_kinds(const placing *p, at_strbuf *b) {
  for (uint32_t i = 0, n = 0; i < p->num_chips; i++) {
    bool seen = false;
    for (uint32_t k = 0; k < i && !seen; k++)
      seen = p->chips[k].hw == p->chips[i].hw;
    if (seen) continue;
    at_strbuf_addf(b, "%s%s (%s)", n++ ? ", " : "", p->chips[i].hw->name,
                   p->chips[i].hw->kind);
  }
}

// Says which kinds there are.
static at_status no_kind(const placing *p) {
  at_strbuf b = {0};
  print_kinds(p, &b);
  at_status st = AT_FAIL(AT_INVALID_ARGUMENT,
                         "no chip of the pod is of kind %s; it has %s",
                         p->wish->kind, b.ptr ? b.ptr : "others");
  at_strbuf_free(&b);
  return st;
}

// Why there is no place: no such chip, none live, or no memory; says how much
// there is.
static at_status nowhere(const placing *p) {
  uint32_t such = 0, live = 0, islands = 0, hosts = 0;
  uint64_t most = 0, all = 0;
  for (uint32_t i = 0; i < p->num_chips; i++) {
    const at_place_chip *c = &p->chips[i];
    islands = AT_MAX(islands, c->island + 1);
    hosts = AT_MAX(hosts, c->host + 1);
    if (!is_such(p, c)) continue;
    such++;
    live += c->live;
    if (!c->live) continue;
    most = AT_MAX(most, c->free);
    all += c->free;
  }
  if (!such && p->wish->host >= 0)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "host %d has no such chip; the pod has hosts 0 to %u",
                   p->wish->host, hosts - 1);
  if (!such)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "slice %d has no such chip; the pod has slices 0 to %u",
                   p->wish->island, islands - 1);
  if (!live)
    return AT_FAIL(AT_UNAVAILABLE,
                   "the hosts of all %u such chips are lost, or have not come",
                   such);
  return AT_FAIL(
      AT_RESOURCE_EXHAUSTED,
      "%u devices of %llu bytes each have no room on one slice of the pod: a "
      "chip has at most %llu bytes of HBM that no slice keeps for itself, the "
      "%u such chips together %llu",
      p->wish->count, (unsigned long long)p->wish->memory,
      (unsigned long long)most, live, (unsigned long long)all);
}

// By its short name, an accelerator type's or the one that JAX reports.
static at_status find_kind(placing *p) {
  const char *kind = p->wish->kind;
  if (!*kind) return AT_OK;
  for (uint32_t i = 0; i < p->num_chips; i++)
    if (!strcmp(p->chips[i].hw->kind, kind)) p->hw = p->chips[i].hw;
  if (!p->hw) at_status_free(at_hw_find(at_str_of(kind), &p->hw));
  for (uint32_t i = 0; p->hw && i < p->num_chips; i++)
    if (p->chips[i].hw == p->hw) return AT_OK;
  return no_kind(p);
}

// One block of scratch, largest elements first, so that all are aligned.
at_status at_place_slice(const at_place_chip *chips, uint32_t num_chips,
                         const at_msg_slice *wish, double weight,
                         uint32_t *out) {
  placing p = {.chips = chips,
               .num_chips = num_chips,
               .wish = wish,
               .weight = weight,
               .best = {.chips = out}};
  AT_TRY(find_kind(&p));
  size_t each = sizeof *p.load + sizeof *p.taken + sizeof *p.island;
  uint8_t *room =
      malloc(num_chips * each + 2 * wish->count * sizeof *p.tried + 1);
  if (!room) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a slice");
  p.load = (double *)(void *)room;
  p.taken = (uint64_t *)(p.load + num_chips);
  p.tried = (uint32_t *)(p.taken + num_chips);
  p.here.chips = p.tried + wish->count;
  p.island = p.here.chips + wish->count;
  // Islands are tried one by one: a slice does not span two.
  uint32_t islands = 0;
  for (uint32_t i = 0; i < num_chips; i++)
    islands = AT_MAX(islands, chips[i].island + 1);
  for (uint32_t i = 0; i < islands; i++) try_island(&p, i);
  AT_ASSERT(!p.best.any || is_placed(&p));
  at_status st = p.best.any ? AT_OK : nowhere(&p);
  free(room);
  return st;
}

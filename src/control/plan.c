#include "control/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "base/strbuf.h"
#include "base/verify.h"
#include "control/client_internal.h"

// A message whose names are still to be filled in.
struct at_plan {
  size_t bytes;
  _Alignas(8) uint8_t body[];
};

static at_status no_memory(void) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory to plan a resharding");
}

// Old shards of the same place are one, with several to choose from.
typedef struct planner {
  const _Atomic uint32_t *host_of;
  const at_shards *from, *to;
  uint32_t *next;   // by old shard: another one of its place; UINT32_MAX: none
  uint32_t *first;  // places: their first shards
  uint32_t *last;   // and their last
  uint32_t num_places;
  at_table seen;  // 1 + box, by what it brings to which host
  at_strbuf boxes;
  uint32_t num_boxes;
} planner;

// Bytes of the coordinates of one shard.
static size_t row(const at_shards *s) { return s->dims.rank * sizeof *s->at; }
// Where shard i begins.
static const int64_t *place(const at_shards *s, uint32_t i) {
  return s->at + (size_t)i * s->dims.rank;
}

// Groups old shards that begin at the same place: copies of each other. By
// hash; a collision makes two places of one, which costs nothing but a choice.
// False: no memory.
static bool find_places(planner *p) {
  at_table known = {0};
  bool good = true;
  for (uint32_t i = 0; good && i < p->from->count; i++) {
    uint64_t key = at_hash(AT_HASH_SEED, place(p->from, i), row(p->from)) | 1;
    uintptr_t at = (uintptr_t)at_table_find(&known, key);
    p->next[i] = UINT32_MAX;
    if (at && !memcmp(place(p->from, p->first[at - 1]), place(p->from, i),
                      row(p->from))) {
      p->next[p->last[at - 1]] = i;
      p->last[at - 1] = i;
      continue;
    }
    p->first[p->num_places] = p->last[p->num_places] = i;
    p->num_places++;
    if (!at) good = at_table_put(&known, key, (void *)(uintptr_t)p->num_places);
  }
  at_table_free(&known);
  return good;
}

// The shard of a place that is nearest to a chip. Of others' hosts all chips of
// a host choose the same, so that it comes once.
static uint32_t nearest(const planner *p, uint32_t first, uint32_t chip) {
  uint32_t here = UINT32_MAX, count = 0, host = p->host_of[chip];
  for (uint32_t i = first; i != UINT32_MAX; i = p->next[i]) {
    if (p->from->chips[i] == chip) return i;
    if (here == UINT32_MAX && p->host_of[p->from->chips[i]] == host) here = i;
    count++;
  }
  if (here != UINT32_MAX) return here;
  AT_ASSERT(count);
  uint32_t skip = host % count, i = first;
  while (skip--) i = p->next[i];
  return i;
}

// Appends one box. Boxes that bring the same bytes to the same host refer to
// the first of them, which alone travels. places: [3 * rank]. False: no memory.
static bool add_box(planner *p, uint32_t from, uint32_t to,
                    const int64_t *places) {
  AT_ASSERT(from < p->from->count && to < p->to->count);
  uint32_t rank = p->to->dims.rank, b = p->num_boxes++;
  uint32_t host = p->host_of[p->to->chips[to]];
  const uint64_t ends[] = {from, host};
  at_msg_box box = {from, to, b, 0};
  size_t each = sizeof box + 3 * row(p->to);
  // The key: which shard, to which host, from where in it, and how large.
  uint64_t key = at_hash(AT_HASH_SEED, ends, sizeof ends);
  key = at_hash(key, places, row(p->to));
  key = at_hash(key, places + 2 * (size_t)rank, row(p->to)) | 1;
  uintptr_t known = (uintptr_t)at_table_find(&p->seen, key);
  if (known) {
    const at_msg_box *as = (const void *)(p->boxes.ptr + (known - 1) * each);
    const int64_t *its = (const void *)(as + 1);
    if (as->from == from && p->host_of[p->to->chips[as->to]] == host &&
        !memcmp(its, places, row(p->to)) &&
        !memcmp(its + 2 * (size_t)rank, places + 2 * (size_t)rank, row(p->to)))
      box.like = (uint32_t)known - 1;
  } else if (!at_table_put(&p->seen, key, (void *)((uintptr_t)b + 1))) {
    return false;
  }
  at_strbuf_add(&p->boxes, (at_str){(const char *)&box, sizeof box});
  at_strbuf_add(&p->boxes, (at_str){(const char *)places, 3 * row(p->to)});
  return true;
}

// What an old and a new shard have in common, as its place in either and its
// size. False: nothing.
static bool meet(const planner *p, uint32_t from, uint32_t to, int64_t *out) {
  uint32_t rank = p->to->dims.rank;
  // Dimension by dimension: the later begin and the earlier end.
  const int64_t *a = place(p->from, from), *b = place(p->to, to);
  for (uint32_t k = 0; k < rank; k++) {
    int64_t begin = AT_MAX(a[k], b[k]);
    int64_t end =
        AT_MIN(a[k] + p->from->dims.ptr[k], b[k] + p->to->dims.ptr[k]);
    if (end <= begin) return false;
    out[k] = begin - a[k];
    out[rank + k] = begin - b[k];
    out[2 * (size_t)rank + k] = end - begin;
  }
  return true;
}

// Elements of a box; 1 for a scalar.
static int64_t volume(const int64_t *dims, uint32_t rank) {
  int64_t n = 1;
  for (uint32_t k = 0; k < rank; k++) n *= dims[k];
  return n;
}

// Every new shard is made of boxes of old ones; their volumes must add up to
// its own. Quadratic in shards, but stops as soon as one is covered.
static at_status find_boxes(planner *p) {
  uint32_t rank = p->to->dims.rank;
  int64_t x[3 * AT_MESSAGE_RANK];
  for (uint32_t j = 0; j < p->to->count; j++) {
    int64_t left = volume(p->to->dims.ptr, rank);
    for (uint32_t k = 0; k < p->num_places && left > 0; k++) {
      if (!meet(p, p->first[k], j, x)) continue;
      left -= volume(x + 2 * (size_t)rank, rank);
      if (!add_box(p, nearest(p, p->first[k], p->to->chips[j]), j, x))
        return no_memory();
    }
    if (left)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "shard %u of a resharding is not covered by others", j);
  }
  return at_strbuf_status(&p->boxes);
}

// Copies and moves on.
static void add(uint8_t **at, const void *data, size_t bytes) {
  if (bytes) memcpy(*at, data, bytes);
  *at += bytes;
}

// Have two boxes of one new shard an element of it in common? x, y: [3 * rank].
static bool overlap(const int64_t *x, const int64_t *y, uint32_t rank) {
  for (uint32_t k = rank; k < 2 * rank; k++)
    if (x[k] >= y[k] + y[rank + k] || y[k] >= x[k] + x[rank + k]) return false;
  return true;
}

// Is every element of every new shard written exactly once? Boxes come in the
// order of new shards, do not overlap, and their volumes add up.
static bool is_whole(const at_msg_reshard *m) {
  at_resharding r = at_message_resharding(m);
  const int64_t each = volume(r.to_dims.ptr, m->rank);
  uint32_t i = 0;
  for (uint32_t j = 0; each && j < m->num_to; j++) {
    int64_t sum = 0;
    for (const uint32_t first = i; i < m->num_boxes; i++) {
      const at_msg_box *b = at_message_box(m, &r, i);
      const int64_t *x = (const void *)(b + 1);
      if (b->to != j) break;
      sum += volume(x + 2 * (size_t)m->rank, m->rank);
      for (uint32_t k = first; k < i; k++)
        if (overlap(x, (const void *)(at_message_box(m, &r, k) + 1), m->rank))
          return false;
    }
    if (sum != each) return false;
  }
  return i == m->num_boxes;
}

// The body of a RESHARD with names of 1, checked as the hosts will check it.
static at_status write_plan(const planner *p, at_dtype t, at_memory_kind k,
                            at_plan **out) {
  uint32_t rank = p->to->dims.rank;
  size_t chips = at_message_chips_bytes(p->to->count);
  size_t bytes = sizeof(at_msg_reshard) +
                 p->from->count * sizeof(at_msg_shard) + 2 * row(p->to) +
                 chips + p->boxes.len;
  at_plan *plan = calloc(1, sizeof *plan + bytes);
  if (!plan) return no_memory();
  const at_msg_reshard m = {.array = 1,
                            .num_from = p->from->count,
                            .num_to = p->to->count,
                            .num_boxes = p->num_boxes,
                            .rank = rank,
                            .dtype = (uint16_t)t,
                            .kind = (uint16_t)k};
  uint8_t *at = plan->body;
  plan->bytes = bytes;
  add(&at, &m, sizeof m);
  for (uint32_t i = 0; i < m.num_from; i++)
    add(&at, &(at_msg_shard){1, i, p->from->chips[i]}, sizeof(at_msg_shard));
  add(&at, p->from->dims.ptr, row(p->from));
  add(&at, p->to->dims.ptr, row(p->to));
  memcpy(at, p->to->chips, m.num_to * sizeof *p->to->chips);
  at += chips;
  add(&at, p->boxes.ptr, p->boxes.len);
  AT_ASSERT(at == plan->body + bytes);
  at_status st =
      at_message_check(AT_MSG_RESHARD, (at_bytes){plan->body, bytes});
  if (st.err) {
    free(plan);
    return st;
  }
  AT_VERIFY(is_whole((const void *)plan->body));
  *out = plan;
  return AT_OK;
}

// One block for the three lists by old shard.
at_status at_plan_make(const _Atomic uint32_t *host_of, const at_shards *from,
                       const at_shards *to, at_dtype t, at_memory_kind k,
                       at_plan **out) {
  if (from->dims.rank != to->dims.rank || to->dims.rank > AT_MESSAGE_RANK ||
      !from->count || !to->count)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "a resharding from %u shards of rank %u to %u of rank %u",
                   from->count, from->dims.rank, to->count, to->dims.rank);
  planner p = {.host_of = host_of, .from = from, .to = to};
  p.next = malloc(3 * (size_t)from->count * sizeof *p.next);
  at_status st = p.next ? AT_OK : no_memory();
  if (!st.err) {
    p.first = p.next + from->count;
    p.last = p.first + from->count;
    st = find_places(&p) ? find_boxes(&p) : no_memory();
  }
  if (!st.err) st = write_plan(&p, t, k, out);
  free(p.next);
  at_table_free(&p.seen);
  at_strbuf_free(&p.boxes);
  return st;
}

const at_msg_reshard *at_plan_message(const at_plan *p) {
  return (const void *)p->body;
}

void at_plan_free(at_plan *p) { free(p); }

// Boxes whose `like` is another one do not travel.
uint64_t at_plan_wire_bytes(const at_plan *p, const _Atomic uint32_t *host_of) {
  const at_msg_reshard *m = (const void *)p->body;
  at_resharding r = at_message_resharding(m);
  uint64_t sum = 0;
  for (uint32_t i = 0; i < m->num_boxes; i++) {
    const at_msg_box *b = at_message_box(m, &r, i);
    const int64_t *x = (const void *)(b + 1);
    AT_ASSERT(b->like <= i);
    if (b->like == i &&
        host_of[r.from[b->from].chip] != host_of[r.chips[b->to]])
      sum += (uint64_t)volume(x + 2 * (size_t)m->rank, m->rank) *
             at_dtype_bytes((at_dtype)m->dtype);
  }
  return sum;
}

// Many-to-many where two boxes in a row make one shard: boxes are in the order
// of new shards.
const char *at_plan_name(const at_msg_reshard *m) {
  at_resharding r = at_message_resharding(m);
  bool whole = at_dims_eq(r.from_dims, r.to_dims);
  bool once = m->num_from == m->num_to && m->num_boxes == m->num_to;
  for (uint32_t i = 0; i < m->num_boxes; i++) {
    const at_msg_box *b = at_message_box(m, &r, i);
    if (i && b->to == at_message_box(m, &r, i - 1)->to) return "many-to-many";
    once &= b->from == i && b->to == i;
  }
  return whole && once ? "one-to-one" : "one-to-many";
}

// Head and names are new, the rest of the body is sent out of the plan.
at_status at_client_reshard(at_client *c, const at_plan *p,
                            const at_proxy_shard *from, uint64_t name) {
  const at_msg_reshard *plan = (const void *)p->body;
  at_msg_reshard m = *plan;
  m.array = name;
  size_t head = sizeof m + m.num_from * sizeof(at_msg_shard);
  const at_bytes parts[] = {
      {(const uint8_t *)&m, sizeof m},
      {(const uint8_t *)from, m.num_from * sizeof(at_msg_shard)},
      {p->body + head, p->bytes - head}};
  return at_client_say_step(c, AT_MSG_RESHARD, parts, 3);
}

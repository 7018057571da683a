// Everything is walked through twice, the first time to count, and in an order
// that is the same on all hosts: groups by their first member's number, values,
// givers, takers. So the pieces of a message are in the same order at both
// ends.
#include "exec/far_plan.h"

#include <stdlib.h>

enum { OUT, IN, WAYS };

typedef struct planner {
  const at_coll *k;
  const at_far *f;
  uint32_t me;
  bool fills;  // the second time
  at_far_plan *plan;
  uint64_t room;
  uint32_t acts[AT_FAR_PHASES], parts, lands, most_parts;
  // Pieces by [round][way][host]: how many, and where the next one goes.
  uint32_t *counts, *next;
  // Of the group in hand.
  uint32_t begin, size, num_hosts;
  uint32_t *hosts, *leads;  // in the order of their first members; by rank
  bool *cuts;          // does member i, by number, begin a block of one host?
  at_far_spot *spots;  // by member, by number: of the block that begins there
} planner;

static uint32_t member(const planner *p, uint32_t rank) {
  return p->k->members[p->begin + rank];
}
static uint32_t host_of(const planner *p, uint32_t rank) {
  return p->f->host_of[member(p, rank)];
}
// The member that is i-th by number.
static uint32_t sorted(const planner *p, uint32_t i) {
  return p->k->order[p->begin + i];
}
static const at_x_exchange *value(const planner *p, uint32_t v) {
  return &p->k->values[v];
}

// ---- What a plan is made of
static at_far_spot operand(uint32_t device, uint32_t v, uint64_t offset) {
  return (at_far_spot){AT_FAR_OPERAND, device, v, offset};
}
static at_far_spot result(uint32_t device, uint32_t v, uint64_t offset) {
  return (at_far_spot){AT_FAR_RESULT, device, v, offset};
}
// Room of the run, at 64 bytes.
static at_far_spot take_room(planner *p, uint64_t bytes) {
  at_far_spot s = {.where = AT_FAR_ROOM, .offset = p->room};
  p->room = at_add(p->room, at_align_up(bytes, 64));
  return s;
}

// For a piece that comes from a host in the first round, to be read only: the
// message itself, where it has no other. Known the second time.
static at_far_spot take_landing(planner *p, uint32_t host, uint64_t bytes) {
  const uint32_t in = IN * p->f->all_hosts + host;
  if (p->fills && p->counts[in] == 1)
    return (at_far_spot){.where = AT_FAR_BLOCK, .device = host};
  return take_room(p, bytes);
}

// The first time only counts.
static void add_piece(planner *p, uint32_t round, uint32_t way, uint32_t host,
                      at_far_spot at, uint64_t bytes) {
  uint32_t i = (round * WAYS + way) * p->f->all_hosts + host;
  if (p->fills)
    p->plan->pieces[p->next[i]++] = (at_far_piece){at, bytes};
  else
    p->counts[i]++;
}

// `at`: at this host's end, which is one of the two.
static void flow(planner *p, uint32_t round, uint32_t from, uint32_t to,
                 at_far_spot at, uint64_t bytes) {
  if (!bytes) return;
  if (from == p->me) add_piece(p, round, OUT, to, at, bytes);
  if (to == p->me) add_piece(p, round, IN, from, at, bytes);
}

// Acts of one phase run in this order.
static void add_act(planner *p, uint32_t phase, at_far_act a) {
  uint32_t i = p->acts[phase]++;
  p->most_parts = AT_MAX(p->most_parts, a.num_parts);
  if (!p->fills) return;
  a.group = p->begin;
  a.size = p->size;
  p->plan->acts[phase][i] = a;
}

// Parts of an act stand in a row: nothing else is added between.
static void add_part(planner *p, at_far_spot at, uint64_t first,
                     uint32_t device) {
  uint32_t i = p->parts++;
  if (p->fills) p->plan->parts[i] = (at_far_part){at, first, device};
}

// Member `rank`'s operand of value v lies at `at` when the round is over.
static void add_land(planner *p, uint32_t rank, uint32_t v, at_far_spot at) {
  uint32_t i = p->lands++;
  if (p->fills) p->plan->lands[i] = (at_far_land){member(p, rank), v, at};
}

// ---- Groups
// False: the group has no member here.
static bool enter_group(planner *p, uint32_t first) {
  p->begin = p->k->begin_of[first];
  p->size = p->k->size_of[first];
  p->num_hosts = 0;
  bool here = false;
  for (uint32_t m = 0; m < p->size; m++) {
    uint32_t h = host_of(p, m), i = 0;
    here |= h == p->me;
    while (i < p->num_hosts && p->hosts[i] != h) i++;
    if (i < p->num_hosts) continue;
    p->leads[p->num_hosts] = m;
    p->hosts[p->num_hosts++] = h;
  }
  return here;
}

// The first member here of the group in hand.
static uint32_t my_lead(const planner *p) {
  uint32_t i = 0;
  while (p->hosts[i] != p->me) i++;
  return p->leads[i];
}

// ---- Whole operands
// Member `from` gives its operand to a host, where it lands at `at`.
static void give_whole(planner *p, uint32_t v, uint32_t from, uint32_t to_host,
                       at_far_spot at) {
  uint32_t host = host_of(p, from);
  uint64_t bytes = value(p, v)->operand_bytes;
  if (host == p->me)
    flow(p, 0, host, to_host, operand(member(p, from), v, 0), bytes);
  else
    flow(p, 0, host, to_host, at, bytes);
  if (to_host == p->me) add_land(p, from, v, at);
}

// To every other host of the group. What comes alike for all members here lies
// in the first one's result.
static void give_all(planner *p, uint32_t v, uint32_t from) {
  const at_x_exchange *x = value(p, v);
  uint32_t host = host_of(p, from);
  bool gathers = p->k->x->kind == AT_COLL_ALL_GATHER;
  for (uint32_t i = 0; i < p->num_hosts; i++) {
    uint32_t to = p->hosts[i];
    if (to == host || (to != p->me && host != p->me)) continue;
    at_far_spot at = {0};
    if (to == p->me && gathers && x->rows * x->lines != 1)
      at = take_landing(p, host, x->operand_bytes);
    else if (to == p->me)
      at = result(member(p, my_lead(p)), v, gathers ? from * x->take_piece : 0);
    give_whole(p, v, from, to, at);
  }
}

// An operand goes once to each host that has takers of it.
static void permute(planner *p, uint32_t v) {
  for (uint32_t t = 0; t < p->size; t++) {
    uint32_t from = p->k->source_of[member(p, t)], to = host_of(p, t);
    if (from == UINT32_MAX || host_of(p, from) == to ||
        (to != p->me && host_of(p, from) != p->me))
      continue;
    bool came = false;  // for another member of that host
    for (uint32_t e = 0; e < t && !came; e++)
      came = p->k->source_of[member(p, e)] == from && host_of(p, e) == to;
    if (!came) give_whole(p, v, from, to, result(member(p, t), v, 0));
  }
}

// Operands travel whole; then the group exchanges as if all were here.
static void plan_wholes(planner *p) {
  for (uint32_t v = 0; v < p->k->x->num_values; v++) {
    if (p->k->x->kind == AT_COLL_PERMUTE) {
      permute(p, v);
      continue;
    }
    uint32_t givers = p->k->x->kind == AT_COLL_BROADCAST ? 1 : p->size;
    for (uint32_t m = 0; m < givers; m++) give_all(p, v, m);
  }
  add_act(p, 1, (at_far_act){.kind = AT_FAR_GROUP});
}

// ---- Pieces
// What member d gets of the sum or operand at `from`, as one run of bytes:
// where it lies, or where it is cut out to.
static at_far_spot cut(planner *p, uint32_t v, uint32_t d, at_far_spot from) {
  const at_x_exchange *x = value(p, v);
  if (x->rows * x->lines == 1) {
    from.offset += d * x->give_piece;
    return from;
  }
  at_far_spot to = take_room(p, x->rows * x->lines * x->run);
  add_act(
      p, 0,
      (at_far_act){
          .kind = AT_FAR_CUT, .value = v, .rank = d, .from = from, .to = to});
  return to;
}

// The piece of member s for member d, straight into the result where it is one
// run there.
static void give_piece(planner *p, uint32_t v, uint32_t s, uint32_t d) {
  const at_x_exchange *x = value(p, v);
  uint32_t from = host_of(p, s), to = host_of(p, d);
  uint64_t bytes = x->rows * x->lines * x->run;
  if (from == to || !bytes || (from != p->me && to != p->me)) return;
  if (from == p->me) {
    flow(p, 0, from, to, cut(p, v, d, operand(member(p, s), v, 0)), bytes);
    return;
  }
  at_far_spot into = result(member(p, d), v, 0), at = into;
  if (x->rows * x->lines == 1) {
    at.offset = s * x->take_piece;
  } else {
    at = take_landing(p, from, bytes);
    add_act(
        p, 1,
        (at_far_act){
            .kind = AT_FAR_PUT, .value = v, .rank = s, .from = at, .to = into});
  }
  flow(p, 0, from, to, at, bytes);
}

// All-to-all: everybody's piece for everybody on other hosts.
static void plan_pieces(planner *p) {
  for (uint32_t v = 0; v < p->k->x->num_values; v++)
    for (uint32_t s = 0; s < p->size; s++)
      for (uint32_t d = 0; d < p->size; d++) give_piece(p, v, s, d);
  add_act(p, 1, (at_far_act){.kind = AT_FAR_GROUP});
}

// ---- Sums
// Cuts the members, by number, into the largest blocks of the tree (reduce.c)
// that are of one host: such a host adds them up alone.
static void cut_blocks(planner *p) {
  enum { MIXED = UINT32_MAX };
  struct {
    uint32_t first, host, level;
  } open[34];
  uint32_t depth = 0;
  for (uint32_t i = 0; i <= p->size; i++) {
    uint32_t level = UINT32_MAX;
    if (i && i < p->size)
      level =
          at_block_joins(member(p, sorted(p, i - 1)), member(p, sorted(p, i)));
    while (depth > 1 && open[depth - 1].level < level) {
      depth--;
      bool same =
          open[depth].host != MIXED && open[depth - 1].host == open[depth].host;
      p->cuts[open[depth].first] = !same;
      if (!same) open[depth - 1].host = MIXED;
    }
    if (i == p->size) break;
    open[depth].first = i;
    open[depth].host = host_of(p, sorted(p, i));
    open[depth++].level = level;
  }
  p->cuts[0] = true;
}

// The block that begins at member i, by number, ends before the one returned.
static uint32_t block_end(const planner *p, uint32_t i) {
  do i++;
  while (i < p->size && !p->cuts[i]);
  return i;
}

// Bytes [begin, end) of what the members [i, e) here add up to are made before
// anything is sent; `at`: where byte 0 is or would be.
static void add_up(planner *p, uint32_t v, uint32_t i, uint32_t e,
                   uint64_t begin, uint64_t end, at_far_spot at) {
  if (e == i + 1 || begin >= end) return;
  at_far_act a = {.kind = AT_FAR_SUM,
                  .value = v,
                  .parts = p->parts,
                  .num_parts = e - i,
                  .kept = true,
                  .begin = begin,
                  .end = end,
                  .to = at};
  a.to.offset += begin;
  for (uint32_t m = i; m < e; m++) {
    uint32_t device = member(p, sorted(p, m));
    add_part(p, operand(device, v, 0), 0, device);
  }
  add_act(p, 0, a);
}

// Where the sum of members [i, e) here is: of one, its operand.
static at_far_spot place_sum(planner *p, uint32_t v, uint32_t i, uint32_t e) {
  if (e == i + 1) return operand(member(p, sorted(p, i)), v, 0);
  return take_room(p, value(p, v)->operand_bytes);
}

// All parts to everybody.
static void reduce_directly(planner *p, uint32_t v) {
  uint64_t bytes = value(p, v)->operand_bytes;
  for (uint32_t i = 0, e; bytes && i < p->size; i = e) {
    e = block_end(p, i);
    uint32_t host = host_of(p, sorted(p, i));
    at_far_spot at = p->spots[i] =
        host == p->me ? place_sum(p, v, i, e) : take_landing(p, host, bytes);
    if (host == p->me) add_up(p, v, i, e, 0, bytes, at);
    for (uint32_t g = 0; g < p->num_hosts; g++)
      if (p->hosts[g] != host && (host == p->me || p->hosts[g] == p->me))
        flow(p, 0, host, p->hosts[g], at, bytes);
  }
  at_far_act a = {
      .kind = AT_FAR_SUM, .value = v, .parts = p->parts, .end = bytes};
  for (uint32_t i = 0; bytes && i < p->size; i = block_end(p, i)) {
    add_part(p, p->spots[i], 0, member(p, sorted(p, i)));
    a.num_parts++;
  }
  if (bytes) add_act(p, 1, a);
}

static uint64_t block_bytes(const at_x_exchange *x) {
  return (uint64_t)x->block_elements * x->element_bytes;
}
// Blocks of the kernel that a value has, the last one perhaps shorter.
static uint64_t blocks_of(const at_x_exchange *x) {
  return x->operand_bytes
             ? (uint64_t)at_ceil_div(x->operand_bytes, block_bytes(x))
             : 0;
}

// In whole blocks of the reduction's kernel, so that the order of additions
// does not depend on who adds.
void at_far_range(const at_coll *k, uint32_t v, uint32_t g, uint32_t num_hosts,
                  uint64_t *begin, uint64_t *end) {
  const at_x_exchange *x = &k->values[v];
  uint64_t all = 0, before = 0, n = blocks_of(x);
  for (uint32_t i = 0; i < k->x->num_values; i++) {
    if (i == v) before = all;
    all += blocks_of(&k->values[i]);
  }
  uint64_t first = AT_MAX(all * g / num_hosts, before) - before;
  uint64_t last = AT_MAX(all * (g + 1) / num_hosts, before) - before;
  *begin = AT_MIN(AT_MIN(first, n) * block_bytes(x), x->operand_bytes);
  *end = AT_MIN(AT_MIN(last, n) * block_bytes(x), x->operand_bytes);
  AT_ASSERT(*begin <= *end);
}

// Of the g-th host of the group in hand.
static void own_range(const planner *p, uint32_t v, uint32_t g, uint64_t *begin,
                      uint64_t *end) {
  at_far_range(p->k, v, g, p->num_hosts, begin, end);
}

// Parts of members [i, e) to those who add them up.
static void give_parts(planner *p, uint32_t v, uint32_t i, uint32_t e) {
  uint32_t host = host_of(p, sorted(p, i));
  uint64_t begin, end;
  if (host == p->me) p->spots[i] = place_sum(p, v, i, e);
  for (uint32_t g = 0; g < p->num_hosts; g++) {
    uint32_t owner = p->hosts[g];
    own_range(p, v, g, &begin, &end);
    if (owner == host || begin == end) continue;
    if (host == p->me) {
      at_far_spot at = p->spots[i];
      add_up(p, v, i, e, begin, end, at);
      at.offset += begin;
      flow(p, 0, host, owner, at, end - begin);
    } else if (owner == p->me) {
      p->spots[i] = take_landing(p, host, end - begin);
      flow(p, 0, host, owner, p->spots[i], end - begin);
    }
  }
}

// The sum of this host's range, and then everybody's results.
static void finish_ranges(planner *p, uint32_t v) {
  uint64_t begin, end;
  at_far_spot lead = result(member(p, my_lead(p)), v, 0), at;
  for (uint32_t g = 0; g < p->num_hosts; g++) {
    own_range(p, v, g, &begin, &end);
    if (begin == end) continue;
    at = lead;
    at.offset = begin;
    for (uint32_t to = 0; to < p->num_hosts; to++)
      if (to != g) flow(p, 1, p->hosts[g], p->hosts[to], at, end - begin);
    at_far_act a = {.value = v, .begin = begin, .end = end, .from = lead};
    if (p->hosts[g] != p->me) {
      a.kind = AT_FAR_SHARE;
      add_act(p, 2, a);
      continue;
    }
    a.kind = AT_FAR_SUM;
    a.parts = p->parts;
    for (uint32_t i = 0, e; i < p->size; i = e) {
      e = block_end(p, i);
      bool here = host_of(p, sorted(p, i)) == p->me;
      for (uint32_t m = i; m < (here ? e : i + 1); m++, a.num_parts++) {
        uint32_t device = member(p, sorted(p, m));
        add_part(p, here ? operand(device, v, 0) : p->spots[i],
                 here ? 0 : begin, device);
      }
    }
    add_act(p, 1, a);
  }
}

// Small sums go directly: every host sends its blocks to all others and adds
// everything up. Large ones in two rounds: parts to the owners of ranges, sums
// back.
static void plan_all_reduce(planner *p) {
  uint64_t bytes = 0;
  uint32_t blocks = 0;
  for (uint32_t v = 0; v < p->k->x->num_values; v++)
    bytes += value(p, v)->operand_bytes;
  for (uint32_t i = 0; i < p->size; i = block_end(p, i)) blocks++;
  // Of two summands, one on each of two hosts, both ways send as much.
  bool direct = bytes < (blocks == 2 ? AT_FAR_TWO_BYTES : AT_FAR_DIRECT_BYTES);
  for (uint32_t v = 0; v < p->k->x->num_values; v++) {
    if (direct) {
      reduce_directly(p, v);
      continue;
    }
    for (uint32_t i = 0; i < p->size; i = block_end(p, i))
      give_parts(p, v, i, block_end(p, i));
    finish_ranges(p, v);
  }
}

// What member d keeps of the sum, from all blocks.
static void scatter_to(planner *p, uint32_t v, uint32_t d) {
  uint64_t bytes = value(p, v)->result_bytes;
  uint32_t to = host_of(p, d);
  at_far_act a = {.kind = AT_FAR_SUM,
                  .value = v,
                  .parts = p->parts,
                  .kept = true,
                  .end = bytes,
                  .to = result(member(p, d), v, 0)};
  for (uint32_t i = 0; i < p->size; i = block_end(p, i)) {
    uint32_t from = host_of(p, sorted(p, i));
    if (from != p->me && to != p->me) continue;
    at_far_spot at = from == p->me ? cut(p, v, d, p->spots[i])
                                   : take_landing(p, from, bytes);
    if (from != to) flow(p, 0, from, to, at, bytes);
    if (to != p->me) continue;
    add_part(p, at, 0, member(p, sorted(p, i)));
    a.num_parts++;
  }
  if (to == p->me) add_act(p, 1, a);
}

// Every host sends, for each member elsewhere, the piece of its own sums.
static void plan_reduce_scatter(planner *p) {
  for (uint32_t v = 0; v < p->k->x->num_values; v++) {
    uint64_t bytes = value(p, v)->operand_bytes;
    if (!bytes) continue;
    for (uint32_t i = 0, e; i < p->size; i = e) {
      e = block_end(p, i);
      if (host_of(p, sorted(p, i)) != p->me) continue;
      p->spots[i] = place_sum(p, v, i, e);
      add_up(p, v, i, e, 0, bytes, p->spots[i]);
    }
    for (uint32_t d = 0; d < p->size; d++) scatter_to(p, v, d);
  }
}

// ---- All groups
static void plan_group(planner *p) {
  if (p->num_hosts == 1) {
    add_act(p, 1, (at_far_act){.kind = AT_FAR_GROUP});
    return;
  }
  switch (p->k->x->kind) {
    case AT_COLL_ALL_REDUCE:
      cut_blocks(p);
      plan_all_reduce(p);
      break;
    case AT_COLL_REDUCE_SCATTER:
      cut_blocks(p);
      plan_reduce_scatter(p);
      break;
    case AT_COLL_ALL_TO_ALL:
      plan_pieces(p);
      break;
    default:
      plan_wholes(p);
  }
}

// Each group once, by its first member.
static void plan_groups(planner *p) {
  for (uint32_t d = 0; d < p->f->num_devices; d++)
    if (p->k->group_of[d] != UINT32_MAX && !p->k->rank_of[d] &&
        enter_group(p, d))
      plan_group(p);
}

// ---- The plan
// Where each message's pieces begin, and the messages themselves.
static void place_mails(planner *p, at_far_plan *plan) {
  uint32_t hosts = p->f->all_hosts, at = 0;
  for (uint32_t r = 0; r < AT_FAR_ROUNDS; r++)
    for (uint32_t h = 0; h < hosts; h++) {
      uint32_t out = (r * WAYS + OUT) * hosts + h, in = out + hosts;
      if (!p->counts[out] && !p->counts[in]) continue;
      p->next[out] = at;
      p->next[in] = at + p->counts[out];
      at = p->next[in] + p->counts[in];
      plan->mails[r][plan->num_mails[r]++] =
          (at_far_mail){.host = h,
                        .out = p->next[out],
                        .num_out = p->counts[out],
                        .in = p->next[in],
                        .num_in = p->counts[in]};
    }
}

// An empty plan with room for what has been counted, in one block.
static at_far_plan *make_block(const planner *p) {
  size_t acts = 0, pieces = 0, hosts = p->f->all_hosts;
  for (uint32_t i = 0; i < AT_FAR_PHASES; i++) acts += p->acts[i];
  for (size_t i = 0; i < AT_FAR_ROUNDS * WAYS * hosts; i++)
    pieces += p->counts[i];
  at_far_plan *plan = calloc(
      1, sizeof *plan + acts * sizeof(at_far_act) +
             AT_FAR_ROUNDS * hosts * sizeof(at_far_mail) +
             pieces * sizeof(at_far_piece) + p->parts * sizeof(at_far_part) +
             p->lands * sizeof(at_far_land));
  if (!plan) return NULL;
  plan->acts[0] = (at_far_act *)(plan + 1);
  for (uint32_t i = 0; i < AT_FAR_PHASES; i++) {
    plan->num_acts[i] = p->acts[i];
    if (i) plan->acts[i] = plan->acts[i - 1] + p->acts[i - 1];
  }
  plan->pieces = (at_far_piece *)(plan->acts[0] + acts);
  plan->parts = (at_far_part *)(plan->pieces + pieces);
  plan->lands = (at_far_land *)(plan->parts + p->parts);
  plan->mails[0] = (at_far_mail *)(plan->lands + p->lands);
  plan->mails[1] = plan->mails[0] + hosts;
  plan->num_pieces = (uint32_t)pieces;
  plan->num_parts = p->parts;
  plan->num_lands = p->lands;
  plan->most_parts = p->most_parts;
  plan->room_bytes = p->room;
  return plan;
}

// Has the second walk made what the first one counted?
static bool is_full(const planner *p, const at_far_plan *plan) {
  for (uint32_t i = 0; i < AT_FAR_PHASES; i++)
    if (p->acts[i] != plan->num_acts[i]) return false;
  for (uint32_t r = 0; r < AT_FAR_ROUNDS; r++)
    for (uint32_t i = 0; i < plan->num_mails[r]; i++) {
      const at_far_mail *m = &plan->mails[r][i];
      uint32_t out = (r * WAYS + OUT) * p->f->all_hosts + m->host;
      if (p->next[out] != m->out + m->num_out ||
          p->next[out + p->f->all_hosts] != m->in + m->num_in)
        return false;
    }
  return p->parts == plan->num_parts && p->lands == plan->num_lands &&
         p->room <= plan->room_bytes;
}

// Counts, makes the block, fills it. False: no memory.
static bool plan_twice(planner *p, at_far_plan **out) {
  plan_groups(p);
  at_far_plan *plan = p->plan = make_block(p);
  if (!plan) return false;
  place_mails(p, plan);
  memset(p->acts, 0, sizeof p->acts);
  p->room = p->parts = p->lands = 0;
  p->fills = true;
  plan_groups(p);
  AT_ASSERT(is_full(p, plan));
  plan->room_bytes = p->room;
  *out = plan;
  return true;
}

// Scratch is freed here; the plan is one block.
at_status at_far_plan_make(const at_coll *whole, const at_far *f, uint32_t me,
                           at_far_plan **out) {
  planner p = {.k = whole, .f = f, .me = me};
  size_t n = f->num_devices,
         counts = AT_FAR_ROUNDS * WAYS * (size_t)f->all_hosts;
  p.counts = calloc(2 * counts + 2 * n, sizeof *p.counts);
  p.spots = calloc(n, sizeof *p.spots + sizeof *p.cuts);
  bool good = p.counts && p.spots;
  if (good) {
    p.next = p.counts + counts;
    p.hosts = p.next + counts;
    p.leads = p.hosts + n;
    p.cuts = (bool *)(p.spots + n);
    good = plan_twice(&p, out);
  }
  free(p.counts);
  free(p.spots);
  return good ? AT_OK
              : AT_FAIL(AT_RESOURCE_EXHAUSTED,
                        "no memory to plan a collective of %u devices",
                        f->num_devices);
}

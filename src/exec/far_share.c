// Collectives of hosts that read each other's memory. Everybody says where its
// operands lie, then reads those of the others and makes its own results, as
// one host does for its devices (exchange.c, reduce.c). Of a large all-reduce
// every host adds up a range, and reads the other ranges where they were made.
// Operands that lie elsewhere, or are small, are copied to where others read.
//
// Where the others' operands lie is theirs to say: it is copied and checked
// before it is used. What lies there are only numbers.
#include <emmintrin.h>
#include <stdlib.h>

#include "exec/far_plan.h"

enum {
  kCopied = 32 << 10,  // operands of at most that are copied: then nobody waits
                       // until the others have read them
  kStage = 512 << 10,  // where they are copied to
  kSplit = 128 << 10,  // from here on a host adds up its range only
  kChunk = 64 << 10,
  kHelped = 8 << 20,  // less is moved by one thread where cores are few
  kRaggedSlots = 4
};
static const uint32_t kRaggedSlot[kRaggedSlots] = {0, 2, 3, 4};
enum { kRaggedResult = 6 };

// ---- What is prepared
struct at_far_channel {
  struct at_far_channel *next;
  uint64_t name;
  at_hosts_channel *face;
  uint8_t *stage[AT_HOSTS_SLOTS];
};

// A host of a group, and the group's first member of it, by rank.
typedef struct part {
  uint32_t host, lead;
} part;
typedef struct group {
  uint32_t begin, size;  // in the members
  uint32_t parts, num_parts;
} group;

// Groups with a device here, and what other hosts have to do with it.
struct at_far_among {
  uint32_t num_groups, num_hosts, most_members;
  bool split;
  uint32_t *hosts;  // that it meets
  group *groups;
  part *parts;
  bool *gives;  // by device: is its operand read by other hosts?
};

// Stages go back to the shared memory.
void at_far_channels_free(at_runtime *rt) {
  for (at_far_channel *c = rt->far_channels, *next; c; c = next) {
    next = c->next;
    for (uint32_t i = 0; i < AT_HOSTS_SLOTS; i++)
      if (c->stage[i]) at_shared_give(rt->shared, c->stage[i], kStage);
    free(c);
  }
}

// Under the lanes' lock. A channel that could not be opened stays in the list
// without a face, and is not found.
static at_status make_channel(at_runtime *rt, uint64_t name,
                              at_far_channel **out) {
  const at_hosts_share *face = rt->hosts->share;
  at_far_channel *c = calloc(1, sizeof *c);
  if (!c) return at_far_no_memory();
  c->name = name;
  c->next = rt->far_channels;
  rt->far_channels = c;  // from here on at_far_channels_free's
  for (uint32_t i = 0; i < AT_HOSTS_SLOTS; i++)
    if (!(c->stage[i] = at_shared_take(rt->shared, kStage)))
      return at_far_no_memory();
  AT_TRY(face->open(face->arg, name, &c->face));
  *out = c;
  return AT_OK;
}

static int by_number(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

// Launches over the same chips follow each other, so they can use one channel.
static at_status name_chips(const at_loaded *l, at_chip *const *chips,
                            uint64_t *out) {
  uint32_t n = l->far->num_devices;
  uint32_t *ids = malloc(n * sizeof *ids);
  if (!ids) return at_far_no_memory();
  for (uint32_t d = 0; d < n; d++) ids[d] = chips[d]->info.id;
  qsort(ids, n, sizeof *ids, by_number);
  *out = at_hash(AT_HASH_SEED, ids, n * sizeof *ids);
  free(ids);
  return AT_OK;
}

// Hosts that do not all share memory use messages: then there is no channel.
at_status at_far_share(at_loaded *l, at_chip *const *chips) {
  at_runtime *rt = l->runtime;
  const at_hosts_share *face = rt->hosts->share;
  const at_far_set *set = l->far->set;
  uint64_t name;
  if (!face || !face->among(face->arg, set->hosts, set->count)) return AT_OK;
  AT_TRY(name_chips(l, chips, &name));
  at_status st = AT_OK;
  pthread_mutex_lock(&rt->lanes.lock);
  at_far_channel *c = rt->far_channels;
  while (c && !(c->name == name && c->face)) c = c->next;
  if (!c) st = make_channel(rt, name, &c);
  pthread_mutex_unlock(&rt->lanes.lock);
  if (!st.err) l->far->channel = c;
  return st;
}

// ---- Groups
typedef struct finder {
  const at_coll *k;  // by the tables of all hosts
  const at_far *f;
  uint32_t me;
  at_far_among *a;
  bool *meets;  // by host
} finder;

static uint32_t host_at(const finder *p, const group *g, uint32_t rank) {
  return p->f->host_of[p->k->members[g->begin + rank]];
}

// Hosts of the group in the order of their first members.
static void find_parts(finder *p, group *g) {
  for (uint32_t m = 0; m < g->size; m++) {
    uint32_t host = host_at(p, g, m), i = 0;
    while (i < g->num_parts && p->a->parts[g->parts + i].host != host) i++;
    if (i == g->num_parts)
      p->a->parts[g->parts + g->num_parts++] = (part){host, m};
  }
}

// Giver's operand is read by `to_host`.
static void give(finder *p, const group *g, uint32_t giver, uint32_t to_host) {
  uint32_t host = host_at(p, g, giver);
  if (host == to_host) return;
  p->a->gives[p->k->members[g->begin + giver]] = true;
  if (to_host == p->me) p->meets[host] = true;
  if (host == p->me) p->meets[to_host] = true;
}

// By kind: who reads whose operand.
static void find_givers(finder *p, const group *g) {
  const at_coll *k = p->k;
  for (uint32_t m = 0; m < g->size; m++) {
    if (k->x->kind == AT_COLL_PERMUTE) {
      uint32_t from = k->source_of[k->members[g->begin + m]];
      if (from != UINT32_MAX) give(p, g, from, host_at(p, g, m));
      continue;
    }
    if (k->x->kind == AT_COLL_BROADCAST && m) break;
    for (uint32_t i = 0; i < g->num_parts; i++)
      give(p, g, m, p->a->parts[g->parts + i].host);
  }
}

// Other hosts' groups, too, say which devices give.
static void find_groups(finder *p) {
  at_far_among *a = p->a;
  uint32_t parts = 0;
  for (uint32_t d = 0; d < p->f->num_devices; d++) {
    if (p->k->group_of[d] == UINT32_MAX || p->k->rank_of[d]) continue;
    group g = {p->k->begin_of[d], p->k->size_of[d], parts, 0};
    find_parts(p, &g);
    find_givers(p, &g);
    bool here = false;
    for (uint32_t i = 0; i < g.num_parts; i++)
      here |= a->parts[parts + i].host == p->me;
    if (!here) continue;
    parts += g.num_parts;
    a->groups[a->num_groups++] = g;
    a->most_members = AT_MAX(a->most_members, g.size);
  }
  for (uint32_t h = 0; h < p->f->all_hosts; h++)
    if (p->meets[h]) a->hosts[a->num_hosts++] = h;
}

// Is it an all-reduce that is worth two phases?
static bool splits(const at_coll *k) {
  uint64_t bytes = 0;
  for (uint32_t v = 0; v < k->x->num_values; v++)
    bytes += k->values[v].operand_bytes;
  return k->x->kind == AT_COLL_ALL_REDUCE && bytes >= kSplit;
}

// What operands and results lie in will be read by others: the blocks that
// argument i is in.
static void share_blocks(at_loaded *l, const at_op *op, uint32_t i) {
  const at_xslot *s = at_arg_slot(l, op, i);
  at_runtime *rt = l->runtime;
  uint64_t bytes = 0;
  if (s->bytes <= kCopied) return;
  if (s->kind == AT_SLOT_TEMP) bytes = l->header->temp_bytes;
  if (s->kind == AT_SLOT_INPUT)
    bytes = at_io_type(l, &l->inputs[s->index])->bytes;
  if (s->kind == AT_SLOT_OUTPUT)
    bytes = at_io_type(l, &l->outputs[s->index])->bytes;
  if (!bytes) return;
  uint32_t first, own = at_runtime_own_chips(rt, &first);
  for (uint32_t c = first; c < first + own; c++) {
    pthread_mutex_lock(&rt->chips[c].lock);
    at_blocks_share(rt->chips[c].blocks, rt->shared, bytes);
    pthread_mutex_unlock(&rt->chips[c].lock);
  }
}

// One block; k->among owns it, also on failure.
at_status at_far_among_make(at_loaded *l, const at_op *op) {
  at_coll *k = &l->colls[op->target];
  const at_far *f = l->far;
  size_t n = f->num_devices;
  at_far_among *a =
      calloc(1, sizeof *a + n * (sizeof *a->groups + 2 * sizeof *a->parts + 1) +
                    f->all_hosts * (sizeof *a->hosts + 1));
  if (!a) return at_far_no_memory();
  k->among = a;
  a->groups = (group *)(a + 1);
  a->parts = (part *)(a->groups + n);
  a->hosts = (uint32_t *)(a->parts + 2 * n);
  a->gives = (bool *)(a->hosts + f->all_hosts);
  a->split = splits(k->whole);
  finder p = {k->whole, f, l->runtime->hosts->me, a, a->gives + n};
  find_groups(&p);
  for (uint32_t i = 0; a->num_hosts && i < op->num_args; i++)
    share_blocks(l, op, i);
  return AT_OK;
}

// ---- One run
typedef struct run {
  at_task *task;
  const at_op *op;
  const at_coll *k;  // by the tables of all hosts
  const at_far_among *a;
  const at_far *f;
  at_pool *pool;
  const at_hosts_share *face;
  at_hosts_channel *channel;
  at_shared *shared;
  uint32_t operands, values;  // of a device's table; values: that others read
  // By device, and those of the group in hand: operands, then results; NULL:
  // of another host, and not here.
  void *const **bufs, *const **members;
  void **tables;    // of other hosts' devices
  uint64_t *where;  // by host that it meets: its list
  at_summand *parts;
  uint8_t *numbers;  // RAGGED: the others' indices are copied there
  // Memory that others read: lists, and what is copied there.
  uint8_t *stage;
  uint64_t stage_at, stage_bytes;
  void *block;  // the stage, where it is this run's own
  bool waits;   // until the others have read this host's memory
} run;

// Its sizes are numbers in operands, which are copied and checked first.
static bool is_ragged(const run *r) {
  return r->k->x->kind == AT_COLL_RAGGED_ALL_TO_ALL;
}
static uint32_t slot_of(const run *r, uint32_t i) {
  return is_ragged(r) ? kRaggedSlot[i] : i;
}
static uint64_t bytes_of(const run *r, uint32_t i) {
  if (is_ragged(r) && i) return r->k->values->lines * r->k->values->index_bytes;
  return r->k->values[i].operand_bytes;
}
static uint8_t *result_of(const run *r, uint32_t device, uint32_t v) {
  return r->bufs[device][r->operands + v];
}
static uint32_t lead_of(const run *r, const group *g, uint32_t i) {
  return r->k->members[g->begin + r->a->parts[g->parts + i].lead];
}

// This host's place in a group; `num_parts`: it has none.
static uint32_t my_part(const run *r, const group *g) {
  uint32_t i = 0, me = r->task->loaded->runtime->hosts->me;
  while (i < g->num_parts && r->a->parts[g->parts + i].host != me) i++;
  return i;
}

// Room in a block that is laid out twice: first for its size (base NULL), then
// for addresses.
static void *lay(uint8_t *base, uint64_t *at, uint64_t bytes) {
  void *p = base ? base + *at : NULL;
  *at = at_add(*at, at_align_up(bytes, 64));
  return p;
}

// Tables of a run in a block at `base` (NULL: only the size).
static uint64_t lay_out(run *r, uint8_t *base) {
  uint64_t at = 0, devices = r->f->num_devices, hosts = r->a->num_hosts;
  uint64_t far = devices - r->task->loaded->num_devices;
  uint64_t numbers = is_ragged(r) ? 3 * at_align_up(bytes_of(r, 1), 64) : 0;
  r->bufs = lay(base, &at, devices * sizeof *r->bufs);
  r->members = lay(base, &at, r->a->most_members * sizeof *r->members);
  r->tables = lay(base, &at, far * (r->operands + r->values) * sizeof(void *));
  r->where = lay(base, &at, hosts * sizeof *r->where);
  r->parts = lay(base, &at, r->a->most_members * sizeof *r->parts);
  r->numbers = lay(base, &at, at_mul(far, numbers));
  return at;
}

// ---- What others read
static uint64_t list_bytes(const run *r) {
  return at_align_up(
      (uint64_t)r->task->loaded->num_devices * r->values * sizeof(uint64_t),
      64);
}

// Can others read it where it is? Small ones are copied all the same.
static bool lies_well(const run *r, const uint8_t *p, uint64_t bytes) {
  return bytes > kCopied && !((uintptr_t)p & 63) &&
         at_shared_offset(r->shared, p, bytes) != UINT64_MAX;
}

// Of the lists, and of operands and ranges that others cannot read in place.
static uint64_t bytes_to_copy(const run *r) {
  const at_loaded *l = r->task->loaded;
  uint64_t all = list_bytes(r), begin, end;
  for (uint32_t i = 0; i < l->num_devices; i++)
    for (uint32_t v = 0; r->a->gives[r->f->mine[i]] && v < r->values; v++)
      if (!lies_well(r, r->bufs[r->f->mine[i]][slot_of(r, v)], bytes_of(r, v)))
        all = at_add(all, at_align_up(bytes_of(r, v), 64));
  if (!r->a->split) return all;
  all += list_bytes(r);
  for (const group *g = r->a->groups, *e = g + r->a->num_groups; g < e; g++)
    for (uint32_t v = 0; g->num_parts > 1 && v < r->values; v++) {
      uint32_t i = my_part(r, g);
      at_far_range(r->k, v, i, g->num_parts, &begin, &end);
      if (!lies_well(r, result_of(r, lead_of(r, g, i), v) + begin, end - begin))
        all = at_add(all, at_align_up(end - begin, 64));
    }
  return all;
}

// The channel's own place, or a block where that is too small; then others must
// be done before it goes back.
static at_status take_stage(run *r, uint32_t slot) {
  r->stage_bytes = bytes_to_copy(r);
  r->stage = r->f->channel->stage[slot];
  if (r->stage_bytes <= kStage) return AT_OK;
  r->stage = r->block = at_shared_take(r->shared, r->stage_bytes);
  r->waits = true;
  return r->stage ? AT_OK : at_far_no_memory();
}

// The next bytes of the stage, at 64 bytes.
static uint8_t *take_place(run *r, uint64_t bytes) {
  uint8_t *p = r->stage + r->stage_at;
  r->stage_at += at_align_up(bytes, 64);
  AT_ASSERT(r->stage_at <= r->stage_bytes);
  return p;
}

// Where others read the bytes at p.
static uint64_t offer(run *r, const uint8_t *p, uint64_t bytes) {
  if (lies_well(r, p, bytes)) {
    r->waits = true;
    return at_shared_offset(r->shared, p, bytes);
  }
  uint8_t *copy = take_place(r, bytes);
  at_copy_bytes(r->pool, copy, p, bytes);
  return at_shared_offset(r->shared, copy, bytes);
}

// The list lies in shared memory, where the others read it until this host is
// DONE.
static void say(run *r, at_hosts_phase phase, const uint64_t *list) {
  r->face->say(r->channel, phase,
               at_shared_offset(r->shared, list, list_bytes(r)), r->a->hosts,
               r->a->num_hosts);
}

// The list says where each operand lies: UINT64_MAX for those that nobody
// reads.
static void offer_operands(run *r) {
  uint64_t *list = (uint64_t *)take_place(r, list_bytes(r)), *next = list;
  for (uint32_t i = 0; i < r->task->loaded->num_devices; i++)
    for (uint32_t v = 0; v < r->values; v++, next++) {
      uint32_t d = r->f->mine[i];
      *next = UINT64_MAX;
      if (r->a->gives[d] && bytes_of(r, v))
        *next = offer(r, r->bufs[d][slot_of(r, v)], bytes_of(r, v));
    }
  say(r, AT_HOSTS_READY, list);
}

// The ranges that were added up here.
static void offer_ranges(run *r) {
  uint64_t *list = (uint64_t *)take_place(r, list_bytes(r)), begin, end;
  for (const group *g = r->a->groups, *e = g + r->a->num_groups; g < e; g++) {
    uint32_t i = my_part(r, g), d = lead_of(r, g, i);
    for (uint32_t v = 0; g->num_parts > 1 && v < r->values; v++) {
      at_far_range(r->k, v, i, g->num_parts, &begin, &end);
      if (begin < end)
        list[r->f->place_of[d] * r->values + v] =
            offer(r, result_of(r, d, v) + begin, end - begin);
    }
  }
  say(r, AT_HOSTS_SUMMED, list);
}

// ---- What is read of others
static at_status bad_place(uint32_t host) {
  return AT_FAIL(AT_INTERNAL,
                 "process %u says that values of a collective lie where it "
                 "shares no memory",
                 host);
}

// `bytes` at an offset of a host's memory; NULL: they do not lie there.
static const uint8_t *find(const run *r, uint32_t host, uint64_t offset,
                           uint64_t bytes) {
  at_bytes m = r->face->maps[host];
  if ((offset & 63) || offset > m.len || bytes > m.len - offset) return NULL;
  return m.ptr + offset;
}

// The lane steps aside while this one waits.
static at_status hear(run *r, at_hosts_phase phase) {
  at_runtime *rt = r->task->loaded->runtime;
  at_lane_block(rt);
  at_status st =
      r->face->hear(r->channel, phase, r->a->hosts, r->a->num_hosts, r->where);
  at_lane_unblock(rt);
  return st;
}

// Entry v of a device of the i-th host that it meets.
static at_status read_entry(const run *r, uint32_t i, uint32_t device,
                            uint32_t v, uint64_t bytes, const uint8_t **out) {
  uint32_t host = r->a->hosts[i], place = r->f->place_of[device];
  uint64_t skipped = ((uint64_t)place * r->values + v) * sizeof(uint64_t);
  const uint8_t *list = find(r, host, r->where[i], skipped + sizeof(uint64_t));
  if (!list) return bad_place(host);
  uint64_t at = atomic_load_explicit((_Atomic uint64_t *)(list + skipped),
                                     memory_order_relaxed);
  *out = find(r, host, at, bytes);
  return *out ? AT_OK : bad_place(host);
}

// The index arrays of a RAGGED operand say where to read: they are copied.
static void *copy_numbers(run *r, const uint8_t *p) {
  void *to = r->numbers;
  memcpy(to, p, bytes_of(r, 1));
  r->numbers += at_align_up(bytes_of(r, 1), 64);
  return to;
}

// Tables of the devices of the i-th host, pointing into its memory after every
// number was checked.
static at_status find_operands_of(run *r, uint32_t i) {
  static _Alignas(64) uint8_t nothing[64];
  for (uint32_t d = 0; d < r->f->num_devices; d++) {
    if (r->f->host_of[d] != r->a->hosts[i] || !r->a->gives[d]) continue;
    void **table = r->tables;
    r->tables += r->operands + r->values;
    for (uint32_t v = 0; v < r->values; v++) {
      const uint8_t *p = nothing;
      if (bytes_of(r, v)) AT_TRY(read_entry(r, i, d, v, bytes_of(r, v), &p));
      if (is_ragged(r) && v && bytes_of(r, v)) p = copy_numbers(r, p);
      table[slot_of(r, v)] = (void *)p;
    }
    r->bufs[d] = table;
  }
  return AT_OK;
}

// Buffers of the group's members, by rank; NULL: elsewhere.
static void enter(run *r, const group *g) {
  for (uint32_t m = 0; m < g->size; m++)
    r->members[m] = r->bufs[r->k->members[g->begin + m]];
}

// ---- Sums
static at_sum sum_of(run *r, const group *g, uint32_t v) {
  const at_x_exchange *x = &r->k->values[v];
  uint64_t result = x->result_bytes * r->task->loaded->num_devices;
  return (at_sum){.c = r->k,
                  .value = v,
                  .parts = r->parts,
                  .num_parts = g->size,
                  .bufs = r->members,
                  .size = g->size,
                  .end = x->operand_bytes,
                  .stream = result >= AT_EXCHANGE_STREAM};
}

// Summands by the number of their device (reduce.c).
static void set_parts(run *r, const group *g, uint32_t v) {
  for (uint32_t i = 0; i < g->size; i++) {
    uint32_t m = r->k->order[g->begin + i];
    r->parts[i] =
        (at_summand){r->members[m][v], 0, r->k->members[g->begin + m]};
  }
}

// All of each value, or this host's range.
static void all_reduce(run *r, const group *g) {
  for (uint32_t v = 0; v < r->values; v++) {
    at_sum s = sum_of(r, g, v);
    set_parts(r, g, v);
    if (r->a->split)
      at_far_range(r->k, v, my_part(r, g), g->num_parts, &s.begin, &s.end);
    at_sum_run(&s, r->pool);
  }
}

// What member `rank` keeps: of operands that lie in pieces, these come together
// first.
typedef struct cutting {
  const run *r;
  const at_x_exchange *x;
  uint32_t rank;
  uint8_t *room;
  uint64_t step;
} cutting;

// One member's operand for each i: all copies are independent.
static void cut_pieces(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  const cutting *c = arg;
  for (int64_t i = begin; i < end; i++)
    at_piece_cut(c->x, c->rank, c->r->parts[i].data,
                 c->room + (uint64_t)i * c->step);
}

// Member `rank`'s piece of all operands, summed into its result. room: pieces
// are cut out to there first.
static void scatter_to(run *r, const group *g, uint32_t v, uint32_t rank,
                       uint8_t *room) {
  const at_x_exchange *x = &r->k->values[v];
  cutting c = {r, x, rank, room, at_align_up(x->result_bytes, 64)};
  at_sum s = sum_of(r, g, v);
  s.end = x->result_bytes;
  s.out = r->members[rank][r->operands + v];
  set_parts(r, g, v);
  if (room) at_pool_for(r->pool, g->size, 1, cut_pieces, &c);
  for (uint32_t i = 0; i < g->size; i++)
    r->parts[i].data =
        room ? room + i * c.step : r->parts[i].data + rank * x->give_piece;
  at_sum_run(&s, r->pool);
}

// Pieces that are one run are read where they lie.
static at_status reduce_scatter(run *r, const group *g, uint32_t v) {
  const at_x_exchange *x = &r->k->values[v];
  at_chip *chip = r->task->parts[0].chip;
  bool cuts = x->rows * x->lines != 1;
  uint64_t bytes = cuts ? at_mul(g->size, at_align_up(x->result_bytes, 64)) : 0;
  void *room = NULL;
  if (!x->result_bytes) return AT_OK;
  if (cuts) AT_TRY(at_chip_take_scratch(chip, bytes, false, &room));
  for (uint32_t m = 0; m < g->size; m++)
    if (at_sum_result(&(at_sum){.c = r->k, .value = v, .bufs = r->members}, m))
      scatter_to(r, g, v, m, room);
  if (cuts) at_chip_give_scratch(chip, room, bytes, false);
  return AT_OK;
}

// One range that another host has added up, to all results here.
typedef struct spread {
  const run *r;
  const group *g;
  const uint8_t *from;
  uint32_t value;
  uint64_t begin, end;
  bool stream;
} spread;

// Written past the caches where results are large; the fence makes that visible
// to other threads.
static void spread_chunks(void *arg, int64_t first, int64_t last,
                          uint32_t worker) {
  const spread *s = arg;
  for (int64_t i = first; i < last; i++) {
    uint64_t at = (uint64_t)i * kChunk;
    uint64_t n = AT_MIN((uint64_t)kChunk, s->end - s->begin - at);
    for (uint32_t m = 0; m < s->g->size; m++) {
      void *const *to = s->r->members[m];
      if (to && to[s->r->operands + s->value])
        at_put_bytes((uint8_t *)to[s->r->operands + s->value] + s->begin + at,
                     s->from + at, n, s->stream);
    }
  }
  if (s->stream) _mm_sfence();
}

// Ranges of the i-th host, read where it added them up.
static at_status take_ranges(run *r, uint32_t i) {
  for (const group *g = r->a->groups, *e = g + r->a->num_groups; g < e; g++) {
    uint32_t p = 0;
    while (p < g->num_parts && r->a->parts[g->parts + p].host != r->a->hosts[i])
      p++;
    enter(r, g);
    for (uint32_t v = 0; p < g->num_parts && v < r->values; v++) {
      spread s = {.r = r,
                  .g = g,
                  .value = v,
                  .stream = r->k->values[v].result_bytes *
                                r->task->loaded->num_devices >=
                            AT_EXCHANGE_STREAM};
      at_far_range(r->k, v, p, g->num_parts, &s.begin, &s.end);
      if (s.begin == s.end) continue;
      AT_TRY(read_entry(r, i, lead_of(r, g, p), v, s.end - s.begin, &s.from));
      at_pool_for(r->pool,
                  (int64_t)at_ceil_div(s.end - s.begin, (uint64_t)kChunk), 1,
                  spread_chunks, &s);
    }
  }
  return AT_OK;
}

// ---- Rows of any number
static void start_rows(run *r) {
  for (uint32_t i = 0; i < r->task->loaded->num_devices; i++) {
    void *const *bufs = r->bufs[r->f->mine[i]];
    memcpy(bufs[kRaggedResult], bufs[1], r->k->values->result_bytes);
  }
}

// Rows for takers here, straight from the givers' memory.
static at_status take_rows(run *r, const group *g) {
  const at_x_exchange *x = r->k->values;
  AT_TRY(at_ragged_check(x, g->size));
  for (uint32_t m = 0; m < g->size; m++)
    for (uint64_t i = 0; i < x->lines; i++) {
      at_ragged_rows rows;
      AT_TRY(at_ragged_rows_of(x, r->members[m], m, g->size, i, &rows));
      uint32_t taker = r->k->members[g->begin + rows.taker];
      if (r->f->host_of[taker] == r->task->loaded->runtime->hosts->me)
        memcpy((uint8_t *)r->bufs[taker][kRaggedResult] + rows.to,
               (const uint8_t *)r->members[m][0] + rows.from, rows.bytes);
    }
  return AT_OK;
}

// ---- All of it
static at_status run_group(run *r, const group *g) {
  enter(r, g);
  if (is_ragged(r)) return take_rows(r, g);
  bool alone = g->num_parts == 1;
  if (!alone && r->k->x->kind == AT_COLL_ALL_REDUCE)
    return all_reduce(r, g), AT_OK;
  if (!alone && r->k->x->kind == AT_COLL_REDUCE_SCATTER) {
    for (uint32_t v = 0; v < r->values; v++) AT_TRY(reduce_scatter(r, g, v));
    return AT_OK;
  }
  return at_exchange(r->k, r->members, g->begin, g->size, r->pool);
}

// Groups with a member here.
static at_status run_groups(run *r) {
  if (is_ragged(r))
    start_rows(r);
  else
    at_far_write_zeros(r->task, r->op);
  for (uint32_t i = 0; i < r->a->num_groups; i++)
    AT_TRY(run_group(r, &r->a->groups[i]));
  return AT_OK;
}

// Offer, hear, move, and for split sums once more; then the others are told
// that nothing is read any more.
static at_status exchange(run *r, uint32_t slot) {
  const at_far_among *a = r->a;
  AT_TRY(take_stage(r, slot));
  offer_operands(r);
  AT_TRY(hear(r, AT_HOSTS_READY));
  for (uint32_t i = 0; i < a->num_hosts; i++) AT_TRY(find_operands_of(r, i));
  AT_TRY(run_groups(r));
  if (a->split) {
    offer_ranges(r);
    AT_TRY(hear(r, AT_HOSTS_SUMMED));
    for (uint32_t i = 0; i < a->num_hosts; i++) AT_TRY(take_ranges(r, i));
  }
  at_runtime *rt = r->task->loaded->runtime;
  at_lane_block(rt);
  at_status st = r->face->finish(r->channel, a->hosts, a->num_hosts, r->waits);
  at_lane_unblock(rt);
  return st;
}

// `end` follows every successful `begin`, also after a failure.
static at_status meet(run *r) {
  at_hosts_tag tag = at_far_next_turn(r->task, r->op);
  at_runtime *rt = r->task->loaded->runtime;
  uint32_t slot;
  memset(r->bufs, 0, r->f->num_devices * sizeof *r->bufs);
  for (uint32_t i = 0; i < r->task->loaded->num_devices; i++)
    r->bufs[r->f->mine[i]] = r->task->parts[i].cursor->frame.bufs + r->op->args;
  if (!r->a->num_hosts) return run_groups(r);
  memset(r->tables, 0,
         (r->f->num_devices - r->task->loaded->num_devices) *
             (r->operands + r->values) * sizeof *r->tables);
  at_lane_block(rt);
  at_status st = r->face->begin(r->channel, &tag, &slot);
  at_lane_unblock(rt);
  if (st.err) return st;
  st = exchange(r, slot);
  r->face->end(r->channel);
  if (r->block) at_shared_give(r->shared, r->block, r->stage_bytes);
  return st;
}

// Helpers do not pay where the other processes need their cores.
static at_pool *pool_for(const at_runtime *rt, const at_coll *k,
                         at_pool *pool) {
  uint64_t bytes = 0;
  for (uint32_t v = 0; v < k->x->num_values; v++)
    bytes += AT_MAX(k->values[v].operand_bytes, k->values[v].result_bytes);
  return rt->hosts->share->crowded && bytes < kHelped ? rt->serial : pool;
}

// Tables come from the first chip's scratch.
at_status at_far_run_shared(at_task *t, const at_op *op, at_pool *pool) {
  const at_loaded *l = t->loaded;
  const at_coll *k = l->colls[op->target].whole;
  at_runtime *rt = l->runtime;
  bool ragged = k->x->kind == AT_COLL_RAGGED_ALL_TO_ALL;
  run r = {.task = t,
           .op = op,
           .k = k,
           .a = l->colls[op->target].among,
           .f = l->far,
           .pool = pool_for(rt, k, pool),
           .face = rt->hosts->share,
           .channel = l->far->channel->face,
           .shared = rt->shared,
           .operands = ragged ? (uint32_t)kRaggedResult : k->x->num_values,
           .values = ragged ? (uint32_t)kRaggedSlots : k->x->num_values};
  at_chip *chip = t->parts[0].chip;
  uint64_t bytes = lay_out(&r, NULL);
  void *block;
  AT_TRY(at_chip_take_scratch(chip, bytes, false, &block));
  lay_out(&r, block);
  at_status st = meet(&r);
  at_chip_give_scratch(chip, block, bytes, false);
  return st;
}

// Programs whose devices belong to several processes. All devices of this host
// meet at every collective; the last to arrive swaps operands with the other
// hosts and then does what one process would do: the groups in which this host
// has a device, on all their members' operands. Bits are those of one process.
#include <stdlib.h>

#include "exec/exec_internal.h"

enum { kAlign = 64 };

void *at_hosts_block(size_t bytes) {
  if (bytes > SIZE_MAX - kAlign) return NULL;
  return aligned_alloc(kAlign, at_align_up(AT_MAX(bytes, 1u), kAlign));
}

static at_status no_memory(void) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory to talk to other hosts");
}

// ---- Which devices are here
// -----------------------------------------------------------------
void at_far_free(at_loaded *l) {
  for (uint32_t i = 0; l->far && i < l->num_colls; i++) free(l->colls[i].whole);
  if (l->far) free(l->far->host_of);
  free(l->far);
  l->far = NULL;
}

static at_status place_devices(const at_loaded *l, at_chip *const *chips,
                               at_far *f) {
  const at_hosts *h = l->runtime->hosts;
  uint32_t n = f->num_devices = l->num_devices, each = n / h->count;
  f->host_of = calloc(3 * (size_t)n + h->count, sizeof *f->host_of);
  if (!f->host_of) return no_memory();
  f->place_of = f->host_of + n;
  f->mine = f->place_of + n;
  uint32_t *count = f->mine + n;
  for (uint32_t d = 0; d < n; d++) {
    uint32_t host = f->host_of[d] = chips[d]->info.host;
    f->place_of[d] = count[host]++;
    if (host == h->me) f->mine[f->place_of[d]] = d;
  }
  for (uint32_t i = 0; i < h->count; i++)
    if (n % h->count || count[i] != each)
      return AT_FAIL(
          AT_UNIMPLEMENTED,
          "%s runs on %u of its %u devices on process %u\nhint: a "
          "program over several processes needs equally many devices "
          "of each of the %u",
          at_loaded_string(l, l->header->name), count[i], n, i, h->count);
  return AT_OK;
}

static at_status span_step(at_loaded *l, at_op *op, uint32_t places) {
  if (op->kind == AT_STEP_CORE && op->meets)
    return AT_FAIL(AT_UNIMPLEMENTED,
                   "%s: a Pallas kernel that talks to other devices, in a "
                   "program over several processes",
                   at_loaded_string(l, l->header->name));
  if (op->kind != AT_STEP_COLLECTIVE && op->kind != AT_STEP_START) return AT_OK;
  at_coll *k = &l->colls[op->target], here;
  for (uint32_t i = 0; k->sparse && i < places; i++)
    if (l->far->mine[i] != l->runtime->hosts->me * places + i)
      return AT_FAIL(AT_UNIMPLEMENTED,
                     "%s: SparseCores of several processes, whose devices are "
                     "not numbered process by process",
                     at_loaded_string(l, l->header->name));
  k->whole = malloc(sizeof *k->whole);
  if (!k->whole) return no_memory();
  *k->whole = *k;
  AT_TRY(at_coll_everyone(places, &here));
  k->group_of = here.group_of;
  k->rank_of = here.rank_of;
  k->begin_of = here.begin_of;
  k->size_of = here.size_of;
  k->members = here.members;
  k->owned = here.owned;
  return AT_OK;
}

// What hosts call the program to each other: its name and what it exchanges.
// Code is not part of it: hosts may have different CPUs.
static uint64_t name_program(const at_loaded *l) {
  const at_xstep *steps =
      (const void *)(l->block + l->header->sections[AT_XS_STEPS].offset);
  const char *name = at_loaded_string(l, l->header->name);
  uint64_t hash = at_hash(AT_HASH_SEED, name, strlen(name));
  for (uint32_t i = 0; i < l->num_ops; i++) {
    if (!l->ops[i].meets || l->ops[i].kind == AT_STEP_DONE) continue;
    const at_x_collective *x = l->colls[l->ops[i].target].x;
    const char *texts[] = {at_loaded_string(l, steps[i].op_name),
                           at_loaded_string(l, steps[i].hlo)};
    for (size_t k = 0; k < AT_LEN(texts); k++)
      hash = at_hash(hash, texts[k], strlen(texts[k]));
    hash = at_hash(hash, x, at_x_collective_bytes(x));
  }
  return hash;
}

at_status at_loaded_span(at_loaded *l, at_chip *const *chips) {
  AT_ENSURE(l->runtime->hosts && !l->far);
  l->far = calloc(1, sizeof *l->far);
  if (!l->far) return no_memory();
  AT_TRY(place_devices(l, chips, l->far));
  l->far->program = name_program(l);
  uint32_t places = l->num_devices / l->runtime->hosts->count;
  for (uint32_t i = 0; i < l->num_ops; i++)
    AT_TRY(span_step(l, &l->ops[i], places));
  l->num_devices = places;
  return AT_OK;
}

// ---- Messages
// -----------------------------------------------------------------
static at_status swap(at_task *t, const at_op *op, const at_bytes *send,
                      at_bytes *recv) {
  const at_loaded *l = t->loaded;
  const at_hosts *h = l->runtime->hosts;
  at_hosts_tag tag = {.launch = t->far_launch,
                      .program = l->far->program,
                      .step = (uint32_t)(op - l->ops),
                      .turn = t->meetings[l->colls[op->target].turns]++};
  at_lane_block(l->runtime);
  at_status st = h->exchange(h->arg, &tag, send, recv);
  at_lane_unblock(l->runtime);
  return st;
}

static void drop(void **held, uint32_t hosts) {
  for (uint32_t i = 0; i < hosts; i++) {
    free(held[i]);
    held[i] = NULL;
  }
}

static at_status call_exchange(void *arg, const at_bytes *send,
                               at_bytes *recv) {
  at_far_call *c = arg;
  const at_hosts *h = c->task->loaded->runtime->hosts;
  drop(c->held, h->count);
  AT_TRY(swap(c->task, c->op, send, recv));
  for (uint32_t i = 0; i < h->count; i++)
    if (i != h->me) c->held[i] = (void *)recv[i].ptr;
  return AT_OK;
}

at_status at_far_call_begin(at_cursor *c, const at_op *op, at_far_call *call,
                            at_sc_hosts *out) {
  const at_hosts *h = c->frame.loaded->runtime->hosts;
  *call = (at_far_call){.task = c->part->task,
                        .op = op,
                        .held = calloc(h->count, sizeof(void *))};
  if (!call->held) return no_memory();
  *out = (at_sc_hosts){
      .count = h->count, .me = h->me, .arg = call, .exchange = call_exchange};
  return AT_OK;
}

void at_far_call_end(at_far_call *call) {
  drop(call->held, call->task->loaded->runtime->hosts->count);
  free(call->held);
}

// ---- Collectives
// -----------------------------------------------------------------
// One collective, by the tables of all hosts.
typedef struct meeting {
  at_task *task;
  const at_op *op;
  const at_coll *whole;
  const at_far *far;
  uint32_t operands, results;
  void ***bufs;  // by device, operands and then results; NULL: not needed here
  uint8_t *unread;  // results of other hosts' devices
} meeting;

static uint64_t operand_bytes(const at_coll *k, uint32_t i) {
  const at_x_exchange *x = &k->values[i];
  if (k->x->kind != AT_COLL_RAGGED_ALL_TO_ALL) return x->operand_bytes;
  x = k->values;
  if (i < 2) return i ? x->result_bytes : x->operand_bytes;
  return x->lines * x->index_bytes;
}

// Operands, or results, of one device: each begins at 64 bytes.
static uint64_t bytes_of(const meeting *m, bool results) {
  uint64_t n = 0;
  for (uint32_t i = 0; i < (results ? m->results : m->operands); i++)
    n += at_align_up(
        results ? m->whole->values[i].result_bytes : operand_bytes(m->whole, i),
        kAlign);
  return n;
}

// Is the device in a group with one of the host's?
static bool is_wanted(const meeting *m, uint32_t device, uint32_t host) {
  const at_coll *k = m->whole;
  if (k->group_of[device] == UINT32_MAX) return false;
  for (uint32_t i = 0; i < k->size_of[device]; i++)
    if (m->far->host_of[k->members[k->begin_of[device] + i]] == host)
      return true;
  return false;
}

static uint32_t count_wanted(const meeting *m, uint32_t from, uint32_t to) {
  uint32_t n = 0;
  for (uint32_t d = 0; d < m->far->num_devices; d++)
    n += m->far->host_of[d] == from && is_wanted(m, d, to);
  return n;
}

static void pack_device(const meeting *m, uint32_t device, uint8_t *out) {
  for (uint32_t i = 0; i < m->operands; i++) {
    uint64_t n = operand_bytes(m->whole, i);
    memcpy(out, m->bufs[device][i], n);
    out += at_align_up(n, kAlign);
  }
}

static at_status pack(const meeting *m, uint32_t me, uint32_t host,
                      at_bytes *out) {
  uint64_t each = bytes_of(m, false), n = count_wanted(m, me, host) * each;
  uint8_t *p = calloc(1, n + 1);
  if (!p) return no_memory();
  *out = (at_bytes){p, n};
  for (uint32_t d = 0; d < m->far->num_devices; d++) {
    if (m->far->host_of[d] != me || !is_wanted(m, d, host)) continue;
    pack_device(m, d, p);
    p += each;
  }
  return AT_OK;
}

// Where operands of another host's devices lie, and nobody's results.
static at_status unpack(meeting *m, uint32_t me, uint32_t host, at_bytes in,
                        void **table, uint8_t *unread) {
  uint64_t each = bytes_of(m, false), row = m->operands + m->results;
  if (in.len != count_wanted(m, host, me) * each)
    return AT_FAIL(
        AT_INTERNAL, "process %u sent %zu bytes for a collective, not %llu",
        host, in.len, (unsigned long long)(count_wanted(m, host, me) * each));
  const uint8_t *p = in.ptr;
  for (uint32_t d = 0; d < m->far->num_devices; d++) {
    if (m->far->host_of[d] != host || !is_wanted(m, d, me)) continue;
    void **b = m->bufs[d] = &table[d * row];
    for (uint32_t i = 0; i < m->operands; i++) {
      b[i] = (void *)p;
      p += at_align_up(operand_bytes(m->whole, i), kAlign);
    }
    uint8_t *r = unread + d * bytes_of(m, true);
    for (uint32_t i = 0; i < m->results; i++) {
      b[m->operands + i] = r;
      r += at_align_up(m->whole->values[i].result_bytes, kAlign);
    }
  }
  return AT_OK;
}

// Groups with a device of this host, each where its first one stands.
static at_status run_groups(const meeting *m, at_pool *pool) {
  const at_coll *k = m->whole;
  const at_loaded *l = m->task->loaded;
  void *const **bufs = calloc(m->far->num_devices, sizeof *bufs);
  at_status st = bufs ? AT_OK : no_memory();
  for (uint32_t p = 0; p < l->num_devices && !st.err; p++) {
    uint32_t device = m->far->mine[p];
    if (k->group_of[device] == UINT32_MAX) {
      for (uint32_t i = 0; i < m->results; i++)
        memset(m->bufs[device][m->operands + i], 0, k->values[i].result_bytes);
      continue;
    }
    uint32_t begin = k->begin_of[device], size = k->size_of[device], first = 0;
    while (m->far->host_of[k->members[begin + first]] != l->runtime->hosts->me)
      first++;
    if (k->members[begin + first] != device) continue;
    for (uint32_t i = 0; i < size; i++)
      bufs[i] = m->bufs[k->members[begin + i]];
    st = at_exchange(k, (void *const *const *)bufs, begin, size, pool);
  }
  free(bufs);
  return st;
}

static at_status run_meeting(meeting *m, at_bytes *send, at_bytes *recv,
                             void **table, at_pool *pool) {
  const at_hosts *h = m->task->loaded->runtime->hosts;
  uint32_t me = h->me;
  for (uint32_t i = 0; i < h->count; i++)
    if (i != me) AT_TRY(pack(m, me, i, &send[i]));
  uint8_t *unread = m->unread =
      at_hosts_block(m->far->num_devices * bytes_of(m, true));
  if (!unread) return no_memory();
  AT_TRY(swap(m->task, m->op, send, recv));
  for (uint32_t i = 0; i < h->count; i++)
    if (i != me) AT_TRY(unpack(m, me, i, recv[i], table, unread));
  return run_groups(m, pool);
}

at_status at_far_run(at_cursor *c, const at_op *op, at_pool *pool) {
  const at_loaded *l = c->frame.loaded;
  const at_hosts *h = l->runtime->hosts;
  const at_coll *k = l->colls[op->target].whole;
  bool ragged = k->x->kind == AT_COLL_RAGGED_ALL_TO_ALL;
  meeting m = {.task = c->part->task,
               .op = op,
               .whole = k,
               .far = l->far,
               .operands = ragged ? 6 : k->x->num_values,
               .results = k->x->num_values};
  uint32_t n = l->far->num_devices;
  m.bufs = calloc(n, sizeof *m.bufs);
  void **table = calloc((size_t)n * (m.operands + m.results), sizeof *table);
  at_bytes *send = calloc(2 * (size_t)h->count, sizeof *send);
  at_bytes *recv = send + h->count;
  at_status st = m.bufs && table && send ? AT_OK : no_memory();
  for (uint32_t p = 0; p < l->num_devices && !st.err; p++)
    m.bufs[l->far->mine[p]] = m.task->parts[p].cursor->frame.bufs + op->args;
  if (!st.err) st = run_meeting(&m, send, recv, table, pool);
  for (uint32_t i = 0; send && i < h->count; i++) {
    free((void *)send[i].ptr);
    free((void *)recv[i].ptr);
  }
  free(m.unread);
  free(send);
  free(table);
  free(m.bufs);
  return st;
}

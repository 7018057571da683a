// The collective whose sizes only the senders know. A message has, for each
// entry of an operand here for a member there, its place in that member's
// result, how many bytes it is, and those; in the order of groups, givers and
// entries, which both ends go through alike.
#include <stdlib.h>

#include "exec/exec_internal.h"

enum { kOutput = 1, kResult = 6 };  // of a device's buffers

typedef struct entry {
  uint64_t to, bytes;
} entry;

typedef struct ragged {
  at_task *task;
  const at_op *op;
  const at_coll *k;  // by the tables of all hosts
  const at_x_exchange *x;
  uint32_t me, num_others;
  uint64_t most;  // pieces of a message
  at_hosts_mail *mails;
  at_bytes *out;       // `most` of each mail
  entry *entries;      // likewise, one for two
  size_t *read;        // of the block of each mail
  void *const **bufs;  // by device; NULL: of another host
} ragged;

static uint32_t host_of(const ragged *r, uint32_t device) {
  return r->task->loaded->far->host_of[device];
}

// The host is one of the others.
static uint32_t mail_of(const ragged *r, uint32_t host) {
  uint32_t i = 0;
  while (r->mails[i].host != host) i++;
  return i;
}

typedef at_status (*giver_fn)(ragged *r, uint32_t begin, uint32_t size,
                              uint32_t giver);

// All givers of groups that have a device here.
static at_status each_giver(ragged *r, giver_fn fn) {
  const at_coll *k = r->k;
  for (uint32_t d = 0; d < k->x->num_devices; d++) {
    if (k->group_of[d] == UINT32_MAX || k->rank_of[d]) continue;
    uint32_t begin = k->begin_of[d], size = k->size_of[d];
    bool here = false;
    for (uint32_t m = 0; m < size; m++)
      here |= r->bufs[k->members[begin + m]] != NULL;
    AT_TRY(at_ragged_check(r->x, size));
    for (uint32_t m = 0; here && m < size; m++) AT_TRY(fn(r, begin, size, m));
  }
  return AT_OK;
}

// ---- Out
static void add_piece(at_hosts_mail *m, const void *p, uint64_t bytes) {
  at_bytes *out = (at_bytes *)m->out;
  out[m->num_out++] = (at_bytes){p, bytes};
}

// Giver's rows for members of other hosts, behind their entries.
static at_status pack(ragged *r, uint32_t begin, uint32_t size,
                      uint32_t giver) {
  void *const *bufs = r->bufs[r->k->members[begin + giver]];
  for (uint64_t i = 0; bufs && i < r->x->lines; i++) {
    at_ragged_rows rows;
    AT_TRY(at_ragged_rows_of(r->x, bufs, giver, size, i, &rows));
    uint32_t host = host_of(r, r->k->members[begin + rows.taker]);
    if (host == r->me) continue;
    uint32_t at = mail_of(r, host);
    at_hosts_mail *m = &r->mails[at];
    entry *e = &r->entries[at * (r->most / 2) + m->num_out / 2];
    *e = (entry){rows.to, rows.bytes};
    add_piece(m, e, sizeof *e);
    add_piece(m, (const uint8_t *)bufs[0] + rows.from, rows.bytes);
  }
  return AT_OK;
}

// ---- In
static at_status start(ragged *r, uint32_t begin, uint32_t size,
                       uint32_t giver) {
  void *const *bufs = r->bufs[r->k->members[begin + giver]];
  if (bufs) memcpy(bufs[kResult], bufs[kOutput], r->x->result_bytes);
  return AT_OK;
}

// A giver here: rows for takers here, without a message.
static at_status take_own(ragged *r, uint32_t begin, uint32_t size,
                          uint32_t giver) {
  void *const *bufs = r->bufs[r->k->members[begin + giver]];
  for (uint64_t i = 0; i < r->x->lines; i++) {
    at_ragged_rows rows;
    AT_TRY(at_ragged_rows_of(r->x, bufs, giver, size, i, &rows));
    void *const *to = r->bufs[r->k->members[begin + rows.taker]];
    if (to)
      memcpy((uint8_t *)to[kResult] + rows.to,
             (const uint8_t *)bufs[0] + rows.from, rows.bytes);
  }
  return AT_OK;
}

// The next entry of mail `at`: INTERNAL if it does not fit the result. Nothing
// that the other host says is used unchecked.
static at_status take_entry(ragged *r, uint32_t at, uint8_t *result) {
  at_bytes b = r->mails[at].block;
  entry e = {0};
  size_t left = b.len - r->read[at];
  bool good = left >= sizeof e;
  if (good) memcpy(&e, b.ptr + r->read[at], sizeof e);
  good = good && e.bytes <= left - sizeof e && e.to <= r->x->result_bytes &&
         e.bytes <= r->x->result_bytes - e.to;
  if (!good)
    return AT_FAIL(
        AT_INTERNAL,
        "process %u sent rows of a ragged_all_to_all that do not fit",
        r->mails[at].host);
  memcpy(result + e.to, b.ptr + r->read[at] + sizeof e, e.bytes);
  r->read[at] += sizeof e + e.bytes;
  return AT_OK;
}

// A giver elsewhere: as many entries as it sends to takers here, in the order
// in which it packed them.
static at_status take(ragged *r, uint32_t begin, uint32_t size,
                      uint32_t giver) {
  uint32_t device = r->k->members[begin + giver];
  if (r->bufs[device]) return take_own(r, begin, size, giver);
  uint32_t at = mail_of(r, host_of(r, device));
  uint64_t each = r->x->lines / size;
  for (uint64_t i = 0; i < each * size; i++) {
    void *const *to = r->bufs[r->k->members[begin + i / each]];
    if (to) AT_TRY(take_entry(r, at, to[kResult]));
  }
  return AT_OK;
}

// ---- All of it
static at_status prepare(ragged *r, void **out_block) {
  const at_loaded *l = r->task->loaded;
  uint64_t n = r->num_others, pieces = at_mul(n, r->most);
  size_t bytes = at_add(n * (sizeof *r->mails + sizeof *r->read),
                        r->k->x->num_devices * sizeof *r->bufs);
  bytes = at_add(bytes, at_mul(pieces, sizeof *r->out));
  bytes = at_add(bytes, at_mul(pieces / 2, sizeof *r->entries));
  uint8_t *p = *out_block = bytes == SIZE_MAX ? NULL : calloc(1, bytes);
  if (!p) return at_far_no_memory();
  r->mails = (at_hosts_mail *)p;
  r->read = (size_t *)(r->mails + n);
  r->bufs = (void *const **)(r->read + n);
  r->out = (at_bytes *)(r->bufs + r->k->x->num_devices);
  r->entries = (entry *)(r->out + pieces);
  for (uint32_t i = 0; i < l->num_devices; i++)
    r->bufs[l->far->mine[i]] =
        r->task->parts[i].cursor->frame.bufs + r->op->args;
  for (uint32_t i = 0; i < n; i++)
    r->mails[i] =
        (at_hosts_mail){.host = l->far->others[i], .out = r->out + i * r->most};
  return AT_OK;
}

// Out, results begin, in.
static at_status exchange_rows(ragged *r) {
  at_hosts_tag tag = at_far_next_turn(r->task, r->op);
  AT_TRY(each_giver(r, pack));
  AT_TRY(at_far_swap(r->task, &tag, r->mails, r->num_others));
  AT_TRY(each_giver(r, start));
  return each_giver(r, take);
}

// One block for all tables; messages that came are freed.
at_status at_far_run_ragged(at_task *t, const at_op *op) {
  const at_loaded *l = t->loaded;
  const at_coll *k = l->colls[op->target].whole;
  ragged r = {.task = t,
              .op = op,
              .k = k,
              .x = k->values,
              .me = l->runtime->hosts->me,
              .num_others = l->far->num_others,
              .most = 2 * k->values->lines * l->num_devices};
  void *block;
  AT_TRY(prepare(&r, &block));
  at_status st = exchange_rows(&r);
  for (uint32_t i = 0; i < r.num_others; i++)
    free((void *)r.mails[i].block.ptr);
  free(block);
  return st;
}

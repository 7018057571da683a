// Arrays that go from a chip of one process to a chip of another, outside of
// programs. Both ends know the transfer by the same key; each has a fiber that
// waits for its array and talks to the other process.
//
// Where the processes share memory, the receiver copies the array from where it
// lies. The sender keeps it there until the receiver has answered; if it gives
// up before, it says so on the transfer's mark, which the receiver reads when
// it has copied: what it has then is the array, or it fails.
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "exec/exec_internal.h"

// Of the tags of transfers: no set of processes has this name (far.c).
static const uint64_t kTransfers = UINT64_MAX;

enum {
  kMapped = 8 << 10,  // from here on an array is made where others can read it
  kMark = 64,         // of a block; what lies before is the free list's
  kMarkBlock = 128
};

// The sender's message begins with a loan; the bytes follow where they cannot
// be read in place, and its places are UINT64_MAX.
static const at_loan kNoLoan = {UINT64_MAX, UINT64_MAX};

typedef struct remote {
  at_buffer *buffer;  // held
  uint32_t host;
  uint64_t key;
  bool sends;
  at_event *done;  // referenced
} remote;

// ---- Memory that both ends map
// The next arrays of this size can be read by other processes.
static void share_blocks(at_chip *c, uint64_t bytes) {
  pthread_mutex_lock(&c->lock);
  at_blocks_share(c->blocks, c->runtime->shared, bytes);
  pthread_mutex_unlock(&c->lock);
}

// Small arrays are sent: a loan costs two exchanges.
static bool is_shared_with(const at_buffer *b, uint32_t host) {
  const at_runtime *rt = b->chip->runtime;
  const at_hosts_share *s = rt->hosts->share;
  const uint32_t both[2] = {rt->hosts->me, host};
  return s && rt->shared && b->bytes >= kMapped && s->among(s->arg, both, 2);
}

static uint64_t mark_of(uint64_t key) { return 2 * key + 1; }  // never 0

// The mark holds the key while the loan lasts: the borrower reads it after the
// bytes.
bool at_buffer_lend(at_buffer *b, uint32_t host, uint64_t key, at_loan *out) {
  at_chip *c = b->chip;
  at_shared *s = c->runtime->shared;
  if (!is_shared_with(b, host)) return false;
  const uint64_t array = at_shared_offset(s, b->data, b->bytes);
  if (array == UINT64_MAX) return share_blocks(c, b->bytes), false;
  uint8_t *block = at_shared_take(s, kMarkBlock);
  if (!block) return false;
  _Atomic uint64_t *mark = (_Atomic uint64_t *)(block + kMark);
  atomic_store(mark, mark_of(key));
  *out = (at_loan){array, at_shared_offset(s, mark, sizeof *mark)};
  return true;
}

// The mark is cleared before its block goes back.
void at_loan_end(at_runtime *rt, const at_loan *l) {
  uint8_t *mark = at_shared_at(rt->shared, l->mark);
  atomic_store((_Atomic uint64_t *)mark, 0);
  at_shared_give(rt->shared, mark - kMark, kMarkBlock);
}

// NULL: it does not lie in the map.
static const uint8_t *lies_at(at_bytes map, uint64_t at, uint64_t bytes) {
  return at <= map.len && bytes <= map.len - at ? map.ptr + at : NULL;
}

// INTERNAL: what the other process says cannot be.
static at_status malformed(uint32_t host) {
  return AT_FAIL(AT_INTERNAL, "process %u sent an array of another size", host);
}

// Reads array and mark at checked places. The fence orders the bytes before the
// mark.
static at_status copy_lent(const at_buffer *b, uint32_t host, uint64_t key,
                           const at_loan *l) {
  const at_hosts_share *s = b->chip->runtime->hosts->share;
  if (!s) return malformed(host);
  const uint8_t *from = lies_at(s->maps[host], l->array, b->bytes);
  const uint8_t *mark = lies_at(s->maps[host], l->mark, sizeof(uint64_t));
  if (!from || !mark || (uintptr_t)mark % sizeof(uint64_t))
    return malformed(host);
  memcpy(b->data, from, b->bytes);
  atomic_thread_fence(memory_order_seq_cst);
  if (atomic_load((const _Atomic uint64_t *)mark) == mark_of(key)) return AT_OK;
  return AT_FAIL(AT_DATA_LOSS, "process %u gave a transfer up", host);
}

// INVALID_ARGUMENT: no other process has that number.
static at_status check_host(const at_runtime *rt, uint32_t host) {
  AT_TRY(at_runtime_check(rt));
  if (rt->hosts && host < rt->hosts->count && host != rt->hosts->me)
    return AT_OK;
  return AT_FAIL(AT_INVALID_ARGUMENT, "process %u is not another one", host);
}

// Never waits for the lender.
at_status at_buffer_copy_lent(at_buffer *b, uint32_t host, uint64_t key,
                              const at_loan *l) {
  const uint64_t start = at_clock_ns();
  AT_TRY(check_host(b->chip->runtime, host));
  AT_TRY(copy_lent(b, host, key, l));
  at_transfer_record(b->chip, start, b->bytes, "process to device");
  return AT_OK;
}

// By loan or by bytes; sizes must agree.
static at_status open_parcel(const remote *r, at_bytes b, at_loan *out) {
  const at_buffer *to = r->buffer;
  if (b.len < sizeof *out) return malformed(r->host);
  memcpy(out, b.ptr, sizeof *out);
  if (out->array != UINT64_MAX) return copy_lent(to, r->host, r->key, out);
  if (b.len - sizeof *out != to->bytes) return malformed(r->host);
  if (to->bytes) memcpy(to->data, b.ptr + sizeof *out, to->bytes);
  return AT_OK;
}

// ---- Both ends
// One exchange; block: what comes, else nothing does.
static at_status swap(const remote *r, at_hosts_tag tag, const at_bytes *out,
                      uint32_t num_out, at_bytes *block) {
  const at_hosts *h = r->buffer->chip->runtime->hosts;
  at_hosts_into none = {0};
  at_hosts_mail mail = {.host = r->host,
                        .num_out = num_out,
                        .out = out,
                        .in = block ? NULL : &none};
  at_status st = h->exchange(h->arg, &tag, &mail, 1);
  if (block) *block = mail.block;
  return st;
}

// In place, there is a second exchange when the array has been copied.
static at_status give(const remote *r, at_hosts_tag tag) {
  at_loan l = kNoLoan;
  const bool lent = at_buffer_lend(r->buffer, r->host, r->key, &l);
  const at_bytes out[2] = {{(const uint8_t *)&l, sizeof l},
                           {r->buffer->data, r->buffer->bytes}};
  at_status st = swap(r, tag, out, lent ? 1 : 2, NULL);
  tag.step++;
  if (!st.err && lent) st = swap(r, tag, NULL, 0, NULL);
  if (lent) at_loan_end(r->buffer->chip->runtime, &l);
  return st;
}

// The array is defined before the sender may overwrite it.
static at_status get(const remote *r, at_hosts_tag tag) {
  at_bytes block;
  at_loan l = kNoLoan;
  AT_TRY(swap(r, tag, NULL, 0, &block));
  at_status st = open_parcel(r, block, &l);
  free((void *)block.ptr);
  tag.step++;
  if (!st.err) at_event_fire(r->done, AT_OK);  // before the sender hears of it
  if (!st.err && l.array != UINT64_MAX) st = swap(r, tag, NULL, 0, NULL);
  return st;
}

// On a fiber, either end. Waits for the sender's array, keeps its memory in
// place while others read it, and tells the other process why when it fails.
// Fires `done` and gives back what `start` took.
static void remote_main(void *arg) {
  remote *r = arg;
  at_chip *c = r->buffer->chip;
  const at_hosts *h = c->runtime->hosts;
  at_hosts_tag tag = {.group = kTransfers, .launch = r->key};
  at_status st = r->sends ? at_event_wait(r->buffer->ready) : AT_OK;
  bool pinned = r->sends && !st.err;
  if (pinned) st = at_chip_pin(c, r->buffer);
  pinned &= !st.err;
  uint64_t start = at_clock_ns();
  if (!st.err) st = r->sends ? give(r, tag) : get(r, tag);
  if (st.err) h->fail(h->arg, &tag, &r->host, 1, st);
  at_transfer_record(c, start, r->buffer->bytes,
                     r->sends ? "device to process" : "process to device");
  at_event_fire(r->done, st);
  if (pinned || !r->sends) at_chip_unpin(c, r->buffer);
  at_event_release(r->done);
  at_buffer_unhold(r->buffer);
  at_chip_transfer_end(c);
  atomic_fetch_sub(&c->runtime->far_work, 1);
  free(r);
}

// Takes over one hold of the buffer; gives it back on failure.
static at_status start(at_buffer *b, uint32_t host, uint64_t key, bool sends,
                       at_event *done) {
  remote *r = malloc(sizeof *r);
  at_status st =
      r ? AT_OK : AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a transfer");
  if (!st.err) {
    *r = (remote){b, host, key, sends, at_event_retain(done)};
    at_chip_transfer_begin(b->chip);
    atomic_fetch_add(&b->chip->runtime->far_work, 1);
    st = at_sched_spawn(b->chip->runtime->sched, remote_main, r);
    if (!st.err) return AT_OK;
    atomic_fetch_sub(&b->chip->runtime->far_work, 1);
    at_chip_transfer_end(b->chip);
    at_event_release(done);
    free(r);
  }
  at_buffer_unhold(b);
  return st;
}

// Holds b until it has been sent.
at_status at_buffer_send(at_buffer *b, uint32_t host, uint64_t key,
                         at_event **out_done) {
  AT_TRY(check_host(b->chip->runtime, host));
  if (!at_buffer_hold(b))
    return AT_FAIL(AT_INVALID_ARGUMENT, "buffer has been deleted or donated");
  at_event *done = at_event_create();
  if (!done) {
    at_buffer_unhold(b);
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for an event");
  }
  at_status st = start(b, host, key, true, done);
  if (st.err)
    at_event_release(done);
  else
    *out_done = done;
  return st;
}

// On failure the buffer is released with what it holds.
at_status at_buffer_receive(at_chip *c, at_memory_kind k, at_dtype t,
                            at_dims dims, uint32_t host, uint64_t key,
                            at_buffer **out) {
  AT_TRY(check_host(c->runtime, host));
  at_buffer *b;
  AT_TRY(at_buffer_make(c, k, t, dims, at_event_create(), &b));
  at_status st = at_chip_allocate(c, b, false);
  if (!st.err) {
    at_buffer_hold(b);
    st = start(b, host, key, false, b->ready);
  }
  if (st.err)
    at_buffer_release(b);
  else
    *out = b;
  return st;
}

// The fiber defines b, whatever happens.
at_status at_buffer_receive_into(at_buffer *b, uint32_t host, uint64_t key) {
  AT_TRY(check_host(b->chip->runtime, host));
  if (at_buffer_hold(b)) return start(b, host, key, false, b->ready);
  return AT_FAIL(AT_INVALID_ARGUMENT, "buffer has been deleted or donated");
}

// The receiver's exchange fails with `why`.
at_status at_transfer_refuse(at_runtime *rt, uint32_t host, uint64_t key,
                             at_status why) {
  AT_TRY(check_host(rt, host));
  at_hosts_tag tag = {.group = kTransfers, .launch = key};
  rt->hosts->fail(rt->hosts->arg, &tag, &host, 1, why);
  return AT_OK;
}

// Arrays that go from a chip of one process to a chip of another, outside of
// programs. Both ends know the transfer by the same key; each has a fiber that
// waits for its array and talks to the other process.
#include <stdlib.h>

#include "base/clock.h"
#include "exec/exec_internal.h"

// Of the tags of transfers: no set of processes has this name (far.c).
static const uint64_t kTransfers = UINT64_MAX;

typedef struct remote {
  at_buffer *buffer;  // held
  uint32_t host;
  uint64_t key;
  bool sends;
  at_event *done;  // referenced
} remote;

static at_status talk(const remote *r, const at_hosts_tag *tag) {
  const at_hosts *h = r->buffer->chip->runtime->hosts;
  at_bytes out = {r->buffer->data, r->buffer->bytes};
  at_hosts_into in = {r->buffer->data, r->buffer->bytes};
  // The receiver's message is empty: it says that the array has come.
  at_hosts_mail mail = {.host = r->host,
                        .num_out = r->sends,
                        .num_in = !r->sends,
                        .out = &out,
                        .in = &in};
  return h->exchange(h->arg, tag, &mail, 1);
}

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
  if (!st.err) st = talk(r, &tag);
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

static at_status check_host(const at_runtime *rt, uint32_t host) {
  AT_TRY(at_runtime_check(rt));
  if (rt->hosts && host < rt->hosts->count && host != rt->hosts->me)
    return AT_OK;
  return AT_FAIL(AT_INVALID_ARGUMENT, "process %u is not another one", host);
}

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

at_status at_transfer_refuse(at_runtime *rt, uint32_t host, uint64_t key,
                             at_status why) {
  AT_TRY(check_host(rt, host));
  at_hosts_tag tag = {.group = kTransfers, .launch = key};
  rt->hosts->fail(rt->hosts->arg, &tag, &host, 1, why);
  return AT_OK;
}

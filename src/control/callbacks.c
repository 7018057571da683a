// Host callbacks of programs: what they send goes to the client, which runs the
// callback, and what they wait for comes from it.
#include <stdlib.h>
#include <string.h>

#include "control/host_internal.h"

enum { kControl = 16 << 10 };

// Of one channel on one device.
typedef struct end {
  callbacks *of;
  int64_t channel;
  uint32_t device;
} end;

struct callbacks {
  tenant *tenant;  // who makes the launch's notice keeps it
  uint64_t number;
  at_channel_list *lists;  // by place
  at_host_channel *channels;
  end *ends;
};

// An answer that the client owes.
typedef struct transfer {
  void *into;  // what it asks for; NULL: only a verdict
  uint64_t bytes;
  at_event *done;  // referenced
} transfer;

static at_status no_memory(void) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a host callback");
}

// Ends a transfer: whoever waits for it goes on with s, which is consumed. x is
// in no table any more.
static void settle(transfer *x, at_status s) {
  at_event_fire(x->done, s);
  at_event_release(x->done);
  free(x);
}

// Says `kind` to the client; `x` is settled when it answers.
static at_status say(const end *e, uint32_t kind, transfer *x,
                     at_msg_transfer m, at_bytes data) {
  tenant *t = e->of->tenant;
  m.launch = e->of->number;
  m.channel = e->channel;
  m.device = e->device;
  pthread_mutex_lock(&t->host->lock);
  uint64_t tag = t->next_tag++;
  bool left = t->left || t->mute;
  bool kept = !left && at_table_put(&t->pending, tag, x);
  pthread_mutex_unlock(&t->host->lock);
  if (left)
    return AT_FAIL(AT_CANCELLED, "the client of a host callback is gone");
  if (!kept) return no_memory();
  const at_bytes parts[] = {{(const uint8_t *)&m, sizeof m}, data};
  at_tenant_say(t, data.len <= kControl ? AT_WIRE_CONTROL : AT_WIRE_BULK, kind,
                tag, parts, data.len ? 2 : 1);
  return AT_OK;
}

// at_host_channel.send of a channel: the program waits here until the client
// has run its callback. On failure to ask, `x` is settled by hand, as nobody
// else knows of it.
static at_status send_out(void *user, const void *data, size_t bytes,
                          size_t total, bool done) {
  transfer *x = calloc(1, sizeof *x);
  at_event *answered = x ? at_event_create() : NULL;
  if (!answered) return free(x), no_memory();
  x->done = at_event_retain(answered);
  at_status st =
      say(user, AT_MSG_SENT, x,
          (at_msg_transfer){.done = done, .bytes = bytes, .total = total},
          (at_bytes){data, bytes});
  if (st.err)
    settle(x, AT_OK);
  else
    st = at_event_wait(answered);
  at_event_release(answered);
  return st;
}

// at_host_channel.recv of a channel: `done` fires when the bytes are in `to`,
// which stays valid until then.
static at_status receive(void *user, void *to, size_t bytes, at_event *done) {
  transfer *x = malloc(sizeof *x);
  if (!x) return no_memory();
  *x = (transfer){to, bytes, at_event_retain(done)};
  at_status st =
      say(user, AT_MSG_ASKS, x,
          (at_msg_transfer){.bytes = bytes, .total = bytes}, (at_bytes){0});
  if (!st.err) return st;
  at_event_release(x->done);
  free(x);
  return st;
}

// Channels of one device of the program; how many.
static uint32_t fill(callbacks *c, const at_msg_channel *all, uint32_t count,
                     uint32_t device, uint32_t next) {
  uint32_t begin = next;
  for (uint32_t i = 0; i < count; i++) {
    if (all[i].device != device) continue;
    c->ends[next] = (end){c, all[i].id, device};
    c->channels[next] =
        (at_host_channel){.channel_id = all[i].id,
                          .send = all[i].sends ? send_out : NULL,
                          .recv = all[i].receives ? receive : NULL,
                          .user = &c->ends[next]};
    next++;
  }
  return next - begin;
}

// One block each for lists, channels and ends, since a launch has few of them;
// a list is a range of `channels`.
at_status at_callbacks_make(tenant *t, const program *p, const at_msg_launch *m,
                            callbacks **out) {
  const at_msg_arg *args = (const void *)(m + 1);
  const at_msg_channel *all = (const void *)(args + m->num_args);
  callbacks *c = calloc(1, sizeof *c);
  if (!c) return no_memory();
  c->tenant = t;
  c->number = m->number;
  c->lists = calloc(p->num_here, sizeof *c->lists);
  c->channels = calloc(m->num_channels, sizeof *c->channels);
  c->ends = calloc(m->num_channels, sizeof *c->ends);
  if (!c->lists || !c->channels || !c->ends) {
    at_callbacks_free(c);
    return no_memory();
  }
  uint32_t next = 0;
  for (uint32_t k = 0; k < p->num_here; k++) {
    uint32_t n = fill(c, all, m->num_channels, p->devices[k], next);
    c->lists[k] = (at_channel_list){c->channels + next, n};
    next += n;
  }
  *out = c;
  return AT_OK;
}

const at_channel_list *at_callbacks_lists(const callbacks *c) {
  return c->lists;
}

// NULL is allowed. The lists that launches borrowed go with it.
void at_callbacks_free(callbacks *c) {
  if (!c) return;
  free(c->lists);
  free(c->channels);
  free(c->ends);
  free(c);
}

// The table gives a transfer to one answer only, so a client that answers twice
// settles nothing twice. An answer of another size than was asked for fails the
// program, not the host.
void at_tenant_took(tenant *t, uint64_t tag, at_bytes body, bool gives) {
  pthread_mutex_lock(&t->host->lock);
  transfer *x = at_table_take(&t->pending, tag);
  pthread_mutex_unlock(&t->host->lock);
  if (!x) return;
  const at_msg_took *m = (const void *)body.ptr;
  at_bytes rest = at_message_tail(body, sizeof *m);
  at_status st = AT_OK;
  if (m->code)
    st = at_message_error(m->code, rest);
  else if (gives != (x->into != NULL) || (gives && rest.len != x->bytes))
    st =
        AT_FAIL(AT_INVALID_ARGUMENT, "a host callback gave %zu bytes, not %llu",
                rest.len, (unsigned long long)x->bytes);
  else if (gives && rest.len)
    memcpy(x->into, rest.ptr, rest.len);
  settle(x, st);
}

// Programs that wait for the client go on with CANCELLED.
void at_transfers_cancel(at_table *pending) {
  size_t at = 0;
  for (at_table_slot *s; (s = at_table_next(pending, &at));)
    settle(s->value,
           AT_FAIL(AT_CANCELLED, "the client of a host callback is gone"));
  at_table_free(pending);
}

// Host callbacks of programs that run on hosts: they run here, where they were
// made, and their results go back.
#include <stdlib.h>
#include <string.h>

#include "control/client_internal.h"

// A callback that runs; owned by its task of at_client.calls.
typedef struct call {
  far_host *host;
  at_wire_head head;
  at_msg_transfer *m;  // the message, with its bytes behind
  question *launch;    // one user; NULL: there is none such
  const at_host_channel *channel;
  at_event *done;  // ASKS
  uint8_t *bytes;
  at_status status;
} call;

// TOOK or GIVE, with the tag of the host's message. By the outbox: the thread
// may be a poller's. Borrows s.
static void reply(const call *x, uint32_t kind, at_status s, at_bytes data) {
  at_msg_took m = {.code = (uint64_t)at_status_code(s)};
  const at_bytes parts[] = {{(const uint8_t *)&m, sizeof m},
                            s.err ? at_message_text(s) : data};
  at_outbox_send(x->host->outbox,
                 &(at_outbox_post){.lane = AT_WIRE_BULK,
                                   .message = {kind, x->head.tag, 2, parts}});
}

// The launch's channel of that id on that device. A user of the question is
// taken, which keeps the channel's lists alive while the callback runs.
static void find_channel(call *x) {
  at_client *c = x->host->client;
  const at_msg_transfer *m = x->m;
  pthread_mutex_lock(&c->lock);
  question *q = at_table_find(&c->questions, m->launch);
  if (q && q->channels && m->device < q->num_devices) {
    const at_channel_list *l = &q->channels[m->device];
    for (uint32_t i = 0; i < l->count && !x->channel; i++)
      if (l->list[i].channel_id == m->channel) x->channel = &l->list[i];
  }
  if (x->channel) {
    x->launch = q;
    q->users++;
  }
  pthread_mutex_unlock(&c->lock);
}

// On a thread with a stack of the system's: callbacks are Python's, mostly.
static void run_send(void *arg) {
  call *x = arg;
  x->status = x->channel->send(x->channel->user, x->m + 1, x->m->bytes,
                               x->m->total, x->m->done != 0);
}

// As run_send; the bytes come by x->done, perhaps later and from another
// thread.
static void run_receive(void *arg) {
  call *x = arg;
  x->status =
      x->channel->recv(x->channel->user, x->bytes, x->m->bytes, x->done);
}

// Asks the callback for the bytes and waits until it has written them. x->bytes
// is freed by the caller, also after an error.
static at_status receive(call *x) {
  x->bytes = malloc(x->m->bytes + 1);
  x->done = x->bytes ? at_event_create() : NULL;
  if (!x->done)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a host callback");
  at_fiber_call_on_thread(run_receive, x);
  return x->status.err ? x->status : at_event_wait(x->done);
}

// The task: whatever happens, the host gets exactly one answer and everything
// of x is freed.
static void run(void *arg) {
  call *x = arg;
  at_status st = AT_OK;
  bool sends = x->head.kind == AT_MSG_SENT;
  find_channel(x);
  if (!x->channel ||
      !(sends ? (void *)x->channel->send : (void *)x->channel->recv)) {
    st = AT_FAIL(AT_INVALID_ARGUMENT, "no host callback for channel %lld",
                 (long long)x->m->channel);
  } else if (sends) {
    at_fiber_call_on_thread(run_send, x);
    st = x->status;
  } else {
    st = receive(x);
  }
  // The answer goes out before anything is freed, as it borrows the bytes.
  reply(x, sends ? AT_MSG_TOOK : AT_MSG_GIVE, st,
        sends ? (at_bytes){0} : (at_bytes){x->bytes, x->m->bytes});
  at_status_free(st);
  at_event_release(x->done);
  if (x->launch) at_question_release(x->host->client, x->launch);
  free(x->bytes);
  free(x->m);
  free(x);
}

// Runs on a wire's poller, so the callback itself goes to the pool. Where that
// cannot be, the host is told at once, for its program waits.
void at_client_call(far_host *h, const at_wire_head *head, void *body) {
  call *x = calloc(1, sizeof *x);
  at_status st =
      x ? AT_OK : AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a callback");
  if (!st.err) {
    *x = (call){.host = h, .head = *head, .m = body};
    pthread_mutex_lock(&h->client->lock);
    st = h->client->closes
             ? AT_FAIL(AT_CANCELLED, "the client of a host callback closes")
             : at_sched_spawn(h->client->calls, run, x);
    pthread_mutex_unlock(&h->client->lock);
    if (!st.err) return;
  }
  // There may be no memory for a call, so the answer is made of the head alone.
  const call failed = {.host = h, .head = *head};
  reply(&failed, head->kind == AT_MSG_SENT ? AT_MSG_TOOK : AT_MSG_GIVE, st,
        (at_bytes){0});
  at_status_free(st);
  free(body);
  free(x);
}

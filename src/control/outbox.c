#include "control/outbox.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/thread.h"

enum { kStack = 256 << 10, kParts = 5 };

typedef struct letter {
  struct letter *next;
  at_outbox_post post;
  at_wire *wire;  // NULL: it is dropped
  at_bytes parts[kParts];
  uint8_t copy[];
} letter;

struct at_outbox {
  pthread_mutex_t lock;
  pthread_cond_t news;
  at_wire *wire;  // NULL: not open yet
  uint32_t member;
  letter *first, **end;
  bool busy;                 // the thread sends one
  _Atomic uint32_t waiting;  // in the list
  at_thread *thread;
  _Atomic bool stopped;
};

// No thread yet: most outboxes never need one.
at_status at_outbox_create(at_outbox **out) {
  at_outbox *o = calloc(1, sizeof *o);
  if (!o) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for messages");
  pthread_mutex_init(&o->lock, NULL);
  pthread_cond_init(&o->news, NULL);
  o->end = &o->first;
  *out = o;
  return AT_OK;
}

// The message is in the wire, or will never be: who lent its parts gets them
// back.
static void discard(letter *l) {
  if (l->post.sent) l->post.sent(l->post.arg);
  free(l);
}

// The thread's: waits for a letter and takes it. `busy` stays set while that is
// being sent, so that others queue behind it. After a stop letters come without
// a wire. NULL: stopped, and none left.
static letter *next_letter(at_outbox *o) {
  pthread_mutex_lock(&o->lock);
  o->busy = false;
  while (!o->first && !atomic_load(&o->stopped))
    pthread_cond_wait(&o->news, &o->lock);
  letter *l = o->first;
  if (l && !(o->first = l->next)) o->end = &o->first;
  // Counted by who may not take the lock, so it is atomic.
  AT_ASSERT(!l == !atomic_load(&o->waiting));
  if (l) atomic_fetch_sub(&o->waiting, 1);
  o->busy = l != NULL;
  if (l) l->wire = o->wire;
  pthread_mutex_unlock(&o->lock);
  return l;
}

// The thread: may wait for room as long as the outbox is open.
static void run(void *arg) {
  at_outbox *o = arg;
  const at_wire_wait wait = {.until_ns = UINT64_MAX, .cancel = &o->stopped};
  for (letter *l; (l = next_letter(o));) {
    at_wire *w = l->wire;
    if (w)
      at_status_free(at_wire_send(w, o->member, l->post.lane, &l->post.message,
                                  1, &wait, NULL));
    discard(l);
  }
}

// Under the lock.
static bool need_thread(at_outbox *o) {
  if (o->thread || !o->wire) return true;
  at_status st = at_thread_start("atoll-outbox", kStack, run, o, &o->thread);
  if (st.err) at_log(AT_LOG_ERROR, "%s", at_status_message(st));
  return !at_code_take(st);
}

// A copy of the message, with its parts unless they are lent (`sent`). NULL: no
// memory.
static letter *keep(const at_outbox_post *p) {
  const at_wire_out *m = &p->message;
  size_t bytes = 0;
  for (uint32_t i = 0; i < m->num_parts; i++) bytes += m->parts[i].len;
  letter *l = malloc(sizeof *l + (p->sent ? 0 : bytes));
  if (!l) {
    at_log(AT_LOG_ERROR, "no memory for a message of %zu bytes", bytes);
    return NULL;
  }
  *l = (letter){.post = *p};
  l->post.message.parts = l->parts;
  uint8_t *to = l->copy;
  for (uint32_t i = 0; i < m->num_parts; i++) {
    l->parts[i] = m->parts[i];
    if (p->sent) continue;
    if (m->parts[i].len) memcpy(to, m->parts[i].ptr, m->parts[i].len);
    l->parts[i].ptr = to;
    to += m->parts[i].len;
  }
  return l;
}

// Under the lock.
static bool post(at_outbox *o, const at_outbox_post *p) {
  letter *l = need_thread(o) ? keep(p) : NULL;
  if (!l) return false;
  *o->end = l;
  o->end = &l->next;
  atomic_fetch_add(&o->waiting, 1);
  pthread_cond_signal(&o->news);
  return true;
}

// Straight into the wire where nothing is ahead of it and there is room, else
// behind the others. `sent` is called without the lock: it may send again.
bool at_outbox_send(at_outbox *o, const at_outbox_post *p) {
  AT_ASSERT(p->message.num_parts <= kParts);
  bool sent = false, kept = false;
  pthread_mutex_lock(&o->lock);
  if (atomic_load(&o->stopped)) {
    // dropped
  } else if (!o->wire || o->first || o->busy) {
    kept = post(o, p);
  } else {
    // Without waiting: this may be the thread that makes the room.
    const at_wire_wait at_once = {0};
    at_status st = at_wire_send(o->wire, o->member, p->lane, &p->message, 1,
                                &at_once, NULL);
    at_code code = at_code_take(st);
    sent = !code;
    // FAILED_PRECONDITION, INVALID_ARGUMENT: it can only go with waiting.
    if (code == AT_RESOURCE_EXHAUSTED || code == AT_INVALID_ARGUMENT ||
        code == AT_FAILED_PRECONDITION)
      kept = post(o, p);
  }
  pthread_mutex_unlock(&o->lock);
  if (p->sent && !kept) p->sent(p->arg);
  return sent || kept;
}

uint32_t at_outbox_waiting(const at_outbox *o) {
  return atomic_load(&((at_outbox *)o)->waiting);
}

// Letters from before go out by the thread.
void at_outbox_open(at_outbox *o, at_wire *w, uint32_t member) {
  pthread_mutex_lock(&o->lock);
  if (!atomic_load(&o->stopped)) {
    o->wire = w;
    o->member = member;
    if (o->first) need_thread(o);
  }
  pthread_mutex_unlock(&o->lock);
}

// Wakes a thread that waits for room, and joins it; what is left is discarded
// here. A second call finds nothing to do.
void at_outbox_stop(at_outbox *o) {
  pthread_mutex_lock(&o->lock);
  atomic_store(&o->stopped, true);
  at_thread *t = o->thread;
  o->thread = NULL;
  if (o->wire) at_wire_wake(o->wire);
  o->wire = NULL;  // it may close behind this call
  pthread_cond_broadcast(&o->news);
  pthread_mutex_unlock(&o->lock);
  at_thread_join(t);
  while (o->first) {
    letter *l = o->first;
    o->first = l->next;
    discard(l);
  }
}

void at_outbox_free(at_outbox *o) {
  if (!o) return;
  at_outbox_stop(o);
  pthread_mutex_destroy(&o->lock);
  pthread_cond_destroy(&o->news);
  free(o);
}

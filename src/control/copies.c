// Copies of arrays between hosts that one message brings: whoever defines the
// array sends it, and the other host's wire takes it in, so that no other
// thread is woken on the way. Small ones are in the message. Of larger ones it
// says where they lie, for the other host to copy from there, and that answers
// when it has; where hosts share no memory they follow as exec's
// (at_buffer_send), which brings still larger ones alone.
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "control/host_internal.h"

typedef enum copy_kind {
  COPY_BYTES,    // they follow
  COPY_ERROR,    // its text follows
  COPY_LENT,     // an at_loan follows
  COPY_FOLLOWS,  // as a transfer of exec's under the same key
  COPY_TAKEN,    // back: what was lent has been copied
  COPY_KINDS
} copy_kind;

// A post between hosts; `behind` bytes follow.
typedef struct letter {
  uint64_t key, bytes;  // bytes: of the array
  uint32_t kind, code, behind, zero;
} letter;
enum { kBehind = 4096 };
static_assert(sizeof(at_loan) <= kBehind && AT_COPY_SMALL <= kBehind &&
                  sizeof(letter) + kBehind <= AT_POD_POST_BYTES,
              "a letter is a post");

// An array that is expected. Without a buffer: nobody wants it any more, or
// (early) its letter has come before it was.
typedef struct coming {
  at_buffer *buffer;  // acquired, with a reference
  uint32_t from;
  bool early;
  at_status why;  // of an early one
  letter l;
  uint8_t behind[];
} coming;

// A letter for which the wire had no room, with its bytes.
typedef struct unsent_copy {
  struct unsent_copy *next;
  uint32_t to;
  size_t bytes;
  uint8_t body[];
} unsent_copy;

// An array on its way; while it is lent in the table `lent`.
typedef struct going {
  host *host;
  at_buffer *buffer;  // acquired, with a reference
  uint32_t to;
  uint64_t key;
  at_loan loan;
} going;

static at_status no_memory(void) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a copy between hosts");
}

// Saturates: no product of dimensions wraps to a small one.
bool at_copy_is_quick(at_dtype t, at_dims dims) {
  size_t bytes = at_dtype_bytes(t);
  for (uint32_t i = 0; i < dims.rank; i++)
    bytes = at_mul(bytes, (size_t)dims.ptr[i]);
  return bytes <= AT_COPY_QUICK;
}

// ---- Sending
// What there is no room for goes when there is, in order.
static void post(host *h, uint32_t to, at_bytes body) {
  pthread_mutex_lock(&h->copies_lock);
  bool waits =
      h->unsent || at_code_take(at_pod_hosts_post(h->pod, to, body, false)) ==
                       AT_RESOURCE_EXHAUSTED;
  if (waits) {
    unsent_copy *u = malloc(sizeof *u + body.len);
    if (u) {
      *u = (unsent_copy){.to = to, .bytes = body.len};
      memcpy(u->body, body.ptr, body.len);
      unsent_copy **at = &h->unsent;
      while (*at) at = &(*at)->next;
      *at = u;
    } else {
      at_log(AT_LOG_ERROR, "no memory for a copy between hosts: it is lost");
    }
  }
  pthread_mutex_unlock(&h->copies_lock);
}

// at_pod_listener.room: the wire has room again. Sends what it takes of the
// queue.
static void room(void *arg) {
  host *h = arg;
  pthread_mutex_lock(&h->copies_lock);
  for (unsent_copy *u; (u = h->unsent);) {
    at_status st =
        at_pod_hosts_post(h->pod, u->to, (at_bytes){u->body, u->bytes}, false);
    if (at_code_take(st) == AT_RESOURCE_EXHAUSTED) break;
    h->unsent = u->next;
    free(u);
  }
  pthread_mutex_unlock(&h->copies_lock);
}

// A letter with what stands behind its head, at most kBehind bytes.
static void write_to(host *h, uint32_t to, letter l, const void *behind) {
  uint8_t body[sizeof l + kBehind];
  AT_ASSERT(l.behind <= kBehind);
  memcpy(body, &l, sizeof l);
  if (behind) memcpy(body + sizeof l, behind, l.behind);
  post(h, to, (at_bytes){body, sizeof l + l.behind});
}

// The text is cut to what fits behind a letter.
void at_copy_refuse(host *h, uint32_t to, uint64_t key, at_status why) {
  at_bytes text = at_message_text(why);
  write_to(h, to,
           (letter){.key = key,
                    .kind = COPY_ERROR,
                    .code = (uint32_t)at_status_code(why),
                    .behind = (uint32_t)AT_MIN(text.len, (size_t)kBehind)},
           text.ptr);
}

// The array has left, or will not leave: the hold is given up.
static void going_end(going *g) {
  AT_ASSERT(atomic_load(&g->host->copies));
  at_buffer_unacquire(g->buffer);
  at_buffer_release(g->buffer);
  atomic_fetch_sub(&g->host->copies, 1);
  free(g);
}

// The other host has copied what it was lent, or is lost.
static void loan_end(going *g) {
  at_loan_end(g->host->runtime, &g->loan);
  going_end(g);
}

// Where the other host can read the array; g is in the table then, or gone.
static bool lend(going *g, letter l) {
  host *h = g->host;
  const uint32_t to = g->to;
  if (!at_buffer_lend(g->buffer, to, g->key, &g->loan)) return false;
  const at_loan loan = g->loan;
  pthread_mutex_lock(&h->copies_lock);
  const bool here = at_pod_hosts_has(h->pod, to);
  const bool kept = here && at_table_put(&h->lent, g->key, g);
  pthread_mutex_unlock(&h->copies_lock);
  if (!kept) {
    at_loan_end(h->runtime, &loan);
    if (here) return false;
    going_end(g);
    return true;
  }
  l.kind = COPY_LENT;
  l.behind = sizeof loan;
  write_to(h, to, l, &loan);
  return true;
}

// No shared memory: a letter that says so, and the bytes by exec's way.
static at_status follow(const going *g, letter l) {
  at_event *done = NULL;
  l.kind = COPY_FOLLOWS;
  AT_TRY(at_buffer_send(g->buffer, g->to, g->key, &done));
  at_event_release(done);
  write_to(g->host, g->to, l, NULL);
  return AT_OK;
}

// The array is defined: the smallest go inside the letter, others are lent, or
// follow. Consumes s.
static void send_now(at_status s, void *arg) {
  going *g = arg;
  const size_t bytes = at_buffer_bytes(g->buffer);
  letter l = {.key = g->key, .bytes = bytes, .kind = COPY_BYTES};
  if (!s.err && bytes > AT_COPY_SMALL) {
    if (lend(g, l)) return;
    s = follow(g, l);
  } else if (!s.err) {
    l.behind = (uint32_t)bytes;
    write_to(g->host, g->to, l, at_buffer_data_held(g->buffer));
  }
  if (s.err) at_copy_refuse(g->host, g->to, g->key, s);
  at_status_free(s);
  going_end(g);
}

// Decides nothing before the array is defined; send_now runs at once where it
// is already.
at_status at_copy_send(host *h, at_buffer *b, uint32_t to, uint64_t key) {
  if (at_buffer_bytes(b) > AT_COPY_QUICK)
    return AT_FAIL(AT_INVALID_ARGUMENT, "a copy of another size than was said");
  going *g = malloc(sizeof *g);
  if (!g) return no_memory();
  at_status st = at_buffer_acquire(b);
  if (st.err) return free(g), st;
  *g = (going){.host = h, .buffer = at_buffer_retain(b), .to = to, .key = key};
  atomic_fetch_add(&h->copies, 1);
  st = at_event_on(at_buffer_ready(b), send_now, g);
  if (st.err) send_now(st, g);
  return AT_OK;
}

// ---- Receiving
// behind: bytes that an early letter brings. NULL: no memory.
static coming *make(at_buffer *b, uint32_t from, size_t behind) {
  coming *c = calloc(1, sizeof *c + behind);
  if (!c) return NULL;
  c->buffer = b;
  c->from = from;
  return c;
}

static void tell_taken(host *h, uint32_t from, uint64_t key) {
  write_to(h, from, (letter){.key = key, .kind = COPY_TAKEN}, NULL);
}

// Defines nothing: the bytes are in b when this returns OK, but with
// COPY_FOLLOWS, where they come later.
static at_status fill(at_buffer *b, uint32_t from, const letter *l,
                      const uint8_t *behind) {
  if (l->bytes != at_buffer_bytes(b))
    return AT_FAIL(AT_INVALID_ARGUMENT, "a copy of another size than was said");
  at_loan loan;
  switch ((copy_kind)l->kind) {
    case COPY_LENT:
      AT_ASSERT(l->behind == sizeof loan);
      memcpy(&loan, behind, sizeof loan);
      return at_buffer_copy_lent(b, from, l->key, &loan);
    case COPY_FOLLOWS:
      return at_buffer_receive_into(b, from, l->key);
    default:
      AT_ASSERT(l->kind == COPY_BYTES && l->behind == l->bytes);
      if (l->bytes) memcpy(at_buffer_data_held(b), behind, l->bytes);
      return AT_OK;
  }
}

// The array has its letter, or `why` there is none, which is consumed with the
// array's hold and reference.
static void arrive(host *h, coming *c, const letter *l, const uint8_t *behind,
                   at_status why) {
  at_buffer *b = c->buffer;
  AT_ASSERT(b && (l || why.err) && atomic_load(&h->copies));
  if (!why.err) why = fill(b, c->from, l, behind);
  const bool follows = !why.err && l->kind == COPY_FOLLOWS;
  if (!follows) at_buffer_define(b, why);
  if (l && l->kind == COPY_LENT) tell_taken(h, c->from, l->key);
  at_buffer_unacquire(b);
  at_buffer_release(b);
  atomic_fetch_sub(&h->copies, 1);
}

// The array that was to come fails.
static void arrive_lost(host *h, coming *c) {
  arrive(h, c, NULL, NULL,
         AT_FAIL(AT_DATA_LOSS, "host %u of the pod is lost", c->from));
}

// Nobody has a place for it. Consumes why.
static void turn_away(host *h, uint32_t from, const letter *l, at_status why) {
  if (l->kind == COPY_LENT) tell_taken(h, from, l->key);
  if (l->kind == COPY_FOLLOWS && !why.err)
    why = AT_FAIL(AT_CANCELLED, "the other host has no place for the array");
  if (l->kind == COPY_FOLLOWS)
    at_status_free(at_transfer_refuse(h->runtime, from, l->key, why));
  at_status_free(why);
}

// If the letter has come already it is turned away; otherwise an entry without
// a buffer waits for it.
void at_copy_decline(host *h, uint32_t from, uint64_t key) {
  coming *c = make(NULL, from, 0);
  pthread_mutex_lock(&h->copies_lock);
  coming *early = at_table_take(&h->coming, key);
  const bool waits = !early && c && at_pod_hosts_has(h->pod, from) &&
                     at_table_put(&h->coming, key, c);
  pthread_mutex_unlock(&h->copies_lock);
  if (!waits) free(c);
  if (early) turn_away(h, from, &early->l, early->why);
  free(early);
}

// The array waits for its letter, or takes the one that has come early. Under
// the lock only as long as the table is looked at: filling copies bytes.
static at_status expect(host *h, at_buffer *b, uint32_t from, uint64_t key) {
  AT_TRY(at_buffer_acquire(b));
  coming *mine = make(b, from, 0);
  if (!mine) return at_buffer_unacquire(b), no_memory();
  at_buffer_retain(b);
  atomic_fetch_add(&h->copies, 1);
  pthread_mutex_lock(&h->copies_lock);
  coming *early = at_table_take(&h->coming, key);
  bool waits = !early && at_pod_hosts_has(h->pod, from) &&
               at_table_put(&h->coming, key, mine);
  pthread_mutex_unlock(&h->copies_lock);
  if (early)
    arrive(h, mine, &early->l, early->behind, early->why);
  else if (!waits)
    arrive_lost(h, mine);
  if (!waits) free(mine);
  free(early);
  return AT_OK;
}

// Declines on failure, so that the sender does not wait for room.
at_status at_copy_receive(host *h, at_chip *c, at_memory_kind k, at_dtype t,
                          at_dims dims, uint32_t from, uint64_t key,
                          at_buffer **out) {
  at_buffer *b = NULL;
  at_status st = at_buffer_create(c, k, t, dims, &b);
  if (!st.err) st = expect(h, b, from, key);
  // Else the other end is told, and what it sends is thrown away.
  if (!st.err) return *out = b, AT_OK;
  at_copy_decline(h, from, key);
  at_buffer_release(b);
  return st;
}

// The host has copied what was lent to it.
static void taken(host *h, uint32_t from, uint64_t key) {
  pthread_mutex_lock(&h->copies_lock);
  const going *there = at_table_find(&h->lent, key);
  going *g = there && there->to == from ? at_table_take(&h->lent, key) : NULL;
  pthread_mutex_unlock(&h->copies_lock);
  if (g) loan_end(g);
}

// Under the lock. False: no memory.
static bool keep_early(host *h, uint32_t from, const letter *l,
                       const uint8_t *behind, at_status why) {
  const uint32_t n = why.err ? 0 : l->behind;
  coming *c = make(NULL, from, n);
  if (!c || !at_table_put(&h->coming, l->key, c)) return free(c), false;
  c->early = true;
  c->l = *l;
  c->why = why;
  if (n) memcpy(c->behind, behind, n);
  return true;
}

// Letters come from other hosts: every length is checked before it is used.
// bytes: of the whole letter.
static bool is_well_formed(const letter *l, size_t bytes) {
  if (l->key == 0 || l->kind >= COPY_KINDS || l->zero) return false;
  if (bytes - sizeof *l != l->behind || l->behind > kBehind) return false;
  if (l->kind == COPY_BYTES) return l->behind == l->bytes;
  if (l->kind == COPY_ERROR) return l->code != 0;
  return l->behind == (l->kind == COPY_LENT ? sizeof(at_loan) : 0);
}

// at_pod_listener.heard: on the wire's poller, so nothing here waits.
static void heard(void *arg, uint32_t from, at_bytes body) {
  host *h = arg;
  letter l;
  if (body.len >= sizeof l) memcpy(&l, body.ptr, sizeof l);
  if (body.len < sizeof l || !is_well_formed(&l, body.len))
    return at_log(AT_LOG_WARNING, "host %u: a malformed copy", from);
  if (l.kind == COPY_TAKEN) return taken(h, from, l.key);
  const uint8_t *behind = body.ptr + sizeof l;
  at_status why = AT_OK;
  if (l.kind == COPY_ERROR)
    why = at_message_error(l.code, at_message_tail(body, sizeof l));
  pthread_mutex_lock(&h->copies_lock);
  coming *c = at_table_take(&h->coming, l.key);
  const bool kept = !c && keep_early(h, from, &l, behind, why);
  pthread_mutex_unlock(&h->copies_lock);
  if (c && c->buffer) {
    arrive(h, c, &l, behind, why);
  } else if (!kept) {
    if (!c) at_log(AT_LOG_ERROR, "no memory for a copy between hosts");
    turn_away(h, from, &l, why);
  }
  free(c);
}

// One of those that are expected of the host; NULL: none.
static coming *take_of(host *h, uint32_t from) {
  coming *found = NULL;
  size_t at = 0;
  pthread_mutex_lock(&h->copies_lock);
  for (at_table_slot *s; !found && (s = at_table_next(&h->coming, &at));) {
    coming *c = s->value;
    if (!c->early && (c->from == from || from == UINT32_MAX))
      found = at_table_take(&h->coming, s->key);
  }
  pthread_mutex_unlock(&h->copies_lock);
  return found;
}

// One of those that are lent to the host; NULL: none.
static going *take_lent(host *h, uint32_t to) {
  going *found = NULL;
  size_t at = 0;
  pthread_mutex_lock(&h->copies_lock);
  for (at_table_slot *s; !found && (s = at_table_next(&h->lent, &at));) {
    const going *g = s->value;
    if (g->to == to || to == UINT32_MAX)
      found = at_table_take(&h->lent, s->key);
  }
  pthread_mutex_unlock(&h->copies_lock);
  return found;
}

// at_pod_listener.lost; UINT32_MAX: all hosts. Arrays that were expected of it
// fail; early letters of it stay, they are complete.
static void host_lost(void *arg, uint32_t who) {
  host *h = arg;
  for (coming *c; (c = take_of(h, who)); free(c))
    if (c->buffer) arrive_lost(h, c);
  for (going *g; (g = take_lent(h, who));) loan_end(g);
}

// Launches under one controller have no order of their own that could fail.
static void launch_failed(void *arg, const at_hosts_tag *tag) {}
static void tick(void *arg) {}

// Hosts that were lost before anybody listened count now.
void at_copies_listen(host *h) {
  if (!h->pod) return;
  const at_pod_listener l = {h, heard, room, launch_failed, host_lost, tick};
  at_pod_hosts_listen(h->pod, &l);
  for (uint32_t i = 0; i < h->count; i++)
    if (i != h->me && !at_pod_hosts_has(h->pod, i)) host_lost(h, i);
}

// The pod's wires are still open but nobody listens; the memory of all tables
// is freed.
void at_copies_end(host *h) {
  if (h->pod) at_pod_hosts_listen(h->pod, NULL);
  host_lost(h, UINT32_MAX);
  size_t at = 0;
  for (at_table_slot *s; (s = at_table_next(&h->coming, &at));) {
    at_status_free(((coming *)s->value)->why);
    free(s->value);
  }
  at_table_free(&h->coming);
  at_table_free(&h->lent);
  for (unsent_copy *u; (u = h->unsent);) {
    h->unsent = u->next;
    free(u);
  }
}

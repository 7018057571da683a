// Copies of small arrays between hosts: one message, which whoever defines the
// array sends and the other host's wire takes in, so that no other thread is
// woken on the way. Larger ones are exec's (at_buffer_send).
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "control/host_internal.h"

// A post between hosts; its bytes follow, or the text of an error.
typedef struct small_copy {
  uint64_t key;
  uint32_t code, bytes;
} small_copy;

// An array that is expected, or (buffer NULL) has come before it was.
typedef struct coming {
  at_buffer *buffer;  // acquired, with a reference
  uint32_t from;
  at_status why;
  size_t bytes;
  uint8_t data[];
} coming;

typedef struct unsent_copy {
  struct unsent_copy *next;
  uint32_t to;
  size_t bytes;
  uint8_t body[];
} unsent_copy;

typedef struct going {
  host *host;
  at_buffer *buffer;  // acquired, with a reference
  uint32_t to;
  uint64_t key;
} going;

static at_status no_memory(void) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a copy between hosts");
}

bool at_copy_is_small(at_dtype t, at_dims dims) {
  size_t bytes = at_dtype_bytes(t);
  for (uint32_t i = 0; i < dims.rank; i++)
    bytes = at_mul(bytes, (size_t)dims.ptr[i]);
  return bytes <= AT_COPY_SMALL;
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

void at_copy_refuse(host *h, uint32_t to, uint64_t key, at_status why) {
  uint8_t body[sizeof(small_copy) + AT_COPY_SMALL];
  at_bytes text = at_message_text(why);
  size_t n = AT_MIN(text.len, (size_t)AT_COPY_SMALL);
  const small_copy m = {key, (uint32_t)at_status_code(why), (uint32_t)n};
  memcpy(body, &m, sizeof m);
  memcpy(body + sizeof m, text.ptr, n);
  post(h, to, (at_bytes){body, sizeof m + n});
}

static void send_now(at_status s, void *arg) {
  going g = *(going *)arg;
  size_t n = at_buffer_bytes(g.buffer);
  free(arg);
  if (s.err) {
    at_copy_refuse(g.host, g.to, g.key, s);
  } else {
    uint8_t body[sizeof(small_copy) + AT_COPY_SMALL];
    const small_copy m = {g.key, 0, (uint32_t)n};
    memcpy(body, &m, sizeof m);
    if (n) memcpy(body + sizeof m, at_buffer_data_held(g.buffer), n);
    post(g.host, g.to, (at_bytes){body, sizeof m + n});
  }
  at_status_free(s);
  at_buffer_unacquire(g.buffer);
  at_buffer_release(g.buffer);
  atomic_fetch_sub(&g.host->copies, 1);
}

at_status at_copy_send(host *h, at_buffer *b, uint32_t to, uint64_t key) {
  if (at_buffer_bytes(b) > AT_COPY_SMALL)
    return AT_FAIL(AT_INVALID_ARGUMENT, "a copy of another size than was said");
  going *g = malloc(sizeof *g);
  if (!g) return no_memory();
  at_status st = at_buffer_acquire(b);
  if (st.err) return free(g), st;
  *g = (going){h, at_buffer_retain(b), to, key};
  atomic_fetch_add(&h->copies, 1);
  st = at_event_on(at_buffer_ready(b), send_now, g);
  if (st.err) send_now(st, g);
  return AT_OK;
}

// ---- Receiving
static coming *make(at_buffer *b, uint32_t from, size_t bytes) {
  coming *c = calloc(1, sizeof *c + bytes);
  if (!c) return NULL;
  c->buffer = b;
  c->from = from;
  c->bytes = bytes;
  return c;
}

// Consumes `why` and the array's hold and reference.
static void arrive(host *h, at_buffer *b, at_status why, const uint8_t *data,
                   size_t bytes) {
  if (!why.err && bytes != at_buffer_bytes(b))
    why = AT_FAIL(AT_INVALID_ARGUMENT, "a copy of another size than was said");
  if (!why.err && bytes) memcpy(at_buffer_data_held(b), data, bytes);
  at_buffer_unacquire(b);
  at_buffer_define(b, why);
  at_buffer_release(b);
  atomic_fetch_sub(&h->copies, 1);
}

static at_status lost(uint32_t host) {
  return AT_FAIL(AT_DATA_LOSS, "host %u of the pod is lost", host);
}

at_status at_copy_receive(host *h, at_chip *c, at_memory_kind k, at_dtype t,
                          at_dims dims, uint32_t from, uint64_t key,
                          at_buffer **out) {
  at_buffer *b;
  AT_TRY(at_buffer_create(c, k, t, dims, &b));
  at_status st = at_buffer_acquire(b);
  coming *mine = st.err ? NULL : make(b, from, 0);
  if (!st.err && !mine) {
    at_buffer_unacquire(b);
    st = no_memory();
  }
  if (st.err) return at_buffer_release(b), st;
  at_buffer_retain(b);
  atomic_fetch_add(&h->copies, 1);
  pthread_mutex_lock(&h->copies_lock);
  coming *early = at_table_take(&h->coming, key);
  bool waits = !early && at_pod_hosts_has(h->pod, from) &&
               at_table_put(&h->coming, key, mine);
  pthread_mutex_unlock(&h->copies_lock);
  if (early)
    arrive(h, b, early->why, early->data, early->bytes);
  else if (!waits)
    arrive(h, b, lost(from), NULL, 0);
  if (!waits) free(mine);
  free(early);
  *out = b;
  return AT_OK;
}

static void heard(void *arg, uint32_t from, at_bytes body) {
  host *h = arg;
  const small_copy *m = (const void *)body.ptr;
  if (body.len < sizeof *m || body.len - sizeof *m != m->bytes || !m->key)
    return at_log(AT_LOG_WARNING, "host %u: a malformed copy", from);
  const uint8_t *data = (const uint8_t *)(m + 1);
  at_status why = AT_OK;
  if (m->code)
    why = at_message_error(m->code, at_message_tail(body, sizeof *m));
  pthread_mutex_lock(&h->copies_lock);
  coming *c = at_table_take(&h->coming, m->key);
  if (!c) {
    coming *early = make(NULL, from, m->code ? 0 : m->bytes);
    bool kept = early && at_table_put(&h->coming, m->key, early);
    if (kept) {
      early->why = why;
      if (early->bytes) memcpy(early->data, data, early->bytes);
    } else {
      at_log(AT_LOG_ERROR, "no memory for a copy between hosts");
      at_status_free(why);
      free(early);
    }
  }
  pthread_mutex_unlock(&h->copies_lock);
  if (c) arrive(h, c->buffer, why, data, m->code ? 0 : m->bytes);
  free(c);
}

// One of those that are expected of the host; NULL: none.
static coming *take_of(host *h, uint32_t from) {
  coming *found = NULL;
  size_t at = 0;
  pthread_mutex_lock(&h->copies_lock);
  for (at_table_slot *s; !found && (s = at_table_next(&h->coming, &at));) {
    coming *c = s->value;
    if (c->buffer && (c->from == from || from == UINT32_MAX))
      found = at_table_take(&h->coming, s->key);
  }
  pthread_mutex_unlock(&h->copies_lock);
  return found;
}

static void host_lost(void *arg, uint32_t from) {
  for (coming *c; (c = take_of(arg, from)); free(c))
    arrive(arg, c->buffer, lost(from), NULL, 0);
}

static void launch_failed(void *arg, const at_hosts_tag *tag) {}
static void tick(void *arg) {}

void at_copies_listen(host *h) {
  if (!h->pod) return;
  const at_pod_listener l = {h, heard, room, launch_failed, host_lost, tick};
  at_pod_hosts_listen(h->pod, &l);
  for (uint32_t i = 0; i < h->count; i++)
    if (i != h->me && !at_pod_hosts_has(h->pod, i)) host_lost(h, i);
}

void at_copies_end(host *h) {
  if (h->pod) at_pod_hosts_listen(h->pod, NULL);
  host_lost(h, UINT32_MAX);
  size_t at = 0;
  for (at_table_slot *s; (s = at_table_next(&h->coming, &at));) {
    at_status_free(((coming *)s->value)->why);
    free(s->value);
  }
  at_table_free(&h->coming);
  for (unsent_copy *u; (u = h->unsent);) {
    h->unsent = u->next;
    free(u);
  }
}

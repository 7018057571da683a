// What a client and a host say to each other: bytes of arrays, and when they
// are defined. The stream may be behind: questions about arrays that are not
// here yet wait for them.
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "control/host_internal.h"

enum { kControl = 16 << 10 };  // bytes of an answer that goes before data

// A question, or bytes, that wait for an array.
struct parked {
  parked *next;
  uint32_t kind;
  uint64_t tag;
  at_msg_shard shard;
  uint64_t offset, bytes, total;
  at_status refusal;  // REFUSE
  uint8_t *data;      // WRITE
};

void at_parked_free(parked *p) {
  for (parked *next; p; p = next) {
    next = p->next;
    at_status_free(p->refusal);
    free(p->data);
    free(p);
  }
}

// ---- To the client
void at_tenant_say(tenant *t, at_wire_lane lane, uint32_t kind, uint64_t tag,
                   const at_bytes *parts, uint32_t num_parts) {
  at_outbox_send(t->outbox,
                 &(at_outbox_post){.lane = lane,
                                   .message = {.kind = kind,
                                               .tag = tag,
                                               .num_parts = num_parts,
                                               .parts = parts}});
}

void at_tenant_say_failed(tenant *t, uint64_t tag, at_status why) {
  at_msg_failed m = {.code = (uint64_t)at_status_code(why)};
  const char *text = at_status_message(why);
  const at_bytes parts[] = {
      {(const uint8_t *)&m, sizeof m},
      {(const uint8_t *)text, AT_MIN(strlen(text), (size_t)AT_MESSAGE_TEXT)}};
  at_tenant_say(t, AT_WIRE_CONTROL, AT_MSG_FAILED, tag, parts, 2);
}

// ---- Answers
typedef struct answer {
  tenant *tenant;     // one user
  at_buffer *buffer;  // acquired, with a reference
  uint64_t tag, offset, bytes;
  bool reads;
  _Atomic uint32_t under_way;  // pieces that are not in the wire yet, and one
  uint8_t *copy;               // of types that hosts have in another form
} answer;

static void end_answer(void *arg) {
  answer *a = arg;
  if (atomic_fetch_sub(&a->under_way, 1) != 1) return;
  host *h = a->tenant->host;
  at_buffer_unacquire(a->buffer);
  at_buffer_release(a->buffer);
  pthread_mutex_lock(&h->lock);
  at_tenant_release(a->tenant);
  pthread_mutex_unlock(&h->lock);
  free(a->copy);
  free(a);
}

static void send_bytes(answer *a, const uint8_t *from) {
  uint64_t sent = 0;
  do {
    uint64_t n = AT_MIN(a->bytes - sent, (uint64_t)AT_MESSAGE_PIECE);
    at_bytes part = {from + sent, n};
    atomic_fetch_add(&a->under_way, 1);
    at_outbox_send(
        a->tenant->outbox,
        &(at_outbox_post){
            .lane = a->bytes <= kControl ? AT_WIRE_CONTROL : AT_WIRE_BULK,
            .message = {AT_MSG_BYTES, a->tag, n ? 1 : 0, &part},
            .sent = end_answer,
            .arg = a});
    sent += n;
  } while (sent < a->bytes);
}

static void copy_ready(at_status s, void *arg) {
  answer *a = arg;
  if (s.err)
    at_tenant_say_failed(a->tenant, a->tag, s);
  else
    send_bytes(a, a->copy);
  at_status_free(s);
  end_answer(a);
}

// In the form that hosts have.
static void send_copy(answer *a) {
  at_event *done = NULL;
  a->copy = malloc(a->bytes + 1);
  at_status st =
      a->copy
          ? at_buffer_to_host(a->buffer, a->copy, a->offset, a->bytes, &done)
          : AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory to send an array");
  if (!st.err) {
    atomic_fetch_add(&a->under_way, 1);
    st = at_event_on(done, copy_ready, a);
    if (st.err) copy_ready(st, a);
    at_event_release(done);
    return;
  }
  at_tenant_say_failed(a->tenant, a->tag, st);
  at_status_free(st);
}

static void defined(at_status s, void *arg) {
  answer *a = arg;
  if (s.err)
    at_tenant_say_failed(a->tenant, a->tag, s);
  else if (!a->reads)
    at_tenant_say(a->tenant, AT_WIRE_CONTROL, AT_MSG_DONE, a->tag, NULL, 0);
  else if (at_dtype_of(at_buffer_dtype(a->buffer))->bits < 8)
    send_copy(a);
  else
    send_bytes(a, (const uint8_t *)at_buffer_data_held(a->buffer) + a->offset);
  at_status_free(s);
  end_answer(a);
}

// Under the lock.
static at_status begin_answer(tenant *t, const parked *q, at_buffer *b,
                              answer **out) {
  size_t have = at_buffer_bytes(b);
  bool reads = q->kind == AT_MSG_READ;
  if (reads && (q->offset > have || q->bytes > have - q->offset))
    return AT_FAIL(AT_INVALID_ARGUMENT, "bytes %llu + %llu of %zu",
                   (unsigned long long)q->offset, (unsigned long long)q->bytes,
                   have);
  AT_TRY(at_buffer_acquire(b));
  answer *a = malloc(sizeof *a);
  if (!a) {
    at_buffer_unacquire(b);
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for an answer");
  }
  *a = (answer){.tenant = t,
                .buffer = at_buffer_retain(b),
                .tag = q->tag,
                .offset = q->offset,
                .bytes = q->bytes,
                .reads = reads,
                .under_way = 1};
  t->users++;
  *out = a;
  return AT_OK;
}

// ---- Bytes from the client
// Under the lock. NULL: the array does not take these bytes.
static at_buffer *target_of(const array *a, uint64_t offset, uint64_t bytes,
                            uint64_t total) {
  at_buffer *b = a->written ? a->here[0].buffer : NULL;
  if (!b || at_buffer_is_ready(b) || total != at_buffer_bytes(b) ||
      offset > total || bytes > total - offset)
    return NULL;
  return b;
}

// ---- Questions
// What follows of one, without the lock.
typedef struct ask {
  answer *answer;
  at_event *ready;
  at_status failed;
  at_buffer *defines;  // retained
  at_status with;
} ask;

// Under the lock.
static void write_parked(const array *a, const parked *q, ask *out) {
  at_buffer *b = target_of(a, q->offset, q->bytes, q->total);
  if (b && q->bytes)
    memcpy((uint8_t *)at_buffer_data_mut(b) + q->offset, q->data, q->bytes);
  if (b && q->offset + q->bytes == q->total) out->defines = at_buffer_retain(b);
}

static void refuse_now(const array *a, parked *q, ask *out) {
  if (!target_of(a, 0, 0, at_buffer_bytes(a->here[0].buffer))) return;
  out->defines = at_buffer_retain(a->here[0].buffer);
  out->with = q->refusal;
  q->refusal = AT_OK;
}

// Under the lock.
static ask answer_now(tenant *t, const array *a, parked *q) {
  ask out = {0};
  if (q->kind == AT_MSG_WRITE) return write_parked(a, q, &out), out;
  if (q->kind == AT_MSG_REFUSE) {
    if (a->written) refuse_now(a, q, &out);
    return out;
  }
  const piece *p = at_array_piece(a, q->shard.shard);
  if (p && p->buffer)
    out.failed = begin_answer(t, q, p->buffer, &out.answer);
  else if (a->why.err)
    out.failed = at_status_clone(a->why);
  else
    out.failed = AT_FAIL(AT_INVALID_ARGUMENT, "shard %u is not on host %u",
                         q->shard.shard, t->host->me);
  if (out.answer)
    out.ready = at_event_retain(at_buffer_ready(out.answer->buffer));
  return out;
}

static void finish(tenant *t, uint64_t tag, ask *x) {
  if (x->answer) {
    at_status st = at_event_on(x->ready, defined, x->answer);
    if (st.err) defined(st, x->answer);
    at_event_release(x->ready);
  } else if (x->failed.err) {
    at_tenant_say_failed(t, tag, x->failed);
  }
  at_status_free(x->failed);
  if (!x->defines) return;
  at_buffer_define(x->defines, x->with);
  at_buffer_release(x->defines);
}

// Under the lock, which it lets go in between: who is told takes it.
void at_tenant_answer_parked(tenant *t, uint64_t name) {
  parked *all = at_table_take(&t->parked, name);
  for (parked *q = all, *next; q; q = next) {
    next = q->next;
    const array *a = at_tenant_array(t, name);
    ask x = a ? answer_now(t, a, q) : (ask){0};
    pthread_mutex_unlock(&t->host->lock);
    finish(t, q->tag, &x);
    pthread_mutex_lock(&t->host->lock);
  }
  at_parked_free(all);
}

// Under the lock. Takes q->data and q->refusal.
static void park(tenant *t, const parked *q) {
  parked *p = t->left ? NULL : malloc(sizeof *p);
  parked *first = at_table_find(&t->parked, q->shard.array);
  if (p) *p = *q;
  if (p && first) {
    while (first->next) first = first->next;
    first->next = p;
  } else if (!p || !at_table_put(&t->parked, q->shard.array, p)) {
    if (!t->left) at_log(AT_LOG_ERROR, "no memory for a client's question");
    at_status_free(q->refusal);
    free(q->data);
    free(p);
  }
}

// Takes what q owns.
static void handle(tenant *t, parked *q) {
  pthread_mutex_lock(&t->host->lock);
  const array *a = at_tenant_array(t, q->shard.array);
  bool dropped = !a && at_table_find(&t->dropped, q->shard.array);
  ask x = a ? answer_now(t, a, q) : (ask){0};
  if (!a && !dropped) park(t, q);
  if (dropped && (q->kind == AT_MSG_REFUSE || q->offset + q->bytes == q->total))
    at_table_take(&t->dropped, q->shard.array);
  pthread_mutex_unlock(&t->host->lock);
  if (!a && !dropped) return;
  finish(t, q->tag, &x);
  at_status_free(q->refusal);
  free(q->data);
}

static void answer_stats(tenant *t, uint64_t tag, const at_msg_stats *m) {
  at_chip *c = at_runtime_chip(t->host->runtime, m->chip);
  if (!c || at_chip_info_of(c)->host != t->host->me) {
    at_status st = AT_FAIL(AT_INVALID_ARGUMENT, "chip %u is not on host %u",
                           m->chip, t->host->me);
    at_tenant_say_failed(t, tag, st);
    return at_status_free(st);
  }
  if (m->clear) at_chip_memory_stats_clear(c);
  at_memory_stats s = at_chip_memory_stats(c);
  at_msg_stats_are are = {s.in_use,     s.peak_in_use,   s.limit,
                          s.num_allocs, s.largest_alloc, s.reserved};
  const at_bytes part = {(const uint8_t *)&are, sizeof are};
  at_tenant_say(t, AT_WIRE_CONTROL, AT_MSG_STATS_ARE, tag, &part, 1);
}

// ---- The session
static void introduce(visitor *v, const at_msg_iam *m) {
  uint8_t key[AT_CONTROL_KEY];
  host *h = v->host;
  at_control_key(h->secret, m->client, key);
  if (v->tenant || !at_secrets_equal(key, m->key, sizeof key))
    return at_log(AT_LOG_WARNING, "a client says to be number %llu, but is not",
                  (unsigned long long)m->client);
  pthread_mutex_lock(&h->lock);
  tenant *t = at_tenant_find(h, m->client, true);
  if (t && !t->open) {
    t->users++;
    v->tenant = t;
    t->open = true;
    if (v->wire) at_outbox_open(t->outbox, v->wire, 1);
  }
  pthread_mutex_unlock(&h->lock);
}

// Bytes that follow a WRITE, by its tag.
typedef struct expected {
  struct expected *next;
  uint64_t tag;
  at_msg_write write;
  uint8_t *into;  // where they go: to the array itself, if it is here; or NULL
  at_buffer *held;  // whose memory that is; acquired
} expected;

static void expect(visitor *v, const at_msg_write *m, uint64_t tag) {
  expected *e = calloc(1, sizeof *e);
  if (!e) return at_log(AT_LOG_ERROR, "no memory for a client's array");
  *e = (expected){.next = v->expected, .tag = tag, .write = *m};
  v->expected = e;
  pthread_mutex_lock(&v->host->lock);
  const array *a = at_tenant_array(v->tenant, m->shard.array);
  at_buffer *b = a ? target_of(a, m->offset, m->bytes, m->total) : NULL;
  if (b && !at_code_take(at_buffer_acquire(b))) {
    e->held = at_buffer_retain(b);
    e->into = (uint8_t *)at_buffer_data_held(b) + m->offset;
  }
  pthread_mutex_unlock(&v->host->lock);
}

static expected *find_expected(const visitor *v, const at_wire_head *head) {
  expected *e = head->kind == AT_MSG_DATA && v->tenant ? v->expected : NULL;
  while (e && e->tag != head->tag) e = e->next;
  return e && e->write.bytes == head->bytes ? e : NULL;
}

static void stop_expecting(visitor *v, expected *e) {
  expected **at = &v->expected;
  while (*at != e) at = &(*at)->next;
  *at = e->next;
  if (e->held) {
    at_buffer_unacquire(e->held);
    at_buffer_release(e->held);
  }
  free(e);
}

static void take_bytes(visitor *v, expected *e, uint8_t *body) {
  const at_msg_write *m = &e->write;
  if (e->held) {
    bool all = m->offset + m->bytes == m->total;
    pthread_mutex_lock(&v->host->lock);
    if (all) at_table_take(&v->tenant->dropped, m->shard.array);
    pthread_mutex_unlock(&v->host->lock);
    if (all) at_buffer_define(e->held, AT_OK);
  } else {
    parked q = {.kind = AT_MSG_WRITE,
                .shard = m->shard,
                .offset = m->offset,
                .bytes = m->bytes,
                .total = m->total,
                .data = body};
    handle(v->tenant, &q);
  }
  stop_expecting(v, e);
}

static void refuse(visitor *v, uint64_t tag, at_bytes body) {
  const at_msg_refuse *m = (const void *)body.ptr;
  at_code code =
      m->code && m->code <= AT_UNAUTHENTICATED ? (at_code)m->code : AT_UNKNOWN;
  parked q = {.kind = AT_MSG_REFUSE, .tag = tag, .shard = m->shard};
  q.refusal =
      AT_FAIL(code, "%.*s", (int)(body.len - sizeof *m), (const char *)(m + 1));
  handle(v->tenant, &q);
}

static void ask_about(visitor *v, uint64_t tag, uint32_t kind, at_bytes body) {
  parked q = {.kind = kind, .tag = tag};
  if (kind == AT_MSG_READ) {
    const at_msg_read *m = (const void *)body.ptr;
    q.shard = m->shard;
    q.offset = m->offset;
    q.bytes = m->bytes;
  } else {
    q.shard = ((const at_msg_watch *)(const void *)body.ptr)->shard;
  }
  handle(v->tenant, &q);
}

static void hear(visitor *v, uint32_t kind, uint64_t tag, at_bytes body) {
  if (kind == AT_MSG_IAM) return introduce(v, (const void *)body.ptr);
  if (!v->tenant) return;
  switch (kind) {
    case AT_MSG_WRITE:
      return expect(v, (const void *)body.ptr, tag);
    case AT_MSG_REFUSE:
      return refuse(v, tag, body);
    case AT_MSG_READ:
    case AT_MSG_WATCH:
      return ask_about(v, tag, kind, body);
    case AT_MSG_STATS:
      return answer_stats(v->tenant, tag, (const void *)body.ptr);
    case AT_MSG_TOOK:
    case AT_MSG_GIVE:
      return at_tenant_took(v->tenant, tag, body, kind == AT_MSG_GIVE);
    default:
      return;
  }
}

static void *place(void *arg, uint32_t from, const at_wire_head *head) {
  const expected *e = find_expected(arg, head);
  if (e && e->into) return e->into;
  return malloc(head->bytes);
}

static bool message(void *arg, uint32_t from, const at_wire_head *head,
                    void *body) {
  visitor *v = arg;
  if (head->kind == AT_MSG_DATA) {
    expected *e = find_expected(v, head);
    if (e)
      take_bytes(v, e, body);
    else
      free(body);
    return true;
  }
  at_bytes b = {body, head->bytes};
  at_status st = at_message_check(head->kind, b);
  if (!st.err)
    hear(v, head->kind, head->tag, b);
  else
    at_log(AT_LOG_WARNING, "a client: %s", at_status_message(st));
  at_status_free(st);
  free(body);
  return true;
}

static void abandon(void *arg, uint32_t from, const at_wire_head *head,
                    void *body) {
  expected *e = find_expected(arg, head);
  if (!e || body != e->into) free(body);
  if (e) stop_expecting(arg, e);
}

static void lost(void *arg, uint32_t member, at_status why) {
  visitor *v = arg;
  host *h = v->host;
  job *j = calloc(1, sizeof *j);
  at_status_free(why);
  while (v->expected) stop_expecting(v, v->expected);
  if (!j) return;  // it stays until the host ends
  j->kind = kVisitorGone;
  j->visitor = v;
  at_host_post(h, j);
}

const at_wire_sink at_visitor_sink = {
    .place = place, .message = message, .abandon = abandon, .lost = lost};

void at_visitor_free(visitor *v) {
  host *h = v->host;
  if (v->tenant) at_outbox_stop(v->tenant->outbox);
  at_wire_close(v->wire);
  while (v->expected) stop_expecting(v, v->expected);
  pthread_mutex_lock(&h->lock);
  visitor **at = &h->visitors;
  while (*at && *at != v) at = &(*at)->next;
  if (*at) *at = v->next;
  if (v->tenant) at_tenant_release(v->tenant);
  pthread_mutex_unlock(&h->lock);
  free(v);
}

// What a client and a host say to each other: bytes of arrays, and when they
// are defined. The stream may be behind: questions about arrays that are not
// here yet wait for them.
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "control/host_internal.h"

enum {
  kControl = 16 << 10,  // bytes of an answer that goes before data
  kExpected = 4096,     // WRITEs whose bytes have not come: one per thread
  kAsked = 1 << 17,     // questions of a client under way
  kUntaken = 1 << 17    // answers that a client has not taken
};

// A question, or bytes, that wait for an array.
struct parked {
  parked *next, *last;  // last: of the first of an array
  uint32_t kind;
  uint64_t tag;
  at_msg_shard shard;
  uint64_t offset, bytes, total;
  at_status refusal;  // REFUSE
  uint8_t *data;      // WRITE
  at_wire *wire;      // WRITE: has lent `bytes` of BULK for it; or NULL
};

// Credits that its bytes have borrowed go back to their wire.
void at_parked_free(parked *p) {
  for (parked *next; p; p = next) {
    next = p->next;
    if (p->wire) at_wire_release(p->wire, 1, AT_WIRE_BULK, p->bytes);
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

// By the control lane, so that it passes bytes of other answers.
void at_tenant_say_failed(tenant *t, uint64_t tag, at_status why) {
  at_msg_failed m = {.code = (uint64_t)at_status_code(why)};
  const at_bytes parts[] = {{(const uint8_t *)&m, sizeof m},
                            at_message_text(why)};
  at_tenant_say(t, AT_WIRE_CONTROL, AT_MSG_FAILED, tag, parts, 2);
}

// ---- Answers
typedef struct answer {
  tenant *tenant;     // one user
  at_buffer *buffer;  // with a reference; acquired, if it reads
  uint64_t tag, offset, bytes;
  bool reads;
  _Atomic uint32_t under_way;  // pieces that are not in the wire yet, and one
  uint8_t *copy;               // of types that hosts have in another form
} answer;

// One piece is in the wire; with the last one the buffer is let go. Also
// at_outbox_post.sent.
static void end_answer(void *arg) {
  answer *a = arg;
  if (atomic_fetch_sub(&a->under_way, 1) != 1) return;
  host *h = a->tenant->host;
  if (a->reads) at_buffer_unacquire(a->buffer);
  at_buffer_release(a->buffer);
  pthread_mutex_lock(&h->lock);
  at_tenant_release(a->tenant);
  pthread_mutex_unlock(&h->lock);
  free(a->copy);
  free(a);
}

// Straight out of the array's memory, which `reads` holds until the last piece
// is in the wire.
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

// An event's call; consumes s. One of a->under_way is for it.
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

// An event's call: the array is defined, or has failed. Types of less than a
// byte are stored otherwise than clients see them, so these are converted
// first. Consumes s.
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
  // Who only wants to know whether it is defined may ask for a donated one.
  if (reads) AT_TRY(at_buffer_acquire_now(b));
  answer *a = malloc(sizeof *a);
  if (!a) {
    if (reads) at_buffer_unacquire(b);
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
// Under the lock: the array that is being filled; NULL: it does not take these.
static at_buffer *target_of(const tenant *t, uint64_t array, uint64_t offset,
                            uint64_t bytes, uint64_t total) {
  at_buffer *b = at_table_find(&t->filling, array);
  if (!b || at_buffer_is_ready(b) || total != at_buffer_bytes(b) ||
      offset > total || bytes > total - offset)
    return NULL;
  return b;
}

// Consumes s and the table's reference.
void at_filling_end(at_buffer *b, at_status s) {
  at_buffer_unacquire(b);  // or who takes it over when it is there would copy
  at_buffer_define(b, s);
  at_buffer_release(b);
}

// Every array that waits for bytes fails.
void at_fillings_cancel(at_table *filling, const char *why) {
  size_t at = 0;
  for (at_table_slot *s; (s = at_table_next(filling, &at));)
    at_filling_end(s->value, AT_FAIL(AT_CANCELLED, "%s", why));
  at_table_free(filling);
}

at_status at_filling_lost(const host *h, uint64_t array) {
  return AT_FAIL(AT_DATA_LOSS,
                 "the bytes of array %llu were lost with the process that was "
                 "host %u",
                 (unsigned long long)array, h->me);
}

// Of an array whose bytes do not come any more.
static at_buffer *take_lost(tenant *t, uint64_t *name) {
  size_t at = 0;
  at_buffer *b = NULL;
  pthread_mutex_lock(&t->host->lock);
  for (at_table_slot *s; !b && (s = at_table_next(&t->filling, &at));) {
    *name = s->key;
    if (s->key < t->since) b = at_table_take(&t->filling, s->key);
  }
  pthread_mutex_unlock(&t->host->lock);
  return b;
}

// ---- Questions
// What follows of one, without the lock.
typedef struct ask {
  answer *answer;
  at_event *ready;
  at_status failed;
  at_buffer *defines;  // of tenant.filling
  at_status with;
} ask;

static bool brings(const parked *q) {
  return q->kind == AT_MSG_WRITE || q->kind == AT_MSG_REFUSE;
}

// Under the lock. One that has failed takes no bytes, but they have come.
static void write_now(tenant *t, const parked *q, ask *out) {
  at_buffer *b = target_of(t, q->shard.array, q->offset, q->bytes, q->total);
  if (b && q->bytes)
    memcpy((uint8_t *)at_buffer_data_held(b) + q->offset, q->data, q->bytes);
  else if (!b && (b = at_table_find(&t->filling, q->shard.array)) &&
           !at_buffer_is_ready(b))
    b = NULL;
  if (b && q->offset + q->bytes == q->total)
    out->defines = at_table_take(&t->filling, q->shard.array);
}

// The error becomes that of the array; if the array is complete already, the
// refusal comes too late.
static void refuse_now(tenant *t, parked *q, ask *out) {
  out->defines = at_table_take(&t->filling, q->shard.array);
  if (!out->defines) return;
  out->with = q->refusal;
  q->refusal = AT_OK;
}

// Under the lock. a: NULL where it brings bytes for one that is dropped.
static ask answer_now(tenant *t, const array *a, parked *q) {
  ask out = {0};
  if (q->kind == AT_MSG_WRITE) return write_now(t, q, &out), out;
  if (q->kind == AT_MSG_REFUSE) return refuse_now(t, q, &out), out;
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

// Outside the lock: events run others' code.
static void finish(tenant *t, uint64_t tag, ask *x) {
  if (x->answer) {
    at_status st = at_event_on(x->ready, defined, x->answer);
    if (st.err) defined(st, x->answer);
    at_event_release(x->ready);
  } else if (x->failed.err) {
    at_tenant_say_failed(t, tag, x->failed);
  }
  at_status_free(x->failed);
  if (x->defines) at_filling_end(x->defines, x->with);
}

// Under the lock, which it lets go in between: who is told takes it. All bytes
// that wait are in their place before others can come behind them.
void at_tenant_answer_parked(tenant *t, uint64_t name) {
  parked *all = at_table_take(&t->parked, name);
  if (!all) return;
  for (const parked *q = all; q; q = q->next) t->num_parked--;
  const array *a = at_tenant_array(t, name);
  ask bytes = {0};
  for (parked *q = all; q; q = q->next)
    if (brings(q) && !bytes.defines) bytes = answer_now(t, a, q);
  for (parked *q = all; q; q = q->next) {
    if (brings(q)) continue;
    ask x = answer_now(t, a, q);
    pthread_mutex_unlock(&t->host->lock);
    finish(t, q->tag, &x);
    pthread_mutex_lock(&t->host->lock);
  }
  pthread_mutex_unlock(&t->host->lock);
  finish(t, 0, &bytes);
  at_parked_free(all);
  pthread_mutex_lock(&t->host->lock);
}

// Under the lock. Takes q->data and q->refusal. False: there is no memory, or
// nobody wants it.
static bool park(tenant *t, const parked *q) {
  parked *p = t->left || t->mute ? NULL : malloc(sizeof *p);
  parked *first = at_table_find(&t->parked, q->shard.array);
  if (p) *p = *q, p->last = p;
  if (p && first) {
    first->last = first->last->next = p;
  } else if (!p || !at_table_put(&t->parked, q->shard.array, p)) {
    if (!t->left && !t->mute)
      at_log(AT_LOG_ERROR, "no memory for a client's question");
    at_status_free(q->refusal);
    free(q->data);
    free(p);
    return false;
  }
  t->num_parked++;
  return true;
}

// Under the lock.
static bool asks_too_much(const tenant *t, const parked *q, ask *out) {
  if (brings(q) || t->num_parked + t->users < kAsked) return false;
  out->failed =
      AT_FAIL(AT_RESOURCE_EXHAUSTED,
              "more than %d questions about arrays are under way on host %u",
              kAsked, t->host->me);
  return true;
}

// Takes what q owns. True: q->wire has not lent anything for it.
static bool handle(tenant *t, parked *q) {
  pthread_mutex_lock(&t->host->lock);
  const array *a = at_tenant_array(t, q->shard.array);
  bool known = a || (brings(q) && at_table_find(&t->filling, q->shard.array));
  ask x = {0};
  const bool refused = asks_too_much(t, q, &x);
  if (known && !refused) x = answer_now(t, a, q);
  known |= refused;
  bool waits = !known && park(t, q);
  pthread_mutex_unlock(&t->host->lock);
  if (!known) return !waits || !q->wire;
  finish(t, q->tag, &x);
  at_status_free(q->refusal);
  free(q->data);
  return true;
}

// In the stream's order, so it counts what the client has done before.
void at_tenant_answer_stats(tenant *t, const at_msg_stats *m) {
  const uint64_t tag = m->tag;
  at_chip *c = at_runtime_view(t->host->runtime, m->chip);
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
// Bytes that follow a WRITE, by its tag.
typedef struct expected {
  struct expected *next;
  uint64_t tag;
  at_msg_write write;
  uint8_t *into;  // where they go: to the array itself, if it is here; or NULL
  at_buffer *held;  // whose memory that is; acquired
} expected;

// Launches wait neither for its bytes nor for its callbacks any more: the
// stream's thread may itself wait for one of them to end.
static void fall_mute(tenant *t) {
  pthread_mutex_lock(&t->host->lock);
  t->mute = true;
  at_table pending = t->pending, filling = t->filling;
  t->pending = t->filling = (at_table){0};
  pthread_mutex_unlock(&t->host->lock);
  at_transfers_cancel(&pending);
  at_fillings_cancel(&filling, "the session of its client is lost");
}

// e is in v->expected; its hold on the array ends.
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

// Nothing of it counts from here on; the stream's thread closes it.
static void end_session(visitor *v) {
  job *j = calloc(1, sizeof *j);
  while (v->expected) stop_expecting(v, v->expected);
  if (v->tenant) fall_mute(v->tenant);
  if (!j) return;  // it stays until the host ends
  j->kind = kVisitorGone;
  j->visitor = v;
  at_host_post(v->host, j);
}

// It has said what cannot be, or asks for more than there is. Consumes why.
static void turn_out(visitor *v, at_status why) {
  if (!v->ended) {
    v->ended = true;
    at_log(AT_LOG_WARNING, "a client's session ends: %s",
           at_status_message(why));
    end_session(v);
  }
  at_status_free(why);
}

// IAM: only who has the controller's key for that number gets the tenant.
// Arrays older than `since` had their bytes sent to the former process: they
// fail now.
static void introduce(visitor *v, const at_msg_iam *m) {
  uint8_t key[AT_CONTROL_KEY];
  host *h = v->host;
  at_control_key(h->secret, m->client, key);
  if (v->tenant || !at_secrets_equal(key, m->key, sizeof key))
    return turn_out(v, AT_FAIL(AT_PERMISSION_DENIED,
                               "it says to be number %llu, but is not",
                               (unsigned long long)m->client));
  pthread_mutex_lock(&h->lock);
  tenant *t = at_tenant_find(h, m->client, true);
  if (t && !t->open && !v->gone) {
    t->users++;
    v->tenant = t;
    t->open = true;
    t->since = m->since;
    if (v->wire) at_outbox_open(t->outbox, v->wire, 1);
  }
  pthread_mutex_unlock(&h->lock);
  uint64_t name;
  for (at_buffer *b; v->tenant && (b = take_lost(v->tenant, &name));)
    at_filling_end(b, at_filling_lost(h, name));
}

// WRITE: bytes will follow with that tag. Where the array is here already, the
// wire will put them into it.
static void expect(visitor *v, const at_msg_write *m, uint64_t tag) {
  uint32_t others = 0;
  for (const expected *x = v->expected; x; x = x->next) others++;
  expected *e = others < kExpected ? calloc(1, sizeof *e) : NULL;
  if (!e)
    return turn_out(v, AT_FAIL(AT_RESOURCE_EXHAUSTED,
                               "no memory for the bytes of %u arrays", others));
  *e = (expected){.next = v->expected, .tag = tag, .write = *m};
  v->expected = e;
  pthread_mutex_lock(&v->host->lock);
  at_buffer *b =
      target_of(v->tenant, m->shard.array, m->offset, m->bytes, m->total);
  if (b && !at_code_take(at_buffer_acquire_now(b))) {
    e->held = at_buffer_retain(b);
    e->into = (uint8_t *)at_buffer_data_held(b) + m->offset;
  }
  pthread_mutex_unlock(&v->host->lock);
}

// NULL: nothing was announced by that tag, or of another size.
static expected *find_expected(const visitor *v, const at_wire_head *head) {
  expected *e = head->kind == AT_MSG_DATA && v->tenant ? v->expected : NULL;
  while (e && e->tag != head->tag) e = e->next;
  return e && e->write.bytes == head->bytes ? e : NULL;
}

// They are where they belong.
static void took_bytes(visitor *v, const at_msg_write *m, const at_buffer *b) {
  at_table *filling = &v->tenant->filling;
  at_buffer *full = NULL;
  pthread_mutex_lock(&v->host->lock);
  if (m->offset + m->bytes == m->total &&
      at_table_find(filling, m->shard.array) == b)
    full = at_table_take(filling, m->shard.array);
  pthread_mutex_unlock(&v->host->lock);
  if (full) at_filling_end(full, AT_OK);
}

// True: its credits go back now; else when the array is there.
static bool take_bytes(visitor *v, expected *e, uint8_t *body) {
  const at_msg_write m = e->write;
  const at_buffer *held = e->held;
  stop_expecting(v, e);
  if (held) return took_bytes(v, &m, held), true;
  pthread_mutex_lock(&v->host->lock);
  at_wire *wire = v->wire;
  pthread_mutex_unlock(&v->host->lock);
  parked q = {.kind = AT_MSG_WRITE,
              .shard = m.shard,
              .offset = m.offset,
              .bytes = m.bytes,
              .total = m.total,
              .data = body,
              .wire = m.bytes ? wire : NULL};
  return handle(v->tenant, &q);
}

// REFUSE: instead of the rest of the bytes.
static void refuse(visitor *v, uint64_t tag, at_bytes body) {
  const at_msg_refuse *m = (const void *)body.ptr;
  parked q = {.kind = AT_MSG_REFUSE, .tag = tag, .shard = m->shard};
  q.refusal = at_message_error(m->code, at_message_tail(body, sizeof *m));
  handle(v->tenant, &q);
}

// READ or WATCH.
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

// Anything but IAM is ignored before IAM.
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
    case AT_MSG_TOOK:
    case AT_MSG_GIVE:
      return at_tenant_took(v->tenant, tag, body, kind == AT_MSG_GIVE);
    default:
      return;
  }
}

// at_wire_sink.place.
static void *place(void *arg, uint32_t from, const at_wire_head *head) {
  const expected *e = find_expected(arg, head);
  if (e && e->into) return e->into;
  return malloc(head->bytes);
}

// A client that does not take its answers is turned out before they fill the
// memory.
static bool message(void *arg, uint32_t from, const at_wire_head *head,
                    void *body) {
  visitor *v = arg;
  if (head->kind == AT_MSG_DATA) {
    expected *e = find_expected(v, head);
    if (e) return take_bytes(v, e, body);
    return free(body), true;
  }
  at_bytes b = {body, head->bytes};
  at_status st = at_message_check(head->kind, b);
  if (!st.err && v->tenant && at_outbox_waiting(v->tenant->outbox) >= kUntaken)
    st =
        AT_FAIL(AT_RESOURCE_EXHAUSTED, "it has not taken %d answers", kUntaken);
  if (st.err)
    turn_out(v, st);
  else if (!v->ended)
    hear(v, head->kind, head->tag, b);
  free(body);
  return true;
}

// A WRITE whose bytes end early is forgotten.
static void abandon(void *arg, uint32_t from, const at_wire_head *head,
                    void *body) {
  expected *e = find_expected(arg, head);
  if (!e || body != e->into) free(body);
  if (e) stop_expecting(arg, e);
}

// Everything of it that waits is ended by end_session.
static void lost(void *arg, uint32_t member, at_status why) {
  visitor *v = arg;
  at_status_free(why);
  if (v->ended) return;
  v->ended = true;
  end_session(v);
}

const at_wire_sink at_visitor_sink = {
    .place = place, .message = message, .abandon = abandon, .lost = lost};

// Nobody returns credits to a wire that is closed.
static void forget_wire(tenant *t) {
  size_t at = 0;
  pthread_mutex_lock(&t->host->lock);
  for (at_table_slot *s; (s = at_table_next(&t->parked, &at));)
    for (parked *p = s->value; p; p = p->next) p->wire = NULL;
  pthread_mutex_unlock(&t->host->lock);
}

// The stream's thread. The tenant falls mute first, so that nobody waits for
// this session; then the wire closes, then the visitor leaves the list.
void at_visitor_free(visitor *v) {
  host *h = v->host;
  pthread_mutex_lock(&h->lock);
  v->gone = true;  // it does not introduce itself from here on
  tenant *t = v->tenant;
  pthread_mutex_unlock(&h->lock);
  if (t) {
    fall_mute(t);
    at_outbox_stop(t->outbox);
    forget_wire(t);
  }
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

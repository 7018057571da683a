// RESHARD on a host: shards of a new array, of boxes of others. Boxes of this
// host's own shards are copied; others come from their hosts, each once however
// many shards here need it.
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "control/host_internal.h"

// A buffer that boxes are copied to: a shard of the result, or what is sent.
// Defined when the last of them is there.
typedef struct goal {
  at_buffer *buffer;        // acquired, with a reference
  _Atomic uint32_t left;    // boxes, and who hands them out
  _Atomic(at_error *) why;  // the first error, owned
} goal;

static at_status no_memory(void) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a resharding");
}

// One box less to wait for; the last one defines the buffer, with the first
// error if there was one. Consumes st. Any thread.
static void goal_done(goal *g, at_status st) {
  at_error *none = NULL;
  if (st.err && !atomic_compare_exchange_strong(&g->why, &none, st.err))
    at_status_free(st);
  uint32_t before = atomic_fetch_sub(&g->left, 1);
  AT_ASSERT(before > 0);
  if (before != 1) return;
  at_buffer_unacquire(g->buffer);
  at_buffer_define(g->buffer, (at_status){atomic_load(&g->why)});
  at_buffer_release(g->buffer);
  free(g);
}

// A new buffer, held so that boxes can be copied into it; `left` is 1, for who
// hands out the boxes. On failure nothing is left.
static at_status goal_make(at_chip *c, at_memory_kind k, at_dtype t,
                           at_dims dims, goal **out) {
  goal *g = calloc(1, sizeof *g);
  at_buffer *b = NULL;
  if (!g) return no_memory();
  at_status st = at_buffer_create(c, k, t, dims, &b);
  if (!st.err) st = at_buffer_acquire_now(b);
  if (st.err) {
    at_buffer_release(b);
    free(g);
    return st;
  }
  g->buffer = b;
  atomic_init(&g->left, 1);
  *out = g;
  return AT_OK;
}

// ---- Boxes
// A box that waits for its source.
typedef struct move {
  host *host;
  at_buffer *from;  // acquired, with a reference
  goal *to;
  uint32_t rank;
  int64_t places[];  // in `from`, in `to`, its size
} move;

// Dimensions behind the last one that is cut run through both as they are.
static void copy_box(const uint8_t *from, at_dims from_dims, uint8_t *to,
                     at_dims to_dims, const int64_t *at_from,
                     const int64_t *at_to, const int64_t *size,
                     size_t element) {
  int64_t from_step[AT_MESSAGE_RANK], to_step[AT_MESSAGE_RANK];
  int64_t index[AT_MESSAGE_RANK] = {0};
  uint32_t rank = from_dims.rank, inner = rank;
  int64_t run = (int64_t)element, a = run, b = run;
  AT_ASSERT(rank == to_dims.rank && rank <= AT_MESSAGE_RANK);
  for (uint32_t i = rank; i--;) {
    AT_ASSERT(at_from[i] >= 0 && size[i] <= from_dims.ptr[i] - at_from[i]);
    AT_ASSERT(at_to[i] >= 0 && size[i] <= to_dims.ptr[i] - at_to[i]);
    from_step[i] = a;
    to_step[i] = b;
    from += at_from[i] * a;
    to += at_to[i] * b;
    a *= from_dims.ptr[i];
    b *= to_dims.ptr[i];
    if (!size[i]) return;
  }
  while (inner) {
    inner--;
    run *= size[inner];
    if (size[inner] != from_dims.ptr[inner] ||
        size[inner] != to_dims.ptr[inner])
      break;
  }
  for (;;) {
    memcpy(to, from, (size_t)run);
    uint32_t i = inner;
    for (; i--;) {
      from += from_step[i];
      to += to_step[i];
      if (++index[i] < size[i]) break;
      from -= from_step[i] * size[i];
      to -= to_step[i] * size[i];
      index[i] = 0;
    }
    if (i == UINT32_MAX) return;
  }
}

// An event's call: the source is defined, or has failed, which st says and the
// destination gets. Consumes st.
static void move_now(at_status st, void *arg) {
  move *m = arg;
  at_buffer *a = m->from, *b = m->to->buffer;
  if (!st.err)
    copy_box(at_buffer_data_held(a), at_buffer_dims(a), at_buffer_data_held(b),
             at_buffer_dims(b), m->places, m->places + m->rank,
             m->places + 2 * (size_t)m->rank,
             at_dtype_bytes(at_buffer_dtype(a)));
  at_buffer_unacquire(a);
  at_buffer_release(a);
  goal_done(m->to, st);
  atomic_fetch_sub(&m->host->copies, 1);
  free(m);
}

// When `from` is defined. places[rank] of each: NULL: all of it.
static at_status move_later(host *h, at_buffer *from, const int64_t *at_from,
                            goal *to, const int64_t *at_to, const int64_t *size,
                            uint32_t rank) {
  move *m = calloc(1, sizeof *m + 3 * rank * sizeof *m->places);
  if (!m) return no_memory();
  at_status st = at_buffer_acquire_now(from);
  if (st.err) return free(m), st;
  *m = (move){h, at_buffer_retain(from), to, rank};
  size_t bytes = rank * sizeof *size;
  if (bytes && at_from) memcpy(m->places, at_from, bytes);
  if (bytes && at_to) memcpy(m->places + rank, at_to, bytes);
  if (bytes) memcpy(m->places + 2 * (size_t)rank, size, bytes);
  atomic_fetch_add(&to->left, 1);
  atomic_fetch_add(&h->copies, 1);
  st = at_event_on(at_buffer_ready(from), move_now, m);
  if (st.err) move_now(st, m);
  return AT_OK;
}

// ---- The message
typedef struct work {
  tenant *t;
  host *host;
  const at_msg_reshard *m;
  at_resharding r;
  goal **goals;      // by shard of the result; NULL: another host's, or failed
  at_buffer **came;  // by box: what it brings here; one reference
} work;

// UINT32_MAX: there is no such chip.
static uint32_t host_of(const host *h, uint32_t chip) {
  const at_chip *c = at_runtime_view(h->runtime, chip);
  return c ? at_chip_info_of(c)->host : UINT32_MAX;
}

// Alike on both hosts, and of nothing else.
static uint64_t key_of(const work *w, uint32_t box) {
  const uint64_t all[] = {w->t->client, w->m->array, 1 + (uint64_t)box};
  uint64_t key = at_hash(AT_HASH_SEED, all, sizeof all);
  return key ? key : 1;
}

// The buffer of an old shard, which stays with its array. The plan says its
// shape, which is checked: the copy trusts it.
static at_status source(const work *w, uint32_t i, at_buffer **out) {
  at_status why = AT_OK;
  const at_msg_shard *s = &w->r.from[i];
  at_buffer *b = at_stream_find(w->t, s, &why);
  if (why.err) return why;
  if (at_buffer_dtype(b) != (at_dtype)w->m->dtype ||
      !at_dims_eq(at_buffer_dims(b), w->r.from_dims))
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "a shard to be resharded has another shape than was said");
  *out = b;
  return AT_OK;
}

// A buffer of the box alone, which is defined when its shard is.
static at_status cut_out(const work *w, at_buffer *from, const int64_t *places,
                         at_buffer **out) {
  uint32_t rank = w->m->rank;
  at_dims size = {places + 2 * (size_t)rank, rank};
  goal *piece;
  AT_TRY(goal_make(at_buffer_chip(from), AT_MEM_UNPINNED_HOST,
                   at_buffer_dtype(from), size, &piece));
  at_status st = move_later(w->host, from, places, piece, NULL, size.ptr, rank);
  if (!st.err) *out = at_buffer_retain(piece->buffer);
  goal_done(piece, AT_OK);
  return st;
}

// Sends a box of a local shard, cut out unless it is the whole shard. What
// cannot be sent is refused, so that the other host does not wait.
static void send_box(const work *w, uint32_t i, uint32_t to) {
  const at_msg_box *b = at_message_box(w->m, &w->r, i);
  const int64_t *x = (const void *)(b + 1);
  at_dims size = {x + 2 * (size_t)w->m->rank, w->m->rank};
  bool quick = at_copy_is_quick((at_dtype)w->m->dtype, size);
  at_buffer *from = NULL, *sent = NULL;
  at_event *done = NULL;
  uint64_t key = key_of(w, i);
  at_status st = source(w, b->from, &from);
  if (!st.err && at_dims_eq(size, w->r.from_dims))
    sent = at_buffer_retain(from);
  else if (!st.err)
    st = cut_out(w, from, x, &sent);
  if (!st.err)
    st = quick ? at_copy_send(w->host, sent, to, key)
               : at_buffer_send(sent, to, key, &done);
  at_buffer_release(sent);
  at_event_release(done);
  if (!st.err) return;
  if (quick)
    at_copy_refuse(w->host, to, key, st);
  else
    at_status_free(at_transfer_refuse(w->host->runtime, to, key, st));
  at_status_free(st);
}

// The buffer that will hold the box, in host memory. On failure the sender is
// told.
static at_status receive_box(work *w, uint32_t i, uint32_t from) {
  const at_msg_box *b = at_message_box(w->m, &w->r, i);
  at_dims size = {(const int64_t *)(b + 1) + 2 * (size_t)w->m->rank,
                  w->m->rank};
  at_chip *c = at_stream_own_chip(w->host, w->r.chips[b->to]);
  at_dtype type = (at_dtype)w->m->dtype;
  if (at_copy_is_quick(type, size))
    return at_copy_receive(w->host, c, AT_MEM_UNPINNED_HOST, type, size, from,
                           key_of(w, i), &w->came[i]);
  at_status st = at_buffer_receive(c, AT_MEM_UNPINNED_HOST, type, size, from,
                                   key_of(w, i), &w->came[i]);
  if (st.err)  // it would wait with the box in its hands
    st = at_status_join(
        st, at_transfer_refuse(w->host->runtime, from, key_of(w, i), st));
  return st;
}

// Here, from here or from afar.
static at_status take_box(work *w, uint32_t i, uint32_t from) {
  const at_msg_box *b = at_message_box(w->m, &w->r, i);
  const int64_t *x = (const void *)(b + 1);
  uint32_t rank = w->m->rank;
  at_buffer *a = NULL;
  bool here = from == w->host->me;
  if (here) {
    AT_TRY(source(w, b->from, &a));
  } else {
    if (b->like == i) AT_TRY(receive_box(w, i, from));
    a = w->came[b->like];
    if (!a)
      return AT_FAIL(AT_INTERNAL,
                     "a box of a resharding has not been asked for");
  }
  goal *g = w->goals[b->to];
  return g ? move_later(w->host, a, here ? x : NULL, g, x + rank,
                        x + 2 * (size_t)rank, rank)
           : AT_OK;
}

// A box concerns this host as its source, its destination, or not at all.
// Errors go to the new shard.
static void do_box(work *w, uint32_t i) {
  const at_msg_box *b = at_message_box(w->m, &w->r, i);
  uint32_t from = host_of(w->host, w->r.from[b->from].chip);
  uint32_t to = host_of(w->host, w->r.chips[b->to]);
  if (to == w->host->me) {
    at_status st = take_box(w, i, from);
    goal *g = w->goals[b->to];
    if (st.err && g) {
      atomic_fetch_add(&g->left, 1);
      goal_done(g, st);
    } else {
      at_status_free(st);
    }
  } else if (from == w->host->me && b->like == i) {
    send_box(w, i, to);
  }
}

// The shards of this host; those that fail carry why.
static array *make_shards(work *w, at_status refused) {
  uint32_t n = 0;
  for (uint32_t j = 0; j < w->m->num_to; j++)
    n += at_stream_own_chip(w->host, w->r.chips[j]) != NULL;
  array *a = at_array_make(w->m->array, n);
  n = 0;
  for (uint32_t j = 0; a && j < w->m->num_to; j++) {
    at_chip *c = at_stream_own_chip(w->host, w->r.chips[j]);
    if (!c) continue;
    at_memory_kind kind = (at_memory_kind)w->m->kind;
    at_dtype type = (at_dtype)w->m->dtype;
    at_buffer *b = NULL;
    at_status st = refused.err
                       ? at_status_clone(refused)
                       : goal_make(c, kind, type, w->r.to_dims, &w->goals[j]);
    if (!st.err)
      b = at_buffer_retain(w->goals[j]->buffer);
    else if (at_code_take(
                 at_buffer_failed(c, kind, type, w->r.to_dims, st, &b)))
      b = NULL;
    if (!b && !a->why.err) a->why = at_status_clone(st);
    a->here[n++] = (piece){j, b};
    at_status_free(st);
  }
  return a;
}

// Goals begin with one count, which is given back when all boxes have been
// handed out; received boxes are released, their moves hold them.
void at_host_reshard(tenant *t, at_bytes body, at_status refused) {
  work w = {.t = t, .host = t->host, .m = (const void *)body.ptr};
  w.r = at_message_resharding(w.m);
  w.goals = calloc((size_t)w.m->num_to + w.m->num_boxes, sizeof *w.goals);
  w.came = calloc((size_t)w.m->num_boxes + 1, sizeof *w.came);
  if (!w.goals || !w.came) {
    at_log(AT_LOG_ERROR, "no memory for a resharding: its results are missing");
  } else {
    array *a = make_shards(&w, refused);
    for (uint32_t i = 0; !refused.err && i < w.m->num_boxes; i++) do_box(&w, i);
    at_stream_enter(t, a);
  }
  for (uint32_t j = 0; w.goals && j < w.m->num_to; j++)
    if (w.goals[j]) goal_done(w.goals[j], AT_OK);
  for (uint32_t i = 0; w.came && i < w.m->num_boxes; i++)
    at_buffer_release(w.came[i]);
  free(w.goals);
  free(w.came);
  at_status_free(refused);
}

// Looks at every shard: hosts get these messages because they have a part, so
// the first is mostly theirs.
bool at_host_reshards(const host *h, const at_msg_reshard *m) {
  at_resharding r = at_message_resharding(m);
  for (uint32_t i = 0; i < m->num_from; i++)
    if (at_stream_own_chip(h, r.from[i].chip)) return true;
  for (uint32_t j = 0; j < m->num_to; j++)
    if (at_stream_own_chip(h, r.chips[j])) return true;
  return false;
}

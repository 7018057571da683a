// What hosts send each other. A lookup: the different rows that each SparseCore
// wants of an owner, there; the rows, back, so that samples are summed where
// they are, in the order of the buffers. An update: the entries and the
// gradients of their samples, so that rows are summed where they are, in the
// same order. Either way one host's bits are those of several.
//
// A message is a word, 0 or the length of the text why the sender failed, and
// then the text or the body. Bodies are words of 4 bytes: blocks of {owner,
// count, ...}.
#include "sparsecore/hosts.h"

#include <stdlib.h>
#include <string.h>

#include "abi/dtype.h"
#include "sparsecore/engine_internal.h"

enum { kHead = 8, kBlock = 8 };  // bytes

// Memory is the run's scratch.
static at_status no_memory(void) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for an exchange of hosts");
}

// Of a host that is not this one: a bug or another version, so INTERNAL.
static at_status malformed(uint32_t host) {
  return AT_FAIL(AT_INTERNAL, "host %u sent a malformed message", host);
}

// ---- Messages
// With an error, everybody else gets its text instead of send[]. After it, recv
// has bodies without heads. ABORTED with the text of the first host that
// failed.
static at_status swap(const at_sc_hosts *h, at_status st, at_bytes *send,
                      at_bytes *recv) {
  struct {
    uint64_t length;
    char text[1016];
  } why;
  if (st.err) {
    const char *text = at_status_message(st);
    // A long text is cut.
    why.length = AT_MIN(strlen(text), sizeof why.text);
    memcpy(why.text, text, why.length);
    for (uint32_t i = 0; i < h->count; i++)
      send[i] = (at_bytes){(uint8_t *)&why, kHead + why.length};
  }
  memset(recv, 0, h->count * sizeof *recv);
  at_status sent = h->exchange(h->arg, send, recv);
  if (st.err) {
    at_status_free(sent);
    return st;
  }
  AT_TRY(sent);
  for (uint32_t i = 0; i < h->count; i++) {
    if (i == h->me) continue;
    uint64_t length;
    if (recv[i].len < kHead) return malformed(i);
    memcpy(&length, recv[i].ptr, sizeof length);
    recv[i].ptr += kHead;
    recv[i].len -= kHead;
    if (length > recv[i].len) return malformed(i);
    if (length)
      return AT_FAIL(AT_ABORTED, "host %u failed: %.*s", i, (int)length,
                     (const char *)recv[i].ptr);
  }
  return AT_OK;
}

enum { kFewHosts = 64 };

// Without memory for the list the others learn it from the transport.
at_status at_sc_tell(const at_sc_hosts *h, at_status st) {
  if (!h || !st.err) return st;
  at_bytes few[2 * kFewHosts], *send = few;
  // On the stack where it fits, as memory may be what failed.
  if (h->count > kFewHosts) send = malloc(2 * h->count * sizeof *send);
  if (!send) return st;
  st = swap(h, st, send, send + h->count);
  if (send != few) free(send);
  return st;
}

// One exchange of one word each.
at_status at_sc_hosts_agree(void *hosts, uint64_t *bits) {
  const at_sc_hosts *h = hosts;
  uint64_t mine[2] = {0, *bits}, theirs;
  at_bytes *send = malloc(2 * h->count * sizeof *send);
  if (!send) return at_sc_tell(h, no_memory());
  for (uint32_t i = 0; i < h->count; i++)
    send[i] = (at_bytes){(uint8_t *)mine, sizeof mine};
  at_bytes *recv = send + h->count;
  at_status st = swap(h, AT_OK, send, recv);
  for (uint32_t i = 0; i < h->count && !st.err; i++) {
    if (i == h->me) continue;
    if (recv[i].len != sizeof theirs) {
      st = malformed(i);
      break;
    }
    memcpy(&theirs, recv[i].ptr, sizeof theirs);
    *bits |= theirs;
  }
  free(send);
  return st;
}

// A message that is written into memory that was counted before.
typedef struct message {
  uint8_t *ptr;
  uint64_t len, room;  // bytes
} message;

// Room for a message of at most `most` bytes of body; its head says that
// nothing failed. NULL: no memory.
static uint8_t *begin_message(const at_sc_plan *p, message *m, uint64_t most) {
  *m =
      (message){at_par_scratch(p->run->par, kHead + most), kHead, kHead + most};
  if (m->ptr) memset(m->ptr, 0, kHead);
  return m->ptr;
}

// There is room, as it was counted.
static void put(message *m, const void *v, uint64_t bytes) {
  AT_ASSERT(bytes <= m->room - m->len);
  memcpy(m->ptr + m->len, v, bytes);
  m->len += bytes;
}

static at_bytes bytes_of(const message *m) {
  return (at_bytes){m->ptr, m->len};
}

// count may be filled in later.
static void put_block(message *m, uint32_t owner, uint32_t count) {
  uint32_t head[2] = {owner, count};
  put(m, head, sizeof head);
}

// Takes `bytes` from the front of a message; NULL: there are not so many.
static const void *take(at_bytes *m, uint64_t bytes) {
  if (m->len < bytes) return NULL;
  const void *v = m->ptr;
  m->ptr += bytes;
  m->len -= bytes;
  return v;
}

// ---- Spans
// Before the first exchange: a host with bad input tells the others instead of
// sending.
at_status at_sc_check_ids(const at_sc_plan *p) {
  for (uint32_t d = 0; d < p->here; d++)
    for (uint32_t k = 0; k < p->scs; k++)
      for (uint32_t m = 0; m < p->devices[d].batches; m++)
        for (uint32_t g = 0; g < p->num_scs; g++) {
          at_sc_span s = at_sc_span_of(p, d, k, m, g);
          uint64_t i = at_sc_first_bad(&p->devices[d], s.begin, s.end,
                                       p->shard_rows, p->sc_samples);
          if (i < s.end) return at_sc_blame(p, d, k, g, i);
        }
  return AT_OK;
}

typedef struct far_walk {
  const at_sc_plan *p;
  message message;     // to the host that is asked
  at_sc_far *far;      // lookups
  at_bytes rows;       // lookups: what came back
  uint32_t *place_of;  // updates: of a sample of this host, + 1
  uint64_t entries, spans;
} far_walk;
typedef at_status (*far_fn)(far_walk *w, uint32_t device, uint32_t k,
                            uint32_t batch, uint32_t owner, at_sc_span s);

// Every span that this host asks of the owners on `host`.
static at_status each_far(far_walk *w, uint32_t host, far_fn fn) {
  const at_sc_plan *p = w->p;
  uint32_t owners = p->here * p->scs, first = host * owners;
  for (uint32_t d = 0; d < p->here; d++)
    for (uint32_t k = 0; k < p->scs; k++)
      for (uint32_t m = 0; m < p->devices[d].batches; m++)
        for (uint32_t g = first; g < first + owners; g++) {
          at_sc_span s = at_sc_span_of(p, d, k, m, g);
          if (s.begin < s.end) AT_TRY(fn(w, d, k, m, g, s));
        }
  return AT_OK;
}

// Entries, and spans that have any.
static at_status count_far(far_walk *w, uint32_t device, uint32_t k,
                           uint32_t batch, uint32_t owner, at_sc_span s) {
  (void)device, (void)k, (void)batch, (void)owner;
  w->entries += s.end - s.begin;
  w->spans++;
  return AT_OK;
}

// A list to send and one to receive, all empty. NULL: no memory.
static at_bytes *messages(const at_sc_plan *p) {
  size_t n = p->run->hosts->count;
  at_bytes *m = at_par_scratch(p->run->par, 2 * n * sizeof *m);
  if (m) memset(m, 0, 2 * n * sizeof *m);
  return m;
}

// ---- Lookups
static uint64_t row_bytes(const at_x_sparse *x) {
  return x->width * at_dtype_bytes((at_dtype)x->dtype);
}

// A far_fn: a block with the different ids of a span.
static at_status ask(far_walk *w, uint32_t device, uint32_t k, uint32_t batch,
                     uint32_t owner, at_sc_span s) {
  const int32_t *ids = w->p->devices[device].ids;
  uint8_t *head = w->message.ptr + w->message.len;
  put_block(&w->message, owner, 0);
  uint32_t count = 0;
  for (uint64_t i = s.begin; i < s.end; i++) {
    // Each row once: equal ids follow each other.
    if (i > s.begin && ids[i] == ids[i - 1]) continue;
    put(&w->message, &ids[i], sizeof ids[i]);
    count++;
  }
  memcpy(head + 4, &count, sizeof count);
  return AT_OK;
}

// Counts first, so that the message is allocated once.
static at_status ask_all(const at_sc_plan *p, at_bytes *send) {
  const at_sc_hosts *h = p->run->hosts;
  for (uint32_t i = 0; i < h->count; i++) {
    if (i == h->me) continue;
    far_walk w = {.p = p};
    AT_TRY(each_far(&w, i, count_far));
    if (!begin_message(p, &w.message, w.spans * kBlock + w.entries * 4))
      return no_memory();
    AT_TRY(each_far(&w, i, ask));
    send[i] = bytes_of(&w.message);
  }
  return AT_OK;
}

// The owner of a block on this host, and its ids. malformed: an owner that is
// not here, a row that is not in its shard, or a block that is cut short.
static at_status take_block(const at_sc_plan *p, uint32_t host, at_bytes *m,
                            uint32_t head[2], const uint32_t **ids) {
  const void *h = take(m, kBlock);
  if (!h) return malformed(host);
  memcpy(head, h, kBlock);
  *ids = take(m, (uint64_t)head[1] * 4);
  uint32_t owners = p->here * p->scs;
  if (!*ids || head[0] / owners != p->run->hosts->me) return malformed(host);
  for (uint32_t i = 0; i < head[1]; i++)
    if ((*ids)[i] >= p->shard_rows) return malformed(host);
  return AT_OK;
}

// The rows that host `host` asked for, in the order of its ids.
static at_status answer(const at_sc_plan *p, uint32_t host, at_bytes m,
                        at_bytes *out) {
  uint64_t bytes = row_bytes(p->x);
  message rows;
  // A block's head is counted as two rows that nobody asks for.
  if (!begin_message(p, &rows, at_mul(m.len / 4, bytes))) return no_memory();
  while (m.len) {
    uint32_t head[2];
    const uint32_t *ids;
    AT_TRY(take_block(p, host, &m, head, &ids));
    uint32_t device = head[0] / p->scs - p->first;
    AT_ASSERT(device < p->here);  // take_block has seen the owner
    const uint8_t *shard =
        (const uint8_t *)p->run->bufs[device][at_x_sparse_table(p->x)] +
        (head[0] % p->scs) * p->shard_rows * bytes;
    for (uint32_t i = 0; i < head[1]; i++)
      put(&rows, shard + ids[i] * bytes, bytes);
  }
  *out = bytes_of(&rows);
  return AT_OK;
}

// One message a host, in send[].
static at_status answer_all(const at_sc_plan *p, const at_bytes *asked,
                            at_bytes *send) {
  const at_sc_hosts *h = p->run->hosts;
  for (uint32_t i = 0; i < h->count; i++)
    if (i != h->me) AT_TRY(answer(p, i, asked[i], &send[i]));
  return AT_OK;
}

// Rows of a span lie one after the other, so that ids become places. A far_fn.
// The same id again has the same place.
static at_status place_rows(far_walk *w, uint32_t device, uint32_t k,
                            uint32_t batch, uint32_t owner, at_sc_span s) {
  const at_sc_plan *p = w->p;
  const int32_t *ids = p->devices[device].ids;
  int32_t *places = (int32_t *)w->far->devices[device].ids, place = -1;
  AT_ASSERT(s.begin < s.end && batch < w->far->most);
  for (uint64_t i = s.begin; i < s.end; i++) {
    place += i == s.begin || ids[i] != ids[i - 1];
    places[i] = place;
  }
  uint64_t source = (uint64_t)device * p->scs + k;
  const uint8_t **rows =
      &w->far->rows[(source * w->far->most + batch) * p->num_scs + owner];
  *rows = take(&w->rows, ((uint64_t)place + 1) * row_bytes(p->x));
  return *rows ? AT_OK : malformed(owner / (p->here * p->scs));
}

// Room for places of all ids and rows of all spans of this host.
static at_status make_far(const at_sc_plan *p, at_sc_far *f) {
  f->most = 1;
  for (uint32_t d = 0; d < p->here; d++)
    f->most = AT_MAX(f->most, p->devices[d].batches);
  // By source, minibatch and owner.
  size_t n = (size_t)p->here * p->scs * f->most * p->num_scs;
  size_t ids = p->x->ids * sizeof(int32_t);
  f->rows = at_par_scratch(p->run->par, n * sizeof *f->rows);
  f->devices = at_par_scratch(p->run->par, p->here * sizeof *f->devices);
  int32_t *copy = at_par_scratch(p->run->par, p->here * ids);
  if (!f->rows || !f->devices || !copy) return no_memory();
  memset(f->rows, 0, n * sizeof *f->rows);
  for (uint32_t d = 0; d < p->here; d++, copy += p->x->ids) {
    f->devices[d] = p->devices[d];
    f->devices[d].ids = copy;
  }
  return AT_OK;
}

// Each host answers what it was asked between the two exchanges.
at_status at_sc_fetch_rows(const at_sc_plan *p, at_sc_far *out) {
  const at_sc_hosts *h = p->run->hosts;
  at_bytes *send = messages(p);
  if (!send) return at_sc_tell(h, no_memory());
  at_bytes *recv = send + h->count;
  AT_TRY(swap(h, ask_all(p, send), send, recv));
  // An error here is told in the second exchange.
  at_status st = answer_all(p, recv, send);
  if (!st.err) st = make_far(p, out);
  AT_TRY(swap(h, st, send, recv));
  for (uint32_t i = 0; i < h->count; i++) {
    if (i == h->me) continue;
    far_walk w = {.p = p, .far = out, .rows = recv[i]};
    AT_TRY(each_far(&w, i, place_rows));
    // More rows than were asked for.
    if (w.rows.len) return malformed(i);
  }
  return AT_OK;
}

// ---- Updates
// The samples that a host's owners need, each once, and their places. A far_fn.
// The word behind the head counts them.
static at_status place_sample(far_walk *w, uint32_t device, uint32_t k,
                              uint32_t batch, uint32_t owner, at_sc_span s) {
  const at_sc_plan *p = w->p;
  const int32_t *samples = p->devices[device].samples;
  uint32_t count;
  memcpy(&count, w->message.ptr + kHead, sizeof count);
  for (uint64_t i = s.begin; i < s.end; i++) {
    uint64_t row = k * p->sc_samples + (uint32_t)samples[i];
    uint32_t *place = &w->place_of[device * p->x->samples + row];
    if (*place) continue;
    *place = ++count;
    const float *gradients = p->run->bufs[device][at_x_sparse_table(p->x) - 1];
    put(&w->message, gradients + row * p->x->width, p->x->width * 4);
  }
  memcpy(w->message.ptr + kHead, &count, sizeof count);
  return AT_OK;
}

// A far_fn: ids, gains and the places of their samples.
static at_status send_span(far_walk *w, uint32_t device, uint32_t k,
                           uint32_t batch, uint32_t owner, at_sc_span s) {
  const at_sc_plan *p = w->p;
  const at_sc_ids *b = &p->devices[device];
  uint64_t n = s.end - s.begin, first = k * p->sc_samples;
  put_block(&w->message, owner, (uint32_t)n);
  put(&w->message, b->ids + s.begin, n * 4);
  put(&w->message, b->gains + s.begin, n * 4);
  for (uint64_t i = s.begin; i < s.end; i++) {
    uint64_t row = first + (uint32_t)b->samples[i];
    uint32_t place = w->place_of[device * p->x->samples + row] - 1;
    AT_ASSERT(place != UINT32_MAX);  // place_sample was here before
    put(&w->message, &place, sizeof place);
  }
  return AT_OK;
}

// place_of starts anew for each host.
static at_status send_all(const at_sc_plan *p, at_bytes *send) {
  const at_sc_hosts *h = p->run->hosts;
  uint64_t samples = p->here * p->x->samples;
  far_walk w = {.p = p};
  w.place_of = at_par_scratch(p->run->par, samples * sizeof *w.place_of + 4);
  if (!w.place_of) return no_memory();
  for (uint32_t i = 0; i < h->count; i++) {
    if (i == h->me) continue;
    w.entries = w.spans = 0;
    AT_TRY(each_far(&w, i, count_far));
    // At most: a sample is sent once, however many entries need it.
    uint64_t rows = AT_MIN(w.entries, samples) * p->x->width;
    if (!begin_message(p, &w.message,
                       4 + (rows + w.entries * 3) * 4 + w.spans * kBlock))
      return no_memory();
    memset(w.place_of, 0, samples * sizeof *w.place_of);
    put(&w.message, &(uint32_t){0}, 4);
    AT_TRY(each_far(&w, i, place_sample));
    AT_TRY(each_far(&w, i, send_span));
    send[i] = bytes_of(&w.message);
  }
  return AT_OK;
}

// Checks all of it: places lie among the gradients that came along.
static at_status read_spans(const at_sc_plan *p, uint32_t host, at_bytes m,
                            at_sc_far_spans *out) {
  const uint32_t *rows = take(&m, 4);
  const float *gradients =
      rows ? take(&m, at_mul(*rows, p->x->width * 4)) : NULL;
  if (!gradients) return malformed(host);
  out->list =
      at_par_scratch(p->run->par, (m.len / kBlock + 1) * sizeof *out->list);
  if (!out->list) return no_memory();
  while (m.len) {
    uint32_t head[2];
    at_sc_far_span *s = &out->list[out->count];
    AT_TRY(take_block(p, host, &m, head, &s->ids));
    s->owner = head[0];
    s->count = head[1];
    s->gradients = gradients;
    s->gains = take(&m, head[1] * 4ull);
    s->places = take(&m, head[1] * 4ull);
    if (!s->places) return malformed(host);
    for (uint32_t i = 0; i < s->count; i++)
      if (s->places[i] >= *rows) return malformed(host);
    out->count++;
  }
  return AT_OK;
}

// spans[me] stays empty.
at_status at_sc_send_gradients(const at_sc_plan *p, at_sc_far_spans **out) {
  const at_sc_hosts *h = p->run->hosts;
  at_bytes *send = messages(p);
  at_sc_far_spans *spans =
      at_par_scratch(p->run->par, h->count * sizeof *spans);
  if (!send || !spans) return at_sc_tell(h, no_memory());
  at_bytes *recv = send + h->count;
  memset(spans, 0, h->count * sizeof *spans);
  AT_TRY(swap(h, send_all(p, send), send, recv));
  at_status st = AT_OK;
  for (uint32_t i = 0; i < h->count && !st.err; i++)
    if (i != h->me) st = read_spans(p, i, recv[i], &spans[i]);
  *out = spans;
  return st;
}

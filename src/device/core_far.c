// Kernels of devices that other processes run. A copy there is a message with
// its bytes, the place in the list of regions that all cores of a program have
// alike, and the semaphore to signal; a signal is the same without bytes. The
// process of the device applies it to the memory of its core.
#include <stddef.h>

#include "base/strbuf.h"
#include "device/core_internal.h"

typedef struct letter {
  int32_t device, core, subcore;
  uint32_t type;  // of its program: at_core_type
  int32_t loc;    // of who sends; places are alike
  int32_t copies;
  int64_t sem, amount;  // sem: index, -1: none
  // What follows, and the bytes behind it, only where it copies. Pointers and
  // strides of the source mean nothing: the bytes are dense.
  _Alignas(64) at_core_dma dma;
  uint64_t offset, region_bytes;
  uint32_t region;
} letter;
enum {
  kSignalBytes = offsetof(letter, dma),
  // Larger copies go in pieces, the signal with the last: who receives is never
  // busy for long, and copies one piece while the next is on its way.
  kPieceBytes = 1 << 20
};
_Static_assert(sizeof(letter) % 64 == 0, "the bytes behind it are aligned");

bool core_is_elsewhere(const core_state *c, int32_t device) {
  const at_core_group *g = c->group;
  return g && g->far && device >= 0 && device < c->launch->num_devices &&
         !core_team(c, device).num;
}

// ---- Sending
// AT_CORE_SELF becomes the sender's own numbers: the receiver does not know
// them.
static letter letter_for(const core_state *c, far_core to, int64_t sem,
                         int64_t amount, int32_t loc) {
  const at_core *h = &c->head;
  letter m = {
      .device = to.device,
      .core = to.core == AT_CORE_SELF ? h->core_index : to.core,
      .subcore = to.subcore == AT_CORE_SELF ? h->subcore_index : to.subcore,
      .type = to.owner ? (uint32_t)to.owner - 1 : c->program->record->type,
      .loc = loc,
      .sem = sem,
      .amount = amount};
  if (m.type == AT_CORE_SC_SCALAR) m.subcore = 0;
  return m;
}

// What fails here ends the kernel on all devices.
static void send(core_state *c, int32_t device, const at_bytes *parts,
                 uint32_t num_parts, int32_t loc) {
  const at_core_far *far = c->group->far;
  at_status st = far->send(far->arg, device, parts, num_parts);
  if (!st.err) return;
  at_core_group_fail(c->group, st);
  core_stop(c, AT_CANCELLED, loc, "a message to device %d failed", device);
}

// A letter without bytes.
void core_far_signal(core_state *c, far_core to, int64_t sem, int64_t amount,
                     int32_t loc) {
  letter m = letter_for(c, to, sem, amount, loc);
  const at_bytes part = {(const uint8_t *)&m, kSignalBytes};
  send(c, to.device, &part, 1, loc);
}

// Grows; it lives as long as the launch.
static uint8_t *parcel_of(core_state *c, size_t bytes) {
  if (c->parcel_bytes < bytes) {
    c->parcel = core_take(c, bytes, "a copy to another process");
    c->parcel_bytes = bytes;
  }
  return c->parcel;
}

// The bytes that go, as the other side takes them.
static at_bytes pack(core_state *c, const at_core_dma *d, at_core_dma *out) {
  size_t bytes = (size_t)core_dma_bytes(d);
  int64_t dense[AT_CORE_MAX_RANK];
  core_dma_dense(d, dense);
  *out = *d;
  out->src = out->dst = out->src_sem = out->dst_sem = NULL;
  if (d->packed_bits && !d->unpack) {
    at_core_dma here = *d;
    memcpy(here.dst_stride, dense, sizeof dense);
    uint8_t *to = parcel_of(c, bytes);
    core_dma_repack(&here, to);
    out->packed_bits = 0;
    out->padding = 0;
    return (at_bytes){to, bytes};
  }
  box b = {.src = d->src,
           .rank = (uint32_t)d->rank,
           .elem_bytes = (uint32_t)d->elem_bytes,
           .size = d->size,
           .dst_stride = dense,
           .src_stride = d->src_stride};
  if (core_box_run(&b) == bytes) return (at_bytes){d->src, bytes};
  b.dst = parcel_of(c, bytes);
  core_copy_box(&b);
  return (at_bytes){b.dst, bytes};
}

// One message: the letter and its bytes.
static void send_piece(core_state *c, const at_core_dma *d, const region *r,
                       int64_t sem, int64_t amount) {
  far_core to = {d->device, d->core, d->subcore, 0};
  letter m = letter_for(c, to, sem, amount, d->loc);
  m.copies = 1;
  m.region = (uint32_t)(r - c->regions);
  m.region_bytes = r->bytes;
  m.offset = (uint64_t)((uint8_t *)d->dst - r->base);
  const at_bytes data = pack(c, d, &m.dma);
  const at_bytes parts[] = {{(const uint8_t *)&m, sizeof m}, data};
  _Static_assert(AT_LEN(parts) <= AT_CORE_FAR_PARTS, "parts of a message");
  send(c, d->device, parts, AT_LEN(parts), d->loc);
}

// The dimension that is cut, and how many of its rows a piece has.
static int32_t cut_of(const at_core_dma *d, int64_t *rows) {
  int64_t row = d->elem_bytes;
  int32_t k = d->rank - 1;
  while (k > 0 && row * d->size[k] <= kPieceBytes) row *= d->size[k--];
  *rows = AT_MAX(kPieceBytes / row, (int64_t)1);
  return k;
}

// at: of the first element of a piece. False: that was the last one.
static bool next_piece(const at_core_dma *d, int32_t cut, int64_t rows,
                       int64_t *at) {
  at[cut] += rows;
  for (int32_t k = cut; k > 0 && at[k] >= d->size[k]; k--) {
    at[k] = 0;
    at[k - 1]++;
  }
  return at[0] < d->size[0];
}

void core_far_copy(core_state *c, const at_core_dma *d, const region *r,
                   int64_t sem) {
  const int64_t amount = core_dma_signals(d, true);
  // What is behind an array is cleared for the whole of it.
  if (core_dma_bytes(d) <= kPieceBytes || d->padding) {
    send_piece(c, d, r, sem, amount);
    return;
  }
  int64_t rows, at[AT_CORE_MAX_RANK] = {0};
  const int32_t cut = cut_of(d, &rows);
  for (bool more = true; more;) {
    at_core_dma piece = *d;
    for (int32_t k = 0; k <= cut; k++) {
      piece.src = (uint8_t *)piece.src + at[k] * d->src_stride[k];
      piece.dst = (uint8_t *)piece.dst + at[k] * d->dst_stride[k];
      piece.size[k] = k < cut ? 1 : AT_MIN(rows, d->size[k] - at[k]);
    }
    more = next_piece(d, cut, rows, at);
    send_piece(c, &piece, r, more ? -1 : sem, amount);
  }
}

// ---- Receiving
static at_status refuse(const core_state *to, const letter *m,
                        const char *what) {
  char place[512];
  core_place(to, m->loc, place, sizeof place);
  return AT_FAIL(AT_INVALID_ARGUMENT, "kernel %s: %s%s%s", core_name(to), what,
                 *place ? "\nat: " : "", place);
}

// Does a copy of `bytes` bytes fit into the room that its place has?
static bool fits(const at_core_dma *d, uint64_t bytes, uint64_t room) {
  if (d->rank < 0 || d->rank > AT_CORE_MAX_RANK || d->elem_bytes < 1)
    return false;
  if (d->packed_bits && (d->packed_bits < 0 || 8 % d->packed_bits ||
                         d->elem_bytes != 1 || d->packed_step < 0 || d->add))
    return false;
  size_t all = (size_t)d->elem_bytes;
  size_t last = at_add(all, at_mul((size_t)core_dma_elements(d, true) - 1,
                                   (size_t)d->packed_step));
  for (int32_t k = 0; k < d->rank; k++) {
    if (d->size[k] < 1 || d->dst_stride[k] < 0) return false;
    all = at_mul(all, (size_t)d->size[k]);
    last =
        at_add(last, at_mul((size_t)d->size[k] - 1, (size_t)d->dst_stride[k]));
  }
  return all == bytes && last <= room;
}

// Another process is not trusted: region, size and place are held against this
// core's list.
static at_status land(core_state *to, const letter *m, at_bytes data) {
  at_core_dma d = m->dma;
  const region *r =
      m->region < to->num_regions ? &to->regions[m->region] : NULL;
  if (!r || r->bytes != m->region_bytes || m->offset > r->bytes)
    return refuse(to, m,
                  "another device has no such memory: remote copies go to "
                  "whole operands, scratch or allocations");
  if (!fits(&d, data.len, r->bytes - m->offset))
    return refuse(to, m, "a copy that came does not fit its destination");
  d.src = (void *)data.ptr;
  core_dma_dense(&d, d.src_stride);
  if (core_dma_land(to, &d, r->base + m->offset)) return AT_OK;
  return refuse(to, m,
                "a copy that adds to an address that is no multiple of "
                "its elements' size");
}

// NULL: no such core here.
static core_state *target_of(const at_core_group *g, const letter *m) {
  bool there = m->device >= 0 && (uint32_t)m->device < g->num_teams;
  return there ? core_of_team(g->teams[m->device], m->core, m->subcore, m->type)
               : NULL;
}

// Copies; the signal is the caller's.
static at_status receive(const at_core_group *g, at_bytes message, letter *m,
                         core_state **to) {
  const size_t head = AT_MIN(message.len, sizeof *m);
  *m = (letter){.sem = -1};
  memcpy(m, message.ptr, head);
  if (head < (m->copies ? sizeof *m : (size_t)kSignalBytes))
    return AT_FAIL(AT_INTERNAL, "a message for a kernel has %zu bytes",
                   message.len);
  *to = target_of(g, m);
  if (!*to)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "kernel %s: device %d, core %d does not take part in this "
                   "program",
                   g->first ? core_name(g->first) : "?", m->device, m->core);
  if (m->sem >= (int64_t)(*to)->cap_sems)
    return refuse(*to, m, "not a semaphore of that core");
  if (!m->copies) return AT_OK;
  return land(*to, m, (at_bytes){message.ptr + head, message.len - head});
}

// `hearing` keeps the group, and so the memory that is written to, until the
// message is applied.
void at_core_group_hear(at_core_group *g, at_bytes message) {
  pthread_mutex_lock(&g->lock);
  const bool hears = !g->failed;
  g->hearing += hears;
  pthread_mutex_unlock(&g->lock);
  if (!hears) return;
  letter m;
  core_state *to = NULL;
  at_status st = receive(g, message, &m, &to);
  if (st.err) at_core_group_fail(g, st);
  pthread_mutex_lock(&g->lock);
  if (!st.err && m.sem >= 0)
    core_raise(g, to, to->sems + m.sem, m.amount, m.loc);
  g->hearing--;
  const bool over = core_group_is_over(g);
  pthread_mutex_unlock(&g->lock);
  if (over) at_event_fire(g->all_done, AT_OK);
}

// ---- Other processes
void at_core_group_leave(at_core_group *g) {
  pthread_mutex_lock(&g->lock);
  g->others--;
  core_look_for_deadlock(g);
  const bool over = core_group_is_over(g);
  pthread_mutex_unlock(&g->lock);
  if (over) at_event_fire(g->all_done, AT_OK);
}

// Later failures are dropped.
void at_core_group_fail(at_core_group *g, at_status why) {
  pthread_mutex_lock(&g->lock);
  const bool first = !g->failed;
  if (first) {
    g->why = why;
    core_fail_group(g);
  }
  const bool over = core_group_is_over(g);
  pthread_mutex_unlock(&g->lock);
  if (!first) at_status_free(why);
  if (over) at_event_fire(g->all_done, AT_OK);
}

at_status at_core_group_failure(at_core_group *g) {
  pthread_mutex_lock(&g->lock);
  at_status st = g->why;
  g->why = AT_OK;
  pthread_mutex_unlock(&g->lock);
  return st;
}

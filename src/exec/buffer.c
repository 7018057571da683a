// Buffers: life, deletion, donation. See at_buffer's state word in
// exec_internal.h.
#include <stdlib.h>

#include "exec/exec_internal.h"

#define REFS(s) ((uint32_t)(s))
#define HOLDS(s) ((uint32_t)((s) >> 32) & 0x7fffffffu)
#define DELETED(s) (((s)&AT_BUFFER_DELETED) != 0)

const char *at_memory_kind_name(at_memory_kind k) {
  static const char *const names[AT_MEM_KINDS] = {"device", "pinned_host",
                                                  "unpinned_host"};
  return (unsigned)k < AT_MEM_KINDS ? names[k] : "?";
}

// As HLO prints shapes, without a layout.
void at_shape_print(at_dtype t, at_dims dims, at_strbuf *out) {
  at_strbuf_addf(out, "%s[", at_dtype_of(t)->text);
  for (uint32_t i = 0; i < dims.rank; i++)
    at_strbuf_addf(out, "%s%lld", i ? "," : "", (long long)dims.ptr[i]);
  at_strbuf_addc(out, ']');
}

// SIZE_MAX: a dimension is negative, or the product overflows.
static size_t dense_bytes(at_dtype t, at_dims dims) {
  size_t n = at_dtype_bytes(t);
  for (uint32_t i = 0; i < dims.rank; i++) {
    if (dims.ptr[i] < 0) return SIZE_MAX;
    if (dims.ptr[i] == 0) return 0;
    n = at_mul(n, (size_t)dims.ptr[i]);
  }
  return n;
}

// A buffer without memory (at_chip_allocate gives it some), one reference.
// Consumes `ready`; NULL there counts as no memory.
at_status at_buffer_make(at_chip *c, at_memory_kind k, at_dtype t, at_dims dims,
                         at_event *ready, at_buffer **out) {
  size_t bytes = dense_bytes(t, dims);
  at_buffer *b = NULL;
  if (ready && (unsigned)k < AT_MEM_KINDS && bytes < SIZE_MAX &&
      dims.rank <= 64)
    b = malloc(sizeof *b + dims.rank * sizeof *b->dims);
  if (!b) {
    at_event_release(ready);
    if (bytes == SIZE_MAX || dims.rank > 64 || (unsigned)k >= AT_MEM_KINDS)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "a buffer of rank %u with a negative or too large "
                     "dimension, or an unknown memory kind",
                     dims.rank);
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a buffer");
  }
  *b = (at_buffer){.chip = c,
                   .kind = k,
                   .dtype = t,
                   .rank = dims.rank,
                   .owned = true,
                   .bytes = bytes,
                   .ready = ready};
  b->padded_bytes = at_hw_padded_bytes(c->hw, t, dims);
  atomic_store_explicit(&b->state, 1, memory_order_relaxed);
  if (dims.rank) memcpy(b->dims, dims.ptr, dims.rank * sizeof *b->dims);
  *out = b;
  return AT_OK;
}

// ---- The state word
// Only by whoever knows that no hold is left or can be taken.
static void drop_memory(at_buffer *b) {
  if (b->array) at_proxy_let_go(b);
  at_chip_free(b->chip, b);
  if (b->on_release) b->on_release(b->release_arg);
  b->on_release = NULL;
}

// With the last reference and the last hold.
static void destroy(at_buffer *b) {
  at_proxy_moment_release(b->moment);
  at_event_release(b->ready);
  free(b);
}

// References are the low 32 bits of the state.
at_buffer *at_buffer_retain(at_buffer *b) {
  uint64_t before =
      atomic_fetch_add_explicit(&b->state, 1, memory_order_relaxed);
  AT_ASSERT(REFS(before) > 0 || HOLDS(before) > 0);
  return b;
}

// The object goes with the last reference if no hold is left, else with the
// last hold.
void at_buffer_release(at_buffer *b) {
  if (!b) return;
  uint64_t before =
      atomic_fetch_sub_explicit(&b->state, 1, memory_order_acq_rel);
  AT_ASSERT(REFS(before) > 0);
  if (REFS(before) != 1 || HOLDS(before))
    return;  // the last hold will see to it
  if (!DELETED(before)) drop_memory(b);
  destroy(b);
}

// A compare-and-swap, for the deleted bit must not be set meanwhile.
bool at_buffer_hold(at_buffer *b) {
  uint64_t s = atomic_load_explicit(&b->state, memory_order_relaxed);
  do {
    if (DELETED(s)) return false;
  } while (!atomic_compare_exchange_weak_explicit(
      &b->state, &s, s + AT_BUFFER_HOLD, memory_order_acquire,
      memory_order_relaxed));
  return true;
}

// True: this call deleted it. A launch that donates an array and a client that
// deletes it race here, and one wins.
bool at_buffer_delete_once(at_buffer *b) {
  uint64_t before = atomic_fetch_or_explicit(&b->state, AT_BUFFER_DELETED,
                                             memory_order_acq_rel);
  if (!DELETED(before) && !HOLDS(before)) drop_memory(b);
  return !DELETED(before);
}

void at_buffer_delete(at_buffer *b) { at_buffer_delete_once(b); }

// With the last hold of a deleted or unreferenced array its memory goes. Drops
// the hold after the memory, so that nobody destroys the object meanwhile.
void at_buffer_unhold(at_buffer *b) {
  uint64_t s = atomic_load_explicit(&b->state, memory_order_acquire);
  do {
    AT_ASSERT(HOLDS(s) > 0);
    if (HOLDS(s) != 1 || !(DELETED(s) || REFS(s) == 0)) continue;
    // The last hold, and no new one can come: free the memory while the hold
    // still keeps the object.
    drop_memory(b);
    s = atomic_fetch_sub_explicit(&b->state, AT_BUFFER_HOLD,
                                  memory_order_acq_rel);
    if (REFS(s) == 0) destroy(b);
    return;
  } while (!atomic_compare_exchange_weak_explicit(
      &b->state, &s, s - AT_BUFFER_HOLD, memory_order_acq_rel,
      memory_order_acquire));
}

uint32_t at_buffer_holds(const at_buffer *b) {
  return HOLDS(atomic_load(&((at_buffer *)b)->state));
}

// May the memory be taken over? Only the holder may ask: nobody else can take a
// hold once it is deleted.
bool at_buffer_sole_hold(const at_buffer *b) {
  uint64_t s =
      atomic_load_explicit(&((at_buffer *)b)->state, memory_order_acquire);
  return HOLDS(s) == 1;
}

// ---- Sharing
// on_release of a face: gives back what at_buffer_share took of its source.
static void let_go(void *source) {
  at_chip_unpin(((at_buffer *)source)->chip, source);
  at_buffer_unhold(source);
}

// `to` shows the memory of `from`. False: not possible, copy instead. True:
// done, or *st says why not.
bool at_buffer_share(at_buffer *from, at_buffer *to, bool on_chip_queue,
                     at_status *st) {
  // A face of a face shows the first one's memory, so that chains do not grow.
  at_buffer *source = from->on_release == let_go ? from->release_arg : from;
  *st = AT_OK;
  if (!source->owned || from->kind != to->kind || from->bytes != to->bytes)
    return false;
  // Two show it now: it stays where it is.
  *st = at_chip_pin(source->chip, source);
  if (st->err) return true;
  to->data = from->data;
  to->owned = false;
  *st = at_chip_allocate(to->chip, to, on_chip_queue);
  if (st->err) {
    to->data = NULL;
    at_chip_unpin(source->chip, source);
    return true;
  }
  // Somebody holds it, so the memory is there, deleted or not.
  atomic_fetch_add_explicit(&source->state, AT_BUFFER_HOLD,
                            memory_order_relaxed);
  to->on_release = let_go;
  to->release_arg = source;
  return true;
}

bool at_buffer_is_deleted(const at_buffer *b) {
  return DELETED(
      atomic_load_explicit(&((at_buffer *)b)->state, memory_order_acquire));
}

// Holds, and where arrays may be spilled brings the bytes back.
static at_status acquire(at_buffer *b,
                         at_status (*pin)(at_chip *c, at_buffer *b)) {
  if (at_buffer_hold(b)) {
    at_status st = b->chip->runtime->spill ? pin(b->chip, b) : AT_OK;
    if (st.err) at_buffer_unhold(b);
    return st;
  }
  return AT_FAIL(AT_FAILED_PRECONDITION,
                 "buffer has been deleted or donated: it takes no external "
                 "reference");
}

// May wait for memory.
at_status at_buffer_acquire(at_buffer *b) {
  return acquire(b, at_chip_pin_in_time);
}

// Never waits.
at_status at_buffer_acquire_now(at_buffer *b) {
  return acquire(b, at_chip_pin_slowly);
}

// Unpins before the hold goes, as the hold keeps the object.
void at_buffer_unacquire(at_buffer *b) {
  at_chip_unpin(b->chip, b);
  at_buffer_unhold(b);
}

at_status at_buffer_pin(at_buffer *b) { return at_chip_pin(b->chip, b); }
void at_buffer_unpin(at_buffer *b) { at_chip_unpin(b->chip, b); }

// ---- Making
at_status at_buffer_create(at_chip *c, at_memory_kind k, at_dtype t,
                           at_dims dims, at_buffer **out) {
  AT_TRY(at_runtime_check(c->runtime));
  if (c->runtime->proxy) return at_proxy_create(c, k, t, dims, out);
  at_buffer *b;
  AT_TRY(at_buffer_make(c, k, t, dims, at_event_create(), &b));
  at_status st = at_chip_allocate(c, b, false);
  if (st.err) {
    at_buffer_release(b);
    return st;
  }
  *out = b;
  return AT_OK;
}

// Takes no memory of the chip.
at_status at_buffer_failed(at_chip *c, at_memory_kind k, at_dtype t,
                           at_dims dims, at_status why, at_buffer **out) {
  AT_TRY(at_buffer_make(c, k, t, dims, at_event_create(), out));
  at_event_fire((*out)->ready, at_status_clone(why));
  return AT_OK;
}

// Pinned since it was made; from now on it may be spilled.
void at_buffer_define(at_buffer *b, at_status s) {
  if (b->moment) return at_proxy_define(b, s);
  if (!s.err && b->data) at_settle_bits(b->dtype, b->data, b->bytes);
  at_event_fire(b->ready, s);
  at_chip_unpin(b->chip, b);
}

// A copy of what is there now: nobody elsewhere sees this memory.
static at_status view_there(at_chip *c, at_memory_kind k, at_dtype t,
                            at_dims dims, void *data,
                            void (*on_release)(void *), void *arg,
                            at_buffer **out) {
  AT_TRY(at_proxy_from_host(
      c, k, &(at_host_array){.dtype = t, .dims = dims, .data = data}, out));
  if (on_release) on_release(arg);
  return AT_OK;
}

// No memory of the chip, but accounted in HBM. Empty arrays get an address all
// the same.
at_status at_buffer_view(at_chip *c, at_memory_kind k, at_dtype t, at_dims dims,
                         void *data, void (*on_release)(void *), void *arg,
                         at_buffer **out) {
  AT_TRY(at_runtime_check(c->runtime));
  if (c->runtime->proxy)
    return view_there(c, k, t, dims, data, on_release, arg, out);
  at_buffer *b;
  AT_TRY(at_buffer_make(c, k, t, dims, at_event_done(), &b));
  static _Alignas(64) uint8_t nothing[64];
  b->owned = false;
  b->data = data ? data : nothing;
  at_status st = at_chip_allocate(c, b, false);
  if (st.err) {
    b->data = NULL;
    at_buffer_release(b);
    return st;
  }
  b->on_release = on_release;
  b->release_arg = arg;
  *out = b;
  return AT_OK;
}

// ---- Looking
at_dtype at_buffer_dtype(const at_buffer *b) { return b->dtype; }
at_dims at_buffer_dims(const at_buffer *b) {
  return (at_dims){b->dims, b->rank};
}
size_t at_buffer_bytes(const at_buffer *b) { return b->bytes; }
size_t at_buffer_padded_bytes(const at_buffer *b) { return b->padded_bytes; }
at_chip *at_buffer_chip(const at_buffer *b) { return b->chip; }
at_memory_kind at_buffer_memory(const at_buffer *b) { return b->kind; }
// Asks the hosts, the first time, for one that is elsewhere.
at_event *at_buffer_ready(at_buffer *b) {
  if (b->moment && b->array) at_proxy_ask(b);
  return b->ready;
}
bool at_buffer_is_ready(const at_buffer *b) {
  return at_event_fired(at_buffer_ready((at_buffer *)b));
}
// Pins for good: a pointer was given away.
void *at_buffer_data(at_buffer *b) {
  if (at_buffer_is_deleted(b)) return NULL;
  if (b->array) return at_proxy_data(b);
  // Whoever has the address may use it for as long as there is the array.
  return at_code_take(at_chip_pin(b->chip, b)) ? NULL : b->data;
}
void *at_buffer_data_mut(at_buffer *b) {
  return b->array ? at_proxy_data(b) : at_buffer_is_deleted(b) ? NULL : b->data;
}
void *at_buffer_data_held(at_buffer *b) { return b->data; }
bool at_buffer_is_here(const at_buffer *b) { return !b->moment; }
at_status at_buffer_defer(at_buffer *b, void (*fn)(void *), void *arg) {
  return at_sched_spawn(b->chip->runtime->sched, fn, arg);
}

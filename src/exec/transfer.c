// Copies between host and chip, and between chips. Small ones run at once on
// the caller's thread; large ones on a fiber, split over the thread pool.
#include <stdlib.h>

#include "base/clock.h"
#include "exec/exec_internal.h"
#include "profile/profile.h"

enum {
  kCopyChunk = 1 << 20,   // bytes that one thread copies at a time
  kCopyAtOnce = 1 << 20,  // up to here the caller's thread copies
  kMaxRank = 64,
};

typedef struct copy_job {
  uint8_t *dst;
  const uint8_t *src;
} copy_job;

// One thread's share of a large copy.
static void copy_range(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  const copy_job *j = arg;
  memcpy(j->dst + begin, j->src + begin, (size_t)(end - begin));
}

// Split over the pool; returns when all is copied.
void at_copy_bytes(at_pool *p, void *dst, const void *src, size_t n) {
  if (n == 0) return;
  copy_job j = {dst, src};
  at_pool_for(p, (int64_t)n, kCopyChunk, copy_range, &j);
}

// From `start` until now.
void at_transfer_record(const at_chip *c, uint64_t start, size_t bytes,
                        const char *name) {
  if (AT_LIKELY(!at_profile_on())) return;
  at_span_record(&(at_profile_span){.start_ns = start,
                                    .end_ns = at_clock_ns(),
                                    .bytes = bytes,
                                    .kind = AT_SPAN_TRANSFER,
                                    .lane = c->info.id},
                 name);
  at_profile_record(&(at_profile_event){.start_ns = start,
                                        .end_ns = at_clock_ns(),
                                        .kind = AT_PROFILE_TRANSFER,
                                        .chip = c->info.id,
                                        .bytes = bytes,
                                        .name = name});
}

// ---- Strided host arrays
typedef struct strided {
  uint8_t *dst;
  const uint8_t *src;
  size_t element;
  uint32_t rank;  // >= 1; the last dimension is the inner loop
  int64_t size[kMaxRank], stride[kMaxRank];
} strided;

// Elements of common sizes by loads and stores.
static void copy_row(const strided *s, uint8_t *dst, const uint8_t *src) {
  int64_t n = s->size[s->rank - 1], stride = s->stride[s->rank - 1];
  switch (s->element) {
#define ROW(T)                                                           \
  case sizeof(T):                                                        \
    for (int64_t i = 0; i < n; i++)                                      \
      memcpy(dst + i * (int64_t)sizeof(T), src + i * stride, sizeof(T)); \
    return;
    ROW(uint8_t)
    ROW(uint16_t)
    ROW(uint32_t)
    ROW(uint64_t)
#undef ROW
    default:
      for (int64_t i = 0; i < n; i++)
        memcpy(dst + (size_t)i * s->element, src + i * stride, s->element);
  }
}

// Rows [begin, end) of the dense result; the index counts like an odometer.
static void copy_rows(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  const strided *s = arg;
  int64_t index[kMaxRank];
  const uint8_t *src = s->src;
  int64_t rest = begin;
  for (uint32_t d = s->rank - 1; d-- > 0;) {
    index[d] = rest % s->size[d];
    rest /= s->size[d];
    src += index[d] * s->stride[d];
  }
  size_t row_bytes = (size_t)s->size[s->rank - 1] * s->element;
  for (int64_t r = begin; r < end; r++) {
    copy_row(s, s->dst + (size_t)r * row_bytes, src);
    for (uint32_t d = s->rank - 1; d-- > 0;) {
      src += s->stride[d];
      if (++index[d] < s->size[d]) break;
      src -= s->stride[d] * s->size[d];
      index[d] = 0;
    }
  }
}

// Drops dimensions of size 1 and merges neighbours that are dense to each
// other; a dense innermost run becomes one wide element.
static void simplify(strided *s) {
  uint32_t n = 0;
  for (uint32_t d = 0; d < s->rank; d++) {
    if (s->size[d] == 1) continue;
    bool joins = n > 0 && s->stride[n - 1] == s->stride[d] * s->size[d];
    if (joins)
      s->size[n - 1] *= s->size[d];
    else
      s->size[n++] = s->size[d];
    s->stride[n - 1] = s->stride[d];
  }
  if (n && s->stride[n - 1] == (int64_t)s->element) {
    s->element *= (size_t)s->size[n - 1];
    n--;
  }
  if (n == 0) {
    s->size[0] = 1;
    s->stride[0] = (int64_t)s->element;
    n = 1;
  }
  s->rank = n;
}

// Strides of dimensions of size 1 do not count.
bool at_host_array_is_dense(const at_host_array *a) {
  if (!a->byte_strides) return true;
  int64_t expected = at_dtype_bytes(a->dtype);
  for (uint32_t d = a->dims.rank; d-- > 0;) {
    if (a->dims.ptr[d] != 1 && a->byte_strides[d] != expected) return false;
    expected *= a->dims.ptr[d];
  }
  return true;
}

// Types under 8 bits take a byte each: hosts want zeros in its high bits, a
// device the sign.
static bool is_narrow(at_dtype t) {
  return at_dtype_of(t)->bits < 8 && (at_is_int(t) || at_is_float(t));
}

// As hosts want them.
static void clear_high_bits(at_dtype t, uint8_t *p, size_t bytes) {
  if (!is_narrow(t)) return;
  uint8_t keep = (uint8_t)(0xff >> (8 - at_dtype_of(t)->bits));
  for (size_t i = 0; i < bytes; i++) p[i] &= keep;
}

// As a device has them: the sign extended, or zeros.
void at_settle_bits(at_dtype t, void *data, size_t bytes) {
  uint8_t *p = data;
  if (!is_narrow(t) || !at_is_signed_int(t)) {
    clear_high_bits(t, p, bytes);
    return;
  }
  unsigned gone = 8u - at_dtype_of(t)->bits;
  for (size_t i = 0; i < bytes; i++)
    p[i] = (uint8_t)((int8_t)(uint8_t)(p[i] << gone) >> gone);
}

// Split by rows; nothing is converted.
void at_host_array_gather(at_pool *p, const at_host_array *a, void *dst,
                          size_t bytes) {
  if (bytes == 0) return;
  if (at_host_array_is_dense(a)) {
    at_copy_bytes(p, dst, a->data, bytes);
    return;
  }
  strided s = {.dst = dst,
               .src = a->data,
               .element = at_dtype_bytes(a->dtype),
               .rank = a->dims.rank};
  for (uint32_t d = 0; d < s.rank; d++) {
    s.size[d] = a->dims.ptr[d];
    s.stride[d] = a->byte_strides[d];
  }
  simplify(&s);
  if (s.rank == 1 && s.size[0] == 1) {  // it was dense after all
    at_copy_bytes(p, dst, a->data, bytes);
    return;
  }
  int64_t rows = 1;
  for (uint32_t d = 0; d + 1 < s.rank; d++) rows *= s.size[d];
  int64_t row_bytes = s.size[s.rank - 1] * (int64_t)s.element;
  at_pool_for(p, rows, AT_MAX((int64_t)1, kCopyChunk / row_bytes), copy_rows,
              &s);
}

// Gathers, then brings narrow types into the device's form.
static void copy_in(at_pool *p, at_buffer *b, const at_host_array *a) {
  at_host_array_gather(p, a, b->data, b->bytes);
  at_settle_bits(b->dtype, b->data, b->bytes);
}

// ---- From the host
static void fire_and_release(void *event) {
  at_event_fire(event, AT_OK);
  at_event_release(event);
}

// The host's own memory becomes the buffer's; `done` fires when it is not read
// any more.
static at_status view_host(at_chip *c, at_memory_kind k,
                           const at_host_array *src, at_buffer **out,
                           at_event **out_host_done) {
  at_event *done = at_event_create();
  if (!done) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for an event");
  at_event_retain(done);
  at_status st = at_buffer_view(c, k, src->dtype, src->dims, (void *)src->data,
                                fire_and_release, done, out);
  if (st.err) {
    at_event_release(done);
    at_event_release(done);
    return st;
  }
  *out_host_done = done;
  return AT_OK;
}

// A copy on a fiber: dims and strides are copied behind the struct.
typedef struct upload {
  at_buffer *buffer;  // referenced and held
  at_event *done;     // referenced
  at_host_array src;
  int64_t numbers[];
} upload;

// On a fiber: the array is defined before the host hears that its memory is
// free, and the transfer ends last, since allocations wait for it.
static void upload_main(void *arg) {
  upload *u = arg;
  at_chip *c = u->buffer->chip;
  uint64_t start = at_clock_ns();
  copy_in(c->runtime->pool, u->buffer, &u->src);
  at_transfer_record(c, start, u->buffer->bytes, "host to device");
  at_event_fire(u->buffer->ready, AT_OK);
  at_chip_unpin(c, u->buffer);
  at_buffer_unhold(u->buffer);
  at_event_fire(u->done, AT_OK);
  at_event_release(u->done);
  at_chip_transfer_end(c);
  free(u);
}

// On failure nothing of b has changed but for its event.
static at_status start_upload(at_buffer *b, const at_host_array *src,
                              at_event **out_done) {
  uint32_t rank = src->dims.rank;
  upload *u = malloc(sizeof *u + 2 * rank * sizeof(int64_t));
  at_event *done = u ? at_event_create() : NULL;
  if (!done) {
    free(u);
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a transfer");
  }
  *u = (upload){.buffer = b, .done = at_event_retain(done), .src = *src};
  if (rank) memcpy(u->numbers, src->dims.ptr, rank * sizeof(int64_t));
  u->src.dims.ptr = u->numbers;
  if (src->byte_strides) {
    memcpy(u->numbers + rank, src->byte_strides, rank * sizeof(int64_t));
    u->src.byte_strides = u->numbers + rank;
  }
  at_buffer_hold(b);
  at_chip_transfer_begin(b->chip);
  at_status st = at_sched_spawn(b->chip->runtime->sched, upload_main, u);
  if (st.err) {
    at_chip_transfer_end(b->chip);
    at_buffer_unhold(b);
    at_event_release(done);
    at_event_release(done);
    free(u);
    return st;
  }
  *out_done = done;
  return AT_OK;
}

// Small or short-lived arrays are copied here; others on a fiber.
at_status at_buffer_from_host(at_chip *c, at_memory_kind k,
                              const at_host_array *src, at_host_semantics s,
                              at_buffer **out, at_event **out_host_done) {
  AT_TRY(at_runtime_check(c->runtime));
  if (c->runtime->proxy) {
    AT_TRY(at_proxy_from_host(c, k, src, out));
    *out_host_done = at_event_done();
    return AT_OK;
  }
  // JAX passes NumPy arrays as immutable for the buffer's life, yet lets people
  // write into them once jnp.array has returned: a chip has its own copy by
  // then. So such arrays are copied at once; memory given up for good is not.
  bool at_once = s == AT_HOST_IMMUTABLE_ONLY_DURING_CALL ||
                 s == AT_HOST_IMMUTABLE_ZERO_COPY;
  if (s == AT_HOST_MUTABLE_ZERO_COPY && (uintptr_t)src->data % 64 == 0 &&
      at_host_array_is_dense(src) && at_dtype_of(src->dtype)->bits >= 8)
    return view_host(c, k, src, out, out_host_done);
  at_buffer *b;
  AT_TRY(at_buffer_make(c, k, src->dtype, src->dims, at_event_done(), &b));
  at_status st = at_chip_allocate(c, b, false);
  if (!st.err && b->bytes && !src->data)
    st = AT_FAIL(AT_INVALID_ARGUMENT, "the host array has no data");
  if (st.err) goto fail;
  if (at_once || b->bytes <= kCopyAtOnce) {
    copy_in(c->runtime->pool, b, src);
    at_chip_unpin(c, b);
    *out_host_done = at_event_done();
    *out = b;
    return AT_OK;
  }
  if (!(b->ready = at_event_create())) {
    b->ready = at_event_done();
    st = AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for an event");
    goto fail;
  }
  AT_TRY_GOTO(st, start_upload(b, src, out_host_done), fail);
  *out = b;
  return AT_OK;
fail:
  at_buffer_release(b);
  return st;
}

// ---- To the host, and between chips
typedef struct download {
  at_buffer *from;  // held
  at_buffer *to;    // held, or NULL: to dst
  void *dst;
  size_t offset, bytes;
  at_event *done;  // referenced
} download;

// On a fiber: waits for the source, pins it, copies, and fires `done` with the
// source's error where it has one. Hosts get zeros in the high bits of narrow
// types.
static void download_main(void *arg) {
  download *d = arg;
  at_chip *c = d->from->chip;
  at_status st = at_event_wait(d->from->ready);
  bool pinned = !st.err;
  if (!st.err) st = at_chip_pin(c, d->from);
  pinned &= !st.err;
  uint64_t start = at_clock_ns();
  if (!st.err && d->bytes)
    at_copy_bytes(c->runtime->pool, d->to ? d->to->data : d->dst,
                  (const uint8_t *)d->from->data + d->offset, d->bytes);
  if (!st.err && !d->to) clear_high_bits(d->from->dtype, d->dst, d->bytes);
  at_transfer_record(c, start, d->bytes,
                     d->to ? "device to device" : "device to host");
  if (pinned) at_chip_unpin(c, d->from);
  at_buffer_unhold(d->from);
  at_event_fire(d->done, st);
  at_event_release(d->done);
  if (d->to) at_chip_unpin(d->to->chip, d->to);
  if (d->to) at_buffer_unhold(d->to);
  at_chip_transfer_end(c);
  free(d);
}

// Takes over one hold of `from` and one of `to`; gives them back on failure.
static at_status start_download(at_buffer *from, at_buffer *to, void *dst,
                                size_t offset, size_t bytes, at_event *done) {
  download *d = malloc(sizeof *d);
  at_status st =
      d ? AT_OK : AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a transfer");
  if (!st.err) {
    *d = (download){from, to, dst, offset, bytes, at_event_retain(done)};
    at_chip_transfer_begin(from->chip);
    st = at_sched_spawn(from->chip->runtime->sched, download_main, d);
    if (!st.err) return AT_OK;
    at_chip_transfer_end(from->chip);
    at_event_release(done);
    free(d);
  }
  at_buffer_unhold(from);
  if (to) at_buffer_unhold(to);
  return st;
}

// INVALID_ARGUMENT: deleted.
static at_status hold_source(at_buffer *b) {
  AT_TRY(at_runtime_check(b->chip->runtime));
  if (at_buffer_hold(b)) return AT_OK;
  return AT_FAIL(AT_INVALID_ARGUMENT, "buffer has been deleted or donated");
}

// Small ready arrays at once; others on a fiber, which waits for them.
at_status at_buffer_to_host(at_buffer *b, void *dst, size_t offset, size_t n,
                            at_event **out_done) {
  if (offset > b->bytes || n > b->bytes - offset)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "bytes %zu + %zu of a buffer of %zu bytes", offset, n,
                   b->bytes);
  AT_TRY(hold_source(b));
  if (b->array) return at_proxy_to_host(b, dst, offset, n, out_done);
  if (n <= kCopyAtOnce && at_buffer_is_ready(b)) {
    at_status st = at_event_status(b->ready);
    bool pins = !st.err;
    if (pins) st = at_chip_pin(b->chip, b);
    pins &= !st.err;
    if (!st.err && n) {
      memcpy(dst, (const uint8_t *)b->data + offset, n);
      clear_high_bits(b->dtype, dst, n);
    }
    if (pins) at_chip_unpin(b->chip, b);
    at_buffer_unhold(b);
    if (!st.err) *out_done = at_event_done();
    return st;
  }
  at_event *done = at_event_create();
  if (!done) {
    at_buffer_unhold(b);
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for an event");
  }
  at_status st = start_download(b, NULL, dst, offset, n, done);
  if (st.err)
    at_event_release(done);
  else
    *out_done = done;
  return st;
}

// *out is defined by the fiber.
at_status at_buffer_copy_to(at_buffer *b, at_chip *c, at_memory_kind k,
                            at_buffer **out) {
  AT_TRY(hold_source(b));
  at_buffer *to;
  if (b->array) {
    at_status copied = at_proxy_copy(b, c, k, out);
    at_buffer_unhold(b);
    return copied;
  }
  at_status st = at_buffer_make(c, k, b->dtype, (at_dims){b->dims, b->rank},
                                at_event_create(), &to);
  if (st.err) {
    at_buffer_unhold(b);
    return st;
  }
  st = at_chip_allocate(c, to, false);
  if (st.err) {
    at_buffer_unhold(b);
    at_buffer_release(to);
    return st;
  }
  at_buffer_hold(to);
  st = start_download(b, to, NULL, 0, b->bytes, to->ready);
  if (st.err)
    at_buffer_release(to);
  else
    *out = to;
  return st;
}

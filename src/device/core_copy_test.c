// Copies by strides, against loops that do what a copy means: plain ones, those
// that add, what they clear behind an array, and boxes that leave their ref.
#include "device/core_internal.h"
#include "device/core_test_util.h"

enum { BYTES = 1 << 14, ELEMENTS = BYTES / 4 };

static uint64_t g_random = 88172645463325252ull;
// Uniform enough, by xorshift with a fixed seed: the same on each run.
static int64_t draw(int64_t low, int64_t high) {
  g_random ^= g_random << 13;
  g_random ^= g_random >> 7;
  g_random ^= g_random << 17;
  return low + (int64_t)(g_random >> 33) % (high - low + 1);
}

// ---- Boxes
// Strides of a box of `size` in any order of dimensions, with gaps now and
// then; returns the bytes from its first to behind its last.
static int64_t draw_strides(uint32_t rank, const int64_t *size, int64_t bytes,
                            int64_t *stride) {
  uint32_t order[4] = {0, 1, 2, 3};
  for (uint32_t d = rank; d-- > 1;) {
    uint32_t k = (uint32_t)draw(0, d), t = order[d];
    order[d] = order[k];
    order[k] = t;
  }
  if (draw(0, 1))  // as arrays lie
    for (uint32_t d = 0; d < rank; d++) order[d] = rank - 1 - d;
  int64_t step = bytes;
  for (uint32_t k = 0; k < rank; k++) {
    stride[order[k]] = step;
    step = step * size[order[k]] + (draw(0, 2) ? 0 : bytes * draw(1, 3));
  }
  int64_t end = bytes;
  for (uint32_t d = 0; d < rank; d++) end += (size[d] - 1) * stride[d];
  return end;
}

// What happens to one element.
typedef void (*element_fn)(uint8_t *to, const uint8_t *from, uint32_t bytes);

// Element by element, the last dimension first: a number in base `size`.
static void each_element(const box *b, element_fn fn) {
  int64_t n = 1;
  for (uint32_t d = 0; d < b->rank; d++) n *= b->size[d];
  for (int64_t i = 0; i < n; i++) {
    int64_t to = 0, from = 0, left = i;
    for (uint32_t d = b->rank; d-- > 0; left /= b->size[d]) {
      to += left % b->size[d] * b->dst_stride[d];
      from += left % b->size[d] * b->src_stride[d];
    }
    fn(b->dst + to, b->src + from, b->elem_bytes);
  }
}
static void copy_one(uint8_t *to, const uint8_t *from, uint32_t bytes) {
  memcpy(to, from, bytes);
}

// 2,000 random boxes against an element-wise copy; bytes around them must stay.
// Also says which boxes are one run.
static void boxes_are_copied(void **state) {
  static uint8_t from[BYTES], got[BYTES], want[BYTES];
  static const uint32_t widths[] = {1, 2, 4, 8, 3};
  for (int i = 0; i < BYTES; i++) from[i] = (uint8_t)(i * 31 + i / 256);
  for (int i = 0; i < 2000; i++) {
    int64_t size[4], to_stride[4], from_stride[4];
    box b = {.rank = (uint32_t)draw(0, 4),
             .elem_bytes = widths[draw(0, 4)],
             .size = size,
             .dst_stride = to_stride,
             .src_stride = from_stride};
    for (uint32_t d = 0; d < b.rank; d++) size[d] = draw(1, 5);
    int64_t to = draw_strides(b.rank, size, b.elem_bytes, to_stride);
    int64_t of = draw_strides(b.rank, size, b.elem_bytes, from_stride);
    if (to > BYTES || of > BYTES) continue;
    memset(got, 0x77, BYTES);
    memset(want, 0x77, BYTES);
    b.src = from + draw(0, BYTES - of);
    int64_t at = draw(0, BYTES - to);
    b.dst = want + at;
    each_element(&b, copy_one);
    b.dst = got + at;
    core_copy_box(&b);
    assert_memory_equal(got, want, BYTES);
    // One run of bytes where both sides are dense; the test's own sum.
    int64_t all = b.elem_bytes;
    for (uint32_t d = 0; d < b.rank; d++) all *= size[d];
    size_t run = core_box_run(&b);
    assert_true(run == 0 || (run == (size_t)all && to == all && of == all));
  }
}

// ---- Elements of fewer bits than a byte
// What a packed copy means, byte by byte; the packed side's byte and the first
// element of the other are at the same place of their boxes.
static void repack_each(const at_core_dma *d, uint8_t *dst) {
  int parts = 8 / d->packed_bits, span = 1 << d->packed_bits;
  int64_t n = 1;
  for (int32_t k = 0; k < d->rank; k++) n *= d->size[k];
  for (int64_t i = 0; i < n; i++) {
    uint8_t *to = dst, *from = d->src;
    int64_t left = i;
    for (int32_t k = d->rank; k-- > 0; left /= d->size[k]) {
      to += left % d->size[k] * d->dst_stride[k];
      from += left % d->size[k] * d->src_stride[k];
    }
    for (int k = 0; k < parts; k++) {
      int shift = k * d->packed_bits;
      int64_t at = k * d->packed_step;
      if (!d->unpack) {
        *to &= (uint8_t) ~((span - 1) << shift);
        *to |= (uint8_t)(from[at] % span << shift);
        continue;
      }
      int value = *from >> shift & (span - 1);
      if (d->packed_signed && value >= span / 2) value -= span;
      to[at] = (uint8_t)value;
    }
  }
}

// Both ways, of one to four bits, with the elements of a byte side by side or
// far from each other.
static void boxes_are_repacked(void **state) {
  static uint8_t from[BYTES], got[BYTES], want[BYTES];
  for (int i = 0; i < BYTES; i++) from[i] = (uint8_t)(i * 31 + i / 256);
  for (int i = 0; i < 2000; i++) {
    at_core_dma d = {.rank = (int32_t)draw(0, 3),
                     .elem_bytes = 1,
                     .packed_bits = 1 << draw(0, 2),
                     .packed_signed = (int32_t)draw(0, 1),
                     .unpack = (int32_t)draw(0, 1)};
    int64_t parts = 8 / d.packed_bits, width = draw(0, 1) ? parts : 1;
    for (int32_t k = 0; k < d.rank; k++) d.size[k] = draw(1, 5);
    int64_t *wide = d.unpack ? d.dst_stride : d.src_stride;
    int64_t *narrow = d.unpack ? d.src_stride : d.dst_stride;
    int64_t all = draw_strides((uint32_t)d.rank, d.size, width, wide);
    int64_t few = draw_strides((uint32_t)d.rank, d.size, 1, narrow);
    d.packed_step = width == 1 ? all : 1;
    if (all * parts > BYTES || few > BYTES) continue;
    memset(got, 0x77, BYTES);
    memset(want, 0x77, BYTES);
    d.src = from;
    repack_each(&d, want);
    core_dma_repack(&d, got);
    assert_memory_equal(got, want, BYTES);
  }
}

// ---- Kernels
// refs: in, out (HBM), buffer (VMEM), semaphore.
static kernel copying(at_core_body_fn body, void *in, void *out) {
  return (kernel){
      .record = {.num_refs = 4},
      .refs = {whole(AT_CORE_IN, AT_CORE_HBM, AT_S32, ELEMENTS),
               whole(AT_CORE_OUT, AT_CORE_HBM, AT_S32, ELEMENTS),
               whole(AT_CORE_SCRATCH, AT_CORE_VMEM, AT_S32, ELEMENTS),
               whole(AT_CORE_SCRATCH, AT_CORE_SEM, AT_INVALID, 1)},
      .body = body,
      .bufs = {in, out}};
}

// Source rows 16 words apart, destination rows 32.
static at_core_dma dma_of(void *dst, void *src, void *sem, int64_t rows,
                          int64_t columns) {
  at_core_dma d = copy_of(dst, src, columns, sem);
  d.rank = 2;
  d.size[0] = rows, d.size[1] = columns;
  d.src_stride[0] = 64, d.src_stride[1] = 4;
  d.dst_stride[0] = 128, d.dst_stride[1] = 4;
  return d;
}

// 8 rows of 10 words that lie 16 apart to rows that lie 32 apart, which hold 1.
static at_dtype g_added;
static void add_rows(at_core *c, const int32_t *g, const at_core_ref *r) {
  at_core_dma d = dma_of(r[1].base, r[0].base, r[3].base, 8, 10);
  d.add = (int32_t)g_added;
  for (int i = 0; i < 32 * 8; i++)
    if (g_added == AT_F32)
      ((float *)r[1].base)[i] = 1;
    else
      ((int32_t *)r[1].base)[i] = 1;
  at_core_dma_start(c, &d);
  at_core_dma_wait(c, r[3].base, 8 * 10 * 4, 0);
}

// In s32 and f32; other types are refused.
static void copies_add(void **state) {
  static int32_t in[ELEMENTS], out[ELEMENTS];
  for (int i = 0; i < ELEMENTS; i++) in[i] = i * 3 - 50;
  kernel k = copying(add_rows, in, out);
  g_added = AT_S32;
  runs(&k);
  for (int i = 0; i < 32 * 8; i++) {
    int row = i / 32, column = i % 32;
    int32_t by = column < 10 ? in[row * 16 + column] : 0;
    assert_int_equal(out[i], 1 + by);
  }
  float *x = (float *)in, *y = (float *)out;
  for (int i = 0; i < ELEMENTS; i++) x[i] = (float)i / 2;
  g_added = AT_F32;
  runs(&k);
  for (int i = 0; i < 32 * 8; i++) {
    int row = i / 32, column = i % 32;
    assert_true(y[i] == 1 + (column < 10 ? x[row * 16 + column] : 0));
  }
  g_added = AT_F16;
  fails(&k, AT_UNIMPLEMENTED, "copies that add f16");
}

// The copy asks for 6 rows of 12, of which 4 of 10 are there: what of the rest
// lies in the destination becomes zero, and nothing else.
static void copy_more_than_there_is(at_core *c, const int32_t *g,
                                    const at_core_ref *r) {
  int32_t *to = r[2].base;
  for (int i = 0; i < 32 * 8; i++) to[i] = -1;
  at_core_dma d = dma_of(to, r[0].base, r[3].base, 4, 10);
  d.asked[0] = 6, d.asked[1] = 12;
  d.padding = (6 * 12 - 4 * 10) * 4;
  at_core_dma_start(c, &d);
  at_core_dma_wait(c, r[3].base, 6 * 12 * 4, 0);
  memcpy(r[1].base, to, 32 * 8 * 4);
}

// A box whose end overflows 64 bits lies outside, so nothing is cleared.
static void copy_more_than_there_can_be(at_core *c, const int32_t *g,
                                        const at_core_ref *r) {
  int32_t *to = r[2].base;
  for (int i = 0; i < 32 * 8; i++) to[i] = -1;
  at_core_dma d = dma_of(to, r[0].base, r[3].base, 4, 10);
  d.asked[0] = 4, d.asked[1] = (1ll << 62) + 1;
  d.padding = 4;
  at_core_dma_start(c, &d);
  at_core_dma_wait(c, r[3].base, 4 * 10 * 4 + 4, 0);
  memcpy(r[1].base, to, 32 * 8 * 4);
}

// Words outside of 6 x 12 keep their -1.
static void padding_is_cleared(void **state) {
  static int32_t in[ELEMENTS], out[ELEMENTS];
  for (int i = 0; i < ELEMENTS; i++) in[i] = i + 1;
  kernel k = copying(copy_more_than_there_is, in, out);
  runs(&k);
  for (int i = 0; i < 32 * 8; i++) {
    int row = i / 32, column = i % 32;
    int32_t want = row >= 6 || column >= 12 ? -1
                   : row < 4 && column < 10 ? in[row * 16 + column]
                                            : 0;
    assert_int_equal(out[i], want);
  }
  k.body = copy_more_than_there_can_be;
  runs(&k);
  for (int i = 0; i < 32 * 8; i++) {
    bool copied = i / 32 < 4 && i % 32 < 10;
    assert_int_equal(out[i], copied ? in[i / 32 * 16 + i % 32] : -1);
  }
}

// ---- Boxes that leave their ref
// 6 x 8 of a ref of 4 x 5 words, from (-1, 2) on in steps of (1, 2): columns 2
// and 4 are there, of rows 0 to 3, which are 1 to 4 of the box.
static void leave_on_all_sides(at_core *c, const int32_t *g,
                               const at_core_ref *r) {
  at_core_beyond b = {.ref = {.base = r[2].base,
                              .rank = 2,
                              .elem_bytes = 4,
                              .size = {4, 5},
                              .stride = {20, 4}},
                      .index = {-1, 2},
                      .stride = {32, 4},
                      .count = {6, 8},
                      .step = {1, 2}};
  int32_t *ref = r[2].base, *out = r[1].base;
  for (int i = 0; i < 20; i++) ref[i] = 100 + i;
  int32_t *seen = at_core_beyond_begin(c, &b);
  memcpy(out, seen, 6 * 8 * 4);
  for (int i = 0; i < 6 * 8; i++) seen[i] = -i;
  at_core_beyond_end(c, &b, seen);
  memcpy(out + 48, ref, 20 * 4);
  // Nowhere at all: zeros, and nothing is written.
  b.index[0] = 4;
  seen = at_core_beyond_begin(c, &b);
  memcpy(out + 68, seen, 6 * 8 * 4);
  memset(seen, 0x11, 6 * 8 * 4);
  at_core_beyond_end(c, &b, seen);
  memcpy(out + 116, ref, 20 * 4);
}

// What lies outside reads as zero and is not written back.
static void boxes_leave_their_refs(void **state) {
  static int32_t in[ELEMENTS], out[ELEMENTS];
  kernel k = copying(leave_on_all_sides, in, out);
  runs(&k);
  int32_t ref[20];
  for (int i = 0; i < 20; i++) ref[i] = 100 + i;
  for (int i = 0; i < 48; i++) {
    int row = i / 8 - 1, column = 2 + i % 8 * 2;
    bool there = row >= 0 && row < 4 && column < 5;
    assert_int_equal(out[i], there ? 100 + row * 5 + column : 0);
    if (there) ref[row * 5 + column] = -i;
    assert_int_equal(out[68 + i], 0);
  }
  assert_memory_equal(out + 48, ref, sizeof ref);
  assert_memory_equal(out + 116, ref, sizeof ref);
}

// Two pool threads, two workers.
static int begin(void **state) {
  if (at_code_take(at_pool_create(2, &g_pool))) return -1;
  return at_code_take(at_sched_create(2, 1 << 18, &g_sched)) ? -1 : 0;
}

static int end(void **state) {
  at_sched_destroy(g_sched);
  at_pool_destroy(g_pool);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(boxes_are_copied),
      cmocka_unit_test(boxes_are_repacked),
      cmocka_unit_test(copies_add),
      cmocka_unit_test(padding_is_cleared),
      cmocka_unit_test(boxes_leave_their_refs),
  };
  return cmocka_run_group_tests(tests, begin, end);
}

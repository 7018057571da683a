// Strided copies between the memories of cores.
#include <math.h>

#include "base/verify.h"
#include "device/core_internal.h"

// Drops dimensions of one element and joins those that are dense on both sides.
// Sizes and strides end up major to minor in bytes units of `elem_bytes`.
typedef struct walk {
  uint32_t rank;
  size_t run;  // bytes that are dense on both sides
  int64_t size[AT_CORE_MAX_RANK], dst[AT_CORE_MAX_RANK], src[AT_CORE_MAX_RANK];
} walk;

static size_t bytes_of_box(const box *b) {
  size_t n = b->elem_bytes;
  for (uint32_t d = 0; d < b->rank; d++) n *= (size_t)b->size[d];
  return n;
}

// As bytes_of_box, after dimensions were joined.
static size_t bytes_of_walk(const walk *w) {
  size_t n = w->run;
  for (uint32_t d = 0; d < w->rank; d++) n *= (size_t)w->size[d];
  return n;
}

// False: the box is empty. Dense dimensions become one run; others are joined
// where both sides run on.
static bool simplify(const box *b, walk *w) {
  *w = (walk){.run = b->elem_bytes};
  bool joining = true;
  for (uint32_t d = b->rank; d-- > 0;) {
    if (b->size[d] <= 0) return false;
    if (b->size[d] == 1) continue;
    if (joining && b->dst_stride[d] == (int64_t)w->run &&
        b->src_stride[d] == (int64_t)w->run) {
      w->run *= (size_t)b->size[d];
      continue;
    }
    joining = false;
    uint32_t k = w->rank;
    if (k && b->dst_stride[d] == w->dst[k - 1] * w->size[k - 1] &&
        b->src_stride[d] == w->src[k - 1] * w->size[k - 1]) {
      w->size[k - 1] *= b->size[d];
      continue;
    }
    w->size[k] = b->size[d];
    w->dst[k] = b->dst_stride[d];
    w->src[k] = b->src_stride[d];
    w->rank++;  // minor to major
  }
  AT_VERIFY(bytes_of_walk(w) == bytes_of_box(b));
  return true;
}

// Runs of 1, 2, 4 and 8 bytes are loads and stores; longer ones memmove.
static void copy_runs(uint8_t *dst, const uint8_t *src, int64_t n, int64_t ds,
                      int64_t ss, size_t run) {
#define RUNS(T)                         \
  for (int64_t i = 0; i < n; i++) {     \
    T v;                                \
    memcpy(&v, src + i * ss, sizeof v); \
    memcpy(dst + i * ds, &v, sizeof v); \
  }                                     \
  return
  switch (run) {
    case 1:
      RUNS(uint8_t);
    case 2:
      RUNS(uint16_t);
    case 4:
      RUNS(uint32_t);
    case 8:
      RUNS(uint64_t);
    default:
      for (int64_t i = 0; i < n; i++) memmove(dst + i * ds, src + i * ss, run);
  }
#undef RUNS
}

// level: dimensions that are left; recursion is at most the rank deep.
static void copy_dims(const walk *w, uint32_t level, uint8_t *dst,
                      const uint8_t *src) {
  if (level <= 1) {
    int64_t n = level ? w->size[0] : 1;
    copy_runs(dst, src, n, level ? w->dst[0] : 0, level ? w->src[0] : 0,
              w->run);
    return;
  }
  uint32_t d = level - 1;
  for (int64_t i = 0; i < w->size[d]; i++)
    copy_dims(w, d, dst + i * w->dst[d], src + i * w->src[d]);
}

size_t core_box_run(const box *b) {
  walk w;
  return simplify(b, &w) && !w.rank ? w.run : 0;
}

void core_copy_box(const box *b) {
  walk w;
  if (simplify(b, &w)) copy_dims(&w, w.rank, b->dst, b->src);
}

// ---- Copies by several threads
enum { kCopyAlone = 1 << 19 };  // fewer bytes do not wake another thread

typedef struct share {
  const walk *w;
  uint8_t *dst;
  const uint8_t *src;
} share;

// Of the outermost dimension, or of bytes if there is none.
static void copy_share(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  const share *s = arg;
  walk part = *s->w;
  if (!part.rank) {
    memcpy(s->dst + begin, s->src + begin, (size_t)(end - begin));
    return;
  }
  uint32_t d = part.rank - 1;
  part.size[d] = end - begin;
  copy_dims(&part, part.rank, s->dst + begin * part.dst[d],
            s->src + begin * part.src[d]);
}

// Bytes from the first to behind the last; 0: strides that run backwards.
static size_t extent(const walk *w, const int64_t *stride) {
  size_t n = w->run;
  for (uint32_t d = 0; d < w->rank; d++) {
    if (stride[d] < 0) return 0;
    n += (size_t)((w->size[d] - 1) * stride[d]);
  }
  return n;
}

// Threads may only share copies whose sides do not meet.
static bool is_apart(const box *b, const walk *w) {
  size_t to = extent(w, w->dst), from = extent(w, w->src);
  return to && from && (b->dst + to <= b->src || b->src + from <= b->dst);
}

// Small copies, and those whose sides may overlap, stay on this thread.
void core_copy_shared(at_pool *pool, const box *b) {
  walk w;
  if (!simplify(b, &w)) return;
  int64_t bytes = (int64_t)bytes_of_walk(&w);
  if (bytes < 2 * kCopyAlone || !is_apart(b, &w)) {
    copy_dims(&w, w.rank, b->dst, b->src);
    return;
  }
  int64_t outer = w.rank ? w.size[w.rank - 1] : (int64_t)w.run;
  int64_t grain = AT_MAX(outer / at_ceil_div(bytes, kCopyAlone), 1);
  share s = {&w, b->dst, b->src};
  at_pool_for(pool, outer, grain, copy_share, &s);
}

// bytes: 1, 2, 4 or 8.
static void fill_words(void *dst, int64_t n, const void *word, size_t bytes) {
  uint8_t line[64];
  for (size_t i = 0; i < sizeof line; i += bytes) memcpy(line + i, word, bytes);
  uint8_t *at = dst;
  size_t left = (size_t)n * bytes;
  for (; left >= sizeof line; at += sizeof line, left -= sizeof line)
    memcpy(at, line, sizeof line);
  memcpy(at, line, left);
}

// Types without NaN get their least value, unsigned ones and truths zero.
void core_fill_undefined(void *dst, at_dtype t, int64_t n) {
  uint32_t bytes = at_dtype_bytes(t), bits = at_dtype_of(t)->bits;
  if (t == AT_F32 || t == AT_BF16 || t == AT_F16) {
    uint32_t nan = t == AT_F32 ? 0x7fffffff : 0x7fff;  // core_is_poison
    fill_words(dst, n, &nan, bytes);
  } else if (at_is_signed_int(t) && bytes <= 8) {
    int64_t least = (int64_t)(~0ull << (bits - 1));
    fill_words(dst, n, &least, bytes);
  } else if (at_is_float(t) && bits >= 8) {
    memset(dst, 0x7f, (size_t)n * bytes);  // a NaN of every format with NaNs
  } else {
    memset(dst, 0, (size_t)n * bytes);
  }
}

// ---- Boxes that leave their refs
// The part of the box that is there, as a copy from it to `memory`. False:
// none.
static bool part_inside(const at_core_beyond *b, uint8_t *memory, int64_t *size,
                        int64_t *stride, box *out) {
  uint8_t *ref = b->ref.base;
  *out = (box){.rank = (uint32_t)b->ref.rank,
               .elem_bytes = (uint32_t)b->ref.elem_bytes,
               .size = size,
               .dst_stride = b->stride,
               .src_stride = stride};
  for (int32_t d = 0; d < b->ref.rank; d++) {
    int64_t step = AT_MAX(b->step[d], 1), i = b->index[d];
    int64_t low = i < 0 ? at_ceil_div(-i, step) : 0;
    int64_t high =
        AT_MIN(at_ceil_div(b->ref.size[d] - i, step), (int64_t)b->count[d]);
    if (i >= b->ref.size[d] || low >= high) return false;
    ref += (i + low * step) * b->ref.stride[d];
    memory += low * b->stride[d];
    AT_ASSERT(i + low * step >= 0 && i + (high - 1) * step < b->ref.size[d]);
    size[d] = high - low;
    stride[d] = step * b->ref.stride[d];
  }
  out->src = ref;
  out->dst = memory;
  return true;
}

// Memory is handed out in turn from one block per core: a box is used before
// kBeyondBytes more are.
void *at_core_beyond_begin(at_core *core, const at_core_beyond *b) {
  core_state *c = state_of(core);
  int64_t bytes = b->ref.elem_bytes;
  for (int32_t d = 0; d < b->ref.rank; d++)
    bytes += (AT_MAX(b->count[d], 1) - 1) * b->stride[d];
  if (bytes > kBeyondBytes)
    core_stop(c, AT_OUT_OF_RANGE, b->loc,
              "%lld bytes, of which not all are in their buffer",
              (long long)bytes);
  if (!c->beyond) c->beyond = core_take(c, kBeyondBytes, "what is nowhere");
  if ((size_t)bytes > kBeyondBytes - c->beyond_used) c->beyond_used = 0;
  AT_ASSERT(c->beyond_used + (size_t)bytes <= kBeyondBytes);
  uint8_t *p = c->beyond + c->beyond_used;
  c->beyond_used = AT_MIN(at_align_up(c->beyond_used + (size_t)bytes, 64),
                          (size_t)kBeyondBytes);
  memset(p, 0, (size_t)bytes);
  int64_t size[AT_CORE_MAX_RANK], stride[AT_CORE_MAX_RANK];
  box in;
  if (part_inside(b, p, size, stride, &in)) core_copy_box(&in);
  return p;
}

const void *at_core_undefined(at_core *core, int32_t dtype, int32_t loc) {
  static const uint64_t zero = 0;
  core_state *c = state_of(core);
  if (!c->shadow) return &zero;
  core_note_undefined(c, UNDEFINED_CHOSEN, loc);
  core_fill(c, &c->nowhere, (at_dtype)dtype, 1);
  return &c->nowhere;
}

void at_core_beyond_end(at_core *core, const at_core_beyond *b, void *memory) {
  int64_t size[AT_CORE_MAX_RANK], stride[AT_CORE_MAX_RANK];
  box in;
  if (!part_inside(b, memory, size, stride, &in)) return;
  box back = {(uint8_t *)in.src, in.dst,        in.rank,      in.elem_bytes,
              in.size,           in.src_stride, in.dst_stride};
  core_copy_box(&back);
}

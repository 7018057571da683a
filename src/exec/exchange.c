// How the bytes of a collective move. One thread, the last to arrive, sees
// every member's operands and results; large exchanges are split over the pool.
// Each operand is read once, and nothing depends on who moves what. Sums:
// reduce.c.
#include <emmintrin.h>
#include <stdlib.h>

#include "exec/exec_internal.h"

enum { kChunk = 32 << 10 };  // bytes of a copy at once

// Pointers into the parameters, whose sizes were checked at load.
void at_coll_prepare(const at_x_collective *x, at_coll *out) {
  *out = (at_coll){.x = x, .values = (const void *)(x + 1)};
  const uint32_t *t = (const uint32_t *)(out->values + x->num_values);
  const uint32_t **tables[AT_COLL_TABLES] = {&out->group_of, &out->rank_of,
                                             &out->begin_of, &out->size_of,
                                             &out->members,  &out->source_of};
  for (int i = 0; i < AT_COLL_TABLES; i++)
    *tables[i] = t + (size_t)i * x->num_devices;
  if (x->kind == AT_COLL_SPARSE)
    out->sparse = (const void *)((const uint8_t *)x + at_x_collective_bytes(x));
}

// One group of all devices in their order; out->owned is the caller's to free.
at_status at_coll_everyone(uint32_t devices, at_coll *out) {
  at_x_collective x = {
      .kind = AT_COLL_BROADCAST, .num_devices = devices, .num_groups = 1};
  at_x_collective *own = calloc(1, at_x_collective_bytes(&x));
  if (!own) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a meeting");
  *own = x;
  uint32_t *t = (uint32_t *)(own + 1);
  for (uint32_t d = 0; d < devices; d++) {
    t[devices + d] = d;                    // rank_of
    t[3 * (size_t)devices + d] = devices;  // size_of
    t[4 * (size_t)devices + d] = d;        // members
  }
  at_coll_prepare(own, out);
  out->owned = own;
  return AT_OK;
}

// One value of one group.
typedef struct group {
  const at_coll *c;
  const at_x_exchange *x;
  void *const *const *bufs;  // by member: operands, then results
  uint32_t value, results;   // which operand; where results begin
  uint32_t begin, size;      // in c->members
  bool stream;
} group;

// NULL: not here.
static const uint8_t *operand(const group *g, uint32_t m) {
  return g->bufs[m] ? g->bufs[m][g->value] : NULL;
}
static uint8_t *result(const group *g, uint32_t m) {
  return g->bufs[m] ? g->bufs[m][g->results + g->value] : NULL;
}

// Streams where dst is aligned to 16 bytes; the tail is copied.
void at_put_bytes(uint8_t *dst, const uint8_t *src, size_t n, bool stream) {
  if (!stream || ((uintptr_t)dst & 15)) {
    memcpy(dst, src, n);
    return;
  }
  size_t i = 0;
  for (; i + 64 <= n; i += 64)
    for (size_t k = 0; k < 64; k += 16)
      _mm_stream_si128((__m128i *)(dst + i + k),
                       _mm_loadu_si128((const __m128i *)(src + i + k)));
  memcpy(dst + i, src + i, n - i);
}

// Runs of a few bytes: a call each would cost more than the bytes.
static void copy_lines(uint8_t *dst, uint64_t dst_step, const uint8_t *src,
                       uint64_t src_step, uint64_t lines, uint64_t run) {
#define AT_LINES(type)                        \
  for (uint64_t i = 0; i < lines; i++) {      \
    type v;                                   \
    memcpy(&v, src + i * src_step, sizeof v); \
    memcpy(dst + i * dst_step, &v, sizeof v); \
  }                                           \
  return
  switch (run) {
    case 1:
      AT_LINES(uint8_t);
    case 2:
      AT_LINES(uint16_t);
    case 4:
      AT_LINES(uint32_t);
    case 8:
      AT_LINES(uint64_t);
    default:
      for (uint64_t i = 0; i < lines; i++)
        memcpy(dst + i * dst_step, src + i * src_step, run);
  }
#undef AT_LINES
}

// ---- Copies
// Work is numbered (giver, row, chunk of the row): every byte of an operand is
// read once, for all who take it.
typedef struct moving {
  const group *g;
  uint64_t chunks;  // of a row
  uint64_t step;    // bytes of a run, or lines, in a chunk
} moving;

// One chunk of one row of one giver, to all takers: it stays in the cache
// between them.
static void move_row(const moving *m, uint32_t giver, uint64_t row,
                     uint64_t chunk) {
  const group *g = m->g;
  const at_x_exchange *x = g->x;
  bool by_line = x->lines > 1;
  uint64_t first = chunk * m->step;
  AT_ASSERT(first < (by_line ? x->lines : x->run) && row < x->rows);
  uint64_t n = AT_MIN(m->step, (by_line ? x->lines : x->run) - first);
  if (!operand(g, giver)) return;
  for (uint32_t taker = 0; taker < g->size; taker++) {
    if (!result(g, taker)) continue;
    const uint8_t *src =
        operand(g, giver) + taker * x->give_piece + row * x->give_row;
    uint8_t *dst = result(g, taker) + giver * x->take_piece + row * x->take_row;
    if (by_line)
      copy_lines(dst + first * x->take_line, x->take_line,
                 src + first * x->give_line, x->give_line, n, x->run);
    else if (dst != src)  // else it was received there
      at_put_bytes(dst + first, src + first, n, g->stream);
  }
}

// Units [begin, end) for one thread.
static void move_rows(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  const moving *m = arg;
  for (int64_t i = begin; i < end; i++) {
    uint64_t u = (uint64_t)i, row = u / m->chunks;
    move_row(m, (uint32_t)(row / m->g->x->rows), row % m->g->x->rows,
             u % m->chunks);
  }
  if (m->g->stream) _mm_sfence();
}

// All-gather and all-to-all: pieces of every giver to every taker.
static void move_pieces(const group *g, at_pool *pool) {
  const at_x_exchange *x = g->x;
  if (!x->operand_bytes || !x->run || !x->rows || !x->lines) return;
  moving m = {.g = g};
  uint64_t along = x->lines > 1 ? x->lines : x->run;
  m.step = x->lines > 1 ? AT_MAX(kChunk / x->run, 1u) : (uint64_t)kChunk;
  m.chunks = at_ceil_div(along, m.step);
  int64_t units = (int64_t)(g->size * x->rows * m.chunks);
  uint64_t bytes = x->result_bytes * g->size;
  if (bytes < AT_EXCHANGE_SPLIT)
    move_rows(&m, 0, units, 0);
  else
    at_pool_for(pool, units, AT_MAX(units / 64, (int64_t)1), move_rows, &m);
}

// rows * lines runs of `run` bytes, give_row and give_line apart, become one.
void at_piece_cut(const at_x_exchange *x, uint32_t rank, const uint8_t *from,
                  uint8_t *to) {
  from += rank * x->give_piece;
  for (uint64_t r = 0; r < x->rows; r++, to += x->lines * x->run)
    copy_lines(to, x->run, from + r * x->give_row, x->give_line, x->lines,
               x->run);
}

// The inverse, into a result.
void at_piece_put(const at_x_exchange *x, uint32_t rank, const uint8_t *from,
                  uint8_t *to) {
  to += rank * x->take_piece;
  for (uint64_t r = 0; r < x->rows; r++, from += x->lines * x->run)
    copy_lines(to + r * x->take_row, x->take_line, from, x->run, x->lines,
               x->run);
}

// From one member's operand, or zeros, to each result.
typedef struct whole {
  const group *g;
  uint64_t chunks;  // of a value
} whole;

// PERMUTE's giver of member m, as a rank; none: zeros.
static const uint8_t *source_of(const group *g, uint32_t taker) {
  if (g->c->x->kind == AT_COLL_BROADCAST) return operand(g, 0);
  uint32_t from = g->c->source_of[g->c->members[g->begin + taker]];
  return from == UINT32_MAX ? NULL : operand(g, from);
}

// Chunks [begin, end) of broadcasts and permutations.
static void copy_wholes(void *arg, int64_t begin, int64_t end,
                        uint32_t worker) {
  const whole *w = arg;
  for (int64_t i = begin; i < end; i++) {
    uint32_t taker = (uint32_t)((uint64_t)i / w->chunks);
    uint64_t at = (uint64_t)i % w->chunks * kChunk;
    uint64_t n = AT_MIN((uint64_t)kChunk, w->g->x->result_bytes - at);
    const uint8_t *from = source_of(w->g, taker);
    if (!result(w->g, taker) || from == result(w->g, taker)) continue;
    if (from)
      at_put_bytes(result(w->g, taker) + at, from + at, n, w->g->stream);
    else
      memset(result(w->g, taker) + at, 0, n);
  }
  if (w->g->stream) _mm_sfence();
}

// Splits over the pool where the bytes are worth it.
static void copy_whole(const group *g, at_pool *pool) {
  uint64_t bytes = g->x->result_bytes;
  if (!bytes) return;
  whole w = {g, at_ceil_div(bytes, (uint64_t)kChunk)};
  int64_t units = (int64_t)(w.chunks * g->size);
  if (bytes * g->size < AT_EXCHANGE_SPLIT)
    copy_wholes(&w, 0, units, 0);
  else
    at_pool_for(pool, units, AT_MAX(units / 64, (int64_t)1), copy_wholes, &w);
}

// ---- Sums
static at_status reduce(const group *g, at_pool *pool) {
  enum { kFew = 64 };
  at_summand few[kFew], *parts = few;
  if (g->size > kFew) {
    parts = malloc(g->size * sizeof *parts);
    if (!parts)
      return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a collective");
  }
  for (uint32_t i = 0; i < g->size; i++) {
    uint32_t m = g->c->order[g->begin + i];
    parts[i] = (at_summand){operand(g, m), 0, g->c->members[g->begin + m]};
  }
  at_sum s = {.c = g->c,
              .value = g->value,
              .parts = parts,
              .num_parts = g->size,
              .bufs = g->bufs,
              .size = g->size,
              .end = g->x->operand_bytes,
              .stream = g->stream};
  at_sum_run(&s, pool);
  if (parts != few) free(parts);
  return AT_OK;
}

// ---- Ragged
static int64_t index_at(const at_x_exchange *x, const uint8_t *p, uint64_t i) {
  int32_t narrow;
  int64_t wide;
  if (x->index_bytes == 8) return memcpy(&wide, p + 8 * i, 8), wide;
  return memcpy(&narrow, p + 4 * i, 4), narrow;
}

// Offsets in the result are the sender's to say.
at_status at_ragged_rows_of(const at_x_exchange *x, void *const *bufs,
                            uint32_t giver, uint32_t size, uint64_t i,
                            at_ragged_rows *out) {
  uint64_t each = AT_MAX(x->lines / size, (uint64_t)1);
  *out =
      (at_ragged_rows){(uint32_t)AT_MIN(i / each, (uint64_t)size - 1), 0, 0, 0};
  int64_t from = index_at(x, bufs[2], i), n = index_at(x, bufs[3], i);
  int64_t to = index_at(x, bufs[4], i);
  if (n == 0 || !x->run) return AT_OK;
  int64_t have = (int64_t)(x->operand_bytes / x->run);
  int64_t room = (int64_t)(x->result_bytes / x->run);
  if (n < 0 || from < 0 || to < 0 || from > have || n > have - from ||
      to > room || n > room - to)
    return AT_FAIL(AT_OUT_OF_RANGE,
                   "ragged_all_to_all: member %u sends rows %lld..%lld of %lld "
                   "to rows %lld..%lld of %lld of member %u",
                   giver, (long long)from, (long long)from + n, (long long)have,
                   (long long)to, (long long)to + n, (long long)room,
                   out->taker);
  out->from = (uint64_t)from * x->run;
  out->to = (uint64_t)to * x->run;
  out->bytes = (uint64_t)n * x->run;
  return AT_OK;
}

at_status at_ragged_check(const at_x_exchange *x, uint32_t size) {
  if (x->lines % size == 0) return AT_OK;
  return AT_FAIL(AT_INVALID_ARGUMENT,
                 "ragged_all_to_all: %llu offsets for a group of %u",
                 (unsigned long long)x->lines, size);
}

// Results begin as the output operands; then rows are put there in the order of
// givers and entries.
static at_status ragged(const group *g) {
  AT_TRY(at_ragged_check(g->x, g->size));
  for (uint32_t m = 0; m < g->size; m++)
    memcpy(g->bufs[m][6], g->bufs[m][1], g->x->result_bytes);
  for (uint32_t m = 0; m < g->size; m++)
    for (uint64_t i = 0; i < g->x->lines; i++) {
      at_ragged_rows r;
      AT_TRY(at_ragged_rows_of(g->x, g->bufs[m], m, g->size, i, &r));
      memcpy((uint8_t *)g->bufs[r.taker][6] + r.to, operand(g, m) + r.from,
             r.bytes);
    }
  return AT_OK;
}

// Value by value; the kind decides how.
at_status at_exchange(const at_coll *c, void *const *const *bufs,
                      uint32_t begin, uint32_t size, at_pool *pool) {
  for (uint32_t v = 0; v < c->x->num_values; v++) {
    group g = {.c = c,
               .x = &c->values[v],
               .bufs = bufs,
               .value = v,
               .results = c->x->num_values,
               .begin = begin,
               .size = size};
    g.stream = g.x->result_bytes * size >= AT_EXCHANGE_STREAM;
    switch (c->x->kind) {
      case AT_COLL_ALL_REDUCE:
      case AT_COLL_REDUCE_SCATTER:
        AT_TRY(reduce(&g, pool));
        break;
      case AT_COLL_ALL_GATHER:
      case AT_COLL_ALL_TO_ALL:
        move_pieces(&g, pool);
        break;
      case AT_COLL_RAGGED_ALL_TO_ALL:
        AT_TRY(ragged(&g));
        break;
      default:
        copy_whole(&g, pool);
    }
  }
  return AT_OK;
}

// Sums over devices (and other reductions). Their order is a tree over the
// numbers of the devices in the program: what two blocks of 2^k devices hold is
// added where they make one of 2^(k+1), the lower numbers left, whatever the
// order of the group. Blocks without members are left out. So whoever has all
// members of a block can add them up alone, and no bit depends on who did.
#include <emmintrin.h>
#include <stdlib.h>

#include "exec/exec_internal.h"

enum {
  kBlock = 8192,        // bytes of a sum at once
  kLevels = 12,         // log2(AT_MAX_DEVICES)
  kSums = kLevels + 2,  // that one block has in flight
  kGrain = 8
};
_Static_assert(AT_MAX_DEVICES == 1 << kLevels, "a level each for a bit");

// A counting sort: devices ascending, each into its group.
at_status at_coll_order(at_coll *c) {
  uint32_t n = c->x->num_devices;
  bool reduces =
      c->x->kind == AT_COLL_ALL_REDUCE || c->x->kind == AT_COLL_REDUCE_SCATTER;
  if (!reduces) return AT_OK;
  c->order = calloc(2 * (size_t)n + 1, sizeof *c->order);
  if (!c->order)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory to load a program");
  uint32_t *met = c->order + n;  // by where groups begin: members so far
  for (uint32_t d = 0; d < n; d++) {
    if (c->group_of[d] == UINT32_MAX) continue;
    uint32_t begin = c->begin_of[d];
    c->order[begin + met[begin]++] = c->rank_of[d];
  }
  return AT_OK;
}

// ---- One block
uint32_t at_block_joins(uint32_t a, uint32_t b) {
  return a == b ? 0 : 32 - (uint32_t)__builtin_clz(a ^ b);
}

// A sum in flight; `level`: of the block that it and the one before it make.
typedef struct flying {
  const uint8_t *data;
  uint32_t level;
  int own;  // which of the sums `data` is; -1: a summand
} flying;

typedef struct adder {
  at_kernel_fn fn;
  uint32_t tasks, depth, taken;  // taken: bits of sums
  flying stack[kSums];
  _Alignas(64) uint8_t sums[kSums][kBlock];
} adder;

// The two topmost sums become one, in a block of their own.
static void join_two(adder *a) {
  flying *l = &a->stack[a->depth - 2], *r = l + 1;
  int to = __builtin_ctz(~a->taken);
  AT_ASSERT(to < kSums && a->depth >= 2);
  void *bufs[3] = {(void *)l->data, (void *)r->data, a->sums[to]};
  a->fn(bufs, 0, a->tasks);
  a->taken |= 1u << to;
  if (l->own >= 0) a->taken &= ~(1u << l->own);
  if (r->own >= 0) a->taken &= ~(1u << r->own);
  l->data = a->sums[to];
  l->own = to;
  a->depth--;
}

// A summand that is shorter than what the kernel takes, with zeros behind it.
static flying lengthen(adder *a, flying f, uint64_t n, uint64_t to) {
  f.own = __builtin_ctz(~a->taken);
  AT_ASSERT(f.own < kSums && n < to && to <= kBlock);
  a->taken |= 1u << f.own;
  memcpy(a->sums[f.own], f.data, n);
  memset(a->sums[f.own] + n, 0, to - n);
  f.data = a->sums[f.own];
  return f;
}

// `n` bytes from `offset` on of what the parts add up to; where they are.
static const uint8_t *sum_block(const at_sum *s, uint64_t offset, uint64_t n,
                                adder *a) {
  const at_x_exchange *x = &s->c->values[s->value];
  uint64_t tail = (uint64_t)x->tail_elements * x->element_bytes;
  bool is_tail = n == tail || x->block == UINT32_MAX;
  uint64_t takes =
      is_tail ? tail : (uint64_t)x->block_elements * x->element_bytes;
  a->fn = s->c->kernels[2 * s->value + is_tail];
  a->tasks = is_tail ? x->tail_tasks : x->block_tasks;
  a->depth = a->taken = 0;
  for (uint32_t i = 0; i < s->num_parts; i++) {
    const at_summand *p = &s->parts[i];
    uint32_t level = i ? at_block_joins(p[-1].device, p->device) : 0;
    while (a->depth > 1 && a->stack[a->depth - 1].level < level) join_two(a);
    AT_ASSERT(offset >= p->first && a->depth < kSums && level <= kLevels);
    flying f = {p->data + (offset - p->first), level, -1};
    a->stack[a->depth++] = n < takes ? lengthen(a, f, n, takes) : f;
  }
  while (a->depth > 1) join_two(a);
  return a->stack[0].data;
}

// ---- All of a value
// Bytes [offset, offset + n) of the sum, cut to where the members keep their
// parts.
static void deal(const at_sum *s, const uint8_t *src, uint64_t offset,
                 uint64_t n) {
  const at_x_exchange *x = &s->c->values[s->value];
  while (n) {
    uint64_t r = offset / x->run, at = offset % x->run;
    uint64_t part = AT_MIN(n, x->run - at);
    uint8_t *dst = at_sum_result(s, (uint32_t)(r % s->size));
    if (dst)
      at_put_bytes(dst + r / s->size * x->take_row + at, src, part, s->stream);
    src += part;
    offset += part;
    n -= part;
  }
}

// Blocks [begin, end) of the range for one thread.
static void sum_blocks(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  const at_sum *s = arg;
  const at_x_exchange *x = &s->c->values[s->value];
  adder a;
  uint64_t block = (uint64_t)x->block_elements * x->element_bytes;
  for (int64_t b = begin; b < end; b++) {
    uint64_t offset = s->begin + (uint64_t)b * block;
    uint64_t n = AT_MIN(block, s->end - offset);
    const uint8_t *from = sum_block(s, offset, n, &a);
    if (s->out) {
      memcpy(s->out + (offset - s->begin), from, n);
    } else if (s->c->x->kind == AT_COLL_REDUCE_SCATTER) {
      deal(s, from, offset, n);
    } else {
      for (uint32_t m = 0; m < s->size; m++)
        if (at_sum_result(s, m))
          at_put_bytes(at_sum_result(s, m) + offset, from, n, s->stream);
    }
  }
  if (s->stream) _mm_sfence();
}

// Splits over the pool where enough bytes are read.
void at_sum_run(const at_sum *s, at_pool *pool) {
  const at_x_exchange *x = &s->c->values[s->value];
  if (s->begin == s->end) return;
  uint64_t block = (uint64_t)x->block_elements * x->element_bytes;
  int64_t blocks = (int64_t)at_ceil_div(s->end - s->begin, block);
  if ((s->end - s->begin) * s->num_parts < AT_EXCHANGE_SPLIT)
    sum_blocks((void *)s, 0, blocks, 0);
  else
    at_pool_for(pool, blocks, kGrain, sum_blocks, (void *)s);
}

// An arena: a list of malloc's blocks, of which the newest is cut up from front
// to back. A request that does not fit opens a block at least twice as large as
// the last, so that the number of blocks grows with the logarithm of the size;
// what is left of the old one is lost. Memory is zeroed when it is handed out.
#include "base/arena.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/interrupt.h"

// Memory of an arena, one block behind the other; the newest is first.
typedef struct at_block {
  struct at_block *next;
  size_t used, size;  // bytes of data[]
  _Alignas(64) uint8_t data[];
} at_block;

// used and limit count what was asked for, not what blocks waste.
struct at_arena {
  at_block *head;  // the block that allocation takes from
  size_t used, limit;
  bool refused;
};

// Bytes. Small programs stay within one block, large ones ask malloc rarely.
enum { kFirstBlock = 16 << 10, kLargestBlock = 4 << 20 };

// The limit is a bound for runaway sizes, not a reservation.
at_arena *at_arena_create(void) {
  return at_arena_create_limited((size_t)64 << 30);
}

// No block is made before the first allocation.
at_arena *at_arena_create_limited(size_t limit_bytes) {
  at_arena *a = calloc(1, sizeof *a);
  if (a) a->limit = limit_bytes;
  return a;
}

// Newest first.
static void free_blocks(at_block *b) {
  while (b) {
    at_block *next = b->next;
    free(b);
    b = next;
  }
}

static _Atomic uint64_t bytes_ever;

uint64_t at_arena_bytes_ever(void) {
  return atomic_load_explicit(&bytes_ever, memory_order_relaxed);
}

// Frees the blocks and counts what was used.
static void drop(at_arena *a) {
  atomic_fetch_add_explicit(&bytes_ever, a->used, memory_order_relaxed);
  free_blocks(a->head);
}

// What was used counts for at_arena_bytes_ever.
void at_arena_destroy(at_arena *a) {
  if (!a) return;
  drop(a);
  free(a);
}

// Keeps no block: a long-lived arena must not hold its largest size for ever.
void at_arena_reset(at_arena *a) {
  drop(a);
  a->head = NULL;
  a->used = 0;
  a->refused = false;
}

size_t at_arena_used_bytes(const at_arena *a) { return a->used; }

// A block that holds at least `need`; blocks double up to 4 MiB. NULL: no
// memory, or this thread's work is to stop.
static at_block *grow(at_arena *a, size_t need) {
  size_t size = a->head ? AT_MIN(a->head->size * 2, (size_t)kLargestBlock)
                        : (size_t)kFirstBlock;
  if (size < need) size = need;
  if (at_interrupted()) return NULL;
  at_block *b = malloc(at_add(sizeof *b, size));
  if (!b) return NULL;
  b->next = a->head;
  b->used = 0;
  b->size = size;
  return a->head = b;
}

void at_arena_refuse(at_arena *a) { a->refused = true; }

at_status at_arena_status(const at_arena *a) {
  return a->refused ? AT_NO_MEMORY("a part of the result") : AT_OK;
}

// Zeroed memory from the current block, or from a fresh one; NULL over the
// limit.
static void *take(at_arena *a, size_t bytes, size_t align) {
  AT_ASSERT(align && align <= 4096 && (align & (align - 1)) == 0);
  if (bytes > a->limit || a->used > a->limit - bytes) return NULL;
  at_block *b = a->head;
  size_t at = 0;
  if (b) at = at_align_up((size_t)(b->data + b->used), align) - (size_t)b->data;
  if (!b || at > b->size || bytes > b->size - at) {
    b = grow(a, at_add(bytes, align));
    if (!b) return NULL;
    at = at_align_up((size_t)b->data, align) - (size_t)b->data;
  }
  void *p = b->data + at;
  b->used = at + bytes;
  a->used += bytes;
  return memset(p, 0, bytes);
}

// Every refusal is remembered, so that a caller that forgets a NULL cannot pass
// on half a result.
void *at_arena_alloc(at_arena *a, size_t bytes, size_t align) {
  void *p = take(a, bytes, align);
  if (!p) at_arena_refuse(a);
  return p;
}

// The copy is the arena's; p may go afterwards.
void *at_arena_copy(at_arena *a, const void *p, size_t bytes, size_t align) {
  AT_ASSERT(p || !bytes);
  void *q = at_arena_alloc(a, bytes, align);
  if (q && bytes) memcpy(q, p, bytes);
  return q;
}

// The NUL comes from the zeroed memory.
char *at_arena_str(at_arena *a, at_str s) {
  char *z = at_arena_alloc(a, at_add(s.len, 1), 1);
  if (z && s.len) memcpy(z, s.ptr, s.len);
  return z;
}

// Formats twice: once for the length, once into memory of that size.
char *at_arena_printf(at_arena *a, const char *fmt, ...) {
  va_list ap, again;
  va_start(ap, fmt);
  va_copy(again, ap);
  int n = vsnprintf(NULL, 0, fmt, ap);
  va_end(ap);
  char *z = n < 0 ? NULL : at_arena_alloc(a, (size_t)n + 1, 1);
  if (z) vsnprintf(z, (size_t)n + 1, fmt, again);
  va_end(again);
  return z;
}

// Capacity doubles from 8. The old block stays in the arena, so what is grown
// in one costs twice its size at most.
bool at_vec_reserve_(at_arena *a, void **ptr, size_t *cap, size_t want,
                     size_t elem_bytes, size_t len) {
  AT_ASSERT(len <= *cap);
  if (want <= *cap) return true;
  size_t n = AT_MAX(want, AT_MAX((size_t)8, at_mul(*cap, 2)));
  void *p = at_arena_alloc(a, at_mul(n, elem_bytes), 16);
  if (!p) return false;
  if (len) memcpy(p, *ptr, len * elem_bytes);
  *ptr = p;
  *cap = n;
  return true;
}

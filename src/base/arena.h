// One arena per compile: typed, overflow-checked allocation that is freed as a
// whole. Single-threaded. Pointers die with the arena (or its reset).
//
// Memory: what is allocated is the arena's; a function that takes an arena
// never frees it.
#ifndef ATOLL_BASE_ARENA_H_
#define ATOLL_BASE_ARENA_H_

#include "base/span.h"
#include "base/status.h"

typedef struct at_arena at_arena;

// An empty arena with a limit of 64 GiB, which is virtual: memory is taken from
// malloc as it is needed, in blocks of 16 KiB, doubling to 4 MiB. NULL: no
// memory. One thread at a time uses an arena.
at_arena *at_arena_create(void);
// The same with a limit on the sum of bytes allocated, without what alignment
// and the ends of blocks waste. For bytes that strangers sent.
at_arena *at_arena_create_limited(size_t limit_bytes);
void at_arena_destroy(at_arena *a);  // NULL allowed
// Frees everything that was allocated, and the blocks; the arena is as new, its
// refusal forgotten.
void at_arena_reset(at_arena *a);
// Bytes allocated since creation or the last reset, without padding.
size_t at_arena_used_bytes(const at_arena *a);
// Bytes of all arenas of this process that were destroyed or reset. Any thread.
uint64_t at_arena_bytes_ever(void);

// Zeroed memory. `align` is a power of two <= 4096. Over the arena's limit, or
// bytes == SIZE_MAX, or no host memory, or interrupted (interrupt.h): NULL.
void *at_arena_alloc(at_arena *a, size_t bytes, size_t align);
// RESOURCE_EXHAUSTED from the first refusal on, until the reset: what was built
// in the arena may lack a part, also where nobody looked at that one NULL.
at_status at_arena_status(const at_arena *a);
// Makes at_arena_status fail as if the arena had refused: for who lost a part
// of what is built in it by other means (a strbuf without memory).
void at_arena_refuse(at_arena *a);
#define at_new(a, T, n) \
  ((T *)at_arena_alloc((a), at_mul((n), sizeof(T)), _Alignof(T)))

// Copies; NULL only when the arena refuses. at_arena_str adds a NUL.
// `p` may be NULL when bytes is 0.
void *at_arena_copy(at_arena *a, const void *p, size_t bytes, size_t align);
// A copy of the text with a NUL behind it. Text that holds NUL bytes is copied
// whole.
char *at_arena_str(at_arena *a, at_str s);
// Formatted text that ends in NUL. NULL: the arena refuses, or the format
// fails.
__attribute__((format(printf, 2, 3))) char *at_arena_printf(at_arena *a,
                                                            const char *fmt,
                                                            ...);
#define AT_NO_MEMORY(what) \
  AT_FAIL(AT_RESOURCE_EXHAUSTED, "out of compile memory: %s", (what))
// p = expression; returns RESOURCE_EXHAUSTED when it is NULL.
#define AT_TRY_ALLOC(p, expr)             \
  do {                                    \
    (p) = (expr);                         \
    if (!(p)) return AT_NO_MEMORY(#expr); \
  } while (0)

// A growable array in an arena; growth leaves the old block behind. AT_VEC(T)
// declares one; at_vec_push yields false when the arena refuses.
#define AT_VEC(T) \
  struct {        \
    T *ptr;       \
    size_t len;   \
    size_t cap;   \
  }
#define at_vec_push(arena, v, ...)                                       \
  (at_vec_reserve_((arena), (void **)&(v)->ptr, &(v)->cap, (v)->len + 1, \
                   sizeof *(v)->ptr, (v)->len) &&                        \
   ((v)->ptr[(v)->len++] = (__VA_ARGS__), true))
#define at_vec_reserve(arena, v, n)                            \
  at_vec_reserve_((arena), (void **)&(v)->ptr, &(v)->cap, (n), \
                  sizeof *(v)->ptr, (v)->len)
// What at_vec_push and at_vec_reserve call: room for `want` elements, the `len`
// that are there copied. False: the arena refuses, and nothing has changed.
bool at_vec_reserve_(at_arena *a, void **ptr, size_t *cap, size_t want,
                     size_t elem_bytes, size_t len);

#endif

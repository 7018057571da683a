// One arena per compile: typed, overflow-checked allocation that is freed as a
// whole. Single-threaded. Pointers die with the arena (or its reset).
#ifndef ATOLL_BASE_ARENA_H_
#define ATOLL_BASE_ARENA_H_

#include "base/span.h"
#include "base/status.h"

typedef struct at_arena at_arena;

at_arena *at_arena_create(
    void);  // limit: 64 GiB of virtual use; NULL: no memory
at_arena *at_arena_create_limited(size_t limit_bytes);
void at_arena_destroy(at_arena *a);  // NULL allowed
void at_arena_reset(at_arena *a);
size_t at_arena_used_bytes(const at_arena *a);
// Bytes of all arenas of this process that were destroyed or reset. Any thread.
uint64_t at_arena_bytes_ever(void);

// Zeroed memory. `align` is a power of two <= 4096. Over the arena's limit, or
// bytes == SIZE_MAX, or no host memory, or interrupted (interrupt.h): NULL.
void *at_arena_alloc(at_arena *a, size_t bytes, size_t align);
// RESOURCE_EXHAUSTED from the first refusal on, until the reset: what was built
// in the arena may lack a part, also where nobody looked at that one NULL.
at_status at_arena_status(const at_arena *a);
void at_arena_refuse(
    at_arena *a);  // as if it had refused: a part was lost elsewhere
#define at_new(a, T, n) \
  ((T *)at_arena_alloc((a), at_mul((n), sizeof(T)), _Alignof(T)))

// Copies; NULL only when the arena refuses. at_arena_str adds a NUL.
void *at_arena_copy(at_arena *a, const void *p, size_t bytes, size_t align);
char *at_arena_str(at_arena *a, at_str s);
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
bool at_vec_reserve_(at_arena *a, void **ptr, size_t *cap, size_t want,
                     size_t elem_bytes, size_t len);

#endif

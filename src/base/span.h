// Borrowed views, passed by value, and small helpers that every room uses.
//
// Memory: a view owns nothing; what it points to outlives it.
// Threads: any; pure functions.
#ifndef ATOLL_BASE_SPAN_H_
#define ATOLL_BASE_SPAN_H_

#include <assert.h>  // static_assert
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// Elements of an array; never of a pointer.
// As size_t.
#define AT_LEN(a) (sizeof(a) / sizeof *(a))
// Arguments are evaluated twice.
#define AT_MIN(a, b) ((a) < (b) ? (a) : (b))
#define AT_MAX(a, b) ((a) > (b) ? (a) : (b))
// For branches that decide how fast a loop is; wrong guesses cost time only.
#define AT_LIKELY(x) __builtin_expect(!!(x), 1)
#define AT_UNLIKELY(x) __builtin_expect(!!(x), 0)
// What the caller has promised, or what was proved, at a seam: in every build,
// so x is cheap and has no effect. Else the process ends, or the guarded call
// that it is in does, with a status (base/guard.h). Never for what comes from
// outside: that gets a status.
#define AT_ASSERT(x) \
  (AT_LIKELY(x) ? (void)0 : at_assert_fail(#x, __FILE__, __LINE__))
// Says on stderr what does not hold, and aborts. Any thread.
// What it says: the condition's text and the place in the source.
__attribute__((noreturn, cold)) void at_assert_fail(const char *what,
                                                    const char *file, int line);

// Bytes that somebody else owns.
typedef struct at_bytes {
  const uint8_t *ptr;  // borrowed, read-only; may be NULL when len is 0
  size_t len;
} at_bytes;

// Text that somebody else owns; UTF-8 where nothing else is said.
typedef struct at_str {
  const char *ptr;  // borrowed, not NUL-terminated
  size_t len;
} at_str;

// Sizes of dimensions, or any list of integers.
typedef struct at_dims {
  const int64_t *ptr;  // major to minor, elements; borrowed
  uint32_t rank;
} at_dims;

// The view of a string literal.
#define AT_STR(literal) ((at_str){(literal), sizeof(literal) - 1})
// The view of a C string; NULL is empty.
// z outlives the view.
static inline at_str at_str_of(const char *z) {
  return (at_str){z, z ? strlen(z) : 0};
}
// Byte by byte.
static inline bool at_str_eq(at_str a, at_str b) {
  return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}
// Of the whole text, not of its beginning.
static inline bool at_str_is(at_str a, const char *z) {
  return at_str_eq(a, at_str_of(z));
}
// The empty text begins every other.
static inline bool at_str_starts(at_str a, const char *z) {
  size_t n = strlen(z);
  return a.len >= n && memcmp(a.ptr, z, n) == 0;
}
// Rank and sizes; two of rank 0 are equal.
static inline bool at_dims_eq(at_dims a, at_dims b) {
  return a.rank == b.rank &&
         (a.rank == 0 || memcmp(a.ptr, b.ptr, a.rank * sizeof *a.ptr) == 0);
}

// Sizes saturate: SIZE_MAX is "too large", which every allocator refuses.
// So that a hostile size in a product of several never wraps to a small one.
static inline size_t at_mul(size_t a, size_t b) {
  size_t r;
  return __builtin_mul_overflow(a, b, &r) ? SIZE_MAX : r;
}
static inline size_t at_add(size_t a, size_t b) {
  size_t r;
  return __builtin_add_overflow(a, b, &r) ? SIZE_MAX : r;
}
// n rounded up to a power of two; SIZE_MAX where that overflows.
static inline size_t at_align_up(size_t n, size_t align) {
  // align must be a power of two, and not 0.
  return n > SIZE_MAX - (align - 1) ? SIZE_MAX : (n + align - 1) & ~(align - 1);
}
// a >= 0 and b > 0, and their sum fits.
static inline int64_t at_ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
// FNV-1a, 64 bits; chain by passing the previous hash. Start with AT_HASH_SEED.
// FNV's offset basis. The hash is not for texts that an enemy chooses.
#define AT_HASH_SEED 0xcbf29ce484222325ull
static inline uint64_t at_hash(uint64_t h, const void *p, size_t n) {
  // Bytes in order: the same hash on every machine.
  const uint8_t *b = (const uint8_t *)p;
  for (size_t i = 0; i < n; i++) h = (h ^ b[i]) * 0x100000001b3ull;
  return h;
}

#endif

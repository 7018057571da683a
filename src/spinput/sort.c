// Least-significant-digit radix sort, stable, of 64-bit words by their upper
// half. Digits are as wide as pays: few passes over many words, few counters
// for few words.
#include "base/verify.h"
#include "spinput/spinput_internal.h"

// 2^11 counters are 8 KiB, a quarter of a first-level cache.
enum { MAX_DIGIT = 11, MAX_PASSES = 6, INSERTION = 24 };

// Insertion sort, for lists whose counters would cost more than they do.
static void sort_few(uint64_t *a, int64_t n) {
  for (int64_t i = 1; i < n; i++) {
    uint64_t x = a[i];
    int64_t j = i;
    for (; j && a[j - 1] >> 32 > x >> 32; j--) a[j] = a[j - 1];
    a[j] = x;
  }
}

// Costs: each pass reads and writes every word and clears its counters.
static int passes_for(int64_t n, int bits) {
  int best = 0;
  int64_t least = INT64_MAX;
  for (int p = (bits + MAX_DIGIT - 1) / MAX_DIGIT; p <= MAX_PASSES; p++) {
    int digit = (bits + p - 1) / p;
    int64_t cost = p * (2 * n + ((int64_t)1 << digit));
    if (cost < least) least = cost, best = p;
  }
  AT_ASSERT(best > 0);  // bits fit into so many digits
  return best;
}

// For AT_VERIFY: by the upper halves.
static bool is_sorted(const uint64_t *a, int64_t n) {
  for (int64_t i = 1; i < n; i++)
    if (a[i] >> 32 < a[i - 1] >> 32) return false;
  return true;
}

// The arrays change roles with each pass.
uint64_t *at_spi_sort(uint64_t *a, uint64_t *b, int64_t n, int bits) {
  if (n <= INSERTION || bits == 0) {
    if (bits) sort_few(a, n);
    AT_VERIFY(!bits || is_sorted(a, n));
    return a;
  }
  int passes = passes_for(n, bits), digit = (bits + passes - 1) / passes;
  uint32_t mask = (1u << digit) - 1;
  uint32_t at[1 << MAX_DIGIT];
  for (int p = 0; p < passes; p++) {
    int shift = 32 + p * digit;
    memset(at, 0, ((size_t)mask + 1) * sizeof *at);
    for (int64_t i = 0; i < n; i++) at[a[i] >> shift & mask]++;
    uint32_t sum = 0;
    for (uint32_t d = 0; d <= mask; d++) {
      uint32_t count = at[d];
      at[d] = sum;
      sum += count;
    }
    AT_ASSERT(sum == n);
    // In order, so equal digits keep theirs.
    for (int64_t i = 0; i < n; i++) b[at[a[i] >> shift & mask]++] = a[i];
    uint64_t *swap = a;
    a = b;
    b = swap;
  }
  AT_VERIFY(is_sorted(a, n));
  return a;
}

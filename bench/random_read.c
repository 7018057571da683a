// Seconds that threads take to read rows of tables in a given order, with
// prefetching and nothing else to do: the limit of any lookup on this machine.
//
//   random_read THREADS < input
//
// For each table a line "rows bytes count" (of a row; of ids) and a line of
// ids.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"

enum { kMaxTables = 256, kMaxThreads = 256, kAhead = 16 };

typedef struct table {
  unsigned long rows, bytes, count;
  uint32_t *ids;
  const uint8_t *data;
} table;
static table g_tables[kMaxTables];
static int g_count, g_threads;

static void read_rows(const table *t, size_t begin, size_t end) {
  uint64_t sum = 0;
  for (size_t i = begin; i < end; i++) {
    if (i + kAhead < end)
      for (size_t b = 0; b < t->bytes; b += 64)
        __builtin_prefetch(t->data + t->ids[i + kAhead] * t->bytes + b);
    const uint8_t *row = t->data + t->ids[i] * t->bytes;
    for (size_t b = 0; b + 8 <= t->bytes; b += 8) {
      uint64_t v;
      memcpy(&v, row + b, sizeof v);
      sum += v;
    }
  }
  __asm__ volatile("" : : "r"(sum));
}

static void *work(void *arg) {
  size_t me = (size_t)(intptr_t)arg, n = (size_t)g_threads;
  for (int i = 0; i < g_count; i++) {
    const table *t = &g_tables[i];
    read_rows(t, t->count * me / n, t->count * (me + 1) / n);
  }
  return NULL;
}

static int read_table(table *t) {
  if (scanf("%lu %lu %lu", &t->rows, &t->bytes, &t->count) != 3) return 0;
  size_t bytes = t->rows * t->bytes;
  t->ids = malloc((t->count + 1) * sizeof *t->ids);
  uint8_t *p = mmap(NULL, bytes + 1, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (!t->ids || p == MAP_FAILED) return 0;
  madvise(p, bytes, MADV_HUGEPAGE);
  memset(p, 1, bytes);
  t->data = p;
  for (unsigned long i = 0; i < t->count; i++)
    if (scanf("%u", &t->ids[i]) != 1 || t->ids[i] >= t->rows) return 0;
  return 1;
}

int main(int argc, char **argv) {
  g_threads = argc > 1 ? atoi(argv[1]) : 1;
  if (g_threads < 1 || g_threads > kMaxThreads) return 1;
  while (g_count < kMaxTables && read_table(&g_tables[g_count])) g_count++;
  if (!feof(stdin) || !g_count) return 1;
  uint64_t best = UINT64_MAX;
  for (int round = 0; round < 3; round++) {
    pthread_t threads[kMaxThreads];
    uint64_t start = at_clock_ns();
    for (int i = 0; i < g_threads; i++)
      if (pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i))
        return 1;
    for (int i = 0; i < g_threads; i++) pthread_join(threads[i], NULL);
    uint64_t took = at_clock_ns() - start;
    if (took < best) best = took;
  }
  printf("%.9f\n", (double)best * 1e-9);
  return 0;
}

// What the wire's bench and its peers have in common: how often, and one line
// of output for each measure, alike.
#ifndef ATOLL_BENCH_WIRE_BENCH_H_
#define ATOLL_BENCH_WIRE_BENCH_H_

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { kRuns = 9 };

// Messages of a run, so that it takes some milliseconds.
static inline int bench_count(size_t bytes) {
  const size_t all = 128 << 20;
  return bytes >= all / 4 ? 4 : (int)(all / bytes);
}

static inline int bench_less(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static inline void bench_header(void) {
  printf("%-12s %-14s %10s %10s %10s  unit\n", "medium", "measure", "bytes",
         "best", "p50");
}

// rate: GB/s, more is better; else microseconds.
static inline void bench_print(const char *medium, const char *what,
                               size_t bytes, double runs[kRuns], bool rate) {
  qsort(runs, kRuns, sizeof *runs, bench_less);
  printf("%-12s %-14s %10zu %10.2f %10.2f  %s\n", medium, what, bytes,
         runs[rate ? kRuns - 1 : 0], runs[kRuns / 2], rate ? "GB/s" : "us");
  fflush(stdout);
}

#endif

// The measures of bench/wire.c with MPI, for two ranks: what to compare with.
//
//   mpirun -n 2 wire_mpi NAME     NAME: how the lines call it
#include <mpi.h>
#include <string.h>

#include "base/clock.h"
#include "wire_bench.h"

enum { kMost = 64 << 20, kAnswer = 8 };

static int me;
static char *block;

static void put(size_t bytes) {
  MPI_Send(block, (int)bytes, MPI_BYTE, !me, 0, MPI_COMM_WORLD);
}
static void get(size_t bytes) {
  MPI_Recv(block, (int)bytes, MPI_BYTE, !me, 0, MPI_COMM_WORLD,
           MPI_STATUS_IGNORE);
}

static double trip(size_t bytes) {
  enum { kCount = 1000 };
  uint64_t t = at_clock_ns();
  for (int i = 0; i < kCount; i++) {
    if (!me) put(bytes);
    get(bytes);
    if (me) put(bytes);
  }
  return (double)(at_clock_ns() - t) / 1e3 / kCount;
}

static double in_a_row(size_t bytes) {
  enum { kDeep = 128, kTimes = 20 };
  MPI_Request r[2 * kDeep];
  uint64_t t = at_clock_ns();
  for (int i = 0; i < kTimes; i++) {
    for (int j = 0; j < kDeep; j++) {
      if (me) {
        get(bytes);
        put(kAnswer);
        continue;
      }
      MPI_Isend(block, (int)bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &r[j]);
      MPI_Irecv(block + 4096 + kAnswer * j, kAnswer, MPI_BYTE, 1, 0,
                MPI_COMM_WORLD, &r[kDeep + j]);
    }
    if (!me) MPI_Waitall(2 * kDeep, r, MPI_STATUSES_IGNORE);
  }
  return (double)(at_clock_ns() - t) / 1e3 / kDeep / kTimes;
}

static double bandwidth(size_t bytes) {
  const int count = bench_count(bytes);
  uint64_t t = at_clock_ns();
  for (int i = 0; i < count; i++) {
    if (me)
      get(bytes);
    else
      put(bytes);
  }
  if (me)
    put(kAnswer);
  else
    get(kAnswer);
  return (double)bytes * count / (double)(at_clock_ns() - t);
}

static void report(const char *name, const char *what, size_t bytes,
                   double (*fn)(size_t bytes), bool rate) {
  double runs[kRuns];
  fn(bytes);
  for (int i = 0; i < kRuns; i++) runs[i] = fn(bytes);
  if (!me) bench_print(name, what, bytes, runs, rate);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  const char *name = argc > 1 ? argv[1] : "mpi";
  block = malloc(kMost);
  memset(block, 1, kMost);
  report(name, "trip", 8, trip, false);
  report(name, "trip", 256, trip, false);
  report(name, "in a row", 8, in_a_row, false);
  report(name, "in a row", 256, in_a_row, false);
  for (size_t bytes = 64 << 10; bytes <= kMost; bytes *= 4)
    report(name, "bandwidth", bytes, bandwidth, true);
  free(block);
  MPI_Finalize();
  return 0;
}

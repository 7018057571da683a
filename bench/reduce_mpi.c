// The all-reduce of bench/pod_collectives.c with MPI: what to compare with.
//
//   mpirun -n PROCESSES reduce_mpi NAME     NAME: how the lines call it
#include <mpi.h>
#include <string.h>

#include "base/clock.h"
#include "wire_bench.h"

int main(int argc, char **argv) {
  static const size_t sizes[] = {8,       64 << 10, 1 << 20,
                                 4 << 20, 16 << 20, 64 << 20};
  MPI_Init(&argc, &argv);
  int me;
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  const char *name = argc > 1 ? argv[1] : "mpi";
  const size_t most = 64 << 20;
  float *from = malloc(most), *to = malloc(most);
  for (size_t i = 0; i < most / 4; i++) from[i] = (float)(i % 7), to[i] = 0;
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    size_t bytes = sizes[s];
    int count = bytes > (4 << 20) ? 4 : bytes > (256 << 10) ? 20 : 200;
    double runs[kRuns];
    for (int r = -1; r < kRuns; r++) {
      uint64_t t = at_clock_ns();
      for (int i = 0; i < count; i++)
        MPI_Allreduce(from, to, (int)(bytes / 4), MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
      if (r >= 0) runs[r] = (double)(at_clock_ns() - t) / 1e3 / count;
    }
    if (!me) bench_print(name, "all_reduce", bytes, runs, false);
  }
  free(from);
  free(to);
  MPI_Finalize();
  return 0;
}

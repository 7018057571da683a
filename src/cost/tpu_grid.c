#include <math.h>

#include "cost/tpu.h"

// Windows as the compiler chooses them, read off its own choices: a kernel of
// one op walks 128 tiles at a time, a fusion up to a thousand; the windows of a
// contraction fit into 16 MiB.
enum { kTilesOfOp = 128, kTilesOfFusion = 1024, kGroup = 8 };
enum { kTilesOfReduction = 1280 };  // that one window holds
// Fusions of many arrays have smaller windows: 32-bit tiles of all of them.
enum { kManyArrays = 4, kTilesOfAll = 1700, kBytesOfTile = 4096 };
static const double kWindowBytes = 15 << 20;
// Into how many windows a dimension is cut.
static const double kCuts[] = {1,  2,  3,  4,  6,  8,   12,  16,
                               24, 32, 48, 64, 96, 128, 192, 256};

// Bytes of the windows of one step with m x n result windows and s parts of the
// sum; infinite when a window would be smaller than what the units work on.
static double window_bytes(const at_tpu_kernel *k, double m, double n,
                           double s) {
  double rows = k->rows / m, cols = k->cols / n, depth = k->depth / s;
  if ((m > 1 && rows < 64) || (n > 1 && cols < 128) || (s > 1 && depth < 256))
    return INFINITY;
  double group = k->kind == AT_TPU_CONV ? 1 : fmin(k->batch, kGroup);
  return group * ((rows + cols) * depth * k->operand_bytes + rows * cols * 4);
}

static void contraction(at_tpu_kernel *k, const at_tpu_chip *c) {
  at_tpu_kernel best = *k;
  double least = INFINITY, smallest = INFINITY;
  double limit = fmin(kWindowBytes, c->vmem_bytes * .9);
  double batches = k->kind == AT_TPU_CONV ? 1 : ceil(k->batch / kGroup);
  for (size_t m = 0; m < AT_LEN(kCuts); m++)
    for (size_t n = 0; n < AT_LEN(kCuts); n++)
      for (size_t s = 0; s < 12; s++) {
        double bytes = window_bytes(k, kCuts[m], kCuts[n], kCuts[s]);
        bool fits = bytes <= limit;
        if (bytes == INFINITY || (!fits && bytes >= smallest)) continue;
        at_tpu_kernel t = *k;
        t.out_windows = fmax(1, batches * kCuts[m] * kCuts[n]);
        t.steps = t.out_windows * kCuts[s];
        double cycles = fits ? at_tpu_kernel_cycles(&t, c).total : INFINITY;
        if (fits ? cycles >= least : least < INFINITY) continue;
        best = t;
        least = cycles;
        smallest = fits ? 0 : bytes;
      }
  *k = best;
}

void at_tpu_kernel_grid(at_tpu_kernel *k, const at_tpu_chip *c, bool fused) {
  k->steps = k->out_windows = 1;
  if (k->kind == AT_TPU_MATMUL || k->kind == AT_TPU_CONV) {
    contraction(k, c);
    return;
  }
  double window = fused || k->kind == AT_TPU_COPY ? kTilesOfFusion : kTilesOfOp;
  if (k->kind == AT_TPU_REDUCE && k->tiles <= kTilesOfReduction)
    window = kTilesOfReduction;
  double bytes = k->hbm_in + k->vmem_in + k->hbm_out;
  double arrays = k->tiles > 0 ? bytes / (kBytesOfTile * k->tiles) : 0;
  if (arrays > kManyArrays) window = fmin(window, kTilesOfAll / arrays);
  k->steps = k->out_windows = fmax(1, ceil(k->tiles / window));
}

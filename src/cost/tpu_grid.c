#include <math.h>

#include "cost/tpu.h"

// Windows as the compiler chooses them, read off its own choices: a kernel that
// fits into VMEM twice is one window; else a kernel of one op walks 128 tiles
// at a time, and a fusion as many, up to 1,024, as it is fastest with. The
// windows of a contraction fit into 15 MiB.
enum { kTilesOfOp = 128, kTilesOfFusion = 1024, kGroup = 8 };
// Copies of many arrays have smaller windows: 32-bit tiles of all of them.
enum { kManyArrays = 4, kTilesOfAll = 1700, kBytesOfTile = 4096 };
static const double kWindowBytes = 15 << 20;
static const double kFiner = 1.1;  // from one number of steps to the next
// Into how many windows a dimension is cut.
static const double kCuts[] = {1,  2,  3,  4,  6,  8,   12,  16,
                               24, 32, 48, 64, 96, 128, 192, 256};

// Bytes of the windows of one step with m x n result windows and s parts of the
// sum, for `group` products of the batch; infinite when a window would be
// smaller than what the units work on.
static double window_bytes(const at_tpu_kernel *k, double group, double m,
                           double n, double s) {
  double rows = k->rows / m, cols = k->cols / n, depth = k->depth / s;
  if ((m > 1 && rows < 64) || (n > 1 && cols < 128) || (s > 1 && depth < 256))
    return INFINITY;
  return group * ((rows + cols) * depth * k->operand_bytes + rows * cols * 4);
}

// Bytes that the windows of m x n results and s parts of the sum read once
// more: one operand's windows stay while those of the other pass by, and are
// read for each; where the sum is in parts, none stays.
static double read_again(const at_tpu_kernel *k, double m, double n, double s) {
  double lhs = (n - 1) * k->lhs_in, rhs = (m - 1) * k->rhs_in;
  if (k->kind == AT_TPU_CONV) return 0;
  if (s > 1) return lhs + rhs;
  return fmin(m > 1 ? lhs : 0, n > 1 ? rhs : 0);
}

// The best grid of a contraction so far.
typedef struct choice {
  at_tpu_kernel best;
  double least;     // cycles; infinite while none fits
  double smallest;  // bytes of the windows of `best` while none fits
} choice;

// Tries windows of `group` products of the batch at a time.
static void cut_group(const at_tpu_kernel *k, const at_tpu_chip *c,
                      double group, choice *out) {
  double limit = fmin(kWindowBytes, c->vmem_bytes * .9);
  double batches = k->kind == AT_TPU_CONV ? 1 : ceil(k->batch / group);
  for (size_t m = 0; m < AT_LEN(kCuts); m++)
    for (size_t n = 0; n < AT_LEN(kCuts); n++)
      for (size_t s = 0; s < 12; s++) {
        double bytes = window_bytes(k, group, kCuts[m], kCuts[n], kCuts[s]);
        bool fits = bytes <= limit;
        if (bytes == INFINITY || (!fits && bytes >= out->smallest)) continue;
        at_tpu_kernel t = *k;
        t.out_windows = fmax(1, batches * kCuts[m] * kCuts[n]);
        t.steps = t.out_windows * kCuts[s];
        t.again_in = read_again(k, kCuts[m], kCuts[n], kCuts[s]);
        double cycles = fits ? at_tpu_kernel_cycles(&t, c).total : INFINITY;
        if (fits ? cycles >= out->least : out->least < INFINITY) continue;
        *out = (choice){t, cycles, fits ? 0 : bytes};
      }
}

// Tries all cuts: the fastest that fits, or the smallest if none does.
static void contraction(at_tpu_kernel *k, const at_tpu_chip *c) {
  choice found = {*k, INFINITY, INFINITY};
  double group = k->kind == AT_TPU_CONV ? 1 : fmin(k->batch, kGroup);
  for (; group >= 1; group = floor(group / 2)) cut_group(k, c, group, &found);
  *k = found.best;
}

// Copies walk windows of equal size.
static void copy(at_tpu_kernel *k) {
  double window = kTilesOfFusion;
  double bytes = k->hbm_in + k->vmem_in + k->hbm_out;
  double arrays = k->tiles > 0 ? bytes / (kBytesOfTile * k->tiles) : 0;
  if (arrays > kManyArrays) window = fmin(window, kTilesOfAll / arrays);
  k->steps = k->out_windows = fmax(1, ceil(k->tiles / window));
}

// VMEM that the windows of one step take, two of each array; those that are
// used where they are take none. What is reduced and narrow results are there
// once more, in 32 bits, rows that are held two or three times.
static double step_bytes(const at_tpu_kernel *k, const at_tpu_chip *c) {
  double steps = fmax(1, ceil(k->steps / c->cores)) * c->cores;
  double moved = 2 * (k->hbm_in + k->hbm_out);
  if (!c->direct_vmem || k->kind == AT_TPU_REDUCE) moved += 2 * k->vmem_in;
  double narrow = k->hbm_out_narrow + k->vmem_out_narrow;
  double once = k->kind == AT_TPU_REDUCE || narrow == k->out_tiles ? 1 : 0;
  if (k->row_tiles > 0) once = k->narrow_tiles > 0 ? 2 : 3;
  return (moved + once * kBytesOfTile * k->tiles) / steps;
}

// Elementwise kernels and reductions: one window if it fits, else as many steps
// as it is fastest with.
static void stream(at_tpu_kernel *k, const at_tpu_chip *c, bool fused) {
  double limit = kWindowBytes * (c->direct_vmem ? 2 : 1);
  k->steps = k->out_windows = c->cores;
  bool whole = step_bytes(k, c) < limit;
  if (whole && !fused) return;
  double window = fused ? kTilesOfFusion : kTilesOfOp;
  double least = whole ? at_tpu_kernel_cycles(k, c).total : INFINITY;
  double n = fmax(1, ceil(k->tiles / window / c->cores));
  double most = fused ? 8 * n + 16 : n, best = k->steps;
  for (; n <= most; n = fmax(n + 1, floor(n * kFiner))) {
    k->steps = k->out_windows = n * c->cores;
    bool fits = step_bytes(k, c) < limit;
    double cycles = fits ? at_tpu_kernel_cycles(k, c).total : INFINITY;
    if (cycles < least || least == INFINITY) least = cycles, best = k->steps;
  }
  k->steps = k->out_windows = best;
}

void at_tpu_kernel_grid(at_tpu_kernel *k, const at_tpu_chip *c, bool fused) {
  k->steps = k->out_windows = 1;
  if (k->kind == AT_TPU_MATMUL || k->kind == AT_TPU_CONV)
    contraction(k, c);
  else if (k->kind == AT_TPU_COPY)
    copy(k);
  else
    stream(k, c, fused);
  AT_ASSERT(!(k->out_windows < 1) && !(k->steps < k->out_windows));
}

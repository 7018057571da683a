// Transforms run on groups of LANES lines at once, in split form: element i of
// the group is a vector of real parts at re[i * LANES] and one of imaginary
// parts. So every butterfly is plain vector arithmetic, whatever the radix.
//
// Memory: plans are the process's and live for ever; work space is scratch of
// the launch.
// Threads: lines run side by side.
#ifndef ATOLL_KERNELS_FFT_INTERNAL_H_
#define ATOLL_KERNELS_FFT_INTERNAL_H_

#include "kernels/kernels_internal.h"

// Bounds of a plan's tables, and the length from which a line is worth all
// threads.
enum {
  AT_FFT_MAX_STAGES = 40,
  AT_FFT_MAX_RADIX = 13,
  AT_FFT_DIRECT = 4096,  // longer lines are matrices
  AT_FFT_TURNS = 32      // a turn by k is one by k % TURNS and one by the rest
};

// One Stockham stage: m * s butterflies of `radix` inputs that lie m * s
// elements apart.
// m * s * radix = n at every stage; s grows by the radix from stage to stage.
typedef struct at_fft_stage {
  int radix;
  int64_t m, s;       // n = radix * m * s
  const void *tw;     // [m][radix - 1] pairs: exp(-2 pi i p j / (radix m))
  const void *roots;  // odd radix: cos, then sin, of 2 pi k / radix
} at_fft_stage;

// How lines of n complex elements are transformed: by stages; as a convolution
// of length `conv` (Bluestein); or, long ones, as a matrix of n1 rows and n2
// columns. Tables hold elements of the precision, complex ones in pairs.
typedef struct at_fft_plan at_fft_plan;
struct at_fft_plan {
  int64_t n;
  int count;
  at_fft_stage stage[AT_FFT_MAX_STAGES];
  const at_fft_plan *conv;
  // The chirp and its transform are of Bluestein's method, the turns of the
  // long way; a plan has what its way needs, the rest is NULL.
  const void *chirp, *chirp_ft;  // n and conv->n pairs
  const at_fft_plan *p1, *p2;    // long: lines of n1 and of n2
  // Output k of column l is turned by exp(-2 pi i k l / n): for each group of
  // columns, vectors of TURNS fine and ceil(n1 / TURNS) coarse turns.
  const void *turns;
  const void *half;  // exp(-pi i k / n) for k <= n / 2: lines of 2n reals
};

// What is done to a group beside the transform: lines of 2n reals are lines of
// n complex elements, whose spectra are unravelled into n + 1, and back.
typedef enum at_fft_fold {
  AT_FFT_PLAIN,
  AT_FFT_UNRAVEL,
  AT_FFT_RAVEL
} at_fft_fold;

// Lines of one pass. Line l lies at (l / inner) * outer + (l % inner) * line;
// strides count elements (complex, or real where the side is real).
typedef struct at_fft_side {
  char *p;
  bool real;
  int64_t outer, line, elem;
} at_fft_side;
// Lines [0, lines) from src to dst by one plan. Both sides may be the same
// memory: a group is read before it is written.
typedef struct at_fft_pass {
  const at_fft_plan *plan;
  at_fft_side src, dst;
  int64_t lines, inner;
  int64_t in_count, out_count;  // elements of a line that are read, written
  at_fft_fold fold;
  bool hermitian;  // the source holds n / 2 + 1 elements of n
  bool inverse;
  double scale;
  const at_fft_plan *turn;  // the long plan whose columns these are; or NULL
} at_fft_pass;

// One element type and instruction set.
// Functions of one element type, with vectors of one width.
typedef struct at_fft_kernels {
  int64_t lanes;  // 16 floats or 8 doubles
  // Lines [first, first + lanes) of the pass; work: at_fft_work_bytes.
  void (*group)(const at_fft_pass *p, int64_t first, void *work);
  // Elements k and n - k of a long line for k in [begin, end), end <= n / 2
  // + 1.
  void (*unravel)(const at_fft_plan *plan, const void *z, void *x,
                  int64_t begin, int64_t end, double scale);
  void (*ravel)(const at_fft_plan *plan, const void *x, void *z, int64_t begin,
                int64_t end);
  // x[i] *= w[i] of dense pairs.
  void (*multiply)(void *x, const void *w, int64_t begin, int64_t end);
} at_fft_kernels;
// [double precision][AVX-512]
// All four are there on every CPU; those with AVX-512 must only be called where
// it is.
extern const at_fft_kernels at_fft_kernel[2][2];
// Bytes of work memory for one group: two buffers of real and imaginary
// vectors, one element longer than the line, or its convolution.
size_t at_fft_work_bytes(const at_fft_plan *plan);

// True when n has only factors up to 13.
// n >= 1. Other lengths go through a convolution.
bool at_fft_smooth(int64_t n);
// SHORT: a vector of lines at once; LONG: one line over all threads.
typedef enum at_fft_form { AT_FFT_SHORT, AT_FFT_LONG } at_fft_form;
// The plan of a length: kept by the process for its next calls, or, if it keeps
// enough already, in this call's scratch memory. Any thread.
// RESOURCE_EXHAUSTED. *out is good until the call ends.
at_status at_fft_plan_get(const at_par *par, int64_t n, bool dbl,
                          at_fft_form form, const at_fft_plan **out);

#endif

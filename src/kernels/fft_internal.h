// Transforms run on groups of LANES lines at once, in split form: element i of
// the group is a vector of real parts at re[i * LANES] and one of imaginary
// parts. So every butterfly is plain vector arithmetic, whatever the radix.
#ifndef ATOLL_KERNELS_FFT_INTERNAL_H_
#define ATOLL_KERNELS_FFT_INTERNAL_H_

#include "kernels/kernels_internal.h"

enum { AT_FFT_MAX_STAGES = 40, AT_FFT_MAX_RADIX = 13, AT_FFT_DIRECT = 8192 };

typedef struct at_fft_stage {
  int radix;
  int64_t m, s;    // n = radix * m * s
  const void *tw;  // [m][radix - 1] pairs: exp(-2 pi i p j / (radix m))
} at_fft_stage;

// A transform of length n: stages, or Bluestein's convolution of length `conv`.
typedef struct at_fft_plan at_fft_plan;
struct at_fft_plan {
  int64_t n;
  int count;
  at_fft_stage stage[AT_FFT_MAX_STAGES];
  const at_fft_plan *conv;
  const void *chirp, *chirp_ft;  // n and conv->n pairs
};

// Lines of one pass. Line l lies at (l / inner) * outer + (l % inner) * line;
// strides count elements (complex, or real where the side is real).
typedef struct at_fft_side {
  char *p;
  bool real;
  int64_t outer, line, elem;
} at_fft_side;
typedef struct at_fft_pass {
  const at_fft_plan *plan;
  at_fft_side src, dst;
  int64_t lines, inner;
  int64_t in_count, out_count;  // elements of a line that are read, written
  bool hermitian;               // the source holds n / 2 + 1 elements of n
  bool inverse;
  double scale;
  // Four-step: output k of line l is turned by exp(-2 pi i k l / turn_n), from
  // tables of doubles: hi[e / turn_split], lo[e % turn_split].
  int64_t turn_n, turn_split;
  const double *turn_hi, *turn_lo;
  void *work;  // per worker: at_fft_work_bytes
  size_t work_bytes;
} at_fft_pass;

typedef void (*at_fft_group_fn)(const at_fft_pass *p, int64_t first,
                                void *work);
// [double precision][AVX-512]; lanes: 16 floats or 8 doubles.
extern const at_fft_group_fn at_fft_group[2][2];
size_t at_fft_work_bytes(const at_fft_plan *plan);

// True when n has only factors up to 13.
bool at_fft_smooth(int64_t n);
at_status at_fft_plan_make(const at_par *par, int64_t n, bool dbl,
                           const at_fft_plan **out);
// Turns pairs (-2 pi i e / n) for e = 0 .. count - 1, times `step`, into out.
void at_fft_roots(int64_t n, int64_t step, int64_t count, double *out);

// out = exp(-pi i j^2 / n).
void at_fft_chirp(int64_t n, int64_t j, double out[2]);

#endif

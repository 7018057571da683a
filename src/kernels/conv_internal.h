// Convolutions of few features: no operand is packed; what the window meets is
// copied once, padded, and read in place.
#ifndef ATOLL_KERNELS_CONV_INTERNAL_H_
#define ATOLL_KERNELS_CONV_INTERNAL_H_

#include "kernels/kernels_internal.h"

// c[r * c_step + j] (+)= sum over k of a[a_off[k] + r * a_step] *
// b[b_off[k] + j] for r < rows and j < vectors * lanes.
// The tables have k entries each; the tile's sums are complete when it returns.
typedef struct at_conv_tile {
  const float *a, *b;
  const int32_t *a_off, *b_off;
  int64_t k, a_step, c_step;
  float *c;
  bool add;  // to what c holds
} at_conv_tile;
// A family of tiles for one vector width.
typedef struct at_conv_micro {
  int lanes;
  // The most vectors, a power of two, of a tile of that many rows.
  int (*most)(int rows);
  // vectors is a power of two.
  void (*run)(const at_conv_tile *t, int rows, int vectors);
} at_conv_micro;
// Limits of one microtile, and the lanes of a vector.
enum { AT_CONV_ROWS = 12, AT_CONV_VECTORS = 8, AT_CONV_LANES = 16 };
// With vectors as wide as this CPU has them, or of eight floats.
const at_conv_micro *at_conv_micro_of(bool wide);

// Where a row of pixels lies in memory and where its copy goes: `pixels` of
// them from pixel `first` on (outside of [0, size): zeros), `features` floats
// each.
// Features of a pixel are dst_feature apart in the copy.
typedef struct at_conv_row {
  uint32_t dtype;                  // F32, BF16 or F16
  const char *src;                 // pixel 0; NULL: all zeros
  int64_t src_pixel, src_feature;  // strides, in elements
  int64_t size, first, pixels, features;
  // Pixel x goes to (x % phases) * dst_phase + x / phases * dst_pixel.
  float *dst;
  int64_t phases, dst_phase, dst_pixel, dst_feature;
} at_conv_row;
// Reads only pixels in [0, size) of r->src; writes r->pixels times r->features
// floats.
void at_conv_copy_row(const at_conv_row *r);

// A tile of floats into a result: rows by columns, with strides in elements.
// ld: floats from row to row of the tile.
typedef struct at_conv_put {
  const float *from;
  int64_t ld;
  uint32_t dtype;
  char *to;
  int64_t row_stride, column_stride, rows, columns;
} at_conv_put;
// Converts and stores; `to` does not overlap `from`.
void at_conv_put_tile(const at_conv_put *x);

// Can the operands and the result of p be read and written as floats?
// By types alone.
bool at_conv_is_float(const at_k_conv_params *p);

// True if p is a convolution of few features; no dimension of its output is
// empty.
// False leaves the call to the packed product.
bool at_conv_direct_fits(const at_k_conv_params *p);
// As at_k_conv, for what fits. RESOURCE_EXHAUSTED without scratch memory.
at_status at_conv_direct(const at_k_call *call);

#endif

// What one kernel takes on a TPU core: a pipeline of windows that move between
// HBM and VMEM, the matrix units, and the vector unit.
//
// The formula is physical (grid steps, DMA latency, traffic at the HBM rate,
// passes through arrays of weights); its dozen coefficients are fitted to the
// TPU compiler's own estimates by tools/fit_tpu.py and live in
// data/tpu/kernel_model.json with their errors. The same formula in Python is
// in that script; tpu_kernel_test compares the two. Pure functions,
// thread-safe.
#ifndef ATOLL_COST_TPU_H_
#define ATOLL_COST_TPU_H_

#include "cost/cost.h"

// The figures that the formula needs. A "device" is what JAX lists.
typedef struct at_tpu_chip {
  const at_machine *machine;
  double clock;       // hertz
  double cores;       // that share one device's kernels (2 on v4 and v5p)
  double hbm_rate;    // bytes per cycle of one device, as achieved
  double array;       // rows and columns of one matrix unit
  double arrays;      // of one device
  double byte_speed;  // 8-bit over bf16 rate of the matrix units
  double vmem_bytes;  // of one core
  bool direct_vmem;   // kernels use operands in VMEM where they are
} at_tpu_chip;
// FAILED_PRECONDITION: the machine is no TPU, or lacks a figure (named).
at_status at_tpu_chip_of(const at_machine *m, at_tpu_chip *out);

// Does the compiler make this dot_general a multiplication and a sum? Then the
// vector unit computes it, from operands as they are: products with a vector
// (of batches of matrices only where it is written as a matrix of one row or
// column, or a side is short), of two vectors, and those that sum nothing.
bool at_tpu_is_sum_of_products(const at_node *n);

// What a kernel does, which decides how it walks its windows.
typedef enum at_tpu_kind {
  AT_TPU_LOOP,    // elementwise
  AT_TPU_COPY,    // moves data: copy, transpose, slice, pad
  AT_TPU_REDUCE,  // elementwise with reductions
  AT_TPU_MATMUL,
  AT_TPU_CONV
} at_tpu_kind;

// One kernel. Tiles are 8 x 128 elements of any type; bytes are those of whole
// tiles; "narrow" is less than 32 bits per element.
typedef struct at_tpu_kernel {
  at_tpu_kind kind;
  double steps;        // of the grid; 0: chosen by at_tpu_kernel_grid
  double out_windows;  // result windows written; fewer when the sum is split
  double hbm_in, hbm_out;  // bytes
  double lhs_in,
      rhs_in;           // of hbm_in: what a contraction's operands are made of
  double again_in;      // bytes of them that later windows read once more
  double vmem_in;       // bytes of operands that are in VMEM already
  double tiles;         // of the largest operand or result
  double narrow_tiles;  // of the largest narrow one
  double in_tiles;      // of all operands
  double out_tiles;     // of all results
  double hbm_out_narrow;   // tiles of narrow results in HBM
  double vmem_out_narrow;  // tiles of narrow results in VMEM
  double ops;              // vector operations per element; half of one where
                           // it is done in registers of narrow elements
  double reduces;          // reductions
  double relaid;           // tiles whose lanes hold another dimension after it
  double shifted;          // tiles of long rows that move by part of a tile
  bool resident;           // nothing moves: operands and results are in VMEM
  double row_tiles;        // of rows that the kernel holds and reduces
  // Contractions: [batch, rows, depth] x [batch, depth, cols]. A convolution's
  // batch is its taps.
  double rows, cols, depth, batch;
  double tap_tiles;      // taps of a depthwise convolution times result tiles
  double pixels;         // of a convolution with one product per pixel
  double operand_bytes;  // per element of the contraction's narrower operand
  double repeat;         // contractions in the kernel, 1 but for chains, or
                         // parts that f32 operands are multiplied in
} at_tpu_kernel;

// Where the cycles of a kernel go. The parts overlap; `total` is their
// combination.
typedef struct at_tpu_cycles {
  double total;
  double matrix;   // matrix units busy
  double vector;   // vector unit busy
  double memory;   // HBM traffic
  double latency;  // DMA latencies and pipeline fill
} at_tpu_cycles;
// The coefficients; at_tpu_chip_of has loaded them. RESOURCE_EXHAUSTED.
at_status at_tpu_model_load(void);
// Cycles of the clock of `c`, of one core. Pure.
at_tpu_cycles at_tpu_kernel_cycles(const at_tpu_kernel *k,
                                   const at_tpu_chip *c);
// Cycles until a DMA's first bytes are there; to fill and drain a matrix unit.
double at_tpu_dma_cycles(const at_tpu_chip *c);
// Cycles to fill and drain a matrix unit.
double at_tpu_fill_cycles(const at_tpu_chip *c);
// Chooses steps and out_windows as the compiler tends to: the largest windows
// that fit. `fused` is false for a kernel of a single op, whose windows are
// smaller.
void at_tpu_kernel_grid(at_tpu_kernel *k, const at_tpu_chip *c, bool fused);

// 8 x 128 tiles of a shape in the layout that pads least; 0 for scalars.
// `packed` is their size in bytes for elements of `t`.
double at_tpu_tiles(at_dims dims);
// Bytes of one vector register's tile (8 x 128 elements) of that type;
// fractions are possible for types under a byte.
double at_tpu_tile_bytes(at_dtype t);
// The layout of an array between kernels: any dimension may lie along the lanes
// and any other along the sublanes, and tiles shrink to 1, 2 or 4 sublanes.
// Least padding wins, then the order that is given. Returns tiles; *lanes
// (unless NULL): the dimension along the lanes, 0 for scalars.
double at_tpu_compact_tiles(at_dims dims, uint32_t *lanes);
// The same; *sublanes: the dimension along the sublanes, *lanes for vectors.
double at_tpu_compact_layout(at_dims dims, uint32_t *lanes, uint32_t *sublanes);

#endif

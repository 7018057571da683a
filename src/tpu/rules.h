// What the TPU compiler refuses for a chip, after what JAX has refused already,
// and how it lays a kernel's memory out.
//
// Errors: refusals have the compiler's own codes and words; RESOURCE_EXHAUSTED
// also where the host has no memory for the judgement. Memory: results live in
// the arena that is given, or are static tables. Threads: any.
#ifndef ATOLL_TPU_RULES_H_
#define ATOLL_TPU_RULES_H_

#include "mosaic/mosaic.h"

// Limits of one core of a chip generation (rules.def). Bytes.
// Rows are static; a chip's numbers are what its compiler's refusals tell.
// Fields are what the rules ask of a chip; machine/machine.h has its speed.
typedef struct at_mosaic_chip {
  const char *name, *kind;  // "v6e", "TPU v6 lite"
  int generation, cores_per_device;
  // In bytes, as all sizes here.
  int64_t vmem_bytes;         // all of it
  int64_t vmem_usable_bytes;  // less what the compiler keeps
  int64_t vmem_scoped_bytes;  // of one kernel, unless it asks for another limit
  int64_t smem_bytes;
  int64_t semaphore_bytes;  // 4 per semaphore
  int64_t tile_rows_16bit;  // rows of a tile of 16-bit elements in HBM
  int64_t word_bits;    // of memory that is HBM or VMEM, that copies begin with
  int64_t hbm_bits;     // of HBM: copies begin with them, and move whole ones
  int64_t spmem_words;  // of a SparseCore, TileSpmem included; 0: not known
} at_mosaic_chip;
// Of a target's text (machine/topology.h), or by device kind. NULL: unknown.
const at_mosaic_chip *at_mosaic_chip_find(at_str target);

// Where the compiler would stop: UNIMPLEMENTED, INTERNAL, INVALID_ARGUMENT or
// RESOURCE_EXHAUSTED. The message starts as the compiler's does, so that JAX
// recognises it; facts and the kernel's source line follow. OK: it compiles.
// num_devices: of the program, for constant device ids; 0: not known.
at_status at_mosaic_check(const at_mosaic_kernel *k, const at_mosaic_chip *chip,
                          uint32_t num_devices);

// The same for whoever compiles: with ATOLL_LENIENT=1 a refusal becomes a
// warning. An unknown target refuses nothing. Errors as at_mosaic_check.
at_status at_mosaic_admit(const at_mosaic_kernel *k, at_str target,
                          uint32_t num_devices);

// ---- Layout
// Rows of the tile in which a memref lies in VMEM or HBM. `argument`: of the
// kernel, whose layout XLA chooses. rank >= 2.
// Between 1 and 128. Narrow elements stand 32 / bits to a word, so that many
// rows at least.
int64_t at_mosaic_tile_rows(const at_mosaic_chip *chip, uint32_t bits,
                            int64_t rows, bool argument);
// Bytes of a memref in its padded layout; SMEM and semaphores are dense.
// -1: a dynamic or impossible size.
// Bytes are whole words. dims up to INT64_MAX are allowed: what overflows is
// impossible.
int64_t at_mosaic_ref_bytes(const at_mosaic_chip *chip, const at_mosaic_ref *r,
                            bool argument);

// How often the window brings an element of its array, on average of those that
// it brings at all (blocks) or that there are (windows at element offsets), as
// the index map alone tells. 0: nobody knows, since the map depends on data or
// the grid is too long to walk. Of bounds that come as operands a few steps are
// looked at. RESOURCE_EXHAUSTED alone; `a` is scratch.
at_status at_mosaic_window_visits(const at_mosaic_program *p,
                                  const at_mosaic_window *w, at_arena *a,
                                  double *out);

// May what makes this operand of the call be made block by block in its window
// (allow_input_fusion), and how often would each element be made? 0: it may
// not, as far as the kernel's description tells: it does not ask for it, or
// something else needs the array: aliases, colours, other chips, side effects.
// RESOURCE_EXHAUSTED alone; `a` is scratch.
at_status at_mosaic_may_make(const at_mosaic_kernel *k, uint32_t operand,
                             at_arena *a, double *out_times);

// What a program takes of the memories of a core.
// Sums saturate at INT64_MAX, so that a hostile kernel takes too much and not
// little.
typedef struct at_mosaic_memory {
  int64_t windows, scratch;  // VMEM bytes; windows with all their buffers
  int64_t smem, semaphores;  // bytes
} at_mosaic_memory;
// In the chip's padded layout; a ref of a dynamic size counts as nothing.
// Windows that XLA keeps in VMEM already take nothing.
at_mosaic_memory at_mosaic_memory_of(const at_mosaic_program *p,
                                     const at_mosaic_chip *chip);

#endif

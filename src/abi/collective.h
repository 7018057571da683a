// Collectives of a program over several devices, as a step carries them: the
// parameters of AT_STEP_COLLECTIVE. Devices are numbered
// replica * num_partitions + partition; every kind of replica group has become
// lists of those numbers.
#ifndef ATOLL_ABI_COLLECTIVE_H_
#define ATOLL_ABI_COLLECTIVE_H_

#include <stdint.h>

enum { AT_MAX_DEVICES = 4096 };

typedef enum at_collective_kind {
  AT_COLL_ALL_REDUCE,
  AT_COLL_REDUCE_SCATTER,
  AT_COLL_ALL_GATHER,
  AT_COLL_ALL_TO_ALL,
  AT_COLL_BROADCAST,          // from the group's first
  AT_COLL_PERMUTE,            // `sources` tells from whom
  AT_COLL_RAGGED_ALL_TO_ALL,  // operands: input, output, input offsets, send
                              // sizes, output offsets, receive sizes
  AT_COLL_PARTITION_ID,       // no exchange: u32 results
  AT_COLL_REPLICA_ID,
  AT_COLL_SPARSE,  // no exchanges; an at_x_sparse follows (abi/sparsecore.h)
  AT_COLL_KINDS
} at_collective_kind;

// One value that is exchanged. The piece that member s of a group gives to
// member d is `rows` x `lines` runs of `run` bytes; run (r, l) is read at
//   d * give_piece + r * give_row + l * give_line of the operand of s
// and written at
//   s * take_piece + r * take_row + l * take_line of the result of d.
// REDUCE_SCATTER reads what the group's operands reduce to (take_piece 0, one
// line); ALL_REDUCE, BROADCAST and PERMUTE move whole operands, and the RAGGED
// kind rows of `run` bytes.
typedef struct at_x_exchange {
  uint64_t operand_bytes, result_bytes;  // dense
  uint64_t rows, lines, run;
  uint64_t give_piece, give_row, give_line;
  uint64_t take_piece, take_row, take_line;
  // Reductions: KERNELS (AT_XK_RANGE) of (left, right, result) for `block`
  // elements, and for the `tail` of fewer that may be left; each runs tasks
  // 0 to its `tasks`. UINT32_MAX: there is none.
  uint32_t element_bytes;
  uint32_t block, tail;  // KERNELS
  uint32_t block_elements, tail_elements, block_tasks, tail_tasks;
  uint32_t index_bytes;  // RAGGED: of an offset or a size, 4 or 8
} at_x_exchange;

// At the step's PARAMS, 16-byte aligned; then `num_values` exchanges, then
// tables of uint32_t, each of num_devices entries: `group_of` (UINT32_MAX: in
// none), `rank_of` (place in the group), `begin_of` (where the device's group
// begins among `members`), `size_of` (its size), `members` (group after group),
// `source_of` (PERMUTE: the member's place from whom it receives, UINT32_MAX:
// zeros).
typedef struct at_x_collective {
  uint32_t kind;  // at_collective_kind
  uint32_t num_values;
  uint32_t num_devices, num_groups;
} at_x_collective;

enum { AT_COLL_TABLES = 6 };

static inline uint64_t at_x_collective_bytes(const at_x_collective *c) {
  return sizeof *c + (uint64_t)c->num_values * sizeof(at_x_exchange) +
         (uint64_t)AT_COLL_TABLES * c->num_devices * sizeof(uint32_t);
}

#endif

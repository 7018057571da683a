// The compile side's face: what a SparseCore custom call of a program asks for,
// checked. The run side's face is engine.h.
//
// Errors: INVALID_ARGUMENT and UNIMPLEMENTED name the call, the operand and
// what was expected.
// Memory: what is read borrows from the node.
// Threads: any, on a program that nobody changes.
#ifndef ATOLL_SPARSECORE_SPARSECORE_H_
#define ATOLL_SPARSECORE_SPARSECORE_H_

#include "abi/kernels.h"
#include "abi/sparsecore.h"
#include "hlo/hlo.h"

// ---- backend_config
// The backend_config of a call.
typedef struct at_sc_config {
  // Limits per (SparseCore, partition); 0: the config has none.
  int64_t max_ids, max_unique;
  int64_t num_slots, num_hypers;  // -1: not said
  bool quantised;
  double low, high;
  int64_t num_buckets;
  // csr_config: entries of a row, 0: not said; what pads rows, and to what
  // multiple.
  int64_t max_per_row, pad_value, max_pad;
} at_sc_config;
// Reads the JSON of a call; an empty text is an empty config. The quantisation
// is `quantization_config {min_value, max_value, num_buckets}`, or
// quantization_config_low, _high and _num_buckets. INVALID_ARGUMENT names the
// field: no object, another device_type than DEVICE_TYPE_SPARSECORE, a sharding
// strategy other than 1 (MOD), limits below 1, num_buckets < 2, low >= high.
at_status at_sc_config_read(at_str text, at_sc_config *out);

// ---- Calls
// By call target; lower.c has the names.
typedef enum at_sc_kind {
  AT_SC_NONE,
  AT_SC_LOOKUP,
  AT_SC_LOOKUP_MINIBATCHES,
  AT_SC_UPDATE,
  AT_SC_UPDATE_MINIBATCHES,
  AT_SC_UPDATE_MINIBATCHES_FIRST,  // the gradient before the tables
  AT_SC_LOCAL,
  AT_SC_UNSTACK,
  AT_SC_STACK,
  AT_SC_GATHER,  // SparseGather
  AT_SC_IOTA,    // SparseIota
  AT_SC_MAP_ROW  // SparseMapRow, which nobody runs
} at_sc_kind;
// By call target; NONE: not a call of the SparseCore.
at_sc_kind at_sc_kind_of(const at_node *n);
// Lookups and updates of tables: what the engine runs.
bool at_sc_is_engine(at_sc_kind k);

// A call that the engine runs, its operands in the order of abi/sparsecore.h.
typedef struct at_sc_call {
  at_sc_kind kind;
  at_sc_config config;
  at_x_sparse x;  // without the optimizer
  uint32_t num_operands;
  uint32_t operands[8 + AT_SPARSE_MAX_TABLES + AT_SPARSE_MAX_HYPERS];
  const at_comp *optimizer;  // UPDATE
} at_sc_call;
// `num_devices`: of the program; `scs`: SparseCores of one device, 0: the
// target has none. Shapes are those of one device. INVALID_ARGUMENT,
// UNIMPLEMENTED, RESOURCE_EXHAUSTED name the call, the operand, and what was
// expected.
at_status at_sc_call_read(const at_node *n, uint32_t num_devices, uint32_t scs,
                          at_sc_call *out);

// SparseGather(table[v, d], pointers[r], ids[c]) -> [c, d]: rows of the table
// for the ids that are no padding, one after the other; what is left of the
// result is 0. SparseIota(pointers[r]) -> s32[c]: for each entry its place
// among those that are no padding, and where none is, pad_value.
// INVALID_ARGUMENT names the call and what was expected.
at_status at_sc_csr_read(const at_node *n, at_k_csr_params *out);

// SparseCores of one device of a target ("v6e:2x2"); 0: none, or not known.
uint32_t at_sc_count(at_str target);

// ---- Meaning
// An at_eval_custom for programs of one device, slow and obvious. `user`: a
// const uint32_t *, the SparseCores of the device. Calls of others go to
// at_eval_linalg_custom.
at_status at_sc_eval_custom(void *user, const at_node *n,
                            const at_literal *const *operands, at_arena *a,
                            const at_literal **results);

#endif

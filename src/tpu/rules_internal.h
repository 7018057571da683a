// What the files of the chip's rules share.
#ifndef ATOLL_TPU_RULES_INTERNAL_H_
#define ATOLL_TPU_RULES_INTERNAL_H_

#include "base/map.h"
#include "base/walk.h"
#include "mosaic/tree.h"
#include "tpu/rules.h"

// What a judgement of one program works with; lives on the stack of
// at_mosaic_check. One thread.
typedef struct at_mosaic_judge {
  const at_mosaic_kernel *k;
  const at_mosaic_chip *chip;
  const at_mosaic_program *p;
  uint32_t num_devices;
  at_arena *scratch;
  at_map live;    // operations of the program that are read, where that matters
  at_walk known;  // at_mosaic_value_known of the values that were asked for
} at_mosaic_judge;

// A refusal in the compiler's form: "Mosaic failed to compile TPU kernel ...:
// message", the location, the operation, then our facts.
__attribute__((format(printf, 4, 5), warn_unused_result)) at_status
at_mosaic_refuse(at_mosaic_judge *j, const at_mop *op, at_code code,
                 const char *fmt, ...);

// The compiler's stages, in order: each looks at the whole kernel before the
// next one starts.
// Grid and windows; then per operation: element types, layouts, what loops
// carry, instructions; then memory. OK or the refusal.
at_status at_mosaic_rules_windows(at_mosaic_judge *j);
// Element types of one operation.
at_status at_mosaic_rules_canonical(at_mosaic_judge *j, const at_mop *op);
// Whether its vectors have a layout in registers.
at_status at_mosaic_rules_layout(at_mosaic_judge *j, const at_mop *op);
at_status at_mosaic_rules_carried(at_mosaic_judge *j);  // all of the program
// Whether the chip has the instruction.
at_status at_mosaic_rules_target(at_mosaic_judge *j, const at_mop *op);
// Whether windows and scratch fit the core's memories.
at_status at_mosaic_rules_memory(at_mosaic_judge *j);

// ---- What the first canonicalisation leaves (rules_fold.c)
// Fills j->live. Call before the two below.
at_status at_mosaic_rules_mark(at_mosaic_judge *j);
// False: the compiler drops the operation before any rule sees it.
bool at_mosaic_remains(const at_mosaic_judge *j, const at_mop *op);
// The value that stands for v after operations that change nothing are gone.
const at_mvalue *at_mosaic_value_folded(const at_mvalue *v);
// False: no branch is taken to it, or its loop makes no turn, as bounds that
// fold to one value tell.
bool at_mosaic_region_runs(const at_mop *op, uint32_t region);
// Computed from constants alone.
bool at_mosaic_value_known(at_mosaic_judge *j, const at_mvalue *v);

// A constant, through casts; false: not known.
bool at_mosaic_value_const(const at_mvalue *v, int64_t *out);
// Can it be proved that v is a multiple of n?
bool at_mosaic_value_divides(const at_mvalue *v, int64_t n);

// Bytes of VMEM that the compiler keeps for itself, unless a kernel gives more.
enum { AT_MOSAIC_INTERNAL_SCRATCH = 72 << 10 };
// Of a window, as the compiler makes them.
uint32_t at_mosaic_buffers_of(const at_mosaic_window *w);

// Types of operand and result i, which the verifier has seen.
static inline const at_mtype *at_mosaic_arg(const at_mop *op, uint32_t i) {
  return op->operands[i]->type;
}
// The type of result i, which must exist.
static inline const at_mtype *at_mosaic_res(const at_mop *op, uint32_t i) {
  return op->results[i].type;
}
// Of any rank, 0 included.
static inline bool at_mosaic_is_vector(const at_mtype *t) {
  return t->kind == AT_MTYPE_VECTOR;
}
// Of an element; 0 for semaphores.
static inline uint32_t at_mosaic_bits(const at_mtype *t) {
  return at_dtype_of(at_mosaic_dtype_of(t))->bits;
}
// The size of a dimension counted from the end (1: the last); 1 where there is
// none.
static inline int64_t at_mosaic_size(const at_mtype *t, uint32_t from_end) {
  return t->shape.rank < from_end ? 1 : t->shape.ptr[t->shape.rank - from_end];
}

#endif

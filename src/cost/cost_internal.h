// What the files of the room share: names of element types, keys of tables,
// smoothed curves, and the models behind at_cost_collective. Errors, memory and
// threads as cost.h.
#ifndef ATOLL_COST_COST_INTERNAL_H_
#define ATOLL_COST_COST_INTERNAL_H_

#include "cost/cost.h"

// Element types by XLA's names ("BF16", "bf16", "S8") or ours ("i8").
// AT_INVALID: unknown.
at_dtype at_cost_dtype_parse(at_str name);
const char *at_cost_dtype_xla(at_dtype t);  // "BF16"

// Rates are whole numbers up to this: what is written is read back the same.
#define AT_PERF_MAX_VALUE ((int64_t)1 << 62)
// Tables that are being read: the arena owns everything.
typedef AT_VEC(at_perf_table) at_perf_tables;
typedef AT_VEC(at_perf_series) at_perf_list;
typedef AT_VEC(at_point) at_point_list;
typedef AT_VEC(at_perf_cycles) at_cycles_list;

// Do two series measure the same: types of a product, or a collective of the
// same devices?
static inline bool at_perf_same_key(const at_perf_series *a,
                                    const at_perf_series *b) {
  if (a->is_gemm != b->is_gemm) return false;
  if (a->is_gemm)
    return a->lhs == b->lhs && a->rhs == b->rhs && a->out == b->out;
  if (a->key.op != b->key.op || a->key.dtype != b->key.dtype) return false;
  if (a->key.op != AT_PERMUTE)
    return at_groups_eq(&a->key.groups, &b->key.groups);
  return a->key.num_pairs == b->key.num_pairs &&
         (!a->key.num_pairs ||
          memcmp(a->key.pairs, b->key.pairs,
                 a->key.num_pairs * sizeof *a->key.pairs) == 0);
}
// Bytes that a collective moves, given the elements of its XLA result shape;
// -1: over INT64_MAX.
static inline int64_t at_perf_bytes_of_elements(const at_collective *key,
                                                int64_t elements) {
  int64_t per = at_dtype_bytes(key->dtype), b;
  if (key->op == AT_REDUCE_SCATTER) per *= key->groups.size;
  return __builtin_mul_overflow(elements, per, &b) ? -1 : b;
}

// ---- Smoothed curves of time over size
// A measured series as a function of bytes: never falling, close to the points,
// and continued past the last one. Sizes ascending, rates > 0.
typedef struct at_curve {
  size_t count;
  const double *size;                         // bytes
  const double *log_size, *log_time, *slope;  // of log time over log size
  double deficit;  // 1 - slope just past the last point, per doubling; falls by
                   // 0.7
  double room;     // doublings by which others of the same groups are faster
                   // there, byte for byte on their links
} at_curve;
// `mine` (sorted, of one dimension) with the noise taken off that its siblings,
// the same collective over other numbers of devices, do not share.
at_status at_curve_with_siblings(const at_points *mine,
                                 const at_points *const *siblings, size_t num,
                                 at_arena *a, at_point **out);
// Points sorted, of one dimension; those without a rate are left out. The curve
// lives in `a`.
at_status at_curve_make(const at_point *points, size_t count, at_arena *a,
                        at_curve *out);
// 0 for no bytes or an empty curve. Never falls as bytes grow.
double at_curve_seconds(const at_curve *c, double bytes);

// ---- Parts of at_cost_collective
// INVALID_ARGUMENT: a device that the target does not have;
// FAILED_PRECONDITION: the description lacks a figure of its links.
at_status at_torus_collective(const at_target *t, const at_collective *c,
                              double *seconds);
// A COPY with a memory_space; free where nothing moves.
at_status at_host_copy_node(const at_target *t, const at_node *n,
                            at_cost_time *out);
// From tables inside a fast domain, from the S-curve between domains;
// out->source says which.
at_status at_gpu_collective(const at_target *t, const at_collective *c,
                            at_cost_time *out);

#endif

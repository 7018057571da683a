// What the files of this room share. Not for other rooms.
//
// A shape rule (one per op, infer*.c) reads a node whose operands, attributes
// and regions are set, refuses what does not fit with AT_BAD, and ends in
// at_infer_set. It runs twice: in at_build, where it may give the node its
// result types, and in at_verify, on a copy, where it only compares.
//
// Errors: INVALID_ARGUMENT for graphs that break a rule, RESOURCE_EXHAUSTED
// when the arena refuses. Memory: what a rule makes lives in the module's
// arena; types that it passes on may be on its stack, at_infer_set copies them.
// Threads: those of the module.
#ifndef ATOLL_HLO_HLO_INTERNAL_H_
#define ATOLL_HLO_HLO_INTERNAL_H_

#include "hlo/hlo.h"

// INVALID_ARGUMENT that starts with the op and its source line and ends with
// the operand types: "add at f.py:3: <text>\ndetail: operands (f32[2],
// f32[3])".
__attribute__((format(printf, 4, 5))) at_status at_node_fail(
    const at_node *n, const char *file, int line, const char *fmt, ...);
// The error of a node that breaks a rule.
#define AT_BAD(n, ...) at_node_fail((n), __FILE__, __LINE__, __VA_ARGS__)

// Same dtype and rank, and dims that agree where both are known.
bool at_type_compatible(const at_type *a, const at_type *b);
// Text of a type in a caller's buffer, for messages; cut when too long.
typedef struct at_type_text {
  char z[128];
} at_type_text;
// "f32[2,3]", cut at 127 bytes.
at_type_text at_type_z(const at_type *t);
// "[2,3]", likewise.
at_type_text at_dims_z(at_dims d);

// Ends a shape rule: sets the result types, or checks those that were given.
at_status at_infer_set(at_module *m, at_node *n, const at_type *types,
                       uint32_t count);
// Deep copies into an arena.
// Dims, bounds and the quantised text, too. RESOURCE_EXHAUSTED when `a`
// refuses.
at_status at_type_copy(at_arena *a, const at_type *t, at_type *out);
// All but literals, which are shared.
at_status at_attr_copy(at_arena *a, const at_attr *in, at_attr *out);
// Checks operand count, regions, attribute ids and kinds.
at_status at_node_check(const at_node *n);
// Whether a node of that op may carry the attribute.
bool at_op_has_attr(at_op op, at_attr_id id);

// ---- Attribute helpers of shape rules and of the evaluator
// The list `id` with `count` entries; when absent, `count` times `absent` (from
// the arena). INVALID_ARGUMENT when the length differs.
at_status at_ints_or(at_arena *a, const at_node *n, at_attr_id id,
                     uint32_t count, int64_t absent, const int64_t **out);
// `d` must name distinct dimensions of a value of that rank, `id` is for the
// text.
at_status at_dims_check(const at_node *n, at_attr_id id, at_dims d,
                        uint32_t rank, bool sorted);
// Windows of size `window` (dilated) over `n` (dilated, padded) elements; 0
// when none fits; AT_DYN when n is.
int64_t at_window_count(int64_t n, int64_t base_dilation, int64_t low,
                        int64_t high, int64_t window, int64_t window_dilation,
                        int64_t stride);
// Result dims of a gather whose slice sizes are `sizes`: `rank` of them.
void at_gather_dims(const at_node *n, const at_type *indices,
                    const int64_t *sizes, uint32_t rank, int64_t *dims);
// Every attribute of a convolution, checked, defaults filled in.
typedef struct at_conv_dims {
  uint32_t spatial;
  const int64_t *strides, *padding, *lhs_dilation, *rhs_dilation, *reversal;
  int64_t input_batch, input_feature, kernel_input, kernel_output, output_batch,
      output_feature;
  at_dims input_spatial, kernel_spatial, output_spatial;
  // At most one of them is above 1.
  int64_t feature_groups, batch_groups;
} at_conv_dims;
// Reads and checks them; lists are borrowed from the node or made in `a`.
// padding stays NULL where it is an operand (dynamic_conv).
at_status at_conv_dims_read(at_arena *a, const at_node *n, at_conv_dims *out);

// One shape rule per name in ops.def: n's operands, attributes and regions are
// set and checked (at_node_check). It ends in at_infer_set. Memory it needs
// comes from m's arena, which at_verify replaces by its own.
#define AT_HLO_OP(Id, text, lo, hi, regions, traits, rule, ...) \
  at_status at_infer_##rule(at_module *m, at_node *n);
#include "hlo/ops.def"
#undef AT_HLO_OP

#endif

// What the files of this room share. Not for other rooms.
#ifndef ATOLL_HLO_HLO_INTERNAL_H_
#define ATOLL_HLO_HLO_INTERNAL_H_

#include "hlo/hlo.h"

// INVALID_ARGUMENT that starts with the op and its source line and ends with the
// operand types: "add at f.py:3: <text>\ndetail: operands (f32[2], f32[3])".
__attribute__((format(printf, 4, 5))) at_status at_node_fail(const at_node *n,
                                                             const char *file,
                                                             int line,
                                                             const char *fmt,
                                                             ...);
#define AT_BAD(n, ...) at_node_fail((n), __FILE__, __LINE__, __VA_ARGS__)

// Same dtype and rank, and dims that agree where both are known.
bool at_type_compatible(const at_type *a, const at_type *b);
// Text of a type in a caller's buffer, for messages; cut when too long.
typedef struct at_type_text {
  char z[128];
} at_type_text;
at_type_text at_type_z(const at_type *t);
at_type_text at_dims_z(at_dims d);

// Ends a shape rule: sets the result types, or checks those that were given.
at_status at_infer_set(at_module *m, at_node *n, const at_type *types,
                       uint32_t count);
// Deep copies into an arena.
at_status at_type_copy(at_arena *a, const at_type *t, at_type *out);
at_status at_attr_copy(at_arena *a, const at_attr *in, at_attr *out);
// Checks operand count, regions, attribute ids and kinds.
at_status at_node_check(const at_node *n);
bool at_op_has_attr(at_op op, at_attr_id id);

#define AT_HLO_OP(Id, text, lo, hi, regions, traits, rule, ...) \
  at_status at_infer_##rule(at_module *m, at_node *n);
#include "hlo/ops.def"
#undef AT_HLO_OP

#endif

// What the files of this room share: the building context and the steps of
// reading a kernel.
#ifndef ATOLL_MOSAIC_MOSAIC_INTERNAL_H_
#define ATOLL_MOSAIC_MOSAIC_INTERNAL_H_

#include "mosaic/tree.h"

// ---- Attributes
// Replaces or adds an attribute, or removes it (value NULL).
at_status at_mosaic_attr_set(at_arena *a, at_mop *op, const char *name,
                             const at_mattr *value);
// Attributes in `a`, as the reader makes them. RESOURCE_EXHAUSTED alone.
at_status at_mosaic_attr_new_i32s(at_arena *a, const int32_t *v, uint32_t n,
                                  const at_mattr **out);
// New attributes in `a`, for operations that an upgrade rewrites.
at_status at_mosaic_attr_new_bool(at_arena *a, bool v, const at_mattr **out);
at_status at_mosaic_attr_new_i32(at_arena *a, int32_t v, const at_mattr **out);

// ---- Steps of at_mosaic_read, in order
// Names lose their prefix, tags are set, old forms become new ones.
// Gives what the module holds the locations that came beside it, if any did.
at_status at_mosaic_put_locations(at_mosaic_kernel *k);
// Brings a tree of any supported version to AT_MOSAIC_VERSION. UNIMPLEMENTED:
// an operation or version that is not known.
at_status at_mosaic_upgrade(at_mosaic_kernel *k);
// An operation without a tag, or one that has another form here, under the name
// and with the tag of that form; others stay as they are.
at_status at_mosaic_rename(at_mosaic_kernel *k, at_mop *op);
// Floats that are widened and narrowed back are not.
void at_mosaic_fold(at_mosaic_kernel *k);
// Loads that only stand before a store to the same place, and what nobody reads
// of them.
at_status at_mosaic_drop_dead_loads(at_mosaic_kernel *k);
// affine.c: the map of a window of `func` as a function of the grid ids.
at_status at_mosaic_map_function(const at_mosaic_kernel *k, const at_mop *func,
                                 const at_mattr *map, at_mop **out);
// Placeholders of symbolic sizes that the call tells get their values; then the
// kernel is not symbolic any more.
at_status at_mosaic_fill_sizes(at_mosaic_kernel *k);
// Holds every operation to its row of ops.def and its type rule:
// INVALID_ARGUMENT with the place. Later steps rely on what it has checked.
at_status at_mosaic_verify(const at_mosaic_kernel *k);
// Fills in the kernel's programs: what each argument is, the grid, the windows.
at_status at_mosaic_describe(at_mosaic_kernel *k);
// `body`, if not NULL, receives the decoded payload.
at_status at_mosaic_config_read(at_str json, at_arena *a,
                                struct at_mosaic_config *out, at_bytes *body);

// The program or function that `op` stands in; NULL: none.
const at_mop *at_mosaic_function_of(const at_mop *op);
// The core that runs a function; ANY: it does not say.
at_mosaic_core at_mosaic_core_of(const at_mop *func);

// The function that a call names; NULL: there is none.
at_mblock *at_mosaic_callee(const at_mosaic_kernel *k, const at_mop *op);
// Elements that a program's operations make in a call of the kernel; infinite
// where a loop or the grid has bounds that nobody knows.
double at_mosaic_work_of(const at_mosaic_program *p);
// Operations in a block and inside them; one that takes much code is several.
uint32_t at_mosaic_effort_of(const at_mblock *b);
// What an allocation of this type takes. false: nobody knows its size.
bool at_mosaic_alloca_bytes(const at_mosaic_ref *t, int64_t *out);

// ---- Verifier
typedef struct at_mosaic_verifier {
  const at_mosaic_kernel *k;
  at_arena *scratch;
  at_map seen;  // values defined so far
} at_mosaic_verifier;
// One type rule: a row of ops.def names it. The kinds of operands, results and
// attributes are known to be right when it runs.
typedef at_status (*at_mosaic_rule)(at_mosaic_verifier *v, const at_mop *op);
// The rule of an operation's row; one that accepts everything where the row
// names none.
at_mosaic_rule at_mosaic_rule_of(at_mosaic_opcode op);

#endif

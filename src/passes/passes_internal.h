// What the passes share: forwarding of replaced values, dead code, ordering,
// structural equality, and short builders.
#ifndef ATOLL_PASSES_PASSES_INTERNAL_H_
#define ATOLL_PASSES_PASSES_INTERNAL_H_

#include "passes/passes.h"

// ---- Sweeps
// A sweep visits nodes in order. A rule that replaces results of a node records
// the new values with at_fwd_set; later nodes read their operands through
// at_fwd_operands, so that a whole sweep costs one walk. The replaced nodes
// stay in the list, without uses, until at_dce. Between passes aux is NULL on
// every node: who sets it ends with at_dce.
typedef struct at_rw {
  at_module *m;
  const at_pass_options *o;
  bool changed;
} at_rw;

void at_aux_clear(at_module *m);  // aux = NULL, mark = 0 on every node
at_value at_fwd(at_value v);
at_status at_fwd_set(at_rw *r, at_node *n, uint32_t result, at_value v);
bool at_fwd_has(const at_node *n);  // some result was replaced
void at_fwd_operands(at_node *n);
void at_fwd_results(at_comp *c);

// ---- Facts
bool at_has_effect(const at_module *m, const at_node *n);
// Same result for the same operands, no effect, no barrier: may be shared,
// moved.
bool at_is_pure(const at_module *m, const at_node *n);
bool at_is_control(at_op op);  // WHILE, IF, CASE: regions that may capture
uint64_t at_node_hash(const at_node *n);  // without operands
bool at_attr_same(const at_attr *a, const at_attr *b);
bool at_node_same(const at_module *m, const at_node *a, const at_node *b);
bool at_comp_same(const at_module *m, const at_comp *a, const at_comp *b);
// Collectives of one kind that say the same, but for operands and the number of
// the channel.
bool at_collective_alike(const at_module *m, const at_node *a,
                         const at_node *b);
// The op of a region that is one binary op on its two parameters; else
// OP_COUNT.
at_op at_region_binary(const at_comp *c);

// Removes nodes whose results nobody uses and that have no effect. Leaves aux =
// NULL and mark = 0 on the others; returns their number.
size_t at_dce(at_module *m);
// The same, and leaves mark = number of uses of all results.
void at_dce_count_uses(at_module *m);
// Stable topological order of a computation's own nodes; effects keep theirs.
at_status at_comp_sort(at_comp *c, at_arena *a);
// Moves the nodes of `from` (parameters excluded) before `before`, with
// parameters replaced by `args`; `out` receives the values that `from` returns.
void at_comp_splice(at_comp *from, const at_value *args, at_node *before,
                    at_value *out);

// ---- Constants
const at_literal *at_const_of(at_value v);  // NULL: not a constant
// The one element that every element of v equals, through broadcasts and
// reshapes.
const void *at_splat_of(at_value v);
bool at_splat_float(at_value v, double *out);  // floats
bool at_splat_int(at_value v, int64_t *out);   // bool and integers
bool at_is_splat(at_value v, double x);  // ints and floats; -0 differs from 0

// Does op(init, x) equal x for every x (but for the sign of a zero under ADD)?
bool at_is_identity(at_op op, at_value init);

// ---- Building
// Each inserts before `at`, with at's location.
at_status at_mk(at_node *at, at_op op, const at_value *operands, uint32_t n,
                const at_attr *attrs, uint32_t num_attrs, const at_type *type,
                at_value *out);
at_status at_mk1(at_node *at, at_op op, at_value a, at_value *out);
at_status at_mk2(at_node *at, at_op op, at_value a, at_value b, at_value *out);
at_status at_mk_convert(at_node *at, at_value a, at_dtype t, at_value *out);
at_status at_mk_reshape(at_node *at, at_value a, at_dims dims, at_value *out);
at_status at_mk_transpose(at_node *at, at_value a, const int64_t *perm,
                          at_value *out);
at_status at_mk_broadcast(at_node *at, at_value a, at_dims dims,
                          const int64_t *where, at_value *out);
at_status at_mk_slice(at_node *at, at_value a, const int64_t *start,
                      const int64_t *limit, const int64_t *stride,
                      at_value *out);
at_status at_mk_splat(at_node *at, at_type t, const void *element,
                      at_value *out);
at_status at_mk_splat_int(at_node *at, at_type t, int64_t x, at_value *out);
at_status at_mk_splat_float(at_node *at, at_type t, double x, at_value *out);
at_status at_mk_constant(at_node *at, at_dtype t, at_dims dims,
                         const void *data, at_value *out);
// The slices of x along `dim` at `size` constant places; `dim` stays where it
// is.
at_status at_mk_take(at_node *at, at_value x, int64_t dim, at_dims size,
                     const int32_t *places, at_value *out);
// x, of f32, times a weight for each place along `dim`.
at_status at_mk_weighted(at_node *at, at_value x, int64_t dim, at_dims size,
                         const float *weight, at_value *out);
at_status at_mk_compare(at_node *at, at_direction d, at_value a, at_value b,
                        at_value *out);
// A region (a, b) -> op(a, b) of scalars.
at_status at_mk_binary_region(at_module *m, at_op op, at_dtype t,
                              const at_loc *loc, at_comp **out);
at_status at_mk_reduce(at_node *at, at_op op, at_value x, at_value init,
                       at_dims dims, at_value *out);

// A body of scalars on whole arrays of shape `dims`, one for each parameter.
// out->node stays NULL when the body has ops that are not elementwise.
at_status at_mk_mapped(at_node *at, const at_comp *body, const at_value *args,
                       at_dims dims, at_value *out);

at_attr at_attr_int(at_attr_id id, int64_t i);
at_attr at_attr_ints(at_attr_id id, const int64_t *p, uint32_t n);

// "op: message" with the node's text and place. UNIMPLEMENTED and the like.
__attribute__((format(printf, 3, 4))) at_status at_fail_at(at_code code,
                                                           const at_node *n,
                                                           const char *fmt,
                                                           ...);

// ---- Pieces of passes that live in files of their own
at_status at_simplify_algebra(at_rw *r, at_node *n);  // elementwise ops
at_status at_simplify_shape(at_rw *r, at_node *n);    // data movement
at_status at_simplify_indexed(at_rw *r, at_node *n);  // gather, slices, scatter
at_status at_simplify_dot(at_rw *r, at_node *n);  // contractions, reductions
at_status at_simplify_control(at_rw *r, at_node *n);   // while, if, case
at_status at_simplify_hoist(at_rw *r, at_node *loop);  // loop-invariant code
// num_nodes: of the module, at most about.
at_status at_cse(at_rw *r, size_t num_nodes);
// Folds n if its operands are constants and it is cheap enough; *out: it was.
at_status at_fold_node(at_rw *r, at_node *n, int64_t *budget, bool *out);
// Whether at_pass_refine has anything to do.
bool at_needs_refining(const at_module *m);
at_status at_expand_top_k(at_rw *r, at_node *n);  // custom calls
at_status at_expand_resize(at_rw *r, at_node *n);
at_status at_expand_sparse(at_rw *r, at_node *n);
// A product with a matrix of few nonzeros that the program makes of nothing
// becomes a sum of what these meet. Leaves other products alone.
at_status at_products_banded(at_rw *r, at_node *n);

#endif

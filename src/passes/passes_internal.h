// What the passes share: forwarding of replaced values, dead code, ordering,
// structural equality, and short builders.
//
// Errors: builders return at_build's, which mean a bug of the caller or a full
// arena.
// Memory: the module's arena.
// Threads: the one that runs the pass.
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
  bool changed;  // some value was forwarded, or a rule says so itself
} at_rw;

// aux = NULL, mark = 0 on every node of every function: for passes that do not
// begin with an at_dce.
void at_aux_clear(at_module *m);
// The value that stands for v now, through chains of replacements (which it
// shortens); v itself where it was not replaced.
at_value at_fwd(at_value v);
// From now on `v` stands for that result of n. Sets n->aux and r->changed; n
// itself stays in the list. RESOURCE_EXHAUSTED; INTERNAL: it would stand for
// itself.
at_status at_fwd_set(at_rw *r, at_node *n, uint32_t result, at_value v);
// Takes n out of the list at once; nobody may use a result that was not
// replaced. RESOURCE_EXHAUSTED.
at_status at_fwd_remove(at_rw *r, at_node *n);
// Was some result of n replaced, or n removed, in this sweep?
bool at_fwd_has(const at_node *n);
// Replaces n's own operands by what stands for them. What regions capture is
// forwarded when their nodes are visited.
void at_fwd_operands(at_node *n);
// The same for what a computation returns: after its last node.
void at_fwd_results(at_comp *c);
// Calls `fn` for every node, also of regions; it may forward n's results to
// nodes that it makes before n, which then stand for n where FLOPs are counted.
// Removes what nobody uses afterwards. Clears the nodes' `aux`. Errors: fn's.
at_status at_rw_each(at_module *m, const at_pass_options *o,
                     at_status (*fn)(at_rw *r, at_node *n));

// ---- Facts
// Does n, or anything in its regions or in what it calls, have an effect:
// something to happen even if nobody uses its results? Noted in n->effect, so
// asking again costs nothing.
bool at_has_effect(const at_module *m, const at_node *n);
// Same result for the same operands, no effect, no barrier: may be shared,
// moved.
bool at_is_pure(const at_module *m, const at_node *n);
// WHILE, IF, CASE: ops whose regions may capture values around them.
bool at_is_control(at_op op);
// Of op, types, attributes and what its regions hold, not of operands: equal
// for nodes that at_node_same calls the same.
uint64_t at_node_hash(const at_node *n);
// Equal id and value; floats and literals bit for bit, so NaN equals itself.
bool at_attr_same(const at_attr *a, const at_attr *b);
// Same op, attributes, result types and operands (the same values), regions
// alike.
bool at_node_same(const at_module *m, const at_node *a, const at_node *b);
// Alike but for names and ids: the same graph over the same values from
// outside. Uses memory of the module's arena; false also when that refuses.
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
// The literal of a CONSTANT, borrowed; NULL: v is none.
const at_literal *at_const_of(at_value v);
// The one element that every element of v equals, through broadcasts and
// reshapes.
// In storage form, borrowed from the constant; NULL: they are not known to be
// equal.
const void *at_splat_of(at_value v);
// That element of a float as a double. False, *out untouched: not a splat, or
// of another type.
bool at_splat_float(at_value v, double *out);
// The same of booleans and integers, as at_load_int reads them.
bool at_splat_int(at_value v, int64_t *out);
// Do all elements equal x? Integers and floats; -0 differs from 0.
bool at_is_splat(at_value v, double x);

// Does op(init, x) equal x for every x (but for the sign of a zero under ADD)?
bool at_is_identity(at_op op, at_value init);

// ---- Building
// Each inserts before `at`, with at's location.
at_status at_mk(at_node *at, at_op op, const at_value *operands, uint32_t n,
                const at_attr *attrs, uint32_t num_attrs, const at_type *type,
                at_value *out);
// An op of one operand without attributes; its type is inferred.
at_status at_mk1(at_node *at, at_op op, at_value a, at_value *out);
// The same of two operands.
at_status at_mk2(at_node *at, at_op op, at_value a, at_value b, at_value *out);
// Or `a` itself where it has that element type.
at_status at_mk_convert(at_node *at, at_value a, at_dtype t, at_value *out);
// Or `a` itself where it has those dimensions. Static, as many elements.
at_status at_mk_reshape(at_node *at, at_value a, at_dims dims, at_value *out);
// perm[rank of a]: result dimension i is a's perm[i]. `a` itself where it is
// the identity.
at_status at_mk_transpose(at_node *at, at_value a, const int64_t *perm,
                          at_value *out);
// where[rank of a]: the dimension of the result that a's dimension i becomes,
// as in BROADCAST_IN_DIM; `a` itself where that is the identity.
at_status at_mk_broadcast(at_node *at, at_value a, at_dims dims,
                          const int64_t *where, at_value *out);
// start, limit, stride: [rank of a], in elements, limit exclusive; `a` itself
// where that is all of it.
at_status at_mk_slice(at_node *at, at_value a, const int64_t *start,
                      const int64_t *limit, const int64_t *stride,
                      at_value *out);
// A constant whose every element is the one at `element` (storage form,
// copied).
at_status at_mk_splat(at_node *at, at_type t, const void *element,
                      at_value *out);
// The same of a number in t's element type: wraps for integers, rounds for
// floats, no imaginary part.
at_status at_mk_splat_int(at_node *at, at_type t, int64_t x, at_value *out);
// The same, rounded once to t's element type; floats and complex numbers only.
at_status at_mk_splat_float(at_node *at, at_type t, double x, at_value *out);
// A constant array of dense elements in storage form, row-major, all of which
// are copied.
at_status at_mk_constant(at_node *at, at_dtype t, at_dims dims,
                         const void *data, at_value *out);
// The slices of x along `dim` at `size` constant places; `dim` stays where it
// is.
at_status at_mk_take(at_node *at, at_value x, int64_t dim, at_dims size,
                     const int32_t *places, at_value *out);
// x, of f32, times a weight for each place along `dim`.
at_status at_mk_weighted(at_node *at, at_value x, int64_t dim, at_dims size,
                         const float *weight, at_value *out);
// Booleans; floats compare as IEEE has it (NaN is unequal to everything),
// integers by their sign.
at_status at_mk_compare(at_node *at, at_direction d, at_value a, at_value b,
                        at_value *out);
// A region (a, b) -> op(a, b) of scalars.
at_status at_mk_binary_region(at_module *m, at_op op, at_dtype t,
                              const at_loc *loc, at_comp **out);
// A REDUCE of x along `dims` by `op`, starting from the scalar `init`, both of
// x's element type.
at_status at_mk_reduce(at_node *at, at_op op, at_value x, at_value init,
                       at_dims dims, at_value *out);

// A body of scalars on whole arrays of shape `dims`, one for each parameter.
// out->node stays NULL when the body has ops that are not elementwise.
at_status at_mk_mapped(at_node *at, const at_comp *body, const at_value *args,
                       at_dims dims, at_value *out);
// What was made before n, from node number `first` on, stands for it where
// FLOPs are counted (at_node.origin).
void at_mk_stand_for(const at_node *n, uint32_t first);

// An attribute for at_mk: INT, BOOL or ENUM.
at_attr at_attr_int(at_attr_id id, int64_t i);
// An attribute of a list; borrows p until at_mk has copied it.
at_attr at_attr_ints(at_attr_id id, const int64_t *p, uint32_t n);

// "op: message" with the node's text and place. UNIMPLEMENTED and the like.
__attribute__((format(printf, 3, 4))) at_status at_fail_at(at_code code,
                                                           const at_node *n,
                                                           const char *fmt,
                                                           ...);

// ---- Pieces of passes that live in files of their own
// A rule of at_pass_simplify. Each looks at n, whose operands are forwarded and
// static, builds what replaces it before n and forwards n's results or removes
// n (at_fwd_remove), or leaves it where it is. They read `mark` as the number
// of uses.
typedef struct at_law {
  const char *text;  // what the rule says, its name in tests
  at_op op;          // of the nodes it is for; OP_COUNT: all elementwise ones
  at_status (*apply)(at_rw *r, at_node *n);
} at_law;
typedef struct at_laws {
  const at_law *rows;
  size_t num;
} at_laws;
// Is the law for nodes of that op?
bool at_law_is_for(const at_law *law, at_op op);
// Tries those that are for n, in order, until one forwards it.
at_status at_laws_apply(const at_laws *laws, at_rw *r, at_node *n);

// Identities of elementwise ops.
extern const at_laws at_laws_algebra;
// Reshapes, transposes, broadcasts, slices, concatenations, pads.
extern const at_laws at_laws_shape;
// Gathers, scatters and dynamic slices.
extern const at_laws at_laws_indexed;
// Contractions and reductions.
extern const at_laws at_laws_dot;
// WHILE, IF and CASE.
extern const at_laws at_laws_control;
// Moves loop-invariant nodes of a WHILE's body before the loop, which stays.
at_status at_simplify_hoist(at_rw *r, at_node *loop);
// Forwards nodes to equal ones before them, in all functions. num_nodes: of the
// module, at most about; it sizes the table.
at_status at_cse(at_rw *r, size_t num_nodes);
// Folds n if its operands are constants and it is cheap enough; *out: it was.
// Takes the element operations off *budget.
at_status at_fold_node(at_rw *r, at_node *n, int64_t *budget, bool *out);
// Whether at_pass_refine has anything to do.
bool at_needs_refining(const at_module *m);
// Custom calls TopK, ApproxTopK and PartialReduce as TOP_K; others are left
// alone. INVALID_ARGUMENT: result types that the operands do not give.
at_status at_expand_top_k(at_rw *r, at_node *n);
// Custom calls of image resizing (ResizeBilinear, ResizeNearest and their
// gradients) as products with the weights; others are left alone.
// INVALID_ARGUMENT: the call's types do not fit.
at_status at_expand_resize(at_rw *r, at_node *n);
// n calls f. If f is JAX's program of eigenvectors of a whole symmetric matrix,
// one custom call "Eigh" takes n's place and *done is set. The values come
// sorted, which the program leaves to its caller. Linear in what f calls.
at_status at_eigen_call(at_rw *r, at_node *n, const at_comp *f, bool *done);
// SparseCore calls: drops the zeros that a lookup begins with (the engine
// writes them), and replaces stacking of activations and gradients by reshapes
// and concatenations. Other nodes are left alone.
at_status at_expand_sparse(at_rw *r, at_node *n);
// Does `user` read the transpose's elements so often that it is worth a step
// and an array of its own?
bool at_transpose_pays(const at_node *transpose, const at_node *user);
// A product with a matrix of few nonzeros that the program makes of nothing
// becomes a sum of what these meet. Leaves other products alone.
at_status at_products_banded(at_rw *r, at_node *n);

#endif

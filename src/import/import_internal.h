// What the files of this room share. Not for other rooms.
//
// Errors: INVALID_ARGUMENT and UNIMPLEMENTED through AT_OP_FAIL, with op and
// source line; RESOURCE_EXHAUSTED when the arena refuses.
// Memory: everything is x->a's; names may be borrowed from the tree where both
// share an arena (at_imp_keep).
// Threads: the one that imports.
// How an op is imported: its row in vhlo_ops.def names a function
// AT_IMP_HOW(name). That function takes operands (at_imp_single,
// at_imp_operands), types (at_imp_result_types) and attributes (at_imp_attrs),
// builds nodes (at_imp_build and the short forms below) and hands their values
// to the op's results (at_imp_define_node, at_imp_define_results). An op
// without a node of its own only does the last step. All functions work at the
// end of x->scope's computation.
#ifndef ATOLL_IMPORT_IMPORT_INTERNAL_H_
#define ATOLL_IMPORT_IMPORT_INTERNAL_H_

#include "import/import.h"

typedef struct at_imp at_imp;
typedef struct at_imp_row at_imp_row;

// How a row becomes hlo: reads `op`, builds nodes, defines op's results.
typedef at_status (*at_imp_how)(at_imp *x, const at_mop *op,
                                const at_imp_row *row);

// One spelling of one op. dialects: which of the spellings it answers to.
struct at_imp_row {
  const char *text;  // without dialect and version: "add"
  uint32_t dialects;
  uint32_t version;           // of VHLO; 0: not a VHLO op
  const char *since, *until;  // VHLO versions, inclusive
  at_op op;                   // target of `plain`; what the doc names otherwise
  at_imp_how how;
  const char *how_text;
};
enum {
  AT_IMP_VHLO = 1,
  AT_IMP_STABLEHLO = 2,
  AT_IMP_CHLO = 4,
  AT_IMP_FUNC = 8,
  AT_IMP_SDY = 16,
  AT_IMP_BUILTIN = 32
};
// In the order of vhlo_ops.def; `name` of at_imp_row_find has dialect and
// version, as "vhlo.add_v1" or "stablehlo.add".
extern const at_imp_row at_imp_rows[];
extern const uint32_t at_imp_num_rows;
// NULL: no such op, or not in that version.
const at_imp_row *at_imp_row_find(const char *name);

// The hlo values of one MLIR value: one, or the leaves of a tuple or future.
typedef struct at_vals {
  at_value *v;
  uint32_t n;
} at_vals;
// Types of leaves, one after another.
typedef struct at_types {
  at_type *t;
  uint32_t n;
} at_types;

// The computation being built and those around it, for the scope of values.
typedef struct at_imp_scope {
  at_comp *comp;
  const struct at_imp_scope *up;
} at_imp_scope;

// A function of the program, whether or not anything calls it.
typedef struct at_imp_func {
  const at_mop *op;
  at_comp *comp;  // NULL: not referenced so far
  uint32_t index;
} at_imp_func;

// The state of one import; at_import makes it on its stack. Maps are keyed by
// pointers into the tree or by names, and all lie in `a`.
struct at_imp {
  // The program, the arena of all that is made, and what is made.
  const at_mmodule *src;
  at_arena *a;
  at_module *m;
  // What was read so far, so that nothing is read twice.
  at_map values;  // at_mvalue -> at_vals
  at_map rows;    // interned name -> at_imp_row
  at_map locs;    // at_mloc -> at_loc
  at_map funcs;   // symbol -> at_imp_func
  at_map leaves;  // tuple at_mtype -> count
  at_map meshes;  // symbol -> at_mattr (sdy.mesh)
  // Where the walk is. The scope ends at a function: its regions may use what
  // is around them, functions may not.
  const at_imp_scope *scope;
  at_imp_func *func;  // being imported
  const at_mop
      *original;  // of the copy that is being imported; NULL: it is none
  // Bounds against programs that would cost too much: nesting of regions, and
  // ops of called computations.
  uint32_t depth;
  uint64_t inlined;  // ops of functions taken as regions, over all uses
  // Functions whose bodies are still to be imported, and the call graph: pairs
  // of at_imp_func.index.
  AT_VEC(at_imp_func *) pending;
  // Two entries for each reference.
  AT_VEC(uint32_t) edges;  // caller, callee, caller, callee...
};

// An error about one op: '"stablehlo.add" at f.py:3:4: message'.
#ifndef __clang_analyzer__
#define AT_OP_FAIL(x, op, code, ...) \
  at_imp_fail((x), (op), (code), __FILE__, __LINE__, __VA_ARGS__)
#else  // see AT_FAIL
#define AT_OP_FAIL(x, op, code, ...) \
  ((void)(x), (void)(op), AT_FAIL((code), __VA_ARGS__))
#endif
__attribute__((format(printf, 6, 7))) at_status at_imp_fail(
    at_imp *x, const at_mop *op, at_code code, const char *file, int line,
    const char *fmt, ...);

// ---- import.c: values, regions, functions
// The values of operand i, shared with who defined them. INVALID_ARGUMENT: not
// defined, or out of scope.
at_status at_imp_operand(at_imp *x, const at_mop *op, uint32_t i, at_vals *out);
// The operands' leaves, one after another.
at_status at_imp_operands(at_imp *x, const at_mop *op, at_vals *out);
// Exactly one leaf.
at_status at_imp_single(at_imp *x, const at_mop *op, uint32_t i, at_value *out);
// Says what an MLIR value is in hlo; once for each. The list is kept, not
// copied.
at_status at_imp_define(at_imp *x, const at_mvalue *v, at_vals vals);
// Hands the values out to the op's results by their leaf counts; checks types.
at_status at_imp_define_results(at_imp *x, const at_mop *op, const at_value *v,
                                uint32_t n);
// The results of one node, in order.
at_status at_imp_define_node(at_imp *x, const at_mop *op, at_node *n);
// INVALID_ARGUMENT unless the op has so many operands and results.
at_status at_imp_need(at_imp *x, const at_mop *op, uint32_t operands,
                      uint32_t results);
// Region i as a region of hlo, with parameters for its arguments; its owner is
// set when the node is built.
at_status at_imp_region(at_imp *x, const at_mop *op, uint32_t i, at_comp **out);
// Ops of a block up to its terminator; the terminator's operands.
at_status at_imp_block(at_imp *x, const at_mop *op, const at_mblock *b,
                       at_vals *out);
// Imports one op by its row. UNIMPLEMENTED names an op or version that there is
// no row for.
at_status at_imp_op(at_imp *x, const at_mop *op);
// The body in place of the op: its arguments are the operands.
at_status at_imp_inline(at_imp *x, const at_mop *op);
// The function of that name; its computation is made, and its body is pending,
// on the first reference. INVALID_ARGUMENT: no such function, or recursion.
at_status at_imp_callee(at_imp *x, const at_mop *op, at_str name,
                        at_imp_func **out);
// The function's body as a region (a custom call's called computation).
at_status at_imp_func_region(at_imp *x, const at_mop *op, at_str name,
                             at_comp **out);

// ---- types.c
// The element type that an MLIR type is. UNIMPLEMENTED names others.
at_status at_imp_dtype(at_imp *x, const at_mop *op, const at_mtype *t,
                       at_dtype *out);
// A ranked tensor's; quantised element types keep their text. UNIMPLEMENTED: no
// ranked tensor.
at_status at_imp_type(at_imp *x, const at_mop *op, const at_mtype *t,
                      at_type *out);
// The most values that one place may have: operands of an op, arguments of a
// function. A bound against tuples that share their parts.
enum { AT_IMP_MAX_LEAVES = 1 << 16 };
// Is it the type of something under way (async_start's)?
bool at_imp_is_future(const at_mtype *t);
// Saturates at AT_IMP_MAX_LEAVES + 1.
uint32_t at_imp_leaves(at_imp *x, const at_mtype *t);
// Tuples and futures as their leaves, in order.
at_status at_imp_types_flatten(at_imp *x, const at_mop *op,
                               const at_mtype *const *types, uint32_t count,
                               at_types *out);
// The same of the op's declared results.
at_status at_imp_result_types(at_imp *x, const at_mop *op, at_types *out);
// A dense or resource attribute as a literal.
at_status at_imp_literal(at_imp *x, const at_mop *op, const at_mattr *v,
                         const at_literal **out);

// ---- attrs.c
// By VHLO's name: an attribute of the op, or a field of one of StableHLO's
// structs (dot_dimension_numbers, channel_handle...). NULL: absent.
const at_mattr *at_imp_attr(const at_mop *op, const char *name);
// The value of an INTEGER or BOOL; false: another kind, or over 64 bits.
bool at_mattr_int(const at_mattr *t, int64_t *out);
// An optional integer; INVALID_ARGUMENT: another kind.
at_status at_imp_int(at_imp *x, const at_mop *op, const char *name,
                     int64_t absent, int64_t *out);
// The integers of attribute t (name is for the message): DENSE, DENSE_ARRAY or
// ARRAY; INVALID_ARGUMENT: another kind.
at_status at_imp_ints(at_imp *x, const at_mop *op, const char *name,
                      const at_mattr *t, at_dims *out);
// A string or symbol; empty where absent.
at_status at_imp_str(at_imp *x, const at_mop *op, const char *name,
                     at_str *out);
// Every attribute that hlo's row of `hlo` lists, read from `op`.
typedef AT_VEC(at_attr) at_attr_vec;
at_status at_imp_attrs(at_imp *x, const at_mop *op, at_op hlo,
                       at_attr_vec *out);
// Replaces or adds.
at_status at_imp_attr_put(at_imp *x, at_attr_vec *v, at_attr a);
// mhlo.sharding, sdy.sharding, mhlo.frontend_attributes.
at_status at_imp_attrs_common(at_imp *x, const at_mop *op, at_attr_vec *out);
// The attribute as MLIR prints it, in the arena.
at_status at_imp_text(at_imp *x, const at_mattr *t, const char **out);
// The byte form of a dictionary (abi/attrdict.h).
at_status at_imp_dict(at_imp *x, const at_mop *op, const at_mattr *t,
                      at_str *out);

// ---- loc.c
// of: the operation or argument that has the location.
at_status at_imp_loc(at_imp *x, const at_mloc *l, const void *of,
                     const at_loc **out);

// ---- build.c: building with op's location, attributes, names
typedef struct at_imp_node {
  at_op op;
  // The operands' leaves; borrowed, at_build copies them.
  const at_value *operands;
  uint32_t num_operands;
  at_attr_vec attrs;
  // Regions are handed over: the node becomes their owner.
  at_comp **regions;
  uint32_t num_regions;
  const at_type *types;  // NULL: inferred
  uint32_t num_types;
  bool outer;  // the node that carries op's sharding and frontend attributes
} at_imp_node;
// Inserts the node at the end of the scope's computation, with the op's place.
// Fails as at_build, with the op's name and line in front.
at_status at_imp_build(at_imp *x, const at_mop *op, const at_imp_node *d,
                       at_node **out);
// One result, inferred type, no regions.
at_status at_imp_build_op(at_imp *x, const at_mop *op, at_op hlo,
                          const at_value *operands, uint32_t n, at_value *out);
// v with the dims of t, whose element type is v's.
at_status at_imp_reshape(at_imp *x, const at_mop *op, at_value v, at_type t,
                         at_value *out);
// map[rank of v]: dimensions of t, as BROADCAST_IN_DIM has them.
at_status at_imp_broadcast(at_imp *x, const at_mop *op, at_value v, at_dims map,
                           at_type t, at_value *out);
// Result dimension i is v's perm[i].
at_status at_imp_transpose(at_imp *x, const at_mop *op, at_value v,
                           at_dims perm, at_value *out);
// v itself where it has that element type.
at_status at_imp_convert(at_imp *x, const at_mop *op, at_value v, at_dtype t,
                         at_value *out);
// Builds a call or composite of the function that `callee_attr` names.
at_status at_imp_call(at_imp *x, const at_mop *op, at_imp_node *d,
                      const char *callee_attr);
// A scalar float or integer constant of the type.
at_status at_imp_scalar(at_imp *x, const at_mop *op, at_dtype t, double v,
                        at_value *out);
// A region {(a, b): a + b} over scalars of the type.
at_status at_imp_add_region(at_imp *x, const at_mop *op, at_dtype t,
                            at_comp **out);
// Sum over `dims`, starting from zero.
at_status at_imp_reduce_sum(at_imp *x, const at_mop *op, at_value v,
                            at_dims dims, at_value *out);
// The string itself where both modules share an arena, else a copy.
at_status at_imp_keep(at_imp *x, const char *z, const char **out);
// Copies n ints into the arena.
at_status at_imp_dims(at_imp *x, const int64_t *p, uint32_t n, at_dims *out);

// ---- How ops become hlo, by the names that vhlo_ops.def uses
#define AT_IMP_HOW(name)                                   \
  at_status at_imp_how_##name(at_imp *x, const at_mop *op, \
                              const at_imp_row *row)
// One node, operands and attributes one to one.
AT_IMP_HOW(plain);
// Refused: terminators and functions out of place.
AT_IMP_HOW(structure);
// A literal.
AT_IMP_HOW(constant);
// No nodes: tuples, futures and markers are their leaves.
AT_IMP_HOW(tuple);
AT_IMP_HOW(get_tuple_element);
// Ops that only matter to other tools: the operands, or nothing.
AT_IMP_HOW(identity);
AT_IMP_HOW(drop);
// A body in place of the op, and what it gave.
AT_IMP_HOW(async_start);
AT_IMP_HOW(async_done);
// Refused by name.
AT_IMP_HOW(unsupported);
// Calls of functions, and of code outside the program.
AT_IMP_HOW(call);
// A function that stands for an op: the op if hlo has it, else COMPOSITE.
AT_IMP_HOW(composite);
// What StableHLO has no word for.
AT_IMP_HOW(custom_call);
// Ops of old versions (legacy.c).
AT_IMP_HOW(broadcast);
// Products of any kind become DOT_GENERAL.
AT_IMP_HOW(dot);
AT_IMP_HOW(einsum);
AT_IMP_HOW(unary_einsum);
// A GATHER.
AT_IMP_HOW(torch_index_select);
// An ALL_REDUCE that adds.
AT_IMP_HOW(cross_replica_sum);
// Ops of chlo as a few ops each (chlo.c).
AT_IMP_HOW(chlo_broadcast);
AT_IMP_HOW(chlo_broadcast_select);
// Ops without implicit broadcasting.
AT_IMP_HOW(chlo_constant_like);
AT_IMP_HOW(chlo_conj);
AT_IMP_HOW(chlo_is_inf);
AT_IMP_HOW(chlo_is_pos_inf);
AT_IMP_HOW(chlo_is_neg_inf);
AT_IMP_HOW(chlo_square);
// Shardy's ops (sdy.c): markers for who partitions, or nothing over one device.
AT_IMP_HOW(sdy_sharding_constraint);
AT_IMP_HOW(sdy_reshard);
AT_IMP_HOW(sdy_sharding_group);
// Bodies that stay regions over several devices.
AT_IMP_HOW(sdy_manual_computation);
AT_IMP_HOW(sdy_named_computation);
// The function's type; INVALID_ARGUMENT where it has none.
at_status at_imp_func_type(at_imp *x, const at_mop *func, const at_mtype **out);
// entry.c: what JAX attached to the module, and to main's arguments and
// results.
// num_partitions, num_replicas and the text of Shardy's meshes.
at_status at_imp_module_info(at_imp *x, const at_mop *module);
// Donors, aliases, shardings, layouts, memory kinds and names, one record for
// each leaf.
at_status at_imp_entry_info(at_imp *x, const at_mop *func);
// sdy.mesh at module level.
at_status at_imp_mesh(at_imp *x, const at_mop *op);
// replica_groups as axes of a mesh (t); device_ids of the mesh are devices'
// numbers.
at_status at_imp_mesh_groups(at_imp *x, const at_mop *op, const at_mattr *t,
                             at_attr *out);

#endif

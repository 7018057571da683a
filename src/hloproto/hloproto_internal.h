// What the files of this room share. Not for other rooms.
//
// Errors: INVALID_ARGUMENT and UNIMPLEMENTED through AT_HP_FAIL, with
// instruction and source line; RESOURCE_EXHAUSTED when the arena refuses.
// Memory: everything is x->a's; texts and bytes are borrowed from the proto
// unless a line says copied.
// Threads: the one that reads.
// How an instruction is read: decode.c makes an at_hp_inst of each, its fields
// still bytes; body_fill (build.c) calls the function AT_HP_HOW(name) of its
// row in opcodes.def. That takes operands (at_hp_single, at_hp_operands) and
// attributes (at_hp_attrs_read), builds nodes (at_hp_build) at the end of
// x->scope's computation and gives the instruction its values (at_hp_define and
// its like).
#ifndef ATOLL_HLOPROTO_HLOPROTO_INTERNAL_H_
#define ATOLL_HLOPROTO_HLOPROTO_INTERNAL_H_

#include "base/protobuf.h"
#include "hloproto/hloproto.h"

typedef struct at_hp at_hp;
typedef struct at_hp_inst at_hp_inst;
typedef struct at_hp_row at_hp_row;

// How an opcode becomes hlo: builds nodes and defines the instruction's values.
typedef at_status (*at_hp_how)(at_hp *x, const at_hp_inst *i);

// One row of opcodes.def.
struct at_hp_row {
  const char *opcode;
  at_op op;  // COUNT: no op of its own
  at_hp_how how;
  // The name of `how`, for listings of the table.
  const char *how_text;
};
const at_hp_row *at_hp_row_find(at_str opcode);  // NULL: no such opcode

// ---- Shapes
// One array of a shape.
typedef struct at_hp_leaf {
  at_type type;
  at_dims layout;  // minor to major; rank entries
  int64_t memory_space;
} at_hp_leaf;
// An array, or a tuple as its leaves in order.
typedef struct at_hp_shape {
  at_hp_leaf *leaves;
  // 0 for an empty tuple.
  uint32_t num_leaves;
  // A tuple of one element is still a tuple.
  bool is_tuple;
  uint32_t *first;  // tuple: each element's first leaf; [num_elements]: the end
  uint32_t num_elements;
} at_hp_shape;
enum { AT_HP_MAX_LEAVES = 1 << 16, AT_HP_MAX_TUPLES = 64 };
// A ShapeProto; everything in `a`. INVALID_ARGUMENT: malformed, or more than
// AT_HP_MAX_LEAVES leaves; UNIMPLEMENTED names element types that Atoll lacks.
at_status at_hp_shape_read(at_arena *a, at_bytes b, at_hp_shape *out);
// The leaves that a path of tuple indices leads to.
// False: the path leads nowhere.
bool at_hp_shape_range(at_bytes shape, at_dims path, uint32_t *first,
                       uint32_t *count);
// Is it rank - 1, ..., 1, 0?
bool at_hp_is_row_major(at_dims layout);
enum { AT_HP_HOST_MEMORY = 5 };  // LayoutProto.memory_space

// One row of primitive_types.def: an element type of XLA, and how LiteralProto
// holds its elements (AT_HP_PACKED: varints; AT_HP_BYTES and AT_HP_FIXED:
// storage, little-endian, and of what has fewer than eight bits a byte each).
typedef struct at_hp_primitive {
  int32_t number;
  at_dtype dtype;
  const char *name;
  uint32_t field;  // of LiteralProto
  enum { AT_HP_PACKED, AT_HP_BYTES, AT_HP_FIXED } form;
} at_hp_primitive;
// By PrimitiveType's number, as shapes have it.
const at_hp_primitive *at_hp_primitive_find(uint64_t number);  // NULL: none
// The row of an element type; NULL: XLA has none.
const at_hp_primitive *at_hp_primitive_of(at_dtype t);

// ---- Instructions and computations, decoded as far as every reader needs
struct at_hp_inst {
  at_bytes body;
  at_str name, opcode;
  int64_t id;
  uint32_t index;  // in its computation
  // A call whose results become whole again in another instruction, as Shardy
  // writes manual computations: that one's index + 1.
  uint32_t exit;
  at_hp_shape shape;
  // operands: instructions of its computation; called: computations of the
  // module.
  at_dims operands, called;  // ids
  const at_hp_row *row;
};

// A computation of the module, decoded once; it may be built several times.
typedef struct at_hp_comp {
  at_bytes body;
  at_str name;
  int64_t id;
  uint32_t index;  // in the module: it calls only those before it
  at_hp_inst *insts;
  uint32_t num_insts;
  // Index of the instruction whose values the computation returns.
  uint32_t root;
  at_map by_id;      // of insts: index + 1
  uint32_t *params;  // by number: index of the instruction
  uint32_t num_params;
  at_comp *func;  // as a function; NULL: nobody has called it so far
} at_hp_comp;

// Values of an instruction: those of its leaves. Of a future
// (all-reduce-start): of what it waits for; of what is inside a manual
// computation: of the whole.
typedef struct at_hp_vals {
  at_value *v;
  uint32_t n;
  bool future;  // not of the declared types
} at_hp_vals;

// A computation as it is being built; one that is a region several times has
// values of its own each time.
typedef struct at_hp_scope {
  const at_hp_comp *comp;
  at_comp *into;
  at_hp_vals *values;  // by instruction; v NULL: none so far
} at_hp_scope;

// The state of one reading, on at_hloproto_read's stack. Its lists and maps lie
// in `a`.
struct at_hp {
  at_arena *a;
  // The module's message and its configuration; no bytes: there is none.
  at_bytes proto;  // HloModuleProto
  at_bytes config;
  at_module *m;
  // Computations in the order of the module, and by id.
  AT_VEC(at_hp_comp *) comps;
  at_map comp_by_id;
  at_hp_comp *entry;
  // Where the walk is.
  AT_VEC(at_hp_comp *) pending;  // functions to be filled
  at_hp_scope *scope;
  // Bounded, as regions are built within regions.
  uint32_t depth;    // of regions
  uint64_t inlined;  // instructions of regions, over all uses
  // The module's tables: stack frames, and configurations of custom calls.
  // By the frame's number; [num_frames].
  const at_loc **frames;
  uint32_t num_frames;
  AT_VEC(at_bytes) payloads;
  bool partitioned;     // XLA has done it: shardings speak of the whole
  int64_t num_devices;  // that shardings and groups speak of; 1: none do
};

// An error about one instruction: '"add" %x.3 at f.py:3:4: message'.
#define AT_HP_FAIL(x, i, code, ...) \
  at_hp_fail((x), (i), (code), __FILE__, __LINE__, __VA_ARGS__)
__attribute__((format(printf, 6, 7))) at_status at_hp_fail(
    at_hp *x, const at_hp_inst *i, at_code code, const char *file, int line,
    const char *fmt, ...);

// ---- decode.c
// Reads all computations and instructions of x->proto, as far as at_hp_inst has
// them, and finds the entry. INVALID_ARGUMENT: ids that are missing or there
// twice, calls of later computations.
at_status at_hp_module_decode(at_hp *x);
// Owned by x; NULL: no computation has the id.
const at_hp_comp *at_hp_comp_by_id(const at_hp *x, int64_t id);

// ---- loc.c
// The module's table of stack frames, for at_hp_loc.
at_status at_hp_frames_read(at_hp *x);
// The instruction's place in the source; *out NULL: it says none.
at_status at_hp_loc(at_hp *x, const at_hp_inst *i, const at_loc **out);

// ---- build.c: values, nodes, regions, functions
// Operand k of an instruction of c.
at_status at_hp_inst_by_id(at_hp *x, const at_hp_comp *c, const at_hp_inst *i,
                           uint32_t k, const at_hp_inst **out);
// The same of the computation that is being built.
at_status at_hp_operand_inst(at_hp *x, const at_hp_inst *i, uint32_t k,
                             const at_hp_inst **out);
// Its values: INVALID_ARGUMENT where it has none yet. The list is shared, not
// to be changed.
at_status at_hp_operand(at_hp *x, const at_hp_inst *i, uint32_t k,
                        at_hp_vals *out);
// Of operands from `from` on: the leaves, one after another.
at_status at_hp_operands(at_hp *x, const at_hp_inst *i, uint32_t from,
                         at_hp_vals *out);
// An operand that is one array; INVALID_ARGUMENT: a tuple.
at_status at_hp_single(at_hp *x, const at_hp_inst *i, uint32_t k,
                       at_value *out);
// INVALID_ARGUMENT unless the instruction has so many operands.
at_status at_hp_need(at_hp *x, const at_hp_inst *i, uint32_t operands);
// Checks number and types against the declared shape; v is copied.
at_status at_hp_define(at_hp *x, const at_hp_inst *i, const at_value *v,
                       uint32_t n);
// All results of the node, in order.
at_status at_hp_define_node(at_hp *x, const at_hp_inst *i, at_node *n);
// The values of a future are what its `done` will give.
at_status at_hp_define_future(at_hp *x, const at_hp_inst *i, const at_value *v,
                              uint32_t n);

// Attributes of a node that is about to be built; unsorted, one of each id.
typedef AT_VEC(at_attr) at_hp_attrs;
// Adds an attribute, or replaces the one of that id.
at_status at_hp_attr_put(at_hp *x, at_hp_attrs *v, at_attr a);
// Every attribute that hlo's row of `op` lists.
at_status at_hp_attrs_read(at_hp *x, const at_hp_inst *i, at_op op,
                           at_hp_attrs *out);
// Sharding and frontend attributes.
at_status at_hp_attrs_common(at_hp *x, const at_hp_inst *i, at_hp_attrs *out);
// The frontend attributes as an attribute of pairs.
at_status at_hp_text_list(at_hp *x, at_bytes frontend, at_attr *out);

// The node's types are the declared shape's unless `types` is given.
typedef struct at_hp_node {
  at_op op;
  const at_value *operands;
  uint32_t num_operands;
  at_hp_attrs attrs;
  at_comp **regions;
  uint32_t num_regions;
  const at_type *types;
  uint32_t num_types;
} at_hp_node;
// Inserts the node at the end of the computation that is being built, with the
// instruction's place and common attributes.
at_status at_hp_build(at_hp *x, const at_hp_inst *i, const at_hp_node *d,
                      at_node **out);
// One result of inferred or given type (NULL: inferred).
at_status at_hp_build_one(at_hp *x, const at_hp_inst *i, at_op op,
                          const at_value *operands, uint32_t n,
                          const at_attr *attrs, uint32_t num_attrs,
                          const at_type *t, at_value *out);
// The declared shape as types, one for each leaf.
at_status at_hp_types(at_hp *x, const at_hp_inst *i, at_type **out);

// The instruction's k-th called computation. INVALID_ARGUMENT: it has fewer.
at_status at_hp_callee(at_hp *x, const at_hp_inst *i, uint32_t k,
                       at_hp_comp **out);
// The computation as a region. args NULL: with parameters of its own; else its
// parameters are these values, as branches have it.
at_status at_hp_region(at_hp *x, const at_hp_inst *i, uint32_t k,
                       const at_hp_vals *args, at_comp **out);
// The function of a computation; its body is built later.
at_status at_hp_func(at_hp *x, at_hp_comp *c);
// Builds the bodies of functions until none is pending; bodies may ask for
// more.
at_status at_hp_funcs_fill(at_hp *x);
// A call of the instruction's first computation.
at_status at_hp_build_call(at_hp *x, const at_hp_inst *i, at_node **out);

// ---- literal.c
// A LiteralProto as a row-major literal.
at_status at_hp_literal(at_hp *x, const at_hp_inst *i, at_bytes b,
                        const at_literal **out);

// ---- sharding.c
// OpSharding of a value with so many leaves as text; NULL: says nothing.
// In x->a.
at_status at_hp_sharding_text(at_hp *x, at_bytes b, const char **out);
// The k-th leaf's, of a tuple's sharding.
// Borrowed from b: b itself where it is no tuple's; empty: the tuple has fewer.
at_bytes at_hp_sharding_leaf(at_bytes b, uint32_t k);
// ---- groups.c
// replica_groups in whichever of their three forms; *out is the attribute.
// INVALID_ARGUMENT: ids beyond AT_HP_MAX_DEVICES.
at_status at_hp_groups(at_hp *x, const at_hp_inst *i, at_attr *out);
// The numbers 0, 1, ... reshaped to `dims`, transposed by `perm`, in order.
// INVALID_ARGUMENT: perm is no permutation, or there are too many numbers.
at_status at_hp_iota(at_hp *x, at_dims dims, at_dims perm, at_dims *out);
// Devices that a program may have; INVALID_ARGUMENT above it.
enum { AT_HP_MAX_DEVICES = 1 << 16 };
// The product of dims, which must be in [0, AT_HP_MAX_DEVICES];
// INVALID_ARGUMENT names `what`.
at_status at_hp_product(at_dims dims, const char *what, int64_t *out);

// ---- entry.c: the entry's parameters and results, device counts
// Layouts, aliases, donors and shardings of the entry's parameters and results,
// into m->params and m->results.
at_status at_hp_entry_read(at_hp *x);
// Device counts of the configuration, if there is one, else of the device
// assignment; and the meshes that Shardy left in the module.
at_status at_hp_config_read(at_hp *x);

// ---- How opcodes become hlo, by the names that opcodes.def uses
#define AT_HP_HOW(name) \
  at_status at_hp_how_##name(at_hp *x, const at_hp_inst *i)
// One to one, and refusals.
AT_HP_HOW(plain);
AT_HP_HOW(refuse);
AT_HP_HOW(misplaced);
// Values that move without a computation.
AT_HP_HOW(constant);
AT_HP_HOW(bitcast);
AT_HP_HOW(first_operand);
AT_HP_HOW(all_operands);
AT_HP_HOW(get_tuple_element);
// Control flow, and opcodes whose forms differ from hlo's.
AT_HP_HOW(call);
AT_HP_HOW(while);
AT_HP_HOW(conditional);
AT_HP_HOW(map);
AT_HP_HOW(rng);
AT_HP_HOW(dot);
AT_HP_HOW(dynamic_slice);
AT_HP_HOW(dynamic_update_slice);
AT_HP_HOW(convolution);
// Collectives, and operations in two halves: the first half does the work and
// defines a future, the second hands its values out.
AT_HP_HOW(all_to_all);
AT_HP_HOW(each_operand);
AT_HP_HOW(start);
AT_HP_HOW(start_each);
AT_HP_HOW(done);
AT_HP_HOW(copy_start);
AT_HP_HOW(async_start);
AT_HP_HOW(async_update);
// Custom calls keep what XLA says beside them; Shardy's markers vanish.
AT_HP_HOW(custom_call);
// manual.c: a call between xla.sdy.GlobalToLocalShape and LocalToGlobalShape.
// Marks such calls of a computation (at_hp_inst.exit).
at_status at_hp_manual_find(at_hp *x, at_hp_comp *c);
// Builds a marked call as MANUAL_COMPUTATION.
at_status at_hp_manual_build(at_hp *x, const at_hp_inst *i);

#endif

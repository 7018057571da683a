// The program as a typed dataflow graph: what every pass, the cost model, the
// scheduler and the code generator work on.
//
// A module holds functions; a function is a computation; a computation is a
// list of nodes in topological order plus the values it returns. A node has
// operands (values), results (typed), attributes, and regions (computations). A
// region may use values of the computations around it (implicit capture), as
// StableHLO's `if` and `case` do. Tuples do not exist here: import flattens
// them into several results. Effects are ordered by tokens and by the order of
// EFFECT nodes.
//
// Everything lives in the module's arena and dies with it. Nothing is
// thread-safe.
//
// How a program is made and used:
//
//   at_module_create(arena, AT_STR("f"), &m);
//   at_comp_create(m, AT_STR("main"), NULL, &c);    a function
//   at_build_param(c, type, loc, &x);               its parameters, in order
//   at_build_op(c, NULL, AT_OP_ADD, (at_value[]){x, x}, 2, loc, &sum);
//   at_comp_return(c, &sum, 1);
//   m->entry = c;
//   at_verify(m, "my pass");                        in tests: after each pass
//
// A pass walks with AT_FOR_NODES, builds what it wants in front of a node
// (`before`), lets the uses of the old value name the new one
// (at_replace_uses) and removes what nobody uses. Each node is checked when it
// is built; what only the whole graph can break (order, scopes, signatures of
// regions) is at_verify's. at_eval says what a program computes.
//
// Errors: builders and services return INVALID_ARGUMENT, with the op, its
// source line and what was expected; UNIMPLEMENTED where an op has no form;
// RESOURCE_EXHAUSTED when the arena refuses. What was built up to an error
// stays in the graph, unused.
#ifndef ATOLL_HLO_HLO_H_
#define ATOLL_HLO_HLO_H_

#include "abi/dtype.h"
#include "base/arena.h"
#include "base/map.h"
#include "base/span.h"
#include "base/status.h"
#include "base/strbuf.h"

// ---- Ops
// One number per row of ops.def, in its order. The numbers are no format: text
// and files name ops.
typedef enum at_op {
#define AT_HLO_OP(Id, ...) AT_OP_##Id,
#include "hlo/ops.def"
#undef AT_HLO_OP
  AT_OP_COUNT
} at_op;

// One number per row of attrs.def; attributes of a node are sorted by it.
typedef enum at_attr_id {
  AT_ATTR_NONE,
#define AT_ATTR(Id, ...) AT_ATTR_##Id,
#include "hlo/attrs.def"
#undef AT_ATTR
  AT_ATTR_COUNT
} at_attr_id;

// What the value of an attribute is: which member of at_attr's union holds it,
// and how the text form writes it.
typedef enum at_attr_kind {
  // i, any 64-bit number
  AT_KIND_INT,
  // i, 0 or 1
  AT_KIND_BOOL,
  // f
  AT_KIND_FLOAT,
  // s: text
  AT_KIND_STR,
  // ints
  AT_KIND_INTS,
  // i: a value of the enum that belongs to the attribute
  AT_KIND_ENUM,
  // literal; never NULL
  AT_KIND_LITERAL,
  // s: any bytes
  AT_KIND_BYTES,
  // type; never NULL
  AT_KIND_TYPE,
  // dict: pairs of texts
  AT_KIND_DICT,
  // groups: lists of device numbers, or of pairs of them
  AT_KIND_GROUPS
} at_attr_kind;

enum {
  // Traits of an op, as bits. Result element i depends on operand elements i
  // alone, or on scalars.
  AT_ELEMENTWISE = 1 << 0,
  // The two operands may change places.
  AT_COMMUTES = 1 << 1,
  // Must run, and in the order of the list.
  AT_EFFECT = 1 << 2,
  // May have other than one result.
  AT_MULTI = 1 << 3,
  // Exchanges data with other devices.
  AT_COLLECTIVE = 1 << 4,
  // Moves elements and computes none.
  AT_INDEXING = 1 << 5,
  // Runs regions or functions: loops, branches, calls.
  AT_CONTROL = 1 << 6,
  // What it computes is not said here: a foreign call.
  AT_OPAQUE = 1 << 7
};
// What an op keeps busy, roughly: the cost models of other rooms refine it.
typedef enum at_cost_class {
  // Nothing: constants, parameters, views.
  AT_COST_NONE,
  // One cheap operation for each element.
  AT_COST_VECTOR,
  // Many operations for each element: exp, sin and the like.
  AT_COST_TRANSCENDENTAL,
  // Products of matrices and convolutions.
  AT_COST_MXU,
  // Bytes that are read and written.
  AT_COST_MEMORY,
  // What its regions or functions cost.
  AT_COST_CONTROL,
  // Bytes between devices.
  AT_COST_NETWORK,
  // Bytes to or from the host, or work done there.
  AT_COST_HOST
} at_cost_class;

// All three are the module's arena's and are passed by pointer.
typedef struct at_node at_node;
typedef struct at_comp at_comp;
typedef struct at_module at_module;

// A row of the op table. Static; `attrs` lists what at_build takes besides
// frontend attributes and sharding, which every op may carry.
typedef struct at_op_info {
  const char *text;
  int32_t min_operands, max_operands;  // max -1: variadic
  int32_t regions;                     // -1: variadic
  uint32_t traits;
  at_cost_class cost;
  // Fills result types of a node whose operands, attributes and regions are
  // set; `given` rules check the types that are already there.
  at_status (*infer)(at_module *m, at_node *n);
  const uint8_t *attrs;  // at_attr_id, attr_count entries
  uint32_t attr_count;
  const char *doc;
} at_op_info;

// The op's row; static, never NULL. op must be one of the table.
const at_op_info *at_op_of(at_op op);
// Its name in the text form ("dot_general"); static.
const char *at_op_text(at_op op);
// The op of that name; false: there is none, and *out is not written.
bool at_op_parse(at_str text, at_op *out);
// The attribute's name in the text form; "?" for no attribute. Static.
const char *at_attr_text(at_attr_id id);
// Which member of at_attr's union its values are in.
at_attr_kind at_attr_kind_of(at_attr_id id);
// The attribute of that name; false: there is none.
bool at_attr_parse(at_str text, at_attr_id *out);
// Has the op one of the traits, which may be several bits?
static inline bool at_op_is(at_op op, uint32_t trait) {
  return (at_op_of(op)->traits & trait) != 0;
}

// Enumerated attribute values. Names for the text form: at_enum_text.
// a DIRECTION b, of compare.
typedef enum at_direction {
  AT_EQ,
  AT_NE,
  AT_GE,
  AT_GT,
  AT_LE,
  AT_LT
} at_direction;
// How compare orders floats: NOTYPE follows the element type, TOTALORDER is
// IEEE's (-NaN < -inf < ... < inf < NaN).
typedef enum at_compare_type {
  AT_CMP_NOTYPE,
  AT_CMP_FLOAT,
  AT_CMP_TOTALORDER,
  AT_CMP_SIGNED,
  AT_CMP_UNSIGNED
} at_compare_type;
// Forward, inverse, and the two between real data and half a spectrum.
typedef enum at_fft_type { AT_FFT, AT_IFFT, AT_RFFT, AT_IRFFT } at_fft_type;
// Which form of the matrix triangular_solve uses.
typedef enum at_transpose_a {
  AT_TRANSPOSE_INVALID,
  AT_NO_TRANSPOSE,
  AT_TRANSPOSED,
  AT_ADJOINT
} at_transpose_a;
// Of rng_bit_generator; DEFAULT is Philox here.
typedef enum at_rng_algorithm {
  AT_RNG_DEFAULT,
  AT_RNG_THREE_FRY,
  AT_RNG_PHILOX
} at_rng_algorithm;
// Of rng: uniform in [a, b), or normal with mean a and deviation b.
typedef enum at_rng_distribution {
  AT_RNG_INVALID,
  AT_RNG_UNIFORM,
  AT_RNG_NORMAL
} at_rng_distribution;
// How the body of a fusion is made into code.
typedef enum at_fusion_kind {
  AT_FUSION_LOOP,    // every result has the same element count; one loop nest
  AT_FUSION_REDUCE,  // the results are reduces of fused producers
  AT_FUSION_KERNEL,  // a Pallas kernel and what makes its inputs, block by
                     // block
  AT_FUSION_ROWS     // reduces along rows and what is made of the same rows
                     // (hlo/rows.h)
} at_fusion_kind;
// The name of a value of an ENUM attribute ("LT"), static.
const char *at_enum_text(at_attr_id id, int64_t value);  // NULL: no such value
// The value of an ENUM attribute by the name that at_enum_text gives it; false:
// no such name.
bool at_enum_parse(at_attr_id id, at_str text, int64_t *out);

// ---- Types and literals
#define AT_DYN INT64_MIN  // a dimension that is not known

// The type of a value: element type and shape. A view: arrays and text belong
// to the module's arena or to the caller.
typedef struct at_type {
  at_dtype dtype;
  uint32_t rank;
  const int64_t *dims;    // rank entries, major to minor; AT_DYN if unknown
  const int64_t *bounds;  // NULL, or rank entries (AT_DYN: no bound)
  const char *quant;      // NULL, or the text of a quantised element type
} at_type;

// The dims as a view; borrowed from the type.
static inline at_dims at_type_dims(const at_type *t) {
  return (at_dims){t->dims, t->rank};
}
// Equal in element type, dims (AT_DYN equals AT_DYN only), bounds and
// quantisation.
bool at_type_eq(const at_type *a, const at_type *b);
// No dimension is AT_DYN. Bounds do not matter.
bool at_type_is_static(const at_type *t);
// Product of dims; INT64_MAX on overflow. Static types only.
int64_t at_type_elements(const at_type *t);
// elements * storage bytes, dense row-major; SIZE_MAX on overflow.
size_t at_type_bytes(const at_type *t);
// Rank 0; points to nothing.
at_type at_type_scalar(at_dtype t);
// A type without bounds, its dims copied into `a`. INVALID_ARGUMENT: a
// dimension is negative and not AT_DYN.
at_status at_type_make(at_arena *a, at_dtype t, at_dims dims, at_type *out);
// The same shape with another element type (shares dims).
static inline at_type at_type_with(at_type t, at_dtype d) {
  t.dtype = d;
  return t;
}
// Appends the text form:
void at_type_print(at_strbuf *b,
                   const at_type *t);  // "f32[2,3]", "i32[]", "token"

// Dense row-major data in storage form (see dtype.def), or one repeated
// element.
typedef struct at_literal {
  at_type type;
  const void *data;  // borrowed from the arena or from the caller's bytes
  size_t bytes;      // at_type_bytes(type), or the element's storage if splat
  bool splat;
} at_literal;
// Copies `bytes` of `data` unless `borrow`.
at_status at_literal_make(at_arena *a, at_type t, const void *data, bool splat,
                          bool borrow, const at_literal **out);
// Element at a row-major linear index. Integer reading of bool/ints, double of
// floats. The type must suit.
// i is below at_type_elements, or anything of a splat: it is not checked.
int64_t at_literal_int(const at_literal *l, int64_t i);
// The same bits of an unsigned type's element.
uint64_t at_literal_uint(const at_literal *l, int64_t i);
// Exact for every floating-point type but complex ones, whose elements
// at_literal_at gives.
double at_literal_float(const at_literal *l, int64_t i);
// The element's storage; borrowed from the literal.
const void *at_literal_at(const at_literal *l, int64_t i);

// ---- Locations
// Where an op comes from. Immutable, shared between nodes, in the module's
// arena.
typedef struct at_loc {
  const char *name;  // JAX's op name ("jit(f)/jit(main)/add"), may be NULL
  const char *file;  // may be NULL
  uint32_t line, column;
  const struct at_loc *caller;  // call site, may be NULL
  const void *origin;  // the operation or argument that it was imported with,
                       // may be NULL
} at_loc;
// The innermost of the location and its callers that names a file, else the
// last of them; NULL for NULL.
const at_loc *at_loc_source(const at_loc *loc);
// "file:line:col (name)" or "unknown".
void at_loc_print(at_strbuf *b, const at_loc *loc);

// ---- Graph
// A result of a node. Passed by value; node NULL is no value.
typedef struct at_value {
  at_node *node;
  uint32_t index;  // which result
} at_value;
// The same result of the same node.
static inline bool at_value_eq(at_value a, at_value b) {
  return a.node == b.node && a.index == b.index;
}

// A named value of a node. The id decides which member of the union is set
// (at_attr_kind_of); reading another one is a bug, which at_node_int,
// at_node_ints and at_node_str assert.
typedef struct at_attr {
  at_attr_id id;
  union {
    int64_t i;  // INT, BOOL, ENUM
    double f;
    at_str s;  // STR, BYTES
    at_dims ints;
    const at_literal *literal;
    const at_type *type;
    struct {
      const at_str *kv;  // 2 * n strings: key, value, key, value...
      uint32_t n;
    } dict;
    struct {
      const at_dims *list;
      uint32_t n;
    } groups;
  };
} at_attr;

// Whether the regions of a node hold an effect: who asks (at_has_effect) notes
// the answer, and it is forgotten when nodes come or go that may matter.
typedef enum at_effect {
  AT_EFFECT_UNKNOWN,
  AT_EFFECT_NONE,
  AT_EFFECT_SOME
} at_effect;

// An operation. Owned by the module's arena and linked into the list of its
// computation; removing it only unlinks it. Passes change operands in place;
// op, results and types stay as they were built, except where a pass says
// otherwise.
struct at_node {
  at_op op;
  uint32_t id;  // unique in the module, for names in text form
  // Lengths of the arrays below, each NULL where its length is 0.
  uint32_t num_operands, num_results, num_regions, num_attrs;
  at_value *operands;
  at_type *types;  // num_results
  at_comp **regions;
  at_attr *attrs;  // sorted by id
  const at_loc *loc;
  at_comp *parent;
  at_node *prev, *next;   // order in the parent
  uint32_t mark;          // scratch of the running pass
  void *aux;              // scratch of the running pass
  at_effect effect;       // of its regions
  uint32_t swept;         // the last of the module's sweeps that found it used
  const at_node *origin;  // what a pass for this machine made it of, or made
                          // it a copy of: that is counted, once; NULL: itself
};

// A function or a region. Parameters are in the list and in `params`, both in
// index order, in front of all other nodes.
struct at_comp {
  at_module *module;
  const char *name;  // functions only; else NULL
  at_node *owner;    // the node whose region this is; NULL for a function
  at_node *first, *last;
  at_node **params;  // PARAMETER nodes, in index order (also in the list)
  uint32_t num_params;
  at_value *results;
  uint32_t num_results;
};

// Facts about an entry parameter or result that JAX attached.
typedef struct at_io_info {
  int32_t alias;            // parameter: result it may be donated to
                            // (tf.aliasing_output), else -1
  bool donor;               // jax.buffer_donor
  const char *sharding;     // text of mhlo.sharding / sdy.sharding, or NULL
  const char *layout;       // mhlo.layout_mode, or NULL
  const char *memory_kind;  // mhlo.memory_kind, or NULL: "device"
  const char *name;         // jax.result_info / argument name, or NULL
  bool open;                // the compiler may choose its sharding
} at_io_info;

// A whole program and the arena that holds it.
struct at_module {
  at_arena *arena;
  const char *name;
  at_comp **funcs;
  uint32_t num_funcs, cap_funcs;
  at_map by_name;  // of funcs: at_comp *
  at_comp *entry;
  at_io_info *params, *results;  // of entry
  // Above the id of every node so far.
  uint32_t next_id;
  uint32_t sweeps;  // of dead code so far
  // Device number = replica * num_partitions + partition.
  int64_t num_replicas, num_partitions;
  const char
      *mesh_text;  // Shardy meshes, "@name = #sdy.mesh<...>" a line; NULL: none
  const char *notes;  // ops that partitioning had to all-gather for, one a
                      // line; or NULL
};

// An empty module of one replica and one partition, in `a`, which must outlive
// it. Name copied; entry is the caller's to set.
at_status at_module_create(at_arena *a, at_str name, at_module **out);
// A computation without nodes. owner NULL: a function, added to the module.
at_status at_comp_create(at_module *m, at_str name, at_node *owner,
                         at_comp **out);
// The function of that name; borrowed.
at_comp *at_module_find(const at_module *m,
                        at_str name);  // NULL: no such function
// mesh_text from what JAX attaches to a module: a dictionary,
// {mesh = #sdy.mesh<["x"=2]>}, or lines that are as mesh_text has them.
at_status at_module_set_meshes(at_module *m, at_str text);
// Drops every function but f.
at_status at_module_keep(at_module *m, at_comp *f);

// How deep regions of a program may lie in each other once calls are inlined.
// What takes a program in refuses more, and passes walk regions by recursion.
enum { AT_MOST_NESTED = 128 };

// ---- Building
// A node description; result types are inferred unless `types` is given.
typedef struct at_node_desc {
  at_op op;
  const at_value *operands;
  uint32_t num_operands;
  const at_attr *attrs;
  uint32_t num_attrs;
  at_comp **regions;  // created with owner NULL-node; adopted by the new node
  uint32_t num_regions;
  const at_type *types;
  uint32_t num_types;
  const at_loc *loc;
} at_node_desc;
// Node n over: its op, attributes, result types and place, on `operands` and
// with `regions` (as many as n has). Borrows from n.
at_node_desc at_node_desc_like(const at_node *n, const at_value *operands,
                               at_comp **regions);
// Appends to `c` (or inserts before `before`). Checks operand count, attributes
// and types; INVALID_ARGUMENT names the op, the place and the expected shape.
// No result has over INT64_MAX bytes.
// Everything in `d` is copied into the module's arena (regions are adopted, not
// copied), so `d` may be on the stack. `before` must be a node of `c`.
at_status at_build(at_comp *c, at_node *before, const at_node_desc *d,
                   at_node **out);
// The next parameter of c, behind those that are there, in front of all other
// nodes.
at_status at_build_param(at_comp *c, at_type t, const at_loc *loc,
                         at_value *out);
// A CONSTANT of the literal's type. The literal is borrowed: it must live as
// long as the module.
at_status at_build_constant(at_comp *c, at_node *before, const at_literal *l,
                            at_value *out);
// Short forms for passes: unary/binary/ternary by operands' types, no
// attributes.
at_status at_build_op(at_comp *c, at_node *before, at_op op,
                      const at_value *operands, uint32_t n, const at_loc *loc,
                      at_value *out);
// Sets c's results in place of those before; the list is copied.
// INVALID_ARGUMENT: one names no node's result. That they are in scope is for
// at_verify to say.
at_status at_comp_return(at_comp *c, const at_value *results, uint32_t n);
// A region for at_node_desc: its owner is set when the node is built.
at_status at_region_create(at_module *m, at_comp **out);
// The region's parameter for a value outside of it, one per value: `operands`
// lists those so far, whose parameters stand in the same order.
typedef AT_VEC(at_value) at_value_list;
// `operands` grows in `a`. The region's parameters must have been made by this
// function alone.
at_status at_region_param(at_arena *a, at_comp *region, at_value_list *operands,
                          at_value v, at_value *out);
// Deep copy of a computation (values outside it map through `map`, from
// (node pointer) to (at_node *), or stay).
at_status at_comp_clone(at_module *m, const at_comp *c, at_map *map,
                        at_comp **out);

// The value's type; borrowed from its node. v must name a result.
static inline const at_type *at_value_type(at_value v) {
  AT_ASSERT(v.node && v.index < v.node->num_results);
  return &v.node->types[v.index];
}
// The node's attribute of that id; borrowed, valid until an attribute is set.
const at_attr *at_node_attr(const at_node *n, at_attr_id id);  // NULL: absent
// An INT, BOOL or ENUM attribute's value. That `id` is of such a kind is the
// caller's to know.
int64_t at_node_int(const at_node *n, at_attr_id id, int64_t absent);
// Which parameter of c the node is; c->num_params: none. Takes the same time
// for any number of them.
static inline uint32_t at_param_index(const at_comp *c, const at_node *n) {
  bool own = n->op == AT_OP_PARAMETER && n->parent == c;
  return own ? (uint32_t)at_node_int(n, AT_ATTR_INDEX, c->num_params)
             : c->num_params;
}
// A BOOL attribute; absent is false.
static inline bool at_node_bool(const at_node *n, at_attr_id id) {
  return at_node_int(n, id, 0) != 0;
}
// An INTS attribute; borrowed from the node.
at_dims at_node_ints(const at_node *n, at_attr_id id);  // rank 0 when absent
// Whether the list names x.
static inline bool at_dims_has(at_dims d, int64_t x) {
  for (uint32_t i = 0; i < d.rank; i++)
    if (d.ptr[i] == x) return true;
  return false;
}
// A STR or BYTES attribute; borrowed from the node.
at_str at_node_str(const at_node *n, at_attr_id id);  // len 0 when absent
// The value of a constant; borrowed.
const at_literal *at_node_literal(const at_node *n);  // CONSTANT's, else NULL
// What the client said of n under `key` (frontend attributes), in the module's
// arena; ptr NULL: nothing.
at_str at_node_told(const at_node *n, const char *key);
// Whether the client has SparseCores compute n (`_xla_compute_type`).
static inline bool at_node_offloaded(const at_node *n) {
  return at_str_is(at_node_told(n, "_xla_compute_type"), "sparseoffload");
}
// Sets it, in place of the one there; the value is copied into the module's
// arena. INVALID_ARGUMENT: the op has no such attribute. Types that follow from
// it are not inferred again.
at_status at_node_set_attr(at_node *n, at_attr a);

// Rewrites. Uses are found by walking; passes that rewrite much keep a use
// index.
// Takes n out of its computation's list. Its memory stays until the module
// ends.
void at_node_remove(
    at_node *n);  // unlinks; the caller knows that it has no uses
// Also into the computation of `before`; NULL: to the end of its own.
void at_node_move_before(at_node *n, at_node *before);
// Every use of old_v in `c` and in the regions below becomes new_v.
void at_replace_uses(at_comp *c, at_value old_v, at_value new_v);

// Every node in order. The loop's body must not remove n: keep n->next first
// where it may.
#define AT_FOR_NODES(n, comp) for (at_node *n = (comp)->first; n; n = n->next)

// ---- Whole-module services
// Every law of the graph: topological order, scopes, types equal to inference,
// attributes, region signatures. `after` names the pass for the message.
at_status at_verify(const at_module *m, const char *after);
// Text form; at_hlo_parse(at_hlo_print(m)) prints equal.
at_status at_hlo_print(const at_module *m, at_strbuf *out);
// A module in `a` from text, which may be dropped afterwards. INVALID_ARGUMENT
// names line and column. Not verified: call at_verify.
at_status at_hlo_parse(at_str text, at_arena *a, at_module **out);
// Markdown table of ops for docs/ops.md.
at_status at_hlo_ops_doc(at_strbuf *out);
// "%12 = add f32[2,3] at file:line (name)", for error messages.
void at_node_describe(at_strbuf *b, const at_node *n);

// ---- Reference evaluator
// Evaluates a computation of a verified, static module slowly and obviously.
// What evaluates foreign custom calls: reads `operands` (n->num_operands of
// them) and sets n->num_results results, made in `a`. An error ends the
// evaluation.
typedef at_status (*at_eval_custom)(void *user, const at_node *n,
                                    const at_literal *const *operands,
                                    at_arena *a, const at_literal **results);
// How to evaluate. All zero: no limit, no custom calls, device 0.
typedef struct at_eval_options {
  int64_t
      max_ops;  // element operations; 0: no limit. Over it: DEADLINE_EXCEEDED
  at_eval_custom custom;  // foreign custom calls; NULL: UNIMPLEMENTED by name
  void *user;
  int64_t replica_id, partition_id;
} at_eval_options;
// args: c->num_params literals; out_results: c->num_results, in `a`.
at_status at_eval(const at_comp *c, const at_literal *const *args,
                  const at_eval_options *opt, at_arena *a,
                  const at_literal **out_results);
// The program on all its devices at once (the module's replicas x partitions;
// 256 at most), collectives included. args[d] and out_results[d] are those of
// device d = replica * partitions + partition. `custom` is called from several
// threads.
at_status at_eval_devices(const at_comp *c,
                          const at_literal *const *const *args,
                          const at_eval_options *opt, at_arena *a,
                          const at_literal **const *out_results);
// One node without regions that capture; used by constant folding.
at_status at_eval_node(const at_node *n, const at_literal *const *operands,
                       const at_eval_options *opt, at_arena *a,
                       const at_literal **out_results);

// An at_eval_custom for what JAX asks of a TPU's linear algebra: "Qr",
// "ProductOfElementaryHouseholderReflectors", "LuDecomposition", "Eigh",
// "ApproxTopK" (exact), "TopK". Others: UNIMPLEMENTED by name.
at_status at_eval_linalg_custom(void *user, const at_node *n,
                                const at_literal *const *operands, at_arena *a,
                                const at_literal **results);

// ---- Element conversion (used by evaluator, tests, text)
// Each takes one element in storage form at p, aligned or not. The type must be
// of the class that the function's name says: that is not checked.
double at_load_float(at_dtype t, const void *p);  // any float, exact
// Overflow as the format has it: infinity, NaN, or its largest finite value.
void at_store_float(at_dtype t, void *p, double v);  // round to nearest even
// Booleans give 0 and 1; signed elements are extended, unsigned ones are not.
int64_t at_load_int(at_dtype t, const void *p);  // bool and ints (u64: bits)
// Keeps the low bits of v; of a boolean, whether v is not 0.
void at_store_int(at_dtype t, void *p, int64_t v);  // wraps

#endif

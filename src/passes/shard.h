// Partitioning of a program over devices: what the files of it share.
//
// A sharding says by which axes each dimension of a value is cut. Axes of a
// mesh are decomposed into atoms: digits of the device number, each of a prime
// size, so that sub-axes, and several meshes over the same devices, are all
// lists of atoms.
//
// A dimension that its axes do not divide is cut atom after atom, each time
// into parts of the size rounded up. What is missing lies at the end of the
// last parts ("padding") and holds anything: ops that would mix it with
// elements mask it (partition_uneven.c). Parts nest, so that axes can be added
// and taken away at the end of a list without moving the rest. Arguments,
// results and manual computations are always cut evenly; what a client cuts
// unevenly is made larger first (at_uneven_edges).
//
// Errors: INVALID_ARGUMENT names a sharding that does not fit its value,
// UNIMPLEMENTED what cannot be cut so; else at_build's, and RESOURCE_EXHAUSTED.
// Memory: the module's arena, but for at_rule.
// Threads: the one that runs the pass.
#ifndef ATOLL_PASSES_SHARD_H_
#define ATOLL_PASSES_SHARD_H_

#include "passes/passes_internal.h"

enum { AT_MAX_ATOMS = 23 };

// Atoms, major to minor.
typedef struct at_axes {
  uint8_t n;
  uint8_t a[AT_MAX_ATOMS];
} at_axes;

// One named axis of a mesh.
typedef struct at_mesh_axis {
  at_str name;
  int64_t size;
  uint32_t first, count;  // its atoms
} at_mesh_axis;

// An arrangement of the devices, as the program's text or HLO's tiles give it.
typedef struct at_mesh {
  at_str name;
  const at_mesh_axis *axes;  // none: one device, or no mesh at all
  uint32_t num_axes;
  bool maximal;            // names one device: values that live there are whole
  int64_t device;          // that one
  const int64_t *devices;  // device of each position; NULL: its own number
} at_mesh;

// Where one value lives.
typedef struct at_place at_place;
struct at_place {
  at_type whole;    // before partitioning
  at_axes *dims;    // whole.rank entries
  uint64_t open;    // bit d: dimension d may be cut further
  bool even;        // every dimension is a multiple of what cuts it
  uint32_t banned;  // atoms that must not cut it
  uint32_t manual;  // atoms along which the devices have values of their own
  // Atoms over which the devices hold summands (Shardy's unreduced axes).
  // `wanted`: over which it would rather stay so, known before the rewriting.
  uint32_t sums, wanted;
  // What arrives or leaves in another order of devices than the program's:
  // the device of each position. NULL: the program's order.
  const int64_t *devices;
  // Whose axes cut it, as far as the program says; NULL: nobody did.
  const at_mesh *mesh;
  // Shardings of a later priority: joined when propagation gets there.
  at_axes *later;
  const int8_t *priority;
  struct at_want *wants;
  at_place *outer;  // parameter of a manual computation: its operand's place
  // While the program is rewritten:
  at_value now;  // the part that this device holds
  struct at_part *parts;
};

// The same value cut in another way, made where a user wanted it.
typedef struct at_part {
  const at_comp *comp;
  at_axes *dims;
  uint32_t sums;
  at_value v;
  struct at_part *next;
} at_part;

// How products that read a value would have it, for their results' sake.
typedef struct at_want {
  at_axes *dims;
  uint32_t count;
  struct at_want *next;
} at_want;

// The state of the pass on one module.
typedef struct at_cut {
  at_module *m;
  uint32_t num_atoms;
  int64_t size[AT_MAX_ATOMS], stride[AT_MAX_ATOMS];
  at_mesh *meshes;
  uint32_t num_meshes;
  uint32_t
      begins;  // atoms where HLO's tiles begin, of a program without meshes
  const int64_t *devices;  // NULL, or the device of each position, as the
                           // first mesh has it
  bool listed;        // HLO's tilings name the devices one by one: so do ours
  int64_t channel;    // the last that is taken
  at_node *head;      // where the entry's own nodes began; NULL: had none
  at_value position;  // u32 scalars at the head of the entry, made on demand:
  at_value digits[AT_MAX_ATOMS];  // this device's place in the mesh
  at_place **results;             // where the entry's results go
  AT_VEC(at_node *) groups;       // `ShardingGroup` calls: operands cut alike
  at_strbuf notes;                // ops that had to be all-gathered for
} at_cut;

// ---- shard_text.c
// Meshes of the module's text into atoms.
at_status at_cut_meshes(at_cut *c);
// Shardy's text ("#sdy.sharding<@mesh, [{"x"}, {?}]>", the prefix may be
// absent) or HLO's ("{devices=[2,1]<=[2]}") onto p: dims, open, banned. Axes
// that do not divide a dimension are dropped unless `exact`, which makes them
// an error.
at_status at_place_parse(at_cut *c, at_str text, bool exact, at_place *p);
// Into how many parts the text of a value of type t cuts each dimension; HLO's
// tilings may say more behind those: over how many devices each part is. Empty:
// it is HLO's text and no tiling.
at_status at_sharding_parts(at_cut *c, at_str text, const at_type *t,
                            at_dims *out);
// Atoms that HLO's text of a value of type t leaves to the program itself.
at_status at_manual_mask(at_cut *c, at_str text, const at_type *t,
                         uint32_t *out);
// Takes atoms off the end of x until the others cut a dimension of n evenly and
// are whole axes of `mesh` (NULL: of every mesh), as clients cannot name parts.
void at_axes_keep_whole(const at_cut *c, const at_mesh *mesh, int64_t n,
                        at_axes *x);
// A program that states HLO's shardings only gets a mesh: the least axes that
// those need. After all of them were parsed.
at_status at_cut_tiles_mesh(at_cut *c);
// Item i of "...[<...>, <...>]..."; len 0: none.
at_str at_sharding_item(at_str list, uint32_t i);
// The device on which alone an op of that sharding runs; -1: on all.
at_status at_sharding_device(at_cut *c, at_str text, int64_t *out);
// Atoms of the axes in {"x", "y"}, as a mask.
at_status at_axes_mask(at_cut *c, at_str text, uint32_t *out);
// HLO's text of p.
at_status at_place_print(const at_cut *c, const at_place *p, const char **out);

// ---- Lists of atoms
// Into how many parts x cuts; 1 for none.
static inline int64_t at_axes_size(const at_cut *c, const at_axes *x) {
  int64_t n = 1;
  for (uint32_t i = 0; i < x->n; i++) n *= c->size[x->a[i]];
  return n;
}
// Size of a part of a dimension of n; how it is cut evenly or not.
static inline int64_t at_axes_part(const at_cut *c, const at_axes *x,
                                   int64_t n) {
  for (uint32_t i = 0; i < x->n; i++)
    n = (n + c->size[x->a[i]] - 1) / c->size[x->a[i]];
  return n;
}
// Does x cut a dimension of n into equal parts?
static inline bool at_axes_even(const at_cut *c, const at_axes *x, int64_t n) {
  return n % at_axes_size(c, x) == 0;
}
// As a mask: bit a for atom a.
static inline uint32_t at_axes_bits(const at_axes *x) {
  uint32_t bits = 0;
  for (uint32_t i = 0; i < x->n; i++) bits |= 1u << x->a[i];
  return bits;
}
// Those of x that are in `mask`, in order.
static inline at_axes at_axes_within(const at_axes *x, uint32_t mask) {
  at_axes out = {0};
  for (uint32_t i = 0; i < x->n; i++)
    if (mask >> x->a[i] & 1) out.a[out.n++] = x->a[i];
  return out;
}
// How many atoms, from the first on, a and b share.
static inline uint32_t at_axes_common(const at_axes *a, const at_axes *b) {
  uint32_t i = 0;
  while (i < a->n && i < b->n && a->a[i] == b->a[i]) i++;
  return i;
}
static inline bool at_axes_eq(const at_axes *a, const at_axes *b) {
  return a->n == b->n && at_axes_common(a, b) == a->n;
}
// Are all dimensions of a and b (rank of them) cut alike?
static inline bool at_dims_axes_eq(const at_axes *a, const at_axes *b,
                                   uint32_t rank) {
  for (uint32_t i = 0; i < rank; i++)
    if (!at_axes_eq(&a[i], &b[i])) return false;
  return true;
}
// Atoms that cut any of the dimensions.
static inline uint32_t at_dims_bits(const at_axes *d, uint32_t rank) {
  uint32_t bits = 0;
  for (uint32_t i = 0; i < rank; i++) bits |= at_axes_bits(&d[i]);
  return bits;
}
// Where v lives; NULL: its node has no place. Only while the pass owns aux.
static inline at_place *at_place_of(at_value v) {
  at_place **list = (at_place **)v.node->aux;
  return list ? list[v.index] : NULL;
}

// ---- shard_rule.c
// How the dimensions of an op's operands and results hang together: dimensions
// that share a factor are cut alike. A dimension without factors must be whole.
enum { AT_MAX_FACTORS = 80, AT_MAX_DIM_FACTORS = 6 };
typedef enum at_factor_kind {
  AT_FACTOR_PASS,  // each device computes its part
  AT_FACTOR_SUM,   // each device computes a partial result, combined afterwards
  AT_FACTOR_LOOKUP,  // the dimension that a gather's indices point into
  AT_FACTOR_STORE  // the one that a scatter's, or an update's start, point into
} at_factor_kind;
// The factors that a dimension is made of.
typedef struct at_dim_factors {
  uint8_t n;
  uint8_t f[AT_MAX_DIM_FACTORS];  // major to minor
} at_dim_factors;
// The rule of one node.
typedef struct at_rule {
  uint32_t num_factors;
  int64_t size[AT_MAX_FACTORS];  // elements along the factor
  at_factor_kind kind[AT_MAX_FACTORS];
  bool even[AT_MAX_FACTORS];  // only what divides the factor may cut it
  uint32_t num_tensors;       // operands, then results
  at_place **places;
  at_dim_factors **dims;  // [tensor][dimension]
  at_op combine;          // of partial results
  bool plain;  // results have the operands' elements: propagated first
  bool known;  // false: no rule for this op
} at_rule;
// Everything in `a`. Operands and results of n have places already
// (at_place_of).
at_status at_rule_make(at_arena *a, const at_node *n, at_rule *out);
// Which axes cut each factor, as tensor t says.
void at_rule_project(const at_cut *c, const at_rule *r, uint32_t t,
                     const at_axes *dims, at_axes *factors);
// Axes of dimension d of tensor t when the factors are cut so.
at_axes at_rule_dim(const at_cut *c, const at_rule *r, uint32_t t, uint32_t d,
                    const at_axes *factors);

// ---- partition_op.c
// Rewrites n, an op that is not control flow, and sets `now` of its results'
// places.
at_status at_partition_op(at_cut *c, at_node *n);
// Tells the places that products of `comp` read how those would have them.
at_status at_products_want(at_cut *c, at_comp *comp);
// *v whole, on every device, before n. A value without a place stays.
at_status at_bring_whole(at_cut *c, at_node *n, at_value *v);

// ---- partition_sums.c
// Atoms over which n's result is made of summands, as its operands are, in a
// computation that is cut by the atoms in `cut`.
uint32_t at_sums_carried(const at_node *n, uint32_t cut, uint32_t result);
// Whether n can work on summands of that operand.
bool at_sums_may_be(const at_node *n, uint32_t operand);
// Tells the places from which summands come that summands are wanted, from
// their users back.
void at_sums_want(at_comp *comp);

// ---- partition.c
// A `Sharding` call: its place is what the program asks for.
bool at_is_constraint(const at_node *n);
// GSPMD's way in and out of what the program does for each device itself.
bool at_is_manual_entry(const at_node *n);  // SPMDFullToShardShape
bool at_is_manual_exit(const at_node *n);   // SPMDShardToFullShape
// Atoms along which parts become values of their own at such an entry, and
// values parts at such an exit.
uint32_t at_boundary_axes(const at_node *n);
// A `LayoutConstraint` call: the value itself.
bool at_is_layout_constraint(const at_node *n);
// A `ShardingGroup` call: its operand is cut as those of the same group.
bool at_is_sharding_group(const at_node *n);

// ---- propagate.c
// Spreads what the program says over all values, level by level of priority
// (Shardy's), until nothing changes. Fails for want of memory only.
at_status at_propagate(at_cut *c);

// ---- reshard.c
// Bytes that one device receives when a value changes its cut.
double at_reshard_cost(const at_cut *c, const at_type *whole,
                       const at_axes *from, const at_axes *to);
// How a value is laid over the devices.
typedef struct at_lay {
  const at_axes *dims;
  uint32_t sums;
} at_lay;
// The part of p's value under `to`, in computation `comp` before `before`
// (NULL: last).
at_status at_reshard(at_cut *c, at_comp *comp, at_node *before, at_place *p,
                     at_lay to, at_value *out);
// What device `from` has, on every device.
at_status at_spread(at_cut *c, at_comp *comp, at_node *before, int64_t from,
                    at_value v, at_value *out);
// Whether that was made before, of elements, not summands.
bool at_has_part(const at_place *p, const at_comp *comp, const at_axes *dims);
// The same for a part that is not p's own.
at_status at_reshard_part(at_cut *c, at_comp *comp, at_node *before,
                          const at_type *whole, at_value part, at_lay from,
                          at_lay to, at_value *out);
// Every part from device from[i] to device to[i], for all positions i; NULL: i.
at_status at_reorder(at_cut *c, at_comp *comp, at_node *before,
                     const int64_t *from, const int64_t *to, at_value v,
                     at_value *out);
// Every part to the device at the other end along the atoms in `mask`.
at_status at_mirror(at_cut *c, at_comp *comp, at_node *before, uint32_t mask,
                    at_value v, at_value *out);
// Bytes of a part.
double at_part_bytes(const at_cut *c, const at_type *whole,
                     const at_axes *dims);
// The next step of adding up a value cut as `have` over the atoms in *mask:
// those that a dimension would be cut by next under `want`, along which partial
// results are scattered; without any, the atoms that are left, and -1. They
// leave the mask and join the dimension.
int32_t at_sum_step(const at_cut *c, at_axes *have, const at_axes *want,
                    uint32_t rank, uint32_t *mask, at_axes *axes);
// The type of what one device holds of `whole`, when dims[rank] cut it: sizes
// rounded up. Dimensions live in the module's arena.
at_status at_type_cut(const at_cut *c, const at_type *whole,
                      const at_axes *dims, at_type *out);
// op over the devices that differ in the atoms of `mask`, of a part cut as
// `have`: what `want` cuts next is scattered and joins `have`.
at_status at_combine(at_cut *c, at_comp *comp, at_node *before, at_op op,
                     uint32_t mask, at_axes *have, const at_axes *want,
                     at_value *v);
// The integers that tell places in a dimension of n apart: s32, or s64 where
// they are not enough.
at_dtype at_offset_type(int64_t n);
// Where this device's part of a dimension of n begins under `axes`, a scalar of
// `dtype`, which wraps where it is too narrow.
at_status at_part_offset(at_cut *c, at_comp *comp, at_node *before,
                         const at_axes *axes, int64_t n, at_dtype dtype,
                         at_value *out);
// This device's digit of an atom, u32, at the head of the entry.
at_status at_digit_value(at_cut *c, uint32_t atom, at_value *out);
// A scalar constant before `before` (NULL: at the end).
at_status at_scalar_value(at_cut *c, at_comp *comp, at_node *before, at_dtype t,
                          int64_t x, at_value *out);
// at_build, and the node's first result.
at_status at_emit(at_comp *comp, at_node *before, const at_node_desc *d,
                  at_value *out);

// ---- partition_uneven.c
// Dimension d of v with padding, so that `axes` cut it into equal parts.
at_status at_uneven_widen(at_cut *c, at_comp *comp, at_node *before, uint32_t d,
                          const at_axes *axes, at_value v, at_value *out);
// The inverse, when parts along `axes` have been put together: dimension d has
// n elements again.
at_status at_uneven_narrow(at_cut *c, at_comp *comp, at_node *before,
                           uint32_t d, const at_axes *axes, int64_t n,
                           at_value v, at_value *out);
// How many elements of this device's part of a dimension of n are elements of
// the whole; the others, behind them, are padding. A scalar of `dtype`, which
// holds n.
at_status at_uneven_count(at_cut *c, at_comp *comp, at_node *before,
                          const at_axes *axes, int64_t n, at_dtype dtype,
                          at_value *out);
// *v, an operand of `user`, with the scalar `fill` in the padding of dimension
// d of n.
at_status at_uneven_mask(at_cut *c, at_node *user, uint32_t d,
                         const at_axes *axes, int64_t n, at_value fill,
                         at_value *v);
// Arguments and results that are cut into unequal parts come and go with
// padding behind their last element, so that the parts are equal: clients of
// GSPMD hold them so. Wants the meshes.
at_status at_uneven_edges(at_cut *c);

#endif

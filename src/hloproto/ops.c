// How opcodes become hlo.
#include "hloproto/hloproto_internal.h"

// Opcodes that the table names so that the documentation lists them as refused.
AT_HP_HOW(refuse) {
  return AT_HP_FAIL(x, i, AT_UNIMPLEMENTED, "this opcode is not supported");
}

// Parameters are built before the body; one that is reached here stands where
// none belongs.
AT_HP_HOW(misplaced) {
  return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT, "does not belong here");
}

// Regions and attributes as hlo's row has them; `d` may hold some already.
static at_status build_plain(at_hp *x, const at_hp_inst *i, at_hp_node *d,
                             at_node **out) {
  int32_t regions = at_op_of(d->op)->regions;
  AT_ASSERT(regions >= 0);  // opcodes with a number of their own are not plain
  AT_TRY(at_hp_attrs_read(x, i, d->op, &d->attrs));
  AT_TRY_ALLOC(d->regions, at_new(x->a, at_comp *, (size_t)regions + 1));
  for (; d->num_regions < (uint32_t)regions; d->num_regions++)
    AT_TRY(
        at_hp_region(x, i, d->num_regions, NULL, &d->regions[d->num_regions]));
  return at_hp_build(x, i, d, out);
}

// One node of the row's op with all operands.
AT_HP_HOW(plain) {
  at_hp_vals v;
  at_node *n;
  AT_TRY(at_hp_operands(x, i, 0, &v));
  at_hp_node d = {.op = i->row->op, .operands = v.v, .num_operands = v.n};
  // XLA has select-and-scatter's computations in hlo's order: select, scatter.
  AT_TRY(build_plain(x, i, &d, &n));
  return at_hp_define_node(x, i, n);
}

// The literal is decoded and copied.
AT_HP_HOW(constant) {
  at_hp_node d = {.op = AT_OP_CONSTANT};
  at_attr value = {.id = AT_ATTR_VALUE};
  at_node *n;
  AT_TRY(at_hp_literal(x, i, at_proto_bytes(i->body, 8), &value.literal));
  AT_TRY(at_hp_attr_put(x, &d.attrs, value));
  AT_TRY(at_hp_build(x, i, &d, &n));
  return at_hp_define_node(x, i, n);
}

// ---- Tuples and what only moves them
// Hands on the values of operand 0; other operands only order the program.
AT_HP_HOW(first_operand) {
  at_hp_vals v;
  AT_TRY(at_hp_operand(x, i, 0, &v));
  return at_hp_define(x, i, v.v, v.n);
}

// `tuple` and markers: the operands' leaves are the result's.
AT_HP_HOW(all_operands) {
  at_hp_vals v;
  AT_TRY(at_hp_operands(x, i, 0, &v));
  return at_hp_define(x, i, v.v, v.n);
}

// A slice of the operand's leaves. Parts of a future are futures, unless its
// values do not match the declared shape, where no part can be told.
AT_HP_HOW(get_tuple_element) {
  const at_hp_inst *o;
  at_hp_vals v;
  int64_t k = at_proto_int(i->body, 13);
  AT_TRY(at_hp_need(x, i, 1));
  AT_TRY(at_hp_operand_inst(x, i, 0, &o));
  AT_TRY(at_hp_operand(x, i, 0, &v));
  if (!o->shape.is_tuple || k < 0 || k >= o->shape.num_elements)
    return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT,
                      "index %lld is outside of the operand", (long long)k);
  if (v.n != o->shape.num_leaves)
    return AT_HP_FAIL(x, i, AT_UNIMPLEMENTED,
                      "parts of an operation that is under way");
  uint32_t from = o->shape.first[k], n = o->shape.first[k + 1] - from;
  AT_ASSERT(from <= v.n && n <= v.n - from);
  return v.future ? at_hp_define_future(x, i, v.v + from, n)
                  : at_hp_define(x, i, v.v + from, n);
}

// ---- Bitcasts: the same bytes as another shape in another layout
static at_status transpose(at_hp *x, const at_hp_inst *i, const int64_t *perm,
                           at_value *io) {
  at_attr a = {.id = AT_ATTR_PERMUTATION};
  a.ints = (at_dims){perm, at_value_type(*io)->rank};
  bool same = true;
  for (uint32_t d = 0; d < a.ints.rank; d++) same &= perm[d] == d;
  if (same) return AT_OK;
  return at_hp_build_one(x, i, AT_OP_TRANSPOSE, io, 1, &a, 1, NULL, io);
}

// *io with these dimensions; no node where it has them already.
static at_status reshape(at_hp *x, const at_hp_inst *i, const int64_t *dims,
                         uint32_t rank, at_value *io) {
  at_type t = {.dtype = at_value_type(*io)->dtype, .rank = rank, .dims = dims};
  if (at_type_eq(&t, at_value_type(*io))) return AT_OK;
  return at_hp_build_one(x, i, AT_OP_RESHAPE, io, 1, NULL, 0, &t, io);
}

// To another element type: of a flat array, whose elements may become more or
// fewer.
static at_status bits_of(at_hp *x, const at_hp_inst *i, at_dtype to,
                         at_value *io) {
  at_type t = *at_value_type(*io);
  if (t.dtype == to) return AT_OK;
  int64_t n = at_type_elements(&t), dims[2] = {n, 1};
  int64_t from_bits = at_dtype_of(t.dtype)->bits,
          to_bits = at_dtype_of(to)->bits;
  if (from_bits < to_bits && from_bits > 0) {
    dims[1] = to_bits / from_bits;
    dims[0] = n / dims[1];
    if (dims[0] * dims[1] != n)
      return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT,
                        "%lld elements do not make whole ones", (long long)n);
    AT_TRY(reshape(x, i, dims, 2, io));
    at_type r = {.dtype = to, .rank = 1, .dims = dims};
    return at_hp_build_one(x, i, AT_OP_BITCAST_CONVERT, io, 1, NULL, 0, &r, io);
  }
  AT_TRY(reshape(x, i, dims, 1, io));
  if (from_bits > to_bits && to_bits > 0) dims[1] = from_bits / to_bits;
  at_type r = {.dtype = to, .rank = dims[1] > 1 ? 2 : 1, .dims = dims};
  return at_hp_build_one(x, i, AT_OP_BITCAST_CONVERT, io, 1, NULL, 0, &r, io);
}

// The operand is transposed until its row-major order is the order of its
// bytes, flattened or regrouped to the result's shape as it lies in memory, and
// transposed to the result's logical order. XLA keeps bitcasts for free; so are
// these where layouts agree.
AT_HP_HOW(bitcast) {
  const at_hp_inst *o;
  at_value v;
  AT_TRY(at_hp_need(x, i, 1));
  AT_TRY(at_hp_operand_inst(x, i, 0, &o));
  AT_TRY(at_hp_single(x, i, 0, &v));
  if (o->shape.is_tuple || i->shape.is_tuple)
    return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT, "takes an array");
  const at_hp_leaf *from = o->shape.leaves, *to = i->shape.leaves;
  uint32_t n = AT_MAX(from->type.rank, to->type.rank);
  int64_t *order, *dims, *back;
  AT_TRY_ALLOC(order, at_new(x->a, int64_t, (size_t)n + 1));
  AT_TRY_ALLOC(dims, at_new(x->a, int64_t, (size_t)n + 1));
  AT_TRY_ALLOC(back, at_new(x->a, int64_t, (size_t)n + 1));
  // As the operand lies in memory, major to minor.
  for (uint32_t d = 0; d < from->type.rank; d++)
    order[d] = from->layout.ptr[from->type.rank - 1 - d];
  AT_TRY(transpose(x, i, order, &v));
  AT_TRY(bits_of(x, i, to->type.dtype, &v));
  // As the result does.
  for (uint32_t d = 0; d < to->type.rank; d++) {
    int64_t dim = to->layout.ptr[to->type.rank - 1 - d];
    dims[d] = to->type.dims[dim];
    back[dim] = d;
  }
  AT_TRY(reshape(x, i, dims, to->type.rank, &v));
  AT_TRY(transpose(x, i, back, &v));
  return at_hp_define(x, i, &v, 1);
}

// ---- Calls and control flow
at_status at_hp_build_call(at_hp *x, const at_hp_inst *i, at_node **out) {
  at_hp_comp *c;
  at_hp_vals v;
  AT_TRY(at_hp_callee(x, i, 0, &c));
  AT_TRY(at_hp_operands(x, i, 0, &v));
  AT_TRY(at_hp_func(x, c));
  at_type *types;
  const at_hp_shape *result = &c->insts[c->root].shape;
  AT_TRY_ALLOC(types, at_new(x->a, at_type, (size_t)result->num_leaves + 1));
  for (uint32_t k = 0; k < result->num_leaves; k++)
    types[k] = result->leaves[k].type;
  at_hp_node d = {.op = AT_OP_CALL,
                  .operands = v.v,
                  .num_operands = v.n,
                  .types = types,
                  .num_types = result->num_leaves};
  at_attr callee = {.id = AT_ATTR_CALLEE, .s = at_str_of(c->func->name)};
  AT_TRY(at_hp_attr_put(x, &d.attrs, callee));
  return at_hp_build(x, i, &d, out);
}

// A call, or a manual computation where at_hp_manual_find has marked it.
AT_HP_HOW(call) {
  at_node *n;
  if (i->exit) return at_hp_manual_build(x, i);
  AT_TRY(at_hp_build_call(x, i, &n));
  return at_hp_define_node(x, i, n);
}

// The state's leaves are the loop's operands; both regions take all of them.
AT_HP_HOW(while) {
  at_hp_vals v;
  at_comp *regions[2];
  at_node *n;
  AT_TRY(at_hp_operands(x, i, 0, &v));
  // XLA: body, condition; hlo: condition, body.
  AT_TRY(at_hp_region(x, i, 1, NULL, &regions[0]));
  AT_TRY(at_hp_region(x, i, 0, NULL, &regions[1]));
  at_hp_node d = {.op = AT_OP_WHILE,
                  .operands = v.v,
                  .num_operands = v.n,
                  .regions = regions,
                  .num_regions = 2};
  AT_TRY(at_hp_build(x, i, &d, &n));
  return at_hp_define_node(x, i, n);
}

// (what to choose by, one argument for each branch)
AT_HP_HOW(conditional) {
  at_value by;
  at_node *n;
  uint32_t branches = i->called.rank;
  AT_TRY(at_hp_single(x, i, 0, &by));
  if (branches == 0 || i->operands.rank != branches + 1)
    return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT,
                      "has %u branches and %u operands", branches,
                      i->operands.rank);
  bool is_if = at_value_type(by)->dtype == AT_PRED;
  at_comp **regions;
  AT_TRY_ALLOC(regions, at_new(x->a, at_comp *, branches));
  for (uint32_t k = 0; k < branches; k++) {
    at_hp_vals arg;
    AT_TRY(at_hp_operand(x, i, k + 1, &arg));
    AT_TRY(at_hp_region(x, i, k, &arg, &regions[k]));
  }
  at_hp_node d = {.op = is_if ? AT_OP_IF : AT_OP_CASE,
                  .operands = &by,
                  .num_operands = 1,
                  .regions = regions,
                  .num_regions = branches};
  AT_TRY(at_hp_build(x, i, &d, &n));
  return at_hp_define_node(x, i, n);
}

// Over all dimensions, whether or not they are listed.
AT_HP_HOW(map) {
  at_hp_vals v;
  at_node *n;
  AT_TRY(at_hp_operands(x, i, 0, &v));
  at_hp_node d = {.op = AT_OP_MAP, .operands = v.v, .num_operands = v.n};
  int64_t *dims;
  uint32_t rank = v.n ? at_value_type(v.v[0])->rank : 0;
  AT_TRY_ALLOC(dims, at_new(x->a, int64_t, (size_t)rank + 1));
  for (uint32_t k = 0; k < rank; k++) dims[k] = k;
  d.regions = at_new(x->a, at_comp *, 1);
  if (!d.regions) return AT_NO_MEMORY("regions");
  AT_TRY(at_hp_region(x, i, 0, NULL, &d.regions[0]));
  d.num_regions = 1;
  at_attr a = {.id = AT_ATTR_DIMENSIONS, .ints = {dims, rank}};
  AT_TRY(at_hp_attr_put(x, &d.attrs, a));
  AT_TRY(at_hp_build(x, i, &d, &n));
  return at_hp_define_node(x, i, n);
}

// hlo's op takes the shape as an operand.
AT_HP_HOW(rng) {
  at_hp_vals v;
  at_node *n;
  AT_TRY(at_hp_operands(x, i, 0, &v));
  if (v.n != 2 || i->shape.num_leaves != 1)
    return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT, "takes two operands");
  const at_type *t = &i->shape.leaves[0].type;
  int64_t rank = t->rank;
  at_type list = {.dtype = AT_S64, .rank = 1, .dims = &rank};
  at_attr value = {.id = AT_ATTR_VALUE};
  AT_TRY(at_literal_make(x->a, list, t->dims, false, false, &value.literal));
  at_value operands[3] = {v.v[0], v.v[1]};
  AT_TRY(at_hp_build_one(x, i, AT_OP_CONSTANT, NULL, 0, &value, 1, NULL,
                         &operands[2]));
  at_hp_node d = {.op = AT_OP_RNG, .operands = operands, .num_operands = 3};
  AT_TRY(build_plain(x, i, &d, &n));
  return at_hp_define_node(x, i, n);
}

// Element k of a vector, as a scalar.
static at_status scalar_at(at_hp *x, const at_hp_inst *i, at_value vector,
                           int64_t k, at_value *out) {
  int64_t next = k + 1, stride = 1;
  at_attr a[] = {{.id = AT_ATTR_START_INDICES, .ints = {&k, 1}},
                 {.id = AT_ATTR_LIMIT_INDICES, .ints = {&next, 1}},
                 {.id = AT_ATTR_STRIDES, .ints = {&stride, 1}}};
  AT_TRY(
      at_hp_build_one(x, i, AT_OP_SLICE, &vector, 1, a, AT_LEN(a), NULL, out));
  return reshape(x, i, NULL, 0, out);
}

// XLA has two forms of the start indices, operands from `first` on: a scalar
// for each dimension, as hlo's op has them, or one vector of all.
static at_status dynamic_indices(at_hp *x, const at_hp_inst *i,
                                 uint32_t first) {
  at_hp_vals v;
  at_node *n;
  AT_TRY(at_hp_operands(x, i, 0, &v));
  at_hp_node d = {.op = i->row->op, .operands = v.v, .num_operands = v.n};
  const at_type *t = v.n == first + 1 ? at_value_type(v.v[first]) : NULL;
  if (t && t->rank == 1) {
    uint32_t rank = at_value_type(v.v[0])->rank;
    at_value *all;
    if (t->dims[0] != rank)
      return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT,
                        "has %lld start indices, the operand's rank is %u",
                        (long long)t->dims[0], rank);
    AT_TRY_ALLOC(all, at_new(x->a, at_value, (size_t)first + rank));
    memcpy(all, v.v, first * sizeof *all);
    for (uint32_t k = 0; k < rank; k++)
      AT_TRY(scalar_at(x, i, v.v[first], k, &all[first + k]));
    d.operands = all;
    d.num_operands = first + rank;
  }
  AT_TRY(build_plain(x, i, &d, &n));
  return at_hp_define_node(x, i, n);
}

AT_HP_HOW(dynamic_slice) { return dynamic_indices(x, i, 1); }
AT_HP_HOW(dynamic_update_slice) { return dynamic_indices(x, i, 2); }

// Sparsity stands in fields 86 and 98, or in a third operand.
AT_HP_HOW(dot) {
  if (at_proto_has(i->body, 86) || at_proto_bytes(i->body, 98).len ||
      i->operands.rank != 2)
    return AT_HP_FAIL(x, i, AT_UNIMPLEMENTED,
                      "products of sparse operands are not supported");
  return at_hp_how_plain(x, i);
}

// As with dot.
AT_HP_HOW(convolution) {
  if (at_proto_bytes(i->body, 98).len || i->operands.rank != 2)
    return AT_HP_FAIL(x, i, AT_UNIMPLEMENTED,
                      "convolutions of sparse operands are not supported");
  return at_hp_how_plain(x, i);
}

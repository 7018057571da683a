// Collectives, and operations in two halves: the first one does the work, the
// second hands it out. When that begins and who waits is for the scheduler.
#include "hloproto/hloproto_internal.h"

// The whole operation, built where it starts, with the given types.
static at_status start_build(at_hp *x, const at_hp_inst *i,
                             const at_type *types, uint32_t num_types,
                             at_node **out) {
  at_hp_vals v;
  AT_TRY(at_hp_operands(x, i, 0, &v));
  at_hp_node d = {.op = i->row->op,
                  .operands = v.v,
                  .num_operands = v.n,
                  .types = types,
                  .num_types = num_types};
  AT_TRY(at_hp_attrs_read(x, i, d.op, &d.attrs));
  at_comp *body;
  if (at_op_of(d.op)->regions) {
    AT_TRY(at_hp_region(x, i, 0, NULL, &body));
    d.regions = &body;
    d.num_regions = 1;
  }
  return at_hp_build(x, i, &d, out);
}

// All results of n, in the arena.
static at_status node_values(at_hp *x, const at_node *n, at_value **out) {
  AT_TRY_ALLOC(*out, at_new(x->a, at_value, (size_t)n->num_results + 1));
  for (uint32_t k = 0; k < n->num_results; k++)
    (*out)[k] = (at_value){(at_node *)n, k};
  return AT_OK;
}

// The shape is (operands, results), or only results (all-reduce-start): what
// follows the operands, if anything does.
AT_HP_HOW(start) {
  at_node *n;
  at_type *types;
  at_hp_vals v;
  at_value *values;
  AT_TRY(at_hp_operands(x, i, 0, &v));
  AT_TRY(at_hp_types(x, i, &types));
  uint32_t all = i->shape.num_leaves, skip = all == 2 * v.n ? v.n : 0;
  AT_TRY(start_build(x, i, types + skip, all - skip, &n));
  AT_TRY(node_values(x, n, &values));
  return at_hp_define_future(x, i, values, n->num_results);
}

// Replaces every operand by a node of the row's op on it alone.
static at_status each(at_hp *x, const at_hp_inst *i, at_hp_vals *out) {
  AT_TRY(at_hp_operands(x, i, 0, out));
  for (uint32_t k = 0; k < out->n; k++) {
    at_hp_node d = {.op = i->row->op,
                    .operands = &out->v[k],
                    .num_operands = 1,
                    .types = at_value_type(out->v[k]),
                    .num_types = 1};
    at_node *n;
    AT_TRY(at_hp_attrs_read(x, i, d.op, &d.attrs));
    AT_TRY(at_hp_build(x, i, &d, &n));
    out->v[k] = (at_value){n, 0};
  }
  return AT_OK;
}

// One op for each operand.
AT_HP_HOW(each_operand) {
  at_hp_vals v;
  AT_TRY(each(x, i, &v));
  return at_hp_define(x, i, v.v, v.n);
}

// The same; its `done` hands the values out.
AT_HP_HOW(start_each) {
  at_hp_vals v;
  AT_TRY(each(x, i, &v));
  return at_hp_define_future(x, i, v.v, v.n);
}

// The copy's result is its operand: memory spaces do not change values.
AT_HP_HOW(copy_start) {
  at_hp_vals v;
  AT_TRY(at_hp_operand(x, i, 0, &v));
  return at_hp_define_future(x, i, v.v, v.n);
}

// `copy` and the like do not care what their operand is; a future is what it
// will be.
AT_HP_HOW(done) { return at_hp_how_first_operand(x, i); }

// A call of the wrapped computation; its results are the future's.
AT_HP_HOW(async_start) {
  at_node *n;
  at_value *values;
  AT_TRY(at_hp_build_call(x, i, &n));
  AT_TRY(node_values(x, n, &values));
  return at_hp_define_future(x, i, values, n->num_results);
}

// Hands the future on.
AT_HP_HOW(async_update) { return at_hp_how_copy_start(x, i); }

// ---- all-to-all

// Devices in one group: the split count of an array all-to-all, which XLA
// leaves to the groups.
static at_status group_size(at_hp *x, const at_hp_inst *i, int64_t *out) {
  at_attr groups = {.id = AT_ATTR_REPLICA_GROUPS};
  AT_TRY(at_hp_groups(x, i, &groups));
  if (groups.groups.n && groups.groups.list[0].rank)
    return *out = groups.groups.list[0].rank, AT_OK;
  // One group of all: as many as the program has.
  *out =
      at_proto_int(i->body, 26) > 0 ? x->m->num_partitions : x->m->num_replicas;
  return AT_OK;
}

// ALL_TO_ALL of one array that is split and joined along `dim` into `count`
// parts.
static at_status build_all_to_all(at_hp *x, const at_hp_inst *i, at_value v,
                                  int64_t dim, int64_t count, at_type t,
                                  at_value *out) {
  at_hp_node d = {.op = AT_OP_ALL_TO_ALL,
                  .operands = &v,
                  .num_operands = 1,
                  .types = &t,
                  .num_types = 1};
  at_attr groups = {.id = AT_ATTR_REPLICA_GROUPS};
  AT_TRY(at_hp_groups(x, i, &groups));
  AT_TRY(at_hp_attr_put(x, &d.attrs, groups));
  const struct {
    at_attr_id id;
    int64_t value;
  } more[] = {{AT_ATTR_SPLIT_DIMENSION, dim},
              {AT_ATTR_CONCAT_DIMENSION, dim},
              {AT_ATTR_SPLIT_COUNT, count},
              {AT_ATTR_CHANNEL_ID, AT_MAX(at_proto_int(i->body, 26), 0)}};
  for (size_t k = 0; k < AT_LEN(more); k++)
    AT_TRY(at_hp_attr_put(x, &d.attrs,
                          (at_attr){.id = more[k].id, .i = more[k].value}));
  at_node *n;
  AT_TRY(at_hp_build(x, i, &d, &n));
  *out = (at_value){n, 0};
  return AT_OK;
}

// One operand for each device of the group: they become one array with the
// device as its first dimension.
static at_status all_to_all_tuple(at_hp *x, const at_hp_inst *i,
                                  at_hp_vals *v) {
  const at_type *t = at_value_type(v->v[0]);
  int64_t *dims, *from, *to, *step;
  uint32_t rank = t->rank + 1;
  AT_TRY_ALLOC(dims, at_new(x->a, int64_t, rank));
  AT_TRY_ALLOC(from, at_new(x->a, int64_t, (size_t)rank * v->n));
  AT_TRY_ALLOC(to, at_new(x->a, int64_t, (size_t)rank * v->n));
  AT_TRY_ALLOC(step, at_new(x->a, int64_t, rank));
  dims[0] = 1;
  step[0] = 1;
  for (uint32_t d = 1; d < rank; d++) dims[d] = t->dims[d - 1], step[d] = 1;
  at_type one = {.dtype = t->dtype, .rank = rank, .dims = dims};
  for (uint32_t k = 0; k < v->n; k++)
    AT_TRY(at_hp_build_one(x, i, AT_OP_RESHAPE, &v->v[k], 1, NULL, 0, &one,
                           &v->v[k]));
  at_attr first = {.id = AT_ATTR_DIMENSION, .i = 0};
  at_value all;
  AT_TRY(at_hp_build_one(x, i, AT_OP_CONCATENATE, v->v, v->n, &first, 1, NULL,
                         &all));
  AT_TRY(build_all_to_all(x, i, all, 0, v->n, *at_value_type(all), &all));
  for (uint32_t k = 0; k < v->n; k++) {
    int64_t *lo = from + (size_t)k * rank, *hi = to + (size_t)k * rank;
    for (uint32_t d = 0; d < rank; d++) lo[d] = 0, hi[d] = dims[d];
    lo[0] = k;
    hi[0] = k + 1;
    at_attr a[3] = {{.id = AT_ATTR_START_INDICES, .ints = {lo, rank}},
                    {.id = AT_ATTR_LIMIT_INDICES, .ints = {hi, rank}},
                    {.id = AT_ATTR_STRIDES, .ints = {step, rank}}};
    at_hp_node d = {.op = AT_OP_SLICE,
                    .operands = &all,
                    .num_operands = 1,
                    .types = &one,
                    .num_types = 1};
    at_node *n;
    for (int j = 0; j < 3; j++) AT_TRY(at_hp_attr_put(x, &d.attrs, a[j]));
    AT_TRY(at_hp_build(x, i, &d, &n));
    at_value part = {n, 0};
    if (k >= i->shape.num_leaves)
      return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT, "gives too few arrays");
    AT_TRY(at_hp_build_one(x, i, AT_OP_RESHAPE, &part, 1, NULL, 0,
                           &i->shape.leaves[k].type, &v->v[k]));
  }
  return at_hp_define(x, i, v->v, v->n);
}

// With a split dimension: one exchange for each operand. Without: the tuple
// form.
AT_HP_HOW(all_to_all) {
  at_hp_vals v;
  at_dims split;
  AT_TRY(at_hp_operands(x, i, 0, &v));
  AT_TRY(at_proto_list(i->body, 14, "dimensions", x->a, &split));
  if (v.n == 0)
    return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT, "needs an operand");
  if (split.rank == 0) return all_to_all_tuple(x, i, &v);
  int64_t count;
  AT_TRY(group_size(x, i, &count));
  if (v.n != i->shape.num_leaves)
    return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT, "declares %u arrays, gives %u",
                      i->shape.num_leaves, v.n);
  for (uint32_t k = 0; k < v.n; k++)
    AT_TRY(build_all_to_all(x, i, v.v[k], split.ptr[0], count,
                            i->shape.leaves[k].type, &v.v[k]));
  return at_hp_define(x, i, v.v, v.n);
}

// A scatter of one element a row into an array of equal elements (the gradient
// of picking a label's logit) says for each element whether it is the row's:
// a comparison and a select, which fuse with what reads the array. The scatter
// would fill it, write into it, and have it read again.
#include "passes/passes_internal.h"

enum { MAX_RANK = 32 };

// Is `list` the dimensions of x but d, in order?
static bool is_all_but(at_dims list, const at_type *x, int64_t d) {
  if (list.rank + 1 != x->rank || x->rank > MAX_RANK) return false;
  for (uint32_t i = 0; i < list.rank; i++)
    if (list.ptr[i] != i + (i >= d)) return false;
  return true;
}

static bool ascends(at_dims list) {
  for (uint32_t i = 1; i < list.rank; i++)
    if (list.ptr[i] <= list.ptr[i - 1]) return false;
  return true;
}

// The dimension that the scatter's index picks along, if all others are rows
// of one update each; -1 otherwise.
static int64_t picked_dimension(const at_node *n) {
  if (n->op != AT_OP_SCATTER || n->num_operands != 3) return -1;
  const at_type *x = &n->types[0], *u = at_value_type(n->operands[2]);
  at_dims map = at_node_ints(n, AT_ATTR_SCATTER_DIMS_TO_OPERAND_DIMS),
          inserted = at_node_ints(n, AT_ATTR_INSERTED_WINDOW_DIMS);
  if (map.rank != 1 || inserted.rank != 1 || inserted.ptr[0] != map.ptr[0] ||
      at_node_ints(n, AT_ATTR_UPDATE_WINDOW_DIMS).rank)
    return -1;
  int64_t d = map.ptr[0], rows = at_type_elements(u);
  at_dtype index = at_value_type(n->operands[1])->dtype;
  if (!is_all_but(at_node_ints(n, AT_ATTR_INPUT_BATCHING_DIMS), x, d) ||
      !ascends(at_node_ints(n, AT_ATTR_SCATTER_INDICES_BATCHING_DIMS)) ||
      rows == 0 || rows * x->dims[d] != at_type_elements(x) ||
      (at_dtype_bytes(index) < 8 &&
       x->dims[d] > 1ll << (at_dtype_bytes(index) * 4)))
    return -1;
  return d;
}

// What every row becomes at its place: the body of the element that is there
// and of the update. out->node stays NULL where the body is not elementwise.
static at_status changed(at_node *n, const void *element, at_dims rows,
                         at_value *out) {
  at_value args[2];
  at_type t;
  AT_TRY(at_type_make(n->parent->module->arena, n->types[0].dtype, rows, &t));
  AT_TRY(at_mk_splat(n, t, element, &args[0]));
  AT_TRY(at_mk_reshape(n, n->operands[2], rows, &args[1]));
  return at_mk_mapped(n, n->regions[0], args, rows, out);
}

// select(place == index, body(element, update), element). What lies outside is
// equal to no place, as a scatter leaves it out.
static at_status spread(at_rw *r, at_node *n) {
  if (n->op != AT_OP_SCATTER) return AT_OK;
  const void *element = at_splat_of(n->operands[0]);
  int64_t d = element ? picked_dimension(n) : -1;
  if (d < 0) return AT_OK;
  const at_type *x = &n->types[0];
  at_dims dims = at_type_dims(x);
  at_dims batch = at_node_ints(n, AT_ATTR_INPUT_BATCHING_DIMS);
  int64_t sizes[MAX_RANK];
  for (uint32_t i = 0; i < batch.rank; i++) sizes[i] = x->dims[batch.ptr[i]];
  at_dims rows = {sizes, batch.rank};
  at_value old, index, place, mine, made, v;
  AT_TRY(changed(n, element, rows, &made));
  if (!made.node) return AT_OK;
  AT_TRY(at_mk_broadcast(n, made, dims, batch.ptr, &made));
  AT_TRY(at_mk_splat(n, *x, element, &old));
  AT_TRY(at_mk_reshape(n, n->operands[1], rows, &index));
  AT_TRY(at_mk_broadcast(n, index, dims, batch.ptr, &index));
  at_attr along = at_attr_int(AT_ATTR_DIMENSION, d);
  AT_TRY(
      at_mk(n, AT_OP_IOTA, NULL, 0, &along, 1, at_value_type(index), &place));
  AT_TRY(at_mk_compare(n, AT_EQ, place, index, &mine));
  at_value pick[] = {mine, made, old};
  AT_TRY(at_mk(n, AT_OP_SELECT, pick, 3, NULL, 0, &n->types[0], &v));
  return at_fwd_set(r, n, 0, v);
}

at_status at_pass_scatters(at_module *m, const at_pass_options *o) {
  return o->small_products ? at_rw_each(m, o, spread) : AT_OK;
}

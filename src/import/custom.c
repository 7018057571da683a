// custom_call and composite.
#include <stdio.h>
#include <stdlib.h>

#include "import/import_internal.h"

// ---- custom_call

// Is each of the dimensions there once?
static at_status check_order(at_imp *x, const at_mop *op, const char *name,
                             at_dims order) {
  bool *seen;
  AT_TRY_ALLOC(seen, at_new(x->a, bool, (size_t)order.rank + 1));
  for (uint32_t i = 0; i < order.rank; i++) {
    int64_t d = order.ptr[i];
    if (d < 0 || d >= order.rank || seen[d])
      return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                        "attribute `%s`: not an order of %u dimensions", name,
                        order.rank);
    seen[d] = true;
  }
  return AT_OK;
}

// [dense<[0, 1]>, ...]: one minor-to-major list per operand or result.
static at_status layouts_read(at_imp *x, const at_mop *op, const char *name,
                              at_attr_id id, at_attr_vec *out) {
  const at_mattr *t = at_mop_attr(op, name);
  if (!t) return AT_OK;
  if (t->kind != AT_MATTR_ARRAY)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                      "attribute `%s` must be a list", name);
  if (t->num_elems == 0) return AT_OK;
  at_dims *list;
  AT_TRY_ALLOC(list, at_new(x->a, at_dims, t->num_elems));
  for (uint32_t i = 0; i < t->num_elems; i++) {
    AT_TRY(at_imp_ints(x, op, name, t->elems[i], &list[i]));
    AT_TRY(check_order(x, op, name, list[i]));
  }
  at_attr a = {.id = id};
  a.groups.list = list;
  a.groups.n = t->num_elems;
  return at_imp_attr_put(x, out, a);
}

// Where a path into nested tuples starts among the leaves, and how many there
// are.
static bool leaf_range(at_imp *x, const at_mtype *t, at_dims path,
                       uint32_t *first, uint32_t *count) {
  for (uint32_t i = 0; i < path.rank; i++) {
    int64_t k = path.ptr[i];
    if (t->kind != AT_MTYPE_TUPLE || k < 0 || k >= t->num_types) return false;
    for (int64_t j = 0; j < k; j++) *first += at_imp_leaves(x, t->types[j]);
    t = t->types[k];
  }
  *count = at_imp_leaves(x, t);
  return *first <= AT_IMP_MAX_LEAVES && *count <= AT_IMP_MAX_LEAVES;
}

// The leaves that an output path names. The path's first index picks the result
// when the op has several; a single result is its own root.
static bool output_range(at_imp *x, const at_mop *op, at_dims path,
                         uint32_t *first, uint32_t *count) {
  if (op->num_results == 0) return false;
  if (op->num_results == 1 &&
      (path.rank == 0 || op->results[0].type->kind == AT_MTYPE_TUPLE))
    return leaf_range(x, op->results[0].type, path, first, count);
  if (path.rank == 0 || path.ptr[0] < 0 || path.ptr[0] >= op->num_results)
    return false;
  for (int64_t i = 0; i < path.ptr[0]; i++)
    *first += at_imp_leaves(x, op->results[i].type);
  return leaf_range(x, op->results[path.ptr[0]].type,
                    (at_dims){path.ptr + 1, path.rank - 1}, first, count);
}

typedef AT_VEC(at_dims) dims_vec;

// One #stablehlo.output_operand_alias: a path into the results, an operand, a
// path into it. Both ends may be tuples of the same number of leaves; each leaf
// then gives one pair.
static at_status alias_read(at_imp *x, const at_mop *op, const at_mattr *t,
                            dims_vec *out) {
  const at_mattr *to = at_mattr_field(t, "output_tuple_indices");
  const at_mattr *from = at_mattr_field(t, "operand_tuple_indices");
  const at_mattr *index = at_mattr_field(t, "operand_index");
  at_dims to_path = {0}, from_path = {0};
  int64_t operand = -1;
  if (to) AT_TRY(at_imp_ints(x, op, "output_tuple_indices", to, &to_path));
  if (from)
    AT_TRY(at_imp_ints(x, op, "operand_tuple_indices", from, &from_path));
  if (!index || !at_mattr_int(index, &operand) || operand < 0 ||
      operand >= op->num_operands)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT, "an alias names no operand");
  uint32_t first_in = 0, first_out = 0, n_in = 0, n_out = 0;
  for (int64_t i = 0; i < operand; i++)
    first_in += at_imp_leaves(x, op->operands[i]->type);
  if (!leaf_range(x, op->operands[operand]->type, from_path, &first_in,
                  &n_in) ||
      !output_range(x, op, to_path, &first_out, &n_out) || n_in != n_out)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                      "an alias names no operand or no result");
  for (uint32_t i = 0; i < n_in; i++) {
    at_dims pair;
    AT_TRY(at_imp_dims(x, (int64_t[]){first_out + i, first_in + i}, 2, &pair));
    if (!at_vec_push(x->a, out, pair)) return AT_NO_MEMORY("aliases");
  }
  return AT_OK;
}

// Groups of two: [result, operand], both counted after tuples are flattened.
static at_status aliases_read(at_imp *x, const at_mop *op, at_attr_vec *out) {
  const at_mattr *t = at_mop_attr(op, "output_operand_aliases");
  if (!t || t->kind != AT_MATTR_ARRAY || t->num_elems == 0) return AT_OK;
  dims_vec pairs = {0};
  for (uint32_t i = 0; i < t->num_elems; i++)
    AT_TRY(alias_read(x, op, t->elems[i], &pairs));
  at_attr a = {.id = AT_ATTR_OUTPUT_OPERAND_ALIASES};
  a.groups.list = pairs.ptr;
  a.groups.n = (uint32_t)pairs.len;
  return at_imp_attr_put(x, out, a);
}

// A dictionary travels as bytes; a later one (mhlo.attributes) replaces an
// earlier one.
static at_status config_dict(at_imp *x, const at_mop *op, const at_mattr *t,
                             at_attr_vec *out) {
  at_attr a = {.id = AT_ATTR_BACKEND_CONFIG_DICT};
  AT_TRY(at_imp_dict(x, op, t, &a.s));
  return at_imp_attr_put(x, out, a);
}

// backend_config may be text or a dictionary, and a dictionary may also hang on
// the op as a discardable attribute. Text is kept even if empty, so that the
// attribute is there.
static at_status config_read(at_imp *x, const at_mop *op, at_attr_vec *out) {
  const at_mattr *t = at_mop_attr(op, "backend_config");
  if (t && t->kind == AT_MATTR_DICT) {
    AT_TRY(config_dict(x, op, t, out));
  } else {
    at_attr a = {.id = AT_ATTR_BACKEND_CONFIG};
    AT_TRY(at_imp_str(x, op, "backend_config", &a.s));
    AT_TRY(at_imp_attr_put(x, out, a));
  }
  t = at_mop_attr(op, "mhlo.backend_config");
  // What a stand-in for an op of MHLO's has for attributes.
  if (!t) t = at_mop_attr(op, "mhlo.attributes");
  if (t && t->kind == AT_MATTR_DICT) return config_dict(x, op, t, out);
  return AT_OK;
}

// stablehlo: an i32; VHLO: an enum.
static at_status api_version_read(at_imp *x, const at_mop *op,
                                  at_attr_vec *out) {
  static const char *const names[] = {
      "API_VERSION_UNSPECIFIED", "API_VERSION_ORIGINAL",
      "API_VERSION_STATUS_RETURNING", "API_VERSION_STATUS_RETURNING_UNIFIED",
      "API_VERSION_TYPED_FFI"};
  const at_mattr *t = at_mop_attr(op, "api_version");
  at_attr a = {.id = AT_ATTR_API_VERSION, .i = 1};
  if (t && !at_mattr_int(t, &a.i)) {
    a.i = -1;
    for (size_t i = 0; i < AT_LEN(names); i++)
      if (at_str_is(t->str, names[i])) a.i = (int64_t)i;
  }
  if (a.i < 0 || a.i >= (int64_t)AT_LEN(names))
    return AT_OP_FAIL(x, op, AT_UNIMPLEMENTED,
                      "this API version of custom calls is not supported");
  return at_imp_attr_put(x, out, a);
}

// Functions that the custom call names, each imported anew as a region of the
// node, because a region has one owner.
static at_status called_regions(at_imp *x, const at_mop *op, at_imp_node *d) {
  const at_mattr *t = at_mop_attr(op, "called_computations");
  uint32_t n = t && t->kind == AT_MATTR_ARRAY ? t->num_elems : 0;
  AT_TRY_ALLOC(d->regions, at_new(x->a, at_comp *, (size_t)n + 1));
  for (; d->num_regions < n; d->num_regions++)
    AT_TRY(at_imp_func_region(x, op, t->elems[d->num_regions]->str,
                              &d->regions[d->num_regions]));
  return AT_OK;
}

// Attributes of an at_mop stand in the order of their names.
static int by_name(const void *a, const void *b) {
  return strcmp(((const at_mnamed *)a)->name, ((const at_mnamed *)b)->name);
}

// The attributes of a composite, and of some custom calls, stand in a
// dictionary; seen as the attributes of an op, beside what JAX attached to it
// ("mhlo.sharding").
static at_status as_op(at_imp *x, const at_mop *op, const at_mattr *attrs,
                       at_mop *out) {
  uint32_t n = attrs ? attrs->num_elems : 0;
  at_mnamed *all;
  AT_TRY_ALLOC(all, at_new(x->a, at_mnamed, (size_t)n + op->num_attrs + 1));
  for (uint32_t i = 0; i < n; i++) all[i] = attrs->fields[i];
  for (uint32_t i = 0; i < op->num_attrs; i++)
    if (strchr(op->attrs[i].name, '.')) all[n++] = op->attrs[i];
  qsort(all, n, sizeof *all, by_name);
  AT_ASSERT(n <= (attrs ? attrs->num_elems : 0) + op->num_attrs);
  *out = *op;
  out->attrs = all;
  out->num_attrs = n;
  return AT_OK;
}

// The collective that StableHLO has no op for.
static at_status ragged_all_to_all(at_imp *x, const at_mop *op) {
  static const at_imp_row row = {.op = AT_OP_RAGGED_ALL_TO_ALL};
  const at_mattr *config = at_mop_attr(op, "backend_config");
  if (!config || config->kind != AT_MATTR_DICT)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                      "ragged_all_to_all has no groups");
  at_mop plain;
  AT_TRY(as_op(x, op, config, &plain));
  x->original = op;
  at_status st = at_imp_how_plain(x, &plain, &row);
  x->original = NULL;
  return st;
}

// An op that StableHLO has no word for travels as a call of its name in MHLO or
// chlo, with its attributes in a dictionary (`mhlo.erf`): the row of that name
// in StableHLO or chlo. NULL: there is none.
static const at_imp_row *mhlo_row(at_str target) {
  static const char *const dialects[] = {"chlo", "stablehlo"};
  static const char *const renamed[][2] = {{"mhlo.topk", "chlo.top_k"}};
  char z[64];
  for (size_t i = 0; i < AT_LEN(renamed); i++)
    if (at_str_is(target, renamed[i][0])) return at_imp_row_find(renamed[i][1]);
  if (!at_str_starts(target, "mhlo.") && !at_str_starts(target, "chlo."))
    return NULL;
  for (size_t i = 0; i < AT_LEN(dialects); i++) {
    int n = snprintf(z, sizeof z, "%s.%.*s", dialects[i], (int)target.len - 5,
                     target.ptr + 5);
    const at_imp_row *row = n < (int)sizeof z ? at_imp_row_find(z) : NULL;
    if (row && row->op != AT_OP_COUNT && row->op != AT_OP_CUSTOM_CALL)
      return row;
  }
  return NULL;
}

// Imports the call as if it were the op that `row` is about. x->original keeps
// the call for locations while the copy on this stack is imported.
static at_status mhlo_op(at_imp *x, const at_mop *op, const at_imp_row *row) {
  const at_mattr *attrs = at_mop_attr(op, "mhlo.attributes");
  if (attrs && attrs->kind != AT_MATTR_DICT)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                      "mhlo.attributes must be a dictionary");
  at_mop plain;
  AT_TRY(as_op(x, op, attrs, &plain));
  x->original = op;
  at_status st = row->how(x, &plain, row);
  x->original = NULL;
  return st;
}

// A call that stands for an op becomes that op; every other one becomes a
// CUSTOM_CALL node with what StableHLO says about it. Which targets exist is
// for the backend to say, not for the import.
AT_IMP_HOW(custom_call) {
  at_vals operands;
  at_types types;
  AT_TRY(at_imp_operands(x, op, &operands));
  AT_TRY(at_imp_result_types(x, op, &types));
  at_imp_node d = {.op = AT_OP_CUSTOM_CALL,
                   .operands = operands.v,
                   .num_operands = operands.n,
                   .types = types.t,
                   .num_types = types.n,
                   .outer = true};
  at_attr name = {.id = AT_ATTR_CALL_TARGET_NAME};
  at_attr effect = {.id = AT_ATTR_HAS_SIDE_EFFECT};
  AT_TRY(at_imp_str(x, op, "call_target_name", &name.s));
  AT_TRY(at_imp_int(x, op, "has_side_effect", 0, &effect.i));
  if (name.s.len == 0)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                      "attribute `call_target_name` is missing");
  if (at_str_is(name.s, "ragged_all_to_all")) return ragged_all_to_all(x, op);
  const at_imp_row *mhlo = mhlo_row(name.s);
  if (mhlo) return mhlo_op(x, op, mhlo);
  AT_TRY(at_imp_attr_put(x, &d.attrs, name));
  AT_TRY(at_imp_attr_put(x, &d.attrs, effect));
  AT_TRY(config_read(x, op, &d.attrs));
  AT_TRY(api_version_read(x, op, &d.attrs));
  AT_TRY(aliases_read(x, op, &d.attrs));
  AT_TRY(layouts_read(x, op, "operand_layouts", AT_ATTR_OPERAND_LAYOUTS,
                      &d.attrs));
  AT_TRY(
      layouts_read(x, op, "result_layouts", AT_ATTR_RESULT_LAYOUTS, &d.attrs));
  at_attr kernel = {.id = AT_ATTR_KERNEL_NAME};
  AT_TRY(at_imp_str(x, op, "kernel_name", &kernel.s));
  if (kernel.s.len) AT_TRY(at_imp_attr_put(x, &d.attrs, kernel));
  at_attr shapes = {.id = AT_ATTR_SHAPE_OPERANDS};
  const at_mattr *list = at_mop_attr(op, "indices_of_shape_operands");
  if (list) {
    AT_TRY(at_imp_ints(x, op, "indices_of_shape_operands", list, &shapes.ints));
    AT_TRY(at_imp_attr_put(x, &d.attrs, shapes));
  }
  AT_TRY(called_regions(x, op, &d));
  at_node *n;
  AT_TRY(at_imp_build(x, op, &d, &n));
  return at_imp_define_node(x, op, n);
}

// ---- composite

// Every operand is a tensor of real elements.
static bool all_real(const at_mop *op) {
  for (uint32_t i = 0; i < op->num_operands; i++) {
    const at_mtype *t = op->operands[i]->type;
    if (t->kind != AT_MTYPE_TENSOR || t->elem->kind == AT_MTYPE_COMPLEX)
      return false;
  }
  return true;
}

// A chlo row whose op takes these operands as they are; NULL: keep the
// composite.
static const at_imp_row *direct_row(const at_mop *op, at_str name,
                                    int64_t version, char z[64]) {
  if (version > 1 || !at_str_starts(name, "chlo.") || name.len >= 64)
    return NULL;
  memcpy(z, name.ptr, name.len);
  z[name.len] = 0;
  const at_imp_row *row = at_imp_row_find(z);
  if (!row || row->op == AT_OP_COUNT || op->num_regions) return NULL;
  // Complex arguments take the decomposition: it is how their results are
  // defined.
  return all_real(op) ? row : NULL;
}

// First choice: the chlo op of that name, imported directly. If the op refuses
// these types or attributes, its error is dropped and the composite stays with
// its decomposition, which always says the same. RESOURCE_EXHAUSTED is reported
// as it is.
AT_IMP_HOW(composite) {
  at_attr name = {.id = AT_ATTR_NAME}, version = {.id = AT_ATTR_VERSION};
  AT_TRY(at_imp_str(x, op, "name", &name.s));
  AT_TRY(at_imp_int(x, op, "version", 0, &version.i));
  const at_mattr *attrs = at_mop_attr(op, "composite_attributes");
  if (attrs && attrs->kind != AT_MATTR_DICT)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                      "composite_attributes must be a dictionary");
  char z[64];
  const at_imp_row *direct = direct_row(op, name.s, version.i, z);
  if (direct) {
    at_mop chlo;
    AT_TRY(as_op(x, op, attrs, &chlo));
    x->original = op;
    at_status s = direct->how(x, &chlo, direct);
    x->original = NULL;
    // Types or attributes that the op does not take: the decomposition has
    // them.
    if (at_ok(s) || at_status_code(s) == AT_RESOURCE_EXHAUSTED) return s;
    at_status_free(s);
  }
  // Regions only tell more about what the decomposition does.
  at_imp_node d = {.op = AT_OP_COMPOSITE};
  AT_TRY(at_imp_attr_put(x, &d.attrs, name));
  AT_TRY(at_imp_attr_put(x, &d.attrs, version));
  if (attrs && attrs->num_elems) {
    at_attr bytes = {.id = AT_ATTR_COMPOSITE_ATTRIBUTES};
    AT_TRY(at_imp_dict(x, op, attrs, &bytes.s));
    AT_TRY(at_imp_attr_put(x, &d.attrs, bytes));
  }
  return at_imp_call(x, op, &d, "decomposition");
}

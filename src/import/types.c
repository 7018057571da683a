// MLIR types and dense data into hlo's.
#include "import/import_internal.h"

// !quant.uniform and its VHLO spelling.
static bool is_quantised(const at_mtype *t) {
  return t->name && (strstr(t->name, "quant") != NULL);
}

// UNIMPLEMENTED: `what`, then the type as MLIR prints it.
static at_status type_refuse(at_imp *x, const at_mop *op, const at_mtype *t,
                             const char *what) {
  at_strbuf b = {0};
  at_mtype_print(&b, t);
  at_status s = AT_OP_FAIL(x, op, AT_UNIMPLEMENTED, "%s: %.200s", what,
                           b.ptr ? b.ptr : "?");
  at_strbuf_free(&b);
  return s;
}

// The token type of each dialect that may spell it.
static bool is_token(const at_mtype *t) {
  return t->kind == AT_MTYPE_DIALECT && t->name &&
         (!strcmp(t->name, "stablehlo.token") ||
          !strcmp(t->name, "vhlo.token_v1") || !strcmp(t->name, "mhlo.token"));
}

bool at_imp_is_future(const at_mtype *t) {
  return t->kind == AT_MTYPE_DIALECT && t->name &&
         (!strcmp(t->name, "stablehlo.future") ||
          !strcmp(t->name, "vhlo.future_v1"));
}

// A type of several values: they take its place.
static bool is_bundle(const at_mtype *t) {
  return t->kind == AT_MTYPE_TUPLE || at_imp_is_future(t);
}

// Integer and float widths map through mlir's own table; hlo has complex
// numbers of f32 and f64 only.
at_status at_imp_dtype(at_imp *x, const at_mop *op, const at_mtype *t,
                       at_dtype *out) {
  at_dtype d = AT_INVALID;
  if (t->kind == AT_MTYPE_INTEGER || t->kind == AT_MTYPE_FLOAT) {
    d = at_mtype_dtype(t);
  } else if (t->kind == AT_MTYPE_COMPLEX && t->elem && t->elem->name) {
    if (!strcmp(t->elem->name, "f32")) d = AT_C64;
    if (!strcmp(t->elem->name, "f64")) d = AT_C128;
  } else if (is_quantised(t)) {
    return type_refuse(x, op, t, "quantised element types are not supported");
  }
  if (d == AT_INVALID)
    return type_refuse(x, op, t, "element type is not supported");
  *out = d;
  return AT_OK;
}

// The bounds of dynamic dimensions: #stablehlo.bounds<?, 4>.
static at_status type_bounds(at_imp *x, const at_mop *op, const at_mtype *t,
                             const int64_t **out) {
  *out = NULL;
  if (!t->encoding) return AT_OK;
  const at_mattr *e = t->encoding;
  if (e->kind != AT_MATTR_DIALECT ||
      (!strstr(e->name, "bounds") && !strstr(e->name, "type_extensions")))
    return type_refuse(x, op, t, "tensor encoding is not supported");
  const at_mattr *field = at_mattr_field(e, "bounds");
  at_dims b = e->ints;
  if (field) AT_TRY(at_imp_ints(x, op, "bounds", field, &b));
  if (b.rank != t->shape.rank)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                      "tensor of rank %u has %u bounds", t->shape.rank, b.rank);
  at_dims copy;
  AT_TRY(at_imp_dims(x, b.ptr, b.rank, &copy));
  *out = copy.ptr;
  return AT_OK;
}

// Static shapes must have a size in bytes that fits size_t; the product is
// checked once here, so later code may multiply.
at_status at_imp_type(at_imp *x, const at_mop *op, const at_mtype *t,
                      at_type *out) {
  if (is_token(t)) return *out = at_type_scalar(AT_TOKEN), AT_OK;
  // A buffer that a program pinned is the array in it.
  if (t->kind != AT_MTYPE_TENSOR && t->kind != AT_MTYPE_MEMREF)
    return type_refuse(x, op, t, "only ranked tensors are supported");
  at_dtype d;
  AT_TRY(at_imp_dtype(x, op, t->elem, &d));
  for (uint32_t i = 0; i < t->shape.rank; i++)
    if (t->shape.ptr[i] < 0 && t->shape.ptr[i] != AT_MDYN)
      return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                        "dimension %u of a tensor is %lld", i,
                        (long long)t->shape.ptr[i]);
  at_type r;
  AT_TRY(at_type_make(x->a, d, t->shape, &r));
  AT_TRY(type_bounds(x, op, t, &r.bounds));
  if (at_type_is_static(&r) && at_type_bytes(&r) == SIZE_MAX)
    return type_refuse(x, op, t, "tensor is too large");
  AT_ASSERT(r.rank == t->shape.rank && r.dtype != AT_INVALID);
  *out = r;
  return AT_OK;
}

// Counted once per type: tuples of tuples may share their parts, and a small
// file can then describe a very large type.
uint32_t at_imp_leaves(at_imp *x, const at_mtype *t) {
  if (!is_bundle(t)) return 1;
  void **seen = at_map_find_ptr(&x->leaves, t);
  if (seen) return (uint32_t)(uintptr_t)*seen;
  uint32_t n = 0;
  for (uint32_t i = 0; i < t->num_types; i++)
    n = AT_MIN(n + at_imp_leaves(x, t->types[i]), AT_IMP_MAX_LEAVES + 1);
  void **slot = at_map_put_ptr(&x->leaves, t);
  if (!slot) return AT_IMP_MAX_LEAVES + 1;
  *slot = (void *)(uintptr_t)n;
  return n;
}

// Appends t's leaves. out->t has room for all of them: the caller has counted.
// Tuples without leaves are not walked, however large they are.
static at_status flatten(at_imp *x, const at_mop *op, const at_mtype *t,
                         at_types *out) {
  if (!is_bundle(t)) {
    AT_ASSERT(out->n < AT_IMP_MAX_LEAVES);
    return at_imp_type(x, op, t, &out->t[out->n++]);
  }
  if (at_imp_leaves(x, t) == 0) return AT_OK;
  for (uint32_t i = 0; i < t->num_types; i++)
    AT_TRY(flatten(x, op, t->types[i], out));
  return AT_OK;
}

// Counts before it converts: a few bytes of shared tuples may describe 2^40
// leaves.
at_status at_imp_types_flatten(at_imp *x, const at_mop *op,
                               const at_mtype *const *types, uint32_t count,
                               at_types *out) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < count; i++) {
    n += at_imp_leaves(x, types[i]);
    if (n > AT_IMP_MAX_LEAVES)
      return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                        "more than %d values in one place", AT_IMP_MAX_LEAVES);
  }
  *out = (at_types){0};
  AT_TRY_ALLOC(out->t, at_new(x->a, at_type, n + 1));
  for (uint32_t i = 0; i < count; i++) AT_TRY(flatten(x, op, types[i], out));
  AT_ASSERT(out->n == n);
  return AT_OK;
}

// In the order of results, each with its leaves.
at_status at_imp_result_types(at_imp *x, const at_mop *op, at_types *out) {
  const at_mtype **types;
  AT_TRY_ALLOC(types, at_new(x->a, const at_mtype *, op->num_results + 1));
  for (uint32_t i = 0; i < op->num_results; i++) types[i] = op->results[i].type;
  return at_imp_types_flatten(x, op, types, op->num_results, out);
}

// Booleans are 0 or 1 in memory, whatever a resource blob says.
static at_status pred_normalise(at_imp *x, at_bytes *data) {
  bool clean = true;
  for (size_t i = 0; i < data->len && clean; i++) clean = data->ptr[i] <= 1;
  if (clean) return AT_OK;
  uint8_t *copy;
  AT_TRY_ALLOC(copy, (uint8_t *)at_arena_alloc(x->a, data->len, 1));
  for (size_t i = 0; i < data->len; i++) copy[i] = data->ptr[i] != 0;
  data->ptr = copy;
  return AT_OK;
}

// Checks that the data has the size that its type takes: nothing later does.
// Booleans other than 0 and 1 are normalised in a copy.
at_status at_imp_literal(at_imp *x, const at_mop *op, const at_mattr *v,
                         const at_literal **out) {
  if (v->kind != AT_MATTR_DENSE && v->kind != AT_MATTR_RESOURCE)
    return AT_OP_FAIL(x, op, AT_UNIMPLEMENTED,
                      "only dense and resource constants are supported");
  if (!v->type)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT, "constant without a type");
  at_type t;
  AT_TRY(at_imp_type(x, op, v->type, &t));
  if (!at_type_is_static(&t) || t.dtype == AT_TOKEN)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                      "constant needs a static shape");
  size_t want = v->splat ? at_dtype_bytes(t.dtype) : at_type_bytes(&t);
  if (v->data.len != want)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                      "constant has %zu bytes of data, its type takes %zu",
                      v->data.len, want);
  at_bytes data = v->data;
  if (t.dtype == AT_PRED) AT_TRY(pred_normalise(x, &data));
  // Data is shared with the MLIR module where both live in one arena and it
  // lies as its elements want it.
  uint32_t align = at_dtype_bytes(at_real_of(t.dtype));
  bool borrow =
      x->src->arena == x->a && align && (uintptr_t)data.ptr % align == 0;
  return at_literal_make(x->a, t, data.ptr, v->splat, borrow, out);
}

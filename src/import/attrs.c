// Attributes of MLIR ops as hlo wants them. VHLO spells every field of every op
// as an attribute of its own; StableHLO packs some into structs. Both are read
// by VHLO's names.
#include <stdio.h>

#include "import/import_internal.h"

enum { MAX_INTS = 1 << 22 };

// StableHLO's structs, and what VHLO calls a field where that differs.
static const char *const structs[] = {"dot_dimension_numbers",
                                      "dimension_numbers",
                                      "scatter_dimension_numbers",
                                      "algorithm",
                                      "channel_handle",
                                      "ragged_dot_dimension_numbers"};
static const struct {
  const char *vhlo, *field;
} renamed[] = {{"channel_id", "handle"}, {"channel_type", "type"}};

// A composite's copy of chlo's struct has lost its names: six lists.
static const at_mattr *ragged_field(const at_mattr *list, const char *name) {
  static const char *const order[] = {
      "lhs_batching_dimensions",    "rhs_batching_dimensions",
      "lhs_contracting_dimensions", "rhs_contracting_dimensions",
      "lhs_ragged_dimensions",      "rhs_group_dimensions"};
  if (list->kind != AT_MATTR_ARRAY || list->num_elems != AT_LEN(order))
    return NULL;
  for (size_t i = 0; i < AT_LEN(order); i++)
    if (!strcmp(name, order[i])) return list->elems[i];
  return NULL;
}

// The op's own attribute goes first. Then each struct is searched for a field
// of that name, under StableHLO's spelling of the field where it differs from
// VHLO's.
const at_mattr *at_imp_attr(const at_mop *op, const char *name) {
  const at_mattr *t = at_mop_attr(op, name);
  if (t) return t;
  for (size_t i = 0; i < AT_LEN(renamed); i++)
    if (!strcmp(name, renamed[i].vhlo)) name = renamed[i].field;
  for (size_t i = 0; i < AT_LEN(structs); i++) {
    const at_mattr *s = at_mop_attr(op, structs[i]);
    const at_mattr *f = s ? at_mattr_field(s, name) : NULL;
    if (s && !f) f = ragged_field(s, name);
    if (f) return f;
  }
  return NULL;
}

// A value wider than 64 bits keeps its digits in `wide`; it is no int64.
bool at_mattr_int(const at_mattr *t, int64_t *out) {
  if (t->kind != AT_MATTR_INTEGER && t->kind != AT_MATTR_BOOL) return false;
  if (t->wide.len) return false;
  return *out = t->i, true;
}

// The one message about an attribute of a wrong kind: `want` ends the sentence
// "attribute `name` must be ...".
static at_status attr_bad(at_imp *x, const at_mop *op, const char *name,
                          const char *want) {
  return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT, "attribute `%s` must be %s",
                    name, want);
}

// Absence is not an error here: the caller says what it means.
at_status at_imp_int(at_imp *x, const at_mop *op, const char *name,
                     int64_t absent, int64_t *out) {
  const at_mattr *t = at_imp_attr(op, name);
  if (!t) return *out = absent, AT_OK;
  if (!at_mattr_int(t, out)) return attr_bad(x, op, name, "an integer");
  return AT_OK;
}

// Width of one element of a dense integer attribute; 0: not of integers.
static uint32_t int_bytes(const at_mtype *t) {
  if (t && t->kind == AT_MTYPE_TENSOR) t = t->elem;
  if (t && t->kind == AT_MTYPE_INDEX) return 8;
  if (!t || t->kind != AT_MTYPE_INTEGER || t->width > 64) return 0;
  return t->width <= 8 ? 1 : t->width <= 16 ? 2 : t->width <= 32 ? 4 : 8;
}

// One element as int64, little-endian as the bytecode has it. i1 and unsigned
// types are zero-extended, all others sign-extended from their storage width.
static int64_t int_load(const uint8_t *p, uint32_t bytes, const at_mtype *t) {
  uint64_t v = 0;
  AT_ASSERT(bytes >= 1 && bytes <= 8);
  for (uint32_t i = 0; i < bytes; i++) v |= (uint64_t)p[i] << (8 * i);
  if (t && t->kind == AT_MTYPE_TENSOR) t = t->elem;
  bool raw = t && t->kind == AT_MTYPE_INTEGER &&
             (t->width == 1 || t->sign == AT_UNSIGNED);
  uint32_t shift = 64 - 8 * bytes;
  return raw || !shift ? (int64_t)v : (int64_t)(v << shift) >> shift;
}

// A splat of tensor<NxMxi64> is N * M equal integers.
static at_status dense_ints(at_imp *x, const at_mop *op, const char *name,
                            const at_mattr *t, at_dims *out) {
  uint32_t bytes = int_bytes(t->type);
  if (!bytes) return attr_bad(x, op, name, "a list of integers");
  uint64_t have = t->data.len / bytes, n = have;
  if (t->splat) {
    n = 1;
    at_dims d =
        t->type->kind == AT_MTYPE_TENSOR ? t->type->shape : (at_dims){0};
    for (uint32_t i = 0; i < d.rank; i++) {
      if (d.ptr[i] < 0 || d.ptr[i] > MAX_INTS)
        n = MAX_INTS + 1;
      else
        n *= (uint64_t)d.ptr[i];
      if (n > MAX_INTS) break;
    }
    if (n && !have) return attr_bad(x, op, name, "a list of integers");
  }
  if (n > MAX_INTS) return attr_bad(x, op, name, "a shorter list");
  int64_t *p;
  AT_TRY_ALLOC(p, at_new(x->a, int64_t, n + 1));
  for (uint64_t i = 0; i < n; i++)
    p[i] = int_load(t->data.ptr + (t->splat ? 0 : i * bytes), bytes, t->type);
  *out = (at_dims){p, (uint32_t)n};
  return AT_OK;
}

// An ArrayAttr of IntegerAttrs, as the generic text form and VHLO write small
// lists.
static at_status array_ints(at_imp *x, const at_mop *op, const char *name,
                            const at_mattr *t, at_dims *out) {
  int64_t *p;
  AT_TRY_ALLOC(p, at_new(x->a, int64_t, (size_t)t->num_elems + 1));
  for (uint32_t i = 0; i < t->num_elems; i++)
    if (!at_mattr_int(t->elems[i], &p[i]))
      return attr_bad(x, op, name, "a list of integers");
  *out = (at_dims){p, t->num_elems};
  return AT_OK;
}

// One reader for every form in which MLIR writes a list of integers. A dialect
// attribute counts if it is a bare list of integers, as #stablehlo.bounds is.
at_status at_imp_ints(at_imp *x, const at_mop *op, const char *name,
                      const at_mattr *t, at_dims *out) {
  switch (t->kind) {
    case AT_MATTR_DENSE:
    case AT_MATTR_DENSE_ARRAY:
    case AT_MATTR_RESOURCE:
      return dense_ints(x, op, name, t, out);
    case AT_MATTR_ARRAY:
      return array_ints(x, op, name, t, out);
    case AT_MATTR_DIALECT:
      if (t->ints.rank) return at_imp_dims(x, t->ints.ptr, t->ints.rank, out);
      // fallthrough
    default:
      return attr_bad(x, op, name, "a list of integers");
  }
}

// The copy ends in a zero byte that its length does not count, so callers may
// hand z to printf.
at_status at_imp_str(at_imp *x, const at_mop *op, const char *name,
                     at_str *out) {
  const at_mattr *t = at_imp_attr(op, name);
  if (!t) return *out = (at_str){"", 0}, AT_OK;
  if (t->kind != AT_MATTR_STRING && t->kind != AT_MATTR_SYMBOL)
    return attr_bad(x, op, name, "a string");
  char *z;
  AT_TRY_ALLOC(z, at_arena_str(x->a, t->str));
  *out = (at_str){z, t->str.len};
  return AT_OK;
}

// A string is taken without quotes; every other attribute in MLIR's own syntax,
// which the sharding readers parse again later.
at_status at_imp_text(at_imp *x, const at_mattr *t, const char **out) {
  at_strbuf b = {0};
  if (t->kind == AT_MATTR_STRING)
    at_strbuf_add(&b, t->str);
  else
    at_mattr_print(&b, t);
  at_status s = at_strbuf_status(&b);
  if (at_ok(s) && !(*out = at_arena_str(x->a, at_strbuf_str(&b))))
    s = AT_NO_MEMORY("attribute text");
  at_strbuf_free(&b);
  return s;
}

// ---- Conversions by hlo's attribute ids
// VHLO's name of hlo's attribute: hlo's own but for these few.
static const char *vhlo_name(at_attr_id id, at_op op) {
  switch (id) {
    case AT_ATTR_DIMENSION:
      return op == AT_OP_IOTA || op == AT_OP_DYNAMIC_IOTA ? "iota_dimension"
                                                          : "dimension";
    case AT_ATTR_PRECISION:
      return "precision_config";
    case AT_ATTR_REVERSE:
      return "is_reverse";
    default:
      return at_attr_text(id);
  }
}

// [[0, 1], [2, -1]]: -1 pads ragged groups.
static at_status groups_read(at_imp *x, const at_mop *op, const char *name,
                             const at_mattr *t, at_attr *out) {
  if (t->kind == AT_MATTR_DIALECT) return at_imp_mesh_groups(x, op, t, out);
  at_dims flat;
  AT_TRY(at_imp_ints(x, op, name, t, &flat));
  at_dims shape = t->type && t->type->kind == AT_MTYPE_TENSOR ? t->type->shape
                                                              : (at_dims){0};
  if (flat.rank == 0) return AT_OK;
  if (shape.rank != 2 || shape.ptr[0] <= 0 || shape.ptr[1] <= 0 ||
      flat.rank % (uint64_t)shape.ptr[1])
    return attr_bad(x, op, name, "a matrix of integers");
  uint32_t cols = (uint32_t)shape.ptr[1], rows = flat.rank / cols;
  at_dims *list;
  AT_TRY_ALLOC(list, at_new(x->a, at_dims, rows));
  for (uint32_t r = 0; r < rows; r++) {
    uint32_t n = cols;
    while (n && flat.ptr[r * cols + n - 1] == -1) n--;
    list[r] = (at_dims){flat.ptr + r * cols, n};
  }
  AT_ASSERT((uint64_t)rows * cols == flat.rank);
  out->groups.list = list;
  out->groups.n = rows;
  return AT_OK;
}

// [#stablehlo<precision HIGH>, ...]: 0 DEFAULT, 1 HIGH, 2 HIGHEST.
static at_status precision_read(at_imp *x, const at_mop *op, const at_mattr *t,
                                at_attr *out) {
  static const char *const names[] = {"DEFAULT", "HIGH", "HIGHEST"};
  if (t->kind != AT_MATTR_ARRAY || t->num_elems > 8)
    return attr_bad(x, op, "precision_config", "a list of precisions");
  int64_t *p;  // an empty list means DEFAULT for both operands
  AT_TRY_ALLOC(p, at_new(x->a, int64_t, (size_t)t->num_elems + 2));
  for (uint32_t i = 0; i < t->num_elems; i++) {
    size_t k = 0;
    while (k < AT_LEN(names) && !at_str_is(t->elems[i]->str, names[k])) k++;
    if (k == AT_LEN(names))
      return attr_bad(x, op, "precision_config", "DEFAULT, HIGH or HIGHEST");
    p[i] = (int64_t)k;
  }
  out->ints = (at_dims){p, t->num_elems ? t->num_elems : 2};
  return AT_OK;
}

// Upper case text of a precision type; "" for the none type.
static at_status precision_type(at_imp *x, const at_mop *op, const char *name,
                                char out[32]) {
  const at_mattr *t = at_imp_attr(op, name);
  out[0] = 0;
  if (!t) return AT_OK;
  if (t->kind != AT_MATTR_TYPE || !t->type)
    return attr_bad(x, op, name, "a type");
  if (t->type->kind == AT_MTYPE_NONE) return AT_OK;
  if (t->type->kind != AT_MTYPE_FLOAT && t->type->kind != AT_MTYPE_INTEGER)
    return attr_bad(x, op, name, "an element type");
  at_strbuf b = {0};
  at_mtype_print(&b, t->type);
  for (size_t i = 0; i < b.len && i < 31; i++) {
    char c = b.ptr[i];
    out[i] = c >= 'a' && c <= 'z' ? (char)(c - 32) : c;
    out[i + 1] = 0;
  }
  at_strbuf_free(&b);
  return AT_OK;
}

// "BF16_BF16_F32", then "_X3" for three primitive operations, "_C2X1" where an
// operand is split into components, "_FAST" for imprecise accumulation.
static at_status algorithm_read(at_imp *x, const at_mop *op, at_attr *out) {
  char lhs[32], rhs[32], acc[32], extra[64] = "";
  int64_t lc, rc, prims, fast = 0;
  AT_TRY(precision_type(x, op, "lhs_precision_type", lhs));
  AT_TRY(precision_type(x, op, "rhs_precision_type", rhs));
  AT_TRY(precision_type(x, op, "accumulation_type", acc));
  if (!lhs[0] || !rhs[0] || !acc[0]) return AT_OK;
  AT_TRY(at_imp_int(x, op, "lhs_component_count", 1, &lc));
  AT_TRY(at_imp_int(x, op, "rhs_component_count", 1, &rc));
  AT_TRY(at_imp_int(x, op, "num_primitive_operations", 1, &prims));
  AT_TRY(at_imp_int(x, op, "allow_imprecise_accumulation", 0, &fast));
  size_t n = 0;
  if (prims != 1)
    n += (size_t)snprintf(extra + n, sizeof extra - n, "_X%lld",
                          (long long)prims);
  if (lc != 1 || rc != 1)
    snprintf(extra + n, sizeof extra - n, "_C%lldX%lld", (long long)lc,
             (long long)rc);
  char *z;
  AT_TRY_ALLOC(z, at_arena_printf(x->a, "%s_%s_%s%s%s", lhs, rhs, acc, extra,
                                  fast ? "_FAST" : ""));
  out->s = at_str_of(z);
  return AT_OK;
}

// "HIGHEST", or "TOLERANCE atol rtol ulps"; nothing for the default.
static at_status accuracy_read(at_imp *x, const at_mop *op, const at_mattr *t,
                               at_attr *out) {
  const at_mattr *mode = at_mattr_field(t, "mode");
  if (!mode || mode->str.len == 0 || mode->str.len > 32)
    return attr_bad(x, op, "result_accuracy", "a result accuracy");
  if (at_str_is(mode->str, "DEFAULT")) return AT_OK;
  const at_mattr *atol = at_mattr_field(t, "atol");
  const at_mattr *rtol = at_mattr_field(t, "rtol");
  const at_mattr *ulps = at_mattr_field(t, "ulps");
  char *z;
  if (!at_str_is(mode->str, "TOLERANCE") || !atol || !rtol || !ulps)
    z = at_arena_str(x->a, mode->str);
  else
    z = at_arena_printf(x->a, "TOLERANCE %g %g %lld", atol->f, rtol->f,
                        (long long)ulps->i);
  if (!z) return AT_NO_MEMORY("result accuracy");
  out->s = at_str_of(z);
  return AT_OK;
}

// What an absent list means: so many of `value`.
static at_status ints_default(at_imp *x, const at_mop *op, at_attr_id id,
                              at_op hlo, at_attr *out, bool *have) {
  int64_t value = 1;
  uint32_t n = 0;
  const at_mattr *window = NULL;
  switch (id) {
    case AT_ATTR_PADDING:
    case AT_ATTR_WINDOW_REVERSAL:
      value = 0;  // fallthrough
    case AT_ATTR_WINDOW_STRIDES:
    case AT_ATTR_BASE_DILATIONS:
    case AT_ATTR_WINDOW_DILATIONS:
    case AT_ATTR_LHS_DILATION:
    case AT_ATTR_RHS_DILATION:
      window =
          at_imp_attr(op, hlo == AT_OP_CONVOLUTION || hlo == AT_OP_DYNAMIC_CONV
                              ? "input_spatial_dimensions"
                              : "window_dimensions");
      break;
    case AT_ATTR_PRECISION:
      value = 0;
      n = 2;
      break;
    case AT_ATTR_LHS_BATCHING_DIMENSIONS:
    case AT_ATTR_RHS_BATCHING_DIMENSIONS:
    case AT_ATTR_LHS_CONTRACTING_DIMENSIONS:
    case AT_ATTR_RHS_CONTRACTING_DIMENSIONS:
    case AT_ATTR_LHS_RAGGED_DIMENSIONS:
    case AT_ATTR_RHS_GROUP_DIMENSIONS:
    case AT_ATTR_OFFSET_DIMS:
    case AT_ATTR_COLLAPSED_SLICE_DIMS:
    case AT_ATTR_OPERAND_BATCHING_DIMS:
    case AT_ATTR_START_INDICES_BATCHING_DIMS:
    case AT_ATTR_START_INDEX_MAP:
    case AT_ATTR_UPDATE_WINDOW_DIMS:
    case AT_ATTR_INSERTED_WINDOW_DIMS:
    case AT_ATTR_INPUT_BATCHING_DIMS:
    case AT_ATTR_SCATTER_INDICES_BATCHING_DIMS:
    case AT_ATTR_SCATTER_DIMS_TO_OPERAND_DIMS:
    case AT_ATTR_INPUT_SPATIAL_DIMENSIONS:
    case AT_ATTR_KERNEL_SPATIAL_DIMENSIONS:
    case AT_ATTR_OUTPUT_SPATIAL_DIMENSIONS:
      break;
    default:
      return *have = false, AT_OK;
  }
  if (window) {
    at_dims w;
    AT_TRY(at_imp_ints(x, op, "window_dimensions", window, &w));
    n = id == AT_ATTR_PADDING ? 2 * w.rank : w.rank;
  }
  int64_t *p;
  AT_TRY_ALLOC(p, at_new(x->a, int64_t, (size_t)n + 1));
  for (uint32_t i = 0; i < n; i++) p[i] = value;
  out->ints = (at_dims){p, n};
  *have = true;
  return AT_OK;
}

// Numbers that have a meaning when absent.
static bool number_default(at_attr_id id, at_op hlo, int64_t *out) {
  switch (id) {
    case AT_ATTR_INDICES_ARE_SORTED:
    case AT_ATTR_UNIQUE_INDICES:
    case AT_ATTR_LOWER:
    case AT_ATTR_IS_STABLE:
    case AT_ATTR_IS_HOST_TRANSFER:
    case AT_ATTR_USE_GLOBAL_DEVICE_IDS:
    case AT_ATTR_CHANNEL_ID:
    case AT_ATTR_COMPARE_TYPE:
    case AT_ATTR_INDEX_VECTOR_DIM:
      return *out = 0, true;
    case AT_ATTR_CHANNEL_TYPE:
    case AT_ATTR_LARGEST:
      return *out = 1, true;
    case AT_ATTR_DIMENSION:
      return *out = -1, hlo == AT_OP_SORT;
    default:
      return false;
  }
}

// StableHLO's enums and VHLO's carry the same upper-case words; hlo's table
// knows the value of each.
static at_status enum_read(at_imp *x, const at_mop *op, const char *name,
                           const at_mattr *t, at_attr *out) {
  if (!at_enum_parse(out->id, t->str, &out->i))
    return AT_OP_FAIL(
        x, op, AT_INVALID_ARGUMENT, "attribute `%s` has no value `%.*s`", name,
        (int)AT_MIN(t->str.len, 64), t->str.ptr ? t->str.ptr : "");
  return AT_OK;
}

// Reads one attribute that is present, by the kind that hlo declares for it.
// INVALID_ARGUMENT when the MLIR attribute is of another kind: nothing is
// converted silently, except that a unit attribute is a true boolean.
static at_status attr_read(at_imp *x, const at_mop *op, const char *name,
                           const at_mattr *t, at_attr *out) {
  switch (at_attr_kind_of(out->id)) {
    case AT_KIND_INT:
    case AT_KIND_BOOL:
      if (t->kind == AT_MATTR_UNIT) return out->i = 1, AT_OK;
      if (!at_mattr_int(t, &out->i)) return attr_bad(x, op, name, "an integer");
      if (at_attr_kind_of(out->id) == AT_KIND_BOOL) out->i = out->i != 0;
      return AT_OK;
    case AT_KIND_FLOAT:
      if (t->kind != AT_MATTR_FLOAT) return attr_bad(x, op, name, "a float");
      return out->f = t->f, AT_OK;
    case AT_KIND_STR:
    case AT_KIND_BYTES:
      return at_imp_str(x, op, name, &out->s);
    case AT_KIND_INTS:
      if (out->id == AT_ATTR_PRECISION) return precision_read(x, op, t, out);
      return at_imp_ints(x, op, name, t, &out->ints);
    case AT_KIND_ENUM:
      return enum_read(x, op, name, t, out);
    case AT_KIND_GROUPS:
      return groups_read(x, op, name, t, out);
    default:
      return attr_bad(x, op, name, "of another kind");
  }
}

// An absent attribute: its default, or nothing where it is optional.
static at_status attr_absent(at_imp *x, const at_mop *op, at_op hlo,
                             const char *name, at_attr *out, bool *have) {
  switch (at_attr_kind_of(out->id)) {
    case AT_KIND_GROUPS:
      return *have = true, AT_OK;  // an empty list
    case AT_KIND_STR:
    case AT_KIND_BYTES:
    case AT_KIND_DICT:
      return *have = false, AT_OK;
    case AT_KIND_INTS:
      AT_TRY(ints_default(x, op, out->id, hlo, out, have));
      break;
    default:
      *have = number_default(out->id, hlo, &out->i);
  }
  if (*have) return AT_OK;
  return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT, "attribute `%s` is missing",
                    name);
}

// Reads one attribute of hlo's row. *have says whether the node carries it:
// result accuracy and dot algorithm stay away where they say the default, so
// that equal programs give equal nodes.
static at_status attr_convert(at_imp *x, const at_mop *op, at_op hlo,
                              at_attr *out, bool *have) {
  const char *name = vhlo_name(out->id, hlo);
  const at_mattr *t = at_imp_attr(op, name);
  *have = true;
  if (out->id == AT_ATTR_DOT_ALGORITHM) {
    AT_TRY(algorithm_read(x, op, out));
    return *have = out->s.len != 0, AT_OK;
  }
  if (!t && out->id == AT_ATTR_RESULT_ACCURACY) return *have = false, AT_OK;
  if (!t) return attr_absent(x, op, hlo, name, out, have);
  if (out->id == AT_ATTR_RESULT_ACCURACY) {
    AT_TRY(accuracy_read(x, op, t, out));
    return *have = out->s.len != 0, AT_OK;
  }
  return attr_read(x, op, name, t, out);
}

// Linear search: an op has a dozen attributes at most. at_build sorts them.
at_status at_imp_attr_put(at_imp *x, at_attr_vec *v, at_attr a) {
  for (size_t i = 0; i < v->len; i++)
    if (v->ptr[i].id == a.id) return v->ptr[i] = a, AT_OK;
  if (!at_vec_push(x->a, v, a)) return AT_NO_MEMORY("attributes");
  return AT_OK;
}

// Attributes that only passes put on nodes; no program may set them.
static bool is_the_compilers(uint32_t id) {
  return id == AT_ATTR_ASYNC || id == AT_ATTR_TRIP_COUNT ||
         id == AT_ATTR_ON_PARTITION;
}

// Follows hlo's row, not the MLIR op: attributes that the row does not list are
// not read here. at_imp_attrs_common reads those that any op may have.
at_status at_imp_attrs(at_imp *x, const at_mop *op, at_op hlo,
                       at_attr_vec *out) {
  const at_op_info *info = at_op_of(hlo);
  for (uint32_t i = 0; i < info->attr_count; i++) {
    if (is_the_compilers(info->attrs[i])) continue;
    at_attr a;
    memset(&a, 0, sizeof a);
    a.id = (at_attr_id)info->attrs[i];
    if (a.id == AT_ATTR_NONE) continue;
    bool have;
    AT_TRY(attr_convert(x, op, hlo, &a, &have));
    if (have) AT_TRY(at_imp_attr_put(x, out, a));
  }
  return AT_OK;
}

// Key-value pairs in the program's order. A value that is not a string is kept
// as MLIR prints it.
static at_status frontend_read(at_imp *x, const at_mop *op, const at_mattr *t,
                               at_attr_vec *out) {
  if (t->kind != AT_MATTR_DICT)
    return attr_bad(x, op, "mhlo.frontend_attributes", "a dictionary");
  at_str *kv;
  AT_TRY_ALLOC(kv, at_new(x->a, at_str, 2 * (size_t)t->num_elems + 1));
  for (uint32_t i = 0; i < t->num_elems; i++) {
    const char *key, *value;
    AT_TRY(at_imp_keep(x, t->fields[i].name, &key));
    AT_TRY(at_imp_text(x, t->fields[i].value, &value));
    kv[2 * i] = at_str_of(key);
    kv[2 * i + 1] = at_str_of(value);
  }
  at_attr a = {.id = AT_ATTR_FRONTEND_ATTRIBUTES};
  a.dict.kv = kv;
  a.dict.n = t->num_elems;
  return at_imp_attr_put(x, out, a);
}

// mhlo.sharding wins over sdy.sharding where both stand.
at_status at_imp_attrs_common(at_imp *x, const at_mop *op, at_attr_vec *out) {
  const at_mattr *f = at_mop_attr(op, "mhlo.frontend_attributes");
  if (f) AT_TRY(frontend_read(x, op, f, out));
  const at_mattr *s = at_mop_attr(op, "mhlo.sharding");
  if (!s) s = at_mop_attr(op, "sdy.sharding");
  if (!s) return AT_OK;
  const char *text;
  AT_TRY(at_imp_text(x, s, &text));
  return at_imp_attr_put(
      x, out, (at_attr){.id = AT_ATTR_SHARDING, .s = at_str_of(text)});
}

// Structural equality of types, attributes and operations; element types. Trees
// may be of different modules, so names are compared as texts where their
// pointers differ. digest.c has the same notion of equality: what is equal here
// has equal digests.
#include <math.h>

#include "mlir/mlir_internal.h"

// Names of one module are interned, those of two are not.
static bool same_text(const char *a, const char *b) {
  return a == b || (a && b && strcmp(a, b) == 0);
}

// Bit for bit, so that NaNs are equal to themselves.
static bool same_bytes(at_bytes a, at_bytes b) {
  return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

// Both absent, or both there and equal.
static bool opt_type(const at_mtype *a, const at_mtype *b) {
  return a == b || (a && b && at_mtype_eq(a, b));
}

// The same of attributes.
static bool opt_attr(const at_mattr *a, const at_mattr *b) {
  return a == b || (a && b && at_mattr_eq(a, b));
}

// Both lists in order.
static bool types_eq(const at_mtype *const *a, uint32_t n,
                     const at_mtype *const *b, uint32_t m) {
  if (n != m) return false;
  for (uint32_t i = 0; i < n; i++)
    if (!at_mtype_eq(a[i], b[i])) return false;
  return true;
}

// Signless integers are the signed element types; i1 is the predicate.
at_dtype at_mtype_dtype(const at_mtype *t) {
  bool wants_unsigned = t->sign == AT_UNSIGNED;
  if (t->kind == AT_MTYPE_INTEGER && t->width == 1)
    return wants_unsigned ? AT_INVALID : AT_PRED;
  // Names of float types are MLIR's own.
  for (int i = 0; i < AT_DTYPE_COUNT; i++) {
    at_dtype d = (at_dtype)i;
    bool fits = t->kind == AT_MTYPE_FLOAT
                    ? at_is_float(d) && same_text(at_dtype_of(d)->text, t->name)
                    : t->kind == AT_MTYPE_INTEGER &&
                          (wants_unsigned ? at_is_unsigned_int(d)
                                          : at_is_signed_int(d)) &&
                          at_dtype_of(d)->bits == t->width;
    if (fits) return d;
  }
  return AT_INVALID;
}

// Fields that a kind does not use are zero on both sides, so all are compared.
bool at_mtype_eq(const at_mtype *a, const at_mtype *b) {
  if (a == b) return true;
  if (a->kind != b->kind || a->width != b->width || a->sign != b->sign ||
      !same_text(a->name, b->name) || !at_dims_eq(a->shape, b->shape) ||
      !at_dims_eq(a->scalable, b->scalable) || !at_dims_eq(a->ints, b->ints) ||
      !same_bytes(a->bytes, b->bytes) || a->num_attrs != b->num_attrs)
    return false;
  if (!opt_type(a->elem, b->elem) || !opt_attr(a->encoding, b->encoding) ||
      !opt_attr(a->layout, b->layout) || !opt_attr(a->space, b->space) ||
      !types_eq(a->types, a->num_types, b->types, b->num_types) ||
      !types_eq(a->results, a->num_results, b->results, b->num_results))
    return false;
  for (uint32_t i = 0; i < a->num_attrs; i++)
    if (!at_mattr_eq(a->attrs[i], b->attrs[i])) return false;
  return true;
}

// Same shape of the expression; sums are not reordered.
static bool affine_eq(const at_maffine *a, const at_maffine *b) {
  if (a->kind != b->kind || a->value != b->value) return false;
  return !a->lhs || (affine_eq(a->lhs, b->lhs) && affine_eq(a->rhs, b->rhs));
}

static bool opt_loc(const at_mloc *a, const at_mloc *b);

// Recursion as deep as the chain of locations, which readers bound.
static bool loc_eq(const at_mloc *a, const at_mloc *b) {
  if (a->kind != b->kind || !same_text(a->text, b->text) ||
      a->line != b->line || a->column != b->column ||
      a->end_line != b->end_line || a->end_column != b->end_column ||
      a->num_locs != b->num_locs || !opt_attr(a->metadata, b->metadata))
    return false;
  for (uint32_t i = 0; i < a->num_locs; i++)
    if (!opt_loc(a->locs[i], b->locs[i])) return false;
  return opt_loc(a->child, b->child) && opt_loc(a->caller, b->caller);
}

// Both absent, or equal.
static bool opt_loc(const at_mloc *a, const at_mloc *b) {
  return a == b || (a && b && loc_eq(a, b));
}

// A splat equals the same element written out.
static bool dense_eq(const at_mattr *a, const at_mattr *b) {
  if (a->splat == b->splat) return same_bytes(a->data, b->data);
  const at_mattr *one = a->splat ? a : b, *all = a->splat ? b : a;
  size_t each = one->data.len;
  for (size_t i = 0; i + each <= all->data.len; i += each)
    if (memcmp(all->data.ptr + i, one->data.ptr, each)) return false;
  return true;
}

// Floats by their bits: NaN equals itself, and 0 is not -0.
bool at_mattr_eq(const at_mattr *a, const at_mattr *b) {
  if (a == b) return true;
  if (a->kind != b->kind || a->i != b->i || a->num_elems != b->num_elems ||
      a->num_dims != b->num_dims || a->num_syms != b->num_syms ||
      !same_text(a->name, b->name) || !at_str_eq(a->str, b->str) ||
      memcmp(&a->f, &b->f, sizeof a->f) || !same_bytes(a->wide, b->wide) ||
      !same_bytes(a->bytes, b->bytes) || !at_dims_eq(a->ints, b->ints) ||
      !opt_type(a->type, b->type) || !dense_eq(a, b) ||
      !opt_loc(a->loc, b->loc))
    return false;
  for (uint32_t i = 0; i < a->num_elems; i++) {
    if (a->elems && !at_mattr_eq(a->elems[i], b->elems[i])) return false;
    if (a->fields && (strcmp(a->fields[i].name, b->fields[i].name) ||
                      !at_mattr_eq(a->fields[i].value, b->fields[i].value)))
      return false;
    if (a->exprs && !affine_eq(a->exprs[i], b->exprs[i])) return false;
    if (a->is_eq && a->is_eq[i] != b->is_eq[i]) return false;
  }
  return true;
}

// ---- Operations
// Values and blocks are equal when they were defined at the same place; `pairs`
// maps those of one side to the other's.
static bool pair(at_map *pairs, const void *a, const void *b) {
  void **slot = at_map_put_ptr(pairs, a);
  if (!slot || (*slot && *slot != b)) return false;
  *slot = (void *)(uintptr_t)b;
  return true;
}

static bool op_eq(at_map *pairs, const at_mop *a, const at_mop *b, bool locs);

// Types, and definition at the same place.
static bool values_eq(at_map *pairs, const at_mvalue *a, const at_mvalue *b,
                      uint32_t n, bool locs) {
  for (uint32_t i = 0; i < n; i++)
    if (!at_mtype_eq(a[i].type, b[i].type) || !pair(pairs, &a[i], &b[i]) ||
        (locs && !opt_loc(a[i].loc, b[i].loc)))
      return false;
  return true;
}

// Blocks and arguments are paired before any operation is compared, since
// branches may name blocks that come later.
static bool region_eq(at_map *pairs, const at_mregion *a, const at_mregion *b,
                      bool locs) {
  if (a->num_blocks != b->num_blocks) return false;
  for (uint32_t i = 0; i < a->num_blocks; i++) {
    const at_mblock *x = a->blocks[i], *y = b->blocks[i];
    if (x->num_args != y->num_args || x->num_ops != y->num_ops ||
        !pair(pairs, x, y) ||
        !values_eq(pairs, x->args, y->args, x->num_args, locs))
      return false;
  }
  for (uint32_t i = 0; i < a->num_blocks; i++)
    for (uint32_t k = 0; k < a->blocks[i]->num_ops; k++)
      if (!op_eq(pairs, a->blocks[i]->ops[k], b->blocks[i]->ops[k], locs))
        return false;
  return true;
}

// Attributes are sorted by name on both sides.
static bool op_eq(at_map *pairs, const at_mop *a, const at_mop *b, bool locs) {
  if (strcmp(a->name, b->name) || a->num_operands != b->num_operands ||
      a->num_results != b->num_results || a->num_attrs != b->num_attrs ||
      a->num_regions != b->num_regions ||
      a->num_successors != b->num_successors ||
      (locs && !opt_loc(a->loc, b->loc)))
    return false;
  for (uint32_t i = 0; i < a->num_attrs; i++)
    if (strcmp(a->attrs[i].name, b->attrs[i].name) ||
        !at_mattr_eq(a->attrs[i].value, b->attrs[i].value))
      return false;
  for (uint32_t i = 0; i < a->num_operands; i++)
    if (!pair(pairs, a->operands[i], b->operands[i])) return false;
  for (uint32_t i = 0; i < a->num_successors; i++)
    if (!pair(pairs, a->successors[i], b->successors[i])) return false;
  // Results are paired before the regions that may use them.
  if (!values_eq(pairs, a->results, b->results, a->num_results, false))
    return false;
  for (uint32_t i = 0; i < a->num_regions; i++)
    if (!region_eq(pairs, a->regions[i], b->regions[i], locs)) return false;
  return true;
}

// False also where `scratch` refuses.
bool at_mop_eq(const at_mop *a, const at_mop *b, bool locations,
               at_arena *scratch) {
  at_map pairs = at_map_in(scratch);
  return op_eq(&pairs, a, b, locations);
}

// ---- What was written against what it was made of
bool at_mlir_reads_as(const at_mmodule *m, at_str written, bool locations) {
  at_mmodule *again = NULL;
  if (strcmp(m->op->name, "builtin.module") != 0) return true;
  at_arena *a = at_arena_create();
  if (!a) return true;
  at_bytes b = {(const uint8_t *)written.ptr, written.len};
  at_code code = at_code_take(at_mlir_is_bytecode(b)
                                  ? at_mlir_read_bytecode(b, false, a, &again)
                                  : at_mlir_read_text(written, a, &again));
  bool same = code == AT_RESOURCE_EXHAUSTED ||
              (code == AT_OK_CODE && at_mop_eq(m->op, again->op, locations, a));
  at_arena_destroy(a);
  return same;
}

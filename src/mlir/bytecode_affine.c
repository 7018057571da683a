// Affine maps, integer sets and strided layouts in the builtin dialect's own
// encoding, which writers of 2026 and later use (MLIR 24); older ones write
// text.
#include "mlir/mlir_internal.h"

// What an expression begins with.
enum { CODE_DIM, CODE_SYM, CODE_CONST, CODE_CEILDIV = 7 };
// How a map is written: the low two bits of its header.
enum { MAP_IDENTITY, MAP_PERMUTATION, MAP_PROJECTION, MAP_GENERAL };
// Of dimensions, and of symbols, of one map.
enum { kMaxDims = 1024 };

// A leaf, or an operation whose operands the caller sets.
static at_status make(at_mbc *r, at_maffine_kind kind, int64_t value,
                      at_maffine **out) {
  AT_TRY_ALLOC(*out, at_new(r->c.arena, at_maffine, 1));
  **out = (at_maffine){.kind = kind, .value = value};
  return AT_OK;
}

// A dimension or symbol below `limit`, the number that the header declared.
static at_status position(at_mbc *r, at_mcursor *c, uint32_t limit,
                          at_maffine_kind kind, at_maffine **out) {
  uint64_t i;
  AT_TRY(at_mbc_varint(r, c, &i));
  if (i >= limit)
    return at_mbc_fail(r, c, "an affine expression names no dimension");
  return make(r, kind, (int64_t)i, out);
}

// Operations come before their operands.
static at_status expression(at_mbc *r, at_mcursor *c, const at_mattr *a,
                            uint32_t depth, const at_maffine **out) {
  static const at_maffine_kind kinds[] = {
      AT_AFFINE_DIM, AT_AFFINE_SYM, AT_AFFINE_CONST,    AT_AFFINE_ADD,
      AT_AFFINE_MUL, AT_AFFINE_MOD, AT_AFFINE_FLOORDIV, AT_AFFINE_CEILDIV};
  uint64_t code;
  at_maffine *e = NULL;
  AT_TRY(at_mbc_varint(r, c, &code));
  if (code > CODE_CEILDIV)
    return at_mbc_fail(r, c, "unknown affine expression");
  if (depth >= AT_MLIR_MAX_DEPTH)
    return at_mbc_fail(r, c, "an affine expression is too deep");
  if (code == CODE_DIM) {
    AT_TRY(position(r, c, a->num_dims, AT_AFFINE_DIM, &e));
  } else if (code == CODE_SYM) {
    AT_TRY(position(r, c, a->num_syms, AT_AFFINE_SYM, &e));
  } else {
    AT_TRY(make(r, kinds[code], 0, &e));
    if (code == CODE_CONST) {
      AT_TRY(at_mbc_svarint(r, c, &e->value));
    } else {
      AT_TRY(expression(r, c, a, depth + 1, &e->lhs));
      AT_TRY(expression(r, c, a, depth + 1, &e->rhs));
    }
  }
  *out = e;
  return AT_OK;
}

// A bound of our own, so that a few bytes cannot stand for a huge map.
static at_status small(at_mbc *r, at_mcursor *c, uint64_t n, uint32_t *out) {
  if (n > kMaxDims) return at_mbc_fail(r, c, "too many affine dimensions");
  *out = (uint32_t)n;
  return AT_OK;
}

// The number of symbols, likewise bounded.
static at_status symbols(at_mbc *r, at_mcursor *c, at_mattr *a) {
  uint64_t n;
  AT_TRY(at_mbc_varint(r, c, &n));
  return small(r, c, n, &a->num_syms);
}

// `how`: dimensions, or any expressions.
static at_status results(at_mbc *r, at_mcursor *c, uint32_t how, at_mattr *a) {
  const at_maffine **v;
  AT_TRY_ALLOC(v, at_new(r->c.arena, const at_maffine *, a->num_elems));
  for (uint32_t i = 0; i < a->num_elems; i++) {
    at_maffine *e = NULL;
    if (how == MAP_GENERAL) {
      AT_TRY(expression(r, c, a, 0, &v[i]));
      continue;
    }
    if (how == MAP_IDENTITY)
      AT_TRY(make(r, AT_AFFINE_DIM, i, &e));
    else
      AT_TRY(position(r, c, a->num_dims, AT_AFFINE_DIM, &e));
    v[i] = e;
  }
  a->exprs = v;
  return AT_OK;
}

// The header's low two bits say how much of the map is written out; its upper
// bits are the number of dimensions.
static at_status map(at_mbc *r, at_mcursor *c, at_mattr *a) {
  uint64_t header;
  AT_TRY(at_mbc_varint(r, c, &header));
  uint32_t how = (uint32_t)(header & 3);
  AT_TRY(small(r, c, header >> 2, &a->num_dims));
  a->num_elems = a->num_dims;
  if (how == MAP_GENERAL) AT_TRY(symbols(r, c, a));
  if (how >= MAP_PROJECTION) AT_TRY(at_mbc_count(r, c, &a->num_elems));
  return results(r, c, how, a);
}

// Constraints, then a flag for each: equality, or at least zero.
static at_status set(at_mbc *r, at_mcursor *c, at_mattr *a) {
  uint64_t dims;
  AT_TRY(at_mbc_varint(r, c, &dims));
  AT_TRY(small(r, c, dims, &a->num_dims));
  AT_TRY(symbols(r, c, a));
  AT_TRY(at_mbc_count(r, c, &a->num_elems));
  AT_TRY(results(r, c, MAP_GENERAL, a));
  uint8_t *eq;
  AT_TRY_ALLOC(eq, at_new(r->c.arena, uint8_t, a->num_elems));
  for (uint32_t i = 0; i < a->num_elems; i++) {
    AT_TRY(at_mbc_byte(r, c, &eq[i]));
    if (eq[i] > 1) return at_mbc_fail(r, c, "a flag that is not 0 or 1");
  }
  a->is_eq = eq;
  return AT_OK;
}

// A strided layout is its offset and its strides.
at_status at_mbc_affine_attr(at_mbc *r, at_mcursor *c, uint64_t code,
                             at_mattr *a) {
  if (code == kMbcAffineMap) return map(r, c, a);
  if (code == kMbcIntegerSet) return set(r, c, a);
  AT_TRY(at_mbc_svarint(r, c, &a->i));
  return at_mbc_svarints(r, c, &a->ints);
}

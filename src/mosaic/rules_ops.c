// Operations that the TPU compiler refuses, by the stage at which it does:
// canonicalisation of types, layouts of vectors, selection of instructions. The
// first two follow the passes that were public up to JAX 0.8.1, all three the
// refusals that were seen of the compiler.
#include "mosaic/rules_internal.h"

#define ARG at_mosaic_arg
#define RES at_mosaic_res

static const at_mtype *elem(const at_mtype *t) {
  return t->kind == AT_MTYPE_VECTOR || t->kind == AT_MTYPE_MEMREF ? t->elem : t;
}
static bool is_int(const at_mtype *t) {
  return elem(t)->kind == AT_MTYPE_INTEGER;
}
static bool is_narrow_float(const at_mtype *t) {
  at_dtype d = at_mosaic_dtype_of(t);
  return at_is_float(d) && (at_dtype_of(d)->bits < 16 || d == AT_F16);
}
static const char *type_text(at_mosaic_judge *j, const at_mtype *t) {
  at_strbuf b = {0};
  at_mtype_print(&b, t);
  const char *s = b.ptr ? at_arena_str(j->scratch, at_strbuf_str(&b)) : NULL;
  at_strbuf_free(&b);
  return s ? s : "?";
}

// ---- Canonicalisation
static at_status add_types(at_mosaic_judge *j, const at_mop *op) {
  const at_mtype *t = RES(op, 0);
  uint32_t bits = at_mosaic_bits(t);
  if (!is_int(t)) return AT_OK;
  if (!at_mosaic_is_vector(t)) {
    if (bits == 32) return AT_OK;
    return at_mosaic_refuse(
        j, op, AT_INTERNAL,
        "Not implemented: Only i32 %s is supported, but got "
        "'%s'. Please cast your input to i32.",
        op->name, type_text(j, t));
  }
  if (bits == 32 || bits == 16) return AT_OK;
  return at_mosaic_refuse(
      j, op, AT_INTERNAL,
      "Not implemented: Only vector<i16> and vector<i32> are "
      "supported, but got '%s'. Please cast your input.",
      type_text(j, elem(t)));
}

static at_status scalar_types(at_mosaic_judge *j, const at_mop *op) {
  const at_mtype *t = RES(op, 0);
  uint32_t bits = at_mosaic_bits(t);
  if (at_mosaic_is_vector(t) || !is_int(t) || bits == 32 || bits == 1)
    return AT_OK;
  return at_mosaic_refuse(
      j, op, AT_INTERNAL,
      "Not implemented: Only i1 and i32 scalars are supported.");
}

static at_status reduction_types(at_mosaic_judge *j, const at_mop *op) {
  at_dtype t = at_mosaic_dtype_of(ARG(op, 0));
  at_str kind = {0};
  at_mosaic_attr_text(at_mop_attr(op, "kind"), &kind);
  if (!at_mosaic_is_vector(RES(op, 0)))
    return at_mosaic_refuse(j, op, AT_INTERNAL,
                            "Only vector reductions supported");
  if (t == AT_F32 || t == AT_BF16) return AT_OK;
  if (t == AT_S32 && (at_str_is(kind, "add") || at_str_is(kind, "maxsi") ||
                      at_str_is(kind, "minsi")))
    return AT_OK;
  return at_mosaic_refuse(
      j, op, AT_INTERNAL,
      "Unsupported element type for the selected reduction");
}

static at_status matmul_types(at_mosaic_judge *j, const at_mop *op) {
  const at_mtype *a = ARG(op, 0), *b = ARG(op, 1), *acc = ARG(op, 2);
  bool mixed = at_mosaic_dtype_of(a) != at_mosaic_dtype_of(b);
  if (mixed && is_int(a) && is_int(b))
    return at_mosaic_refuse(j, op, AT_INTERNAL, "Mix int/int - NYI");
  if (mixed && is_int(acc))
    return at_mosaic_refuse(j, op, AT_INTERNAL,
                            "acc is int in mixed matmul. Expected float.");
  if (is_int(acc) && !is_int(a))
    return at_mosaic_refuse(j, op, AT_INTERNAL,
                            "int acc with float lhs. Expected int lhs.");
  if (!is_int(acc) && is_int(a) && is_int(b))
    return at_mosaic_refuse(j, op, AT_INTERNAL,
                            "float acc with int lhs. Expected float lhs.");
  if (at_mosaic_bits(acc) != 32)
    return at_mosaic_refuse(j, op, AT_INTERNAL,
                            "Expected 32-bit acc in tpu::MatmulOp");
  return AT_OK;
}

static at_status stochastic_types(at_mosaic_judge *j, const at_mop *op) {
  at_dtype t = at_mosaic_dtype_of(RES(op, 0));
  if (j->chip->generation < 5)
    return at_mosaic_refuse(
        j, op, AT_INTERNAL,
        "Stochastic convert not supported on TPU generations < 5.");
  if (t == AT_BF16 || t == AT_F8E5M2 || t == AT_F8E4M3FN ||
      t == AT_F8E4M3B11FNUZ)
    return AT_OK;
  return at_mosaic_refuse(j, op, AT_INTERNAL,
                          "Unsupported dtype for stochastic convert: %s",
                          at_dtype_of(t)->text);
}

at_status at_mosaic_rules_canonical(at_mosaic_judge *j, const at_mop *op) {
  switch (at_mosaic_opcode_of(op)) {
    case AT_MOSAIC_ARITH_ADDI:
    case AT_MOSAIC_ARITH_SUBI:
    case AT_MOSAIC_ARITH_MULI:
      return add_types(j, op);
    case AT_MOSAIC_ARITH_DIVSI:
    case AT_MOSAIC_ARITH_DIVUI:
    case AT_MOSAIC_ARITH_REMSI:
    case AT_MOSAIC_ARITH_REMUI:
    case AT_MOSAIC_ARITH_ANDI:
    case AT_MOSAIC_ARITH_ORI:
    case AT_MOSAIC_ARITH_XORI:
    case AT_MOSAIC_ARITH_SHLI:
    case AT_MOSAIC_ARITH_SHRSI:
    case AT_MOSAIC_ARITH_SHRUI:
    case AT_MOSAIC_ARITH_MAXSI:
    case AT_MOSAIC_ARITH_MAXUI:
    case AT_MOSAIC_ARITH_MINSI:
    case AT_MOSAIC_ARITH_MINUI:
    case AT_MOSAIC_MATH_ABSI:
    case AT_MOSAIC_MATH_CTLZ:
    case AT_MOSAIC_MATH_CTPOP:
      return scalar_types(j, op);
    case AT_MOSAIC_VECTOR_MULTI_REDUCTION:
      return reduction_types(j, op);
    case AT_MOSAIC_TPU_MATMUL:
      return matmul_types(j, op);
    case AT_MOSAIC_TPU_STOCHASTIC_CONVERT:
      return stochastic_types(j, op);
    default:
      return AT_OK;
  }
}

// ---- Layouts
// The memref that a view was cut from: its last two dimensions say how it is
// tiled. false: a reshape or bitcast lies between.
static bool base_of(const at_mvalue *v, const at_mtype **out, bool *argument) {
  while (v->op) {
    const at_mtype *t = v->type;
    switch (at_mosaic_opcode_of(v->op)) {
      case AT_MOSAIC_TPU_MEMREF_SQUEEZE: {
        // Only where leading dimensions went do the last two stay.
        at_dims from = ARG(v->op, 0)->shape, to = t->shape;
        for (uint32_t i = 1; i <= 2 && i <= to.rank; i++)
          if (from.ptr[from.rank - i] != to.ptr[to.rank - i]) return false;
        if (to.rank < 2 && from.rank > to.rank) return false;
        v = v->op->operands[0];
        break;
      }
      case AT_MOSAIC_TPU_MEMREF_SLICE:
      case AT_MOSAIC_TPU_ERASE_MEMREF_LAYOUT:
      case AT_MOSAIC_TPU_ASSUME_LAYOUT:
        v = v->op->operands[0];
        break;
      case AT_MOSAIC_MEMREF_ALLOCA:
        *argument = false;
        *out = t;
        return true;
      default:
        return false;
    }
  }
  *argument = true;
  *out = v->type;
  return v->type->kind == AT_MTYPE_MEMREF;
}

// A memref of words with few columns lies row after row: any row can be
// addressed.
static bool is_untiled(const at_mtype *ref) {
  return at_mosaic_bits(ref) == 32 && at_mosaic_size(ref, 1) <= 128;
}

static int64_t tile_of(at_mosaic_judge *j, const at_mtype *base,
                       bool argument) {
  return at_mosaic_tile_rows(j->chip, at_mosaic_bits(base),
                             at_mosaic_size(base, 2), argument);
}

static at_status prove(at_mosaic_judge *j, const at_mop *op,
                       const at_mvalue *index, uint32_t dim, int64_t n) {
  int64_t c;
  if (at_mosaic_value_const(index, &c) || at_mosaic_value_divides(index, n))
    return AT_OK;
  return at_mosaic_refuse(
      j, op, AT_INTERNAL,
      "E2003: CompileTimeMosaicUnprovenMemoryAccessAlignment: cannot "
      "statically "
      "prove that index in dimension %u is a multiple of %lld\nSee "
      "https://openxla.org/xla/errors/error_2003 for more details.",
      dim, (long long)n);
}

static at_status access(at_mosaic_judge *j, const at_mop *op, uint32_t ref,
                        const at_mtype *vec) {
  const at_mtype *m = ARG(op, ref), *base;
  at_mosaic_ref r;
  bool argument;
  uint32_t rank = m->shape.rank;
  at_status s = at_mosaic_ref_of(m, &r);
  bool good = at_ok(s);
  at_status_free(s);
  if (!good || r.space != AT_MSPACE_VMEM || r.semaphore || rank < 2 ||
      vec->shape.rank != rank || at_mosaic_bits(m) == 1 ||
      !base_of(op->operands[ref], &base, &argument))
    return AT_OK;
  at_mvalue *const *index = op->operands + ref + 1;
  bool any_row =
      is_untiled(m) || (at_mosaic_bits(m) == 32 && at_mosaic_size(vec, 2) == 1);
  if (!any_row)
    AT_TRY(prove(j, op, index[rank - 2], rank - 2, tile_of(j, base, argument)));
  return prove(j, op, index[rank - 1], rank - 1, 128);
}

static at_status slice(at_mosaic_judge *j, const at_mop *op) {
  const at_mtype *m = ARG(op, 0), *r = RES(op, 0), *base;
  at_mosaic_ref ref;
  bool argument;
  uint32_t rank = m->shape.rank;
  at_status s = at_mosaic_ref_of(m, &ref);
  bool good = at_ok(s);
  at_status_free(s);
  if (!good || ref.semaphore || rank == 0 ||
      (ref.space != AT_MSPACE_ANY && ref.space != AT_MSPACE_HBM) ||
      !base_of(op->operands[0], &base, &argument))
    return AT_OK;
  at_mvalue *const *index = op->operands + 1;
  uint32_t bits = at_mosaic_bits(m);
  if (rank == 1) {
    int64_t c;
    if (bits != 32 || at_mosaic_value_divides(index[0], 128) ||
        r->shape.ptr[0] == m->shape.ptr[0])
      return AT_OK;
    if (!at_mosaic_value_const(index[0], &c) && r->shape.ptr[0] == 1)
      return AT_OK;
    return at_mosaic_refuse(
        j, op, AT_INTERNAL,
        "The dynamic offset times the element size is not a multiple of the "
        "memory space word size (4096 bits). If this originates from a "
        "memref_slice, try aligning the minor index to the word size.");
  }
  // Rows may start at any whole word of a tile, lanes only at whole tiles.
  int64_t tile[2] = {tile_of(j, base, argument), 128};
  int64_t unit[2] = {bits < 32 ? 32 / bits : 1, 128};
  for (uint32_t i = 0; i < 2; i++) {
    uint32_t dim = rank - 2 + i;
    int64_t have = m->shape.ptr[dim], size = r->shape.ptr[dim];
    if (size == have) continue;
    if (!at_mosaic_value_divides(index[dim], unit[i]))
      return at_mosaic_refuse(
          j, op, AT_INTERNAL,
          "Offsets along tiled dimensions must be aligned to tiles. Failed to "
          "verify that the index at dimension %u is divisible by the tile "
          "dimension %lld. If it is, use tpu.assume_multiple to suppress this "
          "error.",
          dim, (long long)tile[i]);
    if (size == AT_MDYN || size % unit[i] == 0) continue;
    return at_mosaic_refuse(
        j, op, AT_INTERNAL,
        "Slice sizes along tiled dimensions must be aligned to tiles. Failed "
        "to "
        "verify that the size at dimension %u is divisible by the tile "
        "dimension %lld. If it is, use tpu.assume_multiple to suppress this "
        "error.",
        dim, (long long)tile[i]);
  }
  return AT_OK;
}

static at_status gather(at_mosaic_judge *j, const at_mop *op) {
  const at_mtype *a = ARG(op, 0), *i = ARG(op, 1);
  uint32_t bits = at_mosaic_bits(a), rank = a->shape.rank;
  at_dims d;
  if (!at_mosaic_attr_ints(at_mop_attr(op, "dimensions"), j->scratch, &d))
    return AT_OK;
  if (bits != at_mosaic_bits(i))
    return at_mosaic_refuse(j, op, AT_INTERNAL,
                            "Not implemented: Gather indices and result have "
                            "different bitwidths");
  if (bits != 8 && bits != 16 && bits != 32)
    return at_mosaic_refuse(
        j, op, AT_INTERNAL,
        "Not implemented: Only 8-, 16- or 32-bit gathers supported");
  if (d.rank != 1) return AT_OK;
  int64_t from_end = rank - d.ptr[0];
  int64_t n = from_end == 1 ? 128 : from_end == 2 ? 8 * (32 / bits) : INT64_MAX;
  if (a->shape.ptr[d.ptr[0]] > n)
    return at_mosaic_refuse(
        j, op, AT_INTERNAL,
        "Not implemented: Multiple source vregs along gather dimension");
  return AT_OK;
}

static at_status strided(at_mosaic_judge *j, const at_mop *op, uint32_t ref) {
  const at_mtype *m = ARG(op, ref);
  uint32_t rank = m->shape.rank;
  at_dims d;
  if (rank < 2 ||
      !at_mosaic_attr_ints(at_mop_attr(op, "strides"), j->scratch, &d))
    return AT_OK;
  bool plain = d.ptr[rank - 1] == 1;
  if (m->shape.ptr[rank - 1] != 128 && !plain)
    return at_mosaic_refuse(j, op, AT_INTERNAL,
                            "Not Implemented: The last dim size is not 128 in "
                            "original base memref");
  if (!plain)
    return at_mosaic_refuse(j, op, AT_INTERNAL,
                            "Not Implemented: Stride on last dim is not 1");
  return AT_OK;
}

at_status at_mosaic_rules_layout(at_mosaic_judge *j, const at_mop *op) {
  switch (at_mosaic_opcode_of(op)) {
    case AT_MOSAIC_VECTOR_LOAD:
    case AT_MOSAIC_TPU_VECTOR_LOAD:
      return access(j, op, 0, RES(op, 0));
    case AT_MOSAIC_VECTOR_STORE:
    case AT_MOSAIC_TPU_VECTOR_STORE:
      return access(j, op, 1, ARG(op, 0));
    case AT_MOSAIC_TPU_MEMREF_SLICE:
      return slice(j, op);
    case AT_MOSAIC_TPU_DYNAMIC_GATHER:
      return gather(j, op);
    case AT_MOSAIC_TPU_STRIDED_LOAD:
      return strided(j, op, 0);
    case AT_MOSAIC_TPU_STRIDED_STORE:
      return strided(j, op, 1);
    case AT_MOSAIC_ARITH_SELECT:
      // A choice between masks goes through bytes, which masks of words cannot.
      if (j->chip->generation >= 5 && at_mosaic_is_vector(RES(op, 0)) &&
          at_mosaic_bits(RES(op, 0)) == 1)
        return at_mosaic_refuse(j, op, AT_INTERNAL, "Invalid input layout");
      return AT_OK;
    default:
      return AT_OK;
  }
}

// ---- Instructions
static at_status no_instruction(at_mosaic_judge *j, const at_mop *op,
                                const char *name) {
  return at_mosaic_refuse(j, op, AT_INTERNAL,
                          "failed to legalize operation '%s'", name);
}

// select(a < b, a, b) becomes a minimum before instructions are chosen.
static const char *min_or_max(const at_mop *op) {
  const at_mop *c = op->operands[0]->op;
  int64_t p = 0;
  if (!c || at_mosaic_opcode_of(c) != AT_MOSAIC_ARITH_CMPI ||
      !at_mosaic_attr_int(c, "predicate", &p) || p < 2)
    return NULL;
  bool straight =
      c->operands[0] == op->operands[1] && c->operands[1] == op->operands[2];
  bool crossed =
      c->operands[0] == op->operands[2] && c->operands[1] == op->operands[1];
  if (!straight && !crossed) return NULL;
  bool less = p == 2 || p == 3 || p == 6 || p == 7;
  if (p >= 6) return less == straight ? "arith.minui" : "arith.maxui";
  return less == straight ? "arith.minsi" : "arith.maxsi";
}

static at_status integer_instruction(at_mosaic_judge *j, const at_mop *op) {
  const at_mtype *t = RES(op, 0);
  uint32_t bits = at_mosaic_bits(t);
  if (!at_mosaic_is_vector(t) || bits == 32 || bits == 1) return AT_OK;
  switch (at_mosaic_opcode_of(op)) {
    case AT_MOSAIC_ARITH_DIVSI:
    case AT_MOSAIC_ARITH_DIVUI:
    case AT_MOSAIC_ARITH_REMSI:
    case AT_MOSAIC_ARITH_REMUI:
    case AT_MOSAIC_ARITH_MAXSI:
    case AT_MOSAIC_ARITH_MAXUI:
    case AT_MOSAIC_ARITH_MINSI:
    case AT_MOSAIC_ARITH_MINUI:
    case AT_MOSAIC_MATH_CTLZ:
    case AT_MOSAIC_MATH_CTPOP:
      return no_instruction(j, op, op->name);
    case AT_MOSAIC_ARITH_SHLI:
    case AT_MOSAIC_ARITH_SHRSI:
    case AT_MOSAIC_ARITH_SHRUI:
      return bits == 16 && j->chip->generation >= 6
                 ? AT_OK
                 : no_instruction(j, op, op->name);
    // JAX's own tests want this of every chip from v4 on.
    case AT_MOSAIC_MATH_ABSI:
      return bits == 16 ? AT_OK : no_instruction(j, op, op->name);
    case AT_MOSAIC_ARITH_SELECT: {
      const char *name = is_int(t) ? min_or_max(op) : NULL;
      return name ? no_instruction(j, op, name) : AT_OK;
    }
    default:
      return AT_OK;
  }
}

static bool is_float_op(at_mosaic_opcode c) {
  return (c >= AT_MOSAIC_ARITH_ADDF && c <= AT_MOSAIC_ARITH_MINNUMF) ||
         (c >= AT_MOSAIC_MATH_EXP && c <= AT_MOSAIC_MATH_ABSF) ||
         (c >= AT_MOSAIC_MATH_CEIL && c <= AT_MOSAIC_MATH_FMA) ||
         c == AT_MOSAIC_TPU_RECIPROCAL || c == AT_MOSAIC_TPU_LOGISTIC;
}

static at_status float_instruction(at_mosaic_judge *j, const at_mop *op) {
  if (op->num_results != 1 || !at_mosaic_is_vector(ARG(op, 0)) ||
      !is_narrow_float(ARG(op, 0)))
    return AT_OK;
  return no_instruction(j, op, op->name);
}

static at_status product(at_mosaic_judge *j, const at_mop *op) {
  const at_mtype *a = ARG(op, 0), *b = ARG(op, 1);
  at_dtype ta = at_mosaic_dtype_of(a), tb = at_mosaic_dtype_of(b);
  at_str p = {0};
  at_mosaic_attr_text(at_mop_attr(op, "precision"), &p);
  if (at_str_is(p, "fp32")) {
    if (ta != AT_F32)
      return at_mosaic_refuse(j, op, AT_INTERNAL, "Bad lhs type");
    if (tb != AT_F32)
      return at_mosaic_refuse(j, op, AT_INTERNAL, "Bad rhs type");
  }
  if ((is_int(a) && at_mosaic_bits(a) > 8) ||
      (is_int(b) && at_mosaic_bits(b) > 8))
    return at_mosaic_refuse(j, op, AT_INTERNAL, "Bad lhs/rhs type: '%s' '%s'",
                            type_text(j, a), type_text(j, b));
  return AT_OK;
}

static at_status remote(at_mosaic_judge *j, const at_mop *op, uint32_t group,
                        uint32_t groups) {
  at_dims g;
  uint32_t at = 0;
  int64_t id;
  if (!j->num_devices || !at_mosaic_segments(op, j->scratch, &g) ||
      g.rank != groups || g.ptr[group] == 0)
    return AT_OK;
  for (uint32_t i = 0; i < group; i++) at += (uint32_t)g.ptr[i];
  if (!at_mosaic_value_const(op->operands[at], &id) ||
      (id >= 0 && id < j->num_devices))
    return AT_OK;
  return at_mosaic_refuse(j, op, AT_INTERNAL, "Invalid device_id: %lld.",
                          (long long)id);
}

// Turns by a number that is only known at run time go over whole tiles.
static at_status rotation(at_mosaic_judge *j, const at_mop *op) {
  const at_mtype *t = ARG(op, 0);
  int64_t by, d = at_mop_attr(op, "dimension")->i;
  uint32_t rank = t->shape.rank, bits = at_mosaic_bits(t);
  if (d < 0 || d + 2 < rank || d >= rank || !bits ||
      at_mosaic_value_const(op->operands[1], &by))
    return AT_OK;
  int64_t tile = d + 1 == rank ? 128 : 8 * (32 / AT_MAX(AT_MIN(bits, 32u), 1u));
  if (t->shape.ptr[d] % tile == 0) return AT_OK;
  return at_mosaic_refuse(j, op, AT_INTERNAL,
                          "Not implemented: unsupported unaligned shape");
}

static at_status half_floats(at_mosaic_judge *j, const at_mop *op,
                             const at_mtype *t, const char *what) {
  if (at_mosaic_dtype_of(t) != AT_F16 || !at_mosaic_is_vector(t)) return AT_OK;
  return at_mosaic_refuse(j, op, AT_INTERNAL, "Invalid vector type for %s",
                          what);
}

at_status at_mosaic_rules_target(at_mosaic_judge *j, const at_mop *op) {
  at_mosaic_opcode c = at_mosaic_opcode_of(op);
  int gen = j->chip->generation;
  if (is_float_op(c)) return float_instruction(j, op);
  switch (c) {
    case AT_MOSAIC_VECTOR_LOAD:
    case AT_MOSAIC_TPU_VECTOR_LOAD:
      return half_floats(j, op, RES(op, 0), "load");
    case AT_MOSAIC_VECTOR_STORE:
    case AT_MOSAIC_TPU_VECTOR_STORE:
      return half_floats(j, op, ARG(op, 0), "store");
    case AT_MOSAIC_ARITH_CMPF:
      if (at_mosaic_is_vector(ARG(op, 0)) && is_narrow_float(ARG(op, 0)))
        return at_mosaic_refuse(j, op, AT_INTERNAL,
                                "Target does not support this comparison");
      return AT_OK;
    case AT_MOSAIC_TPU_MATMUL:
      return product(j, op);
    case AT_MOSAIC_TPU_DYNAMIC_ROTATE:
      return rotation(j, op);
    case AT_MOSAIC_TPU_MATMUL_PUSH_RHS:
    case AT_MOSAIC_TPU_MATMUL_ACC_LHS:
    case AT_MOSAIC_TPU_MATMUL_POP:
      if (c == AT_MOSAIC_TPU_MATMUL_ACC_LHS && gen < 7)
        return at_mosaic_refuse(
            j, op, AT_INTERNAL,
            "MatmulAccLhsOp not supported on TPU generations < 7");
      return AT_OK;
    case AT_MOSAIC_TPU_MATMUL_LHS_FIFO:
      if (gen >= 7)
        return at_mosaic_refuse(
            j, op, AT_INTERNAL,
            "MatmulLhsFifoOp not supported on TPU generations >= 7");
      return AT_OK;
    case AT_MOSAIC_TPU_PRNG_SET_SEED_32:
      if (op->num_operands > 2)
        return at_mosaic_refuse(
            j, op, AT_INTERNAL,
            "Setting seed with more than 2 values is not supported.");
      return AT_OK;
    case AT_MOSAIC_TPU_ENQUEUE_DMA:
      return remote(j, op, 4, 7);
    case AT_MOSAIC_TPU_SEM_SIGNAL:
      return remote(j, op, 2, 5);
    default:
      return op->num_results == 1 ? integer_instruction(j, op) : AT_OK;
  }
}

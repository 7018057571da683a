// Operations that the TPU compiler refuses when it makes types canonical and
// when it selects instructions (rules_layout.c has what lies between). The
// former follows the passes that were public up to JAX 0.8.1, both the refusals
// that were seen of the compiler.
#include "tpu/rules_internal.h"

#define ARG at_mosaic_arg
#define RES at_mosaic_res

static const at_mtype *elem(const at_mtype *t) {
  return t->kind == AT_MTYPE_VECTOR || t->kind == AT_MTYPE_MEMREF ? t->elem : t;
}
static bool is_int(const at_mtype *t) {
  return elem(t)->kind == AT_MTYPE_INTEGER;
}
// Floats that the vector unit does not compute with.
static bool is_narrow_float(const at_mtype *t) {
  at_dtype d = at_mosaic_dtype_of(t);
  return at_is_float(d) && (at_dtype_of(d)->bits < 16 || d == AT_F16);
}
// Only v7 computes with these.
static bool is_new_float(at_mosaic_judge *j, const at_mtype *t) {
  at_dtype d = at_mosaic_dtype_of(t);
  return at_is_float(d) && at_dtype_of(d)->bits == 4 && j->chip->generation < 7;
}
// In the judge's scratch arena; "?" without memory.
static const char *type_text(at_mosaic_judge *j, const at_mtype *t) {
  at_strbuf b = {0};
  at_mtype_print(&b, t);
  const char *s = b.ptr ? at_arena_str(j->scratch, at_strbuf_str(&b)) : NULL;
  at_strbuf_free(&b);
  return s ? s : "?";
}

// ---- Canonicalisation
// add, sub and mul: scalars of 32 bits, vectors of 16 or 32.
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

// The scalar core has truths and words.
static at_status scalar_types(at_mosaic_judge *j, const at_mop *op) {
  const at_mtype *t = RES(op, 0);
  uint32_t bits = at_mosaic_bits(t);
  if (at_mosaic_is_vector(t) || !is_int(t) || bits == 32 || bits == 1)
    return AT_OK;
  return at_mosaic_refuse(
      j, op, AT_INTERNAL,
      "Not implemented: Only i1 and i32 scalars are supported.");
}

// The compiler's last word where no pattern matched.
static at_status no_instruction(at_mosaic_judge *j, const at_mop *op,
                                const char *name) {
  return at_mosaic_refuse(j, op, AT_INTERNAL,
                          "failed to legalize operation '%s'", name);
}

// Along dimensions of one element a reduction is no more than its last step.
static at_status reduction_types(at_mosaic_judge *j, const at_mop *op) {
  // Of the operand: the accumulator has the same.
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
  // Nothing is added up where as many elements come out as go in.
  int64_t n = at_mosaic_elements(ARG(op, 0)->shape);
  if (at_is_float(t) && n >= 0 && n == at_mosaic_elements(RES(op, 0)->shape)) {
    if (!at_str_is(kind, "add")) return AT_OK;
    if (at_mosaic_bits(ARG(op, 0)) == 8)
      return no_instruction(j, op, "arith.addf");
  }
  return at_mosaic_refuse(
      j, op, AT_INTERNAL,
      "Unsupported element type for the selected reduction");
}

// From v7 on integers are multiplied as floats.
static at_status matmul_types_7(at_mosaic_judge *j, const at_mop *op) {
  // Operands that are both words are multiplied as floats, which their
  // accumulator must be told.
  uint32_t words = 0;
  for (uint32_t i = 0; i < 3; i++) {
    if (is_int(ARG(op, i)) && at_mosaic_bits(ARG(op, i)) == 16)
      return at_mosaic_refuse(j, op, AT_INTERNAL,
                              "Integer inputs with bitwidth 16 are not "
                              "supported as matmul/accumulator inputs.");
    words += i < 2 && is_int(ARG(op, i)) && at_mosaic_bits(ARG(op, i)) == 32;
  }
  if (words == 2)
    return at_mosaic_refuse(j, op, AT_INTERNAL,
                            "float acc with int lhs. Expected float lhs.");
  if (at_mosaic_bits(ARG(op, 2)) != 32)
    return at_mosaic_refuse(j, op, AT_INTERNAL,
                            "Expected 32-bit acc in tpu::MatmulOp");
  return AT_OK;
}

// Which mixtures of integers and floats an accumulator takes.
static at_status matmul_types(at_mosaic_judge *j, const at_mop *op) {
  if (j->chip->generation >= 7) return matmul_types_7(j, op);
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

// One element of a vector.
static at_status extract_types(at_mosaic_judge *j, const at_mop *op) {
  const at_mtype *t = RES(op, 0);
  uint32_t bits = at_mosaic_bits(t);
  if (at_mosaic_is_vector(t) || bits == 32 || bits == 1) return AT_OK;
  return at_mosaic_refuse(j, op, AT_INTERNAL,
                          "Only 32-bit scalar vector.extracts supported. Cast "
                          "your input to a 32-bit type first.");
}

// Only to bf16 and three kinds of f8.
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

// Arithmetic of integers, reductions, extracts and products.
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
    case AT_MOSAIC_VECTOR_EXTRACT:
      return extract_types(j, op);
    case AT_MOSAIC_TPU_MATMUL:
      return matmul_types(j, op);
    case AT_MOSAIC_TPU_STOCHASTIC_CONVERT:
      return stochastic_types(j, op);
    default:
      return AT_OK;
  }
}

// ---- Instructions
// v without integer extensions, which do not change what is compared.
static const at_mvalue *narrowed(const at_mvalue *v) {
  v = at_mosaic_value_folded(v);
  if (!v->op) return v;
  at_mosaic_opcode c = at_mosaic_opcode_of(v->op);
  return c == AT_MOSAIC_ARITH_EXTSI || c == AT_MOSAIC_ARITH_EXTUI
             ? at_mosaic_value_folded(v->op->operands[0])
             : v;
}

// Operations that only load.
static bool is_read(const at_mop *op) {
  at_mosaic_opcode c = at_mosaic_opcode_of(op);
  return c == AT_MOSAIC_MEMREF_LOAD || c == AT_MOSAIC_VECTOR_LOAD;
}

// The same value, or two reads of one place with no write between them.
static bool is_same(const at_mvalue *a, const at_mvalue *b) {
  if (a == b) return true;
  const at_mop *x = a->op, *y = b->op;
  if (!x || !y || !is_read(x) || x->tag != y->tag || x->block != y->block ||
      a->type != b->type || x->num_operands != y->num_operands)
    return false;
  for (uint32_t i = 0; i < x->num_operands; i++) {
    int64_t m, n;
    if (x->operands[i] != y->operands[i] &&
        !(at_mosaic_value_const(x->operands[i], &m) &&
          at_mosaic_value_const(y->operands[i], &n) && m == n))
      return false;
  }
  bool between = false;
  for (uint32_t i = 0; i < x->block->num_ops; i++) {
    const at_mop *op = x->block->ops[i];
    if (op == x || op == y) {
      if (between) return true;
      between = true;
    } else if (between && (op->num_regions || op->num_results == 0)) {
      return false;
    }
  }
  return false;
}

// select(a < b, a, b) becomes a minimum before instructions are chosen. NULL:
// this select does not.
static const char *min_or_max(const at_mop *op) {
  enum { NE = 1, SLT = 2 };
  const at_mop *c = op->operands[0]->op;
  int64_t p = 0;
  // A mask that became numbers and is compared with zero is itself.
  if (c && at_mosaic_opcode_of(c) == AT_MOSAIC_ARITH_CMPI &&
      at_mosaic_attr_int(c, "predicate", &p) && p == NE &&
      at_mosaic_bits(narrowed(c->operands[0])->type) == 1)
    c = narrowed(c->operands[0])->op;
  if (!c || at_mosaic_opcode_of(c) != AT_MOSAIC_ARITH_CMPI ||
      !at_mosaic_attr_int(c, "predicate", &p) || p < SLT)
    return NULL;
  const at_mvalue *a = narrowed(c->operands[0]), *b = narrowed(c->operands[1]),
                  *x = narrowed(op->operands[1]),
                  *y = narrowed(op->operands[2]);
  bool straight = is_same(a, x) && is_same(b, y),
       crossed = is_same(a, y) && is_same(b, x);
  if (!straight && !crossed) return NULL;
  // Predicates 2 to 5 compare with a sign, 6 to 9 without; the first two of
  // each are "less".
  bool less = p == 2 || p == 3 || p == 6 || p == 7;
  if (p >= 6) return less == straight ? "arith.minui" : "arith.maxui";
  return less == straight ? "arith.minsi" : "arith.maxsi";
}

// An extremum of wider numbers that is cut back to their own width is one of
// that width.
static const char *narrow_extremum(const at_mop *op) {
  const at_mop *wide = op->operands[0]->op;
  if (!wide) return NULL;
  at_mosaic_opcode c = at_mosaic_opcode_of(wide);
  bool choice = c == AT_MOSAIC_ARITH_SELECT;
  if (c != AT_MOSAIC_ARITH_MAXSI && c != AT_MOSAIC_ARITH_MINSI && !choice)
    return NULL;
  for (uint32_t i = choice; i < 2u + choice; i++) {
    const at_mop *from = wide->operands[i]->op;
    if (!from || at_mosaic_opcode_of(from) != AT_MOSAIC_ARITH_EXTSI ||
        at_mosaic_bits(ARG(from, 0)) != at_mosaic_bits(RES(op, 0)))
      return NULL;
  }
  return choice ? min_or_max(wide) : wide->name;
}

// The scalar core compares words. A comparison that became an extremum is gone.
static at_status scalar_comparison(at_mosaic_judge *j, const at_mop *op) {
  uint32_t bits = at_mosaic_bits(ARG(op, 0));
  if (at_mosaic_is_vector(ARG(op, 0)) || bits == 32 || bits == 1) return AT_OK;
  for (uint32_t i = 0; i < op->block->num_ops; i++) {
    const at_mop *use = op->block->ops[i];
    if (at_mosaic_opcode_of(use) == AT_MOSAIC_ARITH_SELECT &&
        use->operands[0] == &op->results[0] && min_or_max(use))
      return AT_OK;
  }
  return no_instruction(j, op, op->name);
}

// Vectors of narrow integers: few instructions exist, and extrema that other
// operations turn into are refused like themselves.
static at_status integer_instruction(at_mosaic_judge *j, const at_mop *op) {
  const at_mtype *t = RES(op, 0);
  uint32_t bits = at_mosaic_bits(t);
  if (bits == 32 || bits == 1) return AT_OK;
  if (!at_mosaic_is_vector(t) &&
      at_mosaic_opcode_of(op) != AT_MOSAIC_ARITH_SELECT)
    return AT_OK;
  switch (at_mosaic_opcode_of(op)) {
    case AT_MOSAIC_ARITH_DIVUI:
    case AT_MOSAIC_ARITH_REMUI:
      if (bits == 16 || (bits == 8 && j->chip->generation >= 6)) return AT_OK;
      if (bits < 8) return no_instruction(j, op, op->name);
      return at_mosaic_refuse(
          j, op, AT_INTERNAL,
          "LLO_CHECK failure (platforms/xla/service/jellyfish/llo/"
          "llo_region_builder.cc:1823) "
          "target().SupportsVectorSubtract(signed_arith_type)");
    case AT_MOSAIC_ARITH_DIVSI:
    case AT_MOSAIC_ARITH_REMSI:
    case AT_MOSAIC_ARITH_MAXSI:
    case AT_MOSAIC_ARITH_MAXUI:
    case AT_MOSAIC_ARITH_MINSI:
    case AT_MOSAIC_ARITH_MINUI:
    case AT_MOSAIC_MATH_CTLZ:
    case AT_MOSAIC_MATH_CTPOP:
      return no_instruction(j, op, op->name);
    case AT_MOSAIC_ARITH_TRUNCI: {
      const char *name = narrow_extremum(op);
      return name ? no_instruction(j, op, name) : AT_OK;
    }
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

// Arithmetic on floats.
static bool is_float_op(at_mosaic_opcode c) {
  return (c >= AT_MOSAIC_ARITH_ADDF && c <= AT_MOSAIC_ARITH_MINNUMF) ||
         (c >= AT_MOSAIC_MATH_EXP && c <= AT_MOSAIC_MATH_ABSF) ||
         (c >= AT_MOSAIC_MATH_CEIL && c <= AT_MOSAIC_MATH_FMA) ||
         c == AT_MOSAIC_TPU_RECIPROCAL || c == AT_MOSAIC_TPU_LOGISTIC;
}

// What the scalar core computes with is f32.
static at_status scalar_float(at_mosaic_judge *j, const at_mop *op) {
  const at_mtype *t = ARG(op, 0);
  if (at_mosaic_is_vector(t) || at_mosaic_bits(t) >= 32) return AT_OK;
  if (at_mosaic_opcode_of(op) != AT_MOSAIC_ARITH_EXTF)
    return no_instruction(j, op, op->name);
  if (at_mosaic_dtype_of(t) == AT_F16)
    return at_mosaic_refuse(
        j, op, AT_INTERNAL,
        "Unsupported input type for float extension: 'f16'");
  if (at_mosaic_dtype_of(RES(op, 0)) == AT_F32) return AT_OK;
  return at_mosaic_refuse(j, op, AT_INTERNAL,
                          "Only scalar extensions to f32 are supported.");
}

// Narrow floats are widened by the kernel, not by the compiler.
static at_status float_instruction(at_mosaic_judge *j, const at_mop *op) {
  at_mosaic_opcode c = at_mosaic_opcode_of(op);
  const at_mtype *t = ARG(op, 0);
  if (op->num_results != 1) return AT_OK;
  if (!at_mosaic_is_vector(t)) return scalar_float(j, op);
  bool words_only = c == AT_MOSAIC_ARITH_REMF || c == AT_MOSAIC_MATH_ATAN2;
  if (!is_narrow_float(t) && !(words_only && at_mosaic_bits(t) < 32))
    return AT_OK;
  if (c == AT_MOSAIC_ARITH_DIVF && at_mosaic_bits(t) < 16)
    return at_mosaic_refuse(j, op, AT_INTERNAL, "Unsupported data type");
  return no_instruction(j, op, op->name);
}

// What an operand is multiplied as: integers by floats as floats, from v7 on
// only words.
static at_dtype multiplied(at_mosaic_judge *j, const at_mtype *t,
                           const at_mtype *other) {
  at_dtype d = at_mosaic_dtype_of(t);
  bool becomes =
      j->chip->generation >= 7 ? d == AT_S32 : is_int(t) && !is_int(other);
  return becomes ? AT_F32 : d;
}

// Of eight bits.
static bool is_small_float(const at_mtype *t) {
  at_dtype d = at_mosaic_dtype_of(t);
  return at_is_float(d) && at_dtype_of(d)->bits == 8;
}

// The matrix unit of v4 has 16-bit floats alone; that of v4i has bytes, too.
static at_status formats_4(at_mosaic_judge *j, const at_mop *op) {
  const at_mtype *a = ARG(op, 0), *b = ARG(op, 1);
  if (j->chip->generation != 4 || j->chip->cores_per_device == 1) return AT_OK;
  if (is_small_float(b) || (is_int(a) && is_int(b)))
    return at_mosaic_refuse(j, op, AT_INTERNAL,
                            "E2001: CompileTimeMosaicUnsupportedRhsType: "
                            "Unsupported matmul RHS type on target: %s",
                            type_text(j, b));
  if (is_small_float(a))
    return at_mosaic_refuse(j, op, AT_INTERNAL,
                            "LLO_CHECK failure "
                            "target().SupportsMatmulDataFormat(format) "
                            "unsupported data format for vmatmul: %s",
                            type_text(j, a));
  return AT_OK;
}

// Precision and element types of a product on this chip's matrix unit.
static at_status product(at_mosaic_judge *j, const at_mop *op) {
  const at_mtype *a = ARG(op, 0), *b = ARG(op, 1);
  at_dtype ta = multiplied(j, a, b), tb = multiplied(j, b, a);
  at_str p = {0};
  at_mosaic_attr_text(at_mop_attr(op, "precision"), &p);
  if (at_str_is(p, "fp32")) {
    if (ta != AT_F32)
      return at_mosaic_refuse(j, op, AT_INTERNAL, "Bad lhs type");
    if (tb != AT_F32)
      return at_mosaic_refuse(j, op, AT_INTERNAL, "Bad rhs type");
  }
  // Widths that no chip multiplies, then those of this generation.
  uint32_t bits[2] = {at_mosaic_bits(a), at_mosaic_bits(b)};
  if (bits[0] == 1 && bits[1] == 1)
    return at_mosaic_refuse(
        j, op, AT_INTERNAL,
        "Not implemented: changeBitwidth when src bitwidth and dst bitwidth "
        "differs too much.");
  if (bits[0] == 1 || bits[1] == 1)
    return no_instruction(j, op, "tpu.unpack_subelements");
  if (bits[0] == 2 && bits[1] == 2)
    return at_mosaic_refuse(j, op, AT_INTERNAL,
                            "Unsupported type for matmul: '%s'",
                            type_text(j, a));
  if (is_new_float(j, a) || is_new_float(j, b))
    return at_mosaic_refuse(j, op, AT_INTERNAL, "Bad lhs/rhs type: '%s' '%s'",
                            type_text(j, a), type_text(j, b));
  if (j->chip->generation < 7 && is_int(a) && is_int(b) &&
      (bits[0] > 8 || bits[1] > 8))
    return at_mosaic_refuse(
        j, op, AT_INTERNAL,
        "Bad lhs/rhs type: 'vector<%lldx%lldxi%u>' 'vector<%lldx%lldxi%u>'",
        (long long)at_mosaic_size(a, 2), (long long)at_mosaic_size(a, 1),
        bits[0], (long long)at_mosaic_size(b, 2),
        (long long)at_mosaic_size(b, 1), bits[1]);
  return formats_4(j, op);
}

// A constant device id must be one of the program's devices; operand group
// `group` of `groups` holds it.
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

// Masks are joined where whole registers meet.
static at_status join(at_mosaic_judge *j, const at_mop *op) {
  const at_mtype *t = RES(op, 0);
  const at_mattr *along = at_mop_attr(op, "dimension");
  if (!at_mosaic_is_vector(t) || at_mosaic_bits(t) != 1 || !along ||
      along->i < 0 || along->i >= t->shape.rank)
    return AT_OK;
  int64_t from_end = t->shape.rank - along->i, at = 0;
  // Elements of a register along that dimension, of masks that are held as
  // words.
  int64_t unit = t->shape.rank == 1 ? 1024
                 : from_end == 1    ? 128
                 : from_end == 2    ? 8
                                    : 1;
  for (uint32_t i = 0; i < op->num_operands; i++) {
    if (at % unit)
      return at_mosaic_refuse(j, op, AT_INTERNAL,
                              "Invalid vector register cast");
    at += ARG(op, i)->shape.ptr[along->i];
  }
  return AT_OK;
}

// Narrow gathers came with generation 6.
static at_status gather_instruction(at_mosaic_judge *j, const at_mop *op) {
  const at_mtype *t = ARG(op, 0);
  uint32_t bits = at_mosaic_bits(t);
  at_dims d;
  if (j->chip->generation >= 6 || bits >= 32 ||
      !at_mosaic_attr_ints(at_mop_attr(op, "dimensions"), j->scratch, &d) ||
      d.rank != 1 || t->shape.ptr[d.ptr[0]] == 1)
    return AT_OK;
  int64_t from_end = t->shape.rank - d.ptr[0];
  if (from_end == 2)
    return at_mosaic_refuse(j, op, AT_INTERNAL,
                            "Byte gather not supported by this TPU generation");
  if (from_end == 1 && bits == 16)
    return at_mosaic_refuse(
        j, op, AT_INTERNAL,
        "Unsupported set permute mode for this TPU generation");
  return AT_OK;
}

// Vectors of f16.
static bool is_half_floats(const at_mtype *t) {
  return at_mosaic_dtype_of(t) == AT_F16 && at_mosaic_is_vector(t);
}

// Masks that branches choose.
static at_status branch(at_mosaic_judge *j, const at_mop *op) {
  bool empty = true;
  for (uint32_t r = 0; r < op->num_regions; r++)
    for (uint32_t b = 0; b < op->regions[r]->num_blocks; b++)
      for (uint32_t i = 0; i < op->regions[r]->blocks[b]->num_ops; i++) {
        const at_mop *o = op->regions[r]->blocks[b]->ops[i];
        empty &= at_mosaic_opcode_of(o) == AT_MOSAIC_SCF_YIELD ||
                 (o->num_results && at_mosaic_value_known(j, &o->results[0]));
      }
  for (uint32_t i = 0; i < op->num_results; i++) {
    if (!at_mosaic_is_vector(RES(op, i)) || at_mosaic_bits(RES(op, i)) != 1)
      continue;
    if (!empty) return no_instruction(j, op, op->name);
  }
  return AT_OK;
}

// Masks that a loop changes.
static at_status loop(at_mosaic_judge *j, const at_mop *op) {
  const at_mblock *b = op->regions[0]->blocks[0];
  // A mask that goes round unchanged needs no register that changes.
  const at_mop *yield = b->ops[b->num_ops - 1];
  uint32_t n = AT_MIN(op->num_results, yield->num_operands);
  for (uint32_t i = 0; i < n && i + 1 < b->num_args; i++)
    if (at_mosaic_is_vector(RES(op, i)) && at_mosaic_bits(RES(op, i)) == 1 &&
        yield->operands[i] != &b->args[i + 1])
      return no_instruction(j, op, op->name);
  return AT_OK;
}

// A constant of a narrow float has no register of its own.
static at_status scalar_store(at_mosaic_judge *j, const at_mop *op) {
  const at_mtype *t = ARG(op, 0);
  if (t->kind != AT_MTYPE_FLOAT || at_mosaic_bits(t) >= 32 ||
      !at_mosaic_value_known(j, op->operands[0]))
    return AT_OK;
  return at_mosaic_refuse(j, op, AT_INTERNAL,
                          "failed to legalize unresolved materialization from "
                          "() to ('%s') that remained live after conversion",
                          type_text(j, t));
}

// One allocation larger than VMEM.
static at_status allocation(at_mosaic_judge *j, const at_mop *op) {
  at_mosaic_ref r;
  at_status s = at_mosaic_ref_of(RES(op, 0), &r);
  bool good = at_ok(s);
  at_status_free(s);
  if (!good || r.semaphore || r.space != AT_MSPACE_VMEM) return AT_OK;
  int64_t bytes = at_mosaic_ref_bytes(j->chip, &r, false);
  if (bytes <= j->chip->vmem_bytes) return AT_OK;
  return at_mosaic_refuse(j, op, AT_RESOURCE_EXHAUSTED,
                          "Allocation (size=%lld) would exceed memory "
                          "(size=%lld) :: #allocation [scoped memory]: a "
                          "scope asks for more than there is",
                          (long long)bytes, (long long)j->chip->vmem_bytes);
}

// Cases in the order of kinds; what has none, and one result, is judged as
// integer arithmetic.
at_status at_mosaic_rules_target(at_mosaic_judge *j, const at_mop *op) {
  at_mosaic_opcode c = at_mosaic_opcode_of(op);
  int gen = j->chip->generation;
  if (is_float_op(c)) return float_instruction(j, op);
  switch (c) {
    case AT_MOSAIC_VECTOR_LOAD:
    case AT_MOSAIC_TPU_VECTOR_LOAD:
      if (!is_half_floats(RES(op, 0))) return AT_OK;
      return at_mosaic_refuse(j, op, AT_INTERNAL,
                              "Invalid vector type for load");
    case AT_MOSAIC_ARITH_TRUNCF:
    case AT_MOSAIC_ARITH_SITOFP:
    case AT_MOSAIC_ARITH_UITOFP:
    case AT_MOSAIC_TPU_TRUNCF:
    case AT_MOSAIC_TPU_SITOFP:
      if (at_mosaic_is_vector(RES(op, 0)) && is_new_float(j, RES(op, 0)))
        return at_mosaic_refuse(
            j, op, AT_INTERNAL,
            "Not implemented: Conversion to 4-bit not supported before TPUv7");
      return is_half_floats(RES(op, 0))
                 ? no_instruction(j, op, "tpu.pack_subelements")
                 : AT_OK;
    case AT_MOSAIC_VECTOR_STORE:
    case AT_MOSAIC_TPU_VECTOR_STORE:
      return is_half_floats(ARG(op, 0)) ? no_instruction(j, op, "tpu.store")
                                        : AT_OK;
    case AT_MOSAIC_ARITH_CMPF:
      if (at_mosaic_is_vector(ARG(op, 0)) && is_narrow_float(ARG(op, 0)))
        return at_mosaic_refuse(j, op, AT_INTERNAL,
                                "Target does not support this comparison");
      return scalar_float(j, op);
    case AT_MOSAIC_ARITH_CMPI:
      return scalar_comparison(j, op);
    case AT_MOSAIC_ARITH_EXTF:
    case AT_MOSAIC_TPU_EXTF:
      if (at_mosaic_is_vector(ARG(op, 0)) && is_new_float(j, ARG(op, 0)))
        return at_mosaic_refuse(j, op, AT_INTERNAL,
                                "Unsupported type 'vector<8x128x8x%s>'",
                                type_text(j, elem(ARG(op, 0))));
      return is_half_floats(RES(op, 0))
                 ? no_instruction(j, op, "tpu.pack_subelements")
                 : scalar_float(j, op);
    case AT_MOSAIC_VECTOR_BROADCAST:
    case AT_MOSAIC_TPU_BITCAST:
      if (!is_half_floats(RES(op, 0)) ||
          at_mosaic_is_vector(ARG(op, 0)) == (c == AT_MOSAIC_VECTOR_BROADCAST))
        return AT_OK;
      return at_mosaic_refuse(j, op, AT_INTERNAL,
                              "Invalid vector register cast");
    case AT_MOSAIC_SCF_IF:
      return branch(j, op);
    case AT_MOSAIC_SCF_FOR:
      return loop(j, op);
    case AT_MOSAIC_MEMREF_STORE:
      return scalar_store(j, op);
    case AT_MOSAIC_MEMREF_ALLOCA:
      return allocation(j, op);
    case AT_MOSAIC_TPU_MATMUL:
      return product(j, op);
    case AT_MOSAIC_TPU_CONCATENATE:
      return join(j, op);
    case AT_MOSAIC_TPU_DYNAMIC_GATHER:
      return gather_instruction(j, op);
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

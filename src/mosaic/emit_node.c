// How operations on vectors become nodes.
#include "mosaic/emit_memory.h"

// ---- constants
// A literal as a scalar register, whatever the lane count; data: its bytes,
// else the attribute's number.
static LLVMValueRef number(at_me *m, at_dtype t, const at_mattr *v,
                           const uint8_t *data) {
  uint32_t lanes = m->e->lanes;
  m->e->lanes = 1;
  at_type type = at_type_scalar(t);
  uint8_t raw[8] = {0};
  if (data) {
    memcpy(raw, data, at_dtype_bytes(t));
  } else if (at_is_float(t)) {
    at_store_float(t, raw, v->f);
  } else {
    memcpy(raw, &v->i, at_dtype_bytes(t));
    if (t == AT_PRED) raw[0] = v->i != 0;
  }
  at_literal l = {.type = type, .data = raw, .bytes = at_dtype_bytes(t)};
  at_val r = at_em_literal(m->e, &l, 0);
  m->e->lanes = lanes;
  return r.re;
}

// Scalars are registers, splats one register, other vectors constant data of
// the module.
at_status at_me_op_constant(at_me *m, at_mop *op) {
  const at_mattr *v = at_mop_attr(op, "value");
  at_mvalue *r = &op->results[0];
  at_dtype t = at_mosaic_dtype_of(r->type);
  if (!v || t == AT_INVALID) return at_me_refuse(m, op, "its value");
  if (!at_mosaic_is_vector(r)) {
    at_me_set_scalar(m, r, number(m, t, v, NULL));
    return AT_OK;
  }
  if (v->kind != AT_MATTR_DENSE && v->kind != AT_MATTR_RESOURCE)
    return at_me_refuse(m, op, "a vector that is not dense");
  size_t es = at_dtype_bytes(t);
  if (v->data.len < es) return at_me_refuse(m, op, "no data");
  bool splat = v->splat || v->data.len == es;
  at_me_node *n =
      at_me_node_new(m, splat ? AT_ME_SPLAT : AT_ME_BUFFER, op, r->type);
  if (!n) return AT_OK;
  if (splat) {
    n->scalar = number(m, t, v, v->data.ptr);
  } else {
    if ((int64_t)(v->data.len / es) < at_me_elements(n))
      return at_me_refuse(m, op, "too little data");
    at_me_dense(m, at_me_node_ref(m, n),
                at_b_bytes(m->e, v->data.ptr, v->data.len), t, n->rank, n->dim);
  }
  return at_me_set_node(m, r, n);
}

// ---- elementwise
// Where op makes something of v that is never NaN.
static void check_conversion(at_me *m, const at_mop *op, at_mosaic_opcode c,
                             at_me_node *v) {
  at_dtype rt = at_mosaic_dtype_of(op->results[0].type);
  bool loses_nan = at_is_float(v->dtype) && !at_is_float(rt) &&
                   c != AT_MOSAIC_ARITH_CMPF && c != AT_MOSAIC_TPU_WEIRD &&
                   c != AT_MOSAIC_ARITH_SELECT && c != AT_MOSAIC_ARITH_BITCAST;
  bool counts = at_mplan_value_of(m->plan, &op->results[0])->counts;
  if (loses_nan)
    at_me_check_nan(m, op, v, NULL,
                    counts ? AT_CORE_NAN_CONVERTED : AT_CORE_NAN_CHOSEN);
}

// The operation on registers, at once.
static at_status emit_scalar_op(at_me *m, at_mop *op, at_mosaic_opcode c) {
  at_val args[AT_ME_MAX_IN] = {{0}};
  at_dtype types[AT_ME_MAX_IN] = {0};
  if (op->num_operands > AT_ME_MAX_IN || op->num_operands == 0)
    return at_me_refuse(m, op, "%u operands", op->num_operands);
  for (uint32_t i = 0; i < op->num_operands; i++) {
    args[i].re = at_me_scalar(m, op->operands[i]);
    types[i] = at_mosaic_dtype_of(op->operands[i]->type);
  }
  if (m->o->check_nan)
    check_conversion(m, op, c, at_me_splat(m, types[0], args[0].re));
  at_dtype rt = at_mosaic_dtype_of(op->results[0].type);
  at_me_set_scalar(m, &op->results[0],
                   at_me_apply(m, op, c, types, rt, args).re);
  return AT_OK;
}

// What the kernel says of a number: the compiler relies on it.
at_status at_me_op_assume_multiple(at_me *m, at_mop *op) {
  AT_TRY(emit_scalar_op(m, op, AT_MOSAIC_TPU_ASSUME_MULTIPLE));
  int64_t multiple = at_mosaic_op_int(op, "multiple", 1);
  if (!m->o->check || m->window || multiple < 2) return AT_OK;
  LLVMValueRef v = at_me_scalar(m, &op->results[0]);
  if (at_em_bits_of(at_b_type_of(v)) != 32) return AT_OK;
  LLVMValueRef args[4] = {m->core, at_me_i32(m, at_me_loc(m, op)), v,
                          at_me_i32(m, multiple)};
  at_b_call(m->e, "at_core_check_multiple", NULL, args, 4);
  return AT_OK;
}

// An APPLY node; scalar operands, as of select, become splats.
static at_status emit_vector_op(at_me *m, at_mop *op, at_mosaic_opcode c) {
  at_me_node *n = at_me_node_new(m, AT_ME_APPLY, op, op->results[0].type);
  if (!n) return AT_OK;
  n->code = c;
  if (op->num_operands == 0) return at_me_refuse(m, op, "no operands");
  for (uint32_t i = 0; i < op->num_operands; i++) {
    at_mvalue *v = op->operands[i];
    at_me_node *in =
        at_mosaic_is_vector(v)
            ? at_me_vector(m, v)
            : at_me_splat(m, at_mosaic_dtype_of(v->type), at_me_scalar(m, v));
    at_me_node_hold(m, n, in);
  }
  if (c == AT_MOSAIC_ARITH_SELECT) at_me_announce_choice(m, op);
  check_conversion(m, op, c, n->in[0]);
  return at_me_set_node(m, &op->results[0], n);
}

// Operations of form EACH: element by element, on scalars or vectors.
at_status at_me_op_each(at_me *m, at_mop *op) {
  at_mosaic_opcode c = at_mosaic_opcode_of(op);
  if (op->num_results != 1) return at_me_op_none(m, op);
  return at_mosaic_is_vector(&op->results[0]) ? emit_vector_op(m, op, c)
                                              : emit_scalar_op(m, op, c);
}

// Says nothing about values: a ref stays the same, a vector goes through.
at_status at_me_op_assume_layout(at_me *m, at_mop *op) {
  if (op->num_results != 1 || op->results[0].type->kind != AT_MTYPE_MEMREF)
    return at_me_op_each(m, op);
  return at_me_op_same_ref(m, op);
}

// ---- movement
// A node of `kind` over the first operand.
static at_me_node *over(at_me *m, at_mop *op, at_me_kind kind) {
  at_me_node *n = at_me_node_new(m, kind, op, op->results[0].type);
  if (n) at_me_node_hold(m, n, at_me_vector(m, op->operands[0]));
  return n;
}

// A scalar is a SPLAT of the result's shape.
at_status at_me_op_broadcast(at_me *m, at_mop *op) {
  at_mvalue *a = op->operands[0];
  if (at_mosaic_is_vector(a))
    return at_me_set_node(m, &op->results[0], over(m, op, AT_ME_BROADCAST));
  at_me_node *n = at_me_node_new(m, AT_ME_SPLAT, op, op->results[0].type);
  if (n) n->scalar = at_me_scalar(m, a);
  return at_me_set_node(m, &op->results[0], n);
}

// Dimensions without offsets begin at 0 with step 1.
at_status at_me_op_slice(at_me *m, at_mop *op) {
  at_me_node *n = over(m, op, AT_ME_SLICE);
  uint32_t k;
  if (!n) return AT_OK;
  if (!at_mosaic_op_ints(op, "offsets", n->ints, AT_ME_RANK, &k))
    return at_me_refuse(m, op, "its offsets");
  if (!at_mosaic_op_ints(op, "strides", n->step, AT_ME_RANK, &k))
    return at_me_refuse(m, op, "its strides");
  for (uint32_t d = k; d < n->rank; d++) n->step[d] = 1;
  return at_me_set_node(m, &op->results[0], n);
}

// ints: dimension d of the result is dimension ints[d] of the operand.
at_status at_me_op_transpose(at_me *m, at_mop *op) {
  at_me_node *n = over(m, op, AT_ME_TRANSPOSE);
  uint32_t k;
  if (!n) return AT_OK;
  if (!at_mosaic_op_ints(op, "permutation", n->ints, AT_ME_RANK, &k) ||
      k != n->rank)
    return at_me_refuse(m, op, "its permutation");
  return at_me_set_node(m, &op->results[0], n);
}

// Amount and stride are kept; the node computes positions where it is used.
at_status at_me_op_rotate(at_me *m, at_mop *op) {
  at_me_node *n = over(m, op, AT_ME_ROTATE);
  if (!n) return AT_OK;
  int64_t d = at_mosaic_op_int(op, "dimension", 0), size = n->dim[d];
  n->ints[0] = d;
  n->ints[1] = at_mosaic_op_int(op, "stride", 0);
  n->ints[2] = at_mosaic_op_int(op, "stride_dimension", -1);
  // The amount, brought into 0 .. size - 1.
  at_em *e = m->e;
  LLVMValueRef s = at_me_scalar(m, op->operands[1]), k = at_me_i32(m, size);
  s = at_b_bin(e, AT_B_SREM, s, k);
  LLVMValueRef neg = at_b_icmp(e, AT_B_SLT, s, at_me_i32(m, 0));
  n->scalar = at_b_select(e, neg, at_b_bin(e, AT_B_ADD, s, k), s);
  return at_me_set_node(m, &op->results[0], n);
}

// Indexed elements need an operand that can be read anywhere.
at_status at_me_op_take(at_me *m, at_mop *op) {
  at_me_node *table = at_me_readable(m, at_me_vector(m, op->operands[0]));
  at_me_node *n = at_me_node_new(m, AT_ME_TAKE, op, op->results[0].type);
  int64_t dims[AT_ME_RANK];
  uint32_t k;
  if (!at_mosaic_op_ints(op, "dimensions", dims, AT_ME_RANK, &k) || k != 1)
    return at_me_refuse(m, op, "several dimensions");
  if (!n) return AT_OK;
  n->ints[0] = dims[0];
  at_me_node_hold(m, n, table);
  at_me_node_hold(m, n, at_me_vector(m, op->operands[1]));
  at_me_node_drop(m, table);
  return at_me_set_node(m, &op->results[0], n);
}

// Static indices become a constant table of at most 1,024 entries.
at_status at_me_op_pick(at_me *m, at_mop *op) {
  at_me_node *n = over(m, op, AT_ME_PICK);
  int64_t index[1024];
  uint32_t k;
  if (!n) return AT_OK;
  n->ints[0] = at_mosaic_op_int(op, "dimension", 0);
  if (!at_mosaic_op_ints(op, "indices", index, 1024, &k) || k == 0)
    return at_me_refuse(m, op, "its indices");
  int32_t table[1024];
  for (uint32_t i = 0; i < k; i++) table[i] = (int32_t)index[i];
  int64_t count = k;
  at_me_dense(m, at_me_node_ref(m, n),
              at_b_bytes(m->e, table, k * sizeof *table), AT_S32, 1, &count);
  return at_me_set_node(m, &op->results[0], n);
}

// ints[0]: the dimension along which the operand comes again.
at_status at_me_op_repeat(at_me *m, at_mop *op) {
  at_me_node *n = over(m, op, AT_ME_REPEAT);
  if (!n) return AT_OK;
  n->ints[0] = at_mosaic_op_int(op, "dimension", 0);
  return at_me_set_node(m, &op->results[0], n);
}

// Equal widths are elementwise; else elements are joined or split along the
// packed dimension.
at_status at_me_op_bitcast(at_me *m, at_mop *op) {
  at_mosaic_opcode c = at_mosaic_opcode_of(op);
  at_mvalue *r = &op->results[0];
  if (!at_mosaic_is_vector(r)) return emit_scalar_op(m, op, c);
  at_dtype from = at_mosaic_dtype_of(op->operands[0]->type);
  at_dtype to = at_mosaic_dtype_of(r->type);
  uint32_t a = at_dtype_of(from)->bits, b = at_dtype_of(to)->bits;
  if (a == b) return emit_vector_op(m, op, c);
  at_me_node *n = over(m, op, a < b ? AT_ME_JOIN : AT_ME_SPLIT);
  if (!n) return AT_OK;
  // vector.bitcast packs along the last dimension, tpu.bitcast along the one
  // before it.
  n->ints[0] = (int64_t)n->rank - (c == AT_MOSAIC_VECTOR_BITCAST ? 1 : 2);
  if (n->ints[0] < 0) n->ints[0] = 0;
  return at_me_set_node(m, r, n);
}

// The last entry of ints says how many dimensions are counted.
at_status at_me_op_iota(at_me *m, at_mop *op) {
  at_me_node *n = at_me_node_new(m, AT_ME_IOTA, op, op->results[0].type);
  uint32_t k;
  if (!n) return AT_OK;
  if (!at_mosaic_op_ints(op, "dimensions", n->ints, AT_ME_RANK - 1, &k))
    return at_me_refuse(m, op, "its dimensions");
  n->ints[AT_ME_RANK - 1] = k;
  return at_me_set_node(m, &op->results[0], n);
}

// Low bounds go into the ref's sizes, high ones into its strides: a MASK node
// reads no memory.
at_status at_me_op_create_mask(at_me *m, at_mop *op) {
  at_me_node *n = at_me_node_new(m, AT_ME_MASK, op, op->results[0].type);
  if (!n) return AT_OK;
  if (op->num_operands != 2 * n->rank) return at_me_refuse(m, op, "its bounds");
  at_me_ref *bounds = at_me_node_ref(m, n);
  for (uint32_t d = 0; d < n->rank; d++) {
    bounds->size[d] =
        at_me_num_of(at_me_i64(m, at_me_scalar(m, op->operands[d])));
    bounds->stride[d] =
        at_me_num_of(at_me_i64(m, at_me_scalar(m, op->operands[d + n->rank])));
  }
  return at_me_set_node(m, &op->results[0], n);
}

at_status at_me_op_reshape(at_me *m, at_mop *op) {
  return at_me_set_node(m, &op->results[0], over(m, op, AT_ME_RESHAPE));
}

// A vector part is a slice of leading ones reshaped. A scalar is computed at
// once, at one position; dynamic indices are clamped into the vector.
at_status at_me_op_extract(at_me *m, at_mop *op) {
  at_me_node *a = at_me_vector(m, op->operands[0]);
  at_mvalue *r = &op->results[0];
  int64_t at[AT_ME_RANK];
  uint32_t k;
  at_mosaic_op_ints(op, "static_position", at, AT_ME_RANK, &k);
  if (!a) return AT_OK;
  if (at_mosaic_is_vector(r)) {
    at_me_node *n = at_me_node_new(m, AT_ME_SLICE, op, r->type);
    if (!n || op->num_operands > 1)
      return at_me_refuse(m, op, "dynamic places");
    // A slice of leading ones, seen without them.
    uint32_t lead = a->rank - n->rank;
    at_me_node *s = at_me_node_new(m, AT_ME_SLICE, op, op->operands[0]->type);
    if (!s || lead > k) return at_me_refuse(m, op, "its place");
    for (uint32_t d = 0; d < a->rank; d++) {
      s->step[d] = 1;
      s->ints[d] = d < k ? at[d] : 0;
      if (d < lead) s->dim[d] = 1;
    }
    at_me_node_hold(m, s, a);
    n->kind = AT_ME_RESHAPE;
    at_me_node_hold(m, n, s);
    return at_me_set_node(m, r, n);
  }
  at_ix ix[AT_ME_RANK];
  uint32_t dynamic = 0;
  for (uint32_t d = 0; d < a->rank; d++) {
    if (d < k && at[d] >= 0) {
      ix[d] = at_ix_const(at[d]);
    } else if (1 + dynamic < op->num_operands) {
      LLVMValueRef v = at_me_scalar(m, op->operands[1 + dynamic++]);
      ix[d] = at_ix_from(m->e, AT_S32, (at_val){v, NULL}, 0, a->dim[d] - 1);
    } else {
      ix[d] = at_ix_const(0);
    }
  }
  at_me_prepare(m, a);
  uint32_t scope = at_em_scope_push(m->e);
  LLVMValueRef v =
      at_me_eval(m, a, at_pos_make(m->e, false, a->rank, a->dim, ix)).re;
  at_em_scope_pop(m->e, scope);
  at_me_set_scalar(m, r, v);
  return AT_OK;
}

// Attributes of hlo's nodes, from the fields that attrs.def names.
#include <stdio.h>

#include "hloproto/hloproto_internal.h"

typedef struct attr_row attr_row;
typedef at_status (*attr_how)(at_hp *x, const at_hp_inst *i, const attr_row *r,
                              at_attr *out, bool *have);
// One row of attrs.def: the field `field` of the instruction, or field `part`
// of the message there.
struct attr_row {
  at_attr_id id;
  at_op op;  // COUNT: any
  attr_how how;
  uint32_t field, part;
};

#define AT_HP_ATTR_HOW(name)                                          \
  static at_status at_hp_attr_##name(at_hp *x, const at_hp_inst *i,   \
                                     const attr_row *r, at_attr *out, \
                                     bool *have)

// A repeated number of the instruction.
AT_HP_ATTR_HOW(list) {
  return at_proto_list(i->body, r->field, at_attr_text(r->id), x->a,
                       &out->ints);
}

// The first of a list that holds one number. INVALID_ARGUMENT: it is empty.
AT_HP_ATTR_HOW(first) {
  at_dims list;
  AT_TRY(at_proto_list(i->body, r->field, at_attr_text(r->id), x->a, &list));
  if (list.rank == 0)
    return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT, "`%s` is missing",
                      at_attr_text(r->id));
  out->i = list.ptr[0];
  return AT_OK;
}

// An integer; absent: 0.
AT_HP_ATTR_HOW(number) {
  out->i = at_proto_int(i->body, r->field);
  return AT_OK;
}

// A boolean; absent: false.
AT_HP_ATTR_HOW(flag) {
  out->i = at_proto_uint(i->body, r->field) != 0;
  return AT_OK;
}

// 0, of modules that are older than the field, is 1.
AT_HP_ATTR_HOW(count) {
  int64_t n = at_proto_int(i->body, r->field);
  out->i = n ? n : 1;
  return AT_OK;
}

// channel_id, at least 0. Modules of before it was split have it in field 45.
AT_HP_ATTR_HOW(channel) {
  out->i = at_proto_int(i->body, r->field);
  if (out->i <= 0)
    out->i = at_proto_int(i->body, 45);  // as it was called before
  if (out->i < 0) out->i = 0;
  return AT_OK;
}

// A float on the wire.
AT_HP_ATTR_HOW(real) {
  uint32_t bits = (uint32_t)at_proto_uint(i->body, r->field);
  float f;
  memcpy(&f, &bits, sizeof f);
  out->f = (double)f;
  return AT_OK;
}

// A repeated number of a message in the instruction.
AT_HP_ATTR_HOW(part_list) {
  return at_proto_list(at_proto_bytes(i->body, r->field), r->part,
                       at_attr_text(r->id), x->a, &out->ints);
}

// An integer of a message in the instruction.
AT_HP_ATTR_HOW(part_int) {
  out->i = at_proto_int(at_proto_bytes(i->body, r->field), r->part);
  return AT_OK;
}

// A boolean of a message in the instruction.
AT_HP_ATTR_HOW(part_flag) {
  out->i = at_proto_uint(at_proto_bytes(i->body, r->field), r->part) != 0;
  return AT_OK;
}

// The dot's part of a ragged dot's numbers.
AT_HP_ATTR_HOW(ragged) {
  at_bytes dot = at_proto_bytes(at_proto_bytes(i->body, r->field), 1);
  return at_proto_list(dot, r->part, at_attr_text(r->id), x->a, &out->ints);
}

// One number of each of the messages in field `number` of b.
static at_status numbers_of(at_hp *x, at_bytes b, uint32_t number,
                            uint32_t part, at_dims *out) {
  at_proto_ints list = {0};
  for (at_proto_field f; at_proto_next(&b, &f);)
    if (f.number == number &&
        !at_vec_push(x->a, &list, at_proto_int(f.bytes, part)))
      return AT_NO_MEMORY("attributes");
  *out = (at_dims){list.ptr, (uint32_t)list.len};
  return AT_OK;
}

// One number of each repetition of a field, as slices have their dimensions.
AT_HP_ATTR_HOW(each) {
  return numbers_of(x, i->body, r->field, r->part, &out->ints);
}

// The same of field 1 of a message, as windows and paddings have them.
AT_HP_ATTR_HOW(part_each) {
  return numbers_of(x, at_proto_bytes(i->body, r->field), 1, r->part,
                    &out->ints);
}

// Low and high of each dimension, one after another.
AT_HP_ATTR_HOW(padding) {
  at_dims low, high;
  at_bytes window = at_proto_bytes(i->body, r->field);
  AT_TRY(numbers_of(x, window, 1, 3, &low));
  AT_TRY(numbers_of(x, window, 1, 4, &high));
  int64_t *p;
  AT_TRY_ALLOC(p, at_new(x->a, int64_t, 2 * (size_t)low.rank + 1));
  for (uint32_t k = 0; k < low.rank; k++) {
    p[2 * k] = low.ptr[k];
    p[2 * k + 1] = high.ptr[k];
  }
  out->ints = (at_dims){p, 2 * low.rank};
  return AT_OK;
}

// An enumerator by its name. An absent comparison type stays 0, NOTYPE.
AT_HP_ATTR_HOW(word) {
  at_str text = at_proto_str(i->body, r->field);
  out->i = 0;
  if (text.len == 0 && r->id == AT_ATTR_COMPARE_TYPE) return AT_OK;
  if (!at_enum_parse(r->id, text, &out->i))
    return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT, "`%s` has no value `%.*s`",
                      at_attr_text(r->id), (int)AT_MIN(text.len, 64u),
                      text.ptr ? text.ptr : "");
  return AT_OK;
}

// PrecisionConfig.operand_precision: 0 DEFAULT, 1 HIGH, 2 HIGHEST. None given:
// DEFAULT for both operands.
AT_HP_ATTR_HOW(precision) {
  static const int64_t none[2] = {0, 0};
  AT_TRY(at_hp_attr_part_list(x, i, r, out, have));
  if (out->ints.rank == 0) out->ints = (at_dims){none, 2};
  for (uint32_t k = 0; k < out->ints.rank; k++)
    if (out->ints.ptr[k] < 0 || out->ints.ptr[k] > 2)
      return AT_HP_FAIL(x, i, AT_UNIMPLEMENTED,
                        "operand precision %lld is not supported",
                        (long long)out->ints.ptr[k]);
  return AT_OK;
}

AT_HP_ATTR_HOW(algorithm) {
  // By number of PrecisionConfig.Algorithm; the first three say what is done
  // anyway.
  static const char *const names[] = {
      "",
      "",
      "",
      "F16_F16_F16",
      "F16_F16_F32",
      "BF16_BF16_BF16",
      "BF16_BF16_F32",
      "BF16_BF16_F32_X3",
      "BF16_BF16_F32_X6",
      "TF32_TF32_F32",
      "TF32_TF32_F32_X3",
      "F32_F32_F32",
      "F64_F64_F64",
      "BF16_BF16_F32_X9",
  };
  uint64_t n = at_proto_uint(at_proto_bytes(i->body, r->field), r->part);
  if (n >= AT_LEN(names))
    return AT_HP_FAIL(x, i, AT_UNIMPLEMENTED, "dot algorithm %llu",
                      (unsigned long long)n);
  out->s = at_str_of(names[n]);
  *have = out->s.len != 0;
  return AT_OK;
}

// A double field; absent: 0.
static double double_of(at_bytes b, uint32_t number) {
  uint64_t bits = at_proto_uint(b, number);
  double d;
  memcpy(&d, &bits, sizeof d);
  return d;
}

// ResultAccuracy: mode HIGHEST, or a tolerance (atol, rtol, ulps) in the form
// that the other importer writes. The default leaves no attribute.
AT_HP_ATTR_HOW(accuracy) {
  at_bytes b = at_proto_bytes(i->body, r->field);
  at_bytes tolerance = at_proto_bytes(b, 2);
  *have = false;
  if (at_proto_uint(b, 1) == 1) {
    out->s = AT_STR("HIGHEST");
    *have = true;
  } else if (tolerance.len) {
    char *z;
    AT_TRY_ALLOC(
        z, at_arena_printf(x->a, "TOLERANCE %g %g %lld",
                           double_of(tolerance, 1), double_of(tolerance, 2),
                           (long long)at_proto_int(tolerance, 3)));
    out->s = at_str_of(z);
    *have = true;
  }
  return AT_OK;
}

AT_HP_ATTR_HOW(groups) { return at_hp_groups(x, i, out); }

// Messages of two numbers: source_target_pairs.
AT_HP_ATTR_HOW(pairs) {
  AT_VEC(at_dims) list = {0};
  at_bytes b = i->body;
  for (at_proto_field f; at_proto_next(&b, &f);) {
    if (f.number != r->field) continue;
    int64_t *p;
    AT_TRY_ALLOC(p, at_new(x->a, int64_t, 2));
    p[0] = at_proto_int(f.bytes, 1);
    p[1] = at_proto_int(f.bytes, 2);
    if (!at_vec_push(x->a, &list, ((at_dims){p, 2})))
      return AT_NO_MEMORY("attributes");
  }
  out->groups.list = list.ptr;
  out->groups.n = (uint32_t)list.len;
  return AT_OK;
}

static const attr_row rows[] = {
#define AT_HP_ATTR(id, op, how, field, part) \
  {AT_ATTR_##id, AT_OP_##op, at_hp_attr_##how, field, part},
#include "hloproto/attrs.def"
#undef AT_HP_ATTR
};

static const attr_row *row_of(at_attr_id id, at_op op) {
  for (size_t k = 0; k < AT_LEN(rows); k++)
    if (rows[k].id == id && (rows[k].op == op || rows[k].op == AT_OP_COUNT))
      return &rows[k];
  return NULL;  // the compiler's own, or set by the opcode's function
}

at_status at_hp_attr_put(at_hp *x, at_hp_attrs *v, at_attr a) {
  for (size_t k = 0; k < v->len; k++)
    if (v->ptr[k].id == a.id) return v->ptr[k] = a, AT_OK;
  if (!at_vec_push(x->a, v, a)) return AT_NO_MEMORY("attributes");
  return AT_OK;
}

// Follows hlo's row of the op. Attributes that attrs.def does not name are the
// compiler's own, or set by the opcode's function.
at_status at_hp_attrs_read(at_hp *x, const at_hp_inst *i, at_op op,
                           at_hp_attrs *out) {
  const at_op_info *info = at_op_of(op);
  for (uint32_t k = 0; k < info->attr_count; k++) {
    const attr_row *r = row_of((at_attr_id)info->attrs[k], op);
    if (!r) continue;
    at_attr a;
    memset(&a, 0, sizeof a);
    a.id = r->id;
    bool have = true;
    AT_TRY(r->how(x, i, r, &a, &have));
    if (have) AT_TRY(at_hp_attr_put(x, out, a));
  }
  return AT_OK;
}

// FrontendAttributes: a map of texts, field 1; copied.
at_status at_hp_text_list(at_hp *x, at_bytes frontend, at_attr *out) {
  AT_VEC(at_str) kv = {0};
  for (at_proto_field f; at_proto_next(&frontend, &f);) {
    if (f.number != 1) continue;
    for (uint32_t part = 1; part <= 2; part++) {
      at_str s = at_proto_str(f.bytes, part);
      char *z;
      AT_TRY_ALLOC(z, at_arena_str(x->a, s));
      if (!at_vec_push(x->a, &kv, ((at_str){z, s.len})))
        return AT_NO_MEMORY("attributes");
    }
  }
  out->dict.kv = kv.ptr;
  out->dict.n = (uint32_t)(kv.len / 2);
  return AT_OK;
}

// The sharding of a module that XLA has partitioned speaks of the whole program
// and is dropped; the node's types are one device's.
at_status at_hp_attrs_common(at_hp *x, const at_hp_inst *i, at_hp_attrs *out) {
  at_attr front = {.id = AT_ATTR_FRONTEND_ATTRIBUTES};
  AT_TRY(at_hp_text_list(x, at_proto_bytes(i->body, 68), &front));
  if (front.dict.n) AT_TRY(at_hp_attr_put(x, out, front));
  if (x->partitioned) return AT_OK;
  const char *text = NULL;
  at_bytes b = at_proto_bytes(i->body, 40);
  if (at_proto_has(i->body, 40)) AT_TRY(at_hp_sharding_text(x, b, &text));
  if (!text) return AT_OK;
  return at_hp_attr_put(
      x, out, (at_attr){.id = AT_ATTR_SHARDING, .s = at_str_of(text)});
}

// Pretty assembly, the other direction of text_pretty.c, by the same formats.
// Each function checks that what it is about to leave out can
// be read back; otherwise the operation is printed in its generic form.
#include <inttypes.h>
#include <stdio.h>

#include "mlir/print.h"

// A string without a type, which pretty forms show bare.
static bool is_str(const at_mattr *a) {
  return a && a->kind == AT_MATTR_STRING && !a->type;
}

// ---- Notations of their own
// [start:limit:stride, ...]; a stride of 1 is left out.
static bool slice(at_mprint *p, const at_mop *op) {
  const at_mattr *a[] = {at_mop_attr(op, "start_indices"),
                         at_mop_attr(op, "limit_indices"),
                         at_mop_attr(op, "strides")};
  for (int i = 0; i < 3; i++)
    if (!at_mattr_is_i64s(a[i]) || a[i]->num_elems != a[0]->num_elems)
      return false;
  at_dims s = at_mattr_i64s(a[0]), e = at_mattr_i64s(a[1]),
          d = at_mattr_i64s(a[2]);
  at_strbuf_addc(p->out, '[');
  for (uint32_t i = 0; i < s.rank; i++) {
    at_strbuf_addf(p->out, "%s%" PRId64 ":%" PRId64, i ? ", " : "", s.ptr[i],
                   e.ptr[i]);
    if (d.ptr[i] != 1) at_strbuf_addf(p->out, ":%" PRId64, d.ptr[i]);
  }
  at_strbuf_addc(p->out, ']');
  return true;
}

// A struct of that name which has its fields.
static bool is_struct(const at_mattr *a, const char *name) {
  return a && a->kind == AT_MATTR_DIALECT && a->num_elems &&
         strcmp(a->name, name) == 0;
}

// Its dimension numbers must be a struct.
static bool conv(at_mprint *p, const at_mop *op) {
  const at_mattr *a = at_mop_attr(op, "dimension_numbers");
  if (!is_struct(a, "stablehlo.conv")) return false;
  at_mprint_conv(p->out, a);
  return true;
}

// A pair for each dimension; other shapes and element types have no short form.
static bool padding(at_mprint *p, const at_mattr *a) {
  if (a->kind != AT_MATTR_DENSE || a->type->kind != AT_MTYPE_TENSOR ||
      a->type->encoding || a->type->shape.rank != 2 ||
      a->type->shape.ptr[1] != 2 || a->type->shape.ptr[0] > 4096 ||
      !at_mtype_is_int(a->type->elem, 64) || a->type->elem->sign != AT_SIGNLESS)
    return false;
  at_strbuf_addz(p->out, "pad = [");
  for (int64_t i = 0; i < a->type->shape.ptr[0]; i++) {
    int64_t v[2];
    for (int k = 0; k < 2; k++)
      memcpy(&v[k], a->data.ptr + (a->splat ? 0 : (2 * i + k) * 8), 8);
    at_strbuf_addf(p->out, "%s[%" PRId64 ", %" PRId64 "]", i ? ", " : "", v[0],
                   v[1]);
  }
  at_strbuf_addc(p->out, ']');
  return true;
}

// The fields that the operation has, in the order of the table.
static bool window(at_mprint *p, const at_mop *op) {
  static const struct {
    const char *attr, *word;
  } parts[] = {{"window_strides", "stride"},
               {"padding", "pad"},
               {"lhs_dilation", "lhs_dilate"},
               {"rhs_dilation", "rhs_dilate"},
               {"window_reversal", "reverse"}};
  bool any = false;
  at_strbuf_addc(p->out, '{');
  for (size_t i = 0; i < AT_LEN(parts); i++) {
    const at_mattr *a = at_mop_attr(op, parts[i].attr);
    if (!a) continue;
    if (any) at_strbuf_addz(p->out, ", ");
    any = true;
    if (i == 1) {
      if (!padding(p, a)) return false;
    } else if (i == 4) {
      if (a->kind != AT_MATTR_DENSE_ARRAY || !at_mtype_is_int(a->type, 1) ||
          a->type->sign != AT_SIGNLESS)
        return false;
      at_strbuf_addz(p->out, "reverse = [");
      at_mprint_elems(p->out, a->type, a->data);
      at_strbuf_addc(p->out, ']');
    } else {
      if (!at_mattr_is_i64s(a)) return false;
      at_strbuf_addf(p->out, "%s = ", parts[i].word);
      at_mprint_dims(p->out, "[", at_mattr_i64s(a), "]");
    }
  }
  at_strbuf_addc(p->out, '}');
  return true;
}

// Nothing where the attribute is absent.
static bool precision(at_mprint *p, const at_mop *op) {
  const at_mattr *a = at_mop_attr(op, "precision_config");
  if (!a) return true;
  if (a->kind != AT_MATTR_ARRAY) return false;
  at_strbuf_addz(p->out, ", precision = [");
  for (uint32_t i = 0; i < a->num_elems; i++) {
    if (!at_mattr_is_enum(a->elems[i], "stablehlo.precision")) return false;
    if (i) at_strbuf_addz(p->out, ", ");
    at_strbuf_add(p->out, a->elems[i]->str);
  }
  at_strbuf_addc(p->out, ']');
  return true;
}

// Nothing where the attribute is absent.
static bool algorithm(at_mprint *p, const at_mop *op) {
  const at_mattr *a = at_mop_attr(op, "algorithm");
  if (!a) return true;
  if (!is_struct(a, "stablehlo.dot_algorithm")) return false;
  at_strbuf_addz(p->out, ", algorithm = ");
  at_mprint_struct(p->out, a, at_mcodec_by_name(at_str_of(a->name)));
  return true;
}

// Batching dimensions are left out where neither side has any.
static bool dotdims(at_mprint *p, const at_mop *op) {
  const at_mattr *a = at_mop_attr(op, "dot_dimension_numbers");
  if (!is_struct(a, "stablehlo.dot") || a->num_elems != 4) return false;
  at_dims d[4];
  for (int i = 0; i < 4; i++) d[i] = at_mattr_i64s(a->fields[i].value);
  if (d[0].rank || d[1].rank) {
    at_mprint_dims(p->out, "batching_dims = [", d[0], "] x ");
    at_mprint_dims(p->out, "[", d[1], "], ");
  }
  at_mprint_dims(p->out, "contracting_dims = [", d[2], "] x ");
  at_mprint_dims(p->out, "[", d[3], "]");
  return true;
}

// reduce_precision's e5m10.
static bool exponents(at_mprint *p, const at_mop *op) {
  const at_mattr *e = at_mop_attr(op, "exponent_bits");
  const at_mattr *m = at_mop_attr(op, "mantissa_bits");
  for (int i = 0; i < 2; i++) {
    const at_mattr *a = i ? m : e;
    if (!a || a->kind != AT_MATTR_INTEGER || !at_mtype_is_int(a->type, 32) ||
        a->type->sign != AT_SIGNLESS || a->i < 0 || a->i > 9999)
      return false;
  }
  at_strbuf_addf(p->out, "e%dm%d", (int)e->i, (int)m->i);
  return true;
}

// A call target is written as a symbol.
static bool target(at_mprint *p, const at_mop *op) {
  const at_mattr *a = at_mop_attr(op, "call_target_name");
  if (!is_str(a)) return false;
  at_mprint_symbol(p->out, a->str);
  return true;
}

// Result i has operand i's type.
static bool same_in_and_out(const at_mop *op) {
  if (op->num_operands != op->num_results) return false;
  for (uint32_t i = 0; i < op->num_operands; i++)
    if (!at_mtype_eq(op->operands[i]->type, op->results[i].type)) return false;
  return true;
}

// By commas.
static void result_types(at_mprint *p, const at_mop *op) {
  for (uint32_t i = 0; i < op->num_results; i++) {
    if (i) at_strbuf_addz(p->out, ", ");
    at_mtype_print(p->out, op->results[i].type);
  }
}

// Without operands it is an empty pair of brackets.
static bool barrier(at_mprint *p, const at_mop *op) {
  if (!same_in_and_out(op)) return false;
  if (!op->num_operands) {
    at_strbuf_addz(p->out, "()");
    return true;
  }
  at_mprint_values(p, op->operands, op->num_operands);
  at_strbuf_addz(p->out, " : ");
  result_types(p, op);
  return true;
}

// Operations with regions do not come here.
static bool no_regions(at_mprint *p, const at_mop *op) {
  return op->num_regions == 0;
}

// A notation of formats, the attributes that it shows (a blank behind each),
// and its printer.
static const struct notation {
  const char *name, *attrs;
  bool (*print)(at_mprint *p, const at_mop *op);
} notations[] = {
    {"slice", "start_indices limit_indices strides ", slice},
    {"conv", "dimension_numbers ", conv},
    {"window",
     "window_strides padding lhs_dilation rhs_dilation window_reversal ",
     window},
    {"precision", "precision_config ", precision},
    {"dotdims", "dot_dimension_numbers ", dotdims},
    {"algorithm", "algorithm ", algorithm},
    {"exponents", "exponent_bits mantissa_bits ", exponents},
    {"target", "call_target_name ", target},
    {"barrier", "", barrier},
    {"regions", "", no_regions}};

// NULL: no such one.
static const struct notation *find_notation(at_str name) {
  for (size_t i = 0; i < AT_LEN(notations); i++)
    if (at_str_is(name, notations[i].name)) return &notations[i];
  return NULL;
}

// ---- Types at the end
static bool all_operands_are(const at_mop *op, uint32_t from,
                             const at_mtype *t) {
  for (uint32_t i = from; i < op->num_operands; i++)
    if (!at_mtype_eq(op->operands[i]->type, t)) return false;
  return true;
}

// Whether `real` is c with the complex numbers' parts as elements.
static bool is_real_of(const at_mtype *real, const at_mtype *c) {
  at_mtype r = *c;
  if (!c->elem || c->elem->kind != AT_MTYPE_COMPLEX) return false;
  r.elem = c->elem->elem;
  return at_mtype_eq(real, &r);
}

// One type for all operands and the result (S), the complex result (C), or
// predicate and result (L).
static bool short_types(at_mprint *p, const at_mop *op, char kind) {
  const at_mtype *r = op->num_results == 1 ? op->results[0].type : NULL;
  if (!r || r->kind == AT_MTYPE_FUNCTION) return false;
  if (kind == 'S') {
    if (!all_operands_are(op, 0, r)) return false;
  } else if (kind == 'C') {
    if (op->num_operands != 2 || !is_real_of(op->operands[0]->type, r) ||
        !is_real_of(op->operands[1]->type, r))
      return false;
  } else {  // 'L'
    if (op->num_operands != 3 || !all_operands_are(op, 1, r) ||
        op->operands[0]->type->kind == AT_MTYPE_FUNCTION)
      return false;
    at_mtype_print(p->out, op->operands[0]->type);
    at_strbuf_addz(p->out, ", ");
  }
  at_mtype_print(p->out, r);
  return true;
}

// The result is the tuple of the operands.
static bool tuple_type(at_mprint *p, const at_mop *op) {
  if (op->num_results != 1) return false;
  const at_mtype *t = op->results[0].type;
  if (t->kind != AT_MTYPE_TUPLE || t->num_types != op->num_operands)
    return false;
  for (uint32_t i = 0; i < t->num_types; i++)
    if (!at_mtype_eq(t->types[i], op->operands[i]->type)) return false;
  at_mtype_print(p->out, t);
  return true;
}

// By commas.
static void operand_types(at_mprint *p, const at_mop *op) {
  for (uint32_t i = 0; i < op->num_operands; i++) {
    if (i) at_strbuf_addz(p->out, ", ");
    at_mtype_print(p->out, op->operands[i]->type);
  }
}

// in -> out, without brackets around single ones.
static bool arrow_types(at_mprint *p, const at_mop *op) {
  if (!op->num_operands || !op->num_results ||
      op->operands[0]->type->kind == AT_MTYPE_FUNCTION)
    return false;
  operand_types(p, op);
  at_strbuf_addz(p->out, op->num_results > 1 ? " -> (" : " -> ");
  result_types(p, op);
  if (op->num_results > 1) at_strbuf_addc(p->out, ')');
  return op->num_results > 1 || op->results[0].type->kind != AT_MTYPE_FUNCTION;
}

// What a format's last piece, :K, says; false: the types do not fit the short
// form.
static bool types(at_mprint *p, const at_mop *op, char kind) {
  if (kind == 'Z') {
    if (op->num_results) return false;
    if (op->num_operands) at_strbuf_addz(p->out, " : "), operand_types(p, op);
    return true;
  }
  at_strbuf_addz(p->out, " : ");
  size_t mark = p->out->len;
  switch (kind) {
    case 'R':
      result_types(p, op);
      return op->num_results && !op->num_operands;
    case 'A':
      return arrow_types(p, op);
    case 'T':
      return tuple_type(p, op);
    case 'S':
    case 'C':
    case 'L':
      if (short_types(p, op, kind)) return true;
      if (p->out->ptr) p->out->ptr[p->out->len = mark] = 0;
      // A function type stands for operands and one result.
      if (op->num_results != 1) return false;
      break;
    default:
      break;
  }
  at_mprint_function(p, op);
  return true;
}

// ---- Formats
static bool bare_attr(at_mprint *p, const at_mop *op, at_str piece,
                      const at_mattr **out) {
  const char *slash = memchr(piece.ptr, '/', piece.len);
  char name[64];
  at_str kind = {slash + 1, (size_t)(piece.ptr + piece.len - slash) - 1};
  snprintf(name, sizeof name, "%.*s", (int)(slash - piece.ptr) - 1,
           piece.ptr + 1);
  const at_mattr *a = at_mop_attr(op, name);
  *out = a;
  if (!a) return false;
  if (at_str_is(kind, "i64") || at_str_is(kind, "i32")) {
    if (a->kind != AT_MATTR_INTEGER || a->type->sign != AT_SIGNLESS ||
        !at_mtype_is_int(a->type, kind.ptr[1] == '6' ? 64 : 32))
      return false;
    at_strbuf_addf(p->out, "%" PRId64, a->i);
  } else if (at_str_is(kind, "bool")) {
    if (a->kind != AT_MATTR_BOOL) return false;
    at_strbuf_addz(p->out, a->i ? "true" : "false");
  } else if (at_str_is(kind, "list")) {
    if (!at_mattr_is_i64s(a)) return false;
    at_mprint_dims(p->out, "[", at_mattr_i64s(a), "]");
  } else if (at_str_is(kind, "str")) {
    if (!is_str(a)) return false;
    at_mprint_string(p->out, a->str);
  } else {
    char want[64];
    snprintf(want, sizeof want, "%.*s", (int)kind.len, kind.ptr);
    if (!at_mattr_is_enum(a, want)) return false;
    at_strbuf_add(p->out, a->str);
  }
  return true;
}

// The attributes that pieces name, with spaces around each.
static void collect_skipped(const char *format, char *out, size_t size) {
  size_t n = (size_t)snprintf(out, size, " ");
  for (const char *q = format; *q;) {
    size_t len = strcspn(q, " ");
    if (*q == '@' && n < size)
      n += (size_t)snprintf(out + n, size - n, "%.*s ",
                            (int)strcspn(q + 1, "/"), q + 1);
    const struct notation *x =
        *q == '!' ? find_notation((at_str){q + 1, len - 1}) : NULL;
    if (x && n < size) n += (size_t)snprintf(out + n, size - n, "%s", x->attrs);
    q += len + (q[len] == ' ');
  }
}

// A piece of a format (formats.def has the list). *operand counts those that
// were printed.
static bool one_piece(at_mprint *p, const at_mop *op, at_str s,
                      const char *skipped, uint32_t *operand) {
  const at_mattr *ignored;
  if (at_str_is(s, "$")) {
    if (*operand >= op->num_operands) return false;
    at_mprint_value(p, op->operands[(*operand)++]);
    return true;
  }
  if (at_str_is(s, "$*") || at_str_is(s, "$,*")) {
    bool first = true;
    for (; *operand < op->num_operands; first = false) {
      if (!first && s.len == 2) at_strbuf_addz(p->out, ", ");
      at_mprint_value(p, op->operands[(*operand)++]);
      if (s.len == 3)
        at_strbuf_addz(p->out, *operand < op->num_operands ? ", " : ",");
    }
    return true;
  }
  if (at_str_is(s, "{}")) {
    at_mprint_rest(p, op, "", skipped);
    return true;
  }
  if (s.ptr[0] == '@') return bare_attr(p, op, s, &ignored);
  if (s.ptr[0] == '!')
    return find_notation((at_str){s.ptr + 1, s.len - 1})->print(p, op);
  if (s.ptr[0] == ':' && s.len == 2) return types(p, op, s.ptr[1]);
  at_strbuf_add(p->out, s);
  return true;
}

// No space before a comma, a closing or an opening bracket, nor before what
// brings its own.
static bool tight(at_str s) {
  return s.ptr[0] == ',' || s.ptr[0] == ':' || s.ptr[0] == '{' ||
         s.ptr[0] == ')' || s.ptr[0] == ']' || s.ptr[0] == '(' ||
         at_str_is(s, "!precision") || at_str_is(s, "!regions") ||
         at_str_is(s, "!algorithm");
}

// Optional groups, [?name ... ?], are printed where the attribute is there. All
// operands must have been printed.
bool at_mprint_format(at_mprint *p, const at_mop *op, const char *format) {
  char skipped[512];
  uint32_t operand = 0;
  bool skip = false, after_open = false;
  if (op->num_regions || op->num_successors) return false;
  collect_skipped(format, skipped, sizeof skipped);
  at_strbuf_addz(p->out, op->name);
  for (const char *q = format; *q;) {
    at_str s = {q, strcspn(q, " ")};
    q += s.len + (q[s.len] == ' ');
    if (s.len > 2 && s.ptr[0] == '[' && s.ptr[1] == '?') {
      char name[64];
      snprintf(name, sizeof name, "%.*s", (int)s.len - 2, s.ptr + 2);
      skip = !at_mop_attr(op, name);
    } else if (at_str_is(s, "?]")) {
      skip = false;
    } else if (!skip) {
      if (!tight(s) && !after_open) at_strbuf_addc(p->out, ' ');
      after_open = at_str_is(s, "(") || at_str_is(s, "[");
      if (!one_piece(p, op, s, skipped, &operand)) return false;
    }
  }
  return operand == op->num_operands;
}

// ---- Operations with regions
// The type is that of the value, so the result's must be equal.
static bool constant(at_mprint *p, const at_mop *op) {
  const at_mattr *v = at_mop_attr(op, "value");
  if (!v || (v->kind != AT_MATTR_DENSE && v->kind != AT_MATTR_RESOURCE) ||
      op->num_operands || op->num_regions || op->num_successors ||
      op->num_results != 1 || !at_mtype_eq(v->type, op->results[0].type))
    return false;
  at_strbuf_addz(p->out, op->name);
  at_mprint_rest(p, op, "", " value ");
  at_strbuf_addc(p->out, ' ');
  at_mprint_attr(p, v);
  return true;
}

// One block with that many arguments.
static bool region_of(const at_mregion *r, uint32_t args) {
  return r->num_blocks == 1 && r->blocks[0]->num_args == args;
}

// Both regions name their arguments alike, as number_op does.
static bool loop(at_mprint *p, const at_mop *op) {
  uint32_t n = op->num_operands;
  if (op->num_regions != 2 || op->num_successors || !same_in_and_out(op) ||
      !region_of(op->regions[0], n) || !region_of(op->regions[1], n))
    return false;
  for (uint32_t i = 0; i < n; i++)
    for (int k = 0; k < 2; k++)
      if (!at_mtype_eq(op->regions[k]->blocks[0]->args[i].type,
                       op->operands[i]->type))
        return false;
  at_strbuf_addz(p->out, "stablehlo.while(");
  for (uint32_t i = 0; i < n; i++) {
    if (i) at_strbuf_addz(p->out, ", ");
    at_mprint_value(p, &op->regions[0]->blocks[0]->args[i]);
    at_strbuf_addz(p->out, " = ");
    at_mprint_value(p, op->operands[i]);
  }
  at_strbuf_addc(p->out, ')');
  if (n) at_strbuf_addz(p->out, " : "), operand_types(p, op);
  at_mprint_rest(p, op, " attributes", "");
  at_mprint_newline(p);
  at_strbuf_addz(p->out, "cond ");
  at_mprint_region(p, op->regions[0], false);
  at_strbuf_addz(p->out, " do ");
  at_mprint_region(p, op->regions[1], false);
  return true;
}

// "applies stablehlo.add": one binary operation on the scalars and its return.
static const char *short_reducer(const at_mop *op) {
  static const char *const commute[] = {
      "stablehlo.add",     "stablehlo.multiply", "stablehlo.maximum",
      "stablehlo.minimum", "stablehlo.and",      "stablehlo.or",
      "stablehlo.xor"};
  const at_mblock *b = op->regions[0]->blocks[0];
  if (b->num_args != 2 || b->num_ops != 2 || op->num_operands != 2) return NULL;
  const at_mop *in = b->ops[0], *ret = b->ops[1];
  const at_mtype *t = op->operands[0]->type;
  at_mtype scalar = {.kind = AT_MTYPE_TENSOR, .elem = t->elem};
  if (t->kind != AT_MTYPE_TENSOR || in->num_operands != 2 ||
      in->num_results != 1 || in->num_attrs || in->num_regions ||
      in->num_successors || in->operands[0] != &b->args[0] ||
      in->operands[1] != &b->args[1] || strcmp(ret->name, "stablehlo.return") ||
      ret->num_operands != 1 || ret->operands[0] != in->results ||
      ret->num_attrs || ret->num_results || ret->num_regions ||
      ret->num_successors)
    return NULL;
  if (!at_mtype_eq(b->args[0].type, &scalar) ||
      !at_mtype_eq(b->args[1].type, &scalar) ||
      !at_mtype_eq(in->results[0].type, &scalar))
    return NULL;
  // The short form has no place for an operation that is not listed.
  for (size_t i = 0; i < AT_LEN(commute); i++)
    if (strcmp(in->name, commute[i]) == 0) return commute[i];
  return NULL;
}

// (operand init: initial value), ...; the body in short where it is one
// operation.
static bool reduce(at_mprint *p, const at_mop *op) {
  uint32_t n = op->num_operands / 2;
  const at_mattr *dims = at_mop_attr(op, "dimensions");
  if (op->num_operands != 2 * n || !n || op->num_regions != 1 ||
      op->num_successors || !at_mattr_is_i64s(dims) ||
      !region_of(op->regions[0], 2 * n))
    return false;
  at_strbuf_addz(p->out, "stablehlo.reduce");
  for (uint32_t i = 0; i < n; i++) {
    at_strbuf_addz(p->out, i ? ", (" : "(");
    at_mprint_value(p, op->operands[i]);
    at_strbuf_addz(p->out, " init: ");
    at_mprint_value(p, op->operands[i + n]);
    at_strbuf_addc(p->out, ')');
  }
  // The body comes last, or not at all where its operation says it.
  const char *inner = short_reducer(op);
  if (inner) at_strbuf_addf(p->out, " applies %s", inner);
  at_mprint_dims(p->out, " across dimensions = [", at_mattr_i64s(dims), "]");
  at_mprint_rest(p, op, "", " dimensions ");
  at_strbuf_addz(p->out, " : ");
  at_mprint_function(p, op);
  if (inner) return true;
  const at_mblock *b = op->regions[0]->blocks[0];
  at_mprint_newline(p);
  at_strbuf_addz(p->out, " reducer");
  for (uint32_t i = 0; i < n; i++) {
    at_strbuf_addc(p->out, '(');
    at_mprint_arg(p, &b->args[i], NULL);
    at_strbuf_addz(p->out, ", ");
    at_mprint_arg(p, &b->args[i + n], NULL);
    at_strbuf_addz(p->out, ") ");
  }
  at_mprint_region(p, op->regions[0], false);
  return true;
}

// ---- Modules and functions
// A name and attributes are optional.
static bool module(at_mprint *p, const at_mop *op) {
  const at_mattr *name = at_mop_attr(op, "sym_name");
  if (op->num_operands || op->num_results || op->num_successors ||
      op->num_regions != 1 || !region_of(op->regions[0], 0) ||
      (name && !is_str(name)))
    return false;
  at_strbuf_addz(p->out, "module");
  if (name) at_strbuf_addc(p->out, ' '), at_mprint_symbol(p->out, name->str);
  at_mprint_rest(p, op, " attributes", " sym_name ");
  at_strbuf_addc(p->out, ' ');
  at_mprint_region(p, op->regions[0], false);
  return true;
}

// One dictionary for each of n, at least one of them with entries: else the
// pretty form could not tell that the attribute exists.
static bool dicts(const at_mattr *a, uint32_t n) {
  if (!a) return true;
  if (a->kind != AT_MATTR_ARRAY || a->num_elems != n) return false;
  bool any = false;
  for (uint32_t i = 0; i < n; i++) {
    if (a->elems[i]->kind != AT_MATTR_DICT) return false;
    any |= a->elems[i]->num_elems != 0;
  }
  return any;
}

// The pretty form has no label for the first block.
static bool entry_is_target(const at_mregion *r) {
  for (uint32_t i = 0; i < r->num_blocks; i++)
    for (uint32_t k = 0; k < r->blocks[i]->num_ops; k++)
      for (uint32_t s = 0; s < r->blocks[i]->ops[k]->num_successors; s++)
        if (r->blocks[i]->ops[k]->successors[s] == r->blocks[0]) return true;
  return false;
}

// Types of arguments and of the first block agree, and the attributes have a
// place.
static bool function_fits(const at_mop *op, const at_mtype *t) {
  const at_mregion *r = op->regions[0];
  if (!dicts(at_mop_attr(op, "arg_attrs"), t->num_types) ||
      !dicts(at_mop_attr(op, "res_attrs"), t->num_results))
    return false;
  if (!r->num_blocks) return true;
  if (r->blocks[0]->num_args != t->num_types || entry_is_target(r))
    return false;
  for (uint32_t i = 0; i < t->num_types; i++)
    if (!at_mtype_eq(r->blocks[0]->args[i].type, t->types[i])) return false;
  return true;
}

// A declaration has types only.
static void signature(at_mprint *p, const at_mop *op, const at_mtype *t) {
  const at_mattr *in = at_mop_attr(op, "arg_attrs");
  const at_mattr *res = at_mop_attr(op, "res_attrs");
  const at_mregion *r = op->regions[0];
  at_strbuf_addc(p->out, '(');
  for (uint32_t i = 0; i < t->num_types; i++) {
    if (i) at_strbuf_addz(p->out, ", ");
    if (r->num_blocks) {
      at_mprint_arg(p, &r->blocks[0]->args[i], in ? in->elems[i] : NULL);
      continue;
    }
    at_mtype_print(p->out, t->types[i]);
    if (in && in->elems[i]->num_elems)
      at_strbuf_addc(p->out, ' '), at_mprint_attr(p, in->elems[i]);
  }
  at_strbuf_addc(p->out, ')');
  if (!t->num_results) return;
  bool brackets =
      res || t->num_results != 1 || t->results[0]->kind == AT_MTYPE_FUNCTION;
  at_strbuf_addz(p->out, brackets ? " -> (" : " -> ");
  for (uint32_t i = 0; i < t->num_results; i++) {
    if (i) at_strbuf_addz(p->out, ", ");
    at_mtype_print(p->out, t->results[i]);
    if (res && res->elems[i]->num_elems)
      at_strbuf_addc(p->out, ' '), at_mprint_attr(p, res->elems[i]);
  }
  if (brackets) at_strbuf_addc(p->out, ')');
}

// The attributes that the form has places for are left out of the rest.
static bool func(at_mprint *p, const at_mop *op) {
  const at_mattr *name = at_mop_attr(op, "sym_name");
  const at_mattr *type = at_mop_attr(op, "function_type");
  const at_mattr *seen = at_mop_attr(op, "sym_visibility");
  if (op->num_operands || op->num_results || op->num_successors ||
      op->num_regions != 1 || !is_str(name) || !type ||
      type->kind != AT_MATTR_TYPE || type->type->kind != AT_MTYPE_FUNCTION ||
      !function_fits(op, type->type))
    return false;
  if (seen && (!is_str(seen) || (!at_str_is(seen->str, "public") &&
                                 !at_str_is(seen->str, "private") &&
                                 !at_str_is(seen->str, "nested"))))
    return false;
  at_strbuf_addz(p->out, "func.func ");
  if (seen) at_strbuf_add(p->out, seen->str), at_strbuf_addc(p->out, ' ');
  at_mprint_symbol(p->out, name->str);
  signature(p, op, type->type);
  at_mprint_rest(p, op, " attributes",
                 " sym_name function_type sym_visibility arg_attrs res_attrs ");
  if (!op->regions[0]->num_blocks) return true;
  at_strbuf_addc(p->out, ' ');
  at_mprint_region(p, op->regions[0], false);
  return true;
}

// Inside a function its dialect's name may be left out.
static const char *short_name(const at_mop *op, const char *bare) {
  const at_mop *parent = op->block ? op->block->region->op : NULL;
  return parent && strcmp(parent->name, "func.func") == 0 ? bare : op->name;
}

// The callee must be a symbol.
static bool call(at_mprint *p, const at_mop *op) {
  const at_mattr *callee = at_mop_attr(op, "callee");
  if (!callee || callee->kind != AT_MATTR_SYMBOL || op->num_regions ||
      op->num_successors)
    return false;
  at_strbuf_addz(p->out, short_name(op, "call"));
  at_strbuf_addc(p->out, ' ');
  at_mattr_print(p->out, callee);
  at_strbuf_addc(p->out, '(');
  at_mprint_values(p, op->operands, op->num_operands);
  at_strbuf_addc(p->out, ')');
  at_mprint_rest(p, op, "", " callee ");
  at_strbuf_addz(p->out, " : ");
  at_mprint_function(p, op);
  return true;
}

// Types follow only if there are operands.
static bool ret(at_mprint *p, const at_mop *op) {
  if (op->num_results || op->num_regions || op->num_successors) return false;
  at_strbuf_addz(p->out, short_name(op, "return"));
  at_mprint_rest(p, op, "", "");
  if (!op->num_operands) return true;
  at_strbuf_addc(p->out, ' ');
  at_mprint_values(p, op->operands, op->num_operands);
  return types(p, op, 'Z');
}

// Operations with a form of their own first, then Shardy's, then the table of
// formats.
bool at_mprint_pretty(at_mprint *p, const at_mop *op) {
  static const struct {
    const char *name;
    bool (*print)(at_mprint *p, const at_mop *op);
  } own[] = {{"builtin.module", module},
             {"func.func", func},
             {"func.call", call},
             {"func.return", ret},
             {"stablehlo.constant", constant},
             {"stablehlo.while", loop},
             {"chlo.constant", constant},
             {"stablehlo.reduce", reduce}};
  for (size_t i = 0; i < AT_LEN(own); i++)
    if (strcmp(op->name, own[i].name) == 0) return own[i].print(p, op);
  if (strncmp(op->name, "sdy.", 4) == 0) return at_mprint_sdy_op(p, op);
  const char *format = at_mformat_of(op->name);
  return format && at_mprint_format(p, op, format);
}

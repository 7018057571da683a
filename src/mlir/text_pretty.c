// Pretty assembly: the formats of the table, and the operations that have more
// structure than a format can say.
#include <ctype.h>

#include "mlir/text.h"

// ---- Notations of their own
// An attribute of the operation; a NULL: the constructor got no memory.
static at_status add(at_mtext *t, at_mopstate *s, const char *name,
                     const at_mattr *a) {
  return at_mnamed_add(t, &s->attrs, name, a);
}

// A list of i64.
static at_status add_list(at_mtext *t, at_mopstate *s, const char *name,
                          const at_mi64_vec *v) {
  return add(t, s, name, at_mattr_make_i64s(&t->c, v->ptr, v->len));
}

// [0:4, 1:8:2]
static at_status read_slice(at_mtext *t, at_mopstate *s) {
  at_mi64_vec v[3] = {0};
  AT_TRY(at_mtext_expect(t, "["));
  if (!at_mtext_accept(t, "]")) {
    do {
      int64_t x[3] = {0, 0, 1};
      AT_TRY(at_mtext_i64(t, &x[0]));
      AT_TRY(at_mtext_expect(t, ":"));
      AT_TRY(at_mtext_i64(t, &x[1]));
      if (at_mtext_accept(t, ":")) AT_TRY(at_mtext_i64(t, &x[2]));
      for (int i = 0; i < 3; i++)
        if (!at_vec_push(t->c.arena, &v[i], x[i])) return AT_NO_MEMORY("slice");
    } while (at_mtext_accept(t, ","));
    AT_TRY(at_mtext_expect(t, "]"));
  }
  AT_TRY(add_list(t, s, "start_indices", &v[0]));
  AT_TRY(add_list(t, s, "limit_indices", &v[1]));
  return add_list(t, s, "strides", &v[2]);
}

// [[1, 1], [0, 0]] as dense<...> : tensor<Nx2xi64>
static at_status read_padding(at_mtext *t, at_mopstate *s) {
  at_mi64_vec v = {0};
  AT_TRY(at_mtext_expect(t, "["));
  bool flat = !at_mtext_at(t, "[") && !at_mtext_at(t, "]");
  if (!at_mtext_accept(t, "]")) {
    do {
      int64_t one;
      if (!flat) {
        size_t before = v.len;
        AT_TRY(at_mtext_i64_list(t, "[", "]", &v));
        if (v.len != before + 2)
          return at_mtext_fail(t, "padding comes in pairs");
      } else {
        AT_TRY(at_mtext_i64(t, &one));
        if (!at_vec_push(t->c.arena, &v, one)) return AT_NO_MEMORY("padding");
      }
    } while (at_mtext_accept(t, ","));
    AT_TRY(at_mtext_expect(t, "]"));
  }
  // The attribute that the generic form would have.
  at_mtype *type;
  at_mattr *a;
  int64_t *dims;
  AT_TRY_ALLOC(type, at_mtype_make(&t->c, AT_MTYPE_TENSOR));
  AT_TRY_ALLOC(a, at_mattr_make(&t->c, AT_MATTR_DENSE));
  AT_TRY_ALLOC(dims, at_new(t->c.arena, int64_t, 2));
  dims[0] = (int64_t)(flat ? v.len : v.len / 2);
  dims[1] = 2;
  type->shape = (at_dims){dims, flat ? 1 : 2};
  type->elem = &at_mtype_i64;
  a->type = type;
  a->data = (at_bytes){(const uint8_t *)v.ptr, v.len * sizeof *v.ptr};
  return add(t, s, "padding", a);
}

// Truth values, or numbers that are zero or not.
static at_status read_reverse(at_mtext *t, at_mopstate *s) {
  AT_VEC(uint8_t) v = {0};
  at_mattr *a;
  AT_TRY(at_mtext_expect(t, "["));
  if (!at_mtext_accept(t, "]")) {
    do {
      bool yes = at_mtext_accept_word(t, "true");
      if (!yes && !at_mtext_accept_word(t, "false")) {
        int64_t n;
        AT_TRY(at_mtext_i64(t, &n));
        yes = n != 0;
      }
      if (!at_vec_push(t->c.arena, &v, yes)) return AT_NO_MEMORY("reversal");
    } while (at_mtext_accept(t, ","));
    AT_TRY(at_mtext_expect(t, "]"));
  }
  AT_TRY_ALLOC(a, at_mattr_make(&t->c, AT_MATTR_DENSE_ARRAY));
  a->type = &at_mtype_i1;
  a->num_elems = (uint32_t)v.len;
  a->data = (at_bytes){v.ptr, v.len};
  return add(t, s, "window_reversal", a);
}

// {stride = [1], pad = [[0, 0]], lhs_dilate = [1], rhs_dilate = [1], reverse =
// ..}
static at_status read_window(at_mtext *t, at_mopstate *s) {
  AT_TRY(at_mtext_expect(t, "{"));
  if (at_mtext_accept(t, "}")) return AT_OK;
  do {
    at_str w;
    at_mi64_vec v = {0};
    if (!at_mtext_word(t, &w)) return at_mtext_fail(t, "a field is expected");
    AT_TRY(at_mtext_expect(t, "="));
    if (at_str_is(w, "pad")) {
      AT_TRY(read_padding(t, s));
    } else if (at_str_is(w, "reverse")) {
      AT_TRY(read_reverse(t, s));
    } else {
      const char *name = at_str_is(w, "stride")       ? "window_strides"
                         : at_str_is(w, "lhs_dilate") ? "lhs_dilation"
                         : at_str_is(w, "rhs_dilate") ? "rhs_dilation"
                                                      : NULL;
      if (!name) return at_mtext_fail(t, "a window has no such field");
      AT_TRY(at_mtext_i64_list(t, "[", "]", &v));
      AT_TRY(add_list(t, s, name, &v));
    }
  } while (at_mtext_accept(t, ","));
  return at_mtext_expect(t, "}");
}

// A spelling of the enum `name`.
static at_status read_enum(at_mtext *t, const char *name,
                           const at_mattr **out) {
  const at_mcodec *k = at_mcodec_by_name(at_str_of(name));
  at_str w;
  if (!at_mtext_word(t, &w) || !k || at_mcodec_value(k->enums, w) < 0)
    return at_mtext_fail(t, "%s is one of: %s", name, k ? k->enums : "");
  AT_TRY_ALLOC(*out, at_mattr_make_enum(&t->c, at_str_of(name), w));
  return AT_OK;
}

// ", word =": taken only as a whole.
static bool comma_word(at_mtext *t, const char *word) {
  const char *back = t->p;
  if (at_mtext_accept(t, ",") && at_mtext_accept_word(t, word) &&
      at_mtext_accept(t, "="))
    return true;
  t->p = back;
  return false;
}

// Nothing where the word does not follow.
static at_status read_precision(at_mtext *t, at_mopstate *s) {
  at_mattr_vec v = {0};
  if (!comma_word(t, "precision")) return AT_OK;
  AT_TRY(at_mtext_expect(t, "["));
  if (!at_mtext_accept(t, "]")) {
    do {
      const at_mattr *one;
      AT_TRY(read_enum(t, "stablehlo.precision", &one));
      if (!at_vec_push(t->c.arena, &v, one)) return AT_NO_MEMORY("precision");
    } while (at_mtext_accept(t, ","));
    AT_TRY(at_mtext_expect(t, "]"));
  }
  return add(t, s, "precision_config",
             at_mattr_make_array(&t->c, v.ptr, v.len));
}

// Nothing where the word does not follow.
static at_status read_algorithm(at_mtext *t, at_mopstate *s) {
  const at_mattr *a;
  if (!comma_word(t, "algorithm")) return AT_OK;
  AT_TRY(at_mtext_codec(t, at_mcodec_by_name(AT_STR("stablehlo.dot_algorithm")),
                        &a));
  return add(t, s, "algorithm", a);
}

// batching_dims = [0] x [0], contracting_dims = [2] x [1]
static at_status read_dotdims(at_mtext *t, at_mopstate *s) {
  at_mi64_vec v[4] = {0};
  if (at_mtext_accept_word(t, "batching_dims")) {
    AT_TRY(at_mtext_expect(t, "="));
    AT_TRY(at_mtext_i64_list(t, "[", "]", &v[0]));
    AT_TRY(at_mtext_expect(t, "x"));
    AT_TRY(at_mtext_i64_list(t, "[", "]", &v[1]));
    AT_TRY(at_mtext_expect(t, ","));
  }
  AT_TRY(at_mtext_expect_word(t, "contracting_dims"));
  AT_TRY(at_mtext_expect(t, "="));
  AT_TRY(at_mtext_i64_list(t, "[", "]", &v[2]));
  AT_TRY(at_mtext_expect(t, "x"));
  AT_TRY(at_mtext_i64_list(t, "[", "]", &v[3]));
  at_mattr *a;
  at_mnamed *f;
  at_mfield field;
  AT_TRY_ALLOC(a, at_mattr_make(&t->c, AT_MATTR_DIALECT));
  AT_TRY_ALLOC(a->name, at_mctx_intern(&t->c, AT_STR("stablehlo.dot")));
  AT_TRY_ALLOC(f, at_new(t->c.arena, at_mnamed, 4));
  const char *l = at_mcodec_by_name(AT_STR("stablehlo.dot"))->layout;
  for (; at_mcodec_next(&l, &field); a->num_elems++) {
    const at_mi64_vec *d = &v[a->num_elems];
    AT_TRY_ALLOC(f[a->num_elems].name, at_mctx_intern(&t->c, field.name));
    AT_TRY_ALLOC(f[a->num_elems].value,
                 at_mattr_make_i64s(&t->c, d->ptr, d->len));
  }
  a->fields = f;
  return add(t, s, "dot_dimension_numbers", a);
}

// e5m10
static at_status read_exponents(at_mtext *t, at_mopstate *s) {
  at_str w;
  uint32_t e = 0, m = 0;
  size_t i = 1;
  if (!at_mtext_word(t, &w)) return at_mtext_fail(t, "e<N>m<N> is expected");
  for (; i < w.len && i < 6 && isdigit((unsigned char)w.ptr[i]); i++)
    e = e * 10 + (uint32_t)(w.ptr[i] - '0');
  bool ok = w.ptr[0] == 'e' && i > 1 && i < w.len && w.ptr[i] == 'm';
  size_t from = ++i;
  for (; i < w.len && i < 12 && isdigit((unsigned char)w.ptr[i]); i++)
    m = m * 10 + (uint32_t)(w.ptr[i] - '0');
  if (!ok || i != w.len || i == from)
    return at_mtext_fail(t, "e<N>m<N> is expected");
  AT_TRY(
      add(t, s, "exponent_bits", at_mattr_make_int(&t->c, &at_mtype_i32, e)));
  return add(t, s, "mantissa_bits", at_mattr_make_int(&t->c, &at_mtype_i32, m));
}

// @name, held as a string.
static at_status read_target(at_mtext *t, at_mopstate *s) {
  at_str name;
  AT_TRY(at_mtext_expect(t, "@"));
  AT_TRY(at_mtext_symbol_name(t, &name));
  return add(t, s, "call_target_name", at_mattr_make_str(&t->c, name));
}

// Appends the types of results.
static at_status all_results(at_mtext *t, at_mopstate *s,
                             const at_mtype *const *v, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (!at_vec_push(t->c.arena, &s->results, v[i]))
      return AT_NO_MEMORY("types");
  return AT_OK;
}

// Operands and their types, which are the results' too; or ().
static at_status read_barrier(at_mtext *t, at_mopstate *s) {
  at_mtype_vec types = {0};
  if (at_mtext_accept(t, "(")) {
    AT_TRY(at_mtext_expect(t, ")"));
    return at_mtext_resolve(t, s, NULL, 0);
  }
  AT_TRY(at_mtext_operands(t, &s->operands));
  AT_TRY(at_mtext_expect(t, ":"));
  AT_TRY(at_mtext_type_list(t, &types));
  AT_TRY(all_results(t, s, types.ptr, types.len));
  return at_mtext_resolve(t, s, types.ptr, types.len);
}

// [b, f]x[i, o]->[b, f]
static at_status read_conv(at_mtext *t, at_mopstate *s) {
  const at_mattr *a;
  AT_TRY(at_mtext_conv(t, &a));
  return add(t, s, "dimension_numbers", a);
}

// ({...}, {...}) or nothing.
static at_status read_regions(at_mtext *t, at_mopstate *s) {
  if (!at_mtext_accept(t, "(")) return AT_OK;
  do AT_TRY(at_mtext_region(t, s, NULL));
  while (at_mtext_accept(t, ","));
  return at_mtext_expect(t, ")");
}

// What !name in a format stands for.
static at_status notation(at_mtext *t, at_mopstate *s, at_str name) {
  static const struct {
    const char *name;
    at_status (*read)(at_mtext *t, at_mopstate *s);
  } all[] = {{"slice", read_slice},         {"conv", read_conv},
             {"window", read_window},       {"precision", read_precision},
             {"dotdims", read_dotdims},     {"algorithm", read_algorithm},
             {"exponents", read_exponents}, {"target", read_target},
             {"barrier", read_barrier},     {"regions", read_regions}};
  for (size_t i = 0; i < AT_LEN(all); i++)
    if (at_str_is(name, all[i].name)) return all[i].read(t, s);
  return AT_FAIL(AT_INTERNAL, "no such notation");
}

// ---- Types at the end
static at_status from_function(at_mtext *t, at_mopstate *s, const at_mtype *f) {
  AT_TRY(all_results(t, s, f->results, f->num_results));
  return at_mtext_resolve(t, s, f->types, f->num_types);
}

// The type of all operands; `operand` may differ from the result (complex).
static at_status same(at_mtext *t, at_mopstate *s, const at_mtype *operand,
                      const at_mtype *result) {
  const at_mtype **v;
  AT_TRY_ALLOC(v, at_new(t->c.arena, const at_mtype *, s->operands.len));
  for (size_t i = 0; i < s->operands.len; i++) v[i] = operand;
  AT_TRY(all_results(t, s, &result, 1));
  return at_mtext_resolve(t, s, v, s->operands.len);
}

// predicate type, result type
static at_status select_types(at_mtext *t, at_mopstate *s, const at_mtype *f) {
  const at_mtype *v[3] = {f};
  AT_TRY(at_mtext_expect(t, ","));
  AT_TRY(at_mtext_read_type(t, &v[1]));
  v[2] = v[1];
  AT_TRY(all_results(t, s, &v[1], 1));
  return at_mtext_resolve(t, s, v, 3);
}

// The result's type; operands have its parts as elements.
static at_status complex_types(at_mtext *t, at_mopstate *s, const at_mtype *r) {
  if (!r->elem || r->elem->kind != AT_MTYPE_COMPLEX)
    return at_mtext_fail(t, "a tensor of complex numbers is expected");
  at_mtype *real;
  AT_TRY_ALLOC(real, at_mtype_make(&t->c, r->kind));
  *real = *r;
  real->elem = r->elem->elem;
  return same(t, s, real, r);
}

// in -> out, or a function type in brackets.
static at_status arrow_types(at_mtext *t, at_mopstate *s) {
  at_mtype_vec in = {0}, out = {0};
  if (at_mtext_at(t, "(")) {
    const at_mtype *f;
    AT_TRY(at_mtext_function_type(t, &f));
    return from_function(t, s, f);
  }
  AT_TRY(at_mtext_type_list(t, &in));
  AT_TRY(at_mtext_expect(t, "->"));
  bool list = at_mtext_accept(t, "(");
  AT_TRY(at_mtext_type_list(t, &out));
  if (list) AT_TRY(at_mtext_expect(t, ")"));
  AT_TRY(all_results(t, s, out.ptr, out.len));
  return at_mtext_resolve(t, s, in.ptr, in.len);
}

// What :K in a format stands for (formats.def has the list).
static at_status types(at_mtext *t, at_mopstate *s, char kind) {
  const at_mtype *one;
  at_mtype_vec v = {0};
  // No operands, no types.
  if (kind == 'Z' && !at_mtext_at(t, ":"))
    return at_mtext_resolve(t, s, NULL, 0);
  AT_TRY(at_mtext_expect(t, ":"));
  switch (kind) {
    case 'R':
      AT_TRY(at_mtext_type_list(t, &v));
      AT_TRY(all_results(t, s, v.ptr, v.len));
      return at_mtext_resolve(t, s, NULL, 0);
    case 'Z':
      AT_TRY(at_mtext_type_list(t, &v));
      return at_mtext_resolve(t, s, v.ptr, v.len);
    case 'F':
      AT_TRY(at_mtext_function_type(t, &one));
      return from_function(t, s, one);
    case 'A':
      return arrow_types(t, s);
    default:
      break;
  }
  AT_TRY(at_mtext_read_type(t, &one));
  if (one->kind == AT_MTYPE_FUNCTION) return from_function(t, s, one);
  if (kind == 'L') return select_types(t, s, one);
  if (kind == 'C') return complex_types(t, s, one);
  if (kind == 'S') return same(t, s, one, one);
  if (one->kind != AT_MTYPE_TUPLE)  // 'T'
    return at_mtext_fail(t, "a tuple type is expected");
  AT_TRY(all_results(t, s, &one, 1));
  return at_mtext_resolve(t, s, one->types, one->num_types);
}

// ---- Formats
static at_status bare_attr(at_mtext *t, at_mopstate *s, at_str piece) {
  const char *slash = memchr(piece.ptr, '/', piece.len);
  at_str name = {piece.ptr + 1, (size_t)(slash - piece.ptr) - 1};
  at_str kind = {slash + 1, piece.len - name.len - 2};
  const at_mattr *a = NULL;
  at_mnamed n;
  int64_t v;
  at_str text;
  if (at_str_is(kind, "i64") || at_str_is(kind, "i32")) {
    AT_TRY(at_mtext_i64(t, &v));
    a = at_mattr_make_int(
        &t->c, kind.ptr[1] == '6' ? &at_mtype_i64 : &at_mtype_i32, v);
  } else if (at_str_is(kind, "bool")) {
    bool yes = at_mtext_accept_word(t, "true");
    if (!yes) AT_TRY(at_mtext_expect_word(t, "false"));
    a = at_mattr_make_bool(&t->c, yes);
  } else if (at_str_is(kind, "list")) {
    at_mi64_vec list = {0};
    AT_TRY(at_mtext_i64_list(t, "[", "]", &list));
    a = at_mattr_make_i64s(&t->c, list.ptr, list.len);
  } else if (at_str_is(kind, "str")) {
    AT_TRY(at_mtext_quoted(t, &text));
    a = at_mattr_make_str(&t->c, text);
  } else {
    // Any other kind is the name of an enum.
    const char *z;
    AT_TRY_ALLOC(z, at_mctx_intern(&t->c, kind));
    AT_TRY(read_enum(t, z, &a));
  }
  if (!a) return AT_NO_MEMORY("attribute");
  AT_TRY_ALLOC(n.name, at_mctx_intern(&t->c, name));
  n.value = a;
  return at_vec_push(t->c.arena, &s->attrs, n) ? AT_OK
                                               : AT_NO_MEMORY("attributes");
}

// Operands that each have a comma after them; the first word ends them.
static at_status comma_operands(at_mtext *t, at_mopstate *s) {
  while (at_mtext_at(t, "%")) {
    AT_TRY(at_mtext_need_operand(t, &s->operands));
    AT_TRY(at_mtext_expect(t, ","));
  }
  return AT_OK;
}

// A piece of a format; what is no placeholder must stand there as it is.
static at_status one_piece(at_mtext *t, at_mopstate *s, at_str p) {
  if (at_str_is(p, "$")) return at_mtext_need_operand(t, &s->operands);
  if (at_str_is(p, "$*")) return at_mtext_operands(t, &s->operands);
  if (at_str_is(p, "$,*")) return comma_operands(t, s);
  if (at_str_is(p, "{}")) return at_mtext_opt_dict(t, &s->attrs);
  if (p.ptr[0] == '@') return bare_attr(t, s, p);
  if (p.ptr[0] == '!') return notation(t, s, (at_str){p.ptr + 1, p.len - 1});
  if (p.ptr[0] == ':' && p.len == 2) return types(t, s, p.ptr[1]);
  const char *z;
  AT_TRY_ALLOC(z, at_mctx_intern(&t->c, p));
  return isalpha((unsigned char)*z) ? at_mtext_expect_word(t, z)
                                    : at_mtext_expect(t, z);
}

// Piece by piece; an optional group is passed over where no comma follows.
static at_status by_format(at_mtext *t, at_mopstate *s, const char *format) {
  bool skip = false;
  for (const char *p = format; *p;) {
    size_t len = strcspn(p, " ");
    at_str piece = {p, len};
    p += len + (p[len] == ' ');
    if (piece.len > 1 && piece.ptr[0] == '[' && piece.ptr[1] == '?') {
      // Optional groups all begin with a comma.
      skip = !at_mtext_at(t, ",");
    } else if (at_str_is(piece, "?]")) {
      skip = false;
    } else if (!skip) {
      AT_TRY(one_piece(t, s, piece));
    }
  }
  return AT_OK;
}

// ---- Operations with regions
static at_status read_constant(at_mtext *t, at_mopstate *s) {
  const at_mattr *v;
  if (at_mtext_at(t, "(")) return at_mtext_generic_tail(t, s);
  AT_TRY(at_mtext_opt_dict(t, &s->attrs));
  AT_TRY(at_mtext_read_attr(t, &v));
  if (!v->type) return at_mtext_fail(t, "a constant needs a typed value");
  AT_TRY(add(t, s, "value", v));
  return all_results(t, s, &v->type, 1);
}

// (%name = %initial, ...) : types, then both regions, whose arguments have
// these names.
static at_status read_while(at_mtext *t, at_mopstate *s) {
  at_marg_vec args = {0};
  at_mtype_vec v = {0};
  AT_TRY(at_mtext_expect(t, "("));
  if (!at_mtext_accept(t, ")")) {
    do {
      at_moperand arg;
      if (!at_mtext_operand(t, &arg))
        return at_mtext_fail(t, "a name is expected");
      at_marg a = {arg.name, NULL, &at_mloc_unknown};
      AT_TRY(at_mtext_expect(t, "="));
      AT_TRY(at_mtext_need_operand(t, &s->operands));
      if (!at_vec_push(t->c.arena, &args, a)) return AT_NO_MEMORY("arguments");
    } while (at_mtext_accept(t, ","));
    AT_TRY(at_mtext_expect(t, ")"));
    AT_TRY(at_mtext_expect(t, ":"));
    AT_TRY(at_mtext_type_list(t, &v));
  }
  if (v.len != args.len)
    return at_mtext_fail(t, "%zu values, but %zu types", args.len, v.len);
  for (size_t i = 0; i < v.len; i++) args.ptr[i].type = v.ptr[i];
  AT_TRY(all_results(t, s, v.ptr, v.len));
  AT_TRY(at_mtext_resolve(t, s, v.ptr, v.len));
  if (at_mtext_accept_word(t, "attributes"))
    AT_TRY(at_mtext_dict(t, &s->attrs));
  AT_TRY(at_mtext_expect_word(t, "cond"));
  AT_TRY(at_mtext_region(t, s, &args));
  AT_TRY(at_mtext_expect_word(t, "do"));
  return at_mtext_region(t, s, &args);
}

// The region that "applies stablehlo.add" stands for.
static at_status short_reducer(at_mtext *t, at_mopstate *s, at_str inner,
                               const at_mtype *operand) {
  at_mblock *b;
  at_mop *op, *ret, **ops;
  at_mvalue **in, **out;
  at_mtype *scalar;
  if (!operand->elem) return at_mtext_fail(t, "a tensor is expected");
  AT_TRY_ALLOC(scalar, at_mtype_make(&t->c, AT_MTYPE_TENSOR));
  scalar->elem = operand->elem;
  AT_TRY(at_mtext_block_region(t, s, &b));
  AT_TRY_ALLOC(b->args, at_new(t->c.arena, at_mvalue, 2));
  AT_TRY_ALLOC(op, at_new(t->c.arena, at_mop, 1));
  AT_TRY_ALLOC(ret, at_new(t->c.arena, at_mop, 1));
  AT_TRY_ALLOC(ops, at_new(t->c.arena, at_mop *, 2));
  AT_TRY_ALLOC(in, at_new(t->c.arena, at_mvalue *, 2));
  AT_TRY_ALLOC(out, at_new(t->c.arena, at_mvalue *, 1));
  AT_TRY_ALLOC(op->results, at_new(t->c.arena, at_mvalue, 1));
  AT_TRY_ALLOC(op->name, at_mctx_intern(&t->c, inner));
  AT_TRY_ALLOC(ret->name, at_mctx_intern(&t->c, AT_STR("stablehlo.return")));
  b->num_args = 2;
  for (uint32_t i = 0; i < 2; i++) {
    b->args[i] = (at_mvalue){
        .type = scalar, .block = b, .index = i, .loc = &at_mloc_unknown};
    in[i] = &b->args[i];
  }
  op->operands = in, op->num_operands = 2;
  op->results[0] = (at_mvalue){.type = scalar, .op = op};
  op->num_results = 1;
  out[0] = &op->results[0];
  ret->operands = out, ret->num_operands = 1;
  op->loc = ret->loc = &at_mloc_unknown;
  op->block = ret->block = b;
  ops[0] = op, ops[1] = ret;
  b->ops = ops;
  b->num_ops = 2;
  return AT_OK;
}

// reducer(%a: t, %acc: t) (%b: t, %bcc: t) {...}: elements first, then the
// accumulators.
static at_status long_reducer(at_mtext *t, at_mopstate *s) {
  at_marg_vec first = {0}, second = {0};
  AT_TRY(at_mtext_expect_word(t, "reducer"));
  while (at_mtext_accept(t, "(")) {
    AT_TRY(at_mtext_argument(t, &first, NULL));
    AT_TRY(at_mtext_expect(t, ","));
    AT_TRY(at_mtext_argument(t, &second, NULL));
    AT_TRY(at_mtext_expect(t, ")"));
  }
  for (size_t i = 0; i < second.len; i++)
    if (!at_vec_push(t->c.arena, &first, second.ptr[i]))
      return AT_NO_MEMORY("arguments");
  return at_mtext_region(t, s, &first);
}

// (%operand init: %value), ... then the body in short or in full.
static at_status read_reduce(at_mtext *t, at_mopstate *s) {
  at_moperand_vec init = {0};
  at_mi64_vec dims = {0};
  at_str inner = {0};
  const at_mtype *f;
  do {
    if (!at_mtext_accept(t, "(")) break;
    AT_TRY(at_mtext_need_operand(t, &s->operands));
    AT_TRY(at_mtext_expect_word(t, "init"));
    AT_TRY(at_mtext_expect(t, ":"));
    AT_TRY(at_mtext_need_operand(t, &init));
    AT_TRY(at_mtext_expect(t, ")"));
  } while (at_mtext_accept(t, ","));
  // The operation takes all operands, then all initial values.
  for (size_t i = 0; i < init.len; i++)
    if (!at_vec_push(t->c.arena, &s->operands, init.ptr[i]))
      return AT_NO_MEMORY("operands");
  bool applies = at_mtext_accept_word(t, "applies");
  if (applies && !at_mtext_word(t, &inner))
    return at_mtext_fail(t, "an operation's name is expected");
  AT_TRY(at_mtext_expect_word(t, "across"));
  AT_TRY(at_mtext_expect_word(t, "dimensions"));
  AT_TRY(at_mtext_expect(t, "="));
  AT_TRY(at_mtext_i64_list(t, "[", "]", &dims));
  AT_TRY(add_list(t, s, "dimensions", &dims));
  AT_TRY(at_mtext_opt_dict(t, &s->attrs));
  AT_TRY(at_mtext_expect(t, ":"));
  AT_TRY(at_mtext_function_type(t, &f));
  AT_TRY(from_function(t, s, f));
  if (!applies) return long_reducer(t, s);
  if (!f->num_types) return at_mtext_fail(t, "a reduction needs an operand");
  return short_reducer(t, s, inner, f->types[0]);
}

// ---- Modules and functions
static at_status read_module(at_mtext *t, at_mopstate *s) {
  at_str name;
  if (at_mtext_accept(t, "@")) {
    AT_TRY(at_mtext_symbol_name(t, &name));
    AT_TRY(add(t, s, "sym_name", at_mattr_make_str(&t->c, name)));
  }
  if (at_mtext_accept_word(t, "attributes"))
    AT_TRY(at_mtext_dict(t, &s->attrs));
  at_marg_vec none = {0};
  return at_mtext_region(t, s, &none);
}

// @callee(operands) : function type
static at_status read_call(at_mtext *t, at_mopstate *s) {
  const at_mattr *callee;
  if (!at_mtext_at(t, "@")) return at_mtext_fail(t, "a function is expected");
  AT_TRY(at_mtext_read_attr(t, &callee));
  AT_TRY(add(t, s, "callee", callee));
  AT_TRY(at_mtext_expect(t, "("));
  AT_TRY(at_mtext_operands(t, &s->operands));
  AT_TRY(at_mtext_expect(t, ")"));
  AT_TRY(at_mtext_opt_dict(t, &s->attrs));
  return types(t, s, 'F');
}

// Operands and types, or nothing.
static at_status read_return(at_mtext *t, at_mopstate *s) {
  AT_TRY(at_mtext_opt_dict(t, &s->attrs));
  AT_TRY(at_mtext_operands(t, &s->operands));
  return types(t, s, 'Z');
}

// Operations with a form of their own first, then Shardy's, then the table of
// formats.
at_status at_mtext_pretty(at_mtext *t, at_mopstate *s, bool *known) {
  static const struct {
    const char *name;
    at_status (*read)(at_mtext *t, at_mopstate *s);
  } own[] = {{"builtin.module", read_module},
             {"func.func", at_mtext_func},
             {"func.call", read_call},
             {"func.return", read_return},
             {"stablehlo.constant", read_constant},
             {"chlo.constant", read_constant},
             {"sdy.constant", read_constant},
             {"arith.constant", read_constant},
             {"stablehlo.while", read_while},
             {"stablehlo.reduce", read_reduce}};
  const char *name = s->op->name;
  *known = true;
  for (size_t i = 0; i < AT_LEN(own); i++)
    if (strcmp(name, own[i].name) == 0) return own[i].read(t, s);
  if (strncmp(name, "sdy.", 4) == 0) return at_mtext_sdy_op(t, s, known);
  const char *format = at_mformat_of(name);
  *known = format != NULL;
  return format ? by_format(t, s, format) : AT_OK;
}

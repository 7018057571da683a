// func.func.
#include "mlir/text.h"

// Of a function: arguments with names, or only their types; a dictionary for
// each argument and result.
typedef struct signature {
  at_marg_vec args;
  at_mtype_vec inputs, results;
  at_mattr_vec arg_attrs, res_attrs;
  bool any_arg_attr, any_res_attr, types_only;
} signature;

// Appends the dictionary of one argument or result; *any becomes true where it
// has entries.
static at_status dict_of(at_mtext *t, at_mattr_vec *v, at_mnamed_vec *attrs,
                         bool *any) {
  const at_mattr *d;
  *any |= attrs->len != 0;
  AT_TRY(at_mtext_dict_make(t, attrs, &d));
  return at_vec_push(t->c.arena, v, d) ? AT_OK : AT_NO_MEMORY("attributes");
}

// "%name: type {attributes}", or the type alone in a declaration.
static at_status one_argument(at_mtext *t, signature *f) {
  at_mnamed_vec attrs = {0};
  const at_mtype *type;
  if (at_mtext_at(t, "%")) {
    AT_TRY(at_mtext_argument(t, &f->args, &attrs));
    type = f->args.ptr[f->args.len - 1].type;
  } else {
    f->types_only = true;
    const at_mloc *ignored;
    AT_TRY(at_mtext_read_type(t, &type));
    AT_TRY(at_mtext_opt_dict(t, &attrs));
    AT_TRY(at_mtext_opt_loc(t, &ignored));
  }
  if (!at_vec_push(t->c.arena, &f->inputs, type)) return AT_NO_MEMORY("types");
  return dict_of(t, &f->arg_attrs, &attrs, &f->any_arg_attr);
}

// A type and its attributes.
static at_status one_result(at_mtext *t, signature *f) {
  at_mnamed_vec attrs = {0};
  const at_mtype *type;
  AT_TRY(at_mtext_read_type(t, &type));
  AT_TRY(at_mtext_opt_dict(t, &attrs));
  if (!at_vec_push(t->c.arena, &f->results, type)) return AT_NO_MEMORY("types");
  return dict_of(t, &f->res_attrs, &attrs, &f->any_res_attr);
}

// (arguments) -> results; a single result needs no brackets.
static at_status read_signature(at_mtext *t, signature *f) {
  AT_TRY(at_mtext_expect(t, "("));
  if (!at_mtext_accept(t, ")")) {
    do AT_TRY(one_argument(t, f));
    while (at_mtext_accept(t, ","));
    AT_TRY(at_mtext_expect(t, ")"));
  }
  // A body needs names, a declaration has none.
  if (f->types_only && f->args.len)
    return at_mtext_fail(t, "some arguments have names and some have none");
  if (!at_mtext_accept(t, "->")) return AT_OK;
  if (!at_mtext_accept(t, "(")) {
    const at_mtype *type;
    const at_mattr *d;
    at_mnamed_vec none = {0};
    AT_TRY(at_mtext_read_type(t, &type));
    AT_TRY(at_mtext_dict_make(t, &none, &d));
    return at_vec_push(t->c.arena, &f->results, type) &&
                   at_vec_push(t->c.arena, &f->res_attrs, d)
               ? AT_OK
               : AT_NO_MEMORY("types");
  }
  if (at_mtext_accept(t, ")")) return AT_OK;
  do AT_TRY(one_result(t, f));
  while (at_mtext_accept(t, ","));
  return at_mtext_expect(t, ")");
}

// The function's type, and the lists of attributes where any of them has
// entries.
static at_status add_signature(at_mtext *t, at_mopstate *s, signature *f) {
  at_mtype *type;
  AT_TRY_ALLOC(type, at_mtype_make(&t->c, AT_MTYPE_FUNCTION));
  type->types = f->inputs.ptr, type->num_types = (uint32_t)f->inputs.len;
  type->results = f->results.ptr, type->num_results = (uint32_t)f->results.len;
  AT_TRY(at_mnamed_add(t, &s->attrs, "function_type",
                       at_mattr_make_type(&t->c, type)));
  if (f->any_arg_attr)
    AT_TRY(at_mnamed_add(
        t, &s->attrs, "arg_attrs",
        at_mattr_make_array(&t->c, f->arg_attrs.ptr, f->arg_attrs.len)));
  if (f->any_res_attr)
    AT_TRY(at_mnamed_add(
        t, &s->attrs, "res_attrs",
        at_mattr_make_array(&t->c, f->res_attrs.ptr, f->res_attrs.len)));
  return AT_OK;
}

// Behind the operation's name: visibility, symbol, signature, attributes, body.
at_status at_mtext_func(at_mtext *t, at_mopstate *s) {
  static const char *const visibilities[] = {"public", "private", "nested"};
  signature f = {0};
  at_str name;
  for (size_t i = 0; i < AT_LEN(visibilities); i++)
    if (at_mtext_accept_word(t, visibilities[i])) {
      AT_TRY(
          at_mnamed_add(t, &s->attrs, "sym_visibility",
                        at_mattr_make_str(&t->c, at_str_of(visibilities[i]))));
      break;
    }
  AT_TRY(at_mtext_expect(t, "@"));
  AT_TRY(at_mtext_symbol_name(t, &name));
  AT_TRY(
      at_mnamed_add(t, &s->attrs, "sym_name", at_mattr_make_str(&t->c, name)));
  AT_TRY(read_signature(t, &f));
  AT_TRY(add_signature(t, s, &f));
  if (at_mtext_accept_word(t, "attributes"))
    AT_TRY(at_mtext_dict(t, &s->attrs));
  if (at_mtext_at(t, "{")) {
    if (f.types_only)
      return at_mtext_fail(t, "a function with a body names its arguments");
    return at_mtext_region(t, s, &f.args);
  }
  // A declaration: one region without blocks.
  at_mregion *r;
  AT_TRY_ALLOC(r, at_new(t->c.arena, at_mregion, 1));
  r->op = s->op;
  return at_vec_push(t->c.arena, &s->regions, r) ? AT_OK
                                                 : AT_NO_MEMORY("regions");
}

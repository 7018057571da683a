// Shardy's attributes and operations in its own notation.
#include <ctype.h>

#include "mlir/text.h"

// A struct with the fields that were collected.
static at_status make(at_mtext *t, const char *name, at_mnamed_vec *fields,
                      const at_mattr **out) {
  at_mattr *a;
  AT_TRY_ALLOC(a, at_mattr_make(&t->c, AT_MATTR_DIALECT));
  AT_TRY_ALLOC(a->name, at_mctx_intern(&t->c, at_str_of(name)));
  a->fields = fields->ptr;
  a->num_elems = (uint32_t)fields->len;
  *out = a;
  return AT_OK;
}

typedef at_status (*item_fn)(at_mtext *t, const at_mattr **out);

// A bracketed list as an ARRAY.
static at_status list(at_mtext *t, const char *open, const char *close,
                      item_fn item, const at_mattr **out) {
  at_mattr_vec v = {0};
  AT_TRY(at_mtext_expect(t, open));
  if (!at_mtext_accept(t, close)) {
    do {
      const at_mattr *one;
      AT_TRY(item(t, &one));
      if (!at_vec_push(t->c.arena, &v, one)) return AT_NO_MEMORY("list");
    } while (at_mtext_accept(t, ","));
    AT_TRY(at_mtext_expect(t, close));
  }
  AT_TRY_ALLOC(*out, at_mattr_make_array(&t->c, v.ptr, v.len));
  return AT_OK;
}

// A string as an attribute.
static at_status quoted(at_mtext *t, const at_mattr **out) {
  at_str s;
  AT_TRY(at_mtext_quoted(t, &s));
  AT_TRY_ALLOC(*out, at_mattr_make_str(&t->c, s));
  return AT_OK;
}

// A number as an i64.
static at_status integer(at_mtext *t, const at_mattr **out) {
  int64_t v;
  AT_TRY(at_mtext_i64(t, &v));
  AT_TRY_ALLOC(*out, at_mattr_make_i64(&t->c, v));
  return AT_OK;
}

// The field is there with an empty list.
static at_status add_empty(at_mtext *t, at_mnamed_vec *f, const char *name) {
  return at_mnamed_add(t, f, name, at_mattr_make_array(&t->c, NULL, 0));
}

// "x"=2
static at_status mesh_axis(at_mtext *t, const at_mattr **out) {
  at_mnamed_vec f = {0};
  const at_mattr *v;
  AT_TRY(quoted(t, &v));
  AT_TRY(at_mnamed_add(t, &f, "name", v));
  AT_TRY(at_mtext_expect(t, "="));
  AT_TRY(integer(t, &v));
  AT_TRY(at_mnamed_add(t, &f, "size", v));
  return make(t, "sdy.mesh_axis", &f, out);
}

// <["x"=2, "y"=4], device_ids=[1, 0]>
static at_status mesh(at_mtext *t, const at_mattr **out) {
  at_mnamed_vec f = {0};
  at_mi64_vec ids = {0};
  const at_mattr *v;
  AT_TRY(at_mtext_expect(t, "<"));
  AT_TRY(list(t, "[", "]", mesh_axis, &v));
  AT_TRY(at_mnamed_add(t, &f, "axes", v));
  if (at_mtext_accept(t, ",")) {
    AT_TRY(at_mtext_expect_word(t, "device_ids"));
    AT_TRY(at_mtext_expect(t, "="));
    AT_TRY(at_mtext_i64_list(t, "[", "]", &ids));
  }
  AT_TRY(at_mtext_expect(t, ">"));
  AT_TRY(at_mnamed_add(t, &f, "device_ids",
                       at_mattr_make_i64s(&t->c, ids.ptr, ids.len)));
  return make(t, "sdy.mesh", &f, out);
}

// (1)2
static at_status sub_axis(at_mtext *t, const at_mattr **out) {
  at_mnamed_vec f = {0};
  const at_mattr *v;
  AT_TRY(at_mtext_expect(t, "("));
  AT_TRY(integer(t, &v));
  AT_TRY(at_mnamed_add(t, &f, "pre_size", v));
  AT_TRY(at_mtext_expect(t, ")"));
  AT_TRY(integer(t, &v));
  AT_TRY(at_mnamed_add(t, &f, "size", v));
  return make(t, "sdy.sub_axis_info", &f, out);
}

// "x" or "x":(1)2
static at_status axis_ref(at_mtext *t, const at_mattr **out) {
  at_mnamed_vec f = {0};
  const at_mattr *v;
  AT_TRY(quoted(t, &v));
  AT_TRY(at_mnamed_add(t, &f, "name", v));
  if (at_mtext_accept(t, ":")) {
    AT_TRY(sub_axis(t, &v));
    AT_TRY(at_mnamed_add(t, &f, "sub_axis_info", v));
  }
  return make(t, "sdy.axis_ref", &f, out);
}

// {"x", "y", ?}p1
static at_status dimension(at_mtext *t, const at_mattr **out) {
  at_mnamed_vec f = {0};
  at_mattr_vec axes = {0};
  bool closed = true;
  AT_TRY(at_mtext_expect(t, "{"));
  if (!at_mtext_accept(t, "}")) {
    do {
      const at_mattr *one;
      if (at_mtext_accept(t, "?")) {
        closed = false;
        break;
      }
      AT_TRY(axis_ref(t, &one));
      if (!at_vec_push(t->c.arena, &axes, one)) return AT_NO_MEMORY("axes");
    } while (at_mtext_accept(t, ","));
    AT_TRY(at_mtext_expect(t, "}"));
  }
  AT_TRY(at_mnamed_add(t, &f, "axes",
                       at_mattr_make_array(&t->c, axes.ptr, axes.len)));
  AT_TRY(at_mnamed_add(t, &f, "is_closed", at_mattr_make_bool(&t->c, closed)));
  // A priority stands right behind the brace.
  if (t->p + 1 < t->end && *t->p == 'p' && isdigit((unsigned char)t->p[1])) {
    const at_mattr *v;
    t->p++;
    AT_TRY(integer(t, &v));
    AT_TRY(at_mnamed_add(t, &f, "priority", v));
  }
  return make(t, "sdy.dimension_sharding", &f, out);
}

// @name, or a mesh written out.
static at_status mesh_or_ref(at_mtext *t, const at_mattr **out) {
  if (at_mtext_accept_word(t, "mesh")) return mesh(t, out);
  AT_TRY(at_mtext_read_attr(t, out));
  bool is_mesh =
      (*out)->kind == AT_MATTR_DIALECT && strcmp((*out)->name, "sdy.mesh") == 0;
  return (*out)->kind == AT_MATTR_SYMBOL || is_mesh
             ? AT_OK
             : at_mtext_fail(t, "a mesh or its name is expected");
}

// <@mesh, [{"x"}, {}], replicated={"y"}, unreduced=max{"z"}>
static at_status sharding(at_mtext *t, const at_mattr **out) {
  at_mnamed_vec f = {0};
  const at_mattr *v, *replicated = NULL, *unreduced = NULL, *op = NULL;
  AT_TRY(at_mtext_expect(t, "<"));
  AT_TRY(mesh_or_ref(t, &v));
  AT_TRY(at_mnamed_add(t, &f, "mesh_or_ref", v));
  AT_TRY(at_mtext_expect(t, ","));
  AT_TRY(list(t, "[", "]", dimension, &v));
  AT_TRY(at_mnamed_add(t, &f, "dim_shardings", v));
  while (at_mtext_accept(t, ",")) {
    if (!replicated && !unreduced && at_mtext_accept_word(t, "replicated")) {
      AT_TRY(at_mtext_expect(t, "="));
      AT_TRY(list(t, "{", "}", axis_ref, &replicated));
      continue;
    }
    if (unreduced) return at_mtext_fail(t, "a sharding ends here");
    AT_TRY(at_mtext_expect_word(t, "unreduced"));
    AT_TRY(at_mtext_expect(t, "="));
    at_str w;
    if (at_mtext_word(t, &w)) {
      if (!at_str_is(w, "max") && !at_str_is(w, "min"))
        return at_mtext_fail(t, "max or min is expected");
      AT_TRY_ALLOC(op,
                   at_mattr_make_enum(&t->c, AT_STR("sdy.reduction_op"), w));
    }
    AT_TRY(list(t, "{", "}", axis_ref, &unreduced));
  }
  AT_TRY(at_mtext_expect(t, ">"));
  // Both lists are fields of every sharding.
  AT_TRY(replicated ? at_mnamed_add(t, &f, "replicated_axes", replicated)
                    : add_empty(t, &f, "replicated_axes"));
  AT_TRY(unreduced ? at_mnamed_add(t, &f, "unreduced_axes", unreduced)
                   : add_empty(t, &f, "unreduced_axes"));
  if (op) AT_TRY(at_mnamed_add(t, &f, "reduction_op", op));
  return make(t, "sdy.sharding", &f, out);
}

// A struct of a single field.
static at_status one_field(at_mtext *t, const char *name, const char *field,
                           const at_mattr *v, const at_mattr **out) {
  at_mnamed_vec f = {0};
  AT_TRY(at_mnamed_add(t, &f, field, v));
  return make(t, name, &f, out);
}

// [<@mesh, ..>, <@mesh, ..>]
static at_status shardings(at_mtext *t, const at_mattr **out) {
  const at_mattr *v;
  AT_TRY(list(t, "[", "]", sharding, &v));
  return one_field(t, "sdy.sharding_per_value", "shardings", v, out);
}

// {"x", "y"}
static at_status manual_axes(at_mtext *t, const at_mattr **out) {
  const at_mattr *v;
  AT_TRY(list(t, "{", "}", quoted, &v));
  return one_field(t, "sdy.manual_axes", "value", v, out);
}

// {"x", "y":(1)2}
static at_status axis_refs(at_mtext *t, const at_mattr **out) {
  const at_mattr *v;
  AT_TRY(list(t, "{", "}", axis_ref, &v));
  return one_field(t, "sdy.axis_ref_list", "value", v, out);
}

// [{"x"}, {}]
static at_status axis_ref_lists(at_mtext *t, const at_mattr **out) {
  const at_mattr *v;
  AT_TRY(list(t, "[", "]", axis_refs, &v));
  return one_field(t, "sdy.list_of_axis_ref_lists", "value", v, out);
}

// {"x"}: 0->1
static at_status all_to_all(at_mtext *t, const at_mattr **out) {
  at_mnamed_vec f = {0};
  const at_mattr *v;
  AT_TRY(list(t, "{", "}", axis_ref, &v));
  AT_TRY(at_mnamed_add(t, &f, "axes", v));
  AT_TRY(at_mtext_expect(t, ":"));
  AT_TRY(integer(t, &v));
  AT_TRY(at_mnamed_add(t, &f, "src_dim", v));
  AT_TRY(at_mtext_expect(t, "->"));
  AT_TRY(integer(t, &v));
  AT_TRY(at_mnamed_add(t, &f, "tgt_dim", v));
  return make(t, "sdy.all_to_all_param", &f, out);
}

// [{"x"}: 0->1, ...]
static at_status all_to_alls(at_mtext *t, const at_mattr **out) {
  const at_mattr *v;
  AT_TRY(list(t, "[", "]", all_to_all, &v));
  return one_field(t, "sdy.all_to_all_param_list", "value", v, out);
}

// ---- Sharding rules
// A factor is i..z, then z_1, z_2, ...
static bool factor(at_mtext *t, int64_t *out) {
  if (t->p == t->end || *t->p < 'i' || *t->p > 'z') return false;
  *out = *t->p++ - 'i';
  if (*out == 'z' - 'i' && t->p + 1 < t->end && *t->p == '_' &&
      isdigit((unsigned char)t->p[1])) {
    int64_t n;
    t->p++;
    at_status s = at_mtext_i64(t, &n);
    if (!at_ok(s)) {
      at_status_free(s);
      return false;
    }
    *out += n;
  }
  return true;
}

// Factors back to back: ij.
static at_status dim_mapping(at_mtext *t, const at_mattr **out) {
  at_mi64_vec v = {0};
  int64_t one;
  at_mtext_space(t);
  while (factor(t, &one))
    if (!at_vec_push(t->c.arena, &v, one)) return AT_NO_MEMORY("factors");
  if (!v.len) return at_mtext_fail(t, "a factor is expected");
  return one_field(t, "sdy.dim_mapping", "factor_indices",
                   at_mattr_make_i64s(&t->c, v.ptr, v.len), out);
}

// [i, jk]
static at_status tensor_mapping(at_mtext *t, const at_mattr **out) {
  const at_mattr *v;
  AT_TRY(list(t, "[", "]", dim_mapping, &v));
  return one_field(t, "sdy.tensor_mapping", "dim_mappings", v, out);
}

// {i, j}, or with sizes {i=2, j=4}, which must name every factor in order.
static at_status factor_list(at_mtext *t, bool sizes, at_mi64_vec *v) {
  AT_TRY(at_mtext_expect(t, "{"));
  if (at_mtext_accept(t, "}")) return AT_OK;
  do {
    int64_t one;
    at_mtext_space(t);
    if (!factor(t, &one)) return at_mtext_fail(t, "a factor is expected");
    if (sizes) {
      if (one != (int64_t)v->len)
        return at_mtext_fail(t, "factors are not in order");
      AT_TRY(at_mtext_expect(t, "="));
      AT_TRY(at_mtext_i64(t, &one));
    }
    if (!at_vec_push(t->c.arena, v, one)) return AT_NO_MEMORY("factors");
  } while (at_mtext_accept(t, ","));
  return at_mtext_expect(t, "}");
}

// <(operands)->(results) {sizes} kinds, custom>; each kind is optional.
static at_status rule(at_mtext *t, const at_mattr **out) {
  static const char *const kinds[] = {"reduction", "need_replication",
                                      "permutation", "blocked_propagation"};
  static const char *const names[] = {
      "reduction_factors", "need_replication_factors", "permutation_factors",
      "blocked_propagation_factors"};
  at_mnamed_vec f = {0};
  at_mi64_vec sizes = {0}, v[4] = {0};
  const at_mattr *operands, *results;
  AT_TRY(at_mtext_expect(t, "<"));
  AT_TRY(list(t, "(", ")", tensor_mapping, &operands));
  AT_TRY(at_mtext_expect(t, "->"));
  AT_TRY(list(t, "(", ")", tensor_mapping, &results));
  if (at_mtext_at(t, "{")) AT_TRY(factor_list(t, true, &sizes));
  for (size_t i = 0; i < 4; i++)
    if (at_mtext_accept_word(t, kinds[i])) {
      AT_TRY(at_mtext_expect(t, "="));
      AT_TRY(factor_list(t, false, &v[i]));
    }
  bool custom = at_mtext_accept(t, ",");
  if (custom) AT_TRY(at_mtext_expect_word(t, "custom"));
  AT_TRY(at_mtext_expect(t, ">"));
  AT_TRY(at_mnamed_add(t, &f, "factor_sizes",
                       at_mattr_make_i64s(&t->c, sizes.ptr, sizes.len)));
  AT_TRY(at_mnamed_add(t, &f, "operand_mappings", operands));
  AT_TRY(at_mnamed_add(t, &f, "result_mappings", results));
  for (size_t i = 0; i < 4; i++)
    AT_TRY(at_mnamed_add(t, &f, names[i],
                         at_mattr_make_i64s(&t->c, v[i].ptr, v[i].len)));
  AT_TRY(at_mnamed_add(t, &f, "is_custom_rule",
                       at_mattr_make_bool(&t->c, custom)));
  return make(t, "sdy.op_sharding_rule", &f, out);
}

// Shardings in angle brackets.
static at_status per_value(at_mtext *t, const at_mattr **out) {
  AT_TRY(at_mtext_expect(t, "<"));
  AT_TRY(shardings(t, out));
  return at_mtext_expect(t, ">");
}

// Which notations bring their own angle brackets, and which stand in a pair.
at_status at_mtext_sdy(at_mtext *t, const at_mcodec *k, const at_mattr **out) {
  static const struct {
    const char *name;
    item_fn read;
    bool own_brackets;
  } forms[] = {{"sdy.mesh", mesh, true},
               {"sdy.sharding", sharding, true},
               {"sdy.sharding_per_value", per_value, true},
               {"sdy.op_sharding_rule", rule, true},
               {"sdy.manual_axes", manual_axes, false},
               {"sdy.mesh_axis", mesh_axis, false},
               {"sdy.sub_axis_info", sub_axis, false},
               {"sdy.axis_ref", axis_ref, false},
               {"sdy.dimension_sharding", dimension, false},
               {"sdy.dim_mapping", dim_mapping, false},
               {"sdy.tensor_mapping", tensor_mapping, false},
               {"sdy.axis_ref_list", axis_refs, false},
               {"sdy.list_of_axis_ref_lists", axis_ref_lists, false},
               {"sdy.all_to_all_param", all_to_all, false},
               {"sdy.all_to_all_param_list", all_to_alls, false}};
  for (size_t i = 0; i < AT_LEN(forms); i++) {
    if (strcmp(forms[i].name, k->name)) continue;
    if (forms[i].own_brackets) return forms[i].read(t, out);
    // Inside "#sdy<manual_axes{..}>" the brackets are the dialect's.
    bool bracket = at_mtext_accept(t, "<");
    AT_TRY(forms[i].read(t, out));
    return bracket ? at_mtext_expect(t, ">") : AT_OK;
  }
  return at_mtext_fail(t, "%s is not read from text", k->name);
}

// ---- Operations
static at_status mesh_op(at_mtext *t, at_mopstate *s) {
  at_str name;
  const at_mattr *v;
  AT_TRY(at_mtext_expect(t, "@"));
  AT_TRY(at_mtext_symbol_name(t, &name));
  AT_TRY(
      at_mnamed_add(t, &s->attrs, "sym_name", at_mattr_make_str(&t->c, name)));
  AT_TRY(at_mtext_expect(t, "="));
  AT_TRY(mesh(t, &v));
  AT_TRY(at_mnamed_add(t, &s->attrs, "mesh", v));
  return at_mtext_opt_dict(t, &s->attrs);
}

// The trailing ": type", which operand and result share.
static at_status same_type(at_mtext *t, at_mopstate *s) {
  const at_mtype *type;
  AT_TRY(at_mtext_opt_dict(t, &s->attrs));
  AT_TRY(at_mtext_expect(t, ":"));
  AT_TRY(at_mtext_read_type(t, &type));
  if (!at_vec_push(t->c.arena, &s->results, type)) return AT_NO_MEMORY("type");
  return at_mtext_resolve(t, s, NULL, 0);
}

// %x <sharding> : type
static at_status constraint(at_mtext *t, at_mopstate *s) {
  const at_mattr *v;
  AT_TRY(at_mtext_need_operand(t, &s->operands));
  AT_TRY(sharding(t, &v));
  AT_TRY(at_mnamed_add(t, &s->attrs, "sharding", v));
  return same_type(t, s);
}

// name=value as an attribute of the operation.
static at_status named(at_mtext *t, at_mopstate *s, const char *name,
                       item_fn read) {
  const at_mattr *v;
  AT_TRY(at_mtext_expect_word(t, name));
  AT_TRY(at_mtext_expect(t, "="));
  AT_TRY(read(t, &v));
  return at_mnamed_add(t, &s->attrs, name, v);
}

// %x sharding=<@mesh, ..> : type
static at_status edge(at_mtext *t, at_mopstate *s) {
  AT_TRY(at_mtext_need_operand(t, &s->operands));
  if (at_mtext_at(t, "sharding")) AT_TRY(named(t, s, "sharding", sharding));
  return same_type(t, s);
}

// Held as its number in an i32.
static at_status direction(at_mtext *t, const at_mattr **out) {
  static const char *const names[] = {"NONE", "FORWARD", "BACKWARD", "BOTH"};
  for (int i = 0; i < 4; i++)
    if (at_mtext_accept_word(t, names[i])) {
      AT_TRY_ALLOC(*out, at_mattr_make_int(&t->c, &at_mtype_i32, i));
      return AT_OK;
    }
  return at_mtext_fail(t, "a direction is expected");
}

// %x allowed_direction=BOTH : type
static at_status propagation_barrier(at_mtext *t, at_mopstate *s) {
  AT_TRY(at_mtext_need_operand(t, &s->operands));
  AT_TRY(named(t, s, "allowed_direction", direction));
  return same_type(t, s);
}

// (arguments) {region} {attributes} : function type
static at_status body(at_mtext *t, at_mopstate *s) {
  at_marg_vec args = {0};
  AT_TRY(at_mtext_expect(t, "("));
  if (!at_mtext_accept(t, ")")) {
    do AT_TRY(at_mtext_argument(t, &args, NULL));
    while (at_mtext_accept(t, ","));
    AT_TRY(at_mtext_expect(t, ")"));
  }
  AT_TRY(at_mtext_region(t, s, &args));
  AT_TRY(at_mtext_opt_dict(t, &s->attrs));
  AT_TRY(at_mtext_expect(t, ":"));
  const at_mtype *f;
  AT_TRY(at_mtext_function_type(t, &f));
  s->results.ptr = (const at_mtype **)f->results;
  s->results.len = s->results.cap = f->num_results;
  return at_mtext_resolve(t, s, f->types, f->num_types);
}

// (operands) in_shardings=... out_shardings=... manual_axes=... and the body.
static at_status manual_computation(at_mtext *t, at_mopstate *s) {
  AT_TRY(at_mtext_expect(t, "("));
  AT_TRY(at_mtext_operands(t, &s->operands));
  AT_TRY(at_mtext_expect(t, ")"));
  AT_TRY(named(t, s, "in_shardings", shardings));
  AT_TRY(named(t, s, "out_shardings", shardings));
  AT_TRY(named(t, s, "manual_axes", manual_axes));
  return body(t, s);
}

// <"name"> (operands), shardings where they are given, and the body.
static at_status named_computation(at_mtext *t, at_mopstate *s) {
  const at_mattr *name;
  AT_TRY(at_mtext_expect(t, "<"));
  AT_TRY(quoted(t, &name));
  AT_TRY(at_mnamed_add(t, &s->attrs, "name", name));
  AT_TRY(at_mtext_expect(t, ">"));
  AT_TRY(at_mtext_expect(t, "("));
  AT_TRY(at_mtext_operands(t, &s->operands));
  AT_TRY(at_mtext_expect(t, ")"));
  if (at_mtext_at(t, "in_shardings"))
    AT_TRY(named(t, s, "in_shardings", shardings));
  if (at_mtext_at(t, "out_shardings"))
    AT_TRY(named(t, s, "out_shardings", shardings));
  return body(t, s);
}

// %x group_id=1 : type; no result.
static at_status group(at_mtext *t, at_mopstate *s) {
  AT_TRY(at_mtext_need_operand(t, &s->operands));
  AT_TRY(named(t, s, "group_id", integer));
  AT_TRY(at_mtext_opt_dict(t, &s->attrs));
  AT_TRY(at_mtext_expect(t, ":"));
  const at_mtype *type;
  AT_TRY(at_mtext_read_type(t, &type));
  return at_mtext_resolve(t, s, &type, 1);
}

// Operands and types, or nothing.
static at_status read_return(at_mtext *t, at_mopstate *s) {
  AT_TRY(at_mtext_opt_dict(t, &s->attrs));
  AT_TRY(at_mtext_operands(t, &s->operands));
  at_mtype_vec types = {0};
  if (s->operands.len) {
    AT_TRY(at_mtext_expect(t, ":"));
    AT_TRY(at_mtext_type_list(t, &types));
  }
  return at_mtext_resolve(t, s, types.ptr, types.len);
}

// A collective: its attribute, the tensor, where it goes.
static at_status collective(at_mtext *t, at_mopstate *s, const char *attr,
                            item_fn read) {
  const at_mattr *v;
  if (attr) {
    AT_TRY(read(t, &v));
    AT_TRY(at_mnamed_add(t, &s->attrs, attr, v));
  }
  AT_TRY(at_mtext_need_operand(t, &s->operands));
  AT_TRY(named(t, s, "out_sharding", sharding));
  return same_type(t, s);
}

// By the name behind "sdy."; *known false: no such form.
at_status at_mtext_sdy_op(at_mtext *t, at_mopstate *s, bool *known) {
  static const struct {
    const char *name, *attr;
    item_fn read;
  } collectives[] = {{"all_gather", "gathering_axes", axis_ref_lists},
                     {"all_slice", "slicing_axes", axis_ref_lists},
                     {"all_to_all", "params", all_to_alls},
                     {"collective_permute", NULL, NULL},
                     {"all_reduce", "reduction_axes", axis_refs},
                     {"reduce_scatter", "reduce_scatter_axes", axis_ref_lists}};
  static const struct {
    const char *name;
    at_status (*read)(at_mtext *t, at_mopstate *s);
  } ops[] = {{"mesh", mesh_op},
             {"sharding_constraint", constraint},
             {"reshard", constraint},
             {"manual_computation", manual_computation},
             {"named_computation", named_computation},
             {"sharding_group", group},
             {"data_flow_edge", edge},
             {"func_data_flow_edge", edge},
             {"propagation_barrier", propagation_barrier},
             {"return", read_return}};
  const char *name = s->op->name + 4;  // past "sdy."
  *known = true;
  for (size_t i = 0; i < AT_LEN(ops); i++)
    if (strcmp(name, ops[i].name) == 0) return ops[i].read(t, s);
  for (size_t i = 0; i < AT_LEN(collectives); i++)
    if (strcmp(name, collectives[i].name) == 0)
      return collective(t, s, collectives[i].attr, collectives[i].read);
  *known = false;
  return AT_OK;
}

// Shardy's attributes in its own notation, and convolution dimensions.
#include <inttypes.h>

#include "mlir/print.h"

// NULL is none.
bool at_mattr_is_enum(const at_mattr *a, const char *name) {
  return a && a->kind == AT_MATTR_DIALECT && strcmp(a->name, name) == 0 &&
         a->str.len;
}

// What at_mattr_i64s may be asked of.
bool at_mattr_is_i64s(const at_mattr *a) {
  return a && a->kind == AT_MATTR_DENSE_ARRAY && at_mtype_is_int(a->type, 64) &&
         a->type->sign == AT_SIGNLESS;
}

// a must be one (at_mattr_is_i64s); borrowed.
at_dims at_mattr_i64s(const at_mattr *a) {
  return (at_dims){(const int64_t *)(const void *)a->data.ptr, a->num_elems};
}

// A field by name; NULL: absent.
static const at_mattr *get(const at_mattr *a, const char *name) {
  for (uint32_t i = 0; i < a->num_elems; i++)
    if (strcmp(a->fields[i].name, name) == 0) return a->fields[i].value;
  return NULL;
}

// ---- What may be printed
// A struct of that name which has its fields.
static bool named(const at_mattr *a, const char *name) {
  return a->kind == AT_MATTR_DIALECT && strcmp(a->name, name) == 0 &&
         a->num_elems;
}

// Whether each of a list is a struct of that name.
static bool all_named(const at_mattr *list, const char *name) {
  for (uint32_t i = 0; i < list->num_elems; i++)
    if (!named(list->elems[i], name)) return false;
  return true;
}

// What the printers below read without asking: lists hold structs of the right
// name, and factors have letters.
bool at_msdy_valid(const at_mattr *a) {
  static const struct {
    const char *attr, *field, *element;
  } lists[] = {
      {"sdy.mesh", "axes", "sdy.mesh_axis"},
      {"sdy.dimension_sharding", "axes", "sdy.axis_ref"},
      {"sdy.sharding", "dim_shardings", "sdy.dimension_sharding"},
      {"sdy.sharding", "replicated_axes", "sdy.axis_ref"},
      {"sdy.sharding", "unreduced_axes", "sdy.axis_ref"},
      {"sdy.sharding_per_value", "shardings", "sdy.sharding"},
      {"sdy.tensor_mapping", "dim_mappings", "sdy.dim_mapping"},
      {"sdy.op_sharding_rule", "operand_mappings", "sdy.tensor_mapping"},
      {"sdy.op_sharding_rule", "result_mappings", "sdy.tensor_mapping"},
      {"sdy.axis_ref_list", "value", "sdy.axis_ref"},
      {"sdy.list_of_axis_ref_lists", "value", "sdy.axis_ref_list"},
      {"sdy.all_to_all_param", "axes", "sdy.axis_ref"},
      {"sdy.all_to_all_param_list", "value", "sdy.all_to_all_param"}};
  for (size_t i = 0; i < AT_LEN(lists); i++)
    if (strcmp(a->name, lists[i].attr) == 0 &&
        !all_named(get(a, lists[i].field), lists[i].element))
      return false;
  // Manual axes are names.
  if (strcmp(a->name, "sdy.manual_axes") == 0) {
    const at_mattr *v = get(a, "value");
    for (uint32_t i = 0; i < v->num_elems; i++)
      if (v->elems[i]->kind != AT_MATTR_STRING || v->elems[i]->type)
        return false;
  }
  const at_mattr *sub = get(a, "sub_axis_info"), *mesh = get(a, "mesh_or_ref");
  const at_mattr *priority = get(a, "priority");
  if (sub && !named(sub, "sdy.sub_axis_info")) return false;
  if (mesh && mesh->kind != AT_MATTR_SYMBOL && !named(mesh, "sdy.mesh"))
    return false;
  if (priority && priority->i < 0) return false;
  // Factors are numbered from 0.
  for (uint32_t i = 0; i < a->num_elems; i++) {
    const at_mattr *v = a->fields[i].value;
    if (!at_mattr_is_i64s(v) || strcmp(a->fields[i].name, "device_ids") == 0)
      continue;
    at_dims d = at_mattr_i64s(v);
    for (uint32_t k = 0; k < d.rank; k++)
      if (d.ptr[k] < 0 || d.ptr[k] == INT64_MAX) return false;
  }
  return strcmp(a->name, "sdy.dim_mapping") ||
         get(a, "factor_indices")->num_elems;
}

// ---- Notation
static void sdy(at_strbuf *b, const at_mattr *a);

// Strings are quoted, structs in their notation; NULL is an empty list.
static void list(at_strbuf *b, const char *open, const at_mattr *v,
                 const char *close) {
  at_strbuf_addz(b, open);
  for (uint32_t i = 0; v && i < v->num_elems; i++) {
    if (i) at_strbuf_addz(b, ", ");
    if (v->elems[i]->kind == AT_MATTR_STRING)
      at_mprint_string(b, v->elems[i]->str);
    else
      sdy(b, v->elems[i]);
  }
  at_strbuf_addz(b, close);
}

// i to z, then z_1, z_2, ...
static void factor(at_strbuf *b, int64_t i) {
  if (i <= 'z' - 'i')
    at_strbuf_addc(b, (char)('i' + i));
  else
    at_strbuf_addf(b, "z_%" PRId64, i - ('z' - 'i'));
}

// Nothing for an empty list.
static void factors(at_strbuf *b, const char *name, const at_mattr *v) {
  at_dims d = at_mattr_i64s(v);
  if (!d.rank) return;
  at_strbuf_addf(b, " %s={", name);
  for (uint32_t i = 0; i < d.rank; i++) {
    if (i) at_strbuf_addz(b, ", ");
    factor(b, d.ptr[i]);
  }
  at_strbuf_addc(b, '}');
}

// Mappings, sizes of factors, then the kinds of factors that are not empty.
static void rule(at_strbuf *b, const at_mattr *a) {
  at_dims sizes = at_mattr_i64s(get(a, "factor_sizes"));
  list(b, "<(", get(a, "operand_mappings"), ")->");
  list(b, "(", get(a, "result_mappings"), ")");
  for (uint32_t i = 0; i < sizes.rank; i++) {
    at_strbuf_addz(b, i ? ", " : " {");
    factor(b, i);
    at_strbuf_addf(b, "=%" PRId64, sizes.ptr[i]);
  }
  if (sizes.rank) at_strbuf_addc(b, '}');
  factors(b, "reduction", get(a, "reduction_factors"));
  factors(b, "need_replication", get(a, "need_replication_factors"));
  factors(b, "permutation", get(a, "permutation_factors"));
  factors(b, "blocked_propagation", get(a, "blocked_propagation_factors"));
  at_strbuf_addz(b, get(a, "is_custom_rule")->i ? ", custom>" : ">");
}

// Empty lists of axes are left out.
static void sharding(at_strbuf *b, const at_mattr *a) {
  const at_mattr *mesh = get(a, "mesh_or_ref");
  const at_mattr *replicated = get(a, "replicated_axes");
  const at_mattr *unreduced = get(a, "unreduced_axes");
  const at_mattr *op = get(a, "reduction_op");
  at_strbuf_addc(b, '<');
  if (mesh->kind == AT_MATTR_SYMBOL) {
    at_mattr_print(b, mesh);
  } else {
    at_strbuf_addz(b, "mesh");
    sdy(b, mesh);
  }
  list(b, ", [", get(a, "dim_shardings"), "]");
  if (replicated->num_elems) list(b, ", replicated={", replicated, "}");
  if (unreduced->num_elems || op) {
    at_strbuf_addz(b, ", unreduced=");
    if (op) at_strbuf_add(b, op->str);
    list(b, "{", unreduced, "}");
  }
  at_strbuf_addc(b, '>');
}

// Attributes whose notation is one line of code.
static void small(at_strbuf *b, const at_mattr *a, const char *name) {
  const at_mattr *sub;
  if (strcmp(name, "mesh_axis") == 0) {
    at_mprint_string(b, get(a, "name")->str);
    at_strbuf_addf(b, "=%" PRId64, get(a, "size")->i);
  } else if (strcmp(name, "sub_axis_info") == 0) {
    at_strbuf_addf(b, "(%" PRId64 ")%" PRId64, get(a, "pre_size")->i,
                   get(a, "size")->i);
  } else if (strcmp(name, "axis_ref") == 0) {
    at_mprint_string(b, get(a, "name")->str);
    if ((sub = get(a, "sub_axis_info"))) at_strbuf_addc(b, ':'), sdy(b, sub);
  } else if (strcmp(name, "dimension_sharding") == 0) {
    const at_mattr *axes = get(a, "axes"), *priority = get(a, "priority");
    bool open = !get(a, "is_closed")->i;
    list(b, "{", axes, open ? axes->num_elems ? ", ?}" : "?}" : "}");
    if (priority) at_strbuf_addf(b, "p%" PRId64, priority->i);
  } else {  // dim_mapping
    at_dims d = at_mattr_i64s(get(a, "factor_indices"));
    for (uint32_t i = 0; i < d.rank; i++) factor(b, d.ptr[i]);
  }
}

// The notation without the attribute's name; recursion over its parts.
static void sdy(at_strbuf *b, const at_mattr *a) {
  const char *name = a->name + 4;
  if (strcmp(name, "mesh") == 0) {
    at_dims ids = at_mattr_i64s(get(a, "device_ids"));
    list(b, "<[", get(a, "axes"), "]");
    if (ids.rank) at_mprint_dims(b, ", device_ids=[", ids, "]");
    at_strbuf_addc(b, '>');
  } else if (strcmp(name, "sharding") == 0) {
    sharding(b, a);
  } else if (strcmp(name, "sharding_per_value") == 0) {
    list(b, "<[", get(a, "shardings"), "]>");
  } else if (strcmp(name, "op_sharding_rule") == 0) {
    rule(b, a);
  } else if (strcmp(name, "tensor_mapping") == 0) {
    list(b, "[", get(a, "dim_mappings"), "]");
  } else if (strcmp(name, "manual_axes") == 0 ||
             strcmp(name, "axis_ref_list") == 0) {
    list(b, "{", get(a, "value"), "}");
  } else if (strcmp(name, "list_of_axis_ref_lists") == 0 ||
             strcmp(name, "all_to_all_param_list") == 0) {
    list(b, "[", get(a, "value"), "]");
  } else if (strcmp(name, "all_to_all_param") == 0) {
    list(b, "{", get(a, "axes"), "}: ");
    at_strbuf_addf(b, "%" PRId64 "->%" PRId64, get(a, "src_dim")->i,
                   get(a, "tgt_dim")->i);
  } else {
    small(b, a, name);
  }
}

// Four attributes bring brackets of their own, the others stand between the
// dialect's.
void at_mprint_sdy(at_strbuf *b, const at_mattr *a) {
  static const char *const brackets[] = {"sdy.mesh", "sdy.sharding",
                                         "sdy.sharding_per_value",
                                         "sdy.op_sharding_rule"};
  for (size_t i = 0; i < AT_LEN(brackets); i++)
    if (strcmp(a->name, brackets[i]) == 0) {
      at_strbuf_addf(b, "#%s", a->name);
      sdy(b, a);
      return;
    }
  at_strbuf_addf(b, "#sdy<%s", a->name + 4);
  // A name would run into what follows it, a factor for one.
  at_strbuf_addc(b, ' ');
  sdy(b, a);
  at_strbuf_addc(b, '>');
}

// ---- Operations
static bool is(const at_mattr *a, const char *name) {
  return a && named(a, name);
}

// That many operands and results, and nothing else.
static bool plain(const at_mop *op, uint32_t operands, uint32_t results) {
  return op->num_operands == operands && op->num_results == results &&
         !op->num_regions && !op->num_successors;
}

// Shardings of operands and results, manual axes, and a body with arguments.
static bool manual(at_mprint *p, const at_mop *op) {
  const at_mattr *in = at_mop_attr(op, "in_shardings");
  const at_mattr *out = at_mop_attr(op, "out_shardings");
  const at_mattr *axes = at_mop_attr(op, "manual_axes");
  if (!is(in, "sdy.sharding_per_value") || !is(out, "sdy.sharding_per_value") ||
      !is(axes, "sdy.manual_axes") || op->num_successors ||
      op->num_regions != 1 || op->regions[0]->num_blocks != 1)
    return false;
  const at_mblock *b = op->regions[0]->blocks[0];
  at_strbuf_addz(p->out, "sdy.manual_computation(");
  at_mprint_values(p, op->operands, op->num_operands);
  list(p->out, ") in_shardings=[", get(in, "shardings"), "]");
  list(p->out, " out_shardings=[", get(out, "shardings"), "]");
  list(p->out, " manual_axes={", get(axes, "value"), "} (");
  for (uint32_t i = 0; i < b->num_args; i++) {
    if (i) at_strbuf_addz(p->out, ", ");
    at_mprint_arg(p, &b->args[i], NULL);
  }
  at_strbuf_addz(p->out, ") ");
  at_mprint_region(p, op->regions[0], false);
  at_mprint_rest(p, op, "", " in_shardings out_shardings manual_axes ");
  at_strbuf_addz(p->out, " : ");
  at_mprint_function(p, op);
  return true;
}

// Other operations have no pretty form here.
bool at_mprint_sdy_op(at_mprint *p, const at_mop *op) {
  const char *name = op->name + 4;
  at_strbuf *b = p->out;
  if (strcmp(name, "manual_computation") == 0) return manual(p, op);
  if (strcmp(name, "mesh") == 0) {
    const at_mattr *sym = at_mop_attr(op, "sym_name");
    const at_mattr *mesh = at_mop_attr(op, "mesh");
    if (!plain(op, 0, 0) || !is(mesh, "sdy.mesh") || !sym ||
        sym->kind != AT_MATTR_STRING || sym->type)
      return false;
    at_strbuf_addz(b, "sdy.mesh ");
    at_mprint_symbol(b, sym->str);
    at_strbuf_addz(b, " = ");
    sdy(b, mesh);
    at_mprint_rest(p, op, "", " sym_name mesh ");
    return true;
  }
  if (strcmp(name, "sharding_constraint") == 0 ||
      strcmp(name, "reshard") == 0) {
    const at_mattr *s = at_mop_attr(op, "sharding");
    if (!plain(op, 1, 1) || !is(s, "sdy.sharding") ||
        !at_mtype_eq(op->operands[0]->type, op->results[0].type))
      return false;
    at_strbuf_addf(b, "%s ", op->name);
    at_mprint_value(p, op->operands[0]);
    at_strbuf_addc(b, ' ');
    sdy(b, s);
    at_mprint_rest(p, op, "", " sharding ");
    at_strbuf_addz(b, " : ");
    at_mtype_print(b, op->results[0].type);
    return true;
  }
  return false;
}

// ---- Convolution
static bool conv_side(at_strbuf *b, const at_mattr *a, uint32_t at, char batch,
                      char feature, uint32_t rank) {
  at_dims spatial = at_mattr_i64s(a->fields[at + 2].value);
  at_strbuf_addc(b, '[');
  for (uint32_t i = 0; i < rank; i++) {
    if (i) at_strbuf_addz(b, ", ");
    if (a->fields[at].value->i == i) {
      at_strbuf_addc(b, batch);
      continue;
    }
    if (a->fields[at + 1].value->i == i) {
      at_strbuf_addc(b, feature);
      continue;
    }
    uint32_t k = 0;
    while (k < spatial.rank && spatial.ptr[k] != i) k++;
    if (k == spatial.rank)
      at_strbuf_addc(b, '?');
    else
      at_strbuf_addf(b, "%u", k);
  }
  at_strbuf_addc(b, ']');
  return true;
}

// One more than the largest dimension that is named.
static uint32_t conv_rank(const at_mattr *a, uint32_t at) {
  at_dims s = at_mattr_i64s(a->fields[at + 2].value);
  int64_t top = AT_MAX(a->fields[at].value->i, a->fields[at + 1].value->i);
  for (uint32_t i = 0; i < s.rank; i++) top = AT_MAX(top, s.ptr[i]);
  return (uint32_t)top + 1;
}

// Every dimension has one place below 64.
bool at_mconv_valid(const at_mattr *a) {
  for (uint32_t at = 0; at < 9; at += 3) {
    at_dims s = at_mattr_i64s(a->fields[at + 2].value);
    uint64_t seen = 0;
    for (uint32_t i = 0; i < s.rank + 2; i++) {
      int64_t d = i < s.rank ? s.ptr[i] : a->fields[at + i - s.rank].value->i;
      if (d < 0 || d > 63 || seen >> d & 1 || s.rank > 61) return false;
      seen |= 1ull << d;
    }
  }
  return true;
}

// Three sides: input, kernel, output.
void at_mprint_conv(at_strbuf *b, const at_mattr *a) {
  conv_side(b, a, 0, 'b', 'f', conv_rank(a, 0));
  at_strbuf_addc(b, 'x');
  conv_side(b, a, 3, 'i', 'o', conv_rank(a, 3));
  at_strbuf_addz(b, "->");
  conv_side(b, a, 6, 'b', 'f', conv_rank(a, 6));
}

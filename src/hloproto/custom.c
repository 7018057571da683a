// custom-call: hlo's op of that name, with what XLA keeps beside it. Which
// targets there are is for the passes and the runtime to say.
#include "hloproto/hloproto_internal.h"

typedef AT_VEC(at_dims) dims_vec;

// Groups of two: [result, operand], both counted after tuples are flattened.
static at_status alias_read(at_hp *x, const at_hp_inst *i, at_bytes b,
                            dims_vec *out) {
  at_dims to, from;
  int64_t operand = at_proto_int(b, 2);
  uint32_t first_in = 0, first_out, path_in, n_in, n_out;
  const at_hp_inst *o;
  AT_TRY(at_proto_list(b, 1, "output_shape_index", x->a, &to));
  AT_TRY(at_proto_list(b, 3, "operand_shape_index", x->a, &from));
  if (operand < 0 || operand >= i->operands.rank)
    return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT, "an alias names no operand");
  for (uint32_t k = 0; k < operand; k++) {
    AT_TRY(at_hp_operand_inst(x, i, k, &o));
    first_in += o->shape.num_leaves;
  }
  AT_TRY(at_hp_operand_inst(x, i, (uint32_t)operand, &o));
  if (!at_hp_shape_range(at_proto_bytes(o->body, 3), from, &path_in, &n_in) ||
      !at_hp_shape_range(at_proto_bytes(i->body, 3), to, &first_out, &n_out) ||
      n_in != n_out)
    return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT,
                      "an alias names no operand or no result");
  for (uint32_t k = 0; k < n_in; k++) {
    int64_t *pair;
    AT_TRY_ALLOC(pair, at_new(x->a, int64_t, 2));
    pair[0] = first_out + k;
    pair[1] = first_in + path_in + k;
    if (!at_vec_push(x->a, out, ((at_dims){pair, 2})))
      return AT_NO_MEMORY("aliases");
  }
  return AT_OK;
}

// No alias: no attribute.
static at_status aliases_read(at_hp *x, const at_hp_inst *i, at_hp_attrs *out) {
  dims_vec pairs = {0};
  at_bytes b = i->body;
  for (at_proto_field f; at_proto_next(&b, &f);)
    if (f.number == 74) AT_TRY(alias_read(x, i, f.bytes, &pairs));
  if (pairs.len == 0) return AT_OK;
  at_attr a = {.id = AT_ATTR_OUTPUT_OPERAND_ALIASES};
  a.groups.list = pairs.ptr;
  a.groups.n = (uint32_t)pairs.len;
  return at_hp_attr_put(x, out, a);
}

// An empty list stands for no attribute.
static at_status put_layouts(at_hp *x, at_attr_id id, const dims_vec *list,
                             at_hp_attrs *out) {
  at_attr a = {.id = id};
  a.groups.list = list->ptr;
  a.groups.n = (uint32_t)list->len;
  return list->len ? at_hp_attr_put(x, out, a) : AT_OK;
}

// The layouts of a shape's leaves.
static at_status add_layouts(at_hp *x, const at_hp_shape *s, dims_vec *out) {
  for (uint32_t k = 0; k < s->num_leaves; k++)
    if (!at_vec_push(x->a, out, s->leaves[k].layout))
      return AT_NO_MEMORY("layouts");
  return AT_OK;
}

// One minor-to-major list per operand and result, where the call insists.
static at_status layouts_read(at_hp *x, const at_hp_inst *i, at_hp_attrs *out) {
  if (!at_proto_uint(i->body, 56)) return AT_OK;
  dims_vec operands = {0}, results = {0};
  at_bytes b = i->body;
  for (at_proto_field f; at_proto_next(&b, &f);) {
    if (f.number != 57) continue;
    at_hp_shape s;
    AT_TRY(at_hp_shape_read(x->a, f.bytes, &s));
    AT_TRY(add_layouts(x, &s, &operands));
  }
  AT_TRY(add_layouts(x, &i->shape, &results));
  AT_TRY(put_layouts(x, AT_ATTR_OPERAND_LAYOUTS, &operands, out));
  return put_layouts(x, AT_ATTR_RESULT_LAYOUTS, &results, out);
}

// The configuration stands in the instruction, or in the module's table.
static at_status config_read(at_hp *x, const at_hp_inst *i, at_hp_attrs *out) {
  at_bytes b = at_proto_bytes(i->body, 43),
           payload = at_proto_bytes(i->body, 99);
  at_proto_field f;
  if (at_proto_find(payload, 1, &f)) {
    b = f.bytes;
  } else if (at_proto_find(payload, 2, &f)) {
    if (f.value >= x->payloads.len)
      return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT,
                        "its configuration is number %llu of %zu",
                        (unsigned long long)f.value, x->payloads.len);
    b = x->payloads.ptr[f.value];
  }
  at_attr a = {.id = AT_ATTR_BACKEND_CONFIG};
  char *z;
  AT_TRY_ALLOC(z, at_arena_str(x->a, (at_str){(const char *)b.ptr, b.len}));
  a.s = (at_str){z, b.len};
  return at_hp_attr_put(x, out, a);
}

// Shardy's markers and XLA's private calls first; every other one is a
// CUSTOM_CALL with all that the instruction says.
AT_HP_HOW(custom_call) {
  at_str target = at_proto_str(i->body, 28);
  at_hp_vals v;
  at_node *n;
  if (target.len == 0)
    return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT, "has no target");
  // "__onednn$matmul", "__cublas$gemm": XLA's compilers speak to themselves.
  if (at_str_starts(target, "__"))
    return AT_HP_FAIL(x, i, AT_UNIMPLEMENTED,
                      "custom call `%.*s` is private to the backend that "
                      "compiled this program\n"
                      "hint: pass the program as it was before that",
                      (int)AT_MIN(target.len, 200u), target.ptr);
  // Says how a result is cut, which the entry's reader takes from who uses it.
  if (at_str_is(target, "xla.sdy.FuncResultSharding") ||
      at_str_is(target, "xla.sdy.LocalToGlobalShape"))
    return at_hp_how_all_operands(x, i);
  if (at_str_is(target, "xla.sdy.GlobalToLocalShape")) {
    AT_TRY(at_hp_operands(x, i, 0, &v));
    return at_hp_define_future(x, i, v.v, v.n);
  }
  AT_TRY(at_hp_operands(x, i, 0, &v));
  at_hp_node d = {
      .op = AT_OP_CUSTOM_CALL, .operands = v.v, .num_operands = v.n};
  char *z;
  AT_TRY_ALLOC(z, at_arena_str(x->a, target));
  int64_t api = at_proto_int(i->body, 77);
  const at_attr attrs[] = {
      {.id = AT_ATTR_CALL_TARGET_NAME, .s = {z, target.len}},
      {.id = AT_ATTR_HAS_SIDE_EFFECT, .i = at_proto_uint(i->body, 65) != 0},
      {.id = AT_ATTR_API_VERSION, .i = api ? api : 1}};
  for (size_t k = 0; k < AT_LEN(attrs); k++)
    AT_TRY(at_hp_attr_put(x, &d.attrs, attrs[k]));
  AT_TRY(config_read(x, i, &d.attrs));
  AT_TRY(aliases_read(x, i, &d.attrs));
  AT_TRY(layouts_read(x, i, &d.attrs));
  AT_TRY_ALLOC(d.regions, at_new(x->a, at_comp *, (size_t)i->called.rank + 1));
  for (; d.num_regions < i->called.rank; d.num_regions++)
    AT_TRY(at_hp_region(x, i, d.num_regions, NULL, &d.regions[d.num_regions]));
  AT_TRY(at_hp_build(x, i, &d, &n));
  return at_hp_define_node(x, i, n);
}

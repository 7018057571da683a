// Shardy: meshes and shardings stay as text for who partitions; what only
// matters to more than one device is looked through where the mesh has one.
#include "import/import_internal.h"

// Remembers the mesh by name and appends it to the module's text, which is what
// the sharding passes read.
at_status at_imp_mesh(at_imp *x, const at_mop *op) {
  at_str name;
  AT_TRY(at_imp_str(x, op, "sym_name", &name));
  const at_mattr *mesh = at_mop_attr(op, "mesh");
  if (name.len == 0 || !mesh)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT, "needs a name and a mesh");
  void **slot;
  AT_TRY_ALLOC(slot, at_map_put(&x->meshes, name));
  if (*slot)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                      "mesh `%.200s` is defined twice", name.ptr);
  *slot = (void *)mesh;
  const char *text;
  AT_TRY(at_imp_text(x, mesh, &text));
  // One mesh a line: "@name = #sdy.mesh<[...]>".
  const char *before = x->m->mesh_text;
  AT_TRY_ALLOC(x->m->mesh_text,
               at_arena_printf(x->a, "%s%s@%s = %s", before ? before : "",
                               before ? "\n" : "", name.ptr, text));
  return AT_OK;
}

// Devices of a mesh: the product of its axes; 1 for a mesh of one device.
static int64_t mesh_size(const at_mattr *mesh) {
  const at_mattr *axes = at_mattr_field(mesh, "axes");
  int64_t n = 1, size;
  if (!axes || axes->kind != AT_MATTR_ARRAY) return 1;
  for (uint32_t i = 0; i < axes->num_elems; i++) {
    const at_mattr *t = at_mattr_field(axes->elems[i], "size");
    if (!t || !at_mattr_int(t, &size)) return INT64_MAX;
    if (size < 1 || __builtin_mul_overflow(n, size, &n)) return INT64_MAX;
  }
  return n;
}

// The largest mesh that `t` speaks of.
static at_status sharding_devices(at_imp *x, const at_mop *op,
                                  const at_mattr *t, int64_t *out) {
  const at_mattr *list = at_mattr_field(t, "shardings");
  if (list && list->kind == AT_MATTR_ARRAY) {
    for (uint32_t i = 0; i < list->num_elems; i++)
      AT_TRY(sharding_devices(x, op, list->elems[i], out));
    return AT_OK;
  }
  const at_mattr *mesh = at_mattr_field(t, "mesh_or_ref");
  if (!mesh) return AT_OK;
  if (mesh->kind == AT_MATTR_SYMBOL || mesh->kind == AT_MATTR_STRING) {
    void **slot = at_map_find(&x->meshes, mesh->str);
    if (!slot)
      return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT, "no mesh `%.*s`",
                        (int)AT_MIN(mesh->str.len, 100),
                        mesh->str.ptr ? mesh->str.ptr : "");
    mesh = (const at_mattr *)*slot;
  }
  *out = AT_MAX(*out, mesh_size(mesh));
  return AT_OK;
}

// Devices that the op's shardings speak of.
static at_status op_devices(at_imp *x, const at_mop *op, int64_t *out) {
  *out = 1;
  bool any = false;
  for (uint32_t i = 0; i < op->num_attrs; i++) {
    const at_mattr *t = op->attrs[i].value;
    if (t->kind != AT_MATTR_DIALECT ||
        !at_str_starts(at_str_of(t->name), "sdy.sharding"))
      continue;
    AT_TRY(sharding_devices(x, op, t, out));
    any = true;
  }
  // No sharding of its own: whatever meshes the module has.
  for (size_t i = 0; !any && i < x->meshes.len; i++)
    *out =
        AT_MAX(*out, mesh_size((const at_mattr *)x->meshes.entries[i].value));
  return AT_OK;
}

// A custom call that only tells who partitions something.
static at_status marker_call(at_imp *x, const at_mop *op, const char *target,
                             const at_value *v, const at_types *t,
                             const char *config, const at_attr *more) {
  static const at_type none;
  at_imp_node d = {.op = AT_OP_CUSTOM_CALL,
                   .operands = v,
                   .num_operands = 1,
                   .types = t->n ? t->t : &none,
                   .num_types = t->n};
  const at_attr attrs[] = {
      {.id = AT_ATTR_CALL_TARGET_NAME, .s = at_str_of(target)},
      {.id = AT_ATTR_HAS_SIDE_EFFECT, .i = t->n == 0},
      {.id = AT_ATTR_BACKEND_CONFIG, .s = at_str_of(config)},
      {.id = AT_ATTR_API_VERSION, .i = 1}};
  for (size_t i = 0; i < AT_LEN(attrs); i++)
    AT_TRY(at_imp_attr_put(x, &d.attrs, attrs[i]));
  if (more) AT_TRY(at_imp_attr_put(x, &d.attrs, *more));
  at_node *n;
  AT_TRY(at_imp_build(x, op, &d, &n));
  return at_imp_define_node(x, op, n);
}

// Kept as the custom call that XLA knows, for who partitions; over one device,
// the value itself.
AT_IMP_HOW(sdy_sharding_constraint) {
  int64_t devices;
  AT_TRY(at_imp_need(x, op, 1, 1));
  AT_TRY(op_devices(x, op, &devices));
  if (devices == 1) return at_imp_how_identity(x, op, row);
  at_value v;
  at_types t;
  const char *text;
  AT_TRY(at_imp_single(x, op, 0, &v));
  AT_TRY(at_imp_result_types(x, op, &t));
  const at_mattr *sharding = at_mop_attr(op, "sharding");
  if (!sharding) sharding = at_mop_attr(op, "out_sharding");
  if (!sharding)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT, "has no sharding");
  AT_TRY(at_imp_text(x, sharding, &text));
  const at_attr sharded = {.id = AT_ATTR_SHARDING, .s = at_str_of(text)};
  return marker_call(x, op, "Sharding", &v, &t, "", &sharded);
}

// Values of one group are cut alike.
AT_IMP_HOW(sdy_sharding_group) {
  at_value v;
  int64_t group;
  AT_TRY(at_imp_need(x, op, 1, 0));
  AT_TRY(at_imp_single(x, op, 0, &v));
  AT_TRY(at_imp_int(x, op, "group_id", 0, &group));
  const char *id;
  AT_TRY_ALLOC(id, at_arena_printf(x->a, "%lld", (long long)group));
  return marker_call(x, op, "xla.sdy.ShardingGroup", &v, &(at_types){0}, id,
                     NULL);
}

// Between shardings the value is the same, but for the partial sums that some
// of these ops make or combine.
AT_IMP_HOW(sdy_reshard) {
  int64_t devices;
  AT_TRY(op_devices(x, op, &devices));
  bool sums = at_mop_attr(op, "reduction_axes") || at_mop_attr(op, "axes") ||
              at_mop_attr(op, "reduce_scatter_axes");
  if (devices != 1 && sums)
    return AT_OP_FAIL(x, op, AT_UNIMPLEMENTED,
                      "unreduced values over %lld devices are not supported",
                      (long long)devices);
  return at_imp_how_sdy_sharding_constraint(x, op, row);
}

// Over several devices the body stays a region, for who partitions; shardings
// and axes stay as text.
static at_status manual_node(at_imp *x, const at_mop *op) {
  static const struct {
    const char *name;
    at_attr_id id;
  } texts[] = {{"in_shardings", AT_ATTR_IN_SHARDINGS},
               {"out_shardings", AT_ATTR_OUT_SHARDINGS},
               {"manual_axes", AT_ATTR_MANUAL_AXES}};
  if (op->num_regions != 1)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT, "takes one body");
  at_vals operands;
  at_types t;
  at_comp *body;
  at_node *n;
  AT_TRY(at_imp_operands(x, op, &operands));
  AT_TRY(at_imp_result_types(x, op, &t));
  AT_TRY(at_imp_region(x, op, 0, &body));
  at_imp_node d = {.op = AT_OP_MANUAL_COMPUTATION,
                   .operands = operands.v,
                   .num_operands = operands.n,
                   .regions = &body,
                   .num_regions = 1,
                   .types = t.t,
                   .num_types = t.n};
  for (size_t i = 0; i < AT_LEN(texts); i++) {
    const at_mattr *a = at_mop_attr(op, texts[i].name);
    const char *text = "";
    if (a) AT_TRY(at_imp_text(x, a, &text));
    AT_TRY(at_imp_attr_put(x, &d.attrs,
                           (at_attr){.id = texts[i].id, .s = at_str_of(text)}));
  }
  AT_TRY(at_imp_build(x, op, &d, &n));
  return at_imp_define_node(x, op, n);
}

// Over one device every shard is the whole, so the body can stand in place.
AT_IMP_HOW(sdy_manual_computation) {
  int64_t devices;
  AT_TRY(op_devices(x, op, &devices));
  if (devices != 1) return manual_node(x, op);
  return at_imp_inline(x, op);
}

// Only gives a part of the program a name; the body stands in place.
AT_IMP_HOW(sdy_named_computation) { return at_imp_inline(x, op); }

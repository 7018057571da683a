// What JAX attaches to the arguments and results of `main`.
#include "import/import_internal.h"

// Leaves *out as it was when the key is absent, so that later keys override
// earlier ones.
static at_status dict_text(at_imp *x, const at_mattr *d, const char *key,
                           const char **out) {
  const at_mattr *t = at_mattr_field(d, key);
  return t ? at_imp_text(x, t, out) : AT_OK;
}

// What JAX says about one argument or result. The sharding that is read last
// wins: mhlo.sharding over sdy.sharding over the copy in the frontend
// attributes.
static at_status info_read(at_imp *x, const at_mop *func, const at_mattr *d,
                           at_io_info *out) {
  const at_mattr *alias = at_mattr_field(d, "tf.aliasing_output");
  int64_t i;
  if (alias) {
    if (!at_mattr_int(alias, &i) || i < 0 || i >= x->m->entry->num_results)
      return AT_OP_FAIL(x, func, AT_INVALID_ARGUMENT,
                        "tf.aliasing_output names no result");
    out->alias = (int32_t)i;
  }
  const at_mattr *donor = at_mattr_field(d, "jax.buffer_donor");
  out->donor = donor && (donor->kind == AT_MATTR_UNIT || donor->i != 0);
  const at_mattr *front = at_mattr_field(d, "mhlo.frontend_attributes");
  if (front) AT_TRY(dict_text(x, front, "xla.sdy.sharding", &out->sharding));
  AT_TRY(dict_text(x, d, "sdy.sharding", &out->sharding));
  AT_TRY(dict_text(x, d, "mhlo.sharding", &out->sharding));
  AT_TRY(dict_text(x, d, "mhlo.layout_mode", &out->layout));
  AT_TRY(dict_text(x, d, "mhlo.memory_kind", &out->memory_kind));
  AT_TRY(dict_text(x, d, "jax.result_info", &out->name));
  return AT_OK;
}

// One entry per leaf: a tuple's leaves share what is said about the tuple.
static at_status infos_read(at_imp *x, const at_mop *func, const char *attr,
                            const at_mtype *const *types, uint32_t count,
                            uint32_t leaves, at_io_info **out) {
  at_io_info *infos;
  AT_TRY_ALLOC(infos, at_new(x->a, at_io_info, (size_t)leaves + 1));
  for (uint32_t i = 0; i < leaves; i++) infos[i].alias = -1;
  *out = infos;
  const at_mattr *list = at_mop_attr(func, attr);
  if (!list || list->kind != AT_MATTR_ARRAY) return AT_OK;
  uint32_t at = 0;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t n = at_imp_leaves(x, types[i]);
    if (i < list->num_elems && list->elems[i]->kind == AT_MATTR_DICT)
      for (uint32_t k = at; k < at + n && k < leaves; k++)
        AT_TRY(info_read(x, func, list->elems[i], &infos[k]));
    at += n;
  }
  AT_ASSERT(at == leaves);
  return AT_OK;
}

// Arguments carry their name as location.
static void param_names(at_module *m) {
  for (uint32_t i = 0; i < m->entry->num_params; i++) {
    const at_loc *loc = m->entry->params[i]->loc;
    if (loc && loc->name && !m->params[i].name) m->params[i].name = loc->name;
  }
}

// Called when the entry's body is imported: counts come from its parameters and
// results.
at_status at_imp_entry_info(at_imp *x, const at_mop *func) {
  const at_mtype *t;
  at_module *m = x->m;
  AT_TRY(at_imp_func_type(x, func, &t));
  AT_TRY(infos_read(x, func, "arg_attrs", t->types, t->num_types,
                    m->entry->num_params, &m->params));
  AT_TRY(infos_read(x, func, "res_attrs", t->results, t->num_results,
                    m->entry->num_results, &m->results));
  param_names(m);
  return AT_OK;
}

// Of replicas, and of partitions; CompileOptions have the same bound
// (request.c).
enum { MAX_DEVICES = 1 << 20 };

// Exported programs carry Shardy's meshes as text.
at_status at_imp_module_info(at_imp *x, const at_mop *module) {
  at_module *m = x->m;
  AT_TRY(at_imp_int(x, module, "mhlo.num_partitions", 1, &m->num_partitions));
  AT_TRY(at_imp_int(x, module, "mhlo.num_replicas", 1, &m->num_replicas));
  if (m->num_partitions < 1 || m->num_replicas < 1)
    return AT_OP_FAIL(x, module, AT_INVALID_ARGUMENT,
                      "needs at least one replica and one partition");
  // Tables over all devices are made of it.
  if (m->num_partitions > MAX_DEVICES || m->num_replicas > MAX_DEVICES)
    return AT_OP_FAIL(x, module, AT_INVALID_ARGUMENT,
                      "needs more than %d devices", MAX_DEVICES);
  const at_mattr *front = at_mop_attr(module, "mhlo.frontend_attributes");
  const char *meshes = NULL;
  if (front) AT_TRY(dict_text(x, front, "xla.sdy.meshes", &meshes));
  return meshes ? at_module_set_meshes(m, at_str_of(meshes)) : AT_OK;
}

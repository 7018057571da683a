// What the module says of its entry's parameters and results, and of devices.
#include "hloproto/hloproto_internal.h"

// HloModuleConfigProto: replica_count 4, num_partitions 5; else the module's
// device assignment (15). Absent counts stay 1, and at_hp_entry_read may raise
// them.
at_status at_hp_config_read(at_hp *x) {
  at_bytes devices = at_proto_bytes(x->proto, 15);
  int64_t replicas = at_proto_int(x->config, 4);
  int64_t partitions = at_proto_int(x->config, 5);
  if (!replicas) replicas = at_proto_int(devices, 1);
  if (!partitions) partitions = at_proto_int(devices, 2);
  if (replicas < 0 || partitions < 0 || replicas > AT_HP_MAX_DEVICES ||
      partitions > AT_HP_MAX_DEVICES)
    return AT_FAIL(AT_INVALID_ARGUMENT, "%lld replicas x %lld partitions",
                   (long long)replicas, (long long)partitions);
  if (replicas) x->m->num_replicas = replicas;
  if (partitions) x->m->num_partitions = partitions;
  at_attr front = {.id = AT_ATTR_FRONTEND_ATTRIBUTES};
  AT_TRY(at_hp_text_list(x, at_proto_bytes(x->proto, 19), &front));
  for (uint32_t k = 0; k < front.dict.n; k++)
    if (at_str_is(front.dict.kv[2 * k], "xla.sdy.meshes"))
      AT_TRY(at_module_set_meshes(x->m, front.dict.kv[2 * k + 1]));
  return AT_OK;
}

// n records that say nothing: no alias, no names.
static at_status infos_make(at_hp *x, uint32_t n, at_io_info **out) {
  AT_TRY_ALLOC(*out, at_new(x->a, at_io_info, (size_t)n + 1));
  for (uint32_t k = 0; k < n; k++) (*out)[k] = (at_io_info){.alias = -1};
  return AT_OK;
}

// Layouts other than row-major as "{minor,...,major}", and host memory as JAX
// names it. Row-major is the default and stays NULL.
static at_status layout_text(at_hp *x, const at_hp_leaf *l, at_io_info *out) {
  if (l->memory_space == AT_HP_HOST_MEMORY) out->memory_kind = "pinned_host";
  if (at_hp_is_row_major(l->layout)) return AT_OK;
  at_strbuf b = {0};
  for (uint32_t k = 0; k < l->layout.rank; k++)
    at_strbuf_addf(&b, "%c%lld", k ? ',' : '{', (long long)l->layout.ptr[k]);
  at_strbuf_addc(&b, '}');
  out->layout = at_strbuf_move(&b, x->a);
  return out->layout ? AT_OK : AT_NO_MEMORY("layouts");
}

// The layouts of the entry's signature, where it has them.
static at_status layouts_apply(at_hp *x, at_bytes signature) {
  uint32_t p = 0, n = x->m->entry->num_params, r = 0;
  for (at_proto_field f; at_proto_next(&signature, &f);) {
    if (f.number != 1 && f.number != 2) continue;
    at_hp_shape s;
    AT_TRY(at_hp_shape_read(x->a, f.bytes, &s));
    for (uint32_t k = 0; k < s.num_leaves; k++) {
      at_comp *e = x->m->entry;
      bool result = f.number == 2;
      uint32_t at = result ? r++ : p++;
      if (at >= (result ? e->num_results : n)) break;
      const at_type *t =
          result ? at_value_type(e->results[at]) : &e->params[at]->types[0];
      if (!at_type_eq(t, &s.leaves[k].type)) continue;
      AT_TRY(layout_text(x, &s.leaves[k],
                         result ? &x->m->results[at] : &x->m->params[at]));
    }
  }
  return AT_OK;
}

// The sharding of one leaf: OpSharding (field 40) over the text in the frontend
// attributes.
static at_status sharding_of(at_hp *x, const at_hp_inst *i, uint32_t leaf,
                             at_io_info *out) {
  at_attr front = {.id = AT_ATTR_FRONTEND_ATTRIBUTES};
  if (x->partitioned) return AT_OK;
  AT_TRY(at_hp_text_list(x, at_proto_bytes(i->body, 68), &front));
  for (uint32_t k = 0; k < front.dict.n; k++)
    if (at_str_is(front.dict.kv[2 * k], "xla.sdy.sharding"))
      out->sharding = front.dict.kv[2 * k + 1].ptr;
  if (!at_proto_has(i->body, 40)) return AT_OK;
  at_bytes own = at_hp_sharding_leaf(at_proto_bytes(i->body, 40), leaf);
  return at_hp_sharding_text(x, own, &out->sharding);
}

// first[p] becomes the index of parameter p's first leaf, first[num_params]
// their number.
static at_status params_read(at_hp *x, uint32_t *first) {
  const at_hp_comp *c = x->entry;
  uint32_t at = 0;
  for (uint32_t p = 0; p < c->num_params; p++) {
    const at_hp_inst *i = &c->insts[c->params[p]];
    first[p] = at;
    for (uint32_t k = 0; k < i->shape.num_leaves; k++, at++) {
      const at_loc *loc = x->m->entry->params[at]->loc;
      x->m->params[at].name = loc ? loc->name : NULL;
      AT_TRY(sharding_of(x, i, k, &x->m->params[at]));
    }
  }
  first[c->num_params] = at;
  AT_ASSERT(at == x->m->entry->num_params);
  return AT_OK;
}

// The root has the shardings of the results, or its operands have where it is
// a tuple. The shape of an operand that is a future may have more leaves than
// the values that it gives to the tuple: hence the bound.
static at_status results_read(at_hp *x, const at_hp_inst *root) {
  at_io_info *infos = x->m->results;
  bool own = at_proto_has(root->body, 40);
  if (own || root->row->how != at_hp_how_all_operands) {
    for (uint32_t k = 0; own && k < root->shape.num_leaves; k++)
      AT_TRY(sharding_of(x, root, k, &infos[k]));
    return AT_OK;
  }
  for (uint32_t o = 0, at = 0; o < root->operands.rank; o++) {
    const at_hp_inst *i;
    AT_TRY(at_hp_inst_by_id(x, x->entry, root, o, &i));
    bool states = at_proto_has(i->body, 40);
    for (uint32_t k = 0; k < i->shape.num_leaves; k++, at++)
      if (states && at < x->m->entry->num_results)
        AT_TRY(sharding_of(x, i, k, &infos[at]));
  }
  return AT_OK;
}

// The leaves that a parameter's number and path name.
static at_status param_range(at_hp *x, const uint32_t *first, int64_t number,
                             at_dims path, uint32_t *at, uint32_t *count) {
  const at_hp_comp *c = x->entry;
  if (number < 0 || number >= c->num_params ||
      !at_hp_shape_range(at_proto_bytes(c->insts[c->params[number]].body, 3),
                         path, at, count))
    return AT_FAIL(AT_INVALID_ARGUMENT, "an alias or donor is no parameter");
  *at += first[number];
  return AT_OK;
}

// HloInputOutputAliasProto (field 8) and HloBufferDonorProto (field 18). Ranges
// of leaves must match in number; an alias is kept with the parameter.
static at_status aliases_apply(at_hp *x, const uint32_t *first) {
  at_bytes b = at_proto_bytes(x->proto, 8);
  for (at_proto_field f; at_proto_next(&b, &f);) {
    at_dims to, from;
    uint32_t out, in, n_out, n_in;
    if (f.number != 1) continue;
    AT_TRY(at_proto_list(f.bytes, 1, "output_shape_index", x->a, &to));
    AT_TRY(at_proto_list(f.bytes, 3, "parameter_shape_index", x->a, &from));
    AT_TRY(param_range(x, first, at_proto_int(f.bytes, 2), from, &in, &n_in));
    at_bytes root = at_proto_bytes(x->entry->insts[x->entry->root].body, 3);
    if (!at_hp_shape_range(root, to, &out, &n_out) || n_in != n_out)
      return AT_FAIL(AT_INVALID_ARGUMENT, "an alias names no result");
    AT_ASSERT(in + n_in <= x->m->entry->num_params &&
              out + n_out <= x->m->entry->num_results);
    for (uint32_t k = 0; k < n_in; k++)
      x->m->params[in + k].alias = (int32_t)(out + k);
  }
  b = at_proto_bytes(x->proto, 18);
  for (at_proto_field f; at_proto_next(&b, &f);) {
    at_dims path;
    uint32_t in, n;
    if (f.number != 1) continue;
    AT_TRY(at_proto_list(f.bytes, 2, "parameter_shape_index", x->a, &path));
    AT_TRY(param_range(x, first, at_proto_int(f.bytes, 1), path, &in, &n));
    for (uint32_t k = 0; k < n; k++) x->m->params[in + k].donor = true;
  }
  return AT_OK;
}

// Runs when the entry's body is built: everything here is counted in its
// leaves.
at_status at_hp_entry_read(at_hp *x) {
  at_module *m = x->m;
  const at_hp_inst *root = &x->entry->insts[x->entry->root];
  uint32_t *first;
  // A future has other values than its shape says, and below, the root's leaves
  // count results.
  if (root->shape.num_leaves != m->entry->num_results)
    return AT_HP_FAIL(x, root, AT_INVALID_ARGUMENT,
                      "declares %u arrays and is the result, gives %u",
                      root->shape.num_leaves, m->entry->num_results);
  AT_TRY(infos_make(x, m->entry->num_params, &m->params));
  AT_TRY(infos_make(x, m->entry->num_results, &m->results));
  AT_TRY_ALLOC(first, at_new(x->a, uint32_t, (size_t)x->entry->num_params + 1));
  AT_TRY(params_read(x, first));
  AT_TRY(results_read(x, root));
  AT_TRY(aliases_apply(x, first));
  AT_TRY(layouts_apply(x, at_proto_bytes(x->proto, 4)));
  AT_TRY(layouts_apply(x, at_proto_bytes(x->config, 1)));
  if (m->num_replicas * m->num_partitions == 1)
    m->num_partitions = x->num_devices;
  return AT_OK;
}

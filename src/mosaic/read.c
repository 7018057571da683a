// From the bytes of a custom call to a described kernel.
#include "mosaic/mosaic_internal.h"

// A copy in the arena, dimensions too. NULL stays NULL.
static at_status copy_types(at_arena *a, const at_type **types, uint32_t n) {
  if (!*types) return AT_OK;
  at_type *p;
  AT_TRY_ALLOC(p, at_new(a, at_type, n + 1));
  for (uint32_t i = 0; i < n; i++)
    AT_TRY(
        at_type_make(a, (*types)[i].dtype, at_type_dims(&(*types)[i]), &p[i]));
  *types = p;
  return AT_OK;
}

// The kernel keeps types, aliases, values and name, not the payload nor the
// configuration's text. *name is set last.
static at_status copy_call(const at_mosaic_call *call, at_arena *a,
                           at_mosaic_call *own, const char **name) {
  *own = *call;
  own->payload = (at_bytes){0};
  own->config = (at_str){0};
  if (own->operands == NULL && call->num_operands == 0 && call->results)
    AT_TRY_ALLOC(own->operands, at_new(a, at_type, 1));
  AT_TRY(copy_types(a, &own->operands, call->num_operands));
  AT_TRY(copy_types(a, &own->results, call->num_results));
  if (call->values)
    AT_TRY_ALLOC(own->values,
                 at_arena_copy(a, call->values,
                               call->num_operands * sizeof *call->values, 8));
  for (uint32_t i = 0; i < call->num_aliases; i++)
    if (call->aliases[i].operand >= call->num_operands ||
        call->aliases[i].result >= call->num_results)
      return AT_FAIL(AT_INVALID_ARGUMENT, "alias %u leaves the call", i);
  if (call->num_aliases)
    AT_TRY_ALLOC(own->aliases,
                 at_arena_copy(a, call->aliases,
                               call->num_aliases * sizeof *call->aliases, 8));
  AT_TRY_ALLOC(*name, at_arena_str(a, call->name));
  own->name = at_str_of(*name);
  return AT_OK;
}

// The name of the first function that has a core: what to call the kernel until
// it is described.
static void find_name(at_mosaic_kernel *k) {
  const at_mop *m = k->module->op;
  for (uint32_t i = 0; m->num_regions && m->regions[0]->num_blocks &&
                       i < m->regions[0]->blocks[0]->num_ops;
       i++) {
    at_str s;
    if (!at_mosaic_attr_text(
            at_mop_attr(m->regions[0]->blocks[0]->ops[i], "sym_name"), &s))
      continue;
    const char *name = at_arena_str(k->arena, s);
    if (name) k->name = name;
    return;
  }
}

// The kernel as far as the call alone says it, and the bytes of its body. The
// configuration is complete here: nobody changes it later.
static at_status begin(const at_mosaic_call *call, at_arena *a,
                       const char **name, at_bytes *body,
                       at_mosaic_kernel **out) {
  at_mosaic_call own;
  struct at_mosaic_config config;
  AT_TRY(copy_call(call, a, &own, name));
  *body = call->payload;
  AT_TRY(at_mosaic_config_read(call->config, a, &config,
                               call->payload.len ? NULL : body));
  if (config.serialization_format > 1)
    return AT_FAIL(AT_UNIMPLEMENTED, "serialization_format %lld",
                   (long long)config.serialization_format);
  if (!body->len)
    return AT_FAIL(AT_INVALID_ARGUMENT, "there is no body in backend_config");
  const at_mosaic_kernel k = {
      .arena = a, .name = *name, .call = own, .config = config};
  AT_TRY_ALLOC(*out,
               at_arena_copy(a, &k, sizeof k, _Alignof(at_mosaic_kernel)));
  return AT_OK;
}

// The steps in the README's order. k->name is set as early as possible, for
// messages.
static at_status read_kernel(at_bytes body, at_arena *a, at_mosaic_kernel *k) {
  AT_TRY(at_mlir_read(body, false, a, &k->module));
  if (!*k->name) find_name(k);
  AT_TRY(at_mosaic_put_locations(k));
  for (uint32_t i = 0; i < k->module->op->num_attrs; i++)
    k->symbolic |= !strncmp(k->module->op->attrs[i].name,
                            "tpu.dynamic_dimension_mapping", 29);
  if (k->symbolic) AT_TRY(at_mosaic_fill_sizes(k));
  AT_TRY(at_mosaic_upgrade(k));
  at_mosaic_fold(k);
  AT_TRY(at_mosaic_drop_dead_loads(k));
  AT_TRY(at_mosaic_verify(k));
  return at_mosaic_describe(k);
}

// Every message begins with the kernel's name.
at_status at_mosaic_read(const at_mosaic_call *call, at_arena *a,
                         at_mosaic_kernel **out) {
  const char *name = "";
  at_bytes body;
  at_mosaic_kernel *k = NULL;
  at_status s = begin(call, a, &name, &body, &k);
  if (at_ok(s)) s = read_kernel(body, a, k);
  if (at_ok(s)) {
    *out = k;
    return s;
  }
  if (!strncmp(at_status_message(s), "kernel ", 7)) return s;
  if (k) name = k->name;
  return at_status_prefix(s, "kernel %s", *name ? name : "(unnamed)");
}

// Bodies of reductions as kernels of their own, for collectives.
#include "passes/passes_internal.h"

// region: (left, right) -> body, elementwise; *fits: it is.
static at_status vector_region(at_module *m, const at_comp *body, at_type t,
                               at_comp **out, bool *fits) {
  at_value args[2], v;
  at_dtype inner = body->params[0]->types[0].dtype;
  at_node *end;
  AT_TRY(at_region_create(m, out));
  for (int i = 0; i < 2; i++) AT_TRY(at_build_param(*out, t, NULL, &args[i]));
  at_type token = {.dtype = AT_TOKEN};
  at_node_desc d = {.op = AT_OP_CREATE_TOKEN, .types = &token, .num_types = 1};
  AT_TRY(at_build(*out, NULL, &d, &end));  // what builders build before
  for (int i = 0; i < 2; i++)
    AT_TRY(at_mk_convert(end, args[i], inner, &args[i]));
  AT_TRY(at_mk_mapped(end, body, args, at_type_dims(&t), &v));
  *fits = v.node != NULL;
  if (!*fits) return AT_OK;
  AT_TRY(at_mk_convert(end, v, t.dtype, &v));
  at_node_remove(end);
  return at_comp_return(*out, &v, 1);
}

// Does the body read a value from outside?
static bool captures(const at_comp *body) {
  AT_FOR_NODES(n, body)
  for (uint32_t i = 0; i < n->num_operands; i++)
    if (n->operands[i].node->parent != body) return true;
  return body->results[0].node->parent != body;
}

// The module that holds the FUSION lives in `a`, too.
at_status at_reduction_kernel(const at_comp *body, at_dtype t, int64_t n,
                              at_arena *a, at_node **out) {
  *out = NULL;
  if (body->num_params != 2 || body->num_results != 1 || captures(body))
    return AT_OK;
  at_module *m;
  at_comp *main, *region;
  at_type type;
  at_value args[2];
  bool fits;
  AT_TRY(at_module_create(a, AT_STR("reduction"), &m));
  AT_TRY(at_comp_create(m, AT_STR("main"), NULL, &main));
  AT_TRY(at_type_make(a, t, (at_dims){&n, 1}, &type));
  AT_TRY(vector_region(m, body, type, &region, &fits));
  if (!fits) return AT_OK;
  for (int i = 0; i < 2; i++)
    AT_TRY(at_build_param(main, type, NULL, &args[i]));
  at_attr kind = at_attr_int(AT_ATTR_KIND, AT_FUSION_LOOP);
  at_node_desc d = {.op = AT_OP_FUSION,
                    .operands = args,
                    .num_operands = 2,
                    .attrs = &kind,
                    .num_attrs = 1,
                    .regions = &region,
                    .num_regions = 1,
                    .types = &type,
                    .num_types = 1};
  AT_TRY(at_build(main, NULL, &d, out));
  at_value v = {*out, 0};
  return at_comp_return(main, &v, 1);
}

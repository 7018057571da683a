// A program as a list of steps, by the memory plan's slots: generated kernels,
// library kernels, collectives, control flow, calls of the host. First each
// node is given the code that computes it (at_steps_choose, which refuses what
// nothing computes); after the memory plan the nodes of each region are emitted
// in order (emit_node). Regions come before the step that owns them in the
// list, which names them as ranges.
//
// Silent nodes (parameters, constants, views, tokens) have slots and no step.
#include "compile/steps.h"

#include "compile/collective.h"
#include "compile/core.h"
#include "compile/native.h"
#include "compile/runtime_ops.h"
#include "compile/sparse.h"

typedef AT_VEC(at_xstep) step_list;

bool at_steps_is_silent(const at_node *n) {
  switch (n->op) {
    case AT_OP_PARAMETER:
    case AT_OP_CONSTANT:
    case AT_OP_CREATE_TOKEN:
    case AT_OP_AFTER_ALL:
      return true;
    default:
      return at_plan_is_view(n);
  }
}

// ---- Choosing
static at_status refuse(const at_node *n, const char *why) {
  at_strbuf b = {0};
  at_node_describe(&b, n);
  at_status st = AT_FAIL(AT_UNIMPLEMENTED, "%s: %s",
                         b.ptr ? b.ptr : at_op_text(n->op), why);
  at_strbuf_free(&b);
  return st;
}

// The runtime does these without a kernel of the table or generated code.
static bool is_hosted(const at_node *n) {
  return n->op == AT_OP_SEND || n->op == AT_OP_RECV ||
         n->op == AT_OP_CUSTOM_CALL || at_core_is_kernel(n);
}

// Fills *out with a choice for every node that has a step of its own.
static at_status choose(const at_comp *c, at_arena *a, at_map *out) {
  AT_FOR_NODES(n, c) {
    if (at_steps_is_silent(n)) continue;
    if (at_has_steps(n)) {
      for (uint32_t r = 0; r < n->num_regions; r++)
        AT_TRY(choose(n->regions[r], a, out));
      continue;
    }
    if (at_is_collective_step(n)) continue;
    if (n->op == AT_OP_INFEED || n->op == AT_OP_OUTFEED)
      return refuse(n, "no infeed or outfeed is connected to this device");
    at_rt_choice *k;
    AT_TRY_ALLOC(k, at_new(a, at_rt_choice, 1));
    AT_TRY(at_rt_choose(n, a, k));
    if (k->id == AT_RT_COUNT && !is_hosted(n) && !at_cg_supports(n))
      return refuse(n, "no kernel for this op and these element types");
    void **at;
    AT_TRY_ALLOC(at, at_map_put_ptr(out, n));
    *at = k;
  }
  return AT_OK;
}

// *out lives in `a`.
at_status at_steps_choose(const at_module *m, at_arena *a, at_map *out) {
  *out = at_map_in(a);
  return choose(m->entry, a, out);
}

const at_rt_choice *at_steps_choice(const at_map *m, const at_node *n) {
  void **at = at_map_find_ptr(m, n);
  return at ? *at : NULL;
}

// Generated kernels say themselves; runtime kernels share with no operand.
// Asked for every pair of a result and an operand, so that it may not walk a
// region: a node without a kernel of the table has a choice only where its code
// can be generated.
bool at_steps_can_alias(const at_map *choices, const at_node *n,
                        uint32_t result, uint32_t operand) {
  if (at_core_is_kernel(n)) return at_core_can_alias(n, result, operand);
  if (at_sparse_is_call(n)) return at_sparse_can_alias(n, result, operand);
  const at_rt_choice *k = at_steps_choice(choices, n);
  return k && k->id == AT_RT_COUNT && !is_hosted(n) &&
         at_cg_can_alias(n, result, operand);
}

// ---- Constants
// Large splats of one computation.
typedef struct splats {
  at_comp *comp;
  at_map copies;  // constant -> its copy, or itself while there is none
} splats;

// *v, if it is one of them, becomes its copy. The copy stands before the first
// reader (NULL: the results), so that it is not alive for long.
static at_status redirect(splats *s, at_node *reader, at_value *v) {
  void **at = at_map_find_ptr(&s->copies, v->node);
  at_value copy;
  if (!at) return AT_OK;
  if (*at == v->node) {
    AT_TRY(at_build_op(s->comp, reader, AT_OP_COPY, v, 1, v->node->loc, &copy));
    *at = copy.node;
  }
  v->node = *at;
  return AT_OK;
}

// What n reads, and what is read inside of it, for `reader`.
static at_status redirect_node(splats *s, at_node *reader, at_node *n) {
  for (uint32_t i = 0; i < n->num_operands; i++)
    AT_TRY(redirect(s, reader, &n->operands[i]));
  for (uint32_t r = 0; r < n->num_regions; r++) {
    at_comp *c = n->regions[r];
    AT_FOR_NODES(k, c) AT_TRY(redirect_node(s, reader, k));
    for (uint32_t i = 0; i < c->num_results; i++)
      AT_TRY(redirect(s, reader, &c->results[i]));
  }
  return AT_OK;
}

// Copies, for whoever reads them, of the large splats of c; then of what is in
// it.
static at_status fill_splats(at_comp *c, at_arena *a) {
  splats s = {c, at_map_in(a)};
  AT_FOR_NODES(n, c) {
    const at_literal *l = at_node_literal(n);
    void **at;
    if (!l || !l->splat || at_type_bytes(&l->type) <= AT_LARGE_SPLAT_BYTES)
      continue;
    AT_TRY_ALLOC(at, at_map_put_ptr(&s.copies, n));
    *at = n;
  }
  for (at_node *n = c->first; n && s.copies.len; n = n->next)
    AT_TRY(redirect_node(&s, n, n));
  for (uint32_t i = 0; i < c->num_results && s.copies.len; i++)
    AT_TRY(redirect(&s, NULL, &c->results[i]));
  AT_FOR_NODES(n, c)
  for (uint32_t r = 0; at_has_steps(n) && r < n->num_regions; r++)
    AT_TRY(fill_splats(n->regions[r], a));
  return AT_OK;
}

at_status at_steps_fill_splats(at_module *m) {
  return fill_splats(m->entry, m->arena);
}

// Gives constants their offsets and writes them, each at a multiple of 64
// bytes.
static at_status place_constants(at_emit_steps *e, const at_comp *c,
                                 at_xslot *slots) {
  AT_FOR_NODES(n, c) {
    if (at_has_steps(n))
      for (uint32_t r = 0; r < n->num_regions; r++)
        AT_TRY(place_constants(e, n->regions[r], slots));
    const at_literal *l = at_node_literal(n);
    if (!l) continue;
    at_xslot *s = &slots[at_plan_slot(e->plan, (at_value){n, 0})];
    if (s->kind != AT_SLOT_CONST) continue;
    AT_TRY(at_writer_align(e->w, AT_XS_CONSTANTS, 64));
    s->offset = e->w->sections[AT_XS_CONSTANTS].len;
    if (!l->splat) {
      AT_TRY(at_writer_append(e->w, AT_XS_CONSTANTS, l->data, l->bytes, NULL));
      continue;
    }
    // A large one is read by FILL alone, which carries the element itself.
    size_t elem = at_dtype_bytes(l->type.dtype);
    uint64_t count = s->bytes > AT_LARGE_SPLAT_BYTES ? 1 : s->bytes / elem;
    for (uint64_t i = 0; i < count; i++)
      AT_TRY(at_writer_append(e->w, AT_XS_CONSTANTS, l->data, elem, NULL));
    s->bytes = count * elem;
  }
  return AT_OK;
}

// ---- Steps
static at_status describe(at_emit_steps *e, const at_node *n, at_xstep *s) {
  const at_loc *l = at_loc_source(n->loc);
  if (n->loc && n->loc->name)
    AT_TRY(at_writer_string(e->w, at_str_of(n->loc->name), &s->op_name));
  if (l && l->file)
    AT_TRY(at_writer_string(e->w, at_str_of(l->file), &s->file));
  s->line = l ? l->line : 0;
  s->place = AT_NO_PLACE;
  if (e->places)
    at_places_find(e->places, n->loc ? n->loc->origin : NULL, &s->place);
  at_strbuf b = {0};
  at_strbuf_addf(&b, "%s.%u", at_op_text(n->op), n->id);
  if (n->op == AT_OP_FUSION && n->num_regions) {
    int shown = 0;
    AT_FOR_NODES(k, n->regions[0]) {
      if (k->op == AT_OP_PARAMETER || k->op == AT_OP_CONSTANT || shown == 6)
        continue;
      at_strbuf_addf(&b, "%c%s", shown++ ? ',' : ' ', at_op_text(k->op));
    }
  } else if (n->op == AT_OP_CUSTOM_CALL) {
    at_strbuf_addc(&b, ' ');
    at_strbuf_add(&b, at_node_str(n, AT_ATTR_CALL_TARGET_NAME));
  }
  at_status st = at_strbuf_status(&b);
  if (!st.err) st = at_writer_string(e->w, at_strbuf_str(&b), &s->hlo);
  at_strbuf_free(&b);
  return st;
}

// Appends a slot to the step's arguments.
static at_status push_arg(at_emit_steps *e, at_xstep *s, uint32_t v) {
  uint32_t at;
  AT_TRY(at_writer_append(e->w, AT_XS_ARGS, &v, 1, &at));
  // A step names its arguments by the first: nobody may come between.
  AT_ASSERT(!s->num_args || at == s->args + s->num_args);
  if (!s->num_args++) s->args = at;
  return AT_OK;
}
// Appends the slot of a value.
static at_status push_value(at_emit_steps *e, at_xstep *s, at_value v) {
  return push_arg(e, s, at_plan_slot(e->plan, v));
}
// Appends the operands, then the results, as kernels take them.
static at_status push_values(at_emit_steps *e, at_xstep *s, const at_node *n,
                             uint32_t operands) {
  for (uint32_t i = 0; i < operands; i++)
    AT_TRY(push_value(e, s, n->operands[i]));
  for (uint32_t r = 0; r < n->num_results; r++)
    AT_TRY(push_value(e, s, (at_value){(at_node *)n, r}));
  return AT_OK;
}

// Appends a step; its estimate counts towards the program's.
static at_status push_step(at_emit_steps *e, step_list *list,
                           const at_xstep *s) {
  e->ns += s->estimated_ns;
  return at_vec_push(e->arena, list, *s) ? AT_OK : AT_NO_MEMORY("steps");
}

// A node that a runtime kernel computes (runtime_ops.c). A COPY whose operand
// and result share a slot is no step.
static at_status emit_runtime(at_emit_steps *e, const at_node *n,
                              const at_rt_choice *k, step_list *out) {
  if (n->op == AT_OP_COPY && k->operands &&
      at_plan_slot(e->plan, n->operands[0]) ==
          at_plan_slot(e->plan, (at_value){(at_node *)n, 0}))
    return AT_OK;
  at_xstep s = {
      .kind = AT_STEP_RUNTIME, .target = k->id, .estimated_ns = k->ns};
  AT_TRY(describe(e, n, &s));
  void *params;
  AT_TRY_ALLOC(params, at_arena_copy(e->arena, k->params, k->params_bytes, 16));
  if (k->comparator)
    AT_TRY(at_cg_comparator(e->cg, k->comparator,
                            &((at_k_sort_params *)params)->comparator));
  AT_TRY(at_writer_align(e->w, AT_XS_PARAMS, 16));
  AT_TRY(
      at_writer_append(e->w, AT_XS_PARAMS, params, k->params_bytes, &s.params));
  s.params_bytes = k->params_bytes;
  AT_TRY(push_values(e, &s, n, k->operands));
  return push_step(e, out, &s);
}

// A slot inside the scratch region that every generated kernel shares.
static at_status scratch_slot(at_emit_steps *e, uint32_t offset, size_t bytes,
                              uint32_t *out) {
  AT_ASSERT(offset <= bytes);
  at_xslot s = {AT_SLOT_TEMP,   0,          e->plan->temp_bytes + offset,
                bytes - offset, UINT32_MAX, 0};
  return at_writer_append(e->w, AT_XS_SLOTS, &s, 1, out);
}

// A slot inside of another. It has no type: what is left of the array is none.
static at_status skip_into(at_emit_steps *e, uint64_t bytes, uint32_t *slot) {
  if (!bytes) return AT_OK;
  at_xslot s = *(const at_xslot *)at_writer_at(e->w, AT_XS_SLOTS, *slot);
  AT_ASSERT(bytes <= s.bytes);
  s.offset += bytes;
  s.bytes -= bytes;
  s.type = UINT32_MAX;
  return at_writer_append(e->w, AT_XS_SLOTS, &s, 1, slot);
}

// The first operand in the result's slot. Slot 0 is nobody's.
at_status at_steps_aliases(const at_emit_steps *e, const at_node *n,
                           int32_t **out) {
  int32_t *alias;
  AT_TRY_ALLOC(alias, at_new(e->arena, int32_t, n->num_results + 1));
  for (uint32_t r = 0; r < n->num_results; r++) {
    alias[r] = -1;
    uint32_t slot = at_plan_slot(e->plan, (at_value){(at_node *)n, r});
    for (uint32_t o = 0; slot && o < n->num_operands && alias[r] < 0; o++)
      if (at_plan_slot(e->plan, n->operands[o]) == slot) alias[r] = (int32_t)o;
  }
  *out = alias;
  return AT_OK;
}

// A node may be several launches, for example where a reduction is split over
// tasks; they share one scratch region.
static at_status emit_kernel(at_emit_steps *e, const at_node *n,
                             step_list *out) {
  int32_t *alias;
  AT_TRY(at_steps_aliases(e, n, &alias));
  at_cg_plan plan;
  AT_TRY(at_cg_node_skipping(e->cg, n, alias, e->arena, &plan));
  e->scratch_bytes = AT_MAX(e->scratch_bytes, plan.scratch_bytes);
  for (uint32_t i = 0; i < plan.num_launches; i++) {
    const at_cg_launch *l = &plan.launches[i];
    at_xstep s = {.kind = AT_STEP_KERNEL,
                  .target = l->kernel,
                  .tasks = l->tasks,
                  .grain = AT_MAX(l->grain, 1),
                  .estimated_ns = l->ns};
    AT_TRY(describe(e, n, &s));
    for (uint32_t k = 0; k < l->num_args; k++) {
      const at_cg_arg *g = &l->args[k];
      uint32_t slot = 0;
      if (g->kind == AT_CG_OPERAND)
        slot = at_plan_slot(e->plan, n->operands[g->index]);
      else if (g->kind == AT_CG_RESULT)
        slot = at_plan_slot(e->plan, (at_value){(at_node *)n, g->index});
      else
        AT_TRY(scratch_slot(e, g->index, plan.scratch_bytes, &slot));
      AT_TRY(skip_into(e, g->skip, &slot));
      AT_TRY(push_arg(e, &s, slot));
    }
    AT_TRY(push_step(e, out, &s));
  }
  return AT_OK;
}

// SEND, RECV and foreign custom calls; each counts as 2 us.
static at_status emit_host(at_emit_steps *e, const at_node *n, step_list *out) {
  at_xstep s = {.estimated_ns = 2000};
  AT_TRY(describe(e, n, &s));
  e->has_effects = true;
  s.aux = at_node_int(n, AT_ATTR_CHANNEL_ID, 0);
  if (n->op == AT_OP_SEND || n->op == AT_OP_RECV)
    s.tasks = at_node_int(n, AT_ATTR_ON_PARTITION, -1) + 1;
  if (n->op == AT_OP_SEND) {
    s.kind = AT_STEP_SEND;
    for (uint32_t i = 0; i + 1 < n->num_operands; i++)
      AT_TRY(push_value(e, &s, n->operands[i]));
    return push_step(e, out, &s);
  }
  if (n->op == AT_OP_RECV) {
    s.kind = AT_STEP_RECV;
    for (uint32_t r = 0; r + 1 < n->num_results; r++)
      AT_TRY(push_value(e, &s, (at_value){(at_node *)n, r}));
    return push_step(e, out, &s);
  }
  s.kind = AT_STEP_CUSTOM;
  AT_TRY(at_writer_string(e->w, at_node_str(n, AT_ATTR_CALL_TARGET_NAME),
                          &s.target));
  at_str config = at_node_str(n, AT_ATTR_BACKEND_CONFIG);
  if (!config.len) config = at_node_str(n, AT_ATTR_BACKEND_CONFIG_DICT);
  AT_TRY(at_writer_align(e->w, AT_XS_PARAMS, 16));
  AT_TRY(
      at_writer_append(e->w, AT_XS_PARAMS, config.ptr, config.len, &s.params));
  s.params_bytes = (uint32_t)config.len;
  s.aux = n->num_operands;
  s.tasks = at_node_int(n, AT_ATTR_API_VERSION, 0);
  AT_TRY(push_values(e, &s, n, n->num_operands));
  return push_step(e, out, &s);
}

// An asynchronous one is a START; its DONE comes later (emit_done).
static at_status emit_collective(at_emit_steps *e, const at_node *n,
                                 step_list *out) {
  bool async = at_node_bool(n, AT_ATTR_ASYNC);
  at_xstep s = {.kind = async ? AT_STEP_START : AT_STEP_COLLECTIVE,
                .aux = n->num_operands};
  AT_TRY(describe(e, n, &s));
  at_bytes params;
  AT_TRY(at_collective_params(n, e->cg, e->arena, &params, &s.estimated_ns));
  AT_TRY(at_writer_align(e->w, AT_XS_PARAMS, 16));
  AT_TRY(
      at_writer_append(e->w, AT_XS_PARAMS, params.ptr, params.len, &s.params));
  s.params_bytes = (uint32_t)params.len;
  AT_TRY(push_values(e, &s, n, n->num_operands));
  return push_step(e, out, &s);
}

// Tells the start how far its done is.
static at_status emit_done(at_emit_steps *e, const at_node *n, step_list *out) {
  void **at = at_map_find_ptr(&e->starts, n->operands[0].node);
  AT_ENSURE(at);
  uint32_t start = (uint32_t)(uintptr_t)*at - 1;
  at_xstep s = {.kind = AT_STEP_DONE,
                .tasks = (int64_t)(out->len - start),
                .estimated_ns = 100};
  out->ptr[start].tasks = s.tasks;
  AT_TRY(describe(e, n, &s));
  return push_step(e, out, &s);
}

// A Pallas kernel.
static at_status emit_core(at_emit_steps *e, const at_node *n, step_list *out) {
  at_xstep s = {.kind = AT_STEP_CORE};
  AT_TRY(describe(e, n, &s));
  AT_TRY(at_core_emit(e, n, &s));
  AT_TRY(at_core_push(e, n, &s));
  return push_step(e, out, &s);
}

// A SparseCore call: a collective of all devices.
static at_status emit_sparse(at_emit_steps *e, const at_node *n,
                             step_list *out) {
  bool async = at_node_bool(n, AT_ATTR_ASYNC);
  at_xstep s = {.kind = async ? AT_STEP_START : AT_STEP_COLLECTIVE};
  const uint32_t *order;
  uint32_t operands;
  AT_TRY(describe(e, n, &s));
  AT_TRY(at_sparse_emit(e, n, &s, &order, &operands));
  for (uint32_t i = 0; i < operands; i++)
    AT_TRY(push_value(e, &s, n->operands[order[i]]));
  for (uint32_t r = 0; r < n->num_results; r++)
    AT_TRY(push_value(e, &s, (at_value){(at_node *)n, r}));
  return push_step(e, out, &s);
}

static at_status emit_comp(at_emit_steps *e, const at_comp *c, uint32_t *begin,
                           uint32_t *end);

// Control flow as one kernel, where its steps are short.
static at_status emit_native(at_emit_steps *e, const at_node *n, step_list *out,
                             bool *done) {
  at_native_nest_out native;
  AT_TRY(at_native_nest(e, &e->native, n, &native));
  *done = native.nest != NULL;
  if (!*done) return AT_OK;
  at_xstep s = {.kind = AT_STEP_KERNEL,
                .tasks = 1,
                .grain = 1,
                .estimated_ns = native.ns};
  AT_TRY(describe(e, n, &s));
  AT_TRY(at_cg_nest(e->cg, native.nest, &s.target));
  e->scratch_bytes = AT_MAX(e->scratch_bytes, native.scratch_bytes);
  for (uint32_t i = 0; i < native.num_slots; i++) {
    uint32_t slot = native.slots[i];
    if (slot == e->plan->num_slots)
      AT_TRY(scratch_slot(e, 0, native.scratch_bytes, &slot));
    AT_TRY(push_arg(e, &s, slot));
  }
  return push_step(e, out, &s);
}

// A WHILE or CASE step: ranges of the step list are its regions.
static at_status emit_control(at_emit_steps *e, const at_node *n,
                              step_list *out) {
  at_xstep s = {.kind = n->op == AT_OP_WHILE ? AT_STEP_WHILE : AT_STEP_CASE,
                .target = n->op == AT_OP_IF};
  bool done;
  AT_TRY(emit_native(e, n, out, &done));
  if (done) return AT_OK;
  AT_TRY(describe(e, n, &s));
  uint32_t *range;
  AT_TRY_ALLOC(range, at_new(e->arena, uint32_t, 2 * n->num_regions + 1));
  for (uint32_t r = 0; r < n->num_regions; r++)
    AT_TRY(emit_comp(e, n->regions[r], &range[2 * r], &range[2 * r + 1]));
  AT_TRY(push_value(
      e, &s,
      n->op == AT_OP_WHILE ? n->regions[0]->results[0] : n->operands[0]));
  for (uint32_t i = 0; i < 2 * n->num_regions; i++)
    AT_TRY(push_arg(e, &s, range[i]));
  // Nobody knows how often a loop runs: it never counts as a tiny program.
  if (n->op == AT_OP_WHILE) s.estimated_ns = 1e6;
  return push_step(e, out, &s);
}

// JAX's call for memory without contents.
bool at_steps_is_empty(const at_node *n) {
  return n->op == AT_OP_CUSTOM_CALL &&
         at_str_is(at_node_str(n, AT_ATTR_CALL_TARGET_NAME), "AllocateBuffer");
}

// By who computes n.
static at_status emit_node(at_emit_steps *e, const at_node *n, step_list *out) {
  if (n->op == AT_OP_ASYNC_DONE) return emit_done(e, n, out);
  if (at_steps_is_silent(n) || at_steps_is_empty(n)) return AT_OK;
  if (at_node_bool(n, AT_ATTR_ASYNC)) {
    void **at;
    AT_TRY_ALLOC(at, at_map_put_ptr(&e->starts, n));
    *at = (void *)(uintptr_t)(out->len + 1);
  }
  if (at_has_steps(n)) return emit_control(e, n, out);
  if (at_is_collective_step(n)) return emit_collective(e, n, out);
  const at_rt_choice *k = at_steps_choice(&e->choices, n);
  if (!k && n->op != AT_OP_COPY) return refuse(n, "it was not planned");
  if (k && k->id != AT_RT_COUNT) return emit_runtime(e, n, k, out);
  if (n->op == AT_OP_COPY) {  // made by the planner
    at_rt_choice copy;
    AT_TRY(at_rt_choose(n, e->arena, &copy));
    return emit_runtime(e, n, &copy, out);
  }
  if (at_core_is_kernel(n)) return emit_core(e, n, out);
  if (at_sparse_is_call(n)) return emit_sparse(e, n, out);
  if (n->op == AT_OP_SEND || n->op == AT_OP_RECV || n->op == AT_OP_CUSTOM_CALL)
    return emit_host(e, n, out);
  return emit_kernel(e, n, out);
}

// Steps of a region are appended at once when it is complete, so that inner
// regions, which are appended before, stand in front of it. START and DONE find
// each other within one region.
static at_status emit_comp(at_emit_steps *e, const at_comp *c, uint32_t *begin,
                           uint32_t *end) {
  step_list list = {0};
  at_map outside = e->starts;
  e->starts = at_map_in(e->arena);
  AT_FOR_NODES(n, c) AT_TRY(emit_node(e, n, &list));
  e->starts = outside;
  AT_TRY(at_writer_append(e->w, AT_XS_STEPS, list.ptr, list.len, begin));
  *end = *begin + (uint32_t)list.len;
  return AT_OK;
}

// Gives each slot the type of the first value in it.
static at_status type_slots(at_emit_steps *e, const at_comp *c) {
  AT_FOR_NODES(n, c) {
    for (uint32_t r = 0; r < n->num_results; r++) {
      if (n->types[r].dtype == AT_TOKEN) continue;
      uint32_t type;
      AT_TRY(at_writer_type(e->w, &n->types[r], &type));
      at_xslot *s = at_writer_at(e->w, AT_XS_SLOTS,
                                 at_plan_slot(e->plan, (at_value){n, r}));
      if (s->kind != AT_SLOT_NULL && s->type == UINT32_MAX) s->type = type;
    }
    if (at_has_steps(n))
      for (uint32_t r = 0; r < n->num_regions; r++)
        AT_TRY(type_slots(e, n->regions[r]));
  }
  return AT_OK;
}

// Slots first: steps append more of them (parts, scratch).
at_status at_steps_emit(at_emit_steps *e, const at_module *m,
                        uint32_t *out_begin, uint32_t *out_end) {
  e->native.module = m;
  at_xslot *slots;
  size_t bytes = e->plan->num_slots * sizeof *slots;
  AT_TRY_ALLOC(slots, at_arena_copy(e->arena, e->plan->slots, bytes, 8));
  AT_TRY(place_constants(e, m->entry, slots));
  AT_TRY(at_writer_append(e->w, AT_XS_SLOTS, slots, e->plan->num_slots, NULL));
  AT_TRY(type_slots(e, m->entry));
  return emit_comp(e, m->entry, out_begin, out_end);
}

// For profilers: the ops of an executable under the names that XProf shows
// (fusion.12, %dot_general.3), what each of them asks of the machine, and the
// program as an HloModuleProto with its buffers. The program is compiled once
// more up to the memory plan, without code; nothing of it is kept between
// calls.
#include "compile/describe.h"

#include <stdlib.h>

#include "compile/core.h"
#include "cost/count.h"
#include "estimate/estimate.h"
#include "hloproto/hloproto.h"
#include "schedule/lifetime.h"
#include "schedule/schedule.h"

typedef struct describer {
  at_arena *arena;
  const at_module *module;
  const at_plan *plan;
  AT_VEC(at_described_op) ops;
} describer;

// Moves the buffer's text into the arena.
static at_status text_of(describer *d, at_strbuf *b, const char **out) {
  AT_TRY_ALLOC(*out, at_strbuf_move(b, d->arena));
  return AT_OK;
}

// "fusion.12", as at_hloproto_name has it.
static at_status name_of(describer *d, const at_node *n, const char **out) {
  at_strbuf b = {0};
  at_hloproto_name(n, &b);
  return text_of(d, &b, out);
}

// ---- Ops
static const char *opcode_of(const at_node *n) {
  switch (n->op) {
    case AT_OP_FUSION:
      return "fusion";
    case AT_OP_WHILE:
      return "while";
    case AT_OP_IF:
    case AT_OP_CASE:
      return "conditional";
    case AT_OP_ASYNC_DONE:
      return "async-done";
    default: {
      const char *opcode = at_hloproto_opcode(n->op);
      return opcode ? opcode : "custom-call";
    }
  }
}

static bool holds_product(const at_node *fusion) {
  AT_FOR_NODES(k, fusion->regions[0])
  if (k->op == AT_OP_DOT_GENERAL || k->op == AT_OP_CONVOLUTION) return true;
  return false;
}

// XProf's names for kinds of ops.
static const char *category_of(const at_node *n) {
  static const char *const fusions[] = {[AT_FUSION_LOOP] = "loop fusion",
                                        [AT_FUSION_REDUCE] = "input fusion",
                                        [AT_FUSION_KERNEL] = "custom fusion",
                                        [AT_FUSION_ROWS] = "input fusion"};
  if (n->op == AT_OP_FUSION) {
    int64_t kind = at_node_int(n, AT_ATTR_KIND, AT_FUSION_LOOP);
    if (holds_product(n)) return "convolution fusion";
    return kind >= 0 && kind < (int64_t)AT_LEN(fusions) ? fusions[kind]
                                                        : "loop fusion";
  }
  if (n->op == AT_OP_COPY || n->op == AT_OP_TRANSPOSE || n->op == AT_OP_RESHAPE)
    return "data formatting";
  return at_op_is(n->op, AT_ELEMENTWISE) ? "non-fusion elementwise"
                                         : opcode_of(n);
}

// %fusion.12 = f32[8,8] fusion(%dot_general.3), calls={multiply,add}
static at_status instruction_of(describer *d, const at_node *n,
                                const char **out) {
  at_strbuf b = {0};
  at_strbuf_addc(&b, '%');
  at_hloproto_name(n, &b);
  at_strbuf_addz(&b, n->num_results == 1 ? " = " : " = (");
  for (uint32_t r = 0; r < n->num_results; r++) {
    if (r) at_strbuf_addz(&b, ", ");
    at_type_print(&b, &n->types[r]);
  }
  at_strbuf_addf(&b, "%s %s(", n->num_results == 1 ? "" : ")", opcode_of(n));
  for (uint32_t k = 0; k < n->num_operands; k++) {
    at_strbuf_addz(&b, k ? ", %" : "%");
    at_hloproto_name(n->operands[k].node, &b);
  }
  at_strbuf_addc(&b, ')');
  if (n->op == AT_OP_FUSION) {
    const char *between = ", calls={";
    AT_FOR_NODES(k, n->regions[0]) {
      if (k->op == AT_OP_PARAMETER || k->op == AT_OP_CONSTANT) continue;
      at_strbuf_addf(&b, "%s%s", between, at_op_text(k->op));
      between = ",";
    }
    if (*between == ',' && !between[1]) at_strbuf_addc(&b, '}');
  } else if (n->op == AT_OP_CUSTOM_CALL) {
    at_strbuf_addz(&b, ", custom_call_target=\"");
    at_strbuf_add(&b, at_node_str(n, AT_ATTR_CALL_TARGET_NAME));
    at_strbuf_addc(&b, '"');
  }
  return text_of(d, &b, out);
}

// What n is called and what one run of it asks for. Results count as written,
// everything else as read.
static at_status describe_node(describer *d, at_counter *counter,
                               const at_node *n) {
  at_described_op op = {.category = category_of(n), .scope = "", .source = ""};
  const at_loc *l = at_loc_source(n->loc);
  AT_TRY(name_of(d, n, &op.name));
  AT_TRY(instruction_of(d, n, &op.text));
  // XLA's profilers cut an op's type off behind the colon: it has none.
  if (n->loc && n->loc->name)
    AT_TRY_ALLOC(op.scope, at_arena_printf(d->arena, "%s:", n->loc->name));
  if (l && l->file)
    AT_TRY_ALLOC(op.source,
                 at_arena_printf(d->arena, "%s:%u", l->file, l->line));
  at_count c = {0};
  AT_TRY(at_count_kernel(counter, n, &c));
  double results = 0;
  for (uint32_t r = 0; r < n->num_results; r++)
    if (at_type_is_static(&n->types[r]))
      results += (double)at_type_bytes(&n->types[r]);
  op.flops = c.flops;
  op.transcendentals = c.transcendentals;
  op.bytes_written = AT_MIN(results, c.bytes_accessed);
  op.bytes_read = c.bytes_accessed - op.bytes_written;
  return at_vec_push(d->arena, &d->ops, op) ? AT_OK
                                            : AT_NO_MEMORY("a description");
}

// All ops with steps of their own; bodies of fusions belong to the fusion.
static at_status describe(describer *d, const at_comp *c) {
  at_counter counter = at_core_counter(d->arena);
  AT_FOR_NODES(n, c) {
    if (n->op == AT_OP_PARAMETER || n->op == AT_OP_CONSTANT) continue;
    AT_TRY(describe_node(d, &counter, n));
    for (uint32_t r = 0; at_has_steps(n) && r < n->num_regions; r++)
      AT_TRY(describe(d, n->regions[r]));
  }
  return AT_OK;
}

// ---- Memory
static int by_begin(const void *a, const void *b) {
  const at_hloproto_temp *x = a, *y = b;
  return (x->begin > y->begin) - (x->begin < y->begin);
}

// One for each place of this machine's scratch that holds values.
static at_status temporaries(describer *d, at_hloproto_memory *out) {
  at_lifetimes life;
  at_hloproto_temp *temps;
  uint32_t *number, n = 0;  // of a slot's, + 1
  AT_TRY(at_lifetimes_compute(d->module, d->arena, &life));
  AT_TRY_ALLOC(temps, at_new(d->arena, at_hloproto_temp, life.count + 1));
  AT_TRY_ALLOC(number, at_new(d->arena, uint32_t, d->plan->num_slots + 1));
  for (uint32_t i = 0; i < life.count; i++) {
    const at_lifetime *l = &life.list[i];
    uint32_t slot = at_plan_slot(d->plan, l->value);
    const at_xslot *s = &d->plan->slots[slot];
    if (s->kind != AT_SLOT_TEMP || !s->bytes) continue;
    if (!number[slot]) {
      number[slot] = ++n;
      temps[n - 1] = (at_hloproto_temp){.value = l->value,
                                        .bytes = s->bytes,
                                        .offset = s->offset,
                                        .begin = l->span.begin,
                                        .end = l->span.end};
    }
    at_hloproto_temp *t = &temps[number[slot] - 1];
    if (l->span.begin < t->begin) t->value = l->value;
    t->begin = AT_MIN(t->begin, l->span.begin);
    t->end = AT_MAX(t->end, l->span.end);
  }
  for (uint32_t i = 0; i < n; i++)
    AT_TRY(name_of(d, temps[i].value.node, &temps[i].name));
  qsort(temps, n, sizeof *temps, by_begin);
  out->temps = temps;
  out->num_temps = n;
  return AT_OK;
}

// Those of a chip's memory; what the program that runs here has no more lies in
// what they leave of theirs.
static at_status temporaries_on_chip(describer *d, const at_estimate *e,
                                     at_hloproto_memory *out) {
  at_hloproto_temp *temps;
  AT_TRY_ALLOC(temps, at_new(d->arena, at_hloproto_temp, e->num_temps + 1));
  for (uint32_t i = 0; i < e->num_temps; i++) {
    const at_estimate_temp *t = &e->temps[i];
    temps[i] = (at_hloproto_temp){.value = t->value,
                                  .bytes = t->bytes,
                                  .offset = t->offset,
                                  .begin = t->begin,
                                  .end = t->end};
    AT_TRY(name_of(d, t->value.node, &temps[i].name));
  }
  out->temps = temps;
  out->num_temps = e->num_temps;
  out->param_bytes = e->each_argument;
  out->result_bytes = e->each_result;
  return AT_OK;
}

// The protobuf may lack a form for an op: then it is empty, and the ops are
// described all the same.
at_status at_compile_describe(at_bytes program, const at_compile_options *o,
                              uint64_t temp_bytes, at_arena *a,
                              at_described *out) {
  at_plan plan;
  at_module *m;
  const at_estimate *e;
  AT_TRY(at_compile_module(program, o, &plan, &e, a, &m));
  describer d = {.arena = a, .module = m, .plan = &plan};
  AT_TRY(describe(&d, m->entry));
  at_hloproto_memory memory = {.temp_bytes = temp_bytes};
  AT_TRY(e ? temporaries_on_chip(&d, e, &memory) : temporaries(&d, &memory));
  at_hloproto_write_options w = {.param_shardings = o->param_shardings,
                                 .result_shardings = o->result_shardings,
                                 .memory = &memory};
  at_strbuf hlo = {0};
  at_status st = at_hloproto_write(m, &w, &hlo);
  out->hlo.len = hlo.len;
  if (at_code_take(st)) {
    // An op that has no form there: the ops are told all the same.
    at_strbuf_free(&hlo);
    out->hlo = (at_str){0};
  } else {
    AT_TRY_ALLOC(out->hlo.ptr, at_strbuf_move(&hlo, a));
  }
  out->ops = d.ops.ptr;
  out->num_ops = (uint32_t)d.ops.len;
  return AT_OK;
}

// Counts the optimised program.
at_status at_compile_costs(at_bytes program, const at_compile_options *o,
                           at_arena *a, at_count *out) {
  at_module *m;
  at_counter counter = at_core_counter(a);
  AT_TRY(at_compile_module(program, o, NULL, NULL, a, &m));
  return at_count_of(m, &counter, out);
}

// SparseCore calls as steps. A call has its tables' optimizer as an HLO module
// of one row; it becomes a list of launches of generated kernels, which the
// engine (room sparsecore) runs for each row that a minibatch touches. The
// step's parameters hold the table's shape, the limits of ids per row, and that
// list.
#include "compile/sparse.h"

#include "base/config.h"
#include "base/log.h"
#include "passes/passes.h"
#include "sparsecore/sparsecore.h"
#include "spinput/size.h"

uint32_t at_sparse_cores(void) {
  return at_sc_count(at_str_of(at_config_text(AT_CONFIG_TARGET)));
}

bool at_sparse_is_call(const at_node *n) {
  return at_sc_is_engine(at_sc_kind_of(n));
}

// A row is read from memory, and written to where it is wanted.
static double estimated_ns(double ids, double width) {
  return 2000 + ids * (20 + width);
}

double at_sparse_seconds(const at_node *n) {
  if (n->num_operands < 2 || !n->num_results) return 0;  // refused later
  const at_type *ids = at_value_type(n->operands[1]), *out = &n->types[0];
  double width = out->rank > 1 ? (double)out->dims[1] : 1;
  return estimated_ns((double)at_type_elements(ids), width) * 1e-9;
}

// Tables follow the five (or six) operands that describe the samples.
bool at_sparse_can_alias(const at_node *n, uint32_t result, uint32_t operand) {
  switch (at_sc_kind_of(n)) {
    case AT_SC_UPDATE:
    case AT_SC_UPDATE_MINIBATCHES:
      return operand == 5 + result;
    case AT_SC_UPDATE_MINIBATCHES_FIRST:
      return operand == 6 + result;
    default:
      return false;
  }
}

// ---- The optimizer
// The optimised module of one row, turned into launches.
typedef struct program {
  at_emit_steps *e;
  const at_node *call;
  const at_comp *c;
  at_x_sparse *x;
  at_map places;  // node -> at_x_sparse_place[], one for each result
  AT_VEC(at_x_sparse_launch) launches;
  AT_VEC(at_x_sparse_place) list;
  AT_VEC(at_x_sparse_copy) copies;
  AT_VEC(uint8_t) constants;
} program;

// UNIMPLEMENTED, naming the call and the node of its optimizer.
static at_status refuse(const program *p, const at_node *n, const char *why) {
  at_strbuf b = {0};
  at_node_describe(&b, n);
  at_status st =
      AT_FAIL(AT_UNIMPLEMENTED, "the optimizer of %.*s: %s: %s",
              (int)at_node_str(p->call, AT_ATTR_CALL_TARGET_NAME).len,
              at_node_str(p->call, AT_ATTR_CALL_TARGET_NAME).ptr,
              b.ptr ? b.ptr : at_op_text(n->op), why);
  at_strbuf_free(&b);
  return st;
}

// Where v lives for one row; NULL: not placed yet.
static at_x_sparse_place *place_of(const program *p, at_value v) {
  void **at = at_map_find_ptr(&p->places, v.node);
  return at ? (at_x_sparse_place *)*at + v.index : NULL;
}

// Room for the places of n's results.
static at_status put_places(program *p, const at_node *n,
                            at_x_sparse_place **out) {
  AT_TRY_ALLOC(*out,
               at_new(p->e->arena, at_x_sparse_place, n->num_results + 1));
  void **at;
  AT_TRY_ALLOC(at, at_map_put_ptr(&p->places, n));
  *at = *out;
  return AT_OK;
}

// Bytes of the row's scratch, in which intermediate values of the optimizer
// live.
static at_status take_scratch(program *p, uint64_t bytes, uint32_t *out) {
  uint64_t end = p->x->scratch_bytes + at_align_up(AT_MAX(bytes, 1ull), 64);
  if (end > UINT32_MAX)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "an optimizer's temporary values");
  *out = p->x->scratch_bytes;
  p->x->scratch_bytes = (uint32_t)end;
  return AT_OK;
}

// The gradient, the tables, the hyperparameters, in that order.
static at_status put_params(program *p) {
  for (uint32_t i = 0; i < p->c->num_params; i++) {
    at_x_sparse_place *to;
    AT_TRY(put_places(p, p->c->params[i], &to));
    uint32_t tables = p->x->num_tables;
    *to = i == 0        ? (at_x_sparse_place){AT_SPARSE_GRADIENT, 0}
          : i <= tables ? (at_x_sparse_place){AT_SPARSE_TABLE, i - 1}
                        : (at_x_sparse_place){AT_SPARSE_HYPER, i - 1 - tables};
  }
  return AT_OK;
}

// Splats are written out: kernels read constants as arrays. At most 16 MiB in
// all.
static at_status put_constant(program *p, const at_node *n) {
  const at_literal *l = at_node_literal(n);
  size_t elem = at_dtype_bytes(l->type.dtype);
  int64_t count = at_type_elements(&l->type);
  at_x_sparse_place *to;
  AT_TRY(put_places(p, n, &to));
  while (p->constants.len % 64)
    if (!at_vec_push(p->e->arena, &p->constants, (uint8_t)0))
      return AT_NO_MEMORY("optimizer");
  *to = (at_x_sparse_place){AT_SPARSE_CONST, (uint32_t)p->constants.len};
  if (p->constants.len + elem * (size_t)count > 1u << 24)
    return refuse(p, n, "a constant of more than 16 MiB");
  for (int64_t i = 0; i < count; i++)
    for (size_t b = 0; b < elem; b++)
      if (!at_vec_push(p->e->arena, &p->constants,
                       ((const uint8_t *)
                            l->data)[(l->splat ? 0 : (size_t)i * elem) + b]))
        return AT_NO_MEMORY("optimizer");
  return AT_OK;
}

// The table that value v becomes, when it can be written at once: nobody reads
// the old row afterwards, and n itself reads it no later than it writes.
static bool goes_into(const program *p, const at_node *n, uint32_t result,
                      uint32_t *table) {
  uint32_t found = UINT32_MAX;
  for (uint32_t r = 0; r < p->c->num_results; r++) {
    at_value v = p->c->results[r];
    if (v.node != n || v.index != result) continue;
    if (found != UINT32_MAX) return false;
    found = r;
  }
  if (found == UINT32_MAX) return false;
  at_value old = {p->c->params[1 + found], 0};
  for (uint32_t r = 0; r < p->c->num_results; r++)
    if (at_value_eq(p->c->results[r], old)) return false;
  // Views read later, too: nobody may have one.
  AT_FOR_NODES(k, p->c)
  for (uint32_t i = 0; at_plan_is_view(k) && i < k->num_operands; i++)
    if (at_value_eq(k->operands[i], old)) return false;
  for (const at_node *k = n->next; k; k = k->next)
    for (uint32_t i = 0; i < k->num_operands; i++)
      if (at_value_eq(k->operands[i], old)) return false;
  for (uint32_t i = 0; i < n->num_operands; i++)
    if (at_value_eq(n->operands[i], old) && !at_cg_can_alias(n, result, i))
      return false;
  *table = found;
  return true;
}

// Appends to the launch's arguments; those of one launch are side by side.
static at_status add_place(program *p, at_x_sparse_launch *l,
                           at_x_sparse_place place) {
  if (!l->num_places++) l->places = (uint32_t)p->list.len;
  return at_vec_push(p->e->arena, &p->list, place) ? AT_OK
                                                   : AT_NO_MEMORY("optimizer");
}

// One node's launches. A result that is the new row of a table is written there
// at once if nobody reads the old row later.
static at_status put_kernel(program *p, const at_node *n) {
  if (!at_cg_supports(n)) return refuse(p, n, "no kernel for this op");
  at_x_sparse_place *to;
  int32_t *alias;
  AT_TRY(put_places(p, n, &to));
  AT_TRY_ALLOC(alias, at_new(p->e->arena, int32_t, n->num_results + 1));
  for (uint32_t r = 0; r < n->num_results; r++) {
    uint32_t table;
    alias[r] = -1;
    if (!goes_into(p, n, r, &table)) {
      to[r].kind = AT_SPARSE_SCRATCH;
      AT_TRY(take_scratch(p, at_type_bytes(&n->types[r]), &to[r].index));
      continue;
    }
    to[r] = (at_x_sparse_place){AT_SPARSE_TABLE, table};
    for (uint32_t i = 0; i < n->num_operands && alias[r] < 0; i++)
      if (n->operands[i].node == p->c->params[1 + table]) alias[r] = (int32_t)i;
  }
  at_cg_plan plan;
  AT_TRY(at_cg_node(p->e->cg, n, alias, p->e->arena, &plan));
  uint32_t scratch = 0;
  if (plan.scratch_bytes) AT_TRY(take_scratch(p, plan.scratch_bytes, &scratch));
  for (uint32_t i = 0; i < plan.num_launches; i++) {
    const at_cg_launch *from = &plan.launches[i];
    at_x_sparse_launch l = {.kernel = from->kernel,
                            .tasks = (uint32_t)from->tasks};
    if (from->tasks > UINT32_MAX) return refuse(p, n, "it is too large");
    for (uint32_t k = 0; k < from->num_args; k++) {
      const at_cg_arg *g = &from->args[k];
      AT_TRY(add_place(
          p, &l,
          g->kind == AT_CG_OPERAND ? *place_of(p, n->operands[g->index])
          : g->kind == AT_CG_RESULT
              ? to[g->index]
              : (at_x_sparse_place){AT_SPARSE_SCRATCH, scratch + g->index}));
    }
    if (!at_vec_push(p->e->arena, &p->launches, l))
      return AT_NO_MEMORY("optimizer");
  }
  return AT_OK;
}

// Views have the place of what they view.
static at_status put_node(program *p, const at_node *n) {
  if (n->op == AT_OP_PARAMETER) return AT_OK;
  if (n->op == AT_OP_CONSTANT) return put_constant(p, n);
  if (!at_plan_is_view(n)) return put_kernel(p, n);
  at_x_sparse_place *to;
  AT_TRY(put_places(p, n, &to));
  for (uint32_t r = 0; r < n->num_results; r++)
    to[r] = *place_of(p, n->operands[r]);
  return AT_OK;
}

// Rows that are not in their table yet are copied at the end. A table whose new
// row is another table's old one would need an order: refused.
static at_status put_results(program *p) {
  for (uint32_t r = 0; r < p->c->num_results; r++) {
    at_x_sparse_place from = *place_of(p, p->c->results[r]);
    if (from.kind == AT_SPARSE_TABLE && from.index == r) continue;
    bool kept = from.kind != AT_SPARSE_TABLE;
    if (!kept) {
      at_x_sparse_place other = *place_of(p, p->c->results[from.index]);
      kept = other.kind == AT_SPARSE_TABLE && other.index == from.index;
    }
    if (!kept)
      return refuse(p, p->c->results[r].node,
                    "slot variables that change places");
    at_x_sparse_copy c = {r, (uint32_t)(p->x->width * 4), from};
    if (!at_vec_push(p->e->arena, &p->copies, c))
      return AT_NO_MEMORY("optimizer");
  }
  return AT_OK;
}

// Compiles the optimizer as a program of one row and fills the lists.
static at_status compile_optimizer(program *p, const at_sc_call *call) {
  at_dtype hypers[AT_SPARSE_MAX_HYPERS] = {0};
  uint32_t first = at_x_sparse_table(p->x) + p->x->num_tables;
  for (uint32_t i = 0; i < p->x->num_hypers; i++)
    hypers[i] =
        at_value_type(p->call->operands[call->operands[first + i]])->dtype;
  at_module *m;
  at_pass_options o = {.fuse = true, .fold_budget = 1 << 20};
  AT_TRY(at_optimizer_program(call->optimizer, 1 + p->x->num_tables, hypers,
                              p->e->arena, &m));
  AT_TRY(at_passes_run(m, &o, at_config_flag(AT_CONFIG_VERIFY), NULL, NULL));
  p->c = m->entry;
  p->places = at_map_in(p->e->arena);
  AT_TRY(put_params(p));
  AT_FOR_NODES(n, p->c) AT_TRY(put_node(p, n));
  AT_TRY(put_results(p));
  p->x->num_launches = (uint32_t)p->launches.len;
  p->x->num_places = (uint32_t)p->list.len;
  p->x->num_copies = (uint32_t)p->copies.len;
  p->x->const_bytes = (uint32_t)p->constants.len;
  return AT_OK;
}

// ---- The step
// All devices together, or each alone.
static void write_groups(uint8_t *at, uint32_t devices, bool alone) {
  uint32_t *t = (uint32_t *)at;
  for (uint32_t d = 0; d < devices; d++) {
    const uint32_t row[AT_COLL_TABLES] = {
        alone ? d : 0, alone ? 0 : d, alone ? d : 0, alone ? 1 : devices, d,
        UINT32_MAX};
    for (int i = 0; i < AT_COLL_TABLES; i++) t[i * devices + d] = row[i];
  }
}

// Layout (abi/sparsecore.h): collective head, groups, at_x_sparse, its lists.
static at_status write_params(at_emit_steps *e, const program *p, at_xstep *s) {
  const at_x_sparse *x = p->x;
  bool alone = x->op == AT_SPARSE_LOCAL;
  at_x_collective c = {.kind = AT_COLL_SPARSE,
                       .num_devices = x->num_devices,
                       .num_groups = alone ? x->num_devices : 1};
  uint64_t head = at_x_collective_bytes(&c),
           bytes = head + at_x_sparse_bytes(x);
  uint8_t *at;
  AT_TRY_ALLOC(at, at_arena_alloc(e->arena, bytes, 16));
  memset(at, 0, bytes);
  memcpy(at, &c, sizeof c);
  write_groups(at + sizeof c, x->num_devices, alone);
  at_x_sparse *to = (at_x_sparse *)(at + head);
  *to = *x;
  const struct {
    const void *to, *from;
    size_t bytes;
  } parts[] = {{at_x_sparse_launches(to), p->launches.ptr,
                p->launches.len * sizeof(at_x_sparse_launch)},
               {at_x_sparse_places(to), p->list.ptr,
                p->list.len * sizeof(at_x_sparse_place)},
               {at_x_sparse_copies(to), p->copies.ptr,
                p->copies.len * sizeof(at_x_sparse_copy)},
               {(uint8_t *)to + at_x_sparse_const_offset(to), p->constants.ptr,
                p->constants.len}};
  for (size_t i = 0; i < AT_LEN(parts); i++)
    if (parts[i].bytes)
      memcpy((void *)parts[i].to, parts[i].from, parts[i].bytes);
  AT_TRY(at_writer_align(e->w, AT_XS_PARAMS, 16));
  AT_TRY(at_writer_append(e->w, AT_XS_PARAMS, at, bytes, &s->params));
  s->params_bytes = (uint32_t)bytes;
  return AT_OK;
}

// ---- Flags and limits
at_status at_sparse_flags(const at_str *options, uint32_t count,
                          at_spinput_flags *out) {
  AT_TRY(at_spinput_flags_of_process(out));
  for (uint32_t i = 0; i < count; i++)
    AT_TRY(at_spinput_flag_set(out, options[2 * i], options[2 * i + 1]));
  if (at_config_has(AT_WORD_CHECK_NAN)) out->detect_nan = true;
  return AT_OK;
}

// Which checks the engine makes, by flags and ATOLL_CHECK.
static at_status set_checks(at_emit_steps *e, at_x_sparse *x) {
  const at_spinput_flags *f = e->sparse;
  if (f->detect_nan) x->checks |= AT_SPARSE_CHECK_NAN;
  if (f->sanitizer & (AT_SPINPUT_CORE_SC_SCS | AT_SPINPUT_CORE_SC_TILE))
    x->checks |= AT_SPARSE_CHECK_CONTENTS;
  if (f->verify_launch_id) x->checks |= AT_SPARSE_CHECK_LAUNCH;
  if (f->assert_level || at_config_has(AT_WORD_CHECK_LIMITS))
    x->checks |= AT_SPARSE_CHECK_LIMITS;
  if (!*f->minibatch_path) return AT_OK;
  x->checks |= AT_SPARSE_CHECK_DUMP;
  return at_writer_string(e->w, at_str_of(f->minibatch_path), &x->dump);
}

// Where the call finds its table: behind views, and updates in place.
static at_value table_root(at_value v) {
  for (;;) {
    uint32_t at = v.index;
    if (at_sparse_is_call(v.node)) {
      for (at = 0; at < v.node->num_operands; at++)
        if (at_sparse_can_alias(v.node, v.index, at)) break;
      if (at == v.node->num_operands) return v;
    } else if (v.node->op != AT_OP_COPY && !at_plan_is_view(v.node)) {
      return v;
    }
    v = v.node->operands[at];
  }
}

// What the program calls a table: the stack that the optimizer
// "adagrad-<stack>" is for, or the argument that it comes from. NULL: it has no
// name.
static const char *table_name(const at_node *n, const at_sc_call *c) {
  const char *optimizer = c->optimizer ? c->optimizer->name : NULL;
  const char *dash = optimizer ? strchr(optimizer, '-') : NULL;
  if (dash && dash[1]) return dash + 1;
  at_value v = table_root(n->operands[c->operands[at_x_sparse_table(&c->x)]]);
  const at_comp *in = v.node->parent;
  if (v.node->op != AT_OP_PARAMETER || in != in->module->entry) return NULL;
  const at_io_info *params = in->module->params;
  for (uint32_t i = 0; params && i < in->num_params; i++)
    if (in->params[i] == v.node && params[i].name && *params[i].name)
      return params[i].name;
  return NULL;
}

// What the file of limits says of the call's table counts, not what the program
// says.
static void limit_call(const at_node *n, const at_spinput_limits *limits,
                       at_sc_call *c) {
  const char *name = table_name(n, c);
  const at_spinput_limit *l =
      name ? at_spinput_limits_of(limits, at_str_of(name)) : NULL;
  if (!l) return;
  c->config.max_ids = l->max_ids;
  c->config.max_unique = l->max_unique;
  c->x.max_ids = (uint64_t)l->max_ids;
  c->x.max_unique = (uint64_t)l->max_unique;
}

// A lookup, or the update that belongs to one, as a table of the sizing.
static at_spinput_table table_of(const at_sc_call *c, const at_node *n,
                                 uint32_t devices, at_arena *a) {
  const at_x_sparse *x = &c->x;
  at_str optimizer = {0};
  if (c->optimizer) {  // "adagrad-<stack>"
    optimizer = at_str_of(c->optimizer->name);
    const char *end = memchr(optimizer.ptr, '-', optimizer.len);
    if (end) optimizer.len = (size_t)(end - optimizer.ptr);
  }
  const char *name = table_name(n, c);
  if (!name) name = at_arena_printf(a, "of %%%u", n->id);
  return (at_spinput_table){
      .name = name ? name : "?",
      .rows = (int64_t)x->rows * devices,
      .width = (int64_t)x->width,
      .max_ids = c->config.max_ids,
      .max_unique = c->config.max_unique,
      .coo_per_device = (int64_t)x->ids,
      .samples = (int64_t)x->samples,
      .element_bytes = x->dtype == AT_F32    ? 4
                       : x->dtype == AT_BF16 ? 2
                                             : 1,
      .optimizer = c->optimizer ? (int32_t)at_spinput_optimizer_of(optimizer)
                                : AT_SPINPUT_LOOKUP_ONLY,
      .slots = (int32_t)x->num_tables - 1};
}

// An update and its lookup are one table.
static bool joins(at_spinput_table *t, const at_spinput_table *other) {
  bool one = (t->optimizer == AT_SPINPUT_LOOKUP_ONLY) !=
             (other->optimizer == AT_SPINPUT_LOOKUP_ONLY);
  if (!one || t->rows != other->rows || t->width != other->width ||
      t->max_ids != other->max_ids || t->max_unique != other->max_unique ||
      t->samples != other->samples)
    return false;
  if (t->optimizer == AT_SPINPUT_LOOKUP_ONLY) *t = *other;
  return true;
}

typedef AT_VEC(at_spinput_table) tables;

// Tables of all calls of the entry; calls without limits cannot be sized.
static at_status collect(const at_comp *c, uint32_t devices,
                         const at_spinput_limits *limits, at_arena *a,
                         tables *out) {
  AT_FOR_NODES(n, c) {
    if (!at_sparse_is_call(n)) continue;
    at_sc_call *call;
    AT_TRY_ALLOC(call, at_new(a, at_sc_call, 1));
    AT_TRY(at_sc_call_read(n, devices, at_sparse_cores(), call));
    limit_call(n, limits, call);
    if (call->config.max_ids < 1 || call->config.max_unique < 1) continue;
    at_spinput_table t = table_of(call, n, devices, a);
    size_t i = 0;
    while (i < out->len && !joins(&out->ptr[i], &t)) i++;
    if (i == out->len && !at_vec_push(a, out, t)) return AT_NO_MEMORY("tables");
  }
  return AT_OK;
}

// Only the entry's calls: jax-tpu-embedding has none in loops.
at_status at_sparse_check_size(const at_module *m, uint32_t num_devices,
                               const at_spinput_flags *f,
                               const at_spinput_limits *limits, at_arena *a,
                               uint64_t *stack) {
  tables t = {0};
  *stack = 0;
  AT_TRY(collect(m->entry, num_devices, limits, a, &t));
  if (!t.len) return AT_OK;
  at_spinput_program p = {.devices = (int32_t)num_devices,
                          .tables = t.ptr,
                          .table_count = t.len,
                          .serialized = (int32_t)f->serialized_tables};
  AT_TRY(at_spinput_chip_find(at_str_of(at_config_text(AT_CONFIG_TARGET)),
                              &p.chip));
  at_spinput_table_size *sizes;
  AT_TRY_ALLOC(sizes, at_new(a, at_spinput_table_size, t.len));
  at_spinput_size s = {0};
  at_status st = at_spinput_size_of(&p, sizes, &s);
  *stack = (uint64_t)AT_MAX(s.stack_bytes, (int64_t)0);
  if (at_ok(st) || !at_config_flag(AT_CONFIG_LENIENT)) return st;
  at_log(AT_LOG_WARNING, "the TPU compiler would refuse this: %s",
         at_status_message(st));
  at_status_free(st);
  return AT_OK;
}

// Reads the call, limits it, compiles its optimizer, writes the parameters.
at_status at_sparse_emit(at_emit_steps *e, const at_node *n, at_xstep *s,
                         const uint32_t **order, uint32_t *operands) {
  at_sc_call *call;
  AT_TRY_ALLOC(call, at_new(e->arena, at_sc_call, 1));
  AT_TRY(at_sc_call_read(n, e->num_devices, at_sparse_cores(), call));
  limit_call(n, e->limits, call);
  program p = {.e = e, .call = n, .x = &call->x};
  if (call->optimizer) AT_TRY(compile_optimizer(&p, call));
  call->x.name = s->op_name;
  const char *name = table_name(n, call);
  if (name) AT_TRY(at_writer_string(e->w, at_str_of(name), &call->x.name));
  AT_TRY(set_checks(e, &call->x));
  AT_TRY(write_params(e, &p, s));
  s->aux = call->num_operands;
  s->estimated_ns = estimated_ns((double)call->x.ids, (double)call->x.width);
  *order = call->operands;
  *operands = call->num_operands;
  return AT_OK;
}

// ATOLL_TARGET=mk2. The plan of a program on the tiles is made beside the
// compile for this machine and only read by reports. With ATOLL_TILES=tiles
// the program becomes one call that runs it tile by tile: its text is a
// constant of the executable, parsed and laid out when it first runs and kept
// by the process.
#include "compile/on_tiles.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/config.h"
#include "base/cpu.h"
#include "machine/topology.h"

// By the target's machine: platform "ipu".
bool at_on_tiles(const char *target, at_tiles_machine *out) {
  const at_machine *m = at_topology_machine(at_str_of(target));
  return m && !strcmp(m->platform, "ipu") &&
         at_code_take(at_tiles_machine_read(m, out)) == AT_OK_CODE;
}

// Fusion is off, as lowering makes one compute set per op.
at_status at_on_tiles_plan(const at_tiles_machine *machine, at_module *m,
                           const at_pass_options *o, at_arena *a,
                           const at_tiles_plan **out) {
  at_pass_options passes = *o;
  passes.fuse = false;  // one compute set per op
  AT_TRY(at_passes_run(m, &passes, false, NULL, NULL));
  at_tiles_lower_options lower = {0};
  return at_tiles_lower(machine, m, &lower, a, out);
}

// ---- Values from the tiles
bool at_on_tiles_runs(void) {
  at_tiles_machine m;
  return at_on_tiles(at_config_text(AT_CONFIG_TARGET), &m) &&
         at_config_word(AT_CONFIG_TILES) == AT_WORD_TILES_TILES;
}

// Shares `whole`'s descriptions of arguments and results.
at_status at_on_tiles_wrap(const at_module *whole, at_str program, at_arena *a,
                           at_module **out) {
  const at_comp *c = whole->entry;
  at_module *m;
  at_comp *body;
  at_value *values;
  at_type *types;
  at_node *call;
  AT_TRY(at_module_create(a, at_str_of(whole->name ? whole->name : "program"),
                          &m));
  m->num_replicas = whole->num_replicas;
  m->num_partitions = whole->num_partitions;
  m->params = whole->params;
  m->results = whole->results;
  AT_TRY(at_comp_create(m, at_str_of(c->name ? c->name : "main"), NULL, &body));
  m->entry = body;
  AT_TRY_ALLOC(values,
               at_new(a, at_value, AT_MAX(c->num_params, c->num_results) + 1));
  AT_TRY_ALLOC(types, at_new(a, at_type, c->num_results + 1));
  for (uint32_t i = 0; i < c->num_params; i++)
    AT_TRY(at_build_param(body, c->params[i]->types[0], NULL, &values[i]));
  for (uint32_t i = 0; i < c->num_results; i++)
    types[i] = *at_value_type(c->results[i]);
  at_attr attrs[] = {
      {.id = AT_ATTR_CALL_TARGET_NAME, .s = AT_STR(AT_ON_TILES_TARGET)},
      {.id = AT_ATTR_BACKEND_CONFIG}};
  AT_TRY_ALLOC(attrs[1].s.ptr, at_arena_str(a, program));
  attrs[1].s.len = program.len;
  at_node_desc d = {.op = AT_OP_CUSTOM_CALL,
                    .operands = values,
                    .num_operands = c->num_params,
                    .attrs = attrs,
                    .num_attrs = AT_LEN(attrs),
                    .types = types,
                    .num_types = c->num_results};
  AT_TRY(at_build(body, NULL, &d, &call));
  for (uint32_t i = 0; i < c->num_results; i++) values[i] = (at_value){call, i};
  AT_TRY(at_comp_return(body, values, c->num_results));
  *out = m;
  return AT_OK;
}

// Programs that have run: parsed and laid out once.
typedef struct kept {
  struct kept *next;
  at_arena *arena;
  at_str text;
  at_module *module;
  const at_tiles_plan *plan;
} kept;
static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static kept *g_kept;
static at_pool *g_pool;

// Parses and lowers the text in k's arena. FAILED_PRECONDITION: ATOLL_TARGET
// changed since the compile.
static at_status lay_out(at_str program, kept *k) {
  at_tiles_machine m;
  at_tiles_lower_options o = {0};
  if (!at_on_tiles(at_config_text(AT_CONFIG_TARGET), &m))
    return AT_FAIL(AT_FAILED_PRECONDITION,
                   "a program for tiles on target %s\nhint: ATOLL_TARGET=mk2",
                   at_config_text(AT_CONFIG_TARGET));
  AT_TRY_ALLOC(k->text.ptr, at_arena_str(k->arena, program));
  k->text.len = program.len;
  AT_TRY(at_hlo_parse(k->text, k->arena, &k->module));
  return at_tiles_lower(&m, k->module, &o, k->arena, &k->plan);
}

// Under g_lock. Linear in the programs that have run.
static at_status find_kept(at_str program, kept **out) {
  for (kept *k = g_kept; k; k = k->next)
    if (at_str_eq(k->text, program)) return *out = k, AT_OK;
  kept *k = calloc(1, sizeof *k);
  if (!k || !(k->arena = at_arena_create())) {
    free(k);
    return AT_NO_MEMORY("tiles");
  }
  at_status st = lay_out(program, k);
  if (at_ok(st) && !g_pool) st = at_pool_create(at_cpu_count(), &g_pool);
  if (!at_ok(st)) {
    at_arena_destroy(k->arena);
    free(k);
    return st;
  }
  k->next = g_kept;
  return *out = g_kept = k, AT_OK;
}

// INVALID_ARGUMENT: another number of arguments or results. Arguments are read
// in place.
static at_status run_kept(const kept *k, const void *const *args,
                          uint32_t num_args, void *const *results,
                          uint32_t num_results, at_arena *a) {
  const at_comp *c = k->module->entry;
  const at_literal **in, **out;
  if (num_args != c->num_params || num_results != c->num_results)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "a program of %u arguments and %u results was given %u and "
                   "%u",
                   c->num_params, c->num_results, num_args, num_results);
  AT_TRY_ALLOC(in, at_new(a, const at_literal *, num_args + 1));
  AT_TRY_ALLOC(out, at_new(a, const at_literal *, num_results + 1));
  for (uint32_t i = 0; i < num_args; i++)
    AT_TRY(at_literal_make(a, c->params[i]->types[0], args[i], false, true,
                           &in[i]));
  AT_TRY(at_tiles_plan_run(k->plan, in, g_pool, a, out, NULL));
  for (uint32_t i = 0; i < num_results; i++)
    memcpy(results[i], out[i]->data, at_type_bytes(&out[i]->type));
  return AT_OK;
}

// The lock is held while the program runs: the pool is shared.
at_status at_on_tiles_call(at_bytes program, const void *const *args,
                           uint32_t num_args, void *const *results,
                           uint32_t num_results) {
  kept *k;
  at_str text = {(const char *)program.ptr, program.len};
  at_arena *a = at_arena_create();
  if (!a) return AT_NO_MEMORY("tiles");
  pthread_mutex_lock(&g_lock);
  at_status st = find_kept(text, &k);
  if (at_ok(st)) st = run_kept(k, args, num_args, results, num_results, a);
  pthread_mutex_unlock(&g_lock);
  at_arena_destroy(a);
  return st;
}

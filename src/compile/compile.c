// The pipeline from a program's bytes to an executable, in the order in which
// it runs:
//
// - start: options are read, and the keys of the cache are made (make_key).
//   The program itself is parsed here when it is MLIR, since its meaning,
//   without its places, is part of the key.
// - find_cached: an executable of the disk cache ends the story here.
// - read_program: the reader for its form makes an at_module; the request
//   sets device counts and which shardings may be chosen.
// - optimise: the passes (passes/pipeline.c) with what other rooms do before
//   fusion, then the order of nodes, then latency hiding.
// - place: which code computes each node (steps.c), and the memory plan.
// - write_executable: steps and constants into a writer, code generation of
//   all kernels on several threads, then inputs, outputs, costs.
//
// All of it works on one `job` in one arena; nothing survives but the block
// that at_writer_finish makes. `atoll dump` stops the same pipeline at a stage
// (dump_stage).
#include "compile/compile.h"
#include "compile/on_tiles.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/cpu.h"
#include "base/finding.h"
#include "base/log.h"
#include "base/protobuf.h"
#include "base/verify.h"
#include "base/walk.h"
#include "codegen/codegen.h"
#include "compile/apart.h"
#include "compile/cache.h"
#include "compile/core.h"
#include "compile/donation.h"
#include "compile/layouts.h"
#include "compile/nan.h"
#include "compile/places.h"
#include "compile/settings.h"
#include "compile/sharding.h"
#include "compile/sparse.h"
#include "compile/stablehlo.h"
#include "compile/steps.h"
#include "cost/count.h"
#include "estimate/estimate.h"
#include "hloproto/hloproto.h"
#include "import/import.h"
#include "mlir/mlir.h"
#include "passes/passes.h"
#include "schedule/overlap.h"
#include "schedule/schedule.h"

// One compile. Fields are filled in the order of the pipeline above; each is
// written by one stage and only read afterwards.
typedef struct job {
  at_arena *arena;
  at_bytes program, rewritten;
  at_compile_request request;
  at_spinput_flags sparse;
  bool has_request;  // else the module says how many devices there are
  uint64_t cpu;
  uint32_t threads;
  size_t near_bytes, last_bytes;  // caches; 0: of a CPU that is not this one
  bool verify, placements;
  bool shown;  // the program is for people, not for code
  const char *dump_dir;
  char dump_prefix[80];
  int dumps;
  const at_mmodule *mlir;  // NULL: the program is hlo text or a proto
  bool is_proto;
  at_hloproto_form form;
  at_places places;  // of mlir
  at_module *module;
  at_map choices;
  at_plan plan;
  at_cg *cg;
  at_cache_key key;
  at_digest meaning;  // of the program and its options, alike on all machines
  const at_estimate *memory;   // of the target; NULL: it is no TPU
  const at_tiles_plan *tiles;  // NULL: the target is no machine of tiles
} job;

// ---- Dumps
// One file of the dump: folder/program.NN.stage, numbered in the order of the
// stages. What cannot be written is left out.
static void write_dump(job *j, const char *stage, at_str text) {
  char path[4096];
  int n = snprintf(path, sizeof path, "%s/%s.%02d.%s", j->dump_dir,
                   j->dump_prefix, j->dumps++, stage);
  FILE *f = n > 0 && (size_t)n < sizeof path ? fopen(path, "w") : NULL;
  if (!f) return;
  fwrite(text.ptr, 1, text.len, f);
  fclose(f);
}

// A dump that fails must not fail the compile that it explains.
static void dump_module(void *user, const char *pass, const at_module *m) {
  job *j = user;
  at_strbuf b = {0};
  char stage[96];
  snprintf(stage, sizeof stage, "%s.hlo", pass);
  at_status st = at_hlo_print(m, &b);
  if (!st.err) write_dump(j, stage, at_strbuf_str(&b));
  at_status_free(st);
  at_strbuf_free(&b);
}

// ---- Front
// The device counts that the program and the request settled on.
static at_status check_request(const job *j) {
  int64_t replicas = j->module->num_replicas,
          partitions = j->module->num_partitions;
  int64_t devices;
  if (replicas < 1 || partitions < 1 ||
      __builtin_mul_overflow(replicas, partitions, &devices) ||
      devices > AT_MAX_DEVICES)
    return AT_FAIL(
        AT_INVALID_ARGUMENT,
        "a program over %lld replicas x %lld partitions: 1 to %d devices are "
        "possible",
        (long long)replicas, (long long)partitions, AT_MAX_DEVICES);
  return AT_OK;
}

// One flag for all, or one each.
static bool allowed(const bool *list, uint32_t n, uint32_t i) {
  return n == 1 ? list[0] : i < n && list[i];
}

// Results that state no sharding may get one: as JAX asks, and as Shardy does
// where a request says nothing of them.
static void open_results(at_module *m) {
  for (uint32_t i = 0; m->results && i < m->entry->num_results; i++)
    m->results[i].open = !m->results[i].sharding;
}

// Device counts, and which arguments and results the compiler may choose
// shardings for: the request's, or the module's own.
static void apply_request(job *j) {
  at_module *m = j->module;
  const at_compile_request *r = &j->request;
  if (!j->has_request) {
    open_results(m);
    return;
  }
  m->num_replicas = r->num_replicas;
  m->num_partitions = r->num_partitions;
  for (uint32_t i = 0; m->params && i < m->entry->num_params; i++)
    m->params[i].open =
        allowed(r->allow_spmd_sharding_propagation_to_parameters,
                r->num_allow_parameters, i);
  if (r->use_shardy && !r->num_allow_output) {
    open_results(m);
    return;
  }
  for (uint32_t i = 0; m->results && i < m->entry->num_results; i++)
    m->results[i].open = allowed(r->allow_spmd_sharding_propagation_to_output,
                                 r->num_allow_output, i);
}

// Bytes to j->module, by whichever reader its form has. May be called again for
// a fresh module (read_again).
static at_status read_program(job *j) {
  at_str text = {(const char *)j->program.ptr, j->program.len};
  if (j->mlir)
    AT_TRY(at_import(j->mlir, j->arena, &j->module));
  else if (j->is_proto)
    AT_TRY(at_hloproto_read(j->program, j->form, j->arena, &j->module));
  else
    AT_TRY(at_hlo_parse(text, j->arena, &j->module));
  apply_request(j);
  AT_TRY(at_layouts_settle(j->module));
  snprintf(j->dump_prefix, sizeof j->dump_prefix, "%.48s.%08x",
           j->module->name ? j->module->name : "module",
           (unsigned)j->key.program.h[0]);
  for (char *p = j->dump_prefix; *p; p++)
    if (*p == '/') *p = '_';
  return check_request(j);
}

// What a schedule may add to the memory of values that live at once.
static const double kMemoryGrowth = 1.25;

// What the steps took in a previous run.
static at_status read_costs(job *j, const at_cost_profile **out) {
  const char *path = at_config_text(AT_CONFIG_COSTS);
  return *path ? at_cost_profile_open(path, j->arena, out) : AT_OK;
}

// A plain host: its costs only decide the order of steps, so that a program
// compiles to the same ones everywhere.
static at_status host_target(job *j, at_target **out) {
  const at_machine *host;
  AT_TRY(at_machine_find(AT_STR("cpu"), &host));
  return at_target_make(host, AT_INTERP_ATOLL, j->arena, out);
}

// Collectives of several devices become asynchronous where other work can lie
// between.
static at_status hide_latency(job *j) {
  at_target *t;
  at_overlap found;
  at_lhs_options o = {.growth = kMemoryGrowth, .reruns = 5};
  if (j->module->num_replicas * j->module->num_partitions < 2 ||
      !at_config_flag(AT_CONFIG_LATENCY_HIDING))
    return AT_OK;
  AT_TRY(host_target(j, &t));
  AT_TRY(read_costs(j, &t->profile));
  // All devices share the host.
  t->devices_per_chip =
      (uint32_t)(j->module->num_replicas * j->module->num_partitions);
  return at_overlap_apply(j->module, t, &o, j->arena, &found);
}

// Less is not worth waking another thread.
static const double kBesideSeconds = 50e-6;

// Lookups and updates run beside the dense part of a step that does not wait
// for them: one that jax-tpu-embedding has pipelined.
static at_status run_sparse_beside(job *j) {
  at_target *t;
  uint32_t calls;
  at_beside b = {at_sparse_is_call, at_sparse_seconds, kBesideSeconds};
  if (j->sparse.disable_pipelining || !at_sparse_cores() ||
      !at_config_flag(AT_CONFIG_LATENCY_HIDING))
    return AT_OK;
  AT_TRY(host_target(j, &t));
  return at_overlap_beside(j->module, t, &b, j->arena, &calls);
}

// The program once more, as it came.
static at_status read_again(job *j, at_module **out) {
  at_module *kept = j->module;
  AT_TRY(read_program(j));
  *out = j->module;
  j->module = kept;
  return AT_OK;
}

static bool same_type(at_value x, at_value y) {
  return at_type_eq(at_value_type(x), at_value_type(y));
}

// INVALID_ARGUMENT: a parameter or a result that is missing, or of another
// type.
static at_status check_rewritten(const at_comp *was, const at_comp *is) {
  bool same =
      was->num_params == is->num_params && was->num_results == is->num_results;
  for (uint32_t i = 0; same && i < was->num_params; i++)
    same =
        same_type((at_value){was->params[i], 0}, (at_value){is->params[i], 0});
  for (uint32_t i = 0; same && i < was->num_results; i++)
    same = same_type(was->results[i], is->results[i]);
  return same ? AT_OK
              : AT_FAIL(AT_INVALID_ARGUMENT,
                        "a program that was rewritten has other parameters or "
                        "results than before");
}

// From here on, m computes what the client made of it.
static at_status take_rewritten(at_module *m, void *user) {
  job *j = user;
  at_module *n;
  if (!j->rewritten.len) return AT_OK;
  AT_TRY(at_hloproto_read(j->rewritten, AT_HLOPROTO_MODULE, j->arena, &n));
  n->num_replicas = m->num_replicas;
  n->num_partitions = m->num_partitions;
  // As the program itself is here: no calls, no ops by another name.
  static const at_pass_fn front[] = {at_pass_inline, at_pass_named,
                                     at_pass_expand};
  at_pass_options o = {.fold_budget = 1 << 22};
  for (size_t i = 0; i < AT_LEN(front); i++) AT_TRY(front[i](n, &o));
  AT_TRY(check_rewritten(m->entry, n->entry));
  at_map map = at_map_in(j->arena);
  at_comp *entry;
  AT_TRY(at_comp_clone(m, n->entry, &map, &entry));
  entry->name = m->entry->name;
  m->entry = entry;
  return at_module_keep(m, entry);
}

// JAX's program of eigenvectors of more rows than this is one op here
// (at_pass_options.eigen), and a long program on a chip.
enum { kMostRows = 256 };

// Is there an "Eigh" of more than kMostRows rows, which stands for a program?
static at_status has_eigen(const at_module *m, at_arena *a, bool *out) {
  at_walk w = at_walk_in(a);
  *out = false;
  at_walk_add(&w, m->entry, 0);
  for (at_walk_step s; at_walk_next(&w, &s);) {
    AT_FOR_NODES(n, (const at_comp *)s.item) {
      for (uint32_t i = 0; i < n->num_regions; i++)
        at_walk_add(&w, n->regions[i], 0);
      if (n->op != AT_OP_CUSTOM_CALL || !n->num_operands ||
          !at_str_is(at_node_str(n, AT_ATTR_CALL_TARGET_NAME), "Eigh"))
        continue;
      const at_type *t = at_value_type(n->operands[0]);
      *out |= t->rank && t->dims[t->rank - 1] > kMostRows;
    }
  }
  return at_walk_status(&w);
}

// What the program takes of a chip's memory: of the values that XLA would have,
// before any of it is changed for this machine. What an estimate says, too.
static at_status plan_memory(at_module *m, void *user) {
  job *j = user;
  const at_machine *chip = at_core_chip();
  bool eigen;
  at_target *t;
  if (!chip || j->shown) return AT_OK;
  AT_TRY(has_eigen(m, j->arena, &eigen));
  if (eigen) {
    at_pass_options o = {.placements = true,
                         .fold_budget = 1 << 22,
                         .before_recognise = take_rewritten,
                         .user = j};
    AT_TRY(read_again(j, &m));
    AT_TRY(at_passes_run(m, &o, false, NULL, NULL));
  }
  AT_TRY(at_target_make(chip, AT_INTERP_ATOLL, j->arena, &t));
  return at_estimate_memory(m, t, j->arena, &j->memory);
}

// What other rooms do between the passes that move data and the one that
// gathers work: each adds or looks at nodes that must stay apart.
static at_status before_fuse(at_module *m, void *user) {
  (void)user;
  AT_TRY(at_nan_refuse(m));
  AT_TRY(at_core_fuse(m));
  return at_config_has(AT_WORD_CHECK_NAN) ? at_nan_watch(m) : AT_OK;
}

// For code, or for who looks at the program (shown).
static at_pass_options pass_options(job *j) {
  return (at_pass_options){
      .fuse = true,
      .unroll = at_config_flag(AT_CONFIG_LATENCY_HIDING),
      .placements = j->placements,
      .small_products = !j->shown,
      .eigen = !j->shown,
      .fold_budget = at_config_has(AT_WORD_CHECK_NAN) ? 0 : 1 << 22,
      .bf16_dots = at_config_word(AT_CONFIG_NUMERICS) == AT_WORD_NUMERICS_TPU,
      .sparse_cores = at_sparse_cores(),
      .before_recognise = take_rewritten,
      .before_unroll = plan_memory,
      .before_fuse = before_fuse,
      .user = j};
}

// Passes, then order, then what runs beside each other. From here on nodes stay
// where they are.
static at_status optimise(job *j) {
  at_pass_options o = pass_options(j);
  bool dump = j->dump_dir && *j->dump_dir;
  if (dump) dump_module(j, "import", j->module);
  AT_TRY(at_passes_run(j->module, &o, j->verify, dump ? dump_module : NULL, j));
  if (dump && j->module->notes)
    write_dump(j, "partition.txt", at_str_of(j->module->notes));
  AT_TRY(at_schedule_order(j->module));
  AT_TRY(hide_latency(j));
  AT_TRY(run_sparse_beside(j));
  if (dump) dump_module(j, "schedule", j->module);
  return j->verify ? at_verify(j->module, "schedule") : AT_OK;
}

// ---- Machines of tiles
// The program once more, as it came: its layout on the tiles, cycles and
// memory.
static at_status lay_on_tiles(job *j) {
  at_tiles_machine machine;
  if (!at_on_tiles(at_config_text(AT_CONFIG_TARGET), &machine)) return AT_OK;
  at_module *m, *kept = j->module;
  AT_TRY(read_again(j, &m));
  at_pass_options o = {.fold_budget = 1 << 22};
  AT_TRY(at_on_tiles_plan(&machine, m, &o, j->arena, &j->tiles));
  if (at_on_tiles_runs()) {
    at_strbuf program = {0};
    at_status st = at_hlo_print(m, &program);
    if (at_ok(st))
      st =
          at_on_tiles_wrap(kept, at_strbuf_str(&program), j->arena, &j->module);
    at_strbuf_free(&program);
    AT_TRY(st);
  }
  if (!*j->dump_dir) return AT_OK;
  at_strbuf text = {0}, page = {0};
  at_tiles_report_text(j->tiles, &text);
  at_tiles_report_html(j->tiles, m->name ? m->name : "program", &page);
  write_dump(j, "tiles.txt", at_strbuf_str(&text));
  write_dump(j, "tiles.html", at_strbuf_str(&page));
  at_strbuf_free(&text);
  at_strbuf_free(&page);
  return AT_OK;
}

// ---- Back
// The planner's question, answered by who computes the node.
static bool can_alias(void *user, const at_node *n, uint32_t result,
                      uint32_t operand) {
  return at_steps_can_alias(user, n, result, operand);
}

// Which code computes each node, and where every value lives. Adds COPY nodes.
static at_status place(job *j) {
  AT_TRY(at_donation_settle(j->module, j->arena));
  AT_TRY(at_steps_fill_splats(j->module));
  AT_TRY(at_steps_choose(j->module, j->arena, &j->choices));
  at_plan_hooks hooks = {can_alias, &j->choices};
  AT_TRY(at_plan_memory(j->module, &hooks, j->arena, &j->plan));
  return j->verify ? at_plan_verify(j->module, &j->plan) : AT_OK;
}

// One parameter or result as clients ask about it.
static at_status write_io(job *j, at_writer *w, at_xsection s, at_value v,
                          const at_io_info *info, int32_t alias,
                          uint64_t *bytes) {
  at_xio io = {.alias = alias, .slot = at_plan_slot(&j->plan, v)};
  AT_TRY(at_writer_type(w, at_value_type(v), &io.type));
  if (info) {
    io.donated = s == AT_XS_INPUTS && info->donor;
    io.must_alias = s == AT_XS_INPUTS && alias >= 0;
    AT_TRY(at_writer_string(w, at_str_of(info->memory_kind), &io.memory_kind));
    AT_TRY(at_writer_string(w, at_str_of(info->name), &io.name));
    AT_TRY(at_writer_string(w, at_str_of(info->layout), &io.layout));
  }
  if (j->module->num_partitions > 1) {
    const char *sharding;
    AT_TRY(at_sharding_hlo_text(info ? info->sharding : NULL,
                                j->module->mesh_text, at_value_type(v)->rank,
                                j->arena, &sharding));
    AT_TRY(at_writer_string(w, at_str_of(sharding), &io.sharding));
  }
  *bytes += at_type_bytes(at_value_type(v));
  return at_writer_append(w, s, &io, 1, NULL);
}

// Inputs, then outputs; sums their bytes into the header.
static at_status write_ios(job *j, at_writer *w, at_xheader *h) {
  const at_module *m = j->module;
  const at_comp *c = m->entry;
  for (uint32_t i = 0; i < c->num_params; i++) {
    const at_io_info *info = m->params ? &m->params[i] : NULL;
    at_value v = {c->params[i], 0};
    AT_TRY(write_io(j, w, AT_XS_INPUTS, v, info, info ? info->alias : -1,
                    &h->host_argument_bytes));
    if (info && info->alias >= 0)
      h->alias_bytes += at_type_bytes(at_value_type(v));
  }
  int32_t *takers;
  AT_TRY(at_donation_takers(m, j->arena, &takers));
  for (uint32_t r = 0; r < c->num_results; r++)
    AT_TRY(write_io(j, w, AT_XS_OUTPUTS, c->results[r],
                    m->results ? &m->results[r] : NULL, takers[r],
                    &h->output_bytes));
  return AT_OK;
}

// Generates all kernels that the steps asked for, on several threads, and
// copies objects and names.
static at_status write_code(job *j, at_writer *w) {
  at_cg_output o;
  AT_TRY(at_cg_finish(j->cg, j->arena, &o));
  for (uint32_t i = 0; i < o.num_objects; i++) {
    AT_TRY(at_writer_align(w, AT_XS_CODE, 64));
    at_xobject x = {w->sections[AT_XS_CODE].len, o.objects[i].len};
    AT_TRY(at_writer_append(w, AT_XS_CODE, o.objects[i].ptr, o.objects[i].len,
                            NULL));
    AT_TRY(at_writer_append(w, AT_XS_OBJECTS, &x, 1, NULL));
  }
  for (uint32_t i = 0; i < o.num_kernels; i++) {
    at_xkernel k = o.kernels[i];
    at_str name = at_str_of(o.strings.ptr + k.symbol);
    AT_TRY(at_writer_string(w, name, &k.symbol));
    AT_TRY(at_writer_append(w, AT_XS_KERNELS, &k, 1, NULL));
  }
  return AT_OK;
}

// What cost_analysis() of the executable says, by XLA's names.
static at_status write_costs(at_writer *w, const at_count *c, double ns,
                             const at_tiles_plan *tiles) {
  double cycles = tiles ? (double)tiles->cycles : 0;
  if (tiles) ns = cycles / tiles->machine->clock_hz * 1e9;
  const struct {
    const char *name;
    double value;
  } rows[] = {{"flops", c->flops},
              {"transcendentals", c->transcendentals},
              {"bytes accessed", c->bytes_accessed},
              {"optimal_seconds", ns * 1e-9},
              {"tile cycles", cycles},
              {"tile peak bytes", tiles ? (double)tiles->peak_bytes : 0}};
  for (size_t i = 0; i < AT_LEN(rows) - (tiles ? 0 : 2); i++) {
    at_xproperty p = {.value = rows[i].value};
    AT_TRY(at_writer_string(w, at_str_of(rows[i].name), &p.name));
    AT_TRY(at_writer_append(w, AT_XS_PROPERTIES, &p, 1, NULL));
  }
  return AT_OK;
}

// On the target; where that is no TPU, as on this machine.
static at_status write_memory(job *j, at_writer *w, at_xheader *h) {
  const at_estimate *e = j->memory;
  h->hbm_argument_bytes = e ? e->argument_bytes : h->host_argument_bytes;
  h->hbm_output_bytes = e ? e->output_bytes : h->output_bytes;
  h->hbm_alias_bytes = e ? e->alias_bytes : h->alias_bytes;
  h->hbm_temp_bytes = e ? e->temp_bytes : h->temp_bytes;
  if (!e) return AT_OK;
  at_strbuf b = {0};
  at_estimate_largest(e, 8, &b);
  const char *largest, *advice = at_estimate_memory_advice(e);
  AT_TRY_ALLOC(largest, at_strbuf_move(&b, j->arena));
  AT_TRY(at_writer_string(w, at_str_of(largest), &h->largest));
  return at_writer_string(w, at_str_of(advice), &h->advice);
}

// Where loops that are one kernel are printed, and plans of Pallas kernels;
// NULL: nowhere.
static at_status write_executable(job *j, at_strbuf *nests, at_strbuf *plans,
                                  at_bytes *out) {
  at_writer w;
  AT_TRY(at_writer_init(&w, j->arena));
  at_xheader h = {.num_replicas = (uint32_t)j->module->num_replicas,
                  .num_partitions = (uint32_t)j->module->num_partitions,
                  .cpu_features = j->cpu};
  memcpy(h.fingerprint, j->meaning.h, sizeof h.fingerprint);
  AT_TRY(at_writer_string(&w, at_str_of(j->module->name), &h.name));
  at_count cost;
  at_counter counter = at_core_counter(j->arena);
  AT_TRY(at_count_of(j->module, &counter, &cost));
  AT_TRY(at_core_spread(j->module, j->arena));
  AT_TRY(place(j));
  at_cg_target target = {.cpu_features = j->cpu,
                         .threads = j->threads,
                         .opt_level = 2,
                         .near_bytes = j->near_bytes,
                         .last_bytes = j->last_bytes,
                         .verify = j->verify};
  AT_TRY(at_cg_create(&target, &j->cg));
  at_spinput_limits limits = {0};
  if (*j->sparse.max_ids_file)
    AT_TRY(at_spinput_limits_load(
        j->sparse.max_ids_file, j->sparse.estimate_max_ids, j->arena, &limits));
  at_emit_steps e = {.w = &w,
                     .cg = j->cg,
                     .plan = &j->plan,
                     .arena = j->arena,
                     .choices = j->choices,
                     .native.text = nests,
                     .plans = plans,
                     .num_devices = (uint32_t)(j->module->num_replicas *
                                               j->module->num_partitions),
                     .sparse = &j->sparse,
                     .limits = &limits,
                     .places = j->mlir ? &j->places : NULL};
  uint64_t sparse_bytes;
  AT_TRY(at_sparse_check_size(j->module, e.num_devices, &j->sparse, &limits,
                              j->arena, &sparse_bytes));
  AT_TRY(at_steps_emit(&e, j->module, &h.main_begin, &h.main_end));
  AT_TRY(write_code(j, &w));
  AT_TRY(at_core_finish(&e));
  AT_TRY(write_ios(j, &w, &h));
  AT_TRY(write_costs(&w, &cost, e.ns, j->tiles));
  h.temp_bytes = at_align_up(j->plan.temp_bytes + e.scratch_bytes, 64);
  h.sparse_bytes = sparse_bytes;
  h.peak_bytes = h.host_argument_bytes + h.output_bytes - h.alias_bytes +
                 h.temp_bytes + sparse_bytes;
  AT_TRY(write_memory(j, &w, &h));
  h.has_effects = e.has_effects;
  h.estimated_ns = e.ns;
  AT_VERIFY_OK(at_steps_verify(&w, &h));
  return at_writer_finish(&w, &h, out);
}

// ---- Facade
// What the options mean for the program. Which devices run it does not count.
static void add_request(const job *j, at_digest *d) {
  const at_compile_request *r = &j->request;
  at_digest_add_u64(d, j->has_request);
  at_digest_add_u64(d, (uint64_t)r->num_replicas);
  at_digest_add_u64(d, (uint64_t)r->num_partitions);
  at_digest_add_u64(d, r->use_shardy);
  at_digest_add(
      d, (at_bytes){
             (const uint8_t *)r->allow_spmd_sharding_propagation_to_parameters,
             r->num_allow_parameters});
  at_digest_add(
      d,
      (at_bytes){(const uint8_t *)r->allow_spmd_sharding_propagation_to_output,
                 r->num_allow_output});
}

// The program and its options by what they mean: clients write the same options
// in another order in every process, and locations differ from folder to
// folder.
static at_status read_meaning(job *j) {
  at_digest *d = &j->meaning;
  *d = at_digest_start(0);
  add_request(j, d);
  if (j->rewritten.len) at_digest_add(d, j->rewritten);
  if (at_str_starts((at_str){(const char *)j->program.ptr, j->program.len},
                    "hlo module"))
    return at_digest_add(d, j->program), AT_OK;
  j->is_proto = j->form != AT_HLOPROTO_UNKNOWN || at_hloproto_is(j->program);
  if (j->is_proto) {
    at_digest_add_u64(d, 1u + (uint64_t)j->form);
    return at_digest_add(d, j->program), AT_OK;
  }
  at_mmodule *m;
  AT_TRY(at_mlir_read(j->program, true, j->arena, &m));
  j->mlir = m;
  AT_TRY(at_places_read(&j->places, m, j->arena, d));
  j->key.places = j->places.said;
  // The program of a machine of tiles is kept as text, locations and all; so
  // are the places that checks of NaNs name.
  j->places.bound = at_on_tiles_runs() || at_config_has(AT_WORD_CHECK_NAN);
  return AT_OK;
}

// And what else the code depends on.
static at_status make_key(job *j) {
  AT_TRY(read_meaning(j));
  at_digest *d = &j->key.program;
  *d = at_digest_start(0);
  AT_TRY(at_settings_add(j->cpu, j->threads, &j->sparse, d));
  at_digest_add_u64(d, j->meaning.h[0]);
  at_digest_add_u64(d, j->meaning.h[1]);
  return AT_OK;
}

// `a`: where everything lives; the caller's.
static at_status start(job *j, at_bytes program, const at_compile_options *o,
                       at_arena *a) {
  *j = (job){.arena = a,
             .program = program,
             .rewritten = o->rewritten,
             .has_request = o->request.len > 0};
  static const at_hloproto_form forms[] = {
      [AT_PROGRAM_ANY] = AT_HLOPROTO_UNKNOWN,
      [AT_PROGRAM_HLO] = AT_HLOPROTO_MODULE,
      [AT_PROGRAM_HLO_WITH_CONFIG] = AT_HLOPROTO_WITH_CONFIG};
  j->form = forms[o->format];
  j->dump_dir = o->dump_dir ? o->dump_dir : at_config_text(AT_CONFIG_DUMP);
  AT_TRY(at_knobs_check());
  j->cpu = o->cpu_features ? o->cpu_features : at_cpu_features();
  j->threads = at_settings_threads(o->threads);
  if (!o->cpu_features) {
    j->near_bytes = at_cpu_cache_bytes(2);
    j->last_bytes = at_cpu_cache_bytes(3);
  }
  j->placements = o->placements;
  j->verify = o->verify_each || at_config_flag(AT_CONFIG_VERIFY);
  if (!a) return AT_NO_MEMORY("a compile");
  AT_TRY(at_compile_request_read(o->request, j->arena, &j->request));
  AT_TRY(at_sparse_flags(j->request.env_options, j->request.num_env_options,
                         &j->sparse));
  return make_key(j);
}

// Also of a job whose start failed.
static void end(job *j) {
  if (j->cg) at_cg_destroy(j->cg);
  at_arena_destroy(j->arena);
}

static _Atomic(uint64_t) num_compiled, num_cached;

// Each counter is read by itself: they need not be of one moment.
at_compile_counts at_compile_count(void) {
  return (at_compile_counts){num_compiled, num_cached, at_cg_modules_made(),
                             at_cg_instructions_made(),
                             at_cg_instructions_quick()};
}

// The program from the disk cache, with the places of this one.
// False also where the places of this program do not fit what the entry has: it
// is then compiled and put again.
static bool find_cached(job *j, at_bytes *out) {
  if (!at_cache_get(&j->key, out)) return false;
  if (!j->mlir || !at_code_take(at_places_put(&j->places, out))) return true;
  free((void *)out->ptr);
  return *out = (at_bytes){0}, false;
}

// A compile that the cache did not have.
// Dumps are written beside the work; a dump that fails does not fail the
// compile.
static at_status compile(job *j, at_bytes *out) {
  AT_TRY(read_program(j));
  AT_TRY(lay_on_tiles(j));
  AT_TRY(optimise(j));
  bool dump = *j->dump_dir;
  at_strbuf nests = {0}, plans = {0};
  at_status st =
      write_executable(j, dump ? &nests : NULL, dump ? &plans : NULL, out);
  if (!st.err) atomic_fetch_add(&num_compiled, 1);
  if (!st.err && dump) {
    at_strbuf b = {0};
    at_status dumped = at_steps_print(*out, &b);
    if (!dumped.err) write_dump(j, "steps.txt", at_strbuf_str(&b));
    if (nests.len) write_dump(j, "nests.txt", at_strbuf_str(&nests));
    if (plans.len) write_dump(j, "kernels.txt", at_strbuf_str(&plans));
    at_status_free(dumped);
    at_strbuf_free(&b);
  }
  at_strbuf_free(&nests);
  at_strbuf_free(&plans);
  return st;
}

// A line of the log, at level info.
static void tell(at_bytes x, bool cached, uint64_t start_ns) {
  if (!at_log_on(AT_LOG_INFO)) return;
  const at_xheader *h = (const at_xheader *)x.ptr;
  const char *name =
      (const char *)x.ptr + h->sections[AT_XS_STRINGS].offset + h->name;
  at_compile_counts c = at_compile_count();
  at_log(AT_LOG_INFO,
         "%.200s %s in %.1f ms; so far %llu compiled, %llu from the cache, "
         "%llu LLVM modules",
         name, cached ? "came from the cache" : "was compiled",
         (double)(at_clock_ns() - start_ns) * 1e-6,
         (unsigned long long)c.programs, (unsigned long long)c.cached,
         (unsigned long long)c.modules);
}

// A part that is missing because memory was, although each step went well.
static at_status whole(const job *j, at_status st) {
  return st.err || !j->arena ? st : at_arena_status(j->arena);
}

// On the calling thread, which at_compile has made for it. On failure *out is
// not written.
static at_status compile_here(at_bytes program, const at_compile_options *o,
                              at_bytes *out) {
  job j;
  uint64_t start_ns = at_clock_ns();
  uint32_t modes = at_cpu_fp_default();  // constants fold with denormals kept
  at_status st = start(&j, program, o, at_arena_create());
  // A dump and a verification want the passes to run.
  bool caches = !o->no_cache && !*j.dump_dir && !j.verify;
  at_bytes x = {0};
  bool cached = !st.err && caches && find_cached(&j, &x);
  unsigned long warnings = at_log_warnings();
  if (cached)
    atomic_fetch_add(&num_cached, 1);
  else if (!st.err)
    st = whole(&j, compile(&j, &x));
  // What was said of a program is said again next time.
  caches &= at_log_warnings() == warnings;
  if (!st.err && !cached && caches)
    at_cache_put(&j.key, j.mlir && !j.places.bound, x);
  end(&j);
  at_cpu_fp_restore(modes);
  if (st.err) {
    at_finding_note(st, "compile");
    free((void *)x.ptr);
    return st;
  }
  tell(x, cached, start_ns);
  return *out = x, AT_OK;
}

// A compile and what it works on, which outlive the caller where that goes
// away.
typedef struct compile_call {
  at_bytes program;
  at_compile_options options;
  at_bytes out;
  uint8_t own[];  // copies of the program and of what options say of it
} compile_call;

// On the compile's own thread.
static at_status run_call(void *arg) {
  compile_call *c = arg;
  return compile_here(c->program, &c->options, &c->out);
}

void at_compile_leave_all(void) { at_apart_leave_all(); }

// When nobody wants the result any more.
static void drop_call(void *arg) {
  compile_call *c = arg;
  free((void *)c->out.ptr);
  free(c);
}

// Where it goes on; the copy takes the place of *b.
static uint8_t *copy_bytes(uint8_t *to, at_bytes *b) {
  if (b->len) memcpy(to, b->ptr, b->len);
  b->ptr = to;
  return to + b->len;
}

// Runs compile_here on a thread of its own. Program and request are copied, as
// the work may outlive the call.
at_status at_compile(at_bytes program, const at_compile_options *o,
                     at_bytes *out) {
  AT_TRY(at_cpu_check());
  size_t copied = at_add(at_add(program.len, o->request.len), o->rewritten.len);
  compile_call *c = malloc(at_add(sizeof *c, copied));
  if (!c) return AT_NO_MEMORY("the program");
  *c = (compile_call){.program = program, .options = *o};
  uint8_t *to = copy_bytes(c->own, &c->program);
  to = copy_bytes(to, &c->options.request);
  copy_bytes(to, &c->options.rewritten);
  at_apart_job job = {run_call, drop_call, c, o->interrupted};
  bool left;
  at_status st = at_apart_run("compile", &job, &left);
  if (left) return st;
  *out = c->out;
  free(c);
  return st;
}

// As optimise, without what only code generation wants.
static at_status optimise_plainly(job *j) {
  at_pass_options o = {.fold_budget = 1 << 22};
  for (const at_pass *p = at_pipeline; p->name; p++) {
    if (p->run == at_pass_recognise || p->run == at_pass_fuse) continue;
    at_status st = at_pass_run(p, j->module, &o);
    if (st.err) return at_status_prefix(st, "pass %s", p->name);
  }
  return AT_OK;
}

// For clients that show what libtpu would: fusions, layouts, the schedule.
static at_status write_xla(job *j, const at_compile_options *o,
                           at_strbuf *out) {
  at_hloproto_write_options w = {.tiles = at_core_chip() != NULL,
                                 .sparse_cores = at_sparse_cores() > 0,
                                 .param_shardings = o->param_shardings,
                                 .result_shardings = o->result_shardings};
  j->placements = j->shown = true;
  AT_TRY(optimise(j));
  AT_TRY(at_core_tell_memory(j->module, j->arena));
  return at_hloproto_write(j->module, &w, out);
}

// For clients that rewrite the program before the rest of the pipeline takes
// it.
static at_status write_partitioned(job *j, at_strbuf *out) {
  at_hloproto_write_options w = {.tiles = at_core_chip() != NULL};
  at_strbuf whole = {0};
  j->shown = true;
  at_pass_options o = pass_options(j);
  for (const at_pass *p = at_pipeline; p->run != at_pass_recognise; p++)
    AT_TRY(at_pass_run(p, j->module, &o));
  at_status st = at_hloproto_write(j->module, &w, &whole);
  if (at_ok(st)) {
    at_bytes module =
        at_proto_bytes((at_bytes){(const uint8_t *)whole.ptr, whole.len}, 1);
    at_strbuf_add(out, (at_str){(const char *)module.ptr, module.len});
  }
  at_strbuf_free(&whole);
  return at_ok(st) ? at_strbuf_status(out) : st;
}

// Runs the pipeline as far as the stage and prints what is there.
static at_status dump_stage(job *j, const at_compile_options *o, at_stage s,
                            at_strbuf *out) {
  if (s == AT_STAGE_MLIR && j->mlir) {
    at_mlir_print_options o = {.locations = false, .elide_dense_over = 64};
    return at_mlir_print(j->mlir, &o, out);
  }
  AT_TRY(read_program(j));
  if (s == AT_STAGE_HLO || s == AT_STAGE_MLIR)
    return at_hlo_print(j->module, out);
  if (s == AT_STAGE_STABLEHLO) {
    AT_TRY(optimise_plainly(j));
    AT_TRY(at_core_fuse(j->module));
    AT_TRY(at_core_tell_memory(j->module, j->arena));
    return at_stablehlo_print(j->module, out);
  }
  if (s == AT_STAGE_XLA) return write_xla(j, o, out);
  if (s == AT_STAGE_PARTITIONED) return write_partitioned(j, out);
  AT_TRY(optimise(j));
  if (s == AT_STAGE_OPTIMIZED) return at_hlo_print(j->module, out);
  at_bytes x;
  AT_TRY(write_executable(j, s == AT_STAGE_NEST ? out : NULL, NULL, &x));
  at_status st = s == AT_STAGE_NEST ? at_strbuf_status(out)
                 : s == AT_STAGE_STEPS
                     ? at_steps_print(x, out)
                     : at_cg_print(j->cg, s == AT_STAGE_ASM, out);
  free((void *)x.ptr);
  return st;
}

// On the caller's thread: `atoll dump` has its own stack and nothing to
// interrupt it.
at_status at_compile_dump(at_bytes program, const at_compile_options *o,
                          at_stage s, at_strbuf *out) {
  job j;
  at_status st = start(&j, program, o, at_arena_create());
  if (!st.err) st = whole(&j, dump_stage(&j, o, s, out));
  end(&j);
  return st;
}

// A COPY whose operand lives in the same place is no step.
static void drop_views(const job *j, at_comp *c) {
  for (at_node *n = c->first, *next; n; n = next) {
    next = n->next;
    if (n->op == AT_OP_WHILE || n->op == AT_OP_IF || n->op == AT_OP_CASE)
      for (uint32_t r = 0; r < n->num_regions; r++)
        drop_views(j, n->regions[r]);
    at_value v = {n, 0};
    if (n->op != AT_OP_COPY || at_node_literal(n->operands[0].node) ||
        at_plan_slot(&j->plan, v) != at_plan_slot(&j->plan, n->operands[0]))
      continue;
    at_replace_uses(c, v, n->operands[0]);
    at_node_remove(n);
  }
}

// The arena is the caller's, so there is no end(): no code is made, and j.cg is
// NULL.
at_status at_compile_module(at_bytes program, const at_compile_options *o,
                            at_plan *plan, const at_estimate **memory,
                            at_arena *a, at_module **out) {
  job j;
  AT_TRY(start(&j, program, o, a));
  AT_TRY(read_program(&j));
  AT_TRY(optimise(&j));
  if (plan) {
    AT_TRY(place(&j));
    drop_views(&j, j.module->entry);
    *plan = j.plan;
  }
  if (memory) *memory = j.memory;
  *out = j.module;
  return whole(&j, AT_OK);
}

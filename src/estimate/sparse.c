// Lookups and updates of embedding tables: from a call of the program to what
// SparseCores do for it.
#include <math.h>

#include "estimate/sparse.h"
#include "estimate/walk.h"
#include "machine/machine.h"
#include "sparsecore/sparsecore.h"
#include "spinput/size.h"

bool at_est_is_sparse(const at_est_walk *w, const at_node *n) {
  return w->is_tpu && at_sc_is_engine(at_sc_kind_of(n));
}

// ---- Whose table it is
static at_value table_of(const at_node *n, const at_sc_call *c) {
  return at_est_behind(n->operands[c->operands[at_x_sparse_table(&c->x)]]);
}

// The last key in the name of the argument that it comes from, as JAX has it:
// of "tables['stack'].table" it is stack. An argument without a key gives its
// whole name.
static at_status name_of(at_est_walk *w, const at_node *n, const at_sc_call *c,
                         const char **out) {
  at_value v = table_of(n, c);
  const at_comp *in = v.node->parent;
  const at_io_info *params = in->module->params;
  const char *name = "";
  for (uint32_t i = 0; params && i < in->num_params; i++)
    if (in == in->module->entry && in->params[i] == v.node && params[i].name)
      name = params[i].name;
  at_str key = at_str_of(name);
  for (const char *at = name; (at = strstr(at, "['")); at += 2) {
    const char *end = strstr(at, "']");
    if (end) key = (at_str){at + 2, (size_t)(end - at - 2)};
  }
  AT_TRY_ALLOC(*out, at_arena_str(w->arena, key));
  return AT_OK;
}

// ---- How much it moves
// Where nobody says how ids are distributed, there are as many as the limits
// and the buffers allow.
static void count_by_limits(const at_sc_call *c, at_est_sparse_work *work,
                            at_estimate_embedding *e) {
  double most = (double)c->x.ids / c->x.scs_per_device;
  e->basis = "as many as limits allow";
  work->ids = most;
  if (c->x.max_ids)
    work->ids = fmin(most, (double)c->x.max_ids * work->partitions);
  work->unique = work->ids;
  if (c->x.max_unique)
    work->unique = fmin(work->ids, (double)c->x.max_unique * work->partitions);
  work->touched = fmin(work->unique, e->rows / work->partitions);
}

// From measured shares, or from a distribution over the table's rows. More than
// the limits of a partition: mini-batches, if the call allows them, 64 at most.
static void count_by_spec(const at_est_ids *s, const at_sc_call *c,
                          at_est_sparse_work *work, at_estimate_embedding *e) {
  double all = work->partitions;
  work->ids = s->per_sample * (double)c->x.samples / c->x.scs_per_device;
  if (s->unique >= 0) {
    e->basis = "measured";
    work->unique = s->unique * work->ids;
    work->touched = work->unique * (s->shared >= 0 ? s->shared : 1);
  } else {
    e->basis = s->zipf > 0 ? "power law" : "drawn evenly";
    work->unique = at_est_distinct(e->rows, work->ids, s->zipf);
    work->touched = at_est_distinct(e->rows, work->ids * all, s->zipf) / all;
  }
  work->touched = fmin(work->touched, e->rows / all);
  e->seen_ids = work->ids / all;
  e->seen_unique = work->unique / all;
  if (!c->x.minibatching || !c->x.max_ids || !c->x.max_unique) return;
  double parts = fmax(e->seen_ids / (double)c->x.max_ids,
                      e->seen_unique / (double)c->x.max_unique);
  work->minibatches = fmin(64, fmax(1, ceil(parts)));
}

// What the compiler makes of widths and limits.
static at_status size(at_est_walk *w, const at_sc_call *c,
                      at_estimate_embedding *e) {
  if (!c->x.max_ids || !c->x.max_unique) return AT_OK;
  at_str optimizer = at_str_of(c->optimizer ? c->optimizer->name : "");
  const char *dash =
      optimizer.len ? memchr(optimizer.ptr, '-', optimizer.len) : NULL;
  if (dash) optimizer.len = (size_t)(dash - optimizer.ptr);
  at_spinput_table t = {
      .name = *e->table ? e->table : e->name,
      .rows = (int64_t)fmin(e->rows, 1e18),
      .width = (int64_t)c->x.width,
      .max_ids = (int64_t)c->x.max_ids,
      .max_unique = (int64_t)c->x.max_unique,
      .coo_per_device = (int64_t)c->x.ids,
      .samples = (int64_t)c->x.samples,
      .element_bytes = (int32_t)at_dtype_bytes((at_dtype)c->x.dtype),
      .optimizer = e->update ? (int32_t)at_spinput_optimizer_of(optimizer)
                             : AT_SPINPUT_LOOKUP_ONLY,
      .slots = (int32_t)c->x.num_tables - 1};
  at_spinput_program p = {
      .devices = (int32_t)c->x.num_devices, .tables = &t, .table_count = 1};
  at_spinput_table_size s = {0};
  at_spinput_size all = {0};
  AT_TRY(at_spinput_chip_find(at_str_of(w->target->machine->name), &p.chip));
  at_status st = at_spinput_size_of(&p, &s, &all);
  e->tile_bytes = (double)s.spmem_bytes;
  e->tile_bytes_most = (double)p.chip.tile_bytes;
  e->stack_bytes = (double)(e->update ? s.backward_bytes : s.forward_bytes);
  if (!at_ok(st))  // the verdict is part of the report
    e->refusal = at_arena_str(w->arena, at_str_of(at_status_message(st)));
  at_status_free(st);
  return e->refusal ? AT_OK : AT_NO_MEMORY("embeddings");
}

// Counts of the device, from those of one SparseCore.
static void describe(const at_est_sparse_work *work, const at_sc_call *c,
                     at_estimate_embedding *e) {
  e->samples = (double)c->x.samples;
  e->slots = (double)c->x.num_tables - 1;
  e->max_ids = (double)c->x.max_ids;
  e->max_unique = (double)c->x.max_unique;
  e->minibatches = work->minibatches;
  e->ids = work->ids * c->x.scs_per_device;
  e->unique = work->unique * c->x.scs_per_device;
  e->touched = work->touched * c->x.scs_per_device;
}

// The stages run one after the other: seconds and bytes add up.
static void fill_op(const at_estimate_embedding *e, at_estimate_op *o) {
  double by[AT_BOUND_COUNT] = {0};
  for (uint32_t i = 0; i < e->num_stages; i++) {
    const at_estimate_stage *s = &e->stages[i];
    by[s->bound] += s->seconds;
    o->hbm_bytes += s->hbm_bytes;
    o->network_bytes += s->network_bytes;
  }
  o->seconds = e->seconds;
  o->vector = by[AT_BOUND_VECTOR];
  o->memory = by[AT_BOUND_MEMORY];
  o->latency = by[AT_BOUND_LATENCY];
  for (int b = 0; b < AT_BOUND_COUNT; b++)
    if (by[b] > by[o->bound]) o->bound = (at_bound)b;
  o->from = AT_COST_FROM_ROOFLINE;
  o->sparse = true;
}

// Reads the call, counts its ids, sizes its buffers, then times its stages.
at_status at_est_cost_sparse(at_est_walk *w, const at_node *n,
                             at_estimate_op *o) {
  const at_module *m = n->parent->module;
  double cores =
      at_machine_number(w->chip.machine, "sparse_cores_per_device", 0);
  uint32_t devices = (uint32_t)(m->num_replicas * m->num_partitions);
  at_sc_call *c;
  at_estimate_stage *stages;
  AT_TRY_ALLOC(c, at_new(w->arena, at_sc_call, 1));
  AT_TRY_ALLOC(stages, at_new(w->arena, at_estimate_stage, AT_EST_STAGES));
  at_est_sparse_chip chip;
  AT_TRY(at_sc_call_read(n, devices, (uint32_t)cores, c));
  AT_TRY(at_est_sparse_chip_of(&w->chip, &chip));
  double width = (double)c->x.width;
  at_estimate_embedding e = {.name = o->name,
                             .refusal = "",
                             .update = c->x.op == AT_SPARSE_UPDATE,
                             .rows = (double)c->x.rows * devices,
                             .width = width,
                             .padded_width = ceil(width / 8) * 8,
                             .count = o->count,
                             .stages = stages};
  AT_TRY(name_of(w, n, c, &e.table));
  if (!c->x.scs_per_device) c->x.scs_per_device = (uint32_t)chip.cores;
  chip.cores = c->x.scs_per_device;
  at_est_sparse_work work = {
      .update = e.update,
      .local = c->x.op == AT_SPARSE_LOCAL,
      .samples = (double)c->x.samples / c->x.scs_per_device,
      .width = e.padded_width,
      .element_bytes = at_dtype_bytes((at_dtype)c->x.dtype),
      .tables = c->x.num_tables,
      .minibatches = 1,
      .partitions = (double)devices * c->x.scs_per_device,
      .devices = devices};
  const at_est_ids *s = at_est_ids_of(w->options->lookups, at_str_of(e.table));
  if (s)
    count_by_spec(s, c, &work, &e);
  else
    count_by_limits(c, &work, &e);
  describe(&work, c, &e);
  AT_TRY(size(w, c, &e));
  AT_TRY(at_est_sparse_time(&chip, w->target, &work, stages, &e.num_stages,
                            &e.seconds));
  fill_op(&e, o);
  return at_vec_push(w->arena, &w->embeddings, e) ? AT_OK
                                                  : AT_NO_MEMORY("embeddings");
}

// ---- The whole program
static const char g_assumed[] =
    "SparseCores: from sizes, the machine's rates and the TPU compiler's "
    "estimates of single kernels; no chip was measured, and HBM is not shared "
    "with what runs beside them";
static const char g_unsaid[] =
    "how many ids lookups have is not said: as many as limits and buffers "
    "allow are counted (--lookups= tells)";
static const char g_sort[] =
    "there is no basis for the time of an update's sort: the bytes of two "
    "passes are counted";

// See walk.h. Says once which figures have no measured basis.
at_status at_est_end_sparse(at_est_walk *w) {
  at_estimate *e = w->e;
  e->embeddings = w->embeddings.ptr;
  e->num_embeddings = (uint32_t)w->embeddings.len;
  if (!e->num_embeddings) return AT_OK;
  bool said = true, updates = false;
  for (uint32_t i = 0; i < e->num_embeddings; i++) {
    said &= e->embeddings[i].seen_ids > 0;
    updates |= e->embeddings[i].update;
  }
  AT_TRY(at_est_note(w, g_assumed));
  if (!said) AT_TRY(at_est_note(w, g_unsaid));
  if (updates) AT_TRY(at_est_note(w, g_sort));
  at_est_lines lines = {0};
  AT_TRY(at_est_sparse_advice(e, w->arena, &lines));
  e->advice = lines.ptr;
  e->num_advice = (uint32_t)lines.len;
  return AT_OK;
}

// Loading: copy the block, check it, map its code, and turn steps into what the
// run loop reads: function pointers and (base, offset) pairs.
#include <stdlib.h>
#include <sys/mman.h>

#include "base/config.h"
#include "exec/exec_internal.h"

// Programs expected below this run on the caller's thread: handing them to
// another one would cost about as much. Several devices cost more to hand over.
static const double kSmallNs = 50e3;
static const double kLearnsNs = 1e8;  // what is expected to take longer is big

const at_xheader *at_loaded_header(const at_loaded *l) { return l->header; }

// Sections were checked at load.
const void *at_loaded_section(const at_loaded *l, at_xsection s,
                              uint64_t *out_count) {
  if ((unsigned)s >= AT_XS_COUNT) return *out_count = 0, NULL;
  *out_count = l->header->sections[s].count;
  return l->block + l->header->sections[s].offset;
}

static const void *section(const at_loaded *l, at_xsection s) {
  return l->block + l->header->sections[s].offset;
}

const char *at_loaded_string(const at_loaded *l, uint32_t offset) {
  if (offset >= l->header->sections[AT_XS_STRINGS].count) return "";
  return (const char *)section(l, AT_XS_STRINGS) + offset;
}

// Either of the two lives in the other's slot.
bool at_io_shares(const at_loaded *l, uint32_t input) {
  int32_t o = l->inputs[input].alias;
  if (o < 0) return false;
  const at_xslot *slots = section(l, AT_XS_SLOTS);
  return slots[l->inputs[input].slot].kind == AT_SLOT_OUTPUT ||
         slots[l->outputs[o].slot].kind == AT_SLOT_INPUT;
}

// An output without an alias that lives in an input's slot.
int32_t at_io_passes(const at_loaded *l, uint32_t output) {
  const at_xio *io = &l->outputs[output];
  const at_xslot *slot = (const at_xslot *)section(l, AT_XS_SLOTS) + io->slot;
  return io->alias < 0 && slot->kind == AT_SLOT_INPUT ? (int32_t)slot->index
                                                      : -1;
}

// num_objects counts those that at_loaded_release must unload.
static at_status load_objects(at_loaded *l) {
  const at_xobject *objects = section(l, AT_XS_OBJECTS);
  const uint8_t *code = section(l, AT_XS_CODE);
  uint32_t n = (uint32_t)l->header->sections[AT_XS_OBJECTS].count;
  l->objects = calloc(n + 1, sizeof *l->objects);
  if (!l->objects)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for %u objects", n);
  for (uint32_t i = 0; i < n; i++) {
    at_bytes elf = {code + objects[i].offset, objects[i].bytes};
    AT_TRY(at_object_load(elf, &l->objects[i]));
    l->num_objects = i + 1;
  }
  return AT_OK;
}

// By name in the symbol table of its object.
at_status at_loaded_kernel(const at_loaded *l, uint32_t kernel, void **out) {
  const at_xkernel *k = (const at_xkernel *)section(l, AT_XS_KERNELS) + kernel;
  const char *name = at_loaded_string(l, k->symbol);
  *out = at_object_symbol(l->objects[k->object], name);
  if (*out) return AT_OK;
  return AT_FAIL(AT_INVALID_ARGUMENT,
                 "malformed executable: object %u has no symbol %.200s",
                 k->object, name);
}

// A slot as the run loop reads it.
static at_ref ref_of(const at_loaded *l, const at_xslot *s) {
  switch (s->kind) {
    case AT_SLOT_TEMP:
      return (at_ref){AT_BASE_TEMP, s->offset};
    case AT_SLOT_CONST:
      return (at_ref){AT_BASE_CONST, s->offset};
    case AT_SLOT_INPUT:
      return (at_ref){AT_BASE_INPUTS + s->index, s->offset};
    case AT_SLOT_OUTPUT:
      return (at_ref){AT_BASE_INPUTS + l->num_inputs + s->index, s->offset};
    default:
      return (at_ref){AT_BASE_NOTHING, 0};
  }
}

// Kernels that talk begin together: all devices of the launch are one group.
static at_status prepare_kernel_meeting(at_loaded *l, at_op *op) {
  at_coll *c = &l->colls[l->num_colls];
  AT_TRY(at_coll_everyone(l->num_devices, c));
  c->turns = l->num_meetings;
  c->meetings = l->num_meetings + 1;
  l->num_meetings += 2;
  op->target = l->num_colls++;
  op->meets = l->meets = true;
  return AT_OK;
}

// Does no device need another for it?
static bool is_solitary(const at_x_collective *x, const at_coll *c) {
  if (x->kind == AT_COLL_PARTITION_ID || x->kind == AT_COLL_REPLICA_ID)
    return true;
  for (uint32_t d = 0; d < x->num_devices; d++)
    if (c->group_of[d] != UINT32_MAX && c->size_of[d] > 1) return false;
  return true;
}

// Counters in the task's meetings, the order of summands, and the kernels of
// reductions or of the SparseCore's optimizer.
static at_status prepare_collective(at_loaded *l, at_op *op) {
  at_coll *c = &l->colls[l->num_colls];
  op->meets = true;
  const at_x_collective *x = op->params;
  at_coll_prepare(x, c);
  l->meets |= c->sparse || !is_solitary(x, c);
  c->turns = l->num_meetings;
  c->meetings = l->num_meetings + 1;
  l->num_meetings += 1 + x->num_groups;
  if (op->kind == AT_STEP_START) {
    c->started = l->num_meetings;
    c->moved = c->started + x->num_devices;
    l->num_meetings += x->num_devices + x->num_groups;
    l->num_beside += c->sparse != NULL;
  }
  op->target = l->num_colls++;
  AT_TRY(at_coll_order(c));
  c->kernels = l->coll_kernels + l->num_coll_kernels;
  for (uint32_t i = 0; c->sparse && i < c->sparse->num_launches; i++) {
    void *address;
    AT_TRY(at_loaded_kernel(l, at_x_sparse_launches(c->sparse)[i].kernel,
                            &address));
    l->coll_kernels[l->num_coll_kernels++] = (at_kernel_fn)address;
  }
  for (uint32_t i = 0; i < x->num_values; i++) {
    uint32_t ids[2] = {c->values[i].block, c->values[i].tail};
    for (int k = 0; k < 2; k++) {
      void *address = NULL;
      if (ids[k] != UINT32_MAX) AT_TRY(at_loaded_kernel(l, ids[k], &address));
      l->coll_kernels[l->num_coll_kernels++] = (at_kernel_fn)address;
    }
  }
  return AT_OK;
}

// Room for the collectives of all steps, so that nothing moves afterwards.
static at_status make_collectives(at_loaded *l, const at_xstep *steps,
                                  uint32_t n) {
  size_t colls = 0, kernels = 0;
  for (uint32_t i = 0; i < n; i++) {
    colls += at_core_communicates(l, &steps[i]);
    if (steps[i].kind != AT_STEP_COLLECTIVE && steps[i].kind != AT_STEP_START)
      continue;
    const at_x_collective *x =
        (const void *)((const uint8_t *)section(l, AT_XS_PARAMS) +
                       steps[i].params);
    at_coll c;
    at_coll_prepare(x, &c);
    colls++;
    kernels += 2 * (size_t)x->num_values;
    if (c.sparse) kernels += c.sparse->num_launches;
  }
  l->colls = calloc(colls + 1, sizeof *l->colls);
  l->coll_kernels = calloc(kernels + 1, sizeof *l->coll_kernels);
  if (!l->colls || !l->coll_kernels)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory to load a program");
  return AT_OK;
}

// Levels of control flow in a range of steps. Ranges form a tree of bounded
// height (check.c).
static uint32_t depth_of(const at_loaded *l, const at_xstep *steps,
                         uint32_t begin, uint32_t end) {
  uint32_t most = 0;
  for (uint32_t i = begin; i < end; i++) {
    const at_xstep *s = &steps[i];
    if (s->kind != AT_STEP_WHILE && s->kind != AT_STEP_CASE) continue;
    const uint32_t *a = l->args + s->args;
    for (uint32_t k = 1; k + 1 < s->num_args; k += 2) {
      uint32_t inner = depth_of(l, steps, a[k], a[k + 1]);
      most = AT_MAX(most, inner);
    }
  }
  return most + 1;
}

// The step's buffers as (base, offset), and what its kind looks up once. A DONE
// shares the target of its START.
static at_status prepare_op(at_loaded *l, const at_xstep *s, at_op *op) {
  const at_xslot *slots = section(l, AT_XS_SLOTS);
  *op = (at_op){.kind = s->kind,
                .target = s->target,
                .args = s->args,
                .num_args = s->num_args,
                .tasks = s->tasks,
                .grain = s->grain,
                .aux = s->aux,
                .params = (const uint8_t *)section(l, AT_XS_PARAMS) + s->params,
                .params_bytes = s->params_bytes};
  bool control = s->kind == AT_STEP_WHILE || s->kind == AT_STEP_CASE;
  uint32_t num_slots = control ? 1 : s->num_args;
  for (uint32_t i = 0; i < num_slots; i++)
    l->arg_refs[s->args + i] = ref_of(l, &slots[l->args[s->args + i]]);
  void *address = NULL;
  if (s->kind == AT_STEP_KERNEL) {
    AT_TRY(at_loaded_kernel(l, s->target, &address));
    op->fn = (at_kernel_fn)address;
  }
  if (s->kind == AT_STEP_COLLECTIVE || s->kind == AT_STEP_START)
    AT_TRY(prepare_collective(l, op));
  if (s->kind == AT_STEP_DONE)
    op->target = op[-op->tasks].target, op->meets = true;
  if (s->kind == AT_STEP_RUNTIME) {
    op->kernel = at_k_of((at_rt_kernel)s->target);
    const at_k_sort_params *sort = op->params;
    if (s->target == AT_RT_SORT && sort->order == AT_ORDER_CUSTOM) {
      AT_TRY(at_loaded_kernel(l, sort->comparator, &address));
      op->compare = (at_comparator_fn)address;
    }
  }
  if (s->kind == AT_STEP_CUSTOM)
    AT_TRY(at_custom_check(at_loaded_string(l, s->target)));
  if (s->kind == AT_STEP_CORE) AT_TRY(at_core_prepare(l, s, op));
  if (at_core_communicates(l, s)) AT_TRY(prepare_kernel_meeting(l, op));
  return AT_OK;
}

// What the program alone needs at once: scratch, and outputs that no donated
// input brings along.
static uint64_t program_bytes(const at_loaded *l, const at_hw *hw) {
  uint64_t n = l->header->temp_bytes;
  for (uint32_t o = 0; o < l->num_outputs; o++) {
    const at_xtype *t = at_io_type(l, &l->outputs[o]);
    const char *kind = at_loaded_string(l, l->outputs[o].memory_kind);
    bool on_host = *kind == 'p' || *kind == 'u';
    if (l->outputs[o].alias >= 0 || on_host) continue;
    n = at_add(n,
               at_hw_layout_bytes(hw, (at_dtype)t->dtype,
                                  (at_dims){l->dims + t->dims, t->rank},
                                  at_loaded_string(l, l->outputs[o].layout)));
  }
  return n;
}

// It may be for any of the runtime's chips.
static const at_chip *roomiest(const at_runtime *rt) {
  const at_chip *best = &rt->chips[0];
  for (uint32_t i = 1; i < rt->topology.num_parts; i++) {
    const at_chip *c = &rt->chips[rt->topology.parts[i].first];
    if (c->info.hbm_bytes > best->info.hbm_bytes) best = c;
  }
  return best;
}

// RESOURCE_EXHAUSTED in XLA's words if the program alone is larger than a chip.
static at_status check_hbm(const at_loaded *l) {
  const at_chip *c = roomiest(l->runtime);
  const at_hw *hw = c->hw;
  uint64_t need = program_bytes(l, hw);
  uint64_t have = c->info.hbm_bytes;
  if (need <= have) return AT_OK;
  at_strbuf b = {0};
  at_strbuf_addz(&b, "Ran out of memory in memory space hbm. Used ");
  at_size_print(need, &b);
  at_strbuf_addz(&b, " of ");
  at_size_print(have, &b);
  at_strbuf_addz(&b, " hbm. Exceeded hbm capacity by ");
  at_size_print(need - have, &b);
  at_strbuf_addf(&b, ".\ndetail: %s on %s: temporary values ",
                 at_loaded_string(l, l->header->name), hw->kind);
  at_size_print(l->header->temp_bytes, &b);
  at_strbuf_addz(&b, ", outputs ");
  at_size_print(need - l->header->temp_bytes, &b);
  at_strbuf_addz(&b,
                 " in tiles\nhint: shard over more chips, use a smaller batch "
                 "or rematerialisation, or name a larger chip in ATOLL_TARGET");
  at_status st = at_strbuf_status(&b);
  if (at_ok(st)) st = AT_FAIL(AT_RESOURCE_EXHAUSTED, "%s", b.ptr);
  at_strbuf_free(&b);
  return st;
}

// One that was stays so until it takes twice as long: to be handed to another
// thread makes it slower, and it would not come back.
bool at_loaded_is_small(at_loaded *l) {
  int64_t ns = atomic_load_explicit(&l->expected_ns, memory_order_relaxed);
  bool was = atomic_load_explicit(&l->was_small, memory_order_relaxed);
  double most = kSmallNs * (was ? 2 : 1) * (l->num_devices > 1 ? 4 : 1);
  bool is = !l->header->has_effects && (double)ns * l->num_devices < most;
  if (is != was) atomic_store_explicit(&l->was_small, is, memory_order_relaxed);
  return is;
}

// Shorter runs count by a quarter, so that a loop whose length depends on data
// has to be short several times; of a longer one a single millisecond is
// enough, but not an interruption.
void at_loaded_took(at_loaded *l, uint64_t ns) {
  const int64_t most = 1000000, took = (int64_t)AT_MIN(ns, (uint64_t)most);
  const int64_t old =
      atomic_load_explicit(&l->expected_ns, memory_order_relaxed);
  const int64_t now =
      took < old ? old - (old - took + 3) / 4 : old + (took - old) / 8;
  if (now != old)
    atomic_store_explicit(&l->expected_ns, now, memory_order_relaxed);
}

// Read anew at each load.
at_kernel_checks at_kernel_checks_wanted(void) {
  return (at_kernel_checks){.checks = at_core_checks_wanted(),
                            .turns = at_config_uint(AT_CONFIG_KERNEL_TURNS)};
}

// Kernels read these when a launch begins.
void at_loaded_check(at_loaded *l, at_kernel_checks checks) {
  l->checks = checks.checks;
  l->max_turns = checks.turns;
}

// Everything but the block's check. With a proxy the code runs elsewhere, and
// only descriptions are needed.
static at_status prepare(at_loaded *l) {
  const at_xheader *h = l->header;
  l->num_inputs = (uint32_t)h->sections[AT_XS_INPUTS].count;
  l->num_outputs = (uint32_t)h->sections[AT_XS_OUTPUTS].count;
  l->num_args = (uint32_t)h->sections[AT_XS_ARGS].count;
  l->inputs = section(l, AT_XS_INPUTS);
  l->outputs = section(l, AT_XS_OUTPUTS);
  l->types = section(l, AT_XS_TYPES);
  l->dims = section(l, AT_XS_DIMS);
  l->args = section(l, AT_XS_ARGS);
  l->num_devices = h->num_replicas * h->num_partitions;
  atomic_init(&l->expected_ns, (int64_t)AT_MIN(h->estimated_ns, 1e18));
  uint32_t n = (uint32_t)h->sections[AT_XS_STEPS].count;
  l->arg_refs = calloc((size_t)l->num_args + 1, sizeof *l->arg_refs);
  l->ops = calloc((size_t)n + 1, sizeof *l->ops);
  if (!l->arg_refs || !l->ops)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory to load a program");
  AT_TRY(check_hbm(l));
  if (l->runtime->proxy) return AT_OK;  // its code runs elsewhere
  AT_TRY(load_objects(l));
  const at_xstep *steps = section(l, AT_XS_STEPS);
  l->num_ops = n;
  at_loaded_check(l, at_kernel_checks_wanted());
  l->depth = depth_of(l, steps, h->main_begin, h->main_end);
  AT_TRY(make_collectives(l, steps, n));
  for (uint32_t i = 0; i < n; i++) AT_TRY(prepare_op(l, &steps[i], &l->ops[i]));
  l->learns = l->num_devices == 1 && !l->has_kernels && !h->has_effects &&
              h->estimated_ns > kSmallNs && h->estimated_ns < kLearnsNs;
  return l->num_beside ? at_runtime_prepare_beside(l->runtime) : AT_OK;
}

// Constants of some size are worth huge pages, like any operand.
static uint8_t *copy_block(at_bytes b) {
  size_t align = b.len >= 2u << 20 ? 2u << 20 : 64;
  uint8_t *p = aligned_alloc(align, at_align_up(b.len, align));
  if (!p) return NULL;
  if (align > 64) madvise(p, at_align_up(b.len, align), MADV_HUGEPAGE);
  return memcpy(p, b.ptr, b.len);
}

// On failure at_loaded_release frees whatever was made.
at_status at_loaded_create(at_runtime *rt, at_bytes executable,
                           at_loaded **out) {
  AT_TRY(at_runtime_check(rt));
  if (executable.len < sizeof(at_xheader))
    return AT_FAIL(AT_INVALID_ARGUMENT, "malformed executable: %zu bytes",
                   executable.len);
  at_loaded *l = calloc(1, sizeof *l);
  if (!l) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory to load a program");
  atomic_store_explicit(&l->refs, 1, memory_order_relaxed);
  l->runtime = rt;
  l->block = copy_block(executable);
  at_status st =
      l->block ? at_executable_check((at_bytes){l->block, executable.len})
               : AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory to load a program");
  if (!st.err) {
    l->header = (const at_xheader *)l->block;
    st = prepare(l);
  }
  if (st.err) {
    at_loaded_release(l);
    return st;
  }
  *out = l;
  return AT_OK;
}

at_bytes at_loaded_bytes(const at_loaded *l) {
  return (at_bytes){l->block, l->header->total_bytes};
}

at_loaded *at_loaded_retain(at_loaded *l) {
  atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed);
  return l;
}

// Fields are NULL or 0 where preparation did not come to them.
void at_loaded_release(at_loaded *l) {
  if (!l) return;
  if (atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) != 1) return;
  at_proxy_unload(l);
  for (uint32_t i = 0; i < l->num_objects; i++) at_object_unload(l->objects[i]);
  free(l->objects);
  for (uint32_t i = 0; i < l->num_ops; i++) free(l->ops[i].cores);
  free(l->arg_refs);
  free(l->ops);
  at_far_free(l);
  for (uint32_t i = 0; i < l->num_colls; i++) {
    free(l->colls[i].owned);
    free(l->colls[i].order);
  }
  free(l->colls);
  free(l->coll_kernels);
  free(l->block);
  free(l);
}

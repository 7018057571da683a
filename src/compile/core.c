// Pallas kernels: what the run time has to know of a kernel to launch it
// (abi/executable.h: at_xcore and its refs), and the code, which `mosaic`
// makes.
//
// For each argument of the kernel's body a record says its memory space, shape,
// block and index map, which other argument it shares memory with, and what the
// body does with it: only reads it, writes all of it, or ties the steps of the
// grid together. The last decides whether steps may run on several threads, and
// is found by one walk over the body (scan).
#include "compile/core.h"

#include <stdio.h>

#include "base/config.h"
#include "estimate/estimate.h"
#include "mosaic/code.h"
#include "tpu/tpu.h"

// A program whose code is not made yet.
typedef struct at_core_pending {
  struct at_core_pending *next;
  uint32_t record;  // CORES
  const at_mosaic_code *code;
} pending;

bool at_core_is_kernel(const at_node *n) { return at_core_kernel_of(n); }

static const at_attr *aliases_of(const at_node *n) {
  return at_node_attr(n, AT_ATTR_OUTPUT_OPERAND_ALIASES);
}

// As the call's output_operand_aliases say.
bool at_core_can_alias(const at_node *n, uint32_t result, uint32_t operand) {
  // A FUSION with a kernel has none.
  const at_attr *a = aliases_of(n);
  for (uint32_t i = 0; a && i < a->groups.n; i++)
    if (a->groups.list[i].ptr[0] == result &&
        a->groups.list[i].ptr[1] == operand)
      return true;
  return false;
}

// ---- What the body does with its arguments
// What the body does with its arguments. `dense`: stored to as a whole, without
// a mask. Arrays are by argument.
typedef struct uses {
  at_map args;  // at_mvalue * -> argument index + 1
  bool *stored, *dense;
  const at_mop **store;  // the last one, NULL: none
  const at_mop **first;  // that takes it
  bool sequential, signals;
} uses;

// -1: v is no argument, nor a view of one.
static int64_t arg_of(const uses *u, const at_mvalue *v) {
  void **at = at_map_find_ptr(&u->args, v);
  return at ? (int64_t)(intptr_t)*at - 1 : -1;
}

typedef enum use_kind {
  USE_READ,
  USE_VIEW,
  USE_RESHAPE,
  USE_COPY,
  USE_STORE
} use_kind;

// What an operation does to its ref operands. Anything that is not listed
// counts as a store: too careful is slow, too lax is wrong.
static use_kind use_of(at_mosaic_opcode op) {
  switch (op) {
    case AT_MOSAIC_VECTOR_LOAD:
    case AT_MOSAIC_MEMREF_LOAD:
    case AT_MOSAIC_TPU_VECTOR_LOAD:
    case AT_MOSAIC_TPU_STRIDED_LOAD:
    case AT_MOSAIC_TPU_LOAD:
    case AT_MOSAIC_TPU_SHUFFLED_LOAD:
    case AT_MOSAIC_TPU_VECTOR_LOAD_IDX:
    case AT_MOSAIC_TPU_WAIT_DMA:
    case AT_MOSAIC_TPU_WAIT_DMA2:
    case AT_MOSAIC_TPU_WAIT_INDIRECT_DMA:
      return USE_READ;
    case AT_MOSAIC_TPU_MEMREF_SLICE:
    case AT_MOSAIC_TPU_MEMREF_SQUEEZE:
      return USE_VIEW;
    case AT_MOSAIC_TPU_MEMREF_RESHAPE:
    case AT_MOSAIC_TPU_MEMREF_BITCAST:
    case AT_MOSAIC_TPU_REINTERPRET_CAST:
    case AT_MOSAIC_TPU_ERASE_MEMREF_LAYOUT:
      return USE_RESHAPE;
    case AT_MOSAIC_TPU_ENQUEUE_DMA:
    case AT_MOSAIC_TPU_ENQUEUE_INDIRECT_DMA:
      return USE_COPY;
    default:
      return USE_STORE;
  }
}

// Steps share what these touch.
static bool ties_steps(at_mosaic_opcode op) {
  switch (op) {
    case AT_MOSAIC_TPU_LOG:
    case AT_MOSAIC_TPU_PRNG_SET_SEED_32:
    case AT_MOSAIC_TPU_PRNG_RANDOM_BITS:
    case AT_MOSAIC_TPU_SEM_BARRIER:
    case AT_MOSAIC_TPU_BARRIER:
      return true;
    default:
      return false;
  }
}

// Operations on semaphores that other cores may see.
static bool talks(at_mosaic_opcode op) {
  return op == AT_MOSAIC_TPU_SEM_SIGNAL || op == AT_MOSAIC_TPU_SEM_WAIT ||
         op == AT_MOSAIC_TPU_SEM_BARRIER;
}

// Control flow that makes its operands values of a region.
static bool passes_on(at_mosaic_opcode op) {
  return op == AT_MOSAIC_SCF_YIELD || op == AT_MOSAIC_SCF_CONDITION ||
         op == AT_MOSAIC_SCF_FOR || op == AT_MOSAIC_SCF_WHILE;
}

static at_status scan_block(uses *u, const at_mblock *b);

// Notes what one operation does with each argument that it takes, and makes its
// results views where it makes such.
static at_status scan_op(uses *u, const at_mop *op) {
  at_mosaic_opcode code = at_mosaic_opcode_of(op);
  u->sequential |= ties_steps(code);
  u->signals |= talks(code);
  use_kind kind = use_of(code);
  for (uint32_t i = 0; i < op->num_operands; i++) {
    int64_t arg = arg_of(u, op->operands[i]);
    if (arg >= 0 && !u->first[arg] && kind != USE_VIEW) u->first[arg] = op;
    if (arg < 0 || kind == USE_READ || (kind == USE_COPY && i == 0)) continue;
    if (kind == USE_VIEW || kind == USE_RESHAPE) {
      if (kind == USE_RESHAPE) u->dense[arg] = true;
      if (!op->num_results) continue;
      void **at = at_map_put_ptr(&u->args, &op->results[0]);
      if (!at) return AT_NO_MEMORY("kernel");
      *at = (void *)(intptr_t)(arg + 1);
    } else {
      // Who stores to a ref that control flow passes on is not looked for.
      u->dense[arg] |= passes_on(code);
      u->stored[arg] = true;
      u->store[arg] = op;
    }
  }
  for (uint32_t r = 0; r < op->num_regions; r++)
    for (uint32_t b = 0; b < op->regions[r]->num_blocks; b++)
      AT_TRY(scan_block(u, op->regions[r]->blocks[b]));
  return AT_OK;
}

static at_status scan_block(uses *u, const at_mblock *b) {
  for (uint32_t i = 0; i < b->num_ops; i++) AT_TRY(scan_op(u, b->ops[i]));
  return AT_OK;
}

// One walk over the body, regions included: linear in its operations.
static at_status scan(const at_mosaic_program *p, at_arena *a, uses *u) {
  uint32_t n = p->body->num_args;
  *u = (uses){.args = at_map_in(a)};
  AT_TRY_ALLOC(u->stored, at_new(a, bool, n + 1));
  AT_TRY_ALLOC(u->dense, at_new(a, bool, n + 1));
  AT_TRY_ALLOC(u->store, at_new(a, const at_mop *, n + 1));
  AT_TRY_ALLOC(u->first, at_new(a, const at_mop *, n + 1));
  for (uint32_t i = 0; i < n; i++) {
    void **at = at_map_put_ptr(&u->args, &p->body->args[i]);
    if (!at) return AT_NO_MEMORY("kernel");
    *at = (void *)(intptr_t)(i + 1);
  }
  return scan_block(u, p->body);
}

at_status at_core_only_reads(const at_mosaic_program *p, uint32_t arg,
                             at_arena *a, bool *out) {
  uses u;
  AT_TRY(scan(p, a, &u));
  *out = !u.stored[arg];
  return AT_OK;
}

// ---- Arguments
static at_status put_dims(const at_mosaic_kernel *k, at_dims d,
                          const char *what, int64_t *out) {
  if (d.rank > AT_CORE_MAX_RANK)
    return AT_FAIL(AT_UNIMPLEMENTED,
                   "kernel %s: %s of rank %u; up to %d are there", k->name,
                   what, d.rank, AT_CORE_MAX_RANK);
  for (uint32_t i = 0; i < d.rank; i++) {
    if (d.ptr[i] < 0)
      return AT_FAIL(AT_UNIMPLEMENTED, "kernel %s: %s of a dynamic shape",
                     k->name, what);
    out[i] = d.ptr[i];
  }
  return AT_OK;
}

// Space, type and shape of a ref. The block is the whole until a window says
// otherwise.
static at_status describe_ref(const at_mosaic_kernel *k, const at_mosaic_ref *r,
                              const char *what, at_xcore_ref *x) {
  x->space = at_mosaic_core_space(r->space);
  x->dtype = r->dtype;
  x->rank = r->shape.rank;
  x->alias = -1;
  if (r->semaphore != AT_MSEM_NONE) {
    x->space = AT_CORE_SEM;
    x->dtype = AT_INVALID;
  }
  AT_TRY(put_dims(k, r->shape, what, x->dims));
  memcpy(x->block, x->dims, sizeof x->block);
  return AT_OK;
}

// The index of the window's argument among outputs.
static int32_t alias_of(const at_mosaic_window *w) {
  return w->is_output ? -1 : w->alias;
}

// The kernel's types have no sign; those of arrays do, and under 8 bits it
// decides what lies in memory.
static at_dtype array_dtype(const at_mosaic_kernel *k,
                            const at_mosaic_window *w, at_dtype t) {
  const at_type *types = w->is_output ? k->call.results : k->call.operands;
  uint32_t n = w->is_output ? k->call.num_results : k->call.num_operands;
  at_dtype own = w->index < n ? types[w->index].dtype : t;
  bool narrow = own == AT_U2 || own == AT_U4;
  return narrow && at_dtype_of(own)->bits == at_dtype_of(t)->bits ? own : t;
}

// The call's operand, where it is made block by block; else NULL.
static const at_node *made_input(const at_node *call, uint32_t operand) {
  const at_node *n = call->operands[operand].node, *in = call->parent->owner;
  // Loops have regions too, and FUSIONs of their own in them.
  return in && at_core_kernel_of(in) == call && n->op == AT_OP_FUSION ? n
                                                                      : NULL;
}

// The kernel that fills the window's block, and the numbers of the buffers that
// it reads, which follow the call's own.
static at_status describe_made(at_emit_steps *e, const at_node *call,
                               const at_mosaic_window *w, uint32_t *bufs,
                               at_xcore_ref *x) {
  const at_node *made = w->is_output ? NULL : made_input(call, w->index);
  if (!made) return AT_OK;
  AT_TRY(at_cg_fill(e->cg, made, &x->fill));
  x->fill++;
  x->fill_bufs = *bufs;
  x->num_fill_bufs = made->num_operands;
  *bufs += made->num_operands;
  return AT_OK;
}

// `index`: of the function that computes the window's place, among the kernel's
// functions.
static at_status describe_window(const at_mosaic_kernel *k,
                                 const at_mosaic_window *w, uint64_t index,
                                 at_xcore_ref *x) {
  AT_TRY(describe_ref(k, &w->ref, "a window", x));
  x->role = w->is_output ? AT_CORE_OUT : AT_CORE_IN;
  x->dtype = array_dtype(k, w, (at_dtype)x->dtype);
  x->alias = alias_of(w);
  x->buffers = w->buffers_given ? w->buffers : 0;
  x->cores = (uint64_t)w->cores;
  x->pipeline = w->buffers == 1 ? AT_CORE_SYNCHRONOUS : AT_CORE_DOUBLE;
  if (w->kind == AT_MWIN_WHOLE) return AT_OK;
  if (x->space == AT_CORE_SEM)
    return AT_FAIL(AT_UNIMPLEMENTED, "kernel %s: a window of semaphores",
                   k->name);
  x->window = w->kind == AT_MWIN_BLOCKED ? AT_CORE_BLOCKED : AT_CORE_ELEMENT;
  x->kernel = index;
  if (w->whole.rank != w->bounds.rank)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "kernel %s: blocks of rank %u of an array of rank %u",
                   k->name, w->bounds.rank, w->whole.rank);
  x->rank = w->bounds.rank;
  at_dims whole = {w->whole.dims, w->whole.rank};
  AT_TRY(put_dims(k, whole, "an operand", x->dims));
  AT_TRY(put_dims(k, w->bounds, "a block", x->block));
  if (w->kind != AT_MWIN_ELEMENT) return AT_OK;
  if (w->pad_low.rank) AT_TRY(put_dims(k, w->pad_low, "padding", x->pad_low));
  if (w->pad_high.rank)
    AT_TRY(put_dims(k, w->pad_high, "padding", x->pad_high));
  return AT_OK;
}

// ---- Places
static at_status append_location(at_emit_steps *e, const at_mloc *loc,
                                 const char *op, uint32_t *out) {
  at_place_text t;
  at_status st = at_place_text_of(loc, at_str_of(op), &t);
  at_xlocation l = {.line = t.line, .column = t.column, .place = AT_NO_PLACE};
  if (at_ok(st)) st = at_writer_string(e->w, at_strbuf_str(&t.op), &l.op);
  at_strbuf_free(&t.op);
  AT_TRY(st);
  AT_TRY(at_writer_string(e->w, at_str_of(t.file), &l.file));
  if (e->places) AT_TRY(at_places_find_in_body(e->places, loc, &l.place));
  return at_writer_append(e->w, AT_XS_LOCATIONS, &l, 1, out);
}

// Of an op that stands for an argument: 0 when nobody knows.
static at_status place_of_op(at_emit_steps *e, const at_mop *op,
                             uint32_t *out) {
  *out = 0;
  if (!op || !*at_mosaic_place_of(op->loc).file) return AT_OK;
  AT_TRY(append_location(e, op->loc, op->name, out));
  ++*out;
  return AT_OK;
}

// The last line of an index map that has a place: its constants have none.
static const at_mop *placed_op(const at_mop *func) {
  if (!func || !func->num_regions || !func->regions[0]->num_blocks) return NULL;
  const at_mblock *b = func->regions[0]->blocks[0];
  for (uint32_t i = b->num_ops; i-- > 0;)
    if (*at_mosaic_place_of(b->ops[i]->loc).file) return b->ops[i];
  return NULL;
}

// Appends the record; refs of one kernel are side by side.
static at_status add_ref(at_emit_steps *e, const uses *u, uint32_t arg,
                         at_xcore_ref *x, at_xcore *record) {
  x->stored = u->stored[arg];
  x->dense = u->dense[arg];
  AT_TRY(place_of_op(e, u->store[arg], &x->stored_at));
  uint32_t at;
  AT_TRY(at_writer_append(e->w, AT_XS_CORE_REFS, x, 1, &at));
  if (!record->num_refs++) record->refs = at;
  return AT_OK;
}

// In the order of the body's arguments: prefetched scalars, windows, scratch.
static at_status add_refs(at_emit_steps *e, const at_mosaic_kernel *k,
                          const at_mosaic_program *p,
                          const at_mosaic_code *code, const uses *u,
                          const at_node *call, at_xcore *record) {
  uint32_t made_bufs = call->num_operands + call->num_results;
  for (uint32_t i = 0; i < p->num_prefetch; i++) {
    at_xcore_ref x = {.role = AT_CORE_PREFETCH};
    AT_TRY(describe_ref(k, &p->prefetch[i], "prefetched scalars", &x));
    AT_TRY(add_ref(e, u, at_mosaic_arg_prefetch(p) + i, &x, record));
  }
  for (uint32_t i = 0; i < p->num_windows; i++) {
    at_xcore_ref x = {0};
    AT_TRY(describe_window(k, &p->windows[i], code->index[i], &x));
    AT_TRY(describe_made(e, call, &p->windows[i], &made_bufs, &x));
    uint32_t arg = at_mosaic_arg_window(p) + i;
    AT_TRY(place_of_op(e, placed_op(p->windows[i].transform), &x.place));
    if (x.role != AT_CORE_OUT)
      AT_TRY(place_of_op(e, u->first[arg], &x.loaded_at));
    AT_TRY(add_ref(e, u, arg, &x, record));
  }
  for (uint32_t i = 0; i < p->num_scratch; i++) {
    at_xcore_ref x = {0};
    AT_TRY(describe_ref(k, &p->scratch[i], "scratch", &x));
    x.role = AT_CORE_SCRATCH;
    AT_TRY(add_ref(e, u, at_mosaic_arg_scratch(p) + i, &x, record));
  }
  return AT_OK;
}

// ---- Programs
static uint32_t semantics_of(at_mosaic_dim d) {
  switch (d) {
    case AT_MDIM_PARALLEL:
      return AT_CORE_PARALLEL;
    case AT_MDIM_CORE_PARALLEL:
      return AT_CORE_CORE_PARALLEL;
    case AT_MDIM_SUBCORE_PARALLEL:
      return AT_CORE_SUBCORE_PARALLEL;
    default:
      return AT_CORE_ARBITRARY;
  }
}

// A bound of -1 is an argument of the call.
static at_status describe_grid(const at_mosaic_kernel *k,
                               const at_mosaic_program *p, at_xcore *x) {
  if (p->grid_rank > AT_CORE_MAX_GRID)
    return AT_FAIL(AT_UNIMPLEMENTED, "kernel %s: a grid of %u dimensions",
                   k->name, p->grid_rank);
  x->grid_rank = p->grid_rank;
  x->num_dynamic = p->num_dynamic;
  for (uint32_t d = 0; d < p->grid_rank; d++) {
    x->grid[d] = p->grid[d].dynamic ? -1 : p->grid[d].bound;
    x->semantics[d] = semantics_of(p->grid[d].semantics);
  }
  return AT_OK;
}

// Of the configuration, of what the body does, and of ATOLL_CHECK.
static uint32_t flags_of(const at_mosaic_kernel *k, const uses *u,
                         bool checked) {
  const at_mosaic_config *c = &k->config;
  return (c->has_communication ? AT_CORE_HAS_COMMUNICATION : 0) |
         (c->disable_bounds_checks ? AT_CORE_NO_BOUNDS_CHECKS : 0) |
         (c->disable_semaphore_checks ? AT_CORE_NO_SEMAPHORE_CHECKS : 0) |
         (c->skip_device_barrier ? AT_CORE_SKIP_DEVICE_BARRIER : 0) |
         (checked ? AT_CORE_CHECKED : 0) |
         (u->sequential ? AT_CORE_SEQUENTIAL : 0) |
         (u->signals ? AT_CORE_SIGNALS : 0) |
         (k->call.has_side_effect ? AT_CORE_SIDE_EFFECTS : 0);
}

static bool is_debugged(void) { return *at_config_text(AT_CONFIG_DEBUG); }

bool at_core_is_checked(void) {
  return is_debugged() ||
         at_config_has_any(AT_WORD_CHECK_RACES, AT_WORD_CHECK_ALL);
}

// Reads, generates and records program `index` of the kernel. Sizes that only
// code generation knows follow in at_core_finish.
static at_status add_program(at_emit_steps *e, const at_mosaic_kernel *k,
                             const at_node *call, uint32_t index,
                             uint32_t *out) {
  const at_mosaic_program *p = &k->programs[index];
  at_mosaic_code_options o = {
      .check = at_core_is_checked(),
      .check_nan = at_config_has(AT_WORD_CHECK_NAN),
      .debug = is_debugged(),
      .exact_dots =
          at_config_word(AT_CONFIG_NUMERICS) == AT_WORD_NUMERICS_EXACT};
  uses u;
  AT_TRY(scan(p, e->arena, &u));
  at_mosaic_code *code;
  AT_TRY(at_mosaic_code_add(e->cg, k, index, &o, e->arena, &code));
  if (e->plans)
    AT_TRY(at_mosaic_plan_print(k, index, &o, NULL, e->arena, e->plans));
  at_xcore x = {.type = at_mosaic_core_type(p->core),
                .flags = flags_of(k, &u, o.check),
                .kernel = code->body,
                .collective_id = k->config.collective_id,
                .flops = (double)k->config.flops,
                .bytes = (double)k->config.bytes_accessed,
                .transcendentals = (double)k->config.transcendentals};
  AT_TRY(at_writer_string(e->w, at_str_of(k->name), &x.name));
  AT_TRY(describe_grid(k, p, &x));
  AT_TRY(add_refs(e, k, p, code, &u, call, &x));
  AT_TRY(at_writer_append(e->w, AT_XS_CORES, &x, 1, out));
  pending *later;
  AT_TRY_ALLOC(later, at_new(e->arena, pending, 1));
  *later = (pending){e->cores, *out, code};
  e->cores = later;
  return AT_OK;
}

// The kernel in n's configuration; lives in `a`.
static at_status read_kernel(at_arena *a, const at_node *n,
                             at_mosaic_kernel **out) {
  at_mosaic_call call;
  AT_TRY(at_mosaic_call_of(n, a, &call));
  return at_mosaic_read(&call, a, out);
}

// A refusal keeps its first words, which JAX looks for; the call comes last.
static at_status name_call(at_status st, const at_node *n) {
  at_strbuf b = {0};
  at_loc_print(&b, n->loc);
  at_status named = AT_FAIL(at_status_code(st), "%s\ncall: %s",
                            at_status_message(st), b.ptr ? b.ptr : "?");
  at_strbuf_free(&b);
  at_status_free(st);
  return named;
}

// UNIMPLEMENTED: symbolic shapes; otherwise what the admission on the target
// says. A kernel may be several programs, one for each type of core: records
// are side by side.
at_status at_core_emit(at_emit_steps *e, const at_node *n, at_xstep *s) {
  at_mosaic_kernel *k;
  const at_node *call = at_core_kernel_of(n);
  AT_TRY(read_kernel(e->arena, call, &k));
  if (k->symbolic)
    return AT_FAIL(
        AT_UNIMPLEMENTED,
        "kernel %s was exported for symbolic shapes, and some of its "
        "sizes depend on what is known at run time",
        k->name);
  at_status admitted = at_mosaic_admit(
      k, at_str_of(at_config_text(AT_CONFIG_TARGET)), e->num_devices);
  if (admitted.err) return n->loc ? name_call(admitted, n) : admitted;
  for (uint32_t i = 0; i < k->num_programs; i++) {
    uint32_t at;
    AT_TRY(add_program(e, k, call, i, &at));
    if (!i) s->target = at;
  }
  s->aux = k->num_programs;
  s->estimated_ns = 1e6;  // never on the caller's thread: cores may wait
  e->has_effects |= k->call.has_side_effect;
  return AT_OK;
}

// As push_arg in steps.c, for this file's callers.
static at_status push(at_emit_steps *e, at_xstep *s, uint32_t slot) {
  uint32_t at;
  AT_TRY(at_writer_append(e->w, AT_XS_ARGS, &slot, 1, &at));
  if (!s->num_args++) s->args = at;
  return AT_OK;
}

// The slot of a value in the region of n, where it is a parameter.
static at_status push_outer(at_emit_steps *e, const at_node *n, at_value v,
                            at_xstep *s) {
  if (n->op == AT_OP_FUSION)
    v = n->operands[at_param_index(n->regions[0], v.node)];
  return push(e, s, at_plan_slot(e->plan, v));
}

// An input that is made block by block has no buffer: slot 0.
at_status at_core_push(at_emit_steps *e, const at_node *n, at_xstep *s) {
  const at_node *call = at_core_kernel_of(n);
  for (uint32_t i = 0; i < call->num_operands; i++)
    AT_TRY(made_input(call, i) ? push(e, s, 0)
                               : push_outer(e, n, call->operands[i], s));
  for (uint32_t r = 0; r < n->num_results; r++)
    AT_TRY(push(e, s, at_plan_slot(e->plan, (at_value){(at_node *)n, r})));
  for (uint32_t i = 0; i < call->num_operands; i++) {
    const at_node *made = made_input(call, i);
    for (uint32_t o = 0; made && o < made->num_operands; o++)
      AT_TRY(push_outer(e, n, made->operands[o], s));
  }
  return AT_OK;
}

// ---- What clients are shown
// `json` without ", "key": [...]" as JAX writes it. False: it was not there.
static bool cut_list(const at_str *json, const char *key, at_strbuf *out) {
  char word[64];
  int n = snprintf(word, sizeof word, ", \"%s\": [", key);
  const char *at = memmem(json->ptr, json->len, word, (size_t)n);
  const char *end = json->ptr + json->len, *close = at ? at + n : NULL;
  for (int depth = 1; close && close < end; close++) {
    depth += (*close == '[') - (*close == ']');
    if (!depth) break;
  }
  out->len = 0;
  if (!close || close == end) {
    at_strbuf_add(out, *json);
    return false;
  }
  at_strbuf_add(out, (at_str){json->ptr, (size_t)(at - json->ptr)});
  at_strbuf_add(out, (at_str){close + 1, (size_t)(end - close - 1)});
  return true;
}

// A list of {index, color} objects; negative colors are left out.
static void put_colors(at_strbuf *b, const char *key, const int *color,
                       uint32_t n, bool results) {
  const char *comma = "";
  at_strbuf_addf(b, "\"%s\":[", key);
  for (uint32_t i = 0; i < n; i++) {
    if (color[i] < 0) continue;
    at_strbuf_addf(b, "%s{", comma);
    if (!results) at_strbuf_addf(b, "\"operand_index\":\"%u\",", i);
    at_strbuf_addf(b, "\"color\":\"%d\",\"shape_index\":[", color[i]);
    if (results && n > 1) at_strbuf_addf(b, "\"%u\"", i);
    at_strbuf_addz(b, "]}");
    comma = ",";
  }
  at_strbuf_addz(b, "],");
}

// Where operands and results live, in protobuf's JSON as the chip's compiler
// has it, instead of JAX's.
static at_status tell_colors(const at_mosaic_config *c, at_str old,
                             at_strbuf *b) {
  static const char head[] = "{\"custom_call_config\": {";
  at_strbuf one = {0}, two = {0};
  bool plain = cut_list(&old, "output_memory_colors", &one);
  at_str text = {one.ptr, one.len};
  plain &= !cut_list(&text, "output_memory_space_colors", &two);
  text = (at_str){two.ptr, two.len};
  cut_list(&text, "input_memory_space_colors", &one);
  text = (at_str){one.ptr, one.len};
  if (at_str_starts(text, head)) {
    at_strbuf_addz(b, "\"custom_call_config\": {\"output_memory_colors\":[");
    for (uint32_t i = 0; plain && i < c->num_output_colors; i++)
      at_strbuf_addf(b, "%s\"%d\"", i ? "," : "", c->output_colors[i]);
    at_strbuf_addz(b, "],");
    put_colors(b, "output_memory_space_colors", c->output_colors,
               plain ? 0 : c->num_output_colors, true);
    put_colors(b, "input_memory_space_colors", c->input_colors,
               c->num_input_colors, false);
    size_t from = sizeof head - 1;
    at_strbuf_add(b, (at_str){text.ptr + from, text.len - from});
  } else {
    at_strbuf_add(b, (at_str){old.ptr + 1, old.len - 1});
  }
  at_status st = at_status_join(at_strbuf_status(&one), at_strbuf_status(&two));
  at_strbuf_free(&one);
  at_strbuf_free(&two);
  return at_status_join(st, at_strbuf_status(b));
}

// Prepends the VMEM that windows and scratch take. Configurations that are no
// JSON object stay.
static at_status tell_memory(at_node *n, const at_mosaic_chip *chip,
                             at_arena *a) {
  at_mosaic_kernel *k;
  AT_TRY(read_kernel(a, n, &k));
  at_mosaic_memory m = at_mosaic_memory_of(&k->programs[0], chip);
  at_str old = at_node_str(n, AT_ATTR_BACKEND_CONFIG);
  if (!at_str_starts(old, "{")) return AT_OK;
  at_strbuf b = {0};
  at_strbuf_addf(&b,
                 "{\"used_scoped_memory_configs\":[{\"memory_space\":\"1\","
                 "\"offset\":\"0\",\"size\":\"%lld\"}], ",
                 (long long)(m.windows + m.scratch));
  at_status st = tell_colors(&k->config, old, &b);
  at_attr attr = {.id = AT_ATTR_BACKEND_CONFIG, .s = {b.ptr, b.len}};
  if (!st.err) st = at_node_set_attr(n, attr);
  at_strbuf_free(&b);
  return st;
}

// All kernels in c and its regions.
static at_status tell_all(at_comp *c, const at_mosaic_chip *chip, at_arena *a) {
  AT_FOR_NODES(n, c) {
    if (at_mosaic_is_call(n)) AT_TRY(tell_memory(n, chip, a));
    for (uint32_t i = 0; i < n->num_regions; i++)
      AT_TRY(tell_all(n->regions[i], chip, a));
  }
  return AT_OK;
}

at_status at_core_tell_memory(at_module *m, at_arena *a) {
  const char *target = at_config_text(AT_CONFIG_TARGET);
  const at_mosaic_chip *chip = at_mosaic_chip_find(at_str_of(target));
  for (uint32_t i = 0; chip && i < m->num_funcs; i++)
    AT_TRY(tell_all(m->funcs[i], chip, a));
  return AT_OK;
}

// ---- After the code
static at_status add_location(at_emit_steps *e, const at_mloc *loc,
                              const char *op, at_xcore *x) {
  uint32_t at;
  AT_TRY(append_location(e, loc, op, &at));
  if (!x->num_locations++) x->locations = at;
  return AT_OK;
}

// Temporary bytes, stacks and locations, in the records that at_core_emit
// appended.
at_status at_core_finish(at_emit_steps *e) {
  for (const pending *p = e->cores; p; p = p->next) {
    at_xcore x = *(at_xcore *)at_writer_at(e->w, AT_XS_CORES, p->record);
    x.temp_bytes = p->code->temp_bytes;
    x.stack_bytes = p->code->stack.bytes;
    x.stack_sems = p->code->stack.sems;
    for (uint32_t i = 0; i < p->code->num_locations; i++)
      AT_TRY(
          add_location(e, p->code->locations[i], p->code->location_ops[i], &x));
    *(at_xcore *)at_writer_at(e->w, AT_XS_CORES, p->record) = x;
  }
  return AT_OK;
}

// ---- What kernels compute
static at_status products(const void *chip, const at_node *kernel, at_arena *a,
                          double *out) {
  return at_estimate_kernel_flops(kernel, chip, a, out);
}

// "v5e:2x2" names v5e.
const at_machine *at_core_chip(void) {
  const at_machine *machine;
  at_str target = at_str_of(at_config_text(AT_CONFIG_TARGET));
  size_t n = 0;
  while (n < target.len && target.ptr[n] != ':') n++;  // without its topology
  bool is_chip =
      !at_code_take(at_machine_find((at_str){target.ptr, n}, &machine)) &&
      !strcmp(machine->platform, "tpu");
  return is_chip ? machine : NULL;
}

// Without a TPU target products in kernels count nothing.
at_counter at_core_counter(at_arena *a) {
  const at_machine *chip = at_core_chip();
  return (at_counter){
      .arena = a, .products = chip ? products : NULL, .user = chip};
}

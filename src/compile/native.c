// Small control flow as one kernel. A loop over a few scalars costs more in the
// run loop's steps than in arithmetic; where all that its body does is short
// generated kernels and small copies, the WHILE or CASE becomes one function,
// built as a nest (room nest) and compiled by codegen.
//
// In two steps: build_statement makes, inside out and memoised by node, the
// fragment of each control flow op or the reason why there is none; at the op
// where that ends, number_refs renames slots of the memory plan to buffers of
// the nest, and slots that only the nest uses become its locals.
#include "compile/native.h"

#include "base/verify.h"
#include "compile/collective.h"
#include "compile/core.h"
#include "compile/runtime_ops.h"
#include "compile/sparse.h"

#include <math.h>
#include <stdlib.h>

// A kernel that takes longer and can be split is a step, for threads to share.
// What has more statements than so many stays steps, too: LLVM would see it as
// one function.
enum { LONG_NS = 20000, MAX_STATEMENTS = 1024 };
// How long a loop is taken to be: never a tiny program.
enum { LOOP_NS = 1000000 };

// Control flow as a block of one statement. Before a nest is made of it, refs
// name slots of the plan; the number behind the last slot is the scratch that
// kernels share.
typedef struct fragment {
  at_nest_block block;
  uint32_t statements;
  uint64_t scratch_bytes;
  double ns;   // of all calls, each once
  bool turns;  // there is a loop: nobody knows how often they are made
} fragment;

// What is in `part` is in `whole`, too.
static void add_up(fragment *whole, const fragment *part) {
  whole->statements += part->statements;
  whole->scratch_bytes = AT_MAX(whole->scratch_bytes, part->scratch_bytes);
  whole->ns += part->ns;
  whole->turns |= part->turns;
}

typedef struct builder {
  at_emit_steps *e;
  at_native *state;
  fragment *to;
  bool refused;
} builder;

static at_status build_control(const builder *outer, const at_node *n,
                               fragment **out);

// The number that stands for scratch among slots.
static uint32_t scratch_of(const at_emit_steps *e) {
  return e->plan->num_slots;
}

// All of v's slot.
static at_nest_ref ref_to(const builder *b, at_value v, uint32_t access) {
  return (at_nest_ref){at_plan_slot(b->e->plan, v), access, 0,
                       at_type_bytes(at_value_type(v))};
}

// Appends a statement to the fragment at hand and counts it.
static at_status add(builder *b, at_nest_kind kind, const at_node *n,
                     uint32_t refs, uint32_t blocks, at_nest_stmt **out) {
  b->to->statements++;
  return at_nest_add(b->e->arena, &b->to->block, kind, at_op_text(n->op), refs,
                     blocks, out);
}

static at_status add_fill(builder *b, const at_node *n,
                          const at_k_fill_params *p) {
  at_nest_stmt *s;
  AT_TRY(add(b, AT_NEST_FILL, n, 1, 0, &s));
  s->element_bytes = (uint32_t)p->element_bytes;
  memcpy(s->element, p->element, sizeof s->element);
  s->refs[0] = ref_to(b, (at_value){(at_node *)n, 0}, AT_NEST_WRITE);
  return AT_OK;
}

// None where the planner gave both the same slot.
static at_status add_copy(builder *b, const at_node *n) {
  at_nest_ref to = ref_to(b, (at_value){(at_node *)n, 0}, AT_NEST_WRITE),
              from = ref_to(b, n->operands[0], AT_NEST_READ);
  if (to.buffer == from.buffer) return AT_OK;
  at_nest_stmt *s;
  AT_TRY(add(b, AT_NEST_COPY, n, 2, 0, &s));
  s->refs[0] = to;
  s->refs[1] = from;
  return AT_OK;
}

static at_status add_empty(builder *b, const at_node *n) {
  at_nest_stmt *s;
  AT_TRY(add(b, AT_NEST_EMPTY, n, 1, 0, &s));
  s->refs[0] = ref_to(b, (at_value){(at_node *)n, 0}, AT_NEST_WRITE);
  return AT_OK;
}

// One kernel of n on the buffers that its launch names.
static at_status add_call(builder *b, const at_node *n, const at_cg_launch *l,
                          const at_cg_plan *plan, const void *kernel) {
  at_nest_stmt *s;
  AT_TRY(add(b, AT_NEST_CALL, n, l->num_args, 0, &s));
  s->kernel = kernel;
  s->tasks = l->tasks;
  for (uint32_t i = 0; i < l->num_args; i++) {
    const at_cg_arg *g = &l->args[i];
    at_value v = g->kind == AT_CG_OPERAND ? n->operands[g->index]
                                          : (at_value){(at_node *)n, g->index};
    at_nest_ref *r = &s->refs[i];
    if (g->kind == AT_CG_SCRATCH)
      *r = (at_nest_ref){scratch_of(b->e), AT_NEST_READ | AT_NEST_WRITE,
                         g->index, plan->scratch_bytes - g->index};
    else
      *r =
          ref_to(b, v, g->kind == AT_CG_OPERAND ? AT_NEST_READ : AT_NEST_WRITE);
    r->offset += g->skip;
    r->bytes -= g->skip;
  }
  return AT_OK;
}

// n's launches as calls. Refused if one is long enough to share among threads,
// or dearer than most_ns.
static at_status add_kernels(builder *b, const at_node *n, double most_ns) {
  int32_t *alias;
  AT_TRY(at_steps_aliases(b->e, n, &alias));
  at_cg_plan plan;
  const void *const *kernels;
  AT_TRY(at_cg_node_inside(b->e->cg, n, alias, b->e->arena, &plan, &kernels));
  for (uint32_t i = 0; i < plan.num_launches; i++) {
    const at_cg_launch *l = &plan.launches[i];
    if ((l->tasks > l->grain && l->ns > LONG_NS) || l->ns > most_ns)
      return b->refused = true, AT_OK;
  }
  for (uint32_t i = 0; i < plan.num_launches; i++) {
    b->to->ns += plan.launches[i].ns;
    AT_TRY(add_call(b, n, &plan.launches[i], &plan, kernels[i]));
  }
  b->to->scratch_bytes = AT_MAX(b->to->scratch_bytes, plan.scratch_bytes);
  return AT_OK;
}

// Runtime kernels have no place in a nest. What they do well on large operands
// the code generator does as well on a few elements.
static at_status add_runtime(builder *b, const at_node *n,
                             const at_rt_choice *k) {
  if (k->id == AT_RT_FILL) return add_fill(b, n, k->params);
  if (k->id == AT_RT_COPY) return add_copy(b, n);
  if (!at_cg_supports(n)) return b->refused = true, AT_OK;
  return add_kernels(b, n, k->ns);
}

// The statement of inner control flow, made before or now.
static at_status add_control(builder *b, const at_node *n) {
  fragment *f;
  AT_TRY(build_control(b, n, &f));
  if (!f) return b->refused = true, AT_OK;
  // A copy of the one statement, which nothing follows: if what is around n is
  // refused, n is a nest by itself.
  at_nest_stmt *s, *own = f->block.first;
  AT_ASSERT(own && !own->next);
  AT_TRY(
      at_nest_add(b->e->arena, &b->to->block, own->kind, own->name, 0, 0, &s));
  *s = *own;
  add_up(b->to, f);
  return AT_OK;
}

// By kind of node; what talks to other devices, the host or cores is refused.
static at_status add_node(builder *b, const at_node *n) {
  if (at_steps_is_empty(n)) return add_empty(b, n);
  if (at_steps_is_silent(n)) return AT_OK;
  if (at_has_steps(n)) return add_control(b, n);
  bool other = n->op == AT_OP_CUSTOM_CALL || n->op == AT_OP_ASYNC_DONE ||
               at_node_bool(n, AT_ATTR_ASYNC) || at_is_collective_step(n) ||
               at_core_is_kernel(n) || at_sparse_is_call(n);
  if (other) return b->refused = true, AT_OK;
  const at_rt_choice *k = at_steps_choice(&b->e->choices, n);
  if (!k && n->op == AT_OP_COPY) {  // made by the planner
    at_rt_choice copy;
    AT_TRY(at_rt_choose(n, b->e->arena, &copy));
    return add_runtime(b, n, &copy);
  }
  if (k && k->id != AT_RT_COUNT) return add_runtime(b, n, k);
  if (!k || !at_cg_supports(n)) return b->refused = true, AT_OK;
  return add_kernels(b, n, INFINITY);
}

// Nodes behind one that is refused are looked at all the same where they are
// control flow: their own answers are kept.
static at_status add_region(builder *b, const at_comp *c) {
  AT_FOR_NODES(n, c)
  if (!b->refused || at_has_steps(n)) AT_TRY(add_node(b, n));
  return AT_OK;
}

// n as WHILE or CASE with a block for each region.
static at_status build_statement(builder *b, const at_node *n) {
  bool loop = n->op == AT_OP_WHILE;
  at_nest_stmt *s;
  fragment *whole = b->to;
  AT_TRY(add(b, loop ? AT_NEST_WHILE : AT_NEST_CASE, n, 1, n->num_regions, &s));
  s->is_bool = n->op == AT_OP_IF;
  s->refs[0] = ref_to(b, loop ? n->regions[0]->results[0] : n->operands[0],
                      AT_NEST_READ);
  for (uint32_t r = 0; r < n->num_regions; r++) {
    fragment block = {0};
    b->to = &block;
    AT_TRY(add_region(b, n->regions[r]));
    s->blocks[r] = block.block;
    add_up(whole, &block);
  }
  whole->turns |= loop;
  b->to = whole;
  b->refused |= whole->statements > MAX_STATEMENTS;
  return AT_OK;
}

// *out NULL: n is not for a nest.
static at_status build_control(const builder *outer, const at_node *n,
                               fragment **out) {
  void **at = at_map_find_ptr(&outer->state->known, n);
  if (at) return *out = *at, AT_OK;
  builder b = {.e = outer->e, .state = outer->state};
  AT_TRY_ALLOC(b.to, at_new(b.e->arena, fragment, 1));
  AT_TRY(build_statement(&b, n));
  AT_TRY_ALLOC(at, at_map_put_ptr(&b.state->known, n));
  *at = *out = b.refused ? NULL : b.to;
  return AT_OK;
}

// ---- from slots to buffers
// Adds `by` to the count of every slot, each time that a value in it is made or
// read.
static void count_uses(const at_plan *p, const at_comp *c, uint32_t *uses,
                       int by) {
  AT_FOR_NODES(n, c) {
    for (uint32_t i = 0; i < n->num_operands; i++)
      uses[at_plan_slot(p, n->operands[i])] += (uint32_t)by;
    for (uint32_t i = 0; i < n->num_results; i++)
      uses[at_plan_slot(p, (at_value){n, i})] += (uint32_t)by;
    for (uint32_t r = 0; at_has_steps(n) && r < n->num_regions; r++)
      count_uses(p, n->regions[r], uses, by);
  }
  for (uint32_t i = 0; i < c->num_results; i++)
    uses[at_plan_slot(p, c->results[i])] += (uint32_t)by;
}

// Once per program: counts uses of all slots.
static at_status prepare(at_emit_steps *e, at_native *s) {
  if (s->uses) return AT_OK;
  size_t slots = e->plan->num_slots + 1;
  s->known = at_map_in(e->arena);
  AT_TRY_ALLOC(s->buffer, at_new(e->arena, uint32_t, slots));
  AT_TRY_ALLOC(s->uses, at_new(e->arena, uint32_t, slots));
  count_uses(e->plan, s->module->entry, s->uses, 1);
  return AT_OK;
}

// Between two nests `uses` counts the whole program and no slot has a buffer.
// No memory to count with: true.
static bool is_clean(const at_emit_steps *e, const at_native *s) {
  size_t slots = e->plan->num_slots + 1;
  uint32_t *uses = at_new(e->arena, uint32_t, slots);
  if (!uses) return true;
  count_uses(e->plan, s->module->entry, uses, 1);
  for (size_t i = 0; i < slots; i++)
    if (uses[i] != s->uses[i] || s->buffer[i]) return false;
  return true;
}

typedef struct numbering {
  at_emit_steps *e;
  at_native *state;
  at_nest *nest;
  AT_VEC(uint32_t) params;  // slots
  AT_VEC(uint32_t) known;   // slots that have a buffer now
  uint64_t scratch_bytes;
  uint64_t local_bytes;
} numbering;

// What only the nest reads and writes is its own, if it is small: one buffer,
// and all of them, which a stack has to hold.
enum { LOCAL_BYTES = 4096, ALL_LOCAL_BYTES = 128 << 10 };

// The buffer of a slot, made when the slot is met first: a local where nobody
// else uses it and it is small, else a parameter.
static at_status number_slot(numbering *m, uint32_t slot, uint32_t *out) {
  at_arena *a = m->e->arena;
  uint32_t *buffer = &m->state->buffer[slot];
  if (!*buffer) {
    bool scratch = slot == scratch_of(m->e);
    const at_xslot *x = &m->e->plan->slots[slot];
    uint64_t bytes = scratch ? m->scratch_bytes : x->bytes;
    bool own = !scratch && x->kind == AT_SLOT_TEMP && !m->state->uses[slot] &&
               bytes <= LOCAL_BYTES &&
               m->local_bytes + bytes <= ALL_LOCAL_BYTES;
    if (own) m->local_bytes += bytes;
    AT_TRY(at_nest_add_buffer(m->nest, own ? AT_NEST_LOCAL : AT_NEST_PARAM,
                              bytes, buffer));
    ++*buffer;
    if ((!own && !at_vec_push(a, &m->params, slot)) ||
        !at_vec_push(a, &m->known, slot))
      return AT_NO_MEMORY("a nest's buffers");
  }
  *out = *buffer - 1;
  return AT_OK;
}

// Visitor of at_nest_walk.
static at_status number_refs(void *user, at_nest_stmt *s) {
  numbering *m = user;
  for (uint32_t i = 0; i < s->num_refs; i++)
    AT_TRY(number_slot(m, s->refs[i].buffer, &s->refs[i].buffer));
  return AT_OK;
}

// Do the two lie in the same memory?
static bool overlap(const at_xslot *a, const at_xslot *b) {
  return a->kind == b->kind && a->index == b->index &&
         a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

// By where they begin.
static int by_offset(const void *x, const void *y) {
  const at_xslot *a = *(const at_xslot *const *)x,
                 *b = *(const at_xslot *const *)y;
  if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
  if (a->index != b->index) return a->index < b->index ? -1 : 1;
  return (a->offset > b->offset) - (a->offset < b->offset);
}

// Says of each buffer of the nest whether it is alone: the plan gives places
// away that are free for some of a turn.
static at_status find_alone(numbering *m) {
  const at_plan *p = m->e->plan;
  const at_xslot **by;
  size_t count = 0;
  AT_TRY_ALLOC(by, at_new(m->e->arena, const at_xslot *, m->params.len + 1));
  for (size_t i = 0; i < m->params.len; i++)
    if (m->params.ptr[i] != scratch_of(m->e))
      by[count++] = &p->slots[m->params.ptr[i]];
  qsort(by, count, sizeof *by, by_offset);
  for (size_t i = 0; i < m->known.len; i++) {
    uint32_t slot = m->known.ptr[i];
    at_nest_buffer *b = &m->nest->buffers.ptr[m->state->buffer[slot] - 1];
    b->alone = b->memory == AT_NEST_LOCAL;
  }
  const at_xslot *furthest = NULL;  // of those before, ends last
  for (size_t i = 0; i < count; i++) {
    const at_xslot *x = by[i];
    bool shared = (furthest && overlap(furthest, x)) ||
                  (i + 1 < count && overlap(x, by[i + 1]));
    at_nest_buffer *b =
        &m->nest->buffers.ptr[m->state->buffer[x - p->slots] - 1];
    b->alone = !shared && x->kind != AT_SLOT_INPUT && x->kind != AT_SLOT_CONST;
    if (!furthest || furthest->kind != x->kind || furthest->index != x->index ||
        furthest->offset + furthest->bytes < x->offset + x->bytes)
      furthest = x;
  }
  return AT_OK;
}

// Fragment, numbering, locals, verification.
at_status at_native_nest(at_emit_steps *e, at_native *state, const at_node *n,
                         at_native_nest_out *out) {
  *out = (at_native_nest_out){0};
  AT_TRY(prepare(e, state));
  builder b = {.e = e, .state = state};
  fragment *f;
  AT_TRY(build_control(&b, n, &f));
  if (!f) return AT_OK;
  numbering m = {.e = e, .state = state, .scratch_bytes = f->scratch_bytes};
  AT_TRY(at_nest_create(e->arena, at_op_text(n->op), &m.nest));
  m.nest->root = f->block;
  // Slots whose count is 0 now are used nowhere else.
  for (uint32_t r = 0; r < n->num_regions; r++)
    count_uses(e->plan, n->regions[r], state->uses, -1);
  AT_TRY(at_nest_walk(&m.nest->root, number_refs, &m));
  for (uint32_t r = 0; r < n->num_regions; r++)
    count_uses(e->plan, n->regions[r], state->uses, 1);
  for (uint32_t r = 0; r < n->num_results; r++) {
    uint32_t at =
        state->buffer[at_plan_slot(e->plan, (at_value){(at_node *)n, r})];
    if (at) m.nest->buffers.ptr[at - 1].live_out = true;
  }
  AT_TRY(find_alone(&m));
  for (size_t i = 0; i < m.known.len; i++) state->buffer[m.known.ptr[i]] = 0;
  AT_VERIFY(is_clean(e, state));
  AT_ASSERT(m.nest->num_params == m.params.len);  // each is a slot
  AT_TRY(at_nest_localise(m.nest));
  AT_TRY(at_nest_exchange(m.nest));
  AT_TRY(at_nest_verify(m.nest));
  if (state->text) at_nest_print(m.nest, state->text);
  *out = (at_native_nest_out){m.nest, m.params.ptr, (uint32_t)m.params.len,
                              f->scratch_bytes, f->turns ? LOOP_NS : f->ns};
  return AT_OK;
}

// Inputs of Pallas kernels that are made block by block. A kernel that allows
// it (allow_input_fusion) and the elementwise work that makes one of its inputs
// become one FUSION: the input is no array, each of its blocks is computed
// where the kernel's window would have copied it from memory.
//
// That holds where nobody but the kernel reads the input. A window that comes
// to a block again has it made again: that must be less work than an array is.
#include "compile/core.h"
#include "mosaic/mosaic.h"
#include "tpu/tpu.h"

enum {
  kMostNodes = 64,  // of one input
  kLongRow = 4096   // bytes
};

typedef AT_VEC(at_node *) node_list;
typedef struct inputs {
  at_module *m;
  at_comp *c;
  at_arena *arena;
  at_map uses;  // at_node * -> how many
} inputs;

// ---- Uses
static at_status add_use(inputs *f, at_value v) {
  void **at;
  AT_TRY_ALLOC(at, at_map_put_ptr(&f->uses, v.node));
  *at = (void *)((uintptr_t)*at + 1);
  return AT_OK;
}

// Operands and results of c and its regions.
static at_status count_uses(inputs *f, const at_comp *c) {
  AT_FOR_NODES(n, c) {
    for (uint32_t i = 0; i < n->num_operands; i++)
      AT_TRY(add_use(f, n->operands[i]));
    for (uint32_t r = 0; r < n->num_regions; r++)
      AT_TRY(count_uses(f, n->regions[r]));
  }
  for (uint32_t i = 0; i < c->num_results; i++)
    AT_TRY(add_use(f, c->results[i]));
  return AT_OK;
}

static uintptr_t uses_of(const inputs *f, const at_node *n) {
  void **at = at_map_find_ptr(&f->uses, n);
  return at ? (uintptr_t)*at : 0;
}

// ---- Which inputs
static bool is_scalar_constant(const at_node *n) {
  const at_literal *l = at_node_literal(n);
  return l && (l->splat || at_type_elements(&l->type) == 1);
}

// Elementwise work, counts and broadcasts with one static result.
static bool fuses(const at_node *n) {
  if (n->num_results != 1 || !at_type_is_static(&n->types[0]) ||
      n->types[0].quant)
    return false;
  return at_op_is(n->op, AT_ELEMENTWISE) || n->op == AT_OP_IOTA ||
         n->op == AT_OP_BROADCAST_IN_DIM;
}

// How often each element of the window's input would be made; 0: it is an
// array.
static at_status is_made(inputs *f, const at_mosaic_kernel *k,
                         const at_node *call, uint32_t w, double *out) {
  const at_mosaic_program *p = &k->programs[0];
  uint32_t operand = p->windows[w].index;
  *out = 0;
  if (p->windows[w].is_output || operand >= call->num_operands) return AT_OK;
  const at_node *n = call->operands[operand].node;
  at_dtype t = n->num_results == 1 ? n->types[0].dtype : AT_INVALID;
  bool computes = n->op != AT_OP_IOTA && fuses(n) && n->types[0].rank;
  if (!computes || n->parent != f->c || uses_of(f, n) != 1 || t == AT_U2 ||
      t == AT_U4)
    return AT_OK;
  bool read_only;
  AT_TRY(
      at_core_only_reads(p, at_mosaic_arg_window(p) + w, f->arena, &read_only));
  return read_only ? at_mosaic_may_make(k, operand, f->arena, out) : AT_OK;
}

// ---- One input: the nodes that only it needs
typedef struct cluster {
  inputs *f;
  at_map inside;      // at_node * -> uses by members
  node_list members;  // the last first
} cluster;

// n is a member; its operands have one more use inside.
static at_status enter(cluster *k, at_node *n) {
  if (!at_vec_push(k->f->arena, &k->members, n)) return AT_NO_MEMORY("inputs");
  for (uint32_t i = 0; i < n->num_operands; i++) {
    void **at;
    AT_TRY_ALLOC(at, at_map_put_ptr(&k->inside, n->operands[i].node));
    *at = (void *)((uintptr_t)*at + 1);
  }
  return AT_OK;
}

// Backwards from the last node, so that all users of a node were seen: it joins
// if all of them are members.
static at_status gather(cluster *k, at_node *last) {
  AT_TRY(enter(k, last));
  for (at_node *n = last->prev; n && k->members.len < kMostNodes; n = n->prev) {
    void **at = at_map_find_ptr(&k->inside, n);
    if (at && fuses(n) && (uintptr_t)*at == uses_of(k->f, n))
      AT_TRY(enter(k, n));
  }
  return AT_OK;
}

// ---- Building
// A region under construction, its parameters and what stands for them.
typedef struct region {
  inputs *f;
  at_comp *body;
  at_map known;  // at_node * -> at_value * in `body`
  at_value_list operands;
} region;

static at_status region_begin(inputs *f, region *r) {
  *r = (region){.f = f, .known = at_map_in(f->arena)};
  return at_region_create(f->m, &r->body);
}

// v stands for n's result in the region.
static at_status bind(region *r, const at_node *n, at_value v) {
  void **at;
  AT_TRY_ALLOC(at, at_map_put_ptr(&r->known, n));
  AT_TRY_ALLOC(*at,
               at_arena_copy(r->f->arena, &v, sizeof v, _Alignof(at_value)));
  return AT_OK;
}

static at_status param_of(region *r, at_value v, at_value *out) {
  return at_region_param(r->f->arena, r->body, &r->operands, v, out);
}

// Does something stand for n already?
static bool is_bound(const region *r, const at_node *n, at_value *out) {
  void **at = at_map_find_ptr(&r->known, n);
  if (at) *out = *(const at_value *)*at;
  return at;
}

// What stands in the region for a value outside of it: a copy of a scalar
// constant, else a parameter.
static at_status value_in(region *r, at_value v, at_value *out) {
  if (is_bound(r, v.node, out)) return AT_OK;
  if (!is_scalar_constant(v.node)) return param_of(r, v, out);
  AT_TRY(at_build_constant(r->body, NULL, at_node_literal(v.node), out));
  return bind(r, v.node, *out);
}

// n in the region, on what stands for its operands.
static at_status copy_node(region *r, const at_node *n, at_node **out) {
  at_value *operands;
  AT_TRY_ALLOC(operands, at_new(r->f->arena, at_value, n->num_operands + 1));
  for (uint32_t i = 0; i < n->num_operands; i++)
    AT_TRY(value_in(r, n->operands[i], &operands[i]));
  at_node_desc d = at_node_desc_like(n, operands, NULL);
  return at_build(r->body, NULL, &d, out);
}

// A FUSION of what was built, which gives what `like` gave.
static at_status fusion_of(const region *r, at_fusion_kind kind, at_comp *c,
                           at_node *before, const at_value *operands,
                           const at_node *like, at_node **out) {
  at_attr attr = {.id = AT_ATTR_KIND, .i = kind};
  at_node_desc d = {.op = AT_OP_FUSION,
                    .operands = operands,
                    .num_operands = (uint32_t)r->operands.len,
                    .attrs = &attr,
                    .num_attrs = 1,
                    .regions = (at_comp **)&r->body,
                    .num_regions = 1,
                    .types = like->types,
                    .num_types = like->num_results,
                    .loc = like->loc};
  return at_build(c, before, &d, out);
}

// Rows of a narrow block lie far apart in the array. Where much is computed,
// the processor then waits for each, which costs more than an array of its own.
static bool waits_for_rows(bool costly, const at_mosaic_window *w) {
  uint32_t last = w->bounds.rank - 1;
  int64_t row = w->bounds.ptr[last];
  return costly && row < w->whole.dims[last] &&
         row * (int64_t)at_dtype_bytes(w->whole.dtype) < kLongRow;
}

// Is there a transcendental function, which takes tens of cycles an element?
static bool is_costly(const cluster *k) {
  for (size_t i = 0; i < k->members.len; i++)
    if (at_op_of(k->members.ptr[i]->op)->cost == AT_COST_TRANSCENDENTAL)
      return true;
  return false;
}

// Is there a matrix product in the block or below?
static bool multiplies(const at_mblock *b) {
  for (uint32_t i = 0; i < b->num_ops; i++) {
    const at_mop *op = b->ops[i];
    if (at_mosaic_opcode_of(op) == AT_MOSAIC_TPU_MATMUL) return true;
    for (uint32_t r = 0; r < op->num_regions; r++)
      for (uint32_t k = 0; k < op->regions[r]->num_blocks; k++)
        if (multiplies(op->regions[r]->blocks[k])) return true;
  }
  return false;
}

// An array is written once and read as often as the window comes to it; what
// makes it reads its operands that often instead, and computes: a tenth of that
// is asked as the gain. Operands of products are arranged once for all steps if
// they are arrays.
static bool pays(const at_mosaic_kernel *k, const region *r,
                 const at_node *last, double times, bool costly) {
  if (times <= 1) return true;
  if (costly || multiplies(k->programs[0].body)) return false;
  double whole = (double)at_type_bytes(&last->types[0]), read = 0;
  for (size_t i = 0; i < r->operands.len; i++)
    read += (double)at_type_bytes(at_value_type(r->operands.ptr[i]));
  return times * read <= 0.9 * (read + (1 + times) * whole);
}

// The input that `last` makes, as a LOOP inside the kernel's region.
static at_status add_input(region *outer, const at_mosaic_kernel *kernel,
                           const at_mosaic_window *w, double times,
                           at_node *last, node_list *dead) {
  cluster k = {.f = outer->f, .inside = at_map_in(outer->f->arena)};
  region r;
  at_node *copy = NULL;
  AT_TRY(gather(&k, last));
  bool costly = is_costly(&k);
  if (waits_for_rows(costly, w)) return AT_OK;
  AT_TRY(region_begin(outer->f, &r));
  for (size_t i = k.members.len; i-- > 0;) {
    AT_TRY(copy_node(&r, k.members.ptr[i], &copy));
    AT_TRY(bind(&r, k.members.ptr[i], (at_value){copy, 0}));
  }
  if (!pays(kernel, &r, last, times, costly)) return AT_OK;
  at_value result = {copy, 0}, *operands;
  AT_TRY(at_comp_return(r.body, &result, 1));
  AT_TRY_ALLOC(operands, at_new(outer->f->arena, at_value, r.operands.len + 1));
  for (size_t i = 0; i < r.operands.len; i++)
    AT_TRY(param_of(outer, r.operands.ptr[i], &operands[i]));
  at_node *made;
  AT_TRY(
      fusion_of(&r, AT_FUSION_LOOP, outer->body, NULL, operands, last, &made));
  for (size_t i = 0; i < k.members.len; i++)
    if (!at_vec_push(outer->f->arena, dead, k.members.ptr[i]))
      return AT_NO_MEMORY("inputs");
  return bind(outer, last, (at_value){made, 0});
}

// ---- One kernel
static at_status fuse_call(inputs *f, at_node *call, const at_mosaic_kernel *k,
                           node_list *dead) {
  region r;
  AT_TRY(region_begin(f, &r));
  for (uint32_t w = 0; w < k->programs[0].num_windows; w++) {
    double times;
    const at_mosaic_window *x = &k->programs[0].windows[w];
    AT_TRY(is_made(f, k, call, w, &times));
    if (times > 0)
      AT_TRY(add_input(&r, k, x, times, call->operands[x->index].node, dead));
  }
  if (!dead->len) return AT_OK;
  at_value *operands, *results;
  AT_TRY_ALLOC(operands, at_new(f->arena, at_value, call->num_operands + 1));
  AT_TRY_ALLOC(results, at_new(f->arena, at_value, call->num_results + 1));
  for (uint32_t i = 0; i < call->num_operands; i++) {
    at_value v = call->operands[i];
    if (!is_bound(&r, v.node, &operands[i]))
      AT_TRY(param_of(&r, v, &operands[i]));
  }
  at_node_desc d = at_node_desc_like(call, operands, NULL);
  at_node *kernel, *fusion;
  AT_TRY(at_build(r.body, NULL, &d, &kernel));
  for (uint32_t i = 0; i < call->num_results; i++)
    results[i] = (at_value){kernel, i};
  AT_TRY(at_comp_return(r.body, results, call->num_results));
  AT_TRY(fusion_of(&r, AT_FUSION_KERNEL, f->c, call, r.operands.ptr, call,
                   &fusion));
  for (uint32_t i = 0; i < call->num_results; i++)
    at_replace_uses(f->c, (at_value){call, i}, (at_value){fusion, i});
  at_node_remove(call);
  for (size_t i = 0; i < dead->len; i++) at_node_remove(dead->ptr[i]);
  return AT_OK;
}

// The configuration says so, and no token ties the call. The word is looked for
// in the text, as reading every kernel would take long.
static bool may_fuse(const at_node *n) {
  static const char word[] = "allow_input_fusion";
  if (!at_mosaic_is_call(n)) return false;
  at_str config = at_node_str(n, AT_ATTR_BACKEND_CONFIG);
  for (uint32_t i = 0; i < n->num_results; i++)
    if (n->types[i].dtype == AT_TOKEN) return false;
  return memmem(config.ptr, config.len, word, sizeof word - 1) != NULL;
}

// Regions first. Uses are counted for each kernel anew, as fusing one changes
// them.
static at_status fuse_comp(at_module *m, at_comp *c, at_arena *a) {
  for (at_node *n = c->first, *next; n; n = next) {
    next = n->next;
    for (uint32_t r = 0; r < n->num_regions; r++)
      AT_TRY(fuse_comp(m, n->regions[r], a));
    if (!may_fuse(n)) continue;
    at_mosaic_call call;
    at_mosaic_kernel *k;
    AT_TRY(at_mosaic_call_of(n, a, &call));
    at_status read = at_mosaic_read(&call, a, &k);
    if (read.err) {  // said when its code is made
      at_status_free(read);
      continue;
    }
    inputs f = {m, c, a, at_map_in(a)};
    node_list dead = {0};
    AT_TRY(count_uses(&f, c));
    AT_TRY(fuse_call(&f, n, k, &dead));
  }
  return AT_OK;
}

// Programs under ATOLL_CHECK keep their arrays.
at_status at_core_fuse(at_module *m) {
  if (at_core_is_checked()) return AT_OK;  // the checks look at arrays
  return fuse_comp(m, m->entry, m->arena);
}

// ---- Afterwards
const at_node *at_core_kernel_of(const at_node *n) {
  if (at_mosaic_is_call(n)) return n;
  if (n->op != AT_OP_FUSION ||
      at_node_int(n, AT_ATTR_KIND, 0) != AT_FUSION_KERNEL)
    return NULL;
  return n->regions[0]->last;
}

// A program as functions: arguments, values, the walk over operations.
#include "mosaic/emit.h"
#include "mosaic/mosaic_internal.h"

// ---- functions
enum { REF_BYTES = sizeof(at_core_ref) };

// A load from `byte` bytes behind p.
static LLVMValueRef field(at_em *e, LLVMValueRef p, int64_t byte,
                          LLVMTypeRef t) {
  LLVMTypeRef i8 = at_em_int(e, 8);
  LLVMValueRef at = at_b_gep(e, i8, p, at_em_i64(e, byte));
  return at_b_load(e, t, at, 4);
}

static uint32_t log2_of(uint32_t n) { return (uint32_t)__builtin_ctz(n); }

// Argument `index` among the refs. dense: strides are known.
static at_status bind_ref(at_me *m, at_mvalue *v, uint32_t index, bool dense) {
  at_mosaic_ref t;
  AT_TRY(at_mosaic_ref_of(v->type, &t));
  if (t.shape.rank > AT_ME_RANK)
    return AT_FAIL(AT_UNIMPLEMENTED,
                   "kernel %s: an argument with %u dimensions", m->k->name,
                   t.shape.rank);
  LLVMValueRef p = at_b_gep(m->e, at_em_int(m->e, 8), m->refs,
                            at_em_i64(m->e, (int64_t)index * REF_BYTES));
  const at_mplan_value *plan = at_mplan_value_of(m->plan, v);
  at_me_home *home;
  AT_TRY_ALLOC(home, at_new(m->a, at_me_home, 1));
  *home = (at_me_home){t.space, plan->root, plan->pages, index + 1};
  at_me_ref r = {.base = field(m->e, p, 0, at_b_ptr(m->e)),
                 .dtype = t.dtype,
                 .storage = t.dtype,
                 .rank = t.shape.rank,
                 .home = home,
                 .packing = &at_me_plain};
  r.bytes =
      t.semaphore != AT_MSEM_NONE ? AT_CORE_SEM_BYTES : at_dtype_bytes(t.dtype);
  int64_t step = 1;
  for (uint32_t d = r.rank; d-- > 0;) {
    int64_t size = t.shape.ptr[d];
    if (size == AT_MDYN)
      return AT_FAIL(AT_UNIMPLEMENTED,
                     "kernel %s: an argument of dynamic shape", m->k->name);
    r.size[d] = (at_me_num){size, NULL};
    r.stride[d] = (at_me_num){step, NULL};
    if (!dense && d + 1 < r.rank && size > 1) {
      LLVMValueRef s = field(m->e, p, 8 + 8 * (int64_t)d, at_em_int(m->e, 64));
      uint32_t shift = log2_of(r.bytes);
      if (shift) s = at_b_bin(m->e, AT_B_ASHR, s, at_em_i64(m->e, shift));
      r.stride[d] = (at_me_num){0, s};
    }
    step *= size;
  }
  at_me_set_ref(m, v, &r);
  return AT_OK;
}

// Grid ids are loaded once, at the entry. Prefetched refs, scratch of the body
// and whole windows are dense; blocks have the strides of their buffers.
// Transforms see prefetched refs only.
static at_status bind_arguments(at_me *m, at_mblock *b, bool body) {
  const at_mosaic_program *p = m->p;
  uint32_t windows = at_mosaic_arg_window(p);
  uint32_t scratch = at_mosaic_arg_scratch(p);
  for (uint32_t i = 0; i < b->num_args; i++) {
    at_mvalue *v = &b->args[i];
    if (i < p->grid_rank) {
      at_me_set_scalar(
          m, v, field(m->e, m->grid, 4 * (int64_t)i, at_em_int(m->e, 32)));
      continue;
    }
    bool dense = i < windows || (body && i >= scratch) ||
                 (i < scratch && p->windows[i - windows].kind == AT_MWIN_WHOLE);
    AT_TRY(bind_ref(m, v, i - p->grid_rank, dense));
  }
  return AT_OK;
}

// What the functions of a program are written from.
typedef struct source {
  const at_mosaic_kernel *kernel;
  const at_mosaic_program *program;
  const at_mosaic_code_options *options;
  const at_mosaic_window *window;  // a transform is written; NULL: the body
  at_mosaic_code *code;
  const at_mloc **locs;  // room for one per operation
  const char **loc_ops;
  uint32_t max_locs;
} source;

// Plans the body and makes the parts of a function under construction, all in
// the function's arena.
static at_status start(at_em *e, const source *s, const at_mblock *body,
                       at_me **out) {
  at_arena *a = e->arena;
  at_mplan_input in = {s->kernel, s->program, s->options, body, e->cpu};
  const at_mplan *plan;
  AT_TRY(at_mplan_make(&in, a, &plan));
  LLVMValueRef core = at_b_param(e, 0);
  at_me m = {
      .e = e,
      .a = a,
      .k = s->kernel,
      .p = s->program,
      .o = s->options,
      .window = s->window,
      .plan = plan,
      .core = core,
      .grid = at_b_param(e, 1),
      .refs = at_b_param(e, 2),
      .symbols = at_me_symbols_new(a),
      .places = at_me_places_new(a, s->locs, s->loc_ops, s->max_locs),
      .temp = at_me_temp_new(
          a, field(e, core, offsetof(at_core, temp), at_b_ptr(e))),
      .pending = at_me_pending_new(a),
      .records = at_me_records_new(a),
      .products = at_me_products_new(a),
      .mxu = at_me_mxu_new(a),
      .rows = &at_me_whole_rows,
  };
  if (!m.symbols || !m.places || !m.temp || !m.pending || !m.records ||
      !m.products || !m.mxu)
    return AT_NO_MEMORY("a kernel's function");
  AT_TRY_ALLOC(*out, at_arena_copy(a, &m, sizeof m, _Alignof(at_me)));
  return AT_OK;
}

// Memory that no region of its own gives back.
static bool allocates(const at_mblock *b) {
  for (uint32_t i = 0; i < b->num_ops; i++) {
    const at_mop *op = b->ops[i];
    at_mosaic_opcode c = at_mosaic_opcode_of(op);
    if (c == AT_MOSAIC_MEMREF_ALLOCA || c == AT_MOSAIC_TPU_SEM_ALLOC)
      return true;
    if (c == AT_MOSAIC_TPU_REGION) continue;
    for (uint32_t r = 0; r < op->num_regions; r++)
      for (uint32_t k = 0; k < op->regions[r]->num_blocks; k++)
        if (allocates(op->regions[r]->blocks[k])) return true;
  }
  return false;
}

// The body: arguments, MXU registers, operations, and the release of what was
// allocated. Runs while codegen finishes, perhaps more than once.
static at_status emit_body(at_em *e, void *arg) {
  const source *s = arg;
  at_mblock *b = s->program->body;
  at_me *m;
  AT_TRY(start(e, s, b, &m));
  AT_TRY(bind_arguments(m, b, true));
  LLVMValueRef mark = allocates(b) ? at_me_mark(m) : NULL;
  AT_TRY(at_me_mxu_begin(m, b));
  AT_TRY(at_me_emit_block(m, b));
  at_me_mxu_end(m);
  if (mark) at_me_release_to(m, NULL, mark);
  at_b_ret(e);
  AT_TRY(at_walk_status(at_me_walk(m)));
  s->code->temp_bytes = (uint64_t)at_me_temp_bytes(m);
  s->code->num_locations = at_me_places_num(m);
  return AT_OK;
}

// The transform's results go to parameter 3.
static at_status emit_index(at_em *e, void *arg) {
  const source *s = arg;
  const at_mop *f = s->window->transform;
  at_me *m;
  if (f->num_regions != 1 || f->regions[0]->num_blocks != 1)
    return AT_FAIL(AT_INVALID_ARGUMENT, "a window transform without a body");
  at_mblock *b = f->regions[0]->blocks[0];
  AT_TRY(start(e, s, b, &m));
  AT_TRY(bind_arguments(m, b, false));
  AT_TRY(at_me_emit_block(m, b));
  const at_mop *last = b->num_ops ? b->ops[b->num_ops - 1] : NULL;
  for (uint32_t i = 0; last && i < last->num_operands; i++) {
    LLVMValueRef at =
        at_b_gep(e, at_em_int(e, 32), at_b_param(e, 3), at_em_i64(e, i));
    at_b_store(e, at_me_scalar(m, last->operands[i]), at, 4);
  }
  at_b_ret(e);
  return at_walk_status(at_me_walk(m));
}

// Operations in the block and in all regions inside it; recursion follows
// regions.
static uint32_t count_ops(const at_mblock *b) {
  uint32_t n = b->num_ops;
  for (uint32_t i = 0; i < b->num_ops; i++)
    for (uint32_t r = 0; r < b->ops[i]->num_regions; r++)
      for (uint32_t k = 0; k < b->ops[i]->regions[r]->num_blocks; k++)
        n += count_ops(b->ops[i]->regions[r]->blocks[k]);
  return n;
}

// Sources are copied into `a`, since codegen calls the writers later.
// Transforms get no `ops` and `work`: they are small.
at_status at_mosaic_code_add(at_cg *cg, const at_mosaic_kernel *k,
                             uint32_t program, const at_mosaic_code_options *o,
                             at_arena *a, at_mosaic_code **out) {
  const at_mosaic_program *p = &k->programs[program];
  at_mosaic_code *c;
  uint32_t *index;
  source *m, *w;
  // Here, since the functions may be written more than once.
  if (!o->check) AT_TRY(at_mosaic_narrow_lanes(p, a));
  AT_TRY_ALLOC(c, at_new(a, at_mosaic_code, 1));
  AT_TRY_ALLOC(index, at_new(a, uint32_t, p->num_windows + 1));
  AT_TRY_ALLOC(m, at_new(a, source, 1));
  // Places of functions that the body calls count, too.
  const at_mblock *top = k->module->op->regions[0]->blocks[0];
  *m = (source){.kernel = k,
                .program = p,
                .code = c,
                .max_locs = AT_MAX(count_ops(p->body), count_ops(top)) + 1};
  AT_TRY_ALLOC(m->options, at_arena_copy(a, o, sizeof *o,
                                         _Alignof(at_mosaic_code_options)));
  AT_TRY_ALLOC(m->locs, at_new(a, const at_mloc *, m->max_locs));
  AT_TRY_ALLOC(m->loc_ops, at_new(a, const char *, m->max_locs));
  *c = (at_mosaic_code){
      .index = index, .locations = m->locs, .location_ops = m->loc_ops};
  AT_TRY(at_mosaic_stack_of(k, p, a, &c->stack));
  at_cg_function f = {.emit = emit_body,
                      .arg = m,
                      .kind = AT_XK_CORE_BODY,
                      .num_params = 3,
                      .ops = at_mosaic_effort_of(p->body),
                      .work = at_mosaic_work_of(p)};
  AT_TRY(at_cg_external(cg, &f, &c->body));
  for (uint32_t i = 0; i < p->num_windows; i++) {
    if (!p->windows[i].transform) continue;
    AT_TRY_ALLOC(w, at_new(a, source, 1));
    *w = *m;
    w->window = &p->windows[i];
    f = (at_cg_function){.emit = emit_index,
                         .arg = w,
                         .kind = AT_XK_CORE_INDEX,
                         .num_params = 4};
    AT_TRY(at_cg_external(cg, &f, &index[i]));
    index[i]++;
  }
  *out = c;
  return AT_OK;
}

// The grid of one core: steps in lexicographic order, and between them the
// windows of the operands. A block that lies inside its operand is worked on in
// place when nobody can tell; else it has a buffer of its own, filled when the
// window moves there and written back when it moves on.
#include "base/strbuf.h"
#include "base/verify.h"
#include "device/core_internal.h"

// Dimensions that number cores: each core has one index of them.
static bool is_fixed(const at_xcore *r, uint32_t d) {
  return r->semantics[d] == AT_CORE_CORE_PARALLEL ||
         r->semantics[d] == AT_CORE_SUBCORE_PARALLEL;
}

// Steps along dimension d that this core takes.
static int64_t extent(const core_state *c, uint32_t d) {
  if (c->shares && d == c->share_dim) return c->share_end - c->share_begin;
  return c->bounds[d];
}

int64_t core_grid_steps(const core_state *c) {
  const at_xcore *r = c->program->record;
  int64_t n = 1;
  for (uint32_t d = 0; d < r->grid_rank; d++)
    if (!is_fixed(r, d))
      n = (int64_t)AT_MIN(at_mul((size_t)n, (size_t)extent(c, d)),
                          (size_t)1 << 62);
  return n;
}

void core_grid_at(const core_state *c, int64_t step, int32_t *grid) {
  const at_xcore *r = c->program->record;
  for (uint32_t d = r->grid_rank; d-- > 0;) {
    if (is_fixed(r, d)) {
      grid[d] = c->grid[d];
      continue;
    }
    int64_t n = extent(c, d);
    bool share = c->shares && d == c->share_dim;
    grid[d] = (int32_t)(step % n) + (share ? c->share_begin : 0);
    step /= n;
  }
  AT_ASSERT(step == 0);  // it was one of core_grid_steps
}

// ---- Set-up
static size_t elem_bytes(const at_xcore_ref *x) {
  return x->space == AT_CORE_SEM ? AT_CORE_SEM_BYTES
                                 : at_dtype_bytes((at_dtype)x->dtype);
}

// Row-major byte strides; returns the bytes of all.
static size_t dense_strides(const int64_t *dims, uint32_t rank, size_t elem,
                            int64_t *stride) {
  size_t n = elem;
  for (uint32_t d = rank; d-- > 0;) {
    stride[d] = (int64_t)n;
    n = at_mul(n, (size_t)dims[d]);
  }
  return n;
}

// Shared memory is that of subcore 0, under the same region number.
static void *make_scratch(core_state *c, uint32_t i, const at_xcore_ref *x,
                          size_t bytes) {
  if (x->space == AT_CORE_SEM)
    return at_core_alloc(&c->head, AT_CORE_SEM, (int64_t)bytes, -1);
  if (x->space == AT_CORE_VMEM_SHARED && c->sibling) {
    core_region_add(c, c->sibling->refs[i].base, bytes, x->space, (int32_t)i);
    return c->sibling->refs[i].base;
  }
  void *p = core_take(c, bytes, "scratch");
  core_region_add(c, p, bytes, (at_core_space)x->space, (int32_t)i);
  return p;
}

// The operand of an argument; the input of an alias lives where the output
// does.
static void *operand_of(core_state *c, uint32_t i, uint32_t buf,
                        uint32_t first_out) {
  const at_xcore_ref *x = &c->program->refs[i];
  void *const *bufs = c->launch->bufs;
  if (x->role == AT_CORE_IN && x->alias >= 0)
    return bufs[first_out + (uint32_t)x->alias];
  return bufs[buf];
}

int64_t core_elements(const at_xcore_ref *x) {
  int64_t n = 1;
  for (uint32_t d = 0; d < x->rank; d++) n *= x->dims[d];
  return n;
}

// Semaphores that outlive a kernel begin with the value that they had; an
// input that is also an output is one semaphore.
static void init_semaphores(core_state *c, uint32_t i, const int32_t *values) {
  const at_xcore_ref *x = &c->program->refs[i];
  int64_t n = core_elements(x);
  uint32_t out = 0;
  for (uint32_t k = 0; k < i; k++) {
    const at_xcore_ref *y = &c->program->refs[k];
    out += y->role == AT_CORE_OUT;
  }
  for (uint32_t k = 0; k < i && x->role == AT_CORE_OUT; k++) {
    const at_xcore_ref *y = &c->program->refs[k];
    if (y->role == AT_CORE_IN && y->alias == (int32_t)out)
      c->refs[i].base = c->refs[k].base;
  }
  if (c->refs[i].base) return;
  sem *s = at_core_alloc(&c->head, AT_CORE_SEM, n * AT_CORE_SEM_BYTES, -1);
  AT_ASSERT(s >= c->sems && s + n <= c->sems + c->num_sems);
  for (int64_t k = 0; k < n; k++)
    s[k] = (sem){.value = x->role == AT_CORE_IN ? values[k] : 0, .loc = -1};
  c->refs[i].base = s;
}

// Once per program: cores of one program share these semaphores.
void core_semaphores_store(core_state *c) {
  const at_core_program *p = c->program;
  uint32_t buf = core_first_out(p);
  if (c->elder) return;
  for (uint32_t i = 0; i < p->record->num_refs; i++) {
    if (p->refs[i].role != AT_CORE_OUT) continue;
    int32_t *values = c->launch->bufs[buf++];
    if (p->refs[i].space != AT_CORE_SEM) continue;
    const sem *s = c->refs[i].base;
    int64_t n = core_elements(&p->refs[i]);
    for (int64_t k = 0; k < n; k++) values[k] = (int32_t)s[k].value;
  }
}

static void *private_copy(core_state *c, const void *p, size_t bytes) {
  return memcpy(core_take(c, bytes, "a copy of an operand"), p, bytes);
}

// An input in HBM or elsewhere that nothing writes while the kernel runs:
// copies from it may wait.
static bool stays(const core_state *c, const at_xcore_ref *x) {
  return x->role == AT_CORE_IN && !x->stored && x->alias < 0 && !x->fill &&
         x->space != AT_CORE_SEM && !c->launch->checks && !c->together;
}

// Whole operands are handed to the body directly, or as a copy if it writes
// them. Blocked ones become windows.
static void init_operand(core_state *c, uint32_t i, void *operand,
                         size_t bytes) {
  const at_xcore_ref *x = &c->program->refs[i];
  window *w = &c->windows[i];
  bool input = x->role != AT_CORE_OUT;
  if (x->cores > (uint32_t)c->head.core_index)
    operand = (uint8_t *)operand + (size_t)c->head.core_index * bytes;
  if (x->window == AT_CORE_WHOLE) {
    if (input && x->alias < 0 && (x->stored || c->launch->checks) && bytes)
      operand = private_copy(c, operand, bytes);
    core_region_add(c, operand, bytes, (at_core_space)x->space, (int32_t)i)
        ->stays = stays(c, x);
    c->refs[i].base = operand;
    return;
  }
  if (x->fill)
    operand = (void *)&c->launch->bufs[x->fill_bufs];
  else
    core_region_add(c, operand, bytes, AT_CORE_HBM, (int32_t)i)->stays =
        stays(c, x);
  w->operand = operand;
  w->may_point = !c->launch->checks && !w->fill &&
                 (!input || (!x->stored && x->alias < 0));
  memcpy(w->operand_stride, c->refs[i].stride, sizeof w->operand_stride);
}

// That any program of the launch has at the same time, as one signals those of
// another.
static uint32_t most_semaphores(const at_core_launch *l) {
  int64_t most = 0;
  for (uint32_t i = 0; i < l->num_programs; i++) {
    const at_core_program *p = &l->programs[i];
    int64_t n = p->record->stack_sems;
    if (n < 0) return kMostSems;
    for (uint32_t k = 0; k < p->record->num_refs; k++)
      if (p->refs[k].space == AT_CORE_SEM) n += core_elements(&p->refs[k]);
    most = AT_MAX(most, n);
  }
  return (uint32_t)AT_MIN(most + kFirstSem, (int64_t)kMostSems);
}

uint32_t core_first_out(const at_core_program *p) {
  uint32_t n = p->record->num_dynamic;
  for (uint32_t i = 0; i < p->record->num_refs; i++)
    n += p->refs[i].role == AT_CORE_PREFETCH || p->refs[i].role == AT_CORE_IN;
  return n;
}

static uint32_t num_outs(const at_core_program *p) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < p->record->num_refs; i++)
    n += p->refs[i].role == AT_CORE_OUT;
  return n;
}

// Regions are added in the order of the arguments: their numbers are the same
// on all cores of a program.
void core_windows_init(core_state *c) {
  const at_core_program *p = c->program;
  const at_xcore *r = p->record;
  uint32_t n = r->num_refs, buf = r->num_dynamic, first_out = core_first_out(p);
  // An argument has its memory and a window's buffer; semaphores, allocations.
  c->cap_regions = 2 * n + 2;
  c->regions = core_take(c, c->cap_regions * sizeof *c->regions, "regions");
  c->refs = core_take(c, (n + 1) * sizeof *c->refs, "arguments");
  c->windows = core_take(c, (n + 1) * sizeof *c->windows, "windows");
  memset(c->refs, 0, (n + 1) * sizeof *c->refs);
  memset(c->windows, 0, (n + 1) * sizeof *c->windows);
  c->cap_sems = most_semaphores(c->launch);
  size_t sem_bytes = c->cap_sems * sizeof *c->sems;
  c->sems = core_take(c, sem_bytes, "semaphores");
  memset(c->sems, 0, c->together ? sem_bytes : kFirstSem * sizeof *c->sems);
  c->num_sems = c->most_sems = kFirstSem;
  core_region_add(c, c->sems, sem_bytes, AT_CORE_SEM, -1);
  if (r->temp_bytes) c->head.temp = core_take(c, r->temp_bytes, "temporaries");
  for (uint32_t i = 0; i < n; i++) {
    const at_xcore_ref *x = &p->refs[i];
    c->windows[i].ref = x;
    c->windows[i].index = p->index[i];
    c->windows[i].fill = x->fill ? p->fill[i] : NULL;
    size_t bytes =
        dense_strides(x->dims, x->rank, elem_bytes(x), c->refs[i].stride);
    if (x->role == AT_CORE_SCRATCH)
      c->refs[i].base = make_scratch(c, i, x, bytes);
    else if (x->space == AT_CORE_SEM)
      init_semaphores(c, i, operand_of(c, i, buf++, first_out));
    else
      init_operand(c, i, operand_of(c, i, buf++, first_out), bytes);
  }
  AT_VERIFY(buf == first_out + num_outs(p));
}

// ---- Moving a window
// Grid step, block and dimension; the texts are copied, as core_stop does not
// return.
static void refuse_block(core_state *c, uint32_t i, uint32_t d,
                         const int32_t *at) {
  const at_xcore_ref *x = &c->program->refs[i];
  at_strbuf b = {0};
  for (uint32_t k = 0; k < x->rank; k++)
    at_strbuf_addf(&b, "%s%d", k ? ", " : "", at[k]);
  char text[256];
  snprintf(text, sizeof text, "%s", b.ptr ? b.ptr : "");
  at_strbuf_free(&b);
  at_strbuf g = {0};
  for (uint32_t k = 0; k < c->program->record->grid_rank; k++)
    at_strbuf_addf(&g, "%s%d", k ? ", " : "", c->grid[k]);
  char grid[256];
  snprintf(grid, sizeof grid, "%s", g.ptr ? g.ptr : "");
  at_strbuf_free(&g);
  char name[64];
  core_stop(c, AT_OUT_OF_RANGE, core_window_loc(c, i),
            "the index map of %s leaves the array: (%s) at grid step (%s)\n"
            "detail: dimension %u has %lld elements, the block %lld%s",
            core_ref_text(c, i, name, sizeof name), text, grid, d,
            (long long)x->dims[d], (long long)x->block[d],
            x->place
                ? ""
                : "\nhint: the map only passes grid ids on and has no place: "
                  "see its BlockSpec; here the kernel uses the block");
}

// Where the block lies: start, and the part of it inside the operand. True if
// all.
static bool locate(core_state *c, uint32_t i, const int32_t *at) {
  window *w = &c->windows[i];
  const at_xcore_ref *x = w->ref;
  bool inside = true;
  for (uint32_t d = 0; d < x->rank; d++) {
    bool blocked = x->window == AT_CORE_BLOCKED;
    int64_t s = blocked ? at[d] * x->block[d] : at[d] - x->pad_low[d];
    int64_t low = AT_MAX(s, (int64_t)0);
    int64_t high = AT_MIN(s + x->block[d], x->dims[d]);
    bool empty = x->block[d] && low >= high;
    bool beyond =
        s < -x->pad_low[d] || s + x->block[d] > x->dims[d] + x->pad_high[d];
    if (blocked ? empty
                : beyond && (empty || c->launch->checks & AT_CHECK_BOUNDS))
      refuse_block(c, i, d, at);
    w->start[d] = low;
    w->skip[d] = low - s;
    w->valid[d] = AT_MAX(high - low, (int64_t)0);
    AT_ASSERT(!w->valid[d] ||
              (w->start[d] + w->valid[d] <= x->dims[d] &&
               w->skip[d] + w->valid[d] <= x->block[d] && w->skip[d] >= 0));
    inside &= w->valid[d] == x->block[d];
  }
  return inside;
}

static uint8_t *operand_place(const window *w) {
  uint8_t *p = w->operand;
  for (uint32_t d = 0; d < w->ref->rank; d++)
    p += w->start[d] * w->operand_stride[d];
  return p;
}

static uint8_t *buffer_place(const core_state *c, uint32_t i) {
  const window *w = &c->windows[i];
  uint8_t *p = w->buffer;
  for (uint32_t d = 0; d < w->ref->rank; d++)
    p += w->skip[d] * c->refs[i].stride[d];
  return p;
}

// The block is not worked on in place: its own memory, dense, made once.
static void use_buffer(core_state *c, uint32_t i) {
  window *w = &c->windows[i];
  const at_xcore_ref *x = w->ref;
  w->direct = false;
  size_t bytes =
      dense_strides(x->block, x->rank, elem_bytes(x), c->refs[i].stride);
  AT_ASSERT(!w->buffer || w->buffer_bytes == bytes);
  w->buffer_bytes = bytes;
  if (!w->buffer) {
    w->buffer = core_take(c, w->buffer_bytes, "a window");
    core_region_add(c, w->buffer, w->buffer_bytes, (at_core_space)x->space,
                    (int32_t)i);
  }
  c->refs[i].base = w->buffer;
}

// Are the block's dimensions dense in the operand?
static bool is_dense(const window *w) {
  const at_xcore_ref *x = w->ref;
  int64_t want = (int64_t)elem_bytes(x);
  for (uint32_t d = x->rank; d-- > 0;) {
    if (x->block[d] != 1 && w->operand_stride[d] != want) return false;
    want *= x->block[d];
  }
  return true;
}

// ---- Blocks that are made where they are read
typedef struct making {
  const window *w;
  uint8_t *dst;
  const int64_t *stride;
  uint32_t dim;  // that threads share
} making;

// Elements [begin, end) of one dimension, by one thread.
static void make_part(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  const making *m = arg;
  const window *w = m->w;
  int64_t start[AT_CORE_MAX_RANK], size[AT_CORE_MAX_RANK];
  memcpy(start, w->start, sizeof start);
  memcpy(size, w->valid, sizeof size);
  start[m->dim] += begin;
  size[m->dim] = end - begin;
  w->fill((void *const *)(void *)w->operand, start, size,
          m->dst + begin * m->stride[m->dim], m->stride);
}

// Less than so many elements is not worth waking another thread.
enum { kMakeAlone = 1 << 15 };

// Calls `fill` on parts of the first dimension that is not 1.
static void make_block(core_state *c, uint32_t i) {
  window *w = &c->windows[i];
  making m = {w, buffer_place(c, i), c->refs[i].stride, 0};
  int64_t n = 1;
  for (uint32_t d = 0; d < w->ref->rank; d++) n *= w->valid[d];
  if (!n) return;
  while (m.dim + 1 < w->ref->rank && w->valid[m.dim] == 1) m.dim++;
  int64_t count = w->valid[m.dim];
  int64_t grain = AT_MAX(count * kMakeAlone / n, (int64_t)1);
  at_pool_for(c->launch->par->pool, count, grain, make_part, &m);
}

// Works in place if the whole block lies in the operand and nobody can tell;
// else a buffer, filled for inputs.
static void enter(core_state *c, uint32_t i, const int32_t *at) {
  window *w = &c->windows[i];
  const at_xcore_ref *x = w->ref;
  bool inside = locate(c, i, at);
  memcpy(w->now, at, x->rank * sizeof *at);
  w->loaded = true;
  w->whole = inside;
  if (inside && w->may_point && (!x->dense || is_dense(w))) {
    w->direct = true;
    c->refs[i].base = operand_place(w);
    memcpy(c->refs[i].stride, w->operand_stride, sizeof w->operand_stride);
    return;
  }
  use_buffer(c, i);
  int64_t n = (int64_t)(w->buffer_bytes / elem_bytes(x));
  if (!inside && (x->role == AT_CORE_IN || c->shadow))
    core_fill(c, w->buffer, (at_dtype)x->dtype, n);
  if (c->shadow) core_shadow_window(c, i);
  if (x->role != AT_CORE_IN) return;
  if (w->fill) {
    make_block(c, i);
    return;
  }
  box b = {buffer_place(c, i),      operand_place(w), x->rank,
           (uint32_t)elem_bytes(x), w->valid,         c->refs[i].stride,
           w->operand_stride};
  core_copy_shared(c->launch->par->pool, &b);
}

static void do_due(core_state *c) {
  if (c->due.run) c->due.run(&c->head);
}

// Outputs in a buffer go back, without what lies beyond the array.
static void leave(core_state *c, uint32_t i) {
  window *w = &c->windows[i];
  const at_xcore_ref *x = w->ref;
  if (x->role == AT_CORE_OUT) do_due(c);
  if (!w->loaded || w->direct || x->role != AT_CORE_OUT) return;
  if (c->shadow) core_shadow_write_back(c, i);
  box b = {operand_place(w),        buffer_place(c, i), x->rank,
           (uint32_t)elem_bytes(x), w->valid,           w->operand_stride,
           c->refs[i].stride};
  core_copy_shared(c->launch->par->pool, &b);
}

void core_window_index(core_state *c, uint32_t i, const int32_t *grid,
                       int32_t *at) {
  memset(at, 0, AT_CORE_MAX_RANK * sizeof *at);
  if (!c->windows[i].index) return;
  c->mapping = i + 1;
  c->windows[i].index(&c->head, grid, c->refs, at);
  c->mapping = 0;
}

static bool is_there(const window *w, const int32_t *at) {
  bool same = w->loaded;
  for (uint32_t d = 0; d < w->ref->rank; d++) same &= at[d] == w->now[d];
  return same;
}

// An index map runs for every step; blocks that stay are not moved.
static void move_windows(core_state *c) {
  const at_xcore *r = c->program->record;
  for (uint32_t i = 0; i < r->num_refs; i++) {
    window *w = &c->windows[i];
    if (!w->operand || (w->loaded && !w->index)) continue;
    int32_t at[AT_CORE_MAX_RANK];
    core_window_index(c, i, c->grid, at);
    if (is_there(w, at)) continue;
    leave(c, i);
    enter(c, i, at);
  }
  if (c->shadow) core_shadow_moved(c);
}

// Between steps the stack of allocations, the spans and the scoped semaphores
// begin anew.
void core_run_steps(core_state *c, int64_t begin, int64_t end) {
  const at_xcore *r = c->program->record;
  uint32_t sems = c->num_sems;
  core_debug_enter(c);
  for (int64_t s = begin; s < end; s++) {
    core_grid_at(c, s, c->grid);
    c->step = s;
    if (c->shadow) core_shadow_step(c);
    move_windows(c);
    core_debug_step(c);
    c->program->body(&c->head, c->grid, c->refs);
    c->stack_used = 0;
    c->num_spans = 0;
    c->num_sems = sems;
  }
  do_due(c);
  for (uint32_t i = 0; i < r->num_refs; i++) {
    if (!c->windows[i].operand) continue;
    leave(c, i);
    c->windows[i].loaded = false;
  }
  core_debug_leave(c);
}

// ---- Operands that stay
static size_t bytes_of(const at_xcore_ref *x) {
  return (size_t)core_elements(x) * elem_bytes(x);
}

// Steps per block: how often each element is read if blocks are visited equally
// often.
int64_t at_core_reads_of(at_core *core, const void *p) {
  const core_state *c = state_of(core);
  for (uint32_t i = 0; i < c->program->record->num_refs; i++) {
    const window *w = &c->windows[i];
    if (!stays(c, w->ref)) continue;
    const uint8_t *base = w->operand ? w->operand : c->refs[i].base;
    if ((const uint8_t *)p < base ||
        (const uint8_t *)p >= base + bytes_of(w->ref))
      continue;
    return at_ceil_div(core_grid_steps(c),
                       AT_MAX(core_block_count(w->ref), (int64_t)1));
  }
  return 0;
}

size_t at_core_bytes_read(at_core *core) {
  const core_state *c = state_of(core);
  size_t n = 0;
  for (uint32_t i = 0; i < c->program->record->num_refs; i++)
    if (stays(c, c->windows[i].ref)) n = at_add(n, bytes_of(c->windows[i].ref));
  return n;
}

at_core_due *at_core_due_of(at_core *core) { return &state_of(core)->due; }

_Atomic(void *) *at_core_note(at_core *core) {
  core_state *c = state_of(core);
  return c->lead ? &c->lead->note : &c->note;
}

// Pallas kernels: from the records of an executable to a launch on virtual
// cores, and the dots that their code hands to the shared kernels.
#include <stdlib.h>

#include "base/clock.h"
#include "base/config.h"
#include "exec/exec_internal.h"

static const void *section(const at_loaded *l, at_xsection s) {
  return l->block + l->header->sections[s].offset;
}

// One block: programs, then the index functions of all of them, then what
// fills windows.
at_status at_core_prepare(at_loaded *l, const at_xstep *step, at_op *op) {
  const at_xcore *records =
      (const at_xcore *)section(l, AT_XS_CORES) + step->target;
  const at_xcore_ref *refs = section(l, AT_XS_CORE_REFS);
  size_t n = (size_t)step->aux, maps = 0;
  for (size_t i = 0; i < n; i++) maps += records[i].num_refs;
  at_core_program *p =
      calloc(1, n * sizeof *p + sizeof *op->pace +
                    maps * (sizeof *p->index + sizeof *p->fill));
  if (!p) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory to load a kernel");
  op->cores = p;
  op->pace = (at_core_pace *)(p + n);
  atomic_init(&op->pace->ns, (int64_t)step->estimated_ns);
  op->pace->all = &l->expected_ns;
  l->has_kernels = true;
  at_core_index_fn *index = (at_core_index_fn *)(op->pace + 1);
  at_core_fill_fn *fill = (at_core_fill_fn *)(index + maps);
  for (size_t i = 0; i < n; i++) {
    const at_xcore *r = &records[i];
    p[i] = (at_core_program){
        .record = r,
        .name = at_loaded_string(l, r->name),
        .refs = refs + r->refs,
        .index = index,
        .fill = fill,
        .locations =
            (const at_xlocation *)section(l, AT_XS_LOCATIONS) + r->locations,
        .places = section(l, AT_XS_LOCATIONS),
        .strings = section(l, AT_XS_STRINGS)};
    void *address;
    AT_TRY(at_loaded_kernel(l, r->kernel, &address));
    p[i].body = (at_core_body_fn)address;
    for (uint32_t k = 0; k < r->num_refs; k++, index++, fill++) {
      const at_xcore_ref *x = &p[i].refs[k];
      if (x->fill) {
        AT_TRY(at_loaded_kernel(l, x->fill - 1, &address));
        *fill = (at_core_fill_fn)address;
      }
      if (!x->kernel) continue;
      AT_TRY(at_loaded_kernel(l, (uint32_t)(x->kernel - 1), &address));
      *index = (at_core_index_fn)address;
    }
  }
  return AT_OK;
}

// Kernels of one device alone need no meeting, whatever their flags say.
bool at_core_communicates(const at_loaded *l, const at_xstep *step) {
  if (step->kind != AT_STEP_CORE || l->num_devices < 2) return false;
  const at_xcore *r = (const at_xcore *)section(l, AT_XS_CORES) + step->target;
  for (int64_t i = 0; i < step->aux; i++)
    if (r[i].flags & AT_CORE_HAS_COMMUNICATION) return true;
  return false;
}

// Borrows the frame's tables for the run.
at_core_launch at_core_launch_make(const at_frame *f, const at_op *op,
                                   const at_par *par) {
  return (at_core_launch){.programs = op->cores,
                          .num_programs = (uint32_t)op->aux,
                          .bufs = f->bufs + op->args,
                          .num_bufs = op->num_args,
                          .hw = f->chip->hw,
                          .par = par,
                          .sched = f->chip->runtime->sched,
                          .device_id = (int32_t)f->device,
                          .num_devices = (int32_t)at_device_count(f->loaded),
                          .checks = f->loaded->checks,
                          .max_turns = f->loaded->max_turns};
}

// Cores that wait for each other are never for the caller's thread. One run
// that took longer than others, as any may, does not say much.
static void note_pace(at_core_pace *p, bool alone, uint64_t ns) {
  const int64_t never = 1000000;
  int64_t now = alone ? (int64_t)AT_MIN(ns, (uint64_t)never) : never;
  int64_t old = atomic_load_explicit(&p->ns, memory_order_relaxed);
  if (alone && now > old) now = old + (now - old) / 8;
  old = atomic_exchange_explicit(&p->ns, now, memory_order_relaxed);
  atomic_fetch_add_explicit(p->all, now - old, memory_order_relaxed);
}

// Runs the step's programs on one device and notes how long it took.
at_status at_core_step_run(at_frame *f, const at_op *op, const at_par *par) {
  at_core_launch launch = at_core_launch_make(f, op, par);
  bool alone = false;
  launch.out_alone = &alone;
  uint64_t start = at_clock_ns();
  at_status st = at_core_run(&launch);
  note_pace(op->pace, alone && !st.err, at_clock_ns() - start);
  return st;
}

// ---- Dots
typedef struct matrix {
  const uint8_t *p;
  at_dtype type;
  int64_t batch, rows, cols;  // counts
  int64_t stride[3];          // bytes
} matrix;

enum { kRowsAhead = 3 };

// A dense bf16 copy of an f32 matrix, its own dense dimension innermost.
static bool round_matrix(const at_par *par, matrix *m) {
  bool by_column = m->stride[2] != 4 && m->stride[1] == 4;
  int64_t inner = by_column ? m->rows : m->cols;
  int64_t outer = by_column ? m->cols : m->rows;
  int64_t inner_stride = m->stride[by_column ? 1 : 2];
  int64_t outer_stride = m->stride[by_column ? 2 : 1];
  size_t n = (size_t)(m->batch * inner * outer);
  uint16_t *out = at_par_scratch(par, n * 2 + 64);
  if (!out) return false;
  bool dense = inner_stride == 4 && outer_stride == 4 * inner;
  for (int64_t b = 0; b < m->batch; b++) {
    if (dense) {
      at_k_convert(AT_BF16, out + b * outer * inner, AT_F32,
                   m->p + b * m->stride[0], outer * inner);
      continue;
    }
    for (int64_t i = 0; i < outer; i++) {
      uint16_t *row = out + (b * outer + i) * inner;
      const uint8_t *src = m->p + b * m->stride[0] + i * outer_stride;
      if (inner_stride == 4 || inner == 1) {
        // Rows of a block lie far apart: the processor does not foresee them.
        const uint8_t *ahead = src + kRowsAhead * outer_stride;
        for (int64_t k = 0; k < 4 * inner && i + kRowsAhead < outer; k += 64)
          __builtin_prefetch(ahead + k);
        at_k_convert(AT_BF16, row, AT_F32, src, inner);
        continue;
      }
      for (int64_t k = 0; k < inner; k++)
        at_k_convert(AT_BF16, row + k, AT_F32, src + k * inner_stride, 1);
    }
  }
  m->p = (const uint8_t *)out;
  m->type = AT_BF16;
  m->stride[0] = outer * inner * 2;
  m->stride[by_column ? 1 : 2] = 2;
  m->stride[by_column ? 2 : 1] = inner * 2;
  return true;
}

// One dimension of a product with its strides in the three matrices.
static at_k_gemm_dims group(int64_t n, int64_t x, int64_t y, int64_t z) {
  at_k_gemm_dims d = {.rank = 1};
  d.size[0] = n;
  d.stride_x[0] = x;
  d.stride_y[0] = y;
  d.stride_z[0] = z;
  return d;
}

// row[j * stride bytes] += sum[j]; dense rows in a loop of their own, for
// vectors.
static void add_row(at_dtype t, uint8_t *row, int64_t stride,
                    const uint8_t *sum, int64_t n) {
  if (t == AT_F32 && stride == sizeof(float)) {
    float *restrict to = (float *)row;
    const float *restrict from = (const float *)sum;
    for (int64_t j = 0; j < n; j++) to[j] += from[j];
    return;
  }
  for (int64_t j = 0; j < n; j++, row += stride) {
    if (t == AT_F32)
      *(float *)row += ((const float *)sum)[j];
    else
      *(uint32_t *)row += ((const uint32_t *)sum)[j];
  }
}

// By the shared GEMM kernel: operands rounded first where asked; accumulated in
// place where that kernel can, else through a matrix of its own.
static at_status multiply(const at_par *par, const at_core_dot *d) {
  matrix a = {d->a, (at_dtype)d->a_type,         d->batch, d->m,
              d->k, {d->a_batch, d->a_m, d->a_k}};
  matrix b = {d->b, (at_dtype)d->b_type,         d->batch, d->k,
              d->n, {d->b_batch, d->b_k, d->b_n}};
  bool fits = true;
  if (d->round_bf16 && a.type == AT_F32) fits &= round_matrix(par, &a);
  if (d->round_bf16 && b.type == AT_F32) fits &= round_matrix(par, &b);
  if (!fits) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a dot");
  at_dtype ct = (at_dtype)d->c_type;
  int64_t ae = at_dtype_bytes(a.type), be = at_dtype_bytes(b.type);
  int64_t ce = at_dtype_bytes(ct), cells = d->batch * d->m * d->n;
  int64_t cs[3] = {d->c_batch / ce, d->c_m / ce, d->c_n / ce};
  at_k_gemm_params p = {
      .a = a.type,
      .b = b.type,
      .acc = ct == AT_S32 ? AT_S32 : AT_F32,
      .c = ct,
      .batch = group(d->batch, a.stride[0] / ae, b.stride[0] / be, cs[0]),
      .m = group(d->m, a.stride[1] / ae, cs[1], 0),
      .n = group(d->n, b.stride[2] / be, cs[2], 0),
      .k = group(d->k, a.stride[2] / ae, b.stride[1] / be, 0)};
  void *bufs[3] = {(void *)a.p, (void *)b.p, d->c};
  at_k_call call = {.par = par, .params = &p, .bufs = bufs, .num_bufs = 3};
  at_status st = AT_OK;
  if (!d->accumulate) return at_k_gemm(&call);
  if (at_k_gemm_add(&call, &st)) return st;
  uint8_t *c = at_par_scratch(par, (size_t)(cells * ce) + 64);
  if (!c) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a dot");
  bufs[2] = c;
  p.batch.stride_z[0] = d->m * d->n;
  p.m.stride_y[0] = d->n;
  p.n.stride_y[0] = 1;
  AT_TRY(at_k_gemm(&call));
  for (int64_t i = 0; i < d->batch * d->m; i++) {
    uint8_t *row = (uint8_t *)d->c + i / d->m * d->c_batch + i % d->m * d->c_m;
    add_row(ct, row, d->c_n, c + i * d->n * ce, d->n);
  }
  return AT_OK;
}

// Scratch of one dot: s lives on the caller's stack until at_core_dot_end.
void at_core_dot_begin(at_core *core, at_core_dot_scratch *s) {
  const at_core_launch *l = at_core_launch_of(core);
  const at_frame *outer = l->par->owner;
  // Its own list of blocks: a grid has many dots.
  s->frame = (at_frame){.chip = outer->chip, .pool = outer->pool};
  s->par = (at_par){l->par->pool, at_frame_take_scratch, &s->frame};
}

void at_core_dot_end(at_core_dot_scratch *s) {
  at_frame_give_scratch(&s->frame);
}

// Called by generated code. Tries the forms from the most special one on; a
// failure ends the kernel at the dot's location.
void at_core_dot_run(at_core *core, const at_core_dot *d) {
  if (d->batch <= 0 || d->m <= 0 || d->n <= 0 || at_core_dot_few(core, d))
    return;
  at_core_dot_fetch(core, d);
  at_core_dot_scratch s;
  at_core_dot_begin(core, &s);
  at_status st = AT_OK;
  if (d->c_type != AT_F32 && d->c_type != AT_S32)
    st = AT_FAIL(AT_UNIMPLEMENTED, "a dot that yields %s",
                 at_dtype_of((at_dtype)d->c_type)->text);
  if (!st.err && !at_core_dot_blocks(core, &s.par, d, &st))
    st = multiply(&s.par, d);
  at_core_dot_end(&s);
  if (st.err) at_core_give_up(core, d->loc, st);
}

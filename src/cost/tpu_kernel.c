#include <math.h>

#include "base/once.h"
#include "cost/tpu.h"

enum { kSublanes = 8, kTileBytes = 4 * 8 * 128 };

// ---- Coefficients: data/tpu/kernel_model.json

#define COEFFICIENTS(X) \
  X(dma_us)             \
  X(expand)             \
  X(vmem_read)          \
  X(vmem_write)         \
  X(relay)              \
  X(shift_direct)       \
  X(row_pass)           \
  X(row_pass_narrow)    \
  X(row_work)           \
  X(row_work_direct)    \
  X(window_in)          \
  X(window_op)          \
  X(window_narrow)      \
  X(tap)                \
  X(pixel)              \
  X(tile) X(tile_op) X(tile_reduce) X(fill) X(fill_wide) X(start) X(load)
typedef struct coefficients {
#define FIELD(name) double name;
  COEFFICIENTS(FIELD)
#undef FIELD
} coefficients;

extern const at_bytes at_tpu_model_files[];
static at_once g_once = AT_ONCE_INIT;
static coefficients g_c;  // after at_tpu_model_load

static at_status read_model(void) {
  at_arena *a;
  const at_json *j = NULL;
  AT_TRY_ALLOC(a, at_arena_create());
  at_status st = at_json_parse(at_tpu_model_files[0], a, &j);
  const at_json *rows = at_json_get(j, "coefficients");
#define READ(name) \
  g_c.name = at_coefficient(rows, #name, "data/tpu/kernel_model.json");
  if (!st.err) {
    COEFFICIENTS(READ)
  }
#undef READ
  at_arena_destroy(a);
  return st;
}

at_status at_tpu_model_load(void) { return at_once_do(&g_once, read_model); }

// ---- The matrix units

// Rows stream through arrays that hold weights; an array with few rows waits
// for its next weights.
static double passes(const at_tpu_kernel *k, const at_tpu_chip *c, double rows,
                     double cols) {
  double n = c->array;
  rows = ceil(rows / kSublanes) * kSublanes;
  return ceil(k->depth / n) * ceil(cols / n) * fmax(rows, n * n / g_c.load);
}

// Passes through the arrays, with that operand as weights that takes fewer.
static double matrix_cycles(const at_tpu_kernel *k, const at_tpu_chip *c) {
  double batch = k->batch;
  if (k->kind == AT_TPU_CONV && c->array > 128 && k->depth <= c->array / 2)
    batch /= 2;  // two taps side by side
  double least = passes(k, c, k->rows, k->cols);
  if (k->kind == AT_TPU_MATMUL)
    least = fmin(least, passes(k, c, k->cols, k->rows));
  double rate = c->arrays * (k->operand_bytes == 1 ? c->byte_speed : 1);
  return least * batch * k->repeat / rate;
}

// Work of a convolution that the vector unit does: adding the taps of one
// without sums over channels, putting the taps of each pixel together.
static double conv_cycles(const at_tpu_kernel *k, const at_tpu_chip *c) {
  double passes = ceil(k->depth / c->array) * ceil(k->cols / c->array);
  return (g_c.tap * k->tap_tiles + g_c.pixel * k->pixels * passes) / c->cores;
}

// ---- Kernels

// What both kinds of kernel need, in cycles of one core.
typedef struct common {
  double latency, steps, tile, vector;
} common;

double at_tpu_dma_cycles(const at_tpu_chip *c) {
  return g_c.dma_us * 1e-6 * c->clock;
}

double at_tpu_fill_cycles(const at_tpu_chip *c) {
  return c->array <= 128 ? g_c.fill : g_c.fill_wide;
}

static at_tpu_cycles contraction(const at_tpu_kernel *k, const at_tpu_chip *c,
                                 common m) {
  const coefficients *x = &g_c;
  // A pipeline over grid steps: first window in, steps, last window out.
  double windows = fmax(1, floor(k->out_windows / c->cores));
  double in = (k->hbm_in + k->again_in) / c->hbm_rate;
  double out = k->hbm_out / c->hbm_rate +
               x->expand * m.tile * fmin(k->hbm_out_narrow, k->tiles);
  double kept =
      c->direct_vmem ? 0 : x->vmem_write * m.tile * k->vmem_out_narrow;
  bool dmas =
      k->hbm_in + k->hbm_out > 0 || (!c->direct_vmem && k->narrow_tiles > 0);
  double fill = at_tpu_fill_cycles(c);
  if (m.steps == 1 && dmas && c->direct_vmem)
    fill = 0;  // behind the exposed DMAs
  double matrix = matrix_cycles(k, c);
  double compute = fmax(matrix, m.vector + conv_cycles(k, c)) / m.steps + fill;
  double dma = (dmas ? m.latency : 0) + (in + out + kept) / m.steps;
  double total = compute + (m.steps - 1) * fmax(compute, dma);
  if (k->reduces > 0) total += x->tile_reduce * k->out_tiles / c->cores;
  double latency = fill * m.steps;
  if (dmas) {
    total += 2 * m.latency + x->start + in / m.steps + out / windows;
    if (windows < m.steps) total += (windows - 1) * m.latency;
    if (dma > compute) total += kept / windows;
    latency += (m.steps + 1) * m.latency + x->start;
  }
  return (at_tpu_cycles){.total = total,
                         .matrix = matrix,
                         .vector = m.vector,
                         .memory = in + out + kept,
                         .latency = fmin(latency, total)};
}

// Tiles that pass through 32-bit windows: of what is reduced or copied, and of
// results that are all narrow.
static double expanded(const at_tpu_kernel *k) {
  double narrow = k->hbm_out_narrow + k->vmem_out_narrow;
  if (k->row_tiles > 0) return 0;
  if (k->kind == AT_TPU_REDUCE) return k->tiles;
  if (k->kind == AT_TPU_COPY) return k->narrow_tiles;
  return narrow == k->out_tiles ? fmin(narrow, k->tiles) : 0;
}

// What the vector unit does with a window after its DMA, per tile of the
// largest array: each operand is read, operations are issued, narrow types are
// converted. A kernel that holds whole rows passes over them again.
static double window_work(const at_tpu_kernel *k, const at_tpu_chip *c,
                          const common *m) {
  const coefficients *x = &g_c;
  double tiles = k->tiles / c->cores;
  if (k->kind == AT_TPU_COPY) return x->tile * tiles;
  if (k->row_tiles > 0) {
    double again = k->narrow_tiles > 0 ? x->row_pass_narrow : x->row_pass;
    double own = c->direct_vmem ? x->row_work_direct : x->row_work;
    return k->row_tiles / c->cores * (again * m->tile * c->cores + own);
  }
  return x->window_in * k->in_tiles / c->cores + x->window_op * k->ops * tiles +
         x->window_narrow * (k->narrow_tiles > 0 ? expanded(k) : 0) / c->cores;
}

// What all windows move, as cycles at the HBM rate.
static double window_traffic(const at_tpu_kernel *k, const at_tpu_chip *c,
                             const common *m) {
  const coefficients *x = &g_c;
  double traffic = (k->hbm_in + k->hbm_out) / c->hbm_rate;
  traffic += x->expand * m->tile * expanded(k);
  if (!c->direct_vmem && k->kind != AT_TPU_COPY)
    traffic += x->vmem_read * k->vmem_in / c->hbm_rate;
  else if (k->kind == AT_TPU_COPY && k->hbm_in + k->hbm_out == 0 &&
           k->narrow_tiles == 0)
    traffic += k->vmem_in / c->hbm_rate;
  // Where operands are used in VMEM, long rows are read from where they start.
  double shift = c->direct_vmem || c->cores > 1 ? x->shift_direct : x->relay;
  return traffic + (x->relay * k->relaid + shift * k->shifted) / c->cores;
}

// A pipeline over grid steps: the DMAs of a window, one after the other, beside
// the work on the window before.
static at_tpu_cycles streaming(const at_tpu_kernel *k, const at_tpu_chip *c,
                               common m) {
  const coefficients *x = &g_c;
  double traffic = window_traffic(k, c, &m);
  double latency = m.steps * m.latency;
  if (k->resident) latency = 0, traffic = x->relay * k->relaid / c->cores;
  double work = window_work(k, c, &m);
  double dma = (latency + traffic) / m.steps, own = work / m.steps;
  return (at_tpu_cycles){.total = dma + (m.steps - 1) * fmax(own, dma) + own,
                         .vector = work,
                         .memory = traffic,
                         .latency = latency};
}

at_tpu_cycles at_tpu_kernel_cycles(const at_tpu_kernel *k,
                                   const at_tpu_chip *c) {
  const coefficients *x = &g_c;
  bool contracts = k->kind == AT_TPU_MATMUL || k->kind == AT_TPU_CONV;
  if (k->tiles == 0 || (k->hbm_in + k->vmem_in == 0 && !contracts)) {
    double write = k->hbm_out / c->hbm_rate;  // nothing to wait for
    return (at_tpu_cycles){.total = x->tile * k->tiles + write,
                           .vector = x->tile * k->tiles,
                           .memory = write};
  }
  common m = {.latency = at_tpu_dma_cycles(c),
              .steps = fmax(1, ceil(k->steps / c->cores)),
              .tile = kTileBytes / c->hbm_rate,
              .vector = x->tile_op * k->ops * k->tiles / c->cores};
  at_tpu_cycles out = contracts ? contraction(k, c, m) : streaming(k, c, m);
  // A pipeline takes no less than any of its parts.
  AT_ASSERT(!(out.total * (1 + 1e-9) < fmax(out.matrix, out.vector)));
  AT_ASSERT(!(out.total * (1 + 1e-9) < out.latency) && !(out.memory < 0));
  return out;
}

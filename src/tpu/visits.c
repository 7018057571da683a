// How often a window brings the blocks of its array, known before the kernel
// runs.
#include <string.h>

#include "tpu/timing_internal.h"

enum {
  kMostSteps = 1 << 16,
  kMostBlocks = 1 << 20,
  kMaxRank = 16,
  kSample = 4  // steps of a dimension whose bound the run knows
};

// The number of the block among all of the array; -1: it is none.
static int64_t block_number(const at_mosaic_window *w, const int64_t *at) {
  int64_t n = 0;
  for (uint32_t d = 0; d < w->bounds.rank; d++) {
    int64_t blocks = at_ceil_div(w->whole.dims[d], w->bounds.ptr[d]);
    if (at[d] < 0 || at[d] >= blocks) return -1;
    n = n * blocks + at[d];
  }
  return n;
}

// Elements of the array in a window that begins at element `at`.
static int64_t elements_at(const at_mosaic_window *w, const int64_t *at) {
  int64_t n = 1;
  for (uint32_t d = 0; d < w->bounds.rank; d++) {
    int64_t low = w->pad_low.rank ? at[d] - w->pad_low.ptr[d] : at[d];
    int64_t high = AT_MIN(low + w->bounds.ptr[d], w->whole.dims[d]);
    n *= AT_MAX(high - AT_MAX(low, 0), 0);
  }
  return n;
}

// A window's way through the grid.
typedef struct walk {
  const at_mosaic_program *p;
  const at_mosaic_window *w;
  int64_t bounds[kMaxRank], steps;
  int64_t blocks, elements;  // of the array
  bool sampled;              // a bound is not known
} walk;

// False where nothing can be said: too many steps or blocks, unknown sizes, or
// sampled grids of windows at element offsets.
static bool walk_begin(walk *x) {
  const at_mosaic_program *p = x->p;
  const at_mosaic_window *w = x->w;
  uint32_t rank = w->bounds.rank;
  if (w->kind == AT_MWIN_WHOLE || rank > kMaxRank || rank != w->whole.rank ||
      p->grid_rank > kMaxRank)
    return false;
  x->steps = x->blocks = x->elements = 1;
  for (uint32_t d = 0; d < p->grid_rank; d++) {
    int64_t n = p->grid[d].dynamic ? kSample : p->grid[d].bound;
    if (n < 1 || n > kMostSteps || (x->steps *= n) > kMostSteps) return false;
    x->bounds[d] = n;
    x->sampled |= p->grid[d].dynamic;
  }
  for (uint32_t d = 0; d < rank; d++) {
    int64_t whole = w->whole.dims[d], block = w->bounds.ptr[d];
    if (whole < 1 || block < 1) return false;
    int64_t n = at_ceil_div(whole, block);
    if (n > kMostBlocks || (x->blocks *= n) > kMostBlocks ||
        __builtin_mul_overflow(x->elements, whole, &x->elements))
      return false;
  }
  return w->kind == AT_MWIN_BLOCKED || !x->sampled;
}

// Consecutive steps at the same place are one visit.
at_status at_mosaic_window_visits(const at_mosaic_program *p,
                                  const at_mosaic_window *w, at_arena *a,
                                  double *out) {
  walk x = {.p = p, .w = w};
  *out = 0;
  if (!walk_begin(&x)) return AT_OK;
  int64_t ids[kMaxRank] = {0}, at[kMaxRank], last[kMaxRank];
  size_t bytes = w->bounds.rank * sizeof *at;
  at_ms_values v = {
      .arena = a, .known = at_map_in(a), .program = p, .bounds = x.bounds};
  bool *seen, blocked = w->kind == AT_MWIN_BLOCKED;
  AT_TRY_ALLOC(seen, at_new(a, bool, (size_t)x.blocks));
  double visits = 0, parts = 0;
  for (int64_t s = 0; s < x.steps; s++) {
    int64_t rest = s;
    for (uint32_t d = p->grid_rank; d-- > 0; rest /= x.bounds[d])
      ids[d] = rest % x.bounds[d];
    bool known;
    AT_TRY(at_ms_window_at(&v, w, ids, at, &known));
    if (!known) return AT_OK;
    if (s && !memcmp(at, last, bytes)) continue;
    memcpy(last, at, bytes);
    int64_t block = blocked ? block_number(w, at) : 0;
    if (block < 0 && x.sampled) continue;  // the run has fewer steps
    if (block < 0) return AT_OK;
    visits += blocked ? 1 : (double)elements_at(w, at);
    parts += blocked && !seen[block];
    seen[block] = true;
  }
  if (!blocked) parts = (double)x.elements;
  *out = parts > 0 ? visits / parts : 0;
  return AT_OK;
}

// One program on a TensorCore, without aliases, colours, communication or side
// effects.
static bool is_plain(const at_mosaic_kernel *k) {
  const at_mosaic_config *c = &k->config;
  bool colors = false;
  for (uint32_t i = 0; i < c->num_input_colors; i++)
    colors |= c->input_colors[i] >= 0;
  for (uint32_t i = 0; i < c->num_output_colors; i++)
    colors |= c->output_colors[i] >= 0;
  return k->num_programs == 1 && !k->symbolic && !colors && !c->sparse_core &&
         !c->has_communication && !k->call.has_side_effect &&
         !k->call.num_aliases && k->programs[0].core <= AT_MCORE_TC;
}

// Only inputs in VMEM.
at_status at_mosaic_may_make(const at_mosaic_kernel *k, uint32_t operand,
                             at_arena *a, double *out_times) {
  const at_mosaic_config *c = &k->config;
  const at_mosaic_program *p = &k->programs[0];
  *out_times = 0;
  if (operand >= c->num_allow_input_fusion || !c->allow_input_fusion[operand] ||
      !is_plain(k))
    return AT_OK;
  for (uint32_t i = 0; i < p->num_inputs; i++) {
    const at_mosaic_window *w = &p->windows[i];
    if (w->index == operand && w->ref.space == AT_MSPACE_VMEM && !w->cores)
      return at_mosaic_window_visits(p, w, a, out_times);
  }
  return AT_OK;
}

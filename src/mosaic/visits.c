// Which blocks of an array a window's index map visits, known before the
// kernel runs.
#include "mosaic/timing_internal.h"

enum { kMostSteps = 1 << 16, kMostBlocks = 1 << 20, kMaxRank = 16 };

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

static bool fits(const at_mosaic_program *p, const at_mosaic_window *w,
                 int64_t *steps, int64_t *blocks) {
  uint32_t rank = w->bounds.rank;
  if (w->kind != AT_MWIN_BLOCKED || rank > kMaxRank || rank != w->whole.rank ||
      p->grid_rank > kMaxRank)
    return false;
  *steps = *blocks = 1;
  for (uint32_t d = 0; d < p->grid_rank; d++) {
    int64_t n = p->grid[d].bound;
    if (p->grid[d].dynamic || n < 1 || n > kMostSteps) return false;
    if ((*steps *= n) > kMostSteps) return false;
  }
  for (uint32_t d = 0; d < rank; d++) {
    int64_t whole = w->whole.dims[d], block = w->bounds.ptr[d];
    if (whole < 1 || block < 1) return false;
    int64_t n = at_ceil_div(whole, block);
    if (n > kMostBlocks || (*blocks *= n) > kMostBlocks) return false;
  }
  return true;
}

at_status at_mosaic_window_enters_once(const at_mosaic_program *p,
                                       const at_mosaic_window *w, at_arena *a,
                                       bool *out) {
  int64_t steps, blocks, last = -1;
  *out = false;
  if (!fits(p, w, &steps, &blocks)) return AT_OK;
  int64_t bounds[kMaxRank] = {0}, ids[kMaxRank] = {0}, at[kMaxRank];
  for (uint32_t d = 0; d < p->grid_rank; d++) bounds[d] = p->grid[d].bound;
  at_ms_values v = {
      .arena = a, .known = at_map_in(a), .program = p, .bounds = bounds};
  bool *seen;
  AT_TRY_ALLOC(seen, at_new(a, bool, (size_t)blocks));
  for (int64_t s = 0; s < steps; s++) {
    int64_t rest = s;
    for (uint32_t d = p->grid_rank; d-- > 0; rest /= bounds[d])
      ids[d] = rest % bounds[d];
    bool known;
    AT_TRY(at_ms_window_at(&v, w, ids, at, &known));
    int64_t block = known ? block_number(w, at) : -1;
    if (block < 0 || (block != last && seen[block])) return AT_OK;
    seen[block] = true;
    last = block;
  }
  *out = true;
  return AT_OK;
}

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

at_status at_mosaic_may_make(const at_mosaic_kernel *k, uint32_t operand,
                             at_arena *a, bool *out) {
  const at_mosaic_config *c = &k->config;
  const at_mosaic_program *p = &k->programs[0];
  *out = false;
  if (operand >= c->num_allow_input_fusion || !c->allow_input_fusion[operand] ||
      !is_plain(k))
    return AT_OK;
  for (uint32_t i = 0; i < p->num_inputs; i++) {
    const at_mosaic_window *w = &p->windows[i];
    if (w->index == operand && w->ref.space == AT_MSPACE_VMEM && !w->cores)
      return at_mosaic_window_enters_once(p, w, a, out);
  }
  return AT_OK;
}

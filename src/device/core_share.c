// The cores of a chip that JAX sees as one device share a kernel's grid: the
// kernel says which dimensions are parallel, and they split one of these.
// Without checks, signals, memory of a core that outlives the kernel, and
// memory that one step leaves to the next nobody can tell two cores from the
// threads of the pool, which then take the steps (core_split.c).
#include <stdlib.h>

#include "base/log.h"
#include "device/core_internal.h"

// Picks the first parallel dimension whose extent the cores divide evenly, else
// the first with two steps. False where nobody could tell, or the kernel splits
// its work itself.
bool core_is_shared(const core_state *c, uint32_t *out_dim) {
  const at_xcore *r = c->program->record;
  uint32_t cores = c->launch->hw->cores_per_device;
  bool told = c->launch->checks || (r->flags & AT_CORE_SIGNALS) ||
              core_ties_steps(c, true);
  for (uint32_t i = 0; i < r->num_refs; i++)
    told |= c->program->refs[i].cores != 0;  // memory that outlives the kernel
  if (cores < 2 || r->type != AT_CORE_TC || !told) return false;
  bool found = false, fits = false;
  for (uint32_t d = 0; d < r->grid_rank; d++) {
    if (r->semantics[d] != AT_CORE_PARALLEL) break;
    if (c->bounds[d] < 2 || fits) continue;
    fits = c->bounds[d] % (int32_t)cores == 0;
    if (fits || !found) *out_dim = d;
    found = true;
  }
  for (uint32_t d = 0; d < r->grid_rank; d++)
    if (r->semantics[d] == AT_CORE_CORE_PARALLEL) return false;
  if (!found && c->launch->checks)
    at_log(AT_LOG_INFO,
           "kernel %s: one of %u cores works, the others are idle: no parallel "
           "dimension of its grid has two steps",
           core_name(c), cores);
  return found;
}

// Along dimension d: does a block of output i meet two of its steps? Compares
// steps along d with all other indices 0. `block`: room for one.
static bool block_stays(core_state *c, uint32_t i, uint32_t d, int32_t *block) {
  const at_xcore *r = c->program->record;
  int32_t first[AT_CORE_MAX_RANK], grid[AT_CORE_MAX_GRID] = {0};
  for (uint32_t k = 0; k < r->grid_rank; k++)
    if (c->bounds[k] < 1) return false;
  core_window_index(c, i, grid, first);
  for (int32_t s = 1; s < c->bounds[d]; s++) {
    grid[d] = s;
    core_window_index(c, i, grid, block);
    if (memcmp(first, block, c->windows[i].ref->rank * sizeof *block)) continue;
    return true;
  }
  return false;
}

// Before the cores start: a dimension is not parallel if an output's block does
// not move along it.
void core_check_parallel(core_state *c) {
  const at_xcore *r = c->program->record;
  int32_t block[AT_CORE_MAX_RANK];
  char name[64];
  for (uint32_t d = 0; d < r->grid_rank; d++) {
    if (r->semantics[d] != AT_CORE_PARALLEL) continue;
    for (uint32_t i = 0; i < r->num_refs; i++) {
      const window *w = &c->windows[i];
      if (w->ref->role != AT_CORE_OUT || !w->operand) continue;
      if (!block_stays(c, i, d, block)) continue;
      core_stop(c, AT_FAILED_PRECONDITION, core_window_loc(c, i),
                "race: dimension %u of the grid is declared parallel, but the "
                "window of %s stays where it is along it\n"
                "detail: cores that share this dimension would write the same "
                "block\nhint: make the dimension arbitrary",
                d, core_ref_text(c, i, name, sizeof name));
    }
  }
}

// Blocks of outputs on their way back to their operands, which inputs may
// share: the chip fetches the next blocks, and makes copies, before they are
// there.
#include "device/core_shadow.h"

// Is the block of input `in` one that the departure takes back?
static bool meets(const window *in, const departure *d) {
  for (uint32_t k = 0; k < in->ref->rank; k++)
    if (in->start[k] >= d->start[k] + d->valid[k] ||
        d->start[k] >= in->start[k] + in->valid[k])
      return false;
  return true;
}

// The chip fetches a block while the step before it runs, and what the step
// before that one wrote may still be on its way back then.
static void fetched_too_early(core_state *c, uint32_t i, uint32_t out) {
  const window *w = &c->windows[i], *o = &c->windows[out];
  char in[64], name[64];
  for (int k = 0; k < 2; k++) {
    const departure *d = &o->left[k];
    if (!d->steps || d->steps + 1 < c->step || !meets(w, d)) continue;
    core_stop(
        c, AT_FAILED_PRECONDITION, core_window_loc(c, i),
        "race: the block of %s for grid step %lld is fetched while "
        "%s, which shares its memory, still writes it\n"
        "detail: step %lld worked on it last; the next blocks are fetched "
        "before that one has gone back",
        core_ref_text(c, i, in, sizeof in), (long long)c->step,
        core_ref_text(c, out, name, sizeof name), (long long)d->steps - 1);
  }
}

// Outputs that stay are held against parallel dimensions, inputs that moved
// against what goes back to the same memory.
void core_shadow_moved(core_state *c) {
  const at_xcore *r = c->program->record;
  for (uint32_t i = 0; i < r->num_refs; i++) {
    const window *w = &c->windows[i];
    if (!w->moved && w->operand && w->ref->role == AT_CORE_OUT)
      parallel_window_stays(c, i);
    bool fetched = w->moved && w->ref->role == AT_CORE_IN && w->ref->alias >= 0;
    for (uint32_t k = 0, out = 0; fetched && k < r->num_refs; k++) {
      if (c->windows[k].ref->role != AT_CORE_OUT) continue;
      if (out++ == (uint32_t)w->ref->alias &&
          c->launch->checks & AT_CHECK_RACES)
        fetched_too_early(c, i, k);
    }
    c->windows[i].moved = false;
  }
}

// ---- Copies that the kernel makes
// A block of an output that the last step worked on is on its way back to its
// operand, which an input in HBM may share.
void departures_check(core_state *c, const area *box, int32_t loc,
                      const char *what) {
  const at_xcore *r = c->program->record;
  char name[64];
  for (uint32_t i = 0; i < r->num_refs; i++) {
    const window *w = &c->windows[i];
    const departure *d = &w->left[0];
    if (w->ref->role != AT_CORE_OUT || !w->operand || !d->steps ||
        d->steps != c->step)
      continue;
    area a = {.base = w->operand,
              .rank = w->ref->rank,
              .elem_bytes = at_dtype_bytes((at_dtype)w->ref->dtype)};
    for (uint32_t k = 0; k < a.rank; k++) {
      a.base += d->start[k] * w->operand_stride[k];
      a.size[k] = d->valid[k];
      a.stride[k] = w->operand_stride[k];
    }
    if (area_overlap(box, &a))
      core_stop(c, AT_FAILED_PRECONDITION, loc,
                "race: %s memory that a block of %s still goes back to\n"
                "detail: step %lld worked on that block last; it has gone back "
                "when step %lld ends",
                what, core_ref_text(c, i, name, sizeof name),
                (long long)d->steps - 1, (long long)c->step);
  }
}

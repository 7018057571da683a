// What must be so when a scope or a kernel ends: outputs are written, copies
// waited for, semaphores zero.
#include "device/core_shadow.h"

// Semaphores that are results may keep signals: another kernel waits for them.
static bool outlives(const core_state *c, size_t sem_index) {
  for (uint32_t i = 0; i < c->program->record->num_refs; i++) {
    const at_xcore_ref *x = &c->program->refs[i];
    if (x->role != AT_CORE_OUT || x->space != AT_CORE_SEM) continue;
    size_t first = (size_t)((sem *)c->refs[i].base - c->sems), n = 1;
    for (uint32_t d = 0; d < x->rank; d++) n *= (size_t)x->dims[d];
    if (sem_index >= first && sem_index < first + n) return true;
  }
  return false;
}

// A copy that nobody waited for says more than the number, so it is told first.
static void sem_must_be_zero(core_state *c, uint32_t i, int32_t loc,
                             const char *when) {
  const sem *s = &c->sems[i];
  const uint32_t flags = c->program->record->flags;
  if (!s->value || !core_checks(c, AT_CHECK_DEADLOCK) || outlives(c, i) ||
      (flags & AT_CORE_NO_SEMAPHORE_CHECKS))
    return;
  const flight *f = flights_left(c, i);
  if (f)
    core_stop(c, AT_FAILED_PRECONDITION, f->loc,
              "this copy is never waited for: its semaphore is %lld %s",
              (long long)s->value, when);
  char wait[512] = "", name[128];
  if (s->waited) core_place(c, s->waited - 1, wait, sizeof wait);
  at_strbuf b = {0};
  core_name_sem(c, s, &b);
  snprintf(name, sizeof name, "%s", b.ptr ? b.ptr : "?");
  at_strbuf_free(&b);
  core_stop(c, AT_FAILED_PRECONDITION, s->loc,
            "%s is %lld %s, not 0\n"
            "detail: its last signal is shown here%s%s; signals and waits must "
            "balance",
            name, (long long)s->value, when,
            *wait ? ", its last wait is at " : "", wait);
}

void core_shadow_release(core_state *c, uint32_t first_sem, int32_t loc) {
  if (c->together) return;  // others may be ahead: the end tells
  for (uint32_t i = first_sem; i < c->num_sems; i++)
    sem_must_be_zero(c, i, loc, "where its scope ends");
}

// Stores to an input's block that nobody read, before the block is given up.
void no_strays(core_state *c, const region *r, const char *when) {
  const shade *s = c->shadow->shades[r - c->regions];
  for (size_t i = 0; s && s->strays && i < s->count; i++) {
    if (!s->strays[i]) continue;
    char place[256];
    touch t = {.c = c, .owner = c, .region = r};
    touch_name_place(&t, i, place, sizeof place);
    core_stop(c, AT_FAILED_PRECONDITION, s->strays[i] - 2,
              "a store is lost: %s was written, and nobody read it before %s\n"
              "detail: blocks of inputs do not go back to their arrays; store "
              "to an output, or alias one (input_output_aliases)",
              place, when);
  }
}

// ---- The end
static _Noreturn void report_unwritten(core_state *c, const region *r,
                                       const shade *s, size_t hole) {
  char place[256], copy[512] = "";
  touch t = {.c = c, .owner = c, .region = r};
  touch_name_place(&t, hole, place, sizeof place);
  const mistaken *wait = flights_mistaken(c, r->base + hole * s->granule);
  if (wait) {
    core_place(wait->f.by, wait->f.loc, copy, sizeof copy);
    core_stop(c, AT_FAILED_PRECONDITION, wait->loc,
              "the copy that this wait is for was never started: %s is "
              "undefined on the chip\ndetail: the wait took the bytes of "
              "another copy, started at %s\nhint: start each copy, and wait "
              "for the same one",
              place, *copy ? copy : "?");
  }
  int32_t copied = AT_MAX(s->left_at[kCopied] - 2, -1);
  int32_t loc = s->left_at[kIncomplete] - 2;
  if (loc >= 0) core_place(c, copied, copy, sizeof copy);
  if (loc < 0) loc = core_store_loc(c, (uint32_t)r->ref);
  if (loc == -1) loc = copied;
  core_stop(c, AT_FAILED_PRECONDITION, loc,
            "%s was never written: it stays undefined on the chip%s%s", place,
            *copy ? "\ndetail: the last copy to it is at " : "", copy);
}

// Kernels of several chips do not run again: what a choice kept of undefined
// values shows as NaN or not at all.
static void must_hold_no_poison(core_state *c, const region *r,
                                const shade *s) {
  const at_xcore_ref *x = &c->program->refs[r->ref];
  size_t width = AT_MAX(at_dtype_bytes((at_dtype)x->dtype), 1u);
  size_t bytes = AT_MIN(core_array_bytes(x), r->bytes);
  for (size_t at = 0; at < bytes; at += width)
    if (core_is_poison(r->base + at, (at_dtype)x->dtype))
      report_poison(c, (uint32_t)r->ref, AT_MAX(s->left_at[kCopied] - 2, -1));
}

// Regions of window buffers do not count: what matters is the array.
static void outputs_must_be_filled(core_state *c) {
  for (uint32_t i = 0; i < c->num_regions; i++) {
    const region *r = &c->regions[i];
    if (r->ref < 0 || c->program->refs[r->ref].role != AT_CORE_OUT) continue;
    if (c->windows[r->ref].buffer == r->base && c->windows[r->ref].buffer)
      continue;
    const shade *s = core_shade_of(c, r);
    const uint8_t *hole = s ? memchr(s->filled, 0, s->count) : NULL;
    if (hole) report_unwritten(c, r, s, (size_t)(hole - s->filled));
    if (s && !c->launch->rerun && core_checks(c, AT_CHECK_NAN))
      must_hold_no_poison(c, r, s);
  }
}

// Each core looks at its own; outputs are looked at once per program.
void core_shadow_finish(core_state *c) {
  for (uint32_t i = 0; i < c->num_regions; i++)
    no_strays(c, &c->regions[i], "the kernel ended");
  for (uint32_t i = 0; i < c->most_sems; i++)
    sem_must_be_zero(c, i, -1, "when the kernel ends");
  for (uint32_t k = 0; k < c->shadow->num_flights; k++)
    if (core_checks(c, AT_CHECK_RACES) &&
        !outlives(c, c->shadow->flights[k].sem))
      core_stop(c, AT_FAILED_PRECONDITION, c->shadow->flights[k].loc,
                "this copy is never waited for");
  // Programs of several kinds of cores fill an output together.
  if (core_checks(c, AT_CHECK_UNINIT) && !c->elder &&
      c->launch->num_programs == 1)
    outputs_must_be_filled(c);
}

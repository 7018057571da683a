// Where a core's memories lie, and the stack-like part of them.
#include "device/core_internal.h"

// Never less than 64 bytes, so that a vector load at its start stays inside.
// The launch owns it.
void *core_take(core_state *c, size_t bytes, const char *what) {
  void *p = at_par_scratch(c->launch->par, AT_MAX(bytes, (size_t)64));
  if (!p)
    core_stop(c, AT_RESOURCE_EXHAUSTED, -1,
              "no host memory for %zu bytes of %s", bytes, what);
  return p;
}

region *core_region_add(core_state *c, void *base, size_t bytes,
                        at_core_space space, int32_t ref) {
  AT_ASSERT(c->num_regions < c->cap_regions && (base || !bytes));
  region *r = &c->regions[c->num_regions++];
  *r = (region){base, bytes, space, ref, false};
  return r;
}

// Pointers are compared as bytes; an empty region holds none.
static bool is_inside(const region *r, const void *p) {
  return (const uint8_t *)p >= r->base &&
         (const uint8_t *)p < r->base + r->bytes;
}

// Linear: a core has about as many regions as arguments.
const region *core_region_of(const core_state *c, const void *p) {
  for (uint32_t i = 0; i < c->num_regions; i++)
    if (is_inside(&c->regions[i], p)) return &c->regions[i];
  return NULL;
}

static bool is_number(const core_state *c, uint32_t i, const void *p) {
  return i < c->num_regions && is_inside(&c->regions[i], p);
}

// The hint keeps the last two regions: a copy goes from one to the other again
// and again.
const region *core_region_near(const core_state *c, const void *p,
                               region_hint *hint) {
  if (is_number(c, hint->last, p)) return &c->regions[hint->last];
  uint32_t i = hint->before;
  if (!is_number(c, i, p)) {
    const region *r = core_region_of(c, p);
    if (!r) return NULL;
    i = (uint32_t)(r - c->regions);
  }
  *hint = (region_hint){i, hint->last};
  return &c->regions[i];
}

// Regions have the same number on each core of a program, as all set up the
// same arguments.
void *core_translate(const core_state *from, const core_state *to, void *p) {
  if (from == to) return p;
  const region *r = core_region_of(from, p);
  if (!r) return NULL;
  uint32_t i = (uint32_t)(r - from->regions);
  if (i >= to->num_regions || to->regions[i].bytes != r->bytes) return NULL;
  return to->regions[i].base + ((uint8_t *)p - r->base);
}

// No cores where the device takes no part, or there is no group.
team_of core_team(const core_state *c, int32_t device) {
  const at_core_group *g = c->group;
  bool there = g && device >= 0 && (uint32_t)device < g->num_teams;
  return there ? g->teams[device] : (team_of){0};
}

core_state *core_of_team(team_of team, int32_t core, int32_t subcore,
                         uint32_t type) {
  for (uint32_t i = 0; i < team.num; i++) {
    core_state *p = &team.cores[i];
    if (p->head.core_index == core && p->head.subcore_index == subcore &&
        p->program->record->type == type)
      return p;
  }
  return NULL;
}

// AT_CORE_SELF stands for c's own number; owner 0 for c's own kind of core. The
// scalar core of a SparseCore counts as subcore 0.
core_state *core_peer(core_state *c, int32_t device, int32_t core,
                      int32_t subcore, int32_t owner, int32_t loc) {
  const at_core *h = &c->head;
  uint32_t type = owner ? (uint32_t)owner - 1 : c->program->record->type;
  if (type == c->program->record->type &&
      (device == AT_CORE_SELF || device == h->device_id) &&
      (core == AT_CORE_SELF || core == h->core_index) &&
      (subcore == AT_CORE_SELF || subcore == h->subcore_index))
    return c;
  if (device == AT_CORE_SELF) device = h->device_id;
  if (core == AT_CORE_SELF) core = h->core_index;
  if (subcore == AT_CORE_SELF) subcore = h->subcore_index;
  if (type == AT_CORE_SC_SCALAR) subcore = 0;
  core_state *p = core_of_team(core_team(c, device), core, subcore, type);
  if (p) return p;
  core_stop(c, AT_INVALID_ARGUMENT, loc,
            "device %d, core %d does not take part in this program\n"
            "detail: %d devices, %d cores of each",
            device, core, c->launch->num_devices, h->num_cores);
}

// ---- Stack discipline
// A mark is both stacks' fill: semaphores in the upper 24 bits.
int64_t at_core_mark(at_core *core) {
  core_state *c = state_of(core);
  return (int64_t)c->num_sems << 40 | (int64_t)c->stack_used;
}

// n semaphores off the stack, zero. Those of a group were zeroed at set-up.
static void *alloc_sems(core_state *c, int64_t n, int32_t loc) {
  if (n > c->cap_sems - (int64_t)c->num_sems)
    core_stop(c, AT_RESOURCE_EXHAUSTED, loc,
              "ran out of semaphore memory: %lld more than %u of %u",
              (long long)n, c->num_sems, c->cap_sems);
  sem *s = c->sems + c->num_sems;
  // Others may have signalled before this core came here.
  if (!c->together) memset(s, 0, (size_t)n * sizeof *s);
  c->num_sems += (uint32_t)n;
  AT_ASSERT(c->num_sems <= c->cap_sems);
  c->most_sems = AT_MAX(c->most_sems, c->num_sems);
  return s;
}

// Made at the first allocation: most kernels have none. stack_bytes < 0 says
// that the kernel's need is not known.
void core_stack_init(core_state *c) {
  // Types below a byte take more here than on the chip.
  size_t most = 2 * (size_t)AT_MAX(c->launch->hw->vmem_bytes, 16u << 20);
  int64_t known = c->program->record->stack_bytes;
  c->stack_bytes = known < 0 ? most : AT_MIN((size_t)known, most);
  c->stack = core_take(c, c->stack_bytes, "VMEM");
  core_region_add(c, c->stack, c->stack_bytes, AT_CORE_VMEM, -1);
}

// What windows and scratch take, with all their buffers. In bytes of the chip,
// where types below a byte are packed.
static uint64_t vmem_of_arguments(const core_state *c) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < c->program->record->num_refs; i++) {
    const at_xcore_ref *x = &c->program->refs[i];
    if (x->space != AT_CORE_VMEM) continue;
    uint64_t n = at_dtype_of((at_dtype)x->dtype)->bits;
    for (uint32_t d = 0; d < x->rank; d++) n *= (uint64_t)x->block[d];
    bool doubled = x->window != AT_CORE_WHOLE && x->role != AT_CORE_SCRATCH &&
                   x->pipeline == AT_CORE_DOUBLE && c->windows[i].index;
    sum += n / 8 * (x->buffers ? x->buffers : doubled ? 2 : 1);
  }
  return sum;
}

// Scopes are nested as the program runs: only now it is known what is there at
// the same time. Only for launches that check limits, on a TensorCore whose
// VMEM is known.
static void count_vmem(core_state *c, int32_t space, int64_t bytes,
                       int32_t loc) {
  uint64_t limit = c->launch->hw->vmem_bytes;
  if (!(c->launch->checks & AT_CHECK_LIMITS) || space != AT_CORE_VMEM ||
      c->program->record->type != AT_CORE_TC || !limit)
    return;
  uint64_t arguments = vmem_of_arguments(c);
  if (arguments + c->stack_used + (uint64_t)bytes <= limit) return;
  core_stop(
      c, AT_RESOURCE_EXHAUSTED, loc,
      "Ran out of memory in memory space vmem: a scope asks for %lld bytes "
      "of %llu\ndetail: windows and scratch take %llu, scopes around it %zu",
      (long long)bytes, (unsigned long long)limit,
      (unsigned long long)arguments, c->stack_used);
}

// Memory is aligned to AT_CORE_ALLOC_ALIGN, undefined for the checks, and stays
// until at_core_release of a mark before it. In a second run it is filled with
// that run's pattern.
void *at_core_alloc(at_core *core, int32_t space, int64_t bytes, int32_t loc) {
  core_state *c = state_of(core);
  if (bytes < 0)
    core_stop(c, AT_INVALID_ARGUMENT, loc, "allocation of %lld bytes",
              (long long)bytes);
  if (space == AT_CORE_SEM)
    return alloc_sems(c, bytes / AT_CORE_SEM_BYTES, loc);
  if (!c->stack) core_stack_init(c);
  size_t need = at_align_up((size_t)bytes, AT_CORE_ALLOC_ALIGN);
  if (need > c->stack_bytes - c->stack_used)
    core_stop(
        c, AT_RESOURCE_EXHAUSTED, loc,
        "Ran out of memory in memory space vmem: %lld bytes more than %zu "
        "of %zu",
        (long long)bytes, c->stack_used, c->stack_bytes);
  count_vmem(c, space, bytes, loc);
  void *p = c->stack + c->stack_used;
  c->stack_used += need;
  AT_ASSERT(c->stack_used <= c->stack_bytes);
  if (c->shadow) core_shadow_alloc(c, p, need);
  if (core_runs_again(c)) core_fill(c, p, AT_U8, (int64_t)need);
  return p;
}

// Scopes end in reverse order: everything above the mark goes. The checks look
// at copies that are still on their way first.
void at_core_release(at_core *core, int64_t mark, int32_t loc) {
  core_state *c = state_of(core);
  uint32_t sems = (uint32_t)(mark >> 40);
  if (c->shadow) core_shadow_release(c, sems, loc);
  size_t used = (size_t)(mark & ((1ll << 40) - 1));
  AT_ASSERT(sems >= kFirstSem && sems <= c->num_sems && used <= c->stack_used);
  if (c->shadow && c->stack)
    core_shadow_freed(c, c->stack + used, c->stack_used - used, loc);
  c->stack_used = used;
  c->num_sems = sems;
  core_debug_released(c);
}

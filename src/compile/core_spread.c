// VMEM and SMEM that outlive a kernel, on a chip whose cores are one device:
// each core has its own. Such values get a leading dimension, one entry per
// core, where only kernels make and take them.
#include "abi/core.h"
#include "base/config.h"
#include "compile/core.h"
#include "mosaic/mosaic.h"
#include "tpu/tpu.h"

typedef struct spread {
  at_arena *arena;
  at_map homes;     // types of the values (their addresses say which)
  at_map *kernels;  // of this walk: at_node * -> at_mosaic_kernel *
  int64_t cores;
  bool any;   // a kernel says where its results go
  bool good;  // every value is made and taken by kernels only
} spread;

typedef at_status (*visit_fn)(spread *s, at_node *n);

// Visits every node of c and its regions.
static at_status walk(spread *s, at_comp *c, visit_fn visit) {
  AT_FOR_NODES(n, c) {
    AT_TRY(visit(s, n));
    for (uint32_t i = 0; i < n->num_regions; i++)
      AT_TRY(walk(s, n->regions[i], visit));
  }
  return AT_OK;
}

static bool is_home(const spread *s, at_value v) {
  return at_map_find_ptr(&s->homes, at_value_type(v)) != NULL;
}

static const at_mosaic_kernel *kernel_of(const spread *s, const at_node *n) {
  void **at = at_map_find_ptr(s->kernels, n);
  return at ? *at : NULL;
}

// The first program's window onto operand or result `index`; NULL: none, or no
// kernel.
static const at_mosaic_window *window_of(const at_mosaic_kernel *k,
                                         uint32_t index, bool output) {
  const at_mosaic_program *p = k ? &k->programs[0] : NULL;
  for (uint32_t i = 0; p && i < p->num_windows; i++)
    if (p->windows[i].index == index && p->windows[i].is_output == output)
      return &p->windows[i];
  return NULL;
}

// Does the kernel take or leave it in a core's memory?
static bool keeps(const at_mosaic_kernel *k, uint32_t index, bool output) {
  const at_mosaic_window *w = window_of(k, index, output);
  return w && w->kind == AT_MWIN_WHOLE &&
         (w->ref.space == AT_MSPACE_VMEM || w->ref.space == AT_MSPACE_SMEM);
}

// A result that stays there when the kernel has ended.
static bool leaves(const at_mosaic_kernel *k, uint32_t result) {
  const at_mosaic_window *w = window_of(k, result, true);
  return w && keeps(k, result, true) &&
         (w->color == AT_MCOLOR_VMEM || w->color == AT_MCOLOR_SMEM);
}

// Reads each kernel once and collects the types of results that stay in a
// core's memory, and of the operands that they share it with.
static at_status find_homes(spread *s, at_node *n) {
  if (!at_mosaic_is_call(n)) return AT_OK;
  at_mosaic_call call;
  at_mosaic_kernel *k;
  AT_TRY(at_mosaic_call_of(n, s->arena, &call));
  AT_TRY(at_mosaic_read(&call, s->arena, &k));
  void **at;
  AT_TRY_ALLOC(at, at_map_put_ptr(s->kernels, n));
  *at = k;
  for (uint32_t i = 0; i < n->num_results; i++) {
    if (!leaves(k, i)) continue;
    AT_TRY_ALLOC(at, at_map_put_ptr(&s->homes, &n->types[i]));
    int in = window_of(k, i, true)->alias;
    if (in < 0 || (uint32_t)in >= n->num_operands) continue;
    AT_TRY_ALLOC(at, at_map_put_ptr(&s->homes, at_value_type(n->operands[in])));
  }
  return AT_OK;
}

// A text search that spares programs without such kernels all reading.
static at_status has_word(spread *s, at_node *n) {
  static const char word[] = "\"output_memory_";  // of any version of JAX
  if (!at_mosaic_is_call(n)) return AT_OK;
  at_str config = at_node_str(n, AT_ATTR_BACKEND_CONFIG);
  s->any |= memmem(config.ptr, config.len, word, sizeof word - 1) != NULL;
  return AT_OK;
}

// A value that stays in a core may only go from kernel to kernel.
static at_status look_at_uses(spread *s, at_node *n) {
  const at_mosaic_kernel *k = kernel_of(s, n);
  for (uint32_t i = 0; i < n->num_operands; i++)
    s->good &= !is_home(s, n->operands[i]) || keeps(k, i, false);
  for (uint32_t i = 0; i < n->num_results; i++)
    s->good &=
        !is_home(s, (at_value){n, i}) || leaves(k, i) || at_steps_is_empty(n);
  for (uint32_t r = 0; r < n->num_regions; r++)
    for (uint32_t i = 0; i < n->regions[r]->num_results; i++)
      s->good &= !is_home(s, n->regions[r]->results[i]);
  return AT_OK;
}

// [dims] becomes [cores, dims].
static at_status widen(spread *s, at_node *n) {
  for (uint32_t i = 0; i < n->num_results; i++) {
    at_type *t = &n->types[i];
    int64_t dims[AT_CORE_MAX_RANK];
    if (!is_home(s, (at_value){n, i}) || t->rank + 1 > AT_CORE_MAX_RANK)
      continue;
    dims[0] = s->cores;
    for (uint32_t d = 0; d < t->rank; d++) dims[d + 1] = t->dims[d];
    AT_TRY(at_type_make(s->arena, t->dtype, (at_dims){dims, t->rank + 1}, t));
  }
  return AT_OK;
}

// Nothing changes unless every use is good: then such values are arrays of the
// device.
at_status at_core_spread(at_module *m, at_arena *a) {
  const char *target = at_config_text(AT_CONFIG_TARGET);
  const at_mosaic_chip *chip = at_mosaic_chip_find(at_str_of(target));
  if (!chip || chip->cores_per_device < 2) return AT_OK;
  at_map kernels = at_map_in(a);
  spread s = {.arena = a,
              .homes = at_map_in(a),
              .kernels = &kernels,
              .cores = chip->cores_per_device,
              .good = true};
  for (uint32_t i = 0; i < m->num_funcs; i++)
    AT_TRY(walk(&s, m->funcs[i], has_word));
  for (uint32_t i = 0; i < m->num_funcs && s.any; i++)
    AT_TRY(walk(&s, m->funcs[i], find_homes));
  if (!s.homes.len) return AT_OK;
  for (uint32_t i = 0; i < m->num_funcs; i++) {
    AT_TRY(walk(&s, m->funcs[i], look_at_uses));
    for (uint32_t k = 0; k < m->funcs[i]->num_results; k++)
      s.good &= !is_home(&s, m->funcs[i]->results[k]);
  }
  for (uint32_t i = 0; i < m->num_funcs && s.good; i++)
    AT_TRY(walk(&s, m->funcs[i], widen));
  return AT_OK;
}

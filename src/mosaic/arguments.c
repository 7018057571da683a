// What each argument of a program is: grid ids, prefetch, windows, scratch.
#include <stdarg.h>
#include <stdio.h>
#include "base/walk.h"
#include "mosaic/mosaic_internal.h"

typedef struct reader {
  at_mosaic_kernel *k;
  at_arena *a;
  at_mosaic_program *p;
  const at_mblock *top;  // functions of the module
} reader;

static at_status bad(reader *r, const char *what) {
  return at_mosaic_fail(r->k, r->p->func, AT_INVALID_ARGUMENT, "%s", what);
}

// dimension_semantics: absent, or empty, means that every dimension is
// arbitrary.
static at_status read_semantics(reader *r, at_mosaic_axis *axes,
                                uint32_t rank) {
  const at_mattr *v = at_mop_attr(r->p->func, "dimension_semantics");
  static const char *const names[] = {"arbitrary", "parallel", "core_parallel",
                                      "subcore_parallel"};
  if (!v) return AT_OK;
  if (v->kind != AT_MATTR_ARRAY || (v->num_elems && v->num_elems != rank))
    return at_mosaic_fail(r->k, r->p->func, AT_INVALID_ARGUMENT,
                          "dimension_semantics must have as many entries as "
                          "the grid has dimensions\ndetail: %u entries, %u "
                          "dimensions",
                          v->num_elems, rank);
  for (uint32_t i = 0; i < v->num_elems; i++) {
    at_str s;
    uint32_t n = 0;
    if (at_mosaic_attr_text(v->elems[i], &s))
      while (n < AT_LEN(names) && !at_str_is(s, names[n])) n++;
    else
      n = AT_LEN(names);
    if (n == AT_LEN(names)) return bad(r, "dimension_semantics: unknown entry");
    axes[i].semantics = (at_mosaic_dim)n;
  }
  return AT_OK;
}

// Kernels exported for symbolic shapes have placeholders for sizes, and an
// attribute of the module for each that says how it follows from the operands.
static bool is_placeholder(const reader *r, int64_t n) {
  char name[64];
  snprintf(name, sizeof name, "tpu.dynamic_dimension_mapping_module_%lld",
           (long long)n);
  return r->k->symbolic && at_mop_attr(r->k->module->op, name);
}

// Bounds of the grid that are placeholders come as operands too when JAX has
// mapped the kernel over a symbolic dimension.
static bool brings_bounds(const reader *r, at_dims bounds) {
  uint32_t need = 0, have = 0;
  const at_mosaic_call *c = &r->k->call;
  for (uint32_t i = 0; i < bounds.rank; i++)
    need += bounds.ptr[i] == AT_MDYN || is_placeholder(r, bounds.ptr[i]);
  while (have < c->num_operands && !c->operands[have].rank) have++;
  return have >= need;
}

// Does any argument's size wait to be filled in?
static bool has_placeholders(const reader *r) {
  for (uint32_t i = 0; i < r->p->body->num_args; i++) {
    at_dims d = r->p->body->args[i].type->shape;
    for (uint32_t k = 0; k < d.rank; k++)
      if (is_placeholder(r, d.ptr[k])) return true;
  }
  return false;
}

// iteration_bounds: a bound that is dynamic, or a placeholder that comes as an
// operand, takes the next operand of the call. Sets grid, grid_rank and
// num_dynamic; grid ids must be the first arguments, as i32.
static at_status read_grid(reader *r) {
  at_mosaic_program *p = r->p;
  at_dims bounds = {0};
  const at_mattr *v = at_mop_attr(p->func, "iteration_bounds");
  if (v && !at_mosaic_attr_ints(v, r->a, &bounds))
    return bad(r, "iteration_bounds is not a list of integers");
  at_mosaic_axis *axes;
  AT_TRY_ALLOC(axes, at_new(r->a, at_mosaic_axis, bounds.rank + 1));
  bool brings = r->k->symbolic && brings_bounds(r, bounds);
  for (uint32_t i = 0; i < bounds.rank; i++) {
    axes[i].dynamic = bounds.ptr[i] == AT_MDYN ||
                      (brings && is_placeholder(r, bounds.ptr[i]));
    axes[i].bound = axes[i].dynamic ? 0 : bounds.ptr[i];
    if (axes[i].dynamic) axes[i].operand = p->num_dynamic++;
    if (axes[i].bound < 0)
      return at_mosaic_fail(r->k, p->func, AT_INVALID_ARGUMENT,
                            "grid dimension %u is negative: %lld", i,
                            (long long)axes[i].bound);
  }
  if (brings && !has_placeholders(r)) r->k->symbolic = false;
  AT_TRY(read_semantics(r, axes, bounds.rank));
  p->grid = axes;
  p->grid_rank = bounds.rank;
  if (p->body->num_args < bounds.rank)
    return bad(r, "there are fewer arguments than grid dimensions");
  for (uint32_t i = 0; i < bounds.rank; i++)
    if (at_mosaic_dtype_of(p->body->args[i].type) != AT_S32)
      return bad(r, "grid ids must be i32");
  return AT_OK;
}

// The memref type of argument `arg`, taken apart; errors name the argument.
static at_status read_ref(reader *r, uint32_t arg, at_mosaic_ref *out) {
  at_status s = at_mosaic_ref_of(r->p->body->args[arg].type, out);
  if (at_ok(s)) return s;
  return at_status_prefix(s, "kernel %s: argument %u", r->k->name, arg);
}

// A number of arguments that an attribute gives (absent: 0), at most `limit`.
static at_status read_count(reader *r, const char *name, uint32_t limit,
                            uint32_t *out) {
  int64_t n = 0;
  at_mosaic_attr_int(r->p->func, name, &n);
  if (n < 0 || n > limit)
    return at_mosaic_fail(r->k, r->p->func, AT_INVALID_ARGUMENT,
                          "%s is %lld, but only %u arguments are there", name,
                          (long long)n, limit);
  *out = (uint32_t)n;
  return AT_OK;
}

// The function that transform_indices names by symbol, or that its affine map
// becomes. A map of zeros, as meshes have it, leaves *out NULL: the block never
// moves.
static at_status find_transform(reader *r, const at_mattr *v, at_mop **out) {
  if (v->kind == AT_MATTR_AFFINE_MAP) {
    bool zero = true;  // of a mesh
    for (uint32_t i = 0; i < v->num_elems; i++)
      zero &= v->exprs[i]->kind == AT_AFFINE_CONST && !v->exprs[i]->value;
    return zero ? AT_OK : at_mosaic_map_function(r->k, r->p->func, v, out);
  }
  if (v->kind != AT_MATTR_SYMBOL)
    return bad(r, "transform_indices is neither a symbol nor a map");
  for (uint32_t i = 0; i < r->top->num_ops; i++) {
    at_str s;
    if (at_mosaic_attr_text(at_mop_attr(r->top->ops[i], "sym_name"), &s) &&
        at_str_eq(s, v->str)) {
      *out = r->top->ops[i];
      return AT_OK;
    }
  }
  return at_mosaic_fail(r->k, r->p->func, AT_INVALID_ARGUMENT,
                        "transform_indices: no function @%.*s", (int)v->str.len,
                        v->str.ptr);
}

// element_window<[low...], [high...]>
static at_status read_padding(reader *r, at_str s, struct at_mosaic_window *w) {
  int64_t *v[2];
  uint32_t rank = w->bounds.rank, n[2] = {0};
  AT_TRY_ALLOC(v[0], at_new(r->a, int64_t, rank + 1));
  AT_TRY_ALLOC(v[1], at_new(r->a, int64_t, rank + 1));
  int list = -1;
  for (size_t i = 0; i < s.len;) {
    char c = s.ptr[i];
    if (c == '[') {
      list++;
    } else if (c >= '0' && c <= '9') {
      int64_t x = 0;
      while (i < s.len && s.ptr[i] >= '0' && s.ptr[i] <= '9') {
        x = x * 10 + (s.ptr[i++] - '0');
        if (x > INT32_MAX)
          return bad(r, "element_window: padding is too large");
      }
      if (list < 0 || list > 1 || n[list] == rank)
        return bad(r, "element_window does not fit the window's rank");
      v[list][n[list]++] = x;
      continue;
    } else if (c != ' ' && c != ',' && c != ']') {
      return bad(r, "element_window is malformed");
    }
    i++;
  }
  if (n[0] != rank || n[1] != rank)
    return bad(r, "element_window does not fit the window's rank");
  w->kind = AT_MWIN_ELEMENT;
  w->pad_low = (at_dims){v[0], rank};
  w->pad_high = (at_dims){v[1], rank};
  return AT_OK;
}

// Buffering, revisiting and the kind of window. Absent: double-buffered,
// revisited at once, blocked.
static at_status window_modes(reader *r, const at_mattr *d,
                              struct at_mosaic_window *w) {
  at_str s;
  const at_mattr *v = at_mattr_field(d, "pipeline_mode");
  if (v) {
    if (!at_mosaic_attr_text(v, &s))
      return bad(r, "pipeline_mode is malformed");
    w->buffers_given = true;
    w->buffers = at_str_is(s, "synchronous") ? 1 : 2;
    if (w->buffers == 2 && !at_str_is(s, "double_buffered"))
      return bad(r, "pipeline_mode: unknown mode");
  }
  v = at_mattr_field(d, "revisit_mode");
  if (v) {
    if (!at_mosaic_attr_text(v, &s)) return bad(r, "revisit_mode is malformed");
    w->revisit_any = at_str_is(s, "any");
    if (!w->revisit_any && !at_str_is(s, "immediate"))
      return bad(r, "revisit_mode: unknown mode");
  }
  v = at_mattr_field(d, "window_kind");
  if (!v) return AT_OK;
  if (!at_mosaic_attr_text(v, &s) || v->kind != AT_MATTR_DIALECT ||
      strcmp(v->name, "tpu.element_window"))
    return bad(r, "window_kind: unknown kind");
  return read_padding(r, s, w);
}

// Block shape, transform and modes of one window; d NULL or without bounds: the
// argument is the whole operand. w->ref and w->arg are set before.
static at_status read_window(reader *r, const at_mattr *d,
                             struct at_mosaic_window *w) {
  w->bounds = w->ref.shape;
  w->buffers = 1;
  if (!d) return AT_OK;
  if (d->kind != AT_MATTR_DICT)
    return bad(r, "window_params: not a dictionary");
  const at_mattr *v = at_mattr_field(d, "transform_indices");
  if (v) AT_TRY(find_transform(r, v, &w->transform));
  bool mapped = v && w->transform && v->kind == AT_MATTR_AFFINE_MAP;
  v = at_mattr_field(d, "window_bounds");
  // Where a map places the window, its bounds are the argument's.
  if (!v && !mapped)
    return AT_OK;  // any, hbm, semaphores, and arguments of a mesh
  if (v && !at_mosaic_attr_ints(v, r->a, &w->bounds))
    return bad(r, "window_bounds is not a list of integers");
  for (uint32_t i = 0; i < w->bounds.rank; i++)
    if (w->bounds.ptr[i] <= 0 && w->bounds.ptr[i] != AT_MDYN)
      return bad(r, "window_bounds must be positive");
  if (!at_dims_eq(w->bounds, w->ref.shape))
    return at_mosaic_fail(r->k, r->p->func, AT_INVALID_ARGUMENT,
                          "window %u: the bounds are not the argument's shape",
                          w->arg - at_mosaic_arg_window(r->p));
  w->kind = AT_MWIN_BLOCKED;
  w->buffers = 2;
  return window_modes(r, d, w);
}

// JAX 0.8 and 0.9 give a block to what no core copies, too: semaphores, arrays
// in HBM, and arrays that stay in the SMEM or VMEM of a core from kernel to
// kernel (inputs that are outputs of that colour). A block of all of it is the
// operand itself; a kernel may write to an input that is also an output.
static void unblock(const at_mosaic_config *c, struct at_mosaic_window *w) {
  at_dims all = {w->whole.dims, w->whole.rank};
  int64_t out = w->alias < 0 ? -1 : w->is_output ? (int64_t)w->index : w->alias;
  int color =
      out >= 0 && out < c->num_output_colors ? c->output_colors[out] : -1;
  bool stays = (w->ref.space == AT_MSPACE_SMEM && color == AT_MCOLOR_SMEM) ||
               (w->ref.space == AT_MSPACE_VMEM && color == AT_MCOLOR_VMEM);
  bool far = w->ref.space == AT_MSPACE_HBM || w->ref.space == AT_MSPACE_ANY ||
             w->ref.semaphore != AT_MSEM_NONE;
  if ((!far && !stays) || w->kind != AT_MWIN_BLOCKED ||
      w->whole.dtype == AT_INVALID || !at_dims_eq(w->bounds, all))
    return;
  w->kind = AT_MWIN_WHOLE;
  w->transform = NULL;
}

// Which operand or result stands behind each window, and what the call says of
// it.
static at_status tie_windows(reader *r, struct at_mosaic_window *w) {
  const at_mosaic_call *c = &r->k->call;
  const at_mosaic_config *cfg = &r->k->config;
  at_mosaic_program *p = r->p;
  uint32_t first = p->num_dynamic + p->num_prefetch;
  p->num_inputs = p->num_windows;
  if (r->k->symbolic) return AT_OK;
  if (c->operands || c->results) {
    if (c->num_operands < first ||
        c->num_operands - first + c->num_results != p->num_windows)
      return at_mosaic_fail(
          r->k, p->func, AT_INVALID_ARGUMENT,
          "the call's operands and results do not fit the program\ndetail: %u "
          "operands (%u grid bounds, %u prefetched), %u results, %u windows",
          c->num_operands, p->num_dynamic, p->num_prefetch, c->num_results,
          p->num_windows);
    p->num_inputs = c->num_operands - first;
    if (cfg->num_input_colors > c->num_operands ||
        cfg->num_output_colors > c->num_results)
      return at_mosaic_fail(r->k, p->func, AT_INVALID_ARGUMENT,
                            "a memory space colour of an operand or result "
                            "that the call does not have");
  }
  for (uint32_t i = 0; i < p->num_windows; i++) {
    w[i].is_output = i >= p->num_inputs;
    w[i].index = w[i].is_output ? i - p->num_inputs : first + i;
    w[i].color = w[i].alias = -1;
    if (w[i].is_output) {
      w[i].whole = c->results[w[i].index];
      if (w[i].index < cfg->num_output_colors)
        w[i].color = cfg->output_colors[w[i].index];
    } else {
      if (c->operands) w[i].whole = c->operands[w[i].index];
      if (w[i].index < cfg->num_input_colors)
        w[i].color = cfg->input_colors[w[i].index];
    }
    for (uint32_t n = 0; n < c->num_aliases; n++) {
      if (w[i].is_output ? c->aliases[n].result == w[i].index
                         : c->aliases[n].operand == w[i].index)
        w[i].alias = (int)(w[i].is_output ? c->aliases[n].operand
                                          : c->aliases[n].result);
    }
    bool of_core =
        w[i].kind == AT_MWIN_WHOLE &&
        (w[i].ref.space == AT_MSPACE_VMEM || w[i].ref.space == AT_MSPACE_SMEM);
    if (of_core && w[i].whole.rank == w[i].bounds.rank + 1 &&
        w[i].whole.dims[0] > 0) {
      w[i].cores = w[i].whole.dims[0];
      w[i].whole.rank--;
      w[i].whole.dims++;
    }
    if (w[i].whole.dtype != AT_INVALID && w[i].whole.rank != w[i].bounds.rank)
      return at_mosaic_fail(r->k, p->func, AT_INVALID_ARGUMENT,
                            "window %u has %u dimensions, its array has %u", i,
                            w[i].bounds.rank, w[i].whole.rank);
    unblock(cfg, &w[i]);
  }
  return AT_OK;
}

// A transform takes the grid ids and the prefetched refs, and yields an i32 per
// dimension. Whoever writes or runs it relies on that.
static at_status check_transforms(reader *r) {
  at_mosaic_program *p = r->p;
  for (uint32_t i = 0; i < p->num_windows; i++) {
    const at_mosaic_window *w = &p->windows[i];
    if (!w->transform) continue;
    const at_mattr *v = at_mop_attr(w->transform, "function_type");
    const at_mtype *t = v && v->kind == AT_MATTR_TYPE ? v->type : NULL;
    if (!t || t->kind != AT_MTYPE_FUNCTION || w->transform->num_regions != 1 ||
        w->transform->regions[0]->num_blocks != 1)
      return bad(r, "transform_indices: not a function");
    if (t->num_types != p->grid_rank + p->num_prefetch ||
        w->transform->regions[0]->blocks[0]->num_args != t->num_types)
      return bad(r, "a transform takes the grid ids and the prefetched refs");
    if (t->num_results != w->bounds.rank)
      return bad(r, "a transform yields one index per dimension");
    for (uint32_t n = 0; n < t->num_results; n++)
      if (at_mosaic_dtype_of(t->results[n]) != AT_S32)
        return bad(r, "a transform yields i32");
  }
  return AT_OK;
}

// Does a transform's result depend on a grid id that takes several values?
static at_status find_moves(reader *r, at_walk *walk,
                            struct at_mosaic_window *w) {
  const at_mblock *b = w->transform->regions[0]->blocks[0];
  const at_mop *ret = b->num_ops ? b->ops[b->num_ops - 1] : NULL;
  for (uint32_t i = 0; ret && i < ret->num_operands; i++)
    at_walk_add(walk, ret->operands[i], 0);
  for (at_walk_step s; at_walk_next(walk, &s);) {
    const at_mvalue *v = s.item;
    if (!v->op && v->index < r->p->grid_rank) {
      const at_mosaic_axis *axis = &r->p->grid[v->index];
      w->moves |= axis->dynamic || axis->bound > 1;
    }
    if (!v->op) continue;
    w->moves |= v->op->num_regions > 0;
    for (uint32_t i = 0; i < v->op->num_operands; i++)
      at_walk_add(walk, v->op->operands[i], 0);
  }
  return at_walk_status(walk);
}

// What follows the grid ids, in the order prefetch, windows, scratch; counts
// come from attributes, windows are the rest. Ties windows to the call's
// operands and results last.
static at_status read_arguments(reader *r) {
  at_mosaic_program *p = r->p;
  uint32_t left = p->body->num_args - p->grid_rank, arg = p->grid_rank;
  AT_TRY(read_count(r, "scalar_prefetch", left, &p->num_prefetch));
  AT_TRY(read_count(r, "scratch_operands", left - p->num_prefetch,
                    &p->num_scratch));
  p->num_windows = left - p->num_prefetch - p->num_scratch;
  at_mosaic_ref *prefetch, *scratch;
  struct at_mosaic_window *w;
  AT_TRY_ALLOC(prefetch, at_new(r->a, at_mosaic_ref, p->num_prefetch + 1));
  AT_TRY_ALLOC(w, at_new(r->a, struct at_mosaic_window, p->num_windows + 1));
  AT_TRY_ALLOC(scratch, at_new(r->a, at_mosaic_ref, p->num_scratch + 1));
  const at_mattr *params = at_mop_attr(p->func, "window_params");
  if (params &&
      (params->kind != AT_MATTR_ARRAY || params->num_elems != p->num_windows))
    return bad(r, "window_params must have one entry per window");
  for (uint32_t i = 0; i < p->num_prefetch; i++)
    AT_TRY(read_ref(r, arg++, &prefetch[i]));
  for (uint32_t i = 0; i < p->num_windows; i++) {
    w[i].arg = arg;
    w[i].alias = w[i].color = -1;
    AT_TRY(read_ref(r, arg++, &w[i].ref));
    AT_TRY(read_window(r, params ? params->elems[i] : NULL, &w[i]));
  }
  for (uint32_t i = 0; i < p->num_scratch; i++)
    AT_TRY(read_ref(r, arg++, &scratch[i]));
  AT_TRY(tie_windows(r, w));
  p->prefetch = prefetch;
  p->windows = w;
  p->scratch = scratch;
  AT_TRY(check_transforms(r));
  at_walk walk = at_walk_in(r->a);
  for (uint32_t i = 0; i < p->num_windows; i++)
    if (w[i].transform) AT_TRY(find_moves(r, &walk, &w[i]));
  return AT_OK;
}

// Functions with a core type, or with scratch, are programs; others are
// transforms or are called. A kernel without a program is refused.
at_status at_mosaic_describe(at_mosaic_kernel *k) {
  const at_mop *m = k->module->op;
  if (m->num_regions != 1 || m->regions[0]->num_blocks != 1)
    return at_mosaic_fail(k, m, AT_INVALID_ARGUMENT, "the module is empty");
  reader r = {.k = k, .a = k->arena, .top = m->regions[0]->blocks[0]};
  AT_VEC(at_mosaic_program) programs = {0};
  for (uint32_t i = 0; i < r.top->num_ops; i++) {
    at_mop *f = r.top->ops[i];
    at_str name = {0};
    if (at_mosaic_opcode_of(f) != AT_MOSAIC_FUNC_FUNC)
      return at_mosaic_fail(k, f, AT_INVALID_ARGUMENT,
                            "a function is expected");
    at_mosaic_attr_text(at_mop_attr(f, "sym_name"), &name);
    if (!at_mop_attr(f, "tpu.core_type") && !at_mop_attr(f, "scratch_operands"))
      continue;  // a transform, or called by a program
    at_mosaic_program p = {.func = f, .core = at_mosaic_core_of(f)};
    if (f->num_regions != 1 || f->regions[0]->num_blocks != 1)
      return at_mosaic_fail(k, f, AT_INVALID_ARGUMENT,
                            "a program must have one block");
    p.body = f->regions[0]->blocks[0];
    AT_TRY_ALLOC(p.name, at_arena_str(k->arena, name));
    r.p = &p;
    AT_TRY(read_grid(&r));
    AT_TRY(read_arguments(&r));
    if (!at_vec_push(k->arena, &programs, p)) return AT_NO_MEMORY("programs");
  }
  if (!programs.len)
    return at_mosaic_fail(k, m, AT_INVALID_ARGUMENT,
                          "no function has a core type: there is no program");
  k->programs = programs.ptr;
  k->num_programs = (uint32_t)programs.len;
  return AT_OK;
}

// Clones and layouts: variables made for the sake of where things lie.
#include "tiles/tiles_internal.h"

// One clone: variables that occur several times in a view are cloned once.
typedef struct cloner {
  at_tiles_graph *g;
  const char *name;
  at_map vars;  // old variable + 1 to new variable + 1
  uint32_t count;
} cloner;

// The new variable of `old`, made with its homes at the first call.
// ALREADY_EXISTS: its name is taken.
static at_status clone_var(cloner *c, uint32_t old, uint32_t *out) {
  const void *key = (const void *)(uintptr_t)(old + 1);
  void **place = at_map_find_ptr(&c->vars, key);
  if (place) return *out = (uint32_t)((uintptr_t)*place - 1), AT_OK;
  char *name;
  const at_tiles_view *v;
  AT_TRY_ALLOC(
      name, c->count ? at_arena_printf(c->g->arena, "%s.%u", c->name, c->count)
                     : at_arena_str(c->g->arena, at_str_of(c->name)));
  at_tiles_var from = c->g->vars.ptr[old];
  AT_TRY(at_tiles_variable_add(c->g, name, from.dtype, from.dims, &v));
  c->count++;
  uint32_t made = (uint32_t)c->g->vars.len - 1;
  for (size_t i = 0; i < from.home.len; i++)
    if (!at_tiles_push(&c->g->vars.ptr[made].home, from.home.ptr[i]))
      return AT_NO_MEMORY("clone");
  AT_TRY_ALLOC(place, at_map_put_ptr(&c->vars, key));
  *place = (void *)(uintptr_t)(made + 1);
  *out = made;
  return AT_OK;
}

// The same boxes over the new variables; views below are cloned as well.
static at_status clone_view(cloner *c, const at_tiles_view *v,
                            const at_tiles_view **out) {
  at_tiles_view *r;
  AT_TRY(at_tiles_view_new(c->g, v->dtype, at_tiles_view_dims(v), v->num_pieces,
                           &r));
  for (uint32_t i = 0; i < v->num_pieces; i++) {
    const at_tiles_piece *p = &v->pieces[i];
    at_tiles_piece *q = &r->pieces[r->num_pieces++];
    q->offset = p->offset;
    for (uint32_t d = 0; d < v->rank; d++)
      q->lo[d] = p->lo[d], q->size[d] = p->size[d], q->stride[d] = p->stride[d];
    if (p->of)
      AT_TRY(clone_view(c, p->of, &q->of));
    else
      AT_TRY(clone_var(c, p->var, &q->var));
  }
  *out = r;
  return AT_OK;
}

// New variables of the same types for all that the view is cut from, mapped to
// the same tiles.
at_status at_tiles_view_clone(const at_tiles_view *v, const char *name,
                              const at_tiles_view **out) {
  cloner c = {.g = v->graph, .name = name};
  c.vars = at_map_in(v->graph->arena);
  return clone_view(&c, v, out);
}

// The logical view is the variable's dimensions in another order, joined, and
// cut to the channels that there are.
at_status at_tiles_layout_add(at_tiles_graph *g, const char *name, at_dtype t,
                              at_tiles_layout form, int64_t n, int64_t h,
                              int64_t w, int64_t c, const at_tiles_view **out,
                              const at_tiles_view **out_padded) {
  enum { kBlock = 4 };
  if (n < 0 || h < 0 || w < 0 || c < 0)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "layout of tensor %s: [%lld,%lld,%lld,%lld]", name,
                   (long long)n, (long long)h, (long long)w, (long long)c);
  int64_t blocks = c / kBlock + (c % kBlock != 0);
  bool rows = form == AT_TILES_NHC4W4;
  int64_t dims[] = {n, rows ? h : blocks, rows ? blocks : h, w, kBlock};
  // The variable's dimensions in logical order; blocks and the 4 channels of
  // one are then joined and cut to c.
  int64_t order[] = {0, rows ? 1 : 2, 3, rows ? 2 : 1,
                     4};  // N, H, W, blocks, 4
  int64_t flat[] = {n, h, w, blocks * kBlock};
  const at_tiles_view *v, *s;
  AT_TRY(at_tiles_variable_add(g, name, t, (at_dims){dims, 5}, &v));
  *out_padded = v;
  AT_TRY(at_tiles_view_dimshuffle(v, (at_dims){order, 5}, &s));
  AT_TRY(at_tiles_view_reshape(s, (at_dims){flat, 4}, &s));
  return at_tiles_view_slice(s, 3, 0, c, out);
}

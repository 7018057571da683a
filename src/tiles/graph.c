#include <stdlib.h>

#include "tiles/tiles_internal.h"

// The graph lies in its own arena.
at_status at_tiles_graph_create(const at_tiles_machine *m,
                                at_tiles_graph **out) {
  at_arena *a = at_arena_create();
  at_tiles_graph *g = a ? at_new(a, at_tiles_graph, 1) : NULL;
  if (!g) return at_arena_destroy(a), AT_NO_MEMORY("graph");
  g->arena = a;
  g->machine = *m;
  g->by_name = at_map_in(a);
  *out = g;
  return AT_OK;
}

// What grows on the heap, then the arena with all the rest.
void at_tiles_graph_destroy(at_tiles_graph *g) {
  if (!g) return;
  for (size_t i = 0; i < g->vars.len; i++) {
    at_tiles_mapping_free(&g->vars.ptr[i].home);
    at_tiles_mapping_free(&g->vars.ptr[i].copies);
    free(g->vars.ptr[i].data);
  }
  at_arena_destroy(g->arena);
}

const at_tiles_machine *at_tiles_graph_machine(const at_tiles_graph *g) {
  return &g->machine;
}

// See tiles_internal.h.
bool at_tiles_grow(void **ptr, size_t *cap, size_t want, size_t elem_bytes) {
  if (want <= *cap) return true;
  size_t n = AT_MAX(want, *cap * 2);
  void *p = realloc(*ptr, at_mul(n, elem_bytes));
  if (!p) return false;
  *ptr = p;
  *cap = n;
  return true;
}

// INVALID_ARGUMENT for negative dimensions, types without data, and tensors of
// more than 2^46 bytes, so that sizes never overflow.
static at_status check_dims(const char *name, at_dtype t, at_dims dims) {
  if (!at_dtype_bytes(t))
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "tensor %s: elements of type %s cannot be stored", name,
                   at_dtype_of(t)->text);
  int64_t n = at_dtype_bytes(t);
  for (uint32_t i = 0; i < dims.rank; i++)
    if (dims.ptr[i] < 0 || __builtin_mul_overflow(n, dims.ptr[i], &n) ||
        n > 1ll << 46)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "tensor %s: dimension %u is %lld\nhint: from 0, and under "
                     "2^46 bytes in all",
                     name, i, (long long)dims.ptr[i]);
  return AT_OK;
}

// The view of it all has one piece with dense row-major strides.
at_status at_tiles_variable_add(at_tiles_graph *g, const char *name, at_dtype t,
                                at_dims dims, const at_tiles_view **out) {
  AT_TRY(check_dims(name, t, dims));
  char *kept;
  AT_TRY_ALLOC(kept, at_arena_str(g->arena, at_str_of(name)));
  void **place;
  if (at_map_find(&g->by_name, at_str_of(name)))
    return AT_FAIL(AT_ALREADY_EXISTS, "there is a tensor %s already", name);
  AT_TRY_ALLOC(place, at_map_put(&g->by_name, at_str_of(kept)));
  *place = kept;
  at_tiles_view *v;
  AT_TRY(at_tiles_view_new(g, t, dims, 1, &v));
  at_tiles_piece *p = &v->pieces[0];
  p->var = (uint32_t)g->vars.len;
  int64_t stride = 1;
  for (uint32_t d = dims.rank; d-- > 0;) {
    p->size[d] = v->dims[d];
    p->stride[d] = stride;
    stride *= v->dims[d];
  }
  v->num_pieces = v->elements > 0;
  at_tiles_var var = {kept, t, {v->dims, dims.rank}, v->elements, 0, {0}, {0},
                      NULL, v};
  if (!at_vec_push(g->arena, &g->vars, var)) return AT_NO_MEMORY("tensor");
  *out = v;
  return AT_OK;
}

// Flags add to those that are set; all variables of the view get them.
at_status at_tiles_variable_flag(const at_tiles_view *v, uint32_t flags) {
  for (uint32_t i = 0; i < v->num_pieces; i++) {
    const at_tiles_piece *p = &v->pieces[i];
    if (p->of)
      AT_TRY(at_tiles_variable_flag(p->of, flags));
    else
      v->graph->vars.ptr[p->var].flags |= flags;
  }
  return AT_OK;
}

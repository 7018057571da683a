// Values as views of memory, for callees that know strides.
#include "mosaic/emit.h"

// dims of `to` over the memory of `from` (sizes known); false: not one view.
bool at_me_reshape_view(at_me *m, const at_me_ref *from, at_me_ref *to) {
  uint32_t i = from->rank, j = to->rank;
  while (j > 0) {
    if (to->size[j - 1].c == 1) {
      to->stride[--j] = (at_me_num){0, NULL};
      continue;
    }
    while (i > 0 && from->size[i - 1].c == 1) i--;
    if (i == 0) return false;
    // One digit of `from`, grown until the product of `to` digits fits.
    at_me_num stride = from->stride[i - 1];
    int64_t have = from->size[--i].c;
    int64_t made = 1;
    while (j > 0 && made < have) {
      int64_t s = to->size[--j].c;
      to->stride[j] = at_me_mul(m, stride, (at_me_num){made, NULL});
      made *= s;
      while (made > have) {  // needs more of `from`, which must run on
        while (i > 0 && from->size[i - 1].c == 1) i--;
        if (i == 0 || stride.v || from->stride[i - 1].v ||
            from->stride[i - 1].c != stride.c * have)
          return false;
        have *= from->size[--i].c;
      }
    }
    if (made != have) return false;
  }
  return true;
}

// *v becomes n's memory if n is a load or buffer seen through reshapes,
// transposes and slices. False: something must be computed.
static bool view_of(at_me *m, at_me_node *n, at_me_ref *v) {
  at_me_ref in;
  switch (n->kind) {
    case AT_ME_BUFFER:
      *v = *n->ref;
      return true;
    case AT_ME_LOAD:
      *v = *n->ref;
      at_me_ref_trim(m, v, n->rank);
      return v->packing->parts == 1 && v->packing->split == 1;
    case AT_ME_RESHAPE:
      if (!view_of(m, n->in[0], &in)) return false;
      *v = in;
      v->rank = n->rank;
      for (uint32_t d = 0; d < n->rank; d++)
        v->size[d] = (at_me_num){n->dim[d], NULL};
      return at_me_reshape_view(m, &in, v);
    case AT_ME_TRANSPOSE:
      if (!view_of(m, n->in[0], &in)) return false;
      *v = in;
      for (uint32_t d = 0; d < n->rank; d++) {
        v->size[d] = in.size[n->ints[d]];
        v->stride[d] = in.stride[n->ints[d]];
      }
      return true;
    case AT_ME_SLICE: {
      if (!view_of(m, n->in[0], v)) return false;
      at_me_num at = {0, NULL};
      for (uint32_t d = 0; d < n->rank; d++) {
        at_me_num k = {n->ints[d], NULL}, s = {n->step[d], NULL};
        at = at_me_add(m, at, at_me_mul(m, k, v->stride[d]));
        v->stride[d] = at_me_mul(m, s, v->stride[d]);
        v->size[d] = (at_me_num){n->dim[d], NULL};
      }
      v->base = at_b_gep(m->e, at_em_int(m->e, 8 * v->bytes), v->base,
                         at_me_num_value(m, at));
      return true;
    }
    default:
      return false;
  }
}

// A view where possible, without copying; else n is computed into memory.
at_me_node *at_me_view(at_me *m, at_me_node *n, at_me_ref *view) {
  if (!n) return NULL;
  at_me_prepare_as(m, n, false);
  if (view_of(m, n, view)) {
    if (view->home->pages) at_me_rehome(m, view)->pages = false;
    return at_me_retain(n);
  }
  at_me_node *b = at_me_materialise(m, n);
  if (b) *view = *b->ref;
  return b;
}

// Only a plain load of paged memory can be handed over unread; reshapes of it
// do not move elements.
at_me_node *at_me_view_pages(at_me *m, at_me_node *n, at_me_ref *view) {
  const at_me_node *x = n;
  while (x && x->kind == AT_ME_RESHAPE) x = x->in[0];
  if (x && x->kind == AT_ME_LOAD && x->ref->home->pages && view_of(m, n, view))
    return at_me_retain(n);
  return at_me_view(m, n, view);
}

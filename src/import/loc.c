// MLIR's location trees into at_loc: JAX's op name, the file position of the
// innermost frame, and the frames that called it.
#include "import/import_internal.h"

enum { MAX_DEPTH = 64, MAX_FRAMES = 32 };

// The location under construction, and how many nodes of the tree were walked:
// locations may nest as deeply as the input likes.
typedef struct loc_walk {
  at_loc l;
  uint32_t depth;
} loc_walk;

// Of fused locations the first that says anything.
static const at_mloc *fused_best(const at_mloc *l) {
  for (uint32_t i = 0; i < l->num_locs; i++)
    if (l->locs[i]->kind != AT_MLOC_UNKNOWN) return l->locs[i];
  return NULL;
}

// Walks to the file position; `caller` receives the nearest call site.
static void loc_resolve(loc_walk *w, const at_mloc *l, const at_mloc **caller) {
  while (l && w->depth++ < MAX_DEPTH) {
    switch (l->kind) {
      case AT_MLOC_NAME:
        if (!w->l.name) w->l.name = l->text;
        l = l->child;
        break;
      case AT_MLOC_CALLSITE:
        if (!*caller) *caller = l->caller;
        l = l->child;
        break;
      case AT_MLOC_FUSED:
        l = fused_best(l);
        break;
      case AT_MLOC_FILE:
        w->l.file = l->text;
        w->l.line = l->line;
        w->l.column = l->column;
        return;
      default:
        return;
    }
  }
}

// The name of a frame is that of the function, e.g. "train_step".
static at_status loc_build(at_imp *x, const at_mloc *l, uint32_t frames,
                           const at_loc **out) {
  *out = NULL;
  if (!l || l->kind == AT_MLOC_UNKNOWN || frames == 0) return AT_OK;
  void **seen = at_map_find_ptr(&x->locs, l);
  if (seen) return *out = (const at_loc *)*seen, AT_OK;
  loc_walk w = {0};
  const at_mloc *caller = NULL;
  loc_resolve(&w, l, &caller);
  at_loc *r;
  AT_TRY_ALLOC(r, at_new(x->a, at_loc, 1));
  *r = w.l;
  if (r->name) AT_TRY(at_imp_keep(x, r->name, &r->name));
  if (r->file) AT_TRY(at_imp_keep(x, r->file, &r->file));
  AT_TRY(loc_build(x, caller, frames - 1, &r->caller));
  void **slot;
  AT_TRY_ALLOC(slot, at_map_put_ptr(&x->locs, l));
  *slot = r;
  *out = r;
  return AT_OK;
}

// Each op gets a copy of its own, because it records the op as its origin;
// callers' frames are shared.
at_status at_imp_loc(at_imp *x, const at_mloc *l, const void *of,
                     const at_loc **out) {
  const at_loc *read;
  at_loc *own;
  AT_TRY(loc_build(x, l, MAX_FRAMES, &read));
  if (!read) return *out = NULL, AT_OK;
  AT_TRY_ALLOC(own, at_arena_copy(x->a, read, sizeof *read, _Alignof(at_loc)));
  own->origin = of;
  *out = own;
  return AT_OK;
}

// Borrows the caller's memo for a walk without an import; at_map is moved in
// and out by value, as the arena owns its storage.
at_status at_import_loc(const at_mmodule *m, const at_mloc *l, at_map *memo,
                        const at_loc **out) {
  at_imp x = {.src = m, .a = memo->arena, .locs = *memo};
  at_status st = loc_build(&x, l, MAX_FRAMES, out);
  *memo = x.locs;
  return st;
}

// Programs: sequences, loops, branches, copies and compute sets.
#include "tiles/tiles_internal.h"

// An empty program of that kind, which runs once.
static at_status make(at_tiles_graph *g, at_tiles_kind kind,
                      at_tiles_program **out) {
  at_tiles_program *p;
  AT_TRY_ALLOC(p, at_new(g->arena, at_tiles_program, 1));
  p->graph = g;
  p->kind = kind;
  p->times = 1;
  *out = p;
  return AT_OK;
}

at_status at_tiles_program_sequence(at_tiles_graph *g, at_tiles_program **out) {
  return make(g, AT_TILES_SEQUENCE, out);
}

// Is `what` p, or inside it? A program may not contain itself: running it would
// not end. Each program is looked at once: `look` marks those that were.
static bool holds(at_tiles_program *p, const at_tiles_program *what,
                  uint64_t look) {
  if (!p || p->look == look) return false;
  if (p == what) return true;
  p->look = look;
  for (size_t i = 0; i < p->parts.len; i++)
    if (holds(p->parts.ptr[i], what, look)) return true;
  return false;
}

// A look through p keeps a sequence from holding itself, which would never end.
at_status at_tiles_program_add(at_tiles_program *s, at_tiles_program *p) {
  if (s->kind != AT_TILES_SEQUENCE || s->graph != p->graph ||
      holds(p, s, ++s->graph->looks))
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "a program is added to a sequence of its own graph that is "
                   "not inside it");
  return at_vec_push(s->graph->arena, &s->parts, p) ? AT_OK
                                                    : AT_NO_MEMORY("program");
}

// The set may still grow until the step is derived.
at_status at_tiles_program_execute(at_tiles_set *s, at_tiles_program **out) {
  AT_TRY(make(s->graph, AT_TILES_EXECUTE, out));
  (*out)->set = s;
  return AT_OK;
}

// Element by element in the order of both views; shapes may differ.
at_status at_tiles_program_copy(const at_tiles_view *src,
                                const at_tiles_view *dst,
                                at_tiles_program **out) {
  if (src->elements != dst->elements || src->dtype != dst->dtype ||
      src->graph != dst->graph)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "copy of %lld elements of %s to %lld of %s",
                   (long long)src->elements, at_dtype_of(src->dtype)->text,
                   (long long)dst->elements, at_dtype_of(dst->dtype)->text);
  AT_TRY(make(src->graph, AT_TILES_COPY, out));
  (*out)->src = src;
  (*out)->dst = dst;
  return AT_OK;
}

// 0 times is a step that does nothing.
at_status at_tiles_program_repeat(int64_t times, at_tiles_program *body,
                                  at_tiles_program **out) {
  if (times < 0)
    return AT_FAIL(AT_INVALID_ARGUMENT, "repeat %lld times", (long long)times);
  AT_TRY(make(body->graph, AT_TILES_REPEAT, out));
  (*out)->times = times;
  return at_vec_push(body->graph->arena, &(*out)->parts, body)
             ? AT_OK
             : AT_NO_MEMORY("program");
}

// parts[0] is `yes`, parts[1] is `no`; either may be NULL.
at_status at_tiles_program_branch(const at_tiles_view *pred,
                                  at_tiles_program *yes, at_tiles_program *no,
                                  at_tiles_program **out) {
  at_tiles_graph *g = pred->graph;
  if (pred->elements != 1 || at_is_complex(pred->dtype) ||
      (yes && yes->graph != g) || (no && no->graph != g))
    return AT_FAIL(
        AT_INVALID_ARGUMENT,
        "branch on a view of %lld elements of %s\nhint: one real number",
        (long long)pred->elements, at_dtype_of(pred->dtype)->text);
  AT_TRY(make(g, AT_TILES_BRANCH, out));
  (*out)->pred = pred;
  bool fine = at_vec_push(g->arena, &(*out)->parts, yes) &&
              at_vec_push(g->arena, &(*out)->parts, no);
  return fine ? AT_OK : AT_NO_MEMORY("program");
}

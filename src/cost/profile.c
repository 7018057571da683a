// Costs of a previous run: how long each step took, from its trace, which names
// them by op and number ("fusion.12"). Clients move constants before they
// compile, so numbers may differ from those of the same program in a file; the
// steps and their order do not. The n-th fusion of the trace, by number, is the
// n-th of the program where both have as many.
#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

#include "base/json.h"
#include "cost/cost.h"

// One step of the program, over all its runs.
typedef struct step {
  double seconds;
  uint64_t count;
  at_op op;
  uint64_t number;
} step;

struct at_cost_profile {
  at_map steps;                   // "fusion.12" -> step
  step **sorted;                  // by op and number
  size_t first[AT_OP_COUNT + 1];  // of each op in `sorted`
};

enum { kMostTracks = 256 };
// The step last seen on a track of the trace: launches of one step follow each
// other and count as one.
typedef struct track {
  int64_t process, thread;
  const step *last;
} track;

// "fusion.12" of "fusion.12 add,multiply"; empty: some other event.
static at_str step_name(at_str name, at_op *op, uint64_t *number) {
  size_t n = 0, dot = 0, digits = 0;
  while (n < name.len && name.ptr[n] != ' ') {
    if (name.ptr[n] == '.')
      dot = n, digits = 0;
    else if (name.ptr[n] >= '0' && name.ptr[n] <= '9')
      digits++;
    n++;
  }
  bool fits = dot && digits && dot + 1 + digits == n && digits < 10 &&
              at_op_parse((at_str){name.ptr, dot}, op);
  *number = 0;
  for (size_t i = dot + 1; fits && i < n; i++)
    *number = *number * 10 + (uint64_t)(name.ptr[i] - '0');
  return fits ? (at_str){name.ptr, n} : (at_str){"", 0};
}

// The track of an event. NULL beyond kMostTracks: events there count one by
// one.
static track *track_of(const at_json *event, track *list, size_t *n) {
  int64_t process = at_json_get_int(event, "pid", 0);
  int64_t thread = at_json_get_int(event, "tid", 0);
  for (size_t i = 0; i < *n; i++)
    if (list[i].process == process && list[i].thread == thread) return &list[i];
  if (*n == kMostTracks) return NULL;
  list[*n] = (track){process, thread, NULL};
  return &list[(*n)++];
}

// Adds the duration of one event; what is no step is skipped.
static at_status add_event(const at_json *event, at_arena *a, track *tracks,
                           size_t *num_tracks, at_map *steps) {
  at_op op = AT_OP_COUNT;
  uint64_t number;
  at_str name =
      step_name(at_json_get_str(event, "name", AT_STR("")), &op, &number);
  double micros = at_json_get_num(event, "dur", -1);
  if (!name.len || !(micros >= 0 && micros < 1e15)) return AT_OK;
  void **place;
  step *s;
  AT_TRY_ALLOC(place, at_map_put(steps, name));
  if (!*place) {
    AT_TRY_ALLOC(s, at_new(a, step, 1));
    *s = (step){.op = op, .number = number};
    *place = s;
  }
  s = *place;
  track *t = track_of(event, tracks, num_tracks);
  s->seconds += micros * 1e-6;
  if (!t || t->last != s) s->count++;
  if (t) t->last = s;
  return AT_OK;
}

static int by_number(const void *x, const void *y) {
  const step *a = *(step *const *)x, *b = *(step *const *)y;
  if (a->op != b->op) return a->op < b->op ? -1 : 1;
  return (a->number > b->number) - (a->number < b->number);
}

// By op and number, with the first of each op.
static at_status sort_steps(at_cost_profile *p, at_arena *a) {
  size_t n = p->steps.len;
  AT_TRY_ALLOC(p->sorted, at_new(a, step *, n + 1));
  for (size_t i = 0; i < n; i++) p->sorted[i] = p->steps.entries[i].value;
  qsort(p->sorted, n, sizeof *p->sorted, by_number);
  for (size_t op = 0, i = 0; op <= AT_OP_COUNT; op++) {
    while (i < n && p->sorted[i]->op < op) i++;
    p->first[op] = i;
  }
  return AT_OK;
}

at_status at_cost_profile_read(at_bytes text, at_arena *a,
                               const at_cost_profile **out) {
  const at_json *j;
  at_cost_profile *p;
  track tracks[kMostTracks];
  size_t num_tracks = 0;
  AT_TRY(at_status_prefix(at_json_parse(text, a, &j), "trace"));
  const at_json *list = at_json_get(j, "traceEvents");
  if (!list) list = j;
  if (list->kind != AT_JSON_ARRAY)
    return AT_FAIL(AT_INVALID_ARGUMENT, "trace: no list of traceEvents");
  AT_TRY_ALLOC(p, at_new(a, at_cost_profile, 1));
  p->steps = at_map_in(a);
  for (size_t i = 0; i < list->len; i++)
    AT_TRY(add_event(&list->items[i], a, tracks, &num_tracks, &p->steps));
  if (!p->steps.len)
    return AT_FAIL(AT_NOT_FOUND,
                   "trace: no step of a program, such as \"fusion.12\"\n"
                   "hint: jax.profiler.trace writes one; its .trace.json");
  *out = p;
  return sort_steps(p, a);
}

// gzread reads plain files as well. INVALID_ARGUMENT: damaged, or over 1 GiB.
static at_status read_all(const char *path, gzFile file, at_arena *a,
                          const at_cost_profile **out) {
  enum { kChunk = 1 << 20, kMost = 1 << 30 };
  at_strbuf text = {0};
  at_status st = AT_OK;
  char *chunk = at_new(a, char, kChunk);
  int n = 0;
  if (!chunk) st = AT_NO_MEMORY("trace");
  while (at_ok(st) && text.len < kMost && (n = gzread(file, chunk, kChunk)) > 0)
    at_strbuf_add(&text, (at_str){chunk, (size_t)n});
  if (at_ok(st) && (n < 0 || text.len >= kMost))
    st = AT_FAIL(AT_INVALID_ARGUMENT, "damaged, or over 1 GiB");
  if (at_ok(st)) st = at_strbuf_status(&text);
  if (at_ok(st))
    st = at_cost_profile_read((at_bytes){(const uint8_t *)text.ptr, text.len},
                              a, out);
  at_strbuf_free(&text);
  return at_status_prefix(st, "%s", path);
}

at_status at_cost_profile_open(const char *path, at_arena *a,
                               const at_cost_profile **out) {
  gzFile file = gzopen(path, "rb");
  if (!file) return AT_FAIL(AT_NOT_FOUND, "cannot open %s", path);
  at_status st = read_all(path, file, a, out);
  gzclose(file);
  return st;
}

// Steps of an op in a program: all, and those numbered below `n`.
static void count_steps(const at_comp *c, const at_node *n, size_t *all,
                        size_t *before) {
  AT_FOR_NODES(k, c) {
    if (k->op == n->op) (*all)++, *before += k->id < n->id;
    for (uint32_t r = 0; r < k->num_regions && at_op_is(k->op, AT_CONTROL); r++)
      count_steps(k->regions[r], n, all, before);
  }
}

// By rank among the steps of its op where trace and program have as many, else
// by number.
bool at_cost_profiled(const at_cost_profile *p, const at_node *n,
                      double *seconds) {
  if (!p || at_op_is(n->op, AT_COLLECTIVE) || at_op_is(n->op, AT_CONTROL))
    return false;
  size_t first = p->first[n->op], known = p->first[n->op + 1] - first;
  size_t all = 0, before = 0;
  const at_comp *top = n->parent;
  while (top->owner) top = top->owner->parent;
  if (known) count_steps(top, n, &all, &before);
  const step *s = NULL;
  if (known && known == all) s = p->sorted[first + before];
  for (size_t i = 0; i < known && !s; i++)
    if (p->sorted[first + i]->number == n->id) s = p->sorted[first + i];
  if (!s) return false;
  *seconds = s->seconds / (double)s->count;
  return true;
}

// Costs of a previous run: how long each step took, from its trace. Steps are
// known by op and number ("fusion.12"), which are the same as long as the
// program and the compiler are.
#include <stdio.h>
#include <zlib.h>

#include "base/json.h"
#include "cost/cost.h"

typedef struct step {
  double seconds;
  uint64_t count;
} step;

struct at_cost_profile {
  at_map steps;  // "fusion.12" -> step
};

enum { kMostTracks = 256 };
// The step last seen on a track of the trace: launches of one step follow each
// other and count as one.
typedef struct track {
  int64_t process, thread;
  const step *last;
} track;

// "fusion.12" of "fusion.12 add,multiply"; empty: some other event.
static at_str step_name(at_str name) {
  size_t n = 0, dot = 0, digits = 0;
  at_op op;
  while (n < name.len && name.ptr[n] != ' ') {
    if (name.ptr[n] == '.')
      dot = n, digits = 0;
    else if (name.ptr[n] >= '0' && name.ptr[n] <= '9')
      digits++;
    n++;
  }
  bool fits = dot && digits && dot + 1 + digits == n &&
              at_op_parse((at_str){name.ptr, dot}, &op);
  return fits ? (at_str){name.ptr, n} : (at_str){"", 0};
}

static track *track_of(const at_json *event, track *list, size_t *n) {
  int64_t process = at_json_get_int(event, "pid", 0);
  int64_t thread = at_json_get_int(event, "tid", 0);
  for (size_t i = 0; i < *n; i++)
    if (list[i].process == process && list[i].thread == thread) return &list[i];
  if (*n == kMostTracks) return NULL;
  list[*n] = (track){process, thread, NULL};
  return &list[(*n)++];
}

static at_status add_event(const at_json *event, at_arena *a, track *tracks,
                           size_t *num_tracks, at_map *steps) {
  at_str name = step_name(at_json_get_str(event, "name", AT_STR("")));
  double micros = at_json_get_num(event, "dur", -1);
  if (!name.len || !(micros >= 0 && micros < 1e15)) return AT_OK;
  void **place;
  step *s;
  AT_TRY_ALLOC(place, at_map_put(steps, name));
  if (!*place) {
    AT_TRY_ALLOC(s, at_new(a, step, 1));
    *s = (step){0};
    *place = s;
  }
  s = *place;
  track *t = track_of(event, tracks, num_tracks);
  s->seconds += micros * 1e-6;
  if (!t || t->last != s) s->count++;
  if (t) t->last = s;
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
  return AT_OK;
}

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

bool at_cost_profiled(const at_cost_profile *p, const at_node *n,
                      double *seconds) {
  char name[96];
  if (!p || at_op_is(n->op, AT_COLLECTIVE) || at_op_is(n->op, AT_CONTROL))
    return false;
  int len = snprintf(name, sizeof name, "%s.%u", at_op_text(n->op), n->id);
  void **place = at_map_find(&p->steps, (at_str){name, (size_t)len});
  if (!place) return false;
  const step *s = *place;
  *seconds = s->seconds / (double)s->count;
  return true;
}

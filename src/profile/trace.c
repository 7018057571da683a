// A profile as a Chrome trace.
#include "base/json.h"
#include "profile/profile_internal.h"

// Names that XProf looks for.
const char *at_profile_line(uint32_t kind) {
  static const char *const lines[AT_PROFILE_KINDS] = {
      "XLA Modules", "XLA Ops",     "Transfers",
      "SparseCore",  "Kernel core", "SparseCore recompiles",
      "Steps"};
  AT_ASSERT(kind < AT_PROFILE_KINDS && lines[kind]);
  return lines[kind];
}

// A text member.
static void put_pair(at_json_writer *w, const char *key, const char *value) {
  at_json_key(w, at_str_of(key));
  at_json_str(w, at_str_of(value));
}

// A complete event ("X"): chips are processes, lines are threads.
static void trace_event(at_json_writer *w, const at_profile_event *e) {
  at_json_begin_object(w);
  put_pair(w, "ph", "X");
  put_pair(w, "name", e->name);
  put_pair(w, "cat", at_profile_line(e->kind));
  at_json_key(w, AT_STR("pid"));
  at_json_uint(w, e->chip);
  at_json_key(w, AT_STR("tid"));
  at_json_uint(w, at_profile_line_number(e->kind, e->core));
  at_json_key(w, AT_STR("ts"));  // microseconds
  at_json_num(w, (double)e->start_ns / 1e3);
  at_json_key(w, AT_STR("dur"));
  uint64_t end = AT_MAX(e->start_ns, e->end_ns);
  at_json_num(w, (double)(end - e->start_ns) / 1e3);
  at_json_key(w, AT_STR("args"));
  at_json_begin_object(w);
  if (*e->detail) put_pair(w, "op", e->detail);
  if (*e->source) put_pair(w, "source", e->source);
  at_json_key(w, AT_STR("launch"));
  at_json_int(w, e->launch_id);
  if (e->bytes) {
    at_json_key(w, AT_STR("bytes"));
    at_json_uint(w, e->bytes);
  }
  at_json_end_object(w);
  at_json_end_object(w);
}

// In the order of recording: viewers sort by themselves. Calls have no duration
// and are left out.
at_status at_profile_trace(const at_profile *p, at_strbuf *out) {
  size_t n;
  const at_profile_event *e = at_profile_events(p, &n);
  at_json_writer w = {.out = out};
  at_json_begin_object(&w);
  put_pair(&w, "displayTimeUnit", "ns");
  at_json_key(&w, AT_STR("traceEvents"));
  at_json_begin_array(&w);
  for (size_t i = 0; i < n; i++)
    if (e[i].kind != AT_PROFILE_CALL) trace_event(&w, &e[i]);
  at_json_end_array(&w);
  at_json_end_object(&w);
  return at_strbuf_status(out);
}

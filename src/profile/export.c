// A profile as XSpace (tsl/profiler/protobuf/xplane.proto, written by hand: its
// few fields are named beside their numbers) and as a Chrome trace.
#include <stdio.h>

#include "base/json.h"
#include "profile/profile_internal.h"

// ---- Protocol buffers
static void put_varint(at_strbuf *b, uint64_t v) {
  for (; v >= 128; v >>= 7) at_strbuf_addc(b, (char)(v | 128));
  at_strbuf_addc(b, (char)v);
}
static void put_int(at_strbuf *b, uint32_t field, uint64_t v) {
  put_varint(b, field << 3);
  put_varint(b, v);
}
static void put_bytes(at_strbuf *b, uint32_t field, at_str s) {
  put_varint(b, field << 3 | 2);
  put_varint(b, s.len);
  at_strbuf_add(b, s);
}
// Moves a finished message into its parent.
static void put_message(at_strbuf *b, uint32_t field, at_strbuf *message) {
  put_bytes(b, field, at_strbuf_str(message));
  b->failed |= message->failed;
  at_strbuf_free(message);
}

enum { STAT_DETAIL = 1, STAT_SOURCE, STAT_LAUNCH, STAT_BYTES, STAT_COUNT };
static const char *const g_stats[STAT_COUNT] = {"", "long_name", "source",
                                                "run_id", "bytes_transferred"};
static const char *const g_lines[AT_PROFILE_KINDS] = {
    "XLA Modules", "XLA Ops",     "Transfers",
    "SparseCore",  "Kernel core", "SparseCore recompiles"};

typedef struct plane {
  const at_profile *profile;
  uint32_t chip;
  at_arena *arena;
  at_map names;  // text pointer -> metadata id
} plane;

static void put_text_stat(at_strbuf *event, uint32_t id, const char *text) {
  if (!*text) return;
  at_strbuf s = {0};
  put_int(&s, 1, id);                 // XStat.metadata_id
  put_bytes(&s, 5, at_str_of(text));  // XStat.str_value
  put_message(event, 4, &s);          // XEvent.stats
}
static void put_int_stat(at_strbuf *event, uint32_t id, uint64_t v) {
  at_strbuf s = {0};
  put_int(&s, 1, id);
  put_int(&s, 3, v);  // XStat.uint64_value
  put_message(event, 4, &s);
}

static uint64_t name_id(plane *p, const char *name) {
  void **place = at_map_put_ptr(&p->names, name);
  if (!place) return 0;
  if (!*place) *place = (void *)p->names.len;
  return (uint64_t)(uintptr_t)*place;
}

static void put_event(plane *p, const at_profile_event *e, uint64_t origin_ns,
                      at_strbuf *line) {
  at_strbuf b = {0};
  put_int(&b, 1, name_id(p, e->name));               // metadata_id
  put_int(&b, 2, (e->start_ns - origin_ns) * 1000);  // offset_ps
  put_int(&b, 3, (e->end_ns - e->start_ns) * 1000);  // duration_ps
  put_text_stat(&b, STAT_DETAIL, e->detail);
  put_text_stat(&b, STAT_SOURCE, e->source);
  put_int_stat(&b, STAT_LAUNCH, (uint64_t)e->launch_id);
  if (e->bytes) put_int_stat(&b, STAT_BYTES, e->bytes);
  put_message(line, 4, &b);  // XLine.events
}

static uint64_t line_number(uint32_t kind, uint32_t core) {
  return kind + (uint64_t)core * AT_PROFILE_KINDS;
}

static bool is_on_line(const plane *p, const at_profile_event *e, uint32_t kind,
                       uint32_t core) {
  return e->chip == p->chip && e->kind == kind && e->core == core;
}

static void put_line(plane *p, uint32_t kind, uint32_t core, at_strbuf *out) {
  size_t n;
  const at_profile_event *e = at_profile_events(p->profile, &n);
  uint64_t origin = UINT64_MAX;
  for (size_t i = 0; i < n; i++)
    if (is_on_line(p, &e[i], kind, core))
      origin = AT_MIN(origin, e[i].start_ns);
  if (origin == UINT64_MAX) return;
  at_strbuf b = {0};
  char name[32];
  snprintf(name, sizeof name, "%s %u", g_lines[kind], core);
  bool numbered = kind == AT_PROFILE_SPARSE || kind == AT_PROFILE_KERNEL;
  if (!numbered) name[strlen(g_lines[kind])] = 0;
  put_int(&b, 1, line_number(kind, core) + 1);  // XLine.id
  put_bytes(&b, 2, at_str_of(name));            // name
  put_int(&b, 3,
          origin + (uint64_t)p->profile->unix_offset_ns);  // timestamp_ns
  for (size_t i = 0; i < n; i++)
    if (is_on_line(p, &e[i], kind, core)) put_event(p, &e[i], origin, &b);
  put_message(out, 3, &b);  // XPlane.lines
}

static uint32_t cores_of(const at_profile *p, uint32_t chip, uint32_t kind) {
  size_t n;
  const at_profile_event *e = at_profile_events(p, &n);
  uint32_t cores = 0;
  for (size_t i = 0; i < n; i++)
    if (e[i].chip == chip && e[i].kind == kind)
      cores = AT_MAX(cores, e[i].core + 1);
  return cores;
}

// map<int64, {id, name}>
static void put_metadata(at_strbuf *out, uint32_t field, uint64_t id,
                         const char *name) {
  at_strbuf value = {0}, entry = {0};
  put_int(&value, 1, id);
  put_bytes(&value, 2, at_str_of(name));
  put_int(&entry, 1, id);
  put_message(&entry, 2, &value);
  put_message(out, field, &entry);
}

static at_status put_plane(const at_profile *profile, uint32_t chip,
                           at_strbuf *out) {
  plane p = {.profile = profile, .chip = chip, .arena = at_arena_create()};
  if (!p.arena) return AT_NO_MEMORY("profile");
  p.names = at_map_in(p.arena);
  at_strbuf b = {0};
  char name[32];
  snprintf(name, sizeof name, "/device:TPU:%u", chip);
  put_int(&b, 1, chip + 1);           // XPlane.id
  put_bytes(&b, 2, at_str_of(name));  // name
  for (uint32_t k = 0; k < AT_PROFILE_KINDS; k++)
    for (uint32_t c = 0, n = cores_of(profile, chip, k); c < n; c++)
      put_line(&p, k, c, &b);
  for (size_t i = 0; i < p.names.len; i++)
    put_metadata(&b, 4, (uint64_t)(uintptr_t)p.names.entries[i].value,
                 p.names.entries[i].key.ptr);
  for (uint32_t i = 1; i < STAT_COUNT; i++) put_metadata(&b, 5, i, g_stats[i]);
  at_status st = at_arena_status(p.arena);
  at_arena_destroy(p.arena);
  put_message(out, 1, &b);  // XSpace.planes
  return st;
}

at_status at_profile_xspace(const at_profile *p, at_strbuf *out) {
  size_t n;
  const at_profile_event *e = at_profile_events(p, &n);
  uint32_t chips = 0;
  for (size_t i = 0; i < n; i++) chips = AT_MAX(chips, e[i].chip + 1);
  for (uint32_t c = 0; c < chips; c++) {
    bool seen = false;
    for (size_t i = 0; i < n && !seen; i++) seen = e[i].chip == c;
    if (seen) AT_TRY(put_plane(p, c, out));
  }
  return at_strbuf_status(out);
}

// ---- Chrome
static void put_pair(at_json_writer *w, const char *key, const char *value) {
  at_json_key(w, at_str_of(key));
  at_json_str(w, at_str_of(value));
}

static void trace_event(at_json_writer *w, const at_profile_event *e) {
  at_json_begin_object(w);
  put_pair(w, "ph", "X");
  put_pair(w, "name", e->name);
  put_pair(w, "cat", g_lines[e->kind]);
  at_json_key(w, AT_STR("pid"));
  at_json_uint(w, e->chip);
  at_json_key(w, AT_STR("tid"));
  at_json_uint(w, line_number(e->kind, e->core));
  at_json_key(w, AT_STR("ts"));  // microseconds
  at_json_num(w, (double)e->start_ns / 1e3);
  at_json_key(w, AT_STR("dur"));
  at_json_num(w, (double)(e->end_ns - e->start_ns) / 1e3);
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

at_status at_profile_trace(const at_profile *p, at_strbuf *out) {
  size_t n;
  const at_profile_event *e = at_profile_events(p, &n);
  at_json_writer w = {.out = out};
  at_json_begin_object(&w);
  put_pair(&w, "displayTimeUnit", "ns");
  at_json_key(&w, AT_STR("traceEvents"));
  at_json_begin_array(&w);
  for (size_t i = 0; i < n; i++) trace_event(&w, &e[i]);
  at_json_end_array(&w);
  at_json_end_object(&w);
  return at_strbuf_status(out);
}

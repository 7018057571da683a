// A profile as XSpace (tsl/profiler/protobuf/xplane.proto; its few fields are
// named beside their numbers), with what XProf's tools look for in a TPU's
// planes.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/protobuf.h"
#include "base/verify.h"
#include "profile/profile_internal.h"

// Names of stats are those of XLA's profiler schema.
#define STATS(X)                                  \
  X(DETAIL, "long_name")                          \
  X(SOURCE, "source")                             \
  X(LAUNCH, "run_id")                             \
  X(BYTES, "bytes_transferred")                   \
  X(PROGRAM, "program_id")                        \
  X(SYMBOL, "symbol_id")                          \
  X(CATEGORY, "hlo_category")                     \
  X(SCOPE, "tf_op")                               \
  X(FLOPS, "flops")                               \
  X(TRANSCENDENTALS, "transcendentals")           \
  X(ACCESSED, "bytes_accessed")                   \
  X(BREAKDOWN, "memory_access_breakdown")         \
  X(CONSUMER_TYPE, "_ct")                         \
  X(CONSUMER, "_c")                               \
  X(HLO, "Hlo Proto")                             \
  X(DEVICE_TYPE, "device_type_string")            \
  X(TERAFLOPS, "peak_teraflops_per_second")       \
  X(HBM_RATE, "peak_hbm_bw_gigabytes_per_second") \
  X(MEMORY, "memory_size")
#define STAT_ID(id, name) STAT_##id,
enum { STAT_NONE, STATS(STAT_ID) STAT_COUNT };
#define STAT_NAME(id, name) name,
static const char *const g_stats[] = {"", STATS(STAT_NAME)};

// TraceMe contexts of calls into a PJRT plug-in.
enum { kPjrtLibraryCall = 14 };

// Field numbers under which stats stand.
enum { EVENT_STATS = 4, METADATA_STATS = 5, PLANE_STATS = 6 };

// ---- Stats
// Left out where the text is empty.
static void put_text_stat(at_strbuf *b, uint32_t field, uint32_t id,
                          const char *text) {
  if (!text || !*text) return;
  at_strbuf s = {0};
  at_proto_write_int(&s, 1, id);                 // XStat.metadata_id
  at_proto_write_bytes(&s, 5, at_str_of(text));  // str_value
  at_proto_write_message(b, field, &s);
}
// For serialised messages.
static void put_bytes_stat(at_strbuf *b, uint32_t field, uint32_t id,
                           at_str bytes) {
  at_strbuf s = {0};
  at_proto_write_int(&s, 1, id);
  at_proto_write_bytes(&s, 6, bytes);  // bytes_value
  at_proto_write_message(b, field, &s);
}
// Written for 0, too.
static void put_uint_stat(at_strbuf *b, uint32_t field, uint32_t id,
                          uint64_t v) {
  at_strbuf s = {0};
  at_proto_write_int(&s, 1, id);
  at_proto_write_int(&s, 3, v);  // uint64_value
  at_proto_write_message(b, field, &s);
}
// Some stats are signed in XLA's schema.
static void put_int_stat(at_strbuf *b, uint32_t field, uint32_t id, int64_t v) {
  at_strbuf s = {0};
  at_proto_write_int(&s, 1, id);
  at_proto_write_int(&s, 4, (uint64_t)v);  // int64_value
  at_proto_write_message(b, field, &s);
}
// Peaks that are not known are left out.
static void put_double_stat(at_strbuf *b, uint32_t field, uint32_t id,
                            double v) {
  if (v <= 0) return;
  at_strbuf s = {0};
  at_proto_write_int(&s, 1, id);
  at_proto_write_varint(&s, 2 << 3 | AT_PROTO_64);  // double_value
  at_strbuf_add(&s, (at_str){(const char *)&v, sizeof v});
  at_proto_write_message(b, field, &s);
}

// map<int64, {id, name, ...}>: `value` is the message, which it frees.
static void put_entry(at_strbuf *out, uint32_t field, uint64_t id,
                      at_strbuf *value) {
  at_strbuf entry = {0};
  at_proto_write_int(&entry, 1, id);
  at_proto_write_message(&entry, 2, value);
  at_proto_write_message(out, field, &entry);
}

// A plane names all stats, used or not.
static void put_stat_names(at_strbuf *plane) {
  for (uint32_t i = 1; i < STAT_COUNT; i++) {
    at_strbuf value = {0};
    at_proto_write_int(&value, 1, i);
    at_proto_write_bytes(&value, 2, at_str_of(g_stats[i]));
    put_entry(plane, 5, i, &value);  // XPlane.stat_metadata
  }
}

// ---- What is known of programs
typedef struct program {
  const at_profile_module *module;  // NULL: nothing is known of it
  at_map ops;                       // name -> at_profile_op
  at_map ids;                       // text pointer of an event -> metadata id
} program;

typedef struct exporter {
  const at_profile *profile;
  const at_profile_about *about;
  at_arena *arena;
  at_map contexts;  // launch -> context of its call
} exporter;

typedef struct plane {
  const exporter *x;
  uint32_t chip;
  at_map programs;     // number -> program
  uint64_t last_id;    // of event metadata
  at_strbuf metadata;  // finished entries
  at_strbuf lines;
} plane;

// Made on first use: events of one program share metadata. number 0: of no
// program.
static at_status program_of(plane *p, uint64_t number, program **out) {
  void **place;
  AT_TRY_ALLOC(place, at_map_put_ptr(&p->programs, (void *)(uintptr_t)number));
  if (*place) return *out = *place, AT_OK;
  program *g;
  AT_TRY_ALLOC(g, at_new(p->x->arena, program, 1));
  *place = g;
  g->ops = at_map_in(p->x->arena);
  g->ids = at_map_in(p->x->arena);
  const at_profile_about *about = p->x->about;
  // The last module of that number counts.
  for (uint32_t i = 0; number && i < about->num_modules; i++)
    if (about->modules[i].program == number) g->module = &about->modules[i];
  for (uint32_t i = 0; g->module && i < g->module->num_ops; i++) {
    const at_profile_op *op = &g->module->ops[i];
    AT_TRY_ALLOC(place, at_map_put(&g->ops, at_str_of(op->name)));
    *place = (void *)op;
  }
  return *out = g, AT_OK;
}

// Events are named "fusion.1 add,multiply"; ops by the first word.
static at_str first_word(const char *text) {
  return (at_str){text, strcspn(text, " ")};
}

// MemoryAccessBreakdown of XProf's op_metrics.proto.
static void put_breakdown(at_strbuf *b, const at_profile_op *op) {
  enum { READ = 1, WRITE = 2, HBM = 1 };
  const double bytes[] = {[READ] = op->bytes_read, [WRITE] = op->bytes_written};
  at_strbuf all = {0};
  for (uint64_t way = READ; way <= WRITE; way++) {
    at_strbuf one = {0};
    at_proto_write_int(&one, 1, way);                   // operation_type
    at_proto_write_int(&one, 2, HBM);                   // memory_space
    at_proto_write_int(&one, 3, (uint64_t)bytes[way]);  // bytes_accessed
    at_proto_write_message(&all, 1, &one);
  }
  put_bytes_stat(b, METADATA_STATS, STAT_BREAKDOWN, at_strbuf_str(&all));
  b->failed |= all.failed;
  at_strbuf_free(&all);
}

// What holds others asks for nothing of its own.
static void put_known_op(at_strbuf *b, const at_profile_op *op) {
  at_proto_write_bytes(b, 2, at_str_of(op->text));  // name
  at_proto_write_bytes(b, 4, at_str_of(op->name));  // display_name
  put_text_stat(b, METADATA_STATS, STAT_CATEGORY, op->category);
  put_text_stat(b, METADATA_STATS, STAT_SCOPE, op->scope);
  put_text_stat(b, METADATA_STATS, STAT_SOURCE, op->source);
  put_uint_stat(b, METADATA_STATS, STAT_FLOPS, (uint64_t)op->flops);
  if (op->transcendentals > 0)
    put_uint_stat(b, METADATA_STATS, STAT_TRANSCENDENTALS,
                  (uint64_t)op->transcendentals);
  put_uint_stat(b, METADATA_STATS, STAT_ACCESSED,
                (uint64_t)(op->bytes_read + op->bytes_written));
  put_breakdown(b, op);
}

// XEventMetadata of a program's op, or of any other event.
static void put_metadata(plane *p, const program *g, const at_profile_event *e,
                         uint64_t id) {
  at_strbuf b = {0};
  at_proto_write_int(&b, 1, id);
  // Only ops of programs have costs; of others the name is all.
  bool is_op = e->kind == AT_PROFILE_OP && e->program;
  void **op = is_op ? at_map_find(&g->ops, first_word(e->name)) : NULL;
  if (op) {
    at_profile_op known = *(const at_profile_op *)*op;
    // Its inner operations have the costs.
    if (e->holds)
      known.flops = known.transcendentals = known.bytes_read =
          known.bytes_written = 0;
    put_known_op(&b, &known);
  } else if (e->kind == AT_PROFILE_MODULE && e->program) {
    char *name =
        at_arena_printf(p->x->arena, "%s(%" PRIu64 ")", e->name, e->program);
    at_proto_write_bytes(&b, 2, at_str_of(name ? name : ""));
    at_proto_write_bytes(&b, 4, at_str_of(e->name));
  } else {
    at_proto_write_bytes(&b, 2, at_str_of(e->name));
    at_str word = first_word(e->name);
    if (is_op) at_proto_write_bytes(&b, 4, word);
  }
  if (e->program) put_uint_stat(&b, METADATA_STATS, STAT_PROGRAM, e->program);
  if (is_op) put_uint_stat(&b, METADATA_STATS, STAT_SYMBOL, id);
  put_entry(&p->metadata, 4, id, &b);  // XPlane.event_metadata
}

// One entry for each different event name of a program in this plane.
static at_status metadata_of(plane *p, const at_profile_event *e,
                             uint64_t *out) {
  program *g;
  void **place;
  AT_TRY(program_of(p, e->program, &g));
  AT_TRY_ALLOC(place, at_map_put_ptr(&g->ids, e->name));
  if (!*place) {
    // 0 is no metadata in XPlane.
    *place = (void *)(uintptr_t)++p->last_id;
    put_metadata(p, g, e, p->last_id);
  }
  AT_ASSERT((uintptr_t)*place <= p->last_id);
  return *out = (uint64_t)(uintptr_t)*place, AT_OK;
}

// ---- Events
typedef struct event_list {
  const at_profile_event **list;
  size_t count;
} event_list;

// By time; what holds others comes before them.
static int by_time(const void *a, const void *b) {
  const at_profile_event *x = *(const at_profile_event *const *)a;
  const at_profile_event *y = *(const at_profile_event *const *)b;
  if (x->start_ns != y->start_ns) return x->start_ns < y->start_ns ? -1 : 1;
  return (x->end_ns < y->end_ns) - (x->end_ns > y->end_ns);
}

// Is the event one of this line?
static bool is_of(const at_profile_event *e, uint32_t chip, uint32_t kind,
                  uint32_t core) {
  return e->chip == chip && e->kind == kind && e->core == core;
}

// For AT_VERIFY: no event comes before one that starts earlier.
static bool is_in_time(const event_list *l) {
  for (size_t i = 1; i < l->count; i++)
    if (l->list[i]->start_ns < l->list[i - 1]->start_ns) return false;
  return true;
}

// The events of one line, by time.
static at_status events_of(const plane *p, uint32_t kind, uint32_t core,
                           event_list *out) {
  size_t n;
  const at_profile_event *e = at_profile_events(p->x->profile, &n);
  size_t count = 0;
  *out = (event_list){0};
  for (size_t i = 0; i < n; i++) count += is_of(&e[i], p->chip, kind, core);
  if (!count) return AT_OK;
  AT_TRY_ALLOC(out->list, at_new(p->x->arena, const at_profile_event *, count));
  for (size_t i = 0; i < n; i++)
    if (is_of(&e[i], p->chip, kind, core)) out->list[out->count++] = &e[i];
  AT_ASSERT(out->count == count);
  qsort(out->list, count, sizeof *out->list, by_time);
  AT_VERIFY(is_in_time(out));
  return AT_OK;
}

// In picoseconds from the line's origin.
static void put_times(at_strbuf *b, uint64_t id, uint64_t start_ns,
                      uint64_t end_ns) {
  AT_ASSERT(id && start_ns <= end_ns);
  at_proto_write_int(b, 1, id);                          // metadata_id
  at_proto_write_int(b, 2, start_ns * 1000);             // offset_ps
  at_proto_write_int(b, 3, (end_ns - start_ns) * 1000);  // duration_ps
}

// The line's own time is Unix time.
static at_strbuf begin_line(const plane *p, uint64_t id, const char *name,
                            uint64_t origin_ns) {
  at_strbuf b = {0};
  at_proto_write_int(&b, 1, id);                 // XLine.id
  at_proto_write_bytes(&b, 2, at_str_of(name));  // name
  at_proto_write_int(&b, 3,
                     origin_ns + (uint64_t)p->x->profile->unix_offset_ns);
  return b;
}

// Takes the events from i on that are one op; returns how many.
static size_t put_event(plane *p, const event_list *l, size_t i,
                        uint64_t metadata, at_strbuf *line) {
  AT_ASSERT(i < l->count && metadata);
  const at_profile_event *e = l->list[i];
  uint64_t end = AT_MAX(e->start_ns, e->end_ns);
  size_t n = 1;
  AT_ASSERT(l->list[0]->start_ns <= e->start_ns);  // by_time
  // Kernels of one op follow each other on the line.
  for (; i + n < l->count; n++) {
    const at_profile_event *next = l->list[i + n];
    if (!next->goes_on || next->name != e->name ||
        next->launch_id != e->launch_id)
      break;
    end = AT_MAX(end, next->end_ns);
  }
  at_strbuf b = {0};
  uint64_t origin = l->list[0]->start_ns;
  put_times(&b, metadata, e->start_ns - origin, end - origin);
  put_text_stat(&b, EVENT_STATS, STAT_DETAIL, e->detail);
  put_text_stat(&b, EVENT_STATS, STAT_SOURCE, e->source);
  put_uint_stat(&b, EVENT_STATS, STAT_LAUNCH, (uint64_t)e->launch_id);
  if (e->bytes) put_uint_stat(&b, EVENT_STATS, STAT_BYTES, e->bytes);
  at_proto_write_message(line, 4, &b);  // XLine.events
  return n;
}

// Nothing where there are no events.
static at_status put_line(plane *p, uint32_t kind, uint32_t core) {
  event_list l;
  AT_TRY(events_of(p, kind, core, &l));
  if (!l.count) return AT_OK;
  char name[32];
  bool numbered = kind == AT_PROFILE_SPARSE || kind == AT_PROFILE_KERNEL;
  snprintf(name, sizeof name, numbered ? "%s %u" : "%s", at_profile_line(kind),
           core);
  at_strbuf b = begin_line(p, at_profile_line_number(kind, core) + 1, name,
                           l.list[0]->start_ns);
  at_status st = AT_OK;
  uint64_t id = 0;
  for (size_t i = 0; i < l.count && at_ok(st);) {
    st = metadata_of(p, l.list[i], &id);
    if (at_ok(st)) i += put_event(p, &l, i, id, &b);
    AT_ASSERT(i <= l.count);
  }
  at_proto_write_message(&p->lines, 3, &b);  // XPlane.lines
  return st;
}

// A launch consumes what the client's call produced: through it, XProf finds
// the StepTraceAnnotation around the call, and makes one step of all its
// launches.
static at_status put_steps(plane *p) {
  event_list l;
  AT_TRY(events_of(p, AT_PROFILE_MODULE, 0, &l));
  if (!l.count) return AT_OK;
  uint64_t origin = l.list[0]->start_ns;
  at_strbuf b = begin_line(p, at_profile_line_number(AT_PROFILE_CALL, 0) + 1,
                           at_profile_line(AT_PROFILE_CALL), origin);
  for (size_t i = 0; i < l.count; i++) {
    const at_profile_event *e = l.list[i];
    at_strbuf event = {0}, value = {0};
    char name[24];
    snprintf(name, sizeof name, "%zu", i);
    // Each step has metadata of its own, as its name is its number.
    at_proto_write_int(&value, 1, ++p->last_id);
    at_proto_write_bytes(&value, 2, at_str_of(name));
    put_entry(&p->metadata, 4, p->last_id, &value);
    put_times(&event, p->last_id, e->start_ns - origin,
              AT_MAX(e->start_ns, e->end_ns) - origin);
    put_uint_stat(&event, EVENT_STATS, STAT_LAUNCH, (uint64_t)e->launch_id);
    // Launches without a call, as of another client, have no consumer.
    void **context =
        at_map_find_ptr(&p->x->contexts, (void *)(uintptr_t)e->launch_id);
    if (context && e->launch_id) {
      put_int_stat(&event, EVENT_STATS, STAT_CONSUMER_TYPE, kPjrtLibraryCall);
      put_uint_stat(&event, EVENT_STATS, STAT_CONSUMER,
                    *(const uint64_t *)*context);
    }
    at_proto_write_message(&b, 4, &event);
  }
  at_proto_write_message(&p->lines, 3, &b);
  return AT_OK;
}

// ---- Planes
// 1 + the highest core that has an event of this kind.
static uint32_t cores_of(const at_profile *p, uint32_t chip, uint32_t kind) {
  size_t n;
  const at_profile_event *e = at_profile_events(p, &n);
  uint32_t cores = 0;
  for (size_t i = 0; i < n; i++)
    if (e[i].chip == chip && e[i].kind == kind)
      cores = AT_MAX(cores, e[i].core + 1);
  return cores;
}

// Peaks, from which XProf draws its roofline.
static void put_chip(const plane *p, at_strbuf *b) {
  const at_profile_about *about = p->x->about;
  for (uint32_t i = 0; i < about->num_chips; i++) {
    const at_profile_chip *c = &about->chips[i];
    if (c->chip != p->chip) continue;
    put_text_stat(b, PLANE_STATS, STAT_DEVICE_TYPE, c->kind);
    put_double_stat(b, PLANE_STATS, STAT_TERAFLOPS, c->flops_per_second / 1e12);
    put_double_stat(b, PLANE_STATS, STAT_HBM_RATE,
                    c->hbm_bytes_per_second / 1e9);
    put_uint_stat(b, PLANE_STATS, STAT_MEMORY, c->hbm_bytes);
  }
}

// Steps only where `about` has programs.
static at_status put_lines(plane *p) {
  const at_profile *profile = p->x->profile;
  if (p->x->about->num_modules) AT_TRY(put_steps(p));
  for (uint32_t k = 0; k < AT_PROFILE_CALL; k++)
    for (uint32_t c = 0, n = cores_of(profile, p->chip, k); c < n; c++)
      AT_TRY(put_line(p, k, c));
  return AT_OK;
}

// One chip.
static at_status put_plane(const exporter *x, uint32_t chip, at_strbuf *out) {
  plane p = {.x = x, .chip = chip, .programs = at_map_in(x->arena)};
  at_strbuf b = {0};
  char name[96];
  snprintf(name, sizeof name, "%s%u",
           x->about->plane ? x->about->plane : "/device:TPU:", chip);
  at_proto_write_int(&b, 1, chip + 1);           // XPlane.id
  at_proto_write_bytes(&b, 2, at_str_of(name));  // name
  at_status st = put_lines(&p);
  // Metadata are known only when all lines are written.
  at_strbuf_add(&b, at_strbuf_str(&p.lines));
  at_strbuf_add(&b, at_strbuf_str(&p.metadata));
  b.failed |= p.lines.failed | p.metadata.failed;
  put_stat_names(&b);
  put_chip(&p, &b);
  at_strbuf_free(&p.lines);
  at_strbuf_free(&p.metadata);
  at_proto_write_message(out, 1, &b);  // XSpace.planes
  return st;
}

// The programs that ran, where XProf looks for them.
static void put_programs(const exporter *x, at_strbuf *out) {
  at_strbuf b = {0};
  uint32_t known = 0;
  at_proto_write_bytes(&b, 2, AT_STR("/host:metadata"));
  for (uint32_t i = 0; i < x->about->num_modules; i++) {
    const at_profile_module *m = &x->about->modules[i];
    if (!m->hlo.len) continue;
    at_strbuf value = {0}, name = {0};
    at_strbuf_addf(&name, "%s(%" PRIu64 ")", m->name, m->program);
    at_proto_write_int(&value, 1, m->program);
    at_proto_write_bytes(&value, 2, at_strbuf_str(&name));
    put_bytes_stat(&value, METADATA_STATS, STAT_HLO, m->hlo);
    put_uint_stat(&value, METADATA_STATS, STAT_PROGRAM, m->program);
    put_entry(&b, 4, m->program, &value);
    b.failed |= name.failed;
    at_strbuf_free(&name);
    known++;
  }
  put_stat_names(&b);
  if (known)
    at_proto_write_message(out, 1, &b);
  else
    at_strbuf_free(&b);
}

// By launch; a later call of the same number replaces the earlier.
static at_status read_calls(exporter *x) {
  size_t n;
  const at_profile_event *e = at_profile_events(x->profile, &n);
  for (size_t i = 0; i < n; i++) {
    if (e[i].kind != AT_PROFILE_CALL) continue;
    void **place;
    AT_TRY_ALLOC(
        place, at_map_put_ptr(&x->contexts, (void *)(uintptr_t)e[i].launch_id));
    *place = (void *)&e[i].context;
  }
  return AT_OK;
}

// Chips without events have no plane.
static at_status put_space(exporter *x, at_strbuf *out) {
  size_t n;
  const at_profile_event *e = at_profile_events(x->profile, &n);
  uint32_t chips = 0;
  AT_TRY(read_calls(x));
  // Chips are numbered from 0.
  for (size_t i = 0; i < n; i++) chips = AT_MAX(chips, e[i].chip + 1);
  for (uint32_t c = 0; c < chips; c++) {
    bool seen = false;
    for (size_t i = 0; i < n && !seen; i++)
      seen = e[i].chip == c && e[i].kind != AT_PROFILE_CALL;
    if (seen) AT_TRY(put_plane(x, c, out));
  }
  put_programs(x, out);
  return at_arena_status(x->arena);
}

// Needs about as much memory as the output, and a list of each line's events.
at_status at_profile_xspace(const at_profile *p, const at_profile_about *about,
                            at_strbuf *out) {
  static const at_profile_about nothing = {0};
  exporter x = {.profile = p,
                .about = about ? about : &nothing,
                .arena = at_arena_create()};
  if (!x.arena) return AT_NO_MEMORY("profile");
  x.contexts = at_map_in(x.arena);
  at_status st = put_space(&x, out);
  at_arena_destroy(x.arena);
  return at_ok(st) ? at_strbuf_status(out) : st;
}

// Estimates as text, JSON, and timelines.
#include <math.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/map.h"
#include "base/size_text.h"
#include "estimate/report_internal.h"
#include "profile/profile.h"

const char *at_bound_text(at_bound b) {
  static const char *const names[AT_BOUND_COUNT] = {
      "matrix", "vector", "memory", "latency", "network"};
  return (unsigned)b < AT_BOUND_COUNT ? names[b] : "?";
}

// Seconds, milliseconds or microseconds.
void at_est_time(at_strbuf *b, double s) {
  if (s >= 1)
    at_strbuf_addf(b, "%.3g s", s);
  else if (s >= 1e-3)
    at_strbuf_addf(b, "%.4g ms", s * 1e3);
  else
    at_strbuf_addf(b, "%.4g us", s * 1e6);
}

void at_est_bytes(at_strbuf *b, double n) {
  char text[AT_SIZE_TEXT];
  at_strbuf_addz(b, at_size_text(n, text));
}

// With a prefix, powers of 1,000.
void at_est_flops_text(at_strbuf *b, double n) {
  const char *const units[] = {"", "k", "M", "G", "T", "P"};
  size_t u = 0;
  while (n >= 1000 && u + 1 < AT_LEN(units)) n /= 1000, u++;
  at_strbuf_addf(b, "%.4g %sFLOP", n, units[u]);
}

// ---- Text

// The head of a report: times, work, memory, where figures come from, notes.
static void add_summary(const at_estimate *e, at_strbuf *out) {
  at_strbuf_addf(out, "%s on %s", e->program, e->target);
  at_strbuf_addf(out, " (%u device%s, program for %u): ", e->num_devices,
                 e->num_devices == 1 ? "" : "s", e->program_devices);
  at_est_time(out, e->seconds);
  at_strbuf_addz(out, " a step (");
  at_est_time(out, e->low);
  at_strbuf_addz(out, " to ");
  at_est_time(out, e->high);
  at_strbuf_addz(out, ")\n  kernels ");
  at_est_time(out, e->kernels);
  if (e->prefetch > 0) {
    at_strbuf_addz(out, ", first operands ");
    at_est_time(out, e->prefetch);
  }
  if (e->network > 0) {
    bool copies = e->host_link > 0, both = copies && e->host_link < e->network;
    at_strbuf_addz(out, !copies ? "; collectives "
                        : both
                            ? "; collectives and copies to and from the host "
                            : "; copies to and from the host ");
    at_est_time(out, e->network);
    at_strbuf_addz(out, ", of which exposed ");
    at_est_time(out, e->exposed);
    at_strbuf_addf(out, " (%.0f%% hidden)",
                   100 * fmax(0, 1 - e->exposed / e->network));
  }
  if (e->sparse > 0) {
    at_strbuf_addz(out, "; SparseCores ");
    at_est_time(out, e->sparse);
    at_strbuf_addz(out, ", of which exposed ");
    at_est_time(out, e->sparse_exposed);
  }
  at_strbuf_addz(out, "\n  ");
  at_est_flops_text(out, e->flops);
  if (e->mfu > 0) at_strbuf_addf(out, ", MFU %.1f%%", 100 * e->mfu);
  if (e->hfu > e->mfu)
    at_strbuf_addf(out, ", with what is recomputed HFU %.1f%%", 100 * e->hfu);
  at_strbuf_addz(out, "; HBM traffic ");
  at_est_bytes(out, e->hbm_bytes);
  if (e->again_flops > 0) {
    at_strbuf_addz(out, "; computed again in kernels ");
    at_est_flops_text(out, e->again_flops);
  }
  if (e->num_here) {
    at_strbuf_addz(out, "\n  cost_analysis(): ");
    at_est_flops_text(out, e->here_all.flops);
    at_strbuf_addf(out, ", %.0f transcendentals, bytes accessed ",
                   e->here_all.transcendentals);
    at_est_bytes(out, e->here_all.bytes_accessed);
  }
  at_strbuf_addz(out, "\n  memory: peak ");
  at_est_bytes(out, (double)e->peak_bytes);
  if (e->memory_bytes) {
    at_strbuf_addz(out, " of ");
    at_est_bytes(out, (double)e->memory_bytes);
    if (e->peak_bytes > e->memory_bytes) at_strbuf_addz(out, " (DOES NOT FIT)");
  }
  at_strbuf_addz(out, "; arguments ");
  at_est_bytes(out, (double)e->argument_bytes);
  at_strbuf_addz(out, ", results ");
  at_est_bytes(out, (double)e->output_bytes);
  at_strbuf_addz(out, ", temporaries ");
  at_est_bytes(out, (double)e->temp_bytes);
  at_strbuf_addz(out, "\n  figures from:");
  double all = 0;
  for (int i = 0; i < AT_COST_SOURCE_COUNT; i++) all += e->by_source[i];
  for (int i = 0; i < AT_COST_SOURCE_COUNT; i++)
    if (e->by_source[i] > 0)
      at_strbuf_addf(out, " %s %.1f%%", at_cost_source_text((at_cost_source)i),
                     100 * e->by_source[i] / all);
  at_strbuf_addc(out, '\n');
  for (uint32_t i = 0; i < e->num_notes; i++)
    at_strbuf_addf(out, "  note: %s\n", e->notes[i]);
}

// JAX names the scope of what a checkpoint computes again.
bool at_estimate_is_recomputed(const at_estimate_op *o) {
  return strstr(o->scope, "rematted_computation") != NULL;
}

// Seconds of the step that it takes: beside kernels, what is exposed.
static double total(const at_estimate_op *o) {
  return o->network || o->sparse ? o->exposed : o->seconds * o->count;
}

// The longest first.
static int by_total(const void *a, const void *b) {
  const at_estimate_op *x = *(const at_estimate_op *const *)a;
  const at_estimate_op *y = *(const at_estimate_op *const *)b;
  double s = x->seconds * x->count, t = y->seconds * y->count;
  return (s < t) - (s > t);
}

// Sorts pointers; the estimate stays as it is.
const at_estimate_op **at_est_sorted(const at_estimate *e, at_strbuf *out) {
  const at_estimate_op **o = malloc((e->num_ops + 1) * sizeof *o);
  for (uint32_t i = 0; o && i < e->num_ops; i++) o[i] = &e->ops[i];
  if (o) qsort(o, e->num_ops, sizeof *o, by_total);
  out->failed |= !o;
  return o;
}

// Pads to a column, or cuts off with a tilde.
static void add_cell(at_strbuf *out, const char *text, size_t width) {
  size_t n = strlen(text);
  if (n > width)
    at_strbuf_addf(out, "%.*s~ ", (int)width - 1, text);
  else
    at_strbuf_addf(out, "%-*s ", (int)width, text);
}

// One kernel, with all its runs.
static void add_row(const at_estimate *e, const at_estimate_op *o,
                    at_strbuf *out) {
  at_strbuf_addf(out, "  %9.2f %5.1f%% %5.0f  ", o->seconds * o->count * 1e6,
                 e->seconds > 0 ? 100 * total(o) / e->seconds : 0, o->count);
  add_cell(out, at_bound_text(o->bound), 7);
  add_cell(out, at_cost_source_text(o->from), 12);
  add_cell(out, o->name, 22);
  add_cell(out, o->detail, 56);
  at_strbuf_addf(out, "%s\n", o->source);
}

// The head, kernels by time, embeddings, buffers.
void at_estimate_text(const at_estimate *e, uint32_t rows, at_strbuf *out) {
  add_summary(e, out);
  const at_estimate_op **order = at_est_sorted(e, out);
  if (!order) return;
  uint32_t shown = rows && rows < e->num_ops ? rows : e->num_ops;
  at_strbuf_addf(out, "\n  %9s %6s %5s  %-7s %-12s %-22s %-56s %s\n", "us",
                 "step", "runs", "bound", "from", "kernel",
                 "results <- operands", "line");
  for (uint32_t i = 0; i < shown; i++) add_row(e, order[i], out);
  if (shown < e->num_ops)
    at_strbuf_addf(out, "  ... %u more\n", e->num_ops - shown);
  free(order);
  at_est_embeddings_text(e, out);
  if (!e->num_buffers) return;
  at_strbuf_addz(out, "\n  largest buffers at the peak\n");
  for (uint32_t i = 0; i < e->num_buffers && i < 10; i++) {
    at_strbuf_addz(out, "  ");
    at_strbuf b = {0};
    at_est_bytes(&b, (double)e->buffers[i].bytes);
    at_strbuf_addf(out, "%10s  ", at_strbuf_str(&b).ptr);
    out->failed |= b.failed;
    at_strbuf_free(&b);
    add_cell(out, e->buffers[i].name, 30);
    add_cell(out, e->buffers[i].type, 28);
    at_strbuf_addf(out, "%s\n", e->buffers[i].source);
  }
}

// What makes two kernels alike: their names and shapes. NULL: no memory.
static const char *key_of(const at_estimate_op *o, at_arena *a) {
  return at_arena_printf(a, "%s\n%s", o->name, o->detail);
}

// The first kernel of each key. False: no memory.
static bool index_ops(const at_estimate *e, at_arena *a, at_map *out) {
  for (uint32_t i = 0; i < e->num_ops; i++) {
    const char *key = key_of(&e->ops[i], a);
    void **at = key ? at_map_put(out, at_str_of(key)) : NULL;
    if (!at) return false;
    if (!*at) *at = (void *)(uintptr_t)&e->ops[i];
  }
  return true;
}

// Heads, sums side by side, then the kernels of both that have one name and one
// shape.
void at_estimate_compare(const at_estimate *a, const at_estimate *b,
                         uint32_t rows, at_strbuf *out) {
  add_summary(a, out);
  add_summary(b, out);
  const struct {
    const char *name;
    double a, b, scale;
    const char *unit;
  } lines[] = {
      {"step", a->seconds, b->seconds, 1e6, "us"},
      {"kernels", a->kernels, b->kernels, 1e6, "us"},
      {"collectives", a->network, b->network, 1e6, "us"},
      {"exposed", a->exposed, b->exposed, 1e6, "us"},
      {"SparseCores", a->sparse, b->sparse, 1e6, "us"},
      {"HBM traffic", a->hbm_bytes, b->hbm_bytes, 1. / (1 << 20), "MiB"},
      {"peak memory", (double)a->peak_bytes, (double)b->peak_bytes,
       1. / (1 << 20), "MiB"},
      {"MFU", a->mfu, b->mfu, 100, "%"}};
  at_strbuf_addf(out, "\n  %-12s %14s %14s %9s\n", "", a->target, b->target,
                 "second/first");
  for (size_t i = 0; i < AT_LEN(lines); i++) {
    at_strbuf_addf(out, "  %-12s %14.2f %14.2f ", lines[i].name,
                   lines[i].a * lines[i].scale, lines[i].b * lines[i].scale);
    if (lines[i].a > 0)
      at_strbuf_addf(out, "%9.3f %s\n", lines[i].b / lines[i].a, lines[i].unit);
    else
      at_strbuf_addf(out, "%9s %s\n", "-", lines[i].unit);
  }
  const at_estimate_op **order = at_est_sorted(a, out);
  if (!order) return;
  at_strbuf_addf(out, "\n  %12s %12s  %s\n", "us", "us",
                 "kernels with the same result");
  at_arena *arena = at_arena_create();
  at_map alike = at_map_in(arena);
  bool failed = !arena || !index_ops(b, arena, &alike);
  uint32_t shown = 0;
  for (uint32_t i = 0; i < a->num_ops && (!rows || shown < rows) && !failed;
       i++) {
    const char *key = key_of(order[i], arena);
    void **at = key ? at_map_find(&alike, at_str_of(key)) : NULL;
    failed |= !key;
    if (!at) continue;
    const at_estimate_op *o = *at;
    at_strbuf_addf(out, "  %12.2f %12.2f  ",
                   order[i]->seconds * order[i]->count * 1e6,
                   o->seconds * o->count * 1e6);
    add_cell(out, order[i]->name, 22);
    add_cell(out, order[i]->detail, 56);
    at_strbuf_addf(out, "%s\n", order[i]->source);
    shown++;
  }
  out->failed |= failed;
  at_arena_destroy(arena);
  free(order);
}

// ---- JSON

// A number of an object.
typedef struct field {
  const char *name;
  double value;
} field;

// Members of the object that is open.
static void add_fields(at_json_writer *w, const field *f, size_t n) {
  for (size_t i = 0; i < n; i++) {
    at_json_key(w, at_str_of(f[i].name));
    at_json_num(w, f[i].value);
  }
}

static void add_text(at_json_writer *w, const char *key, const char *text) {
  at_json_key(w, at_str_of(key));
  at_json_str(w, at_str_of(text));
}

// Every figure of one kernel.
static void add_op(at_json_writer *w, const at_estimate_op *o) {
  at_json_begin_object(w);
  add_text(w, "name", o->name);
  add_text(w, "shapes", o->detail);
  add_text(w, "line", o->source);
  add_text(w, "scope", o->scope);
  add_text(w, "source", at_cost_source_text(o->from));
  add_text(w, "bound", at_bound_text(o->bound));
  const field f[] = {{"start_seconds", o->start},
                     {"seconds", o->seconds},
                     {"runs", o->count},
                     {"exposed_seconds", o->exposed},
                     {"matrix_seconds", o->matrix},
                     {"vector_seconds", o->vector},
                     {"memory_seconds", o->memory},
                     {"latency_seconds", o->latency},
                     {"flops", o->flops},
                     {"transcendentals", o->transcendentals},
                     {"again_flops", o->again_flops},
                     {"hbm_bytes", o->hbm_bytes},
                     {"vmem_bytes", o->vmem_bytes},
                     {"network_bytes", o->network_bytes},
                     {"nodes", o->nodes},
                     {"level", o->level}};
  add_fields(w, f, AT_LEN(f));
  at_json_end_object(w);
}

// The program as profiles and cost_analysis() have it.
static void add_here(at_json_writer *w, const at_estimate *e) {
  const field all[] = {{"flops", e->here_all.flops},
                       {"transcendentals", e->here_all.transcendentals},
                       {"bytes accessed", e->here_all.bytes_accessed}};
  at_json_key(w, AT_STR("cost_analysis"));
  at_json_begin_object(w);
  add_fields(w, all, AT_LEN(all));
  at_json_end_object(w);
  at_json_key(w, AT_STR("profile_ops"));
  at_json_begin_array(w);
  for (uint32_t i = 0; i < e->num_here; i++) {
    const at_estimate_here *o = &e->here[i];
    const field f[] = {{"flops", o->flops},
                       {"transcendentals", o->transcendentals},
                       {"bytes_accessed", o->bytes_accessed}};
    at_json_begin_object(w);
    add_text(w, "name", o->name);
    add_fields(w, f, AT_LEN(f));
    at_json_end_object(w);
  }
  at_json_end_array(w);
}

// Everything of *e, in seconds and bytes.
void at_estimate_json(const at_estimate *e, at_strbuf *out) {
  at_json_writer w = {.out = out};
  at_json_begin_object(&w);
  add_text(&w, "program", e->program);
  add_text(&w, "target", e->target);
  add_text(&w, "machine", e->machine);
  const field f[] = {{"devices", e->num_devices},
                     {"program_devices", e->program_devices},
                     {"seconds", e->seconds},
                     {"low_seconds", e->low},
                     {"high_seconds", e->high},
                     {"kernel_seconds", e->kernels},
                     {"prefetch_seconds", e->prefetch},
                     {"network_seconds", e->network},
                     {"host_link_seconds", e->host_link},
                     {"exposed_seconds", e->exposed},
                     {"hidden_seconds", fmax(0, e->network - e->exposed)},
                     {"sparsecore_seconds", e->sparse},
                     {"sparsecore_exposed_seconds", e->sparse_exposed},
                     {"flops", e->flops},
                     {"transcendentals", e->transcendentals},
                     {"again_flops", e->again_flops},
                     {"hbm_bytes", e->hbm_bytes},
                     {"network_bytes", e->network_bytes},
                     {"peak_flops_per_second", e->peak_flops},
                     {"hbm_bytes_per_second", e->hbm_rate},
                     {"model_flops", e->model_flops},
                     {"mfu", e->mfu},
                     {"hfu", e->hfu},
                     {"argument_bytes", (double)e->argument_bytes},
                     {"output_bytes", (double)e->output_bytes},
                     {"temp_bytes", (double)e->temp_bytes},
                     {"peak_bytes", (double)e->peak_bytes},
                     {"memory_bytes", (double)e->memory_bytes}};
  add_fields(&w, f, AT_LEN(f));
  at_json_key(&w, AT_STR("seconds_by_source"));
  at_json_begin_object(&w);
  for (int i = 0; i < AT_COST_SOURCE_COUNT; i++) {
    if (e->by_source[i] <= 0) continue;
    at_json_key(&w, at_str_of(at_cost_source_text((at_cost_source)i)));
    at_json_num(&w, e->by_source[i]);
  }
  at_json_end_object(&w);
  at_json_key(&w, AT_STR("ops"));
  at_json_begin_array(&w);
  for (uint32_t i = 0; i < e->num_ops; i++) add_op(&w, &e->ops[i]);
  at_json_end_array(&w);
  at_est_embeddings_json(e, &w);
  at_json_key(&w, AT_STR("buffers"));
  at_json_begin_array(&w);
  for (uint32_t i = 0; i < e->num_buffers; i++) {
    at_json_begin_object(&w);
    add_text(&w, "name", e->buffers[i].name);
    add_text(&w, "type", e->buffers[i].type);
    add_text(&w, "line", e->buffers[i].source);
    at_json_key(&w, AT_STR("bytes"));
    at_json_uint(&w, e->buffers[i].bytes);
    at_json_end_object(&w);
  }
  at_json_end_array(&w);
  if (e->num_here) add_here(&w, e);
  at_json_key(&w, AT_STR("notes"));
  at_json_begin_array(&w);
  for (uint32_t i = 0; i < e->num_notes; i++)
    at_json_str(&w, at_str_of(e->notes[i]));
  at_json_end_array(&w);
  at_json_end_object(&w);
}

// ---- Timelines

enum { kSparseLane = 3 };
// Rows of the trace, as at_estimate_trace names them.
static int lane_of(const at_estimate_op *o) {
  if (o->sparse) return kSparseLane;
  return o->host_link ? 2 : o->network;
}

// What SparseCores do within a lookup or an update.
static void add_stages(const at_estimate *e, const at_estimate_op *o,
                       at_json_writer *w) {
  const at_estimate_embedding *x = NULL;
  for (uint32_t i = 0; i < e->num_embeddings && o->sparse; i++)
    if (!strcmp(e->embeddings[i].name, o->name)) x = &e->embeddings[i];
  double at = o->start;
  for (uint32_t i = 0; x && i < x->num_stages; i++) {
    at_json_begin_object(w);
    add_text(w, "ph", "X");
    add_text(w, "name", x->stages[i].name);
    const field f[] = {{"pid", 1},
                       {"tid", kSparseLane},
                       {"ts", at * 1e6},
                       {"dur", x->stages[i].seconds * 1e6}};
    add_fields(w, f, AT_LEN(f));
    at_json_end_object(w);
    at += x->stages[i].seconds;
  }
}

// Loops are drawn once: the first turn, at its place.
void at_estimate_trace(const at_estimate *e, at_strbuf *out) {
  at_json_writer w = {.out = out};
  at_json_begin_object(&w);
  at_json_key(&w, AT_STR("traceEvents"));
  at_json_begin_array(&w);
  const char *const lanes[] = {"kernels", "collectives", "host link",
                               "SparseCores"};
  for (int lane = 0; lane < (int)AT_LEN(lanes); lane++) {
    if (lane == 2 && e->host_link <= 0) continue;
    if (lane == kSparseLane && !e->num_embeddings) continue;
    at_json_begin_object(&w);
    add_text(&w, "ph", "M");
    add_text(&w, "name", "thread_name");
    const field ids[] = {{"pid", 1}, {"tid", lane}};
    add_fields(&w, ids, AT_LEN(ids));
    at_json_key(&w, AT_STR("args"));
    at_json_begin_object(&w);
    add_text(&w, "name", lanes[lane]);
    at_json_end_object(&w);
    at_json_end_object(&w);
  }
  for (uint32_t i = 0; i < e->num_ops; i++) {
    const at_estimate_op *o = &e->ops[i];
    at_json_begin_object(&w);
    add_text(&w, "ph", "X");
    add_text(&w, "name", o->name);
    const field f[] = {{"pid", 1},
                       {"tid", lane_of(o)},
                       {"ts", o->start * 1e6},
                       {"dur", o->seconds * 1e6}};
    add_fields(&w, f, AT_LEN(f));
    at_json_key(&w, AT_STR("args"));
    add_op(&w, o);
    at_json_end_object(&w);
    add_stages(e, o, &w);
  }
  at_json_end_array(&w);
  add_text(&w, "displayTimeUnit", "ns");
  at_json_end_object(&w);
}

// Times are rounded down to nanoseconds.
void at_estimate_events(const at_estimate *e, uint64_t at_ns, uint32_t chip,
                        at_profile_event *out) {
  out[0] = (at_profile_event){.start_ns = at_ns,
                              .end_ns = at_ns + (uint64_t)(e->seconds * 1e9),
                              .kind = AT_PROFILE_MODULE,
                              .chip = chip,
                              .name = e->program,
                              .detail = e->target};
  for (uint32_t i = 0; i < e->num_ops; i++) {
    const at_estimate_op *o = &e->ops[i];
    out[i + 1] = (at_profile_event){
        .start_ns = at_ns + (uint64_t)(o->start * 1e9),
        .end_ns = at_ns + (uint64_t)((o->start + o->seconds) * 1e9),
        .kind = o->network ? AT_PROFILE_TRANSFER : AT_PROFILE_OP,
        .chip = chip,
        .bytes = (uint64_t)o->network_bytes,
        .name = o->name,
        .detail = o->detail,
        .source = o->source};
  }
}

// The opcode of "dot_general.12".
static at_status category_of(const at_estimate_op *o, at_arena *a,
                             const char **out) {
  const char *dot = strrchr(o->name, '.');
  size_t n = dot ? (size_t)(dot - o->name) : strlen(o->name);
  AT_TRY_ALLOC(*out, at_arena_str(a, (at_str){o->name, n}));
  return AT_OK;
}

// One word, which no other op has: profilers tell ops apart by it.
// "copy for dot_general.3" -> "copy_for_dot_general.3", then
// "copy_for_dot_general.3.2".
static at_status word_of(const at_estimate_op *o, at_map *used, at_arena *a,
                         const char **out) {
  void **times;
  AT_TRY_ALLOC(times, at_map_put(used, at_str_of(o->name)));
  uintptr_t n = (uintptr_t)*times + 1;
  *times = (void *)n;
  char *word = n > 1 ? at_arena_printf(a, "%s.%u", o->name, (unsigned)n)
                     : at_arena_printf(a, "%s", o->name);
  if (!word) return AT_NO_MEMORY("a name");
  for (char *c = word; *c; c++)
    if (*c == ' ') *c = '_';
  return *out = word, AT_OK;
}

// What the kernels ask for, as the estimate has it.
static at_status ops_of(const at_estimate *e, at_arena *a,
                        const at_profile_op **out) {
  at_profile_op *ops;
  at_map used = at_map_in(a);
  AT_TRY_ALLOC(ops, at_new(a, at_profile_op, (size_t)e->num_ops + 1));
  for (uint32_t i = 0; i < e->num_ops; i++) {
    const at_estimate_op *o = &e->ops[i];
    ops[i] = (at_profile_op){.source = o->source,
                             .flops = o->flops,
                             .transcendentals = o->transcendentals,
                             .bytes_read = o->hbm_bytes};
    AT_TRY(word_of(o, &used, a, &ops[i].name));
    AT_TRY_ALLOC(ops[i].text,
                 at_arena_printf(a, "%%%s = %s", ops[i].name, o->detail));
    // XLA's profilers cut an op's type off behind the colon: it has none.
    AT_TRY_ALLOC(ops[i].scope,
                 at_arena_printf(a, "%s%s", o->scope, *o->scope ? ":" : ""));
    AT_TRY(category_of(o, a, &ops[i].category));
  }
  return *out = ops, AT_OK;
}

// Transfers keep their names, as profiles list them apart from ops.
static at_status xspace_in(const at_estimate *e, at_arena *a, at_strbuf *out) {
  at_profile_event *events;
  AT_TRY_ALLOC(events, at_new(a, at_profile_event, (size_t)e->num_ops + 1));
  at_estimate_events(e, 0, 0, events);
  at_profile_module module = {
      .program = 1, .name = e->program, .num_ops = e->num_ops};
  AT_TRY(ops_of(e, a, &module.ops));
  for (uint32_t i = 0; i <= e->num_ops; i++)
    if (events[i].kind != AT_PROFILE_TRANSFER) {
      events[i].program = module.program;
      if (i) events[i].name = module.ops[i - 1].name;
    }
  at_profile_chip chip = {.kind = e->machine,
                          .flops_per_second = e->peak_flops,
                          .hbm_bytes_per_second = e->hbm_rate,
                          .hbm_bytes = e->memory_bytes};
  at_profile_about about = {
      .modules = &module, .num_modules = 1, .chips = &chip, .num_chips = 1};
  at_profile *p = NULL;
  at_status st = at_profile_of(events, e->num_ops + 1, &p);
  if (at_ok(st)) st = at_profile_xspace(p, &about, out);
  at_profile_destroy(p);
  return st;
}

at_status at_estimate_xspace(const at_estimate *e, at_strbuf *out) {
  at_arena *a = at_arena_create();
  if (!a) return AT_NO_MEMORY("the timeline");
  at_status st = xspace_in(e, a, out);
  at_arena_destroy(a);
  return st;
}

// The report as one page: figures as text here, and the data of its pictures
// and tables of kernels, which page.js draws.
#include <math.h>
#include <stdlib.h>

#include "base/map.h"

#include "base/page.h"
#include "estimate/estimate_internal.h"
#include "estimate/report_internal.h"

static const char *const kColors[AT_BOUND_COUNT] = {
    [AT_BOUND_MATRIX] = "#2f6fdb",
    [AT_BOUND_VECTOR] = "#8a4fd0",
    [AT_BOUND_MEMORY] = "#e08a1e",
    [AT_BOUND_LATENCY] = "#9aa3ad",
    [AT_BOUND_NETWORK] = "#d0433b"};

// The name without its folders.
static const char *file_of(const char *source) {
  const char *slash = strrchr(source, '/');
  return slash ? slash + 1 : source;
}

// ---- Cards

static void open_card(at_strbuf *out) {
  at_strbuf_addz(out, "<div class=card><b>");
}
static void middle(at_strbuf *out) { at_strbuf_addz(out, "</b><span>"); }
static void close_card(at_strbuf *out) { at_strbuf_addz(out, "</span></div>"); }

// Model: what the program says; hardware: with what it recomputes.
static void flops_card(double share, const char *what, double flops,
                       at_strbuf *out) {
  open_card(out);
  if (share > 0)
    at_strbuf_addf(out, "%.1f%%", 100 * share);
  else
    at_strbuf_addz(out, "&ndash;");
  middle(out);
  at_strbuf_addz(out, what);
  at_est_flops_text(out, flops);
  at_strbuf_addz(out, " per device");
  close_card(out);
}

// Five cards: time, MFU, HFU, memory, communication.
static void cards(const at_estimate *e, at_strbuf *out) {
  at_strbuf_addz(out, "<div class=cards>");
  open_card(out);
  at_est_time(out, e->seconds);
  middle(out);
  at_strbuf_addz(out, "one step, from ");
  at_est_time(out, e->low);
  at_strbuf_addz(out, " to ");
  at_est_time(out, e->high);
  close_card(out);
  flops_card(e->mfu, "MFU: model ", e->model_flops, out);
  flops_card(e->hfu, "HFU: hardware ", e->flops, out);
  open_card(out);
  at_est_bytes(out, (double)e->peak_bytes);
  middle(out);
  bool over = e->memory_bytes && e->peak_bytes > e->memory_bytes;
  at_strbuf_addf(out, "%speak memory of ",
                 over ? "<span class=bad>does not fit: </span>" : "");
  at_est_bytes(out, (double)e->memory_bytes);
  close_card(out);
  open_card(out);
  at_est_time(out, e->exposed);
  middle(out);
  if (e->network > 0) {
    at_strbuf_addz(out, "exposed communication; ");
    at_est_time(out, e->network - e->exposed);
    at_strbuf_addz(out, " hidden");
  } else {
    at_strbuf_addz(out, "communication: no collectives");
  }
  close_card(out);
  at_strbuf_addz(out, "</div>");
}

// Colours of the bounds.
static void legend(at_strbuf *out) {
  at_strbuf_addz(out, "<p>");
  for (int b = 0; b < AT_BOUND_COUNT; b++)
    at_strbuf_addf(
        out,
        "<span class=key><i class=dot style=\"background:%s\"></i>%s</span>",
        kColors[b], at_bound_text((at_bound)b));
  at_strbuf_addz(out, "</p>");
}

// ---- Where the time goes

// One entry of a legend; nothing for a part that takes no time.
static void part(const char *name, const char *color, double seconds,
                 double all, at_strbuf *out) {
  if (seconds <= 0) return;
  at_strbuf_addf(out,
                 "<span class=key><i class=dot style=\"background:%s\"></i>%s ",
                 color, name);
  at_est_time(out, seconds);
  at_strbuf_addf(out, " (%.1f%%)</span>", 100 * seconds / all);
}

// How much of the communication has kernels beside it.
static void overlap(const at_estimate *e, at_strbuf *out) {
  if (e->network <= 0 || e->seconds <= 0) return;
  const struct {
    const char *name, *color;
    double seconds;
  } parts[] = {
      {"compute alone", kColors[AT_BOUND_MATRIX],
       fmax(0, e->kernels - (e->network - e->exposed))},
      {"compute and communication", "#3aa675", e->network - e->exposed},
      {"communication alone: exposed", kColors[AT_BOUND_NETWORK], e->exposed}};
  double all = 0;
  for (size_t i = 0; i < AT_LEN(parts); i++) all += parts[i].seconds;
  at_strbuf_addz(out,
                 "<h2>Overlap of compute and network</h2><figure><div "
                 "class=bar>");
  for (size_t i = 0; i < AT_LEN(parts); i++)
    at_strbuf_addf(out, "<i style=\"width:%.2f%%;background:%s\"></i>",
                   100 * parts[i].seconds / all, parts[i].color);
  at_strbuf_addz(out, "</div><p>");
  for (size_t i = 0; i < AT_LEN(parts); i++)
    part(parts[i].name, parts[i].color, parts[i].seconds, all, out);
  at_strbuf_addz(out, "</p></figure>");
}

// The step by what kernels wait for, and by where figures come from. What runs
// beside kernels counts where it is exposed.
static void shares(const at_estimate *e, at_strbuf *out) {
  double by[AT_BOUND_COUNT] = {0}, all = 0;
  for (uint32_t i = 0; i < e->num_ops; i++) {
    const at_estimate_op *o = &e->ops[i];
    double s = o->network || o->sparse ? o->exposed : o->seconds * o->count;
    by[o->bound] += s;
    all += s;
  }
  if (all <= 0) return;
  at_strbuf_addz(out, "<h2>Where the time goes</h2><figure><div class=bar>");
  for (int b = 0; b < AT_BOUND_COUNT; b++)
    if (by[b] > 0)
      at_strbuf_addf(
          out,
          "<i style=\"width:%.2f%%;background:%s\" title=\"%s %.1f%%\"></i>",
          100 * by[b] / all, kColors[b], at_bound_text((at_bound)b),
          100 * by[b] / all);
  at_strbuf_addz(out, "</div><p>");
  for (int b = 0; b < AT_BOUND_COUNT; b++)
    if (by[b] > 0)
      at_strbuf_addf(out,
                     "<span class=key><i class=dot "
                     "style=\"background:%s\"></i>%s %.1f%%</span>",
                     kColors[b], at_bound_text((at_bound)b), 100 * by[b] / all);
  at_strbuf_addz(out, "</p><p>Figures come from: ");
  double sum = 0;
  for (int i = 0; i < AT_COST_SOURCE_COUNT; i++) sum += e->by_source[i];
  for (int i = 0; i < AT_COST_SOURCE_COUNT; i++)
    if (e->by_source[i] > 0)
      at_strbuf_addf(out, "<span class=key>%s %.1f%%</span>",
                     at_cost_source_text((at_cost_source)i),
                     100 * e->by_source[i] / sum);
  at_strbuf_addz(out, "</p></figure>");
}

// ---- Data of the pictures
// Columns, not rows, and each text once: 100,000 kernels open in under a
// second.

extern const at_bytes at_estimate_page_files[];  // page.js

enum { kNetworkLane = -1, kHostLane = -2, kSparseLane = -3 };

// Texts of the page, each once; columns hold their indices.
typedef struct texts {
  at_map of;  // text -> index + 1
  at_strbuf *out;
  bool failed;
} texts;

// Index of the text, which is added if it is new. t->failed: no memory.
static uint32_t text_index(texts *t, const char *text) {
  void **place = at_map_put(&t->of, at_str_of(text));
  if (!place) {
    t->failed = true;
    return 0;
  }
  if (!*place) *place = (void *)(uintptr_t)t->of.len;
  return (uint32_t)(uintptr_t)*place - 1;
}

// A member of the object that is open: "name":[
static void begin_column(at_strbuf *out, const char *name) {
  at_strbuf_addf(out, "%s\"%s\":[", out->ptr[out->len - 1] == '{' ? "" : ",",
                 name);
}
// Takes the last comma back.
static void end_column(at_strbuf *out) {
  if (out->ptr[out->len - 1] == ',') out->len--;
  at_strbuf_addc(out, ']');
}

// The row of the timeline: a depth of loops, or one of the lanes beside the
// kernels.
static int lane_of(const at_estimate_op *o) {
  if (o->sparse) return kSparseLane;
  return o->host_link ? kHostLane : o->network ? kNetworkLane : (int)o->level;
}

// A column of indices for each text of an op.
static void op_texts(const at_estimate *e, texts *t) {
  static const char *const names[] = {"name", "detail", "source", "scope"};
  for (size_t c = 0; c < AT_LEN(names); c++) {
    begin_column(t->out, names[c]);
    for (uint32_t i = 0; i < e->num_ops; i++) {
      const at_estimate_op *o = &e->ops[i];
      const char *const of[] = {o->name, o->detail, o->source, o->scope};
      at_strbuf_addf(t->out, "%u,", text_index(t, of[c]));
    }
    end_column(t->out);
  }
}

// A column for each figure of an op; what is not finite becomes 0, as JSON has
// no other way.
static void op_numbers(const at_estimate *e, at_strbuf *out) {
  static const char *const names[] = {"start", "seconds_of", "runs",  "exposed",
                                      "lane",  "bound",      "flops", "hbm",
                                      "from",  "loop",       "again"};
  for (size_t c = 0; c < AT_LEN(names); c++) {
    begin_column(out, names[c]);
    for (uint32_t i = 0; i < e->num_ops; i++) {
      const at_estimate_op *o = &e->ops[i];
      const double of[] = {o->start,
                           o->seconds,
                           o->count,
                           o->exposed,
                           lane_of(o),
                           (double)o->bound,
                           o->flops,
                           o->hbm_bytes,
                           (double)o->from,
                           o->loop,
                           at_estimate_is_recomputed(o)};
      double v = isfinite(of[c]) ? of[c] : 0;
      at_strbuf_addf(out, c ? "%.5g," : "%.10g,", v);
    }
    end_column(out);
  }
}

// Name, seconds of a turn, turns, parent.
static void loop_data(const at_estimate *e, texts *t) {
  begin_column(t->out, "loops");
  for (uint32_t i = 0; i < e->num_loops; i++) {
    const at_estimate_loop *l = &e->loops[i];
    at_strbuf_addf(t->out, "[%u,%.10g,%.10g,%u],", text_index(t, l->name),
                   l->seconds, l->turns, l->parent);
  }
  end_column(t->out);
}

// What lives all the time, then temporaries over the schedule.
static void memory_data(const at_estimate *e, texts *t, at_arena *a) {
  at_strbuf_addf(t->out, ",\"kept\":%llu,\"limit\":%llu",
                 (unsigned long long)(e->argument_bytes + e->output_bytes -
                                      e->alias_bytes),
                 (unsigned long long)e->memory_bytes);
  begin_column(t->out, "steps");
  for (uint32_t i = 0; i < e->num_steps; i++) {
    at_node *n = (at_node *)e->steps[i];
    const char *name = n ? at_est_name(a, (at_value){n, 0}, NULL) : "end";
    at_strbuf_addf(t->out, "%u,", text_index(t, name ? name : ""));
  }
  end_column(t->out);
  begin_column(t->out, "lives");
  for (uint32_t i = 0; i < e->num_temps; i++) {
    const at_estimate_temp *x = &e->temps[i];
    const char *name = at_est_name(a, x->value, x->made);
    const char *type = at_est_type(a, at_value_type(x->value));
    const char *source = at_est_source(a, x->value.node->loc);
    at_strbuf_addf(t->out, "[%u,%u,%u,%llu,%u,%u],",
                   text_index(t, name ? name : ""), text_index(t, type),
                   text_index(t, source), (unsigned long long)x->bytes,
                   (uint32_t)x->begin, (uint32_t)x->end);
  }
  end_column(t->out);
}

// An array of `count` texts.
static void words(at_json_writer *w, const char *key,
                  const char *(*text)(int i), int count) {
  at_json_key(w, at_str_of(key));
  at_json_begin_array(w);
  for (int i = 0; i < count; i++) at_json_str(w, at_str_of(text(i)));
  at_json_end_array(w);
}
static const char *bound_text(int i) { return at_bound_text((at_bound)i); }
static const char *bound_color(int i) { return kColors[i]; }
static const char *from_text(int i) {
  return at_cost_source_text((at_cost_source)i);
}

// The object that page.js reads. out->failed: no memory.
static void page_data(const at_estimate *e, at_strbuf *out) {
  at_arena *a = at_arena_create();
  if (!a) {
    out->failed = true;
    return;
  }
  texts t = {.of = at_map_in(a), .out = out};
  at_json_writer w = {.out = out};
  at_json_begin_object(&w);
  at_json_key(&w, AT_STR("all"));
  at_json_num(&w, e->seconds);
  at_json_key(&w, AT_STR("peak_flops"));
  at_json_num(&w, e->peak_flops);
  at_json_key(&w, AT_STR("hbm_rate"));
  at_json_num(&w, e->hbm_rate);
  words(&w, "bounds", bound_text, AT_BOUND_COUNT);
  words(&w, "colors", bound_color, AT_BOUND_COUNT);
  words(&w, "sources", from_text, AT_COST_SOURCE_COUNT);
  if (!out->failed) {
    op_texts(e, &t);
    op_numbers(e, out);
    loop_data(e, &t);
    memory_data(e, &t, a);
  }
  at_json_key(&w, AT_STR("texts"));
  at_json_begin_array(&w);
  for (size_t i = 0; i < t.of.len; i++) at_json_str(&w, t.of.entries[i].key);
  at_json_end_array(&w);
  at_json_end_object(&w);
  out->failed |= t.failed;
  at_arena_destroy(a);
}

// The object as a script element that no browser runs.
static void put_data(const at_estimate *e, at_strbuf *out) {
  at_strbuf data = {0};
  page_data(e, &data);
  at_strbuf_addz(out, "<script type=\"application/json\">");
  // No text of a program can end the script.
  for (size_t i = 0; i < data.len; i++) {
    if (data.ptr[i] == '<')
      at_strbuf_addz(out, "\\u003c");
    else
      at_strbuf_addc(out, data.ptr[i]);
  }
  out->failed |= data.failed;
  at_strbuf_free(&data);
  at_strbuf_addz(out, "</script>");
}

// ---- What page.js fills

// Empty canvases and tables, found by their class.
static void pictures(const at_estimate *e, at_strbuf *out) {
  at_strbuf_addz(out, "<h2>Timeline of one device</h2>");
  legend(out);
  at_strbuf_addz(
      out,
      "<p><label><input type=checkbox class=turns> every turn of loops</label>"
      "The wheel zooms, dragging moves, a double click shows all. A folded "
      "loop is one bar with its first turn below it.</p><figure><canvas "
      "class=\"flow time\"></canvas></figure><h2>Time by scope of the "
      "model</h2><p><label><input type=checkbox class=layers checked> layers "
      "of one kind together</label>All turns of loops; communication where it "
      "is exposed. A click zooms in, one on the first row out.</p>"
      "<figure><canvas class=scopes></canvas></figure><figure><table "
      "class=\"filled by-scope\"><thead><tr><th>scope<th class=n>&micro;s<th "
      "class=n>% of step<th class=n>recomputed, &micro;s<th "
      "class=n>GFLOP</tr></thead><tbody></tbody></table></figure>");
  if (e->peak_flops > 0 && e->hbm_rate > 0)
    at_strbuf_addz(
        out,
        "<h2>Roofline</h2><p>Each kernel by the work it does per byte of HBM "
        "traffic and the rate it reaches; its area is its share of the "
        "step.</p><figure><canvas class=roofline></canvas></figure>");
  at_strbuf_addz(
      out,
      "<h2>Kernels</h2><p class=shown></p><figure><table class=\"filled "
      "kernels\"><thead><tr><th class=n>&micro;s<th class=n>% of step<th "
      "class=n>runs<th>bound by<th>figure from<th>kernel<th>results &larr; "
      "operands<th class=n>TFLOP/s<th class=n>HBM GB/s<th>line</tr></thead>"
      "<tbody></tbody></table></figure>"
      "<h2>Memory over time, by value</h2><p>Of one device, kernel after "
      "kernel in the order of the schedule; the lowest band are arguments and "
      "results.</p><figure><canvas class=\"memory time\"></canvas></figure>");
}

// ---- Tables

// A cell that sorts by its value.
static void number(at_strbuf *out, double value, const char *format) {
  at_strbuf_addf(out, "<td class=n data-v=\"%g\">", value);
  if (value != 0)
    at_strbuf_addf(out, format, value);
  else
    at_strbuf_addz(out, "&ndash;");
  at_strbuf_addz(out, "</td>");
}

// The largest buffers at the peak.
static void memory(const at_estimate *e, at_strbuf *out) {
  at_strbuf_addz(out, "<h2>Memory at the peak</h2><p>Arguments ");
  at_est_bytes(out, (double)e->argument_bytes);
  at_strbuf_addz(out, ", results ");
  at_est_bytes(out, (double)e->output_bytes);
  at_strbuf_addz(out, ", temporaries ");
  at_est_bytes(out, (double)e->temp_bytes);
  at_strbuf_addz(
      out,
      "; in the target's padded layout.</p><figure><table><thead><tr><th "
      "class=n>bytes"
      "</th><th>buffer</th><th>type</th><th>line</th></tr></thead><tbody>");
  for (uint32_t i = 0; i < e->num_buffers; i++) {
    const at_estimate_buffer *b = &e->buffers[i];
    at_strbuf_addf(out, "<tr><td class=n data-v=\"%llu\">",
                   (unsigned long long)b->bytes);
    at_est_bytes(out, (double)b->bytes);
    at_strbuf_addz(out, "</td><td><code>");
    at_page_text(out, b->name);
    at_strbuf_addz(out, "</code></td><td><code>");
    at_page_text(out, b->type);
    at_strbuf_addz(out, "</code></td><td>");
    at_page_text(out, file_of(b->source));
    at_strbuf_addz(out, "</td></tr>");
  }
  at_strbuf_addz(out, "</tbody></table></figure>");
}

// Both estimates side by side; times by line are filled in by page.js.
static void comparison(const at_estimate *a, const at_estimate *b,
                       at_strbuf *out) {
  const struct {
    const char *name;
    double a, b, scale;
  } rows[] = {{"step, &micro;s", a->seconds, b->seconds, 1e6},
              {"kernels, &micro;s", a->kernels, b->kernels, 1e6},
              {"collectives, &micro;s", a->network, b->network, 1e6},
              {"exposed, &micro;s", a->exposed, b->exposed, 1e6},
              {"MFU, %", a->mfu, b->mfu, 100},
              {"HFU, %", a->hfu, b->hfu, 100},
              {"model TFLOP", a->model_flops, b->model_flops, 1e-12},
              {"hardware TFLOP", a->flops, b->flops, 1e-12},
              {"HBM traffic, MiB", a->hbm_bytes, b->hbm_bytes, 1. / (1 << 20)},
              {"peak memory, MiB", (double)a->peak_bytes, (double)b->peak_bytes,
               1. / (1 << 20)}};
  at_strbuf_addz(
      out, "<h2>Compared</h2><figure><table><thead><tr><th></th><th class=n>");
  at_page_text(out, a->target);
  at_strbuf_addz(out, "</th><th class=n>");
  at_page_text(out, b->target);
  at_strbuf_addz(out,
                 "</th><th class=n>second / first</th></tr></thead><tbody>");
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    at_strbuf_addf(out, "<tr><td>%s</td>", rows[i].name);
    number(out, rows[i].a * rows[i].scale, "%.2f");
    number(out, rows[i].b * rows[i].scale, "%.2f");
    number(out, rows[i].a > 0 ? rows[i].b / rows[i].a : 0, "%.3f");
    at_strbuf_addz(out, "</tr>");
  }
  at_strbuf_addz(
      out,
      "</tbody></table></figure><h2>Compared line by line</h2><p>Time of the "
      "kernels of each line of the program, with all turns.</p><figure><table "
      "class=\"filled lines\"><thead><tr><th>line<th class=n>first, "
      "&micro;s<th class=n>second, &micro;s<th class=n>second - first, "
      "&micro;s<th class=n>second / first</tr></thead><tbody></tbody></table>"
      "</figure>");
}

// The text report of the SparseCores.
static void embeddings(const at_estimate *e, at_strbuf *out) {
  at_strbuf text = {0};
  if (!e->num_embeddings) return;
  at_est_embeddings_text(e, &text);
  at_strbuf_addz(out, "<h2>Embedding lookups and updates</h2><pre>");
  at_page_text(out, at_strbuf_str(&text).ptr);
  at_strbuf_addz(out, "</pre>");
  out->failed |= text.failed;
  at_strbuf_free(&text);
}

// The report of one estimate; a page has one or two.
static void body(const at_estimate *e, at_strbuf *out) {
  at_strbuf_addz(out, "<section class=report><h1>");
  at_page_text(out, e->program);
  at_strbuf_addz(out, " on ");
  at_page_text(out, e->target);
  at_strbuf_addf(out,
                 "</h1><p>%u device%s of the target, program for %u; estimated "
                 "by Atoll " AT_VERSION ", not measured</p>",
                 e->num_devices, e->num_devices == 1 ? "" : "s",
                 e->program_devices);
  for (uint32_t i = 0; i < e->num_notes; i++) {
    at_strbuf_addz(out, "<p class=bad>");
    at_page_text(out, e->notes[i]);
    at_strbuf_addz(out, "</p>");
  }
  cards(e, out);
  shares(e, out);
  overlap(e, out);
  pictures(e, out);
  embeddings(e, out);
  memory(e, out);
  put_data(e, out);
  at_strbuf_addz(out, "</section>");
}

// Style and scripts are in the page: it needs no network.
void at_estimate_html(const at_estimate *e, const at_estimate *other,
                      at_strbuf *out) {
  at_strbuf title = {0};
  at_strbuf_addf(&title, "%s on %s", e->program, e->target);
  at_page_begin(out, title.ptr ? title.ptr : "");
  out->failed |= title.failed;
  at_strbuf_free(&title);
  if (other) comparison(e, other, out);
  body(e, out);
  if (other) body(other, out);
  at_bytes script = at_estimate_page_files[0];
  at_strbuf_addz(out, "<script>");
  at_strbuf_add(out, (at_str){(const char *)script.ptr, script.len});
  at_strbuf_addz(out, "</script>");
  at_page_end(out);
}

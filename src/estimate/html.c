// The report as one page: no scripts from elsewhere, no fonts, no network.
#include <math.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/page.h"
#include "estimate/report_internal.h"

enum { kRows = 200, kWidth = 1040 };

static const char *const kColors[AT_BOUND_COUNT] = {
    [AT_BOUND_MATRIX] = "#2f6fdb",
    [AT_BOUND_VECTOR] = "#8a4fd0",
    [AT_BOUND_MEMORY] = "#e08a1e",
    [AT_BOUND_LATENCY] = "#9aa3ad",
    [AT_BOUND_NETWORK] = "#d0433b"};

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
  open_card(out);
  if (e->mfu > 0)
    at_strbuf_addf(out, "%.1f%%", 100 * e->mfu);
  else
    at_strbuf_addz(out, "&ndash;");
  middle(out);
  at_strbuf_addz(out, "MFU: ");
  at_est_flops_text(out, e->flops);
  at_strbuf_addz(out, " per device");
  close_card(out);
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

static void shares(const at_estimate *e, at_strbuf *out) {
  double by[AT_BOUND_COUNT] = {0}, all = 0;
  for (uint32_t i = 0; i < e->num_ops; i++) {
    const at_estimate_op *o = &e->ops[i];
    double s = o->network ? o->exposed : o->seconds * o->count;
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

// ---- Timeline and scopes

extern const at_bytes at_estimate_page_files[];  // page.js

enum { kNetworkLane = -1, kHostLane = -2 };

static void op_data(at_json_writer *w, const at_estimate_op *o) {
  const char *const texts[] = {o->name, o->detail, o->source, o->scope};
  int lane = o->host_link ? kHostLane
             : o->network ? kNetworkLane
                          : (int)o->level;
  const double numbers[] = {o->start,   o->seconds,   o->count,
                            o->exposed, (double)lane, (double)o->bound,
                            o->flops};
  at_json_begin_array(w);
  for (size_t i = 0; i < AT_LEN(texts); i++)
    at_json_str(w, at_str_of(texts[i]));
  for (size_t i = 0; i < AT_LEN(numbers); i++) at_json_num(w, numbers[i]);
  at_json_end_array(w);
}

static void page_data(const at_estimate *e, at_strbuf *out) {
  at_json_writer w = {.out = out};
  at_json_begin_object(&w);
  at_json_key(&w, AT_STR("seconds"));
  at_json_num(&w, e->seconds);
  at_json_key(&w, AT_STR("bounds"));
  at_json_begin_array(&w);
  for (int b = 0; b < AT_BOUND_COUNT; b++)
    at_json_str(&w, at_str_of(at_bound_text((at_bound)b)));
  at_json_end_array(&w);
  at_json_key(&w, AT_STR("colors"));
  at_json_begin_array(&w);
  for (int b = 0; b < AT_BOUND_COUNT; b++)
    at_json_str(&w, at_str_of(kColors[b]));
  at_json_end_array(&w);
  at_json_key(&w, AT_STR("ops"));
  at_json_begin_array(&w);
  for (uint32_t i = 0; i < e->num_ops; i++) op_data(&w, &e->ops[i]);
  at_json_end_array(&w);
  at_json_end_object(&w);
}

static void pictures(const at_estimate *e, at_strbuf *out) {
  at_strbuf data = {0};
  page_data(e, &data);
  at_strbuf_addz(
      out,
      "<section><style>.tip{position:absolute;display:none;max-width:360px;"
      "padding:8px;white-space:pre-wrap;overflow-wrap:anywhere;font-size:12px;"
      "background:var(--paper);border:1px solid var(--line);border-radius:6px;"
      "pointer-events:none}canvas{display:block;width:100%}input{font:inherit;"
      "color:var(--ink);background:var(--paper);border:1px solid var(--line);"
      "border-radius:6px;padding:4px 8px}</style>"
      "<h2>Timeline of one device</h2>");
  legend(out);
  at_strbuf_addz(
      out,
      "<p><input type=search placeholder=\"kernel, line or scope\"> The wheel "
      "zooms, dragging moves, a double click shows all. A loop is drawn with "
      "its first turn below it.</p><figure><canvas class=flow></canvas>"
      "</figure><h2>Time by scope</h2><p>Of the model, with all turns of "
      "loops; "
      "communication counts where it is exposed. A click zooms in, one on the "
      "first row out.</p><figure><canvas class=scopes></canvas></figure>"
      "<div class=tip></div><script type=\"application/json\">");
  // No text of a program can end the script.
  for (size_t i = 0; i < data.len; i++) {
    if (data.ptr[i] == '<')
      at_strbuf_addz(out, "\\u003c");
    else
      at_strbuf_addc(out, data.ptr[i]);
  }
  out->failed |= data.failed;
  at_strbuf_free(&data);
  at_bytes script = at_estimate_page_files[0];
  at_strbuf_addz(out, "</script><script>");
  at_strbuf_add(out, (at_str){(const char *)script.ptr, script.len});
  at_strbuf_addz(out, "</script></section>");
}

// ---- Roofline

typedef struct axes {
  double x0, x1, y0, y1;  // powers of ten
} axes;
static double px(const axes *a, double v) {
  return 60 + (log10(fmax(v, 1e-30)) - a->x0) / (a->x1 - a->x0) * (kWidth - 90);
}
static double py(const axes *a, double v) {
  return 290 - (log10(fmax(v, 1e-30)) - a->y0) / (a->y1 - a->y0) * 270;
}

static void roofline(const at_estimate *e, at_strbuf *out) {
  if (e->peak_flops <= 0 || e->hbm_rate <= 0) return;
  axes a = {-2, 4, floor(log10(e->peak_flops)) - 5, ceil(log10(e->peak_flops))};
  double knee = e->peak_flops / e->hbm_rate;
  at_strbuf_addf(
      out,
      "<h2>Roofline</h2><p>Each kernel by the work it does per byte of HBM "
      "traffic"
      " and the rate it reaches; its area is its share of the step.</p>"
      "<figure><svg viewBox=\"0 0 %d 320\" width=\"%d\">",
      kWidth, kWidth);
  for (int x = (int)a.x0; x <= (int)a.x1; x++)
    at_strbuf_addf(out,
                   "<text x=\"%.0f\" y=308>%g</text><path d=\"M%.0f 20V290\" "
                   "stroke=\"#8884\"/>",
                   px(&a, pow(10, x)) - 8, pow(10, x), px(&a, pow(10, x)));
  for (int y = (int)a.y0; y <= (int)a.y1; y++)
    at_strbuf_addf(out,
                   "<text x=0 y=\"%.0f\">%g TF/s</text><path d=\"M60 %.0fH%d\" "
                   "stroke=\"#8884\"/>",
                   py(&a, pow(10, y)) + 4, pow(10, y - 12), py(&a, pow(10, y)),
                   kWidth - 30);
  at_strbuf_addf(out,
                 "<path d=\"M%.1f %.1fL%.1f %.1fH%d\" fill=none "
                 "stroke=\"#5d6b7a\" stroke-width=2 />",
                 px(&a, 1e-2), py(&a, 1e-2 * e->hbm_rate), px(&a, knee),
                 py(&a, e->peak_flops), kWidth - 30);
  for (uint32_t i = 0; i < e->num_ops; i++) {
    const at_estimate_op *o = &e->ops[i];
    if (o->network || o->flops <= 0 || o->seconds <= 0) continue;
    double x = fmin(9e3, o->hbm_bytes > 0 ? o->flops / o->hbm_bytes : 9e3);
    double y = o->flops / o->seconds;
    if (x < 1e-2 || log10(y) < a.y0) continue;
    double r = 3 + 26 * sqrt(o->seconds * o->count / e->seconds);
    at_strbuf_addf(out,
                   "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"%s\" "
                   "fill-opacity=.55><title>",
                   px(&a, x), py(&a, y), r, kColors[o->bound]);
    at_page_text(out, o->name);
    at_strbuf_addz(out, "\n");
    at_page_text(out, o->detail);
    at_strbuf_addz(out, "</title></circle>");
  }
  at_strbuf_addz(
      out, "<text x=460 y=319>FLOP per byte of HBM</text></svg></figure>");
}

// ---- Tables

static void number(at_strbuf *out, double value, const char *format) {
  at_strbuf_addf(out, "<td class=n data-v=\"%g\">", value);
  if (value != 0)
    at_strbuf_addf(out, format, value);
  else
    at_strbuf_addz(out, "&ndash;");
  at_strbuf_addz(out, "</td>");
}

static void op_row(const at_estimate *e, const at_estimate_op *o,
                   at_strbuf *out) {
  double all = o->seconds * o->count, seen = o->network ? o->exposed : all;
  at_strbuf_addz(out, "<tr>");
  number(out, all * 1e6, "%.2f");
  number(out, e->seconds > 0 ? 100 * seen / e->seconds : 0, "%.1f");
  number(out, o->count, "%.0f");
  at_strbuf_addf(out,
                 "<td class=w><i class=dot "
                 "style=\"background:%s\"></i>%s</td><td>%s</td><td><code>",
                 kColors[o->bound], at_bound_text(o->bound),
                 at_cost_source_text(o->from));
  at_page_text(out, o->name);
  at_strbuf_addz(out, "</code></td><td><code>");
  at_page_text(out, o->detail);
  at_strbuf_addz(out, "</code></td>");
  number(out, o->seconds > 0 ? o->flops / o->seconds / 1e12 : 0, "%.3g");
  number(out, o->seconds > 0 ? o->hbm_bytes / o->seconds / 1e9 : 0, "%.4g");
  at_strbuf_addz(out, "<td title=\"");
  at_page_text(out, o->source);
  at_strbuf_addz(out, " ");
  at_page_text(out, o->scope);
  at_strbuf_addz(out, "\">");
  at_page_text(out, file_of(o->source));
  at_strbuf_addz(out, "</td></tr>");
}

static void op_table(const at_estimate *e, at_strbuf *out) {
  const at_estimate_op **order = at_est_sorted(e, out);
  if (!order) return;
  at_strbuf_addz(
      out,
      "<h2>Kernels</h2><p>Click a heading to "
      "sort.</p><figure><table><thead><tr>"
      "<th class=n>&micro;s</th><th class=n>% of step</th><th class=n>runs</th>"
      "<th>bound by</th><th>figure from</th><th>kernel</th>"
      "<th>results &larr; operands</th><th class=n>TFLOP/s</th>"
      "<th class=n>HBM GB/s</th><th>line</th></tr></thead><tbody>");
  for (uint32_t i = 0; i < e->num_ops && i < kRows; i++)
    op_row(e, order[i], out);
  at_strbuf_addz(out, "</tbody></table>");
  if (e->num_ops > kRows)
    at_strbuf_addf(out, "<p>%u smaller kernels are not listed.</p>",
                   e->num_ops - kRows);
  at_strbuf_addz(out, "</figure>");
  free(order);
}

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
  at_strbuf_addz(out, "</tbody></table></figure>");
}

static void body(const at_estimate *e, at_strbuf *out) {
  at_strbuf_addz(out, "<h1>");
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
  pictures(e, out);
  roofline(e, out);
  op_table(e, out);
  memory(e, out);
}

void at_estimate_html(const at_estimate *e, const at_estimate *other,
                      at_strbuf *out) {
  at_strbuf title = {0};
  at_strbuf_addf(&title, "%s on %s", e->program, e->target);
  at_page_begin(out, title.ptr ? title.ptr : "");
  at_strbuf_free(&title);
  if (other) comparison(e, other, out);
  body(e, out);
  if (other) body(other, out);
  at_page_end(out);
}

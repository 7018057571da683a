// The report as one page with pictures (inline SVG): nothing to install,
// nothing to fetch.
#include <stdio.h>

#include "tiles/tiles_internal.h"

enum { kBars = 60, kLives = 80, kColumns = 46 };

static void text(at_strbuf *b, const char *z) {
  for (; *z; z++) {
    if (*z == '&')
      at_strbuf_addz(b, "&amp;");
    else if (*z == '<')
      at_strbuf_addz(b, "&lt;");
    else if (*z == '>')
      at_strbuf_addz(b, "&gt;");
    else if (*z == '"')
      at_strbuf_addz(b, "&quot;");
    else
      at_strbuf_addc(b, *z);
  }
}

static const struct {
  const char *name, *colour;
} phases[] = {{"sync", "#9aa0a6"},
              {"exchange", "#e8710a"},
              {"pre-arrange", "#f9ab00"},
              {"execute", "#1a73e8"},
              {"post-arrange", "#a142f4"}};

static void legend(at_strbuf *b) {
  at_strbuf_addz(b, "<p class=k>");
  for (size_t i = 0; i < AT_LEN(phases); i++)
    at_strbuf_addf(b, "<i style='background:%s'></i>%s ", phases[i].colour,
                   phases[i].name);
  at_strbuf_addz(b, "</p>");
}

static void rect(at_strbuf *b, double x, double y, double w, double h,
                 const char *colour) {
  if (w > 0)
    at_strbuf_addf(
        b, "<rect x='%.2f' y='%.2f' width='%.2f' height='%.2f' fill='%s'/>", x,
        y, w, h, colour);
}

// ---- Where the cycles go
// ------------------------------------------------------------------
static int64_t step_cycles(const at_tiles_step *s) {
  return s->cycles * AT_MAX(s->times, 1);
}

// The dearest steps, in program order: a step is in when fewer than `n` are
// dearer.
static bool is_dear(const at_tiles_plan *p, uint32_t i, uint32_t n) {
  if (p->num_steps <= n) return true;
  uint32_t dearer = 0;
  for (uint32_t k = 0; k < p->num_steps && dearer < n; k++) {
    int64_t a = step_cycles(&p->steps[k]), c = step_cycles(&p->steps[i]);
    dearer += a > c || (a == c && k < i);
  }
  return dearer < n;
}

static void cycle_bars(const at_tiles_plan *p, at_strbuf *b) {
  int64_t most = 1;
  uint32_t rows = 0;
  for (uint32_t i = 0; i < p->num_steps; i++)
    most = AT_MAX(most, step_cycles(&p->steps[i]));
  at_strbuf_addz(b, "<h2>Where the cycles go</h2>");
  if (p->num_steps > kBars)
    at_strbuf_addf(b, "<p>The %d dearest of %u steps, in order.</p>", kBars,
                   p->num_steps);
  legend(b);
  at_strbuf_addf(b, "<svg viewBox='0 0 1000 %u'>",
                 18 * AT_MIN(p->num_steps, (uint32_t)kBars) + 4);
  for (uint32_t i = 0; i < p->num_steps; i++) {
    const at_tiles_step *s = &p->steps[i];
    if (!is_dear(p, i, kBars)) continue;
    int64_t part[] = {s->sync, s->exchange, s->pre, s->execute, s->post};
    double x = 270, y = 18 * rows++ + 2;
    at_strbuf_addz(b, "<g><title>");
    text(b, s->name);
    at_strbuf_addf(
        b,
        "\n%lld cycles x %lld; %lld bytes exchanged; %u tiles idle; %.0f%% "
        "even</title><text x='262' y='%.0f' text-anchor='end'>",
        (long long)s->cycles, (long long)s->times, (long long)s->exchange_bytes,
        s->idle_tiles, 100 * s->balance, y + 12);
    char name[40];
    snprintf(name, sizeof name, "%.38s", s->name);
    text(b, name);
    at_strbuf_addz(b, "</text>");
    for (size_t k = 0; k < AT_LEN(part); k++) {
      double w = 620.0 * (double)(part[k] * AT_MAX(s->times, 1)) / (double)most;
      rect(b, x, y, w, 14, phases[k].colour);
      x += w;
    }
    at_strbuf_addf(b, "<text x='%.0f' y='%.0f'>%lld</text></g>", x + 4, y + 12,
                   (long long)step_cycles(s));
  }
  at_strbuf_addz(b, "</svg>");
}

// ---- Tiles
// ---------------------------------------------------------------------------------
// 0: white, 1: blue, over 1: red.
static void shade(double f, char *out, size_t size) {
  if (f > 1) {
    snprintf(out, size, "#d93025");
    return;
  }
  int r = (int)(240 - 214 * f), g = (int)(244 - 129 * f),
      u = (int)(248 - 16 * f);
  snprintf(out, size, "#%02x%02x%02x", (unsigned)r & 255, (unsigned)g & 255,
           (unsigned)u & 255);
}

static void tile_map(const at_tiles_plan *p, const char *title,
                     const double *value, const char *unit, double full,
                     at_strbuf *b) {
  int64_t rows = at_ceil_div(p->machine->tiles, kColumns);
  at_strbuf_addf(b, "<div class=half><h3>%s</h3><svg viewBox='0 0 %d %lld'>",
                 title, kColumns * 10, (long long)rows * 10);
  for (int64_t t = 0; t < p->machine->tiles; t++) {
    char colour[16];
    shade(full > 0 ? value[t] / full : 0, colour, sizeof colour);
    at_strbuf_addf(b,
                   "<rect x='%d' y='%d' width='9' height='9' "
                   "fill='%s'><title>tile %lld: %.0f %s</title></rect>",
                   (int)(t % kColumns) * 10, (int)(t / kColumns) * 10, colour,
                   (long long)t, value[t], unit);
  }
  at_strbuf_addz(b, "</svg></div>");
}

static void tiles(const at_tiles_plan *p, at_strbuf *b) {
  double *v = malloc((size_t)p->machine->tiles * sizeof *v), most = 0;
  if (!v) {
    b->failed = true;
    return;
  }
  at_strbuf_addf(b, "<h2>The %lld tiles</h2>", (long long)p->machine->tiles);
  for (int64_t t = 0; t < p->machine->tiles; t++)
    v[t] = (double)p->tile_bytes[t];
  tile_map(p, "memory (red: does not fit)", v, "bytes",
           (double)p->machine->bytes_per_tile, b);
  memset(v, 0, (size_t)p->machine->tiles * sizeof *v);
  for (int64_t t = 0; t < p->machine->tiles; t++) {
    v[t] = p->tile_cycles ? (double)p->tile_cycles[t] : 0;
    for (uint32_t i = 0; !p->tile_cycles && i < p->num_steps; i++)
      if (p->steps[i].work)
        v[t] += (double)p->steps[i].work[t] * (double)p->steps[i].times;
    most = AT_MAX(most, v[t]);
  }
  tile_map(p, "work over the program", v, "cycles", most, b);
  free(v);
}

// ---- Memory
// --------------------------------------------------------------------------------
static const char *const category_colours[AT_TILES_MEM_COUNT] = {
    "#1a73e8", "#d93025", "#e8710a", "#f9ab00", "#188038",
    "#137333", "#a142f4", "#9334e6", "#5f6368", "#dadce0"};

static void memory_bar(const at_tiles_plan *p, at_strbuf *b) {
  const int64_t *k = p->categories[p->fullest];
  double all = 1, x = 0;
  for (int c = 0; c < AT_TILES_MEM_COUNT; c++) all += (double)k[c];
  double scale = 1000 / AT_MAX(all, (double)p->machine->bytes_per_tile);
  at_strbuf_addf(b,
                 "<h2>Memory of tile %u, the fullest</h2><p>%lld of %lld bytes "
                 "at the peak; %lld bytes of data, %lld if "
                 "nothing shared space.</p><svg viewBox='0 0 1000 34'>",
                 p->fullest, (long long)p->peak_bytes,
                 (long long)p->machine->bytes_per_tile,
                 (long long)p->data_bytes, (long long)p->unshared_bytes);
  for (int c = 0; c < AT_TILES_MEM_COUNT; c++) {
    rect(b, x, 2, (double)k[c] * scale, 22, category_colours[c]);
    x += (double)k[c] * scale;
  }
  at_strbuf_addf(b, "<path d='M%.1f 0V28' stroke='#000'/></svg><p class=k>",
                 (double)p->machine->bytes_per_tile * scale);
  for (int c = 0; c < AT_TILES_MEM_COUNT; c++)
    if (k[c])
      at_strbuf_addf(
          b, "<i style='background:%s'></i>%s %lld ", category_colours[c],
          at_tiles_category_text((at_tiles_category)c), (long long)k[c]);
  at_strbuf_addz(b, "</p>");
}

// Every block of the fullest tile over time; its height is its size.
static void lives(const at_tiles_plan *p, at_strbuf *b) {
  uint32_t n = AT_MIN(p->num_blocks, (uint32_t)kLives);
  int64_t most = 1;
  int32_t end = 1;
  for (uint32_t i = 0; i < p->num_blocks; i++) {
    most = AT_MAX(most, p->blocks[i].bytes);
    if (p->blocks[i].last != INT32_MAX)
      end = AT_MAX(end, p->blocks[i].last + 1);
    end = AT_MAX(end, p->blocks[i].first + 1);
  }
  double height = 0;
  for (uint32_t i = 0; i < n; i++)
    height += 5 + 15.0 * (double)p->blocks[i].bytes / (double)most;
  at_strbuf_addf(b,
                 "<h3>What lives there, from the first step to the "
                 "last</h3><svg viewBox='0 0 1000 %.0f'>",
                 height + 4);
  double y = 2;
  for (uint32_t i = 0; i < n; i++) {
    const at_tiles_block *x = &p->blocks[i];
    double h = 4 + 15.0 * (double)x->bytes / (double)most;
    double from = x->first < 0 ? 0 : x->first,
           to = x->last == INT32_MAX ? end : x->last + 1;
    at_strbuf_addz(b, "<g><title>");
    text(b, x->name);
    at_strbuf_addf(b, ": %lld bytes</title>", (long long)x->bytes);
    rect(b, 1000 * from / end, y, AT_MAX(1000 * (to - from) / end, 1), h,
         category_colours[x->category % AT_TILES_MEM_COUNT]);
    at_strbuf_addz(b, "</g>");
    y += h + 1;
  }
  at_strbuf_addz(b, "</svg>");
}

static void worst(const at_tiles_plan *p, at_strbuf *b) {
  at_strbuf_addz(
      b,
      "<h2>Steps that move the "
      "most</h2><table><tr><th>step<th>bytes<th>cycles<th>at best</tr>");
  uint64_t shown = 0;
  for (int k = 0; k < 12; k++) {
    const at_tiles_step *best = NULL;
    uint32_t which = 0;
    for (uint32_t i = 0; i < p->num_steps; i++) {
      const at_tiles_step *s = &p->steps[i];
      bool next = !k || s->exchange_bytes < (int64_t)(shown >> 20);
      if (s->exchange_bytes && next &&
          (!best || s->exchange_bytes > best->exchange_bytes))
        best = s, which = i;
    }
    if (!best) break;
    shown = (uint64_t)best->exchange_bytes << 20 | (which & 0xfffff);
    at_strbuf_addz(b, "<tr><td>");
    text(b, best->name);
    at_strbuf_addf(b, "<td>%lld<td>%lld<td>%lld</tr>",
                   (long long)best->exchange_bytes, (long long)best->exchange,
                   (long long)best->exchange_bound);
  }
  at_strbuf_addz(b, "</table>");
}

void at_tiles_report_html(const at_tiles_plan *p, const char *title,
                          at_strbuf *b) {
  at_strbuf_addz(b, "<!doctype html><meta charset=utf-8><title>");
  text(b, title);
  at_strbuf_addz(
      b,
      "</title><style>body{font:14px "
      "system-ui,sans-serif;max-width:1040px;margin:24px auto;padding:0 "
      "16px;color:#202124}"
      "svg{width:100%;height:auto;display:block}svg "
      "text{font-size:11px;fill:#3c4043}.half{display:inline-block;width:49%}"
      ".k i{display:inline-block;width:11px;height:11px;margin:0 4px 0 "
      "12px;border-radius:2px}"
      "table{border-collapse:collapse}td,th{text-align:right;padding:2px "
      "12px;border-bottom:1px solid #e8eaed}"
      "td:first-child,th:first-child{text-align:left}.n{font-size:28px;margin-"
      "right:6px}.c{display:inline-block;margin-right:36px}"
      "li{margin:6px 0}</style><h1>");
  text(b, title);
  at_strbuf_addf(
      b,
      "</h1><p><span class=c><span class=n>%lld</span>cycles</span><span "
      "class=c><span class=n>%.1f</span>us on %s</span>"
      "<span class=c><span class=n>%u</span>steps</span><span class=c><span "
      "class=n>%.0f%%</span>of the fullest tile</span></p>",
      (long long)p->cycles, (double)p->cycles / p->machine->clock_hz * 1e6,
      p->machine->name, p->num_steps,
      100 * (double)p->peak_bytes / (double)p->machine->bytes_per_tile);
  if (*p->advice) {
    at_strbuf_addz(b, "<h2>Advice</h2><ul>");
    const char *line = p->advice;
    while (*line) {
      const char *end = strchr(line, '\n');
      size_t n = end ? (size_t)(end - line) : strlen(line);
      char piece[1024];
      snprintf(piece, sizeof piece, "%.*s", (int)AT_MIN(n, sizeof piece - 1),
               line);
      at_strbuf_addz(b, "<li>");
      text(b, piece);
      line += n + (end != NULL);
    }
    at_strbuf_addz(b, "</ul>");
  }
  cycle_bars(p, b);
  tiles(p, b);
  memory_bar(p, b);
  lives(p, b);
  worst(p, b);
}

// The report as one page with pictures (inline SVG): nothing to install,
// nothing to fetch.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/page.h"
#include "tiles/tiles_internal.h"

enum {
  kWidth = 1000,
  kBars = 40,     // steps drawn by name
  kMapped = 600,  // blocks of the memory map
  kColumns = 64,  // of the maps of tiles
  kSlices = 500,  // of pictures over time
};

// At most `most` bytes of z, escaped, with an ellipsis where it is cut.
static void short_text(at_strbuf *b, const char *z, size_t most) {
  char piece[128];
  size_t n = strlen(z);
  snprintf(piece, sizeof piece, "%.*s%s",
           (int)AT_MIN(n, AT_MIN(most, sizeof piece - 8)), z,
           n > most ? "\xe2\x80\xa6" : "");
  at_page_text(b, piece);
}

static const struct {
  const char *name, *colour;
} phases[] = {{"sync", "#9aa5b1"},
              {"exchange", "#f0803c"},
              {"pre-arrange", "#f5c542"},
              {"execute", "#3b82c4"},
              {"post-arrange", "#a66bd3"}};
enum { kPhases = 5, kExecute = 3 };

static const char *const category_colours[AT_TILES_MEM_COUNT] = {
    "#3b82c4", "#d9534f", "#f0803c", "#f5c542", "#3aa675",
    "#1f7a5a", "#a66bd3", "#7e57c2", "#6b7785", "#d5dbe1"};

// Opens an entry of a legend; the caller closes its span.
static void key_item(at_strbuf *b, const char *colour, const char *name) {
  at_strbuf_addf(b, "<span class=key><i class=dot style='background:%s'></i>%s",
                 colour, name);
}

// The colours of the phases.
static void legend(at_strbuf *b) {
  at_strbuf_addz(b, "<p>");
  for (size_t i = 0; i < kPhases; i++) {
    key_item(b, phases[i].colour, phases[i].name);
    at_strbuf_addz(b, "</span>");
  }
  at_strbuf_addz(b, "</p>");
}

// A rectangle, unless it has no area.
static void rect(at_strbuf *b, double x, double y, double w, double h,
                 const char *colour) {
  if (w > 0 && h > 0)
    at_strbuf_addf(
        b, "<rect x='%.2f' y='%.2f' width='%.2f' height='%.2f' fill='%s'/>", x,
        y, w, h, colour);
}

// What is behind the marks, in the page's own colour.
static void back(at_strbuf *b, double x, double y, double w, double h) {
  at_strbuf_addf(b,
                 "<rect class=back x='%.2f' y='%.2f' width='%.2f' "
                 "height='%.2f'/>",
                 x, y, w, h);
}

// A number with three digits or so and k, M or G.
static void amount(int64_t v, char *out, size_t size) {
  double x = (double)v;
  if (x < 1e4)
    snprintf(out, size, "%lld", (long long)v);
  else if (x < 1e6)
    snprintf(out, size, "%.1f k", x / 1e3);
  else if (x < 1e9)
    snprintf(out, size, "%.2f M", x / 1e6);
  else
    snprintf(out, size, "%.2f G", x / 1e9);
}

// The same, appended.
static void add_amount(at_strbuf *b, int64_t v) {
  char z[32];
  amount(v, z, sizeof z);
  at_strbuf_addz(b, z);
}

// Cycles of a step over all its turns.
static int64_t step_cycles(const at_tiles_step *s) {
  return s->cycles * AT_MAX(s->times, 1);
}

// Cycles of the five phases of a step over all its turns.
static void phases_of(const at_tiles_step *s, int64_t *out) {
  int64_t part[] = {s->sync, s->exchange, s->pre, s->execute, s->post};
  for (int k = 0; k < kPhases; k++) out[k] = part[k] * AT_MAX(s->times, 1);
}

// When each phase of each step begins, in parts of the page's width:
// 4 num_steps + 1 numbers.
static double *times_of(const at_tiles_plan *p) {
  size_t n = 4 * (size_t)p->num_steps;
  double *at = malloc((n + 1) * sizeof *at), sum = 0;
  if (!at) return NULL;
  for (uint32_t i = 0; i < p->num_steps; i++) {
    int64_t part[kPhases];
    phases_of(&p->steps[i], part);
    double length[] = {(double)(part[0] + part[1]), (double)part[2],
                       (double)part[kExecute], (double)part[4]};
    for (int k = 0; k < 4; k++) at[4 * i + k] = sum, sum += length[k];
  }
  at[n] = sum;
  for (size_t i = 0; i <= n; i++) at[i] = sum > 0 ? kWidth * at[i] / sum : 0;
  return at;
}

// ---- The program from left to right
// All figures of a step, shown by the browser when it is pointed at.
static void tooltip(at_strbuf *b, const at_tiles_step *s) {
  at_strbuf_addz(b, "<title>");
  at_page_text(b, s->name);
  at_strbuf_addf(
      b,
      "\n%lld cycles x %lld\nsync %lld, exchange %lld (at best %lld), "
      "pre-arrange %lld, execute %lld, post-arrange %lld\n%lld bytes "
      "exchanged; %u tiles idle; %.0f%% even</title>",
      (long long)s->cycles, (long long)s->times, (long long)s->sync,
      (long long)s->exchange, (long long)s->exchange_bound, (long long)s->pre,
      (long long)s->execute, (long long)s->post, (long long)s->exchange_bytes,
      s->idle_tiles, 100 * s->balance);
}

// Steps too short to be seen are drawn as one.
static void timeline(const at_tiles_plan *p, const double *at, at_strbuf *b) {
  at_strbuf_addz(b,
                 "<h2>The program, from its first cycle to its last</h2>"
                 "<p>Every step waits for the slowest tile. Below: how much of "
                 "all tiles works meanwhile.</p>");
  legend(b);
  at_strbuf_addf(b, "<figure><svg class=time viewBox='0 0 %d 128'>", kWidth);
  back(b, 0, 70, kWidth, 40);
  for (uint32_t i = 0; i < p->num_steps;) {
    int64_t sum[kPhases] = {0}, part[kPhases], all = 0;
    uint32_t e = i;
    double busy = 0;
    while (e < p->num_steps && (e == i || at[4 * e + 4] - at[4 * i] < 0.7)) {
      phases_of(&p->steps[e], part);
      for (int k = 0; k < kPhases; k++) sum[k] += part[k], all += part[k];
      busy +=
          p->steps[e].balance * (double)(part[2] + part[kExecute] + part[4]);
      e++;
    }
    double x = at[4 * i],
           scale = all ? (at[4 * e] - at[4 * i]) / (double)all : 0;
    at_strbuf_addz(b, "<g>");
    if (e == i + 1)
      tooltip(b, &p->steps[i]);
    else
      at_strbuf_addf(b, "<title>%u short steps, %lld cycles</title>", e - i,
                     (long long)all);
    for (int k = 0; k < kPhases; k++) {
      double w = (double)sum[k] * scale;
      rect(b, x, 16, w, 46, phases[k].colour);
      x += w;
    }
    double height = all ? 40 * busy / (double)all : 0;
    rect(b, at[4 * i], 110 - height, at[4 * e] - at[4 * i], height, "#8ab6dd");
    at_strbuf_addz(b, "</g>");
    if (at[4 * e] - at[4 * i] > 70 && e == i + 1) {
      at_strbuf_addf(b, "<text x='%.1f' y='11'>", at[4 * i] + 2);
      short_text(b, p->steps[i].name, (size_t)((at[4 * e] - at[4 * i]) / 6));
      at_strbuf_addz(b, "</text>");
    }
    i = e;
  }
  at_strbuf_addz(b, "<text x='0' y='124'>cycle 0</text>");
  at_strbuf_addf(b, "<text x='%d' y='124' text-anchor='end'>", kWidth);
  add_amount(b, p->cycles);
  at_strbuf_addf(b, " cycles = %.1f us</text></svg></figure>",
                 (double)p->cycles / p->machine->clock_hz * 1e6);
}

// ---- Where the cycles go
// One bar: shares of the phases in all cycles.
static void phase_bar(const at_tiles_plan *p, at_strbuf *b) {
  int64_t sum[kPhases] = {0}, part[kPhases], all = 0;
  double x = 0;
  for (uint32_t i = 0; i < p->num_steps; i++) {
    phases_of(&p->steps[i], part);
    for (int k = 0; k < kPhases; k++) sum[k] += part[k], all += part[k];
  }
  at_strbuf_addf(b, "<figure><svg viewBox='0 0 %d 34'>", kWidth);
  for (int k = 0; k < kPhases; k++) {
    double share = all ? (double)sum[k] / (double)all : 0;
    at_strbuf_addf(b, "<g><title>%s: %lld cycles</title>", phases[k].name,
                   (long long)sum[k]);
    rect(b, x, 0, kWidth * share, 30, phases[k].colour);
    if (share > 0.09)
      at_strbuf_addf(b, "<text x='%.1f' y='20' class=on>%s %.0f%%</text>",
                     x + 8, phases[k].name, 100 * share);
    at_strbuf_addz(b, "</g>");
    x += kWidth * share;
  }
  at_strbuf_addz(b, "</svg></figure>");
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

// How many tiles have how much of the busiest tile's work: a full square is an
// even step.
static void spread_picture(const at_tiles_step *s, double x, double y, double w,
                           double h, at_strbuf *b) {
  back(b, x, y, w, h);
  at_strbuf_addf(b, "<path fill='#8ab6dd' d='M%.1f %.1f", x, y + h);
  for (int k = 0; k < kTilesSpread; k++) {
    double share = s->spread[k] / 255.0;
    at_strbuf_addf(b, "L%.1f %.1fL%.1f %.1f", x + w * share,
                   y + h - h * k / kTilesSpread, x + w * share,
                   y + h - h * (k + 1) / kTilesSpread);
  }
  at_strbuf_addf(b, "L%.1f %.1fZ'/>", x, y);
}

// Bars for the dearest steps, and beside each how even it is.
static void cycle_bars(const at_tiles_plan *p, at_strbuf *b) {
  int64_t most = 1;
  uint32_t rows = 0, n = AT_MIN(p->num_steps, (uint32_t)kBars);
  for (uint32_t i = 0; i < p->num_steps; i++)
    most = AT_MAX(most, step_cycles(&p->steps[i]));
  at_strbuf_addz(b, "<h2>Where the cycles go</h2>");
  phase_bar(p, b);
  at_strbuf_addf(b,
                 "<p>The %u dearest of %u steps, in program order. At the "
                 "right, all tiles by their work: a full box is an even "
                 "step.</p>",
                 n, p->num_steps);
  at_strbuf_addf(b, "<figure><svg viewBox='0 0 %d %u'>", kWidth, 22 * n + 4);
  for (uint32_t i = 0; i < p->num_steps; i++) {
    const at_tiles_step *s = &p->steps[i];
    int64_t part[kPhases];
    if (!is_dear(p, i, kBars)) continue;
    phases_of(s, part);
    double x = 270, y = 22 * rows++ + 2;
    at_strbuf_addz(b, "<g>");
    tooltip(b, s);
    at_strbuf_addf(b, "<text x='262' y='%.0f' text-anchor='end'>", y + 13);
    short_text(b, s->name, 40);
    at_strbuf_addz(b, "</text>");
    for (int k = 0; k < kPhases; k++) {
      double w = 560.0 * (double)part[k] / (double)most;
      rect(b, x, y, w, 17, phases[k].colour);
      x += w;
    }
    at_strbuf_addf(b, "<text x='%.0f' y='%.0f'>", x + 4, y + 13);
    add_amount(b, step_cycles(s));
    at_strbuf_addz(b, "</text>");
    spread_picture(s, 930, y, 70, 17, b);
    at_strbuf_addz(b, "</g>");
  }
  at_strbuf_addz(b, "</svg></figure>");
}

// ---- Tiles
// 0: pale, 1: dark blue, over 1: red.
static void shade(double f, char *out, size_t size) {
  if (f > 1) {
    snprintf(out, size, "#d9534f");
    return;
  }
  f = AT_MAX(f, 0);
  int r = (int)(238 - 215 * f), g = (int)(241 - 160 * f),
      u = (int)(244 - 100 * f);
  snprintf(out, size, "#%02x%02x%02x", (unsigned)r & 255, (unsigned)g & 255,
           (unsigned)u & 255);
}

// A square for each tile, its shade value[t] / full, and the least, most and
// mean below.
static void tile_map(const at_tiles_plan *p, const char *title,
                     const double *value, const char *unit, double full,
                     at_strbuf *b) {
  int64_t rows = at_ceil_div(p->machine->tiles, kColumns);
  double least = 1e300, most = 0, sum = 0;
  for (int64_t t = 0; t < p->machine->tiles; t++) {
    least = AT_MIN(least, value[t]), most = AT_MAX(most, value[t]);
    sum += value[t];
  }
  at_strbuf_addf(b, "<div><h3>%s</h3><figure><svg viewBox='0 0 %d %lld'>",
                 title, kColumns * 10, (long long)rows * 10);
  for (int64_t t = 0; t < p->machine->tiles; t++) {
    char colour[16];
    shade(full > 0 ? value[t] / full : 0, colour, sizeof colour);
    at_strbuf_addf(b,
                   "<rect x='%d' y='%d' width='9.4' height='9.4' "
                   "fill='%s'><title>tile %lld: %.0f %s</title></rect>",
                   (int)(t % kColumns) * 10, (int)(t / kColumns) * 10, colour,
                   (long long)t, value[t], unit);
  }
  at_strbuf_addz(b, "</svg></figure><p>");
  add_amount(b, (int64_t)least);
  at_strbuf_addz(b, " to ");
  add_amount(b, (int64_t)most);
  at_strbuf_addz(b, ", mean ");
  add_amount(b, (int64_t)(sum / (double)AT_MAX(p->machine->tiles, 1)));
  at_strbuf_addf(b, " %s</p></div>", unit);
}

// Maps of memory, work and, where it is known, received bytes.
static void tiles(const at_tiles_plan *p, at_strbuf *b) {
  double *v = malloc((size_t)p->machine->tiles * sizeof *v), most = 0;
  if (!v) {
    b->failed = true;
    return;
  }
  at_strbuf_addf(b, "<h2>The %lld tiles</h2><div class=thirds>",
                 (long long)p->machine->tiles);
  for (int64_t t = 0; t < p->machine->tiles; t++)
    v[t] = (double)p->tile_bytes[t];
  tile_map(p, "Memory (red: does not fit)", v, "bytes",
           (double)p->machine->bytes_per_tile, b);
  memset(v, 0, (size_t)p->machine->tiles * sizeof *v);
  for (int64_t t = 0; t < p->machine->tiles; t++) {
    v[t] = p->tile_cycles ? (double)p->tile_cycles[t] : 0;
    for (uint32_t i = 0; !p->tile_cycles && i < p->num_steps; i++)
      if (p->steps[i].work)
        v[t] += (double)p->steps[i].work[t] * (double)p->steps[i].times;
    most = AT_MAX(most, v[t]);
  }
  tile_map(p, "Work over the program", v, "cycles", most, b);
  most = 0;
  for (int64_t t = 0; p->tile_received && t < p->machine->tiles; t++) {
    v[t] = (double)p->tile_received[t];
    most = AT_MAX(most, v[t]);
  }
  if (p->tile_received) tile_map(p, "Received", v, "bytes", most, b);
  at_strbuf_addz(b, "</div>");
  free(v);
}

// ---- Memory of the fullest tile
// Where a block's life begins and ends in the picture: phases are clipped to
// those that there are.
static double begins(const at_tiles_plan *p, const double *at,
                     const at_tiles_block *x) {
  int64_t n = 4 * (int64_t)p->num_steps;
  return at[AT_MIN(AT_MAX((int64_t)x->first, 0), n)];
}
// Where on the page a block's life ends: behind its last phase, four of which
// make a step.
static double ends(const at_tiles_plan *p, const double *at,
                   const at_tiles_block *x) {
  int64_t n = 4 * (int64_t)p->num_steps;
  return at[AT_MIN(AT_MAX((int64_t)x->last, 0) + 1, n)];
}

// Data by category over time, on top of code and tables.
static void memory_over_time(const at_tiles_plan *p, const double *at,
                             at_strbuf *b) {
  enum { kHeight = 220 };
  double(*sum)[AT_TILES_MEM_COUNT] = calloc(kSlices + 1, sizeof *sum);
  const int64_t *k = p->categories[p->fullest];
  if (!sum) {
    b->failed = true;
    return;
  }
  for (uint32_t i = 0; i < p->num_blocks; i++) {
    // A slice shows its middle.
    double scale = (double)kSlices / kWidth;
    int from = (int)ceil(begins(p, at, &p->blocks[i]) * scale - 0.5),
        to = (int)ceil(ends(p, at, &p->blocks[i]) * scale - 0.5);
    for (int s = from; s < AT_MIN(to, kSlices); s++)
      sum[s][p->blocks[i].category] += (double)p->blocks[i].bytes;
  }
  double full = (double)p->machine->bytes_per_tile, most = 1, top;
  for (int s = 0; s < kSlices; s++) {
    double all = 0;
    for (int c = AT_TILES_MEM_VERTICES; c < AT_TILES_MEM_COUNT; c++)
      sum[s][c] = (double)k[c];
    for (int c = 0; c < AT_TILES_MEM_COUNT; c++) all += sum[s][c];
    most = AT_MAX(most, all);
  }
  top = 2.5 * most < full ? 1.2 * most : AT_MAX(full, most);
  at_strbuf_addf(b,
                 "<h3>By category, over the program's time</h3>"
                 "<figure><svg class=time viewBox='0 0 %d %d'>",
                 kWidth, kHeight + 4);
  // The whole first, then what lies on top of it.
  for (int c = 0; c < AT_TILES_MEM_COUNT; c++) {
    at_strbuf_addf(b, "<path fill='%s' d='M0 %d", category_colours[c], kHeight);
    for (int s = 0; s < kSlices; s++) {
      double all = 0;
      for (int d = AT_TILES_MEM_COUNT; d-- > c;) all += sum[s][d];
      double y = kHeight - kHeight * all / top;
      at_strbuf_addf(b, "L%.1f %.1fL%.1f %.1f", (double)s * kWidth / kSlices, y,
                     (double)(s + 1) * kWidth / kSlices, y);
    }
    at_strbuf_addf(b, "L%d %dZ'><title>%s</title></path>", kWidth, kHeight,
                   at_tiles_category_text((at_tiles_category)c));
  }
  double y = AT_MAX(kHeight - kHeight * full / top, 1);
  if (top >= full)
    at_strbuf_addf(b,
                   "<path d='M0 %.1fH%d' stroke='#d9534f' "
                   "stroke-dasharray='6 4'/>",
                   y, kWidth);
  at_strbuf_addf(b, "<text x='4' y='%.1f'>", y + 13);
  add_amount(b, (int64_t)AT_MIN(top, full));
  at_strbuf_addf(b, "B%s</text></svg></figure><p>",
                 top >= full ? ": what a tile has" : "");
  for (int c = 0; c < AT_TILES_MEM_COUNT; c++) {
    if (!k[c]) continue;
    key_item(b, category_colours[c],
             at_tiles_category_text((at_tiles_category)c));
    at_strbuf_addc(b, ' ');
    add_amount(b, k[c]);
    at_strbuf_addz(b, "</span>");
  }
  at_strbuf_addz(b, " (at the peak)</p>");
  free(sum);
}

// FNV-1a: a colour for each name.
static uint32_t hash_of(const char *z) {
  uint32_t h = 2166136261u;
  for (; *z; z++) h = (h ^ (uint8_t)*z) * 16777619u;
  return h;
}

typedef struct drawn {
  double area;
  uint32_t which;
} drawn;
// Large ones first, so that small ones are drawn on top.
static int by_area(const void *a, const void *b) {
  const drawn *x = a, *y = b;
  if (x->area != y->area) return x->area > y->area ? -1 : 1;
  return (x->which > y->which) - (x->which < y->which);
}

// Every block where it lies (up) while it lives (across).
static void memory_map(const at_tiles_plan *p, const double *at, at_strbuf *b) {
  enum { kHeight = 360 };
  drawn *d = malloc(((size_t)p->num_blocks + 1) * sizeof *d);
  double top = 1;
  if (!d) {
    b->failed = true;
    return;
  }
  for (uint32_t i = 0; i < p->num_blocks; i++) {
    const at_tiles_block *x = &p->blocks[i];
    double w = ends(p, at, x) - begins(p, at, x);
    d[i] = (drawn){w * (double)x->bytes, i};
    top = AT_MAX(top, (double)(x->at + x->bytes));
  }
  if (p->num_blocks) qsort(d, p->num_blocks, sizeof *d, by_area);
  top = AT_MAX(1.08 * top, 0.1 * (double)p->machine->bytes_per_tile);
  if (top > 0.8 * (double)p->machine->bytes_per_tile)
    top = AT_MAX(top / 1.08, (double)p->machine->bytes_per_tile);
  double scale = kHeight / top;
  double wide = (double)p->machine->interleaved_bytes * scale;
  at_strbuf_addf(
      b,
      "<h3>Map: addresses up, time across</h3><p>Every block where it lies "
      "while it lives; the tinted upper part is interleaved memory, where "
      "copies run twice as wide.</p><figure><svg class=time viewBox='0 0 %d "
      "%d'>",
      kWidth, kHeight);
  back(b, 0, 0, kWidth, kHeight);
  rect(b, 0, kHeight - (double)p->machine->bytes_per_tile * scale, kWidth, wide,
       "#e9eef7");
  for (uint32_t i = 0; i < AT_MIN(p->num_blocks, (uint32_t)kMapped); i++) {
    const at_tiles_block *x = &p->blocks[d[i].which];
    double left = begins(p, at, x), w = AT_MAX(ends(p, at, x) - left, 0.6),
           h = AT_MAX((double)x->bytes * scale, 0.4),
           y = kHeight - (double)(x->at + x->bytes) * scale;
    char colour[40];
    uint32_t hash = hash_of(x->name);
    bool data = x->category == AT_TILES_MEM_VARIABLES;
    snprintf(colour, sizeof colour, "hsl(%u,%u%%,%u%%)",
             data                                   ? 195 + hash % 45
             : x->category == AT_TILES_MEM_RECEIVED ? 24
                                                    : 45,
             data ? 50u : 80u, 52 + (hash >> 8) % 20);
    at_strbuf_addz(b, "<g><title>");
    at_page_text(b, x->name);
    at_strbuf_addf(b, "\n%s, %lld bytes at %lld%s</title>",
                   at_tiles_category_text(x->category), (long long)x->bytes,
                   (long long)x->at, x->interleaved ? ", interleaved" : "");
    rect(b, left, y, w, h, colour);
    if (w > 90 && h > 13) {
      at_strbuf_addf(b, "<text x='%.1f' y='%.1f' class=on>", left + 4,
                     y + h / 2 + 4);
      short_text(b, x->name, (size_t)(w / 6.5));
      at_strbuf_addz(b, "</text>");
    }
    at_strbuf_addz(b, "</g>");
  }
  at_strbuf_addz(b, "</svg></figure>");
  free(d);
}

// The fullest tile: figures, then both pictures.
static void memory(const at_tiles_plan *p, const double *at, at_strbuf *b) {
  at_strbuf_addf(b, "<h2>Memory of tile %u, the fullest</h2><p>", p->fullest);
  add_amount(b, p->peak_bytes);
  at_strbuf_addz(b, "B of ");
  add_amount(b, p->machine->bytes_per_tile);
  at_strbuf_addz(b, "B at the peak; ");
  add_amount(b, p->data_bytes);
  at_strbuf_addz(b, "B of data, which would be ");
  add_amount(b, p->unshared_bytes);
  at_strbuf_addz(b, "B if nothing shared space.</p>");
  memory_over_time(p, at, b);
  memory_map(p, at, b);
}

// ---- Tensors
// Bars for the twelve dearest tensors, and where each lies.
static void tensors(const at_tiles_plan *p, at_strbuf *b) {
  uint32_t n = AT_MIN(p->num_tensors, 12u);
  if (!n) return;
  at_strbuf_addf(
      b,
      "<h2>Tensors that travel the most</h2><figure><svg viewBox='0 0 "
      "%d %u'>",
      kWidth, 44 * n);
  for (uint32_t i = 0; i < n; i++) {
    const at_tiles_tensor *t = &p->tensors[i];
    double w = 520.0 * (double)t->cycles /
               (double)AT_MAX(p->tensors[0].cycles, 1),
           y = 44 * i;
    at_strbuf_addz(b, "<g><title>");
    at_page_text(b, t->step);
    at_strbuf_addz(b, " wants it in ");
    at_page_text(b, t->want);
    at_strbuf_addf(b, "</title><text x='0' y='%.0f'><tspan class=name>",
                   y + 12);
    short_text(b, t->name, 60);
    at_strbuf_addz(b, "</tspan>  ");
    at_page_text(b, t->shape);
    at_strbuf_addz(b, " in ");
    short_text(b, t->home, 60);
    at_strbuf_addz(b, "</text>");
    rect(b, 0, y + 17, AT_MAX(w, 1), 16, phases[1].colour);
    at_strbuf_addf(b, "<text x='%.0f' y='%.0f'>", w + 6, y + 29);
    add_amount(b, t->cycles);
    at_strbuf_addz(b, " cycles, ");
    add_amount(b, t->bytes);
    at_strbuf_addz(b, "B; most for ");
    short_text(b, t->step, 36);
    at_strbuf_addz(b, "</text></g>");
  }
  at_strbuf_addz(b, "</svg></figure>");
}

// ---- The page
// The plan's advice, a line an item.
static void advice(const at_tiles_plan *p, at_strbuf *b) {
  if (!*p->advice) return;
  at_strbuf_addz(b, "<h2>Advice</h2><ul class=advice>");
  for (const char *line = p->advice; *line;) {
    const char *end = strchr(line, '\n');
    size_t n = end ? (size_t)(end - line) : strlen(line);
    char piece[1024];
    snprintf(piece, sizeof piece, "%.*s", (int)AT_MIN(n, sizeof piece - 1),
             line);
    at_strbuf_addz(b, "<li>");
    at_page_text(b, piece);
    line += n + (end != NULL);
  }
  at_strbuf_addz(b, "</ul>");
}

// One card of the headline.
static void figure(at_strbuf *b, const char *value, const char *unit) {
  at_strbuf_addf(b, "<div class=card><b>%s</b><span>%s</span></div>", value,
                 unit);
}

// Cycles, time, steps, bytes and memory at a glance.
static void headline(const at_tiles_plan *p, at_strbuf *b) {
  char z[32];
  int64_t moved = 0;
  for (uint32_t i = 0; i < p->num_steps; i++)
    moved += p->steps[i].exchange_bytes * AT_MAX(p->steps[i].times, 1);
  at_strbuf_addz(b, "<div class=cards>");
  amount(p->cycles, z, sizeof z);
  figure(b, z, "cycles");
  snprintf(z, sizeof z, "%.1f us",
           (double)p->cycles / p->machine->clock_hz * 1e6);
  figure(b, z, p->machine->name);
  snprintf(z, sizeof z, "%u", p->num_steps);
  figure(b, z, "steps");
  amount(moved, z, sizeof z);
  figure(b, z, "bytes exchanged");
  snprintf(z, sizeof z, "%.0f%%",
           100 * (double)p->peak_bytes / (double)p->machine->bytes_per_tile);
  figure(b, z, "of the fullest tile");
  at_strbuf_addz(b, "</div>");
}

// Sets b->failed where there is no memory, as all appenders do.
void at_tiles_report_html(const at_tiles_plan *p, const char *title,
                          at_strbuf *b) {
  double *at = times_of(p);
  if (!at) {
    b->failed = true;
    return;
  }
  at_page_begin(b, title);
  at_strbuf_addz(b, "<h1>");
  at_page_text(b, title);
  at_strbuf_addz(b, "</h1>");
  headline(p, b);
  advice(p, b);
  timeline(p, at, b);
  cycle_bars(p, b);
  tiles(p, b);
  memory(p, at, b);
  tensors(p, b);
  at_page_end(b);
  free(at);
}

// `atoll pod page`: a pod at a glance, as one page: slices with the queues and
// the memory of their chips, hosts, clients, programs, and what ran last.
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/page.h"
#include "base/size_text.h"
#include "cli/cli.h"
#include "cli/pod_internal.h"

enum { kWidth = 1040, kLabel = 70, kLane = 16, kMostLanes = 8, kHosts = 1024 };

static const char *const kColours[] = {"#2f6fdb", "#e08a1e", "#2e9e6b",
                                       "#8a4fd0", "#d0433b", "#1d9fb5",
                                       "#b0762a", "#c04b9a"};

static int64_t number(const at_json *o, const char *key) {
  return at_json_get_int(o, key, 0);
}
static double real(const at_json *o, const char *key) {
  return at_json_get_num(o, key, 0);
}

// A member's text, at most 255 bytes of it, safe for HTML.
static void add_text(at_strbuf *b, const at_json *o, const char *key) {
  at_str s = at_json_get_str(o, key, AT_STR(""));
  char text[256];
  snprintf(text, sizeof text, "%.*s", (int)AT_MIN(s.len, sizeof text - 1),
           s.ptr);
  at_page_text(b, text);
}

static void add_size(at_strbuf *b, int64_t bytes) {
  char text[AT_SIZE_TEXT];
  at_strbuf_addz(b, at_size_text((double)bytes, text));
}

// ---- Cells of tables
static void cell_text(at_strbuf *b, const at_json *o, const char *key) {
  at_strbuf_addz(b, "<td>");
  add_text(b, o, key);
}
static void cell_number(at_strbuf *b, int64_t n) {
  at_strbuf_addf(b, "<td class=n>%lld", (long long)n);
}
static void cell_size(at_strbuf *b, int64_t bytes) {
  at_strbuf_addf(b, "<td class=n data-v=%lld>", (long long)bytes);
  add_size(b, bytes);
}
static void begin_table(at_strbuf *b, const char *title, const char *heads) {
  at_strbuf_addf(b, "<h2>%s</h2><table><thead><tr>%s</tr></thead><tbody>",
                 title, heads);
}
static void end_table(at_strbuf *b) { at_strbuf_addz(b, "</tbody></table>"); }

// ---- Sums
// Of all chips of a host, or of the pod.
typedef struct sums {
  int64_t in_use, limit, queued;
} sums;

// Adds the host's chips to s.
static void add_up(const at_json *host, sums *s) {
  const at_json *chips = at_json_get(host, "devices");
  for (size_t i = 0; chips && i < chips->len; i++) {
    s->in_use += number(&chips->items[i], "in_use");
    s->limit += number(&chips->items[i], "limit");
    s->queued += number(&chips->items[i], "queued");
  }
}

// A figure with what it is.
static void card(at_strbuf *b, const char *value, const char *what) {
  at_strbuf_addf(b, "<div class=card><b>%s</b><span>%s</span></div>", value,
                 what);
}

// The pod in six figures.
static void add_cards(const at_json *s, at_strbuf *b) {
  const at_json *hosts = at_json_get(s, "hosts");
  const at_json *clients = at_json_get(s, "clients");
  sums all = {0};
  size_t up = 0;
  double rate = 0;
  char text[96], used[AT_SIZE_TEXT], limit[AT_SIZE_TEXT];
  for (size_t i = 0; hosts && i < hosts->len; i++) {
    add_up(&hosts->items[i], &all);
    up +=
        at_str_is(at_json_get_str(&hosts->items[i], "state", AT_STR("")), "up");
  }
  for (size_t i = 0; clients && i < clients->len; i++)
    rate += real(&clients->items[i], "launch_rate");
  at_strbuf_addz(b, "<div class=cards>");
  snprintf(text, sizeof text, "%zu of %lld", up,
           (long long)number(s, "num_hosts"));
  card(b, text, "hosts are up");
  snprintf(text, sizeof text, "%lld", (long long)number(s, "num_chips"));
  card(b, text, "chips");
  snprintf(text, sizeof text, "%s / %s", at_size_text((double)all.in_use, used),
           at_size_text((double)all.limit, limit));
  card(b, text, "of HBM in use");
  snprintf(text, sizeof text, "%lld", (long long)all.queued);
  card(b, text, "launches in queues of chips");
  snprintf(text, sizeof text, "%zu", clients ? clients->len : 0);
  card(b, text, "clients");
  snprintf(text, sizeof text, "%.0f", rate);
  card(b, text, "launches a second");
  at_strbuf_addz(b, "</div>");
}

// ---- Slices: a box for each chip
// A box with a bar of the memory in use, red above 90 %.
static void add_chip(const at_json *c, const at_json *host, at_strbuf *b) {
  int64_t used = number(c, "in_use"), limit = number(c, "limit");
  double part = limit > 0 ? 100 * (double)used / (double)limit : 0;
  at_strbuf_addf(b, "<div class=card title=\"host %lld; peak ",
                 (long long)number(host, "host"));
  add_size(b, number(c, "peak"));
  at_strbuf_addf(b,
                 "\"><span>chip %lld</span><div class=bar><i "
                 "style=\"width:%.1f%%;background:%s\"></i></div><span>",
                 (long long)number(c, "chip"), part,
                 part > 90 ? kColours[4] : kColours[0]);
  add_size(b, used);
  at_strbuf_addf(b, "<br>%lld queued</span></div>",
                 (long long)number(c, "queued"));
}

// Chips of the slice, whatever hosts they are of.
static void add_slice(const at_json *hosts, int64_t slice, at_strbuf *b) {
  at_strbuf_addf(b, "<h2>Slice %lld</h2><div class=chips>", (long long)slice);
  for (size_t i = 0; hosts && i < hosts->len; i++) {
    const at_json *chips = at_json_get(&hosts->items[i], "devices");
    for (size_t k = 0; chips && k < chips->len; k++)
      if (number(&chips->items[k], "slice") == slice)
        add_chip(&chips->items[k], &hosts->items[i], b);
  }
  at_strbuf_addz(b, "</div>");
}

// ---- Tables
// A table; `why` is what the controller knows of a lost host.
static void add_hosts(const at_json *s, at_strbuf *b) {
  const at_json *hosts = at_json_get(s, "hosts");
  begin_table(b, "Hosts",
              "<th class=n>host<th>state<th class=n>process<th>address<th "
              "class=n>chips<th class=n>queued<th class=n>HBM in use<th>");
  for (size_t i = 0; hosts && i < hosts->len; i++) {
    const at_json *h = &hosts->items[i];
    bool up = at_str_is(at_json_get_str(h, "state", AT_STR("")), "up");
    sums x = {0};
    add_up(h, &x);
    at_strbuf_addz(b, "<tr>");
    cell_number(b, number(h, "host"));
    at_strbuf_addf(b, "<td><span class=dot style=\"background:%s\"></span>",
                   up ? kColours[2] : kColours[4]);
    add_text(b, h, "state");
    cell_number(b, number(h, "pid"));
    cell_text(b, h, "address");
    cell_number(b, number(h, "chips"));
    cell_number(b, x.queued);
    cell_size(b, x.in_use);
    cell_text(b, h, "why");
    at_strbuf_addz(b, "</tr>");
  }
  end_table(b);
}

// A table of who has how much.
static void add_clients(const at_json *s, at_strbuf *b) {
  const at_json *list = at_json_get(s, "clients");
  char user[64];
  begin_table(b, "Clients",
              "<th class=n>client<th>program<th class=n>process<th>user<th "
              "class=n>arrays<th class=n>HBM<th class=n>programs<th "
              "class=n>launches<th class=n>a second");
  for (size_t i = 0; list && i < list->len; i++) {
    const at_json *c = &list->items[i];
    at_strbuf_addz(b, "<tr>");
    cell_number(b, number(c, "client"));
    cell_text(b, c, "name");
    cell_number(b, number(c, "pid"));
    at_strbuf_addz(b, "<td>");
    at_page_text(b, at_pod_user_text(number(c, "uid"), user));
    cell_number(b, number(c, "arrays"));
    cell_size(b, number(c, "hbm_bytes"));
    cell_number(b, number(c, "programs"));
    cell_number(b, number(c, "launches"));
    at_strbuf_addf(b, "<td class=n>%.0f</tr>", real(c, "launch_rate"));
  }
  end_table(b);
}

// The same program has the same colour on all hosts and in all tables.
static const char *colour_of(int64_t client, int64_t program) {
  uint64_t n = (uint64_t)client * 31 + (uint64_t)program;
  return kColours[n * 2654435761u / 65536 % AT_LEN(kColours)];
}

// Times are there only of programs that were measured.
static void add_programs(const at_json *s, at_strbuf *b) {
  const at_json *list = at_json_get(s, "last_programs");
  begin_table(b, "Last programs",
              "<th>program<th class=n>client<th class=n>hosts<th "
              "class=n>launches<th class=n>p50, us<th class=n>last, s ago");
  for (size_t i = 0; list && i < list->len; i++) {
    const at_json *p = &list->items[i];
    at_strbuf_addf(b, "<tr><td><span class=dot style=\"background:%s\"></span>",
                   colour_of(number(p, "client"), number(p, "program")));
    add_text(b, p, "name");
    cell_number(b, number(p, "client"));
    cell_number(b, number(p, "hosts"));
    cell_number(b, number(p, "launches"));
    if (number(p, "measured"))
      at_strbuf_addf(b, "<td class=n>%.1f<td class=n>%.1f</tr>",
                     real(p, "p50_us"), -real(p, "last_us") / 1e6);
    else
      at_strbuf_addz(b, "<td class=n>&ndash;<td class=n>&ndash;</tr>");
  }
  end_table(b);
}

// ---- The timeline: a line of lanes for each host
typedef struct window {
  double from_us, to_us;
} window;

// The last so many seconds; of a pod that is idle, those before its last run.
static window last_seconds(const at_json *runs, double seconds) {
  double last = -INFINITY;
  for (size_t i = 0; runs && i < runs->len; i++)
    last = fmax(last, real(&runs->items[i], "end_us"));
  double to = isfinite(last) && last < -seconds * 1e6 ? last : 0;
  return (window){to - seconds * 1e6, to};
}

// The order of runs in lanes.
static int by_start(const void *a, const void *b) {
  double x = real(*(const at_json *const *)a, "start_us"),
         y = real(*(const at_json *const *)b, "start_us");
  return (x > y) - (x < y);
}

// A launch as two bars: thin from when the host got it, thick while chips work
// on it. Both begin inside the window.
static void add_run(const at_json *r, window w, double y, at_strbuf *b) {
  double scale = (kWidth - kLabel) / (w.to_us - w.from_us);
  double given = fmax(real(r, "given_us"), w.from_us);
  double start = fmax(real(r, "start_us"), w.from_us), end = real(r, "end_us");
  const char *colour = colour_of(number(r, "client"), number(r, "program"));
  double x = kLabel + (start - w.from_us) * scale;
  at_strbuf_addf(b, "<g fill=\"%s\"><title>", colour);
  add_text(b, r, "name");
  at_strbuf_addf(
      b,
      " of client %lld&#10;waited %.1f us, ran %.1f us</title><rect "
      "x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"4\" "
      "opacity=\"0.35\"/><rect x=\"%.2f\" y=\"%.1f\" "
      "width=\"%.2f\" height=\"%d\"/></g>",
      (long long)number(r, "client"), real(r, "start_us") - real(r, "given_us"),
      end - real(r, "start_us"), kLabel + (given - w.from_us) * scale, y + 5,
      fmax((start - given) * scale, 0), x, y, fmax((end - start) * scale, 0.6),
      kLane - 2);
}

// Launches of one host beside each other go to lanes below each other. The
// height that it takes.
static double add_lanes(const at_json **runs, size_t n, int64_t host, window w,
                        double y, at_strbuf *b) {
  double free_at[kMostLanes];
  uint32_t lanes = 1;
  for (uint32_t k = 0; k < kMostLanes; k++) free_at[k] = -INFINITY;
  for (size_t i = 0; i < n; i++) {
    if (number(runs[i], "host") != host ||
        real(runs[i], "end_us") < w.from_us ||
        real(runs[i], "start_us") > w.to_us)
      continue;
    uint32_t lane = 0;
    while (lane + 1 < kMostLanes && free_at[lane] > real(runs[i], "start_us"))
      lane++;
    free_at[lane] = real(runs[i], "end_us");
    lanes = AT_MAX(lanes, lane + 1);
    add_run(runs[i], w, y + lane * kLane, b);
  }
  at_strbuf_addf(b, "<text x=\"0\" y=\"%.1f\">host %lld</text>", y + 11,
                 (long long)host);
  return lanes * kLane + 6;
}

// Lanes of all hosts below each other. Without memory the picture is empty, and
// the page says so by nothing else.
static void add_timeline(const at_json *s, double seconds, at_strbuf *b) {
  const at_json *list = at_json_get(s, "runs");
  const at_json *hosts = at_json_get(s, "hosts");
  size_t n = list ? list->len : 0;
  const at_json **runs = calloc(n + 1, sizeof *runs);
  at_strbuf lines = {0};
  window w = last_seconds(list, seconds);
  double y = 4;
  for (size_t i = 0; runs && i < n; i++) runs[i] = &list->items[i];
  if (runs && n) qsort(runs, n, sizeof *runs, by_start);
  for (size_t i = 0; runs && hosts && i < hosts->len; i++)
    y += add_lanes(runs, n, number(&hosts->items[i], "host"), w, y, &lines);
  at_strbuf_addf(b,
                 "<h2>What ran last</h2><p>%.3g seconds, up to %.3g s ago. "
                 "Thin: a launch waits on its host; thick: it runs on chips "
                 "there. Each launch is measured while this page is made, else "
                 "one of many.</p><figure><svg class=time data-left=%d "
                 "viewBox=\"0 0 %d %.0f\">",
                 seconds, (0 - w.to_us) / 1e6, kLabel, kWidth, y + 4);
  b->failed |= lines.failed;
  at_strbuf_add(b, at_strbuf_str(&lines));
  at_strbuf_addz(b, "</svg></figure>");
  at_strbuf_free(&lines);
  free(runs);
}

// ---- The page
// s is the controller's JSON, asked after hosts have measured for a while.
static void add_page(const at_json *s, double seconds, at_strbuf *b) {
  char when[64];
  time_t now = time(NULL);
  struct tm parts;
  localtime_r(&now, &parts);
  strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S %Z", &parts);
  at_str target = at_json_get_str(s, "target", AT_STR("?"));
  char title[200];
  snprintf(title, sizeof title, "Pod of %.*s",
           (int)AT_MIN(target.len, (size_t)160), target.ptr);
  at_page_begin(b, title);
  at_strbuf_addz(b, "<h1>");
  at_page_text(b, title);
  at_strbuf_addz(b, "</h1><p>");
  add_text(b, s, "state");
  at_strbuf_addf(b, "; %s</p>", when);
  add_cards(s, b);
  for (int64_t i = 0; i < AT_MAX(number(s, "num_slices"), 1); i++)
    add_slice(at_json_get(s, "hosts"), i, b);
  add_timeline(s, seconds, b);
  add_programs(s, b);
  add_hosts(s, b);
  add_clients(s, b);
  at_page_end(b);
}

// Asks twice: the first time makes hosts measure every launch, the second
// brings what they saw.
at_status at_pod_page(int argc, char **argv) {
  const char *out = "pod.html", *text = "1";
  at_tool_options o;
  at_cli_option(&argc, argv, "--out=", &out);
  at_cli_option(&argc, argv, "--seconds=", &text);
  AT_TRY(at_pod_which(&argc, argv, &o));
  double seconds = AT_MIN(strtod(text, NULL), 60.0);
  at_arena *a = at_arena_create();
  const at_json *before, *s = NULL;
  at_strbuf page = {0};
  if (!a) return AT_NO_MEMORY("pod");
  // A second more than the page shows, so that the second answer is still
  // watched.
  uint64_t watch_ms = (uint64_t)(seconds * 1e3) + 1000;
  at_status st = at_pod_ask_status(&o, watch_ms, a, &before);
  if (!st.err) usleep((useconds_t)(seconds * 1e6));
  if (!st.err) st = at_pod_ask_status(&o, 0, a, &s);
  if (!st.err) add_page(s, seconds, &page);
  if (!st.err) st = at_strbuf_status(&page);
  if (!st.err) st = at_cli_write_file(out, &page);
  at_strbuf_free(&page);
  at_arena_destroy(a);
  return st;
}

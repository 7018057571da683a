// A page of one Pallas kernel, for people; it needs nothing from elsewhere.
#include <stdio.h>

#include "base/page.h"
#include "cli/check.h"

enum { kWidth = 1040, kLeft = 90, kSteps = 64, kAround = 2 };

// In KiB, from 1 MiB on in MiB.
static void put_bytes(at_strbuf *b, double bytes) {
  if (bytes >= 1 << 20)
    at_strbuf_addf(b, "%.2f MiB", bytes / (1 << 20));
  else
    at_strbuf_addf(b, "%.1f KiB", bytes / 1024);
}

// 0 where there is no whole.
static double percent(double part, double all) {
  return all > 0 ? 100 * part / all : 0;
}

// ---- Findings
// A place with the lines around it, the line itself marked. Without its source
// there is the place alone.
static void put_source(const at_check_result *r, const at_check_place *p,
                       const char *what, at_strbuf *out) {
  at_strbuf_addf(out, "<p>%s <code>", what);
  at_page_text(out, p->file);
  at_strbuf_addf(out, ":%u", p->line);
  if (p->column) at_strbuf_addf(out, ":%u", p->column);
  at_strbuf_addz(out, "</code></p>");
  if (!at_check_source(r, p->file, p->line)) return;
  uint32_t first = p->line > kAround ? p->line - kAround : 1;
  at_strbuf_addz(out, "<pre>");
  for (uint32_t i = first; i <= p->line + kAround; i++) {
    const char *line = at_check_source(r, p->file, i);
    if (!line) break;
    at_strbuf_addf(out, "%s%5u  ", i == p->line ? "<b class=bad>" : "", i);
    at_page_text(out, line);
    at_strbuf_addz(out, i == p->line ? "</b>\n" : "\n");
  }
  at_strbuf_addz(out, "</pre>");
}

// Its stack with sources, places that have to do with it, what the rule means,
// and the whole message folded away.
static void put_finding(const at_check_result *r, const at_check_finding *f,
                        at_strbuf *out) {
  uint32_t n;
  const at_check_rule *rule = at_check_rules(&n) + f->rule;
  at_strbuf_addf(out, "<figure><b class=bad>%s</b> ", rule->id);
  at_page_text(out, f->title);
  for (uint32_t i = 0; i < f->num_stack; i++)
    put_source(r, &f->stack[i],
               !i                  ? "at"
               : *f->stack[i].what ? f->stack[i].what
                                   : "called",
               out);
  for (uint32_t i = 0; i < f->num_related; i++) {
    at_strbuf what = {0};
    at_page_text(&what, f->related[i].what);
    put_source(r, &f->related[i], what.ptr ? what.ptr : "", out);
    at_strbuf_free(&what);
  }
  at_strbuf_addz(out, "<p>");
  at_page_text(out, rule->help);
  at_strbuf_addz(out, "</p><details><summary>all that was said</summary><pre>");
  at_page_text(out, f->message);
  at_strbuf_addz(out, "</pre></details></figure>");
}

// Those of this kernel; the page of an empty name has those outside of kernels.
static void put_findings(const at_check_result *r, const at_check_kernel *k,
                         at_strbuf *out) {
  bool any = false;
  at_strbuf_addz(out, "<h2>Findings</h2>");
  for (uint32_t i = 0; i < r->num; i++) {
    if (strcmp(r->findings[i].kernel, k->name)) continue;
    put_finding(r, &r->findings[i], out);
    any = true;
  }
  if (!any) at_strbuf_addz(out, "<p>None.</p>");
}

// ---- Timeline
// A bar from cycle to cycle in one of three rows; nothing where it is empty.
static void put_span(const at_mosaic_step *s, double from, double to, int row,
                     const char *what, const char *color, double scale,
                     at_strbuf *out) {
  if (to <= from) return;
  at_strbuf_addf(out,
                 "<rect x=\"%.1f\" y=\"%d\" width=\"%.2f\" height=\"22\" "
                 "fill=\"%s\"><title>%s %lld: %.0f cycles</title></rect>",
                 kLeft + from * scale, 6 + 30 * row, (to - from) * scale, color,
                 what, (long long)s->index, to - from);
}

// The first kSteps steps of the grid: when each runs, and when its windows are
// copied in and out. Widths are cycles; the row of steps also shows what a step
// waits for.
static void put_timeline(const at_mosaic_timing *t, at_strbuf *out) {
  uint32_t n = AT_MIN(t->num_timeline, (uint32_t)kSteps);
  double end = 0;
  for (uint32_t i = 0; i < n; i++) {
    const at_mosaic_step *s = &t->timeline[i];
    end = AT_MAX(end, AT_MAX(s->end, AT_MAX(s->in_end, s->out_end)));
  }
  if (end <= 0) return;
  double scale = (kWidth - kLeft - 4) / end;
  at_strbuf_addf(
      out,
      "<h2>Grid</h2><p>%u of %lld steps, %.3f us. Grey: the step "
      "waits for its windows.</p><figure><svg class=time "
      "data-left=%d viewBox=\"0 0 %d 96\"><text x=0 y=21>steps</text><text x=0 "
      "y=51>windows in</text><text x=0 y=81>windows out</text>",
      AT_MIN(n, (uint32_t)t->steps), (long long)t->steps, end / t->clock * 1e6,
      kLeft, kWidth);
  for (uint32_t i = 0; i < n; i++) {
    const at_mosaic_step *s = &t->timeline[i];
    put_span(s, s->ready, s->start, 0, "wait before step", "#9aa3ad", scale,
             out);
    if (s->index < t->steps)
      put_span(s, s->start, s->end, 0, "step", i % 2 ? "#2f6fdb" : "#5a8fe6",
               scale, out);
    put_span(s, s->in_start, s->in_end, 1, "windows for step", "#e08a1e", scale,
             out);
    put_span(s, s->out_start, s->out_end, 2, "windows of step", "#8a4fd0",
             scale, out);
  }
  at_strbuf_addz(out, "</svg></figure>");
}

// ---- What bounds it
// A row: cycles of a unit and their share of the kernel's. Units overlap, so
// shares do not add up.
static void put_share(const char *name, double cycles, double all,
                      at_strbuf *out) {
  at_strbuf_addf(out,
                 "<tr><td>%s<td class=n>%.0f<td class=n>%.1f%%<td><div "
                 "class=bar><i style=\"width:%.1f%%;background:#2f6fdb\"></i>"
                 "</div></tr>",
                 name, cycles, percent(cycles, all),
                 AT_MIN(percent(cycles, all), 100.0));
}

// What limits the kernel, and how busy each unit is.
static void put_bound(const at_mosaic_timing *t, at_strbuf *out) {
  const at_mosaic_units *u = &t->units;
  at_strbuf_addf(out,
                 "<h2>Bound by: %s</h2><table><thead><tr><th>unit<th "
                 "class=n>cycles<th class=n>share<th></tr></thead><tbody>",
                 at_mosaic_timing_bound(t));
  put_share("MXU", u->matrix, t->cycles, out);
  put_share("vector unit", u->vector, t->cycles, out);
  put_share("XLU", u->xlu, t->cycles, out);
  put_share("EUP", u->eup, t->cycles, out);
  put_share("VMEM loads", u->load, t->cycles, out);
  put_share("VMEM stores", u->store, t->cycles, out);
  put_share("scalar unit", u->scalar, t->cycles, out);
  put_share("HBM", t->transfer, t->cycles, out);
  put_share("waits for its own copies", t->waits, t->cycles, out);
  put_share("bubbles: windows not there yet", t->bubbles, t->cycles, out);
  at_strbuf_addz(out, "</tbody></table>");
}

// ---- Memory
// "f32[8,128]"; semaphores have no element type.
static void put_shape(const at_mosaic_ref *r, at_strbuf *out) {
  at_strbuf_addf(
      out, "%s[",
      r->dtype == AT_INVALID ? "semaphore" : at_dtype_of(r->dtype)->text);
  for (uint32_t d = 0; d < r->shape.rank; d++)
    at_strbuf_addf(out, "%s%lld", d ? "," : "", (long long)r->shape.ptr[d]);
  at_strbuf_addc(out, ']');
}

// A buffer and where it lies, one behind the other in the order of arguments.
typedef struct buffer {
  const char *role;
  uint32_t index, count;  // count: how many of its size
  const at_mosaic_ref *ref;
  double from, bytes;
} buffer;
enum { kMostBuffers = 256 };
typedef struct buffers {
  buffer list[kMostBuffers];
  uint32_t num;
  double used[AT_MSPACE_HOST + 1];
} buffers;

// Memories on the chip's core, which the map is of. HBM and semaphores are not.
static bool is_here(const at_mosaic_ref *r) {
  return r->space == AT_MSPACE_VMEM || r->space == AT_MSPACE_SMEM;
}

// count 0: no window.
static void add_buffer(buffers *all, const char *role, uint32_t index,
                       uint32_t count, const at_mosaic_ref *r,
                       const at_check_kernel *k) {
  if (!is_here(r) || all->num == kMostBuffers) return;
  double each = (double)at_mosaic_ref_bytes(k->chip, r, count > 0);
  buffer b = {role, index, AT_MAX(count, 1u), r, all->used[r->space], 0};
  b.bytes = each * b.count;
  all->used[r->space] += b.bytes;
  all->list[all->num++] = b;
}

// Windows of blocks and scratch of the kernel's first program.
static void find_buffers(const at_check_kernel *k, buffers *all) {
  const at_mosaic_program *p = k->kernel->programs;
  all->num = 0;
  memset(all->used, 0, sizeof all->used);
  for (uint32_t i = 0; i < p->num_windows; i++) {
    const at_mosaic_window *w = &p->windows[i];
    add_buffer(all, w->is_output ? "output" : "input", w->index,
               w->moves ? AT_MAX(w->buffers, 1u) : 1, &w->ref, k);
  }
  for (uint32_t i = 0; i < p->num_scratch; i++)
    add_buffer(all, "scratch", i, 0, &p->scratch[i], k);
}

// A row of the table; for VMEM also its share of the limit.
static void put_buffer(const buffer *b, double limit, at_strbuf *out) {
  at_strbuf_addf(out, "<tr><td>%s %u<td>%s<td class=n data-v=%.0f>0x%llx<td>",
                 b->role, b->index, at_mosaic_space_name(b->ref->space),
                 b->from, (unsigned long long)b->from);
  put_shape(b->ref, out);
  at_strbuf_addf(out, "<td class=n>%u<td class=n data-v=%.0f>", b->count,
                 b->bytes);
  put_bytes(out, b->bytes);
  at_strbuf_addz(out, "<td class=n>");
  if (limit > 0 && b->ref->space == AT_MSPACE_VMEM)
    at_strbuf_addf(out, "%.1f%%", percent(b->bytes, limit));
  at_strbuf_addz(out, "</tr>");
}

// VMEM from its first address to the limit, or to the last buffer beyond it.
static void put_map(const buffers *all, double limit, at_strbuf *out) {
  double end = AT_MAX(limit, all->used[AT_MSPACE_VMEM]);
  if (end <= 0) return;
  double scale = (kWidth - kLeft - 4) / end;
  at_strbuf_addf(out,
                 "<figure><svg viewBox=\"0 0 %d 40\" width=\"%d\"><text x=0 "
                 "y=21>VMEM</text><rect x=\"%d\" y=\"6\" width=\"%.1f\" "
                 "height=\"22\" fill=\"#9aa3ad\" opacity=\"0.25\"><title>the "
                 "limit: %.0f bytes</title></rect>",
                 kWidth, kWidth, (int)kLeft, limit * scale, limit);
  static const char *const colors[] = {"#2f6fdb", "#e08a1e", "#8a4fd0",
                                       "#2c9c69", "#c94f6d"};
  for (uint32_t i = 0; i < all->num; i++) {
    const buffer *b = &all->list[i];
    if (b->ref->space != AT_MSPACE_VMEM) continue;
    double each = b->bytes / b->count;
    for (uint32_t n = 0; n < b->count; n++)
      at_strbuf_addf(out,
                     "<rect x=\"%.2f\" y=\"6\" width=\"%.2f\" height=\"22\" "
                     "fill=\"%s\"><title>%s %u: 0x%llx, %.0f bytes"
                     "</title></rect>",
                     kLeft + (b->from + n * each) * scale,
                     AT_MAX(each * scale - 0.3, 0.3),
                     colors[i % AT_LEN(colors)], b->role, b->index,
                     (unsigned long long)(b->from + n * each), each);
  }
  at_strbuf_addz(out, "</svg></figure>");
}

// The compiler of the chip may place buffers otherwise, which the page says;
// the sizes hold.
static void put_memory(const at_check_kernel *k, at_strbuf *out) {
  buffers all;
  double limit = k->timing ? (double)k->timing->vmem_limit : 0;
  find_buffers(k, &all);
  at_strbuf_addz(out,
                 "<h2>Memory by address</h2><p>Buffers one behind the other, "
                 "in the order of the kernel's arguments. The chip's compiler "
                 "may choose another order; the sizes are the same.</p>");
  put_map(&all, limit, out);
  at_strbuf_addz(out,
                 "<table><thead><tr><th>buffer<th>space<th class=n>from"
                 "<th>shape<th class=n>buffers<th class=n>bytes"
                 "<th class=n>of VMEM's limit</tr></thead><tbody>");
  for (uint32_t i = 0; i < all.num; i++) put_buffer(&all.list[i], limit, out);
  at_strbuf_addz(out, "</tbody></table>");
}

// ---- Advice
// What the figures suggest to change: bubbles, the unit that limits, room in
// VMEM, idle cores.
static void put_advice(const at_mosaic_timing *t, at_strbuf *out) {
  const char *bound = at_mosaic_timing_bound(t);
  double used = (double)(t->memory.windows + t->memory.scratch),
         free = (double)t->vmem_limit - used;
  at_strbuf_addz(out, "<h2>Advice</h2><ul>");
  if (t->bubbles > t->cycles / 4)
    at_strbuf_addf(out,
                   "<li>Steps wait for their windows %.0f%% of the time: each "
                   "is over before the next blocks are there. Take larger "
                   "blocks, so that a step does more.",
                   percent(t->bubbles, t->cycles));
  if (!strcmp(bound, "HBM"))
    at_strbuf_addz(out,
                   "<li>HBM is the limit: read each block less often (wider "
                   "results, an order of the grid that keeps a block), or "
                   "take a narrower type.");
  else if (!strcmp(bound, "its own copies"))
    at_strbuf_addz(out,
                   "<li>The body waits for copies that it starts itself: "
                   "start them a step earlier, into a second buffer.");
  else if (!strcmp(bound, "MXU"))
    at_strbuf_addz(out,
                   "<li>The matrix unit is the limit, as it should be; "
                   "narrower operands take it less time.");
  else if (strcmp(bound, "DMA latency and pipeline fill"))
    at_strbuf_addf(out, "<li>The busiest unit is: %s.", bound);
  if (free > used && t->steps > 1)
    at_strbuf_addf(out,
                   "<li>Only %.0f%% of VMEM's limit is used: there is room "
                   "for blocks that are twice as large.",
                   percent(used, (double)t->vmem_limit));
  if (t->cores > t->busy)
    at_strbuf_addf(out,
                   "<li>%u of %u cores work: make a dimension of the grid "
                   "parallel (dimension_semantics).",
                   t->busy, t->cores);
  if (t->follows_data)
    at_strbuf_addz(out,
                   "<li>Branches, loops or windows depend on data; they are "
                   "counted as taken, once, and as moving.");
  at_strbuf_addz(out, "</ul>");
}

// ---- The page
// Time, steps, VMEM and traffic of the kernel.
static void put_cards(const at_check_kernel *k, at_strbuf *out) {
  const at_mosaic_timing *t = k->timing;
  at_strbuf_addf(out,
                 "<div class=cards><div class=card><b>%.3f us</b><span>%.0f "
                 "cycles on %s</span></div><div class=card><b>%lld</b><span>"
                 "steps</span></div><div class=card><b>",
                 t->seconds * 1e6, t->cycles, k->target, (long long)t->steps);
  put_bytes(out, (double)(t->memory.windows + t->memory.scratch));
  at_strbuf_addz(out, "</b><span>VMEM of ");
  put_bytes(out, (double)t->vmem_limit);
  at_strbuf_addz(out, "</span></div><div class=card><b>");
  put_bytes(out, t->hbm_bytes);
  at_strbuf_addz(out, "</b><span>through HBM</span></div></div>");
}

// Findings first, then the picture, what bounds it and advice, and where memory
// goes.
void at_check_page(const at_check_result *r, const at_check_kernel *k,
                   at_strbuf *out) {
  const char *name = *k->name ? k->name : "outside kernels";
  at_page_begin(out, name);
  at_strbuf_addz(out, "<h1>");
  at_page_text(out, name);
  at_strbuf_addz(out, "</h1><p>");
  at_page_text(out, r->program);
  at_strbuf_addz(out, "</p>");
  if (k->timing) put_cards(k, out);
  put_findings(r, k, out);
  if (k->timing) {
    if (k->formula) {
      at_strbuf_addz(out,
                     "<p>Bounds of the grid come as operands (n0, ...). Shown "
                     "is as many steps as shapes allow; cycles: <code>");
      at_page_text(out, k->formula);
      at_strbuf_addz(out, "</code></p>");
    }
    put_timeline(k->timing, out);
    put_bound(k->timing, out);
    put_advice(k->timing, out);
  } else if (*k->why) {
    at_strbuf_addz(out, "<h2>Grid</h2><p>No timing: ");
    at_page_text(out, k->why);
    at_strbuf_addz(out, "</p>");
  }
  if (k->kernel && k->chip) put_memory(k, out);
  at_page_end(out);
}

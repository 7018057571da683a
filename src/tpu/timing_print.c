// A kernel's size for people, and for Perfetto.
#include <stdio.h>

#include "base/json.h"
#include "tpu/timing.h"

// Of the whole time.
static double percent(double part, double all) {
  return all > 0 ? 100 * part / all : 0;
}

// With the unit that fits.
static void put_bytes(at_strbuf *b, double bytes) {
  if (bytes >= 1 << 20)
    at_strbuf_addf(b, "%.2f MiB", bytes / (1 << 20));
  else
    at_strbuf_addf(b, "%.1f KiB", bytes / 1024);
}

// The largest share wins; of equal ones the first in this list.
const char *at_mosaic_timing_bound(const at_mosaic_timing *s) {
  const at_mosaic_units *u = &s->units;
  const struct {
    double cycles;
    const char *name;
  } parts[] = {{u->scalar, "scalar unit"},
               {u->vector, "vector unit"},
               {u->xlu, "XLU"},
               {u->eup, "EUP"},
               {u->load, "VMEM loads"},
               {u->store, "VMEM stores"},
               {u->matrix, "MXU"},
               {s->transfer_in, "HBM reads"},
               {s->transfer_out, "HBM writes"},
               {s->waits, "its own copies"}};
  size_t best = 0;
  for (size_t i = 1; i < AT_LEN(parts); i++)
    if (parts[i].cycles > parts[best].cycles) best = i;
  // Nothing is busy half of the time: steps are too small.
  return parts[best].cycles < s->cycles / 2 ? "DMA latency and pipeline fill"
                                            : parts[best].name;
}

// One line per part; "waits" and the note only where there are any.
void at_mosaic_timing_text(const at_mosaic_timing *s, at_strbuf *b) {
  const at_mosaic_units *u = &s->units;
  at_strbuf_addf(b, "kernel %s on %s: %.3f us, %.0f cycles at %.0f MHz\n",
                 s->kernel, s->target, s->seconds * 1e6, s->cycles,
                 s->clock / 1e6);
  at_strbuf_addf(b, "  steps       %lld of %.0f cycles on average",
                 (long long)s->steps,
                 s->steps ? s->cycles / (double)s->steps : 0);
  if (s->cores > 1)
    at_strbuf_addf(
        b, ", %u of %u cores busy%s", s->busy, s->cores,
        s->busy < s->cores ? " (no parallel dimension to share)" : "");
  at_strbuf_addf(b, "\n  compute     %.0f cycles, %.0f%%\n", s->compute,
                 percent(s->compute, s->cycles));
  at_strbuf_addf(
      b,
      "    MXU %.0f, vector %.0f, XLU %.0f, EUP %.0f, loads %.0f, stores %.0f, "
      "scalar %.0f\n",
      u->matrix, u->vector, u->xlu, u->eup, u->load, u->store, u->scalar);
  at_strbuf_addf(b, "  HBM         %.0f cycles, %.0f%%: ", s->transfer,
                 percent(s->transfer, s->cycles));
  put_bytes(b, s->hbm_bytes);
  at_strbuf_addf(b,
                 "\n  bubbles     %.0f cycles, %.0f%%: windows not there yet\n",
                 s->bubbles, percent(s->bubbles, s->cycles));
  if (s->waits > 0)
    at_strbuf_addf(b, "  waits       %.0f cycles, %.0f%%: copies of the body\n",
                   s->waits, percent(s->waits, s->cycles));
  at_strbuf_addz(b, "  VMEM        ");
  put_bytes(b, (double)s->memory.windows);
  at_strbuf_addz(b, " windows + ");
  put_bytes(b, (double)s->memory.scratch);
  at_strbuf_addz(b, " scratch of ");
  put_bytes(b, (double)s->vmem_limit);
  at_strbuf_addf(b, "\n  %.3f TFLOP/s; bound by: %s\n",
                 s->seconds > 0 ? s->flops / s->seconds / 1e12 : 0,
                 at_mosaic_timing_bound(s));
  if (s->follows_data)
    at_strbuf_addz(
        b,
        "  note: branches, loops or windows depend on data; they are "
        "counted as taken, once, and as moving\n");
}

// ---- JSON
static void text(at_json_writer *w, const char *key, const char *value) {
  at_json_key(w, at_str_of(key));
  at_json_str(w, at_str_of(value));
}

// As JSON.
static void number(at_json_writer *w, const char *key, double value) {
  at_json_key(w, at_str_of(key));
  at_json_num(w, value);
}

// Names are part of the command's output format.
void at_mosaic_timing_json(const at_mosaic_timing *s, at_json_writer *w) {
  const at_mosaic_units *u = &s->units;
  const struct {
    const char *name;
    double value;
  } members[] = {
      {"seconds", s->seconds},
      {"cycles", s->cycles},
      {"steps", (double)s->steps},
      {"cores_busy", s->busy},
      {"compute_cycles", s->compute},
      {"dma_cycles", s->transfer},
      {"dma_in_cycles", s->transfer_in},
      {"dma_out_cycles", s->transfer_out},
      {"bubble_cycles", s->bubbles},
      {"wait_cycles", s->waits},
      {"mxu_cycles", u->matrix},
      {"vector_cycles", u->vector},
      {"xlu_cycles", u->xlu},
      {"eup_cycles", u->eup},
      {"load_cycles", u->load},
      {"store_cycles", u->store},
      {"scalar_cycles", u->scalar},
      {"flops", s->flops},
      {"hbm_bytes", s->hbm_bytes},
      {"vmem_bytes", (double)(s->memory.windows + s->memory.scratch)},
      {"vmem_limit_bytes", (double)s->vmem_limit}};
  for (size_t i = 0; i < AT_LEN(members); i++)
    number(w, members[i].name, members[i].value);
  text(w, "bound", at_mosaic_timing_bound(s));
  at_json_key(w, AT_STR("follows_data"));
  at_json_bool(w, s->follows_data);
}

// ---- Perfetto
enum { kBody, kIn, kOut, kTracks };

// A metadata event of Chrome's trace format.
static void name_track(at_json_writer *w, int track, const char *name) {
  at_json_begin_object(w);
  text(w, "ph", "M");
  text(w, "name", "thread_name");
  number(w, "pid", 1);
  number(w, "tid", track);
  at_json_key(w, AT_STR("args"));
  at_json_begin_object(w);
  text(w, "name", name);
  at_json_end_object(w);
  at_json_end_object(w);
}

// A complete event; times in microseconds.
static void span(const at_mosaic_timing *s, at_json_writer *w, int track,
                 const char *what, const at_mosaic_step *t, double from,
                 double to, double bytes) {
  if (to <= from) return;
  char name[64];
  snprintf(name, sizeof name, "%s %lld", what, (long long)t->index);
  double us = 1e6 / s->clock;
  at_json_begin_object(w);
  text(w, "ph", "X");
  text(w, "name", name);
  number(w, "pid", 1);
  number(w, "tid", track);
  number(w, "ts", from * us);
  number(w, "dur", (to - from) * us);
  at_json_key(w, AT_STR("args"));
  at_json_begin_object(w);
  number(w, "cycles", to - from);
  if (bytes > 0) number(w, "bytes", bytes);
  at_json_end_object(w);
  at_json_end_object(w);
}

// Three tracks: steps with their waits, windows in, windows out.
void at_mosaic_timing_trace(const at_mosaic_timing *s, at_strbuf *out) {
  static const char *const tracks[kTracks] = {"steps", "windows in",
                                              "windows out"};
  at_json_writer w = {.out = out};
  at_json_begin_object(&w);
  at_json_key(&w, AT_STR("traceEvents"));
  at_json_begin_array(&w);
  for (int i = 0; i < kTracks; i++) name_track(&w, i, tracks[i]);
  for (uint32_t i = 0; i < s->num_timeline; i++) {
    const at_mosaic_step *t = &s->timeline[i];
    span(s, &w, kBody, "wait", t, t->ready, t->start, 0);
    if (t->index < s->steps) span(s, &w, kBody, "step", t, t->start, t->end, 0);
    span(s, &w, kIn, "in", t, t->in_start, t->in_end, t->in_bytes);
    span(s, &w, kOut, "out", t, t->out_start, t->out_end, t->out_bytes);
  }
  at_json_end_array(&w);
  text(&w, "displayTimeUnit", "ns");
  at_json_end_object(&w);
}

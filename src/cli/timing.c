// Compiles a program, launches it often enough, and takes a middle or the least
// of the times.
#include "cli/timing.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "compile/compile.h"

enum { kMostRuns = 25, kBatches = 3 };

// Buffers of all devices, one device after another.
typedef struct arguments {
  at_buffer *list[AT_TIMING_ARGUMENTS], *results[AT_TIMING_ARGUMENTS];
  at_chip *chips[AT_TIMING_ARGUMENTS];
  uint32_t count, devices;
} arguments;

// Entries are NULL afterwards.
static void release(at_buffer **list, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (list[i]) at_buffer_release(list[i]), list[i] = NULL;
}

// Numbers that are the same in every run: times depend on values for some
// operations.
static uint64_t next(uint64_t *state) {
  uint64_t x = *state += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

// Floats in [0.5, 1.5): neither denormal numbers nor infinities slow anything
// down.
static void write_elements(void *data, const at_timing_argument *x) {
  int64_t n = at_type_elements(&x->type);
  int size = at_dtype_bytes(x->type.dtype);
  uint64_t state = 1;
  for (int64_t i = 0; i < n; i++) {
    uint64_t r = next(&state);
    void *at = (char *)data + i * size;
    if (at_is_float(x->type.dtype))
      at_store_float(x->type.dtype, at, .5 + (double)(r >> 11) * 0x1p-53);
    else
      at_store_int(x->type.dtype, at,
                   (int64_t)(x->below ? r % (uint64_t)x->below : r));
  }
}

// *out is there on success; the caller releases it.
static at_status fill(at_chip *chip, const at_timing_argument *x,
                      at_buffer **out) {
  AT_TRY(at_buffer_create(chip, AT_MEM_DEVICE, x->type.dtype,
                          at_type_dims(&x->type), out));
  void *data = at_buffer_data_mut(*out);
  if (x->random || x->below)
    write_elements(data, x);
  else
    memset(data, 0, at_buffer_bytes(*out));
  at_buffer_define(*out, AT_OK);
  return AT_OK;
}

// Waits for the launch. Arguments are kept for the next one.
static at_status launch(at_loaded *program, arguments *x) {
  static const bool keep[AT_TIMING_ARGUMENTS] = {true, true, true, true};
  at_launch l = {.chip = x->chips[0],
                 .chips = x->chips,
                 .num_chips = x->devices > 1 ? x->devices : 0,
                 .args = x->list,
                 .num_args = x->count / x->devices,
                 .not_donatable = keep};
  at_event *done;
  release(x->results, AT_TIMING_ARGUMENTS);
  AT_TRY(at_loaded_execute(program, &l, x->results, &done));
  at_status st = at_event_wait(done);
  at_event_release(done);
  return st;
}

static int ascending(const void *x, const void *y) {
  double a = *(const double *)x, b = *(const double *)y;
  return (a > b) - (a < b);
}

// Seconds of the clock that counts; CPU time is divided by the cores it is
// spread over.
static double now(const at_timing *t) {
  struct timespec s;
  if (t->share <= 0) return (double)at_clock_ns() * 1e-9;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &s);
  return ((double)s.tv_sec + (double)s.tv_nsec * 1e-9) / t->share;
}

// The quietest of some batches; of a slow program, one run.
static at_status time_cpu(const at_timing *t, at_loaded *program, arguments *x,
                          bool slow, double *out) {
  *out = INFINITY;
  for (int batch = 0; batch < (slow ? 1 : kBatches); batch++) {
    double from = now(t), spent = 0;
    int n = 0;
    do {
      AT_TRY(launch(program, x));
      n++;
    } while ((spent = now(t) - from) < t->seconds / kBatches);
    *out = fmin(*out, spent / n);
  }
  return AT_OK;
}

// Two launches warm up, or one that is slow; then elapsed time is taken launch
// by launch, CPU time by time_cpu.
static at_status time_program(const at_timing *t, at_loaded *program,
                              arguments *x, double *out) {
  double runs[kMostRuns], spent = 0;
  int n = 0;
  bool slow = false;
  for (int i = 0; i < 2 && !slow; i++) {
    double from = now(t);
    AT_TRY(launch(program, x));
    slow = now(t) - from > t->seconds;
  }
  if (t->share > 0) return time_cpu(t, program, x, slow, out);
  while (n < (slow ? 2 : 3) || (n < kMostRuns && spent < t->seconds)) {
    double from = now(t);
    AT_TRY(launch(program, x));
    spent += runs[n] = now(t) - from;
    n++;
  }
  qsort(runs, (size_t)n, sizeof *runs, ascending);
  *out = runs[t->least ? 0 : n / 2];
  return AT_OK;
}

// Everything is made anew and freed: programs of a measurement have nothing in
// common.
at_status at_timing_run(const at_timing *t, const char *text,
                        const uint32_t *devices, uint32_t num_devices,
                        const at_timing_argument *list, uint32_t num,
                        double *out) {
  at_compile_options options = {.no_cache = true};
  at_bytes executable;
  at_loaded *program = NULL;
  arguments x = {.devices = num_devices};
  if (!text) return AT_NO_MEMORY("program");
  if (!num_devices || num_devices > AT_TIMING_ARGUMENTS ||
      num_devices * num > AT_TIMING_ARGUMENTS)
    return AT_FAIL(AT_INVALID_ARGUMENT, "%u devices with %u arguments each",
                   num_devices, num);
  for (uint32_t d = 0; d < num_devices; d++)
    x.chips[d] = at_runtime_chip(t->runtime, devices ? devices[d] : d);
  AT_TRY(at_compile((at_bytes){(const uint8_t *)text, strlen(text)}, &options,
                    &executable));
  at_status st = at_loaded_create(t->runtime, executable, &program);
  free((void *)executable.ptr);
  // The same arguments for each device.
  for (uint32_t d = 0; d < num_devices && at_ok(st); d++)
    for (uint32_t i = 0; i < num && at_ok(st); i++)
      st = fill(x.chips[d], &list[i], &x.list[x.count++]);
  if (at_ok(st)) st = time_program(t, program, &x, out);
  release(x.list, AT_TIMING_ARGUMENTS);
  release(x.results, AT_TIMING_ARGUMENTS);
  if (program) at_loaded_release(program);
  return st;
}

// A machine in a topology, with the tables and options that its estimates use.
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "cost/cost_internal.h"
#include "cost/gpu.h"
#include "cost/host.h"
#include "cost/tpu.h"
#include "machine/topology.h"

enum { kMaxDevices = 1 << 16 };

static bool ends_with(at_str s, const char *end) {
  size_t n = strlen(end);
  return s.len >= n && memcmp(s.ptr + s.len - n, end, n) == 0;
}

static at_status read_file(const char *path, at_arena *a, at_bytes *out) {
  enum { kMost = 1 << 20 };
  FILE *f = fopen(path, "rb");
  if (!f) return AT_FAIL(AT_NOT_FOUND, "cannot open %s", path);
  uint8_t *text = at_new(a, uint8_t, kMost);
  size_t n = text ? fread(text, 1, kMost, f) : 0;
  bool more = n == kMost && fgetc(f) != EOF;
  fclose(f);
  if (!text) return AT_NO_MEMORY("description of a machine");
  if (more)
    return AT_FAIL(AT_INVALID_ARGUMENT, "%s is larger than %d bytes", path,
                   kMost);
  *out = (at_bytes){text, n};
  return AT_OK;
}

static at_status read_description(const char *path, at_arena *a,
                                  at_machine *out) {
  at_bytes text;
  AT_TRY(read_file(path, a, &text));
  AT_TRY(at_status_prefix(at_machine_read(text, a, out), "%s", path));
  // Somebody's own may say less; what that means is in machine/figures.def.
  at_status st = at_machine_complete(out);
  if (!at_ok(st))
    at_log_once(AT_LOG_WARNING, "%s: %s", path, at_status_message(st));
  at_status_free(st);
  return AT_OK;
}

// What `atoll cost collect` measured of this host, if it did.
static at_status find_host_table(at_target *t, at_arena *a) {
  char path[4096];
  at_bytes text;
  at_perf_table *tables;
  size_t n;
  AT_TRY(at_cost_host_path(path, sizeof path));
  memcpy(path + strlen(path) - 4, "perf", 4);  // host.json, host.perf
  at_status st = read_file(path, a, &text);
  if (at_status_code(st) == AT_NOT_FOUND) return at_status_free(st), AT_OK;
  AT_TRY(st);
  AT_TRY(at_status_prefix(at_perf_read(text, a, &tables, &n), "%s", path));
  const at_perf_table *mine = at_perf_find(tables, n, "host");
  at_perf *p;
  if (!mine || !mine->count) return AT_OK;
  AT_TRY(at_perf_prepare(mine, t->mode, true, a, &p));
  t->user = p;
  return AT_OK;
}

at_status at_cost_host_path(char *out, size_t size) {
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  int n = cache && *cache ? snprintf(out, size, "%s/atoll/host.json", cache)
                          : snprintf(out, size, "%s/.cache/atoll/host.json",
                                     home ? home : ".");
  return n > 0 && (size_t)n < size
             ? AT_OK
             : AT_FAIL(AT_INVALID_ARGUMENT, "the cache path is too long");
}

// A description by its path, the measured host, or a machine that comes with
// Atoll.
static at_status find_machine(at_str name, at_arena *a,
                              const at_machine **out) {
  at_machine *m;
  if (ends_with(name, ".json")) {
    char *path;
    AT_TRY_ALLOC(path, at_arena_str(a, name));
    AT_TRY_ALLOC(m, at_new(a, at_machine, 1));
    at_status st = read_description(path, a, m);
    if (at_status_code(st) == AT_NOT_FOUND)  // the user's mistake
      return at_status_free(st),
             AT_FAIL(AT_INVALID_ARGUMENT, "cannot open %s", path);
    *out = m;
    return st;
  }
  if (at_str_is(name, "host")) {
    char path[4096];
    AT_TRY(at_cost_host_path(path, sizeof path));
    AT_TRY_ALLOC(m, at_new(a, at_machine, 1));
    at_status st = read_description(path, a, m);
    if (at_status_code(st) == AT_NOT_FOUND) {
      at_status_free(st);
      return AT_FAIL(
          AT_FAILED_PRECONDITION,
          "this host has not been measured\nhint: atoll doctor --measure");
    }
    *out = m;
    return st;
  }
  return at_machine_find(name, out);
}

// Devices of all slices. INVALID_ARGUMENT: over kMaxDevices.
static at_status count_devices(at_str text, at_target *t) {
  double cores = at_machine_number(t->machine, "cores_per_chip", 1);
  double per = at_machine_number(t->machine, "cores_per_device", 0);
  t->devices_per_chip = per > 0 && cores > per ? (uint32_t)(cores / per) : 1;
  int64_t n = (int64_t)t->slices * t->devices_per_chip;
  for (int i = 0; i < 3; i++)
    if (__builtin_mul_overflow(n, t->shape[i], &n) || n > kMaxDevices)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "target \"%.*s\" has more than %d devices",
                     (int)AT_MIN(text.len, (size_t)64), text.ptr, kMaxDevices);
  t->num_devices = (uint32_t)n;
  return AT_OK;
}

// The built-in table that the machine names, if it has series.
static at_status prepare_tables(at_target *t, at_arena *a) {
  const at_perf_table *tables, *mine;
  size_t count;
  at_figure key;
  AT_TRY(at_perf_builtin(&tables, &count));
  if (!at_machine_figure(t->machine, "perf_table", &key) || !key.text.len)
    return AT_OK;
  mine = at_perf_find(tables, count, key.text.ptr);
  if (!mine)
    return AT_FAIL(AT_FAILED_PRECONDITION,
                   "perf_table of %s: data/perf has no %s", t->machine->name,
                   key.text.ptr);
  if (!mine->count) return AT_OK;
  at_perf *p;
  AT_TRY(at_perf_prepare(mine, t->mode, false, a, &p));
  t->perf = p;
  return AT_OK;
}

// The kernel model of the machine's platform.
static at_status prepare_models(at_target *t, at_arena *a) {
  if (strcmp(t->machine->platform, "gpu") == 0)
    return at_gpu_of(t->machine, a, &t->gpu);
  if (strcmp(t->machine->platform, "host") == 0)
    return at_host_of(t->machine, a, &t->host);
  if (strcmp(t->machine->platform, "tpu") != 0) return AT_OK;
  at_tpu_chip *chip;
  AT_TRY_ALLOC(chip, at_new(a, at_tpu_chip, 1));
  AT_TRY(at_tpu_chip_of(t->machine, chip));
  t->tpu = chip;
  return AT_OK;
}

at_status at_target_make(const at_machine *m, at_interp mode, at_arena *a,
                         at_target **out) {
  at_target *t;
  AT_TRY_ALLOC(t, at_new(a, at_target, 1));
  *t = (at_target){.machine = m, .slices = 1, .shape = {1, 1, 1}, .mode = mode};
  AT_TRY(count_devices(at_str_of(m->name), t));
  at_network_of(m, &t->network);
  AT_TRY(prepare_models(t, a));
  AT_TRY(prepare_tables(t, a));
  *out = t;
  return AT_OK;
}

at_status at_target_parse(at_str text, at_interp mode, at_arena *a,
                          at_target **out) {
  at_topology_text said;
  const at_machine *m;
  at_target *t;
  AT_TRY(at_topology_split(text, &said));
  AT_TRY(at_status_prefix(find_machine(said.machine, a, &m), "target \"%.*s\"",
                          (int)AT_MIN(text.len, (size_t)64), text.ptr));
  AT_TRY(at_topology_settle(text, m, &said));
  AT_TRY(at_target_make(m, mode, a, &t));
  if (at_str_is(said.machine, "host")) AT_TRY(find_host_table(t, a));
  t->slices = said.slices;
  memcpy(t->shape, said.shape, sizeof t->shape);
  AT_TRY(count_devices(text, t));
  const char *flags = getenv("XLA_FLAGS");
  if (flags) AT_TRY(at_network_xla_flags(at_str_of(flags), &t->network));
  *out = t;
  return AT_OK;
}

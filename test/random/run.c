// Compiles and runs a module on this process's runtime.
#include "run.h"

#include <stdlib.h>

#include "base/config.h"
#include "compile/compile.h"
#include "coverage.h"
#include "pod/pod.h"

static at_runtime *g_runtime;
static at_island *g_island;

at_status run_start(const char *target) {
  // Dots in full precision: the evaluator does not imitate the chip's passes.
  AT_TRY(at_config_set(AT_CONFIG_NUMERICS, "exact"));
  AT_TRY(at_island_create(NULL, &g_island));
  return at_runtime_create(
      &(at_runtime_options){.target = target, .threads = 2}, &g_runtime);
}

void run_stop(void) {
  at_runtime_destroy(g_runtime);
  at_island_destroy(g_island);
}

static at_status load(const at_module *m, at_loaded **out) {
  at_strbuf text = {0};
  at_bytes block = {0};
  at_compile_options o = {.no_cache = true, .verify_each = true, .threads = 2};
  at_status st = at_hlo_print(m, &text);
  if (at_ok(st))
    st =
        at_compile((at_bytes){(const uint8_t *)text.ptr, text.len}, &o, &block);
  if (at_ok(st)) st = at_loaded_create(g_runtime, block, out);
  free((void *)block.ptr);
  at_strbuf_free(&text);
  return st;
}

static at_status upload(at_chip *chip, const at_literal *l, at_buffer **out) {
  at_host_array h = {
      .dtype = l->type.dtype, .dims = at_type_dims(&l->type), .data = l->data};
  at_event *done;
  AT_TRY(at_buffer_from_host(chip, AT_MEM_DEVICE, &h,
                             AT_HOST_IMMUTABLE_ONLY_DURING_CALL, out, &done));
  at_status st = at_event_wait(done);
  at_event_release(done);
  return st;
}

static at_status download(at_arena *a, at_buffer *b, const at_literal **out) {
  at_event *done;
  at_dims dims = at_buffer_dims(b);
  at_type t = {.dtype = at_buffer_dtype(b), .rank = dims.rank};
  uint8_t *data;
  int64_t *sizes;
  AT_TRY_ALLOC(sizes, at_new(a, int64_t, dims.rank + 1));
  for (uint32_t d = 0; d < dims.rank; d++) sizes[d] = dims.ptr[d];
  t.dims = sizes;
  AT_TRY_ALLOC(data, at_arena_alloc(a, at_type_bytes(&t) + 1, 64));
  AT_TRY(at_buffer_to_host(b, data, 0, at_type_bytes(&t), &done));
  at_status st = at_event_wait(done);
  at_event_release(done);
  AT_TRY(st);
  return at_literal_make(a, t, data, false, true, out);
}

static void release_all(at_buffer **list, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (list[i]) at_buffer_release(list[i]);
}

at_status run_devices(at_arena *a, at_loaded *l, uint32_t devices,
                      uint32_t num_args, const at_literal **const *args,
                      uint32_t num_results, const at_literal **const *out) {
  at_buffer **in, **results;
  at_chip **chips;
  size_t ni = (size_t)devices * num_args, no = (size_t)devices * num_results;
  AT_TRY_ALLOC(in, at_new(a, at_buffer *, ni + 1));
  AT_TRY_ALLOC(results, at_new(a, at_buffer *, no + 1));
  AT_TRY_ALLOC(chips, at_new(a, at_chip *, devices));
  at_status st = AT_OK;
  for (uint32_t d = 0; d < devices; d++)
    chips[d] = at_runtime_chip(g_runtime, d);
  for (size_t i = 0; i < ni && at_ok(st); i++)
    st = upload(chips[i / num_args], args[i / num_args][i % num_args], &in[i]);
  at_event *done = NULL;
  if (at_ok(st)) {
    at_launch launch = {.chip = chips[0],
                        .chips = chips,
                        .num_chips = devices == 1 ? 0 : devices,
                        .args = in,
                        .num_args = num_args};
    st = at_island_launch(g_island, l, &launch, results, &done);
  }
  if (at_ok(st)) st = at_event_wait(done);
  if (done) at_event_release(done);
  for (size_t i = 0; i < no && at_ok(st); i++)
    st = download(a, results[i], &out[i / num_results][i % num_results]);
  release_all(in, ni);
  release_all(results, no);
  return st;
}

at_status run_once(at_arena *a, at_loaded *l, const at_comp *c,
                   const at_literal **args, const at_literal **out) {
  return run_devices(a, l, 1, c->num_params, &args, c->num_results, &out);
}

at_status run_load(const at_module *m, bool count, at_loaded **out) {
  AT_TRY(load(m, out));
  if (count) coverage_count_steps(*out);
  return AT_OK;
}

void run_drop(at_loaded *l) {
  if (l) at_loaded_release(l);
}

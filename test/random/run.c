// Compiles and runs a module on this process's runtime.
#include "run.h"

#include <stdlib.h>

#include "base/config.h"
#include "compile/compile.h"
#include "coverage.h"

static at_runtime *g_runtime;

at_status run_start(void) {
  // Dots in full precision: the evaluator does not imitate the chip's passes.
  AT_TRY(at_config_set(AT_CONFIG_NUMERICS, "exact"));
  return at_runtime_create(&(at_runtime_options){.threads = 2}, &g_runtime);
}

void run_stop(void) { at_runtime_destroy(g_runtime); }

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

static at_status upload(const at_literal *l, at_buffer **out) {
  at_chip *chip = at_runtime_chip(g_runtime, 0);
  at_host_array h = {
      .dtype = l->type.dtype, .dims = at_type_dims(&l->type), .data = l->data};
  at_event *done;
  AT_TRY(at_buffer_from_host(chip, AT_MEM_DEVICE, &h,
                             AT_HOST_IMMUTABLE_ONLY_DURING_CALL, out, &done));
  at_status st = at_event_wait(done);
  at_event_release(done);
  return st;
}

static at_status download(at_arena *a, at_buffer *b, at_type t,
                          const at_literal **out) {
  at_event *done;
  uint8_t *data = at_arena_alloc(a, at_type_bytes(&t) + 1, 64);
  if (!data) return AT_NO_MEMORY("result");
  AT_TRY(at_buffer_to_host(b, data, 0, at_type_bytes(&t), &done));
  at_status st = at_event_wait(done);
  at_event_release(done);
  AT_TRY(st);
  return at_literal_make(a, t, data, false, true, out);
}

at_status run_once(at_arena *a, at_loaded *l, const at_comp *c,
                   const at_literal **args, const at_literal **out) {
  at_buffer **in, **results;
  AT_TRY_ALLOC(in, at_new(a, at_buffer *, c->num_params + 1));
  AT_TRY_ALLOC(results, at_new(a, at_buffer *, c->num_results + 1));
  at_status st = AT_OK;
  for (uint32_t i = 0; i < c->num_params && at_ok(st); i++)
    st = upload(args[i], &in[i]);
  at_event *done = NULL;
  if (at_ok(st)) {
    at_launch launch = {.chip = at_runtime_chip(g_runtime, 0),
                        .args = in,
                        .num_args = c->num_params};
    st = at_loaded_execute(l, &launch, results, &done);
  }
  if (at_ok(st)) st = at_event_wait(done);
  if (done) at_event_release(done);
  for (uint32_t i = 0; i < c->num_results && at_ok(st); i++)
    st = download(a, results[i], *at_value_type(c->results[i]), &out[i]);
  for (uint32_t i = 0; i < c->num_params; i++)
    if (in[i]) at_buffer_release(in[i]);
  for (uint32_t i = 0; i < c->num_results; i++)
    if (results[i]) at_buffer_release(results[i]);
  return st;
}

at_status run_load(const at_module *m, bool count, at_loaded **out) {
  AT_TRY(load(m, out));
  if (count) coverage_count_steps(*out);
  return AT_OK;
}

void run_drop(at_loaded *l) {
  if (l) at_loaded_release(l);
}

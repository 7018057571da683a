// Custom calls and host callbacks.
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "exec/custom_internal.h"
#include "exec/exec_internal.h"
#include "exec/exec_test_util.h"

// ---- A writer of abi/attrdict.h
static void put(at_strbuf *b, const void *p, size_t n) {
  at_strbuf_add(b, (at_str){p, n});
}
static void put_u8(at_strbuf *b, uint8_t v) { put(b, &v, 1); }
static void put_u32(at_strbuf *b, uint32_t v) { put(b, &v, 4); }
static void put_i64(at_strbuf *b, int64_t v) { put(b, &v, 8); }
// A length of four bytes, then the text.
static void put_text(at_strbuf *b, const char *z) {
  put_u32(b, (uint32_t)strlen(z));
  put(b, z, strlen(z));
}
// An integer of `bits` bits, signed; key NULL: an element of a list.
static void put_int(at_strbuf *b, const char *key, uint8_t bits, int64_t v) {
  if (key) put_text(b, key);
  put_u8(b, 2);
  put_u8(b, bits);
  put_u8(b, 0);
  put_i64(b, v);
}
// A float of type t, written as a double.
static void put_float(at_strbuf *b, const char *key, at_dtype t, double v) {
  put_text(b, key);
  put_u8(b, 3);
  put_u8(b, (uint8_t)t);
  put(b, &v, 8);
}

// One value of every kind, keys not in order.
static at_strbuf sample_dict(void) {
  at_strbuf b = {0};
  put_u32(&b, 7);
  put_int(&b, "zeta", 32, -5);
  put_float(&b, "scale", AT_F32, 2.5);
  put_text(&b, "name");
  put_u8(&b, 4);
  put_text(&b, "hello");
  put_text(&b, "inner");
  put_u8(&b, 6);
  put_u32(&b, 1);
  put_float(&b, "half", AT_BF16, 1.5);
  put_text(&b, "list");
  put_u8(&b, 5);
  put_u32(&b, 2);
  put_int(&b, NULL, 64, 7);
  put_int(&b, NULL, 64, 9);
  put_text(&b, "dense");
  put_u8(&b, 7);
  put_u8(&b, AT_F32);
  put_u8(&b, 1);  // splat of 2 x 2
  put_u32(&b, 2);
  put_i64(&b, 2);
  put_i64(&b, 2);
  put_u32(&b, 4);
  put(&b, &(float){3}, 4);
  put_text(&b, "flag");
  put_u8(&b, 1);
  put_u8(&b, 1);
  return b;
}

// Names ascending, values in the widths of their types (bf16 1.5 is 0x3fc0),
// splats spread out; and every prefix of the bytes is refused without a read
// beyond its end.
static void attributes_are_sorted_and_typed(void **state) {
  at_strbuf b = sample_dict();
  at_arena *a = at_arena_create();
  ffi_attrs d;
  OK(at_ffi_attrs((at_bytes){(uint8_t *)b.ptr, b.len}, a, &d));
  static const char *const names[] = {"dense", "flag",  "inner", "list",
                                      "name",  "scale", "zeta"};
  static const int32_t types[] = {1, 3, 2, 1, 4, 3, 3};
  assert_int_equal(d.size, 7);
  for (int i = 0; i < 7; i++) {
    assert_true(
        at_str_is((at_str){d.names[i]->ptr, d.names[i]->len}, names[i]));
    assert_int_equal(d.types[i], types[i]);
  }
  const ffi_array *dense = d.attrs[0], *list = d.attrs[3];
  assert_int_equal(dense->size, 4);
  assert_true(((float *)dense->data)[3] == 3);
  assert_int_equal(list->dtype, 5);
  assert_int_equal(((int64_t *)list->data)[1], 9);
  const ffi_attrs *inner = d.attrs[2];
  const ffi_scalar *half = inner->attrs[0];
  assert_int_equal(half->dtype, 16);
  assert_int_equal(*(uint16_t *)half->value, 0x3fc0);
  const ffi_span *name = d.attrs[4];
  assert_memory_equal(name->ptr, "hello", 5);
  assert_int_equal(*(int32_t *)((ffi_scalar *)d.attrs[6])->value, -5);
  // Every shorter text is refused, never read beyond.
  for (size_t n = 1; n < b.len; n++) {
    uint8_t *cut = malloc(n);
    memcpy(cut, b.ptr, n);
    assert_int_not_equal(at_code_take(at_ffi_attrs((at_bytes){cut, n}, a, &d)),
                         0);
    free(cut);
  }
  at_strbuf_free(&b);
  at_arena_destroy(a);
}

// ---- Handlers
static ffi_error *scale_handler(ffi_call_frame *f) {
  const ffi_buffer *x = f->args.args[0], *y = f->rets.args[0];
  if (f->stage != 3 || f->args.size != 1 || f->rets.size != 1 ||
      x->dtype != 11 || x->rank != 1 || at_in_fiber()) {
    ffi_error_create_args e = {.message = "unexpected call", .code = 3};
    return f->api->error_create(&e);
  }
  ffi_allocate_args m = {.ctx = f->ctx, .size = 1000, .alignment = 64};
  if (f->api->memory_allocate(&m) || !m.data) return NULL;
  memset(m.data, 1, 1000);
  f->api->memory_free(
      &(ffi_free_args){.ctx = f->ctx, .size = 1000, .data = m.data});
  const ffi_scalar *scale = f->attrs.attrs[5];
  for (int64_t i = 0; i < x->dims[0]; i++)
    ((float *)y->data)[i] = ((float *)x->data)[i] * *(float *)scale->value;
  return NULL;
}

// Fails with a code and a text of its own.
static ffi_error *failing_handler(ffi_call_frame *f) {
  ffi_error_create_args e = {.message = "no such thing", .code = AT_NOT_FOUND};
  return f->api->error_create(&e);
}

typedef struct later {
  const ffi_api *api;
  ffi_future *future;
  float *to;
} later;
// Runs on a thread of its own after the handler has returned: writes the
// result, then fires the future.
static void finish_later(void *arg) {
  later *l = arg;
  usleep(1000);
  for (int i = 0; i < 4; i++) l->to[i] = 42;
  l->api->future_set_available(&(ffi_future_args){.future = l->future});
  free(l);
}
// Returns at once and leaves a future behind.
static ffi_error *async_handler(ffi_call_frame *f) {
  ffi_future_args make = {0};
  f->api->future_create(&make);
  f->future = make.future;
  later *l = malloc(sizeof *l);
  *l = (later){f->api, make.future, ((ffi_buffer *)f->rets.args[0])->data};
  return f->api->thread_schedule(
      &(ffi_schedule_args){.ctx = f->ctx, .task = finish_later, .data = l});
}

// The first custom-call ABI: (result, operands), no errors.
static void original_handler(void *result, const void **operands) {
  for (int i = 0; i < 4; i++)
    ((float *)result)[i] = -((const float *)operands[0])[i];
}

// y = target(x) with the sample attributes. version: the API version of the
// call, 1 and 2 original, 4 FFI.
static at_bytes custom_program(const char *target, int64_t version) {
  builder b = b_new();
  uint32_t t = b_f32(&b, 4), x = b_input(&b, t), y = b_output(&b, t);
  for (uint32_t i = 1; i < 3; i++)
    ((at_xslot *)(void *)b.s[AT_XS_SLOTS].ptr)[i].type = t;
  at_strbuf dict = sample_dict();
  at_xstep *s = b_step(&b, AT_STEP_CUSTOM, b_string(&b, target), ARGS(x, y));
  s->params = b_bytes(&b, AT_XS_PARAMS, dict.ptr, dict.len, 16);
  s->params_bytes = (uint32_t)dict.len;
  s->tasks = version;
  s->aux = 1;
  at_strbuf_free(&dict);
  b.h.has_effects = 1;
  return b_finish(&b, 0);
}

// Loads and runs it once; v: operand in, result out. Returns the launch's code
// and its message.
static at_code run_custom(at_runtime *rt, const char *target, int64_t version,
                          float *v, char *message) {
  at_chip *c = at_runtime_chip(rt, 0);
  at_loaded *l = test_load(rt, custom_program(target, version));
  at_buffer *a = test_array(c, v, 4), *out;
  at_event *done;
  OK(at_loaded_execute(l, &(at_launch){.chip = c, .args = &a, .num_args = 1},
                       &out, &done));
  at_status st = at_event_wait(done);
  snprintf(message, 256, "%s", at_status_message(st));
  if (!st.err) test_fetch(out, v, 4);
  at_event_release(done);
  at_buffer_release(out);
  at_buffer_release(a);
  at_loaded_release(l);
  return at_code_take(st);
}

// Both ABIs, an error and a future reach the launch; a version that does not
// fit the registration is UNIMPLEMENTED, a registration without a name
// INVALID_ARGUMENT.
static void handlers_are_called(void **state) {
  at_runtime *rt = test_runtime("v6e", 2);
  char m[256];
  OK(at_custom_register(AT_STR("scale"), AT_CUSTOM_FFI, (void *)scale_handler,
                        0));
  OK(at_custom_register(AT_STR("fails"), AT_CUSTOM_FFI, (void *)failing_handler,
                        0));
  OK(at_custom_register(AT_STR("async"), AT_CUSTOM_FFI, (void *)async_handler,
                        0));
  OK(at_custom_register(AT_STR("old"), AT_CUSTOM_LEGACY,
                        (void *)original_handler, 0));
  float v[4] = {1, 2, 3, 4};
  assert_int_equal(run_custom(rt, "scale", 4, v, m), 0);
  assert_true(v[0] == 2.5f && v[3] == 10);
  assert_int_equal(run_custom(rt, "async", 4, v, m), 0);
  assert_true(v[0] == 42 && v[3] == 42);
  assert_int_equal(run_custom(rt, "old", 1, v, m), 0);
  assert_true(v[0] == -42);
  assert_int_equal(run_custom(rt, "fails", 4, v, m), AT_NOT_FOUND);
  assert_non_null(strstr(m, "no such thing"));
  v[0] = 7;
  assert_int_equal(run_custom(rt, "dce_sink", 4, v, m), 0);
  assert_int_equal(run_custom(rt, "scale", 1, v, m), AT_UNIMPLEMENTED);
  assert_int_equal(run_custom(rt, "old", 2, v, m), AT_UNIMPLEMENTED);
  assert_int_equal(
      at_code_take(at_custom_register(AT_STR(""), AT_CUSTOM_FFI, m, 0)),
      AT_INVALID_ARGUMENT);
  at_runtime_destroy(rt);
}

// Who calls nobody is told when the program is loaded.
static void programs_without_handlers_are_not_loaded(void **state) {
  at_runtime *rt = test_runtime("v6e", 2);
  at_loaded *l = NULL;
  at_bytes program = custom_program("unknown", 4);
  at_status st = at_loaded_create(rt, program, &l);
  assert_null(l);
  assert_non_null(strstr(at_status_message(st), "\"unknown\""));
  assert_int_equal(at_code_take(st), AT_UNIMPLEMENTED);
  OK(at_custom_register(AT_STR("unknown"), AT_CUSTOM_FFI, (void *)scale_handler,
                        0));
  OK(at_loaded_create(rt, program, &l));
  at_loaded_release(l);
  free((void *)program.ptr);
  at_runtime_destroy(rt);
}

// ---- Callbacks
typedef struct host {
  float got[4];
  int sends;
  bool in_fiber, fail;
  at_event *pending;
  void *dst;
} host;

// Notes what came and on what stack; may raise.
static at_status on_send(void *user, const void *data, size_t bytes,
                         size_t total, bool done) {
  host *h = user;
  if (h->fail) return AT_FAIL(AT_CANCELLED, "the callback raised");
  h->sends += bytes == 16 && total == 16 && done;
  h->in_fiber |= at_in_fiber();
  memcpy(h->got, data, bytes);
  return AT_OK;
}
// Fills the RECV from another thread, some time later.
static void *answer(void *arg) {
  host *h = arg;
  usleep(2000);
  for (int i = 0; i < 4; i++) ((float *)h->dst)[i] = h->got[i] * 100;
  at_event_fire(h->pending, AT_OK);
  at_event_release(h->pending);
  return NULL;
}
// Returns before the bytes are there: the step has to wait for the event.
static at_status on_recv(void *user, void *dst, size_t bytes, at_event *done) {
  host *h = user;
  h->dst = dst;
  h->pending = at_event_retain(done);
  pthread_t t;
  pthread_create(&t, NULL, answer, h);
  pthread_detach(t);
  return AT_OK;
}

// A value goes out through SEND and a hundredfold comes back through RECV,
// outside of fibers. A callback's error is the launch's; a channel that nobody
// serves is INVALID_ARGUMENT.
static void callbacks_go_there_and_back(void **state) {
  at_runtime *rt = test_runtime("v6e", 2);
  at_chip *c = at_runtime_chip(rt, 0);
  builder b = b_new();
  uint32_t t = b_f32(&b, 4), x = b_input(&b, t), y = b_output(&b, t);
  b_step(&b, AT_STEP_SEND, 0, ARGS(x))->aux = 7;
  b_step(&b, AT_STEP_RECV, 0, ARGS(y))->aux = 8;
  b.h.has_effects = 1;
  at_loaded *l = test_load(rt, b_finish(&b, 0));
  host h = {.sends = 0};
  at_host_channel channels[2] = {{7, on_send, NULL, &h},
                                 {8, NULL, on_recv, &h}};
  at_channel_list list = {channels, 2};
  float v[4] = {1, 2, 3, 4};
  at_buffer *a = test_array(c, v, 4), *out;
  at_launch in = {.chip = c, .args = &a, .num_args = 1, .channels = &list};
  OK(at_loaded_execute(l, &in, &out, NULL));
  test_fetch(out, v, 4);
  assert_true(v[0] == 100 && v[3] == 400 && h.sends == 1 && !h.in_fiber);
  at_buffer_release(out);
  h.fail = true;
  OK(at_loaded_execute(l, &in, &out, NULL));
  assert_int_equal(at_code_take(at_event_wait(at_buffer_ready(out))),
                   AT_CANCELLED);
  at_buffer_release(out);
  list.count = 0;
  OK(at_loaded_execute(l, &in, &out, NULL));
  assert_int_equal(at_code_take(at_event_wait(at_buffer_ready(out))),
                   AT_INVALID_ARGUMENT);
  at_buffer_release(out);
  at_buffer_release(a);
  at_loaded_release(l);
  at_runtime_destroy(rt);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(attributes_are_sorted_and_typed),
      cmocka_unit_test(handlers_are_called),
      cmocka_unit_test(programs_without_handlers_are_not_loaded),
      cmocka_unit_test(callbacks_go_there_and_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

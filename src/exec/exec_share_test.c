// Outputs that are arguments which the caller keeps: one memory, several
// buffers.
#include <pthread.h>
#include <unistd.h>

#include "exec/exec_test_util.h"

enum { N = 300 };

// (x + 1, x): the second output lives in the input's slot.
static at_bytes pass_program(double ns) {
  builder b = b_new();
  uint32_t t = b_f32(&b, N), x = b_input(&b, t), y = b_output(&b, t);
  b_output(&b, t);
  ((at_xio *)(void *)b.s[AT_XS_OUTPUTS].ptr)[1].slot = x;
  b_call(&b, "k_inc", N, N, ARGS(x, y));
  b.h.estimated_ns = ns;
  return b_finish(&b, 0);
}

// x + 1 where x is.
static at_bytes donating_program(void) {
  builder b = b_new();
  uint32_t t = b_f32(&b, N);
  b_input(&b, t);
  uint32_t y = b_output(&b, t);
  b_alias(&b, 0, 0);
  b_call(&b, "k_inc", N, N, ARGS(y, y));
  return b_finish(&b, 0);
}

// One launch on x; out: both outputs.
static void run(at_loaded *l, at_chip *c, at_buffer *x, at_buffer **out) {
  OK(at_loaded_execute(l, &(at_launch){.chip = c, .args = &x, .num_args = 1},
                       out, NULL));
}

// All elements are want + their index.
static void expect(at_buffer *b, float want) {
  float v[N];
  test_fetch(b, v, N);
  for (int i = 0; i < N; i++) assert_true(v[i] == want + (float)i);
}

// 0, 1, 2, ...
static at_buffer *counting(at_chip *c) {
  float v[N];
  for (int i = 0; i < N; i++) v[i] = (float)i;
  return test_array(c, v, N);
}

// The memory lives as long as anyone shows it, and chains do not grow.
static void nothing_is_copied(void **state) {
  at_runtime *rt = test_runtime("v6e", 2);
  at_chip *c = at_runtime_chip(rt, 0);
  for (int queued = 0; queued < 2; queued++) {
    at_loaded *l = test_load(rt, pass_program(queued ? 1e9 : 1));
    at_buffer *x = counting(c), *out[2];
    const void *place = at_buffer_data(x);
    uint64_t one = at_chip_memory_stats(c).in_use;
    for (int i = 0; i < 20; i++) {
      run(l, c, x, out);
      OK(at_event_wait(at_buffer_ready(out[1])));
      assert_ptr_equal(at_buffer_data(out[1]), place);
      if (i == 3) at_buffer_delete(x);
      at_buffer_release(x);
      expect(out[0], 1);
      at_buffer_release(out[0]);
      x = out[1];
    }
    expect(x, 0);
    // The chip would have copied: one is charged for it, one for the source.
    assert_true(at_chip_memory_stats(c).in_use == 2 * one);
    at_buffer_release(x);
    assert_true(at_chip_memory_stats(c).in_use == 0);
    at_loaded_release(l);
  }
  at_runtime_destroy(rt);
}

// Who donates one of them gets a copy; the others keep their values.
static void donations_copy(void **state) {
  at_runtime *rt = test_runtime("v6e", 1);
  at_chip *c = at_runtime_chip(rt, 0);
  at_loaded *pass = test_load(rt, pass_program(1));
  at_loaded *donate = test_load(rt, donating_program());
  for (int which = 0; which < 2; which++) {
    at_buffer *x = counting(c), *out[2], *moved, *last;
    run(pass, c, x, out);
    at_buffer *given = which ? out[1] : x, *kept = which ? x : out[1];
    run(donate, c, given, &moved);
    assert_true(at_buffer_is_deleted(given));
    expect(moved, 1);
    expect(kept, 0);
    at_buffer_release(given);
    run(donate, c, kept, &last);  // the only one left, or a face of a dead one
    expect(last, 1);
    at_buffer_release(kept);
    at_buffer_release(last);
    at_buffer_release(moved);
    at_buffer_release(out[0]);
    assert_true(at_chip_memory_stats(c).in_use == 0);
  }
  at_loaded_release(pass);
  at_loaded_release(donate);
  at_runtime_destroy(rt);
}

// A view of the caller's memory is not passed on as an output: the caller may
// write it once its buffer is gone.
static void foreign_memory_is_copied(void **state) {
  at_runtime *rt = test_runtime("v6e", 1);
  at_chip *c = at_runtime_chip(rt, 0);
  at_loaded *l = test_load(rt, pass_program(1));
  static _Alignas(64) float host[N];
  for (int i = 0; i < N; i++) host[i] = (float)i;
  int64_t n = N;
  at_buffer *x, *out[2];
  OK(at_buffer_view(c, AT_MEM_DEVICE, AT_F32, (at_dims){&n, 1}, host, NULL,
                    NULL, &x));
  run(l, c, x, out);
  at_buffer_release(x);
  host[0] = 7;
  expect(out[1], 0);
  at_buffer_release(out[0]);
  at_buffer_release(out[1]);
  at_loaded_release(l);
  at_runtime_destroy(rt);
}

// An input that another output takes over has no memory to pass on; and sizes
// must agree.
static void malformed_programs_are_refused(void **state) {
  at_runtime *rt = test_runtime("v6e", 1);
  for (int how = 0; how < 2; how++) {
    builder b = b_new();
    uint32_t t = b_f32(&b, N), x = b_input(&b, t), y = b_output(&b, t);
    b_output(&b, how ? b_f32(&b, N + 1) : t);
    ((at_xio *)(void *)b.s[AT_XS_OUTPUTS].ptr)[1].slot = x;
    if (!how) b_alias(&b, 0, 0);
    b_call(&b, "k_inc", N, N, ARGS(x, y));
    at_bytes block = b_finish(&b, 0);
    at_loaded *l = NULL;
    at_status st = at_loaded_create(rt, block, &l);
    assert_non_null(
        strstr(at_status_message(st), "output 1 lives in the wrong slot"));
    at_status_free(st);
    free((void *)block.ptr);
  }
  at_runtime_destroy(rt);
}

typedef struct worker {
  at_loaded *pass, *donate;
  at_chip *chip;
  at_buffer *x;
} worker;

// Again and again shares one array and donates the face of it, while others do
// the same.
static void *share_and_donate(void *arg) {
  worker *w = arg;
  for (int i = 0; i < 200; i++) {
    at_buffer *out[2], *moved;
    run(w->pass, w->chip, w->x, out);
    at_buffer_release(out[0]);
    run(w->donate, w->chip, out[1], &moved);
    at_buffer_release(out[1]);
    if (i % 50 == 0) expect(moved, 1);
    at_buffer_release(moved);
  }
  return NULL;
}

// Three threads share x at once; x keeps its values, and all memory comes back.
static void threads_share(void **state) {
  at_runtime *rt = test_runtime("v6e", 2);
  at_chip *c = at_runtime_chip(rt, 0);
  worker w = {test_load(rt, pass_program(1)), test_load(rt, donating_program()),
              c, counting(c)};
  pthread_t t[3];
  for (int i = 0; i < 3; i++) pthread_create(&t[i], NULL, share_and_donate, &w);
  for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
  expect(w.x, 0);
  at_buffer_release(w.x);
  at_loaded_release(w.pass);
  at_loaded_release(w.donate);
  // What was queued last may still run.
  for (int i = 0; i < 5000 && at_chip_memory_stats(c).in_use; i++) usleep(1000);
  assert_true(at_chip_memory_stats(c).in_use == 0);
  at_runtime_destroy(rt);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nothing_is_copied),
      cmocka_unit_test(donations_copy),
      cmocka_unit_test(foreign_memory_is_copied),
      cmocka_unit_test(malformed_programs_are_refused),
      cmocka_unit_test(threads_share),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

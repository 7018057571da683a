// Every allocation fails once: the first, the second, ... until the whole
// scenario gets through. Each failure must be a status, leave nothing behind,
// and keep nobody waiting. Sanitizers own malloc, so there this test has
// nothing to do.
#include "exec/exec_internal.h"
#include "exec/exec_test_util.h"

#include <errno.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SKIP 1
#endif
#endif

static _Thread_local long t_countdown;  // 0: off; 1: the next one fails

#ifndef SKIP
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
// Counts down allocations of this thread; true: this is the one that fails. The
// runtime's own threads are not counted.
static bool refuse(void) {
  if (t_countdown <= 0 || --t_countdown > 0) return false;
  errno = ENOMEM;
  return true;
}
void *malloc(size_t n) { return refuse() ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t k) {
  return refuse() ? NULL : __libc_calloc(n, k);
}
void *realloc(void *p, size_t n) {
  return refuse() ? NULL : __libc_realloc(p, n);
}
void *aligned_alloc(size_t a, size_t n) {
  return refuse() ? NULL : __libc_memalign(a, n);
}
#endif

// y = x + 2 where x is, and in a second output, through scratch.
static at_bytes program(double ns) {
  builder b = b_new();
  uint32_t t = b_f32(&b, 1000);
  uint32_t x = b_input(&b, t), y = b_output(&b, t), z = b_output(&b, t);
  b_alias(&b, 0, 0);
  (void)x;
  uint32_t temp = b_slot(&b, AT_SLOT_TEMP, 0, 0, 4000);
  b_call(&b, "k_inc", 1000, 1000, ARGS(y, temp));
  b_call(&b, "k_inc", 1000, 1000, ARGS(temp, z));
  b.h.estimated_ns = ns;
  return b_finish(&b, 0);
}

// The buffers that a step has made so far.
typedef struct things {
  at_loaded *loaded;
  at_buffer *in, *out[2], *copy;
  at_event *uploaded, *done, *read;
} things;

// The scenario: load, upload, launch, copy to pinned host memory, read. Stops
// at the first failure; `t` has what was made so far.
static at_status use(at_runtime *rt, at_bytes block, things *t, float *got) {
  at_chip *c = at_runtime_chip(rt, 0);
  static float v[1000];
  int64_t n = 1000;
  at_host_array src = {AT_F32, {&n, 1}, NULL, v};
  AT_TRY(at_loaded_create(rt, block, &t->loaded));
  AT_TRY(at_buffer_from_host(c, AT_MEM_DEVICE, &src,
                             AT_HOST_IMMUTABLE_ONLY_DURING_CALL, &t->in,
                             &t->uploaded));
  AT_TRY(at_loaded_execute(
      t->loaded, &(at_launch){.chip = c, .args = &t->in, .num_args = 1}, t->out,
      &t->done));
  AT_TRY(at_event_wait(t->done));
  AT_TRY(at_buffer_copy_to(t->out[1], c, AT_MEM_PINNED_HOST, &t->copy));
  AT_TRY(at_event_wait(at_buffer_ready(t->copy)));
  AT_TRY(at_buffer_to_host(t->copy, got, 0, 4000, &t->read));
  return at_event_wait(t->read);
}

// Releases what `use` made; all of it may be NULL.
static void drop(things *t) {
  at_buffer_release(t->in);
  at_buffer_release(t->out[0]);
  at_buffer_release(t->out[1]);
  at_buffer_release(t->copy);
  at_event_release(t->uploaded);
  at_event_release(t->done);
  at_event_release(t->read);
  at_loaded_release(t->loaded);
}

// The n-th allocation fails, for n = 1, 2, ... until one run reaches no failing
// one: each earlier run must end with OK or RESOURCE_EXHAUSTED, nothing
// accounted, and a runtime that can be destroyed.
static void every_allocation_may_fail(void **state) {
#ifdef SKIP
  skip();
#endif
  static float got[1000];
  for (int queued = 0; queued < 2; queued++) {
    at_bytes block = program(queued ? 1e9 : 1);
    bool reached = true;  // the n-th allocation took place, and failed
    int failures = 0;
    for (long n = 1; reached; n++) {
      assert_true(n < 500);
      at_runtime *rt = test_runtime("v6e", 1);
      things t = {0};
      t_countdown = n;
      at_status st = use(rt, block, &t, got);
      reached = t_countdown == 0;
      t_countdown = 0;
      at_code last = at_code_take(st);
      assert_true(last == AT_OK_CODE || last == AT_RESOURCE_EXHAUSTED);
      failures += last != AT_OK_CODE;
      drop(&t);
      at_memory_stats s = at_chip_memory_stats(at_runtime_chip(rt, 0));
      assert_true(s.in_use == 0);
      at_runtime_destroy(rt);  // would wait for ever for a lost launch
    }
    assert_true(failures > 10);
    assert_true(got[0] == 2 && got[999] == 2);
    free((void *)block.ptr);
  }
}

// The same of at_runtime_create, until it succeeds.
static void the_runtime_itself_may_fail(void **state) {
#ifdef SKIP
  skip();
#endif
  at_runtime *rt = NULL;
  at_runtime_options o = {.target = "2*v6e", .threads = 2};
  for (long n = 1; !rt; n++) {
    assert_true(n < 500);
    t_countdown = n;
    at_code code = at_code_take(at_runtime_create(&o, &rt));
    t_countdown = 0;
    assert_true(code == AT_OK_CODE || code == AT_RESOURCE_EXHAUSTED);
  }
  at_runtime_destroy(rt);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_allocation_may_fail),
      cmocka_unit_test(the_runtime_itself_may_fail),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

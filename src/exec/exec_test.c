// Buffers, launches, donation, errors and order, with hand-made executables.
#include "exec/exec_internal.h"
#include "exec/exec_test_util.h"

#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "profile/profile.h"

// z = x + y over n floats. ns: the estimate, which decides whether a launch
// runs on the caller's thread (1) or is queued (1e9). Above 64 elements the
// kernel is cut into tasks.
static at_bytes add_program(int64_t n, double ns) {
  builder b = b_new();
  uint32_t t = b_f32(&b, n);
  uint32_t x = b_input(&b, t), y = b_input(&b, t), z = b_output(&b, t);
  b_call(&b, "k_add", n, n > 64 ? 16 : n, ARGS(x, y, z));
  b.h.estimated_ns = ns;
  return b_finish(&b, 0);
}

// out = in + 1, `times` times through scratch; input 0 is donated when asked.
static at_bytes inc_program(int64_t n, int times, bool alias, double ns) {
  builder b = b_new();
  uint32_t t = b_f32(&b, n);
  uint32_t x = b_input(&b, t), y = b_output(&b, t);
  if (alias) {
    b_alias(&b, 0, 0);
    x = y;
  }
  uint64_t bytes = (uint64_t)n * 4;
  uint32_t s[2] = {b_slot(&b, AT_SLOT_TEMP, 0, 0, bytes),
                   b_slot(&b, AT_SLOT_TEMP, 0, at_align_up(bytes, 64), bytes)};
  for (int i = 0; i < times; i++)
    b_call(&b, "k_inc", n, n,
           ARGS(i ? s[i & 1] : x, i + 1 < times ? s[(i + 1) & 1] : y));
  b.h.estimated_ns = ns;
  return b_finish(&b, 0);
}

// One launch with one output, which is the caller's.
static at_buffer *run1(at_loaded *l, at_chip *c, at_buffer **args, uint32_t n) {
  at_buffer *out = NULL;
  OK(at_loaded_execute(l, &(at_launch){.chip = c, .args = args, .num_args = n},
                       &out, NULL));
  return out;
}

// Sizes around a task's and a block's, each on the caller's thread and queued:
// the first is done when the call returns, and neither leaves memory accounted.
static void adds_small_and_large(void **state) {
  at_runtime *rt = test_runtime("v6e", 2);
  at_chip *c = at_runtime_chip(rt, 0);
  static const int64_t sizes[] = {1, 8, 63, 1000, 100000};
  static const double ns[] = {100, 1e9};
  for (size_t k = 0; k < AT_LEN(sizes) * 2; k++) {
    int64_t n = sizes[k / 2];
    float *x = malloc((size_t)n * 4), *y = malloc((size_t)n * 4);
    for (int64_t i = 0; i < n; i++) x[i] = (float)i, y[i] = 2.5f * (float)i;
    at_loaded *l = test_load(rt, add_program(n, ns[k % 2]));
    at_buffer *a[2] = {test_array(c, x, n), test_array(c, y, n)};
    at_buffer *z = run1(l, c, a, 2);
    if (k % 2 == 0) assert_true(at_buffer_is_ready(z));
    test_fetch(z, x, n);
    for (int64_t i = 0; i < n; i++) assert_true(x[i] == 3.5f * (float)i);
    at_buffer_release(z);
    at_buffer_release(a[0]);
    at_buffer_release(a[1]);
    at_loaded_release(l);
    free(x);
    free(y);
  }
  assert_true(at_chip_memory_stats(c).in_use == 0);
  at_runtime_destroy(rt);
}

// Code that calls a function of the runtime (expf), and that reads .data,
// .rodata and .bss of its object: relocations of each kind hold.
static void runs_imports_and_every_section(void **state) {
  at_runtime *rt = test_runtime("v6e", 1);
  at_chip *c = at_runtime_chip(rt, 0);
  builder b = b_new();
  uint32_t t = b_f32(&b, 4);
  uint32_t x = b_input(&b, t), y = b_output(&b, t), z = b_output(&b, t);
  b_call(&b, "k_exp", 4, 4, ARGS(x, y));
  b_call(&b, "k_sections", 4, 4, ARGS(z));
  at_loaded *l = test_load(rt, b_finish(&b, 0));
  float v[4] = {0, 1, -INFINITY, NAN};
  at_buffer *a = test_array(c, v, 4), *out[2];
  OK(at_loaded_execute(l, &(at_launch){.chip = c, .args = &a, .num_args = 1},
                       out, NULL));
  test_fetch(out[0], v, 4);
  assert_true(v[0] == 1 && fabsf(v[1] - 2.7182817f) < 1e-6f && v[2] == 0 &&
              isnan(v[3]));
  test_fetch(out[1], v, 4);
  assert_true(v[0] == 1 && v[1] == 10 && v[2] == 100 && v[3] == 1000);
  at_buffer_release(out[0]);
  at_buffer_release(out[1]);
  at_buffer_release(a);
  at_loaded_release(l);
  at_runtime_destroy(rt);
}

// A loop of ten turns and a CASE on the host's number, inline and queued.
// Numbers outside of the branches take the last one, negative ones included, as
// HLO says.
static void loops_and_branches(void **state) {
  at_runtime *rt = test_runtime("v6e", 1);
  at_chip *c = at_runtime_chip(rt, 0);
  for (int queued = 0; queued < 2; queued++) {
    builder b = b_new();
    uint32_t t = b_f32(&b, 1), i32 = b_type(&b, AT_S32, 0, NULL);
    uint32_t x = b_input(&b, t), which = b_input(&b, i32);
    uint32_t y = b_output(&b, t), z = b_output(&b, t);
    uint32_t pred = b_slot(&b, AT_SLOT_TEMP, 0, 0, 1);
    b_call(&b, "k_below_ten", 1, 1, ARGS(y, pred));  // 0: condition
    b_call(&b, "k_inc", 1, 1, ARGS(y, y));           // 1: body
    b_call(&b, "k_inc", 1, 1, ARGS(y, z));           // 2: branch 0
    b_call(&b, "k_exp", 1, 1, ARGS(x, z));           // 3: branch 1
    b_call(&b, "k_copy", 4, 4, ARGS(x, y));          // 4: y = x
    b_step(&b, AT_STEP_WHILE, 0, ARGS(pred, 0, 1, 1, 2));
    b_step(&b, AT_STEP_CASE, 0, ARGS(which, 2, 3, 3, 4));
    b.h.estimated_ns = queued ? 1e9 : 1;
    at_loaded *l = test_load(rt, b_finish(&b, 4));
    for (int32_t s = -1; s < 4; s++) {
      float v = 0, got;
      at_buffer *a[2] = {test_array(c, &v, 1)}, *out[2];
      at_event *done;
      at_host_array sel = {AT_S32, {NULL, 0}, NULL, &s};
      OK(at_buffer_from_host(c, AT_MEM_DEVICE, &sel,
                             AT_HOST_IMMUTABLE_UNTIL_TRANSFER, &a[1], &done));
      at_event_release(done);
      OK(at_loaded_execute(l, &(at_launch){.chip = c, .args = a, .num_args = 2},
                           out, &done));
      OK(at_event_wait(done));
      at_event_release(done);
      test_fetch(out[0], &got, 1);
      assert_true(got == 10);
      test_fetch(out[1], &got, 1);
      assert_true(got == (s == 0 ? 11.0f : 1.0f));  // out of range: the last
      for (int i = 0; i < 2; i++) {
        at_buffer_release(a[i]);
        at_buffer_release(out[i]);
      }
    }
    at_loaded_release(l);
  }
  at_runtime_destroy(rt);
}

// True: it ran on this thread.
static bool ran_here(at_loaded *l, at_chip *c, float turns) {
  at_buffer *a = test_array(c, &turns, 1), *out;
  at_event *done;
  OK(at_loaded_execute(l, &(at_launch){.chip = c, .args = &a, .num_args = 1},
                       &out, &done));
  const bool here = done == at_event_done();
  OK(at_event_wait(done));
  at_event_release(done);
  at_buffer_release(out);
  at_buffer_release(a);
  while (at_chip_queued(c)) sched_yield();
  return here;
}

// What the compiler expects of a loop of unknown length is a guess.
static void runs_correct_what_is_expected(void **state) {
  at_runtime *rt = test_runtime("v6e", 1);
  at_chip *c = at_runtime_chip(rt, 0);
  static const double kExpected[] = {1e6, 1e9};
  for (int known = 0; known < 2; known++) {
    builder b = b_new();
    uint32_t t = b_f32(&b, 1);
    b_call(&b, "k_turns", 1, 1, ARGS(b_input(&b, t), b_output(&b, t)));
    b.h.estimated_ns = kExpected[known];
    at_loaded *l = test_load(rt, b_finish(&b, 0));
    assert_false(ran_here(l, c, 0));
    assert_false(ran_here(l, c, 0));  // once is not enough
    bool here = false;
    for (int i = 0; i < 300 && !here; i++) here = ran_here(l, c, 0);
    assert_int_equal(here, !known);
    ran_here(l, c, 1e7f);  // that it is long after all shows in one run
    assert_false(ran_here(l, c, 0));
    at_loaded_release(l);
  }
  at_runtime_destroy(rt);
}

// An argument whose place the output takes: the result lies at the same address
// and the argument is deleted. not_donatable makes it a copy, and so does an
// external reference, whose bytes must not change. Donating it again is refused
// by name.
static void donation_reuses_memory(void **state) {
  at_runtime *rt = test_runtime("v6e", 2);
  at_chip *c = at_runtime_chip(rt, 0);
  for (int queued = 0; queued < 2; queued++) {
    at_loaded *l = test_load(rt, inc_program(5, 3, true, queued ? 1e9 : 1));
    float v[5] = {1, 2, 3, 4, 5};
    at_buffer *a = test_array(c, v, 5);
    const void *place = at_buffer_data(a);
    at_buffer *out = run1(l, c, &a, 1);
    assert_true(at_buffer_is_deleted(a));
    assert_null(at_buffer_data(a));
    OK(at_event_wait(at_buffer_ready(out)));
    assert_ptr_equal(at_buffer_data(out), place);
    test_fetch(out, v, 5);
    assert_true(v[0] == 4 && v[4] == 8);
    // The donated one is gone.
    at_buffer *again = NULL;
    at_status st = at_loaded_execute(
        l, &(at_launch){.chip = c, .args = &a, .num_args = 1}, &again, NULL);
    assert_non_null(
        strstr(at_status_message(st), "buffer has been deleted or donated"));
    assert_int_equal(at_code_take(st), AT_INVALID_ARGUMENT);
    // Kept by the caller: a copy, and the argument lives.
    bool keep = true;
    OK(at_loaded_execute(
        l,
        &(at_launch){
            .chip = c, .args = &out, .num_args = 1, .not_donatable = &keep},
        &again, NULL));
    assert_false(at_buffer_is_deleted(out));
    test_fetch(out, v, 5);
    assert_true(v[0] == 4);
    test_fetch(again, v, 5);
    assert_true(v[0] == 7);
    // Held from outside: donated, yet its memory is not touched.
    OK(at_buffer_acquire(again));
    const float *seen = at_buffer_data(again);
    at_buffer *third = run1(l, c, &again, 1);
    test_fetch(third, v, 5);
    assert_true(v[0] == 10 && seen[0] == 7);
    at_buffer_unacquire(again);
    at_buffer_release(third);
    at_buffer_release(again);
    at_buffer_release(out);
    at_buffer_release(a);
    at_loaded_release(l);
  }
  assert_true(at_chip_memory_stats(c).in_use == 0);
  at_runtime_destroy(rt);
}

// MUTABLE_ZERO_COPY takes the host's array as it is. Donating it must copy, and
// tells the host that nobody reads it any more.
static void foreign_memory_is_never_overwritten(void **state) {
  at_runtime *rt = test_runtime("v6e", 1);
  at_chip *c = at_runtime_chip(rt, 0);
  at_loaded *l = test_load(rt, inc_program(16, 1, true, 1));
  _Alignas(64) float host[16] = {1};
  int64_t n = 16;
  at_host_array src = {AT_F32, {&n, 1}, NULL, host};
  at_buffer *a;
  at_event *done;
  OK(at_buffer_from_host(c, AT_MEM_DEVICE, &src, AT_HOST_MUTABLE_ZERO_COPY, &a,
                         &done));
  assert_ptr_equal(at_buffer_data(a), host);
  assert_false(at_event_fired(done));
  at_buffer *out = run1(l, c, &a, 1);
  float v[16];
  test_fetch(out, v, 16);
  assert_true(v[0] == 2 && host[0] == 1);
  assert_true(at_event_fired(done));  // donated: nobody reads it any more
  at_buffer_release(a);
  at_buffer_release(out);
  at_event_release(done);
  at_loaded_release(l);
  at_runtime_destroy(rt);
}

// A NumPy array may be written once the call that put it is back.
static void arrays_are_copied_before_the_call_returns(void **state) {
  at_runtime *rt = test_runtime("v6e", 1);
  at_chip *c = at_runtime_chip(rt, 0);
  enum { kElements = 1 << 20 };
  float *host = aligned_alloc(64, kElements * sizeof *host);
  assert_non_null(host);
  for (int i = 0; i < kElements; i++) host[i] = 7;
  int64_t n = kElements;
  at_host_array src = {AT_F32, {&n, 1}, NULL, host};
  at_buffer *a;
  at_event *done;
  OK(at_buffer_from_host(c, AT_MEM_DEVICE, &src, AT_HOST_IMMUTABLE_ZERO_COPY,
                         &a, &done));
  assert_true(at_event_fired(done));
  for (int i = 0; i < kElements; i++) host[i] = 9;
  const float *kept = at_buffer_data(a);
  for (int i = 0; i < kElements; i++) assert_true(kept[i] == 7);
  at_event_release(done);
  at_buffer_release(a);
  free(host);
  at_runtime_destroy(rt);
}

// Three launches in a row on an array that then fails: the last result has the
// first error, as has a read; a launch on what has already failed fails at
// once.
static void errors_travel_with_buffers(void **state) {
  at_runtime *rt = test_runtime("v6e", 2);
  at_chip *c = at_runtime_chip(rt, 0);
  at_loaded *l = test_load(rt, inc_program(4, 1, false, 1));
  int64_t n = 4;
  at_buffer *a, *chain[3];
  OK(at_buffer_create(c, AT_MEM_DEVICE, AT_F32, (at_dims){&n, 1}, &a));
  chain[0] = run1(l, c, &a, 1);  // waits for a
  chain[1] = run1(l, c, &chain[0], 1);
  chain[2] = run1(l, c, &chain[1], 1);
  assert_false(at_buffer_is_ready(chain[2]));
  at_buffer_define(a, AT_FAIL(AT_DATA_LOSS, "lost"));
  assert_int_equal(at_code_take(at_event_wait(at_buffer_ready(chain[2]))),
                   AT_DATA_LOSS);
  at_event *done;
  float v[4];
  assert_int_equal(at_code_take(at_buffer_to_host(chain[1], v, 0, 16, &done)),
                   AT_DATA_LOSS);
  // A ready argument with an error fails at once.
  at_buffer *out;
  assert_int_equal(
      at_code_take(at_loaded_execute(
          l, &(at_launch){.chip = c, .args = &a, .num_args = 1}, &out, NULL)),
      AT_DATA_LOSS);
  for (int i = 0; i < 3; i++) at_buffer_release(chain[i]);
  at_buffer_release(a);
  at_loaded_release(l);
  at_runtime_destroy(rt);
}

// A launch on an array that is not defined yet waits without holding up another
// chip, and sees what is written later.
static void late_arguments_are_awaited(void **state) {
  at_runtime *rt = test_runtime("2*v6e", 2);
  at_chip *c = at_runtime_chip(rt, 0), *d = at_runtime_chip(rt, 1);
  at_loaded *l = test_load(rt, inc_program(4, 2, false, 1));
  int64_t n = 4;
  at_buffer *a;
  OK(at_buffer_create(c, AT_MEM_DEVICE, AT_F32, (at_dims){&n, 1}, &a));
  at_buffer *out = run1(l, c, &a, 1);
  assert_false(at_buffer_is_ready(out));
  // Another chip is not held up.
  float v[4] = {1, 1, 1, 1};
  at_buffer *b = test_array(d, v, 4), *other = run1(l, d, &b, 1);
  assert_true(at_buffer_is_ready(other));
  memcpy(at_buffer_data_mut(a), v, 16);
  at_buffer_define(a, AT_OK);
  test_fetch(out, v, 4);
  assert_true(v[3] == 3);
  at_buffer_release(a);
  at_buffer_release(b);
  at_buffer_release(out);
  at_buffer_release(other);
  at_loaded_release(l);
  at_runtime_destroy(rt);
}

// A chain of 3,000 launches that alternates between queued and inline: an
// inline one must not overtake what is queued on its chip.
static void launches_keep_their_order(void **state) {
  at_runtime *rt = test_runtime("v6e", 2);
  at_chip *c = at_runtime_chip(rt, 0);
  // Slow and queued, then small ones: a chain through donated memory.
  at_loaded *big = test_load(rt, inc_program(64, 1, true, 1e9));
  at_loaded *tiny = test_load(rt, inc_program(64, 1, true, 1));
  float v[64] = {0};
  at_buffer *x = test_array(c, v, 64);
  enum { N = 3000 };
  for (int i = 0; i < N; i++) {
    at_buffer *y = run1(i % 3 ? tiny : big, c, &x, 1);
    at_buffer_release(x);
    x = y;
  }
  test_fetch(x, v, 64);
  for (int i = 0; i < 64; i++) assert_true(v[i] == N);
  at_buffer_release(x);
  at_loaded_release(big);
  at_loaded_release(tiny);
  assert_true(at_chip_memory_stats(c).in_use == 0);
  at_runtime_destroy(rt);
}

// Wrong shape, wrong device, wrong count: INVALID_ARGUMENT with the argument's
// number and the expected shape. f32[8,1] passes as f32[8].
static void wrong_arguments_are_named(void **state) {
  at_runtime *rt = test_runtime("2*v6e", 1);
  at_chip *c = at_runtime_chip(rt, 0);
  at_loaded *l = test_load(rt, add_program(8, 1));
  float v[9] = {0};
  at_buffer *good = test_array(c, v, 8), *longer = test_array(c, v, 9);
  at_buffer *far = test_array(at_runtime_chip(rt, 1), v, 8), *out;
  at_buffer *sets[][2] = {{good, longer}, {good, far}};
  for (size_t i = 0; i < 2; i++) {
    at_status st = at_loaded_execute(
        l, &(at_launch){.chip = c, .args = sets[i], .num_args = 2}, &out, NULL);
    assert_non_null(strstr(at_status_message(st), "argument 1"));
    assert_non_null(strstr(at_status_message(st), "f32[8]"));
    assert_int_equal(at_code_take(st), AT_INVALID_ARGUMENT);
  }
  assert_int_equal(
      at_code_take(at_loaded_execute(
          l, &(at_launch){.chip = c, .args = sets[0], .num_args = 1}, &out,
          NULL)),
      AT_INVALID_ARGUMENT);
  // Dimensions of size 1 make no difference.
  int64_t column[2] = {8, 1};
  at_host_array array = {AT_F32, {column, 2}, NULL, v};
  at_buffer *tall = NULL;
  at_event *done = NULL;
  OK(at_buffer_from_host(c, AT_MEM_DEVICE, &array,
                         AT_HOST_IMMUTABLE_ONLY_DURING_CALL, &tall, &done));
  at_event_release(done);
  at_buffer_release(run1(l, c, (at_buffer *[]){good, tall}, 2));
  at_buffer_release(tall);
  at_buffer_release(good);
  at_buffer_release(longer);
  at_buffer_release(far);
  at_loaded_release(l);
  at_runtime_destroy(rt);
}

// Views count against HBM without taking host memory: on 15.75 GiB the
// sixteenth GiB fails, with XLA's words and the largest arrays. Host kinds are
// free; deletion makes room; the peak stays.
static void hbm_is_a_limit_that_explains_itself(void **state) {
  at_runtime *rt = test_runtime("v5e", 1);
  at_chip *c = at_runtime_chip(rt, 0);
  int64_t gib[2] = {1 << 18, 1024};  // 1 GiB of f32, mapped but never touched
  at_buffer *held[32];
  int n = 0;
  at_status st = AT_OK;
  while (n < 32) {
    static _Alignas(64) uint8_t fake[64];
    st = at_buffer_view(c, AT_MEM_DEVICE, AT_F32, (at_dims){gib, 2}, fake, NULL,
                        NULL, &held[n]);
    if (st.err) break;
    n++;
  }
  assert_int_equal(n, 15);
  const char *m = at_status_message(st);
  assert_non_null(strstr(m,
                         "Attempting to allocate 1.00G. That was not "
                         "possible. There are 768.00M free.; (0x0x0_HBM0)"));
  assert_non_null(strstr(m, "15.00G = 15 x f32[262144,1024]"));
  assert_int_equal(at_code_take(st), AT_RESOURCE_EXHAUSTED);
  assert_true(at_chip_memory_stats(c).in_use == 15ull << 30);
  // Host kinds do not count.
  at_buffer *host;
  OK(at_buffer_view(c, AT_MEM_PINNED_HOST, AT_F32, (at_dims){gib, 2}, &n, NULL,
                    NULL, &host));
  at_buffer_release(host);
  at_buffer_delete(held[--n]);
  OK(at_buffer_view(c, AT_MEM_DEVICE, AT_F32, (at_dims){gib, 2}, &n, NULL, NULL,
                    &host));
  at_buffer_release(host);
  at_buffer_release(held[n]);
  while (n-- > 0) at_buffer_release(held[n]);
  assert_true(at_chip_memory_stats(c).in_use == 0);
  assert_true(at_chip_memory_stats(c).peak_in_use == 15ull << 30);
  at_runtime_destroy(rt);
}

// Transposed, stepped, reversed, broadcast and empty sources, over all host
// semantics, against element-by-element addressing.
static void strided_sources_become_dense(void **state) {
  at_runtime *rt = test_runtime("v6e", 2);
  at_chip *c = at_runtime_chip(rt, 0);
  float src[6][5], got[30];
  for (int i = 0; i < 30; i++) src[i / 5][i % 5] = (float)i;
  static const struct {
    int64_t dims[3], strides[3];
    uint32_t rank;
    int first;
  } cases[] = {
      {{6, 5}, {20, 4}, 2, 0},     // dense
      {{5, 6}, {4, 20}, 2, 0},     // transposed
      {{3, 5}, {40, 4}, 2, 0},     // every second row
      {{6, 3}, {20, 8}, 2, 0},     // every second column
      {{6, 5}, {-20, -4}, 2, 29},  // reversed
      {{2, 3, 5}, {60, 20, 4}, 3, 0}, {{5, 3, 2}, {4, 40, 20}, 3, 0},
      {{4, 3, 2}, {0, 4, 0}, 3, 0},  // broadcast
      {{0, 3}, {12, 4}, 2, 0},        {{1, 5}, {999, 4}, 2, 5},
  };
  for (size_t k = 0; k < AT_LEN(cases); k++) {
    at_dims dims = {cases[k].dims, cases[k].rank};
    at_host_array a = {AT_F32, dims, cases[k].strides,
                       &src[0][0] + cases[k].first};
    at_buffer *b;
    at_event *done;
    OK(at_buffer_from_host(c, AT_MEM_DEVICE, &a, (at_host_semantics)(k % 4), &b,
                           &done));
    size_t n = at_buffer_bytes(b) / 4;
    test_fetch(b, got, (int64_t)n);
    for (size_t i = 0; i < n; i++) {
      int64_t rest = (int64_t)i, off = 0;
      for (uint32_t d = dims.rank; d-- > 0;) {
        off += rest % dims.ptr[d] * cases[k].strides[d];
        rest /= dims.ptr[d];
      }
      const char *from = (const char *)a.data + off;
      assert_true(got[i] == *(const float *)(const void *)from);
    }
    at_buffer_release(b);
    at_event_release(done);
  }
  at_runtime_destroy(rt);
}

// 12 MB up, across and down, all asynchronous, with sources deleted while they
// are read: what is under way keeps its memory. A read after deletion is
// refused.
static void large_transfers_go_both_ways(void **state) {
  at_runtime *rt = test_runtime("2*v6e", 2);
  at_chip *c = at_runtime_chip(rt, 0);
  int64_t dims[2] = {2000, 1500}, strides[2] = {1500 * 4, 4};
  size_t n = 2000 * 1500;
  float *v = malloc(n * 4), *w = malloc(n * 4);
  for (size_t i = 0; i < n; i++) v[i] = (float)i;
  at_host_array a = {AT_F32, {dims, 2}, strides, v};
  at_buffer *b, *copy;
  at_event *done, *read;
  OK(at_buffer_from_host(c, AT_MEM_DEVICE, &a, AT_HOST_IMMUTABLE_UNTIL_TRANSFER,
                         &b, &done));
  OK(at_buffer_copy_to(b, at_runtime_chip(rt, 1), AT_MEM_DEVICE, &copy));
  at_buffer_delete(b);  // the copy still reads it
  OK(at_buffer_to_host(copy, w, 0, n * 4, &read));
  at_buffer_delete(copy);
  OK(at_event_wait(read));
  OK(at_event_wait(done));
  assert_memory_equal(v, w, n * 4);
  assert_int_equal(at_code_take(at_buffer_to_host(copy, w, 0, 4, &read)),
                   AT_INVALID_ARGUMENT);
  at_event_release(read);
  at_event_release(done);
  at_buffer_release(b);
  at_buffer_release(copy);
  at_runtime_destroy(rt);  // waits
  free(v);
  free(w);
}

// The smallest denormal plus 0 stays, although the calling thread flushes
// denormals (FTZ and DAZ, which are 0x8040 of MXCSR), and the caller's modes
// are back afterwards.
static void denormals_are_kept_whatever_the_caller_does(void **state) {
  at_runtime *rt = test_runtime("v6e", 2);
  at_chip *c = at_runtime_chip(rt, 0);
  enum { N = 5000 };
  uint32_t tiny = 1;
  float v[N], z[N] = {0}, got[N];
  for (int i = 0; i < N; i++) memcpy(&v[i], &tiny, 4);
  for (int queued = 0; queued < 2; queued++) {
    at_loaded *l = test_load(rt, add_program(N, queued ? 1e9 : 1));
    at_buffer *a[2] = {test_array(c, v, N), test_array(c, z, N)};
    uint32_t modes = at_cpu_fp_default();
    __builtin_ia32_ldmxcsr(modes | 0x8040);  // as jaxlib's threads do
    at_buffer *out = run1(l, c, a, 2);
    uint32_t after = __builtin_ia32_stmxcsr();
    at_cpu_fp_restore(modes);
    assert_true((after & 0x8040) == 0x8040);  // the caller's own modes are back
    test_fetch(out, got, N);
    assert_memory_equal(got, v, sizeof v);
    at_buffer_release(out);
    at_buffer_release(a[0]);
    at_buffer_release(a[1]);
    at_loaded_release(l);
  }
  at_runtime_destroy(rt);
}

// Resident memory of this process.
static long resident_kib(void) {
  long pages = 0, ignored;
  FILE *f = fopen("/proc/self/statm", "r");
  if (f && fscanf(f, "%ld %ld", &ignored, &pages) != 2) pages = 0;
  if (f) fclose(f);
  return pages * 4;
}

// 10,000 launches: resident memory after the first 1,000 may not grow by more
// than 2 MiB. Sanitizers keep freed memory, so they do not assert it.
static void memory_stays_put_over_many_launches(void **state) {
  at_runtime *rt = test_runtime("v6e", 2);
  at_chip *c = at_runtime_chip(rt, 0);
  at_loaded *l[2] = {test_load(rt, inc_program(100000, 3, false, 1e9)),
                     test_load(rt, inc_program(8, 3, false, 1))};
  float *v = calloc(100000, 4);
  at_buffer *x[2] = {test_array(c, v, 100000), test_array(c, v, 8)};
  long before = 0;
  for (int i = 0; i < 10000; i++) {
    // A full queue is memory too: the measure is what stays without one.
    if (i % 100 == 0) at_status_free(at_event_wait(at_buffer_ready(x[0])));
    if (i == 1000) before = resident_kib();
    int k = i % 10 != 0;
    at_buffer *y = run1(l[k], c, &x[k], 1);
    at_buffer_release(x[k]);
    x[k] = y;
  }
  test_fetch(x[0], v, 100000);
  assert_true(v[99999] == 3000);
  long after = resident_kib();
  print_message("resident: %ld KiB, then %ld KiB\n", before, after);
#if !defined(__SANITIZE_ADDRESS__) && !__has_feature(address_sanitizer) && \
    !__has_feature(thread_sanitizer)
  assert_true(after < before + 2048);
#endif
  at_buffer_release(x[0]);
  at_buffer_release(x[1]);
  at_loaded_release(l[0]);
  at_loaded_release(l[1]);
  at_runtime_destroy(rt);
  free(v);
}

// A child has none of the runtime's threads: each call must return
// FAILED_PRECONDITION, none may wait.
static void forked_children_are_told(void **state) {
  at_runtime *rt = test_runtime("v6e", 2);
  at_chip *c = at_runtime_chip(rt, 0);
  at_loaded *l = test_load(rt, inc_program(8, 1, false, 1));
  float v[8] = {0};
  at_buffer *a = test_array(c, v, 8);
  pid_t pid = fork();
  if (pid == 0) {
    at_buffer *out;
    at_event *done;
    at_code e = at_code_take(at_loaded_execute(
        l, &(at_launch){.chip = c, .args = &a, .num_args = 1}, &out, NULL));
    at_code d = at_code_take(at_buffer_to_host(a, v, 0, 4, &done));
    _exit(e == AT_FAILED_PRECONDITION && d == AT_FAILED_PRECONDITION ? 0 : 1);
  }
  int status;
  waitpid(pid, &status, 0);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  at_buffer_release(a);
  at_loaded_release(l);
  at_runtime_destroy(rt);
}

// A profile of one launch has its three steps, inside the launch's own times,
// and nothing of the launch after the session.
static void sessions_see_launches_and_steps(void **state) {
  at_runtime *rt = test_runtime("v6e", 1);
  at_chip *c = at_runtime_chip(rt, 0);
  at_loaded *l = test_load(rt, inc_program(8, 3, false, 1));
  float v[8] = {0};
  at_buffer *a = test_array(c, v, 8);
  OK(at_profile_start(0));
  at_buffer *out = run1(l, c, &a, 1);
  at_profile *p;
  OK(at_profile_stop(&p));
  at_buffer_release(run1(l, c, &a, 1));  // not seen
  size_t n;
  const at_profile_event *e = at_profile_events(p, &n);
  assert_int_equal(n, 4);
  assert_string_equal(e[3].name, "jit_test");
  for (int i = 0; i < 3; i++)
    assert_true(e[i].kind == AT_PROFILE_OP && e[i].start_ns >= e[3].start_ns &&
                e[i].end_ns <= e[3].end_ns);
  at_profile_destroy(p);
  at_buffer_release(out);
  at_buffer_release(a);
  at_loaded_release(l);
  at_runtime_destroy(rt);
}

// No assert: prints what the smallest launch costs, for docs and for who
// changes the path.
static void report_dispatch_time(void **state) {
  at_runtime *rt = test_runtime("v6e", 2);
  at_chip *c = at_runtime_chip(rt, 0);
  at_loaded *l[2] = {test_load(rt, add_program(8, 1)),
                     test_load(rt, add_program(8, 1e9))};
  float v[8] = {0};
  at_buffer *a[2] = {test_array(c, v, 8), test_array(c, v, 8)};
  for (int k = 0; k < 2; k++) {
    uint64_t best = UINT64_MAX;
    for (int r = 0; r < 20; r++) {
      uint64_t t0 = at_clock_ns();
      for (int i = 0; i < 200; i++) {
        at_buffer *z = run1(l[k], c, a, 2);
        if (k) at_status_free(at_event_wait(at_buffer_ready(z)));
        at_buffer_release(z);
      }
      best = AT_MIN(best, (at_clock_ns() - t0) / 200);
    }
    print_message("add of 8 floats, %s: %llu ns\n",
                  k ? "queued and awaited" : "on the caller's thread",
                  (unsigned long long)best);
  }
  at_buffer_release(a[0]);
  at_buffer_release(a[1]);
  at_loaded_release(l[0]);
  at_loaded_release(l[1]);
  at_runtime_destroy(rt);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(adds_small_and_large),
      cmocka_unit_test(runs_imports_and_every_section),
      cmocka_unit_test(loops_and_branches),
      cmocka_unit_test(runs_correct_what_is_expected),
      cmocka_unit_test(donation_reuses_memory),
      cmocka_unit_test(foreign_memory_is_never_overwritten),
      cmocka_unit_test(arrays_are_copied_before_the_call_returns),
      cmocka_unit_test(errors_travel_with_buffers),
      cmocka_unit_test(late_arguments_are_awaited),
      cmocka_unit_test(launches_keep_their_order),
      cmocka_unit_test(wrong_arguments_are_named),
      cmocka_unit_test(hbm_is_a_limit_that_explains_itself),
      cmocka_unit_test(strided_sources_become_dense),
      cmocka_unit_test(large_transfers_go_both_ways),
      cmocka_unit_test(denormals_are_kept_whatever_the_caller_does),
      cmocka_unit_test(memory_stays_put_over_many_launches),
      cmocka_unit_test(forked_children_are_told),
      cmocka_unit_test(sessions_see_launches_and_steps),
      cmocka_unit_test(report_dispatch_time),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

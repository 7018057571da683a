// A controller, hosts and clients: what clients get is what one process would
// have given them, and who dies takes along only what is his.
#include "control/pod_test_util.h"

#include "base/free_ports.h"
#include "control/client_internal.h"

static pod shared;  // of the tests that leave it as it was: 2 hosts, 4 chips

static int open_shared(void **state) {
  pod_open(&shared, "v5e:2x2", 2, 4);
  return 0;
}
static int close_shared(void **state) {
  pod_close(&shared);
  return 0;
}

// Fetches all of it and compares.
static void expect_floats(at_buffer *b, const float *want, int64_t n) {
  float *got = malloc((size_t)n * 4 + 1);
  OK(pod_fetch(b, got, 0, (size_t)n * 4));
  if (memcmp(got, want, (size_t)n * 4)) fail_msg("other numbers");
  free(got);
}

// from, from + 1, ...; the caller frees it.
static float *numbers(int64_t n, float from) {
  float *v = malloc((size_t)n * 4 + 1);
  for (int64_t i = 0; i < n; i++) v[i] = from + (float)(i % 1000);
  return v;
}

// ---- Arrays
// Through a host and after a hop to another one, also types of less than a byte
// and empty arrays.
static void every_type_comes_back(void **state) {
  guest g = guest_open(&shared);
  for (int t = AT_PRED; t < AT_TOKEN; t++)
    for (int64_t n = 0; n <= 2000; n = n * 9 + 1) {
      size_t bytes = (size_t)n * at_dtype_bytes((at_dtype)t);
      uint8_t *v = malloc(bytes + 1), *got = malloc(bytes + 1);
      uint8_t mask = at_dtype_of((at_dtype)t)->bits < 8
                         ? (uint8_t)(0xff >> (8 - at_dtype_of(t)->bits))
                         : 0xff;
      for (size_t i = 0; i < bytes; i++) v[i] = (uint8_t)(i * 37 + 1) & mask;
      at_buffer *b = pod_array(guest_chip(&g, 3), (at_dtype)t, v, n);
      OK(pod_fetch(b, got, 0, bytes));
      assert_memory_equal(got, v, bytes);
      at_buffer *other;
      OK(at_buffer_copy_to(b, guest_chip(&g, 0), AT_MEM_DEVICE, &other));
      memset(got, 0xee, bytes);
      OK(pod_fetch(other, got, 0, bytes));
      assert_memory_equal(got, v, bytes);
      at_buffer_release(b);
      at_buffer_release(other);
      free(v);
      free(got);
    }
  guest_expect_empty(&g, 4);
  guest_close(&g);
}

// In the message, in memory that hosts share, by a transfer: whatever its size.
static void arrays_of_all_sizes_hop(void **state) {
  static const int64_t sizes[] = {
      0, 1, 1024, 1025, 2048, 5000, 1 << 16, 1 << 18, (1 << 18) + 1, 3 << 18};
  guest g = guest_open(&shared);
  for (size_t i = 0; i < AT_LEN(sizes); i++) {
    const int64_t n = sizes[i];
    float *v = numbers(n, (float)i), *w = numbers(n, -5);
    at_buffer *one = pod_array(guest_chip(&g, 0), AT_F32, v, n), *next;
    at_buffer *two = pod_array(guest_chip(&g, 3), AT_F32, w, n);
    for (uint32_t hop = 0; hop < 9; hop++) {  // both cross on the way
      OK(at_buffer_copy_to(one, guest_chip(&g, hop % 2 ? 1 : 2), AT_MEM_DEVICE,
                           &next));
      if (hop % 3) at_buffer_delete(one);
      at_buffer_release(one);
      one = next;
      OK(at_buffer_copy_to(two, guest_chip(&g, hop % 2 ? 3 : 0), AT_MEM_DEVICE,
                           &next));
      at_buffer_release(two);
      two = next;
    }
    expect_floats(one, v, n);
    expect_floats(two, w, n);
    at_buffer_release(one);
    at_buffer_release(two);
    free(v);
    free(w);
  }
  guest_expect_empty(&g, 4);
  guest_close(&g);
}

// Of those that the other host has no place for none is kept.
static void hops_into_full_memory_are_errors(void **state) {
  guest g = guest_open(&shared);
  const int64_t sizes[] = {1000, 1 << 16, 1 << 18};
  float *v = numbers(15 << 20, 0);
  at_buffer *full = pod_array(guest_chip(&g, 3), AT_F32, v, 15 << 20);
  at_buffer *rest[256], *from[3], *to[3];
  uint32_t n = 0;
  for (int64_t size = 16000; size >= 500; size /= 32) {  // to the brim
    at_code code = 0;
    while (!code && n < AT_LEN(rest)) {
      rest[n] = pod_array(guest_chip(&g, 3), AT_F32, v, size);
      code = at_code_take(pod_ready(rest[n++]));
    }
    assert_int_equal(code, AT_RESOURCE_EXHAUSTED);
  }
  for (uint32_t i = 0; i < 3; i++) {
    from[i] = pod_array(guest_chip(&g, 0), AT_F32, v, sizes[i]);
    OK(at_buffer_copy_to(from[i], guest_chip(&g, 3), AT_MEM_DEVICE, &to[i]));
    at_buffer_release(from[i]);
  }
  for (uint32_t i = 0; i < 3; i++) {
    assert_int_equal(at_code_take(pod_ready(to[i])), AT_RESOURCE_EXHAUSTED);
    at_buffer_release(to[i]);
  }
  run_drop(rest, n);
  at_buffer_release(full);
  guest_expect_empty(&g, 4);
  guest_close(&g);
  free(v);
}

// Whole, in part, and made first and written later.
static void large_arrays_come_in_pieces(void **state) {
  enum { kNumber = (11 << 20) / 4 + 3 };
  guest g = guest_open(&shared);
  float *v = numbers(kNumber, 5), got[9];
  at_buffer *b = pod_array(guest_chip(&g, 1), AT_F32, v, kNumber);
  expect_floats(b, v, kNumber);
  for (size_t at = 0; at < kNumber - 9; at += 290717) {
    OK(pod_fetch(b, got, at * 4, sizeof got));
    assert_memory_equal(got, v + at, sizeof got);
  }
  OK(pod_fetch(b, got, kNumber * 4, 0));
  OK(pod_fetch(b, NULL, 0, 0));
  // Created, then written.
  at_buffer *late;
  const int64_t n = kNumber;
  OK(at_buffer_create(guest_chip(&g, 2), AT_MEM_DEVICE, AT_F32,
                      (at_dims){&n, 1}, &late));
  memcpy(at_buffer_data_mut(late), v, kNumber * 4);
  assert_false(at_buffer_is_ready(late));
  at_buffer_define(late, AT_OK);
  expect_floats(late, v, kNumber);
  at_buffer_release(late);
  // Created, and never written.
  OK(at_buffer_create(guest_chip(&g, 2), AT_MEM_DEVICE, AT_F32,
                      (at_dims){&n, 1}, &late));
  at_buffer_release(late);
  at_buffer_release(b);
  guest_expect_empty(&g, 4);
  guest_close(&g);
  free(v);
}

// A read that was asked for before the drop gets its bytes.
static void reads_go_on_behind_drops(void **state) {
  enum { kNumber = 1 << 18, kTurns = 60 };
  guest g = guest_open(&shared);
  float *v = numbers(kNumber, 1), *got[kTurns];
  at_event *done[kTurns];
  for (int i = 0; i < kTurns; i++) {
    at_buffer *b =
        pod_array(guest_chip(&g, (uint32_t)i % 4), AT_F32, v, kNumber);
    got[i] = malloc(kNumber * 4);
    OK(at_buffer_to_host(b, got[i], 0, kNumber * 4, &done[i]));
    at_buffer_release(b);
    if (i % 3 == 0) {  // the drop goes now
      at_client_flush(g.client);
    }
  }
  for (int i = 0; i < kTurns; i++) {
    OK(pod_wait(done[i]));
    at_event_release(done[i]);
    assert_memory_equal(got[i], v, kNumber * 4);
    free(got[i]);
  }
  guest_expect_empty(&g, 4);
  guest_close(&g);
  free(v);
}

// ---- Programs
// A collective over two hosts, for sizes from one element on.
static void programs_over_hosts_move_data(void **state) {
  guest g = guest_open(&shared);
  for (int64_t n = 1; n <= 300000; n = n * 17 + 3) {
    run r = run_make(&g, pod_rotates(4, n), 4, 1);
    float *v[4];
    at_event *done;
    for (uint32_t d = 0; d < 4; d++) {
      v[d] = numbers(n, (float)d * 2000);
      r.args[d] = pod_array(r.chips[d], AT_F32, v[d], n);
    }
    for (int i = 0; i < 3; i++) {
      OK(run_try(&r, i ? NULL : &done));
      if (!i) OK(pod_wait(done));
      if (!i) at_event_release(done);
      for (uint32_t d = 0; d < 4; d++)
        expect_floats(r.outs[d], v[(d + 1) % 4], n);
      run_drop_outs(&r);
    }
    run_drop_args(&r);
    for (uint32_t d = 0; d < 4; d++) free(v[d]);
    at_loaded_release(r.l);
  }
  guest_expect_empty(&g, 4);
  guest_close(&g);
}

// What is dropped at once has to come nevertheless.
static void arguments_may_be_dropped_at_once(void **state) {
  guest g = guest_open(&shared);
  static const int64_t sizes[] = {3, 2000, 1 << 18, 5 << 18};
  for (size_t k = 0; k < AT_LEN(sizes); k++) {
    int64_t n = sizes[k];
    float *v = numbers(n, 7);
    run r = run_make(&g, pod_rotates(4, n), 4, 1);
    for (int i = 0; i < 12; i++) {
      at_buffer *last[4];
      for (uint32_t d = 0; d < 4; d++)
        r.args[d] = pod_array(r.chips[d], AT_F32, v, n);
      OK(run_try(&r, NULL));
      run_drop_args(&r);
      at_client_flush(g.client);
      memcpy(last, r.outs, sizeof last);
      for (uint32_t d = 0; d < 4; d++) {
        OK(pod_ready(last[d]));
        if (i == 11) expect_floats(last[d], v, n);
      }
      run_drop_outs(&r);
    }
    at_loaded_release(r.l);
    free(v);
  }
  guest_expect_empty(&g, 4);
  guest_close(&g);
}

// Memory in use does not grow, and reads asked for before a donation are
// answered.
static void donated_arguments_give_their_memory(void **state) {
  enum { kNumber = 1 << 16 };
  guest g = guest_open(&shared);
  float *v = numbers(kNumber, 3);
  run r = run_make(&g, pod_copies(4, AT_F32, kNumber, 2, true), 4, 2);
  r.keeps[0] = r.keeps[1] = false;
  for (uint32_t i = 0; i < 8; i++)
    r.args[i] = pod_array(r.chips[i / 2], AT_F32, v, kNumber);
  at_event *reads[100];
  float *got[100];
  uint32_t n = 0;
  for (int i = 0; i < 100; i++) {
    bool asks = i % 3 == 1, fetches = i % 10 == 4;
    // A question, and the donation right behind it by another way.
    if (asks) (void)at_buffer_ready(r.args[i % 8]);
    if (fetches) {
      got[n] = malloc(kNumber * 4);
      OK(at_buffer_to_host(r.args[(i + 3) % 8], got[n], 0, kNumber * 4,
                           &reads[n]));
      n++;
    }
    OK(run_try(&r, NULL));
    for (uint32_t k = 0; k < 8; k++)
      assert_true(at_buffer_is_deleted(r.args[k]));
    run_drop_args(&r);
    memcpy(r.args, r.outs, sizeof r.outs);
  }
  for (uint32_t i = 0; i < 8; i++) expect_floats(r.args[i], v, kNumber);
  for (uint32_t i = 0; i < n; i++) {
    OK(pod_wait(reads[i]));
    at_event_release(reads[i]);
    assert_memory_equal(got[i], v, kNumber * 4);
    free(got[i]);
  }
  assert_int_equal(guest_in_use(&g, 4), 8 * kNumber * 4);
  run_drop_args(&r);
  at_loaded_release(r.l);
  guest_expect_empty(&g, 4);
  guest_close(&g);
  free(v);
}

// Results of one launch on one host become ready with one question. Who was
// asked about goes before the question comes.
static void one_question_is_enough(void **state) {
  guest g = guest_open(&shared);
  float v[4] = {1, 2, 3, 4};
  run r = run_make(&g, pod_copies(4, AT_F32, 4, 2, true), 4, 2);
  for (int i = 0; i < 200; i++) {
    for (uint32_t k = 0; k < 8; k++)
      r.args[k] = pod_array(r.chips[k / 2], AT_F32, v, 4);
    r.keeps[0] = r.keeps[1] = true;
    OK(run_try(&r, NULL));
    run_drop_args(&r);
    memcpy(r.args, r.outs, sizeof r.outs);
    for (uint32_t d = 0; d < 4; d++) (void)at_buffer_ready(r.args[2 * d]);
    at_buffer *second[4];
    for (uint32_t d = 0; d < 4; d++)
      second[d] = at_buffer_retain(r.args[2 * d + 1]);
    r.keeps[0] = false;  // it is given away with its name
    OK(run_try(&r, NULL));
    for (uint32_t d = 0; d < 4; d++) {
      OK(pod_ready(second[d]));
      at_buffer_release(second[d]);
    }
    run_drop_args(&r);
    run_drop_outs(&r);
  }
  at_loaded_release(r.l);
  guest_expect_empty(&g, 4);
  guest_close(&g);
}

// All are under way before the first can begin, and end one behind the other.
static void each_launch_is_told_to_be_done(void **state) {
  enum { kNumber = 8, kLaunches = 200 };
  guest g = guest_open(&shared);
  const int64_t n = kNumber;
  float *v = numbers(kNumber, 2);
  run r = run_make(&g, pod_rotates(4, kNumber), 4, 1);
  at_buffer *late[4];
  at_event *done[kLaunches];
  for (uint32_t d = 0; d < 4; d++) {
    OK(at_buffer_create(r.chips[d], AT_MEM_DEVICE, AT_F32, (at_dims){&n, 1},
                        &late[d]));
    r.args[d] = at_buffer_retain(late[d]);
  }
  for (int i = 0; i < kLaunches; i++) {
    OK(run_try(&r, &done[i]));
    run_drop_args(&r);
    memcpy(r.args, r.outs, sizeof r.outs);
  }
  for (int i = 0; i < kLaunches; i++) assert_false(at_event_fired(done[i]));
  for (uint32_t d = 0; d < 4; d++) {
    memcpy(at_buffer_data_mut(late[d]), v, kNumber * 4);
    at_buffer_define(late[d], AT_OK);
    at_buffer_release(late[d]);
  }
  for (int i = 0; i < kLaunches; i++) {
    OK(pod_wait(done[i]));
    at_event_release(done[i]);
  }
  expect_floats(r.args[0], v, kNumber);
  run_drop_args(&r);
  at_loaded_release(r.l);
  guest_expect_empty(&g, 4);
  guest_close(&g);
  free(v);
}

// It is called only as long as the controller has it.
static void a_call_ends_with_the_host(void **state) {
  pod p;
  pod_open(&p, "v5e:2x2", 2, 4);
  guest g = guest_open(&p);
  float v[4] = {1, 2, 3, 4}, got[4];
  kill(p.hosts[0], SIGSTOP);
  const uint64_t began = at_clock_ns();
  int lost = 0;
  for (uint32_t d = 0; d < 4; d += 2) {  // one of each host
    at_buffer *b = pod_array(guest_chip(&g, d), AT_F32, v, 4);
    at_code code = at_code_take(pod_fetch(b, got, 0, sizeof got));
    assert_true(!code || code == AT_DATA_LOSS);
    lost += code == AT_DATA_LOSS;
    at_buffer_release(b);
  }
  assert_int_equal(lost, 1);
  assert_true(at_clock_ns() - began < 15000000000ull);
  guest_close(&g);
  pod_kill_host(&p, 0);
  pod_close(&p);
}

// Arguments whose shards come of different arrays are grouped.
static void shards_of_several_arrays_go_together(void **state) {
  guest g = guest_open(&shared);
  enum { kNumber = 100 };
  run one = run_make(&g, pod_copies(1, AT_F32, kNumber, 1, false), 1, 1);
  run r = run_make(&g, pod_rotates(4, kNumber), 4, 1);
  run two = run_make(&g, pod_copies(4, AT_F32, kNumber, 2, false), 4, 2);
  float *v[4];
  at_buffer *rotated[4];
  for (uint32_t d = 0; d < 4; d++) {
    v[d] = numbers(kNumber, (float)d * 3000);
    r.args[d] = pod_array(r.chips[d], AT_F32, v[d], kNumber);
  }
  for (int i = 0; i < 20; i++) {
    OK(run_try(&r, NULL));
    memcpy(rotated, r.outs, sizeof rotated);
    // Shards of two arrays, in turn; and the same in two groups of one launch.
    for (uint32_t d = 0; d < 4; d++) {
      two.args[2 * d] = d % 2 ? rotated[d] : r.args[d];
      two.args[2 * d + 1] = d % 2 ? r.args[d] : rotated[d];
    }
    OK(run_try(&two, NULL));
    for (uint32_t d = 0; d < 4; d++) {
      const float *kept = v[d], *moved = v[(d + 1) % 4];
      expect_floats(two.outs[2 * d], d % 2 ? moved : kept, kNumber);
      expect_floats(two.outs[2 * d + 1], d % 2 ? kept : moved, kNumber);
    }
    one.chips[0] = r.chips[i % 4];
    one.args[0] = rotated[i % 4];
    OK(run_try(&one, NULL));
    expect_floats(one.outs[0], v[(i + 1) % 4], kNumber);
    run_drop_outs(&one);
    run_drop_outs(&two);
    run_drop(rotated, 4);
  }
  run_drop_args(&r);
  for (uint32_t d = 0; d < 4; d++) free(v[d]);
  at_loaded_release(one.l);
  at_loaded_release(r.l);
  at_loaded_release(two.l);
  guest_expect_empty(&g, 4);
  guest_close(&g);
}

// ---- Errors
// An array whose client defines it with an error.
static at_buffer *failing(at_chip *c, int64_t n) {
  at_buffer *b;
  OK(at_buffer_create(c, AT_MEM_DEVICE, AT_F32, (at_dims){&n, 1}, &b));
  at_buffer_define(b, AT_FAIL(AT_OUT_OF_RANGE, "no such rows"));
  return b;
}

// Through a launch over both hosts and a copy; the other shards of the launch
// fail with it.
static void errors_travel_with_arrays(void **state) {
  enum { kNumber = 10 };
  guest g = guest_open(&shared);
  run r = run_make(&g, pod_rotates(4, kNumber), 4, 1);
  float *v = numbers(kNumber, 0), got[kNumber];
  for (uint32_t bad = 0; bad < 5; bad++) {
    for (uint32_t d = 0; d < 4; d++)
      r.args[d] = d == bad ? failing(r.chips[d], kNumber)
                           : pod_array(r.chips[d], AT_F32, v, kNumber);
    at_event *done;
    OK(run_try(&r, &done));
    at_code code = at_code_take(pod_wait(done));
    at_event_release(done);
    assert_int_equal(code == 0, bad == 4);
    for (uint32_t d = 0; d < 4; d++) {
      code = at_code_take(pod_fetch(r.outs[d], got, 0, sizeof got));
      if (bad == 4)
        assert_int_equal(code, 0);
      else
        assert_true(code == AT_OUT_OF_RANGE || code == AT_ABORTED);
    }
    if (bad < 4) {
      at_status st = pod_ready(r.args[bad]);
      assert_string_equal(at_status_message(st), "no such rows");
      assert_int_equal(at_code_take(st), AT_OUT_OF_RANGE);
      // To the other host, too.
      at_buffer *other;
      OK(at_buffer_copy_to(r.outs[bad], r.chips[(bad + 2) % 4], AT_MEM_DEVICE,
                           &other));
      assert_true(at_code_take(pod_ready(other)));
      at_buffer_release(other);
    }
    run_drop_outs(&r);
    run_drop_args(&r);
  }
  at_loaded_release(r.l);
  guest_expect_empty(&g, 4);
  guest_close(&g);
  free(v);
}

// Later arrays and launches go on once there is room.
static void full_memory_is_an_error_of_one_array(void **state) {
  guest g = guest_open(&shared);
  at_memory_stats s = at_chip_memory_stats(guest_chip(&g, 3));
  const int64_t most = (int64_t)s.limit / 4 - 4096, n = 1 << 18;
  at_buffer *all, *more, *copy;
  OK(at_buffer_create(guest_chip(&g, 3), AT_MEM_DEVICE, AT_F32,
                      (at_dims){&most, 1}, &all));
  float *v = numbers(n, 9);
  // Its bytes come, and are dropped.
  for (int i = 0; i < 4; i++) {
    more = pod_array(guest_chip(&g, 3), AT_F32, v, n);
    assert_int_equal(at_code_take(pod_ready(more)), AT_RESOURCE_EXHAUSTED);
    at_buffer_release(more);
  }
  run r = run_make(&g, pod_rotates(4, n), 4, 1);
  for (uint32_t d = 0; d < 4; d++)
    r.args[d] = pod_array(r.chips[d], AT_F32, v, n);
  at_event *done;
  OK(run_try(&r, &done));
  assert_int_equal(at_code_take(pod_wait(done)), AT_RESOURCE_EXHAUSTED);
  at_event_release(done);
  for (uint32_t d = 0; d < 4; d++) {
    at_code code = at_code_take(pod_ready(r.outs[d]));
    assert_true(code == AT_RESOURCE_EXHAUSTED || code == AT_ABORTED);
  }
  OK(at_buffer_copy_to(r.args[0], r.chips[3], AT_MEM_DEVICE, &copy));
  assert_true(at_code_take(pod_ready(copy)));
  at_buffer_release(copy);
  run_drop_outs(&r);
  run_drop_args(&r);
  at_buffer_release(all);
  for (uint32_t d = 0; d < 4; d++)
    r.args[d] = pod_array(r.chips[d], AT_F32, v, n);
  guest_in_use(&g, 4);
  OK(run_try(&r, NULL));
  expect_floats(r.outs[3], v, n);
  run_drop_outs(&r);
  run_drop_args(&r);
  at_loaded_release(r.l);
  guest_expect_empty(&g, 4);
  guest_close(&g);
  free(v);
}

// ---- Callbacks
typedef struct calls {
  _Atomic int sends, receives;
  at_code fails;  // of a send
  float value[4];
  bool dies, waits;
} calls;

// A host callback that may fail, or kill its process.
static at_status on_send(void *user, const void *data, size_t bytes,
                         size_t total, bool done) {
  calls *c = user;
  atomic_fetch_add(&c->sends, 1);
  if (c->dies) kill(getpid(), SIGKILL);
  if (c->fails) return AT_FAIL(c->fails, "the callback does not like it");
  assert_int_equal(bytes, sizeof c->value);
  memcpy(c->value, data, bytes);
  return AT_OK;
}

// Twice what was sent.
static at_status on_receive(void *user, void *dst, size_t bytes,
                            at_event *done) {
  calls *c = user;
  atomic_fetch_add(&c->receives, 1);
  for (int i = 0; i < 4; i++) ((float *)dst)[i] = 2 * c->value[i];
  at_event_fire(done, AT_OK);
  return AT_OK;
}

static void make_channels(calls *c, at_host_channel out[2]) {
  out[0] = (at_host_channel){7, on_send, NULL, c};
  out[1] = (at_host_channel){8, NULL, on_receive, c};
}

// Sends and receives of four devices; an error of the callback is the launch's.
static void callbacks_run_in_the_client(void **state) {
  guest g = guest_open(&shared);
  run r = run_make(&g, pod_calls(4, 4), 4, 1);
  for (int i = 0; i < 30; i++) {
    calls c[4] = {{0}};
    at_host_channel x[4][2];
    at_channel_list lists[4];
    float v[4][4];
    for (uint32_t d = 0; d < 4; d++) {
      make_channels(&c[d], x[d]);
      lists[d] = (at_channel_list){x[d], 2};
      for (int k = 0; k < 4; k++) v[d][k] = (float)(d * 10 + (uint32_t)k);
      r.args[d] = pod_array(r.chips[d], AT_F32, v[d], 4);
    }
    c[i % 4].fails = i % 5 == 4 ? AT_NOT_FOUND : 0;
    r.channels = lists;
    at_event *done;
    OK(run_try(&r, &done));
    at_code code = at_code_take(pod_wait(done));
    at_event_release(done);
    if (i % 5 == 4)
      assert_true(code == AT_NOT_FOUND || code == AT_ABORTED);
    else
      assert_int_equal(code, 0);
    for (uint32_t d = 0; d < 4 && i % 5 != 4; d++) {
      float want[4];
      for (int k = 0; k < 4; k++) want[k] = 2 * v[d][k];
      expect_floats(r.outs[d], want, 4);
      assert_int_equal(c[d].sends, 1);
      assert_int_equal(c[d].receives, 1);
    }
    run_drop_outs(&r);
    run_drop_args(&r);
  }
  at_loaded_release(r.l);
  guest_expect_empty(&g, 4);
  guest_close(&g);
}

// ---- Several clients
// A client of its own, on its own thread.
static void *be_guest(void *arg) {
  guest g = guest_open(&shared);
  run r = run_make(&g, pod_rotates(4, 1000), 4, 1);
  float *v[4];
  for (uint32_t d = 0; d < 4; d++) {
    v[d] = numbers(1000, (float)(d + *(uint32_t *)arg * 100));
    r.args[d] = pod_array(r.chips[d], AT_F32, v[d], 1000);
  }
  for (uint32_t i = 0; i < 60; i++) {
    OK(run_try(&r, NULL));
    if (i % 7 == 0)
      for (uint32_t d = 0; d < 4; d++)
        expect_floats(r.outs[d], v[(d + 1 + i) % 4], 1000);
    run_drop_args(&r);
    memcpy(r.args, r.outs, sizeof r.outs);
  }
  run_drop_args(&r);
  for (uint32_t d = 0; d < 4; d++) free(v[d]);
  at_loaded_release(r.l);
  guest_close(&g);
  return NULL;
}

// Three at once with the same names of arrays.
static void clients_do_not_see_each_other(void **state) {
  pthread_t threads[3];
  uint32_t me[3] = {0, 1, 2};
  for (int i = 0; i < 3; i++)
    pthread_create(&threads[i], NULL, be_guest, &me[i]);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  guest g = guest_open(&shared);
  guest_expect_empty(&g, 4);
  guest_close(&g);
}

// ---- Who is killed
// A client that does everything, until somebody kills it.
static int victim_main(const char *address, const char *how) {
  guest g;
  calls c = {.dies = true};
  at_host_channel x[4][2];
  at_channel_list lists[4];
  enum { kNumber = 50000 };
  OK(guest_try(address, &g));
  run r = run_make(&g, pod_rotates(4, kNumber), 4, 1);
  run call = run_make(&g, pod_calls(4, 4), 4, 1);
  float *v = numbers(kNumber, 0);
  const int64_t n = kNumber;
  for (int turn = 0;; turn++) {
    // One that is never written, and what waits for it.
    at_buffer *never;
    OK(at_buffer_create(r.chips[turn % 4], AT_MEM_DEVICE, AT_F32,
                        (at_dims){&n, 1}, &never));
    for (uint32_t d = 0; d < 4; d++) {
      make_channels(&c, x[d]);
      lists[d] = (at_channel_list){x[d], 2};
      call.args[d] = pod_array(r.chips[d], AT_F32, v, 4);
      r.args[d] = pod_array(r.chips[d], AT_F32, v, kNumber);
    }
    OK(run_try(&r, NULL));
    run_drop_outs(&r);
    if (*how == 'w') {
      at_buffer *kept = r.args[turn % 4];
      r.args[turn % 4] = never;
      OK(run_try(&r, NULL));
      r.args[turn % 4] = kept;
    }
    call.channels = lists;
    if (*how == 'c') OK(run_try(&call, NULL));
    if (turn == 2) {
      at_event *done;
      at_status st = at_buffer_to_host(r.args[0], v, 0, 4, &done);
      if (!st.err) st = pod_wait(done);
      at_status_free(st);
      if (write(1, "!", 1) < 0 || *how == 'x') _exit(0);
    }
  }
}

// Killed at any moment, while they write, launch or run callbacks: hosts and
// controller forget them, and another client goes on.
static void dead_clients_leave_nothing(void **state) {
  const char *many = getenv("AT_POD_KILLS");
  int kills = many ? atoi(many) : 24;
  guest g = guest_open(&shared);
  float v[4] = {1, 2, 3, 4};
  run r = run_make(&g, pod_rotates(4, 4), 4, 1);
  for (uint32_t d = 0; d < 4; d++)
    r.args[d] = pod_array(r.chips[d], AT_F32, v, 4);
  srand(7);
  for (int i = 0; i < kills; i++) {
    pid_t pid = pod_spawn("--victim", shared.address,
                          i % 3 == 0   ? "w"
                          : i % 3 == 1 ? "c"
                                       : "n");
    usleep((useconds_t)(rand() % (i % 8 ? 60000 : 500000)));
    kill(pid, SIGKILL);
    assert_int_equal(pod_join(pid), 1000 + SIGKILL);
    if (i % 8) continue;  // others go on
    OK(run_try(&r, NULL));
    expect_floats(r.outs[0], v, 4);
    run_drop_outs(&r);
  }
  OK(run_try(&r, NULL));
  expect_floats(r.outs[3], v, 4);
  run_drop_outs(&r);
  run_drop_args(&r);
  guest_expect_empty(&g, 4);
  at_loaded_release(r.l);
  guest_close(&g);
  at_strbuf text = {0};
  for (int i = 0; i < 4000; i++) {  // the controller has forgotten them, too
    text.len = 0;
    at_controller_status(shared.controller, &text);
    if (strstr(text.ptr, "\"clients\":[]")) break;
    usleep(5000);
  }
  assert_non_null(strstr(text.ptr, "\"clients\":[]"));
  at_strbuf_free(&text);
}

// Its arrays and launches over it are lost; everything on other hosts goes on.
static void a_lost_host_is_an_error(void **state) {
  pod p;
  pod_open(&p, "v5e:2x4", 4, 8);
  guest g = guest_open(&p);
  enum { kNumber = 20000 };
  float *v = numbers(kNumber, 0);
  run r = run_make(&g, pod_rotates(8, kNumber), 8, 1);
  run one = run_make(&g, pod_copies(1, AT_F32, kNumber, 1, false), 1, 1);
  run call = run_make(&g, pod_calls(1, 4), 1, 1);
  for (uint32_t d = 0; d < 8; d++)
    r.args[d] = pod_array(r.chips[d], AT_F32, v, kNumber);
  OK(run_try(&r, NULL));
  expect_floats(r.outs[0], v, kNumber);
  run_drop_outs(&r);
  for (int i = 0; i < 40; i++) {
    if (i == 20) pod_kill_host(&p, 3);
    OK(run_try(&r, NULL));
    if (i < 39) run_drop_outs(&r);
  }
  // Of the chips of the host that was killed, whichever it is.
  uint32_t lost = 8;
  for (uint32_t d = 0; d < 8; d++) {
    at_code code = at_code_take(pod_ready(r.args[d]));
    if (code) assert_int_equal(code, AT_DATA_LOSS);
    if (code) lost = d;
    code = at_code_take(pod_ready(r.outs[d]));
    if (!code)  // nobody knew yet, and it came from a host that is there
      expect_floats(r.outs[d], v, kNumber);
    else
      assert_true(code == AT_DATA_LOSS || code == AT_ABORTED);
  }
  run_drop_outs(&r);
  // Once it is known.
  while (at_controller_hosts(p.controller) == 4) usleep(1000);
  OK(run_try(&r, NULL));
  for (uint32_t d = 0; d < 8; d++)
    assert_int_equal(at_code_take(pod_ready(r.outs[d])), AT_DATA_LOSS);
  assert_true(lost < 8);
  run_drop_outs(&r);
  // All others go on.
  uint32_t other = (lost + 4) % 8;
  one.chips[0] = r.chips[other];
  one.args[0] = r.args[other];
  OK(run_try(&one, NULL));
  expect_floats(one.outs[0], v, kNumber);
  run_drop_outs(&one);
  one.chips[0] = r.chips[lost];
  one.args[0] = r.args[lost];
  at_event *done;
  OK(run_try(&one, &done));
  assert_int_equal(at_code_take(pod_wait(done)), AT_DATA_LOSS);
  at_event_release(done);
  run_drop_outs(&one);
  at_buffer *copy = NULL;
  OK(at_buffer_copy_to(r.args[lost], r.chips[other], AT_MEM_DEVICE, &copy));
  assert_true(at_code_take(pod_ready(copy)));
  at_buffer_release(copy);
  run_drop_args(&r);
  at_loaded_release(r.l);
  at_loaded_release(one.l);
  at_loaded_release(call.l);
  guest_close(&g);
  pod_close(&p);
  free(v);
}

// It has been told where arrays lie, and does not come to copy them.
static void what_is_lent_to_a_lost_host_is_given_back(void **state) {
  enum { kNumber = 1 << 16, kArrays = 20 };
  pod p;
  pod_open(&p, "v5e:2x2", 2, 4);
  guest g = guest_open(&p);
  float *v = numbers(kNumber, 0);
  at_buffer *from[2][kArrays], *to[2][kArrays];
  for (uint32_t i = 0; i < kArrays; i++)
    for (uint32_t k = 0; k < 2; k++) {  // of and to both hosts
      from[k][i] = pod_array(guest_chip(&g, 2 * k), AT_F32, v, kNumber);
      OK(pod_ready(from[k][i]));
    }
  for (uint32_t i = 0; i < kArrays; i++) {  // the first makes memory shared
    for (uint32_t k = 0; k < 2; k++) {
      at_chip *c = guest_chip(&g, 2 - 2 * k);
      OK(at_buffer_copy_to(from[k][i], c, AT_MEM_DEVICE, &to[k][i]));
      if (!i) OK(pod_ready(to[k][i]));
    }
    if (!i) kill(p.hosts[1], SIGSTOP);
  }
  for (uint32_t k = 0; k < 2; k++) run_drop(from[k], kArrays);
  usleep(300000);
  pod_kill_host(&p, 1);
  for (uint32_t i = 1; i < kArrays; i++)
    for (uint32_t k = 0; k < 2; k++)
      assert_int_equal(at_code_take(pod_ready(to[k][i])), AT_DATA_LOSS);
  for (uint32_t k = 0; k < 2; k++) run_drop(to[k], kArrays);
  // Of the host that is left, whichever it is.
  uint64_t left = 1, limit = 0;
  const uint64_t until = at_clock_ns() + 20000000000ull;
  for (; left && at_clock_ns() < until; usleep(2000)) {
    left = limit = 0;
    for (uint32_t d = 0; d < 4; d++) {
      const at_memory_stats s = at_chip_memory_stats(guest_chip(&g, d));
      left += s.in_use;
      limit += s.limit;
    }
  }
  assert_true(limit && !left);
  guest_close(&g);
  pod_close(&p);
  free(v);
}

// ---- The controller ends
// Runs until it is killed.
static int controller_main(const char *port) {
  char address[64];
  at_controller *c;
  snprintf(address, sizeof address, "127.0.0.1:%s", port);
  OK(at_controller_open(&(at_controller_options){.listen = address,
                                                 .target = "v5e:2x2",
                                                 .num_hosts = 2,
                                                 .token = POD_TOKEN},
                        &c));
  for (;;) pause();
}

// Clients get UNAVAILABLE, hosts end.
static void who_loses_the_controller_ends(void **state) {
  uint16_t port;
  char text[16];
  assert_true(at_free_ports(1, &port));
  snprintf(text, sizeof text, "%u", port);
  pod p = {.num_hosts = 2, .num_chips = 4};
  snprintf(p.address, sizeof p.address, "127.0.0.1:%u", port);
  pid_t controller = pod_spawn("--controller", text, NULL);
  for (uint32_t i = 0; i < 2; i++)
    p.hosts[i] = pod_spawn("--host", p.address, NULL);
  guest g = guest_open(&p);
  enum { kNumber = 3 << 20 };
  float *v = numbers(kNumber, 0), *got = malloc(kNumber * 4);
  run r = run_make(&g, pod_rotates(4, 4), 4, 1);
  for (uint32_t d = 0; d < 4; d++)
    r.args[d] = pod_array(r.chips[d], AT_F32, v, 4);
  at_buffer *large = pod_array(r.chips[0], AT_F32, v, kNumber);
  OK(pod_ready(large));
  OK(run_try(&r, NULL));
  run_drop_outs(&r);
  at_event *done;
  OK(at_buffer_to_host(large, got, 0, kNumber * 4, &done));
  kill(controller, SIGKILL);
  pod_join(controller);
  at_status_free(pod_wait(done));
  free(got);  // nobody writes there any more
  at_event_release(done);
  at_code code = 0;
  uint64_t until = at_clock_ns() + 20000000000ull;
  while (!code && at_clock_ns() < until) {
    code = at_code_take(run_try(&r, NULL));
    if (!code) run_drop_outs(&r);
  }
  assert_int_equal(code, AT_UNAVAILABLE);
  for (uint32_t i = 0; i < 2; i++)
    assert_int_equal(pod_join(p.hosts[i]), AT_UNAVAILABLE);
  run_drop_args(&r);
  at_buffer_release(large);
  at_loaded_release(r.l);
  guest_close(&g);
  free(v);
}

// With two clients that send, and arrays that nobody has dropped.
static _Atomic bool over;
// Launches until the test says that it is over; errors are expected by then.
static void *go_on(void *arg) {
  run *r = arg;
  while (!atomic_load(&over))
    if (!at_code_take(run_try(r, NULL))) run_drop_outs(r);
  run_drop_args(r);
  at_loaded_release(r->l);
  return NULL;
}

// While two clients launch, sooner or later each time: both end with errors,
// and neither hangs.
static void a_pod_closes_under_its_clients(void **state) {
  for (int i = 0; i < 4; i++) {
    pod p;
    pthread_t threads[2];
    guest g[2];
    run r[2];
    float v[4] = {0};
    atomic_store(&over, false);
    pod_open(&p, "v5e:2x2", 2, 4);
    for (int k = 0; k < 2; k++) {
      g[k] = guest_open(&p);
      r[k] = run_make(&g[k], pod_rotates(4, 4), 4, 1);
      for (uint32_t d = 0; d < 4; d++)
        r[k].args[d] = pod_array(r[k].chips[d], AT_F32, v, 4);
      pthread_create(&threads[k], NULL, go_on, &r[k]);
    }
    usleep(30000 * (useconds_t)i);
    pod_close(&p);
    atomic_store(&over, true);
    for (int k = 0; k < 2; k++) {
      pthread_join(threads[k], NULL);
      guest_close(&g[k]);
    }
  }
}

int main(int argc, char **argv) {
  setenv("ATOLL_HBM", "64M", 1);  // so that it can be filled
  if (argc > 2 && !strcmp(argv[1], "--host")) return pod_host_main(argv[2]);
  if (argc > 2 && !strcmp(argv[1], "--controller"))
    return controller_main(argv[2]);
  if (argc > 3 && !strcmp(argv[1], "--victim"))
    return victim_main(argv[2], argv[3]);
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_type_comes_back),
      cmocka_unit_test(arrays_of_all_sizes_hop),
      cmocka_unit_test(hops_into_full_memory_are_errors),
      cmocka_unit_test(large_arrays_come_in_pieces),
      cmocka_unit_test(reads_go_on_behind_drops),
      cmocka_unit_test(programs_over_hosts_move_data),
      cmocka_unit_test(arguments_may_be_dropped_at_once),
      cmocka_unit_test(donated_arguments_give_their_memory),
      cmocka_unit_test(one_question_is_enough),
      cmocka_unit_test(each_launch_is_told_to_be_done),
      cmocka_unit_test(a_call_ends_with_the_host),
      cmocka_unit_test(shards_of_several_arrays_go_together),
      cmocka_unit_test(errors_travel_with_arrays),
      cmocka_unit_test(full_memory_is_an_error_of_one_array),
      cmocka_unit_test(callbacks_run_in_the_client),
      cmocka_unit_test(clients_do_not_see_each_other),
      cmocka_unit_test(dead_clients_leave_nothing),
      cmocka_unit_test(a_lost_host_is_an_error),
      cmocka_unit_test(what_is_lent_to_a_lost_host_is_given_back),
      cmocka_unit_test(who_loses_the_controller_ends),
      cmocka_unit_test(a_pod_closes_under_its_clients),
  };
  return cmocka_run_group_tests(tests, open_shared, close_shared);
}

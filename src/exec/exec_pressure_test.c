// Callers that run ahead, memory that is about to come back, and several
// threads and chips at once.
#include <pthread.h>
#include <unistd.h>

#include "base/config.h"
#include "exec/exec_internal.h"
#include "exec/exec_test_util.h"

// out[0] = in[0] + 1 and nothing else of a large array; slow: it sleeps in a
// callback.
static at_bytes touch_program(int64_t rows, bool callback) {
  builder b = b_new();
  uint32_t t = b_type(&b, AT_F32, 2, (int64_t[]){rows, 1024});
  uint32_t one = b_f32(&b, 1), x = b_input(&b, t), y = b_output(&b, one);
  if (callback) b_step(&b, AT_STEP_SEND, 0, ARGS(y))->aux = 1;
  b_call(&b, "k_inc", 1, 1, ARGS(x, y));
  b.h.estimated_ns = 1e9;
  return b_finish(&b, 0);
}

// A host callback that takes 30 ms and notes that it ran.
static at_status nap(void *user, const void *data, size_t bytes, size_t total,
                     bool done) {
  usleep(30000);
  atomic_store((_Atomic bool *)user, true);
  return AT_OK;
}

static _Alignas(64) float g_fake[16];

// An array of `gib` GiB that is accounted as such, but has no memory behind it.
// NULL: HBM is full.
static at_buffer *fake_gib(at_chip *c, int gib) {
  at_buffer *b = NULL;
  at_status st = at_buffer_view(c, AT_MEM_DEVICE, AT_F32,
                                (at_dims){(int64_t[]){gib << 18, 1024}, 2},
                                g_fake, NULL, NULL, &b);
  if (st.err) at_status_free(st);
  return b;
}

// With nothing running a second 12 GiB fail at once. With a launch that still
// reads the first, deleted array, the call waits until the launch has let go of
// it.
static void allocation_waits_for_memory_that_comes_back(void **state) {
  at_runtime *rt = test_runtime("v5e", 1);
  at_chip *c = at_runtime_chip(rt, 0);
  at_loaded *l = test_load(rt, touch_program(12 << 18, true));
  at_buffer *a = fake_gib(c, 12), *out;
  assert_non_null(a);
  assert_null(fake_gib(c, 12));  // nothing runs: at once
  _Atomic bool napped = false;
  at_host_channel channel = {1, nap, NULL, &napped};
  at_channel_list channels = {&channel, 1};
  OK(at_loaded_execute(
      l,
      &(at_launch){.chip = c, .args = &a, .num_args = 1, .channels = &channels},
      &out, NULL));
  at_buffer_delete(a);             // the launch still reads it
  at_buffer *b = fake_gib(c, 12);  // waits for the launch
  assert_non_null(b);
  assert_true(atomic_load(&napped));
  at_buffer_release(a);
  at_buffer_release(b);
  at_buffer_release(out);
  at_loaded_release(l);
  // The launch lets go of its memory on its own thread, a moment after `b` got
  // it.
  for (int ms = 0; ms < 10000 && at_chip_memory_stats(c).in_use; ms++)
    usleep(1000);
  assert_true(at_chip_memory_stats(c).in_use == 0);
  at_runtime_destroy(rt);
}

typedef struct runner {
  at_loaded *loaded;
  at_chip *chip;
  at_buffer *first;
  int ahead;
  _Atomic int enqueued;
  at_buffer *last;
} runner;

enum { kAhead = 300, kTooMany = 6000 };

// Launches without waiting, each on the result of the one before, until `ahead`
// are made. `enqueued` tells how far it got.
static void *run_ahead(void *arg) {
  runner *r = arg;
  at_buffer *x = at_buffer_retain(r->first);
  for (int i = 0; i < r->ahead; i++) {
    at_buffer *y = NULL;
    OK(at_loaded_execute(
        r->loaded, &(at_launch){.chip = r->chip, .args = &x, .num_args = 1}, &y,
        NULL));
    at_buffer_release(x);
    x = y;
    atomic_fetch_add(&r->enqueued, 1);
  }
  r->last = x;
  return NULL;
}

// y = x + 1 over four floats.
static at_bytes inc_program(void) {
  builder b = b_new();
  uint32_t t = b_f32(&b, 4), x = b_input(&b, t), y = b_output(&b, t);
  b_call(&b, "k_inc", 4, 4, ARGS(x, y));
  return b_finish(&b, 0);
}

// The first argument is never defined until the test says so, so launches pile
// up: the caller must stop between 1,000 and 6,000 of them, go on when work
// runs, and lose none.
static void callers_wait_when_the_queue_is_full(void **state) {
  at_runtime *rt = test_runtime("v6e", 2);
  at_chip *c = at_runtime_chip(rt, 0);
  runner r = {
      .loaded = test_load(rt, inc_program()), .chip = c, .ahead = kTooMany};
  int64_t n = 4;
  OK(at_buffer_create(c, AT_MEM_DEVICE, AT_F32, (at_dims){&n, 1}, &r.first));
  pthread_t t;
  pthread_create(&t, NULL, run_ahead, &r);
  int before = -1, now = 0;
  while (now == 0 || now != before) {  // until it stops making progress
    before = now;
    usleep(50000);
    now = atomic_load(&r.enqueued);
  }
  assert_true(now >= 1000 && now < kTooMany);
  memset(at_buffer_data_mut(r.first), 0, 16);
  at_buffer_define(r.first, AT_OK);
  pthread_join(t, NULL);
  float v[4];
  test_fetch(r.last, v, 4);
  assert_true(v[0] == kTooMany);
  at_buffer_release(r.first);
  at_buffer_release(r.last);
  at_loaded_release(r.loaded);
  at_runtime_destroy(rt);
}

// Eight threads on four chips, two to a chip: each chain keeps its own order,
// and no memory is left accounted.
static void many_threads_share_many_chips(void **state) {
  at_runtime *rt = test_runtime("v5e:2x2", 2);
  at_loaded *l = test_load(rt, inc_program());
  runner r[8];
  pthread_t t[8];
  float v[4] = {0};
  for (uint32_t i = 0; i < 8; i++) {
    r[i] = (runner){
        .loaded = l, .chip = at_runtime_chip(rt, i % 4), .ahead = kAhead};
    r[i].first = test_array(r[i].chip, v, 4);
    pthread_create(&t[i], NULL, run_ahead, &r[i]);
  }
  for (int i = 0; i < 8; i++) {
    pthread_join(t[i], NULL);
    test_fetch(r[i].last, v, 4);
    assert_true(v[0] == kAhead && v[3] == kAhead);
    at_buffer_release(r[i].first);
    at_buffer_release(r[i].last);
  }
  for (uint32_t i = 0; i < 4; i++)
    assert_true(at_chip_memory_stats(at_runtime_chip(rt, i)).in_use == 0);
  at_loaded_release(l);
  at_runtime_destroy(rt);
}

// Deletes what another thread is about to use: an error or a result, nothing
// else.
typedef struct race {
  at_chip *chip;
  at_loaded *loaded;
  at_buffer *shared;
  _Atomic int go;
} race;
// Waits for the start, so that deletion and launch happen together.
static void *delete_it(void *arg) {
  race *r = arg;
  while (!atomic_load(&r->go)) continue;
  at_buffer_delete(r->shared);
  return NULL;
}
// 300 races: either the launch has a hold and its result is right, or
// INVALID_ARGUMENT.
static void deletion_races_with_use(void **state) {
  at_runtime *rt = test_runtime("v6e", 2);
  race r = {.chip = at_runtime_chip(rt, 0),
            .loaded = test_load(rt, inc_program())};
  float v[4] = {1, 1, 1, 1};
  int ran = 0, refused = 0;
  for (int i = 0; i < 300; i++) {
    r.shared = test_array(r.chip, v, 4);
    atomic_store(&r.go, 0);
    pthread_t t;
    pthread_create(&t, NULL, delete_it, &r);
    atomic_store(&r.go, 1);
    at_buffer *out = NULL;
    at_code code = at_code_take(at_loaded_execute(
        r.loaded,
        &(at_launch){.chip = r.chip, .args = &r.shared, .num_args = 1}, &out,
        NULL));
    if (code == AT_OK_CODE) {
      float got[4];
      test_fetch(out, got, 4);
      assert_true(got[2] == 2);
      at_buffer_release(out);
      ran++;
    } else {
      assert_int_equal(code, AT_INVALID_ARGUMENT);
      refused++;
    }
    pthread_join(t, NULL);
    at_buffer_release(r.shared);
  }
  assert_int_equal(ran + refused, 300);
  assert_true(at_chip_memory_stats(r.chip).in_use == 0);
  at_loaded_release(r.loaded);
  at_runtime_destroy(rt);
}

// Around class borders: at most an eighth is lost, blocks are aligned to 64
// bytes, and the next request of that size gets the same block. Sizes that no
// machine has are refused, not overflowed.
static void blocks_come_back_and_fit(void **state) {
  at_blocks *b = at_blocks_create();
  static const size_t sizes[] = {0,       1,       64,           65,     1000,
                                 1025,    5000,    100000,       262143, 262144,
                                 1 << 20, 3 << 20, (5 << 20) + 1};
  for (size_t i = 0; i < AT_LEN(sizes); i++) {
    size_t capacity = at_blocks_capacity(sizes[i]);
    assert_true(capacity >= sizes[i] &&
                capacity <= AT_MAX((size_t)64, sizes[i] + sizes[i] / 8 + 64));
    uint8_t *p = at_blocks_take(b, sizes[i]);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % 64, 0);
    memset(p, (int)i, sizes[i]);
    at_blocks_give(b, p, sizes[i]);
    assert_ptr_equal(at_blocks_take(b, sizes[i]), p);  // warm
    at_blocks_give(b, p, sizes[i]);
  }
  assert_true(at_blocks_cached_bytes(b) > 0);
  assert_null(at_blocks_take(b, SIZE_MAX));
  assert_null(at_blocks_take(b, (size_t)1 << 47));
  at_blocks_destroy(b);
}

// Resident memory of this process.
static size_t resident_bytes(void) {
  FILE *f = fopen("/proc/self/statm", "re");
  unsigned long long all, resident;
  assert_non_null(f);
  assert_int_equal(fscanf(f, "%llu %llu", &all, &resident), 2);
  fclose(f);
  return (size_t)resident * (size_t)sysconf(_SC_PAGESIZE);
}

#if __has_feature(thread_sanitizer)
enum { kShadow = 1 };  // is resident, too
#else
enum { kShadow = 0 };
#endif

// A huge page each would be half a GiB.
static void first_blocks_of_many_chips_cost_little(void **state) {
  enum { CHIPS = 256, BYTES = 4000, MOST = 128 << 10 };
  static at_blocks *chips[CHIPS];
  static void *taken[CHIPS];
  size_t before = resident_bytes();
  for (int i = 0; i < CHIPS; i++) {
    chips[i] = at_blocks_create();
    taken[i] = at_blocks_take(chips[i], BYTES);
    memset(taken[i], i, BYTES);
  }
  assert_true(kShadow || resident_bytes() - before < (size_t)CHIPS * MOST);
  for (int i = 0; i < CHIPS; i++) {
    at_blocks_give(chips[i], taken[i], BYTES);
    at_blocks_destroy(chips[i]);
  }
}

// A request that cannot be met trims the cache: large blocks lose their pages
// (they read as zeros again) but keep their places, small ones and blocks in
// use stay. Live blocks never overlap.
static void blocks_give_their_pages_back(void **state) {
  enum { SMALL = 1000, LARGE = 1 << 20, COUNT = 40 };
  at_blocks *b = at_blocks_create();
  if (at_config_flag(AT_CONFIG_GUARD)) {  // each is a mapping of its own
    at_blocks_destroy(b);
    return;
  }
  uint8_t *small = at_blocks_take(b, SMALL), *p[COUNT];
  for (int i = 0; i < COUNT; i++) {
    p[i] = at_blocks_take(b, LARGE);
    assert_non_null(p[i]);
    memset(p[i], i + 1, LARGE);
    for (int j = 0; j < i; j++)
      assert_true(p[j] + LARGE <= p[i] || p[i] + LARGE <= p[j]);
  }
  at_blocks_give(b, small, SMALL);
  for (int i = 1; i < COUNT; i++) at_blocks_give(b, p[i], LARGE);
  size_t before = at_blocks_cached_bytes(b), kept = at_blocks_capacity(SMALL);
  assert_int_equal(before, kept + (COUNT - 1) * at_blocks_capacity(LARGE));
  assert_null(at_blocks_take(b, (size_t)1 << 45));  // which asks for all of it
  assert_int_equal(at_blocks_cached_bytes(b), kept);
  assert_true(p[0][0] == 1 && p[0][LARGE - 1] == 1);
  for (int i = COUNT - 1; i > 0; i--) {
    assert_ptr_equal(at_blocks_take(b, LARGE), p[i]);
    assert_int_equal(p[i][LARGE - 1], 0);  // a fresh page
    memset(p[i], i + 1, LARGE);
  }
  assert_int_equal(at_blocks_cached_bytes(b), kept);
  for (int i = 0; i < COUNT; i++) at_blocks_give(b, p[i], LARGE);
  assert_true(at_blocks_cached_bytes(b) > before);
  at_blocks_destroy(b);
}

// Does /proc/self/maps show a file behind this address?
static bool mapped_from_file(const void *p) {
  FILE *f = fopen("/proc/self/maps", "re");
  char line[4096];
  bool found = false;
  while (f && !found && fgets(line, sizeof line, f)) {
    unsigned long long begin, end, inode = 0;
    if (sscanf(line, "%llx-%llx %*s %*s %*s %llu", &begin, &end, &inode) == 3)
      found = (uintptr_t)p >= begin && (uintptr_t)p < end && inode;
  }
  if (f) fclose(f);
  return found;
}

// Over 64 MiB a block is a file in ATOLL_SPILL_DIR, and comes back from the
// cache; a folder that does not exist is no memory, not a fault.
static void large_blocks_go_to_files(void **state) {
  const size_t large = (size_t)65 << 20;
  assert_int_equal(at_code_take(at_config_set(AT_CONFIG_SPILL_DIR, "/tmp")), 0);
  at_blocks *b = at_blocks_create();
  assert_int_equal(
      at_code_take(at_config_set(AT_CONFIG_SPILL_DIR, "/nowhere/at/all")), 0);
  at_blocks *none = at_blocks_create();
  assert_int_equal(at_code_take(at_config_set(AT_CONFIG_SPILL_DIR, "")), 0);
  if (at_config_flag(AT_CONFIG_GUARD)) {  // blocks between guards never do
    at_blocks_destroy(none);
    at_blocks_destroy(b);
    return;
  }
  uint8_t *p = at_blocks_take(b, large), *q = at_blocks_take(b, large);
  uint8_t *small = at_blocks_take(b, 1 << 20);
  assert_true(p && q && small && p != q);
  assert_true(mapped_from_file(p));
  assert_false(mapped_from_file(small));
  p[0] = 1, p[large - 1] = 2, q[0] = 3;
  assert_true(p[0] == 1 && p[large - 1] == 2);
  at_blocks_give(b, p, large);
  assert_ptr_equal(at_blocks_take(b, large), p);
  at_blocks_give(b, q, large);
  at_blocks_give(b, small, 1 << 20);
  at_blocks_give(b, p, large);
  assert_null(at_blocks_take(none, large));
  at_blocks_destroy(none);
  at_blocks_destroy(b);
}

// Chips share the host's memory: what one of them was promised is not promised
// to another, though nobody has written to it yet.
static void memory_is_not_promised_twice(void **state) {
  enum { kMost = 4096 };
  const size_t each = (size_t)1 << 30;
  size_t all = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
  at_blocks *chips[2] = {at_blocks_create(), at_blocks_create()};
  static void *taken[kMost];
  size_t n = 0;
  while (n < kMost && (taken[n] = at_blocks_take(chips[n % 2], each))) n++;
  if (getenv("ATOLL_GUARD") == NULL) assert_true(n * each <= all);
  while (n-- > 0) at_blocks_give(chips[n % 2], taken[n], each);
  at_blocks_destroy(chips[0]);
  at_blocks_destroy(chips[1]);
}

// Twelve arrays of 1 MiB where there is room for four, one after the other and
// several at once.
static void what_does_not_fit_is_spilled(void **state) {
  enum { kArrays = 12, kRows = 256 };
  OK(at_config_set(AT_CONFIG_HBM, "4M"));
  OK(at_config_set(AT_CONFIG_SPILL_DIR, "/tmp"));
  at_runtime *rt = test_runtime("v5e", 2);
  at_chip *c = at_runtime_chip(rt, 0);
  assert_int_equal(at_chip_info_of(c)->hbm_bytes, 4 << 20);
  at_loaded *l = test_load(rt, touch_program(kRows, false));
  at_buffer *all[kArrays];
  float *host = malloc(kRows * 4096);
  for (int i = 0; i < kArrays; i++) {
    for (int k = 0; k < kRows * 1024; k++) host[k] = (float)(i * 1000 + k % 7);
    at_event *done;
    OK(at_buffer_from_host(
        c, AT_MEM_DEVICE,
        &(at_host_array){AT_F32, {(int64_t[]){kRows, 1024}, 2}, NULL, host},
        AT_HOST_IMMUTABLE_ONLY_DURING_CALL, &all[i], &done));
    at_event_release(done);
  }
  for (int turn = 0; turn < 3; turn++)
    for (int i = 0; i < kArrays; i++) {
      at_buffer *out;
      float one;
      at_event *done;
      OK(at_loaded_execute(
          l, &(at_launch){.chip = c, .args = &all[i], .num_args = 1}, &out,
          NULL));
      OK(at_buffer_to_host(out, &one, 0, sizeof one, &done));
      OK(at_event_wait(done));
      at_event_release(done);
      assert_true(one == (float)(i * 1000) + 1);
      at_buffer_release(out);
    }
  for (int i = 0; i < kArrays; i++) {  // whole, and from behind
    at_event *done;
    at_buffer *b = all[kArrays - 1 - i], *copy;
    OK(at_buffer_copy_to(b, c, AT_MEM_DEVICE, &copy));
    OK(at_buffer_to_host(copy, host, 0, kRows * 4096, &done));
    OK(at_event_wait(done));
    at_event_release(done);
    for (int k = 0; k < kRows * 1024; k++)
      assert_true(host[k] == (float)((kArrays - 1 - i) * 1000 + k % 7));
    at_buffer_release(copy);
  }
  assert_true(at_chip_memory_stats(c).in_use <= 4 << 20);
  // What is in use stays: four that somebody holds leave no room for a fifth.
  for (int i = 0; i < 4; i++) OK(at_buffer_acquire(all[i]));
  at_buffer *none;
  assert_int_equal(at_code_take(at_buffer_create(
                       c, AT_MEM_DEVICE, AT_F32,
                       (at_dims){(int64_t[]){kRows, 1024}, 2}, &none)),
                   AT_RESOURCE_EXHAUSTED);
  for (int i = 0; i < 4; i++) at_buffer_unacquire(all[i]);
  for (int i = 0; i < kArrays; i++) at_buffer_release(all[i]);
  assert_int_equal(at_chip_memory_stats(c).in_use, 0);
  free(host);
  at_loaded_release(l);
  at_runtime_destroy(rt);
  OK(at_config_set(AT_CONFIG_HBM, ""));
  OK(at_config_set(AT_CONFIG_SPILL_DIR, ""));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_does_not_fit_is_spilled),
      cmocka_unit_test(allocation_waits_for_memory_that_comes_back),
      cmocka_unit_test(callers_wait_when_the_queue_is_full),
      cmocka_unit_test(many_threads_share_many_chips),
      cmocka_unit_test(deletion_races_with_use),
      cmocka_unit_test(blocks_come_back_and_fit),
      cmocka_unit_test(first_blocks_of_many_chips_cost_little),
      cmocka_unit_test(blocks_give_their_pages_back),
      cmocka_unit_test(large_blocks_go_to_files),
      cmocka_unit_test(memory_is_not_promised_twice),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

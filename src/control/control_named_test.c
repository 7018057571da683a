// Named objects: what a client leaves on the hosts is there for others, whole
// or not at all, until somebody discards it.
#include "control/client_internal.h"
#include "control/named.h"
#include "control/pod_test_util.h"

enum { kChips = 4, kNumber = 5000 };

static pod shared;

static int open_shared(void **state) {
  pod_open(&shared, "v5e:2x2", 2, kChips);
  return 0;
}
static int close_shared(void **state) {
  pod_close(&shared);
  return 0;
}

// One array with a shard on each chip: its values are from + chip.
typedef struct spread {
  at_buffer *shards[kChips];
} spread;

// kNumber floats of one value.
static at_buffer *filled(at_chip *c, float value) {
  float v[kNumber];
  for (int i = 0; i < kNumber; i++) v[i] = value;
  return pod_array(c, AT_F32, v, kNumber);
}

// An array of one shard on each chip.
static spread spread_make(const guest *g, float from) {
  spread s;
  for (uint32_t d = 0; d < kChips; d++)
    s.shards[d] = filled(guest_chip(g, d), from + (float)d);
  return s;
}

static void spread_drop(spread *s) { run_drop(s->shards, kChips); }

// Bit by bit.
static void expect_values(at_buffer *b, float value) {
  float got[kNumber];
  OK(pod_fetch(b, got, 0, sizeof got));
  for (int i = 0; i < kNumber; i++)
    if (got[i] != value) fail_msg("%g instead of %g", got[i], value);
}

static void expect_spread(const spread *s, float from) {
  for (uint32_t d = 0; d < kChips; d++)
    expect_values(s->shards[d], from + (float)d);
}

// Puts the array under the name and waits until all hosts have it.
static at_status keep(const guest *g, const char *name, const spread *s,
                      bool moves) {
  uint64_t array;
  at_proxy_shard each[kChips];
  at_asked *asked;
  AT_TRY(at_proxy_name(s->shards, kChips, &array, each));
  const at_named_keep k = {.name = at_str_of(name),
                           .label = AT_STR("of a test"),
                           .about = {(const uint8_t *)name, strlen(name)},
                           .arrays = &array,
                           .num_arrays = 1,
                           .moves = moves};
  AT_TRY(at_named_keep_ask(g->client, &k, &asked));
  return at_asked_wait(asked, NULL);
}

// The object as an array of this client; `about` comes back with it.
static at_status fetch(const guest *g, const char *name, bool takes,
                       spread *out) {
  at_strbuf text = {0};
  at_asked *asked;
  uint64_t first;
  AT_TRY(at_named_fetch_ask(g->client, at_str_of(name), takes, &first, &asked));
  at_status st = at_asked_wait(asked, &text);
  if (!st.err) {
    assert_int_equal(text.len, sizeof(at_msg_fetched) + strlen(name));
    assert_memory_equal(text.ptr + sizeof(at_msg_fetched), name, strlen(name));
    at_chip *chips[kChips];
    const int64_t n = kNumber;
    for (uint32_t d = 0; d < kChips; d++) chips[d] = guest_chip(g, d);
    const at_proxy_like like = {chips, kChips, AT_MEM_DEVICE, AT_F32, {&n, 1}};
    st = at_proxy_adopt(first, &like, out->shards);
  }
  at_strbuf_free(&text);
  return st;
}

static at_status discard(const guest *g, const char *name) {
  at_asked *asked;
  AT_TRY(at_named_discard_ask(g->client, at_str_of(name), &asked));
  return at_asked_wait(asked, NULL);
}

// Does the list of objects have that text?
static bool is_listed(const guest *g, const char *text) {
  at_strbuf all = {0};
  at_asked *asked;
  OK(at_named_list_ask(g->client, &asked));
  OK(at_asked_wait(asked, &all));
  bool found = strstr(all.ptr, text) != NULL;
  at_strbuf_free(&all);
  return found;
}

// ---- Tests
// The object is a copy: donating the array afterwards, or ending the client,
// leaves it.
static void objects_outlive_clients(void **state) {
  guest g = guest_open(&shared);
  spread s = spread_make(&g, 10), got, again;
  OK(keep(&g, "weights", &s, false));
  // What happens to the arrays does not change the object.
  run r = run_make(&g, pod_copies(4, AT_F32, kNumber, 1, true), 4, 1);
  r.keeps[0] = false;
  memcpy(r.args, s.shards, sizeof s.shards);
  OK(run_try(&r, NULL));
  run_drop_outs(&r);
  run_drop_args(&r);
  at_loaded_release(r.l);
  guest_close(&g);
  g = guest_open(&shared);
  assert_true(is_listed(&g,
                        "\"name\":\"weights\",\"label\":\"of a test\","
                        "\"owner\":\"guest\""));
  OK(fetch(&g, "weights", false, &got));
  OK(fetch(&g, "weights", false, &again));
  expect_spread(&got, 10);
  spread_drop(&got);
  OK(discard(&g, "weights"));
  assert_false(is_listed(&g, "weights"));
  assert_int_equal(at_code_take(fetch(&g, "weights", false, &got)),
                   AT_NOT_FOUND);
  assert_int_equal(at_code_take(discard(&g, "weights")), AT_NOT_FOUND);
  expect_spread(&again, 10);  // who has it keeps it
  spread_drop(&again);
  guest_expect_empty(&g, kChips);
  guest_close(&g);
}

// Memory in use stays what it was.
static void moved_objects_are_not_copied(void **state) {
  guest g = guest_open(&shared);
  spread s = spread_make(&g, 1), got;
  for (uint32_t d = 0; d < kChips; d++) OK(pod_ready(s.shards[d]));
  uint64_t one = guest_in_use(&g, kChips);
  OK(keep(&g, "moved", &s, true));
  assert_int_equal(guest_in_use(&g, kChips), one);
  spread_drop(&s);
  OK(fetch(&g, "moved", true, &got));
  assert_int_equal(guest_in_use(&g, kChips), one);
  expect_spread(&got, 1);
  assert_false(is_listed(&g, "moved"));
  spread_drop(&got);
  guest_expect_empty(&g, kChips);
  guest_close(&g);
}

// An array with an error, or no memory for the copy: the former object is still
// there.
static void what_fails_does_not_replace(void **state) {
  guest g = guest_open(&shared);
  spread s = spread_make(&g, 5), bad = spread_make(&g, 7), got;
  const int64_t n = kNumber;
  OK(keep(&g, "x", &s, false));
  at_buffer_release(bad.shards[2]);
  OK(at_buffer_create(guest_chip(&g, 2), AT_MEM_DEVICE, AT_F32,
                      (at_dims){&n, 1}, &bad.shards[2]));
  at_buffer_define(bad.shards[2], AT_FAIL(AT_OUT_OF_RANGE, "no such rows"));
  at_status st = keep(&g, "x", &bad, false);
  assert_non_null(strstr(at_status_message(st), "no such rows"));
  assert_int_equal(at_code_take(st), AT_OUT_OF_RANGE);
  OK(fetch(&g, "x", false, &got));
  expect_spread(&got, 5);
  spread_drop(&got);
  spread_drop(&bad);
  // No memory for the copies on one chip.
  at_memory_stats m = at_chip_memory_stats(guest_chip(&g, 3));
  const int64_t most = (int64_t)(m.limit - m.in_use) / 4 - 4096;
  at_buffer *all;
  OK(at_buffer_create(guest_chip(&g, 3), AT_MEM_DEVICE, AT_F32,
                      (at_dims){&most, 1}, &all));
  st = keep(&g, "x", &s, false);
  assert_int_equal(at_code_take(st), AT_RESOURCE_EXHAUSTED);
  at_buffer_release(all);
  spread_drop(&s);
  s = spread_make(&g, 6);
  guest_in_use(&g, kChips);
  OK(keep(&g, "x", &s, false));
  OK(fetch(&g, "x", false, &got));
  expect_spread(&got, 6);
  spread_drop(&got);
  spread_drop(&s);
  OK(discard(&g, "x"));
  guest_expect_empty(&g, kChips);
  guest_close(&g);
}

// Puts and fetches until it is killed.
static int victim_main(const char *address, const char *name) {
  guest g;
  OK(guest_try(address, &g));
  for (float i = 0;; i += 100) {
    spread s = spread_make(&g, i), got;
    at_status_free(keep(&g, "both", &s, false));
    at_status_free(keep(&g, name, &s, true));
    if (!at_code_take(fetch(&g, "both", false, &got))) spread_drop(&got);
    spread_drop(&s);
  }
}

// Clients are killed at any moment: all shards of an object are of one turn.
static void objects_are_whole_however_clients_end(void **state) {
  guest g = guest_open(&shared);
  srand(3);
  for (int i = 0; i < 12; i++) {
    pid_t a = pod_spawn("--victim", shared.address, "a"),
          b = pod_spawn("--victim", shared.address, "b");
    usleep((useconds_t)(rand() % 120000));
    kill(a, SIGKILL);
    kill(b, SIGKILL);
    pod_join(a);
    pod_join(b);
    spread got;
    if (at_code_take(fetch(&g, "both", false, &got))) continue;
    float first;
    OK(pod_fetch(got.shards[0], &first, 0, sizeof first));
    expect_spread(&got, first);
    spread_drop(&got);
  }
  static const char *const names[] = {"a", "b", "both"};
  // One that was about to be kept is there a moment later.
  uint64_t until = at_clock_ns() + 20000000000ull;
  do {
    for (size_t i = 0; i < AT_LEN(names); i++)
      at_status_free(discard(&g, names[i]));
  } while (guest_in_use(&g, kChips) && at_clock_ns() < until);
  guest_expect_empty(&g, kChips);
  guest_close(&g);
}

// The object is listed as lost and can only be discarded.
static void a_lost_host_loses_its_objects(void **state) {
  pod p;
  pod_open(&p, "v5e:2x2", 2, kChips);
  guest g = guest_open(&p);
  spread s = spread_make(&g, 2), got;
  OK(keep(&g, "x", &s, false));
  pod_kill_host(&p, 1);
  while (at_controller_hosts(p.controller) == 2) usleep(1000);
  at_status st = fetch(&g, "x", false, &got);
  assert_non_null(strstr(at_status_message(st), "is lost"));
  assert_int_equal(at_code_take(st), AT_DATA_LOSS);
  assert_true(is_listed(&g, "\"state\":\"lost\""));
  assert_int_equal(at_code_take(keep(&g, "x", &s, false)), AT_DATA_LOSS);
  OK(discard(&g, "x"));
  assert_false(is_listed(&g, "\"name\":\"x\""));
  spread_drop(&s);
  guest_close(&g);
  pod_close(&p);
}

int main(int argc, char **argv) {
  setenv("ATOLL_HBM", "64M", 1);
  if (argc > 2 && !strcmp(argv[1], "--host")) return pod_host_main(argv[2]);
  if (argc > 3 && !strcmp(argv[1], "--victim"))
    return victim_main(argv[2], argv[3]);
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(objects_outlive_clients),
      cmocka_unit_test(moved_objects_are_not_copied),
      cmocka_unit_test(what_fails_does_not_replace),
      cmocka_unit_test(objects_are_whole_however_clients_end),
      cmocka_unit_test(a_lost_host_loses_its_objects),
  };
  return cmocka_run_group_tests(tests, open_shared, close_shared);
}

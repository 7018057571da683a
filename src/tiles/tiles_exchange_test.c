// The exchange's plan against closed forms, and against what it may never do.
#include "base/arena.h"
#include "tiles/tiles_test_util.h"

typedef struct pattern {
  at_tiles_exchange x;
  uint32_t *receivers;
  size_t len, num_receivers;
} pattern;

static void reserve(pattern *p, size_t messages, size_t receivers) {
  p->x.messages = calloc(messages + 1, sizeof *p->x.messages);
  p->receivers = calloc(receivers + 1, sizeof *p->receivers);
  p->x.receivers = p->receivers;
  assert_non_null(p->x.messages);
}
static void send(pattern *p, uint32_t from, uint32_t to, int64_t bytes) {
  p->receivers[p->num_receivers] = to;
  p->x.messages[p->x.num_messages++] =
      (at_tiles_message){from, (uint32_t)p->num_receivers++, 1, bytes, 0};
}
static void release(pattern *p) {
  free(p->x.messages);
  free(p->receivers);
}

enum {
  kAllToAll,
  kBroadcast,
  kGather,
  kNeighbour,
  kTranspose,
  kAllGather,
  kPatterns
};
static const char *const names[] = {"all-to-all", "broadcast", "gather",
                                    "neighbour",  "transpose", "all-gather"};

// `n` tiles take part; every message is `bytes` long. Returns the closed form.
static int64_t make(pattern *p, int which, uint32_t n, int64_t bytes) {
  int64_t word = (bytes + 3) / 4;
  *p = (pattern){0};
  switch (which) {
    case kAllToAll:
      reserve(p, (size_t)n * n, (size_t)n * n);
      for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < n; k++)
          if (i != k) send(p, i, k, bytes);
      return (n - 1) * word;
    case kBroadcast:
      reserve(p, 1, n);
      for (uint32_t k = 1; k < n; k++) p->receivers[k - 1] = k;
      p->x.messages[0] = (at_tiles_message){0, 0, n - 1, bytes, 0};
      p->x.num_messages = 1;
      return n > 1 ? word : 0;
    case kGather:
      reserve(p, n, n);
      for (uint32_t i = 1; i < n; i++) send(p, i, 0, bytes);
      return (n - 1) * word;
    case kNeighbour:
      reserve(p, 2 * n, 2 * n);
      for (uint32_t i = 0; i < n; i++) {
        send(p, i, (i + 1) % n, bytes);
        send(p, i, (i + n - 1) % n, bytes);
      }
      return 2 * word;
    case kTranspose: {  // a grid of s x s tiles: (r, c) to (c, r)
      uint32_t s = 1;
      while ((s + 1) * (s + 1) <= n) s++;
      reserve(p, n, n);
      for (uint32_t r = 0; r < s; r++)
        for (uint32_t c = 0; c < s; c++)
          if (r != c) send(p, r * s + c, c * s + r, bytes);
      return s > 1 ? word : 0;
    }
    default:  // every tile's piece to all others
      reserve(p, n, (size_t)n * n);
      for (uint32_t i = 0; i < n; i++) {
        uint32_t first = (uint32_t)p->num_receivers;
        for (uint32_t k = 0; k < n; k++)
          if (k != i) p->receivers[p->num_receivers++] = k;
        p->x.messages[p->x.num_messages++] =
            (at_tiles_message){i, first, n - 1, bytes, 0};
      }
      return n > 1 ? (n > 2 ? n : 1) * word : 0;
  }
}

static void patterns_meet_their_closed_forms(void **state) {
  static const struct {
    uint32_t n;
    int64_t bytes;
  } sizes[] = {{2, 4}, {16, 1024}, {37, 100}, {368, 64}, {1472, 16}};
  at_tiles_machine m = mk2();
  for (int which = 0; which < kPatterns; which++)
    for (size_t i = 0; i < AT_LEN(sizes); i++) {
      pattern p;
      int64_t want = make(&p, which, sizes[i].n, sizes[i].bytes);
      ok(at_tiles_exchange_plan(&m, &p.x));
      ok(at_tiles_exchange_verify(&m, &p.x));
      print_message(
          "%-10s %4u tiles, %5lld bytes: %7lld cycles, closed form %7lld, "
          "bound %7lld\n",
          names[which], sizes[i].n, (long long)sizes[i].bytes,
          (long long)p.x.cycles, (long long)want, (long long)p.x.lower_bound);
      assert_true(p.x.cycles >= p.x.lower_bound);
      assert_true(p.x.cycles <= want + want / 10);
      if (which == kAllGather && sizes[i].n > 2)
        assert_true(p.x.cycles >= want - 1 - (sizes[i].bytes + 3) / 4);
      else if (sizes[i].n > 2)
        assert_true(p.x.cycles >= want);
      release(&p);
    }
}

static uint64_t g_seed = 5;
static uint32_t below(uint32_t n) {
  g_seed ^= g_seed >> 12, g_seed ^= g_seed << 25, g_seed ^= g_seed >> 27;
  return (uint32_t)((g_seed * 0x2545F4914F6CDD1Dull) >> 33) % n;
}

// Balanced at random: every tile sends and receives `degree` messages.
static void balanced_patterns_come_within_a_tenth(void **state) {
  at_tiles_machine m = mk2();
  for (int c = 0; c < 20; c++) {
    uint32_t n = 64 + below(700), degree = 8 + below(40);
    pattern p = {0};
    uint32_t *to = malloc(n * sizeof *to);
    reserve(&p, (size_t)n * degree, (size_t)n * degree);
    for (uint32_t d = 0; d < degree; d++) {
      for (uint32_t i = 0; i < n; i++) to[i] = i;
      for (uint32_t i = n; i > 1; i--) {
        uint32_t k = below(i), t = to[i - 1];
        to[i - 1] = to[k], to[k] = t;
      }
      for (uint32_t i = 0; i < n; i++)
        if (to[i] != i) send(&p, i, to[i], 256);
    }
    ok(at_tiles_exchange_plan(&m, &p.x));
    ok(at_tiles_exchange_verify(&m, &p.x));
    print_message("%u tiles, %u messages each: %lld cycles, bound %lld\n", n,
                  degree, (long long)p.x.cycles, (long long)p.x.lower_bound);
    assert_true(10 * p.x.cycles <= 11 * p.x.lower_bound + 640);
    free(to);
    release(&p);
  }
}

// Random messages with random receivers: never two at once, never worse than
// one after another.
static void no_plan_exceeds_the_rate(void **state) {
  at_tiles_machine m = mk2();
  for (int c = 0; c < 200; c++) {
    pattern p = {0};
    size_t n = below(300);
    reserve(&p, n, n * 20);
    int64_t serial = 0;
    for (size_t i = 0; i < n; i++) {
      uint32_t first = (uint32_t)p.num_receivers, from = below(40),
               count = 1 + below(20), at = below(8);
      for (uint32_t k = 0; k < count && at < 40;
           k++, at += 1 + (c & 1 ? below(3) : 0))
        p.receivers[p.num_receivers++] = at;
      int64_t bytes = below(5000);
      serial += (bytes + 3) / 4;
      p.x.messages[i] = (at_tiles_message){
          from, first, (uint32_t)p.num_receivers - first, bytes, 0};
    }
    p.x.num_messages = n;
    ok(at_tiles_exchange_plan(&m, &p.x));
    ok(at_tiles_exchange_verify(&m, &p.x));
    assert_true(p.x.cycles >= p.x.lower_bound && p.x.cycles <= serial);
    release(&p);
  }
}

static void a_pair_receives_twice_as_fast(void **state) {
  at_tiles_machine m = mk2();
  at_tiles_message g[1] = {{10, 0, 2, 4096, 0}};
  at_tiles_exchange x = {
      .messages = g, .num_messages = 1, .receivers = (uint32_t[]){4, 5}};
  ok(at_tiles_exchange_plan(&m, &x));
  assert_int_equal(x.cycles, 512);
  x.receivers = (uint32_t[]){5, 6};  // two halves of different pairs
  ok(at_tiles_exchange_plan(&m, &x));
  assert_int_equal(x.cycles, 1024);
}

static void a_bad_plan_is_found(void **state) {
  at_tiles_machine m = mk2();
  at_tiles_message g[2] = {{0, 0, 1, 64, 0}, {1, 1, 1, 64, 8}};
  at_tiles_exchange x = {.messages = g,
                         .num_messages = 2,
                         .receivers = (uint32_t[]){5, 5},
                         .cycles = 24};
  expect(at_tiles_exchange_verify(&m, &x), AT_INTERNAL, "tile 5", "receives");
  x.receivers = (uint32_t[]){5, 1472};
  expect(at_tiles_exchange_plan(&m, &x), AT_OUT_OF_RANGE, "tile 1");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(patterns_meet_their_closed_forms),
      cmocka_unit_test(balanced_patterns_come_within_a_tenth),
      cmocka_unit_test(no_plan_exceeds_the_rate),
      cmocka_unit_test(a_pair_receives_twice_as_fast),
      cmocka_unit_test(a_bad_plan_is_found),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

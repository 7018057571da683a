// The exchange's plan against closed forms, and against what it may never do.
#include "base/arena.h"
#include "tiles/tiles_test_util.h"

// An exchange while its messages are added.
typedef struct pattern {
  at_tiles_exchange x;
  uint32_t *receivers;
  size_t len, num_receivers;
} pattern;

// Room for so many.
static void reserve(pattern *p, size_t messages, size_t receivers) {
  p->x.messages = calloc(messages + 1, sizeof *p->x.messages);
  p->receivers = calloc(receivers + 1, sizeof *p->receivers);
  p->x.receivers = p->receivers;
  assert_non_null(p->x.messages);
}
// One message to one tile.
static void send(pattern *p, uint32_t from, uint32_t to, int64_t bytes) {
  p->receivers[p->num_receivers] = to;
  p->x.messages[p->x.num_messages++] =
      (at_tiles_message){from, (uint32_t)p->num_receivers++, 1, bytes, 0};
}
static void release(pattern *p) {
  free(p->x.messages);
  free(p->receivers);
}

// Within a tenth of the closed form, and never under it but for the last
// message of an all-gather.
static void patterns_meet_their_closed_forms(void **state) {
  static const struct {
    uint32_t n;
    int64_t bytes;
  } sizes[] = {{1, 8}, {2, 4}, {16, 1024}, {37, 100}, {368, 64}, {1472, 16}};
  at_tiles_machine m = mk2();
  for (int which = 0; which < AT_TILES_PATTERNS; which++)
    for (size_t i = 0; i < AT_LEN(sizes); i++) {
      at_arena *a = at_arena_create();
      at_tiles_exchange x;
      int64_t want;
      ok(at_tiles_pattern_make(a, (at_tiles_pattern)which, sizes[i].n,
                               sizes[i].bytes, 4, &x, &want));
      ok(at_tiles_exchange_plan(&m, &x));
      ok(at_tiles_exchange_verify(&m, &x));
      assert_true(x.cycles >= x.lower_bound);
      assert_true(x.cycles <= want + want / 10);
      if (which == AT_TILES_ALL_GATHER && sizes[i].n > 2)
        assert_true(x.cycles >= want - 1 - (sizes[i].bytes + 3) / 4);
      else if (sizes[i].n > 2)
        assert_true(x.cycles >= want);
      at_arena_destroy(a);
    }
}

// A row for every pattern.
static void the_table_of_patterns_is_whole(void **state) {
  at_tiles_machine m = mk2();
  at_strbuf b = {0};
  ok(at_tiles_patterns_text(&m, 100, &b));
  print_message("%s", b.ptr);
  for (int which = 0; which < AT_TILES_PATTERNS; which++)
    assert_non_null(
        strstr(b.ptr, at_tiles_pattern_text((at_tiles_pattern)which)));
  at_strbuf_free(&b);
}

static uint64_t g_seed = 5;
// xorshift*, below n.
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

// Two tiles that share a pair of buses; neighbours that do not.
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

// A tile that receives two at once, bytes and bounds that do not add up, a tile
// that is not there.
static void a_bad_plan_is_found(void **state) {
  at_tiles_machine m = mk2();
  at_tiles_message g[2] = {{0, 0, 1, 64, 0}, {1, 1, 1, 64, 8}};
  at_tiles_exchange x = {.messages = g,
                         .num_messages = 2,
                         .receivers = (uint32_t[]){5, 5},
                         .cycles = 24};
  expect(at_tiles_exchange_verify(&m, &x), AT_INTERNAL, "tile 5", "receives");
  g[1].start = 16;
  x.cycles = 32;
  expect(at_tiles_exchange_verify(&m, &x), AT_INTERNAL, "32", "128 received");
  x.sent_bytes = x.received_bytes = 128;
  assert_true(at_ok(at_tiles_exchange_verify(&m, &x)));
  x.lower_bound = 33;
  expect(at_tiles_exchange_verify(&m, &x), AT_INTERNAL, "32 cycles", "end at");
  x.lower_bound = 0;
  x.receivers = (uint32_t[]){5, 1472};
  expect(at_tiles_exchange_plan(&m, &x), AT_OUT_OF_RANGE, "tile 1");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(patterns_meet_their_closed_forms),
      cmocka_unit_test(the_table_of_patterns_is_whole),
      cmocka_unit_test(balanced_patterns_come_within_a_tenth),
      cmocka_unit_test(no_plan_exceeds_the_rate),
      cmocka_unit_test(a_pair_receives_twice_as_fast),
      cmocka_unit_test(a_bad_plan_is_found),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

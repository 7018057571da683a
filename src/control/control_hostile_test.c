// Clients that know the token and mean harm, beside one that works. Whatever
// they say, they end or get an error; nobody else notices, nothing is left of
// them, and neither hosts nor the controller keep what they ask for without
// end.
#include "control/message.h"
#include "control/pod_test_util.h"
#include "control/session.h"

enum { kMost = 10 };  // seconds for the honest client's launch

// Bytes that hosts may have grown by. Sanitizers keep what was freed, and
// their own books beside what was not.
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
enum { kGrown = 1 << 30 };
#else
enum { kGrown = 96 << 20 };
#endif

static pod p;
static guest honest;
static run work;
static float *numbers;
enum { kNumber = 1000 };

// ---- The honest one
// The honest client's launch gives the right numbers in time.
static void works(void) {
  const uint64_t began = at_clock_ns();
  float got[kNumber];
  OK(run_try(&work, NULL));
  OK(pod_fetch(work.outs[0], got, 0, sizeof got));
  assert_memory_equal(got, numbers, sizeof got);
  run_drop_outs(&work);
  assert_true(at_clock_ns() - began < kMost * 1000000000ull);
}

// Bytes of memory that a process has.
static size_t resident(pid_t pid) {
  char path[64];
  unsigned long long all, now = 0;
  snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
  FILE *f = fopen(path, "re");
  assert_non_null(f);
  assert_int_equal(fscanf(f, "%llu %llu", &all, &now), 2);
  fclose(f);
  return (size_t)now * 4096;
}

// Of this process, which is the controller and the clients, and of all hosts.
static size_t resident_all(void) {
  size_t sum = resident(getpid());
  for (uint32_t i = 0; i < p.num_hosts; i++) sum += resident(p.hosts[i]);
  return sum;
}

// One pod for all tests, and one honest client whose program must work after
// each of them.
static int open_all(void **state) {
  pod_open(&p, "v5e:2x2", 2, 4);
  honest = guest_open(&p);
  numbers = malloc(kNumber * sizeof *numbers);
  for (int i = 0; i < kNumber; i++) numbers[i] = (float)i;
  work = run_make(&honest, pod_rotates(4, kNumber), 4, 1);
  for (uint32_t d = 0; d < 4; d++)
    work.args[d] = pod_array(work.chips[d], AT_F32, numbers, kNumber);
  works();
  return 0;
}

// Nothing of any stranger may be left on the chips.
static int close_all(void **state) {
  run_drop_args(&work);
  at_loaded_release(work.l);
  guest_expect_empty(&honest, 4);
  guest_close(&honest);
  pod_close(&p);
  free(numbers);
  return 0;
}

// ---- The others
typedef struct stranger {
  at_wire *wire;
  pthread_mutex_t lock;
  pthread_cond_t news;
  at_msg_welcome welcome;  // client 0: it has not come
  char hosts[1024];        // their addresses, by commas
  bool lost, deaf;         // deaf: what comes keeps its credits
  uint64_t heard;
} stranger;

// Keeps what the welcome says; a deaf stranger gives no credits back.
static bool hear(void *arg, uint32_t from, const at_wire_head *head,
                 void *body) {
  stranger *s = arg;
  pthread_mutex_lock(&s->lock);
  if (head->kind == AT_MSG_WELCOME) {
    memcpy(&s->welcome, body, sizeof s->welcome);
    const char *at = (const char *)body + sizeof s->welcome +
                     at_message_chips_bytes(s->welcome.num_chips) +
                     s->welcome.target_bytes;
    snprintf(s->hosts, sizeof s->hosts, "%.*s", (int)s->welcome.addresses_bytes,
             at);
  }
  s->heard++;
  pthread_cond_broadcast(&s->news);
  bool deaf = s->deaf;
  pthread_mutex_unlock(&s->lock);
  free(body);
  return !deaf;
}

// The session is over, which most tests wait for.
static void end(void *arg, uint32_t member, at_status why) {
  stranger *s = arg;
  pthread_mutex_lock(&s->lock);
  s->lost = true;
  pthread_cond_broadcast(&s->news);
  pthread_mutex_unlock(&s->lock);
  at_status_free(why);
}

// A session with the controller or a host, without anything said yet.
static at_status call(stranger *s, const char *address, const char *name) {
  *s = (stranger){0};
  pthread_mutex_init(&s->lock, NULL);
  at_clock_cond_init(&s->news);
  at_session_options o = {.address = address,
                          .source = "a test",
                          .token = POD_TOKEN,
                          .hello = {.kind = AT_SESSION_CLIENT},
                          .sink = {.arg = s,
                                   .place = at_session_block,
                                   .message = hear,
                                   .abandon = at_session_unblock,
                                   .lost = end}};
  memcpy(o.hello.name, name, strlen(name));
  return at_session_open(&o, &s->wire);
}

static void leave(stranger *s) {
  at_wire_close(s->wire);
  pthread_mutex_destroy(&s->lock);
  pthread_cond_destroy(&s->news);
}

// False: not within so many ms.
static bool waits_for(stranger *s, bool *what, const uint64_t *number,
                      uint32_t ms) {
  const struct timespec t = at_clock_timespec(at_clock_ns() + ms * 1000000ull);
  int late = 0;
  pthread_mutex_lock(&s->lock);
  while (!(what ? *what : *number != 0) && !late)
    late = pthread_cond_timedwait(&s->news, &s->lock, &t);
  pthread_mutex_unlock(&s->lock);
  return !late;
}

// A client that the controller has welcomed.
static void come(stranger *s) {
  OK(call(s, p.address, "a stranger"));
  assert_true(waits_for(s, NULL, &s->welcome.client, 10000));
}

// To a host, as the client that `of` is to the controller.
static void visit(stranger *s, const stranger *of, uint32_t host, bool good) {
  char all[1024], *rest = all;
  snprintf(all, sizeof all, "%s", of->hosts);
  const char *address = NULL;
  for (uint32_t i = 0; i <= host; i++) address = strsep(&rest, ",");
  OK(call(s, address, "a visitor"));
  at_msg_iam m = {.client = of->welcome.client};
  memcpy(m.key, of->welcome.key, sizeof m.key);
  if (!good) m.key[3] ^= 1;
  const at_bytes part = {(const uint8_t *)&m, sizeof m};
  const at_wire_out iam = {.kind = AT_MSG_IAM, .num_parts = 1, .parts = &part};
  const at_wire_wait wait = {.until_ns = at_clock_ns() + 5000000000ull};
  at_status_free(at_wire_send(s->wire, 0, AT_WIRE_BULK, &iam, 1, &wait, NULL));
}

// False: there is no room, or the other end is gone. ms 0: it does not wait.
static bool say(stranger *s, uint32_t kind, uint64_t tag, const void *body,
                size_t n, uint32_t ms) {
  const at_bytes part = {body, n};
  const at_wire_out m = {
      .kind = kind, .tag = tag, .num_parts = n ? 1 : 0, .parts = &part};
  const at_wire_wait wait = {.until_ns =
                                 ms ? at_clock_ns() + ms * 1000000ull : 0};
  return !at_code_take(
      at_wire_send(s->wire, 0, AT_WIRE_BULK, &m, 1, &wait, NULL));
}

// ---- Words
// Every kind of message, said by who may not, or with nothing in it.
static void words_of_others(void **state) {
  static const uint64_t nothing[32];
  static const size_t sizes[] = {0, 8, 56, sizeof nothing};
  stranger s, of, v;
  come(&of);
  for (uint32_t kind = 1; kind < 200; kind++) {
    come(&s);
    for (size_t i = 0; i < AT_LEN(sizes); i++)
      if (!say(&s, kind, i ? s.welcome.client : 0, nothing, sizes[i], 1000))
        break;
    leave(&s);
    visit(&v, &of, kind % 2, true);
    for (size_t i = 0; i < AT_LEN(sizes); i++)
      if (!say(&v, kind, of.welcome.client, nothing, sizes[i], 1000)) break;
    leave(&v);
    if (kind % 20 == 0) works();
  }
  leave(&of);
  works();
}

typedef struct words {
  uint32_t kind;
  size_t bytes;
  uint64_t body[16];
} words;

static uint64_t pair(uint32_t low, uint32_t high) {
  return low | (uint64_t)high << 32;
}

// One wrong thing each, after two arrays, 1 on chip 0 and 2 on chip 3.
static void names_that_cannot_be(void **state) {
  const uint64_t f32 = (uint64_t)AT_F32 << 48, last = UINT64_MAX;
  const words all[] = {
      {AT_MSG_CREATE, 32, {1, 0 | f32, pair(1, 0), 4}},   // it is there
      {AT_MSG_CREATE, 32, {0, 0 | f32, pair(1, 0), 4}},   // no name
      {AT_MSG_CREATE, 32, {3, 77 | f32, pair(1, 0), 4}},  // no such chip
      {AT_MSG_CREATE, 32, {3, UINT32_MAX | f32, pair(1, 0), 4}},
      {AT_MSG_CREATE, 32, {3, 0 | f32, pair(1, 0), last}},  // negative
      {AT_MSG_CREATE, 40, {3, 0 | f32, pair(2, 0), 1ull << 40, 1ull << 40}},
      {AT_MSG_CREATE, 32, {3, 0 | f32, pair(64, 0), 4}},  // cut short
      {AT_MSG_CREATE, 32, {3, 0 | 0xffffull << 48, pair(1, 0), 4}},
      {AT_MSG_DROP, 24, {2, 1, 1}},
      {AT_MSG_DROP, 16, {1, 99}},
      {AT_MSG_DROP, 16, {last, 1}},
      {AT_MSG_GROUP, 32, {3, 1, 99, pair(0, 0)}},
      {AT_MSG_GROUP, 32, {1, 1, 2, pair(0, 3)}},  // onto another
      {AT_MSG_GROUP, 32, {3, 1ull << 60, 2, pair(0, 3)}},
      {AT_MSG_GROUP, 32, {3, 1, 2, pair(5, 3)}},  // no such shard
      {AT_MSG_GROUP, 32, {3, 1, 3, pair(0, 3)}},  // of itself
      {AT_MSG_COPY,
       48,
       {1, pair(0, 0), 1, pair(3, 0), (uint64_t)AT_F32 | pair(0, 1), 4}},
      {AT_MSG_COPY,
       48,
       {9, pair(0, 0), 3, pair(3, 0), (uint64_t)AT_F32 | pair(0, 1), 4}},
      {AT_MSG_COPY,
       48,
       {1, pair(0, 9), 3, pair(3, 0), (uint64_t)AT_F32 | pair(0, 1), 4}},
      {AT_MSG_COPY,
       48,
       {1, pair(7, 0), 3, pair(3, 0), (uint64_t)AT_F32 | pair(0, 1), 5}},
      {AT_MSG_UNLOAD, 8, {5}},
      {AT_MSG_FORGET, 8, {5}},
      {AT_MSG_RUN, 32, {5, 10, pair(1, 0), 1}},
      {AT_MSG_RUN, 24, {5, last, pair(0, 0)}},
      {AT_MSG_LAUNCH, 48, {5, 10, 0, 0, pair(0, 1), pair(0, 0)}},
      {AT_MSG_LAUNCH, 48, {5, 1, 0, 0, pair(0, 1 << 20), pair(0, 0)}},
      {AT_MSG_LOAD, 40, {5, pair(1, 0), 0, 0, 0xdeadbeef}},
      {AT_MSG_LOAD, 40, {5, pair(UINT32_MAX, 0), 0, 0, 0}},
      {AT_MSG_LOAD, 40, {5, pair(2, 0), 0, pair(0, 0), 0}},
      {AT_MSG_GRAPH, 32, {5, pair(1, UINT32_MAX), pair(0, 0), 0}},
      {AT_MSG_GRAPH, 40, {5, pair(0, 0), pair(0, 1), pair(AT_MSG_GRAPH, 8), 0}},
      {AT_MSG_SLICE,
       88,
       {5, 0, pair(4096, 0), 0, 0, pair(0, UINT32_MAX), last, last, last, last,
        last}},
      {AT_MSG_SLICE,
       88,
       {5, last, pair(4, 0), 0, 0, pair(UINT32_MAX, UINT32_MAX)}},
      {AT_MSG_UNSLICE, 8, {5}},
      {AT_MSG_STATS, 16, {last, pair(UINT32_MAX, 1)}},
      {AT_MSG_KEEP,
       80,
       {1, 0, 0, pair(1, 0), pair(8, 8), pair(8, 0), 99, 1, 2, 3}},
      {AT_MSG_KEEP,
       56,
       {1, 0, 0, pair(UINT32_MAX, 0), pair(1, 0), pair(0, 0), 1}},
      {AT_MSG_FETCH, 40, {1, 0, last, pair(0, 8), 0x6161616161616161}},
      {AT_MSG_DISCARD, 40, {1, 7, 0, pair(0, 8), 0x6161616161616161}},
  };
  for (size_t i = 0; i < AT_LEN(all); i++) {
    stranger s;
    come(&s);
    const uint64_t one[] = {1, 0 | f32, pair(1, 0), 4},
                   two[] = {2, 3 | f32, pair(1, 0), 4};
    assert_true(say(&s, AT_MSG_CREATE, 0, one, sizeof one, 1000));
    assert_true(say(&s, AT_MSG_CREATE, 0, two, sizeof two, 1000));
    say(&s, all[i].kind, 0, all[i].body, all[i].bytes, 1000);
    // Whoever is let go on uses what may have come of it.
    const uint64_t shard[] = {3, pair(0, 0), 10, pair(0, 0)};
    stranger v;
    visit(&v, &s, 0, true);
    say(&v, AT_MSG_WATCH, 7, shard, 16, 1000);
    say(&v, AT_MSG_WATCH, 8, shard + 2, 16, 1000);
    usleep(5000);
    leave(&s);
    leave(&v);
    if (i % 8 == 0) works();
  }
  works();
}

// ---- Who somebody is
// As another client, without its key; and with names that another one has.
static void names_of_others(void **state) {
  stranger s, v;
  come(&s);
  stranger as = s;
  for (uint64_t other = 1; other <= s.welcome.client; other++) {
    as.welcome.client = other;
    if (other == s.welcome.client) as.welcome.client = UINT64_MAX;
    visit(&v, &as, (uint32_t)other % 2, false);
    const uint64_t shard[] = {1, pair(0, 0), 0, 4096};
    say(&v, AT_MSG_READ, 1, shard, sizeof shard, 1000);
    if (other % 8 == 1 || other == s.welcome.client) {
      assert_true(waits_for(&v, &v.lost, NULL, 5000));
      assert_int_equal(v.heard, 0);
    }
    leave(&v);
  }
  const uint64_t f32 = (uint64_t)AT_F32 << 48;
  for (uint64_t name = 1; name < 200; name++) {
    const uint64_t array[] = {name, 0 | f32, pair(1, 0), 4}, drop[] = {1, name};
    assert_true(say(&s, AT_MSG_CREATE, 0, array, sizeof array, 5000));
    assert_true(say(&s, AT_MSG_DROP, 0, drop, sizeof drop, 5000));
  }
  works();
  assert_false(s.lost);
  leave(&s);
}

// A name of the session that fills its field.
static void names_without_an_end(void **state) {
  char name[AT_SESSION_NAME + 1];
  memset(name, 0xff, sizeof name);
  name[AT_SESSION_NAME] = 0;
  stranger s;
  at_code code = at_code_take(call(&s, p.address, name));
  if (!code) leave(&s);
  at_strbuf text = {0};
  at_controller_status(p.controller, &text);
  at_strbuf_free(&text);
  works();
}

// Sessions that say nothing, all that there may be; others come in again once
// they have left.
static void a_crowd_that_is_silent(void **state) {
  enum { kCrowd = AT_SESSION_MOST + 20 };
  stranger *s = calloc(kCrowd, sizeof *s);
  uint32_t n = 0, tries = 0;
  const uint64_t until = at_clock_ns() + 20000000000ull;
  while (tries < kCrowd && at_clock_ns() < until) {
    n += !at_code_take(call(&s[n], p.address, "silent"));
    if (++tries % 100 == 0) works();
  }
  works();
  while (n) leave(&s[--n]);
  free(s);
  guest g = guest_open(&p);
  guest_close(&g);
  works();
}

// ---- Bytes
static void make_array(stranger *s, uint64_t name, uint32_t chip, uint64_t n) {
  const uint64_t a[] = {name, chip | (uint64_t)AT_F32 << 48, pair(1, 0), n};
  assert_true(say(s, AT_MSG_CREATE, 0, a, sizeof a, 5000));
}

// The host of chip 0 has host 0's number.
static void halves_of_what_was_announced(void **state) {
  enum { kFloats = 8 << 20, kPiece = 1 << 20 };
  uint8_t *piece = calloc(1, kPiece);
  for (uint32_t way = 0; way < 4; way++) {
    stranger s, v;
    come(&s);
    make_array(&s, 1, 0, kFloats);
    visit(&v, &s, 0, true);
    const uint64_t total = (uint64_t)kFloats * 4;
    const uint64_t write[] = {1, pair(0, 0), 0, total, total};
    assert_true(say(&v, AT_MSG_WRITE, 9, write, sizeof write, 5000));
    for (int i = 0; i < 3; i++) say(&v, AT_MSG_DATA, 9, piece, kPiece, 5000);
    // Others read it meanwhile, or it is dropped.
    const uint64_t read[] = {1, pair(0, 0), 0, 4096}, drop[] = {1, 1};
    if (way & 1) say(&v, AT_MSG_READ, 10, read, sizeof read, 1000);
    if (way & 2) say(&s, AT_MSG_DROP, 0, drop, sizeof drop, 1000);
    if (way == 3) say(&v, AT_MSG_WRITE, 9, write, sizeof write, 5000);
    works();
    leave(&v);
    leave(&s);
  }
  free(piece);
  works();
}

// Questions about arrays that never come, and pieces of them: who asks is
// slowed or ended before a host has lost much memory to them.
static void questions_without_end(void **state) {
  const size_t before = resident_all();
  static const uint32_t kinds[] = {AT_MSG_READ, AT_MSG_WATCH, AT_MSG_WRITE};
  for (size_t k = 0; k < AT_LEN(kinds); k++) {
    stranger s, v;
    come(&s);
    visit(&v, &s, 0, true);
    uint64_t n = 0;
    const uint64_t until = at_clock_ns() + 4000000000ull;
    for (; n < 2000000 && at_clock_ns() < until; n++) {
      const uint64_t name = n % 2 ? 1000 : 1000 + n;
      const uint64_t m[] = {name, pair(0, 0), 0, 64, 64};
      const size_t bytes = kinds[k] == AT_MSG_WRITE  ? 40
                           : kinds[k] == AT_MSG_READ ? 32
                                                     : 16;
      if (!say(&v, kinds[k], n + 1, m, bytes, 500)) break;
    }
    const size_t now = resident_all();
    if (now > before && now - before >= kGrown)
      fail_msg("kind %u: %llu questions, %zu bytes", kinds[k],
               (unsigned long long)n, now - before);
    works();
    leave(&v);
    leave(&s);
  }
  works();
}

// It asks for much and takes nothing.
static void answers_that_nobody_takes(void **state) {
  enum { kFloats = 1 << 20 };
  const size_t before = resident_all();
  stranger s, v;
  come(&s);
  make_array(&s, 1, 0, kFloats);
  visit(&v, &s, 0, true);
  float *bytes = calloc(kFloats, 4);
  const uint64_t total = (uint64_t)kFloats * 4;
  const uint64_t write[] = {1, pair(0, 0), 0, total, total};
  assert_true(say(&v, AT_MSG_WRITE, 9, write, sizeof write, 5000));
  assert_true(say(&v, AT_MSG_DATA, 9, bytes, total, 5000));
  free(bytes);
  pthread_mutex_lock(&v.lock);
  v.deaf = true;
  pthread_mutex_unlock(&v.lock);
  const uint64_t read[] = {1, pair(0, 0), 0, total};
  for (uint64_t i = 0; i < 5000; i++)
    if (!say(&v, AT_MSG_READ, 100 + i, read, sizeof read, 200)) break;
  const uint64_t until = at_clock_ns() + 5000000000ull;
  for (uint64_t i = 0; i < 3000000 && at_clock_ns() < until; i++)
    if (!say(&v, AT_MSG_WATCH, 9000 + i, read, 16, 200)) break;
  works();
  const size_t now = resident_all();
  // What it has been sent is here, in this process: its window.
  if (now > before && now - before >= 1100u << 20)
    fail_msg("%zu bytes", now - before);
  leave(&v);
  leave(&s);
  works();
}

// ---- The end
// A client that works until it kills itself, at any point between a launch and
// its results.
static int dies_main(const char *address, const char *ms) {
  snprintf(p.address, sizeof p.address, "%s", address);
  guest g = guest_open(&p);
  run r = run_make(&g, pod_rotates(4, kNumber), 4, 1);
  float *v = calloc(kNumber, 4), got[kNumber];
  for (uint32_t d = 0; d < 4; d++)
    r.args[d] = pod_array(r.chips[d], AT_F32, v, kNumber);
  const uint64_t until = at_clock_ns() + strtoull(ms, NULL, 10) * 1000000;
  at_event *done[64];
  for (;;) {
    for (int i = 0; i < 64; i++) {
      OK(run_try(&r, NULL));
      OK(at_buffer_to_host(r.outs[i % 4], got, 0, sizeof got, &done[i]));
      run_drop_outs(&r);
      if (at_clock_ns() > until) kill(getpid(), SIGKILL);
    }
    for (int i = 0; i < 64; i++) {
      OK(pod_wait(done[i]));
      at_event_release(done[i]);
    }
  }
}

// The honest client goes on after each.
static void who_dies_between_launch_and_result(void **state) {
  for (int i = 0; i < 12; i++) {
    char ms[16];
    snprintf(ms, sizeof ms, "%d", i * 7);
    assert_int_equal(pod_join(pod_spawn("--dies", p.address, ms)),
                     1000 + SIGKILL);
    works();
  }
}

int main(int argc, char **argv) {
  setenv("ATOLL_HBM", "64M", 1);
  if (argc > 2 && !strcmp(argv[1], "--host")) return pod_host_main(argv[2]);
  if (argc > 3 && !strcmp(argv[1], "--dies"))
    return dies_main(argv[2], argv[3]);
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(words_of_others),
      cmocka_unit_test(names_that_cannot_be),
      cmocka_unit_test(names_of_others),
      cmocka_unit_test(names_without_an_end),
      cmocka_unit_test(a_crowd_that_is_silent),
      cmocka_unit_test(halves_of_what_was_announced),
      cmocka_unit_test(questions_without_end),
      cmocka_unit_test(answers_that_nobody_takes),
      cmocka_unit_test(who_dies_between_launch_and_result),
  };
  return cmocka_run_group_tests(tests, open_all, close_all);
}

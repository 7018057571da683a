// Pool, fibers and events: coverage of every index, callers that overlap,
// waiting in both worlds, and what a forked child gets.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/linger.h"
#include "base/parallel.h"

// The test fails where there are no threads.
static at_pool *make_pool(uint32_t threads) {
  at_pool *p = NULL;
  assert_int_equal(at_code_take(at_pool_create(threads, &p)), 0);
  return p;
}

// How often each index was visited, and by whom.
typedef struct marks {
  _Atomic uint32_t *hit;
  int64_t n, grain;
  uint32_t threads;
  _Atomic int bad;
} marks;

// A chunk within the grain, by a worker that exists.
static void mark(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  marks *m = arg;
  if (begin >= end || end - begin > m->grain || worker >= m->threads)
    atomic_fetch_add(&m->bad, 1);
  for (int64_t i = begin; i < end; i++) atomic_fetch_add(&m->hit[i], 1);
}

// Every index once.
static void check_cover(at_pool *p, int64_t n, int64_t grain) {
  marks m = {.n = n, .grain = grain, .threads = at_pool_threads(p)};
  m.hit = calloc((size_t)(n ? n : 1), sizeof *m.hit);
  at_pool_for(p, n, grain, mark, &m);
  for (int64_t i = 0; i < n; i++) assert_int_equal(m.hit[i], 1);
  assert_int_equal(m.bad, 0);
  free(m.hit);
}

// Lengths and grains around each other.
static void pool_covers_every_index_once(void **state) {
  static const uint32_t threads[] = {1, 2, 5};
  static const int64_t sizes[] = {0, 1, 2, 7, 64, 1000, 4097};
  static const int64_t grains[] = {1, 2, 3, 64, 5000};
  for (size_t t = 0; t < AT_LEN(threads); t++) {
    at_pool *p = make_pool(threads[t]);
    for (size_t s = 0; s < AT_LEN(sizes); s++)
      for (size_t g = 0; g < AT_LEN(grains); g++)
        check_cover(p, sizes[s], grains[g]);
    at_pool_destroy(p);
  }
}

static void count_range(void *arg, int64_t begin, int64_t end, uint32_t w) {
  atomic_fetch_add((_Atomic int64_t *)arg, end - begin);
}

// The claim counter stays below INT64_MAX.
static void pool_takes_huge_ranges_without_wrapping(void **state) {
  at_pool *p = make_pool(2);
  _Atomic int64_t sum = 0;
  at_pool_for(p, INT64_MAX, INT64_MAX / 3, count_range, &sum);
  assert_true(sum == INT64_MAX);
  at_pool_for(p, -5, 1, count_range, &sum);
  assert_true(sum == INT64_MAX);
  at_pool_destroy(p);
}

// A job that starts another one.
typedef struct nest {
  at_pool *pool;
  _Atomic int64_t sum;
} nest;
static void nested(void *arg, int64_t begin, int64_t end, uint32_t w) {
  nest *n = arg;
  for (int64_t i = begin; i < end; i++)
    at_pool_for(n->pool, 10, 1, count_range, &n->sum);
}

// Inside of a chunk they run on the same thread.
static void pool_runs_nested_calls(void **state) {
  nest n = {.pool = make_pool(3)};
  at_pool_for(n.pool, 100, 1, nested, &n);
  assert_int_equal(n.sum, 1000);
  at_pool_destroy(n.pool);
}

// One of several threads with jobs for one pool.
static void *rival_caller(void *arg) {
  nest *n = arg;
  for (int i = 0; i < 2000; i++)
    at_pool_for(n->pool, 17, 2, count_range, &n->sum);
  return NULL;
}

// All finish, and each covers its own range.
static void pool_serves_rival_callers(void **state) {
  nest n = {.pool = make_pool(3)};
  pthread_t t[4];
  for (size_t i = 0; i < AT_LEN(t); i++)
    pthread_create(&t[i], NULL, rival_caller, &n);
  for (size_t i = 0; i < AT_LEN(t); i++) pthread_join(t[i], NULL);
  assert_int_equal(n.sum, 4 * 2000 * 17);
  // Helpers that wait longer for the next job, and stop all the same.
  at_pool_attend(n.pool, true);
  n.sum = 0;
  rival_caller(&n);
  at_pool_attend(n.pool, false);
  assert_int_equal(n.sum, 2000 * 17);
  at_pool_attend(n.pool, true);
  at_pool_destroy(n.pool);
}

static void wait_ns(uint64_t ns) {
  for (uint64_t until = at_clock_ns() + ns; at_clock_ns() < until;)
    sched_yield();
}

// Whoever comes for a moment does not wake helpers that sleep; whoever stays,
// or is back at once, may.
static void pool_is_near_those_who_stay(void **state) {
  enum { LONG = 400000, TRIES = 2000 };
  at_pool *p = make_pool(3), *alone = make_pool(1);
  bool far = false, stayed = false, back = false;
  for (int i = 0; i < TRIES && !(far && stayed && back); i++) {
    wait_ns(LONG);
    at_pool_attend(p, true);
    far |= !at_pool_is_near(p);
    wait_ns(LONG);
    stayed = at_pool_is_near(p);
    at_pool_attend(p, false);
    at_pool_attend(p, true);
    back |= at_pool_is_near(p);
    at_pool_attend(p, false);
    assert_true(stayed);
  }
  assert_true(far);
  assert_true(back);
  assert_true(at_pool_is_near(alone));
  at_pool_destroy(p);
  at_pool_destroy(alone);
}

typedef struct limited {
  at_pool *pool;
  _Atomic uint64_t workers;  // bits of those that ran a chunk
  _Atomic int64_t chunks;
  uint32_t raise;  // the limit after the first chunk; 0: none
} limited;

// Notes which workers ran; slow enough that all get a chance.
static void note_worker(void *arg, int64_t begin, int64_t end, uint32_t w) {
  limited *l = arg;
  atomic_fetch_or(&l->workers, 1ull << w);
  if (!atomic_fetch_add(&l->chunks, 1) && l->raise)
    at_pool_limit(l->pool, l->raise);
  for (uint64_t until = at_clock_ns() + 100000; at_clock_ns() < until;)
    continue;
}

// While a job runs the limit goes down and up.
static void pool_limits_its_workers(void **state) {
  limited l = {.pool = make_pool(4)};
  static const uint32_t limits[] = {1, 3, 0, 2};
  for (size_t i = 0; i < AT_LEN(limits); i++) {
    l.workers = 0, l.chunks = 0;
    at_pool_limit(l.pool, limits[i]);
    at_pool_for(l.pool, 60, 1, note_worker, &l);
    assert_int_equal(l.chunks, 60);
    assert_true(l.workers < 1u << AT_MAX(limits[i], 1u));
  }
  // Helpers join a job that has begun, and leave it.
  uint64_t joined = 0;
  for (int turn = 0; turn < 50 && joined < 2; turn++) {
    l.workers = 0, l.chunks = 0, l.raise = 4;
    at_pool_limit(l.pool, 1);
    at_pool_for(l.pool, 200, 1, note_worker, &l);
    assert_int_equal(l.chunks, 200);
    joined = l.workers;
  }
  assert_true(joined >= 2);
  l.workers = 0, l.chunks = 0, l.raise = 1;
  at_pool_for(l.pool, 60, 1, note_worker, &l);
  assert_int_equal(l.chunks, 60);
  at_pool_destroy(l.pool);  // helpers that the limit keeps out end, too
}

// A job whose helper stays away in the midst of a chunk.
typedef struct stalled {
  _Atomic bool helped;
  _Atomic int64_t chunks;
} stalled;

static void stall(void *arg, int64_t begin, int64_t end, uint32_t w) {
  stalled *s = arg;
  atomic_fetch_add(&s->chunks, end - begin);
  if (w) {
    s->helped = true;
    usleep(20000);
  }
  for (uint64_t until = at_clock_ns() + 1000000000;
       !s->helped && at_clock_ns() < until;)
    sched_yield();
}

static void note_long(void *arg, int64_t begin, int64_t end, uint32_t w) {
  for (int i = 0; i < 10; i++) note_worker(arg, begin, end, w);
}

// After a helper was waited for, short jobs are the caller's alone for a while;
// long ones get their helpers soon, and short ones later.
static void pool_is_wary_of_helpers_that_lost_their_core(void **state) {
  limited l = {.pool = make_pool(2)};
  bool alone = false, shared = false, few = false, again = false;
  for (int turn = 0; turn < 50 && !(alone && shared && few && again); turn++) {
    stalled s = {0};
    uint64_t first = at_clock_ns();
    at_pool_for(l.pool, 2, 1, stall, &s);
    assert_int_equal(s.chunks, 2);
    uint64_t start = at_clock_ns();
    l.workers = 0, l.chunks = 0;
    at_pool_for(l.pool, 3, 1, note_worker, &l);
    assert_int_equal(l.chunks, 3);
    uint64_t end = at_clock_ns();
    if (s.helped && end - start < 450000 && end - first < 90000000) {
      assert_int_equal(l.workers, 1);
      alone = true;
    }
    l.workers = 0, l.chunks = 0;
    at_pool_for(l.pool, 200, 1, note_worker, &l);
    assert_int_equal(l.chunks, 200);
    shared |= l.workers == 3;
    // A job of two long chunks is known the second time.
    l.workers = 0;
    for (int k = 0; k < 4; k++) at_pool_for(l.pool, 2, 1, note_long, &l);
    few |= l.workers == 3 && at_clock_ns() - first < 90000000;
    wait_ns(150000000);
    l.workers = 0, l.chunks = 0;
    at_pool_for(l.pool, 60, 1, note_worker, &l);
    assert_int_equal(l.chunks, 60);
    again |= l.workers == 3;
  }
  assert_true(alone);
  assert_true(shared);
  assert_true(few);
  assert_true(again);
  at_pool_destroy(l.pool);
}

// Statuses, not crashes.
static void pool_refuses_absurd_sizes(void **state) {
  at_pool *p;
  assert_int_equal(at_code_take(at_pool_create(0, &p)), AT_INVALID_ARGUMENT);
  assert_int_equal(at_code_take(at_pool_create(9999, &p)), AT_INVALID_ARGUMENT);
}

// A child has no helpers and must not wait for them.
static void forked_child_runs_inline(void **state) {
  at_pool *p = make_pool(2);
  at_sched *s;
  assert_int_equal(at_code_take(at_sched_create(1, 65536, &s)), 0);
  assert_false(at_pool_forked(p));
  pid_t pid = fork();
  if (pid == 0) {
    _Atomic int64_t sum = 0;
    at_pool_for(p, 100, 1, count_range, &sum);
    bool ok =
        at_pool_forked(p) && sum == 100 &&
        at_code_take(at_sched_spawn(s, NULL, NULL)) == AT_FAILED_PRECONDITION;
    at_sched_destroy(s);
    at_pool_destroy(p);
    _exit(ok ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  at_sched_destroy(s);
  at_pool_destroy(p);
}

// ---- Events
static void note(at_status s, void *arg) {
  int *seen = arg;
  *seen = *seen * 100 + (int)at_code_take(s) + 1;
}

// The second firing is dropped.
static void event_fires_once_with_its_status(void **state) {
  at_event *e = at_event_create();
  int seen = 0;
  assert_false(at_event_fired(e));
  assert_true(at_ok(at_event_status(e)));
  assert_true(at_ok(at_event_on(e, note, &seen)));
  assert_int_equal(seen, 0);
  at_event_fire(e, AT_FAIL(AT_ABORTED, "gone"));
  at_event_fire(e, AT_FAIL(AT_INTERNAL, "second"));
  assert_int_equal(seen, AT_ABORTED + 1);
  assert_true(at_ok(at_event_on(e, note, &seen)));
  assert_int_equal(seen, (AT_ABORTED + 1) * 100 + AT_ABORTED + 1);
  assert_int_equal(at_code_take(at_event_wait(e)), AT_ABORTED);
  at_event_release(e);
}

// Releasing it does nothing.
static void done_event_is_immortal(void **state) {
  at_event *e = at_event_done();
  for (int i = 0; i < 3; i++) at_event_release(e);
  assert_true(at_event_fired(e));
  assert_true(at_ok(at_event_wait(e)));
  at_event_fire(e, AT_FAIL(AT_INTERNAL, "no"));
  assert_true(at_ok(at_event_status(e)));
}

// They are freed without being called.
static void pending_callbacks_die_with_their_event(void **state) {
  at_event *e = at_event_create();
  int seen = 0;
  assert_true(at_ok(at_event_on(e, note, &seen)));
  at_event_release(e);
  assert_int_equal(seen, 0);
}

// A fiber that waits for one event and fires the next.
typedef struct relay {
  at_event *in, *out;
  _Atomic int *count;
} relay;

static void relay_main(void *arg) {
  relay *r = arg;
  bool in_fiber = at_in_fiber();
  at_status s = at_event_wait(r->in);
  if (in_fiber && at_ok(s)) atomic_fetch_add(r->count, 1);
  at_event_fire(r->out, s);
}

// More fibers than threads, each waiting for the one before.
static void fibers_pass_a_baton(void **state) {
  enum { N = 500 };
  at_sched *s;
  assert_int_equal(at_code_take(at_sched_create(2, 65536, &s)), 0);
  at_event *e[N + 1];
  relay r[N];
  _Atomic int count = 0;
  for (int i = 0; i <= N; i++) e[i] = at_event_create();
  for (int i = 0; i < N; i++) {
    r[i] = (relay){e[i], e[i + 1], &count};
    assert_int_equal(at_code_take(at_sched_spawn(s, relay_main, &r[i])), 0);
  }
  assert_false(at_event_fired(e[N]));
  at_event_fire(e[0], AT_OK);
  assert_true(at_ok(at_event_wait(e[N])));
  at_sched_destroy(s);
  assert_int_equal(count, N);
  for (int i = 0; i <= N; i++) at_event_release(e[i]);
}

static void on_thread(void *arg) { *(bool *)arg = at_in_fiber(); }

// Fibers that count themselves.
typedef struct many {
  at_event *gate;
  _Atomic int done;
  _Atomic bool wrong;
} many;
static void many_main(void *arg) {
  many *m = arg;
  volatile double x = 1.5;
  char pad[2048];
  memset(pad, 7, sizeof pad);
  bool fiber_below = true;
  at_fiber_call_on_thread(on_thread, &fiber_below);
  at_status_free(at_event_wait(m->gate));
  if (x * 2 != 3.0 || pad[2047] != 7 || !at_in_fiber()) m->wrong = true;
  atomic_fetch_add(&m->done, 1);
}

// Stacks are reused.
static void thousands_of_fibers_come_and_go(void **state) {
  at_sched *s;
  assert_int_equal(at_code_take(at_sched_create(3, 32768, &s)), 0);
  for (int round = 0; round < 5; round++) {
    many m = {.gate = at_event_create()};
    for (int i = 0; i < 400; i++)
      assert_int_equal(at_code_take(at_sched_spawn(s, many_main, &m)), 0);
    at_event_fire(m.gate, AT_OK);
    while (atomic_load(&m.done) < 400) usleep(100);
    assert_false(m.wrong);
    at_event_release(m.gate);
  }
  at_sched_destroy(s);
}

// A fiber that begins on the thread that spawns it, and what stops it there.
enum { kFlushZeros = 0x8000 };  // of MXCSR
typedef enum guest_way { ENDS, LEAVES, PARKS, GUEST_WAYS } guest_way;
typedef struct guest {
  guest_way way;
  at_event *go, *done;
  pid_t began, ended;
  bool flushes, lent, lent_at_end;
} guest;

static void guest_main(void *arg) {
  guest *g = arg;
  g->began = gettid();
  g->flushes = at_cpu_fp_default() & kFlushZeros;
  g->lent = at_fiber_on_caller_ns() > 0;
  if (g->way == LEAVES) at_fiber_leave_caller();
  if (g->way == PARKS) at_status_free(at_event_wait(g->go));
  if (g->way != ENDS) at_fiber_leave_caller();  // it has: nothing happens
  g->lent_at_end = at_fiber_on_caller_ns() > 0;
  g->ended = gettid();
  at_event_fire(g->done, AT_OK);
}

// What a fiber spawns does not begin on the fiber's thread: that is not its
// own.
typedef struct host {
  at_sched *sched;
  guest inner;
} host;
static void nested_main(void *arg) {
  host *n = arg;
  (void)at_code_take(at_sched_spawn_here(n->sched, guest_main, &n->inner));
}

static void fibers_lend_no_thread(void **state) {
  host n = {.inner = {.way = ENDS, .done = at_event_create()}};
  assert_int_equal(at_code_take(at_sched_create(1, 65536, &n.sched)), 0);
  assert_int_equal(at_code_take(at_sched_spawn_here(n.sched, nested_main, &n)),
                   0);
  assert_true(at_ok(at_event_wait(n.inner.done)));
  assert_false(n.inner.lent);
  assert_int_not_equal(n.inner.began, gettid());
  at_sched_destroy(n.sched);
  at_event_release(n.inner.done);
}

// The thread flushes denormals, the fiber does not.
static void fibers_begin_on_their_spawners_thread(void **state) {
  at_sched *s;
  assert_int_equal(at_code_take(at_sched_create(1, 65536, &s)), 0);
  const uint32_t modes = at_cpu_fp_default();
  at_cpu_fp_restore(modes | kFlushZeros);
  for (guest_way w = 0; w < GUEST_WAYS; w++) {
    guest g = {.way = w, .go = at_event_create(), .done = at_event_create()};
    assert_int_equal(at_code_take(at_sched_spawn_here(s, guest_main, &g)), 0);
    assert_false(at_in_fiber());
    assert_int_equal(at_fiber_on_caller_ns(), 0);
    at_event_fire(g.go, AT_OK);
    assert_true(at_ok(at_event_wait(g.done)));
    assert_true(g.lent);
    assert_int_equal(g.began, gettid());
    assert_false(g.flushes);
    assert_int_equal(g.lent_at_end, w == ENDS);
    assert_int_equal(g.ended == gettid(), w == ENDS);
    assert_true(at_cpu_fp_default() & kFlushZeros);
    at_cpu_fp_restore(modes | kFlushZeros);
    at_event_release(g.go);
    at_event_release(g.done);
  }
  at_cpu_fp_restore(modes);
  at_sched_destroy(s);
}

// Fires while the other thread sleeps.
static void *late_fire(void *arg) {
  usleep(2000);
  at_event_fire(arg, AT_FAIL(AT_CANCELLED, "late"));
  return NULL;
}

// Outside of fibers waiting is a futex.
static void threads_sleep_on_events(void **state) {
  at_event *e = at_event_create();
  pthread_t t;
  pthread_create(&t, NULL, late_fire, e);
  assert_int_equal(at_code_take(at_event_wait(e)), AT_CANCELLED);
  pthread_join(t, NULL);
  at_event_release(e);
}

// ---- Lingering
// Comes at the `at`th look.
typedef struct looks {
  uint32_t at, count;
} looks;
static bool look(void *arg) {
  looks *l = arg;
  return ++l->count == l->at;
}

enum { kLongNs = 1000000000 };

// A core that was lost before keeps this process from lingering for at most
// 100 ms.
static void have_rested(void) { usleep(110000); }

// However long the others keep the core: the look behind a yield counts.
static void who_lingers_sees_what_comes(void **state) {
  for (uint32_t at = 1; at < 3; at++) {
    at_linger place = {0};
    looks l = {.at = at};
    have_rested();
    assert_true(at_linger_for(&place, kLongNs, look, &l));
    assert_int_equal(l.count, at);
  }
}

// Not even one look, but for a try now and then; once it pays again, it is
// tried again each time.
static void who_lingers_in_vain_soon_gives_up(void **state) {
  enum { kWaits = 400 };
  at_linger place = {0};
  uint32_t tried = 0;
  have_rested();
  for (uint32_t i = 0; i < kWaits; i++) {
    looks l = {0};
    assert_false(at_linger_for(&place, 1000, look, &l));
    tried += l.count > 0;
  }
  assert_in_range(tried, 1, kWaits / 10);
  for (uint32_t i = 0, paid = 0; paid < 2; i++) {
    looks l = {.at = 2};
    assert_true(i < 100000);  // a lost core only delays it
    if (at_linger_for(&place, kLongNs, look, &l)) {
      paid++;
    } else {
      assert_int_equal(l.count, 0);
      usleep(paid ? 1000 : 10);
    }
  }
}

// Has its core at every yield of another thread, for 3 us.
static void *share_core(void *stop) {
  while (!atomic_load((_Atomic bool *)stop)) {
    const uint64_t until = at_clock_ns() + 3000;
    while (at_clock_ns() < until) continue;
    sched_yield();
  }
  return NULL;
}

// On a core that another thread keeps awake: a polite one leaves after a few
// looks, long before its time is over.
static void who_lingers_politely_leaves_a_core_to_others(void **state) {
  at_linger place = {.polite = true};
  _Atomic bool stop = false;
  cpu_set_t before, one;
  pthread_t other;
  looks l = {0};
  assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
  assert_int_equal(pthread_create(&other, NULL, share_core, &stop), 0);
  have_rested();
  assert_false(at_linger_for(&place, 2ull * kLongNs, look, &l));
  assert_in_range(l.count, 2, 50);
  atomic_store(&stop, true);
  pthread_join(other, NULL);
  assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

static void fire(void *event) { at_event_fire(event, AT_OK); }

// Waits of threads and of schedulers end as they do where they may spin.
static void threads_linger_where_they_may_not_spin(void **state) {
  at_sched *s;
  at_spin_allow(false);
  assert_int_equal(at_code_take(at_sched_create(2, 64 << 10, &s)), 0);
  for (uint32_t i = 0; i < 2000; i++) {
    at_event *e = at_event_create();
    assert_non_null(e);
    if (i % 500 == 499) usleep(2000);  // all of them sleep
    assert_int_equal(at_code_take(at_sched_spawn(s, fire, e)), 0);
    assert_int_equal(at_code_take(at_event_wait(e)), 0);
    at_event_release(e);
  }
  at_sched_destroy(s);
  at_spin_allow(true);
}

// Prints; it judges nothing.
static void report_latency(void **state) {
  at_pool *p = make_pool(2);
  _Atomic int64_t sum = 0;
  for (int i = 0; i < 1000; i++) at_pool_for(p, 2, 1, count_range, &sum);
  uint64_t best = UINT64_MAX;
  for (int r = 0; r < 50; r++) {
    uint64_t t0 = at_clock_ns();
    for (int i = 0; i < 100; i++) at_pool_for(p, 2, 1, count_range, &sum);
    uint64_t t = (at_clock_ns() - t0) / 100;
    best = AT_MIN(best, t);
  }
  print_message("parallel_for of two chunks: %llu ns (best of 50)\n",
                (unsigned long long)best);
  at_pool_destroy(p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pool_covers_every_index_once),
      cmocka_unit_test(pool_takes_huge_ranges_without_wrapping),
      cmocka_unit_test(pool_runs_nested_calls),
      cmocka_unit_test(pool_serves_rival_callers),
      cmocka_unit_test(pool_is_near_those_who_stay),
      cmocka_unit_test(pool_limits_its_workers),
      cmocka_unit_test(pool_is_wary_of_helpers_that_lost_their_core),
      cmocka_unit_test(pool_refuses_absurd_sizes),
      cmocka_unit_test(forked_child_runs_inline),
      cmocka_unit_test(event_fires_once_with_its_status),
      cmocka_unit_test(done_event_is_immortal),
      cmocka_unit_test(pending_callbacks_die_with_their_event),
      cmocka_unit_test(fibers_pass_a_baton),
      cmocka_unit_test(thousands_of_fibers_come_and_go),
      cmocka_unit_test(fibers_begin_on_their_spawners_thread),
      cmocka_unit_test(fibers_lend_no_thread),
      cmocka_unit_test(threads_sleep_on_events),
      cmocka_unit_test(who_lingers_sees_what_comes),
      cmocka_unit_test(who_lingers_in_vain_soon_gives_up),
      cmocka_unit_test(who_lingers_politely_leaves_a_core_to_others),
      cmocka_unit_test(threads_linger_where_they_may_not_spin),
      cmocka_unit_test(report_latency),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// The thread pool. One job runs at a time; the `gate` word tells helpers about
// it: epoch (which job) | open (may be joined) | waiting (the caller sleeps
// until the last helper leaves) | active (helpers inside). A job's fields are
// written while the gate is shut and nobody is inside, so they need no further
// protection.
#include <pthread.h>
#include <stdlib.h>
#include <xmmintrin.h>

#include "base/log.h"
#include "base/parallel_internal.h"
#include "base/thread.h"

// How long waiting threads spin, usually and while somebody attends
// (at_pool_attend).
enum { kSpinNs = 6000, kAttentiveNs = 100000 };
// After a job that was waited for longer than it had work (a helper lost its
// core in the midst of a chunk), jobs of up to kAloneNs are the caller's alone
// for kWary times what was lost, at most kWaryNs.
enum { kLossNs = 50000, kAloneNs = 500000, kWary = 16, kWaryNs = 100000000 };
enum { kLongJobs = 64 };  // places to remember jobs that took longer
#define GATE_OPEN (1ull << 31)
#define GATE_WAITING (1ull << 30)
#define GATE_ACTIVE (GATE_WAITING - 1)
#define GATE_EPOCH(g) ((uint32_t)((g) >> 32))

// One thread of the pool; it lies in the pool's allocation.
typedef struct helper {
  at_pool *pool;
  at_thread *thread;
  uint32_t index;  // worker number, from 1
} helper;

// Fields that different threads write are on cache lines of their own.
struct at_pool {
  _Alignas(64) _Atomic uint64_t gate;
  _Alignas(64) _Atomic int64_t next;  // first iteration that nobody claimed
  int64_t n, grain;
  at_range_fn fn;
  void *arg;
  uint32_t
      fp_modes;  // the caller's MXCSR: chunks must not depend on the thread
  _Alignas(64) _Atomic uint32_t busy;  // a caller owns the job fields
  uint64_t wary_until;  // of whoever is busy: short jobs are not shared before
  uint64_t long_jobs[kLongJobs];  // names of some that took the caller longer
  _Atomic uint32_t sleepers;
  _Atomic uint32_t attended;  // callers that will be back in a moment
  _Atomic uint64_t
      since;              // when the first of them came; 0: soon after the last
  _Atomic uint64_t left;  // when the last of them went
  _Atomic bool stop;
  _Alignas(64) _Atomic uint32_t limit;  // workers below it may run chunks
  uint32_t threads, started, fork_generation;
  helper helpers[];
};

static _Thread_local bool t_inside;  // this thread runs a chunk of some job

static _Atomic uint32_t g_forks;
static pthread_once_t g_fork_once = PTHREAD_ONCE_INIT;
static void count_fork(void) { atomic_fetch_add(&g_forks, 1); }
static void watch_forks(void) { pthread_atfork(NULL, NULL, count_fork); }

// Counted by a handler in the child.
uint32_t at_fork_generation(void) {
  return atomic_load_explicit(&g_forks, memory_order_relaxed);
}

bool at_pool_forked(const at_pool *p) {
  return p->fork_generation != at_fork_generation();
}

uint32_t at_pool_threads(const at_pool *p) { return p->threads; }

// The upper half of the gate, which helpers sleep on.
static const void *epoch_word(at_pool *p) { return (char *)&p->gate + 4; }

// Does the limit (at_pool_limit) leave this worker in?
static bool may_work(const at_pool *p, uint32_t worker) {
  return worker < atomic_load_explicit(&p->limit, memory_order_relaxed);
}

// Claims chunks until none is left, or the limit takes the worker out.
static void run_chunks(at_pool *p, uint32_t worker) {
  int64_t n = p->n, grain = p->grain;
  while (may_work(p, worker)) {
    int64_t begin =
        atomic_fetch_add_explicit(&p->next, grain, memory_order_relaxed);
    if (begin >= n) return;
    p->fn(p->arg, begin, n - begin > grain ? begin + grain : n, worker);
  }
}

// Joins the open job that `gate` shows, if it is still open. True: the limit
// took the worker out of it, and it may be allowed in again.
static bool join(at_pool *p, uint64_t gate, uint32_t worker) {
  uint32_t epoch = GATE_EPOCH(gate);
  do {
    if (!(gate & GATE_OPEN) || GATE_EPOCH(gate) != epoch) return false;
  } while (!atomic_compare_exchange_weak_explicit(
      &p->gate, &gate, gate + 1, memory_order_acquire, memory_order_acquire));
  if ((_mm_getcsr() & ~0x3fu) != p->fp_modes) _mm_setcsr(p->fp_modes);
  run_chunks(p, worker);
  gate = atomic_fetch_sub_explicit(&p->gate, 1, memory_order_release) - 1;
  if ((gate & GATE_WAITING) && !(gate & GATE_ACTIVE))
    at_futex_wake(&p->gate, 1);
  return !may_work(p, worker);
}

// Sleeps while the limit keeps this worker out.
static void await_permission(at_pool *p, uint32_t worker) {
  uint32_t limit;
  while (worker >= (limit = atomic_load(&p->limit)))
    at_futex_wait(&p->limit, limit);
}

// Helpers that the old limit kept out sleep on it and look again.
void at_pool_limit(at_pool *p, uint32_t threads) {
  threads = AT_MAX(threads, 1u);
  if (atomic_exchange(&p->limit, threads) < threads)
    at_futex_wake(&p->limit, 1 << 30);
}

// Whoever is back soon after the last one left continues its presence.
void at_pool_attend(at_pool *p, bool on) {
  uint64_t now = at_clock_ns();
  if (!on) {
    atomic_store_explicit(&p->left, now, memory_order_relaxed);
    atomic_fetch_sub_explicit(&p->attended, 1, memory_order_relaxed);
  } else if (!atomic_fetch_add_explicit(&p->attended, 1,
                                        memory_order_relaxed)) {
    uint64_t left = atomic_load_explicit(&p->left, memory_order_relaxed);
    atomic_store_explicit(&p->since, now - left < kAttentiveNs ? 0 : now,
                          memory_order_relaxed);
  }
}

// Relaxed reads: a wrong answer costs time only.
bool at_pool_is_near(const at_pool *p) {
  if (!atomic_load_explicit(&p->sleepers, memory_order_relaxed)) return true;
  uint64_t since = atomic_load_explicit(&p->since, memory_order_relaxed);
  return at_clock_ns() - since > kAttentiveNs;
}

// Until when to spin before sleeping.
static uint64_t patience(const at_pool *p) {
  bool on = atomic_load_explicit(&p->attended, memory_order_relaxed) > 0;
  return at_clock_ns() + at_spin_ns(on ? kAttentiveNs : kSpinNs);
}

// Waits for another epoch than `seen`: spins, then sleeps.
static void await_job(at_pool *p, uint32_t seen) {
  uint64_t gate, until = patience(p);
  for (uint32_t turn = 1;; turn++) {
    gate = atomic_load_explicit(&p->gate, memory_order_acquire);
    if (GATE_EPOCH(gate) != seen) return;
    at_spin_pause();
    if (turn % 16 == 0 && at_clock_ns() > until) break;
  }
  atomic_fetch_add(&p->sleepers, 1);
  while (GATE_EPOCH(atomic_load(&p->gate)) == seen)
    at_futex_wait(epoch_word(p), seen);
  atomic_fetch_sub(&p->sleepers, 1);
}

// A helper's life: wait for an epoch, join its job, again.
static void helper_main(void *arg) {
  helper *h = arg;
  at_pool *p = h->pool;
  t_inside = true;  // what runs here never fans out again
  uint32_t seen = 0;
  for (;;) {
    await_job(p, seen);
    uint64_t gate;
    do {
      await_permission(p, h->index);
      gate = atomic_load_explicit(&p->gate, memory_order_acquire);
      seen = GATE_EPOCH(gate);
      if (atomic_load_explicit(&p->stop, memory_order_acquire)) return;
    } while (join(p, gate, h->index));
  }
}

// Shuts the gate and waits for the helpers inside.
static void close_gate(at_pool *p) {
  uint64_t gate = atomic_fetch_and(&p->gate, ~GATE_OPEN) & ~GATE_OPEN;
  uint64_t until = (gate & GATE_ACTIVE) ? patience(p) : 0;
  for (uint32_t turn = 1; gate & GATE_ACTIVE; turn++) {
    at_spin_pause();
    if (turn % 16 == 0 && at_clock_ns() > until) {
      gate = atomic_fetch_or(&p->gate, GATE_WAITING) | GATE_WAITING;
      if (gate & GATE_ACTIVE) at_futex_wait(&p->gate, (uint32_t)gate);
    }
    gate = atomic_load_explicit(&p->gate, memory_order_acquire);
  }
}

// Publishes the next job (a new epoch) and wakes as many sleepers as there are
// chunks for them.
static void open_gate(at_pool *p, int64_t chunks) {
  uint64_t gate = atomic_load_explicit(&p->gate, memory_order_relaxed);
  gate = ((uint64_t)(GATE_EPOCH(gate) + 1u) << 32) | GATE_OPEN;
  atomic_store(&p->gate, gate);
  uint32_t asleep = atomic_load(&p->sleepers);
  // Whoever wakes may be one whom the limit keeps out: then all do.
  bool limited =
      atomic_load_explicit(&p->limit, memory_order_relaxed) < p->threads;
  int64_t want = limited ? asleep : AT_MIN(chunks - 1, (int64_t)asleep);
  if (asleep) at_futex_wake(epoch_word(p), (int)want);
}

// The job on this thread alone, in the same chunks as with helpers.
static void run_inline(int64_t n, int64_t grain, at_range_fn fn, void *arg) {
  for (int64_t begin = 0; begin < n;) {
    int64_t end = n - begin > grain ? begin + grain : n;
    fn(arg, begin, end, 0);
    begin = end;
  }
}

// Takes the pool for a job of this thread. False: run inline (another job runs,
// this is inside one, a fork, or no helpers).
static bool claim(at_pool *p) {
  uint32_t idle = 0;
  return p->started && !t_inside && !at_pool_forked(p) &&
         atomic_compare_exchange_strong_explicit(
             &p->busy, &idle, 1, memory_order_acquire, memory_order_relaxed);
}

// Where a job like this one is remembered if it is long, and its name there.
static uint64_t *long_job(at_pool *p, uint64_t *name) {
  uint64_t h = (uint64_t)(uintptr_t)p->fn * 0x9e3779b97f4a7c15ull;
  h = (h ^ (uint64_t)p->n) * 0xff51afd7ed558ccdull;
  h = (h ^ (uint64_t)p->grain) * 0xc4ceb9fe1a85ec53ull;
  *name = h | 1;
  return &p->long_jobs[h >> 58];
}

// Claims chunks with nobody's help until none is left or the job turns out to
// be long. False: some are left.
static bool finish_alone(at_pool *p, uint64_t start) {
  int64_t n = p->n, grain = p->grain, begin = 0;
  uint64_t name, *place = long_job(p, &name), now = start;
  for (; begin < n && *place != name; begin += grain) {
    p->fn(p->arg, begin, n - begin > grain ? begin + grain : n, 0);
    now = at_clock_ns();
    if (now - start > kAloneNs) *place = name;
  }
  atomic_store_explicit(&p->next, begin, memory_order_relaxed);
  return begin >= n;
}

// Waits for the helpers and learns what they were good for.
static void wait_for_helpers(at_pool *p, uint64_t start) {
  uint64_t done = at_clock_ns(), name, *place = long_job(p, &name);
  close_gate(p);
  uint64_t end = at_clock_ns(), work = done - start, wait = end - done;
  if (wait > work + kLossNs)
    p->wary_until = end + AT_MIN((wait - work) * kWary, (uint64_t)kWaryNs);
  if (work < kAloneNs / 4 && *place == name) *place = 0;
}

// The job whose fields are set, this thread among others.
static void run_job(at_pool *p) {
  uint64_t start = at_clock_ns();
  atomic_store_explicit(&p->next, 0, memory_order_relaxed);
  t_inside = true;
  if (start >= p->wary_until || !finish_alone(p, start)) {
    open_gate(p, at_ceil_div(p->n, p->grain));
    run_chunks(p, 0);
    wait_for_helpers(p, start);
  }
  t_inside = false;
}

// Small, huge and rival jobs run on the caller's thread, in the same chunks as
// they would with helpers.
void at_pool_for(at_pool *p, int64_t n, int64_t grain, at_range_fn fn,
                 void *arg) {
  AT_ASSERT(fn);
  if (n <= 0) return;
  if (grain < 1) grain = 1;
  // `next` may pass n by one claim of each thread; keep that from wrapping.
  bool huge = n > INT64_MAX / 2 || grain > INT64_MAX / 2 / (int64_t)p->threads;
  if (n <= grain || huge || !claim(p)) {
    run_inline(n, grain, fn, arg);
    return;
  }
  p->fn = fn;
  p->arg = arg;
  p->n = n;
  p->grain = grain;
  p->fp_modes = _mm_getcsr() & ~0x3fu;  // without the sticky exception flags
  run_job(p);
  atomic_store_explicit(&p->busy, 0, memory_order_release);
}

// A pool of one thread has no helpers and is never claimed.
at_status at_pool_create(uint32_t threads, at_pool **out) {
  if (threads < 1 || threads > 4096)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "a thread pool of %u threads: 1 to 4096 are possible",
                   threads);
  pthread_once(&g_fork_once, watch_forks);
  at_pool *p = aligned_alloc(
      64, at_align_up(sizeof *p + (threads - 1) * sizeof(helper), 64));
  if (!p) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "out of memory: thread pool");
  memset(p, 0, sizeof *p);
  p->threads = threads;
  p->limit = UINT32_MAX;
  p->fork_generation = at_fork_generation();
  for (uint32_t i = 0; i + 1 < threads; i++) {
    helper *h = &p->helpers[i];
    *h = (helper){.pool = p, .index = i + 1};
    at_status st = at_thread_start("atoll-helper", AT_THREAD_STACK, helper_main,
                                   h, &h->thread);
    if (st.err) {  // fewer threads only take longer
      at_log(AT_LOG_WARNING, "%u of %u threads run kernels: %s", i + 1, threads,
             at_status_message(st));
      at_status_free(st);
      p->threads = i + 1;
      break;
    }
    p->started = i + 1;
  }
  *out = p;
  return AT_OK;
}

// Stop, permission and a new epoch, in this order: helpers look for each of
// them.
void at_pool_destroy(at_pool *p) {
  if (!p) return;
  if (!at_pool_forked(p)) {  // a child has no helpers to stop
    atomic_store(&p->stop, true);
    at_pool_limit(p, UINT32_MAX);
    atomic_fetch_add(&p->gate, 1ull << 32);
    at_futex_wake(epoch_word(p), 1 << 30);
    for (uint32_t i = 0; i < p->started; i++)
      at_thread_join(p->helpers[i].thread);
  }
  free(p);
}

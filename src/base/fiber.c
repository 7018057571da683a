// Fibers: a run queue, threads that serve it, and a context switch of our own.
// A parking fiber first leaves its stack; only then (`after`, on the thread's
// stack) does it become visible to whoever will resume it, so it is never run
// twice.
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/cpu.h"
#include "base/linger.h"
#include "base/log.h"
#include "base/parallel_internal.h"
#include "base/thread.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define AT_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define AT_TSAN 1
#endif
#endif
#ifdef AT_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef AT_TSAN
#include <sanitizer/tsan_interface.h>
#endif

// How long an idle thread watches the queue; how many stacks of ended fibers
// are kept.
enum {
  kIdleSpinNs = 20000,
  kIdleLingerNs = 50000,
  kKeptStacks = 64,
  kPage = 4096
};

// A fiber and its stack. While it is parked, `sp` is where it goes on.
struct at_fiber {
  at_fiber *next;  // in the run queue or in the list of spare fibers
  at_sched *sched;
  void *sp;  // saved stack pointer while not running
  uint8_t *stack;
  void (*fn)(void *);
  void *arg;
  void (*after)(at_fiber *f, void *arg);  // NULL: the fiber has ended
  void *after_arg;
#ifdef AT_ASAN
  void *fake_stack;
#endif
#ifdef AT_TSAN
  void *tsan;
#endif
};

// One thread of a scheduler.
typedef struct server {
  at_sched *sched;
  at_thread *thread;
  at_fiber *running;
  uint64_t lent_ns;  // when, by who has spawned the fiber; 0: by nobody
  void *sp;          // the thread's own stack while a fiber runs
#ifdef AT_ASAN
  void *fake_stack;
  const void *stack_bottom;
  size_t stack_bytes;
#endif
#ifdef AT_TSAN
  void *tsan;
#endif
} server;

// What changes is the lock's, but for the atomics. Servers lie behind it in the
// same allocation.
struct at_sched {
  pthread_mutex_t lock;
  pthread_cond_t work, idle;
  at_fiber *head, *tail;  // run queue
  at_fiber *spare;        // ended fibers that keep their stacks
  uint32_t num_spare, sleeping;
  uint64_t live;            // fibers that have not ended
  _Atomic uint32_t queued;  // length of the run queue, for spinning
  _Atomic uint32_t spinning;
  at_linger idles;  // of who spins where others want the cores
  bool stop, releases_tiles;
  uint32_t threads, fork_generation;
  size_t stack_bytes;
  server servers[];
};

// ---- The switch
// Saves the callee-saved registers and the floating-point control words on the
// running stack, stores its pointer at *save, and continues on the stack
// `load`.
void at_fiber_switch_(void **save, void *load);
__asm__(
    ".text\n"
    ".p2align 4\n"
    ".hidden at_fiber_switch_\n"
    ".globl at_fiber_switch_\n"
    ".type at_fiber_switch_,@function\n"
    "at_fiber_switch_:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n"
    "  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  subq $8, %rsp\n"
    "  stmxcsr (%rsp)\n  fnstcw 4(%rsp)\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  ldmxcsr (%rsp)\n  fldcw 4(%rsp)\n"
    "  addq $8, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n"
    "  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n"
    ".size at_fiber_switch_, .-at_fiber_switch_\n");

// A fiber may wake on another thread, so nothing may keep the address of a
// thread-local across a switch: only these two functions touch it.
static _Thread_local server *t_server;
__attribute__((noinline)) static server *this_server(void) { return t_server; }
__attribute__((noinline)) static void set_server(server *s) { t_server = s; }

bool at_in_fiber(void) {
  server *s = this_server();
  return s && s->running;
}

at_fiber *at_fiber_current(void) {
  server *s = this_server();
  return s ? s->running : NULL;
}

// Tile registers are not part of a fiber's context. XGETBV(1) tells whether
// they are in use; touching them otherwise would make the kernel allocate their
// state.
static void release_tiles(const at_sched *s) {
  if (!s->releases_tiles) return;
  uint32_t lo, hi;
  __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(1));
  if (lo & (3u << 17))
    __asm__ volatile(".byte 0xc4, 0xe2, 0x78, 0x49, 0xc0");  // tilerelease
}

// From a fiber to its thread. `ended`: it will not come back.
static void switch_out(at_fiber *f, bool ended) {
  server *s = this_server();
  release_tiles(f->sched);
#ifdef AT_ASAN
  __sanitizer_start_switch_fiber(ended ? NULL : &f->fake_stack, s->stack_bottom,
                                 s->stack_bytes);
#endif
#ifdef AT_TSAN
  __tsan_switch_to_fiber(s->tsan, 0);
#endif
  at_fiber_switch_(&f->sp, s->sp);
#ifdef AT_ASAN
  s = this_server();
  __sanitizer_finish_switch_fiber(f->fake_stack, &s->stack_bottom,
                                  &s->stack_bytes);
#endif
}

// From a thread to a fiber.
static void switch_in(server *s, at_fiber *f) {
  s->running = f;
#ifdef AT_ASAN
  __sanitizer_start_switch_fiber(&s->fake_stack, f->stack + kPage,
                                 f->sched->stack_bytes);
#endif
#ifdef AT_TSAN
  __tsan_switch_to_fiber(f->tsan, 0);
#endif
  at_fiber_switch_(&s->sp, f->sp);
#ifdef AT_ASAN
  __sanitizer_finish_switch_fiber(s->fake_stack, NULL, NULL);
#endif
  s->running = NULL;
}

// The first function on a fiber's stack. It never returns: there is nowhere to.
static void fiber_main(void) {
  at_fiber *f = at_fiber_current();
#ifdef AT_ASAN
  server *s = this_server();
  __sanitizer_finish_switch_fiber(NULL, &s->stack_bottom, &s->stack_bytes);
#endif
  f->fn(f->arg);
  f->after = NULL;
  switch_out(f, true);
  __builtin_trap();  // an ended fiber is never resumed
}

// Returns when at_fiber_ready has been called for it, perhaps on another
// thread.
void at_fiber_park(void (*after)(at_fiber *, void *), void *arg) {
  at_fiber *f = at_fiber_current();
  AT_ASSERT(f && after);
  f->after = after;
  f->after_arg = arg;
  switch_out(f, false);
}

// A call that a fiber has made on its thread's stack.
typedef struct thread_call {
  void (*fn)(void *);
  void *arg;
} thread_call;

// The argument is on the fiber's stack: it is copied before the fiber may run.
static void call_then_ready(at_fiber *f, void *arg) {
  thread_call c = *(thread_call *)arg;
  c.fn(c.arg);
  at_fiber_ready(f);
}

// Parking gives the thread its own stack back; the call runs there.
void at_fiber_call_on_thread(void (*fn)(void *), void *arg) {
  thread_call c = {fn, arg};
  if (at_in_fiber())
    at_fiber_park(call_then_ready, &c);
  else
    fn(arg);
}

uint64_t at_fiber_on_caller_ns(void) {
  server *s = this_server();
  return s && s->running && s->lent_ns ? at_clock_ns() - s->lent_ns + 1 : 0;
}

static void ready_elsewhere(at_fiber *f, void *arg) {
  (void)arg;
  at_fiber_ready(f);
}

void at_fiber_leave_caller(void) {
  if (at_fiber_on_caller_ns()) at_fiber_park(ready_elsewhere, NULL);
}

// ---- Stacks
// A stack from which at_fiber_switch_ goes into fiber_main.
static void prepare_stack(at_fiber *f) {
  // As after a call: rsp + 8 is a multiple of 16 when fiber_main starts.
  uint64_t *top = (uint64_t *)(f->stack + kPage + f->sched->stack_bytes);
  *--top = 0;  // fiber_main's return address: none
  *--top = (uint64_t)(uintptr_t)fiber_main;
  for (int i = 0; i < 6; i++) *--top = 0;  // rbp rbx r12..r15
  *--top = 0x1f80ull | 0x37full << 32;     // MXCSR, x87 control word
  f->sp = top;
#ifdef AT_TSAN
  f->tsan = __tsan_create_fiber(0);
#endif
}

// A fiber with a guarded stack; NULL: no memory.
static at_fiber *fiber_make(at_sched *s) {
  at_fiber *f = calloc(1, sizeof *f);
  if (!f) return NULL;
  f->sched = s;
  f->stack =
      mmap(NULL, s->stack_bytes + kPage, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (f->stack == MAP_FAILED) return free(f), NULL;
  if (mprotect(f->stack, kPage, PROT_NONE)) {
    munmap(f->stack, s->stack_bytes + kPage);
    return free(f), NULL;
  }
  return f;
}

// Its stack's mapping and the fiber itself; it must not run again.
static void fiber_destroy(at_fiber *f) {
  munmap(f->stack, f->sched->stack_bytes + kPage);
  free(f);
}

// The fiber has left its stack for good: it is kept as a spare, or unmapped.
static void fiber_end(at_sched *s, at_fiber *f) {
#ifdef AT_TSAN
  __tsan_destroy_fiber(f->tsan);
#endif
  pthread_mutex_lock(&s->lock);
  bool keep = s->num_spare < kKeptStacks;
  if (keep) {
    f->next = s->spare;
    s->spare = f;
    s->num_spare++;
  }
  AT_ASSERT(s->live > 0);
  if (--s->live == 0) pthread_cond_broadcast(&s->idle);
  pthread_mutex_unlock(&s->lock);
  if (!keep) fiber_destroy(f);
}

// ---- The run queue
// Makes f runnable; wakes a thread only if none is looking already.
static void enqueue_locked(at_sched *s, at_fiber *f) {
  f->next = NULL;
  if (s->tail)
    s->tail->next = f;
  else
    s->head = f;
  s->tail = f;
  atomic_fetch_add_explicit(&s->queued, 1, memory_order_release);
  if (s->sleeping && !atomic_load(&s->spinning)) pthread_cond_signal(&s->work);
}

void at_fiber_ready(at_fiber *f) {
  at_sched *s = f->sched;
  pthread_mutex_lock(&s->lock);
  enqueue_locked(s, f);
  pthread_mutex_unlock(&s->lock);
}

static bool has_work(void *sched) {
  at_sched *s = sched;
  return atomic_load_explicit(&s->queued, memory_order_acquire) > 0;
}

// One idle thread at a time watches the queue for a moment before it sleeps.
static void spin_for_work(at_sched *s) {
  if (atomic_exchange(&s->spinning, 1)) return;
  if (at_spin_ns(kIdleSpinNs)) {
    uint64_t until = at_clock_ns() + kIdleSpinNs;
    while (!has_work(s) && at_clock_ns() < until) at_spin_pause();
  } else {
    at_linger_for(&s->idles, kIdleLingerNs, has_work, s);
  }
  atomic_store(&s->spinning, 0);
}

// The next fiber to run; NULL when the scheduler stops.
static at_fiber *dequeue(at_sched *s) {
  if (!atomic_load_explicit(&s->queued, memory_order_acquire)) spin_for_work(s);
  pthread_mutex_lock(&s->lock);
  while (!s->head && !s->stop) {
    s->sleeping++;
    pthread_cond_wait(&s->work, &s->lock);
    s->sleeping--;
  }
  at_fiber *f = s->head;
  AT_ASSERT(f || s->stop);
  if (f) {
    s->head = f->next;
    if (!s->head) s->tail = NULL;
    uint32_t left = atomic_fetch_sub(&s->queued, 1) - 1;
    if (left && s->sleeping) pthread_cond_signal(&s->work);
  }
  pthread_mutex_unlock(&s->lock);
  return f;
}

// The calling thread is the server from here on.
static void serve(server *me) {
  set_server(me);
#ifdef AT_TSAN
  me->tsan = __tsan_get_current_fiber();
#endif
}

// Until the fiber parks or ends.
static void run(server *me, at_fiber *f) {
  switch_in(me, f);
  void (*after)(at_fiber *, void *) = f->after;
  if (after)
    after(f, f->after_arg);
  else
    fiber_end(me->sched, f);
}

// One thread of the scheduler: runs fibers until it is stopped.
static void server_main(void *arg) {
  server *me = arg;
  at_cpu_fp_default();
  serve(me);
  for (at_fiber *f; (f = dequeue(me->sched));) run(me, f);
}

// A spare fiber is taken first, so that a warm scheduler maps no memory. It is
// not in the run queue yet.
static at_status make_to_run(at_sched *s, void (*fn)(void *), void *arg,
                             at_fiber **out) {
  if (s->fork_generation != at_fork_generation())
    return AT_FAIL(AT_FAILED_PRECONDITION,
                   "this process was forked after its threads were started\n"
                   "hint: use the `spawn` start method, or fork before the "
                   "first use");
  pthread_mutex_lock(&s->lock);
  at_fiber *f = s->spare;
  if (f) {
    s->spare = f->next;
    s->num_spare--;
  }
  s->live++;
  pthread_mutex_unlock(&s->lock);
  if (!f) f = fiber_make(s);
  if (!f) {
    pthread_mutex_lock(&s->lock);
    if (--s->live == 0) pthread_cond_broadcast(&s->idle);
    pthread_mutex_unlock(&s->lock);
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a fiber's stack");
  }
  f->fn = fn;
  f->arg = arg;
  prepare_stack(f);
  *out = f;
  return AT_OK;
}

at_status at_sched_spawn(at_sched *s, void (*fn)(void *), void *arg) {
  at_fiber *f;
  AT_TRY(make_to_run(s, fn, arg, &f));
  at_fiber_ready(f);
  return AT_OK;
}

// A thread that serves already is not lent twice.
at_status at_sched_spawn_here(at_sched *s, void (*fn)(void *), void *arg) {
  if (this_server()) return at_sched_spawn(s, fn, arg);
  at_fiber *f;
  AT_TRY(make_to_run(s, fn, arg, &f));
  server me = {.sched = s, .lent_ns = at_clock_ns()};
  const uint32_t modes = at_cpu_fp_default();
  serve(&me);
  run(&me, f);
  set_server(NULL);
  at_cpu_fp_restore(modes);
  return AT_OK;
}

bool at_sched_busy(at_sched *s) {
  pthread_mutex_lock(&s->lock);
  bool busy = s->live > 0;
  pthread_mutex_unlock(&s->lock);
  return busy;
}

// Unmaps the stacks that were kept; no thread may serve any more.
static void sched_free(at_sched *s) {
  for (at_fiber *f = s->spare; f;) {
    at_fiber *next = f->next;
    fiber_destroy(f);
    f = next;
  }
  free(s);
}

// Waits until no fiber lives, then ends the threads.
static void stop_servers(at_sched *s) {
  pthread_mutex_lock(&s->lock);
  while (s->live) pthread_cond_wait(&s->idle, &s->lock);
  s->stop = true;
  pthread_cond_broadcast(&s->work);
  pthread_mutex_unlock(&s->lock);
  for (uint32_t i = 0; i < s->threads; i++)
    at_thread_join(s->servers[i].thread);
  pthread_cond_destroy(&s->work);
  pthread_cond_destroy(&s->idle);
  pthread_mutex_destroy(&s->lock);
}

// Threads stop when the queue is empty.
void at_sched_destroy(at_sched *s) {
  if (!s) return;
  if (s->fork_generation == at_fork_generation()) stop_servers(s);
  sched_free(s);
}

// The first thread must start; fewer than asked for only take longer.
at_status at_sched_create(uint32_t threads, size_t stack_bytes,
                          at_sched **out) {
  if (threads < 1 || threads > 4096 || stack_bytes < 16384 ||
      stack_bytes > (size_t)1 << 30)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "a scheduler of %u threads with stacks of %zu bytes: 1 to "
                   "4096 threads, 16 KiB to 1 GiB are possible",
                   threads, stack_bytes);
  at_pool *fork_watch;  // a pool without helpers starts the watch for forks
  AT_TRY(at_pool_create(1, &fork_watch));
  at_pool_destroy(fork_watch);
  at_sched *s = calloc(1, sizeof *s + threads * sizeof(server));
  if (!s) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "out of memory: scheduler");
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->work, NULL);
  pthread_cond_init(&s->idle, NULL);
  s->stack_bytes = at_align_up(stack_bytes, kPage);
  s->releases_tiles =
      at_cpu_features() & (AT_CPU_AMX_BF16 | AT_CPU_AMX_INT8) ? true : false;
  s->fork_generation = at_fork_generation();
  for (uint32_t i = 0; i < threads; i++) {
    s->servers[i].sched = s;
    at_status st = at_thread_start("atoll-server", AT_THREAD_STACK, server_main,
                                   &s->servers[i], &s->servers[i].thread);
    if (st.err && i == 0) {
      at_sched_destroy(s);
      return st;
    }
    if (st.err) {  // fewer launches are under way at once
      at_log(AT_LOG_WARNING, "%u of %u threads run launches: %s", i, threads,
             at_status_message(st));
      at_status_free(st);
      break;
    }
    s->threads = i + 1;
  }
  *out = s;
  return AT_OK;
}

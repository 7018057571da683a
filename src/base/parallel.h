// Threads and fibers. One pool per process, owned by `exec`; kernels use it
// through at_par. A task that waits inside the pool switches its fiber, never
// its thread.
//
// Errors: creating returns INVALID_ARGUMENT or RESOURCE_EXHAUSTED, starting
// work FAILED_PRECONDITION in a forked child; waiting returns what the event
// was fired with.
// Threads: every function may be called from any, but for destroying.
#ifndef ATOLL_BASE_PARALLEL_H_
#define ATOLL_BASE_PARALLEL_H_

#include "base/span.h"
#include "base/status.h"

// ---- Thread pool
typedef struct at_pool at_pool;
// `threads` counts the caller: 1 means no helpers are started. Helpers spin a
// few microseconds, then sleep on a futex. Refuses (FAILED_PRECONDITION) work
// in a forked child, with a message that says so.
// INVALID_ARGUMENT unless threads is 1 to 4096. Where some helpers cannot be
// started fewer do the work, and the log warns. RESOURCE_EXHAUSTED: no memory.
at_status at_pool_create(uint32_t threads, at_pool **out);
// Stops and joins the helpers; NULL is allowed. Nobody may be inside
// at_pool_for. In a forked child it only frees the memory.
void at_pool_destroy(at_pool *p);
// Threads that may run chunks, the caller included: what at_pool_create was
// asked for, or fewer where threads could not be started. Constant.
uint32_t at_pool_threads(const at_pool *p);
// Calls fn(arg, begin, end, worker) over [0, n) in chunks of at most `grain`
// (>= 1) until all are done; the caller works too. worker < at_pool_threads.
// Chunks are claimed dynamically; fn must not depend on which thread runs it.
// Helpers take over the caller's floating-point modes (rounding, flushing of
// denormals). Nested calls run inline, and so does a second caller while a
// first one is inside. fn must not wait for an event. No allocation, no lock on
// the fast path.
typedef void (*at_range_fn)(void *arg, int64_t begin, int64_t end,
                            uint32_t worker);
// n <= 0: nothing. Returns when fn has been called for all of [0, n), and sees
// what it wrote. On a machine whose cores others want, a helper may lose its
// own in the midst of a chunk: after a job that had to wait for one, jobs of
// less than half a millisecond are not shared for a while.
void at_pool_for(at_pool *p, int64_t n, int64_t grain, at_range_fn fn,
                 void *arg);
// How many threads may work from now on, the caller included: a job that runs
// gains and loses helpers between two chunks. 0 counts as 1; more than there
// are: all. Thread-safe.
void at_pool_limit(at_pool *p, uint32_t threads);
// While on, a caller has one job after another, with a little work of its own
// between: helpers spin longer before they sleep. Calls with true and false
// pair up; any thread may make them.
void at_pool_attend(at_pool *p, bool on);
// Is a job of less than a microsecond worth sharing? Helpers that sleep cost
// more to wake, unless whoever attends them has more work to come: has been at
// it for long, or is back soon after the last time.
bool at_pool_is_near(const at_pool *p);
// True in a child of the process that made the pool.
bool at_pool_forked(const at_pool *p);

// Threads that wait spin for a few microseconds before they sleep. That is for
// a process that has its cores to itself: others on the same cores have to wait
// for who spins. With false, threads of schedulers and those that wait for
// events linger instead (base/linger.h), and those of pools sleep. Of all of
// this process; true until somebody says otherwise. Thread-safe.
void at_spin_allow(bool on);

// ---- What a runtime kernel may use
// The pool and scratch memory of one launch; borrowed by the kernel.
typedef struct at_par {
  at_pool *pool;  // NULL: the calling thread alone
  // Scratch memory that stays valid until the kernel returns; 64-byte aligned,
  // not zeroed, pooled (no page faults once warm). NULL: no memory.
  void *(*scratch)(void *owner, size_t bytes);
  void *owner;
} at_par;
static inline uint32_t at_par_threads(const at_par *p) {
  return p->pool ? at_pool_threads(p->pool) : 1;
}
static inline void at_par_for(const at_par *p, int64_t n, int64_t grain,
                              at_range_fn fn, void *arg) {
  if (p->pool)
    at_pool_for(p->pool, n, grain, fn, arg);
  else if (n > 0)
    fn(arg, 0, n, 0);
}
static inline void *at_par_scratch(const at_par *p, size_t bytes) {
  return p->scratch(p->owner, bytes);
}

// ---- Fibers
// A scheduler runs fibers on its own threads. Stacks are guarded (a page below)
// and pooled. Sanitizers are told of every switch; AMX tiles are released
// before it.
typedef struct at_sched at_sched;
typedef struct at_fiber at_fiber;
// `threads` (1 to 4096) server threads, and for each fiber a stack of
// stack_bytes (16 KiB to 1 GiB, rounded up to pages), mapped when first needed.
// INVALID_ARGUMENT outside these ranges, RESOURCE_EXHAUSTED without memory.
// Where only some threads can be started those do the work, and the log warns.
at_status at_sched_create(uint32_t threads, size_t stack_bytes, at_sched **out);
void at_sched_destroy(at_sched *s);  // waits for every fiber
bool at_sched_busy(at_sched *s);     // has a fiber not ended yet?
// Starts fn(arg) on a fiber; detached.
at_status at_sched_spawn(at_sched *s, void (*fn)(void *), void *arg);
// The same, but it begins on the caller's thread. The call returns when the
// fiber has ended, parks or leaves (at_fiber_leave_caller); what is left of it
// runs on the scheduler's threads. From within a fiber: at_sched_spawn.
at_status at_sched_spawn_here(at_sched *s, void (*fn)(void *), void *arg);
// For how long a fiber has run on the thread of who spawned it
// (at_sched_spawn_here), which would go on with other work: ns, at least 1. 0:
// the caller is none, or has left that thread.
uint64_t at_fiber_on_caller_ns(void);
// Such a fiber goes on on one of the scheduler's threads; else nothing happens.
void at_fiber_leave_caller(void);
// Does the caller run on a fiber, of any scheduler? Then waiting parks it.
bool at_in_fiber(void);
// Runs fn(arg) on the stack of the thread under this fiber and then goes on,
// perhaps on another thread: for foreign code that looks at its stack (Python
// does). Outside a fiber: a plain call. fn must not wait for other fibers of
// this scheduler.
void at_fiber_call_on_thread(void (*fn)(void *), void *arg);

// An event fires once, with a status. Waiting parks the fiber, or the thread
// when called outside a fiber. Thread-safe; reference-counted.
typedef struct at_event at_event;
at_event *at_event_create(void);  // NULL: no memory; one reference
at_event *at_event_done(void);    // shared, never freed; has fired with OK
// One reference more, for the caller to release; returns e.
at_event *at_event_retain(at_event *e);
// Drops a reference; NULL is allowed. The last one frees the event, and where
// it never fired its callbacks are dropped without being called.
void at_event_release(at_event *e);
void at_event_fire(at_event *e,
                   at_status s);  // consumes s; only the first counts
// Never waits. True: the status is final, and what was written before the
// firing is visible to the caller.
bool at_event_fired(const at_event *e);
at_status at_event_wait(at_event *e);          // a clone of its status
at_status at_event_status(const at_event *e);  // a clone; OK while pending
// fn(status clone, arg) once fired: at once when it has fired already.
typedef void (*at_event_fn)(at_status s, void *arg);
// Callbacks run in the order in which they were added, on the thread that
// fires, or on the caller's when the event has fired already.
// RESOURCE_EXHAUSTED: not added, and fn is never called.
at_status at_event_on(at_event *e, at_event_fn fn, void *arg);

#endif

// Events. The list of waiters is one atomic word: a stack of nodes, or FIRED.
// Firing swaps the whole list out, so no lock is ever held and no wake-up is
// lost.
#include <stdlib.h>

#include "base/linger.h"
#include "base/parallel_internal.h"

// Before a thread sleeps. A fiber never spins.
enum { kWaitSpinNs = 5000, kWaitLingerNs = 50000 };

_Atomic bool at_spins = true;

void at_spin_allow(bool on) { atomic_store(&at_spins, on); }

// Who is told, and where its node lives: on the waiting stack, or for callbacks
// on the heap.
typedef enum waiter_kind {
  WAITS_FIBER,
  WAITS_THREAD,
  WAITS_CALLBACK
} waiter_kind;

typedef struct waiter {
  struct waiter *next;
  waiter_kind kind;
  at_fiber *fiber;         // FIBER
  _Atomic uint32_t woken;  // THREAD: futex word
  at_event_fn fn;          // CALLBACK: the node is on the heap
  void *arg;
} waiter;

// `claimed` lets one caller fire; `waiters` becoming FIRED publishes the
// status.
struct at_event {
  _Atomic uint32_t refs;
  _Atomic bool claimed;  // someone fires, or has fired
  bool immortal;
  _Atomic(waiter *) waiters;
  at_status status;  // owned; written before waiters becomes FIRED
};

static waiter g_fired;
#define FIRED (&g_fired)

static at_event g_done = {
    .refs = 1, .claimed = true, .immortal = true, .waiters = FIRED};

at_event *at_event_done(void) { return &g_done; }

// Not fired; the caller's reference.
at_event *at_event_create(void) {
  at_event *e = calloc(1, sizeof *e);
  if (e) atomic_store_explicit(&e->refs, 1, memory_order_relaxed);
  return e;
}

// The caller has a reference, so the count cannot reach 0 meanwhile.
at_event *at_event_retain(at_event *e) {
  if (e->immortal) return e;
  uint32_t before =
      atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
  AT_ASSERT(before > 0);
  return e;
}

// The last one frees, with no lock: nobody else can reach the event.
void at_event_release(at_event *e) {
  if (!e || e->immortal) return;
  uint32_t before =
      atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel);
  AT_ASSERT(before > 0);
  if (before != 1) return;
  // Callbacks of an event that never fired: nobody is left to run them.
  waiter *w = atomic_load_explicit(&e->waiters, memory_order_relaxed);
  while (w && w != FIRED) {
    waiter *next = w->next;
    if (w->kind == WAITS_CALLBACK) free(w);
    w = next;
  }
  at_status_free(e->status);
  free(e);
}

// The head of the list, or FIRED; acquires what the one who fired wrote.
static waiter *waiters_of(const at_event *e) {
  return atomic_load_explicit(&((at_event *)e)->waiters, memory_order_acquire);
}

bool at_event_fired(const at_event *e) { return waiters_of(e) == FIRED; }

// A clone, so that the event's own status stays.
at_status at_event_status(const at_event *e) {
  return at_event_fired(e) ? at_status_clone(e->status) : AT_OK;
}

// Tells one waiter. Its node may be gone once it knows.
static void wake(waiter *w, at_status s) {
  switch (w->kind) {
    case WAITS_FIBER:
      at_fiber_ready(w->fiber);
      return;
    case WAITS_THREAD:
      atomic_store_explicit(&w->woken, 1, memory_order_release);
      // The waiter may be gone by now; a wake-up of its old address is
      // harmless.
      at_futex_wake(&w->woken, 1);
      return;
    case WAITS_CALLBACK:
      w->fn(at_status_clone(s), w->arg);
      free(w);
      return;
  }
}

// The list is in the order newest first and is turned before anybody is told.
void at_event_fire(at_event *e, at_status s) {
  if (atomic_exchange(&e->claimed, true)) {
    at_status_free(s);
    return;
  }
  at_event_retain(e);  // a woken waiter may drop the last reference
  e->status = s;
  waiter *w =
      atomic_exchange_explicit(&e->waiters, FIRED, memory_order_acq_rel);
  waiter *in_order = NULL;
  while (w) {
    waiter *next = w->next;
    w->next = in_order;
    in_order = w;
    w = next;
  }
  while (in_order) {
    waiter *next = in_order->next;
    wake(in_order, s);
    in_order = next;
  }
  at_event_release(e);
}

// False: the event has fired, and the waiter is not in its list.
static bool add_waiter(at_event *e, waiter *w) {
  waiter *head = waiters_of(e);
  do {
    if (head == FIRED) return false;
    w->next = head;
  } while (!atomic_compare_exchange_weak_explicit(
      &e->waiters, &head, w, memory_order_acq_rel, memory_order_acquire));
  return true;
}

// What after_park needs, on the parking fiber's stack.
typedef struct park_request {
  at_event *event;
  waiter *waiter;
} park_request;

// On the thread's stack, once the fiber is off its own: only now may somebody
// wake it.
static void after_park(at_fiber *f, void *arg) {
  park_request r = *(park_request *)arg;  // on f's stack: gone once f runs
  if (!add_waiter(r.event, r.waiter)) at_fiber_ready(f);
}

// The waiter is on the fiber's stack, which stays while it is parked.
static void wait_in_fiber(at_event *e) {
  waiter w = {.kind = WAITS_FIBER, .fiber = at_fiber_current()};
  park_request r = {e, &w};
  at_fiber_park(after_park, &r);
}

static bool has_fired(void *e) { return at_event_fired(e); }

// What waits of this thread are like.
static _Thread_local at_linger t_waits;

// A moment on the core, its own or one that others want. True: it has fired.
static bool wait_awake(at_event *e) {
  if (at_event_fired(e)) return true;
  if (!at_spin_ns(kWaitSpinNs))
    return at_linger_for(&t_waits, kWaitLingerNs, has_fired, e);
  uint64_t until = at_clock_ns() + kWaitSpinNs;
  for (uint32_t turn = 1; !at_event_fired(e); turn++) {
    at_spin_pause();
    if (turn % 16 == 0 && at_clock_ns() > until) return false;
  }
  return true;
}

// On a futex of its own, if it does not fire at once.
static void wait_in_thread(at_event *e) {
  if (wait_awake(e)) return;
  waiter w = {.kind = WAITS_THREAD};
  if (!add_waiter(e, &w)) return;
  while (!atomic_load_explicit(&w.woken, memory_order_acquire))
    at_futex_wait(&w.woken, 0);
}

// A fiber parks, a thread sleeps; both return when the status is final.
at_status at_event_wait(at_event *e) {
  if (!at_event_fired(e)) {
    if (at_in_fiber())
      wait_in_fiber(e);
    else
      wait_in_thread(e);
  }
  return at_event_status(e);
}

// The event may fire between the two looks: then the callback runs here.
at_status at_event_on(at_event *e, at_event_fn fn, void *arg) {
  if (at_event_fired(e)) {
    fn(at_event_status(e), arg);
    return AT_OK;
  }
  waiter *w = malloc(sizeof *w);
  if (!w) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "out of memory: event");
  *w = (waiter){.kind = WAITS_CALLBACK, .fn = fn, .arg = arg};
  if (add_waiter(e, w)) return AT_OK;
  free(w);
  fn(at_event_status(e), arg);
  return AT_OK;
}

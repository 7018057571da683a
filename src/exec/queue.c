// Turns and lanes. A chip is a queue of parts of launches: the part whose turn
// it is runs when the launch's arguments are there. Parts that can go on stand
// in one line; lanes (fibers, at most one per core) take them from it. A part
// that stops at a collective leaves its lane, so any number of chips needs no
// more threads than there are.
#include <stdlib.h>

#include "base/clock.h"
#include "exec/exec_internal.h"

// How long who launches waits for the turn of what it would run itself.
enum { kKeptNs = 100000 };

// The lane that would start for a brief task, kept for the thread that launches
// it.
struct at_kept_lane {
  at_runtime *runtime;      // NULL: nothing is kept
  _Atomic(at_task *) task;  // NULL: a lane has it
  _Atomic uint32_t lanes;   // to start
};

// ---- Lanes
static bool run_part(at_part *p);
static void lane_main(void *runtime);

// Under the lanes' lock: how many lanes `count` more parts are worth. Waking
// one costs about as much as a small part; lanes that are between parts need no
// waking.
static uint32_t lanes_to_start(at_runtime *rt, bool heavy, uint32_t count) {
  at_lanes *l = &rt->lanes;
  if (l->checking) return 0;  // nothing may run yet; that lane goes on then
  uint32_t light = l->active - AT_MIN(l->active, l->heavy);
  uint32_t want = heavy ? count - AT_MIN(count, l->looking) : light == 0;
  want = AT_MIN(want, l->most - AT_MIN(l->most, l->active));
  l->active += want;
  if (want) at_lanes_share(rt);
  return want;
}

// The lanes are counted as active already (lanes_to_start).
static void start_lanes(at_runtime *rt, uint32_t n) {
  for (; n; n--)
    if (at_code_take(at_sched_spawn(rt->sched, lane_main, rt)))
      lane_main(rt);  // no fiber to be had: this thread is the lane
}

// Puts a list of parts of one task into the line; the task's own line where one
// thread runs it all (at_task_run_here).
void at_parts_ready(at_task *t, at_part *first, uint32_t count) {
  if (!first) return;
  at_part *last = first;
  while (last->next) last = last->next;
  if (t->local) {
    if (t->ready_tail)
      t->ready_tail->next = first;
    else
      t->ready_head = first;
    t->ready_tail = last;
    return;
  }
  at_runtime *rt = t->loaded->runtime;
  at_lanes *l = &rt->lanes;
  pthread_mutex_lock(&l->lock);
  if (l->tail)
    l->tail->next = first;
  else
    l->head = first;
  l->tail = last;
  uint32_t n = lanes_to_start(rt, atomic_load(&t->heavy), count);
  if (t->kept) {
    atomic_fetch_add(&t->kept->lanes, n);
    n = 0;
  }
  pthread_mutex_unlock(&l->lock);
  start_lanes(rt, n);
}

// Nobody waits to run the task's lane any more; under the lanes' lock.
static void let_go(at_task *t) {
  if (t->kept) atomic_store(&t->kept->task, NULL);
  t->kept = NULL;
}

// The first of the line; under the lanes' lock.
static at_part *pop(at_lanes *l) {
  at_part *p = l->head;
  if (!p) return NULL;
  let_go(p->task);
  l->head = p->next;
  if (!l->head) l->tail = NULL;
  AT_ASSERT(l->head != p && (!l->tail || !l->tail->next));
  p->next = NULL;
  return p;
}

// What a lane is doing, as the counts of lanes have it.
typedef struct lane {
  bool heavy, looking;
} lane;

// The next part for a lane, or NULL: the lane ends. When the last one is about
// to end, parts that still wait may be waiting for ever.
static at_part *next_part(at_runtime *rt, lane *me) {
  at_lanes *l = &rt->lanes;
  bool checked = false;
  for (;;) {
    pthread_mutex_lock(&l->lock);
    AT_ASSERT(l->active > 0 && l->heavy >= me->heavy &&
              l->looking >= me->looking);
    l->heavy -= me->heavy;
    l->looking -= me->looking;
    *me = (lane){0};
    // A lane that SparseCores took makes one too many.
    bool one_less = l->active > l->most;
    at_part *p = one_less ? NULL : pop(l);
    bool quiet = !p && !one_less && l->active == 1 && l->blocked == 0 &&
                 (!checked || l->again) && atomic_load(&l->waiting);
    l->again &= !quiet;
    l->checking = quiet;
    if (p)
      l->heavy += me->heavy = atomic_load(&p->task->heavy);
    else if (!quiet)
      l->active--;
    if (!p) at_lanes_share(rt);
    pthread_mutex_unlock(&l->lock);
    if (!quiet) return p;
    at_deadlock_check(rt);
    checked = true;
  }
}

// A lane's life: parts, until there is none. `looking`: it has just ended one,
// and will take what that made ready. On a caller's thread only brief ones.
static void lane_main(void *runtime) {
  lane me = {0};
  for (at_part *p; (p = next_part(runtime, &me));) {
    if (!p->task->brief) at_fiber_leave_caller();
    me.looking = run_part(p);
  }
}

// Before the task is enqueued. Nothing is kept where it is not brief, or the
// caller is a fiber.
static void keep_lane(at_kept_lane *k, at_task *t) {
  *k = (at_kept_lane){0};
  if (!t->brief || at_in_fiber()) return;
  at_runtime *rt = k->runtime = t->loaded->runtime;
  atomic_store(&k->task, t);
  pthread_mutex_lock(&rt->lanes.lock);
  t->kept = k;
  pthread_mutex_unlock(&rt->lanes.lock);
}

// It is known where the task runs.
static bool is_decided(const at_kept_lane *k) {
  return atomic_load(&k->lanes) || !atomic_load(&k->task);
}

// For at_linger_for: a message of another process may decide.
static bool look_for_decision(void *arg) {
  const at_kept_lane *k = arg;
  const at_hosts *h = k->runtime->hosts;
  if (h && h->look) (void)h->look(h->arg);
  return is_decided(k);
}

// Until it is decided, for a moment.
static void await_decision(at_kept_lane *k) {
  at_runtime *rt = k->runtime;
  const at_hosts *h = rt->hosts;
  if (is_decided(k) ||
      at_linger_for(&rt->lanes.launchers, kKeptNs, look_for_decision, k))
    return;
  if (h && h->look) h->look_end(h->arg);
}

// After the task has been enqueued; it may be gone.
static void run_kept(at_kept_lane *k) {
  at_runtime *rt = k->runtime;
  if (!rt) return;
  await_decision(k);
  pthread_mutex_lock(&rt->lanes.lock);
  at_task *t = atomic_load(&k->task);
  if (t) let_go(t);
  const uint32_t n = atomic_load(&k->lanes);
  pthread_mutex_unlock(&rt->lanes.lock);
  if (!n) return;
  start_lanes(rt, n - 1);
  if (at_code_take(at_sched_spawn_here(rt->sched, lane_main, rt)))
    lane_main(rt);
}

void at_launch_enter(at_task *t, void (*enter)(void *arg, at_task *t),
                     void *arg) {
  at_kept_lane kept;
  keep_lane(&kept, t);
  enter(arg, t);
  run_kept(&kept);
}

// A lane that begins with a task's SparseCore work, and is an ordinary one
// then.
static void jobs_main(void *task) {
  at_runtime *rt = ((at_task *)task)->loaded->runtime;
  at_sparse_run_jobs(task);
  pthread_mutex_lock(&rt->lanes.lock);
  rt->lanes.sparse--;
  rt->lanes.heavy--;
  at_lanes_share(rt);
  pthread_mutex_unlock(&rt->lanes.lock);
  lane_main(rt);
}

// One lane more than there are cores is allowed for it: next_part lets the next
// idle one go.
void at_lane_for_jobs(at_task *t) {
  at_runtime *rt = t->loaded->runtime;
  pthread_mutex_lock(&rt->lanes.lock);
  rt->lanes.active++;
  rt->lanes.sparse++;
  rt->lanes.heavy++;
  at_lanes_share(rt);
  pthread_mutex_unlock(&rt->lanes.lock);
  if (at_code_take(at_sched_spawn(rt->sched, jobs_main, t))) jobs_main(t);
}

// This lane is about to wait for somebody outside of the runtime (a host
// callback): another one may take its core.
void at_lane_block(at_runtime *rt) {
  at_lanes *l = &rt->lanes;
  pthread_mutex_lock(&l->lock);
  AT_ASSERT(l->active > 0);
  l->active--;
  l->blocked++;
  at_lanes_share(rt);
  uint32_t n = l->head ? lanes_to_start(rt, false, 1) : 0;
  pthread_mutex_unlock(&l->lock);
  start_lanes(rt, n);
}

// And back.
void at_lane_unblock(at_runtime *rt) {
  pthread_mutex_lock(&rt->lanes.lock);
  AT_ASSERT(rt->lanes.blocked > 0);
  rt->lanes.active++;
  rt->lanes.blocked--;
  at_lanes_share(rt);
  pthread_mutex_unlock(&rt->lanes.lock);
}

// ---- The end of a launch
// A launch is announced after its chips have moved on: whoever waited for the
// last one finds them idle.
static void finish_task(at_task *t) {
  at_runtime *rt = t->loaded->runtime;
  uint32_t outputs = at_task_devices(t) * t->message->num_outputs;
  at_buffer **out = (at_buffer **)at_launch_outputs(t->message);
  at_status st = t->failed;
  t->failed = AT_OK;
  for (uint32_t i = 0; i < outputs; i++) {
    if (st.err) at_chip_free(out[i]->chip, out[i]);  // nobody will read these
    at_buffer_unhold(out[i]);
  }
  at_event_fire(t->done, st);
  at_event_release(t->done);
  atomic_fetch_sub(&rt->queued_bytes, t->bytes);
  at_loaded_release(t->loaded);
  at_task_free(t);
}

// Order matters: the part's memory is given back first, then the chip goes on,
// and whoever waits for the launch is told last.
static void end_part(at_part *p, at_status st) {
  at_task *t = p->task;
  at_chip *c = p->chip;
  if (!t->local) {  // this lane will take what this end makes ready
    pthread_mutex_lock(&c->runtime->lanes.lock);
    c->runtime->lanes.looking++;
    pthread_mutex_unlock(&c->runtime->lanes.lock);
  }
  if (st.err) at_task_fail(t, st);
  at_part_end(p);
  if (!t->local) {
    pthread_mutex_lock(&c->lock);
    AT_ASSERT(c->current == p);  // it had the turn
    c->current = NULL;
    pthread_mutex_unlock(&c->lock);
    atomic_fetch_sub(&c->depth, 1);
  }
  pthread_mutex_lock(&t->lock);
  p->state = AT_PART_DONE;
  bool last = ++t->finished == at_task_devices(t);
  AT_ASSERT(t->finished <= at_task_devices(t) && !p->cursor);
  bool local = t->local;
  pthread_mutex_unlock(&t->lock);
  if (local) return;
  at_chip_next_turn(c);
  at_chip_notify(c);
  if (last) finish_task(t);
}

// True: the part has ended.
static bool run_part(at_part *p) {
  at_task *t = p->task;
  bool waits = false;
  pthread_mutex_lock(&t->lock);
  at_status st = t->failed.err ? at_status_clone(t->failed) : AT_OK;
  p->state = AT_PART_RUNNING;
  pthread_mutex_unlock(&t->lock);
  if (!st.err && !p->cursor) st = at_part_begin(p);
  const uint64_t begin = t->loaded->learns ? at_clock_ns() : 0;
  if (!st.err) st = at_cursor_run(p->cursor, &waits);
  if (waits) return false;
  if (begin && !st.err) at_loaded_took(t->loaded, at_clock_ns() - begin);
  if (AT_UNLIKELY(st.err != NULL)) {
    at_task_fail(t, at_status_clone(st));
    if (!at_part_may_leave(p)) {  // comes back when it may
      at_status_free(st);
      return false;
    }
  }
  end_part(p, st);
  return true;
}

// All devices of a launch on the caller's thread: a part that stops at a
// collective lets the next one go on. A collective that nobody can complete is
// a deadlock, which fails the task.
void at_task_run_here(at_task *t) {
  for (uint32_t d = 0; d < at_task_devices(t); d++) {
    t->parts[d].next = d + 1 < at_task_devices(t) ? &t->parts[d + 1] : NULL;
    t->parts[d].state = AT_PART_READY;
  }
  t->ready_head = &t->parts[0];
  t->ready_tail = &t->parts[at_task_devices(t) - 1];
  while (t->finished < at_task_devices(t)) {
    at_part *p = t->ready_head;
    if (!p) {
      at_task_fail(t, at_task_deadlock(t));
      continue;
    }
    t->ready_head = p->next;
    if (!p->next) t->ready_tail = NULL;
    p->next = NULL;
    run_part(p);
  }
}

// ---- Arguments
static void ask_for_arguments(at_task *t);

// Called when an argument that was not there is.
static void argument_came(at_status st, void *arg) {
  at_status_free(st);  // read again with the others
  ask_for_arguments(arg);
}

// Those whose turn has come go; the others will when it does.
static void arguments_are_there(at_task *t) {
  pthread_mutex_lock(&t->lock);
  t->ready = true;
  at_part *first = t->heads;
  uint32_t count = 0;
  t->heads = NULL;
  for (at_part *p = first; p; p = p->next, count++) p->state = AT_PART_READY;
  pthread_mutex_unlock(&t->lock);
  at_parts_ready(t, first, count);
}

// Waits for one argument after the other, each by a callback, so no thread
// waits. Errors of arguments fail the task, but the others are waited for all
// the same: their memory is held.
static void ask_for_arguments(at_task *t) {
  uint64_t all = (uint64_t)at_task_devices(t) * t->message->num_inputs;
  at_buffer *const *args = (at_buffer *const *)at_launch_inputs(t->message);
  while (t->asked < all) {
    at_event *e = args[t->asked]->ready;
    if (!at_event_fired(e)) {
      at_status st = at_event_on(e, argument_came, t);
      if (!st.err) return;
      at_task_fail(t, st);
    } else {
      at_status st = at_event_status(e);
      if (st.err) at_task_fail(t, st);
    }
    t->asked++;
  }
  arguments_are_there(t);
}

// ---- Turns
// The chip has come to p. The first part of a task whose turn comes asks for
// the arguments of all.
static void turn_came(at_part *p) {
  at_task *t = p->task;
  if (at_spans_on()) p->turn_ns = at_clock_ns();
  pthread_mutex_lock(&t->lock);
  bool ready = t->ready, ask = !t->asking;
  t->asking = true;
  p->next = NULL;
  if (ready) {
    p->state = AT_PART_READY;
  } else {
    p->next = t->heads;
    t->heads = p;
  }
  pthread_mutex_unlock(&t->lock);
  if (ready)
    at_parts_ready(t, p, 1);
  else if (ask)
    ask_for_arguments(t);
}

// True: the caller has the chip's turn and must end it (at_chip_end_turn, or
// at_chip_next_turn).
bool at_chip_become_active(at_chip *c) {
  uint32_t idle = 0;
  return atomic_compare_exchange_strong(&c->active, &idle, 1);
}

// Only with the chip's turn: hands it to the next part, or lets it go.
void at_chip_next_turn(at_chip *c) {
  pthread_mutex_lock(&c->lock);
  at_part *p = c->head;
  if (p) {
    c->head = p->next;
    if (!c->head) c->tail = NULL;
  } else {
    atomic_store(&c->active, 0);
  }
  c->current = p;
  pthread_mutex_unlock(&c->lock);
  if (p) turn_came(p);
}

// Lets the turn go; a part that was queued meanwhile takes it.
void at_chip_end_turn(at_chip *c) {
  atomic_store(&c->active, 0);
  if (atomic_load(&c->depth) && at_chip_become_active(c)) at_chip_next_turn(c);
  at_chip_notify(c);
}

// Nothing runs and parts wait: what has just been queued behind them may be
// what they wait for. A lane looks.
static void look_for_deadlock(at_runtime *rt) {
  at_lanes *l = &rt->lanes;
  pthread_mutex_lock(&l->lock);
  bool quiet = l->active == 0 && l->blocked == 0;
  if (quiet) l->active = 1;
  l->again |= !quiet;  // the last lane may have looked just before
  pthread_mutex_unlock(&l->lock);
  if (quiet) start_lanes(rt, 1);
}

// Whoever finds the chip idle becomes its runner and hands out the turn.
void at_launch_enqueue(at_task *t, uint32_t device) {
  AT_ASSERT(device < at_task_devices(t));
  at_part *p = &t->parts[device];
  AT_ASSERT(p->task == t && p->state == AT_PART_QUEUED && !p->cursor);
  at_chip *c = p->chip;
  atomic_fetch_add(&c->depth, 1);
  pthread_mutex_lock(&c->lock);
  p->next = NULL;
  if (c->tail)
    c->tail->next = p;
  else
    c->head = p;
  c->tail = p;
  pthread_mutex_unlock(&c->lock);
  at_runtime *rt = c->runtime;  // the task may be gone once its last part is in
  if (at_chip_become_active(c))
    at_chip_next_turn(c);
  else if (AT_UNLIKELY(atomic_load(&rt->lanes.waiting)))
    look_for_deadlock(rt);
}

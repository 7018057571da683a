// Semaphores. A core that runs alone needs no lock, and a wait that is not
// satisfied at once never will be. Cores of a group share its lock; a waiting
// one parks its fiber. When every core waits or has ended, nobody can signal
// any more: that is a deadlock, and its message lists the waits.
#include <stdlib.h>

#include "base/strbuf.h"
#include "device/core_internal.h"

// Reads in a row, and the turns that each counts for once nobody signals.
enum { kPolls = 1 << 10, kTurnsOfARead = 1 << 10 };

// ---- Messages
// "core 1 waits for SEMAPHORE (value 0, needs 1) at PLACE". Under the lock in a
// group.
static void describe_wait(const core_state *c, const sem *s, int64_t amount,
                          int32_t loc, at_strbuf *out) {
  char place[512];
  at_strbuf_addf(out, "%s waits for ", core_who(c, place, sizeof place));
  core_name_sem(c, s, out);
  at_strbuf_addf(out, " (value %lld, needs %lld)", (long long)s->value,
                 (long long)amount);
  core_place(c, loc, place, sizeof place);
  if (*place) at_strbuf_addf(out, " at %s", place);
}

// loc: of one of the waits, which is of c.
static at_status deadlock(const core_state *c, const at_strbuf *waits,
                          int32_t loc) {
  char place[512];
  core_place(c, loc, place, sizeof place);
  return AT_FAIL(
      AT_FAILED_PRECONDITION,
      "kernel %s: deadlock: nobody is left who could signal\n"
      "detail: %s\n"
      "hint: each wait needs its signal or copy, of the same amount%s%s",
      core_name(c), waits->ptr ? waits->ptr : "?", *place ? "\nat: " : "",
      place);
}

// ---- Groups
// Under the lock. Wakes all that wait; they see `failed` and end.
void core_fail_group(at_core_group *g) {
  g->failed = true;
  for (core_state *p = g->first; p; p = p->next) {
    if (!p->wait_for) continue;
    p->wait_for = NULL;
    AT_ASSERT(g->waiting);
    g->waiting--;
    if (p->wake) at_event_fire(p->wake, AT_OK);
  }
}

// Under the lock: the last core that is named.
static const core_state *describe_waits(const at_core_group *g,
                                        at_strbuf *out) {
  const core_state *any = NULL;
  int shown = 0;
  for (const core_state *p = g->first; p; p = p->next) {
    if (!p->wait_for || shown == 16) continue;
    if (shown++) at_strbuf_addz(out, "; ");
    describe_wait(p, p->wait_for, p->wait_amount, p->wait_loc, out);
    any = p;
  }
  return any;
}

// Under the lock. Tells the other processes whether this one's cores all wait.
void core_set_idle(at_core_group *g, bool idle) {
  g->idle = idle;
  g->far->waits(g->far->arg, idle);
}

// While other processes may still signal, it is up to `far` what a wait is.
void core_look_for_deadlock(at_core_group *g) {
  if (!g->complete || g->failed || !g->waiting ||
      g->waiting + g->ended < g->cores)
    return;
  if (g->others) {
    core_set_idle(g, true);
    return;
  }
  at_strbuf b = {0};
  const core_state *any = describe_waits(g, &b);
  if (any) g->why = deadlock(any, &b, any->wait_loc);
  at_strbuf_free(&b);
  core_fail_group(g);
}

void at_core_group_print(at_core_group *g, at_strbuf *out) {
  pthread_mutex_lock(&g->lock);
  if (!describe_waits(g, out))
    at_strbuf_addz(out, "the kernels here have ended, those there have not");
  pthread_mutex_unlock(&g->lock);
}

void core_ended(core_state *c) {
  at_core_group *g = c->group;
  if (!g) return;
  core_debug_ended(c);
  pthread_mutex_lock(&g->lock);
  AT_ASSERT(!c->wait_for);
  g->ended++;
  g->changes++;
  AT_ASSERT(g->waiting + g->ended <= g->cores);
  if (c->status.err)
    core_fail_group(g);
  else
    core_look_for_deadlock(g);
  pthread_mutex_unlock(&g->lock);
}

// ---- Signals and waits
// Nothing to do for a core alone. Not recursive.
void core_lock(core_state *c) {
  AT_ASSERT(!c->locked);
  if (!c->group) return;
  pthread_mutex_lock(&c->group->lock);
  c->locked = true;
}

void core_unlock(core_state *c) {
  if (!c->group) return;
  AT_ASSERT(c->locked);
  c->locked = false;
  pthread_mutex_unlock(&c->group->lock);
}

// Under the lock. The semaphore's owner is woken if it waits for just this and
// now has enough.
void core_raise(at_core_group *g, core_state *to, sem *s, int64_t amount,
                int32_t loc) {
  s->value += amount;
  s->loc = loc;
  g->changes++;
  const bool wakes = to->wait_for == s && s->value >= to->wait_amount;
  if (g->idle) core_set_idle(g, !wakes);
  if (!wakes) return;
  AT_ASSERT(g->waiting);
  to->wait_for = NULL;
  g->waiting--;
  if (to->wake) at_event_fire(to->wake, AT_OK);
}

// A core alone can only signal itself.
void core_signal(core_state *from, core_state *to, sem *s, int64_t amount,
                 int32_t loc) {
  at_core_group *g = from->group;
  core_lock(from);
  if (from->shadow) core_shadow_signal(from, to, s);
  if (!g) {
    s->value += amount;
    s->loc = loc;
    return;
  }
  core_raise(g, to, s, amount, loc);
  core_unlock(from);
}

// Nobody else can signal: what is not there now never comes.
static void wait_alone(core_state *c, sem *s, int64_t amount, int32_t loc) {
  if (s->value >= amount) return;
  at_strbuf b = {0};
  describe_wait(c, s, amount, loc, &b);
  at_status st = deadlock(c, &b, loc);
  at_strbuf_free(&b);
  core_exit(c, st);
}

// Under the lock, which it gives up while the fiber waits. May wake without
// enough; the caller looks again.
static void park(core_state *c, sem *s, int64_t amount, int32_t loc) {
  at_core_group *g = c->group;
  AT_ASSERT(c->locked && !c->wait_for && s->value < amount);
  at_event *e = at_event_create();
  if (!e) core_stop(c, AT_RESOURCE_EXHAUSTED, loc, "no memory for an event");
  c->wait_for = s;
  c->wait_amount = amount;
  c->wait_loc = loc;
  c->wake = e;
  g->waiting++;
  AT_ASSERT(g->waiting + g->ended <= g->cores);
  core_look_for_deadlock(g);
  core_unlock(c);
  core_debug_leave(c);
  at_status_free(at_event_wait(e));
  core_debug_enter(c);
  core_lock(c);
  c->wake = NULL;
  at_event_release(e);
}

// In a group the first core that sees the failure takes its reason; the others
// are cancelled.
void core_wait(core_state *c, sem *s, int64_t amount, int32_t loc) {
  at_core_group *g = c->group;
  core_debug_waits(c, s, amount, loc);
  if (!g) {
    wait_alone(c, s, amount, loc);
  } else {
    core_lock(c);
    while (s->value < amount && !g->failed) park(c, s, amount, loc);
    if (g->failed) {
      at_status st = g->why;
      g->why = AT_OK;
      core_exit(c, st.err
                       ? st
                       : AT_FAIL(AT_CANCELLED, "kernel %s: another core failed",
                                 core_name(c)));
    }
  }
  AT_ASSERT(s->value >= amount && !c->wait_for);
  s->value -= amount;
  s->waited = loc + 1;
  if (g) g->changes++;
  if (c->shadow) core_shadow_wait(c, s, amount);
  core_unlock(c);
  core_debug_waits(c, NULL, 0, -1);
}

// p came from generated code, perhaps through an argument: must be one of c's
// semaphores, aligned.
static sem *checked(core_state *c, void *p, int32_t loc) {
  uint8_t *first = (uint8_t *)c->sems, *at = p;
  if (at < first || at >= first + sizeof(sem) * c->cap_sems ||
      (at - first) % sizeof(sem))
    core_stop(c, AT_INVALID_ARGUMENT, loc, "not a semaphore of this core");
  return p;
}

// A core of another process gets a message.
void at_core_sem_signal(at_core *core, void *p, int64_t amount, int32_t device,
                        int32_t core_id, int32_t subcore, int32_t owner,
                        int32_t loc) {
  core_state *c = state_of(core);
  if (core_is_elsewhere(c, device)) {
    far_core to = {device, core_id, subcore, owner};
    core_far_signal(c, to, checked(c, p, loc) - c->sems, amount, loc);
    return;
  }
  core_state *to = core_peer(c, device, core_id, subcore, owner, loc);
  size_t index = (size_t)(checked(c, p, loc) - c->sems);
  core_signal(c, to, to->sems + index, amount, loc);
}

// core_id is a subcore for vector subcores and a core for all others; p is this
// core's address of the word.
int32_t at_core_fetch_add(at_core *core, void *p, int32_t amount,
                          int32_t core_id, int32_t loc) {
  core_state *c = state_of(core);
  bool by_subcore = c->program->record->type == AT_CORE_SC_VECTOR;
  core_state *to =
      by_subcore ? core_peer(c, AT_CORE_SELF, AT_CORE_SELF, core_id, 0, loc)
                 : core_peer(c, AT_CORE_SELF, core_id, AT_CORE_SELF, 0, loc);
  int32_t *word = core_translate(c, to, p);
  if (!word)
    core_stop(c, AT_INVALID_ARGUMENT, loc, "core %d has no such memory",
              core_id);
  return __atomic_fetch_add(word, amount, __ATOMIC_SEQ_CST);
}

void at_core_sem_wait(at_core *core, void *p, int64_t amount, int32_t loc) {
  core_state *c = state_of(core);
  core_wait(c, checked(c, p, loc), amount, loc);
}

// Under the lock. Has this core read often since anything changed?
static bool is_polling(const core_state *c) {
  return !c->wait_for && c->polls_since == c->group->changes &&
         c->polls >= kPolls;
}

// Has every core that could signal read semaphores many times since one of them
// changed? Under the lock.
static bool all_poll(core_state *c) {
  at_core_group *g = c->group;
  if (c->polls_since != g->changes) c->polls = 0;
  c->polls_since = g->changes;
  if (++c->polls % kPolls || !g->complete || g->others) return false;
  uint32_t idle = g->waiting + g->ended;
  for (const core_state *p = g->first; p; p = p->next) idle += is_polling(p);
  return idle >= g->cores;
}

// A loop that reads a semaphore which nobody is left to signal has turns that
// count for many.
int32_t at_core_sem_read(at_core *core, void *p, int32_t loc) {
  core_state *c = state_of(core);
  at_core_group *g = c->group;
  sem *s = checked(c, p, loc);
  core_lock(c);
  int64_t v = s->value;
  uint64_t count = g ? (all_poll(c) ? kPolls : 0) : 1;
  core_unlock(c);
  core_debug_yield(c);
  uint64_t limit = c->launch->max_turns;
  if (count && limit) {  // instead of those that were granted and are left
    uint64_t granted = core->budget > 0 ? (uint64_t)core->budget : 0;
    c->turns = AT_MIN(c->turns - granted + count * kTurnsOfARead, limit);
    core->budget = 0;
  }
  return (int32_t)v;
}

void *at_core_sem_barrier(at_core *core, int32_t loc) {
  return state_of(core)->sems;
}

// Two semaphores take turns: nobody can be two barriers ahead of another.
void at_core_barrier(at_core *core, int32_t barrier, int32_t loc) {
  core_state *c = state_of(core);
  size_t mine = kBarrierSems + (c->barriers++ & 1);
  int64_t others = 0;
  for (uint32_t i = 0; i < c->team.num; i++) {
    core_state *p = &c->team.cores[i];
    if (p == c || p->head.core_index != c->head.core_index ||
        p->program_index != c->program_index)
      continue;
    core_signal(c, p, p->sems + mine, 1, loc);
    others++;
  }
  core_wait(c, c->sems + mine, others, loc);
}

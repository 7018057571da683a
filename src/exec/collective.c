// Meetings: where the devices of a launch wait for each other. The last of a
// group to arrive moves the bytes of all (exchange.c) and makes the others
// ready. Who waits for what can never come is found when nothing runs any more.
#include <stdlib.h>

#include "base/clock.h"
#include "exec/exec_internal.h"

// A launch whose devices work longer than this between meetings is worth more
// lanes than one.
enum { kHeavyNs = 30000, kMembersOnStack = 64, kReported = 8 };
// Meetings over which that time is averaged: those of asynchronous collectives
// come in bunches, and a short while says nothing of the work after it.
enum { kPaceMeetings = 8 };

// partition_id and replica_id are written without meeting anybody.
static at_status write_id(at_cursor *c, const at_op *op, uint32_t place) {
  const at_xheader *h = c->frame.loaded->header;
  const at_coll *k = &c->frame.loaded->colls[op->target];
  uint32_t device = at_device_number(c->frame.loaded, place);
  uint32_t id = k->x->kind == AT_COLL_PARTITION_ID ? device % h->num_partitions
                                                   : device / h->num_partitions;
  memcpy(c->frame.bufs[op->args], &id, sizeof id);
  return AT_OK;
}

// A device outside every group receives nothing.
static void write_zeros(at_cursor *c, const at_op *op, const at_coll *k) {
  for (uint32_t v = 0; v < k->x->num_values; v++)
    memset(c->frame.bufs[op->args + k->x->num_values + v], 0,
           k->values[v].result_bytes);
}

// Collects the buffers of all members and moves the bytes; in the last member's
// call, while the others stand still.
at_status at_coll_run(at_cursor *c, const at_op *op, at_pool *pool) {
  const at_coll *k = &c->frame.loaded->colls[op->target];
  uint32_t device = at_cursor_place(c);
  uint32_t begin = k->begin_of[device], size = k->size_of[device];
  if (op->kind == AT_STEP_CORE) return at_core_group_run(c->part->task, op);
  if (k->whole && !k->sparse) return at_far_run(c, op, pool);
  void *const *few[kMembersOnStack], *const **bufs = few;
  if (size > kMembersOnStack) {
    bufs = malloc(size * sizeof *bufs);
    if (!bufs)
      return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a collective");
  }
  for (uint32_t i = 0; i < size; i++) {
    const at_cursor *m =
        size > 1 ? c->part->task->parts[k->members[begin + i]].cursor : c;
    bufs[i] = m->frame.bufs + op->args;
  }
  at_status st = k->sparse ? at_sparse_run(c, op, bufs, pool)
                           : at_exchange(k, bufs, begin, size, pool);
  if (bufs != few) free(bufs);
  return st;
}

// Under the task's lock: has everybody come? Else this one waits.
static bool arrive(at_part *p, const at_op *op, const at_coll *k,
                   uint32_t begin, uint32_t size) {
  at_task *t = p->task;
  uint32_t *arrived = &t->meetings[k->meetings + k->group_of[p->device]];
  if (++*arrived < size) {
    p->state = AT_PART_WAITING;
    p->stop = op;
    return false;
  }
  AT_ASSERT(*arrived == size);
  *arrived = 0;
  for (uint32_t i = 0; i < size; i++) {
    at_part *o = &t->parts[k->members[begin + i]];
    AT_ASSERT(o == p ? o->state == AT_PART_RUNNING
                     : o->state == AT_PART_WAITING && o->stop == op);
    o->state = AT_PART_MEETING;
  }
  return true;
}

// Under the task's lock, when bytes have moved: how long devices work between
// meetings says how many lanes they are worth.
static void note_meeting(at_task *t, uint32_t size) {
  if (t->local) return;
  uint64_t now = at_clock_ns(), before = t->met_ns;
  t->met_ns = now;
  if (!before) return;
  uint64_t each = (now - before) / size;
  t->pace_ns = (each + (kPaceMeetings - 1) * t->pace_ns) / kPaceMeetings;
  atomic_store(&t->heavy, t->pace_ns > kHeavyNs);
}

// The others of the group may go on.
static void release(at_part *p, const at_coll *k, uint32_t begin,
                    uint32_t size) {
  at_task *t = p->task;
  at_part *first = NULL, **end = &first;
  pthread_mutex_lock(&t->lock);
  note_meeting(t, size);
  for (uint32_t i = 0; i < size; i++) {
    at_part *o = &t->parts[k->members[begin + i]];
    AT_ASSERT(o->state == AT_PART_MEETING);
    o->state = o == p ? AT_PART_RUNNING : AT_PART_READY;
    if (o == p) continue;
    *end = o;
    end = &o->next;
  }
  *end = NULL;
  pthread_mutex_unlock(&t->lock);
  atomic_fetch_sub(&t->loaded->runtime->lanes.waiting, size - 1);
  at_parts_ready(t, first, size - 1);
}

// Before the cursor returns `st`: the others of the group go on.
static void fail_at(const at_cursor *c, const at_op *op, at_status st) {
  at_task_fail(c->part->task, at_op_blame(&c->frame, op, at_status_clone(st)));
}

// A device comes to a collective. *waits: it has to stop here; the last of its
// group makes it ready again. Else the bytes have moved, or st says why not,
// and all of the group go on either way: those that follow find the task
// failed.
at_status at_meet(at_cursor *c, const at_op *op, bool *waits) {
  const at_coll *k = &c->frame.loaded->colls[op->target];
  at_part *p = c->part;
  uint32_t device = at_cursor_place(c);
  if (k->x->kind == AT_COLL_PARTITION_ID || k->x->kind == AT_COLL_REPLICA_ID)
    return write_id(c, op, device);
  if (k->group_of[device] == UINT32_MAX) return write_zeros(c, op, k), AT_OK;
  uint32_t begin = k->begin_of[device], size = k->size_of[device];
  at_pool *pool = c->frame.chip->runtime->pool;
  if (size == 1) return at_coll_run(c, op, pool);
  at_task *t = p->task;
  // Counted before others can see the part wait, and take it back.
  atomic_fetch_add(&t->loaded->runtime->lanes.waiting, 1);
  pthread_mutex_lock(&t->lock);
  at_status st = t->failed.err ? at_status_clone(t->failed) : AT_OK;
  bool all = !st.err && arrive(p, op, k, begin, size);
  *waits = !st.err && !all;
  pthread_mutex_unlock(&t->lock);
  if (*waits) return AT_OK;
  atomic_fetch_sub(&t->loaded->runtime->lanes.waiting, 1);
  if (st.err) return st;
  st = at_coll_run(c, op, pool);
  if (st.err) fail_at(c, op, st);
  release(p, k, begin, size);
  return st;
}

// ---- Start and done
// A device without others in its group has nothing to wait for.
static bool meets_nobody(const at_coll *k, uint32_t device) {
  return k->group_of[device] == UINT32_MAX || k->size_of[device] == 1;
}

// While other lanes work, one thread moves the bytes: helpers would only take
// their cores.
static at_pool *pool_beside_lanes(at_runtime *rt) {
  pthread_mutex_lock(&rt->lanes.lock);
  bool full = rt->lanes.active >= rt->lanes.most && !rt->lanes.looking;
  pthread_mutex_unlock(&rt->lanes.lock);
  return full ? rt->serial : rt->pool;
}

// Under the task's lock: a device passes a START. True: all of its group have.
bool at_start_arrive(at_part *p, const at_coll *k) {
  at_task *t = p->task;
  uint32_t *arrived = &t->meetings[k->meetings + k->group_of[p->device]];
  t->meetings[k->started + p->device]++;
  if (++*arrived < k->size_of[p->device]) return false;
  AT_ASSERT(*arrived == k->size_of[p->device]);
  *arrived = 0;
  t->moving++;
  return true;
}

// The bytes of a START have moved: parts that stop at its DONE are ready, and
// failed parts that had to stay for the transfer may leave.
void at_release_started(at_part *p, const at_op *op, bool *more) {
  at_task *t = p->task;
  const at_coll *k = &t->loaded->colls[op->target];
  uint32_t begin = k->begin_of[p->device], size = k->size_of[p->device];
  uint32_t waited = 0, count = 0;
  at_part *first = NULL;
  pthread_mutex_lock(&t->lock);
  note_meeting(t, size);
  t->meetings[k->moved + k->group_of[p->device]]++;
  for (uint32_t i = 0; i < size; i++) {
    at_part *o = &t->parts[k->members[begin + i]];
    if (o->state != AT_PART_WAITING || o->stop->kind != AT_STEP_DONE ||
        o->stop->target != op->target)
      continue;
    o->state = AT_PART_READY;
    o->next = first;
    first = o;
    waited++;
  }
  count = waited;
  AT_ASSERT(t->moving > 0);
  if (!--t->moving)
    for (at_part *o = t->leaving, *next; o; o = next, count++) {
      next = o->next;
      o->state = AT_PART_READY;
      o->next = first;
      first = o;
    }
  if (!t->moving) t->leaving = NULL;
  if (more) *more = t->jobs_run = t->num_jobs > 0;
  pthread_mutex_unlock(&t->lock);
  if (waited) atomic_fetch_sub(&t->loaded->runtime->lanes.waiting, waited);
  at_parts_ready(t, first, count);
}

// Does other work stand in line?
static bool others_wait(const at_task *t) {
  if (t->local) return t->ready_head != NULL;
  at_lanes *l = &t->loaded->runtime->lanes;
  pthread_mutex_lock(&l->lock);
  bool any = l->head != NULL;
  pthread_mutex_unlock(&l->lock);
  return any;
}

// A device that has passed its START lets those go first that have not: what
// comes next here is what all of them hide the transfer behind.
static void step_back(at_cursor *c, const at_op *op, bool *waits) {
  at_part *p = c->part;
  at_task *t = p->task;
  if (!atomic_load(&t->heavy) || !others_wait(t)) return;
  if (c->stopped_at) at_op_record(&c->frame, op, c->arrived_ns);
  c->stopped_at = NULL;
  pthread_mutex_lock(&t->lock);
  p->state = AT_PART_READY;
  pthread_mutex_unlock(&t->lock);
  p->next = NULL;
  *waits = true;
  at_parts_ready(t, p, 1);
}

// A device passes a START. The last of the group moves the bytes; the others
// have gone on meanwhile.
at_status at_meet_start(at_cursor *c, const at_op *op, bool *waits) {
  const at_coll *k = &c->frame.loaded->colls[op->target];
  at_runtime *rt = c->frame.chip->runtime;
  at_part *p = c->part;
  uint32_t device = at_cursor_place(c);
  if (at_sparse_is_beside(c, op)) return at_sparse_start(c, op);
  if (k->group_of[device] == UINT32_MAX) return write_zeros(c, op, k), AT_OK;
  if (k->size_of[device] == 1) return at_coll_run(c, op, rt->pool);
  at_task *t = p->task;
  bool all = false;
  pthread_mutex_lock(&t->lock);
  at_status st = t->failed.err ? at_status_clone(t->failed) : AT_OK;
  if (!st.err) all = at_start_arrive(p, k);
  pthread_mutex_unlock(&t->lock);
  if (!all) {
    if (!st.err) step_back(c, op, waits);
    return st;
  }
  st = at_coll_run(c, op, pool_beside_lanes(rt));
  if (st.err) fail_at(c, op, st);
  at_release_started(p, op, NULL);
  return st;
}

// Under the task's lock: are the bytes of the device's last START there?
static bool has_moved(const at_task *t, const at_coll *k, uint32_t device) {
  return t->meetings[k->moved + k->group_of[device]] ==
         t->meetings[k->started + device];
}

// A device needs the results of its last START.
at_status at_meet_done(at_cursor *c, const at_op *op, bool *waits) {
  const at_coll *k = &c->frame.loaded->colls[op->target];
  at_part *p = c->part;
  if (!at_sparse_is_beside(c, op) && meets_nobody(k, at_cursor_place(c)))
    return AT_OK;
  at_task *t = p->task;
  atomic_fetch_add(&t->loaded->runtime->lanes.waiting, 1);
  pthread_mutex_lock(&t->lock);
  at_status st = t->failed.err ? at_status_clone(t->failed) : AT_OK;
  *waits = !st.err && !has_moved(t, k, p->device);
  if (*waits) p->state = AT_PART_WAITING, p->stop = op;
  pthread_mutex_unlock(&t->lock);
  if (!*waits) atomic_fetch_sub(&t->loaded->runtime->lanes.waiting, 1);
  return st;
}

// False: the part is in t->leaving, MEETING, until no transfer uses buffers of
// the launch.
bool at_part_may_leave(at_part *p) {
  at_task *t = p->task;
  pthread_mutex_lock(&t->lock);
  bool may = t->moving == 0;
  if (!may) {
    p->state = AT_PART_MEETING;
    p->next = t->leaving;
    t->leaving = p;
  }
  pthread_mutex_unlock(&t->lock);
  return may;
}

// ---- Deadlocks
// A part is stuck while some member that it waits for can never come: it has
// ended, waits elsewhere and is stuck itself, or is queued behind a stuck part.
// So is a part whose turn has come and whose arguments are of a launch that
// never ends. Starting from "all that wait are stuck", parts that are not are
// taken out until nothing changes; what remains is stuck for ever.
typedef struct search {
  at_part **parts;  // that wait
  at_task *
      *makes;  // whose arguments a part waits for; NULL: it waits for others
  uint32_t count;
  bool *stuck;
} search;

// As far as the search knows now.
static bool is_stuck(const search *s, const at_part *p) {
  for (uint32_t i = 0; i < s->count; i++)
    if (s->parts[i] == p) return s->stuck[i];
  return false;
}

// The collective that a WAITING part stands at.
static const at_coll *stop_of(const at_part *p) {
  return &p->task->loaded->colls[p->stop->target];
}

// Waits and is stuck, or stands in a queue behind a stuck part.
static bool never_goes_on(const search *s, const at_part *m) {
  if (m->state == AT_PART_WAITING) return is_stuck(s, m);
  const at_part *turn = m->chip->current;
  return m->state == AT_PART_QUEUED && turn && is_stuck(s, turn);
}

// A part that has ended will not arrive at a collective any more.
static bool never_comes(const search *s, const at_part *m) {
  return m->state == AT_PART_DONE || never_goes_on(s, m);
}

// The part whose end would give part i of the search its arguments; NULL: all
// may end.
static const at_part *unmade_for(const search *s, uint32_t i) {
  at_task *t = s->makes[i];
  for (uint32_t d = 0; d < at_task_devices(t); d++)
    if (never_goes_on(s, &t->parts[d])) return &t->parts[d];
  return NULL;
}

// A part that part i of the search waits for in vain; NULL: none.
static const at_part *missed_by(const search *s, uint32_t at) {
  const at_part *p = s->parts[at];
  if (s->makes[at]) return unmade_for(s, at);
  const at_coll *k = stop_of(p);
  for (uint32_t i = 0; i < k->size_of[p->device]; i++) {
    const at_part *m = &p->task->parts[k->members[k->begin_of[p->device] + i]];
    bool here = m->state == AT_PART_WAITING && m->stop == p->stop;
    if (p->stop->kind == AT_STEP_DONE)
      here = p->task->meetings[k->started + m->device] ==
             p->task->meetings[k->started + p->device];
    if (!here && never_comes(s, m)) return m;
  }
  return NULL;
}

// Greatest fixed point: begins with all stuck. Quadratic in the parts that
// wait, which are at most one for each chip.
static uint32_t find_stuck(search *s) {
  uint32_t left = s->count;
  for (uint32_t i = 0; i < s->count; i++) s->stuck[i] = true;
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t i = 0; i < s->count; i++) {
      if (!s->stuck[i] || missed_by(s, i)) continue;
      s->stuck[i] = false;
      changed = true;
      left--;
    }
  }
  return left;
}

// One line of the report of a deadlock.
static void print_launch(const at_part *p, at_strbuf *b) {
  const at_loaded *l = p->task->loaded;
  at_strbuf_addf(b, " launch %lld (%s)", (long long)p->task->message->launch_id,
                 at_loaded_string(l, l->header->name));
}

// "chip 3 waits in all_reduce.7 (f.py:12) of launch 5 (f)".
static void print_stop(const at_part *p, at_strbuf *b) {
  const at_loaded *l = p->task->loaded;
  const at_xstep *steps =
      (const void *)(l->block + l->header->sections[AT_XS_STEPS].offset);
  const at_xstep *s = &steps[p->stop - l->ops];
  if (s->kind == AT_STEP_DONE) s -= s->tasks;  // name what it waits for
  const char *file = at_loaded_string(l, s->file);
  at_strbuf_addf(b, "chip %u waits in %s", p->chip->info.id,
                 at_loaded_string(l, s->hlo));
  if (*file) at_strbuf_addf(b, " (%s:%u)", file, s->line);
  at_strbuf_addz(b, " of");
  print_launch(p, b);
}

// For whom part i waits, and why that one does not come.
static void print_missing(const search *s, uint32_t i, at_strbuf *b) {
  const at_part *m = missed_by(s, i);
  if (!m) return;
  at_strbuf_addf(b, " for chip %u", m->chip->info.id);
  if (m->state == AT_PART_DONE) {
    at_strbuf_addz(b, ", which has ended the program");
  } else if (m->state == AT_PART_WAITING) {
    at_strbuf_addz(b, ", which waits elsewhere");
  } else {
    at_strbuf_addz(b, ", which is in");
    print_launch(m->chip->current, b);
    at_strbuf_addz(b, " before");
  }
}

// ABORTED with up to kReported of the stuck parts.
static at_status describe(const search *s) {
  at_strbuf b = {0};
  uint32_t shown = 0, stuck = 0;
  at_strbuf_addz(&b, "deadlock: collectives wait for each other\ndetail: ");
  for (uint32_t i = 0; i < s->count; i++) {
    if (!s->stuck[i] || stuck++ >= kReported) continue;
    if (shown++) at_strbuf_addz(&b, "\n  ");
    if (s->makes[i]) {
      at_strbuf_addf(&b, "chip %u waits for arguments of",
                     s->parts[i]->chip->info.id);
      print_launch(s->parts[i], &b);
    } else {
      print_stop(s->parts[i], &b);
    }
    print_missing(s, i, &b);
  }
  if (stuck > shown) at_strbuf_addf(&b, "\n  and %u more", stuck - shown);
  at_strbuf_addz(&b,
                 "\nhint: every device of a group must reach the same "
                 "collectives in the same order; launches of several chips go "
                 "through one scheduler");
  at_status st = at_strbuf_status(&b);
  if (!st.err) st = AT_FAIL(AT_ABORTED, "%s", b.ptr);
  at_strbuf_free(&b);
  return st;
}

// False: no memory. search_end frees what was made either way.
static bool search_start(search *s, uint32_t most) {
  s->parts = calloc(most, sizeof *s->parts);
  s->makes = calloc(most, sizeof *s->makes);
  s->stuck = calloc(most, sizeof *s->stuck);
  s->count = 0;
  return s->parts && s->makes && s->stuck;
}
// Frees the tables of the search, not the parts.
static void search_end(search *s) {
  free(s->parts);
  free(s->makes);
  free(s->stuck);
}

// The launch that fires `e` at its end, among those with parts on chip c.
static at_task *maker_on(at_chip *c, const at_event *e) {
  at_task *found = NULL;
  pthread_mutex_lock(&c->lock);
  if (c->current && c->current->task->done == e) found = c->current->task;
  for (at_part *p = c->head; p && !found; p = p->next)
    if (p->task->done == e) found = p->task;
  pthread_mutex_unlock(&c->lock);
  return found;
}

// The launch that makes what a part waits for whose turn has come; NULL: none
// here (the host may bring it).
static at_task *maker_for(at_runtime *rt, const at_part *p) {
  at_launch_message *m = p->task->message;
  uint64_t all = (uint64_t)m->num_devices * m->num_inputs;
  uint64_t asked = atomic_load(&p->task->asked);
  if (asked >= all) return NULL;
  at_buffer *const *args = (at_buffer *const *)at_launch_inputs(m);
  for (at_chip *c = NULL; (c = at_runtime_next_chip(rt, c));) {
    at_task *t = maker_on(c, args[asked]->ready);
    if (t) return t;
  }
  return NULL;
}

// Collects the current parts of all chips that wait, finds those that never go
// on, and fails the launch of one.
void at_deadlock_check(at_runtime *rt) {
  search s;
  at_status st = AT_OK;
  // A view that comes while this looks has nothing to wait for yet.
  uint32_t most = rt->num_chips + atomic_load(&rt->num_views);
  if (!search_start(&s, most)) goto out;
  for (at_chip *c = NULL;
       s.count < most && (c = at_runtime_next_chip(rt, c));) {
    pthread_mutex_lock(&c->lock);
    at_part *p = c->current;
    bool meets = p && p->cursor && p->state == AT_PART_WAITING;
    bool asks = p && p->state == AT_PART_QUEUED;
    pthread_mutex_unlock(&c->lock);
    at_task *makes = asks ? maker_for(rt, p) : NULL;
    if (!meets && !makes) continue;
    s.makes[s.count] = makes;
    s.parts[s.count++] = p;
  }
  if (!find_stuck(&s)) goto out;
  st = describe(&s);
  // One launch fails; the others may go on then, and are looked at again if
  // they do not.
  uint32_t victim = 0;
  while (victim < s.count && (!s.stuck[victim] || s.makes[victim])) victim++;
  if (victim == s.count) goto out;
  at_task_fail(s.parts[victim]->task, at_status_clone(st));
out:
  at_status_free(st);
  search_end(&s);
}

// Parts are this task's alone, so nothing else can help them.
at_status at_task_deadlock(at_task *t) {
  search s;
  at_status st =
      AT_FAIL(AT_ABORTED, "deadlock: collectives wait for each other");
  if (search_start(&s, at_task_devices(t))) {
    for (uint32_t d = 0; d < at_task_devices(t); d++)
      if (t->parts[d].state == AT_PART_WAITING)
        s.parts[s.count++] = &t->parts[d];
    if (find_stuck(&s)) {
      at_status_free(st);
      st = describe(&s);
    }
  }
  search_end(&s);
  return st;
}

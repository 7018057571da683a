// Pallas kernels that talk to each other: a step that all devices of a launch
// reach before any of them starts. Whoever comes last starts the kernel of
// every device on a fiber and waits for all of them.
#include <stdlib.h>

#include "exec/exec_internal.h"

typedef struct team {
  at_task *task;
  const at_op *op;
  at_core_group *group;
  at_event *done;
  _Atomic uint32_t running;
} team;

typedef struct member {
  team *team;
  uint32_t device;
  at_status status;
} member;

// On its fiber: the kernel of one device. The last to end fires `done`.
static void run_member(void *arg) {
  member *m = arg;
  team *t = m->team;
  const at_cursor *c = t->task->parts[m->device].cursor;
  // Its own list of scratch: the launch's frame belongs to a waiting cursor.
  at_frame own = c->frame;
  own.scratch = NULL;
  at_par par = {own.pool, at_frame_take_scratch, &own};
  at_core_launch launch = at_core_launch_make(&own, t->op, &par);
  launch.group = t->group;
  if (own.loaded->far) launch.checks &= AT_CORE_FAR_CHECKS;
  m->status = at_core_run(&launch);
  at_frame_give_scratch(&own);
  if (atomic_fetch_sub(&t->running, 1) == 1) at_event_fire(t->done, AT_OK);
}

// The error that says most: not "it failed on another device".
static at_status collect(member *members, uint32_t n) {
  at_status st = AT_OK;
  for (uint32_t pass = 0; pass < 2; pass++) {
    for (uint32_t d = 0; d < n; d++) {
      at_status *s = &members[d].status;
      if (!s->err || (!pass && at_status_code(*s) == AT_CANCELLED)) continue;
      if (st.err)
        at_status_free(*s);
      else
        st = *s;
      *s = AT_OK;
    }
  }
  return st;
}

// Starts a fiber for each device and waits for all. A device without a fiber
// fails the group, so that the others do not wait for it.
static at_status run_all(team *t, member *members, uint32_t n) {
  const at_runtime *rt = t->task->loaded->runtime;
  atomic_store(&t->running, n);
  for (uint32_t d = 0; d < n; d++) {
    members[d] = (member){.team = t, .device = d};
    at_status st = at_sched_spawn(rt->sched, run_member, &members[d]);
    if (!st.err) continue;
    // A device without a fiber would be waited for: the group gives up.
    members[d].status = st;
    at_core_group_give_up(t->group);
    if (atomic_fetch_sub(&t->running, 1) == 1) at_event_fire(t->done, AT_OK);
  }
  at_status_free(at_event_wait(t->done));
  return collect(members, n);
}

// All devices are of this process.
static at_status run_here(team *t, member *members, uint32_t n) {
  AT_TRY(at_core_group_create(n, NULL, &t->group));
  return run_all(t, members, n);
}

// Other launches may need the lane while this one waits for other hosts.
static at_status run_far(team *t, member *members, uint32_t n) {
  at_runtime *rt = t->task->loaded->runtime;
  at_core_line line;
  at_core_line_init(&line, t->task, t->op);
  AT_TRY(at_core_group_create(n, &line.face, &t->group));
  line.group = t->group;
  at_lane_block(rt);
  at_status st = run_all(t, members, n);
  at_lane_unblock(rt);
  at_core_line_close(&line);
  at_status why = at_core_group_failure(t->group);
  bool says_more = why.err && (!st.err || at_status_code(st) == AT_CANCELLED);
  at_status_free(says_more ? st : why);
  return says_more ? why : st;
}

// On the lane of the device that came last; the others' cursors stand still.
at_status at_core_group_run(at_task *task, const at_op *op) {
  uint32_t n = at_task_devices(task);
  team t = {.task = task, .op = op, .done = at_event_create()};
  member *members = calloc(n, sizeof *members);
  at_status st = AT_OK;
  if (!t.done || !members)
    st = AT_FAIL(AT_RESOURCE_EXHAUSTED,
                 "no memory for the kernels of %u devices", n);
  else if (task->loaded->far)
    st = run_far(&t, members, n);
  else
    st = run_here(&t, members, n);
  at_core_group_destroy(t.group);
  at_event_release(t.done);
  free(members);
  return st;
}

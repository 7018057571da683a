// SparseCore steps. A plain one runs where the last device comes to it. One
// with a START goes into its launch's queue: a lane of its own works that off,
// in order, while the devices go on to the DONE.
#include "base/config.h"
#include "exec/exec_internal.h"
#include "profile/profile.h"

// A line of the profile for each SparseCore of each device.
static void record_cores(const at_cursor *c, const at_op *op,
                         const at_sc_times *times) {
  const at_coll *k = &c->frame.loaded->colls[op->target];
  uint32_t device = c->part ? c->part->device : 0;
  for (uint32_t i = 0; i < times->count; i++) {
    const at_sc_time *t = &times->list[i];
    uint32_t scs = AT_MAX(times->scs, 1u);
    if (!t->end_ns || i / scs >= k->size_of[device]) continue;
    uint32_t member = k->members[k->begin_of[device] + i / scs];
    const at_chip *chip =
        c->part ? c->part->task->parts[member].chip : c->frame.chip;
    at_profile_event e = {.start_ns = t->begin_ns,
                          .end_ns = t->end_ns,
                          .kind = AT_PROFILE_SPARSE,
                          .chip = chip->info.id,
                          .core = i % scs};
    at_op_record_event(&c->frame, op, &e);
  }
}

// One step of the engine over the group's buffers; with other hosts through
// at_far_call.
at_status at_sparse_run(at_cursor *c, const at_op *op, void *const *const *bufs,
                        at_pool *pool) {
  at_frame *f = &c->frame;
  const at_coll *k = &f->loaded->colls[op->target];
  at_sc_times times = {.count = AT_SC_MAX_PER_DEVICE * k->x->num_devices};
  at_par par = {pool, at_frame_take_scratch, f};
  at_sc_run run = {.x = k->sparse,
                   .kernels = k->kernels,
                   .name = at_loaded_string(f->loaded, k->sparse->name),
                   .dump = k->sparse->checks & AT_SPARSE_CHECK_DUMP
                               ? at_loaded_string(f->loaded, k->sparse->dump)
                               : NULL,
                   .bufs = bufs,
                   .par = &par};
  at_far_call call;
  at_sc_hosts hosts;
  if (k->whole) {
    AT_TRY(at_far_call_begin(c, op, &call, &hosts));
    run.hosts = &hosts;
  }
  if (f->recorded)
    times.list = at_par_scratch(&par, times.count * sizeof *times.list);
  for (uint32_t i = 0; times.list && i < times.count; i++)
    times.list[i] = (at_sc_time){UINT64_MAX, 0};
  if (times.list) run.times = &times;
  at_status st = at_sc_run_step(&run);
  if (k->whole) at_far_call_end(&call);
  if (times.list) record_cores(c, op, &times);
  at_frame_give_scratch(f);
  return st;
}

// ---- Threads
// Splits the threads between SparseCore lookups and the rest of the program
// while both run; when only one does, it gets all of them. The caller holds the
// lanes' lock.
void at_lanes_share(at_runtime *rt) {
  const at_lanes *l = &rt->lanes;
  if (!rt->beside) return;
  uint32_t all = l->most, sparse = all, rest = all;
  if (l->sparse && l->active > l->sparse) {
    uint64_t want = at_config_uint(AT_CONFIG_SPARSE_THREADS);
    sparse = want ? (uint32_t)AT_MIN(want, (uint64_t)all) : (all + 1) / 2;
    sparse = AT_MAX(AT_MIN(sparse, all - 1), 1u);
    rest = all - AT_MIN(sparse, all - 1);
  }
  at_pool_limit(rt->beside, sparse);
  at_pool_limit(rt->pool, rest);
}

// ---- The queue of a launch
bool at_sparse_is_beside(const at_cursor *c, const at_op *op) {
  return c->part && !c->part->task->local &&
         (op->kind == AT_STEP_START || op->kind == AT_STEP_DONE) &&
         c->frame.loaded->colls[op->target].sparse;
}

// The oldest. *failed: the launch has failed, so the job is only counted.
static at_sparse_job take_job(at_task *t, bool *failed) {
  pthread_mutex_lock(&t->lock);
  at_sparse_job j = t->jobs[t->first_job];
  t->first_job = (t->first_job + 1) % t->loaded->num_beside;
  t->num_jobs--;
  *failed = t->failed.err != NULL;
  pthread_mutex_unlock(&t->lock);
  return j;
}

// The device that came last lends its tables; it goes on meanwhile, so that
// only what never changes is read of it. Scratch memory and threads are the
// SparseCores' own.
static at_status run_job(const at_sparse_job *j) {
  const at_frame *f = &j->part->cursor->frame;
  at_cursor c = {.frame = {.loaded = f->loaded,
                           .chip = f->chip,
                           .pool = f->chip->runtime->beside,
                           .bufs = f->bufs,
                           .launch_id = f->launch_id,
                           .device = f->device,
                           .recorded = f->recorded,
                           .in_lane = true},
                 .part = j->part};
  at_status st = at_coll_run(&c, j->op, c.frame.pool);
  return st.err ? at_op_blame(&c.frame, j->op, st) : st;
}

// at_release_started tells under the task's lock whether there is another: t
// may be gone after the last.
void at_sparse_run_jobs(at_task *t) {
  for (bool more = true; more;) {
    bool failed;
    at_sparse_job j = take_job(t, &failed);
    at_status st = failed ? AT_OK : run_job(&j);
    if (st.err) at_task_fail(t, st);
    at_release_started(j.part, j.op, &more);
  }
}

// The last device of the group queues the job; a lane starts unless one works
// the queue off already.
at_status at_sparse_start(at_cursor *c, const at_op *op) {
  const at_coll *k = &c->frame.loaded->colls[op->target];
  at_part *p = c->part;
  at_task *t = p->task;
  bool begin = false;
  pthread_mutex_lock(&t->lock);
  at_status st = t->failed.err ? at_status_clone(t->failed) : AT_OK;
  if (!st.err && at_start_arrive(p, k)) {
    uint32_t last = t->first_job + t->num_jobs++;
    t->jobs[last % t->loaded->num_beside] = (at_sparse_job){op, p};
    begin = !t->jobs_run;
    t->jobs_run = true;
  }
  pthread_mutex_unlock(&t->lock);
  if (begin) at_lane_for_jobs(t);
  return st;
}

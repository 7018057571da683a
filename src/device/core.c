// Launching a kernel: how many cores run it, which of them may run on which
// thread, and what is left of them at the end.
#include "device/core.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/config.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "device/core_internal.h"
#include "profile/profile.h"

enum { kMaxCores = 4096, kChunksPerThread = 4 };

uint32_t at_core_checks_wanted(void) {
  static const struct {
    at_word word;
    uint32_t bit;
  } words[] = {{AT_WORD_CHECK_RACES, AT_CHECK_RACES},
               {AT_WORD_CHECK_BOUNDS, AT_CHECK_BOUNDS},
               {AT_WORD_CHECK_UNINIT, AT_CHECK_UNINIT},
               {AT_WORD_CHECK_NAN, AT_CHECK_NAN},
               {AT_WORD_CHECK_DEADLOCK, AT_CHECK_DEADLOCK},
               {AT_WORD_CHECK_LIMITS, AT_CHECK_LIMITS}};
  uint32_t bits = 0;
  for (size_t i = 0; i < AT_LEN(words); i++)
    if (at_config_has(words[i].word)) bits |= words[i].bit;
  return bits;
}

// ---- One core
// Memories first, then the checks' picture of them, the random state and the
// debugger.
static void init_core(core_state *c) {
  core_windows_init(c);
  if (c->launch->group) core_stack_init(c);
  // What comes from other processes would be unknown to the checks of memory.
  bool far = c->launch->group && c->launch->group->far;
  if (c->launch->checks && !far) core_shadow_init(c);
  at_core_prng_seed(&c->head, &c->head.core_index, 1);
  core_debug_join(c);
  c->initialised = true;
}

// The one place that failures come back to.
__attribute__((noinline)) static void guard(core_state *c,
                                            void (*fn)(core_state *, void *),
                                            void *arg) {
  if (!_setjmp(c->exit)) fn(c, arg);
}

// Only the first core of a program looks at the kernel's parallel dimensions:
// they are the same for all.
static void do_init(core_state *c, void *arg) {
  init_core(c);
  if (!c->elder && (c->launch->checks & AT_CHECK_RACES)) core_check_parallel(c);
}

// Results that are semaphores, then what the checks say at the end.
static void finish_core(core_state *c, void *arg) {
  core_semaphores_store(c);
  if (c->shadow) core_shadow_finish(c);
}

// Goes with the launch.
static core_state *new_core(const at_core_launch *l) {
  core_state *c = at_par_scratch(l->par, sizeof *c);
  if (c) memset(c, 0, sizeof *c);
  return c;
}

// What a core is before its memories: launch, program, and what the second run
// of the checks changes.
static void prepare_state(core_state *c, const at_core_launch *l,
                          uint32_t program) {
  c->launch = l;
  c->program = &l->programs[program];
  c->program_index = program;
  c->head.device_id = l->device_id;
  c->head.bounds = c->bounds;
  c->head.num_cores = 1;
  c->head.of_nan = core_runs_again(c) ? kOtherOfNan : 0;
  c->profiled = at_profile_on() && !core_runs_again(c);
}

// Grid bounds; dynamic ones are the first buffers.
static at_status read_bounds(core_state *c) {
  const at_xcore *r = c->program->record;
  uint32_t dynamic = 0;
  for (uint32_t d = 0; d < r->grid_rank; d++) {
    int64_t b = r->grid[d];
    if (b < 0) {
      int32_t v;
      memcpy(&v, c->launch->bufs[dynamic++], sizeof v);
      b = v;
    }
    if (b < 0 || b > INT32_MAX)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "kernel %s: grid dimension %u has bound %lld",
                     core_name(c), d, (long long)b);
    c->bounds[d] = (int32_t)b;
    if (r->grid[d] < 0)
      at_log(AT_LOG_INFO, "kernel %s: bound %u of its grid is %d", core_name(c),
             d, c->bounds[d]);
  }
  return AT_OK;
}

// ---- A core that runs alone
typedef struct range {
  int64_t begin, end;
} range;

static void do_steps(core_state *c, void *arg) {
  const range *r = arg;
  core_run_steps(c, r->begin, r->end);
}

typedef struct split {
  const at_core_launch *launch;
  core_state **workers;  // per thread of the pool; [0] is ready
  int64_t steps, unit;   // steps of a chunk that must stay together
  int64_t chunk;         // steps
  _Atomic bool failed;
} split;

// The state of a thread that takes steps of core 0, made on its first chunk.
// NULL: no memory.
static core_state *worker_state(split *s, uint32_t worker) {
  core_state *c = s->workers[worker];
  if (c) return c;
  c = new_core(s->launch);
  if (!c) return NULL;
  s->workers[worker] = c;
  c->lead = s->workers[0];
  prepare_state(c, s->launch, 0);
  memcpy(c->bounds, s->workers[0]->bounds, sizeof c->bounds);
  c->lane = worker;
  guard(c, do_init, NULL);
  return c;
}

// A failed thread stops the others at their next chunk.
static void run_chunk(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  split *s = arg;
  core_state *c = worker_state(s, worker);
  if (!c || c->status.err || atomic_load(&s->failed)) {
    atomic_store(&s->failed, true);
    return;
  }
  range r = {begin * s->chunk, AT_MIN(end * s->chunk, s->steps)};
  guard(c, do_steps, &r);
  if (c->status.err) atomic_store(&s->failed, true);
}

// Steps go to threads in chunks. The first failure is returned; workers live in
// scratch memory.
static at_status run_split(split *s, uint32_t threads) {
  int64_t chunks = at_ceil_div(s->steps, s->chunk);
  at_pool_for(s->launch->par->pool, chunks, 1, run_chunk, s);
  at_status st = AT_OK;
  for (uint32_t i = 0; i < threads; i++) {
    core_state *c = s->workers[i];
    if (!c) continue;
    st = at_status_join(st, c->status);
    c->status = AT_OK;
  }
  if (!st.err && atomic_load(&s->failed))
    return AT_FAIL(AT_RESOURCE_EXHAUSTED,
                   "no memory for the cores of a kernel");
  return st;
}

// A core that no other can see: its steps may go to several threads if nothing
// ties them together.
static at_status run_alone(core_state *c) {
  guard(c, do_init, NULL);
  if (c->status.err) return c->status;
  int64_t steps = core_grid_steps(c);
  uint32_t threads = at_par_threads(c->launch->par);
  split s = {.launch = c->launch, .steps = steps, .chunk = steps};
  if (!c->launch->checks && !c->debug && threads > 1 && steps > 1) {
    core_split_plan plan = {threads, kChunksPerThread, 0};
    guard(c, core_plan_split, &plan);
    if (c->status.err) return c->status;
    if (plan.chunk) s.chunk = plan.chunk;
  }
  if (s.chunk < steps) {
    s.workers = calloc(threads, sizeof *s.workers);
    if (!s.workers)
      return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for %u cores", threads);
    s.workers[0] = c;
    at_status st = run_split(&s, threads);
    free(s.workers);
    return st;
  }
  range all = {0, steps};
  at_pool_attend(c->launch->par->pool, true);
  guard(c, do_steps, &all);
  at_pool_attend(c->launch->par->pool, false);
  if (!c->status.err) guard(c, finish_core, NULL);
  return c->status;
}

// ---- Cores that run together
at_status at_core_group_create(uint32_t devices, const at_core_far *far,
                               at_core_group **out) {
  at_core_group *g = calloc(1, sizeof *g);
  if (g) {
    g->all_here = at_event_create();
    g->all_done = at_event_create();
  }
  if (!g || !g->all_here || !g->all_done) {
    at_core_group_destroy(g);
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a group of cores");
  }
  pthread_mutex_init(&g->lock, NULL);
  g->devices = devices;
  g->far = far;
  g->others = far ? far->processes : 0;
  *out = g;
  return AT_OK;
}

void at_core_group_destroy(at_core_group *g) {
  if (!g) return;
  at_event_release(g->all_here);
  at_event_release(g->all_done);
  at_status_free(g->why);
  marks_free(&g->marks);
  free(g->teams);
  if (g->devices) pthread_mutex_destroy(&g->lock);
  free(g);
}

typedef struct team {
  const at_core_launch *launch;
  core_state *cores;
  uint32_t num_cores;
  _Atomic uint32_t running;
  at_event *done;
} team;

typedef struct member {
  team *team;
  core_state *core;
} member;

static void run_member(void *arg) {
  member m = *(member *)arg;
  range all = {0, core_grid_steps(m.core)};
  guard(m.core, do_steps, &all);
  core_ended(m.core);
  if (atomic_fetch_sub(&m.team->running, 1) == 1)
    at_event_fire(m.team->done, AT_OK);
}

// More is not told apart, so that no product overflows.
enum { kMostWanted = 1 << 24 };

// How many cores a program wants: one per index of the dimensions that say so.
static int64_t cores_of(const core_state *c, uint32_t semantics) {
  const at_xcore *r = c->program->record;
  int64_t n = 1;
  for (uint32_t d = 0; d < r->grid_rank; d++)
    if (r->semantics[d] == semantics)
      n = AT_MIN(n * c->bounds[d], (int64_t)kMostWanted);
  return n;
}

// Cores that the kernel asks for, or those of the chip where they share a
// parallel dimension.
static int64_t num_cores_of(const core_state *c) {
  uint32_t dim;
  if (!core_is_shared(c, &dim)) return cores_of(c, AT_CORE_CORE_PARALLEL);
  return AT_MIN(c->launch->hw->cores_per_device, (uint32_t)c->bounds[dim]);
}

// Which core and subcore it is, its part of a shared dimension, and the ids of
// its core-parallel dimensions.
static void place_core(core_state *c, int64_t core, int64_t subcore,
                       int64_t cores) {
  const at_xcore *r = c->program->record;
  c->head.core_index = (int32_t)core;
  c->head.subcore_index = (int32_t)subcore;
  c->head.num_cores = (int32_t)cores;
  c->shares = core_is_shared(c, &c->share_dim);
  if (c->shares) {
    int32_t each = (int32_t)at_ceil_div(c->bounds[c->share_dim], cores);
    int32_t begin = (int32_t)core * each;
    c->share_begin = AT_MIN(begin, c->bounds[c->share_dim]);
    c->share_end = AT_MIN(begin + each, c->bounds[c->share_dim]);
  }
  for (uint32_t d = r->grid_rank; d-- > 0;) {
    int64_t *id = r->semantics[d] == AT_CORE_CORE_PARALLEL      ? &core
                  : r->semantics[d] == AT_CORE_SUBCORE_PARALLEL ? &subcore
                                                                : NULL;
    if (!id) continue;
    c->grid[d] = (int32_t)(*id % c->bounds[d]);
    *id /= c->bounds[d];
  }
}

// Counts the cores of all programs first; the array is freed by run_together.
static at_status make_team(team *t) {
  const at_core_launch *l = t->launch;
  int64_t total = 0;
  for (uint32_t p = 0; p < l->num_programs; p++) {
    core_state probe = {0};
    prepare_state(&probe, l, p);
    AT_TRY(read_bounds(&probe));
    int64_t n =
        num_cores_of(&probe) * cores_of(&probe, AT_CORE_SUBCORE_PARALLEL);
    if (n > kMaxCores)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "kernel %s: %lld cores at the same time",
                     core_name(&probe), (long long)n);
    total += n;
  }
  t->cores = calloc((size_t)total + 1, sizeof *t->cores);
  if (!t->cores)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for %lld cores",
                   (long long)total);
  for (uint32_t p = 0; p < l->num_programs; p++) {
    core_state probe = {0};
    prepare_state(&probe, l, p);
    AT_TRY(read_bounds(&probe));
    int64_t cores = num_cores_of(&probe);
    int64_t subs = cores_of(&probe, AT_CORE_SUBCORE_PARALLEL);
    for (int64_t i = 0; i < cores * subs; i++) {
      core_state *c = &t->cores[t->num_cores++];
      *c = probe;
      c->head.bounds = c->bounds;
      place_core(c, i / subs, i % subs, cores);
      if (i % subs) c->sibling = c - i % subs;
      if (i) c->elder = c - i;
      c->together = true;
      c->lane = t->num_cores - 1;
    }
  }
  for (uint32_t i = 0; i < t->num_cores; i++)
    t->cores[i].team = (team_of){t->cores, t->num_cores};
  return AT_OK;
}

// One after another: later cores share the memories of the first of their
// program.
static at_status init_team(team *t) {
  for (uint32_t i = 0; i < t->num_cores; i++) {
    core_state *c = &t->cores[i];
    guard(c, do_init, NULL);
    if (c->status.err) {
      at_status st = c->status;
      c->status = AT_OK;
      return st;
    }
  }
  return AT_OK;
}

// Under the lock, which it drops: a device is there, or never will be.
static void count_device(at_core_group *g, bool failed) {
  g->failed |= failed;
  bool last = ++g->joined == g->devices;
  if (last) g->complete = true;
  bool begins = last && g->far && !g->failed;
  pthread_mutex_unlock(&g->lock);
  if (begins) {
    at_status st = g->far->begin(g->far->arg);
    if (st.err) at_core_group_fail(g, st);
  }
  if (last) at_event_fire(g->all_here, AT_OK);
}

bool core_group_is_over(at_core_group *g) {
  bool all = !g->over && g->left == g->devices && !g->hearing &&
             (g->failed || !g->others);
  g->over |= all;
  return all;
}

// Tells the other processes; the group fails if that does.
static void end_group(at_core_group *g) {
  at_status st = g->far->end(g->far->arg);
  if (st.err) at_core_group_fail(g, st);
}

// The last device here ends the group: it tells the others before it counts, as
// all_done may fire then.
static void count_left(at_core_group *g) {
  pthread_mutex_lock(&g->lock);
  bool ends = g->left + 1 == g->devices && g->far && !g->failed;
  if (ends) {  // nobody else is left here
    pthread_mutex_unlock(&g->lock);
    end_group(g);
    pthread_mutex_lock(&g->lock);
  }
  g->left++;
  if (ends && g->others) core_set_idle(g, true);
  bool over = core_group_is_over(g);
  pthread_mutex_unlock(&g->lock);
  if (over) at_event_fire(g->all_done, AT_OK);
}

void at_core_group_give_up(at_core_group *g) {
  pthread_mutex_lock(&g->lock);
  count_device(g, true);
  count_left(g);
}

// Under the lock. False: no memory.
static bool add_team(at_core_group *g, uint32_t device, team_of team) {
  if (device >= g->num_teams) {
    uint32_t n = AT_MAX(device + 1, g->devices);
    team_of *grown = realloc(g->teams, n * sizeof *grown);
    if (!grown) return false;
    memset(grown + g->num_teams, 0, (n - g->num_teams) * sizeof *grown);
    g->teams = grown;
    g->num_teams = n;
  }
  g->teams[device] = team;
  return true;
}

// st: whether the device can take part.
static at_status join_group(team *t, at_core_group *g, at_status st) {
  pthread_mutex_lock(&g->lock);
  team_of team = {t->cores, t->num_cores};
  if (!add_team(g, (uint32_t)t->launch->device_id, team) && !st.err)
    st = AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for %u cores", team.num);
  for (uint32_t i = 0; i < t->num_cores; i++) {
    core_state *c = &t->cores[i];
    c->group = g;
    c->actor = g->actors++;
    c->next = g->first;
    g->first = c;
  }
  g->cores += t->num_cores;
  count_device(g, st.err != NULL);
  at_status_free(at_event_wait(g->all_here));
  return st;
}

// Cores of other devices may still copy into ours.
static void leave_group(at_core_group *g) {
  count_left(g);
  at_status_free(at_event_wait(g->all_done));
}

// A fiber per core; returns when all have ended. Errors are in the cores'
// states.
static at_status run_team(team *t, at_core_group *g) {
  t->done = at_event_create();
  member *members = calloc(t->num_cores + 1, sizeof *members);
  at_status st = AT_OK;
  if (!t->done || !members) {
    // Cores of other devices must not wait for these.
    for (uint32_t i = 0; i < t->num_cores; i++) {
      t->cores[i].status = AT_FAIL(AT_RESOURCE_EXHAUSTED,
                                   "no memory for %u cores", t->num_cores);
      core_ended(&t->cores[i]);
    }
    goto done;
  }
  atomic_store(&t->running, t->num_cores);
  for (uint32_t i = 0; i < t->num_cores; i++) {
    members[i] = (member){t, &t->cores[i]};
    at_status spawned =
        at_sched_spawn(t->launch->sched, run_member, &members[i]);
    if (!spawned.err) continue;
    t->cores[i].status = spawned;
    core_ended(&t->cores[i]);
    if (atomic_fetch_sub(&t->running, 1) == 1) at_event_fire(t->done, AT_OK);
  }
  if (t->num_cores) at_status_free(at_event_wait(t->done));
done:
  free(members);
  at_event_release(t->done);
  return st;
}

// The error that says most: not "another core failed", if there is any other.
static at_status collect(team *t) {
  at_status st = AT_OK;
  for (uint32_t i = 0; i < t->num_cores; i++) {
    at_status s = t->cores[i].status;
    bool better = s.err && st.err && at_status_code(st) == AT_CANCELLED &&
                  at_status_code(s) != AT_CANCELLED;
    if (better) {
      at_status_free(st);
      st = s;
    } else {
      st = at_status_join(st, s);
    }
  }
  return st;
}

// Joins the group even after a failure, as other devices wait for this one.
// Memory is freed once all devices have left.
static at_status run_together(const at_core_launch *l) {
  team t = {.launch = l};
  at_core_group *own = NULL, *g = l->group;
  if (!g) AT_TRY(at_core_group_create(1, NULL, &own));
  if (own) g = own;
  at_status st = make_team(&t);
  if (!st.err) st = init_team(&t);
  st = join_group(&t, g, st);
  pthread_mutex_lock(&g->lock);
  bool runs = !g->failed;
  pthread_mutex_unlock(&g->lock);
  if (runs) {
    st = run_team(&t, g);
    st = at_status_join(st, collect(&t));
  } else if (!st.err) {
    st = AT_FAIL(AT_CANCELLED, "kernel %s: it did not start on another device",
                 l->programs[0].name);
  }
  leave_group(g);
  // Signals and copies of others come until the last core has ended.
  for (uint32_t i = 0; i < t.num_cores && !st.err; i++) {
    guard(&t.cores[i], finish_core, NULL);
    st = t.cores[i].status;
  }
  // The first core's picture of shared memory goes last.
  for (uint32_t i = t.num_cores; i-- > 0;) {
    core_debug_part(&t.cores[i]);
    core_shadow_free(&t.cores[i]);
  }
  free(t.cores);
  at_core_group_destroy(own);
  return st;
}

// ---- Launch
size_t core_array_bytes(const at_xcore_ref *x) {
  bool is_sem = x->space == AT_CORE_SEM;
  size_t bytes = is_sem ? sizeof(int32_t) : at_dtype_bytes((at_dtype)x->dtype);
  for (uint32_t d = 0; d < x->rank; d++) bytes *= (size_t)x->dims[d];
  return x->cores ? bytes * (size_t)x->cores : bytes;
}

// An input that shares memory with an output lives where the output does.
static void join_aliases(const at_core_launch *l) {
  const at_core_program *p = &l->programs[0];
  uint32_t buf = p->record->num_dynamic, first_out = core_first_out(p);
  for (uint32_t i = 0; i < p->record->num_refs; i++) {
    const at_xcore_ref *x = &p->refs[i];
    if (x->role == AT_CORE_SCRATCH) continue;
    void *in = l->bufs[buf++];
    if (x->role != AT_CORE_IN || x->alias < 0) continue;
    void *out = l->bufs[first_out + (uint32_t)x->alias];
    size_t bytes = core_array_bytes(x);
    if (in != out && bytes) memmove(out, in, bytes);
  }
}

// Decides between one core and several; *out_alone tells which.
static at_status run_launch(const at_core_launch *l) {
  const at_xcore *r = l->programs[0].record;
  core_state *c = new_core(l);
  at_status st = AT_OK;
  if (c) {
    prepare_state(c, l, 0);
    st = read_bounds(c);
  } else {
    st = AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a core");
  }
  if (st.err && l->group) at_core_group_give_up(l->group);
  if (st.err) return st;
  uint32_t dim;
  bool together = l->group || l->num_programs > 1 || core_is_shared(c, &dim);
  for (uint32_t d = 0; d < r->grid_rank; d++)
    together |= r->semantics[d] == AT_CORE_CORE_PARALLEL ||
                r->semantics[d] == AT_CORE_SUBCORE_PARALLEL;
  if (l->out_alone) *l->out_alone = !together;
  if (together) return run_together(l);
  st = run_alone(c);
  core_debug_part(c);
  core_shadow_free(c);
  return st;
}

// With the check for undefined values a kernel may run twice.
static at_status run_checked(const at_core_launch *l) {
  bool again = l->checks & AT_CHECK_UNINIT && !l->group && l->num_programs == 1;
  return again ? core_run_again(l, run_launch) : run_launch(l);
}

// Aliased inputs are copied into their outputs, narrow integers widened, then
// the kernel runs.
static at_status run_arrays(const at_core_launch *l) {
  join_aliases(l);
  if (!core_has_narrow(l)) return run_checked(l);
  void **bufs;
  at_status st = core_narrow_begin(l, &bufs);
  if (st.err && l->group) at_core_group_give_up(l->group);
  if (st.err) return st;
  at_core_launch own = *l;
  own.bufs = bufs;
  st = run_checked(&own);
  core_narrow_end(l);
  core_narrow_free(bufs, l);
  return st;
}

// The debugger, if one is named, must be there before the first core runs.
at_status at_core_run(const at_core_launch *l) {
  at_status st = core_debug_begin();
  if (st.err && l->group) at_core_group_give_up(l->group);
  if (st.err) return st;
  st = run_arrays(l);
  core_debug_launch_failed(l, st);
  return st;
}

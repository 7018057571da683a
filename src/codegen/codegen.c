// The generator: collects jobs, shares equal ones, compiles them on threads.
#include "codegen/codegen.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/guard.h"
#include "base/interrupt.h"
#include "base/thread.h"
#include "codegen/key.h"
#include "codegen/module.h"
#include "codegen/plan.h"
#include "codegen/stream.h"
#include "codegen/tier.h"

struct at_cg {
  at_cg_target target;
  at_arena *arena;
  at_map known;           // key text -> at_planned *
  AT_VEC(at_job *) jobs;  // those that are compiled as kernels
};

// Zeros in the target mean the defaults: one thread, AT_CG_STREAM_BYTES.
at_status at_cg_create(const at_cg_target *t, at_cg **out) {
  at_cg *cg = calloc(1, sizeof *cg);
  at_arena *a = at_arena_create();
  if (!cg || !a) {
    free(cg);
    if (a) at_arena_destroy(a);
    return AT_NO_MEMORY("code generator");
  }
  *cg = (at_cg){.target = *t, .arena = a, .known = at_map_in(a)};
  if (cg->target.threads == 0) cg->target.threads = 1;
  if (cg->target.stream_bytes == 0)
    cg->target.stream_bytes = AT_CG_STREAM_BYTES;
  *out = cg;
  return AT_OK;
}

// Jobs and plans are the arena's.
void at_cg_destroy(at_cg *cg) {
  if (!cg) return;
  at_arena_destroy(cg->arena);
  free(cg);
}

// A job that was planned, not yet one of the kernels.
static void measure(at_job *j) {
  j->index = UINT32_MAX;
  at_tier_measure(j);
}

// Its number among the kernels, which it becomes when it is first asked for.
static at_status kernel_of(at_cg *cg, at_job *j, uint32_t *index) {
  if (j->index == UINT32_MAX) {
    j->index = (uint32_t)cg->jobs.len;
    snprintf(j->symbol, sizeof j->symbol, "at_k%u", j->index);
    if (!at_vec_push(cg->arena, &cg->jobs, j)) return AT_NO_MEMORY("kernels");
  }
  *index = j->index;
  return AT_OK;
}

// Kernels that are not planned from a node: measured, and numbered at once.
static at_status add_job(at_cg *cg, at_job *j, uint32_t *index) {
  measure(j);
  return kernel_of(cg, j, index);
}

// The plan of a node that was not seen before, and its kernels.
static at_status plan_new(at_cg *cg, const at_node *n, const int32_t *alias,
                          const at_skips *skips, at_planned *p) {
  int32_t *own = at_new(cg->arena, int32_t, n->num_results + 1);
  if (!own) return AT_NO_MEMORY("kernels");
  for (uint32_t r = 0; r < n->num_results; r++) own[r] = alias ? alias[r] : -1;
  AT_TRY(at_plan_node(&cg->target, cg->arena, n, own, p));
  for (uint32_t i = 0; i < p->num_jobs; i++) {
    p->jobs[i]->skip = skips ? skips->elements : NULL;
    measure(p->jobs[i]);
  }
  return AT_OK;
}

// Nodes with equal keys have equal kernels: structure, what shares memory with
// what, and which results are streamed.
static at_status key_of(at_cg *cg, const at_node *n, const int32_t *alias,
                        const at_skips *skips, at_strbuf *key) {
  AT_TRY(at_key_node(cg->arena, n, skips, key));
  for (uint32_t r = 0; r < n->num_results; r++) {
    int32_t a = alias ? alias[r] : -1;
    at_strbuf_add(key, (at_str){(const char *)&a, sizeof a});
  }
  uint64_t streams = at_streams_of(n, cg->target.stream_bytes);
  at_strbuf_add(key, (at_str){(const char *)&streams, sizeof streams});
  return at_strbuf_status(key);
}

// inside: the launches are calls in a nest, and no kernels.
static at_status launches_of(at_cg *cg, const at_planned *p, const at_node *n,
                             const at_skips *skips, bool inside, at_arena *a,
                             at_cg_plan *out) {
  at_cg_launch *l = at_new(a, at_cg_launch, p->num_jobs + 1);
  if (!l) return AT_NO_MEMORY("launches");
  uint32_t count = 0;
  for (uint32_t i = 0; i < p->num_jobs; i++) {
    at_job *j = p->jobs[i];
    uint32_t kernel = UINT32_MAX;
    if (!inside) AT_TRY(kernel_of(cg, j, &kernel));
    uint32_t args = n->num_operands + n->num_results + (j->scratch ? 1 : 0),
             k = 0;
    at_cg_arg *v = at_new(a, at_cg_arg, args + 1);
    if (!v) return AT_NO_MEMORY("launches");
    for (uint32_t o = 0; o < n->num_operands; o++) {
      int64_t skip = skips ? skips->elements[o] : 0;
      size_t bytes = at_dtype_bytes(at_value_type(n->operands[o])->dtype);
      v[k++] = (at_cg_arg){AT_CG_OPERAND, o, (uint64_t)skip * bytes};
    }
    for (uint32_t r = 0; r < n->num_results; r++)
      v[k++] = (at_cg_arg){.kind = AT_CG_RESULT, .index = r};
    if (j->scratch) v[k++] = (at_cg_arg){.kind = AT_CG_SCRATCH};
    AT_ASSERT(k == args);
    l[count++] = (at_cg_launch){.kernel = kernel,
                                .tasks = j->tasks,
                                .grain = j->grain,
                                .ns = j->ns,
                                .args = v,
                                .num_args = args};
  }
  *out = (at_cg_plan){l, count, p->scratch_bytes};
  return AT_OK;
}

// The plan of an equal node, or a new one. The key's text becomes the
// generator's. On failure the table has a key without a plan, which is planned
// again when it comes back.
static at_status add_node(at_cg *cg, const at_node *n, const int32_t *alias,
                          const at_skips *skips, at_planned **out) {
  at_strbuf key = {0};
  at_status st = key_of(cg, n, alias, skips, &key);
  at_planned *p = NULL;
  if (at_ok(st)) {
    const char *text = at_arena_copy(cg->arena, key.ptr, key.len, 1);
    void **slot = text ? at_map_put(&cg->known, (at_str){text, key.len}) : NULL;
    if (!slot) {
      st = AT_NO_MEMORY("kernel table");
    } else if (!(p = *slot)) {
      p = at_new(cg->arena, at_planned, 1);
      st = p ? plan_new(cg, n, alias, skips, p) : AT_NO_MEMORY("kernel table");
      if (at_ok(st)) *slot = p;
    }
  }
  at_strbuf_free(&key);
  *out = p;
  return st;
}

// Without skips, as the caller passes only beginnings of operands.
at_status at_cg_node(at_cg *cg, const at_node *n, const int32_t *alias,
                     at_arena *a, at_cg_plan *out) {
  at_planned *p;
  AT_TRY(add_node(cg, n, alias, NULL, &p));
  return launches_of(cg, p, n, NULL, false, a, out);
}

// Skips are found before the key is made: they are no part of it.
at_status at_cg_node_skipping(at_cg *cg, const at_node *n, const int32_t *alias,
                              at_arena *a, at_cg_plan *out) {
  at_skips skips;
  AT_TRY(at_skips_find(cg->arena, n, alias, &skips));
  at_planned *p;
  AT_TRY(add_node(cg, n, alias, &skips, &p));
  return launches_of(cg, p, n, &skips, false, a, out);
}

// Jobs that only nests use are never kernels of their own.
at_status at_cg_node_inside(at_cg *cg, const at_node *n, const int32_t *alias,
                            at_arena *a, at_cg_plan *out,
                            const void *const **kernels) {
  at_skips skips;
  AT_TRY(at_skips_find(cg->arena, n, alias, &skips));
  at_planned *p;
  AT_TRY(add_node(cg, n, alias, &skips, &p));
  *kernels = (const void *const *)p->jobs;
  return launches_of(cg, p, n, &skips, true, a, out);
}

// A walk's step: adds what the statement's kernel takes to compile.
static at_status add_ops(void *user, at_nest_stmt *s) {
  const at_job *j = s->kernel;
  *(uint64_t *)user += j ? j->ops : 1;
  return AT_OK;
}

// One job, measured by the kernels that it holds in place.
at_status at_cg_nest(at_cg *cg, const at_nest *n, uint32_t *out_kernel) {
  at_job *j = at_new(cg->arena, at_job, 1);
  if (!j) return AT_NO_MEMORY("kernel table");
  *j = (at_job){
      .kind = AT_JOB_NEST, .nest = n, .lanes = 1, .tasks = 1, .grain = 1};
  j->index = UINT32_MAX;
  AT_TRY(at_nest_walk(&n->root, add_ops, &j->ops));
  j->work = INFINITY;  // how often its loops turn is not known
  return kernel_of(cg, j, out_kernel);
}

// Equal regions share a kernel; the table holds its number + 1.
at_status at_cg_comparator(at_cg *cg, const at_comp *region,
                           uint32_t *out_kernel) {
  at_value captured = at_body_capture(region);
  if (captured.node) return at_body_refuse("a comparator", captured);
  at_strbuf key = {0};
  at_strbuf_addz(&key, "comparator");
  at_status st = at_key_comp(cg->arena, region, &key);
  if (at_ok(st)) {
    const char *text = at_arena_copy(cg->arena, key.ptr, key.len, 1);
    void **slot = text ? at_map_put(&cg->known, (at_str){text, key.len}) : NULL;
    at_job *j = at_new(cg->arena, at_job, 1);
    if (!slot || !j) {
      st = AT_NO_MEMORY("kernel table");
    } else if (*slot) {
      *out_kernel = (uint32_t)(uintptr_t)*slot - 1;
    } else {
      *j = (at_job){.kind = AT_JOB_COMPARATOR, .region = region, .lanes = 1};
      st = add_job(cg, j, out_kernel);
      if (at_ok(st)) *slot = (void *)(uintptr_t)(*out_kernel + 1);
    }
  }
  at_strbuf_free(&key);
  return st;
}

// Never shared: what `emit` writes is not known here.
at_status at_cg_external(at_cg *cg, const at_cg_function *f,
                         uint32_t *out_kernel) {
  if (f->num_params < 1 || f->num_params > AT_CG_MAX_PARAMS)
    return AT_FAIL(AT_INTERNAL, "a function with %u parameters", f->num_params);
  at_job *j = at_new(cg->arena, at_job, 1);
  if (!j) return AT_NO_MEMORY("kernel table");
  *j = (at_job){.kind = AT_JOB_EXTERNAL, .external = *f, .lanes = 1};
  return add_job(cg, j, out_kernel);
}

// ---- compile
typedef struct at_task {
  at_unit unit;
  at_unit_form form;
  char *out;
  size_t len;
  at_status st;
} at_task;

// Functions that LLVM compiles alike share a module: huge ones with hardly any
// steps (module.c), those that are compiled quickly or plainly (tier.c), and
// all others.
enum { HEAVY = 4096 };
typedef enum sort { HUGE, QUICK, PLAIN, NESTS, ORDINARY, SORTS } sort;
// Huge functions stand in modules of their own steps, whatever else they are.
static sort sort_of(const at_job *j) {
  if (j->ops >= HEAVY && j->kind != AT_JOB_NEST) return HUGE;
  if (j->quick) return j->plain ? PLAIN : QUICK;
  return j->kind == AT_JOB_NEST ? NESTS : ORDINARY;
}

// Of each sort from begin to end, before those of the next.
typedef struct units {
  uint32_t begin[SORTS + 1];
} units;

// A module per thread, or more so that none is large: LLVM's memory of one is
// given back before the next, and takes longer to get the more there is. At
// least a few ordinary functions each.
enum { UNIT_LOAD = 1000 * AT_CG_ORDINARY, FEW = 6 };
// As many modules of each sort as there are threads, fewer where each would
// have less than FEW functions, more where one would be over UNIT_LOAD.
static units units_for(const at_cg *cg) {
  uint64_t jobs[SORTS] = {0}, load[SORTS] = {0};
  for (size_t k = 0; k < cg->jobs.len; k++) {
    sort s = sort_of(cg->jobs.ptr[k]);
    jobs[s]++;
    load[s] += at_tier_load(cg->jobs.ptr[k]);
  }
  units u = {0};
  for (uint32_t s = 0; s < SORTS; s++) {
    uint64_t most = s == HUGE ? jobs[s] : at_ceil_div(jobs[s], FEW);
    uint64_t n = AT_MAX(cg->target.threads, at_ceil_div(load[s], UNIT_LOAD));
    u.begin[s + 1] = u.begin[s] + (uint32_t)AT_MIN(most, n);
  }
  return u;
}

// For qsort: by load, then by number, so that the order is one.
static int heavier(const void *a, const void *b) {
  const at_job *x = *(at_job *const *)a, *y = *(at_job *const *)b;
  uint64_t v = at_tier_load(x), w = at_tier_load(y);
  if (v != w) return v > w ? -1 : 1;
  return x->index < y->index ? -1 : 1;
}

// The heaviest first, each to the unit of its kind that has least to do.
static void distribute(const units *u, uint64_t *load, at_job **jobs,
                       size_t num_jobs) {
  qsort(jobs, num_jobs, sizeof(at_job *), heavier);
  for (size_t k = 0; k < num_jobs; k++) {
    sort kind = sort_of(jobs[k]);
    uint32_t least = u->begin[kind], end = u->begin[kind + 1];
    for (uint32_t i = least + 1; i < end; i++)
      if (load[i] < load[least]) least = i;
    AT_ASSERT(least < end);  // there is a unit of its sort
    load[least] += at_tier_load(jobs[k]);
    jobs[k]->unit = least;
  }
}

typedef struct crew {
  at_task *tasks;
  uint32_t num_tasks;
  _Atomic uint32_t next;
  const _Atomic bool *interrupt;
} crew;

// A thread's life: takes the next unit until there is none. An interrupt of the
// caller reaches LLVM's passes through the flag.
static void work(void *arg) {
  crew *c = arg;
  at_interrupt_watch(c->interrupt);
  for (uint32_t i; (i = atomic_fetch_add(&c->next, 1)) < c->num_tasks;) {
    at_task *t = &c->tasks[i];
    t->st = at_unit_compile(&t->unit, t->form, &t->out, &t->len);
  }
}

// LLVM runs on threads of its own alone, where a failure can be survived
// (module.c). Fewer than asked for only take longer.
static at_status run_all(at_arena *a, at_task *t, uint32_t n,
                         uint32_t num_threads) {
  crew c = {.tasks = t, .num_tasks = n, .interrupt = at_interrupt_flag()};
  num_threads = AT_MIN(num_threads, n);
  at_thread **threads = at_new(a, at_thread *, num_threads);
  if (!threads) return AT_NO_MEMORY("compile tasks");
  uint32_t started = 0;
  at_status st = AT_OK;
  while (started < num_threads && !st.err) {
    st = at_thread_start("atoll-llvm", AT_GUARD_THREAD, work, &c,
                         &threads[started]);
    started += !st.err;
  }
  for (uint32_t i = 0; i < started; i++) at_thread_join(threads[i]);
  if (!started) return at_status_prefix(st, "code generation");
  at_status_free(st);
  return AT_OK;
}

// Chooses tiers, deals the jobs out to units, and compiles all of them. A
// failed unit fails the compile; texts of the others are freed. The result lies
// in `a`, each unit's bytes on the heap.
static at_status compile(at_cg *cg, at_unit_form form, at_arena *a,
                         at_task **out, uint32_t *out_n) {
  AT_TRY(at_tier_choose(&cg->target, a, cg->jobs.ptr, cg->jobs.len));
  units u = units_for(cg);
  uint32_t n = u.begin[SORTS];
  at_task *t = at_new(a, at_task, n);
  uint64_t *load = at_new(a, uint64_t, n);
  at_job **jobs = at_new(a, at_job *, cg->jobs.len);
  if (!t || !load || !jobs) return AT_NO_MEMORY("compile tasks");
  memcpy(jobs, cg->jobs.ptr, cg->jobs.len * sizeof *jobs);
  distribute(&u, load, jobs, cg->jobs.len);
  for (uint32_t i = 0; i < n; i++) {
    const at_job **own = at_new(a, const at_job *, cg->jobs.len);
    uint32_t count = 0;
    if (!own) return AT_NO_MEMORY("compile tasks");
    for (size_t k = 0; k < cg->jobs.len; k++)
      if (cg->jobs.ptr[k]->unit == i) own[count++] = cg->jobs.ptr[k];
    AT_ASSERT(count > 0);  // the passes are chosen by its first job
    t[i].unit = (at_unit){&cg->target, own, count, i};
    t[i].form = form;
  }
  AT_TRY(run_all(a, t, n, cg->target.threads));
  at_status st = AT_OK;
  // The first failure is told, in the order of the units.
  for (uint32_t i = 0; i < n; i++) st = at_status_join(st, t[i].st);
  if (st.err)
    for (uint32_t i = 0; i < n; i++) free(t[i].out);
  *out = t;
  *out_n = n;
  return st;
}

// Copies the objects to `a`, 64-byte aligned, and tells for each kernel its
// object and symbol. String 0 is empty.
at_status at_cg_finish(at_cg *cg, at_arena *a, at_cg_output *out) {
  *out = (at_cg_output){0};
  if (cg->jobs.len == 0) return AT_OK;
  at_task *t = NULL;
  uint32_t n = 0;
  AT_TRY(compile(cg, AT_UNIT_OBJECT, a, &t, &n));
  out->objects = at_new(a, at_bytes, n);
  out->kernels = at_new(a, at_xkernel, cg->jobs.len);
  at_strbuf names = {0};
  at_strbuf_addc(&names, 0);
  bool ok = out->objects && out->kernels;
  for (uint32_t i = 0; i < n; i++) {
    void *p = ok ? at_arena_copy(a, t[i].out, t[i].len, 64) : NULL;
    ok = ok && p;
    if (ok) out->objects[i] = (at_bytes){p, t[i].len};
    free(t[i].out);
  }
  for (size_t k = 0; ok && k < cg->jobs.len; k++) {
    const at_job *j = cg->jobs.ptr[k];
    out->kernels[k] =
        (at_xkernel){.kind = j->kind == AT_JOB_COMPARATOR ? AT_XK_COMPARATOR
                             : j->kind == AT_JOB_EXTERNAL ? j->external.kind
                                                          : AT_XK_RANGE,
                     .object = j->unit,
                     .symbol = (uint32_t)names.len};
    at_strbuf_add(&names, (at_str){j->symbol, strlen(j->symbol) + 1});
  }
  out->num_kernels = (uint32_t)cg->jobs.len;
  out->num_objects = n;
  at_status st = at_strbuf_status(&names);
  char *text = at_arena_copy(a, names.ptr, names.len, 1);
  out->strings = (at_str){text, names.len};
  at_strbuf_free(&names);
  AT_TRY(st);
  return ok && text ? AT_OK : AT_NO_MEMORY("objects");
}

// Units one behind another. Compiling once more gives the same code.
at_status at_cg_print(at_cg *cg, bool assembly, at_strbuf *out) {
  if (cg->jobs.len == 0) return AT_OK;
  at_arena *a = at_arena_create();
  if (!a) return AT_NO_MEMORY("code text");
  at_task *t = NULL;
  uint32_t n = 0;
  at_status st =
      compile(cg, assembly ? AT_UNIT_ASSEMBLY : AT_UNIT_IR, a, &t, &n);
  for (uint32_t i = 0; at_ok(st) && i < n; i++) {
    at_strbuf_add(out, (at_str){t[i].out, t[i].len});
    free(t[i].out);
  }
  at_arena_destroy(a);
  AT_TRY(st);
  return at_strbuf_status(out);
}

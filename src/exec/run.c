// The run loop: one step after the other. Every index was checked at load.
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "exec/exec_internal.h"
#include "profile/profile.h"

// ---- Scratch of runtime kernels
// A block begins with a header that links it into the frame's list, so that
// threads of one kernel may ask at the same time.
typedef struct scratch_block {
  struct scratch_block *next;
  size_t bytes;
} scratch_block;
enum { kScratchHead = 64 };

// NULL: no memory. Blocks are freed together by at_frame_give_scratch.
void *at_frame_take_scratch(void *owner, size_t bytes) {
  at_frame *f = owner;
  size_t total = at_add(bytes, kScratchHead);
  void *p = NULL;
  if (at_code_take(at_chip_take_scratch(f->chip, total, false, &p)))
    return NULL;
  scratch_block *b = p;
  b->bytes = total;
  void *head = atomic_load_explicit(&f->scratch, memory_order_relaxed);
  do {
    b->next = head;
  } while (!atomic_compare_exchange_weak_explicit(
      &f->scratch, &head, p, memory_order_release, memory_order_relaxed));
  return (uint8_t *)p + kScratchHead;
}

// After the kernel: no thread of it is left.
void at_frame_give_scratch(at_frame *f) {
  scratch_block *b = atomic_exchange(&f->scratch, NULL);
  while (b) {
    scratch_block *next = b->next;
    at_chip_give_scratch(f->chip, b, b->bytes, false);
    b = next;
  }
}

// ---- Steps
typedef struct kernel_call {
  at_kernel_fn fn;
  void *const *bufs;
} kernel_call;

// Tasks [begin, end) on one thread of the pool.
static void run_chunk(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  const kernel_call *k = arg;
  k->fn(k->bufs, begin, end);
}

// One chunk on this thread, more of them over the pool.
static void run_kernel(at_frame *f, const at_op *op) {
  void *const *bufs = f->bufs + op->args;
  if (op->tasks <= op->grain) {
    if (op->tasks) op->fn(bufs, 0, op->tasks);
    return;
  }
  kernel_call k = {op->fn, bufs};
  at_pool_for(f->pool, op->tasks, op->grain, run_chunk, &k);
}

// The step that op was made from.
static const at_xstep *step_of(const at_frame *f, const at_op *op) {
  const at_loaded *l = f->loaded;
  const at_xstep *steps =
      (const void *)(l->block + l->header->sections[AT_XS_STEPS].offset);
  return &steps[op - l->ops];
}

// Says which op of the program failed, and where the program says it came from;
// of several processes also which program, since others may tell of it.
at_status at_op_blame(const at_frame *f, const at_op *op, at_status st) {
  if (!st.err) return st;
  const at_loaded *l = f->loaded;
  const at_xstep *s = step_of(f, op);
  const char *name = at_loaded_string(l, s->op_name);
  const char *file = at_loaded_string(l, s->file);
  if (!*name) name = at_loaded_string(l, s->hlo);
  if (*file)
    st = at_status_prefix(st, "%s (%s:%u)", name, file, s->line);
  else if (*name)
    st = at_status_prefix(st, "%s", name);
  return l->far
             ? at_status_prefix(st, "%s", at_loaded_string(l, l->header->name))
             : st;
}

// Scratch is given back after each kernel.
static at_status run_runtime(at_frame *f, const at_op *op) {
  at_par par = {f->pool, at_frame_take_scratch, f};
  at_k_call call = {.par = &par,
                    .params = op->params,
                    .bufs = f->bufs + op->args,
                    .num_bufs = op->num_args,
                    .compare = op->compare};
  at_status st = op->kernel->run(&call);
  if (AT_UNLIKELY(atomic_load_explicit(&f->scratch, memory_order_relaxed) !=
                  NULL))
    at_frame_give_scratch(f);
  return at_op_blame(f, op, st);
}

// The same for Pallas kernels.
static at_status run_core(at_frame *f, const at_op *op) {
  at_par par = {f->pool, at_frame_take_scratch, f};
  at_status st = at_core_step_run(f, op, &par);
  at_frame_give_scratch(f);
  return at_op_blame(f, op, st);
}

// ---- Host callbacks
typedef struct host_call {
  const at_host_channel *channel;
  void *data;
  size_t bytes;
  at_event *received;  // NULL: send
  at_status status;
} host_call;

// On a thread's own stack.
static void call_host(void *arg) {
  host_call *h = arg;
  const at_host_channel *c = h->channel;
  h->status = h->received ? c->recv(c->user, h->data, h->bytes, h->received)
                          : c->send(c->user, h->data, h->bytes, h->bytes, true);
}

// NULL: the launch has no such channel.
static const at_host_channel *find_channel(const at_frame *f, int64_t id) {
  for (uint32_t i = 0; f->channels && i < f->channels->count; i++)
    if (f->channels->list[i].channel_id == id) return &f->channels->list[i];
  return NULL;
}

// The host may fire the event later: waits.
static at_status receive(host_call *h) {
  h->received = at_event_create();
  if (!h->received)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for an event");
  at_fiber_call_on_thread(call_host, h);
  at_status st = h->status;
  if (!st.err) st = at_event_wait(h->received);
  at_event_release(h->received);
  return st;
}

// All arguments of the step, one call each.
static at_status run_host(at_frame *f, const at_op *op) {
  const at_host_channel *c = find_channel(f, op->aux);
  bool is_send = op->kind == AT_STEP_SEND;
  if (!c || (is_send ? !c->send : !c->recv))
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "the launch has no %s callback for channel %lld",
                   is_send ? "send" : "recv", (long long)op->aux);
  for (uint32_t i = 0; i < op->num_args; i++) {
    host_call h = {.channel = c,
                   .data = f->bufs[op->args + i],
                   .bytes = at_arg_slot(f->loaded, op, i)->bytes};
    if (!is_send) {
      AT_TRY(receive(&h));
      at_arg_settle(f, op, i);
      continue;
    }
    at_fiber_call_on_thread(call_host, &h);
    AT_TRY(h.status);
  }
  return AT_OK;
}

// Host callbacks may be one partition's.
static bool is_another_s(const at_frame *f, const at_op *op) {
  int64_t only = step_of(f, op)->tasks;
  return only && f->device % f->loaded->header->num_partitions != only - 1;
}

// Foreign code may take as long as it likes: the lane steps aside.
static at_status run_foreign(at_frame *f, const at_op *op) {
  bool host = op->kind == AT_STEP_SEND || op->kind == AT_STEP_RECV;
  if (host && is_another_s(f, op)) return AT_OK;
  if (f->in_lane) at_lane_block(f->chip->runtime);
  at_status st = host ? run_host(f, op) : at_custom_run(f, op, step_of(f, op));
  if (f->in_lane) at_lane_unblock(f->chip->runtime);
  return at_op_blame(f, op, st);
}

// Kernels are most of all steps.
static at_status run_op(at_frame *f, const at_op *op) {
  if (op->kind == AT_STEP_KERNEL) {
    run_kernel(f, op);
    return AT_OK;
  }
  if (op->kind == AT_STEP_CORE) return run_core(f, op);
  return op->kind == AT_STEP_RUNTIME ? run_runtime(f, op) : run_foreign(f, op);
}

// Collectives, and what takes long.
static void record_span(const at_frame *f, const at_op *op,
                        const at_profile_event *e, const char *name) {
  if (!op->meets && e->end_ns - e->start_ns < AT_SPAN_LONG_OP_NS) return;
  at_span_record(
      &(at_profile_span){.start_ns = e->start_ns,
                         .end_ns = e->end_ns,
                         .flow = f->flow,
                         .kind = op->meets ? AT_SPAN_COLLECTIVE : AT_SPAN_OP,
                         .lane = e->chip},
      name);
}

// Texts are borrowed for the call.
void at_op_record_event(const at_frame *f, const at_op *op,
                        at_profile_event *e) {
  const at_xstep *s = step_of(f, op);
  const char *name = at_loaded_string(f->loaded, s->op_name);
  const char *detail = at_loaded_string(f->loaded, s->hlo);
  if (!e->holds) record_span(f, op, e, *detail ? detail : name);
  const char *file = at_loaded_string(f->loaded, s->file);
  char source[512] = "";
  if (*file) snprintf(source, sizeof source, "%s:%u", file, s->line);
  const at_xheader *h = f->loaded->header;
  e->launch_id = f->launch_id;
  e->program = at_profile_program(h->fingerprint[0]);
  // Ops that are several kernels have one text for all of them.
  e->goes_on = op > f->loaded->ops && s[-1].hlo == s->hlo;
  e->name = *detail ? detail : name;
  e->detail = name;
  e->source = source;
  at_profile_record(e);
}

// Ends now.
void at_op_record(const at_frame *f, const at_op *op, uint64_t start) {
  at_profile_event e = {.start_ns = start,
                        .end_ns = at_clock_ns(),
                        .kind = AT_PROFILE_OP,
                        .chip = f->chip->info.id};
  at_op_record_event(f, op, &e);
}

// A loop or a branch, behind the events of what it ran.
static void record_control(const at_frame *f, const at_op *op, uint64_t start) {
  at_profile_event e = {.start_ns = start,
                        .end_ns = at_clock_ns(),
                        .kind = AT_PROFILE_OP,
                        .chip = f->chip->info.id,
                        .holds = true};
  at_op_record_event(f, op, &e);
}

// The same with a line of the profile.
static at_status run_recorded(at_frame *f, const at_op *op) {
  uint64_t start = at_clock_ns();
  at_status st = run_op(f, op);
  at_op_record(f, op, start);
  return st;
}

// ---- Control flow
typedef enum at_level_kind { LEVEL_ONCE, LEVEL_COND, LEVEL_BODY } at_level_kind;

// Which region of a CASE runs: as StableHLO has it, a number out of range is
// the last; IF counts true as its first.
static uint32_t take_branch(const at_frame *f, const at_op *op) {
  uint32_t branches = (op->num_args - 1) / 2;
  if (op->target)
    return *(const uint8_t *)f->bufs[op->args] ? 0 : AT_MIN(1u, branches - 1);
  int32_t s;
  memcpy(&s, f->bufs[op->args], sizeof s);
  return s >= 0 && (uint32_t)s < branches ? (uint32_t)s : branches - 1;
}

// Goes into a region; WHILE begins with its condition.
static void enter(at_cursor *c, const at_op *op) {
  const at_loaded *l = c->frame.loaded;
  const uint32_t *a = l->args + op->args;
  uint32_t k =
      op->kind == AT_STEP_WHILE ? 1 : 1 + 2 * take_branch(&c->frame, op);
  AT_ASSERT(c->depth + 1 < l->depth);
  c->levels[++c->depth] =
      (at_level){.pc = a[k],
                 .end = a[k + 1],
                 .loop = (uint32_t)(op - l->ops),
                 .kind = op->kind == AT_STEP_WHILE ? LEVEL_COND : LEVEL_ONCE,
                 .entered_ns = c->frame.recorded ? at_clock_ns() : 0};
}

// The innermost range has ended. False: so has the program.
static bool leave(at_cursor *c) {
  at_level *v = &c->levels[c->depth];
  const at_op *op = c->frame.loaded->ops + v->loop;
  if (v->kind != LEVEL_ONCE) {
    const uint32_t *a = c->frame.loaded->args + op->args;
    bool cond = v->kind == LEVEL_COND;
    if (!cond || *(const volatile uint8_t *)c->frame.bufs[op->args]) {
      v->kind = cond ? LEVEL_BODY : LEVEL_COND;
      v->pc = cond ? a[3] : a[1];
      v->end = cond ? a[4] : a[2];
      return true;
    }
  }
  if (c->depth && c->frame.recorded)
    record_control(&c->frame, op, v->entered_ns);
  return c->depth-- > 0;
}

// levels: as many as the program nests, for the caller to allocate.
void at_cursor_start(at_cursor *c, at_level *levels) {
  const at_xheader *h = c->frame.loaded->header;
  c->levels = levels;
  c->depth = 0;
  c->stopped_at = NULL;
  levels[0] = (at_level){.pc = h->main_begin, .end = h->main_end};
}

// A step at which devices wait for each other.
static at_status meet(at_cursor *c, const at_op *op, bool *waits) {
  if (op->kind == AT_STEP_START) return at_meet_start(c, op, waits);
  return op->kind == AT_STEP_DONE ? at_meet_done(c, op, waits)
                                  : at_meet(c, op, waits);
}

// Runs the steps of the innermost range up to its end, or to a step that
// changes the range.
static at_status run_range(at_cursor *c, bool *waits) {
  at_frame *f = &c->frame;
  at_level *v = &c->levels[c->depth];
  const at_op *ops = f->loaded->ops, *op = ops + v->pc, *stop = ops + v->end;
  AT_ASSERT(v->pc <= v->end && v->end <= f->loaded->num_ops);
  for (; op < stop; op++) {
    if (AT_LIKELY(op->kind == AT_STEP_KERNEL && !f->recorded)) {
      run_kernel(f, op);
      continue;
    }
    if (op->meets) {
      v->pc = (uint32_t)(op + 1 - ops);
      uint64_t start = f->recorded ? at_clock_ns() : 0;
      c->stopped_at = f->recorded ? op : NULL;
      c->arrived_ns = start;
      at_status st = meet(c, op, waits);
      if (*waits) return AT_OK;  // and perhaps running elsewhere
      if (st.err) return at_op_blame(f, op, st);
      bool waited = op->kind == AT_STEP_DONE || !at_sparse_is_beside(c, op);
      if (f->recorded && waited) at_op_record(f, op, start);
      c->stopped_at = NULL;
    } else if (op->kind == AT_STEP_WHILE || op->kind == AT_STEP_CASE) {
      v->pc = (uint32_t)(op + 1 - ops);
      enter(c, op);
      return AT_OK;
    } else {
      AT_TRY(f->recorded ? run_recorded(f, op) : run_op(f, op));
    }
  }
  v->pc = v->end;
  return AT_OK;
}

// Ranges until the outermost has ended. An op at which it had stopped is
// recorded when it goes on.
at_status at_cursor_run(at_cursor *c, bool *waits) {
  *waits = false;
  if (c->stopped_at) at_op_record(&c->frame, c->stopped_at, c->arrived_ns);
  c->stopped_at = NULL;
  for (;;) {
    uint32_t depth = c->depth;
    AT_TRY(run_range(c, waits));
    if (*waits) return AT_OK;
    if (c->depth == depth && c->levels[depth].pc == c->levels[depth].end &&
        !leave(c))
      return AT_OK;
  }
}

// Launching: which arguments are given up, what memory outputs take, and
// whether the caller's thread, or the chip's queue on a fiber, runs the steps.
// Launches of one chip run one at a time, in the order of their calls.
#include <stdlib.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "exec/exec_internal.h"
#include "profile/profile.h"

enum {
  kQueueLimit = 64,  // launches that may wait for a chip before callers wait
  kPointersOnStack = 192  // base and buffer pointers of a small program
};

// What one launch needs, wherever it runs.
typedef struct launch {
  at_loaded *loaded;
  at_chip *chip;
  at_buffer *const *args;  // held
  const bool *donated;     // per argument
  at_buffer **outputs;     // held
  const at_host_channel *channels;
  uint32_t num_channels;
  int64_t launch_id;
  bool queued;  // runs on the chip's queue
} launch;

struct at_task {
  at_task *next;
  launch l;
  at_event *done;  // referenced
  // args, outputs, channels and donated follow
};

// ---- Arguments
// -------------------------------------------------------------------------
static at_status wrong_argument(const at_loaded *l, const at_launch *in,
                                uint32_t i) {
  const at_xtype *t = at_io_type(l, &l->inputs[i]);
  const at_buffer *b = in->args[i];
  at_strbuf want = {0}, got = {0};
  at_shape_print((at_dtype)t->dtype, (at_dims){l->dims + t->dims, t->rank},
                 &want);
  at_shape_print(b->dtype, (at_dims){b->dims, b->rank}, &got);
  const char *name = at_loaded_string(l, l->inputs[i].name);
  at_status st = AT_FAIL(
      AT_INVALID_ARGUMENT,
      "argument %u%s%s of %s is %s on device %u, but the program expected %s "
      "on device %u",
      i, *name ? " " : "", name, at_loaded_string(l, l->header->name),
      got.ptr ? got.ptr : "?", b->chip->info.id, want.ptr ? want.ptr : "?",
      in->chip->info.id);
  at_strbuf_free(&want);
  at_strbuf_free(&got);
  return st;
}

static bool matches(const at_loaded *l, uint32_t i, const at_buffer *b,
                    const at_chip *c) {
  const at_xtype *t = at_io_type(l, &l->inputs[i]);
  // JAX passes tokens of ordered effects as empty arrays of booleans.
  if (t->dtype == AT_TOKEN && b->bytes == 0) return b->chip == c;
  if (b->chip != c || (uint32_t)b->dtype != t->dtype || b->rank != t->rank)
    return false;
  for (uint32_t d = 0; d < t->rank; d++)
    if (b->dims[d] != l->dims[t->dims + d]) return false;
  return true;
}

static at_status gone(const at_loaded *l, uint32_t i) {
  return AT_FAIL(AT_INVALID_ARGUMENT,
                 "argument %u of %s: buffer has been deleted or donated\n"
                 "hint: a buffer that is passed as donated cannot be used "
                 "again; pass a copy, or drop it from donate_argnums",
                 i, at_loaded_string(l, l->header->name));
}

static void unhold_all(at_buffer *const *b, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) at_buffer_unhold(b[i]);
}

// Holds every argument and deletes the donated ones.
static at_status take_arguments(const at_loaded *l, const at_launch *in,
                                bool *donated) {
  uint32_t n = 0;
  bool any = false;
  at_status st = AT_OK;
  for (; n < in->num_args; n++) {
    if (!matches(l, n, in->args[n], in->chip)) {
      st = wrong_argument(l, in, n);
      goto fail;
    }
    if (!at_buffer_hold(in->args[n])) {
      st = gone(l, n);
      goto fail;
    }
  }
  for (uint32_t i = 0; i < n; i++) {
    const at_xio *io = &l->inputs[i];
    donated[i] = (io->donated || io->alias >= 0) &&
                 !(in->not_donatable && in->not_donatable[i]);
    if (donated[i] && !at_buffer_delete_once(in->args[i])) {
      st = AT_FAIL(AT_INVALID_ARGUMENT,
                   "Attempt to donate the same buffer twice in Execute() "
                   "(argument %u of %s)",
                   i, at_loaded_string(l, l->header->name));
      goto fail;
    }
    any |= donated[i];
  }
  for (uint32_t i = 0; any && i < n; i++) {
    if (donated[i] || !at_buffer_is_deleted(in->args[i])) continue;
    st = AT_FAIL(AT_INVALID_ARGUMENT,
                 "Attempt to donate a buffer which is also used by the same "
                 "call to Execute() (argument %u of %s)\n"
                 "hint: f(donate(a), a) cannot work; pass a copy",
                 i, at_loaded_string(l, l->header->name));
    goto fail;
  }
  return AT_OK;
fail:
  unhold_all(in->args, n);
  return st;
}

// ---- Memory
// ---------------------------------------------------------------------------
// Input i and the output it names live in one place: the donated buffer's
// memory when nobody else reads it, else a copy.
static at_status share_memory(const launch *l, uint32_t i, void **base) {
  at_buffer *from = l->args[i];
  uint32_t o = (uint32_t)l->loaded->inputs[i].alias;
  at_buffer *to = l->outputs[o];
  if (l->donated[i] && from->owned && from->data && from->kind == to->kind &&
      at_buffer_sole_hold(from)) {
    at_chip_move(l->chip, from, to);
  } else {
    AT_TRY(at_chip_allocate(l->chip, to, l->queued));
    at_copy_bytes(l->chip->runtime->pool, to->data, from->data, to->bytes);
  }
  base[AT_BASE_INPUTS + i] = to->data;
  return AT_OK;
}

static at_status place_buffers(const launch *l, void **base) {
  static _Alignas(64) uint8_t nothing[64];
  const at_loaded *p = l->loaded;
  base[AT_BASE_NOTHING] = nothing;
  base[AT_BASE_TEMP] = nothing;
  base[AT_BASE_CONST] = p->block + p->header->sections[AT_XS_CONSTANTS].offset;
  for (uint32_t i = 0; i < p->num_inputs; i++) {
    if (at_io_shares(p, i))
      AT_TRY(share_memory(l, i, base));
    else
      base[AT_BASE_INPUTS + i] = l->args[i]->data;
  }
  for (uint32_t o = 0; o < p->num_outputs; o++) {
    at_buffer *b = l->outputs[o];
    if (!b->data) AT_TRY(at_chip_allocate(l->chip, b, l->queued));
    base[AT_BASE_INPUTS + p->num_inputs + o] = b->data;
  }
  return AT_OK;
}

static void record_launch(const launch *l, uint64_t start) {
  const at_loaded *p = l->loaded;
  at_profile_record(
      &(at_profile_event){.start_ns = start,
                          .end_ns = at_clock_ns(),
                          .kind = AT_PROFILE_MODULE,
                          .chip = l->chip->info.id,
                          .launch_id = l->launch_id,
                          .name = at_loaded_string(p, p->header->name)});
}

// Runs with pointer tables of the right size.
static at_status run_with(const launch *l, void **base, void **bufs) {
  const at_loaded *p = l->loaded;
  size_t temp = p->header->temp_bytes;
  AT_TRY(place_buffers(l, base));
  if (temp)
    AT_TRY(at_chip_take_scratch(l->chip, temp, true, &base[AT_BASE_TEMP]));
  for (uint32_t i = 0; i < p->num_args; i++)
    bufs[i] = (uint8_t *)base[p->arg_refs[i].base] + p->arg_refs[i].offset;
  at_frame f = {.loaded = p,
                .chip = l->chip,
                .pool = l->chip->runtime->pool,
                .bufs = bufs,
                .channels = l->channels,
                .num_channels = l->num_channels,
                .launch_id = l->launch_id,
                .recorded = at_profile_on()};
  uint64_t start = f.recorded ? at_clock_ns() : 0;
  uint32_t modes = at_cpu_fp_default();
  at_status st = at_run_steps(&f, p->header->main_begin, p->header->main_end);
  at_cpu_fp_restore(modes);
  if (AT_UNLIKELY(f.recorded)) record_launch(l, start);
  if (temp) at_chip_give_scratch(l->chip, base[AT_BASE_TEMP], temp, true);
  return st;
}

static at_status run_launch(const launch *l) {
  const at_loaded *p = l->loaded;
  size_t bases = (size_t)AT_BASE_INPUTS + p->num_inputs + p->num_outputs;
  size_t pointers = bases + p->num_args;
  at_status st;
  if (pointers <= kPointersOnStack) {
    void *table[kPointersOnStack];
    st = run_with(l, table, table + bases);
  } else {
    void *table;
    st =
        at_chip_take_scratch(l->chip, pointers * sizeof(void *), false, &table);
    if (!st.err) st = run_with(l, table, (void **)table + bases);
    at_chip_give_scratch(l->chip, table, pointers * sizeof(void *), false);
  }
  if (st.err)  // nobody will read these
    for (uint32_t o = 0; o < p->num_outputs; o++)
      at_chip_free(l->chip, l->outputs[o]);
  unhold_all(l->args, p->num_inputs);
  return st;
}

// Outputs without memory, each with one reference and one hold.
static at_status make_outputs(const at_loaded *l, at_chip *c, at_event *ready,
                              at_buffer **out) {
  for (uint32_t o = 0; o < l->num_outputs; o++) {
    const at_xtype *t = at_io_type(l, &l->outputs[o]);
    const char *kind = at_loaded_string(l, l->outputs[o].memory_kind);
    at_memory_kind k = AT_MEM_DEVICE;
    if (*kind == 'p') k = AT_MEM_PINNED_HOST;
    if (*kind == 'u') k = AT_MEM_UNPINNED_HOST;
    at_status st = at_buffer_make(c, k, (at_dtype)t->dtype,
                                  (at_dims){l->dims + t->dims, t->rank},
                                  at_event_retain(ready), &out[o]);
    if (st.err) {
      while (o-- > 0) {
        at_buffer_unhold(out[o]);
        at_buffer_release(out[o]);
        out[o] = NULL;
      }
      return st;
    }
    at_buffer_hold(out[o]);
  }
  return AT_OK;
}

// ---- The chip's turn
// ---------------------------------------------------------------------
static bool become_active(at_chip *c) {
  uint32_t idle = 0;
  return atomic_compare_exchange_strong(&c->active, &idle, 1);
}

static void start_drain(at_chip *c) {
  if (at_code_take(at_sched_spawn(c->runtime->sched, at_chip_drain, c)))
    at_chip_drain(c);  // no fiber to be had: this thread does it
}

// Ends a turn on the caller's thread; launches that came meanwhile get a fiber.
static void end_turn(at_chip *c) {
  atomic_store(&c->active, 0);
  if (atomic_load(&c->depth) && become_active(c)) start_drain(c);
  at_chip_notify(c);
}

static void enqueue(at_chip *c, at_task *t) {
  atomic_fetch_add(&c->depth, 1);
  t->next = NULL;
  pthread_mutex_lock(&c->lock);
  if (c->tail)
    c->tail->next = t;
  else
    c->head = t;
  c->tail = t;
  pthread_mutex_unlock(&c->lock);
  if (become_active(c)) start_drain(c);
}

static at_task *dequeue(at_chip *c) {
  pthread_mutex_lock(&c->lock);
  at_task *t = c->head;
  if (t) {
    c->head = t->next;
    if (!c->head) c->tail = NULL;
  } else {
    atomic_store(&c->active, 0);
  }
  pthread_mutex_unlock(&c->lock);
  return t;
}

static at_status wait_for_arguments(const launch *l) {
  for (uint32_t i = 0; i < l->loaded->num_inputs; i++)
    AT_TRY(at_event_wait(l->args[i]->ready));
  return AT_OK;
}

static at_status run_task(at_task *t) {
  at_status st = wait_for_arguments(&t->l);
  if (!st.err) return run_launch(&t->l);
  unhold_all(t->l.args, t->l.loaded->num_inputs);
  return st;
}

static void finish_task(at_task *t, at_status st) {
  unhold_all(t->l.outputs, t->l.loaded->num_outputs);
  at_event_fire(t->done, st);
  at_event_release(t->done);
  at_loaded_release(t->l.loaded);
  free(t);
}

// A launch is announced after the chip has moved on: whoever waited for the
// last one finds the chip idle.
void at_chip_drain(void *chip) {
  at_chip *c = chip;
  for (at_task *t = dequeue(c), *next; t; t = next) {
    at_status st = run_task(t);
    atomic_fetch_sub(&c->depth, 1);
    next = dequeue(c);
    at_chip_notify(c);
    finish_task(t, st);
  }
}

// Back-pressure: a caller that runs far ahead waits for the chip.
static void wait_for_room(at_chip *c) {
  while (atomic_load(&c->depth) >= kQueueLimit) {
    at_event *e = at_chip_next_notice(c);
    if (!e) return;
    if (atomic_load(&c->depth) >= kQueueLimit) at_status_free(at_event_wait(e));
    at_event_release(e);
  }
}

// ---- The two ways
// --------------------------------------------------------------------------
static bool may_run_here(const at_loaded *l, const at_launch *in) {
  if (!l->small || atomic_load_explicit(&in->chip->depth, memory_order_relaxed))
    return false;
  for (uint32_t i = 0; i < in->num_args; i++)
    if (!at_event_fired(in->args[i]->ready)) return false;
  return become_active(in->chip);
}

static at_status first_error(const at_launch *in) {
  for (uint32_t i = 0; i < in->num_args; i++)
    AT_TRY(at_event_status(in->args[i]->ready));
  return AT_OK;
}

// All arguments are ready and the chip is ours. A failure is returned, not put
// into the outputs.
static at_status run_here(at_loaded *l, const at_launch *in, bool *donated,
                          at_buffer **outputs) {
  at_status st = first_error(in);
  if (!st.err) st = make_outputs(l, in->chip, at_event_done(), outputs);
  if (st.err) {
    unhold_all(in->args, in->num_args);
    return st;
  }
  launch run = {.loaded = l,
                .chip = in->chip,
                .args = in->args,
                .donated = donated,
                .outputs = outputs,
                .channels = in->channels,
                .num_channels = in->num_channels,
                .launch_id = in->launch_id};
  st = run_launch(&run);
  unhold_all(outputs, l->num_outputs);
  for (uint32_t o = 0; st.err && o < l->num_outputs; o++) {
    at_buffer_release(outputs[o]);
    outputs[o] = NULL;
  }
  return st;
}

static at_task *make_task(at_loaded *l, const at_launch *in,
                          const bool *donated) {
  size_t args = in->num_args * sizeof(at_buffer *);
  size_t outputs = l->num_outputs * sizeof(at_buffer *);
  size_t channels = in->num_channels * sizeof *in->channels;
  at_task *t = malloc(sizeof *t + args + outputs + channels + in->num_args);
  if (!t) return NULL;
  uint8_t *p = (uint8_t *)(t + 1);
  if (args) memcpy(p, in->args, args);
  if (channels) memcpy(p + args + outputs, in->channels, channels);
  if (args) memcpy(p + args + outputs + channels, donated, in->num_args);
  *t =
      (at_task){.l = {.loaded = l,
                      .chip = in->chip,
                      .args = (at_buffer **)p,
                      .outputs = (at_buffer **)(p + args),
                      .channels = (const at_host_channel *)(p + args + outputs),
                      .num_channels = in->num_channels,
                      .donated = (bool *)(p + args + outputs + channels),
                      .launch_id = in->launch_id,
                      .queued = true}};
  return t;
}

static at_status run_queued(at_loaded *l, const at_launch *in, bool *donated,
                            at_buffer **outputs, at_event **out_done) {
  at_task *t = make_task(l, in, donated);
  at_event *done = t ? at_event_create() : NULL;
  at_status st = done
                     ? make_outputs(l, in->chip, done, t->l.outputs)
                     : AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a launch");
  if (st.err) {
    at_event_release(done);
    free(t);
    unhold_all(in->args, in->num_args);
    return st;
  }
  if (l->num_outputs)
    memcpy(outputs, t->l.outputs, l->num_outputs * sizeof *outputs);
  at_loaded_retain(l);
  t->done = done;
  if (out_done) *out_done = at_event_retain(done);
  enqueue(in->chip, t);
  return AT_OK;
}

at_status at_loaded_execute(at_loaded *l, const at_launch *in,
                            at_buffer **outputs, at_event **out_done) {
  AT_TRY(at_runtime_check(l->runtime));
  if (in->num_args != l->num_inputs)
    return AT_FAIL(
        AT_INVALID_ARGUMENT, "%s takes %u arguments, but the launch has %u",
        at_loaded_string(l, l->header->name), l->num_inputs, in->num_args);
  bool few[64], *donated = few;
  if (in->num_args > AT_LEN(few)) {
    donated = malloc(in->num_args);
    if (!donated)
      return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a launch");
  }
  at_status st = take_arguments(l, in, donated);
  if (!st.err) {
    if (may_run_here(l, in)) {
      st = run_here(l, in, donated, outputs);
      end_turn(in->chip);
      if (!st.err && out_done) *out_done = at_event_done();
    } else {
      wait_for_room(in->chip);
      st = run_queued(l, in, donated, outputs, out_done);
    }
  }
  if (donated != few) free(donated);
  return st;
}

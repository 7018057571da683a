// Launching: which arguments are given up, what memory outputs take, and
// whether the caller's thread or lanes run the steps. Launches of one chip run
// one at a time, in the order in which they entered its queue.
#include <stdlib.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/finding.h"
#include "exec/exec_internal.h"
#include "profile/profile.h"

enum {
  // Back-pressure: what may wait before callers do.
  kQueueLimit = 4096,       // launches for one chip
  kQueueBytes = 256 << 20,  // of all launches: their own memory, not buffers
  kPointersOnStack = 192,   // base and buffer pointers of a small program
  kLevelsOnStack = 8
};
// A part that takes longer than this is worth waking another lane.
static const double kHeavyNs = 30e3;

// What one device of a launch needs, wherever it runs.
typedef struct launch {
  const at_loaded *loaded;
  at_chip *chip;
  at_buffer *const *args;  // held
  const uint8_t *donated;  // per argument
  at_buffer **outputs;     // held
  bool queued;             // runs on the chip's queue
  uint32_t *pinned;        // arguments that are
} launch;

static uint32_t num_chips(const at_launch *in) {
  return in->num_chips ? in->num_chips : 1;
}
static at_chip *chip_of(const at_launch *in, uint32_t d) {
  return in->num_chips ? in->chips[d] : in->chip;
}

// ---- Arguments
static at_status wrong_argument(const at_loaded *l, const at_buffer *b,
                                const at_chip *c, uint32_t i) {
  const at_xtype *t = at_io_type(l, &l->inputs[i]);
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
      c->info.id);
  at_strbuf_free(&want);
  at_strbuf_free(&got);
  return st;
}

// Dimensions of size 1 aside: they are the same bytes, and clients rely on it
// (PyTorch's pass i64[1] for i64[]).
static bool same_dims(at_dims a, at_dims b) {
  uint32_t i = 0, k = 0;
  for (;; i++, k++) {
    while (i < a.rank && a.ptr[i] == 1) i++;
    while (k < b.rank && b.ptr[k] == 1) k++;
    if (i == a.rank || k == b.rank) return i == a.rank && k == b.rank;
    if (a.ptr[i] != b.ptr[k]) return false;
  }
}

// Is b what parameter i of the program takes, and on that device?
static bool matches(const at_loaded *l, uint32_t i, const at_buffer *b,
                    const at_chip *c) {
  const at_xtype *t = at_io_type(l, &l->inputs[i]);
  // JAX passes tokens of ordered effects as empty arrays of booleans.
  if (t->dtype == AT_TOKEN && b->bytes == 0) return b->chip == c;
  return b->chip == c && (uint32_t)b->dtype == t->dtype &&
         same_dims((at_dims){b->dims, b->rank},
                   (at_dims){l->dims + t->dims, t->rank});
}

// INVALID_ARGUMENT in the words that JAX's tests look for.
static at_status gone(const at_loaded *l, uint32_t i) {
  return AT_FAIL(AT_INVALID_ARGUMENT,
                 "argument %u of %s: buffer has been deleted or donated\n"
                 "hint: a buffer that is passed as donated cannot be used "
                 "again; pass a copy, or drop it from donate_argnums",
                 i, at_loaded_string(l, l->header->name));
}

// Gives back holds; may free arrays that were deleted meanwhile.
static void unhold_all(at_buffer *const *b, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) at_buffer_unhold(b[i]);
}

// Checks every argument and holds its memory, or holds none and says which is
// wrong.
static at_status hold_arguments(const at_loaded *l, const at_launch *in) {
  uint32_t n = 0, all = num_chips(in) * l->num_inputs;
  at_status st = AT_OK;
  for (; n < all && !st.err; n++) {
    uint32_t i = n % l->num_inputs;
    const at_chip *c = chip_of(in, n / l->num_inputs);
    if (!matches(l, i, in->args[n], c))
      st = wrong_argument(l, in->args[n], c, i);
    else if (!at_buffer_hold(in->args[n]))
      st = gone(l, i);
  }
  if (st.err) unhold_all(in->args, n - 1);
  return st;
}

// INVALID_ARGUMENT in XLA's words.
static at_status twice(const at_loaded *l, uint32_t i) {
  return AT_FAIL(AT_INVALID_ARGUMENT,
                 "Attempt to donate the same buffer twice in Execute() "
                 "(argument %u of %s)",
                 i, at_loaded_string(l, l->header->name));
}

// Deletes the donated ones.
static at_status give_up_arguments(const at_loaded *l, const at_launch *in,
                                   uint8_t *donated) {
  bool any = false;
  for (uint32_t i = 0; i < l->num_inputs; i++) {
    const at_xio *io = &l->inputs[i];
    donated[i] = (io->donated || io->alias >= 0) &&
                 !(in->not_donatable && in->not_donatable[i]);
    any |= donated[i];
  }
  if (!any) return AT_OK;
  uint32_t all = num_chips(in) * l->num_inputs;
  for (uint32_t n = 0; n < all; n++)
    if (donated[n % l->num_inputs] && !at_buffer_delete_once(in->args[n]))
      return twice(l, n % l->num_inputs);
  for (uint32_t n = 0; n < all; n++) {
    uint32_t i = n % l->num_inputs;
    if (donated[i] || !at_buffer_is_deleted(in->args[n])) continue;
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "Attempt to donate a buffer which is also used by the same "
                   "call to Execute() (argument %u of %s)\n"
                   "hint: f(donate(a), a) cannot work; pass a copy",
                   i, at_loaded_string(l, l->header->name));
  }
  return AT_OK;
}

// Holds all arguments and deletes the donated ones. On failure nothing is held,
// but arguments that were donated by then stay deleted.
static at_status take_arguments(const at_loaded *l, const at_launch *in,
                                uint8_t *donated) {
  AT_TRY(hold_arguments(l, in));
  at_status st = give_up_arguments(l, in, donated);
  if (st.err) unhold_all(in->args, num_chips(in) * l->num_inputs);
  return st;
}

// ---- Memory
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

// Output o is an argument that the caller keeps.
static at_status pass_through(const launch *l, uint32_t i, uint32_t o) {
  at_buffer *from = l->args[i], *to = l->outputs[o];
  at_status st;
  if (at_buffer_share(from, to, l->queued, &st)) return st;
  AT_TRY(at_chip_allocate(l->chip, to, l->queued));
  at_copy_bytes(l->chip->runtime->pool, to->data, from->data, to->bytes);
  return AT_OK;
}

// base[] of one device: where inputs, outputs and constants are. Inputs are
// pinned as they are placed; *l->pinned counts them for unpin_all.
static at_status place_buffers(const launch *l, void **base) {
  static _Alignas(64) uint8_t nothing[64];
  const at_loaded *p = l->loaded;
  base[AT_BASE_NOTHING] = nothing;
  base[AT_BASE_TEMP] = nothing;
  base[AT_BASE_CONST] = p->block + p->header->sections[AT_XS_CONSTANTS].offset;
  for (uint32_t i = 0; i < p->num_inputs; i++) {
    AT_TRY(at_chip_pin(l->chip, l->args[i]));
    ++*l->pinned;
    if (at_io_shares(p, i))
      AT_TRY(share_memory(l, i, base));
    else
      base[AT_BASE_INPUTS + i] = l->args[i]->data;
  }
  for (uint32_t o = 0; o < p->num_outputs; o++) {
    at_buffer *b = l->outputs[o];
    int32_t i = at_io_passes(p, o);
    if (i >= 0) AT_TRY(pass_through(l, (uint32_t)i, o));
    if (!b->data) AT_TRY(at_chip_allocate(l->chip, b, l->queued));
    base[AT_BASE_INPUTS + p->num_inputs + o] = b->data;
  }
  return AT_OK;
}

// What it read and made may go elsewhere from now on.
static void unpin_all(at_chip *c, at_buffer *const *args, uint32_t pinned,
                      at_buffer *const *outputs, uint32_t num_outputs) {
  if (AT_LIKELY(!c->runtime->spill)) return;
  for (uint32_t i = 0; i < pinned; i++) at_chip_unpin(c, args[i]);
  for (uint32_t o = 0; o < num_outputs; o++) at_chip_unpin(c, outputs[o]);
}

// For the profile and for spans: the whole run of one device.
static void record_launch(const at_loaded *p, const at_chip *c, int64_t id,
                          uint64_t flow, uint64_t start) {
  at_span_record(&(at_profile_span){.start_ns = start,
                                    .end_ns = at_clock_ns(),
                                    .flow = flow,
                                    .kind = AT_SPAN_RUN,
                                    .lane = c->info.id},
                 at_loaded_string(p, p->header->name));
  at_profile_record(&(at_profile_event){
      .start_ns = start,
      .end_ns = at_clock_ns(),
      .kind = AT_PROFILE_MODULE,
      .chip = c->info.id,
      .launch_id = id,
      .program = at_profile_program(p->header->fingerprint[0]),
      .name = at_loaded_string(p, p->header->name)});
}

// A device of a launch ends, which began at start_ns; 0: it did not.
static void end_times(at_launch_times *t, uint64_t start_ns) {
  uint64_t now = at_clock_ns(), first = 0;
  if (start_ns &&
      !atomic_compare_exchange_strong(&t->start_ns, &first, start_ns))
    while (start_ns < first &&
           !atomic_compare_exchange_weak(&t->start_ns, &first, start_ns)) {
    }
  atomic_store(&t->end_ns, now);
  atomic_fetch_sub(&t->left, 1);
}

// Entries of base[]: nothing, scratch, constants, inputs, outputs.
static size_t num_bases(const at_loaded *p) {
  return (size_t)AT_BASE_INPUTS + p->num_inputs + p->num_outputs;
}

// Memory of a launch; then bufs[], by the program's arguments of steps.
static at_status place_all(const launch *l, void **base, void **bufs,
                           void **out_temp) {
  const at_loaded *p = l->loaded;
  size_t temp = p->header->temp_bytes;
  *out_temp = NULL;
  AT_TRY(place_buffers(l, base));
  if (temp) AT_TRY(at_chip_take_scratch(l->chip, temp, true, out_temp));
  if (temp) base[AT_BASE_TEMP] = *out_temp;
  AT_ASSERT(!temp || (uintptr_t)*out_temp % 64 == 0);
  for (uint32_t i = 0; i < p->num_args; i++)
    bufs[i] = (uint8_t *)base[p->arg_refs[i].base] + p->arg_refs[i].offset;
  return AT_OK;
}

// Memory only; the buffers stay, failed.
static void free_outputs(at_buffer *const *b, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) at_chip_free(b[i]->chip, b[i]);
}

// One device, on the caller's thread, with tables of the right size.
static at_status run_with(const launch *l, const at_launch *in, void **base,
                          at_level *levels) {
  const at_loaded *p = l->loaded;
  void **bufs = base + num_bases(p), *temp;
  at_status st = place_all(l, base, bufs, &temp);
  if (!st.err) {
    at_cursor c = {.frame = {.loaded = p,
                             .chip = l->chip,
                             .pool = l->chip->runtime->pool,
                             .bufs = bufs,
                             .channels = in->channels,
                             .launch_id = in->launch_id,
                             .flow = in->flow,
                             .device = in->alone ? in->device : 0,
                             .recorded = at_profile_on()}};
    bool timed = c.frame.recorded || in->times;
    uint64_t start = AT_UNLIKELY(timed) ? at_clock_ns() : 0;
    uint32_t modes = at_cpu_fp_default();
    bool waits;
    at_cursor_start(&c, levels);
    st = at_cursor_run(&c, &waits);
    at_cpu_fp_restore(modes);
    if (AT_UNLIKELY(c.frame.recorded))
      record_launch(p, l->chip, in->launch_id, in->flow, start);
    if (AT_UNLIKELY(in->times != NULL)) end_times(in->times, start);
  } else if (in->times) {
    end_times(in->times, 0);
  }
  at_chip_give_scratch(l->chip, temp, p->header->temp_bytes, true);
  unpin_all(l->chip, l->args, *l->pinned, l->outputs, p->num_outputs);
  return st;
}

// Tables of most programs fit on the stack: no allocation per launch.
static at_status run_one(const launch *l, const at_launch *in) {
  const at_loaded *p = l->loaded;
  size_t pointers = num_bases(p) + p->num_args;
  if (pointers <= kPointersOnStack && p->depth <= kLevelsOnStack) {
    void *table[kPointersOnStack];
    at_level levels[kLevelsOnStack];
    return run_with(l, in, table, levels);
  }
  void **table =
      malloc(pointers * sizeof(void *) + p->depth * sizeof(at_level));
  if (!table) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a launch");
  at_status st = run_with(l, in, table, (at_level *)(table + pointers));
  free(table);
  return st;
}

// Outputs of one device without memory, each with one reference and one hold.
static at_status make_outputs_of(const at_loaded *l, at_chip *c,
                                 at_event *ready, at_buffer **out) {
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
    const char *layout = at_loaded_string(l, l->outputs[o].layout);
    if (*layout)
      out[o]->padded_bytes =
          at_hw_layout_bytes(c->hw, (at_dtype)t->dtype,
                             (at_dims){l->dims + t->dims, t->rank}, layout);
  }
  return AT_OK;
}

// Undoes make_outputs.
static void drop_outputs(at_buffer **out, uint32_t n) {
  unhold_all(out, n);
  for (uint32_t o = 0; o < n; o++) {
    at_buffer_release(out[o]);
    out[o] = NULL;
  }
}

// Outputs of all devices, or none. `ready` fires for all of them.
static at_status make_outputs(const at_loaded *l, const at_launch *in,
                              at_event *ready, at_buffer **out) {
  for (uint32_t d = 0; d < num_chips(in); d++) {
    at_status st = make_outputs_of(l, chip_of(in, d), ready,
                                   out + (size_t)d * l->num_outputs);
    if (!st.err) continue;
    drop_outputs(out, d * l->num_outputs);
    return st;
  }
  return AT_OK;
}

// ---- A launch of several devices, or one that waits
// Everything in one block: task, parts, meetings, message, channels.
static at_task *make_task(at_loaded *l, const at_launch *in) {
  uint32_t n = num_chips(in), lists = in->channels ? n : 0;
  size_t channels = 0;
  for (uint32_t d = 0; d < lists; d++) channels += in->channels[d].count;
  size_t meetings = at_align_up(l->num_meetings * sizeof(uint32_t), 8);
  uint64_t message = at_launch_message_bytes(n, l->num_inputs, l->num_outputs);
  size_t jobs = l->num_beside * sizeof(at_sparse_job);
  size_t bytes = sizeof(at_task) + n * sizeof(at_part) + jobs + meetings +
                 message + lists * sizeof(at_channel_list) +
                 channels * sizeof(at_host_channel);
  at_task *t = malloc(bytes);
  if (!t) return NULL;
  memset(t, 0, sizeof *t + n * sizeof(at_part) + jobs + meetings);
  pthread_mutex_init(&t->lock, NULL);
  t->loaded = l;
  t->times = in->times;
  t->flow = in->flow;
  t->first = in->alone ? in->device : 0;
  t->made_ns = at_spans_on() ? at_clock_ns() : 0;
  t->bytes = bytes + (uint64_t)n * l->num_outputs * sizeof(at_buffer);
  t->jobs = (at_sparse_job *)(t->parts + n);
  t->meetings = (uint32_t *)(t->jobs + l->num_beside);
  t->message = (at_launch_message *)((uint8_t *)t->meetings + meetings);
  *t->message = (at_launch_message){.bytes = message,
                                    .program = (uint64_t)(uintptr_t)l,
                                    .launch_id = in->launch_id,
                                    .num_devices = n,
                                    .num_inputs = l->num_inputs,
                                    .num_outputs = l->num_outputs};
  size_t args = (size_t)n * l->num_inputs * sizeof(at_buffer *);
  if (args) memcpy(at_launch_inputs(t->message), in->args, args);
  for (uint32_t d = 0; d < n; d++) {
    at_launch_devices(t->message)[d] = chip_of(in, d)->info.id;
    t->parts[d] = (at_part){.task = t, .chip = chip_of(in, d), .device = d};
  }
  at_channel_list *c = (void *)((uint8_t *)t->message + message);
  at_host_channel *list = (at_host_channel *)(c + lists);
  if (lists) t->channels = c;
  for (uint32_t d = 0; d < lists; d++) {
    c[d] = (at_channel_list){list, in->channels[d].count};
    if (c[d].count)
      memcpy(list, in->channels[d].list, c[d].count * sizeof *list);
    list += c[d].count;
  }
  t->heavy = l->header->estimated_ns > kHeavyNs;
  t->pace_ns = (uint64_t)(l->header->estimated_ns / (l->num_colls + 1));
  return t;
}

// The message, parts and tables are part of the block.
void at_task_free(at_task *t) {
  at_event_release(t->unwanted);
  if (t->far_work) atomic_fetch_sub(t->far_work, 1);
  pthread_mutex_destroy(&t->lock);
  at_status_free(t->failed);
  free(t);
}

// Other hosts wait for this one no longer. Consumes st; returns why the launch
// fails here: what another host has told, or st.
static at_status tell_others(at_task *t, at_status st) {
  const at_hosts *h = t->loaded->runtime->hosts;
  const at_far *f = t->loaded->far;
  at_hosts_tag tag = at_far_tag(t);
  at_status cause = AT_OK;
  if (h->cause) cause = h->cause(h->arg, &tag, f->others, f->num_others);
  st = at_status_join(cause, st);
  h->fail(h->arg, &tag, f->others, f->num_others, st);
  return st;
}

// Parts that wait at a collective are made ready, so that they find the failure
// and end. Those in the middle of a transfer are left alone.
void at_task_fail(at_task *t, at_status st) {
  at_part *woken = NULL;
  uint32_t count = 0;
  if (t->loaded->far && st.err) st = tell_others(t, st);
  at_finding_note(st, "run");
  pthread_mutex_lock(&t->lock);
  if (t->failed.err)
    at_status_free(st);
  else
    t->failed = st;
  atomic_store(&t->has_failed, true);
  for (uint32_t d = 0; d < at_task_devices(t); d++) {
    at_part *p = &t->parts[d];
    if (p->state != AT_PART_WAITING) continue;
    p->state = AT_PART_READY;
    p->next = woken;
    woken = p;
    count++;
  }
  pthread_mutex_unlock(&t->lock);
  if (!count) return;
  atomic_fetch_sub(&t->loaded->runtime->lanes.waiting, count);
  at_parts_ready(t, woken, count);
}

// Cursor, base[], bufs[] and levels in one block.
static at_status begin_tables(at_part *p) {
  const at_loaded *l = p->task->loaded;
  size_t pointers = num_bases(l) + l->num_args;
  at_cursor *c = malloc(sizeof *c + pointers * sizeof(void *) +
                        l->depth * sizeof(at_level));
  if (!c) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a launch");
  p->tables = c;
  return AT_OK;
}

// From the launch to its turn on the chip, and from there to its begin.
static void record_waits(const at_part *p, uint64_t now_ns) {
  const at_task *t = p->task;
  at_profile_span s = {.start_ns = t->made_ns,
                       .end_ns = AT_MAX(p->turn_ns, t->made_ns),
                       .flow = t->flow,
                       .kind = AT_SPAN_TURN,
                       .lane = p->chip->info.id};
  const char *name = at_loaded_string(t->loaded, t->loaded->header->name);
  at_span_record(&s, name);
  s.start_ns = s.end_ns;
  s.end_ns = AT_MAX(now_ns, s.start_ns);
  s.kind = AT_SPAN_ARGUMENTS;
  at_span_record(&s, name);
}

// On a lane, when the part's turn has come and its arguments are there. On
// failure at_part_end gives back what was taken.
at_status at_part_begin(at_part *p) {
  at_task *t = p->task;
  const at_loaded *l = t->loaded;
  at_runtime *rt = p->chip->runtime;
  if (t->unwanted && at_event_fired(t->unwanted))
    return AT_FAIL(AT_CANCELLED, "nobody wants the results of %s any more",
                   at_loaded_string(l, l->header->name));
  AT_TRY(begin_tables(p));
  at_cursor *c = p->tables;
  void **base = (void **)(c + 1), **bufs = base + num_bases(l);
  launch run = {.loaded = l,
                .chip = p->chip,
                .args = at_part_args(p),
                .donated = at_launch_donated(t->message),
                .outputs = at_part_outputs(p),
                .queued = !t->local,
                .pinned = &p->pinned};
  AT_TRY(place_all(&run, base, bufs, &p->temp));
  // With as many devices as lanes each lane is one thread's worth of work.
  bool fills = at_task_devices(t) > 1 && at_task_devices(t) >= rt->lanes.most;
  *c = (at_cursor){
      .frame = {.loaded = l,
                .chip = p->chip,
                .pool = fills ? rt->serial : rt->pool,
                .bufs = bufs,
                .channels = t->channels ? &t->channels[p->device] : NULL,
                .launch_id = t->message->launch_id,
                .flow = t->flow,
                .device = at_device_number(l, t->first + p->device),
                .recorded = at_profile_on(),
                .in_lane = !t->local},
      .part = p,
      .arrived_ns = at_profile_on() || t->times ? at_clock_ns() : 0};
  if (t->made_ns) record_waits(p, c->arrived_ns);
  at_cursor_start(c, (at_level *)(bufs + l->num_args));
  c->started_ns = c->arrived_ns;
  p->cursor = c;
  return AT_OK;
}

// Also of a part that never began.
void at_part_end(at_part *p) {
  const at_loaded *l = p->task->loaded;
  if (AT_UNLIKELY(p->task->times != NULL))
    end_times(p->task->times, p->cursor ? p->cursor->started_ns : 0);
  if (p->cursor && p->cursor->frame.recorded)
    record_launch(l, p->chip, p->task->message->launch_id, p->task->flow,
                  p->cursor->started_ns);
  at_chip_give_scratch(p->chip, p->temp, l->header->temp_bytes, true);
  free(p->tables);
  p->cursor = NULL;
  p->tables = p->temp = NULL;
  unpin_all(p->chip, at_part_args(p), p->pinned, at_part_outputs(p),
            l->num_outputs);
  p->pinned = 0;
  unhold_all(at_part_args(p), l->num_inputs);
}

// Back-pressure: a caller that runs far ahead waits for the chips.
static bool has_room(const at_chip *c) {
  return atomic_load(&c->depth) < kQueueLimit &&
         atomic_load(&c->runtime->queued_bytes) < kQueueBytes;
}

// Looks again after asking for the notice, so that none is missed.
static void wait_for_room(at_chip *c) {
  while (!has_room(c) && atomic_load(&c->depth)) {
    at_event *e = at_chip_next_notice(c);
    if (!e) return;
    if (!has_room(c) && atomic_load(&c->depth))
      at_status_free(at_event_wait(e));
    at_event_release(e);
  }
}

// ---- The two ways
// Never waits.
static bool all_arrived(const at_launch *in) {
  uint32_t all = num_chips(in) * in->num_args;
  for (uint32_t i = 0; i < all; i++)
    if (!at_event_fired(in->args[i]->ready)) return false;
  return true;
}

// A small program whose arguments are there, and whose chips have nothing to
// do.
static bool may_begin_here(at_loaded *l, const at_launch *in) {
  if (!at_loaded_is_small(l) || at_in_fiber()) return false;
  for (uint32_t d = 0; d < num_chips(in); d++)
    if (atomic_load_explicit(&chip_of(in, d)->depth, memory_order_relaxed))
      return false;
  return all_arrived(in);
}

// The caller's thread runs it all, unless other hosts have a part in it: it
// takes the turn of all chips.
static bool may_run_here(at_loaded *l, const at_launch *in) {
  if (l->far || !may_begin_here(l, in)) return false;
  uint32_t n = num_chips(in), d;
  for (d = 0; d < n; d++)
    if (!at_chip_become_active(chip_of(in, d))) break;
  if (d == n) return true;
  while (d-- > 0) at_chip_end_turn(chip_of(in, d));
  return false;
}

// The error that an argument carries: the launch then does not run.
static at_status first_error(const at_launch *in) {
  uint32_t all = num_chips(in) * in->num_args;
  for (uint32_t i = 0; i < all; i++)
    AT_TRY(at_event_status(in->args[i]->ready));
  return AT_OK;
}

// run_here for a program over several devices: their cursors take turns on this
// thread.
static at_status run_several(at_loaded *l, const at_launch *in,
                             const uint8_t *donated, at_buffer **outputs) {
  at_task *t = make_task(l, in);
  if (!t) {
    unhold_all(in->args, num_chips(in) * l->num_inputs);
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a launch");
  }
  uint32_t all = num_chips(in) * l->num_outputs;
  if (all)
    memcpy(at_launch_outputs(t->message), outputs, all * sizeof *outputs);
  if (l->num_inputs)
    memcpy(at_launch_donated(t->message), donated, l->num_inputs);
  t->local = true;
  uint32_t modes = at_cpu_fp_default();
  at_task_run_here(t);
  at_cpu_fp_restore(modes);
  at_status st = t->failed;
  t->failed = AT_OK;
  at_task_free(t);
  return st;
}

// What fails in a kernel fails in the outputs, wherever it ran. Consumes st.
static at_event *fail_outputs(at_buffer **outputs, uint32_t n, at_status st) {
  at_event *failed = at_event_create();
  if (!failed) return NULL;
  for (uint32_t o = 0; o < n; o++) {
    at_event_release(outputs[o]->ready);
    outputs[o]->ready = at_event_retain(failed);
  }
  at_event_fire(failed, st);
  return failed;
}

// All arguments are ready and the chips are ours. A failure is returned, not
// put into the outputs, but for those of kernels.
static at_status run_here(at_loaded *l, const at_launch *in,
                          const uint8_t *donated, at_buffer **outputs,
                          at_event **done) {
  uint32_t n = num_chips(in), all = n * l->num_outputs;
  at_status st = first_error(in);
  if (!st.err) st = make_outputs(l, in, at_event_done(), outputs);
  if (st.err) {
    unhold_all(in->args, n * l->num_inputs);
    return st;
  }
  if (n == 1) {
    uint32_t pinned = 0;
    launch run = {.loaded = l,
                  .pinned = &pinned,
                  .chip = chip_of(in, 0),
                  .args = in->args,
                  .donated = donated,
                  .outputs = outputs};
    const uint64_t begin = l->learns ? at_clock_ns() : 0;
    st = run_one(&run, in);
    if (begin && !st.err) at_loaded_took(l, at_clock_ns() - begin);
    unhold_all(in->args, in->num_args);
  } else {
    st = run_several(l, in, donated, outputs);
  }
  *done = at_event_done();
  if (!st.err) {
    unhold_all(outputs, all);
    return st;
  }
  free_outputs(outputs, all);
  at_event *failed = l->has_kernels ? fail_outputs(outputs, all, st) : NULL;
  if (!failed) {
    drop_outputs(outputs, all);
    return st;
  }
  unhold_all(outputs, all);
  *done = failed;
  return AT_OK;
}

// Makes a task for the queues of the chips. On success the outputs and the task
// hold what they need; on failure the arguments are let go.
static at_status make_queued(at_loaded *l, const at_launch *in,
                             const uint8_t *donated, at_buffer **outputs,
                             at_event **out_done, at_task **out) {
  at_task *t = make_task(l, in);
  at_event *done = t ? at_event_create() : NULL;
  at_status st = done
                     ? make_outputs(l, in, done, outputs)
                     : AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a launch");
  if (st.err) {
    at_event_release(done);
    if (t) at_task_free(t);
    unhold_all(in->args, num_chips(in) * l->num_inputs);
    return st;
  }
  uint32_t all = num_chips(in) * l->num_outputs;
  if (all)
    memcpy(at_launch_outputs(t->message), outputs, all * sizeof *outputs);
  if (l->num_inputs)
    memcpy(at_launch_donated(t->message), donated, l->num_inputs);
  at_loaded_retain(l);
  if (l->far) {
    t->brief = may_begin_here(l, in);
    t->far_launch = atomic_fetch_add(&l->far->count->launches, 1);
    atomic_fetch_add(&l->runtime->far_work, 1);
    t->far_work = &l->runtime->far_work;
  }
  atomic_fetch_add(&l->runtime->queued_bytes, t->bytes);
  t->done = done;
  if (in->unwanted) t->unwanted = at_event_retain(in->unwanted);
  if (out_done) *out_done = at_event_retain(done);
  *out = t;
  return AT_OK;
}

// With other hosts the refused launch counts, and they are told, unless they
// refuse it, too.
at_status at_launch_refuse(at_loaded *l, const at_launch *in, at_status why,
                           bool alone, at_buffer **outputs) {
  at_event *failed = at_event_create();
  if (!failed) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a launch");
  at_status st = make_outputs(l, in, failed, outputs);
  at_event_fire(failed, at_status_clone(why));
  at_event_release(failed);
  if (l->far && alone) {
    const at_hosts *h = l->runtime->hosts;
    at_hosts_tag tag = {.group = l->far->set->name,
                        .launch = atomic_fetch_add(&l->far->count->launches, 1),
                        .program = l->far->program};
    h->fail(h->arg, &tag, l->far->others, l->far->num_others, why);
  }
  if (!st.err) unhold_all(outputs, num_chips(in) * l->num_outputs);
  return st;
}

// Devices that meet nobody run when they like.
static at_status check_alone(const at_loaded *l, const at_launch *in) {
  AT_ASSERT(!in->num_chips);
  const char *name = at_loaded_string(l, l->header->name);
  if (in->device >= l->num_devices)
    return AT_FAIL(AT_INVALID_ARGUMENT, "%s runs on %u devices, none is %u",
                   name, l->num_devices, in->device);
  if (!l->meets && !l->far && !l->runtime->proxy) return AT_OK;
  return AT_FAIL(
      AT_UNIMPLEMENTED,
      "%s runs on %u devices, which wait for each other, and was launched on "
      "one of them, number %u\n"
      "hint: launch it on all of its devices by one call",
      name, at_device_count(l), in->device);
}

// The counts of arguments and devices.
static at_status check_launch(const at_loaded *l, const at_launch *in) {
  if (in->num_args != l->num_inputs)
    return AT_FAIL(
        AT_INVALID_ARGUMENT, "%s takes %u arguments, but the launch has %u",
        at_loaded_string(l, l->header->name), l->num_inputs, in->num_args);
  uint32_t n = num_chips(in);
  if (in->alone) return check_alone(l, in);
  if (n != l->num_devices)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "%s runs on %u devices, but the launch names %u",
                   at_loaded_string(l, l->header->name), l->num_devices, n);
  return AT_OK;
}

// Arguments are taken first; from there on each of the three ways (proxy, here,
// queued) gives their holds back.
at_status at_launch_begin(at_loaded *l, const at_launch *in,
                          at_buffer **outputs, at_event **out_done,
                          at_task **out_task) {
  AT_TRY(at_runtime_check(l->runtime));
  AT_TRY(check_launch(l, in));
  uint8_t few[64], *donated = few;
  if (in->num_args > AT_LEN(few)) {
    donated = malloc(in->num_args);
    if (!donated)
      return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a launch");
  }
  *out_task = NULL;
  at_status st = take_arguments(l, in, donated);
  if (!st.err && l->runtime->proxy) {
    st = at_proxy_run(l, in, donated, outputs, out_done);
  } else if (!st.err) {
    if (may_run_here(l, in)) {
      at_event *done = NULL;
      st = run_here(l, in, donated, outputs, &done);
      for (uint32_t d = 0; d < num_chips(in); d++)
        at_chip_end_turn(chip_of(in, d));
      if (!st.err && out_done)
        *out_done = done;
      else
        at_event_release(done);
    } else {
      wait_for_room(chip_of(in, 0));
      st = make_queued(l, in, donated, outputs, out_done, out_task);
    }
  }
  if (donated != few) free(donated);
  return st;
}

// Names the launch as all its processes do.
bool at_task_span(const at_task *t, at_span *out) {
  const at_far *f = t->loaded->far;
  if (!f) return false;
  *out =
      (at_span){.group = f->set->name,
                .program = f->program,
                .launch = t->far_launch,
                .hosts = f->set->hosts,
                .num_hosts = f->set->count,
                .name = at_loaded_string(t->loaded, t->loaded->header->name)};
  return true;
}

at_event *at_task_done(const at_task *t) { return t->done; }

static void enqueue_all(void *arg, at_task *t) {
  const uint32_t n = at_task_devices(t);  // t is gone after the last
  for (uint32_t d = 0; d < n; d++) at_launch_enqueue(t, d);
}

// For programs whose launches nobody orders.
at_status at_loaded_execute(at_loaded *l, const at_launch *in,
                            at_buffer **outputs, at_event **out_done) {
  at_task *t;
  AT_TRY(at_launch_begin(l, in, outputs, out_done, &t));
  if (t) at_launch_enter(t, enqueue_all, NULL);
  return AT_OK;
}

// Which values stay in VMEM, and when.
//
// One value after the other finds its place, those first whose place is felt
// most: what VMEM saves the kernels around them, more for each loop around
// those, divided by the root of the size. A value stays where it was written
// until a kernel reads it, if there is room all that time and it does not take
// too long, and then on to the next reader; else HBM holds it from there on.
// What HBM holds is brought in shortly before each kernel that reads it.
#include <math.h>
#include <stdlib.h>

#include "estimate/memory_internal.h"
#include "tpu/tpu.h"

// Each loop around a kernel counts as so many turns.
static const double kTurns = 5;
// A value waits in VMEM as long as so many copies of all of VMEM take, at most.
static const double kMostCopies = 100;
// Of a VMEM that one kernel may have all of, values have this share.
static const double kVmemShare = .875;
// Of VMEM, what an argument takes at most that is there at the beginning.
static const double kMostFirst = .5;

enum { kBlock = 64 };  // times that are looked at together

// A kernel that reads a value.
typedef struct touch {
  at_span_time time;
  uint32_t step;  // of the value's computation
} touch;

// A value that could be in VMEM, and how much that would save.
typedef struct wish {
  const lives *of;
  live *x;
  double gain;
  AT_VEC(touch) touches;  // after it was written, in order
} wish;

// How full VMEM is, at each time and in blocks of them.
typedef struct placing {
  at_arena *arena;
  double size, rate;   // of VMEM and of HBM
  double cores;        // that share the device
  double *used;        // of each time, less what all of its block have
  double *most, *all;  // of each block: the largest of `used`; what all have
  double *elapsed;     // until each time
  AT_VEC(wish) wishes;
} placing;

// ---- What VMEM saves

// Seconds that a kernel of so many bytes and of `work` seconds of arithmetic is
// faster without `part` of the bytes.
static double saved(const lives *l, double bytes, double work, double part) {
  return fmax(bytes / l->rate, work) - fmax((bytes - part) / l->rate, work);
}

// A kernel reads no more of a value than there is.
static double part_of(const live *x, double touched) {
  return fmin(touched, (double)x->bytes);
}

// Adds what VMEM would save kernel k to the values that it reads and writes.
static void add_gains(lives *l, uint32_t k, double weight) {
  const at_est_group *g = l->groups.list[k];
  double work = at_est_flops(g) / l->flops, bytes = 0;
  for (size_t r = 0; r < g->reads.len; r++) bytes += g->reads.ptr[r].bytes;
  for (size_t w = 0; w < g->writes.len; w++)
    bytes += (double)at_est_live_of(l, g->writes.ptr[w])->bytes;
  for (size_t r = 0; r < g->reads.len; r++) {
    live *x = at_est_live_of(l, g->reads.ptr[r].value);
    double part = x ? part_of(x, g->reads.ptr[r].bytes) : 0;
    if (x) x->gain += weight * saved(l, bytes, work, part);
  }
  for (size_t w = 0; w < g->writes.len; w++) {
    live *x = at_est_live_of(l, g->writes.ptr[w]);
    x->gain += weight * saved(l, bytes, work, part_of(x, HUGE_VAL));
  }
}

// The state of a loop gains what its kernels inside do.
static void add_state_gains(lives *l, uint32_t s) {
  at_node *n = l->groups.list[l->order[s]]->root;
  for (uint32_t r = 0; n->op == AT_OP_WHILE && r < n->num_results; r++) {
    const live *in = at_est_live_of(&l->inside[s][1],
                                    (at_value){n->regions[1]->params[r], 0});
    live *x = at_est_live_of(l, (at_value){n, r});
    if (in && x) x->gain += in->gain;
  }
}

// Of all kernels, weighted by the loops around them.
static void find_gains(lives *l, double weight) {
  for (uint32_t s = 0; s < l->groups.count; s++) {
    uint32_t regions = l->groups.list[l->order[s]]->root->num_regions;
    for (uint32_t r = 0; l->inside[s] && r < regions; r++)
      find_gains(&l->inside[s][r], weight * kTurns);
    if (l->inside[s])
      add_state_gains(l, s);
    else
      add_gains(l, l->order[s], weight);
  }
}

// ---- Wishes

static int by_step(const void *a, const void *b) {
  const touch *x = a, *y = b;
  return (x->step > y->step) - (x->step < y->step);
}

// A loop that takes an argument over copies it into its state.
static at_status add_wish(placing *p, const lives *l, live *x) {
  wish w = {.of = l, .x = x, .gain = x->gain / sqrt((double)x->bytes)};
  for (size_t r = 0; r < x->readers.len; r++) {
    uint32_t s = l->step[x->readers.ptr[r]];
    at_op op = l->groups.list[x->readers.ptr[r]]->root->op;
    if (s < x->born || s > x->dies || (x->argument && at_op_is(op, AT_CONTROL)))
      continue;
    if (!at_vec_push(p->arena, &w.touches, ((touch){l->time[s], s})))
      return AT_NO_MEMORY("uses");
  }
  if (w.touches.len)
    qsort(w.touches.ptr, w.touches.len, sizeof *w.touches.ptr, by_step);
  return at_vec_push(p->arena, &p->wishes, w) ? AT_OK : AT_NO_MEMORY("values");
}

// Temporaries, and arguments of the program that some kernel reads.
static bool may_stay(const lives *l, const live *x) {
  if (!x->bytes || x->born > x->dies || x->dead) return false;
  if (x->argument) return !l->comp->owner && x->readers.len;
  return at_est_is_temporary(l, x) && !x->kept &&
         !at_est_is_from_host(l, x->value.node);
}

// Of a computation and of those inside.
static at_status add_wishes(placing *p, lives *l) {
  for (size_t i = 0; i < l->list.len; i++)
    if (may_stay(l, &l->list.ptr[i])) AT_TRY(add_wish(p, l, &l->list.ptr[i]));
  for (uint32_t s = 0; s < l->groups.count; s++) {
    const at_node *n = l->groups.list[l->order[s]]->root;
    for (uint32_t r = 0; l->inside[s] && r < n->num_regions; r++)
      AT_TRY(add_wishes(p, &l->inside[s][r]));
  }
  return AT_OK;
}

// The largest gain first; then the larger, then the earlier value.
static int by_gain(const void *a, const void *b) {
  const wish *x = a, *y = b;
  if (x->gain != y->gain) return x->gain > y->gain ? -1 : 1;
  if (x->x->bytes != y->x->bytes) return x->x->bytes > y->x->bytes ? -1 : 1;
  return (x->x->born > y->x->born) - (x->x->born < y->x->born);
}

// ---- Time and room

// The seconds of each kernel, at its end.
static void pass_time(placing *p, const lives *l, double weight) {
  for (uint32_t s = 0; s < l->groups.count; s++) {
    const at_node *n = l->groups.list[l->order[s]]->root;
    for (uint32_t r = 0; l->inside[s] && r < n->num_regions; r++)
      pass_time(p, &l->inside[s][r], weight * kTurns);
    if (!l->inside[s]) p->elapsed[l->time[s].end] = l->seconds[s] * weight;
  }
}

// Does the span cover the block that begins at t?
static bool is_whole_block(int64_t t, int64_t end) {
  return t % kBlock == 0 && t + kBlock - 1 <= end;
}

// Is there room from begin to end? Whole blocks are looked at once.
static bool fits(const placing *p, int64_t begin, int64_t end, double bytes) {
  for (int64_t t = begin; t <= end; t++) {
    int64_t b = t / kBlock;
    bool whole = is_whole_block(t, end);
    double used = p->all[b] + (whole ? p->most[b] : p->used[t]);
    if (used + bytes > p->size) return false;
    if (whole) t += kBlock - 1;
  }
  return true;
}

// Takes the room from begin to end.
static void take(placing *p, int64_t begin, int64_t end, double bytes) {
  for (int64_t t = begin; t <= end; t++) {
    int64_t b = t / kBlock;
    if (is_whole_block(t, end)) {
      p->all[b] += bytes;
      t += kBlock - 1;
    } else {
      p->used[t] += bytes;
      p->most[b] = fmax(p->most[b], p->used[t]);
    }
  }
}

// Stays in VMEM from one time to another, where it may.
static bool stays(placing *p, int64_t begin, int64_t end, double bytes) {
  double wait = p->elapsed[AT_MAX(begin, end - 1)] - p->elapsed[begin];
  if (wait > kMostCopies * p->size / p->rate || !fits(p, begin, end, bytes))
    return false;
  take(p, begin, end, bytes);
  return true;
}

// Brought in for a kernel, after `from` and as late as the copy allows.
static bool is_fetched(placing *p, int64_t from, const touch *u, double bytes) {
  double latest = p->elapsed[u->time.begin] - bytes / p->rate;
  int64_t begin = from, end = u->time.begin;
  while (begin < end) {  // the last time until which no more has passed
    int64_t middle = end - (end - begin) / 2;
    if (p->elapsed[middle] <= latest)
      begin = middle;
    else
      end = middle - 1;
  }
  if (!fits(p, begin, u->time.end, bytes)) return false;
  take(p, begin, u->time.end, bytes);
  return true;
}

// ---- Places

// The end of the computation, past its last step.
static at_span_time time_at(const lives *l, uint32_t step) {
  return l->time[AT_MIN(step, l->groups.count)];
}

// Two cores that share a device leave what they write in HBM, but for what a
// fusion of the vector unit makes.
static bool is_left(const placing *p, const wish *w) {
  const live *x = w->x;
  if (x->argument || x->writer == UINT32_MAX) return x->argument;
  if (x->made) return p->cores > 1;  // a copy is an operation alone
  const at_est_group *g = w->of->groups.list[x->writer];
  return p->cores > 1 &&
         (g->product || g->alone || at_op_is(g->root->op, AT_CONTROL));
}

// Where one value is: in VMEM from its kernel to its first reader, and on from
// reader to reader while there is room; else HBM holds it and it is fetched.
static void place(placing *p, const wish *w) {
  live *x = w->x;
  double bytes = (double)x->bytes;
  bool in = false, hbm = is_left(p, w);
  int64_t at = 0;
  if (!x->argument) at = time_at(w->of, x->born).begin;
  if (!hbm) {
    in = stays(p, at,
               w->touches.len ? w->touches.ptr[0].time.end
                              : time_at(w->of, x->dies).end,
               bytes);
    hbm = !in;
  }
  for (size_t i = 0; i < w->touches.len; i++) {
    const touch *u = &w->touches.ptr[i];
    if (in && i && !stays(p, at + 1, u->time.end, bytes)) {
      in = false;
      if (!hbm) x->born = w->touches.ptr[i - 1].step;
      hbm = true;
    }
    if (!in) in = is_fetched(p, at, u, bytes);
    at = u->time.end;
  }
  if (x->output && in && !hbm)  // the next turn's state
    take(p, at + 1, time_at(w->of, x->dies).end, bytes);
  x->vmem = !hbm;
}

// Does any argument give its memory to a result?
static bool has_donated(const at_comp *c) {
  const at_io_info *infos = c->module->params;
  for (uint32_t i = 0; infos && i < c->num_params; i++)
    if (infos[i].donor || infos[i].alias >= 0) return true;
  return false;
}

// Convolutions read a copy of their image.
static bool is_image(const lives *l, const live *x) {
  for (size_t r = 0; r < x->readers.len; r++) {
    const at_node *p = l->groups.list[x->readers.ptr[r]]->product;
    if (p && p->op == AT_OP_CONVOLUTION &&
        at_value_eq(at_est_behind(p->operands[0]), x->value))
      return true;
  }
  return false;
}

// The largest argument that fits is there when the program begins, and stays
// until its last reader; where arguments are donated, none.
static void keep_first(placing *p, double most) {
  wish *best = NULL;
  for (size_t i = 0; i < p->wishes.len; i++) {
    wish *w = &p->wishes.ptr[i];
    bool may = w->x->argument && w->touches.len == w->x->readers.len &&
               (double)w->x->bytes <= most && !is_image(w->of, w->x);
    if (may && (!best || w->x->bytes > best->x->bytes)) best = w;
  }
  if (!best || has_donated(best->of->comp)) return;
  take(p, 0, best->touches.ptr[best->touches.len - 1].time.end,
       (double)best->x->bytes);
  best->touches.len = 0;
}

// What kernels leave to values: all but what one kernel may have, where that is
// not everything.
static double room_of(const at_target *t, double vmem) {
  const at_mosaic_chip *chip = at_mosaic_chip_find(at_str_of(t->machine->name));
  double scoped = chip ? (double)chip->vmem_scoped_bytes : vmem;
  return scoped < vmem ? vmem - scoped : vmem * kVmemShare;
}

// Greedy: gains, wishes in their order, a place for each.
at_status at_est_place_in_vmem(lives *l, double vmem, int64_t clock) {
  placing p = {
      .arena = l->arena,
      .size = room_of(l->target, vmem),
      .rate = l->rate,
      .cores = at_machine_number(l->target->machine, "cores_per_device", 1)};
  size_t times = (size_t)clock + 1;
  AT_TRY_ALLOC(p.used, at_new(l->arena, double, times));
  AT_TRY_ALLOC(p.elapsed, at_new(l->arena, double, times));
  AT_TRY_ALLOC(p.most, at_new(l->arena, double, times / kBlock + 1));
  AT_TRY_ALLOC(p.all, at_new(l->arena, double, times / kBlock + 1));
  find_gains(l, 1);
  AT_TRY(add_wishes(&p, l));
  pass_time(&p, l, 1);
  for (int64_t t = 1; t <= clock; t++) p.elapsed[t] += p.elapsed[t - 1];
  keep_first(&p, vmem * kMostFirst);
  if (p.wishes.len)
    qsort(p.wishes.ptr, p.wishes.len, sizeof *p.wishes.ptr, by_gain);
  for (size_t i = 0; i < p.wishes.len; i++) place(&p, &p.wishes.ptr[i]);
  return AT_OK;
}

// One grid step, op by op: which units it keeps busy, and where it waits for
// copies that it started itself.
#include <math.h>

#include "tpu/rules.h"
#include "tpu/timing_internal.h"

// A loop of many turns: so many are looked at where there is time, at least the
// first few. The others are like the last ones. Of loops inside so many others
// it is one, or the work would grow with 3 to the power of their number.
enum { kTurns = 3, kManyTurns = 24, kLast = 8, kNests = 3 };

static at_status block(at_ms_body *b, const at_mblock *blk);

// ---- Copies of the body's own
// Dynamic sizes count as 0.
static double ref_bytes(const at_mtype *t) {
  at_mosaic_ref r;
  if (at_code_take(at_mosaic_ref_of(t, &r))) return 0;
  double n = at_dtype_of(r.dtype)->bits / 8.0;
  for (uint32_t d = 0; d < r.shape.rank; d++)
    n *= (double)AT_MAX(r.shape.ptr[d], (int64_t)0);
  return n;
}

// What ran since the last wait has taken its time.
static void close_segment(at_ms_body *b) {
  b->time += at_ms_units_time(&b->open);
  const double *from = &b->open.scalar;
  double *to = &b->all.scalar;
  for (size_t i = 0; i < sizeof b->open / sizeof *from; i++) to[i] += from[i];
  b->open = (at_mosaic_units){0};
}

// The refs that a copy reads and writes; false: they are not known.
static bool sides_of(const at_mop *op, at_mosaic_ref *from, at_mosaic_ref *to) {
  uint32_t found = 0;
  at_mosaic_ref r;
  for (uint32_t i = 0; i < op->num_operands; i++) {
    const at_mtype *t = op->operands[i]->type;
    if (t->kind != AT_MTYPE_MEMREF || at_code_take(at_mosaic_ref_of(t, &r)) ||
        r.semaphore != AT_MSEM_NONE)
      continue;
    *(found++ ? to : from) = r;
  }
  return found >= 2;
}

// By direction: copies to HBM are waited for in order among themselves.
static at_ms_queue *queue_of(at_ms_body *b, const at_mosaic_ref *to) {
  bool leaves = to->space == AT_MSPACE_HBM || to->space == AT_MSPACE_ANY;
  return leaves ? &b->out : &b->in;
}

// The copy ends after its latency and its bytes at the full rate.
static void start_copy(at_ms_body *b, const at_mop *op) {
  at_mosaic_ref from, to;
  if (!sides_of(op, &from, &to)) return;
  // Of the smaller side: squeezed refs differ in rank.
  double bytes = fmin(ref_bytes(from.type), ref_bytes(to.type));
  double now = b->time + at_ms_units_time(&b->open);
  at_ms_copy copy = at_ms_copy_of(b->chip);
  at_ms_queue *q = queue_of(b, &to);
  b->copied += bytes;
  if (q->count == AT_MS_PENDING) {  // the oldest is forgotten
    q->first = (q->first + 1) % AT_MS_PENDING;
    q->count--;
  }
  double latency = q == &b->out ? copy.latency_out : copy.latency_in;
  AT_ASSERT(q->count < AT_MS_PENDING && q->first < AT_MS_PENDING);
  q->end[(q->first + q->count++) % AT_MS_PENDING] =
      now + latency + bytes / copy.rate;
}

// For the oldest copy of that direction. Units start anew behind a wait.
static void wait_copy(at_ms_body *b, const at_mop *op) {
  at_mosaic_ref from, to;
  close_segment(b);
  at_ms_queue *q = sides_of(op, &from, &to) ? queue_of(b, &to) : &b->in;
  if (!q->count) return;
  AT_ASSERT(q->count <= AT_MS_PENDING && q->first < AT_MS_PENDING);
  double end = q->end[q->first];
  q->first = (q->first + 1) % AT_MS_PENDING;
  q->count--;
  b->waits += fmax(0, end - b->time);
  b->time = fmax(b->time, end);
}

// ---- Control flow
static const at_mblock *region(const at_mop *op, uint32_t i) {
  if (i >= op->num_regions || !op->regions[i]->num_blocks) return NULL;
  return op->regions[i]->blocks[0];
}

static const at_mop *last_of(const at_mblock *b) {
  return b && b->num_ops ? b->ops[b->num_ops - 1] : NULL;
}

// Operands of `from` from the given one on become these values.
static at_status pass_on(at_ms_body *b, const at_mop *from, uint32_t first,
                         const at_mvalue *to, uint32_t n) {
  for (uint32_t i = 0; i < n && from && first + i < from->num_operands; i++)
    AT_TRY(at_ms_value_copy(&b->values, &to[i], from->operands[first + i]));
  return AT_OK;
}

// Not known: the first side is counted, as if taken.
static at_status branch(at_ms_body *b, const at_mop *op) {
  int64_t cond;
  const at_mblock *yes = region(op, 0), *no = region(op, 1);
  if (!at_ms_value(&b->values, op->operands[0], &cond)) {
    b->follows_data = true;
    cond = yes != NULL;
  }
  const at_mblock *taken = cond ? yes : no;
  if (!taken) return AT_OK;
  AT_TRY(block(b, taken));
  return pass_on(b, last_of(taken), 0, op->results, op->num_results);
}

// Everything that turns of a loop add up.
typedef struct sums {
  at_mosaic_units all, open;
  double time, waits, latency, flops, copied;
} sums;

// As they stand.
static sums sums_of(const at_ms_body *b) {
  return (sums){b->all,   b->open,  b->time, b->waits, b->latency.cycles,
                b->flops, b->copied};
}

// Copies under way end later by the turns that are skipped.
static void delay(at_ms_queue *q, double passed) {
  for (uint32_t i = 0; i < q->count; i++)
    q->end[(q->first + i) % AT_MS_PENDING] += passed;
}

// The sums grow `times` more as they did since `before`.
static void repeat_last(at_ms_body *b, const sums *before, double times) {
  sums now = sums_of(b);
  const double *x = (const double *)before, *y = (const double *)&now;
  double grown[sizeof now / sizeof(double)];
  for (size_t i = 0; i < AT_LEN(grown); i++)
    grown[i] = y[i] + (y[i] - x[i]) * times;
  sums all;
  memcpy(&all, grown, sizeof all);
  b->all = all.all;
  b->open = all.open;
  b->time = all.time;
  b->waits = all.waits;
  b->flops = all.flops;
  b->copied = all.copied;
  b->latency.cycles = all.latency;
  double passed = (now.time - before->time) * times;
  delay(&b->in, passed);
  delay(&b->out, passed);
}

// All turns where the budget b->exact allows, else the first kManyTurns or
// kTurns; takes them off the budget.
static int64_t turns_to_look_at(at_ms_body *b, const at_mblock *body,
                                int64_t turns) {
  int64_t few = AT_MIN(turns, b->nest < kNests ? kTurns : 1);
  int64_t each = AT_MAX(at_ms_count_ops(body), (int64_t)1);
  int64_t budget = b->exact / each;
  int64_t looked =
      turns <= budget ? turns : AT_MIN(budget, (int64_t)kManyTurns);
  if (looked <= few) return few;
  b->exact -= looked * each;
  return looked;
}

// Turns are looked at one by one, with the carried numbers; further ones repeat
// the last. A loop whose bounds depend on data turns once.
static at_status loop(at_ms_body *b, const at_mop *op) {
  const at_mblock *body = region(op, 0);
  int64_t lo, hi, step;
  bool known = op->num_operands >= 3 &&
               at_ms_value(&b->values, op->operands[0], &lo) &&
               at_ms_value(&b->values, op->operands[1], &hi) &&
               at_ms_value(&b->values, op->operands[2], &step) && step > 0;
  if (!body || !body->num_args) return AT_OK;
  int64_t turns = known ? AT_MAX((hi - lo + step - 1) / step, (int64_t)0) : 1;
  b->follows_data |= !known;
  int64_t looked = turns_to_look_at(b, body, turns);
  int64_t last = looked >= 2 * kLast ? kLast : 1;
  sums before = {0};
  b->nest++;
  at_mvalue *carried = body->args + 1;
  uint32_t num = body->num_args - 1;
  AT_TRY(pass_on(b, op, 3, carried, num));
  for (int64_t i = 0; i < looked; i++) {
    if (i + last == looked) before = sums_of(b);
    AT_TRY(at_ms_value_set(&b->values, &body->args[0], known,
                           known ? lo + i * step : 0));
    b->latency = (at_ms_latency){
        .cycles = b->latency.cycles};  // as if it were the first
    AT_TRY(block(b, body));
    AT_TRY(pass_on(b, last_of(body), 0, carried, num));
    b->open.scalar += at_ms_turn();
    if (i + 1 == looked && turns > looked) {
      repeat_last(b, &before, (double)(turns - looked) / (double)last);
      for (uint32_t k = 0; k < num; k++)  // they have gone on
        AT_TRY(at_ms_value_set(&b->values, &carried[k], b->values.zeros, 0));
    }
  }
  for (uint32_t k = 0; k < num && k < op->num_results; k++)
    AT_TRY(at_ms_value_copy(&b->values, &op->results[k], &carried[k]));
  b->nest--;
  return AT_OK;
}

// Turns as long as the condition is known and holds; once where it is not.
static at_status repeat_while(at_ms_body *b, const at_mop *op) {
  const at_mblock *before = region(op, 0), *after = region(op, 1);
  if (!before || !after) return AT_OK;
  int64_t each = at_ms_count_ops(before) + at_ms_count_ops(after);
  AT_TRY(pass_on(b, op, 0, before->args, before->num_args));
  const at_mop *test = last_of(before);
  for (int64_t goes = 1;;) {
    AT_TRY(block(b, before));
    bool known = test && test->num_operands &&
                 at_ms_value(&b->values, test->operands[0], &goes);
    if (!known) b->follows_data = true;
    AT_TRY(pass_on(b, test, 1, after->args, after->num_args));
    if (known && !goes) break;
    AT_TRY(block(b, after));
    b->open.scalar += at_ms_turn();
    b->exact -= each;
    if (!known || b->exact < 0) break;
    AT_TRY(pass_on(b, last_of(after), 0, before->args, before->num_args));
  }
  return pass_on(b, test, 1, op->results, op->num_results);
}

// Numbers first, as control flow needs them; then the operation's own time,
// then what is inside it.
static at_status one(at_ms_body *b, const at_mop *op) {
  AT_TRY(at_ms_value_op(&b->values, op));
  switch (at_mosaic_opcode_of(op)) {
    case AT_MOSAIC_SCF_IF:
      return branch(b, op);
    case AT_MOSAIC_SCF_FOR:
      return loop(b, op);
    case AT_MOSAIC_SCF_WHILE:
      return repeat_while(b, op);
    case AT_MOSAIC_TPU_ENQUEUE_DMA:
    case AT_MOSAIC_TPU_ENQUEUE_INDIRECT_DMA:
      start_copy(b, op);
      break;
    case AT_MOSAIC_TPU_WAIT_DMA:
    case AT_MOSAIC_TPU_WAIT_DMA2:
    case AT_MOSAIC_TPU_WAIT_INDIRECT_DMA:
      wait_copy(b, op);
      break;
    default:
      break;
  }
  AT_TRY(at_ms_units_add(op, b->chip, b->scratch, &b->open, &b->latency,
                         &b->flops));
  for (uint32_t r = 0; r < op->num_regions; r++)
    if (region(op, r)) AT_TRY(block(b, region(op, r)));
  return AT_OK;
}

// In the order of the text, which is the order of effects.
static at_status block(at_ms_body *b, const at_mblock *blk) {
  for (uint32_t i = 0; i < blk->num_ops; i++) AT_TRY(one(b, blk->ops[i]));
  return AT_OK;
}

// Keeps values, chip and scratch; everything else begins at zero.
at_status at_ms_body_run(at_ms_body *b, const int64_t *ids, int64_t exact) {
  const at_mosaic_program *p = b->values.program;
  *b = (at_ms_body){.values = b->values,
                    .chip = b->chip,
                    .scratch = b->scratch,
                    .exact = exact};
  for (uint32_t d = 0; d < p->grid_rank; d++)
    AT_TRY(at_ms_value_set(&b->values, &p->body->args[d], true, ids[d]));
  AT_TRY(block(b, p->body));
  close_segment(b);
  return AT_OK;
}

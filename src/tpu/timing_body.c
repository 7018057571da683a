// One grid step, op by op: which units it keeps busy, and where it waits for
// copies that it started itself.
#include <math.h>

#include "tpu/rules.h"
#include "tpu/timing_internal.h"

// A loop of many turns: so many are looked at, the others are like the last. Of
// loops inside so many others it is one, or the work would grow with 3 to the
// power of their number.
enum { kTurns = 3, kNests = 3 };

static at_status block(at_ms_body *b, const at_mblock *blk);

// ---- Copies of the body's own
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

static void start_copy(at_ms_body *b, const at_mop *op) {
  double bytes = INFINITY;  // of the smaller side: squeezed refs differ in rank
  for (uint32_t i = 0; i < op->num_operands; i++) {
    const at_mtype *t = op->operands[i]->type;
    at_mosaic_ref r;
    if (t->kind != AT_MTYPE_MEMREF || at_code_take(at_mosaic_ref_of(t, &r)) ||
        r.semaphore != AT_MSEM_NONE)
      continue;
    bytes = fmin(bytes, ref_bytes(t));
  }
  if (bytes == INFINITY) return;
  double now = b->time + at_ms_units_time(&b->open);
  at_ms_copy copy = at_ms_copy_of(b->chip);
  b->copied += bytes;
  if (b->count == AT_MS_PENDING) {  // the oldest is forgotten
    b->first = (b->first + 1) % AT_MS_PENDING;
    b->count--;
  }
  b->pending[(b->first + b->count++) % AT_MS_PENDING] =
      now + copy.latency + bytes / copy.rate;
}

static void wait_copy(at_ms_body *b) {
  close_segment(b);
  if (!b->count) return;
  double end = b->pending[b->first];
  b->first = (b->first + 1) % AT_MS_PENDING;
  b->count--;
  b->waits += fmax(0, end - b->time);
  b->time = fmax(b->time, end);
}

// ---- Control flow
static const at_mblock *region(const at_mop *op, uint32_t i) {
  if (i >= op->num_regions || !op->regions[i]->num_blocks) return NULL;
  return op->regions[i]->blocks[0];
}

static at_status branch(at_ms_body *b, const at_mop *op) {
  int64_t cond;
  const at_mblock *yes = region(op, 0), *no = region(op, 1);
  if (!at_ms_value(&b->values, op->operands[0], &cond)) {
    b->follows_data = true;
    cond = yes != NULL;
  }
  const at_mblock *taken = cond ? yes : no;
  return taken ? block(b, taken) : AT_OK;
}

// Everything that turns of a loop add up.
typedef struct sums {
  at_mosaic_units all, open;
  double time, waits, latency, flops, copied;
} sums;

static sums sums_of(const at_ms_body *b) {
  return (sums){b->all,     b->open,  b->time,  b->waits,
                b->latency, b->flops, b->copied};
}

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
  b->latency = all.latency;
  double passed = (now.time - before->time) * times;
  for (uint32_t i = 0; i < b->count; i++)
    b->pending[(b->first + i) % AT_MS_PENDING] += passed;
}

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
  int64_t looked = AT_MIN(turns, b->nest < kNests ? kTurns : 1);
  b->nest++;
  for (int64_t i = 0; i < looked; i++) {
    sums before = sums_of(b);
    AT_TRY(at_ms_value_set(&b->values, &body->args[0], known,
                           known ? lo + i * step : 0));
    for (uint32_t k = 1; k < body->num_args; k++)
      AT_TRY(at_ms_value_set(&b->values, &body->args[k], false, 0));
    AT_TRY(block(b, body));
    b->open.scalar += at_ms_turn();
    if (i + 1 == looked && turns > looked)
      repeat_last(b, &before, (double)(turns - looked));
  }
  b->nest--;
  return AT_OK;
}

// How often it turns is not known: once.
static at_status repeat_while(at_ms_body *b, const at_mop *op) {
  b->follows_data = true;
  for (uint32_t r = 0; r < op->num_regions; r++)
    if (region(op, r)) AT_TRY(block(b, region(op, r)));
  return AT_OK;
}

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
      wait_copy(b);
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

static at_status block(at_ms_body *b, const at_mblock *blk) {
  for (uint32_t i = 0; i < blk->num_ops; i++) AT_TRY(one(b, blk->ops[i]));
  return AT_OK;
}

at_status at_ms_body_run(at_ms_body *b, const int64_t *ids) {
  const at_mosaic_program *p = b->values.program;
  *b =
      (at_ms_body){.values = b->values, .chip = b->chip, .scratch = b->scratch};
  for (uint32_t d = 0; d < p->grid_rank; d++)
    AT_TRY(at_ms_value_set(&b->values, &p->body->args[d], true, ids[d]));
  AT_TRY(block(b, p->body));
  close_segment(b);
  return AT_OK;
}

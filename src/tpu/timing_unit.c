// Cycles of one operation on the units of a core.
#include <math.h>

#include "base/once.h"
#include "machine/machine.h"
#include "tpu/timing_internal.h"

enum { kSublanes = 8, kLanes = 128 };

#define FIGURES(X)     \
  X(vector_slots)      \
  X(load_slots)        \
  X(store_slots)       \
  X(scalar_slots)      \
  X(xlu_slots)         \
  X(medium)            \
  X(expensive)         \
  X(convert)           \
  X(sublane_steps)     \
  X(lane_steps)        \
  X(sublane_spread)    \
  X(lane_spread)       \
  X(overlap)           \
  X(reduce_latency)    \
  X(transpose_latency) \
  X(product_latency) X(turn) X(step) X(step_window) X(side_by_side)
typedef struct figures {
#define FIELD(name) double name;
  FIGURES(FIELD)
#undef FIELD
} figures;

extern const at_bytes at_tpu_unit_files[];
static at_once g_once = AT_ONCE_INIT;
static figures g_figures;  // after at_ms_units_load

// Of one copy, by chip; the last row is for chips that have none.
typedef struct copy_figures {
  const char *chip;
  double in_us, out_us, rate;
} copy_figures;
static copy_figures g_copies[] = {
    {.chip = "v5e"}, {.chip = "v5p"}, {.chip = "v6e"}, {.chip = "other"}};

static at_status read_figures(void) {
  at_arena *a;
  const at_json *j = NULL;
  AT_TRY_ALLOC(a, at_arena_create());
  at_status st = at_json_parse(at_tpu_unit_files[0], a, &j);
  const at_json *rows = at_json_get(j, "figures");
#define READ(name) \
  g_figures.name = at_coefficient(rows, #name, "data/tpu/vector_unit.json");
  if (!st.err) {
    FIGURES(READ)
  }
#undef READ
  const char *file = "data/tpu/vector_unit.json";
  for (size_t i = 0; !st.err && i < AT_LEN(g_copies); i++) {
    copy_figures *c = &g_copies[i];
    const at_json *of = at_json_get(at_json_get(j, "copies"), c->chip);
    c->in_us = at_coefficient(of, "copy_in_us", file);
    c->out_us = at_coefficient(of, "copy_out_us", file);
    c->rate = at_coefficient(of, "copy_rate", file);
  }
  at_arena_destroy(a);
  return st;
}

at_status at_ms_units_load(void) { return at_once_do(&g_once, read_figures); }

double at_ms_vector_slots(void) { return g_figures.vector_slots; }

double at_ms_beside(double a, double b) {
  double n = g_figures.overlap, longer = fmax(a, b);
  if (longer <= 0 || fmin(a, b) <= 0) return longer;
  return longer * pow(1 + pow(fmin(a, b) / longer, n), 1 / n);
}

double at_ms_units_time(const at_mosaic_units *u) {
  const double *x = &u->scalar;
  double time = 0;
  for (size_t i = 0; i < sizeof *u / sizeof *x; i++)
    time = at_ms_beside(time, x[i]);
  return time;
}

at_ms_copy at_ms_copy_of(const at_tpu_chip *chip) {
  size_t i = 0;
  while (i + 1 < AT_LEN(g_copies) &&
         strcmp(g_copies[i].chip, chip->machine->name) != 0)
    i++;
  const copy_figures *c = &g_copies[i];
  return (at_ms_copy){.latency_in = c->in_us * 1e-6 * chip->clock,
                      .latency_out = c->out_us * 1e-6 * chip->clock,
                      .rate = c->rate * chip->hbm_rate / chip->cores,
                      .rate_of_all = g_figures.side_by_side * c->rate *
                                     chip->hbm_rate / chip->cores};
}

double at_ms_copy_time(const at_ms_copy *c, double largest, double all) {
  return fmax(largest / c->rate, all / c->rate_of_all);
}

double at_ms_step(uint32_t windows) {
  return g_figures.step + windows * g_figures.step_window;
}

double at_ms_turn(void) { return g_figures.turn; }

// ---- Registers
static bool is_vector(const at_mtype *t) { return t->kind == AT_MTYPE_VECTOR; }

static uint32_t bits_of(const at_mtype *t) {
  uint32_t bits = at_dtype_of(at_mosaic_dtype_of(t))->bits;
  return bits == 1 || bits == 0 ? 32 : AT_MIN(bits, 32u);
}

// Of 8 x 128 words that hold the last two dimensions; `bits` per element.
static double registers(const at_mtype *t, uint32_t bits) {
  if (!is_vector(t)) return 1;
  double n = 1;
  for (uint32_t d = 0; d < t->shape.rank; d++) {
    uint32_t from_end = t->shape.rank - d;
    double size = (double)AT_MAX(t->shape.ptr[d], (int64_t)0);
    double rows = kSublanes * (double)(32 / bits);
    n *= from_end == 1   ? ceil(size / kLanes)
         : from_end == 2 ? ceil(size / rows)
                         : size;
  }
  return n;
}

// Elementwise work is done on words.
static double words(const at_mtype *t) { return registers(t, 32); }
static double packed(const at_mtype *t) { return registers(t, bits_of(t)); }

static double conversions(const at_mop *op) {
  double n = 0;
  for (uint32_t i = 0; i < op->num_operands; i++)
    if (is_vector(op->operands[i]->type) && bits_of(op->operands[i]->type) < 32)
      n += words(op->operands[i]->type);
  for (uint32_t i = 0; i < op->num_results; i++)
    if (is_vector(op->results[i].type) && bits_of(op->results[i].type) < 32)
      n += words(op->results[i].type);
  return n * g_figures.convert;
}

static const at_mtype *widest(const at_mop *op) {
  const at_mtype *best = op->num_results ? op->results[0].type : NULL;
  for (uint32_t i = 0; i < op->num_operands; i++) {
    const at_mtype *t = op->operands[i]->type;
    if (is_vector(t) && (!best || words(t) > words(best))) best = t;
  }
  return best;
}

// ---- By class
static void elementwise(const at_mop *op, double each, at_mosaic_units *u) {
  const figures *f = &g_figures;
  const at_mtype *t = op->num_results ? op->results[0].type : widest(op);
  if (!t || !is_vector(t)) {
    u->scalar += each / f->scalar_slots;
    return;
  }
  u->vector += (words(t) * each + conversions(op)) / f->vector_slots;
}

// Leading dimensions add whole registers; the last two also cross sublanes or
// lanes.
static void reduce(const at_mop *op, at_arena *a, at_mosaic_units *u,
                   double *latency) {
  const figures *f = &g_figures;
  const at_mtype *t = op->operands[0]->type;
  at_dims dims = {0};
  int64_t axis;
  if (!at_mosaic_attr_ints(at_mop_attr(op, "reduction_dims"), a, &dims) &&
      (at_mosaic_attr_int(op, "dim", &axis) ||
       at_mosaic_attr_int(op, "axis", &axis)))
    dims = (at_dims){&axis, 1};
  u->vector += (words(t) + conversions(op)) / f->vector_slots;
  double left = words(t), steps = 0;
  for (uint32_t i = 0; i < dims.rank; i++) {
    int64_t d = dims.ptr[i], rank = t->shape.rank;
    if (d < 0 || d >= rank) continue;
    double size = (double)AT_MAX(t->shape.ptr[d], (int64_t)1);
    if (d + 1 == rank) {
      left /= ceil(size / kLanes);
      steps += f->lane_steps;
      *latency += f->reduce_latency;
    } else if (d + 2 == rank) {
      left /= ceil(size / kSublanes);
      steps += f->sublane_steps;
    } else {
      left /= size;
    }
  }
  u->xlu += left * steps / f->xlu_slots;
  u->vector += left * steps / f->vector_slots;
}

static int64_t size_from_end(const at_mtype *t, uint32_t from_end) {
  if (!is_vector(t) || t->shape.rank < from_end) return 1;
  return t->shape.ptr[t->shape.rank - from_end];
}

static void broadcast(const at_mop *op, at_mosaic_units *u) {
  const figures *f = &g_figures;
  const at_mtype *from = op->operands[0]->type, *to = op->results[0].type;
  bool lanes = size_from_end(from, 1) == 1 && size_from_end(to, 1) > 1;
  bool rows = size_from_end(from, 2) == 1 && size_from_end(to, 2) > 1;
  if (!is_vector(from)) return;  // a scalar goes to all lanes as it is used
  if (lanes) u->xlu += words(to) * f->lane_spread / f->xlu_slots;
  if (rows) u->vector += words(to) * f->sublane_spread / f->vector_slots;
}

static bool is_transpose(const at_mop *op) {
  at_mosaic_opcode code = at_mosaic_opcode_of(op);
  return code == AT_MOSAIC_TPU_TRANSPOSE || code == AT_MOSAIC_VECTOR_TRANSPOSE;
}

static bool moves_tail(const at_mop *op, at_arena *a) {
  at_dims p = {0};
  at_mosaic_opcode code = at_mosaic_opcode_of(op);
  if (is_transpose(op)) {
    if (!at_mosaic_attr_ints(at_mop_attr(op, "permutation"), a, &p))
      return true;
    for (uint32_t d = p.rank > 2 ? p.rank - 2 : 0; d < p.rank; d++)
      if (p.ptr[d] != d) return true;
    return false;
  }
  if (code == AT_MOSAIC_VECTOR_SHAPE_CAST || code == AT_MOSAIC_TPU_RESHAPE) {
    const at_mtype *x = op->operands[0]->type, *y = op->results[0].type;
    return size_from_end(x, 1) != size_from_end(y, 1) ||
           size_from_end(x, 2) != size_from_end(y, 2);
  }
  return true;
}

static double product_of(const at_mtype *t, at_dims dims) {
  double n = 1;
  for (uint32_t i = 0; i < dims.rank; i++)
    if (dims.ptr[i] < t->shape.rank) n *= (double)t->shape.ptr[dims.ptr[i]];
  return n;
}

static at_status matmul(const at_mop *op, const at_tpu_chip *chip, at_arena *a,
                        at_mosaic_units *u, double *flops) {
  const at_mtype *x = op->operands[0]->type, *y = op->operands[1]->type;
  at_mosaic_dot d;
  AT_TRY(at_mosaic_dot_of(op, a, &d));
  at_tpu_kernel k = {.kind = AT_TPU_MATMUL,
                     .steps = 1,
                     .out_windows = 1,
                     .tiles = 1,
                     .rows = product_of(x, d.lhs_free),
                     .cols = product_of(y, d.rhs_free),
                     .depth = product_of(x, d.lhs_contracting),
                     .batch = product_of(x, d.lhs_batch),
                     .operand_bytes = bits_of(x) / 8.0,
                     .repeat = 1};
  at_str precision;
  const at_mattr *p = at_mop_attr(op, "precision");
  if (bits_of(x) == 32 && p && at_mosaic_attr_text(p, &precision)) {
    if (at_str_is(precision, "fp32")) k.repeat = 6;  // of three bf16 parts each
    if (at_str_is(precision, "bf16x3")) k.repeat = 3;
  }
  u->matrix += at_tpu_kernel_cycles(&k, chip).matrix * chip->cores;
  if (op->num_results)
    u->vector += words(op->results[0].type) / g_figures.vector_slots;
  *flops += 2 * k.batch * k.rows * k.cols * k.depth;
  return AT_OK;
}

static void memory(const at_mop *op, at_mosaic_units *u) {
  const figures *f = &g_figures;
  const at_mtype *t = op->num_results        ? op->results[0].type
                      : op->num_operands > 0 ? op->operands[0]->type
                                             : NULL;
  if (!t || !is_vector(t)) {
    u->scalar += 1 / f->scalar_slots;
  } else if (op->num_results) {
    u->load += packed(t) / f->load_slots;
  } else {
    u->store += packed(t) / f->store_slots;
  }
}

at_status at_ms_units_add(const at_mop *op, const at_tpu_chip *chip,
                          at_arena *scratch, at_mosaic_units *u,
                          double *latency, double *flops) {
  const figures *f = &g_figures;
  switch (at_mosaic_op_info_of(at_mosaic_opcode_of(op))->cost) {
    case AT_MOSAIC_COST_SCALAR:
    case AT_MOSAIC_COST_SYNC:
    case AT_MOSAIC_COST_DMA:
      u->scalar += 1 / f->scalar_slots;
      break;
    case AT_MOSAIC_COST_CHEAP:
      elementwise(op, 1, u);
      break;
    case AT_MOSAIC_COST_MEDIUM:
      elementwise(op, f->medium, u);
      break;
    case AT_MOSAIC_COST_EXPENSIVE:
      elementwise(op, f->expensive, u);
      break;
    case AT_MOSAIC_COST_MEMORY:
      memory(op, u);
      break;
    case AT_MOSAIC_COST_XLU:
      if (widest(op) && op->num_operands && op->num_results &&
          moves_tail(op, scratch)) {
        u->xlu += packed(widest(op)) / f->xlu_slots;
        *latency += is_transpose(op) ? f->transpose_latency : 0;
      }
      break;
    case AT_MOSAIC_COST_REDUCE:
      if (op->num_operands && is_vector(op->operands[0]->type))
        reduce(op, scratch, u, latency);
      break;
    case AT_MOSAIC_COST_BROADCAST:
      if (op->num_operands && op->num_results) broadcast(op, u);
      break;
    case AT_MOSAIC_COST_MXU:
      if (at_mosaic_opcode_of(op) != AT_MOSAIC_TPU_MATMUL) break;
      *latency += f->product_latency;
      return matmul(op, chip, scratch, u, flops);
    default:
      break;
  }
  return AT_OK;
}

// Cycles of one operation on the units of a core.
#include <math.h>

#include "base/once.h"
#include "machine/machine.h"
#include "tpu/timing_internal.h"

enum { kSublanes = 8, kLanes = 128 };

// clang-format off
#define FIGURES(X) \
  X(vector_slots) X(load_slots) X(scalar_slots) X(xlu_slots) X(eup_slots) \
  X(eup_work) X(convert) X(sublane_steps) X(lane_steps) X(sublane_spread) \
  X(lane_spread) X(overlap) X(reduce_latency) X(transpose_latency) X(again) \
  X(scalar_divide) X(scalar_load) X(branch) X(index_work) X(turn) \
  X(step) X(step_window) X(map_load) X(map_op) X(side_by_side) \
  X(prefetch)
// clang-format on
typedef struct figures {
#define FIELD(name) double name;
  FIGURES(FIELD)
#undef FIELD
} figures;

extern const at_bytes at_tpu_unit_files[];
static at_once g_once = AT_ONCE_INIT;
static figures g_figures;  // after at_ms_units_load

// By chip; the last row is for chips that have none.
#define CHIP_FIGURES(X) \
  X(copy_in_us)         \
  X(copy_out_us)        \
  X(copy_rate)          \
  X(store_slots)        \
  X(divide) X(root) X(product_latency) X(erf) X(power) X(expensive)
typedef struct chip_figures {
  const char *chip;
#define FIELD(name) double name;
  CHIP_FIGURES(FIELD)
#undef FIELD
} chip_figures;
static chip_figures g_chips[] = {
    {.chip = "v5e"}, {.chip = "v5p"}, {.chip = "v6e"}, {.chip = "other"}};

// A figure that is missing counts as at_coefficient says, with its name.
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
#define READ(name) \
  c->name = at_coefficient(of, #name, "data/tpu/vector_unit.json");
  for (size_t i = 0; !st.err && i < AT_LEN(g_chips); i++) {
    chip_figures *c = &g_chips[i];
    const at_json *of = at_json_get(at_json_get(j, "chips"), c->chip);
    CHIP_FIGURES(READ)
  }
#undef READ
  at_arena_destroy(a);
  return st;
}

at_status at_ms_units_load(void) { return at_once_do(&g_once, read_figures); }

double at_ms_vector_slots(void) { return g_figures.vector_slots; }

// A p-norm of the two: at least the longer, at most the sum.
double at_ms_beside(double a, double b) {
  double n = g_figures.overlap, longer = fmax(a, b);
  if (longer <= 0 || fmin(a, b) <= 0) return longer;
  return longer * pow(1 + pow(fmin(a, b) / longer, n), 1 / n);
}

// Field by field.
void at_ms_units_sum(at_mosaic_units *to, const at_mosaic_units *u) {
  const double *x = &u->scalar;
  double *y = &to->scalar;
  for (size_t i = 0; i < sizeof *u / sizeof *x; i++) y[i] += x[i];
}

// Folds all units, one after the other, in the order of the struct's fields.
double at_ms_units_time(const at_mosaic_units *u) {
  const double *x = &u->scalar;
  double time = 0;
  for (size_t i = 0; i < sizeof *u / sizeof *x; i++)
    time = at_ms_beside(time, x[i]);
  return time;
}

// The chip's own, or those of "other".
static const chip_figures *figures_of(const at_tpu_chip *chip) {
  size_t i = 0;
  while (i + 1 < AT_LEN(g_chips) &&
         strcmp(g_chips[i].chip, chip->machine->name) != 0)
    i++;
  return &g_chips[i];
}

// Latencies in cycles of the chip's clock, rates in bytes per cycle of one
// core.
at_ms_copy at_ms_copy_of(const at_tpu_chip *chip) {
  const chip_figures *c = figures_of(chip);
  double rate = c->copy_rate * chip->hbm_rate / chip->cores;
  return (at_ms_copy){.latency_in = c->copy_in_us * 1e-6 * chip->clock,
                      .latency_out = c->copy_out_us * 1e-6 * chip->clock,
                      .rate = rate,
                      .rate_of_all = g_figures.side_by_side * rate};
}

double at_ms_prefetch(const at_mosaic_program *p, const at_ms_copy *c) {
  return p->num_prefetch * g_figures.prefetch * c->latency_in;
}

// The largest copy at the rate of one, or all of them at the rate of several,
// whichever takes longer; without latency.
double at_ms_copy_time(const at_ms_copy *c, double largest, double all) {
  return fmax(largest / c->rate, all / c->rate_of_all);
}

// Per step: a fixed part, one per window, and the scalar work of index maps.
double at_ms_step(const at_mosaic_program *p) {
  double cycles = g_figures.step;
  for (uint32_t i = 0; i < p->num_windows; i++) {
    const at_mop *map = p->windows[i].transform;
    const at_mblock *b = map ? map->regions[0]->blocks[0] : NULL;
    cycles += g_figures.step_window;
    for (uint32_t k = 0; b && k < b->num_ops; k++) {
      at_mosaic_opcode code = at_mosaic_opcode_of(b->ops[k]);
      if (code == AT_MOSAIC_MEMREF_LOAD)
        cycles += g_figures.map_load;
      else if (b->ops[k]->num_operands)
        cycles += g_figures.map_op;
    }
  }
  return cycles;
}

double at_ms_turn(void) { return g_figures.turn; }

// ---- Registers
static bool is_vector(const at_mtype *t) { return t->kind == AT_MTYPE_VECTOR; }

// Of an element as registers hold it: a mask takes a word, wider elements than
// words count as words.
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

double at_ms_registers(const at_mtype *t) { return packed(t); }

// Vector work to widen narrow operands to words and to narrow results again.
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

// The vector of most registers among result and operands; NULL: none.
static const at_mtype *widest(const at_mop *op) {
  const at_mtype *best = op->num_results ? op->results[0].type : NULL;
  for (uint32_t i = 0; i < op->num_operands; i++) {
    const at_mtype *t = op->operands[i]->type;
    if (is_vector(t) && (!best || words(t) > words(best))) best = t;
  }
  return best;
}

// Independent work fills most of the time that a further one takes.
static void add_latency(at_ms_latency *l, uint32_t *seen, double cycles) {
  l->cycles += cycles * (*seen ? g_figures.again : 1);
  ++*seen;
}

// ---- By class
// `each`: vector operations per register of words.
static void elementwise(const at_mop *op, double each, at_mosaic_units *u) {
  const figures *f = &g_figures;
  const at_mtype *t = op->num_results ? op->results[0].type : widest(op);
  if (!t || !is_vector(t)) {
    u->scalar += each / f->scalar_slots;
    return;
  }
  u->vector += (words(t) * each + conversions(op)) / f->vector_slots;
}

// What the unit for transcendental functions begins, and the vector unit ends.
static void transcendental(const at_mop *op, const at_tpu_chip *chip,
                           at_mosaic_units *u) {
  const chip_figures *c = figures_of(chip);
  const at_mtype *t = op->num_results ? op->results[0].type : NULL;
  double work = g_figures.eup_work, times = 1;
  bool is_float = t && at_is_float(at_mosaic_dtype_of(t));
  switch (at_mosaic_opcode_of(op)) {
    case AT_MOSAIC_ARITH_DIVF:
      work = c->divide;
      break;
    case AT_MOSAIC_MATH_RSQRT:
    case AT_MOSAIC_MATH_SQRT:
      work = c->root;
      break;
    case AT_MOSAIC_MATH_ERF:
      work = c->erf;
      break;
    case AT_MOSAIC_MATH_POWF:
      work = c->power;
      times = 2;
      break;
    default:
      break;
  }
  // Integers are divided by the vector unit alone.
  if (!is_float) work = c->power, times = 0;
  if (!t || !is_vector(t)) work = g_figures.scalar_divide;
  elementwise(op, work, u);
  if (t && is_vector(t)) u->eup += words(t) * times / g_figures.eup_slots;
}

// Leading dimensions add whole registers; the last two also cross sublanes or
// lanes.
static void reduce(const at_mop *op, at_arena *a, at_mosaic_units *u,
                   at_ms_latency *latency) {
  const figures *f = &g_figures;
  const at_mtype *t = op->operands[0]->type;
  at_dims dims = {0};
  int64_t axis;
  if (!at_mosaic_attr_ints(at_mop_attr(op, "reduction_dims"), a, &dims) &&
      (at_mosaic_attr_int(op, "dim", &axis) ||
       at_mosaic_attr_int(op, "axis", &axis)))
    dims = (at_dims){&axis, 1};
  // Registers are first reduced among themselves: one operation each, more
  // where an index goes along.
  bool finds = at_mosaic_opcode_of(op) == AT_MOSAIC_TPU_REDUCE_INDEX;
  u->vector += (words(t) * (finds ? f->index_work : 1) + conversions(op)) /
               f->vector_slots;
  // What is left crosses sublanes and lanes, register by register.
  double left = words(t), steps = 0;
  for (uint32_t i = 0; i < dims.rank; i++) {
    int64_t d = dims.ptr[i], rank = t->shape.rank;
    if (d < 0 || d >= rank) continue;
    double size = (double)AT_MAX(t->shape.ptr[d], (int64_t)1);
    if (d + 1 == rank) {
      left /= ceil(size / kLanes);
      steps += f->lane_steps;
      add_latency(latency, &latency->reductions, f->reduce_latency);
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

// 1 for scalars and missing dimensions.
static int64_t size_from_end(const at_mtype *t, uint32_t from_end) {
  if (!is_vector(t) || t->shape.rank < from_end) return 1;
  return t->shape.ptr[t->shape.rank - from_end];
}

// Does every lane hold the row's number already, as after a reduction?
static bool is_spread(const at_mvalue *v) {
  for (int fuel = 16; fuel-- && v->op && v->op->num_operands;) {
    switch (at_mosaic_op_info_of(at_mosaic_opcode_of(v->op))->cost) {
      case AT_MOSAIC_COST_REDUCE:
        return true;
      case AT_MOSAIC_COST_CHEAP:
      case AT_MOSAIC_COST_MEDIUM:
      case AT_MOSAIC_COST_XLU:
      case AT_MOSAIC_COST_NONE:
        v = v->op->operands[0];
        break;
      default:
        return false;
    }
  }
  return false;
}

// Only lanes and sublanes cost; leading dimensions reuse registers.
static void broadcast(const at_mop *op, at_mosaic_units *u) {
  const figures *f = &g_figures;
  const at_mtype *from = op->operands[0]->type, *to = op->results[0].type;
  bool lanes = size_from_end(from, 1) == 1 && size_from_end(to, 1) > 1;
  bool rows = size_from_end(from, 2) == 1 && size_from_end(to, 2) > 1;
  if (!is_vector(from)) return;  // a scalar goes to all lanes as it is used
  if (lanes && !is_spread(op->operands[0]))
    u->xlu += words(from) * f->lane_spread / f->xlu_slots;
  if (rows) u->vector += words(from) * f->sublane_spread / f->vector_slots;
}

// Both dialects have one; they cost the same.
static bool is_transpose(const at_mop *op) {
  at_mosaic_opcode code = at_mosaic_opcode_of(op);
  return code == AT_MOSAIC_TPU_TRANSPOSE || code == AT_MOSAIC_VECTOR_TRANSPOSE;
}

// Elements of a tile along a dimension, counted from the end; 1: none.
static int64_t tile_along(uint32_t from_end) {
  return from_end == 1 ? kLanes : from_end == 2 ? kSublanes : 1;
}

// Does it move one of the last two dimensions?
static bool transposes_tail(const at_mop *op, at_arena *a) {
  at_dims p = {0};
  if (!at_mosaic_attr_ints(at_mop_attr(op, "permutation"), a, &p)) return true;
  for (uint32_t d = p.rank > 2 ? p.rank - 2 : 0; d < p.rank; d++)
    if (p.ptr[d] != d) return true;
  return false;
}

// Do rows or lanes change their registers?
static bool reshapes_tail(const at_mop *op) {
  const at_mtype *x = op->operands[0]->type, *y = op->results[0].type;
  if (size_from_end(x, 1) != size_from_end(y, 1)) return true;
  return size_from_end(x, 2) != size_from_end(y, 2) &&
         (size_from_end(x, 2) % kSublanes || size_from_end(y, 2) % kSublanes);
}

// Does a part begin or end within a tile?
static bool cuts_tiles(const at_mop *op, at_arena *a) {
  at_dims at = {0};
  if (!at_mosaic_attr_ints(at_mop_attr(op, "offsets"), a, &at)) return true;
  for (uint32_t d = 0; d < at.rank; d++)
    if (at.ptr[d] % tile_along(at.rank - d)) return true;
  return false;
}

// Does a part along `dimension` end inside a tile?
static bool joins_within_tiles(const at_mop *op) {
  int64_t d;
  if (!at_mosaic_attr_int(op, "dimension", &d)) return true;
  for (uint32_t i = 0; i < op->num_operands; i++) {
    const at_mtype *t = op->operands[i]->type;
    if (d < 0 || d >= t->shape.rank ||
        t->shape.ptr[d] % tile_along(t->shape.rank - (uint32_t)d))
      return true;
  }
  return false;
}

// Registers that cross lanes or sublanes.
static double crossings(const at_mop *op, at_arena *a) {
  int64_t d;
  const at_mtype *t = op->results[0].type;
  switch (at_mosaic_opcode_of(op)) {
    case AT_MOSAIC_TPU_TRANSPOSE:
    case AT_MOSAIC_VECTOR_TRANSPOSE:
      return transposes_tail(op, a) ? packed(t) : 0;
    case AT_MOSAIC_VECTOR_SHAPE_CAST:
    case AT_MOSAIC_TPU_RESHAPE:
      return reshapes_tail(op) ? packed(widest(op)) : 0;
    case AT_MOSAIC_VECTOR_EXTRACT_STRIDED_SLICE:
      return cuts_tiles(op, a) ? packed(t) : 0;
    case AT_MOSAIC_TPU_REPEAT:
    case AT_MOSAIC_TPU_CONCATENATE:
      return joins_within_tiles(op) ? packed(t) : 0;
    case AT_MOSAIC_TPU_DYNAMIC_ROTATE:
      if (at_mosaic_attr_int(op, "dimension", &d) && d + 1 < t->shape.rank)
        return 0;
      return packed(t);
    default:
      return packed(widest(op));
  }
}

// The product of the sizes of these dimensions.
static double product_of(const at_mtype *t, at_dims dims) {
  double n = 1;
  for (uint32_t i = 0; i < dims.rank; i++)
    if (dims.ptr[i] < t->shape.rank) n *= (double)t->shape.ptr[dims.ptr[i]];
  return n;
}

// Matrix cycles from the cost model's product, times the passes that the
// precision takes.
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
  // Words are multiplied as bf16 unless the kernel asks for more.
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

// A register per slot; scalars are SMEM accesses.
static void memory(const at_mop *op, const at_tpu_chip *chip,
                   at_mosaic_units *u) {
  const figures *f = &g_figures;
  const at_mtype *t = op->num_results        ? op->results[0].type
                      : op->num_operands > 0 ? op->operands[0]->type
                                             : NULL;
  if (!t || !is_vector(t)) {
    u->scalar += f->scalar_load;
  } else if (op->num_results) {
    u->load += packed(t) / f->load_slots;
  } else {
    u->store += packed(t) / figures_of(chip)->store_slots;
  }
}

// Cycles of the scalar core.
static double scalar_work(const at_mop *op) {
  switch (at_mosaic_opcode_of(op)) {
    case AT_MOSAIC_MEMREF_LOAD:
      return g_figures.scalar_load;
    case AT_MOSAIC_SCF_IF:
      return g_figures.branch;
    default:
      return 1 / g_figures.scalar_slots;
  }
}

// By the cost class of ops.def.
at_status at_ms_units_add(const at_mop *op, const at_tpu_chip *chip,
                          at_arena *scratch, at_mosaic_units *u,
                          at_ms_latency *latency, double *flops) {
  const figures *f = &g_figures;
  switch (at_mosaic_op_info_of(at_mosaic_opcode_of(op))->cost) {
    case AT_MOSAIC_COST_SCALAR:
      u->scalar += scalar_work(op);
      break;
    case AT_MOSAIC_COST_SYNC:
    case AT_MOSAIC_COST_DMA:
      u->scalar += 1 / f->scalar_slots;
      break;
    case AT_MOSAIC_COST_CHEAP:
      elementwise(op, 1, u);
      break;
    case AT_MOSAIC_COST_MEDIUM:
      transcendental(op, chip, u);
      break;
    case AT_MOSAIC_COST_EXPENSIVE:
      elementwise(op, figures_of(chip)->expensive, u);
      break;
    case AT_MOSAIC_COST_MEMORY:
      memory(op, chip, u);
      break;
    case AT_MOSAIC_COST_XLU:
      if (widest(op) && op->num_operands && op->num_results) {
        double n = crossings(op, scratch);
        u->xlu += n / f->xlu_slots;
        if (n && is_transpose(op))
          add_latency(latency, &latency->transposes, f->transpose_latency);
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
      add_latency(latency, &latency->products,
                  figures_of(chip)->product_latency);
      return matmul(op, chip, scratch, u, flops);
    default:
      break;
  }
  return AT_OK;
}

// What a step takes on this machine. Nothing here is fitted to programs: every
// figure is a measurement of one op or kernel (src/cli/measure.c), and the
// nodes are those that the CPU's own compiler made.
#include "cost/host.h"

#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "cost/cost_internal.h"
#include "cost/count.h"

// Steps of less work than this run on one thread (codegen's grain).
static const double kGrain = 20e-6;
// Gathers and scatters are measured for rows of these sizes.
enum { kShortRow = 4, kLongRow = 256 };

static const char *const figures[AT_HOST_RATES] = {
#define AT_HOST_RATE(Id, figure, doc) [AT_HOST_##Id] = figure,
#include "cost/host_rates.def"
#undef AT_HOST_RATE
};

const char *at_host_rate_figure(at_host_rate r) { return figures[r]; }

// ---- Reading
// INVALID_ARGUMENT names the figure.
static at_status bad(const char *figure, const char *why) {
  return AT_FAIL(AT_INVALID_ARGUMENT,
                 "%s: %s\nhint: atoll doctor --measure writes it", figure, why);
}

// "size:seconds size:seconds ...", sizes ascending.
static at_status read_curve(const char *figure, at_str text, at_host_curve *c) {
  char copy[1024], *at = copy, *end;
  if (text.len >= sizeof copy) return bad(figure, "too long");
  memcpy(copy, text.ptr, text.len);
  copy[text.len] = 0;
  while (*(at += strspn(at, " "))) {
    if (c->count == AT_HOST_POINTS) return bad(figure, "too many points");
    double size = strtod(at, &end);
    if (end == at || *end != ':') return bad(figure, "size:seconds is needed");
    double seconds = strtod(at = end + 1, &end);
    if (end == at || (*end && *end != ' '))
      return bad(figure, "size:seconds is needed");
    bool rises = !c->count || size > c->size[c->count - 1];
    if (!(size > 0 && seconds > 0 && isfinite(size) && isfinite(seconds) &&
          rises))
      return bad(figure, "sizes rise and both numbers are positive");
    c->size[c->count] = size, c->seconds[c->count++] = seconds;
    at = end;
  }
  return AT_OK;
}

// What was not measured costs what an add or an exponential costs.
static void spread(at_host *h, at_dtype t) {
  float plain = h->op[AT_OP_ADD][t], heavy = h->op[AT_OP_EXPONENTIAL][t];
  for (int op = 0; op < AT_OP_COUNT; op++) {
    at_cost_class class = at_op_of((at_op)op)->cost;
    if (h->op[op][t] > 0) continue;
    h->op[op][t] = class == AT_COST_TRANSCENDENTAL && heavy > 0 ? heavy : plain;
  }
}

// "add:1e-10 divide:3e-10 ..."
static at_status read_ops(const char *figure, at_str text, at_dtype t,
                          at_host *h) {
  for (size_t i = 0; i < text.len;) {
    size_t colon = i, end;
    while (colon < text.len && text.ptr[colon] != ':') colon++;
    for (end = colon; end < text.len && text.ptr[end] != ' ';) end++;
    char number[40];
    at_op op;
    if (colon == text.len || end - colon - 1 >= sizeof number ||
        !at_op_parse((at_str){text.ptr + i, colon - i}, &op))
      return bad(figure, "op:seconds is needed");
    memcpy(number, text.ptr + colon + 1, end - colon - 1);
    number[end - colon - 1] = 0;
    char *rest;
    double seconds = strtod(number, &rest);
    if (*rest || !(seconds > 0 && seconds < 1))
      return bad(figure, "op:seconds is needed");
    h->op[op][t] = (float)seconds;
    for (i = end; i < text.len && text.ptr[i] == ' ';) i++;
  }
  if (h->op[AT_OP_ADD][t] <= 0) return bad(figure, "add is missing");
  spread(h, t);
  return AT_OK;
}

// A type that was not measured: the nearest one, by its width.
static void fill_types(at_host *h) {
  for (int t = AT_INVALID + 1; t < AT_DTYPE_COUNT; t++) {
    at_dtype type = (at_dtype)t, from = AT_S32;
    if (h->op[AT_OP_ADD][t] > 0 || type == AT_TOKEN) continue;
    double scale = 1;
    if (at_is_complex(type)) {
      from = type == AT_C128 ? AT_F64 : AT_F32, scale = 3;
    } else if (at_is_float(type)) {
      from = AT_BF16;
    } else {
      scale = fmax(1, at_dtype_bytes(type)) / 4;
    }
    for (int op = 0; op < AT_OP_COUNT; op++)
      h->op[op][t] = (float)(h->op[op][from] * scale);
  }
}

// Warns once of curves that were not measured.
static void say_missing(const at_machine *m, const at_host *h) {
  at_strbuf names = {0};
  for (int r = 0; r < AT_HOST_RATES; r++)
    if (!h->curves[r].count) at_strbuf_addf(&names, " %s", figures[r]);
  if (names.len)
    at_log_once(
        AT_LOG_WARNING,
        "the description of %s lacks%.*s: work that needs them counts 0\n"
        "hint: atoll doctor --measure writes them",
        m->name, (int)names.len, names.ptr);
  at_strbuf_free(&names);
}

// See host.h. Reads and writes of memory must have been measured; other curves
// may be missing.
at_status at_host_of(const at_machine *m, at_arena *a, const at_host **out) {
  static const struct {
    const char *figure;
    at_dtype type;
  } ops[] = {{"f32_op_seconds", AT_F32},
             {"bf16_op_seconds", AT_BF16},
             {"f64_op_seconds", AT_F64},
             {"i32_op_seconds", AT_S32}};
  at_figure f;
  *out = NULL;
  if (!at_machine_figure(m, ops[0].figure, &f)) return AT_OK;
  at_host *h;
  AT_TRY_ALLOC(h, at_new(a, at_host, 1));
  *h = (at_host){0};
  const struct {
    const char *figure;
    double *to;
  } numbers[] = {{"cores_per_chip", &h->cores},
                 {"step_seconds", &h->step},
                 {"fork_seconds", &h->fork},
                 {"scalar_op_seconds", &h->scalar}};
  for (size_t i = 0; i < AT_LEN(numbers); i++)
    AT_TRY(at_machine_need(m, numbers[i].figure, numbers[i].to));
  h->overlap = fmin(1, at_machine_number(m, "memory_not_hidden", 0));
  for (size_t i = 0; i < AT_LEN(ops); i++) {
    if (!at_machine_figure(m, ops[i].figure, &f))
      return bad(ops[i].figure, "missing");
    AT_TRY(read_ops(ops[i].figure, f.text, ops[i].type, h));
  }
  fill_types(h);
  for (int r = 0; r < AT_HOST_RATES; r++)
    if (at_machine_figure(m, figures[r], &f))
      AT_TRY(read_curve(figures[r], f.text, &h->curves[r]));
  for (int r = AT_HOST_READ; r <= AT_HOST_WRITE; r++)
    if (!h->curves[r].count) return bad(figures[r], "missing");
  say_missing(m, h);
  *out = h;
  return AT_OK;
}

double at_host_seconds(const at_host *h, at_host_rate r, double size) {
  const at_host_curve *c = &h->curves[r];
  if (!c->count) return 0;
  if (size <= c->size[0]) return c->seconds[0];
  for (uint32_t i = 1; i < c->count; i++)
    if (size <= c->size[i]) {
      double f = log(size / c->size[i - 1]) / log(c->size[i] / c->size[i - 1]);
      return c->seconds[i - 1] * pow(c->seconds[i] / c->seconds[i - 1], f);
    }
  return c->seconds[c->count - 1];
}

// ---- Arithmetic: seconds of one core
// What a kernel costs one core.
typedef struct bill {
  const at_host *h;
  double seconds;
  double random;  // of rows read at random, memory included
} bill;

static double elements(const at_type *t) {
  return at_type_is_static(t) ? (double)at_type_elements(t) : 0;
}
static double bytes_of(const at_type *t) {
  return at_type_is_static(t) ? (double)at_type_bytes(t) : 0;
}
static const at_type *operand(const at_node *n, uint32_t i) {
  return at_value_type(n->operands[i]);
}
static double product(at_dims d) {
  double p = 1;
  for (uint32_t i = 0; i < d.rank; i++) p *= (double)d.ptr[i];
  return p;
}
static double all_cores(const at_host *h, at_host_rate r, double size) {
  return at_host_seconds(h, r, size) * h->cores;
}

// One elementwise node: seconds per element of its type, or, of a comparison,
// of its operands'.
static double op_seconds(const at_host *h, const at_node *n) {
  at_dtype t = n->types[0].dtype;
  if (n->op == AT_OP_COMPARE && n->num_operands) t = operand(n, 0)->dtype;
  return h->op[n->op][t] * elements(&n->types[0]);
}

// Does a reduction sum over the minor dimension?
static bool along_rows(const at_node *n) {
  at_dims d = at_node_ints(n, AT_ATTR_DIMENSIONS);
  for (uint32_t i = 0; i < d.rank; i++)
    if (d.ptr[i] == (int64_t)operand(n, 0)->rank - 1) return true;
  return false;
}

// An element of a reduction, by what its body does next to one sum of f32.
static double reduce_seconds(const at_host *h, const at_node *n) {
  const at_type *t = operand(n, 0);
  double last = t->rank ? (double)t->dims[t->rank - 1] : 1, body = 0;
  at_host_rate r = along_rows(n) ? AT_HOST_REDUCE_ROWS : AT_HOST_REDUCE_COLS;
  AT_FOR_NODES(k, n->regions[0])
  if (at_op_is(k->op, AT_ELEMENTWISE) && k->num_results)
    body += h->op[k->op][k->types[0].dtype];
  double plain = h->op[AT_OP_ADD][AT_F32];
  double each = at_host_seconds(h, r, last) * h->cores;
  return elements(t) * (fmax(each, plain) + fmax(0, body - plain));
}

// Rows read or written at random in a table of `table` bytes: two row sizes
// were measured; others are linear in bytes. The rate of long rows follows
// short_row.
static double rows_moved(const at_host *h, at_host_rate short_row, double rows,
                         double row_bytes, double table) {
  double few = at_host_seconds(h, short_row, table);
  double many = at_host_seconds(h, (at_host_rate)(short_row + 1), table);
  double per_byte = fmax(0, many - few) / (kLongRow - kShortRow);
  return rows * (few + per_byte * fmax(0, row_bytes - kShortRow));
}

// Elements of one slice that a gather takes or a scatter writes.
static double gather_seconds(const at_host *h, const at_node *n) {
  double slice = product(at_node_ints(n, AT_ATTR_SLICE_SIZES));
  const at_type *t = operand(n, 0);
  double rows = slice > 0 ? elements(&n->types[0]) / slice : 0;
  return h->cores * rows_moved(h, AT_HOST_GATHER, rows,
                               slice * at_dtype_bytes(t->dtype), bytes_of(t));
}

// Windows of updates, as rows.
static double scatter_seconds(const at_host *h, const at_node *n) {
  uint32_t inputs = n->num_results;
  if (n->num_operands < 2 * inputs + 1) return 0;
  const at_type *updates = operand(n, inputs + 1),
                *indices = operand(n, inputs);
  double windows = 1;
  at_dims w = at_node_ints(n, AT_ATTR_UPDATE_WINDOW_DIMS);
  for (uint32_t i = 0; i < w.rank; i++)
    if (w.ptr[i] < (int64_t)updates->rank)
      windows *= (double)updates->dims[w.ptr[i]];
  double rows = windows > 0 ? elements(updates) / windows : elements(indices);
  return inputs * rows_moved(h, AT_HOST_SCATTER, rows,
                             windows * at_dtype_bytes(updates->dtype),
                             bytes_of(&n->types[0]));
}

static double contraction(const at_node *n) {
  at_gemm g;
  return at_cost_gemm_of(n, &g) ? (double)g.k : 1;
}

static void add_comp(bill *b, const at_comp *c, double times);

static void add_node(bill *b, const at_node *n, double times) {
  const at_host *h = b->h;
  if (!n->num_results) return;
  const at_type *t = &n->types[0];
  double s = 0;
  if (at_op_is(n->op, AT_ELEMENTWISE)) {
    s = op_seconds(h, n);
  } else {
    switch (n->op) {
      case AT_OP_REDUCE:
        s = reduce_seconds(h, n);
        break;
      case AT_OP_REDUCE_WINDOW:
        s = elements(t) * h->op[AT_OP_ADD][t->dtype] *
            product(at_node_ints(n, AT_ATTR_WINDOW_DIMENSIONS));
        break;
      case AT_OP_SELECT_AND_SCATTER:
        s = elements(operand(n, 1)) * h->op[AT_OP_ADD][t->dtype] * 8 *
            product(at_node_ints(n, AT_ATTR_WINDOW_DIMENSIONS));
        break;
      case AT_OP_DOT_GENERAL:
        s = elements(t) * contraction(n) *
            (h->op[AT_OP_MULTIPLY][t->dtype] + h->op[AT_OP_ADD][t->dtype]);
        break;
      case AT_OP_TRANSPOSE:
        s = bytes_of(t) * all_cores(h, AT_HOST_TRANSPOSE, bytes_of(t));
        break;
      case AT_OP_GATHER:
        b->random += gather_seconds(h, n) * times;
        return;
      case AT_OP_IOTA:
      case AT_OP_PAD:
      case AT_OP_CONCATENATE:
      case AT_OP_REVERSE:
        s = elements(t) * h->op[AT_OP_ADD][t->dtype];
        break;
      case AT_OP_WHILE: {
        bool known;
        double turns = at_count_trips(n, &known);
        for (uint32_t r = 0; r < n->num_regions; r++)
          add_comp(b, n->regions[r], times * turns);
        return;
      }
      case AT_OP_FUSION:
      case AT_OP_MAP:
      case AT_OP_IF:
      case AT_OP_CASE:
        for (uint32_t r = 0; r < n->num_regions; r++)
          add_comp(b, n->regions[r], times);
        return;
      default:
        break;
    }
  }
  b->seconds += s * times;
}

static void add_comp(bill *b, const at_comp *c, double times) {
  AT_FOR_NODES(n, c) add_node(b, n, times);
}

// ---- Memory
typedef struct traffic {
  const at_host *h;
  at_host_memory memory;
  double bytes, seconds;
} traffic;

// `bytes` of v are read or written, at the rate of the memory that holds what
// was touched so long ago.
static void touch(traffic *m, at_value v, double bytes, bool write) {
  const at_type *t = at_value_type(v);
  double far = m->memory.distance
                   ? m->memory.distance(m->memory.user, v, bytes, write)
                   : 2 * bytes_of(t);
  m->bytes += bytes;
  m->seconds +=
      bytes * at_host_seconds(m->h, write ? AT_HOST_WRITE : AT_HOST_READ, far);
}

// Does n read only part of its first operand?
static bool takes_part(const at_node *n) {
  return n->op == AT_OP_SLICE || n->op == AT_OP_DYNAMIC_SLICE ||
         n->op == AT_OP_GATHER;
}

// The operand that result r is, updated in a part; -1: there is none.
static int64_t updated_operand(const at_node *n, uint32_t r) {
  const at_node *from = n;
  uint32_t i = r;
  if (n->op == AT_OP_FUSION && n->num_regions) {
    const at_comp *c = n->regions[0];
    from = c->results[r].node;
    if (from->op != AT_OP_DYNAMIC_UPDATE_SLICE) return -1;
    for (i = 0; i < c->num_params; i++)
      if (c->params[i] == from->operands[0].node) return i;
    return -1;
  }
  bool updates = from->op == AT_OP_DYNAMIC_UPDATE_SLICE ||
                 (from->op == AT_OP_SCATTER && r < n->num_operands);
  return updates ? (int64_t)i : -1;
}

// Does result r take over the memory of the operand that it updates? Else all
// of that is copied first.
static bool in_place(const traffic *m, const at_node *n, uint32_t r) {
  int64_t i = updated_operand(n, r);
  return i >= 0 &&
         (!m->memory.same || m->memory.same(m->memory.user, n->operands[i],
                                            (at_value){(at_node *)n, r}));
}

// Is operand i copied whole, as an update cannot be done in place?
static bool is_copied_first(const traffic *m, const at_node *n, uint32_t i) {
  for (uint32_t r = 0; r < n->num_results; r++)
    if (updated_operand(n, r) == i && !in_place(m, n, r)) return true;
  return false;
}

// Bytes that a fusion reads of its operand `i`; -1: all of it. Those of rows
// taken at random are paid with the rows.
static double part_read(const at_comp *c, uint32_t i) {
  double part = 0;
  AT_FOR_NODES(n, c)
  for (uint32_t o = 0; o < n->num_operands; o++) {
    if (n->operands[o].node != c->params[i]) continue;
    bool updated = n->op == AT_OP_DYNAMIC_UPDATE_SLICE && o == 0;
    if (updated) continue;
    if (!takes_part(n) || o) return -1;
    if (n->op != AT_OP_GATHER) part += bytes_of(&n->types[0]);
  }
  for (uint32_t r = 0; r < c->num_results; r++)
    if (c->results[r].node == c->params[i]) return -1;
  return part;
}

// Bytes that n reads of operand i.
static double read_of(const traffic *m, const at_node *n, uint32_t i) {
  double all = bytes_of(operand(n, i)), part = -1;
  if (is_copied_first(m, n, i)) return all;
  if (at_node_literal(n->operands[i].node) &&
      at_node_literal(n->operands[i].node)->splat)
    return 0;
  if (n->op == AT_OP_FUSION && n->num_regions)
    part = part_read(n->regions[0], i);
  else if (takes_part(n) && i == 0)
    part = n->op == AT_OP_GATHER ? 0 : bytes_of(&n->types[0]);
  else if ((n->op == AT_OP_DYNAMIC_UPDATE_SLICE || n->op == AT_OP_SCATTER) &&
           i < n->num_results)
    part = 0;
  return part >= 0 ? fmin(all, part) : all;
}

// An update in place writes what it updates.
static double written_of(const traffic *m, const at_node *n, uint32_t r) {
  const at_node *from = n;
  if (!in_place(m, n, r)) return bytes_of(&n->types[r]);
  if (n->op == AT_OP_FUSION && n->num_regions)
    from = n->regions[0]->results[r].node;
  if (from->op == AT_OP_DYNAMIC_UPDATE_SLICE) return bytes_of(operand(from, 1));
  if (n->op == AT_OP_SCATTER && n->num_operands > n->num_results)
    return bytes_of(operand(n, n->num_operands - 1));
  return bytes_of(&n->types[r]);
}

// All operands, then all results: the order that at_host_distance is promised.
static void move(traffic *m, const at_node *n) {
  for (uint32_t i = 0; i < n->num_operands; i++)
    touch(m, n->operands[i], read_of(m, n, i), false);
  for (uint32_t r = 0; r < n->num_results; r++)
    touch(m, (at_value){(at_node *)n, r}, written_of(m, n, r), true);
}

// ---- Products
// Rates of products with one short side, next to one of 256.
static double short_side(const at_host *h, at_host_rate r, int64_t size) {
  double full = at_host_seconds(h, r, 256);
  return full > 0 ? at_host_seconds(h, r, (double)size) / full : 1;
}

// The table starts at sides of 256; what is shorter has curves of its own.
at_status at_host_gemm(const at_target *t, const at_gemm *g,
                       at_cost_time *out) {
  const at_host *h = t->host;
  bool narrow = at_dtype_bytes(g->lhs) < 4 && at_dtype_bytes(g->rhs) < 4;
  at_host_rate r = narrow ? AT_HOST_GEMM_M_BF16 : AT_HOST_GEMM_M_F32;
  bool any_short = g->m < 256 || g->n < 256 || g->k < 256;
  if (t->user && !any_short) {
    at_status st = at_perf_gemm(t->user, g, out);
    if (at_status_code(st) != AT_NOT_FOUND) return st;
    at_status_free(st);
  }
  double each = at_host_seconds(h, r, 256);
  if (!(each > 0)) return AT_FAIL(AT_NOT_FOUND, "products were not measured");
  double flops =
      2.0 * (double)g->b * (double)g->m * (double)g->n * (double)g->k;
  double slower = short_side(h, r, g->m) *
                  short_side(h, (at_host_rate)(r + 1), g->n) *
                  short_side(h, (at_host_rate)(r + 2), g->k);
  *out = (at_cost_time){flops * each * slower, AT_COST_FROM_HOST};
  return AT_OK;
}

// ---- Kernels of the runtime: seconds of all cores, memory included
// By the length of rows; each operand beside the keys costs what it adds to a
// sort of pairs.
static double sort_seconds(const at_host *h, const at_node *n) {
  const at_type *t = &n->types[0];
  int64_t d = at_node_int(n, AT_ATTR_DIMENSION, -1);
  if (d < 0) d += t->rank;
  double size = t->rank && d < t->rank ? (double)t->dims[d] : 1;
  double all = elements(t), rows = size > 0 ? all / size : 0;
  double pairs = at_host_seconds(h, AT_HOST_SORT_PAIRS, size) /
                 fmax(1e-30, at_host_seconds(h, AT_HOST_SORT, size));
  double more = 1 + fmax(0, pairs - 1) * (n->num_results - 1);
  return all * more *
         at_host_seconds(h, rows >= 4 ? AT_HOST_SORT_ROWS : AT_HOST_SORT, size);
}

static double top_k_seconds(const at_host *h, const at_node *n) {
  const at_type *t = operand(n, 0);
  double size = t->rank ? (double)t->dims[t->rank - 1] : 1;
  double rows = size > 0 ? elements(t) / size : 0;
  return elements(t) *
         at_host_seconds(h, rows >= 4 ? AT_HOST_TOP_K_ROWS : AT_HOST_TOP_K,
                         size);
}

// n log n at the rate of that length.
static double fft_seconds(const at_host *h, const at_node *n) {
  double size = product(at_node_ints(n, AT_ATTR_FFT_LENGTH));
  return fmax(elements(operand(n, 0)), elements(&n->types[0])) *
         log2(fmax(2, size)) * at_host_seconds(h, AT_HOST_FFT, size);
}

// FLOPs at the rate of so many features.
static double convolution_seconds(const at_host *h, const at_node *n) {
  const at_type *w = operand(n, 1);
  double in =
      (double)
          w->dims[at_node_int(n, AT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION, 0)];
  double of =
      (double)
          w->dims[at_node_int(n, AT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION, 0)];
  double flops = of > 0 ? 2 * elements(&n->types[0]) * elements(w) / of : 0;
  return flops * at_host_seconds(h, AT_HOST_CONV, sqrt(in * of));
}

// By the side of a matrix; matrices of a batch are spread over the cores. 0:
// another call.
static double linalg_seconds(const at_host *h, const at_node *n) {
  static const struct {
    const char *call;
    at_host_rate rate;
  } rows[] = {{"Qr", AT_HOST_QR},
              {"ProductOfElementaryHouseholderReflectors", AT_HOST_QR},
              {"LuDecomposition", AT_HOST_LU},
              {"Eigh", AT_HOST_EIGH}};
  const at_type *t = operand(n, 0);
  double size = t->rank ? (double)t->dims[t->rank - 1] : 1;
  // A thread a matrix.
  double batch = fmax(1, elements(t) / fmax(1, size * size));
  double share = fmin(batch, h->cores);
  if (n->op == AT_OP_CHOLESKY)
    return elements(t) * size * at_host_seconds(h, AT_HOST_CHOLESKY, size) /
           share;
  if (n->op == AT_OP_TRIANGULAR_SOLVE)
    return elements(operand(n, 1)) * size *
           at_host_seconds(h, AT_HOST_SOLVE, size) / share;
  at_str name = at_node_str(n, AT_ATTR_CALL_TARGET_NAME);
  for (size_t i = 0; i < AT_LEN(rows); i++)
    if (at_str_is(name, rows[i].call))
      return elements(t) * size * at_host_seconds(h, rows[i].rate, size) /
             share;
  return 0;
}

// False: not such a kernel.
static bool runtime_kernel(const at_host *h, const at_node *n, double *out) {
  const at_type *t = n->num_results ? &n->types[0] : NULL;
  switch (n->op) {
    case AT_OP_SORT:
      return *out = sort_seconds(h, n), true;
    case AT_OP_TOP_K:
      return *out = top_k_seconds(h, n), true;
    case AT_OP_SCAN:
      *out = elements(t) * n->num_results *
             at_host_seconds(h, AT_HOST_SCAN, elements(t));
      return true;
    case AT_OP_FFT:
      return *out = fft_seconds(h, n), true;
    case AT_OP_RNG:
    case AT_OP_RNG_BIT_GENERATOR: {
      const at_type *bits = &n->types[n->num_results - 1];
      *out = bytes_of(bits) / 4 *
             at_host_seconds(h, AT_HOST_RNG_BITS, elements(bits));
      return true;
    }
    case AT_OP_CONVOLUTION:
      return *out = convolution_seconds(h, n), true;
    case AT_OP_SCATTER:
      return *out = scatter_seconds(h, n), true;
    case AT_OP_CHOLESKY:
    case AT_OP_TRIANGULAR_SOLVE:
    case AT_OP_CUSTOM_CALL:
      return *out = linalg_seconds(h, n), true;
    default:
      return false;
  }
}

// ---- One step
// Overlap hides no more than the shorter part.
static bool is_sound(const at_host_time *t) {
  return !(t->total < fmax(t->compute, t->memory) + t->latency) &&
         !(fmin(t->compute, t->memory) < 0) && !(t->latency < 0);
}

// A product, its compute and memory overlapping.
static at_status product_step(const at_target *t, const at_gemm *g,
                              const traffic *m, at_host_time *out) {
  at_cost_time c;
  AT_TRY(at_host_gemm(t, g, &c));
  const at_host *h = t->host;
  double alone = c.seconds * h->cores;
  out->compute = c.seconds;
  out->memory = m->seconds;
  out->latency = alone > kGrain ? h->fork : 0;
  out->total = h->step + out->latency + fmax(out->compute, out->memory);
  // The table's products were timed with their traffic; the curves' in caches.
  if (c.source == AT_COST_FROM_HOST)
    out->total += h->overlap * fmin(out->compute, out->memory);
  AT_ASSERT(is_sound(out));
  return AT_OK;
}

// Products, runtime kernels, then generated code, which all cores share where
// it is enough work.
at_status at_host_node(const at_target *t, const at_node *n,
                       const at_host_memory *memory, at_host_time *out) {
  const at_host *h = t->host;
  traffic m = {.h = h};
  if (memory) m.memory = *memory;
  at_gemm g;
  *out = (at_host_time){0};
  move(&m, n);
  out->bytes = m.bytes;
  if (n->op == AT_OP_DOT_GENERAL && at_cost_gemm_of(n, &g))
    return product_step(t, &g, &m, out);
  double whole;
  if (runtime_kernel(h, n, &whole)) {
    out->compute = whole;
    out->memory = m.seconds;
    out->latency = whole * h->cores > kGrain ? h->fork : 0;
    out->total = h->step + out->latency + fmax(whole, m.seconds);
    AT_ASSERT(is_sound(out));
    return AT_OK;
  }
  bill b = {.h = h};
  add_node(&b, n, 1);
  double alone = b.seconds + b.random + m.seconds * h->cores;
  bool shared = alone > kGrain;
  double share = shared ? h->cores : 1;
  out->compute = b.seconds / share;
  out->memory = m.seconds * (shared ? 1 : h->cores);
  out->latency = shared ? h->fork : 0;
  out->total = h->step + out->latency + fmax(out->compute, out->memory) +
               h->overlap * fmin(out->compute, out->memory) + b.random / share;
  AT_ASSERT(is_sound(out));
  return AT_OK;
}

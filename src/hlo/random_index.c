// Random gathers and scatters with any dimension numbers.
#include "hlo/random_internal.h"

enum { kMostDims = 8 };

typedef struct plan {  // shared by gather (slices) and scatter (windows)
  uint32_t rank;       // of the operand
  int64_t slice[kMostDims];
  int64_t gone[kMostDims];  // collapsed, inserted
  uint32_t num_gone;
  int64_t batch[kMostDims], index_batch[kMostDims];
  uint32_t num_batch;
  int64_t map[kMostDims];
  uint32_t num_map;
  int64_t index_dims[kMostDims];  // of the indices
  uint32_t index_rank;
  int64_t vector_dim;
  int64_t result[2 * kMostDims];  // of a gather's result, a scatter's updates
  int64_t offset[kMostDims];      // which of those are slice dimensions
  uint32_t result_rank, num_offset;
} plan;

// Whether the list names x.
static bool has(const int64_t *v, uint32_t n, int64_t x) {
  for (uint32_t i = 0; i < n; i++)
    if (v[i] == x) return true;
  return false;
}

// Where slices start: dimensions of the indices, the vector among them.
static void plan_indices(at_gen *g, const at_type *t, plan *p) {
  int64_t dims[kMostDims];
  uint32_t n = 0;
  for (uint32_t i = 0; i < p->num_batch; i++) {
    p->index_batch[i] = n;
    dims[n++] = t->dims[p->batch[i]];
  }
  uint32_t more = at_gen_below(g, 3);
  int64_t count = 1;
  for (uint32_t i = 0; i < p->rank; i++) count *= p->slice[i];
  for (uint32_t i = 0; i < n; i++) count *= dims[i];
  for (uint32_t i = 0; i < more; i++) {
    int64_t size = 1 + at_gen_below(g, 9);
    if (count * size > g->max_elements) size = 1;
    count *= size;
    dims[n++] = size;
  }
  // The index vector: one of the dimensions, or, with one entry, none.
  bool implicit = p->num_map == 1 && at_gen_chance(g, 30);
  p->vector_dim = implicit ? n : at_gen_below(g, n + 1);
  p->index_rank = 0;
  for (uint32_t i = 0; i <= n; i++) {
    if (i == p->vector_dim && !implicit)
      p->index_dims[p->index_rank++] = p->num_map;
    if (i < n) p->index_dims[p->index_rank++] = dims[i];
  }
  for (uint32_t i = 0; i < p->num_batch; i++)
    if (!implicit && p->index_batch[i] >= p->vector_dim) p->index_batch[i]++;
  // Slice dimensions stand anywhere among the others, in order.
  int64_t order[2 * kMostDims];
  p->result_rank = n + p->num_offset;
  for (uint32_t i = 0; i < p->result_rank; i++) order[i] = i;
  at_gen_shuffle(g, order, p->result_rank);
  uint32_t k = 0, from = 0, other = 0;
  for (uint32_t i = 0; i < p->result_rank; i++) {
    if (!has(order, p->num_offset, i)) {
      p->result[i] = dims[other++];
      continue;
    }
    while (has(p->gone, p->num_gone, from) || has(p->batch, p->num_batch, from))
      from++;
    p->offset[k++] = i;
    p->result[i] = p->slice[from++];
  }
}

// Every dimension is batching, collapsed, or part of the slice; index entries
// go to any that are not batching.
static void make_plan(at_gen *g, const at_type *t, bool batched, plan *p) {
  int64_t order[kMostDims];
  *p = (plan){.rank = t->rank};
  for (uint32_t i = 0; i < t->rank; i++) order[i] = i;
  at_gen_shuffle(g, order, t->rank);
  if (batched) p->batch[p->num_batch++] = at_gen_below(g, t->rank);
  for (uint32_t i = 0; i < t->rank; i++) {
    bool batch = has(p->batch, p->num_batch, i);
    bool gone = !batch && at_gen_chance(g, 40);
    p->slice[i] = batch || gone || at_gen_chance(g, 20)
                      ? 1
                      : 1 + at_gen_below(g, (uint32_t)t->dims[i]);
    if (at_gen_chance(g, 50) && !batch && !gone) p->slice[i] = t->dims[i];
    if (gone) p->gone[p->num_gone++] = i;
    p->num_offset += !batch && !gone;
  }
  uint32_t want = 1 + at_gen_below(g, t->rank);
  for (uint32_t i = 0; i < t->rank && p->num_map < want; i++)
    if (!has(p->batch, p->num_batch, order[i])) p->map[p->num_map++] = order[i];
  plan_indices(g, t, p);
}

// A list that outlives the step.
static at_status copy_dims(at_gen *g, const int64_t *v, uint32_t n,
                           const int64_t **out) {
  int64_t *d;
  AT_TRY_ALLOC(d, at_gen_dims(g, n));
  for (uint32_t i = 0; i < n; i++) d[i] = v[i];
  *out = d;
  return AT_OK;
}

// Indices of any integer type, in range or not.
static at_status index_of(at_gen *g, const plan *p, at_value *out) {
  static const at_dtype ints[] = {AT_S32, AT_S32, AT_S64,
                                  AT_U32, AT_S8,  AT_U16};
  at_type t = {.dtype = AT_GEN_PICK(g, ints), .rank = p->index_rank};
  AT_TRY(copy_dims(g, p->index_dims, p->index_rank, &t.dims));
  return at_gen_like(g, t, out);
}

// The dynamic form takes slice sizes as an operand and declares its result.
static at_status gather(at_gen *g, at_op op, at_dtype d, bool batched) {
  at_value x, index, sizes;
  plan p;
  AT_TRY(at_gen_ranked(g, d, 1, 4, &x));
  make_plan(g, at_value_type(x), batched, &p);
  AT_TRY(index_of(g, &p, &index));
  at_step s = {.op = op};
  at_step_operand(&s, x);
  at_step_operand(&s, index);
  at_type r = {.dtype = d, .rank = p.result_rank, .dims = p.result};
  if (op == AT_OP_DYNAMIC_GATHER) {
    AT_TRY(at_gen_list(g, p.slice, p.rank, &sizes));
    at_step_operand(&s, sizes);
    s.types = &r;
    s.num_types = 1;
  } else {
    at_step_ints(&s, AT_ATTR_SLICE_SIZES, p.slice, p.rank);
  }
  at_step_ints(&s, AT_ATTR_OFFSET_DIMS, p.offset, p.num_offset);
  at_step_ints(&s, AT_ATTR_COLLAPSED_SLICE_DIMS, p.gone, p.num_gone);
  at_step_ints(&s, AT_ATTR_OPERAND_BATCHING_DIMS, p.batch, p.num_batch);
  at_step_ints(&s, AT_ATTR_START_INDICES_BATCHING_DIMS, p.index_batch,
               p.num_batch);
  at_step_ints(&s, AT_ATTR_START_INDEX_MAP, p.map, p.num_map);
  at_step_int(&s, AT_ATTR_INDEX_VECTOR_DIM, p.vector_dim);
  return at_step_build(g, &s);
}

at_status at_gen_gather(at_gen *g, at_op op, at_dtype t) {
  return gather(g, op, t, false);
}
at_status at_gen_gather_batched(at_gen *g, at_op op, at_dtype t) {
  return gather(g, op, t, true);
}

// Copies the lists, since the plan is on the caller's stack.
static at_status scatter_attrs(at_gen *g, at_step *s, const plan *p) {
  const int64_t *offset, *gone, *batch, *index_batch, *map;
  AT_TRY(copy_dims(g, p->offset, p->num_offset, &offset));
  AT_TRY(copy_dims(g, p->gone, p->num_gone, &gone));
  AT_TRY(copy_dims(g, p->batch, p->num_batch, &batch));
  AT_TRY(copy_dims(g, p->index_batch, p->num_batch, &index_batch));
  AT_TRY(copy_dims(g, p->map, p->num_map, &map));
  at_step_ints(s, AT_ATTR_UPDATE_WINDOW_DIMS, offset, p->num_offset);
  at_step_ints(s, AT_ATTR_INSERTED_WINDOW_DIMS, gone, p->num_gone);
  at_step_ints(s, AT_ATTR_INPUT_BATCHING_DIMS, batch, p->num_batch);
  at_step_ints(s, AT_ATTR_SCATTER_INDICES_BATCHING_DIMS, index_batch,
               p->num_batch);
  at_step_ints(s, AT_ATTR_SCATTER_DIMS_TO_OPERAND_DIMS, map, p->num_map);
  at_step_int(s, AT_ATTR_INDEX_VECTOR_DIM, p->vector_dim);
  return AT_OK;
}

// A region (old, new) -> new, or a reduction of both.
static at_status update_region(at_gen *g, const plan *p, at_dtype t,
                               at_comp **out) {
  // Which of two updates of one element stays is defined by nobody; it is the
  // same here while windows are walked inside.
  uint32_t others = p->result_rank - p->num_offset;
  bool inside = !p->num_offset || p->offset[0] == others;
  if (!inside || !at_gen_chance(g, 30))
    return at_gen_binary_region(g, at_gen_reducer(g, t), t, out);
  at_value v[2];
  AT_TRY(at_region_create(g->m, out));
  AT_TRY(at_build_param(*out, at_type_scalar(t), NULL, &v[0]));
  AT_TRY(at_build_param(*out, at_type_scalar(t), NULL, &v[1]));
  return at_comp_return(*out, &v[1], 1);
}

// One input; the updates have the shape that a gather of the same plan would
// give.
at_status at_gen_scatter(at_gen *g, at_op op, at_dtype d) {
  at_value x, index, update;
  plan p;
  AT_TRY(at_gen_ranked(g, d, 1, 4, &x));
  make_plan(g, at_value_type(x), at_gen_chance(g, 20), &p);
  AT_TRY(index_of(g, &p, &index));
  at_type t = {.dtype = d, .rank = p.result_rank};
  AT_TRY(copy_dims(g, p.result, p.result_rank, &t.dims));
  AT_TRY(at_gen_like(g, t, &update));
  at_step s = {.op = op, .num_regions = 1};
  at_step_operand(&s, x);
  at_step_operand(&s, index);
  at_step_operand(&s, update);
  AT_TRY(scatter_attrs(g, &s, &p));
  AT_TRY(update_region(g, &p, d, &s.regions[0]));
  return at_step_build(g, &s);
}

// Two inputs of different types, each reduced on its own.
at_status at_gen_scatter_two(at_gen *g, at_op op, at_dtype d) {
  at_value x[2], index, update[2], v[4], r[2];
  at_dtype types[2] = {d, at_gen_chance(g, 50) ? AT_S32 : AT_F32};
  plan p;
  AT_TRY(at_gen_ranked(g, d, 1, 3, &x[0]));
  const at_type *t = at_value_type(x[0]);
  AT_TRY(at_gen_like(g, at_type_with(*t, types[1]), &x[1]));
  make_plan(g, t, false, &p);
  AT_TRY(index_of(g, &p, &index));
  at_type u = {.dtype = d, .rank = p.result_rank};
  AT_TRY(copy_dims(g, p.result, p.result_rank, &u.dims));
  for (int i = 0; i < 2; i++)
    AT_TRY(at_gen_like(g, at_type_with(u, types[i]), &update[i]));
  at_step s = {.op = op, .num_regions = 1};
  at_step_operand(&s, x[0]);
  at_step_operand(&s, x[1]);
  at_step_operand(&s, index);
  at_step_operand(&s, update[0]);
  at_step_operand(&s, update[1]);
  AT_TRY(scatter_attrs(g, &s, &p));
  at_comp *c;
  AT_TRY(at_region_create(g->m, &c));
  for (int i = 0; i < 4; i++)
    AT_TRY(at_build_param(c, at_type_scalar(types[i % 2]), NULL, &v[i]));
  for (int i = 0; i < 2; i++)
    AT_TRY(at_build_op(c, NULL, at_gen_reducer(g, types[i]),
                       (at_value[]){v[i], v[i + 2]}, 2, NULL, &r[i]));
  AT_TRY(at_comp_return(c, r, 2));
  s.regions[0] = c;
  return at_step_build(g, &s);
}

// What JAX sends for max and min pooling: which element stays.
static at_status at_least_region(at_gen *g, at_dtype t, at_comp **out) {
  at_value v[2], r;
  AT_TRY(at_region_create(g->m, out));
  AT_TRY(at_build_param(*out, at_type_scalar(t), NULL, &v[0]));
  AT_TRY(at_build_param(*out, at_type_scalar(t), NULL, &v[1]));
  at_step s = {.op = AT_OP_COMPARE};
  at_step_operand(&s, v[0]);
  at_step_operand(&s, v[1]);
  at_step_int(&s, AT_ATTR_COMPARISON_DIRECTION,
              at_gen_chance(g, 70) ? AT_GE : AT_LE);
  AT_TRY(at_step_in(*out, &s, &r));
  return at_comp_return(*out, &r, 1);
}

// Padding is smaller than the window, so that every window has an element.
at_status at_gen_select_and_scatter(at_gen *g, at_op op, at_dtype d) {
  at_value x, source, init;
  int64_t *v;
  AT_TRY(at_gen_ranked(g, d, 1, 4, &x));
  const at_type *t = at_value_type(x);
  uint32_t r = t->rank;
  AT_TRY_ALLOC(v, at_gen_dims(g, 5 * r));
  int64_t *stride = v + r, *pad = stride + r, *dims = pad + 2 * r;
  for (uint32_t i = 0; i < r; i++) {
    int64_t n = t->dims[i];
    v[i] = 1 + at_gen_below(g, (uint32_t)AT_MIN(n, 3));
    stride[i] = 1 + at_gen_below(g, 2);
    pad[2 * i] = at_gen_below(g, (uint32_t)v[i]);
    pad[2 * i + 1] = at_gen_below(g, (uint32_t)v[i]);
    dims[i] = (n + pad[2 * i] + pad[2 * i + 1] - v[i]) / stride[i] + 1;
  }
  AT_TRY(
      at_gen_like(g, (at_type){.dtype = d, .rank = r, .dims = dims}, &source));
  AT_TRY(at_gen_like(g, at_type_scalar(d), &init));
  at_step s = {.op = op, .num_regions = 2};
  at_step_operand(&s, x);
  at_step_operand(&s, source);
  at_step_operand(&s, init);
  at_step_ints(&s, AT_ATTR_WINDOW_DIMENSIONS, v, r);
  at_step_ints(&s, AT_ATTR_WINDOW_STRIDES, stride, r);
  at_step_ints(&s, AT_ATTR_PADDING, pad, 2 * r);
  AT_TRY(at_least_region(g, d, &s.regions[0]));
  AT_TRY(at_gen_binary_region(g, AT_OP_ADD, d, &s.regions[1]));
  return at_step_build(g, &s);
}

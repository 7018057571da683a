// Ops that move elements to or from places that are data: dynamic slices,
// gather, scatter, select_and_scatter.
#include "hlo/eval_internal.h"

// Starts are clamped so that `size` elements from them lie inside.
static int64_t clamp_start(int64_t at, int64_t size, int64_t dim) {
  return AT_MAX(0, AT_MIN(at, dim - size));
}

// An index; unsigned values beyond int64 are as good as its largest.
static int64_t index_at(const at_literal *l, int64_t i) {
  int64_t v = at_literal_int(l, i);
  return v < 0 && at_is_unsigned_int(l->type.dtype) ? INT64_MAX : v;
}

// Starts are scalars, one operand per dimension behind the array.
AT_EVAL(dynamic_slice) {
  const at_type *a = &e->in[0]->type, *t = &e->n->types[0];
  int64_t start[kMaxRank], to[kMaxRank] = {0}, from[kMaxRank];
  uint8_t *data;
  AT_TRY(at_eval_new(e->cx, t, e->out, &data));
  int64_t count = at_type_elements(t);
  AT_TRY(at_eval_spend(e->cx, count));
  for (uint32_t i = 0; i < a->rank; i++)
    start[i] = clamp_start(index_at(e->in[1 + i], 0), t->dims[i], a->dims[i]);
  for (int64_t i = 0; i < count; i++) {
    for (uint32_t k = 0; k < a->rank; k++) from[k] = start[k] + to[k];
    at_put(t->dtype, data, i, at_literal_at(e->in[0], at_ravel(a, from)));
    at_next(t->dims, t->rank, to);
  }
  return AT_OK;
}

// A dense copy with elements of type t: the body of a scatter may compute in a
// wider type than what it is given.
static at_status copy_as(const at_eval_args *e, const at_literal *l, at_dtype t,
                         const at_literal **out, uint8_t **data) {
  at_type type = at_type_with(l->type, t);
  int64_t count = at_type_elements(&type);
  AT_TRY(at_eval_new(e->cx, &type, out, data));
  AT_TRY(at_eval_spend(e->cx, count));
  for (int64_t i = 0; i < count; i++) {
    uint8_t value[16];
    at_eval_convert(l->type.dtype, at_literal_at(l, i), t, value);
    at_put(t, *data, i, value);
  }
  return AT_OK;
}

// The result starts as a copy of the operand; the update's elements go over it.
AT_EVAL(dynamic_update_slice) {
  const at_type *a = &e->in[0]->type, *u = &e->in[1]->type;
  int64_t start[kMaxRank], from[kMaxRank] = {0}, to[kMaxRank];
  uint8_t *data;
  AT_TRY(copy_as(e, e->in[0], e->in[0]->type.dtype, e->out, &data));
  for (uint32_t i = 0; i < a->rank; i++)
    start[i] = clamp_start(index_at(e->in[2 + i], 0), u->dims[i], a->dims[i]);
  int64_t count = at_type_elements(u);
  for (int64_t i = 0; i < count; i++) {
    for (uint32_t k = 0; k < a->rank; k++) to[k] = start[k] + from[k];
    at_put(a->dtype, data, at_ravel(a, to), at_literal_at(e->in[1], i));
    at_next(u->dims, u->rank, from);
  }
  return AT_OK;
}

// The k-th entry of the index vector at the batch index `batch` (the dims of
// the indices without index_vector_dim).
static int64_t index_entry(const at_literal *l, int64_t iv,
                           const int64_t *batch, int64_t k) {
  int64_t full[kMaxRank];
  uint32_t b = 0;
  for (uint32_t i = 0; i < l->type.rank; i++)
    full[i] = i == iv ? k : batch[b++];
  return index_at(l, at_ravel(&l->type, full));
}

// The entry of `batch` for dimension `d` of the indices.
static int64_t batch_entry(const int64_t *batch, int64_t d, int64_t iv) {
  return batch[d > iv ? d - 1 : d];
}

// Slice sizes and result type are arguments, since dynamic_gather finds them
// among its operands. For each result element: its batch part picks an index
// vector, that gives the start of a slice, and its offset part the place
// inside.
at_status at_eval_gather_with(const at_eval_args *e, const int64_t *sizes,
                              const at_type *t) {
  const at_node *n = e->n;
  const at_type *a = &e->in[0]->type;
  at_dims offset = at_node_ints(n, AT_ATTR_OFFSET_DIMS);
  at_dims gone = at_node_ints(n, AT_ATTR_COLLAPSED_SLICE_DIMS);
  at_dims batching = at_node_ints(n, AT_ATTR_OPERAND_BATCHING_DIMS);
  at_dims from_batch = at_node_ints(n, AT_ATTR_START_INDICES_BATCHING_DIMS);
  at_dims map = at_node_ints(n, AT_ATTR_START_INDEX_MAP);
  int64_t iv = at_node_int(n, AT_ATTR_INDEX_VECTOR_DIM, e->in[1]->type.rank);
  int64_t to[kMaxRank] = {0}, batch[kMaxRank], from[kMaxRank];
  uint8_t *data;
  AT_TRY(at_eval_new(e->cx, t, e->out, &data));
  int64_t count = at_type_elements(t);
  AT_TRY(at_eval_spend(e->cx, count));
  for (int64_t i = 0; i < count; i++) {
    uint32_t b = 0, o = 0;
    for (uint32_t k = 0; k < t->rank; k++)
      if (!at_dims_has(offset, k)) batch[b++] = to[k];
    for (uint32_t k = 0; k < a->rank; k++) from[k] = 0;
    for (uint32_t k = 0; k < map.rank; k++)
      from[map.ptr[k]] = clamp_start(index_entry(e->in[1], iv, batch, k),
                                     sizes[map.ptr[k]], a->dims[map.ptr[k]]);
    for (uint32_t k = 0; k < batching.rank; k++)
      from[batching.ptr[k]] = batch_entry(batch, from_batch.ptr[k], iv);
    for (uint32_t k = 0; k < a->rank; k++)
      if (!at_dims_has(gone, k) && !at_dims_has(batching, k))
        from[k] += to[offset.ptr[o++]];
    // A collapsed dimension of which nothing is taken has nothing to give:
    // zero.
    bool there = true;
    for (uint32_t k = 0; k < a->rank; k++)
      there = there && from[k] < a->dims[k];
    if (there)
      at_put(t->dtype, data, i, at_literal_at(e->in[0], at_ravel(a, from)));
    at_next(t->dims, t->rank, to);
  }
  return AT_OK;
}

// The static form: slice sizes are an attribute.
AT_EVAL(gather) {
  return at_eval_gather_with(e, at_node_ints(e->n, AT_ATTR_SLICE_SIZES).ptr,
                             &e->n->types[0]);
}

// ---- Scatter

// Where update element `at` (an index into the updates) goes in the inputs;
// false: nowhere. A window that is not all inside is skipped whole, as XLA does
// and JAX promises; StableHLO's text would keep what is inside of it.
static bool scatter_target(const at_eval_args *e, const at_literal *indices,
                           const int64_t *at, const at_type *update,
                           const at_type *input, int64_t *to) {
  const at_node *n = e->n;
  at_dims window = at_node_ints(n, AT_ATTR_UPDATE_WINDOW_DIMS);
  at_dims inserted = at_node_ints(n, AT_ATTR_INSERTED_WINDOW_DIMS);
  at_dims batching = at_node_ints(n, AT_ATTR_INPUT_BATCHING_DIMS);
  at_dims from_batch = at_node_ints(n, AT_ATTR_SCATTER_INDICES_BATCHING_DIMS);
  at_dims map = at_node_ints(n, AT_ATTR_SCATTER_DIMS_TO_OPERAND_DIMS);
  int64_t iv = at_node_int(n, AT_ATTR_INDEX_VECTOR_DIM, indices->type.rank);
  int64_t batch[kMaxRank];
  uint32_t b = 0, w = 0;
  for (uint32_t k = 0; k < update->rank; k++)
    if (!at_dims_has(window, k)) batch[b++] = at[k];
  for (uint32_t k = 0; k < input->rank; k++) to[k] = 0;
  for (uint32_t k = 0; k < map.rank; k++)
    to[map.ptr[k]] = index_entry(indices, iv, batch, k);
  for (uint32_t k = 0; k < batching.rank; k++)
    to[batching.ptr[k]] = batch_entry(batch, from_batch.ptr[k], iv);
  bool inside = true;
  for (uint32_t k = 0; k < input->rank; k++) {
    int64_t shift = 0, size = 1;
    if (!at_dims_has(inserted, k) && !at_dims_has(batching, k)) {
      size = update->dims[window.ptr[w]];
      shift = at[window.ptr[w++]];
    }
    inside &= to[k] >= 0 && to[k] <= input->dims[k] - size;
    to[k] = inside ? to[k] + shift : 0;
  }
  return inside;
}

// Moves `at` on through the updates: one index vector after another, and with
// each its whole window. StableHLO leaves the order open; this is XLA's, and it
// decides what a sum that rounds at every update gives.
static bool next_update(const at_type *u, at_dims window, int64_t *at) {
  for (int part = 0; part < 2; part++)  // the window, then the index vectors
    for (uint32_t k = u->rank; k-- > 0;) {
      if (at_dims_has(window, k) == (part == 1)) continue;
      if (++at[k] < u->dims[k]) return true;
      at[k] = 0;
    }
  return false;
}

// Updates in the order of next_update, each applied to all inputs at the same
// place. `data` holds the results' bytes, which start as the inputs.
static at_status scatter_all(const at_eval_args *e, at_body *body,
                             uint8_t **data) {
  uint32_t inputs = e->n->num_operands / 2;
  const at_literal *indices = e->in[inputs];
  const at_type *u = &e->in[inputs + 1]->type, *t = &e->in[0]->type;
  at_dims window = at_node_ints(e->n, AT_ATTR_UPDATE_WINDOW_DIMS);
  int64_t at[kMaxRank] = {0}, to[kMaxRank];
  const void **args;
  void **outs;
  AT_TRY_ALLOC(args, at_new(e->cx->arena, const void *, 2 * (size_t)inputs));
  AT_TRY_ALLOC(outs, at_new(e->cx->arena, void *, inputs));
  if (!at_type_elements(u)) return AT_OK;
  do {
    if (!scatter_target(e, indices, at, u, t, to)) {
      AT_TRY(at_eval_spend(e->cx, 1));
      continue;
    }
    int64_t place = at_ravel(t, to), from = at_ravel(u, at);
    for (uint32_t k = 0; k < inputs; k++) {
      size_t w = at_dtype_bytes(e->in[k]->type.dtype);
      args[k] = outs[k] = data[k] + (size_t)place * w;
      args[inputs + k] = at_literal_at(e->in[inputs + 1 + k], from);
    }
    AT_TRY(at_body_call(body, args, outs));
  } while (next_update(u, window, at));
  return AT_OK;
}

// Inputs and updates are converted to the result's element type first: the body
// may compute in a wider one.
AT_EVAL(scatter) {
  uint32_t inputs = e->n->num_operands / 2;
  uint8_t **data, *unused;
  const at_literal **in;
  at_body body;
  AT_TRY_ALLOC(data, at_new(e->cx->arena, uint8_t *, inputs));
  AT_TRY_ALLOC(in, at_new(e->cx->arena, const at_literal *, 2 * inputs + 1));
  in[inputs] = e->in[inputs];
  for (uint32_t k = 0; k < inputs; k++) {
    at_dtype t = e->n->types[k].dtype;
    uint32_t u = inputs + 1 + k;
    AT_TRY(copy_as(e, e->in[k], t, &e->out[k], &data[k]));
    in[k] = e->out[k], in[u] = e->in[u];
    if (e->in[u]->type.dtype != t)
      AT_TRY(copy_as(e, e->in[u], t, &in[u], &unused));
  }
  AT_TRY(at_body_open(e->cx, e->env, e->n->regions[0], &body));
  at_eval_args taken = *e;
  taken.in = in;
  at_status st = scatter_all(&taken, &body, data);
  at_body_close(&body);
  return st;
}

// ---- Select and scatter

// A node's window, one entry per dimension (padding: two).
typedef struct window {
  const int64_t *size, *stride, *pad;
} window;

// The position of the element that `select` keeps in the window at `at`; -1:
// the window holds padding only.
static at_status select_in_window(const at_eval_args *e, const window *w,
                                  at_body *select, const int64_t *at,
                                  int64_t *best) {
  const at_type *t = &e->in[0]->type;
  int64_t in[kMaxRank] = {0}, from[kMaxRank];
  *best = -1;
  do {
    bool inside = true;
    for (uint32_t k = 0; k < t->rank; k++) {
      from[k] = at_window_at(at[k], w->stride[k], in[k], 1, w->pad[2 * k], 1,
                             t->dims[k]);
      inside &= from[k] >= 0;
    }
    AT_TRY(at_eval_spend(e->cx, 1));
    if (!inside) continue;
    int64_t here = at_ravel(t, from);
    uint8_t keep = 1;
    if (*best >= 0)
      AT_TRY(at_body_call(select,
                          (const void *[]){at_literal_at(e->in[0], *best),
                                           at_literal_at(e->in[0], here)},
                          (void *[]){&keep}));
    if (*best < 0 || !keep) *best = here;
  } while (at_next(w->size, t->rank, in));
  return AT_OK;
}

// One window for each source element; a window of padding only drops its
// element.
static at_status select_scatter_all(const at_eval_args *e, const window *w,
                                    at_body *select, at_body *scatter,
                                    uint8_t *data) {
  const at_type *s = &e->in[1]->type;
  int64_t at[kMaxRank] = {0}, count = at_type_elements(s), best;
  size_t width = at_dtype_bytes(e->n->types[0].dtype);
  for (int64_t i = 0; i < count; i++) {
    AT_TRY(select_in_window(e, w, select, at, &best));
    if (best >= 0) {
      void *place = data + (size_t)best * width;
      uint8_t value[16];
      at_eval_convert(s->dtype, at_literal_at(e->in[1], i),
                      e->n->types[0].dtype, value);
      AT_TRY(at_body_call(scatter, (const void *[]){place, value},
                          (void *[]){place}));
    }
    at_next(s->dims, s->rank, at);
  }
  return AT_OK;
}

// All places start at the initial value; two bodies are open at once, and both
// are closed on every path.
AT_EVAL(select_and_scatter) {
  const at_type *t = &e->n->types[0];
  window w;
  uint8_t *data, init[16];
  at_body select, scatter;
  at_arena *a = e->cx->arena;
  AT_TRY(at_ints_or(a, e->n, AT_ATTR_WINDOW_DIMENSIONS, t->rank, 1, &w.size));
  AT_TRY(at_ints_or(a, e->n, AT_ATTR_WINDOW_STRIDES, t->rank, 1, &w.stride));
  AT_TRY(at_ints_or(a, e->n, AT_ATTR_PADDING, 2 * t->rank, 0, &w.pad));
  AT_TRY(at_eval_new(e->cx, t, e->out, &data));
  at_eval_convert(e->in[2]->type.dtype, e->in[2]->data, t->dtype, init);
  for (int64_t i = 0; i < at_type_elements(t); i++)
    at_put(t->dtype, data, i, init);
  AT_TRY(at_body_open(e->cx, e->env, e->n->regions[0], &select));
  at_status st = at_body_open(e->cx, e->env, e->n->regions[1], &scatter);
  if (at_ok(st)) {
    st = select_scatter_all(e, &w, &select, &scatter, data);
    at_body_close(&scatter);
  }
  at_body_close(&select);
  return st;
}

// Ops of old versions as the ops that replaced them.
#include "import/import_internal.h"

// Operand i as one value that is not a token.
static at_status single_tensor(at_imp *x, const at_mop *op, uint32_t i,
                               at_value *v) {
  AT_TRY(at_imp_single(x, op, i, v));
  if (at_value_type(*v)->dtype == AT_TOKEN)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT, "operand %u is a token", i);
  return AT_OK;
}

// {first, first + 1, ...}, n of them, in the arena.
static at_status iota_dims(at_imp *x, uint32_t first, uint32_t n,
                           at_dims *out) {
  int64_t *p;
  AT_TRY_ALLOC(p, at_new(x->a, int64_t, (size_t)n + 1));
  for (uint32_t i = 0; i < n; i++) p[i] = (int64_t)first + i;
  *out = (at_dims){p, n};
  return AT_OK;
}

// The declared type of the op's only result.
static at_status result_type(at_imp *x, const at_mop *op, at_type *out) {
  at_types t;
  AT_TRY(at_imp_result_types(x, op, &t));
  if (t.n != 1)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT, "gives one result");
  *out = t.t[0];
  return AT_OK;
}

// New dimensions in front of the operand's.
AT_IMP_HOW(broadcast) {
  at_value v;
  at_type t;
  at_dims map;
  AT_TRY(at_imp_need(x, op, 1, 1));
  AT_TRY(single_tensor(x, op, 0, &v));
  AT_TRY(result_type(x, op, &t));
  uint32_t rank = at_value_type(v)->rank;
  if (t.rank < rank)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                      "result has fewer dimensions than its operand");
  AT_TRY(iota_dims(x, t.rank - rank, rank, &map));
  AT_TRY(at_imp_broadcast(x, op, v, map, t, &v));
  return at_imp_define_results(x, op, &v, 1);
}

// Copies p into the arena and sets the attribute to it.
static at_status put_dims(at_imp *x, at_attr_vec *v, at_attr_id id,
                          const int64_t *p, uint32_t n) {
  at_dims d;
  AT_TRY(at_imp_dims(x, p, n, &d));
  return at_imp_attr_put(x, v, (at_attr){.id = id, .ints = d});
}

// Dimension numbers of a DOT_GENERAL. The pointers may be to the caller's
// stack: build_dot copies them.
typedef struct dot_dims {
  at_dims lhs_batch, rhs_batch, lhs_contract, rhs_contract;
} dot_dims;

// A DOT_GENERAL with op's precision and algorithm. t NULL: the type is
// inferred, and the node is an inner one without op's sharding.
static at_status build_dot(at_imp *x, const at_mop *op, const at_value *lr,
                           const dot_dims *d, const at_type *t, at_value *out) {
  at_imp_node n = {.op = AT_OP_DOT_GENERAL,
                   .operands = lr,
                   .num_operands = 2,
                   .types = t,
                   .num_types = t ? 1 : 0,
                   .outer = t != NULL};
  AT_TRY(at_imp_attrs(x, op, AT_OP_DOT_GENERAL, &n.attrs));
  AT_TRY(put_dims(x, &n.attrs, AT_ATTR_LHS_BATCHING_DIMENSIONS,
                  d->lhs_batch.ptr, d->lhs_batch.rank));
  AT_TRY(put_dims(x, &n.attrs, AT_ATTR_RHS_BATCHING_DIMENSIONS,
                  d->rhs_batch.ptr, d->rhs_batch.rank));
  AT_TRY(put_dims(x, &n.attrs, AT_ATTR_LHS_CONTRACTING_DIMENSIONS,
                  d->lhs_contract.ptr, d->lhs_contract.rank));
  AT_TRY(put_dims(x, &n.attrs, AT_ATTR_RHS_CONTRACTING_DIMENSIONS,
                  d->rhs_contract.ptr, d->rhs_contract.rank));
  at_node *node;
  AT_TRY(at_imp_build(x, op, &n, &node));
  *out = (at_value){node, 0};
  return AT_OK;
}

// Vectors and matrices: the last dimension of lhs with the first of rhs.
AT_IMP_HOW(dot) {
  at_value v[2];
  at_type t;
  AT_TRY(at_imp_need(x, op, 2, 1));
  for (uint32_t i = 0; i < 2; i++) AT_TRY(single_tensor(x, op, i, &v[i]));
  AT_TRY(result_type(x, op, &t));
  int64_t last = (int64_t)at_value_type(v[0])->rank - 1, first = 0;
  if (last < 0 || last > 1 || at_value_type(v[1])->rank < 1 ||
      at_value_type(v[1])->rank > 2)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT, "takes vectors and matrices");
  dot_dims d = {.lhs_contract = {&last, 1}, .rhs_contract = {&first, 1}};
  AT_TRY(build_dot(x, op, v, &d, &t, &v[0]));
  return at_imp_define_results(x, op, v, 1);
}

// ---- einsum

enum { MAX_LABELS = 64 };
// The letters of one term of an einsum, one for each dimension, all different.
typedef struct labels {
  char c[MAX_LABELS];
  uint32_t n;
} labels;

// Position of the letter, -1: absent.
static int32_t label_find(const labels *l, char c) {
  for (uint32_t i = 0; i < l->n; i++)
    if (l->c[i] == c) return (int32_t)i;
  return -1;
}

static bool label_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Reads letters up to `stop` or the end; each at most once.
static at_status labels_read(at_imp *x, const at_mop *op, at_str *s,
                             labels *out) {
  out->n = 0;
  for (; s->len && s->ptr[0] != ',' && s->ptr[0] != '-'; s->ptr++, s->len--) {
    char c = s->ptr[0];
    if (c == ' ') continue;
    if (!label_char(c) || label_find(out, c) >= 0)
      return AT_OP_FAIL(x, op, AT_UNIMPLEMENTED,
                        "einsum_config with ellipses or repeated letters is "
                        "not supported");
    if (out->n >= MAX_LABELS) break;
    out->c[out->n++] = c;
  }
  return AT_OK;
}

// Takes z off the front of *s if it stands there.
static bool skip(at_str *s, const char *z) {
  if (!at_str_starts(*s, z)) return false;
  s->ptr += strlen(z);
  s->len -= strlen(z);
  return true;
}

// The last term of the configuration: nothing may follow.
static at_status result_read(at_imp *x, const at_mop *op, at_str s,
                             labels *out) {
  AT_TRY(labels_read(x, op, &s, out));
  if (s.len)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                      "einsum_config goes on behind its result");
  return AT_OK;
}

// Sums over the labels that neither the other operand nor the result has.
static at_status sum_unused(at_imp *x, const at_mop *op, labels *mine,
                            const labels *other, const labels *result,
                            at_value *v) {
  int64_t gone[MAX_LABELS];
  uint32_t n = 0, kept = 0;
  if (at_value_type(*v)->rank != mine->n)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                      "einsum_config names %u dimensions, an operand has %u",
                      mine->n, at_value_type(*v)->rank);
  for (uint32_t i = 0; i < mine->n; i++) {
    if (label_find(other, mine->c[i]) < 0 && label_find(result, mine->c[i]) < 0)
      gone[n++] = i;
    else
      mine->c[kept++] = mine->c[i];
  }
  mine->n = kept;
  at_dims d;
  AT_TRY(at_imp_dims(x, gone, n, &d));
  return at_imp_reduce_sum(x, op, *v, d, v);
}

// Puts dimensions labelled `have` into the order of `want`.
static at_status arrange(at_imp *x, const at_mop *op, const labels *have,
                         const labels *want, at_value *v) {
  int64_t perm[MAX_LABELS];
  bool same = have->n == want->n;
  if (!same)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                      "einsum_config's result has letters of no operand");
  for (uint32_t i = 0; i < want->n; i++) {
    perm[i] = label_find(have, want->c[i]);
    if (perm[i] < 0)
      return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                        "einsum_config's result has letters of no operand");
    same &= perm[i] == (int64_t)i;
  }
  if (same) return AT_OK;
  at_dims d;
  AT_TRY(at_imp_dims(x, perm, want->n, &d));
  return at_imp_transpose(x, op, *v, d, v);
}

// One dot for both operands: letters of both are batch dimensions where the
// result has them, else contracted. DOT_GENERAL gives batch, free dimensions of
// lhs, those of rhs; arrange puts them into the order that the result asks for.
static at_status contract(at_imp *x, const at_mop *op, const labels in[2],
                          const labels *result, at_value v[2]) {
  int64_t lb[MAX_LABELS], rb[MAX_LABELS], lc[MAX_LABELS], rc[MAX_LABELS];
  labels have = {.n = 0};
  uint32_t nb = 0, nc = 0;
  for (uint32_t i = 0; i < in[0].n; i++) {
    int32_t r = label_find(&in[1], in[0].c[i]);
    if (r < 0) continue;
    if (label_find(result, in[0].c[i]) >= 0) {
      lb[nb] = i;
      rb[nb++] = r;
      have.c[have.n++] = in[0].c[i];
    } else {
      lc[nc] = i;
      rc[nc++] = r;
    }
  }
  for (int k = 0; k < 2; k++)
    for (uint32_t i = 0; i < in[k].n && have.n < MAX_LABELS; i++)
      if (label_find(&in[1 - k], in[k].c[i]) < 0) have.c[have.n++] = in[k].c[i];
  AT_ASSERT(have.n == in[0].n + in[1].n - nb - 2 * nc);
  dot_dims d = {{lb, nb}, {rb, nb}, {lc, nc}, {rc, nc}};
  AT_TRY(build_dot(x, op, v, &d, NULL, &v[0]));
  return arrange(x, op, &have, result, &v[0]);
}

// "ab,bc->ac": sum what one operand alone has, contract, transpose. Ellipses
// and repeated letters (diagonals) are refused.
AT_IMP_HOW(einsum) {
  at_value v[2];
  at_str s;
  labels in[2], result;
  AT_TRY(at_imp_need(x, op, 2, 1));
  for (uint32_t i = 0; i < 2; i++) AT_TRY(single_tensor(x, op, i, &v[i]));
  AT_TRY(at_imp_str(x, op, "einsum_config", &s));
  AT_TRY(labels_read(x, op, &s, &in[0]));
  if (!skip(&s, ","))
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                      "einsum_config must look like \"ab,bc->ac\"");
  AT_TRY(labels_read(x, op, &s, &in[1]));
  if (!skip(&s, "->"))
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                      "einsum_config must look like \"ab,bc->ac\"");
  AT_TRY(result_read(x, op, s, &result));
  AT_TRY(sum_unused(x, op, &in[0], &in[1], &result, &v[0]));
  AT_TRY(sum_unused(x, op, &in[1], &in[0], &result, &v[1]));
  AT_TRY(contract(x, op, in, &result, v));
  return at_imp_define_results(x, op, v, 1);
}

// "ab->ba": a sum over the dropped letters, then a transpose.
AT_IMP_HOW(unary_einsum) {
  at_value v;
  at_str s;
  labels in, result;
  AT_TRY(at_imp_need(x, op, 1, 1));
  AT_TRY(single_tensor(x, op, 0, &v));
  AT_TRY(at_imp_str(x, op, "einsum_config", &s));
  AT_TRY(labels_read(x, op, &s, &in));
  if (!skip(&s, "->"))
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                      "einsum_config must look like \"ab->ba\"");
  AT_TRY(result_read(x, op, s, &result));
  AT_TRY(sum_unused(x, op, &in, &(labels){.n = 0}, &result, &v));
  AT_TRY(arrange(x, op, &in, &result, &v));
  return at_imp_define_results(x, op, &v, 1);
}

// ---- torch_index_select

// result[b.., pre.., i.., post..] = operand[b.., pre.., index[b.., i..],
// post..]
static at_status select_attrs(at_imp *x, const at_type *operand,
                              const at_type *index, uint32_t dim,
                              uint32_t batch, at_attr_vec *out) {
  uint32_t moved = index->rank - batch;  // dimensions that replace `dim`
  int64_t *offsets, *sizes;
  AT_TRY_ALLOC(offsets, at_new(x->a, int64_t, operand->rank + 1));
  AT_TRY_ALLOC(sizes, at_new(x->a, int64_t, operand->rank + 1));
  uint32_t n = 0;
  for (uint32_t i = 0; i < operand->rank; i++) {
    bool one = i < batch || i == dim;
    sizes[i] = one ? 1 : operand->dims[i];
    if (!one) offsets[n++] = i < dim ? i : (int64_t)i + moved - 1;
  }
  at_dims batches;
  int64_t at = dim;
  AT_TRY(iota_dims(x, 0, batch, &batches));
  AT_TRY(put_dims(x, out, AT_ATTR_OFFSET_DIMS, offsets, n));
  AT_TRY(put_dims(x, out, AT_ATTR_COLLAPSED_SLICE_DIMS, &at, 1));
  AT_TRY(put_dims(x, out, AT_ATTR_OPERAND_BATCHING_DIMS, batches.ptr, batch));
  AT_TRY(put_dims(x, out, AT_ATTR_START_INDICES_BATCHING_DIMS, batches.ptr,
                  batch));
  AT_TRY(put_dims(x, out, AT_ATTR_START_INDEX_MAP, &at, 1));
  AT_TRY(put_dims(x, out, AT_ATTR_SLICE_SIZES, sizes, operand->rank));
  AT_TRY(at_imp_attr_put(
      x, out, (at_attr){.id = AT_ATTR_INDEX_VECTOR_DIM, .i = index->rank}));
  return at_imp_attr_put(x, out, (at_attr){.id = AT_ATTR_INDICES_ARE_SORTED});
}

// A GATHER whose slices are whole but for the selected dimension and the batch
// dimensions. Negative dim and batch_dims count from the end.
AT_IMP_HOW(torch_index_select) {
  at_value v[2];
  at_type t;
  int64_t dim, batch;
  AT_TRY(at_imp_need(x, op, 2, 1));
  for (uint32_t i = 0; i < 2; i++) AT_TRY(single_tensor(x, op, i, &v[i]));
  AT_TRY(result_type(x, op, &t));
  AT_TRY(at_imp_int(x, op, "dim", 0, &dim));
  AT_TRY(at_imp_int(x, op, "batch_dims", 0, &batch));
  const at_type *operand = at_value_type(v[0]), *index = at_value_type(v[1]);
  if (dim < 0) dim += operand->rank;
  if (batch < 0) batch += index->rank;
  if (batch < 0 || batch > index->rank || dim < batch || dim >= operand->rank)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                      "dim or batch_dims is outside of the operands");
  at_imp_node d = {.op = AT_OP_GATHER,
                   .operands = v,
                   .num_operands = 2,
                   .types = &t,
                   .num_types = 1,
                   .outer = true};
  AT_TRY(select_attrs(x, operand, index, (uint32_t)dim, (uint32_t)batch,
                      &d.attrs));
  at_node *n;
  AT_TRY(at_imp_build(x, op, &d, &n));
  return at_imp_define_node(x, op, n);
}

// A sum over replicas.
AT_IMP_HOW(cross_replica_sum) {
  at_value v;
  at_type t;
  at_comp *body;
  AT_TRY(at_imp_need(x, op, 1, 1));
  AT_TRY(single_tensor(x, op, 0, &v));
  AT_TRY(result_type(x, op, &t));
  AT_TRY(at_imp_add_region(x, op, at_value_type(v)->dtype, &body));
  at_imp_node d = {.op = AT_OP_ALL_REDUCE,
                   .operands = &v,
                   .num_operands = 1,
                   .regions = &body,
                   .num_regions = 1,
                   .types = &t,
                   .num_types = 1,
                   .outer = true};
  AT_TRY(at_imp_attrs(x, op, AT_OP_ALL_REDUCE, &d.attrs));
  at_node *n;
  AT_TRY(at_imp_build(x, op, &d, &n));
  return at_imp_define_node(x, op, n);
}

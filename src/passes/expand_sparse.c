// Calls of the SparseCore that are data movement: features of one table stand
// in its batch SparseCore by SparseCore, feature after feature.
#include "passes/passes_internal.h"

// Do `batch` samples divide evenly over the SparseCores?
static at_status divides(const at_node *n, int64_t batch, int64_t scs) {
  if (scs && batch % scs == 0) return AT_OK;
  if (!scs)
    return at_fail_at(AT_UNIMPLEMENTED, n, "the target has no SparseCores");
  return at_fail_at(AT_INVALID_ARGUMENT, n,
                    "a batch of %lld does not divide over %lld SparseCores",
                    (long long)batch, (long long)scs);
}

static bool is_matrix(const at_type *t) { return t->rank == 2; }

// The stack must hold the samples of all features and be as wide as the widest.
static at_status check_features(const at_node *n, const at_type *stacked,
                                int64_t sum, int64_t widest) {
  if (sum == stacked->dims[0] && widest <= stacked->dims[1]) return AT_OK;
  return at_fail_at(AT_INVALID_ARGUMENT, n,
                    "features of %lld samples, %lld wide, and a stack of %lld "
                    "samples, %lld wide",
                    (long long)sum, (long long)widest,
                    (long long)stacked->dims[0], (long long)stacked->dims[1]);
}

// Splits the stacked activations [samples, width] by feature. Rows are
// SparseCore-major: [core][feature][row].
static at_status unstack(at_rw *r, at_node *n) {
  int64_t scs = r->o->sparse_cores, sum = 0, widest = 0, at = 0;
  const at_type *t = at_value_type(n->operands[0]);
  bool matrices = n->num_operands == 1 && is_matrix(t);
  for (uint32_t i = 0; i < n->num_results; i++) {
    matrices &= is_matrix(&n->types[i]);
    if (!matrices) break;
    AT_TRY(divides(n, n->types[i].dims[0], scs));
    sum += n->types[i].dims[0];
    widest = AT_MAX(widest, n->types[i].dims[1]);
  }
  if (!matrices)
    return at_fail_at(AT_INVALID_ARGUMENT, n, "operands of rank 2 only");
  AT_TRY(check_features(n, t, sum, widest));
  at_value all;
  int64_t dims[3] = {scs, t->dims[0] / scs, t->dims[1]};
  AT_TRY(at_mk_reshape(n, n->operands[0], (at_dims){dims, 3}, &all));
  for (uint32_t i = 0; i < n->num_results; i++) {
    at_value v;
    int64_t rows = n->types[i].dims[0] / scs, ones[3] = {1, 1, 1};
    int64_t start[3] = {0, at, 0};
    int64_t limit[3] = {scs, at += rows, n->types[i].dims[1]};
    AT_TRY(at_mk_slice(n, all, start, limit, ones, &v));
    AT_TRY(at_mk_reshape(n, v, at_type_dims(&n->types[i]), &v));
    AT_TRY(at_fwd_set(r, n, i, v));
  }
  return AT_OK;
}

// Narrow features are filled up with zeros.
static at_status widen(at_node *n, at_value v, int64_t width, at_value *out) {
  const at_type *t = at_value_type(v);
  *out = v;
  if (t->dims[2] == width) return AT_OK;
  int64_t none[3] = {0, 0, 0}, high[3] = {0, 0, width - t->dims[2]};
  at_attr attrs[3] = {at_attr_ints(AT_ATTR_EDGE_PADDING_LOW, none, 3),
                      at_attr_ints(AT_ATTR_EDGE_PADDING_HIGH, high, 3),
                      at_attr_ints(AT_ATTR_INTERIOR_PADDING, none, 3)};
  at_value operands[2] = {v};
  AT_TRY(at_mk_splat_float(n, at_type_scalar(t->dtype), 0, &operands[1]));
  return at_mk(n, AT_OP_PAD, operands, 2, attrs, 3, NULL, out);
}

// The inverse of unstack, for gradients: features are widened to the stack's
// width and joined under each SparseCore.
static at_status stack(at_rw *r, at_node *n) {
  int64_t scs = r->o->sparse_cores, sum = 0, widest = 0;
  bool matrices = n->num_results == 1 && n->num_operands;
  matrices = matrices && is_matrix(&n->types[0]);
  for (uint32_t i = 0; matrices && i < n->num_operands; i++) {
    const at_type *t = at_value_type(n->operands[i]);
    matrices &= is_matrix(t);
    if (!matrices) break;
    AT_TRY(divides(n, t->dims[0], scs));
    sum += t->dims[0];
    widest = AT_MAX(widest, t->dims[1]);
  }
  if (!matrices)
    return at_fail_at(AT_INVALID_ARGUMENT, n, "operands of rank 2 only");
  AT_TRY(check_features(n, &n->types[0], sum, widest));
  at_value *parts, v;
  AT_TRY_ALLOC(parts, at_new(r->m->arena, at_value, n->num_operands));
  for (uint32_t i = 0; i < n->num_operands; i++) {
    const at_type *t = at_value_type(n->operands[i]);
    int64_t dims[3] = {scs, t->dims[0] / scs, t->dims[1]};
    AT_TRY(at_mk_reshape(n, n->operands[i], (at_dims){dims, 3}, &v));
    AT_TRY(widen(n, v, n->types[0].dims[1], &parts[i]));
  }
  at_attr dim = at_attr_int(AT_ATTR_DIMENSION, 1);
  AT_TRY(
      at_mk(n, AT_OP_CONCATENATE, parts, n->num_operands, &dim, 1, NULL, &v));
  AT_TRY(at_mk_reshape(n, v, at_type_dims(&n->types[0]), &v));
  return at_fwd_set(r, n, 0, v);
}

// Lookups begin with zeros: the engine writes them itself.
static void drop_zeros(at_node *n) {
  at_value init = n->operands[n->num_operands - 1];
  bool same = at_type_eq(at_value_type(init), &n->types[0]);
  if (same && at_is_splat(init, 0)) n->num_operands--;
}

// The last operand of a lookup is the initial activations.
at_status at_expand_sparse(at_rw *r, at_node *n) {
  static const struct {
    const char *target;
    uint32_t operands;
  } lookups[] = {{"SparseDenseMatmulOp", 6},
                 {"SparseDenseMatmulWithMinibatchingOp", 7},
                 {"SparseDenseMatmulLocalOp", 5}};
  at_str t = at_node_str(n, AT_ATTR_CALL_TARGET_NAME);
  for (size_t i = 0; i < AT_LEN(lookups); i++)
    if (at_str_is(t, lookups[i].target) && n->num_results == 1 &&
        n->num_operands == lookups[i].operands)
      drop_zeros(n);
  if (at_str_is(t, "SparseActivationsUnstackInterleaved")) return unstack(r, n);
  if (at_str_is(t, "SparseGradientsStackInterleaved")) return stack(r, n);
  return AT_OK;
}

// ---- Optimizers
// What the optimizer sees of a hyperparameter: a row that repeats it.
static at_status widen_hyper(at_node *end, at_value v, const at_type *row,
                             at_value *out) {
  AT_TRY(at_mk_convert(end, v, row->dtype, &v));
  return at_mk_broadcast(end, v, at_type_dims(row), NULL, out);
}

// Fills `main` with parameters (rows, then hyperparameters as scalars) and a
// copy of the body that reads the hyperparameters as rows.
static at_status fill_main(at_module *m, const at_comp *body, uint32_t rows,
                           const at_dtype *hypers, at_comp *main) {
  uint32_t n = body->num_params;
  at_value *args, *results;
  at_node *end;
  at_comp *copy;
  AT_TRY_ALLOC(args, at_new(m->arena, at_value, n + 1));
  AT_TRY_ALLOC(results, at_new(m->arena, at_value, body->num_results + 1));
  for (uint32_t i = 0; i < n; i++)
    AT_TRY(at_build_param(
        main,
        i < rows ? body->params[i]->types[0] : at_type_scalar(hypers[i - rows]),
        NULL, &args[i]));
  at_type token = {.dtype = AT_TOKEN};
  at_node_desc d = {.op = AT_OP_CREATE_TOKEN, .types = &token, .num_types = 1};
  AT_TRY(at_build(main, NULL, &d, &end));  // what builders build before
  for (uint32_t i = rows; i < n; i++)
    AT_TRY(widen_hyper(end, args[i], &body->params[i]->types[0], &args[i]));
  at_map map = at_map_in(m->arena);
  AT_TRY(at_comp_clone(m, body, &map, &copy));
  at_comp_splice(copy, args, end, results);
  at_node_remove(end);
  return at_comp_return(main, results, body->num_results);
}

// The body is cloned, so the caller's module stays as it is.
at_status at_optimizer_program(const at_comp *body, uint32_t rows,
                               const at_dtype *hypers, at_arena *a,
                               at_module **out) {
  at_comp *main;
  AT_TRY(at_module_create(a, AT_STR("optimizer"), out));
  AT_TRY(at_comp_create(*out, AT_STR("main"), NULL, &main));
  (*out)->entry = main;
  (*out)->num_replicas = (*out)->num_partitions = 1;
  return fill_main(*out, body, rows, hypers, main);
}

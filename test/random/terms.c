// The same sums over magnitudes, in f64, by the evaluator: how large the terms
// of each element were.
#include <math.h>

#include "judge.h"

static bool is_sum(const at_comp *c) {
  const at_node *n = c->num_results == 1 ? c->results[0].node : NULL;
  return n && n->op == AT_OP_ADD && n->num_operands == 2 &&
         n->operands[0].node->op == AT_OP_PARAMETER &&
         n->operands[1].node->op == AT_OP_PARAMETER;
}

static at_status magnitudes(at_arena *a, const at_literal *l, bool keep_sign,
                            const at_literal **out) {
  if (!judge_inexact(l->type.dtype)) return *out = l, AT_OK;
  int64_t n = at_type_elements(&l->type);
  double *v;
  AT_TRY_ALLOC(v, at_new(a, double, n + 1));
  for (int64_t i = 0; i < n; i++) {
    double re = judge_part(l, i, 0);
    double im = at_is_complex(l->type.dtype) ? judge_part(l, i, 1) : 0;
    if (keep_sign)
      v[i] = re;
    else
      v[i] = (isfinite(re) ? fabs(re) : 0) + (isfinite(im) ? fabs(im) : 0);
  }
  return at_literal_make(a, at_type_with(l->type, AT_F64), v, false, true, out);
}

static at_status region(at_module *m, const at_comp *from, at_comp **out) {
  at_value v[2], r;
  const at_node *root = from->results[0].node;
  AT_TRY(at_region_create(m, out));
  for (int i = 0; i < 2; i++)
    AT_TRY(at_build_param(*out, at_type_scalar(AT_F64), NULL, &v[i]));
  at_node_desc d = {.op = root->op,
                    .operands = v,
                    .num_operands = 2,
                    .attrs = root->attrs,
                    .num_attrs = root->num_attrs};
  at_node *n;
  AT_TRY(at_build(*out, NULL, &d, &n));
  r = (at_value){n, 0};
  return at_comp_return(*out, &r, 1);
}

// The node n on f64 operands, evaluated: on their magnitudes, or as they are.
static at_status evaluate(at_arena *a, const at_node *n,
                          const at_literal *const *in, bool keep_signs,
                          const double **out) {
  at_module *m;
  at_comp *c;
  at_value *v;
  const at_literal **args, *sums;
  at_comp *regions[2] = {0};
  AT_TRY(at_module_create(a, AT_STR("terms"), &m));
  AT_TRY(at_comp_create(m, AT_STR("main"), NULL, &c));
  m->entry = c;
  AT_TRY_ALLOC(v, at_new(a, at_value, n->num_operands));
  AT_TRY_ALLOC(args, at_new(a, const at_literal *, n->num_operands));
  for (uint32_t i = 0; i < n->num_operands; i++) {
    AT_TRY(magnitudes(a, in[i], keep_signs, &args[i]));
    AT_TRY(at_build_param(c, args[i]->type, NULL, &v[i]));
  }
  for (uint32_t i = 0; i < n->num_regions; i++)
    AT_TRY(region(m, n->regions[i], &regions[i]));
  at_type t = at_type_with(n->types[0], AT_F64);
  at_node_desc d = at_node_desc_like(n, v, regions);
  d.types = &t;
  d.num_types = 1;
  at_node *node;
  AT_TRY(at_build(c, NULL, &d, &node));
  at_value r = {node, 0};
  AT_TRY(at_comp_return(c, &r, 1));
  AT_TRY(at_eval(c, args, NULL, a, &sums));
  double *each;
  int64_t count = at_type_elements(&t);
  AT_TRY_ALLOC(each, at_new(a, double, count + 1));
  for (int64_t i = 0; i < count; i++) {
    double v = at_literal_float(sums, i);
    each[i] = keep_signs ? v : fabs(v);
  }
  *out = each;
  return AT_OK;
}

// An FFT adds every element of its transform; all of them bound that.
static at_status total(at_arena *a, const at_node *n, const at_literal *x,
                       const double **out) {
  double sum = 0, *each;
  int64_t count = at_type_elements(&n->types[0]);
  for (int64_t i = 0; i < at_type_elements(&x->type); i++)
    for (int k = 0; k < 1 + at_is_complex(x->type.dtype); k++)
      if (isfinite(judge_part(x, i, k))) sum += fabs(judge_part(x, i, k));
  AT_TRY_ALLOC(each, at_new(a, double, count + 1));
  for (int64_t i = 0; i < count; i++) each[i] = sum;
  *out = each;
  return AT_OK;
}

static bool adds(const at_node *n) {
  switch (n->op) {
    case AT_OP_DOT_GENERAL:
    case AT_OP_RAGGED_DOT:
    case AT_OP_CONVOLUTION:
    case AT_OP_DYNAMIC_CONV:
      return true;
    case AT_OP_REDUCE:
    case AT_OP_REDUCE_WINDOW:
    case AT_OP_SCAN:
      return n->num_results == 1 && is_sum(n->regions[0]);
    default:
      return false;
  }
}

at_status judge_terms(at_arena *a, const at_node *n,
                      const at_literal *const *in, const double **terms,
                      const double **sums) {
  *terms = *sums = NULL;
  if (n->op == AT_OP_FFT) return total(a, n, in[0], terms);
  if (!adds(n)) return AT_OK;
  AT_TRY(evaluate(a, n, in, false, terms));
  at_dtype t = n->types[0].dtype;
  bool narrow = at_is_float(t) && at_dtype_bytes(t) < 4;
  return narrow ? evaluate(a, n, in, true, sums) : AT_OK;
}

// Who may join a cluster, and which clusters may become one.
#include "passes/fuse_internal.h"

// ---- How a producer is indexed by its users
static bool add_sig(fuse_member *m, uint64_t sig) {
  for (uint32_t i = 0; i < m->num_sigs; i++)
    if (m->sigs[i] == sig) return true;
  if (m->num_sigs == FUSE_MAX_SIGS) return false;
  m->sigs[m->num_sigs++] = sig;
  return true;
}

// Adds the index maps of `user`, each continued by `by` (0: the same map).
// False: d would be computed under more than FUSE_MAX_SIGS maps.
static bool add_sigs(fuse_member *m, const fuse_member *user, uint64_t by) {
  for (uint32_t i = 0; i < user->num_sigs; i++) {
    uint64_t sig = user->sigs[i];
    if (by) {
      sig = at_hash(AT_HASH_SEED, &sig, sizeof sig);
      sig = at_hash(sig, &by, sizeof by);
    }
    if (!add_sig(m, sig)) return false;
  }
  return true;
}

// evals * num / den in double: sizes may be large, and a rough count is enough.
static int64_t scale(int64_t evals, int64_t num, int64_t den) {
  return den ? (int64_t)((double)evals * (double)num / (double)den) : 0;
}

// A broadcast that repeats whole inner rows: what does not vary along the row
// is computed once for it. Elements of u in such a row, 1 for other broadcasts.
// A row is one dimension, or as many as make a long one; if there are few of
// those, all that are repeated count as one.
static int64_t broadcast_row(const at_node *u) {
  enum { LONG = 32, FEW = 512 };
  at_dims where = at_node_ints(u, AT_ATTR_BROADCAST_DIMENSIONS);
  const at_type *from = at_value_type(u->operands[0]), *to = &u->types[0];
  int64_t inner = 1, row = 1;
  for (uint32_t i = 0; i < where.rank; i++)
    if (where.ptr[i] != i || from->dims[i] != to->dims[i]) return 1;
  for (uint32_t i = to->rank; i-- > where.rank;) {
    if (row < LONG) row *= to->dims[i];
    inner *= to->dims[i];
  }
  if (!where.rank || inner < LONG) return 1;
  return at_type_elements(to) / row <= FEW ? inner : row;
}

// Nodes above d that a fusion would take along; stops at `limit` and at what
// has more users than a fusion has ways to index it: that is stored, as a rule.
// cheap: an expensive one counts as `limit`.
static uint32_t subtree(const fuser *f, const fuse_node *d, uint32_t limit,
                        bool cheap) {
  uint32_t n = cheap && d->cls == FUSE_EXPENSIVE ? limit : 1;
  for (uint32_t i = 0; i < d->n->num_operands && n < limit; i++) {
    const fuse_node *in = fuse_of(f, d->n->operands[i].node);
    if (in && in->cls > FUSE_CONST && in->cls != FUSE_REDUCE &&
        in->users.len <= FUSE_MAX_SIGS)
      n += subtree(f, in, limit - n, cheap);
  }
  return n;
}

// Does d pick elements of what is stored anyway, as others use it, too? Such a
// part of a concatenation repeats nothing.
static bool picks_shared(const fuser *f, const fuse_node *d) {
  if (d->n->op != AT_OP_SLICE && d->n->op != AT_OP_REVERSE) return false;
  const fuse_node *in = fuse_of(f, d->n->operands[0].node);
  return in && (in->users.len > 1 || in->returned);
}

// Is d too much for what may be repeated under `user`, a concatenation or a
// part of one?
static bool too_much_to_repeat(const fuser *f, const fuse_node *d,
                               const fuse_member *user) {
  enum { FAR = 64 };
  bool part = user->node->n->op == AT_OP_CONCATENATE;
  // Functions that are dear are repeated by each of a chain of such parts.
  if (part && picks_shared(f, d)) return subtree(f, d, FAR, true) >= FAR;
  return (part || user->part) &&
         subtree(f, d, FUSE_CONCAT_SUBTREE, false) >= FUSE_CONCAT_SUBTREE;
}

// One use of d: operand i of the member `user`.
static bool add_use(const fuser *f, const fuse_node *d, const fuse_member *user,
                    uint32_t i, fuse_member *m) {
  const at_node *u = user->node->n;
  int64_t size = at_type_elements(&d->n->types[0]);
  int64_t all = at_type_elements(&u->types[0]), evals = user->evals;
  uint64_t by = at_node_hash(u) + i;
  if (too_much_to_repeat(f, d, user)) return false;
  m->part |= u->op == AT_OP_CONCATENATE && picks_shared(f, d);
  switch (u->op) {
    case AT_OP_REDUCE:
      if (i >= u->num_operands / 2) return false;  // an initial value
      by = 0;
      break;
    case AT_OP_RESHAPE:
      by = 0;
      break;
    case AT_OP_BROADCAST_IN_DIM:
      evals = scale(evals, 1, broadcast_row(u));
      break;
    case AT_OP_CONCATENATE:
      evals = scale(evals, size, all);
      break;
    case AT_OP_PAD:
      evals = i == 0 ? scale(evals, AT_MIN(size, all), all) : 1;
      break;
    case AT_OP_GATHER:
      if (i == 0) return false;
      break;
    case AT_OP_DYNAMIC_SLICE:
      if (i == 0) return false;
      evals = 1;
      break;
    case AT_OP_SLICE:
    case AT_OP_REVERSE:
    case AT_OP_TRANSPOSE:
      break;
    default:  // elementwise; select and clamp stretch scalars
      if (size == all) by = 0;
      break;
  }
  m->evals = AT_MAX(m->evals, evals);
  return add_sigs(m, user, by);
}

typedef struct operand_count {
  at_value seen[FUSE_MAX_OPERANDS + 1];
  uint32_t n;
} operand_count;

// Operands of d that are no members of either cluster (b may be NULL), nor
// `extra`; as many as the limit and one, at most.
static void count_operands_of(const fuser *f, const fuse_node *d,
                              fuse_cluster *a, fuse_cluster *b,
                              const fuse_node *extra, operand_count *c) {
  for (uint32_t i = 0; i < d->n->num_operands && c->n <= FUSE_MAX_OPERANDS;
       i++) {
    at_value v = d->n->operands[i];
    const fuse_node *in = fuse_of(f, v.node);
    if (fuse_is_inline_const(v.node) || (in && in == extra)) continue;
    if (in && (fuse_member_of(a, in) || (b && fuse_member_of(b, in)))) continue;
    bool known = false;
    for (uint32_t j = 0; j < c->n; j++) known |= at_value_eq(c->seen[j], v);
    if (!known) c->seen[c->n++] = v;
  }
}

// Operands of the cluster with `extra` (NULL: none) as one more member; stops
// at FUSE_MAX_OPERANDS + 1.
static uint32_t count_operands(const fuse_cluster *cl, const fuse_node *extra,
                               const fuser *f) {
  operand_count c = {.n = 0};
  for (size_t k = 0; k <= cl->members.len; k++) {
    const fuse_node *d = k < cl->members.len ? cl->members.ptr[k].node : extra;
    if (d) count_operands_of(f, d, (fuse_cluster *)cl, NULL, extra, &c);
  }
  return c.n;
}

uint32_t fuse_pair_operands(const fuser *f, fuse_cluster *a, fuse_cluster *b) {
  operand_count c = {.n = 0};
  for (size_t k = 0; k < a->members.len; k++)
    count_operands_of(f, a->members.ptr[k].node, a, b, NULL, &c);
  for (size_t k = 0; k < b->members.len; k++)
    count_operands_of(f, b->members.ptr[k].node, a, b, NULL, &c);
  return c.n;
}

// Collects d's uses in cl: how often it would be computed, and under which
// index maps. Refused where an expensive op would be repeated, cheap ones would
// grow too often, or the limits on work and operands are exceeded.
bool fuse_can_join(fuser *f, fuse_node *d, fuse_cluster *cl, fuse_member *out) {
  fuse_member m = {.node = d};
  bool by_users = d->users.len < cl->members.len;
  size_t most = by_users ? d->users.len : cl->members.len;
  for (size_t i = 0; i < most; i++) {
    const fuse_member *user =
        by_users ? fuse_member_of(cl, d->users.ptr[i]) : &cl->members.ptr[i];
    if (!user) continue;
    for (uint32_t k = 0; k < user->node->n->num_operands; k++)
      if (user->node->n->operands[k].node == d->n &&
          !add_use(f, d, user, k, &m))
        return false;
  }
  if (m.num_sigs == 0) return false;
  int64_t size = at_type_elements(&d->n->types[0]);
  bool grown = m.evals > size + size / 4;
  if (d->cls == FUSE_EXPENSIVE && (grown || m.num_sigs > 1)) return false;
  bool counts = grown && size > 1 && d->cls == FUSE_CHEAP;
  if (counts && cl->grown + m.num_sigs > FUSE_MAX_GROWN) return false;
  if (cl->work + m.num_sigs > FUSE_MAX_WORK) return false;
  if (count_operands(cl, d, f) > FUSE_MAX_OPERANDS) return false;
  if (out) *out = m;
  return true;
}

// Only where each element of the loop is exactly one element of d.
bool fuse_can_output(fuser *f, fuse_node *d, fuse_cluster *cl) {
  fuse_member m;
  return !cl->reduce && cl->outputs.len < FUSE_MAX_OUTPUTS &&
         d->n->num_results == 1 &&
         at_type_elements(&d->n->types[0]) == at_type_elements(cl->space) &&
         fuse_can_join(f, d, cl, &m) && m.num_sigs == 1 &&
         m.sigs[0] == FUSE_ROOT_SIG && !fuse_output_cycles(f, d, cl);
}

// fuse_can_join held; with `output` fuse_can_output, too.
at_status fuse_join(fuser *f, fuse_node *d, fuse_cluster *cl, bool output) {
  fuse_member m;
  AT_ENSURE(fuse_can_join(f, d, cl, &m));
  int64_t size = at_type_elements(&d->n->types[0]);
  cl->work += m.num_sigs;
  if (m.evals > size + size / 4 && size > 1 && d->cls == FUSE_CHEAP)
    cl->grown += m.num_sigs;
  AT_TRY(fuse_add_member(f, cl, m));
  if (!at_vec_push(f->arena, &d->in, cl)) return AT_NO_MEMORY("fuse");
  if (output) {
    d->output = true;
    if (!at_vec_push(f->arena, &cl->outputs, d)) return AT_NO_MEMORY("fuse");
    uint32_t height = fuse_height_over_users(d, cl);
    if (height > cl->height) AT_TRY(fuse_raise(f, cl, height));
  }
  return AT_OK;
}

// ---- Reduces with elementwise steps after them
static bool in_tail(const fuse_cluster *cl, const fuse_member *m) {
  uint64_t sig = cl->reduce ? FUSE_TAIL_SIG : FUSE_ROOT_SIG;
  return m->num_sigs == 1 && m->sigs[0] == sig;
}

// All uses of d must be elementwise ops on reduced results, and the space and
// reduced dimensions must agree with reduces that are there already.
bool fuse_can_precede(fuser *f, fuse_node *d, const fuse_cluster *cl) {
  const at_type *in = at_value_type(d->n->operands[0]), *out = &d->n->types[0];
  if (d->n->num_results != 1) return false;
  if (cl->reduce &&
      (!at_dims_eq(at_type_dims(in), at_type_dims(cl->space)) ||
       !at_dims_eq(cl->reduced, at_node_ints(d->n, AT_ATTR_DIMENSIONS))))
    return false;
  if (!cl->reduce && !at_dims_eq(at_type_dims(out), at_type_dims(cl->space)))
    return false;
  for (size_t i = 0; i < cl->members.len; i++) {
    const fuse_member *m = &cl->members.ptr[i];
    at_op op = m->node->n->op;
    bool uses = false;
    for (uint32_t k = 0; k < m->node->n->num_operands; k++)
      uses |= m->node->n->operands[k].node == d->n;
    if (uses && !(in_tail(cl, m) && at_op_is(op, AT_ELEMENTWISE))) return false;
    if (!cl->reduce && !(in_tail(cl, m) && (at_op_is(op, AT_ELEMENTWISE) ||
                                            op == AT_OP_BROADCAST_IN_DIM)))
      return false;
  }
  return cl->work + 1 <= FUSE_MAX_WORK &&
         count_operands(cl, d, f) <= FUSE_MAX_OPERANDS;
}

// The cluster becomes a reduction: its loop runs over d's operand, its members
// so far are the tail.
at_status fuse_precede(fuser *f, fuse_node *d, fuse_cluster *cl) {
  if (!cl->reduce) {
    for (size_t i = 0; i < cl->members.len; i++)
      cl->members.ptr[i].sigs[0] = FUSE_TAIL_SIG;
    cl->reduce = true;
    cl->space = at_value_type(d->n->operands[0]);
    cl->reduced = at_node_ints(d->n, AT_ATTR_DIMENSIONS);
  }
  fuse_member m = {.node = d,
                   .evals = at_type_elements(cl->space),
                   .sigs = {FUSE_ROOT_SIG},
                   .num_sigs = 1};
  cl->work++;
  AT_TRY(fuse_add_member(f, cl, m));
  if (!at_vec_push(f->arena, &d->in, cl)) return AT_NO_MEMORY("fuse");
  return AT_OK;
}

// ---- Clusters side by side
static bool mergeable(fuser *f, fuse_cluster *a, fuse_cluster *b) {
  if (a == b || a->reduce != b->reduce) return false;
  if (!at_dims_eq(at_type_dims(a->space), at_type_dims(b->space))) return false;
  if (a->reduce && !at_dims_eq(a->reduced, b->reduced)) return false;
  if (a->work + b->work > FUSE_MAX_WORK ||
      a->outputs.len + b->outputs.len > FUSE_MAX_OUTPUTS)
    return false;
  if (count_operands(a, NULL, f) + count_operands(b, NULL, f) >
      FUSE_MAX_OPERANDS)
    return false;
  return !fuse_cluster_reaches(f, a, b) && !fuse_cluster_reaches(f, b, a);
}

// The union of both uses. False: too many index maps.
static bool add_member(fuse_member *have, const fuse_member *from) {
  have->evals = AT_MAX(have->evals, from->evals);
  for (uint32_t k = 0; k < from->num_sigs; k++)
    if (!add_sig(have, from->sigs[k])) return false;
  return true;
}

// Checks every common member before it changes anything, so that a refusal
// leaves both as they were.
at_status fuse_merge(fuser *f, fuse_cluster *a, fuse_cluster *b, bool *merged) {
  *merged = false;
  if (!mergeable(f, a, b)) return AT_OK;
  for (size_t i = 0; i < b->members.len; i++) {
    const fuse_member *have = fuse_member_of(a, b->members.ptr[i].node);
    fuse_member both = have ? *have : (fuse_member){0};
    if (have && !add_member(&both, &b->members.ptr[i])) return AT_OK;
  }
  for (size_t i = 0; i < b->members.len; i++) {
    fuse_member *have = fuse_member_of(a, b->members.ptr[i].node);
    if (have)
      add_member(have, &b->members.ptr[i]);
    else
      AT_TRY(fuse_add_member(f, a, b->members.ptr[i]));
  }
  for (size_t i = 0; i < b->outputs.len; i++)
    if (!at_vec_push(f->arena, &a->outputs, b->outputs.ptr[i]))
      return AT_NO_MEMORY("fuse");
  a->work += b->work;
  a->grown += b->grown;
  b->into = a;
  *merged = true;
  return fuse_raise(f, a, b->height);
}

// Collectives: types, and the laws of each attribute. How many devices there
// are is not known before the compile options are read, so that whether an id
// names one is asked when the program is compiled (compile/collective.c).
#include "hlo/hlo_internal.h"

// Whether a dimension that an attribute names is one of t's.
static at_status check_dim(const at_node *n, at_attr_id id, const at_type *t) {
  int64_t d = at_node_int(n, id, -1);
  return d >= 0 && d < t->rank
             ? AT_OK
             : AT_BAD(n, "%s %lld is not in [0, %u)", at_attr_text(id),
                      (long long)d, t->rank);
}

static at_status id_twice(const at_node *n, at_attr_id id, int64_t device) {
  return AT_BAD(n, "%s names %lld twice", at_attr_text(id), (long long)device);
}

// ---- Who takes part

// Every id once; -1 fills up short groups. Where each member has a part of the
// result, groups have one size.
static at_status check_groups(at_module *m, const at_node *n) {
  const at_attr *a = at_node_attr(n, AT_ATTR_REPLICA_GROUPS);
  at_map seen = at_map_in(m->arena);
  bool ragged =
      n->op == AT_OP_ALL_REDUCE || n->op == AT_OP_COLLECTIVE_BROADCAST;
  for (uint32_t i = 0; a && i < a->groups.n; i++) {
    at_dims g = a->groups.list[i];
    if (!ragged && g.rank != a->groups.list[0].rank)
      return AT_BAD(n, "replica_groups has groups of %u and of %u",
                    a->groups.list[0].rank, g.rank);
    for (uint32_t k = 0; k < g.rank; k++) {
      if (g.ptr[k] == -1) continue;
      if (g.ptr[k] < 0)
        return AT_BAD(n, "replica_groups names %lld", (long long)g.ptr[k]);
      void **place;
      AT_TRY_ALLOC(place, at_map_put(&seen, (at_str){(const char *)&g.ptr[k],
                                                     sizeof g.ptr[k]}));
      if (*place) return id_twice(n, AT_ATTR_REPLICA_GROUPS, g.ptr[k]);
      *place = (void *)n;
    }
  }
  return AT_OK;
}

// (source, target): nobody receives twice. A source may send to several.
static at_status check_pairs(at_module *m, const at_node *n) {
  const at_attr *a = at_node_attr(n, AT_ATTR_SOURCE_TARGET_PAIRS);
  at_map targets = at_map_in(m->arena);
  for (uint32_t i = 0; a && i < a->groups.n; i++) {
    at_dims p = a->groups.list[i];
    if (p.rank != 2)
      return AT_BAD(n, "source_target_pairs has an entry of %u numbers",
                    p.rank);
    for (uint32_t k = 0; k < 2; k++)
      if (p.ptr[k] < 0)
        return AT_BAD(n, "source_target_pairs names %lld", (long long)p.ptr[k]);
    void **place;
    AT_TRY_ALLOC(place, at_map_put(&targets, (at_str){(const char *)&p.ptr[1],
                                                      sizeof p.ptr[1]}));
    if (*place) return id_twice(n, AT_ATTR_SOURCE_TARGET_PAIRS, p.ptr[1]);
    *place = (void *)n;
  }
  return AT_OK;
}

// Global device ids have a meaning only with a channel.
static at_status check_channel(const at_node *n) {
  int64_t channel = at_node_int(n, AT_ATTR_CHANNEL_ID, 0);
  if (channel < 0) return AT_BAD(n, "channel_id is %lld", (long long)channel);
  if (at_node_bool(n, AT_ATTR_USE_GLOBAL_DEVICE_IDS) && !channel)
    return AT_BAD(n, "use_global_device_ids needs a channel_id above 0");
  return AT_OK;
}

// Devices of a group, 0 where only the compile options tell: each id of a
// reduction over replicas and partitions is a replica, of which all partitions
// take part.
static int64_t members_of(const at_node *n) {
  const at_attr *a = at_node_attr(n, AT_ATTR_REPLICA_GROUPS);
  bool both = n->op != AT_OP_ALL_TO_ALL &&
              at_node_int(n, AT_ATTR_CHANNEL_ID, 0) > 0 &&
              !at_node_bool(n, AT_ATTR_USE_GLOBAL_DEVICE_IDS);
  if (!a || !a->groups.n || both) return 0;
  at_dims g = a->groups.list[0];
  for (uint32_t k = 0; k < g.rank; k++)
    if (g.ptr[k] < 0) return 0;
  return g.rank;
}

// ---- Types

// Result r is operand r but for dimension d, which is `from` pieces there and
// `to` here (0: any number). Every piece has the same size.
static at_status check_resized(const at_node *n, uint32_t r, int64_t d,
                               int64_t from, int64_t to) {
  const at_type *x = at_value_type(n->operands[r]), *y = &n->types[r];
  int64_t have = x->dims[d], got = y->dims[d];
  if (have == AT_DYN || got == AT_DYN) return AT_OK;
  bool grows = from == 1;
  int64_t small = grows ? have : got, large = grows ? got : have;
  int64_t pieces = grows ? to : from;
  bool fits = pieces  ? small <= INT64_MAX / pieces && small * pieces == large
              : small ? large >= small && large % small == 0
                      : large == 0;
  return fits ? AT_OK
              : AT_BAD(n,
                       "dimension %lld is %lld in operand %u, %lld in the "
                       "result: not %lld pieces",
                       (long long)d, (long long)have, r, (long long)got,
                       (long long)pieces);
}

// As many results as operands, of their element types and, but for dimensions
// a and b, of their sizes.
static at_status check_alike(const at_node *n, int64_t a, int64_t b) {
  if (n->num_results != n->num_operands)
    return AT_BAD(n, "has %u results of %u operands", n->num_results,
                  n->num_operands);
  for (uint32_t r = 0; r < n->num_results; r++) {
    const at_type *x = at_value_type(n->operands[r]), *y = &n->types[r];
    bool same = x->rank == y->rank && x->dtype == y->dtype;
    for (uint32_t d = 0; same && d < x->rank; d++)
      same = d == a || d == b || x->dims[d] == y->dims[d] ||
             x->dims[d] == AT_DYN || y->dims[d] == AT_DYN;
    if (!same)
      return AT_BAD(n, "operand %u is %s, result %u is %s", r, at_type_z(x).z,
                    r, at_type_z(y).z);
  }
  return AT_OK;
}

// Collectives that change one dimension, `id`: it grows or shrinks by the
// number of members.
static at_status check_moves(const at_node *n, at_attr_id id, bool grows) {
  int64_t d = at_node_int(n, id, -1), members = members_of(n);
  for (uint32_t i = 0; i < n->num_operands; i++)
    AT_TRY(check_dim(n, id, at_value_type(n->operands[i])));
  AT_TRY(check_alike(n, d, d));
  for (uint32_t r = 0; r < n->num_results; r++)
    AT_TRY(check_resized(n, r, d, grows ? 1 : members, grows ? members : 1));
  return AT_OK;
}

// The split dimension shrinks by split_count, the concatenated one grows by it;
// where both are one, nothing changes.
static at_status check_all_to_all(const at_node *n) {
  int64_t count = at_node_int(n, AT_ATTR_SPLIT_COUNT, 0);
  int64_t s = at_node_int(n, AT_ATTR_SPLIT_DIMENSION, -1);
  int64_t c = at_node_int(n, AT_ATTR_CONCAT_DIMENSION, -1);
  int64_t members = members_of(n);
  for (uint32_t i = 0; i < n->num_operands; i++) {
    AT_TRY(
        check_dim(n, AT_ATTR_SPLIT_DIMENSION, at_value_type(n->operands[i])));
    AT_TRY(
        check_dim(n, AT_ATTR_CONCAT_DIMENSION, at_value_type(n->operands[i])));
  }
  if (count < 1) return AT_BAD(n, "split_count is %lld", (long long)count);
  if (members && members != count)
    return AT_BAD(n, "split_count is %lld, a group has %lld members",
                  (long long)count, (long long)members);
  AT_TRY(check_alike(n, s, c));
  for (uint32_t r = 0; r < n->num_results; r++) {
    const at_type *x = at_value_type(n->operands[r]), *y = &n->types[r];
    if (x->dims[s] != AT_DYN && x->dims[s] % count)
      return AT_BAD(n, "dimension %lld of operand %u, %lld, is not %lld pieces",
                    (long long)s, r, (long long)x->dims[s], (long long)count);
    if (s == c) {
      if (x->dims[s] != y->dims[s] && x->dims[s] != AT_DYN &&
          y->dims[s] != AT_DYN)
        return AT_BAD(n, "operand %u is %s, result %u is %s", r, at_type_z(x).z,
                      r, at_type_z(y).z);
      continue;
    }
    AT_TRY(check_resized(n, r, s, count, 1));
    AT_TRY(check_resized(n, r, c, 1, count));
  }
  return AT_OK;
}

// (input, output, input offsets, send sizes, output offsets, receive sizes).
static at_status check_ragged(const at_node *n) {
  const at_type *in = at_value_type(n->operands[0]);
  const at_type *out = at_value_type(n->operands[1]);
  if (in->dtype != out->dtype || !at_type_compatible(out, &n->types[0]))
    return AT_BAD(n, "operands 0 and 1 are %s and %s, the result is %s",
                  at_type_z(in).z, at_type_z(out).z, at_type_z(&n->types[0]).z);
  // Rows move, so all but their number is the same.
  bool rows = in->rank > 0 && in->rank == out->rank;
  for (uint32_t d = 1; rows && d < in->rank; d++)
    rows = in->dims[d] == out->dims[d] || in->dims[d] == AT_DYN ||
           out->dims[d] == AT_DYN;
  if (!rows)
    return AT_BAD(n, "operands 0 and 1, %s and %s, have different rows",
                  at_type_z(in).z, at_type_z(out).z);
  for (uint32_t i = 2; i < n->num_operands; i++) {
    const at_type *t = at_value_type(n->operands[i]);
    if (t->rank != 1 || !at_is_int(t->dtype) ||
        !at_type_compatible(t, at_value_type(n->operands[2])))
      return AT_BAD(n,
                    "operand %u is %s, must be a list of integers like "
                    "operand 2, %s",
                    i, at_type_z(t).z,
                    at_type_z(at_value_type(n->operands[2])).z);
  }
  return AT_OK;
}

// Attributes first, then types: of reductions and copies they follow from the
// operands, the others declare theirs.
at_status at_infer_collective(at_module *m, at_node *n) {
  AT_TRY(check_channel(n));
  AT_TRY(n->op == AT_OP_COLLECTIVE_PERMUTE ? check_pairs(m, n)
                                           : check_groups(m, n));
  switch (n->op) {
    case AT_OP_ALL_REDUCE:
      return at_infer_operands(m, n);
    case AT_OP_COLLECTIVE_BROADCAST:
    case AT_OP_COLLECTIVE_PERMUTE:
      return at_infer_same(m, n);
    default:
      break;
  }
  AT_TRY(at_infer_given(m, n));
  switch (n->op) {
    case AT_OP_ALL_GATHER:
      return check_moves(n, AT_ATTR_ALL_GATHER_DIM, true);
    case AT_OP_REDUCE_SCATTER:
      return check_moves(n, AT_ATTR_SCATTER_DIMENSION, false);
    case AT_OP_ALL_TO_ALL:
      return check_all_to_all(n);
    default:
      return check_ragged(n);
  }
}

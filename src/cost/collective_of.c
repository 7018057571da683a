// The collective that a node is, with the devices that its groups name.
#include "cost/cost_internal.h"

// False: op is no collective that costs are known of.
static bool op_of(at_op op, at_collective_op *out) {
  switch (op) {
    case AT_OP_ALL_REDUCE:
      return *out = AT_ALL_REDUCE, true;
    case AT_OP_ALL_GATHER:
      return *out = AT_ALL_GATHER, true;
    case AT_OP_REDUCE_SCATTER:
      return *out = AT_REDUCE_SCATTER, true;
    case AT_OP_ALL_TO_ALL:
      return *out = AT_ALL_TO_ALL, true;
    case AT_OP_COLLECTIVE_PERMUTE:
      return *out = AT_PERMUTE, true;
    case AT_OP_COLLECTIVE_BROADCAST:
      return *out = AT_BROADCAST, true;
    default:
      return false;
  }
}

// What the ids of a group name: replicas, partitions, both, or devices.
typedef enum group_kind {
  REPLICAS,
  PARTITIONS,
  REPLICAS_WITH_PARTITIONS,
  DEVICES
} group_kind;

// As StableHLO reads replica_groups: by channel_id and use_global_device_ids.
static group_kind kind_of(const at_node *n) {
  bool channel = at_node_int(n, AT_ATTR_CHANNEL_ID, 0) > 0;
  bool reduces = n->op == AT_OP_ALL_REDUCE || n->op == AT_OP_ALL_GATHER ||
                 n->op == AT_OP_REDUCE_SCATTER;
  if (reduces && at_node_bool(n, AT_ATTR_USE_GLOBAL_DEVICE_IDS)) return DEVICES;
  if (!channel) return REPLICAS;
  return reduces ? REPLICAS_WITH_PARTITIONS : PARTITIONS;
}

// Replicas and partitions of the program, at least one of each.
typedef struct counts {
  int64_t replicas, partitions;
} counts;

static counts counts_of(const at_node *n) {
  const at_module *m = n->parent->module;
  return (counts){AT_MAX(m->num_replicas, 1), AT_MAX(m->num_partitions, 1)};
}

// How many groups of devices a listed group stands for: one for each partition,
// or for each replica.
static int64_t copies_of(counts c, group_kind k) {
  return k == REPLICAS ? c.partitions : k == PARTITIONS ? c.replicas : 1;
}

// The device of member `id` in copy `copy` of its group: replica * partitions +
// partition.
static uint32_t device_of(counts c, group_kind k, int64_t id, int64_t copy) {
  int64_t device = k == DEVICES      ? id
                   : k == PARTITIONS ? copy * c.partitions + id
                                     : id * c.partitions + copy;
  AT_ASSERT(device >= 0 && device < c.replicas * c.partitions);
  return (uint32_t)device;
}

// INVALID_ARGUMENT that describes the node.
static at_status bad(const at_node *n, const char *why) {
  at_strbuf b = {0};
  at_node_describe(&b, n);
  at_status st = AT_FAIL(AT_INVALID_ARGUMENT, "%s: %s",
                         b.ptr ? b.ptr : at_op_text(n->op), why);
  at_strbuf_free(&b);
  return st;
}

enum { kMaxDevices = 1 << 20 };

// The size of the largest group stands for all; -1 and other padding does not
// count.
static at_status groups_of(const at_node *n, at_arena *a, at_groups *out) {
  const at_attr *g = at_node_attr(n, AT_ATTR_REPLICA_GROUPS);
  group_kind kind = kind_of(n);
  counts c = counts_of(n);
  int64_t ids = kind == DEVICES      ? c.replicas * c.partitions
                : kind == PARTITIONS ? c.partitions
                                     : c.replicas;
  int64_t inner = kind == REPLICAS_WITH_PARTITIONS ? c.partitions : 1,
          copies = copies_of(c, kind);
  uint32_t listed = g ? g->groups.n : 0, count = AT_MAX(listed, 1u);
  int64_t size = listed ? 0 : ids;
  for (uint32_t i = 0; i < listed; i++)
    size = AT_MAX(size, (int64_t)g->groups.list[i].rank);
  if (size * inner > kMaxDevices ||
      (int64_t)count * copies > kMaxDevices / AT_MAX(size * inner, 1))
    return bad(n, "more devices than a cost model is asked about");
  uint32_t *flat;
  size_t at = 0;
  AT_TRY_ALLOC(flat,
               at_new(a, uint32_t, (size_t)(count * copies * size * inner)));
  for (int64_t copy = 0; copy < copies; copy++)
    for (uint32_t i = 0; i < count; i++) {
      int64_t last = 0;
      for (int64_t p = 0; p < inner; p++)
        for (int64_t k = 0; k < size; k++) {
          bool short_group = listed && k >= (int64_t)g->groups.list[i].rank;
          int64_t id = !listed       ? k
                       : short_group ? last
                                     : g->groups.list[i].ptr[k];
          if (id < 0) id = last;  // padding: the member before it again
          if (id >= ids)
            return bad(n, "a group names a device that is not there");
          last = id;
          flat[at++] = device_of(c, kind, id, inner > 1 ? p : copy);
        }
    }
  AT_ASSERT(at == (size_t)(count * copies * size * inner));
  *out =
      (at_groups){(uint32_t)(count * copies), (uint32_t)(size * inner), flat};
  return AT_OK;
}

// Source and target devices of a permute, for each copy. INVALID_ARGUMENT: a
// device that is not there.
static at_status pairs_of(const at_node *n, at_arena *a, at_collective *out) {
  const at_attr *g = at_node_attr(n, AT_ATTR_SOURCE_TARGET_PAIRS);
  group_kind kind = kind_of(n);
  counts c = counts_of(n);
  int64_t ids = kind == PARTITIONS ? c.partitions : c.replicas,
          copies = copies_of(c, kind);
  uint32_t listed = g ? g->groups.n : 0;
  if (listed && copies > kMaxDevices / listed)
    return bad(n, "more devices than a cost model is asked about");
  uint32_t(*pairs)[2];
  size_t at = 0;
  pairs =
      at_arena_alloc(a, at_mul(listed * (size_t)copies + 1, sizeof *pairs), 8);
  if (!pairs) return AT_NO_MEMORY("device pairs");
  for (int64_t copy = 0; copy < copies; copy++)
    for (uint32_t i = 0; i < listed; i++, at++)
      for (int side = 0; side < 2; side++) {
        at_dims p = g->groups.list[i];
        if (p.rank != 2 || p.ptr[side] < 0 || p.ptr[side] >= ids)
          return bad(n, "a pair names a device that is not there");
        pairs[at][side] = device_of(c, kind, p.ptr[side], copy);
      }
  AT_ASSERT(at == listed * (size_t)copies);
  out->pairs = (const uint32_t(*)[2])pairs;
  out->num_pairs = (uint32_t)at;
  return AT_OK;
}

// Bytes of a value; 0 where its size is unknown, cut off so that sums do not
// overflow.
static int64_t bytes_of(const at_type *t) {
  if (!at_type_is_static(t)) return 0;
  size_t b = at_type_bytes(t);
  return b > INT64_MAX / 64 ? INT64_MAX / 64 : (int64_t)b;
}

// See cost.h. bytes: the larger of operands and results.
at_status at_cost_collective_of(const at_node *n, at_arena *a, bool *is,
                                at_collective *out) {
  at_collective c = {0};
  *is = op_of(n->op, &c.op);
  if (!*is) return AT_OK;
  int64_t in = 0, result = 0;
  for (uint32_t i = 0; i < n->num_operands; i++)
    in += bytes_of(at_value_type(n->operands[i]));
  for (uint32_t i = 0; i < n->num_results; i++)
    result += bytes_of(&n->types[i]);
  c.bytes = AT_MAX(in, result);
  c.dtype = n->num_results ? n->types[0].dtype : AT_INVALID;
  AT_TRY(c.op == AT_PERMUTE ? pairs_of(n, a, &c) : groups_of(n, a, &c.groups));
  *out = c;
  return AT_OK;
}

// Collectives become one step each, whose parameters (abi/collective.h) hold
// tables over all devices of the program: the group of each device, its rank in
// there, and where its group begins in the list of members. Groups are read
// here, once, from the op's replica_groups in the four ways that HLO has of
// naming devices (kind_of), and checked: each device is in one group at most
// and every id exists. The run time only looks the tables up.
//
// A reduction's body becomes a generated kernel that reduces one block of
// kBlockBytes at a time.
#include "compile/collective.h"

#include "abi/collective.h"
#include "passes/passes.h"

// Bytes of an operand that a reduction holds at once: a part of the first
// cache.
enum { kBlockBytes = 8192 };

// Tables as the parameters will hold them; the first four are by device,
// MEMBERS is by place, SOURCE_OF (collective_permute) by target.
typedef struct grouping {
  uint32_t devices, num_groups;
  uint32_t *tables[AT_COLL_TABLES];
  uint32_t most, least;  // members of a group
} grouping;
enum { GROUP_OF, RANK_OF, BEGIN_OF, SIZE_OF, MEMBERS, SOURCE_OF };

// INVALID_ARGUMENT with the op's text, the reason and the number at fault.
static at_status bad(const at_node *n, const char *why, int64_t x) {
  at_strbuf b = {0};
  at_node_describe(&b, n);
  at_status st = AT_FAIL(AT_INVALID_ARGUMENT, "%s: %s (%lld)",
                         b.ptr ? b.ptr : at_op_text(n->op), why, (long long)x);
  at_strbuf_free(&b);
  return st;
}

// ---- Groups
// How the ids of a group name devices.
typedef enum group_kind {
  CROSS_REPLICA,                // replicas, once for each partition
  CROSS_PARTITION,              // partitions, once for each replica
  CROSS_REPLICA_AND_PARTITION,  // replicas, each with all its partitions
  FLATTENED                     // devices
} group_kind;

// By XLA's rules (its header collective_ops_utils.h documents them). Which one
// holds depends on the op, on channel_id and on use_global_device_ids.
static group_kind kind_of(const at_node *n) {
  bool channel = at_node_int(n, AT_ATTR_CHANNEL_ID, 0) > 0;
  bool global = at_node_bool(n, AT_ATTR_USE_GLOBAL_DEVICE_IDS);
  switch (n->op) {
    case AT_OP_ALL_REDUCE:
    case AT_OP_ALL_GATHER:
    case AT_OP_REDUCE_SCATTER:
      if (global) return FLATTENED;
      return channel ? CROSS_REPLICA_AND_PARTITION : CROSS_REPLICA;
    default:
      return channel ? CROSS_PARTITION : CROSS_REPLICA;
  }
}

static const at_module *module_of(const at_node *n) {
  return n->parent->module;
}

// Copies of the groups that a kind makes, and the device of id x in copy k.
static int64_t copies_of(const at_module *m, group_kind k) {
  return k == CROSS_REPLICA     ? m->num_partitions
         : k == CROSS_PARTITION ? m->num_replicas
                                : 1;
}
// How many ids exist in that way of naming.
static int64_t ids_of(const at_module *m, group_kind k) {
  return k == CROSS_PARTITION ? m->num_partitions
         : k == FLATTENED     ? m->num_replicas * m->num_partitions
                              : m->num_replicas;
}
// Devices are numbered replica by replica, partitions inside.
static uint32_t device_of(const at_module *m, group_kind k, int64_t id,
                          int64_t copy) {
  int64_t p = m->num_partitions;
  return (uint32_t)(k == CROSS_PARTITION ? copy * p + id
                    : k == FLATTENED     ? id
                                         : id * p + copy);
}

// Appends a device to the group that is being built; the error names the
// device.
static at_status join(const at_node *n, grouping *g, uint32_t device,
                      uint32_t *at) {
  if (g->tables[GROUP_OF][device] != UINT32_MAX)
    return bad(n, "a device is in two groups", device);
  g->tables[GROUP_OF][device] = g->num_groups;
  g->tables[MEMBERS][(*at)++] = device;
  return AT_OK;
}

// Members [begin, end) are all there: their ranks, and the sizes that the
// checks of equal groups read.
static void close_group(grouping *g, uint32_t begin, uint32_t end) {
  for (uint32_t i = begin; i < end; i++) {
    uint32_t d = g->tables[MEMBERS][i];
    g->tables[RANK_OF][d] = i - begin;
    g->tables[BEGIN_OF][d] = begin;
    g->tables[SIZE_OF][d] = end - begin;
  }
  if (end == begin) return;
  g->num_groups++;
  g->most = AT_MAX(g->most, end - begin);
  g->least = AT_MIN(g->least, end - begin);
}

// The devices of one list of ids, in the order in which results are laid out.
static at_status add_group(const at_node *n, grouping *g, group_kind kind,
                           at_dims ids, int64_t copy, uint32_t *at) {
  const at_module *m = module_of(n);
  uint32_t begin = *at;
  bool all = kind == CROSS_REPLICA_AND_PARTITION;
  for (int64_t p = 0; p < (all ? m->num_partitions : 1); p++)
    for (uint32_t i = 0; i < ids.rank; i++) {
      if (ids.ptr[i] < 0) continue;  // padding of ragged groups
      if (ids.ptr[i] >= ids_of(m, kind))
        return bad(n, "a group names what is not there", ids.ptr[i]);
      AT_TRY(join(n, g, device_of(m, kind, ids.ptr[i], all ? p : copy), at));
    }
  close_group(g, begin, *at);
  return AT_OK;
}

// All groups of the op. Without replica_groups all devices are one group, once
// for each copy.
static at_status group_lists(const at_node *n, grouping *g, at_arena *a) {
  const at_module *m = module_of(n);
  group_kind kind = kind_of(n);
  const at_attr *t = at_node_attr(n, AT_ATTR_REPLICA_GROUPS);
  uint32_t num = t ? t->groups.n : 0, at = 0;
  int64_t *ids, count = ids_of(m, kind);
  AT_TRY_ALLOC(ids, at_new(a, int64_t, (size_t)count));
  for (int64_t i = 0; i < count; i++) ids[i] = i;
  for (int64_t copy = 0; copy < copies_of(m, kind); copy++) {
    if (num == 0)  // everybody
      AT_TRY(add_group(n, g, kind, (at_dims){ids, (uint32_t)count}, copy, &at));
    for (uint32_t i = 0; i < num; i++)
      AT_TRY(add_group(n, g, kind, t->groups.list[i], copy, &at));
  }
  return AT_OK;
}

// Union-find with path halving.
static uint32_t find_root(uint32_t *parent, uint32_t d) {
  while (parent[d] != d) d = parent[d] = parent[parent[d]];
  return d;
}

// Devices that pairs connect wait for one another: they are a group.
static at_status pair_groups(const at_node *n, grouping *g, at_arena *a) {
  const at_module *m = module_of(n);
  group_kind kind = kind_of(n);
  const at_attr *t = at_node_attr(n, AT_ATTR_SOURCE_TARGET_PAIRS);
  uint32_t *parent, *from, at = 0;
  AT_TRY_ALLOC(parent, at_new(a, uint32_t, g->devices));
  AT_TRY_ALLOC(from, at_new(a, uint32_t, g->devices));
  for (uint32_t d = 0; d < g->devices; d++) parent[d] = d, from[d] = UINT32_MAX;
  for (uint32_t i = 0; t && i < t->groups.n; i++) {
    at_dims p = t->groups.list[i];
    if (p.rank != 2) return bad(n, "a pair has not two entries", p.rank);
    for (int k = 0; k < 2; k++)
      if (p.ptr[k] < 0 || p.ptr[k] >= ids_of(m, kind))
        return bad(n, "a pair names what is not there", p.ptr[k]);
    for (int64_t copy = 0; copy < copies_of(m, kind); copy++) {
      uint32_t source = device_of(m, kind, p.ptr[0], copy);
      uint32_t target = device_of(m, kind, p.ptr[1], copy);
      if (from[target] != UINT32_MAX)
        return bad(n, "a target has two sources", p.ptr[1]);
      from[target] = source;
      parent[find_root(parent, source)] = find_root(parent, target);
    }
  }
  for (uint32_t root = 0; root < g->devices; root++) {
    uint32_t begin = at;
    for (uint32_t d = 0; d < g->devices; d++)
      if (find_root(parent, d) == root) AT_TRY(join(n, g, d, &at));
    close_group(g, begin, at);
  }
  for (uint32_t d = 0; d < g->devices; d++)
    g->tables[SOURCE_OF][d] =
        from[d] == UINT32_MAX ? UINT32_MAX : g->tables[RANK_OF][from[d]];
  return AT_OK;
}

// Do the tables say the same? A device's place in its group leads back to it,
// and who shares a group agrees on where it begins and how long it is.
static bool tables_agree(const grouping *g) {
  uint32_t members = 0;
  for (uint32_t d = 0; d < g->devices; d++) {
    uint32_t group = g->tables[GROUP_OF][d], rank = g->tables[RANK_OF][d];
    uint32_t begin = g->tables[BEGIN_OF][d], size = g->tables[SIZE_OF][d];
    if (group == UINT32_MAX) continue;
    members++;
    if (group >= g->num_groups || rank >= size || begin + size > g->devices ||
        g->tables[MEMBERS][begin + rank] != d)
      return false;
    const uint32_t first = g->tables[MEMBERS][begin];
    if (g->tables[GROUP_OF][first] != group ||
        g->tables[SIZE_OF][first] != size || size < g->least || size > g->most)
      return false;
  }
  for (uint32_t i = 0; i < g->devices; i++)
    members -= g->tables[MEMBERS][i] != UINT32_MAX;
  return members == 0;
}

// Reads the op's groups or pairs into *g, whose tables are UINT32_MAX where
// nothing is said. All devices must be in a group, but for broadcasts.
static at_status find_groups(const at_node *n, at_arena *a, grouping *g) {
  const at_module *m = module_of(n);
  *g = (grouping){.devices = (uint32_t)(m->num_replicas * m->num_partitions),
                  .least = UINT32_MAX};
  for (int i = 0; i < AT_COLL_TABLES; i++) {
    AT_TRY_ALLOC(g->tables[i], at_new(a, uint32_t, g->devices));
    for (uint32_t d = 0; d < g->devices; d++) g->tables[i][d] = UINT32_MAX;
  }
  switch (n->op) {
    case AT_OP_PARTITION_ID:
    case AT_OP_REPLICA_ID:
      return AT_OK;
    case AT_OP_COLLECTIVE_PERMUTE:
      return pair_groups(n, g, a);
    default:
      AT_TRY(group_lists(n, g, a));
  }
  for (uint32_t d = 0; d < g->devices && n->op != AT_OP_COLLECTIVE_BROADCAST;
       d++)
    if (g->tables[GROUP_OF][d] == UINT32_MAX)
      return bad(n, "a device is in no group", d);
  return AT_OK;
}

// The same, checked.
static at_status make_groups(const at_node *n, at_arena *a, grouping *g) {
  AT_TRY(find_groups(n, a, g));
  AT_ASSERT(tables_agree(g));
  return AT_OK;
}

// ---- Which bytes go where
static uint64_t product(const at_type *t, uint32_t begin, uint32_t end) {
  uint64_t n = 1;
  for (uint32_t i = begin; i < end; i++) n *= (uint64_t)t->dims[i];
  return n;
}

// dim exists and splits into `parts` (0: whole).
static at_status check_dim(const at_node *n, const at_type *t, int64_t dim,
                           uint64_t parts) {
  if (dim < 0 || dim >= t->rank) return bad(n, "no such dimension", dim);
  if (parts && (uint64_t)t->dims[dim] % parts)
    return bad(n, "the dimension does not split evenly", t->dims[dim]);
  return AT_OK;
}

// Every operand whole to everybody, side by side along `dim`.
static at_status gather(const at_node *n, const at_type *t, uint64_t members,
                        at_x_exchange *x) {
  int64_t dim = at_node_int(n, AT_ATTR_ALL_GATHER_DIM, 0);
  AT_TRY(check_dim(n, t, dim, 0));
  x->rows = product(t, 0, (uint32_t)dim);
  x->run = product(t, (uint32_t)dim, t->rank) * x->element_bytes;
  x->give_row = x->take_piece = x->run;
  x->take_row = x->run * members;
  return AT_OK;
}

// Everybody's operand is cut along `dim`; each device reduces its piece of all
// of them.
static at_status scatter(const at_node *n, const at_type *t, uint64_t members,
                         at_x_exchange *x) {
  int64_t dim = at_node_int(n, AT_ATTR_SCATTER_DIMENSION, 0);
  AT_TRY(check_dim(n, t, dim, members));
  x->rows = product(t, 0, (uint32_t)dim);
  x->run = product(t, (uint32_t)dim, t->rank) / members * x->element_bytes;
  x->give_piece = x->take_row = x->run;
  x->give_row = x->run * members;
  return AT_OK;
}

// Parts of `split` become neighbours along `concat`.
static at_status transpose(const at_node *n, const at_type *t, uint64_t members,
                           at_x_exchange *x) {
  int64_t s = at_node_int(n, AT_ATTR_SPLIT_DIMENSION, 0);
  int64_t c = at_node_int(n, AT_ATTR_CONCAT_DIMENSION, 0);
  AT_TRY(check_dim(n, t, s, members));
  AT_TRY(check_dim(n, t, c, 0));
  uint32_t low = (uint32_t)AT_MIN(s, c), high = (uint32_t)AT_MAX(s, c);
  uint64_t e = x->element_bytes, part = (uint64_t)t->dims[s] / members;
  uint64_t between = low == high ? 1 : product(t, low + 1, high);
  x->rows = product(t, 0, low);
  x->give_row = x->take_row = product(t, low, t->rank) * e;
  if (s == c) {
    x->run = x->give_piece = x->take_piece = x->give_row / members;
  } else if (s < c) {
    x->run = product(t, high, t->rank) * e;
    x->lines = part * between;
    x->give_piece = x->lines * x->run;
    x->give_line = x->take_piece = x->run;
    x->take_line = x->run * members;
  } else {
    x->run = part * product(t, high + 1, t->rank) * e;
    x->lines = (uint64_t)t->dims[c] * between;
    x->give_piece = x->take_line = x->run;
    x->give_line = x->run * members;
    x->take_piece = x->lines * x->run;
  }
  return AT_OK;
}

// Rows of variable number: offsets and sizes are operands 2 to 5, all of one
// index type.
static at_status ragged(const at_node *n, at_x_exchange *x) {
  const at_type *in = at_value_type(n->operands[0]);
  const at_type *index = at_value_type(n->operands[2]);
  if (in->rank < 1 || in->rank != n->types[0].rank ||
      in->dtype != n->types[0].dtype)
    return bad(n, "input and output differ in rank or element type", in->rank);
  if (product(in, 1, in->rank) != product(&n->types[0], 1, in->rank))
    return bad(n, "rows of input and output differ", in->dims[0]);
  for (uint32_t i = 2; i < 6; i++)
    if (!at_type_eq(at_value_type(n->operands[i]), index))
      return bad(n, "offsets and sizes differ in type", i);
  if (index->dtype != AT_S32 && index->dtype != AT_S64)
    return bad(n, "offsets and sizes are neither s32 nor s64", index->dtype);
  x->index_bytes = (uint32_t)at_dtype_bytes(index->dtype);
  x->lines = (uint64_t)at_type_elements(index);
  x->run = product(in, 1, in->rank) * x->element_bytes;
  return AT_OK;
}

// ---- Reductions
// One kernel of (left, right, result).
static bool takes_three(const at_cg_plan *p) {
  if (p->num_launches != 1 || p->scratch_bytes || p->launches[0].num_args != 3)
    return false;
  const at_cg_arg *g = p->launches[0].args;
  return g[0].kind == AT_CG_OPERAND && g[0].index == 0 &&
         g[1].kind == AT_CG_OPERAND && g[1].index == 1 &&
         g[2].kind == AT_CG_RESULT;
}

// Adds a kernel that reduces `elements` of type t by n's body. UNIMPLEMENTED:
// the body is not elementwise.
static at_status kernel(const at_node *n, at_cg *cg, at_arena *a, at_dtype t,
                        uint64_t elements, uint32_t *out_kernel,
                        uint32_t *out_tasks) {
  at_node *body;
  at_cg_plan plan;
  int32_t alias[2] = {-1, -1};
  AT_TRY(at_reduction_kernel(n->regions[0], t, (int64_t)elements, a, &body));
  if (body && at_cg_supports(body))
    AT_TRY(at_cg_node(cg, body, alias, a, &plan));
  if (!body || !at_cg_supports(body) || !takes_three(&plan) ||
      plan.launches[0].tasks > UINT32_MAX) {
    at_strbuf b = {0};
    at_node_describe(&b, n);
    at_status st =
        AT_FAIL(AT_UNIMPLEMENTED,
                "%s: a reduction over devices whose body is not elementwise",
                b.ptr ? b.ptr : at_op_text(n->op));
    at_strbuf_free(&b);
    return st;
  }
  *out_kernel = plan.launches[0].kernel;
  *out_tasks = (uint32_t)plan.launches[0].tasks;
  return AT_OK;
}

// Kernels for whole blocks and for the rest.
static at_status reduction(const at_node *n, const at_type *t, at_cg *cg,
                           at_arena *a, at_x_exchange *x) {
  uint64_t elements = (uint64_t)at_type_elements(t);
  uint64_t block = kBlockBytes / x->element_bytes;
  x->block_elements = (uint32_t)block;
  x->tail_elements = (uint32_t)(elements % block);
  if (elements >= block)
    AT_TRY(kernel(n, cg, a, t->dtype, block, &x->block, &x->block_tasks));
  if (elements % block)
    AT_TRY(
        kernel(n, cg, a, t->dtype, elements % block, &x->tail, &x->tail_tasks));
  return AT_OK;
}

// Pieces, rows and lines fill the operand when it is read and the result when
// it is written: the last run of the last piece ends with it, and there are as
// many bytes in all.
static bool fits_exactly(at_op op, const at_x_exchange *x, uint64_t members) {
  bool gives = op == AT_OP_REDUCE_SCATTER || op == AT_OP_ALL_TO_ALL;
  bool takes = op == AT_OP_ALL_GATHER || op == AT_OP_ALL_TO_ALL;
  if ((!gives && !takes) || !x->operand_bytes) return true;
  uint64_t piece = x->rows * x->lines * x->run;
  uint64_t read = (gives ? members - 1 : 0) * x->give_piece +
                  (x->rows - 1) * x->give_row + (x->lines - 1) * x->give_line +
                  x->run;
  uint64_t written = (takes ? members - 1 : 0) * x->take_piece +
                     (x->rows - 1) * x->take_row +
                     (x->lines - 1) * x->take_line + x->run;
  return read == x->operand_bytes && written == x->result_bytes &&
         piece * (gives ? members : 1) == x->operand_bytes &&
         piece * (takes ? members : 1) == x->result_bytes;
}

// What value i moves, in strides of bytes (abi/collective.h), by kind; then its
// reduction.
static at_status exchange(const at_node *n, uint32_t i, const grouping *g,
                          at_cg *cg, at_arena *a, at_x_exchange *x) {
  const at_type *t = at_value_type(n->operands[i]);
  *x = (at_x_exchange){.operand_bytes = at_type_bytes(t),
                       .result_bytes = at_type_bytes(&n->types[i]),
                       .rows = 1,
                       .lines = 1,
                       .element_bytes = (uint32_t)at_dtype_bytes(t->dtype),
                       .block = UINT32_MAX,
                       .tail = UINT32_MAX};
  x->run = x->operand_bytes;
  uint64_t want = x->operand_bytes, members = g->most;
  bool reduces = n->op == AT_OP_ALL_REDUCE || n->op == AT_OP_REDUCE_SCATTER;
  if (g->least != g->most && n->op != AT_OP_ALL_REDUCE &&
      n->op != AT_OP_COLLECTIVE_PERMUTE && n->op != AT_OP_COLLECTIVE_BROADCAST)
    return bad(n, "groups differ in size", g->least);
  switch (n->op) {
    case AT_OP_ALL_GATHER:
      AT_TRY(gather(n, t, members, x));
      want *= members;
      break;
    case AT_OP_REDUCE_SCATTER:
      AT_TRY(scatter(n, t, members, x));
      want /= members;
      break;
    case AT_OP_ALL_TO_ALL:
      AT_TRY(transpose(n, t, members, x));
      break;
    case AT_OP_RAGGED_ALL_TO_ALL:
      AT_TRY(ragged(n, x));
      want = x->result_bytes;
      break;
    default:
      break;
  }
  // Types come from the program: the verifier does not know the groups.
  if (x->result_bytes != want || n->types[i].dtype != t->dtype)
    return bad(n, "the result has another size than the group gives",
               (int64_t)x->result_bytes);
  AT_ASSERT(fits_exactly(n->op, x, members));
  return reduces && x->operand_bytes ? reduction(n, t, cg, a, x) : AT_OK;
}

// ---- The step
static const struct {
  at_op op;
  at_collective_kind kind;
} kinds[] = {
    {AT_OP_ALL_REDUCE, AT_COLL_ALL_REDUCE},
    {AT_OP_REDUCE_SCATTER, AT_COLL_REDUCE_SCATTER},
    {AT_OP_ALL_GATHER, AT_COLL_ALL_GATHER},
    {AT_OP_ALL_TO_ALL, AT_COLL_ALL_TO_ALL},
    {AT_OP_COLLECTIVE_BROADCAST, AT_COLL_BROADCAST},
    {AT_OP_COLLECTIVE_PERMUTE, AT_COLL_PERMUTE},
    {AT_OP_RAGGED_ALL_TO_ALL, AT_COLL_RAGGED_ALL_TO_ALL},
    {AT_OP_PARTITION_ID, AT_COLL_PARTITION_ID},
    {AT_OP_REPLICA_ID, AT_COLL_REPLICA_ID},
};

// By the table of kinds.
bool at_is_collective_step(const at_node *n) {
  for (size_t i = 0; i < AT_LEN(kinds); i++)
    if (kinds[i].op == n->op) return true;
  return false;
}

// Layout: the head, one at_x_exchange per value, then the tables. The estimate
// takes 8 GB/s and 300 ns.
at_status at_collective_params(const at_node *n, at_cg *cg, at_arena *a,
                               at_bytes *out, double *out_ns) {
  grouping g;
  AT_TRY(make_groups(n, a, &g));
  bool id = n->op == AT_OP_PARTITION_ID || n->op == AT_OP_REPLICA_ID;
  at_x_collective c = {.num_values = id ? 0 : n->num_results,
                       .num_devices = g.devices,
                       .num_groups = g.num_groups};
  for (size_t i = 0; i < AT_LEN(kinds); i++)
    if (kinds[i].op == n->op) c.kind = kinds[i].kind;
  uint8_t *p;
  size_t bytes = at_x_collective_bytes(&c);
  AT_TRY_ALLOC(p, at_arena_alloc(a, bytes, 16));
  *out = (at_bytes){p, bytes};
  memcpy(p, &c, sizeof c);
  p += sizeof c;
  *out_ns = 300;
  for (uint32_t i = 0; i < c.num_values; i++, p += sizeof(at_x_exchange)) {
    at_x_exchange x;
    AT_TRY(exchange(n, i, &g, cg, a, &x));
    memcpy(p, &x, sizeof x);
    *out_ns += (double)(x.operand_bytes + x.result_bytes) / 8;
  }
  for (int i = 0; i < AT_COLL_TABLES; i++, p += g.devices * sizeof(uint32_t))
    memcpy(p, g.tables[i], g.devices * sizeof(uint32_t));
  return AT_OK;
}

// Makes FUSION nodes: a walk from users to producers puts every node that can
// be generated per element into the clusters of its users, or into one of its
// own.
#include <stdlib.h>

#include "passes/fuse_internal.h"

// ---- What a node is
bool fuse_is_inline_const(const at_node *n) {
  const at_literal *l = at_node_literal(n);
  return l && (l->splat || at_type_elements(&l->type) == 1);
}

// Either the new last dimension had at most MOST_APART elements behind it
// (channels), or arrays of at most MOST_IN_SMALL elements are turned, each by
// itself.
bool at_transpose_is_narrow(const at_node *n) {
  enum { MOST_APART = 4, MOST_IN_SMALL = 128 };
  at_dims perm = at_node_ints(n, AT_ATTR_PERMUTATION);
  const at_type *t = &n->types[0], *from = at_value_type(n->operands[0]);
  if (perm.rank < 2) return false;
  // Channels that lie side by side.
  int64_t apart = 1, last = perm.ptr[perm.rank - 1];
  for (uint32_t d = (uint32_t)last + 1; d < from->rank; d++)
    apart *= from->dims[d];
  if (apart > 1 && apart <= MOST_APART && t->dims[perm.rank - 1] >= 16)
    return true;
  // Many small arrays.
  uint32_t same = 0;
  int64_t small = 1;
  while (same < perm.rank && perm.ptr[same] == same) same++;
  for (uint32_t d = same; d < perm.rank; d++) small *= t->dims[d];
  return same < perm.rank && small <= MOST_IN_SMALL;
}

// Short rows of narrow elements keep their order: pixels, which code generation
// loads at once.
static bool keeps_pixels(const at_node *n) {
  at_dims perm = at_node_ints(n, AT_ATTR_PERMUTATION);
  const at_type *t = &n->types[0];
  return perm.rank && perm.ptr[perm.rank - 1] == perm.rank - 1 &&
         at_dtype_bytes(t->dtype) <= 2 && t->dims[perm.rank - 1] >= 2 &&
         t->dims[perm.rank - 1] < 8;
}

// May fuse: small, narrow, or it keeps pixels or whole rows of at least 8.
static bool cheap_transpose(const at_node *n) {
  at_dims perm = at_node_ints(n, AT_ATTR_PERMUTATION);
  const at_type *t = &n->types[0];
  if (at_type_elements(t) <= 4096 || at_transpose_is_narrow(n) ||
      keeps_pixels(n))
    return true;
  return perm.rank && perm.ptr[perm.rank - 1] == perm.rank - 1 &&
         t->dims[perm.rank - 1] >= 8;
}

// Elementwise ops on the region's own parameters and constants only.
static bool plain_region(const at_comp *c) {
  AT_FOR_NODES(n, c) {
    if (n->num_regions) return false;
    if (n->op != AT_OP_PARAMETER && n->op != AT_OP_CONSTANT &&
        !at_op_is(n->op, AT_ELEMENTWISE))
      return false;
    for (uint32_t i = 0; i < n->num_operands; i++)
      if (n->operands[i].node->parent != c) return false;
  }
  for (uint32_t i = 0; i < c->num_results; i++)
    if (c->results[i].node->parent != c) return false;
  return true;
}

// Transcendental functions and true divisions are expensive; a division by a
// constant becomes a product.
static fuse_class elementwise_class(const at_node *n) {
  if (at_op_of(n->op)->cost == AT_COST_TRANSCENDENTAL) return FUSE_EXPENSIVE;
  bool by_constant = n->op == AT_OP_DIVIDE && at_splat_of(n->operands[1]);
  if (n->op == AT_OP_DIVIDE || n->op == AT_OP_REMAINDER)
    return by_constant ? FUSE_CHEAP : FUSE_EXPENSIVE;
  return FUSE_CHEAP;
}

// What fusion may do with n. Token and dynamic results stand alone.
fuse_class fuse_classify(const at_module *m, const at_node *n) {
  for (uint32_t i = 0; i < n->num_results; i++)
    if (n->types[i].dtype == AT_TOKEN || !at_type_is_static(&n->types[i]))
      return FUSE_NO;
  if (at_op_is(n->op, AT_ELEMENTWISE)) return elementwise_class(n);
  switch (n->op) {
    case AT_OP_CONSTANT:
      return fuse_is_inline_const(n) ? FUSE_CONST : FUSE_NO;
    case AT_OP_IOTA:
    case AT_OP_BROADCAST_IN_DIM:
    case AT_OP_RESHAPE:
    case AT_OP_SLICE:
    case AT_OP_PAD:
    case AT_OP_CONCATENATE:
    case AT_OP_REVERSE:
    case AT_OP_DYNAMIC_SLICE:
      return FUSE_FREE;
    case AT_OP_GATHER:  // the SparseCores' stay operations of their own
      return at_node_offloaded(n) ? FUSE_NO : FUSE_EXPENSIVE;
    case AT_OP_BITCAST_CONVERT:
      return at_dims_eq(at_type_dims(&n->types[0]),
                        at_type_dims(at_value_type(n->operands[0])))
                 ? FUSE_CHEAP
                 : FUSE_NO;
    case AT_OP_TRANSPOSE:
      return cheap_transpose(n) ? FUSE_FREE : FUSE_NO;
    case AT_OP_REDUCE:
      return at_type_elements(at_value_type(n->operands[0])) > 0 &&
                     plain_region(n->regions[0])
                 ? FUSE_REDUCE
                 : FUSE_NO;
    default:
      return FUSE_NO;
  }
}

// Follows merges to the cluster that c is part of now, halving the path on the
// way.
fuse_cluster *fuse_find(fuse_cluster *c) {
  for (; c->into; c = c->into)
    if (c->into->into) c->into = c->into->into;
  return c;
}

// NULL: n is not computed in c. The pointer is good until a member is added.
fuse_member *fuse_member_of(fuse_cluster *c, const fuse_node *n) {
  void **at = at_map_find_ptr(&c->index, n);
  return at ? &c->members.ptr[(uintptr_t)*at - 1] : NULL;
}

// The index holds places + 1, as NULL means absent.
at_status fuse_add_member(fuser *f, fuse_cluster *c, fuse_member m) {
  void **at = at_map_put_ptr(&c->index, m.node);
  if (!at || !at_vec_push(f->arena, &c->members, m))
    return AT_NO_MEMORY("fuse");
  *at = (void *)(uintptr_t)c->members.len;
  return AT_OK;
}

// ---- Uses
static at_status add_use(fuser *f, at_value v, fuse_node *user) {
  fuse_node *d = fuse_of(f, v.node);
  if (!d || d == user) return AT_OK;
  // One user's uses come one after another.
  if (d->users.len && d->users.ptr[d->users.len - 1] == user) return AT_OK;
  if (!at_vec_push(f->arena, &d->users, user) ||
      !at_vec_push(f->arena, &user->deps, d))
    return AT_NO_MEMORY("fuse");
  return AT_OK;
}

// What regions of `user` capture is used by it.
static at_status add_region_uses(fuser *f, at_comp *c, fuse_node *user) {
  AT_FOR_NODES(n, c) {
    for (uint32_t i = 0; i < n->num_operands; i++)
      AT_TRY(add_use(f, n->operands[i], user));
    for (uint32_t i = 0; i < n->num_regions; i++)
      AT_TRY(add_region_uses(f, n->regions[i], user));
  }
  for (uint32_t i = 0; i < c->num_results; i++)
    AT_TRY(add_use(f, c->results[i], user));
  return AT_OK;
}

// Is n made of splats, counts and vectors along one dimension alone? In another
// order of its dimensions it costs the same then.
static bool is_thin(const fuser *f, const fuse_node *d) {
  const at_node *n = d->n;
  if (fuse_is_inline_const(n) || n->op == AT_OP_IOTA) return true;
  if (d->cls == FUSE_NO || n->op == AT_OP_GATHER || n->op == AT_OP_REDUCE ||
      n->op == AT_OP_DYNAMIC_SLICE || !n->num_operands)
    return false;
  if (n->op == AT_OP_BROADCAST_IN_DIM &&
      at_value_type(n->operands[0])->rank <= 1)
    return true;
  for (uint32_t i = 0; i < n->num_operands; i++) {
    const fuse_node *in = fuse_of(f, n->operands[i].node);
    bool scalar = at_type_elements(at_value_type(n->operands[i])) == 1;
    if (!scalar && (!in || !in->thin)) return false;
  }
  return true;
}

// In order, so that operands are known; a transpose of a thin value becomes
// free to fuse.
static void find_thin(fuser *f) {
  for (uint32_t p = 0; p < f->num_nodes; p++) {
    fuse_node *d = &f->nodes[p];
    const at_node *n = d->n;
    const fuse_node *in =
        n->op == AT_OP_TRANSPOSE ? fuse_of(f, n->operands[0].node) : NULL;
    if (in && in->thin && !fuse_is_inline_const(in->n)) d->cls = FUSE_FREE;
    d->thin = is_thin(f, d);
  }
}

// Transposes that are read again and again stand alone.
static void keep_turned(fuser *f) {
  for (uint32_t p = 0; p < f->num_nodes; p++) {
    fuse_node *d = &f->nodes[p];
    if (d->n->op != AT_OP_TRANSPOSE || d->cls == FUSE_NO || !d->users.len)
      continue;
    bool pays = true;
    for (size_t i = 0; i < d->users.len; i++)
      pays &= at_transpose_pays(d->n, d->users.ptr[i]->n);
    if (pays) d->cls = FUSE_NO;
  }
}

// Makes a fuse_node of each node of the computation: class, users,
// dependencies, chain of effects. n->mark is its place in f->nodes.
static at_status index_nodes(fuser *f) {
  uint32_t count = 0;
  AT_FOR_NODES(n, f->c) {
    n->aux = NULL;
    n->mark = count++;
  }
  AT_TRY_ALLOC(f->nodes, at_new(f->arena, fuse_node, (size_t)count + 1));
  f->num_nodes = count;
  fuse_node *effect = NULL;
  AT_FOR_NODES(n, f->c) {
    fuse_node *d = &f->nodes[n->mark];
    d->n = n;
    d->pos = n->mark;
    d->cls = fuse_classify(f->m, n);
    if (!at_has_effect(f->m, n)) continue;
    if (effect) effect->effect = d;
    d->effect_before = effect;
    effect = d;
  }
  for (uint32_t p = 0; p < count; p++) {
    fuse_node *d = &f->nodes[p];
    for (uint32_t i = 0; i < d->n->num_operands; i++)
      AT_TRY(add_use(f, d->n->operands[i], d));
    for (uint32_t i = 0; i < d->n->num_regions; i++)
      AT_TRY(add_region_uses(f, d->n->regions[i], d));
  }
  for (uint32_t i = 0; i < f->c->num_results; i++) {
    fuse_node *d = fuse_of(f, f->c->results[i].node);
    if (d) d->returned = true;
  }
  find_thin(f);
  keep_turned(f);
  return AT_OK;
}

// ---- Reachability in the graph with clusters contracted
// Queues what u feeds: its own users, or those of every output of its clusters;
// nothing where it is too low to lead to the target. True when u is in the
// target.
static bool reach(fuser *f, fuse_node *u, const fuse_cluster *target) {
  if (u->stamp == f->stamp) return false;
  u->stamp = f->stamp;
  for (size_t i = 0; i < u->in.len; i++) {
    fuse_cluster *cl = fuse_find(u->in.ptr[i]);
    if (cl == target) return true;
    if (cl->stamp == f->stamp || cl->height <= target->height) continue;
    cl->stamp = f->stamp;
    for (size_t o = 0; o < cl->outputs.len; o++)
      if (!at_vec_push(f->arena, &f->queue, cl->outputs.ptr[o])) return true;
  }
  if ((u->plain || u->in.len == 0) && u->height > target->height)
    if (!at_vec_push(f->arena, &f->queue, u)) return true;
  return false;
}

// True, too, after `most` steps.
static bool search(fuser *f, const fuse_cluster *target, uint32_t most) {
  while (f->queue.len) {
    if (most-- == 0) return true;
    fuse_node *d = f->queue.ptr[--f->queue.len];
    for (size_t i = 0; i < d->users.len; i++)
      if (reach(f, d->users.ptr[i], target)) return true;
    if (d->effect && reach(f, d->effect, target)) return true;
  }
  return false;
}

// Depth-first from a's outputs. Heights cut the search: only what is higher
// than b can lead to it. Out of memory counts as a path.
bool fuse_cluster_reaches(fuser *f, fuse_cluster *a, const fuse_cluster *b) {
  if (a->height <= b->height) return false;
  f->stamp++;
  f->queue.len = 0;
  a->stamp = f->stamp;
  for (size_t i = 0; i < a->outputs.len; i++)
    if (!at_vec_push(f->arena, &f->queue, a->outputs.ptr[i])) return true;
  return search(f, b, UINT32_MAX);
}

// Would d as an output of cl close a cycle: some user outside that leads to cl?
bool fuse_output_cycles(fuser *f, fuse_node *d, const fuse_cluster *cl) {
  f->stamp++;
  f->queue.len = 0;
  for (size_t i = 0; i < d->users.len; i++) {
    fuse_node *u = d->users.ptr[i];
    if ((u->plain || u->in.len == 0) && u->height > cl->height)
      if (!at_vec_push(f->arena, &f->queue, u)) return true;
    for (size_t j = 0; j < u->in.len; j++) {
      fuse_cluster *other = fuse_find(u->in.ptr[j]);
      if (other == cl || other->stamp == f->stamp ||
          other->height <= cl->height)
        continue;
      other->stamp = f->stamp;
      for (size_t o = 0; o < other->outputs.len; o++)
        if (!at_vec_push(f->arena, &f->queue, other->outputs.ptr[o]))
          return true;
    }
  }
  return search(f, cl, UINT32_MAX);
}

// Queues what d's users are parts of, but for the two clusters and what stands
// by itself beside a copy in a.
static bool leave(fuser *f, const fuse_node *d, fuse_cluster *a,
                  const fuse_cluster *b) {
  for (size_t i = 0; i < d->users.len; i++) {
    fuse_node *u = d->users.ptr[i];
    bool alone = u->plain || u->in.len == 0;
    if (alone && u->height > b->height && !fuse_member_of(a, u))
      if (!at_vec_push(f->arena, &f->queue, u)) return false;
    for (size_t k = 0; k < u->in.len; k++) {
      fuse_cluster *cl = fuse_find(u->in.ptr[k]);
      if (cl == b || cl->stamp == f->stamp || cl->height <= b->height) continue;
      cl->stamp = f->stamp;
      for (size_t o = 0; o < cl->outputs.len; o++)
        if (!at_vec_push(f->arena, &f->queue, cl->outputs.ptr[o])) return false;
    }
  }
  return true;
}

// Direct edges from a to b do not count, as both become one.
bool fuse_between(fuser *f, fuse_cluster *a, const fuse_cluster *b,
                  uint32_t most) {
  if (a->height <= b->height) return false;
  f->stamp++;
  f->queue.len = 0;
  a->stamp = f->stamp;
  for (size_t i = 0; i < a->outputs.len; i++)
    if (!leave(f, a->outputs.ptr[i], a, b)) return true;
  for (size_t i = 0; i < a->members.len; i++) {
    const fuse_node *m = a->members.ptr[i].node;
    if (m->plain && !leave(f, m, a, b)) return true;
  }
  return search(f, b, most);
}

// ---- Heights
uint32_t fuse_height_over_users(const fuse_node *d, const fuse_cluster *cl) {
  uint32_t height = 0;
  for (size_t i = 0; i < d->users.len + (d->effect != NULL); i++) {
    const fuse_node *u = i < d->users.len ? d->users.ptr[i] : d->effect;
    if (u->plain || u->in.len == 0) height = AT_MAX(height, u->height + 1);
    for (size_t j = 0; j < u->in.len; j++) {
      const fuse_cluster *other = fuse_find(u->in.ptr[j]);
      if (other != cl) height = AT_MAX(height, other->height + 1);
    }
  }
  return height;
}

// Where x's value is stored must be above `height`; `self`: but in this
// cluster, which takes its own copy of a member.
static at_status raise_over(fuser *f, fuse_node *x, uint32_t height,
                            fuse_cluster *self) {
  if (!x->placed || (self && fuse_member_of(self, x))) return AT_OK;
  fuse_cluster *cl = x->output ? fuse_find(x->in.ptr[0]) : NULL;
  if (cl && cl != self && cl->height <= height) {
    cl->height = height + 1;
    if (!at_vec_push(f->arena, &f->raised.clusters, cl))
      return AT_NO_MEMORY("fuse");
  }
  if ((x->plain || x->in.len == 0) && x->height <= height) {
    x->height = height + 1;
    if (!at_vec_push(f->arena, &f->raised.nodes, x))
      return AT_NO_MEMORY("fuse");
  }
  return AT_OK;
}

// Everything that d reads, and the effect before it, must end up higher.
static at_status raise_deps(fuser *f, const fuse_node *d, uint32_t height,
                            fuse_cluster *self) {
  for (size_t i = 0; i < d->deps.len; i++)
    AT_TRY(raise_over(f, d->deps.ptr[i], height, self));
  if (d->effect_before) AT_TRY(raise_over(f, d->effect_before, height, self));
  return AT_OK;
}

// Worklist instead of recursion. Terminates as the graph has no cycle; a height
// above the longest possible path is reported as INTERNAL.
at_status fuse_raise(fuser *f, fuse_cluster *cl, uint32_t height) {
  cl->height = AT_MAX(cl->height, height);
  if (!at_vec_push(f->arena, &f->raised.clusters, cl))
    return AT_NO_MEMORY("fuse");
  // No path is longer than all nodes, and no cluster makes more than one
  // longer.
  uint64_t most = (uint64_t)(f->num_nodes + 1) * (f->clusters.len + 1);
  while (f->raised.clusters.len || f->raised.nodes.len) {
    if (f->raised.nodes.len) {
      const fuse_node *d = f->raised.nodes.ptr[--f->raised.nodes.len];
      AT_TRY(raise_deps(f, d, d->height, NULL));
      continue;
    }
    fuse_cluster *c = f->raised.clusters.ptr[--f->raised.clusters.len];
    AT_ENSURE(c->height <= most);  // else the graph has a cycle
    for (size_t i = 0; i < c->members.len; i++)
      AT_TRY(raise_deps(f, c->members.ptr[i].node, c->height, c));
  }
  return AT_OK;
}

// ---- The walk
static fuse_cluster *new_cluster(fuser *f, fuse_node *d) {
  fuse_cluster *cl = at_new(f->arena, fuse_cluster, 1);
  if (!cl) return NULL;
  cl->reduce = d->cls == FUSE_REDUCE;
  cl->space = cl->reduce ? at_value_type(d->n->operands[0]) : &d->n->types[0];
  if (cl->reduce) cl->reduced = at_node_ints(d->n, AT_ATTR_DIMENSIONS);
  cl->height = fuse_height_over_users(d, NULL);
  fuse_member root = {.node = d,
                      .evals = at_type_elements(cl->space),
                      .sigs = {FUSE_ROOT_SIG},
                      .num_sigs = 1};
  cl->work = 1;
  d->output = true;
  cl->index = at_map_in(f->arena);
  at_status st = fuse_add_member(f, cl, root);
  if (!at_ok(st)) return at_status_free(st), NULL;
  if (!at_vec_push(f->arena, &cl->outputs, d) ||
      !at_vec_push(f->arena, &d->in, cl) ||
      !at_vec_push(f->arena, &f->clusters, cl))
    return NULL;
  return cl;
}

typedef AT_VEC(fuse_cluster *) cluster_vec;

// Clusters of the users of d; *ext: something outside clusters needs d too.
static at_status users_of(fuser *f, fuse_node *d, cluster_vec *s, bool *ext) {
  *ext = d->returned;
  f->stamp++;
  for (size_t i = 0; i < d->users.len; i++) {
    fuse_node *u = d->users.ptr[i];
    if (u->plain || u->in.len == 0) *ext = true;
    for (size_t j = 0; j < u->in.len; j++) {
      fuse_cluster *cl = fuse_find(u->in.ptr[j]);
      if (cl->stamp == f->stamp) continue;
      cl->stamp = f->stamp;
      if (!at_vec_push(f->arena, s, cl)) return AT_NO_MEMORY("fuse");
    }
  }
  return AT_OK;
}

// Ops that move or make elements and compute nothing.
static bool light(at_op op) {
  return op == AT_OP_IOTA || op == AT_OP_BROADCAST_IN_DIM ||
         op == AT_OP_RESHAPE || op == AT_OP_SLICE || op == AT_OP_REVERSE ||
         op == AT_OP_TRANSPOSE;
}

// Users that read the same large operand in the same shape become one kernel.
static at_status merge_users(fuser *f, const fuse_node *d, cluster_vec *s) {
  if (s->len < 2 || s->len > 8 || d->n->num_results != 1 || light(d->n->op) ||
      !at_type_is_static(&d->n->types[0]))
    return AT_OK;
  int64_t size = at_type_elements(&d->n->types[0]);
  for (size_t i = 0; i < s->len; i++) {
    if (at_type_elements(s->ptr[i]->space) > size) continue;
    for (size_t j = i + 1; j < s->len;) {
      bool merged = false;
      AT_TRY(fuse_merge(f, s->ptr[i], s->ptr[j], &merged));
      if (merged)
        s->ptr[j] = s->ptr[--s->len];
      else
        j++;
    }
  }
  return AT_OK;
}

// Is computing d in each of `copies` clusters better than storing it?
static bool may_repeat(const fuse_node *d, size_t copies) {
  const at_node *n = d->n;
  if (n->op == AT_OP_BROADCAST_IN_DIM || n->op == AT_OP_IOTA) return true;
  if (light(n->op)) return copies <= 8;
  if (d->cls != FUSE_CHEAP || copies > 3) return false;
  int64_t elements = at_type_elements(&n->types[0]);
  if (elements <= 256) return true;
  size_t bytes = at_type_bytes(&n->types[0]), read = 0;
  for (uint32_t i = 0; i < n->num_operands; i++) {
    const at_node *in = n->operands[i].node;
    if (fuse_is_inline_const(in) || in->op == AT_OP_IOTA ||
        in->op == AT_OP_BROADCAST_IN_DIM)
      continue;
    read += at_type_bytes(at_value_type(n->operands[i]));
  }
  return read <= bytes;
}

// Is v made by a node that can be part of a cluster?
static bool fusible(const fuser *f, at_value v) {
  const fuse_node *d = fuse_of(f, v.node);
  return d && d->cls != FUSE_NO && d->cls != FUSE_REDUCE;
}

// Decides where d is computed; its users have been decided. In order of
// preference: before the cluster of its only users (a reduce), inside all
// clusters that use it, as one more output of one of them, in a cluster of its
// own.
static at_status visit(fuser *f, fuse_node *d) {
  if (d->cls == FUSE_CONST) return AT_OK;
  cluster_vec s = {0};
  bool ext;
  AT_TRY(users_of(f, d, &s, &ext));
  if (d->cls == FUSE_REDUCE) {
    if (s.len == 1 && !ext && fuse_can_precede(f, d, s.ptr[0]))
      return fuse_precede(f, d, s.ptr[0]);
    return new_cluster(f, d) ? AT_OK : AT_NO_MEMORY("fuse");
  }
  AT_TRY(merge_users(f, d, &s));
  // A reshape of something that is stored is a view of it.
  bool view = d->n->op == AT_OP_RESHAPE && !fusible(f, d->n->operands[0]);
  d->plain = d->cls == FUSE_NO || view;
  if (d->plain) return AT_OK;
  // How many of the users' clusters could compute d themselves.
  size_t joinable = 0;
  for (size_t i = 0; i < s.len; i++)
    joinable += fuse_can_join(f, d, s.ptr[i], NULL);
  bool all = joinable == s.len && s.len;
  if (all && !ext && (s.len == 1 || may_repeat(d, s.len))) {
    for (size_t i = 0; i < s.len; i++) AT_TRY(fuse_join(f, d, s.ptr[i], false));
    return AT_OK;
  }
  if (light(d->n->op) && joinable <= 8) {
    for (size_t i = 0; i < s.len; i++)
      if (fuse_can_join(f, d, s.ptr[i], NULL))
        AT_TRY(fuse_join(f, d, s.ptr[i], false));
  } else {
    for (size_t i = 0; i < s.len; i++) {
      if (!fuse_can_output(f, d, s.ptr[i])) continue;
      return fuse_join(f, d, s.ptr[i], true);
    }
  }
  bool move = d->n->op == AT_OP_RESHAPE ||
              (d->n->op == AT_OP_TRANSPOSE && !d->thin && !keeps_pixels(d->n));
  if (move || d->in.len) {
    d->plain = true;  // its own kernel, or none
    return AT_OK;
  }
  return new_cluster(f, d) ? AT_OK : AT_NO_MEMORY("fuse");
}

// Independent scalars: one launch instead of many.
static at_status merge_scalars(fuser *f) {
  cluster_vec scalars = {0};
  for (size_t i = 0; i < f->clusters.len; i++) {
    fuse_cluster *cl = f->clusters.ptr[i];
    if (cl->into || cl->reduce || at_type_elements(cl->space) != 1) continue;
    bool merged = false;
    for (size_t j = 0; j < scalars.len && j < 16 && !merged; j++)
      AT_TRY(fuse_merge(f, scalars.ptr[j], cl, &merged));
    if (!merged && !at_vec_push(f->arena, &scalars, cl))
      return AT_NO_MEMORY("fuse");
  }
  return AT_OK;
}

// Inner computations first. Nodes are visited from the last to the first; then
// clusters are merged and emitted. The order is restored at the end, as fusions
// stand where their last output stood.
static at_status fuse_comp(at_module *m, at_comp *c) {
  AT_FOR_NODES(n, c) {
    if (!at_is_control(n->op)) continue;
    for (uint32_t i = 0; i < n->num_regions; i++)
      AT_TRY(fuse_comp(m, n->regions[i]));
  }
  fuser f = {.m = m, .c = c, .arena = m->arena};
  AT_TRY(index_nodes(&f));
  for (uint32_t p = f.num_nodes; p-- > 0;) {
    fuse_node *d = &f.nodes[p];
    if (d->users.len || d->returned || d->effect || d->cls == FUSE_NO)
      AT_TRY(visit(&f, d));
    d->height = fuse_height_over_users(d, NULL);
    d->placed = true;
  }
  AT_TRY(fuse_rows(&f));
  AT_TRY(merge_scalars(&f));
  AT_TRY(fuse_emit(&f));
  AT_FOR_NODES(n, c) n->aux = NULL;
  return at_comp_sort(c, m->arena);
}

// Without o->fuse only the caller's hook runs.
at_status at_pass_fuse(at_module *m, const at_pass_options *o) {
  if (o->before_fuse) AT_TRY(o->before_fuse(m, o->user));
  if (!o->fuse) return AT_OK;
  at_aux_clear(m);
  for (uint32_t i = 0; i < m->num_funcs; i++) AT_TRY(fuse_comp(m, m->funcs[i]));
  at_dce(m);
  return AT_OK;
}

// Cuts a computation into kernels as a TPU compiler does: matmuls take in what
// leads to their operands and what follows from their results, reductions take
// in their producers, chains of elementwise operations become one kernel. What
// is cheap is computed again in every kernel that needs it.
#include "base/verify.h"
#include "estimate/group_internal.h"
#include "mosaic/mosaic.h"
#include "tpu/tpu.h"

enum { kMaxCopied = 48 };  // nodes that are computed again at most

// Ops that move no data: readers look through them.
bool at_est_is_renaming(const at_node *n) {
  return n->op == AT_OP_RESHAPE || n->op == AT_OP_OPTIMIZATION_BARRIER;
}

at_value at_est_behind(at_value v) {
  while (at_est_is_renaming(v.node) && v.node->num_operands)
    v = v.node->operands[v.node->op == AT_OP_RESHAPE ? 0 : v.index];
  return v;
}

info *at_cut_info_of(const cutter *k, const at_node *n) {
  void **place = at_map_find_ptr(&k->infos, n);
  return place ? *place : NULL;
}

bool at_est_updates(const at_node *n) {
  return n->op == AT_OP_DYNAMIC_UPDATE_SLICE || n->op == AT_OP_SCATTER;
}

// ---- What fuses

// What the matrix unit computes.
static bool is_product(const at_node *n) {
  if (n->op == AT_OP_DOT_GENERAL) return !at_tpu_is_sum_of_products(n);
  return n->op == AT_OP_CONVOLUTION || n->op == AT_OP_RAGGED_DOT;
}
// Values that no kernel computes.
bool at_cut_is_given(const at_node *n) {
  return n->op == AT_OP_PARAMETER || n->op == AT_OP_CONSTANT;
}
// What adds up over rows, also as a product on the vector unit.
bool at_cut_is_reduce(const at_node *n) {
  return n->op == AT_OP_REDUCE || n->op == AT_OP_REDUCE_WINDOW ||
         at_tpu_is_sum_of_products(n);
}
// Ops that only move data, and fuse.
static bool moves(const at_node *n) {
  switch (n->op) {
    case AT_OP_BROADCAST_IN_DIM:
    case AT_OP_CONCATENATE:
    case AT_OP_PAD:
    case AT_OP_REVERSE:
    case AT_OP_SLICE:
    case AT_OP_DYNAMIC_SLICE:
    case AT_OP_TRANSPOSE:
    case AT_OP_BITCAST_CONVERT:
    case AT_OP_IOTA:
      return true;
    default:
      return false;
  }
}
// One result, element by element.
bool at_cut_is_elementwise(const at_node *n) {
  return at_op_is(n->op, AT_ELEMENTWISE) && n->num_results == 1;
}
// Of its first result; 0: not known.
int64_t at_cut_elements(const at_node *n) {
  return n->num_results && at_type_is_static(&n->types[0])
             ? at_type_elements(&n->types[0])
             : 0;
}

// A few elements among equal ones, as the gradient of taking one of each row:
// a comparison of indices in the kernel that reads it.
static bool is_sparse(const at_node *n) {
  if (n->op != AT_OP_SCATTER || n->num_operands != 3) return false;
  const at_node *into = at_est_behind(n->operands[0]).node;
  bool equal = into->op == AT_OP_CONSTANT ||
               (into->op == AT_OP_BROADCAST_IN_DIM &&
                at_cut_elements(into->operands[0].node) == 1);
  return equal &&
         at_cut_elements(n->operands[2].node) <= at_cut_elements(n) / 64;
}
// May a kernel compute n on the way to what it needs?
static bool fuses(const at_node *n) {
  return at_cut_is_elementwise(n) || moves(n) || at_est_is_renaming(n);
}

// A pad between elements is a kernel of its own.
static bool spreads(const at_node *n) {
  if (n->op != AT_OP_PAD) return false;
  at_dims between = at_node_ints(n, AT_ATTR_INTERIOR_PADDING);
  for (uint32_t d = 0; d < between.rank; d++)
    if (between.ptr[d]) return true;
  return false;
}

// A slice that leaves elements out takes them from a stored array.
static bool skips(const at_node *n) {
  if (n->op != AT_OP_SLICE || !at_type_is_static(at_value_type(n->operands[0])))
    return false;
  at_dims by = at_node_ints(n, AT_ATTR_STRIDES);
  for (uint32_t d = 0; d < by.rank; d++)
    if (by.ptr[d] > 1 && n->types[0].dims[d] > 1) return true;
  return false;
}

// A slice that is smaller than what it is of.
static bool takes_part(const at_node *n) {
  return n->op == AT_OP_SLICE &&
         at_cut_elements(n) < at_cut_elements(n->operands[0].node);
}

// A slice that leaves elements of tiles out is a kernel of its own.
static bool skips_in_tiles(const at_node *n) {
  if (!skips(n)) return false;
  const at_type *t = at_value_type(n->operands[0]);
  at_dims by = at_node_ints(n, AT_ATTR_STRIDES);
  uint32_t lanes, sublanes;
  at_tpu_compact_layout(at_type_dims(t), &lanes, &sublanes);
  return by.ptr[lanes] > 1 || (sublanes < t->rank && by.ptr[sublanes] > 1);
}

// One element out of an array, for scalar work: a kernel of its own reads it.
static bool is_scalar_slice(const at_node *n) {
  return n->op == AT_OP_SLICE && at_cut_elements(n) == 1 &&
         at_cut_elements(n->operands[0].node) > 1;
}

// A broadcast that makes more of what a kernel computed: compute first, then
// copy.
static bool expands(const at_node *n) {
  return n->op == AT_OP_BROADCAST_IN_DIM &&
         at_cut_elements(n) > at_cut_elements(n->operands[0].node);
}

// ---- Uses

// Notes that `user` reads v, once.
static at_status use(cutter *k, at_value v, at_node *user) {
  info *i = at_cut_info_of(k, at_est_behind(v).node);
  if (!i) return AT_OK;  // of an outer computation
  for (size_t u = 0; u < i->users.len; u++)
    if (i->users.ptr[u] == user) return AT_OK;
  return at_vec_push(k->arena, &i->users, user) ? AT_OK : AT_NO_MEMORY("users");
}

// What a region reads of this computation is read by the op that it belongs to.
static at_status use_regions(cutter *k, const at_node *n, at_node *user) {
  for (uint32_t r = 0; r < n->num_regions; r++) {
    AT_FOR_NODES(inner, n->regions[r]) {
      for (uint32_t o = 0; o < inner->num_operands; o++)
        AT_TRY(use(k, inner->operands[o], user));
      AT_TRY(use_regions(k, inner, user));
    }
    for (uint32_t o = 0; o < n->regions[r]->num_results; o++)
      AT_TRY(use(k, n->regions[r]->results[o], user));
  }
  return AT_OK;
}

// Kernels end at a barrier.
static void bar(const cutter *k, const at_node *barrier) {
  for (uint32_t o = 0; o < barrier->num_operands; o++) {
    info *i = at_cut_info_of(k, at_est_behind(barrier->operands[o]).node);
    if (i) i->barred = true;
  }
}

// Infos of all nodes in order, their users, and which are results.
static at_status collect(cutter *k) {
  AT_FOR_NODES(n, k->comp) {
    info *i;
    AT_TRY_ALLOC(i, at_new(k->arena, info, 1));
    i->order = (uint32_t)k->nodes.len;
    void **place;
    AT_TRY_ALLOC(place, at_map_put_ptr(&k->infos, n));
    *place = i;
    if (!at_vec_push(k->arena, &k->nodes, n)) return AT_NO_MEMORY("nodes");
  }
  AT_FOR_NODES(n, k->comp) {
    if (n->op == AT_OP_OPTIMIZATION_BARRIER) bar(k, n);
    if (at_est_is_renaming(n)) continue;
    for (uint32_t o = 0; o < n->num_operands; o++)
      AT_TRY(use(k, n->operands[o], (at_node *)n));
    if (at_op_is(n->op, AT_CONTROL)) AT_TRY(use_regions(k, n, (at_node *)n));
  }
  for (uint32_t r = 0; r < k->comp->num_results; r++) {
    info *i = at_cut_info_of(k, at_est_behind(k->comp->results[r]).node);
    if (i) i->kept = i->result = true;
  }
  return AT_OK;
}

// ---- Which values are written

// A transpose of a computed value is that kernel's layout; one of a parameter,
// or one that leaves the program, is a copy.
static bool is_layout(const cutter *k, const at_node *n) {
  return n->op == AT_OP_TRANSPOSE &&
         !at_cut_is_given(at_est_behind(n->operands[0]).node) &&
         !at_cut_info_of(k, n)->kept;
}

// Each once; a full list means so many or more.
static void add_source(info *i, const at_node *n) {
  for (uint32_t s = 0; s < i->num_sources; s++)
    if (i->sources[s] == n) return;
  if (i->num_sources < kSources) i->sources[i->num_sources++] = n;
}

static uint32_t width_of(const at_node *n) {
  return at_dtype_bytes(n->types[0].dtype);
}

static double bytes_of(const at_node *n) {
  return (double)at_cut_elements(n) * width_of(n);
}

// A source of n counts as small where it has at most half of its elements.
static void add_large(info *i, const at_node *n, const at_node *from) {
  if (2 * at_cut_elements(from) > at_cut_elements(n))
    add_source(i, from);
  else
    i->small += bytes_of(from);
}

// What `n` is computed from: stored values, or given ones.
static void find_sources(cutter *k, at_node *n, info *i) {
  for (uint32_t o = 0; o < n->num_operands; o++) {
    const at_node *from = at_est_behind(n->operands[o]).node;
    const info *p = at_cut_info_of(k, from);
    if (p && is_sparse(from)) continue;
    if (p && expands(from)) {
      i->small += bytes_of(at_est_behind(from->operands[0]).node);
      continue;
    }
    if (p && fuses(from) && !at_cut_is_given(from) && !p->was_kept) {
      i->small += p->small;
      for (uint32_t s = 0; s < p->num_sources; s++)
        add_large(i, n, p->sources[s]);
    } else if (from->op != AT_OP_CONSTANT) {
      add_large(i, n, from);
    }
  }
}

// How many nodes are computed with n where it is not stored, and is one of them
// costly?
static void count_copied(cutter *k, at_node *n, info *i) {
  i->costly = at_op_of(n->op)->cost == AT_COST_TRANSCENDENTAL;
  i->copied = 1;
  for (uint32_t o = 0; o < n->num_operands; o++) {
    at_node *from = at_est_behind(n->operands[o]).node;
    info *p = at_cut_info_of(k, from);
    if (!p || at_cut_is_given(from) || !fuses(from)) continue;
    if (p->was_kept) continue;
    i->costly |= p->costly;
    i->copied += p->copied;
  }
  if (i->copied > 1u << 20) i->copied = 1u << 20;
  if (expands(n))
    i->costly = false, i->copied = 1;  // computed before it expands
}

// Can no reader compute it?
static bool is_apart(const cutter *k, const at_node *n, const info *i) {
  if (i->barred && !at_cut_is_given(n)) return true;
  if (k->timed && is_scalar_slice(n)) return true;
  if (spreads(n) || skips_in_tiles(n)) return true;
  return !fuses(n) && !is_sparse(n);
}

// From the first node to the last: must its value be written, what does a
// fusion that ends here compute?
static void decide(cutter *k, at_node *n, info *i) {
  k->visits++;
  find_sources(k, n, i);
  if (is_apart(k, n, i)) i->kept = true;
  count_copied(k, n, i);
}

// Does a Pallas kernel allow what makes this operand into its window?
static bool makes(const cutter *k, const at_node *n, const at_node *kernel) {
  at_mosaic_call call;
  at_mosaic_kernel *read;
  double times = 0;
  if (!at_mosaic_is_call(kernel) || n->op == AT_OP_TRANSPOSE) return false;
  at_status st = at_mosaic_call_of(kernel, k->arena, &call);
  if (at_ok(st)) st = at_mosaic_read(&call, k->arena, &read);
  for (uint32_t i = 0; at_ok(st) && times == 0 && i < kernel->num_operands; i++)
    if (kernel->operands[i].node == n)
      st = at_mosaic_may_make(read, i, k->arena, &times);
  at_status_free(st);
  return times > 0 && times <= 1;
}

// The sum of exponentials that `n` of a softmax goes into; NULL: it is none.
static const at_node *sum_of(const cutter *k, const info *i, const at_node *n) {
  const at_node *sum = NULL;
  bool divided = false;
  if (n->op != AT_OP_EXPONENTIAL) return NULL;
  for (size_t u = 0; u < i->users.len; u++) {
    const at_node *user = i->users.ptr[u];
    const info *j = at_cut_info_of(k, user);
    divided |= user->op == AT_OP_DIVIDE;
    if (k->timed && user->op == AT_OP_CONVERT && j->users.len == 1)
      user = j->users.ptr[0];  // added up in another type
    if (user->op == AT_OP_REDUCE) sum = user;
  }
  return divided ? sum : NULL;
}

// Does the compiler make one kernel of the softmax with this sum? Of matrices
// it makes three, and where what is summed lies across tiles.
bool at_cut_holds_rows(const at_node *sum) {
  const at_type *t = at_value_type(sum->operands[0]);
  at_dims d = at_node_ints(sum, AT_ATTR_DIMENSIONS);
  uint32_t lanes, sublanes;
  if (!at_type_is_static(t) || t->rank < 3 || d.rank != 1) return false;
  at_tpu_compact_layout(at_type_dims(t), &lanes, &sublanes);
  return d.ptr[0] == (int64_t)lanes || d.ptr[0] == (int64_t)sublanes;
}

// The product that computes what `n` is an elementwise function of; NULL: none
// does. *turned: whether it is transposed on the way.
static at_node *product_before(const at_node *n, bool *turned) {
  enum { kMost = 16 };
  *turned = false;
  for (int step = 0; step < kMost && (at_cut_is_elementwise(n) || moves(n));
       step++) {
    at_node *next = NULL;
    for (uint32_t o = n->op == AT_OP_SELECT; o < n->num_operands && !next;
         o++) {
      at_node *from = at_est_behind(n->operands[o]).node;
      if (at_cut_elements(from) == at_cut_elements(n) && !at_cut_is_given(from))
        next = from;
    }
    if (!next) return NULL;
    *turned |= n->op == AT_OP_TRANSPOSE;
    if (is_product(next)) return next;
    n = next;
  }
  return NULL;
}

// Does a product compute what `n` is an elementwise function of?
static bool follows_product(const at_node *n) {
  bool turned;
  return is_product(n) || product_before(n, &turned);
}

// What the exponentials `n` of a softmax are made of, where a product computes
// that; NULL: no product does.
static at_node *scores_of(const cutter *k, const at_node *n) {
  if (n->op != AT_OP_EXPONENTIAL) return NULL;
  at_node *d = at_est_behind(n->operands[0]).node;
  if (d->op != AT_OP_SUBTRACT || !sum_of(k, at_cut_info_of(k, n), n) ||
      !follows_product(n))
    return NULL;
  return at_est_behind(d->operands[0]).node;
}

// The operand of n that has as many elements, where all others are constants or
// smaller, and n is cheap to compute from it; NULL: there is none.
static at_node *only_large(const at_node *n) {
  at_node *large = NULL;
  if (!at_cut_is_elementwise(n) ||
      at_op_of(n->op)->cost == AT_COST_TRANSCENDENTAL)
    return NULL;
  for (uint32_t o = 0; o < n->num_operands; o++) {
    at_node *from = at_est_behind(n->operands[o]).node;
    if (at_cut_is_given(from) || expands(from) ||
        at_cut_elements(from) < at_cut_elements(n))
      continue;
    if (large && large != from) return NULL;
    large = from;
  }
  return large;
}

// Has the product's batch at most one dimension of several? Such a product
// keeps its result's type where that is transposed; others widen it.
static bool has_one_batch(const at_node *product) {
  at_dims batch = at_node_ints(product, AT_ATTR_LHS_BATCHING_DIMENSIONS);
  uint32_t several = 0;
  for (uint32_t d = 0; d < batch.rank && d < product->types[0].rank; d++)
    several += product->types[0].dims[d] > 1;
  return product->op == AT_OP_DOT_GENERAL && several <= 1;
}

// What is stored of a softmax's scores: a value on the way to them that others
// read as well, where little is left to compute, as a tanh that caps them; or
// the product's result, where it is narrower and a transpose keeps the product
// from widening it.
static at_node *stored_scores(const cutter *k, at_node *scores) {
  enum { kMost = 8 };
  bool turned;
  at_node *n = scores, *product = product_before(scores, &turned);
  if (product && turned && has_one_batch(product) &&
      width_of(product) < width_of(scores))
    return product;
  for (int step = 0; step < kMost; step++) {
    n = only_large(n);
    const info *i = n ? at_cut_info_of(k, n) : NULL;
    if (!i) return scores;
    if (i->users.len > 1) return n;
  }
  return scores;
}

// Softmaxes of products keep their scores.
static void keep_scores(const cutter *k) {
  for (size_t n = 0; n < k->nodes.len; n++) {
    at_node *scores = scores_of(k, k->nodes.ptr[n]);
    if (scores) scores = stored_scores(k, scores);
    info *i = scores ? at_cut_info_of(k, scores) : NULL;
    if (i) i->barred = i->scores = true;
  }
}

// Are the exponentials of a softmax computed twice? In memory they are written
// by the kernel that sums them.
static bool is_computed_again(const cutter *k, const info *i,
                              const at_node *n) {
  const at_node *sum = sum_of(k, i, n);
  return sum && (!at_cut_holds_rows(sum) || follows_product(n));
}

// Values are kept narrow, and converted where they are read.
static bool widens(const at_node *n) {
  return n->op == AT_OP_CONVERT &&
         width_of(n) > width_of(at_est_behind(n->operands[0]).node);
}

// What a kernel puts into a larger array is computed there.
static bool is_put(const at_node *n, const at_node *user) {
  return user->op == AT_OP_DYNAMIC_UPDATE_SLICE &&
         at_est_behind(user->operands[1]).node == n &&
         at_est_behind(user->operands[0]).node != n;
}

// Is `n` computed in each kernel that needs it, rather than written once? Where
// all of them reading what it is computed from is no more traffic than that.
// What is costly is computed again from one array only, unless all kernels are
// products, beside which the vector unit has time.
static bool is_cheap_again(const info *i, const at_node *n) {
  double sources = i->small, users = (double)i->users.len;
  for (uint32_t s = 0; s < i->num_sources; s++)
    sources += bytes_of(i->sources[s]);
  if (i->num_sources == kSources) return false;
  if (i->costly && !i->multiplied) return i->num_sources <= 1;
  return (users - 1) * sources <= (users + 1) * bytes_of(n);
}

// From the last node to the first: where does each value flow?
static void flow(cutter *k, at_node *n, info *i) {
  bool several = false, expanded = false, forced = i->kept;
  i->multiplied = i->users.len > 0;
  i->follows = follows_product(n);  // once, not for each that it reads
  for (size_t u = 0; u < i->users.len; u++) {
    info *j = at_cut_info_of(k, i->users.ptr[u]);
    at_node *sink = j->kept ? i->users.ptr[u] : j->sink;
    bool sparse = is_sparse(i->users.ptr[u]);
    if (!fuses(i->users.ptr[u]) && !sparse && !is_product(i->users.ptr[u]) &&
        !at_cut_is_reduce(i->users.ptr[u]) && !is_put(n, i->users.ptr[u]) &&
        !(i->users.len == 1 && fuses(n) && makes(k, n, i->users.ptr[u])))
      i->kept = true;  // collectives, loops, sorts: read a whole array
    if (spreads(i->users.ptr[u]) || skips(i->users.ptr[u])) i->kept = true;
    if (i->users.len > 1 && takes_part(i->users.ptr[u])) i->kept = true;
    if (expands(i->users.ptr[u])) expanded = true;
    i->multiplied &= is_product(i->users.ptr[u]) || j->follows ||
                     (fuses(i->users.ptr[u]) && !j->kept && j->multiplied);
    if (!sink || (i->sink && i->sink != sink)) several = true;
    i->sink = sink;
  }
  if (several) i->sink = NULL;
  i->choice = false;
  if (sum_of(k, i, n) && !scores_of(k, n) &&
      !(k->timed && is_computed_again(k, i, n)))
    i->kept = true;
  if (at_cut_is_given(n) || i->kept) return;
  i->choice = several;
  bool computes = at_cut_is_elementwise(n) && n->op != AT_OP_CONVERT;
  bool again = k->settled ? !i->was_kept : is_cheap_again(i, n);
  if (several && (!again || i->copied > kMaxCopied)) i->kept = true;
  if (i->kept && !forced && widens(n)) {
    info *from = at_cut_info_of(k, at_est_behind(n->operands[0]).node);
    if (from) i->kept = false, from->kept = true;
  }
  if (expanded && computes && at_cut_elements(n) > 1) i->kept = true;
  if (n->op == AT_OP_TRANSPOSE && !is_layout(k, n)) i->kept = true;
  for (size_t u = 0; u < i->users.len; u++)  // what is put together is there
    if (i->users.ptr[u]->op == AT_OP_CONCATENATE && at_cut_elements(n) > 1 &&
        (computes || (!k->timed && n->op == AT_OP_SLICE)))
      i->kept = true;
}

// ---- Groups

// `g` computes `n`, which no other group does from now on.
at_status at_cut_own(cutter *k, at_est_group *g, at_node *n) {
  info *i = at_cut_info_of(k, n);
  i->group = g;
  if (!at_vec_push(k->arena, &g->own, n)) return AT_NO_MEMORY("groups");
  size_t at = g->own.len - 1;
  for (; at && at_cut_info_of(k, g->own.ptr[at - 1])->order > i->order; at--) {
    g->own.ptr[at] = g->own.ptr[at - 1];
    k->visits++;
  }
  g->own.ptr[at] = n;
  return AT_OK;
}

// A kernel whose root is `root`.
static at_status new_group(cutter *k, at_node *root, at_est_group **out) {
  AT_TRY_ALLOC(*out, at_new(k->arena, at_est_group, 1));
  (*out)->root = root;
  (*out)->order = at_cut_info_of(k, root)->order;
  if (!at_vec_push(k->arena, &k->groups, *out)) return AT_NO_MEMORY("groups");
  return at_cut_own(k, *out, root);
}

// An addition of what a scatter made: that adds to the other operand in place.
static bool adds_scattered(const at_node *n) {
  bool scattered = false;
  for (uint32_t o = 0; n->op == AT_OP_ADD && o < 2; o++)
    scattered |= at_est_behind(n->operands[o]).node->op == AT_OP_SCATTER;
  return scattered;
}

// Where all that is computed from `n` comes together again; NULL: nowhere, or
// not by elementwise steps of its size alone.
static at_node *comes_together(const cutter *k, at_node *n) {
  enum { kMost = 32 };
  at_node *open[kMost];
  uint32_t count = 0;
  for (at_node *at = n;;) {
    const info *i = at_cut_info_of(k, at);
    for (size_t u = 0; u < i->users.len; u++) {
      uint32_t o = 0;
      while (o < count && open[o] != i->users.ptr[u]) o++;
      if (o == kMost) return NULL;
      if (o == count) open[count++] = i->users.ptr[u];
    }
    uint32_t first = 0;
    for (uint32_t o = 1; o < count; o++)
      if (at_cut_info_of(k, open[o])->order <
          at_cut_info_of(k, open[first])->order)
        first = o;
    if (!count) return NULL;
    at = open[first];
    if (!at_cut_is_elementwise(at) || at_cut_elements(at) != at_cut_elements(n))
      return NULL;
    if (count == 1) return at;
    if (at_cut_info_of(k, at)->kept || !at_cut_info_of(k, at)->users.len)
      return NULL;
    open[first] = open[--count];
  }
}

// Is it computed from one array alone, and read by products alone? They compute
// it as they read.
static bool is_made_by_products(const cutter *k, const at_node *n) {
  const info *i = at_cut_info_of(k, n);
  for (size_t u = 0; u < i->users.len; u++)
    if (!is_product(i->users.ptr[u])) return false;
  return i->users.len > 0 && i->num_sources == 1;
}

// Do its rows fill tiles? The kernel of a product finds no maxima of others.
static bool is_whole(const at_node *n) {
  const at_type *t = &n->types[0];
  return t->rank > 0 && t->dims[t->rank - 1] % 128 == 0;
}

// The last node of what follows from a product alone, to be computed with it.
// What is stored is narrow where several kernels can widen it themselves.
static at_node *epilogue_end(cutter *k, at_node *product) {
  at_node *at = product, *narrow = product;
  for (;;) {
    info *i = at_cut_info_of(k, at);
    bool ends = i->result || i->barred;
    bool result = at == product ? ends : i->kept;
    if (width_of(at) <= width_of(narrow)) narrow = at;
    at_node *u = i->users.len == 1 ? i->users.ptr[0] : NULL;
    if (!result && i->users.len > 1) u = comes_together(k, at);
    if (u && i->users.len > 1 && is_made_by_products(k, u)) u = NULL;
    if (i->scores && !is_whole(at)) return narrow;
    if (result || !u) return result ? at : narrow;
    info *j = at_cut_info_of(k, u);
    bool same = at_cut_elements(u) == at_cut_elements(product);
    if (!(at_cut_is_elementwise(u) || is_layout(k, u)) || !same || j->group ||
        adds_scattered(u))
      return narrow;
    at = u;
  }
}

// From the first node to the last, each with what was decided for those before
// it: of a chain of sums, every second one is stored. Where there is a choice
// is known from decide_again; what a product's kernel ends with is stored.
static void settle(cutter *k) {
  for (size_t n = 0; n < k->nodes.len; n++) {
    at_node *p = k->nodes.ptr[n];
    info *i = at_cut_info_of(k, p);
    i->num_sources = 0;
    i->small = 0;
    find_sources(k, p, i);
    count_copied(k, p, i);
    bool dear =
        i->choice ? !is_cheap_again(i, p) || i->copied > kMaxCopied : i->kept;
    i->was_kept = i->ends || dear;
    if (is_product(p)) at_cut_info_of(k, epilogue_end(k, p))->ends = true;
  }
  k->settled = true;
  for (size_t n = k->nodes.len; n-- > 0;) {
    at_node *p = k->nodes.ptr[n];
    info *i = at_cut_info_of(k, p);
    i->kept = i->result || is_apart(k, p, i);
    i->sink = NULL;
    flow(k, p, i);
  }
}

// A kernel for each product, with what follows from it. From the last to the
// first: a later one takes what both could.
static at_status start_products(cutter *k) {
  for (size_t n = k->nodes.len; n-- > 0;) {
    at_node *p = k->nodes.ptr[n];
    if (!is_product(p)) continue;
    at_node *end = epilogue_end(k, p);
    at_est_group *g;
    AT_TRY(new_group(k, end, &g));
    g->product = p;
    info *last = at_cut_info_of(k, end);
    if (end != p) at_cut_info_of(k, p)->kept = false;
    last->kept = true;
  }
  return AT_OK;
}

// Does the computation return n?
bool at_cut_is_result(const cutter *k, const at_node *n) {
  const info *i = at_cut_info_of(k, n);
  return i && i->result;
}

// The reduction that a node is, or that it only converts the result of.
at_node *at_cut_reduction(const cutter *k, at_node *n) {
  if (n->op == AT_OP_CONVERT && k->timed) {
    at_node *from = at_est_behind(n->operands[0]).node;
    info *i = at_cut_info_of(k, from);
    if (i && i->users.len == 1 && !i->kept) n = from;
  }
  return n->op == AT_OP_REDUCE && n->num_results == 1 ? n : NULL;
}

// Reductions write in the type that their result is converted to.
static void convert_reductions(cutter *k) {
  for (size_t n = 0; n < k->nodes.len && k->timed; n++) {
    at_node *p = k->nodes.ptr[n];
    if (p->op != AT_OP_CONVERT || !at_cut_info_of(k, p)->kept) continue;
    at_node *from = at_est_behind(p->operands[0]).node;
    info *i = at_cut_info_of(k, from);
    if (i && from->op == AT_OP_REDUCE && from->num_results == 1 &&
        i->users.len == 1 && i->sink == p && !at_cut_is_result(k, from))
      i->kept = false;
  }
}

// The kernel that takes another element of the same array.
static at_est_group *beside_slice(const cutter *k, const at_node *n) {
  const info *i = at_cut_info_of(k, at_est_behind(n->operands[0]).node);
  for (size_t u = 0; i && u < i->users.len; u++)
    if (is_scalar_slice(i->users.ptr[u]) &&
        at_cut_info_of(k, i->users.ptr[u])->group)
      return at_cut_info_of(k, i->users.ptr[u])->group;
  return NULL;
}

// A kernel for each value that is kept and in no kernel yet.
static at_status start_others(cutter *k) {
  for (size_t n = 0; n < k->nodes.len; n++) {
    at_node *p = k->nodes.ptr[n];
    info *i = at_cut_info_of(k, p);
    if (!i->kept || i->group || at_cut_is_given(p) || at_est_is_renaming(p))
      continue;
    at_est_group *g = NULL;
    if (k->timed && is_scalar_slice(p)) g = beside_slice(k, p);
    AT_TRY(g ? at_cut_own(k, g, p) : new_group(k, p, &g));
  }
  return AT_OK;
}

// ---- What a group reads

// The walk from a group's outputs to what it reads.
typedef struct reading {
  cutter *k;
  at_est_group *g;
  at_map seen;
} reading;

static double dense(const at_type *t) {
  return at_type_is_static(t) ? (double)at_type_bytes(t) : 0;
}

// A value that is read twice is read by its larger part.
static at_status add_read(reading *r, at_value v, double bytes) {
  for (size_t i = 0; i < r->g->reads.len; i++)
    if (at_value_eq(r->g->reads.ptr[i].value, v)) {
      if (bytes > r->g->reads.ptr[i].bytes) r->g->reads.ptr[i].bytes = bytes;
      return AT_OK;
    }
  bool ok = at_vec_push(r->k->arena, &r->g->reads,
                        ((at_est_read){.value = v, .bytes = bytes}));
  return ok ? AT_OK : AT_NO_MEMORY("reads");
}

// Ops that read no more of operand 0 than they return.
static bool reads_part(const at_node *n) {
  return n->op == AT_OP_SLICE || n->op == AT_OP_DYNAMIC_SLICE ||
         n->op == AT_OP_GATHER;
}

// n is computed in the group; its operands are read next.
static at_status visit_node(reading *r, at_node *n) {
  void **place;
  r->k->visits++;
  if (at_map_find_ptr(&r->seen, n)) return AT_OK;
  AT_TRY_ALLOC(place, at_map_put_ptr(&r->seen, n));
  if (!at_vec_push(r->k->arena, &r->g->nodes, n) ||
      !at_vec_push(r->k->arena, &r->k->open, ((visit){n, 0})))
    return AT_NO_MEMORY("nodes");
  if (at_cut_is_elementwise(n) || at_tpu_is_sum_of_products(n))
    r->g->ops += width_of(n) < 4 ? .5 : 1;
  if (at_op_of(n->op)->cost == AT_COST_TRANSCENDENTAL) r->g->transcendentals++;
  if (at_cut_is_reduce(n)) r->g->reduces++;
  return AT_OK;
}

// v is read from memory, or computed in the group. `limit`: bytes that are read
// of it at most; negative: all of it.
static at_status read_value(reading *r, at_value v, double limit) {
  v = at_est_behind(v);
  info *i = at_cut_info_of(r->k, v.node);
  if (v.node->op == AT_OP_CONSTANT) {
    const at_literal *l = at_node_literal(v.node);
    if (l && (l->splat || l->bytes <= 4096)) return AT_OK;
  }
  bool outside = !i || at_cut_is_given(v.node) || (i->kept && i->group != r->g);
  if (outside) {
    double bytes = dense(at_value_type(v));
    return add_read(r, v, limit >= 0 && limit < bytes ? limit : bytes);
  }
  return visit_node(r, v.node);
}

// Depth first, with a stack of its own: chains may be as long as the program.
static at_status read_node(reading *r, at_node *root) {
  cutter *k = r->k;
  AT_ASSERT(!k->open.len);
  AT_TRY(visit_node(r, root));
  while (k->open.len) {
    visit *top = &k->open.ptr[k->open.len - 1];
    const at_node *n = top->n;
    uint32_t o = top->next++;
    if (o == n->num_operands) {
      k->open.len--;
      continue;
    }
    double part = n->num_results ? dense(&n->types[0]) : 0;
    double limit = reads_part(n) && o == 0 ? part : -1;
    if (at_est_updates(n) && o == 0) limit = 0;  // in place
    AT_TRY(read_value(r, n->operands[o], limit));
  }
  return AT_OK;
}

// Finds again what g computes and reads, from the nodes that it owns.
at_status at_cut_read_group(cutter *k, at_est_group *g) {
  reading r = {k, g, at_map_in(k->arena)};
  g->reads.len = g->nodes.len = 0;
  g->ops = g->reduces = g->transcendentals = 0;
  for (size_t n = 0; n < g->own.len; n++) AT_TRY(read_node(&r, g->own.ptr[n]));
  return AT_OK;
}

// Of what the group reads: what is the product's operand `side` made of?
static at_status find_operand(cutter *k, at_est_group *g, uint32_t side) {
  at_map seen = at_map_in(k->arena);
  AT_ASSERT(!k->open.len);
  if (!at_vec_push(k->arena, &k->open, ((visit){g->product, side})))
    return AT_NO_MEMORY("nodes");
  while (k->open.len) {
    visit *top = &k->open.ptr[k->open.len - 1];
    uint32_t o = top->next++;
    bool product = top->n == g->product;
    if (o == (product ? side + 1 : top->n->num_operands)) {
      k->open.len--;
      continue;
    }
    at_value v = at_est_behind(top->n->operands[o]);
    info *i = at_cut_info_of(k, v.node);
    void **place;
    k->visits++;
    if (!i || at_cut_is_given(v.node) || (i->kept && i->group != g)) {
      for (size_t r = 0; r < g->reads.len; r++)
        if (at_value_eq(g->reads.ptr[r].value, v))
          g->reads.ptr[r].feeds[side] = true;
      continue;
    }
    if (at_map_find_ptr(&seen, v.node)) continue;
    AT_TRY_ALLOC(place, at_map_put_ptr(&seen, v.node));
    *place = v.node;
    if (!at_vec_push(k->arena, &k->open, ((visit){v.node, 0})))
      return AT_NO_MEMORY("nodes");
  }
  return AT_OK;
}

// ---- Order and facade

// A reduction whose operand and result have one type is no fusion, although it
// may add up in another.
static bool is_lone_reduction(const at_est_group *g) {
  if (g->reduces != 1 || g->reads.len != 1) return false;
  for (size_t n = 0; n < g->nodes.len; n++) {
    const at_node *p = g->nodes.ptr[n];
    if ((p->op != AT_OP_CONVERT && !at_cut_is_reduce(p) &&
         !at_est_is_renaming(p)) ||
        at_tpu_is_sum_of_products(p))
      return false;
  }
  return at_value_type(g->reads.ptr[0].value)->dtype == g->root->types[0].dtype;
}

// A constant inside makes even one operation a fusion.
static bool has_constant(const at_est_group *g) {
  const at_node *n = g->root;
  for (uint32_t o = 0; at_cut_is_elementwise(n) && o < n->num_operands; o++) {
    const at_node *from = at_est_behind(n->operands[o]).node;
    if (from->op == AT_OP_CONSTANT) return true;
  }
  return false;
}

// Does every kernel read only what kernels before it write, and what is given?
static bool can_run_in_order(const cutter *k, const at_est_groups *out) {
  for (uint32_t x = 0; x < out->count; x++) {
    const at_est_group *g = out->list[x];
    if (x && out->list[x - 1]->order >= g->order) return false;
    for (size_t r = 0; r < g->reads.len; r++) {
      const at_node *n = g->reads.ptr[r].value.node;
      const info *i = at_cut_info_of(k, n);
      if (!i || at_cut_is_given(n)) continue;
      if (!i->group || i->group->order >= g->order) return false;
    }
  }
  return true;
}

// Lists the kernels in the order of their roots, with what each writes for
// others.
static at_status finish(cutter *k, at_est_groups *out) {
  AT_TRY_ALLOC(out->list, at_new(k->arena, at_est_group *, k->groups.len + 1));
  out->of = at_map_in(k->arena);
  out->visits = k->visits;
  for (size_t n = 0; n < k->nodes.len; n++) {
    at_node *p = k->nodes.ptr[n];
    info *i = at_cut_info_of(k, p);
    at_est_group *g = i->group;
    if (!g) continue;
    for (uint32_t o = 0; p == g->root && g->product && o < 2; o++)
      AT_TRY(find_operand(k, g, o));
    void **place;
    AT_TRY_ALLOC(place, at_map_put_ptr(&out->of, p));
    *place = g;
    bool used = at_op_is(p->op, AT_CONTROL);  // its state is there anyway
    for (size_t u = 0; u < i->users.len; u++) {
      info *j = at_cut_info_of(k, i->users.ptr[u]);
      used |= !(j->group == g || (!j->kept && j->sink &&
                                  at_cut_info_of(k, j->sink)->group == g));
    }
    used |= i->result;
    for (uint32_t r = 0; used && r < p->num_results; r++)
      if (!at_vec_push(k->arena, &g->writes, (at_value){p, r}))
        return AT_NO_MEMORY("writes");
    if (g->root == p) {
      uint32_t real = has_constant(g) ? 1 : 0;
      for (size_t x = 0; x < g->nodes.len; x++)
        real += at_tpu_is_sum_of_products(g->nodes.ptr[x])
                    ? 2
                    : !at_est_is_renaming(g->nodes.ptr[x]);
      g->alone = real <= 1 || is_lone_reduction(g);
      out->list[out->count++] = g;
    }
  }
  AT_VERIFY(can_run_in_order(k, out));
  return AT_OK;
}

// Forward, then backward.
static void decide_all(cutter *k, bool fuse) {
  for (size_t n = 0; n < k->nodes.len; n++)
    decide(k, k->nodes.ptr[n], at_cut_info_of(k, k->nodes.ptr[n]));
  for (size_t n = k->nodes.len; n-- > 0;) {
    info *i = at_cut_info_of(k, k->nodes.ptr[n]);
    if (!fuse && !at_est_is_renaming(k->nodes.ptr[n])) i->kept = true;
    flow(k, k->nodes.ptr[n], i);
  }
}

// What is computed from a stored value has that as its source.
static void decide_again(cutter *k) {
  for (size_t n = 0; n < k->nodes.len; n++) {
    info *i = at_cut_info_of(k, k->nodes.ptr[n]);
    i->was_kept = i->kept;
    i->kept = i->result;
    i->sink = NULL;
    i->num_sources = 0;
    i->small = 0;
  }
  decide_all(k, true);
}

// collect, decide, start kernels, join them, list them.
static at_status cut(const at_comp *c, bool fuse, bool timed, at_arena *a,
                     at_est_groups *out) {
  *out = (at_est_groups){0};
  cutter k = {.arena = a, .comp = c, .infos = at_map_in(a), .timed = timed};
  AT_TRY(collect(&k));
  if (fuse) keep_scores(&k);
  decide_all(&k, fuse);
  if (fuse) decide_again(&k);
  if (fuse) settle(&k);
  if (fuse) AT_TRY(start_products(&k));
  if (fuse) convert_reductions(&k);
  AT_TRY(start_others(&k));
  if (fuse)
    AT_TRY(at_cut_join(&k));
  else
    for (size_t x = 0; x < k.groups.len; x++)
      AT_TRY(at_cut_read_group(&k, k.groups.ptr[x]));
  return finish(&k, out);
}

at_status at_est_group_nodes(const at_comp *c, bool fuse, at_arena *a,
                             at_est_groups *out) {
  return cut(c, fuse, fuse, a, out);
}

at_status at_est_group_stored(const at_comp *c, at_arena *a,
                              at_est_groups *out) {
  return cut(c, true, false, a, out);
}

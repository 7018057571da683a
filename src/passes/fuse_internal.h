// The state of loop and reduction fusion on one computation.
#ifndef ATOLL_PASSES_FUSE_INTERNAL_H_
#define ATOLL_PASSES_FUSE_INTERNAL_H_

#include "passes/passes_internal.h"

// A signature stands for the index map from the cluster's loop to a node's
// elements; what has equal ones is computed once. This is the identity.
#define FUSE_ROOT_SIG 1ull
#define FUSE_TAIL_SIG 2ull  // elements of reduced results, after a reduce
enum {
  FUSE_MAX_WORK = 192,  // emitted ops of a fusion, repeats included
  FUSE_MAX_OPERANDS = 24,
  FUSE_MAX_OUTPUTS = 12,
  FUSE_MAX_SIGS = 4,   // ways in which one fusion may index one node
  FUSE_MAX_GROWN = 3,  // arithmetic ops repeated along a broadcast dimension
  FUSE_CONCAT_SUBTREE = 12  // producers that a concatenation may repeat
};

// What fusion may do with a node, by what it costs to compute it again.
typedef enum fuse_class {
  FUSE_NO,         // stands alone
  FUSE_CONST,      // splat: cloned wherever it is used
  FUSE_FREE,       // moves or makes elements, no arithmetic
  FUSE_CHEAP,      // a few cycles
  FUSE_EXPENSIVE,  // not worth repeating
  // Begins a cluster of its own kind: its loop runs over the operand.
  FUSE_REDUCE
} fuse_class;

typedef struct fuse_node fuse_node;
typedef struct fuse_cluster fuse_cluster;

// A node's copy in a cluster.
// A node may be in several clusters: what is cheap is computed in each that
// reads it.
typedef struct fuse_member {
  fuse_node *node;
  int64_t evals;                 // elements computed
  uint64_t sigs[FUSE_MAX_SIGS];  // index maps under which it is computed
  uint32_t num_sigs;
  bool part;  // of a concatenation: picks elements of what others use, too
} fuse_member;

// Nodes that become one kernel.
// Lives in the fuser's arena; a merged one stays, as others may still point at
// it.
struct fuse_cluster {
  fuse_cluster *into;  // merged into another, else NULL
  bool rows;           // made row by row (fuse_rows.c); reduce holds, too
  bool reduce;  // with or without elementwise steps on the reduced results
  const at_type *space;  // the loop's shape: result, or the reduce's input
  at_dims reduced;       // dimensions, for REDUCE
  AT_VEC(fuse_member) members;
  at_map index;  // fuse_node * -> place in members, + 1
  AT_VEC(fuse_node *) outputs;
  uint32_t work;   // emitted ops, repeats included
  uint32_t grown;  // of those, arithmetic that is repeated along a dimension
  uint32_t stamp;  // of the last search that came by
  uint32_t height;
  // Above everything that it leads to; grows only.
};

// A node of the computation; nodes[n->mark] of the fuser.
// Zeroed, then filled in before any cluster is made.
struct fuse_node {
  // Its `mark` is this node's place in the fuser's array.
  at_node *n;
  uint32_t pos;  // place in the computation
  fuse_class cls;
  bool returned;  // by the computation
  bool plain;     // stands in the computation by itself as well
  bool output;    // of its first cluster
  bool placed;    // by the walk
  bool thin;      // its dimensions may be in any order
  // Effects keep their order: each is joined to the next.
  fuse_node *effect;  // the effect after this one
  fuse_node *effect_before;
  AT_VEC(fuse_node *) users;  // once each, in order
  AT_VEC(fuse_node *) deps;   // whose users it is among
  AT_VEC(fuse_cluster *) in;
  uint32_t stamp;
  uint32_t height;
};

// Clusters, and nodes that stand by themselves, are the nodes of a graph
// without cycles. Each is higher than all that it leads to, so that a search
// for a path looks only at what is higher than its end.

// On the stack of the pass; one thread.
// The state of fusion on one computation.
typedef struct fuser {
  at_module *m;
  at_comp *c;
  at_arena *arena;  // scratch of this computation
  fuse_node *nodes;
  uint32_t num_nodes;
  AT_VEC(fuse_cluster *) clusters;
  AT_VEC(fuse_node *) queue;  // of a search
  struct {
    AT_VEC(fuse_cluster *) clusters;
    AT_VEC(fuse_node *) nodes;
  } raised;  // what leads to these may have to rise, too
  // Grows with every search, so that marks of earlier ones need no clearing.
  uint32_t stamp;
} fuser;

// A constant that becomes part of every fusion that reads it: a splat, or one
// element.
bool fuse_is_inline_const(const at_node *n);
// What fusion may do with n, by its op, types and region.
fuse_class fuse_classify(const at_module *m, const at_node *n);
// The cluster that c is part of now: c itself unless it was merged.
fuse_cluster *fuse_find(fuse_cluster *c);
// n's copy in c, until the next member is added; NULL: n is not computed there.
fuse_member *fuse_member_of(fuse_cluster *c, const fuse_node *n);
// m is not in c yet. RESOURCE_EXHAUSTED: no memory.
at_status fuse_add_member(fuser *f, fuse_cluster *c, fuse_member m);
// Is there a path from an output of a to b through other nodes, or directly?
// Looks only at nodes that are higher than b.
bool fuse_cluster_reaches(fuser *f, fuse_cluster *a, const fuse_cluster *b);
// Is there a path through something that is in neither? True, too, when it
// takes more than `most` steps to see.
bool fuse_between(fuser *f, fuse_cluster *a, const fuse_cluster *b,
                  uint32_t most);
// Would d, as an output of cl, be read by something that leads to cl? True,
// too, without memory.
bool fuse_output_cycles(fuser *f, fuse_node *d, const fuse_cluster *cl);
// Above everything that d's users are, but for `cl` (NULL: none).
uint32_t fuse_height_over_users(const fuse_node *d, const fuse_cluster *cl);
// Lifts cl to `height` if it is lower, and what leads to it above it.
at_status fuse_raise(fuser *f, fuse_cluster *cl, uint32_t height);

// May d be computed inside cl, whose members use it? *out (may be NULL): how.
// A member for fuse_add_member; nothing is changed.
bool fuse_can_join(fuser *f, fuse_node *d, fuse_cluster *cl, fuse_member *out);
// And be one of its results?
bool fuse_can_output(fuser *f, fuse_node *d, fuse_cluster *cl);
// May the reduce d come before cl, all of whose work is on d's result?
bool fuse_can_precede(fuser *f, fuse_node *d, const fuse_cluster *cl);
// Does so; fuse_can_precede held.
at_status fuse_precede(fuser *f, fuse_node *d, fuse_cluster *cl);
// Computes d in cl, as a result with `output`. fuse_can_join, or
// fuse_can_output, held.
at_status fuse_join(fuser *f, fuse_node *d, fuse_cluster *cl, bool output);
// Values from outside that the two read together.
// Counted once each: what a merge would save reading.
uint32_t fuse_pair_operands(const fuser *f, fuse_cluster *a, fuse_cluster *b);
// b becomes part of a where both run over the same space and no path leads from
// one to the other; else *merged is false and nothing has changed.
// On merging, b->into is a and b's members are a's.
at_status fuse_merge(fuser *f, fuse_cluster *a, fuse_cluster *b, bool *merged);
// Unites clusters around reduces along rows.
// RESOURCE_EXHAUSTED: no memory.
at_status fuse_rows(fuser *f);
// Turns clusters into FUSION nodes.
// Afterwards the fuser is of no more use. RESOURCE_EXHAUSTED: no memory.
at_status fuse_emit(fuser *f);

// NULL: n is of another computation.
static inline fuse_node *fuse_of(const fuser *f, const at_node *n) {
  return n->parent == f->c ? &f->nodes[n->mark] : NULL;
}

#endif

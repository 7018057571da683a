// What the files of the cut share: one computation that is cut into kernels.
#ifndef ATOLL_ESTIMATE_GROUP_INTERNAL_H_
#define ATOLL_ESTIMATE_GROUP_INTERNAL_H_

#include "estimate/estimate_internal.h"

enum { kSources = 8 };

// What is known of one node while values are decided on.
typedef struct info {
  AT_VEC(at_node *) users;  // behind renamings
  // Arrays about as large as it that its fusion reads; the last: so many or
  // more.
  const at_node *sources[kSources];
  uint32_t num_sources;
  double small;     // bytes of what else it reads
  bool multiplied;  // all that it flows into are products
  bool follows;     // a product computes what it is a function of
  bool kept;        // its value is written by some kernel
  bool was_kept;    // when values were looked at before
  bool choice;      // only traffic says whether it is stored
  bool ends;        // a product's kernel ends with it
  bool result;      // of the computation
  bool barred;      // who reads it cannot compute it: a barrier's operand
  bool scores;      // a product's, of which a softmax has exponentials
  bool costly;      // a transcendental is computed for it
  uint32_t copied;  // nodes that its fusion computes
  at_node *sink;    // the only kept node that it flows into; NULL: several
  uint32_t order;
  at_est_group *group;  // of a kept value
} info;

// A node on the way from a group's outputs to what it reads, and which of its
// operands is next.
typedef struct visit {
  at_node *n;
  uint32_t next;
} visit;

// One computation that is cut.
typedef struct cutter {
  at_arena *arena;
  bool timed;    // what each kernel costs counts, not only what is stored
  bool settled;  // was_kept says what is not computed again
  const at_comp *comp;
  at_map infos;  // node -> info
  AT_VEC(at_node *) nodes;
  AT_VEC(at_est_group *) groups;
  AT_VEC(visit) open;  // of read_node; empty between its calls
  uint64_t visits;
} cutter;

// ---- group.c
// What is known of n; NULL: it belongs to an outer computation.
info *at_cut_info_of(const cutter *k, const at_node *n);
// A value that no kernel computes: an argument or a constant.
bool at_cut_is_given(const at_node *n);
// What adds up over rows, also as a product on the vector unit.
bool at_cut_is_reduce(const at_node *n);
// One result, element by element.
bool at_cut_is_elementwise(const at_node *n);
// Of the node's first result; 0: not known.
int64_t at_cut_elements(const at_node *n);
// g computes n, which no other group does from now on.
at_status at_cut_own(cutter *k, at_est_group *g, at_node *n);
// Does the computation return n?
bool at_cut_is_result(const cutter *k, const at_node *n);
// The reduction that n is, or that it only converts the result of; NULL: none.
at_node *at_cut_reduction(const cutter *k, at_node *n);
// Finds again what g computes and reads, from the nodes that it owns.
at_status at_cut_read_group(cutter *k, at_est_group *g);
// Does the compiler make one kernel of the softmax with this sum?
bool at_cut_holds_rows(const at_node *sum);

// ---- group_join.c
// Reads all groups; then some become part of others: their root is NULL from
// there on.
at_status at_cut_join(cutter *k);

#endif

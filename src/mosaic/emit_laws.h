// Laws of vector values and of views of memory, for asserts.
#ifndef ATOLL_MOSAIC_EMIT_LAWS_H_
#define ATOLL_MOSAIC_EMIT_LAWS_H_

#include "base/verify.h"
#include "mosaic/emit.h"

// Does the node fit its operands, so that every element of it has a place in
// them? True where memory is missing, which is noted elsewhere.
// Rank, dimensions and operand count by kind; linear in the node, not in the
// expression.
bool at_me_node_holds(const at_me_node *n);
// Can elements of it be read?
// Rank in range, home and packing set, at most one of parts and split over 1.
bool at_me_ref_holds(const at_me_ref *r);

#endif

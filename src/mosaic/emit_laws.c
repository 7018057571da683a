// What holds of every vector value and every view of memory, whoever made it.
// Checked where a value gets its node and where an expression is about to be
// computed: a place that is computed from such a node is inside its operand
// then, and needs no test of its own. Under ATOLL_VERIFY (base/verify.h).
#include "mosaic/emit_laws.h"

// Equal rank and dimensions.
static bool has_shape(const at_me_node *n, const at_me_node *of) {
  return n->rank == of->rank &&
         !memcmp(n->dim, of->dim, n->rank * sizeof *n->dim);
}

// A number that is known is at least `low`; others are the kernel's business.
static bool is_from(at_me_num x, int64_t low) { return x.v || x.c >= low; }

// For AT_VERIFY. Sizes may be 0; a packed dimension must be one of the ref's.
bool at_me_ref_holds(const at_me_ref *r) {
  bool well =
      r->base && r->home && r->packing && r->rank <= AT_ME_RANK && r->bytes &&
      (r->storage == AT_INVALID || r->bytes == at_dtype_bytes(r->storage));
  for (uint32_t d = 0; well && d < r->rank; d++) well = is_from(r->size[d], 0);
  if (!well) return false;
  // Either several elements of memory make one, or the other way round.
  const at_me_packing *p = r->packing;
  return p->parts >= 1 && p->split >= 1 && (p->parts == 1 || p->split == 1) &&
         (p->split == 1 || p->packed < r->rank) &&
         (p->parts == 1 || p->packed < r->rank || p->packed == AT_ME_RANK);
}

// A view that a load reads: its leading dimensions may be missing, and a
// dimension may be longer, never shorter.
static bool load_holds(const at_me_node *n) {
  bool well = at_me_ref_holds(n->ref) && n->ref->rank >= n->rank;
  for (uint32_t d = 0; well && d < n->rank; d++)
    well = is_from(n->ref->size[n->ref->rank - n->rank + d], n->dim[d]);
  return well;
}

// Elements one after the other, row-major.
static bool buffer_holds(const at_me_node *n) {
  bool well = n->ref->base && n->ref->rank == n->rank;
  int64_t step = 1;
  for (uint32_t d = n->rank; well && d-- > 0; step *= n->dim[d])
    well = n->dim[d] == 1 || n->ref->stride[d].v || n->ref->stride[d].c == step;
  return well;
}

// Dimensions from the last on are the operand's, or repeat its only element.
static bool broadcast_holds(const at_me_node *n) {
  const at_me_node *in = n->in[0];
  bool well = in->rank <= n->rank;
  for (uint32_t d = 0; well && d < in->rank; d++) {
    int64_t have = n->dim[n->rank - in->rank + d];
    well = in->dim[d] == 1 || in->dim[d] == have;
  }
  return well;
}

// ints is a permutation, and each dimension has the size that it takes over.
static bool transpose_holds(const at_me_node *n) {
  uint32_t seen = 0;
  for (uint32_t d = 0; d < n->rank; d++) {
    int64_t from = n->ints[d];
    if (from < 0 || from >= n->rank || (seen >> from & 1) ||
        n->dim[d] != n->in[0]->dim[from])
      return false;
    seen |= 1u << from;
  }
  return n->rank == n->in[0]->rank;
}

// The last element of the slice lies in the operand, along every dimension.
static bool slice_holds(const at_me_node *n) {
  bool well = n->rank == n->in[0]->rank;
  for (uint32_t d = 0; well && d < n->rank; d++)
    well = n->ints[d] >= 0 && n->step[d] >= 1 &&
           n->ints[d] + (n->dim[d] - 1) * n->step[d] < n->in[0]->dim[d];
  return well;
}

// The shapes differ in dimension ints[0] only, which is one.
static bool along_one(const at_me_node *n) {
  int64_t at = n->ints[0];
  bool well = n->rank == n->in[0]->rank && at >= 0 && at < n->rank;
  for (uint32_t d = 0; well && d < n->rank; d++)
    well = d == at || n->dim[d] == n->in[0]->dim[d];
  return well;
}

// At least one dimension is counted, and each is one of the node's.
static bool iota_holds(const at_me_node *n) {
  int64_t k = n->ints[AT_ME_RANK - 1];
  bool well = k >= 1 && k <= n->rank;
  for (int64_t i = 0; well && i < k; i++)
    well = n->ints[i] >= 0 && n->ints[i] < n->rank;
  return well;
}

// Without operands nobody needs it any more (at_me_node_release).
static bool apply_holds(const at_me_node *n) {
  for (uint32_t i = 0; i < n->num_in; i++)
    if (n->in[i]->kind != AT_ME_SPLAT && !has_shape(n->in[i], n)) return false;
  return true;
}

// By kind of node; what is not listed has no law yet.
bool at_me_node_holds(const at_me_node *n) {
  if (n->rank > AT_ME_RANK || n->num_in > AT_ME_MAX_IN) return false;
  for (uint32_t i = 0; i < n->num_in; i++)
    if (!n->in[i]) return true;  // no memory: at_em_fail has noted it
  const at_me_node *in = n->in[0];
  switch (n->kind) {
    case AT_ME_SPLAT:
      return n->scalar && !n->num_in;
    case AT_ME_IOTA:
      return iota_holds(n);
    case AT_ME_LOAD:
      return load_holds(n);
    case AT_ME_BUFFER:
      return buffer_holds(n);
    case AT_ME_APPLY:
      return apply_holds(n);
    case AT_ME_RESHAPE:
      return at_me_elements(n) == at_me_elements(in);
    case AT_ME_BROADCAST:
      return broadcast_holds(n);
    case AT_ME_TRANSPOSE:
      return transpose_holds(n);
    case AT_ME_SLICE:
      return slice_holds(n);
    case AT_ME_ROTATE:
      return n->scalar && has_shape(n, in) && along_one(n) &&
             n->ints[2] < (int64_t)n->rank && n->ints[2] != n->ints[0];
    case AT_ME_TAKE:
      return n->num_in == 2 && has_shape(n->in[1], n) && along_one(n);
    case AT_ME_PICK:
      return n->ref->base && along_one(n);
    case AT_ME_REPEAT:
      return along_one(n) && n->dim[n->ints[0]] % in->dim[n->ints[0]] == 0;
    default:
      return true;
  }
}

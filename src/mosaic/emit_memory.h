// Accesses to memory: what is checked of them, boxes, views of other layouts.
#ifndef ATOLL_MOSAIC_EMIT_MEMORY_H_
#define ATOLL_MOSAIC_EMIT_MEMORY_H_

#include "mosaic/emit.h"

// ---- Checks
// 0 <= index and index + size <= limit along `dim` of the ref, else the kernel
// ends at op. A box of a size that is only known at run time may be empty: then
// it is nowhere.
void at_me_guard(at_me *m, const at_mop *op, const at_me_ref *ref, uint32_t dim,
                 at_me_num index, at_me_num size, at_me_num limit);
// The box as the virtual core is told of it, an at_core_view at the record's
// begin.
void at_me_fill_view(at_me *m, const at_me_ref *r, at_me_record *v);
// Of an access; nothing where accesses are not checked, or in transforms.
void at_me_access(at_me *m, const at_me_ref *r, int32_t kind, int32_t loc);
void at_me_access_packed(at_me *m, const at_me_ref *r, const at_me_node *mask,
                         int32_t kind, int32_t loc);
// where: NULL, or the elements that are used.
void at_me_check_nan(at_me *m, const at_mop *op, at_me_node *v,
                     at_me_node *where, at_core_nan_use use);
// A select by a scalar: what the side that it takes was loaded from counts.
void at_me_announce_choice(at_me *m, const at_mop *op);
// Before a wait for a copy to `r`.
void at_me_expect(at_me *m, const at_me_ref *r, int32_t loc);
// A store where the mask says so (NULL: everywhere); it is not known for packed
// rows.
void at_me_announce_store(at_me *m, const at_mop *op, const at_me_ref *box,
                          at_me_node *mask);
// How a load is announced: does it count, or may a choice drop it?
int32_t at_me_load_kind(at_me *m, const at_mop *op);
// Bytes, one per element; NULL at run time: there is no mask.
LLVMValueRef at_me_mask_bytes(at_me *m, const at_me_node *mask);

// ---- Boxes
// An index operand, sign-extended to i64.
at_me_num at_me_index_of(at_me *m, const at_mvalue *scalar);
// Both known and equal, or the same register. False says nothing.
bool at_me_same_num(at_me_num a, at_me_num b);
// A box of `ref`: `size` elements of each of its last dimensions (1 of those
// before), `step` apart (NULL: 1), from the indices given as operands `first`..
// of op. Checked against the ref's shape.
at_status at_me_box(at_me *m, const at_mop *op, const at_me_ref *ref,
                    uint32_t first, uint32_t rank, const int64_t *size,
                    const int64_t *step, at_me_ref *out);
// The same for a load or store of a kernel that has no bounds checks: what does
// not lie in the ref is noted in *b (else all zeros).
// Index, count and step of the box per dimension of the ref.
typedef struct at_me_beyond {
  at_me_ref ref;
  LLVMValueRef outside;  // i1: it leaves the ref; NULL: known
  bool always;           // it does
  bool chosen;  // a choice may drop what is read there: any value is good
  at_me_num index[AT_ME_RANK];
  int64_t count[AT_ME_RANK], step[AT_ME_RANK];
} at_me_beyond;
// The box of an access whose indices are operands of op from `first` on. *b
// says where it may leave the ref; with bounds checks the kernel ends there
// instead.
at_status at_me_box_beyond(at_me *m, const at_mop *op, const at_me_ref *ref,
                           uint32_t first, uint32_t rank, const int64_t *size,
                           const int64_t *step, at_me_ref *out,
                           at_me_beyond *b);
// Is the ref's kernel one without bounds checks, and the ref one of memory that
// can be left?
bool at_me_is_open(const at_me *m, const at_me_ref *r);
// Does a plain load or store stay inside, as far as can be said here? `ref`:
// the operand before the indices; closed ones end the kernel else.
bool at_me_stays_inside(at_me *m, const at_mop *op, uint32_t ref,
                        const at_mtype *vector);
// Notes dimension d: `count` elements from `index`, `step` apart.
void at_me_beyond_dim(at_me *m, at_me_beyond *b, uint32_t d, at_me_num index,
                      int64_t count, int64_t step);
// Before the access: where the box leaves its ref, it becomes memory of its own
// that holds what is there. After a store: that goes back.
void at_me_beyond_begin(at_me *m, const at_mop *op, const at_me_beyond *b,
                        at_me_ref *box);
void at_me_beyond_end(at_me *m, const at_mop *op, const at_me_beyond *b,
                      const at_me_ref *box);
// Where a slice of a dimension begins, moved into it.
at_me_num at_me_beyond_start(at_me *m, at_me_num index, int64_t size);
// What is really there of dimension d.
at_me_num at_me_valid(const at_me_ref *r, uint32_t d);
// The ref where all of it is there; else the kernel ends at op.
at_me_ref at_me_whole(at_me *m, const at_mop *op, const at_me_ref *r);
// A bitcast view as its memory holds it, whose rows must be whole.
at_status at_me_stored_view(at_me *m, const at_mop *op, const at_me_ref *r,
                            at_me_ref *out);
// Both sides of a transfer in pieces of the same size, whatever the widths of
// their elements; dimension 0 stays the first. packed_bits > 0: one side, dst
// where `unpack`, holds elements of so many bits in a byte each, packed_step
// bytes apart, of which 8 / packed_bits make a byte of the other side.
// Sizes of dst are those that are moved; src has as many dimensions.
typedef struct at_me_pieces {
  at_me_ref src, dst;
  int32_t packed_bits;
  bool unpack, packed_signed;
  at_me_num packed_step;
} at_me_pieces;
// UNIMPLEMENTED where no pieces suit both sides.
at_status at_me_pieces_of(at_me *m, const at_mop *op, const at_me_ref *from,
                          const at_me_ref *to, at_me_pieces *out);
// Where copies to r may still wait (home->pages), a call that completes those
// to the elements of r.
void at_me_pages_fetch(at_me *m, const at_me_ref *r);
// Masked accesses on SparseCore: memory holds the selected elements only.
bool at_me_is_sparse(const at_me *m);
at_me_num at_me_kept(at_me *m, at_me_node *mask);  // how many it keeps
// A load sets op's result: elements whose mask is off are zero. A store writes
// (or adds to) as many elements as the mask keeps. kind: how the access is
// announced. Masks over more than one row are refused.
at_status at_me_load_expanded(at_me *m, at_mop *op, const at_me_ref *box,
                              at_me_node *mask, int32_t kind);
at_status at_me_store_compressed(at_me *m, at_mop *op, const at_me_ref *box,
                                 at_me_node *value, at_me_node *mask, bool add);
// The same with what either needs: b NULL where leaving the ref ends the
// kernel; kept: NULL, or how many elements of the last dimension are touched.
at_status at_me_box_of(at_me *m, const at_mop *op, const at_me_ref *ref,
                       uint32_t first, uint32_t rank, const int64_t *size,
                       const int64_t *step, const at_me_num *kept,
                       at_me_ref *out, at_me_beyond *b);
// The box of a load or store of the whole vector v. Of a packed one, behind
// which the ref may end, only the elements that its mask keeps are there.
at_status at_me_vector_box(at_me *m, const at_mop *op, const at_me_ref *ref,
                           uint32_t first, const at_me_node *v,
                           at_me_node *mask, at_me_ref *out, at_me_beyond *b);

// Memory of the core's stack of allocations in space s, until it is released to
// a mark that was taken before.
LLVMValueRef at_me_alloc(at_me *m, const at_mop *op, at_core_space s,
                         int64_t bytes);

#endif

// The writer of kernel bodies. Vector values are expressions: nothing is
// computed until a sink (a store, a reduction, a product, a value that several
// sinks need) walks them in one loop nest. Refs are descriptions of memory
// whose parts are constants or registers; views of refs cost nothing.
#ifndef ATOLL_MOSAIC_EMIT_H_
#define ATOLL_MOSAIC_EMIT_H_

#include "base/map.h"
#include "codegen/build.h"
#include "mosaic/code.h"

typedef struct at_mk_node at_mk_node;

enum { AT_MK_RANK = AT_CORE_MAX_RANK, AT_MK_MAX_IN = 8 };

// A number that may be known: v NULL means the constant c; v is i64.
typedef struct at_mk_num {
  int64_t c;
  LLVMValueRef v;
} at_mk_num;

// A memref: where its first element is and how its dimensions lie in memory.
typedef struct at_mk_ref {
  LLVMValueRef base;
  at_dtype dtype;    // element of the view; INVALID: semaphores
  at_dtype storage;  // element in memory
  uint32_t bytes;    // of an element in memory; strides count these
  uint32_t rank;
  at_mk_num size[AT_MK_RANK], stride[AT_MK_RANK];
  at_mosaic_space space;
  uint32_t root;  // refs of different roots do not overlap
  // A bitcast view; both 1 otherwise. parts > 1: an element is made of that
  // many memory elements, part_stride apart along the packed dimension. split >
  // 1: a memory element holds that many of ours along the packed dimension,
  // which is `packed`; our index there counts from `row`.
  uint32_t parts, split, packed;
  at_mk_num part_stride, row;
} at_mk_ref;

typedef enum at_mk_kind {
  AT_MK_SPLAT,      // one scalar everywhere
  AT_MK_IOTA,       // ints: dimensions
  AT_MK_LOAD,       // `ref`, a view of this shape
  AT_MK_BUFFER,     // dense temporary or constant at ref.base
  AT_MK_APPLY,      // elementwise `op`
  AT_MK_RESHAPE,    // the same elements in row-major order
  AT_MK_BROADCAST,  // right-aligned dimensions
  AT_MK_TRANSPOSE,  // ints: permutation
  AT_MK_SLICE,      // ints: offsets; step: strides
  AT_MK_ROTATE,     // ints: dimension, stride, stride dimension or -1
  AT_MK_TAKE,       // in[1]: indices along ints[0]
  AT_MK_PICK,       // table: static indices along ints[0]
  AT_MK_REPEAT,     // copies one after another along ints[0]
  AT_MK_JOIN,       // part `ints[1]` .. of packed rows: bitcast to wider
  AT_MK_SPLIT,      // bitcast to narrower along dimension ints[0]
  AT_MK_MASK,       // ints: low, step: high per dimension
  AT_MK_DOT         // a product that nobody has asked for yet
} at_mk_kind;

struct at_mk_node {
  at_mk_kind kind;
  at_dtype dtype;
  uint32_t rank;
  int64_t dim[AT_MK_RANK];
  const at_mop *op;
  at_mosaic_opcode code;  // APPLY
  at_mk_node *in[AT_MK_MAX_IN];
  uint32_t num_in;
  LLVMValueRef scalar;  // SPLAT: a register; ROTATE: the amount, i32
  at_mk_ref ref;        // LOAD, BUFFER, MASK
  int64_t ints[AT_MK_RANK], step[AT_MK_RANK];
  uint64_t reads;  // roots that it may still read
  uint32_t refs;   // uses to come, and nodes that hold it (`holds`)
  uint32_t holds;
  uint32_t region;  // where it was defined
  uint32_t depth;   // loops around the definition
  int64_t slot;     // BUFFER: offset in the temporary memory, -1: not owned
  int64_t slot_bytes;
  at_mk_node *prev, *next;  // nodes that are not computed yet
  bool listed;
  uint32_t mark;  // of the last walk that came by
};

typedef enum at_mk_slot_kind {
  AT_MK_NONE,
  AT_MK_SCALAR,
  AT_MK_VECTOR,
  AT_MK_MEMORY
} at_mk_slot_kind;

// What is known of an SSA value.
typedef struct at_mk_slot {
  at_mk_slot_kind kind;
  LLVMValueRef scalar;
  at_mk_node *node;
  at_mk_ref *ref;
  uint32_t uses;       // operands that name it
  double cost;         // of an element, if computed where it is used
  const at_mop *sink;  // the only operation that makes somebody compute it
  bool many;           // several do
  uint32_t depth;      // loops around the definition
} at_mk_slot;

typedef struct at_mk_free {
  int64_t offset, bytes;
  struct at_mk_free *next;
} at_mk_free;

typedef struct at_mk {
  at_em *e;
  at_arena *a;
  const at_mosaic_kernel *k;
  const at_mosaic_program *p;
  const at_mosaic_code_options *o;
  at_mosaic_code *out;
  at_map slots;  // at_mvalue * -> at_mk_slot *
  LLVMValueRef core, grid, refs, temp;
  uint32_t region, next_region, depth, mark;
  uint32_t next_root;
  uint64_t dma_roots;  // written by transfers
  at_map roots;        // at_mvalue * -> root + 1
  at_mk_node *live;    // of nodes that are not computed yet
  at_mk_free *free_list;
  AT_VEC(at_mk_node *) later;  // buffers to free when their loop ends
  int64_t temp_bytes;
  const at_mloc **locs;  // room for one per operation
  const char **loc_ops;
  uint32_t num_locs, max_locs;
  LLVMValueRef view;               // an at_core_view on the stack
  uint32_t calls;                  // nesting of func.call
  at_map dots;                     // state of explicit MXU operations
  const at_mosaic_window *window;  // a transform is written; NULL: the body
} at_mk;

// ---- values
// ------------------------------------------------------------------
at_mk_slot *at_mk_slot_of(at_mk *m, const at_mvalue *v);  // never NULL
LLVMValueRef at_mk_scalar(at_mk *m, const at_mvalue *v);
at_mk_node *at_mk_vector(at_mk *m, const at_mvalue *v);
at_mk_ref *at_mk_memory(at_mk *m, const at_mvalue *v);
void at_mk_set_scalar(at_mk *m, const at_mvalue *v, LLVMValueRef s);
// Takes over the node as the result of an operation: lazy, or computed at once
// when the analysis says so.
at_status at_mk_set_node(at_mk *m, at_mvalue *v, at_mk_node *n);
void at_mk_set_ref(at_mk *m, const at_mvalue *v, const at_mk_ref *r);
bool at_mk_is_vector(const at_mvalue *v);
int32_t at_mk_loc(at_mk *m, const at_mop *op);
__attribute__((format(printf, 3, 4))) at_status at_mk_refuse(at_mk *m,
                                                             const at_mop *op,
                                                             const char *fmt,
                                                             ...);
bool at_mk_ints(const at_mop *op, const char *name, int64_t *out, uint32_t max,
                uint32_t *n);
int64_t at_mk_int(const at_mop *op, const char *name, int64_t otherwise);
uint32_t at_mk_segment(const at_mop *op, uint32_t i, uint32_t *first);

LLVMValueRef at_mk_i32(at_mk *m, int64_t v);
LLVMValueRef at_mk_i64(at_mk *m, LLVMValueRef i32);  // sign-extended
LLVMValueRef at_mk_num_value(at_mk *m, at_mk_num n);
// base + n * bytes
LLVMValueRef at_mk_offset(at_mk *m, LLVMValueRef base, uint32_t bytes,
                          at_mk_num n);
at_mk_num at_mk_num_of(LLVMValueRef i64);
at_mk_num at_mk_add(at_mk *m, at_mk_num a, at_mk_num b);
at_mk_num at_mk_mul(at_mk *m, at_mk_num a, at_mk_num b);

// ---- analysis
// ------------------------------------------------------------------
at_status at_mk_analyse(at_mk *m, at_mblock *body);
uint64_t at_mk_written(at_mk *m, const at_mop *op);  // roots, nested ops too
uint64_t at_mk_root_bit(uint32_t root);
double at_mk_weight(at_mosaic_opcode c);
bool at_mk_lazy(at_mosaic_opcode c);

// ---- nodes
// -----------------------------------------------------------------------
at_mk_node *at_mk_node_new(at_mk *m, at_mk_kind kind, const at_mop *op,
                           const at_mtype *type);
void at_mk_node_hold(at_mk *m, at_mk_node *n, at_mk_node *in);
void at_mk_node_reads(at_mk *m, at_mk_node *n, uint64_t roots);
void at_mk_node_release(at_mk *m, at_mk_node *n);
void at_mk_node_unlist(at_mk *m, at_mk_node *n);
// The last `rank` dimensions; those before have size 1.
void at_mk_ref_trim(at_mk_ref *r, uint32_t rank);
// Strides of `to` (sizes known) over the memory of `from`; false: not one view.
bool at_mk_reshape_view(at_mk *m, const at_mk_ref *from, at_mk_ref *to);
void at_mk_node_drop(at_mk *m, at_mk_node *n);  // one use fewer
int64_t at_mk_elements(const at_mk_node *n);
at_mk_node *at_mk_splat(at_mk *m, at_dtype t, LLVMValueRef scalar);
at_val at_mk_eval(at_mk *m, at_mk_node *n, const at_pos *p);
at_val at_mk_apply(at_mk *m, const at_mop *op, at_mosaic_opcode code,
                   const at_dtype *types, at_dtype rt, at_val *args);
// Registers as integers of the storage width (logical bits, zero above) and
// back.
LLVMValueRef at_mk_to_bits(at_mk *m, at_dtype t, LLVMValueRef v);
LLVMValueRef at_mk_from_bits(at_mk *m, at_dtype t, LLVMValueRef bits);
at_val at_mk_ref_load(at_mk *m, const at_mk_ref *r, const at_pos *p);
void at_mk_ref_store(at_mk *m, const at_mk_ref *r, const at_pos *p, at_val v);
at_status at_mk_emit_lazy(at_mk *m, at_mop *op, bool *done);

// ---- sinks
// ----------------------------------------------------------------------- Makes
// a BUFFER (or what is as good: a dense constant) of n, in place if its region
// is this one, else a new node; the caller drops it either way.
at_mk_node *at_mk_materialise(at_mk *m, at_mk_node *n);
// The same for what only needs random access: loads stay.
at_mk_node *at_mk_readable(at_mk *m, at_mk_node *n);
at_mk_node *at_mk_buffer(at_mk *m, const at_mop *op, at_dtype t, uint32_t rank,
                         const int64_t *dim);
// Everything below n that cannot be computed inside a loop nest is computed.
void at_mk_prepare(at_mk *m, at_mk_node *n);
// Computes lazy nodes that read these roots and are needed after the current
// operation, whose operand `own` (or NULL) is.
void at_mk_settle(at_mk *m, uint64_t roots, const at_mk_node *own);
void at_mk_settle_all(at_mk *m, const at_mop *region);
// dst[i] = n[i] (where mask), over all elements.
typedef enum at_mk_store_mode { AT_MK_PLAIN, AT_MK_ADD } at_mk_store_mode;
void at_mk_copy_to(at_mk *m, at_mk_node *n, const at_mk_ref *dst,
                   at_mk_node *mask, at_mk_store_mode mode);
typedef void (*at_mk_body_fn)(at_mk *m, const at_pos *p, void *arg);
// Runs body over digits whose innermost has the lanes that fit `nodes`.
typedef struct at_mk_space {
  int64_t total, cut[3 * AT_MK_RANK];  // suffix products
  uint32_t n;
  uint32_t widest;  // register bytes
  bool scalar;      // no lanes
} at_mk_space;
void at_mk_space_add(at_mk_space *s, int64_t suffix);
void at_mk_space_dims(at_mk_space *s, uint32_t rank, const int64_t *dim);
void at_mk_space_ref(at_mk_space *s, const at_mk_ref *r);
void at_mk_space_tree(at_mk *m, at_mk_space *s, at_mk_node *n);
void at_mk_loops(at_mk *m, const at_mk_space *s, at_mk_body_fn body, void *arg);
uint32_t at_mk_lanes(at_mk *m, const at_mk_space *s, int64_t size);
LLVMValueRef at_mk_temp_at(at_mk *m, int64_t offset);
int64_t at_mk_temp_alloc(at_mk *m, int64_t bytes);
void at_mk_temp_free(at_mk *m, int64_t offset, int64_t bytes);
void at_mk_leave_loop(at_mk *m);
void at_mk_dense(at_mk *m, at_mk_ref *r, LLVMValueRef base, at_dtype t,
                 uint32_t rank, const int64_t *dim);
// A view of n's elements for a callee: n is made readable in one type without
// casts. Yields the node to drop.
at_mk_node *at_mk_view(at_mk *m, at_mk_node *n, at_mk_ref *view);

LLVMValueRef at_mk_mark(at_mk *m);
void at_mk_release_to(at_mk *m, const at_mop *op, LLVMValueRef mark);

// ---- operations, by theme: done says whether the op was theirs
// -------------------
at_status at_mk_emit_block(at_mk *m, at_mblock *b);
at_status at_mk_emit_op(at_mk *m, at_mop *op);
at_status at_mk_emit_memory(at_mk *m, at_mop *op, bool *done);
at_status at_mk_emit_control(at_mk *m, at_mop *op, bool *done);
at_status at_mk_emit_reduce(at_mk *m, at_mop *op, bool *done);
at_status at_mk_emit_order(at_mk *m, at_mop *op, bool *done);
at_status at_mk_emit_dot(at_mk *m, at_mop *op, bool *done);
at_status at_mk_emit_core(at_mk *m, at_mop *op, bool *done);
void at_mk_dot_run(at_mk *m, at_mk_node *dot, const at_mk_ref *dst,
                   bool accumulate);
bool at_mk_dot_into(at_mk *m, at_mk_node *value, const at_mk_ref *dst);
void at_mk_access(at_mk *m, const at_mk_ref *r, int32_t kind, int32_t loc);
// A box of `ref`: `size` elements of each of its last dimensions (1 of those
// before), `step` apart (NULL: 1), from the indices given as operands `first`..
// of op. Checked against the ref's shape.
at_status at_mk_box(at_mk *m, const at_mop *op, const at_mk_ref *ref,
                    uint32_t first, uint32_t rank, const int64_t *size,
                    const int64_t *step, at_mk_ref *out);
at_core_space at_mk_space_of(at_mosaic_space s);
LLVMValueRef at_mk_alloc(at_mk *m, const at_mop *op, at_core_space s,
                         int64_t bytes);

#endif

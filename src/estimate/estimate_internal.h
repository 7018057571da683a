// What the parts of an estimate share: how a computation is cut into kernels,
// what the kernel models need to know of each, and where values lie. Memory:
// results live in the arena that is given and borrow from the program. Errors:
// RESOURCE_EXHAUSTED alone, unless a line says more. Threads: any; nothing here
// is shared.
#ifndef ATOLL_ESTIMATE_ESTIMATE_INTERNAL_H_
#define ATOLL_ESTIMATE_ESTIMATE_INTERNAL_H_

#include "cost/host.h"
#include "cost/tpu.h"
#include "estimate/estimate.h"

// ---- Kernels of a computation (group.c)
// An operand of a kernel. A slice reads less than the whole value.
typedef struct at_est_read {
  at_value value;
  double bytes;   // read of it, dense
  bool narrow;    // read as bf16, which it was converted to before the loop
  bool feeds[2];  // the product's operand 0 or 1 is made of it
} at_est_read;
typedef AT_VEC(at_value) at_est_values;

// A kernel: the nodes of a fusion, or one node alone. A node that is computed
// again is in `nodes` of several kernels, in `own` of one at most.
typedef struct at_est_group {
  at_node *root;          // names the group: the last node of its first output
  at_node *product;       // its dot or convolution, or NULL
  AT_VEC(at_node *) own;  // what it alone computes, in the order of the program
  AT_VEC(at_node *) nodes;    // with what others compute again
  AT_VEC(at_est_read) reads;  // values of other groups, parameters, constants
  at_est_values writes;       // values that others use
  // Vector operations per element (those of narrow types count half),
  // reductions, and nodes that are transcendental.
  double ops, reduces, transcendentals;
  // How the compiler would run it.
  bool alone;            // one op: nothing fused
  bool softmax;          // one kernel that holds the rows it normalizes
  bool by_rows;          // its windows hold whole rows, which it reduces
  uint32_t order;        // of the root in the computation
  at_tpu_kernel kernel;  // filled by at_est_kernel
} at_est_group;

// The kernels of one computation. Each reads only what kernels before it in the
// list write, and what is given.
typedef struct at_est_groups {
  at_est_group **list;  // in an order in which they can run
  uint32_t count;
  at_map of;        // node -> at_est_group that computes it (for its readers)
  uint64_t visits;  // of nodes while cutting; for tests of how work grows
} at_est_groups;
// Cuts a computation into kernels. `fuse` false: one kernel per node (its
// FUSION nodes are kernels already).
at_status at_est_group_nodes(const at_comp *c, bool fuse, at_arena *a,
                             at_est_groups *out);
// A TPU's kernels as its memory sees them, cut by the same rules: those that
// become one without storing less are told apart.
at_status at_est_group_stored(const at_comp *c, at_arena *a,
                              at_est_groups *out);
// Stands for one value of a node in maps by pointer.
static inline const void *at_est_key(at_value v) { return at_value_type(v); }
// The value behind reshapes and other renamings.
// Never NULL: a renaming without operands stands for itself.
at_value at_est_behind(at_value v);
// A reshape or an optimization barrier: no data moves.
bool at_est_is_renaming(const at_node *n);
// An update of operand 0 in its place.
bool at_est_updates(const at_node *n);

// ---- TPU features of a group (kernel.c)
// `in_vmem(user, value)` says where an operand is when the kernel starts;
// results go to VMEM when `out_vmem` says so.
typedef struct at_est_placement {
  bool (*in_vmem)(void *user, at_value v);
  bool (*out_vmem)(void *user, at_value v);
  void *user;
} at_est_placement;
// Fills the sizes of *out from shapes; how it is cut into windows is
// at_tpu_kernel_grid's part.
void at_est_kernel(const at_est_group *g, const at_est_placement *p,
                   at_tpu_kernel *out);
// FLOPs and transcendentals that a kernel computes, whoever else does.
double at_est_flops(const at_est_group *g);
// In how many bf16 products a product's operands are multiplied.
double at_est_products(const at_node *n);

// ---- Images of a TPU's convolutions (images.c)
// A batch lies along the sublanes, channels along the lanes. A batch that does
// not fill the sublanes is filled with eight parts of each row, which overlap
// by `halo`.
// Sizes in elements.
typedef struct at_est_image {
  double batch, height, width, channels;
  double out_height, out_width, filters;
  double taps;  // of the kernel, in all
  bool depthwise;
  bool flat;   // few channels, which then lie along the sublanes
  bool split;  // rows are cut into parts
  double part, out_part, halo;  // pixels of a part
} at_est_image;
// False: no image of two dimensions whose sizes are known.
bool at_est_image_of(const at_node *conv, at_est_image *out);
// Is `v` the image of this convolution, with something else than its batch
// along the sublanes? The kernel turns it while it reads it from HBM.
bool at_est_image_is_turned(const at_node *conv, at_value v);
// Tiles of the operand or the result as the convolution sees it.
double at_est_image_tiles(const at_est_image *m, bool result);
// What a convolution does beside, or instead of, its products per tap.
void at_est_image_work(const at_node *conv, at_tpu_kernel *k);

// ---- How far back the values of a computation were touched (host.c)
typedef struct at_est_reuse {
  at_arena *arena;
  const at_comp *comp;
  // What was touched when: values, by the type of theirs, and addresses; ->
  // double: bytes touched until then.
  at_map last;
  bool (*address)(void *user, at_value v, uint64_t *out);
  void *address_user;
  bool failed;  // no memory to remember
  double now;
  // Bytes; distances are never longer than the first.
  double footprint;  // touched in one run: what lies between two runs
  double temps;      // of it, memory that values share
} at_est_reuse;
// For one run of c, a loop's body included: sums what it touches. *e must have
// its memory plan. Errors as at_host_node.
at_status at_est_reuse_start(const at_target *t, const at_estimate_options *o,
                             const at_estimate *e, const at_comp *c,
                             at_arena *a, at_est_reuse *out);
// What it tells the host's model of steps.
at_host_memory at_est_host_memory(at_est_reuse *r);
// Bytes that passed since v was last touched, this use included; user: the
// at_est_reuse, whose clock goes on. Kernels must ask in the order in which
// they run.
double at_est_distance(void *user, at_value v, double bytes, bool write);

// ---- Memory and texts (memory.c, run.c)
// Bytes in the target's layout; 0: the size is not known.
uint64_t at_est_padded(const at_target *t, const at_type *type);
// Arguments, results, temporaries, peak and the largest buffers of *e: of the
// entry computation c on one device of t.
at_status at_est_memory(at_estimate *e, const at_comp *c, const at_target *t,
                        at_arena *a);
// What a value is called: "argument 3 w", "dot_general.12"; made:
// at_estimate_temp. NULL: no memory.
const char *at_est_name(at_arena *a, at_value v, const char *made);
// "train.py:33", or "" where it is not known. NULL for loc is allowed. These
// two give "" without memory; at_arena_status tells.
const char *at_est_source(at_arena *a, const at_loc *loc);
// "bf16[8,512]", in the arena.
const char *at_est_type(at_arena *a, const at_type *t);

#endif

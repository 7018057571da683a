// Transposes that the compiler does between two reshapes, as in a pixel
// shuffle. Reshapes are free only where lanes and sublanes hold whole
// dimensions, so the array goes through layouts that pad: one with the last
// dimension but one along the lanes, one with the last dimension along the
// lanes and the first along the sublanes, and that of the result.
#include <math.h>

#include "estimate/walk.h"

enum { kLanes = 128, kSublanes = 8, kLeastRank = 5 };
static const double kWindowBytes = 1 << 20;  // of the larger side of a copy
// Relaid tiles per block of 128 x 128, and more per 32 of its lanes.
static const double kBlock = 1.4, kQuarter = 5.3;
enum { kFreeSteps = 8 };  // of a copy within VMEM that moves whole tiles

// A size, counted from the last dimension.
static double dim(const at_type *t, uint32_t from_last) {
  return (double)t->dims[t->rank - 1 - from_last];
}

// Tiles along the sublanes: short dimensions take a part of one.
static double sublanes(double n) {
  double least = n <= 1 ? 1 : exp2(ceil(log2(n)));
  return least < kSublanes ? least / kSublanes : ceil(n / kSublanes);
}

// See walk.h: a transpose of rank 5 or more between two reshapes. Sizes of the
// two padded layouts.
bool at_est_shuffle_of(const at_est_residency *r, const at_node *n,
                       at_est_shuffle *out) {
  at_est_shuffle s = {0};
  if (n->op != AT_OP_TRANSPOSE || n->types[0].rank < kLeastRank ||
      n->operands[0].node->op != AT_OP_RESHAPE)
    return false;
  s.before = at_est_behind(n->operands[0]);
  AT_FOR_NODES(user, r->comp)
  if (user->op == AT_OP_RESHAPE && user->operands[0].node == n)
    s.after = (at_value){(at_node *)user, 0};
  if (!s.after.node) return false;
  const at_type *in = at_value_type(s.before), *to = at_value_type(s.after);
  if (!at_type_is_static(in) || in->rank < 3 || to->rank < 3) return false;
  double bytes = (double)at_dtype_of(in->dtype)->bits / 8;
  double all = (double)at_type_elements(in);
  double rows = all / fmax(1, dim(in, 0) * dim(in, 1));
  s.blocks = rows * ceil(dim(in, 0) / kLanes) * ceil(dim(in, 1) / kLanes);
  s.quarters = exp2(ceil(log2(fmax(1, fmin(dim(in, 1), kLanes) / 32))));
  s.lanes_bytes = rows * ceil(dim(in, 1) / kLanes) *
                  ceil(dim(in, 0) / kSublanes) * kLanes * kSublanes * bytes;
  double first = (double)to->dims[0], last = dim(to, 0);
  s.tiles = all / fmax(1, first * last) * ceil(last / kLanes);
  s.padded_bytes = s.tiles * sublanes(first) * kLanes * kSublanes * bytes;
  s.rows = rows / fmax(1, (double)in->dims[0]);
  *out = s;
  return true;
}

// Does it stay in VMEM? Two cores keep none there.
static bool fits(const at_est_residency *r, double bytes) {
  return r->w->chip.cores < 2 && bytes <= r->capacity - r->used;
}

// A copy of one step, before it is cut into more.
static at_tpu_kernel copy(double tiles) {
  return (at_tpu_kernel){.kind = AT_TPU_COPY,
                         .operand_bytes = 4,
                         .repeat = 1,
                         .tiles = tiles,
                         .steps = 1,
                         .out_windows = 1};
}

// Windows of a copy of so many bytes.
static double windows(double bytes) {
  return fmax(1, ceil(bytes / kWindowBytes));
}

// Each part reads what the one before wrote, in VMEM if that fitted.
at_tpu_kernel at_est_shuffle_kernel(const at_est_residency *r,
                                    const at_est_shuffle *s,
                                    at_est_shuffle_part part) {
  bool in_lanes = fits(r, s->lanes_bytes), in_pads = fits(r, s->padded_bytes);
  at_tpu_kernel k = copy(s->tiles);
  if (part == AT_EST_SHUFFLE_LANES) {
    k.tiles = 1;
    k.relaid = s->blocks * (kBlock + kQuarter * s->quarters);
    k.resident = in_lanes;
    k.vmem_in = s->lanes_bytes;
    if (in_lanes) return k;
    k.hbm_in = at_est_tiled(s->before), k.hbm_out = s->lanes_bytes;
    k.steps = windows(s->lanes_bytes);
  } else if (part == AT_EST_SHUFFLE_MOVE) {
    k.steps = kFreeSteps;
    k.resident = in_pads;
    k.vmem_in = s->lanes_bytes;
    if (in_pads) return k;
    if (!in_lanes) k.hbm_in = s->lanes_bytes;
    k.hbm_out = s->padded_bytes;
    k.steps = s->rows * ceil(windows(s->padded_bytes) / (2 * s->rows));
    if (!in_lanes) k.steps *= 2;
  } else {
    double bytes = at_est_tiled(s->after);
    k.tiles = bytes / at_tpu_tile_bytes(at_value_type(s->after)->dtype);
    k.steps = windows(s->padded_bytes);
    if (in_pads)
      k.vmem_in = s->padded_bytes;
    else
      k.hbm_in = s->padded_bytes;
    k.hbm_out = bytes;
  }
  return k;
}

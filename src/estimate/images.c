// How a TPU's convolutions see images: which dimension lies along the lanes,
// what is cut into parts, and what work that is.
#include <math.h>

#include "estimate/estimate_internal.h"

enum {
  kSublanes = 8,
  kLanes = 128,
  kWhole = 14  // images of this width without taps along it are not cut
};

// The size of the dimension that an attribute names.
static double dim(const at_type *t, const at_node *n, at_attr_id which) {
  return (double)t->dims[at_node_int(n, which, 0)];
}

// Parts have 2^n result pixels.
static double part_of(double width) {
  return exp2(ceil(log2(fmax(1, ceil(width / kSublanes)))));
}

// See estimate_internal.h. A batch of less than eight is cut into parts of rows
// if a part holds its halo.
bool at_est_image_of(const at_node *conv, at_est_image *out) {
  at_est_image m = {.taps = 1};
  const at_type *in = at_value_type(conv->operands[0]);
  const at_type *kernel = at_value_type(conv->operands[1]);
  const at_type *to = &conv->types[0];
  at_dims is = at_node_ints(conv, AT_ATTR_INPUT_SPATIAL_DIMENSIONS);
  at_dims ks = at_node_ints(conv, AT_ATTR_KERNEL_SPATIAL_DIMENSIONS);
  at_dims os = at_node_ints(conv, AT_ATTR_OUTPUT_SPATIAL_DIMENSIONS);
  at_dims strides = at_node_ints(conv, AT_ATTR_WINDOW_STRIDES);
  if (is.rank != 2 || ks.rank != 2 || os.rank != 2 || !at_type_is_static(in) ||
      !at_type_is_static(to))
    return false;
  m.batch = dim(in, conv, AT_ATTR_INPUT_BATCH_DIMENSION);
  m.channels = dim(in, conv, AT_ATTR_INPUT_FEATURE_DIMENSION);
  m.filters = dim(to, conv, AT_ATTR_OUTPUT_FEATURE_DIMENSION);
  m.height = (double)in->dims[is.ptr[0]];
  m.width = (double)in->dims[is.ptr[1]];
  m.out_height = (double)to->dims[os.ptr[0]];
  m.out_width = (double)to->dims[os.ptr[1]];
  double wide = (double)kernel->dims[ks.ptr[1]];
  m.taps = wide * (double)kernel->dims[ks.ptr[0]];
  double stride = strides.rank == 2 ? (double)strides.ptr[1] : 1;
  m.depthwise = m.channels > 1 &&
                dim(kernel, conv, AT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION) == 1;
  m.flat = m.channels < kSublanes;
  m.halo = wide - 1;
  m.out_part = part_of(m.out_width);
  m.part = m.out_part * stride;
  m.split =
      m.batch < kSublanes && (m.halo > 0 ? m.halo <= m.part : m.width > kWhole);
  *out = m;
  return true;
}

// The compact layout of v has another dimension than the batch along the
// sublanes.
bool at_est_image_is_turned(const at_node *conv, at_value v) {
  at_est_image m;
  if (conv->op != AT_OP_CONVOLUTION || !at_est_image_of(conv, &m) || m.split ||
      m.flat || m.depthwise || at_est_behind(conv->operands[0]).node != v.node)
    return false;
  uint32_t lanes, sublanes;
  at_tpu_compact_layout(at_type_dims(at_value_type(v)), &lanes, &sublanes);
  return sublanes != at_node_int(conv, AT_ATTR_INPUT_BATCH_DIMENSION, 0);
}

// Pixels times tiles of channels; of whole images times tiles of the batch,
// too.
double at_est_image_tiles(const at_est_image *m, bool result) {
  double lanes = ceil((result ? m->filters : m->channels) / kLanes);
  double height = result ? m->out_height : m->height;
  if (m->split)
    return height * (result ? m->out_part : m->part) * m->batch * lanes;
  return height * (result ? m->out_width : m->width) * lanes *
         ceil(m->batch / kSublanes);
}

// Tiles of a small batch fill few of their sublanes: less to add up per tap.
static double filled(const at_est_image *m) {
  if (m->split || m->batch >= kSublanes) return 1;
  return .4 + .6 * exp2(ceil(log2(m->batch))) / kSublanes;
}

// Depthwise: taps on the vector unit. Few channels: one product of all taps.
// Else k stays as it is.
void at_est_image_work(const at_node *conv, at_tpu_kernel *k) {
  at_est_image m;
  if (!at_est_image_of(conv, &m)) return;
  if (m.depthwise) {  // no sums over channels: the vector unit adds the taps
    k->tap_tiles = m.taps * at_est_image_tiles(&m, true) * filled(&m);
    k->batch = 0;
  } else if (m.flat) {  // one product per pixel, of all taps and channels
    k->pixels = m.out_height * (m.split ? m.out_part : m.out_width) *
                fmax(1, ceil(m.batch / 32));
    k->depth = m.taps * m.channels;
    k->batch = 1;
  }
}

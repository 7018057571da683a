// A convolution of few features. A task copies the pixels that its block of the
// output meets, padded, as floats; a table says where each k begins in the
// copy, so tiles read it in place. Tiles are pixels by output features, or,
// where the output's features are few or planes, output features by pixels.
#include "kernels/conv_internal.h"

enum {
  COPY_FLOATS = 24 * 1024,       // of a task, where that is more than one row
  ROW_FLOATS = 48 * 1024,        // of a row's copies
  MOST_FLOATS = 4 * ROW_FLOATS,  // of any copy
  TASK_FLOPS = 400 * 1000
};

// One call: the parameters in the terms of the loops, how the output is cut,
// and the copies.
typedef struct direct {
  const at_k_conv_params *p;
  const at_conv_micro *micro;
  const char *in;
  char *out;
  bool by_pixels;               // the lanes of a tile are pixels
  int64_t groups, in_f, out_f;  // features of one group
  // The last two spatial dims, 1 where there are none, and the product of
  // others.
  int64_t ow, kw, sw, dw, oh, kh, sh, dh, outer, outer_window;
  int64_t k;  // of the window
  // The block of a task, blocks, and the copy: pixels of a row, rows, planes of
  // the outer dims of the window; floats of each.
  int64_t block_w, block_h, blocks_w, blocks_h;
  int64_t pixels, rows, row, plane, phases, phase, feature, copy;
  int32_t *in_off, *w_off;
  float *weights;  // [group][k][width]
  int64_t width;
  float *copies;  // per worker: the copy, then a tile
  int64_t per_worker;
} direct;

// Dimension `back` from the end of v (1: the last one), or `none` where the
// rank is smaller.
static int64_t last_dim(const int64_t *v, uint32_t rank, uint32_t back,
                        int64_t none) {
  return rank >= back ? v[rank - back] : none;
}

// Spatial dims before the last two.
static uint32_t outer_dims(const at_k_conv_params *p) {
  return p->spatial_rank > 2 ? p->spatial_rank - 2 : 0;
}

// Fills in what follows from the parameters alone.
static void describe(const at_k_conv_params *p, direct *d) {
  uint32_t n = p->spatial_rank;
  d->p = p;
  d->groups = p->feature_groups;
  d->in_f = p->in_features / d->groups, d->out_f = p->out_features / d->groups;
  d->ow = last_dim(p->out_size, n, 1, 1),
  d->oh = last_dim(p->out_size, n, 2, 1);
  d->kw = last_dim(p->kernel_size, n, 1, 1);
  d->kh = last_dim(p->kernel_size, n, 2, 1);
  d->sw = last_dim(p->window_stride, n, 1, 1);
  d->sh = last_dim(p->window_stride, n, 2, 1);
  d->dw = last_dim(p->rhs_dilation, n, 1, 1);
  d->dh = last_dim(p->rhs_dilation, n, 2, 1);
  d->outer = d->outer_window = 1;
  for (uint32_t i = 0; i < outer_dims(p); i++)
    d->outer *= p->out_size[i], d->outer_window *= p->kernel_size[i];
  d->k = d->outer_window * d->kh * d->kw * d->in_f;
  // Lanes are what fills vectors: features where there are some, side by side.
  d->by_pixels = d->out_f < 5 || p->out_feature_stride != 1;
}

// Floats of the copy for a block of h by w of the output. A window with far
// gaps makes it as large as they say: what no copy may be is INT64_MAX, whose
// other fields are not set.
static int64_t copy_of(direct *d, int64_t h, int64_t w) {
  d->pixels = (w - 1) * d->sw + (d->kw - 1) * d->dw + 1;
  d->rows = (h - 1) * d->sh + (d->kh - 1) * d->dh + 1;
  if (d->pixels > MOST_FLOATS || d->rows > MOST_FLOATS) return INT64_MAX;
  // With a stride, every sw-th pixel is a neighbour: phases make them dense.
  d->phases = d->by_pixels ? d->sw : 1;
  d->phase = at_k_ceil_div(d->pixels, d->phases);
  if (d->by_pixels) {
    d->row = d->phase * d->phases, d->plane = d->row * d->rows;
    d->feature = d->plane * d->outer_window;
    d->copy = d->feature * d->in_f;
  } else {
    d->row = d->pixels * d->in_f, d->plane = d->row * d->rows;
    d->feature = 1, d->copy = d->plane * d->outer_window;
  }
  return d->copy;
}

// A block of the output for one task: whole rows where their copy is small
// enough, as many as make a task worth its while.
static void choose_block(direct *d) {
  // Halves of a row until its copy is small enough.
  int64_t w = d->ow, h = 1;
  while (w > 64 && copy_of(d, 1, w) > ROW_FLOATS) w = at_k_round_up(w / 2, 16);
  d->blocks_w = at_k_ceil_div(d->ow, w);
  int64_t flops = 2 * w * d->k * d->out_f;
  while (h < d->oh && h * flops < TASK_FLOPS &&
         copy_of(d, h + 1, w) <= COPY_FLOATS)
    h++;
  d->blocks_h = at_k_ceil_div(d->oh, h);
  // Blocks of one height, so no task is much smaller than the others.
  d->block_w = w, d->block_h = at_k_ceil_div(d->oh, d->blocks_h);
  d->blocks_h = at_k_ceil_div(d->oh, d->block_h);
  copy_of(d, d->block_h, d->block_w);
}

// Where k begins in the copy.
static void make_table(const direct *d) {
  int64_t k = 0;
  for (int64_t z = 0; z < d->outer_window; z++)
    for (int64_t y = 0; y < d->kh; y++)
      for (int64_t x = 0; x < d->kw; x++)
        for (int64_t f = 0; f < d->in_f; f++, k++) {
          int64_t px = x * d->dw;
          int64_t at = d->by_pixels ? px % d->phases * d->phase + px / d->phases
                                    : px * d->in_f;
          d->in_off[k] = (int32_t)(z * d->plane + y * d->dh * d->row + at +
                                   f * d->feature);
          d->w_off[k] = (int32_t)(k * d->width);
        }
}

// The weights as floats, [group][k][width].
static void pack_weights(const direct *d, const char *kernel) {
  const at_k_conv_params *p = d->p;
  int64_t es = at_dtype_bytes((at_dtype)p->rhs), window = d->k / d->in_f;
  for (int64_t x = 0; x < window; x++) {
    // Position in the window, the last dimension fastest; reversed dimensions
    // count from their end.
    int64_t rest = x, at = 0;
    for (uint32_t i = p->spatial_rank; i-- > 0;) {
      int64_t q = rest % p->kernel_size[i];
      rest /= p->kernel_size[i];
      at += (p->reversal[i] ? p->kernel_size[i] - 1 - q : q) *
            p->kernel_stride[i];
    }
    for (int64_t g = 0; g < d->groups; g++)
      for (int64_t f = 0; f < d->in_f; f++) {
        int64_t first =
            at + f * p->kernel_in_stride + g * d->out_f * p->kernel_out_stride;
        float *to = d->weights + (g * d->k + x * d->in_f + f) * d->width;
        if (p->kernel_out_stride == 1) {
          at_k_convert(AT_F32, to, p->rhs, kernel + first * es, d->out_f);
        } else {
          for (int64_t o = 0; o < d->out_f; o++)
            at_k_convert(AT_F32, to + o, p->rhs,
                         kernel + (first + o * p->kernel_out_stride) * es, 1);
        }
        for (int64_t o = d->out_f; o < d->width; o++) to[o] = 0;
      }
  }
}

// ---- A task
// One task: rows [h0, h0 + h) and columns [w0, w0 + w) of one plane of the
// output.
typedef struct block {
  int64_t group, batch, h0, w0, h, w;
  int64_t outer[AT_K_MAX_RANK];
  float *copy, *tile;
} block;

// Takes task number i apart: columns fastest, then rows, outer dims, group,
// batch.
static void block_of(const direct *d, int64_t i, block *b) {
  const at_k_conv_params *p = d->p;
  b->w0 = i % d->blocks_w * d->block_w, i /= d->blocks_w;
  b->h0 = i % d->blocks_h * d->block_h, i /= d->blocks_h;
  for (uint32_t n = outer_dims(p); n-- > 0;)
    b->outer[n] = i % p->out_size[n], i /= p->out_size[n];
  b->group = i % d->groups, b->batch = i / d->groups;
  b->w = AT_MIN(d->block_w, d->ow - b->w0),
  b->h = AT_MIN(d->block_h, d->oh - b->h0);
}

// Copies what the block meets of the input, rows outside of it as zeros.
static void copy_block(const direct *d, const block *b) {
  const at_k_conv_params *p = d->p;
  uint32_t n = p->spatial_rank;
  int64_t es = at_dtype_bytes((at_dtype)p->lhs);
  at_conv_row row = {.dtype = p->lhs,
                     .src_pixel = last_dim(p->in_stride, n, 1, 0),
                     .src_feature = p->in_feature_stride,
                     .size = last_dim(p->in_size, n, 1, 1),
                     .first = b->w0 * d->sw - last_dim(p->pad_low, n, 1, 0),
                     .pixels = d->pixels,
                     .features = d->in_f,
                     .phases = d->phases,
                     .dst_phase = d->phase,
                     .dst_pixel = d->by_pixels ? 1 : d->in_f,
                     .dst_feature = d->feature};
  int64_t base =
      b->batch * p->in_batch_stride + b->group * d->in_f * p->in_feature_stride;
  for (int64_t z = 0; z < d->outer_window; z++) {
    // Planes of the outer dimensions: one outside of the input is all zeros.
    int64_t rest = z, at = base;
    bool inside = true;
    for (uint32_t i = outer_dims(p); i-- > 0;) {
      int64_t x = b->outer[i] * p->window_stride[i] - p->pad_low[i] +
                  rest % p->kernel_size[i] * p->rhs_dilation[i];
      rest /= p->kernel_size[i];
      inside = inside && x >= 0 && x < p->in_size[i];
      at += x * p->in_stride[i];
    }
    for (int64_t y = 0; y < d->rows; y++) {
      int64_t from = b->h0 * d->sh + y - last_dim(p->pad_low, n, 2, 0);
      bool in = inside && from >= 0 && from < last_dim(p->in_size, n, 2, 1);
      row.src = in ? d->in + (at + from * last_dim(p->in_stride, n, 2, 0)) * es
                   : NULL;
      row.dst = b->copy + z * d->plane + y * d->row;
      at_conv_copy_row(&row);
    }
  }
}

// Address of the output at row y, column x of the block, feature o of its
// group.
static char *out_at(const direct *d, const block *b, int64_t y, int64_t x,
                    int64_t o) {
  const at_k_conv_params *p = d->p;
  uint32_t n = p->spatial_rank;
  int64_t at = b->batch * p->out_batch_stride +
               (b->group * d->out_f + o) * p->out_feature_stride +
               (b->h0 + y) * last_dim(p->out_stride, n, 2, 0) +
               (b->w0 + x) * last_dim(p->out_stride, n, 1, 0);
  for (uint32_t i = 0; i < outer_dims(p); i++)
    at += b->outer[i] * p->out_stride[i];
  return d->out + at * at_dtype_bytes((at_dtype)p->out);
}

// Rows of a tile when `n` are shared out evenly, `most` at most in each.
static int64_t even(int64_t n, int64_t most) {
  return at_k_ceil_div(n, at_k_ceil_div(n, most));
}
// The largest power of two up to both.
static int64_t power_within(int64_t a, int64_t b) {
  int64_t v = 1;
  while (2 * v <= a && 2 * v <= b) v *= 2;
  return v;
}

// Tiles of pixels by features of row y, features [o, o + vectors of them).
static void row_by_features(const direct *d, const block *b, int64_t y,
                            int64_t o, int64_t vectors, int64_t rows) {
  const at_k_conv_params *p = d->p;
  int64_t lanes = d->micro->lanes,
          columns = AT_MIN(vectors * lanes, d->out_f - o);
  at_conv_tile t = {.b = d->weights + b->group * d->k * d->width + o,
                    .a_off = d->in_off,
                    .b_off = d->w_off,
                    .k = d->k,
                    .a_step = d->sw * d->in_f,
                    .c_step = vectors * lanes,
                    .c = b->tile};
  at_conv_put put = {
      .from = b->tile,
      .ld = vectors * lanes,
      .dtype = p->out,
      .row_stride = last_dim(p->out_stride, p->spatial_rank, 1, 0),
      .column_stride = p->out_feature_stride,
      .columns = columns};
  bool in_place =
      // Whole vectors of floats go to the result; the rest through a tile.
      p->out == AT_F32 && put.column_stride == 1 && columns == vectors * lanes;
  for (int64_t x = 0; x < b->w; x += rows) {
    put.rows = AT_MIN(rows, b->w - x);
    put.to = out_at(d, b, y, x, o);
    t.a = b->copy + y * d->sh * d->row + x * t.a_step;
    if (in_place) t.c = (float *)(void *)put.to, t.c_step = put.row_stride;
    d->micro->run(&t, (int)put.rows, (int)vectors);
    if (!in_place) at_conv_put_tile(&put);
  }
}

// Tiles of features by pixels of row y, features [o, o + rows).
static void row_by_pixels(const direct *d, const block *b, int64_t y, int64_t o,
                          int64_t rows) {
  const at_k_conv_params *p = d->p;
  int64_t lanes = d->micro->lanes, most = d->micro->most((int)rows);
  at_conv_tile t = {.a = d->weights + b->group * d->k * d->width + o,
                    .a_off = d->w_off,
                    .b_off = d->in_off,
                    .k = d->k,
                    .a_step = 1,
                    .c = b->tile};
  at_conv_put put = {
      .from = b->tile,
      .dtype = p->out,
      .rows = rows,
      .row_stride = p->out_feature_stride,
      .column_stride = last_dim(p->out_stride, p->spatial_rank, 1, 0)};
  for (int64_t x = 0; x < b->w;) {
    int64_t vectors = power_within(at_k_ceil_div(b->w - x, lanes), most);
    put.columns = AT_MIN(vectors * lanes, b->w - x);
    put.to = out_at(d, b, y, x, o);
    t.b = b->copy + y * d->sh * d->row + x;
    bool in_place = p->out == AT_F32 && put.column_stride == 1 &&
                    put.columns == vectors * lanes;
    t.c = in_place ? (float *)(void *)put.to : b->tile;
    t.c_step = in_place ? put.row_stride : vectors * lanes;
    put.ld = t.c_step;
    d->micro->run(&t, (int)rows, (int)vectors);
    if (!in_place) at_conv_put_tile(&put);
    x += vectors * lanes;
  }
}

// All of a block from its copy. Weights of a strip of features stay in the
// first cache while rows go by.
static void run_block(const direct *d, const block *b) {
  int64_t lanes = d->micro->lanes;
  if (d->by_pixels) {
    int64_t rows =
        even(d->out_f, b->w <= 2 * lanes ? AT_CONV_ROWS : AT_CONV_ROWS / 2);
    for (int64_t o = 0; o < d->out_f; o += rows)
      for (int64_t y = 0; y < b->h; y++)
        row_by_pixels(d, b, y, o, AT_MIN(rows, d->out_f - o));
    return;
  }
  int64_t vectors = at_k_ceil_div(d->out_f, lanes);
  for (int64_t v = 0; v < vectors;) {
    int64_t w = power_within(vectors - v, lanes == 16 ? 2 : 1);
    int64_t rows = even(b->w, AT_CONV_ROWS);
    for (int64_t y = 0; y < b->h; y++)
      row_by_features(d, b, y, v * lanes, w, rows);
    v += w;
  }
}

// Tasks [begin, end) with this worker's copy and tile.
static void run_range(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  const direct *d = arg;
  block b;
  b.copy = d->copies + worker * d->per_worker;
  b.tile =
      b.copy + d->per_worker - AT_CONV_ROWS * AT_CONV_VECTORS * AT_CONV_LANES;
  for (int64_t i = begin; i < end; i++) {
    block_of(d, i, &b);
    copy_block(d, &b);
    run_block(d, &b);
  }
}

// See conv_internal.h. Takes scratch memory for two tables, the weights as
// floats and a copy for each worker.
at_status at_conv_direct(const at_k_call *call) {
  direct d = {.in = call->bufs[0], .out = call->bufs[2]};
  describe(call->params, &d);
  d.micro = at_conv_micro_of(d.by_pixels ? d.ow > 8 : d.out_f > 8);
  choose_block(&d);
  int64_t lanes = d.micro->lanes;
  d.width = d.by_pixels ? d.out_f : at_k_round_up(d.out_f, lanes);
  AT_K_SCRATCH(d.in_off, call, at_mul((size_t)d.k, sizeof *d.in_off));
  AT_K_SCRATCH(d.w_off, call, at_mul((size_t)d.k, sizeof *d.w_off));
  AT_K_SCRATCH(d.weights, call,
               at_mul((size_t)(d.groups * d.k * d.width), sizeof(float)));
  // Tiles read up to a tile's width of pixels behind the last.
  d.per_worker = at_k_round_up(d.copy + AT_CONV_VECTORS * lanes, 16) +
                 AT_CONV_ROWS * AT_CONV_VECTORS * AT_CONV_LANES;
  AT_K_SCRATCH(d.copies, call,
               at_mul((size_t)(d.per_worker * at_par_threads(call->par)),
                      sizeof(float)));
  make_table(&d);
  pack_weights(&d, call->bufs[1]);
  int64_t tasks = d.p->batch * d.groups * d.outer * d.blocks_h * d.blocks_w;
  int64_t flops = 2 * d.block_h * d.block_w * d.k * d.out_f;
  at_par_for(call->par, tasks, TASK_FLOPS / AT_MAX(1, flops) + 1, run_range,
             &d);
  return AT_OK;
}

// By types and shape alone. The bounds keep offsets within int32 and the
// weights within a cache.
bool at_conv_direct_fits(const at_k_conv_params *p) {
  if (!at_conv_is_float(p) || p->batch_groups != 1 || p->spatial_rank == 0)
    return false;
  for (uint32_t i = 0; i < p->spatial_rank; i++)
    if (p->lhs_dilation[i] != 1) return false;
  direct d;
  describe(p, &d);
  if (d.k == 0 || d.k > 4096 || d.k * d.out_f > 256 * 1024) return false;
  // A product with packed operands is better where there is much to do with
  // each.
  if (AT_MIN(d.in_f, d.out_f) > 16 && d.k * d.out_f > 16 * 1024) return false;
  if (copy_of(&d, 1, AT_MIN(d.ow, 64)) > MOST_FLOATS) return false;
  return !d.by_pixels || d.ow >= 8;
}

// Loops over rows; included once for each instruction set. AT_ROWS(name) names
// a function of the set, AT_ROWS_TARGET is its target attribute. One rounding
// per product and per sum, so all sets give the same bits.
// Inlined into bodies whose width is a constant, so their loops unroll.
// The includer has the vector types row16, row8, row4, kAhead, kPrefetchBytes.
#define AT_ROWS_INLINE \
  static inline AT_ROWS_TARGET __attribute__((always_inline))

// out += row * gain.
// n: width of a row in floats, not padded. out and row may be any addresses
// of floats, but not overlap.
AT_ROWS_INLINE void AT_ROWS(add)(float *out, const float *row, float gain,
                                 uint64_t n) {
  uint64_t i = 0;
  for (; i + 16 <= n; i += 16)
    *(row16 *)(out + i) += *(const row16 *)(row + i) * gain;
  if (i + 8 <= n) {
    *(row8 *)(out + i) += *(const row8 *)(row + i) * gain;
    i += 8;
  }
  if (i + 4 <= n) {
    *(row4 *)(out + i) += *(const row4 *)(row + i) * gain;
    i += 4;
  }
  for (; i < n; i++) out[i] += row[i] * gain;
}

// out = row * gain: the first of a sum, so that -0 stays -0.
// Adding to zeros would turn a -0 into +0, and cost a pass that clears the
// row.
AT_ROWS_INLINE void AT_ROWS(set)(float *out, const float *row, float gain,
                                 uint64_t n) {
  uint64_t i = 0;
  for (; i + 16 <= n; i += 16)
    *(row16 *)(out + i) = *(const row16 *)(row + i) * gain;
  if (i + 8 <= n) {
    *(row8 *)(out + i) = *(const row8 *)(row + i) * gain;
    i += 8;
  }
  for (; i < n; i++) out[i] = row[i] * gain;
}

// Rows are far apart: that of the entry kAhead further on is fetched meanwhile.
// Entries [begin, end) of one sample range: out[sample] += table[id] * gain.
// Nothing is checked here: ids and samples must be inside of table and out.
// They are taken as unsigned.
AT_ROWS_INLINE void AT_ROWS(gather)(const at_sc_gather *g, uint64_t begin,
                                    uint64_t end, uint64_t width) {
  const int32_t *ids = g->ids->ids, *samples = g->ids->samples;
  const float *gains = g->ids->gains;
  // Bytes that are fetched ahead of a row, which may be longer.
  uint64_t ahead = AT_MIN(width * sizeof(float), (uint64_t)kPrefetchBytes);
  for (uint64_t i = begin; i < end; i++) {
    if (i + kAhead < end)
      at_sc_prefetch(g->table + (uint64_t)(uint32_t)ids[i + kAhead] * g->stride,
                     ahead);
    AT_ROWS(add)
    (g->out + (uint64_t)(uint32_t)samples[i] * g->stride,
     g->table + (uint64_t)(uint32_t)ids[i] * g->stride, gains[i], width);
  }
}

// n >= 1, in the order of the entries.
// out: the sum of gradients of one row of the table, `width` floats. The
// order makes the sum: the same input gives the same bits on any number of
// threads.
AT_ROWS_INLINE void AT_ROWS(sum)(const at_sc_entry *e, uint64_t n, float *out,
                                 uint64_t width) {
  AT_ROWS(set)(out, e[0].gradient, e[0].gain, width);
  for (uint64_t i = 1; i < n; i++)
    AT_ROWS(add)(out, e[i].gradient, e[i].gain, width);
}

// Widths known to the compiler unroll without remainder; `m` is the width where
// it is known only at run time.
#define AT_ROWS_WIDTH(w, n)                                              \
  static AT_ROWS_TARGET void AT_ROWS(gather_##n)(                        \
      const at_sc_gather *g, uint64_t begin, uint64_t end, uint64_t m) { \
    AT_ROWS(gather)(g, begin, end, w);                                   \
  }                                                                      \
  static AT_ROWS_TARGET void AT_ROWS(sum_##n)(                           \
      const at_sc_entry *e, uint64_t k, float *out, uint64_t m) {        \
    AT_ROWS(sum)(e, k, out, w);                                          \
  }
// The widths that embedding tables mostly have; AT_ROWS(table) is searched in
// this order.
AT_ROWS_WIDTH(1, 1)
AT_ROWS_WIDTH(8, 8)
AT_ROWS_WIDTH(16, 16)
AT_ROWS_WIDTH(32, 32)
AT_ROWS_WIDTH(64, 64)
AT_ROWS_WIDTH(128, 128)
AT_ROWS_WIDTH(m, any)
#undef AT_ROWS_WIDTH

// Levels between low and high, rounded to nearest even, and back.
// num_buckets >= 2 and high > low, as the call's configuration was checked.
// NaN stays NaN.
AT_ROWS_INLINE void AT_ROWS(quantise)(const at_x_sparse *x, float *out,
                                      uint64_t n) {
  float scale = (x->high - x->low) / (float)(x->num_buckets - 1);
  for (uint64_t i = 0; i < n; i++) {
    // Clipped first: values outside take the nearest level.
    float v = out[i] < x->low ? x->low : out[i] > x->high ? x->high : out[i];
    out[i] = __builtin_rintf((v - x->low) / scale) * scale + x->low;
  }
}

// S8 and U8 hold levels, the others values; those are quantised here where the
// step asks for it.
// row: x->width elements of x->dtype, packed; out: as many floats. BF16
// widens exactly.
static AT_ROWS_TARGET void AT_ROWS(load)(const at_x_sparse *x, float *out,
                                         const void *row) {
  uint64_t n = x->width;
  if (x->dtype == AT_S8 || x->dtype == AT_U8) {
    // S8 stores a level less half their number, U8 the level itself.
    float scale = (x->high - x->low) / (float)(x->num_buckets - 1);
    float zero = x->dtype == AT_S8 ? (float)(x->num_buckets / 2) : 0;
    const int8_t *s = row;
    const uint8_t *u = row;
    if (x->dtype == AT_S8)
      for (uint64_t i = 0; i < n; i++)
        out[i] = ((float)s[i] + zero) * scale + x->low;
    else
      for (uint64_t i = 0; i < n; i++) out[i] = (float)u[i] * scale + x->low;
    return;
  }
  if (x->dtype == AT_F32) {
    memcpy(out, row, n * sizeof *out);
  } else {
    // BF16 is the upper half of an f32.
    const uint16_t *b = row;
    uint32_t *bits = (uint32_t *)out;
    for (uint64_t i = 0; i < n; i++) bits[i] = (uint32_t)b[i] << 16;
  }
  if (x->num_buckets) AT_ROWS(quantise)(x, out, n);
}

// Ends with the loops for any width.
// The widths' functions, by width; 0 stands for any other. Static: the names
// are the set's.
static const at_sc_rows AT_ROWS(table)[] = {
    {1, AT_ROWS(gather_1), AT_ROWS(sum_1), AT_ROWS(load)},
    {8, AT_ROWS(gather_8), AT_ROWS(sum_8), AT_ROWS(load)},
    {16, AT_ROWS(gather_16), AT_ROWS(sum_16), AT_ROWS(load)},
    {32, AT_ROWS(gather_32), AT_ROWS(sum_32), AT_ROWS(load)},
    {64, AT_ROWS(gather_64), AT_ROWS(sum_64), AT_ROWS(load)},
    {128, AT_ROWS(gather_128), AT_ROWS(sum_128), AT_ROWS(load)},
    {0, AT_ROWS(gather_any), AT_ROWS(sum_any), AT_ROWS(load)},
};
#undef AT_ROWS_INLINE

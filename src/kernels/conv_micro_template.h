// Tiles of a convolution for one vector width; included by conv_micro.c with
//   NAME  prefix   BYTES  of a vector   ATTR  target attribute
//   TILES(X)  X(rows, vectors) of every tile that the registers hold
// No include guard: it is included once per width.
#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#define VEC CAT(NAME, _vec)
#define LANES ((int)(BYTES / sizeof(float)))
#define UNROLL _Pragma("clang loop unroll(full)")
// Unaligned: rows of features begin anywhere in the caller's arrays.
typedef float VEC __attribute__((vector_size(BYTES), aligned(4)));

// The tile of at_conv_tile with rows and vectors as constants: all sums stay in
// registers.
// Row r of the tile reads the input at a + a_off[k] + r * a_step, so a
// window that moves along one dimension costs no copy; b_off says where the
// kernel's features for that k are. `add`: sums begin with what C holds.
// Elements of C beyond the tile's vectors are not touched.
ATTR AT_INLINE void CAT(NAME, _body)(const at_conv_tile *t, const int rows,
                                     const int vectors) {
  const float *a = t->a, *b = t->b;
  const int64_t step = t->a_step;
  VEC sum[AT_CONV_ROWS][AT_CONV_VECTORS];
  UNROLL
  for (int r = 0; r < rows; r++) UNROLL
  for (int v = 0; v < vectors; v++)
    sum[r][v] =
        t->add ? *(const VEC *)(t->c + r * t->c_step + v * LANES) : (VEC){0};
  // k goes over the window's elements and input features in one list; the order
  // is that of the list, one multiply-add each.
  for (int64_t k = 0; k < t->k; k++) {
    const float *x = a + t->a_off[k], *y = b + t->b_off[k];
    VEC w[AT_CONV_VECTORS];
    UNROLL
    for (int v = 0; v < vectors; v++) w[v] = *(const VEC *)(y + v * LANES);
    UNROLL
    for (int r = 0; r < rows; r++) {
      // x - 0 makes a vector of one element without a shuffle of its own.
      VEC s = x[r * step] - (VEC){0};
      UNROLL
      for (int v = 0; v < vectors; v++)
        sum[r][v] = __builtin_elementwise_fma(s, w[v], sum[r][v]);
    }
  }
  UNROLL
  for (int r = 0; r < rows; r++) UNROLL
  for (int v = 0; v < vectors; v++)
    *(VEC *)(t->c + r * t->c_step + v * LANES) = sum[r][v];
}

// A tile's number is rows * 16 + vectors: vectors are less than 16.
#define TILE_CASE(r, v)            \
  case (r)*16 + (v):               \
    CAT(NAME, _body)(t, (r), (v)); \
    break;
// at_conv_micro.run: rows x vectors must be one of TILES.
// A size that is not among TILES writes nothing.
ATTR static void CAT(NAME, _run)(const at_conv_tile *t, int rows, int vectors) {
  switch (rows * 16 + vectors) { TILES(TILE_CASE) }
}

#undef TILE_CASE
#undef UNROLL
#undef LANES
#undef VEC
#undef CAT
#undef CAT_
#undef NAME
#undef BYTES
#undef ATTR
#undef TILES

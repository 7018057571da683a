// For bodies that work on LANES lines or matrices at once, included once for
// each element type (16 floats or 8 doubles): the constants of their shuffles,
// and square transposes.
#ifndef ATOLL_KERNELS_LANES_H_
#define ATOLL_KERNELS_LANES_H_

// Shuffles of two vectors: which elements of the first, or counted on, of the
// second. LOW_d and HIGH_d swap blocks of d elements; EVEN and ODD take pairs
// apart.
#define LOW_8_16 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23
#define HIGH_8_16 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31
#define LOW_4_16 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27
#define HIGH_4_16 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31
#define LOW_2_16 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define HIGH_2_16 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#define LOW_1_16 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30
#define HIGH_1_16 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31
#define EVEN_16 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODD_16 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#define ZIP_LOW_16 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define ZIP_HIGH_16 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define LOW_4_8 0, 1, 2, 3, 8, 9, 10, 11
#define HIGH_4_8 4, 5, 6, 7, 12, 13, 14, 15
#define LOW_2_8 0, 1, 8, 9, 4, 5, 12, 13
#define HIGH_2_8 2, 3, 10, 11, 6, 7, 14, 15
#define LOW_1_8 0, 8, 2, 10, 4, 12, 6, 14
#define HIGH_1_8 1, 9, 3, 11, 5, 13, 7, 15
#define EVEN_8 0, 2, 4, 6, 8, 10, 12, 14
#define ODD_8 1, 3, 5, 7, 9, 11, 13, 15
#define ZIP_LOW_8 0, 8, 1, 9, 2, 10, 3, 11
#define ZIP_HIGH_8 4, 12, 5, 13, 6, 14, 7, 15

// AT_LANES_SHUFFLE picks by one of the lists above: LOW_4 with width 16 is
// LOW_4_16. AT_LANES_SWAP exchanges blocks of d elements between vectors i and
// i + d: one step of a transpose.
// Loops over lanes have constant bounds; unrolled, vectors that they index stay
// in registers.
#define AT_LANES_UNROLL _Pragma("clang loop unroll(full)")
// The outer macro expands its arguments, the inner one pastes them.
#define AT_LANES_PASTE_(a, b, c, d) a##b##c##d
#define AT_LANES_PASTE(a, b, c, d) AT_LANES_PASTE_(a, b, c, d)
#define AT_LANES_SHUFFLE(a, b, which, width) \
  __builtin_shufflevector(a, b, AT_LANES_PASTE(which, _, width, ))
// v: an array of at least `width` vectors, changed in place. Uses the names i,
// a and b.
#define AT_LANES_SWAP(VEC, v, d, width)                                     \
  AT_LANES_UNROLL                                                           \
  for (int i = 0; i < width; i++) {                                         \
    if (i & d) continue;                                                    \
    VEC a = v[i], b = v[i + d];                                             \
    v[i] = AT_LANES_SHUFFLE(a, b, AT_LANES_PASTE(LOW_, d, , ), width);      \
    v[i + d] = AT_LANES_SHUFFLE(a, b, AT_LANES_PASTE(HIGH_, d, , ), width); \
  }

// Transposes the square of `width` (16 or 8, as a literal or a macro) vectors
// v.
// log2(width) steps of width / 2 exchanges each; element j of vector i becomes
// element i of vector j.
#define AT_LANES_TRANSPOSE(VEC, v, width) \
  AT_LANES_PASTE(AT_LANES_TRANSPOSE_, width, , )(VEC, v)
#define AT_LANES_TRANSPOSE_16(VEC, v) \
  AT_LANES_SWAP(VEC, v, 8, 16)        \
  AT_LANES_SWAP(VEC, v, 4, 16)        \
  AT_LANES_SWAP(VEC, v, 2, 16)        \
  AT_LANES_SWAP(VEC, v, 1, 16)
#define AT_LANES_TRANSPOSE_8(VEC, v) \
  AT_LANES_SWAP(VEC, v, 4, 8)        \
  AT_LANES_SWAP(VEC, v, 2, 8)        \
  AT_LANES_SWAP(VEC, v, 1, 8)

#endif

// Accesses, copies and moves of vectors whose layout the TPU compiler refuses.
// The rules follow the passes that were public up to JAX 0.8.1, and the
// refusals that were seen of the compiler.
#include "tpu/rules_internal.h"

#define ARG at_mosaic_arg
#define RES at_mosaic_res

// The memref that a view was cut from: its last two dimensions say how it is
// tiled. false: a reshape or bitcast lies between.
static bool base_of(const at_mvalue *v, const at_mtype **out, bool *argument) {
  while (v->op) {
    const at_mtype *t = v->type;
    switch (at_mosaic_opcode_of(v->op)) {
      case AT_MOSAIC_TPU_MEMREF_SQUEEZE: {
        // Only where leading dimensions went do the last two stay.
        at_dims from = ARG(v->op, 0)->shape, to = t->shape;
        for (uint32_t i = 1; i <= 2 && i <= to.rank; i++)
          if (from.ptr[from.rank - i] != to.ptr[to.rank - i]) return false;
        if (to.rank < 2 && from.rank > to.rank) return false;
        v = v->op->operands[0];
        break;
      }
      case AT_MOSAIC_TPU_MEMREF_SLICE:
      case AT_MOSAIC_TPU_ERASE_MEMREF_LAYOUT:
      case AT_MOSAIC_TPU_ASSUME_LAYOUT:
        v = v->op->operands[0];
        break;
      case AT_MOSAIC_MEMREF_ALLOCA:
        *argument = false;
        *out = t;
        return true;
      default:
        return false;
    }
  }
  *argument = true;
  *out = v->type;
  return v->type->kind == AT_MTYPE_MEMREF;
}

// A memref of words with few columns lies row after row: any row can be
// addressed.
static bool is_untiled(const at_mtype *ref) {
  return at_mosaic_bits(ref) == 32 && at_mosaic_size(ref, 1) <= 128;
}

// Rows of the tile in which the memref lies.
static int64_t tile_of(at_mosaic_judge *j, const at_mtype *base,
                       bool argument) {
  return at_mosaic_tile_rows(j->chip, at_mosaic_bits(base),
                             at_mosaic_size(base, 2), argument);
}

// Constants pass whatever they are: the compiler checks only what it cannot
// see.
static at_status prove(at_mosaic_judge *j, const at_mop *op,
                       const at_mvalue *index, uint32_t dim, int64_t n) {
  int64_t c;
  if (at_mosaic_value_const(index, &c) || at_mosaic_value_divides(index, n))
    return AT_OK;
  return at_mosaic_refuse(
      j, op, AT_INTERNAL,
      "E2003: CompileTimeMosaicUnprovenMemoryAccessAlignment: cannot "
      "statically "
      "prove that index in dimension %u is a multiple of %lld\nSee "
      "https://openxla.org/xla/errors/error_2003 for more details.",
      dim, (long long)n);
}

// Loads (ref 0) and stores (ref 1) of VMEM. Rows must begin at tiles unless any
// row can be addressed, columns at 128 lanes.
static at_status access(at_mosaic_judge *j, const at_mop *op, uint32_t ref,
                        const at_mtype *vec) {
  const at_mtype *m = ARG(op, ref), *base;
  at_mosaic_ref r;
  bool argument;
  uint32_t rank = m->shape.rank;
  at_status s = at_mosaic_ref_of(m, &r);
  bool good = at_ok(s);
  at_status_free(s);
  // Lines of two or four bits can only be stored in whole rows of words.
  uint32_t bits = at_mosaic_bits(vec);
  if (ref == 1 && rank == 1 && vec->shape.rank == 1 && bits > 1 && bits < 8 &&
      vec->shape.ptr[0] % (128 * 32 / bits))
    return at_mosaic_refuse(
        j, op, AT_INTERNAL,
        "Only 16-bit and 8-bit subelement masking is currently implemented in "
        "SingleRowVRegBounds::getVectorMask.");
  if (!good || r.space != AT_MSPACE_VMEM || r.semaphore ||
      vec->shape.rank != rank)
    return AT_OK;
  // Indices follow the ref; of a store the value stands before it.
  at_mvalue *const *index = op->operands + ref + 1;
  if (rank == 1)
    return prove(j, op, index[0], 0, 128 * 32 / (bits > 1 ? bits : 32));
  if (rank < 2 || !base_of(op->operands[ref], &base, &argument)) return AT_OK;
  int64_t row, lane, tile = tile_of(j, base, argument);
  bool words = bits == 32 || bits == 1;
  // Masks are held as words.
  // A row anywhere, of a memref whose rows lie in several tiles: all of them.
  if (words && at_mosaic_size(m, 1) > 128 && at_mosaic_size(vec, 2) == 1 &&
      !at_mosaic_value_const(index[rank - 2], &row) &&
      !at_mosaic_value_divides(index[rank - 2], tile) &&
      at_mosaic_value_const(index[rank - 1], &lane) &&
      (lane + at_mosaic_size(vec, 1) + 127) / 128 - lane / 128 <
          (at_mosaic_size(m, 1) + 127) / 128)
    return ref == 0
               ? at_mosaic_refuse(
                     j, op, AT_INTERNAL,
                     "Not implemented: dynamic load with unaligned indices")
               : prove(j, op, index[rank - 2], rank - 2, tile);
  if (bits == 1) return AT_OK;
  // What is left must begin at a tile, but for words that are addressed row by
  // row.
  bool any_row =
      is_untiled(m) || (at_mosaic_bits(m) == 32 && at_mosaic_size(vec, 2) == 1);
  if (!any_row) AT_TRY(prove(j, op, index[rank - 2], rank - 2, tile));
  return prove(j, op, index[rank - 1], rank - 1, 128);
}

// ---- Copies
// The compiler's sentence about a slice that does not begin or end with tiles.
static at_status untiled(at_mosaic_judge *j, const at_mop *op, const char *what,
                         const char *which, uint32_t dim, int64_t tile) {
  return at_mosaic_refuse(
      j, op, AT_INTERNAL,
      "%s along tiled dimensions must be aligned to tiles. Failed to verify "
      "that the %s at dimension %u is divisible by the tile dimension %lld. If "
      "it is, use tpu.assume_multiple to suppress this error.",
      what, which, dim, (long long)tile);
}

// The compiler's words for an offset that the layout does not allow.
static at_status offset_refused(at_mosaic_judge *j, const at_mop *op,
                                uint32_t dim, int64_t tile) {
  return untiled(j, op, "Offsets", "index", dim, tile);
}
// The same for a size.
static at_status size_refused(at_mosaic_judge *j, const at_mop *op,
                              uint32_t dim, int64_t tile) {
  return untiled(j, op, "Slice sizes", "size", dim, tile);
}

// Bits that copies of a memory begin with.
// An operand of up to 1 KiB that names no memory is put into VMEM.
static int64_t word_of(at_mosaic_judge *j, const at_mop *op) {
  int64_t vmem = AT_MAX(j->chip->word_bits, (int64_t)4096);
  const at_mtype *base;
  bool argument;
  at_mosaic_ref r = {0};
  if (!base_of(op->operands[0], &base, &argument)) base = ARG(op, 0);
  at_status_free(at_mosaic_ref_of(base, &r));
  if (r.space == AT_MSPACE_HBM) return j->chip->hbm_bits;
  if (r.space == AT_MSPACE_VMEM) return vmem;
  return at_mosaic_ref_bytes(j->chip, &r, true) <= 1024 ? vmem
                                                        : j->chip->word_bits;
}

// The compiler's words for a place that is known and is no word's beginning.
static at_status word_refused(at_mosaic_judge *j, const at_mop *op) {
  return at_mosaic_refuse(
      j, op, AT_INTERNAL,
      "The dynamic offset times the element size is not a multiple of the "
      "memory space word size (%lld bits). If this originates from a "
      "memref_slice, try aligning the minor index to the word size.",
      (long long)word_of(j, op));
}

// A part of one dimension.
typedef struct part {
  const at_mvalue *at;
  int64_t have, n;
  int64_t asked;  // n without the padding
  uint32_t dim;
  bool fixed;  // starts at a known place
  bool all;
} part;

// What ends with the array takes the padding of its last tile along.
static part part_of(const at_mop *op, uint32_t last, int64_t tile) {
  uint32_t dim = ARG(op, 0)->shape.rank - last;
  int64_t c = 0;
  part x = {.at = op->operands[1 + dim],
            .have = ARG(op, 0)->shape.ptr[dim],
            .n = RES(op, 0)->shape.ptr[dim],
            .asked = RES(op, 0)->shape.ptr[dim],
            .dim = dim};
  x.fixed = at_mosaic_value_const(x.at, &c);
  x.all = x.fixed && x.n == x.have;
  if (x.fixed && x.n > 0 && x.n < x.have && c == x.have - x.n &&
      x.n < INT64_MAX - tile)
    x.n = (x.n + tile - 1) / tile * tile;
  return x;
}

// Does the part lie within one tile, wherever it begins?
static bool in_tile(const part *x, int64_t tile) {
  int64_t c;
  if (x->asked == AT_MDYN || x->asked > tile) return false;
  if (x->asked <= 1 || x->have <= tile || at_mosaic_value_divides(x->at, tile))
    return true;
  if (at_mosaic_value_const(x->at, &c)) return c % tile + x->asked <= tile;
  return tile % x->asked == 0 && at_mosaic_value_divides(x->at, x->asked);
}

// Half of it in one tile, half in the next: as good as in one.
static bool in_halves(const part *x, int64_t tile) {
  int64_t c;
  return x->asked > 1 && tile % x->asked == 0 &&
         at_mosaic_value_const(x->at, &c) && c % (x->asked / 2) == 0;
}

// Columns of rows that lie one after another, or in one column of tiles: they
// begin with a word of the memory, and are whole words of HBM, in any memory.
// `fixed`: the rows start at a known place.
static at_status lanes(at_mosaic_judge *j, const at_mop *op, const part *x,
                       bool fixed) {
  bool whole = x->n == AT_MDYN || x->n == x->have || x->n % 128 == 0;
  if (whole && at_mosaic_value_divides(x->at, 128)) return AT_OK;
  // Neither whole registers of lanes nor aligned to them: by words of the
  // memory.
  int64_t word = word_of(j, op);
  bool aligned = at_mosaic_value_divides(x->at, word / 32);
  // May a part at a place that is not known reach from one row of tiles into
  // the next?
  bool across = x->asked > 0 && !x->fixed &&
                (128 % x->asked || x->asked % (word / 32) ||
                 !at_mosaic_value_divides(x->at, x->asked));
  if (!(x->fixed && fixed) && (whole || !aligned || across || word >= 4096))
    return at_mosaic_refuse(
        j, op, AT_INTERNAL,
        "Could not determine that the dynamic offset times the element size is "
        "a multiple of the word size (%lld bits). If this is guaranteed, you "
        "can silence this error using tpu.assume_multiple.",
        (long long)word);
  if (!aligned) return word_refused(j, op);
  // Elements are words here: narrower ones go by the tile (line, tiles_only).
  int64_t moved = j->chip->hbm_bits / 32;
  if (whole || x->n % moved == 0) return AT_OK;
  return at_mosaic_refuse(
      j, op, AT_INTERNAL,
      "The contiguous inner slice in the DMA transfer must be divisible by "
      "%lld bytes.",
      (long long)moved * 4);
}

// Part of one dimension. Narrow elements move by the tile, words by those of
// HBM.
static at_status line(at_mosaic_judge *j, const at_mop *op) {
  uint32_t bits = at_mosaic_bits(ARG(op, 0));
  int64_t unit = 128 * 32 / bits;
  part x = part_of(op, 1, unit);
  if (RES(op, 0)->shape.ptr[0] == x.have) return AT_OK;
  if (bits == 32) return lanes(j, op, &x, true);
  if (!at_mosaic_value_divides(x.at, unit))
    return offset_refused(j, op, 0, unit);
  return x.n == AT_MDYN || x.n % unit == 0 ? AT_OK
                                           : size_refused(j, op, 0, unit);
}

// Begins and ends with tiles.
static bool is_tiled(const part *x, int64_t tile) {
  return at_mosaic_value_divides(x->at, tile) &&
         (x->n == AT_MDYN || x->n % tile == 0);
}

// Whole tiles, or nothing else than all of the dimension.
static at_status tiles_only(at_mosaic_judge *j, const at_mop *op, const part *x,
                            int64_t unit, int64_t tile) {
  if (x->all) return AT_OK;
  bool sized = x->n == AT_MDYN || x->n == x->have || x->n % unit == 0;
  if (sized && at_mosaic_value_divides(x->at, unit)) return AT_OK;
  return at_mosaic_value_divides(x->at, tile)
             ? size_refused(j, op, x->dim, tile)
             : offset_refused(j, op, x->dim, tile);
}

// `column`: the last dimension goes, so one element of each row moves.
static at_status slice(at_mosaic_judge *j, const at_mop *op, bool column,
                       bool scalars) {
  const at_mtype *m = ARG(op, 0), *base;
  bool argument;
  uint32_t rank = m->shape.rank, bits = at_mosaic_bits(m);
  if (rank == 0 || bits < 2 || !base_of(op->operands[0], &base, &argument))
    return AT_OK;
  if (rank == 1) return scalars ? AT_OK : line(j, op);
  int64_t tile = tile_of(j, base, argument), unit = bits < 32 ? 32 / bits : 1;
  part row = part_of(op, 2, tile), lane = part_of(op, 1, 128);
  // Rows start at any whole word. Where a row of tiles is a row of words, or
  // one tile, nothing else is asked of them.
  AT_TRY(tiles_only(j, op, &row, unit, tile));
  bool dense = lane.have <= 128 || tile <= unit;
  bool whole = lane.all || is_tiled(&lane, 128);
  bool rows_in = in_tile(&row, tile) || (whole && in_halves(&row, tile));
  bool lanes_in = in_tile(&lane, 128) || in_halves(&lane, 128);
  if (!dense && !(rows_in && (whole || lanes_in)))
    AT_TRY(tiles_only(j, op, &row, tile, tile));
  if (lane.all) return AT_OK;
  if (!dense && !(rows_in && lanes_in))
    AT_TRY(tiles_only(j, op, &lane, 128, 128));
  if (column && unit > 1 && lane.fixed &&
      at_mosaic_value_divides(lane.at, word_of(j, op) / 32))
    return at_mosaic_refuse(
        j, op, AT_INTERNAL,
        "Not implemented: Source and target trailing tiles differ");
  return lanes(j, op, &lane, unit == 1 || row.fixed);
}

// The slices that lie between a copy's operand and its memref.
static at_status moved(at_mosaic_judge *j, const at_mvalue *v, bool scalars) {
  bool column = false;
  while (v->op && v->op->num_operands) {
    const at_mop *op = v->op;
    const at_mtype *from = ARG(op, 0);
    at_mosaic_opcode c = at_mosaic_opcode_of(op);
    if (c == AT_MOSAIC_TPU_MEMREF_SQUEEZE)
      column = from->shape.rank >= 2 && at_mosaic_size(from, 1) == 1 &&
               at_mosaic_size(v->type, 1) != 1;
    else if (c == AT_MOSAIC_TPU_MEMREF_SLICE)
      AT_TRY(slice(j, op, column, scalars));
    else
      break;
    v = op->operands[0];
  }
  return AT_OK;
}

// The memory of a ref. *semaphore: its elements are no numbers, or it is no ref
// that there could be.
static at_mosaic_space space_of(const at_mtype *t, bool *semaphore) {
  at_mosaic_ref r = {0};
  at_status s = at_mosaic_ref_of(t, &r);
  bool good = at_ok(s);
  at_status_free(s);
  *semaphore = !good || r.semaphore;
  return r.space;
}

// Every ref that a copy or a wait names, but for semaphores. With SMEM on one
// side words move one by one.
static at_status copy(at_mosaic_judge *j, const at_mop *op) {
  bool semaphore, scalars = false;
  for (uint32_t i = 0; i < op->num_operands; i++)
    if (ARG(op, i)->kind == AT_MTYPE_MEMREF)
      scalars |= space_of(ARG(op, i), &semaphore) == AT_MSPACE_SMEM;
  for (uint32_t i = 0; i < op->num_operands; i++) {
    if (ARG(op, i)->kind != AT_MTYPE_MEMREF) continue;
    at_mosaic_space space = space_of(ARG(op, i), &semaphore);
    if (!semaphore && (space == AT_MSPACE_ANY || space == AT_MSPACE_HBM ||
                       space == AT_MSPACE_VMEM))
      AT_TRY(moved(j, op->operands[i], scalars));
  }
  return AT_OK;
}

// How many matrices of the last two dimensions.
static int64_t blocks_of(const at_mtype *t) {
  int64_t n = 1;
  for (uint32_t i = 0; i + 2 < t->shape.rank; i++) n *= t->shape.ptr[i];
  return n;
}

// Another shape of the same memory: rows keep their lanes and move by tiles,
// lines are cut anywhere between tiles.
static at_status reshaped(at_mosaic_judge *j, const at_mop *op) {
  const at_mtype *m = ARG(op, 0), *r = RES(op, 0), *base;
  bool argument, semaphore;
  at_mosaic_space space = space_of(m, &semaphore);
  if (semaphore || space != AT_MSPACE_VMEM || m->shape.rank < 2 ||
      r->shape.rank < 2 || !base_of(op->operands[0], &base, &argument))
    return AT_OK;
  int64_t rows = at_mosaic_size(m, 2), to = at_mosaic_size(r, 2);
  int64_t tile = tile_of(j, m, argument);
  int64_t lanes = at_mosaic_size(m, 1);
  bool same_lanes = lanes == at_mosaic_size(r, 1);
  // Words line after line, each of whole tiles of one row or of one column.
  bool lines = at_mosaic_bits(m) == 32 && lanes % 128 == 0 &&
               (lanes == 128 || tile == 1) && at_mosaic_size(r, 1) % 128 == 0;
  if (lines || (same_lanes && is_untiled(m))) {
    if (blocks_of(m) == 1 || rows % tile == 0) return AT_OK;
    return at_mosaic_refuse(
        j, op, AT_INTERNAL,
        "Not implemented: Reshape on a non-contiguous memref.");
  }
  if (same_lanes && (rows == to || (rows % tile == 0 && to % tile == 0)))
    return AT_OK;
  return at_mosaic_refuse(
      j, op, AT_INTERNAL,
      "Not implemented: Supported only when (a) tiled dimensions remain "
      "unchanged, except maybe for tile-aligned folding/unfolding");
}

// ---- Vectors
// Widths, one gathered dimension, and a source that fits one register along it.
static at_status gather(at_mosaic_judge *j, const at_mop *op) {
  const at_mtype *a = ARG(op, 0), *i = ARG(op, 1);
  uint32_t bits = at_mosaic_bits(a), rank = a->shape.rank;
  at_dims d;
  if (!at_mosaic_attr_ints(at_mop_attr(op, "dimensions"), j->scratch, &d))
    return AT_OK;
  if (bits != 8 && bits != 16 && bits != 32)
    return at_mosaic_refuse(
        j, op, AT_INTERNAL,
        "Not implemented: Only 8-, 16- or 32-bit gathers supported");
  if (d.rank == 1 && a->shape.ptr[d.ptr[0]] == 1) return AT_OK;
  if (bits != at_mosaic_bits(i))
    return at_mosaic_refuse(j, op, AT_INTERNAL,
                            "Not implemented: Gather indices and result have "
                            "different bitwidths");
  if (d.rank != 1) return AT_OK;
  // Lanes of a register are 128, rows eight of words and more of narrow
  // elements; along other dimensions there is no limit.
  int64_t from_end = rank - d.ptr[0];
  int64_t n = from_end == 1 ? 128 : from_end == 2 ? 8 * (32 / bits) : INT64_MAX;
  if (a->shape.ptr[d.ptr[0]] > n)
    return at_mosaic_refuse(
        j, op, AT_INTERNAL,
        "Not implemented: Multiple source vregs along gather dimension");
  return AT_OK;
}

// Rows of narrow elements are read at a stride by the word.
static at_status whole_words(at_mosaic_judge *j, const at_mop *op,
                             const char *what, int64_t rows) {
  uint32_t bits = at_mosaic_bits(ARG(op, 0));
  uint32_t packing = bits && bits < 32 ? 32 / bits : 1;
  if (rows == AT_MDYN || rows % packing == 0) return AT_OK;
  return at_mosaic_refuse(
      j, op, AT_INTERNAL,
      "Unsupported strided load for packed type: second-minor dimension of %s "
      "(%lld) must be a multiple of packing factor %u",
      what, (long long)rows, packing);
}

// One row that is read again and again may lie in several tiles, if it fills
// them.
static at_status strided_wide(at_mosaic_judge *j, const at_mop *op,
                              uint32_t ref, bool same_row) {
  const at_mtype *m = ARG(op, ref);
  uint32_t rank = m->shape.rank;
  int64_t row;
  if (!same_row || ref == 1)
    return at_mosaic_refuse(j, op, AT_INTERNAL,
                            "Not Implemented: The last dim size is not 128 in "
                            "original base memref");
  if (m->shape.ptr[rank - 1] % 128)
    return at_mosaic_refuse(j, op, AT_INTERNAL,
                            "Not Implemented: The last dim size is not a "
                            "multiple of 128 in original base memref");
  const at_mvalue *index = op->operands[rank - 1];
  if (!at_mosaic_value_const(index, &row) && !at_mosaic_value_divides(index, 8))
    return at_mosaic_refuse(j, op, AT_INTERNAL,
                            "Failed to prove that a tile index in dimension %u "
                            "is divisible by the tiling (8).",
                            rank - 2);
  return AT_OK;
}

// Vectors of rank 1 have no strided access.
static at_status strided_line(at_mosaic_judge *j, const at_mop *op, bool load,
                              bool words) {
  if (load)
    return at_mosaic_refuse(j, op, AT_INTERNAL,
                            "%s implemented: Strided load with 1D vector",
                            words ? "not" : "Not");
  return at_mosaic_refuse(j, op, AT_INTERNAL,
                          "not implemented: Strided store with %s",
                          words ? "1D vector" : "non 32-bit data");
}

// Words go row by row wherever they lie; narrower elements can only be read so,
// and from the first lane on.
static at_status strided(at_mosaic_judge *j, const at_mop *op, uint32_t ref) {
  const at_mtype *m = ARG(op, ref);
  uint32_t rank = m->shape.rank, bits = at_mosaic_bits(m);
  bool words = bits == 32 || bits == 1;
  at_dims d;
  if (rank < 1 ||
      !at_mosaic_attr_ints(at_mop_attr(op, "strides"), j->scratch, &d))
    return AT_OK;
  if (rank == 1) return strided_line(j, op, ref == 0, words);
  bool plain = d.ptr[rank - 1] == 1;
  int64_t lane;
  bool first =
      at_mosaic_value_const(op->operands[ref + rank], &lane) && lane == 0;
  int64_t at;
  for (uint32_t i = 0; !words && ref == 0 && i < rank; i++)
    if (!at_mosaic_value_const(op->operands[1 + i], &at))
      return at_mosaic_refuse(
          j, op, AT_INTERNAL,
          "Only static indices are supported for packed types");
  if (!words && ref == 1)
    return at_mosaic_refuse(
        j, op, AT_INTERNAL,
        "not implemented: Strided store with non 32-bit data");
  if (!words && !first)
    return at_mosaic_refuse(j, op, AT_INTERNAL,
                            "Not Implemented: Index on last dim is not 0");
  if (!words && !plain)
    return at_mosaic_refuse(j, op, AT_INTERNAL,
                            "Not implemented: Stride on last dim is not 1");
  if (!words) {
    AT_TRY(whole_words(j, op, "base memref", at_mosaic_size(m, 2)));
    AT_TRY(whole_words(j, op, "result vector", at_mosaic_size(RES(op, 0), 2)));
  }
  if ((words || first) && m->shape.ptr[rank - 1] > 128)
    AT_TRY(strided_wide(j, op, ref, d.ptr[rank - 2] == 0));
  if (!first)
    return at_mosaic_refuse(j, op, AT_INTERNAL,
                            "Not Implemented: Index on last dim is not 0");
  if (!plain)
    return at_mosaic_refuse(j, op, AT_INTERNAL,
                            "Not Implemented: Stride on last dim is not 1");
  return AT_OK;
}

// A turn, which may grow along another dimension.
static at_status rotation(at_mosaic_judge *j, const at_mop *op) {
  const at_mtype *t = ARG(op, 0);
  const at_mattr *along = at_mop_attr(op, "stride_dimension");
  uint32_t rank = t->shape.rank, bits = at_mosaic_bits(t);
  int64_t by, d = at_mop_attr(op, "dimension")->i;
  if (rank == 1)
    return at_mosaic_refuse(j, op, AT_INTERNAL,
                            "not implemented: Unsupported 1D shape");
  if (bits == 1)
    return at_mosaic_refuse(
        j, op, AT_INTERNAL,
        "Not implemented: changeBitwidth when src bitwidth and dst bitwidth "
        "differs too much.");
  if (!along || !bits || d < 0 || d >= rank) return AT_OK;
  int64_t from_end = rank - d, stride_from_end = rank - along->i;
  int64_t tile = from_end == 1   ? 128
                 : from_end == 2 ? 8 * (32 / AT_MIN(bits, 32u))
                                 : 1;
  if (t->shape.ptr[d] % tile)
    return at_mosaic_refuse(j, op, AT_INTERNAL,
                            "Not implemented: unsupported unaligned shape");
  if (stride_from_end > 2) return AT_OK;
  if (!at_mosaic_value_const(op->operands[1], &by))
    return at_mosaic_refuse(j, op, AT_INTERNAL,
                            "Not implemented: strided dynamic rotation along "
                            "the two last dimensions is unsupported");
  if (stride_from_end == 1)
    return at_mosaic_refuse(
        j, op, AT_INTERNAL,
        "Not implemented: stride dimension is the minor most");
  // The rows of a register are turned by different amounts: narrow elements
  // only on newer chips.
  uint32_t least = j->chip->generation >= 6 ? 8 : 16;
  if (from_end == 1 && bits >= least) return AT_OK;
  return at_mosaic_refuse(
      j, op, AT_INTERNAL,
      "Not implemented: rotation dimension must be the minor most and bitwidth "
      "must be >= %u (got %u) on TPU v%d when stride dimension is the second "
      "minor most",
      least, bits, j->chip->generation);
}

// Are two shapes the same but for dimensions of size 1?
static bool same_but_ones(at_dims a, at_dims b) {
  uint32_t i = 0, k = 0;
  for (;;) {
    while (i < a.rank && a.ptr[i] == 1) i++;
    while (k < b.rank && b.ptr[k] == 1) k++;
    if (i == a.rank || k == b.rank) return i == a.rank && k == b.rank;
    if (a.ptr[i++] != b.ptr[k++]) return false;
  }
}

// Are n lanes the last dimensions of a shape, two or more of them, in one?
static bool joins(const at_mtype *t, int64_t n) {
  int64_t all = at_mosaic_size(t, 1);
  for (uint32_t i = 2; i <= t->shape.rank && all > 0 && all < n; i++)
    all *= at_mosaic_size(t, i);
  return all == n;
}

// Several blocks of rows are a line only where each is one column of whole
// tiles.
static bool is_line(at_mosaic_judge *j, const at_mtype *t) {
  return blocks_of(t) == 1 ||
         (at_mosaic_size(t, 1) == 128 &&
          at_mosaic_size(t, 2) % tile_of(j, t, false) == 0);
}

// Masks keep their lanes.
static at_status mask_cast(at_mosaic_judge *j, const at_mop *op) {
  const at_mtype *a = ARG(op, 0), *b = RES(op, 0);
  if (a->shape.rank < 3 && b->shape.rank < 3)
    return at_mosaic_refuse(j, op, AT_INTERNAL,
                            "Not implemented: changeBitwidth when src bitwidth "
                            "and dst bitwidth differs too much.");
  return at_mosaic_refuse(
      j, op, AT_INTERNAL,
      a->shape.rank > b->shape.rank && joins(a, at_mosaic_size(b, 1))
          ? "i1 transpose is not supported."
          : "infer-vector-layout: unsupported shape cast");
}

// Lanes stay, or they are divided or joined evenly within one tile, or between
// whole tiles, or with whole dimensions before them.
static at_status shape_cast(at_mosaic_judge *j, const at_mop *op) {
  const at_mtype *a = ARG(op, 0), *b = RES(op, 0);
  if (!at_mosaic_is_vector(a) || !at_mosaic_is_vector(b) ||
      same_but_ones(a->shape, b->shape))
    return AT_OK;
  int64_t from = at_mosaic_size(a, 1), to = at_mosaic_size(b, 1);
  if (from <= 0 || to <= 0) return AT_OK;
  // Numbers are repacked in registers, masks are not.
  if (from != to && at_mosaic_bits(a) == 1) return mask_cast(j, op);
  bool evenly = from % to == 0 || to % from == 0;
  bool lines = (b->shape.rank > 1 || is_line(j, a)) &&
               (a->shape.rank > 1 || is_line(j, b));
  if (from == to || (from <= 128 && to <= 128 && evenly) ||
      (from % 128 == 0 && to % 128 == 0 && lines) ||
      (a->shape.rank > 1 && b->shape.rank > 1 &&
       (joins(b, from) || joins(a, to))))
    return AT_OK;
  return at_mosaic_refuse(j, op, AT_INTERNAL,
                          "infer-vector-layout: unsupported shape cast");
}

// Masks are transposed with their lanes; where the last dimension stays in its
// place the compiler has no way.
static at_status transpose(at_mosaic_judge *j, const at_mop *op) {
  at_dims p;
  if (at_mosaic_bits(RES(op, 0)) != 1 ||
      !at_mosaic_attr_ints(at_mop_attr(op, "permutation"), j->scratch, &p) ||
      p.rank == 0 || p.ptr[p.rank - 1] != p.rank - 1)
    return AT_OK;
  return at_mosaic_refuse(j, op, AT_INTERNAL, "i1 transpose is not supported.");
}

// What has no case has no rule about layouts.
at_status at_mosaic_rules_layout(at_mosaic_judge *j, const at_mop *op) {
  switch (at_mosaic_opcode_of(op)) {
    case AT_MOSAIC_VECTOR_LOAD:
    case AT_MOSAIC_TPU_VECTOR_LOAD:
      return access(j, op, 0, RES(op, 0));
    case AT_MOSAIC_VECTOR_STORE:
    case AT_MOSAIC_TPU_VECTOR_STORE:
      return access(j, op, 1, ARG(op, 0));
    case AT_MOSAIC_TPU_ENQUEUE_DMA:
    case AT_MOSAIC_TPU_WAIT_DMA:
    case AT_MOSAIC_TPU_WAIT_DMA2:
      return copy(j, op);
    case AT_MOSAIC_TPU_MEMREF_RESHAPE:
      return reshaped(j, op);
    case AT_MOSAIC_VECTOR_SHAPE_CAST:
    case AT_MOSAIC_TPU_RESHAPE:
      return shape_cast(j, op);
    case AT_MOSAIC_TPU_TRANSPOSE:
    case AT_MOSAIC_VECTOR_TRANSPOSE:
      return transpose(j, op);
    case AT_MOSAIC_TPU_DYNAMIC_GATHER:
      return gather(j, op);
    case AT_MOSAIC_TPU_STRIDED_LOAD:
      return strided(j, op, 0);
    case AT_MOSAIC_TPU_STRIDED_STORE:
      return strided(j, op, 1);
    case AT_MOSAIC_TPU_DYNAMIC_ROTATE:
      return rotation(j, op);
    case AT_MOSAIC_TPU_IOTA: {
      uint32_t bits = at_mosaic_bits(RES(op, 0));
      if (bits == 8 || bits == 16 || bits == 32) return AT_OK;
      return at_mosaic_refuse(
          j, op, AT_INTERNAL,
          "Not implemented: Only 8-, 16- and 32-bit Iota supported");
    }
    default:
      return AT_OK;
  }
}

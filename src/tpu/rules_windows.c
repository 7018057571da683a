// Grid, block shapes, element types at the edge, layouts of windows.
#include "tpu/rules_internal.h"

// XLA splits 64-bit arrays in two before it sees custom calls.
static at_status check_wide(at_mosaic_judge *j, const at_type *t) {
  if (at_dtype_of(t->dtype)->bits < 64) return AT_OK;
  return AT_FAIL(
      AT_UNIMPLEMENTED,
      "While rewriting computation to not contain X{64|128} element "
      "types, XLA encountered an HLO for which this rewriting is not "
      "implemented: %%%s = custom-call, "
      "custom_call_target=\"tpu_custom_call\"\n"
      "detail: kernel %s has an operand or result of type %s",
      j->k->name, j->k->name, at_dtype_of(t->dtype)->text);
}

// Is the block all of the array, or is there no map?
static bool is_trivial(const at_mosaic_window *w) {
  return !w->transform || w->whole.dtype == AT_INVALID ||
         at_dims_eq(w->bounds, at_type_dims(&w->whole));
}

// JAX checks this before it lowers; payloads made by hand are checked here.
static at_status check_block(at_mosaic_judge *j, const at_mosaic_window *w) {
  if (w->kind == AT_MWIN_WHOLE || w->whole.dtype == AT_INVALID ||
      w->ref.semaphore || (w->ref.space == AT_MSPACE_SMEM && is_trivial(w)))
    return AT_OK;
  uint32_t rank = w->bounds.rank, bits = at_dtype_of(w->ref.dtype)->bits;
  const int64_t *b = w->bounds.ptr, *a = w->whole.dims;
  if (rank < 1)
    return at_mosaic_refuse(j, j->p->func, AT_INVALID_ARGUMENT,
                            "The Pallas TPU lowering currently supports only "
                            "blocks of rank >= 1.");
  for (uint32_t i = 0; i < rank; i++)
    if (b[i] == AT_MDYN || a[i] == AT_DYN) return AT_OK;
  if (rank == 1) {
    // A row of words, in elements.
    int64_t least = 128 * 32 / AT_MIN(bits, 32u);
    if (b[0] == a[0] || b[0] % 1024 == 0 ||
        (b[0] >= least && (b[0] & (b[0] - 1)) == 0))
      return AT_OK;
    return at_mosaic_refuse(
        j, j->p->func, AT_INVALID_ARGUMENT,
        "The Pallas TPU lowering currently requires that rank 1 block shapes, "
        "either 1) the first (and only) dimension of the block shape is equal "
        "to the first (and only) dimension of the array shape, or 2) the first "
        "(and only) dimension of the block shape is a multiple of 1024, or 3) "
        "the first (and only) dimension of the block shape is a power of 2 and "
        "at least the tiling size (%lld) of the array shape. The block is "
        "[%lld], the array [%lld]",
        (long long)least, (long long)b[0], (long long)a[0]);
  }
  if ((b[rank - 1] == a[rank - 1] || b[rank - 1] % 128 == 0) &&
      (b[rank - 2] == a[rank - 2] || b[rank - 2] % 8 == 0))
    return AT_OK;
  return at_mosaic_refuse(
      j, j->p->func, AT_INVALID_ARGUMENT,
      "The Pallas TPU lowering currently requires that the last two dimensions "
      "of your block shape are divisible by 8 and 128 respectively, or be "
      "equal "
      "to the respective dimensions of the overall array. The last two are "
      "[%lld, %lld] of [%lld, %lld]",
      (long long)b[rank - 2], (long long)b[rank - 1], (long long)a[rank - 2],
      (long long)a[rank - 1]);
}

// Elements of two bits: whole rows of words hold 16 rows of them, so that
// blocks must be made of the array's tiles.
static at_status check_layout(at_mosaic_judge *j, const at_mosaic_window *w) {
  if (w->kind == AT_MWIN_WHOLE || w->ref.space != AT_MSPACE_VMEM ||
      w->ref.semaphore || w->bounds.rank < 2 || w->whole.dtype == AT_INVALID)
    return AT_OK;
  uint32_t rank = w->bounds.rank, bits = at_dtype_of(w->ref.dtype)->bits;
  int64_t rows = w->bounds.ptr[rank - 2], all = w->whole.dims[rank - 2];
  if (bits != 2 || rows == AT_MDYN || all == AT_DYN || rows == all)
    return AT_OK;
  // The array's tiles, which a block may not cut.
  int64_t tile = all % 128 == 0 ? 128 : 16;
  if (rows % tile == 0) return AT_OK;
  if (tile == 128)
    return at_mosaic_refuse(j, j->p->func, AT_INTERNAL,
                            "Not implemented: layout too complicated");
  return at_mosaic_refuse(
      j, j->p->func, AT_INVALID_ARGUMENT,
      "Failed to set window params for %s %u: E2002: "
      "CompileTimeMosaicMisalignedBlockAndTiling:\nOperand of shape (..., "
      "%lld, "
      "%lld) has tiling (%lld, 128), but its block shape (..., %lld, %lld) is "
      "not divisible by tiling evenly nor matches the full shape\nSee "
      "https://openxla.org/xla/errors/error_2002 for more details.",
      w->is_output ? "output" : "input", w->index, (long long)all,
      (long long)w->whole.dims[rank - 1], (long long)tile, (long long)rows,
      (long long)w->bounds.ptr[rank - 1]);
}

// Windows at element offsets begin inside their array, at tiles of it.
static at_status check_start(at_mosaic_judge *j, const at_mosaic_window *w) {
  uint32_t rank = w->bounds.rank, tiled = AT_MIN(rank, 2u);
  if (w->kind != AT_MWIN_ELEMENT || w->ref.space != AT_MSPACE_VMEM ||
      w->ref.semaphore || w->whole.dtype == AT_INVALID || !w->transform)
    return AT_OK;
  const char *side = w->is_output ? "output" : "input";
  for (uint32_t d = 0; d < w->pad_low.rank; d++)
    if (w->pad_low.ptr[d] > 0)
      return at_mosaic_refuse(j, j->p->func, AT_UNIMPLEMENTED,
                              "Failed to set window params for %s %u: Low "
                              "padding not supported yet",
                              side, w->index);
  const at_mblock *b = w->transform->regions[0]->blocks[0];
  const at_mop *ret = b->num_ops ? b->ops[b->num_ops - 1] : NULL;
  for (uint32_t d = rank - tiled; ret && d < rank; d++) {
    if (d >= ret->num_operands || w->whole.dims[d] == AT_DYN) return AT_OK;
    int64_t tile = d + 1 == rank ? 128
                                 : at_mosaic_tile_rows(
                                       j->chip, at_dtype_of(w->ref.dtype)->bits,
                                       w->whole.dims[d], true);
    if (at_mosaic_value_divides(ret->operands[d], tile)) continue;
    return at_mosaic_refuse(
        j, j->p->func, AT_INVALID_ARGUMENT,
        "Failed to set window params for %s %u: Couldn't prove that tiling "
        "(%lld) divides index returned by transform_indices on dimension %u",
        side, w->index, (long long)tile, d - (rank - tiled));
  }
  return AT_OK;
}

// A core-parallel dimension has one step per core.
static at_status check_cores(at_mosaic_judge *j, uint32_t dim) {
  const at_mosaic_axis *a = &j->p->grid[dim];
  int cores = j->chip->cores_per_device;
  if (a->semantics != AT_MDIM_CORE_PARALLEL || a->dynamic || a->bound == cores)
    return AT_OK;
  if (a->bound < cores)
    return at_mosaic_refuse(
        j, NULL, AT_INVALID_ARGUMENT,
        "Core-parallel dimension must be less than or equal "
        "to the number of active cores.");
  return at_mosaic_refuse(
      j, NULL, AT_INVALID_ARGUMENT,
      "Core-parallel dimension %u has iteration bound: %lld, which is greater "
      "than the number of active cores: %d.",
      dim, (long long)a->bound, cores);
}

// Operands and results, the grid, then each window.
at_status at_mosaic_rules_windows(at_mosaic_judge *j) {
  const at_mosaic_program *p = j->p;
  const at_mosaic_call *c = &j->k->call;
  for (uint32_t i = 0; i < c->num_operands; i++)
    AT_TRY(check_wide(j, &c->operands[i]));
  for (uint32_t i = 0; i < c->num_results; i++)
    AT_TRY(check_wide(j, &c->results[i]));
  bool tc = p->core == AT_MCORE_TC || p->core == AT_MCORE_ANY;
  for (uint32_t i = 0; tc && i < p->grid_rank; i++)
    if (p->grid[i].semantics == AT_MDIM_SUBCORE_PARALLEL)
      return at_mosaic_refuse(j, NULL, AT_INVALID_ARGUMENT,
                              "subcore_parallel is only supported on "
                              "SparseCore.");
  for (uint32_t i = 0; tc && i < p->grid_rank; i++) AT_TRY(check_cores(j, i));
  for (uint32_t i = 0; tc && i < p->num_windows; i++) {
    AT_TRY(check_block(j, &p->windows[i]));
    AT_TRY(check_layout(j, &p->windows[i]));
    AT_TRY(check_start(j, &p->windows[i]));
  }
  return AT_OK;
}

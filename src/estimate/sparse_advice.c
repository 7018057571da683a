// What would make embedding lookups cheaper, from an estimate's own figures.
#include <math.h>

#include "estimate/sparse.h"

// Adds a line once. NULL: no memory.
static at_status say(at_arena *a, at_est_lines *out, const char *text) {
  if (!text) return AT_NO_MEMORY("advice");
  for (size_t i = 0; i < out->len; i++)
    if (!strcmp(out->ptr[i], text)) return AT_OK;
  return at_vec_push(a, out, text) ? AT_OK : AT_NO_MEMORY("advice");
}

// The stack, or the op where it has no name.
static const char *table_of(const at_estimate_embedding *e) {
  return *e->table ? e->table : e->name;
}

// Seconds in which stages wait for kernels to start.
static double launches(const at_estimate_embedding *e) {
  double sum = 0;
  for (uint32_t i = 0; i < e->num_stages; i++)
    if (e->stages[i].bound == AT_BOUND_LATENCY) sum += e->stages[i].seconds;
  return sum;
}

// Rows are padded to a multiple of 8 elements.
static at_status on_width(const at_estimate_embedding *e, at_arena *a,
                          at_est_lines *out) {
  if (e->width >= e->padded_width) return AT_OK;
  return say(
      a, out,
      at_arena_printf(
          a,
          "%s: rows of %g elements are stored and moved as %g, %.0f%% of it "
          "padding; tables looked up with the same ids can share a row, column "
          "beside column, so that its width is a multiple of 8",
          table_of(e), e->width, e->padded_width,
          100 * (1 - e->width / e->padded_width)));
}

// Limits that are too low, so that ids are dropped or batches split, or at
// least twice what is needed.
static at_status on_limits(const at_estimate_embedding *e, at_arena *a,
                           at_est_lines *out) {
  const double headroom = 1.1, loose = 2;
  if (e->seen_ids <= 0 || e->max_ids <= 0 || e->max_unique <= 0) return AT_OK;
  double ids = ceil(headroom * e->seen_ids);
  double unique = ceil(headroom * e->seen_unique);
  if (e->minibatches > 1)
    return say(
        a, out,
        at_arena_printf(
            a,
            "%s: %g mini-batches a run, as a partition has %.0f ids and %.0f "
            "different ones on average and its limits are %g and %g; with "
            "max_ids_per_partition %.0f and max_unique_ids_per_partition %.0f "
            "one is enough",
            table_of(e), e->minibatches, e->seen_ids, e->seen_unique,
            e->max_ids, e->max_unique, ids, unique));
  if (e->seen_ids > e->max_ids || e->seen_unique > e->max_unique)
    return say(
        a, out,
        at_arena_printf(
            a,
            "%s: a partition has %.0f ids and %.0f different ones on average, "
            "over its limits of %g and %g: ids are dropped or the step fails; "
            "raise max_ids_per_partition to %.0f and "
            "max_unique_ids_per_partition to %.0f, or enable mini-batches",
            table_of(e), e->seen_ids, e->seen_unique, e->max_ids, e->max_unique,
            ids, unique));
  if (e->max_ids < loose * e->seen_ids &&
      e->max_unique < loose * e->seen_unique)
    return AT_OK;
  return say(
      a, out,
      at_arena_printf(
          a,
          "%s: limits of %g ids and %g different ones hold %.1f MiB of HBM, "
          "and a partition has %.0f and %.0f on average: limits taken from "
          "data "
          "(atoll.sparsecore.LimitsEstimator) hold less",
          table_of(e), e->max_ids, e->max_unique, e->stack_bytes / (1 << 20),
          e->seen_ids, e->seen_unique));
}

// What is said of a table's lookup holds for its update, too.
static bool is_said(const at_estimate *e, const at_estimate_embedding *x) {
  for (uint32_t i = 0; i < e->num_embeddings && x->update; i++)
    if (!e->embeddings[i].update &&
        !strcmp(table_of(&e->embeddings[i]), table_of(x)))
      return true;
  return false;
}

// Lookups of other tables of the same width wait for kernels to start, too.
static at_status on_stacking(const at_estimate *e, at_arena *a,
                             at_est_lines *out) {
  for (uint32_t i = 0; i < e->num_embeddings; i++) {
    const at_estimate_embedding *x = &e->embeddings[i];
    double alike = 0, waiting = 0;
    bool first = true;
    for (uint32_t k = 0; k < e->num_embeddings; k++) {
      const at_estimate_embedding *y = &e->embeddings[k];
      if (y->update != x->update || y->padded_width != x->padded_width ||
          y->slots != x->slots)
        continue;
      first &= k >= i;
      alike++, waiting += launches(y);
    }
    if (!first || alike < 2 || waiting < .25 * x->seconds * alike) continue;
    AT_TRY(say(a, out,
               at_arena_printf(
                   a,
                   "%.0f %s of width %g are apart, and %.0f us of them are "
                   "starts of kernels; tables of one width and optimizer can "
                   "be one stack, whose %s starts once: about %.0f us less",
                   alike, x->update ? "updates" : "lookups", x->padded_width,
                   waiting * 1e6, x->update ? "update" : "lookup",
                   waiting * (1 - 1 / alike) * 1e6)));
  }
  return AT_OK;
}

// A tenth of the step with SparseCores alone is worth the pipelining.
static at_status on_overlap(const at_estimate *e, at_arena *a,
                            at_est_lines *out) {
  double could = fmin(e->sparse_exposed, e->kernels);
  if (could < .1 * e->seconds) return AT_OK;
  return say(
      a, out,
      at_arena_printf(
          a,
          "%.0f us of SparseCore work have no kernel beside them; "
          "jax-tpu-embedding's auto_pipelining takes lookups and updates of "
          "neighbouring steps beside the dense part, with gradients two steps "
          "old: up to %.0f us less",
          e->sparse_exposed * 1e6, could * 1e6));
}

// Of each table, then of all of them together.
at_status at_est_sparse_advice(const at_estimate *e, at_arena *a,
                               at_est_lines *out) {
  for (uint32_t i = 0; i < e->num_embeddings; i++) {
    const at_estimate_embedding *x = &e->embeddings[i];
    if (*x->refusal)
      AT_TRY(say(a, out,
                 at_arena_printf(a, "%s: the compiler refuses it: %.300s",
                                 table_of(x), x->refusal)));
    if (is_said(e, x)) continue;
    AT_TRY(on_width(x, a, out));
    AT_TRY(on_limits(x, a, out));
  }
  AT_TRY(on_stacking(e, a, out));
  return on_overlap(e, a, out);
}

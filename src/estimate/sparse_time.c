// What a lookup or an update takes on SparseCores, stage by stage.
//
// The stages and the kernels in each are those of the programs that libtpu
// 0.0.52 makes of the calls (v5p, v6e; HLO of jax-tpu-embedding's steps): ids
// are made unique per partition, sizes, offsets and ids are exchanged, owners
// gather rows into HBM, rows are exchanged, and each sample's are added up; an
// update sums gradients per row, exchanges them, sorts what came from all,
// sums again, and gathers, computes and scatters table and slots. All that is
// larger than a partition's row pointers goes through HBM between kernels.
#include <math.h>

#include "estimate/sparse.h"
#include "machine/machine.h"

// Figures have no defaults: a machine without SparseCores lacks the first.
at_status at_est_sparse_chip_of(const at_tpu_chip *c, at_est_sparse_chip *out) {
  const at_machine *m = c->machine;
  *out = (at_est_sparse_chip){.clock = c->clock, .hbm_rate = c->hbm_rate};
  const struct {
    const char *name;
    double *to;
  } need[] = {{"sparse_cores_per_device", &out->cores},
              {"sparse_tiles_per_core", &out->tiles},
              {"sparse_lanes_32bit", &out->lanes},
              {"sparse_granule_bytes", &out->granule},
              {"sparse_tile_bytes_per_cycle", &out->tile_rate},
              {"sparse_kernel_cycles", &out->launch}};
  for (size_t i = 0; i < AT_LEN(need); i++)
    AT_TRY(at_machine_need(m, need[i].name, need[i].to));
  return AT_OK;
}

enum { WORD = 4, SIZES_WIDTH = 8 };

// What the kernels of one stage do on one SparseCore.
typedef struct stage {
  const char *name;
  double kernels;   // one after the other
  double bytes;     // between HBM and a SparseCore's tiles
  double moved;     // of them, what one tile's port moves after the other
  double elements;  // that its vectors take in
} stage;

// The stages so far, and what they are made from.
typedef struct model {
  const at_est_sparse_chip *c;
  const at_target *t;
  const at_est_sparse_work *w;
  at_estimate_stage *stages;
  uint32_t num;
} model;

// Whatever lies apart in HBM is moved in granules.
static double scattered(const model *m, double rows, double bytes) {
  return rows * ceil(bytes / m->c->granule) * m->c->granule;
}

// All bytes pass the ports of the tiles one after the other.
static stage moves(const char *name, double kernels, double bytes,
                   double elements) {
  return (stage){name, kernels, bytes, bytes, elements};
}

// Rows come and go at the same time.
static stage gathers(const char *name, double kernels, double read,
                     double written) {
  return (stage){name, kernels, read + written, fmax(read, written), 0};
}

static double row_bytes(const model *m) { return m->w->width * WORD; }

// The port of a tile or its vectors, whichever takes longer; launches add up.
double at_est_sparse_kernel(const at_est_sparse_chip *c, double kernels,
                            double bytes, double elements) {
  double port = bytes / (c->tiles * c->tile_rate);
  return kernels * c->launch + fmax(port, elements / (c->tiles * c->lanes));
}

// A stage of work in tiles: all SparseCores of the device share its HBM.
static void add_work(model *m, stage s) {
  const at_est_sparse_chip *c = m->c;
  AT_ASSERT(m->num < AT_EST_STAGES && s.moved <= s.bytes);
  double kernels = s.kernels * m->w->minibatches;
  double tile = at_est_sparse_kernel(c, kernels, s.moved, s.elements);
  double launch = kernels * c->launch, hbm = s.bytes * c->cores / c->hbm_rate;
  double work = fmax(hbm, tile - launch);
  double vector = s.elements / (c->tiles * c->lanes);
  m->stages[m->num++] =
      (at_estimate_stage){.name = s.name,
                          .seconds = (launch + work) / c->clock,
                          .hbm_bytes = s.bytes * c->cores,
                          .bound = launch > work   ? AT_BOUND_LATENCY
                                   : work > vector ? AT_BOUND_MEMORY
                                                   : AT_BOUND_VECTOR};
}

// `bytes` of each SparseCore, to all of them: what stays on the device is
// copied in its HBM, the rest takes the network. `times`: in as many
// exchanges.
static at_status add_exchange(model *m, const char *name, double bytes,
                              double times, double kernels) {
  const at_est_sparse_chip *c = m->c;
  const at_est_sparse_work *w = m->w;
  double all = bytes * c->cores, n = w->devices;
  AT_ASSERT(m->num < AT_EST_STAGES);
  double hbm = 2 * all / c->hbm_rate;
  double launch = (kernels + times) * c->launch * w->minibatches;
  at_cost_time net = {0};
  if (w->devices > 1) {
    at_collective x = {
        .op = AT_ALL_TO_ALL,
        .dtype = AT_F32,
        .bytes = (int64_t)fmin(1e18, fmax(1, all / times / w->minibatches)),
        .groups = {1, w->devices, NULL}};
    AT_TRY(at_cost_collective(m->t, &x, &net));
  }
  double network = net.seconds * times * w->minibatches * c->clock;
  double most = fmax(hbm, network);
  m->stages[m->num++] =
      (at_estimate_stage){.name = name,
                          .seconds = (launch + most) / c->clock,
                          .hbm_bytes = 2 * all,
                          .network_bytes = all * (n - 1) / n,
                          .bound = launch > most   ? AT_BOUND_LATENCY
                                   : network > hbm ? AT_BOUND_NETWORK
                                                   : AT_BOUND_MEMORY};
  return AT_OK;
}

// Sizes and offsets of each partition, then ids.
static at_status exchange_ids(model *m) {
  const at_est_sparse_work *w = m->w;
  AT_TRY(add_exchange(m, "exchange sizes",
                      3 * w->partitions * SIZES_WIDTH * WORD * w->minibatches,
                      3, 9));
  return add_exchange(m, "exchange ids", w->unique * WORD, 1, 0);
}

// A local lookup needs no unique ids and no exchange.
static at_status look_up(model *m) {
  const at_est_sparse_work *w = m->w;
  double row = row_bytes(m), table_row = w->width * w->element_bytes;
  if (!w->local) {
    // Row pointers three times; ids twice, for unique rows and for places.
    double words = 3 * w->partitions + 3 * w->ids + w->unique;
    add_work(m, moves("make ids unique", 5, WORD * words, 2 * w->ids));
    AT_TRY(exchange_ids(m));
  }
  add_work(m, gathers("gather rows", 1, scattered(m, w->unique, table_row),
                      w->unique * row));
  if (!w->local)
    AT_TRY(add_exchange(m, "exchange rows", w->unique * row, 1, 1));
  double read = scattered(m, w->ids, row) + 4 * WORD * w->ids;
  add_work(m, moves("add up samples", 2, read + w->samples * row,
                    w->ids * w->width));
  return AT_OK;
}

// Gradients to the owners of their rows, then one step of the optimizer.
static at_status update(model *m) {
  const at_est_sparse_work *w = m->w;
  double row = row_bytes(m), table_row = w->width * w->element_bytes;
  // The table has its own type, slots are f32.
  double kept = scattered(m, w->touched, table_row) +
                (w->tables - 1) * scattered(m, w->touched, row);
  double states = w->tables * w->touched * row;
  add_work(m, moves("sum gradients", 3,
                    scattered(m, w->ids, row) + 3 * WORD * w->ids +
                        w->unique * (row + WORD),
                    w->ids * w->width));
  AT_TRY(exchange_ids(m));
  AT_TRY(add_exchange(m, "exchange gradients", w->unique * row, 1, 1));
  // A sort of words and their places, in two passes at least.
  add_work(m, moves("sort ids", 3, 2 * 4 * WORD * w->unique, 0));
  add_work(m, gathers("gather gradients", 1, scattered(m, w->unique, row),
                      w->unique * row));
  add_work(m, moves("merge gradients", 1, (w->unique + w->touched) * row,
                    w->unique * w->width));
  add_work(m, gathers("gather table and slots", w->tables, kept, states));
  // Each table reads what it is made of, and the gradient.
  add_work(m, moves("optimize", w->tables, 2 * states + states,
                    2 * w->tables * w->touched * w->width));
  add_work(m, moves("scatter table and slots", w->tables, kept + states, 0));
  return AT_OK;
}

// The stages run one after the other.
at_status at_est_sparse_time(const at_est_sparse_chip *c, const at_target *t,
                             const at_est_sparse_work *w,
                             at_estimate_stage *stages, uint32_t *num,
                             double *seconds) {
  model m = {.c = c, .t = t, .w = w, .stages = stages};
  AT_TRY(w->update ? update(&m) : look_up(&m));
  *num = m.num;
  *seconds = 0;
  for (uint32_t i = 0; i < m.num; i++) *seconds += stages[i].seconds;
  return AT_OK;
}

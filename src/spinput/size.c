#include "spinput/size.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>

#include "machine/topology.h"

enum {
  PIECE = 8192,     // buffers of the stack are multiples of this
  GRANULE = 16384,  // and the stack of this
  COLUMNS = 8,      // a row is padded to
  ROW_STEP = 8,     // rows of a core are padded to
  WINDOW_ROWS = 8,  // of a row-wise loop in a tile
  PARTS = 8,        // into which large lookups are split
  ROW_BYTES = 32,   // of a tile, per unique id of a part
};
static const int64_t most_per_tensor = 16ll << 30;

// ---- The chip

// Figures that sizing cannot do without are asked for with at_machine_need.
at_status at_spinput_chip_find(at_str target, at_spinput_chip *out) {
  const at_machine *m;
  at_topology_text said;
  AT_TRY(at_topology_read(target, &m, &said));
  int32_t cores = (int32_t)at_machine_number(m, "sparse_cores_per_device", 0);
  if (cores < 1)
    return AT_FAIL(AT_UNIMPLEMENTED,
                   "Only Megachip mode is supporting mixed device type "
                   "computations.\n"
                   "detail: %s has no SparseCores\n"
                   "hint: v4, v5p, v6e and 7x have",
                   m->name);
  *out = (at_spinput_chip){.cores = cores};
  snprintf(out->name, sizeof out->name, "%s", m->name);
  static const char *const need[] = {
      "sparse_tiles_per_core",     "sparse_lanes_32bit",  "sparse_lanes_16bit",
      "sparse_tile_bytes",         "sparse_shared_bytes", "hbm_bytes_per_chip",
      "sparse_tile_reserved_bytes"};
  double v[AT_LEN(need)];
  for (size_t i = 0; i < AT_LEN(need); i++)
    AT_TRY(at_machine_need(m, need[i], &v[i]));
  out->tiles = (int32_t)v[0];
  out->lanes_32bit = (int32_t)v[1];
  out->lanes_16bit = (int32_t)v[2];
  out->tile_bytes = (int64_t)(v[3] - v[6]);
  out->shared_bytes = (int64_t)v[4];
  // A chip whose cores are devices of their own shares its HBM among them.
  // Devices that a chip is.
  double per_chip = at_machine_number(m, "cores_per_chip", 1) /
                    at_machine_number(m, "cores_per_device", 1);
  double kept = at_machine_number(m, "hbm_reserved_bytes_per_chip", 0);
  out->hbm_bytes = (int64_t)((v[5] - kept) / AT_MAX(per_chip, 1));
  return AT_OK;
}

// ---- Optimizers

// What an update holds in the stack beside the lookup, per unique row: vectors
// of the row's width, and words.
typedef struct update_cost {
  const char *name;
  int8_t vectors, words, slots;
  int8_t granules;  // of the stack, whatever the size
} update_cost;

// Read off memory reports of programs with each optimizer: vectors, words,
// slots, granules.
static const update_cost costs[] = {
    [AT_SPINPUT_LOOKUP_ONLY] = {"lookup", 0, 0, 0, 0},
    [AT_SPINPUT_SGD] = {"sgd", 3, 4, 0, 11},
    [AT_SPINPUT_ADAGRAD] = {"adagrad", 4, 3, 1, 14},
    [AT_SPINPUT_LAPROP] = {"laprop", 5, 3, 2, 14},
    [AT_SPINPUT_ADAGRAD_MOMENTUM] = {"adagrad_momentum", 5, 3, 2, 15},
    [AT_SPINPUT_ADAM] = {"adam", 6, 3, 2, 15},
    [AT_SPINPUT_FTRL] = {"ftrl", 6, 3, 2, 15},
    [AT_SPINPUT_F2A] = {"f2a", 6, 3, 2, 15},
    [AT_SPINPUT_CUSTOM] = {"custom", 4, 3, 1, 14},
};

// The whole name, letters in any case.
at_spinput_optimizer at_spinput_optimizer_of(at_str name) {
  for (int i = 0; i < AT_SPINPUT_CUSTOM; i++) {
    size_t n = strlen(costs[i].name), k = 0;
    while (n == name.len && k < n &&
           tolower((unsigned char)name.ptr[k]) == costs[i].name[k])
      k++;
    if (n == name.len && k == n) return (at_spinput_optimizer)i;
  }
  return AT_SPINPUT_CUSTOM;
}

// A custom optimizer costs what its slots do; the others' slots are known.
static update_cost cost_of(const at_spinput_table *t) {
  update_cost c = costs[t->optimizer];
  if (t->slots < 0 || t->optimizer != AT_SPINPUT_CUSTOM) return c;
  c.vectors =
      (int8_t)(3 + (t->slots > 1 ? 3 : t->slots));  // as SGD, Adagrad, Adam
  c.words = t->slots ? 3 : 4;
  c.slots = (int8_t)AT_MIN(t->slots, INT8_MAX);
  return c;
}

// ---- Checks

typedef struct table_view {
  const at_spinput_program *p;
  const at_spinput_table *t;
  const at_spinput_table_size *s;
  int64_t unique;  // rows that can be unique in a partition, padded
  int64_t ids;
} table_view;

// The compiler's message. One of `fixed` and `row_dependent` is what does not
// fit, in bytes.
static at_status no_replicas(const table_view *v, int64_t split, int64_t fixed,
                             int64_t row_dependent) {
  char detail[160];
  int64_t words = v->p->chip.tile_bytes / 4;
  if (fixed)
    snprintf(detail, sizeof detail,
             "Fixed size allocations (9 * %" PRId64 " + 256 = %" PRId64
             " words) do not fit in TileSpmem (%" PRId64 " words).",
             v->unique, fixed / 4, words);
  else
    snprintf(detail, sizeof detail,
             "Variable size allocations (2 * %" PRId64 " = %" PRId64
             " words) do not fit in TileSpmem (%" PRId64
             " words), split %d ways.",
             v->unique, row_dependent / 4, words, PARTS);
  return AT_FAIL(
      AT_INVALID_ARGUMENT,
      "E3001: CompileTimeSparseCoreInvalidReplicaCount:\nNo viable logical "
      "replica count for the embedding table with metadata: max_nz_per_row = "
      "%" PRId64 ", max_unique_nz_per_row = %" PRId64
      ", feature_width = %" PRId64 ", sample_count = %" PRId64
      " (last tried split factor for vector splitting = %" PRId64
      ", fixed_size_allocation_bytes = %" PRId64
      ", row_dependent_size_allocation_bytes = %" PRId64
      ", total_spmem_size_bytes = %" PRId64
      ")\n"
      "detail: %s\nhint: lower max_ids_per_partition and "
      "max_unique_ids_per_partition of "
      "table '%s'",
      v->t->max_ids, v->t->max_unique, v->s->padded_width,
      v->t->samples / v->p->chip.cores, split, fixed, row_dependent,
      v->p->chip.tile_bytes, detail, v->t->name);
}

// What of a tile is free for rows: all but 36 bytes and one for every four
// parts.
static int64_t free_bytes(const table_view *v, int parts) {
  return v->p->chip.tile_bytes - 36 - v->s->replicas * parts / 4;
}

// Whether the tile has room for the index lists and one row of them; large ones
// are split into PARTS first.
static at_status check_lookup(const table_view *v) {
  const at_spinput_chip *c = &v->p->chip;
  // Fewer SparseCores than a core has tiles split every lookup.
  // An index list has two words per unique row.
  bool split = v->s->replicas < c->tiles || 8 * v->unique > c->tile_bytes;
  int parts = split ? PARTS : 1;
  int64_t index_bytes = 8 * v->unique, most = v->unique / parts;
  if (index_bytes / parts > c->tile_bytes)
    return no_replicas(v, 1, 0, index_bytes);
  if (ROW_BYTES * most > c->tile_bytes)
    return AT_FAIL(
        AT_RESOURCE_EXHAUSTED,
        "Can't fit a single row. TileSpmem bytes: %" PRId64
        "; Reserved bytes: 0; Available bytes: %" PRId64 "; Row bytes: %" PRId64
        "\n"
        "hint: lower max_unique_ids_per_partition (%" PRId64 ") of table '%s'",
        c->tile_bytes, free_bytes(v, parts),
        most * (v->s->padded_width + 1) * 4, v->t->max_unique, v->t->name);
  if (v->p->unstaged && !v->s->gather_in_tile)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED,
                   "Gather operand too large: %" PRId64
                   " bytes in TileSpmem of %" PRId64 " (%" PRId64
                   " samples of %" PRId64
                   " elements, over %d tiles) for table '%s'\n"
                   "hint: lower the batch, use more chips, or let operands be "
                   "staged in HBM",
                   v->s->gather_bytes, c->tile_bytes, v->t->samples / c->cores,
                   v->s->padded_width, c->tiles, v->t->name);
  return AT_OK;
}

// Nine words per unique id, and 256 more, must fit in a tile for an update.
static at_status check_replicas(const table_view *v) {
  int64_t fixed = 36 * v->unique + 1024;
  return fixed > v->p->chip.tile_bytes
             ? no_replicas(v, v->s->padded_width / COLUMNS, fixed,
                           12 * v->unique)
             : AT_OK;
}

// The update's loop holds some rows at a time in three quarters of a tile.
static at_status check_window(const table_view *v) {
  const at_spinput_chip *c = &v->p->chip;
  // libtpu 0.0.42 refuses Adam's and FTRL's rows at half the width at which
  // 0.0.52 does; a program should compile with both.
  int rows = cost_of(v->t).slots > 1 ? 2 * WINDOW_ROWS : WINDOW_ROWS;
  int64_t window = rows * v->s->padded_width * 4;
  int64_t scratchpad = c->tile_bytes / 4 * 3 / 64 * 64;
  if (window <= scratchpad) return AT_OK;
  return AT_FAIL(AT_RESOURCE_EXHAUSTED,
                 "Valid window was not found for the update of table '%s'. "
                 "scratchpad allocation size is %" PRId64
                 ". Vectorized dimension: 0\n"
                 "detail: %d rows of %" PRId64 " elements take %" PRId64
                 " bytes\nhint: cut the table by columns",
                 v->t->name, scratchpad, rows, v->s->padded_width, window);
}

// Bounds that keep the arithmetic below inside 64 bits, and batches that
// divide.
static at_status check_table(const at_spinput_program *p,
                             const at_spinput_table *t) {
  if (t->rows < 1 || t->width < 1 || t->max_ids < 1 || t->max_unique < 1 ||
      t->samples < 1 || t->max_ids > INT32_MAX || t->max_unique > INT32_MAX ||
      t->rows > INT32_MAX * 64ll || t->width > 1 << 24 ||
      t->samples > INT32_MAX || t->optimizer < 0 ||
      t->optimizer > AT_SPINPUT_CUSTOM ||
      (t->element_bytes != 4 && t->element_bytes != 2 && t->element_bytes != 1))
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "table '%s': %" PRId64 " rows of %" PRId64
                   " elements of %d bytes, %" PRId64
                   " samples, max_ids_per_partition %" PRId64
                   ", max_unique_ids_per_partition %" PRId64 ": impossible",
                   t->name, t->rows, t->width, t->element_bytes, t->samples,
                   t->max_ids, t->max_unique);
  if (t->samples % p->chip.cores)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "batch_size_for_device (%" PRId64
                   ") for stacked table '%s' must be divisible by "
                   "num_sc_per_device (%d).",
                   t->samples, t->name, p->chip.cores);
  return AT_OK;
}

// The next multiple of `to`.
static int64_t up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// More than any device has, and little enough that sums over thousands of
// tables stay inside 64 bits: products end there.
static const int64_t most_bytes = 1ll << 48;

static int64_t times(int64_t a, int64_t b) {
  return (int64_t)AT_MIN(at_mul((size_t)a, (size_t)b), (size_t)most_bytes);
}

// Sizes first, then whether they fit: *s is filled as far as that came.
static at_status size_table(const at_spinput_program *p,
                            const at_spinput_table *t,
                            at_spinput_table_size *s) {
  AT_TRY(check_table(p, t));
  const at_spinput_chip *c = &p->chip;
  int64_t replicas = (int64_t)p->devices * c->cores;
  *s = (at_spinput_table_size){.replicas = replicas,
                               .padded_width = up(t->width, COLUMNS),
                               .padded_rows = up(t->rows, ROW_STEP * replicas)};
  s->rows_per_core = s->padded_rows / replicas;
  s->rows_per_tile = at_ceil_div(s->rows_per_core, c->tiles);
  s->gather_bytes =
      times(t->samples / c->cores, s->padded_width * 4) / c->tiles;
  // What does not fit is staged in HBM, unless the program forbids it.
  s->gather_in_tile = s->gather_bytes <= c->tile_bytes;
  update_cost u = cost_of(t);
  int64_t per_device = s->padded_rows / p->devices;
  int64_t bytes = t->element_bytes + 4ll * u.slots;  // of an element and slots
  s->hbm_bytes = times(times(per_device, s->padded_width), bytes);
  // rows and width are bounded so that their product fits.
  size_t used = at_mul((size_t)(t->rows * t->width), (size_t)bytes);
  s->waste_bytes = s->hbm_bytes - (int64_t)AT_MIN(used / (size_t)p->devices,
                                                  (size_t)s->hbm_bytes);
  int64_t tensor = times(times(per_device, s->padded_width), t->element_bytes);
  if (tensor > most_per_tensor)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "SparseCore only supports 16 GiB of HBM per tensor, got "
                   "%" PRId64 " in table '%s'\nhint: use more chips, or bf16",
                   tensor, t->name);
  table_view v = {p, t, s, up(AT_MIN(t->max_ids, t->max_unique), 8),
                  up(t->max_ids, 8)};
  if (t->coo_per_device)  // a smaller buffer holds fewer
    v.ids = AT_MIN(v.ids,
                   up(at_ceil_div(t->coo_per_device, replicas * c->cores), 8));
  int64_t copies =
      replicas * c->cores * 4;  // bytes of a word of every partition
  int64_t rows = up(times(times(v.unique, s->padded_width), copies), PIECE);
  int64_t words = up(times(v.unique, copies), PIECE);
  s->forward_bytes = 2 * rows + words + up(times(v.ids, copies), PIECE);
  s->backward_bytes = u.vectors * rows + u.words * words;
  if (u.vectors)
    s->backward_bytes += 2 * times(t->samples, s->padded_width * 4);
  s->spmem_bytes = at_ceil_div(8 * v.unique, c->tiles);
  if (s->gather_in_tile) s->spmem_bytes += s->gather_bytes;
  if (u.vectors) AT_TRY(check_replicas(&v));
  AT_TRY(check_lookup(&v));
  return u.vectors ? check_window(&v) : AT_OK;
}

// ---- Programs

// What a table takes while lookup and update are alive.
static int64_t stack_of(const at_spinput_table_size *s) {
  return s->forward_bytes + s->backward_bytes;
}

// The largest `n` tables take their memory one after the other: the largest
// counts, the others among them do not. Returns what is saved of the sum of
// all.
static int64_t serialize(at_spinput_table_size *tables, size_t count, int n) {
  int64_t saved = 0;
  for (int i = 0; i < n && (size_t)i < count; i++) {
    at_spinput_table_size *next = NULL;
    for (size_t k = 0; k < count; k++)
      if (!tables[k].serialized &&
          (!next || stack_of(&tables[k]) > stack_of(next)))
        next = &tables[k];
    AT_ASSERT(next);  // i tables are serialized, fewer than there are
    next->serialized = true;
    if (i) saved += stack_of(next);
  }
  return saved;
}

static double gib(int64_t bytes) { return (double)bytes / (1ll << 30); }

// Per table, then what the program takes once, then the peak.
at_status at_spinput_size_of(const at_spinput_program *p,
                             at_spinput_table_size *tables,
                             at_spinput_size *out) {
  *out = (at_spinput_size){0};
  memset(tables, 0, p->table_count * sizeof *tables);
  if (p->devices < 1 || p->devices > 1 << 16 || p->serialized < 0)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "%d devices, %d serialised tables: impossible", p->devices,
                   p->serialized);
  int granules = 0;
  for (size_t i = 0; i < p->table_count; i++) {
    AT_TRY(size_table(p, &p->tables[i], &tables[i]));
    out->forward_bytes += tables[i].forward_bytes;
    out->backward_bytes += tables[i].backward_bytes;
    out->table_bytes += tables[i].hbm_bytes;
    out->waste_bytes += tables[i].waste_bytes;
    granules = AT_MAX(granules, cost_of(&p->tables[i]).granules);
  }
  // Of two or three tables with one slot each, a vector of slots stays behind;
  // of one or five it does not.
  // Seen in the reports; the reason is not known.
  if (p->table_count == 2 || p->table_count == 3) {
    int64_t more = 0;
    for (size_t i = 0; i < p->table_count; i++)
      if (cost_of(&p->tables[i]).slots == 1)
        more = AT_MAX(more, tables[i].backward_bytes / 4);
    out->backward_bytes += more;
  }
  // What a program takes once: descriptors, and per core its own.
  if (p->table_count)
    out->shared_bytes = 5 * GRANULE + GRANULE / 2 * 5 * p->chip.cores;
  if (granules) out->shared_bytes += (granules + 4ll * p->chip.cores) * GRANULE;
  int64_t saved =
      p->serialized > 1 ? serialize(tables, p->table_count, p->serialized) : 0;
  AT_ASSERT(saved <= out->forward_bytes + out->backward_bytes);
  out->stack_bytes =
      up(out->forward_bytes + out->backward_bytes - saved + out->shared_bytes,
         GRANULE);
  out->heap_bytes = p->dense_bytes + p->constant_bytes + p->prefetch_bytes;
  out->peak_bytes = out->stack_bytes + out->heap_bytes + out->table_bytes;
  if (out->stack_bytes > p->chip.hbm_bytes)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED,
                   "E1000: CompileTimeHbmOom: Ran out of memory on HBM, the "
                   "total memory required for HLO temporaries (%.2fG) exceeds "
                   "available HBM (%.2fG).\n"
                   "hint: lower the limits, or raise "
                   "xla_sc_num_serialized_tables_to_optimize_hbm (now %d)",
                   gib(out->stack_bytes), gib(p->chip.hbm_bytes),
                   p->serialized);
  if (out->peak_bytes > p->chip.hbm_bytes)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED,
                   "E1000: CompileTimeHbmOom: Ran out of memory on HBM: stack "
                   "%.2fG, tables %.2fG, heap %.2fG exceed available HBM "
                   "(%.2fG).",
                   gib(out->stack_bytes), gib(out->table_bytes),
                   gib(out->heap_bytes), gib(p->chip.hbm_bytes));
  return AT_OK;
}

// A line for each table, then the sums.
void at_spinput_size_print(const at_spinput_program *p,
                           const at_spinput_table_size *tables,
                           const at_spinput_size *s, at_strbuf *out) {
  at_strbuf_addf(out,
                 "%s x %d: %d SparseCores each, %d tiles of %" PRId64
                 " bytes\n%-24s %12s %14s %14s %14s %14s %10s\n",
                 p->chip.name, p->devices, p->chip.cores, p->chip.tiles,
                 p->chip.tile_bytes, "table", "rows/tile", "gather",
                 "stack fwd", "stack bwd", "HBM", "waste");
  for (size_t i = 0; i < p->table_count; i++) {
    const at_spinput_table_size *t = &tables[i];
    at_strbuf_addf(out,
                   "%-24s %12" PRId64 " %9" PRId64 " %s %14" PRId64
                   " %14" PRId64 " %14" PRId64 " %9.1f%%%s\n",
                   p->tables[i].name, t->rows_per_tile, t->gather_bytes,
                   t->gather_in_tile ? "tile" : "HBM ", t->forward_bytes,
                   t->backward_bytes, t->hbm_bytes,
                   t->hbm_bytes
                       ? 100.0 * (double)t->waste_bytes / (double)t->hbm_bytes
                       : 0,
                   t->serialized ? " serialised" : "");
  }
  static const char *const names[] = {
      "HBM stack",     "  lookups",        "  updates",
      "  shared",      "tables and slots", "  of it padding",
      "dense weights", "constants",        "prefetched inputs",
      "peak",          "available"};
  const int64_t values[] = {
      s->stack_bytes,    s->forward_bytes, s->backward_bytes, s->shared_bytes,
      s->table_bytes,    s->waste_bytes,   p->dense_bytes,    p->constant_bytes,
      p->prefetch_bytes, s->peak_bytes,    p->chip.hbm_bytes};
  for (size_t i = 0; i < AT_LEN(names); i++)
    at_strbuf_addf(out, "%-24s %16" PRId64 " bytes\n", names[i], values[i]);
}

// Rows of ids with padding between them: SparseGather and SparseIota.
#include "kernels/kernels_internal.h"

// Where each row begins, its end, and the entries before it.
typedef struct csr_row {
  int64_t begin, end, before;
} csr_row;

// Checks the row pointers against the parameters and gives the rows (scratch
// memory) and the number of entries without padding. INVALID_ARGUMENT names the
// first pointer that is wrong.
static at_status read_rows(const at_k_call *c, const int32_t *pointers,
                           csr_row **out, int64_t *total) {
  const at_k_csr_params *p = c->params;
  AT_K_CHECK(p->rows >= 0 && p->entries >= 0 && p->alignment > 0,
             "csr: %ld rows of %ld entries, aligned to %ld", p->rows,
             p->entries, p->alignment);
  csr_row *rows;
  AT_K_SCRATCH(rows, c, (size_t)(p->rows + 1) * sizeof *rows);
  int64_t at = 0, before = 0;
  for (int64_t r = 0; r < p->rows; r++) {
    int64_t end = pointers[r];
    AT_K_CHECK(end >= at && end <= p->entries,
               "row pointer %ld is %ld: its row begins at %ld, and there are "
               "%ld entries",
               r, end, at, p->entries);
    AT_K_CHECK(end - at <= p->max_per_row,
               "row %ld has %ld entries, and max_non_zeroes_per_row is %ld", r,
               end - at, p->max_per_row);
    rows[r] = (csr_row){at, end, before};
    before += end - at;
    at = at_k_ceil_div(end, p->alignment) * p->alignment;
  }
  AT_ASSERT(before <= p->entries);  // so is every place below
  *out = rows;
  *total = before;
  return AT_OK;
}

// Number of each entry without padding, in the places of the entries; pad_value
// in the padding.
at_status at_k_csr_iota(const at_k_call *c) {
  const at_k_csr_params *p = c->params;
  AT_K_BUFS(c, 2);
  csr_row *rows;
  int64_t total, at = 0;
  AT_TRY(read_rows(c, c->bufs[0], &rows, &total));
  int32_t *out = c->bufs[1];
  for (int64_t r = 0; r < p->rows; r++) {
    while (at < rows[r].begin) out[at++] = p->pad_value;
    for (; at < rows[r].end; at++)
      out[at] = (int32_t)(rows[r].before + at - rows[r].begin);
  }
  while (at < p->entries) out[at++] = p->pad_value;
  AT_ASSERT(at == p->entries);
  return AT_OK;
}

// SparseGather: rows of `table` by ids, one after the other without padding.
typedef struct gather_run {
  const at_k_csr_params *p;
  const csr_row *rows;
  const int32_t *ids;
  const char *table;
  char *out;
} gather_run;

// Rows of ids [begin, end); each knows how many entries precede it.
static void gather_rows(void *arg, int64_t begin, int64_t end,
                        uint32_t worker) {
  const gather_run *g = arg;
  size_t bytes = (size_t)g->p->row_bytes;
  for (int64_t r = begin; r < end; r++) {
    char *to = g->out + (size_t)g->rows[r].before * bytes;
    for (int64_t i = g->rows[r].begin; i < g->rows[r].end; i++, to += bytes)
      memcpy(to, g->table + (size_t)g->ids[i] * bytes, bytes);
  }
}

// Every id is checked before anything is written.
at_status at_k_csr_gather(const at_k_call *c) {
  const at_k_csr_params *p = c->params;
  AT_K_BUFS(c, 4);
  AT_K_CHECK(p->table_rows >= 0 && p->row_bytes >= 0,
             "csr: a table of %ld rows of %ld bytes", p->table_rows,
             p->row_bytes);
  gather_run g = {
      .p = p, .table = c->bufs[0], .ids = c->bufs[2], .out = c->bufs[3]};
  csr_row *rows;
  int64_t total;
  AT_TRY(read_rows(c, c->bufs[1], &rows, &total));
  g.rows = rows;
  for (int64_t r = 0; r < p->rows; r++)
    for (int64_t i = rows[r].begin; i < rows[r].end; i++)
      AT_K_CHECK(g.ids[i] >= 0 && g.ids[i] < p->table_rows,
                 "id %d (entry %ld of row %ld) is outside a table of %ld rows",
                 g.ids[i], i - rows[r].begin, r, p->table_rows);
  at_par_for(c->par, p->rows, 16, gather_rows, &g);
  // What the chip leaves as it was.
  memset(g.out + (size_t)total * (size_t)p->row_bytes, 0,
         (size_t)(p->entries - total) * (size_t)p->row_bytes);
  return AT_OK;
}

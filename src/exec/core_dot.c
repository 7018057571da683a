// Dots of kernels by packed blocks. A grid reads a block of an operand in many
// steps: what was packed for one dot serves the others of the same core.
#include "exec/exec_internal.h"
#include "kernels/kernels.h"

enum {
  kEntries = 1024,  // a power of two
  kMostEntries = kEntries / 2,
  kMostBytes = 32 << 20,  // of a core's blocks, less where there are many cores
  kLeastBytes = 4 << 20
};

typedef struct packed {
  at_k_matrix m;
  bool columns;
  void *data;  // NULL: nothing here
} packed;

// What a core keeps from dot to dot.
typedef struct shelf {
  packed entries[kEntries];
  uint32_t count;
  uint8_t *memory;  // of the blocks
  size_t used, bytes;
  uint8_t *spare[2];  // of operands that change
  size_t spare_bytes[2];
} shelf;

static shelf *shelf_of(at_core *core, const at_par *lasting) {
  void **note = at_core_note(core);
  if (*note) return *note;
  shelf *s = at_par_scratch(lasting, sizeof *s);
  if (!s) return NULL;
  memset(s, 0, sizeof *s);
  *note = s;
  return s;
}

static void clear(shelf *s) {
  memset(s->entries, 0, sizeof s->entries);
  s->count = 0;
  s->used = 0;
}

static bool make_room(shelf *s, const at_par *lasting, size_t bytes) {
  if (!s->memory) {
    size_t share = kMostBytes / at_par_threads(lasting);
    s->bytes = AT_MAX(share, (size_t)kLeastBytes);
    s->memory = at_par_scratch(lasting, s->bytes);
    if (!s->memory) s->bytes = 0;
  }
  if (s->count + 2 > kMostEntries || bytes > s->bytes - s->used) clear(s);
  return bytes <= s->bytes;
}

static packed *find(shelf *s, const at_k_matrix *m, bool columns) {
  uint64_t h = at_hash(AT_HASH_SEED, &m->p, sizeof m->p);
  h = at_hash(h, &m->outer, 4 * sizeof m->outer);
  for (uint32_t i = (uint32_t)h;; i++) {
    packed *e = &s->entries[i % kEntries];
    bool same = e->data && e->m.p == m->p && e->m.type == m->type &&
                e->m.outer == m->outer && e->m.k == m->k &&
                e->m.outer_stride == m->outer_stride &&
                e->m.k_stride == m->k_stride && e->columns == columns;
    if (!e->data || same) return e;
  }
}

static void *in_spare(shelf *s, const at_par *lasting, const at_par *par,
                      const at_k_matrix *m, bool columns) {
  size_t bytes = at_k_block_bytes(m);
  if (s->spare_bytes[columns] < bytes) {
    s->spare_bytes[columns] = 0;
    s->spare[columns] = at_par_scratch(lasting, bytes);
    if (!s->spare[columns]) return NULL;
    s->spare_bytes[columns] = bytes;
  }
  at_k_block_pack(par, m, columns, s->spare[columns]);
  return s->spare[columns];
}

static const void *on_shelf(shelf *s, const at_par *par, const at_k_matrix *m,
                            bool columns) {
  packed *e = find(s, m, columns);
  if (e->data) return e->data;
  *e = (packed){*m, columns, s->memory + s->used};
  s->used += at_k_block_bytes(m);
  s->count++;
  at_k_block_pack(par, m, columns, e->data);
  return e->data;
}

static bool has_form(const at_core_dot *d, const at_k_matrix *a,
                     const at_k_matrix *b) {
  bool rounded =
      d->round_bf16 || (d->a_type == AT_BF16 && d->b_type == AT_BF16);
  return rounded && d->c_type == AT_F32 && d->c_n == sizeof(float) &&
         d->c_m % (int64_t)sizeof(float) == 0 && at_k_block_fits(a, b);
}

bool at_core_dot_blocks(at_core *core, const at_par *par, const at_core_dot *d,
                        at_status *st) {
  at_k_matrix a = {d->a, (uint32_t)d->a_type, d->m, d->k, d->a_m, d->a_k};
  at_k_matrix b = {d->b, (uint32_t)d->b_type, d->n, d->k, d->b_n, d->b_k};
  if (!has_form(d, &a, &b)) return false;
  const at_par *lasting = at_core_launch_of(core)->par;
  shelf *s = shelf_of(core, lasting);
  bool stays[2] = {at_core_reads_of(core, d->a) > 1,
                   at_core_reads_of(core, d->b) > 1};
  for (int64_t i = 0; s && i < d->batch; i++) {
    size_t need = (stays[0] ? at_k_block_bytes(&a) : 0) +
                  (stays[1] ? at_k_block_bytes(&b) : 0);
    bool room = need && make_room(s, lasting, need);
    const void *pa = room && stays[0] ? on_shelf(s, par, &a, false)
                                      : in_spare(s, lasting, par, &a, false);
    const void *pb = room && stays[1] ? on_shelf(s, par, &b, true)
                                      : in_spare(s, lasting, par, &b, true);
    if (!pa || !pb) {
      s = NULL;
      break;
    }
    float *c = (float *)(void *)((uint8_t *)d->c + i * d->c_batch);
    at_k_block_multiply(par, d->m, d->n, d->k, pa, pb, c,
                        d->c_m / (int64_t)sizeof *c, d->accumulate);
    a.p = (const uint8_t *)a.p + d->a_batch;
    b.p = (const uint8_t *)b.p + d->b_batch;
  }
  if (!s) *st = AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a dot");
  return true;
}

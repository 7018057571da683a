// GEMM: checks and simplifies the parameters, picks an engine, and runs blocks.
// Every element of C is summed in an order that depends only on the shape, so
// the result is the same for any number of threads.
#include "kernels/gemm_internal.h"

// Most rows of A, columns of B and blocks of k that are packed at once: what is
// packed stays within a last-level cache.
enum { MAX_MC = 1920, MAX_NC = 2048, MAX_KC_BLOCKS = 12 };

// How one product is cut. A chunk (mc x kc of A, kc x nc of B) is packed by all
// threads; then tasks of mt x nt of C multiply it.
typedef struct blocks {
  const at_gemm_job *j;
  int64_t mc, nc,
      kc;          // chunk sizes (A: mc x kc, B: kc x nc are packed at once)
  int64_t mt, nt;  // task tile
  int64_t acc_ld;  // columns of an accumulator row
  bool tiled;      // accumulators are dense tiles, panel of columns by panel
  bool whole_acc;  // k has several chunks and C cannot hold the sums
  size_t a_bytes, b_bytes, acc_bytes, raw_bytes, total_bytes;
} blocks;

// One worker's or one product's scratch.
typedef struct space {
  char *a, *b, *acc, *raw;
} space;

typedef struct chunk {
  const blocks *p;
  // The part of the product that is packed at the moment: rows [i0, i0 + rows),
  // columns [j0, j0 + cols), k [k0, k0 + kc), padded to kpad.
  const space *s;  // shared packed operands
  int64_t batch, c_off;
  int64_t i0, rows, j0, cols, k0, kc, kpad;
  bool first, last;  // of k
  int64_t tiles_n;
  size_t acc_stride, raw_stride;  // between workers
} chunk;

// True if microkernels may write this part of C themselves: it has the
// accumulator's type (the sign of an integer does not matter), no bias, dense
// columns and evenly spaced rows.
static bool c_direct(const at_gemm_job *j, int64_t i0, int64_t rows, int64_t j0,
                     int64_t cols) {
  uint32_t t = j->c_type == AT_U32   ? AT_S32
               : j->c_type == AT_U64 ? AT_S64
                                     : j->c_type;
  return t == j->e->acc_type && !j->bias && at_off_dense(&j->c_n, j0, cols) &&
         at_off_uniform(&j->c_m, i0, rows);
}

// The size of parts of n, each of at most `most` and but for the last of whole
// steps.
static int64_t even_part(int64_t n, int64_t most, int64_t step) {
  int64_t parts = at_k_ceil_div(n, at_k_round_up(most, step));
  return at_k_round_up(at_k_ceil_div(n, parts), step);
}

// Chooses the sizes of chunks and tasks, and with them the bytes of scratch
// memory, from the shape. Only the size of a task depends on the number of
// threads, which changes no sum: a tile of C is added up over k in blocks of
// e->kc by whoever has it.
static void plan_blocks(const at_gemm_job *j, uint32_t threads, blocks *p) {
  const at_gemm_engine *e = j->e;
  int64_t es = at_dtype_bytes((at_dtype)e->pack_type);
  int64_t acc = at_dtype_bytes((at_dtype)e->acc_type);
  *p = (blocks){.j = j};
  p->mc = even_part(j->m, MAX_MC, e->mr);
  p->nc = even_part(j->n, MAX_NC, e->nr);
  p->kc = AT_MIN(at_k_round_up(j->k, e->kstep), (int64_t)MAX_KC_BLOCKS * e->kc);
  p->tiled = e->blocks && !j->add;
  // Of tiles: the sums, the panels of B of a block of k and those of the next
  // fill most of the second cache.
  p->mt =
      AT_MIN(p->mc, (int64_t)e->mr * AT_MAX(1, (p->tiled ? 512 : 384) / e->mr));
  p->nt = AT_MIN(p->nc, AT_MAX(e->nr, p->tiled ? 256 : 512));
  // Enough tasks to share out, as long as a task keeps a few microtiles.
  while (threads > 1 &&
         at_k_ceil_div(p->mc, p->mt) * at_k_ceil_div(p->nc, p->nt) <
             4 * (int64_t)threads) {
    if (p->mt > 4 * e->mr)
      p->mt = at_k_round_up(p->mt / 2, e->mr);
    else if (p->nt > 2 * e->nr)
      p->nt = at_k_round_up(p->nt / 2, e->nr);
    else if (p->mt > 2 * e->mr)
      p->mt = at_k_round_up(p->mt / 2, e->mr);
    else
      break;
  }
  // Sums that one chunk of k begins and the next goes on with must outlive the
  // task: in C itself, or in accumulators for all of the chunk.
  AT_ASSERT(p->mc % e->mr == 0 && p->mt % e->mr == 0 && p->mt <= p->mc);
  AT_ASSERT(p->nc % e->nr == 0 && p->nt % e->nr == 0 && p->nt <= p->nc);
  AT_ASSERT(p->kc % e->kstep == 0 && p->kc > 0);
  p->whole_acc = j->k > p->kc && (p->tiled || !c_direct(j, 0, j->m, 0, j->n));
  p->acc_ld = p->whole_acc ? p->nc : p->nt;
  p->a_bytes = (size_t)at_k_round_up(p->mc * p->kc * es, 64);
  p->b_bytes = (size_t)at_k_round_up(p->nc * p->kc * es, 64);
  p->acc_bytes = (size_t)at_k_round_up(
      (p->whole_acc ? p->mc : p->mt) * p->acc_ld * acc, 64);
  p->raw_bytes =
      (size_t)at_k_round_up(AT_MAX(e->mr, e->nr) * (int64_t)e->kc * 16, 64);
}

// Rows of kp values, one after the other, to tiles of kstep values a row.
static void put_tiles(const at_gemm_engine *e, const char *rows, int64_t kp,
                      int64_t es, char *dst) {
  // One step of k is one row of an AMX tile.
  enum { STEP = 64 };  // bytes of kstep values, of every engine
  for (int64_t k = 0; k < kp * es; k += STEP)
    for (int64_t r = 0; r < e->mr; r++, dst += STEP)
      memcpy(dst, rows + r * kp * es + k, STEP);
}

// The same for [k][32 rows] of 16 bits.
static void turn_tiles(const char *columns, int64_t kp, char *dst) {
  enum { TILE = 32, BLOCK = 8 };
  for (int64_t k = 0; k < kp; k += TILE, dst += TILE * TILE * 2)
    for (int64_t at = 0; at < TILE * TILE / BLOCK; at += BLOCK) {
      int64_t r = at / TILE * BLOCK, q = at % TILE;
      __m128i a[BLOCK], b[BLOCK];
      for (int i = 0; i < BLOCK; i++)
        a[i] = _mm_loadu_si128(
            (const void *)(columns + ((k + q + i) * TILE + r) * 2));
      for (int i = 0; i < 4; i++) {
        b[2 * i] = _mm_unpacklo_epi16(a[2 * i], a[2 * i + 1]);
        b[2 * i + 1] = _mm_unpackhi_epi16(a[2 * i], a[2 * i + 1]);
      }
      for (int i = 0; i < BLOCK; i += 4)
        for (int h = 0; h < 2; h++) {
          a[i + 2 * h] = _mm_unpacklo_epi32(b[i + h], b[i + 2 + h]);
          a[i + 2 * h + 1] = _mm_unpackhi_epi32(b[i + h], b[i + 2 + h]);
        }
      for (int i = 0; i < 4; i++) {
        char *to = dst + ((r + 2 * i) * TILE + q) * 2;
        _mm_storeu_si128((void *)to, _mm_unpacklo_epi64(a[i], a[i + 4]));
        _mm_storeu_si128((void *)(to + 2 * TILE),
                         _mm_unpackhi_epi64(a[i], a[i + 4]));
      }
    }
}

// A bf16 operand of an engine with blocks whose rows (columns of B) or k are
// dense, from its first element to be packed. False: it is none.
static bool as_matrix(const at_gemm_engine *e, uint32_t type, const char *p,
                      const at_gemm_off *outer, const at_gemm_off *k, int64_t i,
                      int64_t n, int64_t k0, int64_t kc, at_k_matrix *m) {
  if (!e->blocks || e->acc_type != AT_F32 || type != AT_BF16 ||
      !at_off_uniform(outer, i, n) || !at_off_uniform(k, k0, kc) ||
      (outer->stride != 1 && k->stride != 1))
    return false;
  p += (at_off(outer, i) + at_off(k, k0)) * 2;
  *m = (at_k_matrix){p, type, n, kc, outer->stride * 2, k->stride * 2};
  return true;
}

// Packs panels [begin, end) of e->mr rows of the chunk's A, each for every
// block of k. bf16 operands with a dense side are packed as blocks straight
// from memory; others go through the job's pack_a, are converted in the
// worker's raw space where their type is not the engine's, and are put into
// tiles where the engine wants them.
static void pack_a_range(void *arg, int64_t begin, int64_t end,
                         uint32_t worker) {
  const chunk *c = arg;
  const at_gemm_job *j = c->p->j;
  const at_gemm_engine *e = j->e;
  int64_t es = at_dtype_bytes((at_dtype)e->pack_type);
  bool same = j->a_type == e->pack_type || es == 1;
  bool by_rows = e->a_tiles && !(j->a_by_k && es == 2);
  char *raw = c->s->raw + worker * c->raw_stride;
  int64_t rows_pad = at_k_round_up(c->rows, e->mr), off[3];
  j->batch_off(j, c->batch, off);
  const char *first = j->a + off[0] * at_dtype_bytes((at_dtype)j->a_type);
  for (int64_t p = begin; p < end; p++) {
    int64_t r = p * e->mr, rows = AT_MIN(e->mr, c->rows - r);
    for (int64_t k = 0; k < c->kpad; k += e->kc) {
      int64_t kb = AT_MIN(e->kc, c->kc - k), kp = AT_MIN(e->kc, c->kpad - k);
      char *dst = c->s->a + (k * rows_pad + r * kp) * es;
      at_k_matrix m;
      if (j->pack_a == at_gemm_pack_a_strided &&
          as_matrix(e, j->a_type, first, &j->a_m, &j->a_k, c->i0 + r, rows,
                    c->k0 + k, kb, &m)) {
        at_gemm_block_pack(&m, false, dst);
        continue;
      }
      char *to = e->a_tiles ? raw + kp * e->mr * 8 : dst;
      j->pack_a(j, c->batch, c->i0 + r, rows, e->mr, c->k0 + k, kb, kp, by_rows,
                by_rows ? kp : e->mr, same ? to : raw);
      if (!same) at_k_convert(e->pack_type, to, j->a_type, raw, kp * e->mr);
      if (!e->a_tiles) continue;
      if (by_rows)
        put_tiles(e, to, kp, es, dst);
      else
        turn_tiles(to, kp, dst);
    }
  }
}

// Packs panels [begin, end) of e->nr columns of the chunk's B. Its blocks of k
// lie one after the other, each with all panels, as tile_range reads them.
static void pack_b_range(void *arg, int64_t begin, int64_t end,
                         uint32_t worker) {
  const chunk *c = arg;
  const at_gemm_job *j = c->p->j;
  const at_gemm_engine *e = j->e;
  int64_t es = at_dtype_bytes((at_dtype)e->pack_type);
  char *raw = c->s->raw + worker * c->raw_stride;
  int64_t cols_pad = at_k_round_up(c->cols, e->nr), off[3];
  j->batch_off(j, c->batch, off);
  const char *first = j->b + off[1] * at_dtype_bytes((at_dtype)j->b_type);
  for (int64_t k = 0; k < c->kpad; k += e->kc) {
    int64_t kb = AT_MIN(e->kc, c->kc - k), kp = AT_MIN(e->kc, c->kpad - k);
    int64_t n = begin * e->nr, cols = AT_MIN(end * e->nr, c->cols) - n;
    at_k_matrix m;
    if (as_matrix(e, j->b_type, first, &j->b_n, &j->b_k, c->j0 + n, cols,
                  c->k0 + k, kb, &m)) {
      at_gemm_block_pack(&m, true, c->s->b + (k * cols_pad + n * kp) * es);
      continue;
    }
    at_gemm_pack_b(j, c->batch, c->j0 + n, cols, c->k0 + k, kb, kp, kp * e->nr,
                   raw, c->s->b + (k * cols_pad + n * kp) * es);
  }
}

// c += one microtile, summed apart: the result has the bits of a product that
// is added afterwards.
static void add_microtile(const at_gemm_engine *e, int64_t kp, const char *a,
                          const char *b, char *c, int64_t ld, int mr, int nr) {
  int32_t sum[32 * 32];
  e->micro(kp, a, b, sum, e->nr, mr, nr, false);
  for (int i = 0; i < mr; i++) {
    const int32_t *row = sum + i * e->nr;
    if (e->acc_type == AT_F32) {
      float *restrict to = (float *)(void *)c + i * ld;
      for (int j = 0; j < nr; j++)
        to[j] += ((const float *)(const void *)row)[j];
    } else {
      uint32_t *restrict to = (uint32_t *)(void *)c + i * ld;
      for (int j = 0; j < nr; j++) to[j] += (uint32_t)row[j];
    }
  }
}

// What a task's share of a block of k reads of packed A and B.
// A task reads kp values of k, which are padded, of its rows and columns.
typedef struct share {
  const char *a, *b;
  int64_t kp, rows, cols;
} share;

// Where the task at (ti, tj) finds its panels of the block of k that begins at
// k, counted from the chunk's first.
static share share_of(const chunk *c, int64_t ti, int64_t tj, int64_t k) {
  const blocks *p = c->p;
  const at_gemm_engine *e = p->j->e;
  int64_t es = at_dtype_bytes((at_dtype)e->pack_type);
  int64_t kp = AT_MIN(e->kc, c->kpad - k);
  int64_t a = k * at_k_round_up(c->rows, e->mr) + ti * kp;
  int64_t b = k * at_k_round_up(c->cols, e->nr) + tj * kp;
  return (share){c->s->a + a * es, c->s->b + b * es, kp,
                 AT_MIN(p->mt, c->rows - ti), AT_MIN(p->nt, c->cols - tj)};
}

// Lines of `bytes` to fetch for each of so many groups, where they are enough
// to matter and few enough to be in time.
static int lines_for(int64_t bytes, int64_t groups) {
  int64_t lines = at_k_ceil_div(bytes, 64 * groups);
  return lines > 8 ? 0 : (int)lines;
}

// One task of an engine with blocks, from row ti and column tj of the chunk.
// A panel of A stays in the first cache while B's go by.
static void tiles_of_task(const chunk *c, int64_t ti, int64_t tj,
                          uint32_t worker) {
  enum { PANEL = AT_GEMM_PANEL };
  const blocks *p = c->p;
  const at_gemm_job *j = p->j;
  const at_gemm_engine *e = j->e;
  float *acc = (float *)(void *)c->s->acc;
  if (p->whole_acc)
    acc += ti * p->acc_ld + tj * PANEL;
  else
    acc = (float *)(void *)(c->s->acc + worker * c->acc_stride);
  at_gemm_put put = {.rows = 0};
  // No sum waits for another block of k: two tiles are enough for all of the
  // task.
  bool once = c->first && c->last && c->kpad <= e->kc;
  for (int64_t k = 0; k < c->kpad; k += e->kc) {
    share s = share_of(c, ti, tj, k), next = {0};
    bool last = k + s.kp == c->kpad;
    if (!last) next = share_of(c, ti, tj, k + s.kp);
    int64_t groups = s.kp / e->kstep, panel = groups * AT_GEMM_GROUP_BYTES;
    int64_t across = at_k_ceil_div(s.cols, PANEL), turn = 0;
    int64_t turns = across * at_k_ceil_div(s.rows, PANEL);
    int64_t next_groups = next.kp / e->kstep;
    // The next panel of A and the next block of B are fetched in equal shares
    // by the products that come before they are needed.
    int lines_a = lines_for(panel, across * groups);
    int lines_b =
        lines_for(across * next_groups * AT_GEMM_GROUP_BYTES, turns * groups);
    for (int64_t i = 0; i < s.rows; i += PANEL)
      for (int64_t n = 0; n < s.cols; n += PANEL, turn++) {
        // Two take turns where nothing goes on: they stay in the first cache.
        float *tile =
            acc + (once ? turn % 2 * PANEL * PANEL : i * p->acc_ld + n * PANEL);
        at_gemm_block x = {.groups = groups,
                           .a = s.a + i / PANEL * panel,
                           .b = s.b + n / PANEL * panel,
                           .lines_a = lines_a,
                           .lines_b = lines_b,
                           .c = tile,
                           .ldc = PANEL,
                           .next_c = once ? NULL : tile + PANEL * PANEL,
                           .go_on = k > 0 || !c->first,
                           .half = s.rows - i <= 16,
                           .put = &put};
        if (i + PANEL < s.rows)
          x.next_a =
              (const char *)x.a + panel + n / PANEL * groups * lines_a * 64;
        else if (!last)
          x.next_a = next.a + n / PANEL * groups * lines_a * 64;
        if (!last) x.next_b = next.b + turn * groups * lines_b * 64;
        e->blocks->multiply(&x);
        // The multiplication before has stored what `put` said.
        put.rows = 0;
        if (last && c->last)
          at_gemm_finish_tile(j, c->c_off, c->i0 + ti + i,
                              (int)AT_MIN(PANEL, s.rows - i), c->j0 + tj + n,
                              (int)AT_MIN(PANEL, s.cols - n), tile, &put);
      }
  }
  if (put.rows) at_gemm_put_rows(&put, 0, put.rows);
}

// Multiplies tasks [begin, end) of the chunk, numbered row by row. Sums go to C
// where it takes them, else to accumulators that are converted and stored after
// the last block of k.
static void tile_range(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  const chunk *c = arg;
  const blocks *p = c->p;
  const at_gemm_job *j = p->j;
  const at_gemm_engine *e = j->e;
  int64_t es = at_dtype_bytes((at_dtype)e->pack_type);
  int64_t acc_es = at_dtype_bytes((at_dtype)e->acc_type);
  int64_t rows_pad = at_k_round_up(c->rows, e->mr);
  int64_t cols_pad = at_k_round_up(c->cols, e->nr);
  if (e->begin) e->begin();
  for (int64_t t = begin; t < end; t++) {
    int64_t ti = t / c->tiles_n * p->mt, tj = t % c->tiles_n * p->nt;
    int64_t rows = AT_MIN(p->mt, c->rows - ti),
            cols = AT_MIN(p->nt, c->cols - tj);
    if (p->tiled) {
      tiles_of_task(c, ti, tj, worker);
      continue;
    }
    int64_t i0 = c->i0 + ti, j0 = c->j0 + tj;
    // A tile that C takes directly has its rows as far apart as C's.
    bool direct = c_direct(j, i0, rows, j0, cols);
    char *out;
    int64_t ld;
    if (direct) {
      ld = rows > 1 ? at_off(&j->c_m, i0 + 1) - at_off(&j->c_m, i0) : cols;
      out = j->c +
            (c->c_off + at_off(&j->c_m, i0) + at_off(&j->c_n, j0)) * acc_es;
    } else if (p->whole_acc) {
      ld = p->acc_ld;
      out = c->s->acc + (ti * ld + tj) * acc_es;
    } else {
      ld = p->acc_ld;
      out = c->s->acc + worker * c->acc_stride;
    }
    for (int64_t k = 0; k < c->kpad; k += e->kc) {
      int64_t kp = AT_MIN(e->kc, c->kpad - k);
      const char *a = c->s->a + (k * rows_pad + ti * kp) * es;
      const char *b = c->s->b + (k * cols_pad + tj * kp) * es;
      bool add = k > 0 || !c->first;
      for (int64_t jj = 0; jj < cols; jj += e->nr)
        for (int64_t ii = 0; ii < rows; ii += e->mr) {
          const char *at = a + ii * kp * es, *bt = b + jj * kp * es;
          char *ct = out + (ii * ld + jj) * acc_es;
          int mr = (int)AT_MIN(e->mr, rows - ii);
          int nr = (int)AT_MIN(e->nr, cols - jj);
          if (j->add)
            add_microtile(e, kp, at, bt, ct, ld, mr, nr);
          else
            e->micro(kp, at, bt, ct, ld, mr, nr, add);
        }
    }
    if (!direct && c->last)
      at_gemm_store(j, c->c_off, i0, rows, j0, cols, out, ld);
  }
  if (e->end) e->end();
}

// at_par_for, or all of [0, n) on this thread where par is NULL: then `fn` must
// use worker 0's scratch memory.
static void for_range(const at_par *par, int64_t n, int64_t grain,
                      at_range_fn fn, void *arg) {
  if (par)
    at_par_for(par, n, grain, fn, arg);
  else
    fn(arg, 0, n, 0);
}

// One product. par NULL: on this thread.
static void run_one(const at_par *par, const blocks *p, const space *s,
                    int64_t batch) {
  const at_gemm_job *j = p->j;
  const at_gemm_engine *e = j->e;
  int64_t off[3];
  j->batch_off(j, batch, off);
  chunk c = {.p = p,
             .s = s,
             .batch = batch,
             .c_off = off[2],
             .acc_stride = p->whole_acc ? 0 : p->acc_bytes,
             .raw_stride = p->raw_bytes};
  for (int64_t jc = 0; jc < j->n; jc += p->nc) {
    for (int64_t ic = 0; ic < j->m; ic += p->mc) {
      c.i0 = ic, c.rows = AT_MIN(p->mc, j->m - ic);
      c.j0 = jc, c.cols = AT_MIN(p->nc, j->n - jc);
      c.tiles_n = at_k_ceil_div(c.cols, p->nt);
      int64_t tiles = c.tiles_n * at_k_ceil_div(c.rows, p->mt);
      for (int64_t kc = 0; kc < j->k; kc += p->kc) {
        c.k0 = kc, c.kc = AT_MIN(p->kc, j->k - kc);
        c.kpad = at_k_round_up(c.kc, e->kstep);
        c.first = kc == 0, c.last = kc + c.kc == j->k;
        // B of these columns stays packed for all rows where k is one chunk.
        if (ic == 0 || j->k > p->kc)
          for_range(par, at_k_ceil_div(c.cols, e->nr), 2, pack_b_range, &c);
        for_range(par, at_k_ceil_div(c.rows, e->mr), 2, pack_a_range, &c);
        for_range(par, tiles, 1, tile_range, &c);
      }
    }
  }
}

// One product per thread: mem has total_bytes for each worker.
typedef struct batch_run {
  const blocks *p;
  char *mem;
} batch_run;

// Cuts p->total_bytes of scratch memory into the parts of one worker.
static space space_at(const blocks *p, char *mem) {
  return (space){mem, mem + p->a_bytes, mem + p->a_bytes + p->b_bytes,
                 mem + p->a_bytes + p->b_bytes + p->acc_bytes};
}

// Products [begin, end) of the batch, each by one thread with scratch memory of
// its own.
static void batch_range(void *arg, int64_t begin, int64_t end,
                        uint32_t worker) {
  const batch_run *r = arg;
  space s = space_at(r->p, r->mem + worker * r->p->total_bytes);
  for (int64_t b = begin; b < end; b++) run_one(NULL, r->p, &s, b);
}

typedef struct zero_run {
  const at_gemm_job *j;
} zero_run;

// k = 0: sums of nothing, plus the bias.
static void zero_range(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  const at_gemm_job *j = ((const zero_run *)arg)->j;
  // 64 columns of the widest accumulator, a complex of doubles.
  char acc[64 * 16];
  for (int64_t t = begin; t < end; t++) {
    int64_t off[3];
    j->batch_off(j, t / j->m, off);
    for (int64_t n = 0; n < j->n; n += 64) {
      memset(acc, 0, sizeof acc);
      at_gemm_store(j, off[2], t % j->m, 1, n, AT_MIN(64, j->n - n), acc, 64);
    }
  }
}

// See gemm_internal.h. Scratch memory is taken once, before anything is
// written.
at_status at_gemm_run(const at_par *par, const at_gemm_job *j) {
  if (j->batch == 0 || j->m == 0 || j->n == 0) return AT_OK;
  if (j->k == 0) {
    zero_run z = {j};
    at_par_for(par, j->batch * j->m, 64, zero_range, &z);
    return AT_OK;
  }
  uint32_t threads = at_par_threads(par);
  double work = (double)j->m * (double)j->n * (double)j->k;
  // Many products, or small ones, are shared out whole; else threads share each
  // one.
  bool by_batch =
      j->batch > 1 && (j->batch >= 2 * (int64_t)threads || work < 2e6);
  // Less than about 20 microseconds of work is not worth waking threads.
  bool serial = work * (double)j->batch < 1e5;
  blocks p;
  plan_blocks(j, by_batch || serial ? 1 : threads, &p);
  p.total_bytes = p.a_bytes + p.b_bytes + p.acc_bytes + p.raw_bytes;
  size_t bytes;
  if (by_batch) {
    bytes = at_mul(p.total_bytes, threads);
  } else {
    // One packed A and B for all; accumulators and raw space for each thread.
    size_t workers = p.whole_acc ? 1 : threads;
    bytes =
        p.a_bytes + p.b_bytes + p.acc_bytes * workers + p.raw_bytes * threads;
  }
  char *mem = at_par_scratch(par, bytes);
  if (!mem)
    return AT_FAIL(
        AT_RESOURCE_EXHAUSTED,
        "gemm: no scratch memory\ndetail: %zu bytes for packed operands",
        bytes);
  if (by_batch) {
    batch_run r = {&p, mem};
    int64_t grain = (int64_t)(1e5 / work) + 1;
    at_par_for(par, j->batch, grain, batch_range, &r);
    return AT_OK;
  }
  space s = {mem, mem + p.a_bytes, mem + p.a_bytes + p.b_bytes, NULL};
  s.raw = s.acc + p.acc_bytes * (p.whole_acc ? 1 : threads);
  for (int64_t b = 0; b < j->batch; b++)
    run_one(serial ? NULL : par, &p, &s, b);
  return AT_OK;
}

// ---- The kernel's entry

// Drops dims of size 1 and joins neighbours that are one dim in both operands.
static bool group_simplify(const at_k_gemm_dims *in, at_k_gemm_dims *out,
                           int64_t *size) {
  if (in->rank > AT_K_MAX_RANK) return false;
  at_k_gemm_dims d = {0};
  *size = 1;
  for (uint32_t i = 0; i < in->rank; i++) {
    if (in->size[i] < 0 || __builtin_mul_overflow(*size, in->size[i], size))
      return false;
    if (in->size[i] == 1) continue;
    uint32_t r = d.rank;
    if (r > 0 && d.stride_x[r - 1] == in->stride_x[i] * in->size[i] &&
        d.stride_y[r - 1] == in->stride_y[i] * in->size[i] &&
        d.stride_z[r - 1] == in->stride_z[i] * in->size[i]) {
      d.size[r - 1] *= in->size[i];
      r--;
    } else {
      d.size[r] = in->size[i];
      d.rank++;
    }
    d.stride_x[r] = in->stride_x[i];
    d.stride_y[r] = in->stride_y[i];
    d.stride_z[r] = in->stride_z[i];
  }
  *out = d;
  return true;
}

// Are the dimensions of d one dimension by these strides? The other operand may
// have them in another order.
static bool is_progression(const at_k_gemm_dims *d, const int64_t *strides) {
  for (uint32_t i = 1; i < d->rank; i++)
    if (strides[i - 1] != strides[i] * d->size[i]) return false;
  return true;
}

// The offsets of the indices of group d in operand `which`: 0, 1, 2 for the
// strides x, y, z. A progression needs no table; else one of `size` entries is
// made in scratch memory (RESOURCE_EXHAUSTED without it).
static at_status make_off(const at_k_call *c, const at_k_gemm_dims *d,
                          int which, int64_t size, at_gemm_off *o) {
  const int64_t *st = which == 0   ? d->stride_x
                      : which == 1 ? d->stride_y
                                   : d->stride_z;
  if (d->rank == 0 || is_progression(d, st)) {
    *o = (at_gemm_off){NULL, d->rank ? st[d->rank - 1] : 1, INT64_MAX};
    return AT_OK;
  }
  *o = (at_gemm_off){NULL, st[d->rank - 1], d->size[d->rank - 1]};
  if (size == 0) return AT_OK;
  int64_t *t;
  AT_K_SCRATCH(t, c, at_mul((size_t)size, sizeof *t));
  int64_t filled = 1;
  t[0] = 0;
  // Doubling from the minor dim outwards keeps every write sequential.
  for (uint32_t i = d->rank; i-- > 0;) {
    for (int64_t k = 1; k < d->size[i]; k++)
      for (int64_t f = 0; f < filled; f++) t[k * filled + f] = t[f] + k * st[i];
    filled *= d->size[i];
  }
  o->table = t;
  return AT_OK;
}

// at_gemm_job.batch_off of GEMM: takes index i of the batch apart into its
// dimensions, the last one fastest.
static void batch_off_dims(const at_gemm_job *j, int64_t i, int64_t off[3]) {
  const at_k_gemm_dims *d = j->batch_ctx;
  off[0] = off[1] = off[2] = 0;
  for (uint32_t r = d->rank; r-- > 0;) {
    int64_t x = i % d->size[r];
    i /= d->size[r];
    off[0] += x * d->stride_x[r];
    off[1] += x * d->stride_y[r];
    off[2] += x * d->stride_z[r];
  }
}

// Turns C = A B into C^T = B^T A^T: exchanges the operands with their sizes and
// offsets. Bias per column becomes bias per row.
static void swap_operands(at_gemm_job *j, at_k_gemm_dims *batch) {
#define SWAP(T, x, y) \
  do {                \
    T t_ = (x);       \
    (x) = (y);        \
    (y) = t_;         \
  } while (0)
  SWAP(uint32_t, j->a_type, j->b_type);
  SWAP(const char *, j->a, j->b);
  SWAP(int64_t, j->m, j->n);
  SWAP(at_gemm_off, j->a_m, j->b_n);
  SWAP(at_gemm_off, j->a_k, j->b_k);
  SWAP(at_gemm_off, j->c_m, j->c_n);
  for (uint32_t i = 0; i < batch->rank; i++)
    SWAP(int64_t, batch->stride_x[i], batch->stride_y[i]);
#undef SWAP
  j->bias_rows = !j->bias_rows;
}

// Offsets of a transposed job: those of the original with A and B exchanged.
static void batch_off_swapped(const at_gemm_job *j, int64_t i, int64_t off[3]) {
  const at_gemm_job *orig = j->batch_ctx;
  int64_t t[3];
  orig->batch_off(orig, i, t);
  off[0] = t[1], off[1] = t[0], off[2] = t[2];
}

// See gemm_internal.h. pack_a stays: only strided jobs are turned.
void at_gemm_transpose(const at_gemm_job *j, at_gemm_job *out) {
  at_k_gemm_dims none = {0};
  *out = *j;
  swap_operands(out, &none);
  out->batch_off = batch_off_swapped;
  out->batch_ctx = j;
}

// Few columns of many rows that lie side by side, such as the gradient of
// weights: as few rows they go through A, then B, once and in order.
static bool narrow_columns(const at_par *par, const at_gemm_job *j,
                           at_status *st) {
  enum { MIN_COLUMNS = 9, MAX_COLUMNS = 32 };
  if (j->n < MIN_COLUMNS || j->n > MAX_COLUMNS || !j->a_by_k) return false;
  at_gemm_job flipped;
  at_gemm_transpose(j, &flipped);
  return at_gemm_narrow(par, &flipped, st);
}

// INVALID_ARGUMENT for an accumulator type that no engine has, or operands
// without data.
static at_status check_types(const at_k_gemm_params *p) {
  switch (p->acc) {
    case AT_F32:
    case AT_F64:
    case AT_S32:
    case AT_S64:
    case AT_U32:
    case AT_U64:
    case AT_C64:
    case AT_C128:
      break;
    default:
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "gemm: accumulator type %s is not one of "
                     "f32 f64 i32 i64 ui32 ui64 complex",
                     at_k_dtype_text(p->acc));
  }
  AT_K_CHECK(at_dtype_bytes((at_dtype)p->a) && at_dtype_bytes((at_dtype)p->b) &&
                 at_dtype_bytes((at_dtype)p->c),
             "gemm: operand types %s, %s -> %s have no data",
             at_k_dtype_text(p->a), at_k_dtype_text(p->b),
             at_k_dtype_text(p->c));
  return AT_OK;
}

// Where padding to tiles of 32 x 32 x 32 would be most of the work, operands
// are widened.
static const at_gemm_engine *engine_for(const at_gemm_job *j, uint32_t acc) {
  enum { MIN_K = 16, MIN_WORK = 20 * 20 * 20 };
  const at_gemm_engine *e = at_gemm_engine_of(j->a_type, j->b_type, acc);
  if (!e || !e->a_tiles) return e;
  bool little = j->m < 32 && j->n < 32 && j->m * j->n * j->k < MIN_WORK;
  // An engine without AMX pays for k below 16 with padding to 32.
  bool shallow = !e->begin && e->acc_type == AT_F32 && j->k < MIN_K;
  return little || shallow ? at_gemm_wide_engine(acc) : e;
}

// The product as a job over `batch`, which it points to.
static at_status make_job(const at_k_call *c, at_k_gemm_dims *batch,
                          at_gemm_job *j) {
  const at_k_gemm_params *p = c->params;
  AT_K_BUFS(c, p->epilogue == AT_EPI_BIAS_N ? 4u : 3u);
  AT_K_CHECK(p->epilogue <= AT_EPI_BIAS_N, "gemm: unknown epilogue %u",
             p->epilogue);
  AT_TRY(check_types(p));
  at_k_gemm_dims m, n, k;
  *j = (at_gemm_job){.a_type = p->a, .b_type = p->b, .c_type = p->c};
  AT_K_CHECK(group_simplify(&p->batch, batch, &j->batch) &&
                 group_simplify(&p->m, &m, &j->m) &&
                 group_simplify(&p->n, &n, &j->n) &&
                 group_simplify(&p->k, &k, &j->k),
             "gemm: a dimension group has a bad rank or size");
  AT_TRY(make_off(c, &m, 0, j->m, &j->a_m));
  AT_TRY(make_off(c, &k, 0, j->k, &j->a_k));
  AT_TRY(make_off(c, &k, 1, j->k, &j->b_k));
  AT_TRY(make_off(c, &n, 0, j->n, &j->b_n));
  AT_TRY(make_off(c, &m, 1, j->m, &j->c_m));
  AT_TRY(make_off(c, &n, 1, j->n, &j->c_n));
  j->a = c->bufs[0], j->b = c->bufs[1], j->c = c->bufs[c->num_bufs - 1];
  if (p->epilogue == AT_EPI_BIAS_N) j->bias = c->bufs[2];
  // Rows of C are written whole: the dense side of C is the column side.
  if (j->c_n.stride != 1 && j->c_m.stride == 1 && j->m > 1)
    swap_operands(j, batch);
  j->pack_a = at_gemm_pack_a_strided;
  j->a_by_k = j->a_m.stride == 1 && j->a_k.stride != 1;
  j->batch_off = batch_off_dims;
  j->batch_ctx = batch;
  j->e = engine_for(j, p->acc);
  if (!j->e)
    return AT_FAIL(AT_UNIMPLEMENTED, "gemm: %s x %s -> %s",
                   at_k_dtype_text(p->a), at_k_dtype_text(p->b),
                   at_k_dtype_text(p->acc));
  return AT_OK;
}

// Tries the special forms in the order of how narrow their shapes are; what
// none of them takes is packed. Each returns false before it writes anything.
at_status at_k_gemm(const at_k_call *c) {
  at_k_gemm_dims batch;
  at_gemm_job j;
  AT_TRY(make_job(c, &batch, &j));
  if (j.batch && j.m && j.n && j.k) {
    if (at_gemm_small(c->par, &j)) return AT_OK;
    at_status st = AT_OK;
    if (at_gemm_narrow(c->par, &j, &st)) return st;
    if (narrow_columns(c->par, &j, &st)) return st;
    if (at_gemm_long(c->par, &j, &st)) return st;
    if (at_gemm_slim(c->par, &j, &st)) return st;
    if (at_gemm_strips(c->par, &j, &st)) return st;
    if (at_gemm_thin(c->par, &j, &st)) return st;
  }
  return at_gemm_run(c->par, &j);
}

// See kernels.h. The conditions keep k within one block, so that the product is
// complete before it is added.
bool at_k_gemm_add(const at_k_call *c, at_status *st) {
  at_k_gemm_dims batch;
  at_gemm_job j;
  *st = make_job(c, &batch, &j);
  if (st->err) return true;
  if (j.m < 2 * j.e->mr || j.n < j.e->nr || !j.k || j.k > j.e->kc ||
      (j.e->acc_type != AT_F32 && j.e->acc_type != AT_S32) ||
      !c_direct(&j, 0, j.m, 0, j.n))
    return false;
  j.add = true;
  *st = at_gemm_run(c->par, &j);
  return true;
}

// Dots of kernels by packed blocks. A grid reads a block of an operand in many
// steps: what was packed for one dot serves the others, whichever thread runs
// them.
#include "base/clock.h"
#include "exec/exec_internal.h"
#include "kernels/kernels.h"

enum {
  kEntries = 1024,  // a power of two
  kMostEntries = kEntries / 2,
  kMostBytes = 64 << 20,
  kWaitNs = 100000,          // for a block that another thread packs
  kMostParts = 64,           // of a sum that comes later
  kSharedBytes = 128 << 10,  // of B, that another thread helps to read
  kMostSums = 4
};

typedef enum entry_state { kEmpty, kClaimed, kNamed, kPacked } entry_state;

typedef struct entry {
  _Atomic uint32_t state;
  bool columns;
  at_k_matrix m;
  void *data;
} entry;

// What the threads of a core keep from dot to dot.
typedef struct shelf {
  entry entries[kEntries];
  _Atomic uint32_t count;
  uint8_t *memory;  // of the blocks
  _Atomic size_t used;
  size_t bytes;
} shelf;

// The core's shelf, made when it is asked for first; NULL: no memory, then
// nothing stays.
static shelf *shelf_of(at_core *core, const at_par *lasting) {
  _Atomic(void *) *note = at_core_note(core);
  void *there = atomic_load_explicit(note, memory_order_acquire);
  if (there) return there;
  // A few forms of each operand; f32 takes half of its bytes.
  size_t bytes =
      AT_MIN(at_mul(at_core_bytes_read(core), 2), (size_t)kMostBytes);
  shelf *s = at_par_scratch(lasting, sizeof *s);
  if (!s) return NULL;
  memset(s, 0, sizeof *s);
  s->memory = at_par_scratch(lasting, bytes + 64);
  s->bytes = s->memory ? bytes : 0;
  // Of two that came at once one is not used, and goes with the launch.
  if (atomic_compare_exchange_strong(note, &there, s)) return s;
  return there;
}

// Is e the block of that matrix, packed that way?
static bool is_named(const entry *e, const at_k_matrix *m, bool columns) {
  return e->m.p == m->p && e->m.type == m->type && e->m.outer == m->outer &&
         e->m.k == m->k && e->m.outer_stride == m->outer_stride &&
         e->m.k_stride == m->k_stride && e->columns == columns;
}

// Spins over the few stores between kClaimed and kNamed.
static entry_state named_state(entry *e) {
  uint32_t state;
  while ((state = atomic_load_explicit(&e->state, memory_order_acquire)) ==
         kClaimed)
    at_spin_pause();
  return state;
}

// The block's entry; *mine: this thread has to pack it. NULL: no room.
static entry *find(shelf *s, const at_k_matrix *m, bool columns, bool *mine) {
  uint64_t h = at_hash(AT_HASH_SEED, &m->p, sizeof m->p);
  h = at_hash(h, &m->outer, 4 * sizeof m->outer);
  *mine = false;
  for (uint32_t i = (uint32_t)h, turns = 0; turns < kEntries; i++, turns++) {
    entry *e = &s->entries[i % kEntries];
    uint32_t empty = kEmpty;
    if (named_state(e) == kEmpty) {
      size_t bytes = at_k_block_bytes(m);
      if (atomic_load(&s->count) >= kMostEntries ||
          at_add(atomic_load(&s->used), bytes) > s->bytes)
        return NULL;
      if (atomic_compare_exchange_strong(&e->state, &empty, kClaimed)) {
        size_t at = atomic_fetch_add(&s->used, bytes);
        bool room = at_add(at, bytes) <= s->bytes;
        atomic_fetch_add(&s->count, 1);
        e->m = *m;
        e->columns = columns;
        e->data = room ? s->memory + at : NULL;
        if (!room) e->m.p = NULL;  // a name that nobody looks for
        atomic_store_explicit(&e->state, kNamed, memory_order_release);
        *mine = room;
        return room ? e : NULL;
      }
      named_state(e);
    }
    if (is_named(e, m, columns)) return e;
  }
  return NULL;
}

static bool is_packed(const entry *e) {
  return atomic_load_explicit(&e->state, memory_order_acquire) == kPacked;
}

typedef struct side {
  at_k_matrix m;
  bool columns, stays;
  void *room;  // for what does not stay; NULL: scratch memory
  entry *entry;
  const void *data;
} side;

static side side_a(const at_core_dot *d) {
  return (side){.m = {d->a, (uint32_t)d->a_type, d->m, d->k, d->a_m, d->a_k}};
}
// By columns: its outer dimension is n.
static side side_b(const at_core_dot *d) {
  return (side){.m = {d->b, (uint32_t)d->b_type, d->n, d->k, d->b_n, d->b_k},
                .columns = true};
}

// For this dot only: into the caller's room or scratch memory.
static bool pack_alone(const at_par *par, side *x) {
  void *to = x->room ? x->room : at_par_scratch(par, at_k_block_bytes(&x->m));
  if (to) at_k_block_pack(par, &x->m, x->columns, to);
  x->data = to;
  return to != NULL;
}

// Packs, or leaves to another thread what that has begun.
static bool begin(shelf *s, const at_par *par, side *x) {
  bool mine = false;
  x->data = NULL;
  x->entry = x->stays ? find(s, &x->m, x->columns, &mine) : NULL;
  if (!x->entry) return pack_alone(par, x);
  if (mine) {
    at_k_block_pack(par, &x->m, x->columns, x->entry->data);
    atomic_store_explicit(&x->entry->state, kPacked, memory_order_release);
  }
  if (is_packed(x->entry)) x->data = x->entry->data;
  return true;
}

// Waits a while for the thread that packs; then packs once more, alone. False:
// no memory.
static bool end(const at_par *par, side *x) {
  if (x->data) return true;
  uint64_t until = at_clock_ns() + kWaitNs;
  while (!is_packed(x->entry)) {
    at_spin_pause();
    if (at_clock_ns() > until) return pack_alone(par, x);
  }
  x->data = x->entry->data;
  return true;
}

// bf16, or rounded to it, with dense rows of f32 as the result.
static bool is_rounded(const at_core_dot *d) {
  bool rounded =
      d->round_bf16 || (d->a_type == AT_BF16 && d->b_type == AT_BF16);
  return rounded && d->c_type == AT_F32 && d->c_n == sizeof(float) &&
         d->c_m % (int64_t)sizeof(float) == 0;
}

// c (+)= a b of packed blocks.
static bool multiply_now(const at_par *par, const at_core_dot *d, side *a,
                         side *b, float *c) {
  if (!end(par, a) || !end(par, b)) return false;
  at_k_block_part part = {a->data, b->data, d->k};
  at_k_block_sum s = {.parts = &part,
                      .num_parts = 1,
                      .c = c,
                      .ldc = d->c_m / (int64_t)sizeof *c,
                      .add = d->accumulate};
  at_k_block_multiply(par, d->m, d->n, &s);
  return true;
}

// The shelf, if one of the sides, each of which is read so often, stays there.
static shelf *shelf_for(at_core *core, side *a, side *b) {
  if (!a->stays && !b->stays) return NULL;
  shelf *s = shelf_of(core, at_core_launch_of(core)->par);
  a->stays &= s != NULL, b->stays &= s != NULL;
  return s;
}

// ---- Products in loops over rows
static const void *pack_before(at_core *core, side *x) {
  at_core_dot_scratch scratch;
  at_core_dot_begin(core, &scratch);
  x->stays = at_core_reads_of(core, x->m.p) >= 2;
  shelf *s = shelf_for(core, x, x);
  // With room for it, packing does not fail.
  (void)(begin(s, &scratch.par, x) && end(&scratch.par, x));
  at_core_dot_end(&scratch);
  return x->data;
}

// Called by generated code before a loop over rows of b or c.
const void *at_core_dot_pack_a(at_core *core, const at_core_dot *d,
                               void *room) {
  side a = side_a(d);
  a.room = room;
  return pack_before(core, &a);
}

// Called by generated code before a loop over rows of a or c.
const void *at_core_dot_pack_b(at_core *core, const at_core_dot *d,
                               void *room) {
  side b = side_b(d);
  b.room = room;
  return pack_before(core, &b);
}

void at_core_dot_rows_begin(void) { at_k_block_rows_begin(); }
void at_core_dot_rows_end(void) { at_k_block_rows_end(); }

// One block of rows: a is packed here unless it was before (d->a NULL).
void at_core_dot_rows(const at_core_dot *d, void *packed_a,
                      const void *packed_b) {
  if (d->a) {
    side a = side_a(d);
    at_k_block_rows_pack(&a.m, packed_a);
  }
  at_k_block_part part = {packed_a, packed_b, d->k};
  at_k_block_rows(d->m, d->n, &part, d->c, d->c_m / (int64_t)sizeof(float),
                  d->accumulate);
}

// ---- Products that come later
// What is still to be added to one c. `taken`: somebody has the result, and c
// waits for another sum to overwrite it, or to go on with these parts.
typedef struct sum {
  float *c;
  int64_t m, n, ldc;
  bool add;  // to what c holds
  bool taken;
  uint32_t count;
  struct {
    side a, b;
  } parts[kMostParts];
} sum;

typedef struct sums {
  sum list[kMostSums];
} sums;

// The sum that goes to c, or room for one; NULL: there is none.
static sum *sum_of(sums *all, const float *c) {
  sum *room = NULL;
  for (uint32_t i = 0; i < kMostSums; i++) {
    sum *s = &all->list[i];
    if (s->count && s->c == c) return s;
    if (!s->count) room = s;
  }
  return room;
}

// c_m: of rows, in bytes.
static bool is_same(const sum *s, int64_t m, int64_t n, int64_t c_m) {
  return s->m == m && s->n == n && s->ldc * (int64_t)sizeof *s->c == c_m;
}

// taken: where the result goes instead of c; NULL: c.
static bool finish(const at_par *par, sum *s, const at_core_dot_taken *taken) {
  at_k_block_part parts[kMostParts];
  for (uint32_t i = 0; i < s->count; i++) {
    // What is packed in scratch memory now does not stay for another time.
    side a = s->parts[i].a, b = s->parts[i].b;
    if (!end(par, &a) || !end(par, &b)) return false;
    parts[i] = (at_k_block_part){a.data, b.data, a.m.k};
  }
  at_k_block_sum x = {.parts = parts,
                      .num_parts = s->count,
                      .c = s->c,
                      .ldc = s->ldc,
                      .add = s->add};
  if (taken) {
    x.to = taken->out;
    x.to_type = (uint32_t)taken->out_type;
    x.to_stride = taken->out_m;
  } else {
    s->count = 0;
  }
  s->taken = taken != NULL;
  at_k_block_multiply(par, s->m, s->n, &x);
  return true;
}

// False: no memory; the sums that are left are lost with the kernel, which
// fails.
static bool finish_all(const at_par *par, at_core_due *due) {
  sums *all = due->data;
  due->run = NULL;
  for (uint32_t i = 0; all && i < kMostSums; i++)
    if (all->list[i].count && !finish(par, &all->list[i], NULL)) return false;
  return true;
}

// Ends the kernel at `loc`: RESOURCE_EXHAUSTED.
static void give_up(at_core *core, int32_t loc) {
  at_core_give_up(core, loc,
                  AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a dot"));
}

// Everything that was postponed, before somebody reads it.
void at_core_dot_finish(at_core *core) {
  at_core_due *due = at_core_due_of(core);
  if (!due->run) return;
  at_core_dot_scratch scratch;
  at_core_dot_begin(core, &scratch);
  bool good = finish_all(&scratch.par, due);
  at_core_dot_end(&scratch);
  if (!good) give_up(core, -1);
}

// Before an output's window leaves: what was taken lies in no window.
static void leave(at_core *core) {
  const sums *all = at_core_due_of(core)->data;
  for (uint32_t i = 0; i < kMostSums; i++)
    if (all->list[i].count && !all->list[i].taken) {
      at_core_dot_finish(core);
      return;
    }
}

// Writes c's sum, converted, to d->out: straight from the blocks where c is one
// sum, else from c once all is added.
void at_core_dot_take(at_core *core, const at_core_dot_taken *d) {
  const at_core_due *due = at_core_due_of(core);
  sum *s = due->run ? sum_of(due->data, d->c) : NULL;
  if (s && s->count && is_same(s, d->m, d->n, d->c_m)) {
    at_core_dot_scratch scratch;
    at_core_dot_begin(core, &scratch);
    bool good = finish(&scratch.par, s, d);
    at_core_dot_end(&scratch);
    if (!good) give_up(core, d->loc);
    return;
  }
  at_core_dot_finish(core);
  for (int64_t i = 0; i < d->m; i++)
    at_k_convert((uint32_t)d->out_type, (uint8_t *)d->out + i * d->out_m,
                 AT_F32, (const uint8_t *)d->c + i * d->c_m, d->n);
}

// Keeps the product for later; its operands stay where they are packed.
static bool postpone(at_core *core, const at_core_dot *d, const side *a,
                     const side *b) {
  at_core_due *due = at_core_due_of(core);
  sums *all = due->data;
  if (!a->entry || !b->entry) return false;
  if (!all) {
    all = at_par_scratch(at_core_launch_of(core)->par, sizeof *all);
    if (!all) return false;
    for (uint32_t i = 0; i < kMostSums; i++) all->list[i].count = 0;
    due->data = all;
  }
  sum *s = sum_of(all, d->c);
  if (!s || s->count == kMostParts ||
      (s->count && !is_same(s, d->m, d->n, d->c_m)))
    return false;
  if (!d->accumulate) s->count = 0;
  s->taken = false;
  if (!s->count) {
    s->c = d->c;
    s->m = d->m, s->n = d->n, s->ldc = d->c_m / (int64_t)sizeof *s->c;
    s->add = d->accumulate;
  }
  s->parts[s->count].a = *a;
  s->parts[s->count++].b = *b;
  due->run = leave;
  return true;
}

// ---- Dots
// B where the pages are that stand for its memory. false: its memory is filled.
static bool pages_of(at_core *core, const at_k_matrix *b, bool along,
                     at_core_pages *from, at_k_pages *out) {
  int64_t rows = along ? b->outer : b->k, cols = along ? b->k : b->outer;
  int64_t step = along ? b->outer_stride : b->k_stride;
  int64_t bytes = cols * (int64_t)at_dtype_bytes((at_dtype)b->type);
  if (rows <= 0 || cols <= 0) return false;
  if (step != bytes) {
    at_core_pages_fetch(core, b->p, (rows - 1) * step + bytes);
    return false;
  }
  if (!at_core_pages_of(core, b->p, rows * bytes, from)) return false;
  *out = (at_k_pages){from->page, from->count, from->bytes / bytes, from->next};
  if (from->bytes % bytes == 0 && (along || out->rows % 2 == 0)) return true;
  at_core_pages_fetch(core, b->p, rows * bytes);
  return false;
}

// Others have the bits of such a product outside a kernel, which JAX's tests
// compare them with: attention over pages has none there.
bool at_core_dot_few(at_core *core, const at_core_dot *d) {
  side a = side_a(d), b = side_b(d);
  if (!d->pages || !is_rounded(d) || d->later || d->batch != 1 ||
      !at_k_few_fits(&a.m, &b.m, d->accumulate))
    return false;
  at_core_pages from;
  at_k_pages pages;
  bool along = d->k == 1 || d->b_k == at_dtype_bytes((at_dtype)d->b_type);
  bool there = !pages_of(core, &b.m, along, &from, &pages);
  const at_par *par = at_core_launch_of(core)->par;
  bool shared = d->n * d->k >= kSharedBytes / at_dtype_bytes(b.m.type) &&
                at_pool_is_near(par->pool);
  at_k_few(shared ? par : NULL, &a.m, &b.m, there ? NULL : &pages, d->c,
           d->c_m / (int64_t)sizeof(float), d->accumulate);
  return true;
}

// For products that read b itself.
void at_core_dot_fetch(at_core *core, const at_core_dot *d) {
  int64_t bytes = at_dtype_bytes((at_dtype)d->b_type);
  if (!d->pages || d->k <= 0) return;
  bytes +=
      (d->batch - 1) * d->b_batch + (d->k - 1) * d->b_k + (d->n - 1) * d->b_n;
  at_core_pages_fetch(core, d->b, bytes);
}

// False: the product has no such form, and nothing was done but what was
// postponed, which is then added. *st: no memory.
bool at_core_dot_blocks(at_core *core, const at_par *par, const at_core_dot *d,
                        at_status *st) {
  side a = side_a(d), b = side_b(d);
  bool later = d->later && d->batch == 1;
  bool good = true, fits = is_rounded(d) && at_k_block_fits(&a.m, &b.m);
  if (d->later && !fits) good = finish_all(par, at_core_due_of(core));
  if (good && !fits) return false;
  int64_t reads = later ? 1 : 2;  // that a packed block is worth keeping for
  a.stays = at_core_reads_of(core, d->a) >= reads;
  b.stays = at_core_reads_of(core, d->b) >= reads;
  shelf *s = shelf_for(core, &a, &b);
  for (int64_t i = 0; i < d->batch && good; i++) {
    good = begin(s, par, &a) && begin(s, par, &b);
    if (!good || (later && postpone(core, d, &a, &b))) break;
    float *c = (float *)(void *)((uint8_t *)d->c + i * d->c_batch);
    good = (!d->later || finish_all(par, at_core_due_of(core))) &&
           multiply_now(par, d, &a, &b, c);
    a.m.p = (const uint8_t *)a.m.p + d->a_batch;
    b.m.p = (const uint8_t *)b.m.p + d->b_batch;
  }
  if (!good) *st = AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a dot");
  return true;
}

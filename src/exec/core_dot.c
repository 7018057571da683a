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
  kWaitNs = 100000  // for a block that another thread packs
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

static bool is_named(const entry *e, const at_k_matrix *m, bool columns) {
  return e->m.p == m->p && e->m.type == m->type && e->m.outer == m->outer &&
         e->m.k == m->k && e->m.outer_stride == m->outer_stride &&
         e->m.k_stride == m->k_stride && e->columns == columns;
}

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
  entry *entry;
  const void *data;
} side;

static bool pack_alone(const at_par *par, side *x) {
  void *to = at_par_scratch(par, at_k_block_bytes(&x->m));
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

static bool has_form(const at_core_dot *d, const at_k_matrix *a,
                     const at_k_matrix *b) {
  bool rounded =
      d->round_bf16 || (d->a_type == AT_BF16 && d->b_type == AT_BF16);
  return rounded && d->c_type == AT_F32 && d->c_n == sizeof(float) &&
         d->c_m % (int64_t)sizeof(float) == 0 && at_k_block_fits(a, b);
}

bool at_core_dot_blocks(at_core *core, const at_par *par, const at_core_dot *d,
                        at_status *st) {
  side a = {.m = {d->a, (uint32_t)d->a_type, d->m, d->k, d->a_m, d->a_k}};
  side b = {.m = {d->b, (uint32_t)d->b_type, d->n, d->k, d->b_n, d->b_k},
            .columns = true};
  if (!has_form(d, &a.m, &b.m)) return false;
  a.stays = at_core_reads_of(core, d->a) > 1;
  b.stays = at_core_reads_of(core, d->b) > 1;
  shelf *s = NULL;
  if (a.stays || b.stays) {
    s = shelf_of(core, at_core_launch_of(core)->par);
    a.stays &= s != NULL, b.stays &= s != NULL;
  }
  for (int64_t i = 0; i < d->batch; i++) {
    if (!begin(s, par, &a) || !begin(s, par, &b) || !end(par, &a) ||
        !end(par, &b)) {
      *st = AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a dot");
      return true;
    }
    float *c = (float *)(void *)((uint8_t *)d->c + i * d->c_batch);
    at_k_block_multiply(par, d->m, d->n, d->k, a.data, b.data, c,
                        d->c_m / (int64_t)sizeof *c, d->accumulate);
    a.m.p = (const uint8_t *)a.m.p + d->a_batch;
    b.m.p = (const uint8_t *)b.m.p + d->b_batch;
  }
  return true;
}

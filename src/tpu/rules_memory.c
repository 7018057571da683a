// Windows, scratch and semaphores against the memories of a core.
#include "tpu/rules_internal.h"

// ---- Layout
// Large tiles where the rows are a multiple of them, else 8 rows, and for fewer
// rows the next power of two.
int64_t at_mosaic_tile_rows(const at_mosaic_chip *chip, uint32_t bits,
                            int64_t rows, bool argument) {
  int64_t packing = bits >= 32 ? 1 : 32 / bits;
  // By width of element; 32 bits and more have tiles of eight rows alone.
  int64_t normal = 8, large = 8;
  if (bits == 2) large = 128;
  if (bits == 4) large = 64;
  if (bits == 8) large = 32;
  if (bits == 16)
    large = argument ? chip->tile_rows_16bit : chip->generation >= 6 ? 16 : 8;
  if (rows % large) large = normal;
  if (large <= rows) return large;
  int64_t tile = packing * (chip->generation < 4 ? 2 : 1);
  while (tile < AT_MIN(rows, normal)) tile *= 2;
  AT_ASSERT(tile > 0 && tile <= 128 && tile % packing == 0);
  return tile;
}

// False: negative or too large.
static bool mul(int64_t *n, int64_t by) {
  return by >= 0 && !__builtin_mul_overflow(*n, by, n);
}

enum { MOST_PADDING = 4096 };  // elements, more than any row below has

// Lanes are padded to 128, rows to the tile, rank 1 to whole rows of words;
// masks take a word per element. SparseCore memory is dense.
int64_t at_mosaic_ref_bytes(const at_mosaic_chip *chip, const at_mosaic_ref *r,
                            bool argument) {
  int64_t n = 1;
  uint32_t rank = r->shape.rank;
  bool tiled = r->semaphore == AT_MSEM_NONE;
  uint32_t bits = r->semaphore ? 32 : at_dtype_of(r->dtype)->bits;
  if (bits == 1) bits = 32;  // a predicate is a word
  if (tiled && r->core == AT_MCORE_SC_VECTOR) tiled = false;
  for (uint32_t i = 0; i < rank; i++) {
    int64_t d = r->shape.ptr[i];
    if (d < 0 || d > INT64_MAX - MOST_PADDING) return -1;  // AT_MDYN is < 0
    if (tiled && i + 1 == rank && rank > 1) d = (d + 127) / 128 * 128;
    if (tiled && i + 1 == rank && rank == 1) {
      int64_t row = r->space == AT_MSPACE_SMEM ? 1 : 128 * 32 / bits;
      d = (d + row - 1) / row * row;
    }
    if (tiled && i + 2 == rank) {
      int64_t tile = at_mosaic_tile_rows(chip, bits, d, argument);
      d = (d + tile - 1) / tile * tile;
    }
    if (!mul(&n, d)) return -1;
  }
  if (!mul(&n, bits)) return -1;
  return (n / 8 + 3) / 4 * 4;
}

// ---- Windows
// A window that never moves needs one buffer, unless the kernel asked for more.
uint32_t at_mosaic_buffers_of(const at_mosaic_window *w) {
  if (w->kind == AT_MWIN_WHOLE || w->buffers_given) return w->buffers;
  return w->moves ? w->buffers : 1;
}

// Does the window take VMEM or SMEM?
static bool in_core(const at_mosaic_window *w) {
  return w->ref.space == AT_MSPACE_VMEM || w->ref.space == AT_MSPACE_SMEM;
}

// Saturates.
static void add(int64_t *sum, int64_t bytes) {
  if (bytes < 0 || __builtin_add_overflow(*sum, bytes, sum)) *sum = INT64_MAX;
}

// Windows that XLA keeps in VMEM already (colour) take nothing here.
at_mosaic_memory at_mosaic_memory_of(const at_mosaic_program *p,
                                     const at_mosaic_chip *chip) {
  at_mosaic_memory m = {0};
  for (uint32_t i = 0; i < p->num_prefetch; i++)
    add(&m.smem, at_mosaic_ref_bytes(chip, &p->prefetch[i], true));
  for (uint32_t i = 0; i < p->num_windows; i++) {
    const at_mosaic_window *w = &p->windows[i];
    if (!in_core(w) || w->color == AT_MCOLOR_VMEM) continue;
    int64_t bytes = at_mosaic_ref_bytes(chip, &w->ref, true);
    for (uint32_t n = at_mosaic_buffers_of(w); n; n--)
      add(w->ref.space == AT_MSPACE_SMEM ? &m.smem : &m.windows, bytes);
  }
  for (uint32_t i = 0; i < p->num_scratch; i++) {
    const at_mosaic_ref *r = &p->scratch[i];
    int64_t bytes = at_mosaic_ref_bytes(chip, r, false);
    if (r->semaphore)
      add(&m.semaphores, bytes);
    else if (r->space == AT_MSPACE_SMEM)
      add(&m.smem, bytes);
    else if (r->space == AT_MSPACE_VMEM)
      add(&m.scratch, bytes);
  }
  // Sums saturate: what is not known takes too much, not little.
  AT_ASSERT(m.windows >= 0 && m.scratch >= 0 && m.smem >= 0 &&
            m.semaphores >= 0);
  return m;
}

// ---- Refusals
// XLA's spelling of a type: f32[8,128].
static void put_type(at_strbuf *b, at_dtype t, at_dims d) {
  const at_dtype_info *i = at_dtype_of(t);
  if (t == AT_PRED)
    at_strbuf_addz(b, "pred");
  else if (at_is_int(t))
    at_strbuf_addf(b, "%c%u", at_is_signed_int(t) ? 's' : 'u', i->bits);
  else
    for (const char *c = i->text; *c; c++)
      at_strbuf_addc(b, (char)(*c >= 'A' && *c <= 'Z' ? *c + 32 : *c));
  at_strbuf_addc(b, '[');
  for (uint32_t n = 0; n < d.rank; n++)
    at_strbuf_addf(b, "%s%lld", n ? "," : "", (long long)d.ptr[n]);
  at_strbuf_addc(b, ']');
}

// "1.50M" or "12.0K", as in the compiler's lists.
static void put_size(at_strbuf *b, int64_t bytes) {
  if (bytes >= 1 << 20)
    at_strbuf_addf(b, "%.2fM", (double)bytes / (1 << 20));
  else
    at_strbuf_addf(b, "%.1fK", (double)bytes / 1024);
}

// How the compiler names a window in its lists.
static void put_window(at_strbuf *b, at_mosaic_judge *j,
                       const at_mosaic_window *w) {
  // Indices of the call's operands.
  // Grid bounds that the call brings along are not counted as inputs.
  uint32_t index = w->is_output ? w->index : w->index - j->p->num_dynamic;
  const char *what = w->is_output ? "output" : "input";
  uint32_t n = at_mosaic_buffers_of(w);
  at_strbuf_addf(
      b, "%s window allocation for operator %s %u. The window shape is ", what,
      what, index);
  put_type(b, w->ref.dtype, w->ref.shape);
  at_strbuf_addz(b, ", while the full shape is ");
  if (w->whole.dtype != AT_INVALID)
    put_type(b, w->whole.dtype, at_type_dims(&w->whole));
  else
    at_strbuf_addz(b, "not known");
  if (n == 1)
    at_strbuf_addz(b, ". This allocation is single buffered.");
  else
    at_strbuf_addf(b, ". This allocation has %u buffering levels.", n);
}

// Consumes the text. The place is loc's, or the first operation's that has one.
static at_status finish_at(at_mosaic_judge *j, at_strbuf *b, at_code code,
                           const at_mloc *loc) {
  at_mosaic_place p = at_mosaic_place_of(loc);
  for (uint32_t i = 0; !*p.file && i < j->p->body->num_ops; i++)
    p = at_mosaic_place_of(j->p->body->ops[i]->loc);
  if (*p.file) at_strbuf_addf(b, "\nat: %s:%u:%u", p.file, p.line, p.column);
  at_strbuf_addf(b, "\ndetail: kernel %s, target %s", j->k->name,
                 j->chip->name);
  bool sparse = j->p->core == AT_MCORE_SC_VECTOR;
  at_strbuf_addf(b, "\nhint: %s, or ATOLL_LENIENT=1",
                 sparse ? "less scratch" : "smaller blocks, pl.Buffered(1)");
  at_status s = AT_FAIL(code, "%s", b->failed ? "out of memory" : b->ptr);
  at_strbuf_free(b);
  return s;
}
static at_status finish(at_mosaic_judge *j, at_strbuf *b, at_code code) {
  return finish_at(j, b, code, j->p->func->loc);
}

// At most 20 entries, windows first.
static void put_allocations(at_strbuf *b, at_mosaic_judge *j,
                            at_mosaic_space space) {
  int rank = 0;
  at_strbuf_addf(b, "\n\nProgram %s requirement:", at_mosaic_space_name(space));
  for (uint32_t i = 0; i < j->p->num_windows; i++) {
    const at_mosaic_window *w = &j->p->windows[i];
    if (w->ref.space != space || rank == 20) continue;
    at_strbuf_addf(b, "\n  %d. Size: ", ++rank);
    put_size(b, at_mosaic_ref_bytes(j->chip, &w->ref, true) *
                    at_mosaic_buffers_of(w));
    at_strbuf_addz(b, "\n     Tag: ");
    put_window(b, j, w);
  }
  for (uint32_t i = 0; i < j->p->num_scratch; i++) {
    const at_mosaic_ref *r = &j->p->scratch[i];
    if (r->space != space || r->semaphore || rank == 20) continue;
    at_strbuf_addf(b, "\n  %d. Size: ", ++rank);
    put_size(b, at_mosaic_ref_bytes(j->chip, r, false));
    at_strbuf_addz(b, "\n     Tag: scratch operand ");
    put_type(b, r->dtype, r->shape);
  }
}

// last: what the body took last, or NULL.
static at_status scoped_oom(at_mosaic_judge *j, int64_t used, int64_t limit,
                            const at_mop *last) {
  at_strbuf b = {0};
  at_strbuf_addf(
      &b,
      "E1001: CompileTimeScopedVmemOom:\nRan out of memory in memory "
      "space vmem while allocating on stack for %%%s = custom-call, "
      "custom_call_target=\"tpu_custom_call\". Scoped allocation with "
      "size ",
      j->k->name);
  put_size(&b, used);
  at_strbuf_addz(&b, " and limit ");
  put_size(&b, limit);
  at_strbuf_addz(&b, " exceeded scoped vmem limit by ");
  put_size(&b, used - limit);
  at_strbuf_addz(&b, ".");
  put_allocations(&b, j, AT_MSPACE_VMEM);
  return finish_at(j, &b, AT_RESOURCE_EXHAUSTED,
                   last ? last->loc : j->p->func->loc);
}

// The memory itself is too small.
static at_status capacity_oom(at_mosaic_judge *j, int64_t used, int64_t limit,
                              const char *memory) {
  at_strbuf b = {0};
  at_strbuf_addf(&b,
                 "XLA:TPU compile permanent error. Ran out of memory in memory "
                 "space %s. Used ",
                 memory);
  put_size(&b, used);
  at_strbuf_addz(&b, " of ");
  put_size(&b, limit);
  at_strbuf_addf(&b, " %s. Exceeded %s capacity by ", memory, memory);
  put_size(&b, used - limit);
  at_strbuf_addz(&b, ".");
  put_allocations(&b, j, AT_MSPACE_VMEM);
  return finish(j, &b, AT_RESOURCE_EXHAUSTED);
}

// One allocation that no memory holds. `w` or `r` says which.
static at_status too_big(at_mosaic_judge *j, int64_t bytes, int64_t memory,
                         const char *space, const at_mosaic_window *w,
                         const at_mosaic_ref *r) {
  at_strbuf b = {0};
  at_strbuf_addf(&b,
                 "Allocation (size=%lld) would exceed memory (size=%lld) :: "
                 "#allocation [shape = '",
                 (long long)bytes, (long long)memory);
  const at_mosaic_ref *ref = w ? &w->ref : r;
  put_type(&b, ref->semaphore ? AT_S32 : ref->dtype, ref->shape);
  at_strbuf_addf(&b, "', space=%s, size = 0x%llx, scoped, tag = '", space,
                 (unsigned long long)bytes);
  if (w)
    put_window(&b, j, w);
  else
    at_strbuf_addz(&b, "scratch operand");
  at_strbuf_addf(&b, "'] :: %s", j->k->name);
  return finish(j, &b, AT_RESOURCE_EXHAUSTED);
}

// What the compiler itself keeps of a memory, as its refusals tell. Bytes.
enum { SFLAG_KEPT = 300, SFLAG_KEPT_7X = 860, SMEM_KEPT = 1024 };

// Each scratch ref against its memory, then all semaphores together.
static at_status check_scratch(at_mosaic_judge *j) {
  const at_mosaic_chip *c = j->chip;
  int64_t sems = 0;
  for (uint32_t i = 0; i < j->p->num_scratch; i++) {
    const at_mosaic_ref *r = &j->p->scratch[i];
    int64_t bytes = at_mosaic_ref_bytes(c, r, false);
    bool smem = r->space == AT_MSPACE_SMEM;
    if (!r->semaphore && !smem && r->space != AT_MSPACE_VMEM) continue;
    int64_t memory = r->semaphore ? c->semaphore_bytes
                     : smem       ? c->smem_bytes
                                  : c->vmem_bytes;
    if (bytes > memory || bytes < 0)
      return too_big(j, bytes, memory,
                     r->semaphore ? "sflag"
                     : smem       ? "smem"
                                  : "vmem",
                     NULL, r);
    if (r->semaphore) add(&sems, bytes);
  }
  // All semaphores share one memory with those of the compiler.
  int64_t kept = c->generation >= 7 ? SFLAG_KEPT_7X : SFLAG_KEPT;
  add(&sems, kept);
  if (sems > c->semaphore_bytes && sems > kept)
    return capacity_oom(j, sems, c->semaphore_bytes, "sflag");
  return AT_OK;
}

// Windows of a memory that no memory of the kind holds by themselves.
static at_status check_windows(at_mosaic_judge *j) {
  for (uint32_t i = 0; i < j->p->num_windows; i++) {
    const at_mosaic_window *w = &j->p->windows[i];
    if (!in_core(w) || w->color == AT_MCOLOR_VMEM) continue;
    bool smem = w->ref.space == AT_MSPACE_SMEM;
    int64_t bytes = at_mosaic_ref_bytes(j->chip, &w->ref, true), sum = 0;
    int64_t memory = smem ? j->chip->smem_bytes : j->chip->vmem_bytes;
    for (uint32_t n = at_mosaic_buffers_of(w); n; n--) add(&sum, bytes);
    if (sum > memory)
      return too_big(j, sum, memory, smem ? "smem" : "vmem", w, NULL);
  }
  return AT_OK;
}

// Prefetched operands one by one, then everything that lies in SMEM.
static at_status check_smem(at_mosaic_judge *j, int64_t used) {
  int64_t memory = j->chip->smem_bytes;
  for (uint32_t i = 0; i < j->p->num_prefetch; i++) {
    int64_t bytes = at_mosaic_ref_bytes(j->chip, &j->p->prefetch[i], true);
    if (bytes > memory || bytes < 0)
      return too_big(j, bytes, memory, "smem", NULL, &j->p->prefetch[i]);
  }
  add(&used, SMEM_KEPT);
  return used > memory && used > SMEM_KEPT
             ? capacity_oom(j, used, memory, "smem")
             : AT_OK;
}

// ---- SparseCores
static bool is_used(const at_mblock *b, const at_mvalue *v);

// Does the operation read or write the value?
static bool uses(const at_mop *op, const at_mvalue *v) {
  for (uint32_t i = 0; i < op->num_operands; i++)
    if (op->operands[i] == v) return true;
  return false;
}

// The same, in regions too.
static bool uses_inside(const at_mop *op, const at_mvalue *v) {
  for (uint32_t k = 0; k < op->num_regions; k++)
    for (uint32_t n = 0; n < op->regions[k]->num_blocks; n++)
      if (is_used(op->regions[k]->blocks[n], v)) return true;
  return false;
}

// Anywhere in the block or inside it.
static bool is_used(const at_mblock *b, const at_mvalue *v) {
  for (uint32_t i = 0; i < b->num_ops; i++)
    if (uses(b->ops[i], v) || uses_inside(b->ops[i], v)) return true;
  return false;
}

// Puts what the block reads or writes into `used`, and what regions in it do.
static at_status note_used(at_map *used, const at_mblock *b) {
  for (uint32_t i = 0; i < b->num_ops; i++) {
    const at_mop *op = b->ops[i];
    for (uint32_t o = 0; o < op->num_operands; o++)
      if (!at_map_put_ptr(used, op->operands[o]))
        return AT_NO_MEMORY("values that are used");
    for (uint32_t k = 0; k < op->num_regions; k++)
      for (uint32_t n = 0; n < op->regions[k]->num_blocks; n++)
        AT_TRY(note_used(used, op->regions[k]->blocks[n]));
  }
  return AT_OK;
}

// Of one subcore's scratch, or of shared memory. -1: a dynamic size.
static int64_t sparse_words(at_mosaic_judge *j, const at_mosaic_ref *r) {
  enum { WORDS = 8 };  // that rows are padded to without tiles
  at_mosaic_ref t = *r;
  t.core = AT_MCORE_TC;
  if (!j->k->config.sparse_core_tiling)
    return at_mosaic_ref_bytes(j->chip, &t, false) / 4;
  uint32_t bits = at_dtype_of(r->dtype)->bits, rank = r->shape.rank;
  int64_t row = WORDS * 32 / AT_MAX(bits, 1u), n = WORDS;
  for (uint32_t i = 0; i < rank; i++) {
    int64_t d = r->shape.ptr[i];
    if (d < 0) return -1;
    if (!mul(&n, i + 1 == rank ? at_ceil_div(d, row) : d)) return -1;
  }
  return n;
}

enum { SUBCORES = 16 };

// Offsets are words, as SparseCore memory is addressed.
static at_status sparse_oom(at_mosaic_judge *j, const at_mosaic_ref *r,
                            int64_t end, int64_t limit, int64_t words,
                            const char *memory) {
  at_strbuf b = {0};
  at_strbuf_addf(&b,
                 "E3000: CompileTimeSparseCoreAllocationFailure: current "
                 "allocation offset upper bound (%lld words) exceeds the "
                 "legitimate user allocatable offset upper bound (%lld words) "
                 "in memory space %s when allocating %lld words: ",
                 (long long)(end - 1), (long long)(limit - 1), memory,
                 (long long)words);
  put_type(&b, r->dtype, r->shape);
  if (r->space == AT_MSPACE_VMEM)
    at_strbuf_addf(&b, ", one for each of %d subcores", SUBCORES);
  return finish(j, &b, AT_RESOURCE_EXHAUSTED);
}

// What the body takes as it goes: the compiler gives each that is `used` its
// own place, even where one is given back before the next is taken.
static at_status check_taken(at_mosaic_judge *j, const at_map *used,
                             const at_mblock *b, int64_t *end) {
  int64_t limit = j->chip->spmem_words / SUBCORES;
  for (uint32_t i = 0; i < b->num_ops; i++) {
    const at_mop *op = b->ops[i];
    at_mosaic_ref r;
    if (at_mosaic_opcode_of(op) == AT_MOSAIC_MEMREF_ALLOCA &&
        at_map_find_ptr(used, &op->results[0])) {
      AT_TRY(at_mosaic_ref_of(op->results[0].type, &r));
      int64_t words =
          r.semaphore || r.space != AT_MSPACE_VMEM ? 0 : sparse_words(j, &r);
      if (words > 0) add(end, words);
      if (*end > limit)
        return sparse_oom(j, &r, *end, limit, words, "tile_spmem");
    }
    for (uint32_t k = 0; k < op->num_regions; k++) {
      if (!at_mosaic_region_runs(op, k)) continue;
      for (uint32_t n = 0; n < op->regions[k]->num_blocks; n++)
        AT_TRY(check_taken(j, used, op->regions[k]->blocks[n], end));
    }
  }
  return AT_OK;
}

// Memory of the subcores is a part of what they share: scratch of all of them
// stands one after the other.
static at_status check_sparse(at_mosaic_judge *j) {
  enum { SHARED = 128 };  // words that shared memory comes in
  int64_t limit = j->chip->spmem_words, end = 0, own = 0;
  uint32_t first = at_mosaic_arg_scratch(j->p);
  at_map used = at_map_in(j->scratch);
  if (limit) AT_TRY(note_used(&used, j->p->body));
  for (uint32_t i = 0; limit && i < j->p->num_scratch; i++) {
    const at_mosaic_ref *r = &j->p->scratch[i];
    bool shared = r->space == AT_MSPACE_VMEM_SHARED;
    if (r->semaphore || (r->space != AT_MSPACE_VMEM && !shared) ||
        !at_map_find_ptr(&used, &j->p->body->args[first + i]))
      continue;
    int64_t words = sparse_words(j, r);
    if (words < 0) continue;
    if (!shared) add(&own, words);
    words = shared ? at_ceil_div(words, SHARED) * SHARED : words * SUBCORES;
    add(&end, words);
    if (end > limit) return sparse_oom(j, r, end, limit, words, "spmem");
  }
  return limit ? check_taken(j, &used, j->p->body, &own) : AT_OK;
}

// ---- Scratch on the stack
// Beside the windows the scoped limit holds scratch and what the body takes.
// Not what nobody reads, nor what the compiler forwards from stores to loads:
// places that are constants, stored before in the same straight run.
enum { STORES_KEPT = 64, PLACE_RANK = 8 };
typedef struct place {
  uint32_t rank;
  int64_t start[PLACE_RANK], size[PLACE_RANK];
} place;

// Memory as its block goes by: `apart` with something of regions in between.
typedef struct life {
  const at_mvalue *memory;
  bool begun, apart, kept;
  uint32_t num_stores;
  place stores[STORES_KEPT];
} life;

static bool is_load(const at_mop *op) {
  at_mosaic_opcode c = at_mosaic_opcode_of(op);
  return c == AT_MOSAIC_VECTOR_LOAD || c == AT_MOSAIC_TPU_VECTOR_LOAD;
}

// Stores whose memory is this ref.
static bool stores_to(const at_mop *op, const at_mvalue *memory) {
  at_mosaic_opcode c = at_mosaic_opcode_of(op);
  return (c == AT_MOSAIC_VECTOR_STORE || c == AT_MOSAIC_TPU_VECTOR_STORE) &&
         op->operands[1] == memory;
}

// Of a load or store by constants alone.
static bool place_of(const at_mop *op, uint32_t ref, place *out) {
  const at_mtype *t = ref ? at_mosaic_arg(op, 0) : at_mosaic_res(op, 0);
  out->rank = t->shape.rank;
  if (op->num_operands - ref - 1 != out->rank || out->rank > PLACE_RANK)
    return false;
  for (uint32_t i = 0; i < out->rank; i++) {
    out->size[i] = t->shape.ptr[i];
    if (!at_mosaic_value_const(op->operands[ref + 1 + i], &out->start[i]))
      return false;
  }
  return true;
}

// Does the store hold the load, at its tiles?
static bool holds(const place *store, const place *load) {
  if (store->rank != load->rank) return false;
  for (uint32_t i = 0; i < load->rank; i++) {
    int64_t tile = i + 1 == load->rank ? 128 : i + 2 == load->rank ? 8 : 1;
    int64_t skip = load->start[i] - store->start[i];
    if (skip < 0 || skip % tile || skip + load->size[i] > store->size[i])
      return false;
  }
  return true;
}

// A store at constant places is noted; a load is forwarded if one of those
// stores holds it.
static bool is_forwarded(life *l, const at_mop *op) {
  place p;
  if (stores_to(op, l->memory)) {
    bool fixed = place_of(op, 1, &p);
    if (fixed && l->num_stores < STORES_KEPT) l->stores[l->num_stores++] = p;
    return fixed;
  }
  if (!is_load(op) || !place_of(op, 0, &p)) return false;
  bool held = l->num_stores == STORES_KEPT;
  for (uint32_t i = 0; i < l->num_stores && !held; i++)
    held = holds(&l->stores[i], &p);
  return held;
}

// Sets `kept` at the first use that needs the memory itself.
static void follow(life *l, const at_mblock *b) {
  for (uint32_t i = 0; i < b->num_ops && !l->kept; i++) {
    const at_mop *op = b->ops[i];
    if (at_mosaic_opcode_of(op) == AT_MOSAIC_TPU_REGION) {
      for (uint32_t n = 0; n < op->regions[0]->num_blocks; n++)
        follow(l, op->regions[0]->blocks[n]);
      continue;
    }
    // Stores are forwarded along a straight run of operations only, not into
    // regions.
    l->kept |= uses_inside(op, l->memory);
    if (uses(op, l->memory)) {
      l->kept |= l->apart || !is_forwarded(l, op);
      l->begun = true;
    }
    l->apart |= l->begun && op->num_regions;
  }
}

// Does anything but stores use it?
static bool is_read(const at_mblock *b, const at_mvalue *v) {
  for (uint32_t i = 0; i < b->num_ops; i++) {
    const at_mop *op = b->ops[i];
    if (uses(op, v) && !stores_to(op, v)) return true;
    for (uint32_t k = 0; k < op->num_regions; k++)
      for (uint32_t n = 0; n < op->regions[k]->num_blocks; n++)
        if (is_read(op->regions[k]->blocks[n], v)) return true;
  }
  return false;
}

// v: memory of block b.
static bool is_kept(const at_mblock *b, const at_mvalue *v) {
  life l = {.memory = v};
  if (!is_read(b, v)) return false;
  follow(&l, b);
  return l.kept;
}

// Rows of words that are no multiple of eight lie one by one in what the body
// takes; in scratch they are padded.
static int64_t taken_bytes(at_mosaic_judge *j, const at_mosaic_ref *r) {
  uint32_t rank = r->shape.rank;
  bool words = r->dtype == AT_PRED || at_dtype_of(r->dtype)->bits == 32;
  if (!words || rank < 2 || r->shape.ptr[rank - 2] % 8 == 0)
    return at_mosaic_ref_bytes(j->chip, r, false);
  int64_t n = 128 * 4, lanes = r->shape.ptr[rank - 1];
  if (lanes > INT64_MAX - 127 || !mul(&n, at_ceil_div(lanes, 128))) return -1;
  for (uint32_t i = 0; i + 1 < rank; i++)
    if (!mul(&n, r->shape.ptr[i])) return -1;
  return n;
}

// The most that b takes at a time; *last: the operation that takes it.
static int64_t most_taken(at_mosaic_judge *j, const at_mblock *b,
                          const at_mop **last) {
  int64_t taken = 0, most = 0;
  for (uint32_t i = 0; i < b->num_ops; i++) {
    const at_mop *op = b->ops[i], *inside = NULL;
    at_mosaic_ref r;
    if (at_mosaic_opcode_of(op) == AT_MOSAIC_MEMREF_ALLOCA &&
        !at_code_take(at_mosaic_ref_of(op->results[0].type, &r)) &&
        !r.semaphore && r.space == AT_MSPACE_VMEM &&
        is_kept(b, &op->results[0])) {
      add(&taken, taken_bytes(j, &r));
      inside = op;
    }
    int64_t inner = 0;
    for (uint32_t k = 0; k < op->num_regions; k++)
      for (uint32_t n = 0; n < op->regions[k]->num_blocks; n++) {
        const at_mop *at = NULL;
        int64_t bytes = most_taken(j, op->regions[k]->blocks[n], &at);
        if (bytes > inner) inner = bytes, inside = at;
      }
    add(&inner, taken);
    if (inner > most) most = inner, *last = inside ? inside : *last;
  }
  return most;
}

// Scratch that is kept, and the most that scopes of the body take.
static int64_t on_stack(at_mosaic_judge *j, const at_mop **last) {
  int64_t bytes = most_taken(j, j->p->body, last);
  uint32_t first = at_mosaic_arg_scratch(j->p);
  for (uint32_t i = 0; i < j->p->num_scratch; i++) {
    const at_mosaic_ref *r = &j->p->scratch[i];
    if (!r->semaphore && r->space == AT_MSPACE_VMEM &&
        is_kept(j->p->body, &j->p->body->args[first + i]))
      add(&bytes, at_mosaic_ref_bytes(j->chip, r, false));
  }
  return bytes;
}

// The compiler's order: its own scratch, single allocations, SMEM, windows,
// then the scoped limit. The first that does not fit is refused.
at_status at_mosaic_rules_memory(at_mosaic_judge *j) {
  const at_mosaic_config *cfg = &j->k->config;
  if (j->p->core == AT_MCORE_SC_SCALAR) return AT_OK;
  if (j->p->core == AT_MCORE_SC_VECTOR) return check_sparse(j);
  if (cfg->internal_scratch_bytes &&
      cfg->internal_scratch_bytes < AT_MOSAIC_INTERNAL_SCRATCH)
    return at_mosaic_refuse(j, NULL, AT_INVALID_ARGUMENT,
                            "Requested internal scratch size %lld needs to be "
                            "at least %d bytes",
                            (long long)cfg->internal_scratch_bytes,
                            AT_MOSAIC_INTERNAL_SCRATCH);
  AT_TRY(check_scratch(j));
  AT_TRY(check_windows(j));
  // Each by itself fits: now all of them together.
  at_mosaic_memory m = at_mosaic_memory_of(j->p, j->chip);
  AT_TRY(check_smem(j, m.smem));
  // The kernel's own limit may be below or above the chip's default.
  int64_t scoped = cfg->vmem_limit_bytes >= 0 ? cfg->vmem_limit_bytes
                                              : j->chip->vmem_scoped_bytes;
  // Windows are no part of the stack: they are held against all of VMEM that is
  // usable.
  int64_t usable = j->chip->vmem_usable_bytes;
  if (m.windows > usable) return capacity_oom(j, m.windows, usable, "vmem");
  if (cfg->internal_scratch_bytes > usable)
    return capacity_oom(j, cfg->internal_scratch_bytes, usable, "vmem");
  const at_mop *last = NULL;
  int64_t stack = on_stack(j, &last);
  add(&stack, m.windows);
  return stack > scoped ? scoped_oom(j, stack, scoped, last) : AT_OK;
}

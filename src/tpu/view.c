// Bundles and registers of each source line, and the map of VMEM.
#include "tpu/view.h"

#include <math.h>
#include <stdlib.h>

#include "tpu/rules_internal.h"
#include "tpu/timing_internal.h"

enum {
  kStreamed = 4,      // registers on their way of a value taken as it is made
  kAllocation = 1024  // the compiler's allocations are multiples of these bytes
};

typedef struct value {
  uint32_t made, used;  // first and last operation, in order of the text
  uint32_t uses;
} value;

typedef struct spot {
  const at_mop *op;
  at_mosaic_line line;  // where it stands
  at_mosaic_units units;
} spot;

typedef struct viewer {
  at_arena *arena;
  const at_tpu_chip *chip;
  AT_VEC(spot) spots;  // operations in order of the text
  at_map values;       // at_mvalue * -> value *
  AT_VEC(const at_mvalue *) vectors;
} viewer;

// ---- Operations in order
// Notes where a vector is made; scalars hold no vector register.
static at_status see_value(viewer *v, const at_mvalue *x) {
  if (x->type->kind != AT_MTYPE_VECTOR) return AT_OK;
  void **at = at_map_put_ptr(&v->values, x);
  value *n = at_new(v->arena, value, 1);
  if (!at || !n || !at_vec_push(v->arena, &v->vectors, x))
    return AT_NO_MEMORY("values of a kernel");
  n->made = n->used = (uint32_t)v->spots.len;
  *at = n;
  return AT_OK;
}

// NULL: nothing is known of it.
static value *value_of(const viewer *v, const at_mvalue *x) {
  void **at = at_map_find_ptr(&v->values, x);
  return at ? *at : NULL;
}

// Uses of its operands, its results, and its time on the units.
static at_status see_op(viewer *v, const at_mop *op) {
  at_mosaic_place place = at_mosaic_place_of(op->loc);
  spot s = {.op = op, .line = {.file = place.file, .line = place.line}};
  at_ms_latency latency = {0};
  double flops = 0;
  for (uint32_t i = 0; i < op->num_operands; i++) {
    value *x = value_of(v, op->operands[i]);
    if (!x) continue;
    x->used = (uint32_t)v->spots.len;
    x->uses++;
  }
  for (uint32_t i = 0; i < op->num_results; i++)
    AT_TRY(see_value(v, &op->results[i]));
  AT_TRY(at_ms_units_add(op, v->chip, v->arena, &s.units, &latency, &flops));
  if (!at_vec_push(v->arena, &v->spots, s))
    return AT_NO_MEMORY("operations of a kernel");
  return AT_OK;
}

// What comes from outside of a loop is needed until its last turn ends.
static void keep_until_end(viewer *v, uint32_t first) {
  for (size_t i = 0; i < v->vectors.len; i++) {
    value *x = value_of(v, v->vectors.ptr[i]);
    if (x->made < first && x->used >= first)
      x->used = (uint32_t)v->spots.len - 1;
  }
}

// The order of the text is taken for the order of the schedule.
static at_status see_block(viewer *v, const at_mblock *b) {
  for (uint32_t i = 0; i < b->num_args; i++) AT_TRY(see_value(v, &b->args[i]));
  for (uint32_t i = 0; i < b->num_ops; i++) {
    const at_mop *op = b->ops[i];
    AT_TRY(see_op(v, op));
    uint32_t first = (uint32_t)v->spots.len;
    for (uint32_t r = 0; r < op->num_regions; r++)
      for (uint32_t k = 0; k < op->regions[r]->num_blocks; k++)
        AT_TRY(see_block(v, op->regions[r]->blocks[k]));
    at_mosaic_opcode code = at_mosaic_opcode_of(op);
    if (code == AT_MOSAIC_SCF_FOR || code == AT_MOSAIC_SCF_WHILE)
      keep_until_end(v, first);
  }
  return AT_OK;
}

// ---- Registers
static at_mosaic_cost cost_of(const at_mop *op) {
  return at_mosaic_op_info_of(at_mosaic_opcode_of(op))->cost;
}

// Does the operation need all of its operands before it makes anything?
static bool is_barrier(const at_mop *op) {
  at_mosaic_cost c = cost_of(op);
  return c == AT_MOSAIC_COST_XLU || c == AT_MOSAIC_COST_REDUCE ||
         c == AT_MOSAIC_COST_MXU;
}

// What a value holds while it is alive. Loads and constants are repeated where
// they are needed again. `barriers`: before each operation.
static double held(const at_mvalue *x, const value *n,
                   const uint32_t *barriers) {
  double all = at_ms_registers(x->type);
  const at_mop *from = x->op;
  if (!n->uses || at_mosaic_bits(x->type) == 1) return 0;  // masks
  if (from && cost_of(from) == AT_MOSAIC_COST_NONE) return fmin(all, 1);
  bool again = from && cost_of(from) == AT_MOSAIC_COST_MEMORY;
  bool streams = from && barriers[n->used] == barriers[n->made + 1];
  return again || streams ? fmin(all, kStreamed) : all;
}

// A running sum of what values hold between their first and last operation.
static at_status count_registers(viewer *v) {
  double *change, alive = 0;
  uint32_t *barriers;
  size_t len = v->spots.len;
  AT_TRY_ALLOC(change, at_new(v->arena, double, len + 2));
  AT_TRY_ALLOC(barriers, at_new(v->arena, uint32_t, len + 2));
  for (size_t i = 0; i < len; i++)
    barriers[i + 1] = barriers[i] + is_barrier(v->spots.ptr[i].op);
  for (size_t i = 0; i < v->vectors.len; i++) {
    const at_mvalue *x = v->vectors.ptr[i];
    const value *n = value_of(v, x);
    AT_ASSERT(n->made <= n->used && n->used <= len);
    double registers = held(x, n, barriers);
    change[n->made] += registers;
    change[n->used + 1] -= registers;
  }
  for (size_t i = 0; i < len; i++) {
    at_mosaic_line *line = &v->spots.ptr[i].line;
    alive += change[i];
    line->registers = alive;
    line->spills = fmax(0, alive - AT_MOSAIC_REGISTERS);
  }
  return AT_OK;
}

// ---- Lines
static int by_place(const void *a, const void *b) {
  const at_mosaic_line *x = &((const spot *)a)->line;
  const at_mosaic_line *y = &((const spot *)b)->line;
  int files = strcmp(x->file, y->file);
  return files ? files : x->line < y->line ? -1 : x->line > y->line;
}

// Cycles of the unit that has most to do.
static double busiest(const at_mosaic_units *u) {
  const double *x = &u->scalar;
  double most = 0;
  for (size_t i = 0; i < sizeof *u / sizeof *x; i++) most = fmax(most, x[i]);
  return most;
}

// Operations of one line together: bundles are those of the busiest unit.
static at_status gather(viewer *v, at_mosaic_view *out) {
  at_mosaic_line *lines;
  uint32_t n = 0;
  size_t len = v->spots.len;
  AT_TRY_ALLOC(lines, at_new(v->arena, at_mosaic_line, len + 1));
  if (len) qsort(v->spots.ptr, len, sizeof *v->spots.ptr, by_place);
  for (size_t i = 0, end; i < len; i = end) {
    at_mosaic_units units = {0};
    at_mosaic_line line = v->spots.ptr[i].line;
    // Sorted: operations of one line stand together.
    for (end = i; end < len && !by_place(&v->spots.ptr[i], &v->spots.ptr[end]);
         end++) {
      const spot *s = &v->spots.ptr[end];
      at_ms_units_sum(&units, &s->units);
      line.registers = fmax(line.registers, s->line.registers);
      line.spills = fmax(line.spills, s->line.spills);
    }
    line.bundles = ceil(busiest(&units));
    out->bundles += line.bundles;
    out->registers = fmax(out->registers, line.registers);
    if (line.bundles > 0) lines[n++] = line;
  }
  out->lines = lines;
  out->num_lines = n;
  return AT_OK;
}

// ---- VMEM
// Behind the last region, rounded up to an allocation. Sizes and addresses that
// no memory has stay at kMostBytes.
static void put_region(at_mosaic_region *r, uint32_t *n, const char *what,
                       uint32_t index, int64_t bytes, uint32_t buffers) {
  const int64_t kMostBytes = INT64_MAX / 4 / kAllocation * kAllocation;
  int64_t address = *n ? r[*n - 1].address + r[*n - 1].bytes : 0, all;
  if (bytes <= 0) return;
  bool fits = !__builtin_mul_overflow(bytes, (int64_t)buffers, &all);
  bytes = at_ceil_div(AT_MIN(fits ? all : kMostBytes, kMostBytes),
                      (int64_t)kAllocation) *
          kAllocation;
  address = AT_MIN(address, kMostBytes);
  r[(*n)++] = (at_mosaic_region){what, index, address, bytes, buffers};
}

// In the compiler's order: its own scratch, the kernel's, windows.
static at_status map_memory(const at_mosaic_kernel *k,
                            const at_mosaic_program *p,
                            const at_mosaic_chip *chip, at_arena *a,
                            at_mosaic_view *out) {
  at_mosaic_region *r;
  uint32_t n = 0, inputs = 0, outputs = 0;
  AT_TRY_ALLOC(
      r, at_new(a, at_mosaic_region, p->num_windows + p->num_scratch + 1));
  int64_t own = k->config.internal_scratch_bytes;
  put_region(r, &n, "compiler", 0, own ? own : AT_MOSAIC_INTERNAL_SCRATCH, 1);
  for (uint32_t i = 0; i < p->num_scratch; i++)
    if (p->scratch[i].space == AT_MSPACE_VMEM && !p->scratch[i].semaphore)
      put_region(r, &n, "scratch", i,
                 at_mosaic_ref_bytes(chip, &p->scratch[i], false), 1);
  for (uint32_t i = 0; i < p->num_windows; i++) {
    const at_mosaic_window *w = &p->windows[i];
    uint32_t index = w->is_output ? outputs++ : inputs++;
    if (w->ref.space != AT_MSPACE_VMEM || w->color == AT_MCOLOR_VMEM) continue;
    put_region(r, &n, w->is_output ? "output" : "input", index,
               at_mosaic_ref_bytes(chip, &w->ref, true),
               at_mosaic_buffers_of(w));
  }
  out->regions = r;
  out->num_regions = n;
  return AT_OK;
}

// Spots are sorted by line at the end, so registers are counted before.
at_status at_mosaic_view_of(const at_mosaic_kernel *k, uint32_t program,
                            const at_machine *machine, at_arena *a,
                            at_mosaic_view *out) {
  at_tpu_chip chip;
  *out = (at_mosaic_view){0};
  AT_TRY(at_ms_units_load());
  AT_TRY(at_tpu_chip_of(machine, &chip));
  const at_mosaic_chip *rules = at_mosaic_chip_find(at_str_of(machine->name));
  if (!rules)
    return AT_FAIL(AT_FAILED_PRECONDITION, "no rules for kernels on %s",
                   machine->name);
  const at_mosaic_program *p = &k->programs[program];
  viewer v = {.arena = a, .chip = &chip, .values = at_map_in(a)};
  AT_TRY(see_block(&v, p->body));
  AT_TRY(count_registers(&v));
  AT_TRY(gather(&v, out));
  return map_memory(k, p, rules, a, out);
}

// ---- Text
// Lines in order of file and line.
void at_mosaic_view_text(const at_mosaic_view *v, at_strbuf *b) {
  at_strbuf_addf(b,
                 "  lines       %.0f bundles, at most %.0f of %d registers\n"
                 "      bundles  registers  spills\n",
                 v->bundles, v->registers, AT_MOSAIC_REGISTERS);
  for (uint32_t i = 0; i < v->num_lines; i++) {
    const at_mosaic_line *l = &v->lines[i];
    at_strbuf_addf(b, "    %9.0f  %9.0f  %6.0f  %s:%u\n", l->bundles,
                   l->registers, l->spills, *l->file ? l->file : "?", l->line);
  }
  at_strbuf_addz(b, "  VMEM by address\n");
  for (uint32_t i = 0; i < v->num_regions; i++) {
    const at_mosaic_region *r = &v->regions[i];
    at_strbuf_addf(b, "    0x%07llx  %10lld bytes  %s",
                   (unsigned long long)r->address, (long long)r->bytes,
                   r->what);
    if (strcmp(r->what, "compiler") != 0) at_strbuf_addf(b, " %u", r->index);
    if (r->buffers > 1) at_strbuf_addf(b, ", %u buffers", r->buffers);
    at_strbuf_addc(b, '\n');
  }
}

// Fractions are cut off.
void at_mosaic_view_json(const at_mosaic_view *v, at_json_writer *w) {
  at_json_key(w, AT_STR("lines"));
  at_json_begin_array(w);
  for (uint32_t i = 0; i < v->num_lines; i++) {
    const at_mosaic_line *l = &v->lines[i];
    at_json_begin_object(w);
    at_json_put_str(w, "file", at_str_of(l->file));
    at_json_put_uint(w, "line", (uint64_t)l->line);
    at_json_put_uint(w, "bundles", (uint64_t)l->bundles);
    at_json_put_uint(w, "registers", (uint64_t)l->registers);
    at_json_put_uint(w, "spills", (uint64_t)l->spills);
    at_json_end_object(w);
  }
  at_json_end_array(w);
  at_json_key(w, AT_STR("vmem"));
  at_json_begin_array(w);
  for (uint32_t i = 0; i < v->num_regions; i++) {
    const at_mosaic_region *r = &v->regions[i];
    at_json_begin_object(w);
    at_json_put_str(w, "what", at_str_of(r->what));
    at_json_put_uint(w, "index", (uint64_t)r->index);
    at_json_put_uint(w, "address", (uint64_t)r->address);
    at_json_put_uint(w, "bytes", (uint64_t)r->bytes);
    at_json_put_uint(w, "buffers", (uint64_t)r->buffers);
    at_json_end_object(w);
  }
  at_json_end_array(w);
}

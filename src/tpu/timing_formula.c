// Cycles of a kernel as a function of the bounds of its grid that come as
// operands: the timing of some grids, and the sum of terms that goes through
// them.
#include <math.h>

#include "tpu/timing.h"

// Bounds that grids are timed for, by how many there are: so many steps that
// the pipeline is full, and few enough to walk.
static const int64_t few_steps[AT_MOSAIC_FREE + 1] = {0, 16, 8, 4};

typedef struct fit {
  const at_mosaic_kernel *k;
  uint32_t program;
  const at_machine *machine;
  at_arena *arena;
  at_mosaic_given given;
  int64_t *bounds;  // of all dynamic dimensions
  uint32_t operand[AT_MOSAIC_FREE];
} fit;

// times[i]: how many times the fewest steps of free bound i.
static at_status cycles_at(fit *f, uint32_t free, const int64_t *times,
                           double *out) {
  for (uint32_t i = 0; i < free; i++)
    f->bounds[f->operand[i]] = times[i] * few_steps[free];
  at_mosaic_timing *t;
  AT_TRY(at_mosaic_timing_of(f->k, f->program, f->machine, &f->given, f->arena,
                             &t));
  *out = t->cycles;
  return AT_OK;
}

// The sum where every free bound is `each`.
static double sum_at(const at_mosaic_formula *f, double each) {
  double sum = 0;
  for (uint32_t s = 0; s < 1u << f->num_bounds; s++) {
    double term = f->factor[s];
    for (uint32_t i = 0; i < f->num_bounds; i++)
      if (s >> i & 1) term *= each;
    sum += term;
  }
  return sum;
}

// Free bounds in order of the grid's dimensions; the known ones are filled in.
static at_status find_free(fit *f, at_mosaic_formula *out) {
  const at_mosaic_program *p = &f->k->programs[f->program];
  AT_TRY_ALLOC(f->bounds, at_new(f->arena, int64_t, p->num_dynamic + 1));
  for (uint32_t d = 0; d < p->grid_rank; d++) {
    const at_mosaic_axis *x = &p->grid[d];
    if (!x->dynamic) {
      out->other_steps *= (double)x->bound;
      continue;
    }
    bool known =
        x->operand < f->given.num_bounds && f->given.bounds[x->operand] >= 0;
    f->bounds[x->operand] = known ? f->given.bounds[x->operand] : 0;
    if (known) {
      out->other_steps *= (double)f->bounds[x->operand];
      continue;
    }
    if (out->num_bounds == AT_MOSAIC_FREE)
      return AT_FAIL(AT_UNIMPLEMENTED,
                     "kernel %s: more than %d bounds of its grid are known at "
                     "run time",
                     f->k->name, AT_MOSAIC_FREE);
    out->dim[out->num_bounds] = d;
    f->operand[out->num_bounds++] = x->operand;
  }
  f->given.bounds = f->bounds;
  f->given.num_bounds = p->num_dynamic;
  return AT_OK;
}

// Times 2^n grids at `low` and twice that along each free bound, solves for the
// terms, and compares with a grid three times as long.
at_status at_mosaic_formula_of(const at_mosaic_kernel *k, uint32_t program,
                               const at_machine *machine,
                               const at_mosaic_given *given, at_arena *a,
                               at_mosaic_formula *out) {
  fit f = {.k = k, .program = program, .machine = machine, .arena = a};
  at_mosaic_formula r = {.kernel = k->name, .other_steps = 1};
  at_tpu_chip chip;
  AT_TRY(at_tpu_chip_of(machine, &chip));
  r.target = machine->name;
  r.clock = chip.clock;
  if (given) f.given = *given;
  AT_TRY(find_free(&f, &r));
  uint32_t n = r.num_bounds;
  double low = (double)few_steps[n];
  for (uint32_t s = 0; s < 1u << n; s++) {
    int64_t times[AT_MOSAIC_FREE];
    for (uint32_t i = 0; i < n; i++) times[i] = 1 + (s >> i & 1);
    AT_TRY(cycles_at(&f, n, times, &r.factor[s]));
  }
  // One bound after the other: values at `low` and twice that become a constant
  // and a slope.
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t s = 0; s < 1u << n; s++) {
      if (s >> i & 1) continue;
      double first = r.factor[s];
      double slope = (r.factor[s | 1u << i] - first) / low;
      r.factor[s] = first - slope * low;
      r.factor[s | 1u << i] = slope;
    }
  double seen = 0;
  int64_t thrice[AT_MOSAIC_FREE] = {3, 3, 3};
  if (n) AT_TRY(cycles_at(&f, n, thrice, &seen));
  if (seen > 0) r.error = fabs(sum_at(&r, 3 * low) - seen) / seen;
  *out = r;
  return AT_OK;
}

// Terms below 0.05 cycles are left out.
void at_mosaic_formula_sum(const at_mosaic_formula *f, at_strbuf *out) {
  at_strbuf_addf(out, "%.0f", f->factor[0]);
  for (uint32_t s = 1; s < 1u << f->num_bounds; s++) {
    if (fabs(f->factor[s]) < 0.05) continue;
    at_strbuf_addf(out, f->factor[s] < 0 ? " - %.6g" : " + %.6g",
                   fabs(f->factor[s]));
    for (uint32_t i = 0; i < f->num_bounds; i++)
      if (s >> i & 1) at_strbuf_addf(out, " n%u", f->dim[i]);
  }
}

// Cycles per step are the factor of the highest term.
void at_mosaic_formula_text(const at_mosaic_formula *f, at_strbuf *b) {
  double step = f->factor[(1u << f->num_bounds) - 1] /
                (f->other_steps > 0 ? f->other_steps : 1);
  at_strbuf_addf(b,
                 "kernel %s on %s: how many steps it has is known at run "
                 "time\n  cycles      ",
                 f->kernel, f->target);
  at_mosaic_formula_sum(f, b);
  at_strbuf_addf(b,
                 " at %.0f MHz, where n0 is the bound of dimension 0 of the "
                 "grid; within %.1f%%\n  a step      %.0f cycles, %.3f us\n  "
                 "hint: --bounds=",
                 f->clock / 1e6, ceil(f->error * 1000) / 10, step,
                 step / f->clock * 1e6);
  for (uint32_t i = 0; i < f->num_bounds; i++)
    at_strbuf_addf(b, "%sN", i ? "," : "");
  at_strbuf_addz(b, " times a grid of that size, --trace draws it\n");
}

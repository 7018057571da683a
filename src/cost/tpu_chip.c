#include <math.h>

#include "cost/tpu.h"

static at_status need(const at_machine *m, const char *name, double *out) {
  return at_machine_need(m, name, out);
}

at_status at_tpu_chip_of(const at_machine *m, at_tpu_chip *out) {
  if (strcmp(m->platform, "tpu"))
    return AT_FAIL(AT_FAILED_PRECONDITION, "%s is no TPU: its platform is %s",
                   m->name, m->platform);
  double cores, chip_cores, nominal, flops, arrays;
  at_tpu_chip c = {.machine = m};
  AT_TRY(at_tpu_model_load());
  AT_TRY(need(m, "cores_per_device", &cores));
  AT_TRY(need(m, "cores_per_chip", &chip_cores));
  AT_TRY(need(m, "hbm_bytes_per_second_per_chip", &nominal));
  AT_TRY(need(m, "bf16_flops_per_second_per_chip", &flops));
  AT_TRY(need(m, "mxu_columns", &c.array));
  AT_TRY(need(m, "vmem_bytes_per_core", &c.vmem_bytes));
  AT_TRY(need(m, "mxus_per_core", &arrays));
  double share = AT_MIN(1, cores / chip_cores);  // of the chip that a device is
  double per_cycle = 2 * c.array * c.array;      // FLOP of one array
  // Where nobody published a clock, the one at which the arrays reach the peak.
  c.clock = at_machine_number(m, "clock_hz", 0);
  if (c.clock <= 0) c.clock = flops / (per_cycle * arrays * chip_cores);
  c.cores = cores;
  c.hbm_rate =
      share / c.clock *
      at_machine_number(m, "hbm_achieved_bytes_per_second_per_chip", nominal);
  c.arrays = share * flops / (c.clock * per_cycle);
  c.byte_speed = fmax(
      1, at_machine_number(m, "int8_ops_per_second_per_chip", flops) / flops);
  c.direct_vmem = at_machine_number(m, "direct_vmem", 0) != 0;
  *out = c;
  return AT_OK;
}

enum { kLanes = 128, kSublanes = 8 };

// n in blocks of `of`, rounded up.
static double blocks(int64_t n, int64_t of) {
  return n <= 0 ? 0 : (double)((n - 1) / of + 1);
}

double at_tpu_tiles(at_dims d) {
  if (!d.rank) return 0;
  if (d.rank == 1) return blocks(d.ptr[0], kLanes * kSublanes);
  double lead = 1;
  for (uint32_t i = 0; i + 2 < d.rank; i++) lead *= (double)AT_MAX(d.ptr[i], 0);
  int64_t a = d.ptr[d.rank - 2], b = d.ptr[d.rank - 1];
  return lead * fmin(blocks(a, kSublanes) * blocks(b, kLanes),
                     blocks(b, kSublanes) * blocks(a, kLanes));
}

// Tiles along the sublanes: short dimensions take half, a quarter or an eighth
// of one.
static double sublane_blocks(int64_t n) {
  if (n > 4 || n <= 0) return blocks(n, kSublanes);
  return n > 2 ? .5 : (double)n / kSublanes;
}

// Tries all pairs of dimensions.
double at_tpu_compact_layout(at_dims d, uint32_t *lanes, uint32_t *sublanes) {
  uint32_t best = d.rank ? d.rank - 1 : 0, next = d.rank > 1 ? d.rank - 2 : 0;
  double least = at_tpu_tiles(d);
  if (d.rank >= 2) {
    least = INFINITY;
    for (uint32_t l = d.rank; l-- > 0;)
      for (uint32_t s = d.rank; s-- > 0;) {
        if (s == l) continue;
        double n = blocks(d.ptr[l], kLanes) * sublane_blocks(d.ptr[s]);
        for (uint32_t i = 0; i < d.rank; i++)
          if (i != l && i != s) n *= (double)AT_MAX(d.ptr[i], 0);
        if (n < least) least = n, best = l, next = s;
      }
  }
  *lanes = best;
  *sublanes = next;
  return least;
}

double at_tpu_compact_tiles(at_dims d, uint32_t *lanes) {
  uint32_t along, across;
  double tiles = at_tpu_compact_layout(d, &along, &across);
  if (lanes) *lanes = along;
  return tiles;
}

double at_tpu_tile_bytes(at_dtype t) {
  return (double)at_dtype_of(t)->bits / 8 * kLanes * kSublanes;
}

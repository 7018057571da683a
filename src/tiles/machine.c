#include <string.h>

#include "tiles/tiles.h"

// A figure of the description as an integer of at least 1. FAILED_PRECONDITION:
// it is missing or out of range.
static at_status whole(const at_machine *m, const char *name, int64_t *out) {
  double v;
  AT_TRY(at_machine_need(m, name, &v));
  if (v < 1 || v > 1e15)
    return AT_FAIL(AT_FAILED_PRECONDITION,
                   "machine %s: \"%s\" is %g\nhint: a number from 1", m->name,
                   name, v);
  *out = (int64_t)v;
  return AT_OK;
}

// The last checks bound what is allocated per tile.
at_status at_tiles_machine_read(const at_machine *m, at_tiles_machine *out) {
  if (strcmp(m->platform, "ipu"))
    return AT_FAIL(AT_FAILED_PRECONDITION,
                   "machine %s is a %s, not a machine of tiles\nhint: mk2",
                   m->name, m->platform);
  at_tiles_machine t = {.name = m->name};
  const struct {
    const char *name;
    int64_t *to;
  } rows[] = {
      {"tiles", &t.tiles},
      {"sram_bytes_per_tile", &t.bytes_per_tile},
      {"interleaved_bytes_per_tile", &t.interleaved_bytes},
      {"worker_threads_per_tile", &t.workers},
      {"vector_bytes", &t.vector_bytes},
      {"exchange_bytes_per_cycle_per_tile", &t.exchange_bytes},
      {"copy_bytes_per_cycle_per_tile", &t.copy_bytes},
      {"copy_interleaved_bytes_per_cycle_per_tile", &t.copy_interleaved_bytes},
      {"copy_call_cycles", &t.copy_call},
      {"sync_cycles", &t.sync},
      {"sync_delay_cycles", &t.sync_delay},
      {"supervisor_cycles", &t.supervisor}};
  for (size_t i = 0; i < AT_LEN(rows); i++)
    AT_TRY(whole(m, rows[i].name, rows[i].to));
  if (t.tiles > 1 << 20 || t.workers > 256)
    return AT_FAIL(AT_FAILED_PRECONDITION,
                   "machine %s: %lld tiles of %lld workers are too many",
                   m->name, (long long)t.tiles, (long long)t.workers);
  if (t.interleaved_bytes > t.bytes_per_tile)
    return AT_FAIL(AT_FAILED_PRECONDITION,
                   "machine %s: %lld bytes of a tile's %lld are interleaved",
                   m->name, (long long)t.interleaved_bytes,
                   (long long)t.bytes_per_tile);
  AT_TRY(at_machine_need(m, "clock_hz", &t.clock_hz));
  AT_TRY(at_machine_need(m, "f32_flops_per_second_per_chip", &t.f32_macs));
  AT_TRY(at_machine_need(m, "f16_flops_per_second_per_chip", &t.f16_macs));
  // Descriptions give flops of the chip; plans count multiply-adds of a tile
  // and cycle.
  t.f32_macs /= 2 * t.clock_hz * (double)t.tiles;
  t.f16_macs /= 2 * t.clock_hz * (double)t.tiles;
  *out = t;
  return AT_OK;
}

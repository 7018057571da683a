#include "device/device.h"

#include "base/once.h"
#include "machine/topology.h"

enum { kMaxChips = 32 };

static at_once g_once = AT_ONCE_INIT;
static at_hw g_chips[kMaxChips];
static const at_machine *g_machines[kMaxChips];
static size_t g_count;

// 0 where the machine file has none.
static uint64_t figure(const at_machine *m, const char *name) {
  return (uint64_t)at_machine_number(m, name, 0);
}

// Sizes are per device as JAX counts devices: a chip of two cores that are two
// devices halves its HBM.
static void read_chip(const at_machine *m, at_hw *hw) {
  uint32_t cores = (uint32_t)figure(m, "cores_per_chip");
  uint32_t per_device = (uint32_t)figure(m, "cores_per_device");
  uint32_t devices = per_device && cores > per_device ? cores / per_device : 1;
  uint64_t reserved = figure(m, "hbm_reserved_bytes_per_chip") / devices;
  // Strings of the tree end in NUL: the reader allocates one byte more, zeroed.
  at_figure kind;
  at_machine_figure(m, "device_kind", &kind);
  *hw = (at_hw){
      .name = m->name,
      .kind = kind.text.len ? kind.text.ptr : "TPU",
      .generation = (uint32_t)figure(m, "generation"),
      .cores_per_chip = cores,
      .cores_per_device = per_device ? per_device : 1,
      .topology_dims = (uint32_t)figure(m, "topology_dims"),
      .hbm_bytes = figure(m, "hbm_bytes_per_chip") / devices - reserved,
      .hbm_reserved_bytes = reserved,
      .vmem_bytes = figure(m, "vmem_bytes_per_core"),
      .smem_bytes = figure(m, "smem_bytes_per_core"),
      .sublane_rows_16bit = (uint32_t)figure(m, "sublane_rows_16bit"),
  };
}

// A machine of tiles shows JAX its memory as a whole; arrays lie there dense.
static void read_tiles(const at_machine *m, at_hw *hw) {
  *hw = (at_hw){
      .name = m->name,
      .kind = m->name,
      .cores_per_chip = 1,
      .cores_per_device = 1,
      .topology_dims = 2,
      .hbm_bytes = figure(m, "tiles") * figure(m, "sram_bytes_per_tile"),
      .dense = true};
}

// Only what JAX can be shown as a TPU, and machines of tiles; other machines
// are for estimates. Once per process, by at_once_do.
static at_status load(void) {
  AT_TRY(at_machines_load());
  for (size_t i = 0; i < at_machine_count() && g_count < kMaxChips; i++) {
    const at_machine *m = at_machine_at(i);
    bool tiles = !strcmp(m->platform, "ipu");
    if (!tiles && strcmp(m->platform, "tpu") != 0) continue;
    g_machines[g_count] = m;
    (tiles ? read_tiles : read_chip)(m, &g_chips[g_count++]);
  }
  return AT_OK;
}

// Aliases count, as machine files list them. The list of known chips goes into
// the message.
at_status at_hw_find(at_str name, const at_hw **out) {
  AT_TRY(at_once_do(&g_once, load));
  at_strbuf known = {0};
  for (size_t i = 0; i < g_count; i++) {
    if (at_machine_answers_to(g_machines[i], name)) {
      at_strbuf_free(&known);
      *out = &g_chips[i];
      return AT_OK;
    }
    at_strbuf_addf(&known, "%s%s", i ? ", " : "", g_chips[i].name);
  }
  at_status s = AT_FAIL(
      AT_INVALID_ARGUMENT, "no such chip: \"%.*s\"\nhint: one of %s",
      (int)AT_MIN(name.len, (size_t)64), name.ptr, at_strbuf_str(&known).ptr);
  at_strbuf_free(&known);
  return s;
}

// ---- Topologies
// "v5e:2x2" or "2*v5e:2x2": a machine, its shape and slices. Devices saturate
// at UINT32_MAX.
static at_status parse_part(at_str text, at_topology_part *out) {
  at_topology_text said;
  const at_machine *m;
  at_topology_part p = {0};
  AT_TRY(at_topology_split(text, &said));
  AT_TRY(at_status_prefix(at_hw_find(said.machine, &p.hw), "target \"%.*s\"",
                          (int)AT_MIN(text.len, (size_t)64), text.ptr));
  AT_TRY(at_machine_find(said.machine, &m));
  AT_TRY(at_topology_settle(text, m, &said));
  p.slices = said.slices;
  memcpy(p.shape, said.shape, sizeof p.shape);
  uint64_t devices = (uint64_t)p.slices;
  for (int i = 0; i < 3; i++) devices = at_mul(devices, (size_t)p.shape[i]);
  devices = at_mul(devices, p.hw->cores_per_chip / p.hw->cores_per_device);
  p.num_devices = (uint32_t)AT_MIN(devices, (uint64_t)UINT32_MAX);
  *out = p;
  return AT_OK;
}

// Borrowed from text.
at_str at_topology_part_text(const char *text, uint32_t part) {
  for (; part; part--) text += strcspn(text, ",") + 1;
  return (at_str){text, strcspn(text, ",")};
}

// Parts are numbered on: devices and slices of one follow those of the part
// before.
at_status at_topology_parse(const char *text, at_topology *out) {
  at_topology t = {.num_parts = 1};
  uint64_t devices = 0;
  for (const char *p = text; *p; p++) t.num_parts += *p == ',';
  if (t.num_parts > AT_TOPOLOGY_PARTS)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "target \"%.64s\" has more than %d parts", text,
                   AT_TOPOLOGY_PARTS);
  uint32_t slices = 0;
  for (uint32_t i = 0; i < t.num_parts; i++) {
    at_topology_part *p = &t.parts[i];
    AT_TRY(parse_part(at_topology_part_text(text, i), p));
    p->first = (uint32_t)devices;
    p->first_slice = slices;
    slices += p->slices;
    devices += p->num_devices;
    if (devices > AT_TOPOLOGY_MAX_DEVICES)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "target \"%.64s\" has more than %d devices\nhint: "
                     "programs run on so many at most; `atoll estimate` takes "
                     "larger ones",
                     text, AT_TOPOLOGY_MAX_DEVICES);
  }
  t.num_devices = (uint32_t)devices;
  *out = t;
  return AT_OK;
}

// Devices count core on chip first, then x, y, z, then the slice.
at_place at_topology_place(const at_topology *t, uint32_t device) {
  uint32_t part = t->num_parts - 1;
  while (part && device < t->parts[part].first) part--;
  const at_topology_part *in = &t->parts[part];
  uint32_t per_chip = in->hw->cores_per_chip / in->hw->cores_per_device;
  int64_t chip = (device - in->first) / per_chip;
  at_place p = {.hw = in->hw,
                .part = part,
                .core_on_chip = (device - in->first) % per_chip};
  for (int i = 0; i < 3; i++) {
    p.coords[i] = chip % in->shape[i];
    chip /= in->shape[i];
  }
  p.slice = in->first_slice + (uint32_t)chip;
  return p;
}

// The first device of the part that stands k/spares along: spares are spread
// over the parts.
uint32_t at_topology_spare(const at_topology *t, uint32_t spares, uint32_t k) {
  return t->parts[(uint64_t)k * t->num_parts / spares].first;
}

// ---- Padding
// n <= 2^63.
static uint64_t next_power_of_two(uint64_t n) {
  return n <= 1 ? 1 : 1ull << (64 - __builtin_clzll(n - 1));
}

static uint64_t clamp(uint64_t v, uint64_t low, uint64_t high) {
  return v < low ? low : v > high ? high : v;
}

static uint64_t round_to(uint64_t n, uint64_t tile) {
  return at_mul((n + tile - 1) / tile, tile);
}

// Elements after padding with these two dimensions last: 128 lanes, and rows to
// a tile no larger than needed.
static uint64_t tiled(at_dims dims, uint32_t minor, uint32_t second,
                      uint64_t packing, uint64_t most_rows) {
  uint64_t rows = (uint64_t)dims.ptr[second];
  uint64_t tile = clamp(next_power_of_two(rows), packing, most_rows);
  uint64_t n =
      at_mul(round_to((uint64_t)dims.ptr[minor], 128), round_to(rows, tile));
  for (uint32_t i = 0; i < dims.rank; i++)
    if (i != minor && i != second) n = at_mul(n, (size_t)dims.ptr[i]);
  return n;
}

// XLA chooses the layout that pads least, so the least of all pairs of minor
// dimensions is taken. 64-bit types are two arrays of 32 bits. UINT64_MAX: too
// large to count.
uint64_t at_hw_padded_bytes(const at_hw *hw, at_dtype t, at_dims dims) {
  uint32_t bits = at_dtype_of(t)->bits;
  if (bits == 0) return 0;
  if (hw->dense) {
    size_t bytes = at_dtype_bytes(t);
    for (uint32_t i = 0; i < dims.rank; i++)
      bytes = at_mul(bytes, (size_t)AT_MAX(dims.ptr[i], 0));
    return bytes == SIZE_MAX ? UINT64_MAX : bytes;
  }
  if (bits == 1 || bits == 6) bits = 8;
  uint32_t arrays = bits > 32 ? bits / 32 : 1;
  if (bits > 32) bits = 32;
  uint64_t packing = 32 / bits, lanes = 128;
  uint64_t most_rows = bits == 32   ? 8
                       : bits == 16 ? hw->sublane_rows_16bit
                                    : 8 * packing;
  for (uint32_t i = 0; i < dims.rank; i++)
    if (dims.ptr[i] <= 0) return 0;
  uint64_t elements;
  if (dims.rank < 2) {
    uint64_t n = dims.rank ? (uint64_t)dims.ptr[0] : 1;
    uint64_t least = lanes * packing;
    elements = round_to(
        n, clamp(next_power_of_two(n), least, AT_MAX(least, (uint64_t)1024)));
  } else {
    elements = UINT64_MAX;
    for (uint32_t minor = 0; minor < dims.rank; minor++)
      for (uint32_t second = 0; second < dims.rank; second++)
        if (minor != second)
          elements =
              AT_MIN(elements, tiled(dims, minor, second, packing, most_rows));
  }
  if (elements == SIZE_MAX) return UINT64_MAX;
  return at_mul(at_mul(elements / 8, bits), arrays);
}

// Decimal number in 1..4096; 0 when there is none.
static uint32_t take_number(const char **p) {
  uint32_t n = 0;
  for (; **p >= '0' && **p <= '9'; (*p)++)
    if (n <= 4096) n = n * 10 + (uint32_t)(**p - '0');
  return n > 4096 ? 0 : n;
}

// n of "{1,0:T(n)}", and the dimension that is first; 0: another layout.
static uint64_t single_tile(const char *layout, uint32_t *minor) {
  const char *p = layout + 1, *colon = strchr(layout, ':');
  if (*layout != '{' || !colon || strncmp(colon, ":T(", 3)) return 0;
  *minor = take_number(&p);
  p = colon + 3;
  uint64_t n = take_number(&p);
  return strcmp(p, ")}") ? 0 : n;
}

// A layout of one tile, as of SparseCore operands, pads its first dimension
// alone; any other layout counts as at_hw_padded_bytes says.
uint64_t at_hw_layout_bytes(const at_hw *hw, at_dtype t, at_dims dims,
                            const char *layout) {
  uint32_t minor = 0;
  uint64_t tile = single_tile(layout, &minor);
  size_t bytes = at_dtype_bytes(t);
  if (!tile || minor >= dims.rank || at_dtype_of(t)->bits < 8)
    return at_hw_padded_bytes(hw, t, dims);
  for (uint32_t i = 0; i < dims.rank; i++) {
    uint64_t n = (uint64_t)AT_MAX(dims.ptr[i], 0);
    bytes = at_mul(bytes, i == minor ? round_to(n, tile) : n);
  }
  return bytes == SIZE_MAX ? UINT64_MAX : bytes;
}

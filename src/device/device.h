// Which chip is imitated: target descriptions, topologies, and how much of the
// target's HBM an array takes. All pure functions of data/hw/*.json;
// thread-safe.
#ifndef ATOLL_DEVICE_DEVICE_H_
#define ATOLL_DEVICE_DEVICE_H_

#include "abi/dtype.h"
#include "base/span.h"
#include "base/status.h"

// One chip generation. Sizes in bytes. A "device" is what JAX lists: a whole
// chip, or one core of it where the cores are separate devices (7x).
typedef struct at_hw {
  const char *name;  // "v6e"
  const char *kind;  // device_kind, as JAX reports it: "TPU v6 lite"
  uint32_t generation, cores_per_chip, cores_per_device, topology_dims;
  uint64_t hbm_bytes;               // of one device: nominal less reserved
  uint64_t hbm_reserved_bytes;      // of one device
  uint64_t vmem_bytes, smem_bytes;  // of one core
  uint32_t sublane_rows_16bit;      // rows of a tile of 16-bit elements
  bool dense;  // arrays are not padded: a machine of tiles (IPU)
} at_hw;

// By name or device kind; *out is static. INVALID_ARGUMENT lists the known
// names.
at_status at_hw_find(at_str name, const at_hw **out);

// What a target means (machine/topology.h). A pod under one controller may have
// several, by commas ("v5e:2x4,v6e:2x4"): devices and slices of each follow
// those of the one before.

// Devices of one chip generation, numbered from `first`.
typedef struct at_topology_part {
  const at_hw *hw;
  uint32_t slices;
  int64_t shape[3];  // chips along x, y, z of one slice
  uint32_t first, num_devices, first_slice;
} at_topology_part;
enum { AT_TOPOLOGY_MAX_DEVICES = 4096, AT_TOPOLOGY_PARTS = 8 };
typedef struct at_topology {
  uint32_t num_devices;  // of all slices
  uint32_t num_parts;
  at_topology_part parts[AT_TOPOLOGY_PARTS];
} at_topology;
// INVALID_ARGUMENT quotes the text and say what there is.
at_status at_topology_parse(const char *text, at_topology *out);
// The text of one part; borrows the whole.
at_str at_topology_part_text(const char *text, uint32_t part);

// Where a device is: its part, slice, chip and core.
typedef struct at_place {
  const at_hw *hw;
  uint32_t part;
  uint32_t slice, core_on_chip;
  int64_t coords[3];
} at_place;
// Devices are numbered slice by slice, x fastest, cores of a chip next to each
// other.
at_place at_topology_place(const at_topology *t, uint32_t device);
// The k-th of so many spare devices of a client is like this one: each part has
// equally many.
uint32_t at_topology_spare(const at_topology *t, uint32_t spares, uint32_t k);

// Bytes that a dense array takes in the target's HBM. TPU arrays are stored in
// tiles:
//   rank >= 2: the minor dimension is padded to 128 lanes, the second minor to
//     the tile's rows: 8 for 32 bits, sublane_rows_16bit for 16, 32 for 8, 64
//     for 4. A second minor dimension that is smaller takes the next power of
//     two of rows, but whole 32-bit words (`packing` rows share one). Which
//     dimensions these are the compiler chooses so that the array is smallest:
//     f32[1000,1] lies as {0,1:T(1,128)}, in 4 KiB.
//   rank 1: to a tile of the next power of two of elements, between one row of
//     lanes (128 x packing) and 1,024.
//   rank 0: one row of lanes. No elements: 0 bytes.
// 64-bit elements are pairs of 32-bit arrays, 128-bit ones quadruples;
// predicates and 6-bit floats take a byte. UINT64_MAX: larger than any memory.
uint64_t at_hw_padded_bytes(const at_hw *hw, at_dtype t, at_dims dims);
// The same for an array whose program asked for a layout. With a single tile,
// as tables of SparseCores have it ("{1,0:T(8)}"), only the dimension named
// first is padded, to that; any other layout counts as none.
uint64_t at_hw_layout_bytes(const at_hw *hw, at_dtype t, at_dims dims,
                            const char *layout);

#endif

// Which chips of a pod a slice of virtual devices is put on. Pure functions.
#ifndef ATOLL_CONTROL_PLACE_H_
#define ATOLL_CONTROL_PLACE_H_

#include "control/message.h"
#include "device/device.h"

// One chip of the pod as placement sees it. coords and core: as the topology
// has them, within the island.
// What is known of a chip when a slice is placed.
typedef struct at_place_chip {
  uint32_t island, host;
  int64_t coords[3];
  uint32_t core;
  const at_hw *hw;
  bool live;      // its host is there
  double load;    // what is on it already
  uint64_t free;  // bytes of HBM that no slice keeps for itself
} at_place_chip;

// For devices in the order of the shape, x fastest. A slice lies on one island:
// as neighbours where it has as many chips as are wanted, else several on a
// chip. Of all places the one whose fullest chip is least loaded, then the
// least loaded one; `weight` is what one device adds. INVALID_ARGUMENT: no chip
// is such; UNAVAILABLE: its hosts are lost; RESOURCE_EXHAUSTED: no memory is
// left. They say what there is.
// out: [wish->count], indices into chips; written on success only.
at_status at_place_slice(const at_place_chip *chips, uint32_t num_chips,
                         const at_msg_slice *wish, double weight,
                         uint32_t *out);

#endif

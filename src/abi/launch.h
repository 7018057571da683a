// A launch as a message to a host: which program, on which of the host's
// devices, with which buffers. Flat and without pointers: a handle is a name
// that the host itself gave out (for a loaded program, for a buffer), so the
// message can come from a thread of the process or from another machine.
#ifndef ATOLL_ABI_LAUNCH_H_
#define ATOLL_ABI_LAUNCH_H_

#include <stdint.h>

// Checked by whoever receives one: counts against the program's, handles and
// devices against the host's own.
typedef struct at_launch_message {
  uint64_t bytes;    // of the message: this struct and what follows
  uint64_t program;  // handle
  int64_t launch_id;
  // Devices of the program; its device d runs on the host's devices[d].
  uint32_t num_devices, num_inputs, num_outputs, pad;
  // Then, by device of the program:
  //   uint64_t inputs[num_devices][num_inputs]    handles
  //   uint64_t outputs[num_devices][num_outputs]  handles, not defined yet
  //   uint32_t devices[num_devices]
  //   uint8_t donated[num_inputs]                 the caller gave it up
} at_launch_message;

// The parts behind the struct, in order: each begins where the one before ends.
static inline uint64_t *at_launch_inputs(at_launch_message *m) {
  return (uint64_t *)(m + 1);
}
static inline uint64_t *at_launch_outputs(at_launch_message *m) {
  return at_launch_inputs(m) + (uint64_t)m->num_devices * m->num_inputs;
}
static inline uint32_t *at_launch_devices(at_launch_message *m) {
  return (uint32_t *)(at_launch_outputs(m) +
                      (uint64_t)m->num_devices * m->num_outputs);
}
// 0 or 1 for each input, alike on all devices.
static inline uint8_t *at_launch_donated(at_launch_message *m) {
  return (uint8_t *)(at_launch_devices(m) + m->num_devices);
}
// All of it; written to `bytes`.
static inline uint64_t at_launch_message_bytes(uint32_t devices,
                                               uint32_t inputs,
                                               uint32_t outputs) {
  uint64_t n = sizeof(at_launch_message) +
               (uint64_t)devices * ((uint64_t)inputs + outputs) * 8 +
               (uint64_t)devices * 4 + inputs;
  return (n + 7) & ~7ull;
}

#endif

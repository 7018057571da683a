// The extension for transfers between processes, from its version 5 on: pypjrt
// describes no extension structs of its own for it. Later versions append
// fields.
#ifndef ATOLL_PJRT_CROSS_HOST_ABI_H_
#define ATOLL_PJRT_CROSS_HOST_ABI_H_

#include "pjrt/pjrt_abi.h"

// Every list has `num_buffers`, or `num_shapes`, entries. Clients name one
// device over and over in `ids`; how wide an entry is depends on their version.
// Arrays that go to another process. events[i] fires when array i has arrived
// there, or will not.
typedef struct at_pjrt_cross_host_send_args {
  size_t struct_size;
  PJRT_Extension_Base *extension_start;
  PJRT_Client *client;
  size_t num_buffers;
  PJRT_Buffer **buffers;
  const void *ids;      // of the device that receives
  const int64_t *keys;  // before version 5: one key, in the pointer's place
  PJRT_Event **events;  // out
} at_pjrt_cross_host_send_args;

// Arrays that come from another process: their shapes, and the device here that
// they come to. buffers[i] is defined when array i is there.
typedef struct at_pjrt_cross_host_receive_args {
  size_t struct_size;
  PJRT_Extension_Base *extension_start;
  PJRT_Client *client;
  size_t num_shapes;
  // Of each shape: its rank, dimensions and type; a layout may be NULL: the
  // default.
  size_t *num_dims;
  const int64_t **dims;
  PJRT_Buffer_Type *types;
  PJRT_Buffer_MemoryLayout **layouts;
  PJRT_Device *device;
  const void *ids;  // of the device that sends
  const int64_t *keys;
  PJRT_Buffer **buffers;  // out
} at_pjrt_cross_host_receive_args;

// The extension's own struct, as clients find it in the chain.
typedef struct at_pjrt_cross_host {
  PJRT_Extension_Base base;
  // The way by descriptors, which clients pass on themselves.
  PJRT_Error *(*make_receive_buffers)(void *args);
  PJRT_Error *(*copy_to_remote_device)(void *args);
  PJRT_Error *(*receive)(at_pjrt_cross_host_receive_args *args);
  PJRT_Error *(*send)(at_pjrt_cross_host_send_args *args);
} at_pjrt_cross_host;

#endif

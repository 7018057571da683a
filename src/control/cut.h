// How an array is cut into tiles over the devices of a mesh (at_msg_cut).
#ifndef ATOLL_CONTROL_CUT_H_
#define ATOLL_CONTROL_CUT_H_

#include "control/message.h"

// A view of a part of a message that has been checked.
typedef struct at_cut {
  const at_msg_cut *m;
  at_dims dims;
  const uint32_t *axes;
  const at_msg_use *used;
  const at_msg_chips *runs;
  at_str name;
  uint32_t num_shards;
  int64_t tiles[AT_MESSAGE_RANK];  // along each dimension
} at_cut;

// The part that begins a body; false: it is not one.
bool at_cut_read(at_bytes body, size_t *out_bytes, at_cut *out);
// Where it is in the array, in tiles. False: it is a copy of another shard.
bool at_cut_tile(const at_cut *c, uint32_t shard, int64_t *tile);
uint32_t at_cut_chip(const at_cut *c, uint32_t shard);
uint64_t at_cut_num_tiles(const at_cut *c);
size_t at_cut_tile_bytes(const at_cut *c);

// The parts of a SAVE or RESTORE that has been checked, one after another.
typedef struct at_cuts {
  const at_msg_files *m;
  at_str path, folder;
  at_bytes about;
  at_bytes rest;  // from the next part on
} at_cuts;
at_cuts at_cuts_of(at_bytes body);
bool at_cuts_next(at_cuts *all, at_cut *out);
bool at_cuts_are_good(uint32_t kind, at_bytes body);

#endif

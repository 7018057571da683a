// How an array is cut into tiles over the devices of a mesh (at_msg_cut).
#ifndef ATOLL_CONTROL_CUT_H_
#define ATOLL_CONTROL_CUT_H_

#include "control/message.h"

// A view of a part of a message that has been checked.
typedef struct at_cut {
  const at_msg_cut *m;
  at_dims dims;
  // Sizes of the mesh's axes.
  const uint32_t *axes;
  // Which axis cuts which dimension.
  const at_msg_use *used;
  // Chips of the shards, for RESTORE.
  const at_msg_chips *runs;
  at_str name;
  // The product of all axes.
  uint32_t num_shards;
  int64_t tiles[AT_MESSAGE_RANK];  // along each dimension
} at_cut;

// The part that begins a body; false: it is not one.
// Checks everything but where the chips are (at_cuts_are_good does): sizes,
// axes used once each, dimensions that the tiles divide, the name. *out points
// into body. *out_bytes: with padding. Nothing is trusted.
bool at_cut_read(at_bytes body, size_t *out_bytes, at_cut *out);
// Where it is in the array, in tiles. False: it is a copy of another shard.
// Of several shards with the same tile, the one at coordinate 0 along all
// unused axes counts as the original. tile: [rank]; shard below num_shards.
bool at_cut_tile(const at_cut *c, uint32_t shard, int64_t *tile);
// The chip of a shard. Of a RESTORE only: the cuts of a SAVE name none.
uint32_t at_cut_chip(const at_cut *c, uint32_t shard);
// Different tiles; num_shards is a multiple of it.
uint64_t at_cut_num_tiles(const at_cut *c);
// Dense bytes of one tile; all tiles of an array are alike.
size_t at_cut_tile_bytes(const at_cut *c);

// The parts of a SAVE or RESTORE that has been checked, one after another.
typedef struct at_cuts {
  const at_msg_files *m;
  at_str path, folder;
  at_bytes about;
  at_bytes rest;  // from the next part on
} at_cuts;
// Splits a body that at_cuts_are_good has accepted. Views, no copies.
at_cuts at_cuts_of(at_bytes body);
// The next array's part; false behind the last one.
bool at_cuts_next(at_cuts *all, at_cut *out);
// The check of a SAVE, RESTORE or PEEK off the wire: sizes, an absolute path
// that does not climb, and as many parts as are said. RESTORE: each shard has a
// chip, and its names are below those of graphs.
bool at_cuts_are_good(uint32_t kind, at_bytes body);

#endif

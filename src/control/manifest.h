// The manifest of a checkpoint: which arrays it has, how each is cut into
// files, and sums of what lies in them. It is written last, as JSON.
#ifndef ATOLL_CONTROL_MANIFEST_H_
#define ATOLL_CONTROL_MANIFEST_H_

#include "abi/dtype.h"
#include "base/arena.h"
#include "base/strbuf.h"
#include "control/message.h"

#define AT_MANIFEST_FILE "atoll.json"
enum { AT_MANIFEST_BYTES = 256 << 20 };  // of one, at most

typedef struct at_manifest_array {
  at_str name;  // its files: path/folder/name/I.J.K, the tile along each
                // dimension; "0" where there is none
  // By its name in HLO, in the file.
  at_dtype dtype;
  at_dims dims;
  const int64_t *tiles;  // along each dimension, which they divide
  uint64_t num_tiles;
  // Dense, of one file without its header.
  size_t tile_bytes;
  uint32_t num_sums;  // of a tile: one for each AT_MESSAGE_BLOCK bytes
  const uint64_t *const *sums;  // by tile, row by row
} at_manifest_array;

// Everything points into the arena or the text that it was parsed from.
typedef struct at_manifest {
  at_str folder, about;
  uint32_t num_arrays;
  const at_manifest_array *arrays;
} at_manifest;

// Everything is checked. It lives in `a`. DATA_LOSS: it is damaged;
// FAILED_PRECONDITION: of another version; RESOURCE_EXHAUSTED.
// text is borrowed for as long as *out is used.
at_status at_manifest_parse(at_bytes text, at_arena *a, at_manifest *out);
// Appends the JSON that at_manifest_parse reads back to the same manifest.
void at_manifest_print(const at_manifest *m, at_strbuf *out);
// What a client is told of it: without sums.
void at_manifest_summary(const at_manifest *m, at_strbuf *out);
// NULL: it has no such array.
const at_manifest_array *at_manifest_find(const at_manifest *m, at_str name);

// Blocks of so many bytes.
uint32_t at_manifest_sums(size_t tile_bytes);
// Of one block's bytes as they lie in the file; against damage, not against
// forgery.
uint64_t at_manifest_sum(at_bytes block);
// "I.J.K"
void at_manifest_tile(uint32_t rank, const int64_t *tile, at_strbuf *out);
// Of zarr's metadata; NULL: zarr has no such type.
const char *at_manifest_zarr_type(at_dtype t);

#endif

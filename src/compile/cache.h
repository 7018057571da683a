// The disk cache of executables, by content. Safe under concurrent processes: an
// entry is written to a temporary file and renamed; a damaged one is ignored.
#ifndef ATOLL_COMPILE_CACHE_H_
#define ATOLL_COMPILE_CACHE_H_

#include "base/span.h"
#include "base/status.h"

typedef struct at_cache_key {
  uint64_t hash[2];
} at_cache_key;
// Mixes bytes into a key; order matters.
void at_cache_key_add(at_cache_key *k, at_bytes b);
void at_cache_key_add_u64(at_cache_key *k, uint64_t v);
// Starts a key with this build of Atoll: another build never reads its entries.
at_cache_key at_cache_key_start(void);

// *out: malloc'd, 64-byte aligned; false: not there, or caching is off.
bool at_cache_get(const at_cache_key *k, at_bytes *out);
// Best effort: a full or read-only disk is no error.
void at_cache_put(const at_cache_key *k, at_bytes executable);

#endif

// The disk cache of executables, by content. Nothing that lies in its folder
// can make a compile fail, hang or go wrong: an entry that is not whole, not of
// this build and format, not a plain file of this user, or another program's,
// is not there, and the next one put takes its place. Executables hold native
// code, so files that another user owns or may write are never read.
// Thread-safe; processes may share a folder.
#ifndef ATOLL_COMPILE_CACHE_H_
#define ATOLL_COMPILE_CACHE_H_

#include "base/digest.h"

// What an entry is found by.
typedef struct at_cache_key {
  at_digest program;  // with everything that decides on the executable
  // Of what the executable says of places in the source: must agree, unless the
  // entry can be told others (compile/places.h).
  at_digest places;
} at_cache_key;

// *out: malloc'd, 64-byte aligned; false: not there, or caching is off.
bool at_cache_get(const at_cache_key *k, at_bytes *out);
// Best effort: a folder that cannot be written is said once on stderr.
// `any_places`: programs with other places may have it, too.
void at_cache_put(const at_cache_key *k, bool any_places, at_bytes executable);

// An entry's bytes: at_cache_get's check of what it has read. *out points into
// `file`.
bool at_cache_entry_read(at_bytes file, const at_cache_key *k, at_bytes *out);

#endif

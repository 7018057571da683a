// A 128-bit digest of bytes: the key of a cache and the checksum of what lies
// in it. Any single changed bit changes it. It is no cryptographic hash: it
// tells damage and difference apart from sameness, and protects from nobody.
//
// Threads: pure, but for at_digest_build, which any thread may call. Nothing is
// allocated.
#ifndef ATOLL_BASE_DIGEST_H_
#define ATOLL_BASE_DIGEST_H_

#include "base/span.h"
#include "base/status.h"

// Passed by value; compare with at_digest_eq.
typedef struct at_digest {
  uint64_t h[2];
} at_digest;

// Different starts make digests of different kinds of things different.
static inline at_digest at_digest_start(uint64_t kind) {
  return (at_digest){{kind, 0x41746f6c6cull}};
}
// Mixes bytes in. Order matters, and so does how they are cut into calls.
void at_digest_add(at_digest *d, at_bytes b);
// The eight bytes of v as they lie in memory: digests are for this kind of
// machine.
void at_digest_add_u64(at_digest *d, uint64_t v);
// The text's bytes, without a NUL. Its length is mixed in, so "a","b" and
// "ab","" differ.
void at_digest_add_str(at_digest *d, at_str s);
static inline bool at_digest_eq(at_digest a, at_digest b) {
  return a.h[0] == b.h[0] && a.h[1] == b.h[1];
}

// The build of the shared library or program that `address` (of a function,
// say) lies in: its linker's build id; without one, the bytes of its code as
// loaded. NOT_FOUND: no object of this process holds the address.
at_status at_digest_build(const void *address, at_digest *out);

#endif

// SHA-256 (FIPS 180-4) and HMAC with it (RFC 2104), for proofs of who knows a
// secret. Tens of MB/s: for messages, not for data.
//
// Threads: a state is used by one at a time.
#ifndef ATOLL_BASE_SHA256_H_
#define ATOLL_BASE_SHA256_H_

#include "base/span.h"

enum { AT_SHA256_BYTES = 32 };

// A digest under way; the caller's memory.
typedef struct at_sha256 {
  uint32_t h[8];
  uint64_t bytes;  // so far
  uint8_t block[64];
} at_sha256;
// Begins a digest in the caller's memory: nothing is allocated, nothing fails.
// start, any number of adds, one end; then the state is spent.
void at_sha256_start(at_sha256 *s);
// Mixes bytes in; how they are cut into calls makes no difference.
void at_sha256_add(at_sha256 *s, at_bytes b);
// Writes the digest, most significant byte first. The state stays as it was
// left, so one that has seen secrets is the caller's to wipe.
void at_sha256_end(at_sha256 *s, uint8_t out[AT_SHA256_BYTES]);

// A keyed digest under way; it holds what the key can be found from.
typedef struct at_hmac {
  at_sha256 inner, outer;
} at_hmac;
// The same for HMAC-SHA-256. Keys over 64 bytes are hashed first, as RFC 2104
// says; the key is not read after the call.
void at_hmac_start(at_hmac *h, at_bytes key);
// Mixes a part of the message in.
void at_hmac_add(at_hmac *h, at_bytes b);
// Writes the code; compare it by at_secrets_equal, never by memcmp.
void at_hmac_end(at_hmac *h, uint8_t out[AT_SHA256_BYTES]);

// Equality that takes as long wherever the first difference is.
bool at_secrets_equal(const void *a, const void *b, size_t bytes);

#endif

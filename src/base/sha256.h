// SHA-256 (FIPS 180-4) and HMAC with it (RFC 2104), for proofs of who knows a
// secret. Tens of MB/s: for messages, not for data.
#ifndef ATOLL_BASE_SHA256_H_
#define ATOLL_BASE_SHA256_H_

#include "base/span.h"

enum { AT_SHA256_BYTES = 32 };

typedef struct at_sha256 {
  uint32_t h[8];
  uint64_t bytes;  // so far
  uint8_t block[64];
} at_sha256;
void at_sha256_start(at_sha256 *s);
void at_sha256_add(at_sha256 *s, at_bytes b);
void at_sha256_end(at_sha256 *s, uint8_t out[AT_SHA256_BYTES]);

typedef struct at_hmac {
  at_sha256 inner, outer;
} at_hmac;
void at_hmac_start(at_hmac *h, at_bytes key);
void at_hmac_add(at_hmac *h, at_bytes b);
void at_hmac_end(at_hmac *h, uint8_t out[AT_SHA256_BYTES]);

// Equality that takes as long wherever the first difference is.
bool at_secrets_equal(const void *a, const void *b, size_t bytes);

#endif

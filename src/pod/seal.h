// Seals of messages: 16 bytes that only who holds the key can make, over the
// message and its number in the stream. So what was changed, injected,
// repeated, left out or sent in another order on its way does not pass.
// Messages are not hidden from who listens; pod/tls.h does that.
//
// SipHash-2-4 with 128 bits of output (Aumasson and Bernstein). Long messages
// are hashed in eight interleaved lanes, each with its own key, and the digests
// of the lanes once more.
//
// Errors: a seal that does not fit is `false`, and the stream is then to be
// closed.
// Memory: nothing is allocated.
//
// Threads: a seal is used by one at a time.
#ifndef ATOLL_POD_SEAL_H_
#define ATOLL_POD_SEAL_H_

#include "base/span.h"

enum { AT_SEAL_BYTES = 16, AT_SEAL_KEY = 16, AT_SEAL_LANES = 8 };

// One direction of a connection. One thread at a time.
typedef struct at_seal {
  uint64_t key[2], lane_keys[2][AT_SEAL_LANES];
  uint64_t number;  // of the next message, from 0
} at_seal;
// Message number 0; the key is copied.
at_seal at_seal_of(const uint8_t key[AT_SEAL_KEY]);

// The seal of the next message, which consists of parts, one behind the other.
void at_seal_next(at_seal *s, const at_bytes *parts, uint32_t num_parts,
                  uint8_t out[AT_SEAL_BYTES]);
// Is that the seal of the next message? After a `false` the stream is over.
bool at_seal_check(at_seal *s, at_bytes message,
                   const uint8_t seal[AT_SEAL_BYTES]);

// SipHash-2-4-128 itself.
void at_siphash(const uint64_t key[2], at_bytes b, uint8_t out[AT_SEAL_BYTES]);

#endif

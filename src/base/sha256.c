// SHA-256 as FIPS 180-4 defines it, and HMAC over it, plainly: no tables but
// the round constants, no instructions for it. Time does not depend on secrets.
#include "base/sha256.h"

// FIPS 180-4, section 4.2.2.
static const uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
    0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
    0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

// To the right; n is in (0, 32).
static uint32_t turn(uint32_t x, int n) { return x >> n | x << (32 - n); }

// Four bytes at any address.
static uint32_t big_endian(const uint8_t *p) {
  uint32_t v;
  memcpy(&v, p, sizeof v);
  return __builtin_bswap32(v);
}

// FIPS 180-4, section 6.2.2: the message schedule, then 64 rounds.
static void add_block(uint32_t h[8], const uint8_t *p) {
  uint32_t w[64], s[8];
  for (int i = 0; i < 16; i++) w[i] = big_endian(p + 4 * i);
  for (int i = 16; i < 64; i++) {
    uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + w[i - 7] +
           (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
  }
  memcpy(s, h, sizeof s);
  for (int i = 0; i < 64; i++) {
    uint32_t a = s[0], e = s[4];
    uint32_t t = s[7] + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) +
                 ((e & s[5]) ^ (~e & s[6])) + kRound[i] + w[i];
    uint32_t u = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) +
                 ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
    memmove(s + 1, s, 7 * sizeof *s);
    s[4] += t;
    s[0] = t + u;
  }
  for (int i = 0; i < 8; i++) h[i] += s[i];
}

// The initial state of section 5.3.3.
void at_sha256_start(at_sha256 *s) {
  *s = (at_sha256){.h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

// Bytes are collected until a block of 64 is full.
void at_sha256_add(at_sha256 *s, at_bytes b) {
  while (b.len) {
    size_t at = s->bytes % 64, n = AT_MIN(b.len, 64 - at);
    memcpy(s->block + at, b.ptr, n);
    s->bytes += n;
    b.ptr += n;
    b.len -= n;
    if (at + n == 64) add_block(s->h, s->block);
  }
}

// Padding: a one bit, zeros up to 8 bytes before a block's end, and the length
// in bits.
void at_sha256_end(at_sha256 *s, uint8_t out[AT_SHA256_BYTES]) {
  static const uint8_t kPad[64] = {0x80};
  const uint64_t bits = __builtin_bswap64(s->bytes * 8);
  at_sha256_add(s, (at_bytes){kPad, 1 + (119 - s->bytes % 64) % 64});
  at_sha256_add(s, (at_bytes){(const uint8_t *)&bits, sizeof bits});
  for (int i = 0; i < 8; i++) {
    uint32_t v = __builtin_bswap32(s->h[i]);
    memcpy(out + 4 * i, &v, sizeof v);
  }
}

// Both digests begin with the key's block, xored with 0x36 and 0x5c.
void at_hmac_start(at_hmac *h, at_bytes key) {
  uint8_t block[64] = {0};
  if (key.len > sizeof block) {
    at_sha256 s;
    at_sha256_start(&s);
    at_sha256_add(&s, key);
    at_sha256_end(&s, block);
  } else if (key.len) {
    memcpy(block, key.ptr, key.len);
  }
  for (int i = 0; i < 64; i++) block[i] ^= 0x36;
  at_sha256_start(&h->inner);
  at_sha256_add(&h->inner, (at_bytes){block, sizeof block});
  for (int i = 0; i < 64; i++) block[i] ^= 0x36 ^ 0x5c;
  at_sha256_start(&h->outer);
  at_sha256_add(&h->outer, (at_bytes){block, sizeof block});
}

void at_hmac_add(at_hmac *h, at_bytes b) { at_sha256_add(&h->inner, b); }

void at_hmac_end(at_hmac *h, uint8_t out[AT_SHA256_BYTES]) {
  at_sha256_end(&h->inner, out);
  at_sha256_add(&h->outer, (at_bytes){out, AT_SHA256_BYTES});
  at_sha256_end(&h->outer, out);
}

// Volatile, so that the loop cannot end early.
bool at_secrets_equal(const void *a, const void *b, size_t bytes) {
  const volatile uint8_t *x = a, *y = b;
  uint8_t differs = 0;
  for (size_t i = 0; i < bytes; i++) differs |= (uint8_t)(x[i] ^ y[i]);
  return !differs;
}

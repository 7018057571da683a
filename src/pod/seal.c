#include "pod/seal.h"

#include "base/cpu.h"
#include "base/sha256.h"

enum { kWide = 1024 };  // from here on in lanes

// One round, of numbers and of vectors of them.
#define TURN(x, n) ((x) << (n) | (x) >> (64 - (n)))
#define ROUND(v0, v1, v2, v3)                                          \
  (v0 += v1, v2 += v3, v1 = TURN(v1, 13) ^ v0, v3 = TURN(v3, 16) ^ v2, \
   v0 = TURN(v0, 32), v2 += v1, v0 += v3, v1 = TURN(v1, 17) ^ v2,      \
   v3 = TURN(v3, 21) ^ v0, v2 = TURN(v2, 32))

// ---- One lane
typedef struct sip {
  uint64_t v[4];
  uint64_t bytes, rest;  // so far; those that make no word yet
} sip;

static const uint64_t kStart[4] = {0x736f6d6570736575,
                                   0x646f72616e646f6d ^ 0xee,
                                   0x6c7967656e657261, 0x7465646279746573};

// SipHash-2-4 with a digest of 128 bits.
static sip sip_start(const uint64_t key[2]) {
  return (sip){{kStart[0] ^ key[0], kStart[1] ^ key[1], kStart[2] ^ key[0],
                kStart[3] ^ key[1]},
               0,
               0};
}

static void sip_rounds(uint64_t v[4], int n) {
  for (int i = 0; i < n; i++) ROUND(v[0], v[1], v[2], v[3]);
}

static void sip_word(sip *s, uint64_t w) {
  s->v[3] ^= w;
  sip_rounds(s->v, 2);
  s->v[0] ^= w;
}

// Any number of bytes; words are formed across calls.
static void sip_add(sip *s, at_bytes b) {
  size_t at = 0;
  for (; s->bytes % 8 && at < b.len; at++) {
    s->rest |= (uint64_t)b.ptr[at] << (s->bytes++ % 8 * 8);
    if (s->bytes % 8) continue;
    sip_word(s, s->rest);
    s->rest = 0;
  }
  for (; b.len - at >= 8; at += 8, s->bytes += 8) {
    uint64_t w;
    memcpy(&w, b.ptr + at, sizeof w);
    sip_word(s, w);
  }
  for (; at < b.len; at++)
    s->rest |= (uint64_t)b.ptr[at] << (s->bytes++ % 8 * 8);
}

// The last word has the number of bytes; two halves of 64 bits.
static void sip_end(sip *s, uint8_t out[AT_SEAL_BYTES]) {
  sip_word(s, s->rest | s->bytes << 56);
  for (int half = 0; half < 2; half++) {
    s->v[half ? 1 : 2] ^= half ? 0xdd : 0xee;
    sip_rounds(s->v, 4);
    uint64_t w = s->v[0] ^ s->v[1] ^ s->v[2] ^ s->v[3];
    memcpy(out + 8 * half, &w, sizeof w);
  }
}

void at_siphash(const uint64_t key[2], at_bytes b, uint8_t out[AT_SEAL_BYTES]) {
  sip s = sip_start(key);
  sip_add(&s, b);
  sip_end(&s, out);
}

// ---- Eight lanes
// Two vectors of four, as the project's baseline (AVX2) has registers for.
typedef uint64_t four __attribute__((vector_size(32)));
enum { kStep = 2 * sizeof(four) };

typedef struct lanes {
  four v[4];
} lanes;

// Four lanes with keys of their own.
static inline lanes lanes_start(const uint64_t *k0, const uint64_t *k1) {
  four a, b;
  memcpy(&a, k0, sizeof a);
  memcpy(&b, k1, sizeof b);
  return (lanes){{a ^ kStart[0], b ^ kStart[1], a ^ kStart[2], b ^ kStart[3]}};
}

// Two rounds for a word in each lane.
static void lanes_word(lanes *l, four w) {
  l->v[3] ^= w;
  ROUND(l->v[0], l->v[1], l->v[2], l->v[3]);
  ROUND(l->v[0], l->v[1], l->v[2], l->v[3]);
  l->v[0] ^= w;
}

// As sip_end: each lane has had `bytes`, whole words.
static void lanes_end(lanes *l, uint64_t bytes, uint8_t out[2 * sizeof(four)]) {
  lanes_word(l, (four){0} + (bytes << 56));
  for (int half = 0; half < 2; half++) {
    l->v[half ? 1 : 2] ^= half ? 0xdd : 0xee;
    for (int i = 0; i < 4; i++) ROUND(l->v[0], l->v[1], l->v[2], l->v[3]);
    four w = l->v[0] ^ l->v[1] ^ l->v[2] ^ l->v[3];
    memcpy(out + half * sizeof w, &w, sizeof w);
  }
}

// Messages in lanes: word i of each step is lane i's.
typedef struct wide {
  lanes x, y;
  uint64_t steps;
  uint32_t num_rest;  // bytes that make no step yet
  uint8_t rest[kStep];
} wide;

// All eight in one vector, which AVX-512 turns in one instruction.
typedef uint64_t eight __attribute__((vector_size(64)));

__attribute__((target("avx512f"))) static void eight_steps(wide *w,
                                                           const uint8_t *p,
                                                           size_t bytes) {
  eight v[4];
  for (int i = 0; i < 4; i++) {
    memcpy(&v[i], &w->x.v[i], sizeof(four));
    memcpy((uint8_t *)&v[i] + sizeof(four), &w->y.v[i], sizeof(four));
  }
  for (size_t at = 0; at < bytes; at += kStep) {
    eight a;
    memcpy(&a, p + at, sizeof a);
    v[3] ^= a;
    ROUND(v[0], v[1], v[2], v[3]);
    ROUND(v[0], v[1], v[2], v[3]);
    v[0] ^= a;
  }
  for (int i = 0; i < 4; i++) {
    memcpy(&w->x.v[i], &v[i], sizeof(four));
    memcpy(&w->y.v[i], (uint8_t *)&v[i] + sizeof(four), sizeof(four));
  }
}

// For CPUs without AVX-512: two vectors of four lanes.
static void four_steps(wide *w, const uint8_t *p, size_t bytes) {
  lanes x = w->x, y = w->y;
  for (size_t at = 0; at < bytes; at += kStep) {
    four a, b;
    memcpy(&a, p + at, sizeof a);
    memcpy(&b, p + at + sizeof a, sizeof b);
    x.v[3] ^= a, y.v[3] ^= b;
    ROUND(x.v[0], x.v[1], x.v[2], x.v[3]);
    ROUND(y.v[0], y.v[1], y.v[2], y.v[3]);
    ROUND(x.v[0], x.v[1], x.v[2], x.v[3]);
    ROUND(y.v[0], y.v[1], y.v[2], y.v[3]);
    x.v[0] ^= a, y.v[0] ^= b;
  }
  w->x = x, w->y = y;
}

// bytes: a multiple of kStep.
static void wide_steps(wide *w, const uint8_t *p, size_t bytes) {
  if (at_cpu_features() & AT_CPU_AVX512)
    eight_steps(w, p, bytes);
  else
    four_steps(w, p, bytes);
  w->steps += bytes / kStep;
}

// Any number of bytes; what makes no step is kept in w->rest.
static void wide_add(wide *w, at_bytes b) {
  if (!b.len) return;
  if (w->num_rest) {
    size_t n = AT_MIN(b.len, (size_t)(kStep - w->num_rest));
    memcpy(w->rest + w->num_rest, b.ptr, n);
    w->num_rest += (uint32_t)n;
    b = (at_bytes){b.ptr + n, b.len - n};
    if (w->num_rest < kStep) return;
    wide_steps(w, w->rest, kStep);
  }
  w->num_rest = (uint32_t)(b.len % kStep);
  wide_steps(w, b.ptr, b.len - w->num_rest);
  memcpy(w->rest, b.ptr + b.len - w->num_rest, w->num_rest);
}

// The digests of the lanes, and the rest, which no lane has.
static void wide_end(wide *w, sip *out) {
  uint8_t digests[AT_SEAL_LANES * AT_SEAL_BYTES];
  lanes_end(&w->x, w->steps * 8, digests);
  lanes_end(&w->y, w->steps * 8, digests + 2 * sizeof(four));
  sip_add(out, (at_bytes){digests, sizeof digests});
  sip_add(out, (at_bytes){w->rest, w->num_rest});
}

// ---- Seals
// The lanes' keys are derived once for each connection.
at_seal at_seal_of(const uint8_t key[AT_SEAL_KEY]) {
  at_seal s = {0};
  memcpy(s.key, key, sizeof s.key);
  for (uint8_t i = 0; i < AT_SEAL_LANES; i++) {
    uint64_t k[2];
    at_siphash(s.key, (at_bytes){&i, 1}, (uint8_t *)k);
    s.lane_keys[0][i] = k[0];
    s.lane_keys[1][i] = k[1];
  }
  return s;
}

// Starts with 16 bytes, which no message of one byte is: lane keys are no
// seals.
void at_seal_next(at_seal *s, const at_bytes *parts, uint32_t num_parts,
                  uint8_t out[AT_SEAL_BYTES]) {
  uint64_t about[2] = {s->number++};
  for (uint32_t i = 0; i < num_parts; i++) about[1] += parts[i].len;
  sip h = sip_start(s->key);
  sip_add(&h, (at_bytes){(const uint8_t *)about, sizeof about});
  if (about[1] >= kWide) {
    wide w = {.x = lanes_start(s->lane_keys[0], s->lane_keys[1]),
              .y = lanes_start(s->lane_keys[0] + 4, s->lane_keys[1] + 4)};
    for (uint32_t i = 0; i < num_parts; i++) wide_add(&w, parts[i]);
    wide_end(&w, &h);
  } else {
    for (uint32_t i = 0; i < num_parts; i++) sip_add(&h, parts[i]);
  }
  sip_end(&h, out);
}

// Counts the message, whether it was right or not: a wrong one ends the
// connection anyway. Compares in constant time.
bool at_seal_check(at_seal *s, at_bytes message,
                   const uint8_t seal[AT_SEAL_BYTES]) {
  uint8_t want[AT_SEAL_BYTES];
  at_seal_next(s, &message, 1, want);
  return at_secrets_equal(want, seal, sizeof want);
}

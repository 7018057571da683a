#include "pod/proof.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/sha256.h"

// Messages 1 and 2. All numbers are little endian.
typedef struct hello {
  uint8_t magic[8];
  uint32_t step, to;
  uint64_t time_ns;  // of the caller's clock
  at_card card;
  uint8_t nonce[AT_PROOF_NONCE], mac[AT_SHA256_BYTES];
} hello;
_Static_assert(sizeof(hello) == AT_PROOF_HELLO, "hello");
typedef struct verdict {
  uint32_t verdict, zero;
  uint8_t mac[AT_SHA256_BYTES];
} verdict;
_Static_assert(sizeof(verdict) == AT_PROOF_VERDICT, "verdict");

static const uint8_t kMagic[8] = {'a', 't', 'o', 'l', 'l', 'p', 'o', '2'};

// ---- Keys and MACs
// Of a label, which says what for, and up to two parts of fixed size.
static void keyed(const uint8_t key[AT_TOKEN_BYTES], const char *label,
                  at_bytes a, at_bytes b, uint8_t out[AT_SHA256_BYTES]) {
  at_hmac h;
  at_hmac_start(&h, (at_bytes){key, AT_TOKEN_BYTES});
  at_hmac_add(&h, (at_bytes){(const uint8_t *)label, strlen(label) + 1});
  at_hmac_add(&h, a);
  at_hmac_add(&h, b);
  at_hmac_end(&h, out);
}

static at_bytes whole(const hello *h) {
  return (at_bytes){(const uint8_t *)h, sizeof *h};
}

// The MAC of a first message, or of the answer to one. Its own field counts as
// 0.
static void mac_of(const at_token *token, const hello *first, const hello *h,
                   uint8_t out[AT_SHA256_BYTES]) {
  hello blank = *h;
  memset(blank.mac, 0, sizeof blank.mac);
  if (first)
    keyed(token->bytes, "listener", whole(first), whole(&blank), out);
  else
    keyed(token->bytes, "caller", whole(&blank), (at_bytes){0}, out);
}

// The key of everything that follows depends on both hellos, nonces included.
static void session_of(at_proof *p, const hello *first, const hello *second) {
  keyed(p->token.bytes, "session", whole(first), whole(second), p->session);
}

// The caller's second message: only who knows the session can say it.
static void answer_of(const at_proof *p, uint8_t out[AT_PROOF_ANSWER]) {
  keyed(p->session, "caller is here", (at_bytes){0}, (at_bytes){0}, out);
}

// The listener's second message.
static verdict verdict_of(const at_proof *p, at_verdict v) {
  verdict out = {.verdict = v};
  keyed(p->session, "verdict", (at_bytes){(uint8_t *)&out.verdict, 4},
        (at_bytes){0}, out.mac);
  return out;
}

// Of a proof that is met.
void at_proof_key(const at_proof *p, uint8_t out[AT_TOKEN_BYTES]) {
  AT_ASSERT(p->state == AT_PROOF_MET);
  keyed(p->session, "tls", (at_bytes){0}, (at_bytes){0}, out);
}

// One key for each direction.
static at_seal seal_of(const at_proof *p, bool from_caller) {
  uint8_t key[AT_SHA256_BYTES];
  keyed(p->session, from_caller ? "caller sends" : "listener sends",
        (at_bytes){0}, (at_bytes){0}, key);
  return at_seal_of(key);
}

// ---- Messages
// Without MAC.
static hello hello_of(const at_proof *p, uint32_t step, uint32_t to) {
  hello h = {.step = step, .to = to, .time_ns = p->clock_ns, .card = p->mine};
  memcpy(h.magic, kMagic, sizeof h.magic);
  memcpy(h.nonce, p->nonce, sizeof h.nonce);
  return h;
}

static void put(at_proof *p, const void *message, size_t bytes) {
  memcpy(p->out, message, bytes);
  p->out_bytes = (uint32_t)bytes;
}

// Everything that is not given is 0.
static void start(at_proof *p, const at_token *token, const at_card *mine,
                  const uint8_t nonce[AT_PROOF_NONCE], uint64_t clock_ns) {
  *p = (at_proof){.mine = *mine, .token = *token, .clock_ns = clock_ns};
  memcpy(p->nonce, nonce, AT_PROOF_NONCE);
}

// The first message is ready for at_proof_take.
void at_proof_call(at_proof *p, const at_token *token, const at_card *mine,
                   uint32_t to, const uint8_t nonce[AT_PROOF_NONCE],
                   uint64_t now_ns) {
  start(p, token, mine, nonce, now_ns);
  p->calls = true;
  p->want_me = to;
  p->step = 1;
  hello h = hello_of(p, 1, to);
  mac_of(token, NULL, &h, h.mac);
  put(p, &h, sizeof h);
}

// Says nothing until the first hello has proved itself.
void at_proof_listen(at_proof *p, const at_token *token, const at_card *mine,
                     at_proof_heard *heard, const uint8_t nonce[AT_PROOF_NONCE],
                     uint64_t since_ns) {
  start(p, token, mine, nonce, since_ns);
  p->heard = heard;
}

// Bytes of the message that is read now.
static size_t size_of_next(const at_proof *p) {
  return p->step == 2   ? AT_PROOF_ANSWER
         : p->step == 3 ? AT_PROOF_VERDICT
                        : AT_PROOF_HELLO;
}

// 0: nothing is to be read any more.
size_t at_proof_room(at_proof *p, uint8_t **out) {
  if (p->state != AT_PROOF_READS) return 0;
  *out = p->in + p->have;
  return size_of_next(p) - p->have;
}

// Valid until the next step; empty: nothing is to be said.
at_bytes at_proof_take(at_proof *p) {
  at_bytes out = {p->out, p->out_bytes};
  p->out_bytes = 0;
  return out;
}

// ---- Steps
// Nothing is said: a stranger learns nothing, not even that it was heard.
static at_proof_state stranger(at_proof *p) {
  p->out_bytes = 0;
  return p->state = AT_PROOF_STRANGER;
}

// Among the last AT_PROOF_HEARD nonces, which it then joins.
static bool heard_before(at_proof_heard *heard, const uint8_t *nonce) {
  uint32_t n = AT_MIN(heard->count, (uint32_t)AT_PROOF_HEARD);
  for (uint32_t i = 0; i < n; i++)
    if (!memcmp(heard->nonces[i], nonce, sizeof *heard->nonces)) return true;
  memcpy(heard->nonces[heard->count++ % AT_PROOF_HEARD], nonce,
         sizeof *heard->nonces);
  return false;
}

// The right step, with the right MAC.
static bool is_hello(const at_proof *p, const hello *first, const hello *h,
                     uint32_t step) {
  uint8_t mac[AT_SHA256_BYTES];
  if (h->step != step) return false;
  mac_of(&p->token, first, h, mac);
  return at_secrets_equal(mac, h->mac, sizeof mac);
}

// Fits the other's card to this one's? Order matters: the first difference is
// what people are told.
static at_verdict judge(const at_card *mine, const hello *theirs) {
  const at_card *c = &theirs->card;
  if (c->count != mine->count) return AT_VERDICT_COUNT;
  if (c->epoch != mine->epoch) return AT_VERDICT_EPOCH;
  if (c->me == mine->me || c->me >= mine->count) return AT_VERDICT_PLACE;
  if (c->tls != mine->tls) return AT_VERDICT_TLS;
  return at_digest_eq(c->job, mine->job) ? AT_VERDICT_WELCOME : AT_VERDICT_JOB;
}

// Listener: the first hello. It has to be fresh, for this process, and new.
static at_proof_state hear_caller(at_proof *p) {
  hello first, second;
  memcpy(&first, p->in, sizeof first);
  if (!is_hello(p, NULL, &first, 1)) return stranger(p);
  p->theirs = first.card;
  p->late = first.time_ns < p->clock_ns;
  p->astray = first.to != p->mine.me;
  if (p->late || p->astray || heard_before(p->heard, first.nonce))
    return stranger(p);
  p->verdict = judge(&p->mine, &first);
  second = hello_of(p, 2, first.card.me);
  mac_of(&p->token, &first, &second, second.mac);
  session_of(p, &first, &second);
  put(p, &second, sizeof second);
  p->step = 2;
  return AT_PROOF_READS;
}

// Caller: the listener's hello proves that it knows the token.
static at_proof_state hear_listener(at_proof *p) {
  hello first = hello_of(p, 1, p->want_me), second;
  uint8_t answer[AT_PROOF_ANSWER];
  mac_of(&p->token, NULL, &first, first.mac);
  memcpy(&second, p->in, sizeof second);
  if (!is_hello(p, &first, &second, 2)) return stranger(p);
  p->theirs = second.card;
  session_of(p, &first, &second);
  answer_of(p, answer);
  put(p, answer, sizeof answer);
  p->step = 3;
  return AT_PROOF_READS;
}

// Listener: the caller is no recording.
static at_proof_state hear_answer(at_proof *p) {
  uint8_t answer[AT_PROOF_ANSWER];
  answer_of(p, answer);
  if (!at_secrets_equal(answer, p->in, sizeof answer)) return stranger(p);
  return p->state = AT_PROOF_ASKS;
}

// Both ends have the verdict and the keys for what follows.
static void finish(at_proof *p, at_verdict v) {
  p->verdict = v;
  p->state = v == AT_VERDICT_WELCOME ? AT_PROOF_MET : AT_PROOF_REFUSED;
  p->send = seal_of(p, p->calls);
  p->recv = seal_of(p, !p->calls);
}

// Caller: why it is let in or not.
static at_proof_state hear_verdict(at_proof *p) {
  verdict got, want;
  memcpy(&got, p->in, sizeof got);
  want = verdict_of(p, (at_verdict)got.verdict);
  if (got.verdict >= AT_VERDICTS || got.zero ||
      !at_secrets_equal(got.mac, want.mac, sizeof got.mac))
    return stranger(p);
  finish(p, (at_verdict)got.verdict);
  return p->state;
}

// The user's verdict, where the cards fit.
void at_proof_decide(at_proof *p, at_verdict v) {
  AT_ASSERT(p->state == AT_PROOF_ASKS);
  verdict out = verdict_of(p, v);
  put(p, &out, sizeof out);
  finish(p, v);
}

// bytes have been put to where at_proof_room said.
at_proof_state at_proof_got(at_proof *p, size_t bytes) {
  AT_ASSERT(p->state == AT_PROOF_READS && p->have + bytes <= size_of_next(p));
  p->have += (uint32_t)bytes;
  // Who speaks something else altogether goes at once.
  if (p->step < 2 && memcmp(p->in, kMagic, AT_MIN(p->have, sizeof kMagic)))
    return stranger(p);
  if (p->have < size_of_next(p)) return AT_PROOF_READS;
  p->have = 0;
  switch (p->step) {
    case 0:
      return hear_caller(p);
    case 1:
      return hear_listener(p);
    case 2:
      return hear_answer(p);
    default:
      return hear_verdict(p);
  }
}

// ---- What is said of it
// Not for WELCOME.
at_status at_proof_status(const at_proof *p) {
  static const char *const kWhat[AT_VERDICTS] = {
      [AT_VERDICT_WELCOME] = "",
      [AT_VERDICT_JOB] = "another target or another build of Atoll",
      [AT_VERDICT_COUNT] = "another number of processes",
      [AT_VERDICT_EPOCH] = "it was formed anew without that process",
      [AT_VERDICT_PLACE] = ("a number does not fit to its place among the "
                            "addresses, or two processes have the same"),
      [AT_VERDICT_TAKEN] = "two processes have the same number",
      [AT_VERDICT_TLS] = ("\nhint: set ATOLL_POD_NETWORK and ATOLL_POD_WIRE "
                          "to the same in every process"),
  };
  // Who of the two would, and who would not.
  const char *tls = p->verdict != AT_VERDICT_TLS ? ""
                    : p->mine.tls ? "it talks in clear, this one over TLS"
                                  : "it talks over TLS, this one in clear";
  return AT_FAIL(
      AT_FAILED_PRECONDITION,
      "process %u (of %u) is not of this job (process %u of %u): %s%s",
      p->theirs.me, p->theirs.count, p->mine.me, p->mine.count, tls,
      kWhat[p->verdict]);
}

// Blocks until the system has randomness, early after boot.
at_status at_random(void *out, size_t bytes) {
  for (size_t at = 0; at < bytes;) {
    ssize_t n = getrandom((uint8_t *)out + at, bytes - at, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return AT_FAIL(AT_UNAVAILABLE, "the system has no random bytes: %s",
                     strerror(errno));
    at += (size_t)n;
  }
  return AT_OK;
}

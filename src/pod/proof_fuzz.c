// Two processes that prove a token to each other, and somebody in between who
// delivers, changes, invents, drops and repeats bytes as the input says: nobody
// counts as proved, and the listener says nothing, unless the bytes it got are
// the other's own; sealed messages pass only as they are, in order.
#include <stdlib.h>

#include "pod/proof.h"

enum { kSent = 512 };

typedef struct side {
  at_proof proof;
  uint8_t sent[kSent];
  size_t num_sent, num_got;
  size_t next;  // of what the other has sent
  bool clean;   // it got what the other has sent, from the first byte on
} side;

typedef struct input {
  const uint8_t *at, *end;
} input;

static uint8_t next_byte(input *in) { return in->at < in->end ? *in->at++ : 0; }

static void must(bool holds) {
  if (!holds) abort();
}

static void look(side *s) {
  at_proof_state state = s->proof.state;
  at_bytes out = at_proof_take(&s->proof);
  bool proved = state == AT_PROOF_ASKS || state == AT_PROOF_MET ||
                state == AT_PROOF_REFUSED;
  must(s->clean || (!proved && !out.len));
  must(s->num_sent + out.len <= kSent);
  memcpy(s->sent + s->num_sent, out.ptr, out.len);
  s->num_sent += out.len;
}

static void deliver(side *to, const side *from, uint8_t byte) {
  uint8_t *at;
  if (!at_proof_room(&to->proof, &at)) return;
  to->clean &= to->num_got < from->num_sent && byte == from->sent[to->num_got];
  to->num_got++;
  *at = byte;
  at_proof_got(&to->proof, 1);
  look(to);
}

static void deliver_some(side *to, const side *from, input *in) {
  for (uint8_t n = next_byte(in); n && to->next < from->num_sent; n--)
    deliver(to, from, from->sent[to->next++]);
}

static void invent_some(side *to, const side *from, input *in) {
  for (uint8_t n = next_byte(in) % 128; n; n--)
    deliver(to, from, next_byte(in));
}

static void change_one(side *to, const side *from, input *in) {
  uint8_t by = next_byte(in);
  if (to->next < from->num_sent) deliver(to, from, from->sent[to->next++] ^ by);
}

static void pass_sealed(side *to, side *from, input *in) {
  uint8_t message[200], seal[AT_SEAL_BYTES], at = next_byte(in);
  uint8_t by = next_byte(in), again = next_byte(in);
  if (from->proof.state != AT_PROOF_MET || to->proof.state != AT_PROOF_MET)
    return;
  memset(message, again, sizeof message);
  at_bytes m = {message, 1 + at % sizeof message};
  at_seal_next(&from->proof.send, &m, 1, seal);
  message[at % m.len] ^= by;
  at_seal before = to->proof.recv;
  must(at_seal_check(&to->proof.recv, m, seal) == !by);
  must(!at_seal_check(&to->proof.recv, m, seal));  // repeated
  to->proof.recv = before;
  to->proof.recv.number++;
}

// One thing that happens.
static void step(side *to, side *from, input *in, uint8_t what) {
  switch (what % 8) {
    case 2:
      return change_one(to, from, in);
    case 3:
      return invent_some(to, from, in);
    case 4:  // lost on the way
      to->next += next_byte(in);
      return;
    case 5:  // repeated
      to->next = 0;
      return;
    case 6:
      if (to->proof.state != AT_PROOF_ASKS) return;
      at_proof_decide(&to->proof, (at_verdict)(next_byte(in) % AT_VERDICTS));
      return look(to);
    case 7:
      return pass_sealed(to, from, in);
    default:
      return deliver_some(to, from, in);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static at_proof_heard heard;
  static const at_token token = {{1, 2, 3}}, other = {{1, 2, 4}};
  static const uint8_t nonces[2][AT_PROOF_NONCE] = {{1}, {2}};
  input in = {data, data + size};
  uint8_t first = next_byte(&in);
  side caller = {.clean = true}, listener = {.clean = true};
  const at_card a = {.me = 1 + (first >> 1) % 4, .count = 3};
  const at_card b = {.count = 3};
  heard.count = 0;
  at_proof_call(&caller.proof, &token, &a, 0, nonces[0], 5);
  at_proof_listen(&listener.proof, first & 1 ? &other : &token, &b, &heard,
                  nonces[1], 5);
  look(&caller);
  while (in.at < in.end) {
    uint8_t what = next_byte(&in);
    if (what & 8)
      step(&caller, &listener, &in, what);
    else
      step(&listener, &caller, &in, what);
  }
  must(!(first & 1) || !listener.num_sent);
  must(caller.proof.state != AT_PROOF_MET ||
       listener.proof.state == AT_PROOF_MET);
  return 0;
}

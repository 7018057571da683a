// The proof: who knows the token meets, and nobody else by any message that he
// makes, changes, cuts, reflects or has recorded; the seals behind it.
#include "pod/proof.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

enum { kNow = 1000 };
static const at_token kToken = {{7, 1, 2}}, kOther = {{8, 1, 2}};

static at_card card_of(uint32_t me) {
  return (at_card){.me = me, .count = 3, .job = {{5, 6}}};
}

// Two proofs and what they have said to each other.
typedef struct pair {
  at_proof caller, listener;
  at_proof_heard *heard;
  uint8_t said[4][AT_PROOF_HELLO];
  size_t bytes[4];
  uint32_t turns;
} pair;

static uint8_t g_nonce[AT_PROOF_NONCE];
static const uint8_t *fresh_nonce(void) {
  at_status st = at_random(g_nonce, sizeof g_nonce);
  assert_int_equal(at_code_take(st), 0);
  return g_nonce;
}

static void make_pair(pair *p, const at_token *caller, const at_card *a,
                      const at_card *b, uint32_t to, at_proof_heard *heard) {
  memset(p, 0, sizeof *p);
  p->heard = heard;
  at_proof_call(&p->caller, caller, a, to, fresh_nonce(), kNow);
  at_proof_listen(&p->listener, &kToken, b, heard, fresh_nonce(), kNow - 9);
}

// Gives the bytes one at a time (`step` 1) or at once; how many it took.
static size_t give(at_proof *to, const uint8_t *b, size_t n, size_t step) {
  uint8_t *at;
  size_t done = 0;
  for (size_t room; done < n && (room = at_proof_room(to, &at));) {
    size_t k = AT_MIN(AT_MIN(room, step), n - done);
    memcpy(at, b + done, k);
    done += k;
    at_proof_got(to, k);
  }
  return done;
}

// Lets them talk; message `cut` is changed at byte `at` first (-1: none).
static void talk(pair *p, int cut, size_t at, size_t step) {
  for (int turn = 0; turn < 4; turn++) {
    at_proof *from = turn % 2 ? &p->listener : &p->caller;
    at_proof *to = turn % 2 ? &p->caller : &p->listener;
    at_bytes out = at_proof_take(from);
    if (!out.len) return;
    p->bytes[turn] = out.len;
    memcpy(p->said[turn], out.ptr, out.len);
    if (turn == cut) p->said[turn][at] ^= 0x10;
    give(to, p->said[turn], out.len, step);
    p->turns++;
    if (p->listener.state == AT_PROOF_ASKS)
      at_proof_decide(&p->listener, p->listener.verdict);
  }
}

static void who_knows_the_token_meets(void **state) {
  at_proof_heard *heard = calloc(1, sizeof *heard);
  const at_card a = card_of(2), b = card_of(1);
  uint8_t last_key[AT_TOKEN_BYTES] = {0};
  for (size_t step = 1; step < 200; step += 100) {
    pair p;
    make_pair(&p, &kToken, &a, &b, 1, heard);
    talk(&p, -1, 0, step);
    assert_int_equal(p.caller.state, AT_PROOF_MET);
    assert_int_equal(p.listener.state, AT_PROOF_MET);
    assert_int_equal(p.listener.theirs.me, 2);
    assert_int_equal(p.caller.theirs.me, 1);
    uint8_t keys[2][AT_TOKEN_BYTES];
    at_proof_key(&p.caller, keys[0]);
    at_proof_key(&p.listener, keys[1]);
    assert_memory_equal(keys[0], keys[1], AT_TOKEN_BYTES);
    assert_memory_not_equal(keys[0], last_key, AT_TOKEN_BYTES);
    memcpy(last_key, keys[0], AT_TOKEN_BYTES);
    uint8_t seal[AT_SEAL_BYTES];
    at_bytes hello = {(const uint8_t *)"hello", 5};
    at_seal_next(&p.caller.send, &hello, 1, seal);
    assert_true(at_seal_check(&p.listener.recv, hello, seal));
    at_seal_next(&p.listener.send, &hello, 1, seal);
    assert_true(at_seal_check(&p.caller.recv, hello, seal));
    // The directions have keys of their own.
    assert_memory_not_equal(p.caller.send.key, p.caller.recv.key, AT_SEAL_KEY);
    uint8_t *at;
    assert_int_equal(at_proof_room(&p.caller, &at), 0);
  }
  free(heard);
}

// Who does not know the token hears nothing.
static void strangers_hear_nothing(void **state) {
  at_proof_heard *heard = calloc(1, sizeof *heard);
  const at_card a = card_of(2), b = card_of(1);
  pair p;
  make_pair(&p, &kOther, &a, &b, 1, heard);
  talk(&p, -1, 0, 200);
  assert_int_equal(p.turns, 1);
  assert_int_equal(p.listener.state, AT_PROOF_STRANGER);
  // Other protocols go at their first bytes; half a hello waits for the rest.
  static const struct {
    const char *bytes;
    at_proof_state state;
  } cases[] = {{"GET / HTTP/1.1\r\n\r\n", AT_PROOF_STRANGER},
               {"\x16\x03\x01", AT_PROOF_STRANGER},
               {"atollp", AT_PROOF_READS},
               {"atollpo1", AT_PROOF_STRANGER}};
  for (size_t i = 0; i < AT_LEN(cases); i++) {
    make_pair(&p, &kOther, &a, &b, 1, heard);
    give(&p.listener, (const uint8_t *)cases[i].bytes, strlen(cases[i].bytes),
         100);
    assert_int_equal(p.listener.state, cases[i].state);
    assert_int_equal(at_proof_take(&p.listener).len, 0);
  }
  // A listener without the token does not get past the caller either.
  make_pair(&p, &kToken, &a, &b, 1, heard);
  at_proof_listen(&p.listener, &kOther, &b, heard, fresh_nonce(), kNow);
  talk(&p, -1, 0, 200);
  assert_int_equal(p.turns, 1);
  // Nor one that sends back what it hears.
  make_pair(&p, &kToken, &a, &b, 1, heard);
  at_bytes out = at_proof_take(&p.caller);
  give(&p.caller, out.ptr, out.len, 200);
  assert_int_equal(p.caller.state, AT_PROOF_STRANGER);
  assert_int_equal(at_proof_take(&p.caller).len, 0);
  free(heard);
}

// Any changed bit of any message, and nobody takes the other for a member.
static void changed_messages_are_strangers(void **state) {
  at_proof_heard *heard = calloc(1, sizeof *heard);
  const at_card a = card_of(2), b = card_of(1);
  static const size_t kBytes[] = {AT_PROOF_HELLO, AT_PROOF_HELLO,
                                  AT_PROOF_ANSWER, AT_PROOF_VERDICT};
  for (int cut = 0; cut < 4; cut++) {
    for (size_t at = 0; at < kBytes[cut]; at++) {
      pair p;
      make_pair(&p, &kToken, &a, &b, 1, heard);
      talk(&p, cut, at, 200);
      assert_int_equal(p.turns, cut + 1);
      at_proof *who = cut % 2 ? &p.caller : &p.listener;
      assert_int_equal(who->state, AT_PROOF_STRANGER);
      assert_int_equal(at_proof_take(who).len, 0);
    }
  }
  free(heard);
}

static void recordings_are_of_no_use(void **state) {
  at_proof_heard *heard = calloc(1, sizeof *heard);
  const at_card a = card_of(2), b = card_of(1);
  pair met, p;
  make_pair(&met, &kToken, &a, &b, 1, heard);
  talk(&met, -1, 0, 200);
  // To the same listener: not a byte comes back.
  make_pair(&p, &kToken, &a, &b, 1, heard);
  give(&p.listener, met.said[0], met.bytes[0], 200);
  assert_int_equal(p.listener.state, AT_PROOF_STRANGER);
  assert_int_equal(at_proof_take(&p.listener).len, 0);
  // To one that came later: neither.
  memset(heard, 0, sizeof *heard);
  make_pair(&p, &kToken, &a, &b, 1, heard);
  at_proof_listen(&p.listener, &kToken, &b, heard, fresh_nonce(), kNow + 1);
  give(&p.listener, met.said[0], met.bytes[0], 200);
  assert_int_equal(p.listener.state, AT_PROOF_STRANGER);
  assert_true(p.listener.late);
  assert_int_equal(at_proof_take(&p.listener).len, 0);
  // To one that has not heard it: the third message is not for its nonce.
  memset(heard, 0, sizeof *heard);
  make_pair(&p, &kToken, &a, &b, 1, heard);
  give(&p.listener, met.said[0], met.bytes[0], 200);
  assert_int_equal(p.listener.state, AT_PROOF_READS);
  give(&p.listener, met.said[2], met.bytes[2], 200);
  assert_int_equal(p.listener.state, AT_PROOF_STRANGER);
  // To another process: not a byte comes back.
  memset(heard, 0, sizeof *heard);
  const at_card other = card_of(0);
  make_pair(&p, &kToken, &a, &other, 1, heard);
  give(&p.listener, met.said[0], met.bytes[0], 200);
  assert_int_equal(p.listener.state, AT_PROOF_STRANGER);
  assert_true(p.listener.astray);
  assert_int_equal(at_proof_take(&p.listener).len, 0);
  // To a caller: its nonce is another.
  make_pair(&p, &kToken, &a, &b, 1, heard);
  give(&p.caller, met.said[1], met.bytes[1], 200);
  assert_int_equal(p.caller.state, AT_PROOF_STRANGER);
  // What a listener says is no first message, and the other way round.
  make_pair(&p, &kToken, &a, &b, 1, heard);
  give(&p.listener, met.said[1], met.bytes[1], 200);
  assert_int_equal(p.listener.state, AT_PROOF_STRANGER);
  // Old messages are forgotten, the newest are not.
  uint8_t first[AT_PROOF_HELLO], last[AT_PROOF_HELLO];
  for (int i = 0; i <= AT_PROOF_HEARD; i++) {
    make_pair(&p, &kToken, &a, &b, 1, heard);
    at_bytes out = at_proof_take(&p.caller);
    memcpy(i ? last : first, out.ptr, out.len);
    give(&p.listener, out.ptr, out.len, 200);
    assert_int_equal(p.listener.state, AT_PROOF_READS);
  }
  make_pair(&p, &kToken, &a, &b, 1, heard);
  give(&p.listener, last, sizeof last, 200);
  assert_int_equal(p.listener.state, AT_PROOF_STRANGER);
  free(heard);
}

// Both sides hear why; neither counts as met.
static void who_does_not_fit_is_told(void **state) {
  at_proof_heard *heard = calloc(1, sizeof *heard);
  static const struct {
    at_card card;
    uint32_t to;
    at_verdict verdict;
    const char *text;
  } cases[] = {
      {{2, 3, 0, 0, 0, 0, {{5, 7}}}, 1, AT_VERDICT_JOB, "another target"},
      {{2, 4, 0, 0, 0, 0, {{5, 6}}},
       1,
       AT_VERDICT_COUNT,
       "number of processes"},
      {{2, 3, 1, 0, 0, 0, {{5, 6}}}, 1, AT_VERDICT_EPOCH, "formed anew"},
      {{1, 3, 0, 0, 0, 0, {{5, 6}}}, 1, AT_VERDICT_PLACE, "place"},
      {{3, 3, 0, 0, 0, 0, {{5, 6}}}, 1, AT_VERDICT_PLACE, "place"},
      {{2, 3, 0, 0, 1, 0, {{5, 6}}}, 1, AT_VERDICT_TLS, "ATOLL_POD_NETWORK"},
  };
  const at_card b = card_of(1);
  for (size_t i = 0; i < AT_LEN(cases); i++) {
    pair p;
    make_pair(&p, &kToken, &cases[i].card, &b, cases[i].to, heard);
    talk(&p, -1, 0, 200);
    at_proof *both[] = {&p.caller, &p.listener};
    for (int k = 0; k < 2; k++) {
      assert_int_equal(both[k]->state, AT_PROOF_REFUSED);
      assert_int_equal(both[k]->verdict, cases[i].verdict);
      at_status st = at_proof_status(both[k]);
      assert_non_null(strstr(at_status_message(st), "not of this job"));
      assert_non_null(strstr(at_status_message(st), cases[i].text));
      assert_int_equal(at_code_take(st), AT_FAILED_PRECONDITION);
    }
  }
  free(heard);
}

// ---- Seals
static void seals_are_as_published(void **state) {
  // SipHash-2-4 with 128 bits of output: key 00..0f, input 00, 01, ...
  static const char *const kWant[] = {"a3817f04ba25a8e66df67214c7550293",
                                      "da87c1d86b99af44347659119b22fc45",
                                      "8177228da4a45dc7fca38bdef60affe4"};
  uint8_t key[16], in[2] = {0, 1}, out[AT_SEAL_BYTES];
  uint64_t words[2];
  for (int i = 0; i < 16; i++) key[i] = (uint8_t)i;
  memcpy(words, key, sizeof words);
  for (size_t n = 0; n < AT_LEN(kWant); n++) {
    char text[33];
    at_siphash(words, (at_bytes){in, n}, out);
    for (int i = 0; i < 16; i++) snprintf(text + 2 * i, 3, "%02x", out[i]);
    assert_string_equal(text, kWant[n]);
  }
}

// The lanes, one by one, and what the seal makes of them.
static void long_seals_are_of_their_lanes(void **state) {
  enum { kBytes = 5000, kLaneBytes = kBytes / 64 * 8 };
  uint8_t key[AT_SEAL_KEY] = {3, 1, 4}, message[kBytes], got[AT_SEAL_BYTES],
          want[AT_SEAL_BYTES];
  for (int i = 0; i < kBytes; i++) message[i] = (uint8_t)(i * i >> 3);
  at_seal s = at_seal_of(key);
  uint8_t all[16 + 8 * 16 + kBytes % 64], lane[kLaneBytes];
  const uint64_t about[] = {0, kBytes};
  memcpy(all, about, 16);
  for (int i = 0; i < 8; i++) {
    uint8_t digest[16];
    const uint64_t lane_key[] = {s.lane_keys[0][i], s.lane_keys[1][i]};
    for (int k = 0; k < kLaneBytes / 8; k++)
      memcpy(lane + 8 * k, message + 64 * k + 8 * i, 8);
    at_siphash(lane_key, (at_bytes){lane, kLaneBytes}, digest);
    // Halves of four lanes lie together.
    uint8_t *at = all + 16 + i / 4 * 64 + i % 4 * 8;
    memcpy(at, digest, 8);
    memcpy(at + 32, digest + 8, 8);
  }
  memcpy(all + 16 + 8 * 16, message + kBytes / 64 * 64, kBytes % 64);
  at_siphash(s.key, (at_bytes){all, sizeof all}, want);
  at_seal_next(&s, &(at_bytes){message, kBytes}, 1, got);
  assert_memory_equal(got, want, sizeof want);
  // The same however it is cut.
  for (size_t step = 1; step < kBytes; step += 1 + step / 3) {
    at_bytes parts[kBytes];
    uint32_t n = 0;
    for (size_t at = 0; at < kBytes; at += step)
      parts[n++] = (at_bytes){message + at, AT_MIN(step, kBytes - at)};
    s.number = 0;
    at_seal_next(&s, parts, n, got);
    assert_memory_equal(got, want, sizeof want);
  }
}

static void only_the_next_message_passes(void **state) {
  static const size_t kSizes[] = {0, 1, 40, 1023, 1024, 1025, 70001};
  uint8_t key[AT_SEAL_KEY] = {9}, *message = malloc(70001);
  uint8_t seals[2][AT_SEAL_BYTES];
  memset(message, 0x5a, 70001);
  for (size_t i = 0; i < AT_LEN(kSizes); i++) {
    at_bytes m = {message, kSizes[i]};
    at_seal send = at_seal_of(key);
    at_seal_next(&send, &m, 1, seals[0]);
    at_seal_next(&send, &m, 1, seals[1]);
    assert_memory_not_equal(seals[0], seals[1], AT_SEAL_BYTES);
    at_seal recv = at_seal_of(key), early = recv, shorter = recv;
    assert_true(at_seal_check(&recv, m, seals[0]));
    at_seal again = recv;
    assert_false(at_seal_check(&again, m, seals[0]));  // repeated
    assert_true(at_seal_check(&recv, m, seals[1]));
    assert_false(at_seal_check(&early, m, seals[1]));  // one is missing
    if (!m.len) continue;
    m.len--;
    assert_false(at_seal_check(&shorter, m, seals[0]));
    m.len++;
    for (size_t at = 0; at < m.len; at += 1 + m.len / 50) {
      at_seal changed = at_seal_of(key);
      message[at] ^= 1;
      assert_false(at_seal_check(&changed, m, seals[0]));
      message[at] ^= 1;
    }
    uint8_t other[AT_SEAL_KEY] = {10};
    at_seal stranger = at_seal_of(other);
    assert_false(at_seal_check(&stranger, m, seals[0]));
  }
  free(message);
}

// Once more without AVX-512, which seals may use.
int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(who_knows_the_token_meets),
      cmocka_unit_test(strangers_hear_nothing),
      cmocka_unit_test(changed_messages_are_strangers),
      cmocka_unit_test(recordings_are_of_no_use),
      cmocka_unit_test(who_does_not_fit_is_told),
      cmocka_unit_test(seals_are_as_published),
      cmocka_unit_test(long_seals_are_of_their_lanes),
      cmocka_unit_test(only_the_next_message_passes),
  };
  const int bad = cmocka_run_group_tests(tests, NULL, NULL);
  if (bad || getenv("ATOLL_CPU")) return bad;
  setenv("ATOLL_CPU", "x86-64-v3", 1);
  return execv("/proc/self/exe", argv);
}

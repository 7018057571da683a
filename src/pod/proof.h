// How two processes of a pod show each other that they know its token, which
// never travels. Bytes in, bytes out: any transport can carry it, and it waits
// for nobody.
//
// One calls, the other listens. The caller speaks first, so that who connects
// and knows no token hears nothing at all:
//
// 1. The caller: who it is, whom it wants, a nonce, and a MAC over that with
//    the token.
// 2. The listener: the same of its own, and a MAC over 1 and 2.
// 3. The caller: a MAC with the session's key.
// 4. The listener: its verdict, and a MAC with the session's key.
//
// The session's key comes of the token and of 1 and 2, so of both nonces,
// numbers and roles: nothing of one meeting is of use in another, to another
// process or in the other role. Who repeats a first message gets no answer to
// it either: it is older than the listener, the listener remembers it, or it is
// for another one.
// Behind the proof both sides have a seal for each direction, and a key with
// which TLS may begin (pod/tls.h).
//
// Errors: at_random's alone; a proof that fails is a state (at_proof_state) and
// stays so.
// Memory: states are the caller's, nothing is allocated.
// Threads: a state is used by one at a time.
#ifndef ATOLL_POD_PROOF_H_
#define ATOLL_POD_PROOF_H_

#include "base/digest.h"
#include "pod/seal.h"

enum {
  AT_TOKEN_BYTES = 32,
  AT_PROOF_NONCE = 32,
  AT_PROOF_HELLO = 128,   // bytes of messages 1 and 2,
  AT_PROOF_ANSWER = 32,   // 3,
  AT_PROOF_VERDICT = 40,  // and 4
  AT_PROOF_HEARD = 4096   // first messages that are remembered
};
// A card's call that only asks who is there: it is turned away by EPOCH.
#define AT_CALL_KNOCKS UINT32_MAX

typedef struct at_token {
  uint8_t bytes[AT_TOKEN_BYTES];
} at_token;

// What a process says of itself.
typedef struct at_card {
  uint32_t me, count;
  uint32_t epoch;  // how often the group has been formed anew
  uint32_t call;   // which of the connections between the two, the caller's say
  uint32_t tls;    // 1: goes on with TLS once both are proved; 0: without
  uint32_t zero;
  at_digest job;  // of what all have to agree on
} at_card;

// Numbers of the wire; only add.
typedef enum at_verdict {
  AT_VERDICT_WELCOME,
  AT_VERDICT_JOB,    // another `job`
  AT_VERDICT_COUNT,  // another number of processes
  AT_VERDICT_EPOCH,
  AT_VERDICT_PLACE,  // has this one's number, or none of the job's
  AT_VERDICT_TAKEN,  // there is a process of that number already
  AT_VERDICT_TLS,    // one of the two wants TLS, the other does not
  AT_VERDICTS
} at_verdict;

typedef enum at_proof_state {
  AT_PROOF_READS,     // wants more bytes
  AT_PROOF_ASKS,      // listener: the caller is proved; at_proof_decide is next
  AT_PROOF_MET,       // both are proved, and welcome
  AT_PROOF_REFUSED,   // both are proved; `verdict` says why they do not fit
  AT_PROOF_STRANGER,  // drop the connection, without a word
} at_proof_state;

// First messages that a listener has answered. Only who knows the token gets
// into it.
typedef struct at_proof_heard {
  uint8_t nonces[AT_PROOF_HEARD][16];
  uint32_t count;
} at_proof_heard;

typedef struct at_proof {
  at_proof_state state;
  at_verdict verdict;
  bool late;  // STRANGER: it knows the token, but its first message is too old
  bool astray;  // STRANGER: it knows the token, but calls another process
  at_card mine, theirs;  // theirs: once they are proved
  at_seal send, recv;    // once MET
  // What follows is the machine's own.
  at_token token;
  at_proof_heard *heard;
  uint64_t clock_ns;
  bool calls;
  uint8_t step;      // the last message sent or received
  uint32_t want_me;  // caller: whom it wants
  uint32_t have, out_bytes;
  uint8_t nonce[AT_PROOF_NONCE], session[AT_TOKEN_BYTES];
  uint8_t in[AT_PROOF_HELLO], out[AT_PROOF_HELLO];
} at_proof;

// The caller of process `to`; its first bytes are to be sent. nonce: random, of
// at_random. now_ns: of a clock that caller and listener share.
void at_proof_call(at_proof *p, const at_token *token, const at_card *mine,
                   uint32_t to, const uint8_t nonce[AT_PROOF_NONCE],
                   uint64_t now_ns);
// heard: borrowed; one for all that one listener answers. since_ns: who called
// before does not get an answer: when the listener began, less what the clocks
// of two machines may differ.
void at_proof_listen(at_proof *p, const at_token *token, const at_card *mine,
                     at_proof_heard *heard, const uint8_t nonce[AT_PROOF_NONCE],
                     uint64_t since_ns);

// Where the next bytes go and how many the proof wants now, so that none of
// what comes behind it are taken. 0: none.
size_t at_proof_room(at_proof *p, uint8_t **out);
// So many have been put there. The new state.
at_proof_state at_proof_got(at_proof *p, size_t bytes);
// ASKS: the verdict so far, PLACE, COUNT, EPOCH or JOB, is in `verdict`; this
// is the last word. MET or REFUSED follows; the bytes to send go first.
void at_proof_decide(at_proof *p, at_verdict verdict);
// What is to be sent now; borrowed until the next call. They are few: who
// cannot take all of them at once is dropped.
at_bytes at_proof_take(at_proof *p);

// MET: a key of this connection that is used for nothing else.
void at_proof_key(const at_proof *p, uint8_t out[AT_TOKEN_BYTES]);

// "process 1 (of 2) is not of this job ...": FAILED_PRECONDITION, of a REFUSED.
at_status at_proof_status(const at_proof *p);
// UNAVAILABLE: the system has no random bytes.
// Fills all of out, from the system's source. Any thread.
at_status at_random(void *out, size_t bytes);

#endif

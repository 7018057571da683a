// What the two ends of a session say to each other behind the proof, before
// their wire opens, and what they do alike.
//
// On each of its connections the caller says a request. The listener answers
// the first, of lane CONTROL, with the medium of the wire, or with an error.
// Over TCP the caller then makes the connection of lane BULK, says the same
// request there, and gets another answer. Messages are sealed, or go through
// TLS, and have at most AT_SESSION_BODY bytes.
#ifndef ATOLL_CONTROL_SESSION_INTERNAL_H_
#define ATOLL_CONTROL_SESSION_INTERNAL_H_

#include "base/digest.h"
#include "control/session.h"
#include "pod/build.h"
#include "pod/party.h"

enum {
  AT_SESSION_HEAD = 8,     // before the body of a message
  AT_SESSION_BODY = 1200,  // at most
  AT_SESSION_GROUP = 48,
  AT_SESSION_TEXT = 1024,     // of a refusal, with the zero at its end
  AT_SESSION_MEET_MS = 5000,  // for both ends, once they have agreed
};

// Bytes of the wire, little endian, as are at_session_hello's.
// The options have to be the listener's; the id of the hello joins the two
// connections of a session.
typedef struct at_session_request {
  // Who calls.
  at_session_hello hello;
  uint32_t lane;  // at_wire_lane, of this connection
  // Settings of the wire, as in at_wire_options.
  uint32_t stuck_ms, window_messages, zero;
  uint64_t max_bytes, window_bytes;
  at_digest place;  // with whom it can share memory; 0: with nobody
} at_session_request;

// Numbers of the wire; only add.
typedef enum at_session_medium {
  AT_SESSION_SHM = 1,
  AT_SESSION_TCP,
} at_session_medium;

// Longer texts are cut.
typedef struct at_session_answer {
  uint32_t version;
  uint32_t code;    // at_code; 0: come in
  uint32_t medium;  // code 0: at_session_medium
  uint32_t zero;
  char group[AT_SESSION_GROUP];  // SHM: the wire's; else empty
  char text[AT_SESSION_TEXT];    // else than code 0: why
} at_session_answer;

// Checks all of it. FAILED_PRECONDITION: another version, or nonsense.
// Neither trusts b; *out may be written in part on failure. Texts end and have
// no control characters.
at_status at_session_read_request(at_bytes b, at_session_request *out);
at_status at_session_read_answer(at_bytes b, at_session_answer *out);
// The answer that refuses; consumes why, whose text is cut where it is long.
// What it returns passes at_session_read_answer, whatever the text was.
at_session_answer at_session_refusal(at_status why);

// A message that comes in.
// All zero at first, and again after each message.
typedef struct at_session_inbox {
  // Bytes of the message that have come.
  uint32_t have;
  uint8_t bytes[AT_SESSION_HEAD + AT_SESSION_BODY + AT_SEAL_BYTES];
} at_session_inbox;

typedef enum at_session_news {
  AT_SESSION_WAITS,  // for more bytes
  AT_SESSION_CAME,
  AT_SESSION_LOST,  // it has ended, or what came is no message
} at_session_news;

// Of a party that is proved, and behind the handshake of TLS where there is
// one. Reads no byte behind the message. *body: of the inbox.
at_session_news at_session_hear(at_party *p, at_session_inbox *in,
                                at_bytes *body);
// False: it has ended, or does not take it at once.
// body: 1 to AT_SESSION_BODY bytes. Does not wait.
bool at_session_say(at_party *p, at_bytes body);

// Its side of the proof. me: 0 listens, 1 calls.
// What both ends must agree on: that this is a session, which lane, and whether
// TLS follows.
at_card at_session_card(uint32_t me, uint32_t lane, bool tls);
// A clock that all machines share, more or less.
uint64_t at_session_clock_ns(void);
// Where this process can share memory, and as which user; 0: nowhere, as
// ATOLL_POD_WIRE wants it.
// Equal digests mean that a wire over shared memory works.
at_digest at_session_place(void);
// Opens the wire that the answer names. o: me, sink and settings. parties:
// [AT_WIRE_LANES], proved; those of TCP become the wire's, also on failure.
at_status at_session_wire(const at_wire_options *o, const at_session_answer *a,
                          at_party *parties, at_wire **out);

#endif

// A connection that is being proved (pod/proof.h), and then goes on with TLS or
// with seals: what every poll loop needs in which processes meet. Nothing here
// waits: who cannot take, at once, the few bytes that are said is dropped.
//
// Guests are the parties that have called, in a table of fixed size.
//
// Errors: none is returned: a party that fails is dropped, and its place is
// free.
// Memory: tables are the caller's.
// Threads: the one of the poll loop.
#ifndef ATOLL_POD_PARTY_H_
#define ATOLL_POD_PARTY_H_

#include "pod/address.h"
#include "pod/proof.h"
#include "pod/tls.h"

// A connection to another process, blocking. fd -1: there is none.
struct at_pod_link {
  int fd;
  at_seal send, recv;
  at_tls *tls;  // behind its handshake; NULL: in clear, with seals
};
typedef struct at_pod_link at_pod_link;
// Closes the connection and frees its TLS state; safe to call again.
void at_pod_link_close(at_pod_link *l);

typedef struct at_party {
  int fd;             // -1: none
  bool connecting;    // a call that the other end has not taken yet
  uint64_t until_ns;  // it has time until then
  at_proof proof;
  at_tls *tls;  // proved, and in the handshake of TLS, or behind it
  bool cut;     // in TLS: the connection has ended
} at_party;

// Begins to call one resolved address; it is `connecting` then. False, with
// errno: the system refuses.
bool at_party_ring(at_party *p, const struct addrinfo *to);
// Of one `connecting` whose socket can be written to: ends that. False, with
// errno: nobody answers there.
bool at_party_arrived(at_party *p);
// Sends what the proof, which the user has begun (at_proof_call,
// at_proof_listen), has to say. False: the connection has ended, or does not
// take it at once.
bool at_party_say(at_party *p);
// Reads what the proof wants and there is; says what it answers.
at_proof_state at_party_hear(at_party *p);
// Behind the proof. at_tls_create's failures.
at_status at_party_begin_tls(at_party *p);
// BROKEN also where the connection has ended.
at_tls_state at_party_shake(at_party *p);
// Of one BROKEN: why, DATA_LOSS.
at_status at_party_broken(const at_party *p);
// The bytes behind TLS's handshake, for at_tls_read and at_tls_write.
at_tls_io at_party_io(at_party *p);
// Behind all of that: hands the connection over. UNAVAILABLE: the system
// refuses; it stays the party's.
at_status at_party_link(at_party *p, at_pod_link *out);
void at_party_drop(at_party *p);  // also one without a connection
// The other end has not hung up, as far as is known here.
bool at_party_is_open(int fd);

enum {
  AT_GUESTS = 256,     // that have connected and are not proved yet, at most
  AT_GUEST_MS = 5000,  // for a guest to prove itself
  AT_GUEST_SKEW_MS = 60000,  // that the clocks of two machines may differ
};

typedef struct at_guests {
  at_party all[AT_GUESTS];
  uint64_t
      strangers;  // dropped before they had proved that they know the token
} at_guests;

// No guests.
void at_guests_init(at_guests *g);
// The next who has connected, in a place of its own, for its proof to begin;
// the listener does not block. Where all are taken, who has waited longest
// goes, and who has shown that it knows the token goes last. NULL: nobody now.
at_party *at_guests_next(at_guests *g, int listener);
// Drops one that proves nothing.
void at_guests_turn_away(at_guests *g, at_party *p);
// Turns away those whose time (until_ns, by at_clock_ns) is over.
void at_guests_drop_late(at_guests *g, uint64_t now_ns);
// Closes the connections of all; none is counted as a stranger.
void at_guests_drop_all(at_guests *g);

#endif

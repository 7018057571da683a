// Sessions: a wire of two (pod/wire.h) between a process that listens and one
// that calls it; any number may call, at any time. On one machine it goes
// through shared memory, else over TCP, with TLS unless the network is trusted
// (ATOLL_POD_NETWORK). Both ends prove the token (pod/proof.h) first: strangers
// get no byte, change nothing, and cost a place in a table of fixed size.
//
// The listener is member 0 of the wire, the caller member 1. Thread-safe.
#ifndef ATOLL_CONTROL_SESSION_H_
#define ATOLL_CONTROL_SESSION_H_

#include "pod/proof.h"
#include "pod/wire.h"

// What a caller says of itself. Numbers of the wire; only add.
typedef enum at_session_kind {
  AT_SESSION_CLIENT = 1,  // runs programs
  // Hosts call their controller, and clients call hosts.
  AT_SESSION_HOST,  // has chips
  AT_SESSION_TOOL,  // asks and orders (atoll pod status)
} at_session_kind;

// Of what is said before the wire opens; bytes of a name; sessions of a
// listener at most.
enum { AT_SESSION_VERSION = 1, AT_SESSION_NAME = 96, AT_SESSION_MOST = 1024 };

// It goes over the wire as it is: no padding. name is checked for control
// characters.
typedef struct at_session_hello {
  uint32_t version;  // AT_SESSION_VERSION
  uint32_t kind;     // at_session_kind
  // The same on both connections of a session over TCP.
  uint64_t id;  // random, of this session
  uint32_t pid;
  uint32_t build;  // at_pod_build(); others are turned away
  uint32_t uid;    // of its user, as it says
  uint32_t zero;
  char name[AT_SESSION_NAME];  // for people; ends with a zero
} at_session_hello;

// Calls of a listener, from threads of its own; several at a time.
typedef struct at_listener_calls {
  void *arg;
  // Somebody who has proved the token wants to come in. Fills in where its
  // messages go and *out_peer, which the other calls are given. An error turns
  // the caller away, and its code and text reach it.
  at_status (*ask)(void *arg, const at_session_hello *hello, at_wire_sink *sink,
                   void **out_peer);
  // The wire is open; the peer's to close. Its sink may have been called
  // before.
  // Once for each ask that was granted, or `broken` once.
  void (*opened)(void *arg, void *peer, at_wire *w);
  // It could not be opened after all: no call of the sink comes any more.
  // Consumes why.
  void (*broken)(void *arg, void *peer, at_status why);
} at_listener_calls;

// A thread with a poll loop, and one for each session that opens.
typedef struct at_listener at_listener;

// Copied; the address and source are borrowed for at_listener_open alone.
typedef struct at_listener_options {
  const char *address;  // "host:port"; port 0: any that is free
  const char *source;   // who says so: a variable or an option, for messages
  at_token token;
  // Of every session's wire; 0: as pod/wire.h has them.
  uint32_t stuck_ms;
  uint64_t max_bytes, window_bytes;
  uint32_t window_messages;
  at_listener_calls calls;
} at_listener_options;

// INVALID_ARGUMENT, UNAVAILABLE: the address; FAILED_PRECONDITION: it is not of
// this machine, and there is no libssl and the network is not trusted.
// Calls may come before it returns. *out is written on success only, and is the
// caller's to close.
at_status at_listener_open(const at_listener_options *o, at_listener **out);
// "host:port", where callers of any machine that reaches the address find it.
// Lives as long as the listener.
const char *at_listener_address(const at_listener *l);
// How many connections were dropped that did not prove the token.
// Since the listener was opened.
uint64_t at_listener_strangers(const at_listener *l);
// No call comes any more when this returns; wires stay open. Sessions that are
// on their way in are `broken`, or still `opened`: it waits for their calls,
// for 5 s at most beside these. Not from a call of the listener's. NULL:
// nothing.
void at_listener_close(at_listener *l);

// Borrowed for the call, but for what the sink points to.
typedef struct at_session_options {
  const char *address, *source;  // "host:port" of a listener
  at_token token;
  at_session_hello hello;     // but kind and name it is filled in
  uint32_t timeout_ms;        // until it answers; 0: 10,000
  bool at_once;               // where nobody listens, that is said at once
  bool (*interrupted)(void);  // NULL, or asked now and then: true: give up
  uint32_t stuck_ms;
  uint64_t max_bytes, window_bytes;  // as the listener's, or it refuses
  uint32_t window_messages;
  at_wire_sink sink;
} at_session_options;

// *out is set before the first call of the sink.
//   INVALID_ARGUMENT     the address stands for nothing
//   UNAVAILABLE          nobody listens there, or who does has not let this one
//                        in until the timeout
//   PERMISSION_DENIED    who listens there does not know the token
//   CANCELLED            interrupted
//   FAILED_PRECONDITION  another version or build, other options, or no libssl
//   others               the listener's `ask`
// Blocks; repeats its attempts until somebody answers or timeout_ms is over.
// The wire is the caller's to close. *out is NULL on failure.
at_status at_session_open(const at_session_options *o, at_wire **out);

// For sinks whose messages are blocks of malloc, which they free.
// at_wire_sink.place. NULL: no memory, and the wire is lost.
void *at_session_block(void *arg, uint32_t from, const at_wire_head *head);
// Frees what at_session_block gave; for messages that end early.
void at_session_unblock(void *arg, uint32_t from, const at_wire_head *head,
                        void *body);

#endif

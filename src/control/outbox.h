// Messages to one peer from threads that must not wait: what the wire does not
// take at once goes later, in order, on a thread of the outbox. Thread-safe.
#ifndef ATOLL_CONTROL_OUTBOX_H_
#define ATOLL_CONTROL_OUTBOX_H_

#include "pod/wire.h"

// Between creating and opening it collects; then it sends at once where nothing
// waits and the wire has room.
typedef struct at_outbox at_outbox;

// RESOURCE_EXHAUSTED. Its thread starts with the first message that has to wait
// for an open wire.
at_status at_outbox_create(at_outbox **out);
// Where it sends; what was posted before goes now. Borrowed until
// at_outbox_stop. Once.
void at_outbox_open(at_outbox *o, at_wire *w, uint32_t member);

// A message for the peer, in one of the two lanes.
typedef struct at_outbox_post {
  at_wire_lane lane;
  at_wire_out message;  // its parts are copied where they have to wait
  // NULL, or called once the message is in the wire, or will never be: from
  // this thread or the outbox's. With it the parts are borrowed until then.
  void (*sent)(void *arg);
  void *arg;
} at_outbox_post;
// What cannot be sent (the peer is lost, or no memory) is dropped; `false`: it
// was, and is said in the log where it was memory.
// `sent` is called in either case, exactly once.
bool at_outbox_send(at_outbox *o, const at_outbox_post *p);
// How many messages wait. Any thread.
uint32_t at_outbox_waiting(const at_outbox *o);
// Nothing is sent from now on, and what waits is dropped.
// Joins its thread; not from a `sent`. The wire may be closed afterwards.
void at_outbox_stop(at_outbox *o);
void at_outbox_free(at_outbox *o);  // stops it; NULL: nothing

#endif

// Named objects of a pod: arrays that outlive the client that made them, until
// somebody discards them or a host of theirs is lost. Of any thread.
//
// Errors: asking fails when the controller is gone, else the answer has the
// error.
// Memory: names are borrowed for the call; an at_asked is the caller's to take.
#ifndef ATOLL_CONTROL_NAMED_H_
#define ATOLL_CONTROL_NAMED_H_

#include "base/strbuf.h"
#include "control/client.h"

// A question that the controller answers.
typedef struct at_asked at_asked;
// Waits, and frees it. What was asked for is appended to *out, which may be
// NULL. UNAVAILABLE: the controller is lost.
at_status at_asked_wait(at_asked *a, at_strbuf *out);

// All views are borrowed for the call.
typedef struct at_named_keep {
  at_str name, label;      // label may be empty
  at_bytes about;          // comes back with a fetch, as it is
  const uint64_t *arrays;  // names of the client
  uint32_t num_arrays;
  uint64_t bytes;  // of all shards, for people
  bool moves;      // the client uses the arrays no more: they are not copied
} at_named_keep;
// An object of that name is replaced once all hosts have the new one. The
// answer: RESOURCE_EXHAUSTED, DATA_LOSS or an array's own error where it is not
// kept.
at_status at_named_keep_ask(at_client *c, const at_named_keep *k,
                            at_asked **out);
// The object's arrays become *first, *first + 1, ..., whoever asks drops those
// that the answer (at_msg_fetched, then `about`) speaks of. NOT_FOUND;
// DATA_LOSS: a host that had a part of it is lost. takes: nobody finds it any
// more, and nothing is copied.
at_status at_named_fetch_ask(at_client *c, at_str name, bool takes,
                             uint64_t *first, at_asked **out);
// Drops the client's arrays first, first + 1, ...; what is stored under names
// stays.
void at_named_drop(at_client *c, uint64_t first, uint32_t count);
// Removes what is stored under the name, on all hosts. NOT_FOUND.
at_status at_named_discard_ask(at_client *c, at_str name, at_asked **out);
// All named objects of the pod, of all clients.
at_status at_named_list_ask(at_client *c, at_asked **out);  // JSON

#endif

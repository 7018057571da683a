// What a process says of its spans (profile/spans.h) for a trace of the pod.
#ifndef ATOLL_CONTROL_RECORD_H_
#define ATOLL_CONTROL_RECORD_H_

#include "control/message.h"
#include "control/outbox.h"

// Begins or ends to keep them, and answers with what there is. Never waits.
// Any thread; answers as often as it is asked, each time with the spans since
// the last.
void at_record_answer(at_outbox *to, const at_msg_record *m);
// What is left, of a process that ends. Waits a second at most.
// number: of the trace that it was last asked for.
void at_record_rest(at_wire *to, uint64_t number);

#endif

// The order in which a process lets launches of several processes into the
// queues of its chips: the same on all of them, without a process that decides.
//
// First the processes of a launch tell each other that they have come to it.
// Who knows that all have proposes a time, later than all that it has heard of;
// the time of the launch is the latest that one of them proposes. A launch has
// its turn when its time is known and no earlier one can come. So one that some
// process has not come to yet keeps nothing else waiting, and what has its turn
// can run. Both go by rounds of messages, of which a process sends up to
// AT_TURN_RADIX - 1 a round: one round each up to eight processes, four up to
// 4,096.
//
// As long as all launches are of all processes, and these are few, there is a
// shorter way: everybody tells the first process, which says whose turn it is
// when all have come. The first launch of other processes ends that, for good:
// the first process tells so, behind the last turn that it gives.
//
// A launch that needs the results of another must have the later time
// everywhere. That is so where both have the same processes and all of them
// were ready for the other one first, since messages of one sender arrive in
// order; else a process is ready for it once the other has had its turn.
//
// Not thread-safe; no input or output of its own.
#ifndef ATOLL_POD_TURNS_H_
#define ATOLL_POD_TURNS_H_

#include "base/span.h"
#include "base/status.h"

enum {
  AT_TURN_RADIX = 8,
  AT_TURN_ROUNDS = 8,
  AT_TURN_HOSTS = 4096,
  AT_TURN_FEW = 16  // processes for which the first one gives turns
};

// The name of a launch, alike on all of its processes.
typedef struct at_turn_key {
  uint64_t group, program, launch;
} at_turn_key;
static inline bool at_turn_key_equal(const at_turn_key *a,
                                     const at_turn_key *b) {
  return a->group == b->group && a->program == b->program &&
         a->launch == b->launch;
}

typedef enum at_turn_saying {
  AT_TURN_ROUND,
  // To the first process, and from it.
  AT_TURN_CAME,    // to this launch
  AT_TURN_OTHER,   // a launch of other processes has come
  AT_TURN_GO,      // it is this launch's turn
  AT_TURN_ALONE,   // no more turns are given: agree among yourselves
  AT_TURN_LEAVES,  // the sender comes to no more launches
  AT_TURN_SAYINGS
} at_turn_saying;
typedef struct at_turn_post {
  at_turn_key key;
  uint64_t time;  // of rounds
  uint32_t saying;
  uint16_t round, step;  // a round sends to `step` * AT_TURN_RADIX^i after
} at_turn_post;

// A launch that has been heard of.
typedef struct at_turn at_turn;
typedef struct at_turns at_turns;

// For process `me` of `count`. send: called from within the functions below;
// `to` is a process's number. NULL: no memory.
at_turns *at_turns_create(uint32_t me, uint32_t count,
                          void (*send)(void *arg, uint32_t to,
                                       const at_turn_post *post),
                          void *arg);
void at_turns_destroy(at_turns *t);  // with all turns

// This process launches. hosts: all of its processes, ascending, this one at
// `me`; borrowed until the turn ends. user: the caller's. NULL: no memory, or
// more than AT_TURN_HOSTS.
at_turn *at_turns_begin(at_turns *t, const at_turn_key *key,
                        const uint32_t *hosts, uint32_t num_hosts, uint32_t me,
                        void *user);
// Once for each turn that was begun: the launch needs nothing any more that has
// not had its turn, or only what is to have it first anyway.
void at_turns_ready(at_turns *t, at_turn *turn);
bool at_turn_is_ready(const at_turn *turn);
// INVALID_ARGUMENT: no process sends such a post. RESOURCE_EXHAUSTED.
at_status at_turns_hear(at_turns *t, uint32_t from, at_bytes post);
// This process begins no more turns, or none that the others need to wait for.
void at_turns_leave(at_turns *t);
// Who leaves without having come to a begun turn, which so never comes, as far
// as it is for this process to tell the others; UINT32_MAX: nobody.
uint32_t at_turns_hopeless(const at_turns *t, const at_turn *turn);
// A process is lost. What it has a part in is for the caller to end.
void at_turns_lost(at_turns *t, uint32_t host);
// The launch whose turn it is; NULL: none.
at_turn *at_turns_next(const at_turns *t);
// The turn is over, or will not be waited for any more.
void at_turns_end(at_turns *t, at_turn *turn);

at_turn *at_turns_find(const at_turns *t, const at_turn_key *key);
void *at_turn_user(const at_turn *turn);  // NULL: not launched here
// A process that a begun turn waits for. UINT32_MAX: none, its time is known,
// or only the first process knows.
uint32_t at_turn_missing(const at_turns *t, const at_turn *turn);
uint32_t at_turns_count(const at_turns *t);  // those that are not over

#endif

// Groups of processes that talk over a wire, for tests of every medium. Members
// are forked; each returns 0 or the number of what failed.
#ifndef ATOLL_POD_WIRE_TEST_UTIL_H_
#define ATOLL_POD_WIRE_TEST_UTIL_H_

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/free_ports.h"
#include "pod/meet.h"
#include "pod/wire.h"
#include "pod/wire_carrier.h"

// Waits are long, as machines may be busy; what is measured is told apart from
// them.
// kMembers: of a group at most. kMs: nanoseconds of one. kWaitMs: after which a
// test gives up.
enum { kMembers = 3, kMeetMs = 30000, kMs = 1000000, kWaitMs = 20000 };

// ---- A group
// Lives in the test's process; members inherit it by fork.
typedef struct group {
  // Borrowed: the caller's buffer and texts. `group` is the name under which
  // members find each other.
  const char *medium, *addresses, *group;
  const at_wire_options *with;  // what differs from the defaults; may be NULL
  // At most kMembers.
  uint32_t count;
  // A page: words 0 and on are counters of `meet`, from word 64 on a time.
  _Atomic uint32_t *shared;  // some words that all members see
} group;

// ---- What a member receives
// A message that has come, in the order in which it did.
typedef struct letter {
  struct letter *next;
  uint32_t from;
  at_wire_head head;
  // malloc'ed by box_place; freed with the letter.
  uint8_t *body;
} letter;

// A member's wire and all that its sink has heard. Under the lock but for what
// is atomic.
typedef struct box {
  at_wire *w;
  pthread_mutex_t lock;
  pthread_cond_t news;
  letter *first, **last;
  // Counted as they happen: messages whole, messages given up by their sender,
  // and calls of `room`.
  _Atomic uint32_t messages, abandoned, rooms;
  bool hold;                 // messages keep their credits
  _Atomic bool no_place;     // memory is out
  _Atomic uint64_t slow_ns;  // that it takes for a message in BULK
  // Why each member was lost, "" while it is not, and when.
  char lost[kMembers][512];
  uint64_t lost_ns[kMembers];
  const group *group;
} box;

// NULL, once no_place is on: the wire must end the connection and say so.
// at_wire_sink's functions; arg is the box. They run on the wire's thread. This
// one gives malloc'ed memory for a body.
void *box_place(void *arg, uint32_t from, const at_wire_head *head);

// The sink's: puts the letter into the box; the credit is kept while `hold` is
// on.
// body: from box_place, the letter's from here on.
bool box_message(void *arg, uint32_t from, const at_wire_head *head,
                 void *body);

// A message that its sender has given up.
// Frees the body, of which only a part has come, and counts it.
void box_abandon(void *arg, uint32_t from, const at_wire_head *head,
                 void *body);

// Somebody who was refused may try again.
// Counted only: tests that wait for room look at `rooms`.
void box_room(void *arg, uint32_t to, at_wire_lane lane);

// Keeps the reason and the time. Consumes why.
// Messages of one member may still be in the list: it was lost after they came.
void box_lost(void *arg, uint32_t member, at_status why);

// Opens the wire of that medium, proved first where its name says so.
// Blocks until all members have come, kMeetMs at most. b must stay where it is
// until close_box. Errors: the wire's.
at_status open_box(box *b, const group *g, uint32_t me);

// Waits, under the lock, until `done`; false: too late.
typedef bool (*box_fn)(box *b, uint64_t n);
// ms: of waiting at most. n is handed on to `done`.
bool box_wait(box *b, box_fn done, uint64_t n, uint32_t ms);
// What is waited for, by box_wait, under the lock.
// n: so many, counted since the box was opened.
bool has_messages(box *b, uint64_t n);
bool has_abandoned(box *b, uint64_t n);
bool has_rooms(box *b, uint64_t n);
// n: the member.
bool has_lost(box *b, uint64_t n);

// The oldest letter, the caller's from here on; NULL: none came in time.
letter *take(box *b);

// NULL is allowed.
void free_letter(letter *m);

// Letters that nobody took go with it.
// Nothing is heard any more once the wire is closed, so the list needs no lock.
void close_box(box *b);

// ---- Members
// What a member does; 0, or the number of the check that failed.
typedef int (*member_fn)(box *b, uint32_t me);

// Names, ports and a page of memory that all members see.
// addresses: filled in, and borrowed by the group. The page is unmapped by
// `finish`.
group make_group(const char *medium, char addresses[256],
                 const at_wire_options *with, uint32_t count);

// Forks all members; those that take no part end at once.
// pids: g->count of them. Members leave by exit, so sanitizers report their
// leaks.
// Returns at once, with the members running.
void start(const group *g, member_fn fn, pid_t pids[]);

// All must end with 0, but for the one that the test has killed (UINT32_MAX:
// none).
// Members that hang are ended by the test's own time limit.
void finish(const group *g, const pid_t pids[], uint32_t killed);

// The usual course of a test: all members run fn, and all must end with 0.
void run(const char *medium, const at_wire_options *with, uint32_t count,
         member_fn fn);

// All members have come here.
// word: one per place of meeting, as the count is never set back. Not for a
// member that may be killed before.
void meet(box *b, uint32_t word);

// For as long as it takes.
static const at_wire_wait kWait = {.until_ns = UINT64_MAX};

// A message of one part. until_ns 0: at once or not at all.
// kind is 7 in all tests; the code is the wire's.
at_code send_one(box *b, uint32_t to, at_wire_lane lane, uint64_t tag,
                 const void *p, size_t n, uint64_t until_ns);

// ---- Bodies
// Differs from byte to byte, from message to message and from sender to sender,
// so a mix-up shows.
uint8_t byte_of(uint32_t from, uint64_t tag, size_t i);

// Bytes that say by whom and in which message they were sent.
// malloc'ed; the caller frees. n may be 0.
uint8_t *make_body(uint32_t from, uint64_t tag, size_t n);
// ---- Media
// In a process of its own: members are forked of one without UCX.
// True if the transport can be opened on this machine. Prints why not.
bool has_ucx(void);
// TEST [MEDIUM [TESTS]], TESTS with * and ?. The file defines TALK(medium), its
// tests that do not depend on how members meet, and SUITE(medium), all of them.
#define WIRE_TEST_MAIN()                                                    \
  int main(int argc, char **argv) {                                         \
    const char *only = argc > 1 ? argv[1] : NULL;                           \
    if (argc > 2) cmocka_set_test_filter(argv[2]);                          \
    const struct CMUnitTest shm[] = {SUITE("shm")}, tcp[] = {SUITE("tcp")}, \
                            proved[] = {TALK("sealed"), TALK("tls")},       \
                            ucx[] = {TALK("sealed ucx"), SUITE("ucx")};     \
    int bad = 0;                                                            \
    if (!only || !strcmp(only, "shm"))                                      \
      bad += cmocka_run_group_tests(shm, NULL, NULL);                       \
    if (!only || !strcmp(only, "tcp")) {                                    \
      bad += cmocka_run_group_tests(tcp, NULL, NULL);                       \
      bad += cmocka_run_group_tests(proved, NULL, NULL);                    \
    }                                                                       \
    if ((!only || !strcmp(only, "ucx")) && has_ucx())                       \
      bad += cmocka_run_group_tests(ucx, NULL, NULL);                       \
    return bad;                                                             \
  }

#endif

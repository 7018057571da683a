// What hosts.c (the sink of the wire, its watcher, opening and closing),
// hosts_wait.c (who waits for messages) and hosts_meet.c (how the processes of
// a job meet) share. Only these three include it.
#ifndef ATOLL_POD_HOSTS_INTERNAL_H_
#define ATOLL_POD_HOSTS_INTERNAL_H_

#include <pthread.h>

#include "base/linger.h"
#include "base/thread.h"
#include "pod/blocks.h"
#include "pod/failures.h"
#include "pod/hosts.h"
#include "pod/lines.h"
#include "pod/meet.h"
#include "pod/share.h"
#include "pod/wire.h"

enum {
  AT_POD_MAX_HOSTS = 1024,   // processes of a job
  AT_POD_TELL_SECONDS = 10,  // of waiting before it is said
};

// Of the wire's messages. Behind the body of each is its tag.
typedef enum at_pod_kind {
  KIND_DATA,  // an operand or piece of a collective
  KIND_FAIL,  // a launch failed: code and text
  KIND_POST,  // for the listener (at_pod_hosts_post)
  KIND_LINE,  // the three of pod/lines.h
  KIND_LINE_LAST,
  KIND_LINE_REPORT,
  KINDS
} at_pod_kind;

// A message that has come and that nobody has taken yet. It keeps its sender's
// credits until it is taken or freed by the rules below.
typedef struct at_pod_message {
  struct at_pod_message *next;
  uint32_t host;  // its sender
  at_wire_head head;
  at_hosts_tag tag;
  uint8_t *body;   // at_hosts_block, owned
  uint64_t bytes;  // of the body without the tag
} at_pod_message;

// Another process; both fields change once, from zero.
typedef struct at_pod_peer {
  bool gone;
  at_status why;  // with `gone`, owned
} at_pod_peer;

// Who waits for a message: on its own stack, in a list.
typedef struct at_pod_waiter {
  struct at_pod_waiter *next;
  uint32_t host;  // whose message
  at_hosts_tag tag;
  uint64_t since_ns;
  bool told, expired;  // by the watcher: said for people; out of time
  at_event *news;  // fires when it should look again; NULL: it does not sleep
  // Of whom messages with this tag are waited for behind it.
  const at_hosts_mail *then;
  uint32_t num_then;
} at_pod_waiter;

// Order of the locks: `agreeing` or `hearing` first, then `lock`; listeners may
// ask what needs `lock`, so it is never held while one is called.
struct at_pod_hosts {
  at_hosts face;
  at_wire *wire;
  pthread_mutex_t lock;  // what follows
  at_pod_message *first, **last;
  at_failures dropped;  // here
  at_failures told;     // what others have said of theirs
  at_pod_waiter *waiters;
  uint64_t deadline_s;  // of a wait; 0: none
  uint32_t num_lines;   // that are open
  bool closing;
  bool watched;          // by the listener
  bool ticks;            // the watcher looks at who waits every now and then
  at_pod_share *share;   // NULL: everything travels by messages
  at_unsaid *unsaid;     // failures without room: the watcher sends them
  pthread_cond_t watch;  // closing, or `unsaid`
  at_thread *watcher;
  pthread_mutex_t hearing;  // what follows; held while a listener is called
  at_pod_listener listener;
  at_pod_message *early, **early_last;  // posts that came before there was one
  at_pod_lines *lines;
  at_hosts_lines line_face;
  pthread_mutex_t agreeing;  // what follows: one agreement at a time
  uint32_t agreements;
  at_pod_blocks blocks;
  at_linger looks;  // of those who wait for messages
  bool crowded;     // nobody looks: the cores are for those who can go on
  at_pod_job job;   // with `returns`; its texts are this one's own
  at_pod_peer peers[];
};

// ---- hosts.c
// Sends the pieces, then the tag, as one message; waits for credits without an
// end. The body is borrowed. An end that is lost, and no memory for more than
// seven pieces, are no errors here: whoever waits for the process hears of the
// one, and of the other a line in the log is all.
void at_pod_hosts_send(at_pod_hosts *a, uint32_t to, at_pod_kind k,
                       const at_hosts_tag *tag, const at_bytes *body,
                       uint32_t pieces);
// Under the lock: all who wait look again.
void at_pod_hosts_wake(at_pod_hosts *a);
// True for a message of that host, launch, step, turn and round: a collective
// exchanges several times under one step.
bool at_pod_message_is_for(const at_pod_message *m, uint32_t host,
                           const at_hosts_tag *tag);
// Under the lock: how this process gave the launch up; NULL: it did not.
const at_failure *at_pod_hosts_dropped(const at_pod_hosts *a,
                                       const at_hosts_tag *tag);
// The sender may send as much more. Once for each message that kept them.
void at_pod_message_release(at_pod_hosts *a, const at_pod_message *m);
// Frees it and gives its body back to the pool; its credits are not touched.
void at_pod_message_free(at_pod_hosts *a, at_pod_message *m);
// Tells that process, from any thread: what finds no room is the watcher's to
// send later. Borrows why; no memory is logged.
void at_pod_hosts_say_failed(at_pod_hosts *a, uint32_t to,
                             const at_hosts_tag *tag, at_status why);

// ---- hosts_wait.c
// Under the lock: reports waits of AT_POD_TELL_SECONDS, once each, and marks
// those that are over. True: some are, who must be woken.
bool at_pod_hosts_look(at_pod_hosts *a);
// at_hosts.exchange, .fail, .cause, .look, .look_end and .check; arg is the
// at_pod_hosts.
at_status at_pod_hosts_exchange(void *arg, const at_hosts_tag *tag,
                                at_hosts_mail *mails, uint32_t num_mails);
void at_pod_hosts_fail(void *arg, const at_hosts_tag *tag,
                       const uint32_t *hosts, uint32_t num_hosts,
                       at_status why);
at_status at_pod_hosts_cause(void *arg, const at_hosts_tag *tag,
                             const uint32_t *hosts, uint32_t num_hosts);
bool at_pod_hosts_hear(void *arg);
void at_pod_hosts_hear_end(void *arg);
at_status at_pod_hosts_check(void *arg, const at_hosts_tag *tag, uint32_t host,
                             at_hosts_patience *p);

// ---- hosts_meet.c
// Closes what each link still holds; those that the wire took are empty.
void at_pod_links_close(at_pod_link *links, size_t n);
// The wire's medium: the job's, else shm on one machine and net on several.
// Borrowed.
const char *at_pod_job_medium(const at_pod_job *job);
// Connects all `count` processes: links[process * AT_WIRE_LANES + lane], all of
// which the caller closes, also on failure. In the epoch of those that are
// there already, where this process comes back: job->epoch says which. Errors:
// those of at_pod_meet.
at_status at_pod_job_meet(at_pod_job *job, uint32_t count, int listener,
                          at_pod_link *links);
// The name by which members find each other in shared memory. Errors: those of
// at_address_digest.
at_status at_pod_job_group(const at_pod_job *job, uint32_t count, char out[80]);

#endif

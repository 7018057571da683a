// Several hosts in one process: runtimes that talk over a list of messages in
// memory, or that share memory as processes do. For tests of programs that span
// them.
#ifndef ATOLL_PJRT_FAR_TEST_UTIL_H_
#define ATOLL_PJRT_FAR_TEST_UTIL_H_

#include <arpa/inet.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/free_ports.h"
#include "compile/compile.h"
#include "exec/exec_test_util.h"
#include "pod/hosts.h"

// Hosts are threads of the test with a runtime each; only far_share_test.c has
// processes. Sizes are bounds of the tables below.
// Values: arguments or results of one device.
enum { kMostHosts = 4, kMostChips = 16, kMostValues = 8 };

// A test opens a job of some hosts (job_open), makes a program with its
// arguments, runs it on all hosts at once (job_run) and compares the outcome
// with that of one host (outcome_equal).
// ---- The network
// A message on its way; the list keeps the order in which they were sent.
typedef struct parcel {
  struct parcel *next;
  // Numbers of hosts.
  uint32_t from, to;
  at_hosts_tag tag;
  size_t bytes;
  // at_hosts_block's: a receiver that keeps it frees it so.
  uint8_t *body;
} parcel;

// All messages of a job that nobody has taken yet.
// Senders and receivers are threads of one process; a message is a copy all the
// same.
typedef struct network {
  pthread_mutex_t lock;
  // Replaced each time it fires.
  at_event *news;  // fires with the next parcel, or a failure
  parcel *first, **last;
  // By net_fail; never taken back.
  bool failed;
} network;

// One host of a job: a runtime and the face by which it talks to the others.
typedef struct host {
  network *net;
  // What the runtime sees of the network: a copy of the pod's where hosts share
  // memory.
  at_hosts face;
  at_runtime *rt;
} host;

// ---- Shared memory
// One of the processes that meet, in a thread of its own.
typedef struct meeting {
  // Of all processes of the job, and this one's number among them.
  const char *addresses;
  uint32_t me;
  at_pod_hosts *out;
} meeting;

// A job of processes on this machine that share memory.
// Borrows the addresses.
at_pod_job pod_job(const char *addresses, uint32_t me);

// out[i] is the caller's to close. All of them must be able to share memory.
// All meet at the same time, so each is opened by a thread of its own.
void open_pods(uint32_t hosts, at_pod_hosts **out);

// ---- The job
// Hosts that run programs together.
typedef struct job {
  network net;
  // num_chips: of the whole job.
  uint32_t num_hosts, num_chips;
  // pods: NULL where hosts talk by messages.
  host hosts[kMostHosts];
  at_pod_hosts *pods[kMostHosts];
} job;

// How the jobs that are opened next talk to each other.
// Set by a test before job_open; not reset.
extern bool jobs_share;  // memory; else they talk by messages

// Each host gets a runtime of two threads and its part of the target's chips.
// One host alone has nobody to talk to.
// target: as ATOLL_TARGET has it, with chips for all hosts. hosts: 1 to
// kMostHosts.
void job_open(job *j, const char *target, uint32_t hosts);

// After runs without a failure nothing may be left in the network.
void job_close(job *j);

// ---- A program
// Device d of the program is chip[d]. Values of all devices; those of an
// argument, or a result, one behind the other.
typedef struct program {
  // The executable; borrowed from the test.
  at_bytes block;
  // At most kMostChips, kMostValues and kMostValues.
  uint32_t num_devices, num_args, num_results;
  uint32_t chip[kMostChips];
  // Of arguments: their types, dimensions and ranks.
  at_dtype dtype[kMostValues];
  int64_t dims[kMostValues][2];
  uint32_t rank[kMostValues];  // 0: two
  // By device and argument; owned.
  uint8_t *args[kMostChips][kMostValues];
  // How often each host launches it; the last results count.
  uint32_t launches;  // 0: one
} program;

// What all hosts' devices have made; freed by outcome_free.
typedef struct outcome {
  // By device and result; NULL: the device has made none.
  uint8_t *results[kMostChips][kMostValues];
  // Of each result, alike on all devices.
  size_t bytes[kMostValues];
  // Bytes that collectives have handed to the network.
  uint64_t sent;  // by all hosts
  uint32_t ran;   // devices
} outcome;

// What one host has to do, and how it went.
typedef struct errand {
  const host *h;
  const program *p;
  outcome *out;
  uint64_t sent;
  // 0: it went well.
  at_code code;
  char why[300];
} errand;

// run_errand in a thread: its code and text go into the errand.
// A pthread's function; arg is the errand, which must outlive the thread.
void *errand_thread(void *arg);

// On all hosts at once. The code, and text in `why`, of the first that failed.
// Returns when all hosts are done; no host is left in a collective. *out is
// overwritten.
at_code job_run(job *j, const program *p, outcome *out, char why[300]);

// The outcome itself is the test's.
void outcome_free(outcome *o);

// Bit by bit, over all devices and results of the program.
// Sizes are a's; b must have every result.
void outcome_equal(const program *p, const outcome *a, const outcome *b);

#endif

// One order of launches for the processes of a job: programs that several of
// them run enter the queues of chips in the same order everywhere, whatever the
// order in which the threads of each launch them.
//
// The scheduler of the job is the process with the least number that is not
// lost. It decides the order and tells it; posts of one sender arrive in order.
// For a program of its own it decides when it launches it itself; for one that
// it has no part in, when the first of the program's processes asks. A process
// that launches a program before it has heard its turn holds the launch, and so
// everything that needs its results; all else goes on. A process that hears of
// a launch which it has not made yet holds later ones until it does.
//
// When the scheduler is lost, what is held goes on in an order that all
// processes find by themselves, and the next one takes its place.
#ifndef ATOLL_POD_ORDER_H_
#define ATOLL_POD_ORDER_H_

#include "exec/exec.h"
#include "pod/hosts.h"

typedef struct at_order at_order;

// hosts: borrowed; of several processes. Thread-safe.
at_status at_order_create(at_pod_hosts *hosts, at_order **out);
// What is held goes on first: its failures, where the others are gone, are its
// results'.
void at_order_destroy(at_order *o);

// Takes over a task of at_launch_begin for this launch: enqueues it on all its
// chips, now or when its turn comes.
void at_order_enqueue(at_order *o, at_task *t, const at_launch *launch);
// Launches that are held now; for tests.
uint32_t at_order_held(at_order *o);

#endif

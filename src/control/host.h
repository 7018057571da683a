// A host of a pod: a process with chips, which clients drive through the
// controller (control/controller.h). It runs what the stream says in its order,
// and talks to clients about the bytes of arrays.
//
// Threads: at_host_run keeps the one that calls it.
#ifndef ATOLL_CONTROL_HOST_H_
#define ATOLL_CONTROL_HOST_H_

#include "base/status.h"
#include "pod/proof.h"

// Texts are borrowed for the call.
// Borrowed until at_host_run returns.
typedef struct at_host_options {
  const char *controller;  // "host:port"
  const char *listen;      // "host:port" for clients; port 0: any
  const char *pod;         // "host:port" for other hosts; port 0: any
  at_token token;
  bool token_of_user;         // on this machine only
  int32_t place;              // which host of the pod it wants to be; -1: any
  uint32_t timeout_ms;        // to find the controller; 0: 120,000
  bool (*interrupted)(void);  // asked now and then: true: end
} at_host_options;

// Takes part until the controller ends or says so, or it is interrupted: then
// OK. UNAVAILABLE: the controller is lost. All else: it could not take part.
// It sets the process's target to the part that its chips are of, so a process
// runs one host. Sessions, arrays and threads are gone when it returns.
at_status at_host_run(const at_host_options *o);

#endif

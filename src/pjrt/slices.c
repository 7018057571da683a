// Slices of virtual devices (atoll.make_virtual_device_set), for the Python
// package: the client of a pod lists more devices than the pod has chips, and
// atoll/_virtual.py keeps those from jax.devices() that no slice has.
#include <stdio.h>

#include "pjrt/pjrt_internal.h"

static int said(at_status st, char *why, size_t why_bytes) {
  if (st.err) snprintf(why, why_bytes, "%s", at_status_message(st));
  return at_code_take(st);
}

// Numbers of the spare devices, and how many slices the pod's own chips are in.
// Zeros: there is no pod.
static void count(uint32_t *first, uint32_t *spares, uint32_t *islands) {
  PJRT_Client *c = at_pjrt_pod_client();
  *first = *spares = *islands = 0;
  if (!c) return;
  *first = c->topology->num_devices;
  *spares = c->num_devices - *first;
  for (uint32_t i = 0; i + at_client_spares(c->pod) < c->num_devices; i++)
    *islands = AT_MAX(*islands, c->topology->devices[i].info.slice_index + 1);
}

// *wish is filled and devices[] get the slice's numbers, as at_client_add_slice
// has it.
static int add(at_msg_slice *wish, uint32_t *devices, char *why,
               size_t why_bytes) {
  at_client *pod = at_pjrt_pod_now();
  if (!pod)
    return said(AT_FAIL(AT_FAILED_PRECONDITION, "there is no pod"), why,
                why_bytes);
  return said(at_client_add_slice(pod, wish, devices), why, why_bytes);
}

static void close_slice(uint64_t slice) {
  at_client *pod = at_pjrt_pod_now();
  if (pod) at_client_close_slice(pod, slice);
}

// False: the device stands for no chip at present.
static bool find(uint32_t device, uint32_t *chip, uint32_t *host) {
  const at_client *pod = at_pjrt_pod_now();
  return pod && at_client_find_chip(pod, device, chip, host);
}

const at_pjrt_slice_calls at_pjrt_slices = {
    .count = count, .add = add, .close = close_slice, .find = find};

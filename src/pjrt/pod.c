// A client of a pod under one controller (ATOLL_POD): its chips are those of
// the pod's hosts.
#include <stdio.h>
#include <unistd.h>

#include "base/config.h"
#include "base/cpu.h"
#include "compile/compile.h"
#include "control/token.h"
#include "estimate/estimate.h"
#include "pjrt/pjrt_internal.h"

// "python train.py", for whoever looks at the pod.
static void name_process(char *out, size_t size) {
  FILE *f = fopen("/proc/self/cmdline", "re");
  size_t n = f ? fread(out, 1, size - 1, f) : 0;
  if (f) fclose(f);
  while (n && !out[n - 1]) n--;
  out[n] = 0;
  for (size_t i = 0; i < n; i++)
    if (!out[i]) out[i] = ' ';
}

// Spare devices are asked for only where the package can hide them from
// jax.devices(). Compiled code is limited to what the hosts' CPUs have in
// common.
at_status at_pjrt_pod_open(at_client **out) {
  at_client_options o = {.address = at_config_text(AT_CONFIG_POD),
                         .source = "ATOLL_POD",
                         .interrupted = at_pjrt_interrupted};
  char name[96], file[4000];
  *out = NULL;
  if (!*o.address) return AT_OK;
  name_process(name, sizeof name);
  o.name = name;
  o.spares = (uint32_t)at_config_uint(AT_CONFIG_POD_SPARES);
  if (o.spares && !at_pjrt_python_hides_spares()) o.spares = 0;
  at_cache_file("pod.token", file, sizeof file);
  AT_TRY(at_control_token(file, &o.token, NULL));
  AT_TRY(at_client_open(&o, out));
  // Programs are made for the hosts' CPUs.
  at_cpu_limit(at_client_cpu(*out));
  return AT_OK;
}

bool at_pjrt_pod_drains(uint32_t device) {
  const at_client *pod = at_pjrt_pod_now();
  return pod && at_client_drains(pod, device);
}

// How often a step of the program has a collective.
static double collectives(const at_estimate *e) {
  double n = 0;
  for (uint32_t i = 0; i < e->num_ops; i++)
    if (e->ops[i].network && !e->ops[i].host_link) n += e->ops[i].count;
  return n;
}

// Writes the estimate into the executable's header, where simulated hosts read
// it. Collectives over several hosts add the time in which messages meet.
at_status at_pjrt_pod_predict(at_bytes program, at_bytes executable) {
  const at_client *pod = at_pjrt_pod_now();
  at_xheader *h = (at_xheader *)(uintptr_t)executable.ptr;
  const at_client_pace pace =
      pod ? at_client_pace_of(pod) : (at_client_pace){0};
  if (!pace.target) return AT_OK;
  at_arena *a = at_arena_create();
  at_estimate *e;
  const at_estimate_options o = {.target = pace.target,
                                 .mode = AT_INTERP_ATOLL,
                                 .bandwidth = pace.bandwidth,
                                 .num_replicas = h->num_replicas,
                                 .num_partitions = h->num_partitions};
  at_status st = at_estimate_run(program, &o, a, &e);
  if (!st.err) h->estimated_ns = e->seconds * 1e9;
  if (!st.err && h->num_replicas * h->num_partitions > pace.chips_per_host)
    h->estimated_ns += collectives(e) * (double)pace.meet_ns;
  at_arena_destroy(a);
  return at_status_prefix(st, "what the program takes on the simulated pod");
}

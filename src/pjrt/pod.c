// A client of a pod under one controller (ATOLL_POD): its chips are those of
// the pod's hosts.
#include <stdio.h>
#include <unistd.h>

#include "base/config.h"
#include "base/cpu.h"
#include "compile/compile.h"
#include "control/token.h"
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

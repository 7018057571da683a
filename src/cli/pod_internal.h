// What the files of `atoll pod` share.
#ifndef ATOLL_CLI_POD_INTERNAL_H_
#define ATOLL_CLI_POD_INTERNAL_H_

#include "base/json.h"
#include "cli/pod_processes.h"
#include "control/simulate.h"
#include "control/tool.h"
#include "pod/proof.h"

// at_control_token's failures: the token that a pod's processes prove
// themselves by.
at_status at_pod_token(at_token *out);
// The pod that is meant (--pod=, ATOLL_POD); no other option is left.
// INVALID_ARGUMENT: neither names a pod, or an option is left.
at_status at_pod_which(int *argc, char **argv, at_tool_options *o);
// What a pod says of itself, in `a`. watch_ms: hosts measure launches for so
// long.
at_status at_pod_ask_status(const at_tool_options *o, uint64_t watch_ms,
                            at_arena *a, const at_json **out);
// The name of a user of this machine, else "user 1000".
const char *at_pod_user_text(int64_t uid, char out[64]);
// ---- Words of `atoll pod`: argv[1] is the word
at_status at_pod_status(int argc, char **argv);
at_status at_pod_top(int argc, char **argv);
at_status at_pod_page(int argc, char **argv);
at_status at_pod_trace(int argc, char **argv);
at_status at_pod_drain(int argc, char **argv);
at_status at_pod_down(int argc, char **argv);
at_status at_pod_logs(int argc, char **argv);
at_status at_pod_objects(int argc, char **argv);

// Simulated hosts: takes the options of `atoll pod up --simulate` out of argv;
// *out_is: that was among them. INVALID_ARGUMENT: one of them without it.
// o's charges, cores and network are set; the rest is the caller's.
at_status at_pod_simulate_options(int *argc, char **argv,
                                  at_simulated_options *o, bool *out_is);
// Says on stderr what virtual time is made of. o: target and num_hosts as well.
// at_simulated_create's failures; *out is the caller's.
at_status at_pod_simulate(at_simulated_options *o, at_simulated **out);

#endif

// What the files of `atoll pod` share.
#ifndef ATOLL_CLI_POD_INTERNAL_H_
#define ATOLL_CLI_POD_INTERNAL_H_

#include "cli/pod_processes.h"
#include "pod/proof.h"

at_status at_pod_token(at_token *out);
at_status at_pod_status(int argc, char **argv);
at_status at_pod_top(int argc, char **argv);
at_status at_pod_down(int argc, char **argv);
at_status at_pod_logs(int argc, char **argv);
at_status at_pod_objects(int argc, char **argv);

#endif

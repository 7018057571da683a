// The token of a pod under one controller: ATOLL_POD_TOKEN_FILE's, or that of
// this user's processes on this machine.
//
// Errors: INVALID_ARGUMENT for a file without a token in it, or one that others
// may read; UNAVAILABLE without random bytes.
//
// Threads: any.
#ifndef ATOLL_CONTROL_TOKEN_H_
#define ATOLL_CONTROL_TOKEN_H_

#include "pod/proof.h"

// user_file: at_token_of_user's. *of_user (may be NULL): it is that one.
// *out is written on success only.
at_status at_control_token(const char *user_file, at_token *out, bool *of_user);

#endif

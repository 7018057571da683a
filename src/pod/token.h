// Where the token of a pod comes from: 32 bytes that all its processes know and
// nobody else.
//
// Errors: UNAVAILABLE without random bytes; INVALID_ARGUMENT for what is no
// token; PERMISSION_DENIED for a file that others may read.
// Threads: any.
#ifndef ATOLL_POD_TOKEN_H_
#define ATOLL_POD_TOKEN_H_

#include "pod/proof.h"

enum { AT_TOKEN_TEXT = 2 * AT_TOKEN_BYTES };  // hexadecimal digits

at_status at_token_make(at_token *out);  // a random one
// AT_TOKEN_TEXT lower-case hexadecimal digits and a NUL.
void at_token_write(const at_token *t, char out[AT_TOKEN_TEXT + 1]);
// INVALID_ARGUMENT: it is not what at_token_write writes.
at_status at_token_parse(at_str text, at_token *out);

// The token that a file stands for: a digest of what is in it, without blanks
// and ends of line behind it. `source` is who named the file.
//   NOT_FOUND            cannot be opened
//   PERMISSION_DENIED    others than its owner may read or write it, or it is
//                        another user's (but root's)
//   INVALID_ARGUMENT     no file, or fewer than 16 bytes, or more than 4,096
at_status at_token_read(const char *path, const char *source, at_token *out);
// The token of this user's processes, from a file that the first of them makes.
at_status at_token_of_user(const char *path, at_token *out);

#endif

// Checkpoints of a client's arrays, which the hosts of a pod write and read
// themselves: one message for each. Of any thread.
//
// Errors: asking fails when the controller is gone; what the hosts find comes
// with the answer.
// Memory: paths and names are borrowed for the call; an at_asked is the
// caller's to take.
#ifndef ATOLL_CONTROL_FILES_H_
#define ATOLL_CONTROL_FILES_H_

#include "control/message.h"
#include "control/named.h"

// What is to be saved or restored; borrowed for the call.
typedef struct at_files_ask {
  at_str path;             // a folder, absolute, on the hosts' file systems
  at_str folder;           // below it, where a SAVE writes; may be empty
  at_bytes about;          // comes back with PEEK, as text
  at_bytes cuts;           // at_msg_cut, one after another; their arrays are 0
  uint32_t num_arrays;     // of them
  const uint64_t *arrays;  // SAVE: names of the client
} at_files_ask;

// SAVE: the arrays as they are now. The answer comes when the files are on the
// disk and the manifest is written; until then, and where it is an error, what
// was in `path` before stays as it was.
// RESTORE: the arrays are *first, *first + 1, ... at once; the answer comes
// when they have been read, and is the first error of any, which names the
// file. PEEK: the answer brings at_manifest_summary's JSON. INVALID_ARGUMENT: a
// path, a name or a cut that cannot be.
// The call returns when the message is on its way. *out is written on success
// only.
at_status at_files_save_ask(at_client *c, const at_files_ask *f,
                            at_asked **out);
// f is read during the call. *first is written in any case; on failure no array
// of these names exists.
at_status at_files_restore_ask(at_client *c, const at_files_ask *f,
                               uint64_t *first, at_asked **out);
// What a checkpoint holds, without reading its arrays.
// The controller asks one host for it. NOT_FOUND comes with the answer.
at_status at_files_peek_ask(at_client *c, at_str path, at_asked **out);

#endif

// The files of a checkpoint, on a host.
#ifndef ATOLL_CONTROL_TILE_FILE_H_
#define ATOLL_CONTROL_TILE_FILE_H_

#include "control/cut.h"
#include "control/manifest.h"

// An error number as a status that names the file.
at_status at_file_failed(const char *what, const char *path, int error);
// A file that is not there yet, with the folders around it; it is on the disk
// when this returns. sums: at_manifest_sums of them, or NULL.
at_status at_file_write(const char *path, at_bytes data, uint64_t *sums);
// Makes what a folder says durable.
at_status at_folder_sync(const char *path);
// Of this user, and no link. DATA_LOSS: a manifest that is too large.
// Text and arena are the caller's to destroy, also after a failure.
at_status at_manifest_read(at_str folder, at_arena **arena, at_manifest *out);

// The part of an array that a shard of `cut` has, into `to`: dense, of
// at_cut_tile_bytes. Reads what it needs of the files, and checks it.
// NOT_FOUND, INVALID_ARGUMENT: the checkpoint has another array.
at_status at_tile_read(at_str path, const at_manifest *m, const at_cut *cut,
                       const int64_t *tile, uint8_t *to);

// Writes the manifest of a SAVE, of which hosts have saved all parts, and
// removes folders of saves before. DATA_LOSS: a part is missing.
at_status at_save_commit(const at_msg_commit *m);
void at_save_abandon(const at_msg_commit *m);

#endif

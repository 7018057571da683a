// The files of a checkpoint, on a host.
#ifndef ATOLL_CONTROL_TILE_FILE_H_
#define ATOLL_CONTROL_TILE_FILE_H_

#include "control/cut.h"
#include "control/manifest.h"

// An error number as a status that names the file.
// what: "reading", "writing", ...; never OK.
at_status at_file_failed(const char *what, const char *path, int error);
// A file that is not there yet, with the folders around it; it is on the disk
// when this returns. sums: at_manifest_sums of them, or NULL.
// ALREADY_EXISTS: it is there; others as at_file_failed says. What was written
// stays on failure.
at_status at_file_write(const char *path, at_bytes data, uint64_t *sums);
// Makes what a folder says durable.
// That is, which files it has.
at_status at_folder_sync(const char *path);
// Of this user, and no link. DATA_LOSS: a manifest that is too large.
// Text and arena are the caller's to destroy, also after a failure.
// *arena may be NULL after a failure. NOT_FOUND: there is no checkpoint.
at_status at_manifest_read(at_str folder, at_arena **arena, at_manifest *out);

// The part of an array that a shard of `cut` has, into `to`: dense, of
// at_cut_tile_bytes. Reads what it needs of the files, and checks it.
// NOT_FOUND, INVALID_ARGUMENT: the checkpoint has another array.
// tile: [rank], of the cut. DATA_LOSS: a file is damaged, which is named. `to`
// may be written in part on failure.
at_status at_tile_read(at_str path, const at_manifest *m, const at_cut *cut,
                       const int64_t *tile, uint8_t *to);

// Writes the manifest of a SAVE, of which hosts have saved all parts, and
// removes folders of saves before. DATA_LOSS: a part is missing.
// m has been checked, and its SAVE and results follow it. On failure the files
// of this save are removed, and the checkpoint that was there before stays.
at_status at_save_commit(const at_msg_commit *m);
// Removes what this save has written, where it had a folder of its own.
void at_save_abandon(const at_msg_commit *m);

#endif

// Folders of the file system.
//
// Threads: any.
#ifndef ATOLL_BASE_FOLDER_H_
#define ATOLL_BASE_FOLDER_H_

#include <sys/stat.h>

// Makes the folder and those around it, as `mkdir -p` does; one that is there
// stays as it is. 0, or an error number: ENOTDIR where something else has the
// name, ENAMETOOLONG from PATH_MAX bytes on.
int at_make_folders(const char *path, mode_t mode);

#endif

// Folders by mkdir, from the root down.
#include "base/folder.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

// Every prefix that ends in front of a slash is made in turn; one that is there
// is no error.
int at_make_folders(const char *path, mode_t mode) {
  char text[PATH_MAX];
  size_t n = strlen(path);
  struct stat st;
  if (n >= sizeof text) return ENAMETOOLONG;
  memcpy(text, path, n + 1);
  for (char *p = text + 1; p <= text + n; p++) {
    if (*p && *p != '/') continue;
    char kept = *p;
    *p = 0;
    if (mkdir(text, mode) && errno != EEXIST) {
      int error = errno;
      if (stat(text, &st) || !S_ISDIR(st.st_mode)) return error;
    }
    *p = kept;
  }
  if (stat(path, &st)) return errno;
  return S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
}

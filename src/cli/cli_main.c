// The `atoll` program: loads the libatoll.so that lies beside it and runs the
// command in there.
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pjrt/own.h"

// The library's path: the program's own with another name. False: not known.
static bool library_path(char *out, size_t size) {
  static const char name[] = "libatoll.so";
  ssize_t n = readlink("/proc/self/exe", out, size);
  if (n <= 0 || (size_t)n >= size) return false;
  size_t folder = (size_t)n;
  while (folder && out[folder - 1] != '/') folder--;
  if (folder + sizeof name > size) return false;
  memcpy(out + folder, name, sizeof name);
  return true;
}

static const at_pjrt_own *own_extension(void *library) {
  const PJRT_Api *(*get)(void) = dlsym(library, "GetPjrtApi");
  if (!get) return NULL;
  const PJRT_Extension_Base *e = get()->extension_start;
  while (e && (int)e->type != AT_PJRT_OWN_EXTENSION) e = e->next;
  return (const at_pjrt_own *)e;
}

int main(int argc, char **argv) {
  char path[PATH_MAX];
  if (!library_path(path, sizeof path))
    return fprintf(stderr, "atoll: cannot tell where this program lies\n"), 1;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return fprintf(
               stderr,
               "atoll: %s\nhint: libatoll.so is to lie beside this program\n",
               dlerror()),
           1;
  const at_pjrt_own *own = own_extension(library);
  if (!own || own->base.struct_size < sizeof *own || !own->command)
    return fprintf(stderr, "atoll: %s is of another build than this program\n",
                   path),
           1;
  return own->command(argc, argv);
}

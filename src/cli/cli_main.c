// The `atoll` program: runs the command that is in libatoll.so, which lies
// beside it. It is linked to the library, not loaded later: what threads have
// of their own is then there when a thread starts, and need not be allocated at
// its first use.
#include <stdio.h>

#include "pjrt/own.h"

const PJRT_Api *GetPjrtApi(void);

// A library without the command, or of a build with a shorter extension, cannot
// be the one beside it.
int main(int argc, char **argv) {
  const PJRT_Extension_Base *e = GetPjrtApi()->extension_start;
  while (e && (int)e->type != AT_PJRT_OWN_EXTENSION) e = e->next;
  const at_pjrt_own *own = (const at_pjrt_own *)e;
  if (!own || own->base.struct_size < sizeof *own || !own->command)
    return fprintf(stderr, "atoll: libatoll.so is of another build\n"), 1;
  return own->command(argc, argv);
}

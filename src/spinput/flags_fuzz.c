// Whatever the text: a status, or flags whose texts end and whose values are in
// range; read again, the same flags come out.
#include <stdlib.h>

#include "spinput/flags.h"

// Aborts where a promise of flags.h is broken.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  at_str args = {(const char *)data, size};
  at_spinput_flags f, again;
  memset(&f, 0, sizeof f);
  memset(&again, 0, sizeof again);
  if (at_code_take(at_spinput_flags_read(&f, args))) return 0;
  if (!memchr(f.max_ids_file, 0, sizeof f.max_ids_file) ||
      !memchr(f.minibatch_path, 0, sizeof f.minibatch_path) ||
      f.sanitizer & ~7u)
    abort();
  if (at_code_take(at_spinput_flags_read(&again, args)) ||
      memcmp(&f, &again, sizeof f))
    abort();
  return 0;
}

#include "base/locale.h"

// newlocale of "C" gives glibc's constant, so a race only makes it twice.
locale_t at_locale_enter(void) {
  static locale_t plain;  // glibc's own constant: all threads get the same
  locale_t c = __atomic_load_n(&plain, __ATOMIC_RELAXED);
  if (!c) {
    c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    __atomic_store_n(&plain, c, __ATOMIC_RELAXED);
  }
  return uselocale(c);
}

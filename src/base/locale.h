// A program that calls setlocale makes C's own functions read "1.25" as 1 and
// write it as "1,25". What we read and write is for other programs: threads
// are in the C locale while they run our code. Those that at_thread_start
// makes stay in it.
//
// Threads: any.
#ifndef ATOLL_BASE_LOCALE_H_
#define ATOLL_BASE_LOCALE_H_

#include <locale.h>

// This thread is in the C locale from now on. Returns the one that it was in.
locale_t at_locale_enter(void);
// Puts the thread into the locale that at_locale_enter gave.
static inline void at_locale_leave(locale_t before) { uselocale(before); }

#endif

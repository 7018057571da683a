// Sizes in bytes, for people.
//
// Memory: texts are written to what the caller gives.
// Threads: any.
#ifndef ATOLL_BASE_SIZE_TEXT_H_
#define ATOLL_BASE_SIZE_TEXT_H_

enum { AT_SIZE_TEXT = 24 };

// "0 B", "512 B", "1.2 GiB", "1000 MiB": three digits that count, four below
// the next unit, never an exponent. Writes to `out` and returns it.
const char *at_size_text(double bytes, char out[AT_SIZE_TEXT]);

#endif

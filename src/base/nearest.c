// Edit distance with swaps, and the nearest of a list of names by it.
#include "base/nearest.h"

// Letters: rows of the table are on the stack.
enum { kLongest = 64 };

// ASCII only, whatever the locale.
static char lower(char c) {
  return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

// The table of edit distances, row by row, of which the last three are kept: a
// swap looks two rows back.
uint32_t at_edits(at_str a, at_str b, uint32_t most) {
  uint32_t rows[3][kLongest + 1];
  uint32_t *row = rows[0], *last = rows[1], *before = rows[2];
  if (a.len > kLongest || b.len > kLongest || a.len > b.len + most ||
      b.len > a.len + most)
    return most + 1;
  for (uint32_t j = 0; j <= b.len; j++) row[j] = j;
  for (uint32_t i = 1; i <= a.len; i++) {
    uint32_t *free = before;
    before = last, last = row, row = free;
    row[0] = i;
    for (uint32_t j = 1; j <= b.len; j++) {
      bool same = lower(a.ptr[i - 1]) == lower(b.ptr[j - 1]);
      uint32_t n = AT_MIN(last[j], row[j - 1]) + 1;
      n = AT_MIN(n, last[j - 1] + !same);
      bool swapped = i > 1 && j > 1 &&
                     lower(a.ptr[i - 1]) == lower(b.ptr[j - 2]) &&
                     lower(a.ptr[i - 2]) == lower(b.ptr[j - 1]);
      row[j] = swapped ? AT_MIN(n, before[j - 2] + 1) : n;
    }
  }
  return AT_MIN(row[b.len], most + 1);
}

// The first of the nearest, where several are as near.
const char *at_nearest(at_str text, const char *const *names, size_t n) {
  const char *best = NULL;
  uint32_t least = UINT32_MAX;
  for (size_t i = 0; i < n; i++) {
    at_str name = at_str_of(names[i]);
    uint32_t most = AT_MAX((uint32_t)AT_MIN(name.len, kLongest) / 3, 2u);
    uint32_t d = at_edits(text, name, most);
    if (d <= most && d < name.len && d < least) least = d, best = names[i];
  }
  return best;
}

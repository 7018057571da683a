// Sizes as people read them: three digits that count, without zeros at the end.
// 9.995 and 99.95 are where rounding to two places or one would give a fourth.
#include "base/size_text.h"

#include <stdio.h>
#include <string.h>

#include "base/span.h"

// Places after the point so that three digits count.
const char *at_size_text(double bytes, char out[AT_SIZE_TEXT]) {
  static const char *const units[] = {"B",   "KiB", "MiB", "GiB",
                                      "TiB", "PiB", "EiB"};
  const char *sign = bytes < 0 ? "-" : "";
  double x = bytes < 0 ? -bytes : bytes;
  size_t u = 0;
  // From 1,023.5 on it would read 1024 of the smaller unit.
  for (; x >= 1023.5 && u + 1 < AT_LEN(units); u++) x /= 1024;
  char digits[AT_SIZE_TEXT];
  snprintf(digits, sizeof digits, "%.*f",
           !u || x >= 99.95 ? 0 : (x >= 9.995 ? 1 : 2), AT_MIN(x, 1e9));
  char *dot = strchr(digits, '.'), *end = digits + strlen(digits);
  if (dot) {
    while (end[-1] == '0') *--end = 0;
    if (end[-1] == '.') *--end = 0;
  }
  snprintf(out, AT_SIZE_TEXT, "%s%.12s %s", sign, digits, units[u]);
  return out;
}

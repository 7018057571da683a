// The table of pretty forms: a string per operation, read by text_pretty.c and
// printed by print_pretty.c, so that the two cannot differ. formats.def says
// what its pieces mean.
#include <stdlib.h>

#include "mlir/text.h"

#define AT_FORMAT(op, format) {op, format},
// Sorted by name, for bsearch.
static const struct format {
  const char *op, *format;
} formats[] = {
#include "mlir/formats.def"
};
#undef AT_FORMAT

// For bsearch: the key is a name.
static int order(const void *key, const void *item) {
  return strcmp(key, ((const struct format *)item)->op);
}

// The table is sorted by name. Operations of CHLO that have no row get the form
// of their shape.
const char *at_mformat_of(const char *op_name) {
  const struct format *f =
      bsearch(op_name, formats, AT_LEN(formats), sizeof *formats, order);
  if (f) return f->format;
  // CHLO has three shapes of assembly.
  if (strncmp(op_name, "chlo.", 5)) return NULL;
  const char *rest = op_name + 5;
  if (!*rest || rest[strspn(rest, "abcdefghijklmnopqrstuvwxyz0123456789_")])
    return NULL;
  static const char *const binary[] = {"chlo.next_after", "chlo.polygamma",
                                       "chlo.zeta", "chlo.mulhi"};
  static const char *const none[] = {
      "chlo.constant", "chlo.ragged_dot",     "chlo.minimum_broadcast_shapes",
      "chlo.scan",     "chlo.constant_like",  "chlo.reshape_dynamic",
      "chlo.eigh",     "chlo.dynamic_reshape"};
  for (size_t i = 0; i < AT_LEN(none); i++)
    if (strcmp(op_name, none[i]) == 0) return NULL;
  if (strcmp(op_name, "chlo.broadcast_select") == 0) return "$ , $ , $ {} :F";
  if (strncmp(op_name, "chlo.broadcast_", 15) == 0) return "$ , $ {} :F";
  for (size_t i = 0; i < AT_LEN(binary); i++)
    if (strcmp(op_name, binary[i]) == 0) return "$ , $ {} :A";
  return "$ {} :A";
}

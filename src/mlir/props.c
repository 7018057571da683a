// The order of native properties, by operation.
#include <stdlib.h>

#include "mlir/mlir_internal.h"

#define AT_PROPS(op, schema) {op, schema},
// Sorted by name, for bsearch.
static const struct props {
  const char *op, *schema;
} props[] = {
#include "mlir/props.def"
};
#undef AT_PROPS

// For bsearch: the key is an at_str, the table has C strings.
static int order(const void *key, const void *item) {
  at_str k = *(const at_str *)key,
         i = at_str_of(((const struct props *)item)->op);
  int d = memcmp(k.ptr, i.ptr, AT_MIN(k.len, i.len));
  return d ? d : k.len < i.len ? -1 : k.len > i.len;
}

// The table is sorted by name.
const char *at_mprops_of(at_str op_name) {
  const struct props *p =
      bsearch(&op_name, props, AT_LEN(props), sizeof *props, order);
  return p ? p->schema : NULL;
}

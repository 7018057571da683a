#include "mosaic/mosaic_internal.h"

at_status at_mosaic_print(const at_mosaic_kernel *k, bool locations,
                          at_strbuf *out) {
  at_mlir_print_options o = {.generic = true, .locations = locations};
  return at_mlir_print(k->module, &o, out);
}

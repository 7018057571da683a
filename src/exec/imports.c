// The functions that generated code may call (abi/imports.def), sorted by name.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "abi/core.h"
#include "base/special.h"
#include "exec/exec_internal.h"

static double at_zeta64(double s, double q) { return (double)at_zeta(s, q); }
static double at_polygamma64(double n, double x) {
  return (double)at_polygamma(n, x);
}

static const at_ximport g_imports[] = {
#define AT_IMPORT(name) {#name, (void *)name},
#include "abi/imports.def"
#undef AT_IMPORT
};

// The table is short and looked at once per undefined symbol of an object.
const at_ximport *at_import_find(at_str name) {
  for (size_t i = 0; i < AT_LEN(g_imports); i++)
    if (at_str_is(name, g_imports[i].name)) return &g_imports[i];
  return NULL;
}

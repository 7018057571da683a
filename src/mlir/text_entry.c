// Attributes and types in text inside bytecode.
#include "mlir/mlir_internal.h"

at_status at_mtext_attr(at_mctx *c, at_str text, const at_mattr **out) {
  at_mattr *a;
  AT_TRY_ALLOC(a, at_mattr_make(c, AT_MATTR_OPAQUE));
  AT_TRY_ALLOC(a->name, at_mctx_intern(c, AT_STR("text")));
  AT_TRY_ALLOC(a->bytes.ptr, at_arena_copy(c->arena, text.ptr, text.len, 1));
  a->bytes.len = text.len;
  *out = a;
  return AT_OK;
}

at_status at_mtext_type(at_mctx *c, at_str text, const at_mtype **out) {
  at_mtype *t;
  AT_TRY_ALLOC(t, at_mtype_make(c, AT_MTYPE_OPAQUE));
  AT_TRY_ALLOC(t->name, at_mctx_intern(c, AT_STR("text")));
  AT_TRY_ALLOC(t->bytes.ptr, at_arena_copy(c->arena, text.ptr, text.len, 1));
  t->bytes.len = text.len;
  *out = t;
  return AT_OK;
}

at_status at_mlir_read_text(at_str text, at_arena *a, at_mmodule **out) {
  return AT_FAIL(AT_UNIMPLEMENTED, "MLIR in text is not read yet");
}

// ATOLL_TARGET=mk2 with ATOLL_TILES=tiles: the custom call in which the tile
// program computes.
#include <stdlib.h>

#include "abi/ffi.h"
#include "base/config.h"
#include "compile/on_tiles.h"
#include "pjrt/pjrt_internal.h"

static ffi_error *failed(const ffi_call_frame *f, at_status st) {
  ffi_error_create_args e = {.struct_size = sizeof e,
                             .message = at_status_message(st),
                             .code = (int32_t)at_status_code(st)};
  ffi_error *made = f->api->error_create(&e);
  at_status_free(st);
  return made;
}

static at_status gather(const ffi_args *a, void ***out) {
  *out = calloc((size_t)a->size + 1, sizeof **out);
  if (!*out) return AT_NO_MEMORY("tiles");
  for (int64_t i = 0; i < a->size; i++)
    (*out)[i] = ((const ffi_buffer *)a->args[i])->data;
  return AT_OK;
}

static ffi_error *run(ffi_call_frame *f) {
  void **args = NULL, **results = NULL;
  const ffi_span *program = NULL;
  if (f->stage != FFI_STAGE_EXECUTE) return NULL;
  for (int64_t i = 0; i < f->attrs.size; i++)
    if (f->attrs.types[i] == FFI_ATTR_STRING) program = f->attrs.attrs[i];
  at_status st =
      program ? AT_OK
              : AT_FAIL(AT_INVALID_ARGUMENT, "%s: no program in the call",
                        AT_ON_TILES_TARGET);
  if (at_ok(st)) st = gather(&f->args, &args);
  if (at_ok(st)) st = gather(&f->rets, &results);
  if (at_ok(st))
    st = at_on_tiles_call((at_str){program->ptr, program->len},
                          (const void *const *)args, (uint32_t)f->args.size,
                          results, (uint32_t)f->rets.size);
  free(args);
  free(results);
  return at_ok(st) ? NULL : failed(f, st);
}

at_status at_pjrt_tiles_serve(void) {
  const char *who = at_config_text(AT_CONFIG_TILES);
  if (strcmp(who, "host") && strcmp(who, "tiles"))
    return AT_FAIL(AT_INVALID_ARGUMENT, "ATOLL_TILES=%s\nhint: host or tiles",
                   who);
  return at_on_tiles_runs()
             ? at_custom_register(AT_STR(AT_ON_TILES_TARGET), AT_CUSTOM_FFI,
                                  (void *)(uintptr_t)run, 0)
             : AT_OK;
}

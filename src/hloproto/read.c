// Bytes to graph: which message they are, and the straight line through it.
#include "hloproto/hloproto_internal.h"

// Enough of a module to tell it from anything else: each computation is a
// message, and the first has an instruction with an opcode.
static bool is_module(at_bytes b) {
  bool has_opcode = false;
  if (!at_proto_is_whole(b)) return false;
  for (at_proto_field f; at_proto_next(&b, &f);) {
    if (f.number != 3) continue;
    if (f.wire != AT_PROTO_BYTES || !at_proto_is_whole(f.bytes)) return false;
    at_bytes i = at_proto_bytes(f.bytes, 2);
    has_opcode |= at_proto_is_whole(i) && at_proto_str(i, 2).len > 0 &&
                  at_hp_row_find(at_proto_str(i, 2));
  }
  return has_opcode;
}

// Field 1 of both wrappers is the module; an HloProto is told from a module
// with configuration by its field 3, the buffer assignment.
static at_hloproto_form form_of(at_bytes b) {
  at_proto_field f;
  if (b.len == 0 || !at_proto_is_whole(b)) return AT_HLOPROTO_UNKNOWN;
  if (at_proto_find(b, 1, &f) && f.wire == AT_PROTO_BYTES && is_module(f.bytes))
    return at_proto_has(b, 3) ? AT_HLOPROTO_DUMP : AT_HLOPROTO_WITH_CONFIG;
  return is_module(b) ? AT_HLOPROTO_MODULE : AT_HLOPROTO_UNKNOWN;
}

bool at_hloproto_is(at_bytes b) { return form_of(b) != AT_HLOPROTO_UNKNOWN; }

// The order matters: devices before bodies (an all-to-all without groups asks
// for them), the entry's facts after all bodies, since they are counted against
// its parameters and results.
static at_status read(at_hp *x) {
  AT_TRY(at_module_create(x->a, at_proto_str(x->proto, 1), &x->m));
  AT_TRY(at_hp_module_decode(x));
  AT_TRY(at_hp_frames_read(x));
  AT_TRY(at_hp_config_read(x));
  AT_TRY(at_hp_func(x, x->entry));
  x->m->entry = x->entry->func;
  AT_TRY(at_hp_funcs_fill(x));
  return at_hp_entry_read(x);
}

// All state lives in the arena; on failure the caller drops it.
at_status at_hloproto_read(at_bytes b, at_hloproto_form form, at_arena *a,
                           at_module **out) {
  at_hp x = {.a = a, .proto = b, .num_devices = 1};
  if (form == AT_HLOPROTO_UNKNOWN) form = form_of(b);
  if (form == AT_HLOPROTO_WITH_CONFIG || form == AT_HLOPROTO_DUMP) {
    if (!at_proto_is_whole(b))
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "the HloModuleProtoWithConfig is malformed");
    x.proto = at_proto_bytes(b, 1);
    if (form == AT_HLOPROTO_WITH_CONFIG) x.config = at_proto_bytes(b, 2);
  }
  if (x.proto.len == 0 || !at_proto_is_whole(x.proto))
    return AT_FAIL(AT_INVALID_ARGUMENT, "the HloModuleProto is %s",
                   x.proto.len ? "malformed" : "empty");
  AT_TRY(read(&x));
  *out = x.m;
  // The builder checks each node; regions and uses as a whole are checked here.
  return at_verify(x.m, "hloproto");
}

// The shardings extension: how the parts of arguments and results on the
// devices make the whole, as serialised xla.OpSharding. Executables carry HLO's
// text of it; programs of one device have none, which clients are told by NULL.
// (Without this extension they would parse the program to find that out.)
#include <stdlib.h>

#include "base/protobuf.h"
#include "pjrt/pjrt_internal.h"

enum {
  TYPE_REPLICATED = 0,
  TYPE_MAXIMAL = 1,
  TYPE_OTHER = 3,
  TYPE_MANUAL = 4,
  TYPE_UNKNOWN = 5,
  TYPE_UNREDUCED = 6
};

// Where reading the text is; the text ends with a zero.
typedef struct reader {
  const char *at;
} reader;

// Steps over z, if it comes next, and over spaces before it. False: it does
// not, and nothing but spaces is passed.
static bool take(reader *r, const char *z) {
  size_t n = strlen(z);
  while (*r->at == ' ') r->at++;
  if (strncmp(r->at, z, n)) return false;
  r->at += n;
  return true;
}

// Decimal numbers with commas between; *count: how many.
static bool take_list(reader *r, at_strbuf *packed, uint32_t *count) {
  *count = 0;
  do {
    char *end;
    if (*r->at < '0' || *r->at > '9') return *count == 0;
    at_proto_write_varint(packed, strtoull(r->at, &end, 10));
    r->at = end;
    ++*count;
  } while (*r->at == ',' && r->at++);
  return true;
}

// Writes the numbers as one packed field; an empty list writes nothing.
static bool write_list(reader *r, at_strbuf *out, uint32_t field) {
  at_strbuf packed = {0};
  uint32_t count;
  bool ok = take_list(r, &packed, &count);
  if (count) at_proto_write_bytes(out, field, at_strbuf_str(&packed));
  out->failed |= packed.failed;
  at_strbuf_free(&packed);
  return ok;
}

// last_tile_dims={manual, replicated}
static bool write_last_dims(reader *r, at_strbuf *out) {
  at_strbuf packed = {0};
  bool ok = true;
  while (ok && !take(r, "}")) {
    if (take(r, "manual"))
      at_proto_write_varint(&packed, TYPE_MANUAL);
    else if (take(r, "replicated"))
      at_proto_write_varint(&packed, TYPE_REPLICATED);
    else if (take(r, "unreduced"))
      at_proto_write_varint(&packed, TYPE_UNREDUCED);
    else
      ok = false;
    take(r, ",");
  }
  at_proto_write_bytes(out, 8, at_strbuf_str(&packed));
  out->failed |= packed.failed;
  at_strbuf_free(&packed);
  return ok;
}

// [2,1]<=[2]T(0) last_tile_dim_replicate}
static bool write_tiles(reader *r, at_strbuf *out) {
  at_proto_write_int(out, 1, TYPE_OTHER);
  if (!take(r, "[") || !write_list(r, out, 3) || !take(r, "]")) return false;
  if (take(r, "<=[")) {
    reader dims = *r;
    if (!write_list(r, out, 9) || !take(r, "]")) return false;
    if (take(r, "T(")) {
      if (!write_list(r, out, 10) || !take(r, ")")) return false;
    } else {  // one dimension for each: the identity
      at_strbuf packed = {0}, order = {0};
      uint32_t count;
      take_list(&dims, &packed, &count);
      for (uint32_t i = 0; i < count; i++) at_proto_write_varint(&order, i);
      at_proto_write_bytes(out, 10, at_strbuf_str(&order));
      out->failed |= packed.failed | order.failed;
      at_strbuf_free(&packed);
      at_strbuf_free(&order);
    }
  } else if (!write_list(r, out, 4)) {
    return false;
  }
  if (take(r, "last_tile_dim_replicate")) at_proto_write_int(out, 6, 1);
  if (take(r, "last_tile_dims={") && !write_last_dims(r, out)) return false;
  return take(r, "}");
}

// Reads HLO's text, {devices=[2,1]<=[2]}, {replicated} and so on, and writes
// OpSharding: type 1, tile_assignment_dimensions 3, tile_assignment_devices 4,
// replicate_on_last_tile_dim 6, last_tile_dims 8, iota_reshape_dims 9,
// iota_transpose_perm 10.
at_status at_pjrt_sharding_write(const char *text, at_strbuf *out) {
  reader r = {text};
  bool ok = take(&r, "{");
  if (ok && take(&r, "devices=")) {
    ok = write_tiles(&r, out);
  } else if (ok && take(&r, "replicated")) {
    at_proto_write_int(out, 1, TYPE_REPLICATED);
  } else if (ok && take(&r, "manual")) {
    at_proto_write_int(out, 1, TYPE_MANUAL);
  } else if (ok && take(&r, "unknown")) {
    at_proto_write_int(out, 1, TYPE_UNKNOWN);
  } else if (ok && take(&r, "unreduced")) {
    at_proto_write_int(out, 1, TYPE_UNREDUCED);
  } else if (ok && take(&r, "maximal device=")) {
    at_proto_write_int(out, 1, TYPE_MAXIMAL);
    at_strbuf one = {0};
    at_proto_write_varint(&one, 1);
    at_proto_write_bytes(out, 3, at_strbuf_str(&one));
    at_strbuf_free(&one);
    ok = write_list(&r, out, 4);
  } else {
    ok = false;
  }
  if (ok) return at_strbuf_status(out);
  return AT_FAIL(AT_INVALID_ARGUMENT, "cannot read the sharding %.200s", text);
}

// protos: count strings, made on the first question and kept.
at_status at_pjrt_shardings_fill(at_pjrt_program *p, const at_xio *io,
                                 uint32_t n, const char **protos,
                                 size_t *sizes) {
  for (uint32_t i = 0; i < n; i++) {
    at_strbuf b = {0};
    const char *text =
        io[i].sharding ? at_pjrt_program_string(p, io[i].sharding) : "";
    at_status st = at_pjrt_sharding_write(*text ? text : "{replicated}", &b);
    if (!at_ok(st)) {
      at_strbuf_free(&b);
      return st;
    }
    protos[i] = b.ptr;  // owned by the program
    sizes[i] = b.len;
  }
  return AT_OK;
}

// Borrowed from the program.
static PJRT_Error *parameter_shardings(
    PJRT_Shardings_PJRT_Executable_ParameterShardings_Args *a) {
  AT_ARGS(PJRT_Shardings_PJRT_Executable_ParameterShardings_Args);
  AT_HANDLE(a->executable);
  const at_pjrt_program *p = a->executable->program;
  a->num_parameters = p->num_inputs;
  a->shardings = p->shardings;
  a->sharding_sizes = p->sharding_sizes;
  return NULL;
}

static PJRT_Error *output_shardings(
    PJRT_Shardings_PJRT_Executable_OutputShardings_Args *a) {
  AT_ARGS(PJRT_Shardings_PJRT_Executable_OutputShardings_Args);
  AT_HANDLE(a->executable);
  const at_pjrt_program *p = a->executable->program;
  a->num_outputs = p->num_outputs;
  // No results have no sharding, not an empty list of them.
  bool any = p->shardings && p->num_outputs;
  a->shardings = any ? p->shardings + p->num_inputs : NULL;
  a->sharding_sizes = any ? p->sharding_sizes + p->num_inputs : NULL;
  return NULL;
}

PJRT_Shardings_Extension at_pjrt_shardings_extension = {
    .base = {.struct_size = sizeof(PJRT_Shardings_Extension),
             .type = PJRT_Extension_Type_Shardings},
    .PJRT_Shardings_PJRT_Executable_ParameterShardings = parameter_shardings,
    .PJRT_Shardings_PJRT_Executable_OutputShardings = output_shardings,
};

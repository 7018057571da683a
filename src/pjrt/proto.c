// The few protocol buffers that cross the edge, read and written by hand:
// CompileOptionsProto, DeviceAssignmentProto, ShapeProto.
#include <stdlib.h>
#include <strings.h>

#include "base/protobuf.h"
#include "pjrt/pjrt_internal.h"
#include "spinput/flags.h"

#define MALFORMED(what) \
  AT_FAIL(AT_INVALID_ARGUMENT, "malformed compile options: %s", what)

// DeviceAssignmentProto: replica_count 1, computation_count 2, and for each
// computation its replicas' device ids.
static at_status read_assignment(at_bytes in, at_pjrt_options *o) {
  uint64_t replicas = 0, computations = 0, computation = 0;
  at_proto_field f;
  for (at_bytes scan = in; scan.len;) {
    if (!at_proto_next(&scan, &f)) return MALFORMED("device_assignment");
    if (f.number == 1) replicas = f.value;
    if (f.number == 2) computations = f.value;
  }
  if (replicas == 0 || computations == 0) return AT_OK;
  // Each id takes a byte at least.
  if (at_mul(replicas, computations) > in.len)
    return MALFORMED("device_assignment lacks ids");
  int64_t *ids = malloc(replicas * computations * sizeof *ids);
  if (!ids) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "out of host memory");
  for (size_t i = 0; i < replicas * computations; i++) ids[i] = -1;
  while (in.len) {
    if (!at_proto_next(&in, &f)) goto malformed;
    if (f.number != 3 || f.wire != AT_PROTO_BYTES) continue;
    uint64_t replica = 0;
    at_bytes inner = f.bytes;
    while (inner.len) {
      at_proto_field g;
      if (!at_proto_next(&inner, &g)) goto malformed;
      if (g.number != 1) continue;
      at_bytes packed = g.bytes;
      bool one = g.wire == AT_PROTO_VARINT;
      while (one || packed.len) {
        uint64_t id = g.value;
        if (!one && !at_proto_varint(&packed, &id)) goto malformed;
        if (computation >= computations || replica >= replicas) goto malformed;
        ids[replica++ * computations + computation] = (int64_t)id;
        if (one) break;
      }
    }
    computation++;
  }
  for (size_t i = 0; i < replicas * computations; i++)
    if (ids[i] < 0) goto malformed;
  free(o->assignment);
  o->assignment = ids;
  o->has_assignment = true;
  o->num_replicas = (uint32_t)replicas;
  o->num_partitions = (uint32_t)computations;
  return AT_OK;
malformed:
  free(ids);
  return MALFORMED("device_assignment");
}

// ExecutableBuildOptionsProto: device_ordinal 1, num_replicas 4, num_partitions
// 5, device_assignment 9. An assignment's counts win over the others.
static at_status read_build_options(at_bytes in, at_pjrt_options *o) {
  uint64_t replicas = 0, partitions = 0;
  at_bytes assignment = {0};
  while (in.len) {
    at_proto_field f;
    if (!at_proto_next(&in, &f)) return MALFORMED("executable_build_options");
    if (f.number == 1 && f.wire == AT_PROTO_VARINT)
      o->device_ordinal = (int64_t)f.value;
    if (f.number == 4) replicas = f.value;
    if (f.number == 5) partitions = f.value;
    if (f.number == 9 && f.wire == AT_PROTO_BYTES) assignment = f.bytes;
  }
  if (replicas > 1 << 20 || partitions > 1 << 20)
    return MALFORMED("num_replicas or num_partitions is too large");
  if (replicas) o->num_replicas = (uint32_t)replicas;
  if (partitions) o->num_partitions = (uint32_t)partitions;
  return assignment.len ? read_assignment(assignment, o) : AT_OK;
}

// ---- Overrides: what `compiler_options` of jax.jit becomes

typedef enum override_kind { OPT_BOOL, OPT_INT, OPT_FLOAT } override_kind;

// Options that are checked for their type. Any other name that starts with
// "xla_" is XLA's business and is accepted: programs carry flags for compilers
// that are not here.
static const struct {
  const char *name;
  override_kind kind;
} known_options[] = {
    {"exec_time_optimization_effort", OPT_FLOAT},
    {"memory_fitting_effort", OPT_FLOAT},
    {"optimization_level", OPT_INT},
    {"memory_fitting_level", OPT_INT},
    {"num_replicas", OPT_INT},
    {"num_partitions", OPT_INT},
    {"use_spmd_partitioning", OPT_BOOL},
    {"use_auto_spmd_partitioning", OPT_BOOL},
    {"use_shardy_partitioner", OPT_BOOL},
    {"deduplicate_hlo", OPT_BOOL},
    {"alias_passthrough_params", OPT_BOOL},
    {"xla_embed_ir_in_executable", OPT_BOOL},
    {"xla_dump_hlo_as_text", OPT_BOOL},
    {"xla_tpu_enable_latency_hiding_scheduler", OPT_BOOL},
};

static const char *const kind_names[] = {"bool", "int", "float"};

// Does the text of an option read as that kind? Texts of 64 and more characters
// do not.
static bool text_is(override_kind kind, at_str text) {
  char z[64], *end;
  if (text.len == 0 || text.len >= sizeof z) return false;
  memcpy(z, text.ptr, text.len);
  z[text.len] = 0;
  if (kind == OPT_BOOL)
    return !strcasecmp(z, "true") || !strcasecmp(z, "false") ||
           !strcmp(z, "1") || !strcmp(z, "0");
  if (kind == OPT_INT)
    (void)strtoll(z, &end, 10);
  else
    (void)strtod(z, &end);
  return *end == 0;
}

// A map entry: key 1, and in 2 one of string 1, bool 2, int 3, double 4.
static at_status check_override(at_bytes in) {
  at_str name = {0}, text = {0};
  bool is_text = false;
  while (in.len) {
    at_proto_field f;
    if (!at_proto_next(&in, &f)) return MALFORMED("env_option_overrides");
    if (f.number == 1) name = (at_str){(const char *)f.bytes.ptr, f.bytes.len};
    for (at_bytes v = f.bytes; f.number == 2 && v.len;) {
      at_proto_field g;
      if (!at_proto_next(&v, &g)) return MALFORMED("env_option_overrides");
      if (g.number != 1 || g.wire != AT_PROTO_BYTES) continue;
      is_text = true;
      text = (at_str){(const char *)g.bytes.ptr, g.bytes.len};
    }
  }
  int shown = (int)AT_MIN(name.len, 200u);
  for (size_t i = 0; i < AT_LEN(known_options); i++) {
    if (!at_str_is(name, known_options[i].name)) continue;
    if (is_text && !text_is(known_options[i].kind, text))
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "While setting option %.*s, '%.*s' is not a valid %s "
                     "value.",
                     shown, name.ptr, (int)AT_MIN(text.len, 200u), text.ptr,
                     kind_names[known_options[i].kind]);
    return AT_OK;
  }
  if (at_spinput_flag_is_ours(name)) {
    at_spinput_flags flags = {0};  // an option that is no text is a plain value
    return at_spinput_flag_set(&flags, name, is_text ? text : AT_STR("1"));
  }
  if (at_str_starts(name, "xla_")) return AT_OK;
  return AT_FAIL(AT_INVALID_ARGUMENT, "No such compile option: '%.*s'", shown,
                 name.ptr ? name.ptr : "");
}

// CompileOptionsProto: executable_build_options 3, compile_portable_executable
// 4, env_option_overrides 7. Fields of compilers that are not here are passed
// over.
at_status at_pjrt_options_parse(at_bytes in, at_pjrt_options *out) {
  at_pjrt_options o = {
      .num_replicas = 1, .num_partitions = 1, .device_ordinal = -1};
  at_status st = AT_OK;
  while (in.len) {
    at_proto_field f;
    if (!at_proto_next(&in, &f)) {
      st = MALFORMED("CompileOptionsProto");
      break;
    }
    if (f.number == 4) o.portable = f.value != 0;
    if (f.number == 3 && f.wire == AT_PROTO_BYTES)
      AT_TRY_GOTO(st, read_build_options(f.bytes, &o), out);
    if (f.number == 7 && f.wire == AT_PROTO_BYTES)
      AT_TRY_GOTO(st, check_override(f.bytes), out);
  }
out:
  if (!at_ok(st)) {
    at_pjrt_options_free(&o);
    return st;
  }
  *out = o;
  return AT_OK;
}

void at_pjrt_options_free(at_pjrt_options *o) {
  free(o->assignment);
  o->assignment = NULL;
}

void at_pjrt_assignment_write(uint32_t replicas, uint32_t partitions,
                              const int64_t *ids, at_strbuf *out) {
  at_proto_write_int(out, 1, replicas);
  at_proto_write_int(out, 2, partitions);
  for (uint32_t p = 0; p < partitions; p++) {
    at_strbuf computation = {0}, packed = {0};
    for (uint32_t r = 0; r < replicas; r++)
      at_proto_write_varint(&packed, (uint64_t)ids[r * partitions + p]);
    at_proto_write_bytes(&computation, 1, at_strbuf_str(&packed));
    at_proto_write_bytes(out, 3, at_strbuf_str(&computation));
    out->failed |= packed.failed | computation.failed;
    at_strbuf_free(&packed);
    at_strbuf_free(&computation);
  }
}

// xla.PrimitiveType of a PJRT_Buffer_Type.
static uint32_t primitive_type(PJRT_Buffer_Type t) {
  static const uint8_t map[] = {
      [PJRT_Buffer_Type_PRED] = 1,
      [PJRT_Buffer_Type_S8] = 2,
      [PJRT_Buffer_Type_S16] = 3,
      [PJRT_Buffer_Type_S32] = 4,
      [PJRT_Buffer_Type_S64] = 5,
      [PJRT_Buffer_Type_U8] = 6,
      [PJRT_Buffer_Type_U16] = 7,
      [PJRT_Buffer_Type_U32] = 8,
      [PJRT_Buffer_Type_U64] = 9,
      [PJRT_Buffer_Type_F16] = 10,
      [PJRT_Buffer_Type_F32] = 11,
      [PJRT_Buffer_Type_F64] = 12,
      [PJRT_Buffer_Type_C64] = 15,
      [PJRT_Buffer_Type_BF16] = 16,
      [PJRT_Buffer_Type_TOKEN] = 17,
      [PJRT_Buffer_Type_C128] = 18,
      [PJRT_Buffer_Type_F8E5M2] = 19,
      [PJRT_Buffer_Type_F8E4M3FN] = 20,
      [PJRT_Buffer_Type_S4] = 21,
      [PJRT_Buffer_Type_U4] = 22,
      [PJRT_Buffer_Type_F8E4M3B11FNUZ] = 23,
      [PJRT_Buffer_Type_F8E5M2FNUZ] = 24,
      [PJRT_Buffer_Type_F8E4M3FNUZ] = 25,
      [PJRT_Buffer_Type_S2] = 26,
      [PJRT_Buffer_Type_U2] = 27,
      [PJRT_Buffer_Type_F8E4M3] = 28,
      [PJRT_Buffer_Type_F8E3M4] = 29,
      [PJRT_Buffer_Type_F4E2M1FN] = 32,
      [PJRT_Buffer_Type_F8E8M0FNU] = 33,
  };
  return (size_t)t < AT_LEN(map) ? map[t] : 0;
}

// ShapeProto: element_type 2, dimensions 3, layout 5 (minor_to_major 1),
// is_dynamic_dimension 6, all false. The layout is dense row-major.
void at_pjrt_shape_write(at_dtype t, at_dims dims, at_strbuf *out) {
  at_strbuf packed = {0}, order = {0}, layout = {0};
  at_proto_write_int(out, 2, primitive_type(at_pjrt_type(t)));
  for (uint32_t d = 0; d < dims.rank; d++) {
    at_proto_write_varint(&packed, (uint64_t)dims.ptr[d]);
    at_proto_write_varint(&order, dims.rank - 1 - d);
  }
  at_proto_write_bytes(out, 3, at_strbuf_str(&packed));
  at_proto_write_bytes(&layout, 1, at_strbuf_str(&order));
  at_proto_write_bytes(out, 5, at_strbuf_str(&layout));
  for (uint32_t d = 0; d < dims.rank; d++) at_proto_write_int(out, 6, 0);
  out->failed |= packed.failed | order.failed | layout.failed;
  at_strbuf_free(&packed);
  at_strbuf_free(&order);
  at_strbuf_free(&layout);
}

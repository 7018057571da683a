// CompileOptionsProto, read from its wire form. Field numbers are those of
// XLA's compile_options.proto and xla_data.proto; unknown fields are skipped.
#include "base/protobuf.h"
#include "import/import.h"

enum { MAX_DEVICES = 1 << 20 };

// INVALID_ARGUMENT about the bytes as a whole.
static at_status bad(const char *what) {
  return AT_FAIL(AT_INVALID_ARGUMENT, "compile options are malformed: %s",
                 what);
}

// Next field of a message, as a status.
static at_status field_read(at_bytes *b, at_proto_field *f) {
  return at_proto_next(b, f) ? AT_OK : bad("a field is cut off");
}

// A repeated number may be packed or given one by one.
typedef AT_VEC(int64_t) ints;
// Appends one value, or all of a packed list.
static at_status ints_add(at_arena *a, const at_proto_field *f, ints *out) {
  at_bytes b = f->bytes;
  uint64_t v = f->value;
  bool packed = f->wire == AT_PROTO_BYTES;
  if (!packed && f->wire != AT_PROTO_VARINT) return bad("a list of numbers");
  while (!packed || b.len) {
    if (packed && !at_proto_varint(&b, &v)) return bad("a number is cut off");
    if (out->len >= MAX_DEVICES) return bad("a list is too long");
    if (!at_vec_push(a, out, (int64_t)v))
      return AT_NO_MEMORY("compile options");
    if (!packed) break;
  }
  return AT_OK;
}

// DeviceAssignmentProto: one list of replicas per partition.
// Only what the proto says; assignment_apply compares it with the counts of the
// request.
typedef struct assignment {
  int64_t replicas, computations;
  AT_VEC(ints) columns;
} assignment;

// ComputationDevice: replica_device_ids = 1.
static at_status column_read(at_arena *a, at_bytes b, ints *out) {
  at_proto_field f;
  while (b.len) {
    AT_TRY(field_read(&b, &f));
    if (f.number == 1) AT_TRY(ints_add(a, &f, out));
  }
  return AT_OK;
}

// DeviceAssignmentProto: replica_count = 1, computation_count = 2,
// computation_devices = 3.
static at_status assignment_read(at_arena *a, at_bytes b, assignment *out) {
  at_proto_field f;
  while (b.len) {
    AT_TRY(field_read(&b, &f));
    if (f.number == 1 && f.wire == AT_PROTO_VARINT)
      out->replicas = (int64_t)f.value;
    if (f.number == 2 && f.wire == AT_PROTO_VARINT)
      out->computations = (int64_t)f.value;
    if (f.number != 3 || f.wire != AT_PROTO_BYTES) continue;
    ints column = {0};
    AT_TRY(column_read(a, f.bytes, &column));
    if (!at_vec_push(a, &out->columns, column))
      return AT_NO_MEMORY("compile options");
  }
  return AT_OK;
}

// Transposes the columns into device_ids[replica * partitions + partition]. No
// assignment at all leaves device_ids NULL.
static at_status assignment_apply(at_arena *a, const assignment *s,
                                  at_compile_request *out) {
  if (s->replicas == 0 && s->computations == 0 && s->columns.len == 0)
    return AT_OK;
  if (s->replicas != out->num_replicas ||
      s->computations != out->num_partitions ||
      (int64_t)s->columns.len != s->computations)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "device assignment is %lld x %lld, the program runs on "
                   "%lld replicas x %lld partitions",
                   (long long)s->replicas, (long long)s->computations,
                   (long long)out->num_replicas,
                   (long long)out->num_partitions);
  int64_t *ids;
  AT_TRY_ALLOC(
      ids,
      at_new(a, int64_t, at_mul((size_t)s->replicas, (size_t)s->computations)));
  for (int64_t p = 0; p < s->computations; p++) {
    if ((int64_t)s->columns.ptr[p].len != s->replicas)
      return bad("a device assignment lacks devices");
    for (int64_t r = 0; r < s->replicas; r++)
      ids[r * s->computations + p] = s->columns.ptr[p].ptr[r];
  }
  out->device_ids = ids;
  return AT_OK;
}

// Numbers of a repeated bool field into a bool array.
static at_status allow_apply(at_arena *a, const ints *list, const bool **out,
                             uint32_t *count) {
  bool *allow;
  AT_TRY_ALLOC(allow, at_new(a, bool, list->len + 1));
  for (size_t i = 0; i < list->len; i++) allow[i] = list->ptr[i] != 0;
  *out = allow;
  *count = (uint32_t)list->len;
  return AT_OK;
}

// ExecutableBuildOptionsProto: device_ordinal 1, num_replicas 4, num_partitions
// 5, use_spmd_partitioning 6, device_assignment 9,
// allow_spmd_sharding_propagation to output 12 and to parameters 18,
// use_shardy_partitioner 19.
static at_status build_read(at_arena *a, at_bytes b, assignment *devices,
                            ints allow[2], at_compile_request *out) {
  at_proto_field f;
  while (b.len) {
    AT_TRY(field_read(&b, &f));
    if (f.number == 12 || f.number == 18) {
      AT_TRY(ints_add(a, &f, &allow[f.number == 18]));
      continue;
    }
    if (f.number == 9 && f.wire == AT_PROTO_BYTES)
      AT_TRY(assignment_read(a, f.bytes, devices));
    if (f.wire != AT_PROTO_VARINT) continue;
    switch (f.number) {
      case 1:
        out->device_ordinal = (int64_t)f.value;
        break;
      case 4:
        out->num_replicas = (int64_t)f.value;
        break;
      case 5:
        out->num_partitions = (int64_t)f.value;
        break;
      case 6:
        out->use_spmd_partitioning = f.value != 0;
        break;
      case 19:
        out->use_shardy = f.value != 0;
        break;
      default:
        break;
    }
  }
  return AT_OK;
}

// ---- env_option_overrides

typedef AT_VEC(at_str) strs;

// Bytes of the proto into the arena, so that the request does not borrow from
// it.
static at_status copy_text(at_arena *a, at_bytes b, at_str *out) {
  char *z;
  AT_TRY_ALLOC(z, at_arena_str(a, (at_str){(const char *)b.ptr, b.len}));
  *out = (at_str){z, b.len};
  return AT_OK;
}

// OptionOverrideProto: a string, bool, integer or double, as text.
static at_status override_read(at_arena *a, at_bytes b, at_str *out) {
  at_proto_field f;
  char *z;
  while (b.len) {
    AT_TRY(field_read(&b, &f));
    double d;
    if (f.number == 1 && f.wire == AT_PROTO_BYTES) {
      AT_TRY(copy_text(a, f.bytes, out));
      continue;
    }
    if (f.number == 2 && f.wire == AT_PROTO_VARINT) {
      *out = f.value ? AT_STR("true") : AT_STR("false");
      continue;
    }
    if (f.number == 3 && f.wire == AT_PROTO_VARINT) {
      z = at_arena_printf(a, "%lld", (long long)f.value);
    } else if (f.number == 4 && f.wire == AT_PROTO_64) {
      memcpy(&d, &f.value, sizeof d);
      z = at_arena_printf(a, "%.17g", d);
    } else {
      continue;
    }
    if (!z) return AT_NO_MEMORY("compile options");
    *out = at_str_of(z);
  }
  return AT_OK;
}

// One entry of the map env_option_overrides: key = 1, value = 2. Both absent
// fields are empty strings.
static at_status option_read(at_arena *a, at_bytes b, strs *out) {
  at_str key = AT_STR(""), value = AT_STR("");
  at_proto_field f;
  while (b.len) {
    AT_TRY(field_read(&b, &f));
    if (f.wire != AT_PROTO_BYTES) continue;
    if (f.number == 1) AT_TRY(copy_text(a, f.bytes, &key));
    if (f.number == 2) AT_TRY(override_read(a, f.bytes, &value));
  }
  if (!at_vec_push(a, out, key) || !at_vec_push(a, out, value))
    return AT_NO_MEMORY("compile options");
  return AT_OK;
}

// CompileOptionsProto: parameter_is_tupled_arguments = 2,
// executable_build_options = 3, compile_portable_executable = 4,
// env_option_overrides = 7. A message that occurs twice is merged, as protobuf
// asks. *out is written on success only.
at_status at_compile_request_read(at_bytes proto, at_arena *a,
                                  at_compile_request *out) {
  at_compile_request r = {0};
  r.device_ordinal = -1;
  assignment devices = {0};
  ints allow[2] = {0};  // to results, to parameters
  strs options = {0};
  at_proto_field f;
  at_bytes b = proto;
  while (b.len) {
    AT_TRY(field_read(&b, &f));
    if (f.number == 2 && f.wire == AT_PROTO_VARINT)
      r.parameter_is_tupled = f.value != 0;
    if (f.number == 4 && f.wire == AT_PROTO_VARINT)
      r.compile_portable_executable = f.value != 0;
    if (f.number == 3 && f.wire == AT_PROTO_BYTES)
      AT_TRY(build_read(a, f.bytes, &devices, allow, &r));
    if (f.number == 7 && f.wire == AT_PROTO_BYTES)
      AT_TRY(option_read(a, f.bytes, &options));
  }
  // Zero is how proto3 spells "not given".
  if (r.num_replicas == 0) r.num_replicas = 1;
  if (r.num_partitions == 0) r.num_partitions = 1;
  if (r.num_replicas < 0 || r.num_partitions < 0 ||
      r.num_replicas > MAX_DEVICES || r.num_partitions > MAX_DEVICES)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "compile options ask for %lld replicas x %lld partitions",
                   (long long)r.num_replicas, (long long)r.num_partitions);
  AT_TRY(assignment_apply(a, &devices, &r));
  AT_TRY(allow_apply(a, &allow[0], &r.allow_spmd_sharding_propagation_to_output,
                     &r.num_allow_output));
  AT_TRY(allow_apply(a, &allow[1],
                     &r.allow_spmd_sharding_propagation_to_parameters,
                     &r.num_allow_parameters));
  AT_ASSERT(options.len % 2 == 0);
  r.env_options = options.ptr;
  r.num_env_options = (uint32_t)(options.len / 2);
  *out = r;
  return AT_OK;
}

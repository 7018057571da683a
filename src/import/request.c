// CompileOptionsProto, read from its wire form. Field numbers are those of
// XLA's compile_options.proto and xla_data.proto; unknown fields are skipped.
#include "import/import.h"

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };
enum { MAX_DEVICES = 1 << 20 };

typedef struct field {
  uint32_t number;
  uint32_t wire;
  uint64_t varint;  // VARINT, 64, 32
  at_bytes bytes;   // BYTES
} field;

static at_status bad(const char *what) {
  return AT_FAIL(AT_INVALID_ARGUMENT, "compile options are malformed: %s",
                 what);
}

static at_status varint_read(at_bytes *b, uint64_t *out) {
  uint64_t v = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (b->len == 0) return bad("a number is cut off");
    uint8_t c = *b->ptr;
    b->ptr++;
    b->len--;
    v |= (uint64_t)(c & 0x7f) << shift;
    if (!(c & 0x80)) return *out = v, AT_OK;
  }
  return bad("a number has more than 64 bits");
}

static at_status fixed_read(at_bytes *b, size_t n, uint64_t *out) {
  if (b->len < n) return bad("a field is cut off");
  *out = 0;
  for (size_t i = 0; i < n; i++) *out |= (uint64_t)b->ptr[i] << (8 * i);
  b->ptr += n;
  b->len -= n;
  return AT_OK;
}

static at_status field_read(at_bytes *b, field *f) {
  uint64_t key, n;
  AT_TRY(varint_read(b, &key));
  *f = (field){.number = (uint32_t)(key >> 3), .wire = key & 7};
  if (key >> 3 == 0 || key >> 3 > 0x1fffffff) return bad("a field number");
  switch (f->wire) {
    case WIRE_VARINT:
      return varint_read(b, &f->varint);
    case WIRE_64:
      return fixed_read(b, 8, &f->varint);
    case WIRE_32:
      return fixed_read(b, 4, &f->varint);
    case WIRE_BYTES:
      AT_TRY(varint_read(b, &n));
      if (n > b->len) return bad("a field is cut off");
      f->bytes = (at_bytes){b->ptr, (size_t)n};
      b->ptr += n;
      b->len -= n;
      return AT_OK;
    default:
      return bad("a wire type that no current protobuf writes");
  }
}

// A repeated number may be packed or given one by one.
typedef AT_VEC(int64_t) ints;
static at_status ints_add(at_arena *a, const field *f, ints *out) {
  at_bytes b = f->bytes;
  uint64_t v = f->varint;
  bool packed = f->wire == WIRE_BYTES;
  if (!packed && f->wire != WIRE_VARINT) return bad("a list of numbers");
  while (!packed || b.len) {
    if (packed) AT_TRY(varint_read(&b, &v));
    if (out->len >= MAX_DEVICES) return bad("a list is too long");
    if (!at_vec_push(a, out, (int64_t)v))
      return AT_NO_MEMORY("compile options");
    if (!packed) break;
  }
  return AT_OK;
}

// DeviceAssignmentProto: one list of replicas per partition.
typedef struct assignment {
  int64_t replicas, computations;
  AT_VEC(ints) columns;
} assignment;

static at_status column_read(at_arena *a, at_bytes b, ints *out) {
  field f;
  while (b.len) {
    AT_TRY(field_read(&b, &f));
    if (f.number == 1) AT_TRY(ints_add(a, &f, out));
  }
  return AT_OK;
}

static at_status assignment_read(at_arena *a, at_bytes b, assignment *out) {
  field f;
  while (b.len) {
    AT_TRY(field_read(&b, &f));
    if (f.number == 1 && f.wire == WIRE_VARINT)
      out->replicas = (int64_t)f.varint;
    if (f.number == 2 && f.wire == WIRE_VARINT)
      out->computations = (int64_t)f.varint;
    if (f.number != 3 || f.wire != WIRE_BYTES) continue;
    ints column = {0};
    AT_TRY(column_read(a, f.bytes, &column));
    if (!at_vec_push(a, &out->columns, column))
      return AT_NO_MEMORY("compile options");
  }
  return AT_OK;
}

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

static at_status allow_apply(at_arena *a, const ints *list, const bool **out,
                             uint32_t *count) {
  bool *allow;
  AT_TRY_ALLOC(allow, at_new(a, bool, list->len + 1));
  for (size_t i = 0; i < list->len; i++) allow[i] = list->ptr[i] != 0;
  *out = allow;
  *count = (uint32_t)list->len;
  return AT_OK;
}

static at_status build_read(at_arena *a, at_bytes b, assignment *devices,
                            ints allow[2], at_compile_request *out) {
  field f;
  while (b.len) {
    AT_TRY(field_read(&b, &f));
    if (f.number == 12 || f.number == 18) {
      AT_TRY(ints_add(a, &f, &allow[f.number == 18]));
      continue;
    }
    if (f.number == 9 && f.wire == WIRE_BYTES)
      AT_TRY(assignment_read(a, f.bytes, devices));
    if (f.wire != WIRE_VARINT) continue;
    switch (f.number) {
      case 1:
        out->device_ordinal = (int64_t)f.varint;
        break;
      case 4:
        out->num_replicas = (int64_t)f.varint;
        break;
      case 5:
        out->num_partitions = (int64_t)f.varint;
        break;
      case 6:
        out->use_spmd_partitioning = f.varint != 0;
        break;
      case 19:
        out->use_shardy = f.varint != 0;
        break;
      default:
        break;
    }
  }
  return AT_OK;
}

// ---- env_option_overrides

typedef AT_VEC(at_str) strs;

static at_status copy_text(at_arena *a, at_bytes b, at_str *out) {
  char *z;
  AT_TRY_ALLOC(z, at_arena_str(a, (at_str){(const char *)b.ptr, b.len}));
  *out = (at_str){z, b.len};
  return AT_OK;
}

// OptionOverrideProto: a string, bool, integer or double, as text.
static at_status override_read(at_arena *a, at_bytes b, at_str *out) {
  field f;
  char *z;
  while (b.len) {
    AT_TRY(field_read(&b, &f));
    double d;
    if (f.number == 1 && f.wire == WIRE_BYTES) {
      AT_TRY(copy_text(a, f.bytes, out));
      continue;
    }
    if (f.number == 2 && f.wire == WIRE_VARINT) {
      *out = f.varint ? AT_STR("true") : AT_STR("false");
      continue;
    }
    if (f.number == 3 && f.wire == WIRE_VARINT) {
      z = at_arena_printf(a, "%lld", (long long)f.varint);
    } else if (f.number == 4 && f.wire == WIRE_64) {
      memcpy(&d, &f.varint, sizeof d);
      z = at_arena_printf(a, "%.17g", d);
    } else {
      continue;
    }
    if (!z) return AT_NO_MEMORY("compile options");
    *out = at_str_of(z);
  }
  return AT_OK;
}

static at_status option_read(at_arena *a, at_bytes b, strs *out) {
  at_str key = AT_STR(""), value = AT_STR("");
  field f;
  while (b.len) {
    AT_TRY(field_read(&b, &f));
    if (f.wire != WIRE_BYTES) continue;
    if (f.number == 1) AT_TRY(copy_text(a, f.bytes, &key));
    if (f.number == 2) AT_TRY(override_read(a, f.bytes, &value));
  }
  if (!at_vec_push(a, out, key) || !at_vec_push(a, out, value))
    return AT_NO_MEMORY("compile options");
  return AT_OK;
}

at_status at_compile_request_read(at_bytes proto, at_arena *a,
                                  at_compile_request *out) {
  at_compile_request r = {0};
  r.device_ordinal = -1;
  assignment devices = {0};
  ints allow[2] = {0};  // to results, to parameters
  strs options = {0};
  field f;
  at_bytes b = proto;
  while (b.len) {
    AT_TRY(field_read(&b, &f));
    if (f.number == 2 && f.wire == WIRE_VARINT)
      r.parameter_is_tupled = f.varint != 0;
    if (f.number == 4 && f.wire == WIRE_VARINT)
      r.compile_portable_executable = f.varint != 0;
    if (f.number == 3 && f.wire == WIRE_BYTES)
      AT_TRY(build_read(a, f.bytes, &devices, allow, &r));
    if (f.number == 7 && f.wire == WIRE_BYTES)
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
  AT_TRY(allow_apply(a, &allow[1], &r.allow_spmd_sharding_propagation_to_parameters,
                     &r.num_allow_parameters));
  r.env_options = options.ptr;
  r.num_env_options = (uint32_t)(options.len / 2);
  *out = r;
  return AT_OK;
}

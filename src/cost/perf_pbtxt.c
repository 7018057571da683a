// XLA's performance tables as text protos
// (xla/service/gpu/model/hlo_op_profile.proto and matmul perf table).
//
//   entries { key: "sm_90" value { entries {
//     instruction {
//       opcode: "all-reduce"
//       shape { element_type: F32 dimensions: 256 }
//       iota_collective_device_list {
//         num_replica_groups: 1 num_devices_per_group: 8
//         iota_reshape_dims: 8 iota_transpose_perm: 0 } }
//     network_throughput_bytes_per_sec: 20765736 } } }
//   entries { key: "sm_90" value { entries { b: 1 m: 256 n: 256 k: 256
//     flops { key: "bf16xbf16->bf16" value: 6765006451612 } } } }
#include <stdio.h>

#include "cost/cost_internal.h"
#include "cost/pbtxt.h"

enum { kMaxDevices = 1 << 16, kMaxDims = 8 };

typedef struct reader {
  at_arena *arena;
  double clock_hz;
  at_perf_tables tables;
  at_perf_list series;
  AT_VEC(at_point_list) points;  // beside `series`
  at_cycles_list cycles;
} reader;

static at_status bad(const at_pb *f, const char *what) {
  return AT_FAIL(AT_INVALID_ARGUMENT, "performance table, line %u: %s", f->line,
                 what);
}

// Adds a point to the series of that key, which is made if it is new.
static at_status add(reader *r, const at_perf_series *key, at_point p) {
  for (size_t i = r->series.len; i-- > 0;)
    if (at_perf_same_key(&r->series.ptr[i], key))
      return at_vec_push(r->arena, &r->points.ptr[i], p)
                 ? AT_OK
                 : AT_NO_MEMORY("points");
  at_point_list list = {0};
  return at_vec_push(r->arena, &list, p) &&
                 at_vec_push(r->arena, &r->series, *key) &&
                 at_vec_push(r->arena, &r->points, list)
             ? AT_OK
             : AT_NO_MEMORY("series");
}

// Product of the sizes of a shape; -1: no sizes or over INT64_MAX.
static int64_t dims_of(const at_pb *shape, int64_t *dims, int *rank) {
  int64_t n = 1;
  *rank = 0;
  for (const at_pb *d = at_pb_get(shape, "dimensions"); d; d = at_pb_next(d)) {
    at_pb one = {.first = d};
    int64_t v = at_pb_int(&one, "dimensions", -1, -1);
    if (v < 0 || *rank == kMaxDims || __builtin_mul_overflow(n, v, &n))
      return -1;
    dims[(*rank)++] = v;
  }
  return n;
}

// The values of a repeated field; -1: more than `most`.
static int ints_of(const at_pb *m, const char *name, int64_t *out, int most) {
  int n = 0;
  for (const at_pb *f = at_pb_get(m, name); f; f = at_pb_next(f)) {
    at_pb one = {.first = f};
    if (n == most) return -1;
    out[n++] = at_pb_int(&one, name, -1, -1);
  }
  return n;
}

// [groups, size] <= reshape(dims) transposed by perm: the ids in row-major
// order.
static at_status read_iota(reader *r, const at_pb *f, at_groups *g) {
  int64_t groups = at_pb_int(f, "num_replica_groups", -1, -1);
  int64_t size = at_pb_int(f, "num_devices_per_group", -1, -1);
  int64_t dims[kMaxDims], perm[kMaxDims];
  int rank = ints_of(f, "iota_reshape_dims", dims, kMaxDims);
  int perms = ints_of(f, "iota_transpose_perm", perm, kMaxDims);
  if (groups < 1 || size < 1 || groups > kMaxDevices || size > kMaxDevices ||
      groups * size > kMaxDevices || rank < 0 || perms < 0)
    return bad(f, "the device list has no groups");
  *g = (at_groups){(uint32_t)groups, (uint32_t)size, NULL};
  if (perms <= 1) return AT_OK;
  int64_t total = 1, stride[kMaxDims], seen = 0;
  bool good = perms == rank;
  for (int i = rank - 1; good && i >= 0; i--) {
    stride[i] = total;
    good = dims[i] > 0 && dims[i] <= kMaxDevices;
    if (good) total *= dims[i];
    good = good && total <= kMaxDevices && perm[i] >= 0 && perm[i] < rank &&
           !(seen >> perm[i] & 1);
    if (good) seen |= (int64_t)1 << perm[i];
  }
  if (!good || total != groups * size)
    return bad(f, "the device list does not add up");
  uint32_t *ids;
  AT_TRY_ALLOC(ids, at_new(r->arena, uint32_t, (size_t)total));
  for (int64_t i = 0; i < total; i++) {
    int64_t rest = i, id = 0;
    for (int d = rank - 1; d >= 0; d--) {
      id += rest % dims[perm[d]] * stride[perm[d]];
      rest /= dims[perm[d]];
    }
    ids[i] = (uint32_t)id;
  }
  g->ids = ids;
  at_groups iota = {g->count, g->size, NULL};
  if (at_groups_eq(g, &iota)) g->ids = NULL;
  return AT_OK;
}

// replica_groups, of equal size.
static at_status read_group_lists(reader *r, const at_pb *instr, at_groups *g) {
  AT_VEC(uint32_t) ids = {0};
  *g = (at_groups){0};
  for (const at_pb *f = at_pb_get(instr, "replica_groups"); f;
       f = at_pb_next(f)) {
    uint32_t n = 0;
    for (const at_pb *d = at_pb_get(f, "replica_ids"); d;
         d = at_pb_next(d), n++) {
      at_pb one = {.first = d};
      int64_t v = at_pb_int(&one, "replica_ids", -1, -1);
      if (v < 0 || v >= kMaxDevices)
        return bad(d, "a replica id is not a device");
      if (!at_vec_push(r->arena, &ids, (uint32_t)v))
        return AT_NO_MEMORY("device list");
    }
    if (!n || (g->count && n != g->size))
      return bad(f, "groups of different sizes");
    g->size = n, g->count++;
  }
  if (!g->count) return bad(instr, "a collective without devices");
  g->ids = ids.ptr;
  at_groups iota = {g->count, g->size, NULL};
  if (at_groups_eq(g, &iota)) g->ids = NULL;
  return AT_OK;
}

static at_status read_pairs(reader *r, const at_pb *instr, at_collective *key) {
  AT_VEC(uint32_t) flat = {0};
  for (const at_pb *f = at_pb_get(instr, "source_target_pairs"); f;
       f = at_pb_next(f)) {
    // proto3 leaves zeros out.
    int64_t s = at_pb_int(f, "source", 0, -1),
            t = at_pb_int(f, "target", 0, -1);
    if (s < 0 || t < 0 || s >= kMaxDevices || t >= kMaxDevices)
      return bad(f, "a pair names no devices");
    if (!at_vec_push(r->arena, &flat, (uint32_t)s) ||
        !at_vec_push(r->arena, &flat, (uint32_t)t))
      return AT_NO_MEMORY("device pairs");
  }
  if (!flat.len) return bad(instr, "a permute without pairs");
  key->pairs = (const uint32_t(*)[2])flat.ptr;
  key->num_pairs = (uint32_t)flat.len / 2;
  return AT_OK;
}

// One point of a collective: bytes from its shape, bytes per second.
static at_status read_collective(reader *r, const at_pb *e, const at_pb *instr,
                                 at_collective_op op) {
  at_perf_series s = {.key.op = op};
  const at_pb *shape = at_pb_get(instr, "shape");
  s.key.dtype = at_cost_dtype_parse(at_pb_str(shape, "element_type"));
  int64_t dims[kMaxDims];
  int rank;
  int64_t elements = dims_of(shape, dims, &rank);
  if (!at_dtype_bytes(s.key.dtype) || elements < 1)
    return bad(instr, "a collective without a shape of an array");
  const at_pb *iota = at_pb_get(instr, "iota_collective_device_list");
  if (op == AT_PERMUTE)
    AT_TRY(read_pairs(r, instr, &s.key));
  else
    AT_TRY(iota ? read_iota(r, iota, &s.key.groups)
                : read_group_lists(r, instr, &s.key.groups));
  int64_t rate = at_pb_int(e, "network_throughput_bytes_per_sec", 0, -1);
  if (rate < 0 || rate > AT_PERF_MAX_VALUE)
    return bad(e, "the throughput is not a rate");
  at_point p = {.value = (double)rate};
  p.at[0] = at_perf_bytes_of_elements(&s.key, elements);
  if (p.at[0] < 0) return bad(e, "more bytes than any memory has");
  return add(r, &s, p);
}

// Product of the dimensions that neither list names.
static int64_t free_dims(const int64_t *dims, int rank, const int64_t *a,
                         int na, const int64_t *b, int nb) {
  int64_t n = 1;
  for (int d = 0; d < rank; d++) {
    bool named = false;
    for (int i = 0; i < na; i++) named |= a[i] == d;
    for (int i = 0; i < nb; i++) named |= b[i] == d;
    if (!named && __builtin_mul_overflow(n, dims[d], &n)) return -1;
  }
  return n;
}

// Product of the dimensions in a list; -1: one is not there.
static int64_t named_dims(const int64_t *dims, int rank, const int64_t *names,
                          int n) {
  int64_t product = 1;
  for (int i = 0; i < n; i++)
    if (names[i] < 0 || names[i] >= rank ||
        __builtin_mul_overflow(product, dims[names[i]], &product))
      return -1;
  return product;
}

// A product by its cycles at the clock; XLA rounds its time down to
// nanoseconds.
static at_status read_dot(reader *r, const at_pb *e, const at_pb *instr) {
  const at_pb *lhs = at_pb_get(e, "operands"),
              *rhs = lhs ? at_pb_next(lhs) : NULL;
  if (!rhs || at_pb_next(rhs)) return bad(e, "a dot has two operands");
  const at_pb *shapes[3] = {at_pb_get(lhs, "shape"), at_pb_get(rhs, "shape"),
                            at_pb_get(instr, "shape")};
  const at_pb *numbers = at_pb_get(instr, "dot_dimension_numbers");
  int64_t ld[kMaxDims], rd[kMaxDims], batch[kMaxDims], lc[kMaxDims],
      rc[kMaxDims], rb[kMaxDims];
  int lrank, rrank;
  at_perf_series s = {
      .is_gemm = true,
      .lhs = at_cost_dtype_parse(at_pb_str(shapes[0], "element_type")),
      .rhs = at_cost_dtype_parse(at_pb_str(shapes[1], "element_type")),
      .out = at_cost_dtype_parse(at_pb_str(shapes[2], "element_type"))};
  bool good = at_dtype_bytes(s.lhs) && at_dtype_bytes(s.rhs) &&
              at_dtype_bytes(s.out) && dims_of(shapes[0], ld, &lrank) > 0 &&
              dims_of(shapes[1], rd, &rrank) > 0;
  if (!good) return bad(e, "a dot without shapes of arrays");
  int nb = ints_of(numbers, "lhs_batch_dimensions", batch, kMaxDims);
  int nlc = ints_of(numbers, "lhs_contracting_dimensions", lc, kMaxDims);
  int nrc = ints_of(numbers, "rhs_contracting_dimensions", rc, kMaxDims);
  int nrb = ints_of(numbers, "rhs_batch_dimensions", rb, kMaxDims);
  if (nb < 0 || nlc < 0 || nrc < 0 || nrb < 0)
    return bad(e, "too many dimensions");
  at_point p = {.at = {named_dims(ld, lrank, batch, nb),
                       free_dims(ld, lrank, batch, nb, lc, nlc),
                       named_dims(ld, lrank, lc, nlc),
                       free_dims(rd, rrank, rb, nrb, rc, nrc)}};
  int64_t cycles = at_pb_int(e, "clock_cycles", 0, -1);
  for (int i = 0; i < 4; i++) good = good && p.at[i] >= 1;
  if (!good || cycles < 1) return bad(e, "a dot without sizes or cycles");
  if (!(r->clock_hz > 0))
    return bad(
        e, "a dot is given in cycles, and the machine's clock is not known");
  double ns = (double)(int64_t)((double)cycles / (r->clock_hz * 1e-9));
  double flops = 2.0 * (double)p.at[0] * (double)p.at[1] * (double)p.at[2] *
                 (double)p.at[3];
  p.value = flops * 1e9 / AT_MAX(ns, 1.0);
  if (p.value > (double)AT_PERF_MAX_VALUE)
    return bad(e, "more FLOP/s than any machine has");
  return add(r, &s, p);
}

// "bf16xbf16->f32" to three types.
static bool split_types(at_str key, at_perf_series *s) {
  const char *arrow = NULL, *x = memchr(key.ptr, 'x', key.len);
  for (size_t i = 0; i + 1 < key.len; i++)
    if (key.ptr[i] == '-' && key.ptr[i + 1] == '>') arrow = key.ptr + i;
  if (!x || !arrow || arrow < x) return false;
  s->lhs = at_cost_dtype_parse((at_str){key.ptr, (size_t)(x - key.ptr)});
  s->rhs = at_cost_dtype_parse((at_str){x + 1, (size_t)(arrow - x - 1)});
  s->out = at_cost_dtype_parse(
      (at_str){arrow + 2, key.len - (size_t)(arrow + 2 - key.ptr)});
  return at_dtype_bytes(s->lhs) && at_dtype_bytes(s->rhs) &&
         at_dtype_bytes(s->out);
}

// One size, with a rate for each combination of types.
static at_status read_gemm(reader *r, const at_pb *e) {
  static const char *const names[4] = {"b", "m", "k", "n"};
  at_point p = {0};
  for (int i = 0; i < 4; i++) {
    p.at[i] = at_pb_int(e, names[i], -1, -1);
    if (p.at[i] < 1) return bad(e, "a GEMM without b, m, n and k");
  }
  for (const at_pb *f = at_pb_get(e, "flops"); f; f = at_pb_next(f)) {
    at_perf_series s = {.is_gemm = true};
    at_str key = at_pb_str(f, "key");
    int64_t value = at_pb_int(f, "value", 0, -1);
    if (!key.len || !split_types(key, &s) || value < 0 ||
        value > AT_PERF_MAX_VALUE)
      return bad(f, "flops is not {key: \"LHSxRHS->OUT\" value: FLOP/s}");
    p.value = (double)value;
    AT_TRY(add(r, &s, p));
  }
  return AT_OK;
}

// XLA's names have '-' where ours have '_'.
static bool op_of(at_str name, at_op *out) {
  char text[64];
  if (name.len >= sizeof text) return false;
  for (size_t i = 0; i < name.len; i++)
    text[i] = name.ptr[i] == '-' ? '_' : name.ptr[i];
  return at_op_parse((at_str){text, name.len}, out);
}

static at_status read_cycles(reader *r, const at_pb *e, const at_pb *instr,
                             at_str opcode) {
  at_perf_cycles c;
  if (!op_of(opcode, &c.op) || at_op_is(c.op, AT_COLLECTIVE))
    return bad(instr, "an op that a table may not hold");
  c.dtype =
      at_cost_dtype_parse(at_pb_str(at_pb_get(instr, "shape"), "element_type"));
  c.cycles = at_pb_int(e, "clock_cycles", 0, -1);
  if (!at_dtype_bytes(c.dtype) || c.cycles < 0 || c.cycles > AT_PERF_MAX_VALUE)
    return bad(e, "an op without a type or cycles");
  return at_vec_push(r->arena, &r->cycles, c) ? AT_OK : AT_NO_MEMORY("cycles");
}

// An entry is a GEMM unless it holds an instruction.
static at_status read_entry(reader *r, const at_pb *e) {
  const at_pb *instr = at_pb_get(e, "instruction");
  if (!instr) return read_gemm(r, e);
  at_str opcode = at_pb_str(instr, "opcode");
  at_collective_op op;
  size_t n = opcode.len;
  if (n > 6 && memcmp(opcode.ptr + n - 6, "-start", 6) == 0) opcode.len -= 6;
  if (at_str_is(opcode, "dot")) return read_dot(r, e, instr);
  if (at_collective_parse(opcode, &op)) return read_collective(r, e, instr, op);
  return read_cycles(r, e, instr, opcode);
}

// The table of one machine.
static at_status read_table(reader *r, const at_pb *entry) {
  at_str key = at_pb_str(entry, "key");
  bool plain = key.len > 0 && key.len < 256;
  for (size_t i = 0; plain && i < key.len; i++)
    plain = key.ptr[i] > ' ' && key.ptr[i] != '#';
  if (!plain) return bad(entry, "the key of a machine is not a word");
  at_perf_table t = {.source = ""};
  AT_TRY_ALLOC(t.machine, at_arena_str(r->arena, key));
  const at_pb *value = at_pb_get(entry, "value");
  int64_t domain = at_pb_int(value, "partition_size", 0, -1);
  if (domain < 0 || domain > kMaxDevices)
    return bad(entry, "partition_size is not a count");
  t.domain = (uint32_t)domain;
  r->series.len = r->points.len = r->series.cap = r->points.cap = 0;
  r->series.ptr = NULL, r->points.ptr = NULL;
  r->cycles = (at_cycles_list){0};
  for (const at_pb *e = at_pb_get(value, "entries"); e; e = at_pb_next(e))
    AT_TRY(read_entry(r, e));
  for (size_t i = 0; i < r->series.len; i++) {
    r->series.ptr[i].points = r->points.ptr[i].ptr;
    r->series.ptr[i].count = r->points.ptr[i].len;
  }
  t.series = r->series.ptr;
  t.count = r->series.len;
  t.cycles = r->cycles.ptr;
  t.num_cycles = r->cycles.len;
  return at_vec_push(r->arena, &r->tables, t) ? AT_OK : AT_NO_MEMORY("tables");
}

at_status at_perf_read_pbtxt(at_bytes text, double clock_hz, at_arena *a,
                             at_perf_table **out, size_t *count) {
  const at_pb *root;
  AT_TRY(at_pb_parse(text, a, &root));
  reader r = {.arena = a, .clock_hz = clock_hz};
  for (const at_pb *e = at_pb_get(root, "entries"); e; e = at_pb_next(e))
    AT_TRY(read_table(&r, e));
  *out = r.tables.ptr;
  *count = r.tables.len;
  return AT_OK;
}

// ---- Writing
// Groups or pairs in the form that XLA reads.
static void write_devices(const at_collective *key, at_strbuf *out) {
  const at_groups *g = &key->groups;
  if (key->op == AT_PERMUTE) {
    for (uint32_t i = 0; i < key->num_pairs; i++)
      at_strbuf_addf(out,
                     "        source_target_pairs { source: %u target: %u }\n",
                     key->pairs[i][0], key->pairs[i][1]);
  } else if (!g->ids) {
    at_strbuf_addf(
        out,
        "        iota_collective_device_list { num_replica_groups: %u "
        "num_devices_per_group: %u iota_reshape_dims: %u iota_transpose_perm: "
        "0 }\n",
        g->count, g->size, g->count * g->size);
  } else {
    for (uint32_t i = 0; i < g->count; i++) {
      at_strbuf_addz(out, "        replica_groups {");
      for (uint32_t j = 0; j < g->size; j++)
        at_strbuf_addf(out, " replica_ids: %u", g->ids[i * g->size + j]);
      at_strbuf_addz(out, " }\n");
    }
  }
}

// An entry for each point.
static void write_collective(const at_perf_series *s, at_strbuf *out) {
  int64_t per = at_perf_bytes_of_elements(&s->key, 1);
  for (size_t i = 0; i < s->count; i++) {
    at_strbuf_addf(
        out, "    entries {\n      instruction {\n        opcode: \"%s\"\n",
        at_collective_text(s->key.op));
    at_strbuf_addf(out, "        shape { element_type: %s dimensions: %lld }\n",
                   at_cost_dtype_xla(s->key.dtype),
                   (long long)(s->points[i].at[0] / per));
    write_devices(&s->key, out);
    at_strbuf_addf(
        out, "      }\n      network_throughput_bytes_per_sec: %lld\n    }\n",
        (long long)s->points[i].value);
  }
}

static void write_types(const at_perf_series *s, at_strbuf *out) {
  char text[64];
  snprintf(text, sizeof text, "%sx%s->%s", at_cost_dtype_xla(s->lhs),
           at_cost_dtype_xla(s->rhs), at_cost_dtype_xla(s->out));
  for (char *c = text; *c; c++)
    if (*c >= 'A' && *c <= 'Z') *c |= 32;
  at_strbuf_addz(out, text);
}

static void write_gemm(const at_perf_series *s, at_strbuf *out) {
  for (size_t i = 0; i < s->count; i++) {
    const int64_t *p = s->points[i].at;
    at_strbuf_addf(
        out, "    entries { b: %lld m: %lld n: %lld k: %lld flops { key: \"",
        (long long)p[0], (long long)p[1], (long long)p[3], (long long)p[2]);
    write_types(s, out);
    at_strbuf_addf(out, "\" value: %lld } }\n", (long long)s->points[i].value);
  }
}

static void write_cycles(const at_perf_cycles *c, at_strbuf *out) {
  char text[64];
  snprintf(text, sizeof text, "%s", at_op_text(c->op));
  for (char *p = text; *p; p++)
    if (*p == '_') *p = '-';
  at_strbuf_addf(
      out,
      "    entries { instruction { opcode: \"%s\" shape { element_type: %s } } "
      "clock_cycles: %lld }\n",
      text, at_cost_dtype_xla(c->dtype), (long long)c->cycles);
}

at_status at_perf_write_pbtxt(const at_perf_table *tables, size_t count,
                              bool gemm, at_strbuf *out) {
  for (size_t i = 0; i < count; i++) {
    const at_perf_table *t = &tables[i];
    at_strbuf_addz(out, "entries {\n  key: \"");
    for (const char *c = t->machine; *c; c++) {
      if (*c == '"' || *c == '\\') at_strbuf_addc(out, '\\');
      at_strbuf_addc(out, *c);
    }
    at_strbuf_addz(out, "\"\n  value {\n");
    for (size_t k = 0; k < t->count; k++) {
      if (t->series[k].is_gemm != gemm) continue;
      if (gemm)
        write_gemm(&t->series[k], out);
      else
        write_collective(&t->series[k], out);
    }
    for (size_t k = 0; k < t->num_cycles && !gemm; k++)
      write_cycles(&t->cycles[k], out);
    if (t->domain && !gemm)
      at_strbuf_addf(out, "    partition_size: %u\n", t->domain);
    at_strbuf_addz(out, "  }\n}\n");
  }
  return at_strbuf_status(out);
}

// Atoll's text form of performance tables. One item a line; '#' starts a
// comment.
//
//   atoll-perf 1                              the first line
//   machine sm_90                             starts a table
//   source TEXT                               up to the end of the line
//   domain 8                                  devices of one fast domain
//   collective all-reduce f32 groups 1x8      starts a series: groups x devices
//   collective all-reduce f32 groups 0,2|1,3  or the devices of each group
//   collective collective-permute f32 pairs 0>1 1>0
//   gemm bf16 bf16 f32                        starts a series: lhs, rhs, out
//   1024 20765736                   of collectives: bytes, bytes per second
//   1 256 256 512 6765006451612     of a GEMM: b m n k, FLOP per second

#include "cost/cost_internal.h"

enum { kMaxDevices = 1 << 16 };

static const char *const xla_names[AT_DTYPE_COUNT] = {
#define AT_DTYPE(Id, ...) [AT_##Id] = #Id,
#include "abi/dtype.def"
#undef AT_DTYPE
};

// Our names exactly, XLA's in either case.
at_dtype at_cost_dtype_parse(at_str name) {
  for (int t = AT_INVALID + 1; t < AT_DTYPE_COUNT; t++) {
    if (at_str_is(name, at_dtype_of((at_dtype)t)->text)) return (at_dtype)t;
    const char *x = xla_names[t];
    size_t i = 0;
    while (i < name.len && x[i] && (x[i] | 32) == (name.ptr[i] | 32)) i++;
    if (i == name.len && !x[i]) return (at_dtype)t;
  }
  return AT_INVALID;
}

const char *at_cost_dtype_xla(at_dtype t) { return xla_names[t]; }

bool at_groups_eq(const at_groups *a, const at_groups *b) {
  if (a->count != b->count || a->size != b->size) return false;
  size_t n = (size_t)a->count * a->size;
  for (size_t i = 0; i < n && (a->ids || b->ids); i++)
    if ((a->ids ? a->ids[i] : i) != (b->ids ? b->ids[i] : i)) return false;
  return true;
}

// ---- Reading
// A table file while it is read: what the current line adds to.
typedef struct reader {
  at_arena *arena;
  at_str rest;  // of the current line
  size_t line;
  at_perf_tables tables;
  at_perf_list series;    // of the current table
  at_point_list points;   // of the current series
  at_cycles_list cycles;  // of the current table
} reader;

static at_status bad(const reader *r, const char *what) {
  return AT_FAIL(
      AT_INVALID_ARGUMENT,
      "performance table, line %zu: %s\nhint: the form is described in "
      "docs/cost.md",
      r->line, what);
}

// The next word of the line; empty at its end.
static at_str word(reader *r) {
  at_str s = r->rest;
  while (s.len && (*s.ptr == ' ' || *s.ptr == '\t')) s.ptr++, s.len--;
  size_t n = 0;
  while (n < s.len && s.ptr[n] != ' ' && s.ptr[n] != '\t') n++;
  r->rest = (at_str){s.ptr + n, s.len - n};
  return (at_str){s.ptr, n};
}

// Digits at the start of *s; -1: none or over INT64_MAX.
static int64_t number(at_str *s) {
  int64_t v = 0;
  size_t i = 0;
  for (; i < s->len && s->ptr[i] >= '0' && s->ptr[i] <= '9'; i++)
    if (__builtin_mul_overflow(v, 10, &v) ||
        __builtin_add_overflow(v, s->ptr[i] - '0', &v))
      return -1;
  if (!i) return -1;
  s->ptr += i, s->len -= i;
  return v;
}

static int64_t whole_number(at_str s) {
  int64_t v = number(&s);
  return s.len ? -1 : v;
}

// Hands the points read so far to their series. INVALID_ARGUMENT: there are
// none.
static at_status end_series(reader *r) {
  if (!r->series.len) return AT_OK;
  at_perf_series *s = &r->series.ptr[r->series.len - 1];
  if (!r->points.len) return bad(r, "a series without points ends here");
  s->points = r->points.ptr;
  s->count = r->points.len;
  r->points = (at_point_list){0};
  return AT_OK;
}

// Hands series and cycles to their table.
static at_status end_table(reader *r) {
  AT_TRY(end_series(r));
  if (!r->tables.len) return AT_OK;
  at_perf_table *t = &r->tables.ptr[r->tables.len - 1];
  t->series = r->series.ptr;
  t->count = r->series.len;
  t->cycles = r->cycles.ptr;
  t->num_cycles = r->cycles.len;
  r->series = (at_perf_list){0};
  r->cycles = (at_cycles_list){0};
  return AT_OK;
}

// Ends the table before this one.
static at_status begin_table(reader *r) {
  AT_TRY(end_table(r));
  at_str name = word(r);
  if (!name.len || name.len > 255) return bad(r, "machine without a name");
  for (size_t i = 0; i < name.len; i++)
    if ((unsigned char)name.ptr[i] < ' ')
      return bad(r, "a control character in the name of a machine");
  at_perf_table t = {.source = ""};
  AT_TRY_ALLOC(t.machine, at_arena_str(r->arena, name));
  if (!at_vec_push(r->arena, &r->tables, t))
    return AT_NO_MEMORY("performance table");
  return AT_OK;
}

// "0>1 1>0", up to the end of the line.
static at_status read_pairs(reader *r, at_collective *key) {
  AT_VEC(uint32_t) flat = {0};
  for (at_str w = word(r); w.len; w = word(r)) {
    int64_t from = number(&w);
    bool good = w.len && *w.ptr == '>';
    if (good) w.ptr++, w.len--;
    int64_t to = good ? whole_number(w) : -1;
    if (from < 0 || to < 0 || from >= kMaxDevices || to >= kMaxDevices)
      return bad(r, "a pair is not source>target");
    if (!at_vec_push(r->arena, &flat, (uint32_t)from) ||
        !at_vec_push(r->arena, &flat, (uint32_t)to))
      return AT_NO_MEMORY("device pairs");
  }
  if (!flat.len) return bad(r, "no pairs");
  key->pairs = (const uint32_t(*)[2])flat.ptr;
  key->num_pairs = (uint32_t)(flat.len / 2);
  return AT_OK;
}

// "0,2|1,3": groups of equal size. Lists that count 0, 1, 2, ... become NULL.
static at_status read_group_list(reader *r, at_str w, at_groups *g) {
  AT_VEC(uint32_t) ids = {0};
  uint32_t in_group = 0;
  g->count = 1, g->size = 0;
  for (;;) {
    int64_t id = number(&w);
    if (id < 0 || id >= kMaxDevices)
      return bad(r, "a device of a group is not a number");
    if (!at_vec_push(r->arena, &ids, (uint32_t)id))
      return AT_NO_MEMORY("device list");
    in_group++;
    bool more = w.len && *w.ptr == ',', next = w.len && *w.ptr == '|';
    if (!more) {
      if (g->size && g->size != in_group)
        return bad(r, "groups of different sizes");
      g->size = in_group, in_group = 0;
      if (next) g->count++;
    }
    if (!more && !next) break;
    w.ptr++, w.len--;
  }
  if (w.len) return bad(r, "text after the groups");
  g->ids = ids.ptr;
  at_groups iota = {g->count, g->size, NULL};
  if (at_groups_eq(g, &iota)) g->ids = NULL;
  return AT_OK;
}

// "1x8", or a list.
static at_status read_groups(reader *r, at_groups *g) {
  at_str w = word(r), rest = w;
  int64_t count = number(&rest);
  if (!rest.len || *rest.ptr != 'x') return read_group_list(r, w, g);
  rest.ptr++, rest.len--;
  int64_t size = whole_number(rest);
  if (count < 1 || size < 1 || count > kMaxDevices || size > kMaxDevices ||
      count * size > kMaxDevices)
    return bad(r, "groups are not COUNTxDEVICES");
  *g = (at_groups){(uint32_t)count, (uint32_t)size, NULL};
  return AT_OK;
}

static at_status begin_collective(reader *r) {
  at_perf_series s = {0};
  if (!at_collective_parse(word(r), &s.key.op))
    return bad(r, "unknown collective");
  s.key.dtype = at_cost_dtype_parse(word(r));
  if (!at_dtype_bytes(s.key.dtype)) return bad(r, "unknown element type");
  at_str kind = word(r);
  bool pairs = at_str_is(kind, "pairs");
  if (pairs != (s.key.op == AT_PERMUTE) ||
      !(pairs || at_str_is(kind, "groups")))
    return bad(r, "neither groups nor, for a permute, pairs");
  AT_TRY(pairs ? read_pairs(r, &s.key) : read_groups(r, &s.key.groups));
  return at_vec_push(r->arena, &r->series, s) ? AT_OK : AT_NO_MEMORY("series");
}

static at_status begin_gemm(reader *r) {
  at_perf_series s = {.is_gemm = true};
  s.lhs = at_cost_dtype_parse(word(r));
  s.rhs = at_cost_dtype_parse(word(r));
  s.out = at_cost_dtype_parse(word(r));
  if (!at_dtype_bytes(s.lhs) || !at_dtype_bytes(s.rhs) ||
      !at_dtype_bytes(s.out))
    return bad(r, "gemm without three element types");
  return at_vec_push(r->arena, &r->series, s) ? AT_OK : AT_NO_MEMORY("series");
}

// One point of the current series.
static at_status read_point(reader *r, at_str first) {
  if (!r->series.len) return bad(r, "a point before any series");
  bool gemm = r->series.ptr[r->series.len - 1].is_gemm;
  int64_t v[5] = {whole_number(first)};
  int n = gemm ? 5 : 2;
  for (int i = 1; i < n; i++) v[i] = whole_number(word(r));
  for (int i = 0; i < n; i++)
    if (v[i] < (i + 1 == n ? 0 : 1))
      return bad(r, gemm ? "a point is not b m n k FLOP/s"
                         : "a point is not bytes bytes/s");
  if (v[n - 1] > AT_PERF_MAX_VALUE) return bad(r, "a rate over 2^62");
  at_point p = {.value = (double)v[n - 1]};
  p.at[0] = v[0];
  if (gemm) p.at[1] = v[1], p.at[2] = v[3], p.at[3] = v[2];  // b, m, k, n
  return at_vec_push(r->arena, &r->points, p) ? AT_OK : AT_NO_MEMORY("points");
}

static at_status read_cycles(reader *r) {
  at_perf_cycles c;
  if (!at_op_parse(word(r), &c.op)) return bad(r, "unknown op");
  c.dtype = at_cost_dtype_parse(word(r));
  c.cycles = whole_number(word(r));
  if (!at_dtype_bytes(c.dtype) || c.cycles < 0 || c.cycles > AT_PERF_MAX_VALUE)
    return bad(r, "cycles is not an op, an element type and a number");
  return at_vec_push(r->arena, &r->cycles, c) ? AT_OK : AT_NO_MEMORY("cycles");
}

// The rest of the line; control characters become blanks.
static at_status read_source(reader *r) {
  at_str s = r->rest;
  while (s.len && (unsigned char)*s.ptr <= ' ') s.ptr++, s.len--;
  char *copy;
  AT_TRY_ALLOC(copy, at_arena_str(r->arena, s));
  for (size_t i = 0; i < s.len; i++)
    if ((unsigned char)copy[i] < ' ') copy[i] = ' ';
  r->tables.ptr[r->tables.len - 1].source = copy;
  r->rest = AT_STR("");
  return AT_OK;
}

// One item; INVALID_ARGUMENT names the line.
static at_status read_line(reader *r) {
  at_str w = word(r);
  if (!w.len) return AT_OK;
  if (at_str_is(w, "machine")) {
    AT_TRY(begin_table(r));
  } else if (!r->tables.len) {
    return bad(r, "no machine yet");
  } else if (at_str_is(w, "source")) {
    return read_source(r);
  } else if (at_str_is(w, "domain")) {
    int64_t d = whole_number(word(r));
    if (d < 1 || d > kMaxDevices)
      return bad(r, "domain is not a number of devices");
    r->tables.ptr[r->tables.len - 1].domain = (uint32_t)d;
  } else if (at_str_is(w, "collective")) {
    AT_TRY(end_series(r));
    AT_TRY(begin_collective(r));
  } else if (at_str_is(w, "gemm")) {
    AT_TRY(end_series(r));
    AT_TRY(begin_gemm(r));
  } else if (at_str_is(w, "cycles")) {
    AT_TRY(read_cycles(r));
  } else {
    AT_TRY(read_point(r, w));
  }
  return word(r).len ? bad(r, "text after the end of the item") : AT_OK;
}

// Takes the next line, without its comment (a source keeps its '#').
static at_str next_line(at_str *text) {
  const char *end = memchr(text->ptr, '\n', text->len);
  size_t n = end ? (size_t)(end - text->ptr) : text->len;
  at_str line = {text->ptr, n};
  size_t used = end ? n + 1 : n;
  text->ptr += used, text->len -= used;
  if (line.len && line.ptr[line.len - 1] == '\r') line.len--;
  if (at_str_starts(line, "source ")) return line;
  const char *hash = line.len ? memchr(line.ptr, '#', line.len) : NULL;
  if (hash) line.len = (size_t)(hash - line.ptr);
  return line;
}

at_status at_perf_read(at_bytes bytes, at_arena *a, at_perf_table **out,
                       size_t *count) {
  reader r = {.arena = a, .line = 1};
  at_str text = {(const char *)bytes.ptr, bytes.len};
  if (!text.len) text.ptr = "";
  r.rest = next_line(&text);
  at_str magic = word(&r), version = word(&r);
  if (!at_str_is(magic, "atoll-perf"))
    return bad(&r, "does not start with atoll-perf");
  if (!at_str_is(version, "1") || word(&r).len)
    return AT_FAIL(AT_UNIMPLEMENTED,
                   "performance table: version \"%.*s\"\nhint: this Atoll "
                   "reads version 1",
                   (int)AT_MIN(version.len, (size_t)16), version.ptr);
  while (text.len) {
    r.line++;
    r.rest = next_line(&text);
    AT_TRY(read_line(&r));
  }
  AT_TRY(end_table(&r));
  *out = r.tables.ptr;
  *count = r.tables.len;
  return AT_OK;
}

// ---- Writing
// The line that begins a series.
static void write_key(const at_perf_series *s, at_strbuf *out) {
  if (s->is_gemm) {
    at_strbuf_addf(out, "gemm %s %s %s\n", at_dtype_of(s->lhs)->text,
                   at_dtype_of(s->rhs)->text, at_dtype_of(s->out)->text);
    return;
  }
  at_strbuf_addf(out, "collective %s %s ", at_collective_text(s->key.op),
                 at_dtype_of(s->key.dtype)->text);
  const at_groups *g = &s->key.groups;
  if (s->key.op == AT_PERMUTE) {
    at_strbuf_addz(out, "pairs");
    for (uint32_t i = 0; i < s->key.num_pairs; i++)
      at_strbuf_addf(out, " %u>%u", s->key.pairs[i][0], s->key.pairs[i][1]);
  } else if (!g->ids) {
    at_strbuf_addf(out, "groups %ux%u", g->count, g->size);
  } else {
    at_strbuf_addz(out, "groups ");
    for (uint32_t i = 0; i < g->count * g->size; i++)
      at_strbuf_addf(out, "%s%u", !i ? "" : i % g->size ? "," : "|", g->ids[i]);
  }
  at_strbuf_addc(out, '\n');
}

at_status at_perf_write(const at_perf_table *tables, size_t count,
                        at_strbuf *out) {
  at_strbuf_addz(out, "atoll-perf 1\n");
  for (size_t i = 0; i < count; i++) {
    const at_perf_table *t = &tables[i];
    at_strbuf_addf(out, "machine %s\n", t->machine);
    if (t->source && *t->source) at_strbuf_addf(out, "source %s\n", t->source);
    if (t->domain) at_strbuf_addf(out, "domain %u\n", t->domain);
    for (size_t k = 0; k < t->num_cycles; k++)
      at_strbuf_addf(out, "cycles %s %s %lld\n", at_op_text(t->cycles[k].op),
                     at_dtype_of(t->cycles[k].dtype)->text,
                     (long long)t->cycles[k].cycles);
    for (size_t k = 0; k < t->count; k++) {
      const at_perf_series *s = &t->series[k];
      write_key(s, out);
      for (size_t j = 0; j < s->count; j++) {
        const int64_t *p = s->points[j].at;
        if (s->is_gemm)
          at_strbuf_addf(out, "%lld %lld %lld %lld %lld\n", (long long)p[0],
                         (long long)p[1], (long long)p[3], (long long)p[2],
                         (long long)s->points[j].value);
        else
          at_strbuf_addf(out, "%lld %lld\n", (long long)p[0],
                         (long long)s->points[j].value);
      }
    }
  }
  return at_strbuf_status(out);
}

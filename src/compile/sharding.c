// From Shardy's text, which the module carries, to HLO's, which clients parse:
//
//   #sdy.sharding<@mesh, [{"x"}, {}]>
//   {devices=[4,1,2]<=[4,2]T(0,1) last_tile_dim_replicate}
//
// Axes may be parts of others ("x":(2)4), so the mesh is first cut at every
// place where a part begins or ends; each dimension is then a product of such
// pieces, and what is left of the mesh is replication. Device ids are written
// out where the mesh lists its own; else they are an iota over the pieces,
// transposed.
#include "compile/sharding.h"

#include <string.h>

#include "base/strbuf.h"

enum { kAxes = 32, kRefs = 128, kFactors = 128 };

typedef struct axis {
  at_str name;
  int64_t size;
  int64_t cuts[16];  // sizes before the places where sub-axes begin or end
  uint32_t num_cuts, first_factor;
} axis;

// An axis, or part of it: the factor `size` that has `before` in front of it.
typedef struct ref {
  uint32_t axis;
  int64_t before, size;
  int64_t dim;  // of the value
} ref;

typedef struct reader {
  const char *at, *end;
  axis axes[kAxes];
  uint32_t num_axes;
  ref refs[kRefs];
  uint32_t num_refs, rank;
  at_str device_ids;  // text between the brackets; len 0: 0, 1, 2, ...
  bool has_ids;
} reader;

// A reader of text that ends with NUL: each take_* advances only where it
// succeeds.
static void skip(reader *r) {
  while (r->at < r->end && (*r->at == ' ' || *r->at == ',')) r->at++;
}
// z, after blanks and commas.
static bool take(reader *r, const char *z) {
  skip(r);
  size_t n = strlen(z);
  if ((size_t)(r->end - r->at) < n || memcmp(r->at, z, n)) return false;
  r->at += n;
  return true;
}
// A name in quotes; *out borrows the text.
static bool take_name(reader *r, at_str *out) {
  if (!take(r, "\"")) return false;
  const char *close = memchr(r->at, '"', (size_t)(r->end - r->at));
  if (!close) return false;
  *out = (at_str){r->at, (size_t)(close - r->at)};
  r->at = close + 1;
  return true;
}
// Digits; values above 2^24 are cut off, which no mesh has.
static bool take_int(reader *r, int64_t *out) {
  skip(r);
  int64_t n = 0;
  const char *begin = r->at;
  for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++)
    if (n < 1 << 24) n = n * 10 + (*r->at - '0');
  *out = n;
  return r->at > begin;
}

// ---- Meshes
// ["x"=4, "y"=2], device_ids=[...]>
static bool read_mesh(reader *r) {
  if (!take(r, "[")) return false;
  while (!take(r, "]")) {
    if (r->num_axes == kAxes) return false;
    axis *a = &r->axes[r->num_axes++];
    if (!take_name(r, &a->name) || !take(r, "=") || !take_int(r, &a->size) ||
        a->size < 1)
      return false;
  }
  if (take(r, "device_ids") && take(r, "=") && take(r, "[")) {
    const char *close = memchr(r->at, ']', (size_t)(r->end - r->at));
    if (!close) return false;
    r->device_ids = (at_str){r->at, (size_t)(close - r->at)};
    r->has_ids = true;
    r->at = close + 1;
  }
  return take(r, ">");
}

// The mesh of that name among lines "@name = #sdy.mesh<...>".
static bool find_mesh(reader *r, const char *meshes, at_str name) {
  for (const char *p = meshes; p && (p = strchr(p, '@')); p++) {
    if (strncmp(p + 1, name.ptr, name.len) || p[1 + name.len] != ' ') continue;
    const char *body = strstr(p, "mesh<");
    if (!body) return false;
    reader m = {.at = body + 5, .end = body + strlen(body)};
    if (!read_mesh(&m)) return false;
    m.at = r->at;
    m.end = r->end;
    *r = m;
    return true;
  }
  return false;
}

// "mesh<...>" in place, or "@name".
static bool read_mesh_or_name(reader *r, const char *meshes) {
  if (take(r, "mesh<") || take(r, "#sdy.mesh<")) return read_mesh(r);
  if (!take(r, "@")) return false;
  const char *begin = r->at;
  while (r->at < r->end && *r->at != ',' && *r->at != '>' && *r->at != ' ')
    r->at++;
  return find_mesh(r, meshes, (at_str){begin, (size_t)(r->at - begin)});
}

// ---- Dimensions
static bool cut(axis *a, int64_t before) {
  if (before < 1 || a->size % before) return false;
  for (uint32_t i = 0; i < a->num_cuts; i++)
    if (a->cuts[i] == before) return true;
  if (a->num_cuts == sizeof a->cuts / sizeof *a->cuts) return false;
  uint32_t i = a->num_cuts++;
  for (; i > 0 && a->cuts[i - 1] > before; i--) a->cuts[i] = a->cuts[i - 1];
  a->cuts[i] = before;
  AT_ASSERT(i == 0 || a->cuts[i - 1] < before);
  AT_ASSERT(i + 1 == a->num_cuts || a->cuts[i + 1] > before);
  return true;
}

// "x" or "x":(2)4
static bool read_ref(reader *r, int64_t dim) {
  at_str name;
  if (!take_name(r, &name) || r->num_refs == kRefs) return false;
  for (uint32_t i = 0; i < r->num_axes; i++) {
    if (!at_str_eq(r->axes[i].name, name)) continue;
    ref *f = &r->refs[r->num_refs++];
    *f = (ref){i, 1, r->axes[i].size, dim};
    if (take(r, ":") && !(take(r, "(") && take_int(r, &f->before) &&
                          take(r, ")") && take_int(r, &f->size)))
      return false;
    if (f->size < 1 || f->before < 1 || f->before * f->size > r->axes[i].size)
      return false;
    return cut(&r->axes[i], f->before) && cut(&r->axes[i], f->before * f->size);
  }
  return false;
}

// [{"x", ?}p0, {}, {?}]
static bool read_dims(reader *r) {
  int64_t priority;
  if (!take(r, "[")) return false;
  while (!take(r, "]")) {
    if (!take(r, "{")) return false;
    while (!take(r, "}"))
      if (!take(r, "?") && !read_ref(r, r->rank)) return false;
    if (take(r, "p") && !take_int(r, &priority)) return false;
    r->rank++;
  }
  return true;
}

// ---- HLO's form
typedef struct tiling {
  int64_t factors[kFactors];  // of the mesh, major to minor
  int64_t dim_of[kFactors];   // of the value; -1: replicated
  uint32_t order[kFactors];   // factors as the tiles have them
  uint32_t count;
} tiling;

// Cuts each axis at its marks into factors. False: they do not nest.
static bool split_axes(reader *r, tiling *t) {
  for (uint32_t i = 0; i < r->num_axes; i++) {
    axis *a = &r->axes[i];
    if (!cut(a, 1) || !cut(a, a->size)) return false;
    a->first_factor = t->count;
    for (uint32_t k = 0; k + 1 < a->num_cuts; k++) {
      if (t->count == kFactors || a->cuts[k + 1] % a->cuts[k]) return false;
      t->dim_of[t->count] = -1;
      t->factors[t->count++] = a->cuts[k + 1] / a->cuts[k];
    }
    AT_ASSERT(a->cuts[0] == 1 && a->cuts[a->num_cuts - 1] == a->size);
  }
  return true;
}

// Gives each factor to the dimension whose ref covers it; the rest is
// replication, minor.
static bool assign(reader *r, tiling *t) {
  uint32_t placed = 0;
  for (uint32_t i = 0; i < r->num_refs; i++) {
    const ref *f = &r->refs[i];
    const axis *a = &r->axes[f->axis];
    for (uint32_t k = 0; k + 1 < a->num_cuts; k++) {
      if (a->cuts[k] < f->before || a->cuts[k] >= f->before * f->size) continue;
      if (t->dim_of[a->first_factor + k] >= 0) return false;  // used twice
      t->dim_of[a->first_factor + k] = f->dim;
      t->order[placed++] = a->first_factor + k;
    }
  }
  for (uint32_t i = 0; i < t->count; i++)
    if (t->dim_of[i] < 0) t->order[placed++] = i;
  AT_ASSERT(placed == t->count);  // each factor once
  return true;
}

// Device ids in the order of the tiles.
static bool print_ids(const reader *r, const tiling *t, int64_t n, at_arena *a,
                      at_strbuf *b) {
  reader ids = {.at = r->device_ids.ptr,
                .end = r->device_ids.ptr + r->device_ids.len};
  int64_t *list = at_new(a, int64_t, (size_t)n);
  for (int64_t i = 0; i < n; i++)
    if (!list || !take_int(&ids, &list[i])) return false;
  for (int64_t i = 0; i < n; i++) {
    int64_t rest = i, at = 0;
    for (uint32_t k = t->count; k-- > 0;) {  // digit of factor order[k]
      int64_t stride = 1, digit = rest % t->factors[t->order[k]];
      rest /= t->factors[t->order[k]];
      for (uint32_t j = t->order[k] + 1; j < t->count; j++)
        stride *= t->factors[j];
      at += digit * stride;
    }
    AT_ASSERT(rest == 0 && at < n);
    at_strbuf_addf(b, "%s%lld", i ? "," : "", (long long)list[at]);
  }
  return true;
}

// False: too many devices, or device_ids that do not read.
static bool print_tiling(const reader *r, const tiling *t, at_arena *a,
                         at_strbuf *b) {
  int64_t n = 1, replicas = 1;
  for (uint32_t i = 0; i < t->count; i++) {
    n *= t->factors[i];
    if (t->dim_of[i] < 0) replicas *= t->factors[i];
    if (n > 1 << 24) return false;
  }
  if (replicas == n) {
    at_strbuf_addz(b, "{replicated}");
    return true;
  }
  at_strbuf_addz(b, "{devices=[");
  int64_t all = replicas;
  for (uint32_t d = 0; d < r->rank; d++) {
    int64_t tiles = 1;
    for (uint32_t i = 0; i < t->count; i++)
      if (t->dim_of[i] == d) tiles *= t->factors[i];
    all *= tiles;
    at_strbuf_addf(b, "%s%lld", d ? "," : "", (long long)tiles);
  }
  AT_ASSERT(all == n);  // as many tiles as there are devices
  if (replicas > 1) at_strbuf_addf(b, ",%lld", (long long)replicas);
  at_strbuf_addz(b, "]");
  if (r->has_ids) {
    if (!print_ids(r, t, n, a, b)) return false;
  } else {
    at_strbuf_addz(b, "<=[");
    for (uint32_t i = 0; i < t->count; i++)
      at_strbuf_addf(b, "%s%lld", i ? "," : "", (long long)t->factors[i]);
    at_strbuf_addz(b, "]T(");
    for (uint32_t i = 0; i < t->count; i++)
      at_strbuf_addf(b, "%s%u", i ? "," : "", t->order[i]);
    at_strbuf_addz(b, ")");
  }
  at_strbuf_addz(b, replicas > 1 ? " last_tile_dim_replicate}" : "}");
  return true;
}

// False: the text does not read or does not fit the rank.
static bool convert(const char *text, const char *meshes, uint32_t rank,
                    at_arena *a, at_strbuf *b) {
  reader r = {.at = text, .end = text + strlen(text)};
  tiling t = {.count = 0};
  take(&r, "#sdy.sharding");
  if (!take(&r, "<") || !read_mesh_or_name(&r, meshes)) return false;
  if (r.num_axes == 0 && r.has_ids) {
    int64_t id;
    reader ids = {.at = r.device_ids.ptr,
                  .end = r.device_ids.ptr + r.device_ids.len};
    if (!take_int(&ids, &id)) return false;
    at_strbuf_addf(b, "{maximal device=%lld}", (long long)id);
    return true;
  }
  return read_dims(&r) && r.rank == rank && split_axes(&r, &t) &&
         assign(&r, &t) && print_tiling(&r, &t, a, b);
}

// HLO's own text comes back as it is, borrowed.
at_status at_sharding_hlo_text(const char *text, const char *meshes,
                               uint32_t rank, at_arena *a, const char **out) {
  *out = text ? text : "{replicated}";
  if (!text || *text == '{') return AT_OK;
  at_strbuf b = {0};
  bool fits = convert(text, meshes, rank, a, &b);
  at_status st = at_strbuf_status(&b);
  if (!st.err && !fits)
    st = AT_FAIL(AT_INVALID_ARGUMENT,
                 "cannot read the sharding %.200s of a value of rank %u", text,
                 rank);
  char *copy = NULL;
  if (!st.err && !(copy = at_arena_printf(a, "%s", b.ptr)))
    st = AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a sharding");
  at_strbuf_free(&b);
  if (!st.err) *out = copy;
  return st;
}

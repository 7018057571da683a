// Meshes and shardings: Shardy's text and HLO's into atoms, and back.
#include <ctype.h>
#include <stdio.h>

#include "passes/shard.h"

// ---- Scanner
typedef struct scan {
  const char *p, *end;
} scan;

static scan scan_of(at_str text) {  // an empty text may have no pointer
  return (scan){text.ptr, text.len ? text.ptr + text.len : text.ptr};
}

static void blanks(scan *s) {
  while (s->p < s->end && isspace((unsigned char)*s->p)) s->p++;
}
// Consumes z after blanks; false: something else comes, and only the blanks are
// gone.
static bool take(scan *s, const char *z) {
  blanks(s);
  size_t n = strlen(z);
  if ((size_t)(s->end - s->p) < n || memcmp(s->p, z, n) != 0) return false;
  s->p += n;
  return true;
}
// Digits up to about 2^43; false: none, or too many.
static bool number(scan *s, int64_t *out) {
  blanks(s);
  const char *from = s->p;
  int64_t v = 0;
  while (s->p < s->end && isdigit((unsigned char)*s->p)) {
    if (v > (int64_t)1 << 40) return false;
    v = v * 10 + (*s->p++ - '0');
  }
  *out = v;
  return s->p > from;
}
// A name in quotes, without escapes.
static bool quoted(scan *s, at_str *out) {
  if (!take(s, "\"")) return false;
  const char *from = s->p;
  while (s->p < s->end && *s->p != '"') s->p++;
  if (s->p == s->end) return false;
  *out = (at_str){from, (size_t)(s->p++ - from)};
  return true;
}
// @name or @"name".
static bool symbol(scan *s, at_str *out) {
  if (!take(s, "@")) return false;
  if (s->p < s->end && *s->p == '"') return quoted(s, out);
  const char *from = s->p;
  while (s->p < s->end &&
         (isalnum((unsigned char)*s->p) || strchr("_$.-", *s->p)))
    s->p++;
  *out = (at_str){from, (size_t)(s->p - from)};
  return out->len > 0;
}
// [1, 2, 3], (1, 2, 3) or, where `open` is 0, 1,2,3.
static at_status numbers(at_arena *a, scan *s, char open, at_dims *out,
                         bool *ok) {
  AT_VEC(int64_t) v = {0};
  int64_t x;
  const char from[] = {open, 0}, *to = open == '[' ? "]" : ")";
  *ok = !open || take(s, from);
  while (*ok && !(open && take(s, to))) {
    *ok = number(s, &x);
    if (*ok && !at_vec_push(a, &v, x)) return AT_NO_MEMORY("sharding");
    if (!take(s, ",") && !open) break;
  }
  *out = (at_dims){v.ptr, (uint32_t)v.len};
  return AT_OK;
}

// INVALID_ARGUMENT with at most 200 bytes of the text.
static at_status bad(at_str text, const char *why) {
  return AT_FAIL(AT_INVALID_ARGUMENT, "sharding `%.*s`: %s",
                 (int)AT_MIN(text.len, (size_t)200), text.ptr ? text.ptr : "",
                 why);
}

// Its tiles or axes begin where no axis of the program's meshes does.
static at_status against(at_str text) {
  return AT_FAIL(AT_UNIMPLEMENTED,
                 "sharding `%.*s` against the grain of the mesh",
                 (int)AT_MIN(text.len, (size_t)200), text.ptr);
}

// ---- Meshes
typedef AT_VEC(int64_t) ints;

// <["x"=2, "y"=4], device_ids=[...]>
static at_status read_mesh(at_cut *c, scan *s, at_mesh *out) {
  at_str text = {s->p, (size_t)(s->end - s->p)};
  AT_VEC(at_mesh_axis) axes = {0};
  int64_t product = 1;
  if (!take(s, "<") || !take(s, "[")) return bad(text, "not a mesh");
  while (!take(s, "]")) {
    at_mesh_axis x = {0};
    if (!quoted(s, &x.name) || !take(s, "=") || !number(s, &x.size) ||
        x.size < 1)
      return bad(text, "a mesh axis is \"name\"=size");
    if (__builtin_mul_overflow(product, x.size, &product))
      return bad(text, "too many devices");
    if (!at_vec_push(c->m->arena, &axes, x)) return AT_NO_MEMORY("mesh");
    take(s, ",");
  }
  out->axes = axes.ptr;
  out->num_axes = (uint32_t)axes.len;
  if (take(s, ",")) {
    at_dims ids;
    bool ok;
    if (!take(s, "device_ids") || !take(s, "=")) return bad(text, "not a mesh");
    AT_TRY(numbers(c->m->arena, s, '[', &ids, &ok));
    if (!ok) return bad(text, "device_ids is a list of numbers");
    out->maximal = axes.len == 0;
    if (out->maximal) {
      if (ids.rank != 1 || ids.ptr[0] < 0 || ids.ptr[0] >= c->m->num_partitions)
        return bad(text, "a mesh without axes is one of the devices");
      out->device = ids.ptr[0];
    } else {
      if (ids.rank != product)
        return bad(text, "device_ids and axes differ in size");
      bool iota = true, *seen;
      AT_TRY_ALLOC(seen, at_new(c->m->arena, bool, (size_t)product));
      for (uint32_t i = 0; i < ids.rank; i++) {
        if (ids.ptr[i] >= product)
          return bad(text, "a device id is out of range");
        if (seen[ids.ptr[i]]) return bad(text, "a device is there twice");
        seen[ids.ptr[i]] = true;
        iota &= ids.ptr[i] == i;
      }
      if (!iota) out->devices = ids.ptr;
    }
  }
  if (!take(s, ">")) return bad(text, "`>` expected");
  if (axes.len && product != c->m->num_partitions && product != 1)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "mesh @%.*s has %lld devices, the program %lld partitions",
                   (int)out->name.len, out->name.ptr, (long long)product,
                   (long long)c->m->num_partitions);
  return AT_OK;
}

// Strides at which some axis begins, over all meshes; sorted, each divides the
// next.
static at_status cut_points(at_cut *c, ints *cuts) {
  if (!at_vec_push(c->m->arena, cuts, 1) ||
      !at_vec_push(c->m->arena, cuts, c->m->num_partitions))
    return AT_NO_MEMORY("mesh");
  for (uint32_t i = 0; i < c->num_meshes; i++) {
    int64_t stride = 1;
    for (uint32_t k = c->meshes[i].num_axes; k-- > 0;) {
      stride *= c->meshes[i].axes[k].size;
      size_t at = 0;
      while (at < cuts->len && cuts->ptr[at] < stride) at++;
      if (at < cuts->len && cuts->ptr[at] == stride) continue;
      if (!at_vec_push(c->m->arena, cuts, 0)) return AT_NO_MEMORY("mesh");
      memmove(cuts->ptr + at + 1, cuts->ptr + at,
              (cuts->len - 1 - at) * sizeof *cuts->ptr);
      cuts->ptr[at] = stride;
    }
  }
  for (size_t i = 1; i < cuts->len; i++)
    if (cuts->ptr[i] % cuts->ptr[i - 1])
      return AT_FAIL(AT_UNIMPLEMENTED,
                     "meshes whose axes do not nest\ndetail: %s",
                     c->m->mesh_text);
  return AT_OK;
}

// Prime factors between consecutive cut points, so that every axis of every
// mesh is a run of atoms.
static at_status make_atoms(at_cut *c) {
  ints cuts = {0};
  AT_TRY(cut_points(c, &cuts));
  int64_t size[AT_MAX_ATOMS], stride[AT_MAX_ATOMS];
  uint32_t n = 0;
  for (size_t i = 1; i < cuts.len; i++) {
    int64_t left = cuts.ptr[i] / cuts.ptr[i - 1], at = cuts.ptr[i - 1];
    for (int64_t p = 2; left > 1; p++)
      while (left % p == 0) {
        if (n == AT_MAX_ATOMS)
          return AT_FAIL(AT_UNIMPLEMENTED, "a mesh of %lld devices",
                         (long long)c->m->num_partitions);
        size[n] = p;
        stride[n++] = at;
        at *= p;
        left /= p;
      }
  }
  c->num_atoms = n;
  AT_ASSERT(!n || stride[n - 1] * size[n - 1] == c->m->num_partitions);
  for (uint32_t i = 0; i < n; i++) {  // major first
    c->size[i] = size[n - 1 - i];
    c->stride[i] = stride[n - 1 - i];
  }
  return AT_OK;
}

// Atoms between two strides.
static void atoms_between(const at_cut *c, int64_t low, int64_t high,
                          uint32_t *first, uint32_t *count) {
  *first = 0;
  *count = 0;
  for (uint32_t i = 0; i < c->num_atoms; i++)
    if (c->stride[i] >= low && c->stride[i] < high) {
      if (!*count) *first = i;
      ++*count;
    }
}

// Tells each axis which atoms it is.
static void axes_to_atoms(at_cut *c, at_mesh *mesh) {
  int64_t stride = 1;
  for (uint32_t k = mesh->num_axes; k-- > 0;) {
    at_mesh_axis *x = (at_mesh_axis *)&mesh->axes[k];
    atoms_between(c, stride, stride * x->size, &x->first, &x->count);
    stride *= x->size;
  }
}

// Do the atoms of each axis make up its size? Those of the module's meshes do.
static bool has_grain(const at_cut *c, const at_mesh *mesh) {
  for (uint32_t k = 0; k < mesh->num_axes; k++) {
    const at_mesh_axis *x = &mesh->axes[k];
    int64_t have = 1;
    for (uint32_t i = 0; i < x->count; i++) have *= c->size[x->first + i];
    if (have != x->size) return false;
  }
  return true;
}

// Lines "@name = #sdy.mesh<...>". The first mesh with axes gives the order of
// devices.
at_status at_cut_meshes(at_cut *c) {
  const char *text = c->m->mesh_text ? c->m->mesh_text : "";
  AT_VEC(at_mesh) list = {0};
  scan s = {text, text + strlen(text)};
  for (blanks(&s); s.p < s.end; blanks(&s)) {
    at_mesh mesh = {0};
    if (!symbol(&s, &mesh.name) || !take(&s, "=") || !take(&s, "#sdy.mesh"))
      return bad(at_str_of(text), "not a mesh");
    AT_TRY(read_mesh(c, &s, &mesh));
    if (!at_vec_push(c->m->arena, &list, mesh)) return AT_NO_MEMORY("mesh");
  }
  c->meshes = list.ptr;
  c->num_meshes = (uint32_t)list.len;
  uint32_t first = 0;
  while (first < c->num_meshes && !c->meshes[first].num_axes) first++;
  c->devices = first < c->num_meshes ? c->meshes[first].devices : NULL;
  AT_TRY(make_atoms(c));
  for (uint32_t i = 0; i < c->num_meshes; i++) {
    axes_to_atoms(c, &c->meshes[i]);
    AT_ASSERT(has_grain(c, &c->meshes[i]));
  }
  return AT_OK;
}

// ---- Shardy's shardings
static const at_mesh *find_mesh(const at_cut *c, at_str name) {
  for (uint32_t i = 0; i < c->num_meshes; i++)
    if (at_str_eq(c->meshes[i].name, name)) return &c->meshes[i];
  return NULL;
}

static const at_mesh_axis *find_axis(const at_mesh *mesh, at_str name) {
  for (uint32_t i = 0; i < mesh->num_axes; i++)
    if (at_str_eq(mesh->axes[i].name, name)) return &mesh->axes[i];
  return NULL;
}

// "x" or "x":(2)4, its atoms appended to `out`.
static at_status read_axis(at_cut *c, const at_mesh *mesh, scan *s, at_str text,
                           at_axes *out) {
  at_str name;
  int64_t before = 1, size;
  if (!quoted(s, &name)) return bad(text, "an axis name expected");
  const at_mesh_axis *x = find_axis(mesh, name);
  if (!x) return bad(text, "an axis that the mesh does not have");
  size = x->size;
  if (take(s, ":") && (!take(s, "(") || !number(s, &before) || !take(s, ")") ||
                       !number(s, &size)))
    return bad(text, "a part of an axis is \"name\":(before)size");
  int64_t end, done = 1;
  if (before < 1 || size < 1 || __builtin_mul_overflow(before, size, &end) ||
      x->size % end)
    return bad(text, "a part that the axis does not have");
  for (uint32_t i = 0; i < x->count; i++) {
    uint32_t atom = x->first + i;
    if (done >= before && done < end) {
      if (out->n == AT_MAX_ATOMS) return bad(text, "too many axes");
      out->a[out->n++] = (uint8_t)atom;
    }
    done *= c->size[atom];
    if ((done > before && done % before) || (done > end && done % end))
      return bad(text, "a part of an axis that primes do not make");
  }
  return AT_OK;
}

// {"x", "y", ?}
static at_status read_axes(at_cut *c, const at_mesh *mesh, scan *s, at_str text,
                           at_axes *out, bool *open) {
  *out = (at_axes){0};
  if (open) *open = false;
  if (!take(s, "{")) return bad(text, "`{` expected");
  while (!take(s, "}")) {
    if (open && take(s, "?"))
      *open = true;
    else
      AT_TRY(read_axis(c, mesh, s, text, out));
    take(s, ",");
  }
  return AT_OK;
}

// Names that no mesh has are skipped.
at_status at_axes_mask(at_cut *c, at_str text, uint32_t *out) {
  *out = 0;
  scan s = scan_of(text);
  at_str name;
  for (; s.p < s.end; s.p++) {
    if (*s.p != '"') continue;
    if (!quoted(&s, &name)) break;
    s.p--;
    for (uint32_t i = 0; i < c->num_meshes; i++) {
      const at_mesh_axis *x = find_axis(&c->meshes[i], name);
      if (!x) continue;
      for (uint32_t k = 0; k < x->count; k++) *out |= 1u << (x->first + k);
      break;
    }
  }
  return AT_OK;
}

// How many of x, from the first, are whole axes of `mesh`.
static uint8_t whole_of(const at_mesh *mesh, const at_axes *x) {
  uint32_t n = 0;
  for (uint32_t k = 0; n < x->n && k < mesh->num_axes; k++) {
    const at_mesh_axis *axis = &mesh->axes[k];
    uint32_t have = 0;
    while (have < axis->count && n + have < x->n &&
           x->a[n + have] == axis->first + have)
      have++;
    if (!have || have < axis->count) continue;
    n += have;
    k = UINT32_MAX;  // the next may be any axis
  }
  return (uint8_t)n;
}

// Both rules shorten x, so it is repeated until neither does.
void at_axes_keep_whole(const at_cut *c, const at_mesh *mesh, int64_t n,
                        at_axes *x) {
  while (!at_axes_even(c, x, n)) x->n--;
  for (uint8_t before = 0xff; before != x->n;) {
    before = x->n;
    if (mesh && mesh->num_axes) x->n = whole_of(mesh, x);
    for (uint32_t i = 0; !mesh && i < c->num_meshes; i++)
      if (c->meshes[i].num_axes) x->n = whole_of(&c->meshes[i], x);
    AT_ASSERT(x->n <= before);
  }
}

// Atoms where some tile begins start an axis.
at_status at_cut_tiles_mesh(at_cut *c) {
  at_mesh *mesh;
  at_mesh_axis *axes;
  if (c->num_meshes || !c->num_atoms) return AT_OK;
  AT_TRY_ALLOC(mesh, at_new(c->m->arena, at_mesh, 1));
  AT_TRY_ALLOC(axes, at_new(c->m->arena, at_mesh_axis, c->num_atoms));
  for (uint32_t i = 0; i < c->num_atoms; i++) {
    if (!i || c->begins >> i & 1)
      axes[mesh->num_axes++] = (at_mesh_axis){.size = 1, .first = i};
    axes[mesh->num_axes - 1].size *= c->size[i];
    axes[mesh->num_axes - 1].count++;
  }
  mesh->axes = axes;
  c->meshes = mesh;
  c->num_meshes = 1;
  return AT_OK;
}

// What becomes of axes that do not divide a dimension.
typedef enum { REFUSE, DROP, KEEP } uneven;

// DROP: axes stay while there is something to cut.
static at_status trim(const at_cut *c, at_str text, uneven how, int64_t dim,
                      at_axes *x) {
  for (uint32_t i = 0; how != KEEP && i < x->n; i++) {
    int64_t size = c->size[x->a[i]];
    bool even = dim % size == 0;
    if (even || (how == DROP && dim > 1)) {
      dim = (dim + size - 1) / size;
      continue;
    }
    if (how == REFUSE)
      return AT_FAIL(AT_UNIMPLEMENTED,
                     "sharding `%.*s` cuts a dimension into unequal parts",
                     (int)AT_MIN(text.len, (size_t)200), text.ptr);
    x->n = (uint8_t)i;
  }
  return AT_OK;
}

// "[{"x"}, {?}p1]" onto p. Open dimensions of a priority above 0 wait in
// p->later.
static at_status read_dims(at_cut *c, const at_mesh *mesh, scan *s, at_str text,
                           uneven how, at_place *p) {
  int8_t *priority = NULL;
  if (!take(s, "[")) return bad(text, "`[` expected");
  uint32_t d = 0, used = 0;
  for (; !take(s, "]"); d++) {
    at_axes x;
    bool open;
    int64_t level = 0;
    AT_TRY(read_axes(c, mesh, s, text, &x, &open));
    if (take(s, "p") && !number(s, &level))
      return bad(text, "a priority is p<number>");
    take(s, ",");
    if (d >= p->whole.rank)
      return bad(text, "more dimensions than the value has");
    if (used & at_axes_bits(&x)) return bad(text, "an axis is used twice");
    used |= at_axes_bits(&x);
    AT_TRY(trim(c, text, how, p->whole.dims[d], &x));
    if (level > 0 && x.n && open) {
      if (!p->later) {
        AT_TRY_ALLOC(p->later, at_new(c->m->arena, at_axes, p->whole.rank));
        AT_TRY_ALLOC(priority, at_new(c->m->arena, int8_t, p->whole.rank));
        p->priority = priority;
      }
      p->later[d] = x;
      if (priority) priority[d] = (int8_t)AT_MIN(level, (int64_t)100);
      x.n = 0;
    }
    p->dims[d] = x;
    p->open = open ? p->open | 1ull << d : p->open & ~(1ull << d);
  }
  if (d != p->whole.rank && !(mesh->maximal && !d))
    return bad(text, "fewer dimensions than the value has");
  return AT_OK;
}

// NULL order: devices are their own numbers.
static int64_t device_in(const int64_t *order, int64_t position) {
  return order ? order[position] : position;
}

// Marks p when the mesh has its devices in another order than the program.
static at_status note_order(at_cut *c, const at_mesh *mesh, at_place *p) {
  int64_t n = c->m->num_partitions, *order;
  bool same =
      mesh->num_axes == 0 || !(at_dims_bits(p->dims, p->whole.rank) | p->sums);
  if (!same) {
    same = true;
    for (int64_t i = 0; i < n; i++)
      same &= device_in(mesh->devices, i) == device_in(c->devices, i);
  }
  p->devices = NULL;
  p->mesh = mesh >= c->meshes && mesh < c->meshes + c->num_meshes ? mesh : NULL;
  if (same) return AT_OK;
  AT_TRY_ALLOC(order, at_new(c->m->arena, int64_t, (size_t)n));
  for (int64_t i = 0; i < n; i++) order[i] = device_in(mesh->devices, i);
  p->devices = order;
  return AT_OK;
}

// "#sdy.sharding<@mesh or mesh<...>, [...], replicated={...},
// unreduced={...}>".
static at_status parse_shardy(at_cut *c, at_str text, uneven how, at_place *p) {
  scan s = scan_of(text);
  at_mesh own = {0};
  const at_mesh *mesh = &own;
  at_str name;
  take(&s, "#sdy.sharding");
  if (!take(&s, "<")) return bad(text, "`<` expected");
  if (take(&s, "mesh")) {
    uint32_t known = c->num_atoms;
    AT_TRY(read_mesh(c, &s, &own));
    if (own.num_axes && known) axes_to_atoms(c, &own);
    if (known && !has_grain(c, &own)) return against(text);
  } else if (!symbol(&s, &name) || !(mesh = find_mesh(c, name))) {
    return bad(text, "names no mesh of the program");
  }
  if (!take(&s, ",")) return bad(text, "`,` expected");
  AT_TRY(read_dims(c, mesh, &s, text, how, p));
  while (take(&s, ",")) {
    at_axes x;
    bool unreduced = take(&s, "unreduced");
    if ((!unreduced && !take(&s, "replicated")) || !take(&s, "="))
      return bad(text, "`replicated` or `unreduced` expected");
    AT_TRY(read_axes(c, mesh, &s, text, &x, NULL));
    if (unreduced) p->sums |= at_axes_bits(&x);
    p->banned |= at_axes_bits(&x);
  }
  return take(&s, ">") ? note_order(c, mesh, p) : bad(text, "`>` expected");
}

// ---- HLO's shardings
// Atoms of device numbers reshaped to `shape` and transposed by `perm`.
static at_status tile_atoms(const at_cut *c, at_str text, at_dims shape,
                            at_dims perm, at_axes *out) {
  int64_t stride[64], n = 1;
  if (shape.rank > 64) return bad(text, "too many dimensions");
  for (uint32_t i = shape.rank; i-- > 0;) {
    stride[i] = n;
    if (shape.ptr[i] < 1 || __builtin_mul_overflow(n, shape.ptr[i], &n))
      return bad(text, "a size is out of range");
  }
  if (n != c->m->num_partitions)
    return bad(text, "covers another number of devices");
  uint64_t seen = 0;
  *out = (at_axes){0};
  for (uint32_t i = 0; i < shape.rank; i++) {
    int64_t k = perm.rank ? perm.ptr[i] : i;
    if (k < 0 || k >= shape.rank || seen >> k & 1)
      return bad(text, "not a permutation");
    seen |= 1ull << k;
    uint32_t first, count;
    int64_t have = 1;
    atoms_between(c, stride[k], stride[k] * shape.ptr[k], &first, &count);
    for (uint32_t j = 0; j < count; j++) {
      have *= c->size[first + j];
      if (out->n == AT_MAX_ATOMS) return bad(text, "not a permutation");
      out->a[out->n++] = (uint8_t)(first + j);
    }
    if (have != shape.ptr[k]) return against(text);
  }
  return AT_OK;
}

// Atoms of a list of devices, tile after tile.
static at_status listed_atoms(const at_cut *c, at_str text, at_dims list,
                              at_axes *out) {
  int64_t n = c->m->num_partitions, *at, *place;
  if (list.rank != n) return bad(text, "covers another number of devices");
  AT_TRY_ALLOC(at, at_new(c->m->arena, int64_t, (size_t)n));
  AT_TRY_ALLOC(place, at_new(c->m->arena, int64_t, (size_t)n));
  for (int64_t p = 0; p < n; p++) place[device_in(c->devices, p)] = p;
  for (int64_t k = 0; k < n; k++) {
    if (list.ptr[k] < 0 || list.ptr[k] >= n)
      return bad(text, "a device is out of range");
    at[k] = place[list.ptr[k]];
  }
  // The second tile along each axis, minor first, tells which atom it is.
  at_axes minor_first = {0};
  bool ok = true;
  for (int64_t step = 1; ok && step < n;) {
    uint32_t i = 0;
    while (i < c->num_atoms && c->stride[i] != at[step]) i++;
    ok = i < c->num_atoms && minor_first.n < AT_MAX_ATOMS;
    if (ok) minor_first.a[minor_first.n++] = (uint8_t)i;
    if (ok) step *= c->size[i];
  }
  *out = (at_axes){0};
  for (uint32_t i = minor_first.n; i-- > 0;)
    out->a[out->n++] = minor_first.a[i];
  for (int64_t k = 0; ok && k < n; k++) {
    int64_t rest = k, p = 0;
    for (uint32_t i = 0; i < minor_first.n; i++) {
      uint8_t atom = minor_first.a[i];
      p += rest % c->size[atom] * c->stride[atom];
      rest /= c->size[atom];
    }
    ok = p == at[k];
  }
  if (ok) return AT_OK;
  return AT_FAIL(AT_UNIMPLEMENTED,
                 "sharding `%.*s` lists devices in an order that the program's "
                 "mesh does not have",
                 (int)AT_MIN(text.len, (size_t)200), text.ptr);
}

// Kinds of the tiles behind those of a value's dimensions: {manual,
// replicated}. Bit i of *out: number i is manual.
static bool read_last_tiles(scan *s, uint32_t *out) {
  *out = 0;
  if (!take(s, "last_tile_dims") || !take(s, "=") || !take(s, "{")) return true;
  for (uint32_t i = 0; i < 32 && !take(s, "}"); i++) {
    if (take(s, "manual"))
      *out |= 1u << i;
    else if (!take(s, "replicated") && !take(s, "unreduced"))
      return false;
    take(s, ",");
  }
  return true;
}

// The atoms of one tile: runs of them are of axes of their own.
static void note_tile(at_cut *c, const at_axes *x) {
  for (uint32_t i = 0; i < x->n; i++) {
    uint32_t next = x->a[i] + 1u;
    if (i == 0 || x->a[i] != x->a[i - 1] + 1) c->begins |= 1u << x->a[i];
    if (i + 1 == x->n || x->a[i + 1] != next) c->begins |= 1u << next;
  }
}

// *manual: the atoms along which the program itself cuts.
static at_status parse_hlo(at_cut *c, at_str text, uneven how, at_place *p,
                           uint32_t *manual) {
  scan s = scan_of(text);
  uint32_t rank = p->whole.rank;
  for (uint32_t d = 0; d < rank; d++) p->dims[d] = (at_axes){0};
  p->open = 0;
  *manual = 0;
  take(&s, "{");
  if (take(&s, "replicated") || take(&s, "maximal")) return AT_OK;
  if (take(&s, "manual")) {
    *manual = (1u << c->num_atoms) - 1;
    return AT_OK;
  }
  if (take(&s, "unknown")) {
    p->open = ~0ull;
    return AT_OK;
  }
  at_dims tile, shape, perm = {0};
  at_axes atoms;
  bool ok;
  if (!take(&s, "devices") || !take(&s, "="))
    return AT_FAIL(AT_UNIMPLEMENTED, "sharding `%.*s`",
                   (int)AT_MIN(text.len, (size_t)200), text.ptr);
  AT_TRY(numbers(c->m->arena, &s, '[', &tile, &ok));
  if (ok && take(&s, "<=")) {
    AT_TRY(numbers(c->m->arena, &s, '[', &shape, &ok));
    if (ok && take(&s, "T")) AT_TRY(numbers(c->m->arena, &s, '(', &perm, &ok));
    if (ok && perm.rank && perm.rank != shape.rank) ok = false;
    if (ok) AT_TRY(tile_atoms(c, text, shape, perm, &atoms));
  } else if (ok) {
    AT_TRY(numbers(c->m->arena, &s, 0, &shape, &ok));
    if (ok) AT_TRY(listed_atoms(c, text, shape, &atoms));
    c->listed = true;
  }
  uint32_t at = 0, manual_tiles;
  if (!ok || tile.rank < rank || !read_last_tiles(&s, &manual_tiles))
    return bad(text, "not a tiling of the value");
  for (uint32_t d = 0; d < tile.rank; d++) {
    at_axes x = {0};
    int64_t left = tile.ptr[d];
    while (left > 1 && at < atoms.n && left % c->size[atoms.a[at]] == 0) {
      left /= c->size[atoms.a[at]];
      x.a[x.n++] = atoms.a[at++];
    }
    if (left != 1) return bad(text, "tiles do not match the mesh");
    note_tile(c, &x);
    if (d >= rank) {  // replicated, or the program's own
      if (d - rank < 32 && manual_tiles >> (d - rank) & 1)
        *manual |= at_axes_bits(&x);
      continue;
    }
    AT_TRY(trim(c, text, how, p->whole.dims[d], &x));
    p->dims[d] = x;
  }
  return at == atoms.n ? AT_OK : bad(text, "tiles do not match the mesh");
}

// Over how many devices HLO's tiling cuts each dimension.
static at_status tiling_parts(at_arena *a, at_str text, at_dims *out) {
  scan s = scan_of(text);
  bool ok;
  *out = (at_dims){0};
  if (!take(&s, "{") || !take(&s, "devices") || !take(&s, "=")) return AT_OK;
  AT_TRY(numbers(a, &s, '[', out, &ok));
  for (uint32_t i = 0; ok && i < out->rank; i++) ok = out->ptr[i] > 0;
  if (!ok) *out = (at_dims){0};
  return AT_OK;
}

// Both texts; Shardy's with the axes of a later priority counted in.
at_status at_sharding_parts(at_cut *c, at_str text, const at_type *t,
                            at_dims *out) {
  if (text.len && text.ptr[0] == '{')
    return tiling_parts(c->m->arena, text, out);
  at_place p = {.whole = *t};
  int64_t *parts;
  AT_TRY_ALLOC(p.dims, at_new(c->m->arena, at_axes, t->rank + 1));
  AT_TRY_ALLOC(parts, at_new(c->m->arena, int64_t, t->rank + 1));
  AT_TRY(parse_shardy(c, text, KEEP, &p));
  for (uint32_t d = 0; d < t->rank; d++) {
    const at_axes *x = p.later && p.later[d].n ? &p.later[d] : &p.dims[d];
    parts[d] = 1;
    for (uint32_t i = 0; i < x->n; i++) parts[d] *= c->size[x->a[i]];
  }
  *out = (at_dims){parts, t->rank};
  return AT_OK;
}

// HLO's text begins with a brace.
at_status at_place_parse(at_cut *c, at_str text, bool exact, at_place *p) {
  uint32_t manual;
  if (text.len && text.ptr[0] == '{')
    return parse_hlo(c, text, exact ? REFUSE : DROP, p, &manual);
  return parse_shardy(c, text, exact ? REFUSE : DROP, p);
}

// Parses onto a place that is thrown away.
at_status at_manual_mask(at_cut *c, at_str text, const at_type *t,
                         uint32_t *out) {
  at_place p = {.whole = *t};
  AT_TRY_ALLOC(p.dims, at_new(c->m->arena, at_axes, t->rank + 1));
  return parse_hlo(c, text, DROP, &p, out);
}

// "{maximal device=3}", or a list of such.
static at_status hlo_device(const at_cut *c, at_str text, int64_t *out) {
  scan s = scan_of(text);
  while (take(&s, "{")) continue;
  if (!take(&s, "maximal") || !take(&s, "device") || !take(&s, "="))
    return AT_OK;
  if (!number(&s, out) || *out < 0 || *out >= c->m->num_partitions)
    return bad(text, "names no device of the program");
  return AT_OK;
}

// A mesh without axes names the device.
at_status at_sharding_device(at_cut *c, at_str text, int64_t *out) {
  *out = -1;
  if (text.len && text.ptr[0] == '{') return hlo_device(c, text, out);
  scan s = scan_of(at_sharding_item(text, 0));
  at_mesh own = {0};
  const at_mesh *mesh = &own;
  at_str name;
  if (!take(&s, "<")) return AT_OK;
  if (take(&s, "mesh"))
    AT_TRY(read_mesh(c, &s, &own));
  else if (!symbol(&s, &name) || !(mesh = find_mesh(c, name)))
    return bad(text, "names no mesh of the program");
  if (mesh->maximal) *out = mesh->device;
  return AT_OK;
}

// Items are told by angle brackets, which may nest.
at_str at_sharding_item(at_str list, uint32_t i) {
  uint32_t depth = 0, item = 0;
  size_t begin = 0, at = 0;
  while (at < list.len && list.ptr[at] != '[') at++;
  for (at++; at < list.len; at++) {
    char c = list.ptr[at];
    if (c == '<' && depth++ == 0) begin = at;
    if (c == '>' && depth && --depth == 0 && item++ == i)
      return (at_str){list.ptr + begin, at + 1 - begin};
  }
  return (at_str){0};
}

// ---- Printing
// Runs of atoms that follow one another are one dimension of the device
// numbers: "<=[4,2]T(1,0)".
static void print_order(const at_cut *c, const uint8_t *order, uint32_t n,
                        at_strbuf *b) {
  uint8_t first[AT_MAX_ATOMS];  // run at atom i: its number in `order`, or 0xff
  memset(first, 0xff, sizeof first);
  uint32_t runs = 0;
  int64_t size[AT_MAX_ATOMS];
  for (uint32_t i = 0; i < n; i++) {
    if (i && order[i] == order[i - 1] + 1) {
      size[runs - 1] *= c->size[order[i]];
      continue;
    }
    first[order[i]] = (uint8_t)runs;
    size[runs++] = c->size[order[i]];
  }
  uint8_t rank_of[AT_MAX_ATOMS];
  at_strbuf_addf(b, "<=[");
  for (uint32_t i = 0, k = 0; i < c->num_atoms; i++)
    if (first[i] != 0xff) {
      at_strbuf_addf(b, "%s%lld", k ? "," : "", (long long)size[first[i]]);
      rank_of[first[i]] = (uint8_t)k++;
    }
  at_strbuf_addc(b, ']');
  for (uint32_t i = 0; runs > 1 && i < runs; i++)
    at_strbuf_addf(b, "%s%u%s", i ? "," : "T(", rank_of[i],
                   i + 1 < runs ? "" : ")");
}

// The device of each tile: "3,1,2,0".
static void print_devices(const at_cut *c, const int64_t *devices,
                          const uint8_t *order, uint32_t n, at_strbuf *b) {
  for (int64_t tile = 0; tile < c->m->num_partitions; tile++) {
    int64_t rest = tile, position = 0;
    for (uint32_t i = n; i-- > 0;) {
      position += rest % c->size[order[i]] * c->stride[order[i]];
      rest /= c->size[order[i]];
    }
    at_strbuf_addf(b, "%s%lld", tile ? "," : "",
                   (long long)device_in(devices, position));
  }
}

// Appends to `order` the atoms in `mask`; how many devices they tell apart.
static int64_t put_atoms(const at_cut *c, uint32_t mask, uint8_t *order,
                         uint32_t *n) {
  int64_t size = 1;
  for (uint32_t i = 0; i < c->num_atoms; i++)
    if (mask >> i & 1) {
      size *= c->size[i];
      order[(*n)++] = (uint8_t)i;
    }
  return size;
}

// "{devices=[parts of each dimension, then copies]order}".
static void print_tiles(const at_cut *c, const at_place *p, at_strbuf *b) {
  uint8_t order[AT_MAX_ATOMS];
  uint32_t n = 0, all = (1u << c->num_atoms) - 1;
  uint32_t used = at_dims_bits(p->dims, p->whole.rank);
  at_strbuf_addf(b, "{devices=[");
  for (uint32_t d = 0; d < p->whole.rank; d++) {
    at_strbuf_addf(b, "%s%lld", d ? "," : "",
                   (long long)at_axes_size(c, &p->dims[d]));
    for (uint32_t i = 0; i < p->dims[d].n; i++) order[n++] = p->dims[d].a[i];
  }
  const char *comma = p->whole.rank ? "," : "";
  int64_t sums = put_atoms(c, p->sums, order, &n);
  int64_t rest = put_atoms(c, all & ~used & ~p->sums, order, &n);
  if (p->sums) at_strbuf_addf(b, "%s%lld", comma, (long long)sums);
  if (p->sums) comma = ",";
  if (rest > 1) at_strbuf_addf(b, "%s%lld", comma, (long long)rest);
  at_strbuf_addc(b, ']');
  if (p->devices || c->devices || c->listed)
    print_devices(c, p->devices ? p->devices : c->devices, order, n, b);
  else
    print_order(c, order, n, b);
  if (p->sums)
    at_strbuf_addf(b, " last_tile_dims={unreduced%s}",
                   rest > 1 ? ", replicated" : "");
  else if (rest > 1)
    at_strbuf_addz(b, " last_tile_dim_replicate");
  at_strbuf_addc(b, '}');
}

// The text lives in the module's arena, but for constants.
at_status at_place_print(const at_cut *c, const at_place *p, const char **out) {
  uint32_t used = at_dims_bits(p->dims, p->whole.rank);
  if (!used && !p->sums) {
    *out = "{replicated}";
    return AT_OK;
  }
  if (p->sums == (1u << c->num_atoms) - 1) {
    *out = "{unreduced}";
    return AT_OK;
  }
  at_strbuf b = {0};
  print_tiles(c, p, &b);
  *out = at_strbuf_move(&b, c->m->arena);
  return *out ? AT_OK : AT_NO_MEMORY("sharding");
}

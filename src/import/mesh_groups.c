// Groups of a collective that are given as axes of a mesh.
#include "import/import_internal.h"

enum { kMaxAxes = 64, kMaxDevices = 1 << 24 };

// Digits of a device's place in the mesh: place / stride % size.
typedef struct digits {
  int64_t stride[kMaxAxes], size[kMaxAxes];
  uint32_t n;
} digits;

// INVALID_ARGUMENT about the mesh of a collective.
static at_status bad(at_imp *x, const at_mop *op, const char *what) {
  return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT, "groups by mesh axes: %s",
                    what);
}

// A positive size no larger than the largest mesh that is taken; false: absent,
// of another kind, or out of bounds.
static bool size_of(const at_mattr *t, const char *field, int64_t *out) {
  const at_mattr *v = at_mattr_field(t, field);
  return v && at_mattr_int(v, out) && *out > 0 && *out <= kMaxDevices;
}

// The axis that `ref` names, or its part: `pre` devices, then `size` of them.
static at_status digit_of(at_imp *x, const at_mop *op, const at_mattr *axes,
                          const at_mattr *ref, int64_t total, digits *d) {
  const at_mattr *name = at_mattr_field(ref, "name");
  const at_mattr *part = at_mattr_field(ref, "sub_axis_info");
  int64_t stride = total, size = 0, pre = 1;
  for (uint32_t i = 0; name && i < axes->num_elems && !size; i++) {
    const at_mattr *own = at_mattr_field(axes->elems[i], "name");
    int64_t n;
    if (!size_of(axes->elems[i], "size", &n)) break;
    stride /= n;
    if (own && at_str_eq(own->str, name->str)) size = n;
  }
  if (!size) return bad(x, op, "an axis that the mesh does not have");
  int64_t want = size;
  if (part &&
      (!size_of(part, "pre_size", &pre) || !size_of(part, "size", &want) ||
       size % pre || size / pre % want))
    return bad(x, op, "a part that does not divide its axis");
  if (d->n == kMaxAxes) return bad(x, op, "too many axes");
  d->stride[d->n] = stride * (size / pre / want);
  d->size[d->n++] = want;
  return AT_OK;
}

// Without device_ids the devices stand in the mesh in order.
static int64_t device_at(at_dims ids, int64_t place) {
  return ids.rank ? ids.ptr[place] : place;
}

// Groups in the order of their first places, members in that of the axes.
static at_status fill(at_imp *x, const digits *d, at_dims ids, int64_t total,
                      int64_t each, at_attr *out) {
  int64_t *all;
  at_dims *list;
  uint32_t rows = 0;
  AT_TRY_ALLOC(all, at_new(x->a, int64_t, (size_t)total));
  AT_TRY_ALLOC(list, at_new(x->a, at_dims, (size_t)(total / each)));
  for (int64_t p = 0; p < total; p++) {
    bool first = true;
    for (uint32_t i = 0; i < d->n; i++)
      first &= p / d->stride[i] % d->size[i] == 0;
    if (!first || rows == total / each) continue;
    int64_t *group = all + rows * each;
    for (int64_t k = 0; k < each; k++) {
      int64_t place = p, rest = k;
      for (uint32_t i = d->n; i-- > 0; rest /= d->size[i])
        place += rest % d->size[i] * d->stride[i];
      group[k] = device_at(ids, place % total);
    }
    list[rows++] = (at_dims){group, (uint32_t)each};
  }
  AT_ASSERT(rows == total / each);
  out->groups.list = list;
  out->groups.n = rows;
  return AT_OK;
}

// The mesh is row-major: the last axis has stride 1. Devices that agree in all
// digits but those of `axes` form one group.
at_status at_imp_mesh_groups(at_imp *x, const at_mop *op, const at_mattr *t,
                             at_attr *out) {
  const at_mattr *mesh = at_mattr_field(t, "mesh");
  const at_mattr *refs = at_mattr_field(t, "axes");
  if (mesh &&
      (mesh->kind == AT_MATTR_SYMBOL || mesh->kind == AT_MATTR_STRING)) {
    void **slot = at_map_find(&x->meshes, mesh->str);
    mesh = slot ? *slot : NULL;
  }
  const at_mattr *axes = mesh ? at_mattr_field(mesh, "axes") : NULL;
  if (!axes || axes->kind != AT_MATTR_ARRAY || !refs ||
      refs->kind != AT_MATTR_ARRAY)
    return bad(x, op, "a mesh that the program does not have");
  int64_t total = 1, each = 1, n;
  for (uint32_t i = 0; i < axes->num_elems; i++) {
    if (!size_of(axes->elems[i], "size", &n) || (total *= n) > kMaxDevices)
      return bad(x, op, "a mesh of an impossible size");
  }
  at_dims ids = {0};
  const at_mattr *order = at_mattr_field(mesh, "device_ids");
  if (order) AT_TRY(at_imp_ints(x, op, "device_ids", order, &ids));
  if (ids.rank && ids.rank != total)
    return bad(x, op, "a mesh with another number of devices");
  digits d = {.n = 0};
  for (uint32_t i = 0; i < refs->num_elems; i++) {
    AT_TRY(digit_of(x, op, axes, refs->elems[i], total, &d));
    if ((each *= d.size[d.n - 1]) > total)
      return bad(x, op, "an axis stands twice");
  }
  return fill(x, &d, ids, total, each, out);
}

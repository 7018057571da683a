// Replica groups in all the forms that XLA has had for them.
#include "base/verify.h"
#include "hloproto/hloproto_internal.h"

// Bounded at each factor, so the product cannot overflow.
at_status at_hp_product(at_dims dims, const char *what, int64_t *out) {
  int64_t n = 1;
  for (uint32_t k = 0; k < dims.rank; k++)
    if (dims.ptr[k] < 1 || dims.ptr[k] > AT_HP_MAX_DEVICES ||
        (n *= dims.ptr[k]) > AT_HP_MAX_DEVICES)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "%s: a size is %lld, 1 to %d devices are possible", what,
                     (long long)dims.ptr[k], AT_HP_MAX_DEVICES);
  *out = n;
  return AT_OK;
}

enum { kMostDims = 32 };

// No permutation at all is the identity.
static at_status check_perm(at_dims dims, at_dims perm) {
  bool seen[kMostDims] = {0};
  bool ok =
      dims.rank <= kMostDims && (perm.rank == dims.rank || perm.rank == 0);
  for (uint32_t k = 0; ok && k < perm.rank; k++) {
    ok = perm.ptr[k] >= 0 && perm.ptr[k] < dims.rank && !seen[perm.ptr[k]];
    if (ok) seen[perm.ptr[k]] = true;
  }
  return ok ? AT_OK
            : AT_FAIL(AT_INVALID_ARGUMENT,
                      "a list of devices is transposed by no permutation");
}

// An odometer over the permuted dimensions; p is filled in order, at cost n *
// rank.
// Whether each number below the list's length is in it once.
static bool is_order(at_dims list) {
  uint64_t seen[AT_HP_MAX_DEVICES / 64] = {0};
  for (uint32_t i = 0; i < list.rank; i++) {
    int64_t v = list.ptr[i];
    if (v < 0 || v >= list.rank || seen[v / 64] >> v % 64 & 1) return false;
    seen[v / 64] |= 1ull << v % 64;
  }
  return true;
}

at_status at_hp_iota(at_hp *x, at_dims dims, at_dims perm, at_dims *out) {
  int64_t n, stride[kMostDims], at[kMostDims] = {0}, *p;
  AT_TRY(at_hp_product(dims, "a list of devices", &n));
  AT_TRY(check_perm(dims, perm));
  int64_t s = 1;
  for (uint32_t k = dims.rank; k-- > 0; s *= dims.ptr[k]) stride[k] = s;
  AT_TRY_ALLOC(p, at_new(x->a, int64_t, (size_t)n + 1));
  for (int64_t i = 0; i < n; i++) {
    p[i] = 0;
    for (uint32_t k = 0; k < dims.rank; k++) {
      uint32_t d = perm.rank ? (uint32_t)perm.ptr[k] : k;
      p[i] += at[k] * stride[d];
    }
    for (uint32_t k = dims.rank; k-- > 0;) {
      uint32_t d = perm.rank ? (uint32_t)perm.ptr[k] : k;
      if (++at[k] < dims.ptr[d]) break;
      at[k] = 0;
    }
  }
  *out = (at_dims){p, (uint32_t)n};
  AT_VERIFY(is_order(*out));
  return AT_OK;
}

// The list cut into groups of `size`.
static at_status cut(at_hp *x, at_dims list, int64_t size, at_attr *out) {
  AT_ASSERT(size > 0 && list.rank % size == 0);
  uint32_t n = (uint32_t)(list.rank / size);
  at_dims *groups;
  AT_TRY_ALLOC(groups, at_new(x->a, at_dims, (size_t)n + 1));
  for (uint32_t g = 0; g < n; g++)
    groups[g] = (at_dims){list.ptr + g * size, (uint32_t)size};
  out->groups.list = groups;
  out->groups.n = n;
  return AT_OK;
}

// IotaReplicaGroupListProto: num_replica_groups 1, num_devices_per_group 2,
// iota_reshape_dims 3, iota_transpose_perm 4.
static at_status iota_groups(at_hp *x, const at_hp_inst *i, at_bytes b,
                             at_attr *out) {
  at_dims dims, perm, list;
  int64_t groups = at_proto_int(b, 1), size = at_proto_int(b, 2);
  AT_TRY(at_proto_list(b, 3, "iota_reshape_dims", x->a, &dims));
  AT_TRY(at_proto_list(b, 4, "iota_transpose_perm", x->a, &perm));
  AT_TRY(at_hp_iota(x, dims, perm, &list));
  if (groups < 1 || size < 1 || size > list.rank || list.rank % size ||
      list.rank / size != groups)
    return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT,
                      "%lld groups of %lld do not make %u devices",
                      (long long)groups, (long long)size, list.rank);
  return cut(x, list, size, out);
}

// ---- Groups along axes of a mesh
typedef struct digits {  // of a position in the mesh, major to minor
  int64_t size[kMostDims];
  bool grouped[kMostDims];
  uint32_t order[kMostDims];  // of the grouped ones, as they are listed
  uint32_t n, num_grouped;
} digits;

// One axis is one digit, or three when a group has its middle.
typedef struct axis_ref {
  int64_t axis, pre, size;  // size 0: all of it
} axis_ref;

// AxisRefProto: mesh_axis_index 1, sub_axis_info 2 (pre_size 1, size 2).
static at_status refs_read(at_hp *x, at_bytes b, axis_ref *out, uint32_t *n) {
  for (at_proto_field f; at_proto_next(&b, &f);) {
    if (f.number != 2) continue;
    if (*n == kMostDims)
      return AT_FAIL(AT_INVALID_ARGUMENT, "a group has too many axes");
    at_bytes sub = at_proto_bytes(f.bytes, 2);
    out[(*n)++] = (axis_ref){at_proto_int(f.bytes, 1), at_proto_int(sub, 1),
                             at_proto_int(sub, 2)};
  }
  return AT_OK;
}

// False: the mesh has too many axes and cuts.
static bool add_digit(digits *d, int64_t size) {
  if (d->n == kMostDims) return false;
  d->size[d->n++] = size;
  return true;
}

// The axis, cut where references begin and end.
static bool add_axis(digits *d, int64_t size, const axis_ref *refs,
                     uint32_t num_refs, uint32_t axis) {
  for (int64_t left = size, pre = 1; left > 1 || pre == 1;) {
    int64_t here = left;
    int32_t owner = -1;
    for (uint32_t r = 0; r < num_refs; r++) {
      if (refs[r].axis != axis) continue;
      int64_t begin = refs[r].size ? refs[r].pre : 1;
      int64_t own = refs[r].size ? refs[r].size : size;
      if (begin < 1 || own < 1 || size % begin || size / begin % own)
        return false;
      if (begin == pre) owner = (int32_t)r, here = own;
      if (begin > pre && owner < 0 && begin % pre == 0)
        here = AT_MIN(here, begin / pre);
    }
    if (here < 1 || left % here || !add_digit(d, here)) return false;
    if (owner >= 0) {
      d->grouped[d->n - 1] = true;
      d->order[owner] = d->n - 1;
      d->num_grouped++;
    }
    left /= here;
    pre *= here;
    if (pre == 1) break;  // an axis of size 1
  }
  return true;
}

// Device numbers in the mesh's order: listed, or a reshaped and transposed
// iota; by default 0, 1, ...
static at_status mesh_devices(at_hp *x, at_bytes mesh, int64_t n,
                              at_dims *out) {
  at_dims dims = {&n, 1}, perm = {0};
  AT_TRY(at_proto_list(mesh, 2, "device_ids", x->a, out));
  if (out->rank == 0) {
    at_bytes iota = at_proto_bytes(mesh, 3);
    if (iota.len) {
      AT_TRY(at_proto_list(iota, 1, "reshape_dims", x->a, &dims));
      AT_TRY(at_proto_list(iota, 2, "transpose_perm", x->a, &perm));
    }
    AT_TRY(at_hp_iota(x, dims, perm, out));
  }
  if (out->rank != n)
    return AT_FAIL(AT_INVALID_ARGUMENT, "a mesh of %lld lists %u devices",
                   (long long)n, out->rank);
  return AT_OK;
}

// Positions of the mesh: those of one group beside each other, its axes in the
// order in which they are listed.
static at_status grouped_order(at_hp *x, const digits *d, at_dims devices,
                               int64_t *size, at_dims *out) {
  int64_t stride[kMostDims], at[kMostDims] = {0}, *p, s = 1;
  uint32_t order[kMostDims], n = 0;
  for (uint32_t k = d->n; k-- > 0; s *= d->size[k]) stride[k] = s;
  for (uint32_t k = 0; k < d->n; k++)
    if (!d->grouped[k]) order[n++] = k;
  *size = 1;
  for (uint32_t k = 0; k < d->num_grouped; k++) {
    order[n++] = d->order[k];
    *size *= d->size[d->order[k]];
  }
  AT_ASSERT(n == d->n && s == devices.rank);
  AT_TRY_ALLOC(p, at_new(x->a, int64_t, (size_t)devices.rank + 1));
  for (uint32_t i = 0; i < devices.rank; i++) {
    int64_t position = 0;
    for (uint32_t k = 0; k < n; k++) position += at[k] * stride[order[k]];
    AT_ASSERT(position < devices.rank);
    p[i] = devices.ptr[position];
    for (uint32_t k = n; k-- > 0;) {
      if (++at[k] < d->size[order[k]]) break;
      at[k] = 0;
    }
  }
  *out = (at_dims){p, devices.rank};
  return AT_OK;
}

// The mesh's positions are mixed-radix numbers. Axes are cut into digits where
// references begin and end; digits of references vary within a group, all
// others tell groups apart.
static at_status mesh_groups(at_hp *x, const at_hp_inst *i, at_bytes b,
                             at_attr *out) {
  at_bytes mesh = at_proto_bytes(b, 1), rest = mesh;
  axis_ref refs[kMostDims];
  digits d = {0};
  uint32_t num_refs = 0, axis = 0;
  int64_t n, size;
  at_dims devices, list;
  bool ok = true;
  AT_TRY(refs_read(x, b, refs, &num_refs));
  for (at_proto_field f; ok && at_proto_next(&rest, &f);) {
    if (f.number != 1) continue;
    int64_t of_axis = at_proto_int(f.bytes, 2);
    ok = of_axis >= 1 && of_axis <= AT_HP_MAX_DEVICES &&
         add_axis(&d, of_axis, refs, num_refs, axis++);
  }
  // Each reference has become one digit.
  if (!ok || d.num_grouped != num_refs)
    return AT_HP_FAIL(x, i, AT_INVALID_ARGUMENT,
                      "replica groups along axes that the mesh does not have");
  AT_TRY(at_hp_product((at_dims){d.size, d.n}, "a mesh", &n));
  AT_TRY(mesh_devices(x, mesh, n, &devices));
  AT_TRY(grouped_order(x, &d, devices, &size, &list));
  return cut(x, list, size, out);
}

// ReplicaGroup messages in field `number` of b; groups may differ in size.
static at_status listed_groups(at_hp *x, at_bytes b, uint32_t number,
                               at_attr *out) {
  AT_VEC(at_dims) groups = {0};
  for (at_proto_field f; at_proto_next(&b, &f);) {
    if (f.number != number) continue;
    at_dims g;
    AT_TRY(at_proto_list(f.bytes, 1, "replica_ids", x->a, &g));
    if (!at_vec_push(x->a, &groups, g)) return AT_NO_MEMORY("groups");
  }
  out->groups.list = groups.ptr;
  out->groups.n = (uint32_t)groups.len;
  return AT_OK;
}

// From the newest form to the oldest; none of them: no groups. Also learns how
// many devices the program speaks of.
at_status at_hp_groups(at_hp *x, const at_hp_inst *i, at_attr *out) {
  at_bytes list = at_proto_bytes(i->body, 87);
  if (at_proto_has(i->body, 93))
    AT_TRY(mesh_groups(x, i, at_proto_bytes(i->body, 93), out));
  else if (at_proto_has(i->body, 92))
    AT_TRY(iota_groups(x, i, at_proto_bytes(i->body, 92), out));
  else if (at_proto_has(list, 2))
    AT_TRY(iota_groups(x, i, at_proto_bytes(list, 2), out));
  else if (list.len)
    AT_TRY(listed_groups(x, list, 1, out));
  else
    AT_TRY(listed_groups(x, i->body, 49, out));
  int64_t most = 0;
  for (uint32_t g = 0; g < out->groups.n; g++)
    for (uint32_t k = 0; k < out->groups.list[g].rank; k++)
      most = AT_MAX(most, out->groups.list[g].ptr[k]);
  if (most < AT_HP_MAX_DEVICES)
    x->num_devices = AT_MAX(x->num_devices, most + 1);
  return AT_OK;
}

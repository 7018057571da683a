// OpSharding as the text that JAX attaches to programs: HLO's own, or Shardy's
// for shardings by the axes of a mesh.
#include "hloproto/hloproto_internal.h"

enum sharding_type {  // OpSharding.Type
  REPLICATED,
  MAXIMAL,
  TUPLE,
  OTHER,
  MANUAL,
  UNKNOWN,
  UNREDUCED
};

// "1,2,3".
static void print_list(at_strbuf *b, at_dims list) {
  for (uint32_t k = 0; k < list.rank; k++)
    at_strbuf_addf(b, k ? ",%lld" : "%lld", (long long)list.ptr[k]);
}

// What the trailing dimensions of a tile assignment mean: copies, manual or
// unreduced parts.
static at_status last_tiles(at_hp *x, at_bytes b, at_strbuf *out) {
  static const char *const names[] = {[REPLICATED] = "replicated",
                                      [MANUAL] = "manual",
                                      [UNREDUCED] = "unreduced"};
  at_dims last;
  AT_TRY(at_proto_list(b, 8, "last_tile_dims", x->a, &last));
  if (at_proto_uint(b, 6)) {
    at_strbuf_addz(out, " last_tile_dim_replicate");
    return AT_OK;
  }
  for (uint32_t k = 0; k < last.rank; k++) {
    int64_t t = last.ptr[k];
    if (t < 0 || t >= (int64_t)AT_LEN(names) || !names[t])
      return AT_FAIL(AT_UNIMPLEMENTED,
                     "a sharding's last tile dimension of kind %lld",
                     (long long)t);
    at_strbuf_addf(out, "%s%s", k ? ", " : " last_tile_dims={", names[t]);
  }
  if (last.rank) at_strbuf_addc(out, '}');
  return AT_OK;
}

// "{devices=[2,1]<=[2]}" or with a list of devices. Learns how many devices the
// program speaks of.
static at_status print_tiles(at_hp *x, at_bytes b, at_strbuf *out) {
  at_dims tiles, devices, reshape, perm;
  int64_t n;
  AT_TRY(at_proto_list(b, 3, "tile_assignment_dimensions", x->a, &tiles));
  AT_TRY(at_proto_list(b, 4, "tile_assignment_devices", x->a, &devices));
  AT_TRY(at_proto_list(b, 9, "iota_reshape_dims", x->a, &reshape));
  AT_TRY(at_proto_list(b, 10, "iota_transpose_perm", x->a, &perm));
  AT_TRY(at_hp_product(tiles, "a sharding", &n));
  x->num_devices = AT_MAX(x->num_devices, n);
  at_strbuf_addz(out, "{devices=[");
  print_list(out, tiles);
  at_strbuf_addc(out, ']');
  if (devices.rank == 0) {
    at_strbuf_addz(out, "<=[");
    print_list(out, reshape);
    at_strbuf_addc(out, ']');
    if (reshape.rank > 1 && perm.rank) {
      at_strbuf_addz(out, "T(");
      print_list(out, perm);
      at_strbuf_addc(out, ')');
    }
  } else {
    print_list(out, devices);
  }
  AT_TRY(last_tiles(x, b, out));
  at_strbuf_addc(out, '}');
  return AT_OK;
}

// ---- Shardings by the axes of a mesh: NamedShardingProto

// Field `number` of b lists references to axes of `mesh`.
static at_status print_axes(at_bytes b, uint32_t number, at_bytes mesh,
                            at_strbuf *out) {
  const char *comma = "";
  for (at_proto_field f; at_proto_next(&b, &f);) {
    if (f.number != number) continue;
    int64_t axis = at_proto_int(f.bytes, 1);
    at_str name = {0};
    at_bytes rest = mesh;
    for (at_proto_field g; axis >= 0 && at_proto_next(&rest, &g);)
      if (g.number == 1 && axis-- == 0) name = at_proto_str(g.bytes, 1);
    if (name.len == 0)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "a sharding names an axis that its mesh does not have");
    at_strbuf_addf(out, "%s\"%.*s\"", comma, (int)AT_MIN(name.len, 200u),
                   name.ptr);
    at_bytes sub = at_proto_bytes(f.bytes, 2);
    if (sub.len)
      at_strbuf_addf(out, ":(%lld)%lld", (long long)at_proto_int(sub, 1),
                     (long long)at_proto_int(sub, 2));
    comma = ", ";
  }
  return AT_OK;
}

// Shardy's inline mesh: "mesh<["x"=2, "y"=4], device_ids=[...]>". Numbers of
// devices in order are left out.
static at_status print_mesh(at_hp *x, at_bytes mesh, at_strbuf *out) {
  at_dims devices;
  int64_t n = 1;
  const char *comma = "";
  AT_TRY(at_proto_list(mesh, 2, "device_ids", x->a, &devices));
  at_strbuf_addz(out, "mesh<[");
  at_bytes rest = mesh;
  for (at_proto_field f; at_proto_next(&rest, &f);) {
    if (f.number != 1) continue;
    at_str name = at_proto_str(f.bytes, 1);
    int64_t size = at_proto_int(f.bytes, 2);
    AT_TRY(at_hp_product((at_dims){(int64_t[]){n, size}, 2}, "a mesh", &n));
    at_strbuf_addf(out, "%s\"%.*s\"=%lld", comma, (int)AT_MIN(name.len, 200u),
                   name.ptr ? name.ptr : "", (long long)size);
    comma = ", ";
  }
  at_strbuf_addc(out, ']');
  at_bytes iota = at_proto_bytes(mesh, 3);
  if (devices.rank == 0 && iota.len) {
    at_dims dims, perm;
    AT_TRY(at_proto_list(iota, 1, "reshape_dims", x->a, &dims));
    AT_TRY(at_proto_list(iota, 2, "transpose_perm", x->a, &perm));
    AT_TRY(at_hp_iota(x, dims, perm, &devices));
  }
  if (devices.rank) {
    at_strbuf_addz(out, ", device_ids=[");
    print_list(out, devices);
    at_strbuf_addc(out, ']');
  }
  at_strbuf_addc(out, '>');
  x->num_devices = AT_MAX(x->num_devices, n);
  return AT_OK;
}

// "#sdy.sharding<mesh, [{"x"}, {?}], replicated={...}>". An open dimension has
// a question mark behind its axes.
static at_status print_named(at_hp *x, at_bytes b, at_strbuf *out) {
  at_bytes mesh = at_proto_bytes(b, 2), rest = b;
  const char *comma = "";
  if (at_proto_has(b, 7))
    return AT_FAIL(AT_UNIMPLEMENTED, "a sharding with manual axes");
  at_strbuf_addz(out, "#sdy.sharding<");
  AT_TRY(print_mesh(x, mesh, out));
  at_strbuf_addz(out, ", [");
  for (at_proto_field f; at_proto_next(&rest, &f);) {
    if (f.number != 3) continue;
    at_strbuf_addf(out, "%s{", comma);
    AT_TRY(print_axes(f.bytes, 1, mesh, out));
    if (!at_proto_uint(f.bytes, 2))
      at_strbuf_addz(out, at_proto_has(f.bytes, 1) ? ", ?" : "?");
    at_strbuf_addc(out, '}');
    comma = ", ";
  }
  at_strbuf_addc(out, ']');
  static const struct {
    uint32_t field;
    const char *name;
  } more[] = {{4, "replicated"}, {5, "unreduced"}};
  for (size_t k = 0; k < AT_LEN(more); k++) {
    if (!at_proto_has(b, more[k].field)) continue;
    at_strbuf_addf(out, ", %s={", more[k].name);
    AT_TRY(print_axes(b, more[k].field, mesh, out));
    at_strbuf_addc(out, '}');
  }
  at_strbuf_addc(out, '>');
  return AT_OK;
}

// ---- One value's, or a tuple's
static at_status print_one(at_hp *x, at_bytes b, at_strbuf *out) {
  if (at_proto_has(b, 14)) return print_named(x, at_proto_bytes(b, 14), out);
  at_dims devices;
  switch (at_proto_uint(b, 1)) {
    case REPLICATED:
      at_strbuf_addz(out, "{replicated}");
      return AT_OK;
    case MAXIMAL:
      AT_TRY(at_proto_list(b, 4, "tile_assignment_devices", x->a, &devices));
      at_strbuf_addf(out, "{maximal device=%lld}",
                     devices.rank ? (long long)devices.ptr[0] : 0);
      return AT_OK;
    case OTHER:
      return print_tiles(x, b, out);
    case MANUAL:
      at_strbuf_addz(out, "{manual}");
      return AT_OK;
    case UNKNOWN:
      at_strbuf_addz(out, "{unknown}");
      return AT_OK;
    case UNREDUCED:
      at_strbuf_addz(out, "{unreduced}");
      return AT_OK;
    default:
      return AT_FAIL(AT_UNIMPLEMENTED, "a sharding of kind %llu",
                     (unsigned long long)at_proto_uint(b, 1));
  }
}

// A tuple's shardings stand in braces, one for each leaf.
static at_status print_any(at_hp *x, at_bytes b, at_strbuf *out) {
  if (at_proto_uint(b, 1) != TUPLE) return print_one(x, b, out);
  const char *comma = "";
  at_strbuf_addc(out, '{');
  for (at_proto_field f; at_proto_next(&b, &f);) {
    if (f.number != 5) continue;
    at_strbuf_addz(out, comma);
    AT_TRY(print_one(x, f.bytes, out));
    comma = ", ";
  }
  at_strbuf_addc(out, '}');
  return AT_OK;
}

// The text is moved into the arena; nothing is kept on failure.
at_status at_hp_sharding_text(at_hp *x, at_bytes b, const char **out) {
  at_strbuf text = {0};
  at_status s = print_any(x, b, &text);
  if (at_ok(s)) s = at_strbuf_status(&text);
  if (!at_ok(s)) {
    at_strbuf_free(&text);
    return s;
  }
  *out = at_strbuf_move(&text, x->a);
  return *out ? AT_OK : AT_NO_MEMORY("sharding");
}

// A sharding that is no tuple holds for every leaf.
at_bytes at_hp_sharding_leaf(at_bytes b, uint32_t k) {
  if (at_proto_uint(b, 1) != TUPLE) return b;
  for (at_proto_field f; at_proto_next(&b, &f);)
    if (f.number == 5 && k-- == 0) return f.bytes;
  return (at_bytes){0};
}

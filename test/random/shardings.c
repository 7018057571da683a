#include "shardings.h"

#include <math.h>

uint64_t shardings_next(uint64_t *s) {
  *s ^= *s << 13;
  *s ^= *s >> 7;
  return *s ^= *s << 17;
}

// ---- Shardings as text
typedef struct mesh_case mesh_case;
struct mesh_case {
  const char *text;
  int64_t devices;
  const char *axes[3];
  int64_t sizes[3];
  uint32_t n;
  const mesh_case *other;  // @o of the same program
};

static const mesh_case four_by_two = {NULL, 8, {"a", "b"}, {4, 2}, 2, NULL};
static const mesh_case meshes[] = {
    {"@m = #sdy.mesh<[\"x\"=2]>", 2, {"x"}, {2}, 1, NULL},
    {"@m = #sdy.mesh<[\"x\"=2, \"y\"=3]>", 6, {"x", "y"}, {2, 3}, 2, NULL},
    {"@m = #sdy.mesh<[\"x\"=2, \"y\"=2]>", 4, {"x", "y"}, {2, 2}, 2, NULL},
    {"@m = #sdy.mesh<[\"x\"=2, \"y\"=1, \"z\"=4]>",
     8,
     {"x", "y", "z"},
     {2, 1, 4},
     3,
     NULL},
    {"@m = #sdy.mesh<[\"x\"=2, \"y\"=2], device_ids=[3, 1, 0, 2]>",
     4,
     {"x", "y"},
     {2, 2},
     2,
     NULL},
    {"@m = #sdy.mesh<[\"x\"=3]>", 3, {"x"}, {3}, 1, NULL},
    {"@m = #sdy.mesh<[\"x\"=7]>", 7, {"x"}, {7}, 1, NULL},
    {"@m = #sdy.mesh<[\"x\"=8]>", 8, {"x"}, {8}, 1, NULL},
    {"@m = #sdy.mesh<[\"x\"=2, \"y\"=2, \"z\"=2]> "
     "@o = #sdy.mesh<[\"a\"=4, \"b\"=2]>",
     8,
     {"x", "y", "z"},
     {2, 2, 2},
     3,
     &four_by_two},
};

static uint64_t uneven_cuts;

// A sharding of t; now and then with an open dimension or a part of an axis.
// `even`: it divides t, as those of arguments and results do.
static const char *random_sharding(at_arena *a, const mesh_case *m,
                                   const at_type *t, bool even, uint64_t *s) {
  at_strbuf b = {0};
  bool used[3] = {0}, other = m->other && shardings_next(s) % 2;
  if (other) m = m->other;
  at_strbuf_addf(&b, "#sdy.sharding<@%s, [", other ? "o" : "m");
  for (uint32_t d = 0; d < t->rank; d++) {
    int64_t left = t->dims[d];
    bool any = false;
    at_strbuf_addz(&b, d ? ", {" : "{");
    for (int tries = 0; tries < 2; tries++) {
      uint32_t k = (uint32_t)(shardings_next(s) % m->n);
      if (used[k] || shardings_next(s) % 4 == 0) continue;
      int64_t size = m->sizes[k];
      bool sub = size == 4 && shardings_next(s) % 3 == 0;
      if (sub) size = 2;
      if (left % size && (even || left == 1)) continue;
      uneven_cuts += left % size != 0;
      left = (left + size - 1) / size;
      used[k] = true;
      at_strbuf_addf(&b, "%s\"%s\"", any ? ", " : "", m->axes[k]);
      if (sub) at_strbuf_addz(&b, shardings_next(s) % 2 ? ":(1)2" : ":(2)2");
      any = true;
    }
    if (shardings_next(s) % 5 == 0) at_strbuf_addz(&b, any ? ", ?" : "?");
    at_strbuf_addc(&b, '}');
  }
  at_strbuf_addz(&b, "]>");
  const char *text = at_arena_printf(a, "%.*s", (int)b.len, b.ptr);
  at_strbuf_free(&b);
  return text;
}

uint32_t shardings_add(at_arena *a, at_module *m, uint64_t *s) {
  at_comp *e = m->entry;
  const mesh_case *mesh = &meshes[shardings_next(s) % AT_LEN(meshes)];
  m->mesh_text = mesh->text;
  m->num_partitions = mesh->devices;
  m->num_replicas = 1;
  if (!m->params) m->params = at_new(a, at_io_info, e->num_params + 1);
  if (!m->results) m->results = at_new(a, at_io_info, e->num_results + 1);
  for (uint32_t i = 0; i < e->num_params; i++) {
    m->params[i].alias = -1;
    m->params[i].open = shardings_next(s) % 3 == 0;
    m->params[i].sharding = NULL;
    if (shardings_next(s) % 4)
      m->params[i].sharding =
          random_sharding(a, mesh, &e->params[i]->types[0], true, s);
  }
  for (uint32_t i = 0; i < e->num_results; i++) {
    m->results[i].alias = -1;
    m->results[i].open = shardings_next(s) % 2 == 0;
    m->results[i].sharding = NULL;
    if (shardings_next(s) % 2)
      m->results[i].sharding =
          random_sharding(a, mesh, at_value_type(e->results[i]), true, s);
  }
  AT_FOR_NODES(n, e)
  if (n->num_results == 1 && n->types[0].dtype != AT_TOKEN &&
      shardings_next(s) % 4 == 0 && n->op != AT_OP_PARAMETER) {
    at_attr x = {.id = AT_ATTR_SHARDING};
    x.s = at_str_of(random_sharding(a, mesh, &n->types[0], false, s));
    at_status_free(at_node_set_attr(n, x));
  }
  return (uint32_t)mesh->devices;
}

uint64_t shardings_uneven(void) { return uneven_cuts; }

// ---- Whole values and parts
at_status tiling_read(at_arena *a, at_module *m, const at_type *whole,
                      at_str text, tiling *out) {
  memset(out, 0, sizeof *out);
  out->cut.m = m;
  AT_TRY(at_cut_meshes(&out->cut));
  out->place.whole = *whole;
  AT_TRY_ALLOC(out->place.dims, at_new(a, at_axes, whole->rank + 1));
  return at_place_parse(&out->cut, text, true, &out->place);
}

static int64_t position_of(const at_cut *c, int64_t device) {
  if (!c->devices) return device;
  for (int64_t p = 0; p < c->m->num_partitions; p++)
    if (c->devices[p] == device) return p;
  return 0;
}

// Linear index in the whole of element i of the part that `device` holds.
static int64_t whole_index(const tiling *t, const at_type *part, int64_t device,
                           int64_t i) {
  int64_t index[64], p = position_of(&t->cut, device), out = 0;
  for (uint32_t d = part->rank; d-- > 0;) {
    index[d] = i % part->dims[d];
    i /= part->dims[d];
  }
  for (uint32_t d = 0; d < part->rank; d++) {
    int64_t block = 0;
    for (uint32_t k = 0; k < t->place.dims[d].n; k++) {
      uint8_t atom = t->place.dims[d].a[k];
      block = block * t->cut.size[atom] +
              p / t->cut.stride[atom] % t->cut.size[atom];
    }
    out = out * t->place.whole.dims[d] + block * part->dims[d] + index[d];
  }
  return out;
}

at_status tiling_part(at_arena *a, const tiling *t, int64_t device,
                      const at_literal *whole, const at_literal **out) {
  at_type part;
  AT_TRY(at_type_cut(&t->cut, &t->place.whole, t->place.dims, &part));
  size_t es = at_dtype_bytes(part.dtype);
  uint8_t *data;
  AT_TRY_ALLOC(data, at_arena_alloc(a, at_type_bytes(&part) + 1, 16));
  for (int64_t i = 0; i < at_type_elements(&part); i++)
    memcpy(data + (size_t)i * es,
           at_literal_at(whole, whole_index(t, &part, device, i)), es);
  return at_literal_make(a, part, data, false, true, out);
}

static bool close_enough(at_dtype t, const void *a, const void *b,
                         double size) {
  if (!at_is_float(t)) return at_load_int(t, a) == at_load_int(t, b);
  double x = at_load_float(t, a), y = at_load_float(t, b);
  // Sums in other orders round elsewhere: a few units of the type's last place.
  double tolerance = t == AT_F64 ? 1e-9 : t == AT_F32 ? 1e-4 : 0.06;
  if (at_dtype_bytes(t) == 1) tolerance = 0.5;
  if (x == y || (isnan(x) && isnan(y))) return true;
  return fabs(x - y) <= tolerance * (1 + fmax(size, fmax(fabs(x), fabs(y))));
}

bool tiling_agrees(const tiling *t, int64_t device, const at_literal *part,
                   const at_literal *whole, double size, int64_t *at) {
  at_dtype real = at_real_of(part->type.dtype);
  size_t step = at_dtype_bytes(real);
  int parts = at_is_complex(part->type.dtype) ? 2 : 1;
  for (*at = 0; *at < at_type_elements(&part->type); ++*at) {
    const uint8_t *got = at_literal_at(part, *at);
    const uint8_t *want =
        at_literal_at(whole, whole_index(t, &part->type, device, *at));
    for (int k = 0; k < parts; k++)
      if (!close_enough(real, got + (size_t)k * step, want + (size_t)k * step,
                        size))
        return false;
  }
  return true;
}

// ShapeProto: arrays with their layouts, tuples as their leaves.
#include "hloproto/hloproto_internal.h"

enum { kTuple = 13 };

static const at_hp_primitive primitives[] = {
#define AT_PRIMITIVE(number, dtype, name, field, form) \
  {number, AT_##dtype, name, field, AT_HP_##form},
#include "hloproto/primitive_types.def"
#undef AT_PRIMITIVE
};

// Linear over some thirty rows, once for each array in the program.
const at_hp_primitive *at_hp_primitive_find(uint64_t number) {
  for (size_t i = 0; i < AT_LEN(primitives); i++)
    if ((uint64_t)primitives[i].number == number) return &primitives[i];
  return NULL;
}

// Linear, as at_hp_primitive_find.
const at_hp_primitive *at_hp_primitive_of(at_dtype t) {
  for (size_t i = 0; i < AT_LEN(primitives); i++)
    if (primitives[i].dtype == t && t != AT_INVALID) return &primitives[i];
  return NULL;
}

// Layouts list dimensions from minor to major.
bool at_hp_is_row_major(at_dims layout) {
  for (uint32_t i = 0; i < layout.rank; i++)
    if (layout.ptr[i] != layout.rank - 1 - i) return false;
  return true;
}

// The default layout of that rank, in the arena.
static at_status row_major(at_arena *a, uint32_t rank, at_dims *out) {
  int64_t *p;
  AT_TRY_ALLOC(p, at_new(a, int64_t, (size_t)rank + 1));
  for (uint32_t i = 0; i < rank; i++) p[i] = rank - 1 - i;
  *out = (at_dims){p, rank};
  AT_ASSERT(at_hp_is_row_major(*out));
  return AT_OK;
}

// LayoutProto: minor_to_major 1, dim_level_types 9, memory_space 8. Tiles say
// nothing about logical values and are not read. An absent order means
// row-major.
static at_status layout_read(at_arena *a, at_bytes b, uint32_t rank,
                             at_hp_leaf *out) {
  at_dims order, levels;
  AT_TRY(at_proto_list(b, 1, "minor_to_major", a, &order));
  AT_TRY(at_proto_list(b, 9, "dim_level_types", a, &levels));
  for (uint32_t i = 0; i < levels.rank; i++)
    if (levels.ptr[i])
      return AT_FAIL(AT_UNIMPLEMENTED, "sparse layouts are not supported");
  out->memory_space = at_proto_int(b, 8);
  if (order.rank == 0) return row_major(a, rank, &out->layout);
  bool *seen;
  AT_TRY_ALLOC(seen, at_new(a, bool, (size_t)rank + 1));
  bool ok = order.rank == rank;
  for (uint32_t i = 0; ok && i < rank; i++) {
    ok = order.ptr[i] >= 0 && order.ptr[i] < rank && !seen[order.ptr[i]];
    if (ok) seen[order.ptr[i]] = true;
  }
  if (!ok)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "minor_to_major is no order of %u dimensions", rank);
  out->layout = order;
  return AT_OK;
}

// ShapeProto of an array: element_type 2, dimensions 3, is_dynamic_dimension 6,
// layout 5.
static at_status leaf_read(at_arena *a, at_bytes b, at_hp_leaf *out) {
  at_dims dims, dynamic;
  uint64_t number = at_proto_uint(b, 2);
  const at_hp_primitive *p = at_hp_primitive_find(number);
  if (!p)
    return AT_FAIL(AT_UNIMPLEMENTED, "element type %llu is not supported",
                   (unsigned long long)number);
  if (p->dtype == AT_INVALID)
    return AT_FAIL(AT_UNIMPLEMENTED, "element type %s is not supported",
                   p->name);
  AT_TRY(at_proto_list(b, 3, "dimensions", a, &dims));
  AT_TRY(at_proto_list(b, 6, "is_dynamic_dimension", a, &dynamic));
  for (uint32_t i = 0; i < dynamic.rank; i++)
    if (dynamic.ptr[i])
      return AT_FAIL(AT_UNIMPLEMENTED,
                     "dimension %u is dynamic: bounded dimensions are not "
                     "supported",
                     i);
  for (uint32_t i = 0; i < dims.rank; i++)
    if (dims.ptr[i] < 0)
      return AT_FAIL(AT_INVALID_ARGUMENT, "dimension %u is %lld", i,
                     (long long)dims.ptr[i]);
  *out = (at_hp_leaf){
      .type = {.dtype = p->dtype, .rank = dims.rank, .dims = dims.ptr}};
  if (at_type_bytes(&out->type) == SIZE_MAX)
    return AT_FAIL(AT_INVALID_ARGUMENT, "the array is too large");
  return layout_read(a, at_proto_bytes(b, 5), dims.rank, out);
}

// A tuple's elements that are still to be read, at each depth.
typedef struct walk {
  at_bytes left[AT_HP_MAX_TUPLES];
  uint32_t depth;
} walk;

static bool is_tuple(at_bytes b) { return at_proto_uint(b, 2) == kTuple; }

// The next leaf's bytes; false at the end. *bad: malformed or too deep.
static bool next_leaf(walk *w, at_bytes *out, bool *bad) {
  while (w->depth) {
    at_bytes *left = &w->left[w->depth - 1];
    at_proto_field f;
    if (left->len == 0) {
      w->depth--;
      continue;
    }
    if (!at_proto_next(left, &f)) return *bad = true, false;
    if (f.number != 4) continue;
    if (!is_tuple(f.bytes)) return *out = f.bytes, true;
    if (w->depth == AT_HP_MAX_TUPLES) return *bad = true, false;
    w->left[w->depth++] = f.bytes;
  }
  return false;
}

typedef AT_VEC(at_hp_leaf) leaf_vec;
typedef AT_VEC(uint32_t) index_vec;

// Appends the leaves of all elements; first gets the index of each element's
// first leaf.
static at_status tuple_read(at_arena *a, at_bytes b, leaf_vec *leaves,
                            index_vec *first) {
  // One level by hand, so that elements without leaves count as elements.
  at_proto_field f;
  while (b.len) {
    if (!at_proto_next(&b, &f))
      return AT_FAIL(AT_INVALID_ARGUMENT, "a tuple's shape is malformed");
    if (f.number != 4) continue;
    if (!at_vec_push(a, first, (uint32_t)leaves->len))
      return AT_NO_MEMORY("shapes");
    at_hp_leaf leaf;
    if (!is_tuple(f.bytes)) {
      AT_TRY(leaf_read(a, f.bytes, &leaf));
      if (!at_vec_push(a, leaves, leaf)) return AT_NO_MEMORY("shapes");
    } else {
      walk w = {.left = {f.bytes}, .depth = 1};
      bool bad = false;
      for (at_bytes x; next_leaf(&w, &x, &bad);) {
        AT_TRY(leaf_read(a, x, &leaf));
        if (!at_vec_push(a, leaves, leaf)) return AT_NO_MEMORY("shapes");
      }
      if (bad)
        return AT_FAIL(AT_INVALID_ARGUMENT,
                       "a tuple's shape is malformed, or over %d deep",
                       AT_HP_MAX_TUPLES);
    }
    if (leaves->len > AT_HP_MAX_LEAVES)
      return AT_FAIL(AT_INVALID_ARGUMENT, "a tuple of more than %d arrays",
                     AT_HP_MAX_LEAVES);
  }
  return AT_OK;
}

// out->first is NULL for an array; for a tuple its last entry is the number of
// leaves.
at_status at_hp_shape_read(at_arena *a, at_bytes b, at_hp_shape *out) {
  leaf_vec leaves = {0};
  index_vec first = {0};
  *out = (at_hp_shape){.is_tuple = is_tuple(b)};
  if (!at_proto_is_whole(b))
    return AT_FAIL(AT_INVALID_ARGUMENT, "the shape is malformed");
  if (out->is_tuple) {
    AT_TRY(tuple_read(a, b, &leaves, &first));
    out->num_elements = (uint32_t)first.len;
    if (!at_vec_push(a, &first, (uint32_t)leaves.len))
      return AT_NO_MEMORY("shapes");
  } else {
    at_hp_leaf leaf;
    AT_TRY(leaf_read(a, b, &leaf));
    if (!at_vec_push(a, &leaves, leaf)) return AT_NO_MEMORY("shapes");
  }
  out->leaves = leaves.ptr;
  out->num_leaves = (uint32_t)leaves.len;
  out->first = first.ptr;
  if (out->is_tuple)
    AT_ASSERT(first.len == out->num_elements + 1u &&
              first.ptr[out->num_elements] == out->num_leaves);
  else
    AT_ASSERT(out->num_leaves == 1);
  for (uint32_t i = 0; i < out->num_leaves; i++)
    AT_ASSERT(out->leaves[i].layout.rank == out->leaves[i].type.rank);
  return AT_OK;
}

// Leaves of one element; stops above AT_HP_MAX_LEAVES, which at_hp_shape_read
// refuses.
static uint32_t leaf_count(at_bytes b) {
  if (!is_tuple(b)) return 1;
  walk w = {.left = {b}, .depth = 1};
  uint32_t n = 0;
  bool bad = false;
  for (at_bytes x; n <= AT_HP_MAX_LEAVES && next_leaf(&w, &x, &bad);) n++;
  return n;
}

// Walks the bytes again instead of a decoded tree: paths occur in aliases and
// donors only.
bool at_hp_shape_range(at_bytes shape, at_dims path, uint32_t *first,
                       uint32_t *count) {
  *first = 0;
  for (uint32_t d = 0; d < path.rank; d++) {
    int64_t k = path.ptr[d];
    at_bytes rest = shape, found = {0};
    bool is_there = false;
    if (k < 0 || !is_tuple(shape)) return false;
    for (at_proto_field f; !is_there && at_proto_next(&rest, &f);) {
      if (f.number != 4) continue;
      is_there = k-- == 0;
      if (is_there)
        found = f.bytes;
      else
        *first += leaf_count(f.bytes);
    }
    if (!is_there || *first > AT_HP_MAX_LEAVES) return false;
    shape = found;
  }
  *count = leaf_count(shape);
  return true;
}

// Types, literals and attributes as fields of XLA's messages.
#include <stdlib.h>
#include <string.h>

#include "hloproto/write_internal.h"

// ---- Shapes
enum { kMostDims = 32 };

// One TileProto of the layout.
static void put_tile(at_strbuf *layout, const int64_t *dims, uint32_t n) {
  at_strbuf tile = {0};
  at_proto_write_ints(&tile, 1, (at_dims){dims, n});
  at_proto_write_message(layout, 6, &tile);
}

// As TPUs tile: 8 x 128, narrow elements packed along the rows; one row where
// the array is flat.
static void put_tiles(at_strbuf *layout, const at_type *t) {
  uint32_t bits = at_dtype_of(t->dtype)->bits;
  uint32_t packed = bits && bits < 32 ? 32 / AT_MAX(bits, 4u) : 1;
  if (t->dtype == AT_PRED) packed = 4;
  if (t->dtype == AT_TOKEN) return;
  int64_t row = 128;
  if (t->rank < 2) {
    int64_t n = t->rank ? t->dims[0] : 1, most = 1024;
    row *= packed > 1 ? packed : 1;
    while (row < n && row < most) row *= 2;
    put_tile(layout, &row, 1);
    if (packed > 1) put_tile(layout, (int64_t[]){128}, 1);
  } else {
    put_tile(layout, (int64_t[]){8, 128}, 2);
  }
  if (packed > 1) put_tile(layout, (int64_t[]){packed, 1}, 2);
}

// "8,128" up to its end; NULL: that is no list of at most `max` numbers.
static const char *read_list(const char *z, int64_t *out, uint32_t max,
                             uint32_t *n) {
  for (*n = 0; *z >= '0' && *z <= '9';) {
    char *end;
    if (*n == max) return NULL;
    out[(*n)++] = strtoll(z, &end, 10);
    z = *end == ',' ? end + 1 : end;
  }
  return z;
}

// {1,0:T(8,128)(2,1)}. False: text is no such thing.
static bool read_layout(const char *text, uint32_t rank, at_strbuf *layout) {
  int64_t list[kMostDims];
  uint32_t n;
  const char *z =
      *text == '{' ? read_list(text + 1, list, kMostDims, &n) : NULL;
  if (!z || n != rank || n == 0) return false;
  at_proto_write_ints(layout, 1, (at_dims){list, n});
  for (z += !strncmp(z, ":T", 2) ? 2 : 0; *z == '('; z++) {
    z = read_list(z + 1, list, kMostDims, &n);
    if (!z || *z != ')') break;
    put_tile(layout, list, n);
  }
  return true;
}

// minor_to_major of a row-major array; nothing for scalars.
static void put_row_major(at_strbuf *layout, uint32_t rank) {
  at_strbuf minor = {0};
  for (uint32_t d = rank; d-- > 0;) at_proto_write_varint(&minor, d);
  if (rank) at_proto_write_message(layout, 1, &minor);
}

// ShapeProto of an array with that layout, which is freed.
static void put_array(at_strbuf *b, const at_type *t, at_strbuf *layout,
                      bool host) {
  const at_hp_primitive *p = at_hp_primitive_of(t->dtype);
  at_proto_write_int(b, 2, p ? (uint64_t)p->number : 0);
  at_proto_write_ints(b, 3, at_type_dims(t));
  if (host) at_proto_write_int(layout, 8, AT_HP_HOST_MEMORY);
  if (t->dtype != AT_TOKEN)
    at_proto_write_message(b, 5, layout);
  else
    at_strbuf_free(layout);
}

void at_hp_put_entry(at_strbuf *b, uint32_t number, const at_type *t,
                     const at_io_info *info, bool host) {
  at_strbuf shape = {0}, layout = {0};
  if (!info || !info->layout || !read_layout(info->layout, t->rank, &layout)) {
    at_strbuf_free(&layout);
    put_row_major(&layout, t->rank);
  }
  put_array(&shape, t, &layout, host);
  if (number) {
    at_proto_write_message(b, number, &shape);
  } else {
    at_strbuf_add(b, at_strbuf_str(&shape));
    at_strbuf_free(&shape);
  }
}

void at_hp_put_array(at_strbuf *b, const at_type *t, at_hp_place place) {
  at_strbuf layout = {0};
  if (place.orders)
    at_proto_write_ints(&layout, 1, *place.orders);
  else
    put_row_major(&layout, t->rank);
  if (place.tiles) put_tiles(&layout, t);
  put_array(b, t, &layout, place.host);
}

void at_hp_put_shape(at_strbuf *b, uint32_t number, const at_type *types,
                     uint32_t n, bool tuple, at_hp_place place) {
  at_strbuf shape = {0};
  if (tuple) at_proto_write_int(&shape, 2, 13);
  for (uint32_t k = 0; k < n; k++) {
    at_strbuf one = {0};
    at_hp_put_array(tuple ? &one : &shape, &types[k], place);
    if (place.orders) place.orders++;
    if (tuple) at_proto_write_message(&shape, 4, &one);
  }
  at_proto_write_message(b, number, &shape);
}

// ---- Literals
// An element of fewer than eight bits, in a byte of its own.
static void put_narrow(at_strbuf *b, const at_literal *l, int64_t i,
                       uint32_t bits) {
  const uint8_t v = *(const uint8_t *)at_literal_at(l, i);
  at_strbuf_addc(b, (char)(v & ((1u << bits) - 1)));
}

// Row-major, each type in the field and form that primitive_types.def says.
void at_hp_put_literal(at_strbuf *b, const at_literal *l) {
  const at_hp_primitive *p = at_hp_primitive_of(l->type.dtype);
  int64_t n = at_type_elements(&l->type);
  size_t bytes = at_dtype_bytes(l->type.dtype);
  at_strbuf out = {0}, shape = {0}, data = {0};
  at_hp_put_array(&shape, &l->type, (at_hp_place){0});
  at_proto_write_message(&out, 1, &shape);
  const uint32_t bits = at_dtype_of(l->type.dtype)->bits;
  for (int64_t i = 0; i < n; i++)
    if (p && p->form == AT_HP_PACKED)
      at_proto_write_varint(
          &data, (uint64_t)at_load_int(l->type.dtype, at_literal_at(l, i)));
    else if (bits < 8)
      put_narrow(&data, l, i, bits);
    else
      at_strbuf_add(&data, (at_str){(const char *)at_literal_at(l, i), bytes});
  if (p && p->field && n)
    at_proto_write_message(&out, p->field, &data);
  else
    at_strbuf_free(&data);
  at_proto_write_message(b, 8, &out);
}

// ---- Attributes: each `how` of attrs.def the other way round
enum { kFields = 100 };

typedef struct parts {  // messages that several attributes are part of
  at_strbuf of[kFields];
  at_strbuf ragged;  // the dot's numbers, which are field 1 of a ragged dot's
} parts;

#define AT_HP_PUT(name)                                                  \
  static void at_hp_put_##name(at_strbuf *b, parts *p, const at_node *n, \
                               const at_attr *a, uint32_t field,         \
                               uint32_t part)

// The writers below mirror the readers of attrs.c, one for each `how`.
AT_HP_PUT(list) { at_proto_write_ints(b, field, a->ints); }
AT_HP_PUT(first) { at_proto_write_ints(b, field, (at_dims){&a->i, 1}); }
AT_HP_PUT(number) { at_proto_write_int(b, field, (uint64_t)a->i); }
AT_HP_PUT(flag) { at_proto_write_int(b, field, a->i != 0); }
AT_HP_PUT(count) { at_proto_write_int(b, field, (uint64_t)a->i); }
// No channel is no field.
AT_HP_PUT(channel) {
  if (a->i > 0) at_proto_write_int(b, field, (uint64_t)a->i);
}
// A 32-bit float: wire type 5.
AT_HP_PUT(real) {
  float f = (float)a->f;
  at_proto_write_varint(b, (uint64_t)field << 3 | AT_PROTO_32);
  at_strbuf_add(b, (at_str){(const char *)&f, sizeof f});
}
AT_HP_PUT(part_list) { at_proto_write_ints(&p->of[field], part, a->ints); }
AT_HP_PUT(part_int) { at_proto_write_int(&p->of[field], part, (uint64_t)a->i); }
AT_HP_PUT(part_flag) { at_proto_write_int(&p->of[field], part, a->i != 0); }
AT_HP_PUT(precision) { at_proto_write_ints(&p->of[field], part, a->ints); }
// NOTYPE is the absence of a comparison type.
AT_HP_PUT(word) {
  const char *text = at_enum_text(a->id, a->i);
  if (text && strcmp(text, "NOTYPE"))
    at_proto_write_bytes(b, field, at_str_of(text));
}
// Always as lists, in CollectiveDeviceListProto (field 87).
AT_HP_PUT(groups) {
  at_strbuf list = {0};
  for (uint32_t k = 0; k < a->groups.n; k++) {
    at_strbuf one = {0};
    at_proto_write_ints(&one, 1, a->groups.list[k]);
    at_proto_write_message(&list, 1, &one);
  }
  at_proto_write_message(b, 87, &list);
}
// Messages of two numbers.
AT_HP_PUT(pairs) {
  for (uint32_t k = 0; k < a->groups.n; k++) {
    at_strbuf one = {0};
    if (a->groups.list[k].rank != 2) continue;
    at_proto_write_int(&one, 1, (uint64_t)a->groups.list[k].ptr[0]);
    at_proto_write_int(&one, 2, (uint64_t)a->groups.list[k].ptr[1]);
    at_proto_write_message(b, field, &one);
  }
}
// Written whole, by put_window, put_pad and put_slice.
AT_HP_PUT(each) {}
AT_HP_PUT(part_each) {}
AT_HP_PUT(padding) {}
AT_HP_PUT(ragged) { at_proto_write_ints(&p->ragged, part, a->ints); }
// What the compiler chose of accuracy is in the graph already.
AT_HP_PUT(algorithm) {}
AT_HP_PUT(accuracy) {}

// attrs.def again, with writers in place of readers.
static const struct put_row {
  at_attr_id id;
  at_op op;
  void (*put)(at_strbuf *, parts *, const at_node *, const at_attr *, uint32_t,
              uint32_t);
  uint32_t field, part;
} put_rows[] = {
#define AT_HP_ATTR(id, op, how, field, part) \
  {AT_ATTR_##id, AT_OP_##op, at_hp_put_##how, field, part},
#include "hloproto/attrs.def"
#undef AT_HP_ATTR
};

// Element i, or `absent` beyond the end of the list.
static int64_t at_or(at_dims d, uint32_t i, int64_t absent) {
  return i < d.rank ? d.ptr[i] : absent;
}

// WindowDimension: size 1, stride 2, padding_low 3, padding_high 4,
// window_dilation 5, base_dilation 6, window_reversal 7; one for each dimension
// of the window.
static void put_window(at_strbuf *b, const at_node *n) {
  bool conv = n->op == AT_OP_CONVOLUTION;
  at_dims size = at_node_ints(n, AT_ATTR_WINDOW_DIMENSIONS);
  at_dims kernel = at_node_ints(n, AT_ATTR_KERNEL_SPATIAL_DIMENSIONS);
  at_dims stride = at_node_ints(n, AT_ATTR_WINDOW_STRIDES);
  at_dims pad = at_node_ints(n, AT_ATTR_PADDING);
  at_dims base =
      at_node_ints(n, conv ? AT_ATTR_LHS_DILATION : AT_ATTR_BASE_DILATIONS);
  at_dims dilation =
      at_node_ints(n, conv ? AT_ATTR_RHS_DILATION : AT_ATTR_WINDOW_DILATIONS);
  at_dims reversal = at_node_ints(n, AT_ATTR_WINDOW_REVERSAL);
  at_strbuf window = {0};
  for (uint32_t d = 0; d < (conv ? kernel.rank : size.rank); d++) {
    at_strbuf one = {0};
    const int64_t values[] = {
        conv ? at_value_type(n->operands[1])->dims[kernel.ptr[d]] : size.ptr[d],
        at_or(stride, d, 1),
        at_or(pad, 2 * d, 0),
        at_or(pad, 2 * d + 1, 0),
        at_or(dilation, d, 1),
        at_or(base, d, 1),
        at_or(reversal, d, 0)};
    for (uint32_t k = 0; k < AT_LEN(values); k++)
      at_proto_write_int(&one, k + 1, (uint64_t)values[k]);
    at_proto_write_message(&window, 1, &one);
  }
  at_proto_write_message(b, 15, &window);
}

// A running reduction is one over a window that ends, or begins, at the
// element.
static void put_scan_window(at_strbuf *b, const at_node *n) {
  const at_type *t = at_value_type(n->operands[0]);
  at_strbuf window = {0};
  for (uint32_t d = 0; d < t->rank; d++) {
    at_strbuf one = {0};
    bool here = d == at_node_int(n, AT_ATTR_DIMENSION, 0);
    int64_t size = here ? t->dims[d] : 1;
    bool reverse = at_node_bool(n, AT_ATTR_REVERSE);
    const int64_t values[] = {
        size, 1, reverse ? 0 : size - 1, reverse ? size - 1 : 0, 1, 1, 0};
    for (uint32_t k = 0; k < AT_LEN(values); k++)
      at_proto_write_int(&one, k + 1, (uint64_t)values[k]);
    at_proto_write_message(&window, 1, &one);
  }
  at_proto_write_message(b, 15, &window);
}

// Messages of three numbers for each dimension, in fields 1 to 3.
static void put_triples(at_strbuf *b, uint32_t field, at_dims x, at_dims y,
                        at_dims z) {
  for (uint32_t d = 0; d < x.rank; d++) {
    at_strbuf one = {0};
    at_proto_write_int(&one, 1, (uint64_t)x.ptr[d]);
    at_proto_write_int(&one, 2, (uint64_t)at_or(y, d, 0));
    at_proto_write_int(&one, 3, (uint64_t)at_or(z, d, 1));
    at_proto_write_message(b, field, &one);
  }
}

// Fields that several attributes make up together, one message for each
// dimension.
static void put_whole(at_strbuf *b, const at_node *n) {
  at_strbuf pad = {0};
  switch (n->op) {
    case AT_OP_CONVOLUTION:
    case AT_OP_REDUCE_WINDOW:
    case AT_OP_SELECT_AND_SCATTER:
      put_window(b, n);
      break;
    case AT_OP_SCAN:
      put_scan_window(b, n);
      break;
    case AT_OP_SLICE:
      put_triples(b, 17, at_node_ints(n, AT_ATTR_START_INDICES),
                  at_node_ints(n, AT_ATTR_LIMIT_INDICES),
                  at_node_ints(n, AT_ATTR_STRIDES));
      break;
    case AT_OP_PAD:
      put_triples(&pad, 1, at_node_ints(n, AT_ATTR_EDGE_PADDING_LOW),
                  at_node_ints(n, AT_ATTR_EDGE_PADDING_HIGH),
                  at_node_ints(n, AT_ATTR_INTERIOR_PADDING));
      at_proto_write_message(b, 21, &pad);
      break;
    default:
      break;
  }
}

// The first row that fits the op and the attribute writes it. Parts of shared
// messages are collected and written at the end.
void at_hp_put_attrs(at_strbuf *b, const at_node *n) {
  parts p = {0};
  bool done[AT_ATTR_COUNT] = {0};
  for (size_t k = 0; k < AT_LEN(put_rows); k++) {
    const struct put_row *row = &put_rows[k];
    const at_attr *a = at_node_attr(n, row->id);
    if (!a || done[row->id] || (row->op != AT_OP_COUNT && row->op != n->op))
      continue;
    // An attribute that is none of the op's own XLA keeps nowhere.
    done[row->id] = true;
    AT_ASSERT(row->field < kFields);
    row->put(b, &p, n, a, row->field, row->part);
  }
  if (p.ragged.len || p.ragged.failed)
    at_proto_write_message(&p.of[90], 1, &p.ragged);
  for (uint32_t f = 0; f < kFields; f++)
    if (p.of[f].len || p.of[f].failed) at_proto_write_message(b, f, &p.of[f]);
  put_whole(b, n);
}

// Op name, file and line of the innermost place that names a file.
void at_hp_put_metadata(at_strbuf *b, const at_loc *loc) {
  const at_loc *source = at_loc_source(loc);
  at_strbuf m = {0};
  if (!loc) return;
  if (loc->name) at_proto_write_bytes(&m, 2, at_str_of(loc->name));
  if (source && source->file) {
    at_proto_write_bytes(&m, 3, at_str_of(source->file));
    at_proto_write_int(&m, 4, source->line);
  }
  at_proto_write_message(b, 7, &m);
}

void at_hp_put_origin(at_strbuf *b, const at_node *n) {
  at_hp_put_metadata(b, n->loc);
  const at_attr *a = at_node_attr(n, AT_ATTR_FRONTEND_ATTRIBUTES);
  at_strbuf front = {0};
  for (uint32_t i = 0; a && i < a->dict.n; i++) {
    at_strbuf pair = {0};
    at_proto_write_bytes(&pair, 1, a->dict.kv[2 * i]);
    at_proto_write_bytes(&pair, 2, a->dict.kv[2 * i + 1]);
    at_proto_write_message(&front, 1, &pair);
  }
  if (front.len || front.failed) at_proto_write_message(b, 68, &front);
}

// Attributes, types and locations to bytecode entries. The codes are those of
// the readers (bytecode_builtin.c, bytecode_dialects.c, codec.c). An entry is a
// run of bytes that names other entries by index; equal runs are one entry.
#include "mlir/bytecode_write.h"

// PrefixVarInt: the count of zero bits at the low end of the first byte is the
// count of bytes that follow, so that a reader knows the length at once. 7 bits
// a byte; eight and nine bytes are special.
void at_mw_varint(at_strbuf *b, uint64_t v) {
  uint32_t more = 0;  // bytes after the first, 7 bits each
  while (more < 8 && v >> (7 * (more + 1))) more++;
  // A first byte of zero: eight bytes follow.
  if (more >= 8) {
    at_strbuf_addc(b, 0);
    at_strbuf_add(b, (at_str){(const char *)&v, 8});
    return;
  }
  // Only the highest bit of the first byte: seven bytes follow.
  if (more == 7) {
    at_strbuf_addc(b, (char)0x80);
    at_strbuf_add(b, (at_str){(const char *)&v, 7});
    return;
  }
  uint64_t x = (v << 1 | 1) << more;
  at_strbuf_add(b, (at_str){(const char *)&x, more + 1});
}

// Zigzag: the sign is the lowest bit, so that small negative numbers are short.
void at_mw_svarint(at_strbuf *b, int64_t v) {
  at_mw_varint(b, (uint64_t)v << 1 ^ (uint64_t)(v >> 63));
}

// The flag is the lowest bit.
void at_mw_flagged(at_strbuf *b, uint64_t v, bool flag) {
  at_mw_varint(b, v << 1 | flag);
}

// The number of a key in the order in which keys came; a new one gets the next.
uint32_t at_mw_index(at_mwriter *w, at_map *map, at_str key) {
  void **slot = at_map_find(map, key);
  if (slot) return (uint32_t)(uintptr_t)*slot - 1;
  char *copy = at_arena_str(w->arena, key);
  slot = copy ? at_map_put(map, (at_str){copy, key.len}) : NULL;
  if (!slot) {
    w->failed = true;
    return 0;
  }
  // The map has grown by this key: its index is one less.
  *slot = (void *)(uintptr_t)map->len;
  return (uint32_t)map->len - 1;
}

// Files an entry's bytes under its index; takes the buffer.
static uint32_t file_entry(at_mwriter *w, at_mwtable *t, const void *pointer,
                           at_str dialect, bool custom, at_strbuf *b) {
  uint32_t d = at_mw_index(w, &w->dialects, dialect);
  at_strbuf key = {0};
  at_strbuf_add(&key, (at_str){(const char *)&d, sizeof d});
  at_strbuf_addc(&key, (char)custom);
  at_strbuf_add(&key, at_strbuf_str(b));
  w->failed |= b->failed || key.failed;
  // Entries are equal where dialect, flag and bytes are.
  size_t before = t->by_bytes.len;
  uint32_t index = at_mw_index(w, &t->by_bytes, at_strbuf_str(&key));
  if (!w->failed && t->by_bytes.len > before) {
    at_str kept = t->by_bytes.entries[index].key;
    at_str bytes = {kept.ptr + sizeof d + 1, kept.len - sizeof d - 1};
    if (at_vec_reserve(w->arena, &t->list, t->list.len + 1)) {
      t->list.ptr[t->list.len].dialect = d;
      t->list.ptr[t->list.len].custom = custom;
      t->list.ptr[t->list.len++].bytes = bytes;
    } else {
      w->failed = true;
    }
  }
  void **slot = pointer ? at_map_put_ptr(&t->by_pointer, pointer) : NULL;
  if (slot) *slot = (void *)(uintptr_t)(index + 1);
  at_strbuf_free(&key);
  at_strbuf_free(b);
  return index;
}

// The same object again: by its address, without writing it a second time.
static bool known_index(const at_mwtable *t, const void *p, uint32_t *out) {
  void **slot = at_map_find_ptr(&t->by_pointer, p);
  if (slot) *out = (uint32_t)(uintptr_t)*slot - 1;
  return slot != NULL;
}

// The number of a string in the file's section of strings.
static uint32_t string(at_mwriter *w, at_str s) {
  return at_mw_index(w, &w->strings, s);
}

// A string attribute that the tree does not have: names inside of other
// entries.
static uint32_t string_attr(at_mwriter *w, at_str s) {
  at_strbuf b = {0};
  at_mw_varint(&b, 2);
  at_mw_varint(&b, string(w, s));
  return file_entry(w, &w->attrs, NULL, AT_STR("builtin"), true, &b);
}

// Length and bytes.
static void blob(at_strbuf *b, at_bytes v) {
  at_mw_varint(b, v.len);
  at_strbuf_add(b, (at_str){(const char *)v.ptr, v.len});
}

// Count and numbers.
static void svarints(at_strbuf *b, at_dims d) {
  at_mw_varint(b, d.rank);
  for (uint32_t i = 0; i < d.rank; i++) at_mw_svarint(b, d.ptr[i]);
}

// The dialect in front of the first dot.
static at_str dialect_of(const char *name) {
  const char *dot = strchr(name, '.');
  return (at_str){name, dot ? (size_t)(dot - name) : strlen(name)};
}

// ---- Numbers
// See `words` in bytecode_builtin.c.
static void known_width(at_strbuf *b, uint32_t bits, uint64_t v) {
  if (bits <= 8)
    at_strbuf_addc(b, (char)(bits < 8 ? v & ((1u << bits) - 1) : v));
  else if (bits < 64)
    at_mw_svarint(b, (int64_t)(v << (64 - bits)) >> (64 - bits));
  else
    at_mw_svarint(b, (int64_t)v);
}

// Words of 64 bits, least significant first; the last one is filled up with
// zeros.
static void wide_integer(at_strbuf *b, at_bytes v) {
  size_t n = (v.len + 7) / 8;
  at_mw_varint(b, n);
  for (size_t i = 0; i < n; i++) {
    uint64_t x = 0;
    memcpy(&x, v.ptr + 8 * i, AT_MIN(v.len - 8 * i, (size_t)8));
    at_mw_svarint(b, (int64_t)x);
  }
}

// ---- Builtin attributes
static void attr_list(at_mwriter *w, at_strbuf *b, const at_mattr *const *v,
                      uint32_t n) {
  at_mw_varint(b, n);
  for (uint32_t i = 0; i < n; i++) at_mw_varint(b, at_mw_attr(w, v[i]));
}

// The tree holds dictionaries sorted, so that equal ones give equal bytes.
static void dictionary(at_mwriter *w, at_strbuf *b, const at_mnamed *v,
                       uint32_t n) {
  at_mw_varint(b, 1);
  at_mw_varint(b, n);
  for (uint32_t i = 0; i < n; i++) {
    at_mw_varint(b, string_attr(w, at_str_of(v[i].name)));
    at_mw_varint(b, at_mw_attr(w, v[i].value));
  }
}

// For the attributes of an operation, which are no node of the tree.
uint32_t at_mw_dict(at_mwriter *w, const at_mnamed *v, uint32_t n) {
  at_strbuf b = {0};
  dictionary(w, &b, v, n);
  return file_entry(w, &w->attrs, NULL, AT_STR("builtin"), true, &b);
}

// i1 goes eight to a byte, and sub-byte integers lose their sign extension.
static void dense(at_mwriter *w, at_strbuf *b, const at_mattr *a) {
  const at_mtype *e = a->type->elem;
  at_mw_varint(b, 18);
  at_mw_varint(b, at_mw_type(w, a->type));
  if (e->kind != AT_MTYPE_INTEGER || e->width >= 8) {
    blob(b, a->data);
    return;
  }
  // Below 8 bits the producer's buffer has a byte for each element, but for i1.
  uint8_t mask = (uint8_t)((1u << e->width) - 1);
  if (e->width != 1) {
    at_mw_varint(b, a->data.len);
    for (size_t i = 0; i < a->data.len; i++)
      at_strbuf_addc(b, (char)(a->data.ptr[i] & mask));
  } else if (a->splat) {
    at_mw_varint(b, 1);
    at_strbuf_addc(b, (char)(a->data.ptr[0] ? 0xff : 0));
  } else {
    at_mw_varint(b, (a->data.len + 7) / 8);
    for (size_t i = 0; i < a->data.len; i += 8) {
      uint8_t packed = 0;
      for (size_t k = i; k < AT_MIN(i + 8, a->data.len); k++)
        packed |= (uint8_t)((a->data.ptr[k] != 0) << (k - i));
      at_strbuf_addc(b, (char)packed);
    }
  }
}

// Resources of equal name and bytes are one.
static void resource(at_mwriter *w, at_strbuf *b, const at_mattr *a) {
  size_t i = 0;
  for (; i < w->resources.len; i++) {
    const at_mattr *r = w->resources.ptr[i];
    if (strcmp(r->name, a->name) == 0 && r->data.len == a->data.len &&
        (r->data.len == 0 ||
         memcmp(r->data.ptr, a->data.ptr, r->data.len) == 0))
      break;
  }
  if (i == w->resources.len && !at_vec_push(w->arena, &w->resources, a))
    w->failed = true;
  at_mw_varint(b, 16);
  at_mw_varint(b, at_mw_type(w, a->type));
  at_mw_varint(b, i);
}

// A file position that begins and ends at the same place has the shorter code,
// 11.
static void location(at_mwriter *w, at_strbuf *b, const at_mloc *l) {
  switch (l->kind) {
    case AT_MLOC_FILE:
      at_mw_varint(
          b, l->end_line == l->line && l->end_column == l->column ? 11 : 22);
      at_mw_varint(b, string_attr(w, at_str_of(l->text)));
      if (l->end_line != l->line || l->end_column != l->column)
        at_mw_varint(b, 4);
      at_mw_varint(b, l->line);
      at_mw_varint(b, l->column);
      if (l->end_line != l->line || l->end_column != l->column) {
        at_mw_varint(b, l->end_line);
        at_mw_varint(b, l->end_column);
      }
      break;
    case AT_MLOC_NAME:
      at_mw_varint(b, 14);
      at_mw_varint(b, string_attr(w, at_str_of(l->text)));
      at_mw_varint(b, at_mw_loc(w, l->child));
      break;
    case AT_MLOC_CALLSITE:
      at_mw_varint(b, 10);
      at_mw_varint(b, at_mw_loc(w, l->child));
      at_mw_varint(b, at_mw_loc(w, l->caller));
      break;
    case AT_MLOC_FUSED:
      at_mw_varint(b, l->metadata ? 13 : 12);
      at_mw_varint(b, l->num_locs);
      for (uint32_t i = 0; i < l->num_locs; i++)
        at_mw_varint(b, at_mw_loc(w, l->locs[i]));
      if (l->metadata) at_mw_varint(b, at_mw_attr(w, l->metadata));
      break;
    default:
      at_mw_varint(b, 15);
      break;
  }
}

// The index of the location's attribute; NULL is the unknown location.
uint32_t at_mw_loc(at_mwriter *w, const at_mloc *l) {
  uint32_t index;
  at_strbuf b = {0};
  if (!l) l = &at_mloc_unknown;
  if (known_index(&w->attrs, l, &index)) return index;
  location(w, &b, l);
  return file_entry(w, &w->attrs, l, AT_STR("builtin"), true, &b);
}

// false: the builtin dialect has no encoding for it, only text.
static bool builtin_attr(at_mwriter *w, at_strbuf *b, const at_mattr *a) {
  switch (a->kind) {
    case AT_MATTR_UNIT:
      at_mw_varint(b, 7);
      return true;
    // The value in the width of its type. An integer of no bits has no
    // encoding.
    case AT_MATTR_BOOL:
    case AT_MATTR_INTEGER:
      at_mw_varint(b, 8);
      at_mw_varint(b, at_mw_type(w, a->type));
      if (a->wide.len)
        wide_integer(b, a->wide);
      else
        known_width(b, a->type->kind == AT_MTYPE_INDEX ? 64 : a->type->width,
                    (uint64_t)a->i);
      return a->type->kind == AT_MTYPE_INDEX || a->type->width != 0;
    // The bits of the format.
    case AT_MATTR_FLOAT: {
      const at_mfloat *f = at_mfloat_find(at_str_of(a->type->name));
      at_mw_varint(b, 9);
      at_mw_varint(b, at_mw_type(w, a->type));
      known_width(b, f->bits, at_mfloat_encode(f, a->f));
      return true;
    }
    case AT_MATTR_STRING:
      at_mw_varint(b, a->type ? 3 : 2);
      at_mw_varint(b, string(w, a->str));
      if (a->type) at_mw_varint(b, at_mw_type(w, a->type));
      return true;
    case AT_MATTR_TYPE:
      at_mw_varint(b, 6);
      at_mw_varint(b, at_mw_type(w, a->type));
      return true;
    case AT_MATTR_ARRAY:
      at_mw_varint(b, 0);
      attr_list(w, b, a->elems, a->num_elems);
      return true;
    case AT_MATTR_DICT:
      dictionary(w, b, a->fields, a->num_elems);
      return true;
    case AT_MATTR_SYMBOL:
      at_mw_varint(b, a->num_elems ? 5 : 4);
      at_mw_varint(b, string_attr(w, a->str));
      if (a->num_elems) attr_list(w, b, a->elems, a->num_elems);
      return true;
    case AT_MATTR_DENSE:
      dense(w, b, a);
      return true;
    case AT_MATTR_DENSE_ARRAY:
      at_mw_varint(b, 17);
      at_mw_varint(b, at_mw_type(w, a->type));
      at_mw_varint(b, a->num_elems);
      blob(b, a->data);
      return true;
    case AT_MATTR_DENSE_STRINGS:
      at_mw_varint(b, 19);
      at_mw_varint(b, at_mw_type(w, a->type));
      at_mw_varint(b, a->splat);
      for (uint32_t i = 0; i < a->num_elems; i++)
        at_mw_varint(b, string(w, a->elems[i]->str));
      return true;
    case AT_MATTR_RESOURCE:
      resource(w, b, a);
      return true;
    case AT_MATTR_SPARSE:
      at_mw_varint(b, 20);
      at_mw_varint(b, at_mw_type(w, a->type));
      at_mw_varint(b, at_mw_attr(w, a->elems[0]));
      at_mw_varint(b, at_mw_attr(w, a->elems[1]));
      return true;
    // Code 21.
    case AT_MATTR_DISTINCT:
      at_mw_varint(b, 21);
      at_mw_varint(b, at_mw_attr(w, a->elems[0]));
      return a->i == 0;  // the encoding has no place for a number
    case AT_MATTR_LOCATION:
      location(w, b, a->loc);
      return true;
    default:
      return false;
  }
}

// ---- Dialect attributes
// The letters' other direction; v NULL: the optional field is absent.
static void field(at_mwriter *w, at_strbuf *b, const at_mcodec *k, char kind,
                  const at_mattr *v) {
  switch (kind) {
    case 's':
      at_mw_svarint(b, v->i);
      break;
    case 'L':
      at_mw_varint(b, v->num_elems);
      for (uint32_t i = 0; i < v->num_elems; i++) {
        int64_t x;
        memcpy(&x, v->data.ptr + 8 * (size_t)i, 8);
        at_mw_svarint(b, x);
      }
      break;
    case 't':
      at_mw_varint(b, at_mw_type(w, v->type));
      break;
    case 'b':
      at_strbuf_addc(b, (char)v->i);
      break;
    case 'd':
      known_width(b, 64, at_mfloat_encode(at_mfloat_find(AT_STR("f64")), v->f));
      break;
    case 'a':
      at_mw_varint(b, at_mw_attr(w, v));
      break;
    case 'o':
      at_mw_varint(b, v ? (uint64_t)at_mw_attr(w, v) << 1 | 1 : 0);
      break;
    case 'q':
      at_mw_varint(b, v != NULL);
      if (v) at_mw_varint(b, at_mw_attr(w, v));
      break;
    case 'Q':
      at_strbuf_addc(b, v != NULL);
      if (v) at_mw_varint(b, at_mw_attr(w, v));
      break;
    case 'A':
      attr_list(w, b, v->elems, v->num_elems);
      break;
    case 'S':
      at_mw_varint(b, string(w, v->str));
      break;
    case 'p':
      at_mw_varint(b, v ? (uint64_t)v->i << 1 | 1 : 0);
      break;
    default:  // 'E'
      at_mw_svarint(b, at_mcodec_value(k->enums, v->str));
      break;
  }
}

// false: the attribute is only text. Enums without an encoding, and structs
// without fields.
static bool dialect_attr(at_mwriter *w, at_strbuf *b, const at_mattr *a) {
  const at_mcodec *k = at_mcodec_by_name(at_str_of(a->name));
  if (!k || k->code < 0) return false;
  if (!*k->layout) {
    int v = at_mcodec_value(k->enums, a->str);
    if (v < 0) return false;
    at_mw_varint(b, (uint64_t)k->code);
    at_mw_varint(b, (uint64_t)v);
    return true;
  }
  if (!a->num_elems) return false;
  if (strcmp(k->name, "sdy.sharding") == 0) {
    // Three encodings, from when it had fewer parts.
    uint64_t code = a->num_elems > 4                ? 17
                    : a->fields[3].value->num_elems ? 15
                                                    : 6;
    k = at_mcodec_by_code(AT_STR("sdy"), code);
  }
  at_mw_varint(b, (uint64_t)k->code);
  // Fields stand in the layout's order, so one index follows both.
  at_mfield f;
  uint32_t at = 0;
  for (const char *l = k->layout; at_mcodec_next(&l, &f);) {
    bool here = at < a->num_elems && at_str_is(f.name, a->fields[at].name);
    field(w, b, k, f.kind, here ? a->fields[at].value : NULL);
    at += here;
  }
  return true;
}

// Dialects whose undecoded bytes would be read differently the next time.
static bool has_reader(const char *dialect) {
  static const char *const ours[] = {"builtin", "vhlo", "stablehlo", "chlo",
                                     "sdy"};
  for (size_t i = 0; i < AT_LEN(ours); i++)
    if (strcmp(dialect, ours[i]) == 0) return true;
  return false;
}

// Three ways: bytes that nobody decoded as they are, the dialect's encoding,
// else the text form ended by a NUL. An entry is filed before it returns, with
// those that it refers to filed earlier.
uint32_t at_mw_attr(at_mwriter *w, const at_mattr *a) {
  uint32_t index;
  at_strbuf b = {0};
  if (known_index(&w->attrs, a, &index)) return index;
  if (a->kind == AT_MATTR_OPAQUE && *a->name && !has_reader(a->name)) {
    at_strbuf_add(&b, (at_str){(const char *)a->bytes.ptr, a->bytes.len});
    return file_entry(w, &w->attrs, a, at_str_of(a->name), true, &b);
  }
  bool dialect = a->kind == AT_MATTR_DIALECT;
  at_str name = dialect ? dialect_of(a->name) : AT_STR("builtin");
  if (dialect ? dialect_attr(w, &b, a) : builtin_attr(w, &b, a))
    return file_entry(w, &w->attrs, a, name, true, &b);
  at_strbuf_free(&b);
  b = (at_strbuf){0};
  at_mattr_print(&b, a);
  at_strbuf_addc(&b, 0);
  return file_entry(w, &w->attrs, a, name, false, &b);
}

// ---- Types
// Count and indices.
static void type_list(at_mwriter *w, at_strbuf *b, const at_mtype *const *v,
                      uint32_t n) {
  at_mw_varint(b, n);
  for (uint32_t i = 0; i < n; i++) at_mw_varint(b, at_mw_type(w, v[i]));
}

// An absent layout is written as the identity map that it stands for, in text.
static void memref(at_mwriter *w, at_strbuf *b, const at_mtype *t) {
  uint32_t layout;
  if (t->layout) {
    layout = at_mw_attr(w, t->layout);
  } else {
    at_strbuf text = {0};
    at_strbuf_addz(&text, "affine_map<(");
    // The dimensions twice: affine_map<(d0, d1) -> (d0, d1)>.
    for (int pass = 0; pass < 2; pass++) {
      for (uint32_t i = 0; i < t->shape.rank; i++)
        at_strbuf_addf(&text, "%sd%u", i ? ", " : "", i);
      at_strbuf_addz(&text, pass ? ")>" : ") -> (");
    }
    at_strbuf_addc(&text, 0);
    layout = file_entry(w, &w->attrs, NULL, AT_STR("builtin"), false, &text);
  }
  at_mw_varint(b, t->space ? 11 : 10);
  if (t->space) at_mw_varint(b, at_mw_attr(w, t->space));
  svarints(b, t->shape);
  at_mw_varint(b, at_mw_type(w, t->elem));
  at_mw_varint(b, layout);
}

// false: a float that the encoding does not list.
static bool float_type(at_strbuf *b, const at_mtype *t) {
  for (size_t i = 0; i < kMbcTypeCodes; i++)
    if (at_mbc_float_names[i] && strcmp(at_mbc_float_names[i], t->name) == 0) {
      at_mw_varint(b, i);
      return true;
    }
  return false;
}

// false: the builtin dialect has no encoding for it.
static bool builtin_type(at_mwriter *w, at_strbuf *b, const at_mtype *t) {
  switch (t->kind) {
    case AT_MTYPE_INTEGER:
      at_mw_varint(b, 0);
      at_mw_varint(b, (uint64_t)t->width << 2 | (uint64_t)t->sign);
      return true;
    case AT_MTYPE_INDEX:
    case AT_MTYPE_NONE:
      at_mw_varint(b, t->kind == AT_MTYPE_INDEX ? 1 : 12);
      return true;
    case AT_MTYPE_FLOAT:
      return float_type(b, t);
    case AT_MTYPE_FUNCTION:
      at_mw_varint(b, 2);
      type_list(w, b, t->types, t->num_types);
      type_list(w, b, t->results, t->num_results);
      return true;
    case AT_MTYPE_COMPLEX:
    case AT_MTYPE_UNRANKED_TENSOR:
      at_mw_varint(b, t->kind == AT_MTYPE_COMPLEX ? 9 : 18);
      at_mw_varint(b, at_mw_type(w, t->elem));
      return true;
    case AT_MTYPE_TENSOR:
      at_mw_varint(b, t->encoding ? 14 : 13);
      if (t->encoding) at_mw_varint(b, at_mw_attr(w, t->encoding));
      svarints(b, t->shape);
      at_mw_varint(b, at_mw_type(w, t->elem));
      return true;
    case AT_MTYPE_TUPLE:
      at_mw_varint(b, 15);
      type_list(w, b, t->types, t->num_types);
      return true;
    case AT_MTYPE_MEMREF:
      memref(w, b, t);
      return true;
    case AT_MTYPE_UNRANKED_MEMREF:
      at_mw_varint(b, t->space ? 17 : 16);
      if (t->space) at_mw_varint(b, at_mw_attr(w, t->space));
      at_mw_varint(b, at_mw_type(w, t->elem));
      return true;
    case AT_MTYPE_VECTOR:
      at_mw_varint(b, t->scalable.rank ? 20 : 19);
      if (t->scalable.rank) {
        at_mw_varint(b, t->scalable.rank);
        for (uint32_t i = 0; i < t->scalable.rank; i++)
          at_strbuf_addc(b, (char)t->scalable.ptr[i]);
      }
      svarints(b, t->shape);
      at_mw_varint(b, at_mw_type(w, t->elem));
      return true;
    default:
      return false;
  }
}

// As at_mw_attr.
uint32_t at_mw_type(at_mwriter *w, const at_mtype *t) {
  uint32_t index;
  at_strbuf b = {0};
  if (known_index(&w->types, t, &index)) return index;
  if (t->kind == AT_MTYPE_OPAQUE && *t->name && !has_reader(t->name)) {
    at_strbuf_add(&b, (at_str){(const char *)t->bytes.ptr, t->bytes.len});
    return file_entry(w, &w->types, t, at_str_of(t->name), true, &b);
  }
  if (builtin_type(w, &b, t))
    return file_entry(w, &w->types, t, AT_STR("builtin"), true, &b);
  at_strbuf_free(&b);
  b = (at_strbuf){0};
  at_mtype_print(&b, t);
  at_strbuf_addc(&b, 0);
  at_str name =
      t->kind == AT_MTYPE_DIALECT ? dialect_of(t->name) : AT_STR("builtin");
  return file_entry(w, &w->types, t, name, false, &b);
}

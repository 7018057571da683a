// The file and its sections, in the form of MLIR's BytecodeReader: magic
// "ML\xefR", a version, the producer's name up to a NUL, then sections, each an
// id, a length, perhaps an alignment, and bytes. Sections refer to each other
// by number only: strings come first, then dialects with the names of their
// operations, then attributes and types (which are decoded when somebody asks
// for one: bytecode_dialects.c), resources, properties, and the program itself
// (bytecode_ir.c).
// Nothing is trusted: every number is held against the table that it is an
// index of, every length against the bytes that are left.
#include "base/verify.h"
#include "mlir/bytecode_ir.h"

enum {
  // Ids of sections.
  S_STRING,
  S_DIALECT,
  S_ATTR_TYPE,
  S_ATTR_TYPE_OFFSET,
  S_IR,
  S_RESOURCE,
  S_RESOURCE_OFFSET,
  S_DIALECT_VERSIONS,
  S_PROPERTIES,
  S_COUNT
};

// The id's highest bit says that an alignment follows: a power of two, counted
// from the file's first byte, to which padding is skipped.
at_status at_mbc_section(at_mbc *r, at_mcursor *c, uint8_t *id, at_bytes *out) {
  uint64_t len, align;
  AT_TRY(at_mbc_byte(r, c, id));
  AT_TRY(at_mbc_varint(r, c, &len));
  if (*id & 0x80) {
    AT_TRY(at_mbc_varint(r, c, &align));
    if (align == 0 || align & (align - 1) || align > 1u << 20)
      return at_mbc_fail(r, c, "an impossible alignment");
    size_t at = (size_t)(c->p - c->base), pad = -at & (align - 1);
    at_bytes skipped;
    AT_TRY(at_mbc_bytes(r, c, pad, &skipped));
  }
  *id &= 0x7f;
  return at_mbc_bytes(r, c, len, out);
}

// Offsets in messages count from the start of the file.
static at_mcursor cursor_of(const at_mbc *r, at_bytes b) {
  // An absent section has no bytes to point at.
  return (at_mcursor){b.ptr, b.len ? b.ptr + b.len : b.ptr, r->all.ptr};
}

// Sizes come first, for the last string first; then the strings.
static at_status strings(at_mbc *r, at_bytes section) {
  at_mcursor c = cursor_of(r, section);
  AT_TRY(at_mbc_count(r, &c, &r->num_strings));
  AT_TRY_ALLOC(r->strings, at_new(r->c.arena, at_str, r->num_strings));
  // Strings are laid out from the section's end, last one first.
  const uint8_t *end = c.end;
  for (uint32_t i = r->num_strings; i-- > 0;) {
    uint64_t n;
    AT_TRY(at_mbc_varint(r, &c, &n));
    // The sizes grow from the front towards the strings at the back.
    if (n == 0 || end < c.p || n > (size_t)(end - c.p))
      return at_mbc_fail(r, &c, "a string leaves its section");
    end -= n;
    r->strings[i] = (at_str){(const char *)end, n - 1};
  }
  if (end != c.p)
    return at_mbc_fail(r, &c, "strings do not fill their section");
  return AT_OK;
}

// By dialect, the names of its operations without the dialect in front. Full
// names are put together here; a name with a dot in a wrong place would be read
// as another one's when it is printed. From version 4 on a hint of their number
// comes first, from 5 on a flag says whether the operation is registered, which
// decides how its properties are written.
static at_status op_names(at_mbc *r, at_mcursor *c) {
  AT_VEC(__typeof__(*r->ops)) ops = {0};
  if (r->version >= 4) {
    uint64_t hint;
    AT_TRY(at_mbc_varint(r, c, &hint));
  }
  while (c->p != c->end) {
    uint64_t dialect;
    uint32_t n;
    AT_TRY(at_mbc_varint(r, c, &dialect));
    AT_TRY(at_mbc_count(r, c, &n));
    if (dialect >= r->num_dialects) return at_mbc_fail(r, c, "no such dialect");
    if (!at_vec_reserve(r->c.arena, &ops, ops.len + n))
      return AT_NO_MEMORY("operation names");
    for (uint32_t i = 0; i < n; i++) {
      uint64_t s;
      bool registered = false;
      AT_TRY(r->version >= 5 ? at_mbc_flagged(r, c, &s, &registered)
                             : at_mbc_varint(r, c, &s));
      if (s >= r->num_strings) return at_mbc_fail(r, c, "no such string");
      at_str name = r->strings[s];
      const char *d = r->dialects[dialect];
      char *full;
      AT_TRY_ALLOC(
          full, at_arena_printf(r->c.arena, "%s%s%.*s", d, name.len ? "." : "",
                                (int)name.len, name.ptr));
      // A NUL inside of the name would shorten it.
      size_t len = strlen(full);
      if (len != strlen(d) + (name.len != 0) + name.len || len == 0 ||
          full[len - 1] == '.')
        return at_mbc_fail(r, c, "an impossible operation name");
      AT_TRY_ALLOC(ops.ptr[ops.len].name,
                   at_mctx_intern(&r->c, at_str_of(full)));
      ops.ptr[ops.len++].registered = registered;
    }
  }
  r->ops = (void *)ops.ptr;
  r->num_ops = (uint32_t)ops.len;
  return AT_OK;
}

// From version 1 on a dialect may carry a version, in a section of its own,
// which is passed over: how StableHLO's dialects changed is upgrade.c's matter,
// by names.
static at_status dialects(at_mbc *r, at_bytes section) {
  at_mcursor c = cursor_of(r, section);
  AT_TRY(at_mbc_count(r, &c, &r->num_dialects));
  AT_TRY_ALLOC(r->dialects, at_new(r->c.arena, const char *, r->num_dialects));
  for (uint32_t i = 0; i < r->num_dialects; i++) {
    uint64_t s;
    bool versioned = false;
    AT_TRY(r->version >= 1 ? at_mbc_flagged(r, &c, &s, &versioned)
                           : at_mbc_varint(r, &c, &s));
    if (s >= r->num_strings) return at_mbc_fail(r, &c, "no such string");
    AT_TRY_ALLOC(r->dialects[i], at_mctx_intern(&r->c, r->strings[s]));
    if (!versioned) continue;
    uint8_t id;
    at_bytes version;
    AT_TRY(at_mbc_section(r, &c, &id, &version));
    if (id != S_DIALECT_VERSIONS)
      return at_mbc_fail(r, &c, "a dialect version section is expected");
  }
  return op_names(r, &c);
}

// The offsets' section has lengths alone; entries lie back to back in the other
// section, so `used` counts along. Groups are runs of entries of one dialect.
// An entry is only cut out here.
static at_status entry_group(at_mbc *r, at_mcursor *c, at_bytes data,
                             size_t *used, at_mentry *v, uint32_t n) {
  for (uint32_t i = 0; i < n;) {
    uint64_t dialect, group;
    AT_TRY(at_mbc_varint(r, c, &dialect));
    AT_TRY(at_mbc_varint(r, c, &group));
    if (dialect >= r->num_dialects) return at_mbc_fail(r, c, "no such dialect");
    if (group > n - i) return at_mbc_fail(r, c, "too many entries in a group");
    // The flag says whether the entry is in the dialect's encoding or in text.
    for (; group; group--, i++) {
      uint64_t len;
      AT_TRY(at_mbc_flagged(r, c, &len, &v[i].custom));
      if (len > data.len - *used)
        return at_mbc_fail(r, c, "an entry leaves its section");
      v[i].dialect = (uint32_t)dialect;
      v[i].data = (at_bytes){data.ptr + *used, len};
      *used += len;
    }
  }
  return AT_OK;
}

// Attributes, then types, share one count of bytes: both sections have to come
// out even.
static at_status entries(at_mbc *r, at_bytes offsets, at_bytes data) {
  at_mcursor c = cursor_of(r, offsets);
  size_t used = 0;
  AT_TRY(at_mbc_count(r, &c, &r->num_attrs));
  AT_TRY(at_mbc_count(r, &c, &r->num_types));
  AT_TRY_ALLOC(r->attrs, at_new(r->c.arena, at_mentry, r->num_attrs));
  AT_TRY_ALLOC(r->types, at_new(r->c.arena, at_mentry, r->num_types));
  AT_TRY(entry_group(r, &c, data, &used, r->attrs, r->num_attrs));
  AT_TRY(entry_group(r, &c, data, &used, r->types, r->num_types));
  if (c.p != c.end || used != data.len)
    return at_mbc_fail(r, &c, "entries do not fill their section");
  return AT_OK;
}

// A blob is an alignment, a length, padding and bytes. Other kinds (bool,
// string) belong to tools and are passed over.
static at_status resource_value(at_mbc *r, at_bytes raw, uint8_t kind,
                                at_mresource *out) {
  if (kind != 0 || raw.len == 0) return AT_OK;
  at_mcursor c = cursor_of(r, raw);
  uint64_t align, len;
  at_bytes data, pad;
  AT_TRY(at_mbc_varint(r, &c, &align));
  AT_TRY(at_mbc_varint(r, &c, &len));
  if (align == 0 || align & (align - 1) || align > 1u << 20)
    return at_mbc_fail(r, &c, "an impossible alignment");
  size_t at = (size_t)(c.p - c.base);
  AT_TRY(at_mbc_bytes(r, &c, -at & (align - 1), &pad));
  AT_TRY(at_mbc_bytes(r, &c, len, &data));
  out->data = data;
  if (!(r->borrow && len >= 4096 && (uintptr_t)data.ptr % 16 == 0))
    AT_TRY_ALLOC(out->data.ptr,
                 at_arena_copy(r->c.arena, data.ptr, data.len, 64));
  return AT_OK;
}

// Of external resources (`ours` false) keys are read and values skipped. Large
// blobs that lie well are borrowed from the file where the caller allows it:
// constants of weights are not copied.
static at_status resource_group(at_mbc *r, at_mcursor *offsets,
                                at_mcursor *data, bool ours) {
  uint32_t n;
  AT_TRY(at_mbc_count(r, offsets, &n));
  // Groups add to the list that is there.
  AT_VEC(at_mresource) all = {r->resources, r->num_resources, r->num_resources};
  for (uint32_t i = 0; i < n; i++) {
    at_str key;
    uint64_t len;
    uint8_t kind;
    at_bytes raw;
    at_mresource v = {0};
    AT_TRY(at_mbc_string(r, offsets, &key));
    AT_TRY(at_mbc_varint(r, offsets, &len));
    AT_TRY(at_mbc_byte(r, offsets, &kind));
    AT_TRY(at_mbc_bytes(r, data, len, &raw));
    if (!ours) continue;
    AT_TRY_ALLOC(v.key, at_mctx_intern(&r->c, key));
    AT_TRY(resource_value(r, raw, kind, &v));
    if (!at_vec_push(r->c.arena, &all, v)) return AT_NO_MEMORY("resources");
  }
  r->resources = all.ptr;
  r->num_resources = (uint32_t)all.len;
  return AT_OK;
}

// Groups of external resources first, each with a key, then groups by dialect.
static at_status resources(at_mbc *r, at_bytes offsets, at_bytes data) {
  at_mcursor o = cursor_of(r, offsets), d = cursor_of(r, data);
  uint32_t external;
  AT_TRY(at_mbc_count(r, &o, &external));
  for (uint32_t i = 0; i < external; i++) {
    at_str key;
    AT_TRY(at_mbc_string(r, &o, &key));
    AT_TRY(resource_group(r, &o, &d, false));
  }
  while (o.p != o.end) {
    uint64_t dialect;
    AT_TRY(at_mbc_varint(r, &o, &dialect));
    if (dialect >= r->num_dialects)
      return at_mbc_fail(r, &o, "no such dialect");
    AT_TRY(resource_group(r, &o, &d, true));
  }
  return AT_OK;
}

// Cut out here, decoded with the operation that they are of: only its name says
// what they hold.
static at_status properties(at_mbc *r, at_bytes section) {
  at_mcursor c = cursor_of(r, section);
  AT_TRY(at_mbc_count(r, &c, &r->num_props));
  AT_TRY_ALLOC(r->props, at_new(r->c.arena, at_bytes, r->num_props));
  for (uint32_t i = 0; i < r->num_props; i++)
    AT_TRY(at_mbc_blob(r, &c, &r->props[i]));
  return AT_OK;
}

// Each kind of section may come once, in any order; five of them have to.
static at_status all_sections(at_mbc *r, at_mcursor *c, at_bytes *s,
                              bool *has) {
  while (c->p != c->end) {
    uint8_t id;
    at_bytes b;
    AT_TRY(at_mbc_section(r, c, &id, &b));
    if (id >= S_COUNT) return at_mbc_fail(r, c, "unknown section");
    if (has[id]) return at_mbc_fail(r, c, "a section occurs twice");
    has[id] = true;
    s[id] = b;
  }
  static const uint8_t needed[] = {S_STRING, S_DIALECT, S_ATTR_TYPE,
                                   S_ATTR_TYPE_OFFSET, S_IR};
  for (size_t i = 0; i < AT_LEN(needed); i++)
    if (!has[needed[i]]) return at_mbc_fail(r, c, "a section is missing");
  return AT_OK;
}

// Sections are collected first, since they may come in any order, and read in
// the order in which they refer to each other.
at_status at_mlir_read_bytecode(at_bytes bytes, bool borrow, at_arena *a,
                                at_mmodule **out) {
  if (!at_mlir_is_bytecode(bytes))
    return AT_FAIL(AT_INVALID_ARGUMENT, "not MLIR bytecode");
  at_mbc *r;
  at_mmodule *m;
  AT_TRY_ALLOC(r, at_new(a, at_mbc, 1));
  AT_TRY_ALLOC(m, at_new(a, at_mmodule, 1));
  r->c = (at_mctx){a, at_map_in(a)};
  r->all = bytes;
  r->borrow = borrow;
  at_mcursor c = {bytes.ptr + 4, bytes.ptr + bytes.len, bytes.ptr};
  AT_TRY(at_mbc_varint(r, &c, &r->version));
  if (r->version > 6)
    return AT_FAIL(
        AT_UNIMPLEMENTED,
        "MLIR bytecode version %llu\ndetail: versions 0 to 6 are read",
        (unsigned long long)r->version);
  const uint8_t *nul = memchr(c.p, 0, (size_t)(c.end - c.p));
  if (!nul) return at_mbc_fail(r, &c, "the producer's name has no end");
  AT_TRY_ALLOC(
      m->producer,
      at_mctx_intern(&r->c, (at_str){(const char *)c.p, (size_t)(nul - c.p)}));
  c.p = nul + 1;
  // Strings first, then what names strings, then what names those.
  at_bytes s[S_COUNT] = {{0}};
  bool has[S_COUNT] = {false};
  AT_TRY(all_sections(r, &c, s, has));
  AT_TRY(strings(r, s[S_STRING]));
  AT_TRY(dialects(r, s[S_DIALECT]));
  if (has[S_PROPERTIES]) AT_TRY(properties(r, s[S_PROPERTIES]));
  AT_TRY(entries(r, s[S_ATTR_TYPE_OFFSET], s[S_ATTR_TYPE]));
  if (has[S_RESOURCE_OFFSET])
    AT_TRY(resources(r, s[S_RESOURCE_OFFSET], s[S_RESOURCE]));
  AT_TRY(at_mbc_ir(r, cursor_of(r, s[S_IR]), &m->op));
  m->bytecode_version = (uint32_t)r->version;
  m->dialects = r->dialects;
  m->num_dialects = r->num_dialects;
  m->arena = a;
  *out = m;
  return AT_OK;
}

// By the magic number alone.
// The writer checks what it writes. Bytecode, not text: text has shared parts
// as often as they are used.
static bool is_written_back(const at_mmodule *m) {
  at_strbuf bytes = {0};
  at_code code = at_code_take(at_mlir_write_bytecode(m, "", &bytes));
  at_strbuf_free(&bytes);
  return code == AT_OK_CODE || code == AT_RESOURCE_EXHAUSTED;
}

// Under ATOLL_VERIFY every tree is also written and read again, which takes
// about three times as long.
at_status at_mlir_read(at_bytes bytes, bool borrow, at_arena *a,
                       at_mmodule **out) {
  AT_TRY(at_mlir_is_bytecode(bytes)
             ? at_mlir_read_bytecode(bytes, borrow, a, out)
             : at_mlir_read_text((at_str){(const char *)bytes.ptr, bytes.len},
                                 a, out));
  AT_VERIFY(is_written_back(*out));
  return AT_OK;
}

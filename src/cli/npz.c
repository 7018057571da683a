// A zip directory, its members, and the header of each array. Everything is
// read by offsets that are checked against the file first.
#include "cli/npz.h"

#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

#include "base/strbuf.h"

static uint32_t u16(const uint8_t *p) {
  return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}
static uint32_t u32(const uint8_t *p) { return u16(p) | u16(p + 2) << 16; }
static uint64_t u64(const uint8_t *p) {
  return u32(p) | (uint64_t)u32(p + 4) << 32;
}

// NumPy's type codes. What NumPy has no code for is a void of its size.
static const struct {
  const char *code;
  at_dtype dtype;
} codes[] = {
    {"|b1", AT_PRED}, {"|i1", AT_S8},    {"<i2", AT_S16},  {"<i4", AT_S32},
    {"<i8", AT_S64},  {"|u1", AT_U8},    {"<u2", AT_U16},  {"<u4", AT_U32},
    {"<u8", AT_U64},  {"<f2", AT_F16},   {"<f4", AT_F32},  {"<f8", AT_F64},
    {"<c8", AT_C64},  {"<c16", AT_C128}, {"|V2", AT_BF16}, {"<V2", AT_BF16}};

// ---- .npy
// What follows a key of the header's dictionary; NULL: it has none such.
static const char *field(const char *header, const char *key) {
  const char *p = strstr(header, key);
  if (!p) return NULL;
  p += strlen(key);
  while (*p == ' ' || *p == ':') p++;
  return p;
}

// The numbers of a tuple up to its ')'. A shape without numbers is that of a
// scalar.
static at_status parse_shape(const char *p, at_arena *a, at_dims *out) {
  AT_VEC(int64_t) dims = {0};
  while (*p && *p != ')') {
    char *end;
    long long v = strtoll(p, &end, 10);
    if (end == p || v < 0)
      return AT_FAIL(AT_INVALID_ARGUMENT, "npy: bad shape");
    if (!at_vec_push(a, &dims, v)) return AT_NO_MEMORY("npy shape");
    for (p = end; *p == ',' || *p == ' '; p++) {
    }
  }
  *out = (at_dims){dims.ptr, (uint32_t)dims.len};
  return AT_OK;
}

// Column-major data into row-major.
static void from_fortran(const uint8_t *src, uint8_t *dst, at_dims d,
                         size_t elem, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    int64_t rest = i, at = 0;
    for (uint32_t k = d.rank; k-- > 0;) {
      int64_t index = rest % d.ptr[k], stride = 1;
      rest /= d.ptr[k];
      for (uint32_t j = 0; j < k; j++) stride *= d.ptr[j];
      at += index * stride;
    }
    memcpy(dst + (size_t)i * elem, src + (size_t)at * elem, elem);
  }
}

// out->name is set. The size that the shape needs must be the size that is
// there, so nothing is read outside of b. UNIMPLEMENTED: a type that Atoll
// lacks.
static at_status parse_npy(at_bytes b, at_arena *a, at_npy *out) {
  if (b.len < 12 || memcmp(b.ptr, "\x93NUMPY", 6))
    return AT_FAIL(AT_INVALID_ARGUMENT, "%s is no .npy array", out->name);
  size_t head = b.ptr[6] >= 2 ? 12 : 10;
  size_t len = head == 12 ? u32(b.ptr + 8) : u16(b.ptr + 8);
  if (len > b.len - head)
    return AT_FAIL(AT_INVALID_ARGUMENT, "%s: truncated header", out->name);
  char *text;
  AT_TRY_ALLOC(text,
               at_arena_str(a, (at_str){(const char *)b.ptr + head, len}));
  const char *descr = field(text, "'descr'"),
             *order = field(text, "'fortran_order'");
  const char *shape = field(text, "'shape'");
  if (!descr || !order || !shape || *descr != '\'' || *shape != '(')
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "%s: the header lacks descr, fortran_order or shape",
                   out->name);
  for (size_t i = 0; i < AT_LEN(codes); i++) {
    size_t n = strlen(codes[i].code);
    if (!strncmp(descr + 1, codes[i].code, n) && descr[1 + n] == '\'')
      out->dtype = codes[i].dtype;
  }
  if (out->dtype == AT_INVALID)
    return AT_FAIL(AT_UNIMPLEMENTED, "%s: element type %.*s", out->name,
                   (int)strcspn(descr + 1, "'"), descr + 1);
  AT_TRY(parse_shape(shape + 1, a, &out->dims));
  size_t elem = at_dtype_bytes(out->dtype), bytes = elem;
  for (uint32_t i = 0; i < out->dims.rank; i++)
    bytes = at_mul(bytes, (size_t)out->dims.ptr[i]);
  if (bytes != b.len - head - len)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "%s: the shape needs %zu bytes, %zu are there", out->name,
                   bytes, b.len - head - len);
  uint8_t *data;
  AT_TRY_ALLOC(data, at_arena_alloc(a, bytes, 64));
  const uint8_t *src = b.ptr + head + len;
  if (*order == 'T' && out->dims.rank > 1)
    from_fortran(src, data, out->dims, elem, (int64_t)(bytes / elem));
  else if (bytes)
    memcpy(data, src, bytes);
  out->data = data;
  out->bytes = bytes;
  return AT_OK;
}

// "f32[2,3]", for messages.
static void put_type(at_strbuf *b, at_dtype dtype, at_dims dims) {
  at_strbuf_addf(b, "%s[", at_dtype_of(dtype)->text);
  for (uint32_t i = 0; i < dims.rank; i++)
    at_strbuf_addf(b, "%s%lld", i ? "," : "", (long long)dims.ptr[i]);
  at_strbuf_addc(b, ']');
}

// Types that NumPy has must be the same; of the others only sizes can be
// compared.
at_status at_npy_fits(const at_npy *x, uint32_t index, at_dtype dtype,
                      at_dims dims) {
  bool known = false;
  for (size_t i = 0; i < AT_LEN(codes); i++)
    known |= codes[i].dtype == dtype && dtype != AT_BF16;
  bool alike = known ? x->dtype == dtype
                     : at_dtype_bytes(x->dtype) == at_dtype_bytes(dtype);
  if (alike && at_dims_eq(x->dims, dims)) return AT_OK;
  at_strbuf wanted = {0}, given = {0};
  put_type(&wanted, dtype, dims);
  put_type(&given, x->dtype, x->dims);
  at_status s = at_strbuf_status(&wanted);
  if (at_ok(s)) s = at_strbuf_status(&given);
  if (at_ok(s))
    s = AT_FAIL(AT_INVALID_ARGUMENT,
                "argument %u (%s): the program takes %.*s, the file has %.*s",
                index, x->name, (int)wanted.len, wanted.ptr, (int)given.len,
                given.ptr);
  at_strbuf_free(&wanted);
  at_strbuf_free(&given);
  return s;
}

// ---- zip
// Must come out as exactly `size` bytes, as the directory says.
static at_status inflate_member(at_bytes packed, size_t size, at_arena *a,
                                at_bytes *out) {
  uint8_t *p;
  AT_TRY_ALLOC(p, at_arena_alloc(a, size, 16));
  z_stream z = {.next_in = (Bytef *)packed.ptr,
                .avail_in = (uInt)packed.len,
                .next_out = p,
                .avail_out = (uInt)size};
  if (packed.len > UINT32_MAX || size > UINT32_MAX ||
      inflateInit2(&z, -MAX_WBITS) != Z_OK)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "npz: a compressed member of over 4 GiB");
  int rc = inflate(&z, Z_FINISH);
  inflateEnd(&z);
  if (rc != Z_STREAM_END || z.avail_out)
    return AT_FAIL(AT_INVALID_ARGUMENT, "npz: damaged compressed member");
  *out = (at_bytes){p, size};
  return AT_OK;
}

// A file of the archive, as the directory describes it.
typedef struct member {
  uint32_t method;
  uint64_t packed, size, offset;
  at_str name;
} member;

// Sizes of 4 GiB and more stand in the zip64 extra field, in this order.
static void read_zip64(const uint8_t *p, size_t n, member *m) {
  while (n >= 4 && u16(p + 2) <= n - 4) {
    size_t len = u16(p + 2);
    if (u16(p) == 1) {
      const uint8_t *q = p + 4, *end = q + len;
      uint64_t *const fields[] = {&m->size, &m->packed, &m->offset};
      for (int i = 0; i < 3; i++)
        if (*fields[i] == UINT32_MAX && end - q >= 8)
          *fields[i] = u64(q), q += 8;
    }
    p += 4 + len;
    n -= 4 + len;
  }
}

// Checks that the member lies inside the file. Sizes are the directory's: those
// of the local header may be missing.
static at_status read_member(at_bytes f, const member *m, at_arena *a,
                             at_npy *out) {
  if (m->offset > f.len || f.len - m->offset < 30)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "npz: a member lies outside of the file");
  const uint8_t *local = f.ptr + m->offset;
  size_t skip = 30 + u16(local + 26) + u16(local + 28);
  if (skip > f.len - m->offset || m->packed > f.len - m->offset - skip)
    return AT_FAIL(AT_INVALID_ARGUMENT, "npz: a member is cut off");
  at_bytes data = {local + skip, m->packed};
  if (m->method == 8)
    AT_TRY(inflate_member(data, m->size, a, &data));
  else if (m->method != 0)
    return AT_FAIL(AT_UNIMPLEMENTED, "npz: compression method %u", m->method);
  at_str name = m->name;
  if (name.len > 4 && !memcmp(name.ptr + name.len - 4, ".npy", 4))
    name.len -= 4;
  AT_TRY_ALLOC(out->name, at_arena_str(a, name));
  return parse_npy(data, a, out);
}

// Finds the directory from the end of the file, behind which a comment of up to
// 64 KiB may be. Checksums are not compared.
at_status at_npz_read(at_bytes f, at_arena *a, at_npy **out,
                      uint32_t *out_count) {
  // The end of the directory's record is searched backwards: a comment of any
  // length up to 64 KiB may follow it.
  size_t end = SIZE_MAX;
  for (size_t i = 22; i <= f.len && i < 22 + 65536 && end == SIZE_MAX; i++)
    if (u32(f.ptr + f.len - i) == 0x06054b50) end = f.len - i;
  if (end == SIZE_MAX)
    return AT_FAIL(AT_INVALID_ARGUMENT, "npz: no zip directory found");
  // How many members there are, and where their list begins.
  uint32_t count = u16(f.ptr + end + 10);
  uint64_t at = u32(f.ptr + end + 16);
  at_npy *list;
  AT_TRY_ALLOC(list, at_new(a, at_npy, count + 1));
  for (uint32_t i = 0; i < count; i++) {
    if (at > f.len || f.len - at < 46 || u32(f.ptr + at) != 0x02014b50)
      return AT_FAIL(AT_INVALID_ARGUMENT, "npz: damaged zip directory");
    const uint8_t *p = f.ptr + at;
    size_t name = u16(p + 28), extra = u16(p + 30), comment = u16(p + 32);
    if (f.len - at - 46 < name + extra + comment)
      return AT_FAIL(AT_INVALID_ARGUMENT, "npz: damaged zip directory");
    member m = {u16(p + 10),
                u32(p + 20),
                u32(p + 24),
                u32(p + 42),
                {(const char *)p + 46, name}};
    read_zip64(p + 46 + name, extra, &m);
    AT_TRY(read_member(f, &m, a, &list[i]));
    at += 46 + name + extra + comment;
  }
  *out = list;
  *out_count = count;
  return AT_OK;
}

// ---- Writing
// A number of so many bytes, the lowest first.
static void put(at_strbuf *b, uint64_t v, int bytes) {
  for (int i = 0; i < bytes; i++) at_strbuf_addc(b, (char)(v >> 8 * i));
}

// Padded so that the data of a lone .npy would begin at a multiple of 64.
static void npy_header(at_strbuf *b, const at_npy *x) {
  char code[8];
  snprintf(code, sizeof code, "|V%u", at_dtype_bytes(x->dtype));
  const char *descr = code;
  for (size_t i = AT_LEN(codes); i-- > 0;)
    if (codes[i].dtype == x->dtype) descr = codes[i].code;
  at_strbuf text = {0};
  at_strbuf_addf(&text, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                 descr);
  for (uint32_t i = 0; i < x->dims.rank; i++)
    at_strbuf_addf(&text, "%lld,", (long long)x->dims.ptr[i]);
  at_strbuf_addz(&text, "), }");
  // Ten bytes come before the text, and a newline ends it.
  while ((text.len + 11) % 64) at_strbuf_addc(&text, ' ');
  at_strbuf_addc(&text, '\n');
  at_strbuf_add(b, (at_str){"\x93NUMPY\x01\x00", 8});
  put(b, text.len, 2);
  at_strbuf_add(b, at_strbuf_str(&text));
  at_strbuf_free(&text);
}

// A local or directory header: the parts that both share.
static void zip_common(at_strbuf *b, uint32_t crc, uint64_t size, size_t name) {
  put(b, 0, 2);           // flags
  put(b, 0, 2);           // stored
  put(b, 0x21 << 16, 4);  // 1980-01-01
  put(b, crc, 4);
  put(b, size, 4);
  put(b, size, 4);
  put(b, name, 2);
}

// The file gets header and data, *directory the member's entry. Errors of
// writing show at the end.
static at_status write_member(FILE *f, const at_npy *x, at_strbuf *directory) {
  at_strbuf head = {0}, local = {0};
  npy_header(&head, x);
  uint64_t size = head.len + x->bytes;
  long at = ftell(f);
  at_status st = AT_OK;
  if (size >= UINT32_MAX || at < 0 || (uint64_t)at >= UINT32_MAX) {
    st = AT_FAIL(AT_UNIMPLEMENTED, "%s: an archive of over 4 GiB", x->name);
    goto out;
  }
  uLong crc =
      crc32_z(crc32_z(0, (const Bytef *)head.ptr, head.len), x->data, x->bytes);
  size_t name = strlen(x->name) + 4;
  put(&local, 0x04034b50, 4);
  put(&local, 20, 2);
  zip_common(&local, (uint32_t)crc, size, name);
  put(&local, 0, 2);
  at_strbuf_addf(&local, "%s.npy", x->name);
  fwrite(local.ptr, 1, local.len, f);
  fwrite(head.ptr, 1, head.len, f);
  if (x->bytes) fwrite(x->data, 1, x->bytes, f);
  put(directory, 0x02014b50, 4);
  put(directory, 20, 2);
  put(directory, 20, 2);
  zip_common(directory, (uint32_t)crc, size, name);
  put(directory, 0, 2 + 2 + 2 + 2 + 4);
  put(directory, (uint64_t)at, 4);
  at_strbuf_addf(directory, "%s.npy", x->name);
out:
  at_strbuf_free(&head);
  at_strbuf_free(&local);
  return st;
}

// What was written before a failure stays: the caller is told that it is no
// archive.
at_status at_npz_write(const char *path, const at_npy *arrays, uint32_t count) {
  FILE *f = fopen(path, "wb");
  if (!f) return AT_FAIL(AT_PERMISSION_DENIED, "cannot write %s", path);
  at_strbuf directory = {0}, tail = {0};
  at_status st = AT_OK;
  for (uint32_t i = 0; i < count && !st.err; i++)
    st = write_member(f, &arrays[i], &directory);
  long at = ftell(f);
  if (!st.err && (at < 0 || (uint64_t)at >= UINT32_MAX))
    st = AT_FAIL(AT_UNIMPLEMENTED, "%s: an archive of over 4 GiB", path);
  put(&tail, 0x06054b50, 4);
  put(&tail, 0, 4);
  put(&tail, count, 2);
  put(&tail, count, 2);
  put(&tail, directory.len, 4);
  put(&tail, (uint64_t)at, 4);
  put(&tail, 0, 2);
  if (directory.len) fwrite(directory.ptr, 1, directory.len, f);
  fwrite(tail.ptr, 1, tail.len, f);
  bool bad = ferror(f) || directory.failed || tail.failed;
  if (fclose(f) || bad)
    st = at_status_join(st, AT_FAIL(AT_DATA_LOSS, "cannot write %s", path));
  at_strbuf_free(&directory);
  at_strbuf_free(&tail);
  return st;
}

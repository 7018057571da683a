#include "control/tile_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/folder.h"

enum { kPath = 8192 };

// The code says what the caller can do about it: free space, another path,
// other rights.
at_status at_file_failed(const char *what, const char *path, int error) {
  at_code code = AT_INTERNAL;
  if (error == ENOSPC || error == EDQUOT || error == EMFILE || error == ENOMEM)
    code = AT_RESOURCE_EXHAUSTED;
  if (error == ENOENT) code = AT_NOT_FOUND;
  if (error == EEXIST) code = AT_ALREADY_EXISTS;
  if (error == EACCES || error == EPERM || error == EROFS)
    code = AT_PERMISSION_DENIED;
  if (error == ENOTDIR || error == ENAMETOOLONG || error == ELOOP)
    code = AT_INVALID_ARGUMENT;
  return AT_FAIL(code, "%s %s: %s", what, path,
                 error == ELOOP ? "it is a link" : strerror(error));
}

// ---- Writing
// Goes on after signals and short writes.
static at_status write_all(int fd, const char *path, at_bytes data) {
  while (data.len) {
    ssize_t n = write(fd, data.ptr, data.len);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return at_file_failed("writing", path, errno);
    data.ptr += n;
    data.len -= (size_t)n;
  }
  return AT_OK;
}

// O_EXCL and O_NOFOLLOW: nothing that is there is written over, and no link is
// followed.
static at_status open_new(const char *path, int *out) {
  char folder[kPath];
  snprintf(folder, sizeof folder, "%s", path);
  int error = at_make_folders(dirname(folder), 0777);
  if (error) return at_file_failed("making", folder, error);
  *out = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  return *out < 0 ? at_file_failed("making", path, errno) : AT_OK;
}

// Sums are computed block by block as it is written, while the block is in the
// cache. A file that could not be written whole stays, for the caller's folder
// to be removed.
at_status at_file_write(const char *path, at_bytes data, uint64_t *sums) {
  int fd;
  AT_TRY(open_new(path, &fd));
  at_status st = AT_OK;
  for (size_t at = 0, k = 0; at < data.len && !st.err;
       at += AT_MESSAGE_BLOCK, k++) {
    at_bytes block = {data.ptr + at,
                      AT_MIN(data.len - at, (size_t)AT_MESSAGE_BLOCK)};
    if (sums) sums[k] = at_manifest_sum(block);
    st = write_all(fd, path, block);
  }
  if (!st.err && fsync(fd)) st = at_file_failed("writing", path, errno);
  if (close(fd) && !st.err) st = at_file_failed("writing", path, errno);
  return st;
}

// A file's name is on the disk only once its folder is.
at_status at_folder_sync(const char *path) {
  // A folder is synced by a descriptor of its own.
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return at_file_failed("opening", path, errno);
  // Some file systems cannot, and have no need to.
  int error = fsync(fd) && errno != EINVAL ? errno : 0;
  close(fd);
  return error ? at_file_failed("writing", path, error) : AT_OK;
}

// ---- Reading
// Of this user, regular, and of `bytes` or (SIZE_MAX) any.
static at_status open_own(const char *path, size_t bytes, int *out,
                          size_t *out_bytes) {
  struct stat s;
  int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return at_file_failed("opening", path, errno);
  at_status st = AT_OK;
  if (fstat(fd, &s))
    st = at_file_failed("opening", path, errno);
  else if (!S_ISREG(s.st_mode))
    st = AT_FAIL(AT_INVALID_ARGUMENT, "%s is no file", path);
  else if (s.st_uid != geteuid())
    st = AT_FAIL(AT_PERMISSION_DENIED,
                 "%s belongs to user %u, and hosts of the pod run as user %u",
                 path, (unsigned)s.st_uid, (unsigned)geteuid());
  else if (bytes != SIZE_MAX && (uint64_t)s.st_size != bytes)
    st = AT_FAIL(AT_DATA_LOSS, "%s has %lld bytes instead of %zu", path,
                 (long long)s.st_size, bytes);
  if (st.err) {
    close(fd);
    return st;
  }
  *out = fd;
  *out_bytes = (size_t)s.st_size;
  return AT_OK;
}

// DATA_LOSS: the file ends before.
static at_status read_all(int fd, const char *path, uint8_t *to, size_t bytes,
                          size_t from) {
  while (bytes) {
    ssize_t n = pread(fd, to, bytes, (off_t)from);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return at_file_failed("reading", path, errno);
    if (!n) return AT_FAIL(AT_DATA_LOSS, "%s has been cut short", path);
    to += n;
    from += (size_t)n;
    bytes -= (size_t)n;
  }
  return AT_OK;
}

// The arena's limit is bound to the file's size, so that a small file cannot
// demand much memory.
at_status at_manifest_read(at_str folder, at_arena **arena, at_manifest *out) {
  char path[kPath];
  int fd;
  size_t bytes;
  snprintf(path, sizeof path, "%.*s/" AT_MANIFEST_FILE, (int)folder.len,
           folder.ptr);
  AT_TRY(open_own(path, SIZE_MAX, &fd, &bytes));
  uint8_t *text = bytes <= AT_MANIFEST_BYTES ? malloc(bytes + 1) : NULL;
  *arena = text ? at_arena_create_limited(bytes * 32 + (1 << 20)) : NULL;
  at_status st = AT_OK;
  if (bytes > AT_MANIFEST_BYTES)
    st = AT_FAIL(AT_DATA_LOSS, "%s has %zu bytes: it is no manifest", path,
                 bytes);
  else if (!*arena)
    st = AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for %s", path);
  if (!st.err) st = read_all(fd, path, text, bytes, 0);
  if (!st.err)
    st = at_status_prefix(
        at_manifest_parse((at_bytes){text, bytes}, *arena, out), "%s", path);
  close(fd);
  free(text);
  return st;
}

// A file of the checkpoint, of which blocks are checked as they are read.
typedef struct reader {
  char path[kPath];
  int fd;
  size_t bytes;
  const uint64_t *sums;
  uint8_t *block;  // the one that was read last
  size_t loaded;   // which; SIZE_MAX: none
} reader;

// Block k of the file.
static at_status check_block(const reader *r, size_t k, at_bytes block) {
  if (at_manifest_sum(block) == r->sums[k]) return AT_OK;
  return AT_FAIL(AT_DATA_LOSS, "%s is damaged between byte %zu and %zu",
                 r->path, k * AT_MESSAGE_BLOCK,
                 k * AT_MESSAGE_BLOCK + block.len);
}

// Increasing offsets read every block once.
static at_status read_range(reader *r, uint8_t *to, size_t from, size_t bytes) {
  while (bytes) {
    size_t k = from / AT_MESSAGE_BLOCK, begin = k * AT_MESSAGE_BLOCK;
    size_t whole = AT_MIN(r->bytes - begin, (size_t)AT_MESSAGE_BLOCK);
    size_t n = AT_MIN(bytes, begin + whole - from);
    if (n == whole) {  // straight to its place
      AT_TRY(read_all(r->fd, r->path, to, n, from));
      AT_TRY(check_block(r, k, (at_bytes){to, n}));
    } else {
      if (!r->block && !(r->block = malloc(AT_MESSAGE_BLOCK)))
        return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory to read %s", r->path);
      if (r->loaded != k) {
        r->loaded = SIZE_MAX;
        AT_TRY(read_all(r->fd, r->path, r->block, whole, begin));
        AT_TRY(check_block(r, k, (at_bytes){r->block, whole}));
        r->loaded = k;
      }
      memcpy(to, r->block + (from - begin), n);
    }
    to += n;
    from += n;
    bytes -= n;
  }
  return AT_OK;
}

// A box of an array: where it begins and how large it is.
typedef struct box {
  uint32_t rank;
  int64_t at[AT_MESSAGE_RANK], size[AT_MESSAGE_RANK];
} box;

// Of a tile of an array: all tiles have one size.
static box tile_box(at_dims dims, const int64_t *tiles, const int64_t *tile) {
  box b = {.rank = dims.rank};
  for (uint32_t d = 0; d < dims.rank; d++) {
    b.size[d] = dims.ptr[d] / tiles[d];
    b.at[d] = tile[d] * b.size[d];
  }
  return b;
}

// Empty boxes have a size of 0 or less; callers ask only about boxes that meet.
static box overlap(const box *a, const box *b) {
  box o = {.rank = a->rank};
  for (uint32_t d = 0; d < a->rank; d++) {
    int64_t end = AT_MIN(a->at[d] + a->size[d], b->at[d] + b->size[d]);
    o.at[d] = AT_MAX(a->at[d], b->at[d]);
    o.size[d] = end - o.at[d];
  }
  return o;
}

// The place of `at` in a dense box, in elements.
static size_t place_in(const box *b, const int64_t *at) {
  size_t place = 0;
  for (uint32_t d = 0; d < b->rank; d++)
    place = place * (size_t)b->size[d] + (size_t)(at[d] - b->at[d]);
  return place;
}

// The next row of the first `rows` dimensions of a box; false: there is none.
static bool next_row(const box *b, uint32_t rows, int64_t *at) {
  for (uint32_t d = rows; d-- > 0;) {
    if (++at[d] < b->at[d] + b->size[d]) return true;
    at[d] = b->at[d];
  }
  return false;
}

// What two boxes have in common, row by row: whole inner dimensions are one.
static at_status read_overlap(reader *r, const box *from, const box *to,
                              size_t element, uint8_t *out) {
  box common = overlap(from, to);
  uint32_t rows = common.rank;
  size_t run = element;
  while (rows) {
    bool all = common.size[rows - 1] == from->size[rows - 1] &&
               common.size[rows - 1] == to->size[rows - 1];
    run *= (size_t)common.size[--rows];
    if (!all) break;
  }
  int64_t at[AT_MESSAGE_RANK];
  memcpy(at, common.at, sizeof at);
  do {
    AT_TRY(read_range(r, out + place_in(to, at) * element,
                      place_in(from, at) * element, run));
  } while (next_row(&common, rows, at));
  return AT_OK;
}

// Opens the file of one tile and reads what it has of the box `to`, into the
// right places of out.
static at_status read_tile(at_str path, const at_manifest *m,
                           const at_manifest_array *a, const int64_t *tile,
                           const box *to, uint8_t *out) {
  reader *r = calloc(1, sizeof *r);
  at_strbuf name = {0};
  size_t bytes;
  uint64_t number = 0;
  for (uint32_t d = 0; d < a->dims.rank; d++)
    number = number * (uint64_t)a->tiles[d] + (uint64_t)tile[d];
  at_manifest_tile(a->dims.rank, tile, &name);
  at_status st = at_strbuf_status(&name);
  if (!r) st = AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory to read a file");
  if (!st.err) {
    snprintf(r->path, sizeof r->path, "%.*s/%.*s%s%.*s/%s", (int)path.len,
             path.ptr, (int)m->folder.len, m->folder.ptr,
             m->folder.len ? "/" : "", (int)a->name.len, a->name.ptr, name.ptr);
    r->sums = a->sums[number];
    r->loaded = SIZE_MAX;
    r->bytes = a->tile_bytes;
    st = open_own(r->path, a->tile_bytes, &r->fd, &bytes);
    if (!st.err) {
      const box from = tile_box(a->dims, a->tiles, tile);
      st = read_overlap(r, &from, to, at_dtype_bytes(a->dtype), out);
      close(r->fd);
    }
    free(r->block);
  }
  at_strbuf_free(&name);
  free(r);
  return st;
}

// As "f32[8,4]".
static void print_shape(at_dtype t, at_dims dims, at_strbuf *out) {
  at_strbuf_addf(out, "%s[", at_dtype_of(t)->text);
  for (uint32_t d = 0; d < dims.rank; d++)
    at_strbuf_addf(out, "%s%lld", d ? "," : "", (long long)dims.ptr[d]);
  at_strbuf_addc(out, ']');
}

// The array must be there with the dtype and dimensions that are asked for; how
// it was cut does not matter.
static at_status find_array(at_str path, const at_manifest *m,
                            const at_cut *cut, const at_manifest_array **out) {
  const at_manifest_array *a = at_manifest_find(m, cut->name);
  at_dtype type = (at_dtype)cut->m->dtype;
  if (!a)
    return AT_FAIL(AT_NOT_FOUND, "the checkpoint in %.*s has no array %.*s",
                   (int)path.len, path.ptr, (int)cut->name.len, cut->name.ptr);
  *out = a;
  if (a->dtype == type && a->dims.rank == cut->dims.rank &&
      !memcmp(a->dims.ptr, cut->dims.ptr, a->dims.rank * sizeof(int64_t)))
    return AT_OK;
  at_strbuf there = {0}, wanted = {0};
  print_shape(a->dtype, a->dims, &there);
  print_shape(type, cut->dims, &wanted);
  at_status st = AT_FAIL(AT_INVALID_ARGUMENT,
                         "array %.*s of the checkpoint in %.*s is %s, not %s",
                         (int)a->name.len, a->name.ptr, (int)path.len, path.ptr,
                         there.ptr, wanted.ptr);
  at_strbuf_free(&there);
  at_strbuf_free(&wanted);
  return st;
}

// The files that the tile overlaps form a box of tiles, which is walked in
// order.
at_status at_tile_read(at_str path, const at_manifest *m, const at_cut *cut,
                       const int64_t *tile, uint8_t *to) {
  const at_manifest_array *a;
  AT_TRY(find_array(path, m, cut, &a));
  if (!at_cut_tile_bytes(cut)) return AT_OK;
  const box mine = tile_box(cut->dims, cut->tiles, tile);
  box files = {.rank = mine.rank};  // of tiles
  for (uint32_t d = 0; d < mine.rank; d++) {
    int64_t each = a->dims.ptr[d] / a->tiles[d];
    files.at[d] = mine.at[d] / each;
    files.size[d] = (mine.at[d] + mine.size[d] - 1) / each - files.at[d] + 1;
  }
  int64_t at[AT_MESSAGE_RANK];
  memcpy(at, files.at, sizeof at);
  do {
    AT_TRY(read_tile(path, m, a, at, &mine, to));
  } while (next_row(&files, files.rank, at));
  return AT_OK;
}

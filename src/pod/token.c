#include "pod/token.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/sha256.h"

enum { kLeast = 16, kMost = 4096 };  // bytes of a file

at_status at_token_make(at_token *out) {
  return at_random(out->bytes, sizeof out->bytes);
}

void at_token_write(const at_token *t, char out[AT_TOKEN_TEXT + 1]) {
  for (int i = 0; i < AT_TOKEN_BYTES; i++)
    snprintf(out + 2 * i, 3, "%02x", t->bytes[i]);
}

static int digit(char c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                : -1;
}

// Exactly AT_TOKEN_TEXT lower-case hexadecimal digits; *out may be written in
// part on failure.
at_status at_token_parse(at_str text, at_token *out) {
  for (size_t i = 0; text.len == AT_TOKEN_TEXT; i += 2) {
    if (i == text.len) return AT_OK;
    int high = digit(text.ptr[i]), low = digit(text.ptr[i + 1]);
    if (high < 0 || low < 0) break;
    out->bytes[i / 2] = (uint8_t)(high * 16 + low);
  }
  return AT_FAIL(AT_INVALID_ARGUMENT, "not a token: %zu bytes", text.len);
}

// ---- Files
// A token that others can read is no secret.
static at_status check_file(const char *path, const char *source, int fd) {
  struct stat st;
  if (fstat(fd, &st) || !S_ISREG(st.st_mode))
    return AT_FAIL(AT_INVALID_ARGUMENT, "%s: %s is not a file", source, path);
  if (st.st_uid != geteuid() && st.st_uid)
    return AT_FAIL(AT_PERMISSION_DENIED, "%s: %s belongs to another user",
                   source, path);
  if (st.st_mode & (S_IRWXG | S_IRWXO))
    return AT_FAIL(
        AT_PERMISSION_DENIED,
        "%s: others than its owner may use %s, which holds the token "
        "of a pod\nhint: chmod 600 %s",
        source, path, path);
  return AT_OK;
}

// Any text of 16 to 4096 bytes, without the blanks at its end; its SHA-256 is
// the token.
static at_status read_token(const char *path, const char *source, int fd,
                            at_token *out) {
  char text[kMost + 1];
  size_t n = 0;
  for (ssize_t got = 1; got && n < sizeof text;) {
    got = read(fd, text + n, sizeof text - n);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return AT_FAIL(AT_NOT_FOUND, "%s: cannot read %s: %s", source, path,
                     strerror(errno));
    n += (size_t)got;
  }
  bool long_ = n > kMost;
  while (n && memchr(" \t\r\n", text[n - 1], 4)) n--;
  if (n < kLeast || long_)
    return AT_FAIL(
        AT_INVALID_ARGUMENT,
        "%s: a token has %d to %d bytes, %s has %s%zu\nhint: openssl "
        "rand -hex 32 makes a good one",
        source, kLeast, kMost, path, long_ ? "at least " : "", n);
  at_sha256 s;
  at_sha256_start(&s);
  at_sha256_add(&s, (at_bytes){(const uint8_t *)text, n});
  at_sha256_end(&s, out->bytes);
  return AT_OK;
}

// O_NONBLOCK: a pipe of that name does not hang the process.
at_status at_token_read(const char *path, const char *source, at_token *out) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return AT_FAIL(AT_NOT_FOUND, "%s: cannot open %s: %s", source, path,
                   strerror(errno));
  at_status st = check_file(path, source, fd);
  if (!st.err) st = read_token(path, source, fd, out);
  close(fd);
  return st;
}

// Under another name first, so that whoever reads it reads a whole one; of
// several who make it at once, one wins.
static at_status make_file(const char *path) {
  at_token t, name;
  char text[AT_TOKEN_TEXT + 1], mark[AT_TOKEN_TEXT + 1], folder[PATH_MAX],
      temp[PATH_MAX];
  AT_TRY(at_token_make(&t));
  AT_TRY(at_token_make(&name));
  at_token_write(&t, text);
  at_token_write(&name, mark);
  int n = snprintf(folder, sizeof folder, "%s", path);
  int m = snprintf(temp, sizeof temp, "%s.%.16s", path, mark);
  if (n < 0 || m < 0 || (size_t)m >= sizeof temp)
    return AT_FAIL(AT_INVALID_ARGUMENT, "the path %.100s is too long", path);
  char *slash = strrchr(folder, '/');
  if (slash && slash != folder) *slash = 0;
  int error = slash ? at_make_folders(folder, 0700) : 0;
  int fd =
      error ? -1 : open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (!error && fd < 0) error = errno;
  if (fd >= 0) {
    if (write(fd, text, AT_TOKEN_TEXT) != AT_TOKEN_TEXT) error = EIO;
    close(fd);
    if (!error && link(temp, path) && errno != EEXIST) error = errno;
    unlink(temp);
  }
  if (error)
    return AT_FAIL(AT_FAILED_PRECONDITION,
                   "cannot keep a token for this user's pods in %s: %s\nhint: "
                   "set ATOLL_POD_TOKEN_FILE to a file that only you may read",
                   path, strerror(error));
  return AT_OK;
}

// Made by the first process that needs it; all others read it.
at_status at_token_of_user(const char *path, at_token *out) {
  static const char kSource[] = "the token of this user's pods";
  at_status st = at_token_read(path, kSource, out);
  if (!st.err || at_status_code(st) != AT_NOT_FOUND) return st;
  at_status_free(st);
  AT_TRY(make_file(path));
  return at_token_read(path, kSource, out);
}

// The disk cache: one file per executable, named by the digest of the program
// and of everything that decides on its code.
//
// A file is a header of fixed size and the executable behind it. It is written
// under a temporary name and renamed, so that readers see all of it or nothing,
// and its checksum covers both parts, so that a file cut short by a full disk
// is not used. A writer holds a lock on its temporary file, by which others
// know one that a killed process has left; readers take no lock.
//
// Files of other users are never read, since an executable is native code that
// this process will run.
#include "compile/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "abi/executable.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/folder.h"
#include "base/log.h"
#include "compile/compile.h"

#define MAGIC 0x3045484341435441ull  // "ATCACHE0"
enum { FORMAT = 1, NAME_BYTES = 96 };
#define ENTRY ".exe"
#define TEMPORARY ".tmp"

// Before the executable, which keeps its alignment behind it.
typedef struct header {
  uint64_t magic;
  uint32_t format, header_bytes;
  at_cache_key key;  // the program's holds build, CPU and settings
  at_digest build;
  uint64_t any_places;  // 1: key.places need not agree
  uint64_t executable_bytes;
  at_digest checksum;  // of the header without it, then of the executable
  uint64_t pad[4];
} header;
_Static_assert(sizeof(header) % 64 == 0, "executables are 64-byte aligned");

// The checksum field itself counts as zero.
static at_digest checksum_of(const header *h, at_bytes executable) {
  header plain = *h;
  plain.checksum = (at_digest){{0}};
  at_digest d = at_digest_start(MAGIC);
  at_digest_add(&d, (at_bytes){(const uint8_t *)&plain, sizeof plain});
  at_digest_add(&d, executable);
  return d;
}

// Zero where the build cannot be told; entries are then found by other
// processes that cannot tell theirs, of the same key.
static at_digest own_build(void) {
  at_digest d = {{0}};
  at_status_free(at_compile_build(&d));
  return d;
}

// Cheap fields first; the checksum, which reads everything, last.
bool at_cache_entry_read(at_bytes file, const at_cache_key *k, at_bytes *out) {
  header h;
  if (file.len < sizeof h) return false;
  memcpy(&h, file.ptr, sizeof h);
  at_bytes executable = {file.ptr + sizeof h, file.len - sizeof h};
  if (h.magic != MAGIC || h.format != FORMAT || h.header_bytes != sizeof h ||
      h.executable_bytes != executable.len || h.any_places > 1 ||
      !at_digest_eq(h.key.program, k->program) ||
      !at_digest_eq(h.build, own_build()) ||
      !(h.any_places || at_digest_eq(h.key.places, k->places)) ||
      !at_digest_eq(h.checksum, checksum_of(&h, executable)))
    return false;
  *out = executable;
  return true;
}

// ---- The folder
// Each complaint is made once by a process.
typedef enum complaint {
  NO_FOLDER,
  FOREIGN_FOLDER,
  NO_WRITE,
  TOO_LARGE,
  COMPLAINTS
} complaint;
__attribute__((format(printf, 2, 3))) static void complain(complaint c,
                                                           const char *fmt,
                                                           ...) {
  static _Atomic(bool) made[COMPLAINTS];
  char text[900];
  if (atomic_exchange(&made[c], true)) return;
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  at_log(AT_LOG_WARNING, "%s", text);
}

// ATOLL_CACHE_DIR, else $XDG_CACHE_HOME/atoll, else ~/.cache/atoll.
at_status at_cache_folder(char *out, size_t size) {
  const char *dir = at_config_text(AT_CONFIG_CACHE_DIR);
  const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  int n;
  if (*dir)
    n = snprintf(out, size, "%s", dir);
  else if (xdg && *xdg)
    n = snprintf(out, size, "%s/atoll", xdg);
  else if (home && *home)
    n = snprintf(out, size, "%s/.cache/atoll", home);
  else
    return AT_FAIL(AT_NOT_FOUND,
                   "no folder for the program cache: HOME is not set\n"
                   "hint: set ATOLL_CACHE_DIR, or ATOLL_CACHE=off");
  if (n < 0 || (size_t)n >= size)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "the path of the program cache is too long");
  return AT_OK;
}

// An empty folder leaves "/name", which at least is no file of the working
// directory.
void at_cache_file(const char *name, char *out, size_t size) {
  size_t tail = strlen(name) + 2;
  at_status st = at_cache_folder(out, size - tail);
  if (st.err) *out = 0;
  at_status_free(st);
  snprintf(out + strlen(out), tail, "/%s", name);
}

// The folder, opened, made if need be: of this user, and written by nobody who
// pleases. -1: caching is off, or it cannot be had, which is said once.
static int open_folder(void) {
  char path[4000];
  struct stat st;
  // Code for a debugger depends on lines, which the key of a program does not.
  if (!at_config_flag(AT_CONFIG_CACHE) || *at_config_text(AT_CONFIG_DEBUG))
    return -1;
  at_status found = at_cache_folder(path, sizeof path);
  if (found.err) {
    complain(NO_FOLDER, "%s", at_status_message(found));
    return at_status_free(found), -1;
  }
  int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir < 0) {
    int why = at_make_folders(path, 0700);
    if (!why && (dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
      why = errno;
    if (why) {
      complain(
          NO_FOLDER,
          "programs are not cached: folder %s: %s; set ATOLL_CACHE_DIR, or "
          "ATOLL_CACHE=off",
          path, strerror(why));
      return -1;
    }
  }
  if (fstat(dir, &st) || st.st_uid != geteuid() || (st.st_mode & S_IWOTH)) {
    complain(FOREIGN_FOLDER,
             "programs are not cached: folder %s %s; set ATOLL_CACHE_DIR to "
             "one that only you may write",
             path,
             st.st_uid != geteuid() ? "belongs to another user"
                                    : "may be written by anybody");
    return close(dir), -1;
  }
  return dir;
}

// The file name of an entry, without the folder.
static void name_of(const at_cache_key *k, char out[NAME_BYTES]) {
  snprintf(out, NAME_BYTES, "%016llx%016llx" ENTRY,
           (unsigned long long)k->program.h[0],
           (unsigned long long)k->program.h[1]);
}

// ATOLL_CACHE_LIMIT; 0 there means that there is none.
static uint64_t limit_bytes(void) {
  uint64_t limit = at_config_uint(AT_CONFIG_CACHE_LIMIT);
  return limit ? limit : UINT64_MAX;
}

// ---- Reading
// The whole of a plain file of this user that nobody else may write; NULL: it
// is none. What is no plain file is not waited for.
static uint8_t *read_entry(int dir, const char *name, size_t *out_len) {
  int fd = openat(dir, name,
                  O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) return NULL;
  struct stat st;
  uint8_t *p = NULL;
  size_t n = 0, got = 0;
  if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
      !(st.st_mode & (S_IWGRP | S_IWOTH)) &&
      st.st_size > (off_t)sizeof(header) &&
      (uint64_t)st.st_size <= limit_bytes()) {
    n = (size_t)st.st_size;
    p = aligned_alloc(64, at_align_up(n, 64));
  }
  while (p && got < n) {
    ssize_t r = read(fd, p + got, n - got);
    if (r < 0 && errno == EINTR) continue;
    if (r <= 0) break;
    got += (size_t)r;
  }
  if (p && got == n) futimens(fd, NULL);  // it was used: it goes last
  close(fd);
  if (got != n) return free(p), NULL;
  *out_len = n;
  return p;
}

// The executable moves to the front of the block that was read, which is
// aligned, so that the caller can free it.
bool at_cache_get(const at_cache_key *k, at_bytes *out) {
  char name[NAME_BYTES];
  int dir = open_folder();
  if (dir < 0) return false;
  name_of(k, name);
  size_t n;
  uint8_t *p = read_entry(dir, name, &n);
  close(dir);
  at_bytes x;
  if (!p || !at_cache_entry_read((at_bytes){p, n}, k, &x))
    return free(p), false;
  memmove(p, x.ptr, x.len);  // a block of its own
  *out = (at_bytes){p, x.len};
  return true;
}

// ---- The limit
typedef struct file {
  char name[NAME_BYTES];
  uint64_t bytes;
  struct timespec when;
} file;
typedef struct listing {
  file *list;
  size_t len, cap;
  uint64_t bytes;
} listing;

static bool ends_with(const char *name, const char *end) {
  size_t n = strlen(name), m = strlen(end);
  return n >= m && !strcmp(name + n - m, end);
}

// What a writer that was killed has left: nobody holds its lock.
static bool remove_stale(int dir, const char *name) {
  int fd = openat(dir, name,
                  O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) return false;
  bool gone = !flock(fd, LOCK_EX | LOCK_NB) && !unlinkat(dir, name, 0);
  close(fd);
  return gone;
}

// The entries; also takes away temporary files of writers that are no more.
// False: out of memory, or the folder does not read.
static bool list_entries(int dir, bool tidy, listing *out) {
  *out = (listing){0};
  int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *d = fd < 0 ? NULL : fdopendir(fd);
  if (!d && fd >= 0) close(fd);
  if (!d) return false;
  bool ok = true;
  for (struct dirent *e; ok && (e = readdir(d));) {
    struct stat st;
    bool entry = ends_with(e->d_name, ENTRY);
    if (!(entry || ends_with(e->d_name, TEMPORARY)) ||
        strlen(e->d_name) >= NAME_BYTES ||
        fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) ||
        !S_ISREG(st.st_mode) ||
        (!entry && tidy && remove_stale(dir, e->d_name)))
      continue;
    if (out->len == out->cap) {
      file *more = realloc(
          out->list, (out->cap = out->cap ? out->cap * 2 : 64) * sizeof *more);
      if (!(ok = more)) break;
      out->list = more;
    }
    file *f = &out->list[out->len];
    *f = (file){.bytes = (uint64_t)st.st_blocks * 512, .when = st.st_mtim};
    f->bytes = AT_MAX(f->bytes, (uint64_t)st.st_size);
    strcpy(f->name, e->d_name);
    out->bytes += f->bytes;
    out->len += entry;  // what is being written counts, and stays
  }
  closedir(d);
  return ok;
}

// For qsort: by time of last use.
static int older_first(const void *a, const void *b) {
  const file *x = a, *y = b;
  if (x->when.tv_sec != y->when.tv_sec)
    return x->when.tv_sec < y->when.tv_sec ? -1 : 1;
  return (x->when.tv_nsec > y->when.tv_nsec) -
         (x->when.tv_nsec < y->when.tv_nsec);
}

// Forgets the least recently used until a quarter of the limit is free; the
// bytes left.
static uint64_t trim(int dir, uint64_t limit) {
  listing l;
  if (list_entries(dir, true, &l) && l.bytes > limit) {
    qsort(l.list, l.len, sizeof *l.list, older_first);
    for (size_t i = 0; i < l.len && l.bytes > limit / 4 * 3; i++)
      if (!unlinkat(dir, l.list[i].name, 0)) l.bytes -= l.list[i].bytes;
  }
  free(l.list);
  return l.bytes;
}

// To look at all entries takes longer than small compiles: a process looks at
// its first write, and again when it has written half of what was free then.
static void keep_limit(int dir, uint64_t written) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static uint64_t left,
      left_of;  // to write before the next look, under that limit
  uint64_t limit = limit_bytes();
  pthread_mutex_lock(&lock);
  if (written < left && left_of == limit) {
    left -= written;
  } else {
    uint64_t total = trim(dir, limit);
    left = total < limit ? (limit - total) / 2 : 0;
    left_of = limit;
  }
  pthread_mutex_unlock(&lock);
}

// ---- Writing
// A file of its own for this write, locked while it lasts. -1: errno says why.
static int open_temporary(int dir, const char *name, char out[NAME_BYTES]) {
  static _Atomic(uint32_t) count;
  for (int tries = 0; tries < 16; tries++) {
    uint64_t unique =
        at_clock_ns() ^ (uint64_t)getpid() << 32 ^ atomic_fetch_add(&count, 1);
    snprintf(out, NAME_BYTES, "%.32s.%llx" TEMPORARY, name,
             (unsigned long long)unique);
    int fd = openat(dir, out,
                    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0) flock(fd, LOCK_EX | LOCK_NB);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  return -1;
}

// All of b, over short writes and interruptions. False: errno says why.
static bool write_all(int fd, at_bytes b) {
  while (b.len) {
    ssize_t w = write(fd, b.ptr, b.len);
    if (w < 0 && errno == EINTR) continue;
    if (w < 0) return false;
    b.ptr += w;
    b.len -= (size_t)w;
  }
  return true;
}

// Takes the place of whatever has the name.
static bool replace(int dir, const char *from, const char *to) {
  if (!renameat(dir, from, dir, to)) return true;
  if (errno != EISDIR) return false;
  // A folder gives way: it goes if it is empty, else it gets another name.
  char aside[NAME_BYTES + 8];
  snprintf(aside, sizeof aside, "%s.aside", from);
  if (unlinkat(dir, to, AT_REMOVEDIR) && renameat(dir, to, dir, aside))
    return false;
  return !renameat(dir, from, dir, to);
}

// Past the limit of file sizes a write would end the process (SIGXFSZ).
static bool fits_process(uint64_t bytes) {
  struct rlimit r;
  if (getrlimit(RLIMIT_FSIZE, &r) || r.rlim_cur == RLIM_INFINITY ||
      bytes <= r.rlim_cur)
    return true;
  errno = EFBIG;
  return false;
}

// Temporary file, fsync, rename, fsync of the folder: after a crash the name
// holds the old entry, the new one, or none. False: errno says why, and no
// temporary file is left.
static bool write_entry(int dir, const char *name, const header *h,
                        at_bytes x) {
  char temp[NAME_BYTES];
  if (!fits_process(sizeof *h + x.len)) return false;
  int fd = open_temporary(dir, name, temp);
  if (fd < 0) return false;
  bool ok = write_all(fd, (at_bytes){(const uint8_t *)h, sizeof *h}) &&
            write_all(fd, x) && !fsync(fd) && replace(dir, temp, name);
  int why = errno;
  if (!ok) unlinkat(dir, temp, 0);
  close(fd);
  if (ok) fsync(dir);
  errno = why;
  return ok;
}

// An entry over the limit is not written at all, as the trim would take it away
// at once.
void at_cache_put(const at_cache_key *k, bool any_places, at_bytes x) {
  char name[NAME_BYTES];
  if (sizeof(header) + x.len > limit_bytes()) {
    complain(
        TOO_LARGE,
        "a program of %llu MiB is not cached: ATOLL_CACHE_LIMIT is %llu MiB",
        (unsigned long long)(x.len >> 20),
        (unsigned long long)(limit_bytes() >> 20));
    return;
  }
  int dir = open_folder();
  if (dir < 0) return;
  header h = {.magic = MAGIC,
              .format = FORMAT,
              .header_bytes = sizeof h,
              .key = *k,
              .build = own_build(),
              .any_places = any_places,
              .executable_bytes = x.len};
  h.checksum = checksum_of(&h, x);
  name_of(k, name);
  if (write_entry(dir, name, &h, x)) {
    keep_limit(dir, sizeof h + x.len);
  } else {
    complain(NO_WRITE,
             "programs are not cached: the folder (ATOLL_CACHE_DIR) cannot be "
             "written: %s",
             strerror(errno));
  }
  close(dir);
}

// ---- For people
at_status at_cache_look(at_cache_state *out) {
  *out = (at_cache_state){.limit_bytes = limit_bytes()};
  AT_TRY(at_cache_folder(out->folder, sizeof out->folder));
  int dir = open(out->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir < 0) return AT_OK;  // nothing was cached yet
  listing l;
  bool ok = list_entries(dir, false, &l);
  close(dir);
  free(l.list);
  if (!ok) return AT_FAIL(AT_NOT_FOUND, "cannot read folder %s", out->folder);
  out->entries = l.len;
  out->bytes = l.bytes;
  return AT_OK;
}

// Entries that vanish meanwhile count as removed.
at_status at_cache_clear(uint64_t *out_entries) {
  at_cache_state s;
  *out_entries = 0;
  AT_TRY(at_cache_look(&s));
  int dir = open(s.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir < 0) return AT_OK;
  listing l;
  bool ok = list_entries(dir, true, &l);
  for (size_t i = 0; ok && i < l.len; i++) {
    if (unlinkat(dir, l.list[i].name, 0) && errno != ENOENT)
      ok = false;
    else
      ++*out_entries;
  }
  free(l.list);
  close(dir);
  return ok ? AT_OK
            : AT_FAIL(AT_FAILED_PRECONDITION, "cannot clear folder %s: %s",
                      s.folder, strerror(errno));
}

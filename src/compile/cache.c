#include "compile/cache.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "abi/executable.h"
#include "base/config.h"

// Above this the oldest entries go, a quarter at a time. To look at them all
// takes longer than most compiles, so it is done once per LOOK_BYTES written, on
// average over all processes: keys are random enough to decide when.
#define LIMIT_BYTES ((uint64_t)1 << 30)
#define LOOK_BYTES (LIMIT_BYTES / 16)

static uint64_t rotate(uint64_t x, int n) { return x << n | x >> (64 - n); }

// Two independent 64-bit lanes over 8-byte words, finalised by multiplication.
void at_cache_key_add(at_cache_key *k, at_bytes b) {
  uint64_t h0 = k->hash[0] ^ b.len, h1 = k->hash[1] + b.len;
  for (size_t i = 0; i < b.len; i += 8) {
    uint64_t w = 0;
    memcpy(&w, b.ptr + i, AT_MIN((size_t)8, b.len - i));
    h0 = rotate((h0 ^ w) * 0x9e3779b97f4a7c15ull, 29);
    h1 = (rotate(h1, 31) + w) * 0xc2b2ae3d27d4eb4full;
    h1 ^= h1 >> 33;
  }
  k->hash[0] = (h0 ^ h0 >> 32) * 0xd6e8feb86659fd93ull;
  k->hash[1] = (h1 ^ h1 >> 29) * 0xbf58476d1ce4e5b9ull;
}

void at_cache_key_add_u64(at_cache_key *k, uint64_t v) {
  at_cache_key_add(k, (at_bytes){(const uint8_t *)&v, sizeof v});
}

at_cache_key at_cache_key_start(void) {
  at_cache_key k = {{AT_EXECUTABLE_VERSION, 0x41746f6c6cull}};
  // The library file that holds this code stands for the build.
  Dl_info info;
  struct stat st;
  if (dladdr((void *)(uintptr_t)at_cache_key_start, &info) && info.dli_fname &&
      stat(info.dli_fname, &st) == 0) {
    at_cache_key_add_u64(&k, (uint64_t)st.st_size);
    at_cache_key_add_u64(&k, (uint64_t)st.st_mtim.tv_sec);
    at_cache_key_add_u64(&k, (uint64_t)st.st_mtim.tv_nsec);
  }
  at_cache_key_add(&k, (at_bytes){(const uint8_t *)AT_VERSION, sizeof AT_VERSION});
  return k;
}

// The cache folder, made if need be; false: caching is off or there is no home.
static bool folder(char *out, size_t size) {
  if (!at_config_flag(AT_CONFIG_CACHE)) return false;
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
    return false;
  if (n < 0 || (size_t)n >= size) return false;
  for (char *p = out + 1; *p; p++)
    if (*p == '/') {
      *p = 0;
      if (mkdir(out, 0700) && errno != EEXIST) return false;
      *p = '/';
    }
  return !mkdir(out, 0700) || errno == EEXIST;
}

static bool path_of(const at_cache_key *k, char *out, size_t size) {
  char dir[3072];
  if (!folder(dir, sizeof dir)) return false;
  int n = snprintf(out, size, "%s/%016llx%016llx.exe", dir,
                   (unsigned long long)k->hash[0], (unsigned long long)k->hash[1]);
  return n > 0 && (size_t)n < size;
}

static bool plausible(const uint8_t *p, size_t n, const at_cache_key *k) {
  at_xheader h;
  if (n < sizeof h) return false;
  memcpy(&h, p, sizeof h);
  return h.magic == AT_EXECUTABLE_MAGIC && h.version == AT_EXECUTABLE_VERSION &&
         h.total_bytes == n && h.fingerprint[0] == k->hash[0] &&
         h.fingerprint[1] == k->hash[1];
}

bool at_cache_get(const at_cache_key *k, at_bytes *out) {
  char path[4096];
  if (!path_of(k, path, sizeof path)) return false;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat st;
  uint8_t *p = NULL;
  size_t n = 0, got = 0;
  if (fstat(fd, &st) == 0 && st.st_size > 0) {
    n = (size_t)st.st_size;
    p = aligned_alloc(64, at_align_up(n, 64));
  }
  while (p && got < n) {
    ssize_t r = read(fd, p + got, n - got);
    if (r <= 0) break;
    got += (size_t)r;
  }
  close(fd);
  if (!p || got != n || !plausible(p, n, k)) return free(p), false;
  *out = (at_bytes){p, n};
  return true;
}

typedef struct entry {
  char name[64];
  uint64_t bytes;
  struct timespec when;
} entry;

static int older_first(const void *a, const void *b) {
  const entry *x = a, *y = b;
  if (x->when.tv_sec != y->when.tv_sec) return x->when.tv_sec < y->when.tv_sec ? -1 : 1;
  return (x->when.tv_nsec > y->when.tv_nsec) - (x->when.tv_nsec < y->when.tv_nsec);
}

static void trim(const char *dir) {
  DIR *d = opendir(dir);
  if (!d) return;
  entry *list = NULL;
  size_t len = 0, cap = 0;
  uint64_t total = 0;
  for (struct dirent *e; (e = readdir(d));) {
    struct stat st;
    if (strlen(e->d_name) >= sizeof list->name || !strstr(e->d_name, ".exe") ||
        fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW))
      continue;
    if (len == cap) {
      entry *more = realloc(list, (cap = cap ? cap * 2 : 64) * sizeof *list);
      if (!more) break;
      list = more;
    }
    strcpy(list[len].name, e->d_name);
    list[len].bytes = (uint64_t)st.st_size;
    list[len++].when = st.st_mtim;
    total += (uint64_t)st.st_size;
  }
  if (total > LIMIT_BYTES) {
    qsort(list, len, sizeof *list, older_first);
    for (size_t i = 0; i < len && total > LIMIT_BYTES / 4 * 3; i++)
      if (!unlinkat(dirfd(d), list[i].name, 0)) total -= list[i].bytes;
  }
  free(list);
  closedir(d);
}

void at_cache_put(const at_cache_key *k, at_bytes x) {
  char path[4096], temp[4160], dir[3072];
  if (!path_of(k, path, sizeof path) || !folder(dir, sizeof dir)) return;
  snprintf(temp, sizeof temp, "%s.%ld.tmp", path, (long)getpid());
  int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return;
  size_t done = 0;
  while (done < x.len) {
    ssize_t w = write(fd, x.ptr + done, x.len - done);
    if (w <= 0) break;
    done += (size_t)w;
  }
  if (close(fd) || done != x.len || rename(temp, path)) {
    unlink(temp);
    return;
  }
  if (k->hash[1] % LOOK_BYTES < x.len) trim(dir);
}

// Where arrays lie that a chip has no room for: one file of the runtime, which
// has no name, so that nothing is left behind. Places are by size, as blocks.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "exec/exec_internal.h"

// Places of one size that are free.
typedef struct places {
  uint64_t *at;
  size_t count, room;
} places;

struct at_spill {
  int fd;
  pthread_mutex_t lock;  // what follows
  uint64_t end;
  places free[AT_BLOCK_CLASSES];
};

// RESOURCE_EXHAUSTED with the system's reason.
static at_status refused(const char *what, int error) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "ATOLL_SPILL_DIR: %s: %s", what,
                 strerror(error));
}

// Systems without files that have no name take one away again.
static int open_file(const char *dir) {
  int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) return fd;
  char path[4096];
  if (snprintf(path, sizeof path, "%s/atoll-spill-XXXXXX", dir) >=
      (int)sizeof path)
    return errno = ENAMETOOLONG, -1;
  fd = mkostemp(path, O_CLOEXEC);
  if (fd >= 0) (void)unlink(path);
  return fd;
}

// INVALID folders are found here, when the runtime begins.
at_status at_spill_open(const char *dir, at_spill **out) {
  at_spill *s = calloc(1, sizeof *s);
  if (!s) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for the runtime");
  s->fd = open_file(dir);
  if (s->fd < 0) {
    int error = errno;
    free(s);
    return refused("no file can be made there", error);
  }
  pthread_mutex_init(&s->lock, NULL);
  *out = s;
  return AT_OK;
}

void at_spill_close(at_spill *s) {
  if (!s) return;
  close(s->fd);
  for (uint32_t c = 0; c < AT_BLOCK_CLASSES; c++) free(s->free[c].at);
  pthread_mutex_destroy(&s->lock);
  free(s);
}

// A free place of the class, else the end of the file.
static uint64_t take_place(at_spill *s, size_t bytes) {
  size_t size;
  places *p = &s->free[at_block_class(bytes, &size)];
  pthread_mutex_lock(&s->lock);
  uint64_t at = p->count ? p->at[--p->count] : s->end;
  if (at == s->end) s->end += size;
  pthread_mutex_unlock(&s->lock);
  return at;
}

// Without memory for the list the place is not used again.
void at_spill_drop(at_spill *s, uint64_t at, size_t bytes) {
  size_t size;
  places *p = &s->free[at_block_class(bytes, &size)];
  pthread_mutex_lock(&s->lock);
  if (p->count == p->room) {
    size_t room = p->room ? 2 * p->room : 16;
    uint64_t *more = realloc(p->at, room * sizeof *more);
    if (more) {
      p->at = more;
      p->room = room;
    }
  }
  AT_ASSERT(at < s->end);
  if (p->count < p->room) p->at[p->count++] = at;
  pthread_mutex_unlock(&s->lock);
}

// All bytes, over short reads and writes.
static at_status move(at_spill *s, bool out, void *data, uint64_t at,
                      size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    uint8_t *p = (uint8_t *)data + done;
    ssize_t n = out ? pwrite(s->fd, p, bytes - done, (off_t)(at + done))
                    : pread(s->fd, p, bytes - done, (off_t)(at + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return refused(out ? "writing" : "reading", errno);
    if (!n) return refused(out ? "writing" : "reading", ENOSPC);
    done += (size_t)n;
  }
  return AT_OK;
}

// On failure the place is free again.
at_status at_spill_write(at_spill *s, const void *data, size_t bytes,
                         uint64_t *out_at) {
  uint64_t at = take_place(s, bytes);
  at_status st = move(s, true, (void *)data, at, bytes);
  if (st.err)
    at_spill_drop(s, at, bytes);
  else
    *out_at = at;
  return st;
}

at_status at_spill_read(at_spill *s, uint64_t at, void *data, size_t bytes) {
  return move(s, false, data, at, bytes);
}

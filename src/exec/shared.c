// Blocks in the memory that other processes of this machine map: classes as in
// blocks.c. There is address space for all that is ever asked for, and what is
// cached beyond a limit gives its pages back.
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "exec/exec_internal.h"

enum { kPage = 4096, kLarge = 2 << 20, kLink = 4096 };

typedef struct spare {
  struct spare *next;
  bool trimmed;  // all but its first page is with the system; not cached
} spare;

// Memory that was shared with a group that is no more: its blocks stay until
// they are given back, and are not taken again.
typedef struct former {
  struct former *next;
  const uint8_t *own;
  uint64_t bytes;
} former;

struct at_shared {
  const at_hosts_share *face;
  former *formers;
  pthread_mutex_t lock;  // what follows
  uint64_t at;           // nothing lies behind it
  uint64_t cached, cache_limit;
  spare *free[AT_BLOCK_CLASSES];
  size_t sizes[AT_BLOCK_CLASSES];
};

// An eighth of the machine's memory may be cached.
at_shared *at_shared_create(const at_hosts_share *face) {
  at_shared *s = calloc(1, sizeof *s);
  if (!s) return NULL;
  long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  s->face = face;
  s->at = at_align_up(face->first, kPage);
  s->cache_limit = (uint64_t)pages * (uint64_t)page / 8;
  pthread_mutex_init(&s->lock, NULL);
  return s;
}

// Blocks are not looked at: the mapping is the transport's.
void at_shared_destroy(at_shared *s) {
  if (!s) return;
  for (former *f; (f = s->formers);) {
    s->formers = f->next;
    free(f);
  }
  pthread_mutex_destroy(&s->lock);
  free(s);
}

// Of memory that is shared now; former memory has none.
uint64_t at_shared_offset(const at_shared *s, const void *p, uint64_t bytes) {
  uint64_t at = (uint64_t)((const uint8_t *)p - s->face->own);
  bool lies = at >= s->face->first && at <= s->face->bytes &&
              bytes <= s->face->bytes - at;
  return lies ? at : UINT64_MAX;
}

// For offsets that this process made itself.
void *at_shared_at(const at_shared *s, uint64_t offset) {
  AT_ASSERT(offset >= s->face->first && offset < s->face->bytes);
  return s->face->own + offset;
}

// Of a group that is no more?
static bool is_former(const at_shared *s, const void *p) {
  for (const former *f = s->formers; f; f = f->next)
    if ((uint64_t)((const uint8_t *)p - f->own) < f->bytes) return true;
  return false;
}

bool at_shared_has(const at_shared *s, const void *p) {
  return at_shared_offset(s, p, 0) != UINT64_MAX || is_former(s, p);
}

// Spare blocks of the old memory give their pages back; blocks in use stay
// until they come back.
at_status at_shared_renew(at_shared *s, const at_hosts_share *face) {
  former *f = malloc(sizeof *f);
  if (!f) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for the runtime");
  pthread_mutex_lock(&s->lock);
  *f = (former){s->formers, s->face->own, s->face->bytes};
  s->formers = f;
  for (uint32_t c = 0; c < AT_BLOCK_CLASSES; c++) {
    for (spare *p = s->free[c], *next; p; p = next) {
      next = p->next;
      (void)madvise(p, s->sizes[c], MADV_REMOVE);
    }
    s->free[c] = NULL;
  }
  s->face = face;
  s->at = at_align_up(face->first, kPage);
  s->cached = 0;
  pthread_mutex_unlock(&s->lock);
  return AT_OK;
}

// Fresh memory; large blocks begin at huge pages. NULL: the map is full.
static uint8_t *carve(at_shared *s, size_t size) {
  uint64_t at = at_align_up(s->at, size < kLarge ? kPage : kLarge);
  if (at > s->face->bytes || size > s->face->bytes - at) return NULL;
  s->at = at + size;
  return s->face->own + at;
}

// A spare block of the class, else fresh memory.
void *at_shared_take(at_shared *s, size_t bytes) {
  size_t size;
  uint32_t c = at_block_class(bytes, &size);
  pthread_mutex_lock(&s->lock);
  s->sizes[c] = size = at_align_up(size, kPage);
  spare *p = s->free[c];
  if (p) {
    s->free[c] = p->next;
    AT_ASSERT(p->trimmed || size <= s->cached);
    if (!p->trimmed) s->cached -= size;
  } else {
    p = (spare *)carve(s, size);
  }
  pthread_mutex_unlock(&s->lock);
  return p;
}

// The link stays in the first page, which is kept.
static void trim(at_shared *s, uint64_t keep) {
  for (uint32_t c = AT_BLOCK_CLASSES; c-- > 0 && s->cached > keep;)
    for (spare *p = s->free[c]; p && s->cached > keep; p = p->next) {
      if (p->trimmed || s->sizes[c] <= kLink) continue;
      if (madvise((uint8_t *)p + kLink, s->sizes[c] - kLink, MADV_REMOVE))
        return;
      p->trimmed = true;
      s->cached -= s->sizes[c];
    }
}

// Over the limit, half of what is cached goes.
void at_shared_give(at_shared *s, void *p, size_t bytes) {
  size_t size;
  uint32_t c = at_block_class(bytes, &size);
  spare *f = p;
  pthread_mutex_lock(&s->lock);
  if (AT_UNLIKELY(s->formers != NULL) && is_former(s, p)) {
    (void)madvise(p, at_align_up(size, kPage), MADV_REMOVE);
    pthread_mutex_unlock(&s->lock);
    return;
  }
  *f = (spare){.next = s->free[c]};
  s->free[c] = f;
  s->cached += s->sizes[c];
  if (s->cached > s->cache_limit) trim(s, s->cached / 2);
  pthread_mutex_unlock(&s->lock);
}

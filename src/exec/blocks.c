// Pooled host memory. Requests are rounded to classes eight to a doubling, so a
// block that comes back fits the next launch of the same program exactly, with
// its pages still mapped: steady state makes no page fault. Pages are huge, and
// smaller blocks share them; only the first of a chip have small pages, since
// most chips of a large pod hold little in a test.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/config.h"
#include "base/log.h"
#include "exec/exec_internal.h"

enum {
  kHugePage = 2 << 20,
  kFirstSlab =
      64 << 10,  // the next ones have 8 times as much, up to a huge page
  kOwnMapping = kHugePage,  // from here on a block is a mapping of its own
  kTrimmed = 256 << 10,     // from here on trimmed
  kGuardBytes = 4096,
  kAskFirst =
      256 << 20,  // fresh mappings from here on look at free memory first
  kFileFirst = 64 << 20  // from here on blocks may be files
};

typedef struct spare {
  struct spare *next;
  bool trimmed;  // all but its first page are with the system; not cached
} spare;

// What blocks of like sizes are cut from, so that little is lost at its end.
typedef struct slab {
  uint8_t *at, *end;
} slab;
typedef struct mapping {
  void *p;
  size_t bytes;
} mapping;

struct at_blocks {
  spare *free[AT_BLOCK_CLASSES];
  slab small, large;  // under kTrimmed, from there on
  mapping *slabs;
  size_t num_slabs, cap_slabs;
  size_t cached, cache_limit;
  bool guarded;  // ATOLL_GUARD: every block is a mapping between two guards
  char *spill;   // ATOLL_SPILL_DIR; NULL: nothing goes to files
  at_shared *shared;  // borrowed; has the blocks of classes in `shares`
  uint64_t shares[AT_BLOCK_CLASSES / 64 + 1];
};

// Of every chip: they share the host's memory.
static _Atomic size_t g_cached;
static _Atomic size_t g_mapped;  // as mappings of their own

// `size` bytes are no longer kept: by this chip and by all.
static void uncache(at_blocks *b, size_t size) {
  AT_ASSERT(size <= b->cached);
  b->cached -= size;
  atomic_fetch_sub_explicit(&g_cached, size, memory_order_relaxed);
}

// Up to 1 KiB by 64 bytes; from there eight classes to a doubling.
uint32_t at_block_class(size_t bytes, size_t *out_size) {
  if (bytes <= 1024) {
    uint32_t c = bytes ? (uint32_t)((bytes + 63) / 64 - 1) : 0;
    *out_size = (size_t)(c + 1) * 64;
    AT_ASSERT(bytes <= *out_size);
    return c;
  }
  uint32_t lg = 63 - (uint32_t)__builtin_clzll(bytes - 1);
  uint32_t sub = (uint32_t)((bytes - 1) >> (lg - 3)) & 7;
  *out_size = (size_t)(8 + sub + 1) << (lg - 3);
  // At most an eighth is lost.
  AT_ASSERT(bytes <= *out_size && *out_size - bytes <= *out_size / 8);
  return 16 + (lg - 10) * 8 + sub;
}

// Of a size that is a class's own.
static uint32_t class_of(size_t size) {
  size_t same;
  uint32_t c = at_block_class(size, &same);
  AT_ASSERT(same == size);  // it is a class's own
  return c;
}

// The class's size, whatever was asked.
size_t at_blocks_capacity(size_t bytes) {
  size_t size;
  at_block_class(bytes, &size);
  return size;
}

// What the machine has, or the cgroup grants.
static size_t host_memory_bytes(void) {
  long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  size_t n =
      pages > 0 && page > 0 ? (size_t)pages * (size_t)page : (size_t)4 << 30;
  FILE *f = fopen("/sys/fs/cgroup/memory.max", "re");
  unsigned long long limit;
  if (f && fscanf(f, "%llu", &limit) == 1) n = AT_MIN(n, (size_t)limit);
  if (f) fclose(f);
  return n;
}

// A quarter of the host's memory may be kept by all chips together.
at_blocks *at_blocks_create(void) {
  at_blocks *b = calloc(1, sizeof *b);
  if (!b) return NULL;
  b->cache_limit = host_memory_bytes() / 4;
  b->guarded = at_config_flag(AT_CONFIG_GUARD);
  const char *spill = at_config_text(AT_CONFIG_SPILL_DIR);
  if (*spill) b->spill = strdup(spill);
  return b;
}

static size_t mapping_bytes(size_t size) { return at_align_up(size, 4096); }

// Anonymous pages, without a reserve. Blocks of a huge page and more begin at
// one; the ends that alignment leaves over are unmapped.
static void *map_fresh(size_t size) {
  size_t bytes = mapping_bytes(size);
  size_t slack = bytes >= kHugePage ? kHugePage : 0;
  uint8_t *p = mmap(NULL, bytes + slack, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return NULL;
  if (!slack) return p;
  uint8_t *at = (uint8_t *)at_align_up((size_t)p, kHugePage);
  if (at > p) munmap(p, (size_t)(at - p));
  uint8_t *end = p + bytes + slack;
  if (end > at + bytes) munmap(at + bytes, (size_t)(end - (at + bytes)));
  madvise(at, bytes, MADV_HUGEPAGE);  // advice: failure changes nothing
  return at;
}

// ---- Files (ATOLL_SPILL_DIR)
static bool in_file(const at_blocks *b, size_t size) {
  return b->spill && size >= kFileFirst;
}

// The disk's blocks are taken at once: a full disk is no memory, not a fault.
static void *map_file(const at_blocks *b, size_t size) {
  size_t bytes = mapping_bytes(size);
  int fd = open(b->spill, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0) {
    at_log(AT_LOG_WARNING, "ATOLL_SPILL_DIR: no file in %s: %s", b->spill,
           strerror(errno));
    return NULL;
  }
  void *p = MAP_FAILED;
  if (posix_fallocate(fd, 0, (off_t)bytes) == 0)
    p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return p == MAP_FAILED ? NULL : p;
}

// Mappings that take the host's memory.
static void count_mapped(const at_blocks *b, size_t size, bool more) {
  if (in_file(b, size)) return;
  size_t n = mapping_bytes(size);
  atomic_fetch_add_explicit(&g_mapped, more ? n : -n, memory_order_relaxed);
}

// A block of a slab keeps its place there and its link.
static void trim_pages(at_blocks *b, spare *s, size_t size, size_t keep) {
  for (; s && b->cached > keep; s = s->next) {
    if (s->trimmed) continue;
    madvise((uint8_t *)s + 4096, size - 4096, MADV_DONTNEED);
    s->trimmed = true;
    uncache(b, size);
  }
}

// Gives cached memory back to the system, the largest first, until at most
// `keep` bytes are cached. Small blocks stay.
static void trim(at_blocks *b, size_t keep) {
  for (uint32_t c = AT_BLOCK_CLASSES; c-- > 0 && b->cached > keep;) {
    size_t size = c < 16 ? (c + 1) * 64u
                         : (size_t)(8 + (c - 16) % 8 + 1) << ((c - 16) / 8 + 7);
    AT_ASSERT(class_of(size) == c);
    if (size < kTrimmed) return;
    if (size < kOwnMapping) {
      trim_pages(b, b->free[c], size, keep);
      continue;
    }
    while (b->free[c] && b->cached > keep) {
      spare *s = b->free[c];
      b->free[c] = s->next;
      uncache(b, size);
      munmap(s, mapping_bytes(size));
      count_mapped(b, size, false);
    }
  }
}

// Slabs go as a whole, whatever was carved out of them.
void at_blocks_destroy(at_blocks *b) {
  if (!b) return;
  trim(b, 0);
  // Trimmed, or too small for that.
  for (uint32_t c = 0; c < AT_BLOCK_CLASSES; c++)
    AT_ASSERT(!b->free[c] || b->free[c]->trimmed || c < class_of(kTrimmed));
  uncache(b, b->cached);
  for (size_t i = 0; i < b->num_slabs; i++) {
    munmap(b->slabs[i].p, b->slabs[i].bytes);
    count_mapped(b, b->slabs[i].bytes, false);
  }
  free(b->slabs);
  free(b->spill);
  free(b);
}

size_t at_blocks_cached_bytes(const at_blocks *b) { return b->cached; }

// Anonymous memory, once more when what is cached has been given back.
static void *map_memory(at_blocks *b, size_t size) {
  void *p = map_fresh(size);
  if (!p) {
    trim(b, 0);
    p = map_fresh(size);
  }
  if (p) count_mapped(b, size, true);
  return p;
}

// A new slab in place of what is left of the old one, which is lost until the
// end.
static bool map_slab(at_blocks *b, slab *s, size_t bytes) {
  if (b->num_slabs == b->cap_slabs) {
    size_t cap = b->cap_slabs ? b->cap_slabs * 2 : 8;
    mapping *grown = realloc(b->slabs, cap * sizeof *grown);
    if (!grown) return false;
    b->slabs = grown;
    b->cap_slabs = cap;
  }
  uint8_t *p = map_memory(b, bytes);
  if (!p) return false;
  b->slabs[b->num_slabs++] = (mapping){p, bytes};
  *s = (slab){p, p + bytes};
  return true;
}

static size_t left(const slab *s) { return (size_t)(s->end - s->at); }

// Of the next slab.
static size_t slab_bytes(const at_blocks *b, const slab *s, size_t size) {
  if (s == &b->large) return 8 * (size_t)kHugePage;
  size_t bytes = kFirstSlab;
  for (size_t i = 0; i < b->num_slabs && bytes < kHugePage; i++) bytes *= 8;
  return size + 4096 < bytes ? AT_MIN(bytes, (size_t)kHugePage) : kHugePage;
}

// Large blocks fill small slabs up: a chip of little memory has one page.
static void *carve(at_blocks *b, size_t size) {
  bool large = size >= kTrimmed;
  slab *s = large && left(&b->small) < size + 4096 ? &b->large : &b->small;
  if (left(s) < size && !map_slab(b, s, slab_bytes(b, s, size))) return NULL;
  uint8_t *p = large ? (uint8_t *)at_align_up((size_t)s->at, 4096) : s->at;
  s->at = p + size;
  AT_ASSERT(s->at <= s->end);
  return p;
}

// MemAvailable; SIZE_MAX where the system does not say.
static size_t available_bytes(void) {
  FILE *f = fopen("/proc/meminfo", "re");
  if (!f) return SIZE_MAX;
  char line[128];
  unsigned long long kib = 0;
  size_t found = SIZE_MAX;
  while (found == SIZE_MAX && fgets(line, sizeof line, f))
    if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
      found = (size_t)kib << 10;
  fclose(f);
  return found;
}

// Of what was mapped, what the system has not been asked for yet: pages come
// with the first write to them.
static size_t promised_bytes(void) {
  FILE *f = fopen("/proc/self/statm", "re");
  unsigned long long all, resident = 0;
  if (!f || fscanf(f, "%llu %llu", &all, &resident) != 2) resident = 0;
  if (f) fclose(f);
  size_t here = (size_t)resident * (size_t)sysconf(_SC_PAGESIZE);
  size_t mapped = atomic_load_explicit(&g_mapped, memory_order_relaxed);
  return mapped - AT_MIN(mapped, here);
}

// Pages that were promised but not touched yet count as used.
static bool host_has(size_t bytes) {
  return at_add(bytes, promised_bytes()) <= available_bytes();
}

// ---- Guarded blocks (ATOLL_GUARD)
// [no access][unused, block][no access]; the block ends within 64 bytes of its
// end guard. A block that is given back is unmapped at once.
static void *take_guarded(size_t bytes) {
  size_t size = at_align_up(AT_MAX(bytes, 1), 64);
  size_t pages = mapping_bytes(size), all = pages + 2 * kGuardBytes;
  uint8_t *p = mmap(NULL, all, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return NULL;
  if (mprotect(p + kGuardBytes, pages, PROT_READ | PROT_WRITE) == 0)
    return p + kGuardBytes + pages - size;
  munmap(p, all);
  return NULL;
}

// The mapping's ends follow from p and the size.
static void give_guarded(void *p, size_t bytes) {
  size_t size = at_align_up(AT_MAX(bytes, 1), 64);
  size_t pages = mapping_bytes(size);
  munmap((uint8_t *)p + size - pages - kGuardBytes, pages + 2 * kGuardBytes);
}

// From a file where blocks may be files. Large anonymous ones are refused
// before the system would have to kill for them.
static void *map_block(at_blocks *b, size_t size) {
  if (in_file(b, size)) {
    void *p = map_file(b, size);
    if (!p) trim(b, 0);
    return p ? p : map_file(b, size);
  }
  if (size >= kAskFirst && !host_has(size)) {
    trim(b, 0);
    if (!host_has(size)) return NULL;
  }
  return map_memory(b, size);
}

// ---- Shared blocks
void at_blocks_share(at_blocks *b, at_shared *s, size_t bytes) {
  size_t size;
  uint32_t c = at_block_class(bytes, &size);
  if (b->guarded || in_file(b, size)) return;
  b->shared = s;
  b->shares[c / 64] |= 1ull << c % 64;
}

// Do blocks of class c come from shared memory?
static bool is_shared(const at_blocks *b, uint32_t c) {
  return b->shares[c / 64] >> c % 64 & 1;
}

// The spare block of that class if there is one, else fresh memory: small ones
// are carved out of slabs, large ones mapped. NULL: more than 2^46 bytes, or
// the machine has no more.
void *at_blocks_take(at_blocks *b, size_t bytes) {
  if (bytes > (size_t)1 << 46) return NULL;
  if (b->guarded) return take_guarded(bytes);
  size_t size;
  uint32_t c = at_block_class(bytes, &size);
  if (AT_UNLIKELY(is_shared(b, c))) {
    void *p = at_shared_take(b->shared, bytes);
    if (p) return p;
  }
  spare *s = b->free[c];
  if (s) {
    b->free[c] = s->next;
    if (!s->trimmed) uncache(b, size);
    return s;
  }
  return size < kOwnMapping ? carve(b, size) : map_block(b, size);
}

// Keeps the block as a spare of its class; beyond the limit half of what is
// kept goes back to the system.
void at_blocks_give(at_blocks *b, void *p, size_t bytes) {
  AT_ASSERT(p);
  if (b->guarded) {
    give_guarded(p, bytes);
    return;
  }
  if (AT_UNLIKELY(b->shared != NULL) && at_shared_has(b->shared, p)) {
    at_shared_give(b->shared, p, bytes);
    return;
  }
  size_t size;
  uint32_t c = at_block_class(bytes, &size);
  spare *s = p;
  s->trimmed = false;
  s->next = b->free[c];
  b->free[c] = s;
  b->cached += size;
  size_t all = atomic_fetch_add_explicit(&g_cached, size, memory_order_relaxed);
  if (all > b->cache_limit) trim(b, b->cached / 2);
}

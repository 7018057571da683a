// Environment, for programs that are preloaded: FAULTS_FIRST and FAULTS_COUNT
// arm the heap's calls at the start of the process; FAULTS_TALLY=1 prints their
// number at its end.
#include "faults.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

static _Atomic bool g_armed, g_hit, g_trace;
static _Atomic uint64_t g_calls[FAULTS_KINDS];
static faults_kind g_kind;
static uint64_t g_first, g_count;
static _Atomic int64_t g_live;

// Where the failed call came from, for whoever mends what it broke.
static void tell(faults_kind kind) {
  void *at[24];
  atomic_store(&g_armed, false);
  int n = backtrace(at, 24);
  dprintf(2, "faults: a call of kind %d fails here:\n", kind);
  backtrace_symbols_fd(at, n, 2);
  atomic_store(&g_armed, true);
}

static bool fails(faults_kind kind) {
  if (!atomic_load_explicit(&g_armed, memory_order_relaxed)) return false;
  uint64_t n = atomic_fetch_add(&g_calls[kind], 1);
  bool f = kind == g_kind && n >= g_first && n - g_first < g_count;
  if (!f) return false;
  if (!atomic_exchange(&g_hit, true) && atomic_load(&g_trace)) tell(kind);
  return true;
}

void faults_arm(faults_kind kind, uint64_t first, uint64_t count) {
  for (int k = 0; k < FAULTS_KINDS; k++) atomic_store(&g_calls[k], 0);
  atomic_store(&g_hit, false);
  atomic_store(&g_trace, getenv("FAULTS_TRACE") != NULL);
  g_kind = kind;
  g_first = first;
  g_count = count;
  atomic_store(&g_armed, true);
}

void faults_disarm(uint64_t calls[FAULTS_KINDS]) {
  atomic_store(&g_armed, false);
  for (int k = 0; k < FAULTS_KINDS; k++) calls[k] = atomic_load(&g_calls[k]);
}

bool faults_hit(void) { return atomic_load(&g_hit); }
int64_t faults_live(void) { return atomic_load(&g_live); }

__attribute__((constructor)) static void from_environment(void) {
  const char *first = getenv("FAULTS_FIRST"), *count = getenv("FAULTS_COUNT");
  if (first && count)
    faults_arm(FAULTS_HEAP, strtoull(first, NULL, 10),
               strtoull(count, NULL, 10));
}

__attribute__((destructor)) static void tally(void) {
  if (getenv("FAULTS_TALLY"))
    dprintf(2, "faults: %llu calls\n",
            (unsigned long long)atomic_load(&g_calls[FAULTS_HEAP]));
}

static void *took(void *p) {
  if (p)
    atomic_fetch_add_explicit(&g_live, (int64_t)malloc_usable_size(p),
                              memory_order_relaxed);
  else
    errno = ENOMEM;
  return p;
}
static void gave(void *p) {
  if (p)
    atomic_fetch_sub_explicit(&g_live, (int64_t)malloc_usable_size(p),
                              memory_order_relaxed);
}

#define OURS __attribute__((visibility("default")))
OURS void *malloc(size_t n) {
  return took(fails(FAULTS_HEAP) ? NULL : __libc_malloc(n));
}
OURS void *calloc(size_t n, size_t size) {
  return took(fails(FAULTS_HEAP) ? NULL : __libc_calloc(n, size));
}
OURS void *memalign(size_t align, size_t n) {
  return took(fails(FAULTS_HEAP) ? NULL : __libc_memalign(align, n));
}
OURS void *aligned_alloc(size_t align, size_t n) { return memalign(align, n); }
OURS int posix_memalign(void **out, size_t align, size_t n) {
  void *p = memalign(align, n);
  if (p) *out = p;
  return p ? 0 : ENOMEM;
}
OURS void *realloc(void *p, size_t n) {
  if (fails(FAULTS_HEAP)) return errno = ENOMEM, NULL;
  gave(p);
  void *q = took(__libc_realloc(p, n));
  if (!q && n) took(p);
  return q;
}
OURS void free(void *p) {
  gave(p);
  __libc_free(p);
}
OURS void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset) {
  if (fails(FAULTS_MAP)) return errno = ENOMEM, MAP_FAILED;
  return (void *)syscall(SYS_mmap, at, n, prot, flags, fd, offset);
}
OURS int mprotect(void *at, size_t n, int prot) {
  if (fails(FAULTS_MAP)) return errno = ENOMEM, -1;
  return (int)syscall(SYS_mprotect, at, n, prot);
}
OURS int pthread_create(pthread_t *t, const pthread_attr_t *a,
                        void *(*fn)(void *), void *arg) {
  static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *),
                     void *);
  if (!real) {
    void *p = dlsym(RTLD_NEXT, "pthread_create");
    memcpy(&real, &p, sizeof p);
  }
  return fails(FAULTS_THREAD) ? EAGAIN : real(t, a, fn, arg);
}
OURS FILE *fopen(const char *path, const char *mode) {
  static FILE *(*real)(const char *, const char *);
  if (!real) {
    void *p = dlsym(RTLD_NEXT, "fopen");
    memcpy(&real, &p, sizeof p);
  }
  if (fails(FAULTS_FILE)) return errno = EMFILE, NULL;
  return real(path, mode);
}

// Failures on demand: calls that take memory, threads or files from the system,
// of the whole process, fail when their turn comes. Linked into a program (or
// preloaded) this takes the place of libc's functions.
#ifndef ATOLL_TEST_FAULTS_H_
#define ATOLL_TEST_FAULTS_H_

#include <stdbool.h>
#include <stdint.h>

typedef enum faults_kind {
  FAULTS_HEAP,    // malloc, calloc, realloc, aligned_alloc, posix_memalign,
                  // memalign
  FAULTS_MAP,     // mmap, mprotect
  FAULTS_THREAD,  // pthread_create: EAGAIN
  FAULTS_FILE,    // fopen: EMFILE
  FAULTS_KINDS
} faults_kind;

// Counts calls from now on; number `first` of `kind` (from 0) and the `count` -
// 1 that follow it fail.
void faults_arm(faults_kind kind, uint64_t first, uint64_t count);
// Ends it. How many calls of each kind there were.
void faults_disarm(uint64_t calls[FAULTS_KINDS]);
bool faults_hit(void);      // has one failed since arming?
int64_t faults_live(void);  // bytes on the heap now

#endif

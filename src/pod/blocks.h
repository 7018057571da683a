// Blocks for messages with much data, kept for the next ones: the memory of a
// new block has to be found and cleared by the system, page by page, which
// takes longer than to fill it.
//
// Memory: blocks are of at_hosts_block; whoever has one may free() it.
// Threads: any.
#ifndef ATOLL_POD_BLOCKS_H_
#define ATOLL_POD_BLOCKS_H_

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

enum {
  AT_POD_BLOCKS = 16,               // that are kept, at most,
  AT_POD_BLOCKS_BYTES = 128 << 20,  // with so many bytes in all
  AT_POD_BLOCKS_FROM = 512 << 10    // smaller ones are not kept
};

typedef struct at_pod_blocks {
  pthread_mutex_t lock;
  void *all[AT_POD_BLOCKS];  // the one given back first is the first
  uint32_t count;
  size_t bytes;
} at_pod_blocks;

void at_pod_blocks_init(at_pod_blocks *b);  // none
// At least so many bytes. NULL: no memory.
void *at_pod_block_take(at_pod_blocks *b, size_t bytes);
// p: NULL is allowed. Those kept longest go where there are too many.
void at_pod_block_give(at_pod_blocks *b, void *p);
void at_pod_blocks_free(at_pod_blocks *b);  // all that are kept

#endif

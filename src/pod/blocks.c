#include "pod/blocks.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"

void at_pod_blocks_init(at_pod_blocks *b) {
  *b = (at_pod_blocks){0};
  pthread_mutex_init(&b->lock, NULL);
}

// Under the lock.
static void *remove_block(at_pod_blocks *b, uint32_t i) {
  AT_ASSERT(i < b->count);
  void *p = b->all[i];
  AT_ASSERT(malloc_usable_size(p) <= b->bytes);
  b->bytes -= malloc_usable_size(p);
  b->count--;
  memmove(&b->all[i], &b->all[i + 1], (b->count - i) * sizeof *b->all);
  return p;
}

// The smallest that holds so many bytes, and not more than twice as many.
static void *find_block(at_pod_blocks *b, size_t bytes) {
  uint32_t best = UINT32_MAX;
  size_t least = 2 * bytes + 1;
  for (uint32_t i = 0; i < b->count; i++) {
    const size_t have = malloc_usable_size(b->all[i]);
    if (have >= bytes && have < least) best = i, least = have;
  }
  return best == UINT32_MAX ? NULL : remove_block(b, best);
}

// Only blocks of AT_POD_BLOCKS_FROM to AT_POD_BLOCKS_BYTES are kept.
void *at_pod_block_take(at_pod_blocks *b, size_t bytes) {
  if (bytes < AT_POD_BLOCKS_FROM || bytes > AT_POD_BLOCKS_BYTES)
    return at_hosts_block(bytes);
  pthread_mutex_lock(&b->lock);
  void *p = find_block(b, bytes);
  pthread_mutex_unlock(&b->lock);
  return p ? p : at_hosts_block(bytes);
}

// Makes room by dropping the oldest ones, which are freed without the lock.
void at_pod_block_give(at_pod_blocks *b, void *p) {
  const size_t bytes = p ? malloc_usable_size(p) : 0;
  void *gone[AT_POD_BLOCKS + 1];
  uint32_t n = 0;
  if (bytes < AT_POD_BLOCKS_FROM || bytes > AT_POD_BLOCKS_BYTES) {
    free(p);
    return;
  }
  pthread_mutex_lock(&b->lock);
  while (b->count == AT_POD_BLOCKS || b->bytes > AT_POD_BLOCKS_BYTES - bytes)
    gone[n++] = remove_block(b, 0);
  b->all[b->count++] = p;
  b->bytes += bytes;
  AT_ASSERT(b->count <= AT_POD_BLOCKS && b->bytes <= AT_POD_BLOCKS_BYTES);
  pthread_mutex_unlock(&b->lock);
  while (n) free(gone[--n]);
}

void at_pod_blocks_free(at_pod_blocks *b) {
  while (b->count) free(remove_block(b, 0));
  pthread_mutex_destroy(&b->lock);
}

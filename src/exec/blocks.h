// Memory of a chip's buffers: blocks of this process, blocks that other
// processes of this machine read, and a file for what does not fit.
#ifndef ATOLL_EXEC_BLOCKS_H_
#define ATOLL_EXEC_BLOCKS_H_

#include "exec/exec.h"

// ---- blocks.c
// Not thread-safe: the lock of the chip that has them covers it. Blocks are
// 64-byte aligned, keep their pages when given back, and are never zeroed:
// whoever takes one writes it before it reads it.
typedef struct at_blocks at_blocks;
typedef struct at_shared at_shared;
// An empty pool; reads ATOLL_GUARD and ATOLL_SPILL_DIR. NULL: no host memory.
at_blocks *at_blocks_create(void);
// Unmaps everything; NULL is allowed. Blocks that are still out lie in memory
// that is gone, or are leaked where they were mappings of their own.
void at_blocks_destroy(at_blocks *b);
// A block of at least `bytes`, which may be 0. NULL: the host has no memory,
// also after what is cached was given back to the system.
void *at_blocks_take(at_blocks *b, size_t bytes);
// From now on blocks of such a size come from memory that other processes read.
void at_blocks_share(at_blocks *b, at_shared *s, size_t bytes);
// bytes: as taken, since the class of the block follows from it. The block is
// cached, or unmapped where the cache is full.
void at_blocks_give(at_blocks *b, void *p, size_t bytes);
// Bytes of free blocks that keep their pages.
size_t at_blocks_cached_bytes(const at_blocks *b);
// Size of the block that a request for `bytes` gets.
size_t at_blocks_capacity(size_t bytes);
// Classes of 64 bytes each up to 1 KiB, then eight to a doubling.
enum { AT_BLOCK_CLASSES = 16 + 38 * 8 };
// The class of a request, below AT_BLOCK_CLASSES, and the size of its blocks.
uint32_t at_block_class(size_t bytes, size_t *out_size);

// ---- shared.c: blocks that other processes of this machine read
// Thread-safe. Blocks are 4096-byte aligned and keep their pages when given
// back.
// Deals out [h->first, h->bytes) of h->own; h is borrowed. NULL: no memory for
// the bookkeeping.
at_shared *at_shared_create(const at_hosts_share *h);
// NULL is allowed. The memory itself is the transport's and stays mapped.
void at_shared_destroy(at_shared *s);
// NULL: there is no more; the caller takes private memory instead.
void *at_shared_take(at_shared *s, size_t bytes);
// bytes: as taken. Also of blocks from before at_shared_renew.
void at_shared_give(at_shared *s, void *p, size_t bytes);
// The memory that others read from now on; nobody reads a block of before,
// which stays valid for this process until it is given back.
// RESOURCE_EXHAUSTED: no memory for the bookkeeping; the old one then stays in
// use.
at_status at_shared_renew(at_shared *s, const at_hosts_share *h);
// Is p one of its blocks, of now or of before?
bool at_shared_has(const at_shared *s, const void *p);
// Where bytes lie in the memory that others read; UINT64_MAX: they do not.
uint64_t at_shared_offset(const at_shared *s, const void *p, uint64_t bytes);
void *at_shared_at(const at_shared *s, uint64_t offset);  // its inverse

// ---- spill.c: a file for what does not fit
// One file without a name, so nothing is left behind by a crash. Thread-safe.
// RESOURCE_EXHAUSTED: the file system refuses, with its reason.
typedef struct at_spill at_spill;
// dir: an existing folder, read during the call. The caller closes *out.
at_status at_spill_open(const char *dir, at_spill **out);
void at_spill_close(at_spill *s);  // NULL: nothing
// Writes the bytes to a free place, *out_at. On failure the place is free again
// and *out_at is not written.
at_status at_spill_write(at_spill *s, const void *data, size_t bytes,
                         uint64_t *out_at);
// Reads back what at_spill_write put at `at`; the place stays taken.
at_status at_spill_read(at_spill *s, uint64_t at, void *data, size_t bytes);
// The place may be used again. bytes: as written.
void at_spill_drop(at_spill *s, uint64_t at, size_t bytes);

#endif

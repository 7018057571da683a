// What stands here for buffers and programs of other processes (proxy.h), as
// the rest of this room sees it.
#ifndef ATOLL_EXEC_PROXY_INTERNAL_H_
#define ATOLL_EXEC_PROXY_INTERNAL_H_

#include "exec/exec.h"

// What the stand-ins of one array have in common: its name and the count of
// shards that are still wanted.
typedef struct at_proxy_array at_proxy_array;
// What several arrays of one launch become ready with.
typedef struct at_proxy_moment at_proxy_moment;
typedef struct at_placement at_placement;  // a program on some chips
// Asks the process that has b whether it is defined, once; b->ready fires some
// time, with its error if it has one.
void at_proxy_ask(at_buffer *b);
// Makes every question fail and waits until none is under way any more. Before
// the proxy is taken away.
void at_proxy_end(at_runtime *rt);
// Nobody uses b any more: drops its share of the array; the array's name goes
// with the last.
void at_proxy_let_go(at_buffer *b);
// NULL is allowed.
void at_proxy_moment_release(at_proxy_moment *m);
// As at_buffer_from_host, but src is read during the call only.
at_status at_proxy_from_host(at_chip *c, at_memory_kind k,
                             const at_host_array *src, at_buffer **out);
// As at_buffer_create: its memory is here until at_proxy_define sends it.
at_status at_proxy_create(at_chip *c, at_memory_kind k, at_dtype t,
                          at_dims dims, at_buffer **out);
// Sends what at_proxy_data gave room for, or the error. Consumes s.
void at_proxy_define(at_buffer *b, at_status s);
// A copy of its bytes here, fetched at the first call, which waits; it is freed
// with b. NULL: it cannot be had.
void *at_proxy_data(at_buffer *b);
// As at_buffer_to_host. Takes over a hold of b, which is given back when the
// bytes have come, also on failure.
at_status at_proxy_to_host(at_buffer *b, void *dst, size_t offset, size_t n,
                           at_event **out_done);
// As at_buffer_copy_to, b and c being of the same proxy.
at_status at_proxy_copy(at_buffer *b, at_chip *c, at_memory_kind k,
                        at_buffer **out);
// As at_loaded_execute where all devices are elsewhere. The arguments are held,
// and the donated ones (`donated`, a byte for each) deleted; gives the holds
// back. The program is sent to its hosts before the first launch on these
// chips.
at_status at_proxy_run(at_loaded *l, const at_launch *in,
                       const uint8_t *donated, at_buffer **outputs,
                       at_event **out_done);
// Forgets its placements, there and here; l is about to go.
void at_proxy_unload(at_loaded *l);

#endif

// Lines (at_hosts_lines): one-way messages of a step between the processes that
// run it. hosts.c hands it what the wire brings. Thread-safe.
#ifndef ATOLL_POD_LINES_H_
#define ATOLL_POD_LINES_H_

#include "exec/exec.h"
#include "pod/wire.h"

typedef struct at_pod_lines at_pod_lines;

// hosts: borrowed; its `check` is asked about launches and processes. wire:
// where it will be once it is open. kind: of messages on the wire; kind + 1: of
// a process's last. Behind the body of each is its tag. NULL: no memory.
at_pod_lines *at_pod_lines_create(const at_hosts *hosts, at_wire *const *wire,
                                  uint32_t kind);
void at_pod_lines_destroy(at_pod_lines *a);  // NULL: nothing

at_status at_pod_lines_open(at_pod_lines *a, const at_hosts_tag *tag,
                            const uint32_t *hosts, uint32_t num_hosts,
                            const at_hosts_line_calls *calls,
                            at_hosts_line **out);
void at_pod_lines_close(at_hosts_line *l);
at_status at_pod_lines_send(at_hosts_line *l, uint32_t host,
                            const at_bytes *parts, uint32_t num_parts,
                            bool last);
void at_pod_lines_waits(at_hosts_line *l, bool on);

// A message of one of its kinds, with a tag; takes the body. *kept: its credits
// are still with it. RESOURCE_EXHAUSTED: it is dropped.
at_status at_pod_lines_hear(at_pod_lines *a, uint32_t from,
                            const at_wire_head *head, void *body, bool *kept);
// A launch has failed, or a process is lost: lines that it concerns fail.
void at_pod_lines_look(at_pod_lines *a);
// A launch has failed here: what waits for its steps is dropped, too.
void at_pod_lines_drop(at_pod_lines *a, const at_hosts_tag *tag);
// Says which lines have waited for tell_ns, and ends those that have for end_ns
// (0: never), or that wait for each other. Now and then.
void at_pod_lines_tick(at_pod_lines *a, uint64_t tell_ns, uint64_t end_ns);

#endif

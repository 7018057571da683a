// The slices of a TPU's pods that the cloud offers, from its description.
#ifndef ATOLL_MACHINE_TOPOLOGY_INTERNAL_H_
#define ATOLL_MACHINE_TOPOLOGY_INTERNAL_H_

#include "machine/topology.h"

// A figure that counts chips, cores or dimensions. Somebody's own description
// may hold any number: above 2^20 it is that.
int64_t at_slices_whole(const at_machine *m, const char *figure, double absent);
// Saturates.
uint64_t at_slices_chips(const int64_t shape[3]);
// The shape that the figure holds; false: the description has none.
bool at_slices_shape(const at_machine *m, const char *figure, int64_t shape[3]);
// With its sides in any order.
bool at_slices_fits(const int64_t shape[3], const int64_t within[3]);
bool at_slices_offered(const at_machine *m, const int64_t shape[3]);
// The shape of that many chips with the shortest sides.
bool at_slices_find(const at_machine *m, uint64_t chips, int64_t shape[3]);
// ":2x2x4", in as many dimensions as the machine is wired.
void at_slices_print(const at_machine *m, const int64_t shape[3],
                     at_strbuf *out);
// "v5e:4x4 (v5e-16), v5e:4x8 (v5e-32)": of as many chips, or the next less and
// more.
void at_slices_nearest(const at_machine *m, const at_topology_text *t,
                       at_strbuf *out);

#endif

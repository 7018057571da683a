// What carries the BULK lanes of a wire over TCP (wire_tcp.c) in place of their
// connections, for the members that it reaches. CONTROL, signs of life and ends
// stay on the connections. A carrier moves bytes, in order and without loss; it
// need not know who sends them, where the stream is sealed.
#ifndef ATOLL_POD_WIRE_CARRIER_H_
#define ATOLL_POD_WIRE_CARRIER_H_

#include <sys/uio.h>

#include "base/status.h"
#include "pod/wire.h"

enum { AT_CARRIER_CARD = 16 << 10 };  // bytes, at most

typedef struct at_carrier at_carrier;

typedef struct at_carrier_vtable {
  // While the members meet, one thread. `card`: what a member has to know to
  // reach this process; the length, at most AT_CARRIER_CARD. `call`: says hello
  // to a member by its card. `heard`: its hello has come.
  size_t (*card)(at_carrier *c, uint32_t member, uint8_t *out);
  at_status (*call)(at_carrier *c, uint32_t member, at_bytes card);
  bool (*heard)(at_carrier *c, uint32_t member);
  // As in at_stream_medium, under the lock of the lane.
  size_t (*room)(at_carrier *c, uint32_t to);
  void (*write)(at_carrier *c, uint32_t to, const struct iovec *v, int n);
  void (*push)(at_carrier *c, uint32_t to);
  // The poller's. `turn`: takes what has come; true: there was something.
  // `arm`: true: `fd` becomes readable when there is something to do; false:
  // it is time for a turn. `news`: room has come, or a failure, since it was
  // last asked. `readable`, `read`, `check`, `drop`: of one member.
  bool (*turn)(at_carrier *c);
  bool (*arm)(at_carrier *c);
  bool (*news)(at_carrier *c, uint32_t member);
  bool (*readable)(at_carrier *c, uint32_t from);
  size_t (*read)(at_carrier *c, uint32_t from, void *to, size_t n);
  at_status (*check)(at_carrier *c, uint32_t member);
  void (*drop)(at_carrier *c, uint32_t member);
  void (*close)(at_carrier *c);  // what is under way may be lost
} at_carrier_vtable;

struct at_carrier {
  const at_carrier_vtable *vtable;
  uint32_t count, me;
  int fd;
};

// Members exchange cards over connections that have been made (fds[count]),
// with the seals of options->links where there are some, say hello by the
// carrier, and agree whom it reaches: reached[count], the same on both sides of
// each pair. `c` NULL: this process has none, and is reached by none.
//   DEADLINE_EXCEEDED, UNAVAILABLE  a member did not answer, or has ended
//   DATA_LOSS  what it said was changed, or is malformed
at_status at_carrier_meet(const at_wire_options *options, const int *fds,
                          at_carrier *c, bool *reached);

// UCX. `any`: over whatever it finds (UCX_TLS); else over RDMA alone. `local`:
// all members are on this machine.
//   UNIMPLEMENTED  built without the headers of UCX
//   UNAVAILABLE    it cannot be loaded, or finds nothing
at_status at_ucx_open(uint32_t count, uint32_t me, bool any, bool local,
                      at_carrier **out);

#endif

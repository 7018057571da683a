// What the hosts of a program send each other at one collective, and what this
// one does with it: made once when the program is loaded, by each host from the
// same tables, so that sender and receiver agree without a word.
#ifndef ATOLL_EXEC_FAR_PLAN_H_
#define ATOLL_EXEC_FAR_PLAN_H_

#include "exec/exec_internal.h"

// All-reduces of fewer bytes go whole to everybody, in one round instead of
// two; between two hosts, where both ways send as much, up to AT_FAR_TWO_BYTES:
// from there on it is the sum that takes longer than a round.
enum { AT_FAR_DIRECT_BYTES = 64 << 10, AT_FAR_TWO_BYTES = 2 << 20 };

// Where bytes are: in operand or result `slot` of a device (by its number in
// the whole program) of this host, in the room of a run, which is one block
// of at_far_plan.room_bytes, or in the block that came from host `device` in
// the first round: a message of one piece is not copied out of it.
typedef enum at_far_where {
  AT_FAR_OPERAND,
  AT_FAR_RESULT,
  AT_FAR_ROOM,
  AT_FAR_BLOCK
} at_far_where;
typedef struct at_far_spot {
  uint32_t where, device, slot;
  uint64_t offset;
} at_far_spot;

// A run of bytes of a message. Both ends list them in the same order.
typedef struct at_far_piece {
  at_far_spot at;
  uint64_t bytes;
} at_far_piece;

// A message to a host and one from it: pieces [out, out + num_out) and [in, in
// + num_in) of the plan. Either may be empty; then the host is told so.
typedef struct at_far_mail {
  uint32_t host;
  uint32_t out, num_out, in, num_in;
} at_far_mail;

// A summand of a sum: `device` names the block of devices whose sum it is.
typedef struct at_far_part {
  at_far_spot at;
  uint64_t first;  // at_summand
  uint32_t device;
} at_far_part;

// An operand of another host's device that came, and where it lies now:
// at_exchange finds it there.
typedef struct at_far_land {
  uint32_t device, slot;
  at_far_spot at;
} at_far_land;

typedef enum at_far_kind {
  AT_FAR_GROUP,  // what the members here give each other, and what landed
  AT_FAR_SUM,    // parts, bytes [begin, end): to the results here, or to `to`
  AT_FAR_CUT,    // the piece for member `rank`, from `from`, dense to `to`
  AT_FAR_PUT,    // the piece of member `rank`, dense from `from`, into `to`
  AT_FAR_SHARE  // bytes [begin, end) of result `from` to the other members here
} at_far_kind;
// One thing that this host does between rounds. Fields that a kind does not
// name are 0.
typedef struct at_far_act {
  uint32_t kind, value;
  // Where the group begins among the members, and how many they are.
  uint32_t group, size;  // where the group begins among the members
  uint32_t rank;
  // SUM: [parts, parts + num_parts) of the plan's, by number of the device.
  uint32_t parts, num_parts;
  bool kept;  // SUM: `to` is where it goes
  // Bytes of the value.
  uint64_t begin, end;
  at_far_spot from, to;
} at_far_act;

// Acts before the first round, after it, and after the second.
// A message is sent in a round when all acts of the phase before it are done,
// and read by acts of the phase behind it.
enum { AT_FAR_ROUNDS = 2, AT_FAR_PHASES = AT_FAR_ROUNDS + 1 };
// One block of memory; constant once made, so launches share it.
struct at_far_plan {
  uint32_t num_acts[AT_FAR_PHASES], num_mails[AT_FAR_ROUNDS];
  // most_parts: of one act, for the scratch of a run.
  uint32_t num_parts, num_lands, num_pieces, most_parts;
  uint64_t room_bytes;
  at_far_act *acts[AT_FAR_PHASES];
  at_far_mail *mails[AT_FAR_ROUNDS];
  at_far_piece *pieces;
  at_far_part *parts;
  at_far_land *lands;
};
// The plan of host `me` for the groups of `whole`, as f says which host has
// which device; borrows both during the call. free() it. Not of the RAGGED
// kind, whose sizes nobody knows before. RESOURCE_EXHAUSTED: no memory.
at_status at_far_plan_make(const at_coll *whole, const at_far *f, uint32_t me,
                           at_far_plan **out);

// The blocks of all values in a row are dealt out evenly to the hosts of a
// group: bytes [*begin, *end) of value v are added up by the g-th of num_hosts.
// Empty: begin == end.
void at_far_range(const at_coll *k, uint32_t v, uint32_t g, uint32_t num_hosts,
                  uint64_t *begin, uint64_t *end);

#endif

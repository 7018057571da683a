// Random programs on another implementation: what it is given as files, and how
// far its results are from the evaluator, beside Atoll's.
//
// A program is NAME.mlir, StableHLO that returns every value, after lines of
//   // op KEY        an op of it: its name, a collective's body, the types of
//                    operands and results
//   // arg TYPE DIMS, // result TYPE DIMS
// and for each set of arguments NAME.SET.in, all of them one after another in
// storage form, beside which the peer's results are put as NAME.SET.out.
#ifndef ATOLL_TEST_RANDOM_PEER_H_
#define ATOLL_TEST_RANDOM_PEER_H_

#include "hlo/random.h"

typedef struct peer_options {
  const char *folder;
  const char *without;  // NULL, or a file of KEYs, or beginnings of such and *:
                        // such ops are not in programs, what they make is given
  bool apart;           // every op is a program of its own
  uint32_t sets;        // of arguments
} peer_options;

at_status peer_write(const peer_options *o, const at_random_options *program);
// Judges what the peer put there, and Atoll on the same programs and arguments;
// prints every op that is beyond its tolerance. *farther: how often Atoll is,
// where the peer is not.
at_status peer_judge(const peer_options *o, const at_random_options *program,
                     uint64_t *farther);
void peer_table(void);  // tab-separated, all counts of this process

#endif

// Parts of random programs: what of one is computed, and what it is given.
#ifndef ATOLL_TEST_RANDOM_PIECE_H_
#define ATOLL_TEST_RANDOM_PIECE_H_

#include "judge.h"

// Whether c, or a region in it, uses a value of n.
bool piece_uses(const at_comp *c, const at_node *n);
// Makes every value of the entry a result, constants apart. A node's mark is
// then where its first result is.
at_status piece_return_all(at_module *m);

// A run of a program that piece_return_all changed.
typedef struct piece_run {
  const at_literal **args, **got;
} piece_run;
// Judges n against the evaluator, on the operands that the run itself made.
at_status piece_judge(at_arena *a, const at_node *n, piece_run *run,
                      judgement *out);

// Where a parameter's value comes from: args or got of the whole program's run.
typedef struct piece_source {
  bool made;
  uint32_t index;
} piece_source;
typedef bool (*piece_keeps)(void *user, const at_node *n, uint32_t ordinal);
// Of an entry after piece_return_all: nodes that `keeps` refuses, and tokens,
// leave; what the others use of them becomes parameters. *sources: one for each
// parameter of what is left, in `a`. piece_return_all comes next.
at_status piece_cut(at_arena *a, at_module *m, piece_keeps keeps, void *user,
                    piece_source **sources);

#endif

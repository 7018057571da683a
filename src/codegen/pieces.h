// Where along a digit of a loop what is read changes from one operand, or one
// part of it, to another: the ends of what is joined or padded. A loop that is
// split there knows each element's source, and moves whole vectors.
#ifndef ATOLL_CODEGEN_PIECES_H_
#define ATOLL_CODEGEN_PIECES_H_

#include "codegen/job.h"

// Cuts of one digit, and pieces of all digits together, at most: each is code
// of its own.
enum { AT_PIECES_CUTS = 12, AT_PIECES_MOST = 32 };

// Sets j->pieces of a LOOP whose digits are known: of the last digit first, of
// outer ones while there are no more than AT_PIECES_MOST together, and no more
// than `ops` (of one element) make worth their code. NULL where there are none.
// Only speed depends on the cuts: index maps decide at run time what no cut
// tells them. RESOURCE_EXHAUSTED alone.
at_status at_pieces_plan(at_arena *a, at_job *j, double ops);
// Whether the node joins or pads anything, so that its loop may have cuts.
bool at_pieces_may(const at_node *n);

#endif

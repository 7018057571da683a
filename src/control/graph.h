// A traced program between its trace and its message (trace.c): steps of the
// stream in order, whose names stand for inputs (AT_MSG_INPUT), for arrays that
// steps make (AT_MSG_MADE), or for arrays that are there. Passes rewrite it,
// it can be printed, and it becomes the body of a GRAPH.
//
// Nothing of it says where a computation is but the chips of its steps: the
// text has sets of devices in the order in which they are met.
#ifndef ATOLL_CONTROL_GRAPH_H_
#define ATOLL_CONTROL_GRAPH_H_

#include "base/strbuf.h"
#include "control/message.h"

// A program that steps launch. Borrowed from the client, which keeps it as long
// as a graph has it.
typedef struct at_graph_program {
  uint64_t name;     // of the client's
  const char *text;  // of the computation; and its results' types by commas
  const char *results;
  // Then it is neither merged nor removed.
  bool effects;  // it may do more than make its results
  uint32_t num_chips;
  const uint32_t *chips;  // by device
} at_graph_program;

// A function of the client's between steps: of results, it makes inputs. The
// hosts hear nothing of it but these.
enum { AT_GRAPH_HOST = 1 << 16, AT_GRAPH_LATE = UINT32_MAX };
typedef struct at_graph_host {
  uint32_t first_result, num_results;  // what it takes
  uint32_t first_input, num_inputs;    // what it makes
  char text[];
} at_graph_host;

// One message of the stream, or a function of the client's.
typedef struct at_graph_step {
  uint32_t kind, bytes;             // LAUNCH, COPY, GROUP, RESHARD, or
                                    // AT_GRAPH_HOST
  uint8_t *body;                    // owned
  const at_graph_program *program;  // LAUNCH
  bool removed;                     // by a pass
} at_graph_step;

// An array that steps make.
typedef struct at_graph_made {
  uint32_t last;  // step that uses it, or makes it (at_graph_place_drops)
  bool taken;     // by that, its name included
  bool kept;      // a result of the program
} at_graph_made;

// What a pass has done, for the text.
typedef enum at_graph_pass {
  // Copies that copy nothing, and groups that are their array.
  AT_GRAPH_COPIES,
  // Steps that were done twice.
  AT_GRAPH_SAME,
  // Steps whose arrays nobody uses.
  AT_GRAPH_DEAD,
  // Arrays that go before the program's end.
  AT_GRAPH_DROPS,
  AT_GRAPH_PASSES
} at_graph_pass;

// Everything it points to is the owner's (trace.c), which frees it; passes
// change it in place, and allocate only memory that they free again or that
// becomes part of a step.
typedef struct at_graph {
  uint32_t num_arrays, num_inputs;  // inputs of bytes come behind arrays
  const uint32_t *hosts;  // of those inputs: which bytes; AT_GRAPH_LATE: a
                          // step's of the client. NULL: there are none
  // [num_steps], in the order in which they were asked for.
  at_graph_step *steps;
  uint32_t num_steps;
  // [num_made], by the number in its name.
  at_graph_made *made;
  uint32_t num_made;
  uint64_t *results;  // what each is called: those that steps of the client
  uint32_t num_results, num_taken;  // take, then the program's
  // What each pass has done, for the text.
  uint32_t counts[AT_GRAPH_PASSES];
} at_graph;

// ---- Passes (graph_passes.c). Results keep their bits; a step that reads an
// array stays before one that takes its memory. RESOURCE_EXHAUSTED: the graph
// is as it was before that pass.

// A copy to where its array is already, and a group of all shards of an array
// in order, are that array; what copies a copy copies what that was made of.
at_status at_graph_drop_copies(at_graph *g);
// Steps without effects that do the same with the same arrays are done once.
// Two results of the program stay two arrays.
at_status at_graph_merge_same(at_graph *g);
// Steps without effects that make nothing that is used are removed.
at_status at_graph_drop_dead(at_graph *g);
// made.last and made.taken: each array goes right after its last use. Not
// optional.
at_status at_graph_place_drops(at_graph *g);
// All of them, in this order; not `all`: the last alone.
at_status at_graph_optimize(at_graph *g, bool all);

// ---- The message; `name`: the graph's.
// Appends the body of a GRAPH without the steps that passes have removed, each
// array's drop behind its last use. at_graph_place_drops comes before.
// RESOURCE_EXHAUSTED.
at_status at_graph_write(const at_graph *g, uint64_t name, at_strbuf *out);

// ---- For people (graph_print.c): a node for each argument, computation,
// resharding, and for what is returned, however many shards they have.
// Appends; the text depends on neither names nor chips, so the same program
// traced twice gives the same text.
void at_graph_print(const at_graph *g, at_strbuf *out);

#endif

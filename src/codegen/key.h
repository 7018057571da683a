// Structural text of a node: equal nodes (ops, attributes, types, regions,
// constants; not ids or places) give equal bytes.
//
// Nodes with equal keys get one kernel, so whatever changes the code must be in
// the key: a form that the emitter looks at and the key does not is a wrong
// result in the second program that has it.
#ifndef ATOLL_CODEGEN_KEY_H_
#define ATOLL_CODEGEN_KEY_H_

#include "codegen/skip.h"

// Appends the node's text to *out; a: for the table of numbers. `skips`: slices
// count from what is skipped; NULL: from the first element.
at_status at_key_node(at_arena *a, const at_node *n, const at_skips *skips,
                      at_strbuf *out);
// The same of a region by itself.
at_status at_key_comp(at_arena *a, const at_comp *c, at_strbuf *out);

#endif

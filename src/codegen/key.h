// Structural text of a node: equal nodes (ops, attributes, types, regions,
// constants; not ids or places) give equal bytes.
#ifndef ATOLL_CODEGEN_KEY_H_
#define ATOLL_CODEGEN_KEY_H_

#include "codegen/skip.h"

// `skips`: slices count from what is skipped; NULL: from the first element.
at_status at_key_node(at_arena *a, const at_node *n, const at_skips *skips,
                      at_strbuf *out);
at_status at_key_comp(at_arena *a, const at_comp *c, at_strbuf *out);

#endif

// Pages for people: one look, light or dark as they have it, and nothing from
// elsewhere: no fonts, no scripts, no network.
//
// Memory: text is appended to the caller's buffer, which keeps its failure.
// Threads: any.
#ifndef ATOLL_BASE_PAGE_H_
#define ATOLL_BASE_PAGE_H_

#include "base/strbuf.h"

// Up to and with <main>; title: not escaped yet.
void at_page_begin(at_strbuf *out, const char *title);
// From </main> on. A click on the head of a table sorts it by that column: by
// the cells' data-v, where they have one.
void at_page_end(at_strbuf *out);
void at_page_text(at_strbuf *out, const char *text);  // escaped

#endif

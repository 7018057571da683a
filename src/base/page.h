// Pages for people: one look (page.css) and one script (page.js), light or dark
// as they have it, and nothing from elsewhere: no fonts, no scripts, no
// network. Tables sort, a field searches rows and marks, an SVG's <title>s are
// shown by hovering, and an SVG of class "time" zooms along time (data-left:
// where it begins, in the picture's units).
//
// Memory: text is appended to the caller's buffer, which keeps its failure.
// Threads: any.
#ifndef ATOLL_BASE_PAGE_H_
#define ATOLL_BASE_PAGE_H_

#include "base/strbuf.h"

// Up to and with <main>; title: not escaped yet.
void at_page_begin(at_strbuf *out, const char *title);
// From </main> on. A click on the head of a table sorts it by that column: by
// the cells' data-v, where they have one. A class of tables that scripts fill
// and search by themselves: "filled".
void at_page_end(at_strbuf *out);
void at_page_text(at_strbuf *out, const char *text);  // escaped

#endif

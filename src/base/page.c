#include "base/page.h"

extern const at_bytes at_page_files[];  // page.css, page.js

// Style and script are part of the library.
static void add_file(at_strbuf *out, at_bytes file) {
  at_strbuf_add(out, (at_str){(const char *)file.ptr, file.len});
}

// What HTML would read as markup.
void at_page_text(at_strbuf *out, const char *text) {
  for (; *text; text++) switch (*text) {
      case '<':
        at_strbuf_addz(out, "&lt;");
        break;
      case '>':
        at_strbuf_addz(out, "&gt;");
        break;
      case '&':
        at_strbuf_addz(out, "&amp;");
        break;
      case '"':
        at_strbuf_addz(out, "&quot;");
        break;
      default:
        at_strbuf_addc(out, *text);
    }
}

// Style and script go into the page, so that it needs nothing else.
void at_page_begin(at_strbuf *out, const char *title) {
  at_strbuf_addz(out,
                 "<!doctype html><html lang=en><head><meta charset=utf-8>"
                 "<meta name=viewport content=\"width=device-width\"><title>");
  at_page_text(out, title);
  at_strbuf_addz(out, "</title><style>");
  add_file(out, at_page_files[0]);
  at_strbuf_addz(out, "</style><script>");
  add_file(out, at_page_files[1]);
  at_strbuf_addz(out,
                 "</script></head><body><nav><input type=search "
                 "placeholder=\"Search\" aria-label=Search></nav><main>");
}

void at_page_end(at_strbuf *out) {
  at_strbuf_addz(out, "</main></body></html>\n");
}

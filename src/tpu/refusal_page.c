// From tools/refusals.json, of which the page is made.
#include "tpu/refusal_page.h"

#include <string.h>

#include "base/json.h"

extern const at_bytes at_tpu_refusal_files[];  // refusals.json

// A heading's name on the page: small letters, words joined by '-', nothing
// else.
static void add_anchor(at_str title, at_strbuf *out) {
  for (size_t i = 0; i < title.len; i++) {
    char c = title.ptr[i];
    if (c >= 'A' && c <= 'Z') c = (char)(c - 'A' + 'a');
    if (c == ' ') c = '-';
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || strchr("-_", c))
      at_strbuf_addc(out, c);
  }
}

// Only what stands before the details counts: those name kernels, which may be
// called anything.
static bool says(const at_json *entry, at_str said) {
  const at_json *list = at_json_get(entry, "messages");
  for (size_t i = 0; list && i < list->len; i++) {
    at_str text = list->items[i].string;
    if (memmem(said.ptr, said.len, text.ptr, text.len)) return true;
  }
  return false;
}

// Without memory for the hint the refusal stays as it is.
static at_status with_page(at_status s, at_str title) {
  at_strbuf anchor = {0};
  add_anchor(title, &anchor);
  at_status st = at_strbuf_status(&anchor);
  if (!at_ok(st)) {
    at_status_free(st);
    return s;
  }
  const char *message = at_status_message(s);
  at_status named = AT_FAIL(
      at_status_code(s), "%s%sdocs/refusals.md#%.*s has cause and cure",
      message, strstr(message, "\nhint: ") ? "; " : "\nhint: ", (int)anchor.len,
      anchor.ptr);
  at_strbuf_free(&anchor);
  at_status_free(s);
  return named;
}

// The first entry whose text the message holds; the file is parsed for each
// refusal, which are rare.
at_status at_mosaic_refusal_page(at_status s) {
  if (at_ok(s)) return s;
  at_arena *a = at_arena_create();
  if (!a) return s;
  const at_json *entries = NULL;
  const char *message = at_status_message(s);
  const char *details = strstr(message, "\ndetail: ");
  at_str said = {message,
                 details ? (size_t)(details - message) : strlen(message)};
  if (!at_code_take(at_json_parse(at_tpu_refusal_files[0], a, &entries)))
    for (size_t i = 0; i < entries->len; i++) {
      if (!says(&entries->items[i], said)) continue;
      s = with_page(s,
                    at_json_get_str(&entries->items[i], "title", AT_STR("")));
      break;
    }
  at_arena_destroy(a);
  return s;
}

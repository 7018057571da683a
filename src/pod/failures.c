#include "pod/failures.h"

#include <stdlib.h>
#include <string.h>

// Linear over a ring of AT_FAILURES entries; one entry covers consecutive
// launches that failed alike.
const at_failure *at_failures_find(const at_failures *f, uint32_t host,
                                   const at_hosts_tag *tag) {
  uint32_t n = AT_MIN(f->count, (uint32_t)AT_FAILURES);
  for (uint32_t i = 0; i < n; i++) {
    const at_failure *x = &f->all[i];
    if (x->host == host && x->tag.launch <= tag->launch &&
        tag->launch <= x->last && x->tag.program == tag->program &&
        x->tag.group == tag->group)
      return x;
  }
  return NULL;
}

// A launch that fails as the one before it did extends that entry: a program
// that fails again and again does not push everything else out.
void at_failures_note(at_failures *f, uint32_t host, const at_hosts_tag *tag,
                      at_status why) {
  at_hosts_tag before = *tag;
  before.launch--;
  at_failure *x =
      tag->launch ? (at_failure *)at_failures_find(f, host, &before) : NULL;
  if (x && x->last == before.launch &&
      at_status_code(x->why) == at_status_code(why) &&
      !strcmp(at_status_message(x->why), at_status_message(why))) {
    x->last++;
    return;
  }
  x = &f->all[f->count++ % AT_FAILURES];
  if (f->count == 2 * AT_FAILURES) f->count = AT_FAILURES;
  at_status_free(x->why);
  *x = (at_failure){host, *tag, tag->launch, at_status_clone(why)};
}

// code, then text, as at_failure_read reads them. NULL: no memory.
at_unsaid *at_unsaid_make(uint32_t to, const at_hosts_tag *tag, at_status why) {
  const uint32_t code = at_status_code(why);
  const char *text = at_status_message(why);
  const size_t n = strnlen(text, AT_FAILURE_TEXT);
  at_unsaid *u = malloc(sizeof *u + sizeof code + n);
  if (!u) return NULL;
  *u = (at_unsaid){.to = to, .tag = *tag, .bytes = sizeof code + n};
  memcpy(u->said, &code, sizeof code);
  memcpy(u->said + sizeof code, text, n);
  return u;
}

static bool is_code(uint32_t c) { return c && c <= AT_UNAUTHENTICATED; }

// Processes of one user may repeat each other's error as it is; of others it
// becomes ABORTED with a prefix, or DATA_LOSS.
at_status at_failure_read(uint32_t host, at_bytes said, bool one_user) {
  uint32_t code;
  memcpy(&code, said.ptr, sizeof code);
  const int bytes = (int)(said.len - sizeof code);
  const char *text = (const char *)said.ptr + sizeof code;
  if (one_user)
    return AT_FAIL(is_code(code) ? code : AT_INTERNAL, "%.*s", bytes, text);
  return AT_FAIL(code == AT_DATA_LOSS ? AT_DATA_LOSS : AT_ABORTED,
                 "process %u failed: %.*s", host, bytes, text);
}

void at_failures_free(at_failures *f) {
  for (uint32_t i = 0; i < AT_FAILURES; i++) at_status_free(f->all[i].why);
  *f = (at_failures){0};
}

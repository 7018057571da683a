#include "pod/failures.h"

#include <string.h>

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

void at_failures_free(at_failures *f) {
  for (uint32_t i = 0; i < AT_FAILURES; i++) at_status_free(f->all[i].why);
  *f = (at_failures){0};
}

// Text form: what parses and verifies must print, parse again, and print equal;
// then it is evaluated with a small budget, on zeros.
#include <stdio.h>
#include <stdlib.h>

#include "hlo/hlo.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// A finding, not an input error: stop where a fuzzer sees it.
static void broken(const char *what, at_status s) {
  fprintf(stderr, "%s: %s\n", what, at_status_message(s));
  abort();
}

// Memory that runs out is no finding: the arena is limited.
static void check_round_trip(const at_module *m, at_arena *a) {
  at_strbuf one = {0}, two = {0};
  at_module *again;
  at_status s = at_hlo_print(m, &one);
  if (at_ok(s)) s = at_hlo_parse(at_strbuf_str(&one), a, &again);
  if (at_status_code(s) != AT_RESOURCE_EXHAUSTED) {
    if (!at_ok(s)) broken("printed text does not parse", s);
    s = at_verify(again, NULL);
    if (!at_ok(s)) broken("reparsed module does not verify", s);
    s = at_hlo_print(again, &two);
    if (!at_ok(s) || !at_str_eq(at_strbuf_str(&one), at_strbuf_str(&two)))
      broken("prints differ", s);
  }
  at_status_free(s);
  at_strbuf_free(&one);
  at_strbuf_free(&two);
}

// Only programs whose arguments are small; statuses of the evaluator do not
// matter, crashes do.
static void evaluate(const at_module *m, at_arena *a) {
  const at_comp *c = m->entry;
  if (!c) return;
  const at_literal **args = at_new(a, const at_literal *, c->num_params);
  const at_literal **outs = at_new(a, const at_literal *, c->num_results);
  if (!args || !outs) return;
  for (uint32_t i = 0; i < c->num_params; i++) {
    at_type t = c->params[i]->types[0];
    uint8_t zero[16] = {0};
    if (!at_type_is_static(&t) || at_type_bytes(&t) > 1 << 20) return;
    if (!at_ok(at_literal_make(a, t, zero, true, false, &args[i]))) return;
  }
  at_eval_options o = {.max_ops = 20000, .custom = at_eval_linalg_custom};
  at_status_free(at_eval(c, args, &o, a, outs));
}

// Everything lives in one limited arena.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  at_arena *a = at_arena_create_limited((size_t)64 << 20);
  at_module *m;
  at_status s = at_hlo_parse((at_str){(const char *)data, size}, a, &m);
  if (at_ok(s)) s = at_verify(m, NULL);
  if (at_ok(s)) {
    check_round_trip(m, a);
    evaluate(m, a);
  }
  at_status_free(s);
  at_arena_destroy(a);
  return 0;
}

// Any text of a program: it is refused, or laid out on tiles so that what runs
// there receives what was planned and computes what the evaluator does.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tiles/lower.h"

enum { kNodes = 60, kElements = 1 << 13, kOps = 1 << 20 };

// So that each input takes little time.
static bool is_small(const at_comp *c, int *nodes) {
  AT_FOR_NODES(n, c) {
    if (++*nodes > kNodes || n->op == AT_OP_WHILE) return false;
    for (uint32_t i = 0; i < n->num_results; i++)
      if (!at_type_is_static(&n->types[i]) ||
          at_type_elements(&n->types[i]) > kElements)
        return false;
    for (uint32_t k = 0; k < n->num_regions; k++)
      if (!is_small(n->regions[k], nodes)) return false;
  }
  return true;
}

// Small numbers for every parameter, whatever its type.
static at_status arguments(const at_comp *c, at_arena *a,
                           const at_literal ***out) {
  AT_TRY_ALLOC(*out, at_new(a, const at_literal *, c->num_params + 1));
  for (uint32_t i = 0; i < c->num_params; i++) {
    const at_type *t = &c->params[i]->types[0];
    size_t n = at_type_bytes(t);
    uint8_t *data;
    AT_TRY_ALLOC(data, at_arena_alloc(a, n + 1, 64));
    for (size_t k = 0; t->dtype != AT_PRED && k < n;
         k += at_dtype_bytes(t->dtype))
      data[k] = (uint8_t)(k * 7 % 5);  // tiny numbers, whatever the type
    AT_TRY(at_literal_make(a, *t, data, false, true, &(*out)[i]));
  }
  return AT_OK;
}

// Integers alone: results must be equal bit by bit.
static bool is_exact(const at_comp *c) {
  AT_FOR_NODES(n, c)
  for (uint32_t i = 0; i < n->num_results; i++)
    if (at_is_float(n->types[i].dtype) || at_is_complex(n->types[i].dtype))
      return false;
  return true;
}

// Lowers and runs, and compares with the evaluator.
static void check(at_module *m, at_arena *a) {
  const at_machine *machine;
  at_tiles_machine t;
  at_tiles_lower_options o = {.lenient = true};
  const at_tiles_plan *p;
  const at_literal **args, **want, **got;
  const at_comp *c = m->entry;
  if (at_code_take(at_machine_find(AT_STR("mk2"), &machine)) ||
      at_code_take(at_tiles_machine_read(machine, &t)) ||
      at_code_take(arguments(c, a, &args)) ||
      at_code_take(at_tiles_lower(&t, m, &o, a, &p)))
    return;
  want = at_new(a, const at_literal *, c->num_results + 1);
  got = at_new(a, const at_literal *, c->num_results + 1);
  at_eval_options e = {.max_ops = kOps};
  if (!want || !got || at_code_take(at_eval(c, args, &e, a, want))) return;
  at_status st = at_tiles_plan_run(p, args, NULL, a, got, NULL);
  if (at_status_code(st) == AT_INTERNAL) {
    fprintf(stderr, "%s\n", at_status_message(st));
    abort();
  }
  bool ran = at_code_take(st) == AT_OK_CODE;
  for (uint32_t i = 0; ran && is_exact(c) && i < c->num_results; i++)
    for (int64_t k = 0; k < at_type_elements(&want[i]->type); k++)
      if (want[i]->type.dtype != AT_TOKEN &&
          at_literal_int(want[i], k) != at_literal_int(got[i], k))
        abort();
}

// What is no program, or too large, is passed over.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  at_arena *a = at_arena_create_limited(512u << 20);
  at_module *m;
  int nodes = 0;
  if (a &&
      !at_code_take(at_hlo_parse((at_str){(const char *)data, size}, a, &m)) &&
      m->entry && !at_code_take(at_verify(m, "fuzz")) &&
      is_small(m->entry, &nodes))
    check(m, a);
  at_arena_destroy(a);
  return 0;
}

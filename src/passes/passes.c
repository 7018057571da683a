// The pipeline.
#include "base/verify.h"
#include "passes/passes_internal.h"

const at_pass at_pipeline[] = {
    {"inline", at_pass_inline},
    {"named", at_pass_named},
    // Before parts travel: what a product rounds travels rounded.
    {"numerics", at_pass_numerics},
    {"partition", at_pass_partition},
    {"simplify", at_pass_simplify},
    {"fold", at_pass_fold},
    {"refine", at_pass_refine},
    {"expand", at_pass_expand},
    {"simplify", at_pass_simplify},
    {"fold", at_pass_fold},
    {"recognise", at_pass_recognise},
    {"simplify", at_pass_simplify},
    {"numerics", at_pass_numerics},
    {"collectives", at_pass_collectives},
    {"combine", at_pass_combine},
    {"unroll", at_pass_unroll},
    {"products", at_pass_products},
    {"turn", at_pass_turn},
    {"scatters", at_pass_scatters},
    {"sums", at_pass_sums},
    {"gathers", at_pass_gathers},
    {"windows", at_pass_windows},
    {"unfilled", at_pass_unfilled},
    {"barriers", at_pass_barriers},
    {"fuse", at_pass_fuse},
    {NULL, NULL},
};

// What at_verify refuses is the pass's fault, whatever it says is wrong.
static at_status left_valid(const at_module *m, const at_pass *p) {
  at_status st = at_verify(m, p->name);
  if (at_ok(st) || at_status_code(st) == AT_RESOURCE_EXHAUSTED) return st;
  at_status bug = AT_FAIL(AT_INTERNAL, "%s", at_status_message(st));
  at_status_free(st);
  return bug;
}

at_status at_pass_run(const at_pass *p, at_module *m,
                      const at_pass_options *o) {
  AT_TRY(p->run(m, o));
  AT_VERIFY_OK(left_valid(m, p));
  return AT_OK;
}

// Errors are prefixed with the pass that failed. `dump` sees the module after
// each pass, verified if asked.
at_status at_passes_run(at_module *m, const at_pass_options *o,
                        bool verify_each,
                        void (*dump)(void *user, const char *pass,
                                     const at_module *m),
                        void *user) {
  for (const at_pass *p = at_pipeline; p->name; p++) {
    at_status st = at_pass_run(p, m, o);
    if (!at_ok(st)) return at_status_prefix(st, "pass %s", p->name);
    if (verify_each) AT_TRY(at_verify(m, p->name));
    if (dump) dump(user, p->name, m);
  }
  return AT_OK;
}

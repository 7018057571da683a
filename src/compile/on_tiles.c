#include "compile/on_tiles.h"

bool at_on_tiles(const char *target, at_tiles_machine *out) {
  const at_machine *m;
  const char *star = strchr(target, '*'), *chip = star ? star + 1 : target;
  at_status st = at_machine_find((at_str){chip, strcspn(chip, ":")}, &m);
  if (at_ok(st) && strcmp(m->platform, "ipu")) return false;
  if (at_ok(st)) st = at_tiles_machine_read(m, out);
  return at_code_take(st) == AT_OK_CODE;
}

at_status at_on_tiles_plan(const at_tiles_machine *machine, at_module *m,
                           const at_pass_options *o, at_arena *a,
                           const at_tiles_plan **out) {
  at_pass_options passes = *o;
  passes.fuse = false;  // one compute set per op
  AT_TRY(at_passes_run(m, &passes, false, NULL, NULL));
  at_tiles_lower_options lower = {0};
  return at_tiles_lower(machine, m, &lower, a, out);
}

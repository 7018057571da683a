// `atoll dump --mosaic`: the Pallas kernels in a file, as text or as verdicts.
#include <stdlib.h>

#include "base/json.h"
#include "cli/cli.h"
#include "mosaic/code.h"
#include "mosaic/mosaic.h"
#include "tpu/tpu.h"

// What is asked, and the file that is being read. Each file has an arena of its
// own.
typedef struct dump {
  at_arena *arena;
  const char *file;
  const at_mosaic_chip *chip;  // NULL: no rules
  uint32_t devices;
  const at_machine *machine;  // NULL: no timing
  const char *trace;          // NULL: no timeline
  bool lines;                 // at_mosaic_view beside the times
  bool zeros;                 // at_mosaic_given.zeros
  const char *bounds;         // of dynamic grids, as text; NULL: not given
  bool check, locations, json, plan;
  const char *passes;  // whose part of the plan is shown; NULL: all
  at_strbuf out;
  uint32_t kernels;
  bool program;  // the file is one of StableHLO
} dump;

// The members of an object that is open.
static void put_verdict(const dump *d, const char *name, at_status s,
                        at_json_writer *w) {
  const struct {
    const char *key, *value;
  } members[] = {{"file", d->file},
                 {"kernel", name},
                 {"verdict", at_ok(s) ? "ok" : "refused"},
                 {"code", at_code_name(at_status_code(s))},
                 {"message", at_status_message(s)}};
  for (size_t i = 0; i < AT_LEN(members); i++) {
    at_json_key(w, at_str_of(members[i].key));
    at_json_str(w, at_str_of(members[i].value));
  }
}

// The grid of the last kernel that is timed is what the file has in the end.
static at_status write_trace(const dump *d, const at_mosaic_timing *t) {
  at_strbuf b = {0};
  at_mosaic_timing_trace(t, &b);
  at_status s = at_cli_write_file(d->trace, &b);
  at_strbuf_free(&b);
  return s;
}

enum { kMaxBounds = 8 };

// Bounds of a dynamic grid that the user names replace those of the program.
static at_status read_bounds(const char *text, int64_t *bounds, uint32_t *n) {
  const char *p = text;
  for (*n = 0; p && *p && *n < kMaxBounds; (*n)++) {
    char *end;
    long long v = strtoll(p, &end, 10);
    if (end == p || v < 0 || v > INT32_MAX || (*end && *end != ',')) break;
    bounds[*n] = v;
    p = *end ? end + 1 : end;
  }
  if (p && (*p || !*n))
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "--bounds=%s: up to %d counts are wanted, with commas "
                   "between them",
                   text, kMaxBounds);
  return AT_OK;
}

// `own`: room for bounds that the user names.
static at_status known_bounds(const dump *d, const at_mosaic_kernel *k,
                              int64_t *own, at_mosaic_given *out) {
  *out = (at_mosaic_given){
      .zeros = d->zeros,
      .bounds = k->call.values,
      .num_bounds = k->call.values ? k->call.num_operands : 0};
  if (!d->bounds) return AT_OK;
  AT_TRY(read_bounds(d->bounds, own, &out->num_bounds));
  out->bounds = own;
  return AT_OK;
}

// Text of each program of the kernel. Where bounds are not known there is a
// formula, and then the times of as many steps as shapes allow; where shapes do
// not bound them, the formula alone.
static at_status put_timing(dump *d, const at_mosaic_kernel *k) {
  int64_t own[kMaxBounds];
  at_mosaic_given given;
  AT_TRY(known_bounds(d, k, own, &given));
  for (uint32_t i = 0; i < k->num_programs; i++) {
    uint32_t wanted = k->programs[i].num_dynamic;
    if (d->bounds && wanted && given.num_bounds > wanted)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "--bounds=%s: kernel %s takes %u bounds of its grid",
                     d->bounds, k->name, wanted);
    at_mosaic_given most = given;
    uint32_t found = 0;
    at_mosaic_formula f;
    AT_TRY(at_mosaic_formula_of(k, i, d->machine, &given, d->arena, &f));
    if (f.num_bounds) {
      at_mosaic_formula_text(&f, &d->out);
      AT_TRY(
          at_mosaic_bounds_at_most(&k->programs[i], &most, d->arena, &found));
      if (found < f.num_bounds) continue;
      at_strbuf_addz(&d->out, "  as many steps as shapes allow:\n");
    }
    at_mosaic_timing *t;
    AT_TRY(at_mosaic_timing_of(k, i, d->machine, &most, d->arena, &t));
    at_mosaic_timing_text(t, &d->out);
    if (d->lines) {
      at_mosaic_view v;
      AT_TRY(at_mosaic_view_of(k, i, d->machine, d->arena, &v));
      at_mosaic_view_text(&v, &d->out);
    }
    if (d->trace) AT_TRY(write_trace(d, t));
  }
  return AT_OK;
}

// What each program of a kernel takes, at most where a bound of its grid is
// known at run time.
static at_status time_programs(const dump *d, const at_mosaic_kernel *k,
                               at_mosaic_timing ***out) {
  int64_t own[kMaxBounds];
  at_mosaic_given given;
  at_mosaic_timing **t;
  AT_TRY(known_bounds(d, k, own, &given));
  AT_TRY_ALLOC(t, at_new(d->arena, at_mosaic_timing *, k->num_programs + 1));
  for (uint32_t i = 0; i < k->num_programs; i++) {
    at_mosaic_given most = given;
    uint32_t found;
    if (!d->zeros)
      AT_TRY(
          at_mosaic_bounds_at_most(&k->programs[i], &most, d->arena, &found));
    AT_TRY(at_mosaic_timing_of(k, i, d->machine, &most, d->arena, &t[i]));
  }
  *out = t;
  return AT_OK;
}

// What the compiler makes of each line of source, and where VMEM goes.
static at_status view_programs(const dump *d, const at_mosaic_kernel *k,
                               at_mosaic_view **out) {
  at_mosaic_view *v;
  AT_TRY_ALLOC(v, at_new(d->arena, at_mosaic_view, k->num_programs + 1));
  for (uint32_t i = 0; i < k->num_programs; i++)
    AT_TRY(at_mosaic_view_of(k, i, d->machine, d->arena, &v[i]));
  *out = v;
  return AT_OK;
}

// An array of times in the object that is open, or why there is none.
static void put_times(const dump *d, const at_mosaic_kernel *k,
                      at_json_writer *w) {
  at_mosaic_timing **t = NULL;
  at_mosaic_view *views = NULL;
  at_status s = time_programs(d, k, &t);
  if (at_ok(s) && d->lines) s = view_programs(d, k, &views);
  if (!at_ok(s)) {
    at_json_put_str(w, "untimed", at_str_of(at_status_message(s)));
    at_status_free(s);
    return;
  }
  at_json_key(w, AT_STR("timings"));
  at_json_begin_array(w);
  for (uint32_t i = 0; i < k->num_programs; i++) {
    at_json_begin_object(w);
    at_mosaic_timing_json(t[i], w);
    if (views) at_mosaic_view_json(&views[i], w);
    at_json_end_object(w);
  }
  at_json_end_array(w);
}

// One line: the verdict, and for --timing what each program of an accepted
// kernel takes ("timings"), or why it has no time ("untimed").
static at_status put_line(dump *d, const at_mosaic_kernel *k, at_status s) {
  at_json_writer w = {&d->out, false};
  at_json_begin_object(&w);
  put_verdict(d, k ? k->name : "", s, &w);
  if (d->machine && at_ok(s)) put_times(d, k, &w);
  at_json_end_object(&w);
  at_strbuf_addc(&d->out, '\n');
  at_status_free(s);
  return AT_OK;
}

// What the code of each program is written from.
static at_status put_plan(dump *d, const at_mosaic_kernel *k) {
  at_mosaic_code_options o = {0};
  for (uint32_t i = 0; i < k->num_programs; i++) {
    AT_TRY(at_mosaic_narrow_lanes(&k->programs[i], d->arena));
    AT_TRY(at_mosaic_plan_print(k, i, &o, d->passes, d->arena, &d->out));
  }
  return AT_OK;
}

// Reads one kernel, checks it against the rules of the target, and prints what
// was asked for. With --check or --json a refusal is a line; else it ends the
// command.
static at_status dump_call(dump *d, const at_mosaic_call *call) {
  at_mosaic_kernel *k = NULL;
  d->kernels++;
  at_status s = at_mosaic_read(call, d->arena, &k);
  if (at_ok(s) && d->chip) s = at_mosaic_check(k, d->chip, d->devices);
  if (d->check || d->json) return put_line(d, k, s);
  AT_TRY(s);
  if (d->machine) return put_timing(d, k);
  if (d->plan) return put_plan(d, k);
  at_mosaic_summary(k, &d->out);
  AT_TRY(at_mosaic_print(k, d->locations, &d->out));
  at_strbuf_addc(&d->out, '\n');
  return AT_OK;
}

// ---- Programs
// A kernel's operand or result; no type where it is no tensor, or of a type
// that Atoll lacks.
static at_type type_of(at_arena *a, const at_mtype *t) {
  at_type out = {0};
  if (t->kind != AT_MTYPE_TENSOR) return out;
  at_type made;
  at_status s = at_type_make(a, at_mosaic_dtype_of(t->elem), t->shape, &made);
  if (at_ok(s)) out = made;
  at_status_free(s);
  return out;
}

// An attribute that is a string; "" where there is none.
static at_str text_of(const at_mop *op, const char *name) {
  const at_mattr *v = at_mop_attr(op, name);
  return v && v->kind == AT_MATTR_STRING ? v->str : AT_STR("");
}

// The number that an operand is in the program; AT_MDYN: not known.
static int64_t constant_of(const at_mvalue *v) {
  const at_mop *op = v->op;
  const at_mattr *a = op ? at_mop_attr(op, "value") : NULL;
  int32_t n;
  if (!a ||
      (strcmp(op->name, "stablehlo.constant") != 0 &&
       strcmp(op->name, "vhlo.constant_v1") != 0) ||
      a->data.len != sizeof n || at_mosaic_dtype_of(v->type->elem) != AT_S32)
    return AT_MDYN;
  memcpy(&n, a->data.ptr, sizeof n);
  return n;
}

// A call as the program has it, with what is known of its operands' values.
static at_status custom_call(dump *d, const at_mop *op) {
  at_mosaic_call call = {.config = text_of(op, "backend_config"),
                         .name = text_of(op, "kernel_name"),
                         .num_operands = op->num_operands,
                         .num_results = op->num_results};
  at_type *in, *out;
  AT_TRY_ALLOC(in, at_new(d->arena, at_type, op->num_operands + 1));
  AT_TRY_ALLOC(out, at_new(d->arena, at_type, op->num_results + 1));
  for (uint32_t i = 0; i < op->num_operands; i++)
    in[i] = type_of(d->arena, op->operands[i]->type);
  for (uint32_t i = 0; i < op->num_results; i++)
    out[i] = type_of(d->arena, op->results[i].type);
  call.operands = in;
  call.results = out;
  int64_t *values;
  AT_TRY_ALLOC(values, at_new(d->arena, int64_t, op->num_operands + 1));
  for (uint32_t i = 0; i < op->num_operands; i++)
    values[i] = constant_of(op->operands[i]);
  call.values = values;
  return dump_call(d, &call);
}

// Finds kernels anywhere below the op, in order. Regions are as deep as the
// reader allows.
static at_status walk(dump *d, const at_mop *op) {
  d->program |=
      !strncmp(op->name, "stablehlo.", 10) || !strncmp(op->name, "vhlo.", 5);
  if (at_str_is(text_of(op, "call_target_name"), "tpu_custom_call"))
    AT_TRY(custom_call(d, op));
  for (uint32_t r = 0; r < op->num_regions; r++)
    for (uint32_t b = 0; b < op->regions[r]->num_blocks; b++)
      for (uint32_t i = 0; i < op->regions[r]->blocks[b]->num_ops; i++)
        AT_TRY(walk(d, op->regions[r]->blocks[b]->ops[i]));
  return AT_OK;
}

// A program with kernels, or the body of one.
static at_status dump_file(dump *d) {
  at_bytes bytes;
  at_mmodule *m;
  AT_TRY(at_cli_read_file(d->file, &bytes));
  // Read as MLIR in any form; large constants borrow the bytes, which stay
  // until the walk is over.
  d->program = false;
  at_status s = at_mlir_read(bytes, false, d->arena, &m);
  uint32_t before = d->kernels;
  if (at_ok(s)) s = walk(d, m->op);
  // No call in it: then it is a kernel's body itself.
  if (at_ok(s) && d->kernels == before && d->program)
    s = AT_FAIL(AT_NOT_FOUND, "%s: the program calls no Pallas kernel",
                d->file);
  else if (at_ok(s) && d->kernels == before)
    s = dump_call(d, &(at_mosaic_call){.payload = bytes});
  free((void *)bytes.ptr);
  return s;
}

// What was printed before an error is shown, too.
at_status at_cli_dump_mosaic(int argc, char **argv) {
  dump d = {0};
  const char *target = NULL, *devices = NULL;
  at_cli_option(&argc, argv, "--target=", &target);
  at_cli_option(&argc, argv, "--devices=", &devices);
  d.check = at_cli_option(&argc, argv, "--check", NULL);
  d.locations = at_cli_option(&argc, argv, "--locations", NULL);
  d.json = at_cli_option(&argc, argv, "--json", NULL);
  d.plan = at_cli_option(&argc, argv, "--plan", NULL);
  at_cli_option(&argc, argv, "--passes=", &d.passes);
  bool timing = at_cli_option(&argc, argv, "--timing", NULL);
  at_cli_option(&argc, argv, "--trace=", &d.trace);
  at_cli_option(&argc, argv, "--bounds=", &d.bounds);
  d.lines = at_cli_option(&argc, argv, "--lines", NULL);
  d.zeros = at_cli_option(&argc, argv, "--zeros", NULL);
  AT_TRY(at_cli_no_more_options(argc, argv, "dump"));
  if (argc < 2)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "a file is needed\nhint: atoll dump --help");
  if (target && !(d.chip = at_mosaic_chip_find(at_str_of(target))))
    return AT_FAIL(AT_NOT_FOUND, "no target '%s'", target);
  if (timing)
    AT_TRY(at_machine_find(at_str_of(target ? target : "v6e"), &d.machine));
  if (d.json && !timing)
    return AT_FAIL(AT_INVALID_ARGUMENT, "--json is for --timing");
  if (devices) d.devices = (uint32_t)strtoul(devices, NULL, 10);
  at_status s = AT_OK;
  for (int i = 1; at_ok(s) && i < argc; i++) {
    // An arena for each file: kernels of one may be large.
    d.arena = at_arena_create();
    if (!d.arena) s = AT_NO_MEMORY("the kernels");
    d.file = argv[i];
    if (at_ok(s)) s = dump_file(&d);
    at_arena_destroy(d.arena);
  }
  if (at_ok(s)) s = at_strbuf_status(&d.out);
  if (d.out.len) fwrite(d.out.ptr, 1, d.out.len, stdout);
  at_strbuf_free(&d.out);
  return s;
}

// The compiler's stages over a kernel, and how a refusal reads.
#include "tpu/rules.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/config.h"
#include "base/log.h"
#include "machine/topology.h"
#include "tpu/refusal_page.h"
#include "tpu/rules_internal.h"

static const at_mosaic_chip chips[] = {
#define AT_MOSAIC_CHIP(name, kind, gen, cores, vmem, kept, scoped, smem, sem, \
                       rows, word, hbm, spmem)                                \
  {name,                                                                      \
   kind,                                                                      \
   gen,                                                                       \
   cores,                                                                     \
   (vmem)*1024ll,                                                             \
   (vmem)*1024ll - (kept)*1024ll,                                             \
   (scoped)*1024ll,                                                           \
   (smem)*1024ll,                                                             \
   sem,                                                                       \
   rows,                                                                      \
   word,                                                                      \
   hbm,                                                                       \
   spmem},
#include "tpu/rules.def"
#undef AT_MOSAIC_CHIP
};

// "v6e:2x4" and "TPU v6 lite" are both v6e.
const at_mosaic_chip *at_mosaic_chip_find(at_str target) {
  at_topology_text said;
  const at_machine *m;
  if (at_code_take(at_topology_split(target, &said))) return NULL;
  // Some chips have rules but no description.
  at_str name = said.machine;
  if (!at_code_take(at_machine_find(name, &m))) name = at_str_of(m->name);
  for (size_t i = 0; i < AT_LEN(chips); i++)
    if (at_str_is(name, chips[i].name) || at_str_is(name, chips[i].kind))
      return &chips[i];
  return NULL;
}

// ---- Refusals
// The location is left out where it would be longer than a page.
at_status at_mosaic_refuse(at_mosaic_judge *j, const at_mop *op, at_code code,
                           const char *fmt, ...) {
  // The chips' compiler says INTERNAL of kernels that it does not take, which
  // whoever watches a job takes for the loss of a device.
  if (code == AT_INTERNAL) code = AT_UNIMPLEMENTED;
  char text[1024];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  at_strbuf b = {0};
  const char *name = j->k->name;
  at_strbuf_addf(&b,
                 "Mosaic failed to compile TPU kernel with MLIR module name "
                 "`<no name>` HLO name `%s`: %s",
                 name, text);
  if (op) {
    at_mosaic_place p = at_mosaic_place_of(op->loc);
    at_strbuf loc = {0};
    at_mloc_print(&loc, op->loc);
    if (loc.len < 4000)
      at_strbuf_addf(&b, "\n\nat location: loc(%s)", loc.ptr ? loc.ptr : "");
    at_strbuf_free(&loc);
    at_strbuf_addz(&b, "\n\nThe MLIR operation involved:\n  ");
    at_mosaic_op_put(&b, op);
    if (*p.file)
      at_strbuf_addf(&b, "\n\nat: %s:%u:%u", p.file, p.line, p.column);
  }
  at_strbuf_addf(&b, "\ndetail: kernel %s, target %s", name, j->chip->name);
  at_strbuf_addz(&b,
                 "\nhint: docs/refusals.md has cause and cure; "
                 "ATOLL_LENIENT=1 runs it anyway");
  at_status s = AT_FAIL(code, "%s", b.failed ? text : b.ptr);
  at_strbuf_free(&b);
  return s;
}

// ---- Stages
typedef at_status (*stage)(at_mosaic_judge *j, const at_mop *op);

// Inner operations first, as the compiler's passes go; operations that its
// first pass drops are skipped.
static at_status walk(at_mosaic_judge *j, const at_mblock *b, stage f) {
  for (uint32_t i = 0; i < b->num_ops; i++) {
    const at_mop *op = b->ops[i];
    for (uint32_t r = 0; r < op->num_regions; r++)
      if (op->regions[r]->num_blocks)
        AT_TRY(walk(j, op->regions[r]->blocks[0], f));
    if (at_mosaic_remains(j, op)) AT_TRY(f(j, op));
  }
  return AT_OK;
}

// f16 is computed with, but no kernel may take or give it.
static at_status half_arguments(at_mosaic_judge *j) {
  bool any = false;
  for (uint32_t i = 0; i < j->p->num_windows; i++)
    any |= j->p->windows[i].ref.dtype == AT_F16;
  for (uint32_t i = 0; i < j->p->num_prefetch; i++)
    any |= j->p->prefetch[i].dtype == AT_F16;
  if (!any) return AT_OK;
  return at_mosaic_refuse(
      j, NULL, AT_INVALID_ARGUMENT,
      "Only arguments with float8e5m2, float8e4m3fn, float8e4m3b11fnuz, "
      "float8e8m0fnu, float4e2m1fn, bfloat16 or 32-bit element types are "
      "supported");
}

// Stage by stage, as the compiler stops at the first one that fails. SparseCore
// programs are judged by windows and memory only.
static at_status judge_program(at_mosaic_judge *j) {
  AT_TRY(at_mosaic_rules_windows(j));
  if (j->p->core == AT_MCORE_TC || j->p->core == AT_MCORE_ANY) {
    AT_TRY(at_mosaic_rules_mark(j));
    AT_TRY(walk(j, j->p->body, at_mosaic_rules_canonical));
    AT_TRY(walk(j, j->p->body, at_mosaic_rules_layout));
    AT_TRY(at_mosaic_rules_carried(j));
    AT_TRY(walk(j, j->p->body, at_mosaic_rules_target));
    AT_TRY(half_arguments(j));
  }
  return at_mosaic_rules_memory(j);
}

// The compiler reads the configuration before the kernel.
typedef struct flag {
  const char *name;
  enum { ANY, INTEGER } value;
} flag;
static const flag flags[] = {
#define AT_MOSAIC_FLAG(name, value) {#name, value},
#include "tpu/flags.def"
#undef AT_MOSAIC_FLAG
};

// Flags that the compiler's enum does not have, and values of the wrong kind.
static at_status judge_flag(const at_mosaic_kernel *k,
                            const at_mosaic_flag *f) {
  size_t at = 0;
  while (at < AT_LEN(flags) && strcmp(flags[at].name, f->name)) at++;
  if (at == AT_LEN(flags))
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "Could not convert JSON string to proto: unknown enum "
                   "value: '%s'\n"
                   "detail: kernel %s, a flag of its compiler parameters\n"
                   "hint: the TPU compiler knows %zu flags there, such as "
                   "XLA_TPU_FORCE_LP_LLO_SCHEDULER; ATOLL_LENIENT=1 runs it "
                   "anyway",
                   f->name, k->name, AT_LEN(flags));
  bool whole = f->value->kind == AT_JSON_NUMBER && f->value->is_int;
  if (flags[at].value == INTEGER && !whole)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "flag %s takes an integer\n"
                   "detail: kernel %s; the TPU compiler ends its process over "
                   "this\n"
                   "hint: ATOLL_LENIENT=1 runs it anyway",
                   f->name, k->name);
  return AT_OK;
}

// Flags first, then every program. Kernels of symbolic shape are not judged:
// sizes are placeholders.
static at_status check(const at_mosaic_kernel *k, const at_mosaic_chip *chip,
                       uint32_t num_devices) {
  for (uint32_t i = 0; i < k->config.num_flags; i++)
    AT_TRY(judge_flag(k, &k->config.flags[i]));
  at_arena *scratch = at_arena_create();
  if (!scratch) return AT_NO_MEMORY("the chip's rules");
  at_mosaic_judge j = {k, chip, NULL, num_devices, scratch, {0}, {0}};
  at_status s = AT_OK;
  for (uint32_t i = 0; at_ok(s) && i < k->num_programs && !k->symbolic; i++) {
    j.p = &k->programs[i];
    s = judge_program(&j);
    if (at_ok(s)) s = at_walk_status(&j.known);
  }
  at_arena_destroy(scratch);
  return s;
}

// A refusal leaves with its part of docs/refusals.md in its hint.
at_status at_mosaic_check(const at_mosaic_kernel *k, const at_mosaic_chip *chip,
                          uint32_t num_devices) {
  return at_mosaic_refusal_page(check(k, chip, num_devices));
}

// Whatever is decided here is decided once per compile.
at_status at_mosaic_admit(const at_mosaic_kernel *k, at_str target,
                          uint32_t num_devices) {
  const at_mosaic_chip *chip = at_mosaic_chip_find(target);
  if (!chip) {
    at_log_once(AT_LOG_WARNING,
                "target %.*s: the rules of its compiler are not known, so "
                "Pallas kernels run without being checked against them",
                (int)AT_MIN(target.len, (size_t)64), target.ptr);
    return AT_OK;
  }
  at_status s = at_mosaic_check(k, chip, num_devices);
  if (at_ok(s) || !at_config_flag(AT_CONFIG_LENIENT)) return s;
  at_log(AT_LOG_WARNING, "%s would refuse this kernel: %s", chip->name,
         at_status_message(s));
  at_status_free(s);
  return AT_OK;
}

// ---- Values
// Is the result 0, whatever the operands are that are not known?
static bool is_zero(const at_mop *op, const bool known[3], const int64_t x[3]) {
  switch (at_mosaic_opcode_of(op)) {
    case AT_MOSAIC_ARITH_MULI:
    case AT_MOSAIC_ARITH_ANDI:
      return (known[0] && x[0] == 0) || (known[1] && x[1] == 0);
    case AT_MOSAIC_ARITH_REMSI:
    case AT_MOSAIC_ARITH_REMUI:
      return known[1] && x[1] == 1;
    case AT_MOSAIC_ARITH_SUBI:
    case AT_MOSAIC_ARITH_XORI:
      return op->operands[0] == op->operands[1];
    default:
      return false;
  }
}

// `fuel` bounds the operations that are looked at.
static bool is_const(const at_mvalue *v, int *fuel, int64_t *out) {
  const at_mop *op = v->op;
  int64_t x[3] = {0};
  bool known[3] = {false};
  if (!op || op->num_operands > 3 || op->num_regions || --*fuel < 0)
    return false;
  bool select = at_mosaic_opcode_of(op) == AT_MOSAIC_ARITH_SELECT;
  for (uint32_t i = 0; i < op->num_operands; i++)
    if (!select || i == 0 || (known[0] && i == (x[0] ? 1u : 2u)))
      known[i] = is_const(op->operands[i], fuel, &x[i]);
  if (at_mosaic_integer_of(op, known, x, out)) return true;
  *out = 0;
  return is_zero(op, known, x);
}

// Looks at 128 operations at most, so the time does not grow with the kernel;
// what lies behind them is not known.
bool at_mosaic_value_const(const at_mvalue *v, int64_t *out) {
  int fuel = 128;
  return is_const(v, &fuel, out);
}

// Proves by the operations that make v: products, shifts, sums of multiples,
// both arms of a select. False only means "not proved".
static bool divides(const at_mvalue *v, int64_t n, int fuel) {
  int64_t c;
  if (n == 1) return true;
  if (at_mosaic_value_const(v, &c)) return c % n == 0;
  if (!v->op || fuel == 0) return false;
  const at_mop *op = v->op;
  switch (at_mosaic_opcode_of(op)) {
    case AT_MOSAIC_TPU_ASSUME_MULTIPLE:
      if (at_mosaic_attr_int(op, "multiple", &c) && c > 0 && c % n == 0)
        return true;
      return divides(op->operands[0], n, fuel - 1);
    case AT_MOSAIC_ARITH_INDEX_CAST:
    case AT_MOSAIC_ARITH_INDEX_CASTUI:
      return divides(op->operands[0], n, fuel - 1);
    case AT_MOSAIC_ARITH_MULI:
      // A constant factor takes its part of n.
      for (int i = 0; i < 2; i++)
        if (at_mosaic_value_const(op->operands[i], &c) && c > 0) {
          int64_t a = n, b = c;
          while (b) {
            int64_t r = a % b;
            a = b;
            b = r;
          }
          if (divides(op->operands[1 - i], n / a, fuel - 1)) return true;
        }
      return divides(op->operands[0], n, fuel / 2) ||
             divides(op->operands[1], n, fuel / 2);
    case AT_MOSAIC_ARITH_SHLI:
      return at_mosaic_value_const(op->operands[1], &c) && c >= 0 && c < 31 &&
             (1ll << c) % n == 0;
    case AT_MOSAIC_ARITH_ADDI:
    case AT_MOSAIC_ARITH_SUBI:
    case AT_MOSAIC_ARITH_MINSI:
    case AT_MOSAIC_ARITH_MAXSI:
      return divides(op->operands[0], n, fuel / 2) &&
             divides(op->operands[1], n, fuel / 2);
    case AT_MOSAIC_ARITH_SELECT:
      return divides(op->operands[1], n, fuel / 2) &&
             divides(op->operands[2], n, fuel / 2);
    default:
      return false;
  }
}

bool at_mosaic_value_divides(const at_mvalue *v, int64_t n) {
  return divides(v, n, 128);
}

// The laws of an executable's steps, checked from what is in the writer: every
// number names something, sizes agree, what shares memory says so, ranges are
// in order, temporaries fit. The loader (exec/check.c) refuses what breaks
// them, since blocks come from disks, too; here it is a bug of the pass that
// wrote them, and it is found where it was made.
#include "compile/steps.h"

#define BROKEN(...) AT_FAIL(AT_INTERNAL, "steps: " __VA_ARGS__)

typedef struct checker {
  at_writer *w;
  const at_xheader *h;
  const at_xstep *steps;
  const uint32_t *args;
  uint32_t num_steps, num_slots, num_types;
  const at_xio *ios[2];  // inputs, outputs
  uint32_t num_ios[2];
} checker;

// Without overflow.
static bool fits(uint64_t offset, uint64_t bytes, uint64_t all) {
  return offset <= all && bytes <= all - offset;
}

static const at_xtype *type_at(const checker *c, uint32_t i) {
  return at_writer_at(c->w, AT_XS_TYPES, i);
}

// Bytes of input or output i, which has a type.
static uint64_t io_bytes(const checker *c, bool output, uint32_t i) {
  return type_at(c, c->ios[output][i].type)->bytes;
}

// Shapes and sizes agree.
static at_status check_type(const checker *c, uint32_t i) {
  const at_xtype *t = type_at(c, i);
  if (!fits(t->dims, t->rank, at_writer_count(c->w, AT_XS_DIMS)))
    return BROKEN("type %u has no dimensions", i);
  // NULL without dimensions.
  const int64_t *dims = (const int64_t *)c->w->sections[AT_XS_DIMS].ptr;
  uint64_t bytes = at_dtype_bytes((at_dtype)t->dtype);
  for (uint32_t d = 0; d < t->rank; d++)
    bytes = at_mul(bytes, (uint64_t)dims[t->dims + d]);
  return bytes == t->bytes ? AT_OK : BROKEN("type %u has another size", i);
}

// What shares memory says so on both sides and has one size; a value lives in
// its own buffer, or in that of what it shares memory with or passes through.
static at_status check_io(const checker *c, bool output, uint32_t i) {
  const at_xio *io = &c->ios[output][i], *others = c->ios[!output];
  if (io->slot >= c->num_slots || io->alias < -1 ||
      io->alias >= (int64_t)c->num_ios[!output])
    return BROKEN("input or output %u names what is not there", i);
  if (io->alias >= 0 &&
      (others[io->alias].alias != (int32_t)i ||
       io_bytes(c, !output, (uint32_t)io->alias) != io_bytes(c, output, i)))
    return BROKEN("output and input %u do not share memory", i);
  const at_xslot *s = at_writer_at(c->w, AT_XS_SLOTS, io->slot);
  uint32_t own = output ? AT_SLOT_OUTPUT : AT_SLOT_INPUT;
  bool other = s->kind == (output ? AT_SLOT_INPUT : AT_SLOT_OUTPUT);
  bool passes = output && io->alias < 0 && other &&
                io_bytes(c, false, s->index) == io_bytes(c, true, i);
  if (s->kind != AT_SLOT_NULL &&
      (s->offset || !((s->kind == own && s->index == i) || passes ||
                      (other && (int64_t)s->index == io->alias))))
    return BROKEN("input or output %u lives elsewhere", i);
  return AT_OK;
}

// By kind: offsets within their memory, indices of arguments and results, a
// type that is not larger than the slot.
static at_status check_slot(const checker *c, uint32_t i) {
  const at_xslot *s = at_writer_at(c->w, AT_XS_SLOTS, i);
  bool good = true;
  switch (s->kind) {
    case AT_SLOT_NULL:
      good = s->bytes == 0;
      break;
    case AT_SLOT_TEMP:
      good = fits(s->offset, s->bytes, c->h->temp_bytes);
      break;
    case AT_SLOT_INPUT:
    case AT_SLOT_OUTPUT:
      good = s->index < c->num_ios[s->kind == AT_SLOT_OUTPUT] &&
             fits(s->offset, s->bytes,
                  io_bytes(c, s->kind == AT_SLOT_OUTPUT, s->index));
      break;
    case AT_SLOT_CONST:
      good = fits(s->offset, s->bytes, c->w->sections[AT_XS_CONSTANTS].len);
      break;
    default:
      good = false;
  }
  if (good && s->type != UINT32_MAX) {
    // A large constant of one element is one element.
    good = s->type < c->num_types &&
           (s->kind == AT_SLOT_CONST || type_at(c, s->type)->bytes <= s->bytes);
  }
  return good ? AT_OK : BROKEN("slot %u is nowhere", i);
}

// Arguments of a step from number `first` on: slots.
static at_status check_slots(const checker *c, const at_xstep *s,
                             uint32_t first, uint32_t end) {
  for (uint32_t k = first; k < end; k++)
    if (c->args[s->args + k] >= c->num_slots)
      return BROKEN("argument %u is no slot", k);
  return AT_OK;
}

// Regions of control flow are ranges of steps that were written before: a step
// never comes back to itself.
static at_status check_regions(const checker *c, const at_xstep *s,
                               uint32_t at) {
  if (s->num_args < 3 || s->num_args % 2 == 0 ||
      (s->kind == AT_STEP_WHILE && s->num_args != 5))
    return BROKEN("step %u has half a region", at);
  for (uint32_t k = 1; k < s->num_args; k += 2) {
    uint32_t begin = c->args[s->args + k], end = c->args[s->args + k + 1];
    if (begin > end || end > at || (k > 1 && begin < c->args[s->args + k - 1]))
      return BROKEN("step %u: region %u to %u", at, begin, end);
  }
  return check_slots(c, s, 0, 1);
}

// A start knows how far its done is, and the other way round.
static at_status check_pair(const checker *c, const at_xstep *s, uint32_t at) {
  bool start = s->kind == AT_STEP_START;
  int64_t other = start ? at + s->tasks : at - s->tasks;
  if (s->tasks <= 0 || other < 0 || other >= c->num_steps)
    return BROKEN("step %u is half of a pair", at);
  const at_xstep *o = &c->steps[other];
  if (o->tasks != s->tasks || o->kind != (start ? AT_STEP_DONE : AT_STEP_START))
    return BROKEN("step %u is paired with %lld", at, (long long)other);
  return AT_OK;
}

// What the step names exists; then by kind.
static at_status check_step(const checker *c, uint32_t at) {
  const at_xstep *s = &c->steps[at];
  if (!fits(s->args, s->num_args, at_writer_count(c->w, AT_XS_ARGS)) ||
      !fits(s->params, s->params_bytes, c->w->sections[AT_XS_PARAMS].len) ||
      s->file >= c->w->sections[AT_XS_STRINGS].len ||
      s->hlo >= c->w->sections[AT_XS_STRINGS].len)
    return BROKEN("step %u names what is not there", at);
  if (s->params_bytes && s->params % 16)
    return BROKEN("step %u: parameters out of line", at);
  if (!(s->estimated_ns >= 0)) return BROKEN("step %u takes no time", at);
  switch (s->kind) {
    case AT_STEP_KERNEL:
      if (s->target >= at_writer_count(c->w, AT_XS_KERNELS) || s->tasks < 0 ||
          s->grain < 1)
        return BROKEN("step %u runs no kernel", at);
      return check_slots(c, s, 0, s->num_args);
    case AT_STEP_WHILE:
    case AT_STEP_CASE:
      return check_regions(c, s, at);
    case AT_STEP_START:
    case AT_STEP_DONE:
      AT_TRY(check_pair(c, s, at));
      return check_slots(c, s, 0, s->num_args);
    case AT_STEP_CORE:
    case AT_STEP_COLLECTIVE:
    case AT_STEP_RUNTIME:
    case AT_STEP_SEND:
    case AT_STEP_RECV:
    case AT_STEP_CUSTOM:
      return check_slots(c, s, 0, s->num_args);
    default:
      return AT_OK;
  }
}

// Types first, then slots, then what names them.
at_status at_steps_verify(at_writer *w, const at_xheader *h) {
  checker c = {.w = w,
               .h = h,
               .steps = (at_xstep *)w->sections[AT_XS_STEPS].ptr,
               .args = (uint32_t *)w->sections[AT_XS_ARGS].ptr,
               .num_steps = at_writer_count(w, AT_XS_STEPS),
               .num_slots = at_writer_count(w, AT_XS_SLOTS),
               .num_types = at_writer_count(w, AT_XS_TYPES)};
  for (int k = 0; k < 2; k++) {
    at_xsection id = k ? AT_XS_OUTPUTS : AT_XS_INPUTS;
    c.ios[k] = (at_xio *)w->sections[id].ptr;
    c.num_ios[k] = at_writer_count(w, id);
    for (uint32_t i = 0; i < c.num_ios[k]; i++)
      if (c.ios[k][i].type >= c.num_types)
        return BROKEN("input or output %u has no type", i);
  }
  for (uint32_t i = 0; i < c.num_types; i++) AT_TRY(check_type(&c, i));
  for (uint32_t i = 0; i < c.num_slots; i++) AT_TRY(check_slot(&c, i));
  for (int k = 0; k < 2; k++)
    for (uint32_t i = 0; i < c.num_ios[k]; i++) AT_TRY(check_io(&c, k, i));
  for (uint32_t i = 0; i < c.num_steps; i++) AT_TRY(check_step(&c, i));
  if (h->main_begin > h->main_end || h->main_end > c.num_steps)
    return BROKEN("the program is %u to %u of %u", (uint32_t)h->main_begin,
                  (uint32_t)h->main_end, c.num_steps);
  return AT_OK;
}

// Validation of an executable block: every index and offset, once, at load, so
// that running needs no checks. Nothing here runs or maps code.
// Blocks come from disks and from other hosts: anything may be in one. Sections
// are checked in the order in which they refer to each other: header and
// strings, types, inputs and outputs, slots, code, then steps, with the
// parameters of each kind of step. Sizes are sums and products of what the
// block says, so they saturate or are compared without adding (in_range).
// object.c does the same for machine code.
// compile/steps_verify.c states the laws of steps for the side that writes
// them.
#include <stdlib.h>

#include "base/cpu.h"
#include "exec/exec_internal.h"

typedef struct checker {
  const uint8_t *block;
  const at_xheader *h;
  const char *strings;
  const at_xtype *types;
  const at_xslot *slots;
  const uint32_t *args;
  const at_xstep *steps;
  const at_xkernel *kernels;
  const at_xio *inputs, *outputs;
  uint8_t *taken;   // per step: inside some range already
  uint16_t *depth;  // per step: nesting of its own ranges
} checker;

enum { kMaxNesting = 200, kMaxRank = 64 };

static const struct {
  const char *name;
  size_t bytes;
} g_sections[AT_XS_COUNT] = {
    [AT_XS_STRINGS] = {"strings", 1},
    [AT_XS_DIMS] = {"dims", sizeof(int64_t)},
    [AT_XS_TYPES] = {"types", sizeof(at_xtype)},
    [AT_XS_SLOTS] = {"slots", sizeof(at_xslot)},
    [AT_XS_ARGS] = {"args", sizeof(uint32_t)},
    [AT_XS_PARAMS] = {"params", 1},
    [AT_XS_STEPS] = {"steps", sizeof(at_xstep)},
    [AT_XS_KERNELS] = {"kernels", sizeof(at_xkernel)},
    [AT_XS_OBJECTS] = {"objects", sizeof(at_xobject)},
    [AT_XS_CODE] = {"code", 1},
    [AT_XS_CONSTANTS] = {"constants", 1},
    [AT_XS_INPUTS] = {"inputs", sizeof(at_xio)},
    [AT_XS_OUTPUTS] = {"outputs", sizeof(at_xio)},
    [AT_XS_PROPERTIES] = {"properties", sizeof(at_xproperty)},
    [AT_XS_CORES] = {"cores", sizeof(at_xcore)},
    [AT_XS_CORE_REFS] = {"core refs", sizeof(at_xcore_ref)},
    [AT_XS_LOCATIONS] = {"locations", sizeof(at_xlocation)},
};

#define BAD(...) \
  AT_FAIL(AT_INVALID_ARGUMENT, "malformed executable: " __VA_ARGS__)

static uint64_t count(const checker *c, at_xsection s) {
  return c->h->sections[s].count;
}
static const void *section(const checker *c, at_xsection s) {
  return c->block + c->h->sections[s].offset;
}
// Is [begin, begin + n) inside of [0, limit)? Without overflow.
static bool in_range(uint64_t begin, uint64_t n, uint64_t limit) {
  return begin <= limit && n <= limit - begin;
}
static bool is_string(const checker *c, uint32_t offset) {
  return offset < count(c, AT_XS_STRINGS);
}

// Sections are spans of whole elements inside the block, aligned for what they
// hold; nothing is read of one before this.
static at_status check_header(checker *c, at_bytes block) {
  const at_xheader *h = (const at_xheader *)block.ptr;
  if (block.len < sizeof *h || h->magic != AT_EXECUTABLE_MAGIC)
    return BAD("no header");
  if (h->version != AT_EXECUTABLE_VERSION)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "executable of format %u; this library runs format %u\n"
                   "hint: compile the program again",
                   h->version, AT_EXECUTABLE_VERSION);
  if (h->header_bytes != sizeof *h || h->total_bytes != block.len)
    return BAD("header of %u bytes, total %llu of %zu", h->header_bytes,
               (unsigned long long)h->total_bytes, block.len);
  if (!h->num_replicas || !h->num_partitions ||
      (uint64_t)h->num_replicas * h->num_partitions > AT_MAX_DEVICES)
    return BAD("%u replicas of %u partitions", h->num_replicas,
               h->num_partitions);
  if (h->temp_bytes > 1ull << 46 || h->temp_bytes % 64)
    return BAD("scratch of %llu bytes", (unsigned long long)h->temp_bytes);
  for (int s = 0; s < AT_XS_COUNT; s++) {
    const at_xspan *x = &h->sections[s];
    uint64_t bytes;
    if (x->offset % 64 || x->count > UINT32_MAX * 4096ull ||
        __builtin_mul_overflow(x->count, g_sections[s].bytes, &bytes) ||
        !in_range(x->offset, bytes, block.len))
      return BAD("section %s: %llu at %llu of %zu", g_sections[s].name,
                 (unsigned long long)x->count, (unsigned long long)x->offset,
                 block.len);
    bool indexed = s != AT_XS_CODE && s != AT_XS_CONSTANTS;
    if (indexed && x->count > UINT32_MAX)
      return BAD("section %s: too long", g_sections[s].name);
  }
  c->h = h;
  c->block = block.ptr;
  c->strings = section(c, AT_XS_STRINGS);
  c->types = section(c, AT_XS_TYPES);
  c->slots = section(c, AT_XS_SLOTS);
  c->args = section(c, AT_XS_ARGS);
  c->steps = section(c, AT_XS_STEPS);
  c->kernels = section(c, AT_XS_KERNELS);
  c->inputs = section(c, AT_XS_INPUTS);
  c->outputs = section(c, AT_XS_OUTPUTS);
  uint64_t n = count(c, AT_XS_STRINGS);
  if (!n || c->strings[0] || c->strings[n - 1])
    return BAD("strings do not begin and end with NUL");
  if (!is_string(c, h->name)) return BAD("name outside the strings");
  return AT_OK;
}

// A type's bytes are told twice: by itself and by its dimensions.
static at_status check_types(const checker *c) {
  const int64_t *dims = section(c, AT_XS_DIMS);
  for (uint64_t i = 0; i < count(c, AT_XS_TYPES); i++) {
    const at_xtype *t = &c->types[i];
    if (t->dtype == AT_INVALID || t->dtype >= AT_DTYPE_COUNT ||
        t->rank > kMaxRank || !in_range(t->dims, t->rank, count(c, AT_XS_DIMS)))
      return BAD("type %llu", (unsigned long long)i);
    size_t bytes = at_dtype_bytes((at_dtype)t->dtype);
    bool empty = false;
    for (uint32_t d = 0; d < t->rank; d++) {
      if (dims[t->dims + d] < 0)
        return BAD("type %llu: negative dimension", (unsigned long long)i);
      empty |= dims[t->dims + d] == 0;
      if (dims[t->dims + d]) bytes = at_mul(bytes, (size_t)dims[t->dims + d]);
    }
    if (t->bytes != (empty ? 0 : bytes) || t->bytes > 1ull << 46)
      return BAD("type %llu: %llu bytes", (unsigned long long)i,
                 (unsigned long long)t->bytes);
  }
  return AT_OK;
}

// Of inputs and outputs a slot is a part of one; whose size is its type's.
static at_status check_slots(const checker *c) {
  for (uint64_t i = 0; i < count(c, AT_XS_SLOTS); i++) {
    const at_xslot *s = &c->slots[i];
    uint64_t limit = 0, things = UINT64_MAX;
    switch (s->kind) {
      case AT_SLOT_NULL:
        break;
      case AT_SLOT_INPUT:
        things = count(c, AT_XS_INPUTS);
        break;
      case AT_SLOT_OUTPUT:
        things = count(c, AT_XS_OUTPUTS);
        break;
      case AT_SLOT_TEMP:
        limit = c->h->temp_bytes;
        break;
      case AT_SLOT_CONST:
        limit = count(c, AT_XS_CONSTANTS);
        break;
      default:
        return BAD("slot %llu: kind %u", (unsigned long long)i, s->kind);
    }
    if (s->index >= things)
      return BAD("slot %llu: input or output %u", (unsigned long long)i,
                 s->index);
    if (s->kind == AT_SLOT_INPUT)
      limit = c->types[c->inputs[s->index].type].bytes;
    if (s->kind == AT_SLOT_OUTPUT)
      limit = c->types[c->outputs[s->index].type].bytes;
    if (s->kind != AT_SLOT_NULL && !in_range(s->offset, s->bytes, limit))
      return BAD("slot %llu: bytes %llu + %llu of %llu", (unsigned long long)i,
                 (unsigned long long)s->offset, (unsigned long long)s->bytes,
                 (unsigned long long)limit);
    if (s->type != UINT32_MAX && s->type >= count(c, AT_XS_TYPES))
      return BAD("slot %llu: type %u", (unsigned long long)i, s->type);
  }
  return AT_OK;
}

// An alias is told by both sides, and both have one size. A value's slot is its
// own buffer, that of what it shares memory with, or, for a result, an argument
// that passes through.
static at_status check_io(const checker *c, const at_xio *io, uint64_t i,
                          bool is_output) {
  const char *what = is_output ? "output" : "input";
  const at_xio *others = is_output ? c->inputs : c->outputs;
  uint64_t num_others = count(c, is_output ? AT_XS_INPUTS : AT_XS_OUTPUTS);
  if (io->slot >= count(c, AT_XS_SLOTS) || !is_string(c, io->memory_kind) ||
      !is_string(c, io->name) || !is_string(c, io->sharding) ||
      !is_string(c, io->layout))
    return BAD("%s %llu: reference out of range", what, (unsigned long long)i);
  if (io->alias < -1 || io->alias >= (int64_t)num_others ||
      (io->alias >= 0 && others[io->alias].alias != (int64_t)i))
    return BAD("%s %llu: alias %d", what, (unsigned long long)i, io->alias);
  if (io->alias >= 0 &&
      c->types[others[io->alias].type].bytes != c->types[io->type].bytes)
    return BAD("%s %llu: shares memory with %d, which has another size", what,
               (unsigned long long)i, io->alias);
  const at_xslot *s = &c->slots[io->slot];
  uint32_t own = is_output ? AT_SLOT_OUTPUT : AT_SLOT_INPUT;
  uint32_t other = is_output ? AT_SLOT_INPUT : AT_SLOT_OUTPUT;
  bool direct = s->kind == own && s->index == i;
  bool shared = s->kind == other && (int64_t)s->index == io->alias;
  if (is_output && io->alias < 0 && s->kind == AT_SLOT_INPUT)  // passes through
    shared =
        c->inputs[s->index].alias < 0 &&
        c->types[c->inputs[s->index].type].bytes == c->types[io->type].bytes;
  bool nothing =
      s->kind == AT_SLOT_NULL && (c->types[io->type].bytes == 0 || !is_output);
  if (!nothing && !(s->offset == 0 && (direct || shared)))
    return BAD("%s %llu lives in the wrong slot", what, (unsigned long long)i);
  return AT_OK;
}

// Before slots, whose limits are types of inputs and outputs.
static at_status check_io_types(const checker *c) {
  for (uint64_t i = 0; i < count(c, AT_XS_INPUTS); i++)
    if (c->inputs[i].type >= count(c, AT_XS_TYPES))
      return BAD("input %llu: type", (unsigned long long)i);
  for (uint64_t i = 0; i < count(c, AT_XS_OUTPUTS); i++)
    if (c->outputs[i].type >= count(c, AT_XS_TYPES))
      return BAD("output %llu: type", (unsigned long long)i);
  return AT_OK;
}

// Types, slots and aliases of inputs and outputs; at_load relies on each.
static at_status check_ios(const checker *c) {
  for (uint64_t i = 0; i < count(c, AT_XS_INPUTS); i++)
    AT_TRY(check_io(c, &c->inputs[i], i, false));
  for (uint64_t i = 0; i < count(c, AT_XS_OUTPUTS); i++)
    AT_TRY(check_io(c, &c->outputs[i], i, true));
  return AT_OK;
}

// Objects, kernels, properties. What is in the objects is object.c's to check.
static at_status check_code(const checker *c) {
  const at_xobject *objects = section(c, AT_XS_OBJECTS);
  for (uint64_t i = 0; i < count(c, AT_XS_OBJECTS); i++)
    if (!in_range(objects[i].offset, objects[i].bytes, count(c, AT_XS_CODE)))
      return BAD("object %llu lies outside the code", (unsigned long long)i);
  for (uint64_t i = 0; i < count(c, AT_XS_KERNELS); i++) {
    const at_xkernel *k = &c->kernels[i];
    if (k->kind > AT_XK_CORE_FILL || k->object >= count(c, AT_XS_OBJECTS) ||
        !is_string(c, k->symbol))
      return BAD("kernel %llu", (unsigned long long)i);
  }
  const at_xproperty *p = section(c, AT_XS_PROPERTIES);
  for (uint64_t i = 0; i < count(c, AT_XS_PROPERTIES); i++)
    if (!is_string(c, p[i].name))
      return BAD("property %llu", (unsigned long long)i);
  return AT_OK;
}

// ---- Steps
// Each step lies in at most one range, and a range lies before the step that
// owns it: ranges form a tree, so running ends and recursion is as deep as
// `depth` says.
static at_status check_range(checker *c, uint64_t owner, uint32_t begin,
                             uint32_t end) {
  if (begin > end || end > owner)
    return BAD("step %llu: range %u..%u", (unsigned long long)owner, begin,
               end);
  for (uint32_t i = begin; i < end; i++) {
    if (c->taken[i]) return BAD("step %u lies in two ranges", i);
    c->taken[i] = 1;
    if (c->steps[i].kind == AT_STEP_START &&
        (uint64_t)c->steps[i].tasks >= end - i)
      return BAD("step %u: its done lies in another range", i);
    if (owner < count(c, AT_XS_STEPS) && c->depth[i] >= c->depth[owner])
      c->depth[owner] = c->depth[i] + 1;
  }
  if (owner < count(c, AT_XS_STEPS) && c->depth[owner] > kMaxNesting)
    return BAD("control flow is nested more than %d deep", kMaxNesting);
  return AT_OK;
}

// Arguments of a loop: predicate, condition, body (begin and end of each); of a
// branch: selector, then branches.
static at_status check_control(checker *c, const at_xstep *s, uint64_t i) {
  bool loop = s->kind == AT_STEP_WHILE;
  if (loop ? s->num_args != 5 : s->num_args < 3 || s->num_args % 2 == 0)
    return BAD("step %llu: %u arguments", (unsigned long long)i, s->num_args);
  const uint32_t *a = c->args + s->args;
  uint64_t need = loop || s->target ? 1 : 4;
  if (a[0] >= count(c, AT_XS_SLOTS) || c->slots[a[0]].kind == AT_SLOT_NULL ||
      c->slots[a[0]].bytes < need)
    return BAD("step %llu: predicate or selector", (unsigned long long)i);
  for (uint32_t k = 1; k + 1 < s->num_args; k += 2)
    AT_TRY(check_range(c, i, a[k], a[k + 1]));
  return AT_OK;
}

// Parameters are the kernel's own struct: their size has to be its size.
static at_status check_runtime(const checker *c, const at_xstep *s,
                               uint64_t i) {
  if (s->target >= AT_RT_COUNT)
    return BAD("step %llu: runtime kernel %u", (unsigned long long)i,
               s->target);
  const at_k_info *k = at_k_of((at_rt_kernel)s->target);
  if (!k || !k->run)
    return AT_FAIL(AT_UNIMPLEMENTED, "runtime kernel %u is not in this build",
                   s->target);
  if (s->params_bytes != k->params_bytes || s->params % 16)
    return BAD("step %llu: %u bytes of parameters for %s, which takes %u",
               (unsigned long long)i, s->params_bytes, k->name,
               k->params_bytes);
  if (s->target != AT_RT_SORT) return AT_OK;
  const at_k_sort_params *sort =
      (const void *)((const uint8_t *)section(c, AT_XS_PARAMS) + s->params);
  if (sort->order == AT_ORDER_CUSTOM &&
      (sort->comparator >= count(c, AT_XS_KERNELS) ||
       c->kernels[sort->comparator].kind != AT_XK_COMPARATOR))
    return BAD("step %llu: comparator %u", (unsigned long long)i,
               sort->comparator);
  return AT_OK;
}

// ---- Pallas kernels
static bool is_kernel(const checker *c, uint64_t k, uint32_t kind) {
  return k < count(c, AT_XS_KERNELS) && c->kernels[k].kind == kind;
}

// Bytes of a box, saturating; SIZE_MAX when a dimension is negative.
static size_t box_bytes(const int64_t *dims, uint32_t rank, size_t elem) {
  size_t n = elem;
  for (uint32_t d = 0; d < rank; d++) {
    if (dims[d] < 0) return SIZE_MAX;
    n = at_mul(n, (size_t)dims[d]);
  }
  return n;
}

// One argument of a kernel by itself: enumerations, sizes, kernels for index
// map and fill, places.
static at_status check_core_ref(const checker *c, const at_xcore_ref *r,
                                uint64_t i) {
  bool sem = r->space == AT_CORE_SEM;
  if (r->role > AT_CORE_SCRATCH || r->space >= AT_CORE_SPACE_COUNT ||
      r->window > AT_CORE_ELEMENT || r->rank > AT_CORE_MAX_RANK ||
      r->dtype >= AT_DTYPE_COUNT || (r->dtype == AT_INVALID) != sem ||
      (sem && r->window != AT_CORE_WHOLE))
    return BAD("argument %llu of a kernel", (unsigned long long)i);
  size_t elem = sem ? AT_CORE_SEM_BYTES : at_dtype_bytes((at_dtype)r->dtype);
  if (box_bytes(r->dims, r->rank, elem) > 1ull << 46 ||
      box_bytes(r->block, r->rank, elem) > 1ull << 46)
    return BAD("argument %llu of a kernel: size", (unsigned long long)i);
  if (r->kernel && (r->window == AT_CORE_WHOLE ||
                    !is_kernel(c, r->kernel - 1, AT_XK_CORE_INDEX)))
    return BAD("argument %llu of a kernel: index map", (unsigned long long)i);
  bool fills = r->role == AT_CORE_IN && r->window != AT_CORE_WHOLE &&
               r->alias < 0 && !r->stored && !r->cores && r->rank;
  if (r->fill && (!fills || !is_kernel(c, r->fill - 1, AT_XK_CORE_FILL)))
    return BAD("argument %llu of a kernel: what makes it",
               (unsigned long long)i);
  uint64_t places = count(c, AT_XS_LOCATIONS);
  if (r->place > places || r->loaded_at > places || r->stored_at > places)
    return BAD("argument %llu of a kernel: place", (unsigned long long)i);
  for (uint32_t d = 0; r->window == AT_CORE_ELEMENT && d < r->rank; d++)
    if (r->pad_low[d] < 0 || r->pad_high[d] < 0 || r->pad_low[d] > 1ll << 40 ||
        r->pad_high[d] > 1ll << 40)
      return BAD("argument %llu of a kernel: padding", (unsigned long long)i);
  return AT_OK;
}

// The step's buffers, in the order of the kernel's arguments.
static at_status check_core_buffers(const checker *c, const at_xstep *s,
                                    const at_xcore *k, uint64_t i) {
  const at_xcore_ref *refs = section(c, AT_XS_CORE_REFS);
  uint32_t buf = k->num_dynamic, outs = 0;
  for (uint32_t r = k->refs; r < k->refs + k->num_refs; r++)
    outs += refs[r].role == AT_CORE_OUT;
  for (uint32_t b = 0; b < k->num_dynamic; b++)
    if (b >= s->num_args || c->slots[c->args[s->args + b]].bytes < 4)
      return BAD("step %llu: grid bound %u", (unsigned long long)i, b);
  uint32_t last = AT_CORE_PREFETCH;
  for (uint32_t r = k->refs; r < k->refs + k->num_refs; r++) {
    const at_xcore_ref *x = &refs[r];
    AT_TRY(check_core_ref(c, x, r));
    if (x->role < last) return BAD("step %llu: order", (unsigned long long)i);
    last = x->role;
    if (x->role == AT_CORE_SCRATCH) continue;
    // Semaphores are integers between kernels.
    size_t need = box_bytes(
        x->dims, x->rank,
        x->space == AT_CORE_SEM ? 4 : at_dtype_bytes((at_dtype)x->dtype));
    need = at_mul(need, AT_MAX((size_t)x->cores, (size_t)1));
    if (x->fill) need = 0;
    if (x->fill && !in_range(x->fill_bufs, x->num_fill_bufs, s->num_args))
      return BAD("step %llu: what makes buffer %u", (unsigned long long)i, buf);
    if (buf >= s->num_args || c->slots[c->args[s->args + buf]].bytes < need ||
        (x->role == AT_CORE_IN && x->alias >= (int64_t)outs))
      return BAD("step %llu: buffer %u of a kernel", (unsigned long long)i,
                 buf);
    buf++;
  }
  // The input of an alias is copied over the output that it names.
  uint32_t first_out = buf - outs, in = k->num_dynamic;
  for (uint32_t r = k->refs; r < k->refs + k->num_refs; r++) {
    if (refs[r].role == AT_CORE_SCRATCH) continue;
    uint32_t at = in++;
    if (refs[r].role != AT_CORE_IN || refs[r].alias < 0) continue;
    uint32_t out = first_out + (uint32_t)refs[r].alias;
    if (c->slots[c->args[s->args + out]].bytes !=
        c->slots[c->args[s->args + at]].bytes)
      return BAD("step %llu: alias of buffer %u", (unsigned long long)i, at);
  }
  return AT_OK;
}

// Several programs in a step: those of a chip's kinds of cores.
static at_status check_core(const checker *c, const at_xstep *s, uint64_t i) {
  const at_xcore *cores = section(c, AT_XS_CORES);
  if (s->aux < 1 ||
      !in_range(s->target, (uint64_t)s->aux, count(c, AT_XS_CORES)))
    return BAD("step %llu: kernel %u", (unsigned long long)i, s->target);
  for (int64_t p = 0; p < s->aux; p++) {
    const at_xcore *k = &cores[s->target + p];
    uint32_t dynamic = 0;
    if (k->type > AT_CORE_SC_VECTOR || k->grid_rank > AT_CORE_MAX_GRID ||
        !is_string(c, k->name) || !is_kernel(c, k->kernel, AT_XK_CORE_BODY) ||
        !in_range(k->refs, k->num_refs, count(c, AT_XS_CORE_REFS)) ||
        !in_range(k->locations, k->num_locations, count(c, AT_XS_LOCATIONS)) ||
        k->temp_bytes > 1ull << 40 || k->stack_bytes < -1 ||
        k->stack_bytes > 1ll << 40 || k->stack_sems < -1 ||
        k->stack_sems > 1 << 24)
      return BAD("step %llu: kernel", (unsigned long long)i);
    for (uint32_t d = 0; d < k->grid_rank; d++) {
      if (k->semantics[d] > AT_CORE_SUBCORE_PARALLEL || k->grid[d] > INT32_MAX)
        return BAD("step %llu: grid", (unsigned long long)i);
      dynamic += k->grid[d] < 0;
    }
    if (dynamic != k->num_dynamic)
      return BAD("step %llu: %u dynamic bounds", (unsigned long long)i,
                 dynamic);
    AT_TRY(check_core_buffers(c, s, k, i));
  }
  return AT_OK;
}

// Every place in a kernel's source names a text.
static at_status check_locations(const checker *c) {
  const at_xlocation *l = section(c, AT_XS_LOCATIONS);
  for (uint64_t i = 0; i < count(c, AT_XS_LOCATIONS); i++)
    if (!is_string(c, l[i].file) || !is_string(c, l[i].op))
      return BAD("location %llu", (unsigned long long)i);
  return AT_OK;
}

// ---- Collectives
// Does the last byte that a piece touches lie inside `limit`?
static bool piece_fits(uint64_t members, uint64_t piece, uint64_t rows,
                       uint64_t row, uint64_t lines, uint64_t line,
                       uint64_t run, uint64_t limit) {
  if (!rows || !lines || !run) return true;
  uint64_t a = at_mul(members - 1, piece), b = at_mul(rows - 1, row);
  uint64_t d = at_mul(lines - 1, line);
  return at_add(at_add(a, b), at_add(d, run)) <= limit;
}

// One value of a collective over groups of up to `members`: strides stay inside
// of operand and result, blocks of a reduction are what the kernels take.
static at_status check_exchange(const checker *c, const at_x_collective *x,
                                const at_x_exchange *v, uint64_t members,
                                uint64_t i) {
  bool ok = v->element_bytes > 0, reduces = x->kind <= AT_COLL_REDUCE_SCATTER;
  if (x->kind == AT_COLL_ALL_REDUCE || x->kind == AT_COLL_BROADCAST ||
      x->kind == AT_COLL_PERMUTE)
    ok &= v->operand_bytes == v->result_bytes;
  else if (x->kind == AT_COLL_RAGGED_ALL_TO_ALL)
    ok &= (v->index_bytes == 4 || v->index_bytes == 8);
  else
    ok &= piece_fits(members, v->give_piece, v->rows, v->give_row, v->lines,
                     v->give_line, v->run, v->operand_bytes) &&
          piece_fits(members, v->take_piece, v->rows, v->take_row, v->lines,
                     v->take_line, v->run, v->result_bytes);
  if (reduces && v->operand_bytes) {
    uint64_t elements = ok ? v->operand_bytes / v->element_bytes : 0;
    ok &= v->block_elements && v->block_elements * v->element_bytes <= 8192 &&
          v->tail_elements == elements % v->block_elements &&
          (v->block != UINT32_MAX || elements < v->block_elements) &&
          (v->tail != UINT32_MAX || !v->tail_elements);
    if (x->kind == AT_COLL_REDUCE_SCATTER)
      ok &= v->lines == 1 && v->give_piece == v->run &&
            v->give_row == at_mul(v->run, members) && v->take_row == v->run &&
            v->result_bytes == at_mul(v->run, v->rows) &&
            at_mul(v->give_row, v->rows) == v->operand_bytes;
    const uint32_t ids[2] = {v->block, v->tail};
    for (int k = 0; k < 2; k++)
      ok &= ids[k] == UINT32_MAX || (ids[k] < count(c, AT_XS_KERNELS) &&
                                     c->kernels[ids[k]].kind == AT_XK_RANGE);
  }
  if (ok) return AT_OK;
  return BAD("step %llu: what a collective exchanges", (unsigned long long)i);
}

// Members of a group name each other: tables agree, so no index is checked
// when devices meet.
static bool tables_fit(const at_coll *t) {
  uint32_t n = t->x->num_devices;
  for (uint32_t d = 0; d < n; d++) {
    if (t->group_of[d] == UINT32_MAX) {
      if (t->x->kind != AT_COLL_BROADCAST) return false;
      continue;
    }
    if (t->group_of[d] >= t->x->num_groups || t->begin_of[d] >= n ||
        t->size_of[d] < 1 || t->size_of[d] > n - t->begin_of[d] ||
        t->rank_of[d] >= t->size_of[d] ||
        t->members[t->begin_of[d] + t->rank_of[d]] != d)
      return false;
    for (uint32_t k = 0; k < t->size_of[d]; k++) {
      uint32_t m = t->members[t->begin_of[d] + k];
      if (m >= n || t->group_of[m] != t->group_of[d] ||
          t->begin_of[m] != t->begin_of[d] || t->size_of[m] != t->size_of[d])
        return false;
    }
    if (t->x->kind == AT_COLL_PERMUTE && t->source_of[d] != UINT32_MAX &&
        t->source_of[d] >= t->size_of[d])
      return false;
  }
  return true;
}

// The engine checks its own struct (at_sc_check); here: groups, buffers and
// kernels.
static at_status check_sparse(const checker *c, const at_xstep *s,
                              const at_coll *t, uint64_t i) {
  const at_x_sparse *x = t->sparse;
  uint64_t before = at_x_collective_bytes(t->x);
  AT_TRY(at_sc_check(x, s->params_bytes - before, t->x->num_devices));
  uint32_t operands = at_x_sparse_operands(x);
  uint32_t group = x->op == AT_SPARSE_LOCAL ? 1 : t->x->num_devices;
  bool ok = is_string(c, x->name) && s->aux == operands &&
            s->num_args == operands + at_x_sparse_results(x);
  // All devices, in their order, or each alone.
  for (uint32_t d = 0; d < t->x->num_devices; d++)
    ok &= t->size_of[d] == group && t->members[d] == d;
  for (uint32_t k = 0; ok && k < s->num_args; k++) {
    const at_xslot *slot = &c->slots[c->args[s->args + k]];
    ok &= slot->bytes >= at_sc_buffer_bytes(x, k);
  }
  for (uint32_t k = 0; ok && k < x->num_launches; k++) {
    uint32_t kernel = at_x_sparse_launches(x)[k].kernel;
    ok &= kernel < count(c, AT_XS_KERNELS) &&
          c->kernels[kernel].kind == AT_XK_RANGE;
  }
  return ok ? AT_OK
            : BAD("step %llu: a SparseCore step", (unsigned long long)i);
}

// Sizes of the parameters first, as everything else is read from them.
static at_status check_collective(const checker *c, const at_xstep *s,
                                  uint64_t i) {
  const at_x_collective *x =
      (const void *)((const uint8_t *)section(c, AT_XS_PARAMS) + s->params);
  if (s->params % 16 || s->params_bytes < sizeof *x ||
      x->kind >= AT_COLL_KINDS || x->num_values > 1u << 20 ||
      x->num_devices > AT_MAX_DEVICES || x->num_groups > x->num_devices ||
      x->num_devices != (uint64_t)c->h->num_replicas * c->h->num_partitions ||
      (x->kind == AT_COLL_SPARSE
           ? x->num_values || at_x_collective_bytes(x) + sizeof(at_x_sparse) >
                                  s->params_bytes
           : at_x_collective_bytes(x) != s->params_bytes))
    return BAD("step %llu: parameters of a collective", (unsigned long long)i);
  if (x->kind == AT_COLL_SPARSE) {
    at_coll t;
    at_coll_prepare(x, &t);
    if (!tables_fit(&t)) return BAD("step %llu: groups", (unsigned long long)i);
    return check_sparse(c, s, &t, i);
  }
  bool id = x->kind == AT_COLL_PARTITION_ID || x->kind == AT_COLL_REPLICA_ID;
  bool ragged = x->kind == AT_COLL_RAGGED_ALL_TO_ALL;
  uint32_t operands = ragged ? 6 : x->num_values;
  uint32_t results = id ? 1 : x->num_values;
  if (s->aux != operands || s->num_args != operands + results ||
      (ragged && results != 1))
    return BAD("step %llu: %u arguments", (unsigned long long)i, s->num_args);
  const uint32_t *args = c->args + s->args;
  if (id) {
    if (c->slots[args[0]].kind == AT_SLOT_NULL || c->slots[args[0]].bytes < 4)
      return BAD("step %llu: result", (unsigned long long)i);
    return AT_OK;
  }
  at_coll t;
  at_coll_prepare(x, &t);
  if (!tables_fit(&t)) return BAD("step %llu: groups", (unsigned long long)i);
  uint32_t members = 1;
  for (uint32_t d = 0; d < x->num_devices; d++)
    if (t.group_of[d] != UINT32_MAX) members = AT_MAX(members, t.size_of[d]);
  for (uint32_t k = 0; k < x->num_values; k++) {
    const at_x_exchange *v = &t.values[k];
    AT_TRY(check_exchange(c, x, v, members, i));
    if (c->slots[args[k]].bytes < v->operand_bytes ||
        c->slots[args[operands + k]].bytes < v->result_bytes)
      return BAD("step %llu: operand or result %u", (unsigned long long)i, k);
  }
  if (!ragged) return AT_OK;
  bool ok = c->slots[args[1]].bytes >= t.values[0].result_bytes;
  for (uint32_t k = 2; k < 6; k++)
    ok &= c->slots[args[k]].bytes >=
          at_mul(t.values[0].lines, t.values[0].index_bytes);
  return ok ? AT_OK
            : BAD("step %llu: offsets and sizes", (unsigned long long)i);
}

// Kinds that have something to wait for later.
static bool is_exchange(const checker *c, const at_xstep *s) {
  const at_x_collective *x =
      (const void *)((const uint8_t *)section(c, AT_XS_PARAMS) + s->params);
  return x->kind <= AT_COLL_RAGGED_ALL_TO_ALL || x->kind == AT_COLL_SPARSE;
}

// What the kind of step asks of its target, counts and parameters.
static at_status check_kind(checker *c, const at_xstep *s, uint64_t i) {
  switch (s->kind) {
    case AT_STEP_KERNEL:
      if (s->target >= count(c, AT_XS_KERNELS) ||
          c->kernels[s->target].kind != AT_XK_RANGE || s->tasks < 0 ||
          s->grain < 1)
        return BAD("step %llu: kernel %u", (unsigned long long)i, s->target);
      return AT_OK;
    case AT_STEP_RUNTIME:
      return check_runtime(c, s, i);
    case AT_STEP_WHILE:
    case AT_STEP_CASE:
      return check_control(c, s, i);
    case AT_STEP_CUSTOM:
      if (!is_string(c, s->target) || s->aux < 0 || s->aux > s->num_args)
        return BAD("step %llu: custom call", (unsigned long long)i);
      return AT_OK;
    case AT_STEP_CORE:
      return check_core(c, s, i);
    case AT_STEP_SEND:
    case AT_STEP_RECV:
      if (s->tasks < 0 || s->tasks > c->h->num_partitions)
        return BAD("step %llu: partition", (unsigned long long)i);
      return AT_OK;
    case AT_STEP_INFEED:
      return AT_FAIL(AT_UNIMPLEMENTED, "infeed is not supported");
    case AT_STEP_OUTFEED:
      return AT_FAIL(AT_UNIMPLEMENTED, "outfeed is not supported");
    case AT_STEP_COLLECTIVE:
      return check_collective(c, s, i);
    case AT_STEP_START:
      if (s->tasks < 1 || (uint64_t)s->tasks >= count(c, AT_XS_STEPS) - i ||
          s[s->tasks].kind != AT_STEP_DONE || s[s->tasks].tasks != s->tasks)
        return BAD("step %llu: no done", (unsigned long long)i);
      AT_TRY(check_collective(c, s, i));
      return is_exchange(c, s)
                 ? AT_OK
                 : BAD("step %llu: nothing to wait for", (unsigned long long)i);
    case AT_STEP_DONE:
      if (s->tasks < 1 || (uint64_t)s->tasks > i || s->num_args ||
          s[-s->tasks].kind != AT_STEP_START || s[-s->tasks].tasks != s->tasks)
        return BAD("step %llu: no start", (unsigned long long)i);
      return AT_OK;
    default:
      return BAD("step %llu: kind %u", (unsigned long long)i, s->kind);
  }
}

// Common fields, then by kind; last the program's own range, which must not
// overlap those of control flow.
static at_status check_steps(checker *c) {
  for (uint64_t i = 0; i < count(c, AT_XS_STEPS); i++) {
    const at_xstep *s = &c->steps[i];
    if (!in_range(s->args, s->num_args, count(c, AT_XS_ARGS)) ||
        !in_range(s->params, s->params_bytes, count(c, AT_XS_PARAMS)) ||
        !is_string(c, s->op_name) || !is_string(c, s->file) ||
        !is_string(c, s->hlo))
      return BAD("step %llu: reference out of range", (unsigned long long)i);
    bool control = s->kind == AT_STEP_WHILE || s->kind == AT_STEP_CASE;
    for (uint32_t k = 0; !control && k < s->num_args; k++)
      if (c->args[s->args + k] >= count(c, AT_XS_SLOTS))
        return BAD("step %llu: argument %u", (unsigned long long)i, k);
    AT_TRY(check_kind(c, s, i));
  }
  return check_range(c, count(c, AT_XS_STEPS), c->h->main_begin,
                     c->h->main_end);
}

// FAILED_PRECONDITION names a CPU feature that the code needs and this machine
// lacks.
static at_status check_machine(const checker *c) {
  uint64_t missing = c->h->cpu_features & ~at_cpu_features();
  if (!missing) return AT_OK;
  const char *name = at_cpu_feature_name(missing & -missing);
  return AT_FAIL(AT_FAILED_PRECONDITION,
                 "the program was compiled for a CPU with %s, which this "
                 "machine (or ATOLL_CPU) lacks\nhint: compile it here",
                 name);
}

// In the order in which sections refer to each other.
at_status at_executable_check(at_bytes block) {
  checker c = {0};
  AT_TRY(check_header(&c, block));
  AT_TRY(check_machine(&c));
  AT_TRY(check_types(&c));
  AT_TRY(check_io_types(&c));
  AT_TRY(check_slots(&c));
  AT_TRY(check_ios(&c));
  AT_TRY(check_code(&c));
  AT_TRY(check_locations(&c));
  size_t n = count(&c, AT_XS_STEPS);
  c.taken = calloc(n + 1, sizeof *c.taken);
  c.depth = calloc(n + 1, sizeof *c.depth);
  at_status st =
      c.taken && c.depth
          ? check_steps(&c)
          : AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory to check an executable");
  free(c.taken);
  free(c.depth);
  return st;
}

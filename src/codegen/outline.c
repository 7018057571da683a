// Elementwise ops as functions: an op that a kernel needs often and that takes
// many instructions is emitted once in the module and called. Functions that
// are compiled quickly (tier.c) call every op that takes more than a few.
#include <llvm-c/Core.h>
#include <stdio.h>

#include "codegen/emit.h"
#include "codegen/tier.h"

enum {
  kOften = 8,   // nodes of one op in a kernel; as many are emitted in place
  kShort = 40,  // instructions that are not worth a call
  kShortQuick = 16,  // from a function that is compiled quickly
  kMostParams = 6
};

// A value of at_em.outlined. fn NULL: emitted in place.
typedef struct outlined {
  LLVMValueRef fn;
  LLVMTypeRef type;
  bool complex;  // gives both parts, in a struct
} outlined;

// What is emitted: a node's op, or, with node NULL, one that needs nothing but
// operands of a real type.
typedef struct what {
  const at_node *node;
  at_op op;
  at_dtype from, to;
  uint32_t num_args;
  uint32_t shortest;  // instructions that are not worth a call
} what;

typedef struct key {
  uint64_t op, from, to, shortest;
  const void *params[kMostParams];  // types
} key;

// Bodies within bodies count, too.
static void count_uses(const at_comp *c, uint32_t *uses) {
  AT_FOR_NODES(n, c) {
    uses[n->op]++;
    for (uint32_t i = 0; i < n->num_regions; i++)
      count_uses(n->regions[i], uses);
  }
}

// Without memory for the table ops are emitted in place.
void at_em_count_ops(at_em *e, const at_node *n) {
  e->uses = at_new(e->arena, uint32_t, AT_OP_COUNT);
  for (uint32_t i = 0; e->uses && i < n->num_regions; i++)
    count_uses(n->regions[i], e->uses);
}

// What is emitted for n depends on nothing but its op and types.
static bool is_plain(const at_node *n) {
  switch (n->op) {
    case AT_OP_COMPARE:
    case AT_OP_COMPLEX:
    case AT_OP_REDUCE_PRECISION:
    case AT_OP_SELECT:
      return false;
    default:
      return at_op_is(n->op, AT_ELEMENTWISE) && n->num_operands <= 3;
  }
}

// Complex arguments are two parameters.
static uint32_t flatten(const what *n, const at_val *args, LLVMValueRef *out) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < n->num_args; i++) {
    out[count++] = args[i].re;
    if (args[i].im) out[count++] = args[i].im;
  }
  return count;
}

// Internal, with the attributes of the function that is written, so that LLVM
// may inline it. Never marked quick: it is shared.
LLVMValueRef at_em_inner_function(at_em *e, const char *name,
                                  LLVMTypeRef type) {
  LLVMValueRef fn = LLVMAddFunction(e->module, name, type);
  LLVMSetLinkage(fn, LLVMInternalLinkage);
  LLVMSetUnnamedAddress(fn, LLVMGlobalUnnamedAddr);
  LLVMAttributeRef attrs[16];
  unsigned n = LLVMGetAttributeCountAtIndex(e->fn, LLVMAttributeFunctionIndex);
  if (n > AT_LEN(attrs)) {
    at_em_fail(e, AT_FAIL(AT_INTERNAL, "a function of %u attributes", n));
    return fn;
  }
  LLVMGetAttributesAtIndex(e->fn, LLVMAttributeFunctionIndex, attrs);
  for (unsigned i = 0; i < n; i++)
    LLVMAddAttributeAtIndex(fn, LLVMAttributeFunctionIndex, attrs[i]);
  at_tier_unmark(fn);
  return fn;
}

// Counted before optimisation.
static bool is_short(LLVMValueRef fn, uint32_t shortest) {
  uint32_t n = 0;
  for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(fn); b;
       b = LLVMGetNextBasicBlock(b))
    for (LLVMValueRef i = LLVMGetFirstInstruction(b); i;
         i = LLVMGetNextInstruction(i))
      if (++n > shortest) return false;
  return true;
}

// The register that argument i has inside.
static at_val parameters(const at_val *like, LLVMValueRef fn, uint32_t *next) {
  at_val v = {LLVMGetParam(fn, (*next)++), NULL};
  if (like->im) v.im = LLVMGetParam(fn, (*next)++);
  return v;
}

// The body of o->fn, with the builder in it.
static void emit_body(at_em *e, const what *n, const at_val *args,
                      outlined *o) {
  at_val own[3] = {0};
  uint32_t next = 0;
  for (uint32_t i = 0; i < n->num_args; i++)
    own[i] = parameters(&args[i], o->fn, &next);
  at_val r = n->node ? at_em_apply_here(e, n->node, own)
                     : at_em_apply_real_here(e, n->op, n->from, own[0], own[1]);
  if (!o->complex) {
    LLVMBuildRet(e->b, r.re);
    return;
  }
  LLVMValueRef both = LLVMGetPoison(LLVMGetReturnType(o->type));
  both = LLVMBuildInsertValue(e->b, both, r.re, 0, "");
  LLVMBuildRet(e->b, LLVMBuildInsertValue(e->b, both, r.im, 1, ""));
}

// Emits the op as a function and keeps it, if it is worth a call: else o->fn is
// NULL. The emitter's own function and place are back afterwards.
static void make(at_em *e, const what *n, const at_val *args, outlined *o) {
  LLVMValueRef values[kMostParams], fn = e->fn;
  LLVMTypeRef types[kMostParams];
  uint32_t count = flatten(n, args, values);
  for (uint32_t i = 0; i < count; i++) types[i] = LLVMTypeOf(values[i]);
  LLVMTypeRef part = at_em_widen(e, at_em_reg_type(e, n->to));
  LLVMTypeRef parts[2] = {part, part};
  o->complex = at_is_complex(n->to);
  LLVMTypeRef result =
      o->complex ? LLVMStructTypeInContext(e->ctx, parts, 2, false) : part;
  o->type = LLVMFunctionType(result, types, count, false);
  char name[64];
  snprintf(name, sizeof name, "%s.%s%u", e->prefix, at_op_text(n->op),
           e->next_global++);
  LLVMBasicBlockRef entry = e->entry, here = LLVMGetInsertBlock(e->b);
  o->fn = e->fn = at_em_inner_function(e, name, o->type);
  e->entry = LLVMAppendBasicBlockInContext(e->ctx, o->fn, "entry");
  LLVMBasicBlockRef start =
      LLVMAppendBasicBlockInContext(e->ctx, o->fn, "start");
  LLVMPositionBuilderAtEnd(e->b, start);
  uint32_t scope = at_em_scope_push(e);
  emit_body(e, n, args, o);
  at_em_scope_pop(e, scope);
  LLVMPositionBuilderAtEnd(e->b, e->entry);
  LLVMBuildBr(e->b, start);
  e->fn = fn;
  e->entry = entry;
  LLVMPositionBuilderAtEnd(e->b, here);
  if (at_em_ok(e) && !is_short(o->fn, n->shortest)) return;
  LLVMDeleteFunction(o->fn);
  o->fn = NULL;
}

// By op, types and width, which are all that the code depends on; one entry for
// each in the module. NULL: no memory.
static outlined *find(at_em *e, const what *n, const at_val *args) {
  LLVMValueRef values[kMostParams];
  key *k = at_new(e->outlined.arena, key, 1);
  if (!k) return NULL;
  uint32_t count = flatten(n, args, values);
  k->op = n->op;
  k->from = n->from;
  k->to = n->to;
  k->shortest = n->shortest;
  for (uint32_t i = 0; i < count; i++) k->params[i] = LLVMTypeOf(values[i]);
  void **slot = at_map_put(&e->outlined, (at_str){(const char *)k, sizeof *k});
  if (!slot) return NULL;
  if (*slot) return *slot;
  outlined *o = *slot = at_new(e->outlined.arena, outlined, 1);
  if (o) make(e, n, args, o);
  return o;
}

// False: emitted in place instead, or e has failed.
static bool call(at_em *e, const what *n, const at_val *args, at_val *out) {
  const outlined *o = find(e, n, args);
  if (!o) {
    at_em_fail(e, AT_NO_MEMORY("functions of a kernel"));
    return false;
  }
  if (!o->fn) return false;
  LLVMValueRef values[kMostParams];
  uint32_t count = flatten(n, args, values);
  AT_ASSERT(count == LLVMCountParamTypes(o->type));
  LLVMValueRef r = LLVMBuildCall2(e->b, o->type, o->fn, values, count, "");
  *out = (at_val){r, NULL};
  if (o->complex)
    *out = (at_val){LLVMBuildExtractValue(e->b, r, 0, ""),
                    LLVMBuildExtractValue(e->b, r, 1, "")};
  return true;
}

// Functions compiled quickly call whatever is not short; others what they hold
// often.
bool at_em_apply_outlined(at_em *e, const at_node *n, const at_val *args,
                          at_val *out) {
  bool often = e->quick || (e->uses && e->uses[n->op] > kOften);
  if (!often || !is_plain(n)) return false;
  what w = {.node = n,
            .op = n->op,
            .from = at_value_type(n->operands[0])->dtype,
            .to = n->types[0].dtype,
            .num_args = n->num_operands,
            .shortest = e->quick ? kShortQuick : kShort};
  return call(e, &w, args, out);
}

// Only in functions that are compiled quickly.
bool at_em_apply_real_outlined(at_em *e, at_op op, at_dtype t, at_val a,
                               at_val b, at_val *out) {
  // is_finite gives no value of its operand's type.
  if (!e->quick || op == AT_OP_IS_FINITE) return false;
  at_val args[2] = {a, b};
  what w = {.op = op,
            .from = t,
            .to = t,
            .num_args = b.re ? 2 : 1,
            .shortest = kShortQuick};
  return call(e, &w, args, out);
}

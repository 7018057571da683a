// What the generators of random programs share. Not for other rooms.
//
// A generator takes operands from the values so far or makes new ones
// (at_gen_value, at_gen_like), fills in an at_step with random attributes that
// its op's shape rule allows, and builds it (at_step_build), which keeps the
// results for later steps. What it asks of chance depends on the seed alone.
//
// Errors: RESOURCE_EXHAUSTED; INVALID_ARGUMENT is a generator's own bug, which
// at_random_module turns into INTERNAL.
// Memory: everything is g->a's.
#ifndef ATOLL_HLO_RANDOM_INTERNAL_H_
#define ATOLL_HLO_RANDOM_INTERNAL_H_

#include "hlo/random.h"

// A program under construction. `values` are the candidates for operands: every
// result that was kept and every parameter.
typedef struct at_gen {
  at_arena *a;
  at_module *m;
  at_comp *c;  // where nodes go
  uint64_t state;
  int64_t max_elements;
  AT_VEC(at_value) values;
} at_gen;

// ---- Chance
// n must be above 0. The stream is g->state's alone, the same on every machine.
uint32_t at_gen_below(at_gen *g, uint32_t n);  // [0, n)
// True in `percent` of 100 cases.
bool at_gen_chance(at_gen *g, uint32_t percent);
// One of an array's entries.
#define AT_GEN_PICK(g, list) ((list)[at_gen_below((g), (uint32_t)AT_LEN(list))])
// In place.
void at_gen_shuffle(at_gen *g, int64_t *v, uint32_t n);
// For shapes and lists that outlive the generator's stack.
int64_t *at_gen_dims(at_gen *g, uint32_t n);  // zeros; NULL: no memory
// 1 to 64, many of them at powers of two and beside them.
int64_t at_gen_size(at_gen *g);  // a dimension's size
// A type of rank lo to hi; empty dimensions only when `empty`.
at_status at_gen_type(at_gen *g, at_dtype t, uint32_t lo, uint32_t hi,
                      bool empty, at_type *out);

// ---- Values
// A value of element type t: one that exists, a conversion of one, or a new
// parameter.
at_status at_gen_value(at_gen *g, at_dtype t, at_value *out);
// As above with a rank of lo to hi and no empty dimension.
at_status at_gen_ranked(at_gen *g, at_dtype t, uint32_t lo, uint32_t hi,
                        at_value *out);
// A value of exactly this type.
at_status at_gen_like(at_gen *g, at_type t, at_value *out);
// A new parameter, or a constant when there are many.
at_status at_gen_fresh(at_gen *g, at_type t, at_value *out);
// Random elements; not kept.
at_status at_gen_literal(at_gen *g, at_type t, at_value *out);  // a constant
// A scalar constant of c, wrapped to t.
at_status at_gen_int(at_gen *g, at_comp *c, at_dtype t, int64_t v,
                     at_value *out);
// A constant of c, one value
at_status at_gen_float(at_gen *g, at_comp *c, at_type t, double v,
                       at_value *out);  // repeated; real part of complex
// What dynamic ops take as a shape.
at_status at_gen_list(at_gen *g, const int64_t *v, uint32_t n,
                      at_value *out);  // constant i64[n]

// ---- Nodes
// A node description with room for its lists, filled by the functions below.
// Lists that attributes point to are the caller's until it is built.
typedef struct at_step {
  at_op op;
  at_value operands[16];
  uint32_t num_operands;
  at_attr attrs[20];
  uint32_t num_attrs;
  at_comp *regions[4];
  uint32_t num_regions;
  const at_type *types;
  uint32_t num_types;
} at_step;
// Each appends to the step, whose arrays are large enough for any op.
void at_step_ints(at_step *s, at_attr_id id, const int64_t *v, uint32_t n);
// An attribute of one number or enumerator.
void at_step_int(at_step *s, at_attr_id id, int64_t v);
// A text; borrowed, so usually a literal.
void at_step_str(at_step *s, at_attr_id id, const char *text);
// The next operand.
void at_step_operand(at_step *s, at_value v);
// Builds into `c`, first result to *out; not kept.
at_status at_step_in(at_comp *c, const at_step *s, at_value *out);
// Builds and keeps every result for later steps.
at_status at_step_build(at_gen *g, const at_step *s);
// Makes v a candidate for later operands.
at_status at_gen_keep(at_gen *g, at_value v);

// A region (a, b) -> op(a, b) on scalars; COMPARE gives an order.
// The region has no uses of values around it.
at_status at_gen_binary_region(at_gen *g, at_op op, at_dtype t, at_comp **out);
// Some op of a reduction that t takes and whose order matters little.
at_op at_gen_reducer(at_gen *g, at_dtype t);
// Ops that are defined exactly, for bodies.
// They take two operands of type t and give t.
at_op at_gen_exact_binary(at_gen *g, at_dtype t);

// One per generator named in random.def. It adds one node of op and type t to
// g->c, and what its operands need.
#define AT_RANDOM(Op, variant, family, types, generator) \
  at_status at_gen_##generator(at_gen *g, at_op op, at_dtype t);
#define AT_RANDOM_WITHOUT(Op, reason)
#include "hlo/random.def"
#undef AT_RANDOM
#undef AT_RANDOM_WITHOUT

#endif

// The text reader: a scanner over characters and recursive descent above it.
//
// There are no tokens. A function looks at what comes next (at_mtext_at),
// takes it (at_mtext_accept, at_mtext_expect), or reads a word, number or
// string; white space and comments are passed over by all of them but those
// that say otherwise. A function that fails leaves the reader anywhere: errors
// end the reading. Whoever recurses calls at_mtext_enter first, which bounds
// the depth.
//
// Errors: at_mtext_fail, INVALID_ARGUMENT with line and column, wherever what
// has to stand next does not; RESOURCE_EXHAUSTED when the arena refuses.
// Memory: everything is the context's arena's; words are borrowed from the
// text.
// Threads: the one that reads.
#ifndef ATOLL_MLIR_TEXT_H_
#define ATOLL_MLIR_TEXT_H_

#include "mlir/mlir_internal.h"

// A name used before it is defined.
typedef struct at_mtext_forward {
  at_mvalue **slot;
  at_str name;
  uint32_t index;
} at_mtext_forward;

// The values behind one name (%0:2 has two), and what the name meant before.
typedef struct at_mtext_group {
  at_mvalue *first;
  uint32_t count;
} at_mtext_group;

// What a name stood for before a region took it; NULL: nothing.
typedef struct at_mtext_undo {
  at_str name;
  at_mtext_group *before;
} at_mtext_undo;

// A text while it is read. p moves forward only, but for literals whose type
// stands behind them and for aliases.
typedef struct at_mtext {
  at_mctx c;
  const char *base, *p, *end;
  uint32_t depth;
  // "#name" or "!name": at_mtext_alias; found before anything else is read.
  at_map aliases;
  at_map resources;  // key: at_bytes
  at_map values;     // name without '%': at_mtext_group
  AT_VEC(at_mtext_undo) undo;
  AT_VEC(at_mtext_forward) forwards;
  // The default dialect of operation names without a dot, by region.
  const char *default_dialect;
  struct block_list *blocks;  // of the region being read
} at_mtext;

// #name or !name. One of `attr` and `type` is set once it is read.
typedef struct at_mtext_alias {
  const char *at;  // its text, after '='
  const at_mattr *attr;
  const at_mtype *type;
  bool busy;
} at_mtext_alias;

// Lists while they are read, in the arena; zero them first.
typedef AT_VEC(at_mnamed) at_mnamed_vec;
typedef AT_VEC(int64_t) at_mi64_vec;
typedef AT_VEC(const at_mattr *) at_mattr_vec;
typedef AT_VEC(const at_mtype *) at_mtype_vec;

// Everything else zero: no aliases, no values. `text` is borrowed.
void at_mtext_init(at_mtext *t, at_arena *a, at_str text);

// ---- Scanner: white space and comments are passed over first
__attribute__((format(printf, 2, 3))) at_status at_mtext_fail(at_mtext *t,
                                                              const char *fmt,
                                                              ...);
// Passes over white space and // comments.
void at_mtext_space(at_mtext *t);
// Whether lit comes next; it may be the beginning of something longer.
bool at_mtext_at(at_mtext *t, const char *lit);  // next, not taken
// Takes lit if it comes next.
bool at_mtext_accept(at_mtext *t, const char *lit);  // punctuation
// Takes the word if it comes next as a whole.
bool at_mtext_accept_word(at_mtext *t, const char *word);
// Takes what has to come next, or says that it does not.
at_status at_mtext_expect(at_mtext *t, const char *lit);
at_status at_mtext_expect_word(at_mtext *t, const char *word);
// [A-Za-z_][A-Za-z0-9_$.]*; false: not there.
bool at_mtext_word(at_mtext *t, at_str *out);
// After a sigil: letters, digits and $._- ; no space before.
bool at_mtext_suffix(at_mtext *t, at_str *out);
// With its quotes; it may hold any bytes.
at_status at_mtext_quoted(at_mtext *t, at_str *out);  // unescaped copy
// Up to 64 bits, decimal or hexadecimal.
at_status at_mtext_i64(at_mtext *t, int64_t *out);
// INVALID_ARGUMENT: v is no number of the integer type. Signless types have the
// numbers of both others, as MLIR's do; 64 bits and `index` have all.
at_status at_mtext_int_fits(at_mtext *t, const at_mtype *type, int64_t v);
// Decimal.
at_status at_mtext_f64(at_mtext *t, double *out);
// "[1, ?, 3]"; `?` is AT_MDYN.
at_status at_mtext_i64_list(at_mtext *t, const char *open, const char *close,
                            at_mi64_vec *out);
// The text of a balanced <...>, without its brackets.
at_status at_mtext_balanced(at_mtext *t, at_str *out);
at_status at_mtext_enter(at_mtext *t);  // depth; pairs with t->depth--

// ---- Grammar
// One of each, with all that belongs to it.
at_status at_mtext_read_type(at_mtext *t, const at_mtype **out);
// Appended.
at_status at_mtext_type_list(at_mtext *t, at_mtype_vec *out);  // until no comma
// "(a, b) -> c" or "(a) -> (b, c)".
at_status at_mtext_function_type(at_mtext *t, const at_mtype **out);
at_status at_mtext_read_attr(at_mtext *t, const at_mattr **out);
// With its type, where one follows behind a colon.
at_status at_mtext_number(at_mtext *t, const at_mattr **out);
// Behind their word.
at_status at_mtext_dense(at_mtext *t, const at_mattr **out);
at_status at_mtext_dense_array(at_mtext *t, const at_mattr **out);
// "0x0A1B" to bytes.
at_status at_mtext_hex_bytes(at_mtext *t, at_str s, at_bytes *out);
// Behind '#'.
at_status at_mtext_dialect_attr(at_mtext *t, const at_mattr **out);
// The body of a known attribute, "<...>" with its brackets.
at_status at_mtext_codec(at_mtext *t, const at_mcodec *k, const at_mattr **out);
// In Shardy's notation.
at_status at_mtext_sdy(at_mtext *t, const at_mcodec *k, const at_mattr **out);
// A copy in the arena, its length kept.
char *at_mtext_one_line(at_mtext *t, at_str body);  // NULL: no memory
// The body of an opaque type or attribute.
at_status at_mtext_opaque(at_mtext *t, const char **dialect, at_bytes *bytes);
// Without the brackets around it.
at_status at_mtext_conv(at_mtext *t, const at_mattr **out);
// With their brackets.
at_status at_mtext_affine_map(at_mtext *t, const at_mattr **out);
at_status at_mtext_affine_set(at_mtext *t, const at_mattr **out);
// In its brackets.
at_status at_mtext_loc(at_mtext *t, const at_mloc **out);  // after "loc"
// Where `loc` follows; else *out stays.
at_status at_mtext_opt_loc(at_mtext *t, const at_mloc **out);
// Reads the alias's definition if that was not done. INVALID_ARGUMENT: no such
// alias, or it defines itself.
at_status at_mtext_alias_find(at_mtext *t, char sigil, at_str name,
                              at_mtext_alias **out);
// "{a = 1, b}" with its braces, appended.
at_status at_mtext_dict(at_mtext *t, at_mnamed_vec *out);
// Where a brace follows.
at_status at_mtext_opt_dict(at_mtext *t, at_mnamed_vec *out);
// A name or a quoted one.
at_status at_mtext_symbol_name(at_mtext *t, at_str *out);  // after '@'
// Appends; the name is interned. a NULL: RESOURCE_EXHAUSTED.
at_status at_mnamed_add(at_mtext *t, at_mnamed_vec *v, const char *name,
                        const at_mattr *a);
// A DICT of the entries, sorted; *v is taken over.
at_status at_mtext_dict_make(at_mtext *t, at_mnamed_vec *v,
                             const at_mattr **out);
// For qsort.
int at_mnamed_order(const void *a, const void *b);

// ---- Operations
// A use by name, before it is looked up: %name#index.
typedef struct at_moperand {
  at_str name;
  uint32_t index;
} at_moperand;
typedef AT_VEC(at_moperand) at_moperand_vec;

// An operation while it is read.
typedef struct at_mopstate {
  at_mop *op;
  at_moperand_vec operands;
  at_mtype_vec results;
  at_mnamed_vec attrs;
  AT_VEC(at_mregion *) regions;
  at_mblock *made;  // by its reader
} at_mopstate;

// A use, not looked up yet.
bool at_mtext_operand(at_mtext *t, at_moperand *out);  // false: no '%'
// Appends one that has to be there.
at_status at_mtext_need_operand(at_mtext *t, at_moperand_vec *v);
// By commas, appended.
at_status at_mtext_operands(at_mtext *t, at_moperand_vec *v);  // zero or more
// Looks the operands up; `types` (n of them) are checked where not NULL.
at_status at_mtext_resolve(at_mtext *t, at_mopstate *s,
                           const at_mtype *const *types, size_t n);
// A region whose entry block has the given arguments already (names in `args`;
// NULL: the text may have its own).
typedef struct at_marg {
  at_str name;
  const at_mtype *type;
  const at_mloc *loc;
} at_marg;
typedef AT_VEC(at_marg) at_marg_vec;
// Reads it and appends it to s->regions.
at_status at_mtext_region(at_mtext *t, at_mopstate *s, const at_marg_vec *args);
// "%a: type {attrs} loc(..)", appended; *attrs may be NULL when none are
// allowed.
at_status at_mtext_argument(at_mtext *t, at_marg_vec *v, at_mnamed_vec *attrs);
// A region of one block made up by its reader.
at_status at_mtext_block_region(at_mtext *t, at_mopstate *s, at_mblock **out);
// What follows the name in the generic form.
at_status at_mtext_generic_tail(at_mtext *t, at_mopstate *s);
// Pretty forms. *known = false: no such form.
at_status at_mtext_pretty(at_mtext *t, at_mopstate *s, bool *known);
// What follows the name of func.func.
at_status at_mtext_func(at_mtext *t, at_mopstate *s);
// What follows the name of an operation of Shardy.
at_status at_mtext_sdy_op(at_mtext *t, at_mopstate *s, bool *known);
// Pretty forms by format (see formats.def); NULL: none.
const char *at_mformat_of(const char *op_name);

#endif

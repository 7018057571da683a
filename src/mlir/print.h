// What the files of the printer share.
//
// Text is appended to a buffer, and lack of memory is the buffer's to tell. A
// printer of a pretty form first asks whether the form can say all that the
// operation has; if not it returns false, what it has written is cut off, and
// the operation is printed in its generic form, which can say everything.
//
// Threads: one prints into a buffer; trees are only read.
#ifndef ATOLL_MLIR_PRINT_H_
#define ATOLL_MLIR_PRINT_H_

#include "mlir/text.h"

// A program while it is printed. The tables are filled before anything is
// printed.
typedef struct at_mprint {
  at_strbuf *out;
  at_mlir_print_options opt;
  at_arena *arena;
  at_map values;     // at_mvalue: its number + 1, twice, plus 1 for an argument
  at_map blocks;     // at_mblock: its number + 1
  at_map locs;       // at_mloc: its number + 1, in order of definition
  at_map resources;  // key: at_mattr
  uint32_t num_values, num_args, num_blocks;
  uint32_t indent;
  bool failed;  // no memory for the tables
} at_mprint;

// Text of attributes, appended. Lack of memory is the buffer's.
void at_mprint_string(at_strbuf *b, at_str s);  // quoted and escaped
// A dictionary's key.
void at_mprint_key(at_strbuf *b, at_str s);  // bare where it can be
// Quoted where it has to be.
void at_mprint_symbol(at_strbuf *b, at_str s);  // with '@'
void at_mprint_dims(at_strbuf *b, const char *open, at_dims d,
                    const char *close);
// Elements of a dense array as "1, 2".
void at_mprint_elems(at_strbuf *b, const at_mtype *elem, at_bytes data);
// A decimal that reads back to the same bits, or the bits.
void at_mprint_f64(at_strbuf *b, double v);
// The attribute in Shardy's notation, with its name; it must be at_msdy_valid.
void at_mprint_sdy(at_strbuf *b, const at_mattr *a);
// [b, 0, f]x[0, i, o]->[b, 0, f]; it must be at_mconv_valid.
void at_mprint_conv(at_strbuf *b, const at_mattr *a);  // without "<>"
// <field = value, ...> by the layout of k.
void at_mprint_struct(at_strbuf *b, const at_mattr *a, const at_mcodec *k);
// By the number of its line at the end of the file.
void at_mprint_loc(at_mprint *p, const at_mloc *l);  // " loc(..)" if asked for
// As at_mattr_print, but for what the options say.
void at_mprint_attr(at_mprint *p,
                    const at_mattr *a);  // elides, notes resources
// {name = value, ...}
void at_mprint_dict(at_mprint *p, const at_mnamed *v, uint32_t n);

// A line's end and the indentation of the next.
void at_mprint_newline(at_mprint *p);
// Its name: a number or %argN.
void at_mprint_value(at_mprint *p, const at_mvalue *v);
// By commas.
void at_mprint_values(at_mprint *p, at_mvalue *const *v, uint32_t n);
// "%arg0: type {attrs} loc(..)"; attrs NULL: none.
void at_mprint_arg(at_mprint *p, const at_mvalue *v, const at_mattr *attrs);
// With its braces. entry_header: the first block's label is printed where it
// needs one.
void at_mprint_region(at_mprint *p, const at_mregion *r, bool entry_header);
void at_mprint_function(at_mprint *p, const at_mop *op);  // its operands' types
// Pretty forms; false: this operation has to be printed generically (what was
// written is to be taken back).
// p->out may have grown before false is returned.
bool at_mprint_pretty(at_mprint *p, const at_mop *op);
// By a format of formats.def.
bool at_mprint_format(at_mprint *p, const at_mop *op, const char *format);
bool at_mprint_sdy_op(at_mprint *p, const at_mop *op);
// All attributes but those in `skip` (names with spaces around), as " {...}".
void at_mprint_rest(at_mprint *p, const at_mop *op, const char *before,
                    const char *skip);
// Kinds that pretty forms ask for; NULL is none of them.
bool at_mattr_is_enum(const at_mattr *a, const char *name);
// array<i64: ...>
bool at_mattr_is_i64s(const at_mattr *a);
// The numbers of a DENSE_ARRAY of i64; borrowed.
at_dims at_mattr_i64s(const at_mattr *a);

#endif

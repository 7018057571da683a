// What the files of the printer share.
#ifndef ATOLL_MLIR_PRINT_H_
#define ATOLL_MLIR_PRINT_H_

#include "mlir/text.h"

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

void at_mprint_string(at_strbuf *b, at_str s);  // quoted and escaped
void at_mprint_key(at_strbuf *b, at_str s);     // bare where it can be
void at_mprint_symbol(at_strbuf *b, at_str s);  // with '@'
void at_mprint_dims(at_strbuf *b, const char *open, at_dims d,
                    const char *close);
// Elements of a dense array as "1, 2".
void at_mprint_elems(at_strbuf *b, const at_mtype *elem, at_bytes data);
void at_mprint_f64(at_strbuf *b, double v);
void at_mprint_sdy(at_strbuf *b, const at_mattr *a);
void at_mprint_conv(at_strbuf *b, const at_mattr *a);  // without "<>"
void at_mprint_struct(at_strbuf *b, const at_mattr *a, const at_mcodec *k);
void at_mprint_loc(at_mprint *p, const at_mloc *l);  // " loc(..)" if asked for
void at_mprint_attr(at_mprint *p,
                    const at_mattr *a);  // elides, notes resources
void at_mprint_dict(at_mprint *p, const at_mnamed *v, uint32_t n);

void at_mprint_newline(at_mprint *p);
void at_mprint_value(at_mprint *p, const at_mvalue *v);
void at_mprint_values(at_mprint *p, at_mvalue *const *v, uint32_t n);
void at_mprint_arg(at_mprint *p, const at_mvalue *v, const at_mattr *attrs);
void at_mprint_region(at_mprint *p, const at_mregion *r, bool entry_header);
void at_mprint_function(at_mprint *p, const at_mop *op);  // its operands' types
// Pretty forms; false: this operation has to be printed generically (what was
// written is to be taken back).
bool at_mprint_pretty(at_mprint *p, const at_mop *op);
bool at_mprint_format(at_mprint *p, const at_mop *op, const char *format);
bool at_mprint_sdy_op(at_mprint *p, const at_mop *op);
// All attributes but those in `skip` (names with spaces around), as " {...}".
void at_mprint_rest(at_mprint *p, const at_mop *op, const char *before,
                    const char *skip);
bool at_mattr_is_enum(const at_mattr *a, const char *name);
bool at_mattr_is_i64s(const at_mattr *a);
at_dims at_mattr_i64s(const at_mattr *a);

#endif

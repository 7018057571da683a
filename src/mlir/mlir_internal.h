// What the files of this room share: the building context, the codec table of
// dialect attributes, and the entries of the readers into one another.
//
// Both readers make types and attributes by the constructors below, so that the
// same program has the same tree from either form: fields of structs stand in
// the order of the codec table, dictionaries are sorted, i1 integers are BOOL,
// and dense data is in memory form. Printers and the digest rely on that.
//
// Errors: INVALID_ARGUMENT with the place, RESOURCE_EXHAUSTED when the arena
// refuses. No reader trusts a length or an index.
// Memory: everything is the context's arena's, or static.
// Threads: the one that reads.
#ifndef ATOLL_MLIR_MLIR_INTERNAL_H_
#define ATOLL_MLIR_MLIR_INTERNAL_H_

#include "base/map.h"
#include "mlir/mlir.h"

// Widest integer attribute that is read, in either form.
enum { AT_MAX_ATTR_BITS = 4096 };

// Input that is nested deeper is refused: affine expressions and types, and
// regions in either form, with brackets in text.
#define AT_MLIR_MAX_DEPTH 64
#define AT_MLIR_MAX_NESTING 256

// ---- Building
// What makes types and attributes: the arena they go to, and the names so far.
typedef struct at_mctx {
  at_arena *arena;
  at_map names;  // interned, NUL-terminated
} at_mctx;

// NULL: the arena refused. A name ends at its first NUL. Equal texts give equal
// pointers within one context.
const char *at_mctx_intern(at_mctx *c, at_str s);

// Shared, static; a tree may point at them.
extern const at_mtype at_mtype_i1, at_mtype_i32, at_mtype_i64, at_mtype_f64,
    at_mtype_index, at_mtype_none;
// `unit`, and the location of what came without one.
extern const at_mattr at_mattr_unit;
extern const at_mloc at_mloc_unknown;

// Constructors return NULL only when the arena refuses.
// Zeroed but for its kind; to be filled before anybody else sees it. Made types
// and attributes are immutable.
at_mtype *at_mtype_make(at_mctx *c, at_mtype_kind kind);
// The same of an attribute.
at_mattr *at_mattr_make(at_mctx *c, at_mattr_kind kind);
// Signless, signed or unsigned, of `width` bits.
const at_mtype *at_mtype_make_int(at_mctx *c, uint32_t width, at_msign sign);
// By MLIR's name ("bf16", "f8E4M3FN"), which must be one of at_mfloat_find's.
const at_mtype *at_mtype_make_float(at_mctx *c, const char *name);
// Of type i1.
const at_mattr *at_mattr_make_bool(at_mctx *c, bool v);
// Of an integer type or index; v is not checked against its width.
const at_mattr *at_mattr_make_int(at_mctx *c, const at_mtype *type, int64_t v);
// Of type i64.
const at_mattr *at_mattr_make_i64(at_mctx *c, int64_t v);
// Of type f64.
const at_mattr *at_mattr_make_f64(at_mctx *c, double v);
// Without a type; may hold any bytes.
const at_mattr *at_mattr_make_str(at_mctx *c, at_str s);  // copies
// A type as an attribute.
const at_mattr *at_mattr_make_type(at_mctx *c, const at_mtype *t);
// array<i64: ...>; copies v.
const at_mattr *at_mattr_make_i64s(at_mctx *c, const int64_t *v, size_t n);
// array<i32: ...>; copies v.
const at_mattr *at_mattr_make_i32s(at_mctx *c, const int32_t *v, size_t n);
// A DIALECT attribute of that name whose spelling is v.
const at_mattr *at_mattr_make_enum(at_mctx *c, at_str name, at_str v);
// A reference to a symbol without nested names; `root` is copied.
const at_mattr *at_mattr_make_symbol(at_mctx *c, at_str root);
// A list; copies the pointers, not what they point to.
const at_mattr *at_mattr_make_array(at_mctx *c, const at_mattr *const *v,
                                    size_t n);

// Floats of any known format.
typedef struct at_mfloat {
  const char *name;
  uint8_t bits, exponent, mantissa;
  int16_t bias;
  // 0: IEEE infinities and NaNs; 1: no infinity, NaN is all ones (FN);
  // 2: no infinity, no negative zero: NaN is the sign bit alone (FNUZ);
  // 3: neither infinity nor NaN (f4, f6); 4: exponent only (f8E8M0FNU).
  uint8_t special;
} at_mfloat;
// By MLIR's name; static.
const at_mfloat *at_mfloat_find(at_str name);  // NULL: no such float
// Exact for formats of up to 64 bits.
double at_mfloat_decode(const at_mfloat *f, uint64_t bits);
// Nearest, ties to even; out of range as the format has it.
uint64_t at_mfloat_encode(const at_mfloat *f, double v);

// Bytes of one element in memory form; 0: not a type of dense elements.
size_t at_mtype_elem_bytes(const at_mtype *elem);
// Product of the dimensions; SIZE_MAX: dynamic or too large.
size_t at_mtype_num_elems(const at_mtype *shaped);
// An integer of that width, of whatever sign?
bool at_mtype_is_int(const at_mtype *t, uint32_t width);
// Turns raw dense bytes (MLIR's own buffer: i1 packed or not) into an
// attribute.
at_status at_mattr_dense(at_mctx *c, const at_mtype *type, at_bytes raw,
                         bool borrow, const at_mattr **out);
// For AT_VERIFY: whether what was just written of m reads as m again, with its
// locations where asked for. True where it does not read at all (its limits are
// narrower than those of trees) or is no whole module.
bool at_mlir_reads_as(const at_mmodule *m, at_str written, bool locations);
// A location in the clothes of an attribute.
const at_mattr *at_mattr_make_loc(at_mctx *c, const at_mloc *l);

// ---- Dialect attributes: one table for bytecode and text
// `layout` names the fields in order, each "name:K", separated by spaces:
//   s signed varint (INTEGER i64)     L list of them (DENSE_ARRAY i64)
//   t type (TYPE)                     S string (STRING)
//   b bool byte                       d f64 (FLOAT)
//   a attribute, o optional attribute (flag in the index)
//   q flag varint + attribute, Q flag byte + attribute
//   A list of attributes (ARRAY)
//   p optional varint                 E enum as signed varint, spelled in
//   `enums`
// An enum has an empty layout and its spellings in `enums`, from value 0 on;
// "-" stands for a value that does not exist.
typedef struct at_mcodec {
  const char *name;  // "stablehlo.dot"
  int code;          // in the dialect's bytecode; -1: text only
  const char *layout;
  const char *enums;
} at_mcodec;
// NULL: no such attribute; static.
const at_mcodec *at_mcodec_by_name(at_str name);
// By its dialect's code in bytecode. NULL: none; static.
const at_mcodec *at_mcodec_by_code(at_str dialect, uint64_t code);
// A field of a layout: its name and its letter.
typedef struct at_mfield {
  at_str name;
  char kind;
} at_mfield;
// Do the parts of a Shardy attribute (convolution) have the kinds and values
// that its notation can show?
// For attributes of Shardy.
// a has all fields of its layout, of their kinds. Printers rely on true.
bool at_msdy_valid(const at_mattr *a);
// For StableHLO's convolution dimensions.
// Each side names each of its dimensions once, below 64.
bool at_mconv_valid(const at_mattr *a);
// Walks a layout: false at its end.
bool at_mcodec_next(const char **layout, at_mfield *out);
// False: the enum has no such value.
bool at_mcodec_spelling(const char *enums, uint64_t value, at_str *out);
// The enum's value of that spelling.
int at_mcodec_value(const char *enums, at_str spelling);  // -1: no such one

// ---- Native properties of registered operations
// The attributes of an op in the order of its native encoding: names separated
// by spaces, '?' after an optional one, and "!operand" / "!result" for segment
// sizes. NULL: unknown op.
const char *at_mprops_of(at_str op_name);

// ---- Readers
// Attributes and types in text inside bytecode.
// INVALID_ARGUMENT: it does not parse, or something follows.
at_status at_mtext_attr(at_mctx *c, at_str text, const at_mattr **out);
// The same of a type.
at_status at_mtext_type(at_mctx *c, at_str text, const at_mtype **out);

// Where a reader is: bytes p to end, base <= p <= end. Passed by pointer, it
// moves; sub-ranges get cursors of their own.
typedef struct at_mcursor {
  const uint8_t *p, *end;
  const uint8_t *base;  // of the whole input: offsets in messages
} at_mcursor;

// An attribute or type of the bytecode, before and after it is read. Once read
// it is one node of the tree, however often it is used.
typedef struct at_mentry {
  at_bytes data;
  uint32_t dialect;
  bool custom;
  uint8_t state;    // 0 unread, 1 being read, 2 waiting, 3 read
  uint32_t weight;  // of the tree it stands for, once read
  uint32_t nest;    // depth of that tree, but for locations
  uint32_t chain;   // of locations in it
  union {
    const at_mattr *attr;
    const at_mtype *type;
  };
} at_mentry;

// A blob by its key.
typedef struct at_mresource {
  const char *key;
  at_bytes data;
} at_mresource;

// A bytecode file while it is read. Tables are filled section by section; every
// index of the file is held against them.
typedef struct at_mbc {
  at_mctx c;
  bool borrow;
  at_bytes all;
  // 0 to 6
  uint64_t version;
  // Borrowed from the file.
  at_str *strings;
  uint32_t num_strings;
  // Names, interned.
  const char **dialects;
  uint32_t num_dialects;
  struct {
    const char *name;
    bool registered;
  } * ops;
  uint32_t num_ops;
  // By index, in the order of the file.
  at_mentry *attrs, *types;
  uint32_t num_attrs, num_types;
  at_mresource *resources;
  uint32_t num_resources;
  at_bytes *props;
  uint32_t num_props;
  // Entries that are being read, one inside of another.
  uint32_t depth;
  uint32_t weight;  // summed up while an entry is read
  uint32_t nest;    // of its deepest child
  uint32_t chain;   // of its longest
  // An entry that must be read before the current one (see resolve).
  at_mentry *deferred;
  bool deferred_is_type;
} at_mbc;

// INVALID_ARGUMENT, with the cursor's offset in the input.
at_status at_mbc_fail(const at_mbc *r, const at_mcursor *c, const char *what);
// All readers here take their bytes off the cursor, and fail with at_mbc_fail
// where it ends before.
at_status at_mbc_byte(at_mbc *r, at_mcursor *c, uint8_t *out);
// MLIR's prefix varint: up to 64 bits in 1 to 9 bytes.
at_status at_mbc_varint(at_mbc *r, at_mcursor *c, uint64_t *out);
// The same, zigzag.
at_status at_mbc_svarint(at_mbc *r, at_mcursor *c, int64_t *out);
// A varint whose lowest bit is the flag.
at_status at_mbc_flagged(at_mbc *r, at_mcursor *c, uint64_t *out, bool *flag);
// A count of things that each take at least one more byte.
at_status at_mbc_count(at_mbc *r, at_mcursor *c, uint32_t *out);
// n bytes, borrowed from the input.
at_status at_mbc_bytes(at_mbc *r, at_mcursor *c, size_t n, at_bytes *out);
// Its length, then so many bytes, borrowed.
at_status at_mbc_blob(at_mbc *r, at_mcursor *c, at_bytes *out);
// By its number in the section of strings; borrowed.
at_status at_mbc_string(at_mbc *r, at_mcursor *c, at_str *out);
// A count, then so many; in the arena.
at_status at_mbc_svarints(at_mbc *r, at_mcursor *c, at_dims *out);
// The same, as a shape: no negative dimension but AT_MDYN.
at_status at_mbc_shape(at_mbc *r, at_mcursor *c, at_dims *out);

// Indexed attributes and types, from an operation.
// By its number; read on first use (at_mbc.deferred: after what it needs).
at_status at_mbc_attr(at_mbc *r, at_mcursor *c, const at_mattr **out);
// The same of a type.
at_status at_mbc_type(at_mbc *r, at_mcursor *c, const at_mtype **out);
// By a number that was read before; c is for the message.
at_status at_mbc_attr_at(at_mbc *r, const at_mcursor *c, uint64_t index,
                         const at_mattr **out);
// The same of a type.
at_status at_mbc_type_at(at_mbc *r, const at_mcursor *c, uint64_t index,
                         const at_mtype **out);
// A flag, then the attribute; *out NULL: absent.
at_status at_mbc_opt_attr(at_mbc *r, at_mcursor *c, const at_mattr **out);
// A count, then so many.
at_status at_mbc_attr_list(at_mbc *r, at_mcursor *c,
                           const at_mattr *const **out, uint32_t *n);
// A count, then so many.
at_status at_mbc_type_list(at_mbc *r, at_mcursor *c,
                           const at_mtype *const **out, uint32_t *n);
// An integer of the type's width.
at_status at_mbc_apint(at_mbc *r, at_mcursor *c, const at_mtype *type,
                       const at_mattr **out);
// A float of the type's format, as a double; exact for those up to 64 bits.
at_status at_mbc_apfloat(at_mbc *r, at_mcursor *c, const at_mtype *type,
                         double *out);
// By name; a name that occurs twice is INVALID_ARGUMENT.
at_status at_mbc_sort_fields(at_mbc *r, at_mcursor *c, at_mnamed *f,
                             uint32_t n);
// Custom encodings; *known = false: not understood (the cursor is then
// anywhere).
at_status at_mbc_builtin_attr(at_mbc *r, at_mcursor *c, const at_mattr **out);
// Codes of the builtin dialect's attributes from 23 on.
enum { kMbcAffineMap = 23, kMbcIntegerSet, kMbcStridedLayout, kMbcAttrCodes };
// Of those three codes; `a` is of the kind.
at_status at_mbc_affine_attr(at_mbc *r, at_mcursor *c, uint64_t code,
                             at_mattr *a);
// Names of the float types by their code in the bytecode; NULL: another type.
enum { kMbcTypeCodes = 33 };
// Static.
extern const char *const at_mbc_float_names[kMbcTypeCodes];
// Of the builtin dialect, by its code.
at_status at_mbc_builtin_type(at_mbc *r, at_mcursor *c, const at_mtype **out);
// Of another dialect, by its table of codecs.
at_status at_mbc_dialect_attr(at_mbc *r, at_mcursor *c, const char *dialect,
                              const at_mattr **out, bool *known);
// The same of a type.
at_status at_mbc_dialect_type(at_mbc *r, at_mcursor *c, const char *dialect,
                              const at_mtype **out, bool *known);

#endif

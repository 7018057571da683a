// A faithful, generic tree of an MLIR program: operations, regions, blocks,
// types, attributes, locations. Read from bytecode (every version up to 6) or
// text (generic form and StableHLO's pretty assembly), written to both. It
// knows the builtin dialect's types and attributes in full and, through
// registered readers, those of vhlo/stablehlo/chlo, sdy, tpu and the dialects
// that Mosaic bodies use; what it does not know stays as bytes
// (AT_MATTR_OPAQUE) or text.
//
// How it is used:
//
//   at_mlir_read(bytes, false, arena, &m);           bytecode or text
//   for each region r of m->op, block b of r, operation op of b:
//     op->name, at_mop_attr(op, "sym_name"), op->operands[i]->type ...
//   at_mlir_print(m, NULL, &buffer);                 back to text
//
// The tree is as the input has it and not verified: whoever reads an attribute
// asks for its kind first (it may be absent, or another one), and whoever reads
// an operation counts its operands and regions. README.md says how each
// dialect's attributes are represented.
//
// Everything lives in the arena given to the reader. Names are NUL-terminated
// and interned per module, so equal names have equal pointers within one
// module.
//
// Errors: INVALID_ARGUMENT, with the place in bytes or line and column;
// UNIMPLEMENTED for newer versions; RESOURCE_EXHAUSTED when the arena refuses.
// Printing fails for want of memory alone.
// Threads: a tree is read by any number of threads while nobody changes it.
#ifndef ATOLL_MLIR_MLIR_H_
#define ATOLL_MLIR_MLIR_H_

#include "abi/dtype.h"
#include "base/arena.h"
#include "base/digest.h"
#include "base/map.h"
#include "base/span.h"
#include "base/status.h"
#include "base/strbuf.h"

// The parts of a tree refer to each other by pointer; all of them are the
// arena's.
// An operation, its blocks and regions, types, attributes and locations.
typedef struct at_mop at_mop;
typedef struct at_mblock at_mblock;
typedef struct at_mregion at_mregion;
typedef struct at_mtype at_mtype;
typedef struct at_mattr at_mattr;
// Opaque only here: all are defined below.
typedef struct at_mloc at_mloc;

// The same number as in bytecode.
#define AT_MDYN INT64_MIN  // dynamic dimension, stride or offset

// ---- Types
// Which fields of at_mtype are set; the others are zero.
typedef enum at_mtype_kind {
  AT_MTYPE_NONE,
  // width and sign.
  AT_MTYPE_INTEGER,
  AT_MTYPE_INDEX,
  // name.
  AT_MTYPE_FLOAT,
  AT_MTYPE_COMPLEX,
  // shape, elem, encoding.
  AT_MTYPE_TENSOR,
  AT_MTYPE_UNRANKED_TENSOR,
  // shape, elem, layout, space.
  AT_MTYPE_MEMREF,
  AT_MTYPE_UNRANKED_MEMREF,
  // shape, scalable, elem.
  AT_MTYPE_VECTOR,
  // types and results.
  AT_MTYPE_FUNCTION,
  AT_MTYPE_TUPLE,
  // A dialect type: `name` is "dialect.mnemonic" ("stablehlo.token",
  // "tpu.semaphore", "vhlo.tensor_v1"), with its parameters in
  // types/attrs/ints, in the order in which the dialect's bytecode or assembly
  // gives them. VHLO's own spellings of builtin types (vhlo.tensor_v1,
  // vhlo.f32_v1, ...) are turned into the builtin kinds above by the reader.
  AT_MTYPE_DIALECT,
  AT_MTYPE_OPAQUE  // dialect `name`, undecoded bytes or text in `bytes`
} at_mtype_kind;

// How an integer type is to be read; signless ones leave it to the operations.
// The three are different types: at_mtype_eq tells them apart.
typedef enum at_msign { AT_SIGNLESS, AT_SIGNED, AT_UNSIGNED } at_msign;

// A type. Immutable once it is made, and shared; compare with at_mtype_eq, not
// by address.
struct at_mtype {
  at_mtype_kind kind;
  const char *name;      // FLOAT: "f32", "bf16", "f8E4M3FN"...; DIALECT, OPAQUE
  uint32_t width;        // INTEGER
  at_msign sign;         // INTEGER
  at_dims shape;         // TENSOR, MEMREF, VECTOR; AT_MDYN where dynamic
  at_dims scalable;      // VECTOR: rank 0, or one 0/1 per dimension
  const at_mtype *elem;  // COMPLEX, TENSOR, MEMREF, VECTOR
  const at_mattr
      *encoding;  // TENSOR: may be NULL (stablehlo.bounds: DIALECT attr)
  const at_mattr *layout;        // MEMREF: may be NULL (identity)
  const at_mattr *space;         // MEMREF: may be NULL
  const at_mtype *const *types;  // FUNCTION inputs, TUPLE, DIALECT
  uint32_t num_types;
  const at_mtype *const *results;  // FUNCTION
  uint32_t num_results;
  const at_mattr *const *attrs;  // DIALECT
  uint32_t num_attrs;
  at_dims ints;    // DIALECT
  at_bytes bytes;  // OPAQUE
};

// ---- Attributes
// Which fields of at_mattr are set; the others are zero.
typedef enum at_mattr_kind {
  AT_MATTR_UNIT,
  // i1, signless, of value 0 or 1
  // `i`.
  AT_MATTR_BOOL,
  // any other integer, or index
  // `type` with `i`, or `wide` beyond 64 bits.
  AT_MATTR_INTEGER,
  // `f`, of `type`.
  AT_MATTR_FLOAT,
  AT_MATTR_STRING,
  // The type itself is in `type`.
  AT_MATTR_TYPE,
  AT_MATTR_ARRAY,
  AT_MATTR_DICT,
  // @root::@nested
  AT_MATTR_SYMBOL,
  // elements of a tensor, vector or memref type
  AT_MATTR_DENSE,
  // array<...>: `type` is that of one element
  AT_MATTR_DENSE_ARRAY,
  // strings in place of elements: each is in `elems`
  AT_MATTR_DENSE_STRINGS,
  // a blob by its key; no data where the file has none of that key
  AT_MATTR_RESOURCE,
  // elems: indices and values, each DENSE
  AT_MATTR_SPARSE,
  AT_MATTR_AFFINE_MAP,
  AT_MATTR_INTEGER_SET,
  // a memref's layout: strides in `ints`, offset in `i`
  AT_MATTR_STRIDED,
  // a location as a value
  AT_MATTR_LOCATION,
  // elems[0] with the number `i`, which makes it unlike any other
  AT_MATTR_DISTINCT,
  // A dialect attribute: `name` is "dialect.mnemonic" ("stablehlo.dot",
  // "vhlo.comparison_direction_v1", "sdy.sharding"); enums put their spelling
  // in `str` ("GT"); structs put fields in `fields` (key "" where unnamed).
  // VHLO's spellings of builtin attributes become the builtin kinds.
  AT_MATTR_DIALECT,
  // what no reader understood: its dialect and its bytes
  AT_MATTR_OPAQUE
} at_mattr_kind;

// An entry of a dictionary, a field of a struct, an attribute of an operation.
// Name and value are the tree's.
typedef struct at_mnamed {
  const char *name;
  const at_mattr *value;
} at_mnamed;

// Affine expressions, in postfix order.
// Leaves have no operands, operations two.
typedef enum at_maffine_kind {
  AT_AFFINE_CONST,
  AT_AFFINE_DIM,
  AT_AFFINE_SYM,
  AT_AFFINE_ADD,
  AT_AFFINE_MUL,
  AT_AFFINE_MOD,
  AT_AFFINE_FLOORDIV,
  AT_AFFINE_CEILDIV
} at_maffine_kind;
// An expression over dimensions and symbols. Immutable.
typedef struct at_maffine {
  at_maffine_kind kind;
  int64_t value;  // constant, or position of a dim or symbol
  const struct at_maffine *lhs, *rhs;
} at_maffine;

// An attribute. Immutable once it is made, and shared; compare with
// at_mattr_eq, not by address.
struct at_mattr {
  at_mattr_kind kind;
  const char *name;      // DIALECT, OPAQUE (dialect), RESOURCE (key)
  const at_mtype *type;  // of INTEGER, FLOAT, DENSE*, TYPE's value; may be NULL
  int64_t i;      // BOOL; INTEGER up to 64 bits (sign-extended if signless)
  at_bytes wide;  // INTEGER over 64 bits: little-endian
  double f;       // FLOAT, widened exactly
  at_str str;     // STRING, enum spelling, SYMBOL's root (without @)
  const at_mattr *const *elems;  // ARRAY; SYMBOL's nested references; strings
  const at_mnamed *fields;       // DICT and DIALECT
  uint32_t num_elems;            // of elems or fields or exprs
  // DENSE, DENSE_ARRAY, RESOURCE: elements in memory form, row-major, little
  // endian: i1 one byte each, sub-byte integers one byte each (sign-extended if
  // signless or signed), complex as pairs. splat: one element only.
  at_bytes data;
  bool splat;
  at_dims ints;  // STRIDED: strides (offset in i); DIALECT: integer parameters
  uint32_t num_dims, num_syms;  // AFFINE_MAP, INTEGER_SET
  const at_maffine *const
      *exprs;            // AFFINE_MAP results; INTEGER_SET constraints
  const uint8_t *is_eq;  // INTEGER_SET
  const at_mloc *loc;    // LOCATION
  at_bytes bytes;        // OPAQUE: undecoded
};

// ---- Locations
// FILE: a range of text; NAME: a name and where; CALLSITE: a callee within a
// caller; FUSED: several that became one operation.
// Which fields of at_mloc are set.
typedef enum at_mloc_kind {
  AT_MLOC_UNKNOWN,
  AT_MLOC_FILE,
  AT_MLOC_NAME,
  AT_MLOC_CALLSITE,
  AT_MLOC_FUSED,
  AT_MLOC_OPAQUE
} at_mloc_kind;
// A location. Immutable and shared. Lines and columns count from 1; 0 is
// unknown.
struct at_mloc {
  at_mloc_kind kind;
  const char *text;  // FILE: file name; NAME: name
  uint32_t line, column, end_line, end_column;
  const at_mloc *child;        // NAME: inner; CALLSITE: callee
  const at_mloc *caller;       // CALLSITE
  const at_mloc *const *locs;  // FUSED
  uint32_t num_locs;
  const at_mattr *metadata;  // FUSED, may be NULL
};

// ---- Operations
// A result of an operation or an argument of a block. It lives where it is
// defined; uses point at it.
// Compare by address: two values are never the same.
typedef struct at_mvalue {
  const at_mtype *type;
  at_mop *op;        // defining operation, or NULL for a block argument
  at_mblock *block;  // owner of the argument, or NULL
  // Among the operation's results or the block's arguments.
  uint32_t index;
  const at_mloc *loc;  // block arguments
  const char *name;    // spelling in text input, may be NULL
} at_mvalue;

// An operation and all that it holds. Readers build it once; who changes a tree
// does so before others read it.
struct at_mop {
  const char *name;  // "vhlo.add_v1", "stablehlo.add", "func.func"
  at_mvalue *const *operands;
  uint32_t num_operands;
  at_mvalue *results;
  uint32_t num_results;
  // Few: at_mop_attr looks at one after the other.
  const at_mnamed *attrs;  // attributes and properties together, sorted by name
  uint32_t num_attrs;
  at_mregion *const *regions;
  uint32_t num_regions;
  // Blocks that a terminator may go to.
  at_mblock *const *successors;
  uint32_t num_successors;
  const at_mloc *loc;
  at_mblock *block;  // parent; NULL for the module
  uint32_t tag;      // 0 from the readers; for whoever walks the tree
};
// A list of operations that run in order, and its arguments.
// The last operation is the terminator, where the dialect has one.
struct at_mblock {
  at_mvalue *args;
  uint32_t num_args;
  at_mop *const *ops;
  uint32_t num_ops;
  at_mregion *region;
};
// Blocks, the first of which is the entry; none: a declaration.
struct at_mregion {
  at_mblock *const *blocks;
  uint32_t num_blocks;
  at_mop *op;
};

// What a reader returns: the tree and what the file says about itself.
// Lives in `arena`, as everything in it.
typedef struct at_mmodule {
  at_mop *op;            // builtin.module (synthesised if the input has none)
  const char *producer;  // bytecode's producer string, "" for text
  uint32_t bytecode_version;
  const char *const *dialects;  // names, with versions where given ("vhlo" ...)
  uint32_t num_dialects;
  at_arena *arena;
} at_mmodule;

// By the magic number: bytes that begin otherwise are taken for text.
static inline bool at_mlir_is_bytecode(at_bytes b) {
  return b.len >= 4 && b.ptr[0] == 'M' && b.ptr[1] == 'L' && b.ptr[2] == 0xef &&
         // Less than four bytes are text.
         b.ptr[3] == 'R';
}
// Reads bytecode or text, by its first bytes. `bytes` may go away afterwards
// unless `borrow`: then large dense data points into it.
// INVALID_ARGUMENT: malformed, with the byte offset or line:column;
// UNIMPLEMENTED: a newer bytecode version, by number.
at_status at_mlir_read(at_bytes bytes, bool borrow, at_arena *a,
                       at_mmodule **out);
// Errors, memory and `borrow` as at_mlir_read has them; INVALID_ARGUMENT for
// text, too.
at_status at_mlir_read_bytecode(at_bytes bytes, bool borrow, at_arena *a,
                                at_mmodule **out);
// The same of text; nothing is borrowed. A module that is no `module` op is
// wrapped in one.
at_status at_mlir_read_text(at_str text, at_arena *a, at_mmodule **out);

// How to print; all zero: pretty, without locations, everything.
typedef struct at_mlir_print_options {
  bool generic;    // "stablehlo.add"(%0, %1) : ... instead of the pretty form
  bool locations;  // print loc(...)
  uint32_t elide_dense_over;  // elements; 0: never
} at_mlir_print_options;
// opt NULL: pretty form, no locations, nothing left out. Appended.
// RESOURCE_EXHAUSTED only: every tree prints.
at_status at_mlir_print(const at_mmodule *m, const at_mlir_print_options *opt,
                        at_strbuf *out);
// In MLIR's syntax, appended; lack of memory is b's.
void at_mtype_print(at_strbuf *b, const at_mtype *t);
// The same of an attribute.
void at_mattr_print(at_strbuf *b, const at_mattr *t);
// The same of a location, without `loc(...)` around it.
void at_mloc_print(at_strbuf *b, const at_mloc *l);
// Bytecode, version 6, producer as given. Reading it back yields an equal tree.
at_status at_mlir_write_bytecode(const at_mmodule *m, const char *producer,
                                 at_strbuf *out);

// The operation's attribute of that name; borrowed.
const at_mattr *at_mop_attr(const at_mop *op,
                            const char *name);  // NULL: absent
// A field of a DICT or DIALECT attribute; NULL: absent, or of another kind.
const at_mattr *at_mattr_field(const at_mattr *t, const char *name);
// The same type, whichever trees the two are of. Recurses as deep as the type.
bool at_mtype_eq(const at_mtype *a, const at_mtype *b);  // structural
// The element type that an integer or float type is; INVALID: none is.
at_dtype at_mtype_dtype(const at_mtype *t);
// Structural; floats and dense data bit for bit. Recurses as deep as the
// attribute.
bool at_mattr_eq(const at_mattr *a, const at_mattr *b);
// The same operations, nested ones included, that use the same values;
// locations count where asked for. `scratch` grows with the program.
bool at_mop_eq(const at_mop *a, const at_mop *b, bool locations,
               at_arena *scratch);

// Of all that a location says, the metadata of fused ones aside. `memo` keeps
// those of its parts from call to call (at_mloc -> at_digest).
at_status at_mloc_digest(const at_mloc *l, at_map *memo, at_digest *out);
// What the owner of a digest decides. Each may be NULL.
// Called on the caller's thread; an error ends the digest with that status.
typedef struct at_mdigest_hooks {
  void *user;
  // Called at each location, in the order of the program; of: the operation
  // (at_mop), block's argument (at_mvalue) or attribute (at_mattr) that has it.
  // NULL: locations do not count.
  at_status (*place)(void *user, const void *of, const at_mloc *loc,
                     at_digest *io);
  // Called at each attribute of an operation; sets *done when it has mixed in
  // what the attribute means, else its structure counts.
  at_status (*attr)(void *user, const at_mop *op, const at_mnamed *attr,
                    at_digest *io, bool *done);
} at_mdigest_hooks;
// Mixes in an operation with all that it holds. Operations that at_mop_eq calls
// equal (without locations) have equal digests, whatever order their
// attributes, types and strings had in the file. `scratch` grows with the
// program.
at_status at_mop_digest(const at_mop *op, const at_mdigest_hooks *hooks,
                        at_arena *scratch, at_digest *io);

#endif

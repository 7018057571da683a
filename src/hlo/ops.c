// The op and attribute tables, built from ops.def and attrs.def, and the names
// of enumerated attribute values.
#include "hlo/hlo_internal.h"

#define UNWRAP(...) __VA_ARGS__
// Each op's attribute list, with the ids' short names in scope.
enum {
#define AT_ATTR(Id, ...) A_##Id = AT_ATTR_##Id,
#include "hlo/attrs.def"
#undef AT_ATTR
};

// (A, B) -> A_A, A_B: at most 20 names.
#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#define COUNT_(a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, \
               a15, a16, a17, a18, a19, a20, n, ...)                        \
  n
// The number of arguments, 1 to 20; no argument counts as one, an empty one.
#define COUNT(...)                                                            \
  COUNT_(__VA_ARGS__, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, \
         5, 4, 3, 2, 1, 0)
// Pn puts A_ in front of each of n names.
#define P1(a) A_##a
#define P2(a, ...) A_##a, P1(__VA_ARGS__)
#define P3(a, ...) A_##a, P2(__VA_ARGS__)
#define P4(a, ...) A_##a, P3(__VA_ARGS__)
#define P5(a, ...) A_##a, P4(__VA_ARGS__)
#define P6(a, ...) A_##a, P5(__VA_ARGS__)
#define P7(a, ...) A_##a, P6(__VA_ARGS__)
#define P8(a, ...) A_##a, P7(__VA_ARGS__)
#define P9(a, ...) A_##a, P8(__VA_ARGS__)
#define P10(a, ...) A_##a, P9(__VA_ARGS__)
#define P11(a, ...) A_##a, P10(__VA_ARGS__)
#define P12(a, ...) A_##a, P11(__VA_ARGS__)
#define P13(a, ...) A_##a, P12(__VA_ARGS__)
#define P14(a, ...) A_##a, P13(__VA_ARGS__)
#define P15(a, ...) A_##a, P14(__VA_ARGS__)
#define P16(a, ...) A_##a, P15(__VA_ARGS__)
#define P17(a, ...) A_##a, P16(__VA_ARGS__)
#define P18(a, ...) A_##a, P17(__VA_ARGS__)
#define P19(a, ...) A_##a, P18(__VA_ARGS__)
#define P20(a, ...) A_##a, P19(__VA_ARGS__)
// An empty list gives the single token A_, which ends the list like any other.
enum { A_ = 0 };
#define PREFIX(...) CAT(P, COUNT(__VA_ARGS__))(__VA_ARGS__)

#define AT_HLO_OP(Id, text, lo, hi, regions, traits, rule, cost, attrs, doc) \
  static const uint8_t attrs_##Id[] = {PREFIX attrs, 0};
#include "hlo/ops.def"
#undef AT_HLO_OP

enum {
  ELEMENTWISE = AT_ELEMENTWISE,
  COMMUTES = AT_COMMUTES,
  EFFECT = AT_EFFECT,
  MULTI = AT_MULTI,
  COLLECTIVE = AT_COLLECTIVE,
  INDEXING = AT_INDEXING,
  CONTROL = AT_CONTROL,
  OPAQUE = AT_OPAQUE
};

// Indexed by at_op. The list of attributes ends with a 0 that is not counted.
static const at_op_info op_table[] = {
#define AT_HLO_OP(Id, text, lo, hi, regions, traits, rule, cost, attrs, doc) \
  [AT_OP_##Id] = {                                                           \
      text,                                                                  \
      lo,                                                                    \
      hi,                                                                    \
      regions,                                                               \
      traits,                                                                \
      AT_COST_##cost,                                                        \
      at_infer_##rule,                                                       \
      attrs_##Id,                                                            \
      sizeof #attrs > sizeof "()" ? (uint32_t)sizeof attrs_##Id - 1 : 0,     \
      doc},
#include "hlo/ops.def"
#undef AT_HLO_OP
};

// A row of attrs.def.
typedef struct attr_info {
  const char *text;
  at_attr_kind kind;
} attr_info;
static const attr_info attr_table[AT_ATTR_COUNT] = {
    [AT_ATTR_NONE] = {"none", AT_KIND_INT},
#define AT_ATTR(Id, text, kind) [AT_ATTR_##Id] = {text, AT_KIND_##kind},
#include "hlo/attrs.def"
#undef AT_ATTR
};

const at_op_info *at_op_of(at_op op) {
  AT_ASSERT((unsigned)op < AT_OP_COUNT);
  return &op_table[op];
}
const char *at_op_text(at_op op) { return at_op_of(op)->text; }

// Linear: the table is short, and only readers of text ask.
bool at_op_parse(at_str text, at_op *out) {
  for (int i = 0; i < AT_OP_COUNT; i++)
    if (at_str_is(text, op_table[i].text)) return *out = (at_op)i, true;
  return false;
}

const char *at_attr_text(at_attr_id id) {
  return (unsigned)id < AT_ATTR_COUNT ? attr_table[id].text : "?";
}
at_attr_kind at_attr_kind_of(at_attr_id id) {
  return attr_table[(unsigned)id < AT_ATTR_COUNT ? id : 0].kind;
}
bool at_attr_parse(at_str text, at_attr_id *out) {
  for (int i = 1; i < AT_ATTR_COUNT; i++)
    if (at_str_is(text, attr_table[i].text)) return *out = (at_attr_id)i, true;
  return false;
}

// Any op may carry what JAX attaches to it.
bool at_op_has_attr(at_op op, at_attr_id id) {
  if (id == AT_ATTR_FRONTEND_ATTRIBUTES || id == AT_ATTR_SHARDING) return true;
  const at_op_info *info = at_op_of(op);
  for (uint32_t i = 0; i < info->attr_count; i++)
    if (info->attrs[i] == id) return true;
  return false;
}

// Value names, each list in the order of its enum in hlo.h.
static const char *const directions[] = {"EQ", "NE", "GE", "GT", "LE", "LT"};
static const char *const compare_types[] = {"NOTYPE", "FLOAT", "TOTALORDER",
                                            "SIGNED", "UNSIGNED"};
static const char *const fft_types[] = {"FFT", "IFFT", "RFFT", "IRFFT"};
static const char *const transposes[] = {"TRANSPOSE_INVALID", "NO_TRANSPOSE",
                                         "TRANSPOSE", "ADJOINT"};
static const char *const algorithms[] = {"DEFAULT", "THREE_FRY", "PHILOX"};
static const char *const distributions[] = {"INVALID", "UNIFORM", "NORMAL"};
static const char *const fusion_kinds[] = {"LOOP", "REDUCE", "KERNEL", "ROWS"};

// The names of one enum.
typedef struct name_list {
  const char *const *names;
  size_t n;
} name_list;

// The value names of an enumerated attribute, indexed by value; empty for other
// attributes.
static name_list names_of(at_attr_id id) {
#define LIST(x) \
  (name_list) { x, AT_LEN(x) }
  switch (id) {
    case AT_ATTR_COMPARISON_DIRECTION:
      return LIST(directions);
    case AT_ATTR_COMPARE_TYPE:
      return LIST(compare_types);
    case AT_ATTR_FFT_TYPE:
      return LIST(fft_types);
    case AT_ATTR_TRANSPOSE_A:
      return LIST(transposes);
    case AT_ATTR_RNG_ALGORITHM:
      return LIST(algorithms);
    case AT_ATTR_RNG_DISTRIBUTION:
      return LIST(distributions);
    case AT_ATTR_KIND:
      return LIST(fusion_kinds);
    default:
      return (name_list){NULL, 0};
  }
#undef LIST
}

// Values outside of the list have no name; NULL tells a verifier so.
const char *at_enum_text(at_attr_id id, int64_t value) {
  name_list l = names_of(id);
  return value >= 0 && (uint64_t)value < l.n ? l.names[value] : NULL;
}

bool at_enum_parse(at_attr_id id, at_str text, int64_t *out) {
  name_list l = names_of(id);
  for (size_t i = 0; i < l.n; i++)
    if (at_str_is(text, l.names[i])) return *out = (int64_t)i, true;
  return false;
}

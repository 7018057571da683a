// Prints a module as StableHLO in MLIR's generic form ("stablehlo.add"(%0, %1)
// : ...), which every version of the dialect reads. Attributes that are structs
// in StableHLO (dimension numbers, channel handles) are put together from the
// fields that the op table keeps apart; ops that only CHLO or nobody has become
// custom calls of their names.
#include "compile/stablehlo.h"

#include <stdio.h>
#include <string.h>

#include "compile/sharding.h"
#include "sparsecore/sparsecore.h"

// ---- Types and values
static void print_type(at_strbuf *b, const at_type *t) {
  if (t->dtype == AT_TOKEN) {
    at_strbuf_addz(b, "!stablehlo.token");
    return;
  }
  at_strbuf_addz(b, "tensor<");
  for (uint32_t d = 0; d < t->rank; d++)
    at_strbuf_addf(b, "%lldx", (long long)t->dims[d]);
  at_strbuf_addf(b, "%s>", at_dtype_of(t->dtype)->text);
}

// "(T, T)".
static void print_types(at_strbuf *b, const at_type *t, uint32_t n) {
  at_strbuf_addc(b, '(');
  for (uint32_t i = 0; i < n; i++) {
    if (i) at_strbuf_addz(b, ", ");
    print_type(b, &t[i]);
  }
  at_strbuf_addc(b, ')');
}

static void print_value_types(at_strbuf *b, const at_value *v, uint32_t n) {
  at_strbuf_addc(b, '(');
  for (uint32_t i = 0; i < n; i++) {
    if (i) at_strbuf_addz(b, ", ");
    print_type(b, at_value_type(v[i]));
  }
  at_strbuf_addc(b, ')');
}

// "(%v1, %v2#1)".
static void print_values(at_strbuf *b, const at_value *v, uint32_t n) {
  at_strbuf_addc(b, '(');
  for (uint32_t i = 0; i < n; i++) {
    at_strbuf_addf(b, "%s%%v%u", i ? ", " : "", v[i].node->id);
    if (v[i].node->num_results > 1) at_strbuf_addf(b, "#%u", v[i].index);
  }
  at_strbuf_addc(b, ')');
}

// Bytes that are not printable as \XX, as MLIR has it.
static void print_string(at_strbuf *b, at_str s) {
  at_strbuf_addc(b, '"');
  for (size_t i = 0; i < s.len; i++) {
    unsigned char c = (unsigned char)s.ptr[i];
    if (c < ' ' || c > '~' || c == '"' || c == '\\')
      at_strbuf_addf(b, "\\%02X", c);
    else
      at_strbuf_addc(b, (char)c);
  }
  at_strbuf_addc(b, '"');
}

// ---- Constants
static void print_element(at_strbuf *b, at_dtype t, const uint8_t *p) {
  if (t == AT_PRED)
    at_strbuf_addz(b, *p ? "true" : "false");
  else
    at_strbuf_addf(b, "%lld", (long long)at_load_int(t, p));
}

// Booleans and integers of less than a byte have a text of their own; the bytes
// of all others, of which narrow floats have one each, are written as they are.
static void print_literal(at_strbuf *b, const at_literal *l) {
  size_t each = at_dtype_bytes(l->type.dtype);
  const uint8_t *p = l->data;
  int64_t n = at_type_elements(&l->type);
  at_strbuf_addz(b, "dense<");
  if (at_dtype_of(l->type.dtype)->bits < 8 && !at_is_float(l->type.dtype)) {
    if (l->splat || n == 1) {
      print_element(b, l->type.dtype, p);
    } else {
      // Nested lists as deep as the rank.
      for (int64_t i = 0; i < n; i++) {
        int64_t inner = 1;
        if (i) at_strbuf_addz(b, ", ");
        for (uint32_t d = l->type.rank; d-- > 0;) {
          inner *= l->type.dims[d];
          if (i % inner == 0) at_strbuf_addc(b, '[');
        }
        print_element(b, l->type.dtype, p + i);
        inner = 1;
        for (uint32_t d = l->type.rank; d-- > 0;) {
          inner *= l->type.dims[d];
          if ((i + 1) % inner == 0) at_strbuf_addc(b, ']');
        }
      }
    }
  } else if (n) {
    size_t bytes = l->splat ? each : each * (size_t)n;
    at_strbuf_addz(b, "\"0x");
    for (size_t i = 0; i < bytes; i++) at_strbuf_addf(b, "%02X", p[i]);
    at_strbuf_addc(b, '"');
  }
  at_strbuf_addz(b, "> : ");
  print_type(b, &l->type);
}

// ---- Attributes
static void print_ints(at_strbuf *b, at_dims v) {
  at_strbuf_addc(b, '[');
  for (uint32_t i = 0; i < v.rank; i++)
    at_strbuf_addf(b, "%s%lld", i ? ", " : "", (long long)v.ptr[i]);
  at_strbuf_addc(b, ']');
}

// "array<i64: 1, 2>".
static void print_array(at_strbuf *b, const char *type, at_dims v) {
  at_strbuf_addf(b, "array<%s", type);
  for (uint32_t i = 0; i < v.rank; i++) {
    at_strbuf_addz(b, i ? ", " : ": ");
    if (!strcmp(type, "i1"))
      at_strbuf_addz(b, v.ptr[i] ? "true" : "false");
    else
      at_strbuf_addf(b, "%lld", (long long)v.ptr[i]);
  }
  at_strbuf_addc(b, '>');
}

// Lists of equal length, `width` at least; shorter ones end in -1.
static void print_table(at_strbuf *b, const at_dims *list, uint32_t n,
                        uint32_t width) {
  for (uint32_t i = 0; i < n; i++) width = AT_MAX(width, list[i].rank);
  at_strbuf_addz(b, "dense<");
  for (uint32_t i = 0; n && width && i < n; i++) {
    at_strbuf_addz(b, i ? ", [" : "[[");
    for (uint32_t k = 0; k < width; k++)
      at_strbuf_addf(b, "%s%lld", k ? ", " : "",
                     k < list[i].rank ? (long long)list[i].ptr[k] : -1ll);
    at_strbuf_addz(b, i + 1 < n ? "]" : "]]");
  }
  at_strbuf_addf(b, "> : tensor<%ux%uxi64>", n, width);
}

// Attributes that are fields of a struct of StableHLO's.
typedef struct field {
  at_attr_id id;
  const char *name;
} field;
static const field dot_fields[] = {
    {AT_ATTR_LHS_BATCHING_DIMENSIONS, "lhs_batching_dimensions"},
    {AT_ATTR_RHS_BATCHING_DIMENSIONS, "rhs_batching_dimensions"},
    {AT_ATTR_LHS_CONTRACTING_DIMENSIONS, "lhs_contracting_dimensions"},
    {AT_ATTR_RHS_CONTRACTING_DIMENSIONS, "rhs_contracting_dimensions"}};
static const field ragged_fields[] = {
    {AT_ATTR_LHS_BATCHING_DIMENSIONS, "lhs_batching_dimensions"},
    {AT_ATTR_RHS_BATCHING_DIMENSIONS, "rhs_batching_dimensions"},
    {AT_ATTR_LHS_CONTRACTING_DIMENSIONS, "lhs_contracting_dimensions"},
    {AT_ATTR_RHS_CONTRACTING_DIMENSIONS, "rhs_contracting_dimensions"},
    {AT_ATTR_LHS_RAGGED_DIMENSIONS, "lhs_ragged_dimensions"},
    {AT_ATTR_RHS_GROUP_DIMENSIONS, "rhs_group_dimensions"}};
static const field gather_fields[] = {
    {AT_ATTR_OFFSET_DIMS, "offset_dims"},
    {AT_ATTR_COLLAPSED_SLICE_DIMS, "collapsed_slice_dims"},
    {AT_ATTR_OPERAND_BATCHING_DIMS, "operand_batching_dims"},
    {AT_ATTR_START_INDICES_BATCHING_DIMS, "start_indices_batching_dims"},
    {AT_ATTR_START_INDEX_MAP, "start_index_map"},
    {AT_ATTR_INDEX_VECTOR_DIM, "index_vector_dim"}};
static const field scatter_fields[] = {
    {AT_ATTR_UPDATE_WINDOW_DIMS, "update_window_dims"},
    {AT_ATTR_INSERTED_WINDOW_DIMS, "inserted_window_dims"},
    {AT_ATTR_INPUT_BATCHING_DIMS, "input_batching_dims"},
    {AT_ATTR_SCATTER_INDICES_BATCHING_DIMS, "scatter_indices_batching_dims"},
    {AT_ATTR_SCATTER_DIMS_TO_OPERAND_DIMS, "scatter_dims_to_operand_dims"},
    {AT_ATTR_INDEX_VECTOR_DIM, "index_vector_dim"}};
static const field conv_fields[] = {
    {AT_ATTR_INPUT_BATCH_DIMENSION, "input_batch_dimension"},
    {AT_ATTR_INPUT_FEATURE_DIMENSION, "input_feature_dimension"},
    {AT_ATTR_INPUT_SPATIAL_DIMENSIONS, "input_spatial_dimensions"},
    {AT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION, "kernel_input_feature_dimension"},
    {AT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION,
     "kernel_output_feature_dimension"},
    {AT_ATTR_KERNEL_SPATIAL_DIMENSIONS, "kernel_spatial_dimensions"},
    {AT_ATTR_OUTPUT_BATCH_DIMENSION, "output_batch_dimension"},
    {AT_ATTR_OUTPUT_FEATURE_DIMENSION, "output_feature_dimension"},
    {AT_ATTR_OUTPUT_SPATIAL_DIMENSIONS, "output_spatial_dimensions"}};

static const struct {
  at_op op;
  const char *name, *type;
  const field *fields;
  uint32_t count;
} structs[] = {{AT_OP_DOT_GENERAL, "dot_dimension_numbers", "stablehlo.dot<",
                dot_fields, AT_LEN(dot_fields)},
               {AT_OP_RAGGED_DOT, "ragged_dot_dimension_numbers",
                "chlo.ragged_dot<", ragged_fields, AT_LEN(ragged_fields)},
               {AT_OP_GATHER, "dimension_numbers", "stablehlo.gather<",
                gather_fields, AT_LEN(gather_fields)},
               {AT_OP_DYNAMIC_GATHER, "dimension_numbers", "stablehlo.gather<",
                gather_fields, AT_LEN(gather_fields)},
               {AT_OP_SCATTER, "scatter_dimension_numbers",
                "stablehlo.scatter<", scatter_fields, AT_LEN(scatter_fields)},
               {AT_OP_CONVOLUTION, "dimension_numbers", "stablehlo.conv<raw ",
                conv_fields, AT_LEN(conv_fields)},
               {AT_OP_DYNAMIC_CONV, "dimension_numbers", "stablehlo.conv<raw ",
                conv_fields, AT_LEN(conv_fields)}};

// Structs that have all their fields in their text.
static bool is_whole(at_op op) {
  return op == AT_OP_CONVOLUTION || op == AT_OP_DYNAMIC_CONV ||
         op == AT_OP_RAGGED_DOT;
}

// Is the attribute part of a struct of n's op?
static bool is_field(const at_node *n, at_attr_id id) {
  for (size_t s = 0; s < AT_LEN(structs); s++)
    for (uint32_t i = 0; structs[s].op == n->op && i < structs[s].count; i++)
      if (structs[s].fields[i].id == id) return true;
  return false;
}

// The separator and the name; *first: nothing was printed yet.
static void next_attr(at_strbuf *b, bool *first, const char *name) {
  at_strbuf_addf(b, "%s%s", *first ? " {" : ", ", name);
  *first = false;
}

// Dimension numbers of n as one attribute.
static void print_struct(at_strbuf *b, const at_node *n, bool *first) {
  for (size_t s = 0; s < AT_LEN(structs); s++) {
    if (structs[s].op != n->op) continue;
    next_attr(b, first, structs[s].name);
    at_strbuf_addf(b, " = #%s", structs[s].type);
    bool any = false;
    for (uint32_t i = 0; i < structs[s].count; i++) {
      at_attr_id id = structs[s].fields[i].id;
      const at_attr *a = at_node_attr(n, id);
      bool list = at_attr_kind_of(id) == AT_KIND_INTS;
      bool empty = list ? !at_node_ints(n, id).rank : !a;
      if (empty && !(list && is_whole(n->op))) continue;
      at_strbuf_addf(b, "%s%s = ", any ? ", " : "", structs[s].fields[i].name);
      any = true;
      if (list)
        print_ints(b, at_node_ints(n, id));
      else
        at_strbuf_addf(b, "%lld", (long long)a->i);
    }
    at_strbuf_addc(b, '>');
  }
}

// Values out of range print as DEFAULT.
static void print_precision(at_strbuf *b, const at_node *n, at_dims v) {
  static const char *const names[] = {"DEFAULT", "HIGH", "HIGHEST"};
  at_strbuf_addc(b, '[');
  for (uint32_t i = 0; i < v.rank; i++)
    at_strbuf_addf(b, "%s#%s<precision %s>", i ? ", " : "",
                   n->op == AT_OP_RAGGED_DOT ? "chlo" : "stablehlo",
                   names[v.ptr[i] >= 0 && v.ptr[i] < 3 ? v.ptr[i] : 0]);
  at_strbuf_addc(b, ']');
}

// Pairs [low, high].
static void print_padding(at_strbuf *b, at_dims v) {
  at_strbuf_addz(b, "dense<");
  for (uint32_t i = 0; i + 1 < v.rank; i += 2)
    at_strbuf_addf(b, "%s[%lld, %lld]%s", i ? ", " : "[", (long long)v.ptr[i],
                   (long long)v.ptr[i + 1], i + 2 < v.rank ? "" : "]");
  at_strbuf_addf(b, "> : tensor<%ux2xi64>", v.rank / 2);
}

// The attribute's name in StableHLO.
static const char *name_of(const at_node *n, at_attr_id id) {
  switch (id) {
    case AT_ATTR_DIMENSION:
      return n->op == AT_OP_IOTA || n->op == AT_OP_DYNAMIC_IOTA
                 ? "iota_dimension"
                 : "dimension";
    case AT_ATTR_CALLEE:
      return n->op == AT_OP_COMPOSITE ? "decomposition" : "callee";
    case AT_ATTR_PRECISION:
      return "precision_config";
    case AT_ATTR_CHANNEL_ID:
      return "channel_handle";
    case AT_ATTR_FRONTEND_ATTRIBUTES:
      return "mhlo.frontend_attributes";
    default:
      return at_attr_text(id);
  }
}

static void print_dict(at_strbuf *b, const at_attr *a) {
  at_strbuf_addc(b, '{');
  for (uint32_t i = 0; i < a->dict.n; i++) {
    if (i) at_strbuf_addz(b, ", ");
    print_string(b, a->dict.kv[2 * i]);
    at_strbuf_addz(b, " = ");
    print_string(b, a->dict.kv[2 * i + 1]);
  }
  at_strbuf_addc(b, '}');
}

// The enumeration's name in StableHLO.
static const char *enum_of(at_attr_id id) {
  switch (id) {
    case AT_ATTR_COMPARE_TYPE:
      return "comparison_type";
    case AT_ATTR_TRANSPOSE_A:
      return "transpose";
    default:
      return at_attr_text(id);
  }
}

// Channel handles are structs of one number; some attributes are i32.
static void print_int(at_strbuf *b, const at_attr *a) {
  if (a->id == AT_ATTR_CHANNEL_ID) {
    at_strbuf_addf(b, "#stablehlo.channel_handle<handle = %lld, type = 1>",
                   (long long)a->i);
    return;
  }
  bool narrow = a->id == AT_ATTR_EXPONENT_BITS ||
                a->id == AT_ATTR_MANTISSA_BITS ||
                a->id == AT_ATTR_API_VERSION || a->id == AT_ATTR_VERSION;
  at_strbuf_addf(b, "%lld : %s", (long long)a->i, narrow ? "i32" : "i64");
}

// The value by kind; kinds without a form print nothing.
static void print_attr(at_strbuf *b, const at_node *n, const at_attr *a) {
  switch (at_attr_kind_of(a->id)) {
    case AT_KIND_INT:
      print_int(b, a);
      break;
    case AT_KIND_BOOL:
      at_strbuf_addz(b, a->i ? "true" : "false");
      break;
    case AT_KIND_FLOAT:
      at_strbuf_addf(b, "%.9e : f32", a->f);
      break;
    case AT_KIND_STR:
      if (a->id == AT_ATTR_CALLEE) at_strbuf_addc(b, '@');
      print_string(b, a->s);
      break;
    case AT_KIND_BYTES:
      print_string(b, a->s);
      break;
    case AT_KIND_ENUM:
      at_strbuf_addf(b, "#stablehlo<%s %s>", enum_of(a->id),
                     at_enum_text(a->id, a->i));
      break;
    case AT_KIND_LITERAL:
      print_literal(b, a->literal);
      break;
    case AT_KIND_DICT:
      print_dict(b, a);
      break;
    case AT_KIND_GROUPS:
      print_table(b, a->groups.list, a->groups.n,
                  a->id == AT_ATTR_SOURCE_TARGET_PAIRS ? 2 : 0);
      break;
    case AT_KIND_INTS:
      if (a->id == AT_ATTR_PRECISION)
        print_precision(b, n, a->ints);
      else if (a->id == AT_ATTR_PADDING)
        print_padding(b, a->ints);
      else
        print_array(b, a->id == AT_ATTR_WINDOW_REVERSAL ? "i1" : "i64",
                    a->ints);
      break;
    default:
      break;
  }
}

// What a reader of the program does not need, or what is told elsewhere.
static bool is_left_out(const at_node *n, const at_attr *a) {
  switch (a->id) {
    case AT_ATTR_SHARDING:
    case AT_ATTR_RESULT_ACCURACY:
    case AT_ATTR_DOT_ALGORITHM:
    case AT_ATTR_BACKEND_CONFIG_DICT:
    case AT_ATTR_OPERAND_LAYOUTS:
    case AT_ATTR_RESULT_LAYOUTS:
    case AT_ATTR_OUTPUT_OPERAND_ALIASES:
    case AT_ATTR_CHANNEL_TYPE:
    case AT_ATTR_ASYNC:
    case AT_ATTR_SHAPE_OPERANDS:
    case AT_ATTR_LARGEST:  // has_form
      return true;
    case AT_ATTR_FRONTEND_ATTRIBUTES:  // of what stays as it came
      return n->op != AT_OP_CUSTOM_CALL;
    case AT_ATTR_CHANNEL_ID:
      return a->i <= 0;
    case AT_ATTR_USE_GLOBAL_DEVICE_IDS:
      return a->i == 0;
    case AT_ATTR_COMPARE_TYPE:
      return a->i == AT_CMP_NOTYPE;
    default:
      return is_field(n, a->id);
  }
}

// ---- Quantised tables
// A lookup that quantises what it reads calls a function that says how.
static const at_type *quantised_table(const at_node *n, at_sc_config *config) {
  at_sc_kind k = n->op == AT_OP_CUSTOM_CALL ? at_sc_kind_of(n) : AT_SC_NONE;
  uint32_t table = k == AT_SC_LOOKUP_MINIBATCHES ? 5 : 4;
  if ((k != AT_SC_LOOKUP && table == 4) || n->num_operands <= table)
    return NULL;
  const at_type *t = at_value_type(n->operands[table]);
  at_str json = at_node_str(n, AT_ATTR_BACKEND_CONFIG);
  if (at_code_take(at_sc_config_read(json, config)) || !config->quantised ||
      !at_is_float(t->dtype) || t->rank != 2)
    return NULL;
  return t;
}

// Clips, rounds to the nearest of the levels, and back, as the engine does.
static void print_quantise(at_strbuf *b, const at_node *n) {
  at_sc_config c;
  const at_type *table = quantised_table(n, &c);
  if (!table) return;
  char row[64], level[64];
  long long width = (long long)table->dims[1];
  snprintf(row, sizeof row, "tensor<1x%lldxf32>", width);
  snprintf(level, sizeof level, "tensor<1x%lldxui%d>", width,
           c.num_buckets <= 256     ? 8
           : c.num_buckets <= 65536 ? 16
                                    : 32);
  float low = (float)c.low, high = (float)c.high;
  const struct {
    const char *name;
    float value;
  } constants[] = {{"low", low},
                   {"high", high},
                   {"scale", (high - low) / (float)(c.num_buckets - 1)}};
  at_strbuf_addf(b, "func.func private @quantise_v%u(%%row: %s) -> (%s) {\n",
                 n->id, row, row);
  for (size_t i = 0; i < AT_LEN(constants); i++)
    at_strbuf_addf(b, "  %%%s = stablehlo.constant dense<%.9e> : %s\n",
                   constants[i].name, (double)constants[i].value, row);
  at_strbuf_addf(b,
                 "  %%0 = stablehlo.clamp %%low, %%row, %%high : %s\n"
                 "  %%1 = stablehlo.subtract %%0, %%low : %s\n"
                 "  %%2 = stablehlo.divide %%1, %%scale : %s\n"
                 "  %%3 = stablehlo.round_nearest_even %%2 : %s\n"
                 "  %%4 = stablehlo.convert %%3 : (%s) -> %s\n"
                 "  %%5 = stablehlo.convert %%4 : (%s) -> %s\n"
                 "  %%6 = stablehlo.multiply %%5, %%scale : %s\n"
                 "  %%7 = stablehlo.add %%6, %%low : %s\n"
                 "  return %%7 : %s\n}\n",
                 row, row, row, row, row, level, level, row, row, row, row);
}

// The function that print_quantise makes.
static void print_callee(at_strbuf *b, const at_node *n, bool *first) {
  at_sc_config c;
  if (!quantised_table(n, &c)) return;
  next_attr(b, first, "called_computations");
  at_strbuf_addf(b, " = [@quantise_v%u]", n->id);
}

// "{...}", or nothing where none is left.
static void print_attrs(at_strbuf *b, const at_node *n) {
  bool first = true;
  print_callee(b, n, &first);
  print_struct(b, n, &first);
  for (uint32_t i = 0; i < n->num_attrs; i++) {
    const at_attr *a = &n->attrs[i];
    if (is_left_out(n, a)) continue;
    next_attr(b, &first, name_of(n, a->id));
    if (a->id == AT_ATTR_USE_GLOBAL_DEVICE_IDS) continue;  // there or not
    at_strbuf_addz(b, " = ");
    print_attr(b, n, a);
  }
  if (!first) at_strbuf_addc(b, '}');
}

// ---- Ops
static void print_comp(at_strbuf *b, const at_comp *c, const char *end);

// Ops of the table that only CHLO has, and those that neither has. Clients do
// not turn CHLO into HLO, so its ops are calls of their names, as `import`
// reads them.
static const char *dialect_of(at_op op) {
  switch (op) {
    case AT_OP_ACOS:
    case AT_OP_ACOSH:
    case AT_OP_ASIN:
    case AT_OP_ASINH:
    case AT_OP_ATAN:
    case AT_OP_ATANH:
    case AT_OP_COSH:
    case AT_OP_SINH:
    case AT_OP_ERF:
    case AT_OP_ERFC:
    case AT_OP_ERF_INV:
    case AT_OP_LGAMMA:
    case AT_OP_DIGAMMA:
    case AT_OP_NEXT_AFTER:
    case AT_OP_POLYGAMMA:
    case AT_OP_ZETA:
    case AT_OP_MULHI:
    case AT_OP_TOP_K:
    case AT_OP_RAGGED_DOT:
      return "chlo";
    case AT_OP_CALL:
      return "func";
    case AT_OP_ASYNC_DONE:
    case AT_OP_SCAN:
    case AT_OP_RAGGED_ALL_TO_ALL:
    case AT_OP_MANUAL_COMPUTATION:
    case AT_OP_INFEED:
    case AT_OP_OUTFEED:
    case AT_OP_SEND:
    case AT_OP_RECV:
      return NULL;
    case AT_OP_FUSION:
      return "mhlo";
    default:
      return "stablehlo";
  }
}

// False for what the dialect's op of this name cannot say: the smallest instead
// of the largest; attributes that are kept in another form.
static bool has_form(const at_node *n) {
  if (n->op == AT_OP_TOP_K) return at_node_bool(n, AT_ATTR_LARGEST);
  return n->op != AT_OP_COMPOSITE ||
         !at_node_str(n, AT_ATTR_COMPOSITE_ATTRIBUTES).len;
}

// Work that is one kernel: StableHLO has no word for it, MHLO has. Clients
// number the computations of regions, so a name goes to the place.
static void print_fusion_kind(at_strbuf *b, const at_node *n) {
  at_strbuf_addf(b, " {fusion_kind = #mhlo<fusion_kind %s>}",
                 at_node_int(n, AT_ATTR_KIND, 0) == AT_FUSION_KERNEL ? "kCustom"
                                                                     : "kLoop");
}

static const char *fusion_place(const at_node *n) {
  return at_node_int(n, AT_ATTR_KIND, 0) == AT_FUSION_KERNEL
             ? " loc(\"fused_computation\")"
             : " loc(\"input\")";
}

static void print_results(at_strbuf *b, const at_node *n) {
  if (n->num_results) at_strbuf_addf(b, "  %%v%u", n->id);
  if (n->num_results > 1) at_strbuf_addf(b, ":%u", n->num_results);
}

// What has no form, as a call of its name: operands and results are told.
static void print_call(at_strbuf *b, const at_node *n) {
  print_results(b, n);
  at_strbuf_addf(b, "%s\"stablehlo.custom_call\"",
                 n->num_results ? " = " : "  ");
  print_values(b, n->operands, n->num_operands);
  at_strbuf_addf(b,
                 " {call_target_name = \"atoll.%s\", has_side_effect = true} "
                 ": ",
                 at_op_text(n->op));
  print_value_types(b, n->operands, n->num_operands);
  at_strbuf_addz(b, " -> ");
  print_types(b, n->types, n->num_results);
  at_strbuf_addc(b, '\n');
}

// Attributes of a CHLO op are a dictionary of the call that stands for it.
static void print_call_attrs(at_strbuf *b, const at_node *n) {
  at_strbuf_addf(b, " {call_target_name = \"chlo.%s\", mhlo.attributes =",
                 at_op_text(n->op));
  size_t before = b->len;
  print_attrs(b, n);
  at_strbuf_addz(b, b->len == before ? " {}}" : "}");
}

// One op in generic form, regions included.
static void print_node(at_strbuf *b, const at_node *n) {
  const char *dialect = dialect_of(n->op);
  if (!dialect || !has_form(n)) {
    print_call(b, n);
    return;
  }
  print_results(b, n);
  bool copy = n->op == AT_OP_COPY;  // the same value
  bool fusion = n->op == AT_OP_FUSION, call = !strcmp(dialect, "chlo");
  at_strbuf_addf(b, "%s\"%s.%s\"", n->num_results ? " = " : "  ",
                 call ? "stablehlo" : dialect,
                 copy   ? "reshape"
                 : call ? "custom_call"
                        : at_op_text(n->op));
  print_values(b, n->operands, n->num_operands);
  if (n->num_regions) at_strbuf_addz(b, " (");
  for (uint32_t i = 0; i < n->num_regions; i++) {
    at_strbuf_addz(b, i ? ", {\n" : "{\n");
    if (n->regions[i]->num_params) {
      at_strbuf_addz(b, "^bb0(");
      for (uint32_t k = 0; k < n->regions[i]->num_params; k++) {
        at_strbuf_addf(b, "%s%%v%u: ", k ? ", " : "",
                       n->regions[i]->params[k]->id);
        print_type(b, &n->regions[i]->params[k]->types[0]);
      }
      at_strbuf_addz(b, "):\n");
    }
    print_comp(b, n->regions[i], fusion ? "mhlo.return" : "stablehlo.return");
    at_strbuf_addc(b, '}');
  }
  if (n->num_regions) at_strbuf_addc(b, ')');
  if (fusion)
    print_fusion_kind(b, n);
  else if (call)
    print_call_attrs(b, n);
  else
    print_attrs(b, n);
  at_strbuf_addz(b, " : ");
  print_value_types(b, n->operands, n->num_operands);
  at_strbuf_addz(b, " -> ");
  print_types(b, n->types, n->num_results);
  if (fusion) at_strbuf_addz(b, fusion_place(n));
  at_strbuf_addc(b, '\n');
}

// Ops, then the terminator `end`.
static void print_comp(at_strbuf *b, const at_comp *c, const char *end) {
  AT_FOR_NODES(n, c) {
    if (n->op != AT_OP_PARAMETER) print_node(b, n);
  }
  at_strbuf_addf(b, "  \"%s\"", end);
  print_values(b, c->results, c->num_results);
  at_strbuf_addz(b, " : ");
  print_value_types(b, c->results, c->num_results);
  at_strbuf_addz(b, " -> ()\n");
}

// Names are quoted, as they may hold anything.
static void print_func(at_strbuf *b, const at_comp *c, const char *visibility,
                       const char *name) {
  at_strbuf_addf(b, "func.func %s @", visibility);
  print_string(b, at_str_of(name));
  at_strbuf_addc(b, '(');
  for (uint32_t i = 0; i < c->num_params; i++) {
    at_strbuf_addf(b, "%s%%v%u: ", i ? ", " : "", c->params[i]->id);
    print_type(b, &c->params[i]->types[0]);
  }
  at_strbuf_addz(b, ") -> ");
  print_value_types(b, c->results, c->num_results);
  at_strbuf_addz(b, " {\n");
  print_comp(b, c, "func.return");
  at_strbuf_addz(b, "}\n");
}

// ---- The module
static at_status print_sharding(at_strbuf *b, const at_module *m,
                                const at_io_info *info, const at_type *t) {
  const char *text;
  AT_TRY(at_sharding_hlo_text(info ? info->sharding : NULL, m->mesh_text,
                              t->rank, m->arena, &text));
  at_strbuf_addz(b, text);
  return AT_OK;
}

// How the parts that the entry takes and gives make the whole: where clients
// look that do not ask for it as such.
static at_status print_shardings(at_strbuf *b, const at_module *m) {
  const at_comp *c = m->entry;
  if (m->num_partitions <= 1) return AT_OK;
  at_strbuf_addz(b, ", mhlo.spmd_parameters_shardings = [");
  for (uint32_t i = 0; i < c->num_params; i++) {
    at_strbuf_addz(b, i ? ", \"" : "\"");
    AT_TRY(print_sharding(b, m, m->params ? &m->params[i] : NULL,
                          &c->params[i]->types[0]));
    at_strbuf_addc(b, '"');
  }
  at_strbuf_addc(b, ']');
  if (!c->num_results) return AT_OK;
  at_strbuf_addz(b, ", mhlo.spmd_output_sharding = \"");
  if (c->num_results > 1) at_strbuf_addc(b, '{');
  for (uint32_t i = 0; i < c->num_results; i++) {
    if (i) at_strbuf_addz(b, ", ");
    AT_TRY(print_sharding(b, m, m->results ? &m->results[i] : NULL,
                          at_value_type(c->results[i])));
  }
  at_strbuf_addz(b, c->num_results > 1 ? "}\"" : "\"");
  return AT_OK;
}

// Errors of the buffer are told at the end.
at_status at_stablehlo_print(const at_module *m, at_strbuf *b) {
  at_strbuf_addz(b, "module @");
  print_string(b, at_str_of(m->name ? m->name : "main"));
  at_strbuf_addf(b,
                 " attributes {mhlo.num_partitions = %lld : i32, "
                 "mhlo.num_replicas = %lld : i32",
                 (long long)m->num_partitions, (long long)m->num_replicas);
  AT_TRY(print_shardings(b, m));
  at_strbuf_addz(b, "} {\n");
  print_func(b, m->entry, "public", "main");
  for (uint32_t i = 0; i < m->num_funcs; i++)
    if (m->funcs[i] != m->entry)
      print_func(b, m->funcs[i], "private", m->funcs[i]->name);
  AT_FOR_NODES(n, m->entry) print_quantise(b, n);
  at_strbuf_addz(b, "}\n");
  return at_strbuf_status(b);
}

// The text form. One node, one line; ids are the nodes' own, so that a message
// that says %12 can be found in a dump. parse.c reads it back.
//
//   hlo module "jit_f" entry="main" {
//   func "main" (%0: f32[2] <alias=0>) -> (f32[2] <name="out">) {
//     %1 = add %0, %0 : f32[2] @"f.py":3:5("jit(f)/add")
//     %2, a while with two results, is used as %2.0 and %2.1:
//     %2:2 = while %1, %0 {dimension=0} ({(%3: ...) ... return ...} {...}) :
//     ... return %1
//   }
//   }
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/verify.h"
#include "hlo/hlo_internal.h"

// What read_string reads: bytes outside of printable ASCII as two hex digits.
static void print_quoted(at_strbuf *b, at_str s) {
  at_strbuf_addc(b, '"');
  for (size_t i = 0; i < s.len; i++) {
    unsigned char c = (unsigned char)s.ptr[i];
    if (c == '"' || c == '\\')
      at_strbuf_addf(b, "\\%c", c);
    else if (c < 32 || c >= 127)
      at_strbuf_addf(b, "\\%02x", c);
    else
      at_strbuf_addc(b, (char)c);
  }
  at_strbuf_addc(b, '"');
}

// The node's only result needs no number.
static void print_value(at_strbuf *b, at_value v) {
  at_strbuf_addf(b, "%%%u", v.node->id);
  if (v.node->num_results != 1) at_strbuf_addf(b, ".%u", v.index);
}

static void print_ints(at_strbuf *b, at_dims d) {
  at_strbuf_addc(b, '[');
  for (uint32_t i = 0; i < d.rank; i++)
    at_strbuf_addf(b, i ? ",%" PRId64 : "%" PRId64, d.ptr[i]);
  at_strbuf_addc(b, ']');
}

// ---- Literals

// Reads back as the same double.
static void print_double(at_strbuf *b, double v) {
  char z[40];
  if (v == 0 || (isfinite(v) && fabs(v) < 1e15 && v == rint(v)))
    snprintf(z, sizeof z, "%.1f", v);
  else
    snprintf(z, sizeof z, "%.17g", v);
  // The shortest of a few precisions that reads back.
  for (int digits = 6; digits < 17; digits += 3) {
    char shorter[40];
    snprintf(shorter, sizeof shorter, "%.*g", digits, v);
    if (strtod(shorter, NULL) == v && strlen(shorter) < strlen(z))
      memcpy(z, shorter, sizeof z);
  }
  at_strbuf_addz(b, z);
}

// For a value of a few bytes, as a number is written.
static void print_hex(at_strbuf *b, const void *p, size_t bytes) {
  static const char digits[] = "0123456789abcdef";
  at_strbuf_addz(b, "0x");
  for (size_t i = bytes; i-- > 0;) {  // most significant byte first
    uint8_t c = ((const uint8_t *)p)[i];
    at_strbuf_addc(b, digits[c >> 4]);
    at_strbuf_addc(b, digits[c & 15]);
  }
}

// Decimal where that reads back to the same bits, else the bits.
static void print_float(at_strbuf *b, at_dtype t, const void *p) {
  uint8_t again[8];
  double v = at_load_float(t, p);
  at_store_float(t, again, v);
  // NaN payloads do not survive; neither would a text "nan".
  if (!isfinite(v) || memcmp(again, p, at_dtype_bytes(t)))
    print_hex(b, p, at_dtype_bytes(t));
  else
    print_double(b, v);
}

// In the form of the element's class; booleans are 0 and 1.
static void print_element(at_strbuf *b, at_dtype t, const void *p) {
  if (at_is_complex(t)) {
    at_dtype real = at_real_of(t);
    at_strbuf_addc(b, '(');
    print_float(b, real, p);
    at_strbuf_addc(b, ',');
    print_float(b, real, (const uint8_t *)p + at_dtype_bytes(real));
    at_strbuf_addc(b, ')');
  } else if (at_is_float(t)) {
    print_float(b, t, p);
  } else if (at_is_unsigned_int(t)) {
    at_strbuf_addf(b, "%" PRIu64, (uint64_t)at_load_int(t, p));
  } else {
    at_strbuf_addf(b, "%" PRId64, at_load_int(t, p));
  }
}

enum { kMostElements = 32 };  // longer data is printed as bytes

// Splats and scalars as one element, short arrays as a list, others as their
// bytes.
static void print_literal(at_strbuf *b, const at_literal *l) {
  int64_t n = at_type_elements(&l->type);
  at_type_print(b, &l->type);
  if (l->type.dtype == AT_TOKEN) return;
  at_strbuf_addc(b, ' ');
  if (l->splat || (l->type.rank == 0 && n == 1)) {
    if (l->splat && l->type.rank) at_strbuf_addz(b, "splat ");
    print_element(b, l->type.dtype, l->data);
  } else if (n <= kMostElements) {
    at_strbuf_addc(b, '[');
    for (int64_t i = 0; i < n; i++) {
      if (i) at_strbuf_addc(b, ',');
      print_element(b, l->type.dtype, at_literal_at(l, i));
    }
    at_strbuf_addc(b, ']');
  } else {  // in memory order
    static const char digits[] = "0123456789abcdef";
    at_strbuf_addz(b, "hex ");
    for (size_t i = 0; i < l->bytes; i++) {
      uint8_t c = ((const uint8_t *)l->data)[i];
      at_strbuf_addc(b, digits[c >> 4]);
      at_strbuf_addc(b, digits[c & 15]);
    }
  }
}

// ---- Attributes

// In the form of the attribute's kind (attrs.def).
static void print_attr(at_strbuf *b, const at_attr *a) {
  at_strbuf_addf(b, "%s=", at_attr_text(a->id));
  switch (at_attr_kind_of(a->id)) {
    case AT_KIND_INT:
      at_strbuf_addf(b, "%" PRId64, a->i);
      break;
    case AT_KIND_BOOL:
      at_strbuf_addz(b, a->i ? "true" : "false");
      break;
    case AT_KIND_FLOAT:
      print_float(b, AT_F64, &a->f);
      break;
    case AT_KIND_STR:
    case AT_KIND_BYTES:
      print_quoted(b, a->s);
      break;
    case AT_KIND_INTS:
      print_ints(b, a->ints);
      break;
    case AT_KIND_ENUM: {
      const char *text = at_enum_text(a->id, a->i);
      at_strbuf_addz(b, text ? text : "?");
      break;
    }
    case AT_KIND_LITERAL:
      print_literal(b, a->literal);
      break;
    case AT_KIND_TYPE:
      at_type_print(b, a->type);
      break;
    case AT_KIND_DICT:
      at_strbuf_addc(b, '{');
      for (uint32_t i = 0; i < a->dict.n; i++) {
        if (i) at_strbuf_addc(b, ',');
        print_quoted(b, a->dict.kv[2 * i]);
        at_strbuf_addc(b, '=');
        print_quoted(b, a->dict.kv[2 * i + 1]);
      }
      at_strbuf_addc(b, '}');
      break;
    case AT_KIND_GROUPS:
      at_strbuf_addc(b, '[');
      for (uint32_t i = 0; i < a->groups.n; i++) {
        if (i) at_strbuf_addc(b, ',');
        print_ints(b, a->groups.list[i]);
      }
      at_strbuf_addc(b, ']');
      break;
  }
}

// A parameter's index is told by its place.
static void print_attrs(at_strbuf *b, const at_node *n) {
  bool any = false;
  for (uint32_t i = 0; i < n->num_attrs; i++) {
    if (n->op == AT_OP_PARAMETER && n->attrs[i].id == AT_ATTR_INDEX) continue;
    at_strbuf_addz(b, any ? ", " : " {");
    print_attr(b, &n->attrs[i]);
    any = true;
  }
  if (any) at_strbuf_addc(b, '}');
}

// The innermost location first, then its callers.
static void print_loc(at_strbuf *b, const at_loc *loc) {
  for (; loc; loc = loc->caller) {
    at_strbuf_addz(b, " @");
    if (loc->file) {
      print_quoted(b, at_str_of(loc->file));
      at_strbuf_addf(b, ":%u:%u", loc->line, loc->column);
    }
    if (loc->name) {
      at_strbuf_addc(b, '(');
      print_quoted(b, at_str_of(loc->name));
      at_strbuf_addc(b, ')');
    }
  }
}

// ---- Graph

// depth: of regions, for the indentation.
typedef struct printer {
  at_strbuf *b;
  int depth;
} printer;

static void indent(printer *p) {
  at_strbuf_addc(p->b, '\n');
  for (int i = 0; i < p->depth; i++) at_strbuf_addz(p->b, "  ");
}

static void print_body(printer *p, const at_comp *c);

// Nothing where nothing is known: the angle brackets appear with the first
// entry.
static void print_io(at_strbuf *b, const at_io_info *io) {
  struct {
    const char *key, *text;
  } texts[] = {{"sharding", io->sharding},
               {"layout", io->layout},
               {"memory_kind", io->memory_kind},
               {"name", io->name}};
  const char *sep = " <";
  if (io->alias >= 0)
    at_strbuf_addf(b, "%salias=%d", sep, io->alias), sep = ", ";
  if (io->donor) at_strbuf_addf(b, "%sdonor", sep), sep = ", ";
  for (size_t i = 0; i < AT_LEN(texts); i++) {
    if (!texts[i].text) continue;
    at_strbuf_addf(b, "%s%s=", sep, texts[i].key);
    print_quoted(b, at_str_of(texts[i].text));
    sep = ", ";
  }
  if (*sep == ',') at_strbuf_addc(b, '>');
}

// io NULL: a region or a function that is not the entry.
static void print_params(printer *p, const at_comp *c, const at_io_info *io) {
  at_strbuf_addc(p->b, '(');
  for (uint32_t i = 0; i < c->num_params; i++) {
    const at_node *n = c->params[i];
    if (i) at_strbuf_addz(p->b, ", ");
    at_strbuf_addf(p->b, "%%%u: ", n->id);
    at_type_print(p->b, &n->types[0]);
    if (io) print_io(p->b, &io[i]);
    print_attrs(p->b, n);
    print_loc(p->b, n->loc);
  }
  at_strbuf_addc(p->b, ')');
}

// One line, but for regions, whose nodes follow indented.
static void print_node(printer *p, const at_node *n) {
  at_strbuf *b = p->b;
  indent(p);
  at_strbuf_addf(b, "%%%u", n->id);
  if (n->num_results != 1) at_strbuf_addf(b, ":%u", n->num_results);
  at_strbuf_addf(b, " = %s", at_op_text(n->op));
  for (uint32_t i = 0; i < n->num_operands; i++) {
    at_strbuf_addz(b, i ? ", " : " ");
    print_value(b, n->operands[i]);
  }
  print_attrs(b, n);
  for (uint32_t i = 0; i < n->num_regions; i++) {
    at_strbuf_addz(b, i ? ", " : " (");
    print_params(p, n->regions[i], NULL);
    print_body(p, n->regions[i]);
  }
  if (n->num_regions) at_strbuf_addc(b, ')');
  if (n->num_results) at_strbuf_addz(b, " : ");
  for (uint32_t i = 0; i < n->num_results; i++) {
    if (i) at_strbuf_addz(b, ", ");
    at_type_print(b, &n->types[i]);
  }
  print_loc(b, n->loc);
}

// Parameters are printed with the signature.
static void print_body(printer *p, const at_comp *c) {
  at_strbuf_addz(p->b, " {");
  p->depth++;
  AT_FOR_NODES(n, c) {
    if (n->op != AT_OP_PARAMETER) print_node(p, n);
  }
  indent(p);
  at_strbuf_addz(p->b, "return");
  for (uint32_t i = 0; i < c->num_results; i++) {
    at_strbuf_addz(p->b, i ? ", " : " ");
    print_value(p->b, c->results[i]);
  }
  p->depth--;
  indent(p);
  at_strbuf_addc(p->b, '}');
}

// What is known of parameters and results is the entry's alone.
static void print_func(printer *p, const at_module *m, const at_comp *c) {
  bool entry = c == m->entry;
  at_strbuf_addz(p->b, "\nfunc ");
  print_quoted(p->b, at_str_of(c->name));
  at_strbuf_addc(p->b, ' ');
  print_params(p, c, entry ? m->params : NULL);
  at_strbuf_addz(p->b, " -> (");
  for (uint32_t i = 0; i < c->num_results; i++) {
    if (i) at_strbuf_addz(p->b, ", ");
    at_type_print(p->b, at_value_type(c->results[i]));
    if (entry && m->results) print_io(p->b, &m->results[i]);
  }
  at_strbuf_addc(p->b, ')');
  print_body(p, c);
}

// Numbers of replicas and partitions are written where they are not 1.
static at_status print_module(const at_module *m, at_strbuf *out) {
  printer p = {.b = out};
  at_strbuf_addz(out, "hlo module ");
  print_quoted(out, at_str_of(m->name));
  if (m->num_replicas != 1)
    at_strbuf_addf(out, " replicas=%" PRId64, m->num_replicas);
  if (m->num_partitions != 1)
    at_strbuf_addf(out, " partitions=%" PRId64, m->num_partitions);
  if (m->mesh_text) {
    at_strbuf_addz(out, " mesh=");
    print_quoted(out, at_str_of(m->mesh_text));
  }
  if (m->entry && m->entry->name) {
    at_strbuf_addz(out, " entry=");
    print_quoted(out, at_str_of(m->entry->name));
  }
  at_strbuf_addz(out, " {");
  for (uint32_t i = 0; i < m->num_funcs; i++) print_func(&p, m, m->funcs[i]);
  at_strbuf_addz(out, "\n}\n");
  return at_strbuf_status(out);
}

// Whether the text gives itself again. True where it is not read: passes may
// leave nodes that only they know.
static bool reads_as_text(at_str text) {
  at_module *m;
  at_strbuf again = {0};
  at_arena *a = at_arena_create();
  if (!a) return true;
  at_status st = at_hlo_parse(text, a, &m);
  if (at_ok(st)) st = print_module(m, &again);
  bool same = !at_ok(st) || at_str_eq(text, at_strbuf_str(&again));
  at_status_free(st);
  at_strbuf_free(&again);
  at_arena_destroy(a);
  return same;
}

at_status at_hlo_print(const at_module *m, at_strbuf *out) {
  size_t from = out->len;
  AT_TRY(print_module(m, out));
  AT_VERIFY(reads_as_text((at_str){out->ptr + from, out->len - from}));
  return AT_OK;
}

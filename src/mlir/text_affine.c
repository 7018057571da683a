// Affine maps and integer sets.
#include "mlir/text.h"

typedef AT_VEC(at_str) name_vec;

// The names that a map's header declares: dimensions first.
typedef struct affine_scope {
  at_str *names;
  uint32_t num_dims, num_syms;
} affine_scope;

static at_status expression(at_mtext *t, const affine_scope *s,
                            const at_maffine **out);

// One expression; operands are NULL for leaves.
static at_status node(at_mtext *t, at_maffine_kind kind, int64_t value,
                      const at_maffine *lhs, const at_maffine *rhs,
                      const at_maffine **out) {
  at_maffine *e;
  AT_TRY_ALLOC(e, at_new(t->c.arena, at_maffine, 1));
  *e = (at_maffine){kind, value, lhs, rhs};
  *out = e;
  return AT_OK;
}

// A bracket, a name of the header, a negated primary, or a number.
static at_status primary(at_mtext *t, const affine_scope *s,
                         const at_maffine **out) {
  at_str w;
  if (at_mtext_accept(t, "(")) {
    AT_TRY(expression(t, s, out));
    return at_mtext_expect(t, ")");
  }
  if (at_mtext_word(t, &w)) {
    for (uint32_t i = 0; i < s->num_dims + s->num_syms; i++)
      if (at_str_eq(w, s->names[i]))
        return i < s->num_dims
                   ? node(t, AT_AFFINE_DIM, i, NULL, NULL, out)
                   : node(t, AT_AFFINE_SYM, i - s->num_dims, NULL, NULL, out);
    return at_mtext_fail(t, "'%.*s' is no dimension or symbol here",
                         (int)AT_MIN(w.len, 64), w.ptr);
  }
  if (at_mtext_at(t, "-") && t->p + 1 < t->end &&
      !(t->p[1] >= '0' && t->p[1] <= '9')) {
    const at_maffine *inner, *minus;
    t->p++;
    AT_TRY(at_mtext_enter(t));
    AT_TRY(primary(t, s, &inner));
    t->depth--;
    AT_TRY(node(t, AT_AFFINE_CONST, -1, NULL, NULL, &minus));
    return node(t, AT_AFFINE_MUL, 0, inner, minus, out);
  }
  int64_t v;
  AT_TRY(at_mtext_i64(t, &v));
  return node(t, AT_AFFINE_CONST, v, NULL, NULL, out);
}

// Left to right. The length is bounded because the tree is walked by recursion.
static at_status product(at_mtext *t, const affine_scope *s,
                         const at_maffine **out) {
  uint32_t length = 0;
  AT_TRY(primary(t, s, out));
  for (;;) {
    at_maffine_kind k;
    if (at_mtext_accept(t, "*"))
      k = AT_AFFINE_MUL;
    else if (at_mtext_accept_word(t, "mod"))
      k = AT_AFFINE_MOD;
    else if (at_mtext_accept_word(t, "floordiv"))
      k = AT_AFFINE_FLOORDIV;
    else if (at_mtext_accept_word(t, "ceildiv"))
      k = AT_AFFINE_CEILDIV;
    else
      return AT_OK;
    if (++length > AT_MLIR_MAX_DEPTH)
      return at_mtext_fail(t, "an affine expression is too long");
    const at_maffine *rhs;
    AT_TRY(primary(t, s, &rhs));
    AT_TRY(node(t, k, 0, *out, rhs, out));
  }
}

// a - b is a + b * -1: there is no subtraction in the tree.
static at_status sum(at_mtext *t, const affine_scope *s,
                     const at_maffine **out) {
  uint32_t length = 0;
  AT_TRY(product(t, s, out));
  for (;;) {
    bool minus = false;
    if (at_mtext_at(t, "->")) return AT_OK;
    if (at_mtext_accept(t, "-"))
      minus = true;
    else if (!at_mtext_accept(t, "+"))
      return AT_OK;
    if (++length > AT_MLIR_MAX_DEPTH)
      return at_mtext_fail(t, "an affine expression is too long");
    const at_maffine *rhs, *one;
    AT_TRY(product(t, s, &rhs));
    if (minus) {
      AT_TRY(node(t, AT_AFFINE_CONST, -1, NULL, NULL, &one));
      AT_TRY(node(t, AT_AFFINE_MUL, 0, rhs, one, &rhs));
    }
    AT_TRY(node(t, AT_AFFINE_ADD, 0, *out, rhs, out));
  }
}

static at_status expression(at_mtext *t, const affine_scope *s,
                            const at_maffine **out) {
  AT_TRY(at_mtext_enter(t));
  at_status st = sum(t, s, out);
  t->depth--;
  return st;
}

// Words by commas between brackets, appended; *count grows by each.
static at_status names(at_mtext *t, const char *open, const char *close,
                       name_vec *v, uint32_t *count) {
  AT_TRY(at_mtext_expect(t, open));
  if (at_mtext_accept(t, close)) return AT_OK;
  do {
    at_str w;
    if (!at_mtext_word(t, &w)) return at_mtext_fail(t, "a name is expected");
    if (!at_vec_push(t->c.arena, v, w)) return AT_NO_MEMORY("affine map");
    ++*count;
  } while (at_mtext_accept(t, ","));
  return at_mtext_expect(t, close);
}

// "<(d0, d1)[s0]": dimensions, then symbols, in one list of names.
static at_status header(at_mtext *t, at_mattr *a, affine_scope *s) {
  name_vec v = {0};
  AT_TRY(at_mtext_expect(t, "<"));
  AT_TRY(names(t, "(", ")", &v, &a->num_dims));
  if (at_mtext_at(t, "[")) AT_TRY(names(t, "[", "]", &v, &a->num_syms));
  *s = (affine_scope){v.ptr, a->num_dims, a->num_syms};
  return AT_OK;
}

// "<(d0, d1)[s0] -> (expressions)>", behind the word.
at_status at_mtext_affine_map(at_mtext *t, const at_mattr **out) {
  at_mattr *a;
  affine_scope s;
  AT_VEC(const at_maffine *) v = {0};
  AT_TRY_ALLOC(a, at_mattr_make(&t->c, AT_MATTR_AFFINE_MAP));
  AT_TRY(header(t, a, &s));
  AT_TRY(at_mtext_expect(t, "->"));
  AT_TRY(at_mtext_expect(t, "("));
  if (!at_mtext_accept(t, ")")) {
    do {
      const at_maffine *e;
      AT_TRY(expression(t, &s, &e));
      if (!at_vec_push(t->c.arena, &v, e)) return AT_NO_MEMORY("affine map");
    } while (at_mtext_accept(t, ","));
    AT_TRY(at_mtext_expect(t, ")"));
  }
  a->exprs = v.ptr;
  a->num_elems = (uint32_t)v.len;
  *out = a;
  return at_mtext_expect(t, ">");
}

// "<(d0)[s0] : (expression >= 0, expression == 0)>", behind the word.
at_status at_mtext_affine_set(at_mtext *t, const at_mattr **out) {
  at_mattr *a;
  affine_scope s;
  AT_VEC(const at_maffine *) v = {0};
  AT_VEC(uint8_t) eq = {0};
  AT_TRY_ALLOC(a, at_mattr_make(&t->c, AT_MATTR_INTEGER_SET));
  AT_TRY(header(t, a, &s));
  AT_TRY(at_mtext_expect(t, ":"));
  AT_TRY(at_mtext_expect(t, "("));
  if (!at_mtext_accept(t, ")")) {
    do {
      const at_maffine *e;
      AT_TRY(expression(t, &s, &e));
      bool is_eq = at_mtext_accept(t, "==");
      if (!is_eq) AT_TRY(at_mtext_expect(t, ">="));
      int64_t zero;
      AT_TRY(at_mtext_i64(t, &zero));
      if (zero) return at_mtext_fail(t, "a constraint compares with 0");
      if (!at_vec_push(t->c.arena, &v, e) ||
          !at_vec_push(t->c.arena, &eq, is_eq))
        return AT_NO_MEMORY("integer set");
    } while (at_mtext_accept(t, ","));
    AT_TRY(at_mtext_expect(t, ")"));
  }
  a->exprs = v.ptr;
  a->is_eq = eq.ptr;
  a->num_elems = (uint32_t)v.len;
  *out = a;
  return at_mtext_expect(t, ">");
}

// Attribute and type entries, read when first asked for. Entries refer to one
// another in any order and, for locations, in long chains; so a read that nests
// too deep stops, the entry that it needed is put on a list and read first.
#include "mlir/mlir_internal.h"

// at_mentry's state: WAITING entries were begun and put aside until what they
// need is read.
enum { UNREAD, READING, WAITING, READ };
enum {
  // Entries that are read inside of each other on the stack; deeper ones are
  // deferred.
  MAX_NEST = 24,
  MAX_WEIGHT = 1 << 20,
  // Of what is read, since printers, digests and comparisons recurse over it:
  // locations in a chain, and other attributes and types in each other.
  MAX_LOC_DEPTH = 1000,
  MAX_DEPTH = 40
};

static at_status parse(at_mbc *r, at_mentry *e, bool is_type);

// Undecoded bytes of a dialect.
static at_status opaque(at_mbc *r, at_mentry *e, bool is_type) {
  const char *dialect = r->dialects[e->dialect];
  at_bytes copy = {at_arena_copy(r->c.arena, e->data.ptr, e->data.len, 1),
                   e->data.len};
  if (!copy.ptr) return AT_NO_MEMORY("opaque entry");
  if (is_type) {
    at_mtype *t;
    AT_TRY_ALLOC(t, at_mtype_make(&r->c, AT_MTYPE_OPAQUE));
    t->name = dialect;
    t->bytes = copy;
    e->type = t;
  } else {
    at_mattr *a;
    AT_TRY_ALLOC(a, at_mattr_make(&r->c, AT_MATTR_OPAQUE));
    a->name = dialect;
    a->bytes = copy;
    e->attr = a;
  }
  return AT_OK;
}

// Entries in text end in one NUL, at their last byte.
static at_status parse_text(at_mbc *r, at_mentry *e, bool is_type) {
  const uint8_t *nul = e->data.len ? memchr(e->data.ptr, 0, e->data.len) : NULL;
  at_mcursor c = {e->data.ptr, e->data.ptr, r->all.ptr};
  if (!nul || nul + 1 != e->data.ptr + e->data.len)
    return at_mbc_fail(r, &c, "textual entry without its end");
  at_str text = {(const char *)e->data.ptr, e->data.len - 1};
  at_status s = is_type ? at_mtext_type(&r->c, text, &e->type)
                        : at_mtext_attr(&r->c, text, &e->attr);
  return at_ok(s) ? s
                  : at_status_prefix(s, "textual entry at byte %zu",
                                     (size_t)(e->data.ptr - r->all.ptr));
}

// By the dialect's reader, which must take all bytes. What it does not know
// stays as bytes.
static at_status parse_custom(at_mbc *r, at_mentry *e, bool is_type) {
  const char *dialect = r->dialects[e->dialect];
  at_mcursor c = {e->data.ptr, e->data.ptr + e->data.len, r->all.ptr};
  bool known = true;
  const at_mattr *a = NULL;
  const at_mtype *t = NULL;
  if (strcmp(dialect, "builtin") == 0)
    AT_TRY(is_type ? at_mbc_builtin_type(r, &c, &t)
                   : at_mbc_builtin_attr(r, &c, &a));
  else
    AT_TRY(is_type ? at_mbc_dialect_type(r, &c, dialect, &t, &known)
                   : at_mbc_dialect_attr(r, &c, dialect, &a, &known));
  if (!known) return opaque(r, e, is_type);
  if (c.p != c.end)
    return at_mbc_fail(r, &c, "bytes are left over in an attribute or type");
  if (is_type)
    e->type = t;
  else
    e->attr = a;
  return AT_OK;
}

// Reads one entry. Weight, nesting and chain are summed up by the entries that
// it uses, so the counters of the entry around it are put aside meanwhile. A
// read that was deferred leaves the entry in the state it had.
static at_status parse(at_mbc *r, at_mentry *e, bool is_type) {
  uint32_t before = r->weight, nest = r->nest, chain = r->chain;
  uint8_t was = e->state;
  e->state = READING;
  r->weight = 1;
  r->nest = r->chain = 0;
  r->depth++;
  at_status s =
      e->custom ? parse_custom(r, e, is_type) : parse_text(r, e, is_type);
  r->depth--;
  if (!at_ok(s)) {
    e->state = r->deferred ? was : UNREAD;
    return s;
  }
  e->state = READ;
  // Locations count for the length of chains, all else for the depth of
  // nesting.
  e->weight = r->weight;
  bool loc = !is_type && e->attr->kind == AT_MATTR_LOCATION;
  e->nest = r->nest + !loc;
  e->chain = r->chain + loc;
  r->weight = before;
  r->nest = nest;
  r->chain = chain;
  if (e->nest <= MAX_DEPTH && e->chain <= MAX_LOC_DEPTH) return AT_OK;
  at_mcursor c = {e->data.ptr, e->data.ptr, r->all.ptr};
  return at_mbc_fail(r, &c, "an attribute or type is nested too deep");
}

// The tree below an attribute is bounded: entries may share their children, and
// a few bytes could stand for a tree that nothing can walk.
static at_status use(at_mbc *r, const at_mcursor *c, const at_mentry *e) {
  if (e->weight > MAX_WEIGHT || (r->weight += e->weight) > MAX_WEIGHT)
    return at_mbc_fail(r, c, "an attribute or type of over a million parts");
  r->nest = AT_MAX(r->nest, e->nest);
  r->chain = AT_MAX(r->chain, e->chain);
  return AT_OK;
}

// Reads the entries that a nested read ran into, innermost first.
static at_status resolve(at_mbc *r, const at_mcursor *c, at_mentry *e,
                         bool is_type) {
  AT_VEC(struct {
    at_mentry *e;
    bool is_type;
  })
  todo = {0};
  at_status s = AT_OK;
  for (;;) {
    s = parse(r, e, is_type);
    // What it ran into is read first; then it is begun again.
    if (!at_ok(s) && r->deferred) {
      at_status_free(s);
      e->state = WAITING;
      if (!at_vec_reserve(r->c.arena, &todo, todo.len + 1))
        return AT_NO_MEMORY("entries");
      todo.ptr[todo.len].e = e;
      todo.ptr[todo.len++].is_type = is_type;
      e = r->deferred;
      is_type = r->deferred_is_type;
      r->deferred = NULL;
      continue;
    }
    if (!at_ok(s) || !todo.len) return s;
    e = todo.ptr[--todo.len].e;
    is_type = todo.ptr[todo.len].is_type;
  }
}

// An entry is read when first used. Depth 0 is an operation's use, where
// deferred entries are resolved; inside of another entry a read either nests or
// is deferred.
static at_status entry(at_mbc *r, const at_mcursor *c, at_mentry *e,
                       bool is_type) {
  // Operations may use an entry as often as they like.
  if (e->state == READ) return r->depth ? use(r, c, e) : AT_OK;
  if (e->state == READING || e->state == WAITING)
    return at_mbc_fail(r, c, "an attribute or type contains itself");
  if (r->depth == 0) {
    r->weight = r->nest = r->chain = 0;
    return resolve(r, c, e, is_type);
  }
  // The status only unwinds the stack; resolve() consumes it.
  if (r->depth >= MAX_NEST) {
    r->deferred = e;
    r->deferred_is_type = is_type;
    return AT_FAIL(AT_INTERNAL, "an entry is read later");
  }
  AT_TRY(parse(r, e, is_type));
  return use(r, c, e);
}

// Reads the entry unless that was done.
at_status at_mbc_attr_at(at_mbc *r, const at_mcursor *c, uint64_t index,
                         const at_mattr **out) {
  if (index >= r->num_attrs) return at_mbc_fail(r, c, "no such attribute");
  AT_TRY(entry(r, c, &r->attrs[index], false));
  *out = r->attrs[index].attr;
  return AT_OK;
}

// Reads the entry unless that was done.
at_status at_mbc_type_at(at_mbc *r, const at_mcursor *c, uint64_t index,
                         const at_mtype **out) {
  if (index >= r->num_types) return at_mbc_fail(r, c, "no such type");
  AT_TRY(entry(r, c, &r->types[index], true));
  *out = r->types[index].type;
  return AT_OK;
}

at_status at_mbc_attr(at_mbc *r, at_mcursor *c, const at_mattr **out) {
  uint64_t i;
  AT_TRY(at_mbc_varint(r, c, &i));
  return at_mbc_attr_at(r, c, i, out);
}

at_status at_mbc_type(at_mbc *r, at_mcursor *c, const at_mtype **out) {
  uint64_t i;
  AT_TRY(at_mbc_varint(r, c, &i));
  return at_mbc_type_at(r, c, i, out);
}

// The flag is the lowest bit of the index.
at_status at_mbc_opt_attr(at_mbc *r, at_mcursor *c, const at_mattr **out) {
  uint64_t i;
  bool flag;
  *out = NULL;
  AT_TRY(at_mbc_flagged(r, c, &i, &flag));
  return flag ? at_mbc_attr_at(r, c, i, out) : AT_OK;
}

// In the arena.
at_status at_mbc_attr_list(at_mbc *r, at_mcursor *c,
                           const at_mattr *const **out, uint32_t *n) {
  const at_mattr **v;
  AT_TRY(at_mbc_count(r, c, n));
  AT_TRY_ALLOC(v, at_new(r->c.arena, const at_mattr *, *n));
  for (uint32_t i = 0; i < *n; i++) AT_TRY(at_mbc_attr(r, c, &v[i]));
  *out = v;
  return AT_OK;
}

// In the arena.
at_status at_mbc_type_list(at_mbc *r, at_mcursor *c,
                           const at_mtype *const **out, uint32_t *n) {
  const at_mtype **v;
  AT_TRY(at_mbc_count(r, c, n));
  AT_TRY_ALLOC(v, at_new(r->c.arena, const at_mtype *, *n));
  for (uint32_t i = 0; i < *n; i++) AT_TRY(at_mbc_type(r, c, &v[i]));
  *out = v;
  return AT_OK;
}

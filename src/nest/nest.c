// Building nests, walks over their statements, and their text form, which dumps
// and goldens have (atoll dump --stage=nest). Nothing here decides anything:
// who makes a nest (compile/native.c) says what is in it.
#include "nest/nest.h"

// The name is borrowed, as those of statements are.
at_status at_nest_create(at_arena *a, const char *name, at_nest **out) {
  AT_TRY_ALLOC(*out, at_new(a, at_nest, 1));
  **out = (at_nest){.arena = a, .name = name};
  return AT_OK;
}

// Buffers are numbered in the order of their making; a PARAM also takes the
// next parameter of the function.
at_status at_nest_add_buffer(at_nest *n, at_nest_memory m, uint64_t bytes,
                             uint32_t *out) {
  at_nest_buffer b = {.memory = m, .bytes = bytes};
  if (m == AT_NEST_PARAM) b.param = n->num_params++;
  *out = (uint32_t)n->buffers.len;
  return at_vec_push(n->arena, &n->buffers, b)
             ? AT_OK
             : AT_NO_MEMORY("a nest's buffers");
}

// Appends in constant time; refs and blocks are zero and for the caller to fill
// in.
at_status at_nest_add(at_arena *a, at_nest_block *b, at_nest_kind kind,
                      const char *name, uint32_t num_refs, uint32_t num_blocks,
                      at_nest_stmt **out) {
  at_nest_stmt *s;
  AT_TRY_ALLOC(s, at_new(a, at_nest_stmt, 1));
  *s = (at_nest_stmt){.kind = kind,
                      .name = name,
                      .num_refs = num_refs,
                      .num_blocks = num_blocks};
  if (num_refs) AT_TRY_ALLOC(s->refs, at_new(a, at_nest_ref, num_refs));
  if (num_blocks) AT_TRY_ALLOC(s->blocks, at_new(a, at_nest_block, num_blocks));
  if (b->last)
    b->last->next = s;
  else
    b->first = s;
  b->last = s;
  *out = s;
  return AT_OK;
}

// A statement comes before the blocks inside it.
at_status at_nest_walk(const at_nest_block *b, at_nest_visit *visit,
                       void *user) {
  for (at_nest_stmt *s = b->first; s; s = s->next) {
    AT_TRY(visit(user, s));
    for (uint32_t i = 0; i < s->num_blocks; i++)
      AT_TRY(at_nest_walk(&s->blocks[i], visit, user));
  }
  return AT_OK;
}

// `user`: the count so far.
static at_status count_one(void *user, at_nest_stmt *s) {
  ++*(uint32_t *)user;
  return AT_OK;
}

// Statements of all blocks, loops and branches included.
uint32_t at_nest_count(const at_nest *n) {
  uint32_t count = 0;
  at_status_free(at_nest_walk(&n->root, count_one, &count));
  return count;
}

// ---- text
// Two columns for each block around the statement.
static void indent(at_strbuf *out, uint32_t depth) {
  for (uint32_t i = 0; i < depth; i++) at_strbuf_addz(out, "  ");
}

// p0, l3[16+8]: parameter or local, offset and bytes where not all of it is
// meant.
static void print_ref(const at_nest *n, const at_nest_ref *r, at_strbuf *out) {
  AT_ASSERT(r->buffer < n->buffers.len);
  const at_nest_buffer *b = &n->buffers.ptr[r->buffer];
  at_strbuf_addf(out, "%c%u", b->memory == AT_NEST_PARAM ? 'p' : 'l',
                 r->buffer);
  if (r->offset || r->bytes != b->bytes)
    at_strbuf_addf(out, "[%llu+%llu]", (unsigned long long)r->offset,
                   (unsigned long long)r->bytes);
}

// Those with this access; one that is read and written comes in both lists.
static void print_refs(const at_nest *n, const at_nest_stmt *s, uint32_t access,
                       at_strbuf *out) {
  const char *between = "";
  for (uint32_t i = 0; i < s->num_refs; i++) {
    if (!(s->refs[i].access & access)) continue;
    at_strbuf_addz(out, between);
    print_ref(n, &s->refs[i], out);
    between = ", ";
  }
}

// In the order of digits: the last byte in memory first.
static void print_element(const at_nest_stmt *s, at_strbuf *out) {
  at_strbuf_addz(out, " with 0x");
  for (uint32_t i = s->element_bytes; i-- > 0;)
    at_strbuf_addf(out, "%02x", s->element[i]);
}

static void print_block(const at_nest *n, const at_nest_block *b,
                        uint32_t depth, at_strbuf *out);

static void print_stmt(const at_nest *n, const at_nest_stmt *s, uint32_t depth,
                       at_strbuf *out) {
  static const char *const words[] = {
      [AT_NEST_CALL] = "call",        [AT_NEST_COPY] = "copy",
      [AT_NEST_FILL] = "fill",        [AT_NEST_EMPTY] = "empty",
      [AT_NEST_WHILE] = "while",      [AT_NEST_CASE] = "case",
      [AT_NEST_EXCHANGE] = "exchange"};
  indent(out, depth);
  at_strbuf_addf(out, "%s ", words[s->kind]);
  if (s->kind == AT_NEST_CALL) at_strbuf_addf(out, "\"%s\" (", s->name);
  if (s->kind != AT_NEST_CALL && s->kind != AT_NEST_WHILE &&
      s->kind != AT_NEST_CASE && s->kind != AT_NEST_EXCHANGE) {
    print_refs(n, s, AT_NEST_WRITE, out);
    if (s->kind == AT_NEST_COPY) at_strbuf_addz(out, " from ");
  }
  print_refs(n, s, AT_NEST_READ, out);
  if (s->kind == AT_NEST_CALL) {
    at_strbuf_addz(out, ") -> (");
    print_refs(n, s, AT_NEST_WRITE, out);
    at_strbuf_addc(out, ')');
    if (s->tasks != 1) at_strbuf_addf(out, " x%lld", (long long)s->tasks);
  }
  if (s->kind == AT_NEST_FILL) print_element(s, out);
  for (uint32_t i = 0; i < s->num_blocks; i++) {
    at_strbuf_addz(out, i                          ? " {\n"
                        : s->kind == AT_NEST_WHILE ? " after {\n"
                                                   : " {\n");
    print_block(n, &s->blocks[i], depth + 1, out);
    indent(out, depth);
    at_strbuf_addz(out, "}");
    if (s->kind == AT_NEST_WHILE && !i) at_strbuf_addz(out, " do");
  }
  at_strbuf_addc(out, '\n');
}

// The statements one below the other.
static void print_block(const at_nest *n, const at_nest_block *b,
                        uint32_t depth, at_strbuf *out) {
  for (const at_nest_stmt *s = b->first; s; s = s->next)
    print_stmt(n, s, depth, out);
}

// Buffers first, then the root block; the text is for people and goldens,
// nothing reads it.
void at_nest_print(const at_nest *n, at_strbuf *out) {
  at_strbuf_addf(out, "nest \"%s\" {\n", n->name);
  for (uint32_t i = 0; i < n->buffers.len; i++) {
    const at_nest_buffer *b = &n->buffers.ptr[i];
    if (b->memory == AT_NEST_PARAM)
      at_strbuf_addf(out, "  p%u: parameter %u, %llu bytes%s\n", i, b->param,
                     (unsigned long long)b->bytes,
                     b->live_out ? ", live out" : "");
    else
      at_strbuf_addf(out, "  l%u: local, %llu bytes\n", i,
                     (unsigned long long)b->bytes);
  }
  print_block(n, &n->root, 1, out);
  at_strbuf_addz(out, "}\n");
}

// A program's digest without its source locations, and the locations
// themselves. While the digest is made (at_places_read) every operation gets a
// number in the order of the walk; steps of the executable carry that number.
// at_places_put replaces files and lines of a cached executable by those of the
// program at hand, by number: the strings of the block grow, nothing else of it
// changes.
#include "compile/places.h"

#include <stdlib.h>

#include "abi/executable.h"
#include "compile/writer.h"
#include "import/import.h"
#include "mosaic/mosaic.h"

// ---- Reading a program
// A key of at_map: the digest's bytes. Borrowed from d.
static at_str digest_key(const at_digest *d) {
  return (at_str){(const char *)d, sizeof *d};
}

// What of a location has a say in the executable beyond files and lines: the
// names of ops, and whether a file is known.
static at_status names_of(at_places *p, const at_mloc *l, at_digest *out) {
  const at_loc *loc;
  AT_TRY(at_import_loc(p->program, l, &p->sources, &loc));
  const at_loc *source = at_loc_source(loc);
  at_mosaic_place place = at_mosaic_place_of(l);
  *out = at_digest_start(0);
  at_digest_add_str(out, at_str_of(loc ? loc->name : NULL));
  at_digest_add_str(out, at_str_of(place.what));
  at_digest_add_u64(out, (source && source->file) << 1 | (*place.file != 0));
  return AT_OK;
}

// names_of(l), made once for each location.
static at_status add_names(at_places *p, const at_mloc *l, at_digest *io) {
  void **at = at_map_find_ptr(&p->names, l);
  if (!at) {
    at_digest d, *kept;
    AT_TRY(names_of(p, l, &d));
    AT_TRY_ALLOC(kept, at_arena_copy(p->names.arena, &d, sizeof d, 8));
    AT_TRY_ALLOC(at, at_map_put_ptr(&p->names, l));
    *at = kept;
  }
  at_digest_add(io, (at_bytes){*at, sizeof(at_digest)});
  return AT_OK;
}

// The entry of that digest; a new one is 0.
static at_status in_body_slot(at_places *p, const at_digest *said,
                              void ***out) {
  at_digest *key;
  *out = at_map_find(&p->in_bodies, digest_key(said));
  if (*out) return AT_OK;
  AT_TRY_ALLOC(key, at_arena_copy(p->in_bodies.arena, said, sizeof *said, 8));
  AT_TRY_ALLOC(*out, at_map_put(&p->in_bodies, digest_key(key)));
  return AT_OK;
}

// Hook of at_mop_digest. Numbers the location and mixes what counts of it into
// *io; the whole of it goes into p->said.
static at_status add_place(void *user, const void *of, const at_mloc *l,
                           at_digest *io) {
  at_places *p = user;
  at_digest said;
  void **at;
  AT_TRY(at_mloc_digest(l, &p->digests, &said));
  at_digest_add(&p->said, (at_bytes){(const uint8_t *)&said, sizeof said});
  if (!l) return AT_OK;
  AT_TRY(add_names(p, l, io));
  if (p->in_body)
    AT_TRY(in_body_slot(p, &said, &at));
  else
    AT_TRY_ALLOC(at, at_map_put_ptr(&p->owners, of));
  if (*at) return AT_OK;
  if (!at_vec_push(p->owners.arena, &p->list, l))
    return AT_NO_MEMORY("locations");
  *at = (void *)(uintptr_t)p->list.len;
  return AT_OK;
}

// A custom call "tpu_custom_call".
static bool is_kernel(const at_mop *op) {
  const at_mattr *name = at_mop_attr(op, "call_target_name");
  return name && name->kind == AT_MATTR_STRING &&
         at_str_is(name->str, "tpu_custom_call");
}

static at_status add_program(at_places *p, const at_mop *op, at_digest *io);

// A kernel's body is a program in bytecode, as base64: its meaning counts. One
// that does not read counts as it stands, and is refused later.
static at_status body_digest(at_places *p, const at_mattr *attr,
                             at_digest *out) {
  at_arena *a = p->owners.arena;
  at_str config = attr->str, text = {0};
  at_bytes body;
  at_mmodule *m;
  at_status st = at_mosaic_body_find(config, a, &text, &body);
  if (at_ok(st) && text.len) st = at_mlir_read(body, true, a, &m);
  if (at_status_code(st) == AT_RESOURCE_EXHAUSTED) return st;
  *out = at_digest_start(0);
  if (at_code_take(st) || !text.len)
    return at_digest_add_str(out, config), AT_OK;
  size_t before = (size_t)(text.ptr - config.ptr), end = before + text.len;
  at_digest_add_str(out, (at_str){config.ptr, before});
  at_digest_add_str(out, (at_str){config.ptr + end, config.len - end});
  p->in_body = true;
  st = add_program(p, m->op, out);
  p->in_body = false;
  return st;
}

// Hook of at_mop_digest: a kernel's configuration by the meaning of its body.
// *done: it was added.
static at_status add_attr(void *user, const at_mop *op, const at_mnamed *attr,
                          at_digest *io, bool *done) {
  at_places *p = user;
  if (strcmp(attr->name, "backend_config") ||
      attr->value->kind != AT_MATTR_STRING || !is_kernel(op))
    return AT_OK;
  void **at = at_map_find_ptr(&p->bodies, attr->value);
  if (!at) {
    at_digest d, *kept;
    AT_TRY(body_digest(p, attr->value, &d));
    AT_TRY_ALLOC(kept, at_arena_copy(p->bodies.arena, &d, sizeof d, 8));
    AT_TRY_ALLOC(at, at_map_put_ptr(&p->bodies, attr->value));
    *at = kept;
  }
  at_digest_add(io, (at_bytes){*at, sizeof(at_digest)});
  return *done = true, AT_OK;
}

// Scratch of the walk is freed at once.
static at_status add_program(at_places *p, const at_mop *op, at_digest *io) {
  at_mdigest_hooks hooks = {p, add_place, add_attr};
  at_arena *scratch;
  AT_TRY_ALLOC(scratch, at_arena_create());
  at_status st = at_mop_digest(op, &hooks, scratch, io);
  at_arena_destroy(scratch);
  return st;
}

// Maps live in `a`, as does what they point to.
at_status at_places_read(at_places *p, const at_mmodule *m, at_arena *a,
                         at_digest *io) {
  *p = (at_places){.program = m,
                   .digests = at_map_in(a),
                   .sources = at_map_in(a),
                   .names = at_map_in(a),
                   .owners = at_map_in(a),
                   .in_bodies = at_map_in(a),
                   .bodies = at_map_in(a),
                   .said = at_digest_start(0)};
  return add_program(p, m->op, io);
}

// Numbers are kept + 1; a missing one marks the executable as bound to its
// source.
static void number_of(at_places *p, void *const *at, uint32_t *out) {
  *out = at ? (uint32_t)((uintptr_t)*at - 1) : AT_NO_PLACE;
  p->bound |= !at;
}

void at_places_find(at_places *p, const void *of, uint32_t *out) {
  *out = AT_NO_PLACE;
  if (of) number_of(p, at_map_find_ptr(&p->owners, of), out);
}

at_status at_places_find_in_body(at_places *p, const at_mloc *l,
                                 uint32_t *out) {
  *out = AT_NO_PLACE;
  if (!l) return AT_OK;
  at_digest d;
  AT_TRY(at_mloc_digest(l, &p->digests, &d));
  number_of(p, at_map_find(&p->in_bodies, digest_key(&d)), out);
  return AT_OK;
}

// ---- Telling an executable
at_status at_place_text_of(const at_mloc *l, at_str op, at_place_text *out) {
  at_mosaic_place p = at_mosaic_place_of(l);
  *out = (at_place_text){.file = p.file, .line = p.line, .column = p.column};
  at_strbuf_add(&out->op, op);
  at_mosaic_callers_put(&out->op, l);
  return at_strbuf_status(&out->op);
}

// A block whose strings grow at its end.
typedef struct block {
  at_bytes b;
  const at_xheader *h;
  at_strbuf strings;
  at_map added;  // text -> offset
} block;

#define BAD(what) AT_FAIL(AT_INVALID_ARGUMENT, "malformed executable: %s", what)

// The bytes of a section of elements of `each` bytes. INVALID_ARGUMENT: it does
// not lie in the block.
static at_status section(const block *x, at_xsection s, size_t each,
                         void *out) {
  const at_xspan *span = &x->h->sections[s];
  if (span->offset % 8 || span->offset > x->b.len ||
      at_mul(span->count, each) > x->b.len - span->offset)
    return BAD("a section");
  *(uint8_t **)out = (uint8_t *)x->b.ptr + span->offset;
  return AT_OK;
}

// Copies the strings, which then grow apart from the block.
static at_status open_block(at_bytes b, at_arena *a, block *x) {
  const char *strings;
  *x = (block){.b = b, .h = (const at_xheader *)b.ptr, .added = at_map_in(a)};
  if (b.len < sizeof *x->h || x->h->magic != AT_EXECUTABLE_MAGIC ||
      x->h->version != AT_EXECUTABLE_VERSION || x->h->total_bytes != b.len)
    return BAD("no header");
  AT_TRY(section(x, AT_XS_STRINGS, 1, &strings));
  uint64_t n = x->h->sections[AT_XS_STRINGS].count;
  if (!n || n > UINT32_MAX || strings[0] || strings[n - 1])
    return BAD("strings");
  at_strbuf_add(&x->strings, (at_str){strings, n});
  return at_strbuf_status(&x->strings);
}

// Makes *offset name `s`, which it may do already.
static at_status put_string(block *x, at_str s, uint32_t *offset) {
  if (*offset >= x->strings.len) return BAD("a string");
  if (at_str_is(s, x->strings.ptr + *offset)) return AT_OK;
  if (!s.len) return *offset = 0, AT_OK;
  void **at = at_map_find(&x->added, s);
  if (!at) {
    char *key;
    AT_TRY_ALLOC(key, at_arena_str(x->added.arena, s));
    AT_TRY_ALLOC(at, at_map_put(&x->added, (at_str){key, s.len}));
    *at = (void *)(uintptr_t)x->strings.len;
    at_strbuf_add(&x->strings, s);
    at_strbuf_addc(&x->strings, 0);
    AT_TRY(at_strbuf_status(&x->strings));
    if (x->strings.len > UINT32_MAX) return BAD("strings");
  }
  *offset = (uint32_t)(uintptr_t)*at;
  return AT_OK;
}

// Files and lines of steps with a number.
static at_status put_steps(at_places *p, block *x) {
  at_xstep *s;
  AT_TRY(section(x, AT_XS_STEPS, sizeof *s, &s));
  for (uint64_t i = 0; i < x->h->sections[AT_XS_STEPS].count; i++) {
    if (s[i].place == AT_NO_PLACE) continue;
    if (s[i].place >= p->list.len) return BAD("the place of a step");
    const at_loc *loc;
    AT_TRY(
        at_import_loc(p->program, p->list.ptr[s[i].place], &p->sources, &loc));
    const at_loc *source = at_loc_source(loc);
    AT_TRY(put_string(x, at_str_of(source ? source->file : NULL), &s[i].file));
    s[i].line = source ? source->line : 0;
  }
  return AT_OK;
}

// File, line, column and the callers of one place in a kernel.
static at_status put_location(at_places *p, block *x, at_xlocation *l) {
  if (l->place >= p->list.len || l->op >= x->strings.len)
    return BAD("a place in a kernel");
  // The operation's name stays; the frames that called it may not.
  const char *was = x->strings.ptr + l->op, *end = strchr(was, ',');
  at_place_text t;
  at_status st = at_place_text_of(
      p->list.ptr[l->place],
      (at_str){was, end ? (size_t)(end - was) : strlen(was)}, &t);
  if (at_ok(st)) st = put_string(x, at_str_of(t.file), &l->file);
  if (at_ok(st)) st = put_string(x, at_strbuf_str(&t.op), &l->op);
  l->line = t.line;
  l->column = t.column;
  at_strbuf_free(&t.op);
  return st;
}

// All that have a number.
static at_status put_locations(at_places *p, block *x) {
  at_xlocation *l;
  AT_TRY(section(x, AT_XS_LOCATIONS, sizeof *l, &l));
  for (uint64_t i = 0; i < x->h->sections[AT_XS_LOCATIONS].count; i++)
    if (l[i].place != AT_NO_PLACE) AT_TRY(put_location(p, x, &l[i]));
  return AT_OK;
}

// The block with its grown strings, as a block of its own.
static at_status close_block(const block *x, at_bytes *io) {
  if (x->strings.len == x->h->sections[AT_XS_STRINGS].count) return AT_OK;
  size_t at = at_align_up(x->b.len, 64),
         all = at_align_up(at + x->strings.len, 64);
  uint8_t *p = aligned_alloc(64, all);
  if (!p) return AT_NO_MEMORY("executable");
  memcpy(p, x->b.ptr, x->b.len);
  memset(p + x->b.len, 0, all - x->b.len);
  memcpy(p + at, x->strings.ptr, x->strings.len);
  at_xheader *h = (at_xheader *)p;
  h->sections[AT_XS_STRINGS] = (at_xspan){at, x->strings.len};
  h->total_bytes = all;
  free((void *)io->ptr);
  *io = (at_bytes){p, all};
  return AT_OK;
}

// The block is only replaced at the end, when all went well.
at_status at_places_put(at_places *p, at_bytes *io) {
  block x;
  at_status st = open_block(*io, p->owners.arena, &x);
  if (at_ok(st)) st = put_steps(p, &x);
  if (at_ok(st)) st = put_locations(p, &x);
  if (at_ok(st)) st = close_block(&x, io);
  at_strbuf_free(&x.strings);
  return st;
}

// Source lines: an instruction's own, or the frames of the module's table.
#include <stdarg.h>
#include <stdio.h>

#include "hloproto/hloproto_internal.h"

typedef AT_VEC(at_bytes) bytes_vec;

// Field `number` of b as bytes, each time it occurs.
static at_status list(at_hp *x, at_bytes b, uint32_t number, bytes_vec *out) {
  for (at_proto_field f; at_proto_next(&b, &f);)
    if (f.number == number && !at_vec_push(x->a, out, f.bytes))
      return AT_NO_MEMORY("source lines");
  return AT_OK;
}

// Tables count from 1; 0 and numbers beyond the table say nothing.
static at_status name_of(at_hp *x, const bytes_vec *names, uint64_t id,
                         const char **out) {
  *out = NULL;
  if (id == 0 || id > names->len) return AT_OK;
  at_bytes b = names->ptr[id - 1];
  AT_TRY_ALLOC(*out, at_arena_str(x->a, (at_str){(const char *)b.ptr, b.len}));
  return AT_OK;
}

// Frames follow those that called them; one that names a later one, or itself,
// is an outermost.
at_status at_hp_frames_read(at_hp *x) {
  at_bytes b = at_proto_bytes(x->proto, 17);
  bytes_vec files = {0}, functions = {0}, places = {0}, frames = {0};
  AT_TRY(list(x, b, 1, &files));
  AT_TRY(list(x, b, 2, &functions));
  AT_TRY(list(x, b, 3, &places));
  AT_TRY(list(x, b, 4, &frames));
  AT_TRY_ALLOC(x->frames, at_new(x->a, const at_loc *, frames.len + 1));
  for (size_t i = 0; i < frames.len; i++) {
    uint64_t place = at_proto_uint(frames.ptr[i], 1);
    uint64_t parent = at_proto_uint(frames.ptr[i], 2);
    at_loc *l;
    AT_TRY_ALLOC(l, at_new(x->a, at_loc, 1));
    *l = (at_loc){0};
    if (place && place <= places.len) {
      at_bytes p = places.ptr[place - 1];
      AT_TRY(name_of(x, &files, at_proto_uint(p, 1), &l->file));
      AT_TRY(name_of(x, &functions, at_proto_uint(p, 2), &l->name));
      l->line = (uint32_t)at_proto_uint(p, 3);
      l->column = (uint32_t)at_proto_uint(p, 4);
    }
    if (parent && parent <= i) l->caller = x->frames[parent - 1];
    x->frames[i] = l;
  }
  x->num_frames = (uint32_t)frames.len;
  return AT_OK;
}

// OpMetadata: op_name 2, source_file 3, source_line 4, stack_frame_id 15,
// source_column 18. A stack frame replaces the line; the op's name is always
// its own.
at_status at_hp_loc(at_hp *x, const at_hp_inst *i, const at_loc **out) {
  at_bytes b = at_proto_bytes(i->body, 7);
  *out = NULL;
  if (b.len == 0) return AT_OK;
  at_str name = at_proto_str(b, 2), file = at_proto_str(b, 3);
  uint64_t frame = at_proto_uint(b, 15);
  at_loc l = {.line = (uint32_t)at_proto_uint(b, 4),
              .column = (uint32_t)at_proto_uint(b, 18)};
  if (frame && frame <= x->num_frames) l = *x->frames[frame - 1];
  l.name = NULL;
  if (name.len) AT_TRY_ALLOC(l.name, at_arena_str(x->a, name));
  if (file.len) AT_TRY_ALLOC(l.file, at_arena_str(x->a, file));
  AT_TRY_ALLOC(*out, at_arena_copy(x->a, &l, sizeof l, _Alignof(at_loc)));
  return AT_OK;
}

// The message is cut at 512 bytes, names at 100.
at_status at_hp_fail(at_hp *x, const at_hp_inst *i, at_code code,
                     const char *file, int line, const char *fmt, ...) {
  char text[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  at_strbuf where = {0};
  const at_loc *l = NULL;
  at_status_free(at_hp_loc(x, i, &l));
  if (at_loc_source(l)) at_loc_print(&where, at_loc_source(l));
  at_status st = at_fail(
      code, file, line, "\"%.*s\" %%%.*s%s%.300s: %s",
      (int)AT_MIN(i->opcode.len, 60u), i->opcode.ptr ? i->opcode.ptr : "",
      (int)AT_MIN(i->name.len, 100u), i->name.ptr ? i->name.ptr : "",
      where.len ? " at " : "", where.len ? where.ptr : "", text);
  at_strbuf_free(&where);
  return st;
}

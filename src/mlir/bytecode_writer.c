// Operations to the IR section, and the file around it. Every attribute goes
// into the operation's dictionary and every region into its parent's value
// numbering, which any reader takes; native properties and lazy regions are not
// needed.
#include "base/verify.h"
#include "mlir/bytecode_write.h"

enum {
  // Bits of an operation's mask: which parts follow.
  HAS_ATTRS = 1,
  HAS_RESULTS = 2,
  HAS_OPERANDS = 4,
  HAS_SUCCESSORS = 8,
  HAS_REGIONS = 16
};

// Remembers a number for an object; lack of memory is noted in `failed` and
// ends the file.
static void put(at_mwriter *w, at_map *map, const void *key, size_t value) {
  void **slot = at_map_put_ptr(map, key);
  if (slot)
    *slot = (void *)(uintptr_t)value;
  else
    w->failed = true;
}

// The number, or 0 for what has none.
static size_t get(const at_map *map, const void *key) {
  void **slot = at_map_find_ptr(map, key);
  return slot ? (size_t)(uintptr_t)*slot : 0;
}

// The index of an operation's name: names are grouped by dialect in the file,
// so they are all known before the first operation is written.
static uint32_t op_index(at_mwriter *w, const char *name) {
  return at_mw_index(w, &w->ops, at_str_of(name));
}

// What stands in front of the first dot.
static at_str op_dialect(at_str name) {
  const char *dot = memchr(name.ptr, '.', name.len);
  return (at_str){name.ptr, dot ? (size_t)(dot - name.ptr) : name.len};
}

static void write_op(at_mwriter *w, at_strbuf *b, const at_mop *op,
                     size_t base);

// Arguments carry a location only where it is known.
static void write_block(at_mwriter *w, at_strbuf *b, const at_mblock *block,
                        size_t base) {
  at_mw_flagged(b, block->num_ops, block->num_args != 0);
  if (block->num_args) {
    at_mw_varint(b, block->num_args);
    for (uint32_t i = 0; i < block->num_args; i++) {
      const at_mloc *l = block->args[i].loc;
      bool has_loc = l && l->kind != AT_MLOC_UNKNOWN;
      at_mw_flagged(b, at_mw_type(w, block->args[i].type), has_loc);
      if (has_loc) at_mw_varint(b, at_mw_loc(w, l));
    }
    at_strbuf_addc(b, 0);  // no order of uses
  }
  for (uint32_t i = 0; i < block->num_ops; i++)
    write_op(w, b, block->ops[i], base);
}

// Values of a region are numbered before those of the regions inside it.
static void write_region(at_mwriter *w, at_strbuf *b, const at_mregion *r,
                         size_t base) {
  size_t next = base;
  at_mw_varint(b, r->num_blocks);
  if (!r->num_blocks) return;
  for (uint32_t i = 0; i < r->num_blocks; i++) {
    const at_mblock *block = r->blocks[i];
    put(w, &w->blocks, block, i);
    for (uint32_t k = 0; k < block->num_args; k++)
      put(w, &w->values, &block->args[k], next++);
    for (uint32_t k = 0; k < block->num_ops; k++)
      for (uint32_t v = 0; v < block->ops[k]->num_results; v++)
        put(w, &w->values, &block->ops[k]->results[v], next++);
  }
  // The number of values that the region defines.
  at_mw_varint(b, next - base);
  for (uint32_t i = 0; i < r->num_blocks; i++)
    write_block(w, b, r->blocks[i], next);
}

// The reader's read_op the other way round. base: the first number that is free
// for the values of its own regions.
static void write_op(at_mwriter *w, at_strbuf *b, const at_mop *op,
                     size_t base) {
  uint8_t mask = (uint8_t)((op->num_attrs ? HAS_ATTRS : 0) |
                           (op->num_results ? HAS_RESULTS : 0) |
                           (op->num_operands ? HAS_OPERANDS : 0) |
                           (op->num_successors ? HAS_SUCCESSORS : 0) |
                           (op->num_regions ? HAS_REGIONS : 0));
  // Name, mask, location, then the parts that the mask names.
  at_mw_varint(b, get(&w->blocks, op->name));
  at_strbuf_addc(b, (char)mask);
  at_mw_varint(b, at_mw_loc(w, op->loc));
  if (op->num_attrs) at_mw_varint(b, at_mw_dict(w, op->attrs, op->num_attrs));
  if (op->num_results) {
    at_mw_varint(b, op->num_results);
    for (uint32_t i = 0; i < op->num_results; i++)
      at_mw_varint(b, at_mw_type(w, op->results[i].type));
  }
  if (op->num_operands) {
    at_mw_varint(b, op->num_operands);
    for (uint32_t i = 0; i < op->num_operands; i++)
      at_mw_varint(b, get(&w->values, op->operands[i]));
  }
  if (op->num_successors) {
    at_mw_varint(b, op->num_successors);
    for (uint32_t i = 0; i < op->num_successors; i++)
      at_mw_varint(b, get(&w->blocks, op->successors[i]));
  }
  if (!op->num_regions) return;
  // Not isolated: regions use the numbers of the values around them.
  at_mw_flagged(b, op->num_regions, false);
  for (uint32_t i = 0; i < op->num_regions; i++)
    write_region(w, b, op->regions[i], base);
}

// ---- Sections
// Id, length, body. Frees the body.
static void section(at_strbuf *out, uint8_t id, at_strbuf *body) {
  at_strbuf_addc(out, (char)id);
  at_mw_varint(out, body->len);
  at_strbuf_add(out, at_strbuf_str(body));
  out->failed |= body->failed;
  at_strbuf_free(body);
  *body = (at_strbuf){0};
}

// Every operation's name gets a number by first use; recursion over regions.
static void collect_names(at_mwriter *w, const at_mop *op) {
  op_index(w, op->name);
  for (uint32_t i = 0; i < op->num_regions; i++)
    for (uint32_t k = 0; k < op->regions[i]->num_blocks; k++) {
      const at_mblock *b = op->regions[i]->blocks[k];
      for (uint32_t n = 0; n < b->num_ops; n++) collect_names(w, b->ops[n]);
    }
}

// Gives the names their places in the file: dialect by dialect, in order of
// first use. The places go where operations look them up, by the name's
// pointer.
static void place_names(at_mwriter *w, const at_mop *op, const at_map *places) {
  put(w, &w->blocks, op->name,
      (size_t)(uintptr_t)*at_map_find(places, at_str_of(op->name)));
  for (uint32_t i = 0; i < op->num_regions; i++)
    for (uint32_t k = 0; k < op->regions[i]->num_blocks; k++) {
      const at_mblock *b = op->regions[i]->blocks[k];
      for (uint32_t n = 0; n < b->num_ops; n++)
        place_names(w, b->ops[n], places);
    }
}

// The section of dialects lists names by dialect. `places` gets each name's
// number in that order.
static void name_groups(at_mwriter *w, at_strbuf *b, at_map *places) {
  size_t place = 0, n = w->ops.len;
  for (size_t i = 0; i < n; i++) {
    at_str d = op_dialect(w->ops.entries[i].key);
    // Its dialect was listed with an earlier name.
    if (at_map_find(places, w->ops.entries[i].key)) continue;
    at_strbuf group = {0};
    size_t count = 0;
    for (size_t k = i; k < n; k++) {
      at_str name = w->ops.entries[k].key;
      if (!at_str_eq(op_dialect(name), d)) continue;
      size_t skip = d.len + (name.len > d.len);
      at_str rest = {name.ptr + skip, name.len - skip};
      at_mw_flagged(&group, at_mw_index(w, &w->strings, rest), false);
      void **slot = at_map_put(places, name);
      if (!slot) {
        w->failed = true;
        break;
      }
      *slot = (void *)(uintptr_t)place++;
      count++;
    }
    at_mw_varint(b, at_mw_index(w, &w->dialects, d));
    at_mw_varint(b, count);
    at_strbuf_add(b, at_strbuf_str(&group));
    w->failed |= group.failed;
    at_strbuf_free(&group);
  }
}

// Runs of entries of one dialect. Offsets hold lengths, data the bytes back to
// back.
static void entry_groups(at_strbuf *offsets, at_strbuf *data,
                         const at_mwtable *t) {
  for (size_t i = 0; i < t->list.len;) {
    size_t n = 1;
    while (i + n < t->list.len &&
           t->list.ptr[i + n].dialect == t->list.ptr[i].dialect)
      n++;
    at_mw_varint(offsets, t->list.ptr[i].dialect);
    at_mw_varint(offsets, n);
    for (; n; n--, i++) {
      at_mw_flagged(offsets, t->list.ptr[i].bytes.len, t->list.ptr[i].custom);
      at_strbuf_add(data, t->list.ptr[i].bytes);
    }
  }
}

// A blob stands at a multiple of its alignment in the file; with an alignment
// of one there is no padding to work out.
static void resource_sections(at_mwriter *w, at_strbuf *out) {
  at_strbuf offsets = {0}, data = {0};
  at_mw_varint(&offsets, 0);
  at_mw_varint(&offsets, at_mw_index(w, &w->dialects, AT_STR("builtin")));
  at_mw_varint(&offsets, w->resources.len);
  for (size_t i = 0; i < w->resources.len; i++) {
    const at_mattr *a = w->resources.ptr[i];
    size_t before = data.len;
    // A resource without bytes has an empty value.
    if (a->data.len) {
      at_mw_varint(&data, 1);
      at_mw_varint(&data, a->data.len);
      at_strbuf_add(&data, (at_str){(const char *)a->data.ptr, a->data.len});
    }
    at_mw_varint(&offsets, at_mw_index(w, &w->strings, at_str_of(a->name)));
    at_mw_varint(&offsets, data.len - before);
    at_strbuf_addc(&offsets, 0);
  }
  section(out, 6, &offsets);
  section(out, 5, &data);
}

// Lengths from the last to the first, then the strings with a NUL each. Written
// last, when all strings are known.
static void string_section(at_mwriter *w, at_strbuf *out) {
  at_strbuf b = {0};
  const at_map *s = &w->strings;
  at_mw_varint(&b, s->len);
  for (size_t i = s->len; i-- > 0;) at_mw_varint(&b, s->entries[i].key.len + 1);
  for (size_t i = 0; i < s->len; i++) {
    at_strbuf_add(&b, s->entries[i].key);
    at_strbuf_addc(&b, 0);
  }
  section(out, 0, &b);
}

// Dialects by name, none with a version, then the names of their operations.
static void dialect_section(at_mwriter *w, at_strbuf *groups, at_strbuf *out) {
  at_strbuf b = {0};
  at_mw_varint(&b, w->dialects.len);
  for (size_t i = 0; i < w->dialects.len; i++)
    at_mw_flagged(&b, at_mw_index(w, &w->strings, w->dialects.entries[i].key),
                  false);
  at_mw_varint(&b, w->ops.len);
  at_strbuf_add(&b, at_strbuf_str(groups));
  section(out, 1, &b);
}

// Entries are found while operations are written, so the sections that hold
// them are put together afterwards.
static void write_file(at_mwriter *w, const at_mmodule *m, const char *producer,
                       at_strbuf *out) {
  at_strbuf ir = {0}, groups = {0}, offsets = {0}, data = {0}, rest = {0},
            none = {0};
  at_map places = at_map_in(w->arena);
  collect_names(w, m->op);
  name_groups(w, &groups, &places);
  if (!w->failed) {
    place_names(w, m->op, &places);
    // One block of one operation, without arguments.
    at_mw_flagged(&ir, 1, false);
    write_op(w, &ir, m->op, 0);
    at_mw_varint(&offsets, w->attrs.list.len);
    at_mw_varint(&offsets, w->types.list.len);
    entry_groups(&offsets, &data, &w->attrs);
    entry_groups(&offsets, &data, &w->types);
    // Ids as the reader's S_ constants have them.
    section(&rest, 3, &offsets);
    section(&rest, 2, &data);
    section(&rest, 4, &ir);
    if (w->resources.len) resource_sections(w, &rest);
    at_strbuf_add(out, (at_str){"ML\xefR", 4});
    at_mw_varint(out, 6);
    at_strbuf_addz(out, producer);
    at_strbuf_addc(out, 0);
    dialect_section(w, &groups, out);
    at_strbuf_add(out, at_strbuf_str(&rest));
    string_section(w, out);
    // Version 6 wants the section of properties, even without any.
    at_mw_varint(&none, 0);
    section(out, 8, &none);
  }
  w->failed |= rest.failed || groups.failed;
  at_strbuf_free(&rest);
  at_strbuf_free(&groups);
}

// Tables live in an arena of their own, which goes at the end.
at_status at_mlir_write_bytecode(const at_mmodule *m, const char *producer,
                                 at_strbuf *out) {
  at_mwriter w = {.arena = at_arena_create()};
  if (!w.arena) return AT_NO_MEMORY("writing bytecode");
  w.strings = w.dialects = w.ops = at_map_in(w.arena);
  w.values = w.blocks = at_map_in(w.arena);
  w.attrs.by_bytes = w.attrs.by_pointer = at_map_in(w.arena);
  w.types.by_bytes = w.types.by_pointer = at_map_in(w.arena);
  // The builtin dialect has index 0.
  at_mw_index(&w, &w.dialects, AT_STR("builtin"));
  size_t from = out->len;
  write_file(&w, m, producer, out);
  bool failed = w.failed || out->failed;
  AT_VERIFY(failed || at_mlir_reads_as(
                          m, (at_str){out->ptr + from, out->len - from}, true));
  at_arena_destroy(w.arena);
  return failed ? AT_NO_MEMORY("writing bytecode") : at_strbuf_status(out);
}

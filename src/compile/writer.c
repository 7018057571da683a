// Sections grow by themselves in the arena, and references between them are
// indices, so that nothing is patched when they move. Strings and types are
// interned. at_writer_finish puts the sections behind each other, each at a
// multiple of 64 bytes, with zeros in between: equal programs give equal
// blocks, byte for byte.
#include "compile/writer.h"

#include <stdlib.h>

// Element sizes by section; strings begin with the empty one.
at_status at_writer_init(at_writer *w, at_arena *a) {
  // Bytes of one element, by section; an index counts these.
  static const size_t sizes[AT_XS_COUNT] = {
      [AT_XS_STRINGS] = 1,
      [AT_XS_DIMS] = sizeof(int64_t),
      [AT_XS_TYPES] = sizeof(at_xtype),
      [AT_XS_SLOTS] = sizeof(at_xslot),
      [AT_XS_ARGS] = sizeof(uint32_t),
      [AT_XS_PARAMS] = 1,
      [AT_XS_STEPS] = sizeof(at_xstep),
      [AT_XS_KERNELS] = sizeof(at_xkernel),
      [AT_XS_OBJECTS] = sizeof(at_xobject),
      [AT_XS_CODE] = 1,
      [AT_XS_CONSTANTS] = 1,
      [AT_XS_INPUTS] = sizeof(at_xio),
      [AT_XS_OUTPUTS] = sizeof(at_xio),
      [AT_XS_PROPERTIES] = sizeof(at_xproperty),
      [AT_XS_CORES] = sizeof(at_xcore),
      [AT_XS_CORE_REFS] = sizeof(at_xcore_ref),
      [AT_XS_LOCATIONS] = sizeof(at_xlocation),
  };
  *w = (at_writer){.arena = a, .strings = at_map_in(a), .types = at_map_in(a)};
  for (int s = 0; s < AT_XS_COUNT; s++) w->sections[s].elem_bytes = sizes[s];
  // Offset 0 of the strings is the empty one: a zeroed record has it.
  uint32_t empty;
  return at_writer_append(w, AT_XS_STRINGS, "", 1, &empty);
}

// RESOURCE_EXHAUSTED: no memory, or an index that does not fit 32 bits.
at_status at_writer_append(at_writer *w, at_xsection id, const void *p,
                           size_t count, uint32_t *out_index) {
  AT_ASSERT((unsigned)id < AT_XS_COUNT && w->sections[id].elem_bytes);
  at_section *s = &w->sections[id];
  size_t bytes = at_mul(count, s->elem_bytes), want = at_add(s->len, bytes);
  // CODE and CONSTANTS are addressed by 64-bit offsets, the rest by 32-bit
  // index.
  if (want == SIZE_MAX || (want / s->elem_bytes > UINT32_MAX &&
                           id != AT_XS_CODE && id != AT_XS_CONSTANTS))
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "executable section %d is too large",
                   id);
  if (want > s->cap &&
      !at_vec_reserve_(w->arena, (void **)&s->ptr, &s->cap, want, 1, s->len))
    return AT_NO_MEMORY("executable");
  if (p && bytes)
    memcpy(s->ptr + s->len, p, bytes);
  else if (bytes)
    memset(s->ptr + s->len, 0, bytes);
  if (out_index) *out_index = (uint32_t)(s->len / s->elem_bytes);
  s->len = want;
  return AT_OK;
}

at_status at_writer_align(at_writer *w, at_xsection id, size_t align) {
  at_section *s = &w->sections[id];
  return at_writer_append(w, id, NULL, at_align_up(s->len, align) - s->len,
                          NULL);
}

// Each text once; kept with a NUL.
at_status at_writer_string(at_writer *w, at_str s, uint32_t *out) {
  if (!s.len) return *out = 0, AT_OK;
  void **at = at_map_find(&w->strings, s);
  if (!at) {
    char *key;
    AT_TRY_ALLOC(key, at_arena_str(w->arena, s));
    uint32_t index;
    AT_TRY(at_writer_append(w, AT_XS_STRINGS, key, s.len + 1, &index));
    AT_TRY_ALLOC(at, at_map_put(&w->strings, (at_str){key, s.len}));
    *at = (void *)(uintptr_t)index;
  }
  *out = (uint32_t)(uintptr_t)*at;
  return AT_OK;
}

// Each element type and shape once.
at_status at_writer_type(at_writer *w, const at_type *t, uint32_t *out) {
  size_t bytes = sizeof(int64_t) * ((size_t)t->rank + 1);
  int64_t *key;
  AT_TRY_ALLOC(key, at_new(w->arena, int64_t, (size_t)t->rank + 1));
  key[0] = t->dtype;
  if (t->rank) memcpy(key + 1, t->dims, t->rank * sizeof *key);
  at_str k = {(const char *)key, bytes};
  void **at = at_map_find(&w->types, k);
  if (!at) {
    at_xtype x = {
        .dtype = t->dtype, .rank = t->rank, .bytes = at_type_bytes(t)};
    AT_TRY(at_writer_append(w, AT_XS_DIMS, t->dims, t->rank, &x.dims));
    uint32_t index;
    AT_TRY(at_writer_append(w, AT_XS_TYPES, &x, 1, &index));
    AT_TRY_ALLOC(at, at_map_put(&w->types, k));
    *at = (void *)(uintptr_t)index;
  }
  *out = (uint32_t)(uintptr_t)*at;
  return AT_OK;
}

// The writer stays as it is; *out is a copy.
at_status at_writer_finish(at_writer *w, const at_xheader *h, at_bytes *out) {
  at_xheader head = *h;
  head.magic = AT_EXECUTABLE_MAGIC;
  head.version = AT_EXECUTABLE_VERSION;
  head.header_bytes = sizeof head;
  head.code_bytes = w->sections[AT_XS_CODE].len;
  size_t at = at_align_up(sizeof head, 64);
  for (int s = 0; s < AT_XS_COUNT; s++) {
    head.sections[s] =
        (at_xspan){at, w->sections[s].len / w->sections[s].elem_bytes};
    at = at_align_up(at_add(at, w->sections[s].len), 64);
  }
  head.total_bytes = at;
  uint8_t *block = at == SIZE_MAX ? NULL : aligned_alloc(64, at);
  if (!block) return AT_NO_MEMORY("executable");
  memset(block, 0, sizeof head);
  memcpy(block, &head, sizeof head);
  size_t end = sizeof head;
  for (int s = 0; s < AT_XS_COUNT; s++) {
    size_t begin = head.sections[s].offset;
    AT_ASSERT(begin >= end && begin % 64 == 0);
    memset(block + end, 0, begin - end);
    if (w->sections[s].len)
      memcpy(block + begin, w->sections[s].ptr, w->sections[s].len);
    end = begin + w->sections[s].len;
  }
  memset(block + end, 0, at - end);
  *out = (at_bytes){block, at};
  return AT_OK;
}

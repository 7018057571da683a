// Blocks that emit_pipeline, or a copy by hand, brings to a buffer: what of it
// is of an earlier block, or lies behind its array, is undefined.
#include "device/core_shadow.h"

// Sets `what` for each granule of the box, which lies in r.
void shade_mark(const shade *s, const region *r, const area *b, uint32_t d,
                const uint8_t *at, int what) {
  if (d < b->rank) {
    for (int64_t i = 0; i < b->size[d]; i++)
      shade_mark(s, r, b, d + 1, at + i * b->stride[d], what);
    return;
  }
  size_t first = (size_t)(at - r->base) / s->granule;
  size_t n = AT_MAX(b->elem_bytes / s->granule, (size_t)1);
  if (first < s->count)
    memset(s->filled + first, what, AT_MIN(n, s->count - first));
}

// Bytes, so that any type shows nonsense.
static void fill_box(const area *b, uint32_t d, uint8_t *at, int value) {
  if (d == b->rank) {
    memset(at, value, b->elem_bytes);
    return;
  }
  for (int64_t i = 0; i < b->size[d]; i++)
    fill_box(b, d + 1, at + i * b->stride[d], value);
}

// Elements of the box are undefined from now on, and are told as `what`.
static void undefine(core_state *c, const shade *s, const region *r,
                     const area *box, int what) {
  shade_mark(s, r, box, 0, box->base, what);
  fill_box(box, 0, box->base, core_runs_again(c) ? 0x5e : 0xff);
}

// A block comes into a buffer: what is left there of the one before it is
// padding, if the new one is smaller.
void blocks_note_fetch(core_state *c, const area *box) {
  shadow *s = c->shadow;
  uint32_t i = 0;
  while (i < s->num_fetches && s->fetches[i].base != box->base) i++;
  const region *r = core_region_of(c, box->base);
  if (i == s->num_fetches) {
    s->fetches = core_shadow_grow(c, s->fetches, s->num_fetches,
                                  &s->cap_fetches, sizeof *s->fetches);
    s->num_fetches++;
  } else if (memcmp(s->fetches[i].size, box->size, sizeof box->size) && r) {
    undefine(c, core_shade_of(c, r), r, &s->fetches[i], 0);
  }
  s->fetches[i] = *box;
}

// A block that lies behind its array's end: its buffer keeps an earlier one.
void core_shadow_empty_copy(core_state *c, const at_core_dma *d) {
  shadow *s = c->shadow;
  const region *r = core_region_of(c, d->dst);
  for (uint32_t i = 0; r && core_shadow_fetches(c) && i < s->num_fetches; i++) {
    if (s->fetches[i].base != (uint8_t *)d->dst) continue;
    undefine(c, core_shade_of(c, r), r, &s->fetches[i], kPadding);
    s->fetches[i] = s->fetches[--s->num_fetches];
    return;
  }
}

// Memory that is given back holds no blocks any more.
void blocks_forget(core_state *c, const uint8_t *p, size_t bytes) {
  shadow *s = c->shadow;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < s->num_fetches; i++)
    if (s->fetches[i].base < p || s->fetches[i].base >= p + bytes)
      s->fetches[kept++] = s->fetches[i];
  s->num_fetches = kept;
}

// What lies behind the source's array is padding where it comes to.
void blocks_pad(core_state *to, const at_core_dma *d, const area *dst) {
  area all = *dst;
  const region *r = core_region_of(to, dst->base);
  bool more = false;
  for (uint32_t k = 0; k < all.rank; k++) {
    more |= d->asked[k] > all.size[k];
    all.size[k] = AT_MAX(d->asked[k], all.size[k]);
  }
  if (!more || !r || r->space != AT_CORE_VMEM ||
      dst->base + area_extent(&all) > r->base + r->bytes)
    return;
  undefine(to, core_shade_of(to, r), r, &all, kPadding);
}

// ---- emit_pipeline
// JAX names the parts of its pipelines, so blocks are known here as those of
// windows are.
static bool in_span(const core_state *c, const char *prefix) {
  uint32_t n = AT_MIN(c->num_spans, (uint32_t)kMaxSpans);
  return n && !strncmp(c->spans[n - 1].name, prefix, strlen(prefix));
}

bool core_shadow_fetches(const core_state *c) {
  return in_span(c, "ep_copy_in") || in_span(c, "ep_initialize");
}

bool core_shadow_retires(const core_state *c) {
  return in_span(c, "ep_wait_out");
}

// The block may not be read after its copy out.
void core_shadow_retire(core_state *c, const area *box) {
  const region *r = core_region_of(c, box->base);
  const shade *s = r && r->space == AT_CORE_VMEM ? core_shade_of(c, r) : NULL;
  if (s) shade_mark(s, r, box, 0, box->base, 0);
}

// Pages: copies that are not made yet. What a kernel copies from an operand
// that nobody writes, to scratch that nobody else writes, stays where it is
// until somebody reads it in any other way than page by page.
#include "base/verify.h"
#include "device/core_internal.h"

// Fewer bytes are copied as fast as they are noted.
enum { kLeastBytes = 1024 };

static bool overlaps(const page *p, const void *at, size_t bytes) {
  const uint8_t *q = at;
  return q < p->dst + p->bytes && p->dst < q + bytes;
}

// Order does not matter: the last takes its place.
static void drop_page(core_state *c, uint32_t i) {
  AT_ASSERT(i < c->num_pages);
  c->pages[i] = c->pages[--c->num_pages];
}

// Makes the copies whose destination meets these bytes, as somebody reads or
// writes them.
void core_pages_settle(core_state *c, const void *at, size_t bytes) {
  for (uint32_t i = c->num_pages; i-- > 0;) {
    page *p = &c->pages[i];
    if (!overlaps(p, at, bytes)) continue;
    int64_t size = (int64_t)p->bytes, one = 1;
    box b = {p->dst, p->src, 1, 1, &size, &one, &one};
    core_copy_shared(c->launch->par->pool, &b);
    drop_page(c, i);
  }
}

// Looks at `*next` first: buffers are filled, and read, in the same order again
// and again. No two pages begin at one place.
static page *page_at(core_state *c, const void *at, uint32_t *next) {
  uint32_t k = *next;
  for (uint32_t i = 0; i < c->num_pages; i++, k++) {
    if (k >= c->num_pages) k = 0;
    if (c->pages[k].dst != at) continue;
    *next = k + 1;
    return &c->pages[k];
  }
  return NULL;
}

// Each byte of scratch waits for one copy at most. Quadratic, but kMaxPages is
// small; run by AT_VERIFY alone.
static bool all_apart(const core_state *c) {
  for (uint32_t i = 0; i < c->num_pages; i++)
    for (uint32_t k = 0; k < i; k++)
      if (overlaps(&c->pages[i], c->pages[k].dst, c->pages[k].bytes))
        return false;
  return c->num_pages <= kMaxPages;
}

bool core_pages_note(core_state *c, void *dst, const void *src, size_t bytes) {
  if (bytes < kLeastBytes) return false;
  page *p = page_at(c, dst, &c->next_page);
  if (p && p->bytes == bytes) {
    p->src = src;
    return true;
  }
  core_pages_settle(c, dst, bytes);
  if (c->num_pages == kMaxPages) return false;
  if (!c->pages) c->pages = core_take(c, kMaxPages * sizeof *c->pages, "pages");
  c->pages[c->num_pages++] = (page){dst, src, bytes};
  AT_VERIFY(all_apart(c));
  return true;
}

// Before generated code reads these bytes in the ordinary way.
void at_core_pages_fetch(at_core *core, const void *at, int64_t bytes) {
  core_state *c = state_of(core);
  if (c->num_pages && bytes > 0) core_pages_settle(c, at, (size_t)bytes);
}

// A matmul may read its operand page by page from where it lies. True: all
// bytes are covered by pages of equal size, in order; false: they have been
// copied to `at`. out->next is a guess at the page that is read next, for
// prefetching.
bool at_core_pages_of(at_core *core, const void *at, int64_t bytes,
                      at_core_pages *out) {
  core_state *c = state_of(core);
  const uint8_t *from = at;
  out->count = 0;
  out->bytes = 0;
  for (int64_t done = 0; done < bytes; done += out->bytes) {
    const page *p = page_at(c, from + done, &c->next_read);
    if (!p || (done && (int64_t)p->bytes != out->bytes) ||
        done + (int64_t)p->bytes > bytes || out->count == AT_CORE_MOST_PAGES) {
      at_core_pages_fetch(core, at, bytes);
      return false;
    }
    out->bytes = (int64_t)p->bytes;
    out->page[out->count++] = p->src;
  }
  AT_ASSERT(!out->count || out->bytes * out->count == bytes);
  uint32_t next = c->next_read < c->num_pages ? c->next_read : 0;
  out->next = c->num_pages ? c->pages[next].src : NULL;
  return out->count > 0;
}

// The digest's mixing, and the digest of a build: what a cache on disk is keyed
// by, so that a new library does not read an old one's code.
#include "base/digest.h"

#include <elf.h>
#include <link.h>

// n is in (0, 64).
static uint64_t rotate(uint64_t x, int n) { return x << n | x >> (64 - n); }

// Two independent 64-bit lanes over 8-byte words, finalised by multiplication.
// Every step is a bijection of the lane's state, and of the word that it takes.
void at_digest_add(at_digest *d, at_bytes b) {
  AT_ASSERT(b.ptr || !b.len);
  uint64_t h0 = d->h[0] ^ b.len, h1 = d->h[1] + b.len;
  for (size_t i = 0; i < b.len; i += 8) {
    uint64_t w = 0;
    memcpy(&w, b.ptr + i, AT_MIN((size_t)8, b.len - i));
    h0 = rotate((h0 ^ w) * 0x9e3779b97f4a7c15ull, 29);
    h1 = (rotate(h1, 31) + w) * 0xc2b2ae3d27d4eb4full;
    h1 ^= h1 >> 33;
  }
  d->h[0] = (h0 ^ h0 >> 32) * 0xd6e8feb86659fd93ull;
  d->h[1] = (h1 ^ h1 >> 29) * 0xbf58476d1ce4e5b9ull;
}

void at_digest_add_u64(at_digest *d, uint64_t v) {
  at_digest_add(d, (at_bytes){(const uint8_t *)&v, sizeof v});
}

void at_digest_add_str(at_digest *d, at_str s) {
  at_digest_add(d, (at_bytes){(const uint8_t *)s.ptr, s.len});
}

// ---- Builds
// What at_digest_build looks for, and what it has found.
typedef struct search {
  uintptr_t address;
  at_digest digest;
  bool found;
} search;

// Whether one of the object's loaded segments has the address.
static bool holds(const struct dl_phdr_info *o, uintptr_t address) {
  for (int i = 0; i < o->dlpi_phnum; i++) {
    const ElfW(Phdr) *p = &o->dlpi_phdr[i];
    if (p->p_type == PT_LOAD &&
        address - o->dlpi_addr - p->p_vaddr < p->p_memsz)
      return true;
  }
  return false;
}

// The build id among the notes of a segment; empty: none.
static at_bytes build_id(const uint8_t *notes, size_t size) {
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) n;
    memcpy(&n, notes, sizeof n);
    size_t name = at_align_up(n.n_namesz, 4), desc = at_align_up(n.n_descsz, 4);
    size_t all = at_add(sizeof n, at_add(name, desc));
    if (all > size) break;
    if (n.n_type == NT_GNU_BUILD_ID && n.n_namesz == 4 &&
        !memcmp(notes + sizeof n, "GNU", 4))
      return (at_bytes){notes + sizeof n + name, n.n_descsz};
    notes += all;
    size -= all;
  }
  return (at_bytes){0};
}

// For dl_iterate_phdr: ends at the object that holds the address. Its build id
// counts, or without one the bytes of its code.
static int look(struct dl_phdr_info *o, size_t size, void *user) {
  search *s = user;
  if (!holds(o, s->address)) return 0;
  for (int i = 0; i < o->dlpi_phnum; i++) {
    const ElfW(Phdr) *p = &o->dlpi_phdr[i];
    if (p->p_type != PT_NOTE) continue;
    at_bytes id =
        build_id((const uint8_t *)(o->dlpi_addr + p->p_vaddr), p->p_memsz);
    if (!id.len) continue;
    at_digest_add(&s->digest, id);
    return s->found = true;
  }
  for (int i = 0; i < o->dlpi_phnum; i++) {
    const ElfW(Phdr) *p = &o->dlpi_phdr[i];
    if (p->p_type == PT_LOAD && (p->p_flags & PF_X) && !(p->p_flags & PF_W))
      at_digest_add(
          &s->digest,
          (at_bytes){(const uint8_t *)(o->dlpi_addr + p->p_vaddr), p->p_memsz});
  }
  return s->found = true;
}

// Walks over the objects that the loader has.
at_status at_digest_build(const void *address, at_digest *out) {
  search s = {.address = (uintptr_t)address, .digest = at_digest_start(0)};
  dl_iterate_phdr(look, &s);
  if (!s.found)
    return AT_FAIL(AT_NOT_FOUND, "no library of this process holds address %p",
                   address);
  *out = s.digest;
  return AT_OK;
}

// Loads relocatable x86-64 ELF objects. One mapping per object, in this order:
// text and import stubs (r-x), read-only data and the GOT (r--), data (rw-), so
// that every 32-bit displacement between them fits. Nothing is ever writable
// and executable. The file is not trusted: every offset, index and size is
// checked before use.
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/map.h"
#include "exec/exec_internal.h"

enum { SEG_TEXT, SEG_RODATA, SEG_DATA, SEG_COUNT };
enum { kPage = 4096, kStubBytes = 16, kMaxObject = 1 << 30 };

struct at_object {
  uint8_t *base;
  size_t bytes;
  at_arena *arena;
  at_map symbols;  // name -> address
};

typedef struct loader {
  at_bytes file;
  at_arena *arena;
  const Elf64_Ehdr *header;
  const Elf64_Shdr *sections;
  uint32_t num_sections;
  size_t *place;  // per section: offset in the mapping, SIZE_MAX: not loaded
  size_t segment_at[SEG_COUNT], segment_bytes[SEG_COUNT];
  size_t stubs_at, got_at, total;
  const Elf64_Sym *symbols;
  uint32_t num_symbols;
  at_bytes names;     // string table of the symbols
  uint64_t *address;  // per symbol, 0: none
  uint8_t *base;
} loader;

#define BAD(...) AT_FAIL(AT_INVALID_ARGUMENT, "object: " __VA_ARGS__)

static bool within(at_bytes file, uint64_t offset, uint64_t bytes) {
  return offset <= file.len && bytes <= file.len - offset;
}

// Bytes of a section whose place in the file read_header has checked.
static at_bytes section_bytes(const loader *l, uint32_t i) {
  const Elf64_Shdr *s = &l->sections[i];
  return (at_bytes){l->file.ptr + s->sh_offset, s->sh_size};
}

// Header and section table; every section that has bytes lies in the file.
static at_status read_header(loader *l) {
  const Elf64_Ehdr *h = (const Elf64_Ehdr *)l->file.ptr;
  if (l->file.len < sizeof *h || memcmp(h->e_ident, ELFMAG, SELFMAG) ||
      h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_ident[EI_DATA] != ELFDATA2LSB)
    return BAD("not a little-endian 64-bit ELF file");
  if (h->e_type != ET_REL || h->e_machine != EM_X86_64)
    return BAD("not relocatable x86-64 code (type %u, machine %u)", h->e_type,
               h->e_machine);
  if (l->file.len > kMaxObject) return BAD("larger than 1 GiB");
  if (h->e_shentsize != sizeof(Elf64_Shdr) || h->e_shoff % 8 ||
      !within(l->file, h->e_shoff, (uint64_t)h->e_shnum * sizeof(Elf64_Shdr)))
    return BAD("section headers lie outside the file");
  l->header = h;
  l->sections = (const Elf64_Shdr *)(l->file.ptr + h->e_shoff);
  l->num_sections = h->e_shnum;
  for (uint32_t i = 0; i < l->num_sections; i++) {
    const Elf64_Shdr *s = &l->sections[i];
    if (s->sh_type != SHT_NOBITS && s->sh_type != SHT_NULL &&
        !within(l->file, s->sh_offset, s->sh_size))
      return BAD("section %u lies outside the file", i);
    if (s->sh_size > kMaxObject) return BAD("section %u is too large", i);
  }
  return AT_OK;
}

// By the section's rights.
static int segment_of(const Elf64_Shdr *s) {
  return s->sh_flags & SHF_EXECINSTR ? SEG_TEXT
         : s->sh_flags & SHF_WRITE   ? SEG_DATA
                                     : SEG_RODATA;
}

// Offsets inside of the segments; no section is writable and executable.
static at_status place_sections(loader *l) {
  // UBSan's check of indirect calls reads the bytes before a function.
  l->segment_bytes[SEG_TEXT] = 64;
  AT_TRY_ALLOC(l->place, at_new(l->arena, size_t, l->num_sections + 1));
  for (uint32_t i = 0; i < l->num_sections; i++) {
    const Elf64_Shdr *s = &l->sections[i];
    l->place[i] = SIZE_MAX;
    if (!(s->sh_flags & SHF_ALLOC) || s->sh_type == SHT_NULL) continue;
    if (s->sh_flags & SHF_TLS) return BAD("thread-local data in section %u", i);
    if ((s->sh_flags & SHF_EXECINSTR) && (s->sh_flags & SHF_WRITE))
      return BAD("section %u is writable and executable", i);
    uint64_t align = s->sh_addralign ? s->sh_addralign : 1;
    if ((align & (align - 1)) || align > kPage)
      return BAD("section %u: alignment %llu", i, (unsigned long long)align);
    size_t *used = &l->segment_bytes[segment_of(s)];
    l->place[i] = at_align_up(*used, align);  // for now: inside its segment
    *used = l->place[i] + s->sh_size;
    if (*used > kMaxObject) return BAD("more than 1 GiB of sections");
  }
  return AT_OK;
}

// At most one symbol table; names end in NUL.
static at_status find_symbols(loader *l) {
  for (uint32_t i = 0; i < l->num_sections; i++) {
    const Elf64_Shdr *s = &l->sections[i];
    if (s->sh_type != SHT_SYMTAB) continue;
    if (l->symbols) return BAD("two symbol tables");
    if (s->sh_entsize != sizeof(Elf64_Sym) || s->sh_offset % 8 ||
        s->sh_link >= l->num_sections ||
        l->sections[s->sh_link].sh_type != SHT_STRTAB)
      return BAD("malformed symbol table");
    l->symbols = (const Elf64_Sym *)(l->file.ptr + s->sh_offset);
    l->num_symbols = (uint32_t)(s->sh_size / sizeof(Elf64_Sym));
    l->names = section_bytes(l, s->sh_link);
    if (!l->names.len || l->names.ptr[l->names.len - 1])
      return BAD("symbol names do not end");
  }
  return AT_OK;
}

// The order of the mapping, and where each part starts.
static at_status lay_out(loader *l) {
  l->stubs_at = at_align_up(l->segment_bytes[SEG_TEXT], kStubBytes);
  l->segment_bytes[SEG_TEXT] =
      l->stubs_at + (size_t)l->num_symbols * kStubBytes;
  size_t got = at_align_up(l->segment_bytes[SEG_RODATA], 8);
  l->segment_bytes[SEG_RODATA] = got + (size_t)l->num_symbols * 8;
  for (int s = 0; s < SEG_COUNT; s++) {
    l->segment_at[s] = l->total;
    l->total += at_align_up(l->segment_bytes[s], kPage);
  }
  l->got_at = l->segment_at[SEG_RODATA] + got;
  for (uint32_t i = 0; i < l->num_sections; i++)
    if (l->place[i] != SIZE_MAX)
      l->place[i] += l->segment_at[segment_of(&l->sections[i])];
  if (l->total > kMaxObject) return BAD("needs more than 1 GiB");
  return AT_OK;
}

// Writable until protect; sections without bytes stay zero.
static at_status map_sections(loader *l) {
  if (!l->total) l->total = kPage;
  l->base = mmap(NULL, l->total, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (l->base == MAP_FAILED) {
    l->base = NULL;
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for %zu bytes of code",
                   l->total);
  }
  for (uint32_t i = 0; i < l->num_sections; i++) {
    const Elf64_Shdr *s = &l->sections[i];
    if (l->place[i] != SIZE_MAX && s->sh_type != SHT_NOBITS && s->sh_size)
      memcpy(l->base + l->place[i], l->file.ptr + s->sh_offset, s->sh_size);
  }
  return AT_OK;
}

// NULL: outside of the table.
static const char *symbol_name(const loader *l, const Elf64_Sym *s) {
  return s->st_name < l->names.len ? (const char *)l->names.ptr + s->st_name
                                   : NULL;
}

// jmp *0(%rip); address
static uint64_t make_stub(loader *l, uint32_t symbol, const void *target) {
  uint8_t *p = l->base + l->stubs_at + (size_t)symbol * kStubBytes;
  static const uint8_t jump[6] = {0xff, 0x25, 0, 0, 0, 0};
  memcpy(p, jump, sizeof jump);
  memcpy(p + sizeof jump, &target, sizeof target);
  return (uint64_t)(uintptr_t)p;
}

// The address of symbol i: a stub for imports, a place in the mapping for
// others, 0 for what needs none. Names are kept for at_object_symbol.
static at_status resolve_one(loader *l, uint32_t i, at_object *o) {
  const Elf64_Sym *s = &l->symbols[i];
  const char *name = symbol_name(l, s);
  if (!name) return BAD("symbol %u has no name in the table", i);
  uint32_t type = ELF64_ST_TYPE(s->st_info);
  if (s->st_shndx == SHN_UNDEF) {
    if (!*name) return AT_OK;
    const at_ximport *import = at_import_find(at_str_of(name));
    if (!import)
      return BAD(
          "undefined symbol %.200s\nhint: generated code may call only "
          "what abi/imports.def lists",
          name);
    l->address[i] = make_stub(l, i, import->address);
    return AT_OK;
  }
  if (s->st_shndx == SHN_ABS || type == STT_FILE) return AT_OK;
  if (type == STT_TLS || s->st_shndx >= l->num_sections)
    return BAD("symbol %.200s lies in section %u", name, s->st_shndx);
  if (l->place[s->st_shndx] == SIZE_MAX) return AT_OK;  // debug information
  if (s->st_value > l->sections[s->st_shndx].sh_size)
    return BAD("symbol %.200s lies outside its section", name);
  uint8_t *at = l->base + l->place[s->st_shndx] + s->st_value;
  l->address[i] = (uint64_t)(uintptr_t)at;
  if (!*name || type == STT_SECTION) return AT_OK;
  char *key;
  AT_TRY_ALLOC(key, at_arena_str(o->arena, at_str_of(name)));
  void **place = at_map_put(&o->symbols, at_str_of(key));
  if (!place) return AT_NO_MEMORY("symbols");
  *place = at;
  return AT_OK;
}

// The GOT has an entry for each symbol, used or not.
static at_status resolve_symbols(loader *l, at_object *o) {
  AT_TRY_ALLOC(l->address, at_new(l->arena, uint64_t, l->num_symbols + 1));
  for (uint32_t i = 1; i < l->num_symbols; i++) {
    AT_TRY(resolve_one(l, i, o));
    memcpy(l->base + l->got_at + (size_t)i * 8, &l->address[i], 8);
  }
  return AT_OK;
}

// INVALID_ARGUMENT: out of range of 32 bits.
static at_status put32(uint8_t *at, int64_t v, bool is_signed, uint32_t type) {
  bool fits = is_signed ? v >= INT32_MIN && v <= INT32_MAX
                        : v >= 0 && v <= (int64_t)UINT32_MAX;
  if (!fits) return BAD("relocation of type %u does not fit 32 bits", type);
  uint32_t word = (uint32_t)v;
  memcpy(at, &word, 4);
  return AT_OK;
}

// One relocation of `section`: place, symbol and width are checked before
// anything is written.
static at_status relocate_one(loader *l, uint32_t section,
                              const Elf64_Rela *r) {
  uint32_t type = (uint32_t)ELF64_R_TYPE(r->r_info);
  uint32_t symbol = (uint32_t)ELF64_R_SYM(r->r_info);
  if (type == R_X86_64_NONE) return AT_OK;
  uint64_t width = type == R_X86_64_64 || type == R_X86_64_PC64 ? 8 : 4;
  uint64_t size = l->sections[section].sh_size;
  if (r->r_offset > size || width > size - r->r_offset)
    return BAD("relocation outside section %u", section);
  if (symbol >= l->num_symbols || !l->address[symbol])
    return BAD("relocation against symbol %u, which has no address", symbol);
  uint8_t *at = l->base + l->place[section] + r->r_offset;
  uint64_t s = l->address[symbol], p = (uint64_t)(uintptr_t)at;
  uint64_t got = (uint64_t)(uintptr_t)(l->base + l->got_at) + symbol * 8ull;
  uint64_t a = (uint64_t)r->r_addend;
  switch (type) {
    case R_X86_64_64:
      s += a;
      return memcpy(at, &s, 8), AT_OK;
    case R_X86_64_PC64:
      s += a - p;
      return memcpy(at, &s, 8), AT_OK;
    case R_X86_64_PC32:
    case R_X86_64_PLT32:
      return put32(at, (int64_t)(s + a - p), true, type);
    case R_X86_64_GOTPCREL:
    case R_X86_64_GOTPCRELX:
    case R_X86_64_REX_GOTPCRELX:
      return put32(at, (int64_t)(got + a - p), true, type);
    case R_X86_64_32:
      return put32(at, (int64_t)(s + a), false, type);
    case R_X86_64_32S:
      return put32(at, (int64_t)(s + a), true, type);
    default:
      return BAD("relocation of type %u is not known", type);
  }
}

// All relocation sections; those of debug information are skipped.
static at_status relocate(loader *l) {
  for (uint32_t i = 0; i < l->num_sections; i++) {
    const Elf64_Shdr *s = &l->sections[i];
    if (s->sh_type == SHT_REL) return BAD("relocations without addends");
    if (s->sh_type != SHT_RELA) continue;
    if (s->sh_info >= l->num_sections || s->sh_offset % 8 ||
        s->sh_entsize != sizeof(Elf64_Rela))
      return BAD("malformed relocation section %u", i);
    const Elf64_Shdr *target = &l->sections[s->sh_info];
    if (l->place[s->sh_info] == SIZE_MAX) continue;
    if (target->sh_type == SHT_NOBITS) return BAD("relocation of zeroed data");
    const Elf64_Rela *r = (const Elf64_Rela *)(l->file.ptr + s->sh_offset);
    for (size_t k = 0; k < s->sh_size / sizeof *r; k++)
      AT_TRY(relocate_one(l, s->sh_info, &r[k]));
  }
  return AT_OK;
}

// W^X from here on.
static at_status protect(loader *l) {
  static const int rights[SEG_COUNT] = {PROT_READ | PROT_EXEC, PROT_READ,
                                        PROT_READ | PROT_WRITE};
  for (int s = 0; s < SEG_COUNT; s++) {
    size_t n = at_align_up(l->segment_bytes[s], kPage);
    if (!n || !mprotect(l->base + l->segment_at[s], n, rights[s])) continue;
    if (errno == ENOMEM)
      return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory to map code");
    return AT_FAIL(AT_FAILED_PRECONDITION,
                   "this system does not let a process map code\n"
                   "hint: look for SELinux or seccomp rules against mprotect");
  }
  return AT_OK;
}

// o owns the mapping as soon as it exists.
static at_status load_into(loader *l, at_object *o) {
  AT_TRY(read_header(l));
  AT_TRY(place_sections(l));
  AT_TRY(find_symbols(l));
  AT_TRY(lay_out(l));
  at_status st = map_sections(l);
  o->base = l->base;
  o->bytes = l->total;
  AT_TRY(st);
  AT_TRY(resolve_symbols(l, o));
  AT_TRY(relocate(l));
  return protect(l);
}

// The structures of the file are read in place, so it must be aligned.
static at_status aligned_copy(at_arena *a, at_bytes *file) {
  if ((uintptr_t)file->ptr % 8 == 0) return AT_OK;
  void *p;
  AT_TRY_ALLOC(p, at_arena_copy(a, file->ptr, file->len, 8));
  file->ptr = p;
  return AT_OK;
}

// Scratch of the loader is freed either way.
at_status at_object_load(at_bytes elf, at_object **out) {
  at_object *o = calloc(1, sizeof *o);
  at_arena *work = at_arena_create();
  loader l = {.file = elf, .arena = work};
  at_status st = AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory to load code");
  if (!o || !work || !(o->arena = at_arena_create())) goto fail;
  at_status_free(st);
  o->symbols = at_map_in(o->arena);
  AT_TRY_GOTO(st, aligned_copy(work, &l.file), fail);
  AT_TRY_GOTO(st, load_into(&l, o), fail);
  at_arena_destroy(work);
  *out = o;
  return AT_OK;
fail:
  at_arena_destroy(work);
  at_object_unload(o);
  return st;
}

// NULL, or one that is not complete: nothing more is freed than there is.
void at_object_unload(at_object *o) {
  if (!o) return;
  if (o->base) munmap(o->base, o->bytes);
  at_arena_destroy(o->arena);
  free(o);
}

void *at_object_symbol(const at_object *o, const char *name) {
  void **p = at_map_find(&o->symbols, at_str_of(name));
  return p ? *p : NULL;
}

size_t at_object_mapped_bytes(const at_object *o) { return o->bytes; }

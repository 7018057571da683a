// Functions that archives of Debian 12 call and glibc 2.34, or a machine
// without Fortran, does not have. Hidden: nothing outside of libatoll.so sees
// them.
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>

#include "base/span.h"

uint32_t arc4random(void);
void _gfortran_concat_string(size_t out_bytes, char *out, size_t a_bytes,
                             const char *a, size_t b_bytes, const char *b);

// glibc 2.36. LLVM names temporary files by it.
uint32_t arc4random(void) {
  uint32_t r = 0;
  while (getrandom(&r, sizeof r, 0) != sizeof r) continue;
  return r;
}

typedef struct search {
  uintptr_t pc;
  struct dl_find_object *out;
} search;

// dl_iterate_phdr's callback: 1 found, 2 the object has no frames, 0 another
// object.
static int look(struct dl_phdr_info *info, size_t size, void *arg) {
  search *s = arg;
  uintptr_t first = UINTPTR_MAX, end = 0;
  const ElfW(Phdr) *frames = NULL;
  bool here = false;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *h = &info->dlpi_phdr[i];
    if (h->p_type == PT_GNU_EH_FRAME) frames = h;
    if (h->p_type != PT_LOAD) continue;
    uintptr_t from = info->dlpi_addr + h->p_vaddr, to = from + h->p_memsz;
    here |= s->pc >= from && s->pc < to;
    first = AT_MIN(first, from), end = AT_MAX(end, to);
  }
  if (!here) return 0;
  *s->out = (struct dl_find_object){
      .dlfo_map_start = (void *)first,
      .dlfo_map_end = (void *)end,
      .dlfo_eh_frame =
          frames ? (void *)(info->dlpi_addr + frames->p_vaddr) : NULL,
  };
  return frames ? 1 : 2;
}

// glibc 2.35. The unwinder finds the frames of a function by it.
int _dl_find_object(void *pc, struct dl_find_object *out) {
  search s = {(uintptr_t)pc, out};
  return dl_iterate_phdr(look, &s) == 1 ? 0 : -1;
}

// The Fortran runtime: a and b, cut or padded with blanks. LAPACK makes the
// options of ILAENV with it.
void _gfortran_concat_string(size_t out_bytes, char *out, size_t a_bytes,
                             const char *a, size_t b_bytes, const char *b) {
  size_t n = AT_MIN(a_bytes, out_bytes), m = AT_MIN(b_bytes, out_bytes - n);
  memcpy(out, a, n);
  memcpy(out + n, b, m);
  memset(out + n + m, ' ', out_bytes - n - m);
}

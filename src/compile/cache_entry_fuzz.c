// Hostile entries of the disk cache. The input is read as an entry, and as
// changes (offset, byte) to an executable that is then told a program's places:
// a status, or strings that are inside of it.
#include <stdlib.h>
#include <string.h>

#include "compile/cache.h"
#include "compile/compile.h"
#include "compile/places.h"

static const char kProgram[] =
    "module @m { func.func @main(%arg0: tensor<8xf32>) -> tensor<8xf32> {\n"
    "  %0 = stablehlo.sine %arg0 : tensor<8xf32> "
    "loc(\"s\"(\"folder/file.py\":3:1))\n"
    "  %1 = \"stablehlo.sort\"(%0) ({ ^bb0(%x: tensor<f32>, %y: tensor<f32>):\n"
    "    %c = stablehlo.compare LT, %x, %y : (tensor<f32>, tensor<f32>) -> "
    "tensor<i1>\n"
    "    stablehlo.return %c : tensor<i1> }) {dimension = 0 : i64} : "
    "(tensor<8xf32>)\n"
    "  -> tensor<8xf32> loc(\"t\"(\"folder/file.py\":4:1))\n"
    "  return %1 : tensor<8xf32> } }";

// A small block that at_places_put accepts, with one location.
static at_bytes executable(void) {
  static at_bytes x;
  at_compile_options o = {.threads = 1, .no_cache = true};
  at_bytes program = {(const uint8_t *)kProgram, sizeof kProgram - 1};
  if (!x.ptr && at_code_take(at_compile(program, &o, &x))) abort();
  return x;
}

static void tell_places(at_bytes *block) {
  at_arena *a = at_arena_create();
  at_mmodule *m;
  at_places p;
  at_digest d = at_digest_start(0);
  if (!a || at_code_take(at_mlir_read_text(AT_STR(kProgram), a, &m)) ||
      at_code_take(at_places_read(&p, m, a, &d)))
    abort();
  if (!at_code_take(at_places_put(&p, block))) {
    const at_xheader *h = (const at_xheader *)block->ptr;
    at_xspan s = h->sections[AT_XS_STRINGS];
    if (s.offset + s.count > block->len || block->ptr[s.offset + s.count - 1])
      abort();
  }
  at_arena_destroy(a);
}

// Reads the input as an entry; then as an executable behind a valid header,
// which places may rewrite.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  at_cache_key k = {0};
  at_bytes x, good = executable();
  if (at_cache_entry_read((at_bytes){data, size}, &k, &x) &&
      (x.ptr < data || x.ptr + x.len > data + size))
    abort();
  uint8_t *copy = aligned_alloc(64, at_align_up(good.len, 64));
  if (!copy) return 0;
  memcpy(copy, good.ptr, good.len);
  for (; size >= 4; data += 4, size -= 4) {
    uint32_t at =
        (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16;
    copy[at % good.len] = data[3];
  }
  at_bytes block = {copy, good.len};
  tell_places(&block);
  free((void *)block.ptr);
  return 0;
}

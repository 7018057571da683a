// Replays every file below the given folders through a fuzz target, so that a
// corpus is a plain regression test on any compiler.
#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int files;

static int replay(const char *path, const struct stat *st, int kind,
                  struct FTW *ftw) {
  if (kind != FTW_F) return 0;
  FILE *f = fopen(path, "rb");
  if (!f) return perror(path), 1;
  size_t size = (size_t)st->st_size;
  // An exact-size heap block, so that a sanitizer sees a read past the end.
  uint8_t *data = malloc(size ? size : 1);
  size_t got = data ? fread(data, 1, size, f) : 0;
  fclose(f);
  if (got == size) LLVMFuzzerTestOneInput(data, size), files++;
  free(data);
  return got == size ? 0 : 1;
}

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++)
    if (nftw(argv[i], replay, 16, FTW_PHYS)) return 1;
  printf("%d inputs replayed\n", files);
  return files ? 0 : 1;
}

// Places in a program's source, apart from what the program means. Two
// processes that run one program from different folders send different
// locations; the executable is the same but for the files and lines that it
// names. So a program's key has none of them in it, and a cached executable is
// told those of the program at hand: each of its steps knows which operation it
// stands for.
#ifndef ATOLL_COMPILE_PLACES_H_
#define ATOLL_COMPILE_PLACES_H_

#include "base/arena.h"
#include "base/digest.h"
#include "base/map.h"
#include "hlo/hlo.h"
#include "mlir/mlir.h"

// Single-threaded. Borrows the program that it was made from, and its arena.
typedef struct at_places {
  const at_mmodule *program;
  at_map digests;    // at_mloc -> at_digest
  at_map sources;    // at_mloc -> at_loc
  at_map names;      // at_mloc -> at_digest of what counts of it
  at_map owners;     // operation or argument of the program -> number + 1
  at_map in_bodies;  // digest of a location in a kernel's body -> number + 1
  at_map bodies;     // configuration of a kernel -> at_digest
  AT_VEC(const at_mloc *) list;  // by number: as the walk meets them
  at_digest said;                // of everything that the locations say
  bool in_body;                  // the walk is in the body of a kernel
  bool bound;  // the executable names a location that has no number
} at_places;

// Mixes in what the program means; the bodies of Pallas kernels count as
// programs, too. Numbers its locations on the way. RESOURCE_EXHAUSTED.
at_status at_places_read(at_places *p, const at_mmodule *m, at_arena *a,
                         at_digest *io);
// The number of the location of an operation or argument (at_loc.origin).
// AT_NO_PLACE for NULL, and if there is none, which sets `bound`.
void at_places_find(at_places *p, const void *of, uint32_t *out);
// The same for a location in a kernel's body, which may have been read again:
// of the first operation that says the same.
at_status at_places_find_in_body(at_places *p, const at_mloc *l, uint32_t *out);
// Makes an executable of an equal program name this one's files and lines.
// *block: malloc'd, replaced by another when its strings grow.
// INVALID_ARGUMENT: malformed, as far as it is read here; good for nothing
// then, and still the caller's to free.
at_status at_places_put(at_places *p, at_bytes *block);

// What an at_xlocation says, for whoever writes one.
typedef struct at_place_text {
  const char *file;
  uint32_t line, column;
  at_strbuf op;  // operation, then where it was called; free it
} at_place_text;
// What l says of an operation of that name: file, line and column borrowed from
// l, `op` followed by the frames that called it. out->op must be freed, also on
// failure.
at_status at_place_text_of(const at_mloc *l, at_str op, at_place_text *out);

#endif

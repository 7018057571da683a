// libatoll_tiles: memory layout and programs on a machine of tiles without
// shared memory, for C and for whoever calls C (python/atoll/tiles.py).
// docs/tiles.md explains the words.
//
// Handles are pointers that live with their graph. A graph is used by one
// thread at a time; different graphs by different threads.
//
// Memory: texts that a function returns are its own until the next call or the
// graph's end, unless its line says that they are to be freed.
#ifndef ATOLL_TILES_H_
#define ATOLL_TILES_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ATOLL_TILES_API __attribute__((visibility("default")))

// A machine with variables, views and programs. It owns all that is made in it.
typedef struct at_tiles_graph at_tiles_graph;
typedef struct at_tiles_view at_tiles_view;  // immutable
// A compute set: vertices that run at once, each on its tile.
typedef struct at_tiles_set at_tiles_set;
// What runs: a set, a copy, or programs put together.
typedef struct at_tiles_program at_tiles_program;

// Flags of a variable.
enum {
  AT_TILES_INPUT = 1 << 0,   // has a value before the program starts
  AT_TILES_OUTPUT = 1 << 1,  // is read after the program ends
  AT_TILES_INTERLEAVED =
      1 << 2,  // lies in interleaved memory: copies run wider
};

// What to do when an element that has a home is mapped to another tile.
typedef enum at_tiles_policy {
  AT_TILES_REFUSE,     // FAILED_PRECONDITION (default)
  AT_TILES_DUPLICATE,  // it keeps its home; the other tile holds a copy too
  AT_TILES_REPLACE     // the new tile becomes its home
} at_tiles_policy;

#define AT_TILES_NOWHERE 0xffffffffu  // a tile: not mapped

typedef struct at_tiles_interval {  // positions of a view, or of a variable
  int64_t begin, end;
  uint32_t tile;
} at_tiles_interval;

// Intervals of a view on one tile, ordered by where they lie in memory;
// intervals of one `group` follow each other there without a gap.
typedef struct at_tiles_region {
  int64_t begin, end;  // positions of the view
  uint32_t group;
  uint32_t var;
  int64_t at;  // where in the variable
} at_tiles_region;

// ---- Errors
// Functions that return an int return 0, or a code whose text atoll_tiles_error
// gives. A code is that of absl::Status (3: INVALID_ARGUMENT, 9:
// FAILED_PRECONDITION, ...). The last failure of this thread: "CODE_NAME: what,
// and a hint". Valid until the next.
ATOLL_TILES_API const char *atoll_tiles_error(void);

// ---- Graphs
// A graph on a machine ("mk2", "mk1", or the path of a description). Everything
// that is made from it lives until atoll_tiles_close.
ATOLL_TILES_API int atoll_tiles_open(const char *machine, at_tiles_graph **out);
// NULL is fine.
ATOLL_TILES_API void atoll_tiles_close(at_tiles_graph *g);
// Tiles of its machine.
ATOLL_TILES_API int64_t atoll_tiles_num_tiles(const at_tiles_graph *g);
// What happens when an element that has a home is mapped elsewhere: an
// at_tiles_policy.
ATOLL_TILES_API void atoll_tiles_policy(at_tiles_graph *g, int policy);

// ---- Variables and views
// A variable (dims[rank]; dtype as in MLIR: "f32", "f16", "i32", "ui8", ...)
// and the view of the whole of it.
ATOLL_TILES_API int atoll_tiles_variable(at_tiles_graph *g, const char *name,
                                         const char *dtype, const int64_t *dims,
                                         uint32_t rank,
                                         const at_tiles_view **out);
// An image f32[N, H, W, C] in a blocked layout: form 0: [N, ceil(C/4), H, W,
// 4]; 1: [N, H, ceil(C/4), W, 4]. dims: N, H, W, C. *out is its logical view,
// *out_padded all of it.
ATOLL_TILES_API int atoll_tiles_layout(at_tiles_graph *g, const char *name,
                                       const char *dtype, int form,
                                       const int64_t *dims,
                                       const at_tiles_view **out,
                                       const at_tiles_view **out_padded);
// Of the variable behind a view of a whole variable: AT_TILES_INPUT, ...
ATOLL_TILES_API int atoll_tiles_flag(const at_tiles_view *v, uint32_t flags);
// Dimensions of the view; all of them: atoll_tiles_dims.
ATOLL_TILES_API uint32_t atoll_tiles_rank(const at_tiles_view *v);
// dims[rank], valid as long as the view.
ATOLL_TILES_API const int64_t *atoll_tiles_dims(const at_tiles_view *v);
// Elements begin .. end - 1 of one dimension.
ATOLL_TILES_API int atoll_tiles_slice(const at_tiles_view *v, uint32_t dim,
                                      int64_t begin, int64_t end,
                                      const at_tiles_view **out);
// n views, one after another along dim.
ATOLL_TILES_API int atoll_tiles_concat(const at_tiles_view *const *v,
                                       uint32_t n, uint32_t dim,
                                       const at_tiles_view **out);
// The same elements in the same order. 3: their number differs.
ATOLL_TILES_API int atoll_tiles_reshape(const at_tiles_view *v,
                                        const int64_t *dims, uint32_t rank,
                                        const at_tiles_view **out);
// Dimension perm[i] of v becomes dimension i.
ATOLL_TILES_API int atoll_tiles_dimshuffle(const at_tiles_view *v,
                                           const int64_t *perm, uint32_t rank,
                                           const at_tiles_view **out);
// Dimension `dim` backwards.
ATOLL_TILES_API int atoll_tiles_reverse(const at_tiles_view *v, uint32_t dim,
                                        const at_tiles_view **out);
// Every step-th element.
ATOLL_TILES_API int atoll_tiles_subsample(const at_tiles_view *v, uint32_t dim,
                                          int64_t step,
                                          const at_tiles_view **out);
// A dimension of one element, n times.
ATOLL_TILES_API int atoll_tiles_broadcast(const at_tiles_view *v, uint32_t dim,
                                          int64_t n, const at_tiles_view **out);
// A new variable of v's shape, mapped as v is.
ATOLL_TILES_API int atoll_tiles_clone(const at_tiles_view *v, const char *name,
                                      const at_tiles_view **out);
// n views flat, in the order in which they lie in memory; out[n].
ATOLL_TILES_API int atoll_tiles_reorder(const at_tiles_view *const *v,
                                        uint32_t n, const at_tiles_view **out);
// All elements in row-major order; bytes has to be their size.
ATOLL_TILES_API int atoll_tiles_write(const at_tiles_view *v, const void *data,
                                      size_t bytes);
// The view's elements, dense in its order; 3: `bytes` is not its size. Zero
// where nothing was written.
ATOLL_TILES_API int atoll_tiles_read(const at_tiles_view *v, void *data,
                                     size_t bytes);

// ---- Where elements live
// All of v on one tile.
ATOLL_TILES_API int atoll_tiles_map(const at_tiles_view *v, uint32_t tile);
// Spread over the tiles in pieces of grain elements, each tile at least
// min_bytes.
ATOLL_TILES_API int atoll_tiles_map_linear(const at_tiles_view *v,
                                           int64_t grain, int64_t min_bytes);
// dst as src, element by element.
ATOLL_TILES_API int atoll_tiles_map_like(const at_tiles_view *src,
                                         const at_tiles_view *dst);
// Fails where an element of v has no tile.
ATOLL_TILES_API int atoll_tiles_check(const at_tiles_view *v);
// Of n views, positions counted through all of them, as sorted intervals. Free
// *out_ptr with atoll_tiles_free.
ATOLL_TILES_API int atoll_tiles_mapping(const at_tiles_view *const *v,
                                        uint32_t n, at_tiles_interval **out_ptr,
                                        size_t *out_len);
// What of v lies on a tile, in memory's order. parts > 0: cut into so many
// lists (one per thread), each of a multiple of grain elements, none above most
// (0: no limit). Free *out_ptr with atoll_tiles_free.
ATOLL_TILES_API int atoll_tiles_regions(const at_tiles_view *v, uint32_t tile,
                                        uint32_t parts, int64_t grain,
                                        int64_t most, at_tiles_region **out_ptr,
                                        size_t *out_len);
// Bytes of variables on each tile, copies included: out[num_tiles].
ATOLL_TILES_API void atoll_tiles_tile_bytes(const at_tiles_graph *g,
                                            int64_t *out);

// ---- Compute sets and programs
// A set of vertices that run at the same time.
// Empty, owned by g. 8: no memory.
ATOLL_TILES_API int atoll_tiles_set(at_tiles_graph *g, const char *name,
                                    at_tiles_set **out);
// One vertex of a codelet (docs/tiles.md) on a tile; fields[n] are the views
// that the codelet's fields name.
ATOLL_TILES_API int atoll_tiles_vertex(at_tiles_set *s, const char *codelet,
                                       uint32_t tile,
                                       const at_tiles_view *const *fields,
                                       uint32_t n, double param);
// Vertices on the tiles of *out; *out NULL: a planned variable of that name is
// made.
// in: n views with out's number of elements; `param` is the codelet's one
// parameter, if it has one. 3: no such codelet, or sizes that differ.
ATOLL_TILES_API int atoll_tiles_elementwise(
    at_tiles_set *s, const char *codelet, const at_tiles_view *const *in,
    uint32_t n, double param, const char *name, const at_tiles_view **out);
// An empty sequence.
ATOLL_TILES_API int atoll_tiles_sequence(at_tiles_graph *g,
                                         at_tiles_program **out);
// p at the end of the sequence s.
ATOLL_TILES_API int atoll_tiles_add(at_tiles_program *s, at_tiles_program *p);
// Runs a compute set.
ATOLL_TILES_API int atoll_tiles_execute(at_tiles_set *s,
                                        at_tiles_program **out);
// Element i of src to element i of dst. 3: numbers, types or graphs differ.
ATOLL_TILES_API int atoll_tiles_copy(const at_tiles_view *src,
                                     const at_tiles_view *dst,
                                     at_tiles_program **out);
// `body` `times` times. 3: fewer than 0.
ATOLL_TILES_API int atoll_tiles_repeat(int64_t times, at_tiles_program *body,
                                       at_tiles_program **out);
// pred: a view of one element; no: NULL, or what else to do.
ATOLL_TILES_API int atoll_tiles_branch(const at_tiles_view *pred,
                                       at_tiles_program *yes,
                                       at_tiles_program *no,
                                       at_tiles_program **out);
// Runs p, vertices on all cores of this process. *cycles: what it takes on the
// machine.
ATOLL_TILES_API int atoll_tiles_run(at_tiles_graph *g, at_tiles_program *p,
                                    int64_t *cycles);
// The exchanges of p as text. Free *out with atoll_tiles_free.
ATOLL_TILES_API int atoll_tiles_exchange(at_tiles_program *p, char **out);
// Of a compiled program: form 0 text, 1 JSON, 2 an HTML page with that title.
// lenient: programs that do not fit as well. Free *out with atoll_tiles_free.
ATOLL_TILES_API int atoll_tiles_report(at_tiles_graph *g, at_tiles_program *p,
                                       bool lenient, int form,
                                       const char *title, char **out);
// What functions above gave out. NULL is fine.
ATOLL_TILES_API void atoll_tiles_free(void *p);

#ifdef __cplusplus
}
#endif

#endif

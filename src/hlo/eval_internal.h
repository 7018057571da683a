// What the files of the reference evaluator share.
//
// at_eval_comp walks the nodes of a computation; for each it finds the operands
// in the environment, checks them against their types, and calls the handler of
// the op, which sets the results. Handlers are written as the op is defined, an
// element at a time and without a fast path: they are what kernels are compared
// with. Before work whose size depends on the program they call at_eval_spend,
// so that a budget ends every evaluation.
//
// Errors: INVALID_ARGUMENT for graphs and operands that do not fit,
// UNIMPLEMENTED for ops without a definition, DEADLINE_EXCEEDED over the budget
// of at_eval_options, RESOURCE_EXHAUSTED.
// Memory: results live in the context's arena.
// Threads: one evaluation is one thread's; those of a gang meet in it
// (eval_devices.c).
#ifndef ATOLL_HLO_EVAL_INTERNAL_H_
#define ATOLL_HLO_EVAL_INTERNAL_H_

#include <complex.h>

#include "base/special.h"
#include "hlo/hlo_internal.h"

// C11's constructors, which clang's C library headers lack.
#ifndef CMPLX
#define CMPLX(x, y) __builtin_complex((double)(x), (double)(y))
#define CMPLXL(x, y) __builtin_complex((long double)(x), (long double)(y))
#endif

// Index arrays of handlers are on the stack; check_node in eval.c refuses more.
// Values of more dimensions are refused before a handler is called.
enum { kMaxRank = 64 };  // of values the evaluator touches

// One evaluation. `arena` receives results and every intermediate value.
typedef struct at_eval_ctx {
  at_arena *arena;
  const at_eval_options *opt;
  int64_t *ops;          // element operations so far, shared by nested contexts
  int depth;             // of calls and regions
  struct at_gang *gang;  // NULL: one device
  int64_t device;        // replica * partitions + partition
} at_eval_ctx;

// Values of one computation's nodes: node -> array of its results.
// On the stack of at_eval_comp; literals are the arena's.
typedef struct at_env {
  at_map values;
  const struct at_env *outer;  // of the enclosing computation, NULL: none
} at_env;

// Counts element operations; DEADLINE_EXCEEDED over the budget.
// Called before the work, with as many as it will take.
at_status at_eval_spend(at_eval_ctx *cx, int64_t ops);
// A dense zeroed literal; `data` are its bytes.
at_status at_eval_new(at_eval_ctx *cx, const at_type *t, const at_literal **out,
                      uint8_t **data);
// Evaluates c on c->num_params arguments; `results` has room for
// c->num_results. `outer` is the environment of the node that owns c; NULL for
// a function. RESOURCE_EXHAUSTED where calls nest too deeply.
at_status at_eval_comp(at_eval_ctx *cx, const at_env *outer, const at_comp *c,
                       const at_literal *const *args,
                       const at_literal **results);
// One device of several: at_eval with the others at hand (eval_devices.c).
at_status at_eval_member(const at_comp *c, const at_literal *const *args,
                         const at_eval_options *opt, struct at_gang *gang,
                         int64_t device, at_arena *a,
                         const at_literal **out_results);
// A value as seen from `env`; NULL: not there.
// Looks outwards through the enclosing environments: a region may use values
// from around it.
const at_literal *at_env_get(const at_env *env, at_value v);

// One node: operands in, results out.
// Borrowed for the call of one handler.
typedef struct at_eval_args {
  at_eval_ctx *cx;
  const at_env *env;  // for regions that capture
  const at_node *n;
  const at_literal *const *in;
  const at_literal **out;
} at_eval_args;
// A collective together with the other devices: waits for all of them.
// CANCELLED when another one has failed.
at_status at_eval_gang_collective(const at_eval_args *e);
// For AT_VERIFY: whether the results that a handler set may be those of the op
// (eval_check.c). False: they are not.
bool at_eval_holds(const at_eval_args *e);
// RAGGED_ALL_TO_ALL where the program has one device.
at_status at_eval_ragged_alone(const at_eval_args *e);
// A handler: in[] are n's operands, checked against their types; it sets every
// out[]. Handlers that take a result type beside n serve dynamic ops, whose own
// type is not known.
#define AT_EVAL(name) at_status at_eval_##name(const at_eval_args *e)
AT_EVAL(broadcast);
AT_EVAL(concatenate);
AT_EVAL(pad);
AT_EVAL(reverse);
AT_EVAL(slice);
AT_EVAL(transpose);
AT_EVAL(same_bytes);  // reshape, copy, bitcast of equal width
AT_EVAL(bitcast);
AT_EVAL(iota);
AT_EVAL(dynamic_slice);
AT_EVAL(dynamic_update_slice);
AT_EVAL(gather);
AT_EVAL(scatter);
AT_EVAL(select_and_scatter);
AT_EVAL(dynamic);  // every op of the dynamic group
AT_EVAL(dot);
AT_EVAL(ragged_dot);
AT_EVAL(convolution);
AT_EVAL(reduce);
AT_EVAL(reduce_window);
AT_EVAL(scan);
AT_EVAL(map);
AT_EVAL(sort);
AT_EVAL(top_k);
AT_EVAL(batch_norm);
AT_EVAL(fft);
AT_EVAL(cholesky);
AT_EVAL(triangular_solve);
AT_EVAL(rng);
AT_EVAL(rng_bit_generator);
AT_EVAL(collective);
// Windows with explicit attributes, for dynamic_conv too. padding[2 * spatial].
at_status at_eval_conv_with(const at_eval_args *e, const at_conv_dims *c,
                            const at_type *result);
// sizes: slice sizes, one for each operand dimension.
at_status at_eval_gather_with(const at_eval_args *e, const int64_t *sizes,
                              const at_type *result);
// low and inside: one for each dimension.
at_status at_eval_pad_with(const at_eval_args *e, const int64_t *low,
                           const int64_t *inside, const at_type *result);

// One element of an elementwise op. in[k]: one element of operand k.
// Types are n's; out has room for one element of the result.
at_status at_eval_element(const at_node *n, const void *const *in, void *out);
// Converts one element between any two numeric types.
void at_eval_convert(at_dtype from, const void *in, at_dtype to, void *out);
// Real functions; `wide` asks for the precision of f64.
at_status at_eval_real(const at_node *n, double x, bool wide, double *out);
// Complex functions of one operand. UNIMPLEMENTED: the op has no meaning for
// complex numbers.
at_status at_eval_complex(const at_node *n, double complex x,
                          double complex *out);
// Any float or complex element; real ones get the imaginary part 0.
double complex at_load_complex(at_dtype t, const void *p);
// A complex type's element, each part rounded once.
void at_store_complex(at_dtype t, void *p, double complex v);

// erf(at_erf_inv(x)) = x; NaN outside of [-1, 1].
// In long double, so that f64 results are rounded once.
long double at_erf_inv(long double x);

// A body of scalars, called once per element. Bodies of plain elementwise nodes
// run on slots; others go through at_eval_comp.
// Opened once for a whole reduction, sort or scatter, so a call costs little.
typedef struct at_body {
  at_eval_ctx *cx;
  const at_env *env;
  const at_comp *comp;
  // All nodes are scalars that are elementwise, so that the arrays below are
  // set and `scratch` is NULL.
  bool plain;
  uint8_t *slots;  // 16 bytes per node
  const at_node **nodes;
  const void **operands;  // of every node, one after another
  uint32_t num_nodes;
  const void **results;
  const void **params;  // where arguments go (plain): slot of each parameter
  at_arena *scratch;    // for the general path; owned
  const at_literal **args, **outs;
} at_body;
// `c` must take and return scalars. On success the caller closes it.
at_status at_body_open(at_eval_ctx *cx, const at_env *env, const at_comp *c,
                       at_body *out);
// args[i]: one element of parameter i; outs[i] receives result i.
at_status at_body_call(at_body *b, const void *const *args, void *const *outs);
// Frees what at_body_open made outside of the context's arena.
void at_body_close(at_body *b);

// ---- Index arithmetic
// Row-major position of an index.
// Asserts that it is inside.
static inline int64_t at_ravel(const at_type *t, const int64_t *index) {
  int64_t at = 0;
  for (uint32_t i = 0; i < t->rank; i++) {
    AT_ASSERT(index[i] >= 0 && index[i] < t->dims[i]);
    at = at * t->dims[i] + index[i];
  }
  return at;
}
// The index at a row-major position, which must be inside.
static inline void at_unravel(const int64_t *dims, uint32_t rank, int64_t at,
                              int64_t *index) {
  for (uint32_t i = rank; i-- > 0;) {
    index[i] = at % dims[i];
    at /= dims[i];
  }
  AT_ASSERT(at == 0);  // the position was inside
}
// The next index in row-major order; false after the last.
// For rank 0: false at once, so a do-while runs once.
static inline bool at_next(const int64_t *dims, uint32_t rank, int64_t *index) {
  for (uint32_t i = rank; i-- > 0;) {
    if (++index[i] < dims[i]) return true;
    index[i] = 0;
  }
  return false;
}
// The operand element that tap `in` of the window at `to` sees along one
// dimension; -1: padding or a hole. 128 bits: attributes may be extreme.
// stride, dilation and base_dilation are at least 1.
static inline int64_t at_window_at(int64_t to, int64_t stride, int64_t in,
                                   int64_t dilation, int64_t low,
                                   int64_t base_dilation, int64_t size) {
  __int128 at = (__int128)to * stride + (__int128)in * dilation - low;
  if (at < 0 || at % base_dilation || at / base_dilation >= size) return -1;
  return (int64_t)(at / base_dilation);
}
// Elements of a shape; 1 for rank 0. INT64_MAX where there are more, which no
// allocation survives.
static inline int64_t at_product(const int64_t *dims, uint32_t rank) {
  return at_type_elements(&(at_type){.dims = dims, .rank = rank});
}
// Copies one element.
// data: row-major elements of type t.
static inline void at_put(at_dtype t, uint8_t *data, int64_t at,
                          const void *from) {
  uint32_t w = at_dtype_bytes(t);
  memcpy(data + (size_t)at * w, from, w);
}

// A number that orders like the element: of floats in IEEE's total order,
// -NaN < -inf < ... < -0 < +0 < ... < inf < NaN.
int64_t at_eval_order(at_dtype t, const void *p);

#endif

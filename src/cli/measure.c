// `atoll doctor --measure`: this host's description. Small programs, each of
// one kind of work, timed by the runtime that users' programs run on; the model
// of src/cost/host.c reads what is written here.
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cpu.h"
#include "cli/cli.h"
#include "cli/timing.h"
#include "cost/host.h"

// What is known of this host so far: the description is written at the end,
// from figures and curves.
typedef struct host {
  at_arena *arena;
  at_timing timing;
  double cores, launch, fork;
  at_host_curve curves[AT_HOST_RATES];
  at_strbuf json;
} host;

// One program to be timed and what to divide its time by.
typedef struct trial {
  const char *text, *rest;  // of which `rest` (may be NULL) is not asked about
  at_timing_argument arguments[3];
  uint32_t num;
  double units;
  bool one_thread;
} trial;

// A type of up to four dimensions, in the arena.
static at_type shaped(host *m, at_dtype t, uint32_t rank, int64_t a, int64_t b,
                      int64_t c, int64_t d) {
  int64_t *dims = at_new(m->arena, int64_t, 4);
  if (!dims) return (at_type){.dtype = t};  // a program that is refused
  memcpy(dims, (int64_t[4]){a, b, c, d}, 4 * sizeof *dims);
  return (at_type){.dtype = t, .rank = rank, .dims = dims};
}

// One argument more, random; `below` bounds indices, 0: no index.
static void argue(trial *x, at_type t, int64_t below) {
  x->arguments[x->num++] =
      (at_timing_argument){.type = t, .below = below, .random = true};
}

// A function of the trial's arguments; `body` ends with its return.
static const char *program(host *m, const trial *x, const char *results,
                           const char *body) {
  at_strbuf b = {0};
  at_strbuf_addz(&b, "hlo module \"m\" entry=\"main\" {\nfunc \"main\" (");
  for (uint32_t i = 0; i < x->num; i++) {
    at_strbuf_addf(&b, "%s%%%u: ", i ? ", " : "", i);
    at_type_print(&b, &x->arguments[i].type);
  }
  at_strbuf_addf(&b, ") -> (%s) {\n%s}\n}\n", results, body ? body : "");
  return at_strbuf_move(&b, m->arena);
}

// Seconds of the trial without what is not asked about: the launch, the start
// of threads, or the program `rest`. At least a quarter of the time is left, so
// that noise cannot make it zero.
static at_status time_trial(host *m, const trial *x, double *seconds) {
  AT_TRY(at_arena_status(m->arena));  // the program is whole
  AT_TRY(at_status_prefix(at_timing_run(&m->timing, x->text, NULL, 1,
                                        x->arguments, x->num, seconds),
                          "%s", x->text ? x->text : ""));
  double rest = m->launch + (x->one_thread ? 0 : m->fork);
  if (x->rest)
    AT_TRY(at_timing_run(&m->timing, x->rest, NULL, 1, x->arguments, x->num,
                         &rest));
  // Work of one thread is not shared, whatever share CPU time is given.
  double share = x->one_thread && m->timing.share > 0 ? m->timing.share : 1;
  *seconds = fmax(*seconds - rest, *seconds / 4) * share;
  return AT_OK;
}

#define TEXT(...) at_arena_printf(m->arena, __VA_ARGS__)
#define LL(x) ((long long)(x))

// ---- Arithmetic, a kind a function
// Elements that are summed, whatever their shape.
enum { kReduced = 1 << 19 };
static const char kSum[] = " : f32[]\n  return %9\n  })";

// Sums of rows, or of columns, of a matrix.
static void reduce(host *m, int64_t rows, int64_t cols, bool columns,
                   trial *x) {
  int64_t left = columns ? cols : rows;
  argue(x, shaped(m, AT_F32, 2, rows, cols, 0, 0), 0);
  x->text = program(
      m, x, TEXT("f32[%lld]", LL(left)),
      TEXT("  %%5 = constant {value=f32[] 0}\n  %%6 = reduce %%0, %%5 "
           "{dimensions=[%d]} ((%%7: f32[], %%8: f32[]) {\n  %%9 = add %%7, "
           "%%8%s : f32[%lld]\n  return %%6\n",
           columns ? 0 : 1, kSum, LL(left)));
}

// Sums of rows: each byte is read once, next to nothing is written.
static void make_read(host *m, int64_t size, trial *x) {
  reduce(m, size >> 14, 4096, false, x);
  x->units = (double)size;
}
// x + x, so that a byte is written for each that is read.
static void make_add(host *m, int64_t size, trial *x) {
  int64_t n = size / 8;  // read and written
  argue(x, shaped(m, AT_F32, 1, n, 0, 0, 0), 0);
  x->text =
      program(m, x, TEXT("f32[%lld]", LL(n)),
              TEXT("  %%5 = add %%0, %%0 : f32[%lld]\n  return %%5\n", LL(n)));
  x->units = (double)size;
}
// The same number of elements at every width, in rows of it.
static void make_reduce_rows(host *m, int64_t size, trial *x) {
  reduce(m, kReduced / size, size, false, x);
  x->units = kReduced;
}
// The same, summed along columns.
static void make_reduce_cols(host *m, int64_t size, trial *x) {
  reduce(m, kReduced / size, size, true, x);
  x->units = kReduced;
}
// A square of so many bytes.
static void make_transpose(host *m, int64_t size, trial *x) {
  int64_t n = (int64_t)sqrt((double)size / 4);
  argue(x, shaped(m, AT_F32, 2, n, n, 0, 0), 0);
  x->text = program(m, x, TEXT("f32[%lld,%lld]", LL(n), LL(n)),
                    TEXT("  %%5 = transpose %%0 {permutation=[1,0]} : "
                         "f32[%lld,%lld]\n  return %%5\n",
                         LL(n), LL(n)));
  x->units = (double)size;
}

// Counts a multiplication and an addition for each product.
static void make_dot(host *m, at_dtype type, int64_t rows, int64_t cols,
                     int64_t depth, trial *x) {
  const char *t = at_dtype_of(type)->text;
  argue(x, shaped(m, type, 2, rows, depth, 0, 0), 0);
  argue(x, shaped(m, type, 2, depth, cols, 0, 0), 0);
  x->text =
      program(m, x, TEXT("%s[%lld,%lld]", t, LL(rows), LL(cols)),
              TEXT("  %%5 = dot_general %%0, %%1 "
                   "{lhs_contracting_dimensions=[1], "
                   "rhs_contracting_dimensions=[0]} : %s[%lld,%lld]\n  return "
                   "%%5\n",
                   t, LL(rows), LL(cols)));
  x->units = 2.0 * (double)rows * (double)cols * (double)depth;
}
// One side grows, the other two are 1024: the curve shows how much of a block
// the kernel can use.
#define DOT(Id, type, rows, cols, depth)                   \
  static void make_##Id(host *m, int64_t size, trial *x) { \
    make_dot(m, type, rows, cols, depth, x);               \
  }
DOT(rows_f32, AT_F32, size, 1024, 1024)
DOT(cols_f32, AT_F32, 1024, size, 1024)
DOT(depth_f32, AT_F32, 1024, 1024, size)
DOT(rows_bf16, AT_BF16, size, 1024, 1024)
DOT(cols_bf16, AT_BF16, 1024, size, 1024)
DOT(depth_bf16, AT_BF16, 1024, 1024, size)
#undef DOT

// 3x3 over images of 28x28, with as many features in as out.
static void make_conv(host *m, int64_t size, trial *x) {
  argue(x, shaped(m, AT_F32, 4, 4, 28, 28, size), 0);
  argue(x, shaped(m, AT_F32, 4, 3, 3, size, size), 0);
  const char *out = TEXT("f32[4,28,28,%lld]", LL(size));
  x->text = program(
      m, x, out,
      TEXT("  %%5 = convolution %%0, %%1 {window_strides=[1,1], "
           "padding=[1,1,1,1], lhs_dilation=[1,1], rhs_dilation=[1,1], "
           "window_reversal=[0,0], input_batch_dimension=0, "
           "input_feature_dimension=3, input_spatial_dimensions=[1,2], "
           "kernel_input_feature_dimension=2, "
           "kernel_output_feature_dimension=3, "
           "kernel_spatial_dimensions=[0,1], output_batch_dimension=0, "
           "output_feature_dimension=3, output_spatial_dimensions=[1,2], "
           "feature_group_count=1, batch_group_count=1} : %s\n  return %%5\n",
           out));
  x->units = 2.0 * 4 * 28 * 28 * 9 * (double)(size * size);
}

// ---- Sorts and searches
// Integers: their order is the kernel's own. That of floats takes more to say.
static const char kLess[] =
    "  %9 = compare %7, %8 {comparison_direction=LT, compare_type=SIGNED} : "
    "i1[]\n  return %9\n  })";

// Rows of keys, or one row of keys with their positions.
static void sort(host *m, int64_t rows, int64_t size, bool pairs, trial *x) {
  const char *keys = rows > 1 ? TEXT("i32[%lld,%lld]", LL(rows), LL(size))
                              : TEXT("i32[%lld]", LL(size));
  argue(x,
        rows > 1 ? shaped(m, AT_S32, 2, rows, size, 0, 0)
                 : shaped(m, AT_S32, 1, size, 0, 0, 0),
        0);
  const char *body =
      pairs ? TEXT(
                  "  %%4 = iota {dimension=0} : i32[%lld]\n  %%5:2 = sort "
                  "%%0, %%4 {dimension=0, is_stable=true} ((%%7: i32[], %%8: "
                  "i32[], %%10: i32[], %%11: i32[]) {\n%s : i32[%lld], "
                  "i32[%lld]\n  return %%5.0, %%5.1\n",
                  LL(size), kLess, LL(size), LL(size))
            : TEXT(
                  "  %%5 = sort %%0 {dimension=%d, is_stable=true} ((%%7: "
                  "i32[], %%8: i32[]) {\n%s : %s\n  return %%5\n",
                  rows > 1, kLess, keys);
  x->text =
      program(m, x, pairs ? TEXT("%s, i32[%lld]", keys, LL(size)) : keys, body);
  x->units = (double)(rows * size);
}
static void make_sort(host *m, int64_t size, trial *x) {
  sort(m, 1, size, false, x);
}
static void make_sort_rows(host *m, int64_t size, trial *x) {
  sort(m, 64, size, false, x);
}
static void make_sort_pairs(host *m, int64_t size, trial *x) {
  sort(m, 1, size, true, x);
}

// Values and positions of the k largest of each row.
static void top_k(host *m, int64_t rows, int64_t size, int k, trial *x) {
  argue(x, shaped(m, AT_F32, 2, rows, size, 0, 0), 0);
  const char *out =
      TEXT("f32[%lld,%d], i32[%lld,%d]", LL(rows), k, LL(rows), k);
  x->text = program(m, x, out,
                    TEXT("  %%5:2 = top_k %%0 {k=%d, largest=true} : %s\n  "
                         "return %%5.0, %%5.1\n",
                         k, out));
  x->units = (double)(rows * size);
}
static void make_top_k(host *m, int64_t size, trial *x) {
  top_k(m, 1, size, 32, x);
}
static void make_top_k_rows(host *m, int64_t size, trial *x) {
  top_k(m, 256, size, 8, x);
}

// A running sum: each element waits for the one before.
static void make_scan(host *m, int64_t size, trial *x) {
  argue(x, shaped(m, AT_F32, 1, size, 0, 0, 0), 0);
  x->text = program(
      m, x, TEXT("f32[%lld]", LL(size)),
      TEXT("  %%5 = constant {value=f32[] 0}\n  %%6 = scan %%0, %%5 "
           "{dimension=0, reverse=false} ((%%7: f32[], %%8: f32[]) {\n  %%9 = "
           "add %%7, %%8%s : f32[%lld]\n  return %%6\n",
           kSum, LL(size)));
  x->units = (double)size;
}

// ---- Rows at random
// Enough that the launch hardly counts.
enum { kRows = 1 << 15, kAdded = 1 << 17 };

// A gather of kRows rows of a table of so many bytes, or an addition of kAdded
// rows to one.
static void rows_at_random(host *m, int64_t bytes, int64_t width, bool scatter,
                           trial *x) {
  int64_t table = bytes / (4 * width);
  argue(x, shaped(m, AT_F32, 2, table, width, 0, 0), 0);
  argue(x, shaped(m, AT_S32, 2, scatter ? kAdded : kRows, 1, 0, 0), table);
  x->units = scatter ? kAdded : kRows;
  const char *moved = TEXT("f32[%d,%lld]", kRows, LL(width));
  if (!scatter) {
    x->text = program(
        m, x, moved,
        TEXT("  %%5 = gather %%0, %%1 {slice_sizes=[1,%lld], offset_dims=[1], "
             "collapsed_slice_dims=[0], operand_batching_dims=[], "
             "start_indices_batching_dims=[], start_index_map=[0], "
             "index_vector_dim=1, indices_are_sorted=false} : %s\n  return "
             "%%5\n",
             LL(width), moved));
    return;
  }
  // Into zeros that the program makes, which are not asked about.
  const char *out = TEXT("f32[%lld,%lld]", LL(table), LL(width));
  x->arguments[0].type = shaped(m, AT_F32, 2, kAdded, width, 0, 0);
  const char *zeros = TEXT(
      "  %%2 = constant {value=f32[] 0}\n  %%3 = broadcast_in_dim %%2 "
      "{broadcast_dimensions=[]} : %s\n",
      out);
  x->one_thread = true;
  x->rest = program(m, x, out, TEXT("%s  return %%3\n", zeros));
  x->text = program(
      m, x, out,
      TEXT("%s  %%5 = scatter %%3, %%1, %%0 "
           "{update_window_dims=[1], inserted_window_dims=[0], "
           "input_batching_dims=[], scatter_indices_batching_dims=[], "
           "scatter_dims_to_operand_dims=[0], index_vector_dim=1, "
           "indices_are_sorted=false, unique_indices=false} ((%%7: f32[], "
           "%%8: f32[]) {\n  %%9 = add %%7, %%8%s : %s\n  return %%5\n",
           zeros, kSum, out));
}
// Rows of one element, and of 64, which fill lines of the cache.
#define ROWS(Id, width, scatter)                           \
  static void make_##Id(host *m, int64_t size, trial *x) { \
    rows_at_random(m, size, width, scatter, x);            \
  }
ROWS(gather, 1, false)
ROWS(gather_row, 64, false)
ROWS(scatter, 1, true)
ROWS(scatter_row, 64, true)
#undef ROWS

// ---- Transforms, random bits, linear algebra
// As many transforms as make 64 Ki elements, so that small sizes are timed as
// well. Units are n log2 n.
static void make_fft(host *m, int64_t size, trial *x) {
  int64_t batch = AT_MAX(1, (1 << 16) / size);
  argue(x, shaped(m, AT_C64, 2, batch, size, 0, 0), 0);
  x->arguments[0].random = false;
  const char *out = TEXT("complex<f32>[%lld,%lld]", LL(batch), LL(size));
  x->text = program(m, x, out,
                    TEXT("  %%5 = fft %%0 {fft_type=FFT, fft_length=[%lld]} : "
                         "%s\n  return %%5\n",
                         LL(size), out));
  x->units = (double)(batch * size) * log2((double)size);
}

// Threefry, which is what JAX's default keys use. Units are numbers of 32 bits.
static void make_rng_bits(host *m, int64_t size, trial *x) {
  argue(x, shaped(m, AT_U64, 1, 2, 0, 0, 0), 0);
  const char *out = TEXT("ui64[2], ui32[%lld]", LL(size));
  x->text = program(m, x, out,
                    TEXT("  %%5:2 = rng_bit_generator %%0 "
                         "{rng_algorithm=THREE_FRY} : %s\n  return %%5.0, "
                         "%%5.1\n",
                         out));
  x->units = (double)size;
}

// Of a matrix whose diagonal dominates.
static void matrix(host *m, int64_t n, const char *results, const char *body,
                   trial *x) {
  argue(x, shaped(m, AT_F32, 2, n, n, 0, 0), 0);
  const char *s = TEXT("[%lld,%lld]", LL(n), LL(n));
  x->text = program(
      m, x, results ? results : TEXT("f32%s", s),
      TEXT("  %%1 = iota {dimension=0} : i32%s\n  %%2 = iota {dimension=1} : "
           "i32%s\n  %%3 = compare %%1, %%2 {comparison_direction=EQ, "
           "compare_type=SIGNED} : i1%s\n  %%4 = constant {value=f32[] "
           "%lld}\n  %%10 = broadcast_in_dim %%4 {broadcast_dimensions=[]} : "
           "f32%s\n  %%11 = select %%3, %%10, %%0 : f32%s\n%s",
           s, s, s, LL(2 * n), s, s, body ? body : ""));
  x->one_thread = true;
  x->units = (double)(n * n) * (double)n;
}
// The lower factor.
static void make_cholesky(host *m, int64_t n, trial *x) {
  matrix(m, n, NULL,
         TEXT("  %%5 = cholesky %%11 {lower=true} : f32[%lld,%lld]\n  return "
              "%%5\n",
              LL(n), LL(n)),
         x);
}
// A triangular system with as many right sides as rows.
static void make_solve(host *m, int64_t n, trial *x) {
  matrix(m, n, NULL,
         TEXT("  %%5 = triangular_solve %%11, %%0 {lower=true, "
              "left_side=true, unit_diagonal=false, "
              "transpose_a=NO_TRANSPOSE} : f32[%lld,%lld]\n  return %%5\n",
              LL(n), LL(n)),
         x);
}
// Decompositions that are custom calls; `values` names their results.
static void linalg(host *m, int64_t n, const char *name, const char *results,
                   const char *values, trial *x) {
  matrix(m, n, results,
         TEXT("  %s = custom_call %%11 {call_target_name=\"%s\"} : %s\n  "
              "return %s\n",
              strchr(values, ',') && strrchr(values, ',') != strchr(values, ',')
                  ? "%5:3"
                  : "%5:2",
              name, results ? results : "", values),
         x);
}
static void make_lu(host *m, int64_t n, trial *x) {
  linalg(
      m, n, "LuDecomposition",
      TEXT("f32[%lld,%lld], i32[%lld], i32[%lld]", LL(n), LL(n), LL(n), LL(n)),
      "%5.0, %5.1, %5.2", x);
}
static void make_qr(host *m, int64_t n, trial *x) {
  linalg(m, n, "Qr", TEXT("f32[%lld,%lld], f32[%lld]", LL(n), LL(n), LL(n)),
         "%5.0, %5.1", x);
}
static void make_eigh(host *m, int64_t n, trial *x) {
  linalg(m, n, "Eigh", TEXT("f32[%lld,%lld], f32[%lld]", LL(n), LL(n), LL(n)),
         "%5.0, %5.1", x);
}

// ---- Curves
typedef void (*make_fn)(host *m, int64_t size, trial *x);

// Seconds a unit at each size, up to AT_HOST_POINTS of them.
static at_status measure_curve(host *m, make_fn make, at_host_rate r,
                               const int64_t *sizes) {
  at_host_curve *c = &m->curves[r];
  for (; *sizes && c->count < AT_HOST_POINTS; sizes++) {
    trial x = {0};
    double seconds;
    make(m, *sizes, &x);
    AT_TRY(time_trial(m, &x, &seconds));
    c->size[c->count] = (double)*sizes;
    c->seconds[c->count++] = seconds / x.units;
  }
  return AT_OK;
}

#define K ((int64_t)1 << 10)
#define M ((int64_t)1 << 20)
// Sizes that several curves share; each list ends with 0.
static const int64_t kSides[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 0};
// The last sizes are beyond the caches.
static const int64_t kSorts[] = {4 * K, 32 * K, 256 * K, 2 * M,
                                 4 * M, 16 * M, 0};
static const int64_t kTables[] = {16 * K, 1 * M, 16 * M, 128 * M, 0};
static const int64_t kSums[] = {16 * K, 1 * M, 16 * M, 64 * M, 0};
static const struct {
  at_host_rate rate;
  make_fn make;
  const int64_t *sizes;
} kCurves[] = {
    {AT_HOST_READ, make_read,
     (int64_t[]){1 * M, 4 * M, 16 * M, 64 * M, 256 * M, 0}},
    {AT_HOST_WRITE, make_add,
     (int64_t[]){1 * M, 4 * M, 16 * M, 64 * M, 256 * M, 0}},
    {AT_HOST_TRANSPOSE, make_transpose,
     (int64_t[]){256 * K, 4 * M, 64 * M, 256 * M, 0}},
    {AT_HOST_REDUCE_ROWS, make_reduce_rows,
     (int64_t[]){16, 128, 1024, 8192, 0}},
    {AT_HOST_REDUCE_COLS, make_reduce_cols, (int64_t[]){16, 128, 1024, 0}},
    {AT_HOST_SORT, make_sort, kSorts},
    {AT_HOST_SORT_ROWS, make_sort_rows, (int64_t[]){128, 1 * K, 8 * K, 0}},
    {AT_HOST_SORT_PAIRS, make_sort_pairs, kSorts},
    {AT_HOST_TOP_K, make_top_k, (int64_t[]){16 * K, 256 * K, 2 * M, 16 * M, 0}},
    {AT_HOST_TOP_K_ROWS, make_top_k_rows, (int64_t[]){1 * K, 8 * K, 64 * K, 0}},
    {AT_HOST_SCAN, make_scan, (int64_t[]){16 * K, 256 * K, 4 * M, 32 * M, 0}},
    {AT_HOST_GATHER, make_gather, kTables},
    {AT_HOST_GATHER_ROW, make_gather_row, kTables},
    {AT_HOST_SCATTER, make_scatter, kSums},
    {AT_HOST_SCATTER_ROW, make_scatter_row, kSums},
    {AT_HOST_FFT, make_fft, (int64_t[]){256, 16 * K, 512 * K, 0}},
    {AT_HOST_RNG_BITS, make_rng_bits, (int64_t[]){16 * K, 1 * M, 0}},
    {AT_HOST_CONV, make_conv, (int64_t[]){8, 32, 128, 0}},
    {AT_HOST_CHOLESKY, make_cholesky, (int64_t[]){32, 256, 0}},
    {AT_HOST_SOLVE, make_solve, (int64_t[]){32, 256, 0}},
    {AT_HOST_LU, make_lu, (int64_t[]){32, 256, 0}},
    {AT_HOST_QR, make_qr, (int64_t[]){32, 256, 0}},
    {AT_HOST_EIGH, make_eigh, (int64_t[]){32, 128, 0}},
    {AT_HOST_GEMM_M_F32, make_rows_f32, kSides},
    {AT_HOST_GEMM_N_F32, make_cols_f32, kSides},
    {AT_HOST_GEMM_K_F32, make_depth_f32, kSides},
    {AT_HOST_GEMM_M_BF16, make_rows_bf16, kSides},
    {AT_HOST_GEMM_N_BF16, make_cols_bf16, kSides},
    {AT_HOST_GEMM_K_BF16, make_depth_bf16, kSides}};

// x + x reads and writes: what reading alone does not explain is the writing.
static void split_writes(host *m) {
  const at_host_curve *read = &m->curves[AT_HOST_READ];
  at_host_curve *write = &m->curves[AT_HOST_WRITE];
  for (uint32_t i = 0; i < write->count; i++)
    write->seconds[i] =
        fmax(2 * write->seconds[i] - read->seconds[i], write->seconds[i] * .5);
}

// ---- Elementwise operations
enum { kTerms = 8, kManyTerms = 40, kElements = 1 << 18, kLarge = 16 << 20 };

// A sum of `terms` terms op(x * c), each with its own c, so that they do not
// wait for each other. Without an op: the plain operations alone. Integers are
// joined by xor, or the compiler would find a shorter sum.
static at_status time_terms(host *m, int terms, const char *op, bool binary,
                            at_dtype type, int64_t elements, double *seconds) {
  trial x = {0};
  bool whole = at_is_int(type);
  const char *t = TEXT("%s[%lld]", at_dtype_of(type)->text, LL(elements));
  at_strbuf b = {0};
  argue(&x, shaped(m, type, 1, elements, 0, 0, 0), 100);
  int sum = 0, next = 1;
  for (int i = 0; i < terms; i++) {
    double c = whole ? 3 + 2 * i : .05 * (i + 1);
    at_strbuf_addf(&b,
                   "  %%%d = constant {value=%s[] %g}\n  %%%d = "
                   "broadcast_in_dim %%%d {broadcast_dimensions=[]} : %s\n"
                   "  %%%d = %s %%0, %%%d : %s\n",
                   next, at_dtype_of(type)->text, c, next + 1, next, t ? t : "",
                   next + 2, whole ? "add" : "multiply", next + 1, t ? t : "");
    int term = next + 2;
    next += 3;
    if (op) {
      at_strbuf_addf(&b, "  %%%d = %s %%%d", next, op, term);
      if (binary) at_strbuf_addf(&b, ", %%%d", term - 1);
      at_strbuf_addf(&b, " : %s\n", t ? t : "");
      term = next++;
    }
    at_strbuf_addf(&b, "  %%%d = %s %%%d, %%%d : %s\n", next,
                   whole ? "xor" : "add", sum, term, t ? t : "");
    sum = next++;
  }
  at_strbuf_addf(&b, "  return %%%d\n", sum);
  x.text = program(m, &x, t, b.ptr);
  at_strbuf_free(&b);
  return time_trial(m, &x, seconds);
}

// Operations whose time differs from an addition's: divisions, transcendental
// functions, products of integers. *binary: it takes two operands.
static bool is_measured(at_op op, at_dtype t, bool *binary) {
  const at_op_info *info = at_op_of(op);
  *binary = info->max_operands == 2;
  if (op == AT_OP_DIVIDE || op == AT_OP_REMAINDER) return true;
  if (op == AT_OP_MULTIPLY) return at_is_int(t);
  if (op == AT_OP_POLYGAMMA || op == AT_OP_ZETA) return false;
  return at_is_float(t) && info->cost == AT_COST_TRANSCENDENTAL &&
         info->max_operands <= 2;
}

// Opens a member of the description: a value and who says so; end_figure closes
// it.
static void begin_figure(host *m, const char *name) {
  at_strbuf_addf(&m->json, ",\n \"%s\": {\n  \"value\": ", name);
}
static void end_figure(host *m, const char *source) {
  at_strbuf_addf(&m->json,
                 ",\n  \"source\": \"atoll doctor --measure: %s\"\n }", source);
}

// Seconds an element and core of each operation, from sums of eight terms with
// and without it. *plain: of an addition; *tanh_seconds: of a tanh.
static at_status measure_ops(host *m, const char *figure, at_dtype type,
                             double *plain, double *tanh_seconds) {
  double base, many, seconds;
  bool binary;
  AT_TRY(time_terms(m, kTerms, NULL, false, type, kElements, &base));
  AT_TRY(time_terms(m, kManyTerms, NULL, false, type, kElements, &many));
  // The difference has no memory traffic and no start of threads in it.
  *plain = fmax(1e-12, (many - base) * m->cores /
                           (2.0 * (kManyTerms - kTerms) * kElements));
  begin_figure(m, figure);
  at_strbuf_addf(&m->json, "\"add:%.4g", *plain);
  for (int i = 0; i < AT_OP_COUNT; i++) {
    at_op op = (at_op)i;
    if (!is_measured(op, type, &binary)) continue;
    AT_TRY(time_terms(m, kTerms, at_op_text(op), binary, type, kElements,
                      &seconds));
    double each = (seconds - base) * m->cores / (kTerms * (double)kElements);
    at_strbuf_addf(&m->json, " %s:%.4g", at_op_text(op), fmax(each, *plain));
    if (op == AT_OP_TANH) *tanh_seconds = fmax(each, *plain);
  }
  at_strbuf_addc(&m->json, '"');
  end_figure(m, "an element, one core; sums of eight terms, 256 Ki elements");
  return AT_OK;
}

// ---- Steps
// A figure that is one number; it is printed, too.
static void number(host *m, const char *name, double value, const char *what) {
  begin_figure(m, name);
  at_strbuf_addf(&m->json, "%.6g", value);
  end_figure(m, what);
  printf("%-34s %.4g\n", name, value);
}

// `links` times x + sum(x): a step each, whatever is fused.
static at_status time_steps(host *m, int links, int64_t n, double *seconds) {
  trial x = {0};
  at_strbuf b = {0};
  argue(&x, shaped(m, AT_F32, 1, n, 0, 0, 0), 0);
  x.one_thread = true;
  at_strbuf_addz(&b, "  %1 = constant {value=f32[] 0}\n");
  int at = 0, next = 2;
  for (int i = 0; i < links; i++, next += 6) {
    at_strbuf_addf(&b,
                   "  %%%d = reduce %%%d, %%1 {dimensions=[0]} ((%%%d: f32[], "
                   "%%%d: f32[]) {\n  %%%d = add %%%d, %%%d : f32[]\n  return "
                   "%%%d\n  }) : f32[]\n",
                   next, at, next + 1, next + 2, next + 3, next + 1, next + 2,
                   next + 3);
    at_strbuf_addf(&b,
                   "  %%%d = broadcast_in_dim %%%d {broadcast_dimensions=[]} : "
                   "f32[%lld]\n  %%%d = add %%%d, %%%d : f32[%lld]\n",
                   next + 4, next, LL(n), next + 5, at, next + 4, LL(n));
    at = next + 5;
  }
  at_strbuf_addf(&b, "  return %%%d\n", at);
  x.text = program(m, &x, TEXT("f32[%lld]", LL(n)), b.ptr);
  at_strbuf_free(&b);
  return time_trial(m, &x, seconds);
}

// Three tanh of n elements, fused into one loop.
static at_status time_tanh(host *m, int64_t n, double *seconds) {
  trial x = {0};
  argue(&x, shaped(m, AT_F32, 1, n, 0, 0, 0), 0);
  x.text = program(
      m, &x, TEXT("f32[%lld]", LL(n)),
      TEXT("  %%5 = tanh %%0 : f32[%lld]\n  %%6 = tanh %%5 : f32[%lld]\n  %%7 "
           "= tanh %%6 : f32[%lld]\n  return %%7\n",
           LL(n), LL(n), LL(n)));
  return time_trial(m, &x, seconds);
}

// What a program takes beside its arithmetic: a step, the start of threads, an
// operation of a scalar loop.
static at_status measure_steps(host *m) {
  double one, many, small, large, loop;
  // Steps: more of them in one program, on next to no data.
  AT_TRY(time_steps(m, 2, 16, &one));
  AT_TRY(time_steps(m, 34, 16, &many));
  // A program of 2 links is 3 steps or more; 32 more links are 32 more steps.
  double step = fmax(1e-9, (many - one) / 32);
  number(m, "step_seconds", step, "32 more steps of 16 elements");
  // Threads: from two sizes, what does not grow with them.
  AT_TRY(time_tanh(m, 1 << 16, &small));
  AT_TRY(time_tanh(m, 1 << 20, &large));
  double fork = small - (large - small) / 15 - step;
  m->fork = fmin(2e-5, fmax(5e-7, fork));
  number(m, "fork_seconds", m->fork,
         "what 64 Ki tanh take that does not grow with them; at most 20 us");
  // Scalars: a loop that nothing can be moved out of.
  enum { kTurns = 20000 };
  trial x = {0};
  argue(&x, shaped(m, AT_F32, 0, 0, 0, 0, 0), 0);
  x.one_thread = true;
  x.text = program(
      m, &x, "f32[]",
      TEXT("  %%1 = constant {value=i32[] 0}\n  %%2 = constant {value=i32[] "
           "%d}\n  %%3 = constant {value=i32[] 1}\n  %%4 = constant "
           "{value=f32[] 0.5}\n  %%5:2 = while %%1, %%0 ((%%6: i32[], %%7: "
           "f32[]) {\n  %%8 = compare %%6, %%2 {comparison_direction=LT, "
           "compare_type=SIGNED} : i1[]\n  return %%8\n  }, (%%9: i32[], "
           "%%10: f32[]) {\n  %%11 = add %%9, %%3 : i32[]\n  %%12 = multiply "
           "%%10, %%4 : f32[]\n  %%13 = add %%12, %%4 : f32[]\n  return %%11, "
           "%%13\n  }) : i32[], f32[]\n  return %%5.1\n",
           kTurns));
  AT_TRY(time_trial(m, &x, &loop));
  number(m, "scalar_op_seconds", loop / kTurns / 4,
         "a loop of 20,000 turns, four operations each");
  return AT_OK;
}

// Arithmetic as long as the memory traffic beside it: how much of one is not
// hidden behind the other.
static at_status overlap_of(host *m, const char *op, double each, double memory,
                            double *out) {
  double alone, both;
  int terms = (int)fmin(100, fmax(1, memory * m->cores / (each * kLarge)));
  AT_TRY(time_terms(m, terms, op, false, AT_F32, kElements, &alone));
  AT_TRY(time_terms(m, terms, op, false, AT_F32, kLarge, &both));
  double work = alone * kLarge / kElements;
  double rest = (both - fmax(work, memory)) / fmin(work, memory);
  *out = fmin(1, fmax(0, rest));
  return AT_OK;
}

// Short operations leave the core room to look ahead, long ones little: the
// mean of both.
static at_status measure_overlap(host *m, double plain, double heavy) {
  trial x = {0};
  double memory, few, many;
  make_add(m, 8 * (int64_t)kLarge, &x);
  AT_TRY(time_trial(m, &x, &memory));
  AT_TRY(overlap_of(m, NULL, 2 * plain, memory, &few));
  AT_TRY(overlap_of(m, "tanh", heavy, memory, &many));
  number(
      m, "memory_not_hidden", (few + many) / 2,
      "additions and tanh as long as the memory traffic beside them, 64 MiB");
  return AT_OK;
}

// ---- The description
// Figures that descriptions of chips have, too, so that the models can compare
// them.
static at_status measure_peaks(host *m) {
  static const struct {
    const char *figure;
    at_dtype type;
  } rows[] = {{"f32_flops_per_second_per_chip", AT_F32},
              {"bf16_flops_per_second_per_chip", AT_BF16}};
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    trial x = {0};
    double seconds;
    make_dot(m, rows[i].type, 2048, 2048, 2048, &x);
    AT_TRY(time_trial(m, &x, &seconds));
    number(m, rows[i].figure, x.units / seconds, "2048^3 product");
  }
  const at_host_curve *w = &m->curves[AT_HOST_WRITE],
                      *r = &m->curves[AT_HOST_READ];
  number(m, "hbm_bytes_per_second_per_chip",
         2 / (w->seconds[w->count - 1] + r->seconds[r->count - 1]),
         "half read, half written, 256 MiB");
  number(m, "hbm_bytes_per_chip",
         (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE),
         "sysconf: physical memory");
  return AT_OK;
}

// Launch first, since other times have it taken off.
static at_status measure_all(host *m) {
  trial tiny = {0};
  double plain, other, heavy = 0, unused;
  make_add(m, 64, &tiny);
  tiny.one_thread = true;
  AT_TRY(time_trial(m, &tiny, &other));
  m->launch = other;
  number(m, "kernel_launch_seconds", m->launch, "a program of one tiny op");
  number(m, "cores_per_chip", m->cores, "cores of this process");
  AT_TRY(measure_steps(m));
  AT_TRY(measure_ops(m, "f32_op_seconds", AT_F32, &plain, &heavy));
  AT_TRY(measure_ops(m, "bf16_op_seconds", AT_BF16, &other, &unused));
  AT_TRY(measure_ops(m, "f64_op_seconds", AT_F64, &other, &unused));
  AT_TRY(measure_ops(m, "i32_op_seconds", AT_S32, &other, &unused));
  for (size_t i = 0; i < AT_LEN(kCurves); i++) {
    AT_TRY(
        measure_curve(m, kCurves[i].make, kCurves[i].rate, kCurves[i].sizes));
    at_cli_progress("%s", at_host_rate_figure(kCurves[i].rate));
  }
  at_cli_progress("%s", "");
  split_writes(m);
  for (int r = 0; r < AT_HOST_RATES; r++) {
    const at_host_curve *c = &m->curves[r];
    begin_figure(m, at_host_rate_figure((at_host_rate)r));
    for (uint32_t i = 0; i < c->count; i++)
      at_strbuf_addf(&m->json, "%s%.0f:%.4g", i ? " " : "\"", c->size[i],
                     c->seconds[i]);
    at_strbuf_addc(&m->json, '"');
    end_figure(m, "size:seconds a unit; src/cost/host_rates.def says which");
  }
  AT_TRY(measure_peaks(m));
  return measure_overlap(m, plain, heavy);
}

// Where --target=host looks for it. Only the last folder of the path is made.
static at_status write_description(const host *m) {
  char path[4096], *slash;
  AT_TRY(at_strbuf_status(&m->json));
  AT_TRY(at_cost_host_path(path, sizeof path));
  if ((slash = strrchr(path, '/'))) *slash = 0, mkdir(path, 0777), *slash = '/';
  AT_TRY(at_cli_write_file(path, &m->json));
  printf("written to %s\n", path);
  return AT_OK;
}

// cpu_time: for machines that others use meanwhile, where elapsed time says
// little.
at_status at_cli_measure_host(bool cpu_time) {
  host m = {.cores = at_cpu_count()};
  m.timing = (at_timing){.seconds = cpu_time ? .15 : .1,
                         .share = cpu_time ? m.cores : 0,
                         .least = true};
  AT_TRY_ALLOC(m.arena, at_arena_create());
  at_runtime_options options = {.target = "v6e"};
  at_strbuf_addz(
      &m.json,
      "{\n \"name\": \"host\",\n \"platform\": \"host\",\n \"aliases\": []");
  at_status st = at_runtime_create(&options, &m.timing.runtime);
  if (at_ok(st)) st = measure_all(&m);
  at_strbuf_addz(&m.json, "\n}\n");
  if (at_ok(st)) st = write_description(&m);
  at_strbuf_free(&m.json);
  if (m.timing.runtime) at_runtime_destroy(m.timing.runtime);
  at_arena_destroy(m.arena);
  return st;
}

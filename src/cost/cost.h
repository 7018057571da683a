// What an op takes on a machine. One model for the scheduler, the reports,
// cost_analysis() and the choice of collective algorithms.
//
// Times are seconds (double). Every time comes with the source that it was
// taken from. Nothing here has state but tables that are read once; all
// functions are thread-safe on a target that nobody changes.
//
// Errors: INVALID_ARGUMENT for text and sizes that cannot be;
// FAILED_PRECONDITION: the description lacks a figure, which is named;
// RESOURCE_EXHAUSTED.
// Memory: what is made lives in the arena that was given; names are static.
#ifndef ATOLL_COST_COST_H_
#define ATOLL_COST_COST_H_

#include "hlo/hlo.h"
#include "machine/machine.h"

// ---- Where a figure comes from
typedef enum at_cost_source {
  AT_COST_FREE,            // no work: parameters, tuples, bitcasts
  AT_COST_FROM_ATTRIBUTE,  // a latency that the program gives with the op
  AT_COST_FROM_PROFILE,    // measured in a previous run
  AT_COST_FROM_TABLE,      // measured table, this very key
  AT_COST_FROM_FALLBACK,   // measured table, interpolated over devices or types
  AT_COST_FROM_S_CURVE,    // network model between hosts
  AT_COST_FROM_NVLINK,     // single-shot and two-shot kernels
  AT_COST_FROM_TORUS,      // ICI rings, with DCN between slices
  AT_COST_FROM_HOST_LINK,  // bytes over the link to the host
  AT_COST_FROM_FUSION,     // model of one GPU kernel
  AT_COST_FROM_KERNEL,     // model of one TPU kernel
  AT_COST_FROM_HOST,       // model of one step on the measured host
  AT_COST_FROM_ROOFLINE,   // larger of FLOPs and bytes over the peaks
  AT_COST_FROM_CLASS,      // one size for a whole class of ops
  AT_COST_SOURCE_COUNT
} at_cost_source;
const char *at_cost_source_text(at_cost_source s);  // "table", "S-curve", ...

// A figure and where it comes from, which says how far to trust it.
typedef struct at_cost_time {
  double seconds;
  at_cost_source source;
} at_cost_time;

// ---- Interpolation over measured points
// How values between measured points are found.
//
// - seed: weighted average over the corners of the grid cell (XLA's
//   documentation)
// - xla: what XLA's code does; collectives snap to the nearest point
// - atoll: smoothed curves in log-log space, with a tail past the last point
typedef enum at_interp {
  AT_INTERP_SEED,
  AT_INTERP_XLA,
  AT_INTERP_ATOLL
} at_interp;
// "seed", "xla", "atoll"; false: none of them.
bool at_interp_parse(at_str text, at_interp *out);
// Static; "unknown" for no mode.
const char *at_interp_text(at_interp mode);

// Points of a grid of up to 4 dimensions and the functions over them.
enum { AT_POINT_DIMS = 4 };
// A measured point: sizes, and the rate that was seen there.
typedef struct at_point {
  int64_t at[AT_POINT_DIMS];  // unused dimensions are 0
  double value;
  uint32_t order;  // set by at_points_sort
} at_point;
// A grid of points, borrowed.
typedef struct at_points {
  const at_point *list;  // sorted by `at`, no two equal, unless for `nearest`
  size_t count;          // at least 1
  uint32_t dims;
  int64_t least[AT_POINT_DIMS], most[AT_POINT_DIMS];  // queries clamp to these
} at_points;
// Sorts, drops repeated places (the last stays), and sets least and most to the
// grid's own edges.
void at_points_sort(at_point *list, size_t *count, uint32_t dims,
                    at_points *out);
// Smallest squared distance; the first of equals wins. Places pass through
// int32, as in XLA's code. No clamping.
double at_points_nearest(const at_points *p, const int64_t *query);
// Snaps one dimension after the other to the nearest stored place that shares
// the snapped ones; halfway goes up.
double at_points_complement(const at_points *p, const int64_t *query);
// Corners at the powers of two around the query, weighted 1 / (distance^2 + 1).
double at_points_weighted(const at_points *p, const int64_t *query);
// Multilinear in the logarithms of places and values; clamps. Values > 0.
double at_points_loglog(const at_points *p, const int64_t *query);

// ---- Performance tables
// Collectives as tables name them; starts and dones count once.
typedef enum at_collective_op {
  AT_ALL_REDUCE,
  AT_ALL_GATHER,
  AT_REDUCE_SCATTER,
  AT_ALL_TO_ALL,
  AT_PERMUTE,
  AT_BROADCAST,  // no table measures it
  AT_COLLECTIVE_COUNT
} at_collective_op;
const char *at_collective_text(at_collective_op op);  // "all-reduce"
// By the names of at_collective_text; false: none of them.
bool at_collective_parse(at_str text, at_collective_op *out);

// Which devices talk: `groups` groups of `size` ids each, flattened.
typedef struct at_groups {
  uint32_t count, size;
  const uint32_t *ids;  // count * size; NULL: 0, 1, 2, ...
} at_groups;
// The same devices in the same groups, in the same order; NULL ids equal 0, 1,
// 2, ...
bool at_groups_eq(const at_groups *a, const at_groups *b);

// How a group lies on the machine's fast domains.
typedef enum at_scheme {
  AT_SCHEME_INTRA,         // inside one fast domain
  AT_SCHEME_RAIL_ALIGNED,  // every domain takes part with all its devices
  AT_SCHEME_NON_RAIL       // some domain takes part with a few
} at_scheme;
// How the pairs of a permute use a device's links.
typedef enum at_permute_kind {
  AT_PERMUTE_ONE_WAY,     // no device both sends and receives
  AT_PERMUTE_MUTUAL,      // pairs exchange
  AT_PERMUTE_NON_MUTUAL,  // some device sends to one and receives from another
} at_permute_kind;

// What a cost model is asked about a collective. Everything that it points to
// is borrowed.
typedef struct at_collective {
  at_collective_op op;
  at_dtype dtype;
  int64_t bytes;     // transferred: the larger of one device's input and result
  at_groups groups;  // not for PERMUTE
  const uint32_t (*pairs)[2];  // PERMUTE: source, target
  uint32_t num_pairs;
} at_collective;
// `domain` devices, in the order of their numbers, make one fast domain; 0
// counts as 8. A PERMUTE is INTRA or NON_RAIL.
at_scheme at_collective_scheme(const at_collective *c, uint32_t domain);
// Of a PERMUTE's pairs. Quadratic in their number.
at_permute_kind at_collective_permute_kind(const at_collective *c);

// One measured series: a key and its points.
typedef struct at_perf_series {
  bool is_gemm;
  // Collectives; bytes is unused. Points: (bytes) -> bytes per second.
  at_collective key;
  // GEMM: points (b, m, k, n) -> FLOP per second.
  at_dtype lhs, rhs, out;
  at_point *points;  // in the order of the file
  size_t count;
} at_perf_series;
// Clock cycles of one elementwise op per element, on one multiprocessor's lane.
typedef struct at_perf_cycles {
  at_op op;
  at_dtype dtype;
  int64_t cycles;
} at_perf_cycles;
// All that was measured of one machine; in one arena, which nobody changes once
// it is read.
typedef struct at_perf_table {
  // Texts end in 0.
  const char *machine;  // key of the device, "sm_90"
  const char *source;   // who measured it; may be ""
  uint32_t domain;      // devices of one fast domain; 0: not said
  at_perf_series *series;
  size_t count;
  const at_perf_cycles *cycles;
  size_t num_cycles;
} at_perf_table;
// Atoll's text form; grammar in src/cost/perf.c. INVALID_ARGUMENT names the
// line. A file may hold tables of several machines.
at_status at_perf_read(at_bytes text, at_arena *a, at_perf_table **out,
                       size_t *count);
// The text that at_perf_read reads back equal. Appended; lack of memory is
// out's (at_strbuf_status).
at_status at_perf_write(const at_perf_table *tables, size_t count,
                        at_strbuf *out);
// XLA's text protos: DeviceHloInstructionProfiles (collectives; GEMMs with
// cycles at `clock_hz`; cycles of elementwise ops) and GemmPerfTable. Written:
// collectives and cycles as DeviceHloInstructionProfiles, or GEMMs as
// GemmPerfTable.
at_status at_perf_read_pbtxt(at_bytes text, double clock_hz, at_arena *a,
                             at_perf_table **out, size_t *count);
// gemm: the GEMM series, else the others. Appended, as at_perf_write does it.
at_status at_perf_write_pbtxt(const at_perf_table *tables, size_t count,
                              bool gemm, at_strbuf *out);
// The tables that come with Atoll; they live as long as the process.
at_status at_perf_builtin(const at_perf_table **out, size_t *count);
// The table of that key, borrowed; NULL: none has it.
const at_perf_table *at_perf_find(const at_perf_table *tables, size_t count,
                                  const char *machine);
// Appends one line for each series whose last doubling of size still gains over
// 5% of throughput: such a table does not reach saturation.
void at_perf_warn(const at_perf_table *t, at_strbuf *out);

// Tables ready for lookups (under 1 us each).
typedef struct at_perf at_perf;
// `user`: in xla mode a table of the user's is asked by plain nearest neighbour
// with the element type in every key, as XLA does. Lives in `a`, borrows `t`.
at_status at_perf_prepare(const at_perf_table *t, at_interp mode, bool user,
                          at_arena *a, at_perf **out);
// NOT_FOUND: no series answers.
at_status at_perf_collective(const at_perf *p, const at_collective *c,
                             at_cost_time *out);
// [b, m, k] x [b, k, n]. NOT_FOUND: the table has no GEMMs at all.
typedef struct at_gemm {
  at_dtype lhs, rhs, out;
  int64_t b, m, n, k;
} at_gemm;
// INVALID_ARGUMENT: a negative size. A size of 0 is free.
at_status at_perf_gemm(const at_perf *p, const at_gemm *g, at_cost_time *out);

// How well a mode finds what is left out of tables.
typedef struct at_perf_error {
  const char *what;  // static text: the experiment
  at_interp mode;
  size_t count;
  double median, p90, worst;  // relative errors of times
  size_t within;              // of them at most 10%
} at_perf_error;
// Experiments on every table that has the series for them: each interior size
// of each series left out in turn; 2 GiB predicted from sizes up to 256 MiB;
// each interior size of a product left out in turn.
// `seen` (may be NULL) is called with the seconds of every point.
typedef void (*at_perf_seen)(void *user, const char *what, at_interp mode,
                             const char *machine, double given,
                             double predicted);
// out[*num] in `a`, rows of each experiment in each mode. `seen` is called on
// the caller's thread.
at_status at_perf_evaluate(const at_perf_table *const *tables, size_t count,
                           at_perf_seen seen, void *user, at_arena *a,
                           at_perf_error **out, size_t *num);

// ---- Network
// The S-curve's figures, SI units. Times of XLA's option string are
// microseconds, its nic_speed_gbps gigabytes per second per GPU.
typedef struct at_network {
  double launch, nic, chunk_prep, rtt;  // seconds, bytes/s, seconds, seconds
  int64_t devices_per_host, chunk_bytes;
  int64_t domain;  // devices of one fast domain; 0: devices_per_host
  double nvlink_link, nvlink_barrier;  // bytes/s per link, seconds
  int64_t nvlink_links;
  // All-to-all sends buffer / devices / peers to each peer, as XLA did until it
  // divided by the other devices.
  bool all_to_all_by_peers;
} at_network;
// The machine's figures; those it lacks are XLA's defaults for a GPU that it
// does not know.
void at_network_of(const at_machine *m, at_network *out);
// "nic_speed_gbps=50,gpus_per_node=8"; an unknown key or a bad value is
// INVALID_ARGUMENT. Changes only what the text names.
at_status at_network_options(at_str text, at_network *net);
// Finds --xla_gpu_analytical_latency_estimator_options in the text of XLA_FLAGS
// and applies it; other flags are left alone.
at_status at_network_xla_flags(at_str flags, at_network *net);

// Collective over `hosts` hosts, `communicators` of them sharing a host's NICs.
// INVALID_ARGUMENT when the communicators do not divide a host's devices.
at_status at_network_ring(const at_network *net, at_collective_op op,
                          int64_t bytes, int64_t hosts, int64_t communicators,
                          double *seconds);
// `bytes` in all leave each device. Fails as at_network_ring.
at_status at_network_all_to_all(const at_network *net, int64_t bytes,
                                int64_t hosts, int64_t communicators,
                                double *seconds);
// All-reduce kernels over NVLink: one-shot up to 256 KiB, two-shot up to 4 MiB.
at_status at_network_direct(const at_network *net, int64_t bytes,
                            int64_t devices, double *seconds);

// ---- Costs of a previous run
// Mean durations of the steps of a trace in Chrome's form, as
// jax.profiler.trace and `atoll run` leave it; lives in `a`. INVALID_ARGUMENT:
// no such JSON; NOT_FOUND: no step in it.
typedef struct at_cost_profile at_cost_profile;
// Owned by `a`; `text` is not borrowed.
at_status at_cost_profile_read(at_bytes text, at_arena *a,
                               const at_cost_profile **out);
// The same of a file, which may be compressed (.gz). NOT_FOUND as well: no such
// file.
at_status at_cost_profile_open(const char *path, at_arena *a,
                               const at_cost_profile **out);
// False: p is NULL or does not know n. Collectives and control flow are never
// known: what they took was waiting.
bool at_cost_profiled(const at_cost_profile *p, const at_node *n,
                      double *seconds);

// ---- Kernels' times
// What the kernels of a program take, by a model of the whole program
// (at_estimate_times): each at one of the nodes that it computes, the others
// take no time.
typedef struct at_cost_kernels {
  at_map seconds;  // at_node -> double
  at_map sparse;   // at_node -> double: calls that SparseCores run beside them
} at_cost_kernels;
// False: no memory, or `n` has a time already.
bool at_cost_kernels_put(at_cost_kernels *k, at_arena *a, const at_node *n,
                         double seconds);
// The same of a call that the SparseCores run, one after the other.
bool at_cost_kernels_put_sparse(at_cost_kernels *k, at_arena *a,
                                const at_node *n, double seconds);
// Seconds of such a call; 0: `n` is none.
double at_cost_kernels_sparse_of(const at_cost_kernels *k, const at_node *n);
// Seconds of the kernel that is told at `n`; 0: it takes no time of its own.
double at_cost_kernels_of(const at_cost_kernels *k, const at_node *n);

// ---- Targets
// A machine in a topology, with the tables and options to be used.
typedef struct at_target {
  const at_machine *machine;
  uint32_t slices;
  int64_t shape[3];      // chips along x, y, z of one slice
  uint32_t num_devices;  // of all slices
  uint32_t devices_per_chip;
  at_interp mode;
  double
      bandwidth;  // of a TPU's links and networks, to the description's; 0: 1
  at_network network;
  const at_perf *perf;       // NULL: no table for this machine
  const at_perf *user;       // NULL: the user gave none; asked before `perf`
  const struct at_gpu *gpu;  // NULL: not a GPU
  const struct at_tpu_chip *tpu;   // NULL: not a TPU
  const struct at_host *host;      // NULL: no host that was measured
  const at_cost_profile *profile;  // NULL: no previous run
  const at_cost_kernels *kernels;  // NULL: each node is a kernel by itself
} at_target;
// One chip of a machine that the caller describes; at_target_parse without
// text.
at_status at_target_make(const at_machine *m, at_interp mode, at_arena *a,
                         at_target **out);
// Where `atoll doctor --measure` keeps what it measured: the machine "host".
at_status at_cost_host_path(char *out, size_t size);
// The product that a DOT_GENERAL computes; false: unknown sizes.
bool at_cost_gemm_of(const at_node *n, at_gemm *out);
// "v5p:2x2x4", "2*v5e:4x4", "H100:16", "host". The built-in tables of the
// machine are prepared in `mode`; XLA_FLAGS of the environment is obeyed.
at_status at_target_parse(at_str text, at_interp mode, at_arena *a,
                          at_target **out);

// One collective from first byte to last, alone on the network.
at_status at_cost_collective(const at_target *t, const at_collective *c,
                             at_cost_time *out);
// From the measured host, the user's table, the built-in one, or the machine's
// rates, in this order; out->source says which. INVALID_ARGUMENT: a negative
// size; what a description lacks is an error that names it.
at_status at_cost_gemm(const at_target *t, const at_gemm *g, at_cost_time *out);
// One node of a program, its collectives as if synchronous. Regions of control
// flow are the caller's; a loop or branch itself is AT_COST_FREE.
at_status at_cost_node(const at_target *t, const at_node *n, at_cost_time *out);
// Copies between the memories of a device and its host (a COPY with a
// memory_space): which way, by what is known of where the operand lies. On a
// machine that is its own host they are free.
typedef enum at_host_copy {
  AT_HOST_COPY_NONE,
  AT_HOST_COPY_OUT,  // to the host
  AT_HOST_COPY_IN
} at_host_copy;
// NONE for every node that is no COPY between the two, too.
at_host_copy at_cost_host_copy_of(const at_target *t, const at_node *n);
// Does the value lie in the host's memory?
bool at_cost_on_host(at_value v);
// Is the node a name for a part of the host's memory, which costs nothing: what
// is read from there or written there is paid with its copy?
bool at_cost_stays_on_host(const at_target *t, const at_node *n);
// The collective that a node is; false when it is none. Groups and pairs live
// in `a`. A node without replica groups speaks to all devices of the module.
at_status at_cost_collective_of(const at_node *n, at_arena *a, bool *is,
                                at_collective *out);

#endif

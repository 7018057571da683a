// The S-curve between hosts and the direct all-reduce kernels inside one, as
// XLA:GPU models them (sol_gpu_cost_model.cc), and the option string that tunes
// them.
#include <math.h>
#include <stdlib.h>

#include "cost/cost_internal.h"

// Packet headers on the wire.
#define HEADER_OVERHEAD 0.025
enum { kOneShotMost = 256 << 10, kTwoShotMost = 4 << 20 };

void at_network_of(const at_machine *m, at_network *out) {
  // Absent figures take XLA's defaults for a GPU that it does not know.
  *out = (at_network){
      .launch = at_machine_number(m, "collective_launch_seconds", 45e-6),
      .nic = at_machine_number(m, "nic_bytes_per_second", 50.004e9),
      .chunk_prep = at_machine_number(m, "chunk_prep_seconds", 6.003e-6),
      .rtt = at_machine_number(m, "rtt_seconds", 31.0005e-6),
      .devices_per_host = (int64_t)at_machine_number(m, "chips_per_host", 8),
      .chunk_bytes = (int64_t)at_machine_number(m, "chunk_bytes", 4194304),
      .domain = (int64_t)at_machine_number(m, "chips_per_fast_domain", 0),
      .nvlink_link = at_machine_number(m, "nvlink_model_bytes_per_second", 0),
      .nvlink_barrier = at_machine_number(m, "nvlink_barrier_seconds", 1.5e-6),
      .nvlink_links = (int64_t)at_machine_number(m, "nvlink_links", 0),
  };
}

// ---- Formulas
// Seconds of so many bytes on the NIC, headers included.
static double transfer(const at_network *net, int64_t bytes) {
  return (double)bytes / net->nic * (1 + HEADER_OVERHEAD);
}

// Seconds to prepare whole chunks.
static double prepare(const at_network *net, int64_t bytes) {
  return ceil((double)bytes / (double)net->chunk_bytes) * net->chunk_prep;
}

// Devices of the communicator. INVALID_ARGUMENT: figures that cannot be.
static at_status devices_of(const at_network *net, int64_t hosts,
                            int64_t communicators, int64_t *out) {
  if (hosts < 1 || communicators < 1 || net->devices_per_host < 1 ||
      !(net->nic > 0) || net->chunk_bytes < 1)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "network model: hosts, communicators, devices per host, "
                   "NIC speed and chunk size must be positive");
  if (net->devices_per_host % communicators)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "network model: %lld communicators do not divide the %lld "
                   "devices of a host",
                   (long long)communicators, (long long)net->devices_per_host);
  if (__builtin_mul_overflow(hosts, net->devices_per_host / communicators, out))
    return AT_FAIL(AT_INVALID_ARGUMENT, "network model: too many devices");
  return AT_OK;
}

at_status at_network_ring(const at_network *net, at_collective_op op,
                          int64_t bytes, int64_t hosts, int64_t communicators,
                          double *seconds) {
  int64_t devices, message = bytes;
  // A pair of devices of two hosts shares its NICs with nobody.
  bool pair = op == AT_PERMUTE;
  AT_TRY(devices_of(net, hosts, pair ? 1 : communicators, &devices));
  if (pair)
    devices = 2;
  else
    message = bytes / devices;
  // XLA divides whole numbers: a pair over more hosts than two has no NIC left.
  int64_t nics = AT_MAX(devices / hosts, 1);
  double step = transfer(net, message) + prepare(net, message) + net->rtt;
  double rounds = op == AT_ALL_REDUCE ? 2 : 1;
  AT_ASSERT(devices >= 1 && message >= 0 && step >= net->rtt);
  *seconds = step * ((double)devices - 1) / (double)nics * rounds + net->launch;
  return AT_OK;
}

at_status at_network_all_to_all(const at_network *net, int64_t bytes,
                                int64_t hosts, int64_t communicators,
                                double *seconds) {
  int64_t devices;
  AT_TRY(devices_of(net, hosts, communicators, &devices));
  int64_t peers = devices / hosts * (hosts - 1);
  int64_t each = devices > 1 ? bytes / (devices - 1) : bytes;
  if (net->all_to_all_by_peers) each = bytes / devices / AT_MAX(peers, 1);
  double step = transfer(net, each) + prepare(net, each) + net->rtt;
  AT_ASSERT(peers >= 0 && peers < devices && each >= 0);
  *seconds = (double)peers * step + net->launch;
  return AT_OK;
}

// One-shot: each device reads what all others have. Two-shot: each reduces a
// share, then all are gathered.
at_status at_network_direct(const at_network *net, int64_t bytes,
                            int64_t devices, double *seconds) {
  double rate = (double)net->nvlink_links * net->nvlink_link;
  if (!(rate > 0))
    return AT_FAIL(AT_FAILED_PRECONDITION,
                   "direct all-reduce: the machine has no NVLink links or no "
                   "speed for them");
  if (devices < 1)
    return AT_FAIL(AT_INVALID_ARGUMENT, "direct all-reduce: no devices");
  if (bytes > kTwoShotMost)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "direct all-reduce: %lld bytes are over 4 MiB",
                   (long long)bytes);
  const double launch = 1e-6;
  double others = (double)(devices - 1);
  if (bytes <= kOneShotMost)
    *seconds = launch + others * (double)bytes / rate + net->nvlink_barrier;
  else
    *seconds = launch + 2 * (others / (double)devices * (double)bytes / rate +
                             net->nvlink_barrier);
  return AT_OK;
}

// ---- Options
// A finite number above 0; false: none, or more text behind it.
static bool parse_number(at_str text, double *out) {
  char copy[64], *end;
  if (!text.len || text.len >= sizeof copy) return false;
  memcpy(copy, text.ptr, text.len);
  copy[text.len] = 0;
  *out = strtod(copy, &end);
  return end == copy + text.len && isfinite(*out) && *out > 0;
}

static at_status set_option(at_str key, double v, bool whole, at_network *net) {
  // XLA's names and units; whole numbers where it reads whole numbers.
  if (at_str_is(key, "nic_speed_gbps")) return net->nic = v * 1e9, AT_OK;
  if (!whole)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "analytical latency estimator: %.*s is not a whole number",
                   (int)key.len, key.ptr);
  if (at_str_is(key, "nccl_op_launch_us"))
    net->launch = v * 1e-6;
  else if (at_str_is(key, "chunk_prep_us"))
    net->chunk_prep = v * 1e-6;
  else if (at_str_is(key, "rtt_us"))
    net->rtt = v * 1e-6;
  else if (at_str_is(key, "gpus_per_node"))
    net->devices_per_host = (int64_t)v;
  else if (at_str_is(key, "chunk_size_bytes"))
    net->chunk_bytes = (int64_t)v;
  else if (at_str_is(key, "partition_size"))
    net->domain = (int64_t)v;
  return AT_OK;
}

static bool known_option(at_str key) {
  static const char *const names[] = {
      "nccl_op_launch_us", "nic_speed_gbps",   "chunk_prep_us", "rtt_us",
      "gpus_per_node",     "chunk_size_bytes", "partition_size"};
  for (size_t i = 0; i < AT_LEN(names); i++)
    if (at_str_is(key, names[i])) return true;
  return false;
}

// One KEY=VALUE.
static at_status read_option(at_str item, at_network *net) {
  const char *eq = memchr(item.ptr, '=', item.len);
  at_str key = {item.ptr, eq ? (size_t)(eq - item.ptr) : item.len};
  int shown = (int)AT_MIN(key.len, (size_t)64);
  if (!known_option(key))
    return AT_FAIL(
        AT_INVALID_ARGUMENT,
        "analytical latency estimator: unknown option \"%.*s\"\nhint: one of "
        "nccl_op_launch_us, nic_speed_gbps, chunk_prep_us, rtt_us, "
        "gpus_per_node, "
        "chunk_size_bytes, partition_size",
        shown, key.ptr);
  double v;
  at_str text = eq ? (at_str){eq + 1, item.len - key.len - 1} : AT_STR("");
  if (!parse_number(text, &v) || v > 1e15)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "analytical latency estimator: %.*s needs a number above 0, "
                   "not \"%.*s\"",
                   shown, key.ptr, (int)AT_MIN(text.len, (size_t)64), text.ptr);
  return set_option(key, v, v == floor(v), net);
}

// All or nothing: a copy is changed until the text ends.
at_status at_network_options(at_str text, at_network *net) {
  at_network copy = *net;
  while (text.len) {
    const char *comma = memchr(text.ptr, ',', text.len);
    size_t n = comma ? (size_t)(comma - text.ptr) : text.len;
    AT_TRY(read_option((at_str){text.ptr, n}, &copy));
    size_t used = comma ? n + 1 : n;
    if (comma && used == text.len)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "analytical latency estimator: the options end in ','");
    text.ptr += used, text.len -= used;
  }
  *net = copy;
  return AT_OK;
}

// Flags are separated by blanks; a value may stand in single or double quotes.
static at_str flag_value(at_str rest, size_t *used) {
  size_t i = 0;
  char quote =
      rest.len && (*rest.ptr == '"' || *rest.ptr == '\'') ? *rest.ptr : 0;
  if (!quote) {
    while (i < rest.len && rest.ptr[i] != ' ' && rest.ptr[i] != '\t' &&
           rest.ptr[i] != '\n')
      i++;
    *used = i;
    return (at_str){rest.ptr, i};
  }
  for (i = 1; i < rest.len && rest.ptr[i] != quote;) i++;
  *used = AT_MIN(i + 1, rest.len);
  return (at_str){rest.ptr + 1, i - 1};
}

// Several are applied in order.
at_status at_network_xla_flags(at_str flags, at_network *net) {
  static const char name[] = "--xla_gpu_analytical_latency_estimator_options=";
  const size_t n = sizeof name - 1;
  for (size_t i = 0; i + n <= flags.len;) {
    bool starts = !i || flags.ptr[i - 1] == ' ' || flags.ptr[i - 1] == '\t' ||
                  flags.ptr[i - 1] == '\n';
    if (!starts || memcmp(flags.ptr + i, name, n) != 0) {
      i++;
      continue;
    }
    size_t used;
    at_str value =
        flag_value((at_str){flags.ptr + i + n, flags.len - i - n}, &used);
    AT_TRY(at_status_prefix(at_network_options(value, net), "XLA_FLAGS"));
    i += n + used;
  }
  return AT_OK;
}

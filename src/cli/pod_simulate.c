// `atoll pod up --simulate`: what simulated hosts are charged, and where that
// comes from.
#include <stdlib.h>
#include <unistd.h>

#include "base/json.h"
#include "cli/cli.h"
#include "cli/pod_internal.h"

// Of real pods on two cores of a cloud machine when it was quiet, as
// `bench/pod_simulate.py --calibrate` measures them; --charges=FILE are those
// of another. host_load and host_answer are assumed.
static const at_charges kCharges = {.client_beside = 600,
                                    .controller_send = 350,
                                    .host_message = 750,
                                    .host_launch = 200,
                                    .host_chip = 300,
                                    .host_copy = 2700,
                                    .host_load = 300000,
                                    .host_answer = 4000,
                                    .chip_launch = 0,
                                    .host_meet = 7500,
                                    .chip_meet = 0};

static const struct {
  const char *name;
  size_t at;
} kNames[] = {
    {"client_message", offsetof(at_charges, client_message)},
    {"client_beside", offsetof(at_charges, client_beside)},
    {"controller_message", offsetof(at_charges, controller_message)},
    {"controller_host", offsetof(at_charges, controller_host)},
    {"controller_send", offsetof(at_charges, controller_send)},
    {"host_message", offsetof(at_charges, host_message)},
    {"host_launch", offsetof(at_charges, host_launch)},
    {"host_chip", offsetof(at_charges, host_chip)},
    {"host_copy", offsetof(at_charges, host_copy)},
    {"host_load", offsetof(at_charges, host_load)},
    {"host_answer", offsetof(at_charges, host_answer)},
    {"chip_launch", offsetof(at_charges, chip_launch)},
    {"host_meet", offsetof(at_charges, host_meet)},
    {"chip_meet", offsetof(at_charges, chip_meet)},
};

// The i-th figure of the table below its name.
static uint64_t *charge(at_charges *c, size_t i) {
  return (uint64_t *)(void *)((char *)c + kNames[i].at);
}

// JSON with all names of kNames. INVALID_ARGUMENT: one is missing or out of
// bounds.
static at_status read_charges(const char *path, at_charges *out) {
  at_bytes text;
  const at_json *j;
  AT_TRY(at_cli_read_file(path, &text));
  at_arena *a = at_arena_create();
  at_status st = at_json_parse(text, a, &j);
  for (size_t i = 0; !st.err && i < AT_LEN(kNames); i++) {
    double ns = at_json_get_num(j, kNames[i].name, -1);
    if (ns < 0 || ns > 1e12)
      st = AT_FAIL(AT_INVALID_ARGUMENT, "no \"%s\": nanoseconds, or 0",
                   kNames[i].name);
    else
      *charge(out, i) = (uint64_t)ns;
  }
  at_arena_destroy(a);
  free((void *)text.ptr);
  return st.err ? at_status_prefix(st, "--charges=%s", path) : st;
}

// `option` has the '=' behind it.
static at_status number(const char *option, const char *text, double least,
                        double most, double *out) {
  char *end;
  *out = strtod(text, &end);
  if (*end || end == text || !(*out >= least && *out <= most))
    return AT_FAIL(AT_INVALID_ARGUMENT, "%s%s is not %g to %g", option, text,
                   least, most);
  return AT_OK;
}

// 0: as many as there are processes.
static at_status count_cores(const char *text, uint32_t *out) {
  double n;
  if (!strcmp(text, "all")) return *out = 0, AT_OK;
  if (!strcmp(text, "this"))
    return *out = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN), AT_OK;
  AT_TRY(number("--cores=", text, 1, 1024, &n));
  return *out = (uint32_t)n, AT_OK;
}

// What is not said about the network is left to at_pod_simulate, which knows
// the target.
at_status at_pod_simulate_options(int *argc, char **argv,
                                  at_simulated_options *o, bool *out_is) {
  const char *cores = NULL, *charges = NULL, *dispatch = NULL, *latency = NULL,
             *rate = NULL;
  double n;
  *out_is = at_cli_option(argc, argv, "--simulate", NULL);
  bool any = at_cli_option(argc, argv, "--cores=", &cores);
  any |= at_cli_option(argc, argv, "--charges=", &charges);
  any |= at_cli_option(argc, argv, "--dispatch=", &dispatch);
  any |= at_cli_option(argc, argv, "--latency-us=", &latency);
  any |= at_cli_option(argc, argv, "--bandwidth=", &rate);
  if (any && !*out_is)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "--cores, --charges, --dispatch, --latency-us and "
                   "--bandwidth are for --simulate");
  o->charges = kCharges;
  if (cores) AT_TRY(count_cores(cores, &o->cores));
  if (charges) AT_TRY(read_charges(charges, &o->charges));
  if (dispatch && strcmp(dispatch, "parallel") &&
      strcmp(dispatch, "sequential"))
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "--dispatch=%s is not parallel or sequential", dispatch);
  o->sequential = dispatch && !strcmp(dispatch, "sequential");
  if (latency) {
    AT_TRY(number("--latency-us=", latency, 0, 1e6, &n));
    o->latency = (uint64_t)(n * 1e3);
  } else {
    o->latency = UINT64_MAX;
  }
  o->bytes_per_s = 1;
  if (rate) AT_TRY(number("--bandwidth=", rate, 1e-3, 1e3, &o->bytes_per_s));
  return AT_OK;
}

// Between processes of one machine: through shared memory.
static void this_machine(at_simulated_options *o) {
  o->latency = 5000;
  o->bytes_per_s = 5e9;
  o->ici_latency = 0;
}

// All figures that virtual time is made of, so that a result can be judged.
static void tell(const at_simulated_options *o, const char *sources) {
  at_charges c = o->charges;
  fprintf(stderr, "%u simulated hosts; ", o->num_hosts);
  if (o->cores)
    fprintf(stderr, "%u cores for all processes\n", o->cores);
  else
    fprintf(stderr, "each process has a core of its own\n");
  fprintf(stderr, "latency %.3g us, %.4g GB/s a process; ",
          (double)o->latency * 1e-3, o->bytes_per_s * 1e-9);
  if (o->ici_latency)
    fprintf(stderr, "between chips of a slice %.3g us, %.4g GB/s",
            (double)o->ici_latency * 1e-3, o->ici_bytes_per_s * 1e-9);
  fprintf(stderr, "\n%s", sources);
  for (size_t i = 0; i < AT_LEN(kNames); i++)
    fprintf(stderr, "%s %llu ns%s", kNames[i].name,
            (unsigned long long)*charge(&c, i),
            i + 1 < AT_LEN(kNames) ? ", " : "\n");
}

// Processes that share cores are on one machine; others are on the target's
// network. o has the network's figures afterwards.
at_status at_pod_simulate(at_simulated_options *o, at_simulated **out) {
  at_strbuf sources = {0};
  const uint64_t latency = o->latency;
  const double factor = o->bytes_per_s;
  AT_TRY(at_pod_token(&o->token));
  at_status st = AT_OK;
  if (o->cores)
    this_machine(o);
  else
    st = at_simulated_network(o, &sources);
  if (latency != UINT64_MAX) o->latency = latency;
  o->bandwidth = factor;
  o->bytes_per_s *= factor;
  o->ici_bytes_per_s *= factor;
  if (!st.err) tell(o, sources.ptr ? sources.ptr : "");
  at_strbuf_free(&sources);
  return st.err ? st : at_simulated_create(o, out);
}

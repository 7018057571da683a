// Traced programs of a client: what one thread asks of the pod between a begin
// and an end is kept as a graph that needs no other process to run again, with
// other inputs: one message, and hosts do its steps back to back.
//
// A graph names programs, inputs, and arrays that it makes; an array that was
// there before and is no input is a constant of it, and stays as long as it.
//
// Errors: what cannot be traced is FAILED_PRECONDITION, inputs that do not fit
// are INVALID_ARGUMENT.
// Threads: a trace belongs to the one that began it; traced programs may run
// from any.
#ifndef ATOLL_CONTROL_TRACE_H_
#define ATOLL_CONTROL_TRACE_H_

#include "base/strbuf.h"
#include "control/client.h"

// What is being traced by one thread; and a finished traced program, which
// holds its constants and programs on the hosts until it is freed.
typedef struct at_trace at_trace;
typedef struct at_traced at_traced;

// An array by its name, and its shards as they may be named alone.
typedef struct at_trace_array {
  // The client's name of the whole.
  uint64_t name;
  uint32_t num_shards;
  const at_proxy_shard *shards;
} at_trace_array;

// Arrays that are made meanwhile of bytes in `hosts` (dense) are inputs, too: a
// run makes them of what is there then.
//
// From now on this thread's calls are kept, and happen. FAILED_PRECONDITION: it
// traces already.
at_status at_trace_begin(at_client *c, const at_trace_array *inputs,
                         uint32_t count, const at_bytes *hosts,
                         uint32_t num_hosts, at_trace **out);
// What this thread does while `on` is no part of the program.
// On the tracing thread.
void at_trace_pause(at_trace *t, bool on);
// A function of the client's, `text`, that has been called now: a run calls it
// again. It takes the next num_taken of at_trace_end's results, which begin
// with those of all such calls, and has made these arrays: inputs that a run
// brings (at_traced_run's `late`). *first_input: the first one's number.
at_status at_trace_host(at_trace *t, const char *text, uint32_t num_taken,
                        const at_trace_array *made, uint32_t count,
                        uint32_t *first_input);
// On the same thread. results: names of arrays; *out_results: what each is.
// FAILED_PRECONDITION: something cannot be kept, and says what: values were
// looked at, a host callback ran, or a constant was donated.
typedef struct at_trace_result {
  enum { AT_TRACE_MADE, AT_TRACE_INPUT, AT_TRACE_CONSTANT } is;
  uint32_t number;  // of the array that it makes, or of the input
} at_trace_result;
// passes: of graph.h; without, steps stay as they were asked for.
at_status at_trace_end(at_trace *t, const uint64_t *results, uint32_t count,
                       bool passes, at_trace_result *out_results,
                       at_traced **out);
// Forgets what was traced and lets go of the arrays and programs that it kept;
// NULL is allowed. On the thread that began it.
void at_trace_abandon(at_trace *t);
// What an array is so far; it is no result by that.
// AT_TRACE_CONSTANT also for names that mean nothing.
at_trace_result at_trace_find(const at_trace *t, uint64_t name);

// inputs: names of arrays with as many shards on the same chips; hosts: as long
// as those of the trace; late: names of what at_trace_host's calls make, which
// the client may write later. *first: the k-th array that it makes is first +
// k. FAILED_PRECONDITION: hosts were replaced since: see below.
at_status at_traced_run(at_traced *g, const uint64_t *inputs,
                        const at_bytes *hosts, const uint64_t *late,
                        uint64_t *first);
// Does the graph take the memory of that input? input is below the number of
// inputs.
bool at_traced_donates(const at_traced *g, uint32_t input);
// How many names at_traced_run's `inputs` has.
uint32_t at_traced_inputs(const at_traced *g);  // but those of `hosts`
// Once more for the hosts of now, without a trace. One thread at a time.
// FAILED_PRECONDITION: it has constants, which were lost with a host.
at_status at_traced_relower(at_traced *g);
// at_graph_print.
// As the passes have left it; appends.
void at_traced_print(const at_traced *g, at_strbuf *out);
// Also on the hosts; NULL is allowed. Runs that were asked for before go on.
void at_traced_free(at_traced *g);

#endif

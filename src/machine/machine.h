// Hardware descriptions: what a machine is said to be able to do, each figure
// with its source. One format (JSON, data/hw/*.json) and one reader for chips
// that are imitated, targets that are only estimated, and the measured host.
//
//   {"name": "v6e", "platform": "tpu", "aliases": ["v6litepod"],
//    "hbm_bytes_per_second": {"value": 1.64e12, "source": "..."}, ...}
//
// A value is a number (SI units: bytes, seconds, hertz, operations) or a text.
// A figure that nobody published is absent or 0, and whoever needs it says so;
// machine/figures.def lists all, and what the absence of each means.
//
// Threads: any; descriptions that were read are never changed.
#ifndef ATOLL_MACHINE_MACHINE_H_
#define ATOLL_MACHINE_MACHINE_H_

#include "base/json.h"

typedef struct at_machine {
  const char *name;      // "v6e", "H100", "host"
  const char *platform;  // "tpu", "gpu", "ipu" or "host"
  const at_json *tree;   // the whole description
} at_machine;

// The descriptions that come with Atoll, ordered by file name. They live as
// long as the process. RESOURCE_EXHAUSTED where they cannot be read now; none
// are there then, and the next call tries again. Thread-safe.
at_status at_machines_load(void);
size_t at_machine_count(void);  // loads them; 0: it could not
// Number i of them; NULL: there are fewer.
const at_machine *at_machine_at(size_t i);
// By name, alias or device kind, ignoring case. INVALID_ARGUMENT lists the
// known names.
at_status at_machine_find(at_str name, const at_machine **out);
// Is `name` its name, device kind or one of its aliases? Case does not matter.
bool at_machine_answers_to(const at_machine *m, at_str name);
// Reads a description; everything lives in `a`. INVALID_ARGUMENT names the
// member that is not a figure with a source, or not of the kind that
// machine/figures.def says.
at_status at_machine_read(at_bytes text, at_arena *a, at_machine *out);
// Does it say all that machine/figures.def wants of its platform, and nothing
// that the table does not know? FAILED_PRECONDITION names the machine and each
// such figure. Descriptions that come with Atoll have to; of others it is a
// warning.
at_status at_machine_complete(const at_machine *m);

typedef struct at_figure {
  double value;   // 0 when the figure is a text
  at_str text;    // empty when the figure is a number
  at_str source;  // who says so
} at_figure;
// False when the description has no such figure; *out is then all zero.
bool at_machine_figure(const at_machine *m, const char *name, at_figure *out);
// The number, or `absent` when there is none.
double at_machine_number(const at_machine *m, const char *name, double absent);
// The number; FAILED_PRECONDITION names machine and figure when it is absent or
// 0.
at_status at_machine_need(const at_machine *m, const char *name, double *out);

// A coefficient of a data file that comes with Atoll: rows[name].value. One
// that is missing is said, once, and is NaN, so that no estimate passes for
// one.
double at_coefficient(const at_json *rows, const char *name, const char *file);

#endif

// `atoll check`: what a checked run found, and how it is told. check.c runs the
// program, check_read.c makes findings of the lines that the runtime wrote
// (base/finding.h), check_text.c, check_sarif.c and check_page.c tell them.
#ifndef ATOLL_CLI_CHECK_H_
#define ATOLL_CLI_CHECK_H_

#include "base/arena.h"
#include "base/json.h"
#include "base/strbuf.h"
#include "mosaic/mosaic.h"
#include "tpu/tpu.h"

// A kind of finding: the id that reports have, and what it means.
// Rules are static; reports name them by id, and ids never change.
typedef struct at_check_rule {
  const char *id, *title, *help;
} at_check_rule;
// All rules, in the order of reports.
const at_check_rule *at_check_rules(uint32_t *count);

// A line of the user's source.
typedef struct at_check_place {
  const char *file;       // as Python names it; "" unknown
  uint32_t line, column;  // from 1; column 0: not known
  const char *what;       // "the copy was started", "called"; "" nothing
} at_check_place;

// Frames that are kept of a stack, and places that have to do with a finding.
enum { AT_CHECK_PLACES = 24 };
// One defect, however often it was met. All strings are in the result's arena.
typedef struct at_check_finding {
  uint32_t rule;              // index of at_check_rules
  bool warning;               // else an error
  const char *kernel;         // "" outside Pallas kernels
  const char *title;          // one line
  const char *detail, *hint;  // "" none
  const char *message;        // all that the runtime said
  // Frames of the call stack, innermost first: where the defect is.
  at_check_place stack[AT_CHECK_PLACES], related[AT_CHECK_PLACES];
  uint32_t num_stack, num_related;
  uint32_t count;  // how often it was found
} at_check_finding;

// What a run has found: the input of every report. Filled by the caller but for
// the findings, which at_check_read adds; everything lives in `arena`.
typedef struct at_check_result {
  // Owned by whoever made the result.
  at_arena *arena;
  const char *program;
  int status;  // the program's exit status; 128 + n: ended by signal n
  // From the start of the program's process to its end.
  double seconds;
  // [num], in the order in which they were first met.
  at_check_finding *findings;
  uint32_t num, errors, warnings;
  bool strict;  // warnings count as failures
} at_check_result;

// Reads the runtime's lines; findings of one kind at one place are one.
// INVALID_ARGUMENT: a line is none.
at_status at_check_read(at_bytes lines, at_check_result *r);

// A line of a source file without its end; NULL: there is none.
// line counts from 1; the text is in the result's arena.
const char *at_check_source(const at_check_result *r, const char *file,
                            uint32_t line);

// The forms of a report, appended to *out: for people, for scripts, for CI's
// tables of tests, for code scanning.
void at_check_text(const at_check_result *r, at_strbuf *out);
void at_check_json(const at_check_result *r, at_strbuf *out);
void at_check_junit(const at_check_result *r, at_strbuf *out);
void at_check_sarif(const at_check_result *r, at_strbuf *out);

// A Pallas kernel that has a page.
// Everything that its page is made of; in the result's arena.
typedef struct at_check_kernel {
  const char *name, *target;       // target: a chip's name
  const char *file;                // of its page
  const at_mosaic_kernel *kernel;  // NULL: findings outside kernels
  const at_mosaic_chip *chip;      // NULL: not known
  const at_mosaic_timing *timing;  // NULL: see why
  const char *why;                 // there is no timing
  const char *formula;  // cycles by bounds of the grid that come as operands;
                        // NULL: there are none
} at_check_kernel;
// check_page.c: findings with their source, grid timeline, what bounds it,
// VMEM by buffer, advice.
// Appends a whole HTML page, which loads nothing.
void at_check_page(const at_check_result *r, const at_check_kernel *k,
                   at_strbuf *out);
// check_pages.c: a page for each Pallas kernel among the programs that were
// dumped to a folder, one for findings outside kernels, and index.html.
// Makes the folder. NOT_FOUND, DATA_LOSS: it, or a page, cannot be written.
// Pages of an earlier run are replaced.
at_status at_check_pages(const at_check_result *r, const char *dump,
                         const char *folder);

#endif

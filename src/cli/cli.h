// The `atoll` command. One row per subcommand (command.c); each is one function
// that gets its own arguments and returns a status, printed as an error.
#ifndef ATOLL_CLI_CLI_H_
#define ATOLL_CLI_CLI_H_

#include <stdio.h>

#include "base/span.h"
#include "base/status.h"
#include "base/strbuf.h"

// The whole command: main's arguments, its exit status.
// argv is changed: options are taken out of it.
int at_cli_main(int argc, char **argv);

// The commands that there are, in the order of --help. `usage` is also the
// command's table of options (options.c).
// A row of the table in command.c. The usage begins with "atoll NAME" and has a
// line for each option.
typedef struct at_cli_command {
  const char *name, *summary, *usage;
  at_status (*run)(int argc, char **argv);
} at_cli_command;
const at_cli_command *at_cli_commands(size_t *count);

// Each gets its own arguments: argv[0] is its name, and a NULL follows the last
// one. What it returns is printed as an error, with exit status 2 for
// INVALID_ARGUMENT and else 1.
at_status at_cli_run(int argc, char **argv);
// Ends the process by itself with a status above 0: see its usage.
at_status at_cli_check(int argc, char **argv);
at_status at_cli_debug(int argc, char **argv);  // becomes Python
at_status at_cli_dump(int argc, char **argv);
// Some commands are parts of others:
at_status at_cli_dump_mosaic(int argc, char **argv);  // after --mosaic
at_status at_cli_config(int argc, char **argv);
at_status at_cli_doctor(int argc, char **argv);
at_status at_cli_cost(int argc, char **argv);
at_status at_cli_collect(int argc, char **argv);  // `atoll cost collect`
at_status at_cli_measure_host(bool cpu_time);     // `atoll doctor --measure`
at_status at_cli_estimate(int argc, char **argv);
at_status at_cli_plan(int argc, char **argv);
at_status at_cli_tune(int argc, char **argv);
at_status at_cli_profile(int argc, char **argv);
at_status at_cli_cache(int argc, char **argv);
at_status at_cli_pod(int argc, char **argv);
at_status at_cli_host(int argc, char **argv);
at_status at_cli_completion(int argc, char **argv);
at_status at_cli_man(int argc, char **argv);
at_status at_cli_version(int argc, char **argv);

// What a usage text shows of an option: its name with the dashes, and what
// follows '='; empty: a flag.
enum { AT_CLI_OPTIONS = 64 };
// Borrowed from the usage text, but for the name.
typedef struct at_cli_shown {
  char name[40];
  at_str value;
} at_cli_shown;
// Each once; at most AT_CLI_OPTIONS.
// Values are borrowed from the usage text.
size_t at_cli_options_of(const char *usage, at_cli_shown *out);

// How text looks on a terminal. "" where `to` is none, where NO_COLOR is set,
// and where TERM is dumb.
// NO_COLOR and TERM are looked at each time, so that tests can change them.
typedef enum at_cli_style {
  AT_STYLE_PLAIN,  // ends the others
  AT_STYLE_BOLD,
  AT_STYLE_ERROR,
  AT_STYLE_WARNING,
  AT_STYLE_HINT
} at_cli_style;
// An escape sequence, static.
const char *at_cli_style_of(FILE *to, at_cli_style style);
// Says on stderr how far a long work is, where that is a terminal. A later call
// takes the line's place; an empty text ends it.
__attribute__((format(printf, 1, 2))) void at_cli_progress(const char *fmt,
                                                           ...);

// Option parsing for a subcommand: `--name=value`, `--name value`, or a flag.
// Takes what it knows out of argv; returns false when `name` is not there. A
// name that ends in '=' takes a value.
bool at_cli_option(int *argc, char **argv, const char *name,
                   const char **out_value);
// Checks the options of a command against its usage text, which is their table:
// INVALID_ARGUMENT for an option that it does not show (with the nearest), for
// one without its value, and for a value that is not of the kind shown
// (options.c). What at_cli_option finds afterwards has its value.
// Reads up to "--", takes nothing out.
at_status at_cli_check_options(const char *command, const char *usage, int argc,
                               char **argv);
// INVALID_ARGUMENT names the first option that is left.
// Behind the last at_cli_option: what still begins with a dash is nobody's.
at_status at_cli_no_more_options(int argc, char **argv, const char *command);
// Reads a whole file ("-": standard input); free() out->ptr.
// NOT_FOUND: it cannot be opened; DATA_LOSS: not read to its end.
at_status at_cli_read_file(const char *path, at_bytes *out);
// NOT_FOUND, DATA_LOSS: it could not be written.
at_status at_cli_write_file(const char *path, const at_strbuf *b);
// Folder of the running executable.
// Without '/' at its end. NOT_FOUND: the system does not say.
at_status at_cli_own_folder(char *out, size_t size);
// The interpreter that the caller works with: $PYTHON, that of the environment
// that is active (its path is written to out), or the first one in PATH.
// Borrowed from out, the environment, or static.
const char *at_cli_python(char *out, size_t size);
// Replaces this process by argv[0], an interpreter; returns only on failure.
// needs: the packages that it must have, for the hint.
// argv ends with NULL. NOT_FOUND: it cannot be started.
at_status at_cli_become_python(char **argv, const char *needs);
// The same with `python -m module [first] argv...`; first may be NULL.
// Fails as at_cli_become_python does.
at_status at_cli_become_module(const char *module, const char *needs,
                               const char *first, int argc, char **argv);

#endif

// `atoll man`: manual pages from the table of commands and the one of knobs.
#include "base/config.h"
#include "cli/cli.h"

// Text as it is: troff's own signs are escaped.
static void add_plain(at_strbuf *b, const char *text) {
  bool start = true;
  for (; *text; text++) {
    if (start && (*text == '.' || *text == '\'')) at_strbuf_addz(b, "\\&");
    start = *text == '\n';
    if (*text == '\\')
      at_strbuf_addz(b, "\\e");
    else if (*text == '-')
      at_strbuf_addz(b, "\\-");
    else
      at_strbuf_addc(b, *text);
  }
}

// The page's head and its NAME, which `man -k` searches.
static void add_title(at_strbuf *b, const char *page, const char *summary) {
  at_strbuf_addf(b, ".TH %s 1 \"\" \"Atoll %s\" \"Atoll\"\n.SH NAME\n", page,
                 AT_VERSION);
  add_plain(b, page);
  at_strbuf_addz(b, " \\- ");
  add_plain(b, summary);
}

// The usage text is the synopsis, line by line as it is.
static void command_page(const at_cli_command *c, at_strbuf *b) {
  char page[64];
  snprintf(page, sizeof page, "atoll-%s", c->name);
  add_title(b, page, c->summary);
  at_strbuf_addz(b, "\n.SH SYNOPSIS\n.nf\n");
  add_plain(b, c->usage);
  at_strbuf_addz(b, ".fi\n");
  // Some have their own.
  if (!strstr(c->usage, "xit status"))
    at_strbuf_addz(b,
                   ".SH EXIT STATUS\n0: done; 1: it failed; 2: wrong usage.\n");
  at_strbuf_addz(b, ".SH SEE ALSO\n.BR atoll (1)\n");
}

// All commands and all knobs.
static void main_page(at_strbuf *b) {
  size_t n;
  const at_cli_command *c = at_cli_commands(&n);
  add_title(b, "atoll", "JAX programs for TPUs on this machine");
  at_strbuf_addz(b,
                 "\n.SH SYNOPSIS\n.B atoll\n.I COMMAND\n[arguments]\n"
                 ".SH COMMANDS\n");
  for (size_t i = 0; i < n; i++) {
    at_strbuf_addf(b, ".TP\n.BR atoll-%s (1)\n", c[i].name);
    add_plain(b, c[i].summary);
    at_strbuf_addc(b, '\n');
  }
  at_strbuf_addz(b, ".SH ENVIRONMENT\n");
  for (int i = 0; i < AT_CONFIG_COUNT; i++) {
    const at_config_info *row = at_config_info_of((at_config)i);
    at_strbuf_addf(b, ".TP\n.B %s\n", row->name);
    add_plain(b, row->help);
    at_strbuf_addz(b, ". Takes ");
    at_strbuf allowed = {0};
    at_config_allowed((at_config)i, &allowed);
    if (allowed.ptr) add_plain(b, allowed.ptr);
    b->failed |= allowed.failed;
    at_strbuf_free(&allowed);
    at_strbuf_addz(b, ".\n");
  }
}

// Consumes b.
static at_status write_page(const char *folder, const char *name,
                            at_strbuf *b) {
  char path[4200];
  snprintf(path, sizeof path, "%s/%s.1", folder, name);
  at_status st = at_cli_write_file(path, b);
  at_strbuf_free(b);
  return st;
}

// One page for the program and one for each command, in a folder that is there.
static at_status write_all(const char *folder) {
  size_t n;
  const at_cli_command *c = at_cli_commands(&n);
  at_strbuf b = {0};
  main_page(&b);
  AT_TRY(write_page(folder, "atoll", &b));
  for (size_t i = 0; i < n; i++) {
    char name[64];
    snprintf(name, sizeof name, "atoll-%s", c[i].name);
    b = (at_strbuf){0};
    command_page(&c[i], &b);
    AT_TRY(write_page(folder, name, &b));
  }
  return AT_OK;
}

// Without a command the program's own page.
at_status at_cli_man(int argc, char **argv) {
  const char *folder = NULL;
  at_cli_option(&argc, argv, "--out=", &folder);
  AT_TRY(at_cli_no_more_options(argc, argv, "man"));
  if (folder && argc == 1) return write_all(folder);
  if (folder || argc > 2)
    return AT_FAIL(
        AT_INVALID_ARGUMENT,
        "takes one command, or --out=FOLDER\nhint: atoll man --help");
  size_t n;
  const at_cli_command *c = at_cli_commands(&n), *end = c + n;
  at_strbuf b = {0};
  while (argc == 2 && c < end && strcmp(c->name, argv[1])) c++;
  if (c == end)
    return AT_FAIL(AT_NOT_FOUND, "no command '%.80s'\nhint: atoll --help",
                   argv[1]);
  if (argc == 2)
    command_page(c, &b);
  else
    main_page(&b);
  at_status st = at_strbuf_status(&b);
  if (at_ok(st)) fputs(b.ptr, stdout);
  at_strbuf_free(&b);
  return st;
}

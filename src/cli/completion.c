// `atoll completion`: scripts for shells, made from the table of commands. What
// follows a command are its options, the words of those that take words, the
// words of the command itself (atoll pod up), and files.
#include "cli/cli.h"

// A character of a subcommand's or a value's name.
static bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || c == '-' || c == '_';
}

// Appends a word and a blank, unless `words` from `start` on has it.
// Words are few, so each new one is compared with all.
static void add_word(at_strbuf *words, size_t start, const char *p,
                     size_t len) {
  for (size_t i = start; i + len < words->len + 1; i++)
    if ((i == start || words->ptr[i - 1] == ' ') &&
        !strncmp(words->ptr + i, p, len) && words->ptr[i + len] == ' ')
      return;
  at_strbuf_add(words, (at_str){p, len});
  at_strbuf_addc(words, ' ');
}

// The words that the option takes: of every `--name=a|b` that the usage shows.
static void add_values(const char *usage, const char *name, at_strbuf *out) {
  size_t n = strlen(name), start = out->len;
  for (const char *p = strstr(usage, name); p; p = strstr(p, name)) {
    p += n;
    if (*p != '=') continue;
    do {
      size_t len = 0;
      p++;
      while (is_word(p[len])) len++;
      bool whole = len && strchr("| \n])", p[len]);
      if (whole) add_word(out, start, p, len);
      p += len;
    } while (*p == '|');
  }
}

// The words that may follow the command: `atoll NAME word` at a line's start.
static void add_subcommands(const at_cli_command *c, at_strbuf *out) {
  char head[64];
  size_t n = (size_t)snprintf(head, sizeof head, "atoll %s ", c->name);
  size_t start = out->len;
  for (const char *p = c->usage; p; p = strchr(p, '\n')) {
    if (*p == '\n') p++;
    if (strncmp(p, head, n)) continue;
    size_t len = 0;
    while (is_word(p[n + len])) len++;
    if (len && p[n] != '-' && (p[n + len] == ' ' || p[n + len] == '\n'))
      add_word(out, start, p + n, len);
  }
}

// What may follow the command's name in bash: subcommands, options, --help.
static void add_names(at_strbuf *b, const at_cli_command *c) {
  at_cli_shown shown[AT_CLI_OPTIONS];
  size_t n = at_cli_options_of(c->usage, shown);
  add_subcommands(c, b);
  for (size_t i = 0; i < n; i++)
    at_strbuf_addf(b, "%s%s ", shown[i].name, shown[i].value.len ? "=" : "");
  at_strbuf_addz(b, "--help");
}

// Words by the command and, behind "--option=", by the option. compgen filters;
// files are offered where nothing else fits.
static void bash(const at_cli_command *c, size_t count, at_strbuf *b) {
  at_strbuf_addz(b,
                 "# Completion of atoll for bash.\n"
                 "_atoll() {\n"
                 "  local word=$2 option=$3 words=\n"
                 "  [[ $3 == = ]] && option=${COMP_WORDS[COMP_CWORD-2]}\n"
                 "  if (( COMP_CWORD == 1 )); then\n"
                 "    COMPREPLY=($(compgen -W '");
  for (size_t i = 0; i < count; i++) at_strbuf_addf(b, "%s ", c[i].name);
  at_strbuf_addz(b,
                 "--help --version' -- \"$word\"))\n    return\n  fi\n"
                 "  case ${COMP_WORDS[1]}:$option in\n");
  for (size_t i = 0; i < count; i++) {
    at_cli_shown shown[AT_CLI_OPTIONS];
    size_t n = at_cli_options_of(c[i].usage, shown);
    for (size_t k = 0; k < n; k++) {
      if (!shown[k].value.len) continue;
      at_strbuf words = {0};
      add_values(c[i].usage, shown[k].name, &words);
      at_strbuf_addf(b, "    %s:%s) words='%s' ;;\n", c[i].name, shown[k].name,
                     words.ptr ? words.ptr : "");
      b->failed |= words.failed;
      at_strbuf_free(&words);
    }
    at_strbuf_addf(b, "    %s:*) words='", c[i].name);
    add_names(b, &c[i]);
    at_strbuf_addz(b, "' ;;\n");
  }
  at_strbuf_addz(b,
                 "  esac\n"
                 "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
                 "  [[ ${COMPREPLY-} == *= ]] && compopt -o nospace\n"
                 "  [[ $word == -* || ( $words && $words != *--help ) ]] ||\n"
                 "    COMPREPLY+=($(compgen -f -- \"$word\"))\n"
                 "}\ncomplete -o filenames -F _atoll atoll\n");
}

// Text inside single quotes, which end for a quote of its own.
static void add_quoted(at_strbuf *b, const char *text) {
  for (; *text; text++)
    if (*text == '\'')
      at_strbuf_addz(b, "'\\''");
    else
      at_strbuf_addc(b, *text);
}

// Options with their values for _arguments; commands with their summaries.
static void zsh(const at_cli_command *c, size_t count, at_strbuf *b) {
  at_strbuf_addz(b,
                 "#compdef atoll\n# Completion of atoll for zsh.\n"
                 "_atoll() {\n  local -a commands\n"
                 "  if (( CURRENT == 2 )); then\n    commands=(\n");
  for (size_t i = 0; i < count; i++) {
    at_strbuf_addf(b, "      '%s:", c[i].name);
    add_quoted(b, c[i].summary);
    at_strbuf_addz(b, "'\n");
  }
  at_strbuf_addz(b,
                 "    )\n    _describe command commands\n    return\n  fi\n"
                 "  case $words[2] in\n");
  for (size_t i = 0; i < count; i++) {
    at_cli_shown shown[AT_CLI_OPTIONS];
    size_t n = at_cli_options_of(c[i].usage, shown);
    at_strbuf_addf(b, "    %s)\n      _arguments '--help'", c[i].name);
    for (size_t k = 0; k < n; k++) {
      at_strbuf words = {0};
      add_values(c[i].usage, shown[k].name, &words);
      if (!shown[k].value.len)
        at_strbuf_addf(b, " \\\n        '%s'", shown[k].name);
      else if (words.len)
        at_strbuf_addf(b, " \\\n        '%s=:value:(%s)'", shown[k].name,
                       words.ptr);
      else
        at_strbuf_addf(b, " \\\n        '%s=:value:_files'", shown[k].name);
      b->failed |= words.failed;
      at_strbuf_free(&words);
    }
    at_strbuf words = {0};
    add_subcommands(&c[i], &words);
    if (words.len) at_strbuf_addf(b, " \\\n        '2:word:(%s)'", words.ptr);
    b->failed |= words.failed;
    at_strbuf_free(&words);
    at_strbuf_addz(b, " \\\n        '*:file:_files'\n      ;;\n");
  }
  at_strbuf_addz(b, "  esac\n}\ncompdef _atoll atoll\n");
}

// One `complete` line for each word.
static void fish(const at_cli_command *c, size_t count, at_strbuf *b) {
  at_strbuf_addz(b, "# Completion of atoll for fish.\n");
  for (size_t i = 0; i < count; i++) {
    at_strbuf_addf(b,
                   "complete -c atoll -f -n __fish_use_subcommand -a %s -d '",
                   c[i].name);
    add_quoted(b, c[i].summary);
    at_strbuf_addz(b, "'\n");
  }
  for (size_t i = 0; i < count; i++) {
    at_cli_shown shown[AT_CLI_OPTIONS];
    size_t n = at_cli_options_of(c[i].usage, shown);
    char head[128];
    snprintf(head, sizeof head,
             "complete -c atoll -n '__fish_seen_subcommand_from %s'",
             c[i].name);
    for (size_t k = 0; k < n; k++) {
      at_strbuf words = {0};
      add_values(c[i].usage, shown[k].name, &words);
      at_strbuf_addf(b, "%s -l %s", head, shown[k].name + 2);
      if (words.len)
        at_strbuf_addf(b, " -x -a '%s'", words.ptr);
      else if (shown[k].value.len)
        at_strbuf_addz(b, " -r");
      at_strbuf_addc(b, '\n');
      b->failed |= words.failed;
      at_strbuf_free(&words);
    }
    at_strbuf words = {0};
    add_subcommands(&c[i], &words);
    if (words.len) at_strbuf_addf(b, "%s -a '%s'\n", head, words.ptr);
    b->failed |= words.failed;
    at_strbuf_free(&words);
  }
}

// INVALID_ARGUMENT: a shell that it does not know.
at_status at_cli_completion(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*write)(const at_cli_command *, size_t, at_strbuf *);
  } shells[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};
  AT_TRY(at_cli_no_more_options(argc, argv, "completion"));
  size_t i = 0, count;
  const at_cli_command *c = at_cli_commands(&count);
  while (argc == 2 && i < AT_LEN(shells) && strcmp(shells[i].name, argv[1]))
    i++;
  if (argc != 2 || i == AT_LEN(shells))
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "which shell?\nhint: bash, zsh or fish");
  at_strbuf b = {0};
  shells[i].write(c, count, &b);
  at_status st = at_strbuf_status(&b);
  if (at_ok(st)) fputs(b.ptr, stdout);
  at_strbuf_free(&b);
  return st;
}

// The table of commands, and what they share: options, files, errors. A command
// is a row here and a function of its own file.
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/nearest.h"
#include "cli/cli.h"
#include "compile/compile.h"

static const at_cli_command commands[] = {
    {"run", "run a Python program on Atoll, or an MLIR program by itself",
     "atoll run train.py [arguments...]\n"
     "    runs the Python program with TPU_LIBRARY_PATH set to this Atoll:\n"
     "    by $PYTHON, the active environment's Python, or python3\n"
     "atoll run [options] program.mlir|program.mlirbc|program.hlo|program.pb "
     "[inputs.npz]\n"
     "    compiles and runs the program; arguments are the arrays of "
     "inputs.npz in\n"
     "    the order of the file, or zeros\n"
     "  --out=FILE.npz   write the results\n"
     "  --repeat=N       run N times and print the median time\n"
     "  --json           print shapes, types and times as JSON\n",
     at_cli_run},
    {"check", "run a program under all checks and report what they find",
     "atoll check [options] program.py|program.mlir|program.mlirbc|program.hlo "
     "[arguments...]\n"
     "    runs the program as `atoll run` does, under every check of "
     "ATOLL_CHECK, and tells\n"
     "    what the runtime found, also where the program catches the "
     "exception. Exit status:\n"
     "    0 clean, 1 findings, 2 wrong usage, 3 the program failed for another "
     "reason\n"
     "  --json           the findings as JSON; the program's output goes to "
     "stderr\n"
     "  --sarif=FILE     as SARIF 2.1.0, for code scanning\n"
     "  --junit=FILE     as JUnit's XML\n"
     "  --html=DIR       a page per Pallas kernel: findings, timeline, memory, "
     "advice\n"
     "  --interpret      also compare each kernel with JAX's interpret mode\n"
     "  --strict         warnings of the runtime count as findings\n",
     at_cli_check},
    {"debug", "run a program and stop inside its Pallas kernels",
     "atoll debug [options] program.py [arguments...]\n"
     "    a prompt (help lists its commands; docs/debug.md): break, watch, "
     "run, "
     "continue,\n"
     "    step, next, where, print, info, list. The program stops where a "
     "check "
     "fails, too.\n"
     "    Exit status: 0, 1 a check or the program failed, 2 wrong usage, 3 a "
     "command did\n"
     "  --command=FILE   commands from a file (-: standard input), or -x FILE; "
     "then the\n"
     "                   prompt, where this is a terminal\n"
     "  --eval=COMMAND   a command to begin with; several in their order\n"
     "  --batch          end behind these commands\n"
     "  --check=CHECKS   whose failures stop it: words of ATOLL_CHECK (all)\n",
     at_cli_debug},
    {"dump",
     "print a program at any stage of its compilation, or a reference table",
     "atoll dump [--stage=STAGE] "
     "program.mlir|program.mlirbc|program.hlo|program.pb\n"
     "  --stage=mlir       as it came in\n"
     "  --stage=hlo        after import\n"
     "  --stage=optimized  after every pass (default)\n"
     "  --stage=steps      what runs, in order, and where values live\n"
     "  --stage=nest       loops and branches that are one kernel each\n"
     "  --stage=llvm|asm   generated code\n"
     "  --stage=stablehlo  of one device, before fusion\n"
     "  --stage=xla        as clients show it: an HloModuleProtoWithConfig\n"
     "atoll dump --counts PROGRAM...\n"
     "    what compiling each takes, a line of JSON each: visits of walks over "
     "it, LLVM\n"
     "    instructions (quick: of kernels that are compiled quickly) and "
     "modules, bytes of\n"
     "    arenas, and blocks of code run where the build counts them "
     "(AT_COUNT_BLOCKS)\n"
     "atoll dump --mosaic [--target=CHIP] [--devices=N] [--locations] FILE\n"
     "    the Pallas kernels of a program, or one kernel's body; with a "
     "target, what\n"
     "    the TPU compiler would refuse; --check prints one line of JSON per "
     "kernel\n"
     "  --timing           cycles by unit, bubbles and VMEM instead; --json: "
     "one line of\n"
     "                     JSON per kernel, its verdict included; "
     "--trace=FILE\n"
     "                     writes the grid as a timeline for Perfetto; "
     "--bounds=N[,M]\n"
     "                     says what the bounds of its grid are that come as "
     "operands;\n"
     "                     --zeros takes what is read of memory as 0 and such "
     "bounds as 40,\n"
     "                     as the TPU compiler's own estimate does;\n"
     "                     --lines adds bundles and registers of each source "
     "line and\n"
     "                     the map of VMEM\n"
     "  --plan             what is decided before its code is written; "
     "--passes=PASS,...\n"
     "                     by these only: uses, costs, sinks, choices, memory, "
     "pages, sums,\n"
     "                     rows\n"
     "atoll dump --ops-doc | --import-doc | --hlo-doc | --flags-doc | "
     "--mosaic-doc\n",
     at_cli_dump},
    {"estimate",
     "say what a program would take on a machine: time, memory, overlap",
     "atoll estimate [options] "
     "program.mlir|program.mlirbc|program.hlo|program.pb\n"
     "  --target=T        v6e (default), v5p:2x2x4, 2*v5e:4x4, H100:8, host, "
     "...\n"
     "  --compare=T|FILE  another target, or another version of the program\n"
     "  --rows=N          kernels listed (30; 0: all)\n"
     "  --json            everything as JSON\n"
     "  --html=FILE       a page for people\n"
     "  --trace=FILE      the timeline for Perfetto\n"
     "  --xplane=FILE     the timeline for XProf\n"
     "  --counts          also cost_analysis() and the ops that a profile "
     "lists, with FLOPs\n"
     "                    and bytes\n"
     "  --costs=FILE      a previous run's trace (JSON): its steps take what "
     "they took\n"
     "  --interp=seed|xla|atoll   between measured points (atoll)\n"
     "  --partitions=N    devices that the program is cut for, where it does "
     "not say\n"
     "  --lookups=N,...|FILE   ids of a sample in embedding lookups, and how "
     "many differ:\n"
     "                    16,zipf=1.05; 16,unique=0.4; JSON by stack "
     "(docs/embeddings.md)\n",
     at_cli_estimate},
    {"plan",
     "search how to cut a training step over many chips: mesh, sharding rules, "
     "remat",
     "atoll plan [options] model.py[:FUNCTION]\n"
     "    model.py's plan(), or FUNCTION(), returns an atoll.Plan "
     "(docs/plan.md). Prints the\n"
     "    frontier of step time and memory, why, and the JAX code to paste\n"
     "  --target=T        v5p (default), v6e, ..., for so many chips; or a "
     "slice: v5p:4x4x8\n"
     "  --chips=C         256, or 16,64, or 16..512 (powers of two)\n"
     "  --prices=FILE     JSON: chip -> US dollars of a chip and hour\n"
     "  --budget=S        seconds for the search (150)\n"
     "  --memory-share=S  of a chip's memory that may be used (0.95)\n"
     "  --json            everything as JSON\n",
     at_cli_plan},
    {"tune", "rank block shapes of a Pallas kernel without a chip",
     "atoll tune FILE.py[:NAME] [--target=CHIP] [--param=NAME=V1,V2,...]... "
     "[options]\n"
     "    NAME (tune) is an atoll.Tunable, a function that returns one, or a "
     "function of\n"
     "    the parameters that returns a kernel and its arguments "
     "(docs/tune.md)\n"
     "  --target=CHIP    v4, v5e (default), v5p, v6e, 7x\n"
     "  --param=SPACE    values of one parameter: bm=128,256,512\n"
     "  --top=N          variants listed (10; 0: all)\n"
     "  --refused=N      refused variants listed (5; 0: all)\n"
     "  --json           everything as JSON\n"
     "  --quiet          no progress\n",
     at_cli_tune},
    {"profile",
     "say where a program's data lies on a machine of tiles, and what that "
     "takes",
     "atoll profile --tiles [options] "
     "program.mlir|program.mlirbc|program.hlo|program.pb\n"
     "    cycles by step and phase, memory by tile, what moves, advice\n"
     "  --target=T           the machine (mk2)\n"
     "  --mapping=planned|linear   homes by the planner (default), or all "
     "linear\n"
     "  --html=FILE          a page with pictures\n"
     "  --json               everything as JSON\n"
     "  --tile=N             what lies on that tile: address, bytes, life, "
     "category, name\n"
     "  --run=ARGS.npz [--out=RESULTS.npz]   also run it, values and all, tile "
     "by tile\n"
     "  --lenient            report programs that do not fit, too\n"
     "atoll profile --tiles --exchange [--target=T]\n"
     "    patterns of exchange: cycles as planned, closed form, lower bound\n",
     at_cli_profile},
    {"cost", "ask the cost model: collectives, products, tables, machines",
     "atoll cost lookup --target=H100:8 [--interp=seed|xla|atoll] "
     "[--table=FILE] QUESTION\n"
     "    QUESTION: gemm TYPE b m n k, or OP TYPE BYTES [GROUPSxDEVICES], "
     "where OP is\n"
     "    all-reduce, all-gather, reduce-scatter, all-to-all or "
     "collective-permute\n"
     "atoll cost evaluate [--table=FILE] [--points=FILE] [MACHINE...]\n"
     "    errors of every mode on points that are left out of the tables; FILE "
     "gets, by\n"
     "    tabs, experiment, mode, machine and the seconds given and predicted\n"
     "atoll cost convert [--gemm] [--clock-ghz=S] IN OUT\n"
     "    a table from XLA's text proto to Atoll's form or back (by OUT's "
     "name: .pbtxt)\n"
     "atoll cost collect [--out=FILE] [--only=gemm|collectives] [--seconds=S] "
     "[--memory-mib=S]\n"
     "    [--domain=N] [--cpu-time]  measures this machine; goes on where an "
     "interrupted run\n"
     "    stopped; medians of elapsed time, or mean CPU time where others use "
     "the machine too;\n"
     "    groups inside hosts of N devices (8), of whole hosts and of parts of "
     "hosts\n"
     "atoll cost schedule --target=T [--memory=BYTES] [--costs=FILE] "
     "[--trace=FILE] PROGRAM\n"
     "    what hiding the program's collectives behind its other work would "
     "gain;\n"
     "    the trace opens in Perfetto\n"
     "atoll cost machines [NAME]\n"
     "    what is known of a machine, and who says so\n",
     at_cli_cost},
    {"config", "list the knobs: what holds now, and what they take",
     "atoll config [--json]\n"
     "    the environment's variables that Atoll reads (docs/config.md)\n",
     at_cli_config},
    {"cache", "say what the disk cache of compiled programs holds, or clear it",
     "atoll cache [stats] [--json]   its folder, programs, bytes and limit\n"
     "atoll cache path               its folder\n"
     "atoll cache clear              removes all programs\n",
     at_cli_cache},
    {"pod", "many chips of several hosts under one controller",
     "atoll pod up [--hosts=COUNT] [--target=T] [--listen=HOST:PORT] "
     "[--log-dir=DIR] [--json]\n"
     "             [-- COMMAND...]\n"
     "    a pod of this machine: COUNT processes with an equal share of the "
     "chips of "
     "T each\n"
     "    (v6e, v5p:2x2x4, 2*v5e:4x4, ...; ATOLL_TARGET), and their "
     "controller. "
     "Says where\n"
     "    it is (ATOLL_POD=HOST:PORT) and runs until it is interrupted; or "
     "runs "
     "COMMAND\n"
     "    on it and ends with that. Hosts that end are started again\n"
     "  --log-dir=DIR   hosts write to DIR/host-N.log, not to stderr\n"
     "  --max-hosts=M   T is the chips of M hosts: the others may come later, "
     "by\n"
     "                  `atoll host`\n"
     "atoll pod up --wait-hosts=N [--target=T] [--listen=HOST:PORT] "
     "[-- COMMAND...]\n"
     "    the controller alone: you start N times `atoll host` (by hand, "
     "Slurm)\n"
     "atoll pod up --simulate [--hosts=COUNT] [--target=T] [--cores=CORES]\n"
     "             [--charges=FILE] [--latency-us=N] [--bandwidth=FACTOR]\n"
     "             [--dispatch=parallel|sequential] [-- COMMAND...]\n"
     "    hosts that run nothing and answer after the time that Atoll "
     "predicts, in\n"
     "    virtual time (docs/pod-simulation.md)\n"
     "  --cores=CORES   all: each process has one of its own; this: they share "
     "this\n"
     "                  machine's; or a number\n"
     "  --charges=FILE  what messages take (bench/pod_simulate.py "
     "--calibrate)\n"
     "  --latency-us=N  between processes; --bandwidth=F: F times the "
     "target's\n"
     "atoll pod up --ray [--hosts=COUNT] [--target=T] [--address=A] [--cpus=S] "
     "[-- COMMAND...]\n"
     "    hosts are processes on the nodes of a Ray cluster (docs/pod.md)\n"
     "  --address=A   the cluster's (auto)\n"
     "  --cpus=S      that Ray keeps for each host (1)\n"
     "atoll pod status [--pod=HOST:PORT] [--json]\n"
     "    hosts and clients of a pod (ATOLL_POD)\n"
     "    (its chips with queues and memory, who has how much, the last "
     "programs)\n"
     "atoll pod top [--pod=HOST:PORT] [--every=S] [--json]   the same, every "
     "second;\n"
     "    on a terminal one screen: q or Ctrl-C ends it\n"
     "atoll pod page [--pod=HOST:PORT] [--out=FILE] [--seconds=S]\n"
     "    the same as a page (pod.html), with what ran in these S seconds (1) "
     "as a "
     "timeline\n"
     "atoll pod trace [--pod=HOST:PORT] [--out=FILE] [--seconds=S | -- "
     "COMMAND...]\n"
     "    what clients, the controller and hosts do meanwhile, for "
     "https://ui.perfetto.dev\n"
     "  --out=FILE    trace.json; compressed, if it ends with .gz\n"
     "  --seconds=S   for how long (1); or while COMMAND runs, with ATOLL_POD "
     "set\n"
     "atoll pod drain HOST [--pod=HOST:PORT] [--force] [--no-wait] "
     "[--timeout=S]\n"
     "    nothing new is placed on that host; once it holds no arrays it ends. "
     "Says who\n"
     "    holds how much meanwhile\n"
     "  --force       it ends when the launches of now are done; its arrays "
     "are "
     "lost\n"
     "  --no-wait     does not wait for the end\n"
     "  --timeout=S   how long it waits (for ever); the host goes on draining\n"
     "atoll pod undrain HOST [--pod=HOST:PORT]   (or drain HOST --undo) takes "
     "it "
     "back\n"
     "atoll pod objects [--pod=HOST:PORT] [--delete=NAME]\n"
     "    named objects, which outlive who made them (docs/pod.md)\n"
     "atoll pod logs --log-dir=DIR [--place=N] [--lines=N]   the hosts' last "
     "lines\n"
     "atoll pod down [--pod=HOST:PORT]   ends it\n",
     at_cli_pod},
    {"host", "be a host of a pod: `atoll pod up` starts them by itself",
     "atoll host [--controller=HOST:PORT] [--listen=HOST:PORT] "
     "[--pod=HOST:PORT]\n"
     "           [--place=N]\n"
     "    takes part in the pod of a controller (ATOLL_POD) until that ends\n"
     "  --listen=A   where clients find it (127.0.0.1:0)\n"
     "  --pod=A      where other hosts do (127.0.0.1:0)\n"
     "  --place=N    which host it is, from 0 (any that is free)\n"
     "  --simulate   not here: simulated hosts are their controller's (atoll "
     "pod "
     "up)\n",
     at_cli_host},
    {"doctor", "say what this machine offers and what that means for Atoll",
     "atoll doctor [--json | --measure [--cpu-time]]\n"
     "  --measure  measures this host and writes its description, for "
     "--target=host;\n"
     "             shortest runs, or mean CPU time where others use the "
     "machine too\n",
     at_cli_doctor},
    {"completion", "print a shell's completion script: bash, zsh or fish",
     "atoll completion bash   in ~/.bashrc: eval \"$(atoll completion bash)\"\n"
     "atoll completion zsh    into a file _atoll of a folder in $fpath\n"
     "atoll completion fish   into ~/.config/fish/completions/atoll.fish\n",
     at_cli_completion},
    {"man", "print the manual pages, or write them",
     "atoll man [COMMAND]       the page of the command, as troff (`| man -l "
     "-`)\n"
     "atoll man --out=FOLDER    writes atoll.1 and atoll-COMMAND.1\n",
     at_cli_man},
    {"version", "say the version, and what a bug report should have",
     "atoll version [--json]    also `atoll --version`\n"
     "    version, build, target, CPU level, threads, and the knobs that are "
     "set\n",
     at_cli_version},
};

const at_cli_command *at_cli_commands(size_t *count) {
  *count = AT_LEN(commands);
  return commands;
}

// All commands; the exit status that suits where it is printed: asked for, or
// after a mistake.
static int help(FILE *to) {
  const char *bold = at_cli_style_of(to, AT_STYLE_BOLD),
             *plain = at_cli_style_of(to, AT_STYLE_PLAIN);
  fprintf(to,
          "Atoll %s: JAX programs for TPUs on this machine\n\nusage: atoll "
          "COMMAND [arguments]\n\n",
          AT_VERSION);
  for (size_t i = 0; i < AT_LEN(commands); i++)
    fprintf(to, "  %s%-10s%s %s\n", bold, commands[i].name, plain,
            commands[i].summary);
  fprintf(
      to,
      "\n`atoll COMMAND --help` says more. Knobs are environment variables: "
      "`atoll dump --flags-doc`.\n");
  return to == stdout ? 0 : 2;
}

// Looks up to "--". What follows a valued name is its value, whatever it looks
// like; where nothing follows *out_value is NULL.
bool at_cli_option(int *argc, char **argv, const char *name,
                   const char **out_value) {
  size_t n = strlen(name);
  bool valued = name[n - 1] == '=';
  if (valued) n--;
  for (int i = 1; i < *argc; i++) {
    if (strcmp(argv[i], "--") == 0) break;
    if (strncmp(argv[i], name, n) != 0) continue;
    int taken = 1;
    const char *value = NULL;
    if (argv[i][n] == '=' && valued)
      value = argv[i] + n + 1;
    else if (argv[i][n] != 0)
      continue;
    else if (valued && i + 1 < *argc)
      value = argv[i + 1], taken = 2;
    if (out_value) *out_value = value;
    memmove(argv + i, argv + i + taken,
            (size_t)(*argc - i - taken) * sizeof *argv);
    *argc -= taken;
    argv[*argc] = NULL;
    return true;
  }
  return false;
}

// A lone "-" is a file's name.
at_status at_cli_no_more_options(int argc, char **argv, const char *name) {
  for (int i = 1; i < argc; i++)
    if (argv[i][0] == '-' && argv[i][1])
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "unknown option %s\nhint: atoll %s --help", argv[i], name);
  return AT_OK;
}

// The buffer's own failure is returned before the file is touched.
at_status at_cli_write_file(const char *path, const at_strbuf *b) {
  AT_TRY(at_strbuf_status(b));
  FILE *f = fopen(path, "wb");
  if (!f)
    return AT_FAIL(AT_NOT_FOUND, "cannot write %s: %s", path, strerror(errno));
  bool bad = fwrite(b->ptr, 1, b->len, f) != b->len;
  bad |= fclose(f) != 0;
  return bad ? AT_FAIL(AT_DATA_LOSS, "cannot write %s", path) : AT_OK;
}

// Grows the buffer as bytes come, so pipes can be read. An empty file may leave
// a buffer all the same.
at_status at_cli_read_file(const char *path, at_bytes *out) {
  FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
  if (!f)
    return AT_FAIL(AT_NOT_FOUND, "cannot open %s: %s", path, strerror(errno));
  uint8_t *p = NULL;
  size_t len = 0, cap = 0;
  for (;;) {
    if (len == cap) {
      size_t room = cap ? cap * 2 : 65536;
      uint8_t *more = realloc(p, room);
      if (!more) break;
      p = more;
      cap = room;
    }
    size_t got = fread(p + len, 1, cap - len, f);
    if (!got) break;
    len += got;
  }
  // Before fclose, which may change it.
  int why = ferror(f) ? errno : ENOMEM;
  bool bad = ferror(f) || len == cap;  // no room for another byte
  if (f != stdin) fclose(f);
  if (bad)
    return free(p),
           AT_FAIL(AT_DATA_LOSS, "cannot read %s: %s", path, strerror(why));
  *out = (at_bytes){p, len};
  return AT_OK;
}

// By the link that the kernel keeps, so it holds wherever the program was
// started from.
at_status at_cli_own_folder(char *out, size_t size) {
  ssize_t n = readlink("/proc/self/exe", out, size - 1);
  if (n <= 0)
    return AT_FAIL(AT_NOT_FOUND, "cannot tell where this program lies");
  out[n] = 0;
  char *slash = strrchr(out, '/');
  if (slash) *slash = 0;
  return AT_OK;
}

// Prints the error; hints are set apart. Exit status 2 is for wrong usage.
static int report(const char *name, at_status st) {
  if (at_ok(st)) return 0;
  const char *plain = at_cli_style_of(stderr, AT_STYLE_PLAIN);
  const char *text = at_status_message(st), *hint = strstr(text, "\nhint: ");
  size_t len = hint ? (size_t)(hint - text) : strlen(text);
  fprintf(stderr, "%satoll %s: %s%s: %.*s%s%s%s\n",
          at_cli_style_of(stderr, AT_STYLE_ERROR), name,
          at_code_name(at_status_code(st)), plain, (int)len, text,
          hint ? at_cli_style_of(stderr, AT_STYLE_HINT) : "", hint ? hint : "",
          hint ? plain : "");
  return at_code_take(st) == AT_INVALID_ARGUMENT ? 2 : 1;
}

static bool is_python(const char *name) {
  size_t n = strlen(name);
  return n > 3 && !strcmp(name + n - 3, ".py");
}

// Knobs and options are checked for all commands alike.
static at_status run_command(const at_cli_command *c, int argc, char **argv) {
  // A bad knob is no reason to withhold what a report of it needs.
  if (c->run != at_cli_version && c->run != at_cli_man &&
      c->run != at_cli_completion)
    AT_TRY(at_knobs_check());
  // What follows a Python program that is run is its own.
  bool runs =
      c->run == at_cli_run || c->run == at_cli_check || c->run == at_cli_debug;
  int own = 1;
  while (own < argc && !(runs && is_python(argv[own]))) own++;
  for (int i = 1; i < own && c->run == at_cli_debug; i++)
    if (!strcmp(argv[i], "-x")) argv[i] = "--command";
  AT_TRY(at_cli_check_options(c->name, c->usage, own, argv));
  return c->run(argc, argv);
}

// Finds the command; one that is not known is answered with the nearest.
static int named(int argc, char **argv) {
  const char *names[AT_LEN(commands)], *near;
  if (argc < 2) return help(stderr);
  if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") ||
      !strcmp(argv[1], "help"))
    return help(stdout);
  if (!strcmp(argv[1], "--version")) argv[1] = "version";
  for (size_t i = 0; i < AT_LEN(commands); i++) {
    names[i] = commands[i].name;
    if (strcmp(argv[1], commands[i].name)) continue;
    if (argc > 2 && (!strcmp(argv[2], "--help") || !strcmp(argv[2], "-h")))
      return fputs(commands[i].usage, stdout) < 0;
    return report(argv[1], run_command(&commands[i], argc - 1, argv + 1));
  }
  // Nothing has that name.
  near = at_nearest(at_str_of(argv[1]), names, AT_LEN(names));
  fprintf(stderr, "atoll: no command '%s'%s%s%s\n", argv[1],
          near ? ": did you mean " : "", near ? near : "", near ? "?" : "");
  return help(stderr);
}

// Output that could not be written makes the command fail: a full disk must not
// look like success.
int at_cli_main(int argc, char **argv) {
  int status = named(argc, argv);
  errno = 0;
  bool bad = fflush(stdout) != 0;
  if (!bad && !ferror(stdout)) return status;
  fprintf(stderr, "atoll: cannot write to stdout%s%s\n", errno ? ": " : "",
          errno ? strerror(errno) : "");
  return status ? status : 1;
}

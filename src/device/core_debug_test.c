// A debugger at the other end of a socket: kernels stop where it says, and
// answer; requests that are wrong get an error.
#include "device/core_test_util.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/config.h"
#include "device/core_debug.h"

static char g_folder[] = "/tmp/atoll_debug_XXXXXX";
static char g_path[64];
static int g_listener;

// ---- The other end
typedef struct script {
  const char *const *say;  // NULL at the end: hangs up
  char heard[1 << 16];
  pthread_t thread;
} script;

// A line into the script's text; data behind it is skipped.
static bool hear(int fd, script *s) {
  size_t n = strlen(s->heard), begin = n;
  while (n + 1 < sizeof s->heard && recv(fd, s->heard + n, 1, 0) == 1) {
    if (s->heard[n++] != '\n') continue;
    s->heard[n] = 0;
    const char *bytes = strstr(s->heard + begin, "\"shape\"");
    bytes = bytes ? strstr(bytes, "\"bytes\":") : NULL;
    long skip = bytes ? strtol(bytes + 8, NULL, 10) : 0;
    for (char c; skip > 0; skip--) assert_int_equal(recv(fd, &c, 1, 0), 1);
    return true;
  }
  return false;
}

// Thread of the other end: takes one connection, sends each line of the script
// and reads one answer to each.
static void *talk(void *arg) {
  script *s = arg;
  int fd = accept(g_listener, NULL, NULL);
  hear(fd, s);
  for (const char *const *p = s->say; *p; p++) {
    if (send(fd, *p, strlen(*p), MSG_NOSIGNAL) < 0) break;
    if (send(fd, "\n", 1, MSG_NOSIGNAL) < 0) break;
    if (!hear(fd, s)) break;
  }
  close(fd);
  return NULL;
}

// A socket in a folder of the test's own.
static int make_listener(void **state) {
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  if (!mkdtemp(g_folder)) return -1;
  snprintf(at.sun_path, sizeof at.sun_path, "%s/socket", g_folder);
  snprintf(g_path, sizeof g_path, "%s", at.sun_path);
  g_listener = socket(AF_UNIX, SOCK_STREAM, 0);
  if (bind(g_listener, (struct sockaddr *)&at, sizeof at)) return -1;
  return listen(g_listener, 4);
}

static int drop_listener(void **state) {
  close(g_listener);
  unlink(g_path);
  return rmdir(g_folder);
}

// The configuration names the folder; the next launch connects.
static void begin(script *s, const char *const *say) {
  *s = (script){.say = say};
  g_debugger.asked = 0;  // another debugger of the same folder
  assert_int_equal(at_code_take(at_config_set(AT_CONFIG_DEBUG, g_folder)), 0);
  assert_int_equal(pthread_create(&s->thread, NULL, talk, s), 0);
}

// Also ends a script that still waits for a line.
static void end(script *s) {
  if (g_debugger.fd >= 0) shutdown(g_debugger.fd, SHUT_RDWR);
  pthread_join(s->thread, NULL);
  assert_int_equal(at_code_take(at_config_set(AT_CONFIG_DEBUG, NULL)), 0);
}

// How often `what` stands in the text.
static uint32_t count(const char *text, const char *what) {
  uint32_t n = 0;
  while ((text = strstr(text, what))) n++, text++;
  return n;
}

// ---- Kernels
// Three turns of a loop, each of which passes a line.
static void fill_body(at_core *core, const int32_t *grid,
                      const at_core_ref *refs) {
  for (int turn = 0; turn < 3; turn++) {
    at_core_debug_turn(core, 0, 0, turn);
    at_core_debug_line(core, 0, 1);
    *cell(&refs[0], 0, turn) = (float)(10 * grid[0] + turn);
  }
}

// A grid of two steps; out: room for four floats.
static kernel filling(float *out) {
  kernel k = {.body = fill_body};
  k.record.grid_rank = 1;
  k.record.grid[0] = 2;
  k.record.num_refs = 1;
  k.refs[0] = whole(AT_CORE_OUT, AT_CORE_VMEM, AT_F32, 4);
  k.refs[0].rank = 2;
  k.refs[0].dims[0] = k.refs[0].block[0] = 1;
  k.refs[0].dims[1] = k.refs[0].block[1] = 4;
  k.bufs[0] = out;
  return k;
}

// Requests as a client writes them.
#define GO(mode) "{\"do\": \"go\", \"mode\": \"" mode "\"}"
#define BREAKS(list) "{\"do\": \"breaks\", \"breaks\": [" list "]}"
#define READ(more) "{\"do\": \"read\", \"core\": 1, \"ref\": 0" more "}"

// Breaks at a line, steps, reads refs as a whole, with strides and outside;
// seven requests are wrong.
static void lines_steps_and_values(void **state) {
  static const char *const say[] = {
      BREAKS("{\"kind\": \"line\", \"id\": 4, \"file\": \"kern.py\", \"line\": "
             "5, \"last\": 9}"),
      GO("run"),
      "{\"do\": \"state\"}",
      GO("run"),
      BREAKS(""),
      GO("step"),
      READ(""),
      READ(", \"start\": [0, 3], \"count\": [1, 2], \"step\": [1, -3]"),
      READ(", \"start\": [0, 3], \"count\": [1, 2], \"step\": [1, 1]"),
      READ(", \"start\": [0, 3], \"count\": [1, 2147483647], \"step\": [1, 0]"),
      READ(", \"start\": [4], \"count\": [1], \"step\": [1]"),
      "{\"do\": \"read\", \"core\": 9, \"ref\": 0}",
      "{\"do\": \"read\", \"core\": 1, \"ref\": 7}",
      "no JSON",
      "{\"do\": \"dance\"}",
      GO("grid"),
      GO("run"),
      NULL};
  static script s;
  float out[4] = {0};
  kernel k = filling(out);
  begin(&s, say);
  uint32_t first = g_debugger.ids;
  g_debugger.ids = 0;  // the script names cores
  runs(&k);
  g_debugger.ids += first;
  end(&s);
  assert_int_equal(count(s.heard, "\"event\":\"hello\""), 1);
  assert_int_equal(count(s.heard, "\"why\":\"break\",\"id\":4"), 2);
  assert_int_equal(count(s.heard, "\"why\":\"step\""), 2);
  assert_non_null(
      strstr(s.heard, "\"loops\":[{\"place\":{\"file\":\"kern.py\""));
  assert_non_null(
      strstr(s.heard, "\"dtype\":\"f32\",\"shape\":[1,4],\"bytes\":16"));
  assert_non_null(
      strstr(s.heard, "\"dtype\":\"f32\",\"shape\":[1,2],\"bytes\":8"));
  assert_int_equal(count(s.heard, "\"error\""), 7);
  assert_true(out[0] == 10 && out[2] == 12);
}

// The kernel goes on to its end without it.
static void a_debugger_that_hangs_up(void **state) {
  static const char *const say[] = {BREAKS("{\"kind\": \"kernel\", \"id\": 1}"),
                                    GO("run"), NULL};
  static script s;
  float out[4] = {0};
  kernel k = filling(out);
  begin(&s, say);
  runs(&k);
  end(&s);
  assert_int_equal(count(s.heard, "\"why\":\"break\""), 1);
  assert_true(out[2] == 12 && g_debugger.fd < 0);
}

// A debugger that was asked for and is not there is an error, not a silent run.
static void none_listens(void **state) {
  kernel k = filling((float[4]){0});
  assert_int_equal(at_code_take(at_config_set(AT_CONFIG_DEBUG, "/tmp")), 0);
  g_debugger.asked = 0;
  fails(&k, AT_NOT_FOUND, "no debugger listens at /tmp/socket");
  assert_int_equal(at_code_take(at_config_set(AT_CONFIG_DEBUG, NULL)), 0);
}

// ---- Failures, and cores that wait
// A wait that nobody satisfies.
static void wait_body(at_core *core, const int32_t *grid,
                      const at_core_ref *refs) {
  at_core_debug_line(core, 0, 0);
  at_core_sem_wait(core, refs[1].base, 2, 0);
}

// Stopped at the failure, the core still tells what it waits for.
static void a_failure_stops(void **state) {
  static const char *const say[] = {GO("run"), "{\"do\": \"state\"}", GO("run"),
                                    NULL};
  static script s;
  float out[4] = {0};
  kernel k = filling(out);
  k.body = wait_body;
  k.record.num_refs = 2;
  k.refs[1] = whole(AT_CORE_SCRATCH, AT_CORE_SEM, AT_INVALID, 1);
  begin(&s, say);
  fails(&k, AT_FAILED_PRECONDITION, "deadlock");
  end(&s);
  assert_int_equal(count(s.heard, "\"why\":\"failure\""), 1);
  assert_non_null(strstr(s.heard,
                         "\"waits\":{\"name\":\"semaphore 0 of scratch 0 "
                         "(argument 1)\",\"ref\":1,\"index\":0"));
}

// With the pool and the workers that kernels run on.
static int make_threads(void **state) {
  if (make_listener(state)) return -1;
  return at_code_take(at_pool_create(2, &g_pool)) ||
         at_code_take(at_sched_create(2, 256 << 10, &g_sched));
}

static int drop_threads(void **state) {
  at_sched_destroy(g_sched);
  at_pool_destroy(g_pool);
  return drop_listener(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lines_steps_and_values),
      cmocka_unit_test(a_debugger_that_hangs_up),
      cmocka_unit_test(none_listens),
      cmocka_unit_test(a_failure_stops),
  };
  return cmocka_run_group_tests(tests, make_threads, drop_threads);
}

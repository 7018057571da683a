// What makes a pod, before anybody meets: client, environment and store that
// fit to each other or do not, and what a store may hold that no process has
// put.
#include "pod/join.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "pod/tls.h"

// A store with one address of another and one token. The address may be "near":
// of this machine.
typedef struct shelf {
  const char *address, *token;
  int puts;
  char put[256];
} shelf;

// at_pod_store.put: counts, and keeps the address that this process gives.
static at_status put(void *arg, const char *key, at_str value) {
  shelf *s = arg;
  s->puts++;
  if (strstr(key, "/address/"))
    snprintf(s->put, sizeof s->put, "%.*s", (int)value.len, value.ptr);
  return AT_OK;
}

// at_pod_store.get: what the case says, without waiting.
static at_status get(void *arg, const char *key, uint64_t timeout_ms,
                     at_strbuf *out) {
  shelf *s = arg;
  const char *v = strstr(key, "/token/")      ? s->token
                  : strstr(key, "/address/1") ? s->put
                                              : s->address;
  if (!v) return AT_FAIL(AT_DEADLINE_EXCEEDED, "no such key");
  if (!strcmp(v, "near")) {  // where this process is
    at_strbuf_addf(out, "127.0.0.1:1%s", strchr(s->put, ' '));
    return AT_OK;
  }
  at_strbuf_addz(out, v);
  return AT_OK;
}

#define TOKEN "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

// Joining fails with that code and a text with `why` in it.
static void assert_refused(const at_pod_said *said, at_code code,
                           const char *why) {
  at_pod_hosts *h;
  at_status st = at_pod_join(said, &h);
  if (!st.err || !strstr(at_status_message(st), why))
    fail_msg("not `%s`: %s", why, st.err ? at_status_message(st) : "joined");
  assert_int_equal(at_code_take(st), code);
  assert_null(h);
}

// What comes from a store is checked before it is used: addresses, tokens, and
// where they are. The own address has been put by then.
static void stores_are_not_believed(void **state) {
  static const struct {
    const char *address, *token, *why;
    at_code code;
  } cases[] = {
      {NULL, TOKEN, "process 0 has not given its address",
       AT_DEADLINE_EXCEEDED},
      {"127.0.0.1:1 x", NULL, "process 0 has not given its token",
       AT_DEADLINE_EXCEEDED},
      {"127.0.0.1:1 x", "", "not a token: 0 bytes", AT_INVALID_ARGUMENT},
      {"127.0.0.1:1 x", "xyz", "not a token: 3 bytes", AT_INVALID_ARGUMENT},
      {"", TOKEN, "gave the address ``", AT_INVALID_ARGUMENT},
      {"127.0.0.1:1", TOKEN, "gave the address", AT_INVALID_ARGUMENT},
      {"a:1,b:2 x", TOKEN, "gave the address", AT_INVALID_ARGUMENT},
      {"nothing x", TOKEN, "is not host:port", AT_INVALID_ARGUMENT},
      {"127.0.0.1:1 elsewhere", TOKEN, "ATOLL_POD_ADDRESS",
       AT_FAILED_PRECONDITION},
  };
  for (size_t i = 0; i < AT_LEN(cases); i++) {
    shelf s = {.address = cases[i].address, .token = cases[i].token};
    const at_pod_store store = {&s, put, get};
    const at_pod_said said = {.count = 2, .me = 1, .store = &store, .job = "j"};
    assert_refused(&said, cases[i].code, cases[i].why);
    assert_int_equal(s.puts, 1);
    assert_non_null(strstr(s.put, "127.0.0.1:"));
  }
}

// Client and environment may both speak of the job: what they say must be the
// same, and enough.
static void words_have_to_agree(void **state) {
  shelf s = {0};
  const at_pod_store store = {&s, put, get};
  at_pod_said said = {.job = "j", .user_token = "/proc/none/pod.token"};
  at_pod_hosts *h;
  // Nobody speaks of others.
  assert_int_equal(at_code_take(at_pod_join(&said, &h)), 0);
  assert_null(h);
  said.store = &store;
  assert_int_equal(at_code_take(at_pod_join(&said, &h)), 0);
  assert_null(h);
  said.count = 1;
  assert_int_equal(at_code_take(at_pod_join(&said, &h)), 0);
  assert_null(h);
  said.count = 2;
  said.store = NULL;
  assert_refused(&said, AT_FAILED_PRECONDITION, "no key-value store");
  said.store = &store;
  setenv("TPU_PROCESS_ADDRESSES", "localhost:1", 1);
  assert_refused(&said, AT_FAILED_PRECONDITION, "in a pod of its own");
  setenv("TPU_PROCESS_ADDRESSES", "localhost:1,localhost:2,localhost:3", 1);
  assert_refused(&said, AT_FAILED_PRECONDITION, "in another pod");
  setenv("TPU_PROCESS_ADDRESSES", "localhost:1,localhost:2", 1);
  setenv("CLOUD_TPU_TASK_ID", "1", 1);
  assert_refused(&said, AT_FAILED_PRECONDITION, "by CLOUD_TPU_TASK_ID");
  // Alone with the environment: the token is the user's.
  said.count = 0;
  said.store = NULL;
  assert_refused(&said, AT_FAILED_PRECONDITION, "ATOLL_POD_TOKEN_FILE");
  assert_int_equal(s.puts, 0);
}

// ---- Networks: what an address beyond this machine needs, in a process of its
// own each, as libssl is loaded once.
typedef struct network {
  const char *library, *network, *wire, *address, *why;
  at_code code;
} network;

// Ends the process: 0, if joining says what the case wants.
static void join_over(const network *n) {
  shelf s = {.address = n->address, .token = TOKEN};
  const at_pod_store store = {&s, put, get};
  const at_pod_said said = {.count = 2, .me = 1, .store = &store, .job = "j"};
  if (n->library) at_tls_library = n->library;
  if (n->network) setenv("ATOLL_POD_NETWORK", n->network, 1);
  if (n->wire) setenv("ATOLL_POD_WIRE", n->wire, 1);
  at_pod_hosts *h;
  at_status st = at_pod_join(&said, &h);
  const char *text = st.err ? at_status_message(st) : "joined";
  bool good = strstr(text, n->why) && at_status_code(st) == n->code;
  if (!good) fprintf(stderr, "not `%s`: %s\n", n->why, text);
  at_status_free(st);
  _exit(!good);
}

// Beyond this machine messages are encrypted, or ATOLL_POD_NETWORK says that
// the network is trusted; nothing is sent in clear for want of a library.
static void networks_are_private_or_trusted(void **state) {
  static const char kFar[] = "192.0.2.1:1 elsewhere", kNear[] = "near";
  static const char kAbsent[] = "libssl-absent.so";
  static const network cases[] = {
      {kAbsent, NULL, NULL, kFar,
       "the address of process 0 is not of this machine, but what processes "
       "say to each other cannot be encrypted: libssl-absent.so: ",
       AT_FAILED_PRECONDITION},
      {kAbsent, "tls", NULL, kFar, "or set ATOLL_POD_NETWORK=trusted",
       AT_FAILED_PRECONDITION},
      {kAbsent, "trusted", NULL, kFar, "did not come", AT_DEADLINE_EXCEEDED},
      {NULL, NULL, NULL, kFar, "did not come", AT_DEADLINE_EXCEEDED},
      // On this machine nothing is encrypted unless it is asked for.
      {kAbsent, NULL, "tcp", kNear, "did not come", AT_DEADLINE_EXCEEDED},
      {kAbsent, "tls", NULL, kNear, "did not come", AT_DEADLINE_EXCEEDED},
      {kAbsent, "tls", "tcp", kNear, "ATOLL_POD_NETWORK is tls, but what",
       AT_FAILED_PRECONDITION},
      {NULL, "tls", "tcp", kNear, "did not come", AT_DEADLINE_EXCEEDED},
  };
  for (size_t i = 0; i < AT_LEN(cases); i++) {
    int status;
    pid_t pid = fork();
    if (!pid) join_over(&cases[i]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status) fail_msg("case %zu", i);
  }
}

// Of the variables that cases set.
static int clear(void **state) {
  unsetenv("TPU_PROCESS_ADDRESSES");
  unsetenv("CLOUD_TPU_TASK_ID");
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(stores_are_not_believed, clear, clear),
      cmocka_unit_test_setup_teardown(words_have_to_agree, clear, clear),
      cmocka_unit_test(networks_are_private_or_trusted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

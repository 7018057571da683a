// The disk cache: what lies in its folder never harms, and the folder keeps its
// limit. cmocka.h needs the others first.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
// clang-format on
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/config.h"
#include "compile/cache.h"
#include "compile/compile.h"

enum { BYTES = 3000 };
static char g_folder[64], g_path[256];
static uint8_t g_block[BYTES];
static const at_bytes g_executable = {g_block, BYTES};

static at_cache_key key_of(uint64_t n) {
  at_cache_key k = {.program = at_digest_start(n),
                    .places = at_digest_start(1)};
  at_digest_add_u64(&k.program, n);
  return k;
}
static const char *path_of(const at_cache_key *k) {
  snprintf(g_path, sizeof g_path, "%s/%016llx%016llx.exe", g_folder,
           (unsigned long long)k->program.h[0],
           (unsigned long long)k->program.h[1]);
  return g_path;
}

static int setup(void **state) {
  strcpy(g_folder, "/tmp/atoll-cache-test-XXXXXX");
  for (size_t i = 0; i < BYTES; i++) g_block[i] = (uint8_t)(i * 7 + i / 256);
  if (!mkdtemp(g_folder)) return 1;
  return at_code_take(at_config_set(AT_CONFIG_CACHE_DIR, g_folder));
}
static int teardown(void **state) {
  char command[128];
  chmod(g_folder, 0700);
  snprintf(command, sizeof command, "rm -rf %s", g_folder);
  at_status_free(at_config_set(AT_CONFIG_CACHE_DIR, NULL));
  at_status_free(at_config_set(AT_CONFIG_CACHE_LIMIT, NULL));
  return system(command);
}

// Is the entry there, and whole?
static bool has(const at_cache_key *k) {
  at_bytes x;
  if (!at_cache_get(k, &x)) return false;
  assert_int_equal(x.len, BYTES);
  assert_memory_equal(x.ptr, g_block, BYTES);
  assert_int_equal((uintptr_t)x.ptr % 64, 0);
  free((void *)x.ptr);
  return true;
}
static uint32_t num_files(const char *end) {
  DIR *d = opendir(g_folder);
  uint32_t n = 0;
  for (struct dirent *e; (e = readdir(d));) n += strstr(e->d_name, end) != NULL;
  closedir(d);
  return n;
}

static void an_entry_comes_back(void **state) {
  at_cache_key k = key_of(1), other = key_of(2), moved = k;
  assert_false(has(&k));
  at_cache_put(&k, false, g_executable);
  assert_true(has(&k));
  assert_false(has(&other));
  moved.places = at_digest_start(9);
  assert_false(has(&moved));
  at_cache_put(&k, true, g_executable);
  assert_true(has(&moved));
  assert_int_equal(num_files("."), 2 + 1);
}

// Any one bit, and any length but its own.
static void damage_is_not_there(void **state) {
  static uint8_t file[BYTES + 4096];
  at_cache_key k = key_of(1);
  at_bytes x;
  at_cache_put(&k, false, g_executable);
  int fd = open(path_of(&k), O_RDONLY);
  size_t n = (size_t)read(fd, file, sizeof file);
  close(fd);
  assert_true(at_cache_entry_read((at_bytes){file, n}, &k, &x));
  for (size_t bit = 0; bit < n * 8; bit++) {
    file[bit / 8] ^= (uint8_t)(1u << bit % 8);
    if (at_cache_entry_read((at_bytes){file, n}, &k, &x))
      fail_msg("bit %zu", bit);
    file[bit / 8] ^= (uint8_t)(1u << bit % 8);
  }
  for (size_t len = 0; len <= n + 64; len++)
    assert_int_equal(at_cache_entry_read((at_bytes){file, len}, &k, &x),
                     len == n);
}

// What may stand in an entry's place.
static void put_plain(const char *p) {
  close(open(p, O_WRONLY | O_CREAT, 0600));
}
static void put_fifo(const char *p) { assert_int_equal(mkfifo(p, 0600), 0); }
static void put_folder(const char *p) { assert_int_equal(mkdir(p, 0700), 0); }
static void put_full_folder(const char *p) {
  char inner[300];
  put_folder(p);
  snprintf(inner, sizeof inner, "%s/x", p);
  put_plain(inner);
}
static void put_link(const char *p) {
  char real[300];
  snprintf(real, sizeof real, "%s.real", p);
  assert_int_equal(rename(real, real), -1);
  put_plain(real);
  assert_int_equal(symlink(real, p), 0);
}
static void put_loop(const char *p) { assert_int_equal(symlink(p, p), 0); }
static void put_device(const char *p) {
  assert_int_equal(symlink("/dev/zero", p), 0);
}

static void what_is_no_entry_is_replaced(void **state) {
  void (*const puts[])(const char *) = {put_plain,       put_fifo, put_folder,
                                        put_full_folder, put_link, put_loop,
                                        put_device};
  for (size_t i = 0; i < AT_LEN(puts); i++) {
    at_cache_key k = key_of(100 + i);
    puts[i](path_of(&k));
    alarm(20);
    assert_false(has(&k));
    at_cache_put(&k, false, g_executable);
    if (!has(&k)) fail_msg("case %zu", i);
    alarm(0);
  }
}

// An entry that others may write, or that another user owns, is not this
// user's.
static void others_files_are_not_read(void **state) {
  at_cache_key k = key_of(1);
  at_cache_put(&k, false, g_executable);
  assert_int_equal(chmod(path_of(&k), 0602), 0);
  assert_false(has(&k));
  assert_int_equal(chmod(g_path, 0600), 0);
  assert_true(has(&k));
  if (geteuid() == 0) {
    assert_int_equal(chown(g_path, 1234, (gid_t)-1), 0);
    assert_false(has(&k));
    at_cache_put(&k, false, g_executable);
    assert_true(has(&k));
    assert_int_equal(chown(g_folder, 1234, (gid_t)-1), 0);
    assert_false(has(&k));
    assert_int_equal(chown(g_folder, 0, (gid_t)-1), 0);
  }
  assert_int_equal(chmod(g_folder, 0777), 0);
  assert_false(has(&k));
  assert_int_equal(chmod(g_folder, 0700), 0);
  assert_true(has(&k));
}

static void the_least_used_go(void **state) {
  static uint8_t block[100000];
  at_bytes x = {block, sizeof block}, got;
  assert_true(at_ok(at_config_set(AT_CONFIG_CACHE_LIMIT, "1M")));
  at_cache_key used = key_of(1);
  at_cache_put(&used, false, x);
  for (uint64_t i = 2; i < 60; i++) {
    struct timespec old[2] = {{(time_t)(1000 * i), 0}, {(time_t)(1000 * i), 0}};
    at_cache_key k = key_of(i);
    at_cache_put(&k, false, x);
    utimensat(AT_FDCWD, path_of(&k), old, 0);
    assert_true(at_cache_get(&used, &got));
    free((void *)got.ptr);
    at_cache_state s;
    assert_true(at_ok(at_cache_look(&s)));
    assert_true(s.bytes <= 1 << 20 && s.entries >= AT_MIN(i, (uint64_t)5));
  }
  static uint8_t large[2 << 20];  // is not kept, and costs nobody a place
  at_cache_key k = key_of(1000);
  at_cache_put(&k, false, (at_bytes){large, sizeof large});
  assert_false(at_cache_get(&k, &got));
  assert_true(at_cache_get(&used, &got));
  free((void *)got.ptr);
  uint64_t entries;
  assert_true(at_ok(at_cache_clear(&entries)));
  assert_true(entries >= 5);
  assert_int_equal(num_files(".exe"), 0);
}

// Runs `body` in a process of its own; its status.
static int in_child(void (*body)(void)) {
  pid_t p = fork();
  if (!p) {
    alarm(30);
    body();
    _exit(0);
  }
  int status;
  waitpid(p, &status, 0);
  return status;
}
static void write_past_limit(void) {
  struct rlimit r = {1000, 1000};
  setrlimit(RLIMIT_FSIZE, &r);
  at_cache_key k = key_of(1);
  at_cache_put(&k, false, g_executable);
  if (has(&k)) _exit(1);
}
static void write_without_files(void) {
  struct rlimit r = {3, 3};
  setrlimit(RLIMIT_NOFILE, &r);
  at_cache_key k = key_of(1);
  at_cache_put(&k, false, g_executable);
  if (has(&k)) _exit(1);
}
static void write_nowhere(void) {
  if (!at_ok(at_config_set(AT_CONFIG_CACHE_DIR, "/proc/nowhere"))) _exit(2);
  at_cache_key k = key_of(1);
  at_cache_put(&k, false, g_executable);
  if (has(&k)) _exit(1);
}
static void write_full_disk(void) {
  // A file in the folder's place stands for a disk that takes nothing.
  if (!at_ok(at_config_set(AT_CONFIG_CACHE_DIR, "/dev/full"))) _exit(2);
  at_cache_key k = key_of(1);
  at_cache_put(&k, false, g_executable);
  if (has(&k)) _exit(1);
}

static void a_disk_that_refuses_costs_nothing(void **state) {
  void (*const bodies[])(void) = {write_past_limit, write_without_files,
                                  write_nowhere, write_full_disk};
  for (size_t i = 0; i < AT_LEN(bodies); i++)
    if (in_child(bodies[i])) fail_msg("case %zu", i);
  assert_int_equal(num_files(".tmp"), 0);
}

// Writers are killed at any moment; readers see the entry whole or not at all.
static void killed_writers_leave_nothing(void **state) {
  at_cache_key k = key_of(1);
  for (int i = 0; i < 20; i++) {
    pid_t p = fork();
    if (!p)
      for (;;) at_cache_put(&k, false, g_executable);
    usleep((useconds_t)(i * 331 % 4000));
    kill(p, SIGKILL);
    has(&k);
    waitpid(p, NULL, 0);
  }
  // What is left goes at the first write of a process.
  at_cache_key other = key_of(2);
  pid_t p = fork();
  if (!p) {
    assert_true(at_ok(at_config_set(AT_CONFIG_CACHE_LIMIT, "2M")));
    for (int i = 0; i < 2; i++) at_cache_put(&other, false, g_executable);
    _exit(0);
  }
  waitpid(p, NULL, 0);
  assert_int_equal(num_files(".tmp"), 0);
  assert_true(has(&other));
}

static void writers_share_a_folder(void **state) {
  at_cache_key k = key_of(1);
  pid_t p[4];
  for (int i = 0; i < 4; i++)
    if (!(p[i] = fork())) {
      for (int n = 0; n < 50; n++) at_cache_put(&k, false, g_executable);
      _exit(0);
    }
  for (int n = 0; n < 200; n++) has(&k);
  for (int i = 0; i < 4; i++) waitpid(p[i], NULL, 0);
  assert_true(has(&k));
  assert_int_equal(num_files(".tmp"), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void) {
  const struct CMUnitTest tests[] = {TEST(an_entry_comes_back),
                                     TEST(damage_is_not_there),
                                     TEST(what_is_no_entry_is_replaced),
                                     TEST(others_files_are_not_read),
                                     TEST(the_least_used_go),
                                     TEST(a_disk_that_refuses_costs_nothing),
                                     TEST(killed_writers_leave_nothing),
                                     TEST(writers_share_a_folder)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

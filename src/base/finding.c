#include "base/finding.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/config.h"
#include "base/json.h"

// True the first time that it is asked, for the first AT_FINDING_MOST.
static bool is_new(uint64_t h) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static uint64_t written[AT_FINDING_MOST];
  static size_t count;
  pthread_mutex_lock(&lock);
  bool is = count < AT_FINDING_MOST;
  for (size_t i = 0; i < count; i++) is &= written[i] != h;
  if (is) written[count++] = h;
  pthread_mutex_unlock(&lock);
  return is;
}

// One write, so that lines of several processes do not mix. The file must be
// there: who asks for findings makes it.
static bool append(const char *path, const at_strbuf *line) {
  int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY);
  if (fd < 0) return false;
  bool good = write(fd, line->ptr, line->len) == (ssize_t)line->len;
  close(fd);
  return good;
}

// Nothing without ATOLL_FINDINGS, and nothing twice. That a line is lost is
// said once.
static void put(const char *level, const char *stage, const char *code,
                const char *message) {
  const char *path = at_config_text(AT_CONFIG_FINDINGS);
  if (!*path) return;
  size_t n = AT_MIN(strlen(message), (size_t)AT_FINDING_TEXT);
  uint64_t h = at_hash(AT_HASH_SEED, code, strlen(code));
  if (!is_new(at_hash(h, message, n))) return;
  at_strbuf b = {0};
  at_json_writer w = {&b, false};
  at_json_begin_object(&w);
  at_json_put_str(&w, "level", at_str_of(level));
  at_json_put_str(&w, "stage", at_str_of(stage));
  at_json_put_str(&w, "code", at_str_of(code));
  at_json_put_str(&w, "message", (at_str){message, n});
  at_json_end_object(&w);
  at_strbuf_addc(&b, '\n');
  static _Atomic bool told;
  bool lost = b.failed || !append(path, &b);
  at_strbuf_free(&b);
  if (lost && !atomic_exchange(&told, true))
    at_log(AT_LOG_ERROR, "a finding could not be written to %.200s", path);
}

// The code's name is what callers of PJRT see.
void at_finding_note(at_status st, const char *stage) {
  at_code code = at_status_code(st);
  if (code == AT_OK_CODE || code == AT_CANCELLED) return;
  put("error", stage, at_code_name(code), at_status_message(st));
}

void at_finding_log(at_log_level level, const char *text) {
  put(level == AT_LOG_ERROR ? "error" : "warning", "log", "", text);
}

// TLS between two ends of one process: who has the key meets, nobody else
// does; what is said is not seen on the way and is not changed on it; keys are
// renewed; the library is used as a guest of the process.
#include "pod/tls.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { kPipe = 8 << 20 };

// ---- Two ends and what is under way between them
// Bytes of one direction that were sent and not read yet. Tests change them on
// their way.
typedef struct pipe_way {
  uint8_t *bytes;  // [kPipe]
  size_t at, end;
  pthread_mutex_t lock;
} pipe_way;

// One end: what it reads is what the other has written.
typedef struct end {
  at_tls *tls;
  pipe_way *in, *out;
  at_tls_io io;
} end;

typedef struct pair {
  pipe_way ways[2];
  end ends[2];  // the caller's, the listener's
} pair;

// at_tls_io.read: never waits; 0: nothing is there.
static size_t pipe_read(void *arg, void *to, size_t n) {
  pipe_way *w = ((end *)arg)->in;
  pthread_mutex_lock(&w->lock);
  n = AT_MIN(n, w->end - w->at);
  memcpy(to, w->bytes + w->at, n);
  w->at += n;
  if (w->at == w->end) w->at = w->end = 0;
  pthread_mutex_unlock(&w->lock);
  return n;
}

// All or nothing: false where the way is full.
static bool pipe_write(void *arg, const void *p, size_t n) {
  pipe_way *w = ((end *)arg)->out;
  pthread_mutex_lock(&w->lock);
  bool good = n <= kPipe - w->end;
  if (good) memcpy(w->bytes + w->end, p, n);
  w->end += good ? n : 0;
  pthread_mutex_unlock(&w->lock);
  return good;
}

// Ends with these keys; calls NULL: the first one calls, as it should.
static void make_pair(pair *p, uint8_t caller, uint8_t listener,
                      bool calls[2]) {
  const uint8_t keys[2] = {caller, listener};
  memset(p, 0, sizeof *p);
  for (int i = 0; i < 2; i++) {
    uint8_t key[AT_TLS_KEY] = {keys[i], 1, 2, 3};
    end *e = &p->ends[i];
    p->ways[i].bytes = malloc(kPipe);
    pthread_mutex_init(&p->ways[i].lock, NULL);
    e->out = &p->ways[i];
    e->in = &p->ways[!i];
    e->io = (at_tls_io){e, pipe_read, pipe_write};
    at_status st = at_tls_create(key, calls ? calls[i] : !i, &e->tls);
    if (st.err) fail_msg("%s", at_status_message(st));
  }
}

// Ends may be at any stage.
static void free_pair(pair *p) {
  for (int i = 0; i < 2; i++) {
    at_tls_free(p->ends[i].tls);
    free(p->ways[i].bytes);
    pthread_mutex_destroy(&p->ways[i].lock);
  }
}

// Lets them shake hands; `change`: the byte of all that is said, from 0, that
// is changed on its way (SIZE_MAX: none).
static void shake(pair *p, size_t change, at_tls_state out[2]) {
  size_t said = 0;
  out[0] = out[1] = AT_TLS_READS;
  for (int turn = 0; turn < 8; turn++) {
    end *e = &p->ends[turn % 2];
    if (out[turn % 2] == AT_TLS_READS)
      out[turn % 2] = at_tls_shake(e->tls, &e->io);
    pipe_way *w = e->out;
    if (change >= said && change < said + w->end) w->bytes[change - said] ^= 4;
    said += w->end;
  }
}

// Two ends that have the same key and have shaken hands.
static void make_met(pair *p) {
  at_tls_state states[2];
  make_pair(p, 7, 7, NULL);
  shake(p, SIZE_MAX, states);
  for (int i = 0; i < 2; i++) {
    at_status st = at_tls_status(p->ends[i].tls);
    if (st.err) fail_msg("%d: %s", i, at_status_message(st));
    assert_int_equal(states[i], AT_TLS_MET);
  }
}

// One piece, which must go whole.
static bool say(end *e, const void *bytes, size_t n) {
  const struct iovec v = {(void *)bytes, n};
  return at_tls_write(e->tls, &e->io, &v, 1);
}

// All that there is, up to n.
static size_t hear(end *e, void *to, size_t n) {
  size_t have = 0;
  for (size_t got = 1; got && have < n; have += got)
    if (!at_tls_read(e->tls, &e->io, (uint8_t *)to + have, n - have, &got))
      break;
  return have;
}

// Bytes that show where they belong.
static void fill(uint8_t *p, size_t n) {
  for (size_t i = 0; i < n; i++) p[i] = (uint8_t)(i * 13 + (i >> 9));
}

// ---- Who meets
static void who_has_the_key_talks(void **state) {
  static const size_t kSizes[] = {
      1, 48, 4000, AT_TLS_RECORD - 1, 16384, 16385, 5 * 16384 + 3, 1 << 20};
  uint8_t *said = malloc(1 << 20), *heard = malloc(1 << 20);
  pair p;
  make_met(&p);
  fill(said, 1 << 20);
  for (size_t i = 0; i < 2 * AT_LEN(kSizes); i++) {
    const size_t n = kSizes[i / 2];
    end *from = &p.ends[i % 2], *to = &p.ends[!(i % 2)];
    // In parts: of which some share a record.
    const struct iovec v[4] = {{said, n / 5},
                               {said, 0},
                               {said + n / 5, n / 3},
                               {said + n / 5 + n / 3, n - n / 5 - n / 3}};
    assert_true(at_tls_write(from->tls, &from->io, v, 4));
    const size_t pieces = (n + AT_TLS_RECORD - 1) / AT_TLS_RECORD;
    assert_true(from->out->end <= n + pieces * AT_TLS_OVER);
    assert_int_equal(hear(to, heard, 1 << 20), n);
    assert_memory_equal(said, heard, n);
    assert_int_equal(at_code_take(at_tls_status(to->tls)), 0);
  }
  free_pair(&p);
  free(said);
  free(heard);
}

// Bytes come one at a time.
static size_t read_one(void *arg, void *to, size_t n) {
  return pipe_read(arg, to, AT_MIN(n, (size_t)1));
}

// A record is put together however it is cut.
static void bytes_may_come_one_by_one(void **state) {
  uint8_t said[3000], heard[3000];
  pair p;
  make_met(&p);
  fill(said, sizeof said);
  assert_true(say(&p.ends[0], said, sizeof said));
  p.ends[1].io.read = read_one;
  assert_int_equal(hear(&p.ends[1], heard, sizeof heard), sizeof heard);
  assert_memory_equal(said, heard, sizeof said);
  free_pair(&p);
}

// Another key, two that call, or two that listen.
static void nobody_else_meets(void **state) {
  static const struct {
    uint8_t caller, listener;
    bool calls[2];
  } cases[] = {
      {7, 8, {true, false}}, {7, 7, {true, true}}, {7, 7, {false, false}}};
  for (size_t i = 0; i < AT_LEN(cases); i++) {
    pair p;
    at_tls_state states[2];
    bool calls[2] = {cases[i].calls[0], cases[i].calls[1]};
    make_pair(&p, cases[i].caller, cases[i].listener, calls);
    shake(&p, SIZE_MAX, states);
    assert_int_not_equal(states[0], AT_TLS_MET);
    assert_int_not_equal(states[1], AT_TLS_MET);
    if (calls[0]) {
      at_status st = at_tls_status(p.ends[1].tls);
      assert_non_null(strstr(at_status_message(st), "the handshake failed: "));
      assert_int_equal(at_code_take(st), AT_DATA_LOSS);
    }
    free_pair(&p);
  }
}

// The caller may be through when its last bytes are changed: then who listens
// is not, and hears nothing of it.
static void a_changed_handshake_fails(void **state) {
  for (size_t at = 0; at < 700; at++) {
    pair p;
    at_tls_state states[2];
    uint8_t word[5];
    make_pair(&p, 7, 7, NULL);
    shake(&p, at, states);
    size_t heard = 0;
    if (states[0] == AT_TLS_MET && states[1] == AT_TLS_MET) {
      assert_true(say(&p.ends[0], "hello", 5));
      heard = hear(&p.ends[1], word, 5);
      // A byte that nobody signs: of a header's version.
      assert_true(!heard || !memcmp(word, "hello", 5));
    }
    free_pair(&p);
  }
}

// ---- What is on the way
static void words_do_not_show(void **state) {
  static const char kWord[] = "a word that nobody else may read";
  char all[1000 * sizeof kWord];
  pair p;
  make_met(&p);
  for (int i = 0; i < 1000; i++)
    memcpy(all + (size_t)i * sizeof kWord, kWord, sizeof kWord);
  assert_true(say(&p.ends[0], all, sizeof all));
  const pipe_way *w = p.ends[0].out;
  assert_true(w->end > sizeof all);
  assert_null(memmem(w->bytes, w->end, kWord, 8));
  free_pair(&p);
}

// The listener reads nothing of what is on the way, says that it cannot be
// read, and neither reads nor writes again. Frees the pair.
static void must_break(pair *p, const char *what) {
  uint8_t heard[8];
  end *to = &p->ends[1];
  assert_int_equal(hear(to, heard, sizeof heard), 0);
  at_status st = at_tls_status(to->tls);
  if (!st.err) fail_msg("%s: not noticed", what);
  assert_non_null(strstr(at_status_message(st), "what came cannot be read"));
  assert_int_equal(at_code_take(st), AT_DATA_LOSS);
  // It stays so, in both directions.
  assert_false(say(to, "more", 4));
  assert_int_equal(hear(to, heard, sizeof heard), 0);
  free_pair(p);
}

// Every byte of a record; a record again, left out, or sent back.
static void what_was_touched_breaks_it(void **state) {
  pair p;
  make_met(&p);
  for (size_t at = 0; at < 26; at++) {  // each byte of a record
    free_pair(&p);
    make_met(&p);
    assert_true(say(&p.ends[0], "word", 4));
    assert_int_equal(p.ways[0].end, 4 + AT_TLS_OVER);
    p.ways[0].bytes[at] ^= 1;
    uint8_t heard[8];
    // In the length: it waits for more, of which it checks nothing then.
    if (at == 3 || at == 4)
      assert_true(say(&p.ends[0], heard, 8) && hear(&p.ends[1], heard, 8) < 8);
    else
      assert_int_equal(hear(&p.ends[1], heard, 8), 0);
  }
  free_pair(&p);
  make_met(&p);  // repeated
  assert_true(say(&p.ends[0], "word", 4));
  memcpy(p.ways[0].bytes + 26, p.ways[0].bytes, 26);
  p.ways[0].end = 52;
  uint8_t heard[4];
  assert_int_equal(hear(&p.ends[1], heard, 4), 4);
  must_break(&p, "repeated");
  make_met(&p);  // left out
  assert_true(say(&p.ends[0], "word", 4) && say(&p.ends[0], "next", 4));
  memmove(p.ways[0].bytes, p.ways[0].bytes + 26, 26);
  p.ways[0].end = 26;
  must_break(&p, "left out");
  make_met(&p);  // said back to who said it
  assert_true(say(&p.ends[1], "word", 4));
  memcpy(p.ways[0].bytes, p.ways[1].bytes, 26);
  p.ways[0].end = 26;
  must_break(&p, "reflected");
}

// A record that was sent in part cannot be taken back, so the end is of no use.
static void what_cannot_go_breaks_it(void **state) {
  pair p;
  make_met(&p);
  uint8_t *much = calloc(1, kPipe);
  assert_false(say(&p.ends[0], much, kPipe));
  at_status st = at_tls_status(p.ends[0].tls);
  assert_non_null(strstr(at_status_message(st), "cannot be sent"));
  assert_int_equal(at_code_take(st), AT_DATA_LOSS);
  free(much);
  free_pair(&p);
}

// ---- Keys
// More records than one key may encrypt, each way.
static void keys_are_renewed(void **state) {
  enum { kMore = AT_TLS_OF_A_KEY + 1000, kBatch = 10000 };
  pair p;
  make_met(&p);
  uint8_t *heard = malloc(kBatch);
  for (int way = 0; way < 2; way++) {
    size_t over = 0;
    for (uint32_t i = 0; i < kMore; i += kBatch) {
      end *from = &p.ends[way], *to = &p.ends[!way];
      for (uint32_t k = 0; k < kBatch; k++)
        if (!say(from, "x", 1)) fail();
      over += from->out->end - kBatch * (1 + AT_TLS_OVER);
      assert_int_equal(hear(to, heard, kBatch), kBatch);
    }
    assert_true(over && over <= AT_TLS_NEW_KEY);  // one word of it
  }
  free(heard);
  free_pair(&p);
}

// ---- Threads: each end reads and writes at once
typedef struct talker {
  end *e;
  _Atomic bool *stop;
  bool good;
} talker;
enum { kTalk = 3000, kWord = 5000 };

// Sends words, as long as there is room for them.
static void *talk(void *arg) {
  talker *t = arg;
  uint8_t word[kWord];
  fill(word, sizeof word);
  t->good = true;
  for (int i = 0; i < kTalk && t->good; i++) {
    while (!atomic_load(t->stop)) {  // the way has room
      pthread_mutex_lock(&t->e->out->lock);
      bool room = t->e->out->end < kPipe / 2;
      pthread_mutex_unlock(&t->e->out->lock);
      if (room) break;
      sched_yield();
    }
    t->good = say(t->e, word, sizeof word);
  }
  return NULL;
}

// Reads words and compares them; stops the others on an error.
static void *listen_to(void *arg) {
  talker *t = arg;
  uint8_t word[kWord], want[kWord];
  fill(want, sizeof want);
  t->good = true;
  for (int i = 0; i < kTalk && t->good; i++) {
    for (size_t have = 0; have < kWord && t->good && !atomic_load(t->stop);) {
      size_t got = 0;
      t->good =
          at_tls_read(t->e->tls, &t->e->io, word + have, kWord - have, &got);
      have += got;
      if (!got) sched_yield();
    }
    t->good = t->good && !memcmp(word, want, kWord);
  }
  if (!t->good) atomic_store(t->stop, true);
  return NULL;
}

// Four threads, two at each end.
static void ends_read_and_write_at_once(void **state) {
  pair p;
  _Atomic bool stop = false;
  pthread_t threads[4];
  talker who[4];
  make_met(&p);
  for (int i = 0; i < 4; i++) {
    who[i] = (talker){&p.ends[i % 2], &stop, false};
    pthread_create(&threads[i], NULL, i < 2 ? talk : listen_to, &who[i]);
  }
  for (int i = 0; i < 4; i++) {
    pthread_join(threads[i], NULL);
    assert_true(who[i].good);
  }
  free_pair(&p);
}

// ---- The library
static void in_a_process_of_its_own(int (*fn)(void)) {
  int status;
  pid_t pid = fork();
  if (!pid) _exit(fn());
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
}

// UNAVAILABLE, with the library's name; nothing crashes.
static int does_without_library(void) {
  static const uint8_t key[AT_TLS_KEY];
  at_tls *t = NULL;
  at_tls_library = "libssl-absent.so.3";
  at_status st = at_tls_ready();
  bool good = strstr(at_status_message(st), "libssl-absent.so.3");
  if (at_code_take(st) != AT_UNAVAILABLE || !good) return 1;
  return at_code_take(at_tls_create(key, true, &t)) == AT_UNAVAILABLE && !t ? 0
                                                                            : 2;
}

// Something that is a library, but not this one.
static int does_without_functions(void) {
  at_tls_library = "libm.so.6";
  at_status st = at_tls_ready();
  bool good = strstr(at_status_message(st), "libm.so.6: it has no BIO_");
  return at_code_take(st) == AT_UNAVAILABLE && good ? 0 : 1;
}

// Neither a configuration of OpenSSL's that is broken nor one that asks for
// something concerns it.
static int reads_no_configuration(void) {
  char path[] = "/tmp/atoll_openssl_XXXXXX";
  int fd = mkstemp(path);
  static const char kText[] =
      "openssl_conf = x\n[x]\nproviders = y\nssl_conf = z\n[y]\n[z]\nbroken";
  if (fd < 0 || write(fd, kText, sizeof kText) < 0) return 1;
  close(fd);
  setenv("OPENSSL_CONF", path, 1);
  int bad = (int)at_code_take(at_tls_ready());
  unlink(path);
  return bad;
}

// Each in a process of its own, as the library is looked for once.
static void the_library_is_a_guest(void **state) {
  in_a_process_of_its_own(does_without_library);
  in_a_process_of_its_own(does_without_functions);
  in_a_process_of_its_own(reads_no_configuration);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_library_is_a_guest),  // first: nothing is loaded yet
      cmocka_unit_test(who_has_the_key_talks),
      cmocka_unit_test(bytes_may_come_one_by_one),
      cmocka_unit_test(nobody_else_meets),
      cmocka_unit_test(a_changed_handshake_fails),
      cmocka_unit_test(words_do_not_show),
      cmocka_unit_test(what_was_touched_breaks_it),
      cmocka_unit_test(what_cannot_go_breaks_it),
      cmocka_unit_test(keys_are_renewed),
      cmocka_unit_test(ends_read_and_write_at_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// Frames: what is well-formed comes back whole however the bytes are cut; what
// is not is refused before memory is taken.
#include "pod/wire_frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { kMax = 1000, kFrame = 100, kEpoch = 3 };

static const uint8_t kKey[AT_SEAL_KEY] = {1, 2, 3};

// What was put, how far it has been read, and what was made of it.
typedef struct stream {
  uint8_t bytes[8192];
  size_t len, at, piece;
  uint32_t places, messages, abandoned, notices;
  uint64_t received;
  bool no_place;
  bool sealed, may_be_bare;
  bool bare;  // what is put from here on has no seals
  at_seal seal;
} stream;

// At most `piece` bytes at a time.
static size_t read_piece(void *arg, void *to, size_t n) {
  stream *s = arg;
  n = AT_MIN(AT_MIN(n, s->piece), s->len - s->at);
  memcpy(to, s->bytes + s->at, n);
  s->at += n;
  return n;
}
// Asked for memory only within the limits.
static void *place(void *arg, const at_wire_head *head) {
  stream *s = arg;
  assert_true(head->bytes > 0 && head->bytes <= kMax);
  s->places++;
  return s->no_place ? NULL : malloc(head->bytes);
}
// A whole message; its bytes count on from its tag.
static void message(void *arg, const at_wire_head *head, void *body) {
  stream *s = arg;
  for (uint64_t i = 0; i < head->bytes; i++)
    assert_int_equal(((uint8_t *)body)[i], (uint8_t)(head->tag + i));
  s->messages++;
  s->received += head->bytes;
  free(body);
}
static void abandon(void *arg, const at_wire_head *head, void *body) {
  (void)head;
  ((stream *)arg)->abandoned++;
  free(body);
}
static void notice(void *arg, const at_frame *f) {
  (void)f;
  ((stream *)arg)->notices++;
}

// In a sealed stream a seal follows each header and each body.
static void put_bytes(stream *s, const void *p, size_t n) {
  memcpy(s->bytes + s->len, p, n);
  s->len += n;
  if (!s->sealed || s->bare) return;
  const at_bytes b = {p, n};
  at_seal_next(&s->seal, &b, 1, s->bytes + s->len);
  s->len += AT_SEAL_BYTES;
}

// The frame with its checksums, then its body.
static void put(stream *s, at_frame f, const uint8_t *body) {
  if (f.length && !f.body_sum && !s->sealed)
    f.body_sum = at_frame_sum(body, f.length);
  at_frame_seal(&f);
  put_bytes(s, &f, sizeof f);
  if (f.length) put_bytes(s, body, f.length);
}

// The header of a part of a message of kind 1.
static at_frame data(uint32_t sequence, uint64_t tag, uint64_t bytes,
                     uint32_t length) {
  return (at_frame){.epoch = kEpoch,
                    .sequence = sequence,
                    .type = AT_FRAME_DATA,
                    .kind = 1,
                    .tag = tag,
                    .bytes = bytes,
                    .length = length};
}

// In parts of up to kFrame bytes; returns the next sequence number.
static uint32_t put_message(stream *s, uint32_t sequence, uint64_t tag,
                            uint64_t bytes) {
  uint8_t body[kMax];
  for (size_t i = 0; i < bytes; i++) body[i] = (uint8_t)(tag + i);
  uint64_t at = 0;
  do {
    uint32_t n = (uint32_t)AT_MIN(bytes - at, (uint64_t)kFrame);
    put(s, data(sequence++, tag, bytes, n), body + at);
    at += n;
  } while (at < bytes);
  return sequence;
}

// Reads to the end or to the first error; what is open then is abandoned.
static at_status read_all(stream *s) {
  at_seal seal = at_seal_of(kKey);
  at_frames f = {.limits = {kMax, kFrame, kEpoch, AT_WIRE_BULK, !s->sealed,
                            s->sealed ? &seal : NULL, s->may_be_bare}};
  const at_frames_io io = {s, read_piece, place, message, abandon, notice};
  at_status st = AT_OK;
  while (!st.err && s->at < s->len) {
    bool read;
    st = at_frames_step(&f, &io, &read);
  }
  at_frames_end(&f, &io);
  return st;
}

// However many bytes come at a time: whole messages, one that is abandoned,
// notices between them.
static void frames_come_in_any_pieces(void **state) {
  (void)state;
  for (size_t piece = 1; piece < 600; piece += 7) {
    static stream s;
    s = (stream){.piece = 1 + piece / 2, .sealed = piece % 2};
    if (s.sealed) s.seal = at_seal_of(kKey);
    uint32_t n = put_message(&s, 0, 5, 0);
    n = put_message(&s, n, 6, 1);
    n = put_message(&s, n, 7, kFrame);
    n = put_message(&s, n, 8, kMax);
    put(&s, (at_frame){.epoch = kEpoch, .sequence = n++, .type = AT_FRAME_BEAT},
        NULL);
    uint8_t some[10] = {0};
    put(&s, data(n++, 9, 20, 10), some);
    put(&s,
        (at_frame){.epoch = kEpoch, .sequence = n++, .type = AT_FRAME_ABANDON},
        NULL);
    n = put_message(&s, n, 10, 30);
    put(&s, (at_frame){.epoch = kEpoch, .sequence = n, .type = AT_FRAME_LEAVE},
        NULL);
    assert_int_equal(at_code_take(read_all(&s)), AT_OK_CODE);
    assert_int_equal(s.messages, 5);
    assert_int_equal(s.received, 1 + kFrame + kMax + 30);
    assert_int_equal(s.abandoned, 1);
    assert_int_equal(s.notices, 2);
  }
}

// One wrong field each: DATA_LOSS with a reason, and no memory is taken for
// what is refused.
static void malformed_frames_are_refused(void **state) {
  (void)state;
  enum { kPart = 10 };
  const at_frame good = data(0, 5, 20, kPart);
  static const struct {
    const char *text;
    size_t offset;  // of the field
    uint64_t value;
    size_t bytes;
    bool second;  // behind a good first part
    uint32_t places;
  } cases[] = {
#define FIELD(name, value) \
  offsetof(at_frame, name), value, sizeof((at_frame *)0)->name
      {"another epoch", FIELD(epoch, 2), false, 0},
      {"out of sequence", FIELD(sequence, 1), false, 0},
      {"a body where none is", FIELD(type, AT_FRAME_BEAT), false, 0},
      {"larger than messages may be", FIELD(bytes, kMax + 1), false, 0},
      {"larger than messages may be", FIELD(bytes, UINT64_MAX), false, 0},
      {"too long", FIELD(length, kFrame + 1), false, 0},
      {"too long", FIELD(length, UINT32_MAX), false, 0},
      {"past the message", FIELD(bytes, kPart - 1), false, 0},
      {"unknown field", FIELD(zero, 1), false, 0},
      {"checksum of the body", FIELD(body_sum, 77), false, 1},
      {"not of the message", FIELD(bytes, 21), true, 1},
      {"not of the message", FIELD(tag, 6), true, 1},
      {"not of the message", FIELD(kind, 2), true, 1},
      {"past the message", FIELD(length, kPart + 1), true, 1},
  };
  for (size_t i = 0; i < AT_LEN(cases); i++) {
    uint8_t body[200] = {5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
    static stream s;
    s = (stream){.piece = 1000};
    at_frame bad = good;
    if (cases[i].second) {
      put(&s, good, body);
      bad.sequence = 1;
    }
    memcpy((uint8_t *)&bad + cases[i].offset, &cases[i].value, cases[i].bytes);
    uint32_t length = bad.length;
    bad.length = AT_MIN(length, (uint32_t)sizeof body);
    size_t at = s.len;
    put(&s, bad, body);
    bad.length = length;
    if (!bad.body_sum) bad.body_sum = at_frame_sum(body, AT_MIN(length, 200u));
    at_frame_seal(&bad);
    memcpy(s.bytes + at, &bad, sizeof bad);
    at_status st = read_all(&s);
    if (!st.err || !strstr(at_status_message(st), cases[i].text))
      fail_msg("case %zu: '%s' for '%s'", i, at_status_message(st),
               cases[i].text);
    assert_int_equal(at_code_take(st), AT_DATA_LOSS);
    assert_int_equal(s.places, cases[i].places);
    assert_int_equal(s.abandoned, cases[i].places);
    assert_int_equal(s.messages, 0);
  }
}

// Of the header and of the body behind it.
static void every_bit_of_a_header_counts(void **state) {
  (void)state;
  for (size_t bit = 0; bit < 8 * (sizeof(at_frame) + 10); bit++) {
    static stream s;
    s = (stream){.piece = 1000};
    put_message(&s, 0, 5, 10);
    s.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    assert_int_equal(at_code_take(read_all(&s)), AT_DATA_LOSS);
    assert_int_equal(s.messages, 0);
  }
}

// Whatever bit of a sealed stream is changed, and whichever of its frames is
// left out or comes twice: what was read before is all there is.
static void sealed_streams_are_as_they_were_sent(void **state) {
  (void)state;
  static stream s, bad;
  s = (stream){.piece = 1000, .sealed = true, .seal = at_seal_of(kKey)};
  uint32_t n = put_message(&s, 0, 5, 10);
  const size_t first = s.len;
  put_message(&s, n, 6, 20);
  for (size_t bit = 8 * first; bit < 8 * s.len; bit++) {
    bad = s;
    bad.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    assert_int_equal(at_code_take(read_all(&bad)), AT_DATA_LOSS);
    assert_int_equal(bad.messages, 1);
  }
  bad = s;
  memcpy(bad.bytes + first, s.bytes, first);  // the first one again
  bad.len = 2 * first;
  assert_int_equal(at_code_take(read_all(&bad)), AT_DATA_LOSS);
  bad = s;
  bad.at = first;  // without it
  assert_int_equal(at_code_take(read_all(&bad)), AT_DATA_LOSS);
  assert_int_equal(bad.messages, 0);
}

// Behind BARE there are no seals, where the receiver has allowed it; also in
// the middle of a message.
static void seals_end_where_both_agree(void **state) {
  (void)state;
  for (uint32_t within = 0; within < 2; within++) {
    for (uint32_t allowed = 0; allowed < 2; allowed++) {
      static stream s;
      s = (stream){.piece = 1000,
                   .sealed = true,
                   .may_be_bare = allowed,
                   .seal = at_seal_of(kKey)};
      uint8_t body[20];
      for (uint8_t i = 0; i < sizeof body; i++) body[i] = 6 + i;
      uint32_t n = put_message(&s, 0, 5, 10);
      if (within) put(&s, data(n++, 6, 20, 10), body);
      put(&s,
          (at_frame){.type = AT_FRAME_BARE, .epoch = kEpoch, .sequence = n++},
          NULL);
      s.bare = true;
      if (within) put(&s, data(n++, 6, 20, 10), body + 10);
      put_message(&s, n, 7, 30);
      assert_int_equal(at_code_take(read_all(&s)), allowed ? 0 : AT_DATA_LOSS);
      assert_int_equal(s.messages, allowed ? 2 + within : 1);
    }
  }
}

// RESOURCE_EXHAUSTED, and nothing to give back.
static void no_place_is_a_status(void **state) {
  (void)state;
  static stream s;
  s = (stream){.piece = 1000, .no_place = true};
  put_message(&s, 0, 5, 10);
  assert_int_equal(at_code_take(read_all(&s)), AT_RESOURCE_EXHAUSTED);
  assert_int_equal(s.abandoned, 0);
}

// Types that there are not, or not now.
static void frames_that_make_no_sense_are_refused(void **state) {
  (void)state;
  static const struct {
    at_frame f;
    bool open;
    const char *text;
  } cases[] = {{{.type = 0}, false, "unknown type"},
               {{.type = AT_FRAME_BARE + 1}, false, "unknown type"},
               {{.type = AT_FRAME_BARE}, false, "gives up seals"},
               {{.type = AT_FRAME_SOCKET, .kind = 2}, false, "unknown lane"},
               {{.type = AT_FRAME_WAIVE, .kind = 2}, false, "unknown lane"},
               {{.type = AT_FRAME_ABANDON}, false, "no message to abandon"},
               {{.type = AT_FRAME_LEAVE}, true, "leaves within a message"},
               {{.type = AT_FRAME_CREDIT, .kind = 2}, false, "unknown lane"},
               {{.type = AT_FRAME_DATA, .bytes = 5}, false, "empty part"},
               {{.type = AT_FRAME_DATA, .body_sum = 5}, false, "checksum"}};
  for (size_t i = 0; i < AT_LEN(cases); i++) {
    static stream s;
    s = (stream){.piece = 1000};
    uint8_t body[10] = {5};
    at_frame f = cases[i].f;
    f.epoch = kEpoch;
    if (cases[i].open) put(&s, data(f.sequence++, 5, 20, 10), body);
    put(&s, f, NULL);
    at_status st = read_all(&s);
    if (!st.err || !strstr(at_status_message(st), cases[i].text))
      fail_msg("case %zu: '%s'", i, at_status_message(st));
    assert_int_equal(at_code_take(st), AT_DATA_LOSS);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(frames_come_in_any_pieces),
      cmocka_unit_test(malformed_frames_are_refused),
      cmocka_unit_test(every_bit_of_a_header_counts),
      cmocka_unit_test(sealed_streams_are_as_they_were_sent),
      cmocka_unit_test(seals_end_where_both_agree),
      cmocka_unit_test(no_place_is_a_status),
      cmocka_unit_test(frames_that_make_no_sense_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

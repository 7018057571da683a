// Whatever the bytes of a stream: no crash, no memory past the limits, every
// body given back once, and headers that are accepted are what sealing them
// gives. First byte: 1: checksums of headers are put right on the way, 2:
// bodies carry checksums. Second byte: how many bytes come at a time.
#include <stdlib.h>

#include "pod/wire_frame.h"

enum { kMax = 4096, kFrame = 512 };

// The input as a stream, and where its headers are, so that their checksums can
// be put right.
typedef struct stream {
  const uint8_t *bytes;
  size_t len, at, piece;
  bool sealed;
  size_t head_at;  // where the next header begins
  at_frame head;   // as it is read
  uint32_t placed;
} stream;

// The header at head_at, put right if so asked.
static bool next_head(stream *s) {
  if (s->len - s->head_at < sizeof s->head) return false;
  memcpy(&s->head, s->bytes + s->head_at, sizeof s->head);
  if (s->sealed) at_frame_seal(&s->head);
  return true;
}

// Up to `piece` bytes, with the header as it was put right.
static size_t read_piece(void *arg, void *to, size_t n) {
  stream *s = arg;
  n = AT_MIN(AT_MIN(n, s->piece), s->len - s->at);
  while (s->at >= s->head_at + sizeof s->head) {
    s->head_at += sizeof s->head + AT_MIN(s->head.length, (uint32_t)kFrame);
    if (s->head_at > s->len || !next_head(s)) s->head_at = SIZE_MAX / 2;
  }
  for (size_t i = 0; i < n; i++, s->at++)
    ((uint8_t *)to)[i] = s->at >= s->head_at
                             ? ((uint8_t *)&s->head)[s->at - s->head_at]
                             : s->bytes[s->at];
  return n;
}

static size_t read_within(void *arg, void *to, size_t n) {
  stream *s = arg;  // a piece is of one header or of one body
  size_t head_end = s->head_at + sizeof s->head;
  if (s->at < s->head_at) n = AT_MIN(n, s->head_at - s->at);
  if (s->at >= s->head_at && s->at < head_end) n = AT_MIN(n, head_end - s->at);
  return read_piece(arg, to, n);
}

// Only sizes inside the limits may come here.
static void *place(void *arg, const at_wire_head *head) {
  if (!head->bytes || head->bytes > kMax) abort();
  ((stream *)arg)->placed++;
  return malloc(head->bytes);
}
// Also of messages that are abandoned: every body comes back once.
static void message(void *arg, const at_wire_head *head, void *body) {
  if (!head->bytes != !body) abort();
  ((stream *)arg)->placed -= body != NULL;
  free(body);
}
// A header that was accepted must be what sealing it gives.
static void notice(void *arg, const at_frame *f) {
  at_frame again = *f;
  at_frame_seal(&again);
  if (memcmp(&again, f, sizeof again) || f->length) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 2) return 0;
  stream s = {.bytes = data + 2,
              .len = size - 2,
              .piece = data[1] + 1u,
              .sealed = data[0] & 1};
  if (!next_head(&s)) s.head_at = SIZE_MAX / 2;
  at_frames f = {
      .limits = {kMax, kFrame, 1, AT_WIRE_BULK, data[0] & 2, NULL, true}};
  const at_frames_io io = {&s, read_within, place, message, message, notice};
  at_status st = AT_OK;
  while (!st.err && s.at < s.len) {
    bool read;
    uint32_t sequence = f.sequence;
    st = at_frames_step(&f, &io, &read);
    if (!st.err && read && f.sequence != sequence + 1) abort();
    if (f.open && f.got > f.head.bytes) abort();
  }
  at_status_free(st);
  at_frames_end(&f, &io);
  if (s.placed) abort();
  return 0;
}

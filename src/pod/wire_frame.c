#include "pod/wire_frame.h"

static_assert(sizeof(at_frame) == 48, "a header has no holes");

// ---- Checksums
// One step of a chain.
static inline uint64_t mix(uint64_t h, uint64_t w) {
  h = (h ^ w) * 0x9e3779b97f4a7c15ull;
  return h << 29 | h >> 35;
}

// Four chains over 32 bytes at a time, so that multiplications overlap. Each
// step is a bijection of its chain and of the word that it takes.
uint32_t at_frame_sum(const void *p, size_t bytes) {
  const uint8_t *at = p;
  uint64_t h[4] = {bytes, 1, 2, 3}, w[4];
  for (; bytes >= sizeof w; at += sizeof w, bytes -= sizeof w) {
    memcpy(w, at, sizeof w);
    for (int i = 0; i < 4; i++) h[i] = mix(h[i], w[i]);
  }
  for (int i = 0; bytes; i++) {
    size_t n = AT_MIN(bytes, sizeof *w);
    *w = 0;
    memcpy(w, at, n);
    h[i] = mix(h[i], *w);
    at += n;
    bytes -= n;
  }
  uint64_t all = h[0];
  for (int i = 1; i < 4; i++) all = mix(all, h[i]);
  all *= 0xd6e8feb86659fd93ull;
  return (uint32_t)(all ^ all >> 32);
}

static uint32_t head_sum(const at_frame *f) {
  const size_t skip = sizeof f->head_sum;
  return at_frame_sum((const uint8_t *)f + skip, sizeof *f - skip);
}

void at_frame_seal(at_frame *f) { f->head_sum = head_sum(f); }

// ---- Headers
// DATA_LOSS: nothing more of that stream can be read.
static at_status malformed(const at_frames *f, const char *what) {
  return AT_FAIL(AT_DATA_LOSS,
                 "malformed frame: %s\ndetail: frame %u, type %u, %u of %llu "
                 "bytes",
                 what, f->sequence, f->frame.type, f->frame.length,
                 (unsigned long long)f->frame.bytes);
}

// A part of a message: does it fit to what has come of it?
static at_status check_data(const at_frames *f) {
  const at_frame *h = &f->frame;
  if (h->bytes > f->limits.max_bytes)
    return malformed(f, "larger than messages may be");
  if (f->open && (h->bytes != f->head.bytes || h->tag != f->head.tag ||
                  h->kind != f->head.kind))
    return malformed(f, "not of the message that was begun");
  if (h->length > h->bytes - f->got) return malformed(f, "past the message");
  if (!h->length && h->bytes) return malformed(f, "empty part");
  if (h->body_sum && (!f->limits.check_bodies || !h->length))
    return malformed(f, "a checksum where none is");
  return AT_OK;
}

// Every field of a header, before a byte of its body is read.
static at_status check_head(const at_frames *f) {
  const at_frame *h = &f->frame;
  if (h->head_sum != head_sum(h)) return malformed(f, "checksum of the header");
  if (h->epoch != f->limits.epoch) return malformed(f, "of another epoch");
  if (h->sequence != f->sequence) return malformed(f, "out of sequence");
  if (h->zero) return malformed(f, "unknown field");
  if (h->length > f->limits.max_frame) return malformed(f, "too long");
  if (h->type == AT_FRAME_DATA) return check_data(f);
  if (h->length || h->body_sum) return malformed(f, "a body where none is");
  switch (h->type) {
    case AT_FRAME_ABANDON:
      return f->open ? AT_OK : malformed(f, "no message to abandon");
    case AT_FRAME_CREDIT:
    case AT_FRAME_SOCKET:
    case AT_FRAME_WAIVE:
      return h->kind < AT_WIRE_LANES ? AT_OK : malformed(f, "unknown lane");
    case AT_FRAME_BEAT:
      return AT_OK;
    case AT_FRAME_LEAVE:
      return f->open ? malformed(f, "leaves within a message") : AT_OK;
    case AT_FRAME_BARE:
      return f->limits.seal && f->limits.may_be_bare
                 ? AT_OK
                 : malformed(f, "gives up seals that are needed");
    default:
      return malformed(f, "unknown type");
  }
}

// ---- Messages
// Memory is taken only here, when a header has been checked.
static at_status begin_message(at_frames *f, const at_frames_io *io) {
  const at_frame *h = &f->frame;
  f->head = (at_wire_head){h->bytes, h->tag, h->kind, f->limits.lane};
  f->got = 0;
  f->body = NULL;
  if (h->bytes && !(f->body = io->place(io->arg, &f->head)))
    return AT_FAIL(AT_RESOURCE_EXHAUSTED,
                   "no memory for a message of %llu bytes",
                   (unsigned long long)h->bytes);
  f->open = true;
  return AT_OK;
}

// The sink has it whole.
static void end_message(at_frames *f, const at_frames_io *io) {
  AT_ASSERT(f->open && f->got == f->head.bytes);
  f->open = false;
  f->messages++;
  f->bytes += f->head.bytes;
  f->got = 0;
  io->message(io->arg, &f->head, f->body);
}

// The stream has ended: a message that is half here is given back.
void at_frames_end(at_frames *f, const at_frames_io *io) {
  if (f->open) io->abandon(io->arg, &f->head, f->body);
  f->open = false;
  f->got = 0;
}

// The number of the seal is part of it, so the order is checked too.
static at_status check_seal(at_frames *f, const void *p, size_t bytes) {
  const uint64_t number = f->limits.seal->number;
  if (at_seal_check(f->limits.seal, (at_bytes){p, bytes}, f->seal))
    return AT_OK;
  return AT_FAIL(AT_DATA_LOSS,
                 "message %llu was changed, repeated or injected on its way",
                 (unsigned long long)number);
}

// A whole frame, body included, is here.
static at_status end_frame(at_frames *f, const at_frames_io *io) {
  const at_frame h = f->frame;
  AT_ASSERT(h.length <= f->got);
  f->have = f->sealed = 0;
  if (f->limits.seal && h.length)
    AT_TRY(check_seal(f, f->body + (f->got - h.length), h.length));
  if (h.type == AT_FRAME_DATA) {
    if (f->limits.check_bodies && h.length &&
        h.body_sum != at_frame_sum(f->body + (f->got - h.length), h.length))
      return malformed(f, "checksum of the body");
    f->sequence++;
    if (f->got == f->head.bytes) end_message(f, io);
    return AT_OK;
  }
  f->sequence++;
  if (h.type == AT_FRAME_ABANDON)
    at_frames_end(f, io);
  else if (h.type == AT_FRAME_BARE)
    f->limits.seal = NULL;
  else
    io->notice(io->arg, &h);
  return AT_OK;
}

// At most one frame; returns when the stream has no more bytes now, and goes on
// there the next time.
at_status at_frames_step(at_frames *f, const at_frames_io *io, bool *out_read) {
  *out_read = false;
  const uint32_t head = sizeof f->frame;
  const uint32_t want = head + (f->limits.seal ? AT_SEAL_BYTES : 0);
  while (f->have < want) {
    uint8_t *to = f->have < head ? (uint8_t *)&f->frame + f->have
                                 : f->seal + (f->have - head);
    size_t n = io->read(io->arg, to, (f->have < head ? head : want) - f->have);
    if (!n) return AT_OK;
    AT_ASSERT(n <= want - f->have);
    f->have += (uint32_t)n;
    if (f->have < want) continue;
    if (f->limits.seal) AT_TRY(check_seal(f, &f->frame, head));
    AT_TRY(check_head(f));
    if (f->frame.type == AT_FRAME_DATA && !f->open)
      AT_TRY(begin_message(f, io));
    f->left = f->frame.length;
  }
  while (f->left) {
    // Inside the memory that the message's place has.
    AT_ASSERT(f->open && f->left <= f->head.bytes - f->got);
    size_t n = io->read(io->arg, f->body + f->got, f->left);
    if (!n) return AT_OK;
    AT_ASSERT(n <= f->left);
    f->got += n;
    f->left -= (uint32_t)n;
  }
  while (f->limits.seal && f->frame.length && f->sealed < AT_SEAL_BYTES) {
    size_t n =
        io->read(io->arg, f->seal + f->sealed, AT_SEAL_BYTES - f->sealed);
    if (!n) return AT_OK;
    f->sealed += (uint32_t)n;
  }
  *out_read = true;
  return end_frame(f, io);
}

// How messages are cut into frames in a stream of bytes, and put together
// again: one stream for each lane and direction. A frame is a header of 48
// bytes, little endian, and at most `max_frame` bytes of a message. In a sealed
// stream a seal follows the header, and another one the body, if there is one;
// there are no checksums of bodies then. Where both ends know that nobody is
// between them, the stream goes on without seals behind BARE.
#ifndef ATOLL_POD_WIRE_FRAME_H_
#define ATOLL_POD_WIRE_FRAME_H_

#include "pod/seal.h"
#include "pod/wire.h"

typedef enum at_frame_type {
  AT_FRAME_DATA = 1,  // the first or the next part of a message
  AT_FRAME_ABANDON,   // no more of the message that was begun
  AT_FRAME_BEAT,      // a sign of life; bytes: of BULK's stream, sent so far
  AT_FRAME_CREDIT,    // kind: lane; tag, bytes: messages, bytes released so far
  AT_FRAME_LEAVE,     // the last frame of a stream
  AT_FRAME_SOCKET,    // kind: lane; tag, bytes: at_loopback_end of this end
  AT_FRAME_WAIVE,     // kind: lane, whose frames need no seals any more
  AT_FRAME_BARE,      // the last frame of a stream that has a seal
} at_frame_type;

typedef struct at_frame {
  uint32_t head_sum;  // of the header behind it
  uint32_t body_sum;  // of the body; 0: none, or the medium needs none
  uint32_t epoch;
  uint32_t sequence;  // of frames in this stream, from 0
  uint32_t type;      // at_frame_type
  uint32_t kind;      // as in at_wire_head
  uint64_t tag;       // as in at_wire_head
  uint64_t bytes;     // of the whole message
  uint32_t length;    // of this frame's body
  uint32_t zero;
} at_frame;

// A 32-bit checksum; it finds damage, not malice. Changes with any 8 bytes in a
// row, but for one time in 2^32.
uint32_t at_frame_sum(const void *p, size_t bytes);
// Fills in head_sum.
// After all other fields are set. No secret is involved: see at_seal for that.
void at_frame_seal(at_frame *f);

// What is allowed in a stream.
typedef struct at_frame_limits {
  // Of a message; a larger one is DATA_LOSS, before anything is placed.
  uint64_t max_bytes;
  uint32_t max_frame;
  uint32_t epoch;
  at_wire_lane lane;
  // Bodies carry checksums, as the medium may damage them.
  bool check_bodies;
  at_seal *seal;     // borrowed; NULL: the stream is not sealed
  bool may_be_bare;  // BARE is allowed
} at_frame_limits;

// Puts messages together. One thread at a time.
typedef struct at_frames {
  at_frame_limits limits;
  uint32_t sequence;  // of the next frame
  // The header at hand, as far as `have` says.
  at_frame frame;
  uint8_t seal[AT_SEAL_BYTES];
  uint32_t have;    // bytes of the header and its seal
  uint32_t left;    // of the frame's body
  uint32_t sealed;  // bytes of the body's seal
  bool open;        // a message has begun
  // Of the message that has begun.
  at_wire_head head;
  uint8_t *body;  // placed, of which `got` bytes are there
  uint64_t got;
  uint64_t messages, bytes;  // so far
} at_frames;

typedef struct at_frames_io {
  void *arg;
  // Up to n bytes (> 0) of the stream; 0: none now.
  size_t (*read)(void *arg, void *to, size_t n);
  // As in at_wire_sink.
  void *(*place)(void *arg, const at_wire_head *head);
  // The body is the callee's from here on.
  void (*message)(void *arg, const at_wire_head *head, void *body);
  // body: as `place` gave it, filled in part; the callee's to free.
  void (*abandon)(void *arg, const at_wire_head *head, void *body);
  // A checked frame that is not of a message: BEAT, CREDIT, LEAVE, SOCKET,
  // WAIVE.
  void (*notice)(void *arg, const at_frame *f);
} at_frames_io;

// Reads to the end of the next frame. *out_read: false when the bytes ran out
// before. A status is final: DATA_LOSS for malformed frames, RESOURCE_EXHAUSTED
// when there was no place.
at_status at_frames_step(at_frames *f, const at_frames_io *io, bool *out_read);
// Abandons a message that has begun. The stream is over.
void at_frames_end(at_frames *f, const at_frames_io *io);

#endif

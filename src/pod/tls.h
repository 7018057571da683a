// TLS 1.3 for connections whose two ends have proved to each other that they
// know the token of a pod (pod/proof.h). Both have a key of that connection
// then, and TLS starts from it (an external PSK, with fresh Diffie-Hellman
// besides), so there are no certificates: who does not have the key fails in
// the handshake, on both sides. What is recorded cannot be read later by who
// learns the token.
//
// Each direction is a session of its own, that only one end writes to: so
// nothing is shared between who reads and who writes, and there is no lock.
//
// Behind the handshake nobody else reads, and what was changed, injected,
// repeated, left out or sent in another order on its way breaks the connection.
// That an end was cut off is for who reads to find out: there is no alert at an
// end.
//
// The library is OpenSSL's libssl, loaded when it is first needed. It reads no
// configuration, installs no exit handlers, and does not touch descriptors:
// bytes in, bytes out, as with the proof.
//
// Memory: sessions are the caller's to free.
// Threads: a direction is used by one at a time.
#ifndef ATOLL_POD_TLS_H_
#define ATOLL_POD_TLS_H_

#include <sys/uio.h>

#include "base/span.h"
#include "base/status.h"

enum {
  AT_TLS_KEY = 32,
  AT_TLS_RECORD = 16 << 10,   // bytes that are encrypted in one piece, at most
  AT_TLS_OVER = 22,           // what each such piece takes besides
  AT_TLS_NEW_KEY = 32,        // and the word that another key follows
  AT_TLS_OF_A_KEY = 1 << 20,  // pieces that one key encrypts
};

// One end of a connection. One thread at a time reads, and one writes; the
// handshake is one thread's.
typedef struct at_tls at_tls;

// The way of encrypted bytes.
typedef struct at_tls_io {
  void *arg;
  size_t (*read)(void *arg, void *to, size_t n);      // 0: none now
  bool (*write)(void *arg, const void *p, size_t n);  // all; false: cannot
} at_tls_io;

typedef enum at_tls_state {
  AT_TLS_READS,  // the handshake wants more bytes
  AT_TLS_MET,
  AT_TLS_BROKEN,  // at_tls_status says why
} at_tls_state;

// OK: libssl can be used. UNAVAILABLE: it is not there, or too old; says what
// the loader said.
at_status at_tls_ready(void);
// What is loaded: "libssl.so.3"; another name, set before the first use, is for
// tests.
extern const char *at_tls_library;

// calls: the end that called, which speaks first. at_tls_ready's failures, or
// RESOURCE_EXHAUSTED.
at_status at_tls_create(const uint8_t key[AT_TLS_KEY], bool calls,
                        at_tls **out);
// As far as it goes without waiting; asks for no byte that is not the
// handshake's.
at_tls_state at_tls_shake(at_tls *t, const at_tls_io *io);

// Behind the handshake. Encrypts all of v, in pieces of AT_TLS_RECORD; false:
// broken. Only io->write is used.
bool at_tls_write(at_tls *t, const at_tls_io *io, const struct iovec *v, int n);
// *out: up to n bytes; fewer than n where io has no more now, or a piece ends.
// False: broken. Only io->read is used.
bool at_tls_read(at_tls *t, const at_tls_io *io, void *to, size_t n,
                 size_t *out);
// The reader's: bytes have been decrypted that nobody has read yet.
bool at_tls_holds(const at_tls *t);
// OK, or DATA_LOSS: why it is broken. Any thread.
at_status at_tls_status(at_tls *t);
void at_tls_free(at_tls *t);  // NULL: nothing; says nothing to the other end

#endif

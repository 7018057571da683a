#include "pod/tls.h"

#include <dlfcn.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The functions of libssl and libcrypto that are used. Only their declarations
// come of OpenSSL's headers.
#define FUNCTIONS(F)                 \
  F(BIO_clear_flags)                 \
  F(BIO_get_data)                    \
  F(BIO_get_new_index)               \
  F(BIO_meth_new)                    \
  F(BIO_meth_set_ctrl)               \
  F(BIO_meth_set_read)               \
  F(BIO_meth_set_write)              \
  F(BIO_new)                         \
  F(BIO_set_data)                    \
  F(BIO_set_flags)                   \
  F(BIO_set_init)                    \
  F(ERR_clear_error)                 \
  F(ERR_get_error)                   \
  F(ERR_reason_error_string)         \
  F(OPENSSL_init_ssl)                \
  F(SSL_CTX_ctrl)                    \
  F(SSL_CTX_new)                     \
  F(SSL_CTX_set_ciphersuites)        \
  F(SSL_CTX_set_num_tickets)         \
  F(SSL_CTX_set_psk_client_callback) \
  F(SSL_CTX_set_psk_server_callback) \
  F(SSL_do_handshake)                \
  F(SSL_free)                        \
  F(SSL_get_error)                   \
  F(SSL_get_ex_data)                 \
  F(SSL_key_update)                  \
  F(SSL_new)                         \
  F(SSL_pending)                     \
  F(SSL_read)                        \
  F(SSL_session_reused)              \
  F(SSL_set_accept_state)            \
  F(SSL_set_bio)                     \
  F(SSL_set_connect_state)           \
  F(SSL_set_ex_data)                 \
  F(SSL_set_verify)                  \
  F(SSL_write)                       \
  F(TLS_method)

typedef struct openssl {
#define FIELD(name) __typeof__(name) *name;
  FUNCTIONS(FIELD)
#undef FIELD
} openssl;

// The session of one direction.
typedef struct way {
  SSL *ssl;
  at_tls_io io;     // of the call under way
  bool met, spoke;  // spoke: wrote where it was to read
  _Atomic bool broken;
  char why[200];  // once it is broken
  uint8_t key[AT_TLS_KEY];
} way;

struct at_tls {
  way ways[2];  // from who called, to who called
  way *out, *in;
  uint32_t pieces;  // that the present key of `out` has encrypted
  uint8_t piece[AT_TLS_RECORD];
};

const char *at_tls_library = "libssl.so.3";
static openssl g;
static SSL_CTX *g_context;  // NULL: g_why
static BIO_METHOD *g_method;
static char g_why[300];

// ---- The key: one identity, as the key is of one connection
static const char kIdentity[] = "atoll";

// Copies the session's key to libssl; the number of bytes, 0: it does not fit.
static unsigned give_key(SSL *ssl, unsigned char *out, unsigned most) {
  const way *w = g.SSL_get_ex_data(ssl, 0);
  if (most < AT_TLS_KEY) return 0;
  memcpy(out, w->key, AT_TLS_KEY);
  return AT_TLS_KEY;
}

// libssl's callback of a client.
static unsigned key_of_caller(SSL *ssl, const char *hint, char *identity,
                              unsigned most_identity, unsigned char *key,
                              unsigned most) {
  (void)hint;
  if (most_identity < sizeof kIdentity) return 0;
  memcpy(identity, kIdentity, sizeof kIdentity);
  return give_key(ssl, key, most);
}

// libssl's callback of a server: the one identity that there is.
static unsigned key_of_listener(SSL *ssl, const char *identity,
                                unsigned char *key, unsigned most) {
  return strcmp(identity, kIdentity) ? 0 : give_key(ssl, key, most);
}

// ---- Its bytes
// No bytes now is a reason to try again later, never an end: ends are found by
// who owns the socket.
static int bio_read(BIO *b, char *to, int n) {
  way *w = g.BIO_get_data(b);
  g.BIO_clear_flags(b, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
  size_t got = n > 0 && w->io.read ? w->io.read(w->io.arg, to, (size_t)n) : 0;
  if (got) return (int)got;
  g.BIO_set_flags(b, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY);
  return -1;
}

// A session that may only read says so by `spoke`.
static int bio_write(BIO *b, const char *p, int n) {
  way *w = g.BIO_get_data(b);
  g.BIO_clear_flags(b, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
  w->spoke |= !w->io.write;
  return !w->io.write || w->io.write(w->io.arg, p, (size_t)n) ? n : -1;
}

static long bio_ctrl(BIO *b, int what, long n, void *p) {
  (void)b, (void)n, (void)p;
  return what == BIO_CTRL_FLUSH;
}

// ---- Loading
static void fail_to_load(const char *what) {
  snprintf(g_why, sizeof g_why, "%s: %s", at_tls_library, what);
}

// False: g_why says why.
static bool load_functions(void) {
  int mode = RTLD_NOW | RTLD_LOCAL;
#if !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)
  // A Python that has another OpenSSL inside does not lend it to this one.
  mode |= RTLD_DEEPBIND;
#endif
  void *library = dlopen(at_tls_library, mode);
  if (!library) {
    const char *why = dlerror();
    snprintf(g_why, sizeof g_why, "%s", why ? why : at_tls_library);
    return false;
  }
#define LOAD(name)                                \
  if (!(g.name = dlsym(library, #name))) {        \
    fail_to_load("it has no " #name ": too old"); \
    return false;                                 \
  }
  FUNCTIONS(LOAD)
#undef LOAD
  return true;
}

// The BIO that all sessions use.
static bool make_method(void) {
  const int index = g.BIO_get_new_index();
  g_method =
      index < 0 ? NULL : g.BIO_meth_new(index | BIO_TYPE_SOURCE_SINK, "atoll");
  return g_method && g.BIO_meth_set_read(g_method, bio_read) &&
         g.BIO_meth_set_write(g_method, bio_write) &&
         g.BIO_meth_set_ctrl(g_method, bio_ctrl);
}

// TLS 1.3 with the one cipher of 128 bits whose hash (SHA-256) a key without
// one stands for.
static bool set_up(SSL_CTX *c) {
  if (!g.SSL_CTX_ctrl(c, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, NULL))
    return false;
  if (!g.SSL_CTX_ctrl(c, SSL_CTRL_SET_MAX_PROTO_VERSION, TLS1_3_VERSION, NULL))
    return false;
  g.SSL_CTX_ctrl(c, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, NULL);
  g.SSL_CTX_set_psk_client_callback(c, key_of_caller);
  g.SSL_CTX_set_psk_server_callback(c, key_of_listener);
  return g.SSL_CTX_set_num_tickets(c, 0) &&
         g.SSL_CTX_set_ciphersuites(c, "TLS_AES_128_GCM_SHA256");
}

// Once for the process.
static void load(void) {
  if (!load_functions()) return;
  const uint64_t how = OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT |
                       OPENSSL_INIT_LOAD_SSL_STRINGS |
                       OPENSSL_INIT_LOAD_CRYPTO_STRINGS;
  SSL_CTX *c = NULL;
  bool good = g.OPENSSL_init_ssl(how, NULL) && make_method() &&
              (c = g.SSL_CTX_new(g.TLS_method())) && set_up(c);
  if (good) {
    g_context = c;
    return;
  }
  const char *why = g.ERR_reason_error_string(g.ERR_get_error());
  fail_to_load(why ? why : "it cannot be set up");
  g.ERR_clear_error();
}

// The first call loads the library. UNAVAILABLE.
at_status at_tls_ready(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load);
  return g_context ? AT_OK : AT_FAIL(AT_UNAVAILABLE, "%s", g_why);
}

// ---- Made and freed
// NULL: nothing. Keys are wiped.
void at_tls_free(at_tls *t) {
  if (!t) return;
  for (int i = 0; i < 2; i++)
    if (t->ways[i].ssl) g.SSL_free(t->ways[i].ssl);
  explicit_bzero(t, sizeof *t);
  free(t);
}

// On failure what was made is freed with the session.
static bool make_way(way *w, bool calls) {
  w->ssl = g.SSL_new(g_context);
  BIO *bio = w->ssl ? g.BIO_new(g_method) : NULL;
  if (!bio) return false;
  g.BIO_set_data(bio, w);
  g.BIO_set_init(bio, 1);
  g.SSL_set_bio(w->ssl, bio, bio);
  if (calls) {
    g.SSL_set_connect_state(w->ssl);
    // Who shows a certificate instead: there is nobody who vouches for it.
    g.SSL_set_verify(w->ssl, SSL_VERIFY_PEER, NULL);
  } else {
    g.SSL_set_accept_state(w->ssl);
  }
  return g.SSL_set_ex_data(w->ssl, 0, w);
}

// The two keys differ in a byte, so that nobody can take a session's bytes for
// the other's.
at_status at_tls_create(const uint8_t key[AT_TLS_KEY], bool calls,
                        at_tls **out) {
  AT_TRY(at_tls_ready());
  at_tls *t = calloc(1, sizeof *t);
  bool good = t;
  for (int i = 0; i < 2 && good; i++) {
    memcpy(t->ways[i].key, key, AT_TLS_KEY);
    t->ways[i].key[0] ^= (uint8_t)i;
    good = make_way(&t->ways[i], calls);
  }
  if (!good) {
    at_tls_free(t);
    g.ERR_clear_error();
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for TLS");
  }
  t->out = &t->ways[!calls];
  t->in = &t->ways[calls];
  return *out = t, AT_OK;
}

// ---- Faults
// Leaves nothing in the thread's queue of errors, which Python reads, too.
static bool breaks(way *w, const char *what) {
  const unsigned long code = g.ERR_get_error();
  const char *reason = code ? g.ERR_reason_error_string(code) : NULL;
  snprintf(w->why, sizeof w->why, "%s%s%s", what, reason ? ": " : "",
           reason ? reason : "");
  atomic_store(&w->broken, true);
  g.ERR_clear_error();
  return false;
}

// OK while both directions work. Any thread.
at_status at_tls_status(at_tls *t) {
  for (int i = 0; i < 2; i++)
    if (atomic_load(&t->ways[i].broken))
      return AT_FAIL(AT_DATA_LOSS, "TLS: %s", t->ways[i].why);
  return AT_OK;
}

// ---- The handshake
// A session that is "reused" is what libssl calls one of a key of ours.
static at_tls_state shake_way(way *w, const at_tls_io *io) {
  w->io = *io;
  g.ERR_clear_error();
  int n = g.SSL_do_handshake(w->ssl);
  if (n != 1 && g.SSL_get_error(w->ssl, n) == SSL_ERROR_WANT_READ)
    return AT_TLS_READS;
  w->met = n == 1 && g.SSL_session_reused(w->ssl);
  if (!w->met) breaks(w, n == 1 ? "no key was used" : "the handshake failed");
  explicit_bzero(w->key, sizeof w->key);
  return w->met ? AT_TLS_MET : AT_TLS_BROKEN;
}

// Both directions, one after the other; call it again whenever bytes have come.
at_tls_state at_tls_shake(at_tls *t, const at_tls_io *io) {
  at_tls_state state = AT_TLS_MET;
  for (int i = 0; i < 2 && state == AT_TLS_MET; i++)
    if (!t->ways[i].met) state = shake_way(&t->ways[i], io);
  return state;
}

// ---- Data
// What a key may encrypt is bounded (RFC 8446, 5.5).
static bool write_piece(at_tls *t, at_bytes p) {
  way *w = t->out;
  g.ERR_clear_error();
  if (t->pieces++ == AT_TLS_OF_A_KEY) {
    t->pieces = 1;
    if (!g.SSL_key_update(w->ssl, SSL_KEY_UPDATE_NOT_REQUESTED))
      return breaks(w, "no new key");
  }
  return g.SSL_write(w->ssl, p.ptr, (int)p.len) == (int)p.len ||
         breaks(w, "a record cannot be sent");
}

// Up to a piece of v, from *at of its first part on; copied only where it is of
// several parts.
static at_bytes next_piece(at_tls *t, const struct iovec **v, int *n,
                           size_t *at) {
  size_t have = 0;
  while (*n && *at == (*v)->iov_len) ++*v, --*n, *at = 0;
  if (*n && (*n == 1 || (*v)->iov_len - *at >= AT_TLS_RECORD)) {
    size_t k = AT_MIN((*v)->iov_len - *at, (size_t)AT_TLS_RECORD);
    *at += k;
    return (at_bytes){(const uint8_t *)(*v)->iov_base + *at - k, k};
  }
  while (*n && have < AT_TLS_RECORD) {
    size_t k = AT_MIN((*v)->iov_len - *at, AT_TLS_RECORD - have);
    memcpy(t->piece + have, (const uint8_t *)(*v)->iov_base + *at, k);
    have += k;
    *at += k;
    if (*at == (*v)->iov_len) ++*v, --*n, *at = 0;
  }
  return (at_bytes){t->piece, have};
}

// Everything is encrypted into io->write in one go. False: it is broken.
bool at_tls_write(at_tls *t, const at_tls_io *io, const struct iovec *v,
                  int n) {
  bool good = !atomic_load(&t->out->broken) && !atomic_load(&t->in->broken);
  size_t at = 0;
  t->out->io = (at_tls_io){io->arg, NULL, io->write};
  for (at_bytes p; good && (p = next_piece(t, &v, &n, &at)).len;)
    good = write_piece(t, p);
  return good;
}

// Up to one record. *out 0 with true: nothing now.
bool at_tls_read(at_tls *t, const at_tls_io *io, void *to, size_t n,
                 size_t *out) {
  way *w = t->in;
  *out = 0;
  if (atomic_load(&w->broken)) return false;
  w->io = (at_tls_io){io->arg, io->read, NULL};
  g.ERR_clear_error();
  int got = g.SSL_read(w->ssl, to, (int)AT_MIN(n, (size_t)AT_TLS_RECORD));
  if (got <= 0 && g.SSL_get_error(w->ssl, got) != SSL_ERROR_WANT_READ)
    return breaks(w, "what came cannot be read");
  if (w->spoke) return breaks(w, "the other end asked for an answer");
  *out = got > 0 ? (size_t)got : 0;
  return true;
}

bool at_tls_holds(const at_tls *t) {
  return !atomic_load(&t->in->broken) && g.SSL_pending(t->in->ssl) > 0;
}

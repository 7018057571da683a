// UCX as a carrier of BULK lanes. A stream travels in packets, each an active
// message with its number. Both sides have the same few slots for them: a
// packet is sent only when its slot is free at the receiver, so UCX itself
// holds nothing. Large packets are fetched by rendezvous, straight into their
// slot.
//
// Locks. UCX is entered by one thread at a time (`lock`, within a lane's lock),
// and calls back within it; callbacks leave notes for the poller.
//
// UCX checks nobody. Packets carry a key that only members know, which keeps
// stale ones out; what a packet holds is checked by the seals of its stream.
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "pod/proof.h"
#include "pod/ucx.h"
#include "pod/wire_carrier.h"
#include "pod/wire_stream.h"

enum {
  kSlots = 8,
  kSlotBytes = (128 << 10) + 128,  // a frame of the wire with its seals
  kEager = 8 << 10,                // packets up to here are sent at once
  kTellAfter = kSlots / 2,         // packets read before their sender is told
  kTurns = 32,                     // of UCX in one of ours
  kCloseMs = 200,                  // for connections to be given up
  kMs = 1000000,                   // ns
};

typedef enum message { HELLO, PACKET, TAKEN, MESSAGES } message;

typedef struct head {
  uint64_t key;     // the receiver gave it to the sender
  uint64_t number;  // PACKET: from 0; TAKEN: packets read so far
  uint64_t from;
} head;

typedef struct ucx ucx;
typedef struct peer peer;

// For a packet to a member.
typedef struct out_slot {
  peer *p;
  head head;
  uint8_t *bytes;
  _Atomic bool busy;  // UCX reads it
} out_slot;

// For a packet from a member.
typedef struct in_slot {
  peer *p;
  uint8_t *bytes;
  bool coming;        // under the lock: UCX writes it
  _Atomic bool here;  // the poller's until it is false again:
  size_t length, at;
} in_slot;

struct peer {
  ucx *u;
  // Under the lock:
  ucp_ep_h ep;  // NULL: none
  bool dropped;
  uint64_t key, key_of_me;  // what it has to say, what it wants to hear
  head hello, tell;         // while UCX sends them
  bool telling;
  uint64_t told;  // of `next`
  // Under the lock of the lane:
  out_slot out[kSlots];
  size_t filled;  // of packet `posted`
  // Any thread:
  _Atomic uint64_t posted, taken;  // packets to it: sent, and read there
  _Atomic uint64_t next;           // packets from it that have been read
  _Atomic bool heard, malformed, news;
  _Atomic int failed;  // a ucs_status_t
  in_slot in[kSlots];
  uint8_t *memory;  // of all slots
};

struct ucx {
  at_carrier face;
  ucx *next;  // of g_open
  const at_ucx_api *api;
  ucp_context_h context;
  pthread_mutex_t lock;  // what follows
  ucp_worker_h worker;
  ucp_address_t *address;
  size_t address_bytes;
  bool over;         // UCX may not be entered any more
  bool asleep;       // the poller waits for the face's fd
  uint32_t closing;  // connections that are being given up
  peer peers[];
};

static ucx *ucx_of(at_carrier *c) { return (ucx *)c; }
static peer *peer_of(at_carrier *c, uint32_t i) { return &ucx_of(c)->peers[i]; }

// The first failure of a peer counts; the poller is told by `news`.
static void fail(peer *p, ucs_status_t status) {
  int none = UCS_OK;
  atomic_compare_exchange_strong(&p->failed, &none, (int)status);
  atomic_store(&p->news, true);
}

// ---- Sending
// Under the lock. True: UCX is done with the memory, and does not call `done`.
static bool send_message(peer *p, message what, const head *h, at_bytes body,
                         ucp_send_nbx_callback_t done, void *arg) {
  ucx *u = p->u;
  const ucp_request_param_t how = {
      .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                      UCP_OP_ATTR_FIELD_FLAGS,
      .flags =
          body.len > kEager ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER,
      .cb.send = done,
      .user_data = arg};
  if (!p->ep || u->over) return true;
  ucs_status_ptr_t r = u->api->ucp_am_send_nbx(p->ep, what, h, sizeof *h,
                                               body.ptr, body.len, &how);
  if (UCS_PTR_IS_ERR(r)) fail(p, UCS_PTR_STATUS(r));
  if (!UCS_PTR_IS_PTR(r)) return true;
  // It may need turns that nothing would wake the poller for.
  if (u->asleep) (void)u->api->ucp_worker_signal(u->worker);
  u->asleep = false;
  return false;
}

// UCX is done with a packet's memory.
static void on_sent(void *request, ucs_status_t status, void *arg) {
  out_slot *slot = arg;
  slot->p->u->api->ucp_request_free(request);
  if (status != UCS_OK) fail(slot->p, status);
  atomic_store(&slot->busy, false);
  atomic_store(&slot->p->news, true);
}

// Slots from `posted` on that may be filled.
static size_t free_slots(const peer *p) {
  const uint64_t posted = atomic_load(&p->posted);
  const uint64_t end = atomic_load(&p->taken) + kSlots;
  size_t n = 0;
  while (posted + n < end && !atomic_load(&p->out[(posted + n) % kSlots].busy))
    n++;
  return n;
}

// The packet that is being filled goes. Under the lane's lock.
static void post(peer *p) {
  const uint64_t number = atomic_load(&p->posted);
  out_slot *slot = &p->out[number % kSlots];
  const at_bytes body = {slot->bytes, p->filled};
  p->filled = 0;
  slot->head = (head){p->key_of_me, number, p->u->face.me};
  atomic_store(&slot->busy, true);
  atomic_store(&p->posted, number + 1);
  pthread_mutex_lock(&p->u->lock);
  if (send_message(p, PACKET, &slot->head, body, on_sent, slot))
    atomic_store(&slot->busy, false);
  pthread_mutex_unlock(&p->u->lock);
}

// at_carrier_vtable.room.
static size_t ucx_room(at_carrier *c, uint32_t to) {
  const peer *p = peer_of(c, to);
  size_t bytes = free_slots(p) * kSlotBytes;
  size_t used = p->filled + AT_STREAM_RESERVE;
  return bytes > used ? bytes - used : 0;
}

// There is room (ucx_room), so a slot is free.
static void ucx_write(at_carrier *c, uint32_t to, const struct iovec *v,
                      int n) {
  peer *p = peer_of(c, to);
  if (atomic_load(&p->failed)) return;
  for (int i = 0; i < n; i++) {
    const uint8_t *from = v[i].iov_base;
    for (size_t left = v[i].iov_len; left;) {
      const out_slot *slot = &p->out[atomic_load(&p->posted) % kSlots];
      size_t k = AT_MIN(left, kSlotBytes - p->filled);
      AT_ASSERT(!atomic_load(&slot->busy));
      memcpy(slot->bytes + p->filled, from, k);
      from += k;
      left -= k;
      p->filled += k;
      if (p->filled == kSlotBytes) post(p);
    }
  }
}

// The last free slot is sent when it is full, or the receiver has read others:
// small packets would leave no room otherwise.
static void ucx_push(at_carrier *c, uint32_t to) {
  peer *p = peer_of(c, to);
  if (p->filled && free_slots(p) > 1) post(p);
}

// ---- Receiving
// Whoever knows the key; NULL: a stranger, or one that is lost.
static peer *sender_of(ucx *u, const void *header, size_t bytes, head *out) {
  if (bytes != sizeof *out) return NULL;
  memcpy(out, header, sizeof *out);
  if (out->from >= u->face.count || out->from == u->face.me) return NULL;
  peer *p = &u->peers[out->from];
  return out->key == p->key && !p->dropped ? p : NULL;
}

// The peer reaches this process.
static ucs_status_t on_hello(void *arg, const void *header, size_t header_bytes,
                             void *data, size_t bytes,
                             const ucp_am_recv_param_t *param) {
  head h;
  peer *p = sender_of(arg, header, header_bytes, &h);
  (void)data, (void)bytes, (void)param;
  if (p) atomic_store(&p->heard, true);
  return UCS_OK;
}

// The receiver has read packets: their slots are free there.
static ucs_status_t on_taken(void *arg, const void *header, size_t header_bytes,
                             void *data, size_t bytes,
                             const ucp_am_recv_param_t *param) {
  head h;
  peer *p = sender_of(arg, header, header_bytes, &h);
  (void)data, (void)bytes, (void)param;
  if (!p) return UCS_OK;
  // Messages may overtake each other.
  if (h.number > atomic_load(&p->posted))
    atomic_store(&p->malformed, true);
  else if (h.number > atomic_load(&p->taken))
    atomic_store(&p->taken, h.number);
  atomic_store(&p->news, true);
  return UCS_OK;
}

// A packet is whole, or lost.
static void arrive(in_slot *slot, ucs_status_t status) {
  slot->coming = false;
  if (status != UCS_OK)
    fail(slot->p, status);
  else
    atomic_store(&slot->here, true);
}

// UCX has fetched a large packet.
static void on_fetched(void *request, ucs_status_t status, size_t bytes,
                       void *arg) {
  in_slot *slot = arg;
  slot->p->u->api->ucp_request_free(request);
  arrive(slot, status == UCS_OK && bytes != slot->length
                   ? UCS_ERR_MESSAGE_TRUNCATED
                   : status);
}

// Straight into the slot, without a copy.
static ucs_status_t fetch(in_slot *slot, void *data) {
  const ucp_request_param_t how = {
      .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
      .cb.recv_am = on_fetched,
      .user_data = slot};
  ucx *u = slot->p->u;
  ucs_status_ptr_t r = u->api->ucp_am_recv_data_nbx(
      u->worker, data, slot->bytes, slot->length, &how);
  if (!UCS_PTR_IS_PTR(r)) arrive(slot, UCS_PTR_RAW_STATUS(r));
  return UCS_INPROGRESS;
}

// Numbers and sizes are checked: UCX does not say who sends.
static ucs_status_t on_packet(void *arg, const void *header,
                              size_t header_bytes, void *data, size_t bytes,
                              const ucp_am_recv_param_t *param) {
  head h;
  peer *p = sender_of(arg, header, header_bytes, &h);
  if (!p) return UCS_OK;
  in_slot *slot = &p->in[h.number % kSlots];
  if (h.number - atomic_load(&p->next) >= kSlots || !bytes ||
      bytes > kSlotBytes || !slot->bytes || slot->coming ||
      atomic_load(&slot->here)) {
    atomic_store(&p->malformed, true);
    atomic_store(&p->news, true);
    return UCS_OK;
  }
  slot->length = bytes;
  slot->at = 0;
  slot->coming = true;
  if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) return fetch(slot, data);
  memcpy(slot->bytes, data, bytes);
  return arrive(slot, UCS_OK), UCS_OK;
}

static void tell(peer *p);

// TAKEN has been sent; more may have been read meanwhile.
static void on_told(void *request, ucs_status_t status, void *arg) {
  peer *p = arg;
  p->u->api->ucp_request_free(request);
  if (status != UCS_OK) fail(p, status);
  p->telling = false;
  tell(p);
}

// Under the lock: tells the sender how many packets have been read, if that is
// worth it.
static void tell(peer *p) {
  const uint64_t next = atomic_load(&p->next);
  if (p->telling || next - p->told < kTellAfter || atomic_load(&p->failed))
    return;
  p->told = next;
  p->tell = (head){p->key_of_me, next, p->u->face.me};
  p->telling = true;
  if (send_message(p, TAKEN, &p->tell, (at_bytes){0}, on_told, p))
    p->telling = false;
}

// The next packet is here.
static bool ucx_readable(at_carrier *c, uint32_t from) {
  const peer *p = peer_of(c, from);
  return atomic_load(&p->in[atomic_load(&p->next) % kSlots].here);
}

// at_carrier_vtable.read, on the poller.
static size_t ucx_read(at_carrier *c, uint32_t from, void *to, size_t n) {
  peer *p = peer_of(c, from);
  in_slot *slot = &p->in[atomic_load(&p->next) % kSlots];
  if (!atomic_load(&slot->here)) return 0;
  n = AT_MIN(n, slot->length - slot->at);
  memcpy(to, slot->bytes + slot->at, n);
  slot->at += n;
  if (slot->at < slot->length) return n;
  atomic_store(&slot->here, false);
  atomic_fetch_add(&p->next, 1);
  pthread_mutex_lock(&p->u->lock);
  tell(p);
  pthread_mutex_unlock(&p->u->lock);
  return n;
}

// ---- The poller
// True: something happened, and there may be more.
static bool ucx_turn(at_carrier *c) {
  ucx *u = ucx_of(c);
  bool any = false;
  pthread_mutex_lock(&u->lock);
  u->asleep = false;
  for (int i = 0; i < kTurns && !u->over; i++) {
    if (!u->api->ucp_worker_progress(u->worker)) break;
    any = true;
  }
  pthread_mutex_unlock(&u->lock);
  return any;
}

// True: the poller may sleep on the descriptor.
static bool ucx_arm(at_carrier *c) {
  ucx *u = ucx_of(c);
  pthread_mutex_lock(&u->lock);
  u->asleep = u->over || u->api->ucp_worker_arm(u->worker) == UCS_OK;
  const bool asleep = u->asleep;
  pthread_mutex_unlock(&u->lock);
  return asleep;
}

// True once after something has changed for that member.
static bool ucx_news(at_carrier *c, uint32_t member) {
  peer *p = peer_of(c, member);
  return atomic_load(&p->news) && atomic_exchange(&p->news, false);
}

// at_carrier_vtable.check.
static at_status ucx_check(at_carrier *c, uint32_t member) {
  const peer *p = peer_of(c, member);
  const int failed = atomic_load(&p->failed);
  if (atomic_load(&p->malformed))
    return AT_FAIL(AT_DATA_LOSS, "malformed packets");
  if (failed)
    return AT_FAIL(AT_UNAVAILABLE, "the connection broke: %s",
                   p->u->api->ucs_status_string((ucs_status_t)failed));
  return AT_OK;
}

// A connection has been given up.
static void on_closed(void *request, ucs_status_t status, void *arg) {
  ucx *u = arg;
  (void)status;
  u->api->ucp_request_free(request);
  u->closing--;
}

// Under the lock. What is under way is given up.
static void close_ep(peer *p) {
  ucx *u = p->u;
  const ucp_request_param_t how = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS |
                                                   UCP_OP_ATTR_FIELD_CALLBACK |
                                                   UCP_OP_ATTR_FIELD_USER_DATA,
                                   .flags = UCP_EP_CLOSE_FLAG_FORCE,
                                   .cb.send = on_closed,
                                   .user_data = u};
  p->dropped = true;
  if (!p->ep || u->over) return;
  ucs_status_ptr_t r = u->api->ucp_ep_close_nbx(p->ep, &how);
  p->ep = NULL;
  u->closing += UCS_PTR_IS_PTR(r);
}

// at_carrier_vtable.drop.
static void ucx_drop(at_carrier *c, uint32_t member) {
  ucx *u = ucx_of(c);
  pthread_mutex_lock(&u->lock);
  close_ep(&u->peers[member]);
  pthread_mutex_unlock(&u->lock);
}

// ---- Meeting
// A card is the key and the address.
static size_t ucx_card(at_carrier *c, uint32_t member, uint8_t *out) {
  const ucx *u = ucx_of(c);
  const uint64_t key = u->peers[member].key;
  memcpy(out, &key, sizeof key);
  memcpy(out + sizeof key, u->address, u->address_bytes);
  return sizeof key + u->address_bytes;
}

// UCX's error handler of a connection.
static void on_lost(void *arg, ucp_ep_h ep, ucs_status_t status) {
  (void)ep;
  fail(arg, status);
}

static void on_hello_sent(void *request, ucs_status_t status, void *arg) {
  peer *p = arg;
  p->u->api->ucp_request_free(request);
  if (status != UCS_OK) fail(p, status);
}

// Memory of both directions in one block.
static at_status make_slots(peer *p) {
  p->memory = malloc((size_t)2 * kSlots * kSlotBytes);
  if (!p->memory)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for packets");
  for (int i = 0; i < kSlots; i++) {
    p->out[i].p = p->in[i].p = p;
    p->out[i].bytes = p->memory + (size_t)i * kSlotBytes;
    p->in[i].bytes = p->out[i].bytes + (size_t)kSlots * kSlotBytes;
  }
  return AT_OK;
}

// UCX reads an address as far as it says itself: only members come here.
static at_status ucx_call(at_carrier *c, uint32_t member, at_bytes card) {
  ucx *u = ucx_of(c);
  peer *p = &u->peers[member];
  if (card.len <= sizeof p->key_of_me)
    return AT_FAIL(AT_DATA_LOSS, "a card without an address");
  if (!p->memory) AT_TRY(make_slots(p));
  memcpy(&p->key_of_me, card.ptr, sizeof p->key_of_me);
  const ucp_ep_params_t with = {
      .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                    UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                    UCP_EP_PARAM_FIELD_ERR_HANDLER,
      .address = (const ucp_address_t *)(card.ptr + sizeof p->key_of_me),
      .err_mode = UCP_ERR_HANDLING_MODE_PEER,
      .err_handler = {.cb = on_lost, .arg = p}};
  pthread_mutex_lock(&u->lock);
  ucs_status_t got = u->api->ucp_ep_create(u->worker, &with, &p->ep);
  p->hello = (head){p->key_of_me, 0, u->face.me};
  if (got == UCS_OK)
    (void)send_message(p, HELLO, &p->hello, (at_bytes){0}, on_hello_sent, p);
  else
    p->ep = NULL;
  pthread_mutex_unlock(&u->lock);
  if (got == UCS_OK) return AT_OK;
  return AT_FAIL(AT_UNAVAILABLE, "UCX does not reach process %u: %s", member,
                 u->api->ucs_status_string(got));
}

// at_carrier_vtable.heard.
static bool ucx_heard(at_carrier *c, uint32_t member) {
  const peer *p = peer_of(c, member);
  return atomic_load(&p->heard) && !atomic_load(&p->failed);
}

// Once; nobody enters it afterwards.
static void leave_ucx(ucx *u) {
  if (u->over) return;
  u->over = true;
  if (u->address) u->api->ucp_worker_release_address(u->worker, u->address);
  if (u->worker) u->api->ucp_worker_destroy(u->worker);
  if (u->context) u->api->ucp_cleanup(u->context);
}

// ---- The end of the process
// A process may end without closing its wires. Then UCX's destructors run while
// pollers, and a thread of its own, are in it: all leave it before that.
static struct {
  pthread_mutex_t lock;  // what follows; taken before the locks of its members
  bool registered;
  pid_t pid;  // whose they are: a child that was forked has none of them
  ucx *first;
} g_open = {.lock = PTHREAD_MUTEX_INITIALIZER};

// At exit: the poller finds `over` and stays out.
static void end_all(void) {
  if (g_open.pid != getpid()) return;
  pthread_mutex_lock(&g_open.lock);
  for (ucx *u = g_open.first; u; u = u->next) {
    pthread_mutex_lock(&u->lock);
    leave_ucx(u);
    pthread_mutex_unlock(&u->lock);
  }
  pthread_mutex_unlock(&g_open.lock);
}

// A child after fork begins with an empty list.
static at_status enter_list(ucx *u) {
  pthread_mutex_lock(&g_open.lock);
  if (!g_open.registered) g_open.registered = !atexit(end_all);
  if (g_open.pid != getpid()) g_open.first = NULL;
  g_open.pid = getpid();
  const bool good = g_open.registered;
  if (good) u->next = g_open.first;
  if (good) g_open.first = u;
  pthread_mutex_unlock(&g_open.lock);
  return good ? AT_OK
              : AT_FAIL(AT_RESOURCE_EXHAUSTED,
                        "no memory for the end of the process");
}

static void leave_list(const ucx *u) {
  pthread_mutex_lock(&g_open.lock);
  ucx **at = &g_open.first;
  while (*at && *at != u) at = &(*at)->next;
  if (*at) *at = u->next;
  pthread_mutex_unlock(&g_open.lock);
}

// ---- Opening and closing
// Also of one that is half made.
static void free_ucx(ucx *u) {
  leave_list(u);
  leave_ucx(u);
  for (uint32_t i = 0; i < u->face.count; i++) free(u->peers[i].memory);
  pthread_mutex_destroy(&u->lock);
  free(u);
}

// Gives connections kCloseMs to end, then leaves UCX.
static void ucx_close(at_carrier *c) {
  ucx *u = ucx_of(c);
  const uint64_t until_ns = at_clock_ns() + (uint64_t)kCloseMs * kMs;
  pthread_mutex_lock(&u->lock);
  for (uint32_t i = 0; i < c->count; i++) close_ep(&u->peers[i]);
  while (u->closing && !u->over && at_clock_ns() < until_ns)
    (void)u->api->ucp_worker_progress(u->worker);
  pthread_mutex_unlock(&u->lock);
  free_ucx(u);
}

static const at_carrier_vtable kVtable = {
    .card = ucx_card,
    .call = ucx_call,
    .heard = ucx_heard,
    .room = ucx_room,
    .write = ucx_write,
    .push = ucx_push,
    .turn = ucx_turn,
    .arm = ucx_arm,
    .news = ucx_news,
    .readable = ucx_readable,
    .read = ucx_read,
    .check = ucx_check,
    .drop = ucx_drop,
    .close = ucx_close,
};

// With UCX's version, as it is the system's.
static at_status refused(const ucx *u, const char *what, ucs_status_t why) {
  return AT_FAIL(AT_UNAVAILABLE, "UCX %s: no %s: %s",
                 u->api->ucp_get_version_string(), what,
                 u->api->ucs_status_string(why));
}

// Is there any device at all?
static bool has_rdma(void) {
  DIR *dir = opendir("/sys/class/infiniband");
  bool any = false;
  for (const struct dirent *e; dir && !any && (e = readdir(dir));)
    any = *e->d_name != '.';
  if (dir) closedir(dir);
  return any;
}

// Settings that differ from UCX's defaults, then the context.
static at_status make_context(ucx *u, bool any, bool local) {
  ucp_config_t *config;
  ucs_status_t got = u->api->ucp_config_read(NULL, NULL, &config);
  if (got != UCS_OK) return refused(u, "settings", got);
  // The wire has signs of life of its own.
  (void)u->api->ucp_config_modify(config, "KEEPALIVE_INTERVAL", "inf");
  if (!any) (void)u->api->ucp_config_modify(config, "TLS", "ib");
  // Its TCP listens on every network otherwise.
  if (local && !getenv("UCX_NET_DEVICES"))
    (void)u->api->ucp_config_modify(config, "NET_DEVICES", "lo");
  const ucp_params_t with = {.field_mask = UCP_PARAM_FIELD_FEATURES |
                                           UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                             .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
                             .estimated_num_eps = u->face.count};
  got = u->api->ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &with, config,
                                 &u->context);
  u->api->ucp_config_release(config);
  if (got == UCS_OK) return AT_OK;
  u->context = NULL;
  return refused(u, any ? "transport" : "transport over RDMA", got);
}

// The worker, its handlers, its descriptor and its address.
static at_status make_worker(ucx *u) {
  const ucp_worker_params_t with = {
      .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
      .thread_mode = UCS_THREAD_MODE_SERIALIZED};
  static const ucp_am_recv_callback_t kHandlers[MESSAGES] = {
      [HELLO] = on_hello, [PACKET] = on_packet, [TAKEN] = on_taken};
  ucs_status_t got = u->api->ucp_worker_create(u->context, &with, &u->worker);
  if (got != UCS_OK) u->worker = NULL;
  for (unsigned i = 0; i < MESSAGES && got == UCS_OK; i++) {
    const ucp_am_handler_param_t h = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                      UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = i,
        .cb = kHandlers[i],
        .arg = u};
    got = u->api->ucp_worker_set_am_recv_handler(u->worker, &h);
  }
  if (got == UCS_OK) got = u->api->ucp_worker_get_efd(u->worker, &u->face.fd);
  if (got == UCS_OK)
    got = u->api->ucp_worker_get_address(u->worker, &u->address,
                                         &u->address_bytes);
  if (got != UCS_OK) return refused(u, "worker", got);
  if (u->address_bytes + sizeof u->peers->key <= AT_CARRIER_CARD) return AT_OK;
  return AT_FAIL(AT_UNAVAILABLE, "an address of %zu bytes, of UCX",
                 u->address_bytes);
}

// UNAVAILABLE: no library, or no transport. On failure nothing is left.
at_status at_ucx_open(uint32_t count, uint32_t me, bool any, bool local,
                      at_carrier **out) {
  const at_ucx_api *api;
  if (!any && !has_rdma())
    return AT_FAIL(AT_UNAVAILABLE, "this machine has no device of RDMA");
  AT_TRY(at_ucx_load(&api));
  ucx *u = calloc(1, sizeof *u + count * sizeof *u->peers);
  if (!u)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED,
                   "no memory for a wire of %u processes", count);
  u->face = (at_carrier){&kVtable, count, me, -1};
  u->api = api;
  pthread_mutex_init(&u->lock, NULL);
  at_status st = AT_OK;
  for (uint32_t i = 0; i < count && !st.err; i++) {
    u->peers[i].u = u;
    st = at_random(&u->peers[i].key, sizeof u->peers[i].key);
  }
  if (!st.err) st = enter_list(u);
  if (!st.err) st = make_context(u, any, local);
  if (!st.err) st = make_worker(u);
  if (st.err)
    free_ucx(u);
  else
    *out = &u->face;
  return st;
}

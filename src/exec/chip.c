// A virtual chip's memory: what is accounted in the target's padded layout,
// where the bytes really live, and the report when HBM is full.
#include <stdlib.h>

#include "base/config.h"
#include "base/log.h"
#include "exec/exec_internal.h"

// ATOLL_HBM, or what the target has.
static uint64_t hbm_of(const at_hw *hw) {
  uint64_t set = at_config_uint(AT_CONFIG_HBM);
  return set ? set : hw->hbm_bytes;
}

// Device `index` of the target. On failure there is nothing to finish.
at_status at_chip_init(at_chip *c, at_runtime *rt, const at_topology *t,
                       uint32_t index) {
  at_place place = at_topology_place(t, index);
  const at_hw *hw = place.hw;
  *c = (at_chip){.runtime = rt, .hw = hw, .body = c};
  c->info = (at_chip_info){
      .id = index,
      .slice_index = place.slice,
      .core_on_chip = place.core_on_chip,
      .num_cores = hw->cores_per_device,
      .coords = {place.coords[0], place.coords[1], place.coords[2]},
      .kind = hw->kind,
      .target = hw->name,
      .hbm_bytes = hbm_of(hw),
      .vmem_bytes = hw->vmem_bytes,
      .smem_bytes = hw->smem_bytes,
  };
  c->stats.limit = c->info.hbm_bytes;
  c->stats.reserved = hw->hbm_reserved_bytes;
  c->blocks = at_blocks_create();
  if (!c->blocks)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for device %u", index);
  pthread_mutex_init(&c->lock, NULL);
  return AT_OK;
}

// No work of it may be left.
void at_chip_fini(at_chip *c) {
  at_event_release(c->freed);
  at_blocks_destroy(c->blocks);
  pthread_mutex_destroy(&c->lock);
}

const at_chip_info *at_chip_info_of(const at_chip *c) { return &c->info; }

// A proxy is asked; what is known here is the answer where it fails.
at_memory_stats at_chip_memory_stats(const at_chip *c) {
  at_chip *m = c->body;
  const at_proxy *p = c->runtime->proxy;
  at_memory_stats there;
  if (p && !at_code_take(p->stats(p->arg, c->info.id, false, &there)))
    return there;
  pthread_mutex_lock(&m->lock);
  at_memory_stats s = m->stats;
  pthread_mutex_unlock(&m->lock);
  return s;
}

uint32_t at_chip_queued(const at_chip *c) { return atomic_load(&c->depth); }

// What a proxy answers does not matter: the counts here are cleared all the
// same.
void at_chip_memory_stats_clear(at_chip *c) {
  const at_proxy *p = c->runtime->proxy;
  at_memory_stats there;
  if (p) at_status_free(p->stats(p->arg, c->info.id, true, &there));
  c = c->body;
  pthread_mutex_lock(&c->lock);
  c->stats.peak_in_use = c->stats.in_use;
  c->stats.num_allocs = 0;
  c->stats.largest_alloc = 0;
  pthread_mutex_unlock(&c->lock);
}

// ---- The report
void at_size_print(uint64_t bytes, at_strbuf *b) {
  static const struct {
    uint64_t unit;
    const char *name;
  } units[] = {{1ull << 30, "G"}, {1ull << 20, "M"}, {1ull << 10, "K"}};
  for (size_t i = 0; i < AT_LEN(units); i++)
    if (bytes >= units[i].unit) {
      at_strbuf_addf(b, "%.2f%s", (double)bytes / (double)units[i].unit,
                     units[i].name);
      return;
    }
  at_strbuf_addf(b, "%lluB", (unsigned long long)bytes);
}

typedef struct holder {
  const at_buffer *example;
  uint64_t bytes, count;
} holder;
enum { kHolders = 8 };

// Arrays of one shape are one line of the report.
static bool same_shape(const at_buffer *a, const at_buffer *b) {
  return a->dtype == b->dtype && a->rank == b->rank &&
         memcmp(a->dims, b->dims, a->rank * sizeof *a->dims) == 0;
}

// Adds b to the table of the largest holders, which it keeps roughly sorted: a
// report, not an account.
static void add_holder(holder *top, const at_buffer *b) {
  holder h = {b, b->padded_bytes, 1};
  for (int i = 0; i < kHolders; i++)
    if (top[i].example && same_shape(top[i].example, b)) {
      top[i].bytes += b->padded_bytes;
      top[i].count++;
      for (; i > 0 && top[i].bytes > top[i - 1].bytes; i--) {
        holder swap = top[i];
        top[i] = top[i - 1];
        top[i - 1] = swap;
      }
      return;
    }
  for (int i = 0; i < kHolders; i++)
    if (h.bytes > top[i].bytes) {
      holder swap = top[i];
      top[i] = h;
      h = swap;
    }
}

// Which arrays fill the memory, for the error's detail.
static void print_holders(const at_chip *c, at_strbuf *b) {
  holder top[kHolders] = {0};
  uint64_t buffers = 0;
  for (const at_buffer *x = c->live; x; x = x->next) {
    if (x->kind != AT_MEM_DEVICE) continue;
    buffers++;
    add_holder(top, x);
  }
  at_strbuf_addf(b, "\ndetail: %s, ", c->info.kind);
  at_size_print(c->stats.in_use, b);
  at_strbuf_addz(b, " of ");
  at_size_print(c->stats.limit, b);
  at_strbuf_addf(b, " in use by %llu buffers; running launch ",
                 (unsigned long long)buffers);
  at_size_print(c->temp_in_use, b);
  at_strbuf_addz(b, ". The largest, padded to tiles:");
  for (int i = 0; i < kHolders && top[i].example; i++) {
    const at_buffer *x = top[i].example;
    at_strbuf_addz(b, "\n  ");
    at_size_print(top[i].bytes, b);
    at_strbuf_addf(b, " = %llu x ", (unsigned long long)top[i].count);
    at_shape_print(x->dtype, (at_dims){x->dims, x->rank}, b);
    at_strbuf_addz(b, " (");
    at_size_print(x->padded_bytes, b);
    at_strbuf_addz(b, " each, dense ");
    at_size_print(x->bytes, b);
    at_strbuf_addz(b, ")");
  }
}

// RESOURCE_EXHAUSTED in XLA's words, which clients parse, with the largest
// arrays as detail. Under the lock.
static at_status hbm_full(const at_chip *c, uint64_t bytes, const char *what) {
  at_strbuf b = {0};
  uint64_t free_bytes =
      c->stats.limit - AT_MIN(c->stats.in_use, c->stats.limit);
  at_strbuf_addf(&b, "Error allocating %s: Attempting to allocate ", what);
  at_size_print(bytes, &b);
  at_strbuf_addz(&b, ". That was not possible. There are ");
  at_size_print(free_bytes, &b);
  at_strbuf_addf(&b, " free.; (%lldx%lldx%lld_HBM%u)",
                 (long long)c->info.coords[0], (long long)c->info.coords[1],
                 (long long)c->info.coords[2], c->info.core_on_chip);
  print_holders(c, &b);
  at_strbuf_addz(&b,
                 "\nhint: delete or donate what is no longer needed, use a "
                 "smaller batch, shard over more chips, or name a larger chip "
                 "in ATOLL_TARGET");
  at_status st = at_strbuf_status(&b);
  if (at_ok(st)) st = AT_FAIL(AT_RESOURCE_EXHAUSTED, "%s", b.ptr);
  at_strbuf_free(&b);
  return st;
}

// The target's memory would have held it; this machine's does not.
static at_status host_full(const at_chip *c, uint64_t bytes) {
  at_strbuf b = {0};
  at_size_print(bytes, &b);
  at_status st =
      AT_FAIL(AT_RESOURCE_EXHAUSTED,
              "this machine has no %s of memory left for device %u\n"
              "detail: the target's HBM would hold it; the host's memory is "
              "what really stores it",
              b.ptr ? b.ptr : "more", c->info.id);
  at_strbuf_free(&b);
  return st;
}

// ---- Accounting, under the lock
static bool account(at_chip *c, uint64_t bytes) {
  uint64_t left = c->stats.limit - AT_MIN(c->stats.in_use, c->stats.limit);
  if (bytes > left) return false;
  c->stats.in_use += bytes;
  c->stats.num_allocs++;
  c->stats.peak_in_use = AT_MAX(c->stats.peak_in_use, c->stats.in_use);
  c->stats.largest_alloc = AT_MAX(c->stats.largest_alloc, bytes);
  return true;
}

// The event to fire once the lock is dropped, if somebody waits for memory.
static at_event *take_freed(at_chip *c) {
  at_event *e = c->freed;
  c->freed = NULL;
  atomic_store(&c->wanted, false);
  return e;
}

// Outside of the lock: callbacks of the event run here.
static void announce(at_event *freed) {
  if (!freed) return;
  at_event_fire(freed, AT_OK);
  at_event_release(freed);
}

// At the front of the live list.
static void list(at_chip *c, at_buffer *b) {
  AT_ASSERT(!b->listed);
  b->next = c->live;
  b->prev = NULL;
  if (c->live) c->live->prev = b;
  c->live = b;
  b->listed = true;
}

// b is in the list; under the lock.
static void unlist(at_chip *c, at_buffer *b) {
  if (b->prev)
    b->prev->next = b->next;
  else
    c->live = b->next;
  if (b->next) b->next->prev = b->prev;
  b->listed = false;
}

// Bytes that count against HBM: host memory kinds count none.
static uint64_t charge_of(const at_buffer *b) {
  return b->kind == AT_MEM_DEVICE ? b->padded_bytes : 0;
}

// Under the lock: will running work give memory back? The chip's own queue must
// not wait for itself.
static bool will_come_back(const at_chip *c, bool on_chip_queue) {
  if (c->transfers) return true;
  for (; c && !on_chip_queue; c = atomic_load(&c->next_view))
    if (atomic_load(&c->active)) return true;
  return false;
}

// Under the lock: the event to wait for, or NULL when nothing will come back.
// The wish is made known before the chip is seen to be active, and whoever
// makes it idle looks for wishes afterwards: neither can miss the other.
static at_event *wait_event(at_chip *c, bool on_chip_queue) {
  if (!c->freed) c->freed = at_event_create();
  atomic_store(&c->wanted, true);
  if (!c->freed || !will_come_back(c, on_chip_queue)) return NULL;
  return at_event_retain(c->freed);
}

// As wait_event, for who waits for room in a queue.
at_event *at_chip_next_notice(at_chip *c) {
  c = c->body;
  pthread_mutex_lock(&c->lock);
  if (!c->freed) c->freed = at_event_create();
  at_event *e = c->freed ? at_event_retain(c->freed) : NULL;
  atomic_store(&c->wanted, true);
  pthread_mutex_unlock(&c->lock);
  return e;
}

// One load where nobody waits.
void at_chip_notify(at_chip *c) {
  c = c->body;
  if (AT_LIKELY(!atomic_load(&c->wanted))) return;
  pthread_mutex_lock(&c->lock);
  at_event *freed = take_freed(c);
  pthread_mutex_unlock(&c->lock);
  announce(freed);
}

// ---- Spilling, under the lock
// The one that was used longest ago of those that nobody uses; NULL: none.
static at_buffer *oldest(const at_chip *c) {
  at_buffer *found = NULL;
  for (at_buffer *b = c->live; b; b = b->next) {
    if (b->pins || b->spilled || !b->owned || !b->data || !charge_of(b) ||
        !at_event_fired(b->ready))
      continue;
    if (!found || b->used < found->used) found = b;
  }
  return found;
}

// Under the lock: writes b away and gives its memory back.
static at_status spill(at_chip *c, at_buffer *b) {
  AT_TRY(at_spill_write(c->runtime->spill, b->data, b->bytes, &b->spilled_at));
  at_blocks_give(c->blocks, b->data, b->bytes);
  b->data = NULL;
  b->spilled = true;
  AT_ASSERT(charge_of(b) <= c->stats.in_use);
  c->stats.in_use -= charge_of(b);
  return AT_OK;
}

// As `account`, after making room.
static bool account_or_spill(at_chip *c, uint64_t bytes) {
  while (!account(c, bytes)) {
    at_buffer *b = c->runtime->spill ? oldest(c) : NULL;
    if (!b) return false;
    at_status st = spill(c, b);
    if (st.err) {
      at_log_once(AT_LOG_WARNING, "%s", at_status_message(st));
      return at_status_free(st), false;
    }
    at_log_once(AT_LOG_INFO,
                "device %u has no room: what is not used goes to "
                "ATOLL_SPILL_DIR",
                c->info.id);
  }
  return true;
}

// Under the lock: room, memory, bytes; on failure b stays spilled and nothing
// is accounted.
static at_status bring_back(at_chip *c, at_buffer *b) {
  if (!account_or_spill(c, charge_of(b)))
    return hbm_full(c, charge_of(b), "an array that was spilled");
  at_status st = AT_OK;
  b->data = at_blocks_take(c->blocks, b->bytes);
  if (!b->data)
    st = host_full(c, b->bytes);
  else
    st = at_spill_read(c->runtime->spill, b->spilled_at, b->data, b->bytes);
  if (st.err) {
    if (b->data) at_blocks_give(c->blocks, b->data, b->bytes);
    b->data = NULL;
    c->stats.in_use -= charge_of(b);
    return st;
  }
  at_spill_drop(c->runtime->spill, b->spilled_at, b->bytes);
  b->spilled = false;
  return AT_OK;
}

// Under the lock.
static at_status pin(at_chip *c, at_buffer *b) {
  b->used = ++c->uses;
  b->pins++;
  at_status st = b->spilled ? bring_back(c, b) : AT_OK;
  if (st.err) b->pins--;
  return st;
}

at_status at_chip_pin_slowly(at_chip *c, at_buffer *b) {
  c = c->body;
  pthread_mutex_lock(&c->lock);
  at_status st = pin(c, b);
  pthread_mutex_unlock(&c->lock);
  return st;
}

// Waits for `freed` and tries again, as long as running work may give memory
// back.
at_status at_chip_pin_in_time(at_chip *c, at_buffer *b) {
  c = c->body;
  for (;;) {
    pthread_mutex_lock(&c->lock);
    at_status st = pin(c, b);
    bool full = st.err && at_status_code(st) == AT_RESOURCE_EXHAUSTED;
    at_event *e = full ? wait_event(c, false) : NULL;
    pthread_mutex_unlock(&c->lock);
    if (!e) return st;
    at_status_free(st);
    at_status_free(at_event_wait(e));
    at_event_release(e);
  }
}

// Counts as a use: the array is the newest now.
void at_chip_unpin_slowly(at_chip *c, at_buffer *b) {
  c = c->body;
  pthread_mutex_lock(&c->lock);
  b->used = ++c->uses;
  if (b->pins) b->pins--;
  pthread_mutex_unlock(&c->lock);
}

// Accounts and takes a block under one lock, so that a failure of either leaves
// nothing. The wait is outside of the lock.
at_status at_chip_allocate(at_chip *c, at_buffer *b, bool on_chip_queue) {
  c = c->body;
  for (;;) {
    pthread_mutex_lock(&c->lock);
    bool fits = account_or_spill(c, charge_of(b));
    if (fits && !b->data) b->data = at_blocks_take(c->blocks, b->bytes);
    if (fits && b->data) {
      b->pins = 1;
      b->used = ++c->uses;
      list(c, b);
      pthread_mutex_unlock(&c->lock);
      return AT_OK;
    }
    if (fits) {
      c->stats.in_use -= charge_of(b);
      pthread_mutex_unlock(&c->lock);
      return host_full(c, b->bytes);
    }
    at_event *e = wait_event(c, on_chip_queue);
    if (!e) {
      at_status st = hbm_full(c, charge_of(b), "device buffer");
      pthread_mutex_unlock(&c->lock);
      return st;
    }
    pthread_mutex_unlock(&c->lock);
    at_status_free(at_event_wait(e));
    at_event_release(e);
  }
}

// What was never allocated costs no lock.
void at_chip_free(at_chip *c, at_buffer *b) {
  if (!b->listed && !b->data) return;
  c = c->body;
  pthread_mutex_lock(&c->lock);
  at_event *freed = NULL;
  if (b->listed) {
    unlist(c, b);
    AT_ASSERT(b->spilled || charge_of(b) <= c->stats.in_use);
    if (!b->spilled) c->stats.in_use -= charge_of(b);
    freed = take_freed(c);
  }
  if (b->owned && b->data) at_blocks_give(c->blocks, b->data, b->bytes);
  if (b->spilled) at_spill_drop(c->runtime->spill, b->spilled_at, b->bytes);
  b->spilled = false;
  b->data = NULL;
  pthread_mutex_unlock(&c->lock);
  announce(freed);
}

// Both sizes are the same in bytes; padding may differ by layout.
void at_chip_move(at_chip *c, at_buffer *from, at_buffer *to) {
  c = c->body;
  pthread_mutex_lock(&c->lock);
  AT_ASSERT(from->listed && from->data && !to->data && !to->listed);
  unlist(c, from);
  c->stats.in_use += charge_of(to);
  c->stats.in_use -= charge_of(from);
  to->data = from->data;
  from->data = NULL;
  to->pins = 1;
  to->used = ++c->uses;
  list(c, to);
  pthread_mutex_unlock(&c->lock);
}

// Only a program's own scratch is accounted: blocks of kernels come and go too
// fast to be worth a report.
at_status at_chip_take_scratch(at_chip *c, size_t bytes, bool accounted,
                               void **out) {
  c = c->body;
  pthread_mutex_lock(&c->lock);
  at_status st = AT_OK;
  void *p = NULL;
  if (accounted && !account_or_spill(c, bytes))
    st = hbm_full(c, bytes, "scratch memory of a program");
  else if (!(p = at_blocks_take(c->blocks, bytes))) {
    if (accounted) c->stats.in_use -= bytes;
    st = host_full(c, bytes);
  } else if (accounted) {
    c->temp_in_use += bytes;
  }
  pthread_mutex_unlock(&c->lock);
  *out = p;
  return st;
}

// NULL: nothing was taken.
void at_chip_give_scratch(at_chip *c, void *p, size_t bytes, bool accounted) {
  if (!p) return;
  c = c->body;
  pthread_mutex_lock(&c->lock);
  at_event *freed = NULL;
  if (accounted) {
    AT_ASSERT(bytes <= c->temp_in_use && bytes <= c->stats.in_use);
    c->stats.in_use -= bytes;
    c->temp_in_use -= bytes;
    freed = take_freed(c);
  }
  at_blocks_give(c->blocks, p, bytes);
  pthread_mutex_unlock(&c->lock);
  announce(freed);
}

// Counted under the lock that will_come_back reads it under.
void at_chip_transfer_begin(at_chip *c) {
  c = c->body;
  pthread_mutex_lock(&c->lock);
  c->transfers++;
  pthread_mutex_unlock(&c->lock);
}

// Who waits for memory looks again, as this transfer was a reason to wait.
void at_chip_transfer_end(at_chip *c) {
  c = c->body;
  pthread_mutex_lock(&c->lock);
  AT_ASSERT(c->transfers > 0);
  c->transfers--;
  at_event *freed = take_freed(c);
  pthread_mutex_unlock(&c->lock);
  announce(freed);
}

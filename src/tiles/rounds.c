// Rounds of an exchange: messages to single receivers are edges between senders
// and receivers; coloured with as many colours as the busiest tile has
// messages, each colour is a round in which nobody waits (Koenig's theorem, by
// alternating paths).
#include "base/verify.h"
#include "tiles/tiles_internal.h"

// An edge colouring under way: nodes are senders [0, tiles) and receivers
// [tiles, 2 tiles).
typedef struct colouring {
  uint32_t colours;
  uint32_t *at;  // [2 tiles][colours]: message + 1 that a side has in a colour
  uint32_t *round;  // per message
  const at_tiles_exchange *x;
  size_t tiles;
} colouring;

// The message that `node` has in a colour, + 1; 0: none.
static uint32_t *slot(const colouring *c, size_t node, uint32_t colour) {
  return &c->at[node * c->colours + colour];
}
static size_t sender(const colouring *c, uint32_t m) {
  return c->x->messages[m].from;
}
static size_t receiver(const colouring *c, uint32_t m) {
  return c->tiles + c->x->receivers[c->x->messages[m].first];
}
// A colour that `node` has not used. There is one: no node has more messages
// than there are colours.
static uint32_t spare(const colouring *c, size_t node) {
  uint32_t k = 0;
  while (k < c->colours && *slot(c, node, k)) k++;
  AT_ASSERT(k < c->colours);
  return k;
}

// Makes colour a free at `node`, where b is: the path of a and b from there
// changes sides. It cannot reach the other end of the edge that asks.
static void swap_path(colouring *c, size_t node, uint32_t a, uint32_t b) {
  uint32_t m = *slot(c, node, a), carried = 0;
  *slot(c, node, a) = 0;
  while (m) {
    size_t s = sender(c, m - 1), r = receiver(c, m - 1),
           other = s == node ? r : s;
    *slot(c, node, b) = m;
    c->round[m - 1] = b;
    carried = *slot(c, other, b);
    *slot(c, other, b) = m;
    if (*slot(c, other, a) == m) *slot(c, other, a) = 0;
    node = other;
    m = carried;
    uint32_t t = a;
    a = b, b = t;
  }
}

// Has every message its round to itself, at both of its ends?
static bool is_coloured(const colouring *c) {
  for (uint32_t i = 0; i < c->x->num_messages; i++)
    if (*slot(c, sender(c, i), c->round[i]) != i + 1 ||
        *slot(c, receiver(c, i), c->round[i]) != i + 1)
      return false;
  return true;
}

// Counts every node's messages in degree, and gives the most.
static uint32_t busiest(const at_tiles_exchange *x, size_t tiles,
                        uint32_t *degree) {
  uint32_t most = 0;
  for (size_t i = 0; i < x->num_messages; i++) {
    uint32_t a = ++degree[x->messages[i].from];
    uint32_t b = ++degree[tiles + x->receivers[x->messages[i].first]];
    most = AT_MAX(most, AT_MAX(a, b));
  }
  return most;
}

// Adds one message at a time, with a colour that is free at both ends, made so
// by swapping a path if need be.
bool at_tiles_rounds(const at_tiles_machine *m, const at_tiles_exchange *x,
                     uint32_t *round) {
  enum { kMaxSlots = 1 << 23 };
  for (size_t i = 0; i < x->num_messages; i++)
    if (x->messages[i].count != 1) return false;
  colouring c = {.x = x, .tiles = (size_t)m->tiles, .round = round};
  uint32_t *degree = calloc(2 * c.tiles, sizeof *degree);
  if (!degree) return false;
  c.colours = busiest(x, c.tiles, degree);
  free(degree);
  size_t slots = at_mul(2 * c.tiles, c.colours);
  if (slots > kMaxSlots || !(c.at = calloc(slots + 1, sizeof *c.at)))
    return false;
  for (uint32_t i = 0; i < x->num_messages; i++) {
    size_t s = sender(&c, i), r = receiver(&c, i);
    uint32_t a = spare(&c, s), b = spare(&c, r);
    if (a != b && *slot(&c, r, a)) swap_path(&c, r, a, b);
    AT_ASSERT(!*slot(&c, s, a) && !*slot(&c, r, a));
    *slot(&c, s, a) = *slot(&c, r, a) = i + 1;
    round[i] = a;
  }
  AT_VERIFY(is_coloured(&c));
  free(c.at);
  return true;
}

// How the devices of a collective lie on the machine's fast domains.
#include "cost/cost_internal.h"

// The device of a member.
static uint32_t id_of(const at_groups *g, uint32_t group, uint32_t member) {
  uint32_t at = group * g->size + member;
  return g->ids ? g->ids[at] : at;
}

// Groups that are ranges need no counting.
at_scheme at_collective_scheme(const at_collective *c, uint32_t domain) {
  if (!domain) domain = 8;
  if (c->op == AT_PERMUTE) {
    for (uint32_t i = 0; i < c->num_pairs; i++)
      if (c->pairs[i][0] / domain != c->pairs[i][1] / domain)
        return AT_SCHEME_NON_RAIL;
    return AT_SCHEME_INTRA;
  }
  const at_groups *g = &c->groups;
  if (!g->ids) {  // each group is a range
    bool fits = (uint64_t)g->count * g->size <= domain;
    bool even = g->size && g->size <= domain && domain % g->size == 0;
    return fits || even            ? AT_SCHEME_INTRA
           : g->size % domain == 0 ? AT_SCHEME_RAIL_ALIGNED
                                   : AT_SCHEME_NON_RAIL;
  }
  bool inside = true, whole = true;
  for (uint32_t k = 0; k < g->count && (inside || whole); k++) {
    uint32_t first = g->size ? id_of(g, k, 0) / domain : 0;
    for (uint32_t i = 0; i < g->size; i++) {
      uint32_t mine = id_of(g, k, i) / domain, here = 0;
      inside &= mine == first;
      // Members of the same domain follow each other in every list that
      // compilers write; counting is only needed once per run.
      if (!whole || (i && id_of(g, k, i - 1) / domain == mine)) continue;
      for (uint32_t j = 0; j < g->size; j++)
        here += id_of(g, k, j) / domain == mine;
      whole &= here == domain;
    }
  }
  return inside  ? AT_SCHEME_INTRA
         : whole ? AT_SCHEME_RAIL_ALIGNED
                 : AT_SCHEME_NON_RAIL;
}

// Mutual if every pair is answered.
at_permute_kind at_collective_permute_kind(const at_collective *c) {
  bool both = false, mutual = true;
  for (uint32_t i = 0; i < c->num_pairs; i++) {
    bool answered = false;
    for (uint32_t j = 0; j < c->num_pairs; j++) {
      answered |=
          c->pairs[j][0] == c->pairs[i][1] && c->pairs[j][1] == c->pairs[i][0];
      both |= c->pairs[j][1] == c->pairs[i][0];
    }
    mutual &= answered;
  }
  if (!both) return AT_PERMUTE_ONE_WAY;
  return mutual ? AT_PERMUTE_MUTUAL : AT_PERMUTE_NON_MUTUAL;
}

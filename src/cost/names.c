// Names of the room's enumerations.
#include "cost/cost.h"

const char *at_cost_source_text(at_cost_source s) {
  static const char *const names[AT_COST_SOURCE_COUNT] = {
      [AT_COST_FREE] = "free",
      [AT_COST_FROM_ATTRIBUTE] = "attribute",
      [AT_COST_FROM_PROFILE] = "profile",
      [AT_COST_FROM_TABLE] = "table",
      [AT_COST_FROM_FALLBACK] = "fallback table",
      [AT_COST_FROM_S_CURVE] = "S-curve",
      [AT_COST_FROM_NVLINK] = "NVLink kernel",
      [AT_COST_FROM_TORUS] = "torus",
      [AT_COST_FROM_HOST_LINK] = "host link",
      [AT_COST_FROM_FUSION] = "fusion model",
      [AT_COST_FROM_KERNEL] = "kernel model",
      [AT_COST_FROM_HOST] = "host model",
      [AT_COST_FROM_ROOFLINE] = "roofline",
      [AT_COST_FROM_CLASS] = "class",
  };
  return (unsigned)s < AT_COST_SOURCE_COUNT ? names[s] : "unknown";
}

static const char *const interp_names[] = {"seed", "xla", "atoll"};

bool at_interp_parse(at_str text, at_interp *out) {
  for (size_t i = 0; i < AT_LEN(interp_names); i++)
    if (at_str_is(text, interp_names[i])) return *out = (at_interp)i, true;
  return false;
}

const char *at_interp_text(at_interp mode) {
  return (unsigned)mode < AT_LEN(interp_names) ? interp_names[mode] : "unknown";
}

static const char *const collective_names[AT_COLLECTIVE_COUNT] = {
    [AT_ALL_REDUCE] = "all-reduce",
    [AT_ALL_GATHER] = "all-gather",
    [AT_REDUCE_SCATTER] = "reduce-scatter",
    [AT_ALL_TO_ALL] = "all-to-all",
    [AT_PERMUTE] = "collective-permute",
    [AT_BROADCAST] = "collective-broadcast"};

const char *at_collective_text(at_collective_op op) {
  return (unsigned)op < AT_COLLECTIVE_COUNT ? collective_names[op] : "unknown";
}

bool at_collective_parse(at_str text, at_collective_op *out) {
  for (size_t i = 0; i < AT_COLLECTIVE_COUNT; i++)
    if (at_str_is(text, collective_names[i]))
      return *out = (at_collective_op)i, true;
  return false;
}

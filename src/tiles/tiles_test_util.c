#include "tiles/tiles_test_util.h"

void expect_error(at_status s, at_code code, const char *const *words,
                  size_t n) {
  assert_false(at_ok(s));
  if (at_status_code(s) != code)
    fail_msg("%s: %s", at_code_name(at_status_code(s)), at_status_message(s));
  for (size_t i = 0; i < n; i++)
    if (!strstr(at_status_message(s), words[i]))
      fail_msg("no \"%s\" in: %s", words[i], at_status_message(s));
  at_status_free(s);
}

at_tiles_machine mk2(void) {
  const at_machine *m;
  at_tiles_machine t;
  ok(at_machine_find(AT_STR("mk2"), &m));
  ok(at_tiles_machine_read(m, &t));
  return t;
}

at_tiles_graph *graph(void) {
  at_tiles_machine m = mk2();
  at_tiles_graph *g;
  ok(at_tiles_graph_create(&m, &g));
  return g;
}

const at_tiles_view *variable(at_tiles_graph *g, const char *name,
                              at_dims dims) {
  const at_tiles_view *v;
  ok(at_tiles_variable_add(g, name, AT_F32, dims, &v));
  return v;
}

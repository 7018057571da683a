// Rules of the TPU's memory plan, by programs of which each shows one. The
// figures are libtpu's.
#include "estimate/estimate_test_util.h"

// Scores that a tanh caps, which others read as well: the tanh is stored, and
// what follows from it computed again. 128 MiB in libtpu 0.0.52, not 256.
static void capped_scores_are_stored_before(void **state) {
#define Q "tensor<4x8x1024x128xf32>"
#define S "tensor<4x8x1024x1024xf32>"
#define R "tensor<4x8x1024xf32>"
#define SUM(of, how)                                \
  "stablehlo.reduce(" of ") applies stablehlo." how \
  " across dimensions ="                            \
  " [3] : (" S ", tensor<f32>) -> " R "\n"
#define SPREAD(of) \
  "stablehlo.broadcast_in_dim " of ", dims = [0, 1, 2] : (" R ") -> " S "\n"
  static const char text[] =
      "func.func public @main(%q: " Q ", %k: " Q ", %v: " Q ") -> (" Q ", " R
      ") {\n%d = stablehlo.dot_general %q, %k, batching_dims = [0, 1] x [0, 1]"
      ", contracting_dims = [3] x [3] : (" Q ", " Q ") -> " S
      "\n%y = stablehlo.tanh %d : " S
      "\n%f = stablehlo.constant dense<50.0> : " S
      "\n%s = stablehlo.multiply %y, %f : " S
      "\n%i = stablehlo.constant dense<0xFF800000> : tensor<f32>\n"
      "%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
      "%m = " SUM("%s init: %i", "maximum") "%b = " SPREAD(
          "%m") "%c = stablehlo.subtract %s, %b : " S
                "\n%e = stablehlo.exponential %c : " S
                "\n%t = " SUM("%e init: %z", "add") "%u = " SPREAD(
                    "%t") "%p = stablehlo.divide %e, %u : " S
                          "\n%o = stablehlo.dot_general %p, %v, batching_dims "
                          "= [0, 1] x [0, 1], contracting_dims = [3] x [2] : "
                          "(" S ", " Q ") -> " Q
                          "\n%x = stablehlo.multiply %y, %y : " S "\n%w = " SUM(
                              "%x init: %z", "add") "return %o, %w : " Q ", " R
                                                    "\n}\n";
  at_arena *a = at_arena_create();
  is_mib(estimate(a, "v5e", text), 128);
  at_arena_destroy(a);
#undef Q
#undef S
#undef R
#undef SUM
#undef SPREAD
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(capped_scores_are_stored_before),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

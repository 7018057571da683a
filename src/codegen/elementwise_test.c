#include "codegen/check.h"

static const uint64_t k_targets[] = {~0ull, AT_CPU_AVX2};

static void test_f32_add(void **state) {
  for (size_t f = 0; f < AT_LEN(k_targets); f++) {
    ck c;
    ck_begin(&c, k_targets[f]);
    static const int64_t sizes[] = {0, 1, 3, 16, 17, 64, 1000, 100003};
    for (size_t i = 0; i < AT_LEN(sizes); i++) {
      at_type t = ck_type(&c, AT_F32, 1, &sizes[i]), two[] = {t, t};
      ck_op(&c, AT_OP_ADD, two, 2, NULL, 0, NULL, true);
    }
    ck_end(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_f32_add)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

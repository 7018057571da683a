// Loops that are split where the parts of what they move begin and end:
// elements as the evaluator has them, and no choice between parts at run time.
#include "codegen/check.h"

static const uint64_t k_targets[] = {~0ull, AT_CPU_AVX2};

#define SLICE(from, lo, hi, type)                                 \
  " = slice " from " {start_indices=[" lo "], limit_indices=[" hi \
  "], strides=[1,1,1]} : " type "\n"

typedef struct piece_case {
  const char *type, *result, *lines;
  bool branches;  // some elements are of one part or another all the same
} piece_case;

static const piece_case k_cases[] = {
    // Around an image: the other side, the mirror image, the edge.
    {"ui8[9,25,51]", "ui8[9,29,72]",
     "%1" SLICE("%0", "0,23,0", "9,25,51", "ui8[9,2,51]") "%2" SLICE(
         "%0", "0,0,0", "9,2,51",
         "ui8[9,2,51]") "%3 = concatenate %1, %0, %2 {dimension=1} : "
                        "ui8[9,29,51]\n"
                        "%4" SLICE(
                            "%3", "0,0,33", "9,29,51",
                            "ui8[9,29,18]") "%5" SLICE("%3", "0,0,0", "9,29,3",
                                                       "ui8[9,29,3]") "%6 = "
                                                                      "concaten"
                                                                      "ate %4, "
                                                                      "%3, %5 "
                                                                      "{dimensi"
                                                                      "on=2} : "
                                                                      "ui8[9,"
                                                                      "29,72]\n"
                                                                      "return "
                                                                      "%6",
     false},
    {"f32[10,40,3]", "f32[10,46,3]",
     "%1" SLICE(
         "%0", "0,1,0", "10,4,3",
         "f32[10,3,3]") "%2 = reverse %1 {dimensions=[1]} : f32[10,3,3]\n"
                        "%3" SLICE(
                            "%0", "0,36,0", "10,39,3",
                            "f32[10,3,3]") "%4 = reverse %3 {dimensions=[1]} : "
                                           "f32[10,3,3]\n"
                                           "%5 = concatenate %2, %0, %4 "
                                           "{dimension=1} : f32[10,46,3]\n"
                                           "return %5",
     false},
    {"bf16[9,21,35]", "bf16[9,23,38]",
     "%1" SLICE("%0", "0,0,0", "9,1,35", "bf16[9,1,35]") "%2" SLICE(
         "%0", "0,20,0", "9,21,35",
         "bf16[9,1,35]") "%3 = concatenate %1, %0, %2 {dimension=1} : "
                         "bf16[9,23,35]\n"
                         "%4" SLICE(
                             "%3", "0,0,34", "9,23,35",
                             "bf16[9,23,1]") "%5 = broadcast_in_dim %4 "
                                             "{broadcast_dimensions=[0,1,3]} : "
                                             "bf16[9,23,3,1]\n"
                                             "%6 = reshape %5 : bf16[9,23,3]\n"
                                             "%7 = concatenate %3, %6 "
                                             "{dimension=2} : bf16[9,23,38]\n"
                                             "return %7",
     false},
    // A pixel-wise mirror image beside the image, above the two turned over.
    {"ui8[4,13,63]", "ui8[4,26,126]",
     "%1 = reshape %0 : ui8[4,13,21,3]\n"
     "%2 = reverse %1 {dimensions=[2]} : ui8[4,13,21,3]\n"
     "%3 = concatenate %1, %2 {dimension=2} : ui8[4,13,42,3]\n"
     "%4 = reverse %3 {dimensions=[1]} : ui8[4,13,42,3]\n"
     "%5 = concatenate %3, %4 {dimension=1} : ui8[4,26,42,3]\n"
     "%6 = reshape %5 : ui8[4,26,126]\n"
     "return %6",
     false},
    // Parts read backwards, and every second element of one.
    {"i32[12,3,40]", "i32[12,3,70]",
     "%1 = slice %0 {start_indices=[0,0,1], limit_indices=[12,3,40], "
     "strides=[1,1,2]} : i32[12,3,20]\n"
     "%2" SLICE(
         "%0", "0,0,0", "12,3,10",
         "i32[12,3,10]") "%3 = concatenate %2, %0, %1 {dimension=2} : "
                         "i32[12,3,70]\n"
                         "%4 = reverse %3 {dimensions=[2]} : i32[12,3,70]\n"
                         "return %4",
     false},
    // Neighbours of a padded row: cuts of every one of them.
    {"f32[64,2,50]", "f32[64,2,50]",
     "%1 = constant {value=f32[] 2.5} : f32[]\n"
     "%2 = pad %0, %1 {edge_padding_low=[0,0,1], edge_padding_high=[0,0,1], "
     "interior_padding=[0,0,0]} : f32[64,2,52]\n"
     "%3" SLICE("%2", "0,0,0", "64,2,50", "f32[64,2,50]") "%4" SLICE(
         "%2", "0,0,2", "64,2,52",
         "f32[64,2,50]") "%5 = subtract %4, %3 : f32[64,2,50]\n"
                         "%6 = multiply %5, %0 : f32[64,2,50]\n"
                         "return %6",
     false},
    // Holes between elements, and a part that begins at data: no cut tells.
    {"f32[9,2,30]", "f32[9,2,61]",
     "%1 = constant {value=f32[] 1.5} : f32[]\n"
     "%2 = pad %0, %1 {edge_padding_low=[0,0,1], edge_padding_high=[0,0,1], "
     "interior_padding=[0,0,1]} : f32[9,2,61]\n"
     "return %2",
     true},
    // More parts than are split.
    {"i8[20,2,30]", "i8[20,2,480]",
     "%1 = concatenate %0, %0, %0, %0, %0, %0, %0, %0, %0, %0, %0, %0, %0, "
     "%0, %0, %0 {dimension=2} : i8[20,2,480]\n"
     "return %1",
     true},
};

// As a fusion of one operand.
static ck_case *add(ck *c, const piece_case *k) {
  char params[64], line[2048];
  snprintf(params, sizeof params, "%%20: %s", k->type);
  snprintf(line, sizeof line,
           "%%30 = fusion %%20 {kind=LOOP} ((%%0: %s) {\n%s\n}) : %s\n"
           "return %%30",
           k->type, k->lines, k->result);
  return ck_text(c, params, k->result, line);
}

static void test_elements(void **state) {
  for (size_t f = 0; f < AT_LEN(k_targets); f++) {
    ck c;
    ck_begin(&c, k_targets[f]);
    for (size_t i = 0; i < AT_LEN(k_cases); i++) add(&c, &k_cases[i]);
    ck_end(&c);
  }
}

// The code, as it is before LLVM's own steps.
static bool code_chooses(const piece_case *k) {
  ck c;
  ck_begin(&c, ~0ull);
  at_cg_target t = {.cpu_features = AT_CPU_AVX2 | AT_CPU_AVX512,
                    .threads = 1,
                    .opt_level = 2,
                    .verify = true};
  at_cg *cg;
  at_cg_plan plan;
  at_strbuf s = {0};
  ck_ok(at_cg_create(&t, &cg));
  ck_ok(at_cg_node(cg, add(&c, k)->node, NULL, c.arena, &plan));
  ck_ok(at_cg_print(cg, false, &s));
  bool chooses = strstr(s.ptr, " select ") || strstr(s.ptr, "masked.load");
  at_strbuf_free(&s);
  at_cg_destroy(cg);
  free(c.cases);
  at_arena_destroy(c.arena);
  return chooses;
}

static void test_parts_are_known(void **state) {
  for (size_t i = 0; i < AT_LEN(k_cases); i++)
    if (code_chooses(&k_cases[i]) != k_cases[i].branches)
      fail_msg("case %zu: %s", i,
               k_cases[i].branches ? "no part is chosen at run time"
                                   : "a part is chosen at run time");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_elements),
                                     cmocka_unit_test(test_parts_are_known)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

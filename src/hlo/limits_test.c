// Limits of shape rules: for each the last value that a rule takes and the
// first that it refuses, %d in the program.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
// cmocka wants the headers above first.
#include <cmocka.h>

#include "hlo/hlo.h"

// One op on parameters; what it gives is not used.
typedef struct limit {
  const char *params, *op;
  int good, bad;
} limit;

#define ADD                      \
  "((%90: f32[], %91: f32[]) { " \
  "%92 = add %90, %91 : f32[] return %92 })"

// One per limit of a rule.
static const limit limits[] = {
    {"%0: f32[4]",
     "%9 = slice %0 {start_indices=[%d], limit_indices=[4], strides=[1]}", 4,
     5},
    {"%0: f32[4]",
     "%9 = slice %0 {start_indices=[%d], limit_indices=[4], strides=[1]}", 0,
     -1},
    {"%0: f32[4]",
     "%9 = slice %0 {start_indices=[0], limit_indices=[%d], strides=[1]}", 4,
     5},
    {"%0: f32[4]",
     "%9 = slice %0 {start_indices=[0], limit_indices=[4], strides=[%d]}", 1,
     0},
    {"%0: f32[2,3]", "%9 = transpose %0 {permutation=[1,%d]}", 0, 2},
    {"%0: f32[2,3]", "%9 = transpose %0 {permutation=[1,%d]}", 0, -1},
    {"%0: f32[2,3], %1: f32[2,3]", "%9 = concatenate %0, %1 {dimension=%d}", 1,
     2},
    {"%0: f32[2,3], %1: f32[2,3]", "%9 = concatenate %0, %1 {dimension=%d}", 0,
     -1},
    {"%0: f32[2,3], %1: f32[2,%d]", "%9 = concatenate %0, %1 {dimension=0}", 3,
     4},
    {"%0: f32[4], %1: i32[]", "%9 = dynamic_slice %0, %1 {slice_sizes=[%d]}", 4,
     5},
    {"%0: f32[4], %1: i32[]", "%9 = dynamic_slice %0, %1 {slice_sizes=[%d]}", 0,
     -1},
    {"%0: f32[4], %1: f32[%d], %2: i32[]",
     "%9 = dynamic_update_slice %0, %1, %2", 4, 5},
    {"%0: f32[2], %1: f32[]",
     "%9 = pad %0, %1 {edge_padding_low=[%d], edge_padding_high=[0], "
     "interior_padding=[0]}",
     -2, -3},
    {"%0: f32[2], %1: f32[]",
     "%9 = pad %0, %1 {edge_padding_low=[0], edge_padding_high=[%d], "
     "interior_padding=[1]}",
     -3, -4},
    {"%0: f32[2], %1: f32[]",
     "%9 = pad %0, %1 {edge_padding_low=[0], edge_padding_high=[0], "
     "interior_padding=[%d]}",
     0, -1},
    {"%0: f32[2,3]", "%9 = reverse %0 {dimensions=[%d]}", 1, 2},
    {"%0: f32[2,3]", "%9 = reverse %0 {dimensions=[%d]}", 0, -1},
    {"%0: f32[2,3], %1: f32[]", "%9 = reduce %0, %1 {dimensions=[%d]} " ADD, 1,
     2},
    {"%0: f32[2,3], %1: f32[]", "%9 = reduce %0, %1 {dimensions=[%d]} " ADD, 0,
     -1},
    {"%0: f32[2]",
     "%9 = broadcast_in_dim %0 {broadcast_dimensions=[%d]} : f32[2,2]", 1, 2},
    {"%0: f32[2]",
     "%9 = broadcast_in_dim %0 {broadcast_dimensions=[0]} : f32[%d]", 2, 3},
    {"%0: f32[1,2]",
     "%9 = broadcast_in_dim %0 {broadcast_dimensions=[0,%d]} : f32[2,2]", 1, 0},
    {"%0: f32[6]", "%9 = reshape %0 : f32[%d]", 6, 7},
    {"%0: f32[]", "%9 = iota {dimension=%d} : f32[2,3]", 1, 2},
    {"%0: f32[]", "%9 = iota {dimension=%d} : f32[2,3]", 0, -1},
    {"%0: f32[4]",
     "%9 = sort %0 {dimension=%d} ((%3: f32[], %4: f32[]) { %5 = compare %3, "
     "%4 {comparison_direction=LT} return %5 }) : f32[4]",
     0, 1},
    {"%0: f32[4]", "%9:2 = top_k %0 {k=%d}", 4, 5},
    {"%0: f32[4]", "%9:2 = top_k %0 {k=%d}", 0, -1},
    {"%0: f32[2,3], %1: f32[3,4]",
     "%9 = dot_general %0, %1 {lhs_contracting_dimensions=[%d], "
     "rhs_contracting_dimensions=[0]}",
     1, 2},
    {"%0: f32[2,3], %1: f32[3,4]",
     "%9 = dot_general %0, %1 {lhs_contracting_dimensions=[1], "
     "rhs_contracting_dimensions=[%d]}",
     0, -1},
    {"%0: f32[2,3], %1: f32[%d,4]",
     "%9 = dot_general %0, %1 {lhs_contracting_dimensions=[1], "
     "rhs_contracting_dimensions=[0]}",
     3, 4},
    {"%0: f32[2]", "%9 = bitcast_convert %0 : f16[2,%d]", 2, 3},
    {"%0: f16[2,%d]", "%9 = bitcast_convert %0 : f32[2]", 2, 3},
    {"%0: f32[%d,2]", "%9 = bitcast_convert %0 : f16[3,2,2]", 3, 4},
    {"%0: f32[3,%d]", "%9 = bitcast_convert %0 : f16[3,2,2]", 2, 3},
    {"%0: f16[%d,2]", "%9 = bitcast_convert %0 : f32[3]", 3, 4},
    {"%0: f32[2,3]", "%9 = get_dimension_size %0 {dimension=%d}", 1, 2},
    {"%0: f32[2,%d]", "%9 = cholesky %0", 2, 3},
    {"%0: f32[2,2], %1: f32[%d,3]",
     "%9 = triangular_solve %0, %1 {left_side=true}", 2, 3},
    {"%0: complex<f32>[4]", "%9 = fft %0 {fft_type=FFT, fft_length=[%d]}", 4,
     5},
    {"%0: f32[4], %1: f32[]",
     "%9 = reduce_window %0, %1 {window_dimensions=[%d], "
     "window_strides=[1]} " ADD,
     4, 0},
    {"%0: f32[4], %1: f32[]",
     "%9 = reduce_window %0, %1 {window_dimensions=[1], "
     "window_strides=[%d]} " ADD,
     1, 0},
    {"%0: i1[%d], %1: f32[4]", "%9 = select %0, %1, %1", 4, 3},
    {"%0: f32[%d], %1: f32[4]", "%9 = clamp %0, %1, %0", 4, 3},
    {"%0: f32[%d], %1: f32[4]", "%9 = compare %0, %1 {comparison_direction=LT}",
     4, 3},
    {"%0: f32[4]",
     "%9 = reduce_precision %0 {exponent_bits=%d, mantissa_bits=3}", 1, 0},
    {"%0: f32[4]",
     "%9 = reduce_precision %0 {exponent_bits=4, mantissa_bits=%d}", 0, -1},
};

// The row's program with its number put in.
static at_status load(const limit *l, int value, at_arena *a) {
  char text[1024], params[256], op[512];
  // Not a format: %0 is a value.
  const char *in[2] = {l->params, l->op};
  char *out[2] = {params, op};
  size_t room[2] = {sizeof params, sizeof op};
  for (int i = 0; i < 2; i++) {
    const char *at = strstr(in[i], "%d");
    if (at)
      snprintf(out[i], room[i], "%.*s%d%s", (int)(at - in[i]), in[i], value,
               at + 2);
    else
      snprintf(out[i], room[i], "%s", in[i]);
  }
  snprintf(text, sizeof text,
           "hlo module \"t\" entry=\"main\" {\nfunc \"main\" (%s, %%99: f32[]) "
           "-> (f32[]) {\n%s\nreturn %%99\n}\n}\n",
           params, op);
  at_module *m;
  at_status s = at_hlo_parse(at_str_of(text), a, &m);
  return at_ok(s) ? at_verify(m, "test") : s;
}

// Both sides of each limit, or the rule may be off by one.
static void last_is_taken_and_next_refused(void **state) {
  for (size_t i = 0; i < AT_LEN(limits); i++) {
    const limit *l = &limits[i];
    at_arena *a = at_arena_create();
    at_status good = load(l, l->good, a), bad = load(l, l->bad, a);
    if (!at_ok(good))
      fail_msg("%s, %d: %s", l->op, l->good, at_status_message(good));
    if (at_ok(bad)) fail_msg("%s, %d: not refused", l->op, l->bad);
    at_status_free(bad);
    at_arena_destroy(a);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(last_is_taken_and_next_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// Shape rules, laws of the graph and text errors: each bad program is refused
// with a message that names the op and the facts. cmocka.h needs the others
// first.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <stdio.h>

#include "hlo/hlo.h"

// Parses and verifies a program around one body.
static at_status load(at_arena *a, const char *params, const char *types,
                      const char *body, at_module **out) {
  const char *text = at_arena_printf(
      a,
      "hlo module \"t\" entry=\"main\" {\nfunc \"main\" (%s) -> (%s) {\n%s}\n"
      "func \"g\" (%%800: f32[2]) -> (f32[2]) { return %%800 }\n}\n",
      params, types, body);
  AT_TRY(at_hlo_parse(at_str_of(text), a, out));
  return at_verify(*out, "test");
}

// A function's parameters, result types and body, and words of the message.
typedef struct bad {
  const char *params, *types, *body, *message;
} bad;

#define ADD32                   \
  "(%90: f32[], %91: f32[]) { " \
  "%92 = add %90, %91 : f32[] return %92 }"

#define GATHER                                                            \
  "all_gather %0 {replica_groups=[[0]], all_gather_dim=0, async=true} : " \
  "f32[2]"

// One per rule or law that is broken.
static const bad bads[] = {
    {"%0: f32[2], %1: f32[3]", "f32[2]", "%2 = add %0, %1 return %2",
     "add: operand 0 is f32[2], operand 1 is f32[3]"},
    {"%0: f32[2], %1: f32[2]", "f32[3]", "%2 = add %0, %1 : f32[3] return %2",
     "result 0 is declared f32[3], its operands give f32[2]"},
    {"%0: i32[2]", "i32[2]", "%2 = sine %0 : i32[2] return %2",
     "sine: operand 0 has element type i32"},
    {"%0: f32[2]", "f32[2]", "%2 = not %0 : f32[2] return %2",
     "not: operand 0"},
    {"%0: f32[2]", "f32[2]", "%2 = add %0 : f32[2] return %2",
     "add: has 1 operands, takes 2"},
    {"%0: f32[2]", "f32[2]", "%2 = tanh %0 {dimension=1} : f32[2] return %2",
     "tanh: has no attribute \"dimension\""},
    {"%0: f32[2,3]", "f32[3,2]",
     "%2 = transpose %0 {permutation=[0,0]} return %2", "names 0 twice"},
    {"%0: f32[2,3]", "f32[5]", "%2 = reshape %0 : f32[5] return %2",
     "has 5 elements, operand has 6"},
    {"%0: f32[2,3]", "f32[2]",
     "%2 = slice %0 {start_indices=[0,2], limit_indices=[2,4], strides=[1,1]} "
     "return %2",
     "[2:4:1] does not slice dimension 1 of f32[2,3]"},
    {"%0: f32[2]", "f32[3]",
     "%2 = broadcast_in_dim %0 {broadcast_dimensions=[0]} : f32[3] return %2",
     "operand dimension 0 (2) is neither 1"},
    {"%0: f32[2,3], %1: f32[4]", "f32[2]",
     "%2 = dot_general %0, %1 {lhs_contracting_dimensions=[1], "
     "rhs_contracting_dimensions=[0]} return %2",
     "lhs_contracting_dimensions 1 is 3 long, rhs_contracting_dimensions 0 is "
     "4"},
    {"%0: f32[2], %1: f32[3]", "f32[4]",
     "%2 = concatenate %0, %1 {dimension=1} return %2", "not in [0, 1)"},
    {"%0: f32[2], %1: f32[]", "f32[]",
     "%2 = pad %0, %1 {edge_padding_low=[-2], edge_padding_high=[-1], "
     "interior_padding=[0]} return %2",
     "is negative"},
    {"%0: f32[2], %1: f32[]", "f32[]",
     "%2 = reduce %0, %1 {dimensions=[1]} (" ADD32 ") return %2",
     "dimensions[0] = 1 is not in [0, 1)"},
    {"%0: f32[2], %1: i32[]", "f32[2]",
     "%2 = sort %0 {dimension=0} ((%3: f32[], %4: f32[]) { return %3 }) : "
     "f32[2] "
     "return %2",
     "region result 0 is f32[], must be i1[]"},
    {"%0: f32[2], %1: i32[]", "f32[2]",
     "%2 = while %0 ((%3: f32[2]) { %4 = constant {value=i1[] 1} return %4 }, "
     "(%5: f32[3]) { return %5 }) : f32[2] return %2",
     "region parameter 0 is f32[3], must be f32[2]"},
    {"%0: i32[]", "i32[]",
     "%2 = if %0 (() { return %0 }, () { return %0 }) : i32[] return %2",
     "the selector is i32[], must be i1[]"},
    {"%0: i1[]", "i1[]",
     "%2 = if %0 (() { %3 = not %0 : i1[] return %3 }, () { return %3 }) : "
     "i1[] "
     "return %2",
     "result 0 of \"a region\" is not defined in its scope"},
    {"%0: f32[2]", "f32[2]", "%2 = call %0 {callee=\"h\"} : f32[2] return %2",
     "no function \"h\""},
    {"%0: f32[3]", "f32[2]", "%2 = call %0 {callee=\"g\"} : f32[2] return %2",
     "\"g\" takes f32[2] as argument 0"},
    {"%0: f32[2]", "i32[]",
     "%2 = get_dimension_size %0 {dimension=3} return %2",
     "dimension 3 is not in [0, 1)"},
    {"%0: f32[4,4,3], %1: f32[2,3,5]", "f32[4,3,5]",
     "%2 = convolution %0, %1 {window_strides=[1], padding=[0,0], "
     "input_batch_dimension=0, input_feature_dimension=1, "
     "input_spatial_dimensions=[1], kernel_input_feature_dimension=1, "
     "kernel_output_feature_dimension=2, kernel_spatial_dimensions=[0], "
     "output_batch_dimension=0, output_feature_dimension=2, "
     "output_spatial_dimensions=[1]} return %2",
     "input dimension numbers are not a permutation"},
    {"%0: f32[4,5], %1: i32[2,2]", "f32[2,5]",
     "%2 = gather %0, %1 {offset_dims=[1], collapsed_slice_dims=[0], "
     "start_index_map=[0], index_vector_dim=1, slice_sizes=[1,5]} return %2",
     "start_index_map has 1 entries, index vectors have 2"},
    {"%0: f32[4,5], %1: i32[2,1], %2: f32[2,6]", "f32[4,5]",
     "%3 = scatter %0, %1, %2 {update_window_dims=[1], "
     "inserted_window_dims=[0], "
     "scatter_dims_to_operand_dims=[0], index_vector_dim=1} (" ADD32
     ") return %3",
     "update dimension 1 (6) exceeds input dimension 1 (5)"},
    {"%0: f32[2,3]", "f32[2,3]", "%2 = cholesky %0 {lower=true} return %2",
     "not a batch of square matrices"},
    {"%0: f32[4]", "f32[4]",
     "%2 = fft %0 {fft_type=FFT, fft_length=[4]} : f32[4] return %2",
     "FFT takes complex elements"},
    {"%0: f32[4]", "f32[5], i32[5]", "%2:2 = top_k %0 {k=5} return %2.0, %2.1",
     "k = 5 does not fit"},
    {"%0: f32[4]", "f32[4]", "%2 = tanh %7 return %2", "%7 is not defined"},
    {"%0: f32[4]", "f32[4]", "%0 = tanh %0 return %0", "%0 is defined twice"},
    {"%0: f32[4]", "f32[4]", "%2 = frobnicate %0 return %2",
     "no op is named \"frobnicate\""},
    {"%0: f32[4]", "f32[4]", "%2 = constant {value=f32[4] [1,2,3]} return %2",
     "expected \",\""},
    {"%0: f32[4]", "i4[1]", "%2 = constant {value=i4[1] [8]} return %2",
     "value does not fit its type"},
    {"%0: f32[4]", "f32[4]", "%2 = tanh %0 : f32[4] return %2.1",
     "%2 has 1 results"},
    {"%0: f32[2]", "f32[2]",
     "%2 = " GATHER " %3 = tanh %2 : f32[2] %4 = async_done %2 : f32[2] return "
     "%3",
     "operand 0 is not there before the async_done of %2"},
    {"%0: f32[2]", "f32[2]",
     "%2 = " GATHER " %3 = async_done %2 : f32[2] return %2",
     "is returned before its async_done"},
    {"%0: f32[2]", "f32[2]", "%2 = " GATHER " return %0", "has 0 async_done"},
    {"%0: f32[2]", "f32[2]",
     "%2 = " GATHER
     " %3 = async_done %2 : f32[2] %4 = async_done %2 : f32[2] return %3",
     "has 2 async_done"},
    {"%0: f16[4], %1: i32[2,1], %2: f16[2]", "f16[4]",
     "%3 = scatter %0, %1, %2 {inserted_window_dims=[0], "
     "scatter_dims_to_operand_dims=[0], index_vector_dim=1} (" ADD32
     ") : f16[4] return %3",
     "result 0 is f16[4], its body computes f32"},
    {"%0: f32[2]", "f32[2]", "%2 = async_done %0 : f32[2] return %2",
     "does not take all results of one asynchronous op"},
    {"%0: f32[2]", "f32[9223372036854775807,4]",
     "%2 = constant {value=f32[9223372036854775807,4] [1]} return %2",
     "longer than the text"},
};

// Each bad program is refused with the words that its row has.
static void test_bad(void **state) {
  for (size_t i = 0; i < AT_LEN(bads); i++) {
    at_arena *a = at_arena_create();
    at_module *m;
    at_status s = load(a, bads[i].params, bads[i].types, bads[i].body, &m);
    if (!strstr(at_status_message(s), bads[i].message))
      fail_msg("%s\n gave: %s\n want: %s", bads[i].body, at_status_message(s),
               bads[i].message);
    assert_int_equal(at_status_code(s), AT_INVALID_ARGUMENT);
    at_status_free(s);
    at_arena_destroy(a);
  }
}

// Graphs that only a faulty pass can make.
static void test_broken_graphs(void **state) {
  for (int kind = 0; kind < 7; kind++) {
    at_arena *a = at_arena_create();
    at_module *m;
    assert_true(at_ok(
        load(a, "%0: f32[2]", "f32[2]",
             "%2 = tanh %0 : f32[2] %3 = add %2, %0 : f32[2] return %3", &m)));
    at_node *tanh = m->entry->first->next, *add = tanh->next;
    switch (kind) {
      case 0:
        at_node_move_before(add, tanh);
        break;
      case 1:
        add->id = tanh->id;
        break;
      case 2:
        add->id = m->next_id;
        break;
      case 3:
        at_node_remove(tanh);
        break;
      case 4:
        m->entry->results[0] = (at_value){add, 1};
        break;
      case 5:
        m->entry->first->attrs[0].i = 1;
        break;
      default:
        m->entry->num_params = 0;
        break;
    }
    at_status s = at_verify(m, "breaker");
    assert_false(at_ok(s));
    assert_non_null(strstr(at_status_message(s), "after breaker: "));
    at_status_free(s);
    at_arena_destroy(a);
  }
}

// Unknown dimensions agree with known ones and are filled in from them.
static void test_dynamic(void **state) {
  at_arena *a = at_arena_create();
  at_module *m;
  at_status s = load(a, "%0: f32[?,3], %1: f32[4,?]", "f32[4,3], f32[?,7]",
                     "%2 = add %0, %1 "
                     "%3 = concatenate %0, %0, %2 {dimension=1} : f32[?,9]"
                     "%4 = slice %3 {start_indices=[0,0], limit_indices=[2,7], "
                     "strides=[1,1]} : f32[?,7] return %2, %4",
                     &m);
  if (!at_ok(s)) fail_msg("%s", at_status_message(s));
  at_arena_destroy(a);
}

// A row of the table, with bars escaped.
static void test_ops_doc(void **state) {
  at_strbuf b = {0};
  assert_true(at_ok(at_hlo_ops_doc(&b)));
  assert_non_null(strstr(b.ptr, "| `dot_general` | 2 | 0 | `lhs_batching"));
  assert_non_null(strstr(b.ptr, "\\|x\\|"));
  at_strbuf_free(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bad), cmocka_unit_test(test_broken_graphs),
      cmocka_unit_test(test_dynamic), cmocka_unit_test(test_ops_doc)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

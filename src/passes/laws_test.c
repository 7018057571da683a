// Every law of at_pass_simplify by itself: on each of its programs it must
// replace the last node, or must not, and what it leaves computes the same. A
// law without a program of either kind that it must replace fails the test.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hlo/random.h"
#include "passes/passes_internal.h"

// What the case says of the law: it replaces the node, or leaves it.
typedef enum verdict { FIRES, STAYS } verdict;

typedef struct sample {
  const char *law;
  verdict verdict;
  const char *params;
  const char *lines;  // the last one is the node, its result the program's
} sample;

#define C(number, type, value) \
  "%" number " = constant {value=" type " splat " value "} : " type "\n"
#define OP2(op, type) "%9 = " op " %0, %1 : " type
#define SLICE(from, start, limit, stride, type)                            \
  "%9 = slice %" from " {start_indices=[" start "], limit_indices=[" limit \
  "], strides=[" stride "]} : " type
#define PAD(low, high, interior, type)                                    \
  "%9 = pad %0, %1 {edge_padding_low=[" low "], edge_padding_high=[" high \
  "], interior_padding=[" interior "]} : " type
#define COMPARE(a, b, direction, kind)                         \
  "%9 = compare " a ", " b " {comparison_direction=" direction \
  ", compare_type=" kind "} : i1[4]"
#define DOT(a, b, batch, left, right, type)                                   \
  "dot_general " a ", " b " {lhs_batching_dimensions=[" batch                 \
  "], rhs_batching_dimensions=[" batch "], lhs_contracting_dimensions=[" left \
  "], rhs_contracting_dimensions=[" right "]} : " type
#define REDUCE(op, type)                                            \
  "%9 = reduce %0, %1 {dimensions=[1]} ((%5: f32[], %6: f32[]) {\n" \
  "%7 = " op " %5, %6 : f32[]\nreturn %7\n}) : " type
#define SCATTER(kept, inserted, map, type)                                     \
  "%9 = scatter %0, %1, %2 {update_window_dims=[" kept                         \
  "], inserted_window_dims=[" inserted "], scatter_dims_to_operand_dims=[" map \
  "], index_vector_dim=0} ((%5: f32[], %6: f32[]) {\n%7 = add %5, %6 : "       \
  "f32[]\nreturn %7\n}) : " type
#define GATHER(sizes, type)                                                  \
  "%9 = gather %0, %1 {slice_sizes=[" sizes                                  \
  "], offset_dims=[0], collapsed_slice_dims=[0], operand_batching_dims=[], " \
  "start_indices_batching_dims=[], start_index_map=[0], "                    \
  "index_vector_dim=0, indices_are_sorted=false} : " type

#define RETURN(number, op) \
  "%" number " = " op " %0 : f32[4]\nreturn %" number "\n"
#define BRANCHES(n, op, one, other, types) \
  "%9" n " = " op " %1 (() {\n" one "}, () {\n" other "}) : " types "f32[4]"
// Three turns of a loop that carries how many it made, %31, and what `more`
// says; `lines` are of its body.
#define LOOP(n, more, condition, body, lines, returned, types)           \
  C("7", "i32[]", "0")                                                   \
  "%9:" n " = while %7, %0" more " ((%20: i32[], %21: f32[4]" condition  \
  ") {\n%22 = constant {value=i32[] 3} : i32[]\n%23 = compare %20, %22 " \
  "{comparison_direction=LT, compare_type=SIGNED} : i1[]\nreturn "       \
  "%23\n}, (%30: i32[], %31: f32[4]" body                                \
  ") {\n%32 = constant {value=i32[] 1} : i32[]\n%33 = add %30, %32 : "   \
  "i32[]\n" lines "return %33, " returned "\n}) : i32[], " types "f32[4]"
static const sample samples[] = {
    {"x + -0 = x", FIRES, "%0: f32[4]",
     C("1", "f32[4]", "-0.0") OP2("add", "f32[4]")},
    {"x + -0 = x", FIRES, "%1: i32[4]",
     C("0", "i32[4]", "0") OP2("add", "i32[4]")},
    {"x + -0 = x", STAYS, "%0: f32[4]",
     C("1", "f32[4]", "0") OP2("add", "f32[4]")},
    {"x + 0 = x, x never -0", FIRES, "%2: f32[4]",
     "%0 = exponential %2 : f32[4]\n" C("1", "f32[4]", "0")
         OP2("add", "f32[4]")},
    {"x + 0 = x, x never -0", FIRES, "%2: f32[4]",
     "%0 = multiply %2, %2 : f32[4]\n" C("1", "f32[4]", "0")
         OP2("add", "f32[4]")},
    {"x + 0 = x, x never -0", FIRES, "%2: f32[2,2]",
     "%3 = abs %2 : f32[2,2]\n%0 = reshape %3 : f32[4]\n" C("1", "f32[4]", "0")
         OP2("add", "f32[4]")},
    {"x + 0 = x, x never -0", FIRES, "%2: i32[4], %3: f32[4]",
     "%4 = convert %2 : f32[4]\n%0 = add %4, %3 : f32[4]\n" C(
         "1", "f32[4]", "0") OP2("add", "f32[4]")},
    {"x + 0 = x, x never -0", STAYS, "%0: f32[4]",
     C("1", "f32[4]", "0") OP2("add", "f32[4]")},
    {"x + 0 = x, x never -0", STAYS, "%2: f32[4], %3: f32[4]",
     "%0 = multiply %2, %3 : f32[4]\n" C("1", "f32[4]", "0")
         OP2("add", "f32[4]")},
    {"x + 0 = x, x never -0", STAYS, "%2: f32[4]",
     "%0 = convert %2 : bf16[4]\n" C("1", "bf16[4]", "0")
         OP2("add", "bf16[4]")},
    {"(x + c) + d = x + (c + d)", FIRES, "%2: i8[4]",
     C("3", "i8[4]", "100") "%0 = add %2, %3 : i8[4]\n" C("1", "i8[4]", "60")
         OP2("add", "i8[4]")},
    {"(x + c) + d = x + (c + d)", STAYS, "%2: f32[4]",
     C("3", "f32[4]", "1e30") "%0 = add %2, %3 : f32[4]\n" C(
         "1", "f32[4]", "-1e30") OP2("add", "f32[4]")},
    {"(x + c) + d = x + (c + d)", STAYS, "%2: i1[4]",
     C("3", "i1[4]", "1") "%0 = add %2, %3 : i1[4]\n" C("1", "i1[4]", "1")
         OP2("add", "i1[4]")},
    {"x - 0 = x", FIRES, "%0: f32[4]",
     C("1", "f32[4]", "0") OP2("subtract", "f32[4]")},
    {"x - 0 = x", STAYS, "%0: f32[4]",
     C("1", "f32[4]", "-0.0") OP2("subtract", "f32[4]")},
    {"x - 0 = x", STAYS, "%1: i32[4]",
     C("0", "i32[4]", "0") OP2("subtract", "i32[4]")},
    {"x - x = 0", FIRES, "%0: i32[4]", "%9 = subtract %0, %0 : i32[4]"},
    {"x - x = 0", STAYS, "%0: f32[4]", "%9 = subtract %0, %0 : f32[4]"},
    {"x - x = 0", STAYS, "%0: i32[4], %1: i32[4]", OP2("subtract", "i32[4]")},
    {"x * 1 = x", FIRES, "%0: f32[4]",
     C("1", "f32[4]", "1") OP2("multiply", "f32[4]")},
    {"x * 1 = x", FIRES, "%1: ui8[4]",
     C("0", "ui8[4]", "1") OP2("multiply", "ui8[4]")},
    {"x * 0 = 0", FIRES, "%0: i32[4]",
     C("1", "i32[4]", "0") OP2("multiply", "i32[4]")},
    {"x * 0 = 0", FIRES, "%1: i32[4]",
     C("0", "i32[4]", "0") OP2("multiply", "i32[4]")},
    {"x * 0 = 0", STAYS, "%0: f32[4]",
     C("1", "f32[4]", "0") OP2("multiply", "f32[4]")},
    {"x * -1 = -x", FIRES, "%0: f32[4]",
     C("1", "f32[4]", "-1") OP2("multiply", "f32[4]")},
    {"x * -1 = -x", FIRES, "%1: i16[4]",
     C("0", "i16[4]", "-1") OP2("multiply", "i16[4]")},
    {"x * -1 = -x", STAYS, "%0: ui8[4]",
     C("1", "ui8[4]", "255") OP2("multiply", "ui8[4]")},
    {"(x * c) * d = x * (c * d)", FIRES, "%2: i8[4]",
     C("3", "i8[4]", "50") "%0 = multiply %2, %3 : i8[4]\n" C("1", "i8[4]", "7")
         OP2("multiply", "i8[4]")},
    {"(x * c) * d = x * (c * d)", STAYS, "%2: i8[4], %3: i8[4]",
     "%0 = multiply %2, %3 : i8[4]\n" C("1", "i8[4]", "7")
         OP2("multiply", "i8[4]")},
    {"x / 1 = x", FIRES, "%0: f32[4]",
     C("1", "f32[4]", "1") OP2("divide", "f32[4]")},
    {"x / 1 = x", STAYS, "%1: f32[4]",
     C("0", "f32[4]", "1") OP2("divide", "f32[4]")},
    {"x / c = x * (1 / c)", FIRES, "%0: f32[4]",
     C("1", "f32[4]", "8") OP2("divide", "f32[4]")},
    {"x / c = x * (1 / c)", FIRES, "%0: bf16[4]",
     C("1", "bf16[4]", "0.25") OP2("divide", "bf16[4]")},
    {"x / c = x * (1 / c)", FIRES, "%0: f64[4]",
     C("1", "f64[4]", "-1024") OP2("divide", "f64[4]")},
    {"x / c = x * (1 / c)", STAYS, "%0: bf16[4]",
     C("1", "bf16[4]", "3") OP2("divide", "bf16[4]")},
    {"x / c = x * (1 / c)", STAYS, "%0: f16[4]",
     C("1", "f16[4]", "4") OP2("divide", "f16[4]")},
    {"x / c = x * (1 / c)", FIRES, "%0: f32[4]",
     C("1", "f32[4]", "0") OP2("divide", "f32[4]")},
    {"x / c = x * (1 / c)", STAYS, "%0: f32[4]",
     C("1", "f32[4]", "0x7f800000") OP2("divide", "f32[4]")},
    {"x / c = x * (1 / c)", STAYS, "%0: f32[4]",
     C("1", "f32[4]", "0x7e800000") OP2("divide", "f32[4]")},
    {"x / c = x * (1 / c)", STAYS, "",
     C("0", "f32[4]", "1") C("1", "f32[4]", "3") OP2("divide", "f32[4]")},
    {"x % 1 = 0", FIRES, "%0: i32[4]",
     C("1", "i32[4]", "1") OP2("remainder", "i32[4]")},
    {"x % 1 = 0", STAYS, "%0: f32[4]",
     C("1", "f32[4]", "1") OP2("remainder", "f32[4]")},
    {"x % 1 = 0", STAYS, "%0: i32[4]",
     C("1", "i32[4]", "2") OP2("remainder", "i32[4]")},
    {"x ^ 1 = x", FIRES, "%0: f32[4]",
     C("1", "f32[4]", "1") OP2("power", "f32[4]")},
    {"x ^ 0 = 1", FIRES, "%0: i32[4]",
     C("1", "i32[4]", "0") OP2("power", "i32[4]")},
    {"x ^ 0 = 1", FIRES, "%0: f32[4]",
     C("1", "f32[4]", "0") OP2("power", "f32[4]")},
    {"x ^ 2 = x * x", FIRES, "%0: i32[4]",
     C("1", "i32[4]", "2") OP2("power", "i32[4]")},
    {"x ^ 2 = x * x", STAYS, "%0: i32[4]",
     C("1", "i32[4]", "3") OP2("power", "i32[4]")},
    {"x and x = x", FIRES, "%0: i32[4]", "%9 = and %0, %0 : i32[4]"},
    {"x and x = x", STAYS, "%0: i32[4], %1: i32[4]", OP2("and", "i32[4]")},
    {"x and 0 = 0", FIRES, "%0: i32[4]",
     C("1", "i32[4]", "0") OP2("and", "i32[4]")},
    {"x and ~0 = x", FIRES, "%0: ui8[4]",
     C("1", "ui8[4]", "255") OP2("and", "ui8[4]")},
    {"x and ~0 = x", FIRES, "%0: i64[4]",
     C("1", "i64[4]", "-1") OP2("and", "i64[4]")},
    {"x and ~0 = x", STAYS, "%0: i32[4]",
     C("1", "i32[4]", "255") OP2("and", "i32[4]")},
    {"(x and c) and d = x and (c and d)", FIRES, "%2: ui8[4]",
     C("3", "ui8[4]", "6") "%0 = and %2, %3 : ui8[4]\n" C("1", "ui8[4]", "3")
         OP2("and", "ui8[4]")},
    {"x or x = x", FIRES, "%0: i32[4]", "%9 = or %0, %0 : i32[4]"},
    {"x or 0 = x", FIRES, "%1: i32[4]",
     C("0", "i32[4]", "0") OP2("or", "i32[4]")},
    {"x or ~0 = ~0", FIRES, "%0: i1[4]",
     C("1", "i1[4]", "1") OP2("or", "i1[4]")},
    {"(x or c) or d = x or (c or d)", FIRES, "%2: ui8[4]",
     C("3", "ui8[4]", "6") "%0 = or %2, %3 : ui8[4]\n" C("1", "ui8[4]", "9")
         OP2("or", "ui8[4]")},
    {"x xor x = 0", FIRES, "%0: i32[4]", "%9 = xor %0, %0 : i32[4]"},
    {"x xor 0 = x", FIRES, "%0: i32[4]",
     C("1", "i32[4]", "0") OP2("xor", "i32[4]")},
    {"x xor ~0 = ~x", FIRES, "%0: i32[4]",
     C("1", "i32[4]", "-1") OP2("xor", "i32[4]")},
    {"(x xor c) xor d = x xor (c xor d)", FIRES, "%2: ui8[4]",
     C("3", "ui8[4]", "6") "%0 = xor %2, %3 : ui8[4]\n" C("1", "ui8[4]", "12")
         OP2("xor", "ui8[4]")},
    {"(x xor c) xor d = x xor (c xor d)", STAYS, "%2: ui8[4]",
     C("3", "ui8[4]", "6") "%0 = or %2, %3 : ui8[4]\n" C("1", "ui8[4]", "12")
         OP2("xor", "ui8[4]")},
    {"x << 0 = x", FIRES, "%0: i32[4]",
     C("1", "i32[4]", "0") OP2("shift_left", "i32[4]")},
    {"x << 0 = x", STAYS, "%0: i32[4]",
     C("1", "i32[4]", "1") OP2("shift_left", "i32[4]")},
    {"x << width = 0", FIRES, "%0: i8[4]",
     C("1", "i8[4]", "8") OP2("shift_left", "i8[4]")},
    {"x << width = 0", FIRES, "%0: i8[4]",
     C("1", "i8[4]", "-1") OP2("shift_left", "i8[4]")},
    {"x << width = 0", STAYS, "%0: i8[4]",
     C("1", "i8[4]", "7") OP2("shift_left", "i8[4]")},
    {"x >> 0 = x, arithmetic", FIRES, "%0: i32[4]",
     C("1", "i32[4]", "0") OP2("shift_right_arithmetic", "i32[4]")},
    {"x >> 0 = x, logical", FIRES, "%0: i32[4]",
     C("1", "i32[4]", "0") OP2("shift_right_logical", "i32[4]")},
    {"x >> width = 0, logical", FIRES, "%0: i32[4]",
     C("1", "i32[4]", "32") OP2("shift_right_logical", "i32[4]")},
    {"x >> width = 0, logical", STAYS, "%0: i32[4]",
     C("1", "i32[4]", "31") OP2("shift_right_logical", "i32[4]")},
    {"max(x, x) = x", FIRES, "%0: f32[4]", "%9 = maximum %0, %0 : f32[4]"},
    {"max(x, -inf) = x", FIRES, "%0: f32[4]",
     C("1", "f32[4]", "0xff800000") OP2("maximum", "f32[4]")},
    {"max(x, -inf) = x", STAYS, "%0: f32[4]",
     C("1", "f32[4]", "0x7f800000") OP2("maximum", "f32[4]")},
    {"min(x, x) = x", FIRES, "%0: i32[4]", "%9 = minimum %0, %0 : i32[4]"},
    {"min(x, inf) = x", FIRES, "%1: f32[4]",
     C("0", "f32[4]", "0x7f800000") OP2("minimum", "f32[4]")},
    {"min(x, inf) = x", STAYS, "%1: f32[4]",
     C("0", "f32[4]", "0xff800000") OP2("minimum", "f32[4]")},
    {"c ? x : y = x or y", FIRES, "%0: f32[4], %1: f32[4]",
     C("2", "i1[4]", "1") "%9 = select %2, %0, %1 : f32[4]"},
    {"c ? x : y = x or y", FIRES, "%0: f32[4], %1: f32[4]",
     C("2", "i1[4]", "0") "%9 = select %2, %0, %1 : f32[4]"},
    {"c ? x : y = x or y", STAYS, "%0: f32[4], %1: f32[4], %2: i1[4]",
     "%9 = select %2, %0, %1 : f32[4]"},
    {"p ? x : x = x", FIRES, "%0: f32[4], %2: i1[4]",
     "%9 = select %2, %0, %0 : f32[4]"},
    {"~p ? x : y = p ? y : x", FIRES, "%0: f32[4], %1: f32[4], %2: i1[4]",
     "%3 = not %2 : i1[4]\n%9 = select %3, %0, %1 : f32[4]"},
    {"p ? true : false = p", FIRES, "%2: i1[4]",
     C("0", "i1[4]", "1")
         C("1", "i1[4]", "0") "%9 = select %2, %0, %1 : i1[4]"},
    {"p ? true : false = p", STAYS, "%2: i1[]",
     C("0", "i1[4]", "1")
         C("1", "i1[4]", "0") "%9 = select %2, %0, %1 : i1[4]"},
    {"p ? true : false = p", STAYS, "%2: i1[4]",
     C("0", "i32[4]", "1")
         C("1", "i32[4]", "0") "%9 = select %2, %0, %1 : i32[4]"},
    {"p ? false : true = ~p", FIRES, "%2: i1[4]",
     C("0", "i1[4]", "0")
         C("1", "i1[4]", "1") "%9 = select %2, %0, %1 : i1[4]"},
    {"p ? false : true = ~p", STAYS, "%2: i1[4]",
     C("0", "i1[4]", "1")
         C("1", "i1[4]", "0") "%9 = select %2, %0, %1 : i1[4]"},
    {"x < x is known", FIRES, "%0: i32[4]",
     COMPARE("%0", "%0", "LT", "SIGNED")},
    {"x < x is known", FIRES, "%0: i32[4]",
     COMPARE("%0", "%0", "GE", "SIGNED")},
    {"x < x is known", FIRES, "%0: i32[4]",
     COMPARE("%0", "%0", "EQ", "SIGNED")},
    {"x < x is known", FIRES, "%0: i32[4]",
     COMPARE("%0", "%0", "LE", "SIGNED")},
    {"x < x is known", FIRES, "%0: i32[4]",
     COMPARE("%0", "%0", "NE", "SIGNED")},
    {"x < x is known", STAYS, "%0: f32[4]", COMPARE("%0", "%0", "EQ", "FLOAT")},
    {"x >= 0, x unsigned", FIRES, "%0: ui8[4]",
     C("1", "ui8[4]", "0") COMPARE("%0", "%1", "GE", "UNSIGNED")},
    {"x >= 0, x unsigned", FIRES, "%0: ui8[4]",
     C("1", "ui8[4]", "0") COMPARE("%0", "%1", "LT", "UNSIGNED")},
    {"x >= 0, x unsigned", STAYS, "%0: ui8[4]",
     C("1", "ui8[4]", "0") COMPARE("%0", "%1", "GT", "UNSIGNED")},
    {"x >= 0, x unsigned", STAYS, "%0: i8[4]",
     C("1", "i8[4]", "0") COMPARE("%0", "%1", "GE", "SIGNED")},
    {"(p == c) = p or ~p", FIRES, "%0: i1[4]",
     C("1", "i1[4]", "1") COMPARE("%0", "%1", "EQ", "UNSIGNED")},
    {"(p == c) = p or ~p", FIRES, "%0: i1[4]",
     C("1", "i1[4]", "1") COMPARE("%0", "%1", "NE", "UNSIGNED")},
    {"(p == c) = p or ~p", FIRES, "%0: i1[4]",
     C("1", "i1[4]", "0") COMPARE("%0", "%1", "EQ", "UNSIGNED")},
    {"(p == c) = p or ~p", STAYS, "%0: i1[4]",
     C("1", "i1[4]", "1") COMPARE("%0", "%1", "LT", "UNSIGNED")},
    {"(p == c) = p or ~p", STAYS, "%0: i32[4]",
     C("1", "i32[4]", "1") COMPARE("%0", "%1", "EQ", "SIGNED")},
    {"convert to the same type = x", FIRES, "%0: f32[4]",
     "%9 = convert %0 : f32[4]"},
    {"convert to the same type = x", STAYS, "%0: f32[4]",
     "%9 = convert %0 : f64[4]"},
    {"convert twice = once", FIRES, "%0: bf16[4]",
     "%1 = convert %0 : f32[4]\n%9 = convert %1 : bf16[4]"},
    {"convert twice = once", FIRES, "%0: i8[4]",
     "%1 = convert %0 : i32[4]\n%9 = convert %1 : f32[4]"},
    {"convert twice = once", FIRES, "%0: i1[4]",
     "%1 = convert %0 : i32[4]\n%9 = convert %1 : f32[4]"},
    {"convert twice = once", FIRES, "%0: ui16[4]",
     "%1 = convert %0 : i32[4]\n%9 = convert %1 : f64[4]"},
    {"convert twice = once", FIRES, "%0: i16[4]",
     "%1 = convert %0 : f32[4]\n%9 = convert %1 : i32[4]"},
    {"convert twice = once", STAYS, "%0: f32[4]",
     "%1 = convert %0 : bf16[4]\n%9 = convert %1 : f32[4]"},
    {"convert twice = once", STAYS, "%0: i32[4]",
     "%1 = convert %0 : f32[4]\n%9 = convert %1 : i32[4]"},
    {"convert twice = once", STAYS, "%0: i32[4]",
     "%1 = convert %0 : ui32[4]\n%9 = convert %1 : f32[4]"},
    {"convert twice = once", STAYS, "%0: i16[4]",
     "%1 = convert %0 : f32[4]\n%9 = convert %1 : i8[4]"},
    {"convert twice = once", STAYS, "%0: f16[4]",
     "%1 = convert %0 : bf16[4]\n%9 = convert %1 : f32[4]"},
    {"reduce_precision to f32 = x", FIRES, "%0: f32[4]",
     "%9 = reduce_precision %0 {exponent_bits=8, mantissa_bits=23} : f32[4]"},
    {"reduce_precision to f32 = x", STAYS, "%0: f32[4]",
     "%9 = reduce_precision %0 {exponent_bits=8, mantissa_bits=7} : f32[4]"},
    {"reduce_precision to f32 = x", STAYS, "%0: f32[4]",
     "%9 = reduce_precision %0 {exponent_bits=5, mantissa_bits=23} : f32[4]"},
    {"--x = x", FIRES, "%0: f32[4]",
     "%1 = negate %0 : f32[4]\n%9 = negate %1 : f32[4]"},
    {"--x = x", STAYS, "%0: i32[4]",
     "%1 = not %0 : i32[4]\n%9 = negate %1 : i32[4]"},
    {"~~x = x", FIRES, "%0: i32[4]",
     "%1 = not %0 : i32[4]\n%9 = not %1 : i32[4]"},
    {"||x|| = |x|", FIRES, "%0: f32[4]",
     "%1 = abs %0 : f32[4]\n%9 = abs %1 : f32[4]"},
    {"|x| = x, x unsigned", FIRES, "%0: ui8[4]", "%9 = abs %0 : ui8[4]"},
    {"|x| = x, x unsigned", STAYS, "%0: i8[4]", "%9 = abs %0 : i8[4]"},
    {"|-x| = |x|", FIRES, "%0: f32[4]",
     "%1 = negate %0 : f32[4]\n%9 = abs %1 : f32[4]"},
    {"|-x| = |x|", STAYS, "%0: complex<f32>[4]",
     "%1 = negate %0 : complex<f32>[4]\n%9 = abs %1 : f32[4]"},
    {"floor floor x = floor x", FIRES, "%0: f32[4]",
     "%1 = floor %0 : f32[4]\n%9 = floor %1 : f32[4]"},
    {"ceil ceil x = ceil x", FIRES, "%0: f32[4]",
     "%1 = ceil %0 : f32[4]\n%9 = ceil %1 : f32[4]"},
    {"round round x = round x, to even", FIRES, "%0: f32[4]",
     "%1 = round_nearest_even %0 : f32[4]\n%9 = round_nearest_even %1 : "
     "f32[4]"},
    {"round round x = round x, away from 0", FIRES, "%0: f32[4]",
     "%1 = round_nearest_afz %0 : f32[4]\n%9 = round_nearest_afz %1 : f32[4]"},
    {"real(x + iy) = x", FIRES, "%0: f32[4], %1: f32[4]",
     "%2 = complex %0, %1 : complex<f32>[4]\n%9 = real %2 : f32[4]"},
    {"real(x) = x, x real", FIRES, "%0: f32[4]", "%9 = real %0 : f32[4]"},
    {"real(x) = x, x real", STAYS, "%0: complex<f32>[4]",
     "%9 = real %0 : f32[4]"},
    {"imag(x + iy) = y", FIRES, "%0: f32[4], %1: f32[4]",
     "%2 = complex %0, %1 : complex<f32>[4]\n%9 = imag %2 : f32[4]"},
    {"real(z) + i imag(z) = z", FIRES, "%0: complex<f32>[4]",
     "%1 = real %0 : f32[4]\n%2 = imag %0 : f32[4]\n%9 = complex %1, %2 : "
     "complex<f32>[4]"},
    {"real(z) + i imag(z) = z", STAYS, "%0: complex<f32>[4]",
     "%1 = real %0 : f32[4]\n%2 = imag %0 : f32[4]\n%9 = complex %2, %1 : "
     "complex<f32>[4]"},
    {"real(z) + i imag(z) = z", STAYS,
     "%0: complex<f32>[4], %3: complex<f32>[4]",
     "%1 = real %0 : f32[4]\n%2 = imag %3 : f32[4]\n%9 = complex %1, %2 : "
     "complex<f32>[4]"},

    {"reshape to the same shape = x", FIRES, "%0: f32[4]",
     "%9 = reshape %0 : f32[4]"},
    {"reshape to the same shape = x", STAYS, "%0: f32[4]",
     "%9 = reshape %0 : f32[2,2]"},
    {"reshape of a constant is one", FIRES, "",
     "%0 = constant {value=f32[4] [1,2,3,4]} : f32[4]\n%9 = reshape %0 : "
     "f32[2,2]"},
    {"reshape of a constant is one", FIRES, "",
     C("0", "f32[4]", "3") "%9 = reshape %0 : f32[2,2]"},
    {"reshape twice = once", FIRES, "%0: f32[6]",
     "%1 = reshape %0 : f32[2,3]\n%9 = reshape %1 : f32[3,2]"},
    {"reshape of a scalar's broadcast is one", FIRES, "%0: f32[]",
     "%1 = broadcast_in_dim %0 {broadcast_dimensions=[]} : f32[6]\n%9 = "
     "reshape %1 : f32[2,3]"},
    {"reshape of a scalar's broadcast is one", STAYS, "%0: f32[3]",
     "%1 = broadcast_in_dim %0 {broadcast_dimensions=[0]} : f32[3,2]\n%9 = "
     "reshape %1 : f32[2,3]"},
    {"transpose of equal elements = those", FIRES, "",
     C("0", "f32[2,3]",
       "3") "%9 = transpose %0 {permutation=[1,0]} : f32[3,2]"},
    {"transpose that moves nothing = reshape", FIRES, "%0: f32[2,1,3]",
     "%9 = transpose %0 {permutation=[1,0,2]} : f32[1,2,3]"},
    {"transpose that moves nothing = reshape", STAYS, "%0: f32[2,1,3]",
     "%9 = transpose %0 {permutation=[2,1,0]} : f32[3,1,2]"},
    {"transpose twice = once", FIRES, "%0: f32[2,3,4]",
     "%1 = transpose %0 {permutation=[1,2,0]} : f32[3,4,2]\n%9 = transpose %1 "
     "{permutation=[1,0,2]} : f32[4,3,2]"},
    {"transpose of joined pieces = join", FIRES, "%0: f32[1,3], %1: f32[1,3]",
     "%2 = concatenate %0, %1 {dimension=0} : f32[2,3]\n%9 = transpose %2 "
     "{permutation=[1,0]} : f32[3,2]"},
    {"transpose of joined pieces = join", STAYS, "%0: f32[2,3], %1: f32[1,3]",
     "%2 = concatenate %0, %1 {dimension=0} : f32[3,3]\n%9 = transpose %2 "
     "{permutation=[1,0]} : f32[3,3]"},
    {"transpose of joined pieces = join", STAYS,
     "%0: f32[1,2,3], %1: f32[1,2,3]",
     "%2 = concatenate %0, %1 {dimension=0} : f32[2,2,3]\n%9 = transpose %2 "
     "{permutation=[2,0,1]} : f32[3,2,2]"},
    {"transpose of a broadcast is one", FIRES, "%0: f32[3]",
     "%1 = broadcast_in_dim %0 {broadcast_dimensions=[1]} : f32[2,3]\n%9 = "
     "transpose %1 {permutation=[1,0]} : f32[3,2]"},
    {"transpose of a broadcast is one", STAYS, "%0: f32[2,3]",
     "%1 = broadcast_in_dim %0 {broadcast_dimensions=[0,1]} : f32[2,3,4]\n%9 = "
     "transpose %1 {permutation=[1,0,2]} : f32[3,2,4]"},
    {"broadcast of equal elements = those", FIRES, "",
     C("0", "f32[2]",
       "3") "%9 = broadcast_in_dim %0 {broadcast_dimensions=[1]} : f32[3,2]"},
    {"broadcast to as many = reshape", FIRES, "%0: f32[2,3]",
     "%9 = broadcast_in_dim %0 {broadcast_dimensions=[1,2]} : f32[1,2,3]"},
    {"broadcast to as many = reshape", STAYS, "%0: f32[2,3]",
     "%9 = broadcast_in_dim %0 {broadcast_dimensions=[1,0]} : f32[3,2]"},
    {"broadcast twice = once", FIRES, "%0: f32[3]",
     "%1 = broadcast_in_dim %0 {broadcast_dimensions=[1]} : f32[2,3]\n%9 = "
     "broadcast_in_dim %1 {broadcast_dimensions=[2,0]} : f32[3,4,2]"},
    {"broadcast drops what it stretches", FIRES, "%0: f32[2,1]",
     "%9 = broadcast_in_dim %0 {broadcast_dimensions=[0,1]} : f32[2,3]"},
    {"broadcast drops what it stretches", STAYS, "%0: f32[2,1]",
     "%9 = broadcast_in_dim %0 {broadcast_dimensions=[0,1]} : f32[2,1,3]"},
    {"broadcast of added ones needs none", FIRES, "%0: f32[3]",
     "%1 = reshape %0 : f32[1,3]\n%9 = broadcast_in_dim %1 "
     "{broadcast_dimensions=[0,2]} : f32[1,2,3]"},
    {"broadcast of added ones needs none", STAYS, "%0: f32[6]",
     "%1 = reshape %0 : f32[2,3]\n%9 = broadcast_in_dim %1 "
     "{broadcast_dimensions=[0,2]} : f32[2,2,3]"},
    {"slice of everything = x", FIRES, "%0: f32[4]",
     SLICE("0", "0", "4", "1", "f32[4]")},
    {"slice of equal elements = those", FIRES, "",
     C("0", "f32[4]", "3") SLICE("0", "1", "3", "1", "f32[2]")},
    {"slice twice = once", FIRES, "%1: f32[16]",
     "%0 = slice %1 {start_indices=[1], limit_indices=[16], strides=[2]} : "
     "f32[8]\n" SLICE("0", "1", "7", "3", "f32[2]")},
    {"slice twice = once", FIRES, "%1: f32[16]",
     "%0 = slice %1 {start_indices=[1], limit_indices=[16], strides=[2]} : "
     "f32[8]\n" SLICE("0", "5", "5", "1", "f32[0]")},
    {"slice twice = once", FIRES, "%1: f32[16]",
     "%0 = slice %1 {start_indices=[1], limit_indices=[16], strides=[2]} : "
     "f32[8]\n" SLICE("0", "7", "8", "1", "f32[1]")},
    {"slice of one joined piece = of that", FIRES, "%1: f32[3], %2: f32[4]",
     "%0 = concatenate %1, %2 {dimension=0} : f32[7]\n" SLICE("0", "3", "6",
                                                              "2", "f32[2]")},
    {"slice of one joined piece = of that", FIRES, "%1: f32[3,2], %2: f32[4,2]",
     "%0 = concatenate %1, %2 {dimension=0} : f32[7,2]\n" SLICE(
         "0", "0,1", "3,2", "1,1", "f32[3,1]")},
    {"slice of one joined piece = of that", STAYS, "%1: f32[3], %2: f32[4]",
     "%0 = concatenate %1, %2 {dimension=0} : f32[7]\n" SLICE("0", "2", "4",
                                                              "1", "f32[2]")},
    {"slice of a broadcast is one", FIRES, "%1: f32[3]",
     "%0 = broadcast_in_dim %1 {broadcast_dimensions=[1]} : f32[4,3]\n" SLICE(
         "0", "1,1", "3,3", "1,1", "f32[2,2]")},
    {"slice of a broadcast is one", FIRES, "%1: f32[1,3]",
     "%0 = broadcast_in_dim %1 {broadcast_dimensions=[0,1]} : f32[4,3]\n" SLICE(
         "0", "1,1", "3,3", "1,1", "f32[2,2]")},
    {"slice of a broadcast is one", STAYS, "%1: f32[1,3]",
     "%0 = broadcast_in_dim %1 {broadcast_dimensions=[0,1]} : f32[4,3]\n" SLICE(
         "0", "1,1", "1,3", "1,1", "f32[0,2]")},
    {"slice within the padded = of that", FIRES, "%1: f32[4], %2: f32[]",
     "%0 = pad %1, %2 {edge_padding_low=[2], edge_padding_high=[1], "
     "interior_padding=[0]} : f32[7]\n" SLICE("0", "2", "6", "1", "f32[4]")},
    {"slice within the padded = of that", STAYS, "%1: f32[4], %2: f32[]",
     "%0 = pad %1, %2 {edge_padding_low=[2], edge_padding_high=[1], "
     "interior_padding=[0]} : f32[7]\n" SLICE("0", "1", "6", "1", "f32[5]")},
    {"slice within the padded = of that", STAYS, "%1: f32[4], %2: f32[]",
     "%0 = pad %1, %2 {edge_padding_low=[2], edge_padding_high=[1], "
     "interior_padding=[0]} : f32[7]\n" SLICE("0", "2", "7", "1", "f32[5]")},
    {"slice within the padded = of that", STAYS, "%1: f32[3], %2: f32[]",
     "%0 = pad %1, %2 {edge_padding_low=[2], edge_padding_high=[0], "
     "interior_padding=[1]} : f32[7]\n" SLICE("0", "2", "4", "1", "f32[2]")},
    {"join of one = x", FIRES, "%0: f32[4]",
     "%9 = concatenate %0 {dimension=0} : f32[4]"},
    {"join of joins, neighbours and nothing", FIRES,
     "%0: f32[4], %1: f32[0], %2: f32[3]",
     "%9 = concatenate %0, %1, %2 {dimension=0} : f32[7]"},
    {"join of joins, neighbours and nothing", FIRES,
     "%0: f32[4], %1: f32[2], %2: f32[3]",
     "%3 = concatenate %1, %2 {dimension=0} : f32[5]\n%9 = concatenate %0, %3 "
     "{dimension=0} : f32[9]"},
    {"join of joins, neighbours and nothing", FIRES, "%2: f32[8]",
     "%0 = slice %2 {start_indices=[1], limit_indices=[3], strides=[1]} : "
     "f32[2]\n%1 = slice %2 {start_indices=[3], limit_indices=[7], "
     "strides=[1]} : f32[4]\n%9 = concatenate %0, %1 {dimension=0} : f32[6]"},
    {"join of joins, neighbours and nothing", STAYS, "%2: f32[8]",
     "%0 = slice %2 {start_indices=[1], limit_indices=[3], strides=[1]} : "
     "f32[2]\n%1 = slice %2 {start_indices=[4], limit_indices=[7], "
     "strides=[1]} : f32[3]\n%9 = concatenate %0, %1 {dimension=0} : f32[5]"},
    {"join of joins, neighbours and nothing", STAYS, "%2: f32[4,4]",
     "%0 = slice %2 {start_indices=[0,0], limit_indices=[2,3], strides=[1,1]} "
     ": f32[2,3]\n%1 = slice %2 {start_indices=[2,1], limit_indices=[4,4], "
     "strides=[1,1]} : f32[2,3]\n%9 = concatenate %0, %1 {dimension=0} : "
     "f32[4,3]"},
    {"join of joins, neighbours and nothing", STAYS,
     "%0: f32[2,2], %1: f32[1,2], %2: f32[1,2]",
     "%3 = concatenate %1, %2 {dimension=0} : f32[2,2]\n%9 = concatenate %0, "
     "%3 {dimension=1} : f32[2,4]"},
    {"pad that cuts = slice", FIRES, "%0: f32[6], %1: f32[]",
     PAD("-1", "-2", "0", "f32[3]")},
    {"pad that cuts = slice", FIRES, "%0: f32[1], %1: f32[]",
     PAD("0", "0", "3", "f32[1]")},
    {"pad that cuts = slice", STAYS, "%0: f32[2], %1: f32[]",
     PAD("0", "0", "1", "f32[3]")},
    {"pad that cuts = slice", STAYS, "%0: f32[2], %1: f32[]",
     PAD("-1", "1", "0", "f32[2]")},
    {"pad of nothing = the value", FIRES, "%0: f32[0], %1: f32[]",
     PAD("1", "2", "0", "f32[3]")},
    {"pad of equal elements with another = those", FIRES, "",
     C("0", "f32[2]", "3") C("1", "f32[]", "3") PAD("1", "2", "0", "f32[5]")},
    {"pad of equal elements with another = those", STAYS, "",
     C("0", "f32[2]", "0") C("1", "f32[]", "-0.0")
         PAD("1", "2", "0", "f32[5]")},
    {"reverse of equal elements = those", FIRES, "",
     C("0", "f32[4]", "3") "%9 = reverse %0 {dimensions=[0]} : f32[4]"},
    {"reverse twice = x", FIRES, "%0: f32[2,3]",
     "%1 = reverse %0 {dimensions=[1]} : f32[2,3]\n%9 = reverse %1 "
     "{dimensions=[1]} : f32[2,3]"},
    {"reverse twice = x", STAYS, "%0: f32[2,3]",
     "%1 = reverse %0 {dimensions=[0]} : f32[2,3]\n%9 = reverse %1 "
     "{dimensions=[1]} : f32[2,3]"},
    {"reverse of one element = x", FIRES, "%0: f32[1,3]",
     "%9 = reverse %0 {dimensions=[0]} : f32[1,3]"},
    {"reverse of one element = x", FIRES, "%0: f32[1,3]",
     "%9 = reverse %0 {dimensions=[0,1]} : f32[1,3]"},
    {"reverse of one element = x", STAYS, "%0: f32[2,3]",
     "%9 = reverse %0 {dimensions=[0]} : f32[2,3]"},
    {"iota of one = 0", FIRES, "", "%9 = iota {dimension=0} : i32[1,4]"},
    {"iota of one = 0", STAYS, "", "%9 = iota {dimension=1} : i32[1,4]"},
    {"bitcast to the same type = x", FIRES, "%0: f32[4]",
     "%9 = bitcast_convert %0 : f32[4]"},
    {"bitcast and back = x", FIRES, "%0: f32[4]",
     "%1 = bitcast_convert %0 : i32[4]\n%9 = bitcast_convert %1 : f32[4]"},
    {"bitcast and back = x", STAYS, "%0: f32[4]",
     "%1 = bitcast_convert %0 : i32[4]\n%9 = bitcast_convert %1 : ui32[4]"},
    {"f(reshape x) = reshape f(x)", FIRES, "%0: f32[4]",
     "%1 = reshape %0 : f32[2,2]\n%9 = exponential %1 : f32[2,2]"},
    {"f(reshape x) = reshape f(x)", FIRES, "%0: f32[4]",
     "%1 = reshape %0 : f32[2,2]\n" C("2", "f32[2,2]",
                                      "3") "%9 = subtract %2, %1 : f32[2,2]"},
    {"f(reshape x) = reshape f(x)", STAYS, "%0: f32[4], %2: f32[2,2]",
     "%1 = reshape %0 : f32[2,2]\n%9 = subtract %2, %1 : f32[2,2]"},
    {"f(reshape x) = reshape f(x)", STAYS, "%0: f32[4], %2: f32[1,4]",
     "%1 = reshape %0 : f32[2,2]\n%3 = reshape %2 : f32[2,2]\n%9 = subtract "
     "%3, %1 : f32[2,2]"},

    {"dynamic slice of everything = x", FIRES, "%0: f32[4], %1: i32[]",
     "%9 = dynamic_slice %0, %1 {slice_sizes=[4]} : f32[4]"},
    {"dynamic slice of equal elements = those", FIRES, "%1: i32[]",
     C("0", "f32[4]",
       "3") "%9 = dynamic_slice %0, %1 {slice_sizes=[2]} : f32[2]"},
    {"dynamic slice from a known start = slice", FIRES, "%0: f32[5]",
     C("1", "i32[]",
       "2") "%9 = dynamic_slice %0, %1 {slice_sizes=[2]} : f32[2]"},
    {"dynamic slice from a known start = slice", FIRES, "%0: f32[5]",
     C("1", "i32[]",
       "7") "%9 = dynamic_slice %0, %1 {slice_sizes=[2]} : f32[2]"},
    {"dynamic slice from a known start = slice", FIRES, "%0: f32[5]",
     C("1", "i32[]",
       "-7") "%9 = dynamic_slice %0, %1 {slice_sizes=[2]} : f32[2]"},
    {"dynamic slice from a known start = slice", FIRES, "%0: f32[5]",
     C("1", "ui64[]", "18446744073709551615") "%9 = dynamic_slice %0, %1 "
                                              "{slice_sizes=[2]} : f32[2]"},
    {"dynamic slice from a known start = slice", FIRES,
     "%0: f32[5,3], %2: i32[]",
     C("1", "i32[]",
       "1") "%9 = dynamic_slice %0, %1, %2 {slice_sizes=[2,3]} : f32[2,3]"},
    {"dynamic slice from a known start = slice", STAYS, "%0: f32[5], %1: i32[]",
     "%9 = dynamic_slice %0, %1 {slice_sizes=[2]} : f32[2]"},
    {"update of everything = the update", FIRES,
     "%0: f32[4], %1: f32[4], %2: i32[]",
     "%9 = dynamic_update_slice %0, %1, %2 : f32[4]"},
    {"update of everything = the update", STAYS,
     "%0: f32[4], %1: f32[3], %2: i32[]",
     "%9 = dynamic_update_slice %0, %1, %2 : f32[4]"},
    {"update by nothing = x", FIRES, "%0: f32[4], %1: f32[0], %2: i32[]",
     "%9 = dynamic_update_slice %0, %1, %2 : f32[4]"},
    {"update by nothing = x", STAYS, "%0: f32[4], %1: f32[1], %2: i32[]",
     "%9 = dynamic_update_slice %0, %1, %2 : f32[4]"},
    {"gather of one slice = dynamic slice", FIRES, "%0: f32[5,6], %1: i32[1]",
     GATHER("1,6", "f32[6]")},
    {"gather of one slice = dynamic slice", FIRES, "%0: f32[5,6], %1: i32[1]",
     GATHER("1,4", "f32[4]")},
    {"scatter of nothing = x", FIRES, "%0: f32[4], %1: i32[1], %2: f32[0]",
     SCATTER("0", "", "0", "f32[4]")},
    {"scatter of nothing = x", STAYS, "%0: f32[4], %1: i32[1], %2: f32[1]",
     SCATTER("0", "", "0", "f32[4]")},
    {"scatter of one window = update", FIRES,
     "%0: f32[4], %1: i32[1], %2: f32[2]", SCATTER("0", "", "0", "f32[4]")},
    {"scatter of one window = update", FIRES,
     "%0: f32[4,3], %1: i8[1], %2: f32[3]", SCATTER("0", "0", "0", "f32[4,3]")},
    {"scatter of one window = update", FIRES,
     "%0: f32[4,3], %1: ui32[2], %2: f32[2,2]",
     SCATTER("0,1", "", "1,0", "f32[4,3]")},

    {"dot over one term = product", FIRES, "%0: f32[2,1], %1: f32[1,3]",
     "%9 = " DOT("%0", "%1", "", "1", "0", "f32[2,3]")},
    {"dot over one term = product", FIRES, "%0: bf16[2,3,1], %1: bf16[2,1,4]",
     "%9 = " DOT("%0", "%1", "0", "2", "1", "f32[2,3,4]")},
    {"dot over one term = product", STAYS, "%0: f32[2,2], %1: f32[2,3]",
     "%9 = " DOT("%0", "%1", "", "1", "0", "f32[2,3]")},
    {"dot over one term = product", STAYS, "%0: f32[2,1], %1: f32[1,3]",
     "%9 = " DOT("%0", "%1", "", "1", "0", "bf16[2,3]")},
    {"dot of transposes = dot", FIRES, "%2: f32[3,2], %1: f32[3,4]",
     "%0 = transpose %2 {permutation=[1,0]} : f32[2,3]\n%9 = " DOT(
         "%0", "%1", "", "1", "0", "f32[2,4]")},
    {"dot of transposes = dot", FIRES, "%2: f32[2,4,3,5], %1: f32[20,7]",
     "%3 = transpose %2 {permutation=[0,2,1,3]} : f32[2,3,4,5]\n%0 = reshape "
     "%3 : f32[2,3,20]\n%9 = " DOT("%0", "%1", "", "2", "0", "f32[2,3,7]")},
    {"dot of transposes = dot", STAYS, "%2: f32[3,2,4], %1: f32[4,5]",
     "%0 = transpose %2 {permutation=[1,0,2]} : f32[2,3,4]\n%9 = " DOT(
         "%0", "%1", "", "2", "0", "f32[2,3,5]")},
    {"transpose of a dot = dot", FIRES, "%0: f32[2,3], %1: f32[3,4]",
     "%2 = " DOT(
         "%0", "%1", "", "1", "0",
         "f32[2,4]") "\n%9 = transpose %2 {permutation=[1,0]} : f32[4,2]"},
    {"transpose of a dot = dot", FIRES, "%0: f32[2,5,3], %1: f32[2,3,4]",
     "%2 = " DOT("%0", "%1", "0", "2", "1",
                 "f32[2,5,4]") "\n%9 = transpose %2 {permutation=[0,2,1]} : "
                               "f32[2,4,5]"},
    {"transpose of a dot = dot", FIRES, "%0: f32[5,2,3], %1: f32[3,4]",
     "%2 = " DOT("%0", "%1", "", "2", "0",
                 "f32[5,2,4]") "\n%9 = transpose %2 {permutation=[0,2,1]} : "
                               "f32[5,4,2]"},
    {"transpose of a dot = dot", STAYS, "%0: f32[5,2,3], %1: f32[3,4]",
     "%2 = " DOT("%0", "%1", "", "2", "0",
                 "f32[5,2,4]") "\n%9 = transpose %2 {permutation=[1,0,2]} : "
                               "f32[2,5,4]"},
    {"reduce over one element = reshape", FIRES, "%0: f32[3,1]",
     C("1", "f32[]", "-0.0") REDUCE("add", "f32[3]")},
    {"reduce over one element = reshape", FIRES, "%0: f32[3,1]",
     C("1", "f32[]", "0") REDUCE("add", "f32[3]")},
    {"reduce over one element = reshape", FIRES, "%0: f32[3,1]",
     C("1", "f32[]", "0xff800000") REDUCE("maximum", "f32[3]")},
    {"reduce over one element = reshape", STAYS, "%0: f32[3,1]",
     C("1", "f32[]", "1") REDUCE("add", "f32[3]")},
    {"reduce over one element = reshape", STAYS, "%0: f32[3,2]",
     C("1", "f32[]", "0") REDUCE("add", "f32[3]")},
    {"reduce over one element = reshape", STAYS, "%0: f32[3,1], %1: f32[]",
     REDUCE("add", "f32[3]")},

    {"if of a known condition = that branch", FIRES, "%0: f32[4]",
     C("1", "i1[]", "1")
         BRANCHES("", "if", RETURN("5", "negate"), RETURN("6", "tanh"), "")},
    {"if of a known condition = that branch", FIRES, "%0: f32[4]",
     C("1", "i1[]", "0")
         BRANCHES("", "if", RETURN("5", "negate"), RETURN("6", "tanh"), "")},
    {"if of a known condition = that branch", STAYS, "%0: f32[4], %1: i1[]",
     BRANCHES("", "if", RETURN("5", "negate"), RETURN("6", "tanh"), "")},
    {"case of a known index = that branch", FIRES, "%0: f32[4]",
     C("1", "i32[]", "0")
         BRANCHES("", "case", RETURN("5", "negate"), RETURN("6", "tanh"), "")},
    {"case of a known index = that branch", FIRES, "%0: f32[4]",
     C("1", "i32[]", "-3")
         BRANCHES("", "case", RETURN("5", "negate"), RETURN("6", "tanh"), "")},
    {"case of a known index = that branch", FIRES, "%0: f32[4]",
     C("1", "i32[]", "2")
         BRANCHES("", "case", RETURN("5", "negate"), RETURN("6", "tanh"), "")},
    {"case of a known index = that branch", FIRES, "%0: f32[4], %1: i32[]",
     "%9 = case %1 (() {\n" RETURN("5", "negate") "}) : f32[4]"},
    {"case of a known index = that branch", STAYS, "%0: f32[4], %1: i32[]",
     BRANCHES("", "case", RETURN("5", "negate"), RETURN("6", "tanh"), "")},
    {"results of if that agree or are unused go", FIRES, "%0: f32[4], %1: i1[]",
     BRANCHES("", "if", "return %0\n", "return %0\n", "")},
    {"results of if that agree or are unused go", FIRES, "%0: f32[4], %1: i1[]",
     BRANCHES(":2", "if", "%5 = tanh %0 : f32[4]\nreturn %0, %5\n",
              "%6 = negate %0 : f32[4]\nreturn %6, %0\n", "f32[4], ")},
    {"results of if that agree or are unused go", STAYS, "%0: f32[4], %1: i1[]",
     BRANCHES("", "if", "return %0\n", RETURN("6", "tanh"), "")},
    {"results of case that agree or are unused go", FIRES,
     "%0: f32[4], %1: i32[]",
     BRANCHES(":2", "case", "%5 = tanh %0 : f32[4]\nreturn %0, %5\n",
              "%6 = negate %0 : f32[4]\nreturn %0, %6\n", "f32[4], ")},
    {"results of case that agree or are unused go", STAYS,
     "%0: f32[4], %1: i32[]",
     BRANCHES("", "case", RETURN("5", "tanh"), RETURN("6", "tanh"), "")},
    {"loop that never runs = its operands", FIRES, "%0: f32[4]",
     "%9 = while %0 ((%5: f32[4]) {\n" C(
         "6", "i1[]",
         "0") "return %6\n}, "
              "(%7: f32[4]) {\n%8 = tanh %7 : f32[4]\nreturn %8\n}) : f32[4]"},
    {"loop that never runs = its operands", STAYS, "%0: f32[4]",
     LOOP("2", "", "", "", "%34 = tanh %31 : f32[4]\n", "%34", "")},
    {"state that no turn changes is captured", FIRES, "%0: f32[4], %1: f32[4]",
     LOOP("3", ", %1", ", %24: f32[4]", ", %35: f32[4]",
          "%34 = add %31, %35 : f32[4]\n", "%34, %35", "f32[4], ")},
    {"state that no turn changes is captured", FIRES, "%0: f32[4]",
     LOOP("2", "", "", "", "", "%31", "")},
    {"state that no turn changes is captured", STAYS, "%0: f32[4], %1: f32[4]",
     LOOP("3", ", %1", ", %24: f32[4]", ", %35: f32[4]", "", "%35, %31",
          "f32[4], ")},
    {"state that nobody needs goes", FIRES, "%0: f32[4], %1: f32[4]",
     LOOP("3", ", %1", ", %24: f32[4]", ", %35: f32[4]",
          "%34 = tanh %35 : f32[4]\n%36 = add %35, %31 : f32[4]\n", "%36, %34",
          "f32[4], ")},
    {"state that nobody needs goes", STAYS, "%0: f32[4], %1: f32[4]",
     LOOP("3", ", %1", ", %24: f32[4]", ", %35: f32[4]",
          "%34 = tanh %31 : f32[4]\n%36 = add %35, %34 : f32[4]\n", "%34, %36",
          "f32[4], ")},
    {"invariant code leaves the loop", FIRES, "%0: f32[4], %1: f32[4]",
     LOOP("2", "", "", "",
          "%34 = tanh %1 : f32[4]\n%35 = add %31, %34 : f32[4]\n", "%35", "")},
    {"invariant code leaves the loop", STAYS, "%0: f32[4], %1: f32[4]",
     LOOP("2", "", "", "",
          "%34 = tanh %31 : f32[4]\n%35 = add %34, %1 : f32[4]\n", "%35", "")},
    {"invariant code leaves the loop", STAYS, "%0: f32[4], %1: f32[]",
     LOOP("2", "", "", "",
          "%34 = broadcast_in_dim %1 {broadcast_dimensions=[]} : f32[4096]\n"
          "%36 = slice %34 {start_indices=[0], limit_indices=[4], strides=[1]} "
          ": f32[4]\n%35 = add %31, %36 : f32[4]\n",
          "%35", "")},
};

static const at_laws *const tables[] = {&at_laws_algebra, &at_laws_shape,
                                        &at_laws_indexed, &at_laws_dot,
                                        &at_laws_control};

// NULL: no table has it.
static const at_law *find(const char *text) {
  for (size_t t = 0; t < AT_LEN(tables); t++)
    for (size_t i = 0; i < tables[t]->num; i++)
      if (!strcmp(tables[t]->rows[i].text, text)) return tables[t]->rows + i;
  return NULL;
}

// Of several results the last one is the program's.
static at_module *parse(const sample *s, at_arena *a) {
  const char *type = strrchr(s->lines, ':'), *results = strstr(s->lines, "%9:");
  char last[8] = "";
  for (const char *p = type; p; p = strstr(p + 2, ", ")) type = p;
  if (results) snprintf(last, sizeof last, ".%d", atoi(results + 3) - 1);
  at_strbuf text = {0};
  at_strbuf_addf(
      &text,
      "hlo module \"t\" entry=\"main\" {\nfunc \"main\" (%s) -> (%s) "
      "{\n%s\nreturn %%9%s\n}\n}\n",
      s->params, type + 2, s->lines, last);
  at_module *m;
  at_status st = at_hlo_parse(at_strbuf_str(&text), a, &m);
  if (at_ok(st)) st = at_verify(m, "parse");
  if (!at_ok(st)) fail_msg("%s: %s", text.ptr, at_status_message(st));
  at_strbuf_free(&text);
  return m;
}

// NaN equal each other. Zeros of another sign differ, but those that a single
// product of a dot gives.
static bool same_part(at_dtype t, const void *a, const void *b, bool zeros) {
  if (!at_is_float(t)) return at_load_int(t, a) == at_load_int(t, b);
  double x = at_load_float(t, a), y = at_load_float(t, b);
  if (x != x || y != y) return x != x && y != y;
  return x == y && (zeros || !__builtin_signbit(x) == !__builtin_signbit(y));
}

static bool same(const at_literal *a, const at_literal *b, bool zeros) {
  at_dtype t = a->type.dtype, part = at_real_of(t);
  int parts = at_is_complex(t) ? 2 : 1;
  size_t bytes = at_dtype_bytes(part);
  if (!at_type_eq(&a->type, &b->type)) return false;
  for (int64_t i = 0; i < at_type_elements(&a->type) * parts; i++) {
    size_t at = (size_t)(i % parts) * bytes;
    if (!same_part(part, (const uint8_t *)at_literal_at(a, i / parts) + at,
                   (const uint8_t *)at_literal_at(b, i / parts) + at, zeros))
      return false;
  }
  return true;
}

// Both on random arguments, every other time with NaN, infinities and zeros.
static void compare(const sample *s, const at_module *before,
                    const at_module *after, at_arena *a) {
  bool zeros = strstr(s->law, "dot over one") != NULL;
  for (uint64_t seed = 1; seed <= 16; seed++) {
    const at_literal **args, *x, *y;
    at_status st = at_random_args(a, before->entry, seed, seed % 2 == 0, &args);
    if (at_ok(st)) st = at_eval(before->entry, args, NULL, a, &x);
    if (at_ok(st)) st = at_eval(after->entry, args, NULL, a, &y);
    if (!at_ok(st)) fail_msg("%s: %s", s->law, at_status_message(st));
    if (!same(x, y, zeros)) fail_msg("\"%s\" changes:\n%s", s->law, s->lines);
  }
}

// The law alone on the last node, whose operands nobody else uses.
static void check(const sample *s) {
  at_arena *a = at_arena_create();
  at_module *before = parse(s, a), *m = parse(s, a);
  const at_law *law = find(s->law);
  if (!law) fail_msg("no law \"%s\"", s->law);
  at_pass_options o = {0};
  at_rw r = {.m = m, .o = &o};
  at_dce_count_uses(m);
  at_node *n = m->entry->results[0].node;
  assert_true(at_law_is_for(law, n->op));
  at_status st = law->apply(&r, n);
  if (!at_ok(st)) fail_msg("%s: %s", s->law, at_status_message(st));
  if (r.changed != (s->verdict == FIRES) ||
      (at_fwd_has(n) && s->verdict == STAYS))
    fail_msg("\"%s\" %s:\n%s", s->law,
             s->verdict == FIRES ? "leaves alone" : "replaces", s->lines);
  at_fwd_results(m->entry);
  at_dce(m);
  st = at_verify(m, s->law);
  if (!at_ok(st)) fail_msg("%s: %s", s->law, at_status_message(st));
  compare(s, before, m, a);
  at_arena_destroy(a);
}

static void every_program(void **state) {
  for (size_t i = 0; i < AT_LEN(samples); i++) check(samples + i);
}

// And no two laws have one name.
static void every_law(void **state) {
  for (size_t t = 0; t < AT_LEN(tables); t++)
    for (size_t i = 0; i < tables[t]->num; i++) {
      const at_law *law = tables[t]->rows + i;
      bool any = false;
      for (size_t k = 0; k < AT_LEN(samples); k++)
        any |=
            !strcmp(samples[k].law, law->text) && samples[k].verdict == FIRES;
      if (!any) fail_msg("no program for the law \"%s\"", law->text);
      assert_ptr_equal(find(law->text), law);
    }
}

static bool prints_otherwise(const at_module *a, const at_module *b) {
  at_strbuf x = {0}, y = {0};
  assert_true(at_ok(at_hlo_print(a, &x)) && at_ok(at_hlo_print(b, &y)));
  bool differ = strcmp(x.ptr, y.ptr) != 0;
  at_strbuf_free(&x);
  at_strbuf_free(&y);
  return differ;
}

// The pass knows every law: it leaves no node that one of them would replace.
static void pass_applies_all(void **state) {
  for (size_t i = 0; i < AT_LEN(samples); i++) {
    if (samples[i].verdict != FIRES) continue;
    at_arena *a = at_arena_create();
    at_module *before = parse(samples + i, a), *m = parse(samples + i, a);
    at_node *n = m->entry->results[0].node;
    at_pass_options o = {0};
    at_status st = at_pass_simplify(m, &o);
    if (!at_ok(st)) fail_msg("%s: %s", samples[i].law, at_status_message(st));
    // What only leaves a node's regions lets it stand.
    if (find(samples[i].law)->apply == at_simplify_hoist)
      assert_true(prints_otherwise(before, m));
    else
      assert_ptr_not_equal(m->entry->results[0].node, n);
    compare(samples + i, before, m, a);
    at_arena_destroy(a);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_program),
      cmocka_unit_test(every_law),
      cmocka_unit_test(pass_applies_all),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

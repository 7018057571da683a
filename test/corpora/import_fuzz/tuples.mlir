// Tuples, nested and empty, become their leaves: in arguments, results,
// calls and custom calls.
module @tuples {
  func.func public @main(%t: tuple<tensor<2xf32>, tuple<tensor<i32>, tuple<>>, tensor<3xi1>>) -> (tuple<tensor<i32>, tensor<2xf32>>, tensor<3xi1>) {
    %0 = stablehlo.get_tuple_element %t[0] : (tuple<tensor<2xf32>, tuple<tensor<i32>, tuple<>>, tensor<3xi1>>) -> tensor<2xf32>
    %1 = stablehlo.get_tuple_element %t[1] : (tuple<tensor<2xf32>, tuple<tensor<i32>, tuple<>>, tensor<3xi1>>) -> tuple<tensor<i32>, tuple<>>
    %2 = stablehlo.get_tuple_element %1[0] : (tuple<tensor<i32>, tuple<>>) -> tensor<i32>
    %3 = stablehlo.get_tuple_element %t[2] : (tuple<tensor<2xf32>, tuple<tensor<i32>, tuple<>>, tensor<3xi1>>) -> tensor<3xi1>
    %4 = stablehlo.tuple %2, %0 : tuple<tensor<i32>, tensor<2xf32>>
    %5 = func.call @swap(%4) : (tuple<tensor<i32>, tensor<2xf32>>) -> tuple<tensor<2xf32>, tensor<i32>>
    %7 = stablehlo.custom_call @two(%5) {output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [1], operand_index = 0, operand_tuple_indices = [0]>]} : (tuple<tensor<2xf32>, tensor<i32>>) -> tuple<tensor<i32>, tensor<2xf32>>
    return %7, %3 : tuple<tensor<i32>, tensor<2xf32>>, tensor<3xi1>
  }
  func.func private @swap(%s: tuple<tensor<i32>, tensor<2xf32>>) -> tuple<tensor<2xf32>, tensor<i32>> {
    %0 = stablehlo.get_tuple_element %s[0] : (tuple<tensor<i32>, tensor<2xf32>>) -> tensor<i32>
    %1 = stablehlo.get_tuple_element %s[1] : (tuple<tensor<i32>, tensor<2xf32>>) -> tensor<2xf32>
    %2 = stablehlo.tuple %1, %0 : tuple<tensor<2xf32>, tensor<i32>>
    return %2 : tuple<tensor<2xf32>, tensor<i32>>
  }
}

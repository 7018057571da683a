// Requested accuracies: of transcendental functions and of dots.
module @accuracy {
  func.func public @main(%f: tensor<4xf32>, %x: tensor<4x6xf32>, %y: tensor<6x5xf32>) -> (tensor<4xf32>, tensor<4x5xf32>, tensor<4x5xf32>) {
    %0 = stablehlo.exponential %f {result_accuracy = #stablehlo.result_accuracy<mode = #stablehlo.result_accuracy_mode<HIGHEST>>} : tensor<4xf32>
    %1 = stablehlo.log %0 {result_accuracy = #stablehlo.result_accuracy<atol = 1.000000e-05, rtol = 0.000000e+00, ulps = 2, mode = #stablehlo.result_accuracy_mode<TOLERANCE>>} : tensor<4xf32>
    %2 = stablehlo.tan %1 {result_accuracy = #stablehlo.result_accuracy<mode = #stablehlo.result_accuracy_mode<DEFAULT>>} : tensor<4xf32>
    %3 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT], algorithm = <lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 3, allow_imprecise_accumulation = false> : (tensor<4x6xf32>, tensor<6x5xf32>) -> tensor<4x5xf32>
    %4 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0], algorithm = <lhs_precision_type = f8E4M3FN, rhs_precision_type = f8E5M2, accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, allow_imprecise_accumulation = true> : (tensor<4x6xf32>, tensor<6x5xf32>) -> tensor<4x5xf32>
    return %2, %3, %4 : tensor<4xf32>, tensor<4x5xf32>, tensor<4x5xf32>
  }
}

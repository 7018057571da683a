// Dynamic shapes, bounds, and the linear algebra and normalisation ops.
module @dynamic {
  func.func public @main(%x: tensor<?x4xf32, #stablehlo.bounds<8, ?>>, %n: tensor<i32>, %d: tensor<2xi32>, %m: tensor<3x3xf32>, %b: tensor<3x2xf32>, %im: tensor<2x4x3xf32>, %s: tensor<3xf32>) -> (tensor<i32>, tensor<?x?xf32>, tensor<?x?xi32>, tensor<?x?xf32>, tensor<3x3xf32>, tensor<3x2xf32>, tensor<2x4x3xf32>, tensor<2x4x3xf32>, tensor<3xf32>, tensor<2xf32>) {
    %sh = stablehlo.constant dense<2> : tensor<1xi64>
    %hi = stablehlo.constant dense<1.0> : tensor<f32>
    %lo = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32, #stablehlo.bounds<8, ?>>) -> tensor<i32>
    %1 = stablehlo.dynamic_reshape %x, %d : (tensor<?x4xf32, #stablehlo.bounds<8, ?>>, tensor<2xi32>) -> tensor<?x?xf32>
    %2 = stablehlo.dynamic_iota %d, dim = 1 : (tensor<2xi32>) -> tensor<?x?xi32>
    %3 = stablehlo.dynamic_broadcast_in_dim %s, %d, dims = [1] {known_expanding_dimensions = array<i64: 0>} : (tensor<3xf32>, tensor<2xi32>) -> tensor<?x?xf32>
    %4 = stablehlo.cholesky %m, lower = true : tensor<3x3xf32>
    %5 = "stablehlo.triangular_solve"(%4, %b) <{left_side = true, lower = true, transpose_a = #stablehlo<transpose ADJOINT>, unit_diagonal = false}> : (tensor<3x3xf32>, tensor<3x2xf32>) -> tensor<3x2xf32>
    %6, %7, %8 = "stablehlo.batch_norm_training"(%im, %s, %s) <{epsilon = 1.0e-3 : f32, feature_index = 2 : i64}> : (tensor<2x4x3xf32>, tensor<3xf32>, tensor<3xf32>) -> (tensor<2x4x3xf32>, tensor<3xf32>, tensor<3xf32>)
    %9 = "stablehlo.batch_norm_inference"(%6, %s, %s, %7, %8) <{epsilon = 1.0e-3 : f32, feature_index = 2 : i64}> : (tensor<2x4x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<2x4x3xf32>
    %10, %11, %12 = "stablehlo.batch_norm_grad"(%im, %s, %7, %8, %6) <{epsilon = 1.0e-3 : f32, feature_index = 2 : i64}> : (tensor<2x4x3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<2x4x3xf32>) -> (tensor<2x4x3xf32>, tensor<3xf32>, tensor<3xf32>)
    %13 = stablehlo.rng %lo, %hi, %sh, distribution = UNIFORM : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<2xf32>
    return %0, %1, %2, %3, %4, %5, %9, %10, %11, %13 : tensor<i32>, tensor<?x?xf32>, tensor<?x?xi32>, tensor<?x?xf32>, tensor<3x3xf32>, tensor<3x2xf32>, tensor<2x4x3xf32>, tensor<2x4x3xf32>, tensor<3xf32>, tensor<2xf32>
  }
}

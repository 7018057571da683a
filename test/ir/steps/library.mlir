// Ops that the runtime's library does, and one that stays a kernel between them.
module @library {
  func.func public @main(%spd: tensor<3x8x8xf32>, %x: tensor<4x16xf32>, %state: tensor<2xui64>, %img: tensor<1x8x8x4xf32>, %w: tensor<3x3x4x8xf32>) -> (tensor<3x8x8xf32>, tensor<3x8x8xf32>, tensor<4x16xcomplex<f32>>, tensor<2xui64>, tensor<4x4xui32>, tensor<1x8x8x8xf32>) {
    %l = "stablehlo.cholesky"(%spd) {lower = true} : (tensor<3x8x8xf32>) -> tensor<3x8x8xf32>
    %s = "stablehlo.triangular_solve"(%l, %spd) {left_side = true, lower = true, unit_diagonal = false, transpose_a = #stablehlo<transpose NO_TRANSPOSE>} : (tensor<3x8x8xf32>, tensor<3x8x8xf32>) -> tensor<3x8x8xf32>
    %e = stablehlo.exponential %x : tensor<4x16xf32>
    %c = stablehlo.convert %e : (tensor<4x16xf32>) -> tensor<4x16xcomplex<f32>>
    %f = stablehlo.fft %c, type = FFT, length = [16] : (tensor<4x16xcomplex<f32>>) -> tensor<4x16xcomplex<f32>>
    %r:2 = stablehlo.rng_bit_generator %state, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<4x4xui32>)
    %v = stablehlo.convolution(%img, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x8x8x4xf32>, tensor<3x3x4x8xf32>) -> tensor<1x8x8x8xf32>
    return %l, %s, %f, %r#0, %r#1, %v : tensor<3x8x8xf32>, tensor<3x8x8xf32>, tensor<4x16xcomplex<f32>>, tensor<2xui64>, tensor<4x4xui32>, tensor<1x8x8x8xf32>
  }
}

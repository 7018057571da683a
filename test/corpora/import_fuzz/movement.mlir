// Data movement and contractions.
module @movement {
  func.func public @main(%x: tensor<4x6xf32>, %y: tensor<6x5xf32>, %b: tensor<2x4x6xf32>, %i: tensor<3x1xi32>, %n: tensor<i32>, %im: tensor<1x8x8x4xf32>, %w: tensor<3x3x2x6xf32>, %z: tensor<8xf32>) -> (tensor<4x5xf32>, tensor<2x4x4xf32>, tensor<3x6xf32>, tensor<2x3xf32>, tensor<4x6xf32>, tensor<7x14xf32>, tensor<1x4x8x6xf32>, tensor<5xcomplex<f32>>, tensor<8x6xf32>, tensor<24xf32>, tensor<6x4xf32>, tensor<2x2xf32>, tensor<4x6xf32>, tensor<3x4x6xf32>) {
    %pad = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0], precision = [HIGH, HIGHEST] : (tensor<4x6xf32>, tensor<6x5xf32>) -> tensor<4x5xf32>
    %1 = stablehlo.dot_general %b, %b, batching_dims = [0] x [0], contracting_dims = [2] x [2] : (tensor<2x4x6xf32>, tensor<2x4x6xf32>) -> tensor<2x4x4xf32>
    %2 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 6>, indices_are_sorted = true}> : (tensor<4x6xf32>, tensor<3x1xi32>) -> tensor<3x6xf32>
    %3 = stablehlo.dynamic_slice %x, %n, %n, sizes = [2, 3] : (tensor<4x6xf32>, tensor<i32>, tensor<i32>) -> tensor<2x3xf32>
    %4 = stablehlo.dynamic_update_slice %x, %3, %n, %n : (tensor<4x6xf32>, tensor<2x3xf32>, tensor<i32>, tensor<i32>) -> tensor<4x6xf32>
    %5 = stablehlo.pad %x, %pad, low = [1, -1], high = [2, 4], interior = [0, 1] : (tensor<4x6xf32>, tensor<f32>) -> tensor<7x14xf32>
    %6 = stablehlo.convolution(%im, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [2, 1], pad = [[1, 1], [1, 1]], reverse = [true, false]} {batch_group_count = 1 : i64, feature_group_count = 2 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision HIGHEST>]} : (tensor<1x8x8x4xf32>, tensor<3x3x2x6xf32>) -> tensor<1x4x8x6xf32>
    %7 = stablehlo.fft %z, type = RFFT, length = [8] : (tensor<8xf32>) -> tensor<5xcomplex<f32>>
    %8 = stablehlo.concatenate %x, %x, dim = 0 : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>
    %9 = stablehlo.reshape %x : (tensor<4x6xf32>) -> tensor<24xf32>
    %10 = stablehlo.transpose %x, dims = [1, 0] : (tensor<4x6xf32>) -> tensor<6x4xf32>
    %11 = stablehlo.slice %x [0:4:2, 1:5:2] : (tensor<4x6xf32>) -> tensor<2x2xf32>
    %12 = stablehlo.reverse %x, dims = [0, 1] : tensor<4x6xf32>
    %13 = stablehlo.broadcast_in_dim %x, dims = [1, 2] : (tensor<4x6xf32>) -> tensor<3x4x6xf32>
    return %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13 : tensor<4x5xf32>, tensor<2x4x4xf32>, tensor<3x6xf32>, tensor<2x3xf32>, tensor<4x6xf32>, tensor<7x14xf32>, tensor<1x4x8x6xf32>, tensor<5xcomplex<f32>>, tensor<8x6xf32>, tensor<24xf32>, tensor<6x4xf32>, tensor<2x2xf32>, tensor<4x6xf32>, tensor<3x4x6xf32>
  }
}

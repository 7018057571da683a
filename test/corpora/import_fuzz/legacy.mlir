// Ops of old versions, as what replaced them.
module @legacy {
  func.func public @main(%x: tensor<4x6xf32>, %y: tensor<6x5xf32>, %v: tensor<6xf32>, %b: tensor<2x4x6xf32>, %c: tensor<2x6x3xf32>, %i: tensor<2x3xi32>) -> (tensor<4x5xf32>, tensor<4xf32>, tensor<f32>, tensor<2x3x6xf32>, tensor<5x4xf32>, tensor<2x4x3xf32>, tensor<4x3xf32>, tensor<6x4xf32>, tensor<4xf32>, tensor<4x2x3xf32>, tensor<2x3x6xf32>, tensor<4x6xf32>, !stablehlo.token) {
    %0 = stablehlo.dot %x, %y, precision = [HIGHEST, DEFAULT] : (tensor<4x6xf32>, tensor<6x5xf32>) -> tensor<4x5xf32>
    %1 = stablehlo.dot %x, %v : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4xf32>
    %2 = stablehlo.dot %v, %v : (tensor<6xf32>, tensor<6xf32>) -> tensor<f32>
    %3 = stablehlo.broadcast %v, sizes = [2, 3] : (tensor<6xf32>) -> tensor<2x3x6xf32>
    %4 = stablehlo.einsum %x, %y, config = "ij,jk->ki" : (tensor<4x6xf32>, tensor<6x5xf32>) -> tensor<5x4xf32>
    %5 = stablehlo.einsum %b, %c, config = "bij,bjk->bik" : (tensor<2x4x6xf32>, tensor<2x6x3xf32>) -> tensor<2x4x3xf32>
    %6 = stablehlo.einsum %b, %c, config = "aij,bjk->ik" : (tensor<2x4x6xf32>, tensor<2x6x3xf32>) -> tensor<4x3xf32>
    %7 = "stablehlo.unary_einsum"(%x) <{einsum_config = "ij->ji"}> : (tensor<4x6xf32>) -> tensor<6x4xf32>
    %8 = "stablehlo.unary_einsum"(%x) <{einsum_config = "ij->i"}> : (tensor<4x6xf32>) -> tensor<4xf32>
    %9 = "stablehlo.torch_index_select"(%x, %i) <{dim = 1 : i64, batch_dims = 0 : i64}> : (tensor<4x6xf32>, tensor<2x3xi32>) -> tensor<4x2x3xf32>
    %10 = "stablehlo.torch_index_select"(%b, %i) <{dim = 1 : i64, batch_dims = 1 : i64}> : (tensor<2x4x6xf32>, tensor<2x3xi32>) -> tensor<2x3x6xf32>
    %11 = "stablehlo.cross-replica-sum"(%x) <{replica_groups = dense<[[0, 1], [2, -1]]> : tensor<2x2xi64>}> : (tensor<4x6xf32>) -> tensor<4x6xf32>
    %12 = stablehlo.create_token : !stablehlo.token
    return %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12 : tensor<4x5xf32>, tensor<4xf32>, tensor<f32>, tensor<2x3x6xf32>, tensor<5x4xf32>, tensor<2x4x3xf32>, tensor<4x3xf32>, tensor<6x4xf32>, tensor<4xf32>, tensor<4x2x3xf32>, tensor<2x3x6xf32>, tensor<4x6xf32>, !stablehlo.token
  }
}

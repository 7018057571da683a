// Collectives between four devices.
module @replicas attributes {mhlo.num_replicas = 4 : i32, mhlo.num_partitions = 1 : i32} {
  func.func public @main(%x: tensor<8x128xf32>) -> (tensor<8x128xf32>, tensor<32x128xf32>, tensor<2x128xf32>, tensor<8x128xf32>, tensor<8x128xf32>, tensor<2x512xf32>, tensor<32x32xf32>, tensor<8x512xf32>, tensor<8x32xf32>) {
    %0 = "stablehlo.all_reduce"(%x) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) {replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>} : (tensor<8x128xf32>) -> tensor<8x128xf32>
    %1 = "stablehlo.all_gather"(%0) {all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>} : (tensor<8x128xf32>) -> tensor<32x128xf32>
    %2 = "stablehlo.reduce_scatter"(%x) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.maximum %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) {scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>} : (tensor<8x128xf32>) -> tensor<2x128xf32>
    %3 = "stablehlo.collective_permute"(%x) {source_target_pairs = dense<[[0, 1], [1, 2], [2, 3], [3, 0]]> : tensor<4x2xi64>} : (tensor<8x128xf32>) -> tensor<8x128xf32>
    %4 = "stablehlo.all_to_all"(%x) {split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 4 : i64, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>} : (tensor<8x128xf32>) -> tensor<8x128xf32>
    %5 = "stablehlo.all_to_all"(%x) {split_dimension = 0 : i64, concat_dimension = 1 : i64, split_count = 4 : i64, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>} : (tensor<8x128xf32>) -> tensor<2x512xf32>
    %6 = "stablehlo.all_to_all"(%x) {split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 4 : i64, replica_groups = dense<[[3, 2, 1, 0]]> : tensor<1x4xi64>} : (tensor<8x128xf32>) -> tensor<32x32xf32>
    %7 = "stablehlo.all_gather"(%x) {all_gather_dim = 1 : i64, replica_groups = dense<[[0, 2, 1, 3]]> : tensor<1x4xi64>} : (tensor<8x128xf32>) -> tensor<8x512xf32>
    %8 = "stablehlo.reduce_scatter"(%x) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) {scatter_dimension = 1 : i64, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>} : (tensor<8x128xf32>) -> tensor<8x32xf32>
    return %0, %1, %2, %3, %4, %5, %6, %7, %8 : tensor<8x128xf32>, tensor<32x128xf32>, tensor<2x128xf32>, tensor<8x128xf32>, tensor<8x128xf32>, tensor<2x512xf32>, tensor<32x32xf32>, tensor<8x512xf32>, tensor<8x32xf32>
  }
}

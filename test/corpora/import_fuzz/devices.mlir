// Collectives, tokens, transfers to and from the host.
module @devices {
  func.func public @main(%x: tensor<4x8xf32>, %s: tensor<2xui64>) -> (tensor<8x8xf32>, tensor<4x8xf32>, tensor<8x4xf32>, tensor<2x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<ui32>, tensor<2xui64>, tensor<3xui32>, tensor<4xf32>) {
    %0 = "stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids}> : (tensor<4x8xf32>) -> tensor<8x8xf32>
    %1 = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1, 2], [3, -1, -1]]> : tensor<2x3xi64>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %m = stablehlo.maximum %a, %b : tensor<f32>
      stablehlo.return %m : tensor<f32>
    }) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %2 = "stablehlo.all_to_all"(%x) <{split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 2 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<4x8xf32>) -> tensor<8x4xf32>
    %3 = "stablehlo.reduce_scatter"(%x) <{scatter_dimension = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %m = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %m : tensor<f32>
    }) : (tensor<4x8xf32>) -> tensor<2x8xf32>
    %4 = "stablehlo.collective_permute"(%x) <{source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>}> : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %5 = "stablehlo.collective_broadcast"(%x) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %6 = stablehlo.partition_id : tensor<ui32>
    %7 = stablehlo.replica_id : tensor<ui32>
    %8 = stablehlo.add %6, %7 : tensor<ui32>
    %9, %10 = stablehlo.rng_bit_generator %s, algorithm = THREE_FRY : (tensor<2xui64>) -> (tensor<2xui64>, tensor<3xui32>)
    %t = stablehlo.create_token : !stablehlo.token
    %t1 = stablehlo.after_all %t, %t : !stablehlo.token
    %11:2 = "stablehlo.infeed"(%t1) <{infeed_config = "cfg", layout = [[0]]}> : (!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)
    %12 = "stablehlo.outfeed"(%11#0, %11#1) <{outfeed_config = "out"}> : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token
    %13 = "stablehlo.send"(%11#0, %12) <{channel_handle = #stablehlo.channel_handle<handle = 5, type = 2>, is_host_transfer = true}> {mhlo.frontend_attributes = {_xla_host_transfer_rendezvous = "5"}} : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token
    %14:2 = "stablehlo.recv"(%13) <{channel_handle = #stablehlo.channel_handle<handle = 6, type = 3>, is_host_transfer = true}> : (!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)
    %15:2 = stablehlo.optimization_barrier %14#0, %14#1 : tensor<4xf32>, !stablehlo.token
    return %0, %1, %2, %3, %4, %5, %8, %9, %10, %15#0 : tensor<8x8xf32>, tensor<4x8xf32>, tensor<8x4xf32>, tensor<2x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<ui32>, tensor<2xui64>, tensor<3xui32>, tensor<4xf32>
  }
}

// Groups as axes of meshes: with devices in another order, by parts of an axis, over two axes.
module @mesh_groups attributes {mhlo.num_partitions = 8 : i32} {
  sdy.mesh @plain = <["x"=2, "y"=4]>
  sdy.mesh @mixed = <["x"=4, "y"=2], device_ids=[3, 1, 0, 2, 7, 6, 4, 5]>
  func.func @main(%x: tensor<4x8xf32>) -> (tensor<4x32xf32>, tensor<8x8xf32>, tensor<4x64xf32>, tensor<4x16xf32>) {
    %0 = "stablehlo.all_gather"(%x) <{all_gather_dim = 1 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @plain, axes = [#stablehlo.axis_ref<name = "y">]>, use_global_device_ids}> : (tensor<4x8xf32>) -> tensor<4x32xf32>
    %1 = "stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mixed, axes = [#stablehlo.axis_ref<name = "y">]>, use_global_device_ids}> : (tensor<4x8xf32>) -> tensor<8x8xf32>
    %2 = "stablehlo.all_gather"(%x) <{all_gather_dim = 1 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mixed, axes = [#stablehlo.axis_ref<name = "y">, #stablehlo.axis_ref<name = "x">]>, use_global_device_ids}> : (tensor<4x8xf32>) -> tensor<4x64xf32>
    %3 = "stablehlo.all_gather"(%x) <{all_gather_dim = 1 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @plain, axes = [#stablehlo.axis_ref<name = "y", sub_axis_info = (1)2>]>, use_global_device_ids}> : (tensor<4x8xf32>) -> tensor<4x16xf32>
    return %0, %1, %2, %3 : tensor<4x32xf32>, tensor<8x8xf32>, tensor<4x64xf32>, tensor<4x16xf32>
  }
}

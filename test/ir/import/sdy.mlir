// Shardy over a mesh of one device: constraints are kept, manual computations are
// looked into.
module @sdy {
  sdy.mesh @mesh = <["x"=1, "y"=1]>
  func.func public @main(%x: tensor<4x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> (tensor<4x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y"}]>}) {
    %0 = sdy.sharding_constraint %x <@mesh, [{"x"}, {}]> : tensor<4x8xf32>
    %1 = stablehlo.add %0, %0 {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>} : tensor<4x8xf32>
    %2 = sdy.manual_computation(%1, %x) in_shardings=[<@mesh, [{"x"}, {}]>, <@mesh, [{"x"}, {}]>] out_shardings=[<@mesh, [{"x"}, {}]>] manual_axes={"x"} (%a: tensor<4x8xf32>, %b: tensor<4x8xf32>) {
      %s = stablehlo.multiply %a, %b : tensor<4x8xf32>
      sdy.return %s : tensor<4x8xf32>
    } : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
    %3 = sdy.reshard %2 <@mesh, [{}, {"y"}]> : tensor<4x8xf32>
    %4 = "sdy.propagation_barrier"(%3) <{allowed_direction = 0 : i32}> : (tensor<4x8xf32>) -> tensor<4x8xf32>
    sdy.sharding_group %4 group_id=3 : tensor<4x8xf32>
    %5 = sdy.named_computation<"layer">(%4) (%a: tensor<4x8xf32>) {
      %s = stablehlo.negate %a : tensor<4x8xf32>
      sdy.return %s : tensor<4x8xf32>
    } : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return %5 : tensor<4x8xf32>
  }
}

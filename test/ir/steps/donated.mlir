// An argument that its output takes the memory of, one that nobody can take, a result that is an argument, two that are one.
module @donated {
  func.func public @main(%a: tensor<64x128xf32> {tf.aliasing_output = 0 : i32}, %b: tensor<128x128xf32>, %c: tensor<3xi32> {jax.buffer_donor = true}, %d: tensor<5xf32>) -> (tensor<64x128xf32>, tensor<64xf32>, tensor<64x128xi32>, tensor<5xf32>, tensor<64xf32>) {
    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<64x128xf32>, tensor<128x128xf32>) -> tensor<64x128xf32>
    %1 = stablehlo.tanh %0 : tensor<64x128xf32>
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %2 = stablehlo.reduce(%1 init: %z) applies stablehlo.add across dimensions = [1] : (tensor<64x128xf32>, tensor<f32>) -> tensor<64xf32>
    %3 = "stablehlo.sort"(%1) ({
    ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %l = stablehlo.compare LT, %x, %y, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %l : tensor<i1>
    }) {dimension = 1 : i64, is_stable = true} : (tensor<64x128xf32>) -> tensor<64x128xf32>
    %4 = stablehlo.convert %3 : (tensor<64x128xf32>) -> tensor<64x128xi32>
    return %1, %2, %4, %d, %2 : tensor<64x128xf32>, tensor<64xf32>, tensor<64x128xi32>, tensor<5xf32>, tensor<64xf32>
  }
}

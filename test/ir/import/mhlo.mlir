// Ops of MHLO that StableHLO has no word for, as calls of their names.
module {
  func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<2xf32>, tensor<2xi32>, tensor<4xf32>) {
    %0 = stablehlo.custom_call @mhlo.erf(%x) {mhlo.attributes = {}, mhlo.version = 1 : i64} : (tensor<4xf32>) -> tensor<4xf32>
    %1 = stablehlo.custom_call @mhlo.sinh(%0) {mhlo.sharding = "{replicated}"} : (tensor<4xf32>) -> tensor<4xf32>
    %2:2 = stablehlo.custom_call @mhlo.topk(%x) {mhlo.attributes = {k = 2 : i64, largest = false}, mhlo.version = 1 : i64} : (tensor<4xf32>) -> (tensor<2xf32>, tensor<2xi32>)
    %3 = stablehlo.custom_call @mhlo.unheard_of(%x) : (tensor<4xf32>) -> tensor<4xf32>
    return %0, %1, %2#0, %2#1, %3 : tensor<4xf32>, tensor<4xf32>, tensor<2xf32>, tensor<2xi32>, tensor<4xf32>
  }
}

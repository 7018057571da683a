// Constants whose data stands apart, as a blob: alignment, then the elements.
module @resources {
  func.func public @main() -> (tensor<3xf32>, tensor<2x2xi16>, tensor<4xi1>) {
    %0 = stablehlo.constant dense_resource<weights> : tensor<3xf32>
    %1 = stablehlo.constant dense_resource<shorts> : tensor<2x2xi16>
    %2 = stablehlo.constant dense_resource<flags> : tensor<4xi1>
    return %0, %1, %2 : tensor<3xf32>, tensor<2x2xi16>, tensor<4xi1>
  }
}

{-#
  dialect_resources: {
    builtin: {
      weights: "0x040000000000803F0000004000004040",
      shorts: "0x020000000100FFFF03000400",
      flags: "0x0100000001000001"
    }
  }
#-}

// JAX's op names, files, lines and call sites.
#file = loc("train.py":12:4)
#range = loc("train.py":13:4 to :20)
#call = loc("main.py":3:0)
#frame = loc("step"(#range))
#outer = loc("<module>"(#call))
#site = loc(callsite(#frame at #outer))
module @locations {
  func.func public @main(%x: tensor<4xf32> loc("batch")) -> tensor<4xf32> {
    %0 = stablehlo.add %x, %x : tensor<4xf32> loc("jit(step)/add"(#file))
    %1 = stablehlo.multiply %0, %x : tensor<4xf32> loc("jit(step)/mul"(#site))
    %2 = stablehlo.negate %1 : tensor<4xf32> loc(fused[unknown, "jit(step)/neg"(#file)])
    %3 = stablehlo.abs %2 : tensor<4xf32> loc(unknown)
    return %3 : tensor<4xf32> loc(unknown)
  } loc(unknown)
} loc(unknown)

"builtin.module"() ({
  "func.func"() ({
  ^bb1(%arg0: memref<8x128xf32, #tpu.memory_space<vmem>>, %arg1: memref<8x128xf32, #tpu.memory_space<vmem>>, %arg2: memref<8x128xf32, #tpu.memory_space<vmem>>):
    %c0 = "arith.constant"() {value = 0 : index} : () -> index
    %a = "vector.load"(%arg0, %c0, %c0) : (memref<8x128xf32, #tpu.memory_space<vmem>>, index, index) -> vector<8x128xf32>
    %e = "math.exp"(%a) : (vector<8x128xf32>) -> vector<8x128xf32>
    %cheap = "arith.addf"(%a, %a) : (vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xf32>
    %z8 = "arith.constant"() {value = dense<0.000000e+00> : vector<8xf32>} : () -> vector<8xf32>
    %r = "vector.multi_reduction"(%e, %z8) {kind = #vector.kind<add>, reduction_dims = [1]} : (vector<8x128xf32>, vector<8xf32>) -> vector<8xf32>
    %col = "vector.shape_cast"(%r) : (vector<8xf32>) -> vector<8x1xf32>
    %wide = "vector.broadcast"(%col) : (vector<8x1xf32>) -> vector<8x128xf32>
    %q = "arith.divf"(%e, %wide) : (vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xf32>
    "vector.store"(%q, %arg1, %c0, %c0) : (vector<8x128xf32>, memref<8x128xf32, #tpu.memory_space<vmem>>, index, index) -> ()
    %k = "arith.mulf"(%cheap, %e) : (vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xf32>
    "vector.store"(%k, %arg2, %c0, %c0) : (vector<8x128xf32>, memref<8x128xf32, #tpu.memory_space<vmem>>, index, index) -> ()
    "vector.store"(%cheap, %arg1, %c0, %c0) : (vector<8x128xf32>, memref<8x128xf32, #tpu.memory_space<vmem>>, index, index) -> ()
    "func.return"() : () -> ()
  }) {dimension_semantics = [], function_type = (memref<8x128xf32, #tpu.memory_space<vmem>>, memref<8x128xf32, #tpu.memory_space<vmem>>, memref<8x128xf32, #tpu.memory_space<vmem>>) -> (), scalar_prefetch = 0 : i64, scratch_operands = 0 : i64, sym_name = "kernel", tpu.core_type = #tpu.core_type<tc>} : () -> ()
}) : () -> ()
----
// kernel kernel, program kernel
body
  argument %0
  argument %1
  argument %2
  %3 = arith.constant
  %4 = vector.load %0 %3 %3  // where it is used
  %5 = math.exp %4  // kept
  %6 = arith.addf %4 %4  // where it is used
  %7 = arith.constant  // for vector.multi_reduction
  %8 = vector.multi_reduction %5 %7  // for vector.store
  %9 = vector.shape_cast %8  // for vector.store; spread over lanes
  %10 = vector.broadcast %9  // for vector.store
  %11 = arith.divf %5 %10  // for vector.store
  vector.store %11 %1 %3 %3
  %12 = arith.mulf %6 %5  // for vector.store
  vector.store %12 %2 %3 %3
  vector.store %6 %1 %3 %3
  func.return

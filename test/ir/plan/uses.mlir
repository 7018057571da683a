"builtin.module"() ({
  "func.func"() ({
  ^bb1(%arg0: memref<128x128xf32, #tpu.memory_space<vmem>>, %arg1: memref<128x128xf32, #tpu.memory_space<vmem>>):
    %c0 = "arith.constant"() {value = 0 : index} : () -> index
    %a = "vector.load"(%arg0, %c0, %c0) : (memref<128x128xf32, #tpu.memory_space<vmem>>, index, index) -> vector<128x128xf32>
    %z = "arith.constant"() {value = dense<0.000000e+00> : vector<128x128xf32>} : () -> vector<128x128xf32>
    %b = "arith.addf"(%a, %a) : (vector<128x128xf32>, vector<128x128xf32>) -> vector<128x128xf32>
    %p = "tpu.matmul"(%b, %a, %z) {dimension_numbers = #tpu.dot_dimension_numbers<[1], [0], [0], [1], [0, 0, 1, 1], [], []>, transpose_lhs = false, transpose_rhs = false} : (vector<128x128xf32>, vector<128x128xf32>, vector<128x128xf32>) -> vector<128x128xf32>
    %unused = "math.exp"(%a) : (vector<128x128xf32>) -> vector<128x128xf32>
    "vector.store"(%p, %arg1, %c0, %c0) : (vector<128x128xf32>, memref<128x128xf32, #tpu.memory_space<vmem>>, index, index) -> ()
    "func.return"() : () -> ()
  }) {dimension_semantics = [], function_type = (memref<128x128xf32, #tpu.memory_space<vmem>>, memref<128x128xf32, #tpu.memory_space<vmem>>) -> (), scalar_prefetch = 0 : i64, scratch_operands = 0 : i64, sym_name = "kernel", tpu.core_type = #tpu.core_type<tc>} : () -> ()
}) : () -> ()
----
// kernel kernel, program kernel
body
  argument %0  // 1 use
  argument %1  // 1 use
  %2 = arith.constant  // 4 uses
  %3 = vector.load %0 %2 %2  // 4 uses; 1 product
  %4 = arith.constant  // 0 uses
  %5 = arith.constant  // 1 use; 1 product
  %6 = arith.addf %3 %3  // 1 use; 1 product
  %7 = tpu.matmul %6 %3 %5  // 1 use
  %8 = math.exp %3  // 0 uses
  vector.store %7 %1 %2 %2
  func.return

"builtin.module"() ({
  "func.func"() ({
  ^bb1(%arg0: memref<8x128xf32, #tpu.memory_space<vmem>>, %arg1: memref<8x128xf32, #tpu.memory_space<vmem>>, %arg2: memref<8x128xf32, #tpu.memory_space<vmem>>):
    %c0 = "arith.constant"() {value = 0 : index} : () -> index
    %a = "vector.load"(%arg0, %c0, %c0) : (memref<8x128xf32, #tpu.memory_space<vmem>>, index, index) -> vector<8x128xf32>
    %e = "math.exp"(%a) : (vector<8x128xf32>) -> vector<8x128xf32>
    %b = "arith.mulf"(%e, %e) : (vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xf32>
    %d = "arith.addf"(%b, %a) : (vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xf32>
    %t = "vector.transpose"(%d) {permutation = array<i64: 1, 0>} : (vector<8x128xf32>) -> vector<128x8xf32>
    %u = "vector.transpose"(%t) {permutation = array<i64: 1, 0>} : (vector<128x8xf32>) -> vector<8x128xf32>
    %s = "arith.divf"(%u, %b) : (vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xf32>
    "vector.store"(%s, %arg2, %c0, %c0) : (vector<8x128xf32>, memref<8x128xf32, #tpu.memory_space<vmem>>, index, index) -> ()
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
  %4 = vector.load %0 %3 %3  // cost 1
  %5 = math.exp %4  // cost 12.5
  %6 = arith.mulf %5 %5  // cost 13.5
  %7 = arith.addf %6 %4  // cost 8.25
  %8 = vector.transpose %7  // cost 16.25
  %9 = vector.transpose %8  // cost 24.25
  %10 = arith.divf %9 %6  // cost 36
  vector.store %10 %2 %3 %3
  func.return

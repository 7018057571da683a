"builtin.module"() ({
  "func.func"() ({
  ^bb1(%arg0: memref<1xi32, #tpu.memory_space<smem>>, %arg1: memref<8x128xf32, #tpu.memory_space<vmem>>, %arg2: memref<8x128xf32, #tpu.memory_space<vmem>>):
    %c0 = "arith.constant"() {value = 0 : index} : () -> index
    %i = "memref.load"(%arg0, %c0) : (memref<1xi32, #tpu.memory_space<smem>>, index) -> i32
    %k = "arith.constant"() {value = 0 : i32} : () -> i32
    %first = "arith.cmpi"(%i, %k) {predicate = 0 : i64} : (i32, i32) -> i1
    %x = "vector.load"(%arg1, %c0, %c0) : (memref<8x128xf32, #tpu.memory_space<vmem>>, index, index) -> vector<8x128xf32>
    %old = "vector.load"(%arg2, %c0, %c0) : (memref<8x128xf32, #tpu.memory_space<vmem>>, index, index) -> vector<8x128xf32>
    %sum = "arith.addf"(%old, %x) : (vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xf32>
    %v = "arith.select"(%first, %x, %sum) : (i1, vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xf32>
    "vector.store"(%v, %arg2, %c0, %c0) : (vector<8x128xf32>, memref<8x128xf32, #tpu.memory_space<vmem>>, index, index) -> ()
    "func.return"() : () -> ()
  }) {dimension_semantics = [], function_type = (memref<1xi32, #tpu.memory_space<smem>>, memref<8x128xf32, #tpu.memory_space<vmem>>, memref<8x128xf32, #tpu.memory_space<vmem>>) -> (), scalar_prefetch = 0 : i64, scratch_operands = 0 : i64, sym_name = "kernel", tpu.core_type = #tpu.core_type<tc>} : () -> ()
}) : () -> ()
----
// kernel kernel, program kernel
body
  argument %0
  argument %1
  argument %2
  %3 = arith.constant
  %4 = memref.load %0 %3
  %5 = arith.constant
  %6 = arith.cmpi %4 %5
  %7 = vector.load %1 %3 %3  // may be dropped
  %8 = vector.load %2 %3 %3  // may be dropped
  %9 = arith.addf %8 %7  // may be dropped
  %10 = arith.select %6 %7 %9
  vector.store %10 %2 %3 %3
  func.return

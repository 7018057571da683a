"builtin.module"() ({
  "func.func"() ({
  ^bb1(%arg0: memref<3xi32, #tpu.memory_space<smem>>, %arg1: memref<3xi32, #tpu.memory_space<smem>>, %arg2: memref<8x128xf32, #tpu.memory_space<vmem>>):
    %c0 = "arith.constant"() {value = 0 : index} : () -> index
    %i = "memref.load"(%arg0, %c0) : (memref<3xi32, #tpu.memory_space<smem>>, index) -> i32
    %k = "arith.constant"() {value = 3 : i32} : () -> i32
    %inside = "arith.cmpi"(%i, %k) {predicate = 2 : i64} : (i32, i32) -> i1
    %at = "arith.index_cast"(%i) : (i32) -> index
    %n = "memref.load"(%arg1, %at) : (memref<3xi32, #tpu.memory_space<smem>>, index) -> i32
    %z = "arith.constant"() {value = 0 : i32} : () -> i32
    %empty = "arith.cmpi"(%n, %z) {predicate = 0 : i64} : (i32, i32) -> i1
    %both = "arith.andi"(%inside, %empty) : (i1, i1) -> i1
    %x = "vector.load"(%arg2, %c0, %c0) : (memref<8x128xf32, #tpu.memory_space<vmem>>, index, index) -> vector<8x128xf32>
    %sum = "arith.addf"(%x, %x) : (vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xf32>
    %v = "arith.select"(%both, %x, %sum) : (i1, vector<8x128xf32>, vector<8x128xf32>) -> vector<8x128xf32>
    "vector.store"(%v, %arg2, %c0, %c0) : (vector<8x128xf32>, memref<8x128xf32, #tpu.memory_space<vmem>>, index, index) -> ()
    "func.return"() : () -> ()
  }) {dimension_semantics = [], function_type = (memref<3xi32, #tpu.memory_space<smem>>, memref<3xi32, #tpu.memory_space<smem>>, memref<8x128xf32, #tpu.memory_space<vmem>>) -> (), scalar_prefetch = 0 : i64, scratch_operands = 0 : i64, sym_name = "kernel", tpu.core_type = #tpu.core_type<tc>} : () -> ()
}) : () -> ()
----
// kernel kernel, program kernel
body
  argument %0
  argument %1
  argument %2
  %3 = arith.constant
  %4 = memref.load %0 %3
  %5 = arith.constant  // may be dropped
  %6 = arith.cmpi %4 %5  // may be dropped
  %7 = arith.index_cast %4
  %8 = memref.load %1 %7  // may be dropped
  %9 = arith.constant  // may be dropped
  %10 = arith.cmpi %8 %9  // may be dropped
  %11 = arith.andi %6 %10
  %12 = vector.load %2 %3 %3  // may be dropped
  %13 = arith.addf %12 %12  // may be dropped
  %14 = arith.select %11 %12 %13
  vector.store %14 %2 %3 %3
  func.return

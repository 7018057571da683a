"builtin.module"() ({
  "func.func"() ({
  ^bb1(%arg0: memref<16x128xbf16, #tpu.memory_space<vmem>>, %arg1: memref<8x128xf32, #tpu.memory_space<vmem>>, %arg2: memref<8x128xf32, #tpu.memory_space<vmem>>):
    %c0 = "arith.constant"() {value = 0 : index} : () -> index
    %one = "arith.constant"() {value = 1 : i32} : () -> i32
    %zero = "arith.constant"() {value = 0 : i32} : () -> i32
    %wide = "tpu.memref_bitcast"(%arg0) : (memref<16x128xbf16, #tpu.memory_space<vmem>>) -> memref<8x128xi32, #tpu.memory_space<vmem>>
    "tpu.region"() ({
      %m = "memref.alloca"() {operandSegmentSizes = array<i32: 0, 0>} : () -> memref<8x128xf32, #tpu.memory_space<vmem>>
      %a = "vector.load"(%arg1, %c0, %c0) : (memref<8x128xf32, #tpu.memory_space<vmem>>, index, index) -> vector<8x128xf32>
      "vector.store"(%a, %m, %c0, %c0) : (vector<8x128xf32>, memref<8x128xf32, #tpu.memory_space<vmem>>, index, index) -> ()
      %l = "scf.for"(%zero, %one, %one, %a) ({
      ^bb2(%i: i32, %acc: vector<8x128xf32>):
        "vector.store"(%acc, %arg2, %c0, %c0) : (vector<8x128xf32>, memref<8x128xf32, #tpu.memory_space<vmem>>, index, index) -> ()
        "scf.yield"(%acc) : (vector<8x128xf32>) -> ()
      }) : (i32, i32, i32, vector<8x128xf32>) -> vector<8x128xf32>
      "vector.store"(%l, %m, %c0, %c0) : (vector<8x128xf32>, memref<8x128xf32, #tpu.memory_space<vmem>>, index, index) -> ()
      "tpu.yield"() : () -> ()
    }) : () -> ()
    "func.return"() : () -> ()
  }) {dimension_semantics = [], function_type = (memref<16x128xbf16, #tpu.memory_space<vmem>>, memref<8x128xf32, #tpu.memory_space<vmem>>, memref<8x128xf32, #tpu.memory_space<vmem>>) -> (), scalar_prefetch = 0 : i64, scratch_operands = 0 : i64, sym_name = "kernel", tpu.core_type = #tpu.core_type<tc>} : () -> ()
}) : () -> ()
----
// kernel kernel, program kernel
body
  argument %0  // root 1
  argument %1  // root 2
  argument %2  // root 3
  %3 = arith.constant
  %4 = arith.constant
  %5 = arith.constant
  %6 = tpu.memref_bitcast %0  // root 1; packed
  tpu.region  // writes 3; allocates 4 5
    region 0
    %7 = memref.alloca  // root 4; allocates 4
    %8 = vector.load %1 %3 %3
    vector.store %8 %7 %3 %3  // writes 4
    %9 = scf.for %5 %4 %4 %8  // writes 3; allocates 5
      region 0
      argument %10
      argument %11  // root 5
      vector.store %11 %2 %3 %3  // writes 3
      scf.yield %11
    vector.store %9 %7 %3 %3  // writes 4
    tpu.yield
  func.return

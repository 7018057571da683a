"builtin.module"() ({
  "func.func"() ({
  ^bb1(%arg0: memref<1xi32, #tpu.memory_space<smem>>, %arg1: memref<128x128xf32, #tpu.memory_space<vmem>>, %arg2: memref<128x128xf32, #tpu.memory_space<vmem>>, %arg3: memref<128x128xf32, #tpu.memory_space<vmem>>, %acc: memref<128x128xf32, #tpu.memory_space<vmem>>):
    %c0 = "arith.constant"() {value = 0 : index} : () -> index
    %i = "memref.load"(%arg0, %c0) : (memref<1xi32, #tpu.memory_space<smem>>, index) -> i32
    %k = "arith.constant"() {value = 0 : i32} : () -> i32
    %first = "arith.cmpi"(%i, %k) {predicate = 0 : i64} : (i32, i32) -> i1
    %last = "arith.cmpi"(%i, %k) {predicate = 4 : i64} : (i32, i32) -> i1
    "scf.if"(%first) ({
      %z0 = "arith.constant"() {value = dense<0.000000e+00> : vector<128x128xf32>} : () -> vector<128x128xf32>
      "vector.store"(%z0, %acc, %c0, %c0) : (vector<128x128xf32>, memref<128x128xf32, #tpu.memory_space<vmem>>, index, index) -> ()
      "scf.yield"() : () -> ()
    }, {
    }) : (i1) -> ()
    %old = "vector.load"(%acc, %c0, %c0) : (memref<128x128xf32, #tpu.memory_space<vmem>>, index, index) -> vector<128x128xf32>
    %a = "vector.load"(%arg1, %c0, %c0) : (memref<128x128xf32, #tpu.memory_space<vmem>>, index, index) -> vector<128x128xf32>
    %b = "vector.load"(%arg2, %c0, %c0) : (memref<128x128xf32, #tpu.memory_space<vmem>>, index, index) -> vector<128x128xf32>
    %z = "arith.constant"() {value = dense<0.000000e+00> : vector<128x128xf32>} : () -> vector<128x128xf32>
    %p = "tpu.matmul"(%a, %b, %z) {dimension_numbers = #tpu.dot_dimension_numbers<[1], [0], [0], [1], [0, 0, 1, 1], [], []>, transpose_lhs = false, transpose_rhs = false} : (vector<128x128xf32>, vector<128x128xf32>, vector<128x128xf32>) -> vector<128x128xf32>
    %new = "arith.addf"(%old, %p) : (vector<128x128xf32>, vector<128x128xf32>) -> vector<128x128xf32>
    "vector.store"(%new, %acc, %c0, %c0) : (vector<128x128xf32>, memref<128x128xf32, #tpu.memory_space<vmem>>, index, index) -> ()
    "scf.if"(%last) ({
      %t = "vector.load"(%acc, %c0, %c0) : (memref<128x128xf32, #tpu.memory_space<vmem>>, index, index) -> vector<128x128xf32>
      "vector.store"(%t, %arg3, %c0, %c0) : (vector<128x128xf32>, memref<128x128xf32, #tpu.memory_space<vmem>>, index, index) -> ()
      "scf.yield"() : () -> ()
    }, {
    }) : (i1) -> ()
    "func.return"() : () -> ()
  }) {dimension_semantics = [], function_type = (memref<1xi32, #tpu.memory_space<smem>>, memref<128x128xf32, #tpu.memory_space<vmem>>, memref<128x128xf32, #tpu.memory_space<vmem>>, memref<128x128xf32, #tpu.memory_space<vmem>>, memref<128x128xf32, #tpu.memory_space<vmem>>) -> (), scalar_prefetch = 0 : i64, scratch_operands = 1 : i64, sym_name = "kernel", tpu.core_type = #tpu.core_type<tc>} : () -> ()
}) : () -> ()
----
// kernel kernel, program kernel
body
  argument %0
  argument %1
  argument %2
  argument %3
  argument %4
  %5 = arith.constant
  %6 = memref.load %0 %5
  %7 = arith.constant
  %8 = arith.cmpi %6 %7
  %9 = arith.cmpi %6 %7
  scf.if %8  // left out
    region 0
    %10 = arith.constant
    %11 = arith.constant
    vector.store %11 %4 %5 %5
    scf.yield
  %12 = vector.load %4 %5 %5
  %13 = vector.load %1 %5 %5
  %14 = vector.load %2 %5 %5
  %15 = arith.constant
  %16 = arith.constant
  %17 = tpu.matmul %13 %14 %16
  %18 = arith.addf %12 %17
  vector.store %18 %4 %5 %5  // begins where %8, product may wait
  scf.if %9
    region 0
    %19 = vector.load %4 %5 %5
    vector.store %19 %3 %5 %5  // takes sum %4
    scf.yield
  func.return

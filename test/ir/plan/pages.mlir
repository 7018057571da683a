"builtin.module"() ({
  "func.func"() ({
  ^bb1(%arg0: memref<128x128xf32, #tpu.memory_space<vmem>>, %arg1: memref<128x128xf32, #tpu.memory_space<any>>, %arg2: memref<128x128xf32, #tpu.memory_space<vmem>>, %page: memref<128x128xf32, #tpu.memory_space<vmem>>, %other: memref<128x128xf32, #tpu.memory_space<vmem>>, %sem: memref<!tpu.dma_semaphore, #tpu.memory_space<semaphore_mem>>):
    %c0 = "arith.constant"() {value = 0 : index} : () -> index
    "tpu.enqueue_dma"(%arg1, %page, %sem) {operandSegmentSizes = array<i32: 1, 0, 1, 1, 0, 0, 0>, priority = 0 : i32, strict_ordering = false} : (memref<128x128xf32, #tpu.memory_space<any>>, memref<128x128xf32, #tpu.memory_space<vmem>>, memref<!tpu.dma_semaphore, #tpu.memory_space<semaphore_mem>>) -> ()
    "tpu.wait_dma2"(%sem, %arg1, %page) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>, strict_ordering = false} : (memref<!tpu.dma_semaphore, #tpu.memory_space<semaphore_mem>>, memref<128x128xf32, #tpu.memory_space<any>>, memref<128x128xf32, #tpu.memory_space<vmem>>) -> ()
    %a = "vector.load"(%arg0, %c0, %c0) : (memref<128x128xf32, #tpu.memory_space<vmem>>, index, index) -> vector<128x128xf32>
    %b = "vector.load"(%page, %c0, %c0) : (memref<128x128xf32, #tpu.memory_space<vmem>>, index, index) -> vector<128x128xf32>
    %z = "arith.constant"() {value = dense<0.000000e+00> : vector<128x128xf32>} : () -> vector<128x128xf32>
    "vector.store"(%z, %other, %c0, %c0) : (vector<128x128xf32>, memref<128x128xf32, #tpu.memory_space<vmem>>, index, index) -> ()
    %p = "tpu.matmul"(%a, %b, %z) {dimension_numbers = #tpu.dot_dimension_numbers<[1], [0], [0], [1], [0, 0, 1, 1], [], []>, transpose_lhs = false, transpose_rhs = false} : (vector<128x128xf32>, vector<128x128xf32>, vector<128x128xf32>) -> vector<128x128xf32>
    "vector.store"(%p, %arg2, %c0, %c0) : (vector<128x128xf32>, memref<128x128xf32, #tpu.memory_space<vmem>>, index, index) -> ()
    "func.return"() : () -> ()
  }) {dimension_semantics = [], function_type = (memref<128x128xf32, #tpu.memory_space<vmem>>, memref<128x128xf32, #tpu.memory_space<any>>, memref<128x128xf32, #tpu.memory_space<vmem>>, memref<128x128xf32, #tpu.memory_space<vmem>>, memref<128x128xf32, #tpu.memory_space<vmem>>, memref<!tpu.dma_semaphore, #tpu.memory_space<semaphore_mem>>) -> (), scalar_prefetch = 0 : i64, scratch_operands = 3 : i64, sym_name = "kernel", tpu.core_type = #tpu.core_type<tc>} : () -> ()
}) : () -> ()
----
// kernel kernel, program kernel
body
  argument %0
  argument %1
  argument %2
  argument %3  // pages
  argument %4
  argument %5
  %6 = arith.constant
  tpu.enqueue_dma %1 %3 %5
  tpu.wait_dma2 %5 %1 %3
  %7 = vector.load %0 %6 %6
  %8 = vector.load %3 %6 %6  // feeds a product
  %9 = arith.constant
  %10 = arith.constant
  vector.store %9 %4 %6 %6
  %11 = tpu.matmul %7 %8 %10
  vector.store %11 %2 %6 %6
  func.return

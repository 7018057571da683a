// Calls, composites, custom calls; functions that nobody calls are left out.
module @calls attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 2 : i32} {
  func.func public @main(%x: tensor<4xf32> {jax.buffer_donor = true, mhlo.layout_mode = "default"}, %z: tensor<4xcomplex<f32>> {mhlo.memory_kind = "pinned_host", mhlo.sharding = "{replicated}", tf.aliasing_output = 1 : i32}) -> (tensor<4xf32> {jax.result_info = "result[0]"}, tensor<4xcomplex<f32>> {mhlo.sharding = "{replicated}"}, tensor<2xf32>, tensor<f32>) {
    %0 = call @twice(%x) {mhlo.frontend_attributes = {note = "kept"}} : (tensor<4xf32>) -> tensor<4xf32>
    %1 = stablehlo.composite "chlo.erf" %0 {decomposition = @erf.impl} : (tensor<4xf32>) -> tensor<4xf32>
    %2 = stablehlo.composite "chlo.asin" %z {decomposition = @asin.impl, version = 1 : i32} : (tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>>
    %3 = stablehlo.composite "my.op" %1 {composite_attributes = {flag = true, n = 3 : i64, names = ["a", "b"], x = 0.5 : f32}, decomposition = @my.impl, version = 7 : i32} : (tensor<4xf32>) -> tensor<4xf32>
    %4 = stablehlo.custom_call @plain(%3) : (tensor<4xf32>) -> tensor<2xf32>
    %5 = stablehlo.custom_call @typed(%4) {api_version = 4 : i32, backend_config = {axis = 1 : i32, eps = 1.0e-6 : f64, ids = dense<[1, 2]> : tensor<2xi64>}, has_side_effect = true, operand_layouts = [dense<0> : tensor<1xindex>], result_layouts = [dense<0> : tensor<1xindex>]} : (tensor<2xf32>) -> tensor<2xf32>
    %6 = stablehlo.custom_call @Sharding(%5) {backend_config = "", mhlo.sharding = "{devices=[2]0,1}"} : (tensor<2xf32>) -> tensor<2xf32>
    %7 = stablehlo.custom_call @bytes(%6) {backend_config = "\00\01abc", output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 0, operand_tuple_indices = []>]} : (tensor<2xf32>) -> tensor<2xf32>
    %8 = stablehlo.custom_call @reduces(%7) {called_computations = [@add]} : (tensor<2xf32>) -> tensor<f32>
    return %3, %2, %7, %8 : tensor<4xf32>, tensor<4xcomplex<f32>>, tensor<2xf32>, tensor<f32>
  }
  func.func private @twice(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.add %x, %x : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
  func.func private @erf.impl(%x: tensor<4xf32>) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
  func.func private @asin.impl(%x: tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>> {
    return %x : tensor<4xcomplex<f32>>
  }
  func.func private @my.impl(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = call @twice(%x) : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
  func.func private @add(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {
    %0 = stablehlo.add %a, %b : tensor<f32>
    return %0 : tensor<f32>
  }
}

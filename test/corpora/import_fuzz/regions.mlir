// Ops with regions, in generic and pretty form; values captured from around.
module @regions {
  func.func public @main(%x: tensor<4x6xf32>, %y: tensor<2x3xf32>, %n: tensor<i32>, %p: tensor<i1>, %k: tensor<2x1xi32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<6xi32>, tensor<2x2xf32>, tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>, tensor<2x3xf32>, tensor<f32>, tensor<i32>, tensor<4x6xf32>) {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %izero = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<4x6xf32>, tensor<f32>) -> tensor<4xf32>
    %ids = stablehlo.iota dim = 0 : tensor<4x6xi32>
    %1:2 = stablehlo.reduce(%x init: %zero), (%ids init: %izero) across dimensions = [0] : (tensor<4x6xf32>, tensor<4x6xi32>, tensor<f32>, tensor<i32>) -> (tensor<6xf32>, tensor<6xi32>)
     reducer(%a: tensor<f32>, %b: tensor<f32>) (%c: tensor<i32>, %d: tensor<i32>) {
      %q = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %v = stablehlo.select %q, %a, %b : tensor<i1>, tensor<f32>
      %w = stablehlo.select %q, %c, %d : tensor<i1>, tensor<i32>
      stablehlo.return %v, %w : tensor<f32>, tensor<i32>
    }
    %2 = "stablehlo.reduce_window"(%x, %zero) <{window_dimensions = array<i64: 2, 3>, window_strides = array<i64: 2, 3>, padding = dense<[[0, 0], [0, 0]]> : tensor<2x2xi64>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %m = stablehlo.maximum %a, %b : tensor<f32>
      stablehlo.return %m : tensor<f32>
    }) : (tensor<4x6xf32>, tensor<f32>) -> tensor<2x2xf32>
    %3 = "stablehlo.select_and_scatter"(%x, %2, %zero) <{window_dimensions = array<i64: 2, 3>, window_strides = array<i64: 2, 3>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %q = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %q : tensor<i1>
    }, {
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<4x6xf32>, tensor<2x2xf32>, tensor<f32>) -> tensor<4x6xf32>
    %4 = "stablehlo.sort"(%x) <{dimension = -1 : i64, is_stable = true}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %q = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %q : tensor<i1>
    }) : (tensor<4x6xf32>) -> tensor<4x6xf32>
    %5 = "stablehlo.map"(%x, %4) <{dimensions = array<i64: 0, 1>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.multiply %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
    %6 = "stablehlo.if"(%p) ({
      stablehlo.return %y : tensor<2x3xf32>
    }, {
      %t = stablehlo.negate %y : tensor<2x3xf32>
      stablehlo.return %t : tensor<2x3xf32>
    }) : (tensor<i1>) -> tensor<2x3xf32>
    %7 = "stablehlo.case"(%n) ({
      stablehlo.return %zero : tensor<f32>
    }, {
      %t = stablehlo.cosine %zero : tensor<f32>
      stablehlo.return %t : tensor<f32>
    }, {
      %u = "stablehlo.if"(%p) ({
        stablehlo.return %zero : tensor<f32>
      }, {
        %t = stablehlo.sine %zero : tensor<f32>
        stablehlo.return %t : tensor<f32>
      }) : (tensor<i1>) -> tensor<f32>
      stablehlo.return %u : tensor<f32>
    }) : (tensor<i32>) -> tensor<f32>
    %8:2 = stablehlo.while(%i = %izero, %acc = %x) : tensor<i32>, tensor<4x6xf32>
     cond {
      %q = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %q : tensor<i1>
    } do {
      %i2 = stablehlo.add %i, %one : tensor<i32>
      %a2 = stablehlo.add %acc, %x : tensor<4x6xf32>
      stablehlo.return %i2, %a2 : tensor<i32>, tensor<4x6xf32>
    }
    %9 = "stablehlo.scatter"(%x, %k, %y) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = true}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<4x6xf32>, tensor<2x1xi32>, tensor<2x3xf32>) -> tensor<4x6xf32>
    %10 = stablehlo.reduce(%x init: %zero) applies stablehlo.maximum across dimensions = [1] : (tensor<4x6xf32>, tensor<f32>) -> tensor<4xf32>
    return %0, %10, %1#1, %2, %3, %4, %5, %6, %7, %8#0, %9 : tensor<4xf32>, tensor<4xf32>, tensor<6xi32>, tensor<2x2xf32>, tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>, tensor<2x3xf32>, tensor<f32>, tensor<i32>, tensor<4x6xf32>
  }
}

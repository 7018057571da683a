// A loop whose body holds a dot and a sort: control flow of steps, not inside of one kernel.
module @loop {
  func.func public @main(%x: tensor<32x32xf32>, %w: tensor<32x32xf32>, %n: tensor<i32>) -> (tensor<32x32xf32>, tensor<i32>) {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %r:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, tensor<32x32xf32>
    cond {
      %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
      %j = stablehlo.add %i, %one : tensor<i32>
      %d = stablehlo.dot_general %v, %w, contracting_dims = [1] x [0] : (tensor<32x32xf32>, tensor<32x32xf32>) -> tensor<32x32xf32>
      %s = "stablehlo.sort"(%d) ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %l = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %l : tensor<i1>
      }) {dimension = 0 : i64, is_stable = true} : (tensor<32x32xf32>) -> tensor<32x32xf32>
      stablehlo.return %j, %s : tensor<i32>, tensor<32x32xf32>
    }
    %big = stablehlo.compare GT, %r#0, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %c = "stablehlo.if"(%big) ({
      %k = stablehlo.dot_general %r#1, %w, contracting_dims = [1] x [1] : (tensor<32x32xf32>, tensor<32x32xf32>) -> tensor<32x32xf32>
      stablehlo.return %k : tensor<32x32xf32>
    }, {
      stablehlo.return %r#1 : tensor<32x32xf32>
    }) : (tensor<i1>) -> tensor<32x32xf32>
    return %c, %r#0 : tensor<32x32xf32>, tensor<i32>
  }
}

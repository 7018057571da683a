// chlo given directly.
module @chlo {
  func.func public @main(%x: tensor<4xf32>, %y: tensor<3x4xf32>, %c: tensor<4xcomplex<f32>>, %i: tensor<4xi32>, %p: tensor<i1>, %l: tensor<6x8xf32>, %r: tensor<2x8x3xf32>, %g: tensor<2xi32>) -> (tensor<4xf32>, tensor<3x4xf32>, tensor<3x4xi1>, tensor<3x4xf32>, tensor<4xcomplex<f32>>, tensor<4xi1>, tensor<3x2xf32>, tensor<3x2xi32>, tensor<4xi32>, tensor<6x3xf32>, tensor<4xf32>, tensor<3x4xf32>, tensor<4xcomplex<f32>>) {
    %0 = chlo.erf %x : tensor<4xf32> -> tensor<4xf32>
    %1 = chlo.erf_inv %0 : tensor<4xf32> -> tensor<4xf32>
    %2 = chlo.erfc %1 : tensor<4xf32> -> tensor<4xf32>
    %3 = chlo.lgamma %2 : tensor<4xf32> -> tensor<4xf32>
    %4 = chlo.digamma %3 : tensor<4xf32> -> tensor<4xf32>
    %5 = chlo.acos %4 : tensor<4xf32> -> tensor<4xf32>
    %6 = chlo.acosh %5 : tensor<4xf32> -> tensor<4xf32>
    %7 = chlo.asin %6 : tensor<4xf32> -> tensor<4xf32>
    %8 = chlo.asinh %7 : tensor<4xf32> -> tensor<4xf32>
    %9 = chlo.atan %8 : tensor<4xf32> -> tensor<4xf32>
    %10 = chlo.atanh %9 : tensor<4xf32> -> tensor<4xf32>
    %11 = chlo.cosh %10 : tensor<4xf32> -> tensor<4xf32>
    %12 = chlo.sinh %11 : tensor<4xf32> -> tensor<4xf32>
    %13 = chlo.tan %12 : tensor<4xf32> -> tensor<4xf32>
    %14 = chlo.square %13 : tensor<4xf32> -> tensor<4xf32>
    %15 = chlo.next_after %14, %x : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>
    %16 = chlo.polygamma %15, %x : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>
    %17 = chlo.zeta %16, %x : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>
    %18 = chlo.broadcast_add %17, %y : (tensor<4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
    %19 = chlo.broadcast_compare %y, %x {comparison_direction = #chlo<comparison_direction GT>} : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xi1>
    %20 = chlo.broadcast_select %p, %y, %x : (tensor<i1>, tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xf32>
    %21 = chlo.conj %c : tensor<4xcomplex<f32>> -> tensor<4xcomplex<f32>>
    %22 = chlo.is_inf %x : tensor<4xf32> -> tensor<4xi1>
    %23 = chlo.is_pos_inf %x : tensor<4xf32> -> tensor<4xi1>
    %24 = chlo.is_neg_inf %x : tensor<4xf32> -> tensor<4xi1>
    %25 = stablehlo.or %22, %23 : tensor<4xi1>
    %26 = stablehlo.and %25, %24 : tensor<4xi1>
    %27, %28 = chlo.top_k(%y, k = 2) : tensor<3x4xf32> -> (tensor<3x2xf32>, tensor<3x2xi32>)
    %29 = chlo.mulhi %i, %i : tensor<4xi32>, tensor<4xi32> -> tensor<4xi32>
    %30 = "chlo.ragged_dot"(%l, %r, %g) <{precision_config = [#chlo<precision DEFAULT>, #chlo<precision HIGHEST>], ragged_dot_dimension_numbers = #chlo.ragged_dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>}> : (tensor<6x8xf32>, tensor<2x8x3xf32>, tensor<2xi32>) -> tensor<6x3xf32>
    %31 = "chlo.constant_like"(%x) <{value = 2.5 : f32}> : (tensor<4xf32>) -> tensor<4xf32>
    %p2 = chlo.constant dense<3.0> : tensor<f32>
    %32 = chlo.broadcast_multiply %p2, %y : (tensor<f32>, tensor<3x4xf32>) -> tensor<3x4xf32>
    %33 = chlo.square %c : tensor<4xcomplex<f32>> -> tensor<4xcomplex<f32>>
    return %17, %18, %19, %20, %21, %26, %27, %28, %29, %30, %31, %32, %33 : tensor<4xf32>, tensor<3x4xf32>, tensor<3x4xi1>, tensor<3x4xf32>, tensor<4xcomplex<f32>>, tensor<4xi1>, tensor<3x2xf32>, tensor<3x2xi32>, tensor<4xi32>, tensor<6x3xf32>, tensor<4xf32>, tensor<3x4xf32>, tensor<4xcomplex<f32>>
  }
}

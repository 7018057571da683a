// Every elementwise op of StableHLO.
module @elementwise {
  func.func public @main(%f: tensor<4xf32>, %g: tensor<4xf32>, %i: tensor<4xi32>, %j: tensor<4xi32>, %c: tensor<4xcomplex<f32>>, %p: tensor<4xi1>) -> (tensor<4xf32>, tensor<4xi32>, tensor<4xi1>, tensor<4xcomplex<f32>>) {
    %0 = stablehlo.abs %f : tensor<4xf32>
    %1 = stablehlo.cbrt %0 : tensor<4xf32>
    %2 = stablehlo.ceil %1 : tensor<4xf32>
    %3 = stablehlo.cosine %2 : tensor<4xf32>
    %4 = stablehlo.exponential %3 : tensor<4xf32>
    %5 = stablehlo.exponential_minus_one %4 : tensor<4xf32>
    %6 = stablehlo.floor %5 : tensor<4xf32>
    %7 = stablehlo.log %6 : tensor<4xf32>
    %8 = stablehlo.log_plus_one %7 : tensor<4xf32>
    %9 = stablehlo.logistic %8 : tensor<4xf32>
    %10 = stablehlo.negate %9 : tensor<4xf32>
    %11 = stablehlo.reduce_precision %10, format = e5m10 : tensor<4xf32>
    %12 = stablehlo.round_nearest_afz %11 : tensor<4xf32>
    %13 = stablehlo.round_nearest_even %12 : tensor<4xf32>
    %14 = stablehlo.rsqrt %13 : tensor<4xf32>
    %15 = stablehlo.sign %14 : tensor<4xf32>
    %16 = stablehlo.sine %15 : tensor<4xf32>
    %17 = stablehlo.sqrt %16 : tensor<4xf32>
    %19 = stablehlo.tanh %17 : tensor<4xf32>
    %20 = stablehlo.add %19, %g : tensor<4xf32>
    %21 = stablehlo.atan2 %20, %g : tensor<4xf32>
    %22 = stablehlo.divide %21, %g : tensor<4xf32>
    %23 = stablehlo.maximum %22, %g : tensor<4xf32>
    %24 = stablehlo.minimum %23, %g : tensor<4xf32>
    %25 = stablehlo.multiply %24, %g : tensor<4xf32>
    %26 = stablehlo.power %25, %g : tensor<4xf32>
    %27 = stablehlo.remainder %26, %g : tensor<4xf32>
    %28 = stablehlo.subtract %27, %g : tensor<4xf32>
    %29 = stablehlo.select %p, %28, %g : tensor<4xi1>, tensor<4xf32>
    %30 = stablehlo.clamp %f, %29, %g : tensor<4xf32>
    %40 = stablehlo.and %i, %j : tensor<4xi32>
    %41 = stablehlo.or %40, %j : tensor<4xi32>
    %42 = stablehlo.xor %41, %j : tensor<4xi32>
    %43 = stablehlo.not %42 : tensor<4xi32>
    %44 = stablehlo.popcnt %43 : tensor<4xi32>
    %45 = stablehlo.count_leading_zeros %44 : tensor<4xi32>
    %46 = stablehlo.shift_left %45, %j : tensor<4xi32>
    %47 = stablehlo.shift_right_arithmetic %46, %j : tensor<4xi32>
    %48 = stablehlo.shift_right_logical %47, %j : tensor<4xi32>
    %49 = stablehlo.bitcast_convert %30 : (tensor<4xf32>) -> tensor<4xi32>
    %50 = stablehlo.add %48, %49 : tensor<4xi32>
    %60 = stablehlo.compare LT, %f, %g : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
    %61 = stablehlo.compare GE, %f, %g, TOTALORDER : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
    %62 = stablehlo.compare NE, %i, %j, SIGNED : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
    %63 = stablehlo.is_finite %f : (tensor<4xf32>) -> tensor<4xi1>
    %64 = stablehlo.and %60, %61 : tensor<4xi1>
    %65 = stablehlo.or %62, %63 : tensor<4xi1>
    %66 = stablehlo.xor %64, %65 : tensor<4xi1>
    %70 = stablehlo.real %c : (tensor<4xcomplex<f32>>) -> tensor<4xf32>
    %71 = stablehlo.imag %c : (tensor<4xcomplex<f32>>) -> tensor<4xf32>
    %72 = stablehlo.complex %71, %70 : tensor<4xcomplex<f32>>
    %73 = stablehlo.convert %30 : (tensor<4xf32>) -> tensor<4xbf16>
    %74 = stablehlo.convert %73 : (tensor<4xbf16>) -> tensor<4xf32>
    return %74, %50, %66, %72 : tensor<4xf32>, tensor<4xi32>, tensor<4xi1>, tensor<4xcomplex<f32>>
  }
}

// Literals of every element type: dense, splat, hexadecimal, empty.
module @constants {
  func.func public @main() -> (tensor<3xi1>, tensor<3xi2>, tensor<3xi4>, tensor<2xi8>, tensor<2xi16>, tensor<2x2xi64>, tensor<2xui2>, tensor<2xui4>, tensor<2xui8>, tensor<ui64>, tensor<2xf8E4M3FN>, tensor<2xf8E5M2>, tensor<f4E2M1FN>, tensor<2xbf16>, tensor<3xf16>, tensor<4xf64>, tensor<2xcomplex<f32>>, tensor<complex<f64>>, tensor<0x3xf32>, tensor<5xf32>, tensor<4xi1>) {
    %0 = stablehlo.constant dense<[true, false, true]> : tensor<3xi1>
    %1 = stablehlo.constant dense<[-2, 1, 0]> : tensor<3xi2>
    %2 = stablehlo.constant dense<[-8, 7, -1]> : tensor<3xi4>
    %3 = stablehlo.constant dense<[-128, 127]> : tensor<2xi8>
    %4 = stablehlo.constant dense<[-300, 300]> : tensor<2xi16>
    %5 = stablehlo.constant dense<[[1, -1], [9223372036854775807, -9223372036854775808]]> : tensor<2x2xi64>
    %6 = stablehlo.constant dense<[3, 1]> : tensor<2xui2>
    %7 = stablehlo.constant dense<[15, 8]> : tensor<2xui4>
    %8 = stablehlo.constant dense<[255, 0]> : tensor<2xui8>
    %9 = stablehlo.constant dense<18446744073709551615> : tensor<ui64>
    %10 = stablehlo.constant dense<[1.5, -0.0]> : tensor<2xf8E4M3FN>
    %11 = stablehlo.constant dense<[0x7C, 0.25]> : tensor<2xf8E5M2>
    %12 = stablehlo.constant dense<6.0> : tensor<f4E2M1FN>
    %13 = stablehlo.constant dense<[1.0, 0xFF80]> : tensor<2xbf16>
    %14 = stablehlo.constant dense<[1.0, 65504.0, 0x7E00]> : tensor<3xf16>
    %15 = stablehlo.constant dense<[1.0e300, -0.0, 4.9e-324, 0x7FF0000000000000]> : tensor<4xf64>
    %16 = stablehlo.constant dense<[(1.0, 2.0), (-0.0, 0x7FC00000)]> : tensor<2xcomplex<f32>>
    %17 = stablehlo.constant dense<(0.5, -0.5)> : tensor<complex<f64>>
    %18 = stablehlo.constant dense<> : tensor<0x3xf32>
    %19 = stablehlo.constant dense<7.0> : tensor<5xf32>
    %20 = stablehlo.constant dense<true> : tensor<4xi1>
    return %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20 : tensor<3xi1>, tensor<3xi2>, tensor<3xi4>, tensor<2xi8>, tensor<2xi16>, tensor<2x2xi64>, tensor<2xui2>, tensor<2xui4>, tensor<2xui8>, tensor<ui64>, tensor<2xf8E4M3FN>, tensor<2xf8E5M2>, tensor<f4E2M1FN>, tensor<2xbf16>, tensor<3xf16>, tensor<4xf64>, tensor<2xcomplex<f32>>, tensor<complex<f64>>, tensor<0x3xf32>, tensor<5xf32>, tensor<4xi1>
  }
}

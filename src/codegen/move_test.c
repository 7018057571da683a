// Data movement: single ops, and chains of them whose index maps are put
// together in one kernel.
#include "codegen/check.h"

static const uint64_t k_targets[] = {~0ull, AT_CPU_AVX2};

static const char *const k_one[][2] = {
    // operand types, op with attributes and result type
    {"f32[5]", "broadcast_in_dim %0 {broadcast_dimensions=[1]} : f32[3,5]"},
    {"f32[5]", "broadcast_in_dim %0 {broadcast_dimensions=[0]} : f32[5,300]"},
    {"f32[]", "broadcast_in_dim %0 {broadcast_dimensions=[]} : f32[5,30]"},
    {"f32[4,1,6]",
     "broadcast_in_dim %0 {broadcast_dimensions=[0,2,3]} : f32[4,2,7,6]"},
    {"bf16[3,4]",
     "broadcast_in_dim %0 {broadcast_dimensions=[0,2]} : bf16[3,9,4]"},
    {"f32[7,1000]",
     "broadcast_in_dim %0 {broadcast_dimensions=[1,2]} : f32[20,7,1000]"},
    {"f32[3]", "broadcast_in_dim %0 {broadcast_dimensions=[1]} : f32[10000,3]"},
    {"complex<f32>[3]",
     "broadcast_in_dim %0 {broadcast_dimensions=[1]} : complex<f32>[1000,3]"},
    // Lanes at known places near each other: whole vectors and shuffles.
    {"ui8[5]", "broadcast_in_dim %0 {broadcast_dimensions=[1]} : ui8[97,5]"},
    {"i16[113]", "broadcast_in_dim %0 {broadcast_dimensions=[0]} : i16[113,3]"},
    {"f32[31,10]",
     "broadcast_in_dim %0 {broadcast_dimensions=[0,2]} : f32[31,7,10]"},
    {"f64[211]", "broadcast_in_dim %0 {broadcast_dimensions=[0]} : f64[211,6]"},
    {"ui8[300,3]", "reverse %0 {dimensions=[1]} : ui8[300,3]"},
    {"ui8[5,131,3]", "reverse %0 {dimensions=[1]} : ui8[5,131,3]"},
    {"ui8[2,90,3]", "transpose %0 {permutation=[0,2,1]} : ui8[2,3,90]"},
    {"bf16[2,77,4]", "transpose %0 {permutation=[2,0,1]} : bf16[4,2,77]"},
    // Whole pixels: a load for the lanes of each.
    {"ui8[2,33,41,3]", "transpose %0 {permutation=[0,2,1,3]} : ui8[2,41,33,3]"},
    {"bf16[37,21,2]", "transpose %0 {permutation=[1,0,2]} : bf16[21,37,2]"},
    {"i8[29,41,4]", "transpose %0 {permutation=[1,0,2]} : i8[41,29,4]"},
    {"f32[300,3,3]", "transpose %0 {permutation=[0,2,1]} : f32[300,3,3]"},
    {"f32[65,4,4]", "transpose %0 {permutation=[0,2,1]} : f32[65,4,4]"},
    {"f64[40,10,9]", "transpose %0 {permutation=[0,2,1]} : f64[40,9,10]"},
    {"complex<f32>[70,3]",
     "transpose %0 {permutation=[1,0]} : "
     "complex<f32>[3,70]"},
    {"i8[200]",
     "slice %0 {start_indices=[1], limit_indices=[200], strides=[3]} : i8[67]"},
    {"f64[10,50]",
     "slice %0 {start_indices=[0,49], limit_indices=[10,50], strides=[1,1]} : "
     "f64[10,1]"},
    {"f32[400,3]",
     "slice %0 {start_indices=[0,2], limit_indices=[400,3], strides=[1,1]} : "
     "f32[400,1]"},
    {"f32[40,33]", "transpose %0 {permutation=[1,0]} : f32[33,40]"},
    {"ui8[40,33]", "transpose %0 {permutation=[1,0]} : ui8[33,40]"},
    {"f64[3,4,5,6]", "transpose %0 {permutation=[2,3,0,1]} : f64[5,6,3,4]"},
    {"f32[3,1,5]", "transpose %0 {permutation=[2,1,0]} : f32[5,1,3]"},
    {"i32[10,20]",
     "slice %0 {start_indices=[2,3], limit_indices=[9,20], strides=[1,1]} : "
     "i32[7,17]"},
    {"i32[10,20]",
     "slice %0 {start_indices=[2,0], limit_indices=[9,20], strides=[3,1]} : "
     "i32[3,20]"},
    {"f32[10,200]",
     "slice %0 {start_indices=[4,0], limit_indices=[5,200], strides=[1,1]} : "
     "f32[1,200]"},
    {"f32[100]",
     "slice %0 {start_indices=[3], limit_indices=[100], strides=[2]} : "
     "f32[49]"},
    {"f32[7,33]", "reverse %0 {dimensions=[1]} : f32[7,33]"},
    {"f32[7,33]", "reverse %0 {dimensions=[0]} : f32[7,33]"},
    {"complex<f64>[3,5]", "reverse %0 {dimensions=[0,1]} : complex<f64>[3,5]"},
    {"f32[6,8]", "reshape %0 : f32[4,12]"},
    {"i1[6,8]", "reshape %0 : i1[48]"},
    {"f32[6,8]", "copy %0 : f32[6,8]"},
    {"f32[6,8]", "bitcast_convert %0 : i32[6,8]"},
    {"i32[6,8]", "bitcast_convert %0 : i8[6,8,4]"},
    {"i8[6,8,4]", "bitcast_convert %0 : f32[6,8]"},
    {"bf16[60]", "bitcast_convert %0 : ui16[60]"},
    {"f64[5]", "bitcast_convert %0 : ui32[5,2]"},
    {"ui4[5,2]", "bitcast_convert %0 : i8[5]"},
    {"i8[37]", "bitcast_convert %0 : f8E4M3FN[37]"},
    {"complex<f32>[37]", "bitcast_convert %0 : complex<f32>[37]"},
    {"complex<f64>[37]", "bitcast_convert %0 : complex<f32>[37,2]"},
    {"complex<f32>[3,7,2]", "bitcast_convert %0 : complex<f64>[3,7]"},
    {"complex<f32>[2]", "bitcast_convert %0 : complex<f64>[]"},
};

static const char *const k_more[][4] = {
    // parameters, result, line
    {"%0: f32[10,20], %1: f32[]", "f32[15,26]",
     "%9 = pad %0, %1 {edge_padding_low=[2,3], edge_padding_high=[3,3], "
     "interior_padding=[0,0]} : f32[15,26]"},
    {"%0: f32[10,20], %1: f32[]", "f32[19,58]",
     "%9 = pad %0, %1 {edge_padding_low=[0,0], edge_padding_high=[0,0], "
     "interior_padding=[1,2]} : f32[19,58]"},
    {"%0: f32[10,20], %1: f32[]", "f32[8,20]",
     "%9 = pad %0, %1 {edge_padding_low=[-1,2], edge_padding_high=[-1,-2], "
     "interior_padding=[0,0]} : f32[8,20]"},
    {"%0: i8[0,20], %1: i8[]", "i8[3,20]",
     "%9 = pad %0, %1 {edge_padding_low=[1,0], edge_padding_high=[2,0], "
     "interior_padding=[0,0]} : i8[3,20]"},
    {"%0: bf16[7], %1: bf16[]", "bf16[40]",
     "%9 = pad %0, %1 {edge_padding_low=[5], edge_padding_high=[10], "
     "interior_padding=[3]} : bf16[40]"},
    {"%0: f32[3,5], %1: f32[3,70], %2: f32[3,0]", "f32[3,75]",
     "%9 = concatenate %0, %2, %1 {dimension=1} : f32[3,75]"},
    {"%0: f32[3,5], %1: f32[7,5]", "f32[10,5]",
     "%9 = concatenate %0, %1 {dimension=0} : f32[10,5]"},
    {"%0: complex<f32>[3,5,2], %1: complex<f32>[3,1,2]", "complex<f32>[3,6,2]",
     "%9 = concatenate %0, %1 {dimension=1} : complex<f32>[3,6,2]"},
    {"%0: i1[33], %1: i1[65]", "i1[98]",
     "%9 = concatenate %0, %1 {dimension=0} : i1[98]"},
    // Lanes on both sides of a seam, and of more operands than are joined.
    {"%0: ui8[5,257], %1: ui8[5,3]", "ui8[5,260]",
     "%9 = concatenate %0, %1 {dimension=1} : ui8[5,260]"},
    {"%0: i32[500,1], %1: i32[500,1]", "i32[500,2]",
     "%9 = concatenate %0, %1 {dimension=1} : i32[500,2]"},
    {"%0: f32[500,1], %1: f32[500,1], %2: f32[500,1]", "f32[500,3]",
     "%9 = concatenate %0, %1, %2 {dimension=1} : f32[500,3]"},
    {"%0: bf16[90,1], %1: bf16[90,2], %2: bf16[90,1], %3: bf16[90,1], "
     "%4: bf16[90,1], %5: bf16[90,1]",
     "bf16[90,7]",
     "%9 = concatenate %0, %1, %2, %3, %4, %5 {dimension=1} : bf16[90,7]"},
    {"%0: f64[1,70], %1: f64[2,70], %2: f64[1,70]", "f64[4,70]",
     "%9 = concatenate %0, %1, %2 {dimension=0} : f64[4,70]"},
    {"%0: f32[10,40], %1: i32[], %2: i32[]", "f32[4,33]",
     "%9 = dynamic_slice %0, %1, %2 {slice_sizes=[4,33]} : f32[4,33]"},
    {"%0: f32[10,40], %1: ui64[], %2: ui64[]", "f32[4,40]",
     "%9 = dynamic_slice %0, %1, %2 {slice_sizes=[4,40]} : f32[4,40]"},
    {"%0: f32[10,40], %1: f32[3,20], %2: i32[], %3: i32[]", "f32[10,40]",
     "%9 = dynamic_update_slice %0, %1, %2, %3 : f32[10,40]"},
    {"%0: f32[10,40], %1: f32[3,40], %2: i64[], %3: i64[]", "f32[10,40]",
     "%9 = dynamic_update_slice %0, %1, %2, %3 : f32[10,40]"},
    {"%0: f32[3], %1: f32[0], %2: i64[]", "f32[3]",
     "%9 = dynamic_update_slice %0, %1, %2 : f32[3]"},
    {"%0: f32[9,50], %1: i32[17,1]", "f32[17,50]",
     "%9 = gather %0, %1 {offset_dims=[1], collapsed_slice_dims=[0], "
     "start_index_map=[0], index_vector_dim=1, slice_sizes=[1,50]} : "
     "f32[17,50]"},
    {"%0: f32[90], %1: i64[170]", "f32[170]",
     "%9 = gather %0, %1 {collapsed_slice_dims=[0], start_index_map=[0], "
     "index_vector_dim=1, slice_sizes=[1]} : f32[170]"},
    {"%0: bf16[9,8,7], %1: ui8[5,2]", "bf16[5,3,7]",
     "%9 = gather %0, %1 {offset_dims=[1,2], collapsed_slice_dims=[1], "
     "start_index_map=[1,0], index_vector_dim=1, slice_sizes=[3,1,7]} : "
     "bf16[5,3,7]"},
    {"%0: f32[4,9,8], %1: i32[4,6,1]", "f32[4,6,8]",
     "%9 = gather %0, %1 {offset_dims=[2], collapsed_slice_dims=[1], "
     "operand_batching_dims=[0], start_indices_batching_dims=[0], "
     "start_index_map=[1], index_vector_dim=2, slice_sizes=[1,1,8]} : "
     "f32[4,6,8]"},
    // Windows whose minor dimensions are whole: runs of the operand.
    {"%0: f32[6,10,9,3], %1: i32[6,2]", "f32[6,5,4,3]",
     "%9 = gather %0, %1 {offset_dims=[1,2,3], collapsed_slice_dims=[], "
     "operand_batching_dims=[0], start_indices_batching_dims=[0], "
     "start_index_map=[1,2], index_vector_dim=1, slice_sizes=[1,5,4,3]} : "
     "f32[6,5,4,3]"},
    {"%0: i8[10,5,7], %1: i32[9]", "i8[3,5,7,9]",
     "%9 = gather %0, %1 {offset_dims=[0,1,2], collapsed_slice_dims=[], "
     "start_index_map=[0], index_vector_dim=1, slice_sizes=[3,5,7]} : "
     "i8[3,5,7,9]"},
    {"%0: f32[8,1,40], %1: i64[4,1]", "f32[2,4,1,40]",
     "%9 = gather %0, %1 {offset_dims=[0,2,3], collapsed_slice_dims=[], "
     "start_index_map=[0], index_vector_dim=1, slice_sizes=[2,1,40]} : "
     "f32[2,4,1,40]"},
    // Rows of whole pixels whose ends fill no vector.
    {"%0: f32[70,50,3]", "f32[70,50,3]",
     "%9 = reverse %0 {dimensions=[1]} : f32[70,50,3]"},
    {"%0: ui8[66,71,5]", "ui8[66,71,5]",
     "%9 = reverse %0 {dimensions=[1]} : ui8[66,71,5]"},
    // Windows of a few neighbours: a load for the lanes of each.
    {"%0: f32[9,8,3], %1: i32[45,2]", "f32[45,3]",
     "%9 = gather %0, %1 {offset_dims=[1], collapsed_slice_dims=[0,1], "
     "start_index_map=[0,1], index_vector_dim=1, slice_sizes=[1,1,3]} : "
     "f32[45,3]"},
    {"%0: ui8[4,9,8,3], %1: i32[4,37,2]", "ui8[4,37,3]",
     "%9 = gather %0, %1 {offset_dims=[2], collapsed_slice_dims=[1,2], "
     "operand_batching_dims=[0], start_indices_batching_dims=[0], "
     "start_index_map=[1,2], index_vector_dim=2, slice_sizes=[1,1,1,3]} : "
     "ui8[4,37,3]"},
    {"%0: bf16[30,7], %1: i64[70,2]", "bf16[70,4]",
     "%9 = gather %0, %1 {offset_dims=[1], collapsed_slice_dims=[0], "
     "start_index_map=[0,1], index_vector_dim=1, slice_sizes=[1,4]} : "
     "bf16[70,4]"},
    {"%0: f32[11,6], %1: i32[33,1]", "f32[33,2,3]",
     "%9 = gather %0, %1 {offset_dims=[1,2], collapsed_slice_dims=[], "
     "start_index_map=[0], index_vector_dim=1, slice_sizes=[2,3]} : "
     "f32[33,2,3]"},
    {"%0: complex<f32>[20,3], %1: i32[31,1]", "complex<f32>[31,3]",
     "%9 = gather %0, %1 {offset_dims=[1], collapsed_slice_dims=[0], "
     "start_index_map=[0], index_vector_dim=1, slice_sizes=[1,3]} : "
     "complex<f32>[31,3]"},
    {"", "f32[7,30]", "%9 = iota {dimension=0} : f32[7,30]"},
    {"", "i32[7,30]", "%9 = iota {dimension=1} : i32[7,30]"},
    {"", "i8[300]", "%9 = iota {dimension=0} : i8[300]"},
    {"", "complex<f32>[7,3]", "%9 = iota {dimension=1} : complex<f32>[7,3]"},
    {"", "bf16[70]", "%9 = iota {dimension=0} : bf16[70]"},
};

// Chains in one kernel: index maps through several producers.
static const char *const k_fused[][4] = {
    {"f32[6,40]", "f32[40]", "f32[240]",
     "%3 = broadcast_in_dim %2 {broadcast_dimensions=[1]} : f32[6,40]\n"
     "%4 = multiply %1, %3 : f32[6,40]\n"
     "%5 = reshape %4 : f32[240]\nreturn %5"},
    {"f32[6,40]", "f32[6]", "f32[40,6]",
     "%3 = transpose %1 {permutation=[1,0]} : f32[40,6]\n"
     "%4 = broadcast_in_dim %2 {broadcast_dimensions=[1]} : f32[40,6]\n"
     "%5 = subtract %3, %4 : f32[40,6]\nreturn %5"},
    // A roll by one along both dimensions: loads at a seam may not leave the
    // rows.
    {"ui8[9,131]", "ui8[9,131]", "ui8[9,131]",
     "%3 = slice %1 {start_indices=[0,130], limit_indices=[9,131], "
     "strides=[1,1]} : ui8[9,1]\n"
     "%4 = slice %1 {start_indices=[0,0], limit_indices=[9,130], "
     "strides=[1,1]} : ui8[9,130]\n"
     "%5 = concatenate %3, %4 {dimension=1} : ui8[9,131]\n"
     "%6 = slice %5 {start_indices=[1,0], limit_indices=[9,131], "
     "strides=[1,1]} : ui8[8,131]\n"
     "%7 = slice %5 {start_indices=[0,0], limit_indices=[1,131], "
     "strides=[1,1]} : ui8[1,131]\n"
     "%8 = concatenate %6, %7 {dimension=0} : ui8[9,131]\n"
     "%9 = add %8, %2 : ui8[9,131]\nreturn %9"},
    {"f32[3,70]", "f32[3,9]", "f32[3,79]",
     "%3 = concatenate %1, %2 {dimension=1} : f32[3,79]\n"
     "%4 = slice %3 {start_indices=[0,1], limit_indices=[3,79], strides=[1,1]} "
     ": f32[3,78]\n"
     "%5 = constant {value=f32[] 2.5} : f32[]\n"
     "%6 = pad %4, %5 {edge_padding_low=[0,1], edge_padding_high=[0,0], "
     "interior_padding=[0,0]} : f32[3,79]\n"
     "%7 = add %3, %6 : f32[3,79]\nreturn %7"},
    {"f32[24]", "i32[2,12]", "f32[3,8]",
     "%3 = reshape %1 : f32[4,6]\n"
     "%4 = reverse %3 {dimensions=[0]} : f32[4,6]\n"
     "%5 = reshape %4 : f32[3,8]\n"
     "%6 = reshape %2 : i32[3,8]\n"
     "%7 = convert %6 : f32[3,8]\n"
     "%8 = iota {dimension=1} : f32[3,8]\n"
     "%10 = multiply %7, %8 : f32[3,8]\n"
     "%11 = add %10, %5 : f32[3,8]\nreturn %11"},
    // Large enough to be walked in tiles.
    {"f32[70,200]", "f32[200,70]", "f32[200,70]",
     "%3 = transpose %1 {permutation=[1,0]} : f32[200,70]\n"
     "%4 = add %3, %2 : f32[200,70]\nreturn %4"},
    // Short rows, padded, of values that lie along some of the dimensions.
    {"f32[40,11]", "f32[12,11]", "f32[40,12,12]",
     "%3 = broadcast_in_dim %1 {broadcast_dimensions=[0,3]} : f32[40,12,1,11]\n"
     "%4 = broadcast_in_dim %2 {broadcast_dimensions=[1,2]} : f32[40,12,11]\n"
     "%5 = reshape %4 : f32[40,12,1,11]\n"
     "%6 = multiply %3, %5 : f32[40,12,1,11]\n"
     "%7 = constant {value=f32[] 0.5} : f32[]\n"
     "%8 = pad %6, %7 {edge_padding_low=[0,0,0,1], "
     "edge_padding_high=[0,0,0,0], interior_padding=[0,0,0,0]} : "
     "f32[40,12,1,12]\n"
     "%9 = pad %3, %7 {edge_padding_low=[0,0,0,0], "
     "edge_padding_high=[0,0,0,1], interior_padding=[0,0,0,0]} : "
     "f32[40,12,1,12]\n"
     "%10 = add %8, %9 : f32[40,12,1,12]\n"
     "%11 = reshape %10 : f32[40,12,12]\nreturn %11"},
    // Joined groups that a place tells apart: rows that are cut and padded.
    {"f32[6,5,7]", "f32[5,7]", "f32[7,5,7]",
     "%3 = broadcast_in_dim %2 {broadcast_dimensions=[1,2]} : f32[6,5,7]\n"
     "%4 = add %1, %3 : f32[6,5,7]\n"
     "%5 = constant {value=f32[] 2} : f32[]\n"
     "%6 = pad %4, %5 {edge_padding_low=[2,0,0], edge_padding_high=[-1,0,0], "
     "interior_padding=[0,0,0]} : f32[7,5,7]\n"
     "%7 = broadcast_in_dim %2 {broadcast_dimensions=[1,2]} : f32[7,5,7]\n"
     "%8 = multiply %6, %7 : f32[7,5,7]\nreturn %8"},
    // A constant that is stored, an update that is read.
    {"f32[2,5]", "f32[]", "f32[2,5]",
     "%3 = constant {value=f32[2,5] [1,2,3,4,5,6,7,8,9,10]} : f32[2,5]\n"
     "%4 = multiply %1, %3 : f32[2,5]\nreturn %4"},
    {"i32[6,40]", "i32[2,9]", "i32[6,40]",
     "%3 = constant {value=i32[] 3} : i32[]\n"
     "%4 = dynamic_update_slice %1, %2, %3, %3 : i32[6,40]\n"
     "%5 = negate %4 : i32[6,40]\nreturn %5"},
    // An index that counts down, taken apart again.
    {"i32[16,17]", "i32[3]", "i32[14,1]",
     "%3 = reverse %1 {dimensions=[0,1]} : i32[16,17]\n"
     "%4 = reverse %3 {dimensions=[0]} : i32[16,17]\n"
     "%5 = reverse %4 {dimensions=[0,1]} : i32[16,17]\n"
     "%6 = slice %5 {start_indices=[0,12], limit_indices=[14,14], "
     "strides=[1,2]} : i32[14,1]\nreturn %6"},
    // Vectors that reach from one operand of a concatenation into others.
    {"ui8[9,64]", "ui8[3]", "ui8[9,64]",
     "%3 = slice %1 {start_indices=[0,63], limit_indices=[9,64], strides=[1,1]}"
     " : ui8[9,1]\n"
     "%4 = slice %1 {start_indices=[0,0], limit_indices=[9,63], strides=[1,1]} "
     ": ui8[9,63]\n"
     "%5 = concatenate %3, %4 {dimension=1} : ui8[9,64]\n"
     "%6 = slice %5 {start_indices=[1,0], limit_indices=[9,64], strides=[1,1]} "
     ": ui8[8,64]\n"
     "%7 = slice %5 {start_indices=[0,0], limit_indices=[1,64], strides=[1,1]} "
     ": ui8[1,64]\n"
     "%8 = concatenate %6, %7 {dimension=0} : ui8[9,64]\n"
     "%9 = add %8, %1 : ui8[9,64]\nreturn %9"},
    {"f32[5,7]", "f32[5,9]", "f32[5,33]",
     "%3 = reverse %1 {dimensions=[1]} : f32[5,7]\n"
     "%4 = multiply %2, %2 : f32[5,9]\n"
     "%5 = concatenate %3, %4, %1 {dimension=1} : f32[5,23]\n"
     "%6 = slice %5 {start_indices=[0,13], limit_indices=[5,23], "
     "strides=[1,1]} : f32[5,10]\n"
     "%7 = concatenate %6, %5 {dimension=1} : f32[5,33]\nreturn %7"},
    {"bf16[11,40]", "bf16[40,3]", "bf16[40,14]",
     "%3 = transpose %1 {permutation=[1,0]} : bf16[40,11]\n"
     "%4 = concatenate %2, %3 {dimension=1} : bf16[40,14]\nreturn %4"},
    {"complex<f32>[4,21]", "complex<f32>[4,12]", "complex<f32>[4,33]",
     "%3 = negate %2 : complex<f32>[4,12]\n"
     "%4 = concatenate %1, %3 {dimension=1} : complex<f32>[4,33]\nreturn %4"},
    {"i1[50]", "i1[30]", "i1[80]",
     "%3 = not %1 : i1[50]\n"
     "%4 = concatenate %2, %3 {dimension=0} : i1[80]\nreturn %4"},
    {"i32[90]", "i32[5]", "i32[37]",
     "%3 = constant {value=i32[] 20} : i32[]\n"
     "%4 = dynamic_slice %1, %3 {slice_sizes=[32]} : i32[32]\n"
     "%5 = concatenate %4, %2 {dimension=0} : i32[37]\nreturn %5"},
    {"i32[6,10]", "i32[3]", "i32[60]",
     "%3 = divide %1, %1 : i32[6,10]\n"
     "%4 = reshape %3 : i32[60]\n"
     "%5 = slice %4 {start_indices=[0], limit_indices=[57], strides=[1]} : "
     "i32[57]\n"
     "%6 = concatenate %2, %5 {dimension=0} : i32[60]\nreturn %6"},
    {"f32[7,13]", "i32[19]", "f32[32,13]",
     "%3 = reshape %2 : i32[19,1]\n"
     "%4 = gather %1, %3 {offset_dims=[1], collapsed_slice_dims=[0], "
     "start_index_map=[0], index_vector_dim=1, slice_sizes=[1,13]} : "
     "f32[19,13]\n"
     "%5 = iota {dimension=1} : f32[6,13]\n"
     "%6 = concatenate %5, %4, %1 {dimension=0} : f32[32,13]\nreturn %6"},
    // f8E8M0FNU has no zero: false is NaN there.
    {"i1[40]", "i32[3]", "f8E5M2[40]",
     "%3 = convert %1 : f8E8M0FNU[40]\n"
     "%4 = convert %3 : f8E5M2[40]\nreturn %4"},
};

// A LOOP fusion of two operands; a failure names its lines.
static void add_fused(ck *c, const char *const *t) {
  char params[128], line[2048];
  snprintf(params, sizeof params, "%%20: %s, %%21: %s", t[0], t[1]);
  snprintf(line, sizeof line,
           "%%30 = fusion %%20, %%21 {kind=LOOP} ((%%1: %s, %%2: %s) {\n%s\n}) "
           ": %s\n"
           "return %%30",
           t[0], t[1], t[3], t[2]);
  ck_text(c, params, t[2], line);
}

// A concatenation of `count` parts of many lengths, arguments and what is
// computed of them, along the dimension `dim` of two; or, with `fused`, inside
// of a fusion that reads it.
static void add_joined(ck *c, uint32_t count, int dim, bool fused) {
  at_strbuf params = {0}, inner = {0}, names = {0}, parts = {0}, line = {0};
  uint32_t total = 0, next = 2 * count;
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t n = 1 + i * 7 % 5 + (i % 50 == 17 ? 40 : 0);
    const uint32_t rows = dim ? 3 : n, columns = dim ? n : 3;
    const char *comma = i ? ", " : "";
    total += n;
    at_strbuf_addf(&params, "%s%%%u: f32[%u,%u]", comma, i, rows, columns);
    at_strbuf_addf(&names, "%s%%%u", comma, i);
    if (fused) {
      at_strbuf_addf(&inner, "%s%%%u: f32[%u,%u]", comma, count + i, rows,
                     columns);
      if (i % 3 == 0)
        at_strbuf_addf(&line, "%%%u = negate %%%u : f32[%u,%u]\n", next,
                       count + i, rows, columns);
      at_strbuf_addf(&parts, "%s%%%u", comma, i % 3 ? count + i : next++);
    }
  }
  char type[64];
  snprintf(type, sizeof type, "f32[%u,%u]", dim ? 3 : total, dim ? total : 3);
  at_strbuf text = {0};
  if (fused)
    at_strbuf_addf(&text,
                   "%%9001 = fusion %s {kind=LOOP} ((%s) {\n%s%%9000 = "
                   "concatenate %s {dimension=%d} : %s\nreturn %%9000\n}) : "
                   "%s\nreturn %%9001",
                   names.ptr, inner.ptr, line.ptr, parts.ptr, dim, type, type);
  else
    at_strbuf_addf(&text,
                   "%%9000 = concatenate %s {dimension=%d} : %s\nreturn %%9000",
                   names.ptr, dim, type);
  ck_text(c, params.ptr, type, text.ptr);
  at_strbuf_free(&params), at_strbuf_free(&inner), at_strbuf_free(&names);
  at_strbuf_free(&parts), at_strbuf_free(&line), at_strbuf_free(&text);
}

// Concatenations around the numbers at which parts are found by halves and
// shared by functions, along both dimensions, alone and fused.
static void test_many_parts(void **state) {
  for (size_t f = 0; f < AT_LEN(k_targets); f++) {
    ck c;
    ck_begin(&c, k_targets[f]);
    static const uint32_t counts[] = {5, 64, 65, 150};
    for (size_t i = 0; i < AT_LEN(counts); i++)
      for (int k = 0; k < 4; k++) add_joined(&c, counts[i], k % 2, k > 1);
    ck_end(&c);
  }
}

// However many parts a kernel joins, none of its functions grows with them:
// LLVM's time grows with the square of one.
static void test_functions_stay_small(void **state) {
  uint64_t most[2];
  for (int i = 0; i < 2; i++) {
    ck c;
    ck_begin(&c, ~0ull);
    add_joined(&c, i ? 600 : 150, 0, true);
    (void)at_cg_instructions_most();
    ck_end(&c);
    most[i] = at_cg_instructions_most();
  }
  // What calls them grows a little.
  assert_true(most[0] > 100 && most[1] < 3 * most[0]);
}

// All cases for both widths of vectors; those with indices three times, as
// indices are random, some out of bounds.
static void test_moves(void **state) {
  for (size_t f = 0; f < AT_LEN(k_targets); f++) {
    ck c;
    ck_begin(&c, k_targets[f]);
    for (size_t i = 0; i < AT_LEN(k_one); i++) {
      char params[64], line[256];
      const char *type = strrchr(k_one[i][1], ':') + 2;
      snprintf(params, sizeof params, "%%0: %s", k_one[i][0]);
      snprintf(line, sizeof line, "%%9 = %s\nreturn %%9", k_one[i][1]);
      ck_text(&c, params, type, line);
    }
    for (size_t i = 0; i < AT_LEN(k_more); i++) {
      char line[512];
      snprintf(line, sizeof line, "%s\nreturn %%9", k_more[i][2]);
      for (int again = 0; again < 3; again++)
        ck_text(&c, k_more[i][0], k_more[i][1], line);
    }
    for (size_t i = 0; i < AT_LEN(k_fused); i++) add_fused(&c, k_fused[i]);
    ck_end(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_moves), cmocka_unit_test(test_many_parts),
      cmocka_unit_test(test_functions_stay_small)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

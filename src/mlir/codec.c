// The table of dialect attributes, for bytecode and text alike.
#include "mlir/mlir_internal.h"

#define DIRECTIONS "EQ NE GE GT LE LT"
#define COMPARES "NOTYPE FLOAT TOTALORDER SIGNED UNSIGNED"
#define FFTS "FFT IFFT RFFT IRFFT"
#define PRECISIONS "DEFAULT HIGH HIGHEST"
#define ALGORITHMS "DEFAULT THREE_FRY PHILOX"
#define DISTRIBUTIONS "- UNIFORM NORMAL"
#define TRANSPOSES "TRANSPOSE_INVALID NO_TRANSPOSE TRANSPOSE ADJOINT"
#define ACCURACIES "DEFAULT HIGHEST TOLERANCE"
#define APIS                                      \
  "API_VERSION_UNSPECIFIED API_VERSION_ORIGINAL " \
  "API_VERSION_STATUS_RETURNING "                 \
  "API_VERSION_STATUS_RETURNING_UNIFIED API_VERSION_TYPED_FFI"
#define ALIAS "output_tuple_indices:L operand_index:s operand_tuple_indices:L"
#define SHARDING "mesh_or_ref:a dim_shardings:A replicated_axes:A"

// Codes are those of each dialect's bytecode; rows of one dialect stand
// together. An attribute with several encodings has a row for each.
static const at_mcodec codecs[] = {
    {"vhlo.comparison_direction_v1", 3, "", DIRECTIONS},
    {"vhlo.comparison_type_v1", 4, "", COMPARES},
    {"vhlo.api_version_v1", 5, "", APIS},
    {"vhlo.fft_type_v1", 7, "", FFTS},
    {"vhlo.output_operand_alias_v1", 10, ALIAS, NULL},
    {"vhlo.precision_v1", 11, "", PRECISIONS},
    {"vhlo.rng_algorithm_v1", 12, "", ALGORITHMS},
    {"vhlo.rng_distribution_v1", 13, "", DISTRIBUTIONS},
    {"vhlo.transpose_v1", 16, "", TRANSPOSES},
    {"vhlo.type_extensions_v1", 18, "bounds:L", NULL},
    {"vhlo.result_accuracy_mode_v1", 19, "", ACCURACIES},
    {"vhlo.result_accuracy_v1", 20, "atol:d rtol:d ulps:s mode:a", NULL},
    {"vhlo.sub_axis_info_v1", 21, "pre_size:s size:s", NULL},
    {"vhlo.axis_ref_v1", 22, "name:a sub_axis_info:q", NULL},
    {"vhlo.replica_group_mesh_axes_v1", 23, "mesh:a axes:a", NULL},
    {"vhlo.mesh_axis_v1", 24, "name:a size:s", NULL},
    {"vhlo.mesh_v1", 25, "axes:a device_ids:o", NULL},

    {"stablehlo.channel_handle", 1, "handle:s type:s", NULL},
    {"stablehlo.comparison_direction", 2, "", DIRECTIONS},
    {"stablehlo.comparison_type", 3, "", COMPARES},
    {"stablehlo.conv", 4,
     "input_batch_dimension:s input_feature_dimension:s "
     "input_spatial_dimensions:L kernel_input_feature_dimension:s "
     "kernel_output_feature_dimension:s kernel_spatial_dimensions:L "
     "output_batch_dimension:s output_feature_dimension:s "
     "output_spatial_dimensions:L",
     NULL},
    {"stablehlo.dot", 5,
     "lhs_batching_dimensions:L rhs_batching_dimensions:L "
     "lhs_contracting_dimensions:L rhs_contracting_dimensions:L",
     NULL},
    {"stablehlo.fft_type", 6, "", FFTS},
    {"stablehlo.gather", 7,
     "offset_dims:L collapsed_slice_dims:L operand_batching_dims:L "
     "start_indices_batching_dims:L start_index_map:L index_vector_dim:s",
     NULL},
    {"stablehlo.precision", 8, "", PRECISIONS},
    {"stablehlo.rng_algorithm", 9, "", ALGORITHMS},
    {"stablehlo.rng_distribution", 10, "", DISTRIBUTIONS},
    {"stablehlo.scatter", 11,
     "update_window_dims:L inserted_window_dims:L input_batching_dims:L "
     "scatter_indices_batching_dims:L scatter_dims_to_operand_dims:L "
     "index_vector_dim:s",
     NULL},
    {"stablehlo.transpose", 12, "", TRANSPOSES},
    {"stablehlo.type_extensions", 13, "bounds:L", NULL},
    {"stablehlo.output_operand_alias", 14, ALIAS, NULL},
    {"stablehlo.dot_algorithm", 15,
     "lhs_precision_type:t rhs_precision_type:t accumulation_type:t "
     "lhs_component_count:s rhs_component_count:s num_primitive_operations:s "
     "allow_imprecise_accumulation:b",
     NULL},
    {"stablehlo.result_accuracy_mode", 16, "", ACCURACIES},
    {"stablehlo.result_accuracy", 17, "atol:d rtol:d ulps:s mode:a", NULL},
    {"stablehlo.replica_group_mesh_axes", 18, "mesh:a axes:A", NULL},
    {"stablehlo.sub_axis_info", 19, "pre_size:s size:s", NULL},
    {"stablehlo.axis_ref", 20, "name:S sub_axis_info:Q", NULL},
    {"stablehlo.mesh_axis", 21, "name:S size:s", NULL},
    {"stablehlo.mesh", 22, "axes:a device_ids:Q", NULL},

    {"chlo.comparison_direction", 0, "", DIRECTIONS},
    {"chlo.comparison_type", 1, "", COMPARES},
    {"chlo.precision", -1, "", PRECISIONS},
    {"chlo.ragged_dot", -1,
     "lhs_batching_dimensions:L rhs_batching_dimensions:L "
     "lhs_contracting_dimensions:L rhs_contracting_dimensions:L "
     "lhs_ragged_dimensions:L rhs_group_dimensions:L",
     NULL},

    {"sdy.manual_axes", 0, "value:A", NULL},
    {"sdy.mesh_axis", 1, "name:S size:s", NULL},
    {"sdy.mesh", 2, "axes:A device_ids:L", NULL},
    {"sdy.sub_axis_info", 3, "pre_size:s size:s", NULL},
    {"sdy.axis_ref", 4, "name:S sub_axis_info:o", NULL},
    {"sdy.dimension_sharding", 5, "axes:A is_closed:b priority:p", NULL},
    {"sdy.sharding", 6, SHARDING, NULL},
    {"sdy.sharding_per_value", 7, "shardings:A", NULL},
    {"sdy.dim_mapping", 8, "factor_indices:L", NULL},
    {"sdy.tensor_mapping", 9, "dim_mappings:A", NULL},
    {"sdy.op_sharding_rule", 10,
     "factor_sizes:L operand_mappings:A result_mappings:A "
     "reduction_factors:L need_replication_factors:L permutation_factors:L "
     "blocked_propagation_factors:L is_custom_rule:b",
     NULL},
    {"sdy.axis_ref_list", 11, "value:A", NULL},
    {"sdy.list_of_axis_ref_lists", 12, "value:A", NULL},
    {"sdy.all_to_all_param", 13, "axes:A src_dim:s tgt_dim:s", NULL},
    {"sdy.all_to_all_param_list", 14, "value:A", NULL},
    {"sdy.sharding", 15, SHARDING " unreduced_axes:A", NULL},
    {"sdy.sharding_per_value", 16, "shardings:A", NULL},
    {"sdy.reduction_op", -1, "", "sum max min"},
    {"sdy.sharding", 17, SHARDING " unreduced_axes:A reduction_op:E",
     "sum max min"},
};

// Attributes with several encodings stand in the order of their codes: the
// first row is the one with the fewest fields.
const at_mcodec *at_mcodec_by_name(at_str name) {
  for (size_t i = 0; i < AT_LEN(codecs); i++)
    if (at_str_is(name, codecs[i].name)) return &codecs[i];
  return NULL;
}

// Codes count within a dialect.
const at_mcodec *at_mcodec_by_code(at_str dialect, uint64_t code) {
  for (size_t i = 0; i < AT_LEN(codecs); i++) {
    at_str n = at_str_of(codecs[i].name);
    if (codecs[i].code >= 0 && (uint64_t)codecs[i].code == code &&
        n.len > dialect.len && n.ptr[dialect.len] == '.' &&
        memcmp(n.ptr, dialect.ptr, dialect.len) == 0)
      return &codecs[i];
  }
  return NULL;
}

// A field is "name:K"; the cursor moves behind the letter.
bool at_mcodec_next(const char **layout, at_mfield *out) {
  const char *p = *layout;
  while (*p == ' ') p++;
  if (!*p) return false;
  const char *colon = strchr(p, ':');
  out->name = (at_str){p, (size_t)(colon - p)};
  out->kind = colon[1];
  *layout = colon + 2;
  return true;
}

// Spellings are separated by single blanks.
bool at_mcodec_spelling(const char *enums, uint64_t value, at_str *out) {
  const char *p = enums;
  for (; value; value--) {
    p = strchr(p, ' ');
    if (!p) return false;
    p++;
  }
  *out = (at_str){p, strcspn(p, " ")};
  return out->len != 1 || *p != '-';
}

// Enums have at most 64 values.
int at_mcodec_value(const char *enums, at_str spelling) {
  at_str s;
  for (int v = 0; v < 64; v++) {
    const char *p = enums;
    int skip = v;
    for (; skip && p; skip--) p = strchr(p, ' '), p = p ? p + 1 : NULL;
    if (!p) return -1;
    s = (at_str){p, strcspn(p, " ")};
    if (at_str_eq(s, spelling)) return v;
  }
  return -1;
}

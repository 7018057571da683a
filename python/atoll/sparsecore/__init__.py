"""SparseCore embeddings: input, configuration, limits, sizes, advice."""

from atoll.sparsecore._native import SparseCoreError
from atoll.sparsecore.advise import (
    Advice, Profile, StackProfile, advise, compare)
from atoll.sparsecore.config import (
    FeatureSpec, QuantizationConfig, SparsecoreConfig, TableSpec,
    initialize_tables, row_of, stack_tables)
from atoll.sparsecore.explain import explain, explained
from atoll.sparsecore.hosts import agree_over_processes, Recompiles, recompiles
from atoll.sparsecore.limits import LimitsEstimator, TableLimits, flags
from atoll.sparsecore.lookups import LookupStats
from atoll.sparsecore.preprocess import (
    Coo, InputStats, Plan, PreprocessedInput, Ragged, SparseDenseMatmulInput,
    SparseTensor, preprocess_sparse_dense_matmul_input,
    preprocess_sparse_dense_matmul_input_from_sparse_tensor)
from atoll.sparsecore.size import SizeReport, size_report
from atoll.sparsecore.skew import (
    FeatureSkew, IdShuffle, SkewReport, skew_report)
from atoll.sparsecore.tables import (
    load_tables, map_tables, read_rows, save_tables, stack_values, unstack_tables,
    write_rows)
from atoll.sparsecore.trace import (
    Event, events_of, profile, profile_of_events, write_timeline)

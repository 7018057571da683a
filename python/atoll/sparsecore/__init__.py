"""SparseCore embeddings: input, configuration, limits, sizes, advice."""

from atoll.sparsecore._native import SparseCoreError
from atoll.sparsecore.preprocess import (
    Coo, InputStats, Plan, PreprocessedInput, Ragged, SparseDenseMatmulInput,
    SparseTensor, preprocess_sparse_dense_matmul_input,
    preprocess_sparse_dense_matmul_input_from_sparse_tensor)

// Launches of kernels for sequence_kernels.cpp, by the rules of launch.hpp.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

namespace lockstep::ops::cuda {

/// The first of some indices that is no row of a table.
struct BadIndex {
  std::int64_t position;  ///< the number of indices if there is none
  std::int64_t index;
};

struct IndexedRows {
  const std::int32_t* indices;  ///< [count]
  std::int64_t count;
  std::int64_t entries;  ///< rows of the table
  std::int64_t width;    ///< of a row
};

/// `bad` is GPU memory.
cudaError_t launch_check_indices(const IndexedRows& rows, BadIndex* bad, cudaStream_t stream);

/// Does nothing if `bad` holds a bad index.
template <class T>
cudaError_t launch_gather_rows(const IndexedRows& which, const BadIndex* bad, const T* table, T* rows,
                               cudaStream_t stream);

/// Adds to each row of the table in the order of the indices, so the bits are the host's. Adds nothing for a bad index.
template <class T>
cudaError_t launch_scatter_add_rows(const IndexedRows& which, const T* rows, T* table, cudaStream_t stream);

template <class T>
struct NormRows {
  const T* x;  ///< [rows, width]
  const T* gain;
  std::int64_t rows;
  std::int64_t width;
};

template <class T>
cudaError_t launch_layer_norm(const NormRows<T>& of, const T* bias, T epsilon, T* y, T* moments, cudaStream_t stream);

/// dx may be dy.
template <class T>
cudaError_t launch_layer_norm_gradient(const NormRows<T>& of, const T* moments, const T* dy, T* dx,
                                       cudaStream_t stream);

/// d_gain and d_bias: the sums over the rows, first row first. There may be no rows.
template <class T>
cudaError_t launch_layer_norm_sums(const NormRows<T>& of, const T* moments, const T* dy, T* d_gain, T* d_bias,
                                   cudaStream_t stream);

template <class T>
cudaError_t launch_gelu(const T* x, T* y, std::int64_t count, cudaStream_t stream);

/// dx may be dy.
template <class T>
cudaError_t launch_gelu_gradient(const T* x, const T* dy, T* dx, std::int64_t count, cudaStream_t stream);

/// `matrices` matrices [context, context] one after another. In row i of each, replaces the first i + 1 scores by their
/// softmax, and the rest by zero.
template <class T>
cudaError_t launch_causal_softmax(T* scores, std::int64_t matrices, std::int64_t context, cudaStream_t stream);

/// From the gradients of the probabilities to those of the scores, in place.
template <class T>
cudaError_t launch_causal_softmax_gradient(const T* probabilities, T* d, std::int64_t matrices, std::int64_t context,
                                           cudaStream_t stream);

}  // namespace lockstep::ops::cuda

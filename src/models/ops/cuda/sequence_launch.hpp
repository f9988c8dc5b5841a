// Launches of kernels for sequence_kernels.cpp, by the rules of launch.hpp. All types may be BFloat16.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "core/tensor/computed.hpp"

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
cudaError_t launch_scatter_add_rows(const IndexedRows& which, const T* rows, detail::computed_t<T>* table,
                                    cudaStream_t stream);

template <class X>
struct NormRows {
  const X* x;  ///< [rows, width]
  const detail::computed_t<X>* gain;
  std::int64_t rows;
  std::int64_t width;
};

/// X and Y are of one type, or float and BFloat16.
template <class X, class Y>
cudaError_t launch_layer_norm(const NormRows<X>& of, const detail::computed_t<X>* bias, detail::computed_t<X> epsilon,
                              Y* y, detail::computed_t<X>* moments, cudaStream_t stream);

/// dx may be dy.
template <class X, class Y>
cudaError_t launch_layer_norm_gradient(const NormRows<X>& of, const detail::computed_t<X>* moments, const Y* dy, X* dx,
                                       cudaStream_t stream);

/// d_gain and d_bias: the sums over the rows, first row first. There may be no rows.
template <class X, class Y>
cudaError_t launch_layer_norm_sums(const NormRows<X>& of, const detail::computed_t<X>* moments, const Y* dy,
                                   detail::computed_t<X>* d_gain, detail::computed_t<X>* d_bias, cudaStream_t stream);

template <class T>
cudaError_t launch_gelu(const T* x, T* y, std::int64_t count, cudaStream_t stream);

/// dx may be dy.
template <class T>
cudaError_t launch_gelu_gradient(const T* x, const T* dy, T* dx, std::int64_t count, cudaStream_t stream);

/// `matrices` matrices [context, context] one after another. In row i of each, the first i + 1 probabilities are the
/// softmax of as many scores, and the rest are zero. `probabilities` may be `scores`, which are left unspecified. Each
/// row's log-sum-exp [matrices, context] is the logarithm of the sum of e^score.
template <class T>
cudaError_t launch_causal_softmax(detail::computed_t<T>* scores, T* probabilities, detail::computed_t<T>* log_sum_exps,
                                  std::int64_t matrices, std::int64_t context, cudaStream_t stream);

/// The probabilities again, as e^(score - log_sum_exp). `probabilities` must not overlap `scores`.
template <class T>
cudaError_t launch_causal_probabilities(const detail::computed_t<T>* scores, const detail::computed_t<T>* log_sum_exps,
                                        T* probabilities, std::int64_t matrices, std::int64_t context,
                                        cudaStream_t stream);

/// From the gradients of the probabilities, `d`, to those of the scores, which may be in the place of `probabilities`.
template <class T>
cudaError_t launch_causal_softmax_gradient(const T* probabilities, const detail::computed_t<T>* d, T* d_scores,
                                           std::int64_t matrices, std::int64_t context, cudaStream_t stream);

}  // namespace lockstep::ops::cuda

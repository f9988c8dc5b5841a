// Launches of kernels for cuda_kernels.cpp. They take plain pointers, so that nvcc compiles nothing but kernels. T is
// float or double, and BFloat16 where detail::computed_t<T> stands beside it or a comment says so; counts are positive.
// Each enqueues its work on `stream` and returns CUDA's status for that.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include <lockstep/core/base/dtype.hpp>

#include "core/tensor/computed.hpp"

namespace lockstep::ops::cuda {

/// rows [row_count, columns] += bias [columns], row by row.
template <class T>
cudaError_t launch_add_bias(T* rows, const detail::computed_t<T>* bias, std::int64_t row_count, std::int64_t columns,
                            cudaStream_t stream);

/// rows [row_count, columns] = sums + bias [columns], row by row, rounded to bf16. If `is_relu`, negative results are
/// 0.
cudaError_t launch_round_layer(const float* sums, const float* bias, bool is_relu, BFloat16* rows,
                               std::int64_t row_count, std::int64_t columns, cudaStream_t stream);

/// out [columns] = the sum of the rows of rows [row_count, columns], first row first. There may be no rows.
template <class T>
cudaError_t launch_sum_rows(const T* rows, detail::computed_t<T>* out, std::int64_t row_count, std::int64_t columns,
                            cudaStream_t stream);

// These take BFloat16 too.

template <class T>
cudaError_t launch_relu(const T* x, T* y, std::int64_t count, cudaStream_t stream);

template <class T>
cudaError_t launch_relu_gradient(const T* y, const T* dy, T* dx, std::int64_t count, cudaStream_t stream);

template <class T>
cudaError_t launch_add(T* sum, const T* x, std::int64_t count, cudaStream_t stream);

/// The result for a batch.
struct SoftmaxAnswer {
  double loss_sum;
  std::int64_t correct;
  std::int64_t bad_row;  ///< first counted row whose label is no class; the number of samples if there is none
  std::int64_t bad_label;
};

/// One row's part of the result.
struct SoftmaxRow {
  double loss;
  std::int64_t correct;
};

template <class T>
struct SoftmaxBatch {
  const T* logits;             ///< [rows, classes]
  const std::int32_t* labels;  ///< [rows], of which `samples` are read
  std::int64_t rows;
  std::int64_t classes;
  std::int64_t stride;   ///< from one row of logits, or of d_logits, to the next
  std::int64_t samples;  ///< positive
  T* d_logits;           ///< null if no gradient is wanted
};

/// T may be BFloat16. `row_shares` [samples] and `answer` are GPU memory. If a label is no class, writes nothing but
/// the answer.
template <class T>
cudaError_t launch_softmax(const SoftmaxBatch<T>& batch, SoftmaxRow* row_shares, SoftmaxAnswer* answer,
                           cudaStream_t stream);

}  // namespace lockstep::ops::cuda

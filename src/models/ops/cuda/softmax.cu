// Softmax cross-entropy in three launches: check that every label is a class; one warp per row; add up the rows' losses
// in order. The first leaves its verdict in GPU memory, where the other two read it. So nothing is written for a bad
// label, and the host learns of it with the answer.
#include "core/device/cuda/geometry.hpp"
#include "core/device/cuda/kernel_launch.hpp"
#include "core/tensor/cuda/stored.hpp"
#include "models/ops/cuda/first_outside.hpp"
#include "models/ops/cuda/launch.hpp"
#include "models/ops/cuda/softmax_lanes.hpp"
#include "models/ops/cuda/warp.hpp"

namespace lockstep::ops::cuda {
namespace {

using lockstep::detail::launch;
using namespace lockstep::detail::cuda;

/// One block.
__global__ void check_labels_kernel(const std::int32_t* labels, std::int64_t samples, std::int64_t classes,
                                    SoftmaxAnswer* answer) {
  __shared__ std::int64_t first_bad[check_threads];
  const std::int64_t bad_row = first_outside(labels, samples, classes, first_bad);
  if (threadIdx.x == 0)
    *answer = {.loss_sum = 0, .correct = 0, .bad_row = bad_row, .bad_label = bad_row < samples ? labels[bad_row] : 0};
}

template <class T>
__device__ Largest<T> warp_largest(Largest<T> mine) {
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    const Largest<T> other{__shfl_xor_sync(all_lanes, mine.value, distance),
                           __shfl_xor_sync(all_lanes, mine.index, distance)};
    mine = joined(mine, other);
  }
  return mine;
}

/// The lanes of a warp share one row, so all of them take each branch and reach each shuffle together.
template <class T>
__global__ void rows_kernel(SoftmaxBatch<T> batch, SoftmaxRow* row_shares, const SoftmaxAnswer* answer) {
  if (answer->bad_row < batch.samples) return;
  const int lane = static_cast<int>(threadIdx.x);
  const std::int64_t classes = batch.classes;
  const std::int64_t last = batch.d_logits ? batch.rows : batch.samples;
  for (std::int64_t row = first_row_of_warp(); row < last; row += rows_apart()) {
    T* const d = batch.d_logits ? batch.d_logits + row * batch.stride : nullptr;
    if (row >= batch.samples) {
      for (std::int64_t j = lane; j < classes; j += lanes) store(d[j], 0);
      continue;
    }
    const T* const x = batch.logits + row * batch.stride;
    const std::int64_t label = batch.labels[row];
    const auto at_label = wide(x[label]);
    const auto largest = warp_largest(lane_largest(x, classes, lane, lanes));
    const auto sum = warp_sum(lane_sum(x, classes, lane, lanes, largest.value));
    if (lane == 0) {
      const double loss = row_loss(sum, largest.value, at_label);
      row_shares[row] = {.loss = loss, .correct = is_correct(largest.index, label, loss)};
    }
    if (d) {
      // The gradient may overwrite the logits, but only after every lane has read the label's.
      __syncwarp();
      lane_gradient(x, classes, label, lane, lanes, largest.value, sum, d);
    }
  }
}

constexpr int total_threads = 256;

/// One block. All its threads fetch, one adds in the order of the rows, as the contract says.
__global__ void total_kernel(const SoftmaxRow* row_shares, std::int64_t samples, SoftmaxAnswer* answer) {
  __shared__ SoftmaxRow fetched[total_threads];
  if (answer->bad_row < samples) return;
  double loss_sum = 0;
  std::int64_t correct = 0;
  for (std::int64_t first = 0; first < samples; first += total_threads) {
    const std::int64_t left = samples - first;
    const int count = left < total_threads ? static_cast<int>(left) : total_threads;
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < count) fetched[thread] = row_shares[first + thread];
    __syncthreads();
    if (thread == 0) {
      for (int i = 0; i < count; ++i) {
        loss_sum += fetched[i].loss;
        correct += fetched[i].correct;
      }
    }
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  answer->loss_sum = loss_sum;
  answer->correct = correct;
}

}  // namespace

template <class T>
cudaError_t launch_softmax(const SoftmaxBatch<T>& batch, SoftmaxRow* row_shares, SoftmaxAnswer* answer,
                           cudaStream_t stream) {
  if (const cudaError_t result =
          launch(check_labels_kernel, 1, check_threads, stream, batch.labels, batch.samples, batch.classes, answer);
      result != cudaSuccess)
    return result;
  const std::int64_t row_count = batch.d_logits ? batch.rows : batch.samples;
  if (const cudaError_t result =
          launch(rows_kernel<T>, blocks_for(row_count, warps), dim3{lanes, warps}, stream, batch, row_shares, answer);
      result != cudaSuccess)
    return result;
  return launch(total_kernel, 1, total_threads, stream, row_shares, batch.samples, answer);
}

template cudaError_t launch_softmax<float>(const SoftmaxBatch<float>&, SoftmaxRow*, SoftmaxAnswer*, cudaStream_t);
template cudaError_t launch_softmax<double>(const SoftmaxBatch<double>&, SoftmaxRow*, SoftmaxAnswer*, cudaStream_t);
template cudaError_t launch_softmax<BFloat16>(const SoftmaxBatch<BFloat16>&, SoftmaxRow*, SoftmaxAnswer*, cudaStream_t);

}  // namespace lockstep::ops::cuda

// Batches: samples as tensors that kernels take.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/core/base/export.hpp>
#include <lockstep/core/tensor/tensor.hpp>

namespace lockstep {

/// Up to `capacity` samples. The tensors keep their shape however many samples there are, because a kernel may compute
/// different bits for a row if the number of rows changes. Rows from `samples` on are zero; code that sums over rows
/// must leave them out.
struct LOCKSTEP_API SampleBatch {
  struct Group;

  /// Images: [capacity, features], f32 or f64, scaled to [0, 1]. Text: [capacity, context], i32. A source and a model
  /// of your own agree on any shape that begins with the capacity, and on any type; so for labels.
  Tensor inputs;
  /// i32: one label per image, [capacity], or one per token of a text, [capacity, context].
  Tensor labels;
  std::int64_t samples = 0;

  /// The number of labels of the samples present, if each element of `labels` is one. A model adds up this many losses
  /// for the batch; for a mean, divide their sum and its gradient by it. A model whose labels have weights, or several
  /// elements each, says what they weigh (ops::Kernels::BatchLoss).
  std::int64_t counted_labels() const;
};

/// Batches of one capacity, side by side in one piece of memory: batch i starts at row i * capacity. A kernel may take
/// them one by one or all at once.
struct SampleBatch::Group {
  Tensor inputs;                     ///< of all batches: [batches * capacity, ...]
  Tensor labels;                     ///< with as many rows
  std::vector<SampleBatch> batches;  ///< each in its part of that memory

  std::int64_t capacity() const { return batches.front().inputs.shape().front(); }

  /// Of all batches.
  std::int64_t counted_labels() const;
};

}  // namespace lockstep

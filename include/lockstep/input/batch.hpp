// Batches: samples as tensors that kernels take.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <lockstep/base/dtype.hpp>
#include <lockstep/input/idx.hpp>
#include <lockstep/input/text.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep {

/// Up to `capacity` samples. The tensors keep their shape however many samples there are, because a kernel may compute
/// different bits for a row if the number of rows changes. Rows from `samples` on are zero; code that sums over rows
/// must leave them out.
struct SampleBatch {
  /// Images: [capacity, features], f32 or f64, scaled to [0, 1]. Text: [capacity, context], i32. A source and a model
  /// of your own agree on any shape that begins with the capacity, and on any type; so for labels.
  Tensor inputs;
  /// i32: one label per image, [capacity], or one per token of a text, [capacity, context].
  Tensor labels;
  std::int64_t samples = 0;

  /// The number of labels of the samples present, if each element of `labels` is one. A model adds up this many losses
  /// for the batch; for a mean, divide their sum and its gradient by it. A model whose labels have weights, or several
  /// elements each, says what they weigh (ops::BatchLoss).
  std::int64_t counted_labels() const;
};

/// Batches of one capacity, side by side in one piece of memory: batch i starts at row i * capacity. A kernel may take
/// them one by one or all at once.
struct BatchGroup {
  Tensor inputs;                     ///< of all batches: [batches * capacity, ...]
  Tensor labels;                     ///< with as many rows
  std::vector<SampleBatch> batches;  ///< each in its part of that memory

  std::int64_t capacity() const { return batches.front().inputs.shape().front(); }

  /// Of all batches.
  std::int64_t counted_labels() const;
};

/// Divides `whole` into `batches` batches without samples, which share its memory. InvalidArgument unless its rows
/// divide evenly.
BatchGroup make_batch_group(const SampleBatch& whole, std::int64_t batches);

/// An empty batch on the host, in memory that `stream` copies from best. InvalidArgument unless `dtype` is f32 or
/// f64 and both numbers are positive.
SampleBatch make_batch(std::int64_t capacity, std::int64_t features, DType dtype, Stream& stream = host_stream());

/// Fills row i with the image and label of sample `sample_indices[i]`, and zeroes the rows after the last sample.
/// Writes into the memory of `batch`, which copies of its tensors share. InvalidArgument, leaving `batch` unchanged, if
/// there are more samples than rows, a sample is not in `images`, or the images have a different number of pixels.
void fill_batch(const ImageSet& images, std::span<const std::int64_t> sample_indices, SampleBatch& batch);

/// The same for text, with samples of `context` tokens each. InvalidArgument unless both numbers are positive.
SampleBatch make_text_batch(std::int64_t capacity, std::int64_t context, Stream& stream = host_stream());

/// Fills row i with the tokens of sample `sample_indices[i]`, and its labels with the token after each of them; zeroes
/// the rows after the last sample. Otherwise as fill_batch for images. InvalidArgument if the text is cut for another
/// context; throws as TokenSequence::read does.
void fill_batch(const TextSet& text, std::span<const std::int64_t> sample_indices, SampleBatch& batch);

}  // namespace lockstep

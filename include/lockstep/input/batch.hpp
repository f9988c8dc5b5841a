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

/// Up to `capacity` samples. The tensors keep their shape however many samples there are, because a kernel
/// may give a row other bits at another number of rows: rows from `samples` on are zero, and whoever sums
/// over rows leaves them out.
struct SampleBatch {
  /// Of images [capacity, features], f32 or f64, scaled to [0, 1]; of text [capacity, context], i32.
  Tensor inputs;
  /// i32: a label for each image [capacity], or for each byte of a text [capacity, context].
  Tensor labels;
  std::int64_t samples = 0;

  /// The labels of the samples there are: how many losses a model adds up for this batch, and so what their sum and
  /// its gradient are to be divided by for a mean.
  std::int64_t counted_labels() const;
};

/// Batches of one capacity that lie side by side in one piece of memory: batch i is the rows from i * capacity on. So a
/// kernel may take them one by one, or all at once.
struct BatchGroup {
  Tensor inputs;                     ///< of all of them: [batches * capacity, ...]
  Tensor labels;                     ///< as many rows
  std::vector<SampleBatch> batches;  ///< each in its part of that memory

  std::int64_t capacity() const { return batches.front().inputs.shape().front(); }
};

/// The memory of `whole` as `batches` batches without samples. InvalidArgument unless there are as many rows in each.
BatchGroup make_batch_group(const SampleBatch& whole, std::int64_t batches);

/// An empty batch on the host, in memory that `stream` copies from best. InvalidArgument unless `dtype` is f32 or
/// f64 and both numbers are positive.
SampleBatch make_batch(std::int64_t capacity, std::int64_t features, DType dtype, Stream& stream = host_stream());

/// Makes row i the image and label of sample `sample_indices[i]`, and zeroes the rows after the last. Writes
/// into the memory of `batch`, which copies of its tensors share. InvalidArgument, with `batch` as it was,
/// where there are more samples than rows, a sample is not in `images`, or the images have another number of
/// pixels.
void fill_batch(const ImageSet& images, std::span<const std::int64_t> sample_indices, SampleBatch& batch);

/// The same for text: of samples of `context` bytes each. InvalidArgument unless both numbers are positive.
SampleBatch make_text_batch(std::int64_t capacity, std::int64_t context, Stream& stream = host_stream());

/// Makes row i the bytes of sample `sample_indices[i]` and those behind each of them, and zeroes the rows after the
/// last. As fill_batch of images otherwise; InvalidArgument where the text is cut for another context.
void fill_batch(const TextSet& text, std::span<const std::int64_t> sample_indices, SampleBatch& batch);

}  // namespace lockstep

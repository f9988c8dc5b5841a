// Batches of images and of texts.
#pragma once

#include <cstdint>
#include <span>

#include <lockstep/core/base/dtype.hpp>
#include <lockstep/models/input/batch.hpp>
#include <lockstep/models/input/idx.hpp>

#include "models/input/text_sets.hpp"

namespace lockstep {

/// Divides `whole` into `batches` batches without samples, which share its memory. InvalidArgument unless its rows
/// divide evenly.
SampleBatch::Group make_batch_group(const SampleBatch& whole, std::int64_t batches);

/// An empty batch on the host, in memory that `stream` copies from best. InvalidArgument unless `dtype` is f32 or
/// f64 and both numbers are positive.
SampleBatch make_batch(std::int64_t capacity, std::int64_t features, DType dtype, Stream& stream = Stream::host());

/// Fills row i with the image and label of sample `sample_indices[i]`, and zeroes the rows after the last sample.
/// Writes into the memory of `batch`, which copies of its tensors share. InvalidArgument, leaving `batch` unchanged, if
/// there are more samples than rows, a sample is not in `images`, or the images have a different number of pixels.
void fill_batch(const ImageData::Set& images, std::span<const std::int64_t> sample_indices, SampleBatch& batch);

/// The same for text, with samples of `context` tokens each. InvalidArgument unless both numbers are positive.
SampleBatch make_text_batch(std::int64_t capacity, std::int64_t context, Stream& stream = Stream::host());

/// Fills row i with the tokens of sample `sample_indices[i]`, and its labels with the token after each of them; zeroes
/// the rows after the last sample. Otherwise as fill_batch for images. InvalidArgument if the text is cut for another
/// context; throws as TokenSequence::read does.
void fill_batch(const TextSet& text, std::span<const std::int64_t> sample_indices, SampleBatch& batch);

}  // namespace lockstep

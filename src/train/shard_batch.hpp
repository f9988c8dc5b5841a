// From samples on the host to a batch where the model computes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include <lockstep/input/batch.hpp>

namespace lockstep {

/// Memory for one shard at a time. On the host the model reads it where it is put together. On a GPU it is put together
/// in pinned memory and copied over, and there are two of those: one is filled while the other is on its way.
class ShardBatch {
 public:
  /// For shards of up to `capacity` samples, in memory of the stream's device. `stream` must outlive it.
  ShardBatch(std::int64_t capacity, std::int64_t features, DType dtype, Stream& stream);

  /// The samples of `images`, as work enqueued on the stream from here on finds them, until the next call. As
  /// fill_batch.
  const SampleBatch& load(const ImageSet& images, std::span<const std::int64_t> samples);

 private:
  struct Staging {
    SampleBatch batch;
    std::unique_ptr<Event> copied;
  };

  Stream& stream_;
  std::array<Staging, 2> staging_;
  std::size_t turn_ = 0;
  SampleBatch on_device_;  ///< unused on the host
};

}  // namespace lockstep

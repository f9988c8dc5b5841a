// From samples on the host to batches where the model computes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include <lockstep/input/batch.hpp>
#include <lockstep/input/sample_source.hpp>

namespace lockstep {

/// Memory for the batches of some shards at a time. On the host the model reads them where they are put together. On a
/// GPU they are put together in pinned memory and copied over, and there are two of those: one is filled while the
/// other is on its way.
class ShardLoader {
 public:
  /// For `shards` batches of up to `capacity` samples each, in memory of the stream's device. `source` and `stream`
  /// must outlive it.
  ShardLoader(const SampleSource& source, std::int64_t capacity, std::int64_t shards, Stream& stream);

  /// The samples of each shard, of which there are as many as it was made for, as work enqueued on the stream from here
  /// on finds them, until the next call.
  const BatchGroup& load(std::span<const std::span<const std::int64_t>> samples);

 private:
  struct Staging {
    BatchGroup group;
    std::unique_ptr<Event> copied;
  };

  const SampleSource& source_;
  Stream& stream_;
  std::array<Staging, 2> staging_;
  std::size_t turn_ = 0;
  BatchGroup on_device_;  ///< unused on the host
};

}  // namespace lockstep

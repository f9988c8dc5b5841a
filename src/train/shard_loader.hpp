// From samples on the host to batches in the memory where the model computes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include <lockstep/input/batch.hpp>
#include <lockstep/input/sample_source.hpp>

namespace lockstep {

/// Memory for the batches of several shards at a time. On the host, the model reads them where they are assembled. For
/// a GPU they are assembled in one of two pinned buffers and copied over; one is filled while the other is being
/// copied.
class ShardLoader {
 public:
  /// For `shards` batches of up to `capacity` samples each, in memory of the stream's device. `source` and `stream`
  /// must outlive it.
  ShardLoader(const SampleSource& source, std::int64_t capacity, std::int64_t shards, Stream& stream);
  ShardLoader(const ShardLoader&) = delete;
  ShardLoader& operator=(const ShardLoader&) = delete;

  /// Blocks the host until the last copies are done.
  ~ShardLoader();

  /// Loads the samples of each shard; there must be as many shards as it was made for. The result is valid for work
  /// enqueued on the stream from now on, until the next call.
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

// From samples on the host to batches in the memory where the model computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <lockstep/models/input/batch.hpp>
#include <lockstep/models/input/sample_source.hpp>

#include "core/device/device.hpp"
#include "models/fit/shard_threads.hpp"

namespace lockstep {

/// Memory for the batches of several shards at a time. On the host, the model reads them where they are assembled. For
/// a GPU they are assembled in one of several pinned buffers and copied over; one is filled while others are being
/// copied.
class ShardLoader {
 public:
  /// For `shards` batches of up to `capacity` samples each, in memory of the stream's device, of which `ahead` can be
  /// assembled ahead. `source` and `stream` must outlive it.
  ShardLoader(const SampleSource& source, std::int64_t capacity, std::int64_t shards, Stream& stream,
              std::size_t ahead = 0);
  ShardLoader(const ShardLoader&) = delete;
  ShardLoader& operator=(const ShardLoader&) = delete;

  /// Blocks the host until the last copies are done.
  ~ShardLoader();

  /// Loads the samples of each shard; there must be as many shards as it was made for. The result is valid for work
  /// enqueued on the stream from now on, until the next call.
  const SampleBatch::Group& load(std::span<const std::span<const std::int64_t>> samples) {
    assemble(samples);
    return send();
  }

  /// The same on `threads`, each of which fills the batches that it computes, if the source allows it.
  const SampleBatch::Group& load(std::span<const std::span<const std::int64_t>> samples, ShardThreads& threads) {
    assemble(samples, source_.fills_at_once() ? &threads : nullptr);
    return send();
  }

  /// The two halves of `load`. Another thread may assemble while this one sends, at most `ahead` groups more than were
  /// sent.
  void assemble(std::span<const std::span<const std::int64_t>> samples) { assemble(samples, nullptr); }
  const SampleBatch::Group& send();

 private:
  void assemble(std::span<const std::span<const std::int64_t>> samples, ShardThreads* threads);

  struct Staging {
    SampleBatch::Group group;
    std::unique_ptr<Event> copied;
  };

  const SampleSource& source_;
  Stream& stream_;
  std::vector<Staging> staging_;
  std::size_t assembled_ = 0, sent_ = 0;  ///< groups; each is used by one of the two threads
  bool unrecorded_ = false;               ///< there may be copies that no event follows
  SampleBatch::Group on_device_;          ///< unused on the host
};

}  // namespace lockstep

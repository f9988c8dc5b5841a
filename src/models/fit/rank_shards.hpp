// One rank's shards: from samples in the order of a step to batches for a model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include <lockstep/core/order/range.hpp>
#include <lockstep/models/input/batch.hpp>
#include <lockstep/models/input/sample_source.hpp>
#include <lockstep/models/nn/model.hpp>

#include "core/device/device.hpp"
#include "core/order/work_ahead.hpp"
#include "models/fit/shard_threads.hpp"

namespace lockstep {

/// Adjacent samples in the batch of a step.
struct BatchPart {
  std::span<const std::int64_t> samples;
  std::int64_t first = 0;  ///< where they begin in that batch

  /// Part `number` of `parts`, cut as a batch is cut into shards.
  BatchPart part(int parts, int number) const;
};

/// Some of the shards, side by side.
SampleBatch::Group part_of(const SampleBatch::Group& shards, const Range& part);

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

/// What a batch is cut into.
struct BatchCut {
  int shards = 1;
  int micro_batches = 1;  ///< per shard
};

/// Loads the shards of one rank from `source`, one micro-batch of one shard or of all at a time.
class RankShards {
 public:
  /// For batches of up to `largest_batch` samples. `source` and `stream` must outlive it.
  RankShards(const SampleSource& source, std::int64_t largest_batch, BatchCut cut, Range mine, Stream& stream);

  /// Number of shards of this rank, and of all ranks.
  std::int64_t count() const { return mine_.size(); }
  int of_all() const { return cut_.shards; }

  /// Number of micro-batches per shard.
  int micro_batches() const { return cut_.micro_batches; }

  /// Batches for a model, and where each begins in the batch of the step. Valid until the next load.
  struct Loaded {
    const SampleBatch::Group& group;
    std::span<const std::int64_t> first_samples;

    std::vector<nn::Model::ShardPlace> places(std::int64_t step) const;
  };

  /// A micro-batch of all shards of this rank, or of its shard number `shard`. With `threads`, each loads what it
  /// computes, if the source allows it.
  Loaded load_all(std::span<const std::int64_t> batch, int micro_batch = 0, ShardThreads* threads = nullptr);
  Loaded load_one(std::span<const std::int64_t> batch, std::int64_t shard, int micro_batch = 0);

  /// A micro-batch of any shard of the batch, by its number there. It is not among those that are loaded ahead.
  Loaded load_any(std::span<const std::int64_t> batch, std::int64_t shard, int micro_batch = 0);

  /// As load_all, and behind them, in the same group, any shard of the batch.
  Loaded load_all_and(std::span<const std::int64_t> batch, std::int64_t audited);

  /// Which micro-batches a step loads: those of all shards, one after the other, or those of each shard.
  enum class Order : std::uint8_t { all_shards, shard_by_shard };

  struct LoadsAhead {
    int steps = 1;  ///< how many steps ahead micro-batches are assembled; 1 or more
    Order order = Order::all_shards;
    WorkAhead::Where where = WorkAhead::Where::on_thread;
    Range of;  ///< the steps that load, each of them once and in order
    /// The batch of a step. Called in order, on that thread.
    std::function<std::span<const std::int64_t>(std::int64_t step)> samples;
  };

  /// Before the first load: has all loads of own shards that follow assembled ahead. They must be those of the steps in
  /// order. An exception of the source comes from the load that would have assembled.
  void load_ahead(LoadsAhead loads);

  /// Number of samples in a micro-batch of all shards, including other ranks'.
  std::int64_t samples_of_all(std::span<const std::int64_t> batch, int micro_batch) const;

 private:
  BatchPart part_of(std::span<const std::int64_t> batch, std::int64_t shard, int micro_batch) const;
  Loaded load(std::optional<ShardLoader>& loader, std::span<const std::int64_t> batch, Range shards, int micro_batch,
              ShardThreads* threads = nullptr);

  /// The samples of a load, and where they begin in the batch of the step, for each shard.
  struct Parts {
    std::vector<std::span<const std::int64_t>> samples;
    std::vector<std::int64_t> first_samples;
  };
  Parts parts_of(std::span<const std::int64_t> batch, Range shards, int micro_batch) const;

  const SampleSource& source_;
  std::int64_t capacity_;  ///< of a micro-batch
  BatchCut cut_;
  Range mine_;
  Stream& stream_;
  std::mutex reading_;                          ///< held while a thread reads the source
  std::optional<ShardLoader> all_, one_, any_;  ///< made on first use
  std::optional<SampleBatch::Group> with_audited_;
  Parts parts_;                     ///< of the last load
  std::optional<WorkAhead> ahead_;  ///< ends before the loader that it fills
};

}  // namespace lockstep

// The samples of a step, for the data loaders of torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <torch/data/samplers/base.h>

#include <lockstep/core/base/export.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

namespace lockstep::libtorch {

/// This rank's part of each global batch. What a step trains on depends on the seed, the epoch and the step alone, and
/// not on the number of ranks: the batches are sample_order cut in turn, and rank r has Range::of_shard(batch, ranks,
/// r) of each. So a resumed run continues with the samples that it had not seen, also on another number of ranks.
///
///     auto loader = torch::data::make_data_loader(
///         std::move(dataset), lockstep::libtorch::Sampler{strategy, count, {.seed = 1}},
///         torch::data::DataLoaderOptions(128));
///     for (int epoch = 0; epoch < epochs; ++epoch)
///       for (const auto& batch : *loader) …
///
/// The loader's batch size is that of the **global** batch. So leave the loader's own `drop_last` off, since a part is
/// smaller. Loaders refuse an empty part: if fewer samples than ranks can remain for the last batch, set the sampler's
/// `drop_last`. A program may also do without a loader: `while (auto rows = sampler.next(128))`.
///
/// LOCAL. Not thread-safe.
class LOCKSTEP_API Sampler : public ::torch::data::samplers::Sampler<> {
 public:
  struct Options {
    std::optional<std::uint64_t> seed = {};  ///< shuffle seed; each epoch reshuffles. If empty, keeps the order
    std::int64_t epoch = 0;                  ///< the first epoch, such as the one in which a checkpoint was written
    std::int64_t step = 0;                   ///< of that epoch
    /// Leaves out an epoch's last step if its global batch is not full; else some ranks may have no samples then.
    bool drop_last = false;
  };

  /// For `count` samples, by default in their order. InvalidArgument for a negative count, epoch or step.
  Sampler(Strategy& strategy, std::int64_t count) : Sampler{strategy, count, Options{}} {}
  Sampler(Strategy& strategy, std::int64_t count, const Options& options);

  /// Begins the next epoch at its first step. Does nothing before the first step, so that a loader, which resets its
  /// sampler before each epoch, begins where the options say. With a size, there are that many samples from now on.
  void reset(c10::optional<std::size_t> new_size = c10::nullopt) override;

  /// The samples of this rank in the next step; nothing at the end of the epoch. All steps of an epoch have the same
  /// `global_batch`, which must be positive (InvalidArgument).
  c10::optional<std::vector<std::size_t>> next(std::size_t global_batch) override;

  /// The position of the next step that `next` returns. A loader with workers calls it ahead: count its batches
  /// instead.
  std::int64_t epoch() const { return epoch_; }
  std::int64_t step() const { return step_; }

  /// The epoch and the step.
  void save(::torch::serialize::OutputArchive& archive) const override;
  void load(::torch::serialize::InputArchive& archive) override;

 private:
  int ranks_, rank_;
  std::int64_t count_;
  std::optional<std::uint64_t> seed_;
  bool drop_last_;
  std::int64_t epoch_, step_;
  bool begun_ = false;               ///< the epoch, since the last reset
  std::vector<std::int64_t> order_;  ///< of the epoch, once that has begun
};

}  // namespace lockstep::libtorch

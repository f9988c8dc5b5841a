// Audits of a program's own training loop: in some steps each rank also computes a shard of another rank.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include <lockstep/sync/optim/optimizer.hpp>

namespace lockstep {

/// For a program that adds up its shards' gradients itself. What a shard yields must depend on step and shard alone.
///
///   Optimizer::Audit audit{strategy, {.every = 50, .shards = 8}, [&](std::int64_t shard, auto& results) {
///     const Batch batch = read(step, shard);
///     results.add("samples", batch.inputs);
///     const double loss = gradient_of(batch, gradient);  // into memory of one shard
///     results.add("gradient", gradient);
///     results.add("loss", loss);
///   }};
///   for (; step < steps; ++step)
///     strategy.run([&](ReplicaContext& context) {
///       for (const std::int64_t shard : own_shards) {
///         audit.compute(shard);
///         add(sum, gradient);
///       }
///       sgd.apply_gradients(context, {.gradients = {{sum, w}}, .own = own, .audit = &audit});
///     });
///
/// Once in `every` steps, apply_gradients has each rank compute one shard of another rank after its own, and compares
/// digests of what was added to the results. They travel with the step's other sums, so an audit costs no message and
/// changes no bit of the step. If they differ for a shard, no rank changes a variable, a slot or a counter, each rank
/// computes the shard once more, and all ranks throw AuditError, which names the rank whose result is wrong; or
/// DriftError, if the replicas hold different values, which explains it. The audit then remains at this step: a program
/// that catches the error may compute its shards again, and they are audited as before.
class Optimizer::Audit {
 public:
  struct Options {
    std::int64_t every;           ///< audits the last of every so many steps: 1 or more
    std::int64_t shards;          ///< of each step; those of a rank are Range::of_rank
    std::uint64_t seed = 0;       ///< decides which shards are audited, and by whom
    std::int64_t first_step = 0;  ///< for a program that continues a run: how many steps the run has made
  };

  /// Digests of what a shard yields, by name. Every shard adds values of the same names in the same order. The first
  /// value that differs shows whether a rank read other samples or computed wrong, so add "samples" first.
  class Results {
   public:
    /// Adds a digest of the elements, which may change afterwards. If the shard is compared, waits for the GPU that
    /// holds them.
    void add(std::string_view name, const TensorView& values);

    /// If `value` is not finite, only that is compared of this shard: which NaN a sum keeps depends on its order.
    void add(std::string_view name, double value);

   private:
    friend class Audit;
    struct Kept;
    explicit Results(Kept& kept) : kept_{kept} {}
    Kept& kept_;
  };

  /// Computes a shard and adds to its results. Must make no agreement.
  using Compute = std::function<void(std::int64_t shard, Results& results)>;

  /// LOCAL, with the same options on every rank. InvalidArgument for `every` below 1, for `first_step` below 0, and for
  /// fewer shards than ranks. The strategy must outlive it.
  Audit(Strategy& strategy, const Options& options, Compute compute);
  ~Audit();

  /// LOCAL. Computes a shard of the next step, and throws as `compute`; InvalidArgument unless it is this rank's. A
  /// computation (Optimizer::Computation) may call it after the agreement. The gradients given to apply_gradients may
  /// be in memory that `compute` writes to, unless that is the store's own (VariableStore::gradient), where the step's
  /// sums are made.
  void compute(std::int64_t shard);

 private:
  friend class Optimizer;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep

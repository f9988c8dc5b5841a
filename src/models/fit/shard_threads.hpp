// The threads of a rank that compute whole shards.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/models/nn/gradient_buffer.hpp>
#include <lockstep/models/nn/model.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "models/fit/accumulation.hpp"
#include "models/nn/shard_watch.hpp"

namespace lockstep {

/// Each thread takes as many adjacent shards of the rank, a whole subtree of the sum over shards, as if it were a rank
/// of its own. So the bits are those of any number of threads and ranks. The first thread is the caller's. The others
/// work in the caller's context; what all ranks would have to do together is a ContextError there.
class ShardThreads {
 public:
  /// As many of `wanted` threads as can work on `shards` shards of a rank: the largest power of two, if the shards are
  /// one; otherwise the threads' parts would be no subtrees. Null if that is one, or if the model has no workers
  /// (Model::make_worker). Also null on a GPU, and where no threads may be started. Replica 0 logs a warning if threads
  /// are idle.
  static std::unique_ptr<ShardThreads> make(Strategy& strategy, nn::Model& model, int wanted, std::int64_t shards);

  /// For `model` and its workers, on host memory.
  ShardThreads(nn::Model& model, std::vector<std::unique_ptr<nn::Model>> workers);
  ShardThreads(const ShardThreads&) = delete;
  ShardThreads& operator=(const ShardThreads&) = delete;
  ~ShardThreads();

  int count() const { return static_cast<int>(workers_.size()); }

  /// As Model::train_shards, for a number of shards that the threads divide. Gradients are ready at the end, in order.
  /// If several threads fail, rethrows the exception of the first, which has the first shards. If `watch` is not null,
  /// a thread with a shard that it wants computes its shards as Model::train_watched. It has no audited shards.
  ops::Kernels::BatchLoss train_shards(const SampleBatch::Group& shards, std::span<const nn::Model::ShardPlace> places,
                                       const nn::GradientBuffer& sum, nn::ShardWatch* watch = nullptr);

  /// The results of Model::evaluate_shard, shard by shard. Fails alike.
  std::vector<ops::Kernels::BatchLoss> evaluate_shards(std::span<const SampleBatch> shards);

  using Work = std::function<void(std::size_t thread)>;

  /// Calls `work` on each thread, and returns when all have. Fails alike. `where` ends the message of a ContextError,
  /// "in a shard that a thread computes".
  void run(const Work& work, std::string_view where);

  /// Calls `work` with each of `shards` shards, which the threads divide, on the thread that computes it.
  void for_each(std::size_t shards, const std::function<void(std::size_t shard)>& work, std::string_view where);

 private:
  void serve(std::size_t thread);
  void end();
  template <class Condition>
  void wait(std::condition_variable& changed, Condition&& condition);
  void work_as(std::size_t thread);

  void reserve(const nn::GradientBuffer& sum);
  /// Adds up this thread's part of the elements over the sums of all threads.
  void add_up(std::size_t thread) const;

  std::vector<std::unique_ptr<nn::Model>> owned_;  ///< all workers but the model itself
  std::vector<nn::Model*> workers_;
  std::optional<ShardBuffers> memory_;       ///< for the sums of all threads but the first
  std::vector<nn::GradientBuffer> partial_;  ///< each thread's sums; the first's are where all are added up
  std::vector<ops::Kernels::BatchLoss> results_;

  std::mutex mutex_;
  std::condition_variable begun_, done_;
  const Work* work_ = nullptr;
  // Written under the mutex, so that no thread that sleeps misses a change.
  std::atomic<std::uint64_t> round_ = 0;  ///< how often `run` was called
  std::atomic<std::size_t> working_ = 0;  ///< threads but the caller's that have not done their part of this round
  std::atomic<bool> ending_ = false;
  std::vector<std::exception_ptr> failures_;  ///< by thread
  std::vector<std::thread> threads_;          ///< all but the caller's
};

}  // namespace lockstep

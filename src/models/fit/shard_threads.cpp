#include "models/fit/shard_threads.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/log.hpp>

#include "core/base/floating_point_modes.hpp"
#include "core/base/start_thread.hpp"
#include "core/control/meeting_point.hpp"
#include "models/fit/rank_shards.hpp"
#include "models/nn/joint_model.hpp"
#include "models/nn/shard_losses.hpp"
#include "models/nn/shard_sums.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/reduce/arithmetic.hpp"
#include "sync/strategy/context_stack.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep {
namespace {

/// How long a thread waits awake. Between two parts of a step it is less, for models for which it matters how long it
/// takes to wake a thread: a tenth of a millisecond on a virtual machine.
constexpr std::chrono::milliseconds awake{2};

constexpr std::string_view in_shard = "in a shard that a thread computes";

/// Part `number` of the elements of `view`, which are cut into `parts`.
TensorView part_of(const TensorView& view, std::size_t parts, std::size_t number) {
  const auto begin = [&](std::size_t part) {
    return view.count() * static_cast<std::int64_t>(part) / static_cast<std::int64_t>(parts);
  };
  return view.reshaped({view.count()}).slice(begin(number), begin(number + 1) - begin(number));
}

/// The part of `whole` that begins with its shard `first`.
class WatchOfPart final : public nn::ShardWatch {
 public:
  WatchOfPart(nn::ShardWatch& whole, std::int64_t first) : whole_{whole}, first_{first} {}

  std::int64_t audited() const override { return 0; }
  bool wants(std::int64_t shard) const override { return whole_.wants(first_ + shard); }
  bool takes_parts(std::int64_t shard) const override { return whole_.takes_parts(first_ + shard); }
  void on_gradient(std::int64_t shard, std::size_t variable, const TensorView& part) override {
    whole_.on_gradient(first_ + shard, variable, part);
  }
  void on_statistics(std::int64_t shard, const TensorView& statistics) override {
    whole_.on_statistics(first_ + shard, statistics);
  }
  void on_loss(std::int64_t shard, const ops::Kernels::BatchLoss& loss) override {
    whole_.on_loss(first_ + shard, loss);
  }

  bool wants_any_of(std::int64_t shards) const {
    for (std::int64_t shard = 0; shard < shards; ++shard)
      if (wants(shard)) return true;
    return false;
  }

 private:
  nn::ShardWatch& whole_;
  std::int64_t first_;
};

}  // namespace

std::unique_ptr<ShardThreads> ShardThreads::make(Strategy& strategy, nn::Model& model, int wanted,
                                                 std::int64_t shards) {
  // Simulated ranks take turns, in an order that a seed decides. A thread beside them would break both.
  if (wanted < 2 || strategy.stream().kind() != DeviceKind::cpu || !inside(strategy).group().job().may_start_threads())
    return {};
  int count = 1;
  if (std::has_single_bit(static_cast<std::uint64_t>(shards)))
    count = static_cast<int>(std::bit_floor(static_cast<std::uint64_t>(std::min<std::int64_t>(wanted, shards))));
  std::vector<std::unique_ptr<nn::Model>> workers;
  for (std::unique_ptr<nn::Model> worker; std::ssize(workers) + 1 < count && (worker = model.make_worker());)
    workers.push_back(std::move(worker));
  const bool has_none = count > 1 && workers.empty();
  if (has_none) count = 1;
  if (count < wanted && strategy.rank() == 0)
    log::warning(fmt::format("{} of {} threads {} idle: {}", wanted - count, wanted, wanted - count == 1 ? "is" : "are",
                             has_none ? fmt::format("model '{}' computes one shard after the other", model.name())
                                      : fmt::format("each of the others takes as many of a rank's {} shards", shards)));
  if (count == 1) return {};
  return std::make_unique<ShardThreads>(model, std::move(workers));
}

ShardThreads::ShardThreads(nn::Model& model, std::vector<std::unique_ptr<nn::Model>> workers)
    : owned_{std::move(workers)}, workers_{&model}, results_(owned_.size() + 1), failures_(owned_.size() + 1) {
  for (const auto& worker : owned_) workers_.push_back(worker.get());
  threads_.reserve(owned_.size());
  try {
    for (std::size_t thread = 1; thread < workers_.size(); ++thread)
      threads_.push_back(start_thread("for the shards of a rank", [this, thread] { serve(thread); }));
  } catch (...) {
    end();
    throw;
  }
}

ShardThreads::~ShardThreads() {
  end();
}

void ShardThreads::end() {
  {
    const std::lock_guard lock{mutex_};
    ending_ = true;
  }
  begun_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ShardThreads::serve(std::size_t thread) {
  // A thread begins with the modes of the one that made it, which need not be in a run.
  reset_floating_point_modes();
  for (std::uint64_t done = 0;; ++done) {
    wait(begun_, [&] { return ending_ || round_ > done; });
    if (ending_) return;
    work_as(thread);
    const std::lock_guard lock{mutex_};
    if (--working_ == 0) done_.notify_one();
  }
}

template <class Condition>
void ShardThreads::wait(std::condition_variable& changed, Condition&& condition) {
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start < awake) {
    if (condition()) return;
    std::this_thread::yield();
  }
  std::unique_lock lock{mutex_};
  changed.wait(lock, condition);
}

void ShardThreads::work_as(std::size_t thread) {
  try {
    (*work_)(thread);
  } catch (...) {
    failures_[thread] = std::current_exception();
  }
}

void ShardThreads::run(const Work& work, std::string_view where) {
  const detail::Frame* const frame = detail::current_frame();
  const Work in_context = [&](std::size_t thread) {
    if (thread == 0) return work(thread);
    std::optional<detail::PushedFrame> pushed;
    if (frame) pushed.emplace(*frame);
    const MeetingPoint::Apart apart{where};
    work(thread);
  };
  {
    const std::lock_guard lock{mutex_};
    work_ = &in_context;
    working_ = threads_.size();
    ++round_;
  }
  begun_.notify_all();
  work_as(0);
  wait(done_, [&] { return working_ == 0; });
  std::exception_ptr first;
  for (std::exception_ptr& failure : failures_)
    if (const std::exception_ptr of_thread = std::exchange(failure, nullptr); of_thread && !first) first = of_thread;
  if (first) std::rethrow_exception(first);
}

void ShardThreads::for_each(std::size_t shards, const std::function<void(std::size_t shard)>& work,
                            std::string_view where) {
  const std::size_t of_thread = shards / workers_.size();
  run(
      [&](std::size_t thread) {
        for (std::size_t shard = thread * of_thread; shard < (thread + 1) * of_thread; ++shard) work(shard);
      },
      where);
}

void ShardThreads::reserve(const nn::GradientBuffer& sum) {
  if (!partial_.empty() && nn::is_same_memory(partial_[0].flat(), sum.flat()) &&
      nn::is_same_memory(partial_[0].statistics(), sum.statistics()))
    return;
  // Nobody may hear of what is ready before all threads have added their part.
  partial_ = {sum.at(sum.flat())};
  if (sum.statistics().count() > 0) partial_.front() = partial_.front().with_statistics(sum.statistics());
  const auto others = memory_.emplace(sum, count() - 1).of_each();
  partial_.insert(partial_.end(), others.begin(), others.end());
}

void ShardThreads::add_up(std::size_t thread) const {
  const std::size_t threads = workers_.size();
  const auto add = [&](const TensorView& sum, const TensorView& x, Stream& stream) {
    detail::add(part_of(sum, threads, thread), part_of(x, threads, thread), stream);
  };
  // The rest of the tree: the number of threads is a power of two.
  for (std::size_t apart = 1; apart < threads; apart *= 2) {
    for (std::size_t i = 0; i < threads; i += 2 * apart) {
      const nn::GradientBuffer &sum = partial_[i], &x = partial_[i + apart];
      add(sum.flat(), x.flat(), sum.stream());
      if (sum.statistics().count() > 0) add(sum.statistics(), x.statistics(), sum.stream());
    }
  }
}

ops::Kernels::BatchLoss ShardThreads::train_shards(const SampleBatch::Group& shards,
                                                   std::span<const nn::Model::ShardPlace> places,
                                                   const nn::GradientBuffer& sum, nn::ShardWatch* watch) {
  reserve(sum);
  std::vector<SampleBatch::Group> parts;
  const std::int64_t of_thread = std::ssize(shards.batches) / count();
  for (int thread = 0; thread < count(); ++thread)
    parts.push_back(part_of(shards, {thread * of_thread, (thread + 1) * of_thread}));
  run(
      [&](std::size_t thread) {
        const std::size_t size = parts[thread].batches.size();
        const auto own_places = places.subspan(thread * size, size);
        nn::Model& model = *workers_[thread];
        if (watch) {
          const auto shards_of_thread = static_cast<std::int64_t>(size);
          WatchOfPart part{*watch, static_cast<std::int64_t>(thread) * shards_of_thread};
          if (part.wants_any_of(shards_of_thread)) {
            results_[thread] = inside(model).train_watched(parts[thread], own_places, partial_[thread], part);
            return;
          }
        }
        results_[thread] = model.train_shards(parts[thread], own_places, partial_[thread]);
      },
      in_shard);
  run([&](std::size_t thread) { add_up(thread); }, in_shard);
  for (const Variable& variable : sum.variables()) sum.ready(variable);

  nn::ShardLosses losses;
  for (std::size_t thread = 0; thread < workers_.size(); ++thread)
    losses.push(static_cast<std::int64_t>(thread), results_[thread], parts[thread].counted_labels());
  return losses.read();
}

std::vector<ops::Kernels::BatchLoss> ShardThreads::evaluate_shards(std::span<const SampleBatch> shards) {
  std::vector<ops::Kernels::BatchLoss> results(shards.size());
  const std::size_t of_thread = shards.size() / workers_.size();
  for_each(
      shards.size(),
      [&](std::size_t shard) { results[shard] = workers_[shard / of_thread]->evaluate_shard(shards[shard]); },
      in_shard);
  return results;
}

}  // namespace lockstep

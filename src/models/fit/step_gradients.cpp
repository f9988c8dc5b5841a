#include "models/fit/step_gradients.hpp"

#include <functional>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/log.hpp>

#include "core/control/busy_clock.hpp"
#include "models/fit/frozen_variables.hpp"
#include "models/nn/joint_model.hpp"
#include "models/nn/shard_losses.hpp"
#include "models/nn/shard_sums.hpp"
#include "models/nn/shard_watch.hpp"
#include "sync/optim/computed_step.hpp"
#include "sync/reduce/declared_sums.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep {
namespace {

/// Sends each gradient of a step as soon as the model has it, but for frozen variables. If `faults` is not null, they
/// see it first.
class SendWhenReady final : public nn::ReadyListener {
 public:
  SendWhenReady(Optimizer::AgreedStep& step, const nn::GradientBuffer& buffer, std::span<const std::string> frozen,
                const StepFaults* faults)
      : step_{step}, buffer_{buffer}, frozen_{frozen}, faults_{faults} {}

  void on_ready(std::size_t variable) override {
    const Variable& computed = buffer_.variables()[variable];
    if (faults_) faults_->computed(StepFaults::whole, variable, buffer_.of(computed));
    if (!is_frozen(frozen_, computed.name())) step_.ready(computed);
  }

 private:
  Optimizer::AgreedStep& step_;
  const nn::GradientBuffer& buffer_;
  std::span<const std::string> frozen_;
  const StepFaults* faults_;
};

}  // namespace

/// Micro-batches outside, all shards of the rank inside. A micro-batch is computed together with those of all other
/// shards, and added to its own shard's earlier ones. The sum of a shard is therefore the same on every rank.
class JointGradients {
 public:
  /// For sums in memory like that of `sum`. Everything must outlive it.
  JointGradients(nn::JointModel& model, const nn::GradientBuffer& sum, RankShards& shards);
  const Optimizer::Computation::Sums& sums() const { return sums_; }
  /// COLL. Writes the gradients and statistics of this rank's shards of `batch` to the sums of its subtrees, where all
  /// are ready at the end. `read` gets each micro-batch; `watch` may be null.
  std::vector<StartedShards> compute(std::int64_t step, std::span<const std::int64_t> batch, DeclaredSums& ranks,
                                     std::span<const Subtree> subtrees,
                                     const std::function<void(const SampleBatch::Group&)>& read, nn::ShardWatch* watch);

 private:
  void show(nn::ShardWatch& watch, const nn::ShardLosses& losses) const;

  nn::JointModel& model_;
  RankShards& shards_;
  Optimizer::Computation::Sums sums_;
  ShardBuffers of_shards_;
  std::optional<ShardBuffers>
      of_micro_batch_;  ///< for micro-batches after the first; empty if a shard is one micro-batch
};

JointGradients::JointGradients(nn::JointModel& model, const nn::GradientBuffer& sum, RankShards& shards)
    : model_{model}, shards_{shards}, sums_{.dtype = sum.dtype()}, of_shards_{sum, shards.count()} {
  const std::vector<std::int64_t> of_micro_batch = model.joint_sums();
  for (int number = 0; number < shards.micro_batches(); ++number)
    sums_.counts.insert(sums_.counts.end(), of_micro_batch.begin(), of_micro_batch.end());
  if (shards.micro_batches() > 1) of_micro_batch_.emplace(sum, shards.count());
}

std::vector<StartedShards> JointGradients::compute(std::int64_t step, std::span<const std::int64_t> batch,
                                                   DeclaredSums& ranks, std::span<const Subtree> subtrees,
                                                   const std::function<void(const SampleBatch::Group&)>& read,
                                                   nn::ShardWatch* watch) {
  std::int64_t labels = 0;
  nn::ShardLosses losses;
  std::vector<Range> shards;
  for (const Subtree& each : subtrees) shards.push_back(each.shards);
  for (int number = 0; number < shards_.micro_batches(); ++number) {
    BusyClock::enter(BusyClock::Part::data);
    const RankShards::Loaded micro_batch = shards_.load_all(batch, number);
    read(micro_batch.group);
    BusyClock::enter(BusyClock::Part::forward);
    const std::vector<nn::Model::ShardPlace> places = micro_batch.places(step);
    const ShardBuffers& own = number == 0 ? of_shards_ : *of_micro_batch_;
    const nn::JointModel::Losses started = model_.train_jointly(
        {micro_batch.group, places, shards_.samples_of_all(batch, number), shards}, own.of_each(), ranks);
    if (number > 0) of_shards_.add(own);
    for (std::size_t shard = 0; shard < started.size(); ++shard)
      losses.push(static_cast<std::int64_t>(shard), started[shard], micro_batch.group.batches[shard].counted_labels());
    labels += micro_batch.group.counted_labels();
  }
  if (watch) show(*watch, losses);
  const auto read_later = std::make_shared<const nn::ShardLosses>(std::move(losses));
  std::vector<StartedShards> all;
  for (const auto& [own, sum] : subtrees) {
    of_shards_.sum_up(own, sum);
    for (const Variable& variable : sum.variables()) sum.ready(variable);
    all.push_back(
        {std::exchange(labels, 0), {sum.stream(), [read_later, part = own] { return read_later->read(part); }}});
  }
  return all;
}

void JointGradients::show(nn::ShardWatch& watch, const nn::ShardLosses& losses) const {
  for (std::int64_t shard = 0; shard < shards_.count(); ++shard) {
    if (!watch.wants(shard)) continue;
    const nn::GradientBuffer& own = of_shards_.of_each()[static_cast<std::size_t>(shard)];
    for (std::size_t variable = 0; variable < own.variables().size(); ++variable)
      watch.on_gradient(shard, variable, own.of(own.variables()[variable]));
    if (own.statistics().count() > 0) watch.on_statistics(shard, own.statistics());
    own.stream().synchronize();
    watch.on_loss(shard, losses.of_shard(shard));
  }
}

StepGradients::StepGradients(Strategy& strategy, nn::Model& model, const nn::GradientBuffer& sum, RankShards& shards,
                             ShardThreads* threads, const Shares& shares, const FitOptions& options, StepFaults& faults,
                             StepChecks& checks)
    : strategy_{strategy},
      model_{model},
      sum_{sum},
      shards_{shards},
      threads_{threads},
      options_{options},
      faults_{faults},
      checks_{checks} {
  place_subtrees(shares);
  if (nn::JointModel* const joint = lockstep::inside(model).joint()) {
    joint_ = std::make_unique<JointGradients>(*joint, sum_, shards_);
    sums_on_the_way_ = joint_->sums();
  } else if (options.accumulate > 1) {
    accumulation_.emplace(sum_, options.accumulate);
    if (threads_ && strategy_.rank() == 0)
      log::warning(fmt::format("{} threads evaluate, but one trains: micro-batches are computed one after the other",
                               options.threads));
  }
}

StepGradients::~StepGradients() = default;

RankShards::Order StepGradients::order() const {
  return accumulation_ ? RankShards::Order::shard_by_shard : RankShards::Order::all_shards;
}

Optimizer::StepSums StepGradients::start(std::int64_t step, std::span<const std::int64_t> samples,
                                         Optimizer::AgreedStep& agreed) {
  detail::ComputedStep& inside = detail::ComputedStep::of(agreed);
  if (threads_)
    inside.threads = {.count = static_cast<std::size_t>(threads_->count()),
                      .run = [this](const ShardThreads::Work& work) { threads_->run(work, "in an update"); }};
  BusyClock::enter(BusyClock::Part::data);
  // Where single shards are looked at, these are spoilt.
  SendWhenReady ready{agreed, sum_, options_.frozen, checks_.looks() ? nullptr : &faults_};
  std::vector<Subtree> subtrees = subtrees_;
  subtrees.back().sum = lockstep::inside(sum_).reporting_to(ready);
  std::vector<StartedShards> started;
  if (joint_) {
    const auto read = [&](const SampleBatch::Group& micro_batch) { note_read(micro_batch, 0); };
    started = joint_->compute(step, samples, inside.sums, subtrees, read, checks_.watch_from(0));
  } else if (accumulation_) {
    for (const Subtree& each : subtrees) started.push_back(accumulate(step, samples, each));
  } else {
    const std::optional<std::int64_t> audited = checks_.audited();
    const RankShards::Loaded shards =
        audited ? shards_.load_all_and(samples, *audited) : shards_.load_all(samples, 0, threads_);
    note_read(shards.group, 0);
    for (const Subtree& each : subtrees) started.push_back(start_shards(step, shards, each));
  }
  Optimizer::StepSums own;
  for (const StartedShards& each : started) own.samples += each.labels;
  inside.complete = [this, &inside, started = std::move(started)](Optimizer::StepSums& sums) {
    for (std::size_t i = 0; i < started.size(); ++i) {
      const ops::Kernels::BatchLoss result = started[i].loss.read();
      sums.correct += result.correct;
      inside.subtrees.push_back({result.loss_sum, result.weight.value_or(static_cast<double>(started[i].labels)),
                                 subtrees_[i].sum.statistics()});
    }
  };
  return own;
}

/// The last subtree is added up in the store, and the others first: so sums can be sent while the last one is computed.
void StepGradients::place_subtrees(const Shares& shares) {
  const int rank = strategy_.rank();
  const Range own = shares.of(rank);
  if (shares.has_several()) several_.emplace(inside(strategy_).reductions(), shares, rank, sum_.flat());
  for (const Range& each : shares.subtrees_of(rank)) {
    subtrees_.push_back({{each.first - own.first, each.last - own.first}, sum_});
    if (each.last == own.last) return;
    const Tensor& statistics = other_statistics_.emplace_back(Tensor::zeros(sum_.dtype(), {model_.statistics()}));
    subtrees_.back().sum =
        sum_.at(several_->others_of(sum_.flat())[subtrees_.size() - 1]).with_statistics(statistics.view());
  }
}

StartedShards StepGradients::start_shards(std::int64_t step, const RankShards::Loaded& shards, const Subtree& subtree) {
  BusyClock::enter(BusyClock::Part::forward);
  std::optional<SampleBatch::Group> part;
  if (several_) part = part_of(shards.group, subtree.shards);
  const SampleBatch::Group& own = part ? *part : shards.group;
  const std::vector<nn::Model::ShardPlace> all = shards.places(step);
  const auto places = std::span{all}.subspan(static_cast<std::size_t>(subtree.shards.first), own.batches.size());
  const std::int64_t labels = own.counted_labels() - (checks_.audited() ? own.batches.back().counted_labels() : 0);
  nn::ShardWatch* const watch = checks_.watch_from(subtree.shards.first);
  if (threads_) return {labels, threads_->train_shards(own, places, subtree.sum, watch)};
  if (watch) return {labels, lockstep::inside(model_).train_watched(own, places, subtree.sum, *watch)};
  return {labels, lockstep::inside(model_).start_shards(own, places, subtree.sum)};
}

void StepGradients::note_read(const SampleBatch::Group& read, std::int64_t first) {
  for (const SampleBatch& each : read.batches) faults_.read(each);
  checks_.read(first, read);
}

/// Shards outside, micro-batches inside, so that the sum of a shard is the same on every rank.
StartedShards StepGradients::accumulate(std::int64_t step, std::span<const std::int64_t> samples,
                                        const Subtree& subtree) {
  std::int64_t labels = 0;
  nn::ShardLosses losses;
  nn::ShardWatch* const watch = checks_.watch_from(subtree.shards.first);
  accumulation_->begin(subtree.sum, subtree.shards.size(), watch);
  for (std::int64_t shard = 0; shard < subtree.shards.size(); ++shard) {
    accumulation_->begin_shard(shard);
    for (int number = 0; number < options_.accumulate; ++number) {
      BusyClock::enter(BusyClock::Part::data);
      const RankShards::Loaded micro_batch = shards_.load_one(samples, subtree.shards.first + shard, number);
      note_read(micro_batch.group, subtree.shards.first + shard);
      BusyClock::enter(BusyClock::Part::forward);
      ops::Answer<ops::Kernels::BatchLoss> loss =
          lockstep::inside(model_).start_shards(micro_batch.group, micro_batch.places(step), accumulation_->next());
      losses.push(shard, std::move(loss), micro_batch.group.counted_labels());
      accumulation_->push();
      labels += micro_batch.group.counted_labels();
    }
    accumulation_->end_shard();
  }
  accumulation_->finish();
  if (watch) return {labels, losses.read_shown_to(*watch, strategy_.stream())};
  return {labels, {strategy_.stream(), [losses = std::move(losses)] { return losses.read(); }}};
}

}  // namespace lockstep

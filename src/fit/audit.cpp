#include "fit/audit.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>

#include "control/busy_clock.hpp"
#include "control/meeting_point.hpp"
#include "control/tag.hpp"
#include "nn/shard_losses.hpp"
#include "strategy/replica_group.hpp"
#include "tensor/digest.hpp"

namespace lockstep {
namespace {

std::uint64_t digest_of_all(const AuditedShard::Digests& digests) {
  return digest_of(std::as_bytes(std::span{digests}));
}

/// "samples", "gradient of 'dense_0/weight'", "statistics", "loss".
std::vector<std::string> names_of_values(const nn::GradientBuffer& sum) {
  std::vector<std::string> names{"samples"};
  for (const Variable& variable : sum.variables()) names.push_back(fmt::format("gradient of {}", variable.label()));
  if (sum.statistics().count() > 0) names.emplace_back("statistics");
  names.emplace_back("loss");
  return names;
}

std::uint64_t digest_of_loss(const ops::Kernels::BatchLoss& loss) {
  const std::array numbers{std::bit_cast<std::uint64_t>(loss.loss_sum), static_cast<std::uint64_t>(loss.correct),
                           std::bit_cast<std::uint64_t>(loss.weight.value_or(0))};
  return digest_of(std::as_bytes(std::span{numbers}));
}

/// The samples present: what lies behind them is no input.
void add_rows(Digest& digest, const Tensor& tensor, std::int64_t samples) {
  const std::int64_t capacity = tensor.shape().front(), of_row = tensor.count() / std::max<std::int64_t>(capacity, 1);
  const std::uint64_t rows =
      detail::digest_of_elements(tensor.view().reshaped({tensor.count()}).slice(0, samples * of_row));
  digest.update(std::as_bytes(std::span{&rows, 1}));
}

}  // namespace

void Audit::Record::add_samples(const SampleBatch& batch) {
  add_rows(samples, batch.inputs, batch.samples);
  add_rows(samples, batch.labels, batch.samples);
}

AuditedShard::Digests Audit::Record::values() const {
  AuditedShard::Digests values{samples.value()};
  values.insert(values.end(), gradients.begin(), gradients.end());
  if (statistics) values.push_back(*statistics);
  values.push_back(loss);
  return values;
}

Audit::Audit(Strategy& strategy, nn::Model& model, const nn::GradientBuffer& sum, RankShards& shards,
             AuditSchedule schedule, const std::optional<InjectedFault>& fault)
    : strategy_{strategy},
      model_{model},
      sum_{sum},
      shards_{shards},
      schedule_{schedule},
      fault_{fault},
      rank_{strategy.rank()},
      ranks_{strategy.num_replicas_in_sync()},
      names_{names_of_values(sum)} {}

bool Audit::begin(std::int64_t step) {
  step_ = step;
  turn_ = schedule_.in(step);
  differ_.clear();
  own_ = {.gradients = std::vector<std::uint64_t>(sum_.variables().size())};
  return turn_.has_value();
}

std::int64_t Audit::shard_of(int rank) const {
  return rank * shards_.count() + turn_->shard;
}

int Audit::owner_audited_by(int rank) const {
  return (rank + turn_->ahead) % ranks_;
}

void Audit::read(std::int64_t shard, const SampleBatch& samples) {
  if (shard == turn_->shard) own_.add_samples(samples);
}

void Audit::add(ops::Kernels::BatchLoss& total, const ops::Kernels::BatchLoss& own, const SampleBatch& micro_batch) {
  total.loss_sum += own.loss_sum;
  total.correct += own.correct;
  total.weight = total.weight.value_or(0) + nn::weighed(own, micro_batch).weight;
}

bool Audit::wants(std::int64_t shard) const {
  return shard == turn_->shard || (fault_ && fault_->miscomputes(rank_, step_, shard, shards_.count()));
}

void Audit::on_gradient(std::int64_t shard, std::size_t variable, const TensorView& gradient) {
  if (fault_ && fault_->miscomputes(rank_, step_, shard, shards_.count()))
    fault_->miscompute(gradient, variable, own_.gradients.size(), sum_.stream());
  if (shard == turn_->shard) own_.gradients[variable] = detail::digest_of_elements(gradient);
}

void Audit::on_statistics(std::int64_t shard, const TensorView& statistics) {
  if (shard == turn_->shard) own_.statistics = detail::digest_of_elements(statistics);
}

void Audit::on_loss(std::int64_t shard, const ops::Kernels::BatchLoss& loss) {
  if (shard == turn_->shard) own_.loss = digest_of_loss(loss);
}

void Audit::reserve() {
  if (buffer_) return;
  Stream& stream = sum_.stream();
  gradients_ = Tensor::zeros(sum_.dtype(), {sum_.count()}, stream);
  statistics_ = Tensor::zeros(sum_.dtype(), {sum_.statistics().count()}, stream);
  buffer_ = sum_.at(gradients_.view()).with_statistics(statistics_.view());
  if (shards_.micro_batches() > 1) accumulation_.emplace(*buffer_, shards_.micro_batches());
}

AuditedShard::Digests Audit::compute(std::int64_t shard, std::span<const std::int64_t> samples) {
  reserve();
  Record record;
  ops::Kernels::BatchLoss total;
  if (accumulation_) {
    accumulation_->begin(*buffer_, 1);
    accumulation_->begin_shard(0);
  }
  for (int number = 0; number < shards_.micro_batches(); ++number) {
    BusyClock::enter(BusyClock::Part::data);
    const RankShards::Loaded loaded = shards_.load_any(samples, shard, number);
    const SampleBatch& batch = loaded.group.batches.front();
    if (fault_ && fault_->misreads(rank_, step_)) fault_->misread(batch, strategy_.stream());
    record.add_samples(batch);
    BusyClock::enter(BusyClock::Part::forward);
    const nn::GradientBuffer gradients = accumulation_ ? accumulation_->next() : *buffer_;
    add(total, model_.train_shard(batch, loaded.places(step_).front(), gradients), batch);
    if (accumulation_) accumulation_->push();
  }
  if (accumulation_) {
    accumulation_->end_shard();
    accumulation_->finish();
  }
  const std::span<const Variable> variables = buffer_->variables();
  for (std::size_t variable = 0; variable < variables.size(); ++variable) {
    const TensorView gradient = buffer_->of(variables[variable]);
    if (fault_ && fault_->miscomputes_still(rank_, step_))
      fault_->miscompute(gradient, variable, variables.size(), sum_.stream());
    record.gradients.push_back(detail::digest_of_elements(gradient));
  }
  if (buffer_->statistics().count() > 0) record.statistics = detail::digest_of_elements(buffer_->statistics());
  record.loss = digest_of_loss(total);
  return record.values();
}

void Audit::compute_other(std::span<const std::int64_t> samples, std::span<std::int64_t> integers) {
  const int owner = owner_audited_by(rank_);
  of_other_ = compute(shard_of(owner), samples);
  // Unsigned, since these sums wrap around.
  std::vector<std::uint64_t> parts(integers.size());
  parts[static_cast<std::size_t>(rank_)] += digest_of_all(own_.values());
  parts[static_cast<std::size_t>(owner)] -= digest_of_all(of_other_);
  std::ranges::transform(parts, integers.begin(), [](std::uint64_t part) { return static_cast<std::int64_t>(part); });
}

bool Audit::passes(std::span<const std::int64_t> sums) {
  for (std::size_t owner = 0; owner < sums.size(); ++owner)
    if (sums[owner] != 0) differ_.push_back(static_cast<int>(owner));
  return differ_.empty();
}

void Audit::require_passed(std::span<const std::int64_t> samples, const Here& here) {
  if (differ_.empty()) return;
  // Ranks with other weights get other gradients, and all of them are right.
  strategy_.attest(model_.moving_averages(), here);
  MeetingPoint& meeting = strategy_.group().meeting();
  const auto gather = [&](const AuditedShard::Digests& mine) {
    return meeting.gather({reinterpret_cast<const std::int64_t*>(mine.data()), mine.size()});
  };
  AuditedShard::Digests mine = own_.values();
  mine.insert(mine.end(), of_other_.begin(), of_other_.end());
  std::vector<AuditedShard> shards = in_question(gather(mine));
  for (AuditedShard& each : shards) {
    AuditedShard::Digests again(names_.size());
    try {
      again = compute(each.shard, samples);
    } catch (const std::exception&) {
      // Nobody else gets these zeros. The others wait for them.
    }
    const std::vector<std::int64_t> all = gather(again);
    for (auto of_rank = all.begin(); of_rank != all.end(); of_rank += std::ssize(names_))
      each.again.emplace_back(of_rank, of_rank + std::ssize(names_));
  }
  throw_verdict(judge_audit(step_ + 1, names_, shards, meeting.names()), here);
}

/// `of_all` holds what each rank got for its own shard, and then for the other's.
std::vector<AuditedShard> Audit::in_question(std::span<const std::int64_t> of_all) const {
  const std::size_t values = names_.size();
  const auto digests = [&](int rank, std::size_t which) {
    const auto part = of_all.subspan((static_cast<std::size_t>(rank) * 2 + which) * values, values);
    return AuditedShard::Digests(part.begin(), part.end());
  };
  std::vector<AuditedShard> shards;
  for (const int owner : differ_) {
    const int auditor = (owner - turn_->ahead + ranks_) % ranks_;
    shards.push_back({shard_of(owner), owner, auditor, digests(owner, 0), digests(auditor, 1), {}});
  }
  return shards;
}

void Audit::throw_verdict(const Verdict& verdict, const Here& here) {
  MeetingPoint& meeting = strategy_.group().meeting();
  if (ranks_ == 1) meeting.fail(verdict.exception);
  // The ranks differ by their numbers, so that they all get the verdict.
  const detail::Comparison comparison{static_cast<std::uint64_t>(rank_) + 1,
                                      [&](ControlChannel&, std::span<const std::string>) { return verdict; }};
  meeting.agree(TagKind::attest, 0, here, "an audit", comparison);
  std::rethrow_exception(verdict.exception);
}

}  // namespace lockstep

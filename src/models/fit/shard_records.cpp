#include "models/fit/shard_records.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include <fmt/format.h>

#include "core/tensor/digest.hpp"
#include "sync/strategy/audit_round.hpp"

namespace lockstep {
namespace {

/// The samples present: what lies behind them is no input.
void add_rows(Digest& digest, const Tensor& tensor, std::int64_t samples) {
  const std::int64_t of_row = tensor.count() / std::max<std::int64_t>(tensor.shape().front(), 1);
  const TensorView rows = tensor.view().reshaped({tensor.count()}).slice(0, samples * of_row);
  const std::uint64_t of_rows = detail::digest_of_elements(rows);
  digest.update(std::as_bytes(std::span{&of_rows, 1}));
}

}  // namespace

std::vector<std::string> ShardRecord::names(const nn::GradientBuffer& buffer) {
  std::vector<std::string> names{"samples"};
  for (const Variable& variable : buffer.variables()) names.push_back(fmt::format("gradient of {}", variable.label()));
  if (buffer.statistics().count() > 0) names.emplace_back("statistics");
  names.emplace_back("loss");
  return names;
}

void ShardRecord::add_samples(const SampleBatch& batch) {
  add_rows(samples_, batch.inputs, batch.samples);
  add_rows(samples_, batch.labels, batch.samples);
}

void ShardRecord::add_gradient(std::size_t variable, const TensorView& part) {
  detail::add_elements(gradients_[variable], part);
}

void ShardRecord::set_statistics(const TensorView& statistics) {
  statistics_ = detail::digest_of_elements(statistics);
}

void ShardRecord::set_loss(const ops::Kernels::BatchLoss& loss) {
  const std::array numbers{std::bit_cast<std::uint64_t>(loss.loss_sum), static_cast<std::uint64_t>(loss.correct),
                           std::bit_cast<std::uint64_t>(loss.weight.value_or(0))};
  loss_ = digest_of(std::as_bytes(std::span{numbers}));
  is_finite_ = std::isfinite(loss.loss_sum);
}

std::vector<std::uint64_t> ShardRecord::values() const {
  std::vector<std::uint64_t> values{samples_.value()};
  for (const WideDigest& gradient : gradients_) values.push_back(gradient.value());
  if (statistics_) values.push_back(*statistics_);
  values.push_back(loss_);
  if (!is_finite_) say_only_not_finite(std::span{values}.subspan(1));
  return values;
}

ShardRecords::ShardRecords(const nn::GradientBuffer& sum, std::int64_t shards, const StepFaults& faults)
    : variables_{sum.variables().size()}, shards_{shards}, faults_{faults}, names_{ShardRecord::names(sum)} {
  records_.resize(static_cast<std::size_t>(shards) + 1);
}

void ShardRecords::begin(Range kept, bool has_audited) {
  kept_ = kept;
  has_audited_ = has_audited;
  for (std::int64_t shard = 0; shard < shards_ + audited(); ++shard)
    if (keeps(shard)) records_[static_cast<std::size_t>(shard)] = ShardRecord{variables_};
}

void ShardRecords::read(std::int64_t shard, const SampleBatch& micro_batch) {
  if (keeps(shard)) records_[static_cast<std::size_t>(shard)].add_samples(micro_batch);
}

bool ShardRecords::is_spoilt(std::int64_t shard) const {
  return faults_.spoils(shard == shards_ ? StepFaults::foreign : shard);
}

bool ShardRecords::wants(std::int64_t shard) const {
  return keeps(first_ + shard) || is_spoilt(first_ + shard);
}

/// Not if a bit of its gradients is to be flipped, anywhere in them.
bool ShardRecords::takes_parts(std::int64_t shard) const {
  return !is_spoilt(first_ + shard);
}

void ShardRecords::on_gradient(std::int64_t shard, std::size_t variable, const TensorView& part) {
  shard += first_;
  faults_.computed(shard == shards_ ? StepFaults::foreign : shard, variable, part);
  if (keeps(shard)) records_[static_cast<std::size_t>(shard)].add_gradient(variable, part);
}

void ShardRecords::on_statistics(std::int64_t shard, const TensorView& statistics) {
  shard += first_;
  if (keeps(shard)) records_[static_cast<std::size_t>(shard)].set_statistics(statistics);
}

void ShardRecords::on_loss(std::int64_t shard, const ops::Kernels::BatchLoss& loss) {
  shard += first_;
  if (keeps(shard)) records_[static_cast<std::size_t>(shard)].set_loss(loss);
}

}  // namespace lockstep

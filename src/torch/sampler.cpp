#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <torch/serialize/archive.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/order/range.hpp>
#include <lockstep/torch/sampler.hpp>

#include "core/order/sample_order.hpp"

namespace lockstep::libtorch {
namespace {

void require_position(std::int64_t count, std::int64_t epoch, std::int64_t step) {
  if (count < 0 || epoch < 0 || step < 0)
    throw InvalidArgument{
        fmt::format("a Sampler of {} samples at step {} of epoch {}; expected 0 or more of each", count, step, epoch)};
}

}  // namespace

Sampler::Sampler(Strategy& strategy, std::int64_t count, const Options& options)
    : ranks_{strategy.num_replicas_in_sync()},
      rank_{strategy.rank()},
      count_{count},
      seed_{options.seed},
      drop_last_{options.drop_last},
      epoch_{options.epoch},
      step_{options.step} {
  require_position(count_, epoch_, step_);
}

void Sampler::reset(c10::optional<std::size_t> new_size) {
  if (begun_) {
    ++epoch_;
    step_ = 0;
  }
  if (new_size) count_ = static_cast<std::int64_t>(*new_size);
  begun_ = false;
}

c10::optional<std::vector<std::size_t>> Sampler::next(std::size_t global_batch) {
  if (global_batch == 0) throw InvalidArgument{"a global batch of 0 samples; expected 1 or more"};
  if (!begun_) {
    begun_ = true;
    if (seed_) {
      order_ = sample_order(count_, *seed_, epoch_);
    } else {
      order_.resize(static_cast<std::size_t>(count_));
      std::iota(order_.begin(), order_.end(), std::int64_t{0});
    }
  }
  const auto batch = static_cast<std::int64_t>(std::min<std::size_t>(global_batch, order_.size()));
  const std::int64_t steps = batch == 0 ? 0 : (count_ + batch - 1) / batch;
  if (step_ >= steps) return c10::nullopt;
  const std::int64_t first = step_ * batch, size = std::min(batch, count_ - first);
  if (drop_last_ && size < static_cast<std::int64_t>(global_batch)) return c10::nullopt;
  ++step_;
  const Range own = Range::of_shard(size, ranks_, rank_);
  return std::vector<std::size_t>(order_.begin() + first + own.first, order_.begin() + first + own.last);
}

void Sampler::save(::torch::serialize::OutputArchive& archive) const {
  archive.write("epoch", c10::IValue{epoch_});
  archive.write("step", c10::IValue{step_});
}

void Sampler::load(::torch::serialize::InputArchive& archive) {
  c10::IValue epoch, step;
  archive.read("epoch", epoch);
  archive.read("step", step);
  require_position(count_, epoch.toInt(), step.toInt());
  epoch_ = epoch.toInt();
  step_ = step.toInt();
  begun_ = false;
}

}  // namespace lockstep::libtorch

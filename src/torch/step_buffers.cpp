// The buffers of a step's modules, made equal on all ranks.
#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/hex.hpp>

#include "core/base/digest.hpp"
#include "sync/reduce/reductions.hpp"
#include "torch/step.hpp"

namespace lockstep::libtorch {

std::vector<char> Step::changed_buffers() const {
  std::vector<char> changed;
  for (ReplicatedModule::Impl* const module : all_) {
    const std::vector<char> more = module->changed_buffers();
    changed.insert(changed.end(), more.begin(), more.end());
  }
  return changed;
}

/// For ranks that are about to compute shards, which must begin with the same buffers everywhere: what the ranks
/// compare of those that were changed since the last step. Empty if there are none.
std::string Step::describe_changed_buffers() const {
  const std::vector<char> changed = changed_buffers();
  std::vector<std::string> names;
  Digest digest;
  for (std::size_t i = 0; i < changed.size(); ++i) {
    if (!changed[i]) continue;
    names.push_back(buffers_[i]->variable.label());
    const at::Tensor value = device().on_host(buffers_[i]->tensor);
    digest.update(names.back()).update({static_cast<const std::byte*>(value.data_ptr()), value.nbytes()});
  }
  if (names.empty()) return {};
  return fmt::format(" after a change of buffer{} {} (digest {})", names.size() > 1 ? "s" : "", first_names(names),
                     to_hex(digest.value()));
}

/// Once the ranks have agreed on them.
void Step::begin_with_buffers() {
  for (ModuleBuffer* const buffer : buffers_) buffer->note();
}

/// If `body` throws, they are as they were when the step began, whatever a script has put in their places.
void Step::restoring_buffers(const std::function<void()>& body) {
  try {
    body();
  } catch (...) {
    for (const ReplicatedModule::Impl* const module : all_) (void)module->parts.exchange_buffers({});
    for (const ModuleBuffer* const buffer : buffers_) buffer->restore();
    throw;
  }
}

/// The floating-point buffers, one after the other. Zeros without samples, whatever a batch of none has made of them.
void Step::weigh_buffers(double samples, double* to) const {
  if (samples == 0) std::fill_n(to, reals_, 0.0);
  if (reals_ == 0 || samples == 0) return;
  std::vector<at::Tensor> parts;
  for (const ModuleBuffer* const each : buffers_)
    if (each->is_real()) parts.push_back(each->tensor.flatten().to(at::kDouble));
  const at::Tensor weighed = device().on_host(at::cat(parts).mul(samples));
  std::ranges::copy(view_of(weighed).elements<double>(), to);
}

/// On the host: the elements of the other buffers that any rank has changed.
at::Tensor Step::changed_integers() const {
  std::vector<at::Tensor> parts;
  for (std::size_t i = 0; i < changed_.size(); ++i)
    if (changed_[i] > 0 && !buffers_[i]->is_real())
      parts.push_back((noted_[i].defined() ? noted_[i] : buffers_[i]->tensor).flatten().to(at::kLong));
  return parts.empty() ? at::empty({0}, at::kLong) : device().on_host(at::cat(parts));
}

/// All ranks know which buffers have changed on any of them, and how many samples each has.
void Step::share_buffers(const RankSums& sums) {
  if (std::ranges::none_of(changed_, [](std::int64_t ranks) { return ranks > 0; })) return;
  const auto first = std::ranges::find_if(counted_.samples, [](double samples) { return samples > 0; });
  const bool is_first =
      first == counted_.samples.end() ? rank_ == 0 : first == counted_.samples.begin() + std::ptrdiff_t(rank_);
  // Without samples anywhere, the first rank's count.
  const double weight = counted_.total > 0 ? counted_.samples[rank_] : rank_ == 0 ? 1 : 0;
  const double total = counted_.total > 0 ? counted_.total : 1;
  if (of_subtrees_.empty() || counted_.total == 0) {
    of_subtrees_.assign(1, Reals(static_cast<std::size_t>(2 + reals_)));
    weigh_buffers(weight, of_subtrees_.front().data() + 2);
  }
  at::Tensor integers = changed_integers();
  if (!is_first) integers.zero_();
  std::vector<TensorView> parts;
  for (Reals& each : of_subtrees_) parts.push_back(numbers(each).slice(2, reals_));
  const TensorView sum = parts.back();
  sums.make([&](Reductions& reductions) {
    const auto sum_up = [&](const TensorView& numbers) {
      const std::array views{view_of(integers), numbers};
      reductions.all_reduce(ReduceOp::sum, views);
    };
    several_ ? PlacedSum::make(*several_, parts, sum, sum_up) : sum_up(sum);
  });

  const at::NoGradGuard plain;
  const at::Tensor reals = at::from_blob(sum.data(), {reals_}, at::kDouble).div(total).to(device().device());
  integers = integers.to(device().device());
  std::int64_t real = 0, integer = 0;
  for (std::size_t i = 0; i < changed_.size(); ++i) {
    ModuleBuffer& buffer = *buffers_[i];
    const auto next = [&](const at::Tensor& all, std::int64_t& start) {
      const auto count = buffer.tensor.numel();
      return all.narrow(0, std::exchange(start, start + count), count).view(buffer.tensor.sizes());
    };
    if (buffer.is_real()) {
      const at::Tensor value = next(reals, real);
      if (changed_[i] > 0) buffer.write(value);
    } else if (changed_[i] > 0) {
      buffer.write(next(integers, integer));
    }
    if (changed_[i] > 0) buffer.note();
  }
}

}  // namespace lockstep::libtorch

// What counts in a step: samples and losses of its passes, as far as their gradients were not zeroed.
#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "core/base/digest.hpp"
#include "sync/reduce/reductions.hpp"
#include "torch/step.hpp"

namespace lockstep::libtorch {
namespace {

/// What wait for the last pass of the step; one that several modules share counts once.
std::vector<std::shared_ptr<const AccumulatedPass>> accumulated_passes(const ModuleList& modules) {
  std::vector<std::shared_ptr<const AccumulatedPass>> passes;
  for (const ReplicatedModule::Impl* const module : modules)
    for (const auto& pass : module->accumulated)
      if (std::ranges::find(passes, pass) == passes.end()) passes.push_back(pass);
  return passes;
}

/// What was done to gradients, as far as any rank has seen.
struct Seen {
  bool zeroed;
  bool clipped;
};

}  // namespace

/// Before anything is computed. Unsigned, since the sum over the ranks wraps around: it is 0 if all have the same.
void Step::note_earlier() {
  WideDigest written;
  bool any_written = false;
  const auto add = [&](const at::Tensor& values) {
    const at::Tensor here = device().on_host(values).contiguous();
    written.update({static_cast<const std::byte*>(here.data_ptr()), here.nbytes()});
  };
  for (std::size_t module = 0; module < modules_.size(); ++module) {
    if (!modules_[module]->accumulated.empty()) accumulating_ = 1;
    for (const EarlierGradient& each : modules_[module]->earlier) {
      const auto number = first_parameters_[module] + each.parameter;
      earlier_[number] = 1;
      if (!each.was_written) continue;
      any_written = true;
      written.update(std::as_bytes(std::span{&number, 1}));
      if (each.value.is_sparse()) {
        add(each.value._indices());
        add(each.value._values());
      } else {
        add(each.value);
      }
    }
  }
  if (!any_written) return;
  const std::uint64_t others = counted_.samples.size() - 1, digest = written.value();
  written_ = static_cast<std::int64_t>(rank_ == 0 ? others * digest : -digest);
}

/// This rank's, after its last pass.
void Step::count(const Loss& loss) {
  const auto passes = accumulated_passes(modules_);
  const auto samples_since = [&](std::uint64_t pass) {
    double samples = loss.samples();
    for (const auto& before : passes)
      if (before->number > pass) samples += before->samples;
    return samples;
  };
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& each = *parameters_[i];
    counted_.has[i] = each.if_kept.has ? 1 : 0;
    if_zeroed_.has[i] = each.if_zeroed.has ? 1 : 0;
    counted_.samples_of_parameters[i] = samples_since(each.if_kept.since);
    if_zeroed_.samples_of_parameters[i] = samples_since(each.if_zeroed.since);
    zeroed_[i] = each.was_zeroed ? 1 : 0;
    clipped_[i] = each.was_clipped ? 1 : 0;
  }
  const double loss_of_pass = sum_of(loss, device());
  const auto add = [](Counted& to, double samples, double sum) {
    to.total += samples;
    to.loss += sum;
  };
  for (Counted* const each : {&counted_, &if_zeroed_}) add(*each, loss.samples(), loss_of_pass);
  for (const auto& pass : passes) {
    add(counted_, pass->samples, pass->loss);
    const auto counts = [&](const ReplicatedModule::Impl* module) {
      return std::ranges::find(module->accumulated, pass) != module->accumulated.end() &&
             pass->number > module->forgotten(&Parameter::if_zeroed);
    };
    if (std::ranges::any_of(modules_, counts)) add(if_zeroed_, pass->samples, pass->loss);
  }
  for (Counted* const each : {&counted_, &if_zeroed_}) each->samples[rank_] = each->total;
}

/// The sums of a step in shards.
void Step::count_shards(double loss, double samples) {
  for (Counted* const each : {&counted_, &if_zeroed_}) {
    each->loss = loss;
    each->total = samples;
    std::ranges::fill(each->samples_of_parameters, samples);
  }
}

/// Calls `visit` with spans of all that is counted.
template <class Visit>
void Step::visit_totals(const Visit& visit) {
  const auto visit_one = [&](auto& number) { visit(std::span{&number, 1}); };
  visit_one(accumulating_);
  visit_one(written_);
  for (Counted* const each : {&counted_, &if_zeroed_}) {
    visit(std::span{each->has});
    visit_one(each->loss);
    visit_one(each->total);
    visit(std::span{each->samples});
    visit(std::span{each->samples_of_parameters});
  }
  for (auto* const each :
       {&zeroed_, &clipped_, &earlier_, &changed_, &table_gradients_.dense(), &table_gradients_.counts()})
    visit(std::span{*each});
  if (audited_) visit(audited_->integers());
}

std::vector<TensorView> Step::totals() {
  visit_totals([&]<class T>(std::span<T> own) {
    auto& all = std::get<std::vector<T>>(totals_);
    all.insert(all.end(), own.begin(), own.end());
  });
  std::vector<TensorView> all{numbers(std::get<0>(totals_)), numbers(std::get<1>(totals_))};
  if (!several_) return all;
  placed_.emplace(*shares_, static_cast<int>(rank_), DType::f64, 2);
  for (std::size_t i = 0; i < of_subtrees_.size(); ++i)
    copy(numbers(of_subtrees_[i]).slice(0, 2), placed_->of_own(i), Stream::host());
  all.push_back(placed_->integers().view());
  return all;
}

void Step::take_totals() {
  std::tuple<std::span<std::int64_t>, std::span<double>> rest{std::get<0>(totals_), std::get<1>(totals_)};
  visit_totals([&]<class T>(std::span<T> own) {
    auto& from = std::get<std::span<T>>(rest);
    std::ranges::copy(from.first(own.size()), own.begin());
    from = from.subspan(own.size());
  });
  if (!placed_) return;
  Reals sums(2);
  placed_->finish(numbers(sums));
  count_shards(sums[0], sums[1]);
}

// Where a rank had zeros and has zeros again, what others have seen of the same gradient decides; then what was done to
// the module's other ones; then to all. False if a doubt is left, or if what earlier steps have left would differ.
bool Step::settle_doubts() {
  const auto done_to = [&](std::size_t first, std::size_t end) {
    const auto any = [&](const std::vector<std::int64_t>& ranks) {
      return std::any_of(ranks.begin() + std::ptrdiff_t(first), ranks.begin() + std::ptrdiff_t(end),
                         [](std::int64_t each) { return each > 0; });
    };
    return Seen{.zeroed = any(zeroed_), .clipped = any(clipped_)};
  };
  const Seen in_all = done_to(0, parameters_.size());
  bool any_counts = false;
  for (std::size_t module = 0; module < modules_.size(); ++module) {
    const std::size_t first = first_parameters_[module], end = first + modules_[module]->parameters.size();
    const Seen in_module = done_to(first, end);
    const Seen others = in_module.zeroed || in_module.clipped ? in_module : in_all;
    for (std::size_t i = first; i < end; ++i) {
      Parameter& each = *parameters_[i];
      const bool is_doubted = counted_.has[i] != if_zeroed_.has[i] ||
                              counted_.samples_of_parameters[i] != if_zeroed_.samples_of_parameters[i];
      const Seen here{.zeroed = zeroed_[i] > 0, .clipped = clipped_[i] > 0};
      const Seen seen = here.zeroed || here.clipped ? here : others;
      each.was_zeroed = here.zeroed || (is_doubted && !seen.clipped);
      if (is_doubted && here.zeroed && here.clipped)
        refusal_ = fmt::format(
            "between accumulated passes, the gradient of parameter {} was zeroed and then changed, and a rank whose "
            "gradient is zero cannot tell one from the other: expected one of the two",
            each.variable.label());
      else if (is_doubted && seen.zeroed && seen.clipped)
        refusal_ = fmt::format(
            "between accumulated passes, some gradients were zeroed and others changed, and that of parameter {} is "
            "zero on every rank, which cannot tell what was done to it: expected zero_grad with set_to_none",
            each.variable.label());
      if (!each.was_zeroed && earlier_[i] > 0 && (clipped_[i] > 0 || earlier_[i] < std::ssize(counted_.samples)))
        refusal_ = fmt::format(
            "the gradient that an earlier step has left in parameter {} was {}", each.variable.label(),
            accumulating_ > 0 ? "changed on some ranks, or zeroed there, after a pass was accumulated: expected "
                                "zero_grad on every rank before the pass"
                              : "zeroed on some ranks, and the step would add to it on the others: expected "
                                "zero_grad on every rank before the step, or on none");
      if (each.was_zeroed) {
        counted_.has[i] = if_zeroed_.has[i];
        counted_.samples_of_parameters[i] = if_zeroed_.samples_of_parameters[i];
      } else {
        any_counts |= each.tensor.requires_grad();
      }
    }
  }
  if (written_ != 0 && refusal_.empty())
    refusal_ =
        "the gradients that an earlier step has left were changed on some ranks, or not in the same way on all, and "
        "the step would add to them: expected the same change on every rank, or zero_grad before the step";
  if (!any_counts) {
    counted_.samples = if_zeroed_.samples;
    counted_.loss = if_zeroed_.loss;
    counted_.total = if_zeroed_.total;
  }
  return refusal_.empty();
}

}  // namespace lockstep::libtorch

// Audits of a step in shards: each rank also computes a shard of another rank, and the ranks compare digests.
#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/digest.hpp"
#include "core/control/meeting_point.hpp"
#include "core/tensor/digest.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/audit_schedule.hpp"
#include "sync/strategy/inside.hpp"
#include "torch/joint_shards.hpp"
#include "torch/step.hpp"
#include "torch/torch_random.hpp"

namespace lockstep::libtorch {

/// The first whose options ask for audits; null if none does.
ReplicatedModule::Impl* Step::audited_module() const {
  const auto found = std::ranges::find_if(modules_, [](const auto* module) { return module->audit_every.has_value(); });
  return found == modules_.end() ? nullptr : *found;
}

/// Messages name the step of the program, if it counts in runs; the schedule counts steps in shards.
void Step::begin_audit() {
  ReplicatedModule::Impl* const module = audited_module();
  if (!module) return;
  const AuditSchedule schedule{*module->audit_every, module->audit_seed, shares_->ranks(), shares_->largest()};
  const std::optional<AuditSchedule::Turn> turn = schedule.in(module->steps_in_shards);
  if (!turn) return;
  ReplicaGroup& group = inside(context_.strategy()).group();
  const auto step = static_cast<std::int64_t>(group.meeting().position().step) - 1;
  audited_.emplace(group, step, *shares_, *turn);
}

/// What the digests are of, in their order. The number of samples is all that is known of these.
std::vector<std::string> Step::audited_values() const {
  std::vector<std::string> names{"samples"};
  const auto add_gradient = [&](std::size_t number) {
    names.push_back(fmt::format("gradient of {}", parameters_[number]->variable.label()));
  };
  for (const Trained& each : trained_) add_gradient(each.number);
  for (const Table& each : tables_) add_gradient(each.number);
  for (const ModuleBuffer* const each : buffers_) names.push_back(fmt::format("buffer {}", each->variable.label()));
  names.emplace_back("loss");
  return names;
}

/// Of a shard whose gradients are in `places`, with nothing else. The number of samples is compared in any case.
AuditRound::Digests Step::digests_of(std::size_t shard, const Places& places, const Loss& loss,
                                     const std::vector<char>& changed) const {
  AuditRound::Digests digests{digest_of_number(loss.samples())};
  for (const Trained& each : trained_) {
    const Parameter& parameter = *parameters_[each.number];
    digests.push_back(parameter.tensor.numel() == 0 ? 0 : lockstep::detail::digest_of_elements(places.of(parameter)));
  }
  const std::vector<std::uint64_t> of_tables = table_gradients_.digests_of_shard(shard);
  digests.insert(digests.end(), of_tables.begin(), of_tables.end());
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    digests.push_back(0);
    if (!changed[i]) continue;
    const at::Tensor value = device().on_host(buffers_[i]->tensor).contiguous();
    digests.back() = digest_of(std::span{static_cast<const std::byte*>(value.data_ptr()), value.nbytes()});
  }
  const double sum = sum_of(loss, device());
  digests.push_back(digest_of_number(sum));
  if (!std::isfinite(sum)) say_only_not_finite(std::span{digests}.subspan(1));
  return digests;
}

/// Digests of a shard that does not count. Leaves everything as it was.
AuditRound::Digests Step::compute_apart(std::int64_t number, const Compute& compute,
                                        std::optional<std::uint64_t> seed) {
  constexpr std::size_t apart = 1;
  const std::vector<TensorView> ranges = gradient_ranges();
  std::vector<Tensor> memory;
  Places places{ranges};
  // A shard that fails leaves nothing either: the next one is computed as if it had not been.
  struct Forgets {
    TableGradients& gradients;
    ~Forgets() { gradients.forget_shard(apart); }
  } forgets{table_gradients_};
  for (const TensorView& range : ranges) {
    memory.push_back(Tensor::zeros(range.dtype(), range.shape(), stream_));
    places.places.push_back(memory.back().view());
  }
  KeptRandom random{device()};
  if (seed) random.seed(*seed);
  AuditRound::Digests digests;
  restoring_buffers([&] {
    const Loss loss = compute_shard(number, compute, apart, places);
    const std::vector<char> changed = changed_buffers();
    digests = digests_of(apart, places, loss, changed);
    for (std::size_t i = 0; i < changed.size(); ++i)
      if (changed[i]) buffers_[i]->restore();
  });
  return digests;
}

/// Whether this rank's shard has other results with other random numbers, and not only other results each time.
bool Step::depends_on_random_numbers(const Compute& compute) {
  try {
    const auto with_seed = [&](std::uint64_t seed) { return compute_apart(audited_->own(), compute, seed); };
    const AuditRound::Digests one = with_seed(1), again = with_seed(1);
    return one == again && one != with_seed(2);
  } catch (...) {
    return false;  // it fails once more when the ranks compute the shard again, and that is where it counts
  }
}

/// COLL.
void Step::require_passed_audit(const Compute& compute) {
  if (audited_->passes()) return;
  const ReplicatedModule::Impl::Busy busy{modules_};
  table_gradients_.begin_shards(2);
  // Ranks with other weights get other gradients, and all of them are right.
  context_.merge_call([&](Strategy& strategy) { strategy.attest({}, here_); }, {}, here_);
  restoring_buffers([&] {
    MeetingPoint& meeting = inside(context_.strategy()).group().meeting();
    const std::array<std::int64_t, 1> draws{depends_on_random_numbers(compute)};
    const std::vector<std::int64_t> all = meeting.gather(draws);
    if (std::ranges::find(all, 1) != all.end())
      throw InvalidArgument{
          "a step that is audited has a shard whose results depend on what torch has drawn before: expected `compute` "
          "to seed torch from the number of the shard (torch::manual_seed)"};
    audited_->judge(
        audited_values(), [&](std::int64_t shard) { return compute_apart(shard, compute); }, here_);
  });
}

}  // namespace lockstep::libtorch

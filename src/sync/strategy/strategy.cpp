#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/log.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "core/base/floating_point_modes.hpp"
#include "core/base/log_settings.hpp"
#include "core/comm/communicator.hpp"
#include "core/control/announced_failure.hpp"
#include "core/control/meeting_point.hpp"
#include "core/control/tag.hpp"
#include "core/device/device.hpp"
#include "core/device/devices.hpp"
#include "sync/reduce/reduction_choice.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/strategy/attestation.hpp"
#include "sync/strategy/context_stack.hpp"
#include "sync/strategy/inside.hpp"
#include "sync/strategy/strategy_core.hpp"

namespace lockstep {
namespace {

using detail::announcing_failure;

/// The method makes one kind of variable; the options must name that kind or leave it to the method.
void require_synchronization(const Variable::Options& options, Variable::Synchronization made) {
  using Synchronization = Variable::Synchronization;
  const Synchronization asked = options.synchronization;
  if (asked == Synchronization::automatic || asked == made) return;
  if (asked == Synchronization::none)
    throw InvalidArgument{fmt::format(
        "`none` variable synchronization is not supported: every replica has a component of each variable. Please "
        "change the `synchronization` for variable: {}",
        options.name)};
  if (asked == Synchronization::on_read || asked == Synchronization::on_write)
    throw InvalidArgument{fmt::format("variable '{}': `{}` is not the synchronization of a {} variable, which is `{}`",
                                      options.name, name_of(asked),
                                      made == Synchronization::on_read ? "sync-on-read" : "mirrored", name_of(made))};
  throw InvalidArgument{fmt::format("Invalid variable synchronization mode: {} for variable: {}",
                                    static_cast<int>(options.synchronization), options.name)};
}

void require_aggregation(const Variable::Options& options) {
  switch (options.aggregation) {
    case Variable::Aggregation::none:
    case Variable::Aggregation::sum:
    case Variable::Aggregation::mean:
    case Variable::Aggregation::only_first_replica: return;
  }
  throw InvalidArgument{fmt::format("Invalid variable aggregation mode: {} for variable: {}",
                                    static_cast<int>(options.aggregation), options.name)};
}

}  // namespace

Strategy::Strategy(ReplicaGroup& group, const ReductionOptions& reductions)
    : core_{std::make_unique<Core>(std::shared_ptr<ReplicaGroup>{std::shared_ptr<void>{}, &group}, reductions, *this)} {
}

Strategy::Strategy(const Group& ranks, const ReductionOptions& reductions, Here here) {
  require_valid(reductions);
  ranks.group_->meeting().agree(TagKind::create, 0, here, "a strategy with " + describe(reductions));
  core_ = std::make_unique<Core>(ranks.group_, reductions, *this);
}

Group Strategy::ranks() const {
  return Group{core_->shared_group};
}

Strategy::Strategy(Strategy&& other) noexcept : core_{std::move(other.core_)} {
  if (!core_) return;
  *core_->self = this;
}

Strategy::~Strategy() = default;

Scope Strategy::scope(Here here) {
  return Scope{*this, here};
}
VariableStore& Strategy::store() {
  return core_->store;
}
Strategy Strategy::make_sibling(const ReductionOptions& reductions, Here here) {
  return Strategy{ranks(), reductions, here};
}
int Strategy::rank() const {
  return core_->group.rank();
}

int detail::Inside<Strategy>::id() const {
  return strategy.core_->id;
}
bool detail::Inside<Strategy>::created(const Variable& variable) const {
  return inside(variable).state().owner == &strategy.core_->store;
}
detail::StrategyAddress::StrategyAddress(Strategy& strategy) : place_{strategy.core_->self.get()} {}

ReplicaGroup& Strategy::group() {
  return core_->group;
}
Reductions& Strategy::reductions() {
  return *core_->reductions;
}
Stream& Strategy::stream() {
  return core_->group.stream();
}
int Strategy::num_replicas_in_sync() const {
  return core_->group.size();
}
std::string Strategy::name() const {
  if (detail::is_default(*this)) return "the default strategy";
  const auto some = core_->group.some_of_job();
  return fmt::format("strategy {}{}", core_->id,
                     some.empty() ? "" : fmt::format(" of replicas {}", fmt::join(some, ", ")));
}

void Strategy::require_not_captured(const Here& here) {
  if (stream().is_capturing())
    throw ContextError{
        detail::Call{"merge_call, or another collective", here}.text() +
        "this rank's stream is being captured into a CUDA graph, and a graph that is launched again does not meet the "
        "other ranks; end the capture first"};
}

void Strategy::agree(TagKind kind, const Here& here, std::string_view text) {
  agree(kind, here, text, {});
}

void Strategy::agree(TagKind kind, const Here& here, std::string_view text, const Comparison& comparison) {
  require_not_captured(here);
  core_->group.meeting().agree(kind, core_->id, here, text, comparison);
}

Shares agree_on_shares(Strategy& strategy, int shards, bool has_threads, std::string_view text, const Here& here) {
  inside(strategy).require_not_captured(here);
  MeetingPoint& meeting = inside(strategy).group().meeting();
  const Answers any = meeting.agree_any(TagKind::compare, inside(strategy).id(), here, text, {has_threads, false});
  return inside(strategy).reductions().shares(shards, meeting.size(), any.front());
}

MirroredVariable Strategy::create_variable(Variable::Options options, const std::function<Tensor()>& initial,
                                           Here here) {
  detail::require_not_another(*this, {"create_variable", here});
  return handle_of<MirroredVariable>(create(std::move(options), Variable::Synchronization::on_write, initial, here));
}

SyncOnReadVariable Strategy::create_sync_on_read(Variable::Options options, const std::function<Tensor()>& initial,
                                                 Here here) {
  detail::require_not_another(*this, {"create_sync_on_read", here});
  options.trainable = false;
  return handle_of<SyncOnReadVariable>(create(std::move(options), Variable::Synchronization::on_read, initial, here));
}

std::shared_ptr<detail::VariableState> Strategy::create(Variable::Options options,
                                                        Variable::Synchronization synchronization,
                                                        const std::function<Tensor()>& initial, const Here& here) {
  if (options.name.empty()) options.name = "Variable";
  require_synchronization(options, synchronization);
  require_aggregation(options);
  detail::require_colocated(*this);
  auto state = std::make_shared<detail::VariableState>();
  state->initial = announcing_failure(core_->group.meeting(), here, [&] { return Tensor::on_host(initial().view()); });
  state->shape = state->initial.shape();
  state->dtype = state->initial.dtype();
  state->trainable = options.trainable;
  state->synchronization = synchronization;
  state->aggregation = options.aggregation;
  state->owner = &core_->store;
  state->strategy = core_->self;
  agree(TagKind::create, here,
        fmt::format("variable '{}' {} ({}, {}, aggregation {})", options.name, describe(state->initial.view()),
                    options.trainable ? "trainable" : "not trainable", name_of(synchronization),
                    name_of(options.aggregation)));
  state->name = inside(core_->store).unique_name(options.name);
  inside(core_->store).add(state);
  return state;
}

void Strategy::seal(Here here) {
  detail::require_cross_replica(*this, {"seal", here});
  agree(TagKind::seal, here, {});
  MeetingPoint& meeting = core_->group.meeting();
  std::vector<Buffer> gradients;
  std::string failure;
  for (const std::size_t bytes : inside(core_->store).gradient_bytes()) {
    SharedAllocation shared = core_->reductions->allocate_shared(bytes);
    if (failure.empty()) failure = std::move(shared.failure);
    gradients.push_back(std::move(shared.memory));
  }
  const bool shares = std::ranges::any_of(gradients, [](const Buffer& memory) { return memory.data() != nullptr; });
  const std::vector<TensorView> values =
      announcing_failure(meeting, [&] { return inside(core_->store).seal(std::move(gradients)); });
  // Before the broadcast, where the others would wait for a rank without memory.
  const auto [unshared, unused] =
      meeting.agree_any(TagKind::seal, core_->id, here, "memory", {!failure.empty(), false});
  if (unshared) {
    stop_sharing(failure, here);
  } else if (shares && core_->group.rank() == 0) {
    log::debug("gradients lie in memory that the ranks of a node share");
  }
  if (!values.empty()) core_->reductions->broadcast(values, 0);
}

/// COLL. A rank has no shared memory for the gradients that were just sealed, so no rank uses any.
void Strategy::stop_sharing(const std::string& failure, const Here& here) {
  const std::int64_t rank = core_->group.rank();
  const auto lowest = core_->group.meeting().first_brought({&rank, failure.empty() ? 0u : 1u});
  if (lowest.front() == rank)
    log::warning(fmt::format("gradients are summed by messages, not in shared memory, which this rank does not get: {}",
                             failure));
  announcing_failure(core_->group.meeting(), [&] { inside(core_->store).reallocate_gradients(); });
  agree(TagKind::seal, here, "memory");
}

void Strategy::rebroadcast(Here here) {
  detail::require_cross_replica(*this, {"rebroadcast", here});
  announcing_failure(core_->group.meeting(), here, [&] { inside(core_->store).bring_home(); });
  std::string text = "rebroadcast";
  for (const detail::OptimizerState& state : inside(core_->store).optimizer_state()) text += ", " + state.name;
  agree(TagKind::seal, here, text);
  // Other libraries may write and read the variables on streams of their own.
  synchronize_device(stream().kind());
  std::vector<TensorView> values = inside(core_->store).mirrored_values();
  const std::vector<TensorView> state = inside(core_->store).optimizer_values();
  values.insert(values.end(), state.begin(), state.end());
  if (!values.empty()) core_->reductions->broadcast(values, 0);
  for (const auto& [holder, held] : inside(core_->store).held_values()) core_->reductions->broadcast(held, holder);
  stream().synchronize();
  announcing_failure(core_->group.meeting(), here, [&] { inside(core_->store).written(); });
  core_->first_steps.begin_again();
}

void Strategy::attest(const std::vector<SyncOnReadVariable>& alike, Here here) {
  detail::require_cross_replica(*this, {"attest", here});
  require_not_captured(here);
  announcing_failure(core_->group.meeting(), here, [&] { inside(core_->store).bring_home(); });
  const detail::Attestation mine{core_->store, alike, here};
  core_->group.meeting().agree(TagKind::attest, core_->id, here, mine.text(), mine.comparison());
}

void Strategy::attest_first(int steps) {
  if (steps < 0) throw InvalidArgument{fmt::format("attest_first: {} steps; expected 0 or more", steps)};
  core_->first_steps = detail::FirstSteps{steps};
}

void Strategy::set_step(std::int64_t step, detail::RunKind kind) {
  const std::int64_t first = kind == detail::RunKind::step || kind == detail::RunKind::evaluation ? 1 : 0;
  if (step < first) throw InvalidArgument{fmt::format("set_step: step {}; expected {} or more", step, first)};
  core_->group.meeting().set_step(static_cast<std::uint64_t>(step), kind);
}

void Strategy::request_stop() noexcept {
  core_->group.meeting().request_stop();
  core_->group.job().meeting().request_stop();
}

bool Strategy::stop_requested() const {
  return core_->group.meeting().stop_requested();
}

void Strategy::run_replica(const Here& place, const std::function<std::string(ReplicaContext&)>& fn) {
  detail::require_cross_replica(*this, {"run", place});
  // A library that was loaded since, or the program, may have changed them, and with them the bits of a step.
  const StartingFloatingPointModes modes;
  Core& core = *core_;  // `fn` may move this strategy
  MeetingPoint& meeting = core.group.meeting();
  const Here here = Here::current();
  if (meeting.depth() == 0 && inside(core.store).has_unsealed()) seal(place);
  meeting.enter_run(place);
  std::string result;
  std::shared_ptr<detail::FirstStepNotes> first_step;
  if (core.first_steps.is_open() && core.group.size() > 1 && meeting.position().kind == detail::RunKind::step)
    first_step = std::make_shared<detail::FirstStepNotes>();
  std::optional<detail::Attestation> attestation;
  try {
    const detail::StrategyAddress address{*this};
    ReplicaContext context{address};
    context.first_step_ = first_step;
    const detail::PushedFrame frame{{detail::ContextMode::replica, address, &context}};
    result = fn(context);
    context.require_waited_for();
    if (context.attested_at_end_) {
      context.strategy().require_not_captured(context.attested_from_);
      inside(core.store).bring_home();
      attestation.emplace(core.store, *context.attested_at_end_, context.attested_from_);
      result = fmt::format("{}, attesting {}", result.empty() ? "nothing" : result, attestation->text());
    } else if (first_step && !core.group.stream().is_capturing()) {
      inside(core.store).bring_values_home();
      attestation.emplace(core.store, here);
    }
    if (attestation && first_step) attestation->add(*first_step, meeting.position().step);
  } catch (...) {
    meeting.leave_failed_run(std::current_exception());
  }
  meeting.leave_run(core.id, here, result, attestation ? attestation->comparison() : Comparison{});
  if (attestation && first_step) core.first_steps.passed(first_step->made_step, attestation->digest_of_trained());
}

}  // namespace lockstep

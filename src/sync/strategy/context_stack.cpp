#include "sync/strategy/context_stack.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/site.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep {
namespace detail {

/// What the default context offers.
struct Defaults {
  std::unique_ptr<ReplicaGroup> group = make_local_group();
  Strategy strategy = strategy_on(*group);
  ReplicaContext context = Inside<ReplicaContext>::of_default(strategy);

  static Defaults& of_thread() {
    thread_local Defaults defaults;
    return defaults;
  }
};

namespace {

std::vector<Frame>& stack() {
  thread_local std::vector<Frame> frames;
  return frames;
}

/// The variables beside which others are created, innermost last.
std::vector<Variable>& colocated() {
  thread_local std::vector<Variable> variables;
  return variables;
}

std::string mixing(const Strategy& current, const Strategy& wanted) {
  return fmt::format("Mixing different Strategy objects: {} is not {}", current.name(), wanted.name());
}

/// Null for a context kept from a run that is over, of which only the address may be used.
const Strategy* strategy_of(const ReplicaContext& context) {
  if (is_default(context)) return &context.strategy();
  const auto frame = std::ranges::find(stack(), &context, &Frame::replica);
  return frame == stack().end() ? nullptr : &frame->strategy();
}

}  // namespace

void push(const Frame& frame) {
  stack().push_back(frame);
}
void pop() {
  stack().pop_back();
}

const Frame* current_frame() {
  return stack().empty() ? nullptr : &stack().back();
}

std::string Call::text() const {
  if (name.empty()) return {};
  return call_text(name, here.value_or(Here{}));
}

void require_not_another(const Strategy& strategy, const Call& call) {
  if (current_frame()) require_scope(strategy, call);
}

void require_scope(const Strategy& strategy, const Call& call) {
  const Strategy& current = Strategy::current();
  if (&current == &strategy) return;
  if (!Strategy::has_current())
    throw ContextError{fmt::format("{}Need to be inside `Strategy::scope()` for {}", call.text(), strategy.name())};
  throw ContextError{call.text() + mixing(current, strategy)};
}

void require_cross_replica(const Strategy& strategy, const Call& call) {
  require_not_another(strategy, call);
  const Frame* const frame = current_frame();
  if (frame && frame->mode == ContextMode::replica)
    throw ContextError{call.text() +
                       "Method requires being in cross-replica context, use ReplicaContext::current()->merge_call()"};
}

Scope enter(Strategy& strategy, const Call& call) {
  require_cross_replica(strategy, call);
  return strategy.scope(call.here.value_or(Here{}));
}

void require_current(const ReplicaContext& context, const Call& call) {
  const ReplicaContext* const current = ReplicaContext::current();
  if (!current)
    throw ContextError{call.text() +
                       "Need to be inside `Strategy::run()`, and not in a merge function or another scope inside it"};
  if (current == &context) return;
  const Strategy* const other = strategy_of(context);
  if (other && other != &current->strategy())
    throw ContextError{fmt::format("{}Mismatching Strategy objects: {} is not {}", call.text(),
                                   current->strategy().name(), other->name())};
  throw ContextError{
      fmt::format("{}Mismatching ReplicaContext: {}", call.text(),
                  other ? "another run has begun inside its run" : "its run is over, and it must not be kept")};
}

void require_own(Strategy& strategy, const Variable& variable, const Call& call) {
  require_cross_replica(strategy, call);
  if (!inside(strategy).created(variable))
    throw InvalidArgument{
        fmt::format("{}variable {} was not created by {}", call.text(), variable.label(), strategy.name())};
}

void push_colocated(const Variable& variable) {
  colocated().push_back(variable);
}
void pop_colocated() {
  colocated().pop_back();
}

void require_colocated(const Strategy& strategy) {
  if (colocated().empty()) return;
  require_scope(strategy);
  const Variable& beside = colocated().back();
  if (*inside(beside).state().strategy != &strategy)
    throw ContextError{
        fmt::format("`colocate_vars_with`: {} cannot create one beside {}", strategy.name(), operand_text(beside))};
}

Strategy& default_strategy() {
  return Defaults::of_thread().strategy;
}
bool is_default(const Strategy& strategy) {
  return &strategy == &default_strategy();
}
bool is_default(const ReplicaContext& context) {
  return &context == &Defaults::of_thread().context;
}

}  // namespace detail

Scope::Scope(Strategy& strategy, const Here& here) {
  const detail::Call call{"scope", here};
  // The default strategy's contexts belong to no strategy, so any scope may begin there.
  if (Strategy::has_current()) {
    if (detail::is_default(strategy)) throw ContextError{call.text() + "Must not nest Strategy scopes."};
    detail::require_cross_replica(strategy, call);
  }
  detail::push({detail::ContextMode::cross_replica, detail::StrategyAddress{strategy}});
}

Scope::Scope(const detail::Frame& frame) {
  detail::push(frame);
}

Scope::~Scope() {
  detail::pop();
}

Strategy& Strategy::current() {
  const detail::Frame* const frame = detail::current_frame();
  return frame ? frame->strategy() : detail::default_strategy();
}

bool Strategy::has_current() {
  const detail::Frame* const frame = detail::current_frame();
  return frame && !detail::is_default(frame->strategy());
}

bool Strategy::in_cross_replica_context() {
  const detail::Frame* const frame = detail::current_frame();
  return frame && frame->mode != detail::ContextMode::replica;
}

bool Strategy::in_update_context() {
  const detail::Frame* const frame = detail::current_frame();
  return frame && frame->mode == detail::ContextMode::update;
}

ReplicaContext* ReplicaContext::current() {
  const detail::Frame* const frame = detail::current_frame();
  return frame ? frame->replica : &detail::Defaults::of_thread().context;
}

bool Strategy::should_record_summaries() {
  return current().rank() == 0;
}

}  // namespace lockstep

// The thread's stack of contexts, and the checks of what may be called where.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <lockstep/core/base/here.hpp>
#include <lockstep/sync/strategy/strategy.hpp>
#include <lockstep/sync/strategy/variable.hpp>

#include "core/base/parts.hpp"

namespace lockstep::detail {

enum class ContextMode { cross_replica, replica, update };

struct Frame {
  ContextMode mode;
  StrategyAddress address;
  ReplicaContext* replica = nullptr;  ///< in ContextMode::replica

  Strategy& strategy() const { return address.strategy(); }
};

/// For the classes whose constructor pushes and whose destructor pops.
LOCKSTEP_PARTS_API void push(const Frame& frame);
LOCKSTEP_PARTS_API void pop();

/// Pushes a frame for as long as it lives.
class PushedFrame {
 public:
  explicit PushedFrame(const Frame& frame) { push(frame); }
  PushedFrame(const PushedFrame&) = delete;
  ~PushedFrame() { pop(); }
};

/// The innermost frame, or null in the default context.
LOCKSTEP_PARTS_API const Frame* current_frame();

/// This thread's, which is made on first use and never moved.
Strategy& default_strategy();
bool is_default(const Strategy& strategy);
bool is_default(const ReplicaContext& context);

/// What the program called, and where if that is known. Messages begin with it.
struct Call {
  std::string_view name = {};
  std::optional<Here> here = {};

  /// "merge_call (trainer.cpp:40): "; nothing without a name.
  LOCKSTEP_PARTS_API std::string text() const;
};

/// ContextError outside `strategy`'s cross-replica context and the default context.
void require_cross_replica(const Strategy& strategy, const Call& call = {});

/// A scope for what such a method does. ContextError, which begins with `call`, as above.
[[nodiscard]] Scope enter(Strategy& strategy, const Call& call);

/// ContextError unless `context` is the current replica context.
LOCKSTEP_PARTS_API void require_current(const ReplicaContext& context, const Call& call);

/// ContextError in another strategy's context.
void require_not_another(const Strategy& strategy, const Call& call = {});

/// ContextError unless `strategy` is the current one, in any of its contexts.
void require_scope(const Strategy& strategy, const Call& call = {});

/// ContextError as require_cross_replica; InvalidArgument, which begins with `call`, for another strategy's variable.
void require_own(Strategy& strategy, const Variable& variable, const Call& call);

/// From here on this thread creates variables beside `variable`, until `pop_colocated`. Guards nest.
void push_colocated(const Variable& variable);
void pop_colocated();

/// ContextError if `strategy` may not create a variable here: the innermost guard, if there is one, allows the current
/// strategy alone, if it created the guard's variable.
void require_colocated(const Strategy& strategy);

}  // namespace lockstep::detail

#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/tf/feed/multi_step.hpp>

#include "core/control/meeting_point.hpp"
#include "core/control/tag.hpp"
#include "core/values/type_text.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/context_stack.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep {

void MultiStepContext::Outputs::refuse(std::string_view name, const std::type_info& wanted) const {
  std::vector<std::string> all;
  for (const auto& [each, value] : values_)
    all.push_back(fmt::format("'{}' ({})", each, detail::type_text(value.type())));
  const std::string there_is = all.empty() ? "nothing" : fmt::format("{}", fmt::join(all, ", "));
  throw InvalidArgument{fmt::format("there is no '{}' ({}); there is {}", name, detail::type_text(wanted), there_is)};
}

void MultiStepContext::require_cross_replica(std::string_view name) {
  if (ReplicaContext::current())
    throw InvalidArgument{
        fmt::format("output '{}' is set in replica context, where it needs an operation: the "
                    "replicas' values become one there",
                    name)};
}

std::int64_t detail::run_steps(Strategy& strategy, std::int64_t steps, const std::function<bool()>& step,
                               const Here& here) {
  const Scope scope = enter(strategy, {"run_steps_on_iterator", here});
  if (steps < 0) throw InvalidArgument{fmt::format("a loop of {} steps; expected 0 or more", steps)};
  inside(strategy).agree(TagKind::steps, here, fmt::format("{} steps", steps));
  std::int64_t run = 0;
  try {
    while (run < steps && step()) ++run;
  } catch (...) {
    MeetingPoint& meeting = inside(strategy).group().meeting();
    const auto& known = meeting.failure();
    if (known && known->exception == std::current_exception()) throw;
    meeting.fail(std::current_exception());
  }
  return run;
}

}  // namespace lockstep

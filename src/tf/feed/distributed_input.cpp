#include "tf/feed/distributed_input.hpp"

#include "core/control/announced_failure.hpp"
#include "core/control/meeting_point.hpp"
#include "core/control/tag.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/context_stack.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep {

detail::InputAnswer detail::agree_on_input(Strategy& strategy, const std::function<InputOffer()>& offer,
                                           const Here& here) {
  const Scope scope = enter(strategy, {"next", here});
  inside(strategy).require_not_captured(here);
  MeetingPoint& meeting = inside(strategy).group().meeting();
  detail::InputOffer own = detail::announcing_failure(meeting, offer);
  // The second question of the agreement is another one for each end of input, which the text tells apart.
  const bool with_first = own.end == detail::EndOfInput::when_first_ends;
  if (with_first)
    own.what += own.what.empty() ? "input until the first rank has none" : ", until the first rank has none";
  const auto [any, lacking] = meeting.agree_any(TagKind::input, inside(strategy).id(), here, own.what,
                                                {own.any, with_first ? !own.any : own.lacks_outline});
  if (with_first || !any || !lacking) return {.goes_on = any && !(with_first && lacking)};
  return {.goes_on = true, .outline = meeting.first_brought(own.outline)};
}

}  // namespace lockstep

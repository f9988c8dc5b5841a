// What the feeds of all inputs have in common.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <lockstep/core/base/here.hpp>
#include <lockstep/core/order/input_context.hpp>
#include <lockstep/sync/strategy/replica_context.hpp>
#include <lockstep/tf/feed/iterator.hpp>

#include "tf/feed/draw_ahead.hpp"

namespace lockstep::detail {

/// What a feed draws, from the first batch on at each `start`.
struct FeedPlan {
  std::function<Draw()> start;
  std::function<std::string()> describe;  ///< what the iterator is over, which the ranks compare
  EndOfInput end = EndOfInput::when_all_end;
  int prefetch_batches = 0;
};

/// The place of this rank's pipeline among the strategy's: one pipeline per replica.
InputContext input_context_of(const Strategy& strategy);

/// The source that `maker` has returned. InvalidArgument if there is none.
AnySource required_source(AnySource source, std::string_view maker);

}  // namespace lockstep::detail

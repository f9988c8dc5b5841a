#include <exception>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/strategy/strategy.hpp>
#include <lockstep/tf/feed/iterator.hpp>

#include "tf/feed/batch_outline.hpp"
#include "tf/feed/distributed_input.hpp"
#include "tf/feed/feed.hpp"

namespace lockstep::detail {

InputContext input_context_of(const Strategy& strategy) {
  const int replicas = strategy.num_replicas_in_sync();
  return InputContext{replicas, strategy.rank(), replicas};
}

AnySource required_source(AnySource source, std::string_view maker) {
  if (!source) throw InvalidArgument{fmt::format("{} must return a source of batches", maker)};
  return source;
}

struct Feed::State {
  StrategyAddress address;
  const Description& type;
  FeedPlan plan;
  Draw draw = {};  ///< empty after the end of this rank's data
  bool has_drawn = false;

  Draw make_draw() const {
    Draw begun = plan.start();
    return plan.prefetch_batches == 0 ? begun : draw_ahead(address, plan.prefetch_batches, type, std::move(begun));
  }
};

Feed::Feed(Strategy& strategy, const Description& type, FeedPlan plan_of_all, Here here)
    : state_{std::make_unique<State>(State{StrategyAddress{strategy}, type, std::move(plan_of_all)})} {
  const FeedPlan& plan = state_->plan;
  const auto offer = [&] {
    if (plan.prefetch_batches < 0)
      throw InvalidArgument{fmt::format("prefetch_batches is {}; expected 0 or more", plan.prefetch_batches)};
    InputOffer iterator{.what = "an iterator over " + plan.describe(), .end = plan.end};
    state_->draw = state_->make_draw();
    return iterator;
  };
  agree_on_input(strategy, offer, here);
}

Feed::Feed(Feed&&) noexcept = default;
Feed& Feed::operator=(Feed&&) noexcept = default;
Feed::~Feed() = default;

std::shared_ptr<void> Feed::next(Here here) {
  auto& [address, type, plan, draw, has_drawn] = *state_;
  std::shared_ptr<void> own;
  const auto offer = [&] {
    InputOffer offered{.end = plan.end};
    if (draw) own = draw(offered.what);
    if (!own) draw = nullptr;
    offered.any = own != nullptr;
    if (has_outline(type)) {
      if (own) offered.outline = outline_of(type, own.get());
      offered.lacks_outline = !own;
    }
    return offered;
  };
  has_drawn = true;
  const InputAnswer answer = agree_on_input(address.strategy(), offer, here);
  if (!answer.goes_on) {
    draw = nullptr;
    return nullptr;
  }
  if (own) return own;
  std::shared_ptr<void> blank = type.make_blank();
  if (has_outline(type)) take_outline(type, blank.get(), answer.outline, address.strategy().stream());
  return blank;
}

void Feed::initialize(Here here) {
  const Scope scope = state_->address.strategy().scope(here);
  state_->has_drawn = false;
  state_->draw = nullptr;  // whatever draws ahead ends before the input function is called
  try {
    state_->draw = state_->make_draw();
  } catch (...) {
    state_->draw = [failure = std::current_exception()](std::string&) -> std::shared_ptr<void> {
      std::rethrow_exception(failure);
    };
  }
}

void Feed::begin(Here here) {
  if (state_->has_drawn) initialize(here);
}

}  // namespace lockstep::detail

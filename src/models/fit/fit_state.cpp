// Progress of a training run as text: the number of steps, and the loss and weight of each recent one.
#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/fit/observer.hpp>

namespace lockstep {
namespace {

/// The number at the beginning of `text`, from which it is removed with the space after it. Nothing if there is none.
template <class Number>
std::optional<Number> take(std::string_view& text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || (after != end && *after != ' ')) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(after - text.data()) + (after != end ? 1 : 0));
  return number;
}

}  // namespace

std::string Observer::State::to_text() const {
  std::string text = fmt::format("{}", steps);
  for (const ops::Kernels::BatchLoss::Weighed& step : recent)
    fmt::format_to(std::back_inserter(text), " {} {}", step.loss, step.weight);
  return text;
}

Observer::State Observer::State::parse(std::string_view text) {
  std::string_view left = text;
  const auto steps = take<std::int64_t>(left);
  Observer::State state{.steps = steps.value_or(0)};
  bool good = steps.has_value() && *steps >= 0;
  while (good && !left.empty()) {
    const auto loss = take<double>(left), weight = take<double>(left);
    good = loss && weight && std::isfinite(*weight) && *weight >= 0;
    if (good) state.recent.push_back({*loss, *weight});
  }
  if (!good) throw Error{fmt::format("not the state of a training: '{}'", text.substr(0, 40))};
  return state;
}

}  // namespace lockstep

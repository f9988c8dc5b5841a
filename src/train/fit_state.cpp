// How far a training is, as text.
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <lockstep/base/error.hpp>
#include <lockstep/train/observer.hpp>

namespace lockstep {
namespace {

/// JSON has no number that is not finite, and writes null.
double number_from(const nlohmann::json& json) {
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}

}  // namespace

std::string to_text(const FitState& state) {
  nlohmann::ordered_json recent = nlohmann::ordered_json::array();
  for (const StepLoss& step : state.recent) recent.push_back({step.loss, step.weight});
  return nlohmann::ordered_json{{"steps", state.steps}, {"recent", std::move(recent)}}.dump();
}

FitState parse_fit_state(std::string_view text) {
  try {
    const auto json = nlohmann::json::parse(text);
    FitState state{.steps = json.at("steps").get<std::int64_t>()};
    for (const auto& step : json.at("recent"))
      state.recent.push_back({number_from(step.at(0)), number_from(step.at(1))});
    return state;
  } catch (const nlohmann::json::exception& error) {
    throw Error{fmt::format("not the state of a training: {}", error.what())};
  }
}

}  // namespace lockstep

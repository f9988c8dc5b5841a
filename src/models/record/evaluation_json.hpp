// An evaluation in JSON, wherever one is written.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include <lockstep/models/fit/observer.hpp>

namespace lockstep {

/// Adds "loss", "bits_per_byte" for a text, and "accuracy", or for numbers "r2" and "mean_absolute_error", to `json`.
/// The keys but "bits_per_byte" begin with `prefix`.
inline void add_evaluation(nlohmann::ordered_json& json, const Observer::Evaluation& found,
                           const std::string& prefix = {}) {
  json[prefix + "loss"] = found.loss;
  if (found.bits_per_byte) json["bits_per_byte"] = *found.bits_per_byte;
  if (found.r_squared) {
    json[prefix + "r2"] = *found.r_squared;
    json[prefix + "mean_absolute_error"] = *found.mean_absolute_error;
  } else {
    json[prefix + "accuracy"] = found.accuracy;
  }
}

}  // namespace lockstep

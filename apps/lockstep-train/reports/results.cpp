#include "apps/lockstep-train/reports/results.hpp"

#include <nlohmann/json.hpp>

#include <lockstep/core/base/hex.hpp>

#include "core/base/printable.hpp"
#include "models/fit/parts_report.hpp"
#include "models/record/evaluation_json.hpp"

namespace lockstep {
namespace {

void add_class(nlohmann::ordered_json& json, const Prediction::Class& found) {
  json["class"] = found.number;
  json["label"] = found.label;
  json["probability"] = found.probability;
}

}  // namespace

std::string to_json(const TrainingResult& result) {
  nlohmann::ordered_json json{
      {"ranks", result.ranks},
      {"shards", result.shards},
      {"device", result.device},
      {"model", result.model},
      {"steps", result.fit.steps},
      {"samples", result.fit.samples},
      {"seconds", result.fit.seconds},
      {"samples_per_second", result.fit.samples_per_second},
      {"train_loss", result.fit.train_loss},
  };
  add_evaluation(json, result.fit.last_evaluation, "eval_");
  json["weights_digest"] = to_hex(result.weights_digest);
  for (const int late : late_replicas(result.fit.parts)) {
    const Observer::Parts::Replica& replica = result.fit.parts.replicas[static_cast<std::size_t>(late)];
    json["late"].push_back({{"replica", late}, {"share", replica.late}, {"mostly", replica.mostly}});
  }
  return json.dump();
}

std::string to_json(const EvaluationResult& result) {
  const Observer::Evaluation& found = result.evaluation;
  nlohmann::ordered_json json{{"ranks", result.ranks},
                              {"shards", result.shards},
                              {"device", result.device},
                              {"model", result.model},
                              {"weights", result.weights.string()}};
  if (result.steps > 0) json["steps"] = result.steps;
  json["eval_samples"] = found.samples;
  json["seconds"] = found.seconds;
  add_evaluation(json, found, "eval_");
  json["weights_digest"] = to_hex(result.weights_digest);
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string to_json(const Prediction& prediction) {
  nlohmann::ordered_json json{{"index", prediction.index}};
  if (prediction.text) {
    json["text"] = printable(*prediction.text);
  } else if (prediction.value) {
    json["value"] = *prediction.value;
  } else {
    add_class(json, prediction.likeliest);
  }
  for (const Prediction::Class& each : prediction.top) add_class(json["top"].emplace_back(), each);
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace lockstep

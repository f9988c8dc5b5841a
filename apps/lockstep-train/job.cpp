#include "apps/lockstep-train/job.hpp"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/options/standard_output.hpp"

namespace lockstep {
namespace {

template <class Result>
std::string text_of(const Result& result) {
  const std::string sample = result.sample.empty() ? "" : printable(result.sample) + "\n";
  return sample + to_json(result) + "\n";
}

/// The training ended early: the line says where, and how to go on.
StoppedError stopped(const TrainingResult& result, const TrainingOptions& options) {
  const std::int64_t made = result.fit.steps;
  const std::string how = options.checkpoints.empty() ? "nothing was saved, as there is no --checkpoint-dir"
                                                      : "to go on, give the same command with --resume auto";
  return StoppedError{fmt::format("stopped {}, as a signal asked; {}",
                                  made > 0 ? fmt::format("after step {}", made) : "before the first step", how)};
}

std::string train(Strategy& strategy, const std::string& device, const TrainingOptions& options) {
  const TrainingResult result = run_training(strategy, device, options);
  if (result.fit.stopped) throw stopped(result, options);
  return text_of(result);
}

std::string text_of(std::vector<Prediction> predictions) {
  std::string lines;
  for (Prediction& each : predictions) {
    if (each.text) each.text = printable(*each.text);
    lines += to_json(each) + "\n";
  }
  return lines;
}

}  // namespace

std::string run_job(Strategy& strategy, const std::string& device, const CommandLine& line) {
  switch (line.purpose) {
    case Purpose::training: return train(strategy, device, line.training);
    case Purpose::evaluation: return text_of(run_evaluation(strategy, device, line.training));
    case Purpose::prediction: return text_of(run_prediction(strategy, line.training));
  }
  return {};
}

}  // namespace lockstep

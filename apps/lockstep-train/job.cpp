#include "apps/lockstep-train/job.hpp"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/lockstep-train/trainer.hpp"
#include "core/base/printable.hpp"

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

std::string text_of(const std::vector<Prediction>& predictions) {
  std::string lines;
  for (const Prediction& each : predictions) lines += to_json(each) + "\n";
  return lines;
}

}  // namespace

std::string run_job(Strategy& strategy, const std::string& device, const CommandLine& line) {
  Trainer trainer{strategy, device, line.training};
  switch (line.purpose) {
    case Purpose::training: {
      const TrainingResult result = std::move(trainer).train();
      if (result.fit.stopped) throw stopped(result, line.training);
      return text_of(result);
    }
    case Purpose::evaluation: return text_of(std::move(trainer).evaluate());
    case Purpose::prediction: return text_of(std::move(trainer).predict());
  }
  return {};
}

}  // namespace lockstep

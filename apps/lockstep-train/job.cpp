#include "apps/lockstep-train/job.hpp"

#include "apps/options/standard_output.hpp"

namespace lockstep {
namespace {

template <class Result>
std::string text_of(const Result& result) {
  const std::string sample = result.sample.empty() ? "" : printable(result.sample) + "\n";
  return sample + to_json(result) + "\n";
}

}  // namespace

std::string run_job(Strategy& strategy, const std::string& device, const CommandLine& line) {
  switch (line.purpose) {
    case Purpose::training: return text_of(run_training(strategy, device, line.training));
    case Purpose::evaluation: return text_of(run_evaluation(strategy, device, line.training));
  }
  return {};
}

}  // namespace lockstep

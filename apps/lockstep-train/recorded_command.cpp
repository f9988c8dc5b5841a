#include "apps/lockstep-train/recorded_command.hpp"

#include <vector>

namespace lockstep {
namespace {

/// The options that decide what a run computes, without those of the machines that it had.
RuntimeOptions anywhere(const RuntimeOptions& recorded, const std::string& device) {
  return {.device = device, .reductions = recorded.reductions, .allow_shared_gpu = recorded.allow_shared_gpu};
}

}  // namespace

CommandLine command_of(const RecordedRun& run) {
  std::vector<const char*> words;
  for (const std::string& word : run.command) words.push_back(word.c_str());
  CommandLine command = parse_command_line(static_cast<int>(words.size()), words.data());
  TrainingOptions& training = command.training;
  command.runtime = anywhere(command.runtime, run.device);
  training.data_memory_bytes = TrainingOptions{}.data_memory_bytes;
  training.run_folder.clear();
  training.metrics.clear();
  training.checkpoints.clear();
  training.exported_weights.clear();
  training.tensorboard = training.trace = false;
  training.sample = 0;
  training.audit_every = training.ledger_every = {};
  training.progress = ShowProgress::no;
  return command;
}

}  // namespace lockstep

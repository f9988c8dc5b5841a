#include "apps/lockstep-train/recorded_command.hpp"

#include <vector>

namespace lockstep {

CommandLine command_of(const RecordedRun& run) {
  std::vector<const char*> words;
  for (const std::string& word : run.command) words.push_back(word.c_str());
  CommandLine command = parse_command_line(static_cast<int>(words.size()), words.data());
  TrainingOptions& training = command.training;
  command.runtime.cluster_spec.clear();  // any number of ranks will do
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

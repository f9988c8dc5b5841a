#include "apps/lockstep-train/recorded_command.hpp"

#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "apps/options/option_values.hpp"

namespace lockstep {
namespace {

/// The options that decide what a run computes, without those of the machines that it had.
RuntimeOptions anywhere(const RuntimeOptions& recorded, const std::string& device) {
  return {.device = device, .reductions = recorded.reductions, .allow_shared_gpu = recorded.allow_shared_gpu};
}

/// Where the command names no file, neither does it say --partial; the ledger tells whether the weights are the right
/// ones.
void replace_initial_weights(const RecordedRun& run, const std::filesystem::path& file, InitialWeights& initial) {
  if (initial.file.empty() && !begins_with_weights(run))
    throw ConfigError{
        fmt::format("--init-from {}: the run in {} began without a file of weights; expected no such option",
                    file.string(), run.folder.string())};
  if (initial.file.empty()) initial.match = InitialWeights::Match::some;
  initial.file = file;
}

}  // namespace

void add_options(OptionParser& parser, std::vector<std::filesystem::path>& folders, Elsewhere& elsewhere) {
  const auto add_folder = [&](const std::string& option, const std::string& text) {
    folders.emplace_back(parse_file_name(option, text));
  };
  parser.words("RUN_DIR", "The folder of a run of lockstep-train", add_folder);
  parser.repeatable("--run-dir", "DIR", "The same, as an option", add_folder);
  const auto take_path = [](std::filesystem::path& place) {
    return [&place](const std::string& option, const std::string& text) { place = parse_file_name(option, text); };
  };
  parser.option("--data", "PATH", "The data, if they are elsewhere than for the run", take_path(elsewhere.data));
  parser.option("--init-from", "FILE",
                "The weights with which the run began, if they came from a file that is elsewhere",
                take_path(elsewhere.initial_weights));
  parser.option("--network", "CIDR", "Network for heartbeats between nodes, as for lockstep-train",
                [&](const std::string& option, const std::string& text) {
                  elsewhere.network = parse_network_name(option, text);
                });
}

CommandLine command_of(const RecordedRun& run, const Elsewhere& elsewhere) {
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
  command.runtime.network = elsewhere.network;
  if (!elsewhere.data.empty()) training.data = elsewhere.data;
  if (!elsewhere.initial_weights.empty())
    replace_initial_weights(run, elsewhere.initial_weights, training.initial_weights);
  return command;
}

}  // namespace lockstep

#include <string>

#include "apps/lockstep-train/options/option_setters.hpp"
#include "apps/lockstep-train/options/option_table.hpp"

namespace lockstep {
namespace {

void set_resume(CommandLine& line, const std::string& option, const std::string& text) {
  Resume& resume = line.training.resume;
  if (text == "none") return;
  resume.from = text == "auto" ? Resume::From::newest : Resume::From::path;
  if (resume.from == Resume::From::path) resume.path = parse_file_name(option, text);
}

void add_override(CommandLine& line, const std::string& option, const std::string& text) {
  line.training.resume.overrides.push_back(
      parse_choice<Resume::Override>(option, text,
                                     {{"learning-rate", Resume::Override::learning_rate},
                                      {"schedule", Resume::Override::schedule},
                                      {"warmup-steps", Resume::Override::warmup_steps},
                                      {"steps", Resume::Override::steps},
                                      {"epochs", Resume::Override::steps}}));
}

void set_initial_weights(CommandLine& line, const std::string& option, const std::string& text) {
  line.training.initial_weights.file = parse_file_name(option, text);
}

void take_some_weights(CommandLine& line, const std::string&, const std::string&) {
  line.training.initial_weights.match = InitialWeights::Match::some;
}

void add_pattern(CommandLine& line, const std::string& option, const std::string& text) {
  if (text.empty()) throw ConfigError{fmt::format("{} '': expected a pattern, such as 'dense_0*'", option)};
  line.training.freeze.push_back(text);
}

}  // namespace

OptionGroup checkpoint_options() {
  return {
      "Checkpoints",
      {
          {
              .name = "--checkpoint-dir",
              .value_name = "DIR",
              .help = "Save the training in DIR/step-N after each epoch and at the end; DIR must not hold checkpoints, "
                      "except with --resume",
              .set = set(&TrainingOptions::checkpoints, parse_file_name),
          },
          {.name = "--checkpoint-every",
           .value_name = "K",
           .help = "Steps between checkpoints, instead of an epoch",
           .set = set(&TrainingOptions::checkpoint_every, count()),
           .use = OptionUse::training,
           .needs = OptionNeeds::checkpoint_dir},
          {.name = "--keep",
           .value_name = "K",
           .help = fmt::format("How many of the newest stay (default {})", TrainingOptions{}.keep_checkpoints),
           .set = set(&TrainingOptions::keep_checkpoints, count()),
           .use = OptionUse::training,
           .needs = OptionNeeds::checkpoint_dir},
          {.name = "--keep-best",
           .help = "Save the training also after an evaluation with the lowest loss so far, and keep that checkpoint",
           .set = set_to(&TrainingOptions::keep_best_checkpoint, true),
           .use = OptionUse::training,
           .needs = OptionNeeds::checkpoint_dir},
          {.name = "--checkpoint-optional",
           .help = "Go on with a warning when a checkpoint cannot be written",
           .set = set_to(&TrainingOptions::checkpoints_optional, true),
           .use = OptionUse::training,
           .needs = OptionNeeds::checkpoint_dir},
          {.name = "--resume",
           .value_name = "auto|DIR|none",
           .help = "Go on from the newest complete checkpoint in --checkpoint-dir or --run-dir, from the beginning if "
                   "there is none; "
                   "or from the checkpoint in the folder DIR; or from the beginning (default none)",
           .set = set_resume},
          {.name = "--override",
           .value_name = "NAME",
           .help = "With --resume, let --NAME differ from the checkpoint, where NAME is learning-rate, schedule, "
                   "warmup-steps, steps or epochs; may be repeated",
           .set = add_override,
           .use = OptionUse::training,
           .times = OptionTimes::any},
      }};
}

OptionGroup weight_options() {
  return {
      "Weights",
      {
          {.name = "--init-from",
           .value_name = "FILE",
           .help = "Begin with the weights in FILE, a safetensors file or a checkpoint, instead of random ones. With "
                   "--resume auto, only where there is no checkpoint",
           .set = set_initial_weights},
          {.name = "--partial",
           .help = "Take what matches by name, type and shape from --init-from, and say what does not",
           .set = take_some_weights,
           .use = OptionUse::training},
          {.name = "--freeze",
           .value_name = "PATTERN",
           .help = "Do not update the variables with names that PATTERN matches, such as 'dense_0*'; may be repeated",
           .set = add_pattern,
           .use = OptionUse::training,
           .times = OptionTimes::any},
          {.name = "--export",
           .value_name = "FILE",
           .help = "Write the weights at the end to FILE, in the safetensors format, which replaces what was there",
           .set = set(&TrainingOptions::exported_weights, parse_file_name),
           .use = OptionUse::no_prediction},
      }};
}

}  // namespace lockstep

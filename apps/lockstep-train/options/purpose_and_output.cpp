#include <string>

#include "apps/lockstep-train/options/option_setters.hpp"
#include "apps/lockstep-train/options/option_table.hpp"
#include "base/log_settings.hpp"

namespace lockstep {

OptionGroup purpose_options() {
  return {
      "Instead of training",
      {
          {.name = "--eval-only",
           .help = "Evaluate the weights of --resume or --init-from on the test set, and train and save nothing",
           .set = set_to(&CommandLine::purpose, Purpose::evaluation)},
          {.name = "--predict",
           .value_name = "FILE",
           .help = "Print a JSON line for each sample of FILE, by the weights of --resume or --init-from: the class of "
                   "each image or row in an IDX, .npy or CSV file, or its value by a regression; for gpt, what it "
                   "writes after each line of a text. "
                   "Needs no --data",
           .set = set(&TrainingOptions::predict, parse_file_name)},
          {.name = "--top",
           .value_name = "K",
           .help = "With --predict, name the K likeliest classes with their probabilities, at most those of the model; "
                   "for gpt, the bytes that are likeliest after each line (default: the likeliest class)",
           .set = set(&TrainingOptions::top, count()),
           .use = OptionUse::prediction},
      }};
}

OptionGroup output_options() {
  return {
      "Output",
      {
          {.name = "--metrics",
           .value_name = "FILE",
           .help = "Write loss, learning rate and gradient norm of each step, and each evaluation, to FILE, one JSON "
                   "object per line",
           .set = set(&TrainingOptions::metrics, parse_file_name),
           .use = OptionUse::training},
          {.name = "--tensorboard",
           .value_name = "DIR",
           .help = "Write the same as an event file for TensorBoard to DIR",
           .set = set(&TrainingOptions::tensorboard, parse_file_name),
           .use = OptionUse::training},
          {.name = "--sample",
           .value_name = "N",
           .help = "Bytes, or tokens, that the trained model writes to stdout before the result, or after each line of "
                   "--predict (default 64); for gpt only",
           .set = set(&TrainingOptions::sample, count(1, 1 << 20)),
           .models = {ModelKind::gpt}},
          {.name = "--log-level",
           .value_name = "LEVEL",
           .help = "trace, debug, info, warning, error or off (default info)",
           .set = set(&CommandLine::log_level, named(log::parse_level))},
          {.name = "--quiet",
           .help = "No progress, and a log of warnings and errors unless --log-level is given",
           .set = set_to(&TrainingOptions::progress, ShowProgress::no)},
      }};
}

}  // namespace lockstep

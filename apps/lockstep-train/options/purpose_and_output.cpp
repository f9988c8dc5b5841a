#include <string>

#include "apps/lockstep-train/options/option_setters.hpp"
#include "apps/lockstep-train/options/option_table.hpp"
#include "core/base/log_settings.hpp"

namespace lockstep {
namespace {

/// --progress comes after it, and counts.
void show_no_progress(CommandLine& line, const std::string&, const std::string&) {
  line.training.progress = ShowProgress::no;
}

std::optional<std::int64_t> parse_ledger(const std::string& option, const std::string& text) {
  if (text == "full") return 1;
  if (text == "off") return 0;
  if (text.empty() || text.find_first_not_of("0123456789") != text.npos)
    throw ConfigError{fmt::format("{} {}: expected a number of steps, full or off", option, shown(text))};
  return parse_count(option, text, 1);
}

}  // namespace

OptionGroup purpose_options() {
  return {
      "Instead of training",
      {
          {.name = "--eval-only",
           .help =
               "Evaluate the weights of --resume, --init-from or --run-dir on the test set, and train and save nothing",
           .set = set_to(&CommandLine::purpose, Purpose::evaluation)},
          {.name = "--predict",
           .value_name = "FILE",
           .help = "Print a JSON line for each sample of FILE, by the weights of --resume, --init-from or --run-dir: "
                   "the class of "
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
          {.name = "--run-dir",
           .value_name = "DIR",
           .help =
               "Keep all that the run writes in DIR: run.json, metrics.jsonl, timeline.jsonl, checkpoints, one after "
               "each epoch and at the end, and weights.safetensors; --metrics, --checkpoint-dir and --export choose "
               "other places. DIR must not hold a run, except with --resume. With --eval-only or --predict, take "
               "the weights of the newest checkpoint in DIR, and write nothing there",
           .set = set(&TrainingOptions::run_folder, parse_file_name),
           .elsewhere = {"output", "output-dir", "logdir", "log-dir", "logging-dir", "run-folder"}},
          {.name = "--metrics",
           .value_name = "FILE",
           .help = "Write loss, learning rate and gradient norm of each step, and each evaluation, to FILE, one JSON "
                   "object per line",
           .set = set(&TrainingOptions::metrics, parse_file_name),
           .use = OptionUse::training},
          {.name = "--tensorboard",
           .help = "Also write the metrics as an event file for TensorBoard, in --run-dir",
           .set = set_to(&TrainingOptions::tensorboard, true),
           .use = OptionUse::training},
          {.name = "--ledger",
           .value_name = "K|full|off",
           .help = "Steps between entries of the ledger in --run-dir, from which lockstep-verify can check the run by "
                   "computing it again; full: of every step, off: no ledger (default 100)",
           .set = set(&TrainingOptions::ledger_every, parse_ledger),
           .use = OptionUse::training},
          {.name = "--trace",
           .help = "Keep a trace of what each rank does when in --run-dir, and at the end make pictures of it for "
                   "Perfetto or chrome://tracing: of each rank, and of the last 20 steps of all",
           .set = set_to(&TrainingOptions::trace, true),
           .use = OptionUse::training,
           .elsewhere = {"profile", "profiler", "timeline"}},
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
           .set = show_no_progress},
          {.name = "--progress",
           .value_name = "auto|json|none",
           .help =
               "Progress on stderr: for people, as a JSON object per line, or none (default auto, with --quiet none)",
           .set = set(&TrainingOptions::progress,
                      one_of<ShowProgress>(
                          {{"auto", ShowProgress::yes}, {"json", ShowProgress::json}, {"none", ShowProgress::no}}))},
      }};
}

}  // namespace lockstep

#include "apps/lockstep-train/options/command_line.hpp"

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "apps/lockstep-train/options/option_table.hpp"
#include "apps/options/option_parser.hpp"
#include "apps/options/run_command_line.hpp"
#include "core/base/log_settings.hpp"
#include "models/record/run_folder.hpp"

namespace lockstep {
namespace {

constexpr const char* description =
    "Trains a model on several processes in lockstep, one replica each.\n\n"
    "  mpirun -n 2 lockstep-train --data /usr/share/datasets/fashion-mnist\n"
    "  mpirun -n 4 lockstep-train --cluster-spec cluster.json --data DIR --epochs 10\n"
    "  mpirun -n 2 lockstep-train --model gpt --data book.txt --sample 500\n\n"
    "The last line on stdout is the result, one JSON object; the text of --sample comes before it, and with --predict "
    "there is a line for each sample instead. Everything else goes to stderr.\n"
    "SIGUSR1, to mpirun or to any rank, saves a checkpoint and ends the training after the step under way. SIGUSR2 "
    "makes it say where its ranks are.\n"
    "Exit codes: 0 done, 2 wrong input, 3 the ranks disagreed, 4 a rank failed, 5 a rank stalled, 6 the replicas "
    "differed, 7 a checkpoint could not be written or read, 8 the training diverged, 9 a rank computed or read wrong, "
    "75 stopped by SIGUSR1, 1 any other failure.";

/// The options that a command line names.
class GivenOptions {
 public:
  void add(const OptionRow& row) { rows_.push_back(&row); }

  bool has(std::string_view name) const {
    return first([&](const OptionRow& row) { return row.name == name; });
  }

  /// The first for which `matches`, in the order of the table, in which they are read; null if there is none.
  template <class Matches>
  const OptionRow* first(Matches&& matches) const {
    const auto found = std::ranges::find_if(rows_, [&](const OptionRow* row) { return matches(*row); });
    return found == rows_.end() ? nullptr : *found;
  }

 private:
  std::vector<const OptionRow*> rows_;
};

void add_option(OptionParser& parser, const OptionRow& row, CommandLine& line, GivenOptions& given) {
  const auto take = [&](const std::string& option, const std::string& text) {
    row.set(line, option, text);
    given.add(row);
    std::string& all = line.training.given[row.name.substr(2)];
    all += (all.empty() ? "" : " ") + text;
  };
  if (row.value_name.empty())
    parser.flag(row.name, row.help, [=, &row] { take(row.name, {}); });
  else if (row.times == OptionTimes::any)
    parser.repeatable(row.name, row.value_name.c_str(), row.help, take);
  else
    parser.option(row.name, row.value_name.c_str(), row.help, take);
  parser.known_elsewhere(row.name, row.elsewhere);
}

/// "mlp or convnet".
std::string names_of(const std::vector<ModelKind>& kinds) {
  std::string names;
  for (const auto& [name, kind] : model_names())
    if (std::ranges::find(kinds, kind) != kinds.end()) names += (names.empty() ? "" : " or ") + std::string{name};
  return names;
}

void settle_purpose(CommandLine& line, const GivenOptions& given) {
  if (!given.has("--predict")) return;
  if (given.has("--eval-only"))
    throw ConfigError{"--eval-only and --predict were both given: expected at most one of the two"};
  line.purpose = Purpose::prediction;
}

/// What a run writes goes to its folder, unless an option says otherwise. A run without training reads the folder.
void settle_run_folder(CommandLine& line) {
  TrainingOptions& training = line.training;
  if (training.trace && training.run_folder.empty())
    throw ConfigError{"--trace: expected --run-dir too, whose folder holds the trace"};
  if (training.tensorboard && training.run_folder.empty())
    throw ConfigError{"--tensorboard: expected --run-dir too, whose folder holds the event files"};
  if (training.ledger_every && training.run_folder.empty())
    throw ConfigError{"--ledger: expected --run-dir too, whose folder holds the ledger"};
  if (training.run_folder.empty()) return;
  const RunLayout layout{training.run_folder};
  const auto put = [](std::filesystem::path& place, std::filesystem::path by_default) {
    if (place.empty()) place = std::move(by_default);
  };
  put(training.checkpoints, layout.checkpoints());
  if (line.purpose == Purpose::training) {
    put(training.metrics, layout.metrics());
    put(training.exported_weights, layout.weights());
  } else if (training.resume.from == Resume::From::none && training.initial_weights.file.empty()) {
    training.resume.from = Resume::From::newest;
  }
}

void require_data(const CommandLine& line) {
  if (line.training.data.empty() && line.purpose != Purpose::prediction)
    throw ConfigError{
        "--data is missing: expected a folder of images or a CSV file, or for gpt a text file, plain or .gz; "
        "lockstep-train --help lists the options"};
}

void require_types(const CommandLine& line, const TrainingOptions& complete) {
  const auto expect_f32 = [&](const char* option) {
    if (complete.dtype != DType::f32)
      throw ConfigError{fmt::format("{}: expected --dtype f32, not {}", option, name_of(*complete.dtype))};
  };
  if (complete.precision == nn::Model::Precision::bf16) expect_f32("--precision bf16");
  if (line.runtime.reductions.gradient_compression) expect_f32("--compress-gradients");
}

/// Nothing that a run without training does not do, and weights for it.
void require_purpose(const CommandLine& line, const GivenOptions& given) {
  const TrainingOptions& training = line.training;
  if (training.epochs && training.steps)
    throw ConfigError{"--epochs and --steps were both given: expected at most one of the two"};
  const auto first_for = [&](OptionUse use) {
    return given.first([=](const OptionRow& row) { return row.use == use; });
  };
  if (const auto* const row = first_for(OptionUse::prediction); row && line.purpose != Purpose::prediction)
    throw ConfigError{fmt::format("{}: expected only with --predict", row->name)};
  if (line.purpose == Purpose::training) return;
  const char* const instead = line.purpose == Purpose::prediction ? "--predict" : "--eval-only";
  if (const auto* const row = first_for(OptionUse::training))
    throw ConfigError{fmt::format("{}: expected only in a training, not with {}", row->name, instead)};
  if (training.initial_weights.file.empty() && training.resume.from == Resume::From::none)
    throw ConfigError{fmt::format(
        "{}: expected --resume auto, --resume DIR, --init-from FILE or --run-dir DIR, with the weights to use",
        instead)};
  if (const auto* const row = first_for(OptionUse::no_prediction); row && line.purpose == Purpose::prediction)
    throw ConfigError{fmt::format("{}: expected no --predict", row->name)};
}

void require_weights(const CommandLine& line) {
  const auto& [file, match] = line.training.initial_weights;
  const Resume::From from = line.training.resume.from;
  const bool resumes = from == Resume::From::path || (line.purpose != Purpose::training && from != Resume::From::none);
  if (!file.empty() && resumes)
    throw ConfigError{"--init-from and --resume were both given: expected at most one of the two"};
  if (file.empty() && match == InitialWeights::Match::some)
    throw ConfigError{"--partial: expected only with --init-from"};
}

void require_checkpoint_dir(const CommandLine& line, const std::vector<OptionGroup>& table, const GivenOptions& given) {
  if (!line.training.checkpoints.empty()) return;
  if (line.training.resume.from == Resume::From::newest)
    throw ConfigError{
        "--resume auto: expected --checkpoint-dir, in which to look for the newest checkpoint, or --run-dir"};
  const auto needs_it = [](const OptionRow& row) { return row.needs == OptionNeeds::checkpoint_dir; };
  if (!given.first(needs_it)) return;
  std::string names;
  for (const OptionGroup& group : table)
    for (const OptionRow& row : group.rows)
      if (needs_it(row)) names += (names.empty() ? "" : ", ") + row.name;
  throw ConfigError{fmt::format("{}: expected only with --checkpoint-dir or --run-dir", names)};
}

void require_overrides(const CommandLine& line, const GivenOptions& given) {
  const auto& [from, path, overrides] = line.training.resume;
  if (!overrides.empty() && from == Resume::From::none)
    throw ConfigError{"--override: expected only with --resume auto or --resume DIR"};
  const auto expect = [&](Resume::Override override, std::initializer_list<const char*> options) {
    if (std::ranges::find(overrides, override) == overrides.end()) return;
    if (std::ranges::none_of(options, [&](const char* option) { return given.has(option); }))
      throw ConfigError{fmt::format("--override: expected {} too, with the new value", fmt::join(options, " or "))};
  };
  expect(Resume::Override::learning_rate, {"--learning-rate"});
  expect(Resume::Override::schedule, {"--schedule"});
  expect(Resume::Override::warmup_steps, {"--warmup-steps"});
  expect(Resume::Override::steps, {"--steps", "--epochs"});
}

/// Weights that are named may be of any model, unless that is named too.
bool names_model(const TrainingOptions& training) {
  return training.model || (training.resume.from == Resume::From::none && training.initial_weights.file.empty());
}

void require_options_of(ModelKind model, const GivenOptions& given) {
  const auto* const row = given.first([&](const OptionRow& each) {
    return !each.models.empty() && std::ranges::find(each.models, model) == each.models.end();
  });
  if (row) throw ConfigError{fmt::format("{}: expected only with --model {}", row->name, names_of(row->models))};
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) {
  const std::vector<OptionGroup> table = option_table();
  CommandLine line;
  GivenOptions given;
  OptionParser parser{"lockstep-train", description};
  for (const OptionGroup& group : table) {
    parser.group(group.heading);
    for (const OptionRow& row : group.rows) add_option(parser, row, line, given);
  }
  line.answer = parser.parse(argc, argv);
  if (line.answer) return line;

  const TrainingOptions complete = with_defaults(line.training);
  settle_purpose(line, given);
  settle_run_folder(line);
  require_data(line);
  require_types(line, complete);
  require_purpose(line, given);
  require_weights(line);
  require_checkpoint_dir(line, table, given);
  require_overrides(line, given);
  if (names_model(line.training)) require_options_of(*complete.model, given);
  if (line.runtime.reductions.gradient_compression) line.runtime.reductions.kind = ReductionOptions::Kind::hierarchical;
  if (given.has("--quiet") && !given.has("--log-level")) line.log_level = log::Level::warning;
  line.runtime.program_options = words_of(argc, argv);
  return line;
}

std::vector<std::string> without_option(const std::vector<std::string>& words, const std::string& name) {
  const std::vector<OptionGroup> table = option_table();
  const auto takes_value = [&](std::string_view option) {
    for (const OptionGroup& group : table)
      for (const OptionRow& row : group.rows)
        if (row.name == option) return !row.value_name.empty();
    return false;
  };
  std::vector<std::string> others;
  for (std::size_t i = 0; i < words.size();) {
    const std::size_t equals = words[i].find('=');
    const std::string option = words[i].substr(0, equals);
    // As the parser does: a value is what follows '=', or where nothing follows it, the next word, whatever that is.
    const bool apart = takes_value(option) && (equals == std::string::npos || equals + 1 == words[i].size());
    const std::size_t next = std::min(i + (apart ? 2 : 1), words.size());
    for (; i < next; ++i)
      if (option != name) others.push_back(words[i]);
  }
  return others;
}

}  // namespace lockstep

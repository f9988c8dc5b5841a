// Reads the folders of two runs, and says where they begin to differ.
#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <lockstep/training.hpp>

#include "apps/lockstep-bisect/difference.hpp"
#include "apps/lockstep-train/recorded_command.hpp"
#include "apps/lockstep-train/trainer.hpp"
#include "apps/lockstep-train/verification.hpp"
#include "apps/options/option_parser.hpp"
#include "apps/options/option_values.hpp"
#include "apps/options/run_command_line.hpp"
#include "apps/options/standard_output.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::bisect;

struct BisectLine {
  std::vector<std::filesystem::path> folders;
  Elsewhere elsewhere;
  std::optional<std::string> answer;
};

BisectLine parse_line(int argc, const char* const* argv) {
  BisectLine line;
  OptionParser parser{
      "lockstep-bisect",
      "Says in which step, shard and tensor two runs of lockstep-train begin to differ, by their ledgers. If these do "
      "not have the step, it computes both runs again from the last checkpoint before it, on any number of ranks.\n\n"
      "  mpirun -n 2 lockstep-bisect run1 run2\n\n"
      "It writes nothing. Exit codes: 0 the runs agree, 9 they differ, and those of lockstep-verify."};
  add_options(parser, line.folders, line.elsewhere);
  line.answer = parser.parse(argc, argv);
  if (!line.answer && line.folders.size() != 2)
    throw ConfigError{
        fmt::format("{} given: expected those of two runs",
                    line.folders.size() == 1 ? "1 folder was" : fmt::format("{} folders were", line.folders.size()))};
  return line;
}

/// What both have of the step, where no replay is needed.
std::string difference_on_disk(const std::array<RecordedRun, 2>& runs, std::int64_t step) {
  const auto one = digests_of(runs[0], step), other = digests_of(runs[1], step);
  return one && other ? first_difference({*one}, {*other}) : std::string{};
}

/// Whether the run's ledger has what the steps yield here.
bool is_confirmed(const RecordedRun& run, const std::vector<StepDigests>& again) {
  for (const StepDigests& each : again)
    for (const Ledger::Entry& entry : run.ledger.entries)
      if (entry.step == each.step &&
          entry != (entry.weights ? Ledger::Entry{.step = each.step, .weights = each.weights}
                                  : Ledger::entry_of({each.step, each.loss, each.values, each.of_shards})))
        return false;
  return true;
}

/// Initial weights are those of the runs that began with some.
CommandLine command_for(const RecordedRun& run, Elsewhere elsewhere) {
  if (!begins_with_weights(run)) elsewhere.initial_weights.clear();
  return command_of(run, elsewhere);
}

/// COLL. Both runs again, and what that says.
std::string compute_again(Runtime& runtime, const std::array<RecordedRun, 2>& runs, const Interval& between,
                          const Elsewhere& elsewhere) {
  std::array<std::vector<StepDigests>, 2> again;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    const CommandLine command = command_for(runs[run], elsewhere);
    Strategy strategy = runtime.make_strategy(command.runtime.reductions);
    Trainer trainer{strategy, runtime.device_name(), command.training};
    again[run] = std::move(trainer).record_again(runs[run], {between.same + 1, between.differs});
  }
  std::string text;
  for (std::size_t run = 0; run < runs.size(); ++run)
    text += fmt::format("{}: computed again here, it gives {} its ledger has\n", runs[run].folder.string(),
                        is_confirmed(runs[run], again[run]) ? "what" : "something else than");
  const std::string found = first_difference(again[0], again[1]);
  return text + (found.empty() ? fmt::format("both give the same here, up to step {}\n", between.differs)
                               : fmt::format("they begin to differ in {}\n", found));
}

/// COLL. Where the runs begin to differ: what the ledgers say of it, and if that is not enough, both runs again.
std::string compare(Runtime& runtime, const std::array<RecordedRun, 2>& runs, const Interval& between,
                    const Elsewhere& elsewhere) {
  if (between.differs == 0) return "the runs begin with different weights\n";
  const std::string text =
      fmt::format("the ledgers agree up to step {}, and not in step {}\n", between.same, between.differs);
  if (between.differs == between.same + 1)
    if (const std::string found = difference_on_disk(runs, between.differs); !found.empty())
      return text + fmt::format("they begin to differ in {}\n", found);
  return text + compute_again(runtime, runs, between, elsewhere);
}

}  // namespace

int main(int argc, char** argv) {
  BisectLine line;
  std::array<RecordedRun, 2> runs;
  bool differ = false;
  const int code = run_command_line(
      argc, argv,
      [&] {
        line = parse_line(argc, argv);
        if (!line.answer)
          for (std::size_t run = 0; run < runs.size(); ++run) runs[run] = read_run(line.folders[run]);
        return line.answer;
      },
      [&] {
        RuntimeOptions options = command_for(runs[0], line.elsewhere).runtime;
        options.program_options = words_of(argc, argv);
        return options;
      },
      [&](Runtime& runtime) {
        for (const RecordedRun& run : runs) require_same_on_all(runtime.strategy(), run);
        const std::optional<Interval> between = first_difference(runs[0].ledger, runs[1].ledger);
        differ = between.has_value();
        const std::string text = between ? compare(runtime, runs, *between, line.elsewhere)
                                         : "the runs agree in all that both ledgers have\n";
        if (runtime.is_chief()) write_output(text);
      });
  return code == 0 && differ ? static_cast<int>(Error::ExitCode::miscomputed) : code;
}

// Reads the folders of two runs, and says where they begin to differ.
#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <lockstep/lockstep.hpp>

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
  std::filesystem::path data;
  std::optional<std::string> answer;
};

BisectLine parse_line(int argc, const char* const* argv) {
  BisectLine line;
  OptionParser parser{
      "lockstep-bisect",
      "Says in which step, shard and tensor two runs of lockstep-train begin to differ, by their ledgers. If these do "
      "not have the step, it computes both runs again from the last checkpoint before it, on any number of ranks.\n\n"
      "  mpirun -n 2 lockstep-bisect --run-dir run1 --run-dir run2\n\n"
      "It writes nothing. Exit codes: 0 the runs agree, 1 they differ, or any other failure, and those of "
      "lockstep-verify."};
  parser.repeatable("--run-dir", "DIR", "The folder of a run (required, twice)",
                    [&](const std::string& option, const std::string& text) {
                      line.folders.emplace_back(parse_file_name(option, text));
                    });
  parser.option("--data", "PATH", "The data, if they are elsewhere than for the runs",
                [&](const std::string& option, const std::string& text) { line.data = parse_file_name(option, text); });
  line.answer = parser.parse(argc, argv);
  if (!line.answer && line.folders.size() != 2)
    throw ConfigError{fmt::format("--run-dir was given {} time{}; expected the folders of two runs",
                                  line.folders.size(), line.folders.size() == 1 ? "" : "s")};
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

/// COLL. Both runs again, and what that says.
std::string compute_again(Runtime& runtime, const std::array<RecordedRun, 2>& runs, const Interval& between,
                          const std::filesystem::path& data) {
  std::array<std::vector<StepDigests>, 2> again;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    CommandLine command = command_of(runs[run]);
    if (!data.empty()) command.training.data = data;
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
      [&] { return command_of(runs[0]).runtime; },
      [&](Runtime& runtime) {
        const std::optional<Interval> between = first_difference(runs[0].ledger, runs[1].ledger);
        std::string text = "the runs agree in all that both ledgers have\n";
        if (between) {
          differ = true;
          text = fmt::format("the ledgers agree up to step {}, and not in step {}\n", between->same, between->differs);
          const std::string found =
              between->differs == between->same + 1 ? difference_on_disk(runs, between->differs) : std::string{};
          text += found.empty() ? compute_again(runtime, runs, *between, line.data)
                                : fmt::format("they begin to differ in {}\n", found);
        }
        if (runtime.is_chief()) write_output(text);
      });
  return code == 0 && differ ? 1 : code;
}

// Reads the command line and the folder of a run, and says whether computing it again gives the same.
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <lockstep/lockstep.hpp>

#include "apps/lockstep-train/recorded_command.hpp"
#include "apps/lockstep-train/trainer.hpp"
#include "apps/lockstep-train/verification.hpp"
#include "apps/options/option_parser.hpp"
#include "apps/options/option_values.hpp"
#include "apps/options/run_command_line.hpp"
#include "apps/options/standard_output.hpp"
#include "core/cluster/counted.hpp"

namespace {

using namespace lockstep;

struct VerifyLine {
  std::vector<std::filesystem::path> folders;  ///< one
  std::optional<Range> steps;
  Elsewhere elsewhere;
  std::optional<std::string> answer;
};

/// "A:B".
Range parse_steps(const std::string& option, const std::string& text) {
  const auto colon = text.find(':');
  if (colon == text.npos)
    throw ConfigError{fmt::format("{} {}: expected A:B, the first and the last step", option, text)};
  return {parse_count(option, text.substr(0, colon), 1), parse_count(option, text.substr(colon + 1), 1)};
}

VerifyLine parse_line(int argc, const char* const* argv) {
  VerifyLine line;
  OptionParser parser{
      "lockstep-verify",
      "Checks a run of lockstep-train by computing it again, on any number of ranks, and comparing what its steps "
      "yield with the ledger of the run, its checkpoints and its exported weights.\n\n"
      "  mpirun -n 2 lockstep-verify run1\n"
      "  mpirun -n 2 lockstep-verify run1 --steps 801:900\n\n"
      "It begins with the newest checkpoint before the steps, and writes nothing.\n"
      "Exit codes: 0 all is as the ledger has it, 9 something is not, 7 the ledger or a checkpoint is not as it was "
      "written, 2 wrong options, other data, or a processor, a library or (if gradients are compressed) nodes with "
      "other bits; and those of lockstep-train."};
  add_options(parser, line.folders, line.elsewhere);
  parser.option("--steps", "A:B", "The first and the last step to check (default: all that the ledger has)",
                [&](const std::string& option, const std::string& text) { line.steps = parse_steps(option, text); });
  line.answer = parser.parse(argc, argv);
  if (!line.answer && line.folders.size() != 1)
    throw ConfigError{fmt::format("{} folders were given: expected that of one run", line.folders.size())};
  return line;
}

}  // namespace

int main(int argc, char** argv) {
  VerifyLine line;
  RecordedRun run;
  CommandLine command;
  return run_command_line(
      argc, argv,
      [&] {
        line = parse_line(argc, argv);
        if (line.answer) return line.answer;
        run = read_run(line.folders.front());
        command = command_of(run, line.elsewhere);
        command.runtime.program_options = words_of(argc, argv);
        return line.answer;
      },
      [&] { return command.runtime; },
      [&](Runtime& runtime) {
        Trainer trainer{runtime.strategy(), runtime.device_name(), command.training};
        const VerificationResult result = std::move(trainer).verify(run, line.steps);
        if (runtime.is_chief())
          write_output(fmt::format("confirmed: {} entries of the ledger, {}{}, steps {} to {}, on {}\n", result.entries,
                                   counted(result.checkpoints, "checkpoint"),
                                   result.has_weights ? ", the exported weights" : "", result.from + 1, result.to,
                                   counted(runtime.size(), "rank")));
      });
}

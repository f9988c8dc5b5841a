// Reads the command line, and says what was found.
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-inspect/comparison.hpp"
#include "apps/lockstep-inspect/inspection.hpp"
#include "apps/lockstep-inspect/trace.hpp"
#include "apps/options/standard_output.hpp"
#include "apps/options/tool_main.hpp"
#include "core/base/excerpt.hpp"
#include "core/base/printable.hpp"

namespace {

using namespace lockstep;

constexpr int differing_or_damaged = 1;

constexpr std::string_view help = R"(Shows what a checkpoint holds, or in what two of them differ.

Usage: lockstep-inspect PATH [PATH]
       lockstep-inspect --trace DIR

  lockstep-inspect run1             the checkpoints in a folder
  lockstep-inspect run1/step-400    a checkpoint: manifest, tensors, digests
  lockstep-inspect w.safetensors    the tensors of a file, with their digests
  lockstep-inspect PATH PATH        the differences of two checkpoints or files

Every byte is read, and digests are compared with those of the manifest. It
runs without mpirun.

--trace turns the trace in DIR, such as run1/trace, into pictures for Perfetto
or chrome://tracing. A training does so at its end; use this for one that was
killed or still runs. It also says what each rank was doing.

Options:
  -h,--help                 Print this help and exit
  --version                 Print the version and exit

Exit codes: 0 undamaged, or equal; 1 damaged, differing, or any other failure;
2 wrong input; 7 a file could not be read or written.
)";

[[noreturn]] void refuse(const std::string& what) {
  throw ConfigError{what + "; expected lockstep-inspect PATH [PATH]"};
}

Report report_for(const std::vector<std::string>& arguments) {
  std::vector<std::filesystem::path> paths;
  bool only_paths = false, of_trace = false;
  for (const std::string& argument : arguments) {
    if (!only_paths && argument == "--")
      only_paths = true;
    else if (!only_paths && (argument == "--help" || argument == "-h"))
      return {std::string{help}};
    else if (!only_paths && argument == "--trace")
      of_trace = true;
    else if (!only_paths && argument == "--version")
      return {version_of("lockstep-inspect") + "\n"};
    else if (!only_paths && argument.size() > 1 && argument.front() == '-')
      refuse(fmt::format("there is no option {}", excerpt(argument)));
    else
      paths.emplace_back(argument);
  }
  if (paths.empty()) refuse("no path was given");
  if (of_trace && paths.size() > 1) refuse("--trace takes one folder");
  if (of_trace) return inspect_trace(paths[0]);
  if (paths.size() > 2) refuse(fmt::format("{} paths were given", paths.size()));
  return paths.size() == 1 ? inspect(paths[0]) : compare(paths[0], paths[1]);
}

}  // namespace

int main(int argc, char** argv) {
  return run_tool([&] {
    const Report report = report_for({argv + 1, argv + argc});
    write_for_reader(printable(report.text));
    if (report.trouble.empty()) return 0;
    complain(report.trouble);
    return differing_or_damaged;
  });
}

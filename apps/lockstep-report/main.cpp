// Reads the command line, and writes the page.
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-report/page.hpp"
#include "apps/lockstep-report/run.hpp"
#include "apps/options/standard_output.hpp"
#include "apps/options/tool_main.hpp"
#include "core/base/excerpt.hpp"
#include "core/base/file_io.hpp"
#include "core/base/own_file.hpp"
#include "core/base/printable.hpp"
#include "core/cluster/counted.hpp"
#include "sync/checkpoint/file.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::report;

constexpr std::string_view help = R"(Makes a page of what runs did, where their time went, and who held up the others.

Usage: lockstep-report RUN_DIR... [-o FILE]

  lockstep-report run1              a folder that lockstep-train --run-dir wrote
  lockstep-report run1 run2 run3    several, in the same figures
  lockstep-report metrics.jsonl     a file that lockstep-train --metrics wrote

The page is one file of HTML, which a browser shows without a network. A run
may still be going on, or have been killed at any moment.

Options:
  -o,--output FILE          The page, or - for standard output. Default:
                            report.html
  -h,--help                 Print this help and exit
  --version                 Print the version and exit

Exit codes: 0 the page is there; 2 wrong input; 7 a file could not be read or
written; 1 any other failure.
)";

[[noreturn]] void refuse(const std::string& what) {
  throw ConfigError{what + "; expected lockstep-report RUN_DIR... [-o FILE]"};
}

struct CommandLine {
  std::vector<std::filesystem::path> runs;
  std::string output = "report.html";
  std::string text = {};  ///< to print instead
};

CommandLine parse(std::span<char*> arguments) {
  CommandLine line;
  bool only_paths = false;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string argument = arguments[i];
    if (!only_paths && argument == "--")
      only_paths = true;
    else if (!only_paths && (argument == "--help" || argument == "-h"))
      return {.text = std::string{help}};
    else if (!only_paths && argument == "--version")
      return {.text = version_of("lockstep-report") + "\n"};
    else if (!only_paths && (argument == "-o" || argument == "--output")) {
      if (++i == arguments.size()) refuse(argument + " needs a file");
      line.output = arguments[i];
    } else if (!only_paths && argument.starts_with("--output="))
      line.output = argument.substr(std::string_view{"--output="}.size());
    else if (!only_paths && argument.starts_with('-'))
      refuse(fmt::format("there is no option {}", excerpt(argument)));
    else
      line.runs.emplace_back(argument);
  }
  if (line.runs.empty()) refuse("no run was given");
  if (line.output.empty()) refuse("the file of -o has no name");
  return line;
}

/// A file that holds something else would be lost.
void require_replaceable(const std::filesystem::path& path) {
  std::error_code error;
  const auto there = std::filesystem::status(path, error);
  if (std::filesystem::is_directory(there))
    throw ConfigError{fmt::format("-o {}: is a folder; expected a file", excerpt(path.string()))};
  if (!std::filesystem::exists(there)) return;
  if (!std::filesystem::is_regular_file(there))
    throw ConfigError{fmt::format("-o {}: is no regular file; expected a new file, a page, or - for standard output",
                                  excerpt(path.string()))};
  require_own(path, {page_begin}, fmt::format("-o {}", excerpt(path.string())),
              "a new file, or a page of lockstep-report");
}

void make_page(const CommandLine& line) {
  if (line.output != "-") require_replaceable(line.output);
  const std::string page = page_of(read_runs(line.runs));
  if (line.output == "-") {
    write_output(page);
    return;
  }
  try {
    NewFile file{line.output, "the page"};
    file.write(std::as_bytes(std::span{page}));
    file.commit();
  } catch (const FileError& error) {
    if (!is_about_path(error.code())) throw;
    throw ConfigError{fmt::format("{}; expected a file that can be written", error.what())};
  }
  write_output(printable(fmt::format(
      "{}: {} kB, {}{}\n", line.output, (page.size() + 999) / 1000,
      counted(static_cast<std::int64_t>(line.runs.size()), "run"),
      page_has_charts() ? "" : ", with tables only: this build found no Chart.js (Debian: libjs-chart.js)")));
}

}  // namespace

int main(int argc, char** argv) {
  return run_tool([&] {
    const CommandLine line = parse({argv + 1, argv + argc});
    if (!line.text.empty())
      write_for_reader(line.text);
    else
      make_page(line);
    return 0;
  });
}

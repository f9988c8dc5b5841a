#include "apps/options/run_command_line.hpp"

#include <cstdlib>
#include <cstring>
#include <exception>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "apps/options/standard_output.hpp"
#include "core/base/exit_code.hpp"
#include "core/base/inherited_signals.hpp"
#include "core/base/stream.hpp"

namespace lockstep {
namespace {

/// True on the one process that answers --help: rank 0 as launchers number ranks, or a process without a launcher.
bool speaks_for_the_job() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"})
    if (const char* rank = std::getenv(name)) return std::strcmp(rank, "0") == 0;
  return true;
}

/// Prints the answer that the command line asks for: the exit code.
int answer_with(const std::string& answer) {
  try {
    if (speaks_for_the_job()) write_output(answer);
    return static_cast<int>(Error::ExitCode::done);
  } catch (const Error& error) {
    write_to_stderr(fmt::format("lockstep: error: {}\n", error.what()));
    return static_cast<int>(exit_code_of(error));
  }
}

}  // namespace

std::string words_of(int argc, const char* const* argv) {
  std::string words;
  for (int i = 1; i < argc; ++i) (words += argv[i]) += ' ';
  return words;
}

int run_command_line(int& argc, char**& argv, const std::function<std::optional<std::string>()>& parse,
                     const std::function<RuntimeOptions()>& options, const std::function<void(Runtime&)>& body) {
  keep_closed_streams_closed();
  settle_inherited_signals();
  std::exception_ptr wrong;  // reported once for the job, so only when the ranks know each other
  try {
    if (const std::optional<std::string> answer = parse()) return answer_with(*answer);
  } catch (...) {
    wrong = std::current_exception();
  }
  return run_program(
      argc, argv,
      [&] {
        if (wrong) std::rethrow_exception(wrong);
        return options();
      },
      body);
}

}  // namespace lockstep

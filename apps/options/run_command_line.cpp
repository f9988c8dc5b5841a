#include "apps/options/run_command_line.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

namespace lockstep {
namespace {

/// True on the one process that answers --help: rank 0 as launchers number ranks, or a process without a launcher.
bool speaks_for_the_job() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"})
    if (const char* rank = std::getenv(name)) return std::strcmp(rank, "0") == 0;
  return true;
}

}  // namespace

int run_command_line(int& argc, char**& argv, const std::function<std::optional<std::string>()>& parse,
                     const std::function<RuntimeOptions()>& options, const std::function<void(Runtime&)>& body) {
  std::exception_ptr wrong;  // reported once for the job, so only when the ranks know each other
  try {
    if (const std::optional<std::string> answer = parse()) {
      if (speaks_for_the_job()) std::fputs(answer->c_str(), stdout);
      return 0;
    }
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

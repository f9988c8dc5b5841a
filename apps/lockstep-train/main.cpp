// Reads the command line; everything else is the library's.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include <lockstep/lockstep.hpp>

#include "command_line.hpp"

namespace {

/// True on the one process that answers --help: rank 0 as launchers number it, or a process without a launcher.
bool speaks_for_the_job() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"})
    if (const char* rank = std::getenv(name)) return std::strcmp(rank, "0") == 0;
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep;
  CommandLine line;
  std::exception_ptr wrong;  // said once for the job, so not before the ranks know each other
  try {
    line = parse_command_line(argc, argv);
  } catch (...) {
    wrong = std::current_exception();
  }
  if (line.answer) {
    if (speaks_for_the_job()) std::fputs(line.answer->c_str(), stdout);
    return 0;
  }
  log::set_level(line.log_level);
  return run_program(
      argc, argv,
      [&] {
        if (wrong) std::rethrow_exception(wrong);
        return line.runtime;
      },
      [&](Runtime& runtime) {
        const ImageTrainingResult result = train_on_images(runtime.strategy(), runtime.device().name(), line.training);
        if (runtime.is_chief()) std::puts(to_json(result).c_str());
      });
}

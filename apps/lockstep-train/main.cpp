// Reads the command line; everything else is the library's.
#include <cstdio>

#include <lockstep/lockstep.hpp>

#include "apps/lockstep-train/command_line.hpp"
#include "apps/options/run_command_line.hpp"

int main(int argc, char** argv) {
  using namespace lockstep;
  CommandLine line;
  return run_command_line(
      argc, argv,
      [&] {
        line = parse_command_line(argc, argv);
        log::set_level(line.log_level);
        return line.answer;
      },
      [&] { return line.runtime; },
      [&](Runtime& runtime) {
        const ImageTrainingResult result = train_on_images(runtime.strategy(), runtime.device().name(), line.training);
        if (runtime.is_chief()) std::puts(to_json(result).c_str());
      });
}

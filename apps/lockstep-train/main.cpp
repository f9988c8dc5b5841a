// Reads the command line; the library does everything else.
#include <string>
#include <string_view>

#include <fmt/format.h>

#include <lockstep/lockstep.hpp>

#include "apps/lockstep-train/command_line.hpp"
#include "apps/options/run_command_line.hpp"
#include "apps/options/standard_output.hpp"

namespace {

using namespace lockstep;

/// A model may write any bytes. Control characters other than line breaks and tabs become `\x1b`, so that they cannot
/// harm a terminal.
std::string printable(std::string_view text) {
  std::string shown;
  for (const char each : text) {
    const auto byte = static_cast<unsigned char>(each);
    const bool control = (byte < 0x20 && each != '\n' && each != '\t') || byte == 0x7f;
    shown += control ? fmt::format("\\x{:02x}", byte) : std::string{each};
  }
  return shown;
}

/// COLL. By the chief; the others wait for it, and fail with it.
void write_result(Runtime& runtime, const TrainingResult& result) {
  if (!runtime.is_chief()) {
    runtime.strategy().run([](ReplicaContext&) {});
    return;
  }
  const auto alone = runtime.working_alone();
  runtime.strategy().run([&](ReplicaContext&) {
    const std::string sample = result.sample.empty() ? "" : printable(result.sample) + "\n";
    write_output(sample + to_json(result) + "\n");
  });
}

}  // namespace

int main(int argc, char** argv) {
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
        const TrainingResult result = run_training(runtime.strategy(), runtime.device().name(), line.training);
        write_result(runtime, result);
      });
}

// Reads the command line; the library does everything else.
#include <csignal>
#include <string>

#include <lockstep/training.hpp>

#include "apps/lockstep-train/job.hpp"
#include "apps/lockstep-train/options/command_line.hpp"
#include "apps/options/run_command_line.hpp"
#include "apps/options/standard_output.hpp"
#include "core/base/log_settings.hpp"

namespace {

using namespace lockstep;

/// COLL. By the chief; the others wait for it, and fail with it.
void write_result(Runtime& runtime, const std::string& result) {
  if (!runtime.is_chief()) {
    runtime.strategy().run([](ReplicaContext&) {});
    return;
  }
  const auto alone = runtime.working_alone();
  runtime.strategy().run([&](ReplicaContext&) { write_output(result); });
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
      [&] {
        line.runtime.stop_signal = SIGUSR1;
        if (line.purpose == Purpose::training && !line.training.checkpoints.empty())
          line.runtime.on_termination = RuntimeOptions::OnTermination::ask_to_stop;
        return line.runtime;
      },
      [&](Runtime& runtime) { write_result(runtime, run_job(runtime.strategy(), runtime.device_name(), line)); });
}

// Reads the command line; the library does everything else.
#include <csignal>
#include <string>

#include <fmt/format.h>

#include <lockstep/lockstep.hpp>

#include "apps/lockstep-train/command_line.hpp"
#include "apps/options/run_command_line.hpp"
#include "apps/options/standard_output.hpp"

namespace {

using namespace lockstep;

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

/// The training ended early: the line says where, and how to go on.
StoppedError stopped(const TrainingResult& result, const TrainingOptions& options) {
  const std::int64_t made = result.fit.steps;
  const std::string how = options.checkpoints.empty() ? "nothing was saved, as there is no --checkpoint-dir"
                                                      : "to go on, give the same command with --resume auto";
  return StoppedError{fmt::format("stopped {}, as a signal asked; {}",
                                  made > 0 ? fmt::format("after step {}", made) : "before the first step", how)};
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
        if (!line.training.checkpoints.empty()) line.runtime.on_termination = OnTermination::ask_to_stop;
        return line.runtime;
      },
      [&](Runtime& runtime) {
        const TrainingResult result = run_training(runtime.strategy(), runtime.device().name(), line.training);
        if (result.fit.stopped) throw stopped(result, line.training);
        write_result(runtime, result);
      });
}

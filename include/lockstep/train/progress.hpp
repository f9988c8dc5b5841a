// A run's progress, for the person who waits for it.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>

#include <lockstep/train/observer.hpp>

namespace lockstep {

/// How progress is written.
enum class ProgressStyle : std::uint8_t {
  one_line,  ///< to a terminal: one line, redrawn
  lines,     ///< to anything else: a plain line now and then
};

/// `one_line` if `stream` leads to a terminal. Under mpirun a rank writes to a pipe or pseudo-terminal of the launcher,
/// whatever the user sees, so the launcher's own stream is examined instead.
ProgressStyle progress_style(std::FILE* stream);

/// Prints step, epoch, loss, samples per second and the time left. For the chief alone. `stream` must outlive it.
class Progress final : public Observer {
 public:
  Progress(std::FILE* stream, ProgressStyle style) : stream_{stream}, style_{style} {}

  void on_step(const StepReport& report) override;
  void on_evaluation(const EvaluationReport& report) override;

 private:
  using Clock = std::chrono::steady_clock;

  std::FILE* stream_;
  ProgressStyle style_;
  Clock::time_point last_{};
};

}  // namespace lockstep

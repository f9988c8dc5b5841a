// How a run is going, for the person who waits for it.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>

#include <lockstep/train/observer.hpp>

namespace lockstep {

/// What the lines are written to.
enum class ProgressStyle : std::uint8_t {
  one_line,  ///< a terminal: one line, drawn over and over
  lines,     ///< anything else: a plain line now and then
};

/// `one_line` if a person's terminal is behind `stream`. Under mpirun a rank writes to a pipe or a pseudo-terminal of
/// the launcher's, whatever the user sees, so there it is the launcher's own stream that is looked at.
ProgressStyle progress_style(std::FILE* stream);

/// Step, epoch, loss, samples a second and the time left. For the chief alone.
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
  bool open_line_ = false;
};

}  // namespace lockstep

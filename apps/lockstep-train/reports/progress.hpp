// A run's progress, for the person who waits for it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <lockstep/models/fit/observer.hpp>

#include "apps/lockstep-train/options/training_options.hpp"
#include "core/base/stream.hpp"

namespace lockstep {

class TimeLeft;

/// For the chief, on stderr. Not null: what is not shown goes to an observer that says nothing.
std::unique_ptr<Observer> make_progress(ShowProgress show);

/// How progress is written.
enum class ProgressStyle : std::uint8_t {
  one_line,  ///< to a terminal: one line, redrawn, as wide as the terminal
  lines,     ///< to anything else: a plain line now and then
};

/// `one_line` if the descriptor `stream` leads to a terminal, unless TERM=dumb says that it shows plain text only.
/// Under mpirun a rank writes to a pipe or pseudo-terminal of the launcher, whatever the user sees, so the launcher's
/// own stream is examined instead.
ProgressStyle progress_style(int stream);

/// Prints step, epoch, loss, samples per second, the share of waiting as far as it is known, and the time left,
/// evaluations included. For the chief alone. `stream` is a descriptor.
class Progress final : public Observer {
 public:
  Progress(int stream, ProgressStyle style);
  ~Progress() override;

  void on_step(const Step& report) override;
  void on_evaluating(const Evaluation::Progress& progress) override;
  void on_evaluation(const Evaluation& report) override;
  void on_parts(const Parts& report) override;

 private:
  using Clock = std::chrono::steady_clock;

  /// Whether the last line is old enough for another one.
  bool due() const;
  std::size_t width() const;
  void draw(const std::string& line);
  void end_line();
  void end_step_line();

  int stream_;
  LineWriter writer_;
  ProgressStyle style_;
  std::unique_ptr<TimeLeft> left_;
  std::optional<double> waiting_;
  Clock::time_point last_{};
  bool on_step_line_ = false;                ///< whether a step's line may still be redrawn
  std::optional<Observer::Step> not_shown_;  ///< the last step, unless it was drawn
};

/// Prints the same as a JSON object per line, for programs: the first step, the last one, evaluations, and in between
/// at most ten lines a second.
class JsonProgress final : public Observer {
 public:
  explicit JsonProgress(int stream);
  ~JsonProgress() override;

  void on_step(const Step& report) override;
  void on_evaluating(const Evaluation::Progress& progress) override;
  void on_evaluation(const Evaluation& report) override;
  void on_parts(const Parts& report) override;

 private:
  using Clock = std::chrono::steady_clock;

  bool due() const;
  void print(const std::string& line);

  LineWriter writer_;
  std::unique_ptr<TimeLeft> left_;
  std::optional<double> waiting_;
  Clock::time_point last_{};
};

}  // namespace lockstep

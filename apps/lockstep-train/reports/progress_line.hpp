// What the progress of a run says, as a function of times and widths.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include <lockstep/models/fit/observer.hpp>

namespace lockstep {

/// Estimates how long a run still takes from its recent steps and its last evaluation.
class TimeLeft {
 public:
  void on_step(const Observer::Step& report);
  void on_evaluating(const Observer::Evaluation::Progress& progress);
  void on_evaluation(const Observer::Evaluation& report);

  /// Nothing as long as only one step is known: the first one of a run also allocates and compiles.
  std::optional<double> seconds() const;

 private:
  std::int64_t steps_ = 0;   ///< seen: a run that goes on from a checkpoint begins later than with step 1
  double step_seconds_ = 0;  ///< mean over the steps of the last ten seconds or so
  double training_seconds_ = 0;
  double samples_per_step_ = 0;
  std::int64_t steps_left_ = 0;
  double evaluated_seconds_ = 0;    ///< of one sample; 0 before the first evaluation
  double samples_to_evaluate_ = 0;  ///< by the evaluations to come, the present one included
  double evaluated_ = 0;            ///< samples of the present one so far
};

/// "0:07", "12:05", "1:02:03".
std::string clock_text(double seconds);

/// A piece of a line. If a line is too long, the piece with the highest `rank` goes first.
struct LinePiece {
  std::string text;
  int rank;
};

/// The pieces with two blanks between them, in at most `width` characters. If even one piece is too long, it is cut.
std::string fitted(std::initializer_list<LinePiece> pieces, std::size_t width);

/// The part of its time that a replica has waited for the others, on average; nothing where there are no others.
std::optional<double> waiting_share(const Observer::Parts& report);

/// `waiting` is the last share that is known.
std::string step_line(const Observer::Step& report, std::optional<double> seconds_left, std::size_t width,
                      std::optional<double> waiting = {});
std::string evaluating_line(const Observer::Evaluation::Progress& progress, std::optional<double> seconds_left,
                            std::size_t width);
std::string evaluation_line(const Observer::Evaluation& report, std::size_t width);

// The same as JSON objects: docs/reference.md lists their fields.
std::string step_json(const Observer::Step& report, std::optional<double> seconds_left,
                      std::optional<double> waiting = {});
std::string evaluating_json(const Observer::Evaluation::Progress& progress, std::optional<double> seconds_left);
std::string evaluation_json(const Observer::Evaluation& report);

}  // namespace lockstep

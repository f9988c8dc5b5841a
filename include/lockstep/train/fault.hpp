// Faults on purpose: what a trainer does when it is told to fail, so that the ways out can be tested.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include <lockstep/strategy/variable.hpp>

namespace lockstep {

/// `KIND:RANK:STEP`: what one rank does in one step (counted from 0), after its backward pass and before the
/// optimizer's merge_call.
struct Fault {
  enum class Kind : std::uint8_t {
    throws,       ///< "throw": an exception leaves replica code
    exits,        ///< "exit": the process ends, with nothing said
    kills,        ///< "kill": SIGKILL
    stops,        ///< "stop": SIGSTOP
    skips_merge,  ///< "skip-merge": replica code returns without the optimizer's merge_call
    flips         ///< "flip": one bit of one weight is another one, and nothing is said
  };

  Kind kind;
  int rank;
  std::int64_t step;

  /// ConfigError, naming LOCKSTEP_FAULT and what was expected, for anything but a fault of one of `ranks` ranks.
  static Fault parse(std::string_view text, int ranks);

  /// Of the environment variable LOCKSTEP_FAULT; nothing where it is not set.
  static std::optional<Fault> from_environment(int ranks);

  /// Carries the fault out if it is this rank's, in this step. True: return from replica code without merging.
  ///
  /// What flips is the highest bit of the mantissa of one of `weights`, f32 or f64: the weight becomes up to half as
  /// large again, or up to a third smaller, and no step that all ranks make alike brings it back. Which one is drawn
  /// from the step: first the variable, each as likely, then the element. From there on it is the first that is not 0
  /// (or as good as that), since the next step would absorb what becomes of 0. Error where there is none.
  [[nodiscard]] bool strike(int at_rank, std::int64_t at_step, std::span<const Variable> weights) const;
};

/// "throw", "skip-merge".
std::string_view name_of(Fault::Kind kind);

}  // namespace lockstep

// The first steps of a training, whose runs compare what the replicas hold (Strategy::attest_first).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/sync/strategy/variable.hpp>

namespace lockstep::detail {

/// Which runs of a strategy attest by themselves. Counts only what the ranks have agreed on, so all know it.
class FirstSteps {
 public:
  explicit FirstSteps(int steps = 2) : steps_{steps}, left_{steps} {}

  void begin_again() { *this = FirstSteps{steps_}; }

  /// Whether the next run attests.
  bool is_open() const { return left_ > 0 && idle_runs_left_ > 0; }

  /// After a run that every replica ended with values of the same `digest`. It was a step if an optimizer of this
  /// library made one in it, or if the values are others than after the last such run.
  void passed(bool made_step, std::uint64_t digest) {
    const bool is_step = made_step || (last_ && *last_ != digest);
    --(is_step ? left_ : idle_runs_left_);
    last_ = digest;
  }

 private:
  int steps_;
  int left_;
  int idle_runs_left_ = 8;  ///< those that change nothing, such as evaluations, are not compared for ever
  std::optional<std::uint64_t> last_;
};

/// What the optimizers of this library have done in a run that attests by itself.
struct FirstStepNotes {
  struct Given {
    std::string name;  ///< "variable 'w'"
    std::uint64_t digest;
  };

  bool made_step = false;
  std::vector<const VariableState*> summed;  ///< updated with gradients that the optimizer has summed over the ranks
  std::vector<Given> given;                  ///< gradients that the program says are the same on every rank
};

}  // namespace lockstep::detail

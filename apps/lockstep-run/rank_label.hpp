// What a launcher that is asked to puts before each line of its ranks.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::run {

/// The labels that may begin a line. A pattern stands for them as in MPICH's -prepend-pattern: %r, %p and %g are
/// numbers and %h a word; others are %t, a time as ctime writes it, and %s, any number of blanks.
class RankLabels {
 public:
  /// Those of Open MPI 4 and 5, of MPICH's mpiexec -l and of srun --label.
  RankLabels();

  /// Knows labels of this pattern, too.
  void add(std::string pattern);

  /// Knows labels like this one, too: with other numbers and other words. Nothing happens if it is empty, or longer
  /// than any label.
  void learn(std::string_view label);

  /// How many bytes of `line` are a label. 0 without one; nothing if the line ends where a label may go on.
  std::optional<std::size_t> length(std::string_view line) const;

 private:
  std::vector<std::string> patterns_;
};

}  // namespace lockstep::run

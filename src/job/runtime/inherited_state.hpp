// What a process inherits from the one that started it, as far as it can make a rank slow or change its results.
// docs/failures.md lists all that a process inherits.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// The state of one process.
struct InheritedState {
  /// By name: "OMP_NUM_THREADS", "nice", "limit of memory (ulimit -v)". For people, without what is by default.
  std::map<std::string, std::string> values;
  /// The floating-point modes that were changed, see floating_point_modes.hpp.
  std::string floating_point_modes;
  std::string binding;  ///< openmp_binding()
  bool blocks_sigterm = false;
  std::vector<int> cores;  ///< that this process may use

  bool operator==(const InheritedState&) const = default;
};

/// LOCAL. Of this process and its calling thread.
InheritedState inherited_state();

/// LOCAL. The variable by which OpenMP binds threads to cores: "OMP_PROC_BIND=true". Empty if there is none.
std::string openmp_binding();

/// As text in one line, and back.
std::string to_text(const InheritedState& state);
InheritedState parse_inherited_state(const std::string& text);

/// What is doubtful about ranks with `states`, in sentences. `nodes[r]` is rank r's node, `names[r]` its name.
std::vector<std::string> doubts_about(std::span<const InheritedState> states, std::span<const int> nodes,
                                      std::span<const std::string> names);

/// LOCAL. Gives this process, and the threads that it will start, stacks of up to 8 MiB if they have less. ConfigError
/// if it may not have 1 MiB: numeric libraries would crash in the middle of a step.
void require_stack();

}  // namespace lockstep

// How the processes of a job were started, as far as the environment tells.
#pragma once

#include <functional>
#include <string>

namespace lockstep {

/// Reads an environment variable; null if it is not set.
using ReadVariable = std::function<const char*(const char* name)>;

/// A warning for a job of one rank, though Slurm was asked for several tasks: without MPI's launcher each of them
/// trains alone. Empty otherwise, and for all but the first of them. To be called before MPI starts, which sets the
/// variables of its launcher even without one.
std::string launch_warning(const ReadVariable& variable);

}  // namespace lockstep

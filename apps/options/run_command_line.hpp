// The `main` of a program: run_program with a command line before it.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include <lockstep/runtime/runtime.hpp>

namespace lockstep {

/// `parse` reads the command line, on every rank, and returns the text that it asks to be printed instead of a run (the
/// help, the version), if it does: one process prints it. What `parse` throws is said once for the job, as what
/// `options` and `body` throw is (run_program). Returns the exit code.
int run_command_line(int& argc, char**& argv, const std::function<std::optional<std::string>()>& parse,
                     const std::function<RuntimeOptions()>& options, const std::function<void(Runtime&)>& body);

}  // namespace lockstep

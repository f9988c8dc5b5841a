// The `main` of a program: reads the command line, then calls run_program.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include <lockstep/job/runtime/runtime.hpp>

namespace lockstep {

/// The words of a command line after the program's name, for RuntimeOptions::program_options.
std::string words_of(int argc, const char* const* argv);

/// COLL. `parse` reads the command line on every rank. It returns the text to print instead of a run (the help, the
/// version), if asked for; one process prints that. What `parse` throws is reported once for the job, like what
/// `options` and `body` throw (run_program). Returns the exit code.
int run_command_line(int& argc, char**& argv, const std::function<std::optional<std::string>()>& parse,
                     const std::function<RuntimeOptions()>& options, const std::function<void(Runtime&)>& body);

}  // namespace lockstep

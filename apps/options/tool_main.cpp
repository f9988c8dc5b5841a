#include "apps/options/tool_main.hpp"

#include <csignal>
#include <exception>
#include <new>
#include <string>

#include <fmt/format.h>
#include <unistd.h>

#include <lockstep/base/error.hpp>

#include "apps/options/standard_output.hpp"
#include "base/file_io.hpp"
#include "base/memory_use.hpp"
#include "control/tag.hpp"

namespace lockstep {

void complain(std::string_view what) {
  const std::string line = fmt::format("lockstep: error: {}\n", one_line(what));
  (void)!::write(STDERR_FILENO, line.data(), line.size());
}

int run_tool(const std::function<int()>& work) {
  keep_closed_streams_closed();
  std::signal(SIGPIPE, SIG_DFL);
  try {
    return work();
  } catch (const ConfigError& error) {
    complain(error.what());
    return static_cast<int>(Error::ExitCode::user_input);
  } catch (const FileError& error) {
    complain(error.what());
    return static_cast<int>(is_about_path(error.code()) ? Error::ExitCode::failure : Error::ExitCode::checkpoint);
  } catch (const std::bad_alloc&) {
    complain("out of memory: " + why_no_memory());
    return static_cast<int>(Error::ExitCode::failure);
  } catch (const std::exception& error) {
    complain(error.what());
    return static_cast<int>(Error::ExitCode::failure);
  }
}

}  // namespace lockstep

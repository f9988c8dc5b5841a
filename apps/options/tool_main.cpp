#include "apps/options/tool_main.hpp"

#include <exception>
#include <new>
#include <string>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/version.hpp>

#include "core/base/file_io.hpp"
#include "core/base/inherited_signals.hpp"
#include "core/base/memory_use.hpp"
#include "core/base/stream.hpp"
#include "core/control/tag.hpp"

namespace lockstep {

std::string version_of(const std::string& program) {
  const std::string all = version();
  return program + all.substr(all.find(' '));
}

void complain(std::string_view what) {
  write_to_stderr(fmt::format("lockstep: error: {}\n", one_line(what)));
}

int run_tool(const std::function<int()>& work) {
  keep_closed_streams_closed();
  settle_inherited_signals();
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

#include "apps/options/standard_output.hpp"

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>

#include "apps/options/wrapped_text.hpp"
#include "core/base/stream.hpp"
#include "core/base/system_error.hpp"

namespace lockstep {

void write_output(std::string_view text) {
  const int error = std::fflush(stdout) == 0 ? write_text(STDOUT_FILENO, text) : errno;
  if (error != 0 && error != EPIPE)
    throw Error{fmt::format("standard output cannot be written: {}", error_text(error))};
}

void write_for_reader(std::string_view text) {
  write_output(wrapped(text, columns_of_output()));
}

std::size_t columns_of_output() {
  if (const char* const given = std::getenv("COLUMNS")) {
    const std::string_view text{given};
    std::size_t columns = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), columns);
    if (error == std::errc{} && end == text.data() + text.size() && columns > 0) return columns;
  }
  winsize size{};
  if (::isatty(STDOUT_FILENO) == 1 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return size.ws_col;
  return std::numeric_limits<std::size_t>::max();
}

}  // namespace lockstep

#include "core/base/site.hpp"

#include <fmt/format.h>

namespace lockstep {
namespace {

/// Whether a place in `file` says nothing to users: there, a template such as std::make_unique evaluated the default
/// argument that was to say where the program is.
bool is_header_of_libraries(std::string_view file) {
  return file.starts_with("/usr/include/") || file.find("/include/c++/") != std::string_view::npos ||
         file.find("/include/lockstep/") != std::string_view::npos;
}

}  // namespace

std::string_view file_of(const Here& here) {
  const std::string_view file = here.file_name();
  if (here.line() == 0) return file;
  if (is_header_of_libraries(file)) return {};
  return file.substr(file.find_last_of('/') + 1);  // npos + 1 is 0
}

std::string site_of(const Here& here) {
  const std::string_view file = file_of(here);
  return file.empty() || here.line() == 0 ? std::string{file} : fmt::format("{}:{}", file, here.line());
}

std::string call_text(std::string_view call, const Here& here) {
  const std::string site = site_of(here);
  return site.empty() ? fmt::format("{}: ", call) : fmt::format("{} ({}): ", call, site);
}

}  // namespace lockstep

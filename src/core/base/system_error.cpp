#include "core/base/system_error.hpp"

#include <cerrno>
#include <optional>
#include <system_error>

#include <fmt/format.h>
#include <sys/resource.h>

namespace lockstep {
namespace {

std::optional<rlim_t> limit_of(decltype(RLIMIT_NOFILE) resource) {
  rlimit limit = {};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

std::string limit_behind(int error) {
  switch (error) {
    case EFBIG:
      if (const auto limit = limit_of(RLIMIT_FSIZE))
        return fmt::format(" (this process may make files of {} bytes, ulimit -f)", *limit);
      return {};
    case EMFILE:
      if (const auto limit = limit_of(RLIMIT_NOFILE))
        return fmt::format(" (this process may open {} files, ulimit -n)", *limit);
      return {};
    default: return {};
  }
}

}  // namespace

std::string error_text(int error) {
  return std::generic_category().message(error) + limit_behind(error);
}

}  // namespace lockstep

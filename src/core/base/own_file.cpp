#include "core/base/own_file.hpp"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <span>

#include <fmt/format.h>
#include <sys/stat.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/file_io.hpp"

namespace lockstep {

void require_own(const std::filesystem::path& path, std::initializer_list<std::string_view> beginnings,
                 std::string_view name, std::string_view expected, std::size_t skipped) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return;
    throw FileError{name, "read", errno};
  }
  if (!S_ISREG(status.st_mode)) return;
  const std::optional<Descriptor> file = find_to_read(path, name);
  if (!file) return;
  // Not std::ranges::max: clang 14, with which scripts/fuzz compiles, does not compile that of libstdc++ 12.
  const std::string_view longest =
      std::max(beginnings, [](std::string_view a, std::string_view b) { return a.size() < b.size(); });
  std::string first(longest.size(), '\0');
  first.resize(read_at(*file, skipped, std::as_writable_bytes(std::span{first}), name));
  // One whose writer was killed, or found the disk full, may be shorter. Those with a beginning before it appear as a
  // whole.
  const bool may_be_cut = skipped == 0 || status.st_size == 0;
  const auto begins_with = [&](std::string_view beginning) {
    const std::size_t size = may_be_cut ? std::min(beginning.size(), first.size()) : beginning.size();
    return beginning.substr(0, size) == std::string_view{first}.substr(0, size);
  };
  if (std::ranges::none_of(beginnings, begins_with))
    throw ConfigError{fmt::format("{}: holds something else, which would be lost; expected {}", name, expected)};
}

}  // namespace lockstep
